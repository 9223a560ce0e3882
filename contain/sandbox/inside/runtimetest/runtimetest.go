//go:build linux

// Package runtimetest holds a runtime to the contract of sandbox.Runtime,
// with real programs in real walls. A test binary's TestMain calls Main first.
//
// What it does not hold: speed, and attacks on the kernel; the escape suite
// runs those through the front door.
package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"golang.org/x/sys/unix"
)

// Suite is a runtime to be tested.
type Suite struct {
	// New makes the runtime, with its state below dir; it is closed by the
	// suite.
	New func(dir string) (sandbox.Runtime, error)
	// KillRun of the runtime.
	KillRun func(ctx context.Context, r sandbox.Runtime, id string) (int, error)
	// Marks tells, by a part of a command line, the processes of this host
	// that a run consists of; the program's holds number.
	Marks func(dir, number string) string
	// OwnKernel: the program does not run on the host's.
	OwnKernel bool
}

const (
	superviseEnv = "RUNTIMETEST_SUPERVISE"
	program      = "/run/runtimetest"
)

// Main takes over when the binary was started as a program inside, or as a
// supervisor that is to be killed.
func Main(s Suite) {
	if len(os.Args) == 2 && os.Args[0] == program {
		os.Exit(attack(os.Args[1]))
	}
	if dir := os.Getenv(superviseEnv); dir != "" {
		os.Exit(s.supervise(dir))
	}
}

