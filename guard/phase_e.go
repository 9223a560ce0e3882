package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/proposal"
	"github.com/cordon-sandbox/cordon/guard/provenance"
)

// provenance is phase E: what of the call came from text that nobody trusted
// wrote, and what the judge says of it.
func (j *judgement) provenance() []cordon.Finding {
	index, err := j.index()
	if err != nil {
		j.malfunction(cordon.PhaseProvenance, "provenance", err)
		return nil
	}
	found := j.neighbours()
	if index == nil || j.broken {
		return found
	}
	return append(found, provenance.Judge(provenance.Input{
		Server: j.call.Server, Tool: j.call.Tool, Facts: j.reading.Tool, Args: &j.args, Effects: j.reading.Effects, Index: index,
		Workspace: j.policy.Workspace(), Home: j.policy.Home(),
		HostAllowed: func(target string) bool { return j.fixed.hosts.Match(target, "").Allowed },
	})...)
}

// index is that of the run, with the texts that came with the call. A call
// that is a run of its own has seen those only.
func (j *judgement) index() (*provenance.Index, error) {
	if !j.named {
		if len(j.call.Chunks) == 0 {
			return nil, nil
		}
		index, err := provenance.New(provenance.Config{Key: provenance.NewKey()})
		if err != nil {
			return nil, err
		}
		chunks, _ := named(j.call.Chunks)
		for _, c := range chunks {
			index.Add(c)
		}
		return index, nil
	}
	if len(j.call.Chunks) > 0 {
		if _, err := j.Record(j.ctx, j.call.Run, j.call.Chunks...); err != nil {
			return nil, err
		}
	}
	return j.origins.current(j.ctx, j.policy.RunID())
}

func (j *judgement) onlyReads() bool {
	for i := range j.reading.Effects {
		if k := j.reading.Effects[i].Kind; k != cordon.Read && k != cordon.List {
			return false
		}
	}
	return true
}

// binding is what an approval of the call is for.
func (j *judgement) binding() audit.Binding {
	return audit.Binding{
		TenantID: j.policy.Tenant(), RunID: j.policy.RunID(), AgentID: j.policy.Agent(), Server: j.call.Server, Tool: j.call.Tool,
		ArgsHash: proposal.HashArgs(j.policy.RunID(), &j.args),
		ToolHash: j.pins.approvedHash(j.call.Server, j.call.Tool), PolicyHash: j.policy.Hash(),
	}
}

// onlyForAPerson reports whether phase E alone stands against the call, and
// only so that a person decides.
func (j *judgement) onlyForAPerson() bool {
	if j.out.Outcome != cordon.Restricted || !j.named || j.policy == nil {
		return false
	}
	for i := range j.out.Findings {
		if f := &j.out.Findings[i]; f.Outcome != cordon.Allowed && f.Phase != cordon.PhaseProvenance {
			return false
		}
	}
	return true
}

// ask makes the proposal of a call that a person may approve, or takes up the
// approval that was given for it. It runs when all phases have: what they hold
// against a call, no approval lifts.
func (j *judgement) ask() error {
	if j.out.Mode != cordon.Enforce {
		return nil
	}
	if j.out.Outcome == cordon.Allowed && j.named && j.call.Approval != "" {
		return j.useUp(j.call.Approval)
	}
	if !j.onlyForAPerson() {
		return nil
	}
	id := j.call.Approval
	if id == "" {
		p, err := j.book.Propose(context.WithoutCancel(j.ctx), j.request())
		if errors.Is(err, proposal.ErrTooMany) {
			// No malfunction: the call is refused as it was, and nobody is asked.
			j.find(cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Rule: "proposal.too_many", Outcome: cordon.Restricted,
				Detail: "as many calls wait for a person as may; those are to be answered first"})
			return nil
		}
		if err != nil {
			return err
		}
		switch p.State {
		case audit.ProposalPending:
			j.out.Proposal = p.ID
			return nil
		case audit.ProposalApproved:
			id = p.ID
		default:
			j.find(cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Rule: "proposal.refused", Outcome: cordon.Restricted,
				Detail: fmt.Sprintf("proposal %s was %s", p.ID, p.State)})
			return nil
		}
	}
	return j.takeUp(id)
}

