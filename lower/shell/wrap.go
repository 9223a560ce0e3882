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
		for i, it := range items {
			if i >= maxIterations {
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
	for i := 0; i < len(items) && i < maxIterations*max(n, 1); i += max(n, 1) {
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
	for i, it := range items {
		if i >= maxIterations {
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

// handlePs: with "e" it prints the environment of processes.
func handlePs(w *walker, c *inv) {
	for i, a := range c.args {
		s := a.s
		if i > 0 && (strings.HasSuffix(c.args[i-1].s, "o") || strings.HasPrefix(c.args[i-1].s, "-o") || c.args[i-1].s == "--format" || c.args[i-1].s == "-p" || c.args[i-1].s == "-u" || c.args[i-1].s == "-C") {
			continue
		}
		if s != "" && s[0] != '-' && strings.Contains(s, "e") && strings.Trim(s, "aAexuwfrlvjshTSLcHnmgNXdt") == "" {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
			c.print(val{s: mUnknown, data: []string{"$*"}})
			return
		}
		if strings.HasPrefix(s, "-") && strings.Contains(s, "E") && !strings.HasPrefix(s, "--") && strings.Trim(s, "-AEafuwxej") == "" {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
		}
	}
}

func handlePkill(w *walker, c *inv) {
	for _, o := range c.opts {
		if o.name == "-u" || o.name == "-U" || o.name == "--user" || o.name == "--euid" {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " -u"})
			return
		}
	}
	for _, v := range c.ops {
		switch v.s {
		case ".", ".*", "", "*", "-1", "^":
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " " + v.s})
		}
	}
	if c.has("-v", "--inverse") {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " -v"})
	}
}

func handleMount(w *walker, c *inv) {
	if len(c.ops) == 0 && (len(c.opts) == 0 || c.has("-l", "-V", "-h")) {
		return
	}
	if c.name == "mount" && len(c.ops) == 0 && !c.has("-a") {
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "mount", Target: c.name})
}

func handlePrivTool(w *walker, c *inv) {
	w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "user_admin", Target: c.name})
}

// handleCrontab: everything but -l changes the table.
func handleCrontab(w *walker, c *inv) {
	if c.has("-l") {
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Persist, Op: "cron", Target: "crontab"})
	for _, v := range c.ops {
		w.reads(v)
	}
	body := c.in
	if len(c.ops) > 0 && c.ops[0].s != "-" {
		body = w.content(c.ops[0])
	}
	if body.known() {
		for _, line := range strings.Split(body.s, "\n") {
			f := strings.Fields(line)
			if len(f) > 5 && line[0] != '#' {
				w.turn(val{s: strings.Join(f[5:], " ")}, "crontab", stdio{})
			}
		}
	}
}

func handleAt(w *walker, c *inv) {
	if c.has("-l", "-c", "-V") {
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Persist, Op: "cron", Target: c.name})
	if f, ok := c.get("-f"); ok {
		w.reads(f)
		return
	}
	if c.io.in != nil && c.in.known() && c.in.s != "" {
		w.turn(c.in, c.name, stdio{})
	}
}

func handleSystemctl(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	switch c.ops[0].s {
	case "enable", "reenable", "link", "edit", "mask", "preset", "add-wants", "add-requires", "set-default", "import-environment", "set-environment":
		w.emit(cordon.Effect{Kind: cordon.Persist, Op: "service", Target: operandText(c.ops, 1)})
		for _, v := range c.ops[1:] {
			if pathLike(v.s) {
				w.reads(v)
			}
		}
	case "start", "restart", "reload", "try-restart", "daemon-reload", "isolate", "disable", "stop", "kill", "unmask", "revert", "daemon-reexec":
		w.emit(cordon.Effect{Kind: cordon.Persist, Op: "service", Target: operandText(c.ops, 1), Doubtful: true})
	case "reboot", "poweroff", "halt", "kexec", "emergency", "rescue", "suspend", "hibernate", "soft-reboot":
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "power", Target: "systemctl " + c.ops[0].s})
	case "show-environment":
		w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
	}
}

func operandText(ops []val, i int) string {
	if i < len(ops) {
		return dropMarks(ops[i].s)
	}
	return ""
}

