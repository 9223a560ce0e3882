package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// The headers of the protocol.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-Id"
)

// endpoint is where a request goes: one server, or all that the caller may use.
type endpoint struct {
	name string // empty for all
	ups  []*upstream
}

func (e *endpoint) aggregate() bool { return e.name == "" }

// endpointOf resolves a path for a caller. A server that the caller may not use
// is as absent as one that is not there.
func (g *Gateway) endpointOf(path string, who *Identity) *endpoint {
	rest, ok := strings.CutPrefix(path, "/mcp")
	if !ok {
		if rest, ok = strings.CutPrefix(path, ssePath); !ok {
			return nil
		}
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		e := &endpoint{}
		for _, u := range g.ups {
			if who.may(u.cfg.Name) {
				e.ups = append(e.ups, u)
			}
		}
		return e
	}
	u := g.byName[strings.TrimPrefix(rest, "/")]
	if u == nil || !strings.HasPrefix(rest, "/") || !who.may(u.cfg.Name) {
		return nil
	}
	return &endpoint{name: u.cfg.Name, ups: []*upstream{u}}
}

// ServeHTTP answers one request. What is refused before the caller is known
// is refused without reading the body.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// Had it a length as well, a proxy in front may see another end of it.
		h.Set("Connection", "close")
	}
	if why := g.gate.refuses(r); why != "" {
		fail(w, http.StatusForbidden, "Forbidden: "+why)
		return
	}
	who := g.auth.identify(r)
	if who == nil {
		h.Set("WWW-Authenticate", `Bearer realm="cordon"`)
		fail(w, http.StatusUnauthorized, "Unauthorized: want a bearer token of this gateway")
		return
	}
	at := g.endpointOf(r.URL.Path, who)
	if at == nil {
		fail(w, http.StatusNotFound, "Not Found: want /mcp, or /mcp/NAME of a server that this token may use")
		return
	}
	for _, name := range []string{headerSession, headerVersion, headerMethod, headerName, headerLast, "Content-Type"} {
		if len(r.Header.Values(name)) > 1 {
			fail(w, http.StatusBadRequest, "Bad Request: more than one "+name)
			return
		}
	}
	old := strings.HasPrefix(r.URL.Path, ssePath)
	switch {
	case old && r.Method == http.MethodGet:
		g.sseOpen(w, r, who, at)
		return
	case old && r.Method == http.MethodPost:
		g.ssePost(w, r, who, at)
		return
	}
	switch r.Method {
	case http.MethodPost:
		g.post(w, r, who, at)
	case http.MethodGet:
		g.get(w, r, who, at)
	case http.MethodDelete:
		g.delete(w, r, who, at)
	default:
		h.Set("Allow", "POST, GET, DELETE")
		fail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

func fail(w http.ResponseWriter, status int, text string) { failWith(w, status, -32600, text) }

func failWith(w http.ResponseWriter, status, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mcp.ErrorAnswer(nil, code, text)) // the client may be gone
}

// accepts reads what the client takes; none at all is everything.
func accepts(r *http.Request) (asJSON, asEvents bool) {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true, true
	}
	for _, part := range strings.Split(strings.Join(values, ","), ",") {
		kind, params, _ := mime.ParseMediaType(part)
		if params["q"] == "0" {
			continue
		}
		switch kind {
		case "*/*":
			return true, true
		case "application/json", "application/*":
			asJSON = true
		case "text/event-stream", "text/*":
			asEvents = true
		}
	}
	return asJSON, asEvents
}

// takesBody refuses a body that is not plain JSON: a form, as any page may post
// one, or one in a coding, for what is judged is what is read.
func takesBody(w http.ResponseWriter, r *http.Request) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "Unsupported Media Type: want application/json")
		return false
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		fail(w, http.StatusUnsupportedMediaType, "Unsupported Media Type: no content coding is taken")
		return false
	}
	return true
}

func (g *Gateway) post(w http.ResponseWriter, r *http.Request, who *Identity, at *endpoint) {
	if !takesBody(w, r) {
		return
	}
	asJSON, asEvents := accepts(r)
	if !asJSON && !asEvents {
		fail(w, http.StatusNotAcceptable, "Not Acceptable: want application/json and text/event-stream")
		return
	}
	leave, why := g.enter(who)
	if why != "" {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "Service Unavailable: "+why)
		return
	}
	defer leave()
	body, status := g.read(w, r)
	if status != 0 {
		w.Header().Set("Connection", "close") // what is left of the body is not waited for
		fail(w, status, http.StatusText(status)+": the body could not be read, or is longer than allowed")
		return
	}
	out := newStream(w, asEvents, g.limits.Write)
	version := r.Header.Get(headerVersion)
	if stateless(version) || statelessBody(body) {
		g.postStateless(r, who, at, body, out)
		return
	}
	g.postSession(r, who, at, body, out)
}

// read takes the whole body within its limits. A status says what went wrong.
func (g *Gateway) read(w http.ResponseWriter, r *http.Request) ([]byte, int) {
	if r.ContentLength > g.limits.Body {
		return nil, http.StatusRequestEntityTooLarge
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(g.limits.Read)) // not every writer has one
	buf := bytes.NewBuffer(make([]byte, 0, max(r.ContentLength, 512)+1))
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, g.limits.Body))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, http.StatusRequestEntityTooLarge
	case err != nil:
		return nil, http.StatusBadRequest
	}
	_ = rc.SetReadDeadline(time.Time{})
	return buf.Bytes(), 0
}

