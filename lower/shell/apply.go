package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// apply lowers a command by its program's entry.
func (w *walker) apply(c *inv) {
	if len(c.args) == 1 && (c.args[0].s == "--help" || c.args[0].s == "--version") {
		return
	}
	c.parsed = c.p.parse(c.args)
	for i := range c.p.whens {
		r := &c.p.whens[i]
		if r.match(&c.parsed) {
			t := r.target
			if t == "" && len(c.ops) > 0 {
				t = c.name + " " + dropMarks(c.ops[0].s)
			}
			w.emit(cordon.Effect{Kind: r.kind, Op: r.op, Target: t, Doubtful: r.doubt})
		}
	}
	if c.p.urls {
		w.addresses(c)
	}
	if c.p.handler != "" {
		handlerNamed(c.p.handler)(w, c)
	} else {
		w.generic(c)
	}
	w.output(c)
}

// generic applies the roles of the table.
func (w *walker) generic(c *inv) {
	skip := w.optionRoles(c)
	w.operandRoles(c, skip)
}

// addresses connects to every URL among the words.
func (w *walker) addresses(c *inv) {
	for _, a := range c.args {
		s := a.s
		if i := strings.IndexByte(s, '='); i > 0 && strings.HasPrefix(s, "-") {
			s = s[i+1:]
		}
		if strings.Contains(s, "://") {
			w.packageSpec(val{s: s, data: a.data, taint: a.taint})
		}
	}
}

// optionRoles applies the options; it reports whether one of them stands for
// the first operand.
func (w *walker) optionRoles(c *inv) (skip bool) {
	for _, o := range c.opts {
		if o.opt == nil {
			if o.has && pathLike(o.v.s) {
				w.reads(o.v)
			}
			continue
		}
		if o.opt.quiet {
			skip = true
		}
		if o.has {
			w.as(c, o.opt.role, o.v, c.name+" "+o.name)
		}
	}
	return skip
}

func (w *walker) operandRoles(c *inv, skip bool) {
	roles := c.p.args
	repeat := c.p.repeat
	if skip && len(roles) > 0 && repeat != 0 {
		roles, repeat = roles[1:], repeat-1
	}
	tail := 0
	if repeat >= 0 {
		tail = len(roles) - repeat - 1
	}
	for i, v := range c.ops {
		r := roleText
		switch {
		case repeat >= 0 && i >= repeat:
			if left := len(c.ops) - i; left <= tail {
				r = roles[len(roles)-left]
			} else {
				r = roles[repeat]
			}
		case i < len(roles):
			r = roles[i]
		}
		if r == roleCmd {
			w.sub(c.ops[i:], c.io, c.name)
			c.print(val{}) // what ran has written
			return
		}
		w.as(c, r, v, c.name)
	}
}

// as applies one value in its role.
func (w *walker) as(c *inv, r role, v val, via string) {
	switch r {
	case roleText, "":
	case roleRead, roleTree:
		if strings.Contains(v.s, "://") && !strings.HasPrefix(v.s, "file:") {
			w.packageSpec(v)
			return
		}
		if r == roleTree {
			w.readsAll(v)
			c.took(v)
			return
		}
		w.reads(v)
		c.took(v)
	case roleWrite:
		w.writes(v, "")
	case roleMake:
		w.writes(v, "create")
	case roleChmod:
		w.writes(v, "chmod")
	case roleDelete:
		w.deletes(v, false)
	case roleRmtree:
		w.deletes(v, true)
	case roleList:
		w.lists(v, false)
	case roleSearch:
		w.lists(v, true)
	case roleCwd:
		w.setDir(w.joinDir(v))
	case roleURL:
		w.connectURL(v, nil, false)
	case roleHost:
		w.connect(v, "", nil, false)
	case roleCmd, roleExec:
		w.sub([]val{v}, stdio{}, via)
	case roleSh:
		w.turn(v, via, c.io)
		c.print(val{})
	case roleFile:
		if p, ok := strings.CutPrefix(v.s, "@"); ok {
			w.reads(val{s: p})
			c.took(val{s: p})
		}
	case roleData:
		c.out.data = union(c.out.data, v.data)
	default:
		w.asCode(c, r, v, via)
	}
}

func (w *walker) asCode(c *inv, r role, v val, via string) {
	if lang, ok := strings.CutPrefix(string(r), string(roleCode)); ok {
		w.code(lang, v, via)
		return
	}
	if lang, ok := strings.CutPrefix(string(r), string(roleScript)); ok {
		w.scriptFile(c, lang, v, via)
	}
}

// took notes that the command's output is made of a path's content.
func (c *inv) took(v val) {
	t, _ := globTarget(v.s)
	c.out.data = union(c.out.data, append([]string{t}, v.data...))
}

