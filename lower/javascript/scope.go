package javascript

import (
	"context"
	"time"

	"github.com/tdewolff/parse/v2/js"

	"github.com/cordon-sandbox/cordon"
)

// analysis is the abstract run of one program.
type analysis struct {
	ctx context.Context
	env Env
	// effects found, and their places by identity.
	effects []cordon.Effect
	seen    map[string]int
	via     []string
	sym     string // the call being read
	stopped bool
	quiet   int // nothing is emitted
	doubt   int // what is emitted may not happen
	// cond counts the unknown conditions around the statement being run: a
	// name made under fewer keeps its old value as well.
	cond  int
	frame *frame
	with  []set
	// globals are properties of the global object that the code made.
	globals map[string]set
	imports map[string]set // names that import statements made
	// functions made so far, in order; later holds those that somebody
	// outside the code may call, with the argument they get.
	functions []*function
	later     []deferred
	// patched are built-in functions that the code replaced, by full name;
	// those of prototypes by ".name".
	patched   map[string]set
	ran       map[*js.BlockStmt]bool
	running   map[*js.BlockStmt]int // the cond+1 at which a function runs
	escaped   map[any]bool
	written   map[string]set // files that the code wrote
	cwd       string
	steps     int // all
	inline    int // of code that is run once more
	nest      int // of the Go stack
	calls     int // depth of calls
	codeDepth int
	replay    int // >0: code that was run before
	sockets   []cordon.Effect
	rewritten []string // URLs that assignments to their members made
	shells    int
	symbols   int
	reversed  bool
	names     []*frame  // around code strings
	uncertain bool      // a jump happened that may not happen
	result    set       // of the last code string
	top       *js.Scope // of the program
}

type deferred struct {
	fn   value
	args []set
}

// frame holds the names of one call of a function, or of the program.
type frame struct {
	parent *frame
	vars   map[*js.Var]*set
	base   int // cond when it was made
	this   set
	fn     *function
	args   set // of the call, for "arguments"
	ret    set
	home   *class // whose method it is, for "super"
	block  bool   // of one turn of a loop or a try, not of a call
	yields bool   // ret collects what a generator yields
}

// function is a function of the code.
type function struct {
	name   string
	params *js.Params
	body   *js.BlockStmt
	frame  *frame
	with   []set
	arrow  bool
	gen    bool
	home   *class
	static bool
	ctor   bool
	props  *object
}

// class is a class of the code.
type class struct {
	name    string
	super   set
	statics *object
	proto   *object
	fields  []js.ClassElement
	ctor    *function
	frame   *frame
}

func newAnalysis(ctx context.Context, env Env) *analysis {
	return &analysis{ctx: ctx, env: env, cwd: env.Dir, seen: map[string]int{}, globals: map[string]set{}, imports: map[string]set{},
		patched: map[string]set{}, ran: map[*js.BlockStmt]bool{}, running: map[*js.BlockStmt]int{}, escaped: map[any]bool{}, written: map[string]set{}}
}

// run runs a tree as a program.
func (a *analysis) run(t *js.AST) {
	old := a.frame
	a.frame = &frame{parent: old, vars: map[*js.Var]*set{}, base: a.cond, this: sym("globalThis")}
	a.top = &t.Scope
	a.block(t.List)
	a.drain()
	a.frame = old
}

// drain runs what the program left to be called: handlers and callbacks with
// what is known of their arguments, then functions that nobody called.
func (a *analysis) drain() {
	a.cond++
	for len(a.later) > 0 && !a.stopped {
		d := a.later[0]
		a.later = a.later[1:]
		a.callValue(d.fn, unknown, d.args)
	}
	for i := 0; i < len(a.functions) && !a.stopped; i++ {
		f := a.functions[i]
		if a.ran[f.body] {
			continue
		}
		a.doubt++
		a.runFunction(f, a.receiver(f), nil, true)
		a.doubt--
		for len(a.later) > 0 && !a.stopped {
			d := a.later[0]
			a.later = a.later[1:]
			a.doubt++
			a.callValue(d.fn, unknown, d.args)
			a.doubt--
		}
	}
	a.functions = nil
	a.cond--
}

// receiver is what "this" is in a function that nobody was seen to call.
func (a *analysis) receiver(f *function) set {
	if f.home == nil {
		return unknown
	}
	if f.static {
		return one(value{k: vClass, p: f.home})
	}
	return a.instance(f.home)
}

// tick counts a step; false means that the limits are reached.
func (a *analysis) tick() bool {
	a.steps++
	if a.replay > 0 {
		a.inline++
	}
	if a.stopped {
		return false
	}
	if a.steps > maxSteps {
		a.limit("work on JavaScript")
		return false
	}
	if a.steps&0xfff == 0 {
		if err := a.ctx.Err(); err != nil {
			a.limit("time for JavaScript")
			return false
		}
		if d, ok := a.ctx.Deadline(); ok && time.Until(d) <= 0 {
			a.limit("time for JavaScript")
			return false
		}
	}
	return true
}

