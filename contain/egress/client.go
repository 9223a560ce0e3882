package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// client is one connection of a client, with the one to its origin.
type client struct {
	p *Proxy
	// run changes once at most, from a shared listener's to the token's.
	run    atomic.Pointer[runState]
	shared bool // it has to show a token
	known  bool // it has; of its goroutine
	conn   net.Conn
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	closed   bool
	waiting  bool // for a request
	upstream *net.TCPConn
	// to is what the upstream connection was allowed for.
	to *request
}

// close ends both connections; later calls do nothing.
func (c *client) close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.cancel(cause)
	c.conn.Close()
	if c.upstream != nil {
		c.upstream.Close()
	}
}

// closeIfWaiting closes a client that is between requests. done reports
// whether there is nothing to wait for.
func (c *client) closeIfWaiting() (done bool) {
	c.mu.Lock()
	done = c.closed || c.waiting
	c.mu.Unlock()
	if done {
		c.close(ErrClosed)
	}
	return done
}

func (c *client) setWaiting(on bool) {
	c.mu.Lock()
	c.waiting = on
	c.mu.Unlock()
}

// attach takes a connection to an origin into the client's care. It reports
// false, and closes it, when the client is closed or the rules have changed
// meanwhile.
func (c *client) attach(up *net.TCPConn, req *request) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		up.Close()
		return false
	}
	c.upstream, c.to = up, req
	c.mu.Unlock()
	return !c.p.enforcing() || c.recheck()
}

func (c *client) detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upstream != nil {
		c.upstream.Close()
	}
	c.upstream, c.to = nil, nil
}

// recheck closes the client where the rules in force no longer allow what it
// is connected to.
func (c *client) recheck() bool {
	c.mu.Lock()
	to, closed := c.to, c.closed
	c.mu.Unlock()
	if closed || to == nil {
		return !closed
	}
	rule, v := c.judge(to)
	if v.Allowed {
		return true
	}
	c.refused(Refusal{Rule: RuleRevoked, Host: to.name, Port: to.port, Why: "the rules changed (" + rule + "): " + v.Why}, true)
	c.close(ErrClosed)
	return false
}

func (p *Proxy) enforcing() bool { return p.mode == cordon.Enforce }

// rules are those of the client's run, or the proxy's.
func (c *client) rules() *Rules {
	if own := c.run.Load().rules.Load(); own != nil {
		return own
	}
	return c.p.rules.Load()
}

// judge asks the one matcher.
func (c *client) judge(r *request) (rule string, v Verdict) {
	rules := c.rules()
	if c.p.kind == LLMProxy {
		v = rules.llmConnectTo(r.name, r.port, r.plain())
	} else {
		v = rules.connectTo(r.name, r.port, r.plain())
	}
	switch {
	case v.Allowed:
	case c.p.kind == ToolProxy && IsLLM(r.name):
		rule = RuleLLM
	case c.p.kind == ToolProxy && rules.matchName(r.name, 0, "", true) != nil,
		c.p.kind == LLMProxy && (r.plain() || r.port != 443) && IsLLM(r.name):
		rule = RulePort
	default:
		rule = RuleHost
	}
	return rule, v
}

// refused records a refusal and reports whether it is to be carried out:
// always where it is a wall, else in enforce mode.
func (c *client) refused(r Refusal, wall bool) bool {
	p := c.p
	r.Run, r.Proxy = c.run.Load().id, p.kind
	r.Refused, r.Enforced = wall || p.enforcing(), p.enforcing()
	if p.mode == cordon.Off {
		return r.Refused
	}
	if err := p.ledger.note(r); err != nil {
		p.logf("%v", err)
	}
	return r.Refused
}

// serve reads requests and decides each.
func (c *client) serve() {
	in := newTap(c.conn)
	in.pool = &c.p.heads
	h := &headReader{src: c.conn}
	release := func() {
		h.reset(nil, 0)
		in.release(0)
	}
	defer release()
	for first := true; ; first = false {
		if len(h.buffered()) == 0 {
			release() // a client that says nothing holds no buffer
		}
		req, err := c.next(h, in, first)
		if err != nil {
			c.badRequest(err)
			return
		}
		if req == nil || c.shared && !c.identify(req) || !c.decide(req) {
			return
		}
		if !req.plain() {
			c.tunnel(req, h, release)
			return
		}
		if !c.forward(req, h) {
			return
		}
	}
}

