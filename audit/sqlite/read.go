package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

const (
	runColumns = `run_id, tenant_id, workspace_id, agent_id, user_id, session_id, policy_id, tier, profile, mode,
		policy_json, policy_hash, created_at`
	violationColumns = `seq, id, tenant_id, workspace_id, agent_id, user_id, session_id, run_id, timestamp, created_at,
		policy_id, phase, decision, tool_name, violation_type, violation_detail, args_hash, enforced, killrun_triggered,
		metadata_json, prev_hash, row_hash`
	killColumns = "run_id, tenant_id, session_id, at, rule, released_at, released_by, why"
	pinColumns  = "server, tool, hash, approved_at, definition, pending_hash, pending_at, pending_definition"
)

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(dest ...any) error }

// timeText scans what audit.FormatTime spelled.
type timeText struct{ t *time.Time }

func (tt timeText) Scan(src any) error {
	s, ok := src.(string)
	if !ok {
		return fmt.Errorf("time of type %T (want text)", src)
	}
	if s == "" {
		*tt.t = time.Time{}
		return nil
	}
	t, err := time.Parse(audit.TimeFormat, s)
	if err != nil {
		return err
	}
	if audit.FormatTime(t) != s {
		return fmt.Errorf("time %q is not spelled as it is written here", s)
	}
	*tt.t = t
	return nil
}

func runDest(r *audit.RunRow) []any {
	return []any{&r.RunID, &r.TenantID, &r.WorkspaceID, &r.AgentID, &r.UserID, &r.SessionID, &r.PolicyID, &r.Tier,
		&r.Profile, &r.Mode, &r.PolicyJSON, &r.PolicyHash, timeText{&r.CreatedAt}}
}

func violationDest(v *audit.Violation) []any {
	return []any{&v.Seq, &v.ID, &v.TenantID, &v.WorkspaceID, &v.AgentID, &v.UserID, &v.SessionID, &v.RunID,
		timeText{&v.Timestamp}, timeText{&v.CreatedAt}, &v.PolicyID, &v.Phase, &v.Decision, &v.ToolName, &v.Type,
		&v.Detail, &v.ArgsHash, &v.Enforced, &v.Killed, &v.MetadataJSON, &v.PrevHash, &v.RowHash}
}

func scanPin(r row) (p audit.Pin, err error) {
	err = r.Scan(&p.Server, &p.Tool, &p.Hash, timeText{&p.ApprovedAt}, &p.Definition, &p.PendingHash,
		timeText{&p.PendingAt}, &p.PendingDefinition)
	return p, err
}

// where collects conditions.
type where struct {
	conds []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.conds = append(w.conds, cond)
	w.args = append(w.args, args...)
}

func (w *where) text(column, value string) {
	if value != "" {
		w.add(column+" = ?", value)
	}
}

func (w *where) period(column string, since, until time.Time) {
	if !since.IsZero() {
		w.add(column+" >= ?", audit.FormatTime(since))
	}
	if !until.IsZero() {
		w.add(column+" < ?", audit.FormatTime(until))
	}
}

func (w *where) String() string {
	if len(w.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conds, " AND ")
}

// limit is -1, which is none to SQLite, for 0.
func limit(n int) int {
	if n <= 0 {
		return -1
	}
	return n
}

// each runs a query and scan for every row.
func each(ctx context.Context, db querier, q string, args []any, scan func(*sql.Rows) error) (err error) {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

type querier interface {
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row
}

// Run implements audit.Store.
func (s *Store) Run(ctx context.Context, runID string) (r audit.RunRow, ok bool, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT "+runColumns+" FROM run_sandboxes WHERE run_id = ?", runID).Scan(runDest(&r)...)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.RunRow{}, false, nil
	}
	if err != nil {
		return audit.RunRow{}, false, s.fail("read run", err)
	}
	return r, true, nil
}

func (s *Store) storedUsage(ctx context.Context, runID string) (u audit.Usage, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT tool_calls, exec_seconds, bytes_written, cost_usd FROM run_usage WHERE run_id = ?", runID).
		Scan(&u.ToolCalls, &u.ExecSeconds, &u.BytesWritten, &u.CostUSD)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return u, err
}

// Kills implements audit.Store.
func (s *Store) Kills(ctx context.Context) (ks []audit.Kill, err error) {
	if err := s.standing(); err != nil {
		return nil, err
	}
	err = each(ctx, s.db, "SELECT "+killColumns+" FROM run_kills WHERE released_at = '' ORDER BY id", nil, func(r *sql.Rows) error {
		var k audit.Kill
		ks = append(ks, k)
		p := &ks[len(ks)-1]
		return r.Scan(&p.RunID, &p.TenantID, &p.SessionID, timeText{&p.At}, &p.Rule, timeText{&p.ReleasedAt}, &p.ReleasedBy, &p.Why)
	})
	if err != nil {
		return nil, s.fail("read kills", err)
	}
	noted, err := s.kills.noted()
	if err != nil {
		return nil, s.fail("read kills", err)
	}
	for i := range ks {
		delete(noted, ks[i].RunID)
	}
	for _, id := range slices.Sorted(maps.Keys(noted)) {
		ks = append(ks, noted[id])
	}
	return ks, nil
}

