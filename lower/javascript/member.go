package javascript

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tdewolff/parse/v2/js"

	"github.com/cordon-sandbox/cordon"
)

// member is x.name.
func (a *analysis) member(x set, name string) set {
	var out set
	nothing := 0
	for _, v := range x.vs {
		if v.k == vUndef || v.k == vNull {
			nothing++
			continue
		}
		out = join(out, a.memberOf(v, name))
	}
	if x.unk || nothing == len(x.vs) {
		out = join(out, a.unknownMember(name))
	}
	return out.with(set{src: x.src, t: x.t &^ decoded})
}

// unknownMember is a member of something that is not known: a name that only
// one interface has stands for that.
func (a *analysis) unknownMember(name string) set {
	if name == "constructor" {
		return set{vs: []value{{k: vSym, s: "Constructor"}}, unk: true}
	}
	if to, ok := tables().anywhere(name); ok {
		return set{vs: []value{{k: vSym, s: to}}, unk: true}
	}
	return unknown
}

func (a *analysis) memberOf(v value, name string) set {
	a.charge(16)
	s := a.originalMember(v, name)
	if len(a.patched) == 0 {
		return s
	}
	if v.k == vSym {
		return join(s, a.patched[v.s+"."+name])
	}
	if len(s.vs) == 1 && s.vs[0].k == vMethod || len(s.vs) == 0 {
		return join(s, a.patched["."+name])
	}
	return s
}

// originalMember is a member as the language has it.
func (a *analysis) originalMember(v value, name string) set {
	if name == "__proto__" && v.k != vObject {
		return a.prototypeOf(v)
	}
	switch v.k {
	case vStr, vURL:
		return a.textMember(v, name)
	case vBytes:
		return bytesMember(v, name)
	case vArray:
		return a.arrayMember(v, name)
	case vObject:
		return a.objectMember(v, name)
	case vFunc, vClass, vBound, vMethod:
		return a.functionMember(v, name)
	case vSym:
		return a.symMember(v, name)
	case vRegex:
		if name == "source" {
			return str(v.s)
		}
		if name == "constructor" {
			return sym("RegExp")
		}
	case vNum, vBool:
		if name == "constructor" {
			return sym(map[bool]string{true: "Number", false: "Boolean"}[v.k == vNum])
		}
	}
	return methodValue(v, name)
}

func methodValue(v value, name string) set {
	return one(value{k: vMethod, p: &method{recv: one(v), name: name}})
}

// prototypeOf is Object.getPrototypeOf(v): what is read from it is what is
// read from v, and what is written to it is pollution.
func (a *analysis) prototypeOf(v value) set {
	switch v.k {
	case vStr:
		return sym("String.prototype")
	case vArray:
		return sym("Array.prototype")
	case vFunc, vClass, vBound, vMethod:
		if c, ok := v.p.(*class); ok && len(c.super.vs) > 0 {
			return c.super
		}
		return sym("Function.prototype")
	case vSym:
		switch {
		case strings.HasSuffix(v.s, ".prototype"):
			return sym("Object.prototype")
		case tables().isConstructor(v.s):
			// Array.prototype is Array here: its prototype can be either.
			return join(sym("Function.prototype"), sym("Object.prototype"))
		case tables().callable(v.s):
			return sym("Function.prototype")
		}
		return one(v)
	case vObject:
		o := v.p.(*object)
		if o.null {
			return one(value{k: vNull})
		}
		if o.class != nil {
			return one(value{k: vObject, p: o.class.proto})
		}
		if len(o.proto.vs) > 0 || o.proto.unk {
			return o.proto
		}
		return sym("Object.prototype")
	}
	return unknown
}

