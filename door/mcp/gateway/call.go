package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/mcp"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

func quote(s string) []byte { return strictjson.AppendString(nil, s) }

// request is one request of a client, while it is served.
type request struct {
	e       *mcp.Envelope
	body    []byte
	headers http.Header // of a stateless one
	out     *stream
}

// post takes one message of a session.
func (p *party) post(body []byte, e *mcp.Envelope, ok bool, out *stream) {
	if !ok {
		p.malformed(body, "not a JSON-RPC message", out)
		return
	}
	if !e.IsRequest() {
		answer := p.notified(body, e)
		status := http.StatusAccepted
		if answer != nil {
			status = http.StatusBadRequest
		}
		out.finish(answer, status)
		return
	}
	done := p.listed(out)
	defer done()
	out.keepsAlive()
	out.finish(p.serve(&request{e: e, body: body, out: out}), http.StatusOK)
}

// malformed decides on what is no message, and answers it.
func (p *party) malformed(body []byte, why string, out *stream) {
	if u := p.at.first(); u != nil {
		p.judgeFor(u).Malformed(p.ctx, body, why)
	}
	out.finish(mcp.ErrorAnswer(nil, -32700, "Parse error: "+why), http.StatusBadRequest)
}

// maxBatch is how many messages a batch may hold.
const maxBatch = 256

// batch takes the messages of a batch, which revisions up to 2025-03-26 have,
// each for itself.
func (p *party) batch(body []byte, out *stream) {
	items := mcp.Elements(body)
	if len(items) == 0 || len(items) > maxBatch || p.spoken() >= "2025-06-18" {
		p.malformed(body, fmt.Sprintf("a batch of %d messages in revision %.10s", len(items), p.spoken()), out)
		return
	}
	done := p.listed(out)
	defer done()
	var mu sync.Mutex
	var answers [][]byte
	var wg sync.WaitGroup
	for _, item := range items {
		e, ok := mcp.ReadEnvelope(item)
		switch {
		case !ok || e.Method == "initialize":
			p.judgeFor(p.at.first()).Malformed(p.ctx, item, "it may not stand in a batch")
			mu.Lock()
			answers = append(answers, mcp.ErrorAnswer(e.ID, -32600, "Invalid Request: it may not stand in a batch"))
			mu.Unlock()
		case !e.IsRequest():
			if a := p.notified(item, &e); a != nil {
				mu.Lock()
				answers = append(answers, a)
				mu.Unlock()
			}
		default:
			wg.Go(func() {
				a := p.serve(&request{e: &e, body: item, out: out})
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, a)
			})
		}
	}
	wg.Wait()
	if len(answers) == 0 {
		out.finish(nil, http.StatusAccepted)
		return
	}
	out.finish(append(append([]byte{'['}, bytes.Join(answers, []byte{','})...), ']'), http.StatusOK)
}

// notified takes a notification or a reply of a session. It returns what is
// wrong with it, or nil.
func (p *party) notified(body []byte, e *mcp.Envelope) []byte {
	u := p.at.first()
	if u == nil {
		return nil
	}
	v := p.judgeFor(u).Client(p.ctx, body)
	p.after(v)
	if v.Forward == nil {
		return v.Answer
	}
	switch e.Method {
	case "":
		p.replied(p.ctx, e, body)
	case "notifications/initialized":
		p.everyPeer(func(c *peer) {
			if l, _, err := c.openLink(p.ctx); err == nil {
				c.initialized(p.ctx, l)
			}
		})
	case "notifications/cancelled":
		p.mu.Lock()
		x := p.open[mcp.KeyOf(mcp.Member(e.Params, "requestId"))]
		p.mu.Unlock()
		if x != nil {
			x.cancel(errCancelled)
		}
	default:
		// Of several servers it was judged for the first alone: only what can
		// do nothing goes to the others.
		if p.at.aggregate() && e.Method != "notifications/roots/list_changed" {
			return nil
		}
		p.everyPeer(func(c *peer) {
			c.mu.Lock()
			sessions := c.era == eraSessions
			c.mu.Unlock()
			if sessions {
				c.tell(p.ctx, body)
			}
		})
	}
	return nil
}

