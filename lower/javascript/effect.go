package javascript

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// callSym calls something that the table or the language names. made: with new.
func (a *analysis) callSym(v value, this set, args []set, made bool) set {
	outer := a.sym
	a.sym = v.s
	defer func() { a.sym = outer }()
	if s, ok := a.builtin(v, this, args, made); ok {
		return s
	}
	e := tables().find(v.s)
	if e == nil {
		a.pathPollution(args)
		if !a.mocks(v.s[strings.LastIndexByte(v.s, '.')+1:], args) {
			a.escapeAll(args)
		}
		if made {
			return set{vs: []value{v}, unk: true}
		}
		return tainted(append([]set{this}, args...)...)
	}
	return a.use(v, e, this, args, made)
}

// arg is the argument at a place, undefined where there is none.
func arg(args []set, i int) set {
	if i >= 0 && i < len(args) {
		return args[i]
	}
	return undefined
}

// use does what an entry says.
func (a *analysis) use(v value, e *entry, this set, args []set, made bool) set {
	out := tainted(this)
	link := value{k: vSym, s: e.result, p: v.p}
	for _, c := range e.acts {
		s, p := a.do(v, c, this, args)
		out = out.with(s)
		for _, w := range s.vs {
			out.add(w)
		}
		if p != nil {
			link.p = p
		}
	}
	// Callbacks get what the call gives.
	a.callbacks(args, tainted(out))
	switch {
	case e.result != "":
		r := set{vs: []value{link}}.with(out)
		return r
	case made && e.acts[0].verb != "function":
		return set{vs: []value{{k: vSym, s: v.s, p: link.p}}}.with(out)
	}
	if len(out.vs) > 0 {
		out.unk = false
	}
	return out
}

// callbacks runs the functions among the arguments, later, with what is known
// of the result.
func (a *analysis) callbacks(args []set, result set) {
	for _, s := range args {
		for _, v := range s.vs {
			switch v.k {
			case vFunc, vBound:
				a.escapeValue(v, result)
			case vObject:
				o := v.p.(*object)
				for _, k := range o.order {
					for _, w := range o.props[k].v.vs {
						if w.k == vFunc {
							a.escapeValue(w, result)
						}
					}
				}
			}
		}
	}
}

// do does one verb. It gives what the call returns, as far as it is known, and
// the connection that was made.
func (a *analysis) do(v value, c act, this set, args []set) (set, *conn) {
	switch c.verb {
	case "spawn", "shell", "argv", "words", "template":
		return a.start(c, args)
	case "eval":
		return a.evaluate(arg(args, c.arg)), nil
	case "function":
		return a.makeFunction(args), nil
	case "timer":
		a.timer(args)
	case "worker":
		a.worker(args)
	case "load":
		return a.load(arg(args, c.arg), loadRequire), nil
	case "loader":
		a.load(arg(args, c.arg), loadImport)
		a.opaque("changes how modules load", cordon.OriginLiteral, true)
	case "native":
		a.opaque("loads native code: "+v.s, cordon.OriginUnknown, false)
	case "opaque":
		a.opaque(c.word+": "+v.s, cordon.OriginUnknown, true)
	case "read", "write", "append", "delete", "list", "chmod", "stat", "link", "open":
		return a.pathVerb(c, args), nil
	case "connect", "socket", "host", "datagram", "listen", "send", "base", "address":
		return a.networkVerb(v, c, args)
	case "env":
		if c.arg < 0 {
			return a.readEnv("*"), nil
		}
		return a.index(sym("process.env"), arg(args, c.arg)), nil
	case "setenv":
		a.setMember(sym("process.env"), arg(args, c.arg), arg(args, c.arg+1))
	case "privilege":
		a.emit(cordon.Effect{Kind: cordon.Privilege, Op: c.word, Text: v.s})
	case "kill":
		a.kill(args)
	case "chdir":
		a.chdir(arg(args, c.arg))
	case "code":
		if t, ok := arg(args, c.arg).text(); ok && a.env.Code != nil {
			a.foreign(c.word, t)
		}
	case "pipe":
		for i := 0; i+1 < len(args); i++ {
			a.pipe(args[i], args[i+1])
		}
	}
	return set{}, nil
}

func (a *analysis) kill(args []set) {
	if v, ok := arg(args, 0).single(); ok && v.k == vSym && v.s == "process.ppid" {
		a.opaque("sends a signal to another process", cordon.OriginLiteral, true)
		return
	}
	n, ok := arg(args, 0).number()
	if ok && (n == -1 || n == 1) {
		a.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all"})
		return
	}
	if ok && n > 1 {
		a.opaque("sends a signal to another process", cordon.OriginLiteral, true)
	}
}

