package javascript

import (
	"github.com/tdewolff/parse/v2/js"
)

// ctrl is how a statement ends, where that is certain.
type ctrl struct {
	kind  ctrlKind
	label string
	value set // thrown
}

type ctrlKind uint8

const (
	goesOn ctrlKind = iota
	breaks
	continues
	returns
	throws
)

// maxNest bounds the Go stack; the parser's own limit is 1000 levels a call.
const maxNest = 6000

// block runs statements: imports and functions first, as the language does.
func (a *analysis) block(stmts []js.IStmt) ctrl {
	for _, s := range stmts {
		switch s := s.(type) {
		case *js.ImportStmt:
			a.importStmt(s)
		case *js.FuncDecl:
			if s.Name != nil {
				a.declare(s.Name, a.closure(s.Name, &s.Params, &s.Body, s.Generator))
			}
		case *js.ExportStmt:
			if f, ok := s.Decl.(*js.FuncDecl); ok && f.Name != nil {
				a.declare(f.Name, a.closure(f.Name, &f.Params, &f.Body, f.Generator))
			}
		}
	}
	for i, s := range stmts {
		if c := a.stmt(s, ""); c.kind != goesOn {
			// What follows is dead, but for an attacker's idea of dead.
			a.dead(stmts[i+1:])
			return c
		}
		if a.stopped {
			break
		}
	}
	return ctrl{}
}

// dead runs statements behind a certain jump, once, for what they name.
func (a *analysis) dead(stmts []js.IStmt) {
	if len(stmts) == 0 || a.replay > 0 {
		return
	}
	a.cond++
	a.doubt++
	for _, s := range stmts {
		a.stmt(s, "")
	}
	a.doubt--
	a.cond--
}

func (a *analysis) maybe(s js.IStmt) ctrl {
	if s == nil {
		return ctrl{}
	}
	a.cond++
	c := a.stmt(s, "")
	a.cond--
	return c
}

func (a *analysis) stmt(s js.IStmt, label string) ctrl {
	if !a.tick() {
		return ctrl{}
	}
	a.nest++
	defer func() { a.nest-- }()
	if a.nest > maxNest {
		a.limit("JavaScript nested too deep")
		return ctrl{}
	}
	switch s := s.(type) {
	case *js.ExprStmt:
		a.eval(s.Value)
	case *js.VarDecl:
		a.varDecl(s)
	case *js.BlockStmt:
		return a.block(s.List)
	case *js.IfStmt:
		return a.ifStmt(s)
	case *js.ReturnStmt:
		v := undefined
		if s.Value != nil {
			v = a.value(s.Value)
		}
		f := a.owner()
		f.ret = join(f.ret, v)
		return ctrl{kind: returns}
	case *js.ForStmt:
		return a.forStmt(s, label)
	case *js.WhileStmt:
		return a.loop(turn{cond: s.Cond, body: s.Body}, label)
	case *js.DoWhileStmt:
		return a.loop(turn{cond: s.Cond, body: s.Body, first: true}, label)
	case *js.ForInStmt:
		return a.forEach(s.Init, a.keys(a.eval(s.Value)), s.Body, label)
	case *js.ForOfStmt:
		return a.forEach(s.Init, a.elements(a.eval(s.Value)), s.Body, label)
	case *js.SwitchStmt:
		return a.switchStmt(s, label)
	case *js.TryStmt:
		return a.tryStmt(s)
	case *js.ThrowStmt:
		v := a.value(s.Value)
		a.escape(v, unknown)
		return ctrl{kind: throws, value: v}
	case *js.BranchStmt:
		k := breaks
		if s.Type == js.ContinueToken {
			k = continues
		}
		return ctrl{kind: k, label: string(s.Label)}
	case *js.LabelledStmt:
		c := a.stmt(s.Value, string(s.Label))
		if c.kind == breaks && c.label == string(s.Label) {
			return ctrl{}
		}
		return c
	case *js.WithStmt:
		a.with = append(a.with[:len(a.with):len(a.with)], a.eval(s.Cond))
		c := a.stmt(s.Body, "")
		a.with = a.with[:len(a.with)-1]
		return c
	case *js.ClassDecl:
		v := a.class(s)
		if s.Name != nil {
			a.declare(s.Name, v)
		}
	case *js.ExportStmt:
		a.export(s)
	}
	return ctrl{}
}

func (a *analysis) varDecl(d *js.VarDecl) {
	for _, b := range d.List {
		if b.Binding == nil {
			continue
		}
		if b.Default == nil {
			if v, ok := b.Binding.(*js.Var); ok {
				if p, _ := a.find(resolve(v)); p != nil && d.TokenType == js.VarToken {
					continue
				}
				a.declare(v, undefined)
			}
			continue
		}
		if v, ok := b.Binding.(*js.Var); ok {
			a.declare(v, a.named(b.Default, identifier(v.Data)))
			continue
		}
		a.bind(b.Binding, a.eval(b.Default))
	}
}