var errCancelled = errors.New("the client cancelled the request")

func (p *party) everyPeer(do func(*peer)) {
	p.mu.Lock()
	peers := make([]*peer, 0, len(p.peers))
	for _, c := range p.peers {
		peers = append(peers, c)
	}
	p.mu.Unlock()
	for _, c := range peers {
		do(c)
	}
}

// after does what a verdict asks for beside passing on.
func (p *party) after(v mcp.Verdict) {
	if v.Note != "" {
		p.gw.cfg.Logf("%s (token %s)", v.Note, p.who.Name)
	}
	p.settle(v.Settle)
}

func (p *party) settle(do func() error) {
	if do == nil {
		return
	}
	if err := do(); err != nil {
		p.gw.cfg.Logf("gateway: %v", err)
	}
}

// initialize opens a session's servers and answers its first request.
func (p *party) initialize(ctx context.Context, e *mcp.Envelope) []byte {
	if p.ctx.Err() != nil {
		return mcp.ErrorAnswer(e.ID, codeServer, p.endedText())
	}
	hellos, err := p.greetings(ctx, e)
	if err != nil {
		return mcp.ErrorAnswer(e.ID, codeServer, "Cordon: "+err.Error())
	}
	for i := range hellos {
		hellos[i].said = p.heard(ctx, &hellos[i])
	}
	if !p.at.aggregate() {
		h := hellos[0]
		if h.era == eraStateless {
			return mcp.ResultAnswer(e.ID, initializedBy(h.said, p.spoken()))
		}
		p.mu.Lock()
		p.version = h.version
		p.mu.Unlock()
		return mcp.ResultAnswer(e.ID, h.said)
	}
	merged := mergedHello(hellos)
	result := initializedBy(merged, p.spoken())
	p.mu.Lock()
	p.version = mcp.Text(mcp.Member(result, "protocolVersion"))
	p.mu.Unlock()
	return mcp.ResultAnswer(e.ID, result)
}

func (p *party) endedText() string {
	if p.killed() {
		return p.killedText()
	}
	return "Cordon: the session has ended"
}

// hello is what a server said of itself.
type hello struct {
	server, version string
	era             era
	said            []byte
}

// heard is what a server said of itself as the client may have it: its
// instructions are recorded, as every text for the model is.
func (p *party) heard(ctx context.Context, h *hello) []byte {
	j := p.newJudge(p.gw.byName[h.server])
	p.after(j.Client(ctx, []byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)))
	v := j.Server(ctx, mcp.ResultAnswer([]byte(`0`), h.said))
	p.after(v)
	if said := mcp.Member(v.Forward, "result"); said != nil {
		return said
	}
	return []byte(`{}`)
}

// greetings opens all servers of the endpoint at once. Of several, those that
// cannot be opened are left out.
func (p *party) greetings(ctx context.Context, e *mcp.Envelope) ([]hello, error) {
	out := make([]hello, len(p.at.ups))
	errs := make([]error, len(p.at.ups))
	var wg sync.WaitGroup
	for i, u := range p.at.ups {
		wg.Go(func() {
			c := p.peerFor(u, e)
			if _, _, errs[i] = c.openLink(ctx); errs[i] != nil {
				return
			}
			c.mu.Lock()
			out[i] = hello{u.cfg.Name, c.version, c.era, c.hello}
			c.mu.Unlock()
		})
	}
	wg.Wait()
	var good []hello
	for i := range out {
		if errs[i] == nil {
			good = append(good, out[i])
		} else {
			p.gw.cfg.Logf("gateway: %v", errs[i])
		}
	}
	if len(good) == 0 {
		return nil, errors.Join(append(errs, errors.New("no server can be reached"))...)
	}
	return good, nil
}

