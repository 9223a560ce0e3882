package shell

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// invisible reports whether a rune is not seen, or seen as a blank.
func invisible(r rune) bool {
	return r == 0xA0 || r == 0xAD || r == 0xFEFF || r >= 0x200B && r <= 0x200F || r >= 0x2060 && r <= 0x2064 ||
		r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r >= 0x2000 && r <= 0x200A || r == 0x3000 ||
		r == 0x202F || r == 0x205F || r == 0x180E || r >= 0xFE00 && r <= 0xFE0F
}

// foldPath gives the path that a forgiving reader would take it for:
// compatibility forms composed, invisible characters left out.
func foldPath(s string) string {
	if ascii(s) || hasMark(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if invisible(r) || r < ' ' {
			return -1
		}
		return r
	}, norm.NFKC.String(s))
}

// oddWord says why a command word cannot be what it seems; empty if it can.
func oddWord(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return "control characters in a command word"
		}
	}
	if ascii(s) {
		return ""
	}
	for _, r := range s {
		switch {
		case invisible(r) || unicode.IsSpace(r):
			return "invisible characters in a command word"
		case r >= 0xFF01 && r <= 0xFF5E:
			return "full-width letters in a command word"
		}
	}
	return "letters that look like others in a command word"
}
