package python

import (
	"maps"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// outcome is what an action does to the result of a call: what it is, if not
// an object of the type that the table says, and what that object is made of.
type outcome struct {
	inst *instance
	out  set
	done bool
}

func (r *outcome) is(s set) { r.out, r.done = join(r.out, s), true }

// verb is an action of the table. text: its brackets hold a text, not
// arguments. used says what it means to use a function with it (the text
// itself, if text).
type verb struct {
	run  func(a *analysis, x *act, c *call, r *outcome)
	used string
	text bool
}

// verbs are the actions that a line of a table can name. They are set in
// setVerbs and not here because they use the table, which is made of them.
var verbs map[string]verb

func setVerbs() {
	at := func(k cordon.Kind, op string) func(a *analysis, x *act, c *call, r *outcome) {
		return func(a *analysis, x *act, c *call, r *outcome) { a.each(x, c, cordon.Effect{Kind: k, Op: op}, r) }
	}
	starts := "starts a process"
	verbs = map[string]verb{
		"ok":       {run: func(*analysis, *act, *call, *outcome) {}},
		"read":     {run: at(cordon.Read, "")},
		"list":     {run: at(cordon.List, "")},
		"write":    {run: at(cordon.Write, "")},
		"truncate": {run: at(cordon.Write, "truncate")},
		"append":   {run: at(cordon.Write, "append")},
		"create":   {run: at(cordon.Write, "create")},
		"delete": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.each(x, c, cordon.Effect{Kind: cordon.Delete, NoFollow: true}, r)
		}},
		"rmtree": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.each(x, c, cordon.Effect{Kind: cordon.Delete, Recursive: true, NoFollow: true}, r)
		}},
		"readtree": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.each(x, c, cordon.Effect{Kind: cordon.Read, Recursive: true}, r)
		}},
		"writetree": {run: writeTree},
		"readlink": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.each(x, c, cordon.Effect{Kind: cordon.Read, NoFollow: true}, r)
		}},
		"move": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.argPaths(x, 0, c, cordon.Effect{Kind: cordon.Delete, NoFollow: true, Recursive: true})
			a.argPaths(x, 0, c, cordon.Effect{Kind: cordon.Read, NoFollow: true})
			a.argPaths(x, 1, c, cordon.Effect{Kind: cordon.Write, Op: "move"})
		}},
		"link": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.argPaths(x, 0, c, cordon.Effect{Kind: cordon.Read})
			a.argPaths(x, 1, c, cordon.Effect{Kind: cordon.Write, Op: "link"})
		}},
		"open":      {run: openFile},
		"openflags": {run: openFlags},
		"listdir":   {run: listDir},
		"scandir":   {run: scanDir},
		"walk":      {run: walk},
		"glob":      {run: globPaths},
		"pathglob":  {run: pathGlob},
		"entrypath": {run: func(a *analysis, x *act, c *call, r *outcome) {
			if in, ok := c.recv.p.(*instance); ok && in.addr != "" {
				r.is(str(in.addr))
			}
		}},
		"chdir":    {run: chdir},
		"chmod":    {run: chmod},
		"readurl":  {run: func(a *analysis, x *act, c *call, r *outcome) { a.pathOrURL(x, c, cordon.Read, r) }},
		"writeurl": {run: func(a *analysis, x *act, c *call, r *outcome) { a.pathOrURL(x, c, cordon.Write, r) }},

		"spawn":   {run: spawn, used: starts},
		"shell":   {run: shellCommand, used: starts},
		"exec":    {run: execFile, used: starts},
		"fork":    {run: fork, used: "forks"},
		"process": {run: func(a *analysis, x *act, c *call, r *outcome) { a.started(x.text) }, text: true, used: starts},
		"kill":    {run: kill},

		"code":    {run: evaluate, used: "evaluates code"},
		"maycode": {run: evaluateText},
		"formula": {run: formula},
		"script":  {run: script, used: "runs a file"},
		"opaque": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.opaque(a.sym+" "+x.text, cordon.OriginLiteral, false)
		}, text: true, used: "opaque"},
		"builds": {run: func(a *analysis, x *act, c *call, r *outcome) {
			a.opaque(a.sym+" "+x.text, cordon.OriginLiteral, false)
		}, text: true},
		"opaqueif":     {run: opaqueIf},
		"opaqueunless": {run: opaqueUnless},
		"yaml":         {run: yamlLoad},
		"doctest":      {run: func(a *analysis, _ *act, _ *call, _ *outcome) { a.doctests() }},
		"hints":        {run: func(a *analysis, _ *act, _ *call, _ *outcome) { a.hints() }},
		"hintsif": {run: func(a *analysis, x *act, c *call, _ *outcome) {
			if _, ok := a.argOK(x, 0, c); ok {
				a.hints()
			}
		}},

		"url":     {run: connectURL},
		"host":    {run: connectHost},
		"addr":    {run: connectAddr},
		"listen":  {run: listen},
		"send":    {run: send},
		"receive": {run: func(_ *analysis, _ *act, _ *call, r *outcome) { r.is(set{unk: true, t: network, src: []string{"-"}}) }},
		"content": {run: content},
		"fileno": {run: func(_ *analysis, _ *act, c *call, r *outcome) {
			r.is(one(value{k: vInst, s: "socket.fileno", p: c.recv.p}))
		}},
		"dup2": {run: dup2},
		"pty":  {run: func(a *analysis, _ *act, _ *call, _ *outcome) { a.facts.pty = true }},

		"env":     {run: getEnv},
		"setenv":  {run: func(a *analysis, x *act, c *call, _ *outcome) { a.setEnv(a.arg(x, 0, c), a.arg(x, 1, c)) }},
		"envall":  {run: func(a *analysis, _ *act, _ *call, _ *outcome) { a.dumpEnv("taken as a whole") }},
		"environ": {run: func(_ *analysis, _ *act, _ *call, r *outcome) { r.is(sym("os.environ")) }},

		"privilege": {run: func(a *analysis, x *act, c *call, _ *outcome) {
			a.emit(cordon.Effect{Kind: cordon.Privilege, Op: x.text})
		}, text: true},
		"setid":    {run: setID},
		"mknod":    {run: makeNode},
		"annotate": {run: annotateCall},
		"persist": {run: func(a *analysis, x *act, c *call, _ *outcome) {
			a.emit(cordon.Effect{Kind: cordon.Persist, Op: x.text})
		}, text: true},
		"sqlite":     {run: sqliteOpen},
		"sql":        {run: sqlText},
		"calls":      {run: calls},
		"child":      {run: child},
		"logconfig":  {run: logConfig},
		"rawsocket":  {run: rawSocket},
		"namespace":  {run: func(_ *analysis, _ *act, _ *call, r *outcome) { r.is(one(value{k: vDict})) }},
		"openpath":   {run: openPath},
		"home":       {run: func(a *analysis, _ *act, _ *call, r *outcome) { r.is(str(a.home())) }},
		"hole":       {run: func(a *analysis, _ *act, _ *call, r *outcome) { r.is(str(hole)) }},
		"importpath": {run: importPath},
		"decoded":    {run: func(_ *analysis, _ *act, c *call, r *outcome) { r.is(set{unk: true, t: decoded}.with(c.args...)) }},
		"self":       {run: func(_ *analysis, _ *act, c *call, r *outcome) { r.is(one(c.recv)) }},
	}
	maps.Copy(verbs, serviceVerbs())
}

