package gvisor

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func owned(uid int) func(string) (int, int, error) {
	return func(string) (int, int, error) { return uid, uid, nil }
}

func TestABundleHasAllItsWalls(t *testing.T) {
	caps, _ := sandbox.Caps{DiskBytes: 1 << 20}.WithDefaults()
	s := sandbox.Spec{Argv: []string{"true"}, Env: []string{"HOME=/home/agent", "TOKEN=secret"}, Mounts: []sandbox.Mount{
		{Source: "/src", Target: "/ro"}, {Source: "/w", Target: "/tmp", Access: sandbox.Overlay, Upper: "/u", Work: "/k"},
	}}
	d, err := describe(s, caps, "/usr/bin/cordon", owned(1000))
	if err != nil {
		t.Fatal(err)
	}
	p := d.spec.Process
	text, err := json.Marshal(d.spec)
	if err != nil {
		t.Fatal(err)
	}
	mount := func(target string) (found specs.Mount) {
		for _, m := range d.spec.Mounts {
			if m.Destination == target {
				found = m
			}
		}
		return found
	}
	for what, ok := range map[string]bool{
		"read-only root":        d.spec.Root.Readonly && d.spec.Root.Path == rootDir,
		"no capabilities":       p.Capabilities != nil && len(p.Capabilities.Bounding)+len(p.Capabilities.Effective)+len(p.Capabilities.Permitted)+len(p.Capabilities.Inheritable)+len(p.Capabilities.Ambient) == 0,
		"no new privileges":     p.NoNewPrivileges,
		"the owner":             p.User.UID == 1000 && p.User.GID == 1000,
		"our first process":     slices.Equal(p.Args, []string{inside.Path, inside.Arg}),
		"nothing of the spec's": !strings.Contains(string(text), "secret"),
		"no terminal":           !p.Terminal,
		"five namespaces":       len(d.spec.Linux.Namespaces) == 5,
		"read-only mount":       slices.Contains(mount("/ro").Options, "ro") && mount("/ro").Source == "mounts/0",
		"workspace":             slices.Contains(mount("/tmp").Options, "rw") && mount("/tmp").Type == "bind",
		"a home of memory":      slices.Contains(mount("/home/agent").Options, "mode=0700") && slices.Contains(mount("/home/agent").Options, "uid=1000"),
		"size":                  slices.Contains(mount("/var/tmp").Options, "size=5242880"),
		"/dev can be written":   mount("/dev").Type == "devtmpfs" && !slices.Contains(mount("/dev").Options, "ro"), // or nothing could to /dev/null
		"/sys is read-only":     slices.Contains(mount("/sys").Options, "ro"),
		"all that is measured":  slices.Equal(d.scratch, []string{"/var/tmp", "/run", "/dev/shm", "/home/agent", "/dev"}),
	} {
		if !ok {
			t.Errorf("not so: %s\n%s", what, text)
		}
	}
	s.Mounts = s.Mounts[:1]
	if d, err := describe(s, caps, "/x", owned(1000)); err != nil || d.spec.Process.User.UID != nobody {
		t.Errorf("with nothing to write to: %v, %v", d.spec.Process.User, err)
	}
}

func TestRunscIsGivenNoNetworkAndNothingOfTheHost(t *testing.T) {
	args := strings.Join(arguments("/usr/bin/runsc", "ptrace", "/state/runs/x"), " ")
	for _, want := range []string{"--network none", "--host-uds none", "--host-fifo none", "--platform ptrace", "--root /state/runs/x/state", "--bundle /state/runs/x"} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
}

func TestThePlatformIsReadFromTheFlags(t *testing.T) {
	for flags, want := range map[string]string{
		"  -platform string\n    \tspecifies which platform to use: ptrace (default), kvm. (default \"ptrace\")\n  -x\n":                 "ptrace",
		"  -platform string\n    \tspecifies which platform to use: kvm, ptrace, systrap (default). (default \"systrap\")\n  -systrap\n": "systrap",
		"": "ptrace",
	} {
		if got := platformOf(flags); got != want {
			t.Errorf("%q: %s (want %s)", flags, got, want)
		}
	}
}

