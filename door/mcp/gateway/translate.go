package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// The keys of _meta in revision 2026-07-28.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// JSON-RPC error codes of the protocol.
const (
	codeNoMethod       = -32601
	codeParams         = -32602
	codeHeaderMismatch = -32020
	codeCapabilities   = -32021
	codeVersion        = -32022
	codeServer         = -32000
)

var ownInfo = []byte(`{"name":"cordon","version":"1"}`)

// statelessBody: the message says itself which revision it is of, as only
// those without sessions do.
func statelessBody(body []byte) bool {
	if !bytes.Contains(body, []byte(metaVersion)) {
		return false
	}
	e, ok := mcp.ReadEnvelope(body)
	return ok && mcp.Member(e.Params, "_meta", metaVersion) != nil
}

// hasStateless: revision 2026-07-28 has the method. Those that it took away are
// refused whatever a server still does with them.
func hasStateless(method string) bool {
	switch method {
	case "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		return false
	}
	return true
}

// nameOf is what Mcp-Name mirrors of a message; has is false for a method that
// has none.
func nameOf(e *mcp.Envelope) (name string, has bool) {
	switch e.Method {
	case "tools/call", "prompts/get":
		return mcp.Text(mcp.Member(e.Params, "name")), true
	case "resources/read":
		return mcp.Text(mcp.Member(e.Params, "uri")), true
	}
	return "", false
}

// headerText decodes a header's value as the protocol encodes what is not plain.
func headerText(v string) (string, bool) {
	in, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v, true
	}
	in, ok = strings.CutSuffix(in, "?=")
	if !ok {
		return v, true
	}
	b, err := base64.StdEncoding.DecodeString(in)
	return string(b), err == nil
}

// mismatch says where headers and body of a stateless request differ, or "".
// Whatever decides by headers, here or behind, must see what was judged.
func mismatch(h http.Header, e *mcp.Envelope) (why string, code int) {
	version := h.Get(headerVersion)
	said := mcp.Text(mcp.Member(e.Params, "_meta", metaVersion))
	request := e.IsRequest()
	switch {
	case request && version == "":
		return "header " + headerVersion + " is missing", codeHeaderMismatch
	case request && said == "":
		return "params._meta has no " + metaVersion, codeParams
	case said != "" && version != said:
		return "header " + headerVersion + " is not the version in params._meta", codeHeaderMismatch
	}
	if request && mcp.Member(e.Params, "_meta", metaCapabilities) == nil {
		return "params._meta has no " + metaCapabilities, codeParams
	}
	if method := strings.TrimSpace(h.Get(headerMethod)); method != e.Method && (request || method != "") {
		return "header " + headerMethod + " is not the message's method", codeHeaderMismatch
	}
	name, has := nameOf(e)
	given := h.Values(headerName)
	switch {
	case has && len(given) == 0:
		return "header " + headerName + " is missing", codeHeaderMismatch
	case len(given) > 0:
		text, ok := headerText(strings.TrimSpace(given[0]))
		if !ok || has && text != name {
			return "header " + headerName + " is not what the message names", codeHeaderMismatch
		}
	}
	return paramMismatch(h, e)
}

// maxParams is how many Mcp-Param headers a request may have.
const maxParams = 64

