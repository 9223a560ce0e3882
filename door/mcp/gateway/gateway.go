// Package gateway is the door for clients of the Model Context Protocol over
// HTTP: several servers behind one address, each with an endpoint of its own
// (/mcp/NAME) and all of them behind one (/mcp), where names are prefixed. Below
// /sse the same is there in the transport of 2024-11-05.
//
// It speaks revision 2026-07-28, which has no sessions, and the four before
// it, to clients and to servers alike, and translates where the two sides
// differ. Messages are handled as bytes: what is forwarded are the arguments
// that were decided on, byte for byte. Only ids, progress tokens, the
// protocol's own _meta keys and prefixed names are put in or taken out.
//
// Guarantees, beside those of package mcp, whose Judge decides on every call:
//   - Who calls is told by a bearer token alone, which fixes tenant, agent,
//     tier, profile and servers. Neither headers nor arguments change any of it.
//   - A session belongs to the token that opened it; to any other it is absent.
//   - Requests from other origins and for other hosts are refused before they
//     are read.
//   - Headers that say another thing than the body are refused, and audited.
//   - Bodies, headers, sessions, requests in flight, buffered events and times
//     are bounded.
//   - When a run is killed its requests are answered, its sessions end, and the
//     servers that were started for it with them.
//
// What it does not stop: what package mcp does not; a client that answers the
// questions meant for its user (it holds the same token); a server over HTTP
// that does harm on its own; one that mixes up the sessions it is given. There
// is no TLS here: a proxy that ends it belongs in front where the address is
// not a loopback one.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/mcp"
)

// Config is what New needs. Guard, Servers and either Tokens or Anonymous must
// be set.
type Config struct {
	Guard cordon.Guard
	// Mode is the mode of Guard; the zero value is Enforce.
	Mode    cordon.Mode
	Servers []Server
	Tokens  []Token
	// Anonymous, when set, is who calls without a token: whoever reaches the
	// address. With it a wrong token is still refused.
	Anonymous *Identity
	// Workspace and Home are those of all runs whose identity has none.
	Workspace, Home string
	// Hosts are the names under which clients may reach the gateway, beside the
	// loopback ones, "host" or "host:port". Origins are the web origins that
	// may call it, "https://app.example", beside that of an allowed host.
	Hosts, Origins []string
	Limits         Limits
	// MaxResult is as in mcp.Config.
	MaxResult int
	// DeliverTagged is as in mcp.Config.
	DeliverTagged func(cordon.Chunk) string
	// StartSandboxed starts a command inside the runtime that Server.Sandbox
	// names, under the policy of the run that it is for. The stream is the command's standard input and output; closing it
	// ends the command; wait returns when it has ended.
	StartSandboxed func(ctx context.Context, run cordon.Run, runtime string, argv, env []string) (stream io.ReadWriteCloser, wait func() error, err error)
	// Stderr gets the servers' stderr; may be nil.
	Stderr io.Writer
	// Logf is told what operators should know; may be nil.
	Logf func(format string, args ...any)
}

// Server is one upstream server: a command that speaks on its standard input
// and output, or a URL.
type Server struct {
	// Name is its endpoint and the prefix of its tools: 1 to 64 letters, digits,
	// '.', '_' and '-', beginning with a letter, without "__" and not ending in
	// '_'. Some clients take only letters, digits and '-' in what is made of it.
	Name    string
	Command []string
	Env     []string // "KEY=value"; nil: Cordon's own
	Dir     string   // empty: the run's workspace
	// Sandbox names the runtime that the command is started in ("native");
	// empty starts it as it is.
	Sandbox string
	// URL is of a streamable HTTP endpoint, or with SSE of one that speaks the
	// transport of 2024-11-05.
	URL string
	SSE bool
	// Header is sent with every request to URL.
	Header http.Header
}

