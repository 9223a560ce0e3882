// Package llm is a reverse proxy for the APIs of Anthropic, OpenAI (and
// servers compatible with it) and Gemini. What runs in a sandbox gets a base
// URL and a placeholder for a key (Env); the real key is added outside.
//
// It guarantees that
//
//   - the key is added to the request that goes out and to nothing else: it
//     is cut out of every answer, and no error and no log line holds it; keys,
//     cookies and hosts that come from inside are dropped;
//   - only the methods, paths, query parameters, headers, fields, tools and
//     parts of allow.txt go out: no upload of files, no batches, no tuning, no
//     administration, and nothing that makes the provider fetch, search, run
//     code or connect elsewhere, unless the operator named that feature;
//   - a path or a body that two readers could read in two ways is refused,
//     whatever it asks for, and a redirect is neither followed nor passed on;
//   - each answer is charged: by the tokens that it reports and a table of
//     prices that is data, or, where it is cut or says nothing, by an upper
//     estimate; a model without a price costs what the dearest one does;
//   - a call is refused when the run's money is used up, counting what calls
//     in flight may still cost; a killed run's calls end at once;
//   - each refusal is recorded or counted before the client hears of it, and
//     enforce mode refuses everything while that cannot be done.
//
// What it does not stop: what an agent says to the model and the model says
// back, which the provider sees and may keep; a single call that costs more
// than what is left (it is charged, and the next one refused); a provider
// that reports less than it bills; what the provider's own account settings
// do with a call. In shadow mode only what cannot be read, foreign keys, too
// many calls at once and killed runs are refused; in mode off the same, and
// nothing is recorded. What an unlisted path costs in those modes is not
// charged.
package llm

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"golang.org/x/net/netutil"
)

// Provider is a protocol that the proxy speaks, and the first element of the
// path under which it is reached.
type Provider string

const (
	Anthropic Provider = "anthropic"
	OpenAI    Provider = "openai"
	Gemini    Provider = "gemini"
)

func (p Provider) known() bool { return p == Anthropic || p == OpenAI || p == Gemini }

// officialBase is where a provider is unless the operator says otherwise, in
// the form of the variable that its clients read.
var officialBase = map[Provider]string{
	Anthropic: "https://api.anthropic.com",
	OpenAI:    "https://api.openai.com/v1",
	Gemini:    "https://generativelanguage.googleapis.com",
}

// Secret is a key. It prints as "[secret]" by every verb and encoder.
type Secret struct{ value string }

// NewSecret takes a key: 8 to 4096 visible ASCII characters.
func NewSecret(s string) (Secret, error) {
	if len(s) < 8 || len(s) > 4096 {
		return Secret{}, fmt.Errorf("llm: a key of %d bytes (want 8 to 4096)", len(s))
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Secret{}, errors.New("llm: the key has characters that no key has")
	}
	return Secret{s}, nil
}

// Format prints no key, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[secret]")) }

// MarshalText encodes no key.
func (Secret) MarshalText() ([]byte, error) { return []byte("[secret]"), nil }

// Upstream is one provider.
type Upstream struct {
	Provider Provider
	// BaseURL is where it is, in the form of its clients' own variable:
	// OpenAI's ends in "/v1", the others' do not. Empty is the official one.
	BaseURL string
	// UnsafePlainHTTP lets BaseURL be http, for a server of one's own.
	UnsafePlainHTTP bool
	// Key is asked for the key of each call; nil is a server that takes
	// none. Its errors are shown to the operator only.
	Key func(ctx context.Context) (Secret, error)
}

// Limits bound what calls take. A zero field is its default.
type Limits struct {
	// BodyBytes is the size of a request's body. Default and most: 8 MiB.
	BodyBytes int64
	// ResponseBytes is the size of an answer. Default 256 MiB.
	ResponseBytes int64
	// HeaderTime and BodyTime are how long a request's head and body may
	// take. Default 10 s and 2 min.
	HeaderTime, BodyTime time.Duration
	// AnswerTime is how long the provider may think before it answers.
	// Default 15 min.
	AnswerTime time.Duration
	// IdleTime is how long an answer may be silent, or a client may not take
	// it. Default 5 min.
	IdleTime time.Duration
	// Calls is how many calls of a run there may be at once. Default 32.
	Calls int
	// AuditWindow is how long refusals of one kind are counted before the
	// count is stored. Default 10 s.
	AuditWindow time.Duration
}

