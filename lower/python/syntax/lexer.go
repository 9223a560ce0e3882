package syntax

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lexer cuts text into tokens. In strict mode the first fault ends it; in
// tolerant mode it goes on after one.
type lexer struct {
	text     string
	pos, end int
	toks     []Token
	indents  []int
	parens   []byte
	tolerant bool
	nested   bool // inside a replacement field: no lines, no indentation
	unclosed int
	err      string
	errPos   int
}

// maxUnclosed bounds how often the tolerant mode looks for the end of a string
// that has none: each look can go through all of the text.
const maxUnclosed = 100

func (l *lexer) fail(pos int, msg string) {
	if l.err == "" {
		l.err, l.errPos = msg, pos
	}
}

func (l *lexer) stopped() bool { return l.err != "" && !l.tolerant }

func (l *lexer) add(k Kind, start, end int) {
	l.toks = append(l.toks, Token{Kind: k, Start: int32(start), End: int32(end)})
}

// run reads all tokens; the last one is EOF.
func (l *lexer) run() {
	if !l.nested {
		l.indents = append(l.indents, l.firstColumn())
		l.lineStart()
	}
	for l.pos < l.end && !l.stopped() {
		l.token()
	}
	if !l.nested {
		if len(l.parens) > 0 {
			l.fail(l.end, "a bracket is never closed")
		}
		if n := len(l.toks); n > 0 && l.toks[n-1].Kind != Newline && l.toks[n-1].Kind != Dedent {
			l.add(Newline, l.end, l.end)
		}
		for range len(l.indents) - 1 {
			l.add(Dedent, l.end, l.end)
		}
	}
	l.add(EOF, l.end, l.end)
}

// firstColumn is the indentation of the first line with code: a snippet that
// is indented as a whole is read as if it were dedented.
func (l *lexer) firstColumn() int {
	p := l.pos
	for p < l.end {
		col, q := l.column(p)
		if q < l.end && (l.text[q] == '\n' || l.text[q] == '#') {
			nl := strings.IndexByte(l.text[q:l.end], '\n')
			if nl < 0 {
				return 0
			}
			p = q + nl + 1
			continue
		}
		return col
	}
	return 0
}

// column measures the white space at p: tabs go to multiples of eight, a form
// feed starts again, a continued line keeps the column of its first part.
func (l *lexer) column(p int) (col, end int) {
	cont := -1
	for p < l.end {
		switch l.text[p] {
		case ' ':
			col++
		case '\t':
			col = (col/8 + 1) * 8
		case '\f':
			col = 0
		case '\\':
			if p+1 < l.end && l.text[p+1] == '\n' {
				if cont < 0 {
					cont = col
				}
				col = 0
				p++
				break
			}
			return pick(cont, col), p
		default:
			return pick(cont, col), p
		}
		p++
	}
	return pick(cont, col), p
}

func pick(cont, col int) int {
	if cont > 0 {
		return cont
	}
	return col
}

// lineStart handles indentation up to the next line that has code.
func (l *lexer) lineStart() {
	for l.pos < l.end {
		col, p := l.column(l.pos)
		if p >= l.end {
			l.pos = p
			return
		}
		if l.text[p] == '#' {
			nl := strings.IndexByte(l.text[p:l.end], '\n')
			if nl < 0 {
				l.pos = l.end
				return
			}
			p += nl
		}
		if l.text[p] == '\n' {
			l.pos = p + 1
			continue
		}
		l.pos = p
		l.indent(col)
		return
	}
}

func (l *lexer) indent(col int) {
	top := l.indents[len(l.indents)-1]
	if col > top {
		if len(l.indents) > MaxNesting {
			l.fail(l.pos, limitNesting)
			return
		}
		l.indents = append(l.indents, col)
		l.add(Indent, l.pos, l.pos)
		return
	}
	for col < l.indents[len(l.indents)-1] {
		if len(l.indents) == 1 {
			l.fail(l.pos, "a line is indented less than the first one")
			l.indents[0] = col
			return
		}
		l.indents = l.indents[:len(l.indents)-1]
		l.add(Dedent, l.pos, l.pos)
	}
	if col != l.indents[len(l.indents)-1] {
		l.fail(l.pos, "an indentation matches no outer one")
	}
}

