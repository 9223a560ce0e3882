package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// probeProgram is where this binary is shown inside, to look around and to
// try the caps; what it tries is its argument.
const probeProgram = "/run/cordon-probe"

var probeArgs = []string{"look", "memory", "pids", "disk", "wait"}

// seen is what the program found inside, as JSON on its standard output.
type seen struct {
	Namespaces map[string]string
	Status     map[string]string // of /proc/self/status
	// Errnos of what must fail; 0 is that it did not.
	Mount, Unshare, Ptrace, WriteRoot int
	Processes, Interfaces             int
	Layers                            int // of Landlock, that could be added
	OverlayErr                        string
}

const overlayAt = "/mnt/overlay"

func probeInside(what string) int {
	switch what {
	case "look":
		_ = json.NewEncoder(os.Stdout).Encode(look())
	case "memory":
		var hog [][]byte
		for range 512 {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			hog = append(hog, block)
		}
		runtime.KeepAlive(hog)
	case "pids":
		for range 256 {
			if errno := fork(); errno == syscall.EAGAIN {
				return 0
			}
		}
		return 1
	case "disk":
		block := make([]byte, 1<<20)
		for i := range 64 {
			if err := os.WriteFile(fmt.Sprintf("/tmp/%d", i), block, 0o600); errors.Is(err, syscall.ENOSPC) {
				return 0
			}
		}
		return 1
	case "wait":
		time.Sleep(time.Minute)
	}
	return 0
}

// fork makes a process that waits for its end. It has one thread and must not
// come back into Go.
func fork() syscall.Errno {
	pid, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	if errno != 0 || pid != 0 {
		return errno
	}
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

func look() seen {
	s := seen{Namespaces: ownNamespaces(), Status: map[string]string{}}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		s.Status[name] = strings.TrimSpace(value)
	}
	s.Mount = errnoOf(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	s.Unshare = errnoOf(unix.Unshare(unix.CLONE_NEWUSER))
	s.Ptrace = errnoOf(unix.PtraceAttach(1))
	s.WriteRoot = errnoOf(os.WriteFile("/cordon-was-here", nil, 0o600))
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if name := e.Name(); name[0] >= '0' && name[0] <= '9' {
			s.Processes++
		}
	}
	// All network devices that there are, whatever their state: a header of
	// two lines, then one each.
	devices, _ := os.ReadFile("/proc/net/dev")
	s.Interfaces = max(strings.Count(string(devices), "\n")-2, 0)
	if err := os.WriteFile(overlayAt+"/changed", []byte("inside"), 0o600); err != nil {
		s.OverlayErr = err.Error()
	}
	s.Layers = landlockLayers()
	return s
}

// maxLayers is how many Landlock rulesets the kernel stacks.
const maxLayers = 16

// landlockLayers adds rulesets until the kernel refuses: a process that is
// held to one already gets fewer. It uses up this thread.
func landlockLayers() int {
	runtime.LockOSThread()
	ruleset, err := ll.LandlockCreateRuleset(&ll.RulesetAttr{HandledAccessFS: ll.AccessFSMakeBlock}, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(ruleset)
	for n := 0; ; n++ {
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 || n > maxLayers {
			return n
		}
	}
}

func errnoOf(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	return 0
}

func ownNamespaces() map[string]string {
	ns := map[string]string{}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		ns[name], _ = os.Readlink("/proc/self/ns/" + name)
	}
	return ns
}

// Probe starts programs that try each control, and reports what held.
func (r *Runtime) Probe(ctx context.Context) sandbox.Report {
	report := r.Look(ctx)
	if report.Available {
		r.probeCaps(ctx, report.Controls)
	}
	return report
}

// Look starts one program, which looks around.
func (r *Runtime) Look(ctx context.Context) sandbox.Report {
	report := sandbox.Report{Runtime: Name}
	dir, err := os.MkdirTemp(filepath.Dir(r.root), "probe-")
	if err != nil {
		report.Why, report.Fix = err.Error(), "give the runtime a directory that can be written"
		return report
	}
	defer os.RemoveAll(dir)
	controls, err := r.probeWalls(ctx, dir)
	if err != nil {
		report.Why = err.Error()
		var u *sandbox.UnavailableError
		if errors.As(err, &u) {
			report.Why, report.Fix = u.Why, u.Fix
		}
		return report
	}
	report.Available, report.Controls = true, controls
	return report
}

