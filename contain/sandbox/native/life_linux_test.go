package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
	"golang.org/x/sys/unix"
)

func TestExitCodesSignalsAndStreams(t *testing.T) {
	r := newRuntime(t)
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/plain", []byte("#!/bin/sh\n"), 0o644), os.WriteFile(dir+"/lost", []byte("#!/no/such/sh\n"), 0o755),
		os.WriteFile(dir+"/trick", []byte("#!/proc/self/exe\n"), 0o755), os.WriteFile(dir+"/noise", []byte("\x01\x02\x03"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name         string
		argv         []string
		stdin        string
		code, signal int
		out          string
	}{
		{"an exit code passes through", []string{"sh", "-c", "exit 7"}, "", 7, 0, ""},
		{"a signal is 128 and its number", []string{"sh", "-c", "kill -TERM $$"}, "", 143, 15, ""},
		{"input comes and ends", []string{"cat"}, "hello", 0, 0, "hello"},
		{"input that nobody wants holds nothing up", []string{"true"}, strings.Repeat("x", 1<<20), 0, 0, ""},
		{"a command that is nowhere", []string{"no-such-command"}, "", 127, 0, ""},
		{"a path that is nowhere", []string{"/usr/bin/no-such-command"}, "", 127, 0, ""},
		{"a file that may not be executed", []string{"/m/plain"}, "", 126, 0, ""},
		{"a directory", []string{"/usr"}, "", 126, 0, ""},
		{"a script whose interpreter is nowhere", []string{"/m/lost"}, "", 127, 0, ""},
		{"a script whose interpreter would be our own binary", []string{"/m/trick"}, "", 126, 0, ""},
		{"our own binary by its link", []string{"/proc/self/exe"}, "", 126, 0, ""},
		{"neither program nor script", []string{"/m/noise"}, "", 126, 0, ""},
		{"relative to the working directory", []string{"./bin/true"}, "", 0, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := sandbox.Spec{Argv: row.argv, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: strings.NewReader(row.stdin), Dir: "/usr",
				Mounts: []sandbox.Mount{{Source: dir, Target: "/m"}}}
			o := run1(t, r, s)
			if o.ExitCode != row.code || o.Signal != row.signal || o.out != row.out || o.Cause != nil {
				t.Errorf("exit %d, signal %d, cause %v, said %q %q", o.ExitCode, o.Signal, o.Cause, o.out, o.errs)
			}
			why := ""
			if strings.Contains(row.name, "our own binary") {
				why = "symbolic links" // our own word: Landlock's would be another
			}
			if row.code > 125 && row.signal == 0 && (o.errs == "" || !strings.Contains(o.errs, why)) {
				t.Errorf("it did not say why: %q", o.errs)
			}
		})
	}
	t.Run("a working directory that is not inside", func(t *testing.T) {
		s := shell("true")
		s.Dir = dir
		if _, err := r.Start(t.Context(), s); !errors.Is(err, os.ErrNotExist) && (err == nil || !strings.Contains(err.Error(), dir)) {
			t.Errorf("error %v", err)
		}
	})
}

func TestOutputIsCappedWithAMark(t *testing.T) {
	r := newRuntime(t)
	s := shell("yes | head -c 300000; echo done >&2")
	s.Caps.OutputBytes = 1000
	o := run1(t, r, s)
	if len(o.out) != 1000+len(sandbox.CutMark) || !strings.HasSuffix(o.out, sandbox.CutMark) || !o.StdoutCut || o.StderrCut || o.errs != "done\n" {
		t.Errorf("%d bytes, cut %v %v, stderr %q", len(o.out), o.StdoutCut, o.StderrCut, o.errs)
	}
}

func TestAWriterThatFailsEndsTheProgramAsAClosedPipeWould(t *testing.T) {
	r := newRuntime(t)
	s := shell("exec yes")
	s.Stdout = failing{}
	if o := run1(t, r, s); o.Signal != int(syscall.SIGPIPE) || o.OutputErr == nil {
		t.Errorf("exit %d, signal %d, output error %v", o.ExitCode, o.Signal, o.OutputErr)
	}
}

