package native

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"golang.org/x/sys/unix"
)

// launcher is one start, from the spec to the program.
type launcher struct {
	r    *Runtime
	spec sandbox.Spec
	caps sandbox.Caps
	plan plan
	// pipes to and from the program: its ends, and ours.
	inside, outside [3]*os.File
}

// prepare makes the plan of what the spec asks for.
func (r *Runtime) prepare(s sandbox.Spec) (*launcher, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	caps, err := s.Caps.WithDefaults()
	if err != nil {
		return nil, err
	}
	mounts, err := sortMounts(s.Mounts)
	if err != nil {
		return nil, err
	}
	dir := cmp.Or(s.Dir, "/")
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("native: working directory %q (want an absolute path)", dir)
	}
	if len(s.Listen) > 0 && s.Accept == nil {
		return nil, errors.New("native: addresses to listen on, but nothing to accept the listeners")
	}
	return &launcher{r: r, spec: s, caps: caps, plan: plan{
		Argv: s.Argv, Env: s.Env, Dir: dir, Home: home(s.Env), Root: r.root, Mounts: mounts, TmpBytes: caps.DiskBytes,
		Limits: limits{FileBytes: caps.FileBytes, OpenFiles: caps.OpenFiles},
		Listen: s.Listen, TTY: s.TTY, Rows: s.Rows, Cols: s.Cols, Require: s.Require,
	}}, nil
}

// home is the last HOME of env, or "" when it is no absolute path.
func home(env []string) string {
	h := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "HOME="); ok {
			h = v
		}
	}
	if !filepath.IsAbs(h) {
		return ""
	}
	return filepath.Clean(h)
}

// ownPlaces are the sandbox's own: nothing of the host is shown there.
var ownPlaces = []string{"/proc", "/sys", "/dev"}

// sortMounts puts outer mounts first, and leaves out what is shown anyhow.
func sortMounts(mounts []sandbox.Mount) ([]sandbox.Mount, error) {
	var sorted []sandbox.Mount
	for _, m := range mounts {
		m.Source, m.Target = filepath.Clean(m.Source), filepath.Clean(m.Target)
		if m.Target == "/" {
			return nil, errors.New("native: a mount at / (the root is the sandbox's own)")
		}
		if i := slices.IndexFunc(ownPlaces, func(own string) bool { return within(m.Target, own) }); i >= 0 {
			return nil, fmt.Errorf("native: a mount at %s (%s is the sandbox's own)", m.Target, ownPlaces[i])
		}
		shown := func(dir string) bool { return within(m.Target, dir) }
		if m.Access == sandbox.ReadOnly && m.Source == m.Target && slices.ContainsFunc(systemDirs, shown) {
			continue
		}
		sorted = append(sorted, m)
	}
	slices.SortStableFunc(sorted, func(a, b sandbox.Mount) int {
		return cmp.Compare(strings.Count(a.Target, "/"), strings.Count(b.Target, "/"))
	})
	return sorted, nil
}

// launch starts the stage, puts it into its cgroup, hands it the plan and
// waits for its word that the walls stand. On an error nothing is left.
func (l *launcher) launch(ctx context.Context) (_ *process, err error) {
	p := &process{
		r: l.r, caps: l.caps, began: time.Now(), ended: make(chan struct{}), reaped: make(chan struct{}), stop: make(chan struct{}), tmpFD: -1,
	}
	for _, m := range l.plan.Mounts {
		if m.Access == sandbox.Overlay {
			p.meter.Add(m.Upper)
		}
	}
	if err := l.begin(p); err != nil {
		return nil, err
	}
	// From here on the end of the stage is the end of all.
	p.stopContext = context.AfterFunc(ctx, func() { p.Kill(context.Cause(ctx)) })
	p.wall = time.AfterFunc(l.caps.Wall, func() { p.Kill(sandbox.ErrTimeout) })
	fail := func(err error) (*process, error) {
		p.Kill(err)
		closeAll(l.outside[:]...)
		<-p.reaped
		p.cleanUp()
		close(p.ended)
		return nil, err
	}
	if err := l.r.add(p); err != nil {
		return fail(err)
	}
	if err := json.NewEncoder(p.plan).Encode(l.plan); err != nil {
		return fail(&stageError{step: "plan", err: err})
	}
	got, err := receive(p.socket)
	if err != nil {
		return fail(&stageError{step: "listeners", err: err})
	}
	p.tmpFD = got.tmp
	ready, err := l.awaitReady(p)
	if err != nil {
		got.close()
		if cause := p.killedFor(); cause != nil {
			err = cause
		}
		return fail(err)
	}
	p.controls = ready.Held.controls()
	l.connect(p, got)
	p.watcher.Go(p.watch)
	go p.finish()
	return p, nil
}

