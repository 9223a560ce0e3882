package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Groups of tools, as the tool catalogue assigns them.
const (
	ReadOnly          = "read_only"
	Memory            = "memory"
	ProductivityRead  = "productivity_read"
	Browser           = "browser"
	ProductivityWrite = "productivity_write"
	FSWrite           = "fs_write"
	Exec              = "exec"
	Network           = "network"
	Unknown           = "unknown"
)

// Groups lists every group of tools.
func Groups() []string {
	return []string{
		ReadOnly, Memory, ProductivityRead, Browser, ProductivityWrite,
		FSWrite, Exec, Network, Unknown,
	}
}

const (
	everyTool   = "*"
	groupPrefix = "group:"
)

// toolName is a tool of one server; the empty server stands for any server in
// a whitelist, and for none in a call.
type toolName struct{ server, name string }

// toolSet is one whitelist. The zero value admits nothing.
//
// Groups and names are kept apart: a server that calls its tool "read_only"
// must not be taken for the group.
type toolSet struct {
	every  bool
	groups []string
	names  map[toolName]bool
}

func (s *toolSet) admits(group string, t toolName) bool {
	if s.every || slices.Contains(s.groups, group) {
		return true
	}
	if len(s.names) == 0 || t.name == "" {
		return false
	}
	return s.names[t] || s.names[toolName{name: t.name}]
}

// toolNamed reads how clients spell the tool of a server. The first "__" ends
// the server's name: a server named a__b is then never taken for one that
// was allowed under another spelling; it is refused.
func toolNamed(server, name string) toolName {
	if server == "" {
		if rest, ok := strings.CutPrefix(name, "mcp__"); ok {
			if s, n, ok := strings.Cut(rest, "__"); ok && s != "" && n != "" {
				return toolName{s, n}
			}
		}
	}
	return toolName{server, name}
}

// parseTools reads whitelist entries: "*", "group:NAME", "NAME" (on any
// server), "SERVER/NAME" or "mcp__SERVER__NAME".
func parseTools(what string, list []string) (toolSet, error) {
	set := toolSet{names: map[toolName]bool{}}
	for _, e := range list {
		if e == everyTool {
			set.every = true
			continue
		}
		if g, ok := strings.CutPrefix(e, groupPrefix); ok {
			if !slices.Contains(Groups(), g) {
				return toolSet{}, fmt.Errorf("policy: %s group %q (want one of %q)", what, g, Groups())
			}
			set.groups = append(set.groups, g)
			continue
		}
		t, ok := parseToolName(e)
		if !ok {
			return toolSet{}, fmt.Errorf(`policy: %s entry %q (want "NAME", "SERVER/NAME", "group:GROUP" or "*")`, what, e)
		}
		set.names[t] = true
	}
	return set, nil
}

func parseToolName(e string) (toolName, bool) {
	if badText(e) || strings.ContainsAny(e, "*?[ ") {
		return toolName{}, false
	}
	if server, name, ok := strings.Cut(e, "/"); ok {
		return toolName{server, name}, server != "" && name != ""
	}
	t := toolNamed("", e)
	return t, t.name != ""
}

// entries spells whitelists as parseTools reads them, in one order.
func entries(layers []toolSet) [][]string {
	all := make([][]string, 0, len(layers))
	for _, s := range layers {
		all = append(all, s.entries())
	}
	return all
}

func (s *toolSet) entries() []string {
	list := []string{}
	if s.every {
		list = append(list, everyTool)
	}
	for _, g := range s.groups {
		list = append(list, groupPrefix+g)
	}
	for t := range s.names {
		if t.server == "" {
			list = append(list, t.name)
		} else {
			list = append(list, t.server+"/"+t.name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