// supervise starts a sandbox and waits for its own end.
func (s Suite) supervise(dir string) int {
	r, err := s.New(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	spec := Shell("echo up; exec sleep " + filepath.Base(dir))
	spec.Stdout, spec.Stderr = os.Stdout, os.Stderr
	p, err := r.Start(context.Background(), spec)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = p.Wait()
	return 0
}

// Shell is a script to be run.
func Shell(script string) sandbox.Spec {
	return sandbox.Spec{ID: "runtimetest", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/agent"}}
}

// harness is a suite within a test.
type harness struct {
	Suite
	sandbox.Runtime
}

// Outcome is a result with what was said.
type Outcome struct {
	sandbox.Result
	Out, Errs string
}

func (h harness) run(t *testing.T, s sandbox.Spec) Outcome {
	t.Helper()
	var out, errs bytes.Buffer
	if s.Stdout == nil {
		s.Stdout = &out
	}
	if s.Stderr == nil {
		s.Stderr = &errs
	}
	p, err := h.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return Outcome{res, out.String(), errs.String()}
}

// withOverlay gives a spec a workspace at /ws.
func withOverlay(t *testing.T, s sandbox.Spec) (_ sandbox.Spec, lower, upper string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := sandbox.Mount{Source: dir + "/lower", Target: "/ws", Access: sandbox.Overlay, Upper: dir + "/upper", Work: dir + "/work"}
	for _, d := range []string{m.Source, m.Upper, m.Work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(m.Source+"/kept", []byte("kept\n"), 0o644), os.WriteFile(m.Source+"/gone", []byte("gone\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s.Mounts = append(s.Mounts, m)
	return s, m.Source, m.Upper
}

// attackSpec runs this test binary inside.
func attackSpec(t *testing.T, what string) sandbox.Spec {
	t.Helper()
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := Shell("")
	s.Argv = []string{program, what}
	s.Mounts = []sandbox.Mount{{Source: exe, Target: program}}
	return s
}

// Run holds the runtime to all of it.
func (s Suite) Run(t *testing.T) {
	r, err := s.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	h := harness{s, r}
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"exit codes, signals and streams", h.exits},
		{"the environment is the spec's and nothing else", h.environment},
		{"the root is read-only and the scratch directories are not", h.root},
		{"an overlay keeps changes in its upper directory", h.overlay},
		{"mounts", h.mounts},
		{"output is capped with a mark", h.output},
		{"a terminal is fresh and the sandbox's own", h.terminal},
		{"a terminal that changes its size", h.resize},
		{"caps end what breaks them", h.caps},
		{"kills", h.kills},
		{"listeners inside are handed out", h.listeners},
		{"a required control", h.require},
		{"what is inside cannot get out", h.attacks},
		{"the sandbox dies with its supervisor", h.supervisorDeath},
	} {
		t.Run(c.name, c.test)
	}
}

func (h harness) exits(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/plain", []byte("#!/bin/sh\n"), 0o644), os.WriteFile(dir+"/lost", []byte("#!/no/such/sh\n"), 0o755),
		os.WriteFile(dir+"/noise", []byte("\x01\x02\x03"), 0o755)); err != nil {
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
		{"much input comes back whole", []string{"cat"}, strings.Repeat("0123456789", 100_000), 0, 0, strings.Repeat("0123456789", 100_000)},
		{"input that nobody wants holds nothing up", []string{"true"}, strings.Repeat("x", 1<<20), 0, 0, ""},
		{"a command that is nowhere", []string{"no-such-command"}, "", 127, 0, ""},
		{"a path that is nowhere", []string{"/usr/bin/no-such-command"}, "", 127, 0, ""},
		{"a file that may not be executed", []string{"/m/plain"}, "", 126, 0, ""},
		{"a directory", []string{"/usr"}, "", 126, 0, ""},
		{"a script whose interpreter is nowhere", []string{"/m/lost"}, "", 127, 0, ""},
		{"neither program nor script", []string{"/m/noise"}, "", 126, 0, ""},
		{"relative to the working directory", []string{"./bin/true"}, "", 0, 0, ""},
		{"what a daemon leaves does not hold the end up", []string{"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo left"}, "", 0, 0, "left\n"},
		{"a daemon that keeps the output open dies with the program", []string{"sh", "-c", "setsid sleep 1000 & echo left"}, "", 0, 0, "left\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := sandbox.Spec{Argv: row.argv, Env: []string{"PATH=/usr/bin:/bin"}, Stdin: strings.NewReader(row.stdin), Dir: "/usr",
				Mounts: []sandbox.Mount{{Source: dir, Target: "/m"}}}
			o := h.run(t, s)
			if o.ExitCode != row.code || o.Signal != row.signal || o.Out != row.out || o.Cause != nil {
				t.Errorf("exit %d, signal %d, cause %v, said %.200q %q", o.ExitCode, o.Signal, o.Cause, o.Out, o.Errs)
			}
			if row.code > 125 && row.signal == 0 && o.Errs == "" {
				t.Error("it did not say why")
			}
		})
	}
	t.Run("a working directory that is not inside", func(t *testing.T) {
		s := Shell("true")
		s.Dir = dir
		if _, err := h.Start(t.Context(), s); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("output and errors are kept apart", func(t *testing.T) {
		if o := h.run(t, Shell("echo out; echo err >&2")); o.Out != "out\n" || o.Errs != "err\n" {
			t.Errorf("said %q %q", o.Out, o.Errs)
		}
	})
}

func (h harness) environment(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "BASH_ENV", "GIT_DIR", "GITHUB_TOKEN", "HTTPS_PROXY"} {
		t.Setenv(name, "/from/the/host")
	}
	if o := h.run(t, sandbox.Spec{Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "HOME=/home/agent"}}); o.Out != "A=1\nHOME=/home/agent\n" {
		t.Errorf("environment inside:\n%s%s", o.Out, o.Errs)
	}
	if o := h.run(t, sandbox.Spec{Argv: []string{"/usr/bin/env"}}); o.Out != "" {
		t.Errorf("environment inside:\n%s%s", o.Out, o.Errs)
	}
}

func (h harness) root(t *testing.T) {
	o := h.run(t, Shell(`for d in / /usr /etc /bin /var /.cordon-init; do echo x 2>/dev/null >$d/cordon-was-here && echo wrote $d; done
echo x 2>/dev/null >>/.cordon-init && echo wrote init
for d in /tmp /var/tmp /dev/shm $HOME; do echo x >$d/x || echo not $d; done; echo end`))
	if o.Out != "end\n" {
		t.Errorf("%s%s", o.Out, o.Errs)
	}
}

