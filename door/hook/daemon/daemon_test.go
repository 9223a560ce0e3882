package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon/door/hook/daemon/relay"
)

// Under this variable the test's binary listens at a socket as another program
// would: it is another file only where it was copied.
const listenVar = "CORDON_TEST_LISTEN"

func TestMain(m *testing.M) {
	if path := os.Getenv(listenVar); path != "" {
		l, err := net.Listen("unix", path)
		if err == nil {
			err = os.Chmod(path, 0o600)
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("ready\n")
		os.Stdin.Read(make([]byte, 1)) // until the test is done
		l.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// socketDir is a directory with a short name: a socket's path has a limit.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listen(t testing.TB, dir string) *net.UnixListener {
	t.Helper()
	path := filepath.Join(dir, SocketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return l
}

// start serves until the test ends.
func start(t testing.TB, dir string, idle time.Duration, answer func(context.Context, Request) (Reply, error)) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	l := listen(t, dir)
	go func() {
		done <- Serve(ctx, Config{Listener: l, Build: "b1", Answer: answer, Idle: idle, Logf: t.Logf})
	}()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return stop
}

func ask(dir, build string, r Request) (Reply, error) {
	c := relay.Client{Dir: dir, Build: build, Timeout: 5 * time.Second}
	conn, err := c.Connect()
	if err != nil {
		return Reply{}, err
	}
	return conn.Ask(r)
}

func TestARequestAndItsReplyArriveWhole(t *testing.T) {
	dir := socketDir(t)
	got := make(chan Request, 1)
	want := Reply{Stdout: []byte(`{"a":1}`), Stderr: "x", Exit: 2}
	start(t, dir, time.Hour, func(_ context.Context, r Request) (Reply, error) { got <- r; return want, nil })
	req := Request{Args: []string{"claude", "", "--mode", "enforce"}, Env: []string{"A=b", "C="}, Event: bytes.Repeat([]byte("e\x00"), 1<<20)}
	r, err := ask(dir, "b1", req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	arrived := <-got
	if !bytes.Equal(arrived.Event, req.Event) {
		t.Error("the event is another")
	}
	arrived.Event, req.Event = nil, nil // a difference of 2 MiB is not for people
	if diff := cmp.Diff(req, arrived); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsNotAnAnswerIsNone(t *testing.T) {
	for name, answer := range map[string]func(context.Context, Request) (Reply, error){
		"an error":                  func(context.Context, Request) (Reply, error) { return Reply{}, errors.New("no") },
		"a panic":                   func(context.Context, Request) (Reply, error) { panic("a bug") },
		"an exit status of its own": func(context.Context, Request) (Reply, error) { return Reply{Exit: 1}, nil },
		"no JSON":                   func(context.Context, Request) (Reply, error) { return Reply{Stdout: []byte("{")}, nil },
		"a list":                    func(context.Context, Request) (Reply, error) { return Reply{Stdout: []byte("[]")}, nil },
		"too much": func(context.Context, Request) (Reply, error) {
			return Reply{Stdout: []byte(`{"a":"` + strings.Repeat("x", relay.MaxReply) + `"}`)}, nil
		},
	} {
		dir := socketDir(t)
		start(t, dir, time.Hour, answer)
		if r, err := ask(dir, "b1", Request{Args: []string{"claude"}}); err == nil {
			t.Errorf("%s was taken: %+v", name, r)
		}
	}
}

func TestAnotherBuildIsNotAsked(t *testing.T) {
	dir := socketDir(t)
	start(t, dir, time.Hour, func(context.Context, Request) (Reply, error) { return Reply{}, nil })
	if _, err := ask(dir, "b2", Request{Args: []string{"claude"}}); err == nil || errors.Is(err, relay.ErrNone) {
		t.Errorf("%v", err)
	}
	if _, err := ask(dir, "b1", Request{Args: []string{"claude"}}); err != nil {
		t.Error(err)
	}
	if _, err := ask(dir, "", Request{}); err == nil {
		t.Error("a build without a name was taken")
	}
}

func TestAPlantedSocketIsNotBelieved(t *testing.T) {
	answer := func(context.Context, Request) (Reply, error) { return Reply{Stdout: []byte(`{}`)}, nil }
	for name, plant := range map[string]func(dir string) error{
		"a directory that others may write":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"a directory that a group may write": func(dir string) error { return os.Chmod(dir, 0o770) },
		"a socket that others may use":       func(dir string) error { return os.Chmod(filepath.Join(dir, SocketName), 0o666) },
		"a link to a socket": func(dir string) error {
			path := filepath.Join(dir, SocketName)
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		},
		"a file": func(dir string) error {
			path := filepath.Join(dir, SocketName)
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600))
		},
	} {
		dir := socketDir(t)
		start(t, dir, time.Hour, answer)
		if _, err := ask(dir, "b1", Request{Args: []string{"claude"}}); err != nil {
			t.Fatal(err)
		}
		if err := plant(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(dir, "b1", Request{Args: []string{"claude"}}); err == nil || errors.Is(err, relay.ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoneIsThere(t *testing.T) {
	dir := socketDir(t)
	if _, err := ask(dir, "b1", Request{}); !errors.Is(err, relay.ErrNone) {
		t.Errorf("%v", err)
	}
	l := listen(t, dir)
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := ask(dir, "b1", Request{}); !errors.Is(err, relay.ErrNone) {
		t.Errorf("a socket that nobody listens on: %v", err)
	}
}

func TestADaemonThatHangsIsNotWaitedFor(t *testing.T) {
	dir := socketDir(t)
	l := listen(t, dir)
	defer l.Close()
	c := relay.Client{Dir: dir, Build: "b1", Timeout: 20 * time.Millisecond}
	conn, err := c.Connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Ask(Request{Args: []string{"claude"}}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestItEndsWhenNothingComes(t *testing.T) {
	dir := socketDir(t)
	l := listen(t, dir)
	err := Serve(t.Context(), Config{Listener: l, Build: "b1", Idle: time.Millisecond, Answer: func(context.Context, Request) (Reply, error) { return Reply{}, nil }})
	if err != nil {
		t.Error(err)
	}
	if _, err := ask(dir, "b1", Request{}); !errors.Is(err, relay.ErrNone) {
		t.Errorf("%v", err)
	}
}

func TestWhatBeganIsFinished(t *testing.T) {
	dir := socketDir(t)
	began, go_ := make(chan struct{}), make(chan struct{})
	var alive error
	stop := start(t, dir, time.Hour, func(ctx context.Context, _ Request) (Reply, error) {
		close(began)
		<-go_
		alive = ctx.Err()
		return Reply{Stdout: []byte(`{}`)}, nil
	})
	result := make(chan error, 1)
	go func() {
		_, err := ask(dir, "b1", Request{Args: []string{"claude"}})
		result <- err
	}()
	<-began
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(go_)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil || alive != nil {
		t.Errorf("%v, %v", err, alive)
	}
}

func TestGarbageIsNoRequest(t *testing.T) {
	dir := socketDir(t)
	start(t, dir, time.Hour, func(context.Context, Request) (Reply, error) {
		t.Error("it was judged")
		return Reply{}, nil
	})
	long := binary.BigEndian.AppendUint32(nil, relay.MaxRequest+1)
	for name, msg := range map[string][]byte{
		"nothing":               nil,
		"a part of a length":    {0, 0},
		"more than there may":   long,
		"a field too long":      relay.AppendFields(nil, []byte("x"))[:6],
		"another protocol":      relay.AppendFields(nil, []byte("x"), []byte("b1"), nil, nil, nil),
		"too few fields":        relay.AppendFields(nil, []byte(relay.Protocol), []byte("b1")),
		"a list without an end": relay.AppendFields(nil, []byte(relay.Protocol), []byte("b1"), []byte("claude"), nil, nil),
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, SocketName))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(msg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if f, err := relay.ReadFields(conn, relay.MaxReply); err == nil && string(f[2]) != "declined" {
			t.Errorf("%s was answered: %q", name, f)
		}
		conn.Close()
	}
}

// A program that is not this one is not believed, though it is of this user.
func TestAnotherProgramIsNotBelieved(t *testing.T) {
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skipf("programs cannot be told apart here: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, copied := range []bool{false, true} {
		dir := socketDir(t)
		program := self
		if copied {
			text, err := os.ReadFile(self)
			if err != nil {
				t.Fatal(err)
			}
			program = filepath.Join(dir, "other")
			if err := os.WriteFile(program, text, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), listenVar+"="+filepath.Join(dir, SocketName))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		c := relay.Client{Dir: dir, Build: "b1"}
		conn, err := c.Connect()
		if err == nil {
			conn.Close()
		}
		if believed := err == nil; believed == copied {
			t.Errorf("copied %v: believed %v: %v", copied, believed, err)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestThisBuild(t *testing.T) {
	a, err := ThisBuild()
	if err != nil || a == "" {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if Identity(path) != "" {
		t.Error("a file that is not there has a state")
	}
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	was := Identity(path)
	if err := os.WriteFile(path, []byte("ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	if was == "" || Identity(path) == was {
		t.Error("a file that changed has the same state")
	}
}

func FuzzSplitFields(f *testing.F) {
	f.Add(relay.AppendFields(nil, []byte(relay.Protocol), []byte("b"), relay.Join([]string{"a", ""}), nil, []byte("{}"))[4:])
	f.Add([]byte{0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, err := relay.SplitFields(b)
		if err != nil {
			return
		}
		if again := relay.AppendFields(nil, fields...); !bytes.Equal(again[4:], b) {
			t.Errorf("%q became %q", b, again[4:])
		}
		if r, err := readRequest(fields, "b"); err == nil && len(r.Args)+len(r.Env) > 2*relay.MaxFields {
			t.Errorf("%d words", len(r.Args)+len(r.Env))
		}
		_, _ = relay.ReadReply(fields, "b") // it must not panic
	})
}

func BenchmarkAsk(b *testing.B) {
	dir := socketDir(b)
	start(b, dir, time.Hour, func(context.Context, Request) (Reply, error) { return Reply{Stdout: []byte(`{}`)}, nil })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ask(dir, "b1", Request{Args: []string{"claude"}, Event: []byte(`{}`)}); err != nil {
			b.Fatal(err)
		}
	}
}
