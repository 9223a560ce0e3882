package shell

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

// code hands code in another language to its reader.
func (w *walker) code(lang string, src val, via string) {
	defer w.push(via)()
	o := src.origin()
	if o == cordon.OriginDecoded || o == cordon.OriginNetwork {
		w.opaque("runs code that was "+map[bool]string{true: "downloaded", false: "decoded"}[o == cordon.OriginNetwork], o, dropMarks(src.s))
		if bare(strings.TrimSpace(src.s)) {
			return
		}
	}
	if strings.TrimSpace(src.s) == "" {
		return
	}
	if bare(strings.TrimSpace(src.s)) {
		if src.s != mPath && lang != "math" {
			w.opaque("runs code that cannot be told", o, "")
		}
		return
	}
	if len(src.s) > maxSize || w.turns >= maxTurns {
		w.limit("size of code within the text")
		return
	}
	if lang == "powershell" {
		w.doubt++
		w.turn(src, "", stdio{})
		for _, f := range strings.Fields(src.s) {
			if f = strings.Trim(f, `'"();`); pathLike(f) {
				w.reads(val{s: w.tildeText(f)})
			}
		}
		w.doubt--
	}
	if lang == "awk" {
		w.awkProgram(src, nil, nil)
		return
	}
	if scanned(lang) {
		w.scan(lang, src)
		return
	}
	text := dropMarks(src.s)
	if w.env.Code == nil {
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: lang, Text: text, Origin: o})
		w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: o, Reason: "no reader for " + lang, Text: text})
		return
	}
	if !w.spend(len(text)/32 + 8) {
		return
	}
	dir := w.dir()
	d := w.env.Dir
	if dir.known() {
		d = dir.s
	}
	for _, e := range w.env.Code(w.ctx, lang, text, d) {
		inner := e.Via
		via := w.via
		if len(inner) > 0 {
			w.via = append(via[:len(via):len(via)], inner...)
		}
		if e.Kind == cordon.Opaque && e.Origin == cordon.OriginLiteral && o != cordon.OriginLiteral {
			e.Origin = o
		}
		w.emit(e)
		w.via = via
	}
}

// sequel runs what stands on the input of an interpreter.
func (w *walker) stdinCode(c *inv, lang string) {
	if c.io.sock != "" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: c.io.sock, Op: "reverse_shell", Sends: true})
	}
	if c.io.in == nil {
		return
	}
	in := *c.io.in
	if c.io.inPath.s != "" {
		if body, ok := w.readScript(c.io.inPath); ok {
			in = body
		}
	}
	if in.s == "" {
		return
	}
	if w.pipe != nil && (lang == "shell" || w.pipe.remote != "") {
		w.pipe.shell = true
	}
	if lang == "shell" {
		if bare(strings.TrimSpace(in.s)) && in.origin() == cordon.OriginFile {
			w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "shell", Origin: cordon.OriginFile})
			for _, d := range in.data {
				if d != "" && d[0] != '$' && d[0] != '-' {
					w.emit(cordon.Effect{Kind: cordon.Execute, Target: d, Dir: w.dir().s, Origin: cordon.OriginFile, Expanded: true})
				}
			}
			return
		}
		inner := c.io
		inner.in = nil
		w.turn(in, c.name+" (input)", inner)
		return
	}
	if bare(strings.TrimSpace(in.s)) && in.origin() == cordon.OriginFile {
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: lang, Origin: cordon.OriginFile})
		return
	}
	w.code(lang, in, c.name+" (input)")
}

