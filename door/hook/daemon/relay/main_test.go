package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// listener makes a state directory with a daemon that does what serve does.
func listener(t *testing.T, serve func(net.Conn)) {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("there is no daemon on this system")
	}
	state, err := os.MkdirTemp("", "relay") // a short path: a socket's has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	t.Setenv("XDG_STATE_HOME", state)
	dir := filepath.Join(state, "cordon")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, SocketName)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	}()
}

// answering answers every event with text.
func answering(t *testing.T, exit, text, stderr string) func(net.Conn) {
	build, err := ThisBuild()
	if err != nil {
		t.Fatal(err)
	}
	return func(c net.Conn) {
		if _, err := ReadFields(c, MaxRequest); err == nil {
			_, _ = c.Write(AppendFields(nil, []byte(Protocol), []byte(build), []byte("answer"), []byte(exit), []byte(text), []byte(stderr)))
		}
	}
}

func TestAnEventIsHandedOnOrLeftWhole(t *testing.T) {
	cut := func(c net.Conn) { _, _ = ReadFields(c, MaxRequest) }
	for name, r := range map[string]struct {
		serve        func(t *testing.T) func(net.Conn)
		args         []string
		done         bool
		code         int
		out, errHas  string
		read, broken bool
	}{
		"an answer is written": {serve: func(t *testing.T) func(net.Conn) { return answering(t, "0", `{"a":1}`, "") },
			args: []string{"hook", "claude"}, done: true, out: "{\"a\":1}\n"},
		"a refusal is said on standard error too": {serve: func(t *testing.T) func(net.Conn) { return answering(t, "2", "", "no") },
			args: []string{"hook", "claude"}, done: true, code: 2, errHas: "no\n"},
		"an answer that is cut leaves the event": {serve: func(*testing.T) func(net.Conn) { return cut },
			args: []string{"hook", "claude"}, errHas: "deciding without it"},
		"an answer that is no JSON leaves the event": {serve: func(t *testing.T) func(net.Conn) { return answering(t, "0", `a`, "") },
			args: []string{"hook", "claude"}, errHas: "deciding without it"},
		"an exit status of another kind leaves the event": {serve: func(t *testing.T) func(net.Conn) { return answering(t, "1", `{}`, "") },
			args: []string{"hook", "claude"}, errHas: "deciding without it"},
		"another command is not handed on":  {serve: func(*testing.T) func(net.Conn) { return cut }, args: []string{"check", "hook"}},
		"a hook without an agent is not":    {serve: func(*testing.T) func(net.Conn) { return cut }, args: []string{"hook"}},
		"help is given here":                {serve: func(*testing.T) func(net.Conn) { return cut }, args: []string{"hook", "claude", "--help"}},
		"--no-daemon decides here":          {serve: func(*testing.T) func(net.Conn) { return cut }, args: []string{"hook", "claude", "--no-daemon"}},
		"input that breaks is broken again": {serve: func(*testing.T) func(net.Conn) { return cut }, args: []string{"hook", "claude"}, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			listener(t, r.serve(t))
			const event = `{"x":"y"}`
			var out, errOut strings.Builder
			s := &stdio{in: strings.NewReader(event), out: &out, err: &errOut}
			if r.broken {
				s.in = io.MultiReader(s.in, iotest.ErrReader(io.ErrClosedPipe))
			}
			code, done := s.hook(r.args)
			if code != r.code || done != r.done || out.String() != r.out || !strings.Contains(errOut.String(), r.errHas) || r.errHas == "" && errOut.Len() > 0 {
				t.Errorf("%d %v, out %q, err %q", code, done, out.String(), errOut.String())
			}
			if done {
				return
			}
			rest, err := io.ReadAll(s.in)
			if string(rest) != event || r.broken != errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("left is %q, %v", rest, err)
			}
		})
	}
}

func TestAnEventThatDoesNotEndIsNotWaitedFor(t *testing.T) {
	listener(t, func(net.Conn) {})
	r, w := io.Pipe()
	s := &stdio{in: r, out: io.Discard, err: io.Discard, patience: time.Millisecond}
	if code, done := s.hook([]string{"hook", "claude"}); code != 0 || done {
		t.Errorf("%d %v", code, done)
	}
	go func() {
		_, _ = io.WriteString(w, "event")
		w.Close()
	}()
	if rest, err := io.ReadAll(s.in); string(rest) != "event" || err != nil {
		t.Errorf("left is %q, %v", rest, err)
	}
}

func TestWithoutASocketNothingIsReadOrSaid(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	in, errOut := strings.NewReader("event"), &strings.Builder{}
	s := &stdio{in: in, out: io.Discard, err: errOut}
	if code, done := s.hook([]string{"hook", "claude"}); code != 0 || done || in.Len() != 5 || errOut.Len() > 0 {
		t.Errorf("%d %v %d %q", code, done, in.Len(), errOut)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestAnAnswerThatCannotBeWrittenIsARefusal(t *testing.T) {
	s := &stdio{out: fullWriter{}, err: io.Discard}
	if code := s.write(Reply{Stdout: []byte(`{}`)}); code != 2 {
		t.Error(code)
	}
}
