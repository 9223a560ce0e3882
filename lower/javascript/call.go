package javascript

import (
	"github.com/tdewolff/parse/v2/js"

	"github.com/cordon-sandbox/cordon"
)

// maxCalls is how deep calls of the code's own functions are followed.
const maxCalls = 60

// invoke calls every value that fn can be.
func (a *analysis) invoke(fn, this set, args []set, name string) set {
	var out set
	for _, v := range fn.vs {
		out = join(out, a.callValue(v, this, args))
	}
	if fn.unk || len(fn.vs) == 0 {
		out = join(out, a.callUnknown(this, args, name))
	}
	return out
}

// callUnknown calls something that is not known: what it gets, it may use.
func (a *analysis) callUnknown(this set, args []set, name string) set {
	a.pathPollution(args)
	if !a.mocks(name, args) {
		a.escapeAll(args)
	}
	out := tainted(append([]set{this}, args...)...)
	if this.t&network == 0 {
		out.t &^= network
	}
	return out
}

// mocks is whether a call is a test library's replacement of one member of the
// process or the global object, which hands on that member and not the rest.
func (a *analysis) mocks(name string, args []set) bool {
	switch name {
	case "spyOn", "stub", "method", "replace", "replaceProperty", "spy":
	default:
		return false
	}
	v, ok := arg(args, 0).single()
	member, known := arg(args, 1).text()
	if !ok || !known || v.k != vSym || v.s != "process" && v.s != "globalThis" || member == "env" {
		return false
	}
	old := a.member(args[0], member)
	for _, w := range old.vs {
		switch w.s {
		case "process", "process.env", "require", "globalThis":
			return false
		}
	}
	a.mention(old)
	a.escapeAll(args[2:])
	return true
}

// constructorCall calls the constructor of something that is not known, which
// makes a function of a text if that something is a function. With new it is
// the ordinary way to make another of a kind.
func (a *analysis) constructorCall(args []set, made bool) set {
	if !made && len(args) > 0 {
		if text, ok := args[len(args)-1].text(); !ok || readsAsCode(text) {
			a.opaque("may make a function of text", cordon.OriginUnknown, true)
		}
	}
	a.escapeAll(args)
	return unknown
}

