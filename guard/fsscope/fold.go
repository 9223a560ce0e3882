package fsscope

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// interesting reports whether a path can possibly name a secret or a
// protected file: an element that starts with '.' or '_' or is not plain
// ASCII, or a last element that looks like a key. It errs on the side of yes.
func interesting(p string) bool {
	start := 0
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == '/':
			start = i + 1
		case c >= utf8.RuneSelf, c == '~', c == ':':
			return true
		case (c == '.' || c == '_') && i == start:
			return true
		case (c == 't' || c == 'T') && i-start >= 3 && p[i-3] == '.': // "repo.git"
			return true
		}
	}
	return keyLike(p[start:]) || strings.Contains(p, "/hooks") || strings.Contains(p, "/objects/info") || strings.Contains(p, "/info/attr") || strings.Contains(p, "/snap/") || containsFold(p, "/library/")
}

// keyLike is the cheap question before the tables for names of files without
// a leading dot.
func keyLike(name string) bool {
	if len(name) < 3 {
		return false
	}
	switch name[len(name)-1] | 0x20 {
	case 'f', 'y', 'x', '2', '8', 's', 'k', 'b', 'g', 'e', 'n', 'r', 'l', 'm', 'd', 'c', 't', 'a', 'v', 'p':
	default:
		return containsFold(name[:3], "id_")
	}
	for i := range keyNeedles {
		if containsFold(name, keyNeedles[i]) {
			return true
		}
	}
	return false
}

var keyNeedles = [...]string{
	"id_", ".key", "key.", "key-", "key_", ".p12", ".p8", "pfx", "jks", ".kdb", ".ppk", "priv", "keystore",
	"history", "wallet", "firebase", ".tfstate", ".keytab", ".ovpn", ".env", "env.p", "local.s", "ssh_", ".sublime-", "head", "commondir", "cred", "secr", "kubeconfig", "opencode.", "crush.", "config", "pgpass", "service", "code-w", "login", "oauth", "cookies.s", "key4", "key3", "signons", "application_d",
}

// containsFold is strings.Contains for a needle in lower case.
func containsFold(s, needle string) bool {
	for i := 0; i+len(needle) <= len(s); i++ {
		j := 0
		for j < len(needle) && lower(s[i+j]) == needle[j] {
			j++
		}
		if j == len(needle) {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// foldPath is the elements of a path as the most forgiving file system
// compares them: compatibility forms, invisible characters dropped (HFS+),
// no letter case, no trailing dots and blanks and no stream names (NTFS).
func foldPath(p string) []string {
	p = foldText(p)
	names := strings.Split(strings.Trim(strings.ToLower(p), "/"), "/")
	for i, n := range names {
		if j := strings.IndexByte(n, ':'); j > 0 {
			n = n[:j]
		}
		if t := strings.TrimRight(n, ". \t"); t != "" {
			n = t
		}
		names[i] = n
	}
	return names
}

// foldText is the compatibility form (NFKC) without invisible characters.
func foldText(s string) string {
	if isASCII(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if invisible(r) {
			return -1
		}
		if d, ok := lookAlikes[r]; ok {
			return d
		}
		return r
	}, s)
	return norm.NFKC.String(s)
}

// lookAlikes are slashes and dots that NFKC leaves alone.
var lookAlikes = map[rune]rune{
	'\u2044': '/', '\u2215': '/', '\u29f8': '/', '\u2571': '/', '\u29f5': '\\', '\u2216': '\\',
	'\u00b7': '.', '\u2219': '.', '\u22c5': '.', '\u3002': '.', '\uff61': '.', '\u02dc': '~', '\u223c': '~', '\u301c': '~',
}

func invisible(r rune) bool {
	switch {
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r == 0xfeff, r == 0xad, r == 0x34f, r == 0x61c, r == 0x180e, r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
