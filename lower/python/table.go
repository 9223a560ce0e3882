package python

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
)

// The tables, one line a function:
//
//	os.remove, os.unlink = delete(0 path) nofollow
//
// Left the names (a name without a dot is a builtin; "T.m" a method of the
// type T; "M.*" the rest of a module; "?.m" a method of that name of an
// unknown object; "import M" what importing it does; "set M.x" what assigning
// to it does), right the actions in order, and after "->" the type of the
// result. The arguments of an action are positions with the keywords that
// name the same argument: "0 path file"; "-" has no position; "0*" is the
// argument and all after it; "self" is the object of a method. The actions
// are the keys of the map verbs, in actions.go. Other lines:
//
//	alias posix = os           the module is another one
//	type X < Y                 X has the methods of Y
//	const os.sep = "/"         a value (text in quotes, or a number)
//	module os                  a module that could do harm: `anything.os` is it
//	submodule asyncio.subprocess   … but not this
//	reflect __globals__ = why  an attribute that leads out of the code
//
//go:embed table/*.txt
var tableFiles embed.FS

// table is read when Python is read for the first time. It is set here since
// its actions use it.
var table func() *tables

func init() { table = sync.OnceValue(mustLoad) }

// entry is what is known of one function.
type entry struct {
	acts     []act
	result   string
	property bool
	// used says what using it means, for functions that are handed on
	// without a call; empty for harmless ones.
	used string
}

type act struct {
	run  func(a *analysis, x *act, c *call, r *outcome)
	verb string
	args []argument
	text string
}

// takesSelf: an action is about the object whose method it is.
func (e *entry) takesSelf() bool {
	for _, x := range e.acts {
		for _, g := range x.args {
			if g.self {
				return true
			}
		}
	}
	return false
}

type argument struct {
	pos   int
	names []string
	rest  bool
	self  bool
}

type tables struct {
	entries    map[string]*entry
	rest       map[string]*entry // by module: its functions that have no entry
	parents    map[string]string
	aliases    map[string]string
	consts     map[string]set
	modules    map[string]bool
	submodules map[string]bool
	reflect    map[string]string
}

func mustLoad() *tables {
	setVerbs()
	t := &tables{
		entries: map[string]*entry{}, rest: map[string]*entry{}, parents: map[string]string{}, aliases: map[string]string{}, consts: map[string]set{},
		modules: map[string]bool{}, submodules: map[string]bool{}, reflect: map[string]string{},
	}
	files, err := fs.Glob(tableFiles, "table/*.txt")
	if err != nil {
		panic(err)
	}
	for _, name := range files {
		b, err := tableFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		for n, line := range strings.Split(string(b), "\n") {
			if err := t.line(strings.TrimSpace(line)); err != nil {
				panic(fmt.Sprintf("python: %s:%d: %v", name, n+1, err))
			}
		}
	}
	return t
}

func (t *tables) line(s string) error {
	if s == "" || s[0] == '#' {
		return nil
	}
	word, rest, _ := strings.Cut(s, " ")
	left, right, _ := strings.Cut(rest, " = ")
	switch word {
	case "alias":
		t.aliases[left] = right
		return nil
	case "module":
		for _, m := range names(rest) {
			t.modules[m] = true
		}
		return nil
	case "submodule":
		for _, m := range names(rest) {
			t.submodules[m] = true
		}
		return nil
	case "type":
		x, y, ok := strings.Cut(rest, " < ")
		if !ok {
			return fmt.Errorf("want type X < Y, got %q", s)
		}
		for _, n := range names(x) {
			t.parents[n] = y
		}
		return nil
	case "const":
		return t.constant(left, right)
	case "reflect":
		for _, n := range names(left) {
			t.reflect[n] = right
		}
		return nil
	}
	left, right, ok := strings.Cut(s, " = ")
	if !ok {
		return fmt.Errorf("no \" = \" in %q", s)
	}
	e, err := parseEntry(right)
	if err != nil {
		return err
	}
	for _, n := range names(left) {
		if !strings.ContainsAny(n, ". ") {
			n = "builtins." + n
		}
		if m, ok := strings.CutSuffix(n, ".*"); ok {
			if _, dup := t.rest[m]; dup {
				return fmt.Errorf("%s stands twice", n)
			}
			t.rest[m] = e
			continue
		}
		if _, dup := t.entries[n]; dup {
			return fmt.Errorf("%s stands twice", n)
		}
		t.entries[n] = e
	}
	return nil
}