// probeSpec runs this binary inside.
func probeSpec(what string) (sandbox.Spec, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	return sandbox.Spec{
		Argv: []string{probeProgram, what}, Env: []string{"PATH=/usr/bin:/bin"},
		Mounts: []sandbox.Mount{{Source: exe, Target: probeProgram}},
		Caps:   sandbox.Caps{Wall: 10 * time.Second},
	}, err
}

func (r *Runtime) probeRun(ctx context.Context, s sandbox.Spec) (sandbox.Result, error) {
	p, err := r.Start(ctx, s)
	if err != nil {
		return sandbox.Result{}, err
	}
	return p.Wait()
}

func (r *Runtime) probeWalls(ctx context.Context, dir string) ([]sandbox.Held, error) {
	s, err := probeSpec("look")
	if err != nil {
		return nil, err
	}
	overlay := sandbox.Mount{Source: dir + "/lower", Target: overlayAt, Access: sandbox.Overlay, Upper: dir + "/upper", Work: dir + "/work"}
	for _, d := range []string{overlay.Source, overlay.Upper, overlay.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	var out, errs bytes.Buffer
	s.Mounts, s.Stdout, s.Stderr = append(s.Mounts, overlay), &out, &errs
	overlayNote := ""
	res, err := r.probeRun(ctx, s)
	var u *sandbox.UnavailableError
	if err != nil && !errors.As(err, &u) {
		// Without the overlay, which not every file system can carry.
		overlayNote = err.Error()
		s.Mounts = s.Mounts[:1]
		res, err = r.probeRun(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	var in seen
	if err := json.Unmarshal(out.Bytes(), &in); err != nil {
		return nil, fmt.Errorf("native: the probe inside ended with %d (%v) and said %q", res.ExitCode, res.Cause, errs.String())
	}
	if overlayNote != "" {
		res.Controls = append(res.Controls, sandbox.Held{Control: sandbox.OverlayFS, Note: overlayNote})
	} else if _, err := os.Lstat(overlay.Source + "/changed"); err == nil {
		in.OverlayErr = "a change came through to the lower directory"
	}
	return contradict(res.Controls, in, ownNamespaces()), nil
}

// contradict takes back what was claimed where the look inside shows
// something else.
func contradict(held []sandbox.Held, in seen, outside map[string]string) []sandbox.Held {
	own := func(ns string) string {
		if in.Namespaces[ns] == "" || in.Namespaces[ns] == outside[ns] {
			return "the program is in the host's namespace"
		}
		return ""
	}
	is := func(name, want string) string {
		if got := in.Status[name]; got != want {
			return fmt.Sprintf("%s is %q (want %q)", name, got, want)
		}
		return ""
	}
	refused := func(what string, errno int) string {
		if errno == 0 {
			return what + " was not refused"
		}
		return ""
	}
	const empty = "0000000000000000"
	for i, h := range held {
		var found string
		switch h.Control {
		case sandbox.UserNS:
			found = own("user")
		case sandbox.MountNS:
			found = own("mnt")
		case sandbox.PIDNS:
			if found = own("pid"); found == "" && in.Processes > 2 {
				found = "other processes can be seen"
			}
		case sandbox.NetNS:
			if found = own("net"); found == "" && in.Interfaces != 1 {
				found = "there is more than loopback"
			}
		case sandbox.IPCNS:
			found = own("ipc")
		case sandbox.UTSNS:
			found = own("uts")
		case sandbox.CgroupNS:
			found = own("cgroup")
		case sandbox.PrivateFS:
			found = refused("a file in the root", in.WriteRoot)
		case sandbox.OverlayFS:
			found = in.OverlayErr
		case sandbox.Landlock:
			if in.Layers >= maxLayers {
				found = "no ruleset is in force"
			}
		case sandbox.NoNewPrivs:
			found = is("NoNewPrivs", "1")
		case sandbox.NoCaps:
			found = is("CapEff", empty) + is("CapPrm", empty) + is("CapBnd", empty) + refused("a mount", in.Mount)
		case sandbox.Seccomp:
			found = is("Seccomp", "2") + refused("unshare", in.Unshare) + refused("ptrace", in.Ptrace)
		}
		if found != "" && h.State == sandbox.Enforced {
			held[i].State, held[i].Note = sandbox.Absent, "tried and not held: "+found
		}
	}
	return held
}

// probeCaps breaks each cap once, all at the same time.
func (r *Runtime) probeCaps(ctx context.Context, held []sandbox.Held) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	try := func(c sandbox.Control, what string, caps sandbox.Caps, ended func(sandbox.Result) bool) {
		wg.Go(func() {
			s, err := probeSpec(what)
			var res sandbox.Result
			if err == nil {
				s.Caps = caps
				res, err = r.probeRun(ctx, s)
			}
			if err == nil && ended(res) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			i := slices.IndexFunc(held, func(h sandbox.Held) bool { return h.Control == c })
			if i < 0 {
				return
			}
			held[i].Note = strings.TrimPrefix(fmt.Sprintf("%s; tried and not held (exit %d, cause %v, error %v)", held[i].Note, res.ExitCode, res.Cause, err), "; ")
			held[i].State = sandbox.Absent
		})
	}
	by := func(cause error) func(sandbox.Result) bool {
		return func(r sandbox.Result) bool { return errors.Is(r.Cause, cause) }
	}
	const wall = 20 * time.Second
	// By rlimit an allocation fails instead, and the program ends by itself.
	try(sandbox.MemoryCap, "memory", sandbox.Caps{MemoryBytes: 64 << 20, Wall: wall}, func(r sandbox.Result) bool {
		return errors.Is(r.Cause, sandbox.ErrMemory) || r.ExitCode != 0
	})
	try(sandbox.PIDsCap, "pids", sandbox.Caps{PIDs: 16, Wall: wall}, func(r sandbox.Result) bool { return r.ExitCode == 0 })
	try(sandbox.DiskCap, "disk", sandbox.Caps{DiskBytes: 4 << 20, Wall: wall}, func(r sandbox.Result) bool {
		return errors.Is(r.Cause, sandbox.ErrDisk)
	})
	try(sandbox.WallCap, "wait", sandbox.Caps{Wall: 200 * time.Millisecond}, by(sandbox.ErrTimeout))
	wg.Wait()
}

// explain turns what the kernel refused into what a person can do about it.
func (l *launcher) explain(err error) error {
	var e *stageError
	if !errors.As(err, &e) {
		return err
	}
	if e.errno == 0 {
		errors.As(e.err, &e.errno)
	}
	why, fix := diagnose(e, func(name string) string {
		text, _ := os.ReadFile("/proc/sys/" + name)
		return strings.TrimSpace(string(text))
	})
	if why == "" {
		return err
	}
	return &sandbox.UnavailableError{Runtime: Name, Why: why + " (" + e.step + ": " + e.err.Error() + ")", Fix: fix}
}

// noProc begins the error of builder.proc.
const noProc = "mount a proc of our own"

// diagnose knows the ways in which hosts refuse; sysctl reads a setting, ""
// where there is none. An empty why is a fault of another kind.
func diagnose(e *stageError, sysctl func(string) string) (why, fix string) {
	refused := e.errno == syscall.EPERM || e.errno == syscall.EACCES
	walls := slices.Contains([]string{"start", "identity", "file system", "network", "privileges"}, e.step)
	switch {
	case e.step == "start" && (e.errno == syscall.ENOSPC || e.errno == syscall.EPERM) && sysctl("user/max_user_namespaces") == "0":
		return "user namespaces are switched off (user.max_user_namespaces is 0)", "as root: sysctl -w user.max_user_namespaces=15000"
	case e.step == "start" && e.errno == syscall.ENOSPC:
		return "this user has no user namespace left", "end what holds them, or as root raise user.max_user_namespaces"
	case e.step == "start" && refused && sysctl("kernel/unprivileged_userns_clone") == "0":
		return "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)", "as root: sysctl -w kernel.unprivileged_userns_clone=1"
	case walls && refused && sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor takes the privileges out of new user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1)",
			"as root: add an AppArmor profile with \"userns,\" for this binary, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case strings.Contains(e.err.Error(), noProc) && refused:
		return "this container covers parts of /proc, so the kernel refuses a fresh one to a sandbox inside; showing the container's own would be no wall",
			"start the container with --security-opt systempaths=unconfined (Kubernetes: procMount: Unmasked), or run cordon outside of it, or use --runtime docker"
	case e.step == "start" && refused:
		return "the kernel refuses new namespaces to this process (a container's seccomp profile, or a chroot)",
			"start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined, or run cordon outside of it, or use --runtime docker"
	case e.step == "start" && e.errno == syscall.EINVAL:
		return "this kernel was built without a namespace that is needed", "use a kernel with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS and CONFIG_UTS_NS"
	case walls && e.errno == syscall.ENOSYS:
		return "this kernel is older than 5.12, which brought mount_setattr, or something hides its system calls", "use a newer kernel, or --runtime docker or gvisor"
	}
	return "", ""
}
