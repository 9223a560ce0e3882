package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	lib "modernc.org/sqlite/lib"

	"github.com/cordon-sandbox/cordon/audit"
)

// Head implements audit.Store.
func (s *Store) Head(ctx context.Context) (audit.Head, error) {
	h, err := readHead(ctx, s.db)
	return h, s.fail("read head", err)
}

func readHead(ctx context.Context, db querier) (h audit.Head, err error) {
	err = db.QueryRowContext(ctx, "SELECT seq, hash FROM audit_head WHERE one = 1").Scan(&h.Seq, &h.Hash)
	return h, err
}

// Verify implements audit.Store. Beside the chain it checks the runs' rows
// against their hashes, that every row which killed its run has its kill, the
// proposals with their events, and the file's own structure.
func (s *Store) Verify(ctx context.Context, known ...audit.Head) (res audit.VerifyResult, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return res, s.fail("verify", err)
	}
	defer func() { err = errors.Join(err, s.fail("verify", tx.Rollback())) }()
	c := audit.NewChecker(known)
	for _, check := range []func(context.Context, querier, *audit.Checker) error{
		verifyChain, verifyRuns, verifyKills, verifyProposals, verifyFile,
	} {
		// What cannot be read because the file is damaged is a finding.
		if err := check(ctx, tx, c); code(err) == lib.SQLITE_CORRUPT || code(err) == lib.SQLITE_NOTADB {
			c.Result.Add(0, "", "file is damaged: "+err.Error())
		} else if err != nil {
			return audit.VerifyResult{}, s.fail("verify", err)
		}
	}
	head, err := readHead(ctx, tx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		c.Result.Add(0, "", "head record was removed")
	case err != nil:
		c.Result.Add(0, "", "head record cannot be read: "+err.Error())
	}
	return c.Finish(head), nil
}

func verifyChain(ctx context.Context, db querier, c *audit.Checker) error {
	const q = `SELECT v.*, coalesce(r.row_hash, '') FROM (SELECT ` + violationColumns + ` FROM sandbox_violations) v
		LEFT JOIN run_sandboxes r ON r.run_id = v.run_id ORDER BY v.seq`
	return each(ctx, db, q, nil, func(rows *sql.Rows) error {
		var v audit.Violation
		var runHash string
		if err := rows.Scan(append(violationDest(&v), &runHash)...); err != nil {
			seq, id, hash := rowName(rows)
			c.Unreadable(seq, id, hash, err.Error())
			return nil
		}
		c.Row(&v, runHash)
		return nil
	})
}

// rowName reads what names a row whose columns have lost their types.
func rowName(rows *sql.Rows) (seq int64, id, hash string) {
	const columns, idColumn, hashColumn = 23, 1, 21
	vals := make([]any, columns)
	dest := make([]any, columns)
	for i := range vals {
		dest[i] = &vals[i]
	}
	if rows.Scan(dest...) != nil {
		return 0, "", ""
	}
	seq, _ = vals[0].(int64)
	id, _ = vals[idColumn].(string)
	hash, _ = vals[hashColumn].(string)
	return seq, id, hash
}

func verifyRuns(ctx context.Context, db querier, c *audit.Checker) error {
	return each(ctx, db, "SELECT rowid, "+runColumns+", row_hash FROM run_sandboxes", nil, func(rows *sql.Rows) error {
		var r audit.RunRow
		var hash string
		var rowid int64
		if err := rows.Scan(append(append([]any{&rowid}, runDest(&r)...), &hash)...); err != nil {
			c.Result.Add(0, r.RunID, fmt.Sprintf("row of a run was changed: %v", err))
			return nil
		}
		if r.Hash() != hash {
			c.Result.Add(0, r.RunID, fmt.Sprintf("row of run %q was changed", r.RunID))
		}
		return nil
	})
}

func verifyKills(ctx context.Context, db querier, c *audit.Checker) error {
	const q = `SELECT v.seq, v.id, v.run_id FROM sandbox_violations v WHERE v.killrun_triggered
		AND NOT EXISTS (SELECT 1 FROM run_kills k WHERE k.run_id = v.run_id) ORDER BY v.seq`
	return each(ctx, db, q, nil, func(rows *sql.Rows) error {
		var seq int64
		var id, run string
		if err := rows.Scan(&seq, &id, &run); err != nil {
			return err
		}
		c.Result.Add(seq, id, fmt.Sprintf("the kill of run %q was removed", run))
		return nil
	})
}

func verifyFile(ctx context.Context, db querier, c *audit.Checker) error {
	return each(ctx, db, "PRAGMA integrity_check(10)", nil, func(rows *sql.Rows) error {
		var s string
		if err := rows.Scan(&s); err != nil {
			return err
		}
		if s != "ok" {
			c.Result.Add(0, "", "file is damaged: "+s)
		}
		return nil
	})
}
