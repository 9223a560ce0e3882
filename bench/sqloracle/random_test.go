package sqloracle

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// grammar makes conditions of the key, constants and operators at random.
type grammar struct{ *rand.Rand }

func (g grammar) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g grammar) condition(depth int) string {
	if depth > 0 {
		switch g.IntN(5) {
		case 0:
			return "(" + g.condition(depth-1) + " OR " + g.condition(depth-1) + ")"
		case 1:
			return "(" + g.condition(depth-1) + " AND " + g.condition(depth-1) + ")"
		case 2:
			return "NOT (" + g.condition(depth-1) + ")"
		case 3:
			return "CASE WHEN " + g.condition(depth-1) + " THEN " + g.condition(depth-1) + " ELSE " + g.condition(depth-1) + " END"
		}
	}
	switch g.IntN(8) {
	case 0:
		return g.value(2) + g.pick(" IN (", " NOT IN (") + g.value(1) + ", " + g.value(1) + ")"
	case 1:
		return g.value(1) + " BETWEEN " + g.value(1) + " AND " + g.value(1)
	case 2:
		return "CAST(" + g.value(1) + " AS text)" + g.pick(" LIKE ", " NOT LIKE ", " GLOB ") + g.pick("'%'", "'3%'", "'_%'", "'*'", "'%2%'", "''")
	case 3:
		return g.value(1) + g.pick(" IS NULL", " IS NOT NULL")
	case 4:
		return g.pick("1", "true", "id", "EXISTS (SELECT 1 FROM orders)", "id IN (SELECT id FROM users)", "id IN (SELECT user_id FROM orders)", "id <= (SELECT max(id) FROM users)")
	}
	return g.value(2) + g.pick(" = ", " <> ", " < ", " > ", " <= ", " >= ") + g.value(2)
}

func (g grammar) value(depth int) string {
	if depth == 0 || g.IntN(2) == 0 {
		return g.pick("id", "id", "id", "0", "1", "2", "3", "31", "-1", "57")
	}
	switch g.IntN(5) {
	case 0:
		return g.pick("abs", "-", "length") + "(" + g.value(depth-1) + ")"
	case 1:
		return "coalesce(" + g.value(depth-1) + ", " + g.value(depth-1) + ")"
	case 2:
		return "nullif(" + g.value(depth-1) + ", " + g.value(depth-1) + ")"
	}
	return "(" + g.value(depth-1) + g.pick(" + ", " - ", " * ", " % ") + g.value(depth-1) + ")"
}

// Conditions on the key, made at random and run by SQLite on keys without
// gaps: what passes every one of them must not be taken for a filter, and
// hardly any filter for none.
func TestRandomConditionsAgreeWithWhatSQLiteDeletes(t *testing.T) {
	g := grammar{rand.New(rand.NewPCG(1, 2))}
	db := open(t)
	if _, err := db.Exec("DELETE FROM users; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) INSERT INTO users (id) SELECT i FROM n"); err != nil {
		t.Fatal(err)
	}
	const tries = 2000
	var wide, cried int
	for range tries {
		cond := g.condition(g.IntN(3))
		if !strings.Contains(cond, "id") {
			continue
		}
		var left int
		if err := db.QueryRow("SELECT count(*) FROM users WHERE (" + cond + ") IS NOT TRUE").Scan(&left); err != nil {
			t.Errorf("%q: SQLite refuses it: %v", cond, err)
			continue
		}
		certain, said := verdict(t, "DELETE FROM users WHERE "+cond)
		switch {
		case left == 0:
			wide++
			if said == "change" {
				t.Errorf("passes every row, and is taken for a filter: %s", cond)
			}
		case certain:
			cried++
			t.Logf("leaves %d rows, and is taken for no filter: %s", left, cond)
		}
	}
	if wide < tries/10 {
		t.Errorf("only %d conditions pass every row: too few", wide)
	}
	if cried > tries/100 {
		t.Errorf("%d filters of %d conditions were taken for none", cried, tries)
	}
}
