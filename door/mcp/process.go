package mcp

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a running server, the leader of a process group of its own.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File // the end that Cordon writes
	stdout *os.File // the end that Cordon reads
	// done is closed when the process has ended and state is set.
	done  chan struct{}
	once  sync.Once
	state *os.ProcessState
	// swept: the group was killed after its leader had ended. Its number may
	// be another's from then on. Only Serve's goroutine looks at it.
	swept bool
}

// sharedStderr is what both the server and Cordon write to. A file needs no
// lock, and the server gets it as it is.
func sharedStderr(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &lockedWriter{w: w}
}

// start starts the server. Errors are *StartError.
func start(cfg Config, stderr io.Writer) (*process, error) {
	fail := func(err error) error {
		return &StartError{Server: cfg.Server, Path: cfg.Command[0], Err: err, Hint: hint(err, cfg.Dir)}
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fail(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, fail(err)
	}
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Env, cmd.Dir = cfg.Env, cfg.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, stderr
	cmd.SysProcAttr = groupAttr()
	// A process left behind may hold stderr open for ever.
	cmd.WaitDelay = cfg.GracePeriod
	p := &process{cmd: cmd, stdin: inW, stdout: outR, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	err = <-started
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, fail(err)
	}
	return p, nil
}

// run starts the process and waits for it, on one thread: the kernel's
// parent-death signal is sent when the thread that started a process ends.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // what it says stands in the state
	p.state = p.cmd.ProcessState
	close(p.done)
}

func hint(err error, dir string) string {
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "install it, or give the path of the program after --"
	case errors.Is(err, fs.ErrPermission):
		return "make the file executable, or name its interpreter before it"
	case errors.Is(err, fs.ErrNotExist):
		if dir != "" {
			return "check the path of the program and that the directory " + dir + " exists"
		}
		return "check the path of the program"
	}
	return "run the command by itself to see what it says"
}

// killGroup kills all that is left of the group.
func (p *process) killGroup() {
	if p.swept {
		return
	}
	p.swept = p.within(p.done, 0)
	p.signalGroup(syscall.SIGKILL)
}

func (p *process) terminateGroup() {
	if !p.swept {
		p.signalGroup(syscall.SIGTERM)
	}
}

func (p *process) closeStdin() { p.once.Do(func() { p.stdin.Close() }) }

// within reports whether c was closed before d was over.
func (p *process) within(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	default:
	}
	if d <= 0 {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// ends reports whether the process ended before d was over or hurry closed.
func (p *process) ends(hurry <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-hurry:
		// Asked to end by a signal: a short while for it to see its input end
		// is all the same polite, but no more.
		return p.within(p.done, min(d, 200*time.Millisecond))
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

func (p *process) exit(server string) *ExitError {
	e := &ExitError{Server: server, Code: p.state.ExitCode()}
	if ws, ok := p.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal, e.Code = ws.Signal().String(), 128+int(ws.Signal())
	}
	return e
}
