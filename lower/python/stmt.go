package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

func (a *analysis) block(body []syntax.Stmt) {
	for i, s := range body {
		if a.flow != onward {
			rest := body[i:]
			a.sideways(s, func() { a.block(rest) })
			return
		}
		a.stmt(s)
		if a.stopped {
			return
		}
	}
}

func (a *analysis) stmt(s syntax.Stmt) {
	if !a.step() {
		return
	}
	a.depth++
	defer func() { a.depth-- }()
	switch s := s.(type) {
	case *syntax.ExprStmt:
		a.exprStmt(s)
	case *syntax.Assign:
		v := a.eval(s.Value)
		for _, t := range s.Targets {
			a.bind(t, v)
		}
	case *syntax.AugAssign:
		v := a.binary(s.Op, a.evalRef(s.Target), a.eval(s.Value))
		a.bind(s.Target, v)
	case *syntax.AnnAssign:
		a.annotation(s.Annotation)
		if s.Value != nil {
			a.bind(s.Target, a.eval(s.Value))
		} else if _, ok := s.Target.(*syntax.Name); !ok {
			a.eval(s.Target)
		}
	case *syntax.TypeAlias:
		a.typeParams(s.TypeParams)
		a.assign(s.Name.ID, unknown)
		a.unreferenced(s.Value)
	case *syntax.If:
		a.ifStmt(s, 0)
	case *syntax.For:
		a.forStmt(s)
	case *syntax.While:
		a.whileStmt(s)
	case *syntax.Try:
		a.tryStmt(s)
	case *syntax.With:
		a.withStmt(s)
	case *syntax.Match:
		a.matchStmt(s)
	case *syntax.FunctionDef:
		a.funcDef(s)
	case *syntax.ClassDef:
		a.classDef(s)
	case *syntax.Import:
		a.importStmt(s)
	case *syntax.ImportFrom:
		a.fromStmt(s)
	default:
		a.simple(s)
	}
}

func (a *analysis) simple(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.Return:
		v := none
		if s.X != nil {
			v = a.eval(s.X)
		}
		f := a.functionFrame()
		f.ret = join(f.ret, v)
		a.flow = returns
	case *syntax.Raise:
		if s.X != nil {
			a.eval(s.X)
		}
		if s.Cause != nil {
			a.eval(s.Cause)
		}
	case *syntax.Assert:
		a.eval(s.Test)
		if s.Msg != nil {
			a.eval(s.Msg)
		}
	case *syntax.Delete:
		for _, t := range s.Targets {
			a.delete(t)
		}
	case *syntax.Simple:
		if a.loops > 0 && s.Op == syntax.KwBreak {
			a.flow = breaks
		} else if a.loops > 0 && s.Op == syntax.KwContinue {
			a.flow = continues
		}
	case *syntax.Bad:
		a.bad(s)
	}
}

func (a *analysis) exprStmt(s *syntax.ExprStmt) {
	if !a.docstring(s) {
		a.eval(s.X)
	}
}

// docstring notes the examples in a literal that stands alone.
func (a *analysis) docstring(s *syntax.ExprStmt) bool {
	str, ok := s.X.(*syntax.Str)
	if ok && strings.Contains(str.S, ">>>") {
		a.facts.docstrings = append(a.facts.docstrings, str.S)
	}
	return ok
}

// bad reads what was found in a line that does not parse.
func (a *analysis) bad(s *syntax.Bad) {
	if s.Shell != "" {
		a.sym = "!"
		a.shell(firstWord(s.Shell), s.Shell)
		a.sym = ""
	}
	for i, x := range s.Exprs {
		if in, ok := x.(*syntax.Inline); ok {
			a.stmt(in.Stmt)
			continue
		}
		v := a.eval(x)
		if s.Exec && i == 0 {
			a.runCode("exec", v)
		}
	}
}

func (a *analysis) functionFrame() *frame {
	f := a.frame
	for f.kind == compFrame {
		f = f.outer
	}
	return f
}