func TestAHomeIsMadeWhereThereIsNone(t *testing.T) {
	for env, want := range map[string]string{
		"HOME=/home/agent": "/home/agent", "HOME=/tmp": "", "HOME=/tmp/x": "", "HOME=/usr/x": "", "HOME=/ws/home": "", "HOME=/": "", "HOME=here": "", "A=1": "",
		"HOME=/tmpx": "/tmpx", "HOME=/a/../proc/x": "",
	} {
		s := sandbox.Spec{Env: []string{env}, Mounts: []sandbox.Mount{{Target: "/ws"}}}
		if got := home(s); got != want {
			t.Errorf("%s: %q (want %q)", env, got, want)
		}
	}
}

func TestConfigurationsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []Config{{Platform: "vmware"}, {StateDir: "here"}} {
		if r, err := New(c); err == nil {
			r.Close()
			t.Errorf("%+v was taken", c)
		}
	}
}

func newIdle(t *testing.T, c Config) *Runtime {
	t.Helper()
	if c.StateDir == "" {
		c.StateDir = t.TempDir()
	}
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestARunscThatIsNotThereIsNamedWithTheWayToGetIt(t *testing.T) {
	r := newIdle(t, Config{Runsc: "/no/such/runsc"})
	_, err := r.Start(t.Context(), sandbox.Spec{Argv: []string{"true"}})
	var u *sandbox.UnavailableError
	if !errors.As(err, &u) || !strings.Contains(u.Fix, "apt-get install runsc") {
		t.Errorf("error %v", err)
	}
	if report := r.Probe(t.Context()); report.Available || report.Fix == "" {
		t.Errorf("%+v", report)
	}
}

func TestARootFileSystemThatIsNotThereIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("for root, whom runsc needs before that")
	}
	self, err := os.Executable() // stands for runsc: it is not reached
	if err != nil {
		t.Fatal(err)
	}
	r := newIdle(t, Config{Runsc: self, Platform: "ptrace"})
	_, err = r.Start(t.Context(), sandbox.Spec{Argv: []string{"true"}, Rootfs: "/no/such/root"})
	var u *sandbox.UnavailableError
	if !errors.As(err, &u) || !strings.Contains(u.Why, "/no/such/root") {
		t.Errorf("error %v", err)
	}
}

func TestTheStateIsForItsOwnerAlone(t *testing.T) {
	r := newIdle(t, Config{})
	if info, err := os.Stat(r.runs); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// run writes a directory as a run has it.
func run(t *testing.T, runs, name string, o owner) string {
	t.Helper()
	dir := filepath.Join(runs, name)
	text, err := json.Marshal(o)
	if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, ownerFile), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatACrashLeftIsSweptAndWhatRunsIsNot(t *testing.T) {
	state := t.TempDir()
	runs := filepath.Join(state, "runs")
	started := inside.StartTime(os.Getpid())
	alive := run(t, runs, "alive", owner{Supervisor: os.Getpid(), SupervisorStarted: started})
	dead := run(t, runs, "dead", owner{Supervisor: os.Getpid(), SupervisorStarted: started + "1"})
	young, old := filepath.Join(runs, "young"), filepath.Join(runs, "old")
	hourAgo := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Mkdir(young, 0o700), os.Mkdir(old, 0o700), os.Chtimes(old, hourAgo, hourAgo)); err != nil {
		t.Fatal(err)
	}
	newIdle(t, Config{StateDir: state})
	for dir, want := range map[string]bool{alive: true, dead: false, young: true, old: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v", filepath.Base(dir), err == nil)
		}
	}
}

func TestKillRunKillsTheProcessThatItMeans(t *testing.T) {
	r := newIdle(t, Config{})
	victim := exec.Command("sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	pid := victim.Process.Pid
	run(t, r.runs, "other", owner{Run: "run-2", First: pid, FirstStarted: inside.StartTime(pid)})
	later := run(t, r.runs, "later", owner{Run: "run-1", First: pid, FirstStarted: inside.StartTime(pid) + "1"})
	if n, err := r.KillRun(t.Context(), "run-1"); n != 0 || err != nil {
		t.Errorf("a later process with that number: %d, %v", n, err)
	}
	if err := os.RemoveAll(later); err != nil {
		t.Fatal(err)
	}
	if n, err := r.KillRun(t.Context(), "run-2"); n != 1 || err != nil {
		t.Errorf("killed %d, %v", n, err)
	}
	if err := victim.Wait(); err == nil {
		t.Error("it ended by itself")
	}
	if _, err := r.KillRun(t.Context(), ""); err == nil {
		t.Error("all runs would be killed")
	}
}
