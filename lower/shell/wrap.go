package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// handleXargs runs its words with what stands on the input.
func handleXargs(w *walker, c *inv) {
	in := c.in
	if f, ok := c.get("-a"); ok {
		w.reads(f)
		in = w.content(f)
	}
	cmd := c.ops
	if len(cmd) == 0 {
		cmd = []val{{s: "echo"}}
	}
	repl, hasRepl := c.get("-I")
	if o := c.has("-i", "--replace"); o && !hasRepl {
		repl, hasRepl = val{s: "{}"}, true
		if v, ok := c.get("-i", "--replace"); ok && v.s != "" {
			repl = v
		}
	}
	items := xargsItems(in, c, hasRepl)
	pop := w.push("xargs")
	defer pop()
	inner := stdio{out: c.io.out}
	if hasRepl && repl.s != "" {
		for _, it := range items {
			if w.stopped {
				break
			}
			words := make([]val, len(cmd))
			for k, v := range cmd {
				if strings.Contains(v.s, repl.s) {
					v = val{s: strings.ReplaceAll(v.s, repl.s, it.s), data: union(v.data, it.data), taint: v.taint | it.taint}
				}
				words[k] = v
			}
			w.runSub(words, inner)
		}
		c.print(val{})
		return
	}
	n := len(items)
	if k, ok := c.get("-n", "-L", "-l"); ok && k.s == "1" {
		n = 1
	}
	for i := 0; i < len(items) && !w.stopped; i += max(n, 1) {
		w.runSub(append(append([]val(nil), cmd...), items[i:min(i+n, len(items))]...), inner)
	}
	if len(items) == 0 {
		w.runSub(cmd, inner)
	}
	c.print(val{})
}

func (w *walker) runSub(words []val, io stdio) {
	if w.turns >= maxTurns {
		w.limit("texts within texts")
		return
	}
	w.turns++
	w.run(words, io, true)
	w.turns--
}

func xargsItems(in val, c *inv, lines bool) []val {
	s := in.s
	mk := func(t string) val {
		if t == "" {
			return val{}
		}
		return val{s: t, data: in.data, taint: in.taint &^ tFile}
	}
	if s == "" {
		return nil
	}
	var parts []string
	d, hasD := c.get("-d", "--delimiter")
	switch {
	case c.has("-0"):
		parts = strings.FieldsFunc(s, func(r rune) bool { return r == 0 || r == '\n' })
	case hasD:
		sep := unescape(d.s, true)
		if sep == "" {
			sep = "\n"
		}
		parts = strings.Split(strings.TrimSuffix(s, "\n"), sep)
	case lines:
		parts = strings.FieldsFunc(s, func(r rune) bool { return r == '\n' })
		for i, p := range parts {
			parts[i] = strings.TrimLeft(unquoted(p), " \t")
		}
	default:
		parts = xargsWords(s)
	}
	out := make([]val, 0, min(len(parts), maxFields))
	for i, p := range parts {
		if i >= maxFields {
			break
		}
		out = append(out, mk(p))
	}
	return out
}

