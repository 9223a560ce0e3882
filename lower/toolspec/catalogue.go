package toolspec

import (
	"fmt"
	"slices"
	"strings"
)

// Catalogue finds the spec of a tool by its name. It is immutable and safe
// for concurrent use.
type Catalogue struct {
	// tools go before those that ship with Cordon, which count where shipped
	// is set.
	tools    map[string]*named
	shipped  bool
	patterns []pattern
}

// named is everything that is called by one normalised tool name.
type named struct {
	plain   *Spec
	servers []served
}

type served struct {
	server string
	spec   *Spec
}

// pattern is a user's entry for names with a '*' at one or both ends.
type pattern struct {
	server       string
	text         string
	any, suffix  bool
	overBuiltins bool
	spec         *Spec
}

//go:generate go test -run ^TestTheShippedCatalogueIsThatOfItsFiles$ . -update

// Builtin returns the catalogue that ships with Cordon. It is read from the
// files below data/ when Cordon is built, and costs nothing when it starts.
func Builtin() *Catalogue { return &Catalogue{shipped: true} }

// named is what is known of a normalised name, or nil.
func (c *Catalogue) named(name []byte) *named {
	if n := c.tools[string(name)]; n != nil || !c.shipped {
		return n
	}
	low, high := 0, len(shippedTools)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if shippedTools[middle].name < string(name) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(shippedTools) && shippedTools[low].name == string(name) {
		return &shippedTools[low].named
	}
	return nil
}

// shippedTool is what ships with Cordon under a normalised name.
type shippedTool struct {
	name string
	named
}

// With returns a catalogue that also holds the user's entries. An entry that
// names a tool which is already known adds to it. An error says which entry
// would weaken a known tool without saying so, or which of its inline tests
// failed.
func (c *Catalogue) With(e Entries) (*Catalogue, error) {
	n := &Catalogue{tools: make(map[string]*named, len(c.tools)+len(e.list)), shipped: c.shipped, patterns: slices.Clone(c.patterns)}
	for k, v := range c.tools {
		cp := *v
		cp.servers = slices.Clone(v.servers)
		n.tools[k] = &cp
	}
	for i := range e.list {
		s := &e.list[i]
		if err := n.user(s); err != nil {
			return nil, fmt.Errorf("toolspec: %s: tool %q: %w", s.source, s.Name, err)
		}
	}
	for i := range e.list {
		if err := n.check(&e.list[i]); err != nil {
			return nil, fmt.Errorf("toolspec: %s: tool %q: %w", e.list[i].source, e.list[i].Name, err)
		}
	}
	return n, nil
}

// user enters one user's spec after comparing it with what is known.
func (c *Catalogue) user(s *Spec) error {
	servers := s.servers
	if len(servers) == 0 {
		servers = []string{""}
	}
	for _, server := range servers {
		for i, name := range s.names {
			if strings.Contains(name, "*") {
				c.patterns = append(c.patterns, newPattern(server, name, s))
				continue
			}
			old := c.find(server, name)
			if old == nil {
				c.put(server, name, s.as(i))
				continue
			}
			if err := weakens(old, s); err != nil && !s.weaken {
				return fmt.Errorf("%w; write \"weaken: true\" if that is meant", err)
			}
			c.put(server, name, overlay(old, s))
		}
	}
	return nil
}

func newPattern(server, name string, s *Spec) pattern {
	p := pattern{server: server, spec: s, overBuiltins: s.weaken, text: strings.Trim(name, "*")}
	p.suffix = strings.HasPrefix(name, "*") && !strings.HasSuffix(name, "*")
	p.any = strings.HasPrefix(name, "*") && strings.HasSuffix(name, "*")
	return p
}

func (p *pattern) matches(server, name string) bool {
	switch {
	case p.server != "" && p.server != server:
		return false
	case p.any:
		return strings.Contains(name, p.text)
	case p.suffix:
		return strings.HasSuffix(name, p.text)
	}
	return strings.HasPrefix(name, p.text)
}

