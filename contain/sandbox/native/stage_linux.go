package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// exitStage is what the stage ends with when it could not do its work; the
// parent reads the status pipe rather than this.
const exitStage = 125

// Main takes over when the binary was started as the stage inside a sandbox
// (or as the program that Probe looks around with), and then never returns.
// The binary's main calls it before anything else.
func Main() {
	if len(os.Args) != 2 {
		return
	}
	switch {
	case os.Args[0] == stageName && os.Args[1] == "init":
		os.Exit(initStage())
	case os.Args[0] == probeProgram && slices.Contains(probeArgs, os.Args[1]):
		os.Exit(probeInside(os.Args[1]))
	}
}

// A stage does not wait for the packages that are set up after this one: their
// tables are a good part of its time to start.
func init() { Main() }

// reporter writes events to the parent.
type reporter struct{ *json.Encoder }

func (r reporter) fail(step string, err error) int {
	e := event{Kind: "error", Step: step, Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = int(errno)
	}
	// The parent is the only one to tell; if it is gone so are we.
	_ = r.Encode(e)
	return exitStage
}

// initStage is PID 1 inside: it builds the root, gives up all privilege,
// starts the program, reaps what becomes an orphan and ends with the program.
func initStage() int {
	runtime.LockOSThread()
	status := reporter{json.NewEncoder(os.NewFile(fdStatus, "status"))}
	if err := closeInherited(); err != nil {
		return status.fail("close descriptors", err)
	}
	planFile := os.NewFile(fdPlan, "plan")
	var p plan
	if err := json.NewDecoder(planFile).Decode(&p); err != nil {
		return status.fail("read plan", err)
	}
	// This goroutine and that of the signals have their threads before the
	// program starts: a full pids cap would deny PID 1 another one.
	go func() {
		// The supervisor never writes again: this returns when it has died,
		// and all that is inside dies with PID 1.
		_, _ = io.Copy(io.Discard, planFile)
		os.Exit(exitStage)
	}()
	b := &builder{p: &p, held: p.Held.controls()}
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"identity", func() error { return identity(b) }},
		{"file system", b.build},
		{"network", func() error { return network(&p, b.tmpFD) }},
		{"working directory", func() error { return workingDir(p.Dir) }},
		{"rlimits", func() error { return setLimits(p.Limits) }},
		{"privileges", func() error { return giveUp(b) }},
	} {
		if err := s.do(); err != nil {
			return status.fail(s.what, err)
		}
	}
	if missing := sandbox.Missing(p.Require, b.held); len(missing) > 0 {
		_ = status.Encode(event{Kind: "missing", Missing: missing})
		return exitStage
	}
	return runProgram(status, p, b.held)
}

// closeInherited closes what the supervisor inherited itself, not knowing, and
// so passed on. The Go runtime's own poller stays, but ends with exec.
func closeInherited() error {
	if err := unix.CloseRange(fdPlan, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= fdSocket {
			continue
		}
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:") {
			_ = unix.Close(fd) // the listing's own is closed already
		}
	}
	return nil
}

func identity(b *builder) error {
	// The program has our user ID: it must not look into us through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	if b.p.DropGroups {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("drop groups: %w", errno)
		}
	}
	// Only now, that the parent has put us into our cgroup, does the new
	// namespace begin there. It counts for this thread and what it starts.
	switch err := unix.Unshare(unix.CLONE_NEWCGROUP); err {
	case nil:
		b.hold(sandbox.CgroupNS, sandbox.Enforced, "")
	default:
		b.hold(sandbox.CgroupNS, sandbox.Absent, err.Error())
	}
	return unix.Sethostname([]byte("cordon"))
}

func workingDir(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return &os.PathError{Op: "chdir", Path: dir, Err: err}
	}
	return nil
}

// network brings loopback up, the only interface there is, and hands the
// parent what it asked for: a listener for each address, the master of the
// terminal, the temporary directories.
func network(p *plan, tmpFD int) error {
	defer unix.Close(fdSocket)
	defer unix.Close(tmpFD)
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := send(sentTmp, tmpFD); err != nil {
		return err
	}
	for _, a := range p.Listen {
		l, err := net.Listen("tcp", a)
		if err != nil {
			return err
		}
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		if err := errors.Join(send(a, int(f.Fd())), f.Close(), l.Close()); err != nil {
			return err
		}
	}
	if p.TTY {
		return terminal(p)
	}
	return nil
}

func send(what string, fd int) error {
	if err := unix.Sendmsg(fdSocket, []byte(what), unix.UnixRights(fd), nil, 0); err != nil {
		return fmt.Errorf("hand out %s: %w", what, err)
	}
	return nil
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req)
}

// terminal makes a pair in the sandbox's own devpts: the program gets the
// slave as its three streams, the parent the master.
func terminal(p *plan) error {
	master, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fmt.Errorf("unlock terminal: %w", err)
	}
	if p.Rows > 0 && p.Cols > 0 {
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: p.Rows, Col: p.Cols}); err != nil {
			return fmt.Errorf("size of terminal: %w", err)
		}
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("slave of terminal: %w", errno)
	}
	defer unix.Close(int(slave))
	for fd := range 3 {
		if err := unix.Dup3(int(slave), fd, 0); err != nil {
			return err
		}
	}
	return send(sentTTY, master)
}

