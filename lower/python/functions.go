package python

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
		if s, ok := a.method(v.s, c); ok {
			return s.with(set{t: argTaint(one(r))})
		}
	} else if s, ok := a.unbound_(v.s, c); ok {
		return s
	}
	if f, ok := specials[v.s]; ok {
		return f(a, c)
	}
	if f, ok := decoders[v.s]; ok {
		if s, ok := decode(f, v.s, c); ok {
			return s
		}
	}
	if f, ok := pures[v.s]; ok {
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
	if e, ok := table.lookup(v.s); ok {
		return a.actions(e, v.s, c)
	}
	a.callbacks(c)
	return tainted(c.all()...).with(receiverTaint(v))
}

func argTaint(s set) taint { return s.t }

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

// method folds methods of constants.
func (a *analysis) method(name string, c *call) (set, bool) {
	typ, m, _ := strings.Cut(name, ".")
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

// unbound_ is a method called through its class: str.join(sep, items).
func (a *analysis) unbound_(name string, c *call) (set, bool) {
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
		return specials["builtins.getattr"](a, c), true
	case "__setattr__":
		return specials["builtins.setattr"](a, c), true
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
var specials map[string]func(a *analysis, c *call) set

func init() {
	specials = map[string]func(a *analysis, c *call) set{
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
	return a.module_(c.args[0])
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
		if v.k == vSym && v.p == nil && (table.dangerous(v.s) || v.s == "builtins") {
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
				if v.k == vSym && v.p == nil && table.dangerous(v.s) {
					a.opaque("sets a computed attribute of "+v.s, cordon.OriginLiteral, true)
				}
			}
		}
	}
	return one(value{k: vNone})
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
				out = join(out, one(value{k: vObj, p: &object{v.p.(*class)}}))
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
	if s.unk || len(out.vs) == 0 {
		a.opaque("imports a module whose name is not constant", origin(s), true)
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
		if why, ok := table.reflect[n]; ok {
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
			if why, ok := table.reflect[part]; ok {
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
			if v.k == vSym && v.p == nil && table.dangerous(v.s) {
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
	return one(value{k: vObj, p: &object{cl}})
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
	for _, s := range c.all() {
		if isEnviron(s) {
			in, _ := c.recv.p.(*instance)
			if in != nil && len(in.args) > 0 {
				if t, ok := in.args[0].text(); ok {
					return a.fromEnv(t, dollarNames(t), s)
				}
			}
			a.dumpEnv("substituted into a template")
		}
	}
	return tainted(c.all()...)
}

// pures are functions whose results can be computed.
var pures map[string]pure

func init() {
	pures = map[string]pure{
		"builtins.chr": chr, "builtins.ord": ord,
		"builtins.str": strOf, "builtins.repr": func(*analysis, *call) (set, bool) { return set{}, false },
		"builtins.int": intOf, "builtins.bytes": bytesOf, "builtins.bytearray": bytesOf, "builtins.memoryview": firstOK,
		"builtins.list": listOf, "builtins.tuple": listOf, "builtins.set": listOf, "builtins.frozenset": listOf, "collections.deque": listOf,
		"builtins.sorted": sorted, "builtins.reversed": reversed, "builtins.range": rangeOf, "builtins.len": length,
		"builtins.dict": dictOf, "collections.OrderedDict": dictOf, "collections.defaultdict": dictOf,
		"builtins.enumerate": enumerate, "builtins.zip": zip, "builtins.sum": sum,
		"builtins.hex": func(_ *analysis, c *call) (set, bool) {
			n, ok := c.number(0, 0)
			return str("0x" + strconv.FormatInt(n, 16)), ok && n >= 0
		},
		"builtins.abs": firstOK, "builtins.min": firstUnion, "builtins.max": firstUnion,
		"builtins.format": func(_ *analysis, c *call) (set, bool) {
			if len(c.args) == 0 {
				return set{}, false
			}
			spec, _ := c.text(1)
			v, ok := c.args[0].single()
			return str(formatSpec(v, spec)), ok
		},
		"codecs.decode": codecsDecode, "codecs.encode": codecsEncode,
		"operator.add":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "+") },
		"operator.concat":    func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "+") },
		"operator.xor":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "^") },
		"operator.sub":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "-") },
		"operator.mul":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "*") },
		"base64.b64encode":   func(_ *analysis, c *call) (set, bool) { return encode("base64.b64encode", c) },
		"binascii.hexlify":   func(_ *analysis, c *call) (set, bool) { return encode("binascii.hexlify", c) },
		"itertools.chain":    chain,
		"os.path.join":       pathJoin,
		"os.path.expanduser": expanduser, "os.path.expandvars": expandvars,
		"os.path.abspath": abspath, "os.path.realpath": abspath, "os.path.normpath": textFn(normalise), "os.path.normcase": firstOK,
		"os.path.dirname": textFn(dirname), "os.path.basename": textFn(basename), "os.fspath": fspath, "os.fsdecode": fspath, "os.fsencode": fspath,
		"os.getcwd": func(a *analysis, _ *call) (set, bool) { return str(a.dirs[0]), true }, "os.getcwdb": func(a *analysis, _ *call) (set, bool) { return str(a.dirs[0]), true },
		"pathlib.Path": newPath, "pathlib.PurePath": newPath,
		"pathlib.Path.home": func(a *analysis, _ *call) (set, bool) { return one(value{k: vPath, s: a.home()}), true },
		"pathlib.Path.cwd":  func(a *analysis, _ *call) (set, bool) { return one(value{k: vPath, s: a.dirs[0]}), true },
		"shlex.quote":       quote, "pipes.quote": quote,
		"shlex.split": shlexSplit,
		"shlex.join":  shlexJoin,
		"urllib.parse.urljoin": func(_ *analysis, c *call) (set, bool) {
			if len(c.args) == 0 {
				return set{}, false
			}
			return c.args[0], len(c.args[0].vs) > 0
		},
		"getpass.getuser": func(a *analysis, _ *call) (set, bool) { return str(a.env.User), a.env.User != "" },
		"os.getlogin":     func(a *analysis, _ *call) (set, bool) { return str(a.env.User), a.env.User != "" },
	}
}