func TestAScriptRunsAsItStandsAndCannotBeChanged(t *testing.T) {
	r := newRuntime(t)
	s := shell("")
	remove, err := sandbox.ExecuteCommand(`echo "it's $0"; echo x >> "$0" || echo kept`).Put(&s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if o := run1(t, r, s); o.out != "it's /run/cordon/script.sh\nkept\n" || o.ExitCode != 0 {
		t.Errorf("exit %d: %q, %q", o.ExitCode, o.out, o.errs)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestInputThatNeverEndsDoesNotHoldWait(t *testing.T) {
	r := newRuntime(t)
	never, w := io.Pipe()
	defer w.Close()
	s := shell("exit 3")
	s.Stdin = never
	if o := run1(t, r, s); o.ExitCode != 3 {
		t.Errorf("exit %d", o.ExitCode)
	}
}

func TestATerminalIsFreshAndTheSandboxesOwn(t *testing.T) {
	r := newRuntime(t)
	s := shell("tty; stty size; read line; echo got $line; sleep 0 </dev/tty && echo controlling")
	s.TTY, s.Rows, s.Cols, s.Stdin = true, 40, 100, strings.NewReader("typed\n")
	o := run1(t, r, s)
	for _, want := range []string{"/dev/pts/0", "40 100", "got typed", "controlling"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("no %q in %q", want, o.out)
		}
	}
}

func TestCapsEndWhatBreaksThem(t *testing.T) {
	r := newRuntime(t)
	groups := r.groups()
	for _, row := range []struct {
		name  string
		spec  func() sandbox.Spec
		caps  sandbox.Caps
		cause error
		needs string // a cgroup
	}{
		{"an infinite loop", func() sandbox.Spec { return attackSpec(t, "spin") }, sandbox.Caps{Wall: 300 * time.Millisecond}, sandbox.ErrTimeout, "-"},
		{"a memory hog", func() sandbox.Spec { return attackSpec(t, "hog") }, sandbox.Caps{MemoryBytes: 64 << 20}, sandbox.ErrMemory, groups.Memory},
		{"a hog below a shell that goes on", func() sandbox.Spec { return attackShell(t, attackProgram+" hog; sleep 30") }, sandbox.Caps{MemoryBytes: 64 << 20}, sandbox.ErrMemory, groups.Memory},
		{"files in /tmp that fill the memory", func() sandbox.Spec { return shell("yes > /tmp/f; sleep 30") }, sandbox.Caps{MemoryBytes: 64 << 20}, sandbox.ErrMemory, groups.Memory},
		{"a full /tmp", func() sandbox.Spec { return shell("yes > /tmp/f; sleep 30") }, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"a full /dev/shm and home together", func() sandbox.Spec {
			return shell("head -c 6000000 /dev/zero >/dev/shm/f; head -c 6000000 /dev/zero >$HOME/f; sleep 30")
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"a full workspace", func() sandbox.Spec {
			s, _, _ := withOverlay(t, shell("for i in $(seq 40); do head -c 1000000 /dev/zero >/ws/$i; done; sleep 30"))
			return s
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"a workspace that was overfull for a moment between looks", func() sandbox.Spec {
			s, _, _ := withOverlay(t, shell("head -c 9000000 /dev/zero >/ws/f"))
			return s
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"a deleted file that is still written", func() sandbox.Spec { s, _, _ := withOverlay(t, attackSpec(t, "unlinked")); return s },
			sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"empty files without end", func() sandbox.Spec { s, _, _ := withOverlay(t, attackSpec(t, "inodes")); return s },
			sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk, "-"},
		{"a file that is too big", func() sandbox.Spec {
			return sandbox.Spec{Argv: []string{"/usr/bin/head", "-c", "9000000", "/dev/zero"}}
		}, sandbox.Caps{}, nil, "-"},
		{"a fork bomb", func() sandbox.Spec { return attackSpec(t, "forkbomb") }, sandbox.Caps{PIDs: 64, Wall: time.Second}, sandbox.ErrTimeout, groups.PIDs},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.needs == "" {
				t.Skipf("this host has no cgroup for it: %s %s", groups.NoMemory, groups.NoPIDs)
			}
			s := row.spec()
			s.Caps = row.caps
			began := time.Now()
			o := run1(t, r, s)
			if !errors.Is(o.Cause, row.cause) || (row.cause != nil && o.ExitCode == 0 && row.cause != sandbox.ErrDisk) {
				t.Errorf("cause %v, exit %d, said %q %q after %v", o.Cause, o.ExitCode, o.out, o.errs, time.Since(began))
			}
		})
	}
	t.Run("a single file past its cap", func(t *testing.T) {
		s := sandbox.Spec{Argv: []string{"/usr/bin/dd", "if=/dev/zero", "of=/tmp/f", "bs=64k", "count=64"}, Caps: sandbox.Caps{FileBytes: 1 << 20}}
		if o := run1(t, r, s); !errors.Is(o.Cause, sandbox.ErrDisk) || o.Signal != int(unix.SIGXFSZ) {
			t.Errorf("%+v", o)
		}
	})
	t.Run("PID 1 lives on under a full cap", func(t *testing.T) {
		if groups.PIDs == "" {
			t.Skip("this host has no pids cgroup: " + groups.NoPIDs)
		}
		s := attackSpec(t, "bomb-and-exit")
		s.Caps.PIDs = 64
		if o := run1(t, r, s); o.out != "full" || o.ExitCode != 0 || o.Cause != nil {
			t.Errorf("exit %d, cause %v, said %q %q", o.ExitCode, o.Cause, o.out, o.errs)
		}
	})
}

func attackShell(t *testing.T, script string) sandbox.Spec {
	s := attackSpec(t)
	s.Argv = []string{"sh", "-c", script}
	return s
}

// sleeper is a command line that no other process has.
func sleeper() (script, pattern string) {
	n := fmt.Sprintf("86400.%d%d", os.Getpid(), time.Now().UnixNano()%1e9)
	return "sleep " + n, "sleep\x00" + n
}

// aliveOf lists the processes of the host whose command line begins so.
func aliveOf(pattern string) []string {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, _ := os.ReadFile(f); strings.HasPrefix(string(text), pattern) {
			found = append(found, f)
		}
	}
	return found
}

// eventually waits for a state that has no event to wait for.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func TestADaemonEndsWithTheProgram(t *testing.T) {
	r := newRuntime(t)
	command, pattern := sleeper()
	o := run1(t, r, shell("(setsid "+command+" >/dev/null 2>&1 &) ; (setsid "+command+" &); exit 4"))
	if alive := aliveOf(pattern); o.ExitCode != 4 || len(alive) > 0 {
		t.Errorf("exit %d, still there: %v", o.ExitCode, alive)
	}
}

func TestKillReachesTheWholeTreeAndKeepsItsCause(t *testing.T) {
	r := newRuntime(t)
	command, pattern := sleeper()
	for name, kill := range map[string]func(sandbox.Process, context.CancelCauseFunc, error){
		"by Kill": func(p sandbox.Process, _ context.CancelCauseFunc, err error) {
			p.Kill(err)
			p.Kill(errors.New("second"))
		},
		"by context": func(_ sandbox.Process, cancel context.CancelCauseFunc, err error) { cancel(err) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			p, err := r.Start(ctx, shell("(setsid "+command+" &); "+command+" & "+command+"; true"))
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "three sleepers", func() bool { return len(aliveOf(pattern)) == 3 })
			if s := p.Stats(); s.PIDs < 4 || s.CPU <= 0 && r.groups().CPUAcct != "" {
				t.Errorf("while it runs: %+v", s)
			}
			cause := errors.New("tripwire")
			began := time.Now()
			kill(p, cancel, cause)
			res, err := p.Wait()
			t.Logf("%v from kill to the end of the tree", time.Since(began))
			if err != nil || res.Cause != cause || res.ExitCode != 137 || res.Signal != 9 {
				t.Errorf("%+v, error %v", res, err)
			}
			if alive := aliveOf(pattern); len(alive) > 0 {
				t.Errorf("still there: %v", alive)
			}
		})
	}
}