func (a *analysis) delete(t syntax.Expr) {
	switch t := t.(type) {
	case *syntax.Name:
		a.unset(t.ID)
	case *syntax.Seq:
		for _, e := range t.Elts {
			a.delete(e)
		}
	case *syntax.Subscript:
		// Deleting from the environment or a name space needs no value.
		a.evalRef(t.X)
		a.eval(t.Index)
	case *syntax.Attribute:
		a.evalRef(t.X)
	default:
		a.eval(t)
	}
}

func (a *analysis) ifStmt(s *syntax.If, i int) {
	if i == len(s.Clauses) {
		a.block(s.Else)
		return
	}
	if i > 0 && !a.step() {
		return
	}
	c := s.Clauses[i]
	yes, known := a.condition(c.Test)
	then := func() { a.block(c.Body) }
	rest := func() {}
	last := i+1 == len(s.Clauses) && len(s.Else) == 0
	if !last {
		rest = func() { a.ifStmt(s, i+1) }
	}
	switch {
	case known && yes:
		then()
		if !last {
			a.sideways(&s.Clauses[i].Body, rest)
		}
	case known:
		a.sideways(&s.Clauses[i].Test, then)
		rest()
	case i >= 40:
		// A long chain is read one after the other; the stack is finite.
		a.branches(true, then)
		for _, c := range s.Clauses[i+1:] {
			a.eval(c.Test)
			a.branches(true, func() { a.block(c.Body) })
		}
		if len(s.Else) > 0 {
			a.branches(true, func() { a.block(s.Else) })
		}
	case last:
		a.branches(true, then)
	default:
		a.branches(false, then, rest)
	}
}

// condition evaluates a test.
func (a *analysis) condition(x syntax.Expr) (yes, known bool) {
	v := a.eval(x)
	if a.deferred && a.calls <= 1 {
		return false, false
	}
	if s, ok := v.single(); ok {
		return s.truth()
	}
	return false, false
}

func (a *analysis) forStmt(s *syntax.For) {
	iter := a.eval(s.Iter)
	mark, base := len(a.journal), a.uncertain
	q, ok := a.concrete(iter)
	a.loops++
	defer func() { a.loops-- }()
	if (!ok || len(q.items) > 50) && countless(s.Iter) {
		a.endless++
		defer func() { a.endless-- }()
	}
	if ok && len(q.items) == 0 {
		a.sideways(s, func() {
			a.bind(s.Target, unknown)
			a.block(s.Body)
		})
		a.block(s.Else)
		return
	}
	if ok {
		// uncertain is raised so that the journal is kept.
		a.uncertain++
		uneven := false
		for _, it := range q.items {
			a.bind(s.Target, it)
			before := a.flow
			a.block(s.Body)
			f := a.flow
			if f == breaks || f == returns {
				uneven = uneven || f == breaks
				break
			}
			a.flow = before
			if !a.generous() {
				uneven = true
				break
			}
		}
		a.uncertain--
		if a.flow == breaks || a.flow == continues {
			a.flow = onward
		}
		if uneven || a.loopEscapes(s.Body) {
			a.blur(mark)
		}
		a.dropJournal(mark, base)
		a.elseOf(s.Else)
		return
	}
	item := a.elements(iter)
	a.repeat(func() {
		a.bind(s.Target, item)
		a.block(s.Body)
	})
	a.elseOf(s.Else)
}

// countless: the loop turns very often or without end.
func countless(x syntax.Expr) bool {
	c, ok := x.(*syntax.Call)
	if !ok {
		return false
	}
	name := ""
	switch f := c.Func.(type) {
	case *syntax.Name:
		name = f.ID
	case *syntax.Attribute:
		name = f.Name
	}
	switch name {
	case "count", "cycle", "repeat":
		return true
	case "range", "xrange":
		if len(c.Args) == 0 {
			return false
		}
		n, ok := c.Args[len(c.Args)-1].(*syntax.Num)
		return !ok || len(n.Text) > 2
	}
	return false
}