func (l Limits) withDefaults() (Limits, error) {
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{
		{&l.HeaderTime, 10 * time.Second}, {&l.BodyTime, 2 * time.Minute}, {&l.AnswerTime, 15 * time.Minute},
		{&l.IdleTime, 5 * time.Minute}, {&l.AuditWindow, 10 * time.Second},
	} {
		if *d.field < 0 {
			return l, errors.New("llm: a time limit is negative (want zero for the default, or more)")
		}
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	if l.BodyBytes < 0 || l.BodyBytes > strictjson.MaxSize || l.ResponseBytes < 0 || l.Calls < 0 {
		return l, fmt.Errorf("llm: a limit is negative, or a body of more than %d bytes", strictjson.MaxSize)
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = strictjson.MaxSize
	}
	if l.ResponseBytes == 0 {
		l.ResponseBytes = 256 << 20
	}
	if l.Calls == 0 {
		l.Calls = 32
	}
	return l, nil
}

// Charge is what one call cost.
type Charge struct {
	Run      string
	Provider Provider
	// Model is the one that was asked for.
	Model  string
	Tokens Tokens
	USD    float64
	// Estimated: the answer did not say, so this is an upper estimate.
	Estimated bool
	// Unpriced: no price of the model is known, so this is the dearest
	// known price of the provider.
	Unpriced bool
	Time     time.Time
}

// Config is what a proxy is made from.
type Config struct {
	Upstreams []Upstream
	Mode      cordon.Mode
	// Dial connects to providers; the address is the host and port of
	// BaseURL. It is where addresses are checked.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs verify providers; nil is the system's.
	RootCAs *x509.CertPool
	// Prices is the table; nil is DefaultPrices.
	Prices *Prices
	// Features are what providers may do on their own side.
	Features []Feature
	// UnsafeAnyKey serves clients that do not show the run's placeholder. It
	// is for listeners that nothing but the run can reach.
	UnsafeAnyKey bool
	// Allowed is asked before each call that is billed: may the run spend
	// usd more? An error says why not.
	Allowed func(run string, usd float64) error
	// Charge books what a call cost. What it cannot take is kept and tried
	// again; enforce mode refuses further calls of the run until it is taken.
	Charge func(ctx context.Context, c Charge) error
	// Record stores a refusal. One that it takes without error is durable.
	Record func(ctx context.Context, r Refusal) error
	Limits Limits
	// Logf, where set, is told of malfunctions.
	Logf func(format string, args ...any)
}

// Proxy serves any number of runs.
type Proxy struct {
	upstreams map[Provider]*upstream
	mode      cordon.Mode
	prices    *Prices
	features  map[Feature]bool
	anyKey    bool
	allowed   func(run string, usd float64) error
	charge    func(ctx context.Context, c Charge) error
	ledger    *ledger
	limits    Limits
	logf      func(format string, args ...any)
	transport *http.Transport
	token     []byte // placeholders are made from it

	mu     sync.Mutex
	closed bool
	runs   map[string]*runState
}

type upstream struct {
	provider Provider
	base     *url.URL
	key      func(ctx context.Context) (Secret, error)
}

// New checks the configuration. The proxy serves nothing yet.
func New(c Config) (*Proxy, error) {
	limits, err := c.Limits.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case len(c.Upstreams) == 0:
		return nil, errors.New("llm: no upstream (want one of anthropic, openai, gemini)")
	case c.Mode > cordon.Off:
		return nil, fmt.Errorf("llm: unknown mode %v", c.Mode)
	case c.Dial == nil:
		return nil, errors.New("llm: no Dial: addresses would not be checked")
	case c.Allowed == nil || c.Charge == nil || c.Record == nil:
		return nil, errors.New("llm: no Allowed, Charge or Record: costs or refusals would be lost")
	}
	p := &Proxy{
		upstreams: map[Provider]*upstream{}, mode: c.Mode, prices: c.Prices, features: map[Feature]bool{}, anyKey: c.UnsafeAnyKey,
		allowed: c.Allowed, charge: c.Charge, limits: limits, logf: c.Logf, token: make([]byte, 32), runs: map[string]*runState{},
	}
	if p.prices == nil {
		p.prices = DefaultPrices()
	}
	if p.logf == nil {
		p.logf = func(string, ...any) {}
	}
	for _, f := range c.Features {
		if !slices.Contains(features[:], f) {
			return nil, fmt.Errorf("llm: unknown feature %q (want one of %q)", f, features)
		}
		p.features[f] = true
	}
	for _, u := range c.Upstreams {
		one, err := newUpstream(u)
		if err != nil {
			return nil, err
		}
		if p.upstreams[u.Provider] != nil {
			return nil, fmt.Errorf("llm: two upstreams for %s", u.Provider)
		}
		p.upstreams[u.Provider] = one
	}
	if _, err := rand.Read(p.token); err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	p.transport = newTransport(c, limits)
	p.ledger = newLedger(c.Record, limits.AuditWindow, p.logf)
	return p, nil
}

