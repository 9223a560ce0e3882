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

// A key as long as this is no field's name, but text.
const longKey = 24

// flatten is the text of a JSON value: its strings, a line each. It does not
// recurse, however deep the value is.
func flatten(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var b strings.Builder
	var inObject []bool // one for each container that is open
	key := false        // the next string is a key
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		t, err := dec.Token()
		if err != nil {
			return b.String()
		}
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				inObject = append(inObject, t == '{')
				key = t == '{'
				continue
			default:
				inObject = inObject[:len(inObject)-1]
			}
		case string:
			wasKey := key
			if !wasKey || len(t) > longKey {
				b.WriteString(t)
				b.WriteByte('\n')
			}
			if wasKey {
				key = false
				continue
			}
		}
		key = len(inObject) > 0 && inObject[len(inObject)-1]
	}
}
