package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/cordon-sandbox/cordon/audit"
)

var bounds = audit.ProposalBounds{PerRun: 8, PerTenant: 64}

func proposal(id, run, args string) audit.Proposal {
	now := time.Now()
	return audit.Proposal{ID: id, Binding: audit.Binding{TenantID: "t", RunID: run, Tool: "send", ArgsHash: args, PolicyHash: "p"},
		Args: `{"to":"x"}`, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}
}

func propose(t testing.TB, s *Store, p audit.Proposal) audit.Proposal {
	t.Helper()
	got, _, err := s.AddProposal(t.Context(), p, bounds)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func move(t testing.TB, s *Store, id string, from, to audit.ProposalState) bool {
	t.Helper()
	_, moved, err := s.MoveProposal(t.Context(), audit.ProposalMove{ID: id, From: from, To: to, By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

func TestAProposalIsSeenByOtherProcessesAndAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	a, b := open(t, path), open(t, path)
	propose(t, a, proposal("p1", "r1", "x"))
	if got := propose(t, b, proposal("p2", "r1", "x")); got.ID != "p1" {
		t.Errorf("the other process made %s of the same call", got.ID)
	}
	if !move(t, b, "p1", audit.ProposalPending, audit.ProposalApproved) || !move(t, a, "p1", audit.ProposalApproved, audit.ProposalExecuted) {
		t.Error("not moved")
	}
	c := open(t, path)
	if p, ok, err := c.Proposal(t.Context(), "p1"); err != nil || !ok || p.State != audit.ProposalExecuted {
		t.Error(p, ok, err)
	}
	if move(t, c, "p1", audit.ProposalApproved, audit.ProposalExecuted) {
		t.Error("taken up twice")
	}
	if r := verify(t, c); !r.OK {
		t.Error(r)
	}
}

func TestOfManyWhoMoveAProposalOneDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	stores := []*Store{open(t, path), open(t, path), open(t, path)}
	propose(t, stores[0], proposal("p1", "r1", "x"))
	move(t, stores[0], "p1", audit.ProposalPending, audit.ProposalApproved)
	var wg sync.WaitGroup
	moved := make([]bool, 12)
	for i := range moved {
		wg.Go(func() { moved[i] = move(t, stores[i%3], "p1", audit.ProposalApproved, audit.ProposalExecuted) })
	}
	wg.Wait()
	n := 0
	for _, m := range moved {
		if m {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d took it", n)
	}
	if vs, err := stores[0].ProposalEvents(t.Context(), "p1"); err != nil || len(vs) != 3 {
		t.Error(vs, err)
	}
}

func TestOfManyWhoProposeTheSameOneDoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	stores := []*Store{open(t, path), open(t, path)}
	var wg sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		wg.Go(func() { ids[i] = propose(t, stores[i%2], proposal(fmt.Sprint("p", i), "r1", "x")).ID })
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatal(ids)
		}
	}
	if ps, err := stores[0].Proposals(t.Context(), audit.ProposalFilter{}); err != nil || len(ps) != 1 {
		t.Error(len(ps), err)
	}
}

func TestVerifyNoticesWhatWasDoneToProposals(t *testing.T) {
	const insert = `INSERT INTO proposals SELECT 'p9', tenant_id, run_id, agent_id, server, tool, 'other', tool_hash, policy_hash, args,
		args_bytes, reason, chunks, created_at, 'approved', expires_at FROM proposals WHERE id = 'p1'`
	tests := []struct{ name, sql, want string }{
		{"approved behind everybody's back", "UPDATE proposals SET state = 'approved' WHERE id = 'p2'", "p2: its state"},
		{"its time made longer", "UPDATE proposals SET expires_at = '2999-01-01T00:00:00.000000Z' WHERE id = 'p2'", "p2: its state"},
		{"other arguments put under an approval", "UPDATE proposals SET args_hash = 'y' WHERE id = 'p1'", "p1: event 1 or its proposal"},
		{"another text shown", "UPDATE proposals SET args = '{}' WHERE id = 'p1'", "p1: event 1 or its proposal"},
		{"another name on an approval", "UPDATE proposal_events SET actor = 'bob' WHERE state = 'approved'", "p1: event 3"},
		{"an approval removed", "DELETE FROM proposal_events WHERE state = 'approved'", "p1: its state"},
		{"an event from the middle removed", "DELETE FROM proposal_events WHERE seq = 1", "before number 2"},
		{"a proposal put in", insert, "p9: its state"},
		{"a proposal removed", "DELETE FROM proposals WHERE id = 'p1'", "p1: it was removed"},
		{"a column of another type", "PRAGMA writable_schema = 1; UPDATE proposals SET created_at = 'yesterday' WHERE id = 'p1'", "was changed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fresh(t)
			propose(t, s, proposal("p1", "r1", "x"))
			propose(t, s, proposal("p2", "r1", "y"))
			move(t, s, "p1", audit.ProposalPending, audit.ProposalApproved)
			if r := verify(t, s); !r.OK {
				t.Fatal(r)
			}
			tamper(t, s, tt.sql)
			r := verify(t, s)
			if r.OK {
				t.Fatal("nothing was noticed")
			}
			var all []string
			for _, f := range r.Faults {
				all = append(all, f.Reason)
			}
			if got := strings.Join(all, "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("faults lack %q:\n%s", tt.want, got)
			}
		})
	}
}

func TestAFileOfTheFirstVersionIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	record(t, s, runRow("r1"), blocked("Bash", "x"))
	propose(t, s, proposal("p1", "r1", "x"))
	if r := verify(t, s); !r.OK || r.Rows != 1 {
		t.Error(r)
	}
}

func TestTooManyPendingProposalsAreAnErrorAndNoneIsDropped(t *testing.T) {
	s := fresh(t)
	for i := range bounds.PerRun {
		propose(t, s, proposal(fmt.Sprint("p", i), "r1", fmt.Sprint(i)))
	}
	if _, _, err := s.AddProposal(t.Context(), proposal("more", "r1", "more"), bounds); !errors.Is(err, audit.ErrTooManyProposals) {
		t.Error(err)
	}
	if ps, err := s.Proposals(t.Context(), audit.ProposalFilter{State: audit.ProposalPending}); err != nil || len(ps) != bounds.PerRun {
		t.Error(len(ps), err)
	}
	if got := propose(t, s, proposal("again", "r1", "0")); got.ID != "p0" {
		t.Errorf("the same call makes %s", got.ID)
	}
}

func BenchmarkAddChunk(b *testing.B) {
	s := fresh(b)
	seg := make([]byte, 10<<10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if err := s.AddChunks(b.Context(), 8<<20, audit.ChunkRow{RunID: "r", ID: fmt.Sprint(i), Segment: seg}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTakeUp(b *testing.B) {
	s := fresh(b)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		id := fmt.Sprint("p", i)
		propose(b, s, proposal(id, id, "x"))
		move(b, s, id, audit.ProposalPending, audit.ProposalApproved)
		move(b, s, id, audit.ProposalApproved, audit.ProposalExecuted)
	}
}