// handleShell is sh, bash, zsh and the other command interpreters.
func handleShell(w *walker, c *inv) {
	defer c.print(val{s: mUnknown})
	args := c.args
	interactive, stdin := false, false
	for len(args) > 0 {
		s := args[0].s
		if len(s) < 2 || s[0] != '-' && s[0] != '+' || s == "--" || s == "-" {
			if s == "--" || s == "-" {
				args = args[1:]
			}
			break
		}
		switch {
		case s == "--rcfile" || s == "--init-file":
			if len(args) > 1 {
				w.reads(args[1])
				if body, ok := w.written(args[1]); ok {
					w.turn(body, s, stdio{})
				}
				args = args[1:]
			}
		case s == "--command" && len(args) > 1:
			w.commandString(c, args[1:])
			return
		case strings.HasPrefix(s, "--"):
		case strings.Contains(s, "c") && s[0] == '-':
			rest := args[1:]
			// "-o pipefail" may stand between.
			for k := strings.Count(s, "o"); k > 0 && len(rest) > 0; k-- {
				rest = rest[1:]
			}
			for len(rest) > 0 && len(rest[0].s) > 1 && (rest[0].s[0] == '-' || rest[0].s[0] == '+') {
				if strings.HasSuffix(rest[0].s, "o") && len(rest) > 1 {
					rest = rest[1:]
				}
				rest = rest[1:]
			}
			w.commandString(c, rest)
			return
		default:
			interactive = interactive || strings.Contains(s, "i")
			stdin = stdin || strings.Contains(s, "s")
			if (strings.HasSuffix(s, "o") || strings.HasSuffix(s, "O")) && len(args) > 1 {
				args = args[1:]
			}
		}
		args = args[1:]
	}
	if len(args) == 0 || stdin {
		w.interactiveShell(c, interactive)
		saved := w.params
		w.params = args
		w.stdinCode(c, "shell")
		w.params = saved
		return
	}
	w.shellFile(c, args)
}

func (w *walker) interactiveShell(c *inv, interactive bool) {
	if w.pipe != nil {
		w.pipe.shell = true
	}
	_ = interactive
}

func (w *walker) commandString(c *inv, args []val) {
	if len(args) == 0 {
		return
	}
	if c.io.sock != "" {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: c.io.sock, Op: "reverse_shell", Sends: true})
	}
	params, arg0, open := w.params, w.arg0, w.openParams
	w.params, w.openParams = nil, false
	if len(args) > 1 {
		w.arg0 = args[1]
		w.params = args[2:]
	}
	m := w.names.mark()
	funcs := w.active
	w.turn(args[0], c.name+" -c", c.io)
	w.active = funcs
	w.names.undo(m)
	w.params, w.arg0, w.openParams = params, arg0, open
}

// shellFile runs a script by name.
func (w *walker) shellFile(c *inv, args []val) {
	file := args[0]
	c.args = args[1:]
	switch file.s {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-":
		w.stdinCode(c, "shell")
		return
	}
	if v, ok := w.written(file); ok {
		w.scriptText(c, v, file, true)
		return
	}
	if hasMark(file.s) {
		if strings.HasPrefix(file.s, mPath) || strings.HasPrefix(file.s, mName) || strings.HasPrefix(file.s, mTemp) || !startsUnknown(file.s) {
			w.emitExec(file)
			return
		}
		if i := strings.LastIndexByte(file.s, '/'); i > 0 && !hasMark(file.s[i:]) && file.origin() == cordon.OriginUnknown {
			return
		}
		w.opaque("runs a script that cannot be told", file.origin(), "")
		return
	}
	w.reads(file)
	w.emitExec(file)
	if body, ok := w.readScript(file); ok {
		w.scriptText(c, body, file, true)
		return
	}
	w.operandsOfUnknown(c.args)
}

// scriptFile runs a file through an interpreter of another language.
func (w *walker) scriptFile(c *inv, lang string, file val, via string) {
	if file.s == "-" || file.s == "/dev/stdin" || file.s == "/dev/fd/0" {
		w.stdinCode(c, lang)
		return
	}
	if v, ok := w.written(file); ok {
		w.code(lang, v, via)
		return
	}
	if hasMark(file.s) {
		if startsUnknown(file.s) && bare(file.s) {
			w.opaque("runs a script that cannot be told", file.origin(), "")
		}
		return
	}
	w.reads(file)
	w.emitExec(file)
	if body, ok := w.readScript(file); ok {
		w.code(lang, body, via)
	}
}

func handlePython(w *walker, c *inv) {
	defer c.print(val{s: mUnknown})
	args := c.args
	for len(args) > 0 {
		s := args[0].s
		if s == "-" || len(s) < 2 || s[0] != '-' {
			break
		}
		if strings.HasPrefix(s, "--") {
			if s == "--check-hash-based-pycs" && len(args) > 1 {
				args = args[1:]
			}
			args = args[1:]
			continue
		}
		k := strings.IndexAny(s[1:], "cmWX")
		if k < 0 {
			args = args[1:]
			continue
		}
		k++
		rest := s[k+1:]
		v := val{s: rest, data: args[0].data}
		next := args[1:]
		if rest == "" && len(next) > 0 {
			v, next = next[0], next[1:]
		}
		switch s[k] {
		case 'c':
			w.code("python", v, c.name+" -c")
			w.operandsQuiet(c, next)
			return
		case 'm':
			w.pythonModule(c, v, next)
			return
		}
		args = next
	}
	if len(args) == 0 {
		w.stdinCode(c, "python")
		return
	}
	w.scriptFile(c, "python", args[0], c.name)
	w.operandsOfUnknown(args[1:])
}

