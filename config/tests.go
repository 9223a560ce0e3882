package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cordon-sandbox/cordon"
)

// Test is one inline test of a file: a call, and what is to become of it in
// mode enforce. Doors pass them over; "cordon policy check" judges them.
type Test struct {
	Name         string
	Server, Tool string
	// Args is a JSON object; "{workspace}" in it stands for the workspace.
	Args   json.RawMessage
	Tenant string
	// Tier is nil, and Profile empty, where the configuration's is meant.
	Tier    *cordon.Tier
	Profile string
	Want    cordon.Outcome
	// Rule is one that is to refuse the call, or empty.
	Rule string
	// Line is where it stands in the file.
	Line int
}

// Tests are the file's own, as a copy.
func (c *Config) Tests() []Test {
	list := slices.Clone(c.v.tests)
	for i := range list {
		list[i].Args, list[i].Tier = slices.Clone(list[i].Args), copied(list[i].Tier)
	}
	return list
}

func testFields() []field {
	return []field{
		{"name", "What the test shows; each name once.", form{kind: plainName}, true},
		{"tool", "The tool that is called.", form{kind: plainName}, true},
		{"server", "The MCP server of the tool.", form{kind: plainName}, false},
		{"args", "The arguments. `{workspace}` in a text is a new, empty directory, in which the test works.", form{kind: object}, false},
		{"tenant", "The tenant of the run, whose overrides apply.", form{kind: runName}, false},
		{"tier", "The tier of the run; without this key the file's.", words(tiers()...), false},
		{"profile", "The profile of the run; without this key the file's.", words(Profiles()...), false},
		{"want", "What is to become of the call in mode `enforce`.", words(outcomes()...), true},
		{"rule", "A rule that is to refuse it, as `cordon check` names them. Not with `want: allowed`.", form{kind: plainName}, false},
	}
}

func outcomes() []string {
	return []string{cordon.Allowed.String(), cordon.Restricted.String(), cordon.Blocked.String()}
}

func testRule() map[string]any {
	return map[string]any{
		"if":   map[string]any{"properties": map[string]any{"want": map[string]any{"pattern": anchored(anyCase("allowed"))}}},
		"then": map[string]any{"properties": map[string]any{"rule": false}},
	}
}

func (l *loader) tests(key string, n *yaml.Node) {
	seen := map[string]bool{}
	l.items(key, n, func(at string, item *yaml.Node) {
		t, wants := l.test(at, item)
		want := ""
		switch {
		case t.Name == "" || t.Tool == "" || !wants:
			want = "a name, a tool and a want"
		case seen[t.Name]:
			want = "each name once"
		case t.Want == cordon.Allowed && t.Rule != "":
			want = "no rule with want allowed"
		}
		if want != "" {
			l.failAt(item, at, wantError{t.Name, want})
		}
		seen[t.Name] = true
		l.v.tests = append(l.v.tests, t)
	})
}

func (l *loader) test(at string, item *yaml.Node) (t Test, wants bool) {
	t = Test{Line: item.Line, Args: json.RawMessage("{}")}
	l.pairs(item, at+".", fieldNames(testFields), func(sub string, value *yaml.Node) {
		full := at + "." + sub
		switch sub {
		case "name":
			l.one(&t.Name, full, value, parseName)
		case "tool":
			l.one(&t.Tool, full, value, parseName)
		case "server":
			l.one(&t.Server, full, value, parseName)
		case "rule":
			l.one(&t.Rule, full, value, parseName)
		case "tenant":
			l.one(&t.Tenant, full, value, parseRunName)
		case "tier":
			t.Tier = single(l, full, value, parseTier)
		case "profile":
			l.one(&t.Profile, full, value, func(s string) (string, error) { return oneOf(s, Profiles()...) })
		case "want":
			// What is wrong with it has been said; it is not missing.
			wants = true
			if p := single(l, full, value, parseOutcome); p != nil {
				t.Want = *p
			}
		case "args":
			args, err := jsonObject(value)
			if err != nil {
				l.failAt(err.at, full, err.why)
				return
			}
			t.Args = args
		}
	})
	return t, wants
}

func parseName(s string) (string, error) { return s, checkName(s) }

func parseOutcome(s string) (o cordon.Outcome, err error) {
	word, err := oneOf(s, outcomes()...)
	if err != nil {
		return o, err
	}
	return o, o.UnmarshalText([]byte(word))
}

// nodeError is what is wrong at a node.
type nodeError struct {
	at  *yaml.Node
	why error
}

// jsonObject writes a mapping as JSON, in its order.
func jsonObject(n *yaml.Node) (json.RawMessage, *nodeError) {
	if n.Kind != yaml.MappingNode {
		return nil, &nodeError{n, wantError{spelled(n), "a mapping"}}
	}
	var b bytes.Buffer
	if err := appendJSON(&b, n, 0); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func appendJSON(b *bytes.Buffer, n *yaml.Node, depth int) *nodeError {
	bad := func(want string) *nodeError { return &nodeError{n, wantError{spelled(n), want}} }
	switch {
	case depth > maxNesting:
		return bad(fmt.Sprintf("at most %d levels", maxNesting))
	case n.Kind == yaml.ScalarNode:
		if err := appendScalar(b, n); err != nil {
			return &nodeError{n, err}
		}
	case n.Kind == yaml.SequenceNode:
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendJSON(b, item, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case n.Kind == yaml.MappingNode:
		return appendPairs(b, n, depth)
	default:
		return bad("values that are written out, no aliases")
	}
	return nil
}

func appendPairs(b *bytes.Buffer, n *yaml.Node, depth int) *nodeError {
	seen := map[string]bool{}
	b.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" || seen[k.Value] {
			return &nodeError{k, wantError{spelled(k), "names as keys, each once"}}
		}
		seen[k.Value] = true
		if i > 0 {
			b.WriteByte(',')
		}
		appendText(b, k.Value)
		b.WriteByte(':')
		if err := appendJSON(b, n.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func appendScalar(b *bytes.Buffer, n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		b.WriteString("null")
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return wantError{n.Value, "a value that JSON has"}
		}
		// What JSON can hold as it is written keeps its digits.
		if text := strings.TrimSpace(n.Value); n.ShortTag() != "!!bool" && json.Valid([]byte(text)) {
			b.WriteString(text)
			return nil
		}
		out, err := json.Marshal(v)
		if err != nil { // infinite, or no number
			return wantError{n.Value, "a number that JSON has"}
		}
		b.Write(out)
	case "!!str", "!!timestamp":
		appendText(b, n.Value)
	default:
		return wantError{n.Value, "a text, a number, true, false or null"}
	}
	return nil
}

// appendText writes a string without the escapes for HTML, which no client
// writes.
func appendText(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	// A string can be written; what ends it is a line end.
	if enc.Encode(s) == nil {
		b.Truncate(b.Len() - 1)
	}
}

func testSetting() setting {
	return setting{name: "tests", form: form{kind: items, fields: testFields, rule: testRule}, node: (*loader).tests, show: func(v *values) string {
		if len(v.tests) == 0 {
			return ""
		}
		return strconv.Itoa(len(v.tests)) + " set"
	}}
}
