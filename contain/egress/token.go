package egress

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// digest is the SHA-256 of a token. Tokens themselves are not kept.
type digest [sha256.Size]byte

// ServeShared is Serve for a listener of many runs, for sandboxes elsewhere
// that no socket of their own can be given to: each request has to show the
// token that Register made for its run, in Proxy-Authorization, as Bearer or
// as the password of Basic (of http://any:TOKEN@host:port). One without a
// valid token is answered 407 in every mode, nothing of it is resolved, and
// its row is of the run that is named here. Whoever reads a run's traffic to
// the listener learns its token, and whoever reaches it can fill it with
// connections that say nothing, as many as Limits.Tunnels for HeaderTime each:
// use it on loopback, a private network or a Unix socket.
func (p *Proxy) ServeShared(ctx context.Context, l net.Listener, run string) error {
	return p.serve(ctx, l, run, true)
}

// Register makes the token by which a run is known on shared listeners. rules
// are the run's own hosts, nil the proxy's. The run is remembered until
// Unregister. A run that is registered already is an error, one that was
// killed is ErrClosed.
func (p *Proxy) Register(run string, rules *Rules) (token string, err error) {
	if !p.kind.takes(rules) {
		return "", errKindOfRules
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, killed := p.killed[run]; p.closed || killed {
		return "", ErrClosed
	}
	r := p.run(run)
	if r.registered {
		return "", fmt.Errorf("egress: run %q has a token already", run)
	}
	token = rand.Text()
	r.registered, r.token = true, sha256.Sum256([]byte(token))
	r.rules.Store(rules)
	p.tokens[r.token] = r
	return token, nil
}

// Unregister ends what Register began: the token is dead, and connections
// that came by it are closed.
func (p *Proxy) Unregister(run string) {
	p.mu.Lock()
	r := p.runs[run]
	if r == nil {
		p.mu.Unlock()
		return
	}
	p.revoke(r)
	var doomed []*client
	r.mu.Lock()
	for c := range r.clients {
		if c.shared {
			doomed = append(doomed, c)
		}
	}
	r.mu.Unlock()
	p.forget(r)
	p.mu.Unlock()
	for _, c := range doomed {
		c.close(ErrClosed)
	}
}

// revoke takes a run's token away; p.mu is held.
func (p *Proxy) revoke(r *runState) {
	if r.registered {
		delete(p.tokens, r.token)
		r.registered = false
	}
}

// SetRunRules puts a run's own rules in force, nil for the proxy's, as
// SetRules does. A run that the proxy does not know is an error.
func (p *Proxy) SetRunRules(run string, rules *Rules) error {
	if !p.kind.takes(rules) {
		return errKindOfRules
	}
	p.mu.Lock()
	r := p.runs[run]
	if r == nil {
		p.mu.Unlock()
		return fmt.Errorf("egress: run %q has no listener and no token", run)
	}
	r.rules.Store(rules)
	p.mu.Unlock()
	p.recheck()
	return nil
}

// identify finds the run of a request that came by a shared listener. It
// reports false when the request was answered.
func (c *client) identify(req *request) bool {
	why := "no Proxy-Authorization with the run's token"
	if token, ok := req.token(); ok {
		switch c.join(sha256.Sum256([]byte(token))) {
		case tokenGood:
			return true
		case tokenFull:
			c.overfull()
			return false
		case tokenClosed:
			c.close(cordon.ErrKilled)
			return false
		case tokenUnknown:
			why = "the token is of no run that is open here"
		}
	}
	c.refused(Refusal{Rule: RuleToken, Host: req.name, Port: req.port, Why: why}, true)
	c.answer(http.StatusProxyAuthRequired, RuleToken, req.address(), why)
	return false
}

// joining is how a connection fared with a token.
type joining uint8

const (
	tokenUnknown joining = iota
	tokenGood
	tokenFull   // joined, and one too many
	tokenClosed // the run or the proxy is
)

// join moves a connection into the run of its token. Later requests on it
// have to show a token of the same run.
func (c *client) join(d digest) joining {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.tokens[d]
	// The table finds by a digest, which tells nothing about another token;
	// the comparison is for whoever changes the table.
	if r == nil || subtle.ConstantTimeCompare(r.token[:], d[:]) != 1 {
		return tokenUnknown
	}
	from := c.run.Load()
	if from == r {
		return tokenGood
	}
	if c.known {
		return tokenUnknown
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	there := len(r.clients)
	if p.closed || r.killed || there >= 2*p.limits.Tunnels {
		return tokenClosed
	}
	r.clients[c] = struct{}{}
	c.known = true
	c.run.Store(r)
	from.mu.Lock()
	delete(from.clients, c)
	from.mu.Unlock()
	if there >= p.limits.Tunnels {
		return tokenFull
	}
	return tokenGood
}

// token reads the one Proxy-Authorization field.
func (r *request) token() (string, bool) {
	value, seen := "", false
	for _, f := range r.fields {
		if !strings.EqualFold(f.name, "proxy-authorization") {
			continue
		}
		if seen {
			return "", false
		}
		value, seen = f.value, true
	}
	return parseCredentials(value)
}

// parseCredentials reads "Bearer TOKEN" and "Basic BASE64(user:TOKEN)", of
// which the user is anything; one without a password is the token itself.
func parseCredentials(value string) (token string, ok bool) {
	scheme, rest, _ := strings.Cut(value, " ")
	rest = strings.TrimLeft(rest, " ")
	switch {
	case strings.EqualFold(scheme, "bearer"):
		token = rest
	case strings.EqualFold(scheme, "basic"):
		b, err := base64.StdEncoding.Strict().DecodeString(rest)
		if err != nil {
			return "", false
		}
		user, password, found := strings.Cut(string(b), ":")
		if token = password; !found {
			return "", false
		} else if password == "" {
			token = user
		}
	}
	return token, token != ""
}