// operandsQuiet are words that a program in the text itself will read: paths
// among them are read.
func (w *walker) operandsQuiet(c *inv, args []val) {
	for _, a := range args {
		if pathLike(a.s) {
			w.reads(a)
			c.took(a)
		}
	}
}

func (w *walker) pythonModule(c *inv, mod val, args []val) {
	name := mod.s
	switch name {
	case "pip", "venv", "virtualenv", "ensurepip":
		if name == "pip" {
			w.sub(append([]val{{s: "pip"}}, args...), c.io, "python -m")
			return
		}
		for _, a := range args {
			if a.s != "" && a.s[0] != '-' {
				w.writes(a, "create")
			}
		}
		return
	case "zipfile", "tarfile":
		w.pyArchive(c, args)
		return
	case "http.server":
		for _, a := range args {
			if isDigits(a.s) {
				w.emit(cordon.Effect{Kind: cordon.Connect, Target: ":" + a.s, Op: "listen"})
				return
			}
		}
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: ":8000", Op: "listen"})
		for i, a := range args {
			if (a.s == "-d" || a.s == "--directory") && i+1 < len(args) {
				w.readsAll(args[i+1])
			}
		}
		return
	case "timeit":
		for i := 0; i < len(args); i++ {
			s := args[i].s
			if s == "-s" || s == "-n" || s == "-r" || s == "-u" || s == "--setup" {
				if (s == "-s" || s == "--setup") && i+1 < len(args) {
					w.code("python", args[i+1], "python -m timeit")
				}
				i++
				continue
			}
			if s != "" && s[0] != '-' {
				w.code("python", args[i], "python -m timeit")
			}
		}
		return
	case "pdb", "cProfile", "profile", "trace", "runpy", "coverage", "doctest", "code":
		for i, a := range args {
			if a.s == "-c" && i+1 < len(args) && name == "pdb" {
				continue
			}
			if strings.HasSuffix(a.s, ".py") {
				w.scriptFile(c, "python", a, "python -m "+name)
			}
		}
	case "base64":
		dec := false
		for _, a := range args {
			dec = dec || a.s == "-d" || a.s == "-u"
			if a.s != "" && a.s[0] != '-' {
				w.reads(a)
				c.took(a)
			}
		}
		if dec {
			c.print(decoded(c.in, decodeBase64))
		}
		return
	case "smtplib", "ftplib", "telnetlib":
		if len(args) > 0 {
			w.connect(args[0], name, nil, true)
		}
	}
	if p := lookupProgram(name); p != nil && p.handler != "" && p.handler != "python" {
		w.sub(append([]val{{s: name}}, args...), c.io, "python -m")
		return
	}
	for _, a := range args {
		if pathLike(a.s) {
			w.readsAll(a)
			c.took(a)
		}
	}
}

func (w *walker) pyArchive(c *inv, args []val) {
	if len(args) == 0 {
		return
	}
	rest := args[1:]
	switch args[0].s {
	case "-c", "--create":
		for i, a := range rest {
			if i == 0 {
				w.writes(a, "create")
				continue
			}
			w.readsAll(a)
			c.took(a)
		}
	case "-e", "--extract":
		for i, a := range rest {
			if i == 0 {
				w.reads(a)
			} else {
				w.writes(a, "create")
			}
		}
		if len(rest) == 1 {
			w.writes(val{s: "."}, "create")
		}
	default:
		for _, a := range rest {
			w.reads(a)
		}
	}
}