// unquoted takes the quotes off a line, as xargs -I does.
func unquoted(s string) string {
	if !strings.ContainsAny(s, `'"\`) {
		return s
	}
	var b strings.Builder
	q := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case q == 0 && (c == '\'' || c == '"'):
			q = c
		case q != 0 && c == q:
			q = 0
		case q == 0 && c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// xargsWords splits as xargs does: blanks, quotes, backslashes.
func xargsWords(s string) []string {
	var out []string
	var b strings.Builder
	q := byte(0)
	has := false
	for i := 0; i < len(s) && len(out) < maxFields; i++ {
		c := s[i]
		switch {
		case q != 0 && c == q:
			q = 0
		case q != 0:
			b.WriteByte(c)
		case c == '\'' || c == '"':
			q, has = c, true
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == ' ' || c == '\t' || c == '\n':
			if b.Len() > 0 || has {
				out = append(out, b.String())
				b.Reset()
				has = false
			}
		default:
			b.WriteByte(c)
		}
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

// handleParallel is GNU parallel: a template and items.
func handleParallel(w *walker, c *inv) {
	var cmd, items []val
	rest := c.ops
	for i, v := range rest {
		if strings.HasPrefix(v.s, ":::") {
			if strings.HasPrefix(v.s, "::::") {
				for _, f := range rest[i+1:] {
					w.reads(f)
				}
				items = []val{{s: mFile}}
			} else {
				for _, x := range rest[i+1:] {
					if !strings.HasPrefix(x.s, ":::") {
						items = append(items, x)
					}
				}
			}
			rest = rest[:i]
			break
		}
	}
	cmd = rest
	if a, ok := c.get("-a", "--arg-file"); ok {
		w.reads(a)
	}
	if s, ok := c.get("-S", "--sshlogin"); ok && s.s != ":" {
		w.connect(val{s: s.s[strings.LastIndexByte(s.s, '@')+1:]}, "ssh", nil, true)
	}
	if len(items) == 0 && c.io.in != nil {
		items = xargsItems(c.in, c, true)
	}
	if len(items) == 0 {
		items = []val{{s: mUnknown}}
	}
	c.print(val{s: mUnknown})
	if len(cmd) == 0 {
		for _, it := range items {
			w.turn(it, "parallel", stdio{})
		}
		return
	}
	text := joinVals(cmd, " ")
	for _, it := range items {
		if w.stopped {
			break
		}
		t := text
		if strings.Contains(t.s, "{}") {
			t = val{s: strings.ReplaceAll(t.s, "{}", it.s), data: union(t.data, it.data), taint: t.taint | it.taint&^tFile}
		} else if !strings.Contains(t.s, "{") {
			t = val{s: t.s + " " + it.s, data: union(t.data, it.data), taint: t.taint | it.taint&^tFile}
		}
		w.turn(t, "parallel", stdio{})
	}
}

// handleEnv: assignments, then a command; alone it prints the environment.
func handleEnv(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 {
		s := args[0].s
		switch {
		case s == "-" || s == "-i" || s == "--ignore-environment" || s == "-0" || s == "--null" || s == "-v" || s == "--debug":
			args = args[1:]
		case s == "-u" || s == "--unset" || s == "-C" || s == "--chdir" || s == "-P":
			if len(args) < 2 {
				return
			}
			if s == "-C" || s == "--chdir" {
				old := w.names.get(keyDir)
				w.names.set(keyDir, &slot{alts: []val{w.joinDir(args[1])}})
				defer w.names.set(keyDir, old)
			}
			args = args[2:]
		case strings.HasPrefix(s, "--chdir="):
			old := w.names.get(keyDir)
			w.names.set(keyDir, &slot{alts: []val{w.joinDir(val{s: s[8:]})}})
			defer w.names.set(keyDir, old)
			args = args[1:]
		case s == "-S" || s == "--split-string":
			if len(args) < 2 {
				return
			}
			args = append(splitString(args[1]), args[2:]...)
		case strings.HasPrefix(s, "-S") || strings.HasPrefix(s, "-vS") || strings.HasPrefix(s, "-iS"):
			t := args[0]
			t.s = s[strings.IndexByte(s, 'S')+1:]
			if t.s == "" && len(args) > 1 {
				args = append(splitString(args[1]), args[2:]...)
				continue
			}
			args = append(splitString(t), args[1:]...)
		case strings.HasPrefix(s, "--split-string=") || strings.HasPrefix(s, "--s") && strings.Contains(s, "="):
			t := args[0]
			t.s = s[strings.IndexByte(s, '=')+1:]
			args = append(splitString(t), args[1:]...)
		case s == "--":
			args = args[1:]
		case len(s) > 1 && s[0] == '-':
			args = args[1:]
		default:
			w.envCommand(c, args)
			return
		}
	}
	w.dumpsEnv(stdio{})
	c.print(val{s: mUnknown, data: []string{"$*"}})
}

// splitString splits as env -S does.
func splitString(v val) []val {
	var out []val
	for _, p := range xargsWords(strings.ReplaceAll(strings.ReplaceAll(v.s, `\_`, " "), `\t`, " ")) {
		out = append(out, val{s: p, data: v.data, taint: v.taint})
	}
	return out
}

func (w *walker) envCommand(c *inv, args []val) {
	m := w.names.mark()
	for len(args) > 0 {
		k, x, ok := strings.Cut(args[0].s, "=")
		if !ok || k == "" || strings.ContainsAny(k, "/ ") {
			break
		}
		v := val{s: x, data: args[0].data, taint: args[0].taint}
		w.names.set(k, &slot{alts: []val{v}, exported: true})
		w.envPoison(k, v)
		args = args[1:]
	}
	if len(args) == 0 {
		w.dumpsEnv(stdio{})
		c.print(val{s: mUnknown, data: []string{"$*"}})
	} else {
		w.sub(args, c.io, "env")
		c.print(val{})
	}
	w.names.undo(m)
}

func handlePrintenv(w *walker, c *inv) {
	if len(c.ops) == 0 {
		w.dumpsEnv(stdio{})
		c.print(val{s: mUnknown, data: []string{"$*"}})
		return
	}
	var out val
	for _, v := range c.ops {
		w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: dropMarks(v.s)})
		x, _ := w.lookup(v.s)
		x.data = union(x.data, []string{"$" + dropMarks(v.s)})
		out = join(out, appendNL(x))
	}
	c.print(out)
}

// handleSudo: the privilege and the command.
func handleSudo(w *walker, c *inv) {
	if len(c.args) == 1 && (c.args[0].s == "-V" || c.args[0].s == "-h") {
		return
	}
	op := "sudo"
	switch c.name {
	case "su", "runuser", "setpriv", "sg", "newgrp":
		op = "su"
	case "chroot", "nsenter", "unshare", "bwrap", "systemd-nspawn", "ip-netns", "firejail", "machinectl", "lxc-attach", "lxc-execute":
		op = "namespace"
	}
	w.emit(cordon.Effect{Kind: cordon.Privilege, Op: op, Target: c.name})
	for _, o := range c.opts {
		if o.has && o.opt != nil && o.opt.role != roleText {
			w.as(c, o.opt.role, o.v, c.name+" "+o.name)
		}
	}
	ops := c.ops
	switch c.name {
	case "su", "runuser", "sg", "newgrp", "machinectl":
		return
	case "chroot", "systemd-nspawn":
		if c.name == "chroot" && len(ops) > 0 {
			ops = ops[1:]
		}
	}
	for len(ops) > 0 {
		k, x, ok := strings.Cut(ops[0].s, "=")
		if !ok || !validName(k) {
			break
		}
		w.envPoison(k, val{s: x})
		ops = ops[1:]
	}
	if c.has("-e", "--edit") {
		for _, v := range ops {
			w.writes(v, "")
		}
		return
	}
	if len(ops) > 0 {
		w.sub(ops, c.io, c.name)
		c.print(val{})
	}
}

// handleFlock: the lock file, then -c TEXT or a command.
func handleFlock(w *walker, c *inv) {
	ops := c.ops
	if len(ops) == 0 {
		return
	}
	if !isDigits(ops[0].s) {
		w.writes(ops[0], "append")
	}
	ops = ops[1:]
	if len(ops) > 1 && (ops[0].s == "-c" || ops[0].s == "--command") {
		w.turn(ops[1], "flock -c", c.io)
		c.print(val{})
		return
	}
	if cmd, ok := c.get("-c"); ok {
		w.turn(cmd, "flock -c", c.io)
		c.print(val{})
		return
	}
	if len(ops) > 0 {
		w.sub(ops, c.io, "flock")
		c.print(val{})
	}
}

func handleWatch(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	if c.has("-x", "--exec") {
		w.sub(c.ops, stdio{}, "watch")
		return
	}
	w.turn(joinVals(c.ops, " "), "watch", stdio{})
}

// handleScript: script -c CMD [FILE].
func handleScript(w *walker, c *inv) {
	if cmd, ok := c.get("-c"); ok {
		w.turn(cmd, "script -c", c.io)
	} else if c.io.in != nil {
		w.stdinCode(c, "shell")
	}
	for _, v := range c.ops {
		w.writes(v, "create")
	}
}

func handleBusybox(w *walker, c *inv) {
	if len(c.args) == 0 || strings.HasPrefix(c.args[0].s, "--") {
		return
	}
	w.sub(c.args, c.io, c.name)
	c.print(val{})
}

// handleLoader is the dynamic loader: "ld-linux.so PROGRAM ARG…".
func handleLoader(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") {
		if s := args[0].s; s == "--library-path" || s == "--preload" || s == "--audit" || s == "--argv0" || s == "--inhibit-rpath" || s == "--glibc-hwcaps-prepend" {
			if s == "--preload" || s == "--audit" {
				if len(args) > 1 {
					w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: "LD_PRELOAD", Text: args[1].s})
				}
			}
			args = args[min(1, len(args)-1):]
		}
		args = args[1:]
	}
	if len(args) > 0 {
		w.sub(args, c.io, c.name)
		c.print(val{})
	}
}

// handleExpect scans scripts for spawn and system.
func handleExpect(w *walker, c *inv) {
	scripts := []val{}
	if v, ok := c.get("-c"); ok {
		scripts = append(scripts, v)
	} else if len(c.ops) > 0 && c.ops[0].s != "-" {
		w.scriptFile(c, "tcl", c.ops[0], "expect")
	} else {
		scripts = append(scripts, c.in)
	}
	for _, s := range scripts {
		for _, line := range strings.FieldsFunc(s.s, func(r rune) bool { return r == '\n' || r == ';' }) {
			line = strings.TrimSpace(line)
			for _, p := range [...]string{"spawn ", "system ", "exec "} {
				if rest, ok := strings.CutPrefix(line, p); ok {
					w.turn(val{s: rest}, "expect "+strings.TrimSpace(p), stdio{})
				}
			}
		}
		w.code("tcl", s, "expect")
	}
}

func handleGdb(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-ex", "-iex", "--eval-command", "--init-eval-command", "-o", "-O", "--one-line":
			s := strings.TrimSpace(o.v.s)
			for _, p := range [...]string{"!", "shell ", "platform shell ", "python ", "script ", "call (void)system(", "call system(", "p system("} {
				rest, ok := strings.CutPrefix(s, p)
				if !ok {
					continue
				}
				switch {
				case p == "python " || p == "script ":
					w.code("python", val{s: rest}, c.name+" "+o.name)
				default:
					w.turn(val{s: strings.Trim(strings.TrimSuffix(rest, ")"), `"`)}, c.name+" "+o.name, stdio{})
				}
			}
		case "-x", "--command", "-s":
			w.reads(o.v)
		case "-p", "--pid", "--attach-pid":
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "ptrace", Target: o.v.s, Doubtful: true})
		}
	}
	for i, v := range c.ops {
		if i == 0 && (c.has("--args", "-args") || c.name == "lldb") {
			w.sub(c.ops, stdio{}, c.name)
			break
		}
		if pathLike(v.s) {
			w.reads(v)
		}
	}
}

