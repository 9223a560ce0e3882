package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cordon-sandbox/cordon"
)

// builtins finds what the shell itself does for a command word; nil if it is
// a program.
func builtins(name string) func(*walker, *inv) {
	switch name {
	case ":", "true", "false", "shift", "wait", "jobs", "fg", "bg", "return", "exit", "break", "continue", "umask", "ulimit",
		"times", "help", "disown", "suspend", "caller", "logout", "bindkey", "zstyle", "autoload", "setopt", "unsetopt", "compdef", "rehash":
		return builtinQuiet
	case "cd", "chdir", "pushd", "popd":
		return builtinCd
	case "pwd":
		return func(w *walker, c *inv) { c.print(appendNL(w.dir())) }
	case "dirs":
		return func(w *walker, c *inv) { c.print(appendNL(w.dir())) }
	case "eval":
		return builtinEval
	case "source", ".":
		return builtinSource
	case "exec":
		return builtinExec
	case "command", "builtin", "noglob", "nocorrect":
		return builtinCommand
	case "export", "declare", "typeset", "local", "readonly", "nameref":
		return builtinDeclare
	case "unset":
		return builtinUnset
	case "set":
		return builtinSet
	case "read":
		return builtinRead
	case "mapfile", "readarray":
		return builtinMapfile
	case "printf":
		return builtinPrintf
	case "echo", "print":
		return builtinEcho
	case "test", "[":
		return builtinTest
	case "trap":
		return builtinTrap
	case "alias":
		return builtinAlias
	case "unalias":
		return builtinQuiet
	case "let":
		return func(w *walker, c *inv) {
			for _, a := range c.args {
				w.arithText(a.s)
			}
		}
	case "type", "which", "hash":
		return builtinHash
	case "kill":
		return builtinKill
	case "getopts":
		return func(w *walker, c *inv) {
			if len(c.args) > 1 && validName(c.args[1].s) {
				w.setVar(c.args[1].s, val{s: mName})
			}
			w.setVar("OPTARG", val{s: mUnset})
		}
	case "shopt", "enable", "bind", "complete", "compgen", "compopt", "history", "fc":
		return builtinInteractive
	case "coproc":
		return func(w *walker, c *inv) { w.sub(c.args, stdio{}, "coproc") }
	}
	return nil
}

func appendNL(v val) val { v.s += "\n"; return v }

func builtinQuiet(w *walker, c *inv) {
	if c.word.s == "shift" {
		n := 1
		if len(c.args) > 0 {
			n, _ = strconv.Atoi(c.args[0].s)
		}
		if n >= 0 && n <= len(w.params) {
			w.params = w.params[n:]
		}
	}
	c.print(val{})
}

func builtinCd(w *walker, c *inv) {
	c.print(val{})
	if c.word.s == "popd" {
		if s := w.names.get(keyOldDir); s != nil {
			w.names.set(keyDir, &slot{alts: s.alts})
		}
		return
	}
	var ops []val
	for _, a := range c.args {
		if len(a.s) > 1 && a.s[0] == '-' && len(ops) == 0 || a.s == "--" {
			continue
		}
		ops = append(ops, a)
	}
	switch {
	case len(ops) == 0 && c.word.s == "pushd":
	case len(ops) == 0:
		v, _ := w.lookup("HOME")
		w.setDir(v)
	case ops[0].s == "-":
		if s := w.names.get(keyOldDir); s != nil {
			w.setDir(s.alts[0])
		} else {
			w.setDir(val{s: mUnset})
		}
	default:
		if ops[0].s == "" {
			return
		}
		d := val{s: w.followLinks(ops[0].s), data: ops[0].data}
		w.setDir(w.joinDir(d))
	}
}

func builtinEval(w *walker, c *inv) {
	if len(c.args) == 0 {
		return
	}
	args := c.args
	if args[0].s == "--" {
		args = args[1:]
	}
	text := joinVals(args, " ")
	if strings.TrimSpace(text.s) == "" {
		return
	}
	w.turn(text, "eval", c.io)
	c.print(val{}) // what ran has written
	if bare(text.s) {
		c.print(val{s: mUnknown})
	}
}

func builtinSource(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") && args[0].s != "-" {
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	file := args[0]
	w.reads(file)
	if len(args) > 1 {
		saved := w.params
		w.params = args[1:]
		defer func() { w.params = saved }()
	}
	w.sourceFile(c, file, "source")
	c.print(val{s: mUnknown})
}

