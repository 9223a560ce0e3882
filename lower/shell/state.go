package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxPath is the longest path that a kernel takes.
const maxPath = 4096

// maxAlts is how many values a variable may have at once.
const maxAlts = 16

// slot is what is known of one name. Slots are never changed once they are
// stored; an assignment stores a new one.
type slot struct {
	alts     []val // possible values of the string, or of element 0
	arr      []val
	keys     []string // of an associative array, beside arr
	isArr    bool
	exported bool
	ref      bool // nameref: the value is a name
	fn       *function
}

type function struct {
	name string
	body *syntax.Stmt
	src  string
}

// Names of things other than variables share the journal under prefixes that
// no variable can have.
const (
	keyDir     = "\x00dir"
	keyOldDir  = "\x00olddir"
	keyFunc    = "\x00fn:"
	keyAlias   = "\x00alias:"
	keyCommand = "\x00hash:"
)

type change struct {
	key string
	old *slot
}

// names is a map with a journal, so that a branch or a subshell can be
// undone or joined at the cost of what it changed.
type names struct {
	m       map[string]*slot
	journal []change
}

func (n *names) get(key string) *slot { return n.m[key] }

func (n *names) set(key string, s *slot) {
	n.journal = append(n.journal, change{key, n.m[key]})
	if s == nil {
		delete(n.m, key)
		return
	}
	if n.m == nil {
		n.m = make(map[string]*slot, 8)
	}
	n.m[key] = s
}

func (n *names) mark() int { return len(n.journal) }

// undo takes back everything since the mark and returns what had been
// reached.
func (n *names) undo(mark int) map[string]*slot {
	if len(n.journal) == mark {
		return nil
	}
	d := make(map[string]*slot, len(n.journal)-mark)
	for i := len(n.journal) - 1; i >= mark; i-- {
		c := n.journal[i]
		if _, ok := d[c.key]; !ok {
			d[c.key] = n.m[c.key]
		}
		if c.old == nil {
			delete(n.m, c.key)
		} else {
			n.m[c.key] = c.old
		}
	}
	n.journal = n.journal[:mark]
	return d
}

// since lists the first old value of each name changed after the mark.
func (n *names) since(mark int) []change {
	if len(n.journal) == mark {
		return nil
	}
	var out []change
	seen := make(map[string]bool)
	for _, c := range n.journal[mark:] {
		if !seen[c.key] {
			seen[c.key] = true
			out = append(out, c)
		}
	}
	return out
}

// join makes the names what they may be after any one of the branches.
func (n *names) join(branches ...map[string]*slot) {
	done := make(map[string]bool)
	for _, b := range branches {
		for k := range b {
			if done[k] {
				continue
			}
			done[k] = true
			var s *slot
			for i, c := range branches {
				v, ok := c[k]
				if !ok {
					v = n.m[k]
				}
				if i == 0 {
					s = v
				} else {
					s = either(k, s, v)
				}
			}
			n.set(k, s)
		}
	}
}

// either is a slot that may be a or b.
func either(key string, a, b *slot) *slot {
	if a == b {
		return a
	}
	if strings.HasPrefix(key, keyFunc) || strings.HasPrefix(key, keyAlias) {
		if b != nil {
			return b
		}
		return a
	}
	if a == nil {
		a = &slot{alts: []val{unsetVal(key)}}
	}
	if b == nil {
		b = &slot{alts: []val{unsetVal(key)}}
	}
	out := *b
	out.exported = a.exported || b.exported
	out.alts = addAlts(a.alts, b.alts)
	if a.isArr && !b.isArr {
		out.arr, out.keys, out.isArr = a.arr, a.keys, true
	}
	return &out
}

func unsetVal(key string) val { return val{s: mUnset} }

func addAlts(a, b []val) []val {
	out := a[:len(a):len(a)]
	for _, v := range b {
		if !hasAlt(out, v) {
			out = append(out, v)
		}
	}
	if len(out) > maxAlts {
		v := val{s: mUnknown}
		for _, x := range out {
			v.data, v.taint = union(v.data, x.data), v.taint|x.taint
		}
		return []val{v}
	}
	return out
}

func hasAlt(l []val, v val) bool {
	for _, x := range l {
		if x.s == v.s && x.taint == v.taint {
			return true
		}
	}
	return false
}

// picks chooses one value for each variable that has several, so that a
// command is read once for every combination.
type picks struct {
	names []string
	idx   []int
	size  []int
}

func (p *picks) choose(name string, n int) int {
	for i, x := range p.names {
		if x == name {
			return p.idx[i] % n
		}
	}
	p.names = append(p.names, name)
	p.idx = append(p.idx, 0)
	p.size = append(p.size, n)
	return 0
}

// next moves to the following combination above base; false at the end.
func (p *picks) next(base int) bool {
	for i := len(p.idx) - 1; i >= base; i-- {
		if p.idx[i]++; p.idx[i] < p.size[i] {
			p.cut(i + 1)
			return true
		}
		p.cut(i)
	}
	return false
}

func (p *picks) cut(n int) {
	p.names, p.idx, p.size = p.names[:n], p.idx[:n], p.size[:n]
}

