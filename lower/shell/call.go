package shell

import (
	"path"
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cordon-sandbox/cordon"
)

// call runs a simple command.
func (w *walker) call(c *syntax.CallExpr, io stdio) {
	if len(c.Args) == 0 {
		w.assigns(c.Assigns)
		return
	}
	if w.aliasCall(c, io) {
		return
	}
	env := w.prefix(c.Assigns)
	args := w.words(c.Args)
	if len(args) == 0 {
		w.assigns(c.Assigns)
		return
	}
	if len(env) == 0 {
		w.invoke(args, io)
		return
	}
	// The assignments hold for the one command.
	saved := make([]*slot, len(env))
	for i, a := range env {
		saved[i] = w.names.get(a.name)
		w.names.set(a.name, &slot{alts: []val{a.v}, exported: true})
	}
	for _, a := range env {
		w.envPoison(a.name, a.v)
	}
	w.invoke(args, io)
	for i, a := range env {
		w.names.set(a.name, saved[i])
	}
}

type assignment struct {
	name string
	v    val
}

func (w *walker) prefix(as []*syntax.Assign) []assignment {
	if len(as) == 0 {
		return nil
	}
	out := make([]assignment, 0, len(as))
	for _, a := range as {
		if a.Name == nil {
			continue
		}
		if a.Index != nil {
			w.subscript(a.Index)
		}
		v := w.assignValue(a.Value)
		if a.Append {
			old, _ := w.lookup(a.Name.Value)
			v = join(old, v)
		}
		out = append(out, assignment{a.Name.Value, v})
	}
	return out
}

// assigns makes assignments in the shell itself.
func (w *walker) assigns(as []*syntax.Assign) {
	for _, a := range as {
		if a.Name != nil {
			w.assign(a)
		}
	}
}

func (w *walker) assign(a *syntax.Assign) {
	name := a.Name.Value
	if a.Array != nil {
		w.assignArray(a)
		return
	}
	if a.Index != nil {
		w.assignElement(a)
		return
	}
	v := w.assignValue(a.Value)
	if a.Append {
		old, set := w.lookup(name)
		if set {
			v = join(old, v)
		}
	}
	if len(v.s) > 256 && !w.spend(len(v.s)/256) {
		return
	}
	w.setVar(name, v)
}

func (w *walker) assignArray(a *syntax.Assign) {
	var arr []val
	var keys []string
	name := a.Name.Value
	if old := w.names.get(name); a.Append && old != nil {
		arr, keys = old.arr[:len(old.arr):len(old.arr)], old.keys
		if !old.isArr {
			arr = old.alts[:1:1]
		}
	}
	for _, e := range a.Array.Elems {
		if e.Index != nil {
			keys = append(keys[:len(keys):len(keys)], w.subscript(e.Index))
			arr = append(arr, w.single(e.Value))
			continue
		}
		if e.Value != nil {
			for _, v := range w.words([]*syntax.Word{e.Value}) {
				v.s = settle(v.s)
				arr = append(arr, v)
			}
		}
	}
	if len(keys) > 0 && len(keys) != len(arr) || numbered(keys) {
		keys = nil
	}
	if len(arr) > maxFields {
		w.limit("array elements")
		arr = arr[:maxFields]
	}
	w.setArray(name, arr, keys)
}

// numbered reports whether keys are 0, 1, 2 …: an ordinary array.
func numbered(keys []string) bool {
	for _, k := range keys {
		if !isDigits(k) {
			return false
		}
	}
	return true
}

func (w *walker) assignElement(a *syntax.Assign) {
	name := a.Name.Value
	key := w.subscript(a.Index)
	v := w.assignValue(a.Value)
	old := w.names.get(name)
	n := slot{isArr: true}
	if old != nil {
		n.arr = append([]val(nil), old.arr...)
		n.keys = append([]string(nil), old.keys...)
		if !old.isArr && len(old.alts) > 0 {
			n.arr = []val{old.alts[0]}
		}
	}
	put := false
	if isDigits(key) && len(n.keys) == 0 && len(key) < 5 {
		i := 0
		for _, c := range key {
			i = i*10 + int(c-'0')
		}
		if i <= len(n.arr)+64 {
			for len(n.arr) <= i {
				n.arr = append(n.arr, val{})
			}
			if a.Append {
				v = join(n.arr[i], v)
			}
			n.arr[i], put = v, true
		}
	}
	for i, k := range n.keys {
		if k == key {
			if a.Append {
				v = join(n.arr[i], v)
			}
			n.arr[i], put = v, true
		}
	}
	if !put {
		for len(n.keys) < len(n.arr) {
			n.keys = append(n.keys, "")
		}
		n.keys, n.arr = append(n.keys, key), append(n.arr, v)
	}
	if len(n.arr) > 0 {
		n.alts = n.arr[:1]
	}
	w.names.set(name, &n)
}