// sourceFile runs a file's text in the current shell.
func (w *walker) sourceFile(c *inv, file val, via string) {
	switch file.s {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-":
		if c.io.in != nil {
			w.turn(*c.io.in, via, stdio{})
			return
		}
	}
	if fd, ok := strings.CutPrefix(file.s, "/dev/fd/"); ok {
		if v, ok := w.fds[fd]; ok {
			w.turn(v, via, stdio{})
			return
		}
	}
	if v, ok := w.written(file); ok {
		w.turn(v, via, c.io)
		return
	}
	if v, ok := w.readScript(file); ok {
		w.turn(v, via, c.io)
		return
	}
	if !file.known() && !strings.HasPrefix(file.s, mTemp) {
		if strings.HasPrefix(file.s, mPath) {
			return
		}
		if i := strings.LastIndexByte(file.s, '/'); i < 0 || hasMark(file.s[i:]) || file.origin() != cordon.OriginUnknown {
			w.opaque("runs a file that cannot be told", file.origin(), "")
		}
	}
}

func builtinExec(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && len(args[0].s) > 1 && args[0].s[0] == '-' {
		if strings.HasPrefix(args[0].s, "-a") && len(args[0].s) == 2 && len(args) > 1 {
			args = args[1:]
		}
		if args[0].s == "--" {
			args = args[1:]
			break
		}
		args = args[1:]
	}
	if len(args) > 0 {
		w.sub(args, c.io, "exec")
		c.print(val{})
	}
}

func builtinCommand(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && len(args[0].s) > 1 && args[0].s[0] == '-' {
		if strings.ContainsAny(args[0].s, "vV") {
			c.print(val{s: mName})
			if last := args[len(args)-1]; len(args) == 2 && last.known() {
				c.print(appendNL(last))
			}
			return
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	if c.word.s == "noglob" || c.word.s == "nocorrect" {
		w.run(args, c.io, false)
		return
	}
	w.run(args, c.io, true)
	c.print(val{})
}

func (w *walker) declare(variant string, as []*syntax.Assign, io stdio) {
	flags := ""
	print := variant != "local"
	for _, a := range as {
		if a.Naked && a.Name == nil {
			v := w.single(a.Value)
			if strings.HasPrefix(v.s, "-") || strings.HasPrefix(v.s, "+") {
				flags += v.s
				continue
			}
			w.declareText(variant, flags, v)
			print = false
			continue
		}
		print = false
		if a.Name == nil {
			continue
		}
		w.declareOne(variant, flags, a)
	}
	if print && (flags == "" || strings.Trim(flags, "-pxrAai") == "") || strings.Contains(flags, "p") && print {
		if variant != "local" {
			w.dumpsEnv(io)
		}
	}
}

// dumpsEnv is a command that prints the whole environment.
func (w *walker) dumpsEnv(io stdio) {
	if w.pipe != nil && w.pipe.picks != "" {
		w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: w.pipe.picks})
		return
	}
	w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
	io.out.write(val{s: mUnknown, data: []string{"$*"}})
}

func (w *walker) declareOne(variant, flags string, a *syntax.Assign) {
	name := a.Name.Value
	if a.Naked {
		old := w.names.get(name)
		n := slot{}
		if old != nil {
			n = *old
		} else if variant == "local" || strings.ContainsAny(flags, "aA") {
			n.alts = []val{{}}
		}
		n.isArr = n.isArr || strings.ContainsAny(flags, "aA")
		w.attributes(name, variant, flags, &n)
		if n.alts != nil || n.isArr || n.exported {
			w.names.set(name, &n)
		}
		return
	}
	w.assign(a)
	if s := w.names.get(name); s != nil {
		n := *s
		w.attributes(name, variant, flags, &n)
		w.names.set(name, &n)
	}
}

func (w *walker) attributes(name, variant, flags string, n *slot) {
	if variant == "export" && !strings.Contains(flags, "n") || strings.Contains(flags, "-x") || strings.Contains(flags, "x") && strings.HasPrefix(flags, "-") {
		n.exported = true
		for _, v := range n.alts {
			w.envPoison(name, v)
		}
	}
	if variant == "nameref" || strings.Contains(flags, "n") && variant != "export" {
		n.ref = true
	}
	if strings.Contains(flags, "i") {
		for i, v := range n.alts {
			if k, ok := w.arithText(v.s); ok {
				n.alts = append([]val(nil), n.alts...)
				n.alts[i] = lit(strconv.Itoa(k))
			}
		}
	}
	if strings.ContainsAny(flags, "ul") && len(n.alts) > 0 && !strings.HasPrefix(flags, "+") {
		alts := append([]val(nil), n.alts...)
		for i := range alts {
			if strings.Contains(flags, "u") {
				alts[i].s = strings.ToUpper(alts[i].s)
			} else {
				alts[i].s = strings.ToLower(alts[i].s)
			}
		}
		n.alts = alts
	}
}

