// Package matchconf says how sure it is that a browser action meets the
// element that was meant, from how its selector matched. It is a neighbour of
// the other layers, and looks at no page itself.
//
// It guarantees: the score is 1, less 0.30 for each match beside the first,
// 0.15 where the text alone matched, 0.10 where the element was found later
// than a second after it was looked for, and at least 0. No match is
// ambiguous and escalates, whatever the action does.
//
// What this package does not stop: a page that shows one element of the name
// that is looked for, at once, and does something else when it is clicked.
package matchconf

import (
	"fmt"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Level is how sure the match is. The zero value is not.
type Level uint8

const (
	Ambiguous Level = iota
	Partial
	High
)

var levelNames = [...]string{"ambiguous", "partial", "high"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", l)
}

// From these scores on a match is High or Partial.
const (
	HighFrom    = 0.85
	PartialFrom = 0.5
)

// late is after how long a found element was perhaps not the one meant: the
// page has changed meanwhile.
const late = 1000 * time.Millisecond

// Match is how a selector matched.
type Match struct {
	// Matches is how many elements it matched.
	Matches int
	// TextOnly: no identifier, role or structure matched, the text alone did.
	TextOnly bool
	// Found is how long it took to find the element.
	Found time.Duration
}

// Result is what a match says. The zero value is ambiguous.
type Result struct {
	Level Level
	// Score is from 0 to 1 in steps of 0.05.
	Score float64
	Match Match
}

// Score judges a match.
func Score(m Match) Result {
	r := Result{Match: m}
	if m.Matches < 1 {
		return r
	}
	// In hundredths, so that the thresholds are met exactly.
	score := 100 - 30*(min(m.Matches, 100)-1)
	if m.TextOnly {
		score -= 15
	}
	if m.Found > late {
		score -= 10
	}
	r.Score = float64(max(0, score)) / 100
	switch {
	case r.Score >= HighFrom:
		r.Level = High
	case r.Score >= PartialFrom:
		r.Level = Partial
	}
	return r
}

// Findings are what phase E holds against an action of that result: an
// irreversible one that is ambiguous goes to a person, and any that has
// nothing to act on.
func (r *Result) Findings(irreversible bool) []cordon.Finding {
	f := cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Outcome: cordon.Restricted}
	switch {
	case r.Match.Matches < 1:
		f.Rule, f.Detail = "matchconf.no_match", "the selector of the action matches nothing"
	case irreversible && r.Level == Ambiguous:
		f.Rule = "matchconf.ambiguous"
		f.Detail = fmt.Sprintf("the selector of the action matches %d elements with confidence %.2f (want at least %.2f)", r.Match.Matches, r.Score, PartialFrom)
	default:
		return nil
	}
	return []cordon.Finding{f}
}