const supervisorEnv = "CORDON_TEST_SUPERVISOR"

// superviseMain is a supervisor that will be killed: it starts what its
// environment says and says so.
func superviseMain() {
	r, err := New(Config{StateDir: os.Getenv("CORDON_TEST_STATE")})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s := shell(os.Getenv(supervisorEnv))
	s.Stdout, s.Stderr = os.Stdout, os.Stdout
	p, err := r.Start(context.Background(), s)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	res, err := p.Wait()
	fmt.Println("exit", res.ExitCode, err)
	for _, h := range res.Controls {
		fmt.Println(h.Control, h.State, h.Note)
	}
	_ = r.Close()
	os.Exit(0)
}

func TestASupervisorThatIsKilledTakesTheSandboxWithIt(t *testing.T) {
	r := newRuntime(t)
	command, pattern := sleeper()
	if len(r.groups().Dirs()) == 0 {
		t.Log("this host has no cgroup that could be left behind")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{supervisorEnv + "=(setsid " + command + " &); " + command + "; true", "CORDON_TEST_STATE=" + t.TempDir()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two sleepers", func() bool { return len(aliveOf(pattern)) == 2 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the end of the sandbox", func() bool { return len(aliveOf(pattern)) == 0 })
	// What it left behind goes with the next supervisor.
	left := func() []string {
		var found []string
		for _, dir := range r.groups().Dirs() {
			names, _ := filepath.Glob(fmt.Sprintf("%s/%s%d-*", dir, cgroup.Prefix, cmd.Process.Pid))
			found = append(found, names...)
		}
		return found
	}
	if len(r.groups().Dirs()) > 0 && len(left()) == 0 {
		t.Error("there was no cgroup to leave behind: this test tests nothing")
	}
	eventually(t, "the sweep", func() bool { cgroup.Find(); return len(left()) == 0 })
}

func TestAUserWhoIsNotRootHasTheSameWalls(t *testing.T) {
	newRuntime(t)
	if os.Geteuid() != 0 {
		t.Skip("every test here has run as such a user")
	}
	// Not t.TempDir, whose parent is root's alone.
	state, err := os.MkdirTemp("", "cordon-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(state)
	if err := os.Chown(state, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{supervisorEnv + "=id -u; grep -E 'Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs|Seccomp:' /proc/self/status; mount -t tmpfs x /tmp && echo MOUNTED; unshare -U true && echo UNSHARED; echo x >/tmp/f && cat /tmp/f; cat /proc/1/environ && echo PEEPED",
		"CORDON_TEST_STATE=" + state}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if strings.Contains(text, "not available") {
		t.Skipf("only root may make user namespaces here: %s", text)
	}
	for _, want := range []string{"12345\n", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "\nx\n", "user_namespace enforced", "seccomp enforced", "memory_cap degraded", "pids_cap degraded"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s (%v)", want, text, err)
		}
	}
	for _, bad := range []string{"MOUNTED", "UNSHARED", "PEEPED"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s: %s", bad, text)
		}
	}
}

func TestListenersInsideAreHandedOut(t *testing.T) {
	r := newRuntime(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed: ", err)
	}
	s := sandbox.Spec{Argv: []string{"bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; read answer <&3; echo $answer`}, Env: []string{"PATH=/usr/bin:/bin"}}
	s.Listen = []string{"127.0.0.1:3128", "127.0.0.1:3129"}
	var served sync.WaitGroup
	s.Accept = func(inside string, l net.Listener) {
		if inside != "127.0.0.1:3128" {
			l.Close()
			return
		}
		served.Go(func() {
			defer l.Close()
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			buf := make([]byte, 6)
			if _, err := io.ReadFull(c, buf); err != nil {
				t.Error(err)
			}
			fmt.Fprintf(c, "you said %s", buf)
		})
	}
	o := run1(t, r, s)
	served.Wait()
	if o.out != "you said hello\n" {
		t.Errorf("said %q %q", o.out, o.errs)
	}
}

// leftovers is what a run could leave on the host.
func leftovers(r *Runtime) map[string]int {
	n := map[string]int{}
	fds, _ := os.ReadDir("/proc/self/fd")
	n["descriptors"] = len(fds)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	n["mounts"] = bytes.Count(mounts, []byte("\n"))
	for _, dir := range r.groups().Dirs() {
		groups, _ := filepath.Glob(fmt.Sprintf("%s/%s%d-*", dir, cgroup.Prefix, os.Getpid()))
		n["cgroups"] += len(groups)
	}
	entries, _ := os.ReadDir(filepath.Dir(r.root))
	n["state"] = len(entries)
	inside, _ := os.ReadDir(r.root)
	n["root"] = len(inside)
	return n
}

func TestTwentyAtATimeLeaveNothingBehind(t *testing.T) {
	r := newRuntime(t)
	run1(t, r, shell("true"))
	before := leftovers(r)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s := shell(fmt.Sprintf("echo %d >/tmp/mine; cat /tmp/mine; ls /tmp | wc -l; exit %d", i, i%3))
			if i%5 == 4 {
				s.Argv = []string{"no-such-command"}
			}
			if i%7 == 6 {
				s.Require = []sandbox.Control{sandbox.KernelWall}
				if _, err := r.Start(t.Context(), s); err == nil {
					t.Error("it started without what it required")
				}
				return
			}
			o := run1(t, r, s)
			if want := fmt.Sprintf("%d\n1\n", i); i%5 != 4 && (o.out != want || o.ExitCode != i%3) {
				t.Errorf("exit %d, said %q, want %q", o.ExitCode, o.out, want)
			}
		})
	}
	wg.Wait()
	eventually(t, fmt.Sprint("the same as before: ", before), func() bool {
		return fmt.Sprint(leftovers(r)) == fmt.Sprint(before)
	})
}

