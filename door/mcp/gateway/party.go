package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/mcp"
)

// party is a client as its calls are judged: a session, or what a token does
// without sessions until it has been idle. It is one run.
type party struct {
	gw  *Gateway
	who *Identity
	at  *endpoint
	run cordon.Run
	// id is the session's; empty for stateless clients.
	id string
	// ctx ends with the party; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() // of the guard's attachment
	once   sync.Once

	log        *eventLog
	standalone *stream

	mu        sync.Mutex // guards all below
	last      time.Time
	active    int
	judges    map[string]*mcp.Judge // by server, of a session
	peers     map[string]*peer      // by server
	open      map[string]*exchange  // by the client's id, of a session
	byID      map[string]*stream    // streams that are not over, by their name
	asked     map[string]*question  // what the client was asked, by the gateway's id
	parked    map[string]*parked    // calls of stateless clients that wait for input
	listeners map[*listener]bool    // open subscriptions of stateless clients
	seq       int
	// What a session said when it opened.
	params   []byte
	caps     []byte
	version  string
	logLevel []byte
}

var errIdle = errors.New("gateway: idle")

// question is a request that went to the client.
type question struct {
	peer  *peer     // who asked; nil for the gateway itself
	x     *exchange // what it belongs to; nil for none
	id    []byte    // as the server spelled it
	reply chan []byte
}

// session names what a kill holds, whatever a client opens anew: the agent,
// where the token has one, and so all of its tokens.
func (id *Identity) session() string {
	if id.Agent != "" {
		return clip("gateway:"+id.Tenant+"/"+id.Agent, 250)
	}
	return "gateway:" + id.Name
}

func (g *Gateway) newParty(who *Identity, at *endpoint) *party {
	p := &party{gw: g, who: who, at: at, last: time.Now(),
		judges: map[string]*mcp.Judge{}, peers: map[string]*peer{}, open: map[string]*exchange{},
		byID: map[string]*stream{}, asked: map[string]*question{}, parked: map[string]*parked{}, listeners: map[*listener]bool{},
		log: &eventLog{maxEvents: g.limits.Events, maxBytes: g.limits.Backlog}}
	p.run = cordon.Run{
		ID: "gw-" + rand.Text(), Tenant: who.Tenant, Agent: who.Agent, User: who.User, Session: who.session(),
		Tier: who.Tier, Profile: who.Profile, Workspace: g.cfg.Workspace, Home: g.cfg.Home,
	}
	if who.Workspace != "" {
		p.run.Workspace = who.Workspace
	}
	p.standalone = newStream(nil, true, g.limits.Write)
	p.standalone.kept(p.log, "s", false)
	attached, stop := g.cfg.Guard.Attach(g.life, p.run)
	p.stop = stop
	p.ctx, p.cancel = context.WithCancelCause(attached)
	context.AfterFunc(attached, func() { p.ended(context.Cause(attached)) })
	return p
}

// ended carries out that the guard killed the run, or that the gateway closes.
func (p *party) ended(why error) {
	p.gw.forget(p)
	p.end(why)
}

// openSession makes a session for the client of an initialize request.
func (g *Gateway) openSession(who *Identity, at *endpoint, params []byte) (p *party, why string) {
	g.mu.Lock()
	switch {
	case g.closed:
		why = "the gateway is ending"
	case len(g.sessions) >= g.limits.Sessions, g.owned[who.Name] >= g.limits.PerOwner:
		why = "too many sessions; end some, or wait until idle ones do"
	default:
		g.owned[who.Name]++
	}
	g.mu.Unlock()
	if why != "" {
		return nil, why
	}
	p = g.newParty(who, at)
	p.id = rand.Text() + rand.Text()
	p.params = append([]byte(nil), params...)
	p.caps = mcp.Member(p.params, "capabilities")
	p.version = mcp.Text(mcp.Member(p.params, "protocolVersion"))
	g.mu.Lock()
	g.sessions[p.id] = p
	g.mu.Unlock()
	if p.ctx.Err() != nil { // before it was listed
		g.forget(p)
	}
	return p, ""
}