// enter counts a request in.
func (g *Gateway) enter(who *Identity) (leave func(), why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return nil, "the gateway is ending"
	case g.flying >= g.limits.Requests, g.inFlight[who.Name] >= g.limits.PerToken:
		return nil, "too many requests are waiting for an answer"
	}
	g.flying++
	g.inFlight[who.Name]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.flying--
		if g.inFlight[who.Name]--; g.inFlight[who.Name] <= 0 {
			delete(g.inFlight, who.Name)
		}
	}, ""
}

// postSession takes a message of a client that has, or opens, a session.
func (g *Gateway) postSession(r *http.Request, who *Identity, at *endpoint, body []byte, out *stream) {
	id := r.Header.Get(headerSession)
	e, ok := mcp.ReadEnvelope(body)
	if id == "" {
		if !ok || e.Method != "initialize" || e.ID == nil {
			g.refuseOutside(r.Context(), who, at, body, ok, out)
			return
		}
		p, why := g.openSession(who, at, e.Params)
		if why != "" {
			out.finish(mcp.ErrorAnswer(e.ID, -32000, why), http.StatusServiceUnavailable)
			return
		}
		p.enter()
		defer p.leave()
		answer := p.initialize(p.ctx, &e)
		if mcp.Member(answer, "result") == nil {
			g.forget(p)
			p.end(errClosed)
		} else {
			out.w.Header().Set(headerSession, p.id)
		}
		out.finish(answer, http.StatusOK)
		return
	}
	p := g.session(id, who, at)
	if p == nil {
		out.finish(mcp.ErrorAnswer(e.ID, -32001, "Session not found"), http.StatusNotFound)
		return
	}
	p.enter()
	defer p.leave()
	if v := r.Header.Get(headerVersion); v != "" && !legacyVersion(v) && v != p.spoken() {
		out.finish(mcp.ErrorAnswer(e.ID, -32600, "Bad Request: unsupported protocol version"), http.StatusBadRequest)
		return
	}
	if !ok && json.Valid(body) && bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		p.batch(body, out)
		return
	}
	p.post(body, &e, ok, out)
}

// refuseOutside answers a message that belongs to no session. What cannot be
// read is decided on, so that it is in the audit.
func (g *Gateway) refuseOutside(ctx context.Context, who *Identity, at *endpoint, body []byte, readable bool, out *stream) {
	if readable {
		e, _ := mcp.ReadEnvelope(body)
		out.finish(mcp.ErrorAnswer(e.ID, -32600, "Bad Request: want an initialize request, or the Mcp-Session-Id of a session"), http.StatusBadRequest)
		return
	}
	p := g.window(who, at)
	if p == nil {
		out.finish(mcp.ErrorAnswer(nil, -32000, "too many sessions"), http.StatusServiceUnavailable)
		return
	}
	p.enter()
	defer p.leave()
	p.judgeFor(p.at.first()).Malformed(ctx, body, "neither a message of a session nor one that opens one")
	out.finish(mcp.ErrorAnswer(nil, -32700, "Parse error: want one JSON-RPC 2.0 message"), http.StatusBadRequest)
}

// get opens the stream of a session, or takes up one that broke.
func (g *Gateway) get(w http.ResponseWriter, r *http.Request, who *Identity, at *endpoint) {
	id := r.Header.Get(headerSession)
	if stateless(r.Header.Get(headerVersion)) || id == "" {
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, "Method Not Allowed: GET is for the stream of a session")
		return
	}
	if _, events := accepts(r); !events {
		fail(w, http.StatusNotAcceptable, "Not Acceptable: want text/event-stream")
		return
	}
	p := g.session(id, who, at)
	if p == nil {
		failWith(w, http.StatusNotFound, -32001, "Session not found")
		return
	}
	s, after, again := p.standalone, 0, false
	if last := r.Header.Get(headerLast); last != "" {
		name, n, ok := splitEventID(last)
		if s = p.stream(name); !ok || s == nil {
			// What was asked for is no longer here; the session's own stream is.
			s = p.standalone
		} else {
			after, again = n, true
		}
	}
	if !g.openStream(1) {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "Service Unavailable: too many open streams")
		return
	}
	defer g.openStream(-1)
	p.enter()
	defer p.leave()
	gone := s.attach(w, after, again)
	s.keepsAlive()
	select {
	case <-gone:
	case <-r.Context().Done():
	case <-p.ctx.Done():
	}
	s.detach(w)
}

func (g *Gateway) openStream(d int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d > 0 && (g.closed || g.streams >= g.limits.Streams) {
		return false
	}
	g.streams += d
	return true
}

func (g *Gateway) delete(w http.ResponseWriter, r *http.Request, who *Identity, at *endpoint) {
	id := r.Header.Get(headerSession)
	if id == "" {
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, "Method Not Allowed: DELETE is for a session")
		return
	}
	p := g.session(id, who, at)
	if p == nil {
		failWith(w, http.StatusNotFound, -32001, "Session not found")
		return
	}
	g.forget(p)
	p.end(errClosed)
	w.WriteHeader(http.StatusNoContent)
}

// session is that of an id, for the token and the endpoint it was opened with.
func (g *Gateway) session(id string, who *Identity, at *endpoint) *party {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.sessions[id]
	if p == nil || p.who != who || p.at.name != at.name || p.ctx.Err() != nil {
		return nil
	}
	return p
}

// drainTime is how long a response may take to end once it was answered.
const drainTime = 50 * time.Millisecond

// drainBody reads what is left of a response, so that the connection serves
// again, but no more, and for no longer, than is cheaper than a new one: a
// server that leaves its stream open holds nobody up.
func drainBody(b io.ReadCloser) {
	late := time.AfterFunc(drainTime, func() { _ = b.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, b, 64<<10) // an error shows at the next request
	_ = b.Close()
}