// bind destructures s into a pattern.
func (a *analysis) bind(b js.IBinding, s set) {
	switch b := b.(type) {
	case *js.Var:
		a.declare(b, s)
	case *js.BindingObject:
		var taken []string
		for _, item := range b.List {
			var v set
			if item.Key == nil {
				if bv, ok := item.Value.Binding.(*js.Var); ok {
					name := identifier(bv.Data)
					taken = append(taken, name)
					v = a.member(s, name)
				}
			} else {
				key := a.propertyName(item.Key)
				if k, ok := key.text(); ok {
					taken = append(taken, k)
				}
				v = a.index(s, key)
			}
			a.bindElement(item.Value, v)
		}
		if b.Rest != nil {
			a.declare(b.Rest, a.without(s, taken))
		}
	case *js.BindingArray:
		items := a.items(s)
		for i, e := range b.List {
			a.bindElement(e, items.at(i))
		}
		if b.Rest != nil {
			a.bind(b.Rest, items.from(len(b.List), a.cond))
		}
	}
}

func (a *analysis) bindElement(e js.BindingElement, s set) {
	if e.Binding == nil {
		return
	}
	a.bind(e.Binding, a.orDefault(s, e.Default))
}

// orDefault is s, with the default in place of undefined.
func (a *analysis) orDefault(s set, def js.IExpr) set {
	if def == nil {
		return s
	}
	may, must := s.unk, len(s.vs) > 0 && !s.unk
	var rest []value
	for _, v := range s.vs {
		if v.k == vUndef {
			may = true
		} else {
			must = false
			rest = append(rest, v)
		}
	}
	if !may {
		return s
	}
	if must {
		return a.value(def)
	}
	a.cond++
	d := a.value(def)
	a.cond--
	s.vs = rest
	return join(s, d)
}

func (a *analysis) ifStmt(s *js.IfStmt) ctrl {
	b, known := truth(a.eval(s.Cond))
	if known {
		taken, other := s.Body, s.Else
		if !b {
			taken, other = s.Else, s.Body
		}
		var c ctrl
		if taken != nil {
			c = a.stmt(taken, "")
		}
		if other != nil {
			a.dead([]js.IStmt{other})
		}
		return c
	}
	c, d := a.maybe(s.Body), a.maybe(s.Else)
	return a.either(c, d, s.Else != nil)
}

// either is how one of two branches ends. A jump that is not certain is noted
// in the loop's and the function's state only.
func (a *analysis) either(c, d ctrl, both bool) ctrl {
	if both && c.kind == d.kind && c.label == d.label {
		c.value = join(c.value, d.value)
		return c
	}
	if c.kind == breaks || d.kind == breaks || c.kind == continues || d.kind == continues || c.kind == returns || d.kind == returns {
		a.uncertain = true
	}
	return ctrl{}
}

func (a *analysis) forStmt(s *js.ForStmt, label string) (c ctrl) {
	d, ok := s.Init.(*js.VarDecl)
	if !ok && s.Init != nil {
		a.eval(s.Init)
	}
	if !ok || d.TokenType == js.VarToken {
		if ok {
			a.varDecl(d)
		}
		return a.loop(turn{cond: s.Cond, post: s.Post, body: s.Body}, label)
	}
	a.inBlock(func() {
		a.varDecl(d)
		c = a.loop(turn{cond: s.Cond, post: s.Post, body: s.Body, let: true}, label)
	})
	return c
}

// nextTurn gives the loop's own names a copy, so that closures keep theirs.
func (a *analysis) nextTurn() {
	f := *a.frame
	f.vars = make(map[*js.Var]*set, len(a.frame.vars))
	for v, p := range a.frame.vars {
		s := *p
		f.vars[v] = &s
	}
	a.frame = &f
}

// turnOf runs a loop's body once.
func (a *analysis) turnOf(body js.IStmt) (c ctrl) {
	a.inBlock(func() { c = a.stmt(body, "") })
	return c
}

// turn is what a loop repeats. first: the body runs before the condition; let:
// the frame holds names that are new in each turn.
type turn struct {
	cond, post js.IExpr
	body       js.IStmt
	first, let bool
}

// maxTurns is how often a loop over constants is run.
const maxTurns = 4096