// each runs f once for every combination of the values that its words use.
// Within an expansion it runs f once, and the outer command iterates.
func (w *walker) each(f func()) {
	if w.expanding > 0 {
		f()
		return
	}
	base := len(w.picks.names)
	m := w.names.mark()
	f()
	if len(w.picks.names) == base {
		return
	}
	deltas := []map[string]*slot{w.names.undo(m)}
	for n := 1; w.picks.next(base); n++ {
		if n >= maxAlts {
			w.limit("values of one command")
			break
		}
		f()
		deltas = append(deltas, w.names.undo(m))
	}
	w.picks.cut(base)
	w.names.join(deltas...)
}

// setVar assigns a string, keeping what is known of the name's attributes.
func (w *walker) setVar(name string, vs ...val) {
	for _, v := range vs {
		if len(v.s) > 1024 {
			w.spend(len(v.s) / 256) // texts that double
		}
	}
	if old := w.names.get(name); old != nil {
		if old.ref && len(old.alts) == 1 && validName(old.alts[0].s) && old.alts[0].s != name {
			w.setVar(old.alts[0].s, vs...)
			return
		}
		n := *old
		n.alts, n.fn = vs, nil
		if n.isArr && len(n.keys) == 0 && len(n.arr) > 0 && len(vs) > 0 {
			n.arr = append([]val{vs[0]}, n.arr[1:]...)
		}
		w.names.set(name, &n)
	} else {
		w.names.set(name, &slot{alts: vs, exported: w.allExport})
	}
	w.assigned(name, vs)
}

func (w *walker) setArray(name string, arr []val, keys []string) {
	n := slot{arr: arr, keys: keys, isArr: true}
	if len(arr) > 0 {
		n.alts = arr[:1]
	} else {
		n.alts = []val{{}}
	}
	w.names.set(name, &n)
}

// lookup is the value of a variable; set is false when nothing assigns it.
func (w *walker) lookup(name string) (v val, set bool) {
	for range 8 {
		s := w.names.get(name)
		if s == nil || len(s.alts) == 0 {
			break
		}
		i := 0
		if len(s.alts) > 1 {
			i = w.picks.choose(name, len(s.alts))
		}
		if !s.ref || s.alts[i].s == name || !validName(s.alts[i].s) {
			return s.alts[i], true
		}
		name = s.alts[i].s
	}
	return w.special(name)
}

func (w *walker) special(name string) (val, bool) {
	switch name {
	case "#":
		return lit(strconv.Itoa(len(w.params))), true
	case "@", "*":
		return joinVals(w.params, " "), len(w.params) > 0
	case "?", "$", "!", "RANDOM", "SECONDS", "EPOCHSECONDS", "LINENO", "BASHPID", "PPID", "UID", "EUID",
		"BASH_VERSION", "HOSTNAME", "OSTYPE", "MACHTYPE", "COLUMNS", "LINES", "SHLVL", "EPOCHREALTIME":
		return val{s: mName}, true
	case "-":
		return lit("hB"), true
	case "0":
		return w.arg0, true
	case "_":
		return val{s: mUnknown}, true
	case "PWD":
		return w.dir(), true
	case "OLDPWD":
		return val{s: mUnset}, false
	case "IFS":
		return lit(" \t\n"), true
	case "HOME":
		if w.env.Home != "" {
			return lit(w.env.Home), true
		}
	case "BASH":
		return lit("/bin/bash"), true
	}
	if len(name) > 0 && name[0] >= '1' && name[0] <= '9' {
		if n, err := strconv.Atoi(name); err == nil && n <= len(w.params) {
			return w.params[n-1], true
		}
		if w.openParams {
			return val{s: mPath}, true
		}
		return val{}, false
	}
	if s, ok := w.env.Vars[name]; ok {
		return val{s: cleanInput(s), data: []string{"$" + name}}, true
	}
	switch name {
	case "USER", "LOGNAME":
		if w.env.User != "" {
			return lit(w.env.User), true
		}
		return val{s: mName}, true
	case "SHELL":
		return lit("/bin/bash"), true
	case "TMPDIR", "TMP", "TEMP", "RUNNER_TEMP":
		return val{s: mTemp, data: []string{"$" + name}}, true
	case "TERM", "LANG", "LC_ALL":
		return val{s: mName}, true
	}
	return val{s: mUnset, data: []string{"$" + name}}, false
}

func joinVals(vs []val, sep string) val {
	switch len(vs) {
	case 0:
		return val{}
	case 1:
		return vs[0]
	}
	var out val
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(v.s)
		out.data, out.taint = union(out.data, v.data), out.taint|v.taint
	}
	out.s = b.String()
	return bounded(out)
}

// dir is the working directory; it may have holes.
func (w *walker) dir() val {
	if s := w.names.get(keyDir); s != nil {
		i := 0
		if len(s.alts) > 1 {
			i = w.picks.choose(keyDir, len(s.alts))
		}
		return s.alts[i]
	}
	return lit(w.env.Dir)
}

func (w *walker) setDir(v val) {
	if len(v.s) > maxPath {
		v.s = mUnknown
	}
	w.names.set(keyOldDir, &slot{alts: []val{w.dir()}})
	w.names.set(keyDir, &slot{alts: []val{v}})
}

func (w *walker) exported(name string) bool {
	s := w.names.get(name)
	return s != nil && s.exported
}

func validName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
