//go:build linux

package native

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	switch {
	case os.Args[0] == attackProgram:
		attackMain()
	case os.Getenv(supervisorEnv) != "":
		superviseMain()
	}
	os.Exit(m.Run())
}

// newRuntime skips where the host has no user namespaces, which it proves by
// trying one without this package.
func newRuntime(t testing.TB) *Runtime {
	t.Helper()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if err := cmd.Run(); err != nil {
		t.Skipf("this host refuses a plain user namespace: %v", err)
	}
	r, err := New(Config{StateDir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// attackSpec runs the test binary inside.
func attackSpec(t testing.TB, args ...string) sandbox.Spec {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		Argv: append([]string{attackProgram}, args...), Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/agent"},
		Mounts: []sandbox.Mount{{Source: exe, Target: attackProgram}}, Caps: sandbox.Caps{Wall: 20 * time.Second},
	}
}

// withOverlay adds a workspace at /ws.
func withOverlay(t testing.TB, s sandbox.Spec) (_ sandbox.Spec, lower, upper string) {
	t.Helper()
	dir := t.TempDir()
	lower, upper = dir+"/lower", dir+"/upper"
	for _, d := range []string{lower, upper, dir + "/work"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: lower, Target: "/ws", Access: sandbox.Overlay, Upper: upper, Work: dir + "/work"})
	return s, lower, upper
}

type outcome struct {
	sandbox.Result
	out, errs string
}

func run1(t testing.TB, r *Runtime, s sandbox.Spec) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	if s.Stdout == nil {
		s.Stdout = &out
	}
	s.Stderr = &errs
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return outcome{res, out.String(), errs.String()}
}

