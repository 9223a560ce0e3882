package shell

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

//go:embed programs/*.txt
var programFiles embed.FS

// role says what an operand or an option's value is to the program.
type role string

const (
	roleText   role = "text"    // of no consequence
	roleRead   role = "read"    // a file that is read
	roleTree   role = "tree"    // a file or directory read with all below
	roleWrite  role = "write"   // a file that is created or changed
	roleMake   role = "make"    // a file or directory that is created
	roleChmod  role = "chmod"   // a path whose mode or owner changes
	roleDelete role = "delete"  // a file that is removed
	roleRmtree role = "rmtree"  // a tree that is removed
	roleList   role = "list"    // a directory whose names are read
	roleSearch role = "search"  // a directory searched with all below
	roleCwd    role = "cwd"     // the program's working directory
	roleURL    role = "url"     // a URL that is connected to
	roleHost   role = "host"    // a host that is connected to
	roleCmd    role = "cmd"     // the rest of the words is a command
	roleSh     role = "sh"      // text that a shell runs
	roleData   role = "data"    // text that is sent
	roleFile   role = "file"    // "@PATH": the file is sent; else text
	roleExec   role = "exec"    // a program or script that is started
	roleScript role = "script:" // with a language: a file that is run
	roleCode   role = "code:"   // with a language: code that is run
)

type optArg uint8

const (
	argNone optArg = iota
	argNeeded
	argMaybe
)

type option struct {
	name  string // the first of its spellings
	role  role
	arg   optArg
	quiet bool // replaces the first operand ("grep -e")
}

type style uint8

const (
	stylePermute style = iota // options anywhere, as getopt_long
	styleStop                 // options end at the first operand
	styleSingle               // long options with one dash
	styleRaw                  // no options: every word is an operand
	styleKeys                 // key=value words
)

var styleNames = map[string]style{"permute": stylePermute, "stop": styleStop, "single": styleSingle, "raw": styleRaw, "keys": styleKeys}

// when is a rule on a command's words: if all of them are there, the effect
// is.
type when struct {
	words  []string
	kind   cordon.Kind
	op     string
	target string
	doubt  bool
}

type program struct {
	names   []string
	builtin bool
	urls    bool
	style   style
	opts    map[string]*option
	longs   []string
	args    []role
	repeat  int // index of the repeated role, or -1
	handler string
	out     string
	whens   []when
}

type entry struct {
	text string
	once sync.Once
	p    *program
}

// table maps a program's name to its entry. Entries are parsed when they are
// first asked for.
var table = sync.OnceValue(func() map[string]*entry {
	m := make(map[string]*entry, 512)
	files, err := programFiles.ReadDir("programs")
	if err != nil {
		panic(err) // embedded: cannot happen
	}
	for _, f := range files {
		b, err := programFiles.ReadFile("programs/" + f.Name())
		if err != nil {
			panic(err)
		}
		index(string(b), m)
	}
	return m
})

func index(text string, m map[string]*entry) {
	for len(text) > 0 {
		i := strings.Index(text, "\n@ ")
		if i < 0 {
			return
		}
		text = text[i+3:]
		end := strings.Index(text, "\n@ ")
		if end < 0 {
			end = len(text)
		}
		e := &entry{text: text[:end]}
		head, _, _ := strings.Cut(e.text, "\n")
		for head != "" {
			var n string
			n, head, _ = strings.Cut(head, " ")
			if n != "" {
				m[n] = e
			}
		}
	}
}

// lookupProgram finds a program by its base name; versions in a name are
// tried without ("python3.12", "gcc-13", "clang++-17").
func lookupProgram(name string) *program {
	t := table()
	e := t[name]
	if e == nil {
		short := strings.TrimRight(name, "0123456789.-")
		if short == "" || short == name {
			return nil
		}
		if e = t[short]; e == nil {
			return nil
		}
	}
	e.once.Do(func() {
		p, err := parseProgram(e.text)
		if err != nil {
			panic(err) // TestTable reads every entry
		}
		e.p = p
	})
	return e.p
}

// matchingPrograms lists the known names that a pattern matches, most common
// first by length; it stops above most.
func matchingPrograms(pat string, most int) []string {
	items := compilePattern(pat)
	var out []string
	for n := range table() {
		if matchItems(items, []rune(n)) {
			out = append(out, n)
			if len(out) > most {
				return out
			}
		}
	}
	return out
}

// parseProgram reads one entry; the format is described in
// programs/00-format.txt.
func parseProgram(text string) (*program, error) {
	lines := strings.Split(text, "\n")
	p := &program{names: strings.Fields(lines[0]), repeat: -1, opts: make(map[string]*option)}
	for _, line := range lines[1:] {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.Fields(line)
		if err := p.line(f[0], f[1:]); err != nil {
			return nil, fmt.Errorf("shell: program %s: %w", p.names[0], err)
		}
	}
	return p, nil
}

