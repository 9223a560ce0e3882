package inside

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/meter"
	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// exitStage is what the first process ends with when it could not do its
// work; the supervisor reads the wire rather than this.
const exitStage = 125

// Main takes over when the binary was started as the first process inside a
// sandbox (or as the program that a probe looks around with), and then never
// returns. The binary's main calls it before anything else.
func Main() {
	if len(os.Args) != 2 || os.Args[0] != Path {
		return
	}
	switch what := os.Args[1]; {
	case what == Arg && os.Getpid() == 1:
		os.Exit(newStage().run())
	case isProbe(what):
		os.Exit(probeInside(what))
	}
}

// stage is PID 1 inside: it starts the program, carries its streams and
// connections, reaps what becomes an orphan and ends with the program.
type stage struct {
	link *link
	// streams of the program, as long as this process lives.
	streams [firstConn]*stream
	plan    plan
	// planned and started are closed by the supervisor's word.
	planned, started chan struct{}
	carried          sync.WaitGroup // output that is under way
	sent             sync.WaitGroup // what connections still have to say

	landlock int // its version, or 0

	mu  sync.Mutex
	tty *os.File
}

func newStage() *stage {
	s := &stage{planned: make(chan struct{}), started: make(chan struct{})}
	in, out := pollable(0), pollable(1)
	s.link = newLink(in, out)
	s.link.control = s.hear
	for id := range s.streams {
		s.streams[id] = s.link.stream(uint32(id))
	}
	return s
}

// pollable gives a descriptor to Go's poller: reading it takes no thread.
func pollable(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), strconv.Itoa(fd))
}

func (s *stage) hear(k kind, payload []byte) error {
	switch k {
	case kPlan:
		if err := json.Unmarshal(payload, &s.plan); err != nil {
			return err
		}
		close(s.planned)
	case kGo:
		close(s.started)
	case kResize:
		if len(payload) == 4 {
			s.resize(binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]))
		}
	default:
		return broken("kind %d", k)
	}
	return nil
}

func (s *stage) resize(rows, cols uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tty == nil {
		return
	}
	if raw, err := s.tty.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // a terminal that is gone has no size
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
		})
	}
}

// say tells the supervisor; if it is gone so are we.
func (s *stage) say(e event) {
	e.Proof = s.plan.Proof
	if s.link.sendJSON(kEvent, e) != nil {
		os.Exit(exitStage)
	}
}

func (s *stage) fail(step string, err error) int {
	e := event{Kind: "error", Step: step, Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = int(errno)
	}
	s.say(e)
	return exitStage
}

func (s *stage) run() int {
	runtime.LockOSThread() // Landlock holds a thread and what that starts
	// The program may have our user ID: it must not look into us through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return s.fail("prctl", err)
	}
	if err := keepOthers(); err != nil {
		return s.fail("descriptors", err)
	}
	go func() {
		// The wire ends when the supervisor has died, and all that is inside
		// dies with PID 1.
		_ = s.link.run()
		os.Exit(exitStage)
	}()
	<-s.planned
	signals := catchSignals()
	listeners, err := s.listen()
	if err != nil {
		return s.fail("listen inside", err)
	}
	if err := unix.Chdir(s.plan.Dir); err != nil {
		return s.fail("working directory "+strconv.Quote(s.plan.Dir), err)
	}
	if err := s.giveUp(); err != nil {
		return s.fail("privileges", err)
	}
	s.say(event{Kind: "ready", Seen: s.lookAround()})
	<-s.started
	child, tty, err := s.start()
	if err != nil {
		code := 126
		if errors.Is(err, os.ErrNotExist) {
			code = 127
		}
		_, _ = io.WriteString(s.streams[streamErr], sandbox.NotStarted(s.plan.Argv[0], err))
		s.endOutput()
		s.say(event{Kind: "exit", Code: code})
		return code
	}
	go forward(signals, child)
	go s.measure()
	for i, l := range listeners {
		go s.accept(i, l)
	}
	return s.reap(child, tty)
}