// readsAsCode is whether a text could be meant as the body of a function.
func readsAsCode(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(', '.', '=', '`', '[', ' ':
			return true
		}
	}
	return false
}

// callValue calls one value.
func (a *analysis) callValue(v value, this set, args []set) set {
	if !a.tick() {
		return unknown
	}
	a.nest++
	defer func() { a.nest-- }()
	if a.nest > maxNest {
		a.limit("JavaScript nested too deep")
		return unknown
	}
	switch v.k {
	case vFunc:
		return a.runFunction(v.p.(*function), this, args, false)
	case vClass:
		return a.makeInstance(v.p.(*class), args)
	case vBound:
		b := v.p.(*bound)
		all := append(append([]set(nil), b.args...), args...)
		return a.invoke(b.fn, b.this, all, "")
	case vMethod:
		m := v.p.(*method)
		if len(this.vs) == 0 && !this.unk {
			this = m.recv
		}
		return a.callMethod(m, this, args)
	case vSym:
		return a.callSym(v, this, args, false)
	}
	a.escapeAll(args)
	return unknown
}

// runFunction runs a function of the code for one call. stranger: nobody was
// seen to call it, so its arguments can be anything.
func (a *analysis) runFunction(f *function, this set, args []set, stranger bool) set {
	ran := a.ran[f.body]
	at, active := a.running[f.body]
	if a.calls >= maxCalls || a.nest > maxNest || a.stopped || ran && a.inline > maxInline || active && a.cond >= at {
		a.escapeAll(args)
		return unknown
	}
	a.ran[f.body] = true
	a.running[f.body] = a.cond + 1
	a.calls++
	if ran {
		a.replay++
	}
	outer, with, uncertain := a.frame, a.with, a.uncertain
	if len(this.vs) == 0 && !this.unk {
		this = sym("globalThis")
	}
	fr := &frame{parent: f.frame, vars: make(map[*js.Var]*set, 8), base: a.cond, this: this, fn: f, home: f.home,
		args: one(value{k: vArray, p: &array{items: args, fuzzy: stranger, born: a.cond}})}
	if f.gen {
		fr.yields = true
		fr.ret = one(value{k: vArray, p: &array{born: a.cond}})
	}
	a.frame, a.with = fr, f.with
	a.params(f.params, args, stranger)
	a.uncertain = false
	c := a.block(f.body.List)
	a.frame, a.with, a.uncertain = outer, with, uncertain
	if ran {
		a.replay--
	}
	a.calls--
	if active {
		a.running[f.body] = at
	} else {
		delete(a.running, f.body)
	}
	if f.gen {
		return one(fr.ret.vs[0])
	}
	if c.kind != returns && c.kind != throws {
		return join(fr.ret, undefined)
	}
	return fr.ret
}

func (a *analysis) params(p *js.Params, args []set, stranger bool) {
	for i, b := range p.List {
		v := undefined
		switch {
		case i < len(args):
			v = args[i]
		case stranger:
			v = unknown
		}
		a.bindElement(b, v)
	}
	if p.Rest != nil {
		r := array{items: args, fuzzy: stranger}
		a.bind(p.Rest, r.from(len(p.List), a.cond))
	}
}

// construct is new fn(args).
func (a *analysis) construct(fn set, args []set) set {
	var out set
	for _, v := range fn.vs {
		switch v.k {
		case vClass:
			out = join(out, a.makeInstance(v.p.(*class), args))
		case vFunc:
			f := v.p.(*function)
			o := newObject(a.cond)
			this := one(value{k: vObject, p: o})
			if f.props != nil {
				o.proto = one(value{k: vObject, p: f.prototype(a.cond)})
			}
			r := a.runFunction(f, this, args, false)
			for _, w := range r.vs {
				if w.k >= vArray {
					out = join(out, one(w))
				}
			}
			out = join(out, this)
		case vBound:
			b := v.p.(*bound)
			out = join(out, a.construct(b.fn, append(append([]set(nil), b.args...), args...)))
		case vSym:
			out = join(out, a.callSym(v, set{}, args, true))
		default:
			a.escapeAll(args)
			out.unk = true
		}
	}
	if fn.unk || len(fn.vs) == 0 {
		out = join(out, a.callUnknown(set{}, args, ""))
	}
	return out
}

// callBack calls a function that the code handed to something known, now.
func (a *analysis) callBack(fn set, args ...set) set {
	return a.invoke(fn, set{}, args, "")
}

func (a *analysis) escapeAll(args []set) {
	for _, s := range args {
		a.escape(s, unknown)
	}
}

// escape hands a value to code that is not known: functions in it may be
// called (with arg), objects in it changed, and what could do harm counts as
// used.
func (a *analysis) escape(s, arg set) {
	for _, v := range s.vs {
		a.escapeValue(v, arg)
	}
}

func (a *analysis) escapeValue(v value, arg set) {
	if v.k < vArray {
		return
	}
	if v.k == vSym {
		a.handOn(v)
		return
	}
	if a.escaped[v.p] {
		if o, ok := v.p.(*object); ok {
			o.open = true
		}
		return
	}
	a.escaped[v.p] = true
	a.nest++
	defer func() { a.nest-- }()
	if a.nest > maxNest {
		return
	}
	switch p := v.p.(type) {
	case *function:
		a.later = append(a.later, deferred{v, []set{arg, arg, arg, arg}})
		outer := a.frame
		a.frame = p.frame
		a.havoc(p.body)
		a.frame = outer
	case *array:
		for _, s := range p.items {
			a.escape(s, arg)
		}
		a.escape(p.rest, arg)
	case *object:
		for _, k := range p.order {
			q := p.props[k]
			a.escape(q.v, arg)
			a.escape(q.get, arg)
			a.escape(q.set, arg)
		}
		a.escape(p.rest, arg)
		p.open = true
	case *bound:
		if grave(p.fn) {
			a.invoke(p.fn, p.this, append(append([]set(nil), p.args...), arg), "")
			return
		}
		a.escape(p.fn, arg)
		a.escapeAll(p.args)
	case *method:
		a.escape(p.recv, arg)
	}
}

func grave(s set) bool {
	for _, v := range s.vs {
		if v.k == vSym && tables().grave(v.s) {
			return true
		}
	}
	return false
}

// mention notes values that are taken without being called.
func (a *analysis) mention(s set) {
	for _, v := range s.vs {
		switch v.k {
		case vSym:
			// A constructor that is kept is compared more often than called;
			// its calls are followed.
			if tables().grave(v.s) && v.s != "FunctionConstructor" {
				a.handOn(v)
			}
		case vMethod:
			if m := v.p.(*method); grave(m.recv) {
				a.mention(m.recv)
			}
		}
	}
}

// handOn notes that something the table names goes where it is not followed.
func (a *analysis) handOn(v value) {
	outer := a.sym
	a.sym = v.s
	defer func() { a.sym = outer }()
	e := tables().find(v.s)
	switch {
	case v.s == "process.env":
		a.readEnv("*")
	case v.s == "process":
		a.doubt++
		a.readEnv("*")
		a.doubt--
	case tables().grave(v.s):
		a.use(v, e, unknown, []set{unknown, unknown, unknown}, false)
	case tables().graveModule(v.s):
		a.opaque("hands on "+v.s, cordon.OriginUnknown, true)
	case v.s == "require" || v.s == "import" || v.s == "globalThis":
		a.opaque("hands on "+v.s, cordon.OriginUnknown, true)
	case e != nil && e.connects():
		a.doubt++
		a.use(v, e, unknown, []set{unknown, unknown}, false)
		a.doubt--
	}
}
