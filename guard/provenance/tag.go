package provenance

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

// Style is how a Renderer delivers untrusted text beyond its tag.
type Style struct {
	// Mark, when set, stands in place of each blank of the body, so that the
	// model can tell at every word where it is (datamarking). It must be a
	// printable character that is no ASCII letter, digit or blank.
	Mark rune
	// Base64 delivers the body in base64. Mark has no effect then.
	Base64 bool
}

// Renderer delivers texts for one context of a model. It is immutable.
type Renderer struct {
	nonce string
	style Style
}

const (
	tagName   = "provenance"
	openHead  = "<" + tagName + " "
	closeTag  = "</" + tagName + ">"
	nonceSize = 16
	// neutral stands in place of a bracket. Its letters keep the brackets
	// before it from being the opening of what follows.
	neutral = "[tag:"
)

// NewRenderer returns a Renderer with a fresh nonce of 128 random bits. An
// error says what is wrong with the style.
func NewRenderer(s Style) (*Renderer, error) {
	var b [nonceSize]byte
	_, _ = rand.Read(b[:]) // never fails
	return RestoreRenderer(hex.EncodeToString(b[:]), s)
}

// RestoreRenderer returns a Renderer for a context that another process
// opened, by its nonce.
func RestoreRenderer(nonce string, s Style) (*Renderer, error) {
	if b, err := hex.DecodeString(nonce); err != nil || len(b) != nonceSize || strings.ToLower(nonce) != nonce {
		return nil, fmt.Errorf("provenance: nonce of %d characters (want %d lower-case hexadecimal digits)", len(nonce), 2*nonceSize)
	}
	if m := s.Mark; m != 0 && (!unicode.IsPrint(m) || unicode.IsSpace(m) || m < utf8.RuneSelf && class[byte(m)]&(clLetter|clDigit) != 0 || bracketLike(m) != 0 || strings.ContainsRune(`&%\"/`, m)) {
		return nil, errors.New("provenance: unfit mark (want a printable character that is no letter, digit, blank, bracket or escape)")
	}
	return &Renderer{nonce: nonce, style: s}, nil
}

// Nonce is the context's nonce, for RestoreRenderer. Whoever knows it can
// write tags; it must not stand in untrusted text.
func (r *Renderer) Nonce() string { return r.nonce }

// Render returns the chunk as it is to be delivered; see Append.
func (r *Renderer) Render(c cordon.Chunk) string {
	if c.Type.Trust() == cordon.Trusted {
		return c.Text
	}
	return string(r.Append(make([]byte, 0, len(c.Text)+len(c.Text)/16+256), c))
}

// Append appends the chunk: trusted text as it is, other text within
//
//	<provenance type="…" source="…" id="…" nonce="…">…</provenance>
//
// What could open or close such a tag in the text has its opening bracket
// replaced by "[tag:", in whatever case, spacing, escape or look-alike character.
// Text that hides a tag below several layers of escapes loses its escapes.
// Nothing else is changed, unless the style asks for it.
func (r *Renderer) Append(dst []byte, c cordon.Chunk) []byte {
	if c.Type.Trust() == cordon.Trusted {
		return append(dst, c.Text...)
	}
	dst = append(dst, openHead...)
	for _, a := range [...]struct{ name, value string }{
		{"type", string(c.Type)}, {"source", c.Source}, {"id", c.ID},
	} {
		dst = append(append(dst, a.name...), '=', '"')
		dst = append(appendAttr(dst, a.value), '"', ' ')
	}
	if r.style.Base64 {
		dst = append(dst, `encoding="base64" `...)
	}
	dst = append(append(append(dst, `nonce="`...), r.nonce...), '"', '>')
	dst = r.appendBody(dst, c.Text)
	return append(dst, closeTag...)
}

func (r *Renderer) appendBody(dst []byte, text string) []byte {
	switch {
	case r.style.Base64:
		return base64.StdEncoding.AppendEncode(dst, []byte(text))
	case r.style.Mark != 0:
		text = markBlanks(text, r.style.Mark)
	}
	return appendNeutral(dst, text, r.nonce)
}

// markBlanks puts the mark in place of each run of blanks. Marks that stand
// in the text are dropped: it must not be able to place its own.
func markBlanks(text string, mark rune) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/4)
	blank := false
	for _, c := range text {
		switch {
		case c == mark:
			continue
		case c == ' ' || c == '\t':
			if !blank {
				b.WriteRune(mark)
			}
			blank = true
			continue
		}
		blank = false
		b.WriteRune(c)
	}
	return b.String()
}

// maxAttr is how long an attribute's value may be.
const maxAttr = 512

// appendAttr escapes an attribute: printable ASCII but quotes, brackets and
// ampersands stands as it is, all else as a numeric reference.
func appendAttr(dst []byte, s string) []byte {
	n := 0
	for _, c := range s {
		if n++; n > maxAttr {
			return append(dst, "..."...)
		}
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\'' || c == '<' || c == '>' || c == '&' || c == '`' || c == '\\' || c == '%' {
			dst = fmt.Appendf(dst, "&#%d;", c)
			continue
		}
		dst = append(dst, byte(c))
	}
	return dst
}

