package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cordon-sandbox/cordon"
)

// ErrTooManyProposals is returned by AddProposal where the run or the tenant
// has as many pending ones as it may.
var ErrTooManyProposals = errors.New("audit: too many proposals are pending")

// ErrNoProposal is returned by MoveProposal for an ID that no proposal has.
var ErrNoProposal = errors.New("audit: no such proposal")

// ProposalState is where a proposal stands. The zero value is no state.
type ProposalState string

const (
	// ProposalPending waits for a person.
	ProposalPending ProposalState = "pending"
	// ProposalApproved may be taken up once, until it expires.
	ProposalApproved ProposalState = "approved"
	// ProposalRejected was answered with no.
	ProposalRejected ProposalState = "rejected"
	// ProposalExpired was not answered, or not taken up, in time.
	ProposalExpired ProposalState = "expired"
	// ProposalExecuted was taken up by a call that was let through. A process
	// that died between letting it through and its end leaves this state.
	ProposalExecuted ProposalState = "executed"
	// ProposalFailed was taken up by a call that did not run, or failed.
	ProposalFailed ProposalState = "failed"
	// ProposalCancelled was withdrawn, or its run was ended.
	ProposalCancelled ProposalState = "cancelled"
)

// proposalMoves are the only changes of state there are.
var proposalMoves = map[ProposalState][]ProposalState{
	ProposalPending:  {ProposalApproved, ProposalRejected, ProposalExpired, ProposalCancelled},
	ProposalApproved: {ProposalExecuted, ProposalExpired, ProposalCancelled},
	ProposalExecuted: {ProposalFailed},
}

// ParseProposalState reads a state's name.
func ParseProposalState(s string) (ProposalState, error) {
	all := []ProposalState{ProposalPending, ProposalApproved, ProposalRejected, ProposalExpired, ProposalExecuted, ProposalFailed, ProposalCancelled}
	if slices.Contains(all, ProposalState(s)) {
		return ProposalState(s), nil
	}
	return "", fmt.Errorf("audit: unknown proposal state %q (want one of %q)", s, all)
}

// Binding is what an approval is for, to the byte: one that differs in any
// of it is another call.
type Binding struct {
	TenantID string `json:"tenant_id"`
	RunID    string `json:"run_id"`
	AgentID  string `json:"agent_id"`
	Server   string `json:"server"`
	Tool     string `json:"tool"`
	// ArgsHash is a hash of the exact canonical arguments, ToolHash that of
	// the tool's definition as approved (empty where none is known), and
	// PolicyHash that of the policy that the run is judged by.
	ArgsHash   string `json:"args_hash"`
	ToolHash   string `json:"tool_hash"`
	PolicyHash string `json:"policy_hash"`
}

// Proposal is a call that waits for a person's approval (proposals). All but
// State and ExpiresAt is written once.
type Proposal struct {
	ID string `json:"id"`
	Binding
	// Args are the redacted arguments for people, long values shortened, cut
	// to 8 KiB; ArgsBytes is how long the true ones are. Characters that do not show,
	// or that turn the reading direction, stand escaped.
	Args      string `json:"args"`
	ArgsBytes int64  `json:"args_bytes"`
	// Reason says why it needs approval. Chunks are the IDs of the texts that
	// its arguments came from.
	Reason    string    `json:"reason"`
	Chunks    []string  `json:"chunks,omitempty"`
	CreatedAt time.Time `json:"created_at"`

	State ProposalState `json:"state"`
	// ExpiresAt ends the time to answer, and once approved the time to take
	// it up. A rejection answers the same proposal until then.
	ExpiresAt time.Time `json:"expires_at"`
}

// StateAt is the state at time t: what was not answered or taken up in time
// is expired, also where nobody has written that yet.
func (p *Proposal) StateAt(t time.Time) ProposalState {
	if (p.State == ProposalPending || p.State == ProposalApproved) && !t.Before(p.ExpiresAt) {
		return ProposalExpired
	}
	return p.State
}