// keepOthers: what was inherited beside the three streams, not knowing whose
// it is, ends with exec. So do the Go runtime's own.
func keepOthers() error {
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err == nil {
		return nil
	}
	entries, err := os.ReadDir("/proc/self/fd") // gVisor of 2022
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// catchSignals: nothing inside can end PID 1 with these. They are caught, not
// ignored: the program would inherit that.
func catchSignals() <-chan os.Signal {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGTSTP, syscall.SIGALRM, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGXCPU, syscall.SIGXFSZ)
	return c
}

// forward gives the program what the engine sends to PID 1, such as at stop.
func forward(signals <-chan os.Signal, child int) {
	for sig := range signals {
		_ = syscall.Kill(child, sig.(syscall.Signal))
	}
}

func (s *stage) listen() ([]net.Listener, error) {
	var listeners []net.Listener
	for _, addr := range s.plan.Listen {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// giveUp ends all ways back that the runtime's own program may have left.
func (s *stage) giveUp() error {
	for what, v := range map[int]int64{unix.RLIMIT_FSIZE: s.plan.FileBytes, unix.RLIMIT_NOFILE: s.plan.OpenFiles} {
		if v <= 0 {
			continue
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return fmt.Errorf("rlimit: %w", err)
		}
		n := min(uint64(v), now.Max)
		if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("rlimit: %w", err)
		}
	}
	if err := syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("rlimit: %w", err)
	}
	// Of this thread, which is to start the program; the filter, which goes to
	// all threads, takes it to them (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC). A
	// binary with cgo has no other way.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	var err error
	if s.landlock, err = s.restrictPaths(); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return sandbox.LoadFilter()
}

// restrictPaths is a second wall behind the mounts: what may be written is
// named again, and abstract sockets and signals end at it. It counts for this
// thread and what it starts. 0 is that the kernel has no such thing.
func (s *stage) restrictPaths() (abi int, err error) {
	abi, err = ll.LandlockGetABIVersion()
	if err != nil || abi < 2 {
		return 0, nil
	}
	dirs := []string{"/dev/mqueue"}
	var files []string
	for _, w := range append(s.plan.Writable, s.plan.Scratch...) {
		if info, err := os.Stat(w); err != nil || info.IsDir() {
			dirs = append(dirs, w)
		} else {
			files = append(files, w)
		}
	}
	c := landlock.V9
	c.HandledAccessNet = 0 // the network namespace is that wall
	ruleset, flags, err := c.BestEffort().NewRulesetFD(
		landlock.RODirs("/"),
		landlock.RWDirs(dirs...).WithRefer().IgnoreIfMissing(),
		landlock.RWFiles(files...),
		landlock.RWFiles("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx").WithIoctlDev().IgnoreIfMissing(),
		landlock.RWDirs("/dev/pts").WithIoctlDev().IgnoreIfMissing(),
		landlock.RWDirs("/proc"),
	)
	if err != nil {
		return 0, err
	}
	defer unix.Close(ruleset)
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), uintptr(flags), 0); errno != 0 {
		return 0, errno
	}
	return abi, nil
}

func (s *stage) lookAround() *Seen {
	seen := &Seen{Landlock: s.landlock, Namespaces: Namespaces(), Filter: true}
	status := ownStatus()
	seen.NoNewPrivs = status["NoNewPrivs"] == "1"
	if _, told := status["NoNewPrivs"]; !told { // gVisor of 2022 does not say
		n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		seen.NoNewPrivs = err == nil && n == 1
	}
	const empty = "0000000000000000"
	seen.NoCaps = status["CapEff"] == empty && status["CapPrm"] == empty && status["CapBnd"] == empty && status["CapInh"] == empty
	seen.Devices = networkDevices()
	return seen
}

func ownStatus() map[string]string {
	status := map[string]string{}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		status[name] = strings.TrimSpace(value)
	}
	return status
}

// networkDevices are all that there are, whatever their state: a header of two
// lines, then one each.
func networkDevices() int {
	text, _ := os.ReadFile("/proc/net/dev")
	return max(strings.Count(strings.TrimSpace(string(text)), "\n")-1, 0)
}

