package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

const (
	proposalColumns = `id, tenant_id, run_id, agent_id, server, tool, args_hash, tool_hash, policy_hash, args, args_bytes,
		reason, chunks, created_at, state, expires_at`
	eventColumns = "seq, proposal_id, state, at, actor, why, expires_at, prev_hash, row_hash"
)

// idList scans what json.Marshal made of a list of strings.
type idList struct{ ids *[]string }

func (l idList) Scan(src any) error {
	s, ok := src.(string)
	if !ok {
		return fmt.Errorf("list of type %T (want text)", src)
	}
	return json.Unmarshal([]byte(s), l.ids)
}

func proposalDest(p *audit.Proposal) []any {
	return []any{&p.ID, &p.TenantID, &p.RunID, &p.AgentID, &p.Server, &p.Tool, &p.ArgsHash, &p.ToolHash, &p.PolicyHash, &p.Args,
		&p.ArgsBytes, &p.Reason, idList{&p.Chunks}, timeText{&p.CreatedAt}, &p.State, timeText{&p.ExpiresAt}}
}

func eventDest(v *audit.ProposalEvent) []any {
	return []any{&v.Seq, &v.ProposalID, &v.State, timeText{&v.At}, &v.By, &v.Why, timeText{&v.ExpiresAt}, &v.PrevHash, &v.RowHash}
}

// AddProposal implements audit.Store.
func (s *Store) AddProposal(ctx context.Context, p audit.Proposal, b audit.ProposalBounds) (audit.Proposal, bool, error) {
	p, err := audit.PrepareProposal(p, time.Now())
	if err != nil {
		return p, false, s.fail("propose", err)
	}
	chunks, err := json.Marshal(p.Chunks)
	if err != nil {
		return p, false, s.fail("propose", err)
	}
	// Written by the writer, which may still be at it when ctx ends: they are
	// read only where it has answered.
	var standing audit.Proposal
	var made bool
	err = s.submit(ctx, "propose", func(tx *tx) (err error) {
		if err := tx.expire(&p); err != nil {
			return err
		}
		if standing, made, err = tx.sameProposal(&p); err != nil || !made {
			return err
		}
		if err := tx.boundProposals(&p, b); err != nil {
			return err
		}
		err = tx.exec(tx.ctx, "INSERT INTO proposals ("+proposalColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			p.ID, p.TenantID, p.RunID, p.AgentID, p.Server, p.Tool, p.ArgsHash, p.ToolHash, p.PolicyHash, p.Args, p.ArgsBytes,
			p.Reason, string(chunks), audit.FormatTime(p.CreatedAt), string(p.State), audit.FormatTime(p.ExpiresAt))
		if err != nil {
			return fmt.Errorf("store proposal: %w", err)
		}
		standing = p
		return tx.appendEvent(p.Event(audit.CordonItself), p.Hash())
	})
	if err != nil {
		return p, false, err
	}
	return standing, made, nil
}

// maxExpire bounds how many proposals one transaction lets expire.
const maxExpire = 256

// expire stores that proposals of p's tenant have expired by now.
func (tx *tx) expire(p *audit.Proposal) error {
	st, err := tx.prepared(tx.ctx, "SELECT "+proposalColumns+` FROM proposals WHERE tenant_id = ? AND state IN ('pending', 'approved')
		AND expires_at <= ? LIMIT ?`)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(tx.ctx, p.TenantID, audit.FormatTime(p.CreatedAt), maxExpire)
	if err != nil {
		return err
	}
	var old []audit.Proposal
	for rows.Next() && err == nil {
		old = append(old, audit.Proposal{})
		err = rows.Scan(proposalDest(&old[len(old)-1])...)
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return fmt.Errorf("read expired proposals: %w", err)
	}
	for i := range old {
		m := old[i].Expiry(p.CreatedAt)
		if err := tx.moveProposal(&old[i], &m); err != nil {
			return err
		}
	}
	return nil
}