// declareText is an argument of declare that an expansion made.
func (w *walker) declareText(variant, flags string, v val) {
	name, value, ok := strings.Cut(v.s, "=")
	if strings.ContainsAny(name, "[") {
		w.arithText(strings.TrimSuffix(name[strings.IndexByte(name, '[')+1:], "]"))
		name = name[:strings.IndexByte(name, '[')]
	}
	name = strings.TrimSuffix(name, "+")
	if !validName(name) {
		return
	}
	if ok {
		w.setVar(name, val{s: value, data: v.data, taint: v.taint})
	}
	if s := w.names.get(name); s != nil {
		n := *s
		w.attributes(name, variant, flags, &n)
		w.names.set(name, &n)
	}
}

func builtinDeclare(w *walker, c *inv) {
	flags := ""
	n := 0
	for _, a := range c.args {
		if strings.HasPrefix(a.s, "-") || strings.HasPrefix(a.s, "+") {
			flags += a.s
			continue
		}
		n++
		w.declareText(c.word.s, flags, a)
	}
	if n == 0 && c.word.s != "local" {
		w.dumpsEnv(c.io)
	}
	c.print(val{})
}

func builtinUnset(w *walker, c *inv) {
	for _, a := range c.args {
		if i := strings.IndexByte(a.s, '['); i > 0 {
			w.arithText(strings.TrimSuffix(a.s[i+1:], "]"))
			continue
		}
		if validName(a.s) {
			w.forgets(a.s, val{})
			w.names.set(a.s, &slot{alts: []val{{}}})
			if w.names.get(keyFunc+a.s) != nil && len(c.args) > 1 && c.args[0].s == "-f" {
				w.names.set(keyFunc+a.s, nil)
			}
			if a.s == "IFS" {
				w.names.set(a.s, nil)
			}
		}
	}
	c.print(val{})
}

func builtinSet(w *walker, c *inv) {
	c.print(val{})
	if len(c.args) == 0 {
		w.dumpsEnv(c.io)
		return
	}
	args := c.args
	for len(args) > 0 {
		s := args[0].s
		if s == "--" || s == "-" {
			w.params, w.openParams = args[1:], false
			return
		}
		if len(s) < 2 || s[0] != '-' && s[0] != '+' {
			w.params, w.openParams = args, false
			return
		}
		if strings.HasSuffix(s, "o") && len(args) > 1 {
			if args = args[1:]; args[0].s == "history" && s[0] == '+' {
				w.forgetsHistory("set +o history")
			}
		}
		if strings.Contains(s, "a") && s[0] == '-' && !strings.Contains(s, "o") {
			w.allExport = true
		}
		args = args[1:]
	}
}

func builtinRead(w *walker, c *inv) {
	c.print(val{})
	var vars []string
	array, delim := false, "\n"
	for i := 0; i < len(c.args); i++ {
		s := c.args[i].s
		if len(s) > 1 && s[0] == '-' && len(vars) == 0 {
			last := s[len(s)-1]
			switch {
			case last == 'a':
				array = true
			case strings.IndexByte("dinNptu", last) >= 0:
				i++
				if last == 'd' && i < len(c.args) {
					delim = c.args[i].s
				}
				if last == 'u' && i < len(c.args) {
					if v, ok := w.fds[c.args[i].s]; ok {
						c.io.in = &v
					}
				}
			case strings.HasPrefix(s, "-d") && len(s) > 2:
				delim = s[2:]
			}
			continue
		}
		if j := strings.IndexByte(s, '['); j > 0 {
			w.arithText(strings.TrimSuffix(s[j+1:], "]"))
			s = s[:j]
		}
		if k := strings.IndexByte(s, '?'); k > 0 {
			s = s[:k]
		}
		if validName(s) {
			vars = append(vars, s)
		}
	}
	if len(vars) == 0 {
		vars = []string{"REPLY"}
	}
	w.readInto(vars, array, delim, c)
}