// handleNode is node, bun, deno and the runners of TypeScript.
func handleNode(w *walker, c *inv) {
	defer c.print(val{s: mUnknown})
	lang := "javascript"
	if c.name == "deno" || c.name == "bun" || c.name == "tsx" || c.name == "ts-node" {
		lang = "typescript"
	}
	args := c.args
	if c.name == "deno" || c.name == "bun" {
		for len(args) > 0 && (args[0].s == "run" || args[0].s == "eval" || args[0].s == "x") {
			if args[0].s == "eval" {
				for i := len(args) - 1; i > 0; i-- {
					if args[i].s != "" && args[i].s[0] != '-' {
						w.code(lang, args[i], c.name+" eval")
					}
				}
				return
			}
			if args[0].s == "x" {
				handleNpx(w, &inv{name: "npx", word: val{s: "npx"}, args: args[1:], io: c.io, p: c.p})
				return
			}
			args = args[1:]
		}
		if len(args) > 0 && (args[0].s == "install" || args[0].s == "add" || args[0].s == "test" || args[0].s == "build" || args[0].s == "task" || args[0].s == "fmt" || args[0].s == "lint" || args[0].s == "check") {
			for _, a := range args[1:] {
				if strings.Contains(a.s, "://") {
					w.connectURL(a, nil, false)
				}
			}
			return
		}
	}
	ran := false
	for len(args) > 0 {
		s := args[0].s
		if s == "-" || len(s) < 2 || s[0] != '-' || s == "--" {
			break
		}
		name, value, eq := strings.Cut(s, "=")
		v := val{s: value, data: args[0].data}
		take := func() val {
			if !eq && len(args) > 1 {
				v = args[1]
				args = args[1:]
			}
			return v
		}
		switch name {
		case "-e", "--eval", "-p", "--print", "-pe", "-ep", "-pi":
			w.code(lang, take(), c.name+" "+name)
			ran = true
		case "-r", "--require", "--import", "--loader", "--experimental-loader", "--preload":
			f := take()
			if strings.HasPrefix(f.s, "data:") {
				w.code(lang, f, c.name+" "+name)
			} else if strings.HasPrefix(f.s, ".") || strings.HasPrefix(f.s, "/") {
				w.scriptFile(c, "javascript", f, c.name+" "+name)
			}
		case "-C", "--conditions", "--env-file", "--input-type", "--max-old-space-size", "--stack-trace-limit", "--title", "--openssl-config":
			f := take()
			if name == "--env-file" {
				w.reads(f)
			}
		}
		if strings.HasPrefix(name, "-e") && len(name) > 2 && name[1] != '-' && name != "-ep" {
			w.code(lang, val{s: s[2:]}, c.name+" -e")
			ran = true
		}
		args = args[1:]
	}
	if ran {
		w.operandsQuiet(c, args)
		return
	}
	if len(args) > 0 && args[0].s == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		w.stdinCode(c, lang)
		return
	}
	if strings.Contains(args[0].s, "://") {
		w.connectURL(args[0], nil, false)
		w.opaque("runs code that was downloaded", cordon.OriginNetwork, args[0].s)
		return
	}
	w.scriptFile(c, lang, args[0], c.name)
	w.operandsOfUnknown(args[1:])
}

// handleInterp is perl, ruby, php, lua, tcl, R and others whose code is
// scanned, not parsed.
func handleInterp(w *walker, c *inv) {
	defer c.print(val{s: unknownOf(c.in.taint), data: union(c.in.data, c.out.data), taint: c.in.taint})
	lang := interpLang(c.name)
	ran := false
	mods := ""
	var files []val
	args := c.args
	for i := 0; i < len(args); i++ {
		s := args[i].s
		next := func() val {
			if i+1 < len(args) {
				i++
				return args[i]
			}
			return val{}
		}
		if len(s) < 2 || s[0] != '-' {
			files = append(files, args[i:]...)
			break
		}
		if s == "--" {
			files = append(files, args[i+1:]...)
			break
		}
		switch code, rest := codeFlag(lang, s); {
		case code:
			v := val{s: rest, data: args[i].data}
			if rest == "" {
				v = next()
			}
			if mods != "" {
				v.s = mods + v.s
			}
			w.code(lang, v, c.name+" -e")
			ran = true
		case lang == "perl" && (strings.HasPrefix(s, "-M") || strings.HasPrefix(s, "-m")), lang == "ruby" && strings.HasPrefix(s, "-r"):
			m := s[2:]
			if m == "" {
				m = next().s
			}
			w.module(lang, m)
			name, _, _ := strings.Cut(m, "=")
			if lang == "perl" {
				mods += "use " + name + ";"
			} else {
				mods += "require '" + name + "';"
			}
		case lang == "perl" && strings.Trim(s, "-0123456789nplaiswWtTuUcvE.") == "":
		case lang == "ruby" && strings.Trim(s, "-nplaiswWTcv0123456789") == "":
		case lang == "perl" && strings.HasPrefix(s, "-I") && s == "-I", lang == "ruby" && s == "-I":
			next()
		case lang == "php" && (s == "-S"):
			w.emit(cordon.Effect{Kind: cordon.Connect, Target: next().s, Op: "listen"})
			ran = true
		case lang == "php" && (s == "-d" || s == "-c" || s == "-t"):
			next()
		case lang == "php" && (s == "-f"):
			files = append(files, next())
		case lang == "lua" && s == "-l":
			next()
		}
	}
	if ran {
		w.scriptOperands(c, lang, files)
		return
	}
	if len(files) == 0 {
		w.stdinCode(c, lang)
		return
	}
	w.scriptFile(c, lang, files[0], c.name)
	w.operandsOfUnknown(files[1:])
}

