package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// started reports that a process is started, whatever it is: what a program
// does is the affair of the shell tool, whose rules read it.
func (a *analysis) started(what string) {
	if what == "" {
		what = a.sym
	}
	a.opaque("python starts a process: "+what, cordon.OriginLiteral, true)
}

func (a *analysis) execute(program string, origin cordon.Origin) {
	a.emit(cordon.Effect{Kind: cordon.Execute, Target: program, Op: "spawn", Origin: origin})
}

// shell reads a command line.
func (a *analysis) shell(program, cmd string) {
	a.execute(program, cordon.OriginLiteral)
	a.started(program)
	a.other("shell", cmd, a.dirs[0])
}

// other hands code in another language to its reader.
func (a *analysis) other(lang, src, dir string) {
	if a.env.Code == nil || len(src) > syntax.MaxSize {
		return
	}
	if a.code >= maxCodeDepth {
		return
	}
	via := a.chain()
	for _, e := range a.env.Code(a.ctx, lang, src, dir) {
		e.Via = append(append([]string(nil), via...), e.Via...)
		a.emit(e)
	}
}

func firstWord(s string) string {
	f := strings.Fields(s)
	if len(f) == 0 {
		return ""
	}
	return f[0]
}

// command runs a text through a shell.
func (a *analysis) command(s set) {
	n := 0
	for _, v := range s.vs {
		if v.k != vStr && v.k != vBytes && v.k != vPath {
			continue
		}
		n++
		if hasHole(v.s) {
			front := v.s[:strings.Index(v.s, hole)]
			a.execute(firstWord(front), origin(s))
			a.started(firstWord(front))
			a.unknownCommand(s)
			continue
		}
		if s.t&decoded != 0 {
			a.unknownCommand(s)
		}
		a.shell(firstWord(v.s), v.s)
	}
	if n == 0 || s.unk {
		a.execute("", origin(s))
		a.unknownCommand(s)
	}
}

// unknownCommand: what is run came from elsewhere.
func (a *analysis) unknownCommand(s set) {
	o := origin(s)
	if o == cordon.OriginNetwork {
		for _, h := range a.facts.connected {
			a.emit(cordon.Effect{Kind: cordon.Connect, Target: h, Op: "reverse_shell"})
		}
	}
	a.opaque("runs a command that is not constant", o, !s.hidden() && (o != cordon.OriginNetwork || len(s.vs) > 0))
}

func shellCommand(a *analysis, x *act, c *call, r *outcome) {
	a.command(a.arg(x, 0, c))
	a.standardStreams(c)
	r.is(set{unk: true, src: []string{"-"}})
}

// spawn is subprocess.Popen and its kin: a list of arguments, a program, or
// with shell=True a command line.
func spawn(a *analysis, x *act, c *call, r *outcome) {
	a.standardStreams(c)
	if f, ok := c.arg(-1, "preexec_fn"); ok {
		a.apply(f, &call{})
	}
	dir := a.dirs[0]
	if d, ok := c.arg(-1, "cwd"); ok {
		if t, ok := d.text(); ok {
			dir = joinPath(dir, t)
			dirs := a.dirs
			a.dirs = []string{dir}
			defer func() { a.dirs = dirs }()
		}
	}
	sh, given := c.arg(-1, "shell")
	isShell := given
	if v, ok := sh.single(); ok && given {
		yes, known := v.truth()
		isShell = yes || !known
	}
	r.inst.src = []string{"-"}
	args := a.arg(x, 0, c)
	if exe, ok := c.arg(-1, "executable"); ok {
		for _, e := range exe.strings() {
			a.execute(e, cordon.OriginLiteral)
		}
	}
	if len(args.vs) == 0 {
		a.command(args)
		return
	}
	for _, v := range args.vs {
		s := one(v).with(args)
		switch {
		case v.k == vSeq && isShell && len(v.p.(*sequence).items) > 0:
			a.command(v.p.(*sequence).items[0])
			a.argv(v.p.(*sequence), dir)
		case v.k == vSeq:
			a.argv(v.p.(*sequence), dir)
		case isShell || v.k == vStr && strings.ContainsAny(v.s, " \t"):
			a.command(s)
		case v.k == vStr || v.k == vPath:
			a.argv(&sequence{items: []set{s}}, dir)
		default:
			a.command(s)
		}
	}
}

