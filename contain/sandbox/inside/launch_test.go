package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// fakeBox is a sandbox whose first process is a function of the test.
type fakeBox struct {
	in     io.WriteCloser
	out    io.Reader
	done   chan struct{}
	end    func()
	said   string
	oom    bool
	killed chan struct{}
	once   sync.Once
}

func (b *fakeBox) Wire() (io.WriteCloser, io.Reader) { return b.in, b.out }
func (b *fakeBox) Kill()                             { b.once.Do(func() { close(b.killed); b.end() }) }
func (b *fakeBox) Done() <-chan struct{}             { return b.done }
func (b *fakeBox) Usage() sandbox.Stats              { return sandbox.Stats{} }
func (b *fakeBox) OutOfMemory() bool                 { return b.oom }
func (b *fakeBox) Processes() []int                  { return nil }
func (b *fakeBox) Said() string                      { return b.said }
func (b *fakeBox) Release()                          {}

// newBox runs first as the first process: it gets its end of the wire.
func newBox(first func(l *link, heard <-chan kind)) *fakeBox {
	return newBoxOf(func(_ *fakeBox, l *link, heard <-chan kind) { first(l, heard) })
}

// newBoxOf does so with a first process that knows when it is killed.
func newBoxOf(first func(b *fakeBox, l *link, heard <-chan kind)) *fakeBox {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	b := &fakeBox{in: inW, out: outR, done: make(chan struct{}), killed: make(chan struct{})}
	b.end = func() { outW.Close(); inR.Close() }
	l := newLink(inR, outW)
	heard := make(chan kind, 8)
	l.control = func(k kind, _ []byte) error { heard <- k; return nil }
	go func() { _ = l.run() }()
	go func() {
		first(b, l, heard)
		b.end()
		close(b.done)
	}()
	return b
}

func launch(b *fakeBox, s sandbox.Spec) *Launch {
	s.Argv = []string{"program"}
	return &Launch{
		Runtime: "fake", Spec: s, Caps: sandbox.Defaults(),
		Controls: func(seen Seen) []sandbox.Held {
			if !seen.NoCaps {
				return nil
			}
			return []sandbox.Held{{Control: sandbox.NoCaps, State: sandbox.Enforced}}
		},
		Start: func(context.Context) (Box, error) { return b, nil },
		proof: testProof,
	}
}

const testProof = "shown"

func ready(l *link, heard <-chan kind) bool {
	if <-heard != kPlan {
		return false
	}
	_ = l.sendJSON(kEvent, event{Kind: "ready", Seen: &Seen{NoCaps: true}})
	return <-heard == kGo
}

func end(l *link, e event) {
	_ = l.send(kEnd, streamOut, nil)
	_ = l.send(kEnd, streamErr, nil)
	e.Proof = testProof
	_ = l.sendJSON(kEvent, e)
}

// A program that gets at the wire cannot say how it ended.
func TestAnEndThatIsNotTheFirstProcessesIsNone(t *testing.T) {
	for _, forged := range []event{{Kind: "exit"}, {Kind: "exit", Proof: "guessed"}, {Kind: "use", ScratchBytes: 1}} {
		b := newBox(func(l *link, heard <-chan kind) {
			if ready(l, heard) {
				_ = l.sendJSON(kEvent, forged)
				end(l, event{Kind: "exit"})
			}
		})
		p, err := launch(b, sandbox.Spec{}).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(); err != nil || !errors.Is(r.Cause, errProtocol) {
			t.Errorf("%+v: %+v, %v", forged, r, err)
		}
	}
}

