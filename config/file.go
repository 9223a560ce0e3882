package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseFile applies the file's keys. Its structure is walked by hand: the
// YAML package would take unknown keys, and lose the lines of those it knows.
func (l *loader) parseFile(data []byte) {
	root, err := oneDocument(data)
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("config: %s: %w", l.file, err))
		return
	}
	if root == nil {
		return
	}
	known := l.fileKeys()
	l.pairs(root, "", known.top, func(key string, value *yaml.Node) {
		switch {
		case key == "tenants":
			l.tenants(value)
		case key == "tools":
			l.v.tools = rawValue(data, root, value)
			l.came(key, "file", l.line(value))
		case known.sections[key] != nil:
			l.pairs(value, key+".", known.sections[key], func(sub string, leaf *yaml.Node) {
				l.apply(key+"."+sub, leaf)
			})
		default:
			l.apply(key, value)
		}
	})
}

type keys struct {
	top      []string
	sections map[string][]string
}

func (l *loader) fileKeys() keys {
	k := keys{sections: map[string][]string{}}
	for _, s := range l.settings {
		if s.noFile {
			continue
		}
		section, sub, nested := strings.Cut(s.name, ".")
		if nested {
			k.sections[section] = append(k.sections[section], sub)
		}
		if !slices.Contains(k.top, section) {
			k.top = append(k.top, section)
		}
	}
	return k
}

// oneDocument is the root of the file's only document, nil if there is none.
func oneDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: a second document (want one)", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// line is the place of a node as people write it.
func (l *loader) line(n *yaml.Node) string { return fmt.Sprintf("%s:%d", l.file, n.Line) }

func (l *loader) failAt(n *yaml.Node, key string, err error) {
	l.fail(l.line(n)+": "+key, err)
}

// pairs walks a mapping's pairs. Unknown and repeated keys are errors: a key
// that is misspelt, or overruled further down, protects nobody.
func (l *loader) pairs(n *yaml.Node, prefix string, known []string, each func(key string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		l.failAt(n, cmp.Or(strings.TrimSuffix(prefix, "."), "file"), wantError{spelled(n), "a mapping"})
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode || known != nil && !slices.Contains(known, k.Value):
			l.failAt(k, "unknown key", wantError{prefix + spelled(k), "one of " + joined(known)})
		case seen[k.Value]:
			l.failAt(k, "key", wantError{prefix + k.Value, "each key once"})
		default:
			seen[k.Value] = true
			each(k.Value, v)
		}
	}
}

// spelled is what a node says, for an error.
func spelled(n *yaml.Node) string {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value
	case yaml.AliasNode:
		return "*" + n.Value
	case yaml.SequenceNode:
		return "a list"
	}
	return "a mapping"
}

// scalar reads a single value; null is none.
func scalar(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return "", wantError{spelled(n), "a single value"}
	}
	return strings.TrimSpace(n.Value), nil
}

// list reads a list of single values, or one.
func list(n *yaml.Node) ([]string, error) {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	all := []string{}
	for _, item := range items {
		s, err := scalar(item)
		if err != nil {
			return nil, wantError{spelled(item), "a list of single values"}
		}
		all = append(all, s)
	}
	return all, nil
}

func (l *loader) apply(key string, n *yaml.Node) {
	s := l.setting(key)
	if s.node != nil {
		s.node(l, key, n)
		l.came(key, "file", l.line(n))
		return
	}
	var err error
	if s.add != nil {
		var items []string
		if items, err = list(n); err == nil {
			err = s.add(&l.v, items, l.places)
		}
	} else {
		var text string
		if text, err = scalar(n); err == nil {
			err = s.set(&l.v, text, l.places)
		}
	}
	if err != nil {
		l.failAt(n, key, err)
		return
	}
	l.came(key, "file", l.line(n))
}

const maxTenantName = 256