// actions runs the actions of a function and returns its result.
func (a *analysis) actions(e *entry, name string, c *call) set {
	was := a.sym
	a.sym = name
	r := &outcome{inst: &instance{args: c.args}}
	for i := range e.acts {
		x := &e.acts[i]
		x.run(a, x, c, r)
	}
	a.sym = was
	if r.done && e.result == "" {
		return r.out
	}
	if e.result != "" {
		if r.done {
			r.inst.src, r.inst.t = mergeSources(r.inst.src, r.out.src), r.inst.t|r.out.t
		}
		if in, ok := c.recv.p.(*instance); ok && r.inst.addr == "" {
			r.inst.addr = in.addr
			r.inst.t |= in.t
			r.inst.src = mergeSources(r.inst.src, in.src)
		}
		return one(value{k: vInst, s: e.result, p: r.inst})
	}
	if len(e.acts) > 0 && e.acts[0].verb != "ok" {
		return result(c.all()...).with(set{t: r.inst.t, src: r.inst.src})
	}
	return result(c.all()...).with(receiverTaint(value{p: c.recv}))
}

// arg is the i-th argument that an action is about.
func (a *analysis) arg(x *act, i int, c *call) set {
	s, ok := a.argOK(x, i, c)
	if !ok {
		return unknown
	}
	return s
}

