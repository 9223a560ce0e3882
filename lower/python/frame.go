package python

import (
	"context"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// analysis is one reading of one module.
type analysis struct {
	ctx  context.Context
	env  Env
	text string

	effects []cordon.Effect
	seen    map[effectKey]int
	via     []string
	sym     string // the function whose call is being read

	root, frame *frame
	scopes      map[any]*scope
	journal     []undo
	// uncertain counts the branches and loops around the statement that may
	// not run, or not once.
	uncertain int
	// maybe counts those of them whose body may not run at all: what a list
	// is given there may not be in it.
	maybe    int
	flow     flow
	deferred bool
	grew     bool // an attribute of an object of the code got a new value
	noref    int
	pass     int

	steps, lavish, hard int
	depth, calls, code  int
	loops, endless      int
	stopped             bool

	fields  map[string]set // what attributes of unknown objects were set to
	order   []any          // the nodes of all functions, to be run at the end of a pass
	known   map[any]*function
	dead    map[any]int // dead code that was read, by pass
	globals map[string]bool
	stars   []string // modules imported with *
	dirs    []string // working directories, the latest first

	// idle counts the branches around the statement that, by all that is
	// known, do not run.
	idle int
	// who is the function being read for whoever may call it; by lays
	// effects to such functions, where no other code has them.
	who     any
	by      map[int][]any
	classes []definition

	facts facts
}

// definition is a class statement of the text itself.
type definition struct {
	at    *syntax.ClassDef
	class *class
}

// facts is what is known about the module as a whole, for judgements that
// need two places.
type facts struct {
	connected   []string        // hosts that sockets were connected to
	shellFD     bool            // a socket became a standard stream or a shell's
	pty         bool            // a terminal was given to a program
	dup         bool            // dup2 onto a standard stream
	written     map[string]bool // files written
	literals    []string        // literals that look like paths of secrets
	blindFile   bool            // a file was opened whose path is not known
	docstrings  []string
	annotations []string // annotations that are strings
	blindHint   bool     // one of them is decoded and cannot be told
	imports     []string
}

type flow uint8

const (
	onward flow = iota
	breaks
	continues
	returns
)

// scope is what is known of a name space before it runs.
type scope struct {
	locals    map[string]bool
	globals   map[string]bool
	nonlocals map[string]bool
	all       map[string]set // every value a name was ever given
	yields    bool
	nested    bool // functions or classes are defined in it
}

type frameKind uint8

const (
	moduleFrame frameKind = iota
	classFrame
	functionFrame
	compFrame
)

// frame is a name space while it runs.
type frame struct {
	kind   frameKind
	info   *scope
	cur    map[string]set
	outer  *frame
	ret    set
	yields []set
	base   int // analysis.uncertain at its start
	self   *class
	fn     *function
	gone   bool // it has returned, and nothing else sees its names
}

type undo struct {
	f    *frame
	name string
	old  set
	had  bool
}

func newAnalysis(ctx context.Context, f *syntax.File, env Env) *analysis {
	a := &analysis{ctx: ctx, env: env, text: f.Text, seen: map[effectKey]int{}, scopes: map[any]*scope{}}
	a.lavish = 20_000 + len(f.Text)/8
	a.hard = 200_000 + 4*len(f.Text)
	a.facts.written = map[string]bool{}
	return a
}

// module runs the body, and a second time where functions set what others may
// have read before: by then it is known what names and attributes may hold.
func (a *analysis) module(body []syntax.Stmt) {
	info := a.scopeOf(a, body, nil)
	limit := a.lavish
	defer a.weaken()
	for a.pass = 1; a.pass <= 2; a.pass++ {
		a.lavish = a.steps + limit
		a.begin(info)
		a.block(body)
		a.deferredFunctions()
		a.conclude()
		if len(a.globals) == 0 && len(a.fields) == 0 {
			return
		}
	}
}

func (a *analysis) begin(info *scope) {
	a.root = &frame{kind: moduleFrame, info: info, cur: make(map[string]set, len(info.locals)+1)}
	a.frame = a.root
	a.journal, a.uncertain, a.maybe, a.idle, a.flow, a.deferred = a.journal[:0], 0, 0, 0, onward, false
	a.classes = nil
	a.order, a.known, a.dead = nil, map[any]*function{}, map[any]int{}
	a.dirs = []string{a.env.Dir}
	if a.fields == nil {
		a.fields = map[string]set{}
		a.globals = map[string]bool{}
	}
	a.root.cur["__name__"] = str("__main__")
}

// deferredFunctions runs what was defined and not called, for whoever may
// call it; again, where one sets an attribute that another may have read.
func (a *analysis) deferredFunctions() {
	a.deferred = true
	called := make(map[any]bool, len(a.order))
	for _, key := range a.order {
		called[key] = a.known[key].visited == a.pass
	}
	for range 2 {
		a.grew = false
		for i := 0; i < len(a.order) && !a.stopped; i++ {
			key := a.order[i]
			if fn := a.known[key]; !called[key] {
				fn.visited = 0
				a.who = key
				a.invoke(fn, &call{unknownArgs: true})
				a.who = nil
			}
		}
		if !a.grew {
			return
		}
	}
}

// scopeOf collects the names that a body binds. params may be nil.
func (a *analysis) scopeOf(key any, body []syntax.Stmt, params []syntax.Param) *scope {
	if s, ok := a.scopes[key]; ok {
		return s
	}
	s := &scope{locals: make(map[string]bool, len(params))}
	a.scopes[key] = s
	for _, p := range params {
		s.locals[p.Name] = true
	}
	a.collect(s, body)
	for n := range s.globals {
		delete(s.locals, n)
	}
	for n := range s.nonlocals {
		delete(s.locals, n)
	}
	s.all = make(map[string]set, len(s.locals))
	return s
}

func (a *analysis) collect(s *scope, body []syntax.Stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *syntax.FunctionDef:
			s.locals[st.Name] = true
			s.nested = true
		case *syntax.ClassDef:
			s.locals[st.Name] = true
			s.nested = true
		case *syntax.Assign:
			for _, t := range st.Targets {
				s.target(t)
			}
		case *syntax.AugAssign:
			s.target(st.Target)
		case *syntax.AnnAssign:
			s.target(st.Target)
		case *syntax.TypeAlias:
			s.locals[st.Name.ID] = true
		case *syntax.For:
			s.target(st.Target)
			a.collect(s, st.Body)
			a.collect(s, st.Else)
		case *syntax.While:
			a.collect(s, st.Body)
			a.collect(s, st.Else)
		case *syntax.If:
			for _, c := range st.Clauses {
				a.collect(s, c.Body)
			}
			a.collect(s, st.Else)
		case *syntax.With:
			for _, it := range st.Items {
				s.target(it.Target)
			}
			a.collect(s, st.Body)
		case *syntax.Match:
			for _, c := range st.Cases {
				s.pattern(c.Pattern)
				a.collect(s, c.Body)
			}
		case *syntax.Try:
			a.collect(s, st.Body)
			for _, h := range st.Handlers {
				if h.Name != "" {
					s.locals[h.Name] = true
				}
				a.collect(s, h.Body)
			}
			a.collect(s, st.Else)
			a.collect(s, st.Finally)
		case *syntax.Import:
			for _, n := range st.Names {
				s.locals[boundName(n)] = true
			}
		case *syntax.ImportFrom:
			for _, n := range st.Names {
				s.locals[boundName(n)] = true
			}
		case *syntax.Scope:
			a.declare(s, st)
		}
	}
}

