//go:build integration && linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMCPTheServerEndsWithCordon(t *testing.T) {
	p, at := need(t), newPlace(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			c := connect(t, at.cordonMCP(p.cordon, "enforce", p.node, p.filesystem(), at.workspace)...)
			server := childOf(t, c.cmd.Process.Pid)
			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = c.cmd.Wait() // its input is still open: the signal alone ends it
			waitGone(t, server)
		})
	}
}

func TestMCPTheClientIsToldThatTheServerCrashed(t *testing.T) {
	p, at := need(t), newPlace(t)
	c := connect(t, at.cordonMCP(p.cordon, "enforce", p.node, p.filesystem(), at.workspace)...)
	server := childOf(t, c.cmd.Process.Pid)
	// Stopped, it cannot answer before it is killed. What cordon answers itself
	// shows that it has passed on the line before.
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":%q}}}`, at.notes))
	c.write(`not a message`)
	if line, err := c.out.ReadString('\n'); err != nil || !strings.Contains(line, `"code":-32700`) {
		t.Fatalf("answer %q, %v", line, err)
	}
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	if err != nil || !strings.Contains(line, `"id":99,"error"`) || !strings.Contains(line, `server \"filesystem\" crashed (signal: killed)`) {
		t.Fatalf("answer %q, %v", line, err)
	}
	_ = c.cmd.Wait()
	if code := c.cmd.ProcessState.ExitCode(); code != 137 {
		t.Fatalf("exit code %d\nstderr: %s", code, c.stderr)
	}
}

// childOf waits for the one child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var child, n int
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for _, w := range strings.Fields(string(b)) {
			if _, err := fmt.Sscan(w, &child); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d children", n)
	}
	return child
}

// waitGone waits until a process has ended; a zombie has.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(b), ") Z ") {
			return
		}
	}
	t.Fatalf("process %d is still there", pid)
}
