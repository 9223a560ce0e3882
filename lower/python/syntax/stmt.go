package syntax

import "strings"

// statement reads one statement, or one line of simple ones, onto out.
func (p *parser) statement(out []Stmt) []Stmt {
	p.enter()
	defer p.leave()
	at := p.at()
	switch p.peek() {
	case KwIf:
		return append(out, p.ifStmt())
	case KwWhile:
		p.next()
		w := &While{At: at, Test: p.named(), Body: p.block()}
		w.Else = p.elseBlock()
		return append(out, w)
	case KwFor:
		return append(out, p.forStmt(at, false))
	case KwTry:
		return append(out, p.tryStmt())
	case KwWith:
		return append(out, p.withStmt(at, false))
	case KwDef:
		return append(out, p.funcDef(at, nil, false))
	case KwClass:
		return append(out, p.classDef(at, nil))
	case AtSign:
		return append(out, p.decorated())
	case KwAsync:
		return append(out, p.async(at, nil))
	case Ident:
		if p.word(0, "match") {
			if m := p.matchStmt(); m != nil {
				return append(out, m)
			}
		}
	case Newline:
		if p.tolerant {
			p.next()
			return out
		}
	}
	return p.simpleLine(out)
}

func (p *parser) async(at At, decorators []Expr) Stmt {
	p.next()
	switch p.peek() {
	case KwDef:
		return p.funcDef(at, decorators, true)
	case KwFor:
		return p.forStmt(at, true)
	case KwWith:
		return p.withStmt(at, true)
	}
	p.unexpected()
	return nil
}

func (p *parser) simpleLine(out []Stmt) []Stmt {
	for {
		out = append(out, p.simple())
		if p.got(Semi) {
			if p.got(Newline) {
				return out
			}
			continue
		}
		p.want(Newline)
		return out
	}
}

// block is what follows a header: a colon, then a suite.
func (p *parser) block() []Stmt {
	p.want(Colon)
	if !p.got(Newline) {
		return p.simpleLine(nil)
	}
	p.want(Indent)
	var body []Stmt
	for p.peek() != Dedent && p.peek() != EOF {
		body = p.statement(body)
	}
	p.want(Dedent)
	return body
}

func (p *parser) elseBlock() []Stmt {
	if p.got(KwElse) {
		return p.block()
	}
	return nil
}

func (p *parser) ifStmt() Stmt {
	s := &If{At: p.at()}
	for p.peek() == KwIf || p.peek() == KwElif {
		c := IfClause{At: p.at()}
		p.next()
		c.Test = p.named()
		c.Body = p.block()
		s.Clauses = append(s.Clauses, c)
		if p.peek() == KwIf {
			return s
		}
	}
	s.Else = p.elseBlock()
	return s
}

func (p *parser) forStmt(at At, async bool) Stmt {
	p.want(KwFor)
	f := &For{At: at, Async: async, Target: p.targets()}
	p.want(KwIn)
	f.Iter = p.starExprs()
	f.Body = p.block()
	f.Else = p.elseBlock()
	return f
}

func (p *parser) tryStmt() Stmt {
	t := &Try{At: p.at()}
	p.next()
	t.Body = p.block()
	for p.peek() == KwExcept {
		h := Handler{At: p.at()}
		p.next()
		if p.got(Star) {
			t.Star = true
		}
		if p.peek() != Colon {
			h.Type = p.list(p.expr) // PEP 758: several without parentheses
			if p.got(KwAs) {
				h.Name = p.ident()
			} else if seq, ok := h.Type.(*Seq); ok && p.tolerant && len(seq.Elts) == 2 {
				if n, ok := seq.Elts[1].(*Name); ok { // Python 2's `except E, name`
					h.Type, h.Name = seq.Elts[0], n.ID
				}
			}
		}
		h.Body = p.block()
		t.Handlers = append(t.Handlers, h)
	}
	t.Else = p.elseBlock()
	if p.got(KwFinally) {
		t.Finally = p.block()
	} else if len(t.Handlers) == 0 {
		p.unexpected()
	}
	return t
}

func (p *parser) withStmt(at At, async bool) Stmt {
	p.want(KwWith)
	w := &With{At: at, Async: async}
	if p.peek() == LParen {
		// "with (a, b):" and "with (a) as b:" part only at the end.
		i := p.i
		if p.try(func() { w.Items = p.parenItems() }) != nil {
			p.i, w.Items = i, nil
		}
	}
	if w.Items == nil {
		w.Items = append(w.Items, p.withItem())
		for p.got(Comma) {
			w.Items = append(w.Items, p.withItem())
		}
	}
	w.Body = p.block()
	return w
}

