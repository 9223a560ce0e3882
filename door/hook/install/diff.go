package install

import (
	"bytes"
	"fmt"
	"strings"
)

// Diff is a unified diff of two texts in one hunk, "" where they are equal. A
// nil text is a file that is not there.
func Diff(path string, old, now []byte) string {
	if bytes.Equal(old, now) && (old == nil) == (now == nil) {
		return ""
	}
	a, b := lines(old), lines(now)
	const context = 3
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	from, rest := max(head-context, 0), min(tail, context)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", name(path, old), name(path, now))
	fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(from, len(a)-tail+rest), span(from, len(b)-tail+rest))
	put := func(mark string, ls []string) {
		for _, l := range ls {
			text, whole := strings.CutSuffix(l, "\n")
			out.WriteString(mark + text + "\n")
			if !whole {
				out.WriteString("\\ No newline at end of file\n")
			}
		}
	}
	put(" ", a[from:head])
	put("-", a[head:len(a)-tail])
	put("+", b[head:len(b)-tail])
	put(" ", a[len(a)-tail:len(a)-tail+rest])
	return out.String()
}

func lines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	ls := strings.SplitAfter(string(b), "\n")
	if ls[len(ls)-1] == "" {
		ls = ls[:len(ls)-1]
	}
	return ls
}

func name(path string, text []byte) string {
	if text == nil {
		return "/dev/null"
	}
	return path
}

func span(from, to int) string {
	if to == from {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
