// Package proposal keeps the calls that wait for a person's approval.
//
// It guarantees: an approval is for one call of one run, bound to tenant,
// run, agent, tool, the exact arguments, the tool's definition and the run's
// policy, and serves once: of several takers, in whatever processes, one gets
// it. What was proposed, answered or taken is in the store before that is
// said, with who did it and when, and survives a restart. What is not
// answered, or not taken up, in time expires. The same call proposed again
// while it waits, or after it was rejected, is the same proposal; how many
// may wait is bounded, and one too many is refused, never put in the place of
// another. IDs cannot be guessed. What a person is shown is redacted, bounded,
// and has no character that hides others. An approved call enters as a new
// call that cites it: this package admits nothing by itself.
//
// What this package does not stop: a person who approves without reading, or
// is shown arguments that were too long to show whole (Proposal.ArgsBytes says
// so), or letters that look alike. Whoever may write the store may approve;
// cordon audit verify notices only what left the events behind. The hash of
// the arguments is not keyed: who reads the store can try guesses of a short
// secret in them. Resolve believes the name that it is given: it belongs
// where an agent cannot call it.
package proposal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Defaults of Config.
const (
	DefaultTTL       = 15 * time.Minute
	DefaultPerRun    = 16
	DefaultPerTenant = 256
)

// maxShown is how much of one value a person is shown, in bytes.
const maxShown = 512

// Bounds of Config.
const (
	minTTL = time.Second
	maxTTL = 30 * 24 * time.Hour
)

// ErrTooMany is returned by Propose where as many proposals wait as may.
var ErrTooMany = audit.ErrTooManyProposals

// ErrUnknown is returned for an ID that no proposal has.
var ErrUnknown = audit.ErrNoProposal

// StateError is an answer to a proposal that cannot have it any more.
type StateError struct {
	ID    string
	State audit.ProposalState
}

func (e *StateError) Error() string {
	return fmt.Sprintf("proposal: %s is %s (want a pending one)", e.ID, e.State)
}

// Store is what of an audit.Store keeps proposals.
type Store interface {
	AddProposal(ctx context.Context, p audit.Proposal, b audit.ProposalBounds) (audit.Proposal, bool, error)
	MoveProposal(ctx context.Context, m audit.ProposalMove) (audit.Proposal, bool, error)
	Proposal(ctx context.Context, id string) (audit.Proposal, bool, error)
	Proposals(ctx context.Context, f audit.ProposalFilter) ([]audit.Proposal, error)
	ProposalEvents(ctx context.Context, id string) ([]audit.ProposalEvent, error)
}

