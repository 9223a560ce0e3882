package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// call is the arguments of one call.
type call struct {
	recv        value // the object of a method, or zero
	args        []set
	kws         []kwarg
	unknownArgs bool // there are more positional ones that cannot be told
	unknownKws  bool
	fn          syntax.Expr // what stands before the brackets, if it is code
}

// arg finds an argument by position (negative: none) or keyword.
func (c *call) arg(pos int, names ...string) (set, bool) {
	if pos >= 0 && pos < len(c.args) {
		return c.args[pos], true
	}
	for _, k := range c.kws {
		for _, n := range names {
			if k.name == n {
				return k.val, true
			}
		}
	}
	if c.unknownArgs && pos >= 0 || c.unknownKws && len(names) > 0 {
		return unknown, true
	}
	return set{}, false
}

// all is every argument.
func (c *call) all() []set {
	if len(c.kws) == 0 {
		return c.args
	}
	out := append([]set(nil), c.args...)
	for _, k := range c.kws {
		out = append(out, k.val)
	}
	return out
}

func (a *analysis) evalCall(x *syntax.Call) set {
	callee := a.evalRef(x.Func)
	c := &call{fn: x.Func}
	v, single := callee.single()
	if single && v.k == vSym && typeArguments(v.s) {
		a.noref++
		a.arguments(c, x)
		a.noref--
	} else {
		a.arguments(c, x)
	}
	if !(single && (v.k == vFunc || v.k == vMethod || v.k == vClass || v.k == vSym && keepsEnv(v.s))) {
		a.dumpArguments(c)
	}
	out := a.apply(callee, c)
	if callee.unk || len(callee.vs) == 0 {
		out = join(out, a.callUnknown(x, callee, c))
	}
	return out
}

// typeArguments: functions whose arguments are types, or names of functions
// that they will not call.
func typeArguments(s string) bool {
	switch s {
	case "builtins.isinstance", "builtins.issubclass", "builtins.hasattr", "builtins.id", "builtins.callable", "typing.cast", "typing.TypeVar",
		"typing.NewType", "inspect.signature", "inspect.getsource", "inspect.getdoc", "inspect.isfunction", "builtins.help":
		return true
	}
	return false
}

func (a *analysis) arguments(c *call, x *syntax.Call) {
	if n := len(x.Args); n > 0 {
		c.args = make([]set, 0, n)
	}
	if n := len(x.Keywords); n > 0 {
		c.kws = make([]kwarg, 0, n)
	}
	for _, e := range x.Args {
		if st, ok := e.(*syntax.Starred); ok {
			v := a.eval(st.X)
			if q, ok := a.concrete(v); ok && len(q.items) < 64 {
				for _, it := range q.items {
					c.args = append(c.args, it.with(v))
				}
				continue
			}
			c.unknownArgs = true
			continue
		}
		c.args = append(c.args, a.eval(e))
	}
	for _, k := range x.Keywords {
		v := a.eval(k.Value)
		if k.Name != "" {
			c.kws = append(c.kws, kwarg{k.Name, v})
			continue
		}
		m, ok := v.single()
		if !ok || m.k != vMap {
			a.dump(v, "handed on as keywords")
			a.handsNamespace(v)
			c.unknownKws = true
			continue
		}
		d := m.p.(*mapping)
		c.unknownKws = c.unknownKws || d.fuzzy
		for i, key := range d.keys {
			if key.k == vStr && len(c.kws) < 64 {
				c.kws = append(c.kws, kwarg{key.s, d.vals[i]})
			}
		}
	}
}

// apply calls whatever f may be.
func (a *analysis) apply(f set, c *call) set {
	a.steps += 4 * len(f.vs)
	out := set{unk: len(f.vs) == 0}
	for _, v := range f.vs {
		out = join(out, a.applyOne(v, c))
	}
	if f.unk {
		out = join(out, result(c.all()...).with(f))
	}
	return out
}

func (a *analysis) applyOne(v value, c *call) set {
	if !a.step() || a.depth > maxDepth {
		return unknown
	}
	switch v.k {
	case vSym:
		return a.callSym(v, c)
	case vFunc:
		return a.invoke(v.p.(*function), c)
	case vMethod:
		m := v.p.(*method)
		d := *c
		d.args = append([]set{m.self}, c.args...)
		return a.invoke(m.fn, &d)
	case vClass:
		return a.instantiate(v.p.(*class), c)
	case vObj:
		if m, ok := a.classAttr(v.p.(*object).class, "__call__", map[*class]bool{}); ok {
			return a.apply(a.bindTo(m, one(v), false), c)
		}
	case vPartial:
		return a.applyPartial(v.p.(*partial), c)
	case vInst:
		if _, ok := table().lookup(v.s + ".__call__"); ok {
			return a.callSym(value{k: vSym, s: v.s + ".__call__", p: v}, c)
		}
	}
	return result(c.all()...)
}