func firstOK(_ *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	return c.args[0], true
}

func firstUnion(a *analysis, c *call) (set, bool) {
	out := set{}
	if len(c.args) == 1 {
		return a.elements(c.args[0]), true
	}
	for _, s := range c.args {
		out = join(out, s)
	}
	return out, len(c.args) > 0
}

func chr(_ *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	s, ok := product(c.args, func(v []value) (value, bool) {
		if v[0].k != vInt || v[0].n < 0 || v[0].n > utf8.MaxRune {
			return value{}, false
		}
		return value{k: vStr, s: string(rune(v[0].n))}, true
	})
	if ok {
		s.t |= decoded
	}
	return s, ok
}

func ord(_ *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	return product(c.args, func(v []value) (value, bool) {
		switch {
		case v[0].k == vBytes && len(v[0].s) == 1:
			return value{k: vInt, n: int64(v[0].s[0])}, true
		case v[0].k == vStr && v[0].s != hole:
			r, n := utf8.DecodeRuneInString(v[0].s)
			return value{k: vInt, n: int64(r)}, n > 0 && n == len(v[0].s)
		}
		return value{}, false
	})
}

func strOf(_ *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return str(""), len(c.kws) == 0
	}
	if len(c.args) > 1 || len(c.kws) > 0 {
		v, ok := c.args[0].single()
		if !ok || v.k != vBytes {
			return set{}, false
		}
		codec, ok := c.text(1, "encoding")
		if !ok {
			return set{}, false
		}
		return decodedText(v.s, codec)
	}
	if len(c.args[0].vs) == 0 {
		return set{}, false
	}
	return product(c.args, func(v []value) (value, bool) { return value{k: vStr, s: v[0].display()}, true })
}

func intOf(_ *analysis, c *call) (set, bool) {
	base, ok := c.number(1, 10, "base")
	if !ok || len(c.args) == 0 {
		return set{}, false
	}
	return product(c.args[:1], func(v []value) (value, bool) {
		switch v[0].k {
		case vInt, vBool, vBig:
			return v[0], true
		case vFloat:
			return value{k: vInt, n: int64(v[0].f)}, true
		}
		n, err := strconv.ParseInt(strings.TrimSpace(v[0].s), int(base), 64)
		return value{k: vInt, n: n}, err == nil
	})
}

func bytesOf(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return one(value{k: vBytes}), true
	}
	v, ok := c.args[0].single()
	switch {
	case ok && v.k == vStr:
		d := *c
		d.args = c.args[1:]
		return encodeText(v, &d)
	case ok && v.k == vBytes:
		return c.args[0], true
	case ok && v.k == vInt:
		if v.n < 0 || v.n > maxItems {
			return set{}, false
		}
		return one(value{k: vBytes, s: strings.Repeat("\x00", int(v.n))}), true
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	b := make([]byte, 0, len(q.items))
	for _, it := range q.items {
		v, ok := it.single()
		if !ok || v.k != vInt || v.n < 0 || v.n > 255 {
			return set{}, false
		}
		b = append(b, byte(v.n))
	}
	return one(value{k: vBytes, s: string(b)}).with(set{t: decoded}), true
}

func listOf(a *analysis, c *call) (set, bool) {
	q := &sequence{kind: '[', born: a.maybe}
	if len(c.args) == 1 {
		in, ok := a.concrete(c.args[0])
		if ok {
			q.items = in.items
		} else {
			q.items, q.fuzzy = []set{a.elements(c.args[0])}, true
		}
		return one(value{k: vSeq, p: q}).with(c.args[0]), true
	}
	return one(value{k: vSeq, p: q}), len(c.args) == 0
}

func sorted(a *analysis, c *call) (set, bool) {
	if f, ok := c.arg(-1, "key"); ok && len(c.args) > 0 {
		a.apply(f, &call{args: []set{a.elements(c.args[0])}})
	}
	s, ok := listOf(a, &call{args: c.args[:min(1, len(c.args))]})
	if ok {
		s.vs[0].p.(*sequence).fuzzy = true
	}
	return s, ok
}