// start starts the program, on pipes or on a terminal of its own.
func (s *stage) start() (pid int, tty *os.File, err error) {
	path, err := lookPath(&s.plan)
	if err != nil {
		return 0, nil, err
	}
	attr := &syscall.ProcAttr{Env: s.plan.Env, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.plan.TTY, Ctty: 0}}
	if attr.Env == nil {
		attr.Env = []string{} // nil is our own
	}
	var theirs [3]int
	if s.plan.TTY {
		master, slave, err := terminal(s.plan.Rows, s.plan.Cols)
		if err != nil {
			return 0, nil, err
		}
		tty, theirs = master, [3]int{slave, slave, slave}
		defer unix.Close(slave)
	} else {
		var ours [3]*os.File
		for fd := range 3 {
			var err error
			if ours[fd], theirs[fd], err = newPipe(fd > 0); err != nil {
				return 0, nil, err
			}
			defer unix.Close(theirs[fd])
		}
		defer s.carry(ours)
	}
	for _, fd := range theirs {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	pid, err = syscall.ForkExec(path, s.plan.Argv, attr)
	if err == nil && tty != nil {
		s.carryTerminal(tty)
	}
	return pid, tty, err
}

// newPipe makes a pipe. The program's end blocks, as programs expect; ours
// does not, so that it takes no thread.
func newPipe(oursReads bool) (ours *os.File, theirs int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	if !oursReads {
		fds[0], fds[1] = fds[1], fds[0]
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, -1, errors.Join(err, unix.Close(fds[0]), unix.Close(fds[1]))
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), fds[1], nil
}

func (s *stage) carry(ours [3]*os.File) {
	go func() {
		_, _ = io.Copy(onlyWriter{ours[0]}, onlyReader{s.streams[streamIn]})
		ours[0].Close()
		_, _ = io.Copy(io.Discard, onlyReader{s.streams[streamIn]}) // which the program did not want
	}()
	for i, id := range []uint32{streamOut, streamErr} {
		s.carried.Go(func() {
			_, _ = io.Copy(onlyWriter{s.streams[id]}, onlyReader{ours[i+1]})
			ours[i+1].Close()
		})
	}
}

func (s *stage) carryTerminal(master *os.File) {
	s.mu.Lock()
	s.tty = master
	s.mu.Unlock()
	go func() {
		_, _ = io.Copy(onlyWriter{master}, onlyReader{s.streams[streamIn]})
		_, _ = master.Write([]byte{4}) // what a terminal says at the end of input
	}()
	s.carried.Go(func() {
		_, _ = io.Copy(onlyWriter{s.streams[streamOut]}, onlyReader{master}) // ends with EIO
	})
}

// endOutput tells that no more output comes.
func (s *stage) endOutput() {
	_ = s.streams[streamOut].CloseWrite()
	_ = s.streams[streamErr].CloseWrite()
}

// terminal makes a pair in the sandbox's own devpts.
func terminal(rows, cols uint16) (master *os.File, slave int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "terminal")
	fail := func(what string, err error) (*os.File, int, error) {
		master.Close()
		return nil, -1, fmt.Errorf("%s of terminal: %w", what, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("lock", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("number", err)
	}
	if rows > 0 && cols > 0 {
		if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
			return fail("size", err)
		}
	}
	// By name: gVisor has no TIOCGPTPEER. Nobody else is inside yet.
	slave, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("slave", err)
	}
	return master, slave, nil
}

// lookPath finds the program in the PATH that it will have. What cannot be
// executed although it has the permission, the kernel says at exec.
func lookPath(p *plan) (string, error) {
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
			if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) {
				found = err
			}
		}
	}
	return "", found
}

func executable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return syscall.EACCES
	}
	return nil
}

// accept hands each connection to an address of the plan to the supervisor.
func (s *stage) accept(index int, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // no descriptor or thread is left
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return
		}
		remote, err := s.link.open(index)
		if err != nil || remote == nil {
			c.Close()
			continue
		}
		s.sent.Add(1)
		go s.relay(c.(*net.TCPConn), remote)
	}
}