func names(s string) []string {
	out := strings.Split(s, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func (t *tables) constant(name, v string) error {
	if s, err := strconv.Unquote(v); err == nil {
		t.consts[name] = str(s)
		return nil
	}
	n, err := strconv.ParseInt(v, 0, 64)
	t.consts[name] = integer(n)
	return err
}

func parseEntry(s string) (*entry, error) {
	e := &entry{}
	acts, result, ok := strings.Cut(s, "->")
	if ok {
		e.result = strings.TrimSpace(result)
	}
	for acts = strings.TrimSpace(acts); acts != ""; acts = strings.TrimSpace(acts) {
		end := strings.IndexAny(acts, "( ")
		if end < 0 {
			end = len(acts)
		}
		x := act{verb: acts[:end]}
		acts = acts[end:]
		if strings.HasPrefix(acts, "(") {
			close := strings.IndexByte(acts, ')')
			if close < 0 {
				return nil, fmt.Errorf("no closing bracket in %q", s)
			}
			x.text = acts[1:close]
			acts = acts[close+1:]
		}
		if x.verb == "property" {
			e.property = true
			continue
		}
		v, known := verbs[x.verb]
		if !known {
			return nil, fmt.Errorf("unknown action %q", x.verb)
		}
		x.run = v.run
		if !v.text {
			x.args = parseArguments(x.text)
		}
		if v.used != "" && e.used == "" {
			if e.used = v.used; v.text {
				e.used = x.text
			}
		}
		e.acts = append(e.acts, x)
	}
	return e, nil
}

func parseArguments(s string) (out []argument) {
	if s == "" {
		return nil
	}
	for _, part := range names(s) {
		f := strings.Fields(part)
		a := argument{pos: -1, names: f[1:]}
		switch {
		case f[0] == "self":
			a.self = true
		case f[0] == "-":
		default:
			num := strings.TrimSuffix(f[0], "*")
			a.rest = num != f[0]
			n, err := strconv.Atoi(num)
			if err != nil {
				a.names = f
				break
			}
			a.pos = n
		}
		out = append(out, a)
	}
	return out
}

func (t *tables) has(name string) bool {
	_, ok := t.entries[name]
	return ok
}

// lookup finds a function, a method of a type or of its parents, or the rest
// of its module.
func (t *tables) lookup(name string) (*entry, bool) {
	if e, ok := t.entries[name]; ok {
		return e, true
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return nil, false
	}
	for typ, n := name[:dot], 0; n < 8; n++ {
		parent, ok := t.parents[typ]
		if !ok {
			break
		}
		if e, ok := t.entries[parent+name[dot:]]; ok {
			return e, true
		}
		typ = parent
	}
	if p, ok := t.parents[name]; ok {
		return t.lookup(p)
	}
	if e, ok := t.entries[name[:dot]]; ok && e.used == "" && e.result == "" {
		return nil, false // a harmless type has harmless methods
	}
	for m := name[:dot]; ; {
		if e, ok := t.rest[m]; ok {
			return e, true
		}
		i := strings.LastIndexByte(m, '.')
		if i < 0 {
			return nil, false
		}
		m = m[:i]
	}
}

// dangerous: the module holds functions that do harm.
func (t *tables) dangerous(module string) bool { return t.modules[module] }

// canonical is the one name of a module, function or type that has several:
// posix.system, shutil.os.system and os.system are the same.
func canonical(q string) string {
	for range 4 {
		was := q
		for end := len(q); end > 0; end = strings.LastIndexByte(q[:end], '.') {
			if to, ok := table().aliases[q[:end]]; ok {
				q = to + q[end:]
				break
			}
		}
		q = reexported(q)
		if q == was {
			break
		}
	}
	return q
}

// reexported cuts what stands before a module that another module imports.
func reexported(q string) string {
	for start := strings.IndexByte(q, '.'); start >= 0; {
		rest := q[start+1:]
		end := strings.IndexByte(rest, '.')
		part := rest
		if end >= 0 {
			part = rest[:end]
		}
		if m := strings.Trim(part, "_"); table().modules[m] && !table().submodules[q[:start+1+len(part)]] {
			return m + rest[len(part):]
		}
		if end < 0 {
			return q
		}
		start += 1 + end
	}
	return q
}

// builtin is what a name means that nothing has bound.
func builtin(name string) (set, bool) {
	s, ok := builtins()[name]
	return s, ok
}

var builtins = sync.OnceValue(func() map[string]set {
	return builtinNames()
})

func builtinNames() map[string]set {
	out := map[string]set{
		"__builtins__": sym("builtins"), "__builtin__": sym("builtins"), "__file__": str(hole), "get_ipython": sym("IPython.get_ipython"),
		"raw_input": sym("builtins.input"), "input": sym("builtins.input"), "unicode": sym("builtins.str"), "xrange": sym("builtins.range"),
		"unichr": sym("builtins.chr"),
	}
	for _, name := range strings.Fields(`apply abs all any ascii bin bool bytearray bytes callable chr classmethod dict
		dir divmod enumerate execfile filter float format frozenset getattr globals hasattr hash help hex id int isinstance
		issubclass iter len list locals map max min next object oct ord pow print property range reload repr reversed round
		set setattr slice sorted staticmethod str sum super tuple type vars zip delattr eval exec compile __import__ open
		file breakpoint memoryview __build_class__`) {
		out[name] = sym("builtins." + name)
	}
	return out
}
