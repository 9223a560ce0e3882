package gateway

import (
	"context"
	"slices"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

type cancelFunc = context.CancelCauseFunc

// fakeGuard decides by tables and remembers what it was asked.
type fakeGuard struct {
	mode cordon.Mode
	// deny are the tools that are refused; propose those that a person may
	// approve.
	deny, propose map[string]bool
	hide          map[string]bool

	mu       sync.Mutex
	calls    []cordon.Call
	settled  int
	recorded []cordon.Chunk
	resolved []string
	approved map[string]bool
	cancels  map[string][]cancelFunc // by session
	killed   map[string]bool         // by session
}

func newGuard() *fakeGuard {
	return &fakeGuard{deny: map[string]bool{}, propose: map[string]bool{}, hide: map[string]bool{}, approved: map[string]bool{},
		cancels: map[string][]cancelFunc{}, killed: map[string]bool{}}
}

func (g *fakeGuard) Decide(ctx context.Context, c cordon.Call) cordon.Decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.Args = slices.Clone(c.Args)
	g.calls = append(g.calls, c)
	d := cordon.Decision{CallID: c.ID, RunID: c.Run.ID, Mode: g.mode, Outcome: cordon.Allowed}
	f := cordon.Finding{Phase: cordon.PhaseFS, Violation: cordon.FSPath, Rule: "fs.test", Detail: "the path is out of bounds"}
	switch {
	case ctx.Err() != nil:
		f = cordon.Finding{Violation: cordon.Malformed, Rule: "guard.malfunction", Detail: "the call could not be judged"}
	case g.killed[c.Run.Session]:
		f = cordon.Finding{Violation: cordon.KilledRun, Rule: "killed", Detail: "the run was killed"}
	case c.Malformed != "":
		f = cordon.Finding{Violation: cordon.Malformed, Rule: "malformed", Detail: c.Malformed}
	case g.propose[c.Tool] && !(c.Approval == "P-"+c.Tool && g.approved[c.Approval]):
		f.Outcome, d.Proposal = cordon.Restricted, "P-"+c.Tool
	case !g.deny[c.Tool]:
		if c.Approval != "" {
			delete(g.approved, c.Approval) // serves once
		}
		return d
	}
	d.Outcome, d.Findings = f.Outcome, []cordon.Finding{f}
	d.Enforced = g.mode == cordon.Enforce
	return d
}

func (g *fakeGuard) Settle(context.Context, cordon.Decision, cordon.Usage) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled++
	return nil
}

func (g *fakeGuard) Tools(_ context.Context, _ cordon.Run, defs []cordon.ToolDef) []cordon.ToolVerdict {
	out := make([]cordon.ToolVerdict, len(defs))
	for i, d := range defs {
		out[i] = cordon.ToolVerdict{Visible: !g.hide[d.Name], Reason: "hidden"}
	}
	return out
}

func (g *fakeGuard) Record(_ context.Context, _ cordon.Run, chunks ...cordon.Chunk) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recorded = append(g.recorded, chunks...)
	ids := make([]string, len(chunks))
	for i := range ids {
		ids[i] = "c1"
	}
	return ids, nil
}

func (g *fakeGuard) Resolve(_ context.Context, id string, approve bool, by string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.resolved = append(g.resolved, id+" "+by)
	if approve {
		g.approved[id] = true
	}
	return nil
}

func (g *fakeGuard) Attach(ctx context.Context, r cordon.Run) (context.Context, func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	if g.killed[r.Session] {
		cancel(cordon.ErrKilled)
	}
	g.cancels[r.Session] = append(g.cancels[r.Session], cancel)
	return ctx, func() { cancel(nil) }
}

func (g *fakeGuard) kill(session string) {
	g.mu.Lock()
	g.killed[session] = true
	cancels := g.cancels[session]
	g.mu.Unlock()
	for _, c := range cancels {
		c(cordon.ErrKilled)
	}
}

func (g *fakeGuard) decided() []cordon.Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

func (g *fakeGuard) seen() (calls, settled int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls), g.settled
}
