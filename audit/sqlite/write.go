package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/cordon-sandbox/cordon/audit"
)

// maxBatch is how many requests share one commit at most.
const maxBatch = 512

// request is one change, run inside a transaction of the writer. do may run
// twice: it must set its results anew each time.
type request struct {
	ctx context.Context
	do  func(tx *tx) error
	err chan error
}

// submit hands a change to the writer and waits for its commit.
func (s *Store) submit(ctx context.Context, op string, do func(tx *tx) error) error {
	r := &request{ctx: ctx, do: do, err: make(chan error, 1)}
	select {
	case <-s.closed:
		return s.fail(op, ErrClosed)
	default:
	}
	select {
	case s.reqs <- r:
	case <-ctx.Done():
		return s.fail(op, context.Cause(ctx))
	case <-s.closed:
		return s.fail(op, ErrClosed)
	}
	select {
	case err := <-r.err:
		return s.fail(op, err)
	case <-ctx.Done():
		return s.fail(op, context.Cause(ctx))
	case <-s.done:
		// The writer has ended; it may have answered before.
		select {
		case err := <-r.err:
			return s.fail(op, err)
		default:
			return s.fail(op, ErrClosed)
		}
	}
}

// write is the writer: the one goroutine that changes the database.
func (s *Store) write() {
	defer close(s.done)
	w := &writer{s: s, runs: make(map[string]string)}
	defer w.closeStatements()
	var flush <-chan time.Time
	for {
		select {
		case r := <-s.reqs:
			w.serve(s.gather(r))
		case <-s.wake:
			flush = time.After(audit.FlushInterval)
		case answer := <-s.flushes:
			answer <- w.flush()
		case <-flush:
			flush = nil
			if err := w.flush(); err != nil {
				flush = time.After(audit.FlushInterval) // kept, and tried again
			}
		case <-s.closed:
			for len(s.reqs) > 0 {
				w.serve(s.gather(<-s.reqs))
			}
			s.end = w.flush()
			w.shorten()
			return
		}
	}
}

// gather takes what else is waiting.
func (s *Store) gather(first *request) []*request {
	rs := []*request{first}
	for len(rs) < maxBatch {
		select {
		case r := <-s.reqs:
			rs = append(rs, r)
		default:
			return rs
		}
	}
	return rs
}

// writer is the state of the writer goroutine.
type writer struct {
	s    *Store
	conn *sql.Conn
	// stmts are prepared once; runs are the row hashes of runs known to be
	// stored.
	stmts map[string]*sql.Stmt
	runs  map[string]string
}

// maxKnownRuns bounds what the writer remembers.
const maxKnownRuns = 4096

// tx is one transaction of the writer.
type tx struct {
	*writer
	ctx     context.Context
	head    audit.Head
	changed bool              // head was moved
	runs    map[string]string // stored in this transaction
	signal  bool              // a kill was stored or lifted
}