// window is the party of a stateless client; nil where there are too many.
func (g *Gateway) window(who *Identity, at *endpoint) *party {
	key := who.Name + "\x00" + at.name
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.windows[key]; p != nil && p.ctx.Err() == nil {
		p.touch()
		return p
	}
	if g.closed {
		return nil
	}
	g.mu.Unlock()
	p := g.newParty(who, at)
	g.mu.Lock()
	if other := g.windows[key]; other != nil && other.ctx.Err() == nil {
		go p.end(errClosed)
		other.touch()
		return other
	}
	g.windows[key] = p
	return p
}

func (p *party) windowKey() string { return p.who.Name + "\x00" + p.at.name }

// spoken is the revision that the session speaks.
func (p *party) spoken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

func (p *party) touch() {
	p.mu.Lock()
	p.last = time.Now()
	p.mu.Unlock()
}

func (p *party) enter() {
	p.mu.Lock()
	p.active++
	p.mu.Unlock()
}

func (p *party) leave() {
	p.mu.Lock()
	p.active--
	p.last = time.Now()
	p.mu.Unlock()
}

func (p *party) idleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active > 0 {
		return 0
	}
	return time.Since(p.last)
}

// killed reports whether the run was.
func (p *party) killed() bool { return errors.Is(context.Cause(p.ctx), cordon.ErrKilled) }

// judging is the context in which a message is judged. That the run was killed
// is the guard's to say and to store, and ends no judgement of it.
func (p *party) judging(ctx context.Context) (context.Context, context.CancelFunc) {
	if !p.killed() {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), p.gw.limits.Call)
}

func (p *party) killedText() string {
	return fmt.Sprintf("Cordon ended the run %q: no call of %q will pass until an operator releases it (cordon kill --release %s --why …). Stop, and tell the person.",
		p.run.ID, p.who.Name, p.run.ID)
}

// end ends all that the party has. It returns when its servers have ended.
func (p *party) end(why error) {
	p.once.Do(func() {
		p.cancel(why)
		p.stop()
		p.endStreams()
		p.mu.Lock()
		peers := p.peers
		p.peers = map[string]*peer{}
		parkedNow := p.parked
		p.parked = map[string]*parked{}
		p.mu.Unlock()
		for _, k := range parkedNow {
			k.x.cancel(why)
		}
		var wg sync.WaitGroup
		for _, peer := range peers {
			wg.Go(func() { peer.close(errors.Is(why, cordon.ErrKilled)) })
		}
		wg.Wait()
	})
}

// endStreams ends the streams that have no request of their own.
func (p *party) endStreams() { p.standalone.end() }

