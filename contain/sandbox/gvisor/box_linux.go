package gvisor

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
	"golang.org/x/sys/unix"
)

// box is one sandbox: runsc as PID 1 of a namespace that holds it, its gofer
// and the sandbox's own kernel, so that the end of one is the end of all.
type box struct {
	r       *Runtime
	dir     string
	group   *cgroup.Group
	proc    *os.Process
	in, out *os.File
	errs    *os.File
	said    inside.Tail
	heard   chan struct{} // all that was said
	done    chan struct{}
	last    sandbox.Stats
	oom     bool
}

// start makes the run's directory and starts the builder of the root in it.
func (b *box) start(runsc, platform string, d *description, run string) error {
	b.dir = filepath.Join(b.r.runs, strings.ToLower(rand.Text()[:12]))
	err := b.bundle(d)
	if err == nil {
		p := d.root
		p.Dir, p.Groups = b.dir, b.group.Dirs()
		p.Runsc = arguments(runsc, platform, b.dir)
		err = b.spawn(p)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("gvisor: %w", err), os.RemoveAll(b.dir))
	}
	return b.own(run)
}

// arguments of runsc: no network but loopback, no sockets and no pipes of the
// host, no cgroups of its own (it lives in ours).
func arguments(runsc, platform, dir string) []string {
	return []string{
		runsc, "--root", filepath.Join(dir, stateDir), "--log", os.DevNull, "--platform", platform, "--network", "none", "--ignore-cgroups",
		"--host-uds", "none", "--host-fifo", "none", "--overlay2", "none", "--file-access", "exclusive", "--file-access-mounts", "shared",
		"run", "--bundle", dir, wireID,
	}
}

func (b *box) bundle(d *description) error {
	for _, dir := range []string{"", rootDir, mountsDir, stateDir} {
		if err := os.Mkdir(filepath.Join(b.dir, dir), 0o700); err != nil {
			return err
		}
	}
	text, err := json.Marshal(d.spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "config.json"), text, 0o600)
}

// own notes whose the directory is, for KillRun and for who cleans up.
func (b *box) own(run string) error {
	o := owner{Run: run, Supervisor: os.Getpid(), SupervisorStarted: inside.StartTime(os.Getpid()), First: b.proc.Pid, FirstStarted: inside.StartTime(b.proc.Pid)}
	text, err := json.Marshal(o)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, ownerFile+".new"), text, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(b.dir, ownerFile+".new"), filepath.Join(b.dir, ownerFile))
	}
	if err != nil {
		b.Kill()
		<-b.done
		b.Release()
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// spawn starts the builder, which becomes runsc.
func (b *box) spawn(p rootPlan) error {
	var theirs, ours []*os.File
	fail := func(err error) error {
		closeAll(theirs)
		closeAll(ours)
		return err
	}
	for i := range 4 { // input, output, errors, plan
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		if i == 1 || i == 2 {
			r, w = w, r
		}
		theirs, ours = append(theirs, r), append(ours, w)
	}
	attr := &os.ProcAttr{
		Dir: "/", Files: theirs, Env: []string{"GOTRACEBACK=none"},
		Sys: &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setsid: true},
	}
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when this thread ends, so it stays
		// until the process has.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		proc, err := os.StartProcess("/proc/self/exe", []string{builderName}, attr)
		b.proc = proc
		started <- err
		if err == nil {
			_, _ = proc.Wait()
			<-b.heard
			b.last, b.oom = b.group.Stats(), b.group.OOMKills() > 0
			close(b.done)
		}
	}()
	b.in, b.out, b.errs, b.heard = ours[0], ours[1], ours[2], make(chan struct{})
	go func() {
		_, _ = io.Copy(&b.said, b.errs)
		close(b.heard)
	}()
	if err := <-started; err != nil {
		return fail(err)
	}
	closeAll(theirs)
	err := json.NewEncoder(ours[3]).Encode(p)
	if err = errors.Join(err, ours[3].Close()); err != nil && !errors.Is(err, syscall.EPIPE) {
		b.Kill()
		<-b.done
		closeAll(ours[:3])
		return err
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Wire is what runsc hands on to the first process inside.
func (b *box) Wire() (io.WriteCloser, io.Reader) { return b.in, b.out }

// Kill ends PID 1, and the kernel all that is in its namespace.
func (b *box) Kill() { _ = b.proc.Signal(syscall.SIGKILL) }

func (b *box) Done() <-chan struct{} { return b.done }

func (b *box) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// Usage is what the cgroup counts: the program's, and gVisor's own.
func (b *box) Usage() sandbox.Stats {
	if b.ended() {
		return b.last
	}
	return b.group.Stats()
}

func (b *box) OutOfMemory() bool {
	if b.ended() {
		return b.oom
	}
	return b.group.OOMKills() > 0
}

// Processes hold the files of the host that the program has open.
func (b *box) Processes() []int {
	if b.ended() {
		return nil
	}
	return meter.Descendants(b.proc.Pid)
}

func (b *box) Said() string { return b.said.String() }

func (b *box) Release() {
	closeAll([]*os.File{b.in, b.out, b.errs})
	b.group.Remove()
	_ = os.RemoveAll(b.dir) // what is left is swept by the next New
}
