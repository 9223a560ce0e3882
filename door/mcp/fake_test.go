package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// fakeGuard decides by tables and remembers what it was asked.
type fakeGuard struct {
	mode cordon.Mode
	// deny are the tools that are refused, with the finding that says why.
	deny map[string]cordon.Finding
	// hide are the tools that a listing may not show.
	hide map[string]string
	// kill cancels attached contexts, as a guard does when a run trips.
	mu      sync.Mutex
	calls   []cordon.Call
	settled []cordon.Usage
	defs    []cordon.ToolDef
	cancels []context.CancelCauseFunc
	killed  bool
	// propose are tools that a person may approve; effects what calls are read as.
	propose    map[string]bool
	effects    []cordon.Effect
	recorded   []cordon.Chunk
	unrecorded error
	resolved   []string
	approved   string
	changed    chan struct{} // receives after each Decide and Settle, if set
}

func (g *fakeGuard) Decide(_ context.Context, c cordon.Call) cordon.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.Args = slices.Clone(c.Args)
	g.calls = append(g.calls, c)
	d := cordon.Decision{CallID: c.ID, RunID: c.Run.ID, Mode: g.mode, Outcome: cordon.Allowed}
	f, denied := g.deny[c.Tool]
	switch {
	case g.mode == cordon.Off:
		return d
	case g.killed:
		f = cordon.Finding{Violation: cordon.KilledRun, Rule: "killed", Detail: "the run was killed"}
	case c.Malformed != "":
		f = cordon.Finding{Violation: cordon.Malformed, Rule: "malformed", Detail: c.Malformed}
	case g.propose[c.Tool] && (c.Approval == "" || c.Approval != g.approved):
		f = cordon.Finding{Outcome: cordon.Restricted, Rule: "provenance.test", Detail: "the host came from a page"}
		d.Proposal = "P1"
	case !denied:
		g.approved = ""
		d.Effects = g.effects
		return d
	}
	d.Outcome, d.Findings = f.Outcome, []cordon.Finding{f}
	d.Enforced = g.mode == cordon.Enforce
	if f.Kill && g.mode == cordon.Enforce {
		d.Killed = true
		g.killLocked()
	}
	return d
}

func (g *fakeGuard) killLocked() {
	g.killed = true
	for _, c := range g.cancels {
		c(cordon.ErrKilled)
	}
}

func (g *fakeGuard) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.killLocked()
}

func (g *fakeGuard) Settle(_ context.Context, _ cordon.Decision, u cordon.Usage) error {
	g.mu.Lock()
	g.settled = append(g.settled, u)
	g.mu.Unlock()
	if g.changed != nil {
		g.changed <- struct{}{}
	}
	return nil
}

func (g *fakeGuard) Tools(_ context.Context, _ cordon.Run, defs []cordon.ToolDef) []cordon.ToolVerdict {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.defs = append(g.defs, defs...)
	out := make([]cordon.ToolVerdict, len(defs))
	for i, d := range defs {
		why, hidden := g.hide[d.Name]
		out[i] = cordon.ToolVerdict{Visible: !hidden, Reason: why}
	}
	return out
}

func (g *fakeGuard) Record(_ context.Context, _ cordon.Run, chunks ...cordon.Chunk) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.unrecorded != nil {
		return nil, g.unrecorded
	}
	g.recorded = append(g.recorded, chunks...)
	ids := make([]string, len(chunks))
	for i := range ids {
		ids[i] = fmt.Sprintf("c%d", len(g.recorded)-len(chunks)+i+1)
	}
	return ids, nil
}

func (g *fakeGuard) Resolve(_ context.Context, id string, approve bool, by string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resolved = append(g.resolved, fmt.Sprintf("%s %v by %s", id, approve, by))
	if approve {
		g.approved = id
	}
	return nil
}

func (g *fakeGuard) Attach(ctx context.Context, _ cordon.Run) (context.Context, func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	if g.killed {
		cancel(cordon.ErrKilled)
	}
	g.cancels = append(g.cancels, cancel)
	return ctx, func() { cancel(nil) }
}

func (g *fakeGuard) decided() []cordon.Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func (g *fakeGuard) usages() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.settled)
}

// refuses makes a guard in enforce mode that refuses the tools.
func refuses(tools ...string) *fakeGuard {
	g := &fakeGuard{deny: map[string]cordon.Finding{}}
	for _, t := range tools {
		g.deny[t] = cordon.Finding{Phase: cordon.PhaseFS, Violation: cordon.FSPath, Rule: "fs.test",
			Outcome: cordon.Blocked, Detail: "the path is out of bounds"}
	}
	return g
}

func judgeOf(g cordon.Guard) *Judge {
	j, err := NewJudge(Config{Guard: g, Run: cordon.Run{ID: "run-1"}, Server: "files", MaxResult: 4096})
	if err != nil {
		panic(err)
	}
	return j
}

// rpc is a message as a test reads it.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result *struct {
		Content []struct {
			Type, Text string
		} `json:"content"`
		IsError    bool              `json:"isError"`
		Tools      []json.RawMessage `json:"tools"`
		Structured json.RawMessage   `json:"structuredContent"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func read(t interface {
	Helper()
	Fatalf(string, ...any)
}, msg []byte) rpc {
	t.Helper()
	var m rpc
	if err := json.Unmarshal(bytes.TrimSpace(msg), &m); err != nil {
		t.Fatalf("not a message: %v: %s", err, msg)
	}
	return m
}
