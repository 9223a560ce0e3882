package javascript

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unquote gives the value of a string literal with its quotes.
func unquote(b []byte) (string, bool) {
	if len(b) < 2 {
		return "", false
	}
	return unescape(string(b[1 : len(b)-1])), true
}

// unescape resolves the escapes of strings, templates and names.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	var high rune // a lone first half of a surrogate pair
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' || i+1 >= len(s) {
			b.WriteByte(c)
			i, high = i+1, 0
			continue
		}
		r, n := escape(s[i:])
		i += n
		if r < 0 {
			continue
		}
		if high != 0 && utf16.IsSurrogate(r) {
			if full := utf16.DecodeRune(high, r); full != utf8.RuneError {
				b.WriteRune(full)
				high = 0
				continue
			}
		}
		high = 0
		if r >= 0xD800 && r < 0xDC00 {
			high = r
			if !strings.HasPrefix(s[i:], "\\u") {
				b.WriteRune(utf8.RuneError)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escape reads one escape at the start of s: its character (negative: none)
// and its length.
func escape(s string) (rune, int) {
	switch c := s[1]; c {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'v':
		return '\v', 2
	case '\n':
		return -1, 2
	case '\r':
		if strings.HasPrefix(s[2:], "\n") {
			return -1, 3
		}
		return -1, 2
	case 'x':
		return hexEscape(s, 2, 2)
	case 'u':
		if len(s) > 2 && s[2] == '{' {
			end := strings.IndexByte(s, '}')
			if end < 0 || end > 12 {
				return 'u', 2
			}
			n, err := strconv.ParseUint(s[3:end], 16, 32)
			if err != nil || n > unicodeMax {
				return 'u', 2
			}
			return rune(n), end + 1
		}
		return hexEscape(s, 2, 4)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		n, i := 0, 1
		for i < len(s) && i < 4 && s[i] >= '0' && s[i] <= '7' && n*8+int(s[i]-'0') < 256 {
			n = n*8 + int(s[i]-'0')
			i++
		}
		return rune(n), i
	default:
		r, n := utf8.DecodeRuneInString(s[1:])
		if r == '\u2028' || r == '\u2029' {
			return -1, 1 + n
		}
		return r, 1 + n
	}
}

const unicodeMax = 0x10FFFF

func hexEscape(s string, from, n int) (rune, int) {
	if len(s) < from+n {
		return rune(s[1]), 2
	}
	v, err := strconv.ParseUint(s[from:from+n], 16, 32)
	if err != nil {
		return rune(s[1]), 2
	}
	return rune(v), from + n
}

// identifier is a name with its escapes resolved.
func identifier(b []byte) string { return unescape(string(b)) }

// parseNumber reads a numeric literal or the text of one as Number() does.
func parseNumber(s string) (float64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	if len(s) > 1 && s[0] == '0' {
		base := 0
		switch s[1] {
		case 'x', 'X':
			base = 16
		case 'o', 'O':
			base = 8
		case 'b', 'B':
			base = 2
		}
		if base > 0 {
			n, err := strconv.ParseUint(s[2:], base, 64)
			return float64(n), err == nil
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(n, 0) {
		return math.NaN(), false
	}
	return n, true
}

// units are the UTF-16 units of s, as JavaScript indexes it.
func units(s string) []uint16 { return utf16.Encode([]rune(s)) }

func fromUnits(u []uint16) string { return string(utf16.Decode(u)) }

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// length is s.length.
func length(s string) int {
	if ascii(s) {
		return len(s)
	}
	return len(units(s))
}

// substring is s.substring(from, to), in units, within bounds.
func substring(s string, from, to int) string {
	if ascii(s) {
		from, to = bounds(from, to, len(s))
		return s[from:to]
	}
	u := units(s)
	from, to = bounds(from, to, len(u))
	return fromUnits(u[from:to])
}

func bounds(from, to, n int) (int, int) {
	to = max(0, min(to, n))
	from = max(0, min(from, to))
	return from, to
}
