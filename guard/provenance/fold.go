package provenance

import (
	"html"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Classes of folded bytes.
const (
	clLetter uint8 = 1 << iota
	clDigit
	clDot
	clAt
	clSlash
	clMark // other characters that may stand inside an identifier
	clHigh // bytes of characters beyond ASCII

	clSymbol = clLetter | clDigit | clHigh
	clAtom   = clSymbol | clDot | clAt | clSlash | clMark
)

var class = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			t[c] = clLetter
		case c >= '0' && c <= '9':
			t[c] = clDigit
		case c >= 0x80:
			t[c] = clHigh
		}
	}
	t['.'], t['@'], t['/'] = clDot, clAt, clSlash
	for _, c := range ":+#-_~%=&?$*!^" {
		t[c] = clMark
	}
	return t
}()

// plain says what an ASCII byte folds to; 0 is a byte that needs a look.
var plain = func() (t [256]byte) {
	for c := byte(0x20); c < 0x7f; c++ {
		t[c] = c
		if c >= 'A' && c <= 'Z' {
			t[c] = c + 'a' - 'A'
		}
	}
	t['\n'], t['\t'], t['\v'], t['\f'], t['\r'] = '\n', ' ', ' ', ' ', ' '
	t['\\'], t['%'], t['&'] = 0, 0, 0
	return t
}()

// lookalike are the Greek and Cyrillic letters that are read as Latin ones.
var lookalike = [...]byte{
	'α' - 0x370: 'a', 'ε' - 0x370: 'e', 'ι' - 0x370: 'i', 'κ' - 0x370: 'k', 'ν' - 0x370: 'v', 'ο' - 0x370: 'o',
	'ρ' - 0x370: 'p', 'τ' - 0x370: 't', 'υ' - 0x370: 'u', 'χ' - 0x370: 'x', 'ϲ' - 0x370: 'c', 'ϳ' - 0x370: 'j', 'η' - 0x370: 'n', 'γ' - 0x370: 'y',
	'а' - 0x370: 'a', 'в' - 0x370: 'b', 'е' - 0x370: 'e', 'к' - 0x370: 'k', 'м' - 0x370: 'm', 'н' - 0x370: 'h', 'о' - 0x370: 'o',
	'р' - 0x370: 'p', 'с' - 0x370: 'c', 'т' - 0x370: 't', 'у' - 0x370: 'y', 'х' - 0x370: 'x', 'ѕ' - 0x370: 's', 'і' - 0x370: 'i',
	'ј' - 0x370: 'j', 'ԁ' - 0x370: 'd', 'ԛ' - 0x370: 'q', 'ԝ' - 0x370: 'w', 'һ' - 0x370: 'h', 'ѵ' - 0x370: 'v', 'ѡ' - 0x370: 'w',
	'ӏ' - 0x370: 'l', 'ո' - 0x370: 'n', 'օ' - 0x370: 'o', 'ս' - 0x370: 'u', 'ց' - 0x370: 'g', 'հ' - 0x370: 'h', 'ӓ' - 0x370: 'a', 'ё' - 0x370: 'e',
}

// foldText appends s in the form in which texts are compared: small letters, look-alikes
// and compatibility forms as the plain character, no invisible characters,
// white space as blanks and line feeds, and percent, entity and backslash
// escapes read. It reads s once and at most doubles it.
func foldText(dst []byte, s string) []byte {
	for len(s) > 0 {
		dst = slices.Grow(dst, len(s))
		free, i := dst[len(dst):len(dst)+len(s)], 0
		for i < len(s) && i < len(free) {
			c := plain[s[i]]
			if c == 0 {
				break
			}
			free[i] = c
			i++
		}
		dst, s = dst[:len(dst)+i], s[i:]
		if len(s) == 0 {
			break
		}
		r, n := decode(s)
		s = s[n:]
		switch {
		case r < utf8.RuneSelf:
			if c := plain[r&0x7f]; c != 0 {
				dst = append(dst, c)
			} else if r == '\\' || r == '%' || r == '&' {
				dst = append(dst, byte(r))
			}
		default:
			dst = appendRune(dst, r)
		}
	}
	return dst
}