// stream is one that is not over, by its name.
func (p *party) stream(name string) *stream {
	if name == p.standalone.id {
		return p.standalone
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.byID[name]; s != nil {
		return s
	}
	// One that is over may still have events that the client missed.
	if len(p.log.after(name, -1)) > 0 {
		s := newStream(nil, true, p.gw.limits.Write)
		s.kept(p.log, name, false)
		s.end()
		return s
	}
	return nil
}

// listed makes out a stream of the session, whose events are kept while the
// request runs and as long as the log has them.
func (p *party) listed(out *stream) (done func()) {
	p.mu.Lock()
	p.seq++
	name := "r" + strconv.Itoa(p.seq)
	p.byID[name] = out
	p.mu.Unlock()
	out.kept(p.log, name, p.spoken() >= "2025-11-25")
	return func() {
		p.mu.Lock()
		delete(p.byID, name)
		p.mu.Unlock()
	}
}

// judgeFor is the judge of a session's calls of a server; a new one each time
// for a stateless client, whose ids are told apart by request only.
func (p *party) judgeFor(u *upstream) *mcp.Judge {
	if p.id == "" {
		return p.newJudge(u)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.judges[u.cfg.Name]
	if j == nil {
		j = p.newJudge(u)
		p.judges[u.cfg.Name] = j
	}
	return j
}

// dirOf is where a server's command is started.
func (p *party) dirOf(u *upstream) string {
	if u.cfg.Dir != "" {
		return u.cfg.Dir
	}
	return p.run.Workspace
}

func (p *party) newJudge(u *upstream) *mcp.Judge {
	c := p.gw.cfg
	dir := ""
	if u.cfg.URL == "" { // what a server elsewhere calls relative is not known here
		var err error
		if dir, err = mcp.WorkingDir(p.dirOf(u), p.run.Workspace); err != nil {
			dir = "/" // never inside of a workspace
		}
	}
	j, err := mcp.NewJudge(mcp.Config{
		Guard: c.Guard, Mode: c.Mode, Run: p.run, Server: u.cfg.Name, Dir: dir, MaxResult: c.MaxResult,
		DeliverTagged: c.DeliverTagged, Approvals: p.gw.asks, NoElicitation: p.who.NoElicitation,
	})
	if err != nil {
		panic(err) // New has checked what it depends on
	}
	return j
}

// peerFor is the party's connection to a server, made where it is absent. A
// stateless client says with each request what it can be asked; a server with
// sessions is told once, and so there is one connection for each set of it.
func (p *party) peerFor(u *upstream, e *mcp.Envelope) *peer {
	caps := ""
	if p.id == "" && e != nil {
		caps = askable(e)
	}
	key := u.cfg.Name + "\x00" + caps
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.peers[key]
	if c == nil {
		c = &peer{up: u, party: p, caps: caps, flights: map[string]*exchange{}}
		p.peers[key] = c
	}
	return c
}

// askable are the first letters of what a stateless client can be asked.
func askable(e *mcp.Envelope) string {
	out := ""
	for _, kind := range []string{"elicitation", "sampling", "roots"} {
		if mcp.Member(e.Params, "_meta", metaCapabilities, kind) != nil {
			out += kind[:1]
		}
	}
	return out
}

// ask sends the client a request and returns the question that waits for its
// reply. x is the request that it belongs to; nil is none.
func (p *party) ask(from *peer, msg []byte, x *exchange) (*question, bool) {
	q := &question{peer: from, x: x, id: mcp.Member(msg, "id"), reply: make(chan []byte, 1)}
	var out *stream
	if x != nil {
		out = x.out
		x.waitsForPerson(p.gw.limits.Call)
	}
	p.mu.Lock()
	if len(p.asked) >= maxQuestions {
		p.mu.Unlock()
		return nil, false
	}
	p.seq++
	id := "cordon-" + strconv.Itoa(p.seq) + "-" + rand.Text()[:8]
	p.asked[id] = q
	p.mu.Unlock()
	msg = mcp.Edit(msg, []byte(`"`+id+`"`), "id")
	if out != nil && out.send(msg) || p.unsolicited(msg) {
		return q, true
	}
	p.mu.Lock()
	delete(p.asked, id)
	p.mu.Unlock()
	return nil, false
}

// maxQuestions is how many requests may wait for a client's reply.
const maxQuestions = 256

// unsolicited delivers a message that belongs to no request: on the session's
// own stream where somebody listens, else on one whose request is open.
func (p *party) unsolicited(msg []byte) bool {
	if p.id == "" {
		return false
	}
	if p.standalone.listened() {
		return p.standalone.send(msg)
	}
	var latest *exchange
	p.mu.Lock()
	for _, x := range p.open {
		if x.out != nil && (latest == nil || x.order > latest.order) {
			latest = x
		}
	}
	p.mu.Unlock()
	if latest != nil && latest.out.send(msg) {
		return true
	}
	return p.standalone.send(msg) // kept until the client listens
}

// replied takes a client's reply to a question.
func (p *party) replied(ctx context.Context, e *mcp.Envelope, msg []byte) {
	id := mcp.Text(e.ID)
	p.mu.Lock()
	q := p.asked[id]
	delete(p.asked, id)
	p.mu.Unlock()
	if q == nil {
		return // not asked, or not of this session
	}
	if q.peer == nil {
		q.reply <- msg
		return
	}
	q.peer.tell(ctx, mcp.Edit(msg, q.id, "id"))
}
