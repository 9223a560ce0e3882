// Package audittest is an audit.Store in memory for tests, which can be made
// to fail. It keeps the promises of the interface within one process, and
// writes nothing: it is no store for anything that matters.
package audittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

// Store is an audit.Store in memory; the zero value is empty.
type Store struct {
	mu sync.Mutex // guards all below
	// fail, where set, is asked before each method that can fail.
	fail   func(op string) error
	runs   map[string]audit.RunRow
	rows   []audit.Violation
	counts map[audit.Counter]int64
	usage  map[string]audit.Usage
	kills  []audit.Kill
	pins   []audit.Pin
	gen    uint64

	proposals []audit.Proposal
	events    []audit.ProposalEvent
	chunks    map[string][]audit.ChunkRow // by run
}

var _ audit.Store = (*Store)(nil)

// FailWith makes every later method return what fail says for its name
// ("Record", "Kill", …); nil lets it pass. A nil fail ends that.
func (s *Store) FailWith(fail func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// Counts is a copy of what was counted.
func (s *Store) Counts() map[audit.Counter]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[audit.Counter]int64, len(s.counts))
	for c, n := range s.counts {
		m[c] = n
	}
	return m
}

// enter locks, and returns the unlock and the failure.
func (s *Store) enter(ctx context.Context, op string) (leave func(), err error) {
	s.mu.Lock()
	if s.runs == nil {
		s.runs, s.usage = make(map[string]audit.RunRow), make(map[string]audit.Usage)
		s.counts = make(map[audit.Counter]int64)
	}
	if err = context.Cause(ctx); err == nil && s.fail != nil {
		err = s.fail(op)
	}
	return s.mu.Unlock, err
}

func (s *Store) openRun(r audit.RunRow) audit.RunRow {
	if old, ok := s.runs[r.RunID]; ok {
		return old
	}
	s.runs[r.RunID] = r
	return r
}

func (s *Store) OpenRun(ctx context.Context, r audit.RunRow) (audit.RunRow, error) {
	leave, err := s.enter(ctx, "OpenRun")
	defer leave()
	if err != nil {
		return r, err
	}
	if r, err = audit.PrepareRun(r, time.Now()); err != nil {
		return r, err
	}
	return s.openRun(r), nil
}

func (s *Store) Run(ctx context.Context, id string) (audit.RunRow, bool, error) {
	leave, err := s.enter(ctx, "Run")
	defer leave()
	r, ok := s.runs[id]
	return r, ok && err == nil, err
}

func (s *Store) Record(ctx context.Context, r audit.RunRow, vs []audit.Violation) error {
	leave, err := s.enter(ctx, "Record")
	defer leave()
	if err != nil || len(vs) == 0 {
		return err
	}
	now := time.Now()
	if r, err = audit.PrepareRun(r, now); err != nil {
		return err
	}
	rows := make([]audit.Violation, len(vs))
	for i, v := range vs {
		if rows[i], err = audit.Prepare(r, v, now); err != nil {
			return err
		}
	}
	standing := s.openRun(r)
	h := s.head()
	for _, v := range rows {
		h = v.Link(h, standing.Hash())
		s.rows = append(s.rows, v)
		if v.Killed {
			s.kill(audit.Kill{RunID: v.RunID, TenantID: v.TenantID, SessionID: v.SessionID, At: v.Timestamp, Rule: v.Type})
		}
	}
	return nil
}

func (s *Store) head() audit.Head {
	if len(s.rows) == 0 {
		return audit.Head{Hash: audit.GenesisHash}
	}
	last := s.rows[len(s.rows)-1]
	return audit.Head{Seq: last.Seq, Hash: last.RowHash}
}

func (s *Store) Count(c audit.Counter, n int64) {
	leave, _ := s.enter(context.Background(), "Count")
	defer leave()
	s.counts[c] += n
}

func (s *Store) AddUsage(u audit.Usage) {
	leave, _ := s.enter(context.Background(), "AddUsage")
	defer leave()
	if u.RunID == "" {
		return
	}
	o := s.usage[u.RunID]
	s.usage[u.RunID] = audit.Usage{RunID: u.RunID, ToolCalls: o.ToolCalls + u.ToolCalls, ExecSeconds: o.ExecSeconds + u.ExecSeconds,
		BytesWritten: o.BytesWritten + u.BytesWritten, CostUSD: o.CostUSD + u.CostUSD}
}

func (s *Store) Usage(ctx context.Context, id string) (audit.Usage, error) {
	leave, err := s.enter(ctx, "Usage")
	defer leave()
	u := s.usage[id]
	u.RunID = id
	return u, err
}

func (s *Store) standing(id string) int {
	return slices.IndexFunc(s.kills, func(k audit.Kill) bool { return k.RunID == id && k.ReleasedAt.IsZero() })
}

func (s *Store) kill(k audit.Kill) {
	s.gen++
	if s.standing(k.RunID) < 0 {
		s.kills = append(s.kills, k)
	}
}

func (s *Store) Kill(ctx context.Context, k audit.Kill) error {
	leave, err := s.enter(ctx, "Kill")
	defer leave()
	if err == nil && k.RunID == "" {
		err = errors.New("audittest: kill without a run id")
	}
	if err == nil {
		s.kill(k)
	}
	return err
}

func (s *Store) Kills(ctx context.Context) ([]audit.Kill, error) {
	leave, err := s.enter(ctx, "Kills")
	defer leave()
	var ks []audit.Kill
	for _, k := range s.kills {
		if k.ReleasedAt.IsZero() {
			ks = append(ks, k)
		}
	}
	return ks, err
}

