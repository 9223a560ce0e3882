package gvisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"golang.org/x/sys/unix"
)

// Runtime runs programs under runsc. It is safe for concurrent use.
type Runtime struct {
	config   Config
	runs     string // below it one directory a run
	ownState string
	groups   func() *cgroup.Site

	mu       sync.Mutex
	running  map[*inside.Process]struct{}
	closed   bool
	platform string // once it was found
	chooses  sync.Mutex
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New returns the runtime, and removes what runs left whose supervisor is
// gone. It does not look at what the host can hold: Probe does, and each
// Start.
func New(c Config) (*Runtime, error) {
	if !slices.Contains([]string{"", "kvm", "systrap", "ptrace"}, c.Platform) {
		return nil, fmt.Errorf("gvisor: unknown platform %q (want kvm, systrap or ptrace)", c.Platform)
	}
	r := &Runtime{config: c, platform: c.Platform, groups: sync.OnceValue(cgroup.Find), running: map[*inside.Process]struct{}{}}
	state := c.StateDir
	if state == "" {
		dir, err := os.MkdirTemp("", "cordon-gvisor-")
		if err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
		state, r.ownState = dir, dir
	}
	if !filepath.IsAbs(state) {
		return nil, fmt.Errorf("gvisor: state directory %q (want an absolute path)", state)
	}
	r.runs = filepath.Join(state, "runs")
	if err := os.MkdirAll(r.runs, 0o700); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if err := os.Chmod(r.runs, 0o700); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	r.sweep()
	return r, nil
}

// Name is "gvisor".
func (r *Runtime) Name() string { return Name }

// Start runs s.Argv under runsc. It returns when the walls stand and the
// program is about to begin: a command that is not found, or cannot be
// executed, is a Result with exit code 127 or 126. Errors are
// sandbox.UnavailableError where runsc or root are missing or this host cannot
// build the walls, sandbox.RequiredError where a control that s.Require names
// cannot be held, else a fault of the Spec or of the system.
func (r *Runtime) Start(ctx context.Context, s sandbox.Spec) (sandbox.Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	runsc, err := r.runsc()
	if err != nil {
		return nil, err
	}
	platform, err := r.choose(ctx, runsc)
	if err != nil {
		return nil, err
	}
	p, err := r.start(ctx, s, runsc, platform)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Runtime) start(ctx context.Context, s sandbox.Spec, runsc, platform string) (*inside.Process, error) {
	s, caps, err := inside.Prepare(Name, s, nil)
	if err != nil {
		return nil, err
	}
	if s.Rootfs != "" {
		root, err := filepath.EvalSymlinks(s.Rootfs)
		if info, err2 := os.Stat(root); err != nil || err2 != nil || !info.IsDir() || !filepath.IsAbs(root) {
			return nil, &sandbox.UnavailableError{Runtime: Name, Why: fmt.Sprintf("%q is no root file system", s.Rootfs),
				Fix: "name an absolute directory that holds one (docker export of a container, or debootstrap, makes one), or none for this system's own programs"}
		}
		s.Rootfs = root
	}
	init, err := inside.Binary(Name, r.config.Init, s.Rootfs == "")
	if err != nil {
		return nil, err
	}
	var d *description
	l := &inside.Launch{Runtime: Name, Spec: s, Caps: caps}
	l.Start = func(context.Context) (inside.Box, error) {
		b := &box{r: r, done: make(chan struct{}), group: r.groups().Enter(caps, ownTasks)}
		if err := b.start(runsc, platform, d, s.ID); err != nil {
			b.group.Remove()
			return nil, err
		}
		l.Controls = func(seen inside.Seen) []sandbox.Held { return controls(s, b.group, platform, seen) }
		return b, nil
	}
	if d, err = describe(s, caps, init, ownerOf); err != nil {
		return nil, err
	}
	l.Scratch = d.scratch
	p, err := l.Run(ctx)
	var early *inside.EarlyError
	if errors.As(err, &early) {
		return nil, diagnose(early, platform)
	}
	if err != nil {
		return nil, err
	}
	if err := r.add(p); err != nil {
		p.Kill(err)
		_, _ = p.Wait()
		return nil, err
	}
	return p, nil
}

// diagnose knows the ways in which runsc fails.
func diagnose(e *inside.EarlyError, platform string) error {
	u := &sandbox.UnavailableError{Runtime: Name, Why: "runsc did not start the sandbox: " + e.Said,
		Fix: "use --runtime native or docker"}
	said := func(text string) bool { return strings.Contains(e.Said, text) }
	switch {
	case e.OutOfMemory:
		return fmt.Errorf("gvisor: the memory cap is too small for the sandbox itself: %w", sandbox.ErrMemory)
	case strings.HasPrefix(e.Said, refusal):
		return errors.New("gvisor: " + strings.TrimPrefix(e.Said, refusal))
	case said("fork/exec") && (said("operation not permitted") || said("no space left on device")):
		u.Why = "the kernel refuses runsc new namespaces: this is a container, or user namespaces are switched off (" + e.Said + ")"
		u.Fix = "run cordon outside of the container, or start that with --privileged, or allow user namespaces (sysctl user.max_user_namespaces); or use --runtime docker"
	case platform == "kvm":
		u.Fix = "try the platform ptrace or systrap instead of kvm"
	}
	return u
}

// runsc finds the program, and what else has to be there.
func (r *Runtime) runsc() (string, error) {
	path, err := exec.LookPath(cmp.Or(r.config.Runsc, "runsc"))
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", &sandbox.UnavailableError{Runtime: Name, Why: "there is no runsc (" + err.Error() + ")",
			Fix: "install it (Debian: apt-get install runsc; else see https://gvisor.dev/docs/user_guide/install/)"}
	}
	if os.Geteuid() != 0 {
		return "", &sandbox.UnavailableError{Runtime: Name, Why: "runsc needs root to build its walls", Fix: "run as root, or use --runtime native, or --runtime docker with an engine that has runsc"}
	}
	return path, nil
}

