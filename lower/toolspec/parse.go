package toolspec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const maxYAML = 1 << 20

const (
	hasGroup = 1 << iota
	hasIrreversible
	hasOutbound
	hasLanguage
)

// Entries are parsed tool entries, for Catalogue.With.
type Entries struct{ list []Spec }

// Len is how many tools there are.
func (e Entries) Len() int { return len(e.list) }

// sample is one inline test: a tool's name, and the roles its arguments must
// have.
type sample struct {
	server, tool string
	roles        map[string]Role
	line         int
}

// Parse reads a YAML list of tools, or a document whose key "tools" holds
// one:
//
//	tools:
//	  - names: [deploy_site, "site_*"]
//	    server: [hosting]
//	    group: productivity_write
//	    irreversible: true
//	    outbound: true
//	    language: python
//	    root: list
//	    remote: false       # its paths are names on another system
//	    reads_env: false    # it gives out its server's environment
//	    server_only: false  # the names mean this only with the server
//	    bare: false         # the names mean this only without a server
//	    args:
//	      read: [bundle]
//	      text: [comment]
//	    read_when: {mode: [preview]}
//	    weaken: false
//	    match: [deploy_site, {tool: mcp__hosting__deploySite, roles: {bundle: read}}]
//	    not_match: [deploy_other]
//
// Only names is required. Errors give the line.
func Parse(b []byte) (Entries, error) {
	if len(b) > maxYAML {
		return Entries{}, fmt.Errorf("toolspec: %d bytes of tools (want at most %d)", len(b), maxYAML)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return Entries{}, fmt.Errorf("toolspec: %w", err)
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return Entries{}, nil
	}
	list := doc.Content[0]
	if list.Kind == yaml.MappingNode {
		list = member(list, "tools")
	}
	if list == nil || list.Kind == yaml.ScalarNode && list.Tag == "!!null" {
		return Entries{}, nil
	}
	if list.Kind != yaml.SequenceNode {
		return Entries{}, fmt.Errorf("toolspec: line %d: tools is no list", list.Line)
	}
	e := Entries{list: make([]Spec, 0, len(list.Content))}
	for _, n := range list.Content {
		s, err := parseTool(n)
		if err != nil {
			return Entries{}, err
		}
		e.list = append(e.list, s)
	}
	return e, nil
}

func member(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

func fault(n *yaml.Node, format string, a ...any) error {
	return fmt.Errorf("toolspec: line %d: %w", n.Line, fmt.Errorf(format, a...))
}

func parseTool(n *yaml.Node) (Spec, error) {
	if n.Kind != yaml.MappingNode {
		return Spec{}, fault(n, "a tool is a mapping (want names:, group:, args: …)")
	}
	s := Spec{spelling: &spelling{}, source: fmt.Sprintf("line %d", n.Line)}
	s.Known = true
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			return s, fault(key, "key %q stands twice", key.Value)
		}
		seen[key.Value] = true
		if err := s.set(key, val); err != nil {
			return s, err
		}
	}
	if len(s.names) == 0 {
		return s, fault(n, "a tool without names")
	}
	s.PathRole = inferredPathRole(s.Group)
	return s, nil
}

func (s *Spec) set(key, val *yaml.Node) (err error) {
	switch key.Value {
	case "names":
		return s.setNames(val)
	case "server":
		var list []string
		if list, err = texts(val); err == nil {
			for _, v := range list {
				s.servers = append(s.servers, normal(v))
			}
		}
	case "group":
		s.explicit |= hasGroup
		s.Group, err = ParseGroup(val.Value)
	case "irreversible":
		s.explicit |= hasIrreversible
		err = val.Decode(&s.Irreversible)
	case "outbound":
		s.explicit |= hasOutbound
		err = val.Decode(&s.Outbound)
	case "language":
		s.explicit |= hasLanguage
		s.Language = val.Value
	case "root":
		if s.Root, err = ParseRole(val.Value); err == nil && s.Root != List {
			err = fmt.Errorf("root %q (want list)", val.Value)
		}
	case "remote":
		err = val.Decode(&s.Remote)
	case "reads_env":
		err = val.Decode(&s.ReadsEnv)
	case "server_only":
		if err = val.Decode(&s.serverOnly); err == nil && s.serverOnly && len(s.servers) == 0 {
			err = fmt.Errorf("no server stands before it")
		}
	case "bare":
		err = val.Decode(&s.bare)
	case "weaken":
		err = val.Decode(&s.weaken)
	case "args":
		return s.setArgs(val)
	case "read_when":
		return s.setReadWhen(val)
	case "match":
		s.match, err = samples(val)
	case "not_match":
		s.noMatch, err = samples(val)
	default:
		return fault(key, "unknown key %q (want names, server, group, irreversible, outbound, language, root, remote, reads_env, server_only, bare, args, read_when, weaken, match or not_match)", key.Value)
	}
	if err != nil {
		return fault(val, "%s: %w", key.Value, err)
	}
	return nil
}