func (a *analysis) elseOf(body []syntax.Stmt) {
	if len(body) > 0 {
		a.branches(true, func() { a.block(body) })
	}
}

// dropJournal forgets what no enclosing branch will want back.
func (a *analysis) dropJournal(mark, uncertain int) {
	if uncertain == 0 {
		a.journal = a.journal[:mark]
	}
}

// loopEscapes: the loop has a break or return, so it may end early.
func (a *analysis) loopEscapes(body []syntax.Stmt) bool {
	for _, s := range body {
		switch s := s.(type) {
		case *syntax.Simple:
			if s.Op == syntax.KwBreak {
				return true
			}
		case *syntax.Return:
			return true
		case *syntax.If:
			for _, c := range s.Clauses {
				if a.loopEscapes(c.Body) {
					return true
				}
			}
			if a.loopEscapes(s.Else) {
				return true
			}
		case *syntax.Try, *syntax.With, *syntax.Match:
			return true
		}
	}
	return false
}

// repeat runs a loop's body for an unknown number of turns.
func (a *analysis) repeat(body func()) {
	turns := 2
	if a.loops > 1 || !a.generous() { // an outer loop turns the inner ones again
		turns = 1
	}
	mark, base := len(a.journal), a.uncertain
	a.uncertain++
	for range turns {
		a.branches(true, func() {
			body()
			a.flow = onward
		})
	}
	a.uncertain--
	a.blur(mark)
	a.dropJournal(mark, base)
}

func (a *analysis) whileStmt(s *syntax.While) {
	a.loops++
	defer func() { a.loops-- }()
	yes, known := a.condition(s.Test)
	mark, base := len(a.journal), a.uncertain
	if known && yes && a.forever(s) && !a.loopEscapes(s.Body) {
		a.endless++
		defer func() { a.endless-- }()
	}
	a.uncertain++
	turns := 0
	for known && yes && turns < 500 && a.generous() && !a.forever(s) {
		turns++
		before := a.flow
		a.block(s.Body)
		if f := a.flow; f == breaks || f == returns {
			break
		}
		a.flow = before
		yes, known = a.condition(s.Test)
	}
	a.uncertain--
	if a.flow == breaks || a.flow == continues {
		a.flow = onward
	}
	switch {
	case turns > 0 && known && !yes && !a.loopEscapes(s.Body):
	case known && !yes && turns == 0:
		a.sideways(s, func() { a.block(s.Body) })
	default:
		a.blur(mark)
		if turns == 0 || known {
			a.repeat(func() {
				a.block(s.Body)
				a.eval(s.Test)
			})
		}
	}
	a.dropJournal(mark, base)
	a.elseOf(s.Else)
}

// forever: "while True" ends by a break or never; running it tells nothing.
func (a *analysis) forever(s *syntax.While) bool {
	switch s.Test.(type) {
	case *syntax.Const, *syntax.Num:
		return true
	}
	return false
}

func (a *analysis) tryStmt(s *syntax.Try) {
	mark, base := len(a.journal), a.uncertain
	a.uncertain++
	a.block(s.Body)
	a.uncertain--
	early := a.flow
	a.flow = onward
	mid := map[variable]set{}
	changed := a.changedSince(mark)
	for _, v := range changed {
		m := v.f.cur[v.name]
		for _, u := range a.journal[mark:] {
			if u.f == v.f && u.name == v.name {
				if u.had {
					m = join(m, u.old)
				} else {
					m = join(m, a.unbound(v))
				}
			}
		}
		mid[v] = m
	}
	alts := []func(){func() { a.block(s.Else) }}
	for i := range s.Handlers {
		h := &s.Handlers[i]
		alts = append(alts, func() {
			for _, v := range changed {
				a.setIn(v.f, v.name, mid[v])
			}
			if h.Type != nil {
				a.unreferenced(h.Type)
			}
			if h.Name != "" {
				a.assign(h.Name, unknown)
			}
			a.block(h.Body)
			if h.Name != "" {
				a.unset(h.Name)
			}
		})
	}
	a.branches(false, alts...)
	if len(s.Finally) > 0 {
		a.block(s.Finally)
	}
	if early == returns && len(s.Handlers) == 0 {
		a.flow = early
	}
	a.dropJournal(mark, base)
}