// output settles what the command prints, by the table's "out".
func (w *walker) output(c *inv) {
	if c.set || c.io.out == nil {
		return
	}
	data := union(c.out.data, c.in.data)
	switch c.p.out {
	case "word":
		for _, a := range c.args {
			// What is printed may well be the path that was given.
			if s := strings.TrimLeft(a.s, "+"); pathLike(s) {
				c.print(val{s: s + "\n", data: union(data, a.data), taint: a.taint})
				return
			}
		}
		c.print(val{s: mName, data: data})
	case "paths":
		c.print(val{s: mPath + "\n", data: data})
	case "none", "trusted":
		c.print(val{data: data})
	case "lines":
		// A filter: what it prints are lines of what it reads.
		v := c.in
		if v.s == "" || len(c.out.data) > 0 {
			v = val{s: unknownOf(v.taint | tFile), taint: v.taint | tFile}
		}
		if v.known() && strings.Count(v.s, "\n") > 1 {
			// Which lines cannot be told; all of them may be.
			v.data = data
		}
		v.data = union(v.data, data)
		c.print(v)
	case "network":
		c.print(val{s: mNet, data: data, taint: tNet})
	case "decoded":
		c.print(val{s: mDecoded, data: data, taint: tDecoded})
	}
}

// sub runs words as a command that a program starts.
func (w *walker) sub(words []val, io stdio, via string) {
	if len(words) == 0 {
		return
	}
	defer w.push(via)()
	if w.turns >= maxTurns {
		w.limit("texts within texts")
		return
	}
	w.turns++
	w.run(words, io, true)
	w.turns--
}

// joinDir is the directory that v means from here.
func (w *walker) joinDir(v val) val {
	s := v.s
	switch {
	case s == "" || s == ".":
		return w.dir()
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, mTemp):
		v.s = cleanDir(s)
		return v
	case startsUnknown(s):
		return v
	case strings.HasPrefix(s, "~"):
		return v
	}
	d := w.dir()
	if strings.Contains(s, mGlob) {
		s = settle(s)
	}
	v.s = cleanDir(d.s + "/" + s)
	v.data = nil
	return v
}

func cleanDir(s string) string {
	if !strings.Contains(s, "..") && !strings.Contains(s, "//") && !strings.HasSuffix(s, "/") && !strings.Contains(s, "/.") {
		return s
	}
	parts := strings.Split(s, "/")
	out := parts[:0]
	for i, p := range parts {
		switch {
		case p == "" && i > 0, p == ".":
		case p == ".." && len(out) > 1 && !hasMark(out[len(out)-1]):
			out = out[:len(out)-1]
		case p == ".." && len(out) == 1 && out[0] == "":
		default:
			out = append(out, p)
		}
	}
	if len(out) == 1 && out[0] == "" {
		return "/"
	}
	return strings.Join(out, "/")
}

// in runs f with another working directory.
func (w *walker) inDir(dir val, f func()) {
	old := w.names.get(keyDir)
	w.names.set(keyDir, &slot{alts: []val{w.joinDir(dir)}})
	f()
	w.names.set(keyDir, old)
}

func pathLike(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~") || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") ||
		strings.Contains(s, "/../") || looksSecret(s)
}

// unknownProgram lowers a program that no entry describes.
func (w *walker) unknownProgram(c *inv) {
	w.emit(cordon.Effect{Kind: cordon.Execute, Target: c.word.s, Origin: cordon.OriginFile, Text: ownWords(c.name, c.args)})
	w.operandsOfUnknown(c.args)
}

// ownWords are the words of a command of Cordon itself, which decide whether
// it asks for something or administers; "" where one of them cannot be told.
func ownWords(name string, args []val) string {
	if name != "cordon" {
		return ""
	}
	var words []string
	for _, a := range args {
		if !a.known() {
			return ""
		}
		words = append(words, dropMarks(a.s))
	}
	return strings.Join(words, " ")
}

// operandsOfUnknown takes words of a command that is not known: paths are
// read, URLs connected to, and a word that is a known command starts one.
func (w *walker) operandsOfUnknown(args []val) {
	wrapped := false
	for i, a := range args {
		s := a.s
		if _, v, ok := strings.Cut(s, "="); ok && strings.HasPrefix(s, "-") {
			s = v
		}
		switch {
		case s == "" || s[0] == '-':
		case strings.Contains(s, "://") && !strings.HasPrefix(s, "file:"):
			w.doubt++
			w.connectURL(val{s: s, data: a.data}, nil, false)
			w.doubt--
		case strings.IndexByte(s, ' ') > 0 && w.shellLike(s):
			w.doubt++
			w.turn(a, "argument", stdio{})
			w.doubt--
		case !wrapped && i+1 < len(args) && !hasMark(s) && startsPrograms(s):
			wrapped = true
			w.doubt++
			w.sub(args[i:], stdio{}, "argument")
			w.doubt--
		case pathLike(s):
			w.reads(val{s: s, data: a.data})
		}
	}
}

// startsPrograms reports whether a word names a program whose run would
// matter; plain words ("test", "install") are taken as words.
func startsPrograms(s string) bool {
	if strings.HasPrefix(s, "/") {
		i := strings.LastIndexByte(s, '/')
		s = s[i+1:]
	}
	switch s {
	case "install", "test", "time", "make", "file", "link", "watch", "host", "who", "script", "split", "join", "look", "sort", "start", "stop", "at", "batch", "strings", "expand", "factor", "mail", "go", "service", "users", "groups", "id", "sum", "tree", "top", "history", "env", "set", "kill":
		return false
	}
	p := lookupProgram(s)
	return p != nil
}

// shellLike reports whether a text's first word is a known program.
func (w *walker) shellLike(s string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return startsPrograms(first) && len(s) < 4096
}
