package matchconf

import (
	"math"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

func TestScore(t *testing.T) {
	const soon, slow = time.Second, time.Second + time.Nanosecond
	tests := []struct {
		name  string
		m     Match
		score float64
		level Level
		rule  string // for an irreversible action
	}{
		{"one element at once", Match{1, false, 0}, 1, High, ""},
		{"one element after exactly a second", Match{1, false, soon}, 1, High, ""},
		{"one element after more than a second", Match{1, false, slow}, 0.9, High, ""},
		{"one element by its text is exactly enough", Match{1, true, 0}, 0.85, High, ""},
		{"one element by its text, late", Match{1, true, slow}, 0.75, Partial, ""},
		{"two elements", Match{2, false, 0}, 0.7, Partial, ""},
		{"two elements by their text", Match{2, true, 0}, 0.55, Partial, ""},
		{"two elements, late", Match{2, false, slow}, 0.6, Partial, ""},
		{"two elements by their text, late", Match{2, true, slow}, 0.45, Ambiguous, "matchconf.ambiguous"},
		{"three elements", Match{3, false, 0}, 0.4, Ambiguous, "matchconf.ambiguous"},
		{"four elements", Match{4, false, 0}, 0.1, Ambiguous, "matchconf.ambiguous"},
		{"four elements by their text", Match{4, true, 0}, 0, Ambiguous, "matchconf.ambiguous"},
		{"as many as can be counted", Match{math.MaxInt, true, slow}, 0, Ambiguous, "matchconf.ambiguous"},
		{"none", Match{}, 0, Ambiguous, "matchconf.no_match"},
		{"less than none", Match{Matches: math.MinInt}, 0, Ambiguous, "matchconf.no_match"},
		{"found before it was looked for", Match{1, false, -time.Hour}, 1, High, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Score(tt.m)
			if r.Score != tt.score || r.Level != tt.level {
				t.Errorf("%+v", r)
			}
			fs := r.Findings(true)
			if (tt.rule == "") != (len(fs) == 0) {
				t.Fatalf("%+v", fs)
			}
			if tt.rule != "" && (fs[0].Rule != tt.rule || fs[0].Outcome != cordon.Restricted || fs[0].Kill || fs[0].Detail == "") {
				t.Errorf("%+v", fs[0])
			}
			if fs := r.Findings(false); (len(fs) != 0) != (tt.rule == "matchconf.no_match") {
				t.Errorf("a reversible action: %+v", fs)
			}
		})
	}
	var zero Result
	if zero.Level != Ambiguous || len(zero.Findings(false)) != 1 {
		t.Error("the zero result is sure")
	}
}