// argv runs a program with its arguments.
func (a *analysis) argv(q *sequence, dir string) {
	words := make([]string, 0, len(q.items))
	whole := !q.fuzzy
	for _, it := range q.items {
		v, ok := it.single()
		if !ok || v.k != vStr && v.k != vPath && v.k != vBytes || hasHole(v.s) {
			whole = false
			break
		}
		words = append(words, v.s)
	}
	program := ""
	if len(words) > 0 {
		program = words[0]
	} else if len(q.items) > 0 {
		program, _ = q.items[0].text()
	}
	a.execute(program, cordon.OriginLiteral)
	a.started(program)
	for i, it := range q.items {
		if it.hidden() || i == 0 && it.t&network != 0 {
			a.unknownCommand(it)
		}
	}
	if whole && len(words) > 0 {
		for i, w := range words {
			words[i] = quoted(w)
		}
		a.other("shell", strings.Join(words, " "), dir)
	}
}

// quoted writes a word so that a shell reads exactly it.
func quoted(w string) string {
	plain := w != ""
	for i := 0; i < len(w) && plain; i++ {
		c := w[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-./:@%+,", c) >= 0
	}
	if plain {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

func quote(_ *analysis, c *call) (set, bool) {
	s, ok := c.text(0)
	return str(quoted(s)), ok
}

func shlexJoin(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	var words []string
	for _, it := range q.items {
		t, ok := it.text()
		if !ok {
			return set{}, false
		}
		words = append(words, quoted(t))
	}
	return str(strings.Join(words, " ")), true
}

// shlexSplit cuts a command line at blanks outside quotes.
func shlexSplit(_ *analysis, c *call) (set, bool) {
	s, ok := c.text(0)
	if !ok {
		return set{}, false
	}
	var words []set
	var b strings.Builder
	quote, open := byte(0), false
	for i := 0; i < len(s); i++ {
		ch := s[i]
		switch {
		case quote == 0 && (ch == ' ' || ch == '\t' || ch == '\n'):
			if open {
				words = append(words, str(b.String()))
				b.Reset()
				open = false
			}
			continue
		case ch == '\\' && quote != '\'' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case quote == 0 && (ch == '\'' || ch == '"'):
			quote = ch
		case ch == quote:
			quote = 0
		default:
			b.WriteByte(ch)
		}
		open = true
	}
	if open {
		words = append(words, str(b.String()))
	}
	return seq('[', words...), len(words) <= maxItems
}

// execFile is os.exec*, os.spawn* and kin: a program and its argv, as one
// list or one by one.
func execFile(a *analysis, x *act, c *call, r *outcome) {
	program := a.arg(x, 0, c)
	args, ok := a.argOK(x, 1, c)
	q := &sequence{items: []set{program}}
	if ok {
		if in, known := a.concrete(args); known {
			if len(in.items) > 0 {
				q.items = append(q.items, in.items[1:]...)
			}
			// The program and the name it is given may differ.
			if t, ok := program.text(); ok {
				a.execute(t, cordon.OriginLiteral)
			}
		} else {
			q.fuzzy = true
		}
	}
	a.argv(q, a.dirs[0])
	r.is(unknown)
}

// fork without an end is a bomb: in a loop that nothing leaves, or in a
// function that calls itself.
func fork(a *analysis, _ *act, _ *call, r *outcome) {
	a.started("fork")
	if a.endless > 0 {
		a.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb"})
	}
	if fn := a.functionFrame().fn; fn != nil {
		fn.forks = true
		a.bomb(fn)
	}
	r.is(unknown)
}

// child is a process or thread that runs a function of the program.
func child(a *analysis, x *act, c *call, r *outcome) {
	// A thread that starts one more like itself is a timer; without end it is a bomb.
	if fn := a.functionFrame().fn; fn != nil && (a.sym != "threading.Thread" || a.endless > 0) {
		fn.forks = true
		a.bomb(fn)
	}
	calls(a, x, c, r)
}

// bomb reports a function that forks and calls itself; where either stands
// under a condition it may come to an end.
func (a *analysis) bomb(fn *function) {
	if fn.forks && (fn.recurses || fn.active > 1) {
		a.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Doubtful: a.maybe > 0})
	}
}

func kill(a *analysis, x *act, c *call, _ *outcome) {
	if v, ok := a.arg(x, 0, c).single(); ok && v.k == vInt && v.n == -1 {
		a.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all"})
	}
}

// standardStreams: a socket that becomes a program's input or output.
func (a *analysis) standardStreams(c *call) {
	for _, k := range c.kws {
		if k.name != "stdin" && k.name != "stdout" && k.name != "stderr" {
			continue
		}
		for _, v := range k.val.vs {
			if v.k == vInst && (v.s == "socket.fileno" || v.s == "socket.socket") {
				a.facts.shellFD = true
			}
		}
	}
}

func dup2(a *analysis, x *act, c *call, r *outcome) {
	to, ok := a.arg(x, 1, c).single()
	if !ok || to.k == vInt && to.n <= 2 || to.k != vInt {
		a.facts.dup = true
		for _, v := range a.arg(x, 0, c).vs {
			if v.k == vInst && v.s == "socket.fileno" {
				a.facts.shellFD = true
			}
		}
	}
	r.is(unknown)
}

// evaluate runs code: eval, exec, compile and their kin.
func evaluate(a *analysis, x *act, c *call, r *outcome) {
	a.runCode(a.sym, a.arg(x, 0, c))
	r.is(tainted(c.args...))
}

// evaluateText is for functions that take code as text or a function.
func evaluateText(a *analysis, x *act, c *call, r *outcome) {
	for i := range x.args {
		s, ok := a.argOK(x, i, c)
		if !ok {
			continue
		}
		if v, single := s.single(); single && (v.k == vFunc || v.k == vMethod || v.k == vPartial || v.k == vSym) {
			a.apply(s, &call{})
			continue
		}
		a.runCode(a.sym, s)
	}
	r.is(unknown)
}

// formula is for libraries that evaluate text as mathematics: it counts where
// the text does more than that, or came from outside.
func formula(a *analysis, x *act, c *call, r *outcome) {
	s := a.arg(x, 0, c)
	before := len(a.effects)
	for _, text := range s.strings() {
		if strings.Contains(text, "__") {
			a.runCode(a.sym, s)
			break
		}
		a.readCode(a.sym, text)
	}
	if len(a.effects) > before || s.t != 0 {
		a.opaque(a.sym+" evaluates text that is more than a formula", origin(s), true)
	}
	r.is(unknown)
}

// runCode reads what is about to be evaluated, in the frame that it will see.
func (a *analysis) runCode(name string, s set) {
	o := origin(s)
	certain := s.hidden() || o != cordon.OriginDecoded && (o != cordon.OriginNetwork || len(s.vs) == 0)
	a.opaque(name+" evaluates code", o, !certain)
	for _, text := range s.strings() {
		a.readCode(name, text)
	}
}

// readCode reads Python in a string.
func (a *analysis) readCode(name, text string) {
	if a.code >= maxCodeDepth {
		a.opaque("limit: code in code in code", cordon.OriginLiteral, false)
		return
	}
	if !a.generous() {
		a.opaque("limit: too much code in strings", cordon.OriginLiteral, false)
		return
	}
	a.steps += len(text) / 4
	f := syntax.Parse(strings.TrimLeft(text, " \t"))
	via := a.via
	was := a.sym
	a.via = append(append([]string(nil), via...), "python: "+name)
	a.sym = ""
	a.code++
	flow, loops := a.flow, a.loops
	a.loops = 0
	a.block(f.Body)
	a.flow, a.loops = flow, loops
	a.code--
	a.via, a.sym = via, was
}

// script runs a file.
func script(a *analysis, x *act, c *call, r *outcome) {
	a.opaque(a.sym+" runs code from a file", cordon.OriginFile, false)
	a.each(x, c, cordon.Effect{Kind: cordon.Read}, r)
	r.is(unknown)
}

// opaqueIf: harmless unless an argument is true.
func opaqueIf(a *analysis, x *act, c *call, _ *outcome) {
	s, ok := a.argOK(x, 0, c)
	if !ok || c.unknownKws && len(s.vs) == 0 {
		return
	}
	if v, single := s.single(); single {
		if yes, known := v.truth(); known && !yes {
			return
		}
	}
	a.opaque(a.sym+" may run code that is in its data", cordon.OriginFile, false)
}

// opaqueUnless: runs what is in its data unless an argument says not to.
func opaqueUnless(a *analysis, x *act, c *call, _ *outcome) {
	if s, ok := a.argOK(x, 0, c); ok {
		if v, single := s.single(); single {
			if yes, known := v.truth(); known && yes {
				return
			}
		}
	}
	a.opaque(a.sym+" may run code that is in its data", cordon.OriginFile, false)
}

// yamlLoad: only the safe loaders make plain data.
func yamlLoad(a *analysis, x *act, c *call, _ *outcome) {
	if s, ok := a.argOK(x, 0, c); ok {
		if v, single := s.single(); single && v.k == vSym && strings.Contains(v.s, "Safe") {
			return
		}
		if v, single := s.single(); single && v.k == vSym && strings.HasSuffix(v.s, ".BaseLoader") {
			return
		}
		if v, single := s.single(); single && v.k == vClass {
			return // a loader of one's own
		}
	}
	a.opaque(a.sym+" may build any object from its data", cordon.OriginFile, false)
}
