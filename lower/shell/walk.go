package shell

import (
	"path"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cordon-sandbox/cordon"
)

// stdio is where a command's input comes from and its output goes to.
type stdio struct {
	in   *val  // nil: the terminal, or nothing
	out  *sink // nil: the terminal
	sock string
	// inPath is the file that stands on the input, if it is one.
	inPath val
}

// sink collects what commands print.
type sink struct{ v val }

func (s *sink) write(v val) {
	if s != nil {
		s.v = join(s.v, v)
	}
}

func (w *walker) stmts(l []*syntax.Stmt, io stdio) {
	for _, s := range l {
		if w.stopped {
			return
		}
		w.stmt(s, io)
	}
}

func (w *walker) stmt(s *syntax.Stmt, io stdio) {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxDepth {
		w.limit("nesting")
		return
	}
	if !w.spend(1) {
		return
	}
	if s.Background || s.Coprocess || s.Disown {
		m := w.names.mark()
		defer w.names.undo(m)
	}
	if call, ok := s.Cmd.(*syntax.CallExpr); ok || s.Cmd == nil {
		if s.Background && w.loops > 0 && call != nil && runsItself(call) {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Target: "$0"})
		}
		w.each(func() {
			inner, done := w.redirs(s.Redirs, io, s.Cmd == nil)
			if call != nil {
				w.call(call, inner)
			}
			done()
		})
		return
	}
	inner, done := w.redirs(s.Redirs, io, false)
	w.command(s.Cmd, inner)
	done()
}

func (w *walker) command(c syntax.Command, io stdio) {
	switch c := c.(type) {
	case *syntax.Block:
		w.stmts(c.Stmts, io)
	case *syntax.Subshell:
		m := w.names.mark()
		w.stmts(c.Stmts, io)
		w.names.undo(m)
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			w.pipeline(c, io)
		} else {
			w.list(c, io)
		}
	case *syntax.IfClause:
		w.ifClause(c, io)
	case *syntax.WhileClause:
		w.while(c, io)
	case *syntax.ForClause:
		w.forClause(c, io)
	case *syntax.CaseClause:
		w.caseClause(c, io)
	case *syntax.FuncDecl:
		w.funcDecl(c)
	case *syntax.ArithmCmd:
		w.arithm(c.X)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			w.arithm(x)
		}
	case *syntax.TestClause:
		w.testExpr(c.X)
	case *syntax.DeclClause:
		w.each(func() { w.declare(c.Variant.Value, c.Args, io) })
	case *syntax.TimeClause:
		if c.Stmt != nil {
			w.stmt(c.Stmt, io)
		}
	case *syntax.CoprocClause:
		m := w.names.mark()
		if c.Stmt != nil {
			w.stmt(c.Stmt, stdio{in: &val{s: mUnknown}})
		}
		w.names.undo(m)
	case *syntax.TestDecl:
		w.stmt(c.Body, io)
	}
}

// runsItself reports whether a command's words name the running script.
func runsItself(c *syntax.CallExpr) bool {
	found := false
	for _, a := range c.Args {
		syntax.Walk(a, func(n syntax.Node) bool {
			if p, ok := n.(*syntax.ParamExp); ok && p.Param != nil && p.Param.Value == "0" {
				found = true
			}
			return !found
		})
	}
	return found
}

func (w *walker) funcDecl(c *syntax.FuncDecl) {
	names := c.Names
	if c.Name != nil {
		names = append(names, c.Name)
	}
	for _, n := range names {
		w.names.set(keyFunc+n.Value, &slot{fn: &function{name: n.Value, body: c.Body, src: w.src}})
		if n.Value == "command_not_found_handle" || n.Value == "command_not_found_handler" {
			w.stmt(c.Body, stdio{})
		}
	}
	if len(names) == 0 {
		w.stmt(c.Body, stdio{})
	}
}