func (a *analysis) declare(s *scope, st *syntax.Scope) {
	m := &s.globals
	if st.Nonlocal {
		m = &s.nonlocals
	}
	if *m == nil {
		*m = map[string]bool{}
	}
	for _, n := range st.Names {
		(*m)[n] = true
		if !st.Nonlocal && a.globals != nil {
			a.globals[n] = true
		}
	}
}

func (s *scope) target(x syntax.Expr) {
	switch x := x.(type) {
	case *syntax.Name:
		s.locals[x.ID] = true
	case *syntax.Seq:
		for _, e := range x.Elts {
			s.target(e)
		}
	case *syntax.Starred:
		s.target(x.X)
	}
}

func (s *scope) pattern(p *syntax.Pattern) {
	if p.Name != "" {
		s.locals[p.Name] = true
	}
	for _, q := range p.Subs {
		s.pattern(q)
	}
}

func boundName(n syntax.Alias) string {
	if n.As != "" {
		return n.As
	}
	for i := 0; i < len(n.Name); i++ {
		if n.Name[i] == '.' {
			return n.Name[:i]
		}
	}
	return n.Name
}

// target finds the frame in which an assignment to name lands.
func (a *analysis) owner(name string) *frame {
	f := a.frame
	for f.kind == compFrame {
		f = f.outer
	}
	if f.info.globals[name] {
		return a.root
	}
	if f.info.nonlocals[name] {
		for g := f.outer; g != nil; g = g.outer {
			if g.kind == functionFrame {
				if _, ok := g.cur[name]; ok || g.info.locals[name] {
					return g
				}
			}
		}
	}
	return f
}

func (a *analysis) assign(name string, s set) { a.setIn(a.owner(name), name, s) }

func (a *analysis) setIn(f *frame, name string, s set) {
	old, had := f.cur[name]
	if a.uncertain > 0 {
		a.journal = append(a.journal, undo{f, name, old, had})
	}
	f.cur[name] = s
	if f.kind == moduleFrame || f.info.nested {
		f.info.all[name] = join(f.info.all[name], s)
	}
}

func (a *analysis) unset(name string) {
	f := a.owner(name)
	if old, had := f.cur[name]; had {
		if a.uncertain > 0 {
			a.journal = append(a.journal, undo{f, name, old, had})
		}
		delete(f.cur, name)
	}
}

type variable struct {
	f    *frame
	name string
}