func (h harness) overlay(t *testing.T) {
	s, lower, upper := withOverlay(t, Shell("cat kept; echo new >new; echo more >>kept; rm gone; mkdir -p d/e; echo in >d/e/f; test -e gone || echo removed; cat new kept"))
	s.Dir = "/ws"
	o := h.run(t, s)
	if o.ExitCode != 0 || o.Out != "kept\nremoved\nnew\nkept\nmore\n" {
		t.Fatalf("exit %d, cause %v, said %q %q", o.ExitCode, o.Cause, o.Out, o.Errs)
	}
	for path, want := range map[string]string{lower + "/kept": "kept\n", lower + "/gone": "gone\n", upper + "/new": "new\n", upper + "/kept": "kept\nmore\n", upper + "/d/e/f": "in\n"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v (want %q)", path, got, err, want)
		}
	}
	if _, err := os.Lstat(lower + "/new"); err == nil {
		t.Error("a new file came through to the lower directory")
	}
	if info, err := os.Lstat(upper + "/gone"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("the removal left no whiteout: %v", err)
	}
	if st := mountsBelow(t, filepath.Dir(upper)); len(st) > 0 {
		t.Errorf("mounts are left on the host: %q", st)
	}
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return !strings.Contains(line, dir) })
}

func (h harness) mounts(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(dir+"/d", 0o755), os.WriteFile(dir+"/d/f", []byte("f"), 0o644), os.Symlink("d", dir+"/l")); err != nil {
		t.Fatal(err)
	}
	t.Run("one that is read-only stays so", func(t *testing.T) {
		s := Shell("cat /m/f; echo x >/m/f; echo x >/m/g; rm -f /m/f; cat /m/f")
		s.Mounts = []sandbox.Mount{{Source: dir + "/d", Target: "/m"}}
		if o := h.run(t, s); o.Out != "ff" {
			t.Errorf("%s%s", o.Out, o.Errs)
		}
	})
	t.Run("one that is writable changes the host's files, and is told as degraded", func(t *testing.T) {
		s := Shell("echo y >/m/g")
		s.Mounts = []sandbox.Mount{{Source: dir + "/d", Target: "/m", Access: sandbox.ReadWrite}}
		o := h.run(t, s)
		if got, _ := os.ReadFile(dir + "/d/g"); string(got) != "y\n" || state(o.Controls, sandbox.DiskCap) != sandbox.Degraded {
			t.Errorf("%q, %v, %s", got, state(o.Controls, sandbox.DiskCap), o.Errs)
		}
	})
	t.Run("a single file", func(t *testing.T) {
		s := Shell("cat /m")
		s.Mounts = []sandbox.Mount{{Source: dir + "/d/f", Target: "/m"}}
		if o := h.run(t, s); o.Out != "f" {
			t.Errorf("%s%s", o.Out, o.Errs)
		}
	})
	t.Run("one below /tmp and one below another", func(t *testing.T) {
		s, _, _ := withOverlay(t, Shell("cat /tmp/a/b/f; cat /ws/in/f; echo w >/tmp/w && echo ok"))
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: dir + "/d", Target: "/tmp/a/b"}, sandbox.Mount{Source: dir + "/d", Target: "/ws/in"})
		if o := h.run(t, s); o.Out != "ffok\n" {
			t.Errorf("%s%s", o.Out, o.Errs)
		}
	})
	t.Run("an optional one that is absent is passed over, another is an error", func(t *testing.T) {
		s := Shell("echo ok")
		s.Mounts = []sandbox.Mount{{Source: dir + "/none", Target: "/m", Optional: true}}
		if o := h.run(t, s); o.Out != "ok\n" {
			t.Errorf("%s%s", o.Out, o.Errs)
		}
		s.Mounts[0].Optional = false
		if _, err := h.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), dir+"/none") {
			t.Errorf("error %v", err)
		}
	})
	for name, m := range map[string]sandbox.Mount{
		"a source through a link": {Source: dir + "/l", Target: "/m"}, "the root": {Source: dir, Target: "/"}, "below /proc": {Source: dir, Target: "/proc/x"},
		"over the first process": {Source: dir, Target: "/.cordon-init"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			s := Shell("true")
			s.Mounts = []sandbox.Mount{m}
			if _, err := h.Start(t.Context(), s); err == nil {
				t.Error("it was not refused")
			}
		})
	}
}

func state(held []sandbox.Held, c sandbox.Control) sandbox.State {
	for _, h := range held {
		if h.Control == c {
			return h.State
		}
	}
	return sandbox.Absent
}