// Config is what a Book is made from. Store is required; what is zero has its
// default.
type Config struct {
	Store Store
	// TTL is how long a proposal waits for its answer, and again how long an
	// approval waits to be taken up. From a second to 30 days.
	TTL time.Duration
	// PerRun and PerTenant are how many may wait.
	PerRun, PerTenant int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Book is the proposals of a store. It is safe for concurrent use.
type Book struct{ cfg Config }

// New returns a Book, or says what of the configuration is wrong.
func New(c Config) (*Book, error) {
	if c.Store == nil {
		return nil, errors.New("proposal: no store was given")
	}
	for _, d := range []struct {
		n    *int
		what string
		def  int
	}{{&c.PerRun, "per run", DefaultPerRun}, {&c.PerTenant, "per tenant", DefaultPerTenant}} {
		if *d.n < 0 {
			return nil, fmt.Errorf("proposal: %d proposals %s (want more than 0)", *d.n, d.what)
		}
		if *d.n == 0 {
			*d.n = d.def
		}
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.TTL < minTTL || c.TTL > maxTTL {
		return nil, fmt.Errorf("proposal: a life of %s (want from %s to %s)", c.TTL, minTTL, maxTTL)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Book{c}, nil
}

// HashArgs is the Binding.ArgsHash of the arguments of a call of the run: the
// hex SHA-256 of their canonical form, secrets included, after the run's ID.
func HashArgs(runID string, args *strictjson.Value) string {
	var small [1024]byte
	b := append(small[:0], "cordon args 1\x00"...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(runID)))
	b = strictjson.AppendCanonical(append(b, runID...), args)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Request is a call that needs approval.
type Request struct {
	// Binding has all fields but ArgsHash, which Propose fills in.
	Binding audit.Binding
	Args    *strictjson.Value
	// Reason is a sentence for the person; Chunks are the IDs of the texts
	// that the arguments came from.
	Reason string
	Chunks []string
}

// Propose returns the proposal for the call: the one that stands for it
// already (pending, approved or rejected, as its State says), or else a new
// one, which is stored when Propose returns. The error is ErrTooMany where
// too many wait.
func (b *Book) Propose(ctx context.Context, r Request) (audit.Proposal, error) {
	if r.Args == nil {
		return audit.Proposal{}, errors.New("proposal: no arguments were given")
	}
	now := b.cfg.Now()
	r.Binding.ArgsHash = HashArgs(r.Binding.RunID, r.Args)
	p, _, err := b.cfg.Store.AddProposal(ctx, audit.Proposal{
		ID: newID(), Binding: r.Binding,
		Args: string(audit.AppendShown(nil, r.Args, maxShown)), ArgsBytes: int64(len(strictjson.AppendCanonical(nil, r.Args))),
		Reason: r.Reason, Chunks: r.Chunks, CreatedAt: now, ExpiresAt: now.Add(b.cfg.TTL),
	}, audit.ProposalBounds{PerRun: b.cfg.PerRun, PerTenant: b.cfg.PerTenant})
	if err != nil {
		return audit.Proposal{}, fmt.Errorf("proposal: %w", err)
	}
	return p, nil
}

// newID has more than 128 random bits; it is what an agent would have to
// guess to cite another's approval.
func newID() string { return "prop-" + strings.ToLower(rand.Text()) }

// Answer says whether a call may take a proposal up. The zero value refuses.
type Answer struct {
	OK bool
	// Why is a sentence about what stands against it.
	Why string
	// Differs names what of the call is not as it was proposed: "tenant",
	// "run", "agent", "server", "tool", "arguments", "tool definition",
	// "policy".
	Differs []string
	// Proposal is as it stands; empty where it is not the tenant's.
	Proposal audit.Proposal
}

// Finding is what phase E holds against a call that cites a proposal which it
// may not take up.
func (a *Answer) Finding() cordon.Finding {
	return cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Rule: "proposal.refused", Outcome: cordon.Restricted, Detail: a.Why}
}

// Check says whether the call could take the proposal up now, and changes
// nothing.
func (b *Book) Check(ctx context.Context, id string, call audit.Binding) (Answer, error) {
	p, ok, err := b.cfg.Store.Proposal(ctx, id)
	if err != nil {
		return Answer{}, fmt.Errorf("proposal: %w", err)
	}
	if !ok {
		return Answer{Why: "it cites an approval that there is not"}, nil
	}
	p.State = p.StateAt(b.cfg.Now())
	return judge(p, call), nil
}

func judge(p audit.Proposal, call audit.Binding) Answer {
	// What another tenant proposed is nobody else's to read.
	if p.TenantID != call.TenantID {
		return Answer{Why: "it cites an approval of another tenant", Differs: []string{"tenant"}}
	}
	a := Answer{Proposal: p, Differs: differs(&p.Binding, &call)}
	switch {
	case len(a.Differs) > 0:
		a.Why = "it is not the call that proposal " + p.ID + " is for: another " + strings.Join(a.Differs, ", another ")
	case p.State == audit.ProposalPending:
		a.Why = "proposal " + p.ID + " is not answered yet; a person can: cordon proposals approve " + p.ID
	case p.State == audit.ProposalExecuted || p.State == audit.ProposalFailed:
		a.Why = "proposal " + p.ID + " was taken up already; an approval serves once"
	case p.State != audit.ProposalApproved:
		a.Why = "proposal " + p.ID + " is " + string(p.State)
	default:
		a.OK = true
	}
	return a
}

func differs(p, call *audit.Binding) []string {
	var names []string
	for _, f := range []struct{ name, was, is string }{
		{"run", p.RunID, call.RunID}, {"agent", p.AgentID, call.AgentID}, {"server", p.Server, call.Server},
		{"tool", p.Tool, call.Tool}, {"arguments", p.ArgsHash, call.ArgsHash},
		{"tool definition", p.ToolHash, call.ToolHash}, {"policy", p.PolicyHash, call.PolicyHash},
	} {
		if f.was != f.is {
			names = append(names, f.name)
		}
	}
	return names
}

// Take takes an approved proposal up for the call, once: it is executed from
// then on, whatever becomes of the call, and Done says if that failed. By
// names the call. A call that differs leaves the approval as it was.
func (b *Book) Take(ctx context.Context, id string, call audit.Binding, by string) (Answer, error) {
	a, err := b.Check(ctx, id, call)
	if err != nil || !a.OK {
		return a, err
	}
	// Between Check and here another may have taken it, or it was withdrawn;
	// what it is bound to never changes.
	p, moved, err := b.cfg.Store.MoveProposal(ctx, audit.ProposalMove{
		ID: id, From: audit.ProposalApproved, To: audit.ProposalExecuted, By: by, At: b.cfg.Now(),
	})
	if err != nil {
		return Answer{}, fmt.Errorf("proposal: %w", err)
	}
	if moved {
		return Answer{OK: true, Proposal: p}, nil
	}
	a = judge(p, call)
	if a.OK { // the store says both that it is approved and that it was not taken
		return Answer{Why: "proposal " + id + " could not be taken up"}, nil
	}
	return a, nil
}

// Done closes a proposal that was taken up. One that did not fail stays
// executed.
func (b *Book) Done(ctx context.Context, id string, failed bool) error {
	if !failed {
		return nil
	}
	p, moved, err := b.cfg.Store.MoveProposal(ctx, audit.ProposalMove{
		ID: id, From: audit.ProposalExecuted, To: audit.ProposalFailed, By: audit.CordonItself, At: b.cfg.Now(),
	})
	if err == nil && !moved && p.State != audit.ProposalFailed {
		err = fmt.Errorf("%s is %s (want an executed one)", id, p.State)
	}
	if err != nil {
		return fmt.Errorf("proposal: %w", err)
	}
	return nil
}

// Approved finds an approval that stands for the call, for doors whose
// clients cannot cite one. It takes nothing up.
func (b *Book) Approved(ctx context.Context, call audit.Binding) (id string, ok bool, err error) {
	ps, err := b.cfg.Store.Proposals(ctx, audit.ProposalFilter{RunID: call.RunID, TenantID: call.TenantID, State: audit.ProposalApproved})
	if err != nil {
		return "", false, fmt.Errorf("proposal: %w", err)
	}
	now := b.cfg.Now()
	for i := range ps {
		if ps[i].Binding == call && ps[i].StateAt(now) == audit.ProposalApproved {
			return ps[i].ID, true, nil
		}
	}
	return "", false, nil
}

// Resolve is a person's answer; by says who gave it and through what. An
// approval can be taken up for TTL from now on. Errors are ErrUnknown,
// *StateError for one that is not pending any more, and malfunctions.
func (b *Book) Resolve(ctx context.Context, id string, approve bool, by string) error {
	by = strings.TrimSpace(by)
	if by == "" {
		return fmt.Errorf("proposal: nobody is named who answers %q", id)
	}
	now := b.cfg.Now()
	m := audit.ProposalMove{ID: id, From: audit.ProposalPending, To: audit.ProposalRejected, By: by, At: now}
	if approve {
		p, ok, err := b.cfg.Store.Proposal(ctx, id)
		if err == nil && ok && p.AgentID != "" && strings.EqualFold(p.AgentID, by) {
			err = fmt.Errorf("%s was made by %q, who cannot approve it", id, by)
		}
		if err != nil {
			return fmt.Errorf("proposal: %w", err)
		}
		m.To, m.ExpiresAt = audit.ProposalApproved, now.Add(b.cfg.TTL)
	}
	return b.move(ctx, m)
}

func (b *Book) move(ctx context.Context, m audit.ProposalMove) error {
	p, moved, err := b.cfg.Store.MoveProposal(ctx, m)
	switch {
	case err != nil:
		return fmt.Errorf("proposal: %w", err)
	case !moved:
		return &StateError{m.ID, p.State}
	}
	return nil
}

// Cancel withdraws a proposal that waits for its answer or to be taken up.
func (b *Book) Cancel(ctx context.Context, id, by, why string) error {
	p, ok, err := b.cfg.Store.Proposal(ctx, id)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	if err != nil {
		return fmt.Errorf("proposal: %w", err)
	}
	switch s := p.StateAt(b.cfg.Now()); s {
	case audit.ProposalPending, audit.ProposalApproved:
		return b.move(ctx, audit.ProposalMove{ID: id, From: s, To: audit.ProposalCancelled, By: by, Why: why, At: b.cfg.Now()})
	default:
		return &StateError{id, s}
	}
}

// CancelRun withdraws all proposals of a run that was ended, and returns how
// many. What somebody answers meanwhile is left to the kill switch.
func (b *Book) CancelRun(ctx context.Context, runID, by, why string) (int, error) {
	n := 0
	for _, state := range []audit.ProposalState{audit.ProposalPending, audit.ProposalApproved} {
		ps, err := b.cfg.Store.Proposals(ctx, audit.ProposalFilter{RunID: runID, State: state})
		if err != nil {
			return n, fmt.Errorf("proposal: %w", err)
		}
		for i := range ps {
			err := b.Cancel(ctx, ps[i].ID, by, why)
			var moved *StateError
			switch {
			case err == nil:
				n++
			case !errors.As(err, &moved):
				return n, err
			}
		}
	}
	return n, nil
}

// Get returns a proposal as it stands now, and its history; ok is false where
// there is none.
func (b *Book) Get(ctx context.Context, id string) (p audit.Proposal, events []audit.ProposalEvent, ok bool, err error) {
	p, ok, err = b.cfg.Store.Proposal(ctx, id)
	if err == nil && ok {
		events, err = b.cfg.Store.ProposalEvents(ctx, id)
	}
	if err != nil {
		return audit.Proposal{}, nil, false, fmt.Errorf("proposal: %w", err)
	}
	p.State = p.StateAt(b.cfg.Now())
	return p, events, ok, nil
}

// List returns proposals as they stand now, newest first.
func (b *Book) List(ctx context.Context, f audit.ProposalFilter) ([]audit.Proposal, error) {
	// What has expired is stored under what it was until somebody writes.
	want, most := f.State, f.Limit
	if want == audit.ProposalExpired {
		f.State = ""
	}
	if want != "" {
		f.Limit = 0
	}
	ps, err := b.cfg.Store.Proposals(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("proposal: %w", err)
	}
	now := b.cfg.Now()
	out := ps[:0]
	for _, p := range ps {
		p.State = p.StateAt(now)
		if want == "" || p.State == want {
			out = append(out, p)
		}
	}
	if most > 0 && len(out) > most {
		out = out[:most]
	}
	return out, nil
}