func (a *analysis) argOK(x *act, i int, c *call) (set, bool) {
	if i >= len(x.args) {
		return set{}, false
	}
	g := x.args[i]
	if g.self {
		return one(c.recv), true
	}
	if g.rest {
		q := &sequence{kind: '[', fuzzy: c.unknownArgs}
		if g.pos < len(c.args) {
			q.items = c.args[g.pos:]
		}
		return one(value{k: vSeq, p: q}), true
	}
	return c.arg(g.pos, g.names...)
}

// each gives the effect for every path argument of the action.
func (a *analysis) each(x *act, c *call, e cordon.Effect, r *outcome) {
	for i := range x.args {
		s := a.argPaths(x, i, c, e)
		if e.Kind != cordon.Read {
			continue
		}
		r.inst.t |= file
		if p, ok := s.single(); ok && (p.k == vStr || p.k == vPath || p.k == vBytes) {
			shown := strings.ReplaceAll(p.s, hole, "*")
			r.inst.addr = shown
			r.inst.src = mergeSources(r.inst.src, []string{shown})
		}
	}
}

func (a *analysis) argPaths(x *act, i int, c *call, e cordon.Effect) set {
	s, ok := a.argOK(x, i, c)
	if !ok {
		return set{}
	}
	if q, single := s.single(); single && q.k == vSeq {
		for _, it := range q.p.(*sequence).items {
			a.paths(it, e)
		}
		return s
	}
	if v, single := s.single(); single && v.k == vObj {
		if m, ok := a.classAttr(v.p.(*object).class, "__fspath__", map[*class]bool{}); ok {
			s = a.apply(a.bindTo(m, s, false), &call{})
			a.paths(s, e)
			return s
		}
	}
	if v, single := s.single(); single && (v.k == vInst || v.k == vObj || v.k == vNone || v.k == vInt) {
		return s // an open file, a descriptor, nothing
	}
	a.paths(s, e)
	return s
}

func writeTree(a *analysis, x *act, c *call, _ *outcome) {
	s, ok := a.argOK(x, 0, c)
	if !ok {
		s = str(".")
	}
	a.paths(s, cordon.Effect{Kind: cordon.Write, Op: "create", Recursive: true})
}

func openFile(a *analysis, x *act, c *call, r *outcome) {
	mode, given := a.argOK(x, 1, c)
	a.opened(x, c, mode, given, r)
	if f, ok := c.arg(-1, "opener"); ok {
		a.apply(f, &call{args: []set{a.arg(x, 0, c), unknown}})
	}
}

// openPath is Path.open(mode).
func openPath(a *analysis, x *act, c *call, r *outcome) {
	mode, given := c.arg(0, "mode")
	a.opened(x, c, mode, given, r)
}

// opened gives the effects of opening a file in a mode.
func (a *analysis) opened(x *act, c *call, mode set, given bool, r *outcome) {
	reads, writes, op, known := true, false, "", true
	if given {
		m, ok := mode.text()
		if ok {
			reads, writes, op = openMode(m)
		} else if len(mode.strings()) > 0 {
			reads = false
			for _, m := range mode.strings() {
				rd, wr, o := openMode(m)
				reads, writes, op = reads || rd, writes || wr, o
			}
		} else {
			writes, known = true, false
		}
	}
	one := &act{verb: x.verb, args: x.args[:1]}
	if writes {
		a.each(one, c, cordon.Effect{Kind: cordon.Write, Op: op, Doubtful: !known}, r)
	}
	if reads {
		a.each(one, c, cordon.Effect{Kind: cordon.Read, Doubtful: !known}, r)
	}
}