func handlePing(w *walker, c *inv) {
	for _, v := range c.ops {
		data := v.data
		sends := secretData(data) || hasMark(v.s) && !bare(v.s)
		if p, ok := c.get("-p"); ok {
			data = union(data, p.data)
			sends = sends || hasMark(p.s) || secretData(p.data)
		}
		if sends && len(data) == 0 {
			data = []string{"-"}
		}
		if !sends {
			data = nil
		}
		w.connect(v, "icmp", data, sends)
	}
}

func handleMail(w *walker, c *inv) {
	data := c.in.data
	for _, o := range c.opts {
		switch o.name {
		case "-a", "-A", "--attach":
			w.reads(o.v)
			t, _ := globTarget(o.v.s)
			data = union(data, []string{t})
		case "-S":
			if k, v, ok := strings.Cut(o.v.s, "="); ok && k == "smtp" {
				w.connectURL(val{s: v}, data, true)
			}
		}
	}
	for _, v := range c.ops {
		w.emit(cordon.Effect{Kind: cordon.Send, Target: dropMarks(v.s), Text: dropMarks(c.in.s), Sends: true, Data: data})
		if i := strings.LastIndexByte(v.s, '@'); i >= 0 {
			w.connect(val{s: v.s[i+1:]}, "smtp", data, true)
		}
	}
	if c.in.known() {
		for _, line := range strings.Split(c.in.s, "\n") {
			if strings.HasPrefix(line, "~!") {
				w.turn(val{s: line[2:]}, c.name+" ~!", stdio{})
			}
		}
	}
}

// handleVim: commands given to an editor, "!" among them.
func handleVim(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-c", "--cmd":
			w.exCommand(c, o.v)
		case "-S", "-u":
			if o.v.s != "NONE" && o.v.s != "NORC" {
				w.reads(o.v)
				if body, ok := w.written(o.v); ok {
					for _, l := range strings.Split(body.s, "\n") {
						w.exCommand(c, val{s: l})
					}
				}
			}
		case "-w", "-W", "--startuptime":
			if o.has {
				w.writes(o.v, "create")
			}
		}
	}
	for _, v := range c.ops {
		if cmd, ok := strings.CutPrefix(v.s, "+"); ok {
			w.exCommand(c, val{s: cmd})
			continue
		}
		w.reads(v)
	}
	for _, a := range c.args {
		if cmd, ok := strings.CutPrefix(a.s, "+"); ok && len(cmd) > 1 && !isDigits(cmd) {
			w.exCommand(c, val{s: cmd})
		}
	}
	if c.io.in != nil && (c.has("-s", "-es", "-Es", "-e") || c.name == "ex") && c.in.known() {
		for _, l := range strings.Split(c.in.s, "\n") {
			w.exCommand(c, val{s: l})
		}
	}
}

// exCommand reads one command line of vi's.
func (w *walker) exCommand(c *inv, v val) {
	for _, part := range strings.Split(v.s, "|") {
		s := strings.TrimLeft(strings.TrimSpace(part), ":%.,$0123456789 ")
		s = strings.TrimPrefix(s, "silent ")
		s = strings.TrimPrefix(s, "silent! ")
		switch {
		case strings.HasPrefix(s, "!"):
			w.turn(val{s: v.s[strings.IndexByte(v.s, '!')+1:]}, c.name+" !", stdio{})
			return
		case strings.HasPrefix(s, "r !") || strings.HasPrefix(s, "r!") || strings.HasPrefix(s, "read !") || strings.HasPrefix(s, "w !") || strings.HasPrefix(s, "w!"+"!") || strings.HasPrefix(s, "write !"):
			w.turn(val{s: v.s[strings.IndexByte(v.s, '!')+1:]}, c.name+" !", stdio{})
			return
		case strings.HasPrefix(s, "terminal ") || strings.HasPrefix(s, "term "):
			w.turn(val{s: s[strings.IndexByte(s, ' ')+1:]}, c.name+" :terminal", stdio{})
		case strings.Contains(s, "system(") || strings.Contains(s, "systemlist(") || strings.Contains(s, "job_start(") || strings.Contains(s, "termopen(") || strings.Contains(s, "jobstart("):
			w.turn(val{s: quotedArg(s[strings.IndexByte(s, '('):])}, c.name+" system()", stdio{})
		case strings.HasPrefix(s, "py3 ") || strings.HasPrefix(s, "python3 ") || strings.HasPrefix(s, "py ") || strings.HasPrefix(s, "python ") || strings.HasPrefix(s, "pyx "):
			w.code("python", val{s: s[strings.IndexByte(s, ' ')+1:]}, c.name+" :python")
		case strings.HasPrefix(s, "lua "):
			w.code("lua", val{s: s[4:]}, c.name+" :lua")
		case strings.HasPrefix(s, "perl "):
			w.code("perl", val{s: s[5:]}, c.name+" :perl")
		case strings.HasPrefix(s, "ruby "):
			w.code("ruby", val{s: s[5:]}, c.name+" :ruby")
		case exFile(s, "w", "write", "saveas", "wq", "up", "x"):
			if f := strings.Fields(s); len(f) > 1 {
				w.writes(val{s: w.tildeText(f[len(f)-1])}, "create")
			}
		case exFile(s, "r", "read", "e", "edit", "so", "source", "vs", "sp", "tabe", "badd"):
			if f := strings.Fields(s); len(f) > 1 {
				w.reads(val{s: w.tildeText(f[len(f)-1])})
			}
		}
	}
}

