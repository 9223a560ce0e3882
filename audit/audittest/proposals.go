package audittest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

func (s *Store) AddProposal(ctx context.Context, p audit.Proposal, b audit.ProposalBounds) (audit.Proposal, bool, error) {
	leave, err := s.enter(ctx, "AddProposal")
	defer leave()
	if err != nil {
		return p, false, err
	}
	if p, err = audit.PrepareProposal(p, time.Now()); err != nil {
		return p, false, err
	}
	if s.proposal(p.ID) != nil {
		return p, false, fmt.Errorf("audittest: proposal %q is there already", p.ID)
	}
	var same *audit.Proposal
	run, tenant := 0, 0
	for i := range s.proposals {
		o := &s.proposals[i]
		if o.TenantID == p.TenantID && o.StateAt(p.CreatedAt) != o.State {
			s.move(o, o.Expiry(p.CreatedAt))
		}
		standing := o.State == audit.ProposalPending || o.State == audit.ProposalApproved || o.State == audit.ProposalRejected
		if standing && o.Binding == p.Binding && o.ExpiresAt.After(p.CreatedAt) && (same == nil || o.State < same.State) {
			same = o
		}
		if o.StateAt(p.CreatedAt) == audit.ProposalPending {
			if o.RunID == p.RunID {
				run++
			}
			if o.TenantID == p.TenantID {
				tenant++
			}
		}
	}
	if same != nil {
		return *same, false, nil
	}
	if run >= b.PerRun || tenant >= b.PerTenant {
		return p, false, fmt.Errorf("%w: %d of run %q, %d of tenant %q", audit.ErrTooManyProposals, run, p.RunID, tenant, p.TenantID)
	}
	s.proposals = append(s.proposals, p)
	s.event(p.Event(audit.CordonItself), p.Hash())
	return p, true, nil
}

func (s *Store) proposal(id string) *audit.Proposal {
	i := slices.IndexFunc(s.proposals, func(p audit.Proposal) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &s.proposals[i]
}

func (s *Store) move(p *audit.Proposal, m audit.ProposalMove) { s.event(m.Apply(p), p.Hash()) }

func (s *Store) event(v audit.ProposalEvent, proposalHash string) {
	head := audit.Head{Hash: audit.GenesisHash}
	if n := len(s.events); n > 0 {
		head = audit.Head{Seq: s.events[n-1].Seq, Hash: s.events[n-1].RowHash}
	}
	v.Link(head, proposalHash)
	s.events = append(s.events, v)
}

func (s *Store) MoveProposal(ctx context.Context, m audit.ProposalMove) (audit.Proposal, bool, error) {
	leave, err := s.enter(ctx, "MoveProposal")
	defer leave()
	if err != nil {
		return audit.Proposal{}, false, err
	}
	if m, err = audit.PrepareMove(m, time.Now()); err != nil {
		return audit.Proposal{}, false, err
	}
	p := s.proposal(m.ID)
	switch {
	case p == nil:
		return audit.Proposal{}, false, fmt.Errorf("%w: %q", audit.ErrNoProposal, m.ID)
	case p.State != m.From:
		return *p, false, nil
	case m.Lapsed(p):
		s.move(p, p.Expiry(m.At))
		return *p, false, nil
	}
	s.move(p, m)
	return *p, true, nil
}

func (s *Store) Proposal(ctx context.Context, id string) (audit.Proposal, bool, error) {
	leave, err := s.enter(ctx, "Proposal")
	defer leave()
	p := s.proposal(id)
	if err != nil || p == nil {
		return audit.Proposal{}, false, err
	}
	return *p, true, nil
}

func (s *Store) Proposals(ctx context.Context, f audit.ProposalFilter) ([]audit.Proposal, error) {
	leave, err := s.enter(ctx, "Proposals")
	defer leave()
	var out []audit.Proposal
	for _, p := range s.proposals {
		if matches(f.RunID, p.RunID) && matches(f.TenantID, p.TenantID) && matches(f.AgentID, p.AgentID) &&
			matches(string(f.State), string(p.State)) && !p.CreatedAt.Before(f.Since) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b audit.Proposal) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[:f.Limit]
	}
	return out, err
}

func (s *Store) ProposalEvents(ctx context.Context, id string) ([]audit.ProposalEvent, error) {
	leave, err := s.enter(ctx, "ProposalEvents")
	defer leave()
	var out []audit.ProposalEvent
	for _, v := range s.events {
		if v.ProposalID == id {
			out = append(out, v)
		}
	}
	return out, err
}

func (s *Store) AddChunks(ctx context.Context, keep int64, cs ...audit.ChunkRow) error {
	leave, err := s.enter(ctx, "AddChunks")
	defer leave()
	rows := make([]audit.ChunkRow, len(cs))
	for i, c := range cs {
		if err == nil {
			rows[i], err = audit.PrepareChunk(c, time.Now())
		}
	}
	if err != nil {
		return err
	}
	if s.chunks == nil {
		s.chunks = map[string][]audit.ChunkRow{}
	}
	for _, c := range rows {
		s.addChunk(c, keep)
	}
	return nil
}

func (s *Store) addChunk(c audit.ChunkRow, keep int64) {
	kept := s.chunks[c.RunID]
	known := func(o audit.ChunkRow) bool {
		return c.ID != "" && o.ID == c.ID && o.Trust == c.Trust && bytes.Equal(o.Segment, c.Segment)
	}
	if slices.ContainsFunc(kept, known) {
		return
	}
	c.Seq = 1
	if n := len(kept); n > 0 {
		c.Seq = kept[n-1].Seq + 1
	}
	c.Segment = bytes.Clone(c.Segment)
	kept = append(kept, c)
	first, size := len(kept)-1, c.Size()
	for first > 0 && size+kept[first-1].Size() <= keep {
		first--
		size += kept[first].Size()
	}
	s.chunks[c.RunID] = slices.Clone(kept[first:])
}

func (s *Store) Chunks(ctx context.Context, runID string, afterSeq int64) ([]audit.ChunkRow, error) {
	leave, err := s.enter(ctx, "Chunks")
	defer leave()
	var out []audit.ChunkRow
	for _, c := range s.chunks[runID] {
		if c.Seq > afterSeq {
			out = append(out, c)
		}
	}
	return out, err
}

func (s *Store) DropChunks(ctx context.Context, before time.Time) (n int64, err error) {
	leave, err := s.enter(ctx, "DropChunks")
	defer leave()
	if err != nil {
		return 0, err
	}
	for run, cs := range s.chunks {
		if !slices.ContainsFunc(cs, func(c audit.ChunkRow) bool { return !c.Time.Before(before) }) {
			n += int64(len(cs))
			delete(s.chunks, run)
		}
	}
	return n, nil
}