func (a *analysis) applyPartial(p *partial, c *call) set {
	a.depth++
	defer func() { a.depth-- }()
	switch {
	case p.name != "":
		if len(c.args) == 0 {
			return unknown
		}
		return a.apply(a.attribute(c.args[0], p.name), &call{args: p.args, kws: p.kws})
	case p.attrs != nil:
		if len(c.args) == 0 {
			return unknown
		}
		s := c.args[0]
		for _, n := range p.attrs {
			for _, part := range strings.Split(n, ".") {
				s = a.attribute(s, part)
			}
		}
		return s
	}
	d := &call{unknownArgs: c.unknownArgs, unknownKws: c.unknownKws, fn: c.fn}
	d.args = append(append(d.args, p.args...), c.args...)
	d.kws = append(append(d.kws, p.kws...), c.kws...)
	return a.apply(p.fn, d)
}

func (a *analysis) instantiate(c *class, args *call) set {
	obj := c.object()
	found := false
	for _, name := range [...]string{"__new__", "__init__"} {
		if m, ok := a.classAttr(c, name, map[*class]bool{}); ok {
			found = true
			d := *args
			if name == "__new__" {
				d.args = append([]set{one(value{k: vClass, p: c})}, args.args...)
				a.apply(m, &d)
				continue
			}
			a.apply(a.bindTo(m, obj, false), &d)
		}
	}
	if !found {
		a.inheritedInit(c, args)
		for _, k := range args.kws {
			c.fields[k.name] = join(c.fields[k.name], k.val) // dataclasses and kin
		}
		a.dataclassFields(c, args)
	}
	if len(args.args) > 0 && extendsText(c, 0) {
		return join(obj, args.args[0])
	}
	return obj
}

// extendsText: an object of the class is the text or path that it is made of.
func extendsText(c *class, depth int) bool {
	for _, b := range c.bases {
		for _, v := range b.vs {
			switch {
			case v.k == vSym && (v.s == "builtins.str" || v.s == "builtins.bytes" || strings.HasPrefix(v.s, "pathlib.") || v.s == "collections.UserString"):
				return true
			case v.k == vClass && depth < 10 && extendsText(v.p.(*class), depth+1):
				return true
			}
		}
	}
	return false
}

// inheritedInit calls the constructors of bases from the table, which may be
// dangerous by themselves.
func (a *analysis) inheritedInit(c *class, args *call) {
	for _, b := range c.bases {
		for _, v := range b.vs {
			if v.k == vSym {
				if _, ok := table().lookup(v.s); ok {
					a.callSym(v, args)
				}
			}
		}
	}
}

// dataclassFields gives positional arguments to annotated fields in order.
func (a *analysis) dataclassFields(c *class, args *call) {
	if len(args.args) == 0 || len(args.args) > 16 {
		return
	}
	var all set
	for _, s := range args.args {
		all = join(all, s)
	}
	for name, v := range c.frame.cur {
		if only, ok := v.single(); ok && only.k == vFunc {
			continue
		}
		c.fields[name] = join(c.fields[name], all)
	}
}

const (
	maxCalls  = 16
	maxActive = 8
)

// informative: the arguments say something that a run of the function with
// unknown ones did not see. Objects of the code's own classes do not.
func informative(c *call) bool {
	for _, s := range c.args {
		if s.tells() {
			return true
		}
	}
	for _, k := range c.kws {
		if k.val.tells() {
			return true
		}
	}
	return false
}

func (s set) tells() bool {
	for _, v := range s.vs {
		if v.k != vObj && v.k != vNone && v.k != vBool && v.k != vClass {
			return true
		}
	}
	return false
}