// ProposalEvent is one change of a proposal's state (proposal_events). Seq
// counts over all proposals, without gaps; the hashes chain the events of
// all proposals as those of violations do, in a chain of their own.
type ProposalEvent struct {
	Seq        int64         `json:"seq"`
	ProposalID string        `json:"proposal_id"`
	State      ProposalState `json:"state"`
	At         time.Time     `json:"at"`
	// By is who changed it and through what.
	By        string    `json:"by"`
	Why       string    `json:"why,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
	PrevHash  string    `json:"prev_hash"`
	RowHash   string    `json:"row_hash"`
}

// ProposalMove is one change of state. It happens only where the proposal is
// in state From at time At.
type ProposalMove struct {
	ID       string
	From, To ProposalState
	By, Why  string
	// At is now; zero is the store's own clock.
	At time.Time
	// ExpiresAt, where it is not zero, replaces the proposal's.
	ExpiresAt time.Time
}

// ProposalBounds is how many proposals may be pending; zero permits none.
type ProposalBounds struct{ PerRun, PerTenant int }

// ProposalFilter chooses proposals, newest first. Empty fields choose all;
// Limit 0 is all of them. State is that which is stored (see StateAt).
type ProposalFilter struct {
	RunID, TenantID, AgentID string
	State                    ProposalState
	Since                    time.Time
	Limit                    int
}

// ChunkRow is what a run's provenance index keeps of one text that entered
// its context (run_chunks). The segment is the index's own form of it, which
// the store does not read, redact or hash.
type ChunkRow struct {
	RunID string `json:"run_id"`
	// Seq counts the run's chunks from 1; the store fills it in. A first one
	// that is larger says that older ones were dropped.
	Seq    int64            `json:"seq"`
	ID     string           `json:"id"`
	Type   cordon.ChunkType `json:"type"`
	Trust  cordon.Trust     `json:"trust"`
	Source string           `json:"source"`
	Time   time.Time        `json:"time"`
	// Segment may be empty and may hold any bytes.
	Segment []byte `json:"segment"`
}

// chunkOverhead is what a chunk counts beside its segment, so that the bytes
// kept of a run bound the number of its chunks too.
const chunkOverhead = 256

// Size is what the chunk counts towards what is kept of its run.
func (c *ChunkRow) Size() int64 { return int64(len(c.Segment)) + chunkOverhead }

const (
	maxShownArgs = 8 << 10
	maxChunkIDs  = 64
)

// PrepareProposal makes the proposal fit to be stored as pending, or says why
// it is not.
func PrepareProposal(p Proposal, now time.Time) (Proposal, error) {
	for _, f := range []struct{ what, value string }{
		{"id", p.ID}, {"run id", p.RunID}, {"tool", p.Tool}, {"arguments hash", p.ArgsHash}, {"policy hash", p.PolicyHash},
	} {
		if f.value == "" {
			return p, fmt.Errorf("audit: proposal without %s", f.what)
		}
	}
	// The binding is compared byte for byte: what cannot be stored as it is
	// would bind to something else.
	b := &p.Binding
	for _, s := range []string{p.ID, b.TenantID, b.RunID, b.AgentID, b.Server, b.Tool, b.ArgsHash, b.ToolHash, b.PolicyHash} {
		if len(s) > maxName || valid(s) != s {
			return p, fmt.Errorf("audit: proposal of tool %q: a name of %d bytes (want valid UTF-8 of at most %d)", cut(valid(p.Tool), 100), len(s), maxName)
		}
	}
	if p.CreatedAt.IsZero() {
		p.CreatedAt = now
	}
	p.CreatedAt, p.ExpiresAt = micros(p.CreatedAt), micros(p.ExpiresAt)
	if !p.ExpiresAt.After(p.CreatedAt) {
		return p, fmt.Errorf("audit: proposal %s expires before it is made", p.ID)
	}
	p.State = ProposalPending
	p.Args = cut(Visible(RedactText(valid(p.Args))), maxShownArgs)
	p.Reason = cut(Visible(RedactText(valid(p.Reason))), maxDetail)
	ids := make([]string, 0, min(len(p.Chunks), maxChunkIDs))
	for _, id := range p.Chunks[:min(len(p.Chunks), maxChunkIDs)] {
		ids = append(ids, cut(Visible(valid(id)), maxName))
	}
	p.Chunks = ids
	return p, nil
}

// PrepareMove makes the move fit to be stored, or says why there is no such
// move.
func PrepareMove(m ProposalMove, now time.Time) (ProposalMove, error) {
	m.By, m.Why = cut(Visible(RedactText(valid(m.By))), maxName), cut(Visible(RedactText(valid(m.Why))), maxDetail)
	switch {
	case strings.TrimSpace(m.By) == "":
		return m, fmt.Errorf("audit: proposal %q: nobody is named who makes it %s", m.ID, m.To)
	case !slices.Contains(proposalMoves[m.From], m.To):
		return m, fmt.Errorf("audit: proposal %q: no change from %q to %q", m.ID, m.From, m.To)
	}
	if m.At.IsZero() {
		m.At = now
	}
	m.At, m.ExpiresAt = micros(m.At), micros(m.ExpiresAt)
	return m, nil
}

// Lapsed reports whether the move comes too late for the proposal, which is
// then to be stored as expired.
func (m *ProposalMove) Lapsed(p *Proposal) bool {
	return m.To != ProposalExpired && m.To != ProposalCancelled && p.StateAt(m.At) == ProposalExpired && p.State != ProposalExpired
}

// PrepareChunk makes the row fit to be stored, or says why it is not.
func PrepareChunk(c ChunkRow, now time.Time) (ChunkRow, error) {
	if c.RunID == "" || len(c.RunID) > maxName || valid(c.RunID) != c.RunID {
		return c, fmt.Errorf("audit: chunk of run %q (want a run id of at most %d bytes)", cut(valid(c.RunID), 100), maxName)
	}
	if c.Time.IsZero() {
		c.Time = now
	}
	c.Time = micros(c.Time)
	c.ID, c.Type = cut(valid(c.ID), maxName), cordon.ChunkType(cut(valid(string(c.Type)), maxName))
	c.Source = clean(c.Source, maxName)
	if c.Segment == nil {
		c.Segment = []byte{}
	}
	if c.Trust > cordon.Trusted {
		c.Trust = cordon.Untrusted
	}
	return c, nil
}

func micros(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// Visible escapes the characters of s that do not show or that change how
// others are shown, as \u{hex}: what a person approves must be what they see.
// Line breaks are escaped too.
func Visible(s string) string {
	if !strings.ContainsFunc(s, Hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Hidden(r) {
			fmt.Fprintf(&b, "\\u{%x}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hidden reports whether a character does not show, or changes how others
// are shown.
func Hidden(r rune) bool {
	if r < 0x7f {
		return r < 0x20
	}
	// U+2800 and the fillers count as letters or symbols, and show nothing.
	return !unicode.IsPrint(r) || r == 0x2800 || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Hash is the digest of what of the proposal never changes, which the hashes
// of its events cover.
func (p *Proposal) Hash() string {
	e := newEncoder("cordon proposal 1")
	e.text(p.ID, p.TenantID, p.RunID, p.AgentID, p.Server, p.Tool, p.ArgsHash, p.ToolHash, p.PolicyHash, p.Args)
	e.number(uint64(p.ArgsBytes))
	e.text(p.Reason, FormatTime(p.CreatedAt))
	e.number(uint64(len(p.Chunks)))
	e.text(p.Chunks...)
	return e.sum()
}

// Hash is the RowHash that the event must have, given its proposal's hash.
func (v *ProposalEvent) Hash(proposalHash string) string {
	e := newEncoder("cordon proposal event 1")
	e.text(v.PrevHash, proposalHash)
	e.number(uint64(v.Seq))
	e.text(v.ProposalID, string(v.State), FormatTime(v.At), v.By, v.Why, FormatTime(v.ExpiresAt))
	return e.sum()
}

// Link makes the event the successor of h and returns the new head.
func (v *ProposalEvent) Link(h Head, proposalHash string) Head {
	v.Seq, v.PrevHash = h.Seq+1, h.Hash
	v.RowHash = v.Hash(proposalHash)
	return Head{v.Seq, v.RowHash}
}

// Event is the first event of the proposal, which makes it pending.
func (p *Proposal) Event(by string) ProposalEvent {
	return ProposalEvent{ProposalID: p.ID, State: p.State, At: p.CreatedAt, By: by, ExpiresAt: p.ExpiresAt}
}

// Apply makes the change to the proposal and returns its event.
func (m *ProposalMove) Apply(p *Proposal) ProposalEvent {
	p.State = m.To
	if !m.ExpiresAt.IsZero() {
		p.ExpiresAt = m.ExpiresAt
	}
	return ProposalEvent{ProposalID: p.ID, State: m.To, At: m.At, By: m.By, Why: m.Why, ExpiresAt: p.ExpiresAt}
}

// CordonItself is who lets proposals expire.
const CordonItself = "cordon"

// Expiry is the move that stores that p has expired.
func (p *Proposal) Expiry(at time.Time) ProposalMove {
	return ProposalMove{ID: p.ID, From: p.State, To: ProposalExpired, By: CordonItself, At: at}
}

// EventChecker walks the chain of proposal events from its first.
type EventChecker struct {
	c    *Checker
	last Head
	// now is where the events walked so far leave each proposal.
	now map[string]ProposalEvent
}

// Events starts a walk over the proposals' events, whose faults go to the
// checker's result with Seq 0: they lie outside of the chain of violations.
func (c *Checker) Events() *EventChecker {
	return &EventChecker{c: c, last: Head{0, GenesisHash}, now: map[string]ProposalEvent{}}
}

// Event checks the next event, given the hash of its proposal as stored.
func (e *EventChecker) Event(v *ProposalEvent, proposalHash string) {
	before := e.now[v.ProposalID].State
	switch {
	case v.Seq != e.last.Seq+1 || v.PrevHash != e.last.Hash:
		e.fault(v.ProposalID, "an event before number %d was removed, inserted or replaced", v.Seq)
	case v.Hash(proposalHash) != v.RowHash:
		e.fault(v.ProposalID, "event %d or its proposal was changed", v.Seq)
	case before == "" && v.State != ProposalPending, before != "" && !slices.Contains(proposalMoves[before], v.State):
		e.fault(v.ProposalID, "event %d is no change there is: from %q to %q", v.Seq, before, v.State)
	}
	e.last = Head{v.Seq, v.RowHash}
	e.now[v.ProposalID] = *v
}

// Proposal checks that the proposal stands where its last event left it. It
// is called for each proposal, after the events.
func (e *EventChecker) Proposal(p *Proposal) {
	last, ok := e.now[p.ID]
	if !ok || last.State != p.State || !last.ExpiresAt.Equal(p.ExpiresAt) {
		e.fault(p.ID, "its state is not that of its last event")
	}
	delete(e.now, p.ID)
}

// Finish notes events whose proposal is gone.
func (e *EventChecker) Finish() {
	for id := range e.now {
		e.fault(id, "it was removed")
	}
}

func (e *EventChecker) fault(id, format string, args ...any) {
	e.c.Result.Add(0, id, fmt.Sprintf("proposal %s: "+format, append([]any{id}, args...)...))
}
