// Package poison looks for attacks in the definitions of tools, which servers
// send and models read as if they were the operator's own words.
//
// It finds characters that a person does not see, orders to the model in
// descriptions and in every other text of a schema, names that imitate, and
// tools that speak of those of other servers. Findings are of two weights: a
// quarantine is for what an honest server has no use for, a note for what a
// person should look at when the tool is approved.
//
// Guarantees: each text of a definition is looked at, wherever it stands,
// property names and unknown members included; the work is linear in the
// definition's size, and nothing recurses deeper than strictjson parses.
//
// What it does not stop: an order in words that no rule knows, in a language
// other than English, or spread over several tools; a description that is
// wrong about what the tool does; what results say when the tool runs. It is no
// substitute for the pins (a definition that changed is seen by its hash) nor
// for deciding on each call.
package poison

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Severity is what becomes of a tool for a finding. The zero value holds it.
type Severity uint8

const (
	// Quarantine: the tool is not to be called until a person approves it.
	Quarantine Severity = iota
	// Note: the tool may be called; a person who looks at its pin is told.
	Note
)

func (s Severity) String() string {
	if s == Note {
		return "note"
	}
	return "quarantine"
}

// Finding is one thing that is held against a definition.
type Finding struct {
	// Rule is the stable name of what fired, such as "instruct.secrecy".
	Rule     string
	Severity Severity
	// Where is the JSON pointer of the text; "" for the definition itself.
	Where string
	// Detail is one sentence for people. Text of the definition in it is quoted,
	// with what does not show escaped.
	Detail string
}

// Names are the tools of all servers, to tell when a definition speaks of
// another's. The zero value knows none. It is not changed once it is in use.
type Names struct {
	exact map[string][]string // servers by tool
	shape map[string][]owner  // by the shape of the name
}

type owner struct{ server, tool string }

// Add enters a server's tool.
func (n *Names) Add(server, tool string) {
	if n.exact == nil {
		n.exact, n.shape = map[string][]string{}, map[string][]owner{}
	}
	n.exact[tool] = append(n.exact[tool], server)
	s := skeleton(tool)
	n.shape[s] = append(n.shape[s], owner{server, tool})
}

// another returns a server other than the given one that has the tool.
func (n *Names) another(server, tool string) string {
	if n == nil {
		return ""
	}
	other := ""
	for _, s := range n.exact[tool] {
		if s == server {
			return "" // it speaks of its own
		}
		other = s
	}
	return other
}

const (
	// maxFindings is how many findings one definition yields.
	maxFindings = 32
	// longText and hugeText are bytes of all texts of a definition.
	longText = 16 << 10
	hugeText = 128 << 10
)

// Check returns what is held against a definition, in the order in which it
// stands there, each rule once for each text. def.Raw may be empty; tree is the
// definition as it was parsed. known may be nil.
func Check(def *cordon.ToolDef, tree *strictjson.Value, known *Names) []Finding {
	c := &checker{def: def, known: known}
	c.name()
	c.walk(tree, "", role{})
	switch {
	case c.bytes > hugeText:
		c.find("size.text", Quarantine, "", fmt.Sprintf("its texts are %d bytes long: nobody has read them", c.bytes))
	case c.bytes > longText:
		c.find("size.text", Note, "", fmt.Sprintf("its texts are %d bytes long", c.bytes))
	}
	return c.findings
}

// Held reports whether one of the findings is a quarantine.
func Held(fs []Finding) bool {
	for _, f := range fs {
		if f.Severity == Quarantine {
			return true
		}
	}
	return false
}

// Summary is a line about the findings, the gravest first; "" where there are
// none.
func Summary(fs []Finding) string {
	for _, want := range []Severity{Quarantine, Note} {
		for _, f := range fs {
			if f.Severity != want {
				continue
			}
			s := f.Rule + ": " + f.Detail
			if more := len(fs) - 1; more > 0 {
				s += fmt.Sprintf(" (and %d more)", more)
			}
			return s
		}
	}
	return ""
}

type checker struct {
	def      *cordon.ToolDef
	known    *Names
	findings []Finding
	bytes    int
}

func (c *checker) find(rule string, s Severity, where, detail string) {
	for _, f := range c.findings {
		if f.Rule == rule && f.Where == where {
			return
		}
	}
	if len(c.findings) < maxFindings || s == Quarantine && !Held(c.findings) {
		c.findings = append(c.findings, Finding{rule, s, where, detail})
	}
}

// role is what a text is in its schema.
type role struct {
	// param: the name of the property that it describes.
	param string
	// value: it stands in enum, default, const or examples, where it is data.
	value bool
	// names: its keys are names of properties.
	names bool
	// own: the tool's own name, which name looks at.
	own bool
}

func (c *checker) walk(v *strictjson.Value, where string, r role) {
	switch v.Kind {
	case strictjson.String:
		c.bytes += len(v.Str)
		if !r.own {
			c.text(v.Str, where, r)
		}
	case strictjson.Array:
		for i := range v.Items {
			c.walk(&v.Items[i], where+"/"+strconv.Itoa(i), r)
		}
	case strictjson.Object:
		for i, key := range v.Keys {
			at := where + "/" + strictjson.PointerToken(key)
			c.key(key, at, r)
			c.walk(&v.Items[i], at, r.below(key, where == ""))
		}
	}
}

// below is the role of the value of a key.
func (r role) below(key string, top bool) role {
	if r.names {
		return role{param: key, value: r.value}
	}
	next := role{param: r.param, value: r.value}
	switch key {
	case "name":
		next.own = top
	case "properties", "$defs", "definitions", "patternProperties", "dependentSchemas":
		next.names = true
	case "enum", "default", "const", "examples", "example", "required":
		next.value = true
	}
	return next
}

// maxKey is how long a name of a property may be.
const maxKey = 80

// key looks at a member's own name: a model reads it as it does a description.
func (c *checker) key(key, where string, r role) {
	c.bytes += len(key)
	if strings.Count(key, " ") >= 4 || len(key) > maxKey {
		c.find("schema.key_prose", Quarantine, where, fmt.Sprintf("the name of a member is a text: %s", shown(key)))
	}
	if strings.ContainsAny(key, " \t\n") || !plain(key) {
		c.text(key, where, role{})
	}
	if !r.names {
		return
	}
	switch words := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(key)); words {
	case "sidenote", "sidenotes":
		c.find("schema.harvest", Note, where, "a parameter for what the call has no use for")
	case "conversationhistory", "chathistory", "systemprompt", "chainofthought", "fullconversation", "allmessages", "yourreasoning":
		c.find("schema.harvest", Note, where, fmt.Sprintf("the parameter %s asks for what the model was told", shown(key)))
	}
}

// text looks at one text.
func (c *checker) text(s, where string, r role) {
	c.hidden(s, where)
	if r.value && len(s) > 200 && strings.Count(s, " ") > 24 {
		c.find("schema.value_prose", Note, where, fmt.Sprintf("a value is a long text: %s", shown(s)))
	}
	c.phrases(s, where, r)
}

// shown is the beginning of a text, quoted so that all of it shows.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.QuoteToASCII(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.QuoteToASCII(s)
}

func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
