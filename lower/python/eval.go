package python

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// maxDepth bounds the recursion of the analysis over one tree.
const maxDepth = 2500

// step counts work; false once a limit was hit.
func (a *analysis) step() bool {
	if a.stopped {
		return false
	}
	a.steps++
	if a.steps > a.hard {
		a.limit("the code takes too much work to read")
		return false
	}
	if a.steps&1023 == 0 && a.ctx.Err() != nil {
		a.limit("no time left to read the code")
		return false
	}
	return true
}

// generous: there is work left for loops and calls beyond one look at each.
func (a *analysis) generous() bool { return a.steps < a.lavish && !a.stopped }

// eval is what an expression may be. Naming a dangerous function is a use of
// it, unless it is called at once (evalRef).
func (a *analysis) eval(x syntax.Expr) set {
	s := a.evalRef(x)
	for i := range s.vs {
		if s.vs[i].k == vSym {
			a.references(s)
			break
		}
	}
	return s
}

func (a *analysis) evalRef(x syntax.Expr) set {
	if x == nil {
		return unknown
	}
	if !a.step() {
		return unknown
	}
	if a.depth > maxDepth {
		a.limit("the code nests too deep to read")
		return unknown
	}
	a.depth++
	defer func() { a.depth-- }()
	switch x := x.(type) {
	case *syntax.Name:
		return a.name(x)
	case *syntax.Str:
		return a.literal(x)
	case *syntax.Num:
		return number(x.Text)
	case *syntax.Const:
		return constant(x.Name)
	case *syntax.Attribute:
		if in, ok := x.X.(*syntax.Attribute); ok && in.Name == "__code__" && harmlessCode(x.Name) {
			a.evalRef(in.X)
			return unknown
		}
		return a.attribute(a.evalRef(x.X), x.Name)
	case *syntax.Call:
		if at, ok := x.Func.(*syntax.Attribute); ok && at.Name == "get" && len(x.Args) > 0 && ownName(at.X, x.Args[0]) {
			a.evalRef(at.X.(*syntax.Attribute).X)
			return unknown
		}
		return a.evalCall(x)
	case *syntax.Subscript:
		if ownName(x.X, x.Index) {
			a.evalRef(x.X.(*syntax.Attribute).X)
			return unknown
		}
		return a.index(a.evalRef(x.X), a.eval(x.Index))
	case *syntax.Binary:
		return a.binary(x.Op, a.eval(x.X), a.eval(x.Y))
	case *syntax.Seq:
		return a.display(x)
	case *syntax.Dict:
		return a.dict(x)
	case *syntax.Joined:
		return a.joined(x)
	case *syntax.Comp:
		return a.comprehension(x)
	}
	return a.rarer(x)
}

// ownName: frame.f_globals["__name__"], the usual way to the name of the
// module that calls.
func ownName(x, key syntax.Expr) bool {
	at, ok := x.(*syntax.Attribute)
	k, isText := key.(*syntax.Str)
	if !ok || !isText || at.Name != "f_globals" {
		return false
	}
	return k.S == "__name__" || k.S == "__file__" || k.S == "__package__"
}

func (a *analysis) rarer(x syntax.Expr) set {
	switch x := x.(type) {
	case *syntax.Unary:
		return a.unary(x)
	case *syntax.Bool:
		return a.boolean(x)
	case *syntax.Compare:
		return a.compare(x)
	case *syntax.IfExp:
		return a.ifExp(x)
	case *syntax.Lambda:
		return one(value{k: vFunc, p: a.newFunction(x, "<lambda>", x.Params, nil, x.Body)})
	case *syntax.Starred:
		return a.elements(a.eval(x.X))
	case *syntax.Slice:
		part := func(e syntax.Expr) set {
			if e == nil {
				return none
			}
			return a.eval(e)
		}
		return seq('s', part(x.Lo), part(x.Hi), part(x.Step))
	case *syntax.Walrus:
		v := a.evalRef(x.Value)
		a.assign(x.Target.ID, v)
		return v
	case *syntax.Await:
		return a.evalRef(x.X)
	case *syntax.Yield:
		return a.yield(x.X)
	case *syntax.YieldFrom:
		v := a.eval(x.X)
		f := a.functionFrame()
		f.yields = append(f.yields, a.elements(v))
		f.info.yields = true
		return unknown
	case *syntax.Field:
		return a.eval(x.Value)
	case *syntax.Inline:
		a.stmt(x.Stmt)
	}
	return unknown
}

