package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// postStateless takes a message of revision 2026-07-28.
func (g *Gateway) postStateless(r *http.Request, who *Identity, at *endpoint, body []byte, out *stream) {
	e, ok := mcp.ReadEnvelope(body)
	p := g.window(who, at)
	if p == nil {
		out.finish(mcp.ErrorAnswer(e.ID, codeServer, "the gateway is ending"), http.StatusServiceUnavailable)
		return
	}
	p.enter()
	defer p.leave()
	if !ok {
		p.malformed(body, "not a JSON-RPC message", out)
		return
	}
	if v := r.Header.Get(headerVersion); v != "" && v != newest {
		answer := mcp.ErrorAnswer(e.ID, codeVersion, "unsupported protocol version")
		out.finish(mcp.Edit(answer, []byte(`{"supported":["`+newest+`","`+strings.Join(legacyVersions[:], `","`)+`"],"requested":`+string(quote(clip(v, 32)))+`}`), "error", "data"), http.StatusBadRequest)
		return
	}
	if why, code := mismatch(r.Header, &e); why != "" {
		if u := at.first(); u == nil || p.judgeFor(u).Malformed(r.Context(), body, why) || code == codeParams {
			out.finish(mcp.ErrorAnswer(e.ID, code, "Bad Request: "+why), http.StatusBadRequest)
			return
		}
	}
	if !e.IsRequest() {
		p.statelessNote(body, &e, out)
		return
	}
	if !hasStateless(e.Method) {
		out.finish(mcp.ErrorAnswer(e.ID, codeNoMethod, "Method not found: revision "+newest+" does not have "+e.Method), http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	// The stream is the request: when the client closes it, nobody waits.
	defer context.AfterFunc(r.Context(), func() { cancel(errCancelled) })()
	req := &request{e: &e, body: body, headers: r.Header, out: out}
	if e.Method == "subscriptions/listen" {
		out.keepsAlive()
		answer := p.listen(ctx, req)
		out.finish(answer, statusOf(answer))
		return
	}
	ctx, stop := context.WithTimeoutCause(ctx, g.limits.Call, errTooLong)
	defer stop()
	out.keepsAlive()
	answer := p.serveStateless(ctx, cancel, req)
	out.finish(answer, statusOf(answer))
}

// statelessNote takes what asks for no answer.
func (p *party) statelessNote(body []byte, e *mcp.Envelope, out *stream) {
	u := p.at.first()
	if u == nil || e.Method == "" {
		out.finish(mcp.ErrorAnswer(nil, -32600, "Invalid Request: a reply to nothing that was asked"), http.StatusBadRequest)
		return
	}
	v := p.judgeFor(u).Client(p.ctx, body)
	p.after(v)
	if v.Forward == nil {
		out.finish(v.Answer, http.StatusBadRequest)
		return
	}
	out.finish(nil, http.StatusAccepted) // it concerns no request that is known by its id
}

// serveStateless answers one request.
func (p *party) serveStateless(ctx context.Context, cancel context.CancelCauseFunc, r *request) []byte {
	x := &exchange{method: r.e.Method, clientID: r.e.ID, out: r.out, cancel: cancel}
	if p.at.aggregate() && r.e.Method == "server/discover" {
		hellos, err := p.greetings(ctx, r.e)
		if err != nil {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon: "+err.Error())
		}
		for i := range hellos {
			hellos[i].said = p.heard(ctx, &hellos[i])
		}
		return mcp.ResultAnswer(r.e.ID, discovered(mergedHello(hellos)))
	}
	if state := mcp.Text(mcp.Member(r.e.Params, "requestState")); strings.HasPrefix(state, parkedState) {
		return p.resume(ctx, r, state)
	}
	u, own, _ := p.at.target(r.e, r.body)
	if u == nil {
		return p.route(ctx, r, x)
	}
	if !p.asksMidway(ctx, u, r.e) {
		return p.one(ctx, u, r, own, x)
	}
	return p.oneMidway(ctx, u, r, own)
}

// asksMidway: the server has sessions, and may send requests of its own while
// it works on this one.
func (p *party) asksMidway(ctx context.Context, u *upstream, e *mcp.Envelope) bool {
	method := e.Method
	if method != "tools/call" && method != "prompts/get" && method != "resources/read" {
		return false
	}
	_, speaks, err := p.peerFor(u, e).openLink(ctx)
	return err == nil && speaks == eraSessions
}

// parked is a call of a stateless client at a server with sessions. It goes on
// while the client is asked for input.
type parked struct {
	u     *upstream
	judge *mcp.Judge
	r     *request // the first one
	own   []byte
	peer  *peer
	x     *exchange
	done  chan []byte
	asks  chan []byte // requests of the server
	since time.Time

	mu  sync.Mutex // guards out and gone
	out *stream    // of who waits now; nil while nobody does
	// waiting are the server's ids by the key that the client has.
	waiting map[string][]byte
}

var errUndeclared = errors.New("the client cannot be asked what the server wants to know")

const (
	parkedState = "cordon-wait:"
	// maxParked is how many calls of a token may wait for input.
	maxParked = 256
	parkedFor = 15 * time.Minute
)

// oneMidway is one, for a server that may ask while it works.
func (p *party) oneMidway(ctx context.Context, u *upstream, r *request, own []byte) []byte {
	j := p.judgeFor(u)
	judging, done := p.judging(ctx)
	v := j.Client(judging, own)
	done()
	p.after(v)
	if v.Forward == nil {
		if v.Answer == nil {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon refused this message.")
		}
		return v.Answer
	}
	life, cancel := context.WithCancelCause(p.ctx)
	k := &parked{u: u, judge: j, r: r, own: own, done: make(chan []byte, 1), asks: make(chan []byte, 16),
		since: time.Now(), out: r.out, waiting: map[string][]byte{}}
	k.x = &exchange{method: r.e.Method, clientID: r.e.ID, cancel: cancel}
	c := p.peerFor(u, r.e)
	k.peer = c
	k.x.got = func(msg []byte) { k.came(p, c, msg) }
	k.x.msg = withoutMeta(mcp.Edit(mcp.Edit(v.Forward, nil, "params", "inputResponses"), nil, "params", "requestState"))
	p.gw.work.Add(1)
	go func() {
		defer p.gw.work.Done()
		defer cancel(nil)
		limited, stop := context.WithTimeoutCause(life, p.gw.limits.Call+parkedFor, errTooLong)
		defer stop()
		answer, err := c.request(limited, k.x)
		if err != nil {
			k.done <- p.undone(limited, u, j, r, err)
			return
		}
		k.done <- p.finished(c, eraSessions, r, p.judged(limited, j, r, answer))
	}()
	return p.await(ctx, k, r)
}

// came takes what the server sends while it works.
func (k *parked) came(p *party, c *peer, msg []byte) {
	v := k.judge.Server(p.ctx, msg)
	p.after(v)
	e, ok := mcp.ReadEnvelope(v.Forward)
	if !ok || v.Forward == nil {
		return
	}
	switch {
	case e.ID == nil:
		k.mu.Lock()
		out := k.out
		k.mu.Unlock()
		if out != nil {
			out.send(v.Forward)
		}
	case e.Method == "ping":
		c.tell(p.ctx, mcp.ResultAnswer(e.ID, []byte(`{}`)))
	default:
		select {
		case k.asks <- bytes.Clone(v.Forward):
		default:
			c.tell(p.ctx, mcp.ErrorAnswer(e.ID, codeServer, "the client is asked too much at once"))
		}
	}
}

// await waits for the answer, or for a question of the server.
func (p *party) await(ctx context.Context, k *parked, r *request) []byte {
	for {
		select {
		case answer := <-k.done:
			return mcp.Edit(answer, r.e.ID, "id")
		case ask := <-k.asks:
			if answer := p.park(k, r, ask); answer != nil {
				return answer
			}
		case <-ctx.Done():
			why := context.Cause(ctx)
			k.x.cancel(why)
			return p.undone(ctx, k.u, k.judge, r, why)
		}
	}
}

// canBe reports whether a client said that it can be asked by a method.
func canBe(asked string, e *mcp.Envelope) bool {
	kind, _, _ := strings.Cut(asked, "/")
	switch asked {
	case "elicitation/create", "sampling/createMessage", "roots/list":
		return mcp.Member(e.Params, "_meta", metaCapabilities, kind) != nil
	}
	return false
}

// park answers the client's request by what the server wants to know. It
// returns nil where the client cannot be asked that; the server is told.
func (p *party) park(k *parked, r *request, ask []byte) []byte {
	e, _ := mcp.ReadEnvelope(ask)
	if !canBe(e.Method, r.e) {
		k.peer.tell(p.ctx, mcp.ErrorAnswer(e.ID, codeNoMethod, "the client did not say that it can be asked this"))
		kind, _, _ := strings.Cut(e.Method, "/")
		if kind != "elicitation" && kind != "sampling" && kind != "roots" {
			return nil // no client can
		}
		k.x.cancel(errUndeclared)
		answer := mcp.ErrorAnswer(r.e.ID, codeCapabilities, "The server asks for what the client did not say that it can do: "+kind)
		return mcp.Edit(answer, fmt.Appendf(nil, `{"requiredCapabilities":{%s:{}}}`, quote(kind)), "error", "data")
	}
	state := parkedState + rand.Text()
	key := "q1"
	k.mu.Lock()
	k.out = nil
	k.waiting[key] = bytes.Clone(e.ID)
	k.mu.Unlock()
	p.mu.Lock()
	var old []*parked
	for s, other := range p.parked {
		if time.Since(other.since) > parkedFor || len(p.parked) >= maxParked && len(old) == 0 {
			old = append(old, other)
			delete(p.parked, s)
		}
	}
	k.since = time.Now()
	p.parked[state] = k
	p.mu.Unlock()
	for _, o := range old {
		o.x.cancel(errors.New("nobody answered the server's question"))
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":{"`+key+`":{"method":`), quote(e.Method)...)
	if e.Params != nil {
		result = append(append(result, `,"params":`...), e.Params...)
	}
	result = append(append(result, `}},"requestState":`...), quote(state)...)
	return mcp.ResultAnswer(r.e.ID, append(result, '}'))
}

// resume takes up a call that waits, with the client's input. The call is
// decided on anew: its arguments, or what may pass, could have changed.
func (p *party) resume(ctx context.Context, r *request, state string) []byte {
	p.mu.Lock()
	k := p.parked[state]
	delete(p.parked, state)
	p.mu.Unlock()
	if k == nil {
		return mcp.ErrorAnswer(r.e.ID, codeParams, "Invalid params: the requestState is not, or no longer, known; send the request anew without it")
	}
	u, own, _ := p.at.target(r.e, r.body)
	if u != k.u || !sameRequest(k.own, own) {
		k.x.cancel(errors.New("the request was sent again with other arguments"))
		if u != nil {
			p.newJudge(u).Malformed(ctx, r.body, "the request was sent again with other arguments under the same requestState")
		}
		return mcp.ErrorAnswer(r.e.ID, codeParams, "Invalid params: the arguments differ from those that the requestState is for")
	}
	again := p.newJudge(u)
	v := again.Client(ctx, own)
	p.after(v)
	if v.Forward == nil {
		k.x.cancel(errors.New("the call was refused when it was sent again"))
		return v.Answer
	}
	_, settle := again.Close(ctx, "taken up", false) // the first decision is the one that is used
	p.settle(settle)
	k.mu.Lock()
	k.out = r.out
	waiting := k.waiting
	k.waiting = map[string][]byte{}
	k.mu.Unlock()
	c := k.peer
	for key, id := range waiting {
		if response := mcp.Member(r.e.Params, "inputResponses", key); response != nil {
			c.tell(ctx, mcp.ResultAnswer(id, response))
		} else {
			c.tell(ctx, mcp.ErrorAnswer(id, codeServer, "the client gave no answer"))
		}
	}
	return p.await(ctx, k, r)
}

// sameRequest compares what two requests ask for.
func sameRequest(a, b []byte) bool {
	for _, path := range [][]string{{"method"}, {"params", "name"}, {"params", "arguments"}, {"params", "uri"}} {
		if !bytes.Equal(mcp.Member(a, path...), mcp.Member(b, path...)) {
			return false
		}
	}
	return true
}

// listener is an open subscriptions/listen of a stateless client.
type listener struct {
	id                        []byte
	out                       *stream
	tools, prompts, resources bool
	uris                      map[string]bool // as the server knows them, with its name before them
}

// listen serves subscriptions/listen until the client closes it.
func (p *party) listen(ctx context.Context, r *request) []byte {
	wants := mcp.Member(r.e.Params, "notifications")
	uris := mcp.Elements(mcp.Member(wants, "resourceSubscriptions"))
	if len(uris) > 256 {
		return mcp.ErrorAnswer(r.e.ID, codeParams, "Invalid params: too many subscriptions")
	}
	// Who watches a resource learns what becomes of it: each is judged as a read.
	for _, raw := range uris {
		u, uri := p.at.splitURI(mcp.Text(raw))
		if !p.at.aggregate() {
			u, uri = p.at.first(), mcp.Text(raw)
		}
		if u == nil {
			return mcp.ErrorAnswer(r.e.ID, codeParams, "Invalid params: a resource is of no server here")
		}
		j := p.newJudge(u)
		v := j.Client(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"resources/subscribe","params":{"uri":%s}}`, r.e.ID, quote(uri)))
		p.after(v)
		if v.Forward == nil {
			return v.Answer
		}
		_, settle := j.Close(ctx, "subscribed", false)
		p.settle(settle)
	}
	if !p.at.aggregate() {
		u := p.at.first()
		_, e, err := p.peerFor(u, r.e).openLink(ctx)
		if err != nil {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon: "+err.Error())
		}
		if e == eraStateless {
			return p.one(ctx, u, r, r.body, &exchange{method: r.e.Method, clientID: r.e.ID, out: r.out, cancel: func(error) {}})
		}
	}
	return p.listenHere(ctx, r, wants, uris)
}