func (a *analysis) textMember(v value, name string) set {
	if v.k == vURL {
		if s, ok := urlMember(v.s, name); ok {
			return s
		}
	}
	switch name {
	case "length":
		if hasHole(v.s) {
			return unknown
		}
		return num(float64(length(v.s)))
	case "constructor":
		return sym("String")
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 {
		if hasHole(v.s) {
			return unknown
		}
		if i >= length(v.s) {
			return undefined
		}
		return str(substring(v.s, i, i+1))
	}
	return methodValue(v, name)
}

func bytesMember(v value, name string) set {
	switch name {
	case "length", "byteLength":
		return num(float64(len(v.s)))
	case "buffer":
		return one(v)
	case "constructor":
		return sym("Buffer")
	}
	if i, err := strconv.Atoi(name); err == nil {
		if i >= 0 && i < len(v.s) {
			return num(float64(v.s[i]))
		}
		return undefined
	}
	return methodValue(v, name)
}

func (a *analysis) arrayMember(v value, name string) set {
	r := v.p.(*array)
	if s, ok := r.props[name]; ok {
		return s
	}
	switch name {
	case "length":
		if r.fuzzy {
			return unknown
		}
		return num(float64(len(r.items)))
	case "constructor":
		return sym("Array")
	}
	if i, err := strconv.Atoi(name); err == nil {
		return r.at(i)
	}
	return methodValue(v, name)
}

func (a *analysis) objectMember(v value, name string) set {
	o := v.p.(*object)
	if p, ok := o.props[name]; ok {
		s := a.property(one(v), p)
		if o.open {
			s = join(s, o.rest)
		}
		return s
	}
	if name == "__proto__" {
		return a.prototypeOf(v)
	}
	var out set
	if o.open {
		out = join(o.rest, unknown)
	}
	if o.kind != "" && name != "constructor" {
		if name == "size" {
			return unknown
		}
		return join(out, methodValue(v, name))
	}
	if o.class != nil {
		if s, ok := a.classMember(o.class, o.class.proto, one(v), name); ok {
			return join(out, s)
		}
		if name == "constructor" {
			return join(out, one(value{k: vClass, p: o.class}))
		}
	}
	if len(o.proto.vs) > 0 || o.proto.unk {
		a.nest++
		defer func() { a.nest-- }()
		if a.nest > maxNest {
			return unknown
		}
		return join(out, a.member(o.proto, name))
	}
	switch name {
	case "constructor":
		return join(out, sym("Object"))
	case "hasOwnProperty", "toString", "valueOf", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "next":
		return join(out, methodValue(v, name))
	}
	if o.class != nil && (len(o.class.super.vs) > 0 || o.class.super.unk) {
		return join(out, methodValue(v, name))
	}
	if len(out.vs) == 0 && !out.unk {
		if name == "then" || name == "catch" || name == "finally" {
			return methodValue(v, name)
		}
		return undefined
	}
	return out
}

// property reads a property: an accessor's getter is called.
func (a *analysis) property(this set, p *prop) set {
	if !p.accessor {
		return p.v
	}
	if len(p.get.vs) == 0 {
		return undefined
	}
	return a.invoke(p.get, this, nil, "get")
}

// classMember looks name up in a class's methods or statics and its supers'.
func (a *analysis) classMember(c *class, o *object, this set, name string) (set, bool) {
	for depth := 0; depth < 32; depth++ {
		if p, ok := o.props[name]; ok {
			return a.property(this, p), true
		}
		next, ok := c.super.single()
		if !ok || next.k != vClass {
			if len(c.super.vs) > 0 && name != "constructor" {
				return a.member(c.super, name), true
			}
			return set{}, false
		}
		statics := o == c.statics
		c = next.p.(*class)
		o = c.proto
		if statics {
			o = c.statics
		}
	}
	return unknown, true
}

func (a *analysis) functionMember(v value, name string) set {
	if c, ok := v.p.(*class); ok {
		if s, ok := a.classMember(c, c.statics, one(v), name); ok {
			return s
		}
		if name == "prototype" {
			return one(value{k: vObject, p: c.proto})
		}
	}
	if f, ok := v.p.(*function); ok {
		if f.props != nil {
			if p, ok := f.props.props[name]; ok {
				return a.property(one(v), p)
			}
		}
		switch name {
		case "prototype":
			return one(value{k: vObject, p: f.prototype(a.cond)})
		case "name":
			return str(f.name)
		case "length":
			return num(float64(len(f.params.List)))
		}
	}
	switch name {
	case "constructor":
		return sym("FunctionConstructor")
	case "name", "length":
		return unknown
	}
	return methodValue(v, name)
}

func (f *function) prototype(born int) *object {
	if f.props == nil {
		f.props = newObject(born)
	}
	if p, ok := f.props.props["prototype"]; ok {
		if v, ok := p.v.single(); ok && v.k == vObject {
			return v.p.(*object)
		}
	}
	o := newObject(born)
	f.props.put("prototype", one(value{k: vObject, p: o}))
	return o
}

// symMember is a member of something that the table names.
func (a *analysis) symMember(v value, name string) set {
	switch v.s {
	case "process.env":
		switch name {
		case "hasOwnProperty", "toString":
			return methodValue(v, name)
		case "constructor", "__proto__":
			return sym("Object")
		}
		return a.readEnv(name)
	case "import.meta":
		switch name {
		case "url":
			return one(value{k: vURL, s: "file://" + a.env.Dir + "/" + hole})
		case "dirname", "dir":
			return str(a.env.Dir)
		case "filename", "path", "file":
			return str(a.env.Dir + "/" + hole)
		}
	case "globalThis":
		if tables().has("globalThis", name) {
			break
		}
		if s := a.global(name); len(s.vs) > 0 {
			return s
		}
		if name == "constructor" {
			return sym("Object")
		}
		return unknown
	}
	full := v.s + "." + name
	if len(full) > 160 {
		return unknown
	}
	if e := tables().lookup(full); e != nil {
		switch {
		case e.text != "":
			return str(e.text)
		case len(e.acts) == 1 && e.acts[0].verb == "value":
			return unknown
		case e.alias != "":
			return one(value{k: vSym, s: e.alias, p: v.p})
		}
		return one(value{k: vSym, s: full, p: v.p})
	}
	if v.s == "Reflect" {
		return sym(full)
	}
	switch name {
	case "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "valueOf", "call", "apply", "bind", "then", "catch", "finally", "toString", "pipe", "pipeThrough", "pipeTo":
		return methodValue(v, name)
	case "default", "__proto__", "prototype", "strict":
		return one(v)
	case "constructor":
		if tables().callable(v.s) {
			return sym("FunctionConstructor")
		}
		return sym("Object")
	case "name":
		return unknown
	}
	return one(value{k: vSym, s: full, p: v.p})
}

// readEnv is process.env[name].
func (a *analysis) readEnv(name string) set {
	a.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: name})
	switch name {
	case "*":
		return set{unk: true, src: []string{"$*"}}
	case "HOME", "USERPROFILE":
		if a.env.Home != "" {
			return str(a.env.Home)
		}
	case "USER", "LOGNAME", "USERNAME":
		if a.env.User != "" {
			return str(a.env.User)
		}
	case "PWD", "INIT_CWD":
		return str(a.cwd)
	case "TMPDIR", "TMP", "TEMP":
		return str("/tmp")
	}
	return set{unk: true, src: []string{"$" + name}}
}