// decode reads one character that may be escaped; s is not empty. What is no
// escape is the character itself.
func decode(s string) (r rune, n int) {
	switch s[0] {
	case '%':
		if r, n = percent(s); n > 0 {
			return r, n
		}
	case '&':
		if r, n = entity(s); n > 0 {
			return r, n
		}
	case '\\':
		return backslash(s)
	}
	if s[0] < utf8.RuneSelf {
		return rune(s[0]), 1
	}
	return utf8.DecodeRuneInString(s)
}

// percent reads %XX, of several bytes where they are one character, also where
// its own sign is escaped again (%2540).
func percent(s string) (rune, int) {
	c, n := percentByte(s)
	if n == 0 || c < utf8.RuneSelf {
		return rune(c), n
	}
	buf := [utf8.UTFMax]byte{c}
	for i := 1; i < utf8.UTFMax && n < len(s) && s[n] == '%'; i++ {
		c, m := percentByte(s[n:])
		if m == 0 {
			break
		}
		n += m
		buf[i] = c
		if r, size := utf8.DecodeRune(buf[:i+1]); r != utf8.RuneError && size == i+1 {
			return r, n
		}
	}
	return 0, 0
}

func percentByte(s string) (byte, int) {
	i := 1
	for strings.HasPrefix(s[i:], "25") && i+4 <= len(s) && unhex(s[i+2]) >= 0 && unhex(s[i+3]) >= 0 {
		i += 2
	}
	if i+2 > len(s) {
		return 0, 0
	}
	hi, lo := unhex(s[i]), unhex(s[i+1])
	if hi < 0 || lo < 0 {
		return 0, 0
	}
	return byte(hi<<4 | lo), i + 2
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// maxBackslashes bounds how far a run is looked at from each of its places.
const maxBackslashes = 32

// backslash reads the escapes of JSON and of most languages. Backslashes in a
// row count as one: each layer of quoting doubles them.
func backslash(s string) (rune, int) {
	i := 0
	for i < len(s) && i < maxBackslashes && s[i] == '\\' {
		i++
	}
	if i == len(s) {
		return '\\', i
	}
	switch s[i] {
	case 'n', 'r':
		return '\n', i + 1
	case 't':
		return ' ', i + 1
	case '/', '"', '\'', '`':
		return rune(s[i]), i + 1
	case 'u', 'x', 'U':
		if r, n := hexEscape(s[i:]); n > 0 {
			if lead := i + n; r >= 0xd800 && r < 0xdc00 && strings.HasPrefix(s[lead:], `\u`) {
				if low, m := hexEscape(s[lead+1:]); m > 0 && low >= 0xdc00 && low < 0xe000 {
					return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, lead + 1 + m
				}
			}
			return r, i + n
		}
	case '0', '1', '2', '3':
		if i+3 <= len(s) && s[i+1]|7 == '7' && s[i+2]|7 == '7' {
			return rune(s[i]-'0')<<6 | rune(s[i+1]-'0')<<3 | rune(s[i+2]-'0'), i + 3
		}
	}
	return '\\', i
}

// hexEscape reads x3c, u003c, u{3c} and U0000003c.
func hexEscape(s string) (rune, int) {
	want, i := 4, 1
	switch {
	case s[0] == 'x':
		want = 2
	case s[0] == 'U':
		want = 8
	case len(s) > 1 && s[1] == '{':
		end := strings.IndexByte(s[:min(len(s), 10)], '}')
		if end < 3 {
			return 0, 0
		}
		r, ok := hexRune(s[2:end])
		if !ok {
			return 0, 0
		}
		return r, end + 1
	}
	if i+want > len(s) {
		return 0, 0
	}
	r, ok := hexRune(s[i : i+want])
	if !ok {
		return 0, 0
	}
	return r, i + want
}

func hexRune(s string) (rune, bool) {
	var r rune
	for i := 0; i < len(s); i++ {
		v := unhex(s[i])
		if v < 0 || r > unicode.MaxRune>>4 {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}

// maxEntity is how long an entity with leading zeros may be.
const maxEntity = 40

// entity reads a character reference: decimal, hexadecimal or one of the names
// that spell an address or a tag, with or without its semicolon, and however
// often its own ampersand was escaped.
func entity(s string) (rune, int) {
	i := 1
	for {
		n := ampersand(s[i:])
		if n == 0 {
			break
		}
		i += n
	}
	switch {
	case i < len(s) && s[i] == '#':
		return numeric(s, i+1)
	case i == len(s) || class[s[i]]&clLetter == 0:
		if i > 1 {
			return '&', i
		}
		return 0, 0
	}
	for _, e := range entities {
		if len(s)-i >= len(e.name) && strings.EqualFold(s[i:i+len(e.name)], e.name) {
			i += len(e.name)
			if i < len(s) && s[i] == ';' {
				i++
			}
			return e.r, i
		}
	}
	if r, n := named(s[i:]); n > 0 {
		return r, i + n
	}
	if i > 1 {
		return '&', i
	}
	return 0, 0
}

// named reads the rest of a reference by one of the many other names.
func named(s string) (rune, int) {
	n := 0
	for n < len(s) && n < 32 && class[s[n]]&(clLetter|clDigit) != 0 {
		n++
	}
	if n < 2 || n == len(s) || s[n] != ';' {
		return 0, 0
	}
	text := html.UnescapeString("&" + s[:n+1])
	r, size := utf8.DecodeRuneInString(text)
	if r == '&' && size == 1 {
		return 0, 0
	}
	return r, n + 1
}

var entities = [...]struct {
	name string
	r    rune
}{
	{"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"nbsp", ' '}, {"commat", '@'}, {"period", '.'},
	{"sol", '/'}, {"colon", ':'}, {"lowbar", '_'}, {"hyphen", '-'}, {"num;", '#'}, {"Tab;", ' '}, {"NewLine;", '\n'},
	{"laquo", '<'}, {"raquo", '>'}, {"zwnj", 0}, {"zwj", 0}, {"shy", 0},
}

// ampersand is the length of an escaped ampersand without its own first one.
func ampersand(s string) int {
	for _, a := range [...]string{"amp;", "#38;", "#x26;", "#X26;", "#038;"} {
		if len(s) > len(a) && strings.EqualFold(s[:len(a)], a) {
			return len(a)
		}
	}
	if len(s) > 3 && strings.EqualFold(s[:3], "amp") { // HTML reads it without the semicolon too
		return 3
	}
	return 0
}

func numeric(s string, i int) (rune, int) {
	base, from := 10, i
	if i < len(s) && (s[i] == 'x' || s[i] == 'X') {
		base, i, from = 16, i+1, i+1
	}
	r := 0
	for i < len(s) && i-from < maxEntity {
		v := unhex(s[i])
		if v < 0 || v >= base {
			break
		}
		if r = r*base + v; r > unicode.MaxRune {
			r = unicode.MaxRune + 1
		}
		i++
	}
	if i == from {
		return 0, 0
	}
	if i < len(s) && s[i] == ';' {
		i++
	}
	if r > unicode.MaxRune {
		return utf8.RuneError, i
	}
	return rune(r), i
}

// appendRune appends what a character beyond ASCII is compared as.
func appendRune(dst []byte, r rune) []byte {
	switch {
	case r == utf8.RuneError:
		return append(dst, '?')
	case r < 0x370:
		return appendSlow(dst, r)
	case r < 0x590:
		r = unicode.ToLower(r)
		if i := int(r) - 0x370; i >= 0 && i < len(lookalike) && lookalike[i] != 0 {
			return append(dst, lookalike[i])
		}
		return utf8.AppendRune(dst, r)
	case r >= 0x2000 && r < 0x2070:
		return appendPunctuation(dst, r)
	case r >= 0x590 && r < 0x10a0, r >= 0x3041 && r < 0x3100, r >= 0x3400 && r < 0xd7a4: // scripts without such forms
		return utf8.AppendRune(dst, r)
	case r >= 0xff01 && r <= 0xff5e:
		return append(dst, plainASCII(byte(r-0xff01+'!')))
	case r >= 0xe0020 && r < 0xe007f: // invisible tags that spell ASCII
		return append(dst, plainASCII(byte(r-0xe0000)))
	}
	return appendSlow(dst, r)
}

func plainASCII(c byte) byte {
	if p := plain[c]; p != 0 {
		return p
	}
	return c
}

func appendPunctuation(dst []byte, r rune) []byte {
	switch {
	case r >= 0x2000 && r <= 0x200a, r == 0x202f, r == 0x205f:
		return append(dst, ' ')
	case r == 0x2028, r == 0x2029:
		return append(dst, '\n')
	case r >= 0x2010 && r <= 0x2015:
		return append(dst, '-')
	case r >= 0x2018 && r <= 0x201b, r == 0x2032, r == 0x2039, r == 0x203a:
		return append(dst, '\'')
	case r >= 0x201c && r <= 0x201f:
		return append(dst, '"')
	case r == 0x2024:
		return append(dst, '.')
	case r == 0x2044:
		return append(dst, '/')
	case unicode.Is(unicode.Cf, r), r >= 0x2060:
		return dst
	}
	return append(dst, ' ')
}

// appendSlow folds by decomposition: compatibility forms, accents and marks.
func appendSlow(dst []byte, r rune) []byte {
	if invisible(r) {
		return dst
	}
	if c := bracketLike(r); c != 0 {
		return append(dst, c)
	}
	for _, from := range [...]rune{0x1f150, 0x1f170, 0x1f1e6} { // letters in black circles, black squares, flags
		if r >= from && r < from+26 {
			return append(dst, 'a'+byte(r-from))
		}
	}
	var in, out [64]byte
	n := utf8.EncodeRune(in[:], r)
	for _, d := range string(norm.NFKD.Append(out[:0], in[:n]...)) {
		if d < utf8.RuneSelf {
			if c := plain[d]; c != 0 {
				dst = append(dst, c)
			}
			continue
		}
		d = unicode.ToLower(d)
		if i := int(d) - 0x370; i >= 0 && i < len(lookalike) && lookalike[i] != 0 {
			dst = append(dst, lookalike[i])
			continue
		}
		if c := latinLike(d); c != 0 {
			dst = append(dst, c)
			continue
		}
		switch {
		case unicode.Is(unicode.Mn, d), invisible(d):
		case unicode.IsSpace(d), unicode.IsPunct(d):
			dst = append(dst, ' ')
		default:
			dst = utf8.AppendRune(dst, d)
		}
	}
	return dst
}

// latinLike are letters without a decomposition that are read as Latin ones.
func latinLike(r rune) byte {
	switch r {
	case 'ı', 'ɩ':
		return 'i'
	case 'ł', 'ƚ':
		return 'l'
	case 'ø':
		return 'o'
	case 'đ', 'ð':
		return 'd'
	case 'ɡ':
		return 'g'
	case 'ɑ':
		return 'a'
	case 'ƞ', 'ɴ':
		return 'n'
	case 'ʏ':
		return 'y'
	case 'ᴄ':
		return 'c'
	case 'ᴏ':
		return 'o'
	case 'ᴠ':
		return 'v'
	case 'ᴇ':
		return 'e'
	case 'ᴀ':
		return 'a'
	case 'ᴘ':
		return 'p'
	case 'ʀ':
		return 'r'
	}
	return 0
}

func invisible(r rune) bool {
	return unicode.Is(unicode.Cf, r) && r < 0xe0020 || r == 0x34f || r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0 ||
		r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef || r == 0xe007f || r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x180b || r == 0x180c || r == 0x180d
}

// bracketLike are characters that are read as an angle bracket or an at sign.
func bracketLike(r rune) byte {
	switch r {
	case '<', '＜', '﹤', '‹', '\u2329', '\u3008', '⟨', '⟪', '《', '«', '˂', 'ᐸ', '❮', '❬', '❰', '⧼', '⪡', '≪', '≮', '⋖', '\U0001D236', '︿', '﹀', '⦑', '⦓', '⩹', '⪦', '≺', 'ᚲ':
		return '<'
	case '>', '＞', '﹥', '›', '\u232a', '\u3009', '⟩', '⟫', '》', '»', '˃', 'ᐳ', '❯', '❭', '❱', '⧽', '≫', '≯', '⋗':
		return '>'
	case '﹫', '＠':
		return '@'
	}
	return 0
}
