package python

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// harmlessCode: fields of a code object that only describe it.
func harmlessCode(name string) bool {
	switch name {
	case "co_name", "co_qualname", "co_filename", "co_firstlineno", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount",
		"co_varnames", "co_flags", "co_nlocals", "co_freevars", "co_cellvars":
		return true
	}
	return false
}

// attribute is s.name.
func (a *analysis) attribute(s set, name string) set {
	if why, ok := table().reflect[name]; ok && !a.ownClass(s, name) {
		a.reflection(name, why)
	}
	a.steps += len(s.vs)
	out := set{t: s.t, src: s.src}
	for _, v := range s.vs {
		out = join(out, a.attrOf(v, name))
	}
	if s.unk || len(s.vs) == 0 {
		out = join(out, a.unknownAttr(s, name))
	}
	return out
}

// ownClass: listing the subclasses of a class of one's own is no walk through
// the interpreter.
func (a *analysis) ownClass(s set, name string) bool {
	if name != "__subclasses__" || s.unk && len(s.vs) == 0 {
		return false
	}
	for _, v := range s.vs {
		if v.k != vClass {
			return false
		}
	}
	return true
}

func (a *analysis) unknownAttr(s set, name string) set {
	out := tainted(s)
	switch name {
	case "os", "subprocess", "builtins", "__builtins__":
		out = join(out, sym(strings.Trim(name, "_")))
	}
	if f, ok := a.fields[name]; ok {
		out = join(out, f)
	}
	return out
}

func (a *analysis) attrOf(v value, name string) set {
	switch v.k {
	case vSym:
		return a.symAttr(v, name)
	case vStr:
		return one(value{k: vSym, s: "str." + name, p: v})
	case vBytes:
		return one(value{k: vSym, s: "bytes." + name, p: v})
	case vSeq:
		return one(value{k: vSym, s: "list." + name, p: v})
	case vMap:
		return one(value{k: vSym, s: "dict." + name, p: v})
	case vInt, vBig, vBool:
		return one(value{k: vSym, s: "int." + name, p: v})
	case vPath:
		return a.pathAttr(v, name)
	case vDict:
		return one(value{k: vSym, s: "namespace." + name, p: v})
	case vInst:
		return a.instAttr(v, name)
	case vFunc:
		if name == "__call__" || name == "__wrapped__" || name == "__func__" || name == "__get__" {
			return one(v)
		}
	case vClass:
		return a.ofClass(v, name)
	case vObj:
		return a.ofObject(v, name)
	case vMethod:
		if name == "__func__" {
			return one(value{k: vFunc, p: v.p.(*method).fn})
		}
		if name == "__call__" {
			return one(v)
		}
	case vPartial:
		p := v.p.(*partial)
		switch name {
		case "func":
			return p.fn
		case "__call__":
			return one(v)
		}
	}
	return a.unknownAttr(unknown, name)
}

func (a *analysis) symAttr(v value, name string) set {
	switch name {
	case "__call__", "__func__", "__wrapped__":
		return one(v)
	case "__dict__":
		a.dump(one(v), "taken as a whole")
		return one(value{k: vDict, s: v.s})
	case "__name__", "__qualname__":
		return str(v.s[strings.LastIndexByte(v.s, '.')+1:])
	case "__getattribute__", "__getattr__":
		if v.s == "builtins.object" || v.s == "builtins.type" || v.s == "types.ModuleType" {
			return sym("builtins.getattr")
		}
		return one(value{k: vPartial, p: &partial{fn: sym("builtins.getattr"), args: []set{one(v)}}})
	case "__self__":
		if i := strings.LastIndexByte(v.s, '.'); v.p == nil && i > 0 && table().dangerous(v.s[:i]) {
			a.reflection(name, "the module of a builtin function")
			return sym(v.s[:i])
		}
	case "__class__", "__doc__", "__module__", "__file__", "__version__":
		return unknown
	}
	if v.p != nil {
		if r, ok := v.p.(value); ok && name == "__self__" {
			return one(r)
		}
		return tainted(receiverTaint(v))
	}
	return a.moduleAttr(v.s, name)
}

// receiverTaint is where the content of a bound method's object comes from.
func receiverTaint(v value) set {
	if r, ok := v.p.(value); ok {
		if in, ok := r.p.(*instance); ok && r.k == vInst {
			return set{t: in.t, src: in.src}
		}
	}
	return set{}
}

// maxName is how long a dotted name may be; those of the table are shorter.
const maxName = 100

