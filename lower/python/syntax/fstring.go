package syntax

import "strings"

// maxFields is how deep f-strings may nest in each other's fields; CPython
// allows 150, but a text is scanned once for each level.
const maxFields = 30

// scanString finds the end of the string whose quotes start at q. With field
// it is an f-string: quotes inside its replacement fields do not end it
// (PEP 701).
func scanString(s string, q int, raw, field bool, depth int) (end int, ok bool) {
	quote := s[q]
	n := 1
	if strings.HasPrefix(s[q:], tripled(quote)) {
		n = 3
	}
	if depth > maxFields {
		return q, false
	}
	p := q + n
	for p < len(s) {
		switch c := s[p]; {
		case c == '\\':
			p++
			// The N of \N{…} in an f-string takes its braces with it.
			if field && !raw && strings.HasPrefix(s[p:], "N{") {
				p += namedEnd(s[p+1:])
			} else if field && p < len(s) && (s[p] == '{' || s[p] == '}') {
				continue
			}
			p++
		case c == '\n' && n == 1:
			return p, false
		case c == quote:
			if n == 1 {
				return p + 1, true
			}
			if strings.HasPrefix(s[p:], tripled(quote)) {
				return p + 3, true
			}
			p++
		case field && c == '{':
			if p+1 < len(s) && s[p+1] == '{' {
				p += 2
				continue
			}
			f, ok := scanField(s, p, quote, n, raw, depth)
			if !ok {
				return p, false
			}
			p = f.end
		default:
			p++
		}
	}
	return p, false
}

func tripled(quote byte) string {
	if quote == '"' {
		return `"""`
	}
	return "'''"
}

// fieldSpan is where the parts of a replacement field are: the expression
// [start+1:expr], a conversion character or 0, the format specification
// [spec:end-1] (spec is 0 without one), and the end after the brace.
type fieldSpan struct {
	start, expr, spec, end int
	conv                   byte
}

// scanField reads the replacement field whose brace is at p, in a string with
// n quotes.
func scanField(s string, p int, quote byte, n int, raw bool, depth int) (f fieldSpan, ok bool) {
	f.start = p
	p++
	nest := 0
	for p < len(s) {
		c := s[p]
		switch {
		case c == '\'' || c == '"':
			end, ok := scanInner(s, p, f.start, depth)
			if !ok {
				return f, false
			}
			p = end
			continue
		case c == '#':
			if n == 1 && strings.IndexByte(s[p:], '\n') < 0 {
				return f, false
			}
			for p < len(s) && s[p] != '\n' {
				p++
			}
			continue
		case c == '(' || c == '[' || c == '{':
			if nest++; nest > MaxNesting {
				return f, false
			}
		case (c == ')' || c == ']' || c == '}') && nest > 0:
			nest--
		case nest > 0:
		case c == '}':
			if f.expr == 0 {
				f.expr = p
			}
			f.end = p + 1
			return f, true
		case c == '!' && p+1 < len(s) && s[p+1] == '=':
			p += 2
			continue
		case c == '!':
			f.expr = p
			q := p + 1
			for q < len(s) && s[q] == ' ' {
				q++
			}
			if q >= len(s) || !identStart(s[q]) {
				return f, false
			}
			f.conv = s[q]
			for q++; q < len(s) && s[q] == ' '; q++ {
			}
			p = q
			continue
		case c == ':':
			if f.expr == 0 {
				f.expr = p
			}
			f.spec = p + 1
			end, ok := scanSpec(s, p+1, quote, n, raw, depth)
			f.end = end
			return f, ok
		}
		p++
	}
	return f, false
}

// scanInner reads a string inside a replacement field; the prefix is what
// stands before the quote.
func scanInner(s string, q, floor, depth int) (int, bool) {
	start := q
	for start > floor+1 && q-start < 3 && (identStart(s[start-1]) || digit(s[start-1])) {
		start--
	}
	raw, field, ok := stringPrefix(s[start:q])
	if !ok || q-start > 2 {
		raw, field = false, false
	}
	return scanString(s, q, raw, field, depth+1)
}

// scanSpec reads a format specification up to the brace that ends the field.
func scanSpec(s string, p int, quote byte, n int, raw bool, depth int) (int, bool) {
	for p < len(s) {
		switch c := s[p]; {
		case c == '}':
			return p + 1, true
		case c == '{':
			if depth > maxFields {
				return p, false
			}
			f, ok := scanField(s, p, quote, n, raw, depth+1)
			if !ok {
				return p, false
			}
			p = f.end
			continue
		case c == '\\' && !raw:
			p++
		case c == quote && (n == 1 || strings.HasPrefix(s[p:], tripled(quote))):
			return p, false
		case c == '\n' && n == 1:
			return p, false
		}
		p++
	}
	return p, false
}

