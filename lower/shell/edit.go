package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

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
				if j := strings.IndexFunc(name, func(r rune) bool {
					return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
				}); j >= 0 {
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

// handleGetent: name service lookups; hosts ask the network.
func handleGetent(w *walker, c *inv) {
	c.print(val{s: mName})
	if len(c.ops) == 0 {
		return
	}
	switch c.ops[0].s {
	case "hosts", "ahosts", "ahostsv4", "ahostsv6":
		inner := *c
		inner.ops = c.ops[1:]
		handleDNS(w, &inner)
	case "shadow", "gshadow":
		w.reads(val{s: "/etc/" + c.ops[0].s})
	case "passwd":
		if len(c.ops) == 1 {
			w.reads(val{s: "/etc/passwd"})
		}
	}
}

// handleMongo: scripts for MongoDB's shell.
func handleMongo(w *walker, c *inv) {
	text := c.in
	if v, ok := c.get("--eval"); ok {
		text = v
		if strings.Contains(v.s, "run(") || strings.Contains(v.s, "runProgram") || strings.Contains(v.s, "require(") || strings.Contains(v.s, "process.") || strings.Contains(v.s, "cat(") {
			w.code("javascript", v, "mongosh --eval")
			w.doubt++
			w.scan("script", v)
			w.doubt--
		}
	}
	for _, v := range c.ops {
		if strings.Contains(v.s, "://") && !strings.Contains(v.s, "localhost") && !strings.Contains(v.s, "127.0.0.1") && !startsUnknown(v.s) {
			w.connectURL(v, nil, false)
		} else if strings.HasSuffix(v.s, ".js") || pathLike(v.s) && !strings.Contains(v.s, "://") {
			w.reads(v)
		}
	}
	if h, ok := c.get("--host"); ok && h.s != "localhost" && h.s != "127.0.0.1" {
		w.connect(h, "mongodb", nil, false)
	}
	flat := strings.Join(strings.Fields(text.s), "")
	switch {
	case strings.Contains(flat, "dropDatabase("):
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "drop_database", Target: "mongo"})
	case strings.Contains(flat, ".drop()") || strings.Contains(flat, ".drop("):
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "drop_table", Target: "mongo"})
	case strings.Contains(flat, ".deleteMany({})") || strings.Contains(flat, ".remove({})"):
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "delete_unfiltered", Target: "mongo"})
	case strings.Contains(flat, "grantRolesToUser(") || strings.Contains(flat, "createUser("):
		w.emit(cordon.Effect{Kind: cordon.Administer, Op: "sql_role", Target: "mongo"})
	}
}