func TestAProgramsEndIsToldAsItWas(t *testing.T) {
	for _, row := range []struct {
		name   string
		end    event
		oom    bool
		code   int
		signal int
		cause  error
	}{
		{"an exit code", event{Kind: "exit", Code: 7}, false, 7, 0, nil},
		{"a signal", event{Kind: "exit", Code: 143, Signal: 15}, false, 143, 15, nil},
		{"a file past its cap", event{Kind: "exit", Code: 153, Signal: 25}, false, 153, 25, sandbox.ErrDisk},
		{"a kill for want of memory that it outlived", event{Kind: "exit", OOMKills: 1}, false, 0, 0, sandbox.ErrMemory},
		{"a kill for want of memory that the engine tells", event{Kind: "exit", Code: 137, Signal: 9}, true, 137, 9, sandbox.ErrMemory},
		{"directories of memory that are overfull", event{Kind: "exit", ScratchBytes: 1 << 40}, false, 0, 0, sandbox.ErrDisk},
		{"numbers below zero", event{Kind: "exit", ScratchBytes: -5, OOMKills: -5}, false, 0, 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBox(func(l *link, heard <-chan kind) {
				if ready(l, heard) {
					_ = l.send(kData, streamOut, []byte("out"))
					end(l, row.end)
				}
			})
			b.oom = row.oom
			var out bytes.Buffer
			p, err := launch(b, sandbox.Spec{Stdout: &out}).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Wait()
			if err != nil || r.ExitCode != row.code || r.Signal != row.signal || !errors.Is(r.Cause, row.cause) || row.cause == nil && r.Cause != nil || out.String() != "out" {
				t.Errorf("%+v, %v, said %q", r, err, out.String())
			}
		})
	}
}

func TestNothingRunsWithoutTheRequiredControls(t *testing.T) {
	started := make(chan kind, 1)
	b := newBoxOf(func(b *fakeBox, l *link, heard <-chan kind) {
		<-heard
		_ = l.sendJSON(kEvent, event{Kind: "ready", Seen: &Seen{NoCaps: true}})
		select {
		case k := <-heard:
			started <- k
		case <-b.killed:
		}
	})
	l := launch(b, sandbox.Spec{Require: []sandbox.Control{sandbox.NoCaps, sandbox.KernelWall}})
	_, err := l.Run(t.Context())
	var required *sandbox.RequiredError
	if !errors.As(err, &required) || fmt.Sprint(required.Missing) != "[separate_kernel]" {
		t.Errorf("error %v", err)
	}
	select {
	case <-started:
		t.Error("the program was started")
	default:
	}
}

