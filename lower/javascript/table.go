package javascript

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

//go:embed table/*.txt
var tableFiles embed.FS

// entry is what the tables say of a name.
type entry struct {
	alias, text string
	acts        []act
	result      string
}

// act is one verb of an entry.
type act struct {
	verb string
	arg  int // -1: all
	word string
}

// table is all of table/*.txt.
type table struct {
	entries   map[string]*entry
	modules   map[string]string
	globals   map[string]string
	members   map[string]string // of what is not known
	dangers   map[string]bool
	maybe     map[string]bool
	ctors     map[string]bool
	prefixes  map[string]map[string]bool
	graveMods map[string]bool
}

// tables parses the tables at their first use. They are part of the program:
// an error in them is a fault of the build and shows in every test.
var tables = sync.OnceValue(func() *table {
	t := &table{entries: map[string]*entry{}, modules: map[string]string{}, globals: map[string]string{}, members: map[string]string{},
		dangers: map[string]bool{}, maybe: map[string]bool{}, ctors: map[string]bool{}, prefixes: map[string]map[string]bool{}, graveMods: map[string]bool{}}
	for _, f := range []string{"process", "files", "network", "runtime"} {
		b, err := tableFiles.ReadFile("table/" + f + ".txt")
		if err != nil {
			panic("javascript: " + err.Error())
		}
		for i, line := range strings.Split(string(b), "\n") {
			if err := t.parse(line); err != nil {
				panic(fmt.Sprintf("javascript: table/%s.txt:%d: %v", f, i+1, err))
			}
		}
	}
	t.index()
	return t
})

func (t *table) parse(line string) error {
	if strings.HasPrefix(line, "#") {
		return nil
	}
	f := strings.Fields(line)
	if len(f) == 0 {
		return nil
	}
	if len(f) == 1 {
		return fmt.Errorf("%q says nothing", line)
	}
	switch f[0] {
	case "module":
		t.modules[f[1]] = f[len(f)-1]
		return nil
	case "global":
		t.globals[f[1]] = f[len(f)-1]
		return nil
	case "anywhere":
		t.members[f[1]] = f[2]
		return nil
	case "danger", "optional", "constructor":
		m := map[string]map[string]bool{"danger": t.dangers, "optional": t.maybe, "constructor": t.ctors}[f[0]]
		for _, n := range f[1:] {
			m[n] = true
		}
		return nil
	}
	if _, ok := t.entries[f[0]]; ok {
		return fmt.Errorf("%s has two entries", f[0])
	}
	e, err := parseEntry(f[1:])
	t.entries[f[0]] = e
	return err
}

func parseEntry(f []string) (*entry, error) {
	e := &entry{}
	if len(f) == 2 && f[0] == "=" {
		e.alias = f[1]
		return e, nil
	}
	if len(f) == 2 && f[0] == ":" {
		e.text = strings.ReplaceAll(f[1], `\n`, "\n")
		return e, nil
	}
	rest := strings.Join(f, " ")
	if i := strings.Index(rest, "-> "); i >= 0 {
		e.result = rest[i+3:]
		rest = strings.TrimSpace(rest[:i])
	}
	for _, part := range strings.Split(rest, ";") {
		w := strings.Fields(part)
		if len(w) == 0 {
			return e, fmt.Errorf("a verb is missing in %q", rest)
		}
		if !verbs()[w[0]] {
			return e, fmt.Errorf("unknown verb %q", w[0])
		}
		c := act{verb: w[0], arg: -1}
		for i, x := range w[1:] {
			if n, err := strconv.Atoi(x); err == nil && c.verb != "opaque" {
				c.arg = n
			} else if x != "*" {
				c.word = strings.Join(w[1+i:], " ")
				break
			}
		}
		e.acts = append(e.acts, c)
	}
	return e, nil
}

var verbs = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"spawn": true, "shell": true, "argv": true, "words": true, "template": true, "eval": true, "function": true, "worker": true, "load": true, "loader": true,
		"native": true, "opaque": true, "read": true, "write": true, "append": true, "delete": true, "list": true, "chmod": true, "stat": true, "open": true, "link": true,
		"connect": true, "socket": true, "host": true, "datagram": true, "listen": true, "send": true, "base": true, "address": true, "env": true, "setenv": true, "privilege": true, "kill": true,
		"chdir": true, "code": true, "pass": true, "timer": true, "value": true, "pipe": true}
})