func (a *analysis) yield(x syntax.Expr) set {
	v := none
	if x != nil {
		v = a.eval(x)
	}
	f := a.functionFrame()
	f.info.yields = true
	if len(f.yields) < maxItems {
		f.yields = append(f.yields, v)
	}
	return unknown
}

func (a *analysis) name(x *syntax.Name) set {
	s := a.lookup(x.ID)
	if why, ok := table().reflect[x.ID]; ok && strings.HasPrefix(x.ID, "__") && len(s.vs) <= 1 {
		a.reflection(x.ID, why)
	}
	return s
}

func (a *analysis) reflection(name, why string) {
	was := a.sym
	a.sym = name
	a.opaque("reaches "+name+": "+why, cordon.OriginLiteral, false)
	a.sym = was
}

func (a *analysis) literal(x *syntax.Str) set {
	if x.Bytes {
		return one(value{k: vBytes, s: x.S})
	}
	if n := len(x.S); n > 1 && n < 200 {
		if a.secretLiteral(x.S) && len(a.facts.literals) < 100 {
			a.facts.literals = append(a.facts.literals, x.S)
		}
		if strings.Contains(x.S, "{{") && (strings.Contains(x.S, "__globals__") || strings.Contains(x.S, "__subclasses__")) {
			a.reflection("__globals__ or __subclasses__", "named in a template")
		}
		if strings.IndexByte(x.S, '{') >= 0 {
			if w := formatWalk(x.S); w != "" && w != "__class__" && w != "__name__" {
				a.reflection(w, "named in a format string")
			}
		}
	}
	return str(x.S)
}

func number(text string) set {
	t := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	if n, err := strconv.ParseInt(t, 0, 64); err == nil && !(len(t) > 1 && t[0] == '0' && t[1] >= '0' && t[1] <= '9') {
		return integer(n)
	}
	base := 10
	d := t
	if len(t) > 2 && t[0] == '0' {
		switch t[1] {
		case 'x':
			base, d = 16, t[2:]
		case 'o':
			base, d = 8, t[2:]
		case 'b':
			base, d = 2, t[2:]
		}
	}
	if len(d) < 20_000 {
		if b, ok := new(big.Int).SetString(strings.TrimRight(d, "l"), base); ok {
			return bigint(b)
		}
	}
	if f, err := strconv.ParseFloat(t, 64); err == nil {
		return one(value{k: vFloat, f: f})
	}
	return unknown
}

func constant(name string) set {
	switch name {
	case "True":
		return boolean(true)
	case "False":
		return boolean(false)
	case "None":
		return none
	}
	return unknown
}

func (a *analysis) display(x *syntax.Seq) set {
	q := &sequence{kind: x.Kind, born: a.maybe}
	for _, e := range x.Elts {
		if st, ok := e.(*syntax.Starred); ok {
			v := a.eval(st.X)
			if in, ok := a.concrete(v); ok && len(q.items)+len(in.items) < maxItems {
				q.items = append(q.items, in.items...)
			} else {
				q.items = append(q.items, a.elements(v))
				q.fuzzy = true
			}
			continue
		}
		v := a.eval(e)
		if len(q.items) < maxItems {
			q.items = append(q.items, v)
		} else {
			q.fuzzy = true
		}
	}
	return one(value{k: vSeq, p: q})
}

func (a *analysis) dict(x *syntax.Dict) set {
	m := &mapping{}
	var all []set
	for i := range x.Values {
		if x.Keys[i] == nil {
			v := a.evalRef(x.Values[i])
			a.dump(v, "merged into a dict")
			for _, d := range v.vs {
				if d.k == vDict {
					a.namespace(d, "merged into a dict")
				}
			}
			m.merge(v)
			continue
		}
		k := a.eval(x.Keys[i])
		v := a.eval(x.Values[i])
		all = append(all, v)
		m.put(k, v)
	}
	return one(value{k: vMap, p: m}).with(sourcesOf(all)...)
}