// moduleAttr is module.name: a constant, or a symbol.
func (a *analysis) moduleAttr(module, name string) set {
	if len(module)+len(name) > maxName {
		return unknown // a chain that a loop makes longer and longer
	}
	q := canonical(module + "." + name)
	if c, ok := table().consts[q]; ok {
		return c
	}
	switch q {
	case "sys.argv":
		if len(a.env.Argv) > 0 {
			items := make([]set, len(a.env.Argv))
			for i, s := range a.env.Argv {
				items[i] = str(s)
			}
			return seq('[', items...)
		}
	case "sys.executable":
		return str("python3")
	}
	if e, ok := table().lookup(q); ok && e.property {
		return a.actions(e, q, &call{})
	}
	return sym(q)
}

func (a *analysis) instAttr(v value, name string) set {
	q := v.s + "." + name
	e, ok := table().lookup(q)
	if ok && e.property {
		return a.actions(e, q, &call{recv: v})
	}
	if ok {
		return one(value{k: vSym, s: q, p: v})
	}
	if in, isInst := v.p.(*instance); isInst && (in.t != 0 || len(in.src) > 0) {
		return one(value{k: vSym, s: q, p: v}).with(set{t: in.t, src: in.src})
	}
	if f, ok := a.fields[name]; ok {
		return join(one(value{k: vSym, s: q, p: v}), f)
	}
	return one(value{k: vSym, s: q, p: v})
}

func (a *analysis) ofClass(v value, name string) set {
	c := v.p.(*class)
	switch name {
	case "__name__", "__qualname__":
		return str(c.name)
	case "__dict__", "__doc__", "__module__", "__mro__":
		return unknown
	}
	if s, ok := a.classAttr(c, name, map[*class]bool{}); ok {
		return a.bindTo(s, one(v), true)
	}
	return a.unknownAttr(unknown, name)
}

func (a *analysis) ofObject(v value, name string) set {
	c := v.p.(*object).class
	switch name {
	case "__class__":
		return one(value{k: vClass, p: c})
	case "__dict__", "__doc__":
		return unknown
	}
	s, ok := a.classAttr(c, name, map[*class]bool{})
	if !ok {
		if get, ok := a.classAttr(c, "__getattr__", map[*class]bool{}); ok {
			return a.apply(a.bindTo(get, one(v), false), &call{args: []set{str(name)}})
		}
		return a.unknownAttr(unknown, name)
	}
	return a.bindTo(s, one(v), false)
}

// bindTo makes methods of the functions in s.
func (a *analysis) bindTo(s, self set, onClass bool) set {
	out := set{unk: s.unk, t: s.t, src: s.src}
	for _, v := range s.vs {
		if v.k != vFunc {
			if v.k == vSym && v.p == nil {
				if e, ok := table().lookup(v.s); ok && e.property {
					out = join(out, a.actions(e, v.s, &call{}))
					continue
				}
			}
			out = join(out, one(v))
			continue
		}
		fn := v.p.(*function)
		switch {
		case fn.bound == 's', fn.owner == nil, onClass && fn.bound == 0:
			out = join(out, one(v))
		case fn.bound == 'p' && !onClass:
			out = join(out, a.invoke(fn, &call{args: []set{self}}))
		default:
			out = join(out, fn.method(self))
		}
	}
	return out
}

// method is the function with its first argument; one for each object.
func (fn *function) method(self set) set {
	v, ok := self.single()
	if !ok {
		return one(value{k: vMethod, p: &method{fn: fn, self: self}})
	}
	if m, ok := fn.methods[v]; ok {
		return one(value{k: vMethod, p: m})
	}
	if fn.methods == nil {
		fn.methods = map[value]*method{}
	}
	m := &method{fn: fn, self: self}
	fn.methods[v] = m
	return one(value{k: vMethod, p: m})
}

// classAttr looks a name up in a class and its bases.
func (a *analysis) classAttr(c *class, name string, seen map[*class]bool) (set, bool) {
	if seen[c] || len(seen) > 50 {
		return set{}, false
	}
	seen[c] = true
	out, found := c.fields[name]
	if s, ok := c.frame.cur[name]; ok {
		out, found = join(out, s), true
	}
	if found {
		return out, true
	}
	for _, b := range c.bases {
		for _, v := range b.vs {
			switch v.k {
			case vClass:
				if s, ok := a.classAttr(v.p.(*class), name, seen); ok {
					return s, true
				}
			case vSym:
				if _, ok := table().lookup(v.s + "." + name); ok {
					return one(value{k: vSym, s: v.s + "." + name, p: value{k: vInst, s: v.s, p: &instance{}}}), true
				}
			}
		}
	}
	return set{}, false
}