// changedSince lists the variables assigned since mark, each once.
func (a *analysis) changedSince(mark int) []variable {
	if len(a.journal) == mark {
		return nil
	}
	seen := make(map[variable]bool, len(a.journal)-mark)
	var out []variable
	for _, u := range a.journal[mark:] {
		v := variable{u.f, u.name}
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// forget drops the journal of frames that are gone.
func (a *analysis) forget(mark int) {
	kept := a.journal[:mark]
	for _, u := range a.journal[mark:] {
		if !u.f.gone {
			kept = append(kept, u)
		}
	}
	a.journal = kept
}

func (a *analysis) rollback(mark int) {
	for i := len(a.journal) - 1; i >= mark; i-- {
		u := a.journal[i]
		if u.had {
			u.f.cur[u.name] = u.old
		} else {
			delete(u.f.cur, u.name)
		}
	}
	a.journal = a.journal[:mark]
}

// branches runs alternatives from the same state; afterwards each variable
// holds what it does at the end of any of them. With none, none of them may
// have run.
func (a *analysis) branches(none bool, alts ...func()) {
	mark := len(a.journal)
	a.steps += 4
	a.uncertain++
	a.maybe++
	ends := make([]map[variable]set, 0, len(alts))
	var changed []variable
	flow := a.flow
	for _, alt := range alts {
		alt()
		a.flow = flow
		if len(a.journal) == mark {
			ends = append(ends, nil)
			continue
		}
		end := map[variable]set{}
		for _, v := range a.changedSince(mark) {
			if s, ok := v.f.cur[v.name]; ok {
				end[v] = s
			} else {
				end[v] = set{unk: true}
			}
			changed = append(changed, v)
		}
		ends = append(ends, end)
		a.rollback(mark)
	}
	a.uncertain--
	a.maybe--
	if len(changed) == 0 {
		return
	}
	done := map[variable]bool{}
	for _, v := range changed {
		if done[v] {
			continue
		}
		done[v] = true
		old, had := v.f.cur[v.name]
		if !had {
			old = a.unbound(v)
		}
		var s set
		if none {
			s = old
		}
		for _, end := range ends {
			if e, ok := end[v]; ok {
				s = join(s, e)
			} else {
				s = join(s, old)
			}
		}
		a.setIn(v.f, v.name, s)
	}
}

// unbound is what a name means in a frame that has not bound it: in a module
// or class body the builtin of that name, which a binding that may not happen
// must not hide.
func (a *analysis) unbound(v variable) set {
	if v.f.kind == functionFrame || v.f.kind == compFrame {
		return set{}
	}
	if s, ok := builtin(v.name); ok {
		return s
	}
	return set{}
}

// blur gives each variable changed since mark all the values it had on the
// way.
func (a *analysis) blur(mark int) {
	for _, v := range a.changedSince(mark) {
		s := v.f.cur[v.name]
		for _, u := range a.journal[mark:] {
			if u.f == v.f && u.name == v.name && u.had {
				s = join(s, u.old)
			}
		}
		a.setIn(v.f, v.name, s)
	}
}

// sideways runs f for its effects and puts the state back.
func (a *analysis) sideways(key any, f func()) {
	if a.dead[key] == a.pass {
		return
	}
	a.dead[key] = a.pass
	mark := len(a.journal)
	flow := a.flow
	a.uncertain++
	a.maybe++
	a.idle++
	a.flow = onward
	f()
	a.idle--
	a.flow = flow
	a.uncertain--
	a.maybe--
	a.rollback(mark)
}

// lookup is what a name may hold here.
func (a *analysis) lookup(name string) set {
	own := a.frame
	for own.kind == compFrame {
		own = own.outer
	}
	for f := a.frame; f != nil; f = f.outer {
		if f.kind == classFrame && f != own {
			continue
		}
		if f.info.globals[name] {
			f = a.root
		}
		s, ok := f.cur[name]
		switch {
		case ok && (a.deferred && f != a.frame || f == a.root && a.globals[name]):
			return join(s, f.info.all[name])
		case ok:
			return s
		case f.info.locals[name]:
			all := f.info.all[name]
			if f.kind == functionFrame {
				all.unk = true
				return all
			}
			return join(all, a.global(name))
		}
	}
	return a.global(name)
}

// known: something is known of the function or constant.
func known(q string) bool {
	if table().has(q) {
		return true
	}
	_, isPure := pures()[q]
	_, isSpecial := specials()[q]
	_, isDecoder := decoders()[q]
	_, isConst := table().consts[q]
	return isPure || isSpecial || isDecoder || isConst || table().modules[q] || q == "os.environ" || q == "os.environb" || q == "sys.modules" || q == "sys.argv" || q == "os.path"
}

// global is a builtin or what a star import brought.
func (a *analysis) global(name string) set {
	out, ok := builtin(name)
	for _, m := range a.stars {
		q := canonical(m + "." + name)
		if known(q) || !ok && table().rest[canonical(m)] != nil {
			out = join(out, a.moduleAttr(m, name))
			ok = true
		}
	}
	if !ok {
		return unknown
	}
	return out
}