// next waits for a request and reads it. It returns nil where the client has
// gone without one.
func (c *client) next(h *headReader, in *tap, first bool) (*request, error) {
	wait := c.p.limits.IdleTime
	if first {
		wait = c.p.limits.HeaderTime
	}
	if len(h.buffered()) == 0 {
		c.setWaiting(true)
		c.conn.SetReadDeadline(time.Now().Add(wait))
		n, err := in.read()
		c.setWaiting(false)
		if n == 0 || err != nil {
			return nil, nil
		}
		h.reset(in.held(), n)
	}
	c.conn.SetReadDeadline(time.Now().Add(c.p.limits.HeaderTime))
	head, err := h.head()
	if err != nil {
		return nil, err
	}
	req, err := parseHead(head)
	if err == nil && !req.plain() && req.port == 443 && len(h.buffered()) > 0 && h.buffered()[0] != 22 && c.p.enforcing() {
		return nil, &syntaxError{http.StatusBadRequest, "bytes after the CONNECT that are no TLS", req.host}
	}
	return req, err
}

func (c *client) badRequest(err error) {
	var syntax *syntaxError
	switch {
	case errors.As(err, &syntax):
	case isTimeout(err):
		syntax = &syntaxError{status: http.StatusRequestTimeout, why: "the request's head did not come in time"}
	case errors.Is(err, io.EOF):
		syntax = malformed("the connection ended within the request's head")
	default:
		return
	}
	c.refused(Refusal{Rule: RuleSyntax, Host: clip(syntax.host), Why: syntax.why}, true)
	c.answer(syntax.status, RuleSyntax, clip(syntax.host), syntax.why)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// decide judges a request. It reports false when it was refused and answered.
func (c *client) decide(req *request) bool {
	if c.p.enforcing() {
		if err := c.p.ledger.healthy(); err != nil {
			c.p.logf("%v", err)
			c.answer(http.StatusForbidden, RuleAudit, req.address(), "refusals cannot be stored, so nothing passes")
			return false
		}
	}
	if c.p.mode == cordon.Off {
		return true
	}
	if !c.affords(req) {
		return false
	}
	rule, v := c.judge(req)
	if v.Allowed || !c.refused(Refusal{Rule: rule, Host: req.name, Port: req.port, Why: v.Why}, false) {
		return true
	}
	c.answer(http.StatusForbidden, rule, req.address(), v.Why)
	return false
}

// address is the canonical host and port for people.
func (r *request) address() string { return net.JoinHostPort(r.name, strconv.Itoa(int(r.port))) }

// overfull refuses a connection past the run's limit, without reading it.
func (c *client) overfull() {
	why := fmt.Sprintf("the run has %d connections open (its limit)", c.p.limits.Tunnels)
	c.refused(Refusal{Rule: RuleTunnels, Host: "*", Why: why}, true)
	c.answer(http.StatusServiceUnavailable, RuleTunnels, "", why)
}

// openFor resolves and dials for a request that was allowed. It answers the
// client itself where that fails.
func (c *client) openFor(req *request) bool {
	up, err := c.p.open(c.ctx, req.name, req.port)
	if err == nil {
		return c.attach(up, req)
	}
	var addr *addrError
	switch {
	case errors.As(err, &addr):
		c.refused(Refusal{Rule: addr.rule, Host: req.name, Port: req.port, Why: addr.Error()}, true)
		c.answer(http.StatusForbidden, addr.rule, req.address(), addr.Error())
	case isTimeout(err) || errors.Is(err, context.DeadlineExceeded):
		c.answer(http.StatusGatewayTimeout, "", req.address(), "it did not answer in time")
	case errors.Is(err, errResolve):
		c.answer(http.StatusBadGateway, "", req.address(), "its name could not be resolved")
	default:
		c.answer(http.StatusBadGateway, "", req.address(), "it could not be reached")
	}
	return false
}

// answer says no, and lets the client read that before the connection ends.
func (c *client) answer(status int, rule, target, why string) {
	var b strings.Builder
	body := "cordon: "
	if rule != "" {
		body += "refused by " + rule + ": "
	}
	if target != "" {
		body += target + ": "
	}
	body = strings.Map(printableByte, body+why) + "\n"
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	if rule != "" {
		b.WriteString("X-Cordon-Refused: " + rule + "\r\n")
	}
	if status == http.StatusProxyAuthRequired {
		b.WriteString("Proxy-Authenticate: Basic realm=\"cordon\"\r\n")
	}
	fmt.Fprintf(&b, "Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	c.conn.SetWriteDeadline(time.Now().Add(lingerTime))
	if _, err := io.WriteString(c.conn, b.String()); err == nil {
		c.linger()
	}
}

// Closing a connection with unread bytes resets it, and the answer is lost:
// read on for a moment.
const (
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

func (c *client) linger() {
	closeWrite(c.conn)
	c.conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.conn, lingerBytes) // whatever it is, it is not wanted
}

func printableByte(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0xfffd {
		return '?'
	}
	return r
}

// clip bounds text of the client's.
func clip(s string) string {
	if len(s) > 256 {
		s = s[:256] + "…"
	}
	return strings.ToValidUTF8(strings.Map(printableByte, s), "?")
}

func closeWrite(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
	}
}