func exFile(s string, words ...string) bool {
	f, _, ok := strings.Cut(s, " ")
	return ok && contains(words, strings.TrimSuffix(f, "!"))
}

// quotedArg is the first quoted text within brackets.
func quotedArg(s string) string {
	i := strings.IndexAny(s, `'"`)
	if i < 0 {
		return mUnknown
	}
	j := strings.IndexByte(s[i+1:], s[i])
	if j < 0 {
		return mUnknown
	}
	return s[i+1 : i+1+j]
}

func handleEd(w *walker, c *inv) {
	for _, v := range c.ops {
		if cmd, ok := strings.CutPrefix(v.s, "!"); ok {
			w.turn(val{s: cmd}, "ed !", stdio{})
			continue
		}
		w.reads(v)
	}
	if c.io.in == nil {
		return
	}
	if !c.in.known() {
		if o := c.in.origin(); o == cordon.OriginDecoded || o == cordon.OriginNetwork {
			w.opaque("edits by commands of unknown content", o, "")
		}
		return
	}
	text := false
	for _, l := range strings.Split(c.in.s, "\n") {
		if text {
			text = l != "."
			continue
		}
		s := strings.TrimLeft(l, "0123456789,.$%; ")
		switch {
		case s == "a" || s == "i" || s == "c":
			text = true
		case strings.HasPrefix(s, "!"):
			w.turn(val{s: s[1:]}, "ed !", stdio{})
		case strings.HasPrefix(s, "r !") || strings.HasPrefix(s, "w !") || strings.HasPrefix(s, "e !") || strings.HasPrefix(s, "W !"):
			w.turn(val{s: s[3:]}, "ed !", stdio{})
		case strings.HasPrefix(s, "r ") || strings.HasPrefix(s, "e ") || strings.HasPrefix(s, "E "):
			w.reads(val{s: w.tildeText(strings.TrimSpace(s[2:]))})
		case strings.HasPrefix(s, "w ") || strings.HasPrefix(s, "W "):
			w.writes(val{s: w.tildeText(strings.TrimSpace(s[2:]))}, "create")
		case s == "w" || s == "wq":
			for _, v := range c.ops {
				w.writes(v, "")
			}
		}
	}
}

func handleLess(w *walker, c *inv) {
	w.optionRoles(c)
	for _, v := range c.ops {
		if cmd, ok := strings.CutPrefix(v.s, "+!"); ok {
			w.turn(val{s: cmd}, "less !", stdio{})
			continue
		}
		if strings.HasPrefix(v.s, "+") {
			continue
		}
		w.reads(v)
		c.took(v)
	}
	for _, a := range c.args {
		if cmd, ok := strings.CutPrefix(a.s, "+!"); ok {
			w.turn(val{s: cmd}, "less !", stdio{})
		}
	}
	if len(c.ops) == 0 {
		c.print(c.in)
	}
	if c.in.known() && len(c.ops) > 0 && c.in.s != "" {
		for _, l := range strings.Split(c.in.s, "\n") {
			if strings.HasPrefix(l, "!") {
				w.turn(val{s: l[1:]}, "less !", stdio{})
			}
		}
	}
}

func handleMan(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-P", "--pager", "-H", "--html":
			if o.has {
				w.turn(o.v, "man "+o.name, stdio{in: &val{s: mFile}})
			}
		case "-l", "--local-file":
			for _, v := range c.ops {
				w.reads(v)
			}
		case "-C", "--config-file", "-M", "--manpath":
			w.reads(o.v)
		}
	}
}