func (a *analysis) chdir(s set) {
	t, ok := a.pathText(s)
	if !ok || hasHole(t) {
		a.cwd = hole
		return
	}
	a.cwd = a.absolute(t)
}

// foreign reads code in another language.
func (a *analysis) foreign(lang, src string) { a.foreignIn(a.dir(), lang, src) }

func (a *analysis) foreignIn(dir, lang, src string) {
	via := a.chain()
	for _, e := range a.env.Code(a.ctx, lang, src, dir) {
		e.Via = append(slices.Clone(via), e.Via...)
		a.emit(e)
	}
}

// dir is the working directory, as far as it is known.
func (a *analysis) dir() string {
	if hasHole(a.cwd) {
		return a.env.Dir
	}
	return a.cwd
}

// start starts a process.
func (a *analysis) start(c act, args []set) (set, *conn) {
	command, program, known := "", "", false
	switch c.verb {
	case "template":
		if !isTemplate(args) {
			return set{}, nil
		}
		command, known = a.templateCommand(args)
	case "shell":
		command, known = arg(args, c.arg).text()
	case "argv":
		command, program, known = a.argv(arg(args, c.arg), arg(args, c.arg+1))
	case "words":
		command, program, known = a.argv(arg(args, c.arg), list(args[min(c.arg+1, len(args)):]...))
	default:
		if c.arg >= 0 {
			command, program, known = a.spawnArgs(arg(args, c.arg))
		}
	}
	a.childEnv(args)
	dir, throughShell := a.childOptions(args)
	if throughShell && c.verb == "argv" {
		command = a.unquoted(arg(args, c.arg), arg(args, c.arg+1), command)
	}
	if program == "" {
		program, _, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(command, hole, "")), " ")
	}
	if isShell(program) {
		a.shells++
		for _, s := range args {
			a.sharesSocket(s)
		}
	}
	a.emit(cordon.Effect{Kind: cordon.Execute, Target: firstText(program, "?"), Op: "spawn", Text: strings.ReplaceAll(command, hole, "…"), Origin: cordon.OriginLiteral})
	name := strings.TrimPrefix(a.sym, "?.")
	a.opaque("JavaScript starts a process: "+firstText(strings.ReplaceAll(clipWords(command), hole, "…"), firstText(program, name)), cordon.OriginLiteral, true)
	if known && a.env.Code != nil && command != "" {
		a.foreignIn(dir, "shell", command)
	}
	src := set{}
	for _, s := range args {
		src = src.with(s)
	}
	src.src = mergeSources(src.src, []string{"-"})
	return src, &conn{process: true}
}

