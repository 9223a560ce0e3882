package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// The tests' servers are this binary, run again under another name.
const fakeEnv = "CORDON_MCP_TEST_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(fakeEnv); kind != "" {
		fakeServer(kind)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeServer echoes: it answers each request with the very line it got, as a
// string, unless kind or the tool's name asks for something else.
func fakeServer(kind string) {
	switch kind {
	case "garbage":
		fmt.Println("starting up…")
		fmt.Println(`{"level":"info"}`)
	case "deaf": // to its input's end and to SIGTERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(`{"jsonrpc":"2.0","method":"up"}`)
		time.Sleep(time.Hour)
	case "parent": // leaves a child that holds its output
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), fakeEnv+"=deaf")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Printf("{\"jsonrpc\":\"2.0\",\"method\":\"child\",\"params\":{\"pid\":%d}}\n", child.Process.Pid)
	case "flood":
		fmt.Fprintln(os.Stderr, "flooding")
		line := []byte(`{"jsonrpc":"2.0","method":"n","params":"` + strings.Repeat("x", 1000) + "\"}\n")
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				return
			}
		}
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     *json.RawMessage
			Params struct{ Name string }
		}
		_ = json.Unmarshal([]byte(line), &m)
		switch m.Params.Name {
		case "crash":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			time.Sleep(time.Hour)
		case "exit":
			fmt.Fprintln(os.Stderr, "cannot go on")
			os.Exit(3)
		case "silent":
			continue
		case "late": // past the grace period, and past the end of its input
			time.Sleep(900 * time.Millisecond)
		case "never":
			time.Sleep(time.Hour)
		case "hang-up":
			os.Stdout.Close()
			time.Sleep(time.Hour)
		case "huge":
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"%s\"}]}}\n", *m.ID, strings.Repeat("h", 300000))
			continue
		}
		if m.ID != nil {
			fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"got\":%s}}\n", *m.ID, strconv.Quote(strings.TrimSuffix(line, "\n")))
		}
	}
}

// client is the other side of a Serve that runs in the test.
type client struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Reader
	outR   *io.PipeReader
	stderr *syncBuffer
	done   chan error
	cancel context.CancelCauseFunc
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func serve(t *testing.T, g cordon.Guard, kind string, change ...func(*Config)) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &client{t: t, in: inW, out: bufio.NewReaderSize(outR, 1<<20), outR: outR, stderr: &syncBuffer{}, done: make(chan error, 1)}
	cfg := Config{
		Guard: g, Run: cordon.Run{ID: "run-1"}, Server: "fake",
		Command: []string{os.Args[0]}, Env: append(os.Environ(), fakeEnv+"="+kind),
		Stdin: inR, Stdout: outW, Stderr: c.stderr, GracePeriod: 300 * time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.cancel = cancel
	go func() {
		err := Serve(ctx, cfg)
		outW.Close()
		c.done <- err
	}()
	t.Cleanup(func() { cancel(nil); inW.Close(); outR.Close() })
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatalf("send: %v; stderr: %s", err, c.stderr)
	}
}

func (c *client) next() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("receive: %v; stderr: %s", err, c.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *client) ask(line string) rpc {
	c.t.Helper()
	c.send(line)
	return read(c.t, []byte(c.next()))
}

// end waits for Serve; what is still written is thrown away.
func (c *client) end() error {
	c.t.Helper()
	go func() { _, _ = io.Copy(io.Discard, c.out) }()
	select {
	case err := <-c.done:
		return err
	case <-time.After(30 * time.Second):
		buf := make([]byte, 1<<20)
		c.t.Fatalf("Serve did not return; stderr: %s\n%s", c.stderr, buf[:runtime.Stack(buf, true)])
		return nil
	}
}