// sourcesOf keeps only taints and sources, for containers of such values.
func sourcesOf(all []set) []set {
	out := all[:0:0]
	for _, s := range all {
		if s.t != 0 || len(s.src) > 0 {
			out = append(out, set{t: s.t, src: s.src})
		}
	}
	return out
}

func (m *mapping) put(k, v set) {
	key, ok := k.single()
	if !ok || len(m.keys) >= maxItems {
		m.fuzzy = true
		m.rest = join(m.rest, v)
		return
	}
	for i := range m.keys {
		if len(m.keys) > 64 && i < len(m.keys)-64 {
			continue // duplicates far apart only make a value less certain
		}
		if m.keys[i] == key {
			m.vals[i] = v
			return
		}
	}
	m.keys = append(m.keys, key)
	m.vals = append(m.vals, v)
}

func (m *mapping) merge(s set) {
	v, ok := s.single()
	if !ok || v.k != vMap {
		m.fuzzy = true
		return
	}
	o := v.p.(*mapping)
	if o == m {
		return
	}
	m.fuzzy = m.fuzzy || o.fuzzy
	m.rest = join(m.rest, o.rest)
	for i := range o.keys {
		m.put(one(o.keys[i]), o.vals[i])
	}
}

// get is what a key leads to.
func (m *mapping) get(k set) set {
	key, ok := k.single()
	out := m.rest
	for i := len(m.keys) - 1; i >= 0; i-- {
		if ok && m.keys[i] == key {
			return join(out, m.vals[i])
		}
		if !ok && len(m.keys)-i < 256 {
			out = join(out, m.vals[i])
		}
	}
	out.unk = true
	return out
}

func (a *analysis) joined(x *syntax.Joined) set {
	var b strings.Builder
	var parts []set
	for _, v := range x.Values {
		if s, ok := v.(*syntax.Str); ok {
			b.WriteString(s.S)
			continue
		}
		f := v.(*syntax.Field)
		val := a.eval(f.Value)
		if f.Spec != nil {
			a.joined(f.Spec)
		}
		a.dump(val, "formatted into a string")
		parts = append(parts, val)
		text := hole
		if only, ok := val.single(); ok && f.Spec == nil && (f.Conv == 0 || f.Conv == 's') {
			text = only.display()
		} else if ok && f.Spec != nil && len(f.Spec.Values) == 1 {
			if spec, isText := f.Spec.Values[0].(*syntax.Str); isText {
				text = formatSpec(only, spec.S)
			}
		}
		b.WriteString(text)
		if b.Len() > maxText {
			return tainted(parts...)
		}
	}
	return str(b.String()).with(parts...)
}

// display is str(v), with a hole where it cannot be told.
func (v value) display() string {
	switch v.k {
	case vStr, vPath:
		return v.s
	case vInt:
		return strconv.FormatInt(v.n, 10)
	case vBig:
		if b := v.p.(*big.Int); b.BitLen() < 10_000 {
			return b.String()
		}
	case vBool:
		if v.n != 0 {
			return "True"
		}
		return "False"
	case vNone:
		return "None"
	case vFloat:
		if v.f == math.Trunc(v.f) && math.Abs(v.f) < 1e15 {
			return strconv.FormatFloat(v.f, 'f', 1, 64)
		}
		return strconv.FormatFloat(v.f, 'g', -1, 64)
	}
	return hole
}

// comprehension runs its clauses as loops.
func (a *analysis) comprehension(x *syntax.Comp) set {
	outer := a.frame
	a.frame = &frame{kind: compFrame, info: &scope{all: map[string]set{}}, cur: map[string]set{}, outer: outer, base: a.uncertain}
	mark := len(a.journal)
	defer func() {
		a.frame.gone = true
		a.frame = outer
		a.forget(mark)
	}()
	c := &collector{x: x, seq: &sequence{kind: x.Kind}, dict: &mapping{}}
	a.clause(c, 0)
	if x.Kind == ':' {
		c.dict.fuzzy = c.dict.fuzzy || c.seq.fuzzy
		return one(value{k: vMap, p: c.dict}).with(sourcesOf(c.seq.items)...)
	}
	return one(value{k: vSeq, p: c.seq}).with(sourcesOf(c.seq.items)...)
}

