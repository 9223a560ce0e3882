package syntax

import (
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/runenames"
)

// literal decodes the string token s (with prefix and quotes).
func literal(s string) (text string, bytes bool) {
	raw := false
	i := 0
	for ; s[i] != '"' && s[i] != '\''; i++ {
		switch s[i] | 0x20 {
		case 'r':
			raw = true
		case 'b':
			bytes = true
		}
	}
	n := 1
	if len(s)-i >= 6 && s[i+1] == s[i] && s[i+2] == s[i] {
		n = 3
	}
	return decodeText(s[i+n:len(s)-n], raw, bytes), bytes
}

// decodeText resolves backslash escapes as CPython does; unknown ones stay.
func decodeText(s string, raw, bytes bool) string {
	if raw || strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		switch c {
		case '\n':
		case '\\', '\'', '"':
			b = append(b, c)
		case 'a':
			b = append(b, 7)
		case 'b':
			b = append(b, 8)
		case 'f':
			b = append(b, 12)
		case 'n':
			b = append(b, 10)
		case 'r':
			b = append(b, 13)
		case 't':
			b = append(b, 9)
		case 'v':
			b = append(b, 11)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v, n := int(c-'0'), 1
			for n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7' {
				v = v*8 + int(s[i]-'0')
				i++
				n++
			}
			b = appendCode(b, rune(v), bytes)
		default:
			b, i = longEscape(b, s, i, c, bytes)
		}
	}
	return string(b)
}

func longEscape(b []byte, s string, i int, c byte, bytes bool) ([]byte, int) {
	n := 0
	switch {
	case c == 'x':
		n = 2
	case c == 'u' && !bytes:
		n = 4
	case c == 'U' && !bytes:
		n = 8
	case c == 'N' && !bytes && i < len(s) && s[i] == '{':
		if e := strings.IndexByte(s[i:], '}'); e > 0 {
			return appendCode(b, namedRune(s[i+1:i+e]), false), i + e + 1
		}
	}
	v, k := rune(0), 0
	for k < n && i+k < len(s) {
		h := hexDigit(s[i+k])
		if h < 0 {
			break
		}
		v = v<<4 | rune(h)
		k++
	}
	if n == 0 || k < n {
		return append(b, '\\', c), i
	}
	return appendCode(b, v, bytes), i + n
}

func hexDigit(c byte) int {
	switch {
	case digit(c):
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// appendCode writes a code point; a lone surrogate keeps its three bytes, so
// that two different strings stay different.
func appendCode(b []byte, r rune, bytes bool) []byte {
	if bytes {
		return append(b, byte(r))
	}
	if r >= 0xd800 && r < 0xe000 {
		return append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(b, r)
}

// runeByName maps the names of the letters that can spell ASCII text, up to
// U+2FFF and in the blocks of compatibility letters; building it for all of
// Unicode would cost more than any program with "\N{…}" is worth.
var runeByName = sync.OnceValue(func() map[string]rune {
	m := make(map[string]rune, 12000)
	add := func(lo, hi rune) {
		for r := lo; r <= hi; r++ {
			if n := runenames.Name(r); n != "" && n[0] != '<' {
				m[n] = r
			}
		}
	}
	add(0x20, 0x2fff)
	add(0xff00, 0xffef)
	add(0x1d400, 0x1d7ff)
	return m
})

// namedRune is the character with the Unicode name, or U+FFFD.
func namedRune(name string) rune {
	if r, ok := runeByName()[strings.ToUpper(name)]; ok {
		return r
	}
	return utf8.RuneError
}