// weakens says what a user's spec would take from a known one.
func weakens(old, s *Spec) error {
	for _, a := range old.args.all() {
		arg, was := a.name, a.role
		is, listed := s.args.of([]byte(arg))
		if listed && is != was && was != Text && was != Infer && !(is == Write && (was == Read || was == List)) {
			return fmt.Errorf("argument %q is %s in the known tool, and would become %s", arg, was, is)
		}
	}
	if s.explicit&hasGroup != 0 && s.Group != old.Group && (old.Group == Exec || old.Group == FSWrite || s.Group < old.Group) {
		return fmt.Errorf("group is %s in the known tool, and would become %s", old.Group, s.Group)
	}
	if s.explicit&hasIrreversible != 0 && old.Irreversible && !s.Irreversible {
		return fmt.Errorf("the known tool is irreversible")
	}
	if s.explicit&hasOutbound != 0 && old.Outbound && !s.Outbound {
		return fmt.Errorf("the known tool is outbound")
	}
	if s.explicit&hasLanguage != 0 && old.Language != "" && s.Language != old.Language {
		return fmt.Errorf("language is %s in the known tool, and would become %s", old.Language, s.Language)
	}
	if s.Remote && !old.Remote {
		return fmt.Errorf("the known tool acts on this machine")
	}
	if len(s.ReadWhen) > 0 {
		return fmt.Errorf("read_when would turn writes of the known tool into reads")
	}
	return nil
}

// overlay is a known spec with a user's changes.
func overlay(old, s *Spec) *Spec {
	n := *old
	n.args = old.args.over(s.args)
	if s.explicit&hasGroup != 0 {
		n.Group, n.PathRole = s.Group, s.PathRole
	}
	if s.explicit&hasIrreversible != 0 {
		n.Irreversible = s.Irreversible
	}
	if s.explicit&hasOutbound != 0 {
		n.Outbound = s.Outbound
	}
	if s.explicit&hasLanguage != 0 {
		n.Language = s.Language
	}
	if s.Root != Infer {
		n.Root = s.Root
	}
	n.Remote = n.Remote || s.Remote
	n.ReadsEnv = n.ReadsEnv || s.ReadsEnv
	if len(s.ReadWhen) > 0 {
		n.ReadWhen = s.ReadWhen
	}
	return &n
}

// as is the spec under the i-th of its names.
func (s *Spec) as(i int) *Spec {
	n := *s
	n.Name = s.spelled[i]
	return &n
}

func (c *Catalogue) entry(name string) *named {
	n := c.tools[name]
	if n != nil {
		return n
	}
	n = &named{}
	if old := c.named([]byte(name)); old != nil {
		n.plain, n.servers = old.plain, slices.Clone(old.servers)
	}
	c.tools[name] = n
	return n
}

func (c *Catalogue) put(server, name string, s *Spec) {
	n := c.entry(name)
	if server == "" {
		n.plain = s
		return
	}
	n.servers = slices.DeleteFunc(n.servers, func(v served) bool { return v.server == server })
	n.servers = append(n.servers, served{server, s})
}

// Lookup returns the facts of a tool and its spec. A tool that is not known
// gets a spec made from the words of its name. The name may be qualified
// (mcp__srv__tool, mcp_srv_tool, srv/tool, srv.tool, srv:tool) or plain.
func (c *Catalogue) Lookup(server, tool string) (Facts, *Spec) {
	if suspect(tool) {
		s := unknown(server, tool)
		s.SuspectName = true
		return s.Facts, s
	}
	if s := c.resolve(server, tool); s != nil {
		return s.Facts, s
	}
	// BashTool and bash_tool are Bash.
	if n := len(tool); n > 6 && strings.EqualFold(tool[n-4:], "tool") {
		if s := c.resolve(server, strings.TrimRight(tool[:n-4], "_-")); s != nil {
			return s.Facts, s
		}
	}
	s := unknown(server, tool)
	return s.Facts, s
}

