package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// listenHere serves a subscription from what servers with sessions send of
// themselves, and from subscriptions at those without.
func (p *party) listenHere(ctx context.Context, r *request, wants []byte, uris []json.RawMessage) []byte {
	is := func(k string) bool { return string(mcp.Member(wants, k)) == "true" }
	l := &listener{id: r.e.ID, out: r.out, tools: is("toolsListChanged"), prompts: is("promptsListChanged"),
		resources: is("resourcesListChanged"), uris: map[string]bool{}}
	for _, raw := range uris {
		u, uri := p.at.splitURI(mcp.Text(raw))
		if !p.at.aggregate() {
			u, uri = p.at.first(), mcp.Text(raw)
		}
		l.uris[u.cfg.Name+uriSep+uri] = true
		p.watch(ctx, u, uri)
	}
	ack := append([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":`), wants...)
	if wants == nil {
		ack = append(ack, `{}`...)
	}
	ack = fmt.Appendf(ack, `,"_meta":{"%s":%s}}}`, metaSubscription, r.e.ID)
	if !r.out.send(ack) {
		return mcp.ErrorAnswer(r.e.ID, -32600, "Invalid Request: subscriptions/listen wants a client that takes text/event-stream")
	}
	p.mu.Lock()
	p.listeners[l] = true
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	delete(p.listeners, l)
	p.mu.Unlock()
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"%s":%s}}}`, r.e.ID, metaSubscription, r.e.ID)
}

// watch subscribes to a resource at its server; it was judged.
func (p *party) watch(ctx context.Context, u *upstream, uri string) {
	c := p.peerFor(u)
	if _, e, err := c.openLink(ctx); err != nil || e != eraSessions {
		return
	}
	x := &exchange{method: "resources/subscribe", clientID: []byte(`0`), got: c.unsolicited, cancel: func(error) {}}
	x.msg = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"resources/subscribe","params":{"uri":%s}}`, quote(uri))
	if _, err := c.request(ctx, x); err != nil {
		p.gw.cfg.Logf("gateway: subscribe at server %q: %v", u.cfg.Name, err)
	}
}

// notify passes a server's notification to the listeners that asked for it.
func (p *party) notify(c *peer, e *mcp.Envelope, msg []byte) {
	uri := mcp.Text(mcp.Member(e.Params, "uri"))
	p.mu.Lock()
	var to []*listener
	for l := range p.listeners {
		if l.tools && e.Method == "notifications/tools/list_changed" ||
			l.prompts && e.Method == "notifications/prompts/list_changed" ||
			l.resources && e.Method == "notifications/resources/list_changed" ||
			e.Method == "notifications/resources/updated" && l.uris[c.up.cfg.Name+uriSep+uri] {
			to = append(to, l)
		}
	}
	p.mu.Unlock()
	if e.Method == "notifications/resources/updated" && p.at.aggregate() {
		msg = mcp.Edit(msg, quote(c.up.cfg.Name+uriSep+uri), "params", "uri")
	}
	for _, l := range to {
		l.out.send(mcp.Edit(msg, l.id, "params", "_meta", metaSubscription))
	}
}

// subscribe listens, for a session, at a server without sessions.
func (p *party) subscribe(c *peer, r *request) {
	uri := mcp.Member(r.e.Params, "uri")
	if uri == nil {
		return
	}
	p.gw.work.Add(1)
	go func() {
		defer p.gw.work.Done()
		x := &exchange{method: "subscriptions/listen", clientID: []byte(`"cordon-listen"`), cancel: func(error) {}}
		x.got = func(msg []byte) {
			if e, ok := mcp.ReadEnvelope(msg); ok && e.Method == "notifications/resources/updated" {
				c.unsolicited(mcp.Edit(msg, nil, "params", "_meta", metaSubscription))
			}
		}
		x.msg = c.withMeta(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"cordon-listen","method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[%s]}}}`, uri))
		env, _ := mcp.ReadEnvelope(x.msg)
		x.headers = standardHeaders(&env, nil)
		if _, err := c.request(p.ctx, x); err != nil && p.ctx.Err() == nil {
			p.gw.cfg.Logf("gateway: listening at server %q: %v", c.up.cfg.Name, err)
		}
	}()
}