const limitNesting = "the source nests deeper than 500"

func (l *lexer) token() {
	c := l.text[l.pos]
	switch {
	case c == ' ' || c == '\t' || c == '\f':
		l.pos++
	case c == '\n':
		l.newline()
	case c == '#':
		if nl := strings.IndexByte(l.text[l.pos:l.end], '\n'); nl >= 0 {
			l.pos += nl
		} else {
			l.pos = l.end
		}
	case c == '\\':
		l.continuation()
	case identStart(c):
		l.word()
	case c >= utf8.RuneSelf:
		l.word()
	case c >= '0' && c <= '9', c == '.' && l.pos+1 < l.end && digit(l.text[l.pos+1]):
		end := scanNumber(l.text[:l.end], l.pos, l.tolerant)
		l.add(Number, l.pos, end)
		l.pos = end
	case c == '"' || c == '\'':
		l.str(l.pos, l.pos, false, false)
	default:
		l.operator()
	}
}

func (l *lexer) newline() {
	l.pos++
	if l.nested {
		return
	}
	if len(l.parens) > 0 {
		if !l.tolerant || !l.statementAhead() {
			return
		}
		l.parens = l.parens[:0]
	}
	l.add(Newline, l.pos-1, l.pos)
	l.lineStart()
}

// statementAhead: in broken source an unclosed bracket must not swallow the
// statements after it.
func (l *lexer) statementAhead() bool {
	_, p := l.column(l.pos)
	e := p
	for e < l.end && identStart(l.text[e]) {
		e++
	}
	switch keyword(l.text[p:e]) {
	case KwImport, KwDef, KwClass, KwReturn, KwWith, KwWhile, KwTry, KwRaise, KwDel, KwGlobal, KwAssert:
		return true
	}
	return false
}

func (l *lexer) continuation() {
	if l.pos+1 < l.end && l.text[l.pos+1] == '\n' {
		l.pos += 2
		if l.pos >= l.end && !l.nested {
			l.fail(l.pos, "the source ends after a backslash")
		}
		return
	}
	l.fail(l.pos, "a backslash stands before something else than a line end")
	l.pos++
}

func identStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// word reads a name, a keyword, or the prefix of a string.
func (l *lexer) word() {
	start, p := l.pos, l.pos
	ascii := true
	for p < l.end {
		c := l.text[p]
		if identStart(c) || digit(c) {
			p++
			continue
		}
		if c < utf8.RuneSelf {
			break
		}
		r, n := utf8.DecodeRuneInString(l.text[p:l.end])
		if !identRune(r) {
			break
		}
		ascii = false
		p += n
	}
	if p == start {
		_, n := utf8.DecodeRuneInString(l.text[p:l.end])
		l.fail(p, fmt.Sprintf("invalid character %q", l.text[p:p+n]))
		l.add(Unknown, p, p+n)
		l.pos = p + n
		return
	}
	if p < l.end && (l.text[p] == '"' || l.text[p] == '\'') && p-start <= 2 {
		if raw, field, ok := stringPrefix(l.text[start:p]); ok {
			l.str(start, p, raw, field)
			return
		}
	}
	k := Ident
	if ascii {
		k = keyword(l.text[start:p])
	}
	l.add(k, start, p)
	l.pos = p
}

// identRune follows CPython: what is a letter, a digit or a mark after NFKC.
func identRune(r rune) bool {
	if r == utf8.RuneError {
		return false
	}
	if unicode.In(r, unicode.L, unicode.Nl, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Start, unicode.Other_ID_Continue) {
		return true
	}
	return false
}

// identName is the name as CPython compares it.
func identName(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return norm.NFKC.String(s)
		}
	}
	return s
}

