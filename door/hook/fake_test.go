package hook

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// fakeGuard refuses calls whose arguments hold a word, and remembers what it
// was asked.
type fakeGuard struct {
	cordon.Guard
	mode cordon.Mode
	// fail makes Record fail, explode makes Decide panic, hold makes it wait.
	fail, explode bool
	hold          chan struct{}

	mu      sync.Mutex
	calls   []cordon.Call
	chunks  []cordon.Chunk
	runs    []string // of the chunks
	settled []cordon.Usage
	allowed int
}

func (g *fakeGuard) Decide(_ context.Context, c cordon.Call) cordon.Decision {
	if g.hold != nil {
		<-g.hold
	}
	if g.explode {
		panic("a bug")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.Args = slices.Clone(c.Args)
	g.calls = append(g.calls, c)
	d := cordon.Decision{CallID: c.ID, RunID: c.Run.ID, Mode: g.mode, Outcome: cordon.Allowed, Ticket: "t" + c.ID}
	f := cordon.Finding{Outcome: cordon.Blocked, Rule: "test.rule", Detail: "The call would do harm."}
	args := string(c.Args)
	switch {
	case g.mode == cordon.Off:
		return d
	case c.Malformed != "":
		f = cordon.Finding{Violation: cordon.Malformed, Rule: "malformed.call", Detail: c.Malformed}
	case strings.Contains(args, "id_rsa"):
	case strings.Contains(args, "kill-me"):
		f.Kill = true
		d.Killed = g.mode == cordon.Enforce
	case strings.Contains(args, "elsewhere"):
		f = cordon.Finding{Outcome: cordon.Restricted, Rule: "fs.out_of_scope", Detail: "It is outside.", Arg: "/path", Rewrite: "/w/here"}
	case strings.Contains(args, "tainted"):
		f = cordon.Finding{Outcome: cordon.Restricted, Rule: "provenance.x", Detail: "The words come from a web page."}
		d.Proposal = "prop-1"
	default:
		g.allowed++
		return d
	}
	d.Outcome, d.Findings, d.Ticket = f.Outcome, []cordon.Finding{f}, ""
	d.Enforced = d.Refused()
	return d
}

func (g *fakeGuard) Record(_ context.Context, r cordon.Run, chunks ...cordon.Chunk) ([]string, error) {
	if g.fail {
		return nil, errors.New("the store is full")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.chunks = append(g.chunks, chunks...)
	g.runs = append(g.runs, r.ID)
	return make([]string, len(chunks)), nil
}

func (g *fakeGuard) Settle(_ context.Context, _ cordon.Decision, u cordon.Usage) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled = append(g.settled, u)
	return nil
}