// aliasCall runs a command whose first word is an alias: its text takes the
// word's place.
func (w *walker) aliasCall(c *syntax.CallExpr, io stdio) bool {
	name := c.Args[0].Lit()
	if name == "" {
		return false
	}
	s := w.names.get(keyAlias + name)
	if s == nil || w.aliased[name] || len(s.alts) == 0 {
		return false
	}
	text := s.alts[0]
	from, to := c.Args[0].End().Offset(), c.End().Offset()
	if int(to) <= len(w.src) && from <= to {
		text = join(text, val{s: w.src[from:to]})
	}
	if w.aliased == nil {
		w.aliased = make(map[string]bool)
	}
	w.aliased[name] = true
	w.turn(text, "alias "+name, io)
	delete(w.aliased, name)
	return true
}

// inv is one command about to run.
type inv struct {
	name string // base name
	word val    // as written
	args []val  // without the name
	io   stdio
	p    *program
	parsed
	in  val // what stands on the input
	out val // what it prints
	set bool
	// plain: functions are not looked up ("command", "env", …).
	plain bool
}

// print says what the command prints.
func (c *inv) print(v val) { c.out, c.set = v, true }

// invoke runs a command given by its fields.
func (w *walker) invoke(args []val, io stdio) {
	w.run(args, io, false)
}

func (w *walker) run(args []val, io stdio, plain bool) {
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxDepth {
		w.limit("nesting")
		return
	}
	if !w.spend(1 + len(args) + w.turns/2) {
		return
	}
	word := args[0]
	if hasMark(word.s) {
		w.holedWord(args, io)
		return
	}
	if len(word.s) > 1 && word.s[0] == '=' && lookupProgram(word.s[1:]) != nil {
		word.s = word.s[1:] // zsh's "=cat"
		args = append([]val{word}, args[1:]...)
	}
	if t := word.taint &^ tFile; t != 0 {
		w.opaque("a command word that was decoded or downloaded", word.origin(), word.s)
	}
	if why := oddWord(word.s); why != "" {
		w.opaque(why, cordon.OriginLiteral, word.s)
		w.oddCall(args, io)
		return
	}
	for _, a := range args {
		if len(a.data) > 0 && !quietWord(word.s) {
			w.tells(a.data)
		}
	}
	if !plain {
		if s := w.names.get(keyFunc + word.s); s != nil && s.fn != nil {
			w.runFunc(s.fn, args, io)
			return
		}
	}
	c := &inv{word: word, args: args[1:], io: io, plain: plain}
	if io.in != nil {
		c.in = *io.in
	}
	w.resolve(c)
	if io.out != nil {
		if !c.set {
			c.out = val{s: unknownOf(c.out.taint | c.in.taint&(tDecoded|tNet)), data: c.out.data, taint: c.out.taint | c.in.taint&(tDecoded|tNet)}
			c.out.data = union(c.out.data, c.in.data)
		}
		io.out.write(c.out)
	}
}

// quietWord names commands that tell nobody the words they get.
func quietWord(s string) bool {
	switch s {
	case "[", "test", ":", "true", "false", "unset", "shift", "return", "exit", "read", "local", "export", "declare", "set", "eval":
		return true
	}
	return false
}

// oddCall reads a command whose word has look-alike characters as the one it
// is meant to look like.
func (w *walker) oddCall(args []val, io stdio) {
	f := foldPath(strings.Map(func(r rune) rune {
		if r == 0xA0 || r == 0x3000 || r >= 0x2000 && r <= 0x200A {
			return ' '
		}
		return r
	}, args[0].s))
	if f == args[0].s || f == "" {
		return
	}
	var next []val
	for _, p := range strings.Fields(f) {
		next = append(next, val{s: w.tildeText(p)})
	}
	if len(next) == 0 || oddWord(next[0].s) != "" {
		return
	}
	w.doubt++
	w.run(append(next, args[1:]...), io, false)
	w.doubt--
}