func (s *Spec) setNames(val *yaml.Node) error {
	list, err := texts(val)
	if err != nil {
		return fault(val, "names: %w", err)
	}
	for _, name := range list {
		bare := strings.TrimSuffix(strings.TrimPrefix(name, "*"), "*")
		if suspect(bare) {
			return fault(val, "name %q (want letters, digits and _./:- with '*' at an end only)", name)
		}
		// A qualified name is the name with its server.
		if srv, tool, ok := qualified(name); ok && !strings.Contains(name, "*") {
			if srv != "" {
				s.servers = append(s.servers, normal(srv))
			}
			name = tool
		}
		if s.Name == "" {
			s.Name = name
		}
		s.names, s.spelled = append(s.names, normal(name)), append(s.spelled, name)
	}
	return nil
}

func (s *Spec) setArgs(val *yaml.Node) error {
	if val.Kind != yaml.MappingNode {
		return fault(val, "args is no mapping of roles to names")
	}
	seen := make(map[string]Role, len(val.Content)*2)
	s.args = &roles{}
	for i := 0; i+1 < len(val.Content); i += 2 {
		role, err := ParseRole(val.Content[i].Value)
		if err != nil {
			return fault(val.Content[i], "%w", err)
		}
		list, err := texts(val.Content[i+1])
		if err != nil {
			return fault(val.Content[i+1], "%s: %w", role, err)
		}
		for _, arg := range list {
			k := normal(arg)
			old, twice := seen[k]
			if twice && old != role {
				return fault(val.Content[i+1], "argument %q is %s and %s", arg, old, role)
			}
			if !twice {
				seen[k], s.args.list = role, append(s.args.list, argRole{k, role})
			}
		}
	}
	slices.SortFunc(s.args.list, byName)
	return nil
}

func (s *Spec) setReadWhen(val *yaml.Node) error {
	m := map[string][]string{}
	if err := val.Decode(&m); err != nil {
		return fault(val, "read_when: %w", err)
	}
	s.ReadWhen = make(map[string][]string, len(m))
	for k, v := range m {
		s.ReadWhen[normal(k)] = v
	}
	return nil
}

func texts(val *yaml.Node) ([]string, error) {
	if val.Kind == yaml.ScalarNode && val.Tag != "!!null" {
		return []string{val.Value}, nil
	}
	if val.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("no list of names")
	}
	list := make([]string, 0, len(val.Content))
	for _, n := range val.Content {
		if n.Kind != yaml.ScalarNode || n.Value == "" {
			return nil, fmt.Errorf("line %d: no name", n.Line)
		}
		list = append(list, n.Value)
	}
	return list, nil
}

func samples(val *yaml.Node) ([]sample, error) {
	if val.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("no list of samples")
	}
	var list []sample
	for _, n := range val.Content {
		m := sample{line: n.Line}
		switch n.Kind {
		case yaml.ScalarNode:
			m.tool = n.Value
		case yaml.MappingNode:
			var raw struct {
				Server string            `yaml:"server"`
				Tool   string            `yaml:"tool"`
				Roles  map[string]string `yaml:"roles"`
			}
			if err := n.Decode(&raw); err != nil {
				return nil, fmt.Errorf("line %d: %w", n.Line, err)
			}
			m.server, m.tool = raw.Server, raw.Tool
			for arg, name := range raw.Roles {
				r, err := ParseRole(name)
				if err != nil {
					return nil, fmt.Errorf("line %d: %w", n.Line, err)
				}
				if m.roles == nil {
					m.roles = map[string]Role{}
				}
				m.roles[arg] = r
			}
		default:
			return nil, fmt.Errorf("line %d: a sample is a name or {server, tool, roles}", n.Line)
		}
		if m.tool == "" {
			return nil, fmt.Errorf("line %d: a sample without a tool", n.Line)
		}
		list = append(list, m)
	}
	return list, nil
}