func (w *walker) readInto(vars []string, array bool, delim string, c *inv) {
	if c.io.in == nil {
		for _, v := range vars {
			w.setVar(v, val{s: mUnknown})
		}
		return
	}
	in := c.io.in
	line := in.s
	if i := strings.Index(in.s, delim); i >= 0 && delim != "" && i+len(delim) == len(in.s) && bare(in.s[:i]) {
		line = in.s[:i] // one of many such lines
	} else if i >= 0 && delim != "" {
		line, in.s = in.s[:i], in.s[i+len(delim):]
	} else if !bare(in.s) {
		in.s = ""
	}
	mk := func(s string) val { return val{s: s, data: in.data, taint: in.taint} }
	ifs, _ := w.lookup("IFS")
	if array {
		pieces, _, _ := splitIFS(line, ifs.s)
		var arr []val
		for _, p := range pieces {
			arr = append(arr, mk(p))
		}
		w.setArray(vars[0], arr, nil)
		return
	}
	if len(vars) == 1 {
		w.setVar(vars[0], mk(strings.Trim(line, " \t\n")))
		return
	}
	pieces, _, _ := splitIFS(line, ifs.s)
	for i, v := range vars {
		switch {
		case bare(line):
			w.setVar(v, mk(line))
		case i >= len(pieces):
			w.setVar(v, val{})
		case i == len(vars)-1 && len(pieces) > len(vars):
			w.setVar(v, mk(strings.Join(pieces[i:], " ")))
		default:
			w.setVar(v, mk(pieces[i]))
		}
	}
}

func builtinMapfile(w *walker, c *inv) {
	name := "MAPFILE"
	trim := false
	for i := 0; i < len(c.args); i++ {
		s := c.args[i].s
		if len(s) > 1 && s[0] == '-' {
			trim = trim || strings.Contains(s, "t")
			if strings.IndexByte("dnOsuCc", s[len(s)-1]) >= 0 && i+1 < len(c.args) {
				i++
				if strings.HasSuffix(s, "C") {
					w.turn(c.args[i], "mapfile -C", stdio{})
				}
			}
			continue
		}
		name = s
	}
	var arr []val
	if c.io.in != nil {
		for _, l := range strings.SplitAfter(c.io.in.s, "\n") {
			if trim {
				l = strings.TrimSuffix(l, "\n")
			}
			if l != "" && len(arr) < maxFields {
				arr = append(arr, val{s: l, data: c.io.in.data, taint: c.io.in.taint})
			}
		}
	} else {
		arr = []val{{s: mUnknown}}
	}
	if validName(name) {
		w.setArray(name, arr, nil)
	}
	c.print(val{})
}

func builtinPrintf(w *walker, c *inv) {
	args := c.args
	if len(args) > 1 && strings.HasPrefix(args[0].s, "-v") {
		name := strings.TrimPrefix(args[0].s, "-v")
		args = args[1:]
		if name == "" && len(args) > 0 {
			name, args = args[0].s, args[1:]
		}
		if i := strings.IndexByte(name, '['); i > 0 {
			w.arithText(strings.TrimSuffix(name[i+1:], "]"))
			name = name[:i]
		}
		if validName(name) {
			w.setVar(name, formatted(args))
		}
		c.print(val{})
		return
	}
	if len(args) > 0 && args[0].s == "--" {
		args = args[1:]
	}
	c.print(formatted(args))
}

// formatted is what printf prints.
func formatted(args []val) val {
	if len(args) == 0 {
		return val{}
	}
	format := args[0]
	out := val{data: format.data, taint: format.taint}
	if strings.Contains(format.s, mUnknown) && bare(format.s) {
		return format
	}
	args = args[1:]
	for round := 0; round == 0 || len(args) > 0 && round < 256; round++ {
		n := len(args)
		var text val
		text, args = formatOnce(format.s, args)
		out = join(out, text)
		if len(args) == n {
			break
		}
	}
	return out
}

func formatOnce(f string, args []val) (val, []val) {
	var out val
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			out = join(out, val{s: unescape(b.String(), false)})
			b.Reset()
		}
	}
	for i := 0; i < len(f); i++ {
		if f[i] != '%' || i+1 == len(f) {
			b.WriteByte(f[i])
			continue
		}
		if f[i+1] == '%' {
			b.WriteByte('%')
			i++
			continue
		}
		j := i + 1
		for j < len(f) && strings.IndexByte("-+ #0123456789.*hlLjzt'", f[j]) >= 0 {
			j++
		}
		if j < len(f) && f[j] == '(' {
			if k := strings.IndexByte(f[j:], ')'); k > 0 {
				j += k + 1
			}
		}
		if j >= len(f) {
			break
		}
		flush()
		var a val
		if len(args) > 0 {
			a, args = args[0], args[1:]
		}
		out = join(out, convert(f[i+1:j], f[j], a))
		i = j
	}
	flush()
	return out, args
}