// sameProposal finds the proposal that answers for p already; none says that
// there is none.
func (tx *tx) sameProposal(p *audit.Proposal) (same audit.Proposal, none bool, err error) {
	found, err := tx.row(tx.ctx, "SELECT "+proposalColumns+` FROM proposals
		WHERE run_id = ? AND state IN ('pending', 'approved', 'rejected') AND expires_at > ? AND tenant_id = ? AND agent_id = ?
			AND server = ? AND tool = ? AND args_hash = ? AND tool_hash = ? AND policy_hash = ?
		ORDER BY state LIMIT 1`, // an approved one before a pending before a rejected
		[]any{p.RunID, audit.FormatTime(p.CreatedAt), p.TenantID, p.AgentID, p.Server, p.Tool, p.ArgsHash, p.ToolHash, p.PolicyHash},
		proposalDest(&same)...)
	return same, !found, err
}

func (tx *tx) boundProposals(p *audit.Proposal, b audit.ProposalBounds) error {
	var run, tenant int
	_, err := tx.row(tx.ctx, `SELECT (SELECT count(*) FROM proposals WHERE run_id = ?1 AND state = 'pending' AND expires_at > ?3),
		(SELECT count(*) FROM proposals WHERE tenant_id = ?2 AND state = 'pending' AND expires_at > ?3)`,
		[]any{p.RunID, p.TenantID, audit.FormatTime(p.CreatedAt)}, &run, &tenant)
	switch {
	case err != nil:
		return err
	case run >= b.PerRun:
		return fmt.Errorf("%w: %d of run %q", audit.ErrTooManyProposals, run, p.RunID)
	case tenant >= b.PerTenant:
		return fmt.Errorf("%w: %d of tenant %q", audit.ErrTooManyProposals, tenant, p.TenantID)
	}
	return nil
}

// moveProposal makes the change, whose conditions hold.
func (tx *tx) moveProposal(p *audit.Proposal, m *audit.ProposalMove) error {
	v := m.Apply(p)
	n, err := tx.changes(tx.ctx, "UPDATE proposals SET state = ?, expires_at = ? WHERE id = ? AND state = ?",
		string(p.State), audit.FormatTime(p.ExpiresAt), p.ID, string(m.From))
	if err == nil && n != 1 {
		err = errors.New("its state changed within the transaction")
	}
	if err != nil {
		return fmt.Errorf("store state of proposal %s: %w", p.ID, err)
	}
	return tx.appendEvent(v, p.Hash())
}

// appendEvent links the event to the end of the events' chain. The end is
// read each time: what ends the table is its head.
func (tx *tx) appendEvent(v audit.ProposalEvent, proposalHash string) error {
	head := audit.Head{Hash: audit.GenesisHash}
	if _, err := tx.row(tx.ctx, "SELECT seq, row_hash FROM proposal_events ORDER BY seq DESC LIMIT 1", nil, &head.Seq, &head.Hash); err != nil {
		return fmt.Errorf("read the end of the proposals' events: %w", err)
	}
	v.Link(head, proposalHash)
	err := tx.exec(tx.ctx, "INSERT INTO proposal_events ("+eventColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		v.Seq, v.ProposalID, string(v.State), audit.FormatTime(v.At), v.By, v.Why, audit.FormatTime(v.ExpiresAt), v.PrevHash, v.RowHash)
	if err != nil {
		return fmt.Errorf("store event of proposal %s: %w", v.ProposalID, err)
	}
	return nil
}