// pipeline runs a | b | c: each element in a subshell, its output the next
// one's input.
func (w *walker) pipeline(c *syntax.BinaryCmd, io stdio) {
	var elems []*syntax.Stmt
	for {
		elems = append(elems, c.Y)
		next, ok := c.X.Cmd.(*syntax.BinaryCmd)
		if !ok || next.Op != syntax.Pipe && next.Op != syntax.PipeAll || len(c.X.Redirs) > 0 {
			elems = append(elems, c.X)
			break
		}
		c = next
	}
	outer := w.pipe
	w.pipe = &pipeInfo{}
	in := io
	for i := len(elems) - 1; i >= 0; i-- {
		var out sink
		elem := stdio{in: in.in, out: &out, inPath: in.inPath, sock: io.sock}
		if i == 0 {
			elem.out = io.out
		}
		m := w.names.mark()
		if i > 0 {
			next := i - 1
			for next > 0 && isSort(elems[next]) {
				next--
			}
			if listsEnv(elems[i]) {
				w.pipe.picks = plainVariable(elems[next])
			}
		}
		w.stmt(elems[i], elem)
		w.pipe.picks = ""
		w.names.undo(m)
		in = stdio{in: &out.v}
	}
	p := w.pipe
	w.pipe = outer
	if p.shell && p.remote != "" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: p.remote, Op: "reverse_shell", Sends: true})
	}
	if outer != nil && p.remote != "" {
		outer.remote = p.remote
	}
	if outer != nil && p.shell {
		outer.shell = true
	}
}

// list runs a && b || c. What the right side changes may or may not have
// happened once the list is over.
func (w *walker) list(c *syntax.BinaryCmd, io stdio) {
	chain := []*syntax.BinaryCmd{c}
	for {
		x, ok := c.X.Cmd.(*syntax.BinaryCmd)
		if !ok || x.Op == syntax.Pipe || x.Op == syntax.PipeAll || len(c.X.Redirs) > 0 || c.X.Negated {
			break
		}
		c = x
		chain = append(chain, c)
	}
	w.stmt(c.X, io)
	sure := succeeds(c.X)
	var maybe []change
	for i := len(chain) - 1; i >= 0; i-- {
		b := chain[i]
		if b.Op == syntax.OrStmt {
			maybe = w.orElse(b.Y, maybe, io)
			sure = false
			continue
		}
		m := w.names.mark()
		w.stmt(b.Y, io)
		if !sure {
			maybe = append(maybe, w.names.since(m)...)
		}
		sure = sure && succeeds(b.Y)
	}
	w.blur(maybe)
}

// orElse runs the right side of ||: whatever the left side might have
// changed may be undone there.
func (w *walker) orElse(y *syntax.Stmt, maybe []change, io stdio) []change {
	m := w.names.mark()
	w.blur(maybe)
	w.stmt(y, io)
	if leaves(y) {
		w.names.undo(m)
		return maybe
	}
	d := w.names.undo(m)
	w.names.join(nil, d)
	return nil
}

func (w *walker) blur(maybe []change) {
	for _, c := range maybe {
		if now := w.names.get(c.key); now != c.old {
			w.names.set(c.key, either(c.key, c.old, now))
		}
	}
}

// succeeds reports whether a statement can be counted on to succeed.
func succeeds(s *syntax.Stmt) bool {
	if s.Negated {
		return false
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			return true
		}
		switch c.Args[0].Lit() {
		case "cd", "mkdir", "echo", "printf", "true", ":", "export", "set", "pushd", "shopt", "eval", "touch", "alias", "source", ".":
			return true
		}
	case *syntax.DeclClause, *syntax.FuncDecl:
		return true
	case *syntax.Block:
		return len(c.Stmts) > 0 && succeeds(c.Stmts[len(c.Stmts)-1])
	}
	return false
}

// leaves reports whether a statement ends the list it stands in.
func leaves(s *syntax.Stmt) bool {
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) > 0 {
			switch c.Args[0].Lit() {
			case "exit", "return", "continue", "break":
				return true
			}
		}
	case *syntax.Block:
		return leavesAll(c.Stmts)
	}
	return false
}

func leavesAll(l []*syntax.Stmt) bool { return len(l) > 0 && leaves(l[len(l)-1]) }

func (w *walker) branch(l []*syntax.Stmt, io stdio) (map[string]*slot, bool) {
	m := w.names.mark()
	w.stmts(l, io)
	return w.names.undo(m), leavesAll(l)
}

