package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

const chunkColumns = "run_id, seq, chunk_id, type, trust, source, at, segment"

// AddChunks implements audit.Store.
func (s *Store) AddChunks(ctx context.Context, keep int64, cs ...audit.ChunkRow) error {
	if len(cs) == 0 {
		return nil
	}
	now := time.Now()
	rows := make([]audit.ChunkRow, len(cs))
	for i, c := range cs {
		var err error
		if rows[i], err = audit.PrepareChunk(c, now); err != nil {
			return s.fail("record chunk", err)
		}
	}
	return s.submit(ctx, "record chunk", func(tx *tx) error {
		for i := range rows {
			if err := tx.addChunk(&rows[i], keep); err != nil {
				return fmt.Errorf("store chunk of run %q: %w", rows[i].RunID, err)
			}
		}
		return nil
	})
}

func (tx *tx) addChunk(c *audit.ChunkRow, keep int64) error {
	if known, err := tx.knowsChunk(c); err != nil || known {
		return err
	}
	var seq, upto int64
	if _, err := tx.row(tx.ctx, "SELECT seq, upto FROM run_chunks WHERE run_id = ? ORDER BY seq DESC LIMIT 1", []any{c.RunID}, &seq, &upto); err != nil {
		return err
	}
	seq, upto = seq+1, upto+c.Size()
	err := tx.exec(tx.ctx, "INSERT INTO run_chunks ("+chunkColumns+", upto) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		c.RunID, seq, c.ID, string(c.Type), c.Trust, c.Source, audit.FormatTime(c.Time), c.Segment, upto)
	if err != nil {
		return err
	}
	line := upto - max(keep, 1)
	if line <= 0 {
		return nil
	}
	// What lies before the line goes, and what crosses it: the one that the
	// line falls into is the first to end beyond it.
	return tx.exec(tx.ctx, `DELETE FROM run_chunks WHERE run_id = ?1 AND seq < ?2
		AND upto <= (SELECT min(upto) FROM run_chunks WHERE run_id = ?1 AND upto > ?3)
		AND upto - length(segment) - ?4 < ?3`, c.RunID, seq, line, c.Size()-int64(len(c.Segment)))
}

func (tx *tx) knowsChunk(c *audit.ChunkRow) (bool, error) {
	if c.ID == "" {
		return false, nil // all of them would have to be compared
	}
	var one int
	return tx.row(tx.ctx, "SELECT 1 FROM run_chunks WHERE run_id = ? AND chunk_id = ? AND trust = ? AND segment = ?",
		[]any{c.RunID, c.ID, c.Trust, c.Segment}, &one)
}

// Chunks implements audit.Store.
func (s *Store) Chunks(ctx context.Context, runID string, afterSeq int64) (cs []audit.ChunkRow, err error) {
	const q = "SELECT " + chunkColumns + " FROM run_chunks WHERE run_id = ? AND seq > ? ORDER BY seq"
	err = each(ctx, s.db, q, []any{runID, afterSeq}, func(r *sql.Rows) error {
		cs = append(cs, audit.ChunkRow{})
		c := &cs[len(cs)-1]
		err := r.Scan(&c.RunID, &c.Seq, &c.ID, &c.Type, &c.Trust, &c.Source, timeText{&c.Time}, &c.Segment)
		if c.Segment == nil {
			c.Segment = []byte{} // what the driver makes of an empty one
		}
		return err
	})
	return cs, s.fail("read chunks", err)
}

// DropChunks implements audit.Store.
func (s *Store) DropChunks(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := s.submit(ctx, "drop chunks", func(tx *tx) (err error) {
		n, err = tx.changes(tx.ctx, `DELETE FROM run_chunks WHERE run_id IN (
			SELECT run_id FROM run_chunks GROUP BY run_id HAVING max(at) < ?)`, audit.FormatTime(before))
		return err
	})
	if err != nil {
		return 0, err // the writer may still be at n
	}
	return n, nil
}