// holedWord deals with a command word that is not fully known.
func (w *walker) holedWord(args []val, io stdio) {
	word := args[0]
	s := word.s
	if strings.HasPrefix(s, mTemp) {
		w.script1(word, args, io)
		return
	}
	if strings.Contains(s, mUnset) {
		rest := strings.ReplaceAll(s, mUnset, "")
		if rest == "" && len(args) > 1 && len(word.data) <= 1 {
			// "$SUDO make", "$DRY_RUN rm x": an unset prefix is no word.
			w.opaque("a command word that cannot be told", cordon.OriginUnknown, "")
			w.run(args[1:], io, false)
			return
		}
		if rest != "" && !hasMark(rest) && !strings.HasPrefix(s, mUnset+"/") {
			next := append([]val{{s: rest, taint: word.taint}}, args[1:]...)
			w.run(next, io, false)
			return
		}
	}
	if strings.Contains(s, mGlob) && knownPattern(s) {
		w.globWord(args, io)
		return
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 && !hasMark(s[i:]) && !strings.Contains(s, mDecoded) && !strings.Contains(s, mNet) {
		// "$VIRTUAL_ENV/bin/python", "$HOME2/x/run": the name is known.
		next := append([]val{{s: s[i+1:]}}, args[1:]...)
		if lookupProgram(s[i+1:]) != nil {
			w.run(next, io, true)
			return
		}
	}
	if dir := w.dir(); (strings.HasPrefix(s, mPath) || strings.HasPrefix(s, mName) || strings.HasPrefix(s, "./")) && dir.known() && len(word.data) == 0 && !strings.Contains(s, mUnknown) {
		t, _ := globTarget(s)
		w.emit(cordon.Effect{Kind: cordon.Execute, Target: t, Dir: dir.s, Pattern: true, Origin: cordon.OriginFile})
		w.operandsOfUnknown(args[1:])
		w.print(io, val{s: mUnknown})
		return
	}
	w.opaque("a command word that cannot be told", word.origin(), dropMarks(joinVals(args, " ").s))
	w.operandsOfUnknown(args[1:])
}

func (w *walker) print(io stdio, v val) { io.out.write(v) }

// script1 runs a program in a fresh temporary path: what the text wrote there.
func (w *walker) script1(word val, args []val, io stdio) {
	c := &inv{word: word, args: args[1:], io: io}
	w.runFile(c, word)
}

// globWord resolves a command word with active pattern characters against
// the programs that are known.
func (w *walker) globWord(args []val, io stdio) {
	s := args[0].s
	pat := s
	if got := w.glob(args[0]); len(got) == 1 && got[0].known() {
		w.run(append([]val{got[0]}, args[1:]...), io, false)
		return
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		pat = s[i+1:]
		if strings.HasPrefix(s, "./") || !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, mGlob) {
			t, _ := globTarget(s)
			w.emit(cordon.Effect{Kind: cordon.Execute, Target: t, Dir: w.dir().s, Pattern: true, Origin: cordon.OriginFile})
			return
		}
	} else {
		t, _ := globTarget(s)
		w.opaque("a command word that is a pattern", cordon.OriginFile, t)
		return
	}
	hits := matchingPrograms(pat, 12)
	if len(hits) == 0 || len(hits) > 8 {
		w.opaque("a command word that is a pattern", cordon.OriginUnknown, dropMarks(s))
		w.operandsOfUnknown(args[1:])
		return
	}
	w.doubt++
	for _, h := range hits {
		w.run(append([]val{{s: h}}, args[1:]...), io, true)
	}
	w.doubt--
}

func (w *walker) runFunc(f *function, args []val, io stdio) {
	n := w.active[f.name]
	if n > 0 && w.pipe != nil {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Target: f.name})
		return
	}
	if n > 0 && selfMultiplies(f) {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Target: f.name})
		return
	}
	if n > 8 {
		// Deeper than functions call themselves on purpose: what is handed
		// on is looked at as words.
		w.operandsOfUnknown(args[1:])
		return
	}
	if !w.spend(4) {
		return
	}
	if w.active == nil {
		w.active = make(map[string]int)
	}
	w.active[f.name]++
	saved, src, open := w.params, w.src, w.openParams
	w.params, w.src, w.openParams = args[1:], f.src, false
	w.stmt(f.body, io)
	w.params, w.src, w.openParams = saved, src, open
	w.active[f.name]--
}