// joined parses the f-string or t-string token [start:end].
func (p *parser) joined(start, end int) *Joined {
	q := start
	raw, template := false, false
	for p.text[q] != '"' && p.text[q] != '\'' {
		switch p.text[q] | 0x20 {
		case 'r':
			raw = true
		case 't':
			template = true
		}
		q++
	}
	n := 1
	if end-q >= 6 && strings.HasPrefix(p.text[q:], tripled(p.text[q])) {
		n = 3
	}
	j := &Joined{At: At(start), Template: template}
	p.pieces(j, q+n, end-n, p.text[q], n, raw)
	return j
}

// pieces reads literal text and fields of [a:b] into j.
func (p *parser) pieces(j *Joined, a, b int, quote byte, n int, raw bool) {
	p.enter()
	defer p.leave()
	lit, at := a, a
	var cur []byte
	take := func(to int) { cur = append(cur, decodeText(p.text[lit:to], raw, false)...) }
	flush := func() {
		if len(cur) > 0 {
			j.Values = append(j.Values, &Str{At: At(at), S: string(cur)})
			cur = nil
		}
	}
	for i := a; i < b; {
		c := p.text[i]
		switch {
		case c == '\\' && !raw && strings.HasPrefix(p.text[i+1:b], "N{"):
			i += 2 + namedEnd(p.text[i+2:b])
		case c == '\\' && i+1 < b && p.text[i+1] != '{' && p.text[i+1] != '}':
			i += 2
		case (c == '{' || c == '}') && i+1 < b && p.text[i+1] == c && j.At != specMark:
			take(i + 1)
			i += 2
			lit = i
		case c == '{':
			take(i)
			fd, debug, end := p.field(i, quote, n, raw)
			cur = append(cur, debug...)
			flush()
			j.Values = append(j.Values, fd)
			i, lit, at = end, end, end
		default:
			i++
		}
	}
	take(b)
	flush()
}

// specMark is the place of a format specification, where braces do not double.
const specMark = -2

// namedEnd is the length of "{name}" of a \N escape, or 0.
func namedEnd(s string) int {
	e := strings.IndexByte(s[:min(len(s), 128)], '}')
	if e < 0 || strings.ContainsAny(s[:e], "\n'\"") {
		return 0
	}
	return e + 1
}

// field parses the replacement field at i; debug is the text that "{x=}" adds.
func (p *parser) field(i int, quote byte, n int, raw bool) (fd *Field, debug string, end int) {
	f, ok := scanField(p.text, i, quote, n, raw, 0)
	if !ok {
		p.fail(i, "a replacement field is never closed")
	}
	sub := p.sub(i+1, f.expr)
	fd = &Field{At: At(i), Value: sub.fieldExpr(), Conv: f.conv, Text: strings.TrimSpace(p.text[i+1 : f.expr])}
	if sub.peek() == Equals {
		sub.next()
		debug = stripComments(p.text[i+1 : f.expr])
		if f.conv == 0 && f.spec == 0 {
			fd.Conv = 'r'
		}
	}
	if sub.peek() != EOF {
		p.fail(i, "invalid syntax in a replacement field")
	}
	if f.spec > 0 {
		fd.Spec = &Joined{At: specMark}
		p.pieces(fd.Spec, f.spec, f.end-1, quote, n, raw)
	}
	return fd, debug, f.end
}

// stripComments gives the text of a debugging field ("{x = }") as CPython
// keeps it.
func stripComments(s string) string {
	if strings.IndexByte(s, '#') < 0 {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if h := strings.IndexByte(l, '#'); h >= 0 && strings.Count(l[:h], `"`)%2 == 0 && strings.Count(l[:h], "'")%2 == 0 {
			lines[i] = l[:h]
		}
	}
	return strings.Join(lines, "\n")
}

// sub is a parser for the expression in [a:b] of the same text.
func (p *parser) sub(a, b int) *parser {
	lx := lexer{text: p.text, pos: a, end: b, nested: true, toks: make([]Token, 0, 8)}
	lx.run()
	if lx.err != "" {
		p.fail(lx.errPos, lx.err)
	}
	return &parser{text: p.text, toks: lx.toks, depth: p.depth, tolerant: p.tolerant}
}