func (a *analysis) loop(t turn, label string) ctrl {
	outer := a.uncertain
	defer func() { a.uncertain = a.uncertain || outer }()
	for i := 0; ; i++ {
		if !t.first || i > 0 {
			b, known := true, true
			if t.cond != nil {
				b, known = truth(a.eval(t.cond))
			}
			if known && !b {
				if i == 0 {
					a.dead([]js.IStmt{t.body})
				}
				return ctrl{}
			}
			if !known || i >= maxTurns || a.inline > maxInline || a.stopped {
				return a.someTurns(t)
			}
		}
		if i == 1 {
			a.replay++
			defer func() { a.replay-- }()
		}
		a.uncertain = false
		c := a.turnOf(t.body)
		switch {
		case c.kind == breaks && (c.label == "" || c.label == label):
			return ctrl{}
		case c.kind == continues && (c.label == "" || c.label == label), c.kind == goesOn:
		default:
			return c
		}
		if a.uncertain {
			return a.someTurns(t)
		}
		if t.let {
			a.nextTurn()
		}
		if t.post != nil {
			a.eval(t.post)
		}
	}
}

// someTurns runs a loop of unknown length: what it assigns can be anything.
func (a *analysis) someTurns(t turn) ctrl {
	a.havoc(t.body)
	if t.post != nil {
		a.havoc(t.post)
	}
	if t.cond != nil {
		a.havoc(t.cond)
	}
	a.cond++
	a.turnOf(t.body)
	if t.post != nil {
		a.eval(t.post)
	}
	if t.cond != nil {
		a.eval(t.cond)
	}
	a.cond--
	return ctrl{}
}

func (a *analysis) forEach(init js.IExpr, items array, body *js.BlockStmt, label string) ctrl {
	outer := a.uncertain
	defer func() { a.uncertain = a.uncertain || outer }()
	assign := func(s set) {
		if d, ok := init.(*js.VarDecl); ok {
			if len(d.List) > 0 && d.List[0].Binding != nil {
				a.bind(d.List[0].Binding, s)
			}
			return
		}
		a.assign(init, s)
	}
	for i, s := range items.items {
		if i == 1 {
			a.replay++
			defer func() { a.replay-- }()
		}
		if i > 0 && a.inline > maxInline || a.stopped {
			items.fuzzy = true
			for _, s := range items.items[i:] {
				items.rest = join(items.rest, s)
			}
			break
		}
		a.uncertain = false
		var c ctrl
		a.inBlock(func() {
			assign(s)
			c = a.block(body.List)
		})
		switch {
		case c.kind == breaks && (c.label == "" || c.label == label):
			return ctrl{}
		case c.kind == continues && (c.label == "" || c.label == label), c.kind == goesOn:
		default:
			return c
		}
	}
	if !items.fuzzy {
		if len(items.items) == 0 {
			a.dead([]js.IStmt{body})
		}
		return ctrl{}
	}
	a.havoc(body)
	a.cond++
	rest := items.rest
	rest.unk = true
	a.inBlock(func() {
		assign(rest)
		a.block(body.List)
	})
	a.cond--
	return ctrl{}
}

func (a *analysis) switchStmt(s *js.SwitchStmt, label string) ctrl {
	v := a.eval(s.Init)
	start, known := -1, true
	for i, c := range s.List {
		if c.Cond == nil {
			continue
		}
		eq, ok := strictEqual(v, a.eval(c.Cond))
		if !ok {
			known = false
		} else if eq && start < 0 {
			start = i
			break
		}
	}
	if known {
		for i, c := range s.List {
			if start < 0 && c.Cond == nil {
				start = i
			}
		}
		if start < 0 {
			return ctrl{}
		}
		for i, c := range s.List {
			if i < start {
				a.dead(c.List)
				continue
			}
			if r := a.block(c.List); r.kind == breaks && r.label == "" {
				for _, c := range s.List[i+1:] {
					a.dead(c.List)
				}
				return ctrl{}
			} else if r.kind != goesOn {
				return r
			}
		}
		return ctrl{}
	}
	a.cond++
	for _, c := range s.List {
		if r := a.block(c.List); r.kind > continues || r.kind == continues {
			a.uncertain = true
		}
	}
	a.cond--
	return ctrl{}
}

func (a *analysis) tryStmt(s *js.TryStmt) ctrl {
	var c ctrl
	if s.Catch == nil {
		c = a.block(s.Body.List)
	} else {
		// It may stop anywhere: what it assigns is not certain.
		a.cond++
		a.inBlock(func() { c = a.block(s.Body.List) })
		a.cond--
	}
	if s.Catch != nil {
		if c.kind == throws {
			if s.Binding != nil {
				a.bind(s.Binding, c.value)
			}
			c = a.block(s.Catch.List)
		} else {
			a.cond++
			if s.Binding != nil {
				a.bind(s.Binding, unknown)
			}
			a.block(s.Catch.List)
			a.cond--
		}
	}
	if s.Finally != nil {
		if f := a.block(s.Finally.List); f.kind != goesOn {
			return f
		}
	}
	return c
}