func TestTheServerGetsWhatTheClientSent(t *testing.T) {
	c := serve(t, refuses("bad"), "echo")
	for i, line := range []string{
		callLine("1", "ok", "{ \"a\" : 1.50,\t\"b\":\"\\u00e9\\/\" }"),
		`{ "id":"two", "jsonrpc":"2.0","method":"unknown/method","params":[1e400] } `,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"task":{},"name":"ok","arguments":{"a":"` + strings.Repeat("é", 200000) + `"}}}` + "\r",
	} {
		c.send(line)
		got := c.next()
		if want := `"got":` + strconv.Quote(line); !strings.Contains(got, want) {
			t.Fatalf("line %d: the server got %.300s", i, got)
		}
	}
	if m := c.ask(callLine("4", "bad", "{}")); m.Result == nil || !m.Result.IsError {
		t.Fatal("not refused")
	}
	c.in.Close()
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
}

func TestTheEndOfTheServerIsToldToEveryone(t *testing.T) {
	for name, tc := range map[string]struct {
		tool   string
		code   int
		signal string
		said   string
	}{
		"an exit":       {"exit", 3, "", `server "fake" exited with code 3`},
		"a crash":       {"crash", 137, "killed", `server "fake" crashed (signal: killed)`},
		"a closed pipe": {"hang-up", 137, "killed", `server "fake" crashed (signal: killed)`},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, refuses(), "echo")
			c.send(callLine("7", "silent", "{}"))
			c.send(callLine("8", tc.tool, "{}"))
			ids := map[string]bool{}
			for range 2 {
				m := read(t, []byte(c.next()))
				if m.Error == nil || m.Error.Code != codeServer || !strings.Contains(m.Error.Message, tc.said) {
					t.Fatalf("answer %+v", m)
				}
				ids[string(m.ID)] = true
			}
			if !ids["7"] || !ids["8"] {
				t.Fatalf("answered %v", ids)
			}
			var exit *ExitError
			if err := c.end(); !errors.As(err, &exit) || exit.Code != tc.code || !strings.HasPrefix(exit.Signal, tc.signal) || exit.Server != "fake" {
				t.Fatalf("error %v", err)
			}
			if !strings.Contains(c.stderr.String(), tc.said) {
				t.Fatalf("stderr %s", c.stderr)
			}
		})
	}
}

func TestTheServersStderrIsPassedOn(t *testing.T) {
	c := serve(t, refuses(), "echo")
	c.send(callLine("1", "exit", "{}"))
	_ = c.end()
	if !strings.HasPrefix(c.stderr.String(), "cannot go on\n") {
		t.Fatalf("stderr %q", c.stderr)
	}
}

func TestGarbageDoesNotReachTheClient(t *testing.T) {
	c := serve(t, refuses(), "garbage")
	if m := c.ask(`{"id":1,"method":"x"}`); string(m.ID) != "1" {
		t.Fatalf("%+v", m)
	}
	c.in.Close()
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(c.stderr.String(), "is not JSON-RPC"); n != 2 {
		t.Fatalf("stderr %s", c.stderr)
	}
}

func TestSilenceIsNotedAndOthersAreServed(t *testing.T) {
	noted := make(chan struct{})
	var once sync.Once
	c := serve(t, refuses(), "echo", func(cfg *Config) {
		cfg.Silence = 20 * time.Millisecond
		under := cfg.Stderr
		cfg.Stderr = writerFunc(func(p []byte) (int, error) {
			if bytes.Contains(p, []byte(`has not answered "tools/call" (id 5)`)) {
				once.Do(func() { close(noted) })
			}
			return under.Write(p)
		})
	})
	c.send(callLine("5", "silent", "{}"))
	<-noted
	if m := c.ask(`{"id":6,"method":"x"}`); string(m.ID) != "6" {
		t.Fatalf("%+v", m)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestNotesOnMessagesAreBounded(t *testing.T) {
	b := &syncBuffer{}
	c := newConnection(Config{Guard: refuses(), Stderr: b, Server: "fake"})
	for range 10 * maxNotes {
		c.note("odd")
	}
	c.say("the end")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != maxNotes+1 || !strings.Contains(lines[maxNotes-1], "left out") || lines[maxNotes] != "the end" {
		t.Fatalf("%d lines, the last %q", len(lines), lines[len(lines)-2:])
	}
}

func TestHugeMessages(t *testing.T) {
	limits := func(cfg *Config) { cfg.MaxMessage, cfg.MaxResult = 200000, 1000 }
	t.Run("a result is cut", func(t *testing.T) {
		c := serve(t, refuses(), "echo", func(cfg *Config) { cfg.MaxResult = 1000 })
		if m := c.ask(callLine("1", "huge", "{}")); m.Result == nil || !strings.Contains(m.Result.Content[0].Text, " of 300000 bytes]") {
			t.Fatalf("%+v", m)
		}
	})
	t.Run("an answer over the limit becomes an error", func(t *testing.T) {
		c := serve(t, refuses(), "echo", limits)
		if m := c.ask(callLine("1", "huge", "{}")); m.Error == nil || !strings.Contains(m.Error.Message, "longer than 200000 bytes") {
			t.Fatalf("%+v", m)
		}
		if m := c.ask(`{"id":2,"method":"x"}`); string(m.ID) != "2" {
			t.Fatalf("%+v", m)
		}
	})
	for name, n := range map[string]int{"far": 500000, "by one byte": 200001 - len(callLine("1", "a", `""`)), "": 0} {
		if n == 0 {
			continue
		}
		t.Run("a client's message over the limit is refused: "+name, func(t *testing.T) {
			g := refuses()
			c := serve(t, g, "echo", limits)
			if m := c.ask(callLine("1", "a", `"`+strings.Repeat("x", n)+`"`)); m.Error == nil || m.Error.Code != codeInvalid {
				t.Fatalf("%+v", m)
			}
			if calls := g.decided(); len(calls) != 1 || !strings.Contains(calls[0].Malformed, "200000") {
				t.Fatalf("decided %+v", calls)
			}
			if m := c.ask(`{"id":2,"method":"x"}`); string(m.ID) != "2" {
				t.Fatalf("%+v", m)
			}
		})
		t.Run("and passes whole in shadow: "+name, func(t *testing.T) {
			g := refuses()
			g.mode = cordon.Shadow
			c := serve(t, g, "echo", func(cfg *Config) { cfg.MaxMessage = 200000; cfg.MaxResult = 1 << 20 })
			// The echo would be over the limit too: the server says how much it got.
			line := callLine("1", "exit", `"`+strings.Repeat("x", n)+`"`)
			c.send(line)
			var exit *ExitError
			if err := c.end(); !errors.As(err, &exit) || exit.Code != 3 {
				t.Fatalf("the call did not arrive: %v", err)
			}
		})
	}
}

func TestAKilledRun(t *testing.T) {
	t.Run("is ended by the call that trips", func(t *testing.T) {
		g := refuses("steal")
		f := g.deny["steal"]
		f.Kill = true
		g.deny["steal"] = f
		c := serve(t, g, "echo")
		c.send(callLine("1", "silent", "{}"))
		c.send(callLine("2", "steal", "{}"))
		// The refusal and the end of the call in flight, in either order.
		for range 2 {
			if m := read(t, []byte(c.next())); m.Result == nil || !m.Result.IsError || !strings.Contains(m.Result.Content[0].Text, "cordon kill --release run-1") {
				t.Fatalf("%+v", m)
			}
		}
		if m := c.ask(callLine("3", "ok", "{}")); m.Result == nil || !m.Result.IsError {
			t.Fatalf("%+v", m)
		}
		if m := c.ask(`{"id":4,"method":"prompts/list"}`); m.Error == nil || m.Error.Code != codeServer {
			t.Fatalf("%+v", m)
		}
		c.in.Close()
		if err := c.end(); !errors.Is(err, cordon.ErrKilled) {
			t.Fatal(err)
		}
	})
	t.Run("is ended from outside, with all that the server started", func(t *testing.T) {
		g := refuses()
		c := serve(t, g, "parent")
		pid := childPID(t, c)
		g.kill()
		waitGone(t, pid)
		if m := c.ask(callLine("3", "ok", "{}")); m.Result == nil || !m.Result.IsError {
			t.Fatalf("%+v", m)
		}
	})
	t.Run("starts nothing the next time", func(t *testing.T) {
		g := refuses()
		g.kill()
		c := serve(t, g, "", func(cfg *Config) { cfg.Command = []string{"/nonexistent/server"} })
		if m := c.ask(`{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`); m.Result == nil {
			t.Fatalf("%+v", m)
		}
		if m := c.ask(callLine("3", "ok", "{}")); m.Result == nil || !m.Result.IsError {
			t.Fatalf("%+v", m)
		}
		c.in.Close()
		if err := c.end(); !errors.Is(err, cordon.ErrKilled) {
			t.Fatal(err)
		}
	})
}

// childPID waits until the parent has named its child and the child is up, in
// either order.
func childPID(t *testing.T, c *client) (pid int) {
	t.Helper()
	for range 2 {
		var m struct{ Params struct{ Pid int } }
		line := c.next()
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		pid = max(pid, m.Params.Pid)
	}
	if pid == 0 {
		t.Fatal("the parent named no child")
	}
	return pid
}

// waitGone waits until a process has ended (a zombie has).
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(b), ") Z ") {
			return
		}
	}
	t.Fatalf("process %d is still there", pid)
}

func TestBothSidesEnd(t *testing.T) {
	t.Run("when the client closes", func(t *testing.T) {
		c := serve(t, refuses(), "parent")
		pid := childPID(t, c)
		c.in.Close()
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		waitGone(t, pid)
	})
	t.Run("when the context ends, with its cause", func(t *testing.T) {
		c := serve(t, refuses(), "deaf")
		c.next()
		cause := errors.New("interrupted")
		c.cancel(cause)
		if err := c.end(); !errors.Is(err, cause) {
			t.Fatal(err)
		}
		if !strings.Contains(c.stderr.String(), "did not end within") {
			t.Fatalf("stderr %s", c.stderr)
		}
	})
	t.Run("while answers are still on their way", func(t *testing.T) {
		c := serve(t, refuses(), "echo")
		go func() {
			for i := range 50 {
				_, _ = fmt.Fprintf(c.in, "{\"id\":%d,\"method\":\"x\"}\n", i)
			}
			c.in.Close()
		}()
		for i := range 50 {
			if m := read(t, []byte(c.next())); string(m.ID) != fmt.Sprint(i) {
				t.Fatalf("answer %d has id %s", i, m.ID)
			}
		}
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("when the client has closed and reads more slowly than the grace period", func(t *testing.T) {
		c := serve(t, refuses(), "echo", func(cfg *Config) { cfg.GracePeriod = time.Second })
		go func() {
			for i := range 8 {
				_, _ = fmt.Fprintln(c.in, callLine(fmt.Sprint(i), "huge", "{}"))
			}
			c.in.Close()
		}()
		for i := range 8 {
			time.Sleep(200 * time.Millisecond) // the client's own pace: nothing is awaited
			if m := read(t, []byte(c.next())); string(m.ID) != fmt.Sprint(i) {
				t.Fatalf("answer %d has id %s", i, m.ID)
			}
		}
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("when the client has closed and the server takes its time", func(t *testing.T) {
		c := serve(t, refuses(), "echo")
		c.send(callLine("1", "late", "{}"))
		c.in.Close()
		if m := read(t, []byte(c.next())); string(m.ID) != "1" {
			t.Errorf("answer has id %s", m.ID)
		}
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("when the client has closed and no answer comes", func(t *testing.T) {
		c := serve(t, refuses(), "echo", func(cfg *Config) { cfg.Finish = time.Second })
		c.send(callLine("1", "never", "{}"))
		c.in.Close()
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		if s := c.stderr.String(); !strings.Contains(s, "owed 1 answers") {
			t.Errorf("stderr: %s", s)
		}
	})
	t.Run("when the client neither reads nor closes", func(t *testing.T) {
		c := serve(t, refuses("bad"), "flood")
		c.send(callLine("1", "bad", "{}"))
		c.cancel(nil)
		select { // without reading
		case err := <-c.done:
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("Serve did not return")
		}
	})
	t.Run("when the client no longer reads but has closed", func(t *testing.T) {
		c := serve(t, refuses(), "flood")
		c.next()
		c.outR.Close()
		c.in.Close()
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("when the run is killed while the client does not read", func(t *testing.T) {
		g := refuses()
		c := serve(t, g, "flood")
		c.next()
		c.send(callLine("1", "silent", "{}"))
		g.kill()
		c.cancel(nil)
		select {
		case <-c.done:
		case <-time.After(30 * time.Second):
			t.Fatal("Serve did not return")
		}
	})
}

func TestAServerThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/plain", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		command []string
		dir     string
		want    string
	}{
		"not in the path":   {[]string{"no-such-server-here"}, "", "install it"},
		"no such file":      {[]string{dir + "/none"}, "", "check the path"},
		"not executable":    {[]string{dir + "/plain"}, "", "make the file executable"},
		"no such directory": {[]string{os.Args[0]}, dir + "/none", "that the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Serve(context.Background(), Config{Guard: refuses(), Command: tc.command, Dir: tc.dir})
			var start *StartError
			if !errors.As(err, &start) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.command[0]) {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no guard":         {Command: []string{"x"}},
		"no command":       {Guard: refuses()},
		"an empty command": {Guard: refuses(), Command: []string{""}},
		"a negative limit": {Guard: refuses(), Command: []string{"x"}, MaxResult: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Serve(context.Background(), cfg); err == nil {
				t.Fatal("no error")
			}
		})
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		c := serve(t, refuses(), "echo")
		c.ask(`{"id":1,"method":"x"}`)
		c.in.Close()
		_ = c.end()
		c = serve(t, refuses(), "echo")
		c.send(callLine("1", "exit", "{}"))
		c.next()
		_ = c.end()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}
