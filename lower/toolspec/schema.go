package toolspec

import (
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Schema is what a tool's JSON schema says about its arguments' roles. A nil
// Schema says nothing.
type Schema struct {
	roles map[string]Role
	// names are all properties, so that a reader can tell a declared
	// argument from one that an agent made up.
	names map[string]bool
	// loose are the properties whose description alone speaks of an address:
	// "URL slug of the page" is none.
	loose map[string]bool
}

const (
	schemaDepth = 12
	schemaProps = 2000
)

// ParseSchema reads a JSON schema of a tool's input. What it cannot read it
// passes over: a schema only ever adds roles.
func ParseSchema(b []byte) *Schema {
	s := &Schema{roles: map[string]Role{}, names: map[string]bool{}, loose: map[string]bool{}}
	v, err := strictjson.Parse(b)
	if err != nil {
		return s
	}
	budget := schemaProps
	s.walk(&v, "", schemaDepth, &budget)
	return s
}

// Role is the role of the property called name, at any depth.
func (s *Schema) Role(name string) Role {
	if s == nil {
		return Infer
	}
	var buf [64]byte
	return s.roles[string(AppendNormal(buf[:0], name))]
}

// Sure reports whether any value of the property has its role. Otherwise only
// one that looks like it has.
func (s *Schema) Sure(name string) bool {
	if s == nil {
		return false
	}
	var buf [64]byte
	return !s.loose[string(AppendNormal(buf[:0], name))]
}

// Declares reports whether the schema has a property of that name.
func (s *Schema) Declares(name string) bool {
	if s == nil {
		return false
	}
	var buf [64]byte
	return s.names[string(AppendNormal(buf[:0], name))]
}

func (s *Schema) walk(v *strictjson.Value, name string, depth int, budget *int) {
	if depth == 0 || *budget <= 0 {
		return
	}
	*budget--
	switch v.Kind {
	case strictjson.Array:
		for i := range v.Items {
			s.walk(&v.Items[i], name, depth-1, budget)
		}
		return
	case strictjson.Object:
	default:
		return
	}
	if name != "" {
		if r, sure := describe(v); r > s.roles[name] {
			s.roles[name], s.loose[name] = r, !sure
		}
	}
	for i, k := range v.Keys {
		child := &v.Items[i]
		switch k {
		case "properties", "$defs", "definitions", "patternProperties":
			for j, prop := range child.Keys {
				n := normal(prop)
				if k == "properties" {
					s.names[n] = true
				}
				s.walk(&child.Items[j], n, depth-1, budget)
			}
		case "items", "anyOf", "oneOf", "allOf", "additionalProperties", "prefixItems":
			s.walk(child, name, depth-1, budget)
		}
	}
}

var described = []struct {
	words string
	role  Role
}{
	{"shell command", Shell}, {"command to run", Shell}, {"command to execute", Shell}, {"bash command", Shell},
	{"command line", Shell}, {"sql query", SQL}, {"sql statement", SQL}, {"python code", Code},
	{"code to execute", Code}, {"code to run", Code}, {"javascript code", Code}, {"script to run", Code},
	{"script to execute", Code}, {"working directory", Cwd}, {"file path", Write}, {"filepath", Write},
	{"path to", Write}, {"path of", Write}, {"absolute path", Write}, {"relative path", Write},
	{"directory", Write}, {"folder", Write}, {"filename", Write}, {"file name", Write}, {"file to", Write},
	{"url", URL}, {"uri", URL}, {"hostname", Host}, {"web address", URL},
}

// names reports whether what follows a noun leaves it the thing described:
// "URL of the page" is one, "URL slug" is not.
func names(rest string) bool {
	rest = strings.TrimLeft(rest, " ")
	for _, next := range [...]string{"of ", "to ", "for ", "from ", "where ", "that ", "which ", "or ", "and ", "in ", "(", ".", ",", ":", ";"} {
		if strings.HasPrefix(rest, next) {
			return true
		}
	}
	return rest == ""
}

// describe reads a property's format and description; sure is false where an
// address is spoken of without saying that the property is one.
func describe(v *strictjson.Value) (r Role, sure bool) {
	format, _ := v.Text("format")
	switch format {
	case "uri", "uri-reference", "iri", "iri-reference", "url":
		return URL, true
	case "hostname", "idn-hostname", "ipv4", "ipv6":
		return Host, true
	case "path", "file-path", "filepath", "directory-path", "file":
		return Write, true
	}
	desc, ok := v.Text("description")
	if !ok || len(desc) > 4096 {
		return Infer, true
	}
	desc = strings.ToLower(desc)
	// The first thing that a description names is what it describes.
	best, at, end := Infer, len(desc), 0
	for _, d := range described {
		if i := strings.Index(desc, d.words); i >= 0 && i < at && i < 80 {
			best, at, end = d.role, i, i+len(d.words)
		}
	}
	return best, best != URL && best != Host || names(desc[end:])
}