// MoveProposal implements audit.Store.
func (s *Store) MoveProposal(ctx context.Context, m audit.ProposalMove) (audit.Proposal, bool, error) {
	m, err := audit.PrepareMove(m, time.Now())
	if err != nil {
		return audit.Proposal{}, false, s.fail("move proposal", err)
	}
	var p audit.Proposal // as in AddProposal
	var moved bool
	err = s.submit(ctx, "move proposal", func(tx *tx) error {
		p, moved = audit.Proposal{}, false
		found, err := tx.row(tx.ctx, "SELECT "+proposalColumns+" FROM proposals WHERE id = ?", []any{m.ID}, proposalDest(&p)...)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("%w: %q", audit.ErrNoProposal, m.ID)
		case p.State != m.From:
			return nil
		case m.Lapsed(&p):
			late := p.Expiry(m.At)
			return tx.moveProposal(&p, &late)
		}
		moved = true
		return tx.moveProposal(&p, &m)
	})
	if err != nil {
		return audit.Proposal{}, false, err
	}
	return p, moved, nil
}

// Proposal implements audit.Store.
func (s *Store) Proposal(ctx context.Context, id string) (p audit.Proposal, ok bool, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT "+proposalColumns+" FROM proposals WHERE id = ?", id).Scan(proposalDest(&p)...)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Proposal{}, false, nil
	}
	if err != nil {
		return audit.Proposal{}, false, s.fail("read proposal", err)
	}
	return p, true, nil
}

// Proposals implements audit.Store.
func (s *Store) Proposals(ctx context.Context, f audit.ProposalFilter) (ps []audit.Proposal, err error) {
	var w where
	w.text("run_id", f.RunID)
	w.text("tenant_id", f.TenantID)
	w.text("agent_id", f.AgentID)
	w.text("state", string(f.State))
	w.period("created_at", f.Since, time.Time{})
	q := "SELECT " + proposalColumns + " FROM proposals" + w.String() + " ORDER BY created_at DESC, id LIMIT ?"
	err = each(ctx, s.db, q, append(w.args, limit(f.Limit)), func(r *sql.Rows) error {
		ps = append(ps, audit.Proposal{})
		return r.Scan(proposalDest(&ps[len(ps)-1])...)
	})
	return ps, s.fail("read proposals", err)
}

// ProposalEvents implements audit.Store.
func (s *Store) ProposalEvents(ctx context.Context, id string) (vs []audit.ProposalEvent, err error) {
	const q = "SELECT " + eventColumns + " FROM proposal_events WHERE proposal_id = ? ORDER BY seq"
	err = each(ctx, s.db, q, []any{id}, func(r *sql.Rows) error {
		vs = append(vs, audit.ProposalEvent{})
		return r.Scan(eventDest(&vs[len(vs)-1])...)
	})
	return vs, s.fail("read proposal events", err)
}

func verifyProposals(ctx context.Context, db querier, c *audit.Checker) error {
	hashes := map[string]string{}
	var ps []audit.Proposal
	err := each(ctx, db, "SELECT "+proposalColumns+" FROM proposals", nil, func(r *sql.Rows) error {
		var p audit.Proposal
		if err := r.Scan(proposalDest(&p)...); err != nil {
			c.Result.Add(0, p.ID, fmt.Sprintf("proposal %q was changed: %v", p.ID, err))
			return nil
		}
		hashes[p.ID] = p.Hash()
		ps = append(ps, audit.Proposal{ID: p.ID, State: p.State, ExpiresAt: p.ExpiresAt})
		return nil
	})
	if err != nil {
		return err
	}
	e := c.Events()
	err = each(ctx, db, "SELECT "+eventColumns+" FROM proposal_events ORDER BY seq", nil, func(r *sql.Rows) error {
		var v audit.ProposalEvent
		if err := r.Scan(eventDest(&v)...); err != nil {
			c.Result.Add(0, v.ProposalID, fmt.Sprintf("event %d of proposal %q was changed: %v", v.Seq, v.ProposalID, err))
			return nil
		}
		e.Event(&v, hashes[v.ProposalID])
		return nil
	})
	if err != nil {
		return err
	}
	for i := range ps {
		e.Proposal(&ps[i])
	}
	e.Finish()
	return nil
}
