package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Kind is which hosts a proxy is for.
type Kind uint8

const (
	// ToolProxy admits the hosts of its rules, and never an LLM host.
	ToolProxy Kind = iota
	// LLMProxy admits LLM API hosts, by TLS on port 443, and nothing else.
	LLMProxy
)

func (k Kind) String() string {
	if k == LLMProxy {
		return "llm"
	}
	return "tool"
}

// Limits bound what clients take. A zero field is its default.
type Limits struct {
	// HeaderBytes is the size of a request head. Default 16 KiB.
	HeaderBytes int
	// HeaderTime is how long a head may take. Default 10 s.
	HeaderTime time.Duration
	// HelloTime is how long the ClientHello may take. Default 10 s.
	HelloTime time.Duration
	// ResolveTime and DialTime. Default 5 s and 10 s.
	ResolveTime, DialTime time.Duration
	// IdleTime is how long a connection may be silent, or a write may not
	// get on. Default 10 min.
	IdleTime time.Duration
	// HalfCloseTime is the same once one side has closed. Default 30 s.
	HalfCloseTime time.Duration
	// Tunnels is how many client connections of a run there may be at once.
	// Default 4096.
	Tunnels int
	// UploadBytes and DownloadBytes are what a run may send and receive while
	// the proxy knows it; zero is no cap. Bytes are counted before they pass.
	UploadBytes, DownloadBytes int64
	// AuditWindow is how long refusals of one kind are counted before the
	// count is stored. Default 10 s.
	AuditWindow time.Duration
}

func (l Limits) withDefaults() (Limits, error) {
	if l.HeaderBytes < 0 || l.Tunnels < 0 || l.UploadBytes < 0 || l.DownloadBytes < 0 {
		return l, errors.New("egress: a limit is negative (want zero for the default, or more)")
	}
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{
		{&l.HeaderTime, 10 * time.Second}, {&l.HelloTime, 10 * time.Second}, {&l.ResolveTime, 5 * time.Second},
		{&l.DialTime, 10 * time.Second}, {&l.IdleTime, 10 * time.Minute}, {&l.HalfCloseTime, 30 * time.Second},
		{&l.AuditWindow, 10 * time.Second},
	} {
		if *d.field < 0 {
			return l, errors.New("egress: a time limit is negative (want zero for the default, or more)")
		}
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	if l.HeaderBytes == 0 {
		l.HeaderBytes = 16 << 10
	}
	if l.Tunnels == 0 {
		l.Tunnels = 4096
	}
	return l, nil
}

// Config is what a proxy is made from. The zero value of all but Recorder is
// a tool proxy that enforces and admits nothing.
type Config struct {
	Kind Kind
	Mode cordon.Mode
	// Rules are the hosts of runs that have none of their own. Those of a
	// tool proxy come from ParseRules, nil admits nothing. Those of an LLM
	// proxy come from ParseLLMRules and narrow its list, nil is all of it.
	Rules *Rules
	// Resolver is asked for names that were allowed; nil is the system's.
	Resolver Resolver
	// UnsafeAllowPrivate are ranges that are dialled although they are
	// private or special. The host still needs a rule.
	UnsafeAllowPrivate []netip.Prefix
	// Recorder stores refusals.
	Recorder Recorder
	// Usage, where set, is told what a run sent and received since the last
	// call, and says by an error that the run has had enough: in enforce mode
	// its tunnels are cut, and nothing of it passes until a call with no bytes
	// returns nil. It is called after each 256 KiB of one direction, before
	// those go on; for less, within 250 ms and when the run's last connection
	// ends. Calls for one run do not overlap. What it was told is told,
	// whatever it returns.
	Usage  func(ctx context.Context, run string, up, down int64) error
	Limits Limits
	// Logf, where set, is told of malfunctions.
	Logf func(format string, args ...any)
}

// Proxy is one policy over any number of listeners, each of one run.
type Proxy struct {
	kind     Kind
	mode     cordon.Mode
	usage    func(ctx context.Context, run string, up, down int64) error
	rules    atomic.Pointer[Rules]
	resolver Resolver
	addrs    addrPolicy
	ledger   *ledger
	limits   Limits
	logf     func(format string, args ...any)
	heads    sync.Pool
	dial     func(ctx context.Context, to netip.AddrPort, limit time.Duration) (*net.TCPConn, error)

	stop    chan struct{}  // closed by Close
	serving sync.WaitGroup // accept loops, connections and the ledger

	mu        sync.Mutex
	closed    bool
	runs      map[string]*runState // that something is known of
	killed    map[string]struct{}  // never forgotten
	tokens    map[digest]*runState
	own       map[net.Listener]netip.AddrPort
	listening map[net.Listener]*runState
}

// runState is what the connections of a run share. It is forgotten when the
// run has no listener, no token and no connection any more.
type runState struct {
	id       string
	rules    atomic.Pointer[Rules] // nil: the proxy's
	up, down atomic.Int64
	meter    meter

	// Guarded by Proxy.mu.
	listeners  int
	registered bool
	token      digest

	mu      sync.Mutex
	killed  bool
	clients map[*client]struct{}
}

// New checks the configuration. The proxy serves nothing yet.
func New(c Config) (*Proxy, error) {
	limits, err := c.Limits.withDefaults()
	switch {
	case err != nil:
		return nil, err
	case c.Kind > LLMProxy:
		return nil, fmt.Errorf("egress: unknown kind of proxy %d", c.Kind)
	case !c.Kind.takes(c.Rules):
		return nil, errKindOfRules
	case c.Mode > cordon.Off:
		return nil, fmt.Errorf("egress: unknown mode %v", c.Mode)
	case c.Recorder == nil:
		return nil, errors.New("egress: no Recorder: refusals would be lost")
	}
	for _, p := range c.UnsafeAllowPrivate {
		if !p.IsValid() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("egress: exception %v is no range of addresses", p)
		}
	}
	p := &Proxy{
		kind: c.Kind, mode: c.Mode, resolver: c.Resolver, limits: limits, logf: c.Logf,
		addrs:  addrPolicy{append([]netip.Prefix(nil), c.UnsafeAllowPrivate...)},
		ledger: newLedger(c.Recorder, limits.AuditWindow),
		usage:  c.Usage,
		stop:   make(chan struct{}), runs: map[string]*runState{},
		killed: map[string]struct{}{}, tokens: map[digest]*runState{},
		own: map[net.Listener]netip.AddrPort{}, listening: map[net.Listener]*runState{},
	}
	p.rules.Store(c.Rules)
	p.dial = p.dialChecked
	if p.resolver == nil {
		p.resolver = &net.Resolver{PreferGo: true}
	}
	if p.logf == nil {
		p.logf = func(string, ...any) {}
	}
	p.heads.New = func() any { b := make([]byte, limits.HeaderBytes); return &b }
	p.serving.Go(p.flushLoop)
	if p.usage != nil {
		p.serving.Go(p.usageLoop)
	}
	return p, nil
}