// kvmPatience is how long a trial of KVM may take: within virtual machines it
// can be there and hang.
const kvmPatience = 3 * time.Second

// choose finds the platform once for this boot and this runsc: KVM is tried
// for real.
func (r *Runtime) choose(ctx context.Context, runsc string) (string, error) {
	r.chooses.Lock()
	defer r.chooses.Unlock()
	if r.platform != "" {
		return r.platform, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, runsc, "flags").CombinedOutput()
	if err != nil {
		return "", &sandbox.UnavailableError{Runtime: Name, Why: fmt.Sprintf("%s does not run: %v", runsc, err), Fix: "install it again"}
	}
	r.platform = platformOf(string(text))
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return r.platform, nil
	}
	kvm.Close()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	cache, key := filepath.Join(filepath.Dir(r.runs), "platform"), string(boot)+runsc+" "+modTime(runsc)+"\n"
	if cached, err := os.ReadFile(cache); err == nil {
		if p, ok := strings.CutPrefix(string(cached), key); ok && slices.Contains([]string{"kvm", r.platform}, p) {
			r.platform = p
			return p, nil
		}
	}
	s := sandbox.Spec{Argv: []string{inside.Path, "none"}, Caps: sandbox.Caps{Wall: kvmPatience}}
	if p, err := r.start(ctx, s, runsc, "kvm"); err == nil {
		if res, err := p.Wait(); err == nil && res.Cause == nil {
			r.platform = "kvm"
		}
	}
	if ctx.Err() == nil {
		_ = os.WriteFile(cache, []byte(key+r.platform), 0o600) // else it is tried again
	}
	return r.platform, nil
}

func modTime(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return info.ModTime().String()
}

