package audittest_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
				v = []bool{errors.Is(err, audit.ErrNotKilled), errors.Is(err, audit.ErrPinChanged)}
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
	v, err := s.Verify(ctx)
	note(v.OK, v.Rows, err)
	return log
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