func handleJq(w *walker, c *inv) {
	skip := w.optionRoles(c)
	ops := c.ops
	var filter val
	if !skip && len(ops) > 0 {
		filter, ops = ops[0], ops[1:]
	}
	if !c.has("-n", "--null-input", "--args", "--jsonargs") || len(ops) > 0 && !c.has("--args", "--jsonargs") {
		for _, v := range ops {
			w.reads(v)
			c.took(v)
		}
	}
	for i, a := range c.args {
		if (a.s == "--slurpfile" || a.s == "--rawfile" || a.s == "--argfile") && i+2 < len(c.args) {
			w.reads(c.args[i+2])
			c.took(c.args[i+2])
		}
	}
	f := filter.s
	if strings.Contains(f, "$ENV") || strings.Contains(f, "env.") || f == "env" || strings.HasPrefix(f, "env|") || strings.HasPrefix(f, "env |") || strings.HasSuffix(f, "|env") || strings.Contains(f, "(env") {
		name := ""
		for _, p := range [...]string{"$ENV.", "env."} {
			if i := strings.Index(f, p); i >= 0 {
				name = f[i+len(p):]
				if j := strings.IndexFunc(name, func(r rune) bool { return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }); j >= 0 {
					name = name[:j]
				}
			}
		}
		if name == "" {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
		} else if secretName(name) {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: name})
		}
	}
	if strings.Contains(f, "@base64d") {
		c.print(val{s: mDecoded, taint: tDecoded, data: union(c.in.data, c.out.data)})
	}
}

func handleRedis(w *walker, c *inv) {
	w.optionRoles(c)
	if h, ok := c.get("-h"); ok && h.s != "localhost" && h.s != "127.0.0.1" {
		w.connect(h, "redis", nil, false)
	}
	if u, ok := c.get("-u"); ok {
		w.connectURL(u, nil, false)
	}
	text := strings.ToUpper(joinVals(c.ops, " ").s + "\n" + c.in.s)
	for _, x := range [...]string{"FLUSHALL", "FLUSHDB"} {
		if strings.Contains(text, x) {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "drop_database", Target: x})
		}
	}
	if strings.Contains(text, "CONFIG SET DIR") || strings.Contains(text, "CONFIG SET DBFILENAME") || strings.Contains(text, "MODULE LOAD") || strings.Contains(text, "SHUTDOWN") {
		w.emit(cordon.Effect{Kind: cordon.Administer, Op: "security_off", Target: "redis " + strings.TrimSpace(text)})
	}
}

func handleFtp(w *walker, c *inv) {
	if len(c.ops) > 0 {
		h := c.ops[0]
		if strings.Contains(h.s, "://") {
			w.connectURL(h, c.in.data, true)
		} else {
			h.s = h.s[strings.LastIndexByte(h.s, '@')+1:]
			w.connect(h, c.name, c.in.data, c.io.in != nil)
		}
	}
	for _, text := range []val{c.in, optText(c, "-e"), optText(c, "-c")} {
		w.ftpCommands(c, text)
	}
	if b, ok := c.get("-b"); ok {
		w.reads(b)
	}
	c.print(val{s: mNet, taint: tNet})
}

// ftpCommands reads what an ftp client is told to do.
func (w *walker) ftpCommands(c *inv, text val) {
	if text.known() {
		for _, l := range strings.FieldsFunc(text.s, func(r rune) bool { return r == '\n' || r == ';' }) {
			f := strings.Fields(l)
			switch {
			case len(f) == 0:
			case strings.HasPrefix(f[0], "!"):
				w.turn(val{s: strings.TrimPrefix(strings.TrimSpace(l), "!")}, c.name+" !", stdio{})
			case f[0] == "open" && len(f) > 1:
				w.connect(val{s: f[len(f)-1]}, c.name, nil, true)
			case (f[0] == "put" || f[0] == "mput" || f[0] == "send" || f[0] == "mirror") && len(f) > 1:
				for _, p := range f[1:] {
					if !strings.HasPrefix(p, "-") {
						w.reads(val{s: w.tildeText(p)})
					}
				}
			case (f[0] == "get" || f[0] == "mget" || f[0] == "pget") && len(f) > 1:
				w.writes(val{s: f[len(f)-1]}, "create")
			}
		}
	}
}

func optText(c *inv, name string) val {
	v, _ := c.get(name)
	return v
}
