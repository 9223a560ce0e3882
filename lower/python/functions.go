package python

import (
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// callSym calls a function of the interpreter or a module.
func (a *analysis) callSym(v value, c *call) set {
	was := a.sym
	a.sym = v.s
	defer func() { a.sym = was }()
	if r, ok := v.p.(value); ok {
		d := *c
		d.recv = r
		c = &d
		a.steps += len(r.s) / 64
		if s, ok := a.method(v.s, c); ok {
			return s
		}
	} else if s, ok := a.unboundMethod(v.s, c); ok {
		return s
	}
	if f, ok := specials()[v.s]; ok {
		return f(a, c)
	}
	if f, ok := decoders()[v.s]; ok {
		if s, ok := decode(f, v.s, c); ok {
			return s
		}
	}
	if f, ok := pures()[v.s]; ok {
		s, ok := f(a, c)
		if ok {
			return s
		}
		out := tainted(c.all()...)
		if decodes(v.s) {
			out.t |= decoded
		}
		return out
	}
	if e, ok := table().lookup(v.s); ok {
		if c.recv.k == vNone && len(c.args) > 0 && e.takesSelf() {
			return a.throughClass(v.s, c) // Path.read_text(p) is p.read_text()
		}
		return a.actions(e, v.s, c)
	}
	if !typeArguments(v.s) {
		a.callbacks(c)
	}
	if e, ok := table().entries["?"+v.s[max(0, strings.LastIndexByte(v.s, '.')):]]; ok && v.p == nil && len(e.acts) > 0 && e.acts[0].verb == "opaque" {
		return a.actions(e, v.s, c)
	}
	return result(c.all()...).with(receiverTaint(v))
}

// throughClass calls a method with its object as the first argument.
func (a *analysis) throughClass(name string, c *call) set {
	d := *c
	d.args = c.args[1:]
	return a.apply(a.attribute(c.args[0], name[strings.LastIndexByte(name, '.')+1:]), &d)
}

// decodes: an unknown result of these is decoded text.
func decodes(name string) bool {
	switch name {
	case "builtins.chr", "builtins.bytes", "builtins.bytearray", "builtins.reversed", "codecs.decode", "codecs.encode":
		return true
	}
	return false
}

// keepsEnv: functions that take the environment without giving it away.
func keepsEnv(name string) bool {
	switch name {
	case "builtins.len", "builtins.id", "builtins.type", "builtins.isinstance", "builtins.bool", "builtins.hasattr",
		"builtins.getattr", "unittest.mock.patch.dict", "copy.copy", "copy.deepcopy":
		return true
	}
	return strings.HasPrefix(name, "os.environ.") || strings.HasPrefix(name, "subprocess.") || name == "str.format_map" || name == "string.Template.substitute" || name == "string.Template.safe_substitute"
}

// operatorMethods are the methods under the operators.
var operatorMethods = sync.OnceValue(func() map[string]syntax.Kind {
	return map[string]syntax.Kind{
		"__add__": syntax.Plus, "__iadd__": syntax.Plus, "__mul__": syntax.Star, "__mod__": syntax.Percent, "__xor__": syntax.Caret,
		"__truediv__": syntax.Slash, "__sub__": syntax.Minus, "__or__": syntax.Pipe, "__and__": syntax.Amp,
	}
})

// method folds methods of constants.
func (a *analysis) method(name string, c *call) (set, bool) {
	typ, m, _ := strings.Cut(name, ".")
	if op, ok := operatorMethods()[name[strings.LastIndexByte(name, '.')+1:]]; ok && len(c.args) == 1 && c.recv.k <= vMap {
		return a.binary(op, one(c.recv), c.args[0]), true
	}
	if m == "__getitem__" && len(c.args) == 1 && c.recv.k <= vMap {
		return a.index(one(c.recv), c.args[0]), true
	}
	if c.recv.k == vPath {
		return a.pathMethod(strings.TrimPrefix(name, "pathlib.Path."), c)
	}
	switch typ {
	case "str", "bytes":
		s, ok := a.textMethod(m, c)
		if ok {
			return s.with(c.args...), true
		}
		out := tainted(c.args...)
		if c.recv.k == vStr && !strings.HasPrefix(m, "is") && m != "split" && m != "find" {
			out.t |= s.t
		}
		return out, true
	case "list":
		if s, ok := a.listMethod(m, c); ok {
			return s, true
		}
		return unknown, true
	case "dict":
		if s, ok := a.dictMethod(m, c); ok {
			return s, true
		}
		return unknown, true
	case "int":
		if s, ok := intMethod(m, c); ok {
			return s, true
		}
		return unknown, true
	case "namespace":
		return a.namespaceMethod(m, c)
	}
	return set{}, false
}

// unboundMethod is a method called through its class: str.join(sep, items).
func (a *analysis) unboundMethod(name string, c *call) (set, bool) {
	rest, ok := strings.CutPrefix(name, "builtins.")
	if !ok {
		return set{}, false
	}
	typ, m, ok := strings.Cut(rest, ".")
	if !ok {
		return set{}, false
	}
	switch m {
	case "fromhex":
		return fromHex(c)
	case "maketrans":
		return maketrans(c)
	case "from_bytes":
		return intMethod(m, c)
	case "fromkeys":
		return unknown, true
	case "__getattribute__", "__getattr__":
		return specials()["builtins.getattr"](a, c), true
	case "__setattr__":
		return specials()["builtins.setattr"](a, c), true
	}
	if len(c.args) == 0 {
		return set{}, false
	}
	switch typ {
	case "str", "bytes", "list", "dict", "int", "tuple":
		d := *c
		d.args = c.args[1:]
		return a.apply(a.attribute(c.args[0], m), &d), true
	}
	return set{}, false
}

// namespaceMethod is a method of globals(), vars(module) and their like.
func (a *analysis) namespaceMethod(name string, c *call) (set, bool) {
	switch name {
	case "get", "pop", "setdefault", "__getitem__":
		if len(c.args) == 0 {
			return unknown, true
		}
		s := a.member(c.recv, c.args[0])
		if d, ok := c.arg(1); ok {
			s = join(s, d)
		}
		return s, true
	case "copy":
		return one(c.recv), true
	case "items", "values":
		a.namespace(c.recv, "taken as a whole")
	case "update", "__setitem__":
		for _, k := range c.kws {
			if c.recv.s == "" {
				a.assign(k.name, k.val)
			}
		}
		for _, s := range c.args {
			if v, ok := s.single(); ok && v.k == vMap && c.recv.s == "" {
				m := v.p.(*mapping)
				for i, k := range m.keys {
					if k.k == vStr {
						a.assign(k.s, m.vals[i])
					}
				}
			}
			if v, ok := s.single(); ok && v.k == vDict && v.s != "" && c.recv.s == "" {
				a.stars = append(a.stars, v.s)
			}
		}
	}
	return unknown, true
}

// specials are functions that look names up, make callables or call them.
var specials func() map[string]func(a *analysis, c *call) set

func init() { specials = sync.OnceValue(newSpecials) } // some of them use it

func newSpecials() map[string]func(a *analysis, c *call) set {
	return map[string]func(a *analysis, c *call) set{
		"builtins.getattr":           getattr,
		"inspect.getattr_static":     getattr,
		"builtins.setattr":           setattr,
		"builtins.vars":              vars,
		"builtins.globals":           func(*analysis, *call) set { return one(value{k: vDict}) },
		"builtins.locals":            func(*analysis, *call) set { return one(value{k: vDict}) },
		"builtins.super":             super,
		"builtins.type":              typeOf,
		"builtins.__import__":        importName,
		"importlib.import_module":    importName,
		"importlib.__import__":       importName,
		"pkgutil.resolve_name":       resolveName,
		"builtins.map":               mapCall,
		"builtins.filter":            mapCall,
		"itertools.starmap":          starmap,
		"itertools.repeat":           repeatItem,
		"builtins.iter":              iter,
		"builtins.next":              next,
		"functools.partial":          partialCall,
		"functools.partialmethod":    partialCall,
		"functools.reduce":           reduce,
		"operator.methodcaller":      methodcaller,
		"operator.attrgetter":        attrgetter,
		"operator.getitem":           getitem,
		"operator.call":              operatorCall,
		"builtins.apply":             operatorCall,
		"operator.itemgetter":        func(*analysis, *call) set { return unknown },
		"inspect.getmembers":         getmembers,
		"contextlib.contextmanager":  first,
		"functools.wraps":            func(*analysis, *call) set { return sym("builtins.identity") },
		"functools.lru_cache":        first,
		"functools.cache":            first,
		"functools.update_wrapper":   first,
		"builtins.identity":          first,
		"copy.copy":                  first,
		"copy.deepcopy":              first,
		"typing.cast":                func(_ *analysis, c *call) set { s, _ := c.arg(1, "val"); return s },
		"types.SimpleNamespace":      simpleNamespace,
		"types.MappingProxyType":     first,
		"asyncio.run":                first,
		"asyncio.ensure_future":      first,
		"asyncio.create_task":        first,
		"asyncio.wait_for":           first,
		"collections.ChainMap":       chainMap,
		"string.Formatter.format":    formatter,
		"string.Formatter.vformat":   formatter,
		"string.Template.substitute": templateEnv, "string.Template.safe_substitute": templateEnv,
		"sys.modules.get": sysModule, "sys.modules.pop": sysModule, "sys.modules.__getitem__": sysModule, "sys.modules.setdefault": sysModule,
	}
}

func first(_ *analysis, c *call) set {
	if len(c.args) == 0 {
		return sym("builtins.identity")
	}
	return c.args[0]
}

func sysModule(a *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	return a.moduleNamed(c.args[0])
}

func getattr(a *analysis, c *call) set {
	if len(c.args) < 2 {
		if c.unknownArgs {
			a.opaque("takes an attribute of an object, both unknown", cordon.OriginLiteral, true)
		}
		return unknown
	}
	out := set{}
	obj, name := c.args[0], c.args[1]
	for _, n := range name.strings() {
		out = join(out, a.attribute(obj, n))
	}
	if len(c.args) > 2 {
		out = join(out, c.args[2])
	}
	known := len(name.strings()) > 0 && !name.unk
	for _, v := range name.vs {
		if v.k == vStr && hasHole(v.s) {
			known = false
		}
	}
	if !known {
		a.computedAttribute(obj, name)
		out.unk = true
		out = out.with(obj)
	}
	return out
}

// computedAttribute: the name of an attribute cannot be told.
func (a *analysis) computedAttribute(obj, name set) {
	if name.t&decoded != 0 {
		a.opaque("takes an attribute whose name is decoded", origin(name), true)
		return
	}
	for _, v := range obj.vs {
		if v.k == vSym && v.p == nil && (table().dangerous(v.s) || v.s == "builtins") {
			a.opaque("takes a computed attribute of "+v.s, cordon.OriginLiteral, true)
			return
		}
	}
	for _, v := range name.vs {
		if v.k == vStr && strings.HasPrefix(v.s, "__") && strings.HasPrefix(strings.TrimPrefix(v.s, "__"), hole) {
			a.opaque("takes a computed special attribute", cordon.OriginLiteral, true)
		}
	}
}

func setattr(a *analysis, c *call) set {
	if len(c.args) == 3 {
		names := c.args[1].strings()
		for _, n := range names {
			a.setAttribute(c.args[0], n, c.args[2])
		}
		if len(names) == 0 {
			for _, v := range c.args[0].vs {
				if v.k == vSym && v.p == nil && table().dangerous(v.s) {
					a.opaque("sets a computed attribute of "+v.s, cordon.OriginLiteral, true)
				}
			}
		}
	}
	return none
}

func vars(_ *analysis, c *call) set {
	if len(c.args) == 0 {
		return one(value{k: vDict})
	}
	out := set{unk: c.args[0].unk}
	for _, v := range c.args[0].vs {
		if v.k == vSym && v.p == nil {
			out = join(out, one(value{k: vDict, s: v.s}))
		} else {
			out.unk = true
		}
	}
	return out
}

// super is an object of the bases.
func super(a *analysis, c *call) set {
	f := a.functionFrame()
	for f != nil && (f.fn == nil || f.fn.owner == nil) {
		f = f.outer
	}
	if f == nil {
		return unknown
	}
	out := set{unk: true}
	for _, b := range f.fn.owner.bases {
		for _, v := range b.vs {
			switch v.k {
			case vClass:
				out = join(out, v.p.(*class).object())
			case vSym:
				if v.s != "builtins.object" && v.s != "builtins.type" {
					out = join(out, one(value{k: vInst, s: v.s, p: &instance{}}))
				}
			}
		}
	}
	return out
}

func typeOf(a *analysis, c *call) set {
	if len(c.args) == 1 {
		if v, ok := c.args[0].single(); ok && v.k == vObj {
			return one(value{k: vClass, p: v.p.(*object).class})
		}
		return unknown
	}
	// type(name, bases, namespace) is a class statement.
	if len(c.args) == 3 {
		cl := &class{fields: map[string]set{}, frame: &frame{kind: classFrame, info: &scope{all: map[string]set{}}, cur: map[string]set{}}}
		cl.name, _ = c.args[0].text()
		if q, ok := a.concrete(c.args[1]); ok {
			cl.bases = q.items
		}
		if m, ok := c.args[2].single(); ok && m.k == vMap {
			for i, k := range m.p.(*mapping).keys {
				if k.k == vStr {
					cl.fields[k.s] = m.p.(*mapping).vals[i]
					if k.s == "__annotations__" {
						a.annotate(cl.fields[k.s], 0)
					}
				}
			}
		}
		return one(value{k: vClass, p: cl})
	}
	return unknown
}

// importName is __import__ and import_module.
func importName(a *analysis, c *call) set {
	s, ok := c.arg(0, "name")
	if !ok {
		return unknown
	}
	out := set{}
	for _, n := range s.strings() {
		a.imported(n)
		full := canonical(n)
		if a.sym == "builtins.__import__" || a.sym == "importlib.__import__" {
			from, given := c.arg(3, "fromlist")
			v, single := from.single()
			empty := false
			if single {
				yes, known := v.truth()
				empty = known && !yes
			}
			if top, _, dotted := strings.Cut(n, "."); dotted && (!given || empty) {
				full = canonical(top)
			}
		}
		out = join(out, sym(full))
	}
	if a.withinPackage(s) {
		return unknown
	}
	if s.unk || len(out.vs) == 0 {
		a.opaque(computedImport, origin(s), true)
		out.unk = true
	}
	return out
}

func resolveName(a *analysis, c *call) set {
	s, _ := c.arg(0, "name")
	out := set{}
	for _, n := range s.strings() {
		m, attr, ok := strings.Cut(n, ":")
		cur := sym(canonical(m))
		if ok && attr != "" {
			for _, part := range strings.Split(attr, ".") {
				cur = a.attribute(cur, part)
			}
		}
		out = join(out, cur)
	}
	if s.unk || len(out.vs) == 0 {
		a.opaque("resolves a name that is not constant", origin(s), true)
		out.unk = true
	}
	return out
}

// mapCall is map and filter.
func mapCall(a *analysis, c *call) set {
	if len(c.args) < 2 {
		return unknown
	}
	q, ok := a.concrete(c.args[1])
	if !ok || len(c.args) > 2 || len(q.items) > 512 {
		args := make([]set, len(c.args)-1)
		for i, s := range c.args[1:] {
			args[i] = a.elements(s)
		}
		r := a.apply(c.args[0], &call{args: args})
		return one(value{k: vSeq, p: &sequence{items: []set{r}, fuzzy: true}})
	}
	out := &sequence{born: a.maybe}
	filter := a.sym == "builtins.filter"
	for _, it := range q.items {
		r := a.apply(c.args[0], &call{args: []set{it}})
		if !filter {
			out.items = append(out.items, r)
			continue
		}
		v, single := r.single()
		yes, known := v.truth()
		if !single || !known {
			out.fuzzy = true
		}
		if !single || !known || yes {
			out.items = append(out.items, it)
		}
	}
	return one(value{k: vSeq, p: out}).with(c.args[1])
}

// repeatItem is itertools.repeat, an iterator over one thing.
func repeatItem(_ *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	return fuzzy(c.args[0])
}

func starmap(a *analysis, c *call) set {
	if len(c.args) == 2 {
		if q, ok := a.concrete(c.args[1]); ok {
			for _, it := range q.items[:min(len(q.items), 512)] {
				if args, ok := a.concrete(it); ok {
					a.apply(c.args[0], &call{args: args.items})
				}
			}
		} else {
			a.apply(c.args[0], &call{unknownArgs: true})
		}
	}
	return unknown
}

func iter(a *analysis, c *call) set {
	if len(c.args) == 2 { // called until a value comes
		return one(value{k: vSeq, p: &sequence{items: []set{a.apply(c.args[0], &call{})}, fuzzy: true}})
	}
	return first(a, c)
}

func next(a *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	s := a.elements(c.args[0])
	for _, v := range c.args[0].vs {
		if v.k == vObj {
			s = join(s, a.apply(a.attribute(one(v), "__next__"), &call{}))
		}
	}
	if len(c.args) > 1 {
		s = join(s, c.args[1])
	}
	return s
}

func partialCall(_ *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	return one(value{k: vPartial, p: &partial{fn: c.args[0], args: c.args[1:], kws: c.kws}})
}

func reduce(a *analysis, c *call) set {
	if len(c.args) < 2 {
		return unknown
	}
	q, ok := a.concrete(c.args[1])
	if !ok || len(q.items) > 512 {
		el := a.elements(c.args[1])
		from := el
		if len(c.args) > 2 {
			from = join(el, c.args[2])
		}
		return a.apply(c.args[0], &call{args: []set{from, el}})
	}
	items := q.items
	var acc set
	switch {
	case len(c.args) > 2:
		acc = c.args[2]
	case len(items) > 0:
		acc, items = items[0], items[1:]
	}
	for _, it := range items {
		acc = a.apply(c.args[0], &call{args: []set{acc, it}})
	}
	return acc
}

func methodcaller(a *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	out := set{}
	for _, n := range c.args[0].strings() {
		if why, ok := table().reflect[n]; ok {
			a.reflection(n, why)
		}
		out = join(out, one(value{k: vPartial, p: &partial{name: n, args: c.args[1:], kws: c.kws}}))
	}
	if c.args[0].unk || len(out.vs) == 0 {
		a.opaque("calls a method whose name is not constant", origin(c.args[0]), true)
		out.unk = true
	}
	return out
}

func attrgetter(a *analysis, c *call) set {
	p := &partial{}
	for _, s := range c.args {
		p.attrs = append(p.attrs, s.strings()...)
		if s.t&decoded != 0 && s.unk {
			a.opaque("takes an attribute whose name is decoded", origin(s), true)
		}
	}
	if len(p.attrs) == 0 {
		return unknown
	}
	for _, n := range p.attrs {
		for _, part := range strings.Split(n, ".") {
			if why, ok := table().reflect[part]; ok {
				a.reflection(part, why)
			}
		}
	}
	return one(value{k: vPartial, p: p})
}

func getitem(a *analysis, c *call) set {
	if len(c.args) < 2 {
		return unknown
	}
	return a.index(c.args[0], c.args[1])
}

func operatorCall(a *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	d := *c
	d.args = c.args[1:]
	return a.apply(c.args[0], &d)
}

func getmembers(a *analysis, c *call) set {
	if len(c.args) > 0 {
		for _, v := range c.args[0].vs {
			if v.k == vSym && v.p == nil && table().dangerous(v.s) {
				a.opaque("takes all members of "+v.s, cordon.OriginLiteral, true)
			}
		}
	}
	return unknown
}

func simpleNamespace(_ *analysis, c *call) set {
	cl := &class{fields: map[string]set{}, frame: &frame{kind: classFrame, info: &scope{all: map[string]set{}}, cur: map[string]set{}}}
	for _, k := range c.kws {
		cl.fields[k.name] = k.val
	}
	return cl.object()
}

func chainMap(a *analysis, c *call) set {
	m := &mapping{}
	for i := len(c.args) - 1; i >= 0; i-- {
		a.dump(c.args[i], "merged into a dict")
		m.merge(c.args[i])
	}
	return one(value{k: vMap, p: m})
}

func formatter(a *analysis, c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	d := *c
	d.args = c.args[1:]
	out := set{}
	for _, f := range c.args[0].strings() {
		if s, ok := a.format(f, &d, false); ok {
			out = join(out, s)
		}
	}
	out.unk = true
	return out
}

// templateEnv is string.Template over the environment.
func templateEnv(a *analysis, c *call) set {
	in, _ := c.recv.p.(*instance)
	text, known := "", false
	if in != nil && len(in.args) > 0 {
		text, known = in.args[0].text()
	}
	for _, s := range c.all() {
		if isEnviron(s) {
			if known {
				return a.fromEnv(text, dollarNames(text), s)
			}
			a.dumpEnv("substituted into a template")
		}
	}
	if !known {
		return tainted(c.all()...)
	}
	for _, n := range dollarNames(text) {
		v := hole
		if s, ok := c.arg(-1, n); ok {
			if only, single := s.single(); single {
				v = only.display()
			}
		} else if len(c.args) > 0 {
			if m, single := c.args[0].single(); single && m.k == vMap {
				if only, single := m.p.(*mapping).get(str(n)).single(); single {
					v = only.display()
				}
			}
		}
		text = strings.ReplaceAll(strings.ReplaceAll(text, "${"+n+"}", v), "$"+n, v)
		if len(text) > maxText {
			return tainted(c.all()...)
		}
	}
	return str(squeeze(text)).with(c.all()...)
}