// begin starts the stage in a cgroup, or without one where the host has groups
// that cannot be entered.
func (l *launcher) begin(p *process) error {
	p.group = l.r.groups().Enter(l.caps, initThreads)
	l.fallBack(p.group)
	err := l.spawn(p)
	if err != nil && len(p.group.Dirs()) > 0 {
		p.group.Remove()
		p.group = l.r.groups().None(err)
		l.fallBack(p.group)
		err = l.spawn(p)
	}
	if err != nil {
		return &stageError{step: "start", err: err}
	}
	l.plan.Held = toWire(l.hold(p.group))
	return nil
}

// stageError is that the walls could not be built.
type stageError struct {
	step  string
	err   error
	errno syscall.Errno
}

func (e *stageError) Error() string { return "native: " + e.step + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

func (l *launcher) awaitReady(p *process) (event, error) {
	var e event
	err := p.status.Decode(&e)
	switch {
	case err != nil:
		return e, &stageError{step: "start", err: fmt.Errorf("the stage inside ended early: %w", err)}
	case e.Kind == "ready":
		return e, nil
	case e.Kind == "missing":
		return e, &sandbox.RequiredError{Runtime: Name, Missing: e.Missing}
	case e.Errno != 0:
		return e, &stageError{step: e.Step, err: errors.New(e.Error), errno: syscall.Errno(e.Errno)}
	}
	return e, &stageError{step: e.Step, err: errors.New(e.Error)}
}

// fallBack bounds by rlimits what no cgroup bounds.
func (l *launcher) fallBack(g *cgroup.Group) {
	if g.Memory == "" {
		l.plan.Limits.DataBytes = l.caps.MemoryBytes
	}
	if g.PIDs == "" {
		l.plan.Limits.PIDs = l.caps.PIDs + initThreads
	}
	if g.CPU == "" {
		l.plan.Limits.CPUSeconds = int64(math.Ceil(l.caps.CPUs * l.caps.Wall.Seconds()))
	}
}

// groupHeld is what the group bounds, and what stands in where there is none.
func groupHeld(g *cgroup.Group) []sandbox.Held {
	state := func(c sandbox.Control, dir, why, instead string) sandbox.Held {
		if dir != "" {
			return sandbox.Held{Control: c, State: sandbox.Enforced}
		}
		if os.Geteuid() != 0 {
			why += "; systemd-run --user --scope gives a user one"
			if g.Legacy() {
				why = "on a host with cgroup v1 they are for root; systemd.unified_cgroup_hierarchy=1 on the kernel's command line gives it v2"
			}
		}
		return sandbox.Held{Control: c, State: sandbox.Degraded, Note: instead + " (no cgroup: " + why + ")"}
	}
	pids := state(sandbox.PIDsCap, g.PIDs, g.NoPIDs, "RLIMIT_NPROC, which counts within the sandbox since Linux 5.14")
	if g.PIDs == "" && os.Geteuid() == 0 {
		pids.State, pids.Note = sandbox.Absent, "no cgroup ("+g.NoPIDs+"), and RLIMIT_NPROC does not hold root: run as an ordinary user"
	}
	return []sandbox.Held{
		state(sandbox.MemoryCap, g.Memory, g.NoMemory, "RLIMIT_DATA per process, and a look at the whole every 50 ms that misses unmapped memory files"), g.Swap(),
		pids,
		state(sandbox.CPUCap, g.CPU, g.NoCPU, "RLIMIT_CPU bounds the time of each process, not the number of processors"),
	}
}

// hold is what stands without the stage.
func (l *launcher) hold(g *cgroup.Group) []sandbox.Held {
	var held []sandbox.Held
	for _, c := range []sandbox.Control{sandbox.UserNS, sandbox.MountNS, sandbox.PIDNS, sandbox.NetNS, sandbox.IPCNS, sandbox.UTSNS} {
		held = append(held, sandbox.Held{Control: c, State: sandbox.Enforced})
	}
	held = append(held, groupHeld(g)...)
	disk := sandbox.Held{Control: sandbox.DiskCap, State: sandbox.Enforced, Note: "temporary directories by the kernel"}
	if slices.ContainsFunc(l.plan.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.Overlay }) {
		disk.Note += ", overlays by measuring them while it runs"
	}
	if slices.ContainsFunc(l.plan.Mounts, func(m sandbox.Mount) bool { return m.Access == sandbox.ReadWrite }) {
		disk.State, disk.Note = sandbox.Degraded, disk.Note+"; directories of the host that were mounted writable are bounded by the size of single files only"
	}
	return append(held, disk,
		sandbox.Held{Control: sandbox.WallCap, State: sandbox.Enforced},
		sandbox.Held{Control: sandbox.KernelWall, State: sandbox.Absent, Note: "the host's kernel is shared"})
}

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// attributes of the stage's process. IDs are mapped to themselves: root maps
// all that it has, so that an overlay can keep the owners of files.
func (l *launcher) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setsid: true}
	if os.Geteuid() == 0 {
		a.UidMappings, a.GidMappings = sameIDs("/proc/self/uid_map"), sameIDs("/proc/self/gid_map")
		// Denied to us, in a user namespace that is ours already, it is denied
		// to all below, and must not be asked for.
		denied, _ := os.ReadFile("/proc/self/setgroups")
		l.plan.DropGroups = strings.TrimSpace(string(denied)) != "deny"
		a.GidMappingsEnableSetgroups = l.plan.DropGroups
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	// Exec by anyone but root loses capabilities that are not ambient.
	for c := uintptr(0); c <= unix.CAP_CHECKPOINT_RESTORE; c++ {
		a.AmbientCaps = append(a.AmbientCaps, c)
	}
	return a
}