func shell(script string) sandbox.Spec {
	return sandbox.Spec{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/agent"}}
}

func TestAttacksFromInsideAreRefused(t *testing.T) {
	r := newRuntime(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Descriptors of the supervisor that would survive an exec.
	leak, err := unix.Open(filepath.Dir(secret), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	abstract, err := net.Listen("unix", "@cordon-test-"+filepath.Base(filepath.Dir(secret))+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()

	s, _, upper := withOverlay(t, attackSpec(t, "all"))
	env, _ := json.Marshal(attackEnv{Secret: secret, Upper: upper, State: r.root, Abstract: abstract.Addr().String(), TCP: tcp.Addr().String(), HostPID: os.Getpid()})
	s.Env = append(s.Env, "ATTACK="+string(env))
	o := run1(t, r, s)
	var found map[string]string
	if err := json.Unmarshal([]byte(o.out), &found); err != nil {
		t.Fatalf("the attacker ended with %d (%v): %s%s", o.ExitCode, o.Cause, o.out, o.errs)
	}
	for name := range attacks {
		t.Run(name, func(t *testing.T) {
			got, ran := found[name]
			if !ran || got != "" {
				t.Errorf("ran %v, reached: %s", ran, got)
			}
		})
	}
}

func TestForeignSystemCallsAreKilled(t *testing.T) {
	r := newRuntime(t)
	for _, name := range []string{"x32", "i386"} {
		if o := run1(t, r, attackSpec(t, name)); o.Signal != int(unix.SIGSYS) {
			t.Errorf("%s: signal %d, exit %d, said %q", name, o.Signal, o.ExitCode, o.out)
		}
	}
}

func TestNothingOfTheHostsEnvironmentIsInherited(t *testing.T) {
	r := newRuntime(t)
	for _, name := range []string{"LD_PRELOAD", "BASH_ENV", "GIT_DIR", "GITHUB_TOKEN", "HTTPS_PROXY"} {
		t.Setenv(name, "/from/the/host")
	}
	o := run1(t, r, sandbox.Spec{Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "HOME=/home/agent"}})
	if o.out != "A=1\nHOME=/home/agent\n" {
		t.Errorf("environment inside:\n%s", o.out)
	}
}

func TestAMountOfTheHostThatAppearsLaterIsNotSeen(t *testing.T) {
	r := newRuntime(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting on the host is for root")
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	s := shell("read go; ls /ws/sub; echo end")
	s.Mounts = []sandbox.Mount{{Source: dir, Target: "/ws"}}
	stdin, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	var out bytes.Buffer
	s.Stdin, s.Stdout = stdin, &out
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir+"/sub", "tmpfs", 0, ""); err != nil {
		p.Kill(err)
		t.Fatal(err)
	}
	defer unix.Unmount(dir+"/sub", unix.MNT_DETACH)
	if err := errors.Join(os.WriteFile(dir+"/sub/later", nil, 0o600), write(feed, "go\n"), feed.Close()); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(); err != nil || out.String() != "end\n" {
		t.Errorf("error %v, seen: %q", err, out.String())
	}
}

func write(f *os.File, s string) error {
	_, err := f.WriteString(s)
	return err
}

func TestMountsShowWhatTheySay(t *testing.T) {
	r := newRuntime(t)
	dir := t.TempDir()
	for _, d := range []string{"ro", "rw", "ws", "up", "work", "ws/inner", "guarded"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"ro/f", "ws/f", "rw/f", "guarded/g"} {
		if err := os.WriteFile(dir+"/"+f, []byte("host\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := shell(`cat /ro/f; echo x >/ro/f && echo RO-WRITTEN
echo inside >/rw/f; echo inside >/ws/f; mkdir /ws/new; mv /ws/f /ws/new/f; rm -rf /ws/inner/nothing
cat /ws/inner/g; echo x >/ws/inner/g && echo GUARDED-WRITTEN
echo here >$HOME/h && cat $HOME/h; pwd; ls /absent 2>/dev/null && echo ABSENT-SHOWN; ln /rw/f /rw/g && mkdir /rw/d && mv /rw/g /rw/d/ && echo linked`)
	s.Dir = "/ws/inner"
	s.Mounts = []sandbox.Mount{
		// Inner before outer: the order is not the caller's to know.
		{Source: dir + "/guarded", Target: "/ws/inner"},
		{Source: dir + "/ws", Target: "/ws", Access: sandbox.Overlay, Upper: dir + "/up", Work: dir + "/work"},
		{Source: dir + "/ro", Target: "/ro"}, {Source: dir + "/rw", Target: "/rw", Access: sandbox.ReadWrite},
		{Source: dir + "/absent", Target: "/absent", Optional: true}, {Source: "/bin", Target: "/bin"},
	}
	o := run1(t, r, s)
	if want := "host\nhost\nhere\n/ws/inner\nlinked\n"; o.out != want {
		t.Errorf("said %q, want %q (%s)", o.out, want, o.errs)
	}
	for path, want := range map[string]string{"ro/f": "host\n", "ws/f": "host\n", "rw/f": "inside\n", "up/new/f": "inside\n", "guarded/g": "host\n"} {
		if got, err := os.ReadFile(dir + "/" + path); err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", path, got, err, want)
		}
	}
}

func TestWhatAnOverlayNotesCannotBeForgedFromInside(t *testing.T) {
	r := newRuntime(t)
	s, _, upper := withOverlay(t, attackSpec(t, "forge"))
	if o := run1(t, r, s); o.ExitCode != 0 {
		t.Errorf("a whiteout could be made: exit %d", o.ExitCode)
	}
	if _, err := os.Lstat(upper + "/d"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"opaque", "whiteout", "redirect"} {
		if n, err := unix.Lgetxattr(upper+"/d", "user.overlay."+name, nil); err == nil {
			t.Errorf("user.overlay.%s is there, of %d bytes", name, n)
		}
	}
}

func TestLinksAreNotFollowedWhereTheWallsAreBuilt(t *testing.T) {
	r := newRuntime(t)
	dir := t.TempDir()
	outside := t.TempDir()
	for _, d := range []string{"ws", "up", "work"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, dir+"/link"), os.Symlink(outside, dir+"/ws/.git")); err != nil {
		t.Fatal(err)
	}
	overlay := sandbox.Mount{Source: dir + "/ws", Target: "/ws", Access: sandbox.Overlay, Upper: dir + "/up", Work: dir + "/work"}
	for name, mounts := range map[string][]sandbox.Mount{
		"a source that is a link":       {{Source: dir + "/link", Target: "/x"}},
		"a source behind a link":        {{Source: dir + "/link/sub", Target: "/x"}},
		"an overlay of a link":          {{Source: dir + "/link", Target: "/ws", Access: sandbox.Overlay, Upper: dir + "/up", Work: dir + "/work"}},
		"a target behind a link inside": {overlay, {Source: outside, Target: "/ws/.git/hooks"}},
		"a target at the root":          {{Source: outside, Target: "/"}},
		"a target in proc":              {{Source: outside, Target: "/proc/1"}},
		"a target in dev by dots":       {{Source: outside, Target: "/usr/../dev/shm"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := shell("true")
			s.Mounts = mounts
			if p, err := r.Start(t.Context(), s); err == nil {
				p.Kill(nil)
				t.Error("it started")
			}
		})
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("made outside: %v", entries)
	}
}

func TestG7WhatIsRequiredIsHeldOrNothingStarts(t *testing.T) {
	r := newRuntime(t)
	marker := t.TempDir()
	s := shell("touch /m/ran")
	s.Mounts = []sandbox.Mount{{Source: marker, Target: "/m", Access: sandbox.ReadWrite}}
	s.Require = []sandbox.Control{sandbox.Seccomp, sandbox.KernelWall}
	p, err := r.Start(t.Context(), s)
	var required *sandbox.RequiredError
	if !errors.As(err, &required) || len(required.Missing) != 1 || required.Missing[0] != sandbox.KernelWall {
		t.Errorf("process %v, error %v", p, err)
	}
	if _, err := os.Stat(marker + "/ran"); err == nil {
		t.Error("the program ran")
	}
	s.Require = []sandbox.Control{sandbox.UserNS, sandbox.NetNS, sandbox.PrivateFS, sandbox.NoNewPrivs, sandbox.NoCaps, sandbox.Seccomp}
	if o := run1(t, r, s); o.ExitCode != 0 {
		t.Errorf("with what there is: %+v", o)
	}
}

func TestWithoutCgroupsTheCapsAreDegradedAndSaySo(t *testing.T) {
	r := newRuntime(t)
	r.groups = cgroup.Nowhere
	s := attackSpec(t, "hog")
	s.Caps.MemoryBytes = 96 << 20
	o := run1(t, r, s)
	if !errors.Is(o.Cause, sandbox.ErrMemory) && o.ExitCode == 0 {
		t.Errorf("the hog ended with %d, cause %v", o.ExitCode, o.Cause)
	}
	for _, h := range o.Controls {
		if (h.Control == sandbox.MemoryCap || h.Control == sandbox.PIDsCap || h.Control == sandbox.CPUCap) && (h.State == sandbox.Enforced || h.Note == "") {
			t.Errorf("%+v", h)
		}
	}
	s.Require = []sandbox.Control{sandbox.MemoryCap}
	var required *sandbox.RequiredError
	if _, err := r.Start(t.Context(), s); !errors.As(err, &required) {
		t.Errorf("error %v", err)
	}
}

func TestProbeTriesEachControl(t *testing.T) {
	r := newRuntime(t)
	report := r.Probe(t.Context())
	if !report.Available {
		t.Fatalf("%+v", report)
	}
	for _, c := range []sandbox.Control{sandbox.UserNS, sandbox.MountNS, sandbox.PIDNS, sandbox.NetNS, sandbox.IPCNS, sandbox.UTSNS, sandbox.PrivateFS,
		sandbox.NoNewPrivs, sandbox.NoCaps, sandbox.Seccomp, sandbox.DiskCap, sandbox.WallCap} {
		if missing := sandbox.Missing([]sandbox.Control{c}, report.Controls); missing != nil {
			t.Errorf("not enforced: %v in %+v", missing, report.Controls)
		}
	}
}

func TestTheLookInsideCanContradict(t *testing.T) {
	claims := []sandbox.Held{{Control: sandbox.UserNS, State: sandbox.Enforced}, {Control: sandbox.NetNS, State: sandbox.Enforced}, {Control: sandbox.NoCaps, State: sandbox.Enforced},
		{Control: sandbox.Seccomp, State: sandbox.Enforced}, {Control: sandbox.PrivateFS, State: sandbox.Enforced}, {Control: sandbox.NoNewPrivs, State: sandbox.Enforced}, {Control: sandbox.Landlock, State: sandbox.Enforced}}
	host := ownNamespaces()
	for _, h := range contradict(claims, seen{Namespaces: host, Status: map[string]string{"CapEff": "000001ffffffffff"}, Layers: maxLayers}, host) {
		if h.State != sandbox.Absent || !strings.Contains(h.Note, "not held") {
			t.Errorf("%+v", h)
		}
	}
}

func TestHostsThatRefuseAreExplained(t *testing.T) {
	for _, row := range []struct {
		name     string
		err      stageError
		settings map[string]string
		want     string
	}{
		{"no user namespaces left at all", stageError{step: "start", errno: syscall.ENOSPC}, map[string]string{"user/max_user_namespaces": "0"}, "switched off"},
		{"they are used up", stageError{step: "start", errno: syscall.ENOSPC}, map[string]string{"user/max_user_namespaces": "5"}, "left"},
		{"Debian's switch", stageError{step: "start", errno: syscall.EPERM}, map[string]string{"kernel/unprivileged_userns_clone": "0"}, "for root only"},
		{"AppArmor lets them be made but not used", stageError{step: "file system", errno: syscall.EACCES}, map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, "AppArmor"},
		{"a container that covers proc", stageError{step: "file system", err: errors.New("/proc: " + noProc + ": operation not permitted"), errno: syscall.EPERM}, nil, "container"},
		{"a container that forbids unshare", stageError{step: "start", errno: syscall.EPERM}, nil, "refuses new namespaces"},
		{"a kernel without them", stageError{step: "start", errno: syscall.EINVAL}, nil, "built without"},
		{"an old kernel", stageError{step: "file system", errno: syscall.ENOSYS}, nil, "older"},
		{"a missing directory is no fault of the host", stageError{step: "file system", errno: syscall.ENOENT}, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.err.err = cmp.Or(row.err.err, error(row.err.errno))
			why, fix := diagnose(&row.err, func(name string) string { return row.settings[name] })
			if !strings.Contains(why, row.want) || (why == "") != (row.want == "") || (why == "") != (fix == "") {
				t.Errorf("why %q, fix %q", why, fix)
			}
		})
	}
}

func TestMountsAreSortedAndSystemDirectoriesAreNotShownTwice(t *testing.T) {
	got, err := sortMounts([]sandbox.Mount{
		{Source: "/h/ws/.git", Target: "/h/ws/.git/"}, {Source: "/usr", Target: "/usr"}, {Source: "/bin", Target: "/bin"},
		{Source: "/h/x", Target: "/usr/local/x"}, {Source: "/h", Target: "/h", Access: sandbox.ReadWrite}, {Source: "/opt", Target: "/opt", Access: sandbox.ReadWrite},
	})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range got {
		targets = append(targets, m.Target)
	}
	if want := []string{"/h", "/opt", "/h/ws/.git", "/usr/local/x"}; !slices.Equal(targets, want) {
		t.Errorf("%v, want %v", targets, want)
	}
}
