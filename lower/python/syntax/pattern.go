package syntax

// matchStmt reads a match statement, or nil where `match` is a plain name.
func (p *parser) matchStmt() Stmt {
	switch p.peekAt(1) {
	case Equals, Dot, Comma, RParen, Newline, Colon, EqEq, ColonEq, Semi, EOF:
		return nil
	}
	start := p.i
	m := &Match{At: p.at()}
	err := p.try(func() {
		p.next()
		m.Subject = p.starExprs()
		p.want(Colon)
		p.want(Newline)
		p.want(Indent)
		if !p.word(0, "case") {
			p.unexpected()
		}
	})
	if err != nil {
		if err.msg == limitNesting {
			panic(err)
		}
		p.i = start
		return nil
	}
	for p.peek() != Dedent {
		c := Case{At: p.at()}
		if !p.word(0, "case") {
			p.unexpected()
		}
		p.next()
		c.Pattern = p.patterns()
		if p.got(KwIf) {
			c.Guard = p.named()
		}
		c.Body = p.block()
		m.Cases = append(m.Cases, c)
	}
	p.want(Dedent)
	return m
}

// arithmetic leaves the `|` between patterns alone.
const arithmetic = 4

// patterns is a pattern, or a sequence of them without brackets.
func (p *parser) patterns() *Pattern {
	at := p.at()
	x := p.asPattern()
	if p.peek() != Comma {
		if x.Kind == MatchStar {
			p.unexpected()
		}
		return x
	}
	seq := &Pattern{At: at, Kind: MatchSequence, Subs: []*Pattern{x}}
	for p.got(Comma) {
		if p.peek() == Colon || p.peek() == KwIf {
			break
		}
		seq.Subs = append(seq.Subs, p.asPattern())
	}
	return seq
}

// asPattern is a star pattern, or alternatives with an optional name.
func (p *parser) asPattern() *Pattern {
	p.enter()
	defer p.leave()
	at := p.at()
	if p.got(Star) {
		return &Pattern{At: at, Kind: MatchStar, Name: p.capture()}
	}
	x := p.closed()
	if p.peek() == Pipe {
		or := &Pattern{At: at, Kind: MatchOr, Subs: []*Pattern{x}}
		for p.got(Pipe) {
			or.Subs = append(or.Subs, p.closed())
		}
		x = or
	}
	if p.got(KwAs) {
		return &Pattern{At: at, Kind: MatchAs, Name: p.ident(), Subs: []*Pattern{x}}
	}
	return x
}

// capture is a name, empty for the wildcard.
func (p *parser) capture() string {
	if n := p.ident(); n != "_" {
		return n
	}
	return ""
}

func (p *parser) closed() *Pattern {
	at := p.at()
	switch p.peek() {
	case Number, Minus:
		return &Pattern{At: at, Kind: MatchValue, X: p.bitOr(arithmetic)}
	case String, FString:
		return &Pattern{At: at, Kind: MatchValue, X: p.strings()}
	case KwNone, KwTrue, KwFalse:
		return &Pattern{At: at, Kind: MatchSingleton, X: p.atom()}
	case LBracket, LParen:
		return p.sequencePattern(at)
	case LBrace:
		return p.mappingPattern(at)
	case Ident:
		return p.namePattern(at)
	}
	p.unexpected()
	return nil
}

func (p *parser) sequencePattern(at At) *Pattern {
	end := RBracket
	if p.next().Kind == LParen {
		end = RParen
	}
	seq := &Pattern{At: at, Kind: MatchSequence}
	comma := false
	for p.peek() != end {
		seq.Subs = append(seq.Subs, p.asPattern())
		if comma = p.got(Comma); !comma {
			break
		}
	}
	p.want(end)
	if end == RParen && len(seq.Subs) == 1 && !comma && seq.Subs[0].Kind != MatchStar {
		return seq.Subs[0]
	}
	return seq
}

func (p *parser) mappingPattern(at At) *Pattern {
	p.next()
	m := &Pattern{At: at, Kind: MatchMapping}
	for p.peek() != RBrace {
		if p.got(DoubleStar) {
			m.Name = p.ident()
		} else {
			m.Keys = append(m.Keys, p.bitOr(arithmetic))
			p.want(Colon)
			m.Subs = append(m.Subs, p.asPattern())
		}
		if !p.got(Comma) {
			break
		}
	}
	p.want(RBrace)
	return m
}

func (p *parser) namePattern(at At) *Pattern {
	if k := p.peekAt(1); k != Dot && k != LParen {
		return &Pattern{At: at, Kind: MatchAs, Name: p.capture()}
	}
	var x Expr = &Name{At: at, ID: p.ident()}
	for p.got(Dot) {
		x = &Attribute{At: at, X: x, Name: p.ident()}
	}
	if !p.got(LParen) {
		return &Pattern{At: at, Kind: MatchValue, X: x}
	}
	c := &Pattern{At: at, Kind: MatchClass, X: x}
	for p.peek() != RParen {
		if p.peek() == Ident && p.peekAt(1) == Equals {
			c.Names = append(c.Names, p.ident())
			p.next()
		}
		c.Subs = append(c.Subs, p.asPattern())
		if !p.got(Comma) {
			break
		}
	}
	p.want(RParen)
	return c
}
