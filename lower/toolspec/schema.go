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
}

const (
	schemaDepth = 12
	schemaProps = 2000
)

// ParseSchema reads a JSON schema of a tool's input. What it cannot read it
// passes over: a schema only ever adds roles.
func ParseSchema(b []byte) *Schema {
	s := &Schema{roles: map[string]Role{}, names: map[string]bool{}}
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
		if r := describe(v); r > s.roles[name] {
			s.roles[name] = r
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

// describe reads a property's format and description.
func describe(v *strictjson.Value) Role {
	format, _ := v.Text("format")
	switch format {
	case "uri", "uri-reference", "iri", "iri-reference", "url":
		return URL
	case "hostname", "idn-hostname", "ipv4", "ipv6":
		return Host
	case "path", "file-path", "filepath", "directory-path", "file":
		return Write
	}
	desc, ok := v.Text("description")
	if !ok || len(desc) > 4096 {
		return Infer
	}
	desc = strings.ToLower(desc)
	// The first thing that a description names is what it describes.
	best, at := Infer, len(desc)
	for _, d := range described {
		if i := strings.Index(desc, d.words); i >= 0 && i < at && i < 80 {
			best, at = d.role, i
		}
	}
	return best
}