func handleTmux(w *walker, c *inv) {
	take := false
	for i, a := range c.args {
		s := a.s
		if s == "-c" || s == "-n" || s == "-s" || s == "-t" || s == "-L" || s == "-S" || s == "-f" || s == "-x" || s == "-y" || s == "-F" {
			take = true
			continue
		}
		if take {
			take = false
			continue
		}
		if strings.HasPrefix(s, "-") {
			continue
		}
		switch s {
		case "new-session", "new", "new-window", "neww", "split-window", "splitw", "run-shell", "run", "respawn-pane", "if-shell", "pipe-pane", "kill-session", "kill-server", "ls", "list-sessions", "attach", "a", "attach-session", "has-session", "detach", "capture-pane", "set-option", "set", "source-file":
			continue
		case "send-keys", "send":
			var text []val
			for _, k := range c.args[i+1:] {
				switch k.s {
				case "Enter", "C-m", "KPEnter", "Space", "-t", "-l":
					if k.s == "Space" {
						text = append(text, val{s: " "})
					}
					continue
				}
				text = append(text, k)
			}
			if len(text) > 1 {
				text = text[len(text)-1:]
			}
			w.turn(joinVals(text, ""), "tmux send-keys", stdio{})
			return
		}
		if c.name == "screen" {
			w.sub(c.args[i:], stdio{}, "screen")
			return
		}
		if i+1 < len(c.args) && !strings.Contains(s, " ") {
			w.sub(c.args[i:], stdio{}, "tmux")
		} else {
			w.turn(a, "tmux", stdio{})
		}
		return
	}
	if c.name == "screen" {
		for i, a := range c.args {
			if a.s == "-X" && i+2 < len(c.args) {
				w.turn(c.args[len(c.args)-1], "screen -X", stdio{})
			}
		}
	}
}
