package javascript

import (
	"math"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// value evaluates an expression whose result is kept or handed on: a function
// that starts programs or evaluates text counts as used then.
func (a *analysis) value(e js.IExpr) set {
	s := a.eval(e)
	switch e.(type) {
	case *js.Var, *js.DotExpr, *js.IndexExpr, *js.GroupExpr:
		a.mention(s)
	}
	return s
}

// named is value for something that is given a name.
func (a *analysis) named(e js.IExpr, name string) set {
	s := a.value(e)
	if v, ok := s.single(); ok {
		if f, ok := v.p.(*function); ok && f.name == "" {
			f.name = name
		}
	}
	return s
}

// eval evaluates an expression.
func (a *analysis) eval(e js.IExpr) set {
	if !a.tick() {
		return unknown
	}
	a.nest++
	defer func() { a.nest-- }()
	if a.nest > maxNest {
		a.limit("JavaScript nested too deep")
		return unknown
	}
	switch e := e.(type) {
	case *js.Var:
		return a.lookup(e)
	case *js.LiteralExpr:
		return a.literal(e)
	case *js.GroupExpr:
		return a.eval(e.X)
	case *js.DotExpr:
		return a.dot(e)
	case *js.IndexExpr:
		x := a.eval(e.X)
		return a.index(x, a.eval(e.Y))
	case *js.CallExpr:
		return a.call(e)
	case *js.NewExpr:
		return a.newExpr(e)
	case *js.TemplateExpr:
		return a.template(e)
	case *js.ArrayExpr:
		return a.arrayExpr(e)
	case *js.ObjectExpr:
		return a.objectExpr(e)
	case *js.UnaryExpr:
		return a.unary(e)
	case *js.BinaryExpr:
		return a.binary(e)
	case *js.CondExpr:
		return a.conditional(e)
	case *js.CommaExpr:
		var s set
		for _, x := range e.List {
			s = a.eval(x)
		}
		return s
	case *js.ArrowFunc:
		return a.arrowFunc(e)
	case *js.FuncDecl:
		return a.funcExpr(e)
	case *js.ClassDecl:
		return a.classExpr(e)
	case *js.YieldExpr:
		return a.yield(e)
	case *js.ImportMetaExpr:
		return sym("import.meta")
	case *js.NewTargetExpr:
		return unknown
	case *js.VarDecl:
		a.varDecl(e)
	}
	return unknown
}

func (a *analysis) literal(e *js.LiteralExpr) set {
	switch e.TokenType {
	case js.StringToken:
		s, _ := unquote(e.Data)
		return str(s)
	case js.TrueToken:
		return boolean(true)
	case js.FalseToken:
		return boolean(false)
	case js.NullToken:
		return one(value{k: vNull})
	case js.ThisToken:
		return a.this()
	case js.SuperToken:
		return a.superValue()
	case js.ImportToken:
		return sym("import")
	case js.RegExpToken:
		s := string(e.Data)
		i := strings.LastIndexByte(s, '/')
		if i <= 0 {
			return unknown
		}
		return one(value{k: vRegex, s: s[1:i], p: s[i+1:]})
	}
	if js.IsNumeric(e.TokenType) {
		d := string(e.Data)
		if n, ok := parseNumber(d); ok {
			return num(n)
		}
	}
	return unknown
}

func (a *analysis) this() set {
	for f := a.frame; f != nil; f = f.parent {
		if !f.block && (f.fn == nil || !f.fn.arrow) {
			return f.this
		}
	}
	return sym("globalThis")
}

func (a *analysis) homeClass() *class {
	for f := a.frame; f != nil; f = f.parent {
		if f.home != nil {
			return f.home
		}
	}
	return nil
}

func (a *analysis) superValue() set {
	if c := a.homeClass(); c != nil {
		return c.super
	}
	return unknown
}

func (a *analysis) dot(e *js.DotExpr) set {
	return a.member(a.eval(e.X), memberName(e.Y))
}

func memberName(y js.IExpr) string {
	switch y := y.(type) {
	case js.LiteralExpr:
		return identifier(y.Data)
	case *js.LiteralExpr:
		return identifier(y.Data)
	case *js.Var:
		return identifier(y.Data)
	}
	return ""
}

func (a *analysis) arrayExpr(e *js.ArrayExpr) set {
	r := &array{born: a.cond}
	for _, i := range e.List {
		switch {
		case i.Value == nil:
			if len(e.List) > 1 {
				r.items = append(r.items, undefined)
			}
		case i.Spread:
			r.append(a.elements(a.value(i.Value)))
		default:
			r.append(array{items: []set{a.value(i.Value)}})
		}
	}
	// A trailing hole stands for the comma alone.
	if n := len(e.List); n > 1 && e.List[n-1].Value == nil && len(r.items) > 0 {
		r.items = r.items[:len(r.items)-1]
	}
	return one(value{k: vArray, p: r})
}

// append adds items, bounded.
func (r *array) append(o array) {
	if r.fuzzy || len(r.items)+len(o.items) > maxItems {
		r.fuzzy = true
		for _, s := range o.items {
			r.rest = join(r.rest, s)
		}
		r.rest = join(r.rest, o.rest)
		return
	}
	r.items = append(r.items, o.items...)
	if o.fuzzy {
		r.fuzzy = true
		r.rest = join(r.rest, o.rest)
	}
}

func (a *analysis) objectExpr(e *js.ObjectExpr) set { return a.objectOf(e, false) }

// objectOf is the value of an object literal; env says that it becomes the
// environment of the process, into which that environment may be spread.
func (a *analysis) objectOf(e *js.ObjectExpr, env bool) set {
	o := newObject(a.cond)
	self := one(value{k: vObject, p: o})
	for _, p := range e.List {
		if p.Spread {
			s := a.value(p.Value)
			if v, ok := s.single(); env && ok && v.k == vSym && v.s == "process.env" {
				o.open = true
				continue
			}
			a.spreadInto(o, s)
			continue
		}
		if m, ok := p.Value.(*js.MethodDecl); ok {
			a.objectMethod(o, m)
			continue
		}
		var key set
		if p.Name != nil {
			key = a.propertyName(p.Name)
		} else if v, ok := p.Value.(*js.Var); ok {
			key = str(identifier(v.Data))
		}
		k, known := key.text()
		v := a.named(p.Value, k)
		if known && k == "__proto__" && p.Name != nil && !p.Name.IsComputed() {
			o.proto = v
			a.pollution(v)
			continue
		}
		a.store(o, key, v)
	}
	return self
}

func (a *analysis) objectMethod(o *object, m *js.MethodDecl) {
	f := a.method(m, nil)
	key := a.propertyName(&m.Name.PropertyName)
	k, ok := key.text()
	if !ok {
		o.open = true
		o.rest = join(o.rest, f)
		return
	}
	if !m.Get && !m.Set {
		o.put(k, f)
		return
	}
	p := o.props[k]
	if p == nil || !p.accessor {
		o.put(k, set{})
		p = &prop{accessor: true}
		o.props[k] = p
	}
	if m.Get {
		p.get = f
	} else {
		p.set = f
	}
}

// propertyName is the key of a property, as a set of texts.
func (a *analysis) propertyName(n *js.PropertyName) set {
	if n.IsComputed() {
		return a.eval(n.Computed)
	}
	switch n.Literal.TokenType {
	case js.StringToken:
		s, _ := unquote(n.Literal.Data)
		return str(s)
	}
	if js.IsNumeric(n.Literal.TokenType) {
		if f, ok := parseNumber(string(n.Literal.Data)); ok {
			return str(numberText(f))
		}
	}
	return str(identifier(n.Literal.Data))
}

func (a *analysis) spreadInto(o *object, s set) {
	if s.unk {
		o.open = true
		o.rest = join(o.rest, tainted(s))
	}
	for _, v := range s.vs {
		switch v.k {
		case vObject:
			from := v.p.(*object)
			for _, k := range from.order {
				o.put(k, a.property(one(v), from.props[k]))
			}
			if from.open {
				o.open = true
				o.rest = join(o.rest, from.rest)
			}
		case vArray, vStr:
			items := a.elements(one(v))
			for i, s := range items.items {
				o.put(numberText(float64(i)), s)
			}
			o.open = o.open || items.fuzzy
		case vSym:
			a.dump(v)
			o.open = true
			o.rest = join(o.rest, unknown.with(s))
			if tables().isModule(v.s) {
				// {...require("child_process")} keeps what can be named.
				o.proto = join(o.proto, one(v))
			}
		case vFunc, vClass, vBound:
			o.open = true
		}
	}
}

func (a *analysis) template(e *js.TemplateExpr) set {
	var cooked, values []set
	out := str("")
	for _, p := range e.List {
		text := templateText(p.Value)
		v := a.eval(p.Expr)
		cooked = append(cooked, str(text))
		values = append(values, v)
		if e.Tag == nil {
			out = a.concat(a.concat(out, str(text)), v)
		}
	}
	tail := templateText(e.Tail)
	if e.Tag == nil {
		return a.concat(out, str(tail))
	}
	cooked = append(cooked, str(tail))
	strs := &array{items: cooked, born: a.cond, props: map[string]set{}}
	raw := &array{born: a.cond}
	for _, p := range e.List {
		raw.items = append(raw.items, str(trimTemplate(string(p.Value))))
	}
	raw.items = append(raw.items, str(trimTemplate(string(e.Tail))))
	strs.props["raw"] = one(value{k: vArray, p: raw})
	fn, this := a.callee(e.Tag)
	return a.invoke(fn, this, append([]set{one(value{k: vArray, p: strs})}, values...), exprName(e.Tag))
}

func trimTemplate(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "`"), "}")
	s = strings.TrimSuffix(s, "`")
	return strings.TrimSuffix(s, "${")
}

