package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Text whose value is only partly known is held in ordinary strings in which
// Unicode noncharacters stand for what is not known. They survive the parser
// as plain letters, so a text with holes can be read in turn. The same code
// points in the input are replaced before anything is read.
const (
	mUnknown = "\uFDD0" // any text
	mGlob    = "\uFDD1" // the next byte is an active pattern character
	mPath    = "\uFDD2" // a relative path below what stands before it
	mName    = "\uFDD3" // a word without slashes or blanks
	mTemp    = "\uFDD4" // a fresh path in the temporary directory
	mDecoded = "\uFDD5" // any text, from a decoder
	mNet     = "\uFDD6" // any text, downloaded
	mUnset   = "\uFDD7" // a variable that the text does not set; may be empty
	mFile    = "\uFDD8" // any text, from a file
	mSome    = "\uFDD9" // after mPath: only such paths as pass a test by age, size and the like

	markHead = "\xEF\xB7"
	markLen  = 3
)

// taint says what a text went through on its way.
type taint uint8

const (
	tDecoded taint = 1 << iota
	tNet
	tFile
)

func (t taint) origin() cordon.Origin {
	switch {
	case t&tNet != 0:
		return cordon.OriginNetwork
	case t&tDecoded != 0:
		return cordon.OriginDecoded
	case t&tFile != 0:
		return cordon.OriginFile
	}
	return cordon.OriginLiteral
}

// maxText bounds every single value; longer ones become unknown.
const maxText = 64 << 10

// val is one value of a word, a variable or a stream.
type val struct {
	s string
	// data names what it is made of: paths, "$NAME", "-".
	data  []string
	taint taint
}

func isMark(s string, i int) bool {
	return s[i] == 0xEF && i+2 < len(s) && s[i+1] == 0xB7 && s[i+2] >= 0x90 && s[i+2] <= 0xAF
}

func hasMark(s string) bool {
	for i := 0; ; {
		j := strings.Index(s[i:], markHead)
		if j < 0 {
			return false
		}
		if i += j; isMark(s, i) {
			return true
		}
		i += 2
	}
}

func (v val) known() bool { return !hasMark(v.s) }

// origin is where an unknown text came from, as far as its marks tell.
func (v val) origin() cordon.Origin {
	t := v.taint
	if strings.Contains(v.s, mNet) {
		t |= tNet
	}
	if strings.Contains(v.s, mDecoded) {
		t |= tDecoded
	}
	if strings.Contains(v.s, mFile) {
		t |= tFile
	}
	if t == 0 && !v.known() {
		return cordon.OriginUnknown
	}
	return t.origin()
}

func lit(s string) val { return val{s: s} }

func join(a, b val) val {
	return bounded(val{s: a.s + b.s, data: union(a.data, b.data), taint: a.taint | b.taint})
}

func bounded(v val) val {
	if len(v.s) > maxText {
		v.s = unknownOf(v.taint)
	}
	return v
}

func unknownOf(t taint) string {
	switch t.origin() {
	case cordon.OriginNetwork:
		return mNet
	case cordon.OriginDecoded:
		return mDecoded
	case cordon.OriginFile:
		return mFile
	}
	return mUnknown
}

func union(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	if len(a) == 0 {
		return b
	}
	out := a[:len(a):len(a)]
	for _, x := range b {
		if len(out) < 32 && !contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func contains(l []string, s string) bool {
	for _, x := range l {
		if x == s {
			return true
		}
	}
	return false
}

// cleanInput replaces the code points that are used as marks.
func cleanInput(s string) string {
	if !hasMark(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if isMark(s, i) {
			b.WriteString("\uFFFD")
			i += markLen - 1
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// dropMarks gives the text with every hole taken as empty and active pattern
// characters taken as themselves.
func dropMarks(s string) string {
	if !hasMark(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if isMark(s, i) {
			i += markLen - 1
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// globTarget renders s for an effect: plain text, or a pattern.
func globTarget(s string) (target string, pattern bool) {
	if !hasMark(s) {
		return s, false
	}
	var b strings.Builder
	class := false
	for i := 0; i < len(s); i++ {
		if !isMark(s, i) {
			c := s[i]
			if class {
				b.WriteByte(c)
				class = c != ']'
				continue
			}
			if c == '*' || c == '?' || c == '[' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
			continue
		}
		m := s[i : i+markLen]
		i += markLen - 1
		switch m {
		case mGlob:
			if i+1 < len(s) {
				i++
				b.WriteByte(s[i])
				class = s[i] == '[' && strings.IndexByte(s[i:], ']') > 0
			}
		case mName:
			b.WriteByte('*')
		default:
			if !strings.HasSuffix(b.String(), "**") {
				b.WriteString("**")
			}
		}
	}
	return b.String(), true
}

// settle turns active pattern characters into "some name": what a pathname
// expansion has left behind stays a hole even between quotes.
func settle(s string) string {
	if !strings.Contains(s, mGlob) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if !strings.HasPrefix(s[i:], mGlob) {
			b.WriteByte(s[i])
			continue
		}
		i += markLen
		if i < len(s) && s[i] == '[' {
			if j := strings.IndexByte(s[i:], ']'); j > 0 {
				i += j
			}
		}
		b.WriteString(mName)
	}
	return b.String()
}

// activate marks the pattern characters of an unquoted expansion.
func activate(s string) string {
	if !strings.ContainsAny(s, "*?[") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == '*' || c == '?' || c == '[' && strings.IndexByte(s[i:], ']') > 0 {
			b.WriteString(mGlob)
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// deactivate is what a pattern is when nothing expands it.
func deactivate(s string) string { return strings.ReplaceAll(s, mGlob, "") }

// startsUnknown reports whether nothing is known of how s begins.
func startsUnknown(s string) bool {
	for _, m := range [...]string{mUnknown, mUnset, mDecoded, mNet, mFile} {
		if strings.HasPrefix(s, m) {
			return true
		}
	}
	return false
}

// bare reports whether s holds nothing but holes.
func bare(s string) bool { return s != "" && dropMarks(s) == "" }