// graveVerbs make a use of every place where their function is taken.
var graveVerbs = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"spawn": true, "shell": true, "argv": true, "words": true, "template": true, "eval": true, "function": true, "worker": true, "native": true, "opaque": true, "privilege": true}
})

func (t *table) index() {
	for name, e := range t.entries {
		for i := 0; i < len(name); i++ {
			if name[i] != '.' {
				continue
			}
			p := name[:i]
			if t.prefixes[p] == nil {
				t.prefixes[p] = map[string]bool{}
			}
			member, _, _ := strings.Cut(name[i+1:], ".")
			t.prefixes[p][member] = true
			if e.grave() && (t.dangers[p] || name == p+".*") {
				t.graveMods[p] = true
			}
		}
	}
}

func (e *entry) grave() bool {
	for _, c := range e.acts {
		if graveVerbs()[c.verb] {
			return true
		}
	}
	return false
}

func (e *entry) connects() bool {
	for _, c := range e.acts {
		switch c.verb {
		case "connect", "socket", "host", "datagram":
			return true
		}
	}
	return false
}

// lookup is the entry of exactly this name, or of it without "Sync".
func (t *table) lookup(name string) *entry {
	if e, ok := t.entries[name]; ok {
		return e
	}
	if s, ok := strings.CutSuffix(name, "Sync"); ok {
		if e, ok := t.entries[s]; ok {
			return e
		}
	}
	return nil
}

// find is the entry that applies to a name.
func (t *table) find(name string) *entry {
	if e := t.lookup(name); e != nil {
		return e
	}
	for p := name; ; {
		i := strings.LastIndexByte(p, '.')
		if i <= 0 {
			return nil
		}
		p = p[:i]
		if e, ok := t.entries[p+".*"]; ok {
			return e
		}
	}
}

func (t *table) grave(name string) bool {
	if name == "Function" {
		// As a value it is a type more often than not.
		return false
	}
	e := t.find(name)
	return e != nil && e.grave()
}

// graveModule is whether members of a name are grave.
func (t *table) graveModule(name string) bool {
	return t.graveMods[name] && name != "globalThis" && name != "Deno" && name != "Bun"
}

func (t *table) dangerous(name string) bool { return t.dangers[name] || t.graveMods[name] }

func (t *table) optional(name string) bool { return t.maybe[name] }

func (t *table) isConstructor(name string) bool { return t.ctors[name] }

// callable is whether a name is a function, as far as is known.
func (t *table) callable(name string) bool {
	if t.ctors[name] {
		return true
	}
	switch name {
	case "process", "globalThis", "process.env", "cjs", "console", "Math", "JSON", "Reflect", "Object.prototype", "Array.prototype", "String.prototype", "performance", "crypto", "Intl", "import.meta", "process.stdout", "process.stdin", "process.argv", "cjs.exports":
		return false
	}
	if e := t.find(name); e != nil && len(e.acts) > 0 {
		return true
	}
	return strings.Contains(name, ".") && !t.isModule(name)
}

func (t *table) isModule(name string) bool {
	_, ok := t.modules[name]
	return ok
}

// has is whether the table knows a member.
func (t *table) has(name, member string) bool {
	return t.prefixes[name][member] || t.entries[name+"."+member] != nil || t.lookup(name+"."+member) != nil
}

func (t *table) global(name string) (string, bool) {
	if to, ok := t.globals[name]; ok {
		return to, true
	}
	// The command line and the prompt have the built-in modules as globals.
	if builtinModules()[name] {
		return t.modules[name], true
	}
	return "", false
}

var builtinModules = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"child_process": true, "fs": true, "net": true, "tls": true, "dgram": true, "http": true, "https": true, "http2": true, "dns": true, "vm": true, "os": true, "path": true, "url": true, "util": true, "worker_threads": true, "cluster": true, "v8": true, "repl": true, "inspector": true, "stream": true, "zlib": true, "readline": true}
})

func (t *table) anywhere(name string) (string, bool) {
	to, ok := t.members[name]
	return to, ok
}

// named is whether a word names something grave.
func (t *table) named(word string) bool {
	if _, ok := t.members[word]; ok {
		return true
	}
	switch word {
	case "eval", "Function", "execSync", "spawn", "getBuiltinModule", "dlopen", "binding", "constructor":
		return true
	}
	return t.isModule(word) && (t.graveMods[word] || word == "fs" || word == "net")
}