func (p *program) line(key string, f []string) error {
	switch key {
	case "args":
		return p.operands(f)
	case "style":
		s, ok := styleNames[f[0]]
		if !ok {
			return fmt.Errorf("unknown style %q (want permute, stop, single, raw or keys)", f[0])
		}
		p.style = s
	case "handler":
		if handlerNamed(f[0]) == nil {
			return fmt.Errorf("unknown handler %q", f[0])
		}
		p.handler = f[0]
	case "out":
		p.out = strings.Join(f, " ")
	case "builtin":
		p.builtin = true
	case "urls":
		p.urls = true
	case "when":
		return p.rule(f)
	case "flag":
		p.options(f, option{})
	case "val":
		p.options(f, option{role: roleText, arg: argNeeded})
	default:
		quiet := strings.HasSuffix(key, "!")
		r := role(strings.TrimSuffix(key, "!"))
		if !validRole(r) {
			return fmt.Errorf("unknown role %q", key)
		}
		p.options(f, option{role: r, arg: argNeeded, quiet: quiet})
	}
	return nil
}

func validRole(r role) bool {
	switch r {
	case roleText, roleRead, roleTree, roleWrite, roleMake, roleChmod, roleDelete, roleRmtree, roleList, roleSearch, roleCwd,
		roleURL, roleHost, roleCmd, roleSh, roleData, roleFile, roleExec:
		return true
	}
	return strings.HasPrefix(string(r), string(roleScript)) || strings.HasPrefix(string(r), string(roleCode))
}

func (p *program) operands(f []string) error {
	for i, r := range f {
		if strings.HasSuffix(r, "...") {
			p.repeat, r = i, strings.TrimSuffix(r, "...")
		}
		if !validRole(role(r)) {
			return fmt.Errorf("unknown role %q", r)
		}
		p.args = append(p.args, role(r))
	}
	return nil
}

// options adds spellings: "-f,--file" are one option; a trailing "?" says
// that the value is optional and attached.
func (p *program) options(f []string, o option) {
	for _, group := range f {
		n := o
		if strings.HasSuffix(group, "?") {
			n.arg, group = argMaybe, strings.TrimSuffix(group, "?")
		}
		spellings := strings.Split(group, ",")
		n.name = spellings[0]
		for _, s := range spellings {
			p.opts[s] = &n
			if strings.HasPrefix(s, "--") {
				p.longs = append(p.longs, s)
			}
		}
	}
}

var kindWords = map[string]cordon.Kind{
	"destroy": cordon.Destroy, "administer": cordon.Administer, "privilege": cordon.Privilege, "persist": cordon.Persist,
	"connect": cordon.Connect, "opaque": cordon.Opaque, "readenv": cordon.ReadEnv, "send": cordon.Send,
}

func (p *program) rule(f []string) error {
	for i, x := range f {
		if x != "=>" {
			continue
		}
		if i+2 > len(f)-0 || i+1 >= len(f) {
			break
		}
		k, ok := kindWords[f[i+1]]
		if !ok {
			return fmt.Errorf("unknown effect %q", f[i+1])
		}
		r := when{words: f[:i], kind: k}
		rest := f[i+2:]
		if len(rest) > 0 {
			r.op = rest[0]
			for _, x := range rest[1:] {
				if x == "doubtful" {
					r.doubt = true
				} else {
					r.target = x
				}
			}
		}
		p.whens = append(p.whens, r)
		return nil
	}
	return fmt.Errorf("rule without effect: %q", strings.Join(f, " "))
}

type optUse struct {
	name string // first spelling, or as written if the table has none
	opt  *option
	v    val
	has  bool
}

// parsed is a command's words sorted out.
type parsed struct {
	opts []optUse
	ops  []val
	// rest is where in the arguments the first operand stands.
	rest int
}

func (c *parsed) has(names ...string) bool {
	for _, o := range c.opts {
		for _, n := range names {
			if o.name == n {
				return true
			}
		}
	}
	return false
}

func (c *parsed) get(names ...string) (val, bool) {
	for i := len(c.opts) - 1; i >= 0; i-- {
		for _, n := range names {
			if c.opts[i].name == n && c.opts[i].has {
				return c.opts[i].v, true
			}
		}
	}
	return val{}, false
}