// mergedHello is a discover result for several servers.
func mergedHello(hellos []hello) []byte {
	caps := map[string]json.RawMessage{}
	text := ""
	for _, h := range hellos {
		for k, v := range mcp.Entries(mcp.Member(h.said, "capabilities")) {
			switch k {
			case "tools", "prompts", "resources", "completions", "logging":
				// What one can the endpoint can; the longer says more.
				if len(v) > len(caps[k]) {
					caps[k] = v
				}
			}
		}
		if i := mcp.Text(mcp.Member(h.said, "instructions")); i != "" {
			text += fmt.Sprintf("[%s] %s\n", h.server, i)
		}
	}
	raw, err := json.Marshal(caps)
	if err != nil {
		raw = []byte(`{}`)
	}
	out := append([]byte(`{"capabilities":`), raw...)
	if text != "" {
		out = append(append(out, `,"instructions":`...), quote(text)...)
	}
	out = append(out, `,"serverInfo":`...)
	out = append(append(out, ownInfo...), `,"_meta":{"`+metaServer+`":`...)
	return append(append(out, ownInfo...), "}}"...)
}

// serve answers one request of a session.
func (p *party) serve(r *request) []byte {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	x := &exchange{method: r.e.Method, clientID: r.e.ID, out: r.out, cancel: cancel}
	x.clock = time.AfterFunc(p.gw.limits.Call, func() { cancel(errTooLong) })
	defer x.clock.Stop()
	if why := p.takes(r.e.Key, x); why != "" {
		p.judgeFor(p.at.first()).Malformed(p.ctx, r.body, why)
		return mcp.ErrorAnswer(nil, -32600, "Invalid Request: "+why)
	}
	defer p.gives(r.e.Key)
	switch r.e.Method {
	case "initialize":
		return mcp.ErrorAnswer(r.e.ID, -32600, "Invalid Request: the session is open already")
	case "logging/setLevel":
		p.mu.Lock()
		p.logLevel = append([]byte(nil), mcp.Member(r.e.Params, "level")...)
		p.mu.Unlock()
	case "ping":
		if p.at.aggregate() {
			return mcp.ResultAnswer(r.e.ID, []byte(`{}`))
		}
	}
	return p.route(ctx, r, x)
}

var errTooLong = errors.New("it took longer than a request may")

// takes enters a request under its id.
func (p *party) takes(key string, x *exchange) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case key == "":
		return "the id is neither a string nor a number, or too long"
	case p.open[key] != nil:
		return "the id is that of a request which still waits for its answer"
	}
	p.seq++
	x.order = p.seq
	p.open[key] = x
	return ""
}

// gives ends a request, and what the client was asked for it.
func (p *party) gives(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.open[key]
	delete(p.open, key)
	for id, q := range p.asked {
		if q.x != nil && q.x.clock == x.clock {
			delete(p.asked, id)
		}
	}
}

// route finds the servers that a request is for.
func (p *party) route(ctx context.Context, r *request, x *exchange) []byte {
	u, own, several := p.at.target(r.e, r.body)
	switch {
	case u != nil:
		return p.one(ctx, u, r, own, x)
	case several:
		return p.all(ctx, r, x)
	case r.e.Method == "tools/call":
		// It is decided on under the name that it has, and so in the audit.
		if first := p.at.first(); first != nil {
			p.judgeFor(first).Malformed(p.ctx, r.body, "the tool is of no server here")
		}
		return mcp.ToolAnswer(r.e.ID, "There is no such tool behind this endpoint; its tools are named SERVER__TOOL, as tools/list has them.")
	case r.e.Method == "prompts/get" || r.e.Method == "completion/complete" || capability(r.e.Method) == "resources":
		return mcp.ErrorAnswer(r.e.ID, codeParams, "It is of no server here: behind this endpoint prompts are named SERVER__NAME and resources SERVER+URI, as the lists have them.")
	}
	return mcp.ErrorAnswer(r.e.ID, codeNoMethod, "Method not found behind the endpoint of all servers; a server's own is /mcp/NAME.")
}