func (a *analysis) withStmt(s *syntax.With) {
	for _, it := range s.Items {
		v := a.eval(it.X)
		if it.Target != nil {
			a.bind(it.Target, a.entered(v))
		}
	}
	mark, base := len(a.journal), a.uncertain
	a.uncertain++
	a.block(s.Body)
	a.uncertain--
	if len(s.Items) != 1 || !a.plainContext(s.Items[0].X) {
		// A context manager may swallow what was raised half-way.
		a.blur(mark)
	}
	a.dropJournal(mark, base)
}

// plainContext: opening a file swallows nothing.
func (a *analysis) plainContext(x syntax.Expr) bool {
	c, ok := x.(*syntax.Call)
	if !ok {
		return false
	}
	n, ok := c.Func.(*syntax.Name)
	return ok && n.ID == "open"
}

// entered is what __enter__ gives: the object itself, or what a generator
// yields.
func (a *analysis) entered(s set) set {
	var out set
	out.unk, out.t, out.src = s.unk, s.t, s.src
	for _, v := range s.vs {
		switch v.k {
		case vInst, vPath, vSym:
			out = join(out, one(v))
		case vObj:
			c := v.p.(*object).class
			if m, ok := a.classAttr(c, "__enter__", map[*class]bool{}); ok {
				out = join(out, a.apply(m, &call{args: []set{one(v)}}))
			} else {
				out = join(out, one(v))
			}
		case vSeq:
			out = join(out, v.p.(*sequence).union())
		default:
			out.unk = true
		}
	}
	return out
}

func (a *analysis) matchStmt(s *syntax.Match) {
	subject := a.eval(s.Subject)
	alts := make([]func(), 0, len(s.Cases))
	for i := range s.Cases {
		c := &s.Cases[i]
		alts = append(alts, func() {
			a.pattern(c.Pattern, subject)
			if c.Guard != nil {
				a.eval(c.Guard)
			}
			a.block(c.Body)
		})
	}
	a.branches(true, alts...)
}

// pattern binds the names of a pattern.
func (a *analysis) pattern(p *syntax.Pattern, v set) {
	if !a.step() {
		return
	}
	switch p.Kind {
	case syntax.MatchValue, syntax.MatchClass:
		a.unreferenced(p.X)
	}
	var items []set
	if p.Kind == syntax.MatchSequence {
		if q, ok := a.concrete(v); ok {
			items = q.items
		}
	}
	for i, sub := range p.Subs {
		part := a.elements(v)
		switch {
		case p.Kind == syntax.MatchAs || p.Kind == syntax.MatchOr:
			part = v
		case i < len(items):
			part = items[i]
		case p.Kind == syntax.MatchMapping && i < len(p.Keys):
			part = a.index(v, a.eval(p.Keys[i]))
		case p.Kind == syntax.MatchClass && i >= len(p.Subs)-len(p.Names):
			part = a.attribute(v, p.Names[i-len(p.Subs)+len(p.Names)])
		}
		a.pattern(sub, part)
	}
	if p.Name != "" {
		a.assign(p.Name, v)
	}
}