func (j *judgement) request() proposal.Request {
	var why, chunks []string
	for i := range j.out.Findings {
		if f := &j.out.Findings[i]; f.Outcome != cordon.Allowed {
			why = append(why, f.Detail)
			chunks = append(chunks, chunksNamed(f.Detail)...)
		}
	}
	return proposal.Request{Binding: j.binding(), Args: &j.args, Reason: strings.Join(why, "; "), Chunks: chunks}
}

// chunksNamed finds the IDs that a finding of provenance names.
func chunksNamed(detail string) []string {
	var ids []string
	for _, part := range strings.Split(detail, `chunk "`)[1:] {
		if id, _, ok := strings.Cut(part, `"`); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// takeUp uses the approval, once: the findings stay, and refuse no more.
func (j *judgement) takeUp(id string) error {
	answer, err := j.book.Take(context.WithoutCancel(j.ctx), id, j.binding(), callName(j.call))
	if err != nil {
		return err
	}
	if !answer.OK {
		j.find(answer.Finding())
		return nil
	}
	j.out.Approval = id
	for i := range j.out.Findings {
		if f := &j.out.Findings[i]; f.Outcome != cordon.Allowed {
			f.Outcome = cordon.Allowed
			f.Detail += " (a person approved this call: proposal " + id + ")"
		}
	}
	return nil
}

// useUp takes up an approval that the call cites and no longer needs: it was
// given for one run of it.
func (j *judgement) useUp(id string) error {
	answer, err := j.book.Take(context.WithoutCancel(j.ctx), id, j.binding(), callName(j.call))
	if err == nil && answer.OK {
		j.out.Approval = id
	}
	return err
}

func callName(c *cordon.Call) string {
	if c.ID == "" {
		return "a call of " + clip(c.Tool)
	}
	return "call " + clip(c.ID)
}

// Resolve is a person's answer to a proposal, as cordon.Guard says.
func (g *Guard) Resolve(ctx context.Context, proposal string, approve bool, by string) error {
	return g.book.Resolve(ctx, proposal, approve, by)
}

// askJudge has a model look at a call whose effects cannot be taken back and
// that nothing else blocks. In shadow mode the call does not wait for it.
func (j *judgement) askJudge() {
	// What a person approved is not asked about again.
	if j.call.Approval != "" && j.named && j.policy != nil && !j.broken {
		if a, err := j.book.Check(j.ctx, j.call.Approval, j.binding()); err == nil && a.OK {
			return
		}
	}
	if j.cfg.Judge == nil || j.policy == nil || j.broken || j.out.Outcome == cordon.Blocked || !j.cfg.Judge.Concerns(j.reading.Effects) {
		return
	}
	subject := Subject{
		Tenant: j.policy.Tenant(), Server: j.call.Server, Tool: j.call.Tool, Args: &j.args, Effects: j.reading.Effects,
		Tier: j.policy.Tier(), PolicyHash: j.policy.Hash(), Findings: j.out.Findings,
	}
	if j.out.Mode == cordon.Shadow {
		later := *j
		later.ctx = context.WithoutCancel(j.ctx)
		later.out.Findings = nil
		go later.judgeLater(subject)
		return
	}
	if f, ok := j.cfg.Judge.Judge(j.ctx, subject); ok {
		j.find(f)
	}
}

// judgeLater records what the judge would have said.
func (j *judgement) judgeLater(s Subject) {
	defer func() {
		if r := recover(); r != nil {
			j.cfg.Logf("guard: judge of a call to %q: panic: %v", j.call.Tool, r)
		}
	}()
	ctx, cancel := context.WithTimeout(j.ctx, time.Minute)
	defer cancel()
	if f, ok := j.cfg.Judge.Judge(ctx, s); ok {
		j.find(f)
		j.decide()
		j.store()
	}
}