// havoc makes every name that n assigns possibly something else.
func (a *analysis) havoc(n js.INode) {
	h := assigned{a: a}
	js.Walk(&h, n)
	for _, v := range h.vars {
		if p, _ := a.find(resolve(v)); p != nil {
			s := *p
			s.unk = true
			*p = s
		}
	}
}

// assigned collects the names that a node assigns.
type assigned struct {
	a    *analysis
	vars []*js.Var
}

func (h *assigned) Enter(n js.INode) js.IVisitor {
	h.a.charge(8)
	if h.a.stopped || h.a.steps > maxSteps {
		return nil
	}
	switch n := n.(type) {
	case *js.BinaryExpr:
		if isAssign(n.Op) {
			h.target(n.X)
		}
	case *js.UnaryExpr:
		switch n.Op {
		case js.PreIncrToken, js.PreDecrToken, js.PostIncrToken, js.PostDecrToken:
			h.target(n.X)
		}
	}
	return h
}

func (h *assigned) Exit(js.INode) {}

func (h *assigned) target(e js.IExpr) {
	switch e := e.(type) {
	case *js.Var:
		h.vars = append(h.vars, e)
	case *js.GroupExpr:
		h.target(e.X)
	case *js.ArrayExpr:
		for _, i := range e.List {
			if i.Value != nil {
				h.target(i.Value)
			}
		}
	case *js.ObjectExpr:
		for _, p := range e.List {
			h.target(p.Value)
		}
	case *js.BinaryExpr:
		h.target(e.X)
	}
}

func (a *analysis) importStmt(s *js.ImportStmt) {
	spec, _ := unquote(s.Module)
	m := a.load(str(spec), loadImport)
	bind := func(name []byte, v set) {
		if len(a.imports) < maxItems {
			a.imports[identifier(name)] = v
		}
	}
	if s.Default != nil {
		bind(s.Default, a.member(m, "default"))
	}
	for _, al := range s.List {
		switch {
		case al.Binding == nil:
		case string(al.Name) == "*":
			bind(al.Binding, m)
		default:
			bind(al.Binding, a.member(m, exportName(al)))
		}
	}
}

func exportName(al js.Alias) string {
	n := al.Name
	if n == nil {
		n = al.Binding
	}
	if len(n) > 0 && (n[0] == '"' || n[0] == '\'') {
		s, _ := unquote(n)
		return s
	}
	return identifier(n)
}

// moduleName is what a name at the top of the module holds.
func (a *analysis) moduleName(name []byte) set {
	if a.top != nil {
		a.charge(4 * len(a.top.Declared))
		for _, v := range a.top.Declared {
			if string(v.Data) == string(name) {
				return a.lookup(v)
			}
		}
	}
	if s, ok := a.imports[identifier(name)]; ok {
		return s
	}
	return unknown
}

func (a *analysis) export(s *js.ExportStmt) {
	if s.Module != nil {
		spec, _ := unquote(s.Module)
		m := a.load(str(spec), loadImport)
		for _, al := range s.List {
			if al.Name == nil && al.Binding == nil {
				continue
			}
			name := exportName(al)
			if name == "*" || string(al.Binding) == "*" {
				a.escape(m, unknown)
			} else {
				a.escape(a.member(m, name), unknown)
			}
		}
		return
	}
	switch d := s.Decl.(type) {
	case nil:
		for _, al := range s.List {
			a.exportValue(a.moduleName(firstOf(al.Name, al.Binding)))
		}
	case *js.VarDecl:
		a.varDecl(d)
		for _, b := range d.List {
			if v, ok := b.Binding.(*js.Var); ok {
				a.exportValue(a.lookup(v))
			}
		}
	case *js.FuncDecl:
		if d.Name == nil {
			a.closure(nil, &d.Params, &d.Body, d.Generator)
		}
	case *js.ClassDecl:
		a.stmt(d, "")
	default:
		a.exportValue(a.value(d))
	}
}

// exportValue hands a value to whoever imports the module: functions of the code
// are run at the end in any case.
func (a *analysis) exportValue(s set) {
	var rest set
	for _, v := range s.vs {
		if v.k != vFunc && v.k != vClass {
			rest.vs = append(rest.vs, v)
		}
	}
	a.escape(rest, unknown)
}

func firstOf(x, y []byte) []byte {
	if x != nil {
		return x
	}
	return y
}
