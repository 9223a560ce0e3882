package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

// The revisions of the protocol, newest first.
const newest = "2026-07-28"

var legacyVersions = [...]string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// stateless reports whether a revision has no sessions. Revisions are dates.
func stateless(version string) bool { return version >= newest && len(version) == len(newest) }

func legacyVersion(v string) bool {
	for _, l := range legacyVersions {
		if l == v {
			return true
		}
	}
	return false
}

// era is which of the two lifecycles a server is spoken to in.
type era uint8

const (
	eraUnknown era = iota
	eraSessions
	eraStateless
)

// upstream is a server as it is configured, with what was learnt of it.
type upstream struct {
	gw  *Gateway
	cfg Server

	mu sync.Mutex // guards all below
	// fails counts starts that went wrong one after the other; none is made
	// before next.
	fails int
	next  time.Time
	last  error
	// mirrors are the arguments that its tools want in headers.
	mirrors map[string][]mirrored
	// running counts its processes.
	running int
	// speaks is which era it was found to speak when it was asked for the
	// stateless one, until then.
	speaks era
	until  time.Time
}

const (
	// firstWait doubles with each failure, up to longestWait.
	firstWait   = 250 * time.Millisecond
	longestWait = 30 * time.Second
	// steady is how long a server must have run for its end to be no failure.
	steady = 10 * time.Second
	// remembers is how long it is remembered which era a server speaks.
	remembers = 5 * time.Minute
	// greeting is how long a server may take to say who it is.
	greeting = 30 * time.Second
)

// admits says why the server may not be started now, or nil.
func (u *upstream) admits() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if wait := time.Until(u.next); wait > 0 {
		return fmt.Errorf("server %q failed (%d in a row) and is tried again in %s: %w", u.cfg.Name, u.fails, wait.Round(100*time.Millisecond), u.last)
	}
	return nil
}

func (u *upstream) failed(why error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = why
	wait := longestWait
	if u.fails < 8 {
		wait = min(firstWait<<u.fails, longestWait)
	}
	u.fails++
	u.next = time.Now().Add(wait)
}

// starts counts a process in; false where there are too many.
func (u *upstream) starts() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running >= u.gw.limits.Processes {
		return false
	}
	u.running++
	return true
}

func (u *upstream) stopped() {
	u.mu.Lock()
	u.running--
	u.mu.Unlock()
}

func (u *upstream) worked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fails, u.next = 0, time.Time{}
}

func (u *upstream) known() era {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Now().After(u.until) {
		return eraUnknown
	}
	return u.speaks
}

func (u *upstream) learnt(e era) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.speaks, u.until = e, time.Now().Add(remembers)
}

// link carries messages to one server and back.
type link interface {
	// do sends a request and returns its answer. Every other message that comes
	// because of it goes to x.
	do(ctx context.Context, x *exchange) ([]byte, error)
	// tell sends a notification or a reply.
	tell(ctx context.Context, msg []byte) error
	// close ends the link; at once where hard.
	close(hard bool)
	// dead is closed when the server is gone.
	dead() <-chan struct{}
}

// errTooMany: it is no fault of the server's.
var errTooMany = errors.New("too many processes of the server run already; end some sessions")

// errGone: the server does not know the session any more, and did nothing.
var errGone = errors.New("the server has forgotten the session")

// peer is a party's conversation with one server. It is opened anew when the
// server went away.
type peer struct {
	up    *upstream
	party *party
	caps  string // what stateless clients behind it can be asked

	opening sync.Mutex // held while a link is made

	mu      sync.Mutex // guards all below
	link    link
	era     era
	hello   []byte // the result of initialize or server/discover
	version string
	told    bool // that the client is initialised
	since   time.Time
	flights map[string]*exchange // by the id on the wire
	seq     int
	over    bool
}

// exchange is one request on its way.
type exchange struct {
	msg []byte // as it goes to the server
	id  []byte // as the server knows it
	// clientID and token are the client's own, put back into what comes.
	clientID, token []byte
	method          string
	headers         map[string]string
	seq             int // among those of the link
	order           int // among those of the party
	out             *stream
	cancel          context.CancelCauseFunc
	// clock ends it when it takes too long; nil where another bound does.
	clock *time.Timer
	// got takes what comes beside the answer.
	got func(msg []byte)
}

// waitsForPerson gives a request that long again, and the time that a person
// may take.
func (x *exchange) waitsForPerson(limit time.Duration) {
	if x.clock != nil && x.clock.Stop() {
		x.clock.Reset(limit + askFor)
	}
}

