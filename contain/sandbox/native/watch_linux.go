package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
	"golang.org/x/sys/unix"
)

// process is one sandbox that runs.
type process struct {
	r     *Runtime
	caps  sandbox.Caps
	began time.Time
	group *cgroup.Group
	proc  *os.Process
	// plan is the end of the pipe whose closing ends the stage.
	plan, statusFile, socket *os.File
	status                   *json.Decoder
	controls                 []sandbox.Held
	meter                    meter.Meter
	tmpFD                    int

	stdout, stderr *sandbox.Capped
	copiers        sync.WaitGroup
	watcher        sync.WaitGroup
	closeAtEnd     *os.File // the program's input
	tty            *os.File // our end of its terminal, or nil
	wall           *time.Timer
	stopContext    func() bool

	// reaped closes when PID 1, and with it the whole tree, is gone; then
	// state is set. stop ends the watch; ended closes when result is set.
	reaped, stop, ended chan struct{}
	state               *os.ProcessState
	waitErr             error
	result              sandbox.Result
	disk, peak          atomic.Int64

	mu    sync.Mutex
	cause error
	exit  *event // the program's own end
}

// Kill ends the whole tree: PID 1 is killed, and the kernel kills the rest of
// its namespace before PID 1 is gone.
func (p *process) Kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != nil || p.exit != nil {
		return
	}
	if cause == nil {
		cause = errors.New("native: killed")
	}
	p.cause = cause
	_ = p.proc.Signal(syscall.SIGKILL) // by pidfd: gone already is well too
}

func (p *process) killedFor() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Resize passes the size of the terminal on.
func (p *process) Resize(rows, cols uint16) {
	if p.tty != nil {
		// The descriptor is closed when the program has ended.
		_ = control(p.tty, func(fd uintptr) error {
			return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
		})
	}
}

func control(f *os.File, do func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = do(fd) }), err)
}

// Wait returns when the tree has ended and all its output has been written.
func (p *process) Wait() (sandbox.Result, error) {
	<-p.ended
	return p.result, p.waitErr
}

func (p *process) copy(w io.Writer, r *os.File) {
	p.copiers.Go(func() {
		// A terminal ends with EIO. Where it is the writer that fails, the
		// program's next write fails too, as it would without walls.
		_, _ = io.Copy(w, r)
		r.Close()
	})
}

// finish waits for the end and says what became of it.
func (p *process) finish() {
	var e event
	if err := p.status.Decode(&e); err == nil && e.Kind == "exit" {
		p.mu.Lock()
		if p.cause == nil {
			p.exit = &e
		}
		p.mu.Unlock()
	}
	<-p.reaped
	close(p.stop)
	p.watcher.Wait()
	wall := time.Since(p.began)
	closeAll(p.closeAtEnd)
	p.copiers.Wait()
	// What was written between two looks counts too.
	p.meter.Walk(p.caps.DiskBytes, p.tree())
	p.measure()
	r := sandbox.Result{Wall: wall, Stats: p.Stats(), StdoutCut: p.stdout.Cut(), StderrCut: p.stderr.Cut(), Controls: p.controls}
	r.OutputErr = errors.Join(p.stdout.Err(), p.stderr.Err())
	r.User, r.System = p.group.Times(p.state)
	p.mu.Lock()
	exit, cause := p.exit, p.cause
	p.mu.Unlock()
	switch {
	case exit != nil:
		r.ExitCode, r.Signal, r.Cause = exit.Code, exit.Signal, p.capReached(exit)
	case cause != nil:
		r.ExitCode, r.Signal, r.Cause = 128+int(syscall.SIGKILL), int(syscall.SIGKILL), cause
	default:
		r.ExitCode, r.Signal = 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
		if r.Cause = p.capReached(&event{}); r.Cause == nil {
			r.Cause = fmt.Errorf("native: the sandbox ended without a result (PID 1: %v)", p.state)
		}
	}
	p.result = r
	p.cleanUp()
	close(p.ended)
}

// capReached tells whether a program that ended by itself did so over a cap.
func (p *process) capReached(e *event) error {
	switch {
	case p.group.OOMKills() > 0:
		return sandbox.ErrMemory
	case p.disk.Load() > p.caps.DiskBytes || e.Signal == int(syscall.SIGXFSZ):
		return sandbox.ErrDisk
	}
	return nil
}

// cleanUp runs once, after the tree is gone.
func (p *process) cleanUp() {
	p.stopContext()
	p.wall.Stop()
	closeAll(p.plan, p.statusFile, p.socket)
	if p.tmpFD >= 0 {
		unix.Close(p.tmpFD)
	}
	p.group.Remove()
	p.r.remove(p)
}

const (
	// lookEvery is the time between two looks at what is used.
	lookEvery = 50 * time.Millisecond
)

// watch kills what is over a cap that the kernel does not hold by itself.
func (p *process) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
		}
		if cause := p.look(); cause != nil {
			p.Kill(cause)
			return
		}
	}
}

func (p *process) look() error {
	if p.meter.Due(p.caps.DiskBytes - p.disk.Load()) {
		p.meter.Walk(p.caps.DiskBytes, p.tree())
	}
	p.measure()
	if p.disk.Load() > p.caps.DiskBytes {
		return sandbox.ErrDisk
	}
	if p.group.OOMKills() > 0 {
		return sandbox.ErrMemory
	}
	if p.group.Memory == "" {
		used := anonymous(p.tree()) + tmpBytes(p.tmpFD)
		p.peak.Store(max(p.peak.Load(), used))
		if used > p.caps.MemoryBytes {
			return sandbox.ErrMemory
		}
	}
	return nil
}

// measure sums what overlays and temporary directories take.
func (p *process) measure() {
	p.disk.Store(p.meter.Bytes() + tmpBytes(p.tmpFD))
}

// tree lists the processes below PID 1. Once that is reaped its number may
// be somebody else's.
func (p *process) tree() []int {
	select {
	case <-p.reaped:
		return nil
	default:
		return meter.Descendants(p.proc.Pid)
	}
}

// Stats is what has been used so far.
func (p *process) Stats() sandbox.Stats {
	s := p.group.Stats()
	s.DiskBytes, s.PIDs = p.disk.Load(), int64(len(p.tree()))
	s.PeakBytes = max(s.PeakBytes, p.peak.Load())
	return s
}