// sameIDs maps each range of IDs that there is to itself.
func sameIDs(file string) []syscall.SysProcIDMap {
	text, _ := os.ReadFile(file)
	var m []syscall.SysProcIDMap
	for line := range strings.Lines(string(text)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil {
			m = append(m, syscall.SysProcIDMap{ContainerID: inside, HostID: inside, Size: n})
		}
	}
	if len(m) == 0 {
		m = []syscall.SysProcIDMap{{Size: 1}}
	}
	return m
}

// spawn starts the stage.
func (l *launcher) spawn(p *process) error {
	var opened []*os.File
	done := func(err error) error { // the stage's ends, and on an error ours
		closeAll(opened...)
		if err != nil {
			closeAll(p.plan, p.statusFile, p.socket)
			closeAll(l.outside[:]...)
		}
		return err
	}
	pipe := func(oursReads bool) (ours *os.File, err error) {
		ours, theirs, err := newPipe(oursReads)
		if err == nil {
			opened = append(opened, theirs)
		}
		return ours, err
	}
	var err error
	for fd := 0; fd < 3 && !l.spec.TTY; fd++ {
		if l.outside[fd], err = pipe(fd > 0); err != nil {
			return done(err)
		}
		l.inside[fd] = opened[fd]
	}
	if p.plan, err = pipe(false); err != nil {
		return done(err)
	}
	planR := opened[len(opened)-1]
	if p.statusFile, err = pipe(true); err != nil {
		return done(err)
	}
	statusW := opened[len(opened)-1]
	p.status = json.NewDecoder(p.statusFile)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return done(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	p.socket, opened = os.NewFile(uintptr(pair[0]), "socket"), append(opened, theirs)

	attr := &os.ProcAttr{
		Files: []*os.File{l.inside[0], l.inside[1], l.inside[2], planR, statusW, theirs},
		Env:   []string{"GOGC=off", "GOMAXPROCS=2", "GOTRACEBACK=none"},
		Sys:   l.attributes(),
	}
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when this thread ends, so it stays
		// until the process has. If it cannot leave the cgroup it ends with
		// this goroutine.
		runtime.LockOSThread()
		back, err := p.group.Attach(attr.Sys)
		if err == nil {
			p.proc, err = os.StartProcess("/proc/self/exe", []string{stageName, "init"}, attr)
			if back() == nil {
				defer runtime.UnlockOSThread()
			}
		}
		started <- err
		if err != nil {
			return
		}
		proc := p.proc
		p.state, p.waitErr = proc.Wait()
		close(p.reaped)
	}()
	return done(<-started)
}

