package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// code hands code in another language to its reader.
func (w *walker) code(lang string, src val, via string) {
	src.s = deactivate(src.s)
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
	defer w.act("")() // the other language's own chain goes on from here
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
	if fd, ok := strings.CutPrefix(file.s, "/dev/fd/"); ok {
		if v, ok := w.fds[fd]; ok {
			w.turn(v, c.name, stdio{})
			return
		}
	}
	if v, ok := w.written(file); ok {
		w.scriptText(c, v, file, true)
		return
	}
	if hasMark(file.s) {
		if strings.HasPrefix(file.s, mPath) || strings.HasPrefix(file.s, mName) || strings.HasPrefix(file.s, mTemp) || !startsUnknown(file.s) {
			w.emitExec(file, nil)
			return
		}
		if i := strings.LastIndexByte(file.s, '/'); i > 0 && !hasMark(file.s[i:]) && file.origin() == cordon.OriginUnknown {
			return
		}
		w.opaque("runs a script that cannot be told", file.origin(), "")
		return
	}
	w.reads(file)
	w.emitExec(file, nil)
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
	if fd, ok := strings.CutPrefix(file.s, "/dev/fd/"); ok {
		if v, ok := w.fds[fd]; ok {
			w.code(lang, v, via)
			return
		}
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
	w.emitExec(file, nil)
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
		host, port := "", "8000"
		for i, a := range args {
			if isDigits(a.s) {
				port = a.s
			}
			if (a.s == "-d" || a.s == "--directory") && i+1 < len(args) {
				w.readsAll(args[i+1])
			}
			if (a.s == "-b" || a.s == "--bind") && i+1 < len(args) {
				host = dropMarks(args[i+1].s)
			}
		}
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: host + ":" + port, Op: "listen"})
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
			src := take()
			if name != "-e" && name != "--eval" && !strings.ContainsAny(src.s, ";\n") {
				// What is printed leaves the program.
				src.s = "console.log(" + src.s + "\n)"
			}
			w.code(lang, src, c.name+" "+name)
			ran = true
		case "-r", "--require", "--import", "--loader", "--experimental-loader", "--preload":
			f := take()
			if strings.Contains(f.s, "://") && !strings.HasPrefix(f.s, "file:") {
				w.connectURL(f, nil, false)
				w.opaque("runs code that was downloaded", cordon.OriginNetwork, dropMarks(f.s))
			} else if strings.HasPrefix(f.s, "data:") {
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