type collector struct {
	x    *syntax.Comp
	seq  *sequence
	dict *mapping
}

func (a *analysis) clause(c *collector, i int) {
	if i == len(c.x.Gens) {
		v := a.eval(c.x.Elt)
		if c.x.Kind == ':' {
			w := a.eval(c.x.Value)
			c.dict.put(v, w)
			v = w
		}
		if len(c.seq.items) < maxItems {
			c.seq.items = append(c.seq.items, v)
		} else {
			c.seq.fuzzy = true
		}
		return
	}
	g := c.x.Gens[i]
	iter := a.eval(g.Iter)
	q, ok := a.concrete(iter)
	if !ok || len(q.items) == 0 {
		c.seq.fuzzy = c.seq.fuzzy || !ok
		n := len(c.seq.items)
		a.bind(g.Target, a.elements(iter))
		a.filters(g.Ifs)
		a.clause(c, i+1)
		if ok {
			c.seq.items = c.seq.items[:n]
		}
		return
	}
	for n, it := range q.items {
		a.bind(g.Target, it)
		pass, known := a.filters(g.Ifs)
		if known && !pass && n > 0 {
			continue
		}
		before := len(c.seq.items)
		a.clause(c, i+1)
		if known && !pass {
			c.seq.items = c.seq.items[:before]
		} else if !known {
			c.seq.fuzzy = true
		}
		if !a.generous() {
			c.seq.fuzzy = true
			return
		}
	}
}

// filters evaluates the conditions of a comprehension.
func (a *analysis) filters(ifs []syntax.Expr) (pass, known bool) {
	pass, known = true, true
	for _, f := range ifs {
		yes, ok := a.condition(f)
		known = known && ok
		pass = pass && (yes || !ok)
	}
	return pass, known
}

func (a *analysis) unary(x *syntax.Unary) set {
	s := a.eval(x.X)
	v, ok := s.single()
	if x.Op == syntax.KwNot {
		if ok {
			if yes, known := v.truth(); known {
				return boolean(!yes)
			}
		}
		return set{unk: true}
	}
	if !ok {
		return tainted(s)
	}
	n := v.n
	switch {
	case v.k == vFloat && x.Op == syntax.Minus:
		return one(value{k: vFloat, f: -v.f})
	case v.k == vBig && x.Op == syntax.Minus:
		return bigint(new(big.Int).Neg(v.p.(*big.Int))).with(s)
	case v.k != vInt && v.k != vBool:
		return tainted(s)
	case x.Op == syntax.Minus:
		n = -n
	case x.Op == syntax.Tilde:
		n = ^n
	}
	return integer(n).with(s)
}

// boolean: the operands are alternatives, but for those that are known.
func (a *analysis) boolean(x *syntax.Bool) set {
	var out set
	for i, e := range x.Values {
		s := a.eval(e)
		v, ok := s.single()
		yes, known := false, false
		if ok {
			yes, known = v.truth()
		}
		skip := known && (x.Op == syntax.KwOr) != yes
		if !skip || i == len(x.Values)-1 {
			out = join(out, s)
		}
		if known && !skip {
			for _, rest := range x.Values[i+1:] {
				a.eval(rest)
			}
			break
		}
	}
	return out
}

func (a *analysis) ifExp(x *syntax.IfExp) set {
	yes, known := a.condition(x.Test)
	t, e := a.evalRef(x.X), a.evalRef(x.Else)
	switch {
	case known && yes:
		return t
	case known:
		return e
	}
	return join(t, e)
}

func (a *analysis) compare(x *syntax.Compare) set {
	left := a.evalRef(x.Left)
	out := boolean(true)
	for i, r := range x.Rights {
		right := a.evalRef(r)
		res := compareOne(x.Ops[i], left, right)
		if v, ok := res.single(); !ok {
			out = unknown
		} else if v.n == 0 && !out.unk {
			out = res
		}
		left = right
	}
	return out
}