// selfMultiplies reports whether a function starts itself in the background.
func selfMultiplies(f *function) bool {
	found := false
	syntax.Walk(f.body, func(n syntax.Node) bool {
		if s, ok := n.(*syntax.Stmt); ok && s.Background {
			syntax.Walk(s, func(n syntax.Node) bool {
				if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 && c.Args[0].Lit() == f.name {
					found = true
				}
				return !found
			})
		}
		return !found
	})
	return found
}

var binDirs = [...]string{"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin"}

// resolve finds what a plain command word runs.
func (w *walker) resolve(c *inv) {
	s := c.word.s
	if s == "" {
		w.opaque("an empty command word", cordon.OriginLiteral, "")
		return
	}
	if strings.IndexByte(s, '/') < 0 {
		c.name = s
		if h := w.names.get(keyCommand + s); h != nil {
			w.runFile(c, h.alts[0])
			return
		}
		if b := builtins(s); b != nil {
			b(w, c)
			return
		}
		if w.fromTextPath(c) {
			return
		}
		w.program(c)
		return
	}
	c.name = path.Base(s)
	if s[0] == '/' {
		dir := path.Dir(path.Clean(s))
		for _, d := range binDirs {
			if dir == d {
				w.program(c)
				return
			}
		}
	}
	w.runFile(c, c.word)
}

// fromTextPath runs a file that the text wrote into a directory it put on
// PATH.
func (w *walker) fromTextPath(c *inv) bool {
	if len(w.files) == 0 {
		return false
	}
	p := w.names.get("PATH")
	if p == nil {
		return false
	}
	for _, alt := range p.alts {
		for _, d := range strings.Split(alt.s, ":") {
			f := val{s: d + "/" + c.name}
			if _, ok := w.written(f); ok {
				w.runFile(c, f)
				return true
			}
		}
	}
	return false
}

// program runs a program by its entry in the table.
func (w *walker) program(c *inv) {
	c.p = lookupProgram(c.name)
	if setsUpShell(c) {
		w.emit(cordon.Effect{Kind: cordon.Execute, Target: c.word.s, Origin: cordon.OriginFile, Text: ownWords(c.name, c.args)})
		c.print(val{})
		return
	}
	if c.p == nil {
		if h := w.names.get(keyFunc + "command_not_found_handle"); h != nil {
			return
		}
		defer w.act(c.name)()
		w.unknownProgram(c)
		return
	}
	if !c.p.builtin {
		w.emit(cordon.Effect{Kind: cordon.Execute, Target: c.word.s, Origin: cordon.OriginFile, Text: ownWords(c.name, c.args)})
	}
	defer w.act(c.name)()
	w.apply(c)
}

// setsUpShell: "kubectl completion bash", "starship init zsh": an installed
// program that prints its own settings for the shell is trusted as far as
// running it is.
func setsUpShell(c *inv) bool {
	if len(c.args) == 0 {
		return false
	}
	switch c.args[0].s {
	case "completion", "completions", "shellenv", "hook":
		return c.p == nil || c.p.handler == "" || c.name == "kubectl" || c.name == "gh" || c.name == "npm" || c.name == "docker" || c.name == "helm" || c.name == "pip"
	case "init", "activate", "env":
		return c.p == nil && len(c.args) > 1
	}
	return false
}

// runFile runs a program given by its path: a script that the text wrote or
// that the workspace holds is read in turn.
func (w *walker) runFile(c *inv, file val) {
	w.emitExec(file, c.args)
	if c.name == "" {
		c.name = path.Base(dropMarks(file.s))
	}
	if v, ok := w.written(file); ok {
		w.scriptText(c, v, file, false)
		return
	}
	if body, ok := w.readScript(file); ok {
		if c.p = lookupProgram(c.name); c.p != nil && startsOwnModule(body.s, c.name) {
			w.apply(c)
			return
		}
		w.scriptText(c, body, file, false)
		return
	}
	if c.p = lookupProgram(c.name); c.p != nil && !w.inside(file) {
		w.apply(c)
		return
	}
	w.operandsOfUnknown(c.args)
}

