package sqloracle

import (
	"slices"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/sql"
	"github.com/google/go-cmp/cmp"
)

// ours gives the classes of what lower/sql reads, as the oracles name them.
func ours(t *testing.T, src string) []string {
	var classes []string
	for _, e := range sql.Lower(t.Context(), src, sql.Env{Dir: "/w"}) {
		classes = append(classes, classOf(e))
	}
	return tidy(classes)
}

func classOf(e cordon.Effect) string {
	switch e.Kind {
	case cordon.SQL:
		return map[string]string{"read": "read", "insert": "insert", "change": "change", "create": "create", "session": "session"}[e.Op]
	case cordon.Destroy:
		switch e.Op {
		case "drop_table", "drop_database":
			return "drop"
		case "truncate_table":
			return "truncate"
		}
		return e.Op
	case cordon.Administer:
		return "admin"
	case cordon.Read, cordon.Write, cordon.Opaque:
		return "file"
	}
	return e.Kind.String()
}

// tidy sorts classes and leaves out the harmless ones where there are others:
// reading is part of everything.
func tidy(classes []string) []string {
	slices.Sort(classes)
	classes = slices.Compact(classes)
	rest := slices.DeleteFunc(slices.Clone(classes), func(c string) bool {
		return c == "read" || c == "session" || c == "create"
	})
	if len(rest) == 0 {
		return []string{"harmless"}
	}
	return rest
}

func compare(t *testing.T, in dialect, oracle func(t *testing.T, src string) []string) {
	asked := 0
	for _, s := range statements {
		if s.in&in == 0 {
			continue
		}
		asked++
		want := tidy(oracle(t, s.sql))
		got := ours(t, s.sql)
		if s.in&torn != 0 && (want[0] == "harmless" || !slices.ContainsFunc(want, func(c string) bool { return !slices.Contains(got, c) })) {
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: the oracle's classes (-) and ours (+):\n%s", s.sql, diff)
		}
	}
	if asked < 40 {
		t.Errorf("only %d statements were put to the oracle", asked)
	}
}