func (l *loader) tenants(n *yaml.Node) {
	l.v.tenants = map[string]Tenant{}
	l.pairs(n, "tenants.", nil, func(name string, value *yaml.Node) {
		if err := checkName(name); err != nil || len(name) > maxTenantName {
			l.failAt(value, "tenant", wantError{name, fmt.Sprintf("a name of at most %d bytes without control characters", maxTenantName)})
			return
		}
		l.v.tenants[name] = l.tenant("tenants."+name, value)
	})
	l.came("tenants", "file", l.line(n))
}

func (l *loader) tenant(key string, n *yaml.Node) Tenant {
	var t Tenant
	l.pairs(n, key+".", fieldNames(tenantFields), func(sub string, value *yaml.Node) {
		switch sub {
		case "tier":
			t.Tier = single(l, key+".tier", value, parseTier)
		case "allow_hosts":
			t.AllowHosts = l.nameList(key+".allow_hosts", value)
		case "tools":
			t.Tools = l.nameList(key+".tools", value)
		case "caps":
			l.tenantCaps(key+".caps", value, &t)
		}
	})
	return t
}

func (l *loader) tenantCaps(key string, n *yaml.Node, t *Tenant) {
	l.pairs(n, key+".", fieldNames(capFields), func(sub string, value *yaml.Node) {
		full := key + "." + sub
		switch sub {
		case "tool_calls":
			t.ToolCalls = single(l, full, value, func(s string) (int64, error) { return parseWhole(s, 1, maxCount) })
		case "exec_seconds":
			t.Exec = single(l, full, value, parseSeconds)
		case "bytes_written":
			t.BytesWritten = single(l, full, value, func(s string) (int64, error) { return parseWhole(s, 1, maxBytes) })
		case "cost_usd":
			t.CostUSD = single(l, full, value, func(s string) (float64, error) { return parsePositive(s, maxCost) })
		}
	})
}

// single reads a single value by parse, or keeps the error.
func single[T any](l *loader, key string, n *yaml.Node, parse func(string) (T, error)) *T {
	s, err := scalar(n)
	if err == nil {
		var v T
		if v, err = parse(s); err == nil {
			return &v
		}
	}
	l.failAt(n, key, err)
	return nil
}

// nameList is never nil: an empty list permits none.
func (l *loader) nameList(key string, n *yaml.Node) []string {
	items, err := list(n)
	for _, s := range items {
		if err == nil {
			err = checkName(s)
		}
	}
	if err != nil {
		l.failAt(n, key, err)
		return []string{}
	}
	return items
}

func tenantNames(m map[string]Tenant) []string { return slices.Sorted(maps.Keys(m)) }

// rawValue cuts a top-level value out of the file, with blank lines and
// spaces in front so that positions stay. Where cutting text would change
// what it says (flow style, anchors), it is written anew.
func rawValue(data []byte, root, value *yaml.Node) []byte {
	lines := strings.SplitAfter(string(data), "\n")
	end := len(lines)
	for i := 0; i < len(root.Content); i += 2 {
		if k := root.Content[i]; k.Line > value.Line && k.Line-1 < end {
			end = k.Line - 1
		}
	}
	first := value.Line - 1
	if first >= 0 && first < end && value.Column >= 1 && value.Column-1 <= len(lines[first]) {
		cut := strings.Repeat("\n", first) + strings.Repeat(" ", value.Column-1) +
			lines[first][value.Column-1:] + strings.Join(lines[first+1:end], "")
		if again, err := oneDocument([]byte(cut)); err == nil && again != nil && sameNode(again, value, 0) {
			return []byte(cut)
		}
	}
	out, err := yaml.Marshal(value)
	if err != nil {
		// What was read can be written; if not, its reader is to refuse it.
		return []byte("!unreadable")
	}
	return out
}

// maxNesting bounds the recursion; the YAML package has its own bound.
const maxNesting = 500

func sameNode(a, b *yaml.Node, depth int) bool {
	if depth > maxNesting || a.Kind != b.Kind || a.Value != b.Value || a.ShortTag() != b.ShortTag() ||
		a.Line != b.Line || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameNode(a.Content[i], b.Content[i], depth+1) {
			return false
		}
	}
	return true
}
