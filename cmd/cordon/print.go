package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printJSON writes one JSON object a line.
func printJSON[T any](w io.Writer, rows []T) error {
	enc := json.NewEncoder(w)
	for i := range rows {
		if err := enc.Encode(rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// printable makes text from calls and servers safe for a terminal: escape
// sequences, other control and format characters, and bytes that are no UTF-8
// (a terminal may take some of those for control characters) are spelled out.
func printable(s string) string {
	clean := true
	for i, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// printableLines is printable for text of several lines, which keeps its line
// ends and tabs.
func printableLines(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for i, line := range lines {
		text, end := strings.TrimSuffix(line, "\n"), ""
		if len(text) < len(line) {
			end = "\n"
		}
		cells := strings.Split(text, "\t")
		for j := range cells {
			cells[j] = printable(cells[j])
		}
		lines[i] = strings.Join(cells, "\t") + end
	}
	return strings.Join(lines, "")
}

// clock is a time as tables show it.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// bar is n of most as a bar of at most width cells.
func bar(n, most int64, width int) string {
	if most <= 0 || n <= 0 {
		return ""
	}
	eighths := int(n * int64(width) * 8 / most)
	if eighths == 0 {
		eighths = 1
	}
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string(rune('█' + 8 - rest)) // U+2588 full block to U+258F one eighth
	}
	return s
}

// since reads "2h", "7d" or an RFC 3339 time as the beginning of a period.
func since(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	text := s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n float64
		if _, err := fmt.Sscanf(days+" ", "%g ", &n); err == nil {
			text = fmt.Sprintf("%gh", n*24)
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usagef("%s %q (want a duration such as 2h or 7d, or a time such as 2006-01-02T15:04:05Z)", flag, s)
	}
	return time.Now().Add(-d), nil
}