// newPipe makes a pipe. The program's end blocks, as programs expect; ours
// does not, so that closing it ends a read or write of it.
func newPipe(oursReads bool) (ours, theirs *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if !oursReads {
		fds[0], fds[1] = fds[1], fds[0]
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// received is what the stage handed out.
type received struct {
	tmp       int
	tty       *os.File
	listeners map[string]net.Listener
}

func (g *received) close() {
	closeAll(g.tty)
	for _, l := range g.listeners {
		l.Close()
	}
}

// receive takes what the stage hands out, until it closes its end.
func receive(socket *os.File) (*received, error) {
	g := &received{tmp: -1, listeners: map[string]net.Listener{}}
	text, control := make([]byte, 256), make([]byte, unix.CmsgSpace(4))
	for {
		n, oobn, _, _, err := unix.Recvmsg(int(socket.Fd()), text, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			g.close()
			return nil, err
		}
		if n == 0 && oobn == 0 {
			return g, socket.Close()
		}
		fd, err := onlyFD(control[:oobn])
		if err != nil {
			g.close()
			return nil, err
		}
		switch what := string(text[:n]); what {
		case sentTmp:
			g.tmp = fd
		case sentTTY:
			_ = unix.SetNonblock(fd, true) // so that Close ends a Read
			g.tty = os.NewFile(uintptr(fd), "tty")
		default:
			f := os.NewFile(uintptr(fd), what)
			l, err := net.FileListener(f)
			f.Close()
			if err != nil {
				g.close()
				return nil, err
			}
			g.listeners[what] = l
		}
	}
}

func onlyFD(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errors.New("no descriptor in the message"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.Join(errors.New("no descriptor in the message"), err)
	}
	return fds[0], nil
}

// connect starts what carries the streams, and hands out the listeners.
func (l *launcher) connect(p *process, got *received) {
	for _, addr := range l.spec.Listen {
		l.spec.Accept(addr, got.listeners[addr])
	}
	p.stdout = sandbox.NewCapped(l.spec.Stdout, l.caps.OutputBytes)
	p.stderr = sandbox.NewCapped(l.spec.Stderr, l.caps.OutputBytes)
	if got.tty != nil {
		p.tty = got.tty
		p.copy(p.stdout, got.tty)
		go feed(got.tty, l.spec.Stdin, func() { _, _ = got.tty.Write([]byte{4}) })
		return
	}
	p.closeAtEnd = l.outside[0]
	p.copy(p.stdout, l.outside[1])
	p.copy(p.stderr, l.outside[2])
	go feed(l.outside[0], l.spec.Stdin, func() { l.outside[0].Close() })
}

// feed gives the program its input and then its end. Nobody waits for it: a
// terminal's Read may never return.
func feed(w io.Writer, r io.Reader, end func()) {
	if r != nil {
		_, _ = io.Copy(onlyWriter{w}, onlyReader{r}) // the program may not want it
	}
	end()
}

// onlyWriter and onlyReader hide descriptors: io.Copy would splice between
// them, and then block where it cannot be ended.
type onlyWriter struct{ io.Writer }
type onlyReader struct{ io.Reader }