func (s *Store) Release(ctx context.Context, id, by, why string) error {
	leave, err := s.enter(ctx, "Release")
	defer leave()
	if err != nil {
		return err
	}
	i := s.standing(id)
	switch {
	case why == "":
		return errors.New("audittest: release without a reason")
	case i < 0:
		return fmt.Errorf("%w: %q", audit.ErrNotKilled, id)
	}
	s.gen++
	s.kills[i].ReleasedAt, s.kills[i].ReleasedBy, s.kills[i].Why = time.Now(), by, why
	return nil
}

func (s *Store) KillGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gen
}

func (s *Store) pin(server, tool string) *audit.Pin {
	i := slices.IndexFunc(s.pins, func(p audit.Pin) bool { return p.Server == server && p.Tool == tool })
	if i < 0 {
		return nil
	}
	return &s.pins[i]
}

func (s *Store) Pins(ctx context.Context, server string) ([]audit.Pin, error) {
	leave, err := s.enter(ctx, "Pins")
	defer leave()
	var ps []audit.Pin
	for _, p := range s.pins {
		if server == "*" || p.Server == server {
			ps = append(ps, p)
		}
	}
	return ps, err
}

func (s *Store) SetPin(ctx context.Context, p audit.Pin) (audit.Pin, error) {
	leave, err := s.enter(ctx, "SetPin")
	defer leave()
	if err != nil {
		return p, err
	}
	if p.Tool == "" || p.Hash == "" {
		return p, errors.New("audittest: pin without a tool or a hash")
	}
	if p.ApprovedAt.IsZero() {
		p.ApprovedAt = time.Now()
	}
	old := s.pin(p.Server, p.Tool)
	switch {
	case old == nil:
		p.PendingHash, p.PendingDefinition, p.PendingAt = "", "", time.Time{}
		s.pins = append(s.pins, p)
		return p, nil
	case old.Hash == p.Hash:
		old.PendingHash, old.PendingDefinition, old.PendingAt = "", "", time.Time{}
	case old.PendingHash != p.Hash:
		old.PendingHash, old.PendingDefinition, old.PendingAt = p.Hash, p.Definition, p.ApprovedAt
	}
	return *old, nil
}

func (s *Store) ApprovePin(ctx context.Context, server, tool, hash string) error {
	leave, err := s.enter(ctx, "ApprovePin")
	defer leave()
	if err != nil {
		return err
	}
	p := s.pin(server, tool)
	if p == nil || hash == "" || p.PendingHash != hash {
		return fmt.Errorf("%w: tool %q of server %q", audit.ErrPinChanged, tool, server)
	}
	p.Hash, p.Definition, p.ApprovedAt = p.PendingHash, p.PendingDefinition, time.Now()
	p.PendingHash, p.PendingDefinition, p.PendingAt = "", "", time.Time{}
	return nil
}

// Runs knows of the filter RunID, SessionID and Tier only.
func (s *Store) Runs(ctx context.Context, f audit.RunFilter) ([]audit.RunSummary, error) {
	leave, err := s.enter(ctx, "Runs")
	defer leave()
	var out []audit.RunSummary
	for _, r := range s.runs {
		if matches(f.RunID, r.RunID) && matches(f.SessionID, r.SessionID) && matches(f.Tier, r.Tier) {
			out = append(out, audit.RunSummary{RunRow: r, Killed: s.standing(r.RunID) >= 0})
		}
	}
	return out, err
}

func matches(want, got string) bool { return want == "" || want == got }

// Violations knows of the filter's RunID, Tool, Phase, Type, Decision and
// AfterSeq only.
func (s *Store) Violations(ctx context.Context, f audit.Filter) ([]audit.Violation, error) {
	leave, err := s.enter(ctx, "Violations")
	defer leave()
	var out []audit.Violation
	for _, v := range s.rows {
		if v.Seq > f.AfterSeq && matches(f.RunID, v.RunID) && matches(f.Tool, v.ToolName) && matches(f.Phase, v.Phase) &&
			matches(f.Type, v.Type) && matches(f.Decision, v.Decision) {
			out = append(out, v)
		}
	}
	return out, err
}

// Report has totals only, and no filter.
func (s *Store) Report(ctx context.Context, _ audit.ReportFilter) (r audit.Report, err error) {
	leave, err := s.enter(ctx, "Report")
	defer leave()
	for c, n := range s.counts {
		if c.Outcome == "allowed" {
			r.Allowed += n
		}
	}
	for _, v := range s.rows {
		if v.Decision == "blocked" {
			r.Blocked++
		} else {
			r.Restricted++
		}
		if v.Enforced {
			r.Refused++
		} else {
			r.WouldRefuse++
		}
	}
	r.Total = r.Allowed + r.Restricted + r.Blocked
	return r, err
}

func (s *Store) Head(ctx context.Context) (audit.Head, error) {
	leave, err := s.enter(ctx, "Head")
	defer leave()
	return s.head(), err
}

func (s *Store) Verify(ctx context.Context, known ...audit.Head) (audit.VerifyResult, error) {
	leave, err := s.enter(ctx, "Verify")
	defer leave()
	if err != nil {
		return audit.VerifyResult{}, err
	}
	c := audit.NewChecker(known)
	for i := range s.rows {
		r := s.runs[s.rows[i].RunID]
		c.Row(&s.rows[i], r.Hash())
	}
	e := c.Events()
	for i := range s.events {
		e.Event(&s.events[i], s.proposal(s.events[i].ProposalID).Hash())
	}
	for i := range s.proposals {
		e.Proposal(&s.proposals[i])
	}
	e.Finish()
	return c.Finish(s.head()), nil
}

func (s *Store) Flush(ctx context.Context) error {
	leave, err := s.enter(ctx, "Flush")
	defer leave()
	return err
}

func (s *Store) Close() error {
	leave, err := s.enter(context.Background(), "Close")
	defer leave()
	return err
}
