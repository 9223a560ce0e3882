package shell

import (
	"path"
	"strings"
)

// handleFind reads find's own language: roots, tests, actions.
func handleFind(w *walker, c *inv) {
	args := c.args
	i := 0
	for i < len(args) && len(args[i].s) > 0 && args[i].s[0] == '-' && (strings.Trim(args[i].s, "-HLP") == "" || strings.HasPrefix(args[i].s, "-O") || args[i].s == "-D") {
		if args[i].s == "-D" {
			i++
		}
		i++
	}
	var roots []val
	for i < len(args) && args[i].s != "" && args[i].s[0] != '-' && args[i].s != "(" && args[i].s != "!" && args[i].s != ")" {
		roots = append(roots, args[i])
		i++
	}
	if len(roots) == 0 {
		roots = []val{{s: "."}}
	}
	f := finder{w: w, c: c, roots: roots, args: args[i:]}
	all := f.expression()
	for _, r := range roots {
		w.lists(r, true)
	}
	if f.from.s != "" {
		w.reads(f.from)
	}
	c.print(val{s: strings.Join(f.found(roots[0], all), "\n") + "\n"})
	if f.quiet {
		c.print(val{s: mUnknown, data: c.out.data})
	}
}

// finder follows a find expression from left to right: which files reach
// each of its actions.
type finder struct {
	w       *walker
	c       *inv
	roots   []val
	args    []val
	at      int
	shallow bool // -maxdepth 1
	minimum bool // -mindepth 1 or more
	quiet   bool
	from    val
}

// picked is what the tests so far let through.
type picked struct {
	names []string // patterns of the last element, any of them; nil is any name
	some  bool     // a test by age, size, owner and the like took some of them
	empty bool     // only what holds nothing
	files bool     // only regular files
	dirs  bool     // only directories
}

// narrow: it is less than all that lies below.
func (p picked) narrow() bool { return p.names != nil || p.some || p.empty }

// or is what one of two branches lets through.
func (p picked) or(q picked) picked {
	out := picked{some: p.some || q.some, empty: p.empty && q.empty, files: p.files && q.files, dirs: p.dirs && q.dirs}
	switch {
	case p.names != nil && q.names != nil && len(p.names)+len(q.names) <= maxNames:
		out.names = append(p.names[:len(p.names):len(p.names)], q.names...)
	case !p.narrow() || !q.narrow():
		out.some, out.empty = false, false
	default:
		out.some = true
	}
	return out
}

const (
	maxNames  = 16
	maxGroups = 100 // parentheses in parentheses
)

func (f *finder) more() bool { return f.at < len(f.args) }

func (f *finder) word() string { return f.args[f.at].s }

// expression reads all of it. What stands after a parenthesis too many is
// read as if nothing had been tested.
func (f *finder) expression() (all picked) {
	for k, a := range f.args {
		if a.s == "-maxdepth" && k+1 < len(f.args) && f.args[k+1].s == "1" {
			f.shallow = true
		}
		if a.s == "-mindepth" && k+1 < len(f.args) && f.args[k+1].s != "0" {
			f.minimum = true
		}
	}
	all = f.branches(picked{some: f.shallow}, 0)
	for f.more() {
		f.at++
		all = f.branches(picked{some: f.shallow}, 0)
	}
	return all
}

// branches reads up to a closing parenthesis. A branch after -o sees the
// files that the ones before did not take.
func (f *finder) branches(p picked, depth int) picked {
	out := f.branch(p, depth)
	for f.more() {
		switch f.word() {
		case "-o", "-or":
			f.at++
			out = out.or(f.branch(p, depth))
		case ",":
			f.at++
			out = f.branch(p, depth)
		default:
			return out
		}
	}
	return out
}

func (f *finder) branch(p picked, depth int) picked {
	for f.more() {
		negated := false
		for f.more() && (f.word() == "!" || f.word() == "-not") {
			negated = !negated
			f.at++
		}
		if !f.more() {
			return p
		}
		switch f.word() {
		case "-o", "-or", ",", ")":
			return p
		case "-a", "-and":
			f.at++
		case "(":
			f.at++
			if depth >= maxGroups {
				continue
			}
			q := f.branches(p, depth+1)
			if f.more() && f.word() == ")" {
				f.at++
			}
			if !negated { // what is left by "not these" is nearly all
				p = q
			}
		default:
			p = f.test(p, negated)
		}
	}
	return p
}