func newUpstream(u Upstream) (*upstream, error) {
	if !u.Provider.known() {
		return nil, fmt.Errorf("llm: unknown provider %q (want anthropic, openai or gemini)", u.Provider)
	}
	text := u.BaseURL
	if text == "" {
		text = officialBase[u.Provider]
	}
	base, err := url.Parse(text)
	if err != nil {
		// The error repeats the URL, and with it what might be a password.
		return nil, fmt.Errorf("llm: the base URL of %s is no URL", u.Provider)
	}
	switch {
	case base.User != nil || base.RawQuery != "" || base.ForceQuery || base.Fragment != "" || base.Opaque != "" || base.Host == "":
		return nil, fmt.Errorf("llm: the base URL of %s (want https://host/path and nothing else; the key comes by Key)", u.Provider)
	case base.Scheme == "http" && u.UnsafePlainHTTP:
	case base.Scheme != "https":
		return nil, fmt.Errorf("llm: base URL %q of %s (want https; http needs the word for it)", text, u.Provider)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	base.RawPath = ""
	return &upstream{u.Provider, base, u.Key}, nil
}

// variables are what clients read, with the reason for each.
var variables = []struct {
	provider Provider
	name     string
	key      bool // the placeholder; else the base URL
	why      string
}{
	{Anthropic, "ANTHROPIC_BASE_URL", false, "the official clients and the coding agents built on them"},
	{Anthropic, "ANTHROPIC_API_BASE", false, "clients that speak to several providers"},
	{Anthropic, "ANTHROPIC_API_KEY", true, "all of them"},
	{OpenAI, "OPENAI_BASE_URL", false, "the official clients and the coding agents built on them"},
	{OpenAI, "OPENAI_API_BASE", false, "older clients, and those that speak to several providers"},
	{OpenAI, "OPENAI_API_KEY", true, "all of them"},
	{OpenAI, "CODEX_API_KEY", true, "the coding agent where it runs without a terminal"},
	{Gemini, "GOOGLE_GEMINI_BASE_URL", false, "the official clients and the coding agent"},
	{Gemini, "GEMINI_API_KEY", true, "the official clients and the coding agent"},
	{Gemini, "GOOGLE_API_KEY", true, "older clients; the official ones prefer it, and say so"},
}

// prefix is what a base URL ends in, in the form that the clients expect.
var prefix = map[Provider]string{Anthropic: "/anthropic", OpenAI: "/openai/v1", Gemini: "/gemini"}

// Env returns the variables that what runs as the run needs so that its
// clients come here, "NAME=value" each; addr is the "host:port" under which
// the run reaches a listener of its own. The keys are placeholders, worth
// nothing anywhere else. NO_PROXY is among them, since clients must not ask
// the tool proxy for this address.
func (p *Proxy) Env(addr, run string) []string {
	var env []string
	for _, v := range variables {
		switch {
		case p.upstreams[v.provider] == nil:
		case v.key:
			env = append(env, v.name+"="+p.Placeholder(run))
		default:
			env = append(env, v.name+"=http://"+addr+prefix[v.provider])
		}
	}
	host := addr
	if h, _, err := net.SplitHostPort(addr); err == nil {
		host = h
	}
	return append(env, "NO_PROXY="+host, "no_proxy="+host)
}

// Placeholder is what stands for the key inside the run. Another run's, and
// another proxy's, is refused.
func (p *Proxy) Placeholder(run string) string {
	mac := hmac.New(sha256.New, p.token)
	mac.Write([]byte(run))
	return "cordon-placeholder-" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// maxConns is how many connections of a run's clients there may be on one
// listener; further ones wait.
const maxConns = 1024

// ErrClosed is returned by Serve after Close.
var ErrClosed = errors.New("llm: proxy is closed")

// Serve serves one run's clients on l until ctx ends or the proxy is closed;
// then it closes l and every connection that came by it. The error is the
// cause: ctx's, ErrClosed, or that of accepting.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, run string) error {
	var g gate
	h := p.Handler(run)
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if !g.enter() {
				panic(http.ErrAbortHandler) // the connection is closed already
			}
			defer g.leave()
			h.ServeHTTP(w, req)
		}),
		ReadHeaderTimeout: p.limits.HeaderTime, IdleTimeout: p.limits.IdleTime, MaxHeaderBytes: 32 << 10,
		ErrorLog: newQuietLog(), DisableGeneralOptionsHandler: true,
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errors.Join(ErrClosed, l.Close())
	}
	r := p.run(run)
	r.mu.Lock()
	r.servers[srv] = struct{}{}
	r.mu.Unlock()
	p.mu.Unlock()
	unwatch := context.AfterFunc(ctx, func() { srv.Close() })
	err := srv.Serve(netutil.LimitListener(l, maxConns))
	unwatch()
	srv.Close()
	g.wait()
	r.mu.Lock()
	delete(r.servers, srv)
	r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, http.ErrServerClosed):
		return ErrClosed
	}
	return fmt.Errorf("llm: %w", err)
}