func compareOne(op syntax.CompareOp, l, r set) set {
	x, ok := l.single()
	y, ok2 := r.single()
	if !ok || !ok2 {
		return unknown
	}
	if x.k == vBool {
		x.k = vInt
	}
	if y.k == vBool {
		y.k = vInt
	}
	text := x.k == vStr && y.k == vStr && !hasHole(x.s) && !hasHole(y.s) || x.k == vBytes && y.k == vBytes
	num := x.k == vInt && y.k == vInt
	cmp := 0
	switch {
	case text:
		cmp = strings.Compare(x.s, y.s)
	case num && x.n < y.n:
		cmp = -1
	case num && x.n > y.n:
		cmp = 1
	}
	switch op {
	case syntax.In, syntax.NotIn:
		return contains(x, y, text, op == syntax.NotIn)
	case syntax.Is, syntax.IsNot:
		if x.k == vNone || y.k == vNone {
			return boolean((x.k == y.k) == (op == syntax.Is))
		}
		return unknown
	case syntax.Eq, syntax.NotEq:
		if text || num {
			return boolean((cmp == 0) == (op == syntax.Eq))
		}
		return unknown
	}
	if !text && !num {
		return unknown
	}
	switch op {
	case syntax.Lt:
		return boolean(cmp < 0)
	case syntax.LtE:
		return boolean(cmp <= 0)
	case syntax.Gt:
		return boolean(cmp > 0)
	}
	return boolean(cmp >= 0)
}

func contains(x, y value, text, not bool) set {
	if text {
		return boolean(strings.Contains(y.s, x.s) != not)
	}
	if q, ok := y.p.(*sequence); ok && y.k == vSeq && !q.fuzzy {
		for _, it := range q.items {
			v, ok := it.single()
			if !ok || v.k == vStr && hasHole(v.s) {
				return unknown
			}
			if v == x {
				return boolean(!not)
			}
			if v.k != x.k {
				return unknown
			}
		}
		return boolean(not)
	}
	return unknown
}

// concrete is the sequence of items that an iterable is known to give.
func (a *analysis) concrete(s set) (*sequence, bool) {
	v, ok := s.single()
	if !ok {
		return nil, false
	}
	switch v.k {
	case vSeq:
		q := v.p.(*sequence)
		// The loop may change the list it runs over.
		return &sequence{items: q.items, kind: q.kind}, !q.fuzzy && q.kind != 's'
	case vMap:
		m := v.p.(*mapping)
		q := &sequence{}
		for _, k := range m.keys {
			q.items = append(q.items, one(k))
		}
		return q, !m.fuzzy
	case vStr, vBytes:
		if v.k == vStr && hasHole(v.s) || len(v.s) > maxItems {
			return nil, false
		}
		q := &sequence{}
		if v.k == vBytes {
			for i := 0; i < len(v.s); i++ {
				q.items = append(q.items, integer(int64(v.s[i])).with(s))
			}
			return q, true
		}
		for _, r := range v.s {
			q.items = append(q.items, str(string(r)).with(s))
		}
		return q, true
	}
	return nil, false
}

// elements is what any item of an iterable may be.
func (a *analysis) elements(s set) set {
	out := set{unk: s.unk || len(s.vs) == 0, t: s.t, src: s.src}
	for _, v := range s.vs {
		switch v.k {
		case vSeq:
			out = join(out, v.p.(*sequence).union())
		case vMap:
			m := v.p.(*mapping)
			out.unk = out.unk || m.fuzzy
			for _, k := range m.keys[:min(len(m.keys), 256)] {
				out = join(out, one(k))
			}
		case vSym:
			switch v.s {
			case "os.environ", "os.environb":
				a.dumpEnv("iterated over")
			case "sys.modules":
				continue // only names
			}
			out.unk = true
		case vInst:
			out = join(out, a.instanceItem(v))
		case vDict:
			a.namespace(v, "iterated over")
			out.unk = true
		default:
			out.unk = true
		}
	}
	return out
}

// instanceItem is what iterating over an object of the table gives.
func (a *analysis) instanceItem(v value) set {
	if e, ok := table().lookup(v.s + ".__iter__"); ok && e.result != "" {
		return one(value{k: vInst, s: e.result, p: v.p})
	}
	if in, ok := v.p.(*instance); ok && v.s == "io.file" && in.addr != "" {
		return set{unk: true, t: file, src: []string{in.addr}}
	}
	return unknown
}