// test reads one test or action with its arguments. A negated test by name
// leaves nearly all, one by age or size does not.
func (f *finder) test(p picked, negated bool) picked {
	a, next := f.word(), val{}
	if f.at++; f.more() {
		next = f.args[f.at]
	}
	switch a {
	case "-name", "-iname":
		f.at++
		if !negated && p.names == nil {
			p.names = []string{deactivate(next.s)}
		}
	case "-path", "-wholename", "-ipath", "-iwholename":
		f.at++
		if !negated {
			p = p.below(deactivate(next.s))
		}
	case "-regex", "-iregex", "-lname", "-ilname":
		f.at++
		p.some = p.some || !negated
	case "-type", "-xtype":
		f.at++
		if !negated {
			p.files = p.files || next.s == "f"
			p.dirs = p.dirs || next.s == "d"
			p.some = p.some || next.s == "l"
		}
	case "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-size", "-perm", "-user", "-group", "-uid", "-gid", "-inum", "-links", "-used", "-context":
		f.at++
		p.some = true
	case "-newer", "-anewer", "-cnewer", "-samefile":
		f.at++
		f.w.lists(next, false)
		p.some = true
	case "-nouser", "-nogroup", "-executable", "-readable", "-writable":
		p.some = true
	case "-empty":
		p.empty = p.empty || !negated
	case "-maxdepth", "-mindepth", "-regextype", "-fstype":
		f.at++
	case "-printf":
		f.at++
		f.quiet = true
	case "-files0-from":
		f.at++
		f.from = next
	case "-fprint", "-fprint0", "-fls":
		f.at++
		f.w.writes(next, "create")
	case "-fprintf":
		f.at += 2
		f.w.writes(next, "create")
	case "-delete":
		f.removes(p)
	case "-exec", "-execdir", "-ok", "-okdir":
		f.exec(a, p)
	default:
		if strings.HasPrefix(a, "-newer") {
			f.at++
			p.some = true
		}
	}
	return p
}

// below narrows by a pattern of the whole path: by its last element where
// that is plain, for a star in it would take slashes too.
func (p picked) below(pattern string) picked {
	last := path.Base(pattern)
	switch {
	case strings.Trim(pattern, "*./") == "":
	case p.names == nil && strings.Contains(pattern, "/") && !strings.HasSuffix(pattern, "/") && !strings.ContainsAny(last, "*?["):
		p.names = []string{last}
	default:
		p.some = true
	}
	return p
}

// found are the paths below a root that are picked.
func (f *finder) found(root val, p picked) []string {
	if strings.Contains(root.s, mGlob) {
		root.s = settle(root.s)
	}
	dir := strings.TrimSuffix(root.s, "/") + "/"
	if dir == "./" {
		dir = ""
	}
	if p.names == nil {
		if (p.some || p.empty) && f.w.inTree(root) {
			return []string{dir + mPath + mSome}
		}
		return []string{dir + mPath}
	}
	var out []string
	for _, n := range p.names {
		switch last := settle(activate(n)); {
		case strings.ContainsRune(last, '/') || n != "" && strings.Trim(n, "*") == "":
			out = append(out, dir+mPath)
		case bare(last) && f.w.inTree(root):
			out = append(out, dir+mPath+mSome) // by its length or its letters
		default:
			out = append(out, dir+mPath+"/"+last)
		}
	}
	return out
}

// inTree reports whether a root is known to lie in the workspace: elsewhere,
// a test does not make a sweep any better.
func (w *walker) inTree(root val) bool {
	k, ws := w.key(root), strings.TrimSuffix(w.env.Workspace, "/")
	return ws != "" && (k == ws || strings.HasPrefix(k, ws+"/"))
}

func (f *finder) removes(p picked) {
	for _, r := range f.roots {
		switch {
		case (p.empty || p.dirs) && p.names == nil:
			// Of the directories alone, those go that hold no file.
			for _, hit := range f.found(r, p) {
				f.w.deletesEmpty(val{s: hit, data: r.data, taint: r.taint})
			}
		case p.narrow() || p.files || f.minimum:
			for _, hit := range f.found(r, p) {
				f.w.deletes(val{s: hit, data: r.data, taint: r.taint}, false)
			}
		default:
			f.w.deletes(r, true)
		}
	}
}

func (f *finder) exec(kind string, p picked) {
	from := f.at
	for f.more() && f.word() != ";" && !(f.word() == "+" && f.at > from && strings.Contains(f.args[f.at-1].s, "{}")) {
		f.at++
	}
	cmd := f.args[from:f.at]
	if f.more() {
		f.at++
	}
	if len(cmd) == 0 {
		return
	}
	if strings.HasPrefix(kind, "-ok") { // somebody is asked first
		f.w.doubt++
		defer func() { f.w.doubt-- }()
	}
	for _, r := range f.roots {
		if !p.narrow() && !p.files && !f.minimum && (r.s == "." || strings.HasPrefix(r.s, "/") || strings.HasPrefix(r.s, "~")) {
			// The root itself is found too.
			f.w.execWith(cmd, r.s, "find "+kind)
		}
		for _, hit := range f.found(r, p) {
			f.w.execWith(cmd, hit, "find "+kind)
		}
	}
}

// execWith runs words with "{}" replaced.
func (w *walker) execWith(cmd []val, with, via string) {
	words := make([]val, len(cmd))
	for k, v := range cmd {
		if strings.Contains(v.s, "{}") {
			v.s = strings.ReplaceAll(v.s, "{}", with)
		}
		words[k] = v
	}
	w.sub(words, stdio{}, via)
}