// scriptOperands are the files after -e: read, and with -i written.
func (w *walker) scriptOperands(c *inv, lang string, files []val) {
	inPlace := false
	for _, a := range c.args {
		if strings.HasPrefix(a.s, "-") && !strings.HasPrefix(a.s, "--") && (lang == "perl" || lang == "ruby") {
			head := a.s
			if k := strings.IndexAny(head, "eEMmrI"); k > 0 {
				head = head[:k]
			}
			inPlace = inPlace || strings.Contains(head, "i")
		}
	}
	for _, f := range files {
		w.reads(f)
		c.took(f)
		if inPlace {
			w.writes(f, "")
		}
	}
}

func interpLang(name string) string {
	switch strings.TrimRight(name, "0123456789.") {
	case "perl":
		return "perl"
	case "ruby", "jruby", "irb":
		return "ruby"
	case "php", "php-cgi":
		return "php"
	case "lua", "luajit", "texlua":
		return "lua"
	case "tclsh", "wish", "expect":
		return "tcl"
	case "Rscript", "R", "littler":
		return "r"
	case "julia":
		return "julia"
	case "elixir", "iex":
		return "elixir"
	case "erl", "escript":
		return "erlang"
	case "groovy", "scala", "jshell", "kotlin", "kotlinc":
		return "jvm"
	case "ghc", "runghc", "runhaskell":
		return "haskell"
	case "guile", "racket", "sbcl", "clisp", "emacs", "clojure", "clj", "bb":
		return "lisp"
	case "pwsh", "powershell":
		return "powershell"
	case "osascript":
		return "applescript"
	case "gawk", "awk", "mawk":
		return "awk"
	case "ocaml":
		return "ocaml"
	case "octave", "gnuplot", "maxima", "dc", "bc":
		return "math"
	case "raku", "perl6":
		return "perl"
	}
	return "script"
}

// codeFlag reports whether an option carries code, and what of it is
// attached.
func codeFlag(lang, s string) (bool, string) {
	switch lang {
	case "perl":
		for k := 1; k < len(s) && !strings.HasPrefix(s, "--"); k++ {
			switch s[k] {
			case 'e', 'E':
				return true, s[k+1:]
			case 'I', 'M', 'm', 'i', 'x', 'C', 'D', 'F', 'V':
				if s[k] == 'i' && (k+1 == len(s) || s[k+1] == 'e') || s[k] == 'F' && false {
					continue
				}
				return false, ""
			}
		}
		return false, ""
	case "ruby":
		for k := 1; k < len(s) && !strings.HasPrefix(s, "--"); k++ {
			switch s[k] {
			case 'e':
				return true, s[k+1:]
			case 'r', 'I', 'F', 'E', 'K', 'C', 'i':
				if s[k] == 'i' && k+1 < len(s) && s[k+1] == 'e' {
					continue
				}
				return false, ""
			}
		}
		return false, ""
	case "php":
		switch {
		case s == "-r", s == "-B", s == "-R", s == "-E", s == "--run", s == "--process-code":
			return true, ""
		case strings.HasPrefix(s, "-r"):
			return true, s[2:]
		case strings.HasPrefix(s, "--run="):
			return true, s[6:]
		}
		return false, ""
	case "jvm":
		return s == "-e", ""
	case "lisp":
		switch s {
		case "-c", "-e", "--eval", "-eval", "-x", "--execute":
			return true, ""
		}
		if v, ok := strings.CutPrefix(s, "--eval="); ok {
			return true, v
		}
		return false, ""
	case "powershell":
		l := strings.ToLower(s)
		return l == "-c" || l == "-command" || l == "-commandwithargs", ""
	case "erlang":
		return s == "-eval", ""
	case "math":
		if v, ok := strings.CutPrefix(s, "--eval="); ok {
			return true, v
		}
		return s == "-e" || s == "--eval", ""
	}
	switch s {
	case "-e", "--eval", "-E", "--print", "-p":
		return true, ""
	}
	if strings.HasPrefix(s, "-e") && len(s) > 2 && s[2] != '-' {
		return true, s[2:]
	}
	if v, ok := strings.CutPrefix(s, "--eval="); ok {
		return true, v
	}
	return false, ""
}