// openLink returns the link, made where it is absent, and the era it speaks.
func (c *peer) openLink(ctx context.Context) (link, era, error) {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	l, e, over := c.link, c.era, c.over
	c.mu.Unlock()
	if over || c.party.ctx.Err() != nil {
		return nil, e, errors.New("the session has ended")
	}
	if l != nil {
		select {
		case <-l.dead():
			c.lost()
		default:
			return l, e, nil
		}
	}
	if err := c.up.admits(); err != nil {
		return nil, e, err
	}
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	l, err := c.connect(ctx)
	if err != nil {
		if !errors.Is(err, errTooMany) && (ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
			c.up.failed(err)
		}
		return nil, e, err
	}
	if _, process := l.(*pipe); !process {
		c.up.worked()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		go l.close(true)
		return nil, c.era, errors.New("the session has ended")
	}
	c.link, c.since = l, time.Now()
	return l, c.era, nil
}

// lost forgets a link whose server is gone.
func (c *peer) lost() {
	c.mu.Lock()
	l, since := c.link, c.since
	c.link, c.told = nil, false
	c.mu.Unlock()
	if l == nil {
		return
	}
	l.close(true)
	if _, process := l.(*pipe); !process {
		return
	}
	if time.Since(since) < steady {
		c.up.failed(errEnded)
	} else {
		c.up.worked()
	}
}

// connect makes a link in the era that suits the client and the server.
func (c *peer) connect(ctx context.Context) (link, error) {
	prefers := eraSessions
	if c.party.id == "" {
		prefers = eraStateless
	}
	if k := c.up.known(); prefers == eraStateless && k != eraUnknown {
		prefers = k
	}
	l, err := c.dial(ctx, prefers)
	if err != nil {
		return nil, err
	}
	err = c.greet(ctx, l, prefers)
	if err != nil && ctx.Err() == nil {
		// It may be one of the other era.
		other := eraSessions + eraStateless - prefers
		if restart := l; isDead(restart) || c.up.cfg.URL != "" {
			l.close(true)
			if l, err = c.dial(ctx, other); err != nil {
				return nil, err
			}
		}
		if again := c.greet(ctx, l, other); again != nil {
			l.close(true)
			return nil, fmt.Errorf("server %q could not be opened%s: %w", c.up.cfg.Name, c.up.walled(), errors.Join(err, again))
		}
		prefers, err = other, nil
	}
	if err != nil {
		l.close(true)
		return nil, fmt.Errorf("server %q could not be opened%s: %w", c.up.cfg.Name, c.up.walled(), err)
	}
	if c.party.id == "" {
		c.up.learnt(prefers)
	}
	return l, nil
}

// walled reminds of what a program that does not start may lack.
func (u *upstream) walled() string {
	if u.cfg.Sandbox == "" {
		return ""
	}
	return " (it runs in sandbox " + u.cfg.Sandbox + ", which holds no file but the workspace, the system's programs and what the policy names: --read PATH)"
}

func isDead(l link) bool {
	select {
	case <-l.dead():
		return true
	default:
		return false
	}
}

func (c *peer) dial(ctx context.Context, e era) (link, error) {
	u := c.up
	switch {
	case u.cfg.SSE:
		return dialSSE(ctx, c)
	case u.cfg.URL != "":
		return newHTTPLink(c, e == eraStateless), nil
	}
	return startPipe(ctx, c)
}

// greet opens the conversation and keeps what the server says of itself.
func (c *peer) greet(ctx context.Context, l link, e era) error {
	x := &exchange{id: []byte(`"cordon-hello"`), method: "initialize", got: c.unsolicited}
	if e == eraStateless {
		x.method = "server/discover"
		x.id = []byte(`"cordon-discover"`)
		x.headers = map[string]string{headerVersion: newest, headerMethod: x.method}
		x.msg = []byte(`{"jsonrpc":"2.0","id":"cordon-discover","method":"server/discover","params":{}}`)
		x.msg = c.withMeta(x.msg)
		// One that knows nothing of it may not answer at all.
		short, cancel := context.WithTimeout(ctx, greeting/3)
		defer cancel()
		ctx = short
	} else {
		x.msg = append([]byte(`{"jsonrpc":"2.0","id":"cordon-hello","method":"initialize","params":`), c.initParams()...)
		x.msg = append(x.msg, '}')
	}
	answer, err := l.do(ctx, x)
	if err != nil {
		return err
	}
	result := mcp.Member(answer, "result")
	if result == nil {
		return fmt.Errorf("%s was answered by the error %.300q", x.method, mcp.Text(mcp.Member(answer, "error", "message")))
	}
	version := newest
	if e == eraStateless {
		if !offers(result, newest) {
			return fmt.Errorf("it does not speak revision %s", newest)
		}
	} else {
		// Some say none; whether the client takes one that is not known here is
		// the client's to say.
		version = mcp.Text(mcp.Member(result, "protocolVersion"))
		if len(version) > 32 || stateless(version) || result[0] != '{' {
			return fmt.Errorf("it answered initialize by the revision %.40q", version)
		}
	}
	c.mu.Lock()
	c.hello, c.era, c.version, c.told = append([]byte(nil), result...), e, version, false
	c.mu.Unlock()
	if h, ok := l.(*httpLink); ok {
		h.opened(version)
	}
	return nil
}