func (h harness) output(t *testing.T) {
	s := Shell("yes | head -c 3000000; echo done >&2")
	s.Caps.OutputBytes = 1000
	if o := h.run(t, s); len(o.Out) != 1000+len(sandbox.CutMark) || !strings.HasSuffix(o.Out, sandbox.CutMark) || !o.StdoutCut || o.StderrCut || o.Errs != "done\n" {
		t.Errorf("%d bytes, cut %v %v, stderr %q", len(o.Out), o.StdoutCut, o.StderrCut, o.Errs)
	}
	s = Shell("yes | head -c 300000")
	s.Stdout = failing{}
	if o := h.run(t, s); o.OutputErr == nil || o.Cause != nil {
		t.Errorf("a writer that fails: output error %v, cause %v", o.OutputErr, o.Cause)
	}
	s = Shell("while echo x; do :; done; echo ended >&2")
	s.Stdout = failing{}
	if o := h.run(t, s); o.OutputErr == nil || o.Cause != nil { // it would never end
		t.Errorf("a writer that fails: output error %v, cause %v", o.OutputErr, o.Cause)
	}
	never, w := io.Pipe()
	defer w.Close()
	s = Shell("exit 3")
	s.Stdin = never
	if o := h.run(t, s); o.ExitCode != 3 {
		t.Errorf("input that never ends: exit %d", o.ExitCode)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func (h harness) terminal(t *testing.T) {
	s := Shell("tty; stty size; read line; echo got $line; sleep 0 </dev/tty && echo controlling")
	s.TTY, s.Rows, s.Cols, s.Stdin = true, 40, 100, strings.NewReader("typed\n")
	o := h.run(t, s)
	want := []string{"/dev/pts/0", "40 100", "got typed", "controlling"}
	if h.OwnKernel {
		want = want[:3] // gVisor of 2022 has no /dev/tty
	}
	for _, want := range want {
		if !strings.Contains(o.Out, want) {
			t.Errorf("no %q in %q (exit %d, cause %v, %q)", want, o.Out, o.ExitCode, o.Cause, o.Errs)
		}
	}
}

func (h harness) resize(t *testing.T) {
	s := Shell(`echo up; while [ "$(stty size)" = "10 20" ]; do sleep 0.1; done; stty size`)
	s.Caps.Wall = 20 * time.Second
	s.TTY, s.Rows, s.Cols = true, 10, 20
	n := &notify{up: make(chan struct{})}
	s.Stdout = n
	p, err := h.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	<-n.up
	p.Resize(40, 100)
	if res, err := p.Wait(); err != nil || res.Cause != nil || !strings.Contains(n.text.String(), "40 100") {
		t.Errorf("%+v, %v, said %q", res, err, n.text.String())
	}
}

func (h harness) caps(t *testing.T) {
	for _, row := range []struct {
		name  string
		spec  func(t *testing.T) sandbox.Spec
		caps  sandbox.Caps
		cause error
	}{
		{"an infinite loop", func(t *testing.T) sandbox.Spec { return attackSpec(t, "spin") }, sandbox.Caps{Wall: 2 * time.Second}, sandbox.ErrTimeout},
		{"a memory hog", func(t *testing.T) sandbox.Spec { return attackSpec(t, "hog") }, sandbox.Caps{MemoryBytes: 128 << 20}, sandbox.ErrMemory},
		{"files in /tmp that fill the memory", func(t *testing.T) sandbox.Spec { return Shell("yes > /tmp/f; sleep 30") }, sandbox.Caps{MemoryBytes: 128 << 20}, sandbox.ErrMemory},
		{"a full /tmp", func(t *testing.T) sandbox.Spec { return Shell("yes > /tmp/f; sleep 30") }, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk},
		{"a full /dev/shm and home together", func(t *testing.T) sandbox.Spec {
			return Shell("head -c 6000000 /dev/zero >/dev/shm/f; head -c 6000000 /dev/zero >$HOME/f; sleep 30")
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk},
		{"a full workspace", func(t *testing.T) sandbox.Spec {
			s, _, _ := withOverlay(t, Shell("for i in $(seq 40); do head -c 1000000 /dev/zero >/ws/$i; done; sleep 30"))
			return s
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk},
		{"a workspace that was overfull between two looks", func(t *testing.T) sandbox.Spec {
			s, _, _ := withOverlay(t, Shell("head -c 9000000 /dev/zero >/ws/f"))
			return s
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk},
		{"a deleted file that is still written", func(t *testing.T) sandbox.Spec {
			s, _, _ := withOverlay(t, attackSpec(t, "unlinked"))
			return s
		}, sandbox.Caps{DiskBytes: 8 << 20}, sandbox.ErrDisk},
		{"a single file past its cap", func(t *testing.T) sandbox.Spec {
			s := Shell("")
			s.Argv = []string{"dd", "if=/dev/zero", "of=/tmp/f", "bs=64k", "count=64"}
			return s
		}, sandbox.Caps{FileBytes: 1 << 20}, sandbox.ErrDisk},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.spec(t)
			s.Caps = row.caps
			if o := h.run(t, s); !errors.Is(o.Cause, row.cause) {
				t.Errorf("cause %v, exit %d, said %.200q %.200q, stats %+v", o.Cause, o.ExitCode, o.Out, o.Errs, o.Stats)
			}
		})
	}
	t.Run("a fork bomb is bounded and ends", func(t *testing.T) {
		s := attackSpec(t, "forkbomb")
		s.Caps = sandbox.Caps{PIDs: 64, Wall: 5 * time.Second}
		if o := h.run(t, s); o.Cause == nil && o.ExitCode == 0 {
			t.Errorf("cause %v, exit %d, said %.200q %.200q", o.Cause, o.ExitCode, o.Out, o.Errs)
		}
	})
	t.Run("usage is measured", func(t *testing.T) {
		s, _, _ := withOverlay(t, Shell("head -c 2000000 /dev/zero >/ws/f; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
		o := h.run(t, s)
		if o.Stats.DiskBytes < 2_000_000 || o.Stats.PeakBytes == 0 || o.Stats.CPU == 0 || o.Wall == 0 || o.Cause != nil {
			t.Errorf("%+v, wall %v, cause %v", o.Stats, o.Wall, o.Cause)
		}
	})
}

func (h harness) kills(t *testing.T) {
	started := func(t *testing.T, ctx context.Context) (sandbox.Process, func() Outcome) {
		t.Helper()
		up := make(chan struct{})
		s := Shell("echo up; sleep 1000 & sleep 1000")
		s.ID = "kill-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		s.Stdout = &notify{up: up}
		p, err := h.Start(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		<-up
		return p, func() Outcome {
			res, err := p.Wait()
			if err != nil {
				t.Fatal(err)
			}
			return Outcome{Result: res, Out: s.ID}
		}
	}
	cause := errors.New("no more of this")
	t.Run("by hand, once", func(t *testing.T) {
		p, wait := started(t, t.Context())
		p.Kill(cause)
		p.Kill(errors.New("a second one"))
		if o := wait(); o.Cause != cause || o.ExitCode != 137 || o.Signal != 9 {
			t.Errorf("%+v", o)
		}
	})
	t.Run("by the context", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, wait := started(t, ctx)
		cancel(cause)
		if o := wait(); o.Cause != cause {
			t.Errorf("%+v", o)
		}
	})
	t.Run("by the run's ID, from elsewhere", func(t *testing.T) {
		up := make(chan struct{})
		s := Shell("echo up; sleep 1000")
		s.ID, s.Stdout = "run-"+strconv.FormatInt(time.Now().UnixNano(), 36), &notify{up: up}
		p, err := h.Start(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		<-up
		if n, err := h.KillRun(t.Context(), h.Runtime, s.ID+"x"); n != 0 || err != nil {
			t.Errorf("another run: %d, %v", n, err)
		}
		if n, err := h.KillRun(t.Context(), h.Runtime, s.ID); n != 1 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		if res, err := p.Wait(); err != nil || res.ExitCode != 137 || res.Cause == nil {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// notify closes up at the first write.
type notify struct {
	up   chan struct{}
	once bool
	text bytes.Buffer
}

func (n *notify) Write(p []byte) (int, error) {
	if !n.once {
		n.once = true
		close(n.up)
	}
	return n.text.Write(p)
}

func (h harness) listeners(t *testing.T) {
	s := attackSpec(t, "http")
	s.Listen = []string{"127.0.0.1:3128", "127.0.0.1:3129"}
	served := map[string]*http.Server{}
	s.Accept = func(addr string, l net.Listener) {
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %d ", addr, len(body))
			_, _ = w.Write(body)
		})}
		served[addr] = srv
		go func() { _ = srv.Serve(l) }()
	}
	o := h.run(t, s)
	for _, srv := range served {
		srv.Close()
	}
	if o.Out != "ok\n" || o.ExitCode != 0 || len(served) != 2 {
		t.Errorf("exit %d, cause %v, served %d, said %q %q", o.ExitCode, o.Cause, len(served), o.Out, o.Errs)
	}
	t.Run("one that is closed refuses", func(t *testing.T) {
		s := attackSpec(t, "refused")
		s.Listen = []string{"127.0.0.1:3128"}
		s.Accept = func(_ string, l net.Listener) { l.Close() }
		if o := h.run(t, s); o.Out != "refused\n" {
			t.Errorf("exit %d, said %q %q", o.ExitCode, o.Out, o.Errs)
		}
	})
}

func (h harness) require(t *testing.T) {
	s := Shell("echo ran")
	s.Require = []sandbox.Control{sandbox.NoCaps, sandbox.Seccomp, sandbox.NetNS, sandbox.MemoryCap, sandbox.WallCap}
	if o := h.run(t, s); o.Out != "ran\n" {
		t.Errorf("%q %q", o.Out, o.Errs)
	}
	missing := sandbox.KernelWall
	if h.OwnKernel {
		missing = sandbox.Landlock
	}
	s.Require = append(s.Require, missing)
	var ran bytes.Buffer
	s.Stdout = &ran
	_, err := h.Start(t.Context(), s)
	var required *sandbox.RequiredError
	if !errors.As(err, &required) || !slices.Equal(required.Missing, []sandbox.Control{missing}) || ran.Len() > 0 {
		t.Errorf("error %v, ran %q", err, ran.String())
	}
}

// supervisorDeath kills a supervisor by SIGKILL and waits for the end of all
// processes of this host that its sandbox consists of.
func (h harness) supervisorDeath(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// A number that sleep takes and that no other process has.
	dir := filepath.Join(base, fmt.Sprintf("86%d%d", os.Getpid(), time.Now().UnixNano()%1e6))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), superviseEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 3)
	_, readErr := io.ReadFull(out, line)
	mark := h.Marks(dir, filepath.Base(dir))
	left := processes(t, mark, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if readErr != nil || string(line) != "up\n" || len(left) == 0 {
		t.Fatalf("it did not start: %q, %v, %d processes", line, readErr, len(left))
	}
	for _, fd := range left {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20_000)
		if n != 1 {
			t.Errorf("a process of the sandbox lives on (%v)", err)
		}
		unix.Close(fd)
	}
}

// processes opens those whose command line holds mark.
func processes(t *testing.T, mark string, but int) (pidfds []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == but || pid == os.Getpid() {
			continue
		}
		if text, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline"); bytes.Contains(text, []byte(mark)) {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				pidfds = append(pidfds, fd)
			}
		}
	}
	return pidfds
}

// Bench is what a run of nothing costs, and how fast output comes through.
func (s Suite) Bench(b *testing.B) {
	r, err := s.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	once := func(b *testing.B, spec sandbox.Spec) {
		p, err := r.Start(b.Context(), spec)
		if err != nil {
			b.Fatal(err)
		}
		if res, err := p.Wait(); err != nil || res.ExitCode != 0 {
			b.Fatal(res, err)
		}
	}
	b.Run("true", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			once(b, Shell("true"))
		}
	})
	b.Run("output", func(b *testing.B) {
		const size = 64 << 20
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			spec := Shell(fmt.Sprintf("head -c %d /dev/zero", size))
			spec.Stdout, spec.Caps.OutputBytes = io.Discard, size
			once(b, spec)
		}
	})
	b.Run("kill", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			n := &notify{up: make(chan struct{})}
			spec := Shell("echo up; sleep 1000")
			spec.Stdout = n
			p, err := r.Start(b.Context(), spec)
			if err != nil {
				b.Fatal(err)
			}
			<-n.up
			b.StartTimer()
			p.Kill(nil)
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
