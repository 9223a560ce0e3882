package syntax

// starExprs is an expression list, where a comma makes a tuple.
func (p *parser) starExprs() Expr {
	return p.list(p.starNamed)
}

// list reads one item, or a tuple of them where commas follow.
func (p *parser) list(item func() Expr) Expr {
	at := p.at()
	x := item()
	if p.peek() != Comma {
		return x
	}
	elts := []Expr{x}
	for p.got(Comma) {
		if !p.startsExpr() {
			break
		}
		elts = append(elts, item())
	}
	return &Seq{At: at, Kind: '(', Elts: elts}
}

// startsExpr: the next token can begin an expression.
func (p *parser) startsExpr() bool {
	switch p.peek() {
	case Ident, Number, String, FString, LParen, LBracket, LBrace, Minus, Plus, Tilde, Star, DoubleStar, Ellipsis,
		KwNot, KwLambda, KwAwait, KwNone, KwTrue, KwFalse, KwYield:
		return true
	case Backquote:
		return p.tolerant
	}
	return false
}

// starNamed is `*x`, `x := y` or an expression.
func (p *parser) starNamed() Expr {
	if p.peek() == Star {
		at := p.at()
		p.next()
		return &Starred{At: at, X: p.bitOr(0)}
	}
	return p.named()
}

// named is an expression, possibly with a walrus.
func (p *parser) named() Expr {
	if p.peek() == Ident && p.peekAt(1) == ColonEq {
		at := p.at()
		n := &Name{At: at, ID: p.ident()}
		p.next()
		return &Walrus{At: at, Target: n, Value: p.expr()}
	}
	return p.expr()
}

// fieldExpr is what may stand in a replacement field.
func (p *parser) fieldExpr() Expr {
	if p.peek() == KwYield {
		return p.yield()
	}
	return p.starExprs()
}

func (p *parser) yield() Expr {
	at := p.at()
	p.want(KwYield)
	if p.got(KwFrom) {
		return &YieldFrom{At: at, X: p.expr()}
	}
	if !p.startsExpr() {
		return &Yield{At: at}
	}
	return &Yield{At: at, X: p.starExprs()}
}

// expr is a conditional expression or a lambda.
func (p *parser) expr() Expr {
	p.enter()
	defer p.leave()
	at := p.at()
	if p.peek() == KwLambda {
		return p.lambda()
	}
	x := p.or()
	if p.peek() != KwIf {
		return x
	}
	p.next()
	test := p.or()
	p.want(KwElse)
	return &IfExp{At: at, Test: test, X: x, Else: p.expr()}
}

func (p *parser) lambda() Expr {
	at := p.at()
	p.next()
	params := p.params(Colon, false)
	p.want(Colon)
	return &Lambda{At: at, Params: params, Body: p.expr()}
}

func (p *parser) or() Expr {
	x := p.and()
	if p.peek() != KwOr {
		return x
	}
	b := &Bool{At: At(x.Pos()), Op: KwOr, Values: []Expr{x}}
	for p.got(KwOr) {
		b.Values = append(b.Values, p.and())
	}
	return b
}

func (p *parser) and() Expr {
	x := p.not()
	if p.peek() != KwAnd {
		return x
	}
	b := &Bool{At: At(x.Pos()), Op: KwAnd, Values: []Expr{x}}
	for p.got(KwAnd) {
		b.Values = append(b.Values, p.not())
	}
	return b
}

func (p *parser) not() Expr {
	if p.peek() != KwNot {
		return p.comparison()
	}
	p.enter()
	defer p.leave()
	at := p.at()
	p.next()
	return &Unary{At: at, Op: KwNot, X: p.not()}
}

func (p *parser) comparison() Expr {
	x := p.bitOr(0)
	op, ok := p.compareOp()
	if !ok {
		return x
	}
	c := &Compare{At: At(x.Pos()), Left: x}
	for ok {
		c.Ops = append(c.Ops, op)
		c.Rights = append(c.Rights, p.bitOr(0))
		op, ok = p.compareOp()
	}
	return c
}

func (p *parser) compareOp() (CompareOp, bool) {
	var op CompareOp
	switch p.peek() {
	case EqEq:
		op = Eq
	case BangEq:
		op = NotEq
	case Less:
		op = Lt
	case LessEq:
		op = LtE
	case Greater:
		op = Gt
	case GreaterEq:
		op = GtE
	case KwIn:
		op = In
	case KwIs:
		p.next()
		if p.got(KwNot) {
			return IsNot, true
		}
		return Is, true
	case KwNot:
		if p.peekAt(1) != KwIn {
			return 0, false
		}
		p.next()
		op = NotIn
	default:
		return 0, false
	}
	p.next()
	return op, true
}

// precedence of the binary operators; 0 is none.
func precedence(k Kind) int {
	switch k {
	case Pipe:
		return 1
	case Caret:
		return 2
	case Amp:
		return 3
	case LShift, RShift:
		return 4
	case Plus, Minus:
		return 5
	case Star, Slash, DoubleSlash, Percent, AtSign:
		return 6
	}
	return 0
}