func templateText(b []byte) string {
	return unescape(strings.ReplaceAll(trimTemplate(string(b)), "\r\n", "\n"))
}

func (a *analysis) conditional(e *js.CondExpr) set {
	b, known := truth(a.eval(e.Cond))
	if !known {
		a.cond++
		x, y := a.value(e.X), a.value(e.Y)
		a.cond--
		return join(x, y)
	}
	taken, other := e.X, e.Y
	if !b {
		taken, other = other, taken
	}
	s := a.value(taken)
	a.deadExpr(other)
	return s
}

// deadExpr evaluates an expression that is not reached, for what it names.
func (a *analysis) deadExpr(e js.IExpr) {
	if a.replay > 0 {
		return
	}
	a.cond++
	a.doubt++
	a.value(e)
	a.doubt--
	a.cond--
}

func (a *analysis) yield(e *js.YieldExpr) set {
	if e.X == nil {
		return unknown
	}
	v := a.value(e.X)
	if f := a.generator(); f != nil {
		r := f.ret.vs[0].p.(*array)
		if a.cond > f.base {
			r.fuzzy = true
		}
		if e.Generator {
			r.append(a.elements(v))
		} else {
			r.append(array{items: []set{v}})
		}
	}
	return unknown
}

// generator is the frame of the generator function that runs.
func (a *analysis) generator() *frame {
	for f := a.frame; f != nil; f = f.parent {
		if f.fn != nil && f.fn.gen && f.yields {
			return f
		}
	}
	return nil
}

