//go:build integration && linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A server that does what it is asked, inside walls: in shadow mode the guard
// refuses nothing, so that what is refused here the kernel refused.
func TestMCPAServerInsideWallsSeesTheWorkspaceAndNothingElse(t *testing.T) {
	p, at := need(t), newPlace(t)
	hook := filepath.Join(at.workspace, ".git", "hooks", "pre-push")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	command := at.cordonMCP(p.cordon, "shadow", p.node, p.filesystem(), at.home, at.workspace)
	for i, arg := range command {
		if arg == "--" {
			command = append(append(append([]string{}, command[:i]...), "--sandbox", "native", "--read", p.modules), command[i:]...)
			break
		}
	}
	c := connect(t, command...)
	if text, failed := c.readFile(at.notes); failed {
		t.Fatalf("a file of the workspace: %s\nstderr: %s", text, c.stderr)
	}
	if text, failed := c.readFile(at.link); !failed || strings.Contains(text, secretText) {
		t.Fatalf("a key of the home, by a link: failed %v: %s", failed, text)
	}
	made := filepath.Join(at.workspace, "made.txt")
	if text, failed := c.result(c.call("write_file", fmt.Sprintf(`{"path":%q,"content":"x"}`, made))); failed {
		t.Fatalf("a file in the workspace: %s", text)
	}
	if b, err := os.ReadFile(made); err != nil || string(b) != "x" {
		t.Fatalf("the answer said that it was written: %q, %v", b, err)
	}
	if text, failed := c.result(c.call("write_file", fmt.Sprintf(`{"path":%q,"content":"x"}`, hook))); !failed {
		t.Fatalf("a git hook was written: %s", text)
	}
	// The whole tree goes with Cordon.
	inside := childOf(t, c.cmd.Process.Pid)
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	waitGone(t, inside)
}