// bitOr reads binary operators that bind tighter than above.
func (p *parser) bitOr(above int) Expr {
	x := p.unary()
	for {
		op := p.peek()
		prec := precedence(op)
		if prec == 0 || prec <= above {
			return x
		}
		p.next()
		y := p.bitOr(prec)
		x = &Binary{At: At(x.Pos()), Op: op, X: x, Y: y}
	}
}

func (p *parser) unary() Expr {
	switch k := p.peek(); k {
	case Minus, Plus, Tilde:
		p.enter()
		defer p.leave()
		at := p.at()
		p.next()
		return &Unary{At: at, Op: k, X: p.unary()}
	}
	return p.power()
}

func (p *parser) power() Expr {
	at := p.at()
	var x Expr
	if p.peek() == KwAwait {
		p.next()
		x = &Await{At: at, X: p.primary()}
	} else {
		x = p.primary()
	}
	if p.peek() != DoubleStar {
		return x
	}
	p.enter()
	defer p.leave()
	p.next()
	return &Binary{At: at, Op: DoubleStar, X: x, Y: p.unary()}
}

// primary is an atom with its attributes, calls and subscripts.
func (p *parser) primary() Expr {
	x := p.atom()
	for {
		switch p.peek() {
		case Dot:
			p.next()
			x = &Attribute{At: At(x.Pos()), X: x, Name: p.ident()}
		case LParen:
			x = p.call(x)
		case LBracket:
			p.next()
			i := p.subscript()
			p.want(RBracket)
			x = &Subscript{At: At(x.Pos()), X: x, Index: i}
		default:
			return x
		}
	}
}

func (p *parser) subscript() Expr {
	at := p.at()
	star := p.peek() == Star
	x := p.slice()
	if p.peek() != Comma && !star {
		return x
	}
	elts := []Expr{x}
	for p.got(Comma) {
		if p.peek() == RBracket {
			break
		}
		elts = append(elts, p.slice())
	}
	return &Seq{At: at, Kind: '(', Elts: elts}
}

func (p *parser) slice() Expr {
	at := p.at()
	part := func() Expr {
		switch p.peek() {
		case Colon, Comma, RBracket:
			return nil
		}
		return p.starNamed()
	}
	lo := part()
	if p.peek() != Colon {
		if lo == nil {
			p.unexpected()
		}
		return lo
	}
	p.next()
	s := &Slice{At: at, Lo: lo, Hi: part()}
	if p.got(Colon) {
		s.Step = part()
	}
	return s
}

func (p *parser) call(f Expr) Expr {
	p.enter()
	defer p.leave()
	c := &Call{At: At(f.Pos()), Func: f}
	p.want(LParen)
	c.Args, c.Keywords = p.args()
	p.want(RParen)
	return c
}

// args reads the arguments of a call or the bases of a class.
func (p *parser) args() (args []Expr, kws []Keyword) {
	for p.peek() != RParen {
		at := p.at()
		switch {
		case p.got(DoubleStar):
			kws = append(kws, Keyword{Value: p.expr()})
		case p.got(Star):
			args = append(args, &Starred{At: at, X: p.expr()})
		case p.peek() == Ident && p.peekAt(1) == Equals:
			name := p.ident()
			p.next()
			kws = append(kws, Keyword{Name: name, Value: p.expr()})
		default:
			x := p.named()
			if p.peek() == KwFor || p.peek() == KwAsync {
				x = &Comp{At: at, Kind: '(', Elt: x, Gens: p.gens()}
			}
			args = append(args, x)
		}
		if !p.got(Comma) {
			break
		}
	}
	return args, kws
}

func (p *parser) atom() Expr {
	at := p.at()
	switch p.peek() {
	case Ident:
		return &Name{At: at, ID: p.ident()}
	case Number:
		return &Num{At: at, Text: p.str(p.next())}
	case String, FString:
		return p.strings()
	case KwNone, KwTrue, KwFalse, Ellipsis:
		return &Const{At: at, Name: p.str(p.next())}
	case LParen:
		return p.paren()
	case LBracket:
		return p.display('[', RBracket)
	case LBrace:
		return p.brace()
	case Backquote:
		if p.tolerant {
			p.next()
			x := p.starExprs()
			p.want(Backquote)
			return x
		}
	}
	p.unexpected()
	return nil
}

// strings joins adjacent literals.
func (p *parser) strings() Expr {
	at := p.at()
	t := p.next()
	if p.peek() != String && p.peek() != FString {
		if t.Kind == FString {
			return p.joined(int(t.Start), int(t.End))
		}
		s, bytes := literal(p.str(t))
		return &Str{At: at, S: s, Bytes: bytes}
	}
	var out []Expr
	var cur []byte
	text, template, bytes, plain := false, false, false, at
	flush := func() {
		if len(cur) > 0 {
			out = append(out, &Str{At: plain, S: string(cur)})
			cur = nil
		}
	}
	for {
		if t.Kind == FString {
			if bytes {
				p.fail(int(t.Start), "text and bytes stand side by side")
			}
			text = true
			j := p.joined(int(t.Start), int(t.End))
			template = template || j.Template
			for _, v := range j.Values {
				if s, ok := v.(*Str); ok {
					cur = append(cur, s.S...)
					continue
				}
				flush()
				out = append(out, v)
			}
		} else {
			s, b := literal(p.str(t))
			if b != bytes && (len(cur) > 0 || text || len(out) > 0) {
				p.fail(int(t.Start), "text and bytes stand side by side")
			}
			bytes = b
			cur = append(cur, s...)
		}
		if p.peek() != String && p.peek() != FString {
			break
		}
		t = p.next()
	}
	if !text {
		return &Str{At: at, S: string(cur), Bytes: bytes}
	}
	flush()
	return &Joined{At: at, Values: out, Template: template}
}