// call evaluates a call.
func (a *analysis) call(e *js.CallExpr) set {
	if l, ok := e.X.(*js.LiteralExpr); ok && l.TokenType == js.SuperToken {
		return a.superCall(e)
	}
	fn, this := a.callee(e.X)
	args := a.args(e.Args)
	return a.invoke(fn, this, args, exprName(e.X))
}

// callee evaluates what is called, and its receiver.
func (a *analysis) callee(e js.IExpr) (fn, this set) {
	switch e := e.(type) {
	case *js.DotExpr:
		x := a.eval(e.X)
		return a.member(x, memberName(e.Y)), a.receiverOf(e.X, x)
	case *js.IndexExpr:
		x := a.eval(e.X)
		return a.index(x, a.eval(e.Y)), a.receiverOf(e.X, x)
	case *js.GroupExpr:
		return a.callee(e.X)
	case *js.TemplateExpr, *js.CallExpr:
		return a.eval(e), set{}
	}
	return a.eval(e), set{}
}

func (a *analysis) receiverOf(e js.IExpr, x set) set {
	if l, ok := e.(*js.LiteralExpr); ok && l.TokenType == js.SuperToken {
		return a.this()
	}
	return x
}

// args evaluates arguments; what a spread of unknown length gives is known to
// be there by a last argument that is unknown.
func (a *analysis) args(list js.Args) []set {
	out := make([]set, 0, len(list.List))
	for _, g := range list.List {
		if !g.Rest {
			out = append(out, a.eval(g.Value))
			continue
		}
		items := a.elements(a.value(g.Value))
		out = append(out, items.items...)
		if items.fuzzy {
			rest := items.rest
			rest.unk = true
			out = append(out, rest, rest)
		}
	}
	return out
}

// exprName is the source's own name for what is called.
func exprName(e js.IExpr) string {
	switch e := e.(type) {
	case *js.Var:
		return identifier(resolve(e).Data)
	case *js.DotExpr:
		return memberName(e.Y)
	}
	return ""
}

func (a *analysis) newExpr(e *js.NewExpr) set {
	fn := a.eval(e.X)
	var args []set
	if e.Args != nil {
		args = a.args(*e.Args)
	}
	return a.construct(fn, args)
}

func (a *analysis) superCall(e *js.CallExpr) set {
	args := a.args(e.Args)
	c := a.homeClass()
	if c == nil {
		a.escapeAll(args)
		return undefined
	}
	for _, v := range c.super.vs {
		if k, ok := v.p.(*class); ok && v.k == vClass {
			a.runConstructor(k, a.this(), args)
			continue
		}
		made := a.construct(one(v), args)
		a.adopt(a.this(), made)
	}
	if c.super.unk {
		a.escapeAll(args)
	}
	return undefined
}

// adopt makes what a built-in constructor gave the prototype of the object
// that a class of the code is building on it.
func (a *analysis) adopt(this, made set) {
	for _, v := range this.vs {
		if o, ok := v.p.(*object); ok && v.k == vObject {
			o.proto = join(o.proto, made)
		}
	}
}