// parse sorts args into options and operands as the program's own parser
// would.
func (p *program) parse(args []val) parsed {
	out := parsed{rest: len(args)}
	for i := 0; i < len(args); i++ {
		a := args[i]
		s := a.s
		switch {
		case p.style == styleRaw || p.style == styleKeys || len(s) < 2 || s[0] != '-' && !(s[0] == '+' && p.opts[s] != nil):
			if out.rest == len(args) {
				out.rest = i
			}
			out.ops = append(out.ops, a)
			if p.style == styleStop {
				out.ops = append(out.ops, args[i+1:]...)
				return out
			}
		case s == "--":
			if out.rest == len(args) {
				out.rest = i + 1
			}
			out.ops = append(out.ops, args[i+1:]...)
			return out
		case strings.HasPrefix(s, "--") || p.style == styleSingle:
			i = p.long(args, i, &out)
		default:
			i = p.short(args, i, &out)
		}
	}
	return out
}

func (p *program) long(args []val, i int, out *parsed) int {
	a := args[i]
	name, value, eq := strings.Cut(a.s, "=")
	o := p.opts[name]
	if o == nil && !strings.HasPrefix(name, "--") && p.opts["-"+name] != nil {
		o = p.opts["-"+name]
	}
	if o == nil && strings.HasPrefix(name, "--") {
		o = p.abbreviated(name)
	}
	if o == nil && p.style == styleSingle && !strings.HasPrefix(name, "--") && len(name) > 2 {
		s, n := p.opts[a.s[:min(3, len(a.s))]], 3
		if s == nil || s.arg == argNone || len(a.s) <= 3 {
			s, n = p.opts[name[:2]], 2
		}
		if s != nil && s.arg != argNone {
			out.opts = append(out.opts, optUse{name: s.name, opt: s, v: val{s: a.s[n:], data: a.data, taint: a.taint}, has: true})
			return i
		}
	}
	u := optUse{name: name, opt: o, has: eq, v: val{s: value, data: a.data, taint: a.taint}}
	if o != nil {
		u.name = o.name
		if o.arg == argNeeded && !eq && i+1 < len(args) {
			i++
			u.v, u.has = args[i], true
		}
	}
	out.opts = append(out.opts, u)
	return i
}

// abbreviated resolves a prefix of a long option as getopt_long does; where
// several match, the first is taken.
func (p *program) abbreviated(name string) *option {
	if len(name) < 4 {
		return nil
	}
	var hit *option
	for _, l := range p.longs {
		if strings.HasPrefix(l, name) && (hit == nil || hit.arg == argNone) {
			hit = p.opts[l]
		}
	}
	return hit
}

func (p *program) short(args []val, i int, out *parsed) int {
	a := args[i]
	s := a.s
	if o := p.opts[s]; o != nil && len(s) > 2 {
		// An option of several letters behind one dash.
		u := optUse{name: o.name, opt: o}
		if o.arg == argNeeded && i+1 < len(args) {
			i++
			u.v, u.has = args[i], true
		}
		out.opts = append(out.opts, u)
		return i
	}
	for k := 1; k < len(s); k++ {
		name := "-" + s[k:k+1]
		o := p.opts[name]
		u := optUse{name: name, opt: o}
		if o != nil {
			u.name = o.name
		}
		if o == nil || o.arg == argNone {
			out.opts = append(out.opts, u)
			if isMark(s, k) {
				break
			}
			continue
		}
		if rest := s[k+1:]; rest != "" {
			u.v, u.has = val{s: rest, data: a.data, taint: a.taint}, true
		} else if o.arg == argNeeded && i+1 < len(args) {
			i++
			u.v, u.has = args[i], true
		}
		out.opts = append(out.opts, u)
		break
	}
	return i
}

func (r *when) match(c *parsed) bool {
	op := 0
	for _, word := range r.words {
		not := strings.HasPrefix(word, "!")
		word = strings.TrimPrefix(word, "!")
		if strings.HasPrefix(word, "-") {
			if c.hasOption(word) == not {
				return false
			}
			continue
		}
		if word == "..." {
			op = -1
			continue
		}
		if op < 0 {
			if c.anyOperand(word) == not {
				return false
			}
			continue
		}
		if op >= len(c.ops) || wordMatches(word, c.ops[op].s) == not {
			return false
		}
		op++
	}
	return true
}

func (c *parsed) anyOperand(word string) bool {
	for _, o := range c.ops {
		if wordMatches(word, o.s) {
			return true
		}
	}
	return false
}

func (c *parsed) hasOption(word string) bool {
	for _, alt := range strings.Split(word, "|") {
		name, pat, eq := strings.Cut(alt, "=")
		for _, o := range c.opts {
			if o.name == name && (!eq || wordMatches(pat, o.v.s)) {
				return true
			}
		}
	}
	return false
}

func wordMatches(pats, s string) bool {
	for _, p := range strings.Split(pats, "|") {
		if p == s || p == "*" {
			return true
		}
		if strings.ContainsAny(p, "*?[") {
			if ok, err := path.Match(p, strings.ReplaceAll(s, "/", "\x01")); err == nil && ok {
				return true
			}
			if ok, err := path.Match(p, s); err == nil && ok {
				return true
			}
		}
	}
	return false
}
