package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// listenHere serves a subscription from what servers with sessions send of
// themselves, and from subscriptions at those without.
func (p *party) listenHere(ctx context.Context, r *request, wants []byte, uris []json.RawMessage) []byte {
	is := func(k string) bool { return string(mcp.Member(wants, k)) == "true" }
	l := &listener{id: r.e.ID, out: r.out, tools: is("toolsListChanged"), prompts: is("promptsListChanged"),
		resources: is("resourcesListChanged"), uris: map[string]bool{}}
	watched := map[*upstream][]string{}
	for _, raw := range uris {
		u, uri := p.at.splitURI(mcp.Text(raw))
		if !p.at.aggregate() {
			u, uri = p.at.first(), mcp.Text(raw)
		}
		l.uris[u.cfg.Name+uriSep+uri] = true
		watched[u] = append(watched[u], uri)
	}
	p.mu.Lock()
	p.listeners[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.listeners, l)
		p.mu.Unlock()
	}()
	// What changes after the client was told that it listens has to reach it.
	var ready sync.WaitGroup
	for _, u := range p.at.ups {
		ready.Go(func() { p.hear(ctx, u, r.e, wants, watched[u]) })
	}
	ready.Wait()
	ack := append([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":`), wants...)
	if wants == nil {
		ack = append(ack, `{}`...)
	}
	ack = fmt.Appendf(ack, `,"_meta":{"%s":%s}}}`, metaSubscription, r.e.ID)
	if !r.out.send(ack) {
		return mcp.ErrorAnswer(r.e.ID, -32600, "Invalid Request: subscriptions/listen wants a client that takes text/event-stream")
	}
	<-ctx.Done()
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{"%s":%s}}}`, r.e.ID, metaSubscription, r.e.ID)
}

// hearFor is how long a server may take until it is listened to.
const hearFor = time.Second

// hear opens what a server sends of itself, and asks it for what the listener
// wants. It returns when that is so, or after a while.
func (p *party) hear(ctx context.Context, u *upstream, env *mcp.Envelope, wants []byte, uris []string) {
	c := p.peerFor(u, env)
	l, e, err := c.openLink(ctx)
	if err != nil {
		p.gw.cfg.Logf("gateway: %v", err)
		return
	}
	if e == eraStateless {
		c.listenAt(ctx, wants, uris)
		return
	}
	c.initialized(ctx, l)
	if h, ok := l.(*httpLink); ok {
		select {
		case <-h.heard:
		case <-time.After(hearFor):
		case <-ctx.Done():
		}
	}
	for _, uri := range uris { // each was judged
		x := &exchange{method: "resources/subscribe", clientID: []byte(`0`), got: c.unsolicited, cancel: func(error) {}}
		x.msg = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"resources/subscribe","params":{"uri":%s}}`, quote(uri))
		if _, err := c.request(ctx, x); err != nil {
			p.gw.cfg.Logf("gateway: subscribe at server %q: %v", u.cfg.Name, err)
		}
	}
}

// listenAt opens a subscription at a server without sessions, until ctx ends.
// It returns when the server says that it listens.
func (c *peer) listenAt(ctx context.Context, wants []byte, uris []string) {
	list := []byte{'['}
	for i, uri := range uris {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, quote(uri)...)
	}
	if wants == nil {
		wants = []byte(`{}`)
	}
	wants = mcp.Edit(wants, append(list, ']'), "resourceSubscriptions")
	acked := make(chan struct{})
	var once sync.Once
	ack := func() { once.Do(func() { close(acked) }) }
	x := &exchange{method: "subscriptions/listen", clientID: []byte(`"cordon-listen"`), cancel: func(error) {}}
	x.got = func(msg []byte) {
		e, ok := mcp.ReadEnvelope(msg)
		switch {
		case !ok || e.ID != nil:
		case e.Method == "notifications/subscriptions/acknowledged":
			ack()
		default:
			c.unsolicited(mcp.Edit(msg, nil, "params", "_meta", metaSubscription))
		}
	}
	x.msg = c.withMeta(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"cordon-listen","method":"subscriptions/listen","params":{"notifications":%s}}`, wants))
	env, _ := mcp.ReadEnvelope(x.msg)
	x.headers = standardHeaders(&env, nil)
	g := c.up.gw
	g.work.Add(1)
	go func() {
		defer g.work.Done()
		defer ack()
		if _, err := c.request(ctx, x); err != nil && ctx.Err() == nil {
			g.cfg.Logf("gateway: listening at server %q: %v", c.up.cfg.Name, err)
		}
	}()
	select {
	case <-acked:
	case <-time.After(hearFor):
	case <-ctx.Done():
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
	if uri := mcp.Member(r.e.Params, "uri"); uri != nil {
		c.listenAt(p.ctx, nil, []string{mcp.Text(uri)})
	}
}