// setAttribute is s.name = v.
func (a *analysis) setAttribute(s set, name string, v set) {
	if why, ok := table().reflect[name]; ok && name != "__builtins__" {
		a.reflection(name, "assigned to; "+why)
	}
	known := false
	for _, o := range s.vs {
		switch o.k {
		case vObj:
			c := o.p.(*object).class
			a.setField(c, name, v)
			known = true
		case vClass:
			a.setField(o.p.(*class), name, v)
			known = true
		case vSym:
			if e, ok := table().lookup("set " + canonical(o.s+"."+name)); ok && o.p == nil {
				a.actions(e, o.s+"."+name, &call{args: []set{v}})
			}
			known = true
		case vInst:
			if e, ok := table().lookup("set " + o.s + "." + name); ok {
				a.actions(e, o.s+"."+name, &call{recv: o, args: []set{v}})
			}
		}
	}
	if name == "__annotations__" {
		a.annotate(v, 0)
	}
	if name == "__doc__" && v.unk {
		a.facts.docstrings = append(a.facts.docstrings, ">>> exec(unknown)")
	}
	for _, d := range v.strings() {
		if name == "__doc__" {
			a.facts.docstrings = append(a.facts.docstrings, d)
		}
	}
	if (!known || s.unk) && len(v.vs) > 0 {
		a.fields[name] = join(a.fields[name], v)
	}
}

func (a *analysis) setField(c *class, name string, v set) {
	old := c.fields[name]
	s := join(old, v)
	if len(s.vs) > len(old.vs) && len(old.vs) < maxValues {
		a.grew = true
	}
	c.fields[name] = s
}

// annotate notes the texts in a dict of annotations, or one of them.
func (a *analysis) annotate(v set, depth int) {
	if depth > 4 || len(a.facts.annotations) > maxHints {
		return
	}
	a.facts.annotations = append(a.facts.annotations, v.strings()...)
	a.facts.blindHint = a.facts.blindHint || v.unk && v.t&decoded != 0
	for _, m := range v.vs {
		switch m.k {
		case vMap:
			for _, s := range m.p.(*mapping).vals {
				a.annotate(s, depth+1)
			}
		case vSeq:
			for _, s := range m.p.(*sequence).items {
				a.annotate(s, depth+1)
			}
		}
	}
}

// index is s[i].
func (a *analysis) index(s, i set) set {
	out := set{t: s.t, src: s.src}
	for _, v := range s.vs {
		out = join(out, a.indexOf(v, i, s))
	}
	if s.unk || len(s.vs) == 0 {
		out = join(out, tainted(s))
	}
	return out
}

func (a *analysis) indexOf(v value, i, all set) set {
	switch v.k {
	case vSeq, vStr, vBytes:
		return indexSequence(v, i).with(all)
	case vMap:
		return v.p.(*mapping).get(i)
	case vDict:
		return a.member(v, i)
	case vSym:
		switch v.s {
		case "os.environ", "os.environb":
			was := a.sym
			a.sym = v.s
			out := a.readEnv(i)
			a.sym = was
			return out
		case "sys.modules":
			return a.moduleNamed(i)
		case "sys.argv":
			return unknown
		}
		if _, ok := table().lookup(v.s); ok {
			return one(v)
		}
	case vClass:
		if m, ok := a.classAttr(v.p.(*class), "__class_getitem__", map[*class]bool{}); ok {
			return a.apply(a.bindClassmethod(m, v), &call{args: []set{i}})
		}
		return one(v)
	case vObj:
		if m, ok := a.classAttr(v.p.(*object).class, "__getitem__", map[*class]bool{}); ok {
			return a.apply(a.bindTo(m, one(v), false), &call{args: []set{i}})
		}
	case vInst:
		if e, ok := table().lookup(v.s + ".__getitem__"); ok {
			return a.actions(e, v.s, &call{recv: v, args: []set{i}})
		}
		if in, ok := v.p.(*instance); ok {
			return set{unk: true, t: in.t, src: in.src}
		}
	}
	return unknown
}

// bindClassmethod: __class_getitem__ and __init_subclass__ are class methods
// without saying so.
func (a *analysis) bindClassmethod(m set, cls value) set {
	out := set{unk: m.unk}
	for _, v := range m.vs {
		if v.k == vFunc {
			v = value{k: vMethod, p: &method{fn: v.p.(*function), self: one(cls)}}
		}
		out = join(out, one(v))
	}
	return out
}

