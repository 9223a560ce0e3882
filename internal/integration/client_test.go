//go:build integration

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a plain MCP client: it writes lines and reads lines.
type client struct {
	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *safeBuffer
	id     int
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// connect starts a server and shakes hands with it.
func connect(t testing.TB, command ...string) *client {
	t.Helper()
	c := &client{t: t, cmd: exec.Command(command[0], command[1:]...), stderr: &safeBuffer{}}
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = 5 * time.Second
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() })
	c.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"cordon-test","version":"1"}}`)
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) write(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatalf("write: %v\nstderr: %s", err, c.stderr)
	}
}

// ask sends a request and returns the line that answers it, as it came.
func (c *client) ask(method, params string) string {
	c.t.Helper()
	c.id++
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.id, method, params))
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			c.t.Fatalf("%s: no answer: %v\nstderr: %s", method, err, c.stderr)
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			c.t.Fatalf("%s: not JSON: %v: %s", method, err, line)
		}
		if m.Method == "" && string(m.ID) == fmt.Sprint(c.id) {
			return strings.TrimSuffix(line, "\n")
		}
	}
}

func (c *client) call(tool, args string) string {
	c.t.Helper()
	return c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// readFile calls read_text_file and returns the text, and whether the tool
// says that it is an error.
func (c *client) readFile(path string) (text string, isError bool) {
	c.t.Helper()
	return c.result(c.call("read_text_file", fmt.Sprintf(`{"path":%q}`, path)))
}

func (c *client) result(line string) (text string, isError bool) {
	c.t.Helper()
	var m struct {
		Result *struct {
			Content []struct{ Text string }
			IsError bool
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result == nil || len(m.Result.Content) == 0 {
		c.t.Fatalf("not a tool's result: %s\nstderr: %s", line, c.stderr)
	}
	return m.Result.Content[0].Text, m.Result.IsError
}

func (c *client) close() {
	c.in.Close()
	_ = c.cmd.Wait() // how it ended is the business of the tests that ask
}
