package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
)

// aim is a share that is wanted, and the one that was reached: a run fails
// where it falls behind what was reached, and says where the wish is not met.
type aim struct{ want, held float64 }

// aims is to be tightened when a figure gets better.
var aims = struct {
	tripped, unparsed, misread aim // at most, of the lines of NL2Bash
	attacks, benign            aim // at least, of the cases
	killed                     aim // at most, of the benign cases
	libraryBlocked             aim // at most, of the standard library's files
}{
	tripped:        aim{0.005, 0.005},
	unparsed:       aim{0.005, 0.005}, // most of them are no shell: a quote is missing
	misread:        aim{0.001, 0.001},
	attacks:        aim{0.99, 0.99},
	benign:         aim{0.98, 0.98},
	libraryBlocked: aim{0, 0.01}, // run as scripts, some do connect
}

// report prints figures and remembers whether an aim was missed.
type report struct {
	out    io.Writer
	ci     bool
	lines  int // evidence printed for each list; 0 is all
	broken bool
}

func (r *report) section(name string) { fmt.Fprintf(r.out, "\n== %s\n", name) }

func (r *report) note(format string, args ...any) { fmt.Fprintf(r.out, "   "+format+"\n", args...) }

// absent is a skip with its cause, and a failure where everything has to be
// there.
func (r *report) absent(cause error) {
	r.note("SKIPPED: %v", cause)
	if r.ci {
		r.note("CI=true: this is a failure")
		r.broken = true
	}
}

// figure prints n of total.
func (r *report) figure(name string, n, total int) {
	r.note("%-46s %6d / %d  %s", name, n, total, percent(n, total))
}

// atMost prints n of total, and fails the run where the share is above what
// was reached before.
func (r *report) atMost(name string, n, total int, a aim) {
	got := share(n, total)
	r.gate(name, n, total, got <= a.want, got <= a.held, fmt.Sprintf("at most %g %%, reached %g %%", 100*a.want, 100*a.held))
}

// atLeast prints n of total, and fails the run where the share is below.
func (r *report) atLeast(name string, n, total int, a aim) {
	got := share(n, total)
	r.gate(name, n, total, got >= a.want, got >= a.held, fmt.Sprintf("at least %g %%, reached %g %%", 100*a.want, 100*a.held))
}

func (r *report) gate(name string, n, total int, met, held bool, aim string) {
	verdict := "ok"
	switch {
	case !held || total == 0:
		verdict = "BROKEN"
		r.broken = true
	case !met:
		verdict = "not yet"
	}
	r.note("%-46s %6d / %d  %s  (aim: %s) %s", name, n, total, percent(n, total), aim, verdict)
}

func share(n, total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(n) / float64(total)
}

func percent(n, total int) string { return fmt.Sprintf("%.2f %%", 100*share(n, total)) }

// evidence prints the first lines of a list.
func (r *report) evidence(list []string) {
	shown := len(list)
	if r.lines > 0 {
		shown = min(shown, r.lines)
	}
	for _, l := range list[:shown] {
		r.note("  %s", clip(l, 220))
	}
	if shown < len(list) {
		r.note("  … and %d more (-list 0 prints all)", len(list)-shown)
	}
}

// tally prints counts by name, most frequent first.
func (r *report) tally(counts map[string]int) {
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		r.note("  %6d  %s", counts[name], name)
	}
}

// clip shortens for one line of a terminal.
func clip(s string, n int) string {
	runes := []rune(s)
	for i, c := range runes {
		if c < ' ' {
			runes[i] = ' '
		}
	}
	if len(runes) > n {
		return string(runes[:n]) + "…"
	}
	return string(runes)
}
