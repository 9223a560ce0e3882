package javascript

import (
	"fmt"
	"strings"
	"sync"
)

// prescan says what in src is beyond the limits; empty is nothing. It stands
// before the parsers because they recurse, and because some of their work
// grows with the square of a chain's length.
//
// It knows strings, templates, comments and most regular expressions. A text
// that misleads it meets the parsers' own limits, and the time limit.
func prescan(src string) string {
	if len(src) > maxBytes {
		return fmt.Sprintf("of more than %d KiB", maxBytes>>10)
	}
	p := scanner{src: src, levels: make([]level, 1, 16)}
	for p.at < len(p.src) && p.deepest <= maxNesting {
		p.step()
	}
	if p.deepest > maxNesting {
		return fmt.Sprintf("nested more than %d deep", maxNesting)
	}
	return ""
}

// scanner walks over a text and keeps how deep a parser would go.
type scanner struct {
	src     string
	at      int
	levels  []level
	prev    byte   // the last byte that was no blank or comment
	word    string // the last word, where prev ended one
	newline bool   // a line ended since prev
	deepest int
}

// level is an open bracket: what is chained at its level, in halves of a
// level of nesting.
type level struct {
	open   byte
	chain  int // operators that recurse, since the last separator
	prefix int // prefix operators in a row
	elses  int // else and if, in a row or not
}

func (p *scanner) top() *level { return &p.levels[len(p.levels)-1] }

func (p *scanner) note() {
	l := p.top()
	p.deepest = max(p.deepest, len(p.levels)-1+l.prefix, l.chain/2, l.elses)
}

func (p *scanner) step() {
	c := p.src[p.at]
	if c == ' ' || c == '\t' || c == '\r' || c == '\n' {
		p.newline = p.newline || c == '\n' || c == '\r'
		p.at++
		return
	}
	if c == '/' && p.slash() {
		return
	}
	l := p.top()
	if p.newline && endsValue(p.prev) && startsStatement(c) {
		*l = level{open: l.open, elses: l.elses}
	}
	p.newline = false
	prev := p.prev
	p.prev = c
	p.at++
	if isWord(c) || c == '\\' || c == '#' || c == '@' {
		p.name()
		return
	}
	p.word = ""
	switch c {
	case '"', '\'':
		p.quoted(c)
	case '`':
		p.template()
	case '(', '[', '{':
		if c != '{' && endsValue(prev) {
			l.chain++
			p.note()
		}
		p.push(c)
		return
	case ')', ']':
		p.pop()
	case '}':
		if p.pop() == '`' {
			p.template()
		}
	case ';', ',':
		l.chain, l.prefix = 0, 0
		return
	case '!', '~', '+', '-':
		l.prefix++
		l.chain++
		p.note()
		return
	case '?', '=', '*', ':':
		l.chain += 2
		p.note()
	default:
		l.chain++
		p.note()
	}
	p.top().prefix = 0
}

// name reads a word.
func (p *scanner) name() {
	start := p.at - 1
	for p.at < len(p.src) && (isWord(p.src[p.at]) || p.src[p.at] == '\\') {
		p.at++
	}
	p.word = p.src[start:p.at]
	p.prev = 'a'
	l := p.top()
	switch p.word {
	case "typeof", "void", "await", "new", "delete", "yield", "for", "while", "do", "with", "async", "throw", "return", "in", "instanceof":
		l.prefix++
	case "if":
		l.prefix++
	case "else":
		l.elses++
	case "case":
		l.chain, l.prefix = 0, 0
	default:
		l.prefix = 0
	}
	p.note()
}

// slash reads a comment or a regular expression; false: it is a division.
func (p *scanner) slash() bool {
	rest := p.src[p.at:]
	switch {
	case strings.HasPrefix(rest, "//"):
		i := strings.IndexAny(rest, "\r\n")
		if i < 0 {
			i = len(rest)
		}
		p.at += i
		return true
	case strings.HasPrefix(rest, "/*"):
		i := strings.Index(rest[2:], "*/")
		if i < 0 {
			p.at = len(p.src)
		} else {
			p.newline = p.newline || strings.ContainsAny(rest[:i+2], "\r\n")
			p.at += i + 4
		}
		return true
	}
	if endsValue(p.prev) && !keywordBefore()[p.word] {
		return false
	}
	class := false
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\':
			i++
		case c == '\n' || c == '\r':
			return false
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			p.at += i + 1
			p.prev, p.word, p.newline = ')', "", false
			return true
		}
	}
	return false
}

// keywordBefore are words that a regular expression can follow.
var keywordBefore = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"return": true, "typeof": true, "case": true, "in": true, "of": true, "void": true, "delete": true, "do": true, "else": true, "await": true, "yield": true, "throw": true, "instanceof": true, "new": true}
})

// endsValue is whether a byte can be the last of an expression.
func endsValue(c byte) bool {
	return isWord(c) || c == ')' || c == ']' || c == '}' || c == '"' || c == '\'' || c == '`'
}

// startsStatement is whether a byte on a new line starts a statement, after
// what can end one.
func startsStatement(c byte) bool {
	return isWord(c) || c == '"' || c == '\'' || c == '@' || c == '#' || c == '{' || c == '}'
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

func (p *scanner) push(c byte) {
	p.levels = append(p.levels, level{open: c})
	p.note()
}

func (p *scanner) pop() byte {
	if len(p.levels) == 1 {
		return 0
	}
	c := p.top().open
	p.levels = p.levels[:len(p.levels)-1]
	l := p.top()
	l.prefix = 0
	if c == '{' {
		l.chain = 0
	}
	return c
}

func (p *scanner) quoted(q byte) {
	for p.at < len(p.src) {
		c := p.src[p.at]
		p.at++
		switch c {
		case '\\':
			p.at++
		case q, '\n':
			return
		}
	}
}

func (p *scanner) template() {
	for p.at < len(p.src) {
		c := p.src[p.at]
		p.at++
		switch {
		case c == '\\':
			p.at++
		case c == '`':
			p.prev = '`'
			return
		case c == '$' && p.at < len(p.src) && p.src[p.at] == '{':
			p.at++
			p.push('`')
			p.prev = '{'
			return
		}
	}
}