// suspect are the bytes at which an opening bracket may begin.
var suspect = func() (t [256]bool) {
	for _, c := range `<&%\` {
		t[c] = true
	}
	for c := 0x80; c < 0x100; c++ {
		t[c] = false
	}
	for _, lead := range [...]byte{0xc2, 0xcb, 0xe1, 0xe2, 0xe3, 0xef, 0xf0} { // of the characters in bracketLike
		t[lead] = true
	}
	return t
}()

// appendNeutral appends text with every bracket that opens a tag of ours, and
// the nonce, made harmless.
func appendNeutral(dst []byte, text, nonce string) []byte {
	if strings.Contains(text, nonce) {
		// The text is not to know the nonce; where it does, it is not handed on.
		text = strings.ReplaceAll(text, nonce, "[nonce]")
	}
	start, from, layered := len(dst), 0, false
	for i := 0; i < len(text); {
		if !suspect[text[i]] {
			i++
			continue
		}
		n := opener(text[i:])
		if n == 0 {
			layered = layered || escapesEscape(text[i:])
			i++
			continue
		}
		if opensTag(text[i+n:]) {
			dst = append(append(dst, text[from:i]...), neutral...)
			from = i + n
		}
		i += n
	}
	dst = append(dst, text[from:]...)
	if layered && hidesTag(dst[start:]) {
		dst = appendPlain(dst[:start], string(dst[start:]))
	}
	return dst
}

// escapesEscape reports an escape whose reading may begin another one, or one
// that has other characters in it.
func escapesEscape(s string) bool {
	if s[0] >= utf8.RuneSelf {
		r, _ := utf8.DecodeRuneInString(s)
		return r == '\uff06' || r == '\ufe60' || r == '\uff05' || r == '\ufe6a' || r == '\uff3c' || r == '\ufe68'
	}
	for i := 1; i < len(s) && i < 12 && s[i] != ' '; i++ {
		// Control characters are not seen either, and fall out in reading.
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return true
		}
	}
	r, n := decode(s)
	switch r {
	case '&', '%':
		return n > 1 && (s[0] != '&' || r != '&' || s[1] == '#')
	case '\\':
		return n > 1 && s[n-1] != '\\'
	}
	return false
}

// maxLayers is how many times over a text is read for a hidden tag.
const maxLayers = 6

// hidesTag reports text that has a tag of ours once it is read several times
// over.
func hidesTag(body []byte) bool {
	f := foldText(nil, string(body))
	for range maxLayers {
		if at, _ := nextTag(string(f), 0); at >= 0 {
			return true
		}
		again := foldText(nil, string(f))
		if string(again) == string(f) {
			return false
		}
		f = again
	}
	return true // nothing honest is written so
}

// appendPlain appends text without anything that could be read as an escape or
// a bracket, for text that hides a tag below several layers of escapes.
func appendPlain(dst []byte, text string) []byte {
	for _, r := range text {
		switch {
		case r == '<' || bracketLike(r) == '<':
			dst = append(dst, neutral...)
		case r == '&' || r == '%' || r == '\\' || r >= utf8.RuneSelf && invisible(r) || escapesEscape(string(r)) && r >= utf8.RuneSelf:
			dst = append(dst, '_')
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// opener is the length of the opening bracket that s begins with, escaped or
// a look-alike; 0 for anything else.
func opener(s string) int {
	if s[0] == '<' {
		return 1
	}
	if s[0] >= utf8.RuneSelf {
		r, n := utf8.DecodeRuneInString(s)
		if bracketLike(r) == '<' {
			return n
		}
		return 0
	}
	if s[0] == '&' {
		// Most ampersands begin no reference, or are the escape of one.
		rest := strings.TrimPrefix(s[1:], "amp;")
		if rest == "" || rest[0] != '#' && class[rest[0]]&clLetter == 0 {
			return 0
		}
	}
	r, n := decode(s)
	if r == '<' || r >= utf8.RuneSelf && bracketLike(r) == '<' {
		return n
	}
	return 0
}

// opensTag reports whether what follows an opening bracket is the name of our
// tag, whatever stands between its letters. It stops at the next opening
// bracket, so that looking from each takes linear time in all.
func opensTag(s string) bool {
	// The usual tags differ in their first letter.
	first := strings.TrimPrefix(s, "/")
	if first != "" && class[first[0]]&clLetter != 0 && first[0]|0x20 != tagName[0] {
		return false
	}
	at := 0
	for i := 0; i < len(s); {
		r, n := decode(s[i:])
		i += n
		if r == '<' || bracketLike(r) == '<' {
			return false
		}
		var buf [utf8.UTFMax * 18]byte
		for _, c := range appendFolded(buf[:0], r) {
			if class[c]&clSymbol == 0 {
				continue
			}
			if c != tagName[at] {
				return false
			}
			if at++; at == len(tagName) {
				return true
			}
		}
	}
	return false
}

// appendFolded appends the form in which a character is compared.
func appendFolded(dst []byte, r rune) []byte {
	if r >= utf8.RuneSelf {
		return appendRune(dst, r)
	}
	return append(dst, plain[byte(r)])
}

// Span is a part of rendered text.
type Span struct {
	// Start and End are byte positions; of untrusted text with its tags.
	Start, End int
	// Chunk is the ID in the tag; empty for trusted text and broken tags.
	Chunk   string
	Trusted bool
	// Broken says what is wrong with the tag that makes the span untrusted.
	Broken string
}

// Spans divides rendered text into trusted and untrusted parts, without gaps.
// Only a tag that this context wrote, opened and closed, ends being untrusted:
// what follows a tag that is malformed, nested, not closed or of another
// nonce is untrusted to the end, and what stands before a closing tag that
// closes nothing is so too. It takes time linear in the text.
func (r *Renderer) Spans(text string) []Span {
	var spans []Span
	add := func(s Span) {
		if s.Start < s.End {
			spans = append(spans, s)
		}
	}
	broken := func(start int, why string) []Span {
		add(Span{Start: start, End: len(text), Broken: why})
		return spans
	}
	for i := 0; ; {
		at, n := nextTag(text, i)
		if at < 0 {
			add(Span{Start: i, End: len(text), Trusted: true})
			return spans
		}
		if strings.HasPrefix(text[at:], closeTag) {
			return []Span{{End: len(text), Broken: "a closing tag that closes nothing"}}
		}
		id, end, why := r.openTag(text, at)
		if why != "" {
			add(Span{Start: i, End: at, Trusted: true})
			return broken(at, why)
		}
		add(Span{Start: i, End: at, Trusted: true})
		inner, _ := nextTag(text, max(end, at+n))
		if inner < 0 {
			return broken(at, "a tag that is not closed")
		}
		if !strings.HasPrefix(text[inner:], closeTag) {
			return broken(at, "a tag within a tag")
		}
		i = inner + len(closeTag)
		add(Span{Start: at, End: i, Chunk: id})
	}
}

// nextTag finds the next bracket that opens anything like a tag of ours.
func nextTag(text string, i int) (at, n int) {
	for i < len(text) {
		if !suspect[text[i]] {
			i++
			continue
		}
		if n := opener(text[i:]); n > 0 {
			if opensTag(text[i+n:]) {
				return i, n
			}
			i += n
			continue
		}
		i++
	}
	return -1, 0
}

// openTag reads an opening tag exactly as Append writes it.
func (r *Renderer) openTag(text string, at int) (id string, end int, broken string) {
	const malformed = "a malformed tag"
	rest, ok := strings.CutPrefix(text[at:], openHead)
	if !ok {
		return "", 0, malformed
	}
	var nonce string
	for _, name := range [...]string{"type", "source", "id", "encoding", "nonce"} {
		value, after, ok := attr(rest, name)
		switch {
		case !ok && name == "encoding":
			continue
		case !ok:
			return "", 0, malformed
		case name == "id":
			id = value
		case name == "nonce":
			nonce = value
		case name == "type" && cordon.ChunkType(value).Trust() == cordon.Trusted, name == "encoding" && value != "base64":
			return "", 0, malformed
		}
		rest = after
		if name != "nonce" {
			if rest, ok = strings.CutPrefix(rest, " "); !ok {
				return "", 0, malformed
			}
		}
	}
	if !strings.HasPrefix(rest, ">") {
		return "", 0, malformed
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(r.nonce)) != 1 {
		return "", 0, "a tag of another context"
	}
	return id, len(text) - len(rest) + 1, ""
}

// attr reads name="value"; an escaped value is never longer than 8 bytes a
// character.
func attr(s, name string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, name)
	if !ok {
		return "", "", false
	}
	if s, ok = strings.CutPrefix(s, `="`); !ok {
		return "", "", false
	}
	end := strings.IndexByte(s[:min(len(s), maxAttr*10)], '"')
	if end < 0 || strings.ContainsAny(s[:end], "<>\n") {
		return "", "", false
	}
	return s[:end], s[end+1:], true
}

// IsToolInvocationFromTrusted reports whether what stands at the offset of
// rendered text was said by somebody who may call tools: outside of all tags,
// in text whose tags are all in order as Spans has it. An offset outside of
// the text, or within a tag, is not. For many offsets call Spans once.
func (r *Renderer) IsToolInvocationFromTrusted(text string, offset int) bool {
	if offset < 0 || offset >= len(text) {
		return false
	}
	for _, s := range r.Spans(text) {
		if offset < s.End {
			return s.Trusted && offset >= s.Start
		}
	}
	return false
}

// Invocations finds the text in the shape of a tool call within untrusted
// parts of rendered text; known is as for Scan. Text in base64 has no shape.
func (r *Renderer) Invocations(text string, known func(tool string) bool) (found []Invocation, complete bool) {
	complete = true
	for _, s := range r.Spans(text) {
		if s.Trusted {
			continue
		}
		in, all := Scan(text[s.Start:s.End], known)
		for _, i := range in {
			i.Offset, i.End = i.Offset+s.Start, i.End+s.Start
			found = append(found, i)
		}
		complete = complete && all
	}
	return found, complete
}