// one has a request judged for one server, sends it, and judges what comes.
func (p *party) one(ctx context.Context, u *upstream, r *request, own []byte, x *exchange) []byte {
	j := p.judgeFor(u)
	judging, done := p.judging(ctx)
	v := j.Client(judging, own)
	done()
	if v.Ask != nil && p.id != "" {
		v = p.askPerson(ctx, j, own, v, x)
	}
	p.after(v)
	if v.Forward == nil {
		if v.Answer == nil {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon refused this message.")
		}
		return v.Answer
	}
	return p.send(ctx, u, j, r, v.Forward, x)
}

// askFor is how long a person may take to answer a form.
const askFor = 10 * time.Minute

// askPerson asks the client's user about a refused call, where the client can
// show a form, and carries out what they say.
func (p *party) askPerson(ctx context.Context, j *mcp.Judge, msg []byte, v mcp.Verdict, x *exchange) mcp.Verdict {
	p.mu.Lock()
	caps := p.caps
	p.mu.Unlock()
	if caps == nil || !mcp.TakesForms(caps) {
		return v
	}
	q, ok := p.ask(nil, mcp.ElicitRequest("cordon", v.Ask), x)
	if !ok {
		return v
	}
	t := time.NewTimer(askFor)
	defer t.Stop()
	select {
	case reply := <-q.reply:
		return j.Approve(ctx, msg, v, mcp.ReadAnswer(mcp.Member(reply, "result")))
	case <-t.C:
	case <-ctx.Done():
	}
	return v
}

// maxInputs is how much a server may ask for at once.
const maxInputs = 16

// maxRounds is how often a server without sessions may ask before it answers.
const maxRounds = 10

// send sends a request that may pass to a server, and returns its answer as the
// client may have it.
func (p *party) send(ctx context.Context, u *upstream, j *mcp.Judge, r *request, msg []byte, x *exchange) []byte {
	c := p.peerFor(u, r.e)
	x.got = func(m []byte) { p.fromServer(ctx, j, c, x, m) }
	for round := 0; ; round++ {
		_, e, err := c.openLink(ctx)
		if err != nil {
			return p.undone(ctx, u, j, r, err)
		}
		p.dress(c, e, r, msg, x)
		if local := p.local(r, c, e); local != nil {
			return p.judged(ctx, j, r, local)
		}
		answer, err := c.request(ctx, x)
		if err != nil {
			return p.undone(ctx, u, j, r, err)
		}
		if r.e.Method == "tools/list" && e == eraStateless && p.id != "" {
			u.learnsHeaders(answer)
		}
		answer = p.judged(ctx, j, r, answer)
		if p.id == "" || mcp.Text(mcp.Member(answer, "result", "resultType")) != "input_required" {
			return p.finished(c, e, r, answer)
		}
		if round >= maxRounds {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "The server asked for input too often.")
		}
		// The server's questions go to the client as requests. What comes back
		// is a new call to the guard, whatever it said to the first.
		msg, err = p.gather(ctx, x, msg, answer)
		if err != nil {
			return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon: "+err.Error())
		}
		v := j.Client(ctx, msg)
		p.after(v)
		if v.Forward == nil {
			return v.Answer
		}
	}
}

// dress makes the message one of the server's era.
func (p *party) dress(c *peer, e era, r *request, msg []byte, x *exchange) {
	x.msg, x.headers = msg, nil
	switch {
	case e == eraStateless && p.id != "":
		x.msg = c.withMeta(msg)
		env, _ := mcp.ReadEnvelope(x.msg)
		x.headers = standardHeaders(&env, nil)
		c.up.mirror(x.headers, &env)
	case e == eraStateless:
		env, _ := mcp.ReadEnvelope(x.msg)
		x.headers = standardHeaders(&env, r.headers)
	case p.id == "":
		x.msg = withoutMeta(msg)
	}
}

// local answers what the server's era does not have, or nil.
func (p *party) local(r *request, c *peer, e era) []byte {
	ok := func() []byte { return mcp.ResultAnswer(r.e.ID, []byte(`{}`)) }
	switch {
	case e == eraStateless && p.id != "":
		switch r.e.Method {
		case "ping", "logging/setLevel", "resources/unsubscribe":
			return ok()
		case "resources/subscribe":
			p.subscribe(c, r)
			return ok()
		}
	case e == eraSessions && p.id == "":
		switch r.e.Method {
		case "server/discover":
			c.mu.Lock()
			defer c.mu.Unlock()
			return mcp.ResultAnswer(r.e.ID, discovered(c.hello))
		}
	}
	return nil
}