// relay copies both ways; each direction ends by itself.
func (s *stage) relay(c *net.TCPConn, remote *stream) {
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(onlyWriter{c}, onlyReader{remote})
		if err != nil {
			c.Close()
			return
		}
		_ = c.CloseWrite()
	})
	_, err := io.Copy(onlyWriter{remote}, onlyReader{c})
	if err != nil {
		remote.Close()
	} else {
		_ = remote.CloseWrite()
	}
	s.sent.Done()
	both.Wait()
	c.Close()
	remote.Close()
}

// measureEvery is the time between two looks at the directories of memory;
// every tellEvery-th is told although nothing of weight has changed.
const (
	measureEvery = 50 * time.Millisecond
	tellEvery    = 5
)

func (s *stage) measure() {
	var told event
	n := 0
	for range time.Tick(measureEvery) {
		e := s.use()
		if n++; n%tellEvery == 0 || e.ScratchBytes != told.ScratchBytes || e.OOMKills != told.OOMKills {
			told = e
			s.say(e)
		}
	}
}

func (s *stage) use() event {
	e := event{Kind: "use", OOMKills: oomKills(), Stats: ownStats()}
	for _, dir := range s.plan.Scratch {
		e.ScratchBytes += scratchBytes(dir)
	}
	return e
}

// scratchBytes is what a file system of memory holds.
func scratchBytes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0
	}
	bytes := int64(st.Blocks-st.Bfree) * st.Bsize
	if st.Files >= st.Ffree { // gVisor counts no inodes
		bytes = max(bytes, int64(st.Files-st.Ffree-min(st.Files-st.Ffree, 1))*meter.MinFileBytes)
	}
	return max(bytes, 0)
}

// group is where a container is shown its own cgroup, of either version.
const group = "/sys/fs/cgroup/"

// oomKills is what the kernel has killed in our cgroup, where it is shown.
func oomKills() int64 {
	return max(field(group+"memory.events", "oom_kill"), field(group+"memory/memory.oom_control", "oom_kill"))
}

func ownStats() sandbox.Stats {
	return sandbox.Stats{
		MemoryBytes: max(number(group+"memory.current"), number(group+"memory/memory.usage_in_bytes")),
		PeakBytes:   max(number(group+"memory.peak"), number(group+"memory/memory.max_usage_in_bytes")),
		PIDs:        max(number(group+"pids.current"), number(group+"pids/pids.current")),
		CPU: max(time.Duration(field(group+"cpu.stat", "usage_usec"))*time.Microsecond,
			time.Duration(number(group+"cpuacct/cpuacct.usage"))),
	}
}

func number(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// field is the number after a word of a file of "word number" lines.
func field(file, name string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// reap waits for all children until the program has ended, then ends all that
// is left.
func (s *stage) reap(child int, tty *os.File) int {
	e := event{Kind: "exit"}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return s.fail("wait", err)
		}
		if pid != child || !(ws.Exited() || ws.Signaled()) {
			continue
		}
		e.Code = ws.ExitStatus()
		if ws.Signaled() {
			e.Signal = int(ws.Signal())
			e.Code = 128 + e.Signal
		}
		break
	}
	last := s.use() // before the kill frees what deleted files hold
	_ = syscall.Kill(-1, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			break
		}
	}
	if tty != nil { // not every kernel ends the master when the last slave is closed
		_ = tty.SetReadDeadline(time.Now().Add(time.Second))
	}
	s.carried.Wait()
	s.endOutput()
	s.drain()
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ru) == nil {
		e.User, e.System = ru.Utime.Nano(), ru.Stime.Nano()
	}
	e.ScratchBytes, e.OOMKills, e.Stats = last.ScratchBytes, max(last.OOMKills, oomKills()), ownStats()
	s.say(e)
	return e.Code
}

// drain lets connections say what the program had written to them.
func (s *stage) drain() {
	sent := make(chan struct{})
	go func() { s.sent.Wait(); close(sent) }()
	select {
	case <-sent:
	case <-time.After(time.Second):
	}
}