// Limits bound the gateway; 0 is the default of each.
type Limits struct {
	Body      int64         // bytes of a request's body; 4 MiB
	Header    int           // bytes of a request's headers; 64 KiB
	Message   int           // bytes of one message of a server; 16 MiB
	Requests  int           // requests in flight at once; 4096
	PerToken  int           // of which of one token; 1024
	Sessions  int           // sessions at once; 4096
	PerOwner  int           // of which of one token; 2048
	Processes int           // of one server's command; 256
	Streams   int           // open event streams without a request; 4096
	Idle      time.Duration // after which a session ends; 30 min
	Call      time.Duration // for which a request may wait; 10 min
	Read      time.Duration // for headers and again for the body; 15 s
	Write     time.Duration // for each write to a client; 30 s
	Drain     time.Duration // for requests in flight when the gateway ends; 10 s
	Events    int           // events a session keeps for clients that come back; 512
	Backlog   int           // bytes of them; 256 KiB
}

func (l Limits) withDefaults() (Limits, error) {
	for _, n := range []*int{&l.Header, &l.Message, &l.Requests, &l.PerToken, &l.Sessions, &l.PerOwner, &l.Processes, &l.Streams, &l.Events, &l.Backlog} {
		if *n < 0 {
			return l, fmt.Errorf("gateway: negative limit %d (want 0 for the default)", *n)
		}
	}
	for _, d := range []time.Duration{l.Idle, l.Call, l.Read, l.Write, l.Drain} {
		if d < 0 {
			return l, fmt.Errorf("gateway: negative limit %s (want 0 for the default)", d)
		}
	}
	if l.Body < 0 {
		return l, fmt.Errorf("gateway: negative limit %d (want 0 for the default)", l.Body)
	}
	fill(&l.Body, 4<<20)
	fill(&l.Header, 64<<10)
	fill(&l.Message, mcp.DefaultMaxMessage)
	fill(&l.Requests, 4096)
	fill(&l.PerToken, 1024)
	fill(&l.Sessions, 4096)
	fill(&l.PerOwner, 2048)
	fill(&l.Processes, 256)
	fill(&l.Streams, 4096)
	fill(&l.Idle, 30*time.Minute)
	fill(&l.Call, 10*time.Minute)
	fill(&l.Read, 15*time.Second)
	fill(&l.Write, 30*time.Second)
	fill(&l.Drain, 10*time.Second)
	fill(&l.Events, 512)
	fill(&l.Backlog, 256<<10)
	return l, nil
}

func fill[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Gateway serves. It is an http.Handler and safe for concurrent use.
type Gateway struct {
	cfg    Config
	limits Limits
	ups    []*upstream
	byName map[string]*upstream
	auth   authority
	gate   *gate
	client *http.Client
	asks   *mcp.Approvals

	mu       sync.Mutex // guards all below
	sessions map[string]*party
	windows  map[string]*party // of stateless clients, by token and endpoint
	owned    map[string]int    // sessions by token
	inFlight map[string]int    // requests by token
	flying   int
	streams  int
	closed   bool

	// life ends all that the gateway started.
	life    context.Context
	endLife context.CancelCauseFunc
	work    sync.WaitGroup
}

var errClosed = errors.New("gateway: closed")

// New checks the configuration and returns a gateway. Nothing is started or
// dialled before a client asks for it.
func New(cfg Config) (*Gateway, error) {
	if cfg.Guard == nil {
		return nil, errors.New("gateway: no guard")
	}
	if len(cfg.Servers) == 0 {
		return nil, errors.New("gateway: no servers")
	}
	if cfg.Logf == nil {
		cfg.Logf = func(string, ...any) {}
	}
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	g := &Gateway{cfg: cfg, byName: map[string]*upstream{}, sessions: map[string]*party{}, windows: map[string]*party{},
		owned: map[string]int{}, inFlight: map[string]int{}, asks: mcp.NewApprovals()}
	var err error
	if g.limits, err = cfg.Limits.withDefaults(); err != nil {
		return nil, err
	}
	for _, s := range cfg.Servers {
		if err := g.addServer(s); err != nil {
			return nil, err
		}
	}
	if g.auth, err = newAuthority(cfg, g.byName); err != nil {
		return nil, err
	}
	if g.gate, err = newGate(cfg.Hosts, cfg.Origins); err != nil {
		return nil, err
	}
	g.client = newClient(g.limits)
	g.life, g.endLife = context.WithCancelCause(context.Background())
	g.work.Add(1)
	go g.sweep()
	return g, nil
}

func (g *Gateway) addServer(s Server) error {
	switch {
	case !validName(s.Name):
		return fmt.Errorf("gateway: server name %q (want 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter, without \"__\" and not ending in '_')", s.Name)
	case g.byName[s.Name] != nil:
		return fmt.Errorf("gateway: server %q stands twice", s.Name)
	case (len(s.Command) == 0) == (s.URL == ""):
		return fmt.Errorf("gateway: server %q: want either a command or a url", s.Name)
	case s.Sandbox != "" && (g.cfg.StartSandboxed == nil || s.URL != ""):
		return fmt.Errorf("gateway: server %q: sandbox %q is not to be had here (want a command, and a runtime that can hold it)", s.Name, s.Sandbox)
	case s.URL != "" && !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://"):
		return fmt.Errorf("gateway: server %q: url %q (want http:// or https://)", s.Name, s.URL)
	case s.SSE && s.URL == "":
		return fmt.Errorf("gateway: server %q: sse goes with a url", s.Name)
	}
	u := &upstream{gw: g, cfg: s}
	g.ups = append(g.ups, u)
	g.byName[s.Name] = u
	return nil
}

// validName: nothing in a name can be taken for the separators that names are
// prefixed with.
func validName(s string) bool {
	return validIdentity(s) && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z') && !strings.Contains(s, nameSep) && !strings.HasSuffix(s, "_")
}

// Serve answers on l until ctx ends; then it lets requests in flight finish
// for Limits.Drain, and closes. It returns nil after ctx ended.
func (g *Gateway) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           g,
		ReadHeaderTimeout: g.limits.Read,
		MaxHeaderBytes:    g.limits.Header,
		IdleTimeout:       2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		g.Close()
		return fmt.Errorf("gateway: %w", err)
	case <-ctx.Done():
	}
	g.startDrain()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.limits.Drain)
	defer cancel()
	if srv.Shutdown(drain) != nil {
		g.endLife(errClosed) // what is left is told so
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(again)
	}
	_ = srv.Close()
	g.Close()
	return nil
}