func openMode(m string) (reads, writes bool, op string) {
	switch {
	case strings.Contains(m, "a"):
		writes, op = true, "append"
	case strings.Contains(m, "w"):
		writes, op = true, "truncate"
	case strings.Contains(m, "x"):
		writes, op = true, "create"
	default:
		reads = true
	}
	if strings.Contains(m, "+") {
		reads, writes = true, true
	}
	return reads, writes, op
}

func openFlags(a *analysis, x *act, c *call, r *outcome) {
	flags, ok := a.arg(x, 1, c).single()
	reads, writes, op := true, true, ""
	if ok && flags.k == vInt {
		reads, writes = flags.n&3 != 1, flags.n&3 != 0 || flags.n&(64|512) != 0
		switch {
		case flags.n&1024 != 0:
			op = "append"
		case flags.n&512 != 0:
			op = "truncate"
		case flags.n&64 != 0:
			op = "create"
		}
	}
	one := &act{verb: x.verb, args: x.args[:1]}
	if writes {
		a.each(one, c, cordon.Effect{Kind: cordon.Write, Op: op, Doubtful: !ok}, r)
	}
	if reads {
		a.each(one, c, cordon.Effect{Kind: cordon.Read, Doubtful: !ok}, r)
	}
	r.is(set{unk: true, t: r.inst.t, src: r.inst.src})
}

func fuzzy(items ...set) set {
	return one(value{k: vSeq, p: &sequence{items: items, kind: '[', fuzzy: true}})
}

// dirArg is a directory argument, "." where it is not given.
func (a *analysis) dirArg(x *act, c *call) set {
	s, ok := a.argOK(x, 0, c)
	if v, single := s.single(); !ok || single && v.k == vNone {
		return str(".")
	}
	return s
}

func listDir(a *analysis, x *act, c *call, r *outcome) {
	s := a.dirArg(x, c)
	a.paths(s, cordon.Effect{Kind: cordon.List})
	if len(x.args) > 0 && x.args[0].self {
		var items []set
		for _, v := range s.vs {
			items = append(items, one(value{k: vPath, s: joinPath(pathText(v), hole)}))
		}
		r.is(fuzzy(items...))
		return
	}
	r.is(fuzzy(str(hole)))
}

func scanDir(a *analysis, x *act, c *call, r *outcome) {
	s := a.dirArg(x, c)
	a.paths(s, cordon.Effect{Kind: cordon.List})
	var items []set
	for _, v := range s.vs {
		items = append(items, one(value{k: vInst, s: "os.DirEntry", p: &instance{addr: joinPath(pathText(v), hole)}}))
	}
	r.is(fuzzy(items...))
}

func walk(a *analysis, x *act, c *call, r *outcome) {
	s := a.dirArg(x, c)
	a.paths(s, cordon.Effect{Kind: cordon.List, Recursive: true})
	var items []set
	for _, v := range s.vs {
		items = append(items, seq('(', str(squeezePath(pathText(v)+hole)), fuzzy(str(hole)), fuzzy(str(hole))))
	}
	r.is(fuzzy(items...))
}

func globPaths(a *analysis, x *act, c *call, r *outcome) {
	root := ""
	if d, ok := c.arg(-1, "root_dir"); ok {
		root, _ = d.text()
	}
	var items []set
	for _, v := range a.arg(x, 0, c).vs {
		p := globbed(root, pathText(v))
		a.globList(p)
		items = append(items, str(p))
	}
	r.is(fuzzy(items...))
}

// globList lists the directory in front of a pattern's first wildcard.
func (a *analysis) globList(p string) {
	i := strings.Index(p, hole)
	if i < 0 {
		a.path(p, cordon.Effect{Kind: cordon.List})
		return
	}
	dir := p[:strings.LastIndexByte(p[:i], '/')+1]
	if len(dir) > 1 {
		dir = strings.TrimSuffix(dir, "/")
	}
	if dir != "" {
		a.path(dir, cordon.Effect{Kind: cordon.List, Recursive: strings.Contains(p[i:], "/")})
	}
}