func (c *Catalogue) resolve(server, tool string) *Spec {
	var sb, tb [64]byte
	if srv, name, ok := qualified(tool); ok {
		if srv == "" {
			srv = server
		}
		if s := c.at(AppendNormal(sb[:0], srv), AppendNormal(tb[:0], name)); s != nil {
			return s
		}
		if i := strings.LastIndexAny(name, "./:"); i >= 0 {
			name = name[i+1:]
		} else if i := strings.LastIndex(name, "__"); i >= 0 {
			name = name[i+2:]
		} else if rest, mcp := cutFold(tool, "mcp__"); mcp && !strings.Contains(rest, "__") {
			return c.underscored(rest)
		}
		return c.at(AppendNormal(sb[:0], srv), AppendNormal(tb[:0], name))
	}
	if s := c.at(AppendNormal(sb[:0], server), AppendNormal(tb[:0], tool)); s != nil {
		return s
	}
	if server != "" {
		// The tool of a server may be listed with the server's name before
		// it, or be called so while it is listed without.
		if s := c.at(AppendNormal(sb[:0], server), AppendNormal(AppendNormal(tb[:0], server), tool)); s != nil {
			return s
		}
		if n, t := normal(server), normal(tool); len(t) > len(n) && strings.HasPrefix(t, n) {
			return c.at([]byte(n), []byte(t[len(n):]))
		}
	}
	if rest, mcp := cutFold(tool, "mcp_"); mcp {
		return c.underscored(rest)
	}
	if rest, mcp := cutFold(tool, "mcp-"); mcp {
		return c.underscored(strings.ReplaceAll(rest, "-", "_"))
	}
	return nil
}

// underscored finds the split of srv_tool at which the tool is known; the
// server's own name may hold underscores too.
func (c *Catalogue) underscored(rest string) *Spec {
	for i := 1; i < len(rest)-1 && i < 128; i++ {
		if rest[i] != '_' {
			continue
		}
		if s := c.at(AppendNormal(nil, rest[:i]), AppendNormal(nil, rest[i+1:])); s != nil {
			return s
		}
	}
	return nil
}

// find is what a server and a normalised name have meant so far, or nil.
func (c *Catalogue) find(server, name string) *Spec { return c.at([]byte(server), []byte(name)) }

func (c *Catalogue) at(server, name []byte) *Spec {
	n := c.named(name)
	if n != nil && len(server) > 0 {
		for i := range n.servers {
			if n.servers[i].server == string(server) {
				return n.servers[i].spec
			}
		}
		if s := n.within(server); s != nil {
			return s
		}
	}
	if len(c.patterns) > 0 {
		for i := range c.patterns {
			p := &c.patterns[i]
			if (n == nil || n.plain == nil || p.overBuiltins) && p.matches(string(server), string(name)) {
				return p.spec
			}
		}
	}
	if n == nil || n.plain == nil || n.plain.bare && !neutral(server) {
		return nil
	}
	return n.plain
}

// neutral reports a namespace that clients give to what is built into them.
func neutral(server []byte) bool {
	switch string(server) {
	case "", "functions", "tools", "builtin", "builtins", "native", "defaultapi", "multitooluse", "default":
		return true
	}
	return false
}

// within finds a server under a longer name of it, as mcp-server-postgres or
// postgres_prod are for postgres.
func (n *named) within(server []byte) *Spec {
	for i := range n.servers {
		if s := n.servers[i].server; len(s) > 2 && strings.Contains(string(server), s) {
			return n.servers[i].spec
		}
	}
	return nil
}

// check runs the inline tests of a user's entry.
func (c *Catalogue) check(s *Spec) error {
	for _, m := range s.match {
		got := c.resolve(m.server, m.tool)
		if got == nil || suspect(m.tool) || !got.called(s) {
			return fmt.Errorf("line %d: match: %q is not this tool", m.line, m.tool)
		}
		for arg, want := range m.roles {
			if is, _ := got.Role(arg); is != want {
				return fmt.Errorf("line %d: match: argument %q of %q is %s (want %s)", m.line, arg, m.tool, is, want)
			}
		}
	}
	for _, m := range s.noMatch {
		if got := c.resolve(m.server, m.tool); got != nil && !suspect(m.tool) && got.called(s) {
			return fmt.Errorf("line %d: not_match: %q is this tool", m.line, m.tool)
		}
	}
	return nil
}

// called reports whether s is the entry, or the known tool that the entry was
// laid over.
func (s *Spec) called(entry *Spec) bool {
	if s == entry {
		return true
	}
	for _, n := range s.names {
		if slices.Contains(entry.names, n) {
			return true
		}
	}
	return false
}