func (w *walker) ifClause(c *syntax.IfClause, io stdio) {
	var ends []map[string]*slot
	hasElse := false
	base := w.names.mark()
	for ; c != nil; c = c.Else {
		if len(c.Cond) == 0 {
			hasElse = true
		}
		w.stmts(c.Cond, io)
		if d, left := w.branch(c.Then, io); !left {
			ends = append(ends, d)
		}
	}
	if !hasElse {
		ends = append(ends, nil)
	}
	_ = base
	if len(ends) > 0 {
		w.names.join(ends...)
	}
}

// maxIterations bounds the rounds of an inner loop, maxRounds those of an
// outermost one whose items or condition are known.
const (
	maxIterations = 64
	maxRounds     = 2048
)

// while runs the body as often as its input tells, else twice: what a first
// round leaves may matter to a second.
func (w *walker) while(c *syntax.WhileClause, io stdio) {
	w.loops++
	defer func() { w.loops-- }()
	rounds := 2
	lines := io.in != nil && io.in.s != "" && !bare(strings.TrimSpace(io.in.s)) && len(c.Cond) > 0 && reads(c.Cond[len(c.Cond)-1])
	switch {
	case lines && w.loops == 1:
		rounds = maxRounds
	case lines && w.loops <= 3:
		rounds = maxIterations
	case w.loops > 3:
		rounds = 1
	case w.countedWhile(c, io):
		return
	}
	before := w.names.mark()
	for i := 0; i < rounds && !w.stopped; i++ {
		if lines && i > 0 && io.in.s == "" {
			break
		}
		w.stmts(c.Cond, io)
		w.stmts(c.Do, io)
	}
	if lines {
		if io.in.s != "" && !w.stopped {
			w.limit("rounds of a loop")
		}
		return
	}
	d := w.names.undo(before)
	w.names.join(nil, d)
}

// countedWhile runs a loop whose condition is arithmetic on known numbers; it
// reports whether it could.
func (w *walker) countedWhile(c *syntax.WhileClause, io stdio) bool {
	if len(c.Cond) != 1 || w.loops > 2 || c.Cond[0].Negated || len(c.Cond[0].Redirs) > 0 {
		return false
	}
	for i := 0; i < maxIterations*4 && !w.stopped; i++ {
		holds, ok := w.holds(c.Cond[0].Cmd)
		if !ok {
			return i > 0
		}
		if holds == c.Until {
			return true
		}
		w.stmts(c.Do, io)
	}
	return true
}

// holds evaluates (( … )) and [ A -lt B ].
func (w *walker) holds(c syntax.Command) (holds, ok bool) {
	switch c := c.(type) {
	case *syntax.ArithmCmd:
		n, ok := w.arithm(c.X)
		return n != 0, ok
	case *syntax.CallExpr:
		if len(c.Args) < 4 || len(c.Assigns) > 0 || c.Args[0].Lit() != "[" && c.Args[0].Lit() != "test" {
			return false, false
		}
		a := w.words(c.Args[1:4])
		if len(a) != 3 {
			return false, false
		}
		x, err1 := strconv.Atoi(a[0].s)
		y, err2 := strconv.Atoi(a[2].s)
		if err1 != nil || err2 != nil {
			return false, false
		}
		switch a[1].s {
		case "-lt":
			return x < y, true
		case "-le":
			return x <= y, true
		case "-gt":
			return x > y, true
		case "-ge":
			return x >= y, true
		case "-ne":
			return x != y, true
		case "-eq":
			return x == y, true
		}
	}
	return false, false
}

func reads(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(c.Args) > 0 && c.Args[0].Lit() == "read"
}

func (w *walker) forClause(c *syntax.ForClause, io stdio) {
	w.loops++
	defer func() { w.loops-- }()
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		w.each(func() { w.forWords(c, l, io) })
	case *syntax.CStyleLoop:
		w.forC(c, l, io)
	}
}