func pathGlob(a *analysis, x *act, c *call, r *outcome) {
	var items []set
	pattern := "*"
	if s, ok := c.arg(0, "pattern"); ok {
		if t, ok := s.text(); ok {
			pattern = t
		}
	}
	p := globbed(pathText(c.recv), pattern)
	a.globList(p)
	if strings.HasSuffix(a.sym, "rglob") {
		p = squeezePath(joinPath(joinPath(pathText(c.recv), hole), strings.ReplaceAll(pattern, "*", hole)))
	}
	items = append(items, one(value{k: vPath, s: p}))
	r.is(fuzzy(items...))
}

// chdir moves the directory from which relative paths start.
func chdir(a *analysis, x *act, c *call, _ *outcome) {
	for _, v := range a.arg(x, 0, c).vs {
		p := pathText(v)
		if hasHole(p) {
			continue
		}
		dir := normalise(joinPath(a.dirs[0], p))
		if !strings.HasPrefix(dir, "/") || len(a.dirs) > 8 {
			continue
		}
		kept := []string{dir}
		for _, d := range a.dirs {
			if d != dir {
				kept = append(kept, d)
			}
		}
		if a.uncertain == 0 && a.calls == 0 {
			kept = kept[:1]
		}
		a.dirs = kept
	}
}

func chmod(a *analysis, x *act, c *call, r *outcome) {
	mode, ok := a.arg(x, 1, c).single()
	if ok && mode.k == vInt && mode.n&0o6000 != 0 {
		for _, s := range a.arg(x, 0, c).strings() {
			a.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: s})
		}
		a.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid"})
	}
	a.argPaths(x, 0, c, cordon.Effect{Kind: cordon.Write, Op: "chmod"})
}

// setID takes on another user or group: root's is a gain, one that is known
// not to be is a loss, and which is unknown mostly is one too.
func setID(a *analysis, x *act, c *call, _ *outcome) {
	e := cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Doubtful: true}
	for _, s := range c.all() {
		for _, v := range a.elements(s).vs {
			if v.k == vInt && v.n == 0 {
				e.Doubtful = false
			}
		}
		for _, v := range s.vs {
			if v.k == vInt && v.n == 0 {
				e.Doubtful = false
			}
		}
	}
	a.emit(e)
}

// makeNode makes a file, a pipe or, what only root can, a device: a way to
// the disk beside its file system.
func makeNode(a *analysis, x *act, c *call, _ *outcome) {
	a.argPaths(x, 0, c, cordon.Effect{Kind: cordon.Write, Op: "create"})
	mode, given := a.argOK(x, 1, c)
	m, ok := mode.single()
	if !given || ok && m.k == vInt && m.n&0o170000 != 0o060000 && m.n&0o170000 != 0o020000 {
		return
	}
	a.emit(cordon.Effect{Kind: cordon.Privilege, Op: "mount", Doubtful: !ok})
}

// annotateCall is a function that takes types, which may be texts.
func annotateCall(a *analysis, _ *act, c *call, _ *outcome) {
	for i, s := range c.args {
		if i > 0 {
			a.annotate(s, 0)
		}
	}
	for _, k := range c.kws {
		a.annotate(k.val, 0)
	}
}

func (a *analysis) pathOrURL(x *act, c *call, k cordon.Kind, r *outcome) {
	s, ok := a.argOK(x, 0, c)
	if !ok {
		return
	}
	for _, v := range s.vs {
		if t := pathText(v); strings.Contains(t, "://") {
			a.url(t, c, k == cordon.Write)
			r.inst.t |= network
			return
		}
	}
	a.each(x, c, cordon.Effect{Kind: k}, r)
}

func getEnv(a *analysis, x *act, c *call, r *outcome) {
	s, ok := a.argOK(x, 0, c)
	if !ok {
		r.is(unknown)
		return
	}
	out := a.readEnv(s)
	if d, ok := c.arg(1, "default"); ok && out.unk {
		out = join(out, d)
	}
	r.is(out)
}

// content is what a file or an answer holds.
func content(_ *analysis, _ *act, c *call, r *outcome) {
	in, ok := c.recv.p.(*instance)
	if !ok {
		r.is(unknown)
		return
	}
	s := set{unk: true, t: in.t, src: in.src}
	if len(s.src) == 0 {
		s.src = []string{"-"}
	}
	r.is(s)
}

