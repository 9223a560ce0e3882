package gateway

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// mirrored is an argument that a server wants in a header as well
// ("x-mcp-header" in its schema).
type mirrored struct {
	path   []string
	header string
}

const (
	maxMirrored  = 64   // of a tool
	maxMirrors   = 4096 // tools that have some
	mirroredDeep = 8
)

// learnsHeaders keeps which arguments of a server's tools go into headers, for
// clients of revisions that know nothing of it.
func (u *upstream) learnsHeaders(list []byte) {
	for _, tool := range mcp.Elements(mcp.Member(list, "result", "tools")) {
		found := mirroredIn(nil, mcp.Member(tool, "inputSchema", "properties"), nil)
		name := mcp.Text(mcp.Member(tool, "name"))
		u.mu.Lock()
		if u.mirrors == nil {
			u.mirrors = map[string][]mirrored{}
		}
		delete(u.mirrors, name)
		if len(found) > 0 && len(u.mirrors) < maxMirrors {
			u.mirrors[name] = found
		}
		u.mu.Unlock()
	}
}

func mirroredIn(out []mirrored, properties []byte, path []string) []mirrored {
	if properties == nil || len(path) >= mirroredDeep {
		return out
	}
	for key, property := range mcp.Entries(properties) {
		at := append(path[:len(path):len(path)], key)
		if h := mcp.Text(mcp.Member(property, "x-mcp-header")); token(h) && len(out) < maxMirrored {
			out = append(out, mirrored{at, h})
		}
		out = mirroredIn(out, mcp.Member(property, "properties"), at)
	}
	return out
}

// token: the text may be part of a header's name.
func token(s string) bool {
	return s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

// mirror adds to headers what a call's arguments say.
func (u *upstream) mirror(headers map[string]string, e *mcp.Envelope) {
	if e.Method != "tools/call" {
		return
	}
	u.mu.Lock()
	list := u.mirrors[mcp.Text(mcp.Member(e.Params, "name"))]
	u.mu.Unlock()
	for _, m := range list {
		value := mcp.Member(e.Params, append([]string{"arguments"}, m.path...)...)
		if text, ok := primitive(value); ok {
			headers[headerParam+m.header] = headerValue(text)
		}
	}
}

// primitive is the text of a string, a boolean or an integer.
func primitive(value []byte) (string, bool) {
	switch {
	case len(value) == 0:
		return "", false
	case value[0] == '"':
		return mcp.Text(value), true
	case string(value) == "true", string(value) == "false":
		return string(value), true
	}
	f, err := json.Number(value).Float64()
	if err != nil || f != float64(int64(f)) || f > 1<<53 || f < -1<<53 {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}