func (w *walker) forWords(c *syntax.ForClause, l *syntax.WordIter, io stdio) {
	items := w.params
	if l.InPos.IsValid() {
		items = w.words(l.Items)
	} else if len(items) == 0 && w.openParams {
		items = []val{{s: mPath}}
	}
	name := l.Name.Value
	n := len(items)
	if n == 0 {
		return
	}
	limit := maxIterations
	if w.loops == 1 {
		limit = maxRounds
	} else if w.loops > 2 {
		limit = 4
	}
	if n > limit {
		// Too many rounds: one for all of the values at once.
		vs := addAlts(nil, items)
		if len(vs) > 1 && w.loops > 2 {
			vs = vs[:1]
		}
		for i, v := range vs {
			vs[i].s = settle(v.s)
		}
		w.setVar(name, vs...)
		w.stmts(c.Do, io)
		return
	}
	for _, v := range items {
		if w.stopped {
			return
		}
		for _, m := range w.globbed(v) {
			w.setVar(name, m)
			w.stmts(c.Do, io)
		}
	}
}

// globbed gives the matches of a pattern where they can be told, else the
// pattern as a hole.
func (w *walker) globbed(v val) []val {
	if !strings.Contains(v.s, mGlob) {
		return []val{v}
	}
	if got := w.glob(v); got != nil && len(got) <= maxIterations {
		return got
	}
	v.s = settle(v.s)
	return []val{v}
}

func (w *walker) glob(v val) []val {
	if w.env.Glob == nil || !knownPattern(v.s) {
		return nil
	}
	pat, _ := globTarget(v.s)
	abs := pat
	dir := w.dir()
	if !strings.HasPrefix(pat, "/") {
		if !dir.known() {
			return nil
		}
		abs = path.Join(dir.s, pat)
	}
	got, ok := w.env.Glob(abs)
	if !ok {
		return nil
	}
	if len(got) == 0 {
		return []val{{s: deactivate(v.s)}}
	}
	out := make([]val, 0, len(got))
	for _, g := range got {
		g = cleanInput(g)
		if abs != pat {
			g = strings.TrimPrefix(strings.TrimPrefix(g, dir.s), "/")
		}
		out = append(out, val{s: g, data: v.data})
	}
	return out
}

func (w *walker) forC(c *syntax.ForClause, l *syntax.CStyleLoop, io stdio) {
	w.arithm(l.Init)
	rounds := maxIterations
	if w.loops == 1 {
		rounds = maxRounds
	} else if w.loops > 2 {
		rounds = 2
	}
	for i := 0; i < rounds && !w.stopped; i++ {
		n, ok := w.arithm(l.Cond)
		if l.Cond != nil && ok && n == 0 {
			return
		}
		if (!ok || l.Cond == nil) && i >= 2 {
			return
		}
		w.stmts(c.Do, io)
		w.arithm(l.Post)
	}
}

func (w *walker) caseClause(c *syntax.CaseClause, io stdio) {
	subject := w.single(c.Word)
	var ends []map[string]*slot
	def := false
	carry := false
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			v := w.pattern(p)
			def = def || v.s == mGlob+"*"
		}
		m := w.names.mark()
		if carry && len(ends) > 0 {
			// ;& goes on from where the arm above ended.
			w.names.join(nil, ends[len(ends)-1])
		}
		w.stmts(item.Stmts, io)
		d := w.names.undo(m)
		if !leavesAll(item.Stmts) {
			ends = append(ends, d)
		}
		carry = item.Op == syntax.Fallthrough
	}
	_ = subject
	if !def {
		ends = append(ends, nil)
	}
	if len(ends) > 0 {
		w.names.join(ends...)
	}
}

// testExpr expands the words of [[ … ]] for what they run.
func (w *walker) testExpr(x syntax.TestExpr) {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxDepth {
		w.limit("nesting")
		return
	}
	switch x := x.(type) {
	case *syntax.Word:
		w.single(x)
	case *syntax.ParenTest:
		w.testExpr(x.X)
	case *syntax.UnaryTest:
		if word, ok := x.X.(*syntax.Word); ok {
			v := w.single(word)
			if x.Op == syntax.TsVarSet {
				w.arithText(v.s)
			}
			return
		}
		w.testExpr(x.X)
	case *syntax.BinaryTest:
		w.testExpr(x.X)
		w.testExpr(x.Y)
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			for _, side := range [...]syntax.TestExpr{x.X, x.Y} {
				if word, ok := side.(*syntax.Word); ok {
					w.arithText(w.single(word).s)
				}
			}
		}
	}
}
