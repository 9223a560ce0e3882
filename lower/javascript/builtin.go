package javascript

import (
	"encoding/base64"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// builtin calls what the language and the harmless modules give, where the
// result or what is handed on matters.
func (a *analysis) builtin(v value, this set, args []set, made bool) (set, bool) {
	head, name, dotted := strings.Cut(v.s, ".")
	x := arg(args, 0)
	name = strings.TrimPrefix(name, "prototype.")
	if dotted {
		switch head {
		case "Object":
			return a.objectCall(name, args)
		case "Reflect":
			return a.reflectCall(name, args)
		case "Array", "Buffer", "Uint8Array", "Uint16Array", "String", "Number", "Promise", "JSON", "Math", "URL", "Symbol", "Iterator":
			return a.namespaceCall(head, name, this, args)
		case "path":
			return a.pathCall(name, args)
		case "os", "process", "url", "util", "console", "import", "crypto", "zlib", "stream", "timers", "require", "events", "querystring", "readline", "assert":
			return a.moduleCall(head, name, this, args)
		case "TextDecoder", "TextEncoder":
			if name == "decode" && v.p != nil {
				return tainted(x), true
			}
			if name == "decode" || name == "encode" {
				return a.bytesText(x, ""), true
			}
		}
		return set{}, false
	}
	switch v.s {
	case "Constructor":
		return a.constructorCall(args, made), true
	case "String":
		if made {
			return a.asText(x), true
		}
		return a.asText(x), len(args) > 0
	case "Number", "parseInt", "parseFloat", "BigInt":
		return a.numberCall(v.s, args), true
	case "Boolean":
		b, ok := truth(x)
		if !ok {
			return unknown, true
		}
		return boolean(b), true
	case "Symbol":
		a.symbols++
		t, _ := x.text()
		return sym("Symbol." + t + "#" + strconv.Itoa(a.symbols)), true
	case "Array":
		return a.arrayCall(args), true
	case "Object":
		if len(x.vs) == 0 || x.vs[0].k <= vNull {
			return one(value{k: vObject, p: newObject(a.cond)}), !x.unk
		}
		return x, true
	case "Map", "Set", "WeakMap", "WeakSet":
		return a.collection(v.s, x), true
	case "Promise":
		return a.promise(x), true
	case "Proxy":
		a.escape(arg(args, 1), unknown)
		return a.proxy(x, arg(args, 1)), true
	case "WeakRef", "structuredClone", "promisify", "identity", "readline":
		return x, true
	case "RegExp":
		return a.regexp(args), true
	case "Error":
		return a.errorObject(args), true
	case "Date":
		return unknown, true
	case "URL":
		return a.newURL(args), true
	case "Uint8Array", "Buffer":
		enc, _ := arg(args, 1).text()
		return a.bytesFrom(x, enc), true
	case "Uint16Array":
		if w, ok := x.single(); ok && (w.k == vArray || w.k == vNum) {
			return a.arrayFrom([]set{x}, "Array"), w.k == vArray
		}
		return tainted(x), true
	case "TextDecoder":
		w := v
		if t, ok := x.text(); len(args) > 0 && (!ok || normalEncoding(t) != "utf8") {
			w.p = &conn{}
		}
		return one(w), true
	case "ArrayBuffer", "TextEncoder", "URLSearchParams", "AbortController":
		a.escapeAll(args)
		return set{vs: []value{v}, unk: true}.with(x), true
	case "atob":
		return a.decode(x, "base64", vStr), true
	case "btoa":
		return a.mapText(x, func(s string) (string, bool) { return base64.StdEncoding.EncodeToString(latin1(s)), true }), true
	case "unescape", "decodeURIComponent", "decodeURI":
		s := a.mapText(x, func(s string) (string, bool) { return percentDecode(s), true })
		if t, ok := x.text(); ok && strings.Contains(t, "%") {
			s.t |= decoded
		}
		return s, true
	case "escape", "encodeURIComponent", "encodeURI":
		return a.mapText(x, func(s string) (string, bool) { return percentEncode(s, v.s != "encodeURIComponent"), true }), true
	}
	return set{}, false
}

// asText is String(x).
func (a *analysis) asText(x set) set {
	out := set{}.with(x)
	for _, t := range a.texts(x) {
		out.add(value{k: vStr, s: t})
	}
	return out
}

// mapText applies f to every text that x can be.
func (a *analysis) mapText(x set, f func(string) (string, bool)) set {
	out := set{unk: x.unk}.with(x)
	for _, v := range x.vs {
		t, ok := a.toText(v)
		if !ok || hasHole(t) {
			// What is not known may still keep its known start.
			out.unk = true
			continue
		}
		if r, ok := f(t); ok {
			w := value{k: vStr, s: clip(r)}
			if !contains(out.vs, w) {
				out.add(w)
			}
		} else {
			out.unk = true
		}
	}
	return out
}

func (a *analysis) numberCall(name string, args []set) set {
	x := arg(args, 0)
	if name == "BigInt" {
		return tainted(x)
	}
	if name == "Number" {
		n, ok := a.toNum(x)
		if !ok {
			return tainted(x)
		}
		return num(n).with(x)
	}
	v, ok := x.single()
	if !ok {
		return tainted(x)
	}
	t, ok := a.toText(v)
	if !ok || hasHole(t) {
		return tainted(x)
	}
	t = strings.TrimSpace(t)
	if name == "parseFloat" {
		return num(leadingFloat(t)).with(x)
	}
	base := 10
	if b, ok := arg(args, 1).number(); ok && b >= 2 && b <= 36 {
		base = int(b)
	} else if len(args) > 1 && !ok {
		return tainted(x)
	}
	return num(leadingInt(t, base)).with(x)
}

func leadingFloat(t string) float64 {
	for i := len(t); i > 0; i-- {
		if n, err := strconv.ParseFloat(t[:i], 64); err == nil {
			return n
		}
		if i < len(t)-64 {
			break
		}
	}
	return nan
}

func leadingInt(t string, base int) float64 {
	sign := 1.0
	if strings.HasPrefix(t, "-") {
		sign, t = -1, t[1:]
	}
	if len(t) > 2 && t[0] == '0' && t[1]|0x20 == 'x' && (base == 10 || base == 16) {
		base, t = 16, t[2:]
	}
	n, any := 0.0, false
	for i := 0; i < len(t); i++ {
		d, err := strconv.ParseUint(t[i:i+1], 36, 8)
		if err != nil || int(d) >= base {
			break
		}
		n, any = n*float64(base)+float64(d), true
	}
	if !any {
		return nan
	}
	return sign * n
}

func (a *analysis) arrayCall(args []set) set {
	if n, ok := arg(args, 0).number(); ok && len(args) == 1 {
		r := &array{born: a.cond}
		if n < 0 || n > 4096 {
			r.fuzzy, r.rest = true, unknown
			return one(value{k: vArray, p: r})
		}
		for range int(n) {
			r.items = append(r.items, undefined)
		}
		return one(value{k: vArray, p: r})
	}
	return one(value{k: vArray, p: &array{items: args, born: a.cond}})
}

func (a *analysis) collection(kind string, from set) set {
	o := newObject(a.cond)
	o.kind = strings.TrimPrefix(kind, "Weak")
	if len(from.vs) > 0 && from.vs[0].k > vNull || from.unk {
		items := a.elements(from)
		for _, s := range items.items {
			if o.kind == "Set" {
				a.addTo(o, s)
				continue
			}
			pair := a.elements(s)
			a.setIn(o, pair.at(0), pair.at(1))
		}
		if items.fuzzy {
			o.open = true
			o.rest = join(o.rest, a.index(items.rest, num(1)))
		}
	}
	return one(value{k: vObject, p: o})
}

func (a *analysis) addTo(o *object, s set) {
	if t, ok := s.text(); ok {
		o.put(t, s)
		return
	}
	o.put("#"+strconv.Itoa(len(o.order)), s)
}

func (a *analysis) setIn(o *object, key, s set) {
	names, unk := a.keyTexts(key)
	if !unk && len(names) == 1 {
		o.put(names[0], s)
		return
	}
	o.open = true
	o.rest = join(o.rest, s)
}

// promise is new Promise(f): a promise is taken for what it resolves to.
func (a *analysis) promise(f set) set {
	r := &array{born: a.cond}
	resolve := one(value{k: vMethod, p: &method{recv: one(value{k: vArray, p: r}), name: "@resolve"}})
	a.callBack(f, resolve, unknown)
	out := r.any()
	if len(r.items) == 0 {
		out.unk = true
	}
	return out
}

// proxy is new Proxy(target, handler): what is asked of it is asked of the
// target or given by the handler.
func (a *analysis) proxy(target, handler set) set {
	out := target
	h, ok := handler.single()
	if !ok || h.k != vObject || len(h.p.(*object).order) == 0 && !h.p.(*object).open {
		return out
	}
	for _, trap := range []string{"get", "apply", "construct"} {
		if f, ok := h.p.(*object).props[trap]; ok {
			got := a.invoke(f.v, handler, []set{target, unknown, unknown}, trap)
			if trap == "get" {
				o := newObject(a.cond)
				o.open, o.rest = true, got
				out = join(out, one(value{k: vObject, p: o}))
			} else {
				out = join(out, f.v)
			}
		}
	}
	return out
}

func (a *analysis) regexp(args []set) set {
	x := arg(args, 0)
	if v, ok := x.single(); ok && v.k == vRegex {
		return x
	}
	t, ok := x.text()
	if !ok {
		return sym("RegExp")
	}
	flags, _ := arg(args, 1).text()
	return one(value{k: vRegex, s: t, p: flags})
}

func (a *analysis) errorObject(args []set) set {
	o := newObject(a.cond)
	o.put("message", a.asText(arg(args, 0)))
	o.put("stack", unknown)
	o.put("name", str("Error"))
	if c := a.member(arg(args, 1), "cause"); len(args) > 1 {
		o.put("cause", c)
	}
	o.open = true
	return one(value{k: vObject, p: o})
}

// newURL is new URL(x, base).
func (a *analysis) newURL(args []set) set {
	out := set{}.with(arg(args, 0))
	for _, t := range a.texts(arg(args, 0)) {
		if len(args) > 1 {
			if _, _, ok := cutScheme(t); !ok || strings.HasPrefix(t, "//") {
				for _, base := range a.texts(args[1]) {
					out.add(value{k: vURL, s: resolveURL(base, t)})
				}
				continue
			}
		}
		out.add(value{k: vURL, s: t})
	}
	return out
}

func resolveURL(base, ref string) string {
	if base == hole {
		if strings.HasPrefix(ref, "//") {
			return "https:" + ref
		}
		return hole
	}
	mark := "\ue000"
	b, err := url.Parse(strings.ReplaceAll(base, hole, mark))
	if err != nil {
		return hole
	}
	r, err := url.Parse(strings.ReplaceAll(ref, hole, mark))
	if err != nil {
		return hole
	}
	s := b.ResolveReference(r).String()
	return strings.NewReplacer(mark, hole, url.PathEscape(mark), hole).Replace(s)
}

// urlMember is a property of a URL.
func urlMember(s, name string) (set, bool) {
	switch name {
	case "href":
		return str(s), true
	case "searchParams":
		return sym("URLSearchParams"), true
	case "constructor":
		return sym("URL"), true
	case "protocol", "host", "hostname", "origin", "pathname", "port", "search", "hash":
	default:
		return set{}, false
	}
	if hasHole(s) {
		return unknown, true
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || !ascii(s) {
		return unknown, true
	}
	switch name {
	case "protocol":
		return str(u.Scheme + ":"), true
	case "host":
		return str(u.Host), true
	case "hostname":
		return str(u.Hostname()), true
	case "origin":
		return str(u.Scheme + "://" + u.Host), true
	case "pathname":
		return str(u.EscapedPath()), true
	case "port":
		return str(u.Port()), true
	}
	return unknown, true
}

// moduleCall is a function of a module that matters for what it gives back.
func (a *analysis) moduleCall(head, name string, this set, args []set) (set, bool) {
	x := arg(args, 0)
	switch head + "." + name {
	case "os.homedir":
		return a.knownOr(a.env.Home), true
	case "os.tmpdir":
		return str("/tmp"), true
	case "os.userInfo":
		o := newObject(a.cond)
		o.put("homedir", a.knownOr(a.env.Home))
		o.put("username", a.knownOr(a.env.User))
		o.open = true
		return one(value{k: vObject, p: o}), true
	case "process.cwd":
		return str(a.cwd), true
	case "url.fileURLToPath":
		return a.mapPart(x, fileURL), true
	case "url.pathToFileURL":
		out := set{}.with(x)
		for _, t := range a.texts(x) {
			out.add(value{k: vURL, s: "file://" + t})
		}
		return out, true
	case "url.parse", "url.format", "url.resolve":
		return a.newURL(args[:min(1, len(args))]), len(args) > 0
	case "util.inherits", "util.callbackify", "util.deprecate":
		return x, true
	case "util.format":
		a.escapeAll(args)
		return a.format(args), true
	case "util.inspect":
		a.escapeAll(args)
		return a.asText(x).with(args...), true
	case "require.resolve", "import.meta.resolve":
		return x, true
	case "events.once", "events.on":
		return unknown, true
	case "crypto.randomUUID", "crypto.randomBytes":
		return unknown, true
	case "process.on", "process.once", "process.addListener", "process.prependListener", "process.nextTick":
		for _, s := range args {
			if grave(s) {
				a.mention(s)
			}
		}
		a.escapeAll(args)
		return sym("process"), true
	case "process.getBuiltinModule":
		return set{}, false
	case "console.log", "console.info", "console.error", "console.warn", "console.debug", "console.dir", "console.table", "console.trace", "console.assert", "console.group":
		a.show(args)
		return undefined, true
	}
	if head == "zlib" && len(args) > 0 {
		// The content keeps its source; compressed constants are not unpacked.
		a.escapeAll(args[1:])
		out := tainted(x)
		if strings.Contains(name, "nzip") || strings.Contains(name, "nflate") || strings.Contains(name, "ecompress") {
			out.t |= decoded
			if b, ok := inflate(x, name); ok {
				return b, true
			}
		}
		return out, true
	}
	return set{}, false
}

// mapPart is mapText for functions that may keep holes.
func (a *analysis) mapPart(x set, f func(string) string) set {
	out := set{unk: x.unk}.with(x)
	for _, v := range x.vs {
		if t, ok := a.toText(v); ok {
			out.add(value{k: vStr, s: f(t)})
		} else {
			out.unk = true
		}
	}
	return out
}

func (a *analysis) knownOr(s string) set {
	if s == "" {
		return str(hole)
	}
	return str(s)
}

// show prints: what is shown of the environment is read.
func (a *analysis) show(args []set) {
	for _, s := range args {
		for _, v := range s.vs {
			a.showValue(v, 0)
		}
	}
}

func (a *analysis) showValue(v value, depth int) {
	if !a.tick() || depth > 4 {
		return
	}
	switch v.k {
	case vSym:
		if v.s == "process.env" || v.s == "process" || v.s == "globalThis" {
			a.readEnv("*")
		}
	case vArray:
		for _, s := range v.p.(*array).items {
			if a.stopped {
				return
			}
			for _, w := range s.vs {
				a.showValue(w, depth+1)
			}
		}
	case vObject:
		o := v.p.(*object)
		for _, k := range o.order {
			if a.stopped {
				return
			}
			if p, ok := o.props[k]; ok && !p.accessor {
				for _, w := range p.v.vs {
					a.showValue(w, depth+1)
				}
			} else if ok && k == "@@Symbol.toPrimitive" {
				a.property(one(v), p)
			}
		}
		for _, k := range []string{"@@util.inspect.custom", "toJSON"} {
			if p, ok := o.props[k]; ok {
				a.invoke(a.property(one(v), p), one(v), nil, k)
			}
		}
	}
}

// namespaceCall is a static function of a built-in.
func (a *analysis) namespaceCall(head, name string, this set, args []set) (set, bool) {
	x := arg(args, 0)
	switch head + "." + name {
	case "String.fromCharCode", "String.fromCodePoint":
		return a.fromCharCodes(args), true
	case "String.raw":
		return a.rawText(args), true
	case "Array.of":
		return one(value{k: vArray, p: &array{items: args, born: a.cond}}), true
	case "Array.from", "Uint8Array.from", "Array.fromAsync":
		return a.arrayFrom(args, head), true
	case "Array.isArray":
		if v, ok := x.single(); ok && v.k != vSym {
			return boolean(v.k == vArray), true
		}
		return unknown, true
	case "Buffer.from":
		enc, ok := arg(args, 1).text()
		if !ok && len(args) > 1 {
			enc = "utf8"
		}
		return a.bytesFrom(x, enc), true
	case "Uint8Array.fromBase64":
		return a.decode(x, "base64", vBytes), true
	case "Uint8Array.fromHex":
		return a.decode(x, "hex", vBytes), true
	case "Buffer.concat":
		return a.concatBytes(x), true
	case "Buffer.alloc", "Buffer.allocUnsafe":
		return a.bytesFrom(x, ""), true
	case "Number.parseInt":
		return a.numberCall("parseInt", args), true
	case "Number.parseFloat":
		return a.numberCall("parseFloat", args), true
	case "Promise.resolve":
		return x, true
	case "Promise.all", "Promise.any", "Promise.race":
		r := a.elements(x)
		r.born, r.items = a.cond, slices.Clone(r.items)
		if name == "all" {
			return one(value{k: vArray, p: &r}), true
		}
		return r.any(), true
	case "Promise.allSettled":
		r := &array{fuzzy: true, rest: unknown, born: a.cond}
		return one(value{k: vArray, p: r}), true
	case "Promise.withResolvers", "Promise.reject":
		a.escapeAll(args)
		return unknown, true
	case "Promise.try":
		return a.invoke(x, set{}, args[min(1, len(args)):], ""), true
	case "JSON.stringify":
		return a.stringify(args), true
	case "JSON.parse":
		return a.parseJSON(args), true
	case "URL.createObjectURL":
		return str("blob:" + hole), true
	case "Symbol.for":
		if t, ok := x.text(); ok && strings.HasPrefix(t, "nodejs.util.inspect.custom") {
			return sym("util.inspect.custom"), true
		} else if ok {
			return sym("Symbol.for " + t), true
		}
		return unknown, true
	case "Iterator.from":
		return x, true
	}
	if head == "Math" {
		return a.mathCall(name, args), true
	}
	// Array.prototype.map is Array.map here: a method waiting for its receiver.
	if (head == "Array" || head == "String") && len(this.vs) > 0 {
		return a.callMethod(&method{recv: this, name: name}, this, args), true
	}
	return set{}, false
}

func (a *analysis) mathCall(name string, args []set) set {
	n, ok := a.toNum(arg(args, 0))
	if !ok {
		return tainted(args...)
	}
	switch name {
	case "floor":
		return num(math.Floor(n))
	case "ceil":
		return num(math.Ceil(n))
	case "round":
		return num(math.Floor(n + 0.5))
	case "trunc":
		return num(math.Trunc(n))
	case "abs":
		return num(math.Abs(n))
	case "sqrt":
		return num(math.Sqrt(n))
	case "max", "min":
		for _, s := range args[1:] {
			m, ok := a.toNum(s)
			if !ok {
				return unknown
			}
			if (m > n) == (name == "max") {
				n = m
			}
		}
		return num(n)
	case "pow":
		if m, ok := a.toNum(arg(args, 1)); ok {
			return num(math.Pow(n, m))
		}
	}
	return tainted(args...)
}

func (a *analysis) rawText(args []set) set {
	raw := a.elements(a.member(arg(args, 0), "raw"))
	out := str("")
	for i, s := range raw.items {
		out = a.concat(out, s)
		if i+1 < len(raw.items) {
			out = a.concat(out, arg(args, i+1))
		}
	}
	if raw.fuzzy {
		return unknown
	}
	return out
}

func (a *analysis) arrayFrom(args []set, head string) set {
	x := arg(args, 0)
	var r array
	if v, ok := x.single(); ok && v.k == vObject && v.p.(*object).kind == "" && v.p.(*object).props["length"] != nil {
		n, known := v.p.(*object).props["length"].v.number()
		if known && n >= 0 && n <= 4096 {
			for i := range int(n) {
				r.items = append(r.items, a.member(x, numberText(float64(i))))
			}
		} else {
			r.fuzzy, r.rest = true, unknown
		}
	} else {
		r = a.elements(x)
	}
	r.born, r.items = a.cond, slices.Clone(r.items)
	s := one(value{k: vArray, p: &r})
	if len(args) > 1 {
		s = a.callMethod(&method{recv: s, name: "map"}, s, args[1:])
	}
	if head == "Uint8Array" {
		return a.bytesFrom(s, "")
	}
	return s.with(x)
}