func (p *parser) paren() Expr {
	p.enter()
	defer p.leave()
	at := p.at()
	p.next()
	if p.got(RParen) {
		return &Seq{At: at, Kind: '('}
	}
	var x Expr
	if p.peek() == KwYield {
		x = p.yield()
	} else {
		x = p.starNamed()
		switch {
		case p.peek() == KwFor || p.peek() == KwAsync:
			x = &Comp{At: at, Kind: '(', Elt: x, Gens: p.gens()}
		case p.peek() == Comma:
			elts := []Expr{x}
			for p.got(Comma) {
				if p.peek() == RParen {
					break
				}
				elts = append(elts, p.starNamed())
			}
			x = &Seq{At: at, Kind: '(', Elts: elts}
		}
	}
	p.want(RParen)
	return x
}

// display is a list display or comprehension.
func (p *parser) display(kind byte, end Kind) Expr {
	p.enter()
	defer p.leave()
	at := p.at()
	p.next()
	s := &Seq{At: at, Kind: kind}
	for p.peek() != end {
		x := p.starNamed()
		if len(s.Elts) == 0 && (p.peek() == KwFor || p.peek() == KwAsync) {
			c := &Comp{At: at, Kind: kind, Elt: x, Gens: p.gens()}
			p.want(end)
			return c
		}
		s.Elts = append(s.Elts, x)
		if !p.got(Comma) {
			break
		}
	}
	p.want(end)
	return s
}

// brace is a dict or set.
func (p *parser) brace() Expr {
	switch {
	case p.peekAt(1) == RBrace:
		at := p.at()
		p.next()
		p.next()
		return &Dict{At: at}
	case p.peekAt(1) == DoubleStar:
		return p.dict(nil, p.at())
	}
	at := p.at()
	p.enter()
	p.next()
	x := p.starNamed()
	p.leave()
	if p.peek() == Colon {
		return p.dict(x, at)
	}
	if p.peek() == KwFor || p.peek() == KwAsync {
		c := &Comp{At: at, Kind: '{', Elt: x, Gens: p.gens()}
		p.want(RBrace)
		return c
	}
	s := &Seq{At: at, Kind: '{', Elts: []Expr{x}}
	for p.got(Comma) {
		if p.peek() == RBrace {
			break
		}
		s.Elts = append(s.Elts, p.starNamed())
	}
	p.want(RBrace)
	return s
}

// dict reads a dict from after its first key, or from its brace where key is
// nil.
func (p *parser) dict(key Expr, at At) Expr {
	p.enter()
	defer p.leave()
	d := &Dict{At: at}
	if key == nil {
		p.next()
	}
	for p.peek() != RBrace {
		if key == nil && p.got(DoubleStar) {
			d.Keys = append(d.Keys, nil)
			d.Values = append(d.Values, p.bitOr(0))
		} else {
			if key == nil {
				key = p.expr()
			}
			p.want(Colon)
			v := p.expr()
			if len(d.Keys) == 0 && (p.peek() == KwFor || p.peek() == KwAsync) {
				c := &Comp{At: at, Kind: ':', Elt: key, Value: v, Gens: p.gens()}
				p.want(RBrace)
				return c
			}
			d.Keys = append(d.Keys, key)
			d.Values = append(d.Values, v)
		}
		key = nil
		if !p.got(Comma) {
			break
		}
	}
	p.want(RBrace)
	return d
}

func (p *parser) gens() []Gen {
	var gens []Gen
	for p.peek() == KwFor || p.peek() == KwAsync {
		g := Gen{Async: p.got(KwAsync)}
		p.want(KwFor)
		g.Target = p.targets()
		p.want(KwIn)
		g.Iter = p.or()
		for p.got(KwIf) {
			g.Ifs = append(g.Ifs, p.condition())
		}
		gens = append(gens, g)
	}
	return gens
}

// condition is the test of a comprehension: no conditional expression, but a
// lambda or a walrus may stand there in what CPython accepts.
func (p *parser) condition() Expr {
	if p.peek() == KwLambda {
		return p.lambda()
	}
	if p.peek() == Ident && p.peekAt(1) == ColonEq {
		return p.named()
	}
	return p.or()
}

// targets is what a loop assigns to, up to the `in`.
func (p *parser) targets() Expr {
	return p.list(func() Expr {
		at := p.at()
		if p.got(Star) {
			return &Starred{At: at, X: p.bitOr(0)}
		}
		return p.bitOr(0)
	})
}
