package gateway

import (
	"strings"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// Behind the endpoint of all servers every name has its server before it, also
// where nothing collides: a name must not change because another server came,
// nor a new server be able to take one over.
const (
	nameSep = "__" // server__tool, server__prompt
	uriSep  = "+"  // server+scheme://rest
)

// splitName resolves a prefixed name among the endpoint's servers.
func (e *endpoint) splitName(name string) (*upstream, string) {
	server, rest, ok := strings.Cut(name, nameSep)
	if !ok {
		return nil, name
	}
	return e.up(server), rest
}

// splitURI resolves a prefixed URI. One without a prefix belongs to the only
// server there is.
func (e *endpoint) splitURI(uri string) (*upstream, string) {
	if server, rest, ok := strings.Cut(uri, uriSep); ok {
		if u := e.up(server); u != nil {
			return u, rest
		}
	}
	if len(e.ups) == 1 {
		return e.ups[0], uri
	}
	return nil, uri
}

func (e *endpoint) up(name string) *upstream {
	for _, u := range e.ups {
		if u.cfg.Name == name {
			return u
		}
	}
	return nil
}

func (e *endpoint) first() *upstream {
	if len(e.ups) == 0 {
		return nil
	}
	return e.ups[0]
}

// target is the server that a message of the endpoint goes to, and the message
// with the server's own names in it. u is nil where it goes to none; several is
// set where it goes to all.
func (e *endpoint) target(env *mcp.Envelope, msg []byte) (u *upstream, own []byte, several bool) {
	if !e.aggregate() {
		return e.ups[0], msg, false
	}
	switch env.Method {
	case "tools/call", "prompts/get":
		return e.byName(msg, "params", "name")
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return e.byURI(msg, "params", "uri")
	case "completion/complete":
		if mcp.Member(env.Params, "ref", "name") != nil {
			return e.byName(msg, "params", "ref", "name")
		}
		return e.byURI(msg, "params", "ref", "uri")
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "logging/setLevel":
		return nil, msg, true
	}
	return nil, msg, false
}

func (e *endpoint) byName(msg []byte, path ...string) (*upstream, []byte, bool) {
	u, name := e.splitName(mcp.Text(mcp.Member(msg, path...)))
	if u == nil {
		return nil, msg, false
	}
	return u, mcp.Edit(msg, quote(name), path...), false
}

func (e *endpoint) byURI(msg []byte, path ...string) (*upstream, []byte, bool) {
	u, uri := e.splitURI(mcp.Text(mcp.Member(msg, path...)))
	if u == nil {
		return nil, msg, false
	}
	return u, mcp.Edit(msg, quote(uri), path...), false
}

// listKey is the member of a list's result that has the items, and the key and
// separator of their names.
func listKey(method string) (items, name, sep string) {
	switch method {
	case "tools/list":
		return "tools", "name", nameSep
	case "prompts/list":
		return "prompts", "name", nameSep
	case "resources/list":
		return "resources", "uri", uriSep
	case "resources/templates/list":
		return "resourceTemplates", "uriTemplate", uriSep
	}
	return "", "", ""
}

// renamed are the items of a list with their server before their names.
func renamed(method, server string, result []byte) [][]byte {
	items, name, sep := listKey(method)
	var out [][]byte
	for _, item := range mcp.Elements(mcp.Member(result, items)) {
		if was := mcp.Member(item, name); was != nil {
			out = append(out, mcp.Edit(item, quote(server+sep+mcp.Text(was)), name))
		}
	}
	return out
}

// capability that a server must have said for a list to be asked for.
func capability(method string) string {
	kind, _, _ := strings.Cut(method, "/")
	return kind
}