func offers(discovered []byte, version string) bool {
	for _, v := range mcp.Elements(mcp.Member(discovered, "supportedVersions")) {
		if mcp.Text(v) == version {
			return true
		}
	}
	return false
}

// initialized tells the server that the client is ready, once.
func (c *peer) initialized(ctx context.Context, l link) {
	c.mu.Lock()
	first := !c.told && c.era == eraSessions
	c.told = true
	c.mu.Unlock()
	if first {
		_ = l.tell(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)) // its end shows at the next request
		if h, ok := l.(*httpLink); ok {
			h.listen()
		}
	}
}

// request sends a request of the client's and returns its answer under the
// client's id. Where the server restarted before it could have taken the
// request, it is sent again.
func (c *peer) request(ctx context.Context, x *exchange) ([]byte, error) {
	for try := 0; ; try++ {
		l, e, err := c.openLink(ctx)
		if err != nil {
			return nil, err
		}
		if e == eraSessions && x.method != "ping" {
			c.initialized(ctx, l)
		}
		h, isHTTP := l.(*httpLink)
		if !isHTTP || !h.stateless {
			c.rename(x)
		} else {
			x.id = x.clientID
		}
		answer, err := l.do(ctx, x)
		c.landed(x)
		if errors.Is(err, errGone) {
			c.lost()
			if try == 0 {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		return mcp.Edit(answer, x.clientID, "id"), nil
	}
}

// rename gives a request an id of its own on the wire: several clients may
// share a link, and use the same ids.
func (c *peer) rename(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	x.seq = c.seq
	x.id = strconv.AppendInt(nil, int64(c.seq), 10)
	x.msg = mcp.Edit(x.msg, x.id, "id")
	if t := mcp.Member(x.msg, "params", "_meta", "progressToken"); t != nil {
		if x.token == nil {
			x.token = append([]byte(nil), t...)
		}
		x.msg = mcp.Edit(x.msg, x.id, "params", "_meta", "progressToken")
	}
	c.flights[string(x.id)] = x
}

func (c *peer) landed(x *exchange) {
	c.mu.Lock()
	delete(c.flights, string(x.id))
	c.mu.Unlock()
}

// restored puts the client's own id and token back into a message that belongs
// to x.
func (x *exchange) restored(msg []byte) []byte {
	if x.token != nil && mcp.Member(msg, "params", "progressToken") != nil {
		msg = mcp.Edit(msg, x.token, "params", "progressToken")
	}
	if x.clientID != nil && mcp.Member(msg, "params", "_meta", metaSubscription) != nil {
		msg = mcp.Edit(msg, x.clientID, "params", "_meta", metaSubscription)
	}
	return msg
}

// ofWire finds the exchange that a message of a shared link belongs to, by its
// progress token or subscription. Of requests, which name neither, it is that
// of the latest request.
func (c *peer) ofWire(e *mcp.Envelope, msg []byte) *exchange {
	key := mcp.Member(e.Params, "progressToken")
	if key == nil {
		key = mcp.Member(e.Params, "_meta", metaSubscription)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != nil {
		return c.flights[string(key)]
	}
	if e.Method == "notifications/resources/updated" || isListChange(e.Method) {
		return nil
	}
	var latest *exchange
	for _, x := range c.flights {
		if x.method == "subscriptions/listen" {
			continue
		}
		if latest == nil || x.seq > latest.seq {
			latest = x
		}
	}
	if c.party.id != "" && len(c.flights) > 1 && e.ID == nil {
		return nil // a session has a stream for what may belong to any
	}
	return latest
}

func isListChange(method string) bool {
	switch method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return true
	}
	return false
}

// came takes a message of a link that several requests share.
func (c *peer) came(msg []byte) {
	e, ok := mcp.ReadEnvelope(msg)
	if !ok || e.Method == "" {
		return
	}
	if x := c.ofWire(&e, msg); x != nil && x.got != nil {
		x.got(x.restored(msg))
		return
	}
	c.unsolicited(msg)
}

// tell sends a notification or a reply; that the server is gone shows at the
// next request.
func (c *peer) tell(ctx context.Context, msg []byte) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		_ = l.tell(ctx, msg)
	}
}

func (c *peer) close(hard bool) {
	c.mu.Lock()
	l := c.link
	c.link, c.over = nil, true
	c.mu.Unlock()
	if l != nil {
		l.close(hard)
	}
}
