package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/transaction"
)

// readAs admits every call, as one that has these effects.
type readAs struct {
	cordon.Guard
	effects []cordon.Effect
	settled []cordon.Usage
}

func (g *readAs) Decide(_ context.Context, c cordon.Call) cordon.Decision {
	return cordon.Decision{CallID: c.ID, Outcome: cordon.Allowed, Effects: g.effects}
}

func (g *readAs) Settle(_ context.Context, _ cordon.Decision, u cordon.Usage) error {
	g.settled = append(g.settled, u)
	return nil
}

func TestACallThatFailsIsPutBack(t *testing.T) {
	write := func(target string) cordon.Effect { return cordon.Effect{Kind: cordon.Write, Target: target} }
	for _, c := range []struct {
		name    string
		effects []cordon.Effect
		tool    string // what the tool does, in the workspace
		failed  bool
		want    map[string]string
	}{
		{"a change that failed", []cordon.Effect{write("a")}, "echo new > a", true, map[string]string{"a": "old"}},
		{"a change that succeeded", []cordon.Effect{write("a")}, "echo new > a", false, map[string]string{"a": "new\n"}},
		{"a file that was made", []cordon.Effect{write("d/e/new")}, "mkdir -p d/e; echo x > d/e/new", true, map[string]string{"a": "old"}},
		{"a directory that was deleted", []cordon.Effect{{Kind: cordon.Delete, Target: "sub", Recursive: true}}, "rm -r sub", true, map[string]string{"sub/b": "old"}},
		{"what is written through a link", []cordon.Effect{write("link")}, "echo new > link", true, map[string]string{"a": "old"}},
		{"files that a pattern names", []cordon.Effect{{Kind: cordon.Delete, Target: "sub/*", Pattern: true}}, "rm sub/*", true, map[string]string{"sub/b": "old"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ws := t.TempDir()
			for _, f := range []string{"a", "sub/b"} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(ws, f)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(ws, f), []byte("old"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("a", filepath.Join(ws, "link")); err != nil {
				t.Fatal(err)
			}
			inner := &readAs{effects: c.effects}
			u := &undoing{Guard: inner, state: t.TempDir(), logf: t.Logf, open: map[string]*transaction.Snapshot{}}
			d := u.Decide(t.Context(), cordon.Call{ID: "1", Tool: "x", Run: cordon.Run{Workspace: ws}})
			if d.Outcome != cordon.Allowed {
				t.Fatalf("%v %+v", d.Outcome, d.Findings)
			}
			shell(t, ws, c.tool)
			if err := u.Settle(t.Context(), d, cordon.Usage{Failed: c.failed}); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if got, err := os.ReadFile(filepath.Join(ws, name)); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v", name, got, err)
				}
			}
			if c.failed {
				if _, err := os.Lstat(filepath.Join(ws, "d")); err == nil {
					t.Error("what was made is still there")
				}
			}
			if len(inner.settled) != 1 || len(u.open) != 0 {
				t.Errorf("settled %v, open %d", inner.settled, len(u.open))
			}
		})
	}
}

// A call whose change could not be taken back does not run.
func TestACallThatCannotBePreservedIsRefused(t *testing.T) {
	ws := t.TempDir()
	if err := os.WriteFile(filepath.Join(ws, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	inner := &readAs{effects: []cordon.Effect{{Kind: cordon.Write, Target: "a"}}}
	notADir := filepath.Join(ws, "a")
	u := &undoing{Guard: inner, state: notADir, logf: t.Logf, open: map[string]*transaction.Snapshot{}}
	if d := u.Decide(t.Context(), cordon.Call{Run: cordon.Run{Workspace: ws}}); !d.Refused() || len(inner.settled) != 1 {
		t.Errorf("%v, settled %v", d.Outcome, inner.settled)
	}
}

func shell(t *testing.T, dir, line string) {
	t.Helper()
	c := exec.Command("sh", "-c", line)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