func reversed(a *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	items := slices.Clone(q.items)
	slices.Reverse(items)
	return seq('(', items...).with(c.args[0], set{t: decoded}), true
}

func rangeOf(_ *analysis, c *call) (set, bool) {
	n := [3]int64{0, 0, 1}
	for i := range c.args {
		v, ok := c.args[i].single()
		if !ok || v.k != vInt || i > 2 {
			return set{}, false
		}
		n[i] = v.n
	}
	if len(c.args) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 || c.unknownArgs || len(c.args) == 0 || (n[1]-n[0])/n[2] > maxItems {
		return set{}, false
	}
	var items []set
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		items = append(items, integer(i))
	}
	return seq('(', items...), true
}

func length(a *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	return integer(int64(len(q.items))), true
}

func dictOf(a *analysis, c *call) (set, bool) {
	m := &mapping{}
	for _, s := range c.args {
		a.dump(s, "copied into a dict")
		v, ok := s.single()
		if ok && v.k == vSeq {
			q := v.p.(*sequence)
			m.fuzzy = m.fuzzy || q.fuzzy
			for _, it := range q.items {
				pair, ok := a.concrete(it)
				if !ok || len(pair.items) != 2 {
					m.fuzzy = true
					continue
				}
				m.put(pair.items[0], pair.items[1])
			}
			continue
		}
		m.merge(s)
	}
	for _, k := range c.kws {
		m.put(str(k.name), k.val)
	}
	m.fuzzy = m.fuzzy || c.unknownKws || c.unknownArgs
	return one(value{k: vMap, p: m}), true
}

func enumerate(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	start, known := c.number(1, 0, "start")
	if !ok || !known {
		pair := seq('(', unknown, a.elements(c.args[0]))
		return one(value{k: vSeq, p: &sequence{items: []set{pair}, fuzzy: true}}), true
	}
	items := make([]set, len(q.items))
	for i, it := range q.items {
		items[i] = seq('(', integer(start+int64(i)), it)
	}
	return seq('(', items...), true
}

func zip(a *analysis, c *call) (set, bool) {
	n := maxItems
	var seqs []*sequence
	for _, s := range c.args {
		q, ok := a.concrete(s)
		if v, single := s.single(); !ok && single && v.k == vSym && v.s == "itertools.cycle" {
			return set{}, false
		}
		if !ok {
			tuple := &sequence{kind: '('}
			for _, s := range c.args {
				tuple.items = append(tuple.items, a.elements(s))
			}
			return one(value{k: vSeq, p: &sequence{items: []set{one(value{k: vSeq, p: tuple})}, fuzzy: true}}), true
		}
		seqs = append(seqs, q)
		n = min(n, len(q.items))
	}
	if len(seqs) == 0 {
		n = 0
	}
	items := make([]set, n)
	for i := range items {
		t := make([]set, len(seqs))
		for j, q := range seqs {
			t[j] = q.items[i]
		}
		items[i] = seq('(', t...)
	}
	return seq('(', items...), true
}

func sum(a *analysis, c *call) (set, bool) {
	q, ok := a.concrete(firstOf(c))
	if !ok {
		return set{}, false
	}
	acc, given := c.arg(1, "start")
	if !given {
		acc = integer(0)
	}
	for _, it := range q.items {
		acc, ok = pairOp(a, &call{args: []set{acc, it}}, "+")
		if !ok {
			return set{}, false
		}
	}
	return acc, true
}

func firstOf(c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	return c.args[0]
}

func chain(a *analysis, c *call) (set, bool) {
	var items []set
	for _, s := range c.args {
		q, ok := a.concrete(s)
		if !ok || len(items)+len(q.items) > maxItems {
			return set{}, false
		}
		items = append(items, q.items...)
	}
	return seq('(', items...), true
}

func codecsDecode(_ *analysis, c *call) (set, bool) {
	s, _ := c.arg(0, "obj")
	v, ok := s.single()
	codec, ok2 := c.text(1, "encoding")
	if !ok || !ok2 || v.k != vStr && v.k != vBytes {
		return set{}, false
	}
	return decodedText(v.s, codec)
}

func codecsEncode(_ *analysis, c *call) (set, bool) {
	s, _ := c.arg(0, "obj")
	v, ok := s.single()
	codec, ok2 := c.text(1, "encoding")
	if !ok || !ok2 || v.k != vStr && v.k != vBytes {
		return set{}, false
	}
	if codecName(codec) == "rot13" {
		return str(rot13(v.s)).with(set{t: decoded}), true
	}
	if v.k == vStr {
		return encodeText(v, &call{args: c.args[1:]})
	}
	return set{}, false
}

func pairOp(a *analysis, c *call, op string) (set, bool) {
	if len(c.args) != 2 {
		return set{}, false
	}
	kinds := map[string]syntax.Kind{"+": syntax.Plus, "-": syntax.Minus, "*": syntax.Star, "^": syntax.Caret}
	s := a.binary(kinds[op], c.args[0], c.args[1])
	return s, len(s.vs) > 0
}