// charge counts work on a value of n bytes or items.
func (a *analysis) charge(n int) {
	n /= 32
	a.steps += n
	if a.replay > 0 {
		a.inline += n
	}
}

// inBlock runs f with names of its own, of which closures keep this turn's.
func (a *analysis) inBlock(f func()) {
	outer := a.frame
	a.frame = &frame{parent: outer, vars: map[*js.Var]*set{}, base: a.cond, block: true}
	f()
	a.frame = outer
}

// owner is the frame of the call that runs.
func (a *analysis) owner() *frame {
	f := a.frame
	for f.block && f.parent != nil {
		f = f.parent
	}
	return f
}

// resolve is the variable that a use stands for.
func resolve(v *js.Var) *js.Var {
	for v.Link != nil {
		v = v.Link
	}
	return v
}

// find is the place of a declared variable, or nil.
func (a *analysis) find(v *js.Var) (*set, *frame) {
	for f := a.frame; f != nil; f = f.parent {
		if p, ok := f.vars[v]; ok {
			return p, f
		}
	}
	return nil, nil
}

// declare makes a name in the present frame. A name that is declared again in
// a loop or branch keeps its earlier values where that is uncertain.
func (a *analysis) declare(v *js.Var, s set) {
	v = resolve(v)
	if v.Decl == js.NoDecl {
		a.assignVar(v, s)
		return
	}
	in := a.frame
	if v.Decl == js.VariableDecl {
		in = a.owner()
	}
	if p, ok := in.vars[v]; ok {
		if a.cond > in.base {
			s = join(*p, s)
		}
		*p = s
		return
	}
	if in != a.frame && a.cond > in.base {
		s = join(undefined, s)
	}
	in.vars[v] = &s
}

// assignVar changes a name wherever it lives.
func (a *analysis) assignVar(v *js.Var, s set) {
	v = resolve(v)
	if p, f := a.find(v); p != nil {
		if a.cond > f.base {
			s = join(*p, s)
		}
		*p = s
		return
	}
	if v.Decl != js.NoDecl && v.Decl != js.VariableDecl {
		a.frame.vars[v] = &s
		return
	}
	name := identifier(v.Data)
	for i := len(a.with) - 1; i >= 0; i-- {
		a.setMember(a.with[i], str(name), s)
	}
	if v.Decl == js.VariableDecl {
		// Hoisted: it belongs to the function, or the program.
		a.owner().vars[v] = &s
		return
	}
	a.setGlobal(name, s)
}

func (a *analysis) setGlobal(name string, s set) {
	old, ok := a.globals[name]
	if a.cond > 0 || ok {
		if !ok {
			old = a.builtinGlobal(name)
		}
		s = join(old, s)
	}
	if len(a.globals) < maxItems {
		a.globals[name] = s
	}
}

// lookup is the value of a name.
func (a *analysis) lookup(v *js.Var) set {
	v = resolve(v)
	if p, _ := a.find(v); p != nil {
		return *p
	}
	name := identifier(v.Data)
	if v.Decl != js.NoDecl && len(a.with) == 0 {
		return unknown
	}
	if name == "arguments" {
		for f := a.frame; f != nil; f = f.parent {
			if f.fn != nil && !f.fn.arrow {
				return f.args
			}
		}
	}
	if s, ok := a.imports[name]; ok && v.Decl == js.NoDecl {
		return s
	}
	var out set
	for i := len(a.with) - 1; i >= 0; i-- {
		got, certain := a.withMember(a.with[i], name)
		out = join(out, got)
		if certain {
			return out
		}
	}
	if len(a.names) > 0 {
		if s, ok := a.byName(name); ok {
			return join(out, s)
		}
	}
	return join(out, a.global(name))
}

// withMember is what a name means inside with (o): certain where o surely has
// such a property.
func (a *analysis) withMember(o set, name string) (got set, certain bool) {
	v, ok := o.single()
	if !ok {
		if o.unk {
			got.unk = true
		}
		for _, v := range o.vs {
			s, _ := a.withMember(one(v), name)
			got = join(got, s)
		}
		return got, false
	}
	switch v.k {
	case vSym:
		if tables().has(v.s, name) {
			return a.symMember(v, name), true
		}
		if _, known := tables().global(name); v.s == "process.env" && !known {
			return a.readEnv(name), false
		}
	case vObject:
		if _, ok := v.p.(*object).props[name]; ok {
			return a.member(o, name), true
		}
		if v.p.(*object).open {
			got.unk = true
		}
	}
	return got, false
}

func (a *analysis) global(name string) set {
	if s, ok := a.globals[name]; ok {
		return s
	}
	return a.builtinGlobal(name)
}

func (a *analysis) builtinGlobal(name string) set {
	switch name {
	case "undefined":
		return undefined
	case "NaN":
		return num(nan)
	case "Infinity":
		return num(inf)
	case "__dirname":
		return str(a.env.Dir)
	case "__filename":
		return str(a.env.Dir + "/" + hole)
	}
	if to, ok := tables().global(name); ok {
		return sym(to)
	}
	return unknown
}
