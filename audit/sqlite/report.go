package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/cordon-sandbox/cordon/audit"
)

// lineSums are the columns of a report's line, over rows named v.
const lineSums = `coalesce(sum(v.decision = 'restricted'), 0), coalesce(sum(v.decision = 'blocked'), 0),
	coalesce(sum(NOT v.enforced), 0), coalesce(sum(v.killrun_triggered), 0),
	coalesce(sum(v.metadata_json ->> '$.would_kill' = 1 AND NOT v.killrun_triggered), 0)`

// Report implements audit.Store.
func (s *Store) Report(ctx context.Context, f audit.ReportFilter) (r audit.Report, err error) {
	if err := s.Flush(ctx); err != nil {
		return r, err
	}
	// One transaction, so that all numbers are of one moment.
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return r, s.fail("report", err)
	}
	defer func() { err = errors.Join(err, s.fail("report", tx.Rollback())) }()
	q := reporter{ctx, tx, f}
	return r, s.fail("report", q.report(&r))
}

type reporter struct {
	ctx context.Context
	db  querier
	f   audit.ReportFilter
}

// violations are the rows of the report: "v", with their runs "r".
func (q *reporter) violations() (from string, args []any) {
	var w where
	w.text("v.run_id", q.f.RunID)
	w.text("v.tool_name", q.f.Tool)
	w.text("r.tier", q.f.Tier)
	w.period("v.timestamp", q.f.Since, q.f.Until)
	return " FROM sandbox_violations v JOIN run_sandboxes r ON r.run_id = v.run_id" + w.String(), w.args
}

// allowed counts allowed calls by a column of call_counters.
func (q *reporter) allowed(by string) (map[string]int64, error) {
	var w where
	w.add("outcome = 'allowed'")
	w.text("run_id", q.f.RunID)
	w.text("tool", q.f.Tool)
	w.text("tier", q.f.Tier)
	if !q.f.Since.IsZero() {
		w.add("hour >= ?", q.f.Since.UTC().Format(hourFormat))
	}
	if !q.f.Until.IsZero() {
		w.add("hour <= ?", q.f.Until.UTC().Format(hourFormat))
	}
	m := make(map[string]int64)
	err := each(q.ctx, q.db, "SELECT "+by+", sum(n) FROM call_counters"+w.String()+" GROUP BY 1", w.args, func(r *sql.Rows) error {
		var name string
		var n int64
		err := r.Scan(&name, &n)
		m[name] = n
		return err
	})
	return m, err
}

func (q *reporter) report(r *audit.Report) error {
	from, args := q.violations()
	err := q.db.QueryRowContext(q.ctx, "SELECT "+lineSums+", coalesce(sum(v.enforced), 0)"+from, args...).
		Scan(&r.Restricted, &r.Blocked, &r.WouldRefuse, &r.Kills, &r.WouldKill, &r.Refused)
	if err != nil {
		return err
	}
	byTool, err := q.allowed("tool")
	if err != nil {
		return err
	}
	byTier, err := q.allowed("tier")
	if err != nil {
		return err
	}
	for _, n := range byTool {
		r.Allowed += n
	}
	r.Total = r.Allowed + r.Restricted + r.Blocked
	if r.ByTool, err = q.lines("SELECT v.tool_name, "+lineSums+from+" GROUP BY 1", args); err != nil {
		return err
	}
	if r.ByTier, err = q.lines("SELECT r.tier, "+lineSums+from+" GROUP BY 1", args); err != nil {
		return err
	}
	r.ByTool, r.ByTier = withAllowed(r.ByTool, byTool), withAllowed(r.ByTier, byTier)
	if r.ByRule, err = q.findings("rule", "v.metadata_json ->> '$.rule'", r.Total); err != nil {
		return err
	}
	r.ByPhase, err = q.findings("phase", "v.phase", r.Total)
	return err
}

// findings are the lines by a member of the findings, each decision once a
// line; a row without findings counts under fallback.
func (q *reporter) findings(member, fallback string, total int64) ([]audit.ReportLine, error) {
	from, args := q.violations()
	v := `WITH d AS (SELECT v.*` + from + `),
		n AS (SELECT DISTINCT d.seq AS seq, coalesce(e.value ->> '$.` + member + `', ` + replaceV(fallback) + `, '') AS name
			FROM d LEFT JOIN json_each(d.metadata_json, '$.findings') e)
		SELECT n.name, ` + lineSums + ` FROM n JOIN d v ON v.seq = n.seq GROUP BY 1`
	ls, err := q.lines(v, args)
	for i := range ls {
		ls[i].Total = total
	}
	sortLines(ls)
	return ls, err
}

// replaceV names the column of the common table instead.
func replaceV(column string) string { return "d" + column[1:] }

func (q *reporter) lines(query string, args []any) (ls []audit.ReportLine, err error) {
	err = each(q.ctx, q.db, query, args, func(r *sql.Rows) error {
		var l audit.ReportLine
		err := r.Scan(&l.Name, &l.Restricted, &l.Blocked, &l.WouldRefuse, &l.Kills, &l.WouldKill)
		ls = append(ls, l)
		return err
	})
	return ls, err
}

// withAllowed completes the totals, with lines for names that had no hit.
func withAllowed(ls []audit.ReportLine, allowed map[string]int64) []audit.ReportLine {
	for i := range ls {
		ls[i].Total = ls[i].Hits() + allowed[ls[i].Name]
		delete(allowed, ls[i].Name)
	}
	for name, n := range allowed {
		ls = append(ls, audit.ReportLine{Name: name, Total: n})
	}
	sortLines(ls)
	return ls
}

// sortLines puts the most hits first, then the most calls.
func sortLines(ls []audit.ReportLine) {
	slices.SortFunc(ls, func(a, b audit.ReportLine) int {
		return cmp.Or(cmp.Compare(b.Hits(), a.Hits()), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
}
