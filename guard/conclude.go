package guard

import (
	"context"
	"strconv"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/caps"
	"github.com/cordon-sandbox/cordon/guard/killrun"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// conclude makes the decision of the findings, reserves the caps of what may
// run, kills and stores.
func (j *judgement) conclude() {
	j.decide()
	j.contain(cordon.PhaseProvenance, "judge", func() error { j.askJudge(); return nil })
	j.decide()
	j.contain(cordon.PhaseProvenance, "proposal", j.ask)
	j.decide()
	// What runs is counted; in shadow mode everything runs.
	if j.fixed != nil && (j.out.Outcome == cordon.Allowed || j.out.Mode == cordon.Shadow) {
		j.contain(cordon.PhaseTripwire, "reserve", j.reserve)
		j.decide()
	}
	if j.out.Outcome == cordon.Allowed {
		j.count()
		return
	}
	if j.out.Approval != "" { // what stood against it came after the approval
		j.contain(cordon.PhaseProvenance, "proposal", func() error { return j.book.Done(context.WithoutCancel(j.ctx), j.out.Approval, true) })
		j.out.Approval = ""
	}
	j.rewrite()
	if j.out.Killed && j.worthKilling() {
		if err := j.kill.Trip(j.ctx, j.killRecord()); err != nil {
			j.malfunction(cordon.PhaseTripwire, "kill", err)
		}
		if _, err := j.book.CancelRun(context.WithoutCancel(j.ctx), j.policy.RunID(), "cordon", "the run was killed"); err != nil {
			j.cfg.Logf("guard: proposals of run %s: %v", j.policy.RunID(), err) // a killed run can take none up
		}
	}
	j.store()
}

// decide derives the outcome from the findings. A call without a policy was
// not judged.
func (j *judgement) decide() {
	d := &j.out
	d.Outcome = cordon.Allowed
	kill := false
	for i := range d.Findings {
		d.Outcome = cordon.Worst(d.Outcome, d.Findings[i].Outcome)
		kill = kill || d.Findings[i].Kill
	}
	if j.policy == nil {
		d.Outcome = cordon.Blocked
	}
	d.Enforced = d.Refused()
	d.Killed = kill && d.Mode == cordon.Enforce
	d.WouldKill = kill && d.Mode == cordon.Shadow
}

// reserve takes what the call will use from the caps. Between the check in
// phase C and here a parallel call may have taken the last of it.
func (j *judgement) reserve() error {
	if !j.cfg.Phases.Caps || !j.named {
		return nil
	}
	want := j.want()
	res, over := j.meter.Reserve(j.policy.RunID(), j.fixed.caps, want)
	if over != nil {
		if !j.overReported() {
			j.out.Findings = append(j.out.Findings, over.Findings()...)
		}
		return nil
	}
	j.out.Ticket = want.Key
	// What another door has counted already is not added again.
	if added := res.Added(); added != (caps.Usage{}) {
		j.cfg.Store.AddUsage(audit.Usage{RunID: j.policy.RunID(), ToolCalls: added.ToolCalls, BytesWritten: added.BytesWritten})
	}
	return nil
}

func (j *judgement) overReported() bool {
	for i := range j.out.Findings {
		if j.out.Findings[i].Violation == cordon.CapExceeded {
			return true
		}
	}
	return false
}

// callKey names the call. One logical call that two doors see has the same
// client ID and arguments, and is counted once.
func (j *judgement) callKey() string {
	if j.call.ID != "" {
		return j.call.ID + "\x00" + j.call.Tool + "\x00" + j.out.ArgsHash
	}
	return "#" + strconv.FormatUint(j.ticket.Add(1), 10)
}

// count counts a call that gets no row.
func (j *judgement) count() {
	c := audit.Counter{Tool: j.call.Tool, Tier: j.policy.Tier().String(), Outcome: "allowed"}
	if j.named {
		c.RunID = j.policy.RunID()
	}
	j.cfg.Store.Count(c, 1)
	if j.named && j.cfg.Phases.Provenance && !j.onlyReads() {
		j.origins.called(j.policy.RunID(), j)
	}
}

// worthKilling: a run that was made up for this one call and has no session
// never comes again; its kill stands in the row alone.
func (j *judgement) worthKilling() bool { return j.named || j.policy.Session() != "" }

func (j *judgement) killRecord() killrun.Record {
	r := killrun.Record{
		RunID: j.policy.RunID(), Tenant: j.policy.Tenant(), Session: j.policy.Session(),
		CallID: j.call.ID, By: "tripwire", At: time.Now(),
	}
	for i := range j.out.Findings {
		if f := &j.out.Findings[i]; f.Kill {
			r.Rule, r.Detail = f.Rule, audit.RedactText(f.Detail)
			break
		}
	}
	return r
}

// store writes the row of a decision that is not allowed, and returns when
// it is durable. A row that cannot be stored changes nothing in enforce mode,
// where the call is refused as it is; in shadow mode it is only logged.
func (j *judgement) store() {
	for i := range j.out.Findings {
		j.out.Findings[i].Detail = audit.RedactText(j.out.Findings[i].Detail)
	}
	if j.policy == nil {
		return // the malfunction behind it was logged
	}
	row := j.runRow()
	v := audit.NewViolation(row, *j.call, j.out, time.Now())
	// The client may be gone; what was refused is stored all the same.
	ctx := context.WithoutCancel(j.ctx)
	record := func() error { return j.cfg.Store.Record(ctx, row, []audit.Violation{v}) }
	if j.out.Mode == cordon.Shadow {
		j.shadowed("audit", record)
		return
	}
	if err := record(); err != nil {
		j.malfunction(cordon.PhaseTripwire, "audit", err)
	}
}

// shadowWait is how long the store may hold up a call in shadow mode (G6).
const shadowWait = 100 * time.Millisecond

// shadowed does what the store is slow at without making the call wait for it:
// a database that another process holds must not stop what shadow mode only
// watches. The store finishes what it was given before it closes.
func (j *judgement) shadowed(what string, do func() error) {
	done := make(chan struct{})
	tool, logf := j.call.Tool, j.cfg.Logf
	go func() {
		defer close(done)
		if err := do(); err != nil {
			logf("guard: %s of a call to %q: %v", what, tool, err)
		}
	}()
	wait := time.NewTimer(shadowWait)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
	}
}