// judged has the answer of a server judged; what may not pass becomes an error.
func (p *party) judged(ctx context.Context, j *mcp.Judge, r *request, answer []byte) []byte {
	v := j.Server(ctx, answer)
	p.after(v)
	if v.Forward == nil {
		return mcp.ErrorAnswer(r.e.ID, codeServer, "Cordon dropped the server's answer.")
	}
	return v.Forward
}

// finished is the answer in the client's era.
func (p *party) finished(c *peer, e era, r *request, answer []byte) []byte {
	if p.id != "" {
		return answer
	}
	if e == eraSessions {
		c.mu.Lock()
		info := mcp.Member(c.hello, "serverInfo")
		c.mu.Unlock()
		answer = asStateless(answer, r.e.Method, info)
	}
	// What a tier may see is for nobody else's cache.
	if r.e.Method == "tools/list" && p.gw.cfg.Mode == cordon.Enforce && mcp.Member(answer, "result", "cacheScope") != nil {
		answer = mcp.Edit(answer, []byte(`"private"`), "result", "cacheScope")
	}
	return answer
}

// undone answers a request that no server answered.
func (p *party) undone(ctx context.Context, u *upstream, j *mcp.Judge, r *request, err error) []byte {
	p.settle(j.GaveUp(ctx, r.e.Key))
	if p.killed() {
		if r.e.Method == "tools/call" {
			return mcp.ToolAnswer(r.e.ID, p.killedText())
		}
		return mcp.ErrorAnswer(r.e.ID, codeServer, p.killedText())
	}
	if !errors.Is(err, errCancelled) {
		p.gw.cfg.Logf("gateway: %.64q of server %q: %v", r.e.Method, u.cfg.Name, err)
	}
	return mcp.ErrorAnswer(r.e.ID, codeServer, fmt.Sprintf("The MCP server %q did not answer: %v", u.cfg.Name, err))
}

// fromServer takes what a server sends while a session's request is open.
func (p *party) fromServer(ctx context.Context, j *mcp.Judge, c *peer, x *exchange, msg []byte) {
	v := j.Server(ctx, msg)
	p.after(v)
	if v.Forward == nil {
		return
	}
	p.deliver(c, x, v.Forward)
}

// deliver passes a server's own message to the client.
func (p *party) deliver(c *peer, x *exchange, msg []byte) {
	e, ok := mcp.ReadEnvelope(msg)
	if !ok || e.Method == "" {
		return
	}
	if e.Method == "notifications/resources/updated" && p.at.aggregate() {
		uri := mcp.Text(mcp.Member(e.Params, "uri"))
		msg = mcp.Edit(msg, quote(c.up.cfg.Name+uriSep+uri), "params", "uri")
	}
	var out *stream
	if x != nil {
		out = x.out
	}
	switch {
	case e.ID != nil && p.id != "":
		if _, ok := p.ask(c, msg, x); !ok {
			c.tell(p.ctx, mcp.ErrorAnswer(e.ID, codeServer, "the client cannot be asked"))
		}
	case e.ID != nil && e.Method == "ping":
		c.tell(p.ctx, mcp.ResultAnswer(e.ID, []byte(`{}`)))
	case e.ID != nil:
		c.tell(p.ctx, mcp.ErrorAnswer(e.ID, codeNoMethod, "the client cannot be asked"))
	case out != nil && out.send(msg):
	default:
		p.unsolicited(msg)
	}
}

// unsolicited takes what a server sends without a request being open.
func (c *peer) unsolicited(msg []byte) {
	p := c.party
	v := p.newJudge(c.up).Server(p.ctx, msg)
	p.after(v)
	if v.Forward == nil {
		return
	}
	if p.id == "" {
		if e, ok := mcp.ReadEnvelope(v.Forward); ok && e.ID == nil {
			p.notify(c, &e, v.Forward)
			return
		}
	}
	p.deliver(c, nil, v.Forward)
}