func convert(spec string, verb byte, a val) val {
	if !a.known() {
		return a
	}
	switch verb {
	case 'b':
		a.s = unescape(a.s, false)
	case 'c':
		if len(a.s) > 1 {
			a.s = a.s[:1]
		}
	case 'd', 'i', 'u', 'x', 'X', 'o':
		n, err := strconv.ParseInt(strings.TrimSpace(a.s), 0, 64)
		if strings.HasPrefix(a.s, "'") || strings.HasPrefix(a.s, "\"") {
			for _, r := range a.s[1:] {
				n, err = int64(r), nil
				break
			}
		}
		if err != nil {
			n = 0
		}
		base := 10
		if verb == 'x' || verb == 'X' {
			base = 16
		} else if verb == 'o' {
			base = 8
		}
		a.s = strconv.FormatInt(n, base)
		width, zero := strings.TrimLeft(spec, "-+ #0"), strings.HasPrefix(spec, "0")
		if k, err := strconv.Atoi(width); err == nil && k < 64 {
			for len(a.s) < k {
				if zero {
					a.s = "0" + a.s
				} else {
					a.s = " " + a.s
				}
			}
		}
	case 's', 'q':
		if _, prec, ok := strings.Cut(spec, "."); ok {
			if k, err := strconv.Atoi(prec); err == nil && k < len(a.s) {
				a.s = a.s[:k]
			}
		}
		if k, err := strconv.Atoi(spec); err == nil && k < 256 && k > -256 {
			for len(a.s) < k {
				a.s = " " + a.s
			}
			for len(a.s) < -k {
				a.s += " "
			}
		}
	}
	return a
}

func builtinEcho(w *walker, c *inv) {
	args := c.args
	nl, esc := true, false
	for len(args) > 0 && len(args[0].s) > 1 && args[0].s[0] == '-' && strings.Trim(args[0].s[1:], "neE") == "" {
		nl = nl && !strings.Contains(args[0].s, "n")
		esc = esc || strings.Contains(args[0].s, "e")
		args = args[1:]
	}
	for i, a := range args {
		if strings.Contains(a.s, mGlob) {
			// What echo prints of a pattern are names.
			args = append([]val(nil), args...)
			args[i].s = settle(a.s)
		}
	}
	v := joinVals(args, " ")
	if esc {
		v.s = unescape(v.s, false)
	}
	if nl {
		v.s += "\n"
	}
	c.print(v)
}

func builtinTest(w *walker, c *inv) {
	c.print(val{})
	for i, a := range c.args {
		if (a.s == "-v" || a.s == "-R") && i+1 < len(c.args) {
			w.arithText(c.args[i+1].s)
		}
		if i > 0 && (a.s == "-eq" || a.s == "-ne" || a.s == "-lt" || a.s == "-gt" || a.s == "-le" || a.s == "-ge") {
			// Some shells evaluate these as arithmetic.
			for _, k := range [...]int{i - 1, i + 1} {
				if k < len(c.args) && strings.Contains(c.args[k].s, "$(") {
					w.arithText(c.args[k].s)
				}
			}
		}
	}
}

func builtinTrap(w *walker, c *inv) {
	c.print(val{})
	args := c.args
	if len(args) > 0 && args[0].s == "--" {
		args = args[1:]
	} else if len(args) > 0 && len(args[0].s) > 1 && args[0].s[0] == '-' {
		return
	}
	if len(args) < 2 || args[0].s == "" || args[0].s == "-" {
		return
	}
	w.turn(args[0], "trap", stdio{})
	if len(w.traps) < 32 {
		w.traps = append(w.traps, args[0])
	}
}

func builtinAlias(w *walker, c *inv) {
	c.print(val{s: mUnknown})
	for _, a := range c.args {
		name, text, ok := strings.Cut(a.s, "=")
		if ok && name != "" {
			w.names.set(keyAlias+name, &slot{alts: []val{{s: text, data: a.data, taint: a.taint}}})
		}
	}
}