// invoke runs a function of the code.
func (a *analysis) invoke(fn *function, c *call) set {
	if a.calls >= maxCalls || fn.active >= maxActive || a.depth > maxDepth || fn.visited == a.pass && !(fn.idle && a.idle == 0) && (!a.generous() || !informative(c)) {
		if fn.active > 0 {
			fn.recurses = true
			a.bomb(fn)
		}
		for i, p := range fn.params {
			if i < len(c.args) {
				fn.info.all[p.Name] = join(fn.info.all[p.Name], c.args[i])
			}
		}
		return join(fn.returns, tainted(c.all()...))
	}
	fn.idle = a.idle > 0 && (fn.visited != a.pass || fn.idle)
	fn.visited = a.pass
	fn.active++
	a.calls++
	a.depth++
	outer, flow, loops, mark := a.frame, a.flow, a.loops, len(a.journal)
	f := &frame{kind: functionFrame, info: fn.info, cur: make(map[string]set, len(fn.info.locals)), outer: fn.outer, base: a.uncertain, fn: fn}
	a.frame, a.flow, a.loops = f, onward, 0
	a.parameters(fn, f, c)
	if fn.expr != nil {
		f.ret = a.eval(fn.expr)
	} else {
		a.block(fn.body)
		if len(f.ret.vs) == 0 && !f.ret.unk {
			f.ret = none
		}
	}
	a.frame, a.flow, a.loops = outer, flow, loops
	f.gone = true
	a.forget(mark)
	a.depth--
	a.calls--
	fn.active--
	ret := f.ret
	if fn.info.yields {
		ret = seq('(', f.yields...)
		if a.maybe > 0 || len(f.yields) == 0 {
			ret.vs[0].p.(*sequence).fuzzy = true
		}
	}
	fn.returns = join(fn.returns, ret)
	return ret
}

// parameters binds what a call passes.
func (a *analysis) parameters(fn *function, f *frame, c *call) {
	pos := 0
	for i := range fn.params {
		p := &fn.params[i]
		var v set
		switch p.Kind {
		case syntax.VarArg:
			rest := c.args[min(pos, len(c.args)):]
			q := &sequence{items: append([]set(nil), rest...), kind: '(', fuzzy: c.unknownArgs}
			pos = len(c.args)
			v = one(value{k: vSeq, p: q})
		case syntax.KwArg:
			m := &mapping{fuzzy: c.unknownKws || c.unknownArgs}
			for _, k := range c.kws {
				m.put(str(k.name), k.val)
			}
			v = one(value{k: vMap, p: m})
		default:
			v = a.parameter(fn, p, c, &pos, i)
		}
		a.setIn(f, p.Name, v)
	}
}

func (a *analysis) parameter(fn *function, p *syntax.Param, c *call, pos *int, i int) set {
	if p.Kind != syntax.KwOnly {
		n := *pos
		*pos++
		if n < len(c.args) {
			return c.args[n]
		}
	}
	for _, k := range c.kws {
		if k.name == p.Name {
			return k.val
		}
	}
	v, has := fn.defaults[p.Name]
	if !has {
		v = set{unk: true}
	}
	if c.unknownArgs || c.unknownKws {
		v = join(v, fn.info.all[p.Name])
		v.unk = true
		if i == 0 && fn.owner != nil && len(v.vs) == 0 {
			v = a.selfOf(fn)
		}
	}
	return v
}

// selfOf is the first parameter of a method that nobody was seen to call.
func (a *analysis) selfOf(fn *function) set {
	switch {
	case fn.bound == 's':
		return unknown
	case fn.bound == 'c' || fn.name == "__class_getitem__" || fn.name == "__init_subclass__" || fn.name == "__new__":
		return one(value{k: vClass, p: fn.owner})
	}
	return fn.owner.object()
}

// callUnknown reads a call of something that is not known: methods of
// unknown objects by their names, and functions handed over, which may be
// called with what was handed over beside them.
func (a *analysis) callUnknown(x *syntax.Call, callee set, c *call) set {
	a.callbacks(c)
	if at, ok := x.Func.(*syntax.Attribute); ok {
		if in, ok := at.X.(*syntax.Attribute); ok && in.Name == "__annotations__" {
			for _, s := range c.all() {
				a.annotate(s, 0)
			}
		}
		if e, ok := table().entries["?."+at.Name]; ok {
			return a.actions(e, "?."+at.Name, c).with(callee)
		}
	}
	return result(c.all()...).with(callee)
}

// callbacks calls functions among the arguments.
func (a *analysis) callbacks(c *call) {
	for i, s := range c.args {
		a.callback(s, c, c.args[i+1:])
	}
	for _, k := range c.kws {
		if k.name != "env" {
			a.callback(k.val, c, nil)
		}
	}
}

func (a *analysis) callback(s set, c *call, rest []set) {
	for _, v := range s.vs {
		if v.k != vFunc && v.k != vMethod && v.k != vPartial && !(v.k == vSym && table().has(v.s)) {
			continue
		}
		d := &call{args: rest}
		if args, ok := c.arg(-1, "args"); ok {
			if q, ok := a.concrete(args); ok {
				d.args = q.items
			}
		}
		if len(d.args) == 0 {
			d.unknownArgs, d.unknownKws = true, true
		}
		a.applyOne(v, d)
		for _, r := range rest {
			q, ok := a.concrete(r)
			if rv, one := r.single(); !ok || one && rv.k != vSeq {
				continue
			}
			for _, it := range q.items[:min(len(q.items), 64)] {
				a.applyOne(v, &call{args: []set{it}})
			}
		}
	}
}