// entryPoint is what installers write as the start of a Python program: it
// calls one function of one module, and nothing else.
var entryPoint = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^#![^\n]*python[^\n]*\n(?:# -\*- coding: utf-8 -\*-\n)?(?:import re\n)?import sys\n+from ([\w.]+) import (\w+)\n+` +
		`if __name__ == ['"]__main__['"]:\n(?:    sys\.argv\[0\] = re\.sub\(r'[^'\n]*', '', sys\.argv\[0\]\)\n)?    sys\.exit\((\w+)\(\)\)\n?$`)
})

// startsOwnModule: the script is the start of the program that it is named
// after, so that its operands say what it does, as they do outside of a
// virtual environment.
func startsOwnModule(body, name string) bool {
	m := entryPoint().FindStringSubmatch(body)
	if m == nil || m[2] != m[3] {
		return false
	}
	pkg, _, _ := strings.Cut(m[1], ".")
	return pkg == strings.TrimRight(name, "0123456789.")
}

func (w *walker) emitExec(file val, args []val) {
	t, pat := globTarget(file.s)
	e := cordon.Effect{Kind: cordon.Execute, Target: t, Pattern: pat, Expanded: true, Origin: cordon.OriginFile, Text: ownWords(path.Base(t), args)}
	if !strings.HasPrefix(t, "/") {
		if d := w.dir(); d.known() {
			e.Dir = d.s
		}
	}
	if strings.HasPrefix(file.s, mTemp) {
		return
	}
	if path.IsAbs(t) && !w.inside(file) {
		w.pathEffect(cordon.Effect{Kind: cordon.Read}, file)
	}
	w.emit(e)
}

// inside reports whether a path lies in the workspace as it is written.
func (w *walker) inside(file val) bool {
	k := w.key(file)
	ws := strings.TrimSuffix(w.env.Workspace, "/")
	return k != "" && ws != "" && (k == ws || strings.HasPrefix(k, ws+"/"))
}

func (w *walker) readScript(file val) (val, bool) {
	if w.env.ReadScript == nil || !file.known() || !w.inside(file) {
		return val{}, false
	}
	b, ok := w.env.ReadScript(w.key(file))
	if !ok || len(b) > maxSize {
		return val{}, false
	}
	return val{s: cleanInput(strings.ToValidUTF8(string(b), "\uFFFD")), taint: tFile}, true
}

// scriptText reads the content of a script file in turn, by its first line
// or its name; shell says that a shell was told to run it.
func (w *walker) scriptText(c *inv, body, file val, shell bool) {
	lang := "shell"
	if !shell {
		lang = scriptLang(body.s, file.s)
	}
	if k := "file " + w.key(file); lang == "shell" {
		if w.active[k] > 0 {
			return // it runs itself
		}
		if w.active == nil {
			w.active = make(map[string]int)
		}
		w.active[k]++
		defer func() { w.active[k]-- }()
	}
	switch {
	case lang == "binary":
		w.operandsOfUnknown(c.args)
	case lang == "shell":
		saved, arg0 := w.params, w.arg0
		w.params, w.arg0 = c.args, file
		w.turn(body, path.Base(dropMarks(file.s)), c.io)
		w.params, w.arg0 = saved, arg0
	default:
		w.code(lang, body, path.Base(dropMarks(file.s)))
	}
}

func scriptLang(body, name string) string {
	line, _, _ := strings.Cut(body, "\n")
	if strings.HasPrefix(line, "#!") {
		for _, l := range [...]struct{ word, lang string }{
			{"python", "python"}, {"node", "javascript"}, {"deno", "typescript"}, {"bun", "typescript"}, {"perl", "perl"},
			{"ruby", "ruby"}, {"php", "php"}, {"lua", "lua"}, {"tclsh", "tcl"}, {"awk", "awk"}, {"sh", "shell"},
		} {
			if strings.Contains(line, l.word) {
				return l.lang
			}
		}
		return "shell"
	}
	switch path.Ext(name) {
	case ".py":
		return "python"
	case ".js", ".mjs", ".cjs":
		return "javascript"
	case ".ts":
		return "typescript"
	case ".pl":
		return "perl"
	case ".rb":
		return "ruby"
	}
	if strings.Contains(body, "\x00") || strings.HasPrefix(body, "\x7fELF") || body == mFile || body == mUnknown {
		return "binary"
	}
	return "shell"
}
