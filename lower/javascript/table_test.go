package javascript

import (
	"strings"
	"testing"
)

// TestTablesLeadSomewhere: an alias, a module or a result that no entry
// continues is a slip of the pen.
func TestTablesLeadSomewhere(t *testing.T) {
	tb := tables()
	known := func(name string) bool {
		if tb.find(name) != nil || tb.ctors[name] || tb.prefixes[name] != nil {
			return true
		}
		_, module := tb.modules[name]
		_, global := tb.globals[name]
		return module || global || name == "globalThis"
	}
	for name, e := range tb.entries {
		if e.alias != "" && !known(e.alias) {
			t.Errorf("%s = %s, which has no entry", name, e.alias)
		}
		if e.result != "" && !known(e.result) {
			t.Errorf("%s -> %s, which has no entry", name, e.result)
		}
		if strings.HasSuffix(name, "Sync") && tb.entries[strings.TrimSuffix(name, "Sync")] != nil {
			t.Errorf("%s says nothing that %s does not", name, strings.TrimSuffix(name, "Sync"))
		}
	}
	for name, to := range tb.members {
		if tb.find(to) == nil {
			t.Errorf("anywhere %s %s, which has no entry", name, to)
		}
	}
}

func TestTableLinesThatAreRefused(t *testing.T) {
	for _, line := range []string{"x", "x frobnicate 0", "x read 0; -> y", "eval eval 0\neval eval 0"} {
		tb := &table{entries: map[string]*entry{}}
		var err error
		for l := range strings.SplitSeq(line, "\n") {
			if e := tb.parse(l); e != nil {
				err = e
			}
		}
		if err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}