// member is a name looked up in a module's or the code's own name space.
func (a *analysis) member(d value, key set) set {
	names := key.strings()
	if key.t&decoded != 0 && key.unk || d.s != "" && key.unk && table().dangerous(d.s) || d.s == "" && key.unk {
		a.opaque("looks up a computed name in "+namespaceName(d), origin(key), true)
	}
	out := set{unk: key.unk || len(names) == 0}
	for _, n := range names {
		if d.s != "" {
			out = join(out, a.moduleAttr(d.s, n))
			continue
		}
		if why, ok := table().reflect[n]; ok {
			a.reflection(n, why)
		}
		out = join(out, a.lookup(n))
	}
	return out
}

func namespaceName(d value) string {
	if d.s == "" {
		return "the code's own name space"
	}
	return "the name space of " + d.s
}

// namespace: all of a module's name space is taken, so any name in it.
func (a *analysis) namespace(d value, how string) {
	if d.s != "" && table().dangerous(d.s) {
		a.opaque("the name space of "+d.s+" is "+how, cordon.OriginLiteral, true)
	}
}

// moduleNamed is what importing a computed name gives.
func (a *analysis) moduleNamed(name set) set {
	out := set{}
	for _, n := range name.strings() {
		out = join(out, sym(canonical(n)))
	}
	if v, ok := name.single(); ok && v.k == vStr && v.s == "__main__" {
		return unknown
	}
	if a.withinPackage(name) {
		return unknown
	}
	if name.unk || len(out.vs) == 0 {
		a.opaque(computedImport, origin(name), true)
		out.unk = true
	}
	return out
}

// withinPackage: only modules of one package can be meant, which is how a
// program loads its own plugins; but not one that it has just written.
func (a *analysis) withinPackage(name set) bool {
	if name.unk || len(name.vs) == 0 || name.t&(decoded|network) != 0 {
		return false
	}
	for _, v := range name.vs {
		if v.k != vStr || !hasHole(v.s) {
			return false
		}
		pkg, _, _ := strings.Cut(v.s[:strings.Index(v.s, hole)], ".")
		if pkg == "" || !strings.Contains(v.s[:strings.Index(v.s, hole)], ".") || table().dangerous(canonical(pkg)) || pkg == "multiprocessing" {
			return pkg == "" && strings.HasPrefix(v.s, ".")
		}
	}
	for f := range a.facts.written {
		if strings.HasSuffix(f, ".py") || strings.HasSuffix(f, ".so") || hasHole(f) {
			return false
		}
	}
	return true
}

// origin is where code or names come from, by what they are made of.
func origin(s set) cordon.Origin {
	switch {
	case s.t&network != 0:
		return cordon.OriginNetwork
	case s.t&file != 0 && len(s.vs) == 0:
		return cordon.OriginFile
	case s.t&decoded != 0:
		return cordon.OriginDecoded
	case s.t&file != 0:
		return cordon.OriginFile
	case s.unk || len(s.vs) == 0:
		return cordon.OriginUnknown
	}
	return cordon.OriginLiteral
}

// setItem is s[i] = v.
func (a *analysis) setItem(s, i, v set) {
	for _, o := range s.vs {
		switch o.k {
		case vSym:
			switch o.s {
			case "os.environ", "os.environb":
				a.setEnv(i, v)
			case "sys.modules":
				if !moduleItself(i) {
					a.opaque("replaces a module in sys.modules", cordon.OriginLiteral, true)
				}
			}
		case vSeq:
			q := o.p.(*sequence)
			n, ok := i.single()
			if ok && n.k == vInt && n.n >= 0 && n.n < int64(len(q.items)) {
				items := slices.Clone(q.items)
				if a.maybe > q.born {
					v = join(items[n.n], v)
				}
				items[n.n] = v
				q.items = items
			} else if q.fuzzy = true; len(q.items) < maxItems {
				q.items = append(q.items, v)
				q.settle()
			}
		case vMap:
			m := o.p.(*mapping)
			if a.maybe > 0 {
				v = join(v, m.get(i))
			}
			m.put(i, v)
		case vDict:
			for _, n := range i.strings() {
				if o.s == "" {
					a.assign(n, v)
				}
			}
		}
	}
}

// moduleItself: sys.modules[__name__] = … replaces the module by itself.
func moduleItself(i set) bool {
	v, ok := i.single()
	return ok && v.k == vStr && v.s == "__main__"
}