// gather asks a session's client what a server without sessions wants to know,
// and returns the call that carries the answers.
func (p *party) gather(ctx context.Context, x *exchange, msg, answer []byte) ([]byte, error) {
	wants := mcp.Member(answer, "result", "inputRequests")
	var keys []string
	var asked []*question
	for k, want := range mcp.Entries(wants) {
		if len(keys) >= maxInputs {
			return nil, errors.New("the server asked for too many inputs at once")
		}
		q := append([]byte(`{"jsonrpc":"2.0","id":"","method":`), quote(mcp.Text(mcp.Member(want, "method")))...)
		if params := mcp.Member(want, "params"); params != nil {
			q = append(append(q, `,"params":`...), params...)
		}
		question, ok := p.ask(nil, append(q, '}'), x)
		if !ok {
			return nil, errors.New("the server asks for input and the client cannot be asked")
		}
		keys, asked = append(keys, k), append(asked, question)
	}
	// One that asks for nothing is busy, and wants the call again later.
	if len(keys) == 0 && !pause(ctx, retryFirst) {
		return nil, context.Cause(ctx)
	}
	responses := []byte(`{}`)
	for i, k := range keys {
		select {
		case reply := <-asked[i].reply:
			result := mcp.Member(reply, "result")
			if result == nil {
				return nil, fmt.Errorf("the client did not answer the server's question: %.200q", mcp.Text(mcp.Member(reply, "error", "message")))
			}
			responses = mcp.Edit(responses, result, k)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	msg = mcp.Edit(msg, responses, "params", "inputResponses")
	if state := mcp.Member(answer, "result", "requestState"); state != nil {
		return mcp.Edit(msg, state, "params", "requestState"), nil
	}
	return mcp.Edit(msg, nil, "params", "requestState"), nil
}

// all sends a request to every server of the endpoint, and merges the answers.
func (p *party) all(ctx context.Context, r *request, x *exchange) []byte {
	parts := make([][][]byte, len(p.at.ups))
	var wg sync.WaitGroup
	for i, u := range p.at.ups {
		wg.Go(func() { parts[i] = p.items(ctx, u, r, x) })
	}
	wg.Wait()
	items, _, _ := listKey(r.e.Method)
	if items == "" {
		return mcp.ResultAnswer(r.e.ID, []byte(`{}`))
	}
	var all [][]byte
	for _, part := range parts {
		all = append(all, part...)
	}
	result := append([]byte(`{"`+items+`":[`), bytes.Join(all, []byte{','})...)
	answer := mcp.ResultAnswer(r.e.ID, append(result, "]}"...))
	if p.id == "" {
		answer = asStateless(answer, r.e.Method, ownInfo)
	}
	return answer
}

// maxPages is how many pages of one server's list are fetched.
const maxPages = 64

// items are all items of one server's list, under their prefixed names. A
// server that cannot be asked has none: the others are to be had all the same.
func (p *party) items(ctx context.Context, u *upstream, r *request, x *exchange) [][]byte {
	c := p.peerFor(u, r.e)
	if _, _, err := c.openLink(ctx); err != nil {
		p.gw.cfg.Logf("gateway: %v", err)
		return nil
	}
	c.mu.Lock()
	has := mcp.Member(c.hello, "capabilities", capability(r.e.Method)) != nil
	c.mu.Unlock()
	if !has {
		return nil
	}
	var out [][]byte
	msg := mcp.Edit(r.body, nil, "params", "cursor")
	for range maxPages {
		own := &exchange{method: x.method, clientID: x.clientID, out: x.out, cancel: x.cancel, order: x.order, clock: x.clock}
		answer := p.one(ctx, u, r, msg, own)
		result := mcp.Member(answer, "result")
		if result == nil {
			return out
		}
		out = append(out, renamed(r.e.Method, u.cfg.Name, result)...)
		next := mcp.Member(result, "nextCursor")
		if next == nil || string(next) == "null" {
			return out
		}
		msg = mcp.Edit(msg, next, "params", "cursor")
	}
	return out
}