// keyTexts are the property names that a set can stand for; unknown, others
// too.
func (a *analysis) keyTexts(key set) (names []string, unk bool) {
	unk = key.unk || len(key.vs) == 0
	for _, v := range key.vs {
		if v.k == vSym {
			if strings.HasPrefix(v.s, "Symbol.") || v.s == "util.inspect.custom" {
				names = append(names, "@@"+v.s)
			} else {
				unk = true
			}
			continue
		}
		t, ok := a.toText(v)
		if !ok || hasHole(t) {
			unk = true
			continue
		}
		names = append(names, t)
	}
	return names, unk
}

// index is x[key].
func (a *analysis) index(x, key set) set {
	names, unk := a.keyTexts(key)
	var out set
	for _, n := range names {
		out = join(out, a.member(x, n))
	}
	if !unk {
		return out
	}
	for _, v := range x.vs {
		out = join(out, a.anyMember(v, key))
	}
	out.unk = true
	return out.with(set{src: x.src, t: x.t})
}

// anyMember is a member of v whose name is not known.
func (a *analysis) anyMember(v value, key set) set {
	switch v.k {
	case vArray:
		a.charge(16 * len(v.p.(*array).items))
		return v.p.(*array).any()
	case vObject:
		// Getters and the methods of classes are left to the end, when they
		// are run for whoever calls them.
		o := v.p.(*object)
		a.charge(16 * len(o.order))
		out := o.rest
		for _, k := range o.order {
			out = join(out, o.props[k].v)
		}
		out.unk = true
		return out
	case vFunc, vClass, vBound, vMethod:
		// Ordinary code keeps things on functions under names and symbols.
		if !isNumeric(key) && (key.t != 0 || len(key.src) > 0) {
			a.opaque("takes a computed member of a function", cordon.OriginUnknown, true)
		}
	case vSym:
		if v.s == "process.env" {
			return a.readEnv("*")
		}
		if tables().lookup(v.s+".?") != nil {
			return set{vs: []value{{k: vSym, s: v.s + ".?", p: v.p}}, unk: true}
		}
		if tables().dangerous(v.s) {
			a.opaque("takes a computed member of "+v.s, cordon.OriginUnknown, v.s != "globalThis")
		}
	}
	return unknown
}

func isNumeric(key set) bool {
	if key.unk {
		return false
	}
	for _, v := range key.vs {
		if v.k != vNum {
			return false
		}
	}
	return true
}

// without is what a rest pattern takes of an object.
func (a *analysis) without(s set, taken []string) set {
	var out set
	out.unk = s.unk
	for _, v := range s.vs {
		switch v.k {
		case vObject:
			from := v.p.(*object)
			o := newObject(a.cond)
			o.open, o.rest = from.open, from.rest
			for _, k := range from.order {
				if !slices.Contains(taken, k) {
					o.put(k, a.property(one(v), from.props[k]))
				}
			}
			out = join(out, one(value{k: vObject, p: o}))
		case vSym:
			a.dump(v)
			out = join(out, one(v))
		default:
			out.unk = true
		}
	}
	return out
}