func handleSQL(w *walker, c *inv) {
	w.optionRoles(c)
	skipFirst := false
	for _, o := range c.opts {
		switch o.name {
		case "-c", "-e", "--eval", "-cmd", "-Q", "-q":
			if o.has {
				w.sqlText(c, o.v)
				skipFirst = true
			}
		case "-f":
			if o.has {
				if body, ok := w.written(o.v); ok {
					w.sqlText(c, body)
				}
			}
		case "-h", "--host":
			if h := o.v.s; o.has && h != "" && h[0] != '/' && h != "localhost" && h != "127.0.0.1" && h != "::1" && !startsUnknown(h) {
				w.connect(o.v, c.name, nil, false)
			}
		}
	}
	for i, v := range c.ops {
		switch {
		case strings.Contains(v.s, "://"):
			if !strings.Contains(v.s, "@localhost") && !strings.Contains(v.s, "://localhost") && !strings.Contains(v.s, "127.0.0.1") && !startsUnknown(v.s) {
				w.connectURL(v, nil, false)
			}
		case (c.name == "sqlite3" || c.name == "duckdb" || c.name == "sqlite" || c.name == "litecli") && i == 0:
			if v.s != ":memory:" {
				w.reads(v)
				w.writes(v, "")
			}
		case c.name == "sqlite3" || c.name == "duckdb" || c.name == "sqlite":
			w.sqlText(c, v)
			skipFirst = true
		}
	}
	if c.io.in != nil && !skipFirst && c.in.s != "" && !bare(strings.TrimSpace(c.in.s)) {
		w.sqlText(c, c.in)
	} else if c.io.in != nil && !skipFirst && (c.in.origin() == cordon.OriginDecoded || c.in.origin() == cordon.OriginNetwork) {
		w.code("sql", c.in, c.name)
	}
}

