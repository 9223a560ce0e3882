package python

import (
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// A function that the code defines and never sets off does nothing when the
// code runs. It is read all the same, for whoever may call it, and its effects
// are there but doubtful. What can set a function off: its name in code that
// runs (a call, a reference, a text), a decorator, the protocols of its class,
// a base class that is not the code's own. Where code that runs looks names up
// by other means, every function counts as set off.

// maxBlame is how many functions one effect is laid to; more are not told
// apart.
const maxBlame = 32

// blame notes which function that nobody was seen to call gave the effect i.
func (a *analysis) blame(i int, fresh bool) {
	if a.who == nil {
		if !fresh {
			delete(a.by, i)
		}
		return
	}
	list, ok := a.by[i]
	switch {
	case fresh:
		if a.by == nil {
			a.by = map[int][]any{}
		}
		a.by[i] = []any{a.who}
	case ok && len(list) < maxBlame:
		if !slices.Contains(list, a.who) {
			a.by[i] = append(list, a.who)
		}
	case ok:
		delete(a.by, i)
	}
}

// weaken makes the effects doubtful that only functions have which nothing
// sets off, and drops those that even their caller would have to fill in: a
// host or a module that is a parameter.
func (a *analysis) weaken() {
	var l *liveness
	kept := a.effects[:0]
	for i := range a.effects {
		e := a.effects[i]
		list, ok := a.by[i]
		if ok && l == nil && (weighty(&e) || idle(&e)) {
			if l = newLiveness(a); l == nil {
				return
			}
		}
		if ok && l != nil && !slices.ContainsFunc(list, l.runs) {
			if idle(&e) {
				continue
			}
			e.Doubtful = e.Doubtful || weighty(&e)
		}
		kept = append(kept, e)
	}
	a.effects = kept
}

// idle: the effect says only that something is not known.
func idle(e *cordon.Effect) bool {
	switch e.Kind {
	case cordon.Connect:
		return e.Target == "" && e.Op != "reverse_shell" && len(e.Data) == 0
	case cordon.Opaque:
		return e.Reason == computedImport && e.Origin == cordon.OriginUnknown
	}
	return false
}

// computedImport is the reason of an import that cannot be followed.
const computedImport = "imports a module whose name is not constant"

// weighty: it matters whether the effect is certain.
func weighty(e *cordon.Effect) bool {
	if e.Doubtful {
		return false
	}
	switch e.Kind {
	case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
		return e.Recursive || strings.HasPrefix(e.Target, "/") || strings.Contains(e.Target, "..") || strings.Contains(e.Target, "/.") || strings.HasPrefix(e.Target, ".")
	}
	return true
}

// region is a piece of text that runs together: the module (without the bodies
// of its functions), the body of a function, or the head of a class, which
// says something only if the class is used.
type region struct {
	start, end int32
	parent     int
	name       string
	key        any
	fn         *function
	classes    []*class
	words      []string
	always     bool // set off by being defined
	mentioned  bool
	live       bool
	members    []int // of a class: its methods
}

type liveness struct {
	regions []region
	byName  map[string][]int
	byKey   map[any]int
	classes map[*class]int
	lambdas map[int32]int
	said    map[string]bool
	all     bool
}

// newLiveness is nil where the text cannot be told apart into functions.
func newLiveness(a *analysis) *liveness {
	toks, ok := syntax.Tokens(a.text)
	if !ok || a.stopped {
		return nil
	}
	l := &liveness{byName: map[string][]int{}, byKey: map[any]int{}, classes: map[*class]int{}, said: map[string]bool{}, lambdas: map[int32]int{}}
	l.regions = append(l.regions, region{end: int32(len(a.text)) + 1, parent: -1, always: true})
	l.collect(a)
	l.scan(a.text, toks)
	l.reach(0)
	return l
}

// runs: something sets the function off.
func (l *liveness) runs(key any) bool {
	i, ok := l.byKey[key]
	if x, isLambda := key.(*syntax.Lambda); isLambda {
		i, ok = l.lambdas[int32(x.Pos())] // it runs if the function around it does
	}
	return l.all || !ok || l.regions[i].live
}

func (l *liveness) collect(a *analysis) {
	for _, key := range a.order {
		fn := a.known[key]
		def, ok := key.(*syntax.FunctionDef)
		if !ok || fn.inner || len(def.Body) == 0 {
			continue
		}
		l.regions = append(l.regions, region{
			start: int32(def.Body[0].Pos()), end: def.End, name: def.Name, key: key, fn: fn, always: len(def.Decorators) > 0,
		})
	}
	heads := map[*syntax.ClassDef]int{}
	for _, d := range a.classes {
		if len(d.at.Body) == 0 {
			continue
		}
		if n, twice := heads[d.at]; twice {
			r := &l.regions[n]
			r.classes = append(r.classes, d.class)
			r.always = r.always || hooked(d.class, 0)
			continue
		}
		heads[d.at] = len(l.regions)
		r := region{name: d.at.Name, classes: []*class{d.class}, start: int32(d.at.Body[0].Pos()), always: len(d.at.Decorators) > 0 || len(d.at.Keywords) > 0}
		if len(d.at.Bases) > 0 {
			r.start = int32(d.at.Bases[0].Pos())
		}
		r.end = int32(d.at.Body[0].Pos())
		r.always = r.always || hooked(d.class, 0)
		l.regions = append(l.regions, r)
	}
	slices.SortStableFunc(l.regions, func(x, y region) int {
		if x.start != y.start {
			return int(x.start) - int(y.start)
		}
		return int(y.end) - int(x.end)
	})
	for i := range l.regions {
		r := &l.regions[i]
		switch {
		case r.classes != nil:
			for _, c := range r.classes {
				l.classes[c] = i
			}
		case r.key != nil:
			l.byKey[r.key] = i
		}
		if r.name != "" {
			l.byName[r.name] = append(l.byName[r.name], i)
		}
	}
	for i := range l.regions {
		if fn := l.regions[i].fn; fn != nil && fn.owner != nil {
			if c, ok := l.classes[fn.owner]; ok {
				l.regions[c].members = append(l.regions[c].members, i)
			}
		}
	}
}

// hooked: a base class of this one may act on it as soon as it is defined.
func hooked(c *class, depth int) bool {
	if depth > 20 {
		return true
	}
	for _, b := range c.bases {
		if b.unk || len(b.vs) != 1 {
			return true
		}
		v := b.vs[0]
		switch {
		case v.k == vSym && v.p == nil && quiet(v.s):
		case v.k == vClass:
			base := v.p.(*class)
			if base.meta || hooked(base, depth+1) {
				return true
			}
			if base.frame == nil {
				return true
			}
			if _, ok := base.frame.cur["__init_subclass__"]; ok {
				return true
			}
			if _, ok := base.frame.cur["__mro_entries__"]; ok {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// quiet: classes of modules that do nothing with a subclass when it is
// defined.
func quiet(name string) bool {
	top, rest, _ := strings.Cut(name, ".")
	switch top {
	case "builtins":
		return rest != "type"
	case "logging", "threading", "socketserver", "http", "io", "asyncio", "cmd", "ast", "json", "string", "collections", "socket", "smtplib",
		"asyncore", "asynchat", "html", "xml", "argparse", "configparser", "contextlib", "queue", "random", "code", "tarfile", "zipfile",
		"email", "urllib", "codecs", "xmlrpc", "imaplib", "ftplib", "optparse", "tokenize", "abc", "multiprocessing", "tkinter", "bdb", "shlex":
		return true
	}
	return false
}

// foreign: the class has a base that is not the code's own, which may call any
// of its methods.
func foreign(c *class, depth int) bool {
	if depth > 20 {
		return true
	}
	for _, b := range c.bases {
		if b.unk || len(b.vs) != 1 {
			return true
		}
		v := b.vs[0]
		switch {
		case v.k == vSym && (v.s == "builtins.object" || strings.HasSuffix(v.s, "Error") || v.s == "builtins.Exception"):
		case v.k == vClass && !foreign(v.p.(*class), depth+1):
		default:
			return true
		}
	}
	return false
}

// scan lays each word to the innermost region around it.
func (l *liveness) scan(text string, toks []syntax.Token) {
	stack := []int{0}
	next := 1
	exported := false // in the list of names for import *
	for i := range toks {
		t := toks[i]
		for len(stack) > 1 && l.regions[stack[len(stack)-1]].end <= t.Start {
			stack = stack[:len(stack)-1]
		}
		for next < len(l.regions) && l.regions[next].start <= t.Start {
			r := &l.regions[next]
			if r.end > t.Start {
				r.parent = stack[len(stack)-1]
				stack = append(stack, next)
			}
			next++
		}
		r := &l.regions[stack[len(stack)-1]]
		switch t.Kind {
		case syntax.KwLambda:
			l.lambdas[t.Start] = stack[len(stack)-1]
		case syntax.Ident:
			if i > 0 && (toks[i-1].Kind == syntax.KwDef || toks[i-1].Kind == syntax.KwClass) {
				continue
			}
			word := syntax.Identifier(text[t.Start:t.End])
			if word == "getattr" && plainGetattr(text, toks[i+1:]) {
				continue
			}
			exported = exported || word == "__all__"
			r.words = append(r.words, word)
		case syntax.Newline:
			exported = false
		case syntax.String, syntax.FString:
			if exported || statement(toks, i) || compared(toks, i) {
				continue
			}
			r.words = append(r.words, stringWords(text[t.Start:t.End])...)
		}
	}
}

// statement: the literal is a statement by itself, such as a docstring.
func statement(toks []syntax.Token, i int) bool {
	if toks[i].Kind != syntax.String || toks[i+1].Kind != syntax.Newline {
		return false
	}
	if i == 0 {
		return true
	}
	switch toks[i-1].Kind {
	case syntax.Newline, syntax.Indent, syntax.Dedent:
		return true
	}
	return false
}

// compared: __name__ == "__main__" names no function.
func compared(toks []syntax.Token, i int) bool {
	return i > 0 && toks[i-1].Kind == syntax.EqEq
}

// plainGetattr: getattr with a name that stands there.
func plainGetattr(text string, after []syntax.Token) bool {
	if len(after) == 0 || after[0].Kind != syntax.LParen {
		return false
	}
	depth := 0
	for i, t := range after {
		switch t.Kind {
		case syntax.LParen, syntax.LBracket, syntax.LBrace:
			depth++
		case syntax.RParen, syntax.RBracket, syntax.RBrace:
			depth--
		case syntax.Comma:
			if depth != 1 {
				continue
			}
			if i+2 >= len(after) || after[i+1].Kind != syntax.String || after[i+2].Kind != syntax.Comma && after[i+2].Kind != syntax.RParen {
				return false
			}
			return !strings.Contains(text[after[i+1].Start:after[i+1].End], `\`)
		}
		if depth == 0 || t.Kind == syntax.EOF {
			return false
		}
	}
	return false
}

// stringWords are the words of a literal that could name something.
func stringWords(s string) []string {
	if len(s) > 4096 {
		s = s[:4096]
	}
	return strings.FieldsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9' && r < 'A' || r > 'Z' && r < 'a' || r > 'z' && r < 0x80)
	})
}

// lookups: code that says one of these may reach any function by a name that
// does not stand there.
func lookups(word string) bool {
	switch word {
	case "getattr", "globals", "locals", "vars", "eval", "exec", "execfile", "methodcaller", "attrgetter", "getmembers", "getmembers_static",
		"getattr_static", "resolve_name", "get_objects", "get_referrers", "get_referents", "f_globals", "f_locals", "fire",
		"__dict__", "__subclasses__", "__getattribute__", "__globals__":
		return true
	}
	return false
}

// runners: what test runners and web servers look for by name.
func runners(name string) bool {
	for _, p := range [...]string{"test", "Test", "setup", "setUp", "teardown", "tearDown", "pytest_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	switch name {
	case "load_tests", "application", "lambda_handler", "handler", "main":
		return true
	}
	return false
}

// reach follows the words from the region i on.
func (l *liveness) reach(i int) {
	l.regions[i].live = true
	queue := []int{i}
	for j := range l.regions {
		if j > 0 {
			queue = l.try(j, queue)
		}
	}
	for len(queue) > 0 && !l.all {
		r := &l.regions[queue[len(queue)-1]]
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, w := range r.words {
			if l.said[w] {
				continue
			}
			l.said[w] = true
			l.all = l.all || lookups(w)
			for _, n := range l.byName[w] {
				l.regions[n].mentioned = true
				queue = l.try(n, queue)
			}
		}
		for _, n := range r.members {
			queue = l.try(n, queue)
		}
		queue = l.inside(at, queue)
	}
}

// inside tries what is defined in a function that has turned out to run.
func (l *liveness) inside(at int, queue []int) []int {
	if at == 0 || l.regions[at].classes != nil {
		return queue
	}
	for n := at + 1; n < len(l.regions) && l.regions[n].start < l.regions[at].end; n++ {
		if l.regions[n].parent == at {
			queue = l.try(n, queue)
		}
	}
	return queue
}

func (l *liveness) try(n int, queue []int) []int {
	r := &l.regions[n]
	if r.live || r.parent < 0 || !l.regions[r.parent].live {
		return queue
	}
	on := r.always || r.mentioned || runners(r.name)
	if r.fn != nil && !on {
		if owner := r.fn.owner; owner == nil {
			on = strings.HasPrefix(r.name, "__")
		} else if c, ok := l.classes[owner]; !ok || l.regions[c].live {
			on = strings.HasPrefix(r.name, "_") && strings.HasSuffix(r.name, "_") || r.name == "mro" || foreign(owner, 0)
		}
	}
	if !on {
		return queue
	}
	r.live = true
	return append(queue, n)
}