// gate counts who is inside, and lets nobody in once it is waited for.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.inside.Add(1)
	}
	return !g.closed
}

func (g *gate) leave() { g.inside.Done() }

func (g *gate) wait() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}

// Kill refuses every further call of the run, and cuts those in flight.
func (p *Proxy) Kill(run string) {
	p.mu.Lock()
	r := p.run(run)
	p.mu.Unlock()
	r.mu.Lock()
	r.killed = true
	calls := r.cancels()
	r.mu.Unlock()
	for _, cancel := range calls {
		cancel(cordon.ErrKilled)
	}
}

// Usage is what the run was charged so far, in US dollars.
func (p *Proxy) Usage(run string) float64 {
	p.mu.Lock()
	r := p.runs[run]
	p.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent
}

// Close ends every call, waits until all are charged, and stores what is
// still counted. The error is of storing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	all := make([]*runState, 0, len(p.runs))
	for _, r := range p.runs {
		all = append(all, r)
	}
	p.mu.Unlock()
	var errs []error
	for _, r := range all {
		r.mu.Lock()
		calls := r.cancels()
		servers := make([]*http.Server, 0, len(r.servers))
		for s := range r.servers {
			servers = append(servers, s)
		}
		r.mu.Unlock()
		for _, cancel := range calls {
			cancel(ErrClosed)
		}
		for _, s := range servers {
			s.Close()
		}
		r.calling.Wait()
		errs = append(errs, p.payOwed(r))
	}
	p.transport.CloseIdleConnections()
	return errors.Join(append(errs, p.ledger.close())...)
}

// run returns the state of a run; p.mu is held.
func (p *Proxy) run(id string) *runState {
	r := p.runs[id]
	if r == nil {
		r = &runState{id: id, servers: map[*http.Server]struct{}{}, calls: map[*call]struct{}{}}
		p.runs[id] = r
	}
	return r
}
