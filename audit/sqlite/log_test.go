package sqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/audit"
)

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestCloseLeavesTheLogAndTheNextOneReadsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cordon.db")
	s := open(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, before := open(t, path), size(t, path)
	record(t, s, runRow("r1"), blocked("bash", "a"))
	s.AddUsage(audit.Usage{RunID: "r1", ToolCalls: 3})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if now := size(t, path); now != before || size(t, path+"-wal") == 0 {
		t.Errorf("the file grew from %d to %d bytes, the log has %d (want it to hold what was stored)", before, now, size(t, path+"-wal"))
	}
	s = open(t, path)
	if vs := violations(t, s, audit.Filter{}); len(vs) != 1 {
		t.Errorf("%d violations (want 1)", len(vs))
	}
	if u, err := s.Usage(t.Context(), "r1"); err != nil || u.ToolCalls != 3 {
		t.Errorf("%+v, %v (want 3 calls)", u, err)
	}
	verify(t, s)
}

func TestCloseWritesALongLogBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cordon.db")
	if err := open(t, path).Close(); err != nil { // who makes the file also writes the log back
		t.Fatal(err)
	}
	s := open(t, path)
	for range 40 {
		record(t, s, runRow("r1"), blocked("bash", strings.Repeat("x", 8<<10)))
	}
	if n := size(t, path+"-wal"); n <= keptLog {
		t.Fatalf("the log has %d bytes (want more than %d)", n, keptLog)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := size(t, path+"-wal"); n != 0 {
		t.Errorf("the log has %d bytes (want 0)", n)
	}
	if vs := violations(t, open(t, path), audit.Filter{}); len(vs) != 40 {
		t.Errorf("%d violations (want 40)", len(vs))
	}
}

func TestALongLogThatAnotherReadsIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cordon.db")
	other, s := open(t, path), open(t, path)
	record(t, s, runRow("r1"), blocked("bash", "a"))
	tx, err := other.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRow("SELECT count(*) FROM sandbox_violations").Scan(&n); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	for range 40 {
		record(t, s, runRow("r1"), blocked("bash", strings.Repeat("x", 8<<10)))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if vs := violations(t, other, audit.Filter{}); len(vs) != 41 {
		t.Errorf("%d violations (want 41)", len(vs))
	}
}

// What must survive the loss of power is written by a connection that syncs at
// each commit, also after counters that need not.
func TestA1AfterCountersTheWriterSyncsAgain(t *testing.T) {
	s := fresh(t)
	s.Count(audit.Counter{RunID: "r1", Tool: "bash", Outcome: "allowed"}, 1)
	for _, during := range []func(tx *tx) error{
		func(*tx) error { return nil },
		func(*tx) error { return os.ErrInvalid },                                             // which rolls back
		func(tx *tx) error { _, err := tx.conn.ExecContext(tx.ctx, "ROLLBACK"); return err }, // which then fails to commit
	} {
		w := &writer{s: s, runs: map[string]string{}}
		var relaxed, after int
		err := w.relaxed(func(tx *tx) error {
			if err := tx.conn.QueryRowContext(tx.ctx, "PRAGMA synchronous").Scan(&relaxed); err != nil {
				return err
			}
			return during(tx)
		})
		if cerr := w.connect(t.Context()); cerr != nil {
			t.Fatal(cerr)
		}
		if qerr := w.conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&after); qerr != nil {
			t.Fatal(qerr)
		}
		if relaxed != 1 || after != 2 {
			t.Errorf("synchronous is %d, then %d (want 1, then 2); %v", relaxed, after, err)
		}
		w.closeStatements()
	}
}

func TestReadersCannotWrite(t *testing.T) {
	s := fresh(t)
	for _, q := range []string{"DELETE FROM run_kills", "PRAGMA user_version = 9", "CREATE TABLE x (y)"} {
		if _, err := s.db.ExecContext(t.Context(), q); err == nil || !strings.Contains(err.Error(), "readonly") {
			t.Errorf("%s: %v", q, err)
		}
	}
}