// sqlText reads statements; client commands in them run here.
func (w *walker) sqlText(c *inv, v val) {
	for _, line := range strings.Split(v.s, "\n") {
		t := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(t, `\!`):
			w.turn(val{s: t[2:]}, c.name+` \!`, stdio{})
		case strings.HasPrefix(t, ".shell ") || strings.HasPrefix(t, ".system "):
			w.turn(val{s: t[strings.IndexByte(t, ' '):]}, c.name+" .shell", stdio{})
		case strings.HasPrefix(t, "system ") && c.name != "psql":
			w.turn(val{s: strings.TrimSuffix(t[7:], ";")}, c.name+" system", stdio{})
		case strings.HasPrefix(t, ".read ") || strings.HasPrefix(t, ".import ") || strings.HasPrefix(t, ".load "):
			f := strings.Fields(t)
			if len(f) > 1 {
				if strings.HasPrefix(f[1], "|") || strings.HasPrefix(f[1], `"|`) {
					w.turn(val{s: strings.Trim(t[strings.IndexByte(t, '|')+1:], `"`)}, c.name+" "+f[0], stdio{})
				} else {
					w.reads(val{s: w.tildeText(strings.Trim(f[1], `'"`))})
				}
				if f[0] == ".load" {
					w.opaque("loads native code", cordon.OriginFile, f[1])
				}
			}
		case strings.HasPrefix(t, ".output ") || strings.HasPrefix(t, ".once ") || strings.HasPrefix(t, ".backup ") || strings.HasPrefix(t, ".save ") || strings.HasPrefix(t, ".log "):
			f := strings.Fields(t)
			last := strings.Trim(f[len(f)-1], `'"`)
			if strings.HasPrefix(last, "|") || strings.Contains(t, " |") {
				w.turn(val{s: t[strings.IndexByte(t, '|')+1:]}, c.name+" "+f[0], stdio{})
			} else if last != "stdout" {
				w.writes(val{s: w.tildeText(last)}, "create")
			}
		case strings.HasPrefix(t, `\o`) || strings.HasPrefix(t, `\g`) || strings.HasPrefix(t, `\w`):
			if i := strings.IndexByte(t, '|'); i > 0 {
				w.turn(val{s: t[i+1:]}, c.name+" "+t[:2], stdio{})
			} else if f := strings.Fields(t); len(f) > 1 && strings.ContainsAny(f[1], "/.~") {
				w.writes(val{s: w.tildeText(f[1])}, "create")
			}
		case strings.HasPrefix(t, `\i`), strings.HasPrefix(t, `\copy`), strings.HasPrefix(t, `\.`):
			for _, f := range strings.Fields(t)[1:] {
				if f = strings.Trim(f, `'"`); strings.ContainsAny(f, "/~") {
					w.reads(val{s: w.tildeText(f)})
				}
			}
			if i := strings.Index(strings.ToLower(t), "program"); i > 0 {
				w.turn(val{s: strings.Trim(strings.TrimSpace(t[i+7:]), `'"`)}, c.name+` \copy`, stdio{})
			}
		}
	}
	if w.env.Code == nil {
		// Without a reader for SQL its text is not judged as code of a shell.
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "sql", Text: dropMarks(v.s), Origin: v.origin()})
		return
	}
	w.code("sql", v, c.name)
}

func (w *walker) tildeText(s string) string {
	if strings.HasPrefix(s, "~/") && w.env.Home != "" {
		return w.env.Home + s[1:]
	}
	return s
}

// decoded applies a decoder to a text.
func decoded(in val, f func(string) (string, bool)) val {
	out := val{s: mDecoded, data: in.data, taint: in.taint | tDecoded}
	if in.known() && in.s != "" {
		if t, ok := f(in.s); ok {
			out.s = t
		}
	}
	return out
}

func decodeBase64(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == ' ' {
			return -1
		}
		return r
	}, s)
	for _, e := range [...]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(s); err == nil {
			return textOf(b)
		}
	}
	return "", false
}

func textOf(b []byte) (string, bool) {
	if !utf8.Valid(b) {
		return "", false
	}
	return cleanInput(string(b)), true
}

func decodeHex(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \n\r\t", r) {
			return -1
		}
		return r
	}, s)
	b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	if err != nil {
		return "", false
	}
	return textOf(b)
}

// handleDecode is base64, xxd, gunzip and their kin.
func handleDecode(w *walker, c *inv) {
	w.optionRoles(c)
	in := c.in
	fromFile := false
	ops := c.ops
	if c.name == "basenc" && len(ops) > 1 {
		ops = ops[:1]
	}
	for i, v := range ops {
		if v.s == "-" {
			continue
		}
		if c.name == "xxd" && i == 1 || c.name == "uudecode" && i == 1 {
			w.writes(v, "create")
			continue
		}
		w.reads(v)
		c.took(v)
		in = w.content(v)
		fromFile = true
	}
	dec := c.has("-d", "-D", "--decode", "-r", "--revert") || c.name == "gunzip" || c.name == "zcat" || c.name == "bunzip2" || c.name == "bzcat" ||
		c.name == "unxz" || c.name == "xzcat" || c.name == "unzstd" || c.name == "zstdcat" || c.name == "uudecode" || c.name == "lz4cat" || c.name == "unlzma" || c.name == "lzcat" || c.name == "uncompress"
	squeeze := strings.Contains("gzip gunzip bzip2 bunzip2 xz unxz zstd unzstd lzma pigz lz4 uncompress compress", c.name)
	if squeeze && fromFile && !c.has("-c", "--stdout", "--to-stdout", "-l", "-t") {
		for _, v := range c.ops {
			w.writes(v, "")
		}
		c.print(val{})
		return
	}
	if !dec {
		if fromFile {
			c.print(val{s: mFile, data: union(c.out.data, in.data), taint: tFile})
			return
		}
		c.print(val{s: unknownOf(in.taint), data: in.data, taint: in.taint})
		if c.name == "base64" && in.known() && in.s != "" {
			c.print(val{s: base64.StdEncoding.EncodeToString([]byte(in.s)) + "\n", data: in.data})
		}
		return
	}
	f := func(string) (string, bool) { return "", false }
	switch c.name {
	case "base64":
		f = decodeBase64
	case "xxd":
		f = decodeHex
	case "basenc":
		if c.has("--base16") {
			f = decodeHex
		} else {
			f = decodeBase64
		}
	}
	out := decoded(in, f)
	out.data = union(out.data, c.out.data)
	c.print(out)
}