func clipWords(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

func firstText(x, y string) string {
	if x != "" {
		return x
	}
	return y
}

func isShell(p string) bool {
	p = p[strings.LastIndexAny(p, `/\`)+1:]
	switch strings.TrimSuffix(p, ".exe") {
	case "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "cmd", "powershell", "pwsh", "busybox":
		return true
	}
	return false
}

func isTemplate(args []set) bool {
	v, ok := arg(args, 0).single()
	if !ok || v.k != vArray {
		return false
	}
	_, raw := v.p.(*array).props["raw"]
	return raw
}

// templateCommand is the command of a tagged template: what is put in is one
// word each.
func (a *analysis) templateCommand(args []set) (string, bool) {
	v, _ := args[0].single()
	var b strings.Builder
	known := true
	for i, s := range v.p.(*array).items {
		t, ok := s.text()
		known = known && ok
		b.WriteString(t)
		if i+1 < len(v.p.(*array).items) {
			w, ok := arg(args, i+1).text()
			known = known && ok
			if ok {
				b.WriteString(quoteWord(w))
			} else {
				b.WriteString(hole)
			}
		}
	}
	return b.String(), known
}

func quoteWord(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"\\$`|&;<>(){}*?[]#~=%!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// argv is the command of a program and its list of arguments, as a shell would
// take it.
func (a *analysis) argv(prog, rest set) (command, program string, known bool) {
	program, known = prog.text()
	v, ok := rest.single()
	if !known {
		return "", "", false
	}
	command = quoteWord(program)
	if strings.ContainsAny(program, " \t") {
		// With the option shell, or in packages that split it, it is a command.
		command = program
	}
	if !ok || v.k != vArray {
		return command, program, true
	}
	r := v.p.(*array)
	known = !r.fuzzy
	for _, s := range r.items {
		t, ok := s.text()
		if !ok {
			known = false
			t = hole
			command += " " + hole
			continue
		}
		command += " " + quoteWord(t)
	}
	return command, program, known
}

// spawnArgs reads what Bun and Deno take: a list, or options with cmd.
func (a *analysis) spawnArgs(s set) (command, program string, known bool) {
	v, ok := s.single()
	if !ok {
		return "", "", false
	}
	if v.k == vObject {
		return a.spawnArgs(a.member(s, "cmd"))
	}
	if v.k == vArray && len(v.p.(*array).items) > 0 {
		r := v.p.(*array)
		return a.argv(r.items[0], r.from(1, a.cond))
	}
	return a.argv(s, undefined)
}

// childOptions reads where a child runs and whether a shell reads its command.
func (a *analysis) childOptions(args []set) (dir string, throughShell bool) {
	dir = a.dir()
	for _, s := range args {
		v, ok := s.single()
		if !ok || v.k != vObject {
			continue
		}
		o := v.p.(*object)
		if p, ok := o.props["cwd"]; ok {
			if t, ok := a.pathText(p.v); ok && !hasHole(t) {
				dir = a.absolute(t)
			}
		}
		if p, ok := o.props["shell"]; ok {
			b, known := truth(p.v)
			throughShell = b || !known
		}
	}
	return dir, throughShell
}

// unquoted is a command whose arguments a shell reads again.
func (a *analysis) unquoted(prog, rest set, command string) string {
	v, ok := rest.single()
	p, known := prog.text()
	if !ok || !known || v.k != vArray || v.p.(*array).fuzzy {
		return command
	}
	for _, s := range v.p.(*array).items {
		t, ok := s.text()
		if !ok {
			t = hole
		}
		p += " " + t
	}
	return p
}

// childEnv reads the variables that a child is given.
func (a *analysis) childEnv(args []set) {
	for _, s := range args {
		v, ok := s.single()
		if !ok || v.k != vObject {
			continue
		}
		env, ok := v.p.(*object).props["env"]
		if !ok {
			continue
		}
		for _, w := range env.v.vs {
			if o, ok := w.p.(*object); ok && w.k == vObject {
				for _, k := range o.order {
					text, _ := o.props[k].v.text()
					a.emit(cordon.Effect{Kind: cordon.SetEnv, Target: k, Text: text})
				}
			}
		}
	}
}

// sharesSocket notes a shell whose standard streams are a connection.
func (a *analysis) sharesSocket(s set) {
	v, ok := s.single()
	if !ok || v.k != vObject {
		return
	}
	p, ok := v.p.(*object).props["stdio"]
	if !ok {
		return
	}
	for _, item := range a.elements(p.v).items {
		for _, w := range item.vs {
			if k, ok := w.p.(*conn); ok && !k.process {
				a.reverse(k)
			}
		}
	}
}

// reverse says that the far side of a connection gets a shell.
func (a *analysis) reverse(k *conn) {
	a.reversed = true
	a.emit(cordon.Effect{Kind: cordon.Connect, Target: k.target, Op: "reverse_shell", Pattern: k.pattern, Sends: true, Data: []string{"-"}})
}

// pipe is from.pipe(to).
func (a *analysis) pipe(from, to set) {
	for _, v := range from.vs {
		for _, w := range to.vs {
			f, _ := v.p.(*conn)
			t, _ := w.p.(*conn)
			switch {
			case f != nil && t != nil && f.process != t.process && a.shells > 0:
				if f.process {
					f = t
				}
				a.reverse(f)
			case t != nil && !t.process:
				a.sendOn(t, from)
			}
		}
	}
	if from.unk || len(from.src) > 0 {
		for _, w := range to.vs {
			if t, ok := w.p.(*conn); ok && !t.process {
				a.sendOn(t, from)
			}
		}
	}
}

// finish adds what only the whole program shows.
func (a *analysis) finish() {
	if a.shells > 0 && !a.reversed {
		for _, e := range a.sockets {
			e.Op = "reverse_shell"
			e.Doubtful = true
			e.Via = nil
			a.emit(e)
		}
	}
}

// evaluate runs a text as JavaScript.
func (a *analysis) evaluate(s set) set {
	out := tainted(s)
	for _, v := range s.vs {
		switch v.k {
		case vStr, vBytes:
			if hasHole(v.s) {
				a.opaque("evaluates text that is not constant", originOf(s), false)
				continue
			}
			a.codeString(v.s, s)
		case vUndef, vNull, vBool, vNum:
			out = join(out, one(v))
		case vFunc, vClass, vObject, vArray, vSym:
			if v.k == vSym && tables().find(v.s) == nil {
				a.opaque("evaluates text that is not constant", originOf(s), false)
				continue
			}
			// eval gives back what is no text; vm takes it as text. Nobody
			// hands eval a function but to hide what it is called with.
			if t, ok := a.toText(v); ok && !hasHole(t) && v.k < vFunc {
				a.codeString(t, s)
			} else {
				a.opaque("evaluates what is no text", cordon.OriginUnknown, true)
			}
			out = join(out, one(v))
			a.escapeValue(v, unknown)
		default:
			a.opaque("evaluates text that is not constant", originOf(s), false)
		}
	}
	if s.unk || len(s.vs) == 0 {
		a.opaque("evaluates text that is not constant", originOf(s), false)
	}
	if r := a.result; len(r.vs) > 0 {
		out = join(out, r)
	}
	a.result = set{}
	return out
}

func originOf(s set) cordon.Origin {
	switch {
	case s.t&network != 0:
		return cordon.OriginNetwork
	case s.t&decoded != 0:
		return cordon.OriginDecoded
	case s.t&file != 0:
		return cordon.OriginFile
	}
	return cordon.OriginUnknown
}

// codeString runs a constant text as a program inside this one. That text
// becomes code is doubtful in itself: what could be written as code was not.
func (a *analysis) codeString(src string, from set) {
	origin := cordon.OriginLiteral
	if o := originOf(from); o != cordon.OriginUnknown {
		origin = o
	}
	if !returnsThis().MatchString(src) {
		a.opaque("runs a text as JavaScript", origin, true)
	}
	if a.codeDepth >= maxCodeDepth || a.inline > maxInline {
		a.limit("JavaScript in strings nested too deep")
		return
	}
	if from.t&decoded != 0 {
		a.emit(cordon.Effect{Kind: cordon.RunCode, Target: "javascript", Text: src, Origin: cordon.OriginDecoded})
	}
	a.codeDepth++
	via, top := a.via, a.top
	a.via = a.chain()
	a.result = set{}
	a.inner(src)
	a.via, a.top = via, top
	a.codeDepth--
}

// returnsThis is the old way to ask for the global object.
var returnsThis = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\(function anonymous\(\n\) \{\n\s*return this;?\s*\n\}\)$`)
})

// makeFunction is new Function(…): its body runs when it is called, which is
// taken to be now.
func (a *analysis) makeFunction(args []set) set {
	if len(args) == 0 {
		return unknown
	}
	body := args[len(args)-1]
	var params []string
	for _, p := range args[:len(args)-1] {
		v, ok := p.single()
		t := ""
		if ok {
			t, ok = a.toText(v)
		}
		if !ok || hasHole(t) {
			a.opaque("makes a function of text that is not constant", originOf(p), false)
			return unknown
		}
		params = append(params, t)
	}
	var out set
	for _, t := range a.texts(body) {
		if hasHole(t) {
			a.opaque("makes a function of text that is not constant", originOf(body), false)
			out.unk = true
			continue
		}
		src := "(function anonymous(" + strings.Join(params, ",") + "\n) {\n" + t + "\n})"
		a.codeString(src, body)
		out = join(out, a.result)
	}
	a.result = set{}
	if len(out.vs) == 0 {
		out.unk = true
	}
	return out
}

// timer is setTimeout and kin: a text is evaluated, a function is called.
func (a *analysis) timer(args []set) {
	if len(args) == 0 {
		return
	}
	rest := args[min(2, len(args)):]
	for _, v := range args[0].vs {
		switch v.k {
		case vStr:
			a.evaluate(one(v).with(args[0]))
		case vFunc:
			if len(rest) > 0 {
				a.callValue(v, set{}, rest)
			}
		case vSym, vBound, vMethod:
			a.callValue(v, set{}, rest)
		}
	}
}

// workerFlags are options of the runtime for a worker, which can load or run
// code first.
func (a *analysis) workerFlags(s set) {
	if v, ok := s.single(); len(s.vs) == 0 || ok && v.k == vUndef {
		return
	}
	items := a.elements(s)
	for _, x := range append(items.items, items.rest) {
		for _, t := range a.texts(x) {
			name, _, _ := strings.Cut(t, "=")
			switch name {
			case "-r", "--require", "--import", "--loader", "--experimental-loader", "-e", "--eval", "-p", "--print", "-pe", "--expose-internals", "--allow-natives-syntax":
				a.opaque("starts a worker with "+name, cordon.OriginUnknown, true)
			}
		}
	}
	if items.fuzzy && len(items.items) == 0 {
		a.opaque("starts a worker with options that are not constant", cordon.OriginUnknown, true)
	}
}

// worker starts code in another thread.
func (a *analysis) worker(args []set) {
	code := arg(args, 0)
	opts, _ := arg(args, 1).single()
	asText := false
	if opts.k == vObject {
		if b, known := truth(a.member(one(opts), "eval")); b || !known {
			asText = true
		}
		a.childEnv(args)
		a.workerFlags(a.member(one(opts), "execArgv"))
	} else if len(args) > 1 && opts.k != vUndef {
		asText = true
	}
	if asText {
		a.evaluate(code)
		return
	}
	a.load(code, loadWorker)
}
