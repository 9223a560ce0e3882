package tripwire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// fold brings a text to the form that patterns are written for: small
// letters, plain blanks, no invisible characters, full-width forms as
// ASCII, empty quotes and backslashes within words and line continuations
// dropped, $IFS as a blank; in SQL comments as a blank. It reads the text
// once and never makes it longer than twice its size.
func fold(text string, sql bool) string {
	var out strings.Builder
	out.Grow(len(text))
	// Looked for once: to look from each opening would take quadratic time
	// where none is closed.
	lastClose := -1
	if sql {
		lastClose = strings.LastIndex(text, "*/")
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				r = '?' // a byte that is no character
			}
			foldRune(&out, r)
			i += size
			continue
		}
		if n, blank := skipped(text[i:], sql, i+2 <= lastClose); n > 0 {
			if blank {
				out.WriteByte(' ')
			}
			i += n
			continue
		}
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		out.WriteByte(c)
		i++
	}
	return out.String()
}

// skipped says how many bytes at the start of s mean nothing, and whether
// they separate words. closed: a comment that opens here ends.
func skipped(s string, sql, closed bool) (n int, blank bool) {
	switch s[0] {
	case '\\':
		if strings.HasPrefix(s, "\\\n") {
			return 2, false
		}
		if len(s) > 1 && !sql && isLetter(s[1]) && s[1] != 'n' && s[1] != 't' {
			return 1, false // r\m
		}
	case '\'', '"':
		if len(s) > 2 && s[1] == s[0] && !sql && s[2] != s[0] && isLetter(s[2]) {
			return 2, false // r''m
		}
	case '$':
		for _, ifs := range [...]string{"${IFS}", "$IFS"} {
			if strings.HasPrefix(s, ifs) {
				return len(ifs), true
			}
		}
	case '/':
		if sql && strings.HasPrefix(s, "/*") {
			return sqlComment(s, closed), true
		}
	case '-':
		if sql && strings.HasPrefix(s, "--") {
			if end := strings.IndexByte(s, '\n'); end >= 0 {
				return end, true
			}
			return len(s), true
		}
	case '\r':
		return 1, true
	case 0:
		return 1, false
	}
	return 0, false
}

// sqlComment is the length of a comment, or of the opening of one whose
// text a server runs ("/*!50001"). An open end keeps the rest to be read.
func sqlComment(s string, closed bool) int {
	if strings.HasPrefix(s, "/*!") {
		n := 3
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		return n
	}
	if closed {
		return strings.Index(s[2:], "*/") + 4
	}
	return 2
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func foldRune(out *strings.Builder, r rune) {
	switch {
	case r >= 0xFF01 && r <= 0xFF5E: // full-width forms
		out.WriteRune(unicode.ToLower(r - 0xFEE0))
	case unicode.IsSpace(r):
		out.WriteByte(' ')
	case unicode.Is(unicode.Cf, r): // zero-width, bidirectional, soft hyphen
	default:
		out.WriteRune(unicode.ToLower(r))
	}
}