// rewrite proposes arguments that would pass: only where every finding names
// what to put in its place.
func (j *judgement) rewrite() {
	if j.out.Outcome != cordon.Restricted {
		return
	}
	args := clone(&j.args)
	for i := range j.out.Findings {
		f := &j.out.Findings[i]
		if f.Outcome == cordon.Allowed {
			continue
		}
		v := at(&args, f.Arg)
		if f.Rewrite == "" || v == nil {
			return
		}
		v.Str = f.Rewrite
	}
	j.out.RewrittenArgs = strictjson.AppendCanonical(nil, &args)
}

func clone(v *strictjson.Value) strictjson.Value {
	c := *v
	c.Items = make([]strictjson.Value, len(v.Items))
	for i := range v.Items {
		c.Items[i] = clone(&v.Items[i])
	}
	return c
}

// Settle records what a decided call truly used.
func (g *Guard) Settle(ctx context.Context, d cordon.Decision, u cordon.Usage) error {
	if d.Approval != "" {
		if err := g.book.Done(ctx, d.Approval, u.Failed); err != nil {
			return err
		}
	}
	if d.Ticket == "" {
		return nil
	}
	res, ok := g.meter.Reserved(d.RunID, d.Ticket)
	if !ok {
		return nil
	}
	before := g.meter.Usage(d.RunID)
	if err := g.meter.Settle(res, u); err != nil {
		return err
	}
	after := g.meter.Usage(d.RunID)
	g.cfg.Store.AddUsage(audit.Usage{
		RunID: d.RunID, ExecSeconds: (after.Exec - before.Exec).Seconds(),
		BytesWritten: after.BytesWritten - before.BytesWritten, CostUSD: (after.Cost - before.Cost).USD(),
	})
	return nil
}

// Charge adds what a call of the run uses while it is going on: bytes that it
// sends, what a model's answer costs. The findings say which caps the run is
// past now; they are not stored.
func (g *Guard) Charge(r cordon.Run, u cordon.Usage) ([]cordon.Finding, error) {
	p, err := g.issuer.Issue(r)
	if err != nil {
		return nil, err
	}
	c, err := g.compile(p)
	if err != nil {
		return nil, err
	}
	over, err := g.meter.Charge(p.RunID(), c.caps, u)
	if err != nil {
		return nil, err
	}
	g.cfg.Store.AddUsage(audit.Usage{
		RunID: p.RunID(), ExecSeconds: u.Exec.Seconds(), BytesWritten: u.BytesWritten, CostUSD: u.CostUSD,
	})
	if over == nil || !g.cfg.Phases.Caps {
		return nil, nil
	}
	return over.Findings(), nil
}

// Row is the audit row of the run, for what is recorded beside its calls.
func (g *Guard) Row(r cordon.Run) (audit.RunRow, error) {
	p, err := g.issuer.Issue(r)
	if err != nil {
		return audit.RunRow{}, err
	}
	return g.rowOf(p), nil
}

// Attach ties ctx to the life of the run. In shadow mode nothing is
// cancelled.
func (g *Guard) Attach(ctx context.Context, r cordon.Run) (attached context.Context, stop func()) {
	if g.cfg.Mode != cordon.Enforce {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel
	}
	return g.kill.Attach(ctx, r)
}

// killStore lets the kill switch keep its records in the audit store.
type killStore struct{ s audit.Store }

func (k killStore) Kill(ctx context.Context, r killrun.Record) error {
	return k.s.Kill(ctx, audit.Kill{RunID: r.RunID, TenantID: r.Tenant, SessionID: r.Session, At: r.At, Rule: r.Rule})
}

func (k killStore) Active(ctx context.Context) ([]killrun.Record, error) {
	kills, err := k.s.Kills(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]killrun.Record, len(kills))
	for i, a := range kills {
		out[i] = killrun.Record{RunID: a.RunID, Tenant: a.TenantID, Session: a.SessionID, Rule: a.Rule, At: a.At}
	}
	return out, nil
}

func (k killStore) Generation() (uint64, error) { return k.s.KillGeneration(), nil }

func (k killStore) Release(ctx context.Context, runID, by, why string) error {
	return k.s.Release(ctx, runID, by, why)
}