// platformOf reads from the list of flags what this version has: systrap
// came in 2023 and took ptrace's place.
func platformOf(flags string) string {
	_, after, _ := strings.Cut(flags, "-platform string")
	line, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
	if strings.Contains(line, "systrap") {
		return "systrap"
	}
	return "ptrace"
}

// errClosed is the cause of what Close kills.
var errClosed = errors.New("gvisor: the runtime was closed")

func (r *Runtime) add(p *inside.Process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	r.running[p] = struct{}{}
	go func() {
		<-p.Ended()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, p)
	}()
	return nil
}

// Close kills what runs, waits for its end and removes what New made.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	var running []*inside.Process
	for p := range r.running {
		running = append(running, p)
	}
	r.mu.Unlock()
	for _, p := range running {
		p.Kill(errClosed)
	}
	for _, p := range running {
		<-p.Ended()
	}
	if r.ownState == "" {
		return nil
	}
	return os.RemoveAll(r.ownState)
}

// Probe starts programs that try each control, and reports what held.
func (r *Runtime) Probe(ctx context.Context) sandbox.Report {
	p := inside.Prober{Runtime: Name, Start: r.Start, Dir: filepath.Dir(r.runs)}
	return advise(p.Probe(ctx))
}

// Look starts one program, which looks around.
func (r *Runtime) Look(ctx context.Context) sandbox.Report {
	p := inside.Prober{Runtime: Name, Start: r.Start, Dir: filepath.Dir(r.runs)}
	return advise(p.Look(ctx))
}

// advise says what to do about a runsc that ordinary programs do not run under.
func advise(report sandbox.Report) sandbox.Report {
	if report.Unfit != "" && report.Fix == "" {
		report.Fix = "install a newer runsc (those of 2024 do not; see https://gvisor.dev/docs/user_guide/install/)"
	}
	return report
}

// owner is who a directory of a run belongs to: its supervisor, and the
// process whose end is the end of all.
type owner struct {
	Run               string
	Supervisor, First int
	SupervisorStarted string
	FirstStarted      string
}

const ownerFile = "owner.json"

func readOwner(dir string) (o owner, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, ownerFile))
	return o, err == nil && json.Unmarshal(text, &o) == nil
}

// sweep removes the directories of runs whose supervisor is gone: nothing of
// them lives, and no mount of theirs can be seen here.
func (r *Runtime) sweep() {
	entries, _ := os.ReadDir(r.runs)
	for _, e := range entries {
		dir := filepath.Join(r.runs, e.Name())
		o, ok := readOwner(dir)
		info, err := e.Info()
		young := err == nil && time.Since(info.ModTime()) < time.Minute // it may be in the making
		if ok && inside.StartTime(o.Supervisor) != o.SupervisorStarted || !ok && !young {
			_ = os.RemoveAll(dir)
		}
	}
}

// KillRun ends all sandboxes of a run that were started from this state
// directory, by whatever process, and tells how many there were.
func (r *Runtime) KillRun(_ context.Context, id string) (int, error) {
	if id == "" {
		return 0, errors.New("gvisor: no run to kill (want its ID)")
	}
	entries, err := os.ReadDir(r.runs)
	if err != nil {
		return 0, fmt.Errorf("gvisor: %w", err)
	}
	n := 0
	var errs []error
	for _, e := range entries {
		o, ok := readOwner(filepath.Join(r.runs, e.Name()))
		if !ok || o.Run != id {
			continue
		}
		killed, err := killProcess(o.First, o.FirstStarted)
		if killed {
			n++
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// killProcess kills by pidfd, so that it is this process and no later one.
func killProcess(pid int, started string) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("gvisor: kill %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if inside.StartTime(pid) != started {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return false, fmt.Errorf("gvisor: kill %d: %w", pid, err)
	}
	return true, nil
}

func ownerOf(path string) (uid, gid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, fmt.Errorf("gvisor: %w", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid), nil
}
