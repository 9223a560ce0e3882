package shell

import (
	"regexp"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

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

// handlePkill: a pattern that matches everything, or a user's processes
// without any pattern. "-USR1" is a signal, not "-U".
func handlePkill(w *walker, c *inv) {
	rest := make([]val, 0, len(c.args))
	for _, a := range c.args {
		if !isSignal(a.s) {
			rest = append(rest, a)
		}
	}
	c.parsed = c.p.parse(rest)
	if c.has("-u", "-U") && len(c.ops) == 0 {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " -u"})
		return
	}
	for _, v := range c.ops {
		if namesOwn(v.s) {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "security_off", Target: c.name + " " + v.s})
		}
		switch v.s {
		case ".", ".*", "", "*", "-1", "^":
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " " + v.s})
		}
	}
	if c.has("-v") && c.name == "pkill" {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "kill_all", Target: c.name + " -v"})
	}
}

// handlePgrep: whoever looks for Cordon's processes is about to end them.
func handlePgrep(w *walker, c *inv) {
	for _, v := range c.ops {
		if namesOwn(v.s) {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "security_off", Target: c.name + " " + v.s, Doubtful: true})
		}
	}
}

// ownProcesses are the command lines of Cordon's processes.
var ownProcesses = []string{"cordon", "cordon hook", "cordon daemon", "cordon mcp", "cordon gateway", "cordon proxy", "cordon run", "cordon-sandbox-stage"}

// namesOwn reports whether a pattern of pkill and its kin matches a process of
// Cordon's. One that matches everything is judged as that.
func namesOwn(pattern string) bool {
	if strings.Contains(pattern, "cordon") {
		return true
	}
	re, err := regexp.Compile("(?i)" + pattern)
	if err != nil || re.MatchString("\x00 an unrelated process 0123") {
		return false
	}
	return slices.ContainsFunc(ownProcesses, re.MatchString)
}

// isSignal: "-9", "-KILL", "-SIGUSR1".
func isSignal(s string) bool {
	if len(s) < 2 || s[0] != '-' {
		return false
	}
	s = strings.TrimPrefix(s[1:], "SIG")
	if isDigits(s) {
		return true
	}
	switch s {
	case "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
		"CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS":
		return true
	}
	return false
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