func TestCloseEndsWhatRuns(t *testing.T) {
	r := newRuntime(t)
	command, pattern := sleeper()
	p, err := r.Start(t.Context(), shell(command))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	res, _ := p.Wait()
	if !errors.Is(res.Cause, errClosed) || len(aliveOf(pattern)) > 0 {
		t.Errorf("%+v", res)
	}
	if _, err := r.Start(t.Context(), shell("true")); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestStatsTellWhatIsUsed(t *testing.T) {
	r := newRuntime(t)
	o := run1(t, r, shell("head -c 5000000 /dev/zero >/tmp/f; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
	if o.Stats.DiskBytes < 5_000_000 || o.Wall <= 0 {
		t.Errorf("%+v", o.Result)
	}
	if r.groups().Memory != "" && o.Stats.PeakBytes < 5_000_000 {
		t.Errorf("peak %d", o.Stats.PeakBytes)
	}
	if r.groups().CPUAcct != "" && o.User+o.System <= 0 {
		t.Errorf("times %v %v", o.User, o.System)
	}
}

func TestRealHostsThatRefuseAreExplained(t *testing.T) {
	newRuntime(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, prepare, want string }{
		{"a user namespace of one user only is no hindrance", "true", "exit 0"},
		{"user namespaces are switched off", "echo 0 >/proc/sys/user/max_user_namespaces", "max_user_namespaces"},
		{"a container that covers a part of proc", "mount -t tmpfs none /proc/bus", "systempaths=unconfined"},
	} {
		t.Run(row.name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", row.prepare+" || { echo cannot prepare; exit 1; }; exec "+exe)
			cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", supervisorEnv + "=echo started", "CORDON_TEST_STATE=" + t.TempDir()}
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "cannot prepare") {
				t.Skipf("this host does not let it be made: %s", out)
			}
			if available := err == nil; available != (row.want == "exit 0") || !strings.Contains(string(out), row.want) {
				t.Errorf("%s (%v), want %q", out, err, row.want)
			}
		})
	}
}