// bind assigns to a target.
func (a *analysis) bind(t syntax.Expr, v set) {
	switch t := t.(type) {
	case *syntax.Name:
		if t.ID == "__annotations__" {
			a.annotate(v, 0)
		}
		a.assign(t.ID, v)
	case *syntax.Starred:
		a.bind(t.X, v)
	case *syntax.Attribute:
		a.setAttribute(a.evalRef(t.X), t.Name, v)
	case *syntax.Subscript:
		switch x := t.X.(type) {
		case *syntax.Attribute:
			if x.Name == "__annotations__" {
				a.annotate(v, 0)
			}
		case *syntax.Name:
			if x.ID == "__annotations__" {
				a.annotate(v, 0)
			}
		}
		a.setItem(a.evalRef(t.X), a.eval(t.Index), v)
	case *syntax.Seq:
		a.unpack(t, v)
	case nil:
	default:
		a.eval(t)
	}
}

func (a *analysis) unpack(t *syntax.Seq, v set) {
	star := -1
	for i, e := range t.Elts {
		if _, ok := e.(*syntax.Starred); ok {
			star = i
		}
	}
	q, ok := a.concrete(v)
	n := len(t.Elts)
	if !ok || star < 0 && len(q.items) != n || star >= 0 && len(q.items) < n-1 {
		el := a.elements(v)
		for _, e := range t.Elts {
			a.bind(e, el)
		}
		return
	}
	for i, e := range t.Elts {
		switch {
		case star < 0 || i < star:
			a.bind(e, q.items[i])
		case i == star:
			a.bind(e, seq('[', q.items[i:len(q.items)-(n-1-i)]...))
		default:
			a.bind(e, q.items[len(q.items)-(n-i)])
		}
	}
}

func (a *analysis) importStmt(s *syntax.Import) {
	for _, n := range s.Names {
		a.imported(n.Name)
		mod := n.Name
		if n.As == "" {
			mod = boundName(n)
		}
		a.assign(boundName(n), sym(canonical(mod)))
	}
}

func (a *analysis) fromStmt(s *syntax.ImportFrom) {
	if s.Level > 0 {
		// The module is the code's own; its names can only be guessed at
		// where they are those of modules.
		for _, n := range s.Names {
			if n.Name != "*" {
				a.assign(boundName(n), unknown)
			}
		}
		return
	}
	a.imported(s.Module)
	for _, n := range s.Names {
		if n.Name == "*" {
			a.stars = append(a.stars, s.Module)
			continue
		}
		a.assign(boundName(n), a.moduleAttr(s.Module, n.Name))
	}
}

// imported notes an import; some modules act when they are imported, and a
// module that the code has just written is code of its own making.
func (a *analysis) imported(name string) {
	a.facts.imports = append(a.facts.imports, name)
	if e, ok := table().entries["import "+name]; ok {
		a.actions(e, "import "+name, &call{})
	}
}

func (a *analysis) annotation(x syntax.Expr) {
	switch x.(type) {
	case nil, *syntax.Name, *syntax.Attribute:
	default:
		a.annotateExpr(x, 0)
	}
	a.unreferenced(x)
}

// typeParams reads the bounds and defaults of type parameters, which are
// evaluated when somebody asks for them.
func (a *analysis) typeParams(ps []syntax.TypeParam) {
	for i := range ps {
		if ps[i].Bound != nil {
			a.unreferenced(ps[i].Bound)
		}
		if ps[i].Default != nil {
			a.unreferenced(ps[i].Default)
		}
	}
}

// unreferenced evaluates where naming a function is not using it: types,
// bases, the exceptions of a handler.
func (a *analysis) unreferenced(x syntax.Expr) set {
	if x == nil {
		return unknown
	}
	a.noref++
	v := a.eval(x)
	a.noref--
	return v
}

func (a *analysis) funcDef(s *syntax.FunctionDef) {
	fn := a.newFunction(s, s.Name, s.Params, s.Body, nil)
	if len(s.Body) > 0 {
		if e, ok := s.Body[0].(*syntax.ExprStmt); ok {
			a.docstring(e)
		}
	}
	a.typeParams(s.TypeParams)
	a.annotation(s.Returns)
	v := one(value{k: vFunc, p: fn})
	for i := len(s.Decorators) - 1; i >= 0; i-- {
		v = a.decorate(s.Decorators[i], v, fn)
	}
	a.assign(s.Name, v)
}