// keys are the names of x's properties.
func (a *analysis) keys(x set) array {
	v, ok := x.single()
	if !ok {
		for _, v := range x.vs {
			if v.k == vSym {
				a.dumpKeys(v)
			}
		}
		return array{fuzzy: true, rest: unknown}
	}
	switch v.k {
	case vObject:
		o := v.p.(*object)
		r := array{fuzzy: o.open || o.class != nil && len(o.order) == 0 || len(o.proto.vs) > 0}
		for _, k := range o.keys() {
			r.items = append(r.items, str(k))
		}
		if r.fuzzy {
			r.rest = unknown
		}
		return r
	case vArray:
		r := v.p.(*array)
		out := array{fuzzy: r.fuzzy}
		for i := range r.items {
			out.items = append(out.items, str(numberText(float64(i))))
		}
		return out
	case vSym:
		a.dumpKeys(v)
		if strings.HasSuffix(v.s, "rototype") || tables().isConstructor(v.s) {
			// Prototypes of the language all have it.
			return array{fuzzy: true, rest: join(unknown, str("constructor"))}
		}
	}
	return array{fuzzy: true, rest: unknown}
}

// dumpKeys notes that all names of something are taken.
func (a *analysis) dumpKeys(v value) {
	if v.s == "process.env" {
		a.readEnv("*")
	}
}

// dump notes that all of something is taken.
func (a *analysis) dump(v value) {
	switch {
	case v.s == "process.env" || v.s == "process":
		a.readEnv("*")
	case tables().graveModule(v.s) && v.s != "globalThis":
		a.opaque("hands on all of "+v.s, cordon.OriginUnknown, true)
	}
}

// elements are the items that iterating s gives.
func (a *analysis) elements(s set) array {
	a.charge(32)
	v, ok := s.single()
	if ok {
		switch v.k {
		case vArray:
			return *v.p.(*array)
		case vStr:
			if !hasHole(v.s) && len(v.s) <= maxItems {
				var r array
				for _, c := range v.s {
					r.items = append(r.items, str(string(c)))
				}
				return r
			}
		case vBytes:
			if len(v.s) <= maxItems {
				var r array
				for i := 0; i < len(v.s); i++ {
					r.items = append(r.items, num(float64(v.s[i])))
				}
				return r
			}
		case vObject:
			return a.objectElements(v)
		}
	}
	rest := tainted(s)
	for _, v := range s.vs {
		if v.k == vArray {
			rest = join(rest, v.p.(*array).any())
		}
		if v.k == vSym {
			a.dump(v)
		}
	}
	return array{fuzzy: true, rest: rest}
}

func (a *analysis) objectElements(v value) array {
	o := v.p.(*object)
	switch o.kind {
	case "Map":
		r := array{fuzzy: o.open}
		for _, k := range o.order {
			r.items = append(r.items, list(str(k), o.props[k].v))
		}
		if o.open {
			r.rest = list(unknown, join(o.rest, unknown))
		}
		return r
	case "Set":
		r := array{fuzzy: o.open, rest: o.rest}
		for _, k := range o.order {
			r.items = append(r.items, o.props[k].v)
		}
		return r
	}
	if f := a.member(one(v), "@@Symbol.iterator"); len(f.vs) > 0 && f.vs[0].k == vFunc {
		if r, ok := a.invoke(f, one(v), nil, "iterator").single(); ok && r.k == vArray {
			return *r.p.(*array)
		}
	}
	return array{fuzzy: true, rest: join(o.rest, unknown)}
}

// items are the elements of s as a pattern takes them.
func (a *analysis) items(s set) array { return a.elements(s) }

// closure makes a function of the code.
func (a *analysis) closure(name *js.Var, p *js.Params, body *js.BlockStmt, gen bool) set {
	f := &function{params: p, body: body, frame: a.frame, with: a.with, gen: gen}
	if name != nil {
		f.name = identifier(name.Data)
	}
	a.functions = append(a.functions, f)
	return one(value{k: vFunc, p: f})
}

func (a *analysis) arrowFunc(e *js.ArrowFunc) set {
	s := a.closure(nil, &e.Params, &e.Body, false)
	s.vs[0].p.(*function).arrow = true
	return s
}

func (a *analysis) funcExpr(e *js.FuncDecl) set {
	if e.Name == nil {
		return a.closure(nil, &e.Params, &e.Body, e.Generator)
	}
	outer := a.frame
	a.frame = &frame{parent: outer, vars: map[*js.Var]*set{}, base: a.cond, this: outer.this, fn: outer.fn, args: outer.args, home: outer.home}
	s := a.closure(e.Name, &e.Params, &e.Body, e.Generator)
	a.frame.vars[resolve(e.Name)] = &s
	a.frame = outer
	return s
}