var errKindOfRules = errors.New("egress: rules of the other kind of proxy (want ParseRules for tools, ParseLLMRules for LLM API hosts)")

func (k Kind) takes(r *Rules) bool { return r == nil || r.llm == (k == LLMProxy) }

func (p *Proxy) flushLoop() {
	tick := time.NewTicker(p.limits.AuditWindow)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			if err := p.ledger.flush(false); err != nil {
				p.logf("%v", err)
			}
		}
	}
}

// ErrClosed is returned by Serve after Close, or for a run that was killed.
var ErrClosed = errors.New("egress: proxy or run is closed")

// Serve accepts connections of one run until ctx ends, the run is killed or
// the proxy is closed; then it closes l and every connection that came by it.
// The error is the cause: ctx's, ErrClosed, or that of accepting.
func (p *Proxy) Serve(ctx context.Context, l net.Listener, run string) error {
	return p.serve(ctx, l, run, false)
}

func (p *Proxy) serve(ctx context.Context, l net.Listener, run string, shared bool) error {
	r, err := p.enter(l, run)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer p.serving.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(ctx, func() { l.Close() })
	var conns sync.WaitGroup
	defer func() {
		unwatch()
		l.Close()
		if !p.isClosed(nil) {
			cancel(ErrClosed)
		}
		conns.Wait() // when the proxy shuts down it ends connections itself
		cancel(ErrClosed)
		p.leave(l)
	}()
	for pause := time.Millisecond; ; {
		conn, err := l.Accept()
		if err == nil {
			pause = time.Millisecond
			p.admit(ctx, conn, r, shared, &conns)
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.isClosed(r) {
			return ErrClosed
		}
		// Out of descriptors: wait for some to come back.
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return fmt.Errorf("egress: accept: %w", err)
		}
		p.logf("accept: %v", err)
		select {
		case <-ctx.Done():
		case <-p.stop:
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

func (p *Proxy) enter(l net.Listener, run string) (*runState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, killed := p.killed[run]; p.closed || killed {
		return nil, ErrClosed
	}
	r := p.run(run)
	r.listeners++
	p.serving.Add(1)
	p.listening[l] = r
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		ap := a.AddrPort()
		p.own[l] = netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return r, nil
}

func (p *Proxy) leave(l net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.own, l)
	if r := p.listening[l]; r != nil {
		r.listeners--
		delete(p.listening, l)
		p.forget(r)
	}
}

// forget drops the state of a run that is over; p.mu is held.
func (p *Proxy) forget(r *runState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == 0 && !r.registered && len(r.clients) == 0 && p.runs[r.id] == r {
		delete(p.runs, r.id)
	}
}

// run returns the state of a run; p.mu is held.
func (p *Proxy) run(id string) *runState {
	r := p.runs[id]
	if r == nil {
		r = &runState{id: id, clients: map[*client]struct{}{}}
		p.runs[id] = r
	}
	return r
}

func (p *Proxy) isClosed(r *runState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || r == nil {
		return p.closed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.killed
}

// admit starts serving a connection.
func (p *Proxy) admit(ctx context.Context, conn net.Conn, r *runState, shared bool, conns *sync.WaitGroup) {
	c := &client{p: p, shared: shared, conn: conn}
	c.run.Store(r)
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	// Under p.mu, so that Close either finds the client or is seen here.
	p.mu.Lock()
	r.mu.Lock()
	gone, full := p.closed || r.killed, len(r.clients) >= p.limits.Tunnels
	if !gone && (!full || len(r.clients) < 2*p.limits.Tunnels) {
		r.clients[c] = struct{}{}
	} else {
		gone = true
	}
	r.mu.Unlock()
	p.mu.Unlock()
	if gone {
		c.close(ErrClosed)
		return
	}
	conns.Go(func() {
		unwatch := context.AfterFunc(c.ctx, func() { c.close(nil) })
		defer func() {
			unwatch()
			c.close(nil)
			p.release(c)
		}()
		if full {
			c.overfull()
			return
		}
		c.serve()
	})
}

// release takes a connection that has ended out of its run.
func (p *Proxy) release(c *client) {
	r := c.run.Load()
	r.mu.Lock()
	delete(r.clients, c)
	last := len(r.clients) == 0
	r.mu.Unlock()
	if !last {
		return
	}
	_ = p.report(r, false) // there is nobody left to cut
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(r)
}

// SetRules puts new rules in force for runs that have none of their own: for
// requests from now on, and in enforce mode for connections that are open,
// which close where they are no longer allowed.
func (p *Proxy) SetRules(rules *Rules) error {
	if !p.kind.takes(rules) {
		return errKindOfRules
	}
	p.rules.Store(rules)
	p.recheck()
	return nil
}

func (p *Proxy) recheck() {
	if !p.enforcing() {
		return
	}
	for _, c := range p.clients() {
		c.recheck()
	}
}

func (p *Proxy) clients() []*client {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*client
	for _, r := range p.runs {
		r.mu.Lock()
		for c := range r.clients {
			all = append(all, c)
		}
		r.mu.Unlock()
	}
	return all
}

// Kill closes every connection of a run at once, and its listeners; its token
// is dead. The run stays killed.
func (p *Proxy) Kill(run string) {
	p.mu.Lock()
	p.killed[run] = struct{}{}
	r := p.runs[run]
	if r == nil {
		p.mu.Unlock()
		return
	}
	p.revoke(r)
	r.mu.Lock()
	r.killed = true
	for l, of := range p.listening {
		if of == r {
			l.Close()
		}
	}
	p.mu.Unlock()
	doomed := make([]*client, 0, len(r.clients))
	for c := range r.clients {
		doomed = append(doomed, c)
	}
	r.mu.Unlock()
	for _, c := range doomed {
		c.close(cordon.ErrKilled)
	}
}

// Usage is how many bytes a run has sent and received, as long as the proxy
// knows it: while it has a listener, a token or a connection.
func (p *Proxy) Usage(run string) (up, down int64) {
	p.mu.Lock()
	r := p.runs[run]
	p.mu.Unlock()
	if r == nil {
		return 0, 0
	}
	return r.up.Load(), r.down.Load()
}

// Shutdown stops accepting, ends connections that wait for a request, lets
// the others finish until ctx ends, and closes the proxy.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.closeListeners()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for busy := true; busy; {
		busy = false
		for _, c := range p.clients() {
			if !c.closeIfWaiting() {
				busy = true
			}
		}
		if !busy {
			break
		}
		select {
		case <-ctx.Done():
			busy = false
		case <-tick.C:
		}
	}
	return p.Close()
}

func (p *Proxy) closeListeners() (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = !p.closed
	p.closed = true
	for l := range p.listening {
		l.Close()
	}
	return first
}

// Close closes every listener and connection, waits for their goroutines and
// stores what is still counted. The error is of storing.
func (p *Proxy) Close() error {
	p.closeListeners()
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.mu.Unlock()
	for _, c := range p.clients() {
		c.close(ErrClosed)
	}
	p.serving.Wait()
	return p.ledger.flush(true)
}