func setLimits(l limits) error {
	for _, r := range []struct {
		what  int
		value int64
	}{
		{unix.RLIMIT_FSIZE, l.FileBytes}, {unix.RLIMIT_NOFILE, l.OpenFiles}, {unix.RLIMIT_NPROC, l.PIDs}, {unix.RLIMIT_DATA, l.DataBytes},
		{unix.RLIMIT_CPU, l.CPUSeconds},
	} {
		if r.value <= 0 {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(r.what, &now); err != nil {
			return err
		}
		if r.what == unix.RLIMIT_DATA {
			r.value = max(r.value, ownData()+dataSlack) // it holds PID 1 too
		}
		v := min(uint64(r.value), now.Max)
		if err := syscall.Setrlimit(r.what, &syscall.Rlimit{Cur: v, Max: v}); err != nil {
			return err
		}
	}
	// With 1 the kernel starts no core handler of the host either, which it
	// does with 0 (core(5)).
	return syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{Cur: 1, Max: 1})
}

// dataSlack is what PID 1 may still need.
const dataSlack = 96 << 20

// ownData is the size of this process's writable private memory.
func ownData() int64 {
	return cgroup.ReadField("/proc/self", "status", "VmData:") << 10
}

// giveUp ends all ways back: capabilities, privilege by exec, paths outside
// the mounts, system calls. It counts for this thread and so for the program,
// which it starts; the filter counts for all threads of PID 1.
func giveUp(b *builder) error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if err == unix.EINVAL && c > 30 {
				break // past the last capability of this kernel
			}
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	b.hold(sandbox.NoNewPrivs, sandbox.Enforced, "")
	if err := restrictPaths(b); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	var none [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("empty capabilities: %w", err)
	}
	b.hold(sandbox.NoCaps, sandbox.Enforced, "")
	if err := sandbox.LoadFilter(); err != nil {
		return err
	}
	b.hold(sandbox.Seccomp, sandbox.Enforced, "")
	return nil
}

// restrictPaths is a second wall behind the mounts: what may be written is
// named again, and abstract sockets and signals end at it.
func restrictPaths(b *builder) error {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil || abi < 2 {
		b.hold(sandbox.Landlock, sandbox.Absent, "this kernel has no Landlock of version 2 or later, or it is switched off")
		return nil
	}
	c := landlock.V9
	c.HandledAccessNet = 0 // the network namespace is that wall
	ruleset, flags, err := c.BestEffort().NewRulesetFD(
		landlock.RODirs("/"),
		landlock.RWDirs(b.writableDirs...).WithRefer(),
		landlock.RWFiles(b.writableFiles...),
		landlock.RWDirs("/dev").WithIoctlDev(),
		landlock.RWDirs("/proc"),
	)
	if err != nil {
		return err
	}
	defer unix.Close(ruleset)
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), uintptr(flags), 0); errno != 0 {
		return errno
	}
	note := fmt.Sprintf("ABI %d", abi)
	if abi < 6 {
		note += ": signals and abstract sockets are bounded by the namespaces only"
	}
	b.hold(sandbox.Landlock, sandbox.Enforced, note)
	return nil
}

// runProgram starts the program, waits for all children until it has ended, then
// ends all that is left.
func runProgram(status reporter, p plan, held []sandbox.Held) int {
	// Nothing inside can end PID 1 with these. They are caught, not ignored:
	// the program would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGQUIT)
	if err := status.Encode(event{Kind: "ready", Held: toWire(held)}); err != nil {
		return exitStage
	}
	child, err := start(p)
	if err != nil {
		code := 126
		if errors.Is(err, os.ErrNotExist) {
			code = 127
		}
		fmt.Fprint(os.Stderr, sandbox.NotStarted(p.Argv[0], err))
		_ = status.Encode(event{Kind: "exit", Code: code})
		return code
	}
	return reap(status, child)
}

func start(p plan) (pid int, err error) {
	path, err := lookPath(p)
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{
		Env:   p.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: p.TTY, Ctty: 0},
	}
	return syscall.ForkExec(path, p.Argv, attr)
}

// lookPath finds the program in the PATH that it will have.
func lookPath(p plan) (string, error) {
	name := p.Argv[0]
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	found := error(syscall.ENOENT)
	for _, e := range p.Env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(dirs, ":") {
			if !filepath.IsAbs(dir) {
				continue // the working directory holds what the agent wrote
			}
			err := executable(dir + "/" + name)
			if err == nil {
				return dir + "/" + name, nil
			}
			if err != syscall.ENOENT && err != syscall.ENOTDIR {
				found = err
			}
		}
	}
	return "", found
}

// executable tells why a path could not be run. Links of /proc are refused:
// /proc/self/exe is, until the exec, this binary of the host.
func executable(path string) error {
	for range 5 {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
		switch {
		case err != nil:
			return err
		case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
			return syscall.EACCES
		}
		interpreter := shebang(path)
		if interpreter == "" {
			return nil
		}
		path = interpreter
	}
	return syscall.ELOOP
}

// shebang is the interpreter that a script names, or "".
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "" // execute permission without read permission: no script
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	line, ok := strings.CutPrefix(string(head[:n]), "#!")
	if !ok {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	if words := strings.Fields(line); len(words) > 0 {
		return words[0]
	}
	return ""
}

func reap(status reporter, child int) int {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return status.fail("wait", err)
		}
		if pid != child || !(ws.Exited() || ws.Signaled()) {
			continue
		}
		_ = syscall.Kill(-1, syscall.SIGKILL)
		e := event{Kind: "exit", Code: ws.ExitStatus()}
		if ws.Signaled() {
			e.Signal = int(ws.Signal())
			e.Code = 128 + e.Signal
		}
		if err := status.Encode(e); err != nil {
			return exitStage
		}
		return e.Code
	}
}
