package syntax

import "strings"

// maxBads is how many broken statements are looked at.
const maxBads = 2000

// parseTolerant reads what it can of source that does not parse: Python 2,
// notebook lines, broken text. Lines without sense become *Bad.
func parseTolerant(text string) (body []Stmt, limit string) {
	lx := lexer{text: text, end: len(text), tolerant: true, toks: make([]Token, 0, len(text)/3+16)}
	lx.run()
	if lx.err == limitNesting || lx.unclosed > maxUnclosed {
		limit = "the source is too broken or nests too deep to be read"
	}
	p := &parser{text: text, toks: lx.toks, tolerant: true}
	p.fuel = 8*len(p.toks) + 1000
	for p.peek() != EOF && p.bads < maxBads && p.fuel > 0 {
		if p.got(Indent) || p.got(Dedent) {
			continue
		}
		var out []Stmt
		if p.attempt(func() { out = p.statement(nil) }) {
			body = append(body, out...)
			continue
		}
		body = append(body, p.salvage())
	}
	if p.bads >= maxBads || p.fuel <= 0 {
		limit = "the source has too many broken lines to be read"
	}
	return body, limit
}

// attempt runs f; where that fails it goes back and pays for what was read.
func (p *parser) attempt(f func()) bool {
	start := p.i
	if p.try(f) == nil && p.i > start {
		return true
	}
	p.fuel -= p.i - start + 1
	p.i = start
	return false
}

// salvage takes one broken line and the expressions that stand in it.
func (p *parser) salvage() Stmt {
	p.bads++
	b := &Bad{At: p.at()}
	if p.peek() == Unknown || p.peek() == Bang {
		line := p.text[b.At:]
		if nl := strings.IndexByte(line, '\n'); nl >= 0 {
			line = line[:nl]
		}
		if strings.HasPrefix(line, "!") {
			b.Shell = strings.TrimSpace(strings.TrimLeft(line, "!"))
		}
	}
	for p.peek() != Newline && p.peek() != EOF {
		var x Expr
		switch {
		case p.fuel <= 0:
		case p.startsExpr():
			p.attempt(func() { x = p.named() })
		case p.peek() == KwImport || p.peek() == KwFrom:
			// A statement in the middle of a line, after "if x:" or ";".
			p.attempt(func() {
				s := p.simple()
				x = &Inline{At: At(s.Pos()), Stmt: s}
			})
		}
		if x == nil {
			p.next()
			continue
		}
		b.Exprs = append(b.Exprs, x)
	}
	p.next()
	return b
}

// Inline is a statement found inside a broken line.
type Inline struct {
	At
	Stmt Stmt
}

// legacy reads Python 2's print and exec statements.
func (p *parser) legacy(at At) Stmt {
	exec := p.word(0, "exec")
	if !exec && !p.word(0, "print") {
		return nil
	}
	switch p.peekAt(1) {
	case LParen, Equals, Dot, Newline, Comma, LBracket, RParen, Colon:
		return nil
	}
	p.next()
	if p.peek() == RShift {
		p.next()
	}
	b := &Bad{At: at, Exec: exec}
	if !p.startsExpr() {
		return b
	}
	b.Exprs = []Expr{p.starExprs()}
	if exec && p.got(KwIn) {
		b.Exprs = append(b.Exprs, p.starExprs())
	}
	return b
}