func (p *parser) parenItems() []WithItem {
	p.want(LParen)
	var items []WithItem
	for p.peek() != RParen {
		items = append(items, p.withItem())
		if !p.got(Comma) {
			break
		}
	}
	p.want(RParen)
	if p.peek() != Colon || len(items) == 0 {
		p.unexpected()
	}
	return items
}

func (p *parser) withItem() WithItem {
	it := WithItem{X: p.expr()}
	if p.got(KwAs) {
		at := p.at()
		if p.got(Star) {
			it.Target = &Starred{At: at, X: p.bitOr(0)}
		} else {
			it.Target = p.bitOr(0)
		}
	}
	return it
}

func (p *parser) decorated() Stmt {
	var ds []Expr
	for p.got(AtSign) {
		ds = append(ds, p.named())
		p.want(Newline)
	}
	at := p.at()
	switch p.peek() {
	case KwClass:
		return p.classDef(at, ds)
	case KwAsync:
		return p.async(at, ds)
	}
	return p.funcDef(at, ds, false)
}

func (p *parser) funcDef(at At, ds []Expr, async bool) Stmt {
	p.want(KwDef)
	f := &FunctionDef{At: at, Name: p.ident(), Decorators: ds, Async: async}
	f.TypeParams = p.typeParams()
	p.want(LParen)
	f.Params = p.params(RParen, true)
	p.want(RParen)
	if p.got(Arrow) {
		f.Returns = p.starExprs()
	}
	f.Body = p.block()
	f.End = p.toks[max(p.i-1, 0)].Start
	return f
}

func (p *parser) classDef(at At, ds []Expr) Stmt {
	p.want(KwClass)
	c := &ClassDef{At: at, Name: p.ident(), Decorators: ds}
	c.TypeParams = p.typeParams()
	if p.got(LParen) {
		c.Bases, c.Keywords = p.args()
		p.want(RParen)
	}
	c.Body = p.block()
	c.End = p.toks[max(p.i-1, 0)].Start
	return c
}

func (p *parser) typeParams() []TypeParam {
	if !p.got(LBracket) {
		return nil
	}
	var out []TypeParam
	for p.peek() != RBracket {
		t := TypeParam{At: p.at()}
		switch {
		case p.got(DoubleStar):
			t.Star = 2
		case p.got(Star):
			t.Star = 1
		}
		t.Name = p.ident()
		if p.got(Colon) {
			t.Bound = p.expr()
		}
		if p.got(Equals) {
			t.Default = p.starNamed()
		}
		out = append(out, t)
		if !p.got(Comma) {
			break
		}
	}
	p.want(RBracket)
	return out
}

// params reads parameters up to end, which it leaves.
func (p *parser) params(end Kind, annotated bool) []Param {
	var out []Param
	kind := Plain
	for p.peek() != end {
		q := Param{At: p.at(), Kind: kind}
		switch {
		case p.got(Slash):
			for i := range out {
				out[i].Kind = PosOnly
			}
			if !p.got(Comma) {
				return out
			}
			continue
		case p.got(DoubleStar):
			q.Kind = KwArg
		case p.got(Star):
			kind = KwOnly
			if p.got(Comma) {
				continue
			}
			q.Kind = VarArg
		case p.tolerant && p.peek() == LParen: // Python 2's tuple parameter
			p.paren()
			q.Name = "_"
		}
		if q.Name == "" {
			q.Name = p.ident()
		}
		if annotated && p.got(Colon) {
			if q.Kind == VarArg {
				q.Annotation = p.starNamed()
			} else {
				q.Annotation = p.expr()
			}
		}
		if p.got(Equals) {
			q.Default = p.expr()
		}
		out = append(out, q)
		if !p.got(Comma) {
			return out
		}
	}
	return out
}