func builtinHash(w *walker, c *inv) {
	c.print(val{s: mName})
	if c.word.s == "hash" && len(c.args) >= 3 && strings.HasPrefix(c.args[0].s, "-p") {
		w.names.set(keyCommand+c.args[2].s, &slot{alts: []val{c.args[1]}})
	}
	if c.word.s == "which" && len(c.args) > 0 && c.args[len(c.args)-1].known() {
		c.print(appendNL(val{s: "/usr/bin/" + c.args[len(c.args)-1].s}))
	}
}

func builtinKill(w *walker, c *inv) {
	c.print(val{})
	end := false
	for i, a := range c.args {
		switch {
		case a.s == "-s" || a.s == "-n":
		case a.s == "--":
			end = true
		case strings.Trim(a.s, "\n ") == mUnknown:
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: "processes that cannot be told", Doubtful: true})
		case (a.s == "-1" && (i > 0 || len(c.args) == 1 || end)) || a.s == "1" && i > 0 && c.args[0].s != "-0":
			if a.s == "-1" && i == 0 && len(c.args) > 1 && !end {
				continue
			}
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: a.s})
		}
	}
}

// forgets notes the settings by which a shell keeps no history.
func (w *walker) forgets(name string, v val) {
	switch name {
	case "HISTFILE":
		if v.s == "" || v.s == "/dev/null" {
			w.forgetsHistory(name)
		}
	case "HISTSIZE", "HISTFILESIZE":
		if v.s == "0" {
			w.forgetsHistory(name)
		}
	}
}

func (w *walker) forgetsHistory(target string) {
	w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "history", Target: target})
}

func builtinInteractive(w *walker, c *inv) {
	c.print(val{s: mUnknown})
	switch c.word.s {
	case "history":
		c.print(val{s: mUnknown, data: []string{"~/.bash_history"}})
		changes := len(c.args) > 0 && strings.HasPrefix(c.args[0].s, "-")
		if changes && strings.ContainsAny(c.args[0].s, "cdw") {
			w.forgetsHistory("history " + c.args[0].s)
		}
		if !changes {
			w.doubt++ // a shell that runs one text has hardly any
			w.reads(val{s: w.homePath(".bash_history")})
			w.doubt--
		}
	case "shopt":
		if text := joinVals(c.args, " ").s; strings.HasPrefix(text, "-") && strings.HasSuffix(text, " history") && strings.Contains(text, "u") {
			w.forgetsHistory("shopt " + text)
		}
	case "fc":
		if len(c.args) > 0 && strings.HasPrefix(c.args[0].s, "-") && strings.Contains(c.args[0].s, "l") {
			w.doubt++
			w.reads(val{s: w.homePath(".bash_history")})
			w.doubt--
		}
		if len(c.args) > 1 && c.args[0].s == "-e" {
			w.turn(c.args[1], "fc -e", c.io)
		}
	case "compgen":
		for i, a := range c.args {
			if a.s == "-v" || a.s == "-e" || a.s == "-A" && i+1 < len(c.args) && (c.args[i+1].s == "variable" || c.args[i+1].s == "export") {
				w.dumpsEnv(stdio{})
			}
			if (a.s == "-C" || a.s == "-F") && i+1 < len(c.args) {
				w.turn(c.args[i+1], "compgen "+a.s, c.io)
			}
			if a.s == "-W" && i+1 < len(c.args) {
				w.document(c.args[i+1].s, c.args[i+1])
			}
			if strings.HasPrefix(a.s, "-") && i == len(c.args)-2 {
				if g := c.args[i+1]; pathLike(g.s) {
					w.lists(g, false)
				}
			}
		}
	case "bind":
		for i, a := range c.args {
			if a.s == "-x" && i+1 < len(c.args) {
				if _, cmd, ok := strings.Cut(c.args[i+1].s, ":"); ok {
					w.turn(val{s: cmd}, "bind -x", stdio{})
				}
			}
			if a.s == "-f" && i+1 < len(c.args) {
				w.reads(c.args[i+1])
			}
		}
	case "complete":
		for i, a := range c.args {
			if a.s == "-C" && i+1 < len(c.args) {
				w.turn(c.args[i+1], "complete -C", stdio{})
			}
		}
	case "enable":
		for i, a := range c.args {
			if a.s == "-f" && i+1 < len(c.args) {
				w.reads(c.args[i+1])
				w.opaque("loads native code into the shell", cordon.OriginFile, c.args[i+1].s)
			}
		}
	}
}