// decorate applies a decorator, which is a call of it.
func (a *analysis) decorate(d syntax.Expr, v set, fn *function) set {
	dec := a.evalRef(d)
	if s, ok := dec.single(); ok && s.k == vSym && fn != nil {
		switch s.s {
		case "builtins.staticmethod":
			fn.bound = 's'
			return v
		case "builtins.classmethod":
			fn.bound = 'c'
			return v
		case "builtins.property", "functools.cached_property":
			fn.bound = 'p'
			return v
		}
	}
	a.references(dec)
	out := set{}
	for _, f := range dec.vs {
		out = join(out, a.apply(one(f), &call{args: []set{v}}))
	}
	if len(out.vs) == 0 || dec.unk {
		out = join(v, unknown)
	}
	return out
}

func (a *analysis) newFunction(key any, name string, params []syntax.Param, body []syntax.Stmt, x syntax.Expr) *function {
	fn := &function{name: name, params: params, body: body, expr: x, outer: a.frame, info: a.scopeOf(key, body, params), inner: a.code > 0}
	if a.frame.kind == classFrame {
		fn.owner = a.frame.self
	}
	for i := range params {
		p := &params[i]
		if p.Annotation != nil {
			a.annotation(p.Annotation)
		}
		if p.Default != nil {
			if fn.defaults == nil {
				fn.defaults = map[string]set{}
			}
			fn.defaults[p.Name] = a.eval(p.Default)
		}
	}
	if old, ok := a.known[key]; ok {
		fn.visited, fn.returns = old.visited, old.returns
	} else {
		a.order = append(a.order, key)
	}
	a.known[key] = fn
	return fn
}

func (a *analysis) classDef(s *syntax.ClassDef) {
	c := &class{name: s.Name, fields: map[string]set{}, meta: len(s.Keywords) > 0}
	if a.code == 0 {
		a.classes = append(a.classes, definition{s, c})
	}
	for _, b := range s.Bases {
		if st, ok := b.(*syntax.Starred); ok {
			b = st.X
		}
		c.bases = append(c.bases, a.unreferenced(b))
	}
	a.typeParams(s.TypeParams)
	var meta set
	for _, k := range s.Keywords {
		v := a.eval(k.Value)
		if k.Name == "metaclass" {
			meta = v
		}
	}
	f := &frame{kind: classFrame, info: a.scopeOf(s, s.Body, nil), cur: map[string]set{}, outer: a.frame, self: c, base: a.uncertain}
	c.frame = f
	outer := a.frame
	a.frame = f
	a.block(s.Body)
	a.frame = outer
	v := one(value{k: vClass, p: c})
	if len(meta.vs) > 0 {
		a.metaclass(meta, v, c)
	}
	for i := len(s.Decorators) - 1; i >= 0; i-- {
		v = a.decorate(s.Decorators[i], v, nil)
	}
	a.assign(s.Name, v)
}

// metaclass runs a metaclass that is a plain callable: type=eval as a
// metaclass would evaluate the class's name.
func (a *analysis) metaclass(meta, v set, c *class) {
	for _, m := range meta.vs {
		switch m.k {
		case vSym, vFunc, vPartial:
			ns := one(value{k: vMap, p: &mapping{fuzzy: true}})
			a.apply(one(m), &call{args: []set{str(c.name), seq('(', c.bases...), ns}})
		}
	}
	a.references(meta)
}

// references reports the use of functions that were named without a call.
func (a *analysis) references(s set) {
	if a.noref > 0 {
		return
	}
	for _, v := range s.vs {
		if v.k != vSym {
			continue
		}
		if e, ok := table().lookup(v.s); ok && e.used != "" {
			was := a.sym
			a.sym = v.s
			a.opaque("hands on "+v.s+", which "+e.used, cordon.OriginLiteral, true)
			a.sym = was
		}
	}
}