func TestAFirstProcessThatFailsIsAnError(t *testing.T) {
	for _, row := range []struct {
		name  string
		first func(l *link, heard <-chan kind)
		want  func(error) bool
	}{
		{"it ends at once", func(*link, <-chan kind) {}, func(err error) bool {
			var early *EarlyError
			return errors.As(err, &early) && strings.Contains(err.Error(), "said so")
		}},
		{"a step fails with the kernel's word", func(l *link, heard <-chan kind) {
			<-heard
			_ = l.sendJSON(kEvent, event{Kind: "error", Step: "working directory", Error: "absent", Errno: 2})
		}, func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		{"it says something else", func(l *link, heard <-chan kind) {
			<-heard
			_ = l.sendJSON(kEvent, event{Kind: "exit"})
		}, func(err error) bool { return errors.Is(err, errProtocol) }},
		{"it says no JSON", func(l *link, heard <-chan kind) {
			<-heard
			_ = l.send(kEvent, 0, []byte("{"))
		}, func(err error) bool { return errors.Is(err, errProtocol) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBox(row.first)
			b.said = "said so"
			if _, err := launch(b, sandbox.Spec{}).Run(t.Context()); err == nil || !row.want(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAPlanThatIsTooLongIsAnErrorAndNothingRuns(t *testing.T) {
	b := newBoxOf(func(b *fakeBox, _ *link, _ <-chan kind) { <-b.killed })
	_, err := launch(b, sandbox.Spec{Env: []string{"A=" + strings.Repeat("x", maxPlan)}}).Run(t.Context())
	if !errors.Is(err, errTooLong) {
		t.Errorf("error %v", err)
	}
}

func TestWhoBreaksTheProtocolWhileItRunsIsKilled(t *testing.T) {
	b := newBoxOf(func(b *fakeBox, l *link, heard <-chan kind) {
		if ready(l, heard) {
			_ = l.send(kData, firstConn+5, []byte("x"))
			<-b.killed
		}
	})
	p, err := launch(b, sandbox.Spec{}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || !errors.Is(r.Cause, errProtocol) || r.ExitCode != 137 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAKillAfterTheEndChangesNothing(t *testing.T) {
	b := newBox(func(l *link, heard <-chan kind) {
		if ready(l, heard) {
			end(l, event{Kind: "exit", Code: 3})
		}
	})
	p, err := launch(b, sandbox.Spec{}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	p.Kill(errors.New("late"))
	if r, err := p.Wait(); err != nil || r.ExitCode != 3 || r.Cause != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPrepareRefusesWhatCannotBeShown(t *testing.T) {
	mount := func(target string) sandbox.Spec {
		return sandbox.Spec{Argv: []string{"x"}, Mounts: []sandbox.Mount{{Source: "/usr", Target: target}}}
	}
	for _, row := range []struct {
		name string
		spec sandbox.Spec
		want string // of the error; "" is none
	}{
		{"a plain one", sandbox.Spec{Argv: []string{"x"}}, ""},
		{"a mount", mount("/m"), ""},
		{"a mount beside /proc", mount("/processes"), ""},
		{"no command", sandbox.Spec{}, "no command"},
		{"the root", mount("/a/.."), "sandbox's own"},
		{"below /proc", mount("/proc/1"), "/proc is the sandbox's own"},
		{"/sys", mount("/sys"), "/sys is the sandbox's own"},
		{"below /dev", mount("/dev/sda"), "/dev is the sandbox's own"},
		{"the first process", mount(Path), "sandbox's own"},
		{"a directory that is relative", sandbox.Spec{Argv: []string{"x"}, Dir: "here"}, "absolute"},
		{"listeners that nobody takes", sandbox.Spec{Argv: []string{"x"}, Listen: []string{"127.0.0.1:1"}}, "nothing to accept"},
		{"a negative cap", sandbox.Spec{Argv: []string{"x"}, Caps: sandbox.Caps{PIDs: -1}}, "pids"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, _, err := Prepare("fake", row.spec, nil)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v (want %q)", err, row.want)
			}
		})
	}
	s, _, err := Prepare("fake", sandbox.Spec{Argv: []string{"x"}, Mounts: []sandbox.Mount{
		{Source: "/usr", Target: "/a/b/c"}, {Source: "/no/such/place", Target: "/n", Optional: true}, {Source: "/usr", Target: "/a"},
	}}, nil)
	if err != nil || len(s.Mounts) != 2 || s.Mounts[0].Target != "/a" || s.Dir != "/" {
		t.Errorf("%+v, %v", s.Mounts, err)
	}
	if _, _, err := Prepare("fake", sandbox.Spec{Argv: []string{"x"}, Listen: []string{"a"}, Accept: func(string, net.Listener) {}}, nil); err != nil {
		t.Error(err)
	}
}

func TestATailKeepsTheEndAndIsOneLine(t *testing.T) {
	var tail Tail
	fmt.Fprint(&tail, strings.Repeat("x", 3*tailSize))
	fmt.Fprint(&tail, "the\x1b[31m end\n")
	if got := tail.String(); len(got) > tailSize || !strings.HasSuffix(got, "the [31m end") {
		t.Errorf("%d bytes, …%q", len(got), got[max(len(got)-20, 0):])
	}
}

func TestAProbeTakesBackWhatWasNotHeld(t *testing.T) {
	all := []sandbox.Control{sandbox.PIDNS, sandbox.NetNS, sandbox.PrivateFS, sandbox.NoCaps, sandbox.Seccomp, sandbox.OverlayFS}
	claim := func() (held []sandbox.Held) {
		for _, c := range all {
			held = append(held, sandbox.Held{Control: c, State: sandbox.Enforced})
		}
		return held
	}
	good := found{Status: map[string]string{"CapEff": "0000000000000000"}, Mount: 1, Unshare: 1, Ptrace: 1, WriteRoot: 30, Processes: 2, Interfaces: 1}
	if missing := sandbox.Missing(all, contradict(claim(), good)); len(missing) > 0 {
		t.Errorf("taken back without a cause: %v", missing)
	}
	bad := found{Status: map[string]string{"CapEff": "00000000a80425fb"}, Processes: 90, Interfaces: 2, OverlayErr: "read-only"}
	if missing := sandbox.Missing(all, contradict(claim(), bad)); len(missing) != len(all) {
		t.Errorf("only %v were taken back", missing)
	}
}

func TestEventsAreWhatTheyWere(t *testing.T) {
	e := event{Kind: "exit", Code: 1, Signal: 2, ScratchBytes: 3, OOMKills: 4, User: 5, System: 6, Stats: sandbox.Stats{PIDs: 7}}
	text, err := json.Marshal(e)
	var got event
	if err != nil || json.Unmarshal(text, &got) != nil || got != e {
		t.Errorf("%s, %v: %+v", text, err, got)
	}
}
