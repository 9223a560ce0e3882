package syntax

import (
	"fmt"
	"strings"
)

// Parse reads a module. It never fails: what cannot be read is a *Bad
// statement, and File says so. Source past MaxSize or MaxNesting sets
// File.Limit.
func Parse(src string) *File {
	if len(src) > MaxSize {
		return &File{Limit: fmt.Sprintf("the source is larger than %d bytes", MaxSize)}
	}
	text, problems := prepare(src)
	f := &File{Text: text, Problems: problems}
	body, err := parseStrict(text)
	if err == nil {
		f.Body = body
		return f
	}
	if err.msg == limitNesting {
		f.Limit = limitNesting
		return f
	}
	if plain, ok := withoutMagics(text); ok {
		if body, err := parseStrict(plain); err == nil {
			f.Text, f.Body = plain, body
			return f
		}
	}
	f.Problems = append(f.Problems, fmt.Sprintf("does not parse as Python: line %d: %s", 1+strings.Count(text[:min(err.pos, len(text))], "\n"), err.msg))
	f.Body, f.Limit = parseTolerant(text)
	return f
}

// withoutMagics blanks the notebook commands that only set how results are
// shown; ok is false where there are none.
func withoutMagics(text string) (plain string, ok bool) {
	if !strings.HasPrefix(text, "%") && !strings.Contains(text, "\n%") {
		return "", false
	}
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if bare := strings.TrimRight(line, " \t\n"); magic(bare) {
			lines[i] = strings.Repeat(" ", len(bare)) + line[len(bare):]
			ok = true
		}
	}
	return strings.Join(lines, ""), ok
}

func magic(line string) bool {
	switch line {
	case "%load_ext autoreload", "%autoreload", "%autoreload 0", "%autoreload 1", "%autoreload 2", "%%time", "%%capture", "%pylab inline":
		return true
	}
	word, arg, _ := strings.Cut(line, " ")
	switch word {
	case "%matplotlib", "%precision":
		return letters(arg, "")
	case "%config":
		return strings.HasPrefix(arg, "InlineBackend.") && letters(arg, ".='\" ")
	}
	return false
}

// letters: s is made of letters, digits, "_" and what else is allowed.
func letters(s, also string) bool {
	for _, r := range s {
		if !(r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(also, r)) {
			return false
		}
	}
	return true
}

// ParseExpr reads a single expression, as eval() would; ok is false where it
// is none.
func ParseExpr(src string) (x Expr, ok bool) {
	if len(src) > MaxSize {
		return nil, false
	}
	lx := lexer{text: src, end: len(src), nested: true}
	lx.run()
	if lx.err != "" {
		return nil, false
	}
	p := &parser{text: src, toks: lx.toks}
	err := p.try(func() { x = p.starExprs() })
	return x, err == nil && p.peek() == EOF
}

func parseStrict(text string) ([]Stmt, *fault) {
	lx := lexer{text: text, end: len(text), toks: make([]Token, 0, len(text)/3+16)}
	lx.run()
	if lx.err != "" {
		return nil, &fault{lx.errPos, lx.err}
	}
	p := &parser{text: text, toks: lx.toks}
	var body []Stmt
	err := p.try(func() {
		for p.peek() != EOF {
			body = p.statement(body)
		}
	})
	return body, err
}

// fault is why the source could not be read; it travels as a panic inside the
// parser and never leaves it.
type fault struct {
	pos int
	msg string
}

type parser struct {
	text     string
	toks     []Token
	i        int
	depth    int
	tolerant bool
	bads     int // broken statements so far
	fuel     int // what failed attempts of the tolerant mode may still read
}

// try runs f and returns the fault that ended it.
func (p *parser) try(f func()) (err *fault) {
	depth := p.depth
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *fault:
			err, p.depth = r, depth
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

func (p *parser) fail(pos int, msg string) { panic(&fault{pos, msg}) }

func (p *parser) unexpected() {
	t := p.toks[p.i]
	what := p.text[t.Start:t.End]
	switch {
	case t.Kind == EOF:
		what = "end of source"
	case t.Kind == Indent:
		what = "indentation"
	case t.Kind == Dedent:
		what = "dedentation"
	case strings.TrimSpace(what) == "":
		what = "end of line"
	case len(what) > 30:
		what = what[:30]
	}
	p.fail(int(t.Start), "unexpected "+fmt.Sprintf("%q", what))
}

func (p *parser) enter() {
	if p.depth++; p.depth > MaxNesting {
		p.fail(int(p.toks[min(p.i, len(p.toks)-1)].Start), limitNesting)
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) peek() Kind { return p.toks[p.i].Kind }

func (p *parser) peekAt(n int) Kind {
	if p.i+n < len(p.toks) {
		return p.toks[p.i+n].Kind
	}
	return EOF
}

// next takes a token; the last one, EOF, stays.
func (p *parser) next() Token {
	t := p.toks[p.i]
	if p.i < len(p.toks)-1 {
		p.i++
	}
	return t
}

func (p *parser) got(k Kind) bool {
	if p.peek() == k {
		p.next()
		return true
	}
	return false
}

func (p *parser) want(k Kind) Token {
	if p.peek() != k {
		p.unexpected()
	}
	return p.next()
}

func (p *parser) at() At { return At(p.toks[p.i].Start) }

func (p *parser) str(t Token) string { return p.text[t.Start:t.End] }

// word reports whether the token n ahead is the soft keyword w.
func (p *parser) word(n int, w string) bool {
	if p.i+n >= len(p.toks) {
		return false
	}
	t := p.toks[p.i+n]
	return t.Kind == Ident && p.str(t) == w
}

func (p *parser) ident() string { return identName(p.str(p.want(Ident))) }
