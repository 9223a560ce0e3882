package hook

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// maxSource is how long a chunk's source may be.
const maxSource = 1024

// origin says what the result of a call is, and where it comes from. A result
// is untrusted whatever its type.
func origin(c *cordon.Call) (cordon.ChunkType, string) {
	name := c.Tool
	if c.Server != "" {
		return cordon.ToolOutput, clip(c.Server+"/"+c.Tool, maxSource)
	}
	var args struct {
		FilePath     string `json:"file_path"`
		AbsolutePath string `json:"absolute_path"`
		TargetFile   string `json:"target_file"`
		Path         string `json:"path"`
		URL          string `json:"url"`
		URI          string `json:"uri"`
	}
	_ = json.Unmarshal(c.Args, &args) // what is not there names nothing
	first := func(of ...string) string {
		for _, s := range append(of, name) {
			if s != "" {
				return clip(s, maxSource)
			}
		}
		return ""
	}
	switch strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name)) {
	case "read", "readfile", "notebookread", "viewimage", "readmanyfiles", "grep", "grepsearch", "searchfilecontent", "grepfiles":
		return cordon.FileText, first(args.FilePath, args.AbsolutePath, args.TargetFile, args.Path)
	case "webfetch", "websearch", "googlewebsearch", "readmcpresource", "readmcpresourcetool":
		return cordon.Retrieved, first(args.URL, args.URI)
	case "task", "agent", "delegatetoagent", "codebaseinvestigator":
		return cordon.Federation, first()
	}
	return cordon.ToolOutput, first()
}

// longWord is how long a field's name is at most, or that of a type.
const longWord = 24

// word reports whether s can be a name; what is none is text to a model.
func word(s string) bool {
	return len(s) <= longWord && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '$'
	}) < 0
}

// flatten is the text of a JSON value: its strings, a line each, but for those
// in own, which the agent wrote itself and the tool only repeats, and the names
// of types. It does not recurse, however deep the value is.
func flatten(raw json.RawMessage, own map[string]bool) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b strings.Builder
	eachString(raw, func(key, s string) {
		if !own[s] && !(key == "type" && word(s)) {
			b.WriteString(s)
			b.WriteByte('\n')
		}
	})
	return b.String()
}

// ownStrings are the strings of a call's arguments.
func ownStrings(args json.RawMessage) map[string]bool {
	own := map[string]bool{"": true}
	eachString(args, func(_, s string) { own[s] = true })
	return own
}

// eachString gives every string of a value with its key, "" in a list, and
// every key that is no name.
func eachString(raw json.RawMessage, do func(key, s string)) {
	var inObject []bool // one for each container that is open
	expect, name := false, ""
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		t, err := dec.Token()
		if err != nil {
			return
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				inObject = append(inObject, t == '{')
				expect, name = t == '{', ""
				continue
			}
			inObject = inObject[:len(inObject)-1]
		case string:
			if expect {
				if expect, name = false, t; !word(t) {
					do("", t)
				}
				continue
			}
			do(name, t)
		}
		expect, name = len(inObject) > 0 && inObject[len(inObject)-1], ""
	}
}