// paramMismatch: each Mcp-Param header has to mirror a value of the arguments.
// Which one is the server's to check; one that mirrors none was not judged.
func paramMismatch(h http.Header, e *mcp.Envelope) (why string, code int) {
	var values map[string]bool
	n := 0
	for k, vs := range h {
		if !strings.HasPrefix(k, headerParam) {
			continue
		}
		if n++; len(vs) > 1 || n > maxParams {
			return "too many " + headerParam + " headers", codeHeaderMismatch
		}
		if values == nil {
			values = primitives(mcp.Member(e.Params, "arguments"))
		}
		text, ok := headerText(strings.TrimSpace(vs[0]))
		if !ok || !values[text] {
			return "header " + clip(k, 64) + " mirrors no value of the arguments", codeHeaderMismatch
		}
	}
	return "", 0
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// primitives are the texts of all strings, integers and booleans in a value.
func primitives(args []byte) map[string]bool {
	out := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	for {
		t, err := dec.Token()
		if err != nil {
			return out
		}
		switch v := t.(type) {
		case string:
			out[v] = true
		case bool:
			out[strconv.FormatBool(v)] = true
		case json.Number:
			out[v.String()] = true
			if f, err := v.Float64(); err == nil && f == float64(int64(f)) {
				out[strconv.FormatInt(int64(f), 10)] = true
			}
		}
	}
}

// standardHeaders are those that a stateless request has on its way to a server;
// mirrored ones go on as they came, for they were compared.
func standardHeaders(e *mcp.Envelope, came http.Header) map[string]string {
	h := map[string]string{headerVersion: newest, headerMethod: e.Method}
	if v := mcp.Text(mcp.Member(e.Params, "_meta", metaVersion)); stateless(v) {
		h[headerVersion] = v
	}
	if name, has := nameOf(e); has {
		h[headerName] = headerValue(name)
	}
	for k, vs := range came {
		if strings.HasPrefix(k, headerParam) {
			h[textproto.CanonicalMIMEHeaderKey(k)] = vs[0]
		}
	}
	return h
}

// headerValue is a text as a header may carry it.
func headerValue(s string) string {
	plain := s == strings.TrimSpace(s) && !strings.HasPrefix(s, "=?base64?")
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

// withoutMeta takes out what a server with sessions does not know.
func withoutMeta(msg []byte) []byte {
	for _, k := range []string{metaVersion, metaClient, metaCapabilities, metaLogLevel} {
		msg = mcp.Edit(msg, nil, "params", "_meta", k)
	}
	if bytes.Equal(bytes.Join(bytes.Fields(mcp.Member(msg, "params", "_meta")), nil), []byte("{}")) {
		msg = mcp.Edit(msg, nil, "params", "_meta")
	}
	return msg
}

// withMeta puts in what a server without sessions has to be told each time.
func (c *peer) withMeta(msg []byte) []byte {
	p := c.party
	p.mu.Lock()
	params, caps, level := p.params, p.caps, p.logLevel
	p.mu.Unlock()
	info := mcp.Member(params, "clientInfo")
	if info == nil {
		info = ownInfo
	}
	if caps == nil {
		caps = []byte(`{}`)
	}
	if raw := mcp.Member(msg, "params"); raw == nil || raw[0] != '{' {
		msg = mcp.Edit(msg, []byte(`{}`), "params")
	}
	msg = mcp.Edit(msg, []byte(`"`+newest+`"`), "params", "_meta", metaVersion)
	msg = mcp.Edit(msg, info, "params", "_meta", metaClient)
	msg = mcp.Edit(msg, caps, "params", "_meta", metaCapabilities)
	if level != nil {
		msg = mcp.Edit(msg, level, "params", "_meta", metaLogLevel)
	}
	return msg
}

// initParams are the params of initialize: the client's own, or for stateless
// clients ones with what these clients can be asked.
func (c *peer) initParams() []byte {
	p := c.party
	if p.id != "" {
		if p.params != nil {
			return p.params
		}
		return []byte(`{}`)
	}
	caps := []byte(`{}`)
	for _, kind := range []string{"elicitation", "sampling", "roots"} {
		if strings.Contains(c.caps, kind[:1]) {
			caps = mcp.Edit(caps, []byte(`{}`), kind)
		}
	}
	return []byte(`{"protocolVersion":"` + legacyVersions[0] + `","capabilities":` + string(caps) + `,"clientInfo":` + string(ownInfo) + `}`)
}

// isCacheable: results of the method say how long they hold.
func isCacheable(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover":
		return true
	}
	return false
}

// asStateless makes the answer of a server with sessions one of 2026-07-28.
func asStateless(answer []byte, method string, info []byte) []byte {
	result := mcp.Member(answer, "result")
	if result == nil || result[0] != '{' {
		return answer
	}
	if mcp.Member(result, "resultType") == nil {
		answer = mcp.Edit(answer, []byte(`"complete"`), "result", "resultType")
	}
	if isCacheable(method) {
		if mcp.Member(result, "ttlMs") == nil {
			answer = mcp.Edit(answer, []byte(`0`), "result", "ttlMs")
		}
		if mcp.Member(result, "cacheScope") == nil {
			answer = mcp.Edit(answer, []byte(`"private"`), "result", "cacheScope")
		}
	}
	if info != nil && mcp.Member(result, "_meta", metaServer) == nil {
		answer = mcp.Edit(answer, info, "result", "_meta", metaServer)
	}
	return answer
}

// discovered is the result of server/discover for a server with sessions.
func discovered(hello []byte) []byte {
	versions, _ := json.Marshal(append([]string{newest}, legacyVersions[:]...)) // strings always marshal
	out := append([]byte(`{"resultType":"complete","supportedVersions":`), versions...)
	out = append(out, `,"ttlMs":0,"cacheScope":"private","capabilities":`...)
	caps := mcp.Member(hello, "capabilities")
	if caps == nil {
		caps = []byte(`{}`)
	}
	out = append(out, caps...)
	if i := mcp.Member(hello, "instructions"); i != nil {
		out = append(append(out, `,"instructions":`...), i...)
	}
	info := mcp.Member(hello, "serverInfo")
	if info == nil {
		info = ownInfo
	}
	out = append(append(out, `,"_meta":{"`+metaServer+`":`...), info...)
	return append(out, "}}"...)
}

// initialized is the result of initialize for a server without sessions.
func initializedBy(hello []byte, wanted string) []byte {
	version := legacyVersions[0]
	if legacyVersion(wanted) {
		version = wanted
	}
	caps, info := mcp.Member(hello, "capabilities"), mcp.Member(hello, "_meta", metaServer)
	if caps == nil {
		caps = []byte(`{}`)
	}
	if info == nil {
		info = ownInfo
	}
	out := append([]byte(`{"protocolVersion":"`+version+`","capabilities":`), caps...)
	out = append(append(out, `,"serverInfo":`...), info...)
	if i := mcp.Member(hello, "instructions"); i != nil {
		out = append(append(out, `,"instructions":`...), i...)
	}
	return append(out, '}')
}

// statusOf is the HTTP status of an answer to a stateless request.
func statusOf(answer []byte) int {
	code := mcp.Member(answer, "error", "code")
	if code == nil {
		return http.StatusOK
	}
	switch string(code) {
	case "-32601":
		return http.StatusNotFound
	case "-32602", "-32600", "-32700", "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	}
	return http.StatusOK
}