func importPath(a *analysis, x *act, c *call, _ *outcome) {
	for _, v := range a.arg(x, len(x.args)-1, c).vs {
		if v.k == vStr && (strings.HasSuffix(v.s, ".zip") || strings.HasSuffix(v.s, ".egg") || strings.HasSuffix(v.s, ".whl")) {
			a.opaque("imports modules from an archive", cordon.OriginFile, false)
		}
		if v.k == vStr && strings.HasPrefix(v.s, "/") && !hasHole(v.s) {
			a.path(v.s, cordon.Effect{Kind: cordon.Read, Recursive: true})
		}
	}
}

func sqliteOpen(a *analysis, x *act, c *call, _ *outcome) {
	s := a.arg(x, 0, c)
	var out set
	out.t = s.t
	for _, v := range s.vs {
		t := pathText(v)
		if t == ":memory:" || t == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(t, "file:"); ok {
			rest, query, _ := strings.Cut(rest, "?")
			if strings.Contains(query, "mode=memory") {
				continue
			}
			t = strings.TrimPrefix(rest, "//")
			if strings.Contains(query, "mode=ro") {
				a.paths(str(t), cordon.Effect{Kind: cordon.Read})
				continue
			}
		}
		v.s = t
		out = join(out, one(v))
	}
	if len(out.vs) > 0 {
		a.paths(out, cordon.Effect{Kind: cordon.Read})
		a.paths(out, cordon.Effect{Kind: cordon.Write})
	}
}

// sqlText looks for the statements with which SQLite opens other files.
func sqlText(a *analysis, x *act, c *call, r *outcome) {
	for _, v := range a.arg(x, 0, c).vs {
		if v.k != vStr {
			continue
		}
		u := strings.ToUpper(v.s)
		for _, word := range []string{"ATTACH", "VACUUM", "LOAD_EXTENSION", "WRITEFILE", "READFILE"} {
			for i := strings.Index(u, word); i >= 0; {
				a.sqlFile(word, v.s[min(i+len(word), len(v.s)):], c)
				j := strings.Index(u[i+1:], word)
				if j < 0 {
					break
				}
				i += 1 + j
			}
		}
	}
	r.is(tainted(c.args...))
}

func (a *analysis) sqlFile(word, rest string, c *call) {
	switch word {
	case "LOAD_EXTENSION":
		a.opaque("SQL loads native code", cordon.OriginLiteral, false)
		return
	case "VACUUM":
		if !strings.Contains(strings.ToUpper(rest[:min(len(rest), 200)]), "INTO") {
			return
		}
	}
	i := strings.IndexAny(rest, `'"?:`)
	if i < 0 || i > 200 {
		return
	}
	var s set
	if rest[i] == '?' || rest[i] == ':' {
		// A bound parameter.
		p, ok := c.arg(1, "parameters")
		if !ok {
			return
		}
		s = a.elements(p)
		if m, ok := p.single(); ok && m.k == vMap {
			s = set{}
			for _, v := range m.p.(*mapping).vals {
				s = join(s, v)
			}
		}
	} else {
		e := strings.IndexByte(rest[i+1:], rest[i])
		if e < 0 {
			return
		}
		s = str(strings.TrimPrefix(rest[i+1:i+1+e], "file:"))
	}
	if t, ok := s.text(); ok && (t == "" || t == ":memory:") {
		return
	}
	a.paths(s, cordon.Effect{Kind: cordon.Read})
	a.paths(s, cordon.Effect{Kind: cordon.Write})
}

// calls: the function calls its first argument with those after it.
func calls(a *analysis, x *act, c *call, r *outcome) {
	f, ok := a.argOK(x, 0, c)
	if !ok {
		return
	}
	var rest []set
	if p := x.args[0].pos; p >= 0 && p+1 < len(c.args) {
		rest = c.args[p+1:]
	}
	d := *c
	d.recv = value{}
	a.callback(f, &d, rest)
	r.is(unknown)
}
