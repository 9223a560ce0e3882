package audittest_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/audittest"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
)

// transcript does the same to any store and notes what it answered.
func transcript(t *testing.T, s audit.Store) (log []any) {
	ctx := t.Context()
	note := func(vs ...any) {
		for _, v := range vs {
			if err, ok := v.(error); ok {
				v = []bool{errors.Is(err, audit.ErrNotKilled), errors.Is(err, audit.ErrPinChanged)} // an error
			}
			log = append(log, v)
		}
	}
	r := audit.RunRow{RunID: "r1", SessionID: "s1", Tier: "intern", CreatedAt: time.Unix(1, 0)}
	got, err := s.OpenRun(ctx, r)
	note(got, err)
	r.Tier = "student"
	got, err = s.OpenRun(ctx, r)
	note(got.Tier, err)
	before := s.KillGeneration()
	note(s.Record(ctx, r, []audit.Violation{
		{ID: "a", Decision: "restricted", ToolName: "Read", Timestamp: time.Unix(2, 0)},
		{ID: "b", Decision: "blocked", ToolName: "Bash", Detail: "password=zebra", Enforced: true, Killed: true, Timestamp: time.Unix(3, 0)},
	}))
	note(s.KillGeneration() != before)
	note(s.Record(ctx, r, []audit.Violation{{Decision: "allowed"}}) != nil)
	vs, err := s.Violations(ctx, audit.Filter{AfterSeq: 1})
	note(vs, err)
	ks, err := s.Kills(ctx)
	note(len(ks), ks[0].RunID, ks[0].SessionID, err)
	note(s.Release(ctx, "r2", "bob", "x"), s.Release(ctx, "r1", "bob", ""), s.Release(ctx, "r1", "bob", "x"))
	ks, err = s.Kills(ctx)
	note(len(ks), err)
	for _, h := range []string{"h1", "h2", "h1", "h3"} {
		p, err := s.SetPin(ctx, audit.Pin{Server: "fs", Tool: "x", Hash: h, Definition: "d" + h})
		note(p, err)
	}
	note(s.ApprovePin(ctx, "fs", "x", "h2"), s.ApprovePin(ctx, "fs", "x", "h3"))
	ps, err := s.Pins(ctx, "*")
	note(ps, err)
	s.AddUsage(audit.Usage{RunID: "r1", ToolCalls: 2})
	s.AddUsage(audit.Usage{RunID: "r1", ToolCalls: 1, CostUSD: 1})
	u, err := s.Usage(ctx, "r1")
	note(u, err)
	s.Count(audit.Counter{Tool: "Read", Outcome: "allowed"}, 4)
	rep, err := s.Report(ctx, audit.ReportFilter{})
	note(rep.Total, rep.Allowed, rep.Refused, rep.WouldRefuse, err)
	proposals(t, s, note)
	chunks(t, s, note)
	v, err := s.Verify(ctx)
	note(v.OK, v.Rows, err)
	return log
}

func proposals(t *testing.T, s audit.Store, note func(...any)) {
	ctx := t.Context()
	at := time.Unix(1000, 0).UTC()
	bounds := audit.ProposalBounds{PerRun: 3, PerTenant: 4}
	propose := func(id, run, args string, after time.Duration) {
		p, made, err := s.AddProposal(ctx, audit.Proposal{
			ID: id, Binding: audit.Binding{TenantID: "t", RunID: run, Tool: "send", ArgsHash: args, PolicyHash: "p"},
			Args: "{\"to\":\"x\u202e\",\"password\":\"zebra\"}", Reason: "api_key=zebra", Chunks: []string{"c1"},
			CreatedAt: at.Add(after), ExpiresAt: at.Add(after + time.Minute),
		}, bounds)
		if err != nil {
			p = audit.Proposal{} // what it then holds is nobody's
		}
		note(p, made, errors.Is(err, audit.ErrTooManyProposals), err)
	}
	move := func(id string, from, to audit.ProposalState, after time.Duration, by string) {
		p, moved, err := s.MoveProposal(ctx, audit.ProposalMove{ID: id, From: from, To: to, By: by, At: at.Add(after)})
		note(p, moved, errors.Is(err, audit.ErrNoProposal), err)
	}
	propose("p1", "r1", "a", 0)
	propose("p2", "r1", "a", 0) // is p1
	propose("p2", "r2", "a", 0) // another run
	propose("", "r1", "b", 0)
	propose("p3", "r1", "b", 0)
	propose("p4", "r1", "c", 0)
	propose("p5", "r1", "d", 0) // one too many of the run
	propose("p6", "r3", "d", 0) // one too many of the tenant
	move("none", audit.ProposalPending, audit.ProposalApproved, 1, "ann")
	move("p1", audit.ProposalPending, audit.ProposalApproved, 1, " ")
	move("p1", audit.ProposalPending, audit.ProposalExecuted, 1, "ann")
	move("p1", audit.ProposalPending, audit.ProposalApproved, 1, "ann")
	move("p1", audit.ProposalPending, audit.ProposalApproved, 2, "bob")
	propose("p7", "r1", "a", 3) // is p1, approved
	move("p1", audit.ProposalApproved, audit.ProposalExecuted, 4, "call")
	move("p1", audit.ProposalExecuted, audit.ProposalFailed, 5, "call")
	propose("p8", "r1", "a", 6) // a new one
	move("p3", audit.ProposalPending, audit.ProposalRejected, 6, "ann")
	propose("p9", "r1", "b", 7)                                                     // is p3, rejected
	move("p4", audit.ProposalPending, audit.ProposalApproved, 2*time.Minute, "ann") // too late
	propose("p10", "r1", "e", 2*time.Minute)                                        // lets the others expire
	all, err := s.Proposals(ctx, audit.ProposalFilter{RunID: "r1", TenantID: "t", Limit: 3})
	note(all, err)
	all, err = s.Proposals(ctx, audit.ProposalFilter{State: audit.ProposalExpired})
	note(len(all), err)
	for _, id := range []string{"p1", "p2", "none"} {
		p, ok, err := s.Proposal(ctx, id)
		note(p, ok, err)
		vs, err := s.ProposalEvents(ctx, id)
		note(vs, err)
	}
}