func handleRev(w *walker, c *inv) {
	in := c.in
	for _, v := range c.ops {
		w.reads(v)
		c.took(v)
		in = w.content(v)
	}
	c.print(decoded(in, func(s string) (string, bool) {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			r := []rune(l)
			for a, b := 0, len(r)-1; a < b; a, b = a+1, b-1 {
				r[a], r[b] = r[b], r[a]
			}
			lines[i] = string(r)
		}
		return strings.Join(lines, "\n"), true
	}))
}

// handleTr translates constants; deleting blanks or changing case is no
// decoding.
func handleTr(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	set1 := trSet(deactivate(c.ops[0].s))
	set2 := ""
	if len(c.ops) > 1 {
		set2 = trSet(deactivate(c.ops[1].s))
	}
	if c.has("-c", "-C", "--complement") || c.has("-s") && set2 == "" {
		if c.in.known() {
			c.print(val{s: unknownOf(c.in.taint), data: c.in.data, taint: c.in.taint})
			return
		}
		c.print(c.in)
		return
	}
	f := func(s string) (string, bool) { return trText(s, set1, set2, c.has("-d", "--delete")), true }
	cipher := len(set1) > 6 && set2 != "" && !sameLetters(set1, set2)
	if cipher {
		c.print(decoded(c.in, f))
		return
	}
	out := c.in
	if out.known() {
		out.s, _ = f(out.s)
	} else if out.s != "" && set1 != "\n" {
		if bare(strings.TrimSpace(out.s)) && !strings.Contains(out.s, mPath) {
			c.print(out)
			return
		}
	}
	c.print(out)
}

func sameLetters(a, b string) bool { return strings.EqualFold(a, b) || len([]rune(b)) == 1 }

func trSet(s string) string {
	s = unescape(s, true)
	for _, c := range classes {
		s = strings.ReplaceAll(s, c.name, c.set)
	}
	r := []rune(s)
	var out []rune
	for i := 0; i < len(r); i++ {
		if i+2 < len(r) && r[i+1] == '-' && r[i] <= r[i+2] && r[i+2]-r[i] < 256 {
			for x := r[i]; x <= r[i+2]; x++ {
				out = append(out, x)
			}
			i += 2
			continue
		}
		if r[i] != '[' && r[i] != ']' {
			out = append(out, r[i])
		}
	}
	return string(out)
}

func trText(s, set1, set2 string, del bool) string {
	a, b := []rune(set1), []rune(set2)
	m := make(map[rune]rune, len(a))
	for i, r := range a {
		if del || len(b) == 0 {
			m[r] = -1
		} else {
			m[r] = b[min(i, len(b)-1)]
		}
	}
	return strings.Map(func(r rune) rune {
		if t, ok := m[r]; ok {
			return t
		}
		return r
	}, s)
}

func handleHead(w *walker, c *inv) {
	w.optionRoles(c)
	var out val
	out = c.in
	if len(c.ops) > 0 {
		out = val{}
	}
	for _, v := range c.ops {
		w.reads(v)
		c.took(v)
		out = join(out, w.content(v))
	}
	n, hasN := c.get("-n")
	if !hasN && len(c.opts) > 0 && isDigits(strings.TrimPrefix(c.opts[0].name, "-")) {
		n, hasN = val{s: c.opts[0].name[1:]}, true
	}
	if c.name == "head" && out.known() && hasN && n.s == "1" {
		line, _, _ := strings.Cut(out.s, "\n")
		out.s = line + "\n"
	}
	if c.name == "tail" && out.known() && hasN && n.s == "1" {
		t := strings.TrimRight(out.s, "\n")
		out.s = t[strings.LastIndexByte(t, '\n')+1:] + "\n"
	}
	c.print(out)
}