func stringPrefix(s string) (raw, field, ok bool) {
	var seen [128]bool
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		switch c {
		case 'r':
			raw = true
		case 'f', 't':
			field = true
		case 'b', 'u':
		default:
			return false, false, false
		}
		if seen[c] {
			return false, false, false
		}
		seen[c] = true
	}
	if len(s) == 2 && !seen['r'] {
		return false, false, false
	}
	// "ur" is Python 2's; it reads like "r".
	return raw, field, true
}

// str reads a string whose prefix starts at start and whose quotes are at q.
func (l *lexer) str(start, q int, raw, field bool) {
	end, ok := scanString(l.text[:l.end], q, raw, field, 0)
	if !ok {
		l.fail(start, "a string is never closed")
		if l.unclosed++; l.unclosed > maxUnclosed {
			l.pos = l.end
			return
		}
		if len(l.text)-q >= 3 && l.text[q:q+3] == strings.Repeat(l.text[q:q+1], 3) {
			// What an unclosed triple quote would hide is read as code.
			l.pos = q + 3
			return
		}
		nl := strings.IndexByte(l.text[q:l.end], '\n')
		if end = q + nl; nl < 0 {
			end = l.end
		}
		l.pos = end
		if field {
			return
		}
		l.add(Unknown, start, end)
		return
	}
	k := String
	if field {
		k = FString
	}
	l.add(k, start, end)
	l.pos = end
}

func (l *lexer) operator() {
	k, n := operator(l.text[l.pos:l.end])
	p := l.pos
	if n == 0 || (k == Backquote || k == Bang) && !l.nested {
		l.fail(p, fmt.Sprintf("invalid character %q", l.text[p:p+1]))
		n = 1
	}
	switch k {
	case LParen, LBracket, LBrace:
		if len(l.parens) >= MaxNesting {
			l.fail(p, limitNesting)
			l.pos = l.end
			return
		}
		l.parens = append(l.parens, l.text[p])
	case RParen, RBracket, RBrace:
		if n := len(l.parens); n > 0 && closes(l.parens[n-1], l.text[p]) {
			l.parens = l.parens[:n-1]
		} else {
			l.fail(p, fmt.Sprintf("%q closes nothing", l.text[p]))
			if n > 0 {
				l.parens = l.parens[:n-1]
			}
		}
	}
	l.add(k, p, p+n)
	l.pos = p + n
}

func closes(open, c byte) bool {
	return open == '(' && c == ')' || open == '[' && c == ']' || open == '{' && c == '}'
}

// scanNumber finds the end of the number at p.
func scanNumber(s string, p int, legacy bool) int {
	class := func(ok func(byte) bool) {
		for p < len(s) && (ok(s[p]) || s[p] == '_' && p+1 < len(s) && ok(s[p+1])) {
			p++
		}
	}
	if s[p] == '0' && p+1 < len(s) {
		var ok func(byte) bool
		switch s[p+1] | 0x20 {
		case 'x':
			ok = func(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		case 'o':
			ok = func(c byte) bool { return c >= '0' && c <= '7' }
		case 'b':
			ok = func(c byte) bool { return c == '0' || c == '1' }
		}
		if ok != nil {
			p += 2
			class(ok)
			return longSuffix(s, p, legacy)
		}
	}
	class(digit)
	if p < len(s) && s[p] == '.' {
		p++
		if p < len(s) && digit(s[p]) {
			class(digit)
		}
	}
	if p < len(s) && s[p]|0x20 == 'e' {
		q := p + 1
		if q < len(s) && (s[q] == '+' || s[q] == '-') {
			q++
		}
		if q < len(s) && digit(s[q]) {
			p = q
			class(digit)
		}
	}
	if p < len(s) && s[p]|0x20 == 'j' {
		return p + 1
	}
	return longSuffix(s, p, legacy)
}

func longSuffix(s string, p int, legacy bool) int {
	if legacy && p < len(s) && s[p]|0x20 == 'l' {
		return p + 1
	}
	return p
}
