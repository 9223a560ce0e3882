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
	"golang.org/x/sys/unix"
)

// process is one sandbox that runs.
type process struct {
	r     *Runtime
	caps  sandbox.Caps
	began time.Time
	group *group
	proc  *os.Process
	// plan is the end of the pipe whose closing ends the stage.
	plan, statusFile, socket *os.File
	status                   *json.Decoder
	controls                 []sandbox.Held
	uppers                   []string
	tmpFD                    int

	stdout, stderr *sandbox.Capped
	copiers        sync.WaitGroup
	watcher        sync.WaitGroup
	closeAtEnd     *os.File // the program's input
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

// Wait returns when the tree has ended and all its output has been written.
func (p *process) Wait() (sandbox.Result, error) {
	<-p.ended
	return p.result, p.waitErr
}

func (p *process) copy(w io.Writer, r *os.File) {
	p.copiers.Go(func() {
		_, _ = io.Copy(w, r) // a terminal ends with EIO
		// A writer that fails must not stop the program in its next write.
		_, _ = io.Copy(io.Discard, r)
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
	p.measure()
	r := sandbox.Result{Wall: wall, Stats: p.Stats(), StdoutCut: p.stdout.Cut(), StderrCut: p.stderr.Cut(), Controls: p.controls}
	r.User, r.System = p.group.times(p.state)
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
	case p.group.oomKills() > 0:
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
	p.group.remove()
	p.r.remove(p)
}

// lookEvery is the time between two looks at what is used. A look that took
// long is followed by a longer pause, up to lookAtLeast.
const (
	lookEvery   = 50 * time.Millisecond
	lookAtLeast = time.Second
)

// watch kills what is over a cap that the kernel does not hold by itself.
func (p *process) watch() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		began := time.Now()
		if cause := p.look(); cause != nil {
			p.Kill(cause)
			return
		}
		timer.Reset(min(lookEvery+4*time.Since(began), lookAtLeast))
	}
}

func (p *process) look() error {
	p.measure()
	if p.disk.Load() > p.caps.DiskBytes {
		return sandbox.ErrDisk
	}
	if p.group.oomKills() > 0 {
		return sandbox.ErrMemory
	}
	if p.group.memory == "" {
		used := anonymous(descendants(p.proc.Pid)) + tmpBytes(p.tmpFD)
		p.peak.Store(max(p.peak.Load(), used))
		if used > p.caps.MemoryBytes {
			return sandbox.ErrMemory
		}
	}
	return nil
}

// measure sums what temporary directories, upper directories, and deleted
// files that are still open take.
func (p *process) measure() {
	sum := tmpBytes(p.tmpFD)
	if len(p.uppers) > 0 {
		u := usage{limit: p.caps.DiskBytes, linked: map[inode]struct{}{}}
		for _, dir := range p.uppers {
			u.tree(dir)
		}
		for _, pid := range descendants(p.proc.Pid) {
			u.deleted(pid)
		}
		sum += u.bytes
	}
	p.disk.Store(sum)
}

// Stats is what has been used so far.
func (p *process) Stats() sandbox.Stats {
	s := p.group.stats()
	s.DiskBytes = p.disk.Load()
	s.PeakBytes = max(s.PeakBytes, p.peak.Load())
	return s
}