// Pins implements audit.Store.
func (s *Store) Pins(ctx context.Context, server string) (ps []audit.Pin, err error) {
	var w where
	if server != "*" {
		w.add("server = ?", server)
	}
	err = each(ctx, s.db, "SELECT "+pinColumns+" FROM tool_pins"+w.String()+" ORDER BY server, tool", w.args, func(r *sql.Rows) error {
		p, err := scanPin(r)
		ps = append(ps, p)
		return err
	})
	return ps, s.fail("read pins", err)
}

// Runs implements audit.Store.
func (s *Store) Runs(ctx context.Context, f audit.RunFilter) (out []audit.RunSummary, err error) {
	if err := s.Flush(ctx); err != nil {
		return nil, err
	}
	var w where
	w.text("run_id", f.RunID)
	w.text("session_id", f.SessionID)
	w.text("tenant_id", f.TenantID)
	w.text("agent_id", f.AgentID)
	w.text("tier", f.Tier)
	w.text("mode", f.Mode)
	w.period("created_at", f.Since, f.Until)
	q := `SELECT ` + runColumns + `,
		(SELECT coalesce(sum(n), 0) FROM call_counters c WHERE c.run_id = r.run_id AND c.outcome = 'allowed'),
		(SELECT count(*) FROM sandbox_violations v WHERE v.run_id = r.run_id AND v.decision = 'restricted'),
		(SELECT count(*) FROM sandbox_violations v WHERE v.run_id = r.run_id AND v.decision = 'blocked'),
		EXISTS (SELECT 1 FROM run_kills k WHERE k.run_id = r.run_id AND k.released_at = ''),
		coalesce((SELECT max(timestamp) FROM sandbox_violations v WHERE v.run_id = r.run_id), ''),
		coalesce((SELECT tool_calls FROM run_usage u WHERE u.run_id = r.run_id), 0),
		coalesce((SELECT exec_seconds FROM run_usage u WHERE u.run_id = r.run_id), 0.0),
		coalesce((SELECT bytes_written FROM run_usage u WHERE u.run_id = r.run_id), 0),
		coalesce((SELECT cost_usd FROM run_usage u WHERE u.run_id = r.run_id), 0.0)
		FROM run_sandboxes r` + w.String() + ` ORDER BY created_at DESC, run_id LIMIT ?`
	err = each(ctx, s.db, q, append(w.args, limit(f.Limit)), func(r *sql.Rows) error {
		var x audit.RunSummary
		err := r.Scan(append(runDest(&x.RunRow), &x.Allowed, &x.Restricted, &x.Blocked, &x.Killed, timeText{&x.LastViolation},
			&x.Usage.ToolCalls, &x.Usage.ExecSeconds, &x.Usage.BytesWritten, &x.Usage.CostUSD)...)
		x.Usage.RunID = x.RunID
		out = append(out, x)
		return err
	})
	return out, s.fail("read runs", err)
}

// Violations implements audit.Store.
func (s *Store) Violations(ctx context.Context, f audit.Filter) (vs []audit.Violation, err error) {
	var w where
	w.text("run_id", f.RunID)
	w.text("session_id", f.SessionID)
	w.text("tenant_id", f.TenantID)
	w.text("tool_name", f.Tool)
	w.text("phase", f.Phase)
	w.text("violation_type", f.Type)
	w.text("decision", f.Decision)
	if f.Tier != "" {
		w.add("run_id IN (SELECT run_id FROM run_sandboxes WHERE tier = ?)", f.Tier)
	}
	if f.Rule != "" {
		w.add(`(metadata_json ->> '$.rule' = ? OR EXISTS (SELECT 1 FROM json_each(metadata_json, '$.findings') WHERE value ->> '$.rule' = ?))`,
			f.Rule, f.Rule)
	}
	w.period("timestamp", f.Since, f.Until)
	if f.AfterSeq > 0 {
		w.add("seq > ?", f.AfterSeq)
	}
	order := "ASC"
	if f.Newest {
		order = "DESC"
	}
	q := "SELECT " + violationColumns + " FROM sandbox_violations" + w.String() + " ORDER BY seq " + order + " LIMIT ?"
	if f.Newest {
		q = "SELECT * FROM (" + q + ") ORDER BY seq"
	}
	err = each(ctx, s.db, q, append(w.args, limit(f.Limit)), func(r *sql.Rows) error {
		vs = append(vs, audit.Violation{})
		return r.Scan(violationDest(&vs[len(vs)-1])...)
	})
	return vs, s.fail("read violations", err)
}

// ruleOf is the rule of a row's metadata.
func ruleOf(v *audit.Violation) string {
	var m audit.Metadata
	if json.Unmarshal([]byte(v.MetadataJSON), &m) != nil {
		return ""
	}
	return m.Rule
}