// startDrain refuses new requests and ends the streams that would never end
// by themselves.
func (g *Gateway) startDrain() {
	g.mu.Lock()
	g.closed = true
	parties := g.partiesLocked()
	g.mu.Unlock()
	for _, p := range parties {
		p.endStreams()
	}
}

func (g *Gateway) partiesLocked() []*party {
	out := make([]*party, 0, len(g.sessions)+len(g.windows))
	for _, p := range g.sessions {
		out = append(out, p)
	}
	for _, p := range g.windows {
		out = append(out, p)
	}
	return out
}

// Close ends all sessions and servers, and waits for them.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	parties := g.partiesLocked()
	clear(g.sessions)
	clear(g.windows)
	g.mu.Unlock()
	g.endLife(errClosed)
	for _, p := range parties {
		p.end(errClosed)
	}
	g.work.Wait()
	g.client.CloseIdleConnections()
}

// sweep ends what has been idle for too long.
func (g *Gateway) sweep() {
	defer g.work.Done()
	tick := time.NewTicker(max(g.limits.Idle/8, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case <-tick.C:
		}
		var idle []*party
		g.mu.Lock()
		for _, p := range g.partiesLocked() {
			if p.idleFor() > g.limits.Idle {
				idle = append(idle, p)
				g.forgetLocked(p)
			}
		}
		g.mu.Unlock()
		for _, p := range idle {
			p.end(errIdle)
		}
	}
}

func (g *Gateway) forget(p *party) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLocked(p)
}

func (g *Gateway) forgetLocked(p *party) {
	if p.id != "" && g.sessions[p.id] == p {
		delete(g.sessions, p.id)
		if g.owned[p.who.Name]--; g.owned[p.who.Name] <= 0 {
			delete(g.owned, p.who.Name)
		}
	}
	if p.id == "" && g.windows[p.windowKey()] == p {
		delete(g.windows, p.windowKey())
	}
}

// Status says how much is in use.
type Status struct {
	Sessions, Windows, Streams int
	Servers                    []string
}

// Status returns the present one.
func (g *Gateway) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Status{Sessions: len(g.sessions), Windows: len(g.windows), Streams: g.streams}
	for _, u := range g.ups {
		s.Servers = append(s.Servers, u.cfg.Name)
	}
	slices.Sort(s.Servers)
	return s
}
