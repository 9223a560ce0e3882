package gateway

import (
	"fmt"
	"net/http"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// ssePath is where clients of the transport of 2024-11-05 come in: a GET opens
// the session and its stream, whose first event names where messages go.
const ssePath = "/sse"

// sseOpen opens a session that lasts as long as its stream.
func (g *Gateway) sseOpen(w http.ResponseWriter, r *http.Request, who *Identity, at *endpoint) {
	if _, events := accepts(r); !events {
		fail(w, http.StatusNotAcceptable, "Not Acceptable: want text/event-stream")
		return
	}
	if !g.openStream(1) {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "Service Unavailable: too many open streams")
		return
	}
	defer g.openStream(-1)
	p, why := g.openSession(who, at, nil)
	if why != "" {
		fail(w, http.StatusServiceUnavailable, "Service Unavailable: "+why)
		return
	}
	p.enter()
	defer func() {
		p.leave()
		g.forget(p)
		p.end(errClosed)
	}()
	s := p.standalone
	s.log = nil // a stream of this kind is not taken up again
	gone := s.attach(w, 0, false)
	s.greet(fmt.Sprintf("event: endpoint\ndata: %s?session=%s\n\n", r.URL.Path, p.id))
	s.keepsAlive()
	select {
	case <-gone:
	case <-r.Context().Done():
	case <-p.ctx.Done():
	}
	s.detach(w)
}

// greet writes an event of the transport's own.
func (s *stream) greet(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put([]byte(text))
}

// ssePost takes a message; what it is answered by goes out on the stream.
func (g *Gateway) ssePost(w http.ResponseWriter, r *http.Request, who *Identity, at *endpoint) {
	if !takesBody(w, r) {
		return
	}
	p := g.session(r.URL.Query().Get("session"), who, at)
	if p == nil || p.standalone.log != nil {
		failWith(w, http.StatusNotFound, -32001, "Session not found")
		return
	}
	leave, why := g.enter(who)
	if why != "" {
		fail(w, http.StatusServiceUnavailable, "Service Unavailable: "+why)
		return
	}
	body, status := g.read(w, r)
	if status != 0 {
		leave()
		w.Header().Set("Connection", "close")
		fail(w, status, http.StatusText(status)+": the body could not be read, or is longer than allowed")
		return
	}
	w.WriteHeader(http.StatusAccepted)
	out := newStream(nil, true, g.limits.Write)
	out.via = p.standalone
	p.enter()
	g.work.Add(1)
	go func() {
		defer g.work.Done()
		defer leave()
		defer p.leave()
		e, ok := mcp.ReadEnvelope(body)
		if ok && e.Method == "initialize" && e.ID != nil {
			p.mu.Lock()
			first := p.params == nil
			if first {
				p.params = append([]byte(nil), e.Params...)
				p.caps = mcp.Member(p.params, "capabilities")
				p.version = mcp.Text(mcp.Member(p.params, "protocolVersion"))
			}
			p.mu.Unlock()
			if first {
				out.finish(p.initialize(p.ctx, &e), http.StatusOK)
				return
			}
		}
		p.post(body, &e, ok, out)
	}()
}