func chunks(t *testing.T, s audit.Store, note func(...any)) {
	ctx := t.Context()
	at := time.Unix(1000, 0).UTC()
	chunk := func(run, id string, size int) audit.ChunkRow {
		return audit.ChunkRow{RunID: run, ID: id, Type: cordon.ToolOutput, Source: "https://x.example/?token=zebra99", Time: at,
			Segment: bytes.Repeat([]byte{0xff, 0}, size/2)}
	}
	const keep = 10_000
	note(s.AddChunks(ctx, keep, chunk("r1", "a", 10), chunk("r1", "a", 10), chunk("r1", "a", 12), chunk("r2", "a", 0)))
	note(s.AddChunks(ctx, keep, chunk("r1", "b", 10), chunk("", "c", 10)) != nil) // none of them
	note(s.AddChunks(ctx, keep, chunk("r4", "", 10), chunk("r4", "", 10)))
	cs4, err := s.Chunks(ctx, "r4", 0)
	note(len(cs4), err)
	for _, run := range []string{"r1", "r2", "r3"} {
		cs, err := s.Chunks(ctx, run, 0)
		note(cs, err)
	}
	for i := range 12 {
		note(s.AddChunks(ctx, keep, chunk("r1", fmt.Sprint("f", i), 1000+100*i)))
		cs, err := s.Chunks(ctx, "r1", 0)
		note(len(cs), cs[0].Seq, err)
	}
	note(s.AddChunks(ctx, keep, chunk("r1", "huge", 2*keep)))
	cs, err := s.Chunks(ctx, "r1", 1)
	note(len(cs), cs[0].Seq, cs[0].ID, err)
	n, err := s.DropChunks(ctx, at)
	note(n, err)
	late := chunk("r1", "late", 10)
	late.Time = at.Add(time.Hour)
	note(s.AddChunks(ctx, keep, late))
	note(s.AddChunks(ctx, 0, chunk("r3", "a", 10), chunk("r3", "b", 10)), s.AddChunks(ctx, -5, chunk("r3", "c", 10)))
	cs, err = s.Chunks(ctx, "r3", 0)
	note(cs, err)
	n, err = s.DropChunks(ctx, at.Add(time.Minute))
	note(n, err)
	cs, err = s.Chunks(ctx, "r2", 0)
	note(len(cs), err)
}

func TestTheFakeAnswersAsTheRealStoreDoes(t *testing.T) {
	real, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	}()
	ignore := cmp.Options{
		cmpopts.IgnoreFields(audit.Violation{}, "CreatedAt", "RowHash", "PrevHash"),
		cmpopts.IgnoreFields(audit.Pin{}, "ApprovedAt", "PendingAt"),
	}
	if d := cmp.Diff(transcript(t, real), transcript(t, &audittest.Store{}), ignore); d != "" {
		t.Error(d)
	}
}

func TestAStoreCanBeMadeToFail(t *testing.T) {
	var s audittest.Store
	full := errors.New("disk is full")
	s.FailWith(func(op string) error {
		if op == "Record" {
			return full
		}
		return nil
	})
	r := audit.RunRow{RunID: "r"}
	vs := []audit.Violation{{Decision: "blocked"}}
	if err := s.Record(t.Context(), r, vs); !errors.Is(err, full) {
		t.Error(err)
	}
	if _, err := s.OpenRun(t.Context(), r); err != nil {
		t.Error(err)
	}
	s.FailWith(nil)
	if err := s.Record(t.Context(), r, vs); err != nil {
		t.Error(err)
	}
	if got, err := s.Violations(t.Context(), audit.Filter{}); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
}
