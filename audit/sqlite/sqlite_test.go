package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func fresh(t testing.TB) *Store { return open(t, filepath.Join(t.TempDir(), "cordon.db")) }

func runRow(id string) audit.RunRow {
	return audit.RunRow{RunID: id, TenantID: "t1", SessionID: "s-" + id, PolicyID: "p1", Tier: "intern", Profile: "coding",
		Mode: "enforce", PolicyJSON: `{"v":1}`, PolicyHash: "h"}
}

func blocked(tool, rule string) audit.Violation {
	return audit.Violation{Phase: "C", Decision: "blocked", ToolName: tool, Type: "tripwire", Detail: "no", ArgsHash: "a", Enforced: true,
		MetadataJSON: fmt.Sprintf(`{"rule":%q,"findings":[{"phase":"B","rule":"fs.scope"},{"phase":"C","rule":%q}]}`, rule, rule)}
}

func record(t testing.TB, s *Store, r audit.RunRow, vs ...audit.Violation) {
	t.Helper()
	if err := s.Record(t.Context(), r, vs); err != nil {
		t.Fatal(err)
	}
}

func violations(t testing.TB, s *Store, f audit.Filter) []audit.Violation {
	t.Helper()
	vs, err := s.Violations(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return vs
}

func verify(t testing.TB, s *Store, known ...audit.Head) audit.VerifyResult {
	t.Helper()
	r, err := s.Verify(t.Context(), known...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tamper changes the file as somebody with an editor would.
func tamper(t testing.TB, s *Store, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, q := range append([]string{"PRAGMA foreign_keys = 0", "PRAGMA ignore_check_constraints = 1"}, statements...) {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(q, err)
		}
	}
}

func TestA1ViolationOfAnUnknownRunStoresTheRunToo(t *testing.T) {
	s := fresh(t)
	record(t, s, runRow("r1"), blocked("Bash", "x"), blocked("Read", "y"))
	vs := violations(t, s, audit.Filter{RunID: "r1"})
	if len(vs) != 2 || vs[0].Seq != 1 || vs[1].PrevHash != vs[0].RowHash || vs[0].PrevHash != audit.GenesisHash {
		t.Fatalf("%+v", vs)
	}
	if r, ok, err := s.Run(t.Context(), "r1"); err != nil || !ok || r.Tier != "intern" {
		t.Error(r, ok, err)
	}
}

func TestA1WhatCannotBeStoredIsAnErrorAndNothingOfItIsStored(t *testing.T) {
	tests := []struct {
		name string
		run  audit.RunRow
		v    audit.Violation
	}{
		{"no run id", audit.RunRow{}, blocked("x", "y")},
		{"row of another run", runRow("r1"), audit.Violation{RunID: "r2", Decision: "blocked"}},
		{"allowed decision", runRow("r1"), audit.Violation{Decision: "allowed"}},
		{"W7 kill that was not enforced", runRow("r1"), audit.Violation{Decision: "blocked", Killed: true}},
		{"id that was used", runRow("r1"), audit.Violation{ID: "dup", Decision: "blocked"}},
	}
	s := fresh(t)
	record(t, s, runRow("r0"), audit.Violation{ID: "dup", Decision: "blocked"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := s.Record(t.Context(), tt.run, []audit.Violation{blocked("fine", "f"), tt.v}); err == nil {
				t.Error("no error")
			}
			if vs := violations(t, s, audit.Filter{}); len(vs) != 1 {
				t.Errorf("%d rows", len(vs))
			}
		})
	}
	if r := verify(t, s); !r.OK {
		t.Error(r)
	}
}

func TestOneBadRowDoesNotTakeOthersOfItsCommitWithIt(t *testing.T) {
	s := fresh(t)
	record(t, s, runRow("r0"), audit.Violation{ID: "dup", Decision: "blocked"})
	var wg sync.WaitGroup
	var bad, good [20]error
	for i := range good {
		wg.Go(func() {
			good[i] = s.Record(t.Context(), runRow(fmt.Sprint("r", i)), []audit.Violation{blocked("a", "b")})
		})
		wg.Go(func() {
			bad[i] = s.Record(t.Context(), runRow("r0"), []audit.Violation{{ID: "dup", Decision: "blocked"}})
		})
	}
	wg.Wait()
	for i := range good {
		if good[i] != nil || bad[i] == nil {
			t.Errorf("good %v, bad %v", good[i], bad[i])
		}
	}
	if n := len(violations(t, s, audit.Filter{})); n != 21 {
		t.Errorf("%d rows", n)
	}
	if r := verify(t, s); !r.OK || r.Rows != 21 {
		t.Error(r)
	}
}

func TestW5TheFirstRowOfARunStands(t *testing.T) {
	s := fresh(t)
	first, err := s.OpenRun(t.Context(), runRow("r1"))
	if err != nil {
		t.Fatal(err)
	}
	second := runRow("r1")
	second.Tier = "autonomous"
	got, err := s.OpenRun(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first, got); d != "" {
		t.Error(d)
	}
	record(t, s, second, blocked("a", "b"))
	if r := verify(t, s); !r.OK {
		t.Error(r)
	}
}

func TestA2RowsAreRedactedWhateverTheCallerForgot(t *testing.T) {
	s := fresh(t)
	v := blocked("Bash", "x")
	v.Detail = "curl https://x.example/?token=zebra99"
	v.MetadataJSON = `{"rule":"x","findings":[{"detail":"password=zebra99 \u0000"}],"api_key":"zebra99"}`
	record(t, s, runRow("r1"), v)
	got := violations(t, s, audit.Filter{})[0]
	if strings.Contains(got.Detail+got.MetadataJSON, "zebra99") || !strings.Contains(got.Detail, audit.Mark) {
		t.Errorf("%s\n%s", got.Detail, got.MetadataJSON)
	}
	if r := verify(t, s); !r.OK {
		t.Error(r)
	}
}

func TestNewViolationCarriesAllFindings(t *testing.T) {
	s := fresh(t)
	d := cordon.Decision{Outcome: cordon.Blocked, Enforced: true, Killed: true, PolicyID: "p1", Findings: []cordon.Finding{
		{Phase: cordon.PhaseFS, Violation: cordon.FSPath, Rule: "fs.scope", Outcome: cordon.Restricted},
		{Phase: cordon.PhaseTripwire, Violation: cordon.Tripwire, Rule: "cred.ssh_key", Outcome: cordon.Blocked, Kill: true, Detail: "reads a key"},
	}}
	r := runRow("r1")
	record(t, s, r, audit.NewViolation(r, cordon.Call{ID: "c1", Tool: "Read"}, d, time.Now()))
	got := violations(t, s, audit.Filter{Rule: "fs.scope", Phase: "C", Type: "tripwire", Decision: "blocked", Tool: "Read", Tier: "intern"})
	if len(got) != 1 || !got[0].Killed || got[0].Detail != "reads a key" {
		t.Errorf("%+v", got)
	}
	// W8: the killing call has its row, and the kill is stored with it.
	ks, err := s.Kills(t.Context())
	if err != nil || len(ks) != 1 || ks[0].RunID != "r1" || ks[0].SessionID != "s-r1" || ks[0].Rule != "cred.ssh_key" {
		t.Error(ks, err)
	}
}

func TestG4KillsStandAcrossRestartsUntilReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	s := open(t, path)
	if err := s.Kill(t.Context(), audit.Kill{RunID: "r1", SessionID: "s1", Rule: "first"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(t.Context(), audit.Kill{RunID: "r1", Rule: "second"}); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	ks, err := s.Kills(t.Context())
	if err != nil || len(ks) != 1 || ks[0].Rule != "first" {
		t.Fatal(ks, err)
	}
	if err := s.Release(t.Context(), "r1", "bob", ""); err == nil {
		t.Error("released without a reason")
	}
	if err := s.Release(t.Context(), "r2", "bob", "x"); !errors.Is(err, audit.ErrNotKilled) {
		t.Error(err)
	}
	if err := s.Release(t.Context(), "r1", "bob", "false alarm"); err != nil {
		t.Fatal(err)
	}
	if ks, err = s.Kills(t.Context()); err != nil || len(ks) != 0 {
		t.Error(ks, err)
	}
	if err := s.Kill(t.Context(), audit.Kill{RunID: "r1", Rule: "again"}); err != nil {
		t.Fatal(err)
	}
	if ks, err = s.Kills(t.Context()); err != nil || len(ks) != 1 || ks[0].Rule != "again" {
		t.Error(ks, err)
	}
}

func TestKillGenerationChangesEvenIfTheSideFileIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	a, b := open(t, path), open(t, path)
	for i := range 3 {
		if i == 1 {
			if err := os.Remove(path + killSuffix); err != nil {
				t.Fatal(err)
			}
			b.KillGeneration()
		}
		before := b.KillGeneration()
		if err := a.Kill(t.Context(), audit.Kill{RunID: fmt.Sprint("r", i)}); err != nil {
			t.Fatal(err)
		}
		if b.KillGeneration() == before {
			t.Errorf("kill %d was not seen", i)
		}
	}
}

// What an agent that reaches the directory can do to the side file, each time
// while a process watches it.
func TestG4AKillIsSeenWhateverBecameOfTheSideFile(t *testing.T) {
	for name, harm := range map[string]func(side string) error{
		"moved away": func(side string) error { return os.Rename(side, side+".x") },
		"linked elsewhere, then removed": func(side string) error {
			return errors.Join(os.Link(side, side+".x"), os.Remove(side))
		},
		"replaced by another file": func(side string) error {
			return errors.Join(os.WriteFile(side+".x", []byte("...."), 0o600), os.Rename(side+".x", side))
		},
		"emptied": func(side string) error { return os.Truncate(side, 0) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.db")
			a, b := open(t, path), open(t, path)
			if err := harm(path + killSuffix); err != nil {
				t.Fatal(err)
			}
			b.KillGeneration()
			before := b.KillGeneration()
			if err := a.Kill(t.Context(), audit.Kill{RunID: "r"}); err != nil {
				t.Fatal(err)
			}
			if b.KillGeneration() == before {
				t.Error("the kill was not seen")
			}
		})
	}
	t.Run("replaced by a link", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "c.db")
		a, b := open(t, path), open(t, path)
		side := path + killSuffix
		if err := errors.Join(os.Rename(side, side+".x"), os.Symlink(side+".x", side)); err != nil {
			t.Fatal(err)
		}
		if first := b.KillGeneration(); b.KillGeneration() == first {
			t.Error("the generation stands still, so kills would not be looked for")
		}
		// Whoever kills is told that others may not notice.
		if err := a.Kill(t.Context(), audit.Kill{RunID: "r"}); err == nil {
			t.Error("a kill that others cannot notice was reported as stored")
		}
	})
}