// serve commits the requests together. Where one of them fails, each is
// tried alone, so that only its own caller hears of it.
func (w *writer) serve(rs []*request) {
	live := rs[:0]
	for _, r := range rs {
		if err := context.Cause(r.ctx); err != nil {
			r.err <- err
			continue
		}
		live = append(live, r)
	}
	if len(live) == 0 {
		return
	}
	err := w.transact(func(tx *tx) error {
		for _, r := range live {
			if err := r.do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil || code(err) == lib.SQLITE_BUSY {
		// Nobody's fault where the database is held: trying each alone would
		// make the last of them wait for all.
		for _, r := range live {
			r.err <- err
		}
		return
	}
	clear(w.runs) // what is remembered may be what is wrong
	for _, r := range live {
		r.err <- w.transact(r.do)
	}
}

// transact runs do in one transaction that takes the write lock first, so
// that the head it reads is the one that it moves.
func (w *writer) transact(do func(tx *tx) error) (err error) {
	// Callers' contexts end at different times; what bounds the transaction
	// is the busy time-out of the connection.
	ctx := context.Background()
	if err := w.s.standing(); err != nil {
		return err
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	if err := w.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	tx := &tx{writer: w, ctx: ctx, runs: make(map[string]string)}
	defer func() {
		if err != nil {
			w.rollback()
		}
	}()
	if err := do(tx); err != nil {
		return err
	}
	if tx.changed {
		if err := w.exec(ctx, "UPDATE audit_head SET seq = ?, hash = ? WHERE one = 1", tx.head.Seq, tx.head.Hash); err != nil {
			return err
		}
	}
	// Signalled before the commit too: should this process die right after
	// it, others have been told to keep looking.
	if tx.signal {
		if err := w.s.kills.signal(); err != nil {
			return fmt.Errorf("tell other processes of a kill: %w", err)
		}
	}
	if err := w.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	w.remember(tx.runs)
	if tx.signal {
		if err := w.s.kills.signal(); err != nil {
			return fmt.Errorf("tell other processes of a stored kill: %w", err)
		}
	}
	return nil
}

func (w *writer) remember(runs map[string]string) {
	if len(w.runs)+len(runs) > maxKnownRuns {
		clear(w.runs)
	}
	for id, h := range runs {
		w.runs[id] = h
	}
}

func (w *writer) connect(ctx context.Context) (err error) {
	if w.conn == nil {
		w.stmts = make(map[string]*sql.Stmt)
		w.conn, err = w.s.w.Conn(ctx)
	}
	return err
}

// keptLog is how much of the log Close leaves: the next process reads it all
// before its first statement, in about 1 ms a MB.
const keptLog = 256 << 10

// shorten writes a long log back before the end. What fails then, or is held
// up by others, loses nothing: the log stays.
func (w *writer) shorten() {
	if w.conn == nil {
		return
	}
	if info, err := os.Stat(w.s.path + "-wal"); err != nil || info.Size() <= keptLog {
		return
	}
	ctx := context.Background()
	if _, err := w.conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err == nil {
		_, _ = w.conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
}

// relaxed is transact for what may be lost with the power, but not with the
// process: its commit is not synced. A later one that is syncs it too.
func (w *writer) relaxed(do func(tx *tx) error) error {
	ctx := context.Background()
	if err := w.s.standing(); err != nil {
		return err
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	if _, err := w.conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return err
	}
	defer func() {
		if w.conn == nil {
			return // it failed; the next connection syncs
		}
		if _, err := w.conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
			w.drop()
		}
	}()
	return w.transact(do)
}

// rollback also drops the connection: after a failure in the middle of a
// transaction its state is not worth guessing.
func (w *writer) rollback() {
	ctx, cancel := context.WithTimeout(context.Background(), w.s.busy)
	defer cancel()
	if _, err := w.conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		return
	}
	w.drop() // a full disk has rolled back already
}

// drop ends the connection. The statements are closed while it still stands:
// the driver panics on the other order.
func (w *writer) drop() {
	conn := w.conn
	w.conn = nil
	w.closeStatements()
	_ = conn.Raw(func(any) error { return errBadConn })
	_ = conn.Close()
}

func (w *writer) closeStatements() {
	for _, st := range w.stmts {
		_ = st.Close() // read-only from here on; the commit has told
	}
	w.stmts = nil
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

func (w *writer) prepared(ctx context.Context, q string) (*sql.Stmt, error) {
	if st := w.stmts[q]; st != nil {
		return st, nil
	}
	st, err := w.conn.PrepareContext(ctx, q)
	if err == nil {
		w.stmts[q] = st
	}
	return st, err
}

func (w *writer) exec(ctx context.Context, q string, args ...any) error {
	_, err := w.changes(ctx, q, args...)
	return err
}

// changes executes q and returns how many rows it changed.
func (w *writer) changes(ctx context.Context, q string, args ...any) (int64, error) {
	st, err := w.prepared(ctx, q)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// row executes q for one row; found is false where there is none.
func (w *writer) row(ctx context.Context, q string, args []any, dest ...any) (found bool, err error) {
	st, err := w.prepared(ctx, q)
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(ctx, args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// Record implements audit.Store.
func (s *Store) Record(ctx context.Context, r audit.RunRow, vs []audit.Violation) error {
	if len(vs) == 0 {
		return nil
	}
	now := time.Now()
	r, err := audit.PrepareRun(r, now)
	if err != nil {
		return s.fail("record", err)
	}
	rows := make([]audit.Violation, len(vs))
	for i, v := range vs {
		if rows[i], err = audit.Prepare(r, v, now); err != nil {
			return s.fail("record", err)
		}
	}
	return s.submit(ctx, "record", func(tx *tx) error {
		runHash, _, err := tx.openRun(&r)
		if err != nil {
			return err
		}
		for i := range rows {
			if err := tx.append(rows[i], runHash); err != nil {
				return err
			}
		}
		return nil
	})
}

const insertRun = `INSERT INTO run_sandboxes (` + runColumns + `, row_hash)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING`

// openRun stores the run's row unless there is one, which stood tells, and
// returns the stored row's hash.
func (tx *tx) openRun(r *audit.RunRow) (h string, stood bool, err error) {
	if h := tx.writer.runs[r.RunID]; h != "" {
		return h, true, nil
	}
	if h := tx.runs[r.RunID]; h != "" {
		return h, true, nil
	}
	h = r.Hash()
	n, err := tx.changes(tx.ctx, insertRun, r.RunID, r.TenantID, r.WorkspaceID, r.AgentID, r.UserID, r.SessionID,
		r.PolicyID, r.Tier, r.Profile, r.Mode, r.PolicyJSON, r.PolicyHash, audit.FormatTime(r.CreatedAt), h)
	if err != nil {
		return "", false, fmt.Errorf("store run %q: %w", r.RunID, err)
	}
	if n == 0 {
		if _, err := tx.row(tx.ctx, "SELECT row_hash FROM run_sandboxes WHERE run_id = ?", []any{r.RunID}, &h); err != nil {
			return "", false, fmt.Errorf("read run %q: %w", r.RunID, err)
		}
	}
	tx.runs[r.RunID] = h
	return h, n == 0, nil
}

const insertViolation = `INSERT INTO sandbox_violations (` + violationColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// append links the row to the chain's end and stores it.
func (tx *tx) append(v audit.Violation, runHash string) error {
	if !tx.changed {
		found, err := tx.row(tx.ctx, "SELECT seq, hash FROM audit_head WHERE one = 1", nil, &tx.head.Seq, &tx.head.Hash)
		if err != nil {
			return fmt.Errorf("read the chain's head: %w", err)
		}
		if !found {
			return errors.New("the chain's head record is missing: see cordon audit verify")
		}
	}
	tx.head, tx.changed = v.Link(tx.head, runHash), true
	err := tx.exec(tx.ctx, insertViolation, v.Seq, v.ID, v.TenantID, v.WorkspaceID, v.AgentID, v.UserID, v.SessionID, v.RunID,
		audit.FormatTime(v.Timestamp), audit.FormatTime(v.CreatedAt), v.PolicyID, v.Phase, v.Decision, v.ToolName,
		v.Type, v.Detail, v.ArgsHash, v.Enforced, v.Killed, v.MetadataJSON, v.PrevHash, v.RowHash)
	if err != nil {
		return fmt.Errorf("store violation %d: %w", v.Seq, err)
	}
	if !v.Killed {
		return nil
	}
	return tx.kill(audit.Kill{RunID: v.RunID, TenantID: v.TenantID, SessionID: v.SessionID, At: v.Timestamp, Rule: ruleOf(&v)})
}

// OpenRun implements audit.Store.
func (s *Store) OpenRun(ctx context.Context, r audit.RunRow) (audit.RunRow, error) {
	r, err := audit.PrepareRun(r, time.Now())
	if err != nil {
		return r, s.fail("open run", err)
	}
	// Most often it stands already, and needs no commit.
	if old, ok, err := s.Run(ctx, r.RunID); err == nil && ok {
		return old, nil
	}
	// After an error the writer may still be at it, so that it has a row of its
	// own, and what it says is looked at only when it has ended well.
	var stood atomic.Bool
	mine := r
	err = s.submit(ctx, "open run", func(tx *tx) error {
		_, old, err := tx.openRun(&mine)
		stood.Store(old)
		return err
	})
	if err != nil || !stood.Load() {
		return r, err
	}
	standing, ok, err := s.Run(ctx, r.RunID)
	if err == nil && !ok {
		err = s.fail("open run", fmt.Errorf("run %q vanished", r.RunID))
	}
	return standing, err
}

// Kill implements audit.Store.
func (s *Store) Kill(ctx context.Context, k audit.Kill) error {
	if k.RunID == "" {
		return s.fail("kill", errors.New("no run id"))
	}
	if k.At.IsZero() {
		k.At = time.Now()
	}
	k.Rule = audit.RedactText(k.Rule)
	err := s.submit(ctx, "kill", func(tx *tx) error { return tx.kill(k) })
	if err == nil {
		return nil
	}
	// A database that is held, full or damaged must not save the run.
	return errors.Join(err, s.fail("kill", s.kills.note(k)))
}

func (tx *tx) kill(k audit.Kill) error {
	tx.signal = true
	err := tx.exec(tx.ctx, `INSERT INTO run_kills (run_id, tenant_id, session_id, at, rule, released_at, released_by, why)
		VALUES (?, ?, ?, ?, ?, '', '', '') ON CONFLICT DO NOTHING`, k.RunID, k.TenantID, k.SessionID, audit.FormatTime(k.At), k.Rule)
	if err != nil {
		return fmt.Errorf("store kill of run %q: %w", k.RunID, err)
	}
	return nil
}

// Release implements audit.Store. Why must say something.
func (s *Store) Release(ctx context.Context, runID, by, why string) error {
	if why == "" {
		return s.fail("release", fmt.Errorf("no reason given for releasing run %q", runID))
	}
	noted, err := s.kills.noted()
	if err != nil {
		return s.fail("release", err)
	}
	_, isNoted := noted[runID]
	err = s.submit(ctx, "release", func(tx *tx) error {
		n, err := tx.changes(tx.ctx, `UPDATE run_kills SET released_at = ?, released_by = ?, why = ?
			WHERE run_id = ? AND released_at = ''`, audit.FormatTime(time.Now()), by, audit.RedactText(why), runID)
		if err == nil && n == 0 && !isNoted {
			err = fmt.Errorf("%w: %q", audit.ErrNotKilled, runID)
		}
		tx.signal = tx.signal || err == nil
		return err
	})
	if err == nil && isNoted {
		err = s.fail("release", s.kills.lift(runID))
	}
	return err
}

// SetPin implements audit.Store.
func (s *Store) SetPin(ctx context.Context, p audit.Pin) (audit.Pin, error) {
	if p.Tool == "" || p.Hash == "" {
		return p, s.fail("pin", fmt.Errorf("pin of tool %q with hash %q (want both)", p.Tool, p.Hash))
	}
	if p.ApprovedAt.IsZero() {
		p.ApprovedAt = time.Now()
	}
	var standing audit.Pin
	err := s.submit(ctx, "pin", func(tx *tx) error {
		at := audit.FormatTime(p.ApprovedAt)
		err := tx.exec(tx.ctx, `INSERT INTO tool_pins (`+pinColumns+`) VALUES (?1, ?2, ?3, ?4, ?5, '', '', '')
			ON CONFLICT (server, tool) DO UPDATE SET
				pending_at = CASE ?3 WHEN hash THEN '' WHEN pending_hash THEN pending_at ELSE ?4 END,
				pending_definition = CASE ?3 WHEN hash THEN '' ELSE ?5 END,
				pending_hash = CASE ?3 WHEN hash THEN '' ELSE ?3 END`,
			p.Server, p.Tool, p.Hash, at, p.Definition)
		if err != nil {
			return err
		}
		st, err := tx.prepared(tx.ctx, "SELECT "+pinColumns+" FROM tool_pins WHERE server = ? AND tool = ?")
		if err != nil {
			return err
		}
		standing, err = scanPin(st.QueryRowContext(tx.ctx, p.Server, p.Tool))
		return err
	})
	if err != nil {
		return p, err // the writer may still be at standing
	}
	return standing, nil
}

// ApprovePin implements audit.Store.
func (s *Store) ApprovePin(ctx context.Context, server, tool, hash string) error {
	return s.submit(ctx, "approve pin", func(tx *tx) error {
		n, err := tx.changes(tx.ctx, `UPDATE tool_pins SET hash = pending_hash, definition = pending_definition, approved_at = ?,
			pending_hash = '', pending_definition = '', pending_at = ''
			WHERE server = ? AND tool = ? AND pending_hash = ? AND pending_hash <> ''`,
			audit.FormatTime(time.Now()), server, tool, hash)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: tool %q of server %q, hash %q", audit.ErrPinChanged, tool, server, hash)
		}
		return err
	})
}