func (p *parser) simple() Stmt {
	at := p.at()
	switch k := p.peek(); k {
	case KwPass, KwBreak, KwContinue:
		p.next()
		return &Simple{At: at, Op: k}
	case KwReturn:
		p.next()
		r := &Return{At: at}
		if p.startsExpr() {
			r.X = p.starExprs()
		}
		return r
	case KwRaise:
		return p.raise(at)
	case KwGlobal, KwNonlocal:
		p.next()
		s := &Scope{At: at, Nonlocal: k == KwNonlocal, Names: []string{p.ident()}}
		for p.got(Comma) {
			s.Names = append(s.Names, p.ident())
		}
		return s
	case KwDel:
		p.next()
		d := &Delete{At: at}
		x := p.starExprs()
		if s, ok := x.(*Seq); ok && s.Kind == '(' && p.text[s.At] != '(' {
			d.Targets = s.Elts
		} else {
			d.Targets = []Expr{x}
		}
		return d
	case KwAssert:
		p.next()
		a := &Assert{At: at, Test: p.expr()}
		if p.got(Comma) {
			a.Msg = p.expr()
		}
		return a
	case KwImport:
		return p.importStmt(at)
	case KwFrom:
		return p.fromStmt(at)
	case Ident:
		if p.tolerant {
			if s := p.legacy(at); s != nil {
				return s
			}
		}
		if p.word(0, "type") && p.peekAt(1) == Ident {
			return p.typeAlias(at)
		}
	}
	return p.assignment(at)
}

func (p *parser) raise(at At) Stmt {
	p.next()
	r := &Raise{At: at}
	if !p.startsExpr() {
		return r
	}
	r.X = p.expr()
	if p.got(KwFrom) {
		r.Cause = p.expr()
	}
	for p.tolerant && p.got(Comma) {
		r.Cause = p.expr()
	}
	return r
}

func (p *parser) typeAlias(at At) Stmt {
	p.next()
	n := p.at()
	t := &TypeAlias{At: at, Name: &Name{At: n, ID: p.ident()}}
	t.TypeParams = p.typeParams()
	p.want(Equals)
	t.Value = p.expr()
	return t
}

func (p *parser) assignment(at At) Stmt {
	paren := p.peek() == LParen
	x := p.yieldOrExprs()
	switch k := p.peek(); {
	case k == Equals:
		a := &Assign{At: at}
		for p.got(Equals) {
			a.Targets = append(a.Targets, x)
			x = p.yieldOrExprs()
		}
		a.Value = x
		return a
	case k == Colon && annotatable(x):
		p.next()
		_, name := x.(*Name)
		a := &AnnAssign{At: at, Target: x, Annotation: p.expr(), Simple: name && !paren}
		if p.got(Equals) {
			a.Value = p.yieldOrExprs()
		}
		return a
	default:
		if op, ok := augOp(k); ok {
			p.next()
			return &AugAssign{At: at, Target: x, Op: op, Value: p.yieldOrExprs()}
		}
	}
	return &ExprStmt{At: at, X: x}
}

func annotatable(x Expr) bool {
	switch x.(type) {
	case *Name, *Attribute, *Subscript:
		return true
	}
	return false
}

func (p *parser) yieldOrExprs() Expr {
	if p.peek() == KwYield {
		return p.yield()
	}
	return p.starExprs()
}

func (p *parser) dotted() string {
	s := p.ident()
	if p.peek() != Dot {
		return s
	}
	var b strings.Builder
	b.WriteString(s)
	for p.got(Dot) {
		b.WriteByte('.')
		b.WriteString(p.ident())
	}
	return b.String()
}

func (p *parser) importStmt(at At) Stmt {
	p.next()
	s := &Import{At: at}
	for {
		a := Alias{At: p.at(), Name: p.dotted()}
		if p.got(KwAs) {
			a.As = p.ident()
		}
		s.Names = append(s.Names, a)
		if !p.got(Comma) {
			return s
		}
	}
}

func (p *parser) fromStmt(at At) Stmt {
	p.next()
	s := &ImportFrom{At: at}
	for {
		if p.got(Dot) {
			s.Level++
		} else if p.got(Ellipsis) {
			s.Level += 3
		} else {
			break
		}
	}
	if p.peek() == Ident {
		s.Module = p.dotted()
	} else if s.Level == 0 {
		p.unexpected()
	}
	p.want(KwImport)
	if p.peek() == Star {
		s.Names = []Alias{{At: p.at(), Name: "*"}}
		p.next()
		return s
	}
	paren := p.got(LParen)
	for {
		a := Alias{At: p.at(), Name: p.ident()}
		if p.got(KwAs) {
			a.As = p.ident()
		}
		s.Names = append(s.Names, a)
		if !p.got(Comma) || paren && p.peek() == RParen {
			break
		}
	}
	if paren {
		p.want(RParen)
	}
	return s
}