func TestAFileThatWasReplacedUnderAnOpenStoreIsAnError(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"removed":                  os.Remove,
		"moved away":               func(path string) error { return os.Rename(path, path+".x") },
		"replaced by another file": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			record(t, s, runRow("r"), blocked("a", "b"))
			if err := harm(s.Path()); err != nil {
				t.Fatal(err)
			}
			err := s.Record(t.Context(), runRow("r"), []audit.Violation{blocked("a", "b")})
			if !errors.Is(err, ErrReplaced) {
				t.Errorf("a row was stored where nobody will find it: %v", err)
			}
			if ks, err := s.Kills(t.Context()); !errors.Is(err, ErrReplaced) {
				t.Errorf("kills of a file that others do not see: %v %v", ks, err)
			}
		})
	}
	t.Run("moved away and put back", func(t *testing.T) {
		s := fresh(t)
		if err := errors.Join(os.Rename(s.Path(), s.Path()+".x"), os.Rename(s.Path()+".x", s.Path())); err != nil {
			t.Fatal(err)
		}
		record(t, s, runRow("r"), blocked("a", "b"))
	})
}

func TestW12CountersAndUsageSurviveARestartAndAddUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	a, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, path)
	for range 3 {
		a.AddUsage(audit.Usage{RunID: "r1", ToolCalls: 1, ExecSeconds: 0.5, BytesWritten: 10, CostUSD: 0.25})
		a.Count(audit.Counter{RunID: "r1", Tool: "Read", Tier: "intern", Outcome: "allowed"}, 2)
	}
	b.AddUsage(audit.Usage{RunID: "r1", ToolCalls: 1})
	if u, err := a.Usage(t.Context(), "r1"); err != nil || u.ToolCalls < 3 {
		t.Error("pending usage is not read", u, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want := audit.Usage{RunID: "r1", ToolCalls: 4, ExecSeconds: 1.5, BytesWritten: 30, CostUSD: 0.75}
	if u, err := b.Usage(t.Context(), "r1"); err != nil || u != want {
		t.Error(u, err)
	}
	r, err := b.Report(t.Context(), audit.ReportFilter{})
	if err != nil || r.Allowed != 6 || r.Total != 6 {
		t.Error(r, err)
	}
	if err := a.Record(t.Context(), runRow("x"), []audit.Violation{blocked("a", "b")}); !errors.Is(err, ErrClosed) {
		t.Error("record after close:", err)
	}
}

// No sum is ever seen twice, nor not at all, while it moves to the file.
func TestUsageNeverGoesBackWhileItIsFlushed(t *testing.T) {
	s := fresh(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 300 {
			s.AddUsage(audit.Usage{RunID: "r", ToolCalls: 1})
			if err := s.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	for last := int64(0); last < 300; {
		u, err := s.Usage(t.Context(), "r")
		if err != nil || u.ToolCalls < last || u.ToolCalls > 300 {
			t.Fatal(u, last, err)
		}
		last = u.ToolCalls
	}
	wg.Wait()
}

func TestMadeUpToolNamesDoNotFillTheStore(t *testing.T) {
	s := fresh(t)
	for i := range maxPending + 1000 {
		s.Count(audit.Counter{Tool: fmt.Sprint("tool", i), Outcome: "allowed"}, 1)
	}
	r, err := s.Report(t.Context(), audit.ReportFilter{})
	if err != nil || r.Total != maxPending+1000 {
		t.Error(r.Total, err)
	}
}

func TestNumbersThatAreNoneDoNotHoldUpTheOthers(t *testing.T) {
	s := fresh(t)
	s.AddUsage(audit.Usage{RunID: "bad", CostUSD: math.NaN(), ExecSeconds: math.Inf(1), BytesWritten: math.MaxInt64})
	s.AddUsage(audit.Usage{RunID: "bad", CostUSD: math.Inf(-1), BytesWritten: math.MaxInt64})
	s.AddUsage(audit.Usage{RunID: "good", ToolCalls: 1})
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u, err := s.Usage(t.Context(), "good"); err != nil || u.ToolCalls != 1 {
		t.Error(u, err)
	}
	if u, err := s.Usage(t.Context(), "bad"); err != nil || u.ExecSeconds <= 0 || u.BytesWritten <= 0 {
		t.Error(u, err)
	}
}

func TestA1ARunThatSomebodyRemovedIsStoredAgain(t *testing.T) {
	s := fresh(t)
	record(t, s, runRow("r1"), blocked("a", "b"))
	tamper(t, s, "DELETE FROM run_sandboxes")
	record(t, s, runRow("r1"), blocked("a", "b"))
	if _, ok, err := s.Run(t.Context(), "r1"); !ok || err != nil {
		t.Error(ok, err)
	}
}

func TestPins(t *testing.T) {
	s := fresh(t)
	set := func(hash string) audit.Pin {
		t.Helper()
		p, err := s.SetPin(t.Context(), audit.Pin{Server: "fs", Tool: "read", Hash: hash, Definition: "def " + hash})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := set("h1"); p.Hash != "h1" || p.PendingHash != "" || p.ApprovedAt.IsZero() {
		t.Errorf("first definition: %+v", p)
	}
	if p := set("h2"); p.Hash != "h1" || p.Definition != "def h1" || p.PendingHash != "h2" || p.PendingDefinition != "def h2" || p.PendingAt.IsZero() {
		t.Errorf("changed definition: %+v", p)
	}
	if p := set("h1"); p.PendingHash != "" {
		t.Errorf("definition that went back: %+v", p)
	}
	set("h3")
	if err := s.ApprovePin(t.Context(), "fs", "read", "h2"); !errors.Is(err, audit.ErrPinChanged) {
		t.Error(err)
	}
	if err := s.ApprovePin(t.Context(), "fs", "read", ""); !errors.Is(err, audit.ErrPinChanged) {
		t.Error(err)
	}
	if err := s.ApprovePin(t.Context(), "fs", "read", "h3"); err != nil {
		t.Error(err)
	}
	ps, err := s.Pins(t.Context(), "fs")
	if err != nil || len(ps) != 1 || ps[0].Hash != "h3" || ps[0].Definition != "def h3" || ps[0].PendingHash != "" {
		t.Errorf("%+v %v", ps, err)
	}
	if all, err := s.Pins(t.Context(), "*"); err != nil || len(all) != 1 {
		t.Error(all, err)
	}
	if none, err := s.Pins(t.Context(), ""); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

func TestVerifyNamesTheRow(t *testing.T) {
	tests := []struct {
		name, sql string
		seq       int64
		reason    string
	}{
		{"changed detail", "UPDATE sandbox_violations SET violation_detail = 'nO' WHERE seq = 3", 3, "changed"},
		{"changed time", "UPDATE sandbox_violations SET timestamp = '2001-01-01T00:00:00.000000Z' WHERE seq = 3", 3, "changed"},
		{"time spelled otherwise", "UPDATE sandbox_violations SET timestamp = replace(timestamp, 'Z', '+00:00') WHERE seq = 3", 3, "changed"},
		{"changed flag", "UPDATE sandbox_violations SET enforced = 0 WHERE seq = 2", 2, "changed"},
		{"flag of another number", "UPDATE sandbox_violations SET enforced = 7 WHERE seq = 2", 2, "changed"},
		{"changed hash", "UPDATE sandbox_violations SET row_hash = 'x' WHERE seq = 2", 2, "changed"},
		{"removed row", "DELETE FROM sandbox_violations WHERE seq = 3", 3, "removed"},
		{"removed first row", "DELETE FROM sandbox_violations WHERE seq = 1", 1, "removed"},
		{"removed last rows", "DELETE FROM sandbox_violations WHERE seq > 4", 5, "removed"},
		{"removed all rows", "DELETE FROM sandbox_violations", 1, "removed"},
		{"inserted at the end", insertCopy("7"), 7, "head record does not reach it"},
		{"inserted before the first", insertCopy("0"), 0, "inserted"},
		{"swapped rows", "UPDATE sandbox_violations SET seq = CASE seq WHEN 2 THEN -3 ELSE -2 END WHERE seq IN (2, 3); UPDATE sandbox_violations SET seq = -seq WHERE seq < 0", 2, "does not follow"},
		{"changed run", "UPDATE run_sandboxes SET tier = 'student' WHERE run_id = 'r3'", 0, `row of run "r3" was changed`},
		{"changed run with its hash", "UPDATE run_sandboxes SET row_hash = 'x' WHERE run_id = 'r3'", 3, "its run's row"},
		{"removed run", "DELETE FROM run_sandboxes WHERE run_id = 'r3'", 3, "its run's row"},
		{"removed kill", "DELETE FROM run_kills", 6, "kill of run"},
		{"removed head", "DELETE FROM audit_head", 0, "head record was removed"},
		{"head set back with the rows", "DELETE FROM sandbox_violations WHERE seq > 4; UPDATE audit_head SET seq = 4", 4, "different hashes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fresh(t)
			for i := 1; i <= 6; i++ {
				v := blocked("Bash", "x")
				v.Killed = i == 6
				record(t, s, runRow(fmt.Sprint("r", i)), v)
			}
			if r := verify(t, s); !r.OK || r.Rows != 6 {
				t.Fatalf("before: %+v", r)
			}
			tamper(t, s, tt.sql)
			r := verify(t, s)
			found := false
			for _, f := range r.Faults {
				found = found || f.Seq == tt.seq && strings.Contains(f.Reason, tt.reason)
			}
			if r.OK || !found {
				t.Errorf("%+v", r)
			}
		})
	}
}

func insertCopy(seq string) string {
	return "INSERT INTO sandbox_violations SELECT " + strings.Replace(strings.Replace(violationColumns, "seq", seq, 1), " id,", " 'new',", 1) +
		" FROM sandbox_violations WHERE seq = 2"
}

func TestAKnownHeadFindsARewrittenChain(t *testing.T) {
	s := fresh(t)
	record(t, s, runRow("r1"), blocked("a", "b"), blocked("a", "b"))
	h, err := s.Head(t.Context())
	if err != nil || h.Seq != 2 {
		t.Fatal(h, err)
	}
	record(t, s, runRow("r1"), blocked("a", "b"))
	if r := verify(t, s, h, audit.Head{Hash: audit.GenesisHash}); !r.OK {
		t.Fatal(r)
	}
	// The attacker empties all, heads too, and writes a chain of his own.
	tamper(t, s, "DELETE FROM sandbox_violations", "UPDATE audit_head SET seq = 0, hash = '"+audit.GenesisHash+"'")
	if r := verify(t, s, h); r.OK {
		t.Error("emptied store passes with the known head")
	}
	record(t, s, runRow("r1"), blocked("c", "d"), blocked("c", "d"))
	if r := verify(t, s); !r.OK {
		t.Error("the limit that the package documents is gone: document it anew", r)
	}
	if r := verify(t, s, h); r.OK || r.BadSeq != 2 {
		t.Error(r)
	}
}

func TestVerifyNoticesOneEditedByteOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	v := blocked("Bash", "x")
	v.Detail = "reads the quagga file"
	record(t, s, runRow("r1"), v)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(string(b), "quagga", "quaggo", 1)
	if edited == string(b) {
		t.Fatal("the row is not in the file")
	}
	if err := os.WriteFile(path, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, open(t, path)); r.OK || r.BadSeq != 1 {
		t.Error(r)
	}
}

func TestViolationsFilter(t *testing.T) {
	s := fresh(t)
	at := func(h int) time.Time { return time.Date(2030, 1, 2, h, 0, 0, 0, time.UTC) }
	for i := 1; i <= 5; i++ {
		v := blocked(fmt.Sprint("tool", i%2), fmt.Sprint("rule", i))
		v.Timestamp = at(i)
		record(t, s, runRow(fmt.Sprint("r", i)), v)
	}
	tests := []struct {
		name string
		f    audit.Filter
		want []int64
	}{
		{"all", audit.Filter{}, []int64{1, 2, 3, 4, 5}},
		{"tool", audit.Filter{Tool: "tool0"}, []int64{2, 4}},
		{"rule", audit.Filter{Rule: "rule3"}, []int64{3}},
		{"rule of a lesser finding", audit.Filter{Rule: "fs.scope", Limit: 1}, []int64{1}},
		{"session", audit.Filter{SessionID: "s-r2"}, []int64{2}},
		{"period", audit.Filter{Since: at(2), Until: at(4)}, []int64{2, 3}},
		{"first", audit.Filter{Limit: 2}, []int64{1, 2}},
		{"newest", audit.Filter{Limit: 2, Newest: true}, []int64{4, 5}},
		{"following", audit.Filter{AfterSeq: 3}, []int64{4, 5}},
		{"hostile text is a value", audit.Filter{Tool: "' OR 1=1 --"}, nil},
		{"other tier", audit.Filter{Tier: "student"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int64
			for _, v := range violations(t, s, tt.f) {
				got = append(got, v.Seq)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReportAndRuns(t *testing.T) {
	s := fresh(t)
	shadow := blocked("Bash", "destructive.rm")
	shadow.Enforced = false
	shadow.MetadataJSON = strings.Replace(shadow.MetadataJSON, "{", `{"would_kill":true,`, 1)
	kill := blocked("Bash", "destructive.rm")
	kill.Killed = true
	bare := audit.Violation{Decision: "restricted", Phase: "B", ToolName: "Read", Enforced: true, MetadataJSON: `{"rule":"fs.scope"}`}
	record(t, s, runRow("r1"), shadow, kill, bare)
	s.Count(audit.Counter{RunID: "r1", Tool: "Bash", Tier: "intern", Outcome: "allowed"}, 6)
	s.Count(audit.Counter{Tool: "Glob", Tier: "student", Outcome: "allowed"}, 1)
	s.Count(audit.Counter{RunID: "r1", Tool: "Bash", Tier: "intern", Outcome: "blocked"}, 2) // has rows: not counted again
	got, err := s.Report(t.Context(), audit.ReportFilter{})
	if err != nil {
		t.Fatal(err)
	}
	want := audit.Report{
		Total: 10, Allowed: 7, Restricted: 1, Blocked: 2, Refused: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1,
		ByRule: []audit.ReportLine{
			{Name: "fs.scope", Restricted: 1, Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 10},
			{Name: "destructive.rm", Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 10},
		},
		ByTool: []audit.ReportLine{
			{Name: "Bash", Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 8},
			{Name: "Read", Restricted: 1, Total: 1},
			{Name: "Glob", Total: 1},
		},
		ByTier: []audit.ReportLine{
			{Name: "intern", Restricted: 1, Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 9},
			{Name: "student", Total: 1},
		},
		ByPhase: []audit.ReportLine{
			{Name: "B", Restricted: 1, Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 10},
			{Name: "C", Blocked: 2, WouldRefuse: 1, Kills: 1, WouldKill: 1, Total: 10},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if later, err := s.Report(t.Context(), audit.ReportFilter{Since: time.Now().Add(2 * time.Hour)}); err != nil || later.Total != 0 {
		t.Error(later, err)
	}
	runs, err := s.Runs(t.Context(), audit.RunFilter{Tier: "intern", Limit: 5})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	wantRun := audit.RunSummary{RunRow: runRow("r1"), Allowed: 6, Restricted: 1, Blocked: 2, Killed: true, Usage: audit.Usage{RunID: "r1"}}
	if d := cmp.Diff(wantRun, runs[0], cmpopts.IgnoreTypes(time.Time{})); d != "" {
		t.Error(d)
	}
}

func TestACallerWhoseTimeIsUpGetsItsCause(t *testing.T) {
	s := fresh(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	if err := s.Record(ctx, runRow("r"), []audit.Violation{blocked("a", "b")}); !errors.Is(err, cause) {
		t.Error(err)
	}
}
