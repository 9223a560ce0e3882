package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/guard/policy"
)

// Where a contained command finds the proxies: loopback addresses of its own
// network namespace, which hold nothing else.
const (
	insideTool   = "127.0.0.1:3128"
	insideLLM    = "127.0.0.1:3129"
	insideModels = "127.0.0.1:3130"
)

type networkConfig struct {
	rules      []string
	exceptions []netip.Prefix
	resolver   string
	// upload is how many bytes the run may send, and receive.
	upload int64
	models *modelFlags
	// llmProxy: model APIs may be reached with keys of the command's own.
	llmProxy bool
	// caps are the run's, which may have used some of them before.
	caps policy.Caps
}

// network is the only way out of one contained command: proxies whose listeners
// are made inside its walls, so that the listener tells whose traffic it is. They enforce in every mode: walls are no mode.
type network struct {
	run     string
	inside  map[string]func(context.Context, net.Listener) error
	env     []string
	proxies []*egress.Proxy
	models  *modelAPI // nil: none was asked for
	charge  func(cordon.Usage) ([]cordon.Finding, error)
	rows    egress.Recorder
	enforce bool
	serving sync.WaitGroup
	ending  context.CancelFunc
	ended   context.Context
	log     func(format string, args ...any)

	mu   sync.Mutex
	stop context.CancelCauseFunc // ends the command
	over bool                    // it was ended, or would have been
	past error                   // what spent said last
	said map[string]string       // why places were not reached, bounded
	once sync.Once
	up   int64
	down int64
}

// errTraffic is why a command was ended that sent or received too much.
var errTraffic = errors.New("the cap on bytes sent or received was reached")

func openNetwork(core *core, run cordon.Run, c networkConfig) (*network, error) {
	row, err := core.guard.Row(run)
	if err != nil {
		return nil, err
	}
	rules, err := egress.ParseRules(c.rules)
	if err != nil {
		return nil, err
	}
	resolver, err := resolverOf(c.resolver)
	if err != nil {
		return nil, err
	}
	n := &network{run: row.RunID, log: core.log.printf, inside: map[string]func(context.Context, net.Listener) error{}}
	n.enforce = core.config.Mode() == cordon.Enforce
	n.charge = func(u cordon.Usage) ([]cordon.Finding, error) { return core.guard.Charge(run, u) }
	n.ended, n.ending = context.WithCancel(context.Background())
	base := egress.Config{
		Mode: cordon.Enforce, Resolver: resolver, UnsafeAllowPrivate: c.exceptions, Logf: core.log.printf,
		Recorder: &watchedRows{refusalRows{store: core.store, run: row}, n},
		Limits:   egress.Limits{UploadBytes: c.upload, DownloadBytes: downloads * c.upload},
	}
	n.rows = base.Recorder
	tool, llm := base, base
	tool.Rules, llm.Kind = rules, egress.LLMProxy
	tool.Usage, llm.Usage = n.spent(egress.ToolProxy), n.spent(egress.LLMProxy)
	type listener struct {
		at     string
		config egress.Config
	}
	listeners := []listener{{insideTool, tool}}
	if c.llmProxy {
		listeners = append(listeners, listener{insideLLM, llm})
	}
	for _, one := range listeners {
		proxy, err := egress.New(one.config)
		if err != nil {
			n.close()
			return nil, err
		}
		n.proxies = append(n.proxies, proxy)
		n.inside[one.at] = func(ctx context.Context, l net.Listener) error { return proxy.Serve(ctx, l, n.run) }
	}
	n.env = append(egress.ClientEnv("http://"+insideTool), "npm_config_update_notifier=false")
	if c.llmProxy {
		n.env = append(n.env, "CORDON_LLM_PROXY=http://"+insideLLM)
	}
	if c.models == nil || !c.models.any() {
		n.ownLoopback()
		return n, nil
	}
	n.models, err = openModels(modelConfig{
		flags: c.models, config: core.config, run: row, store: core.store, mode: cordon.Enforce, resolver: resolver,
		exceptions: c.exceptions, cap: c.moneyCap(core), charge: n.pay, log: core.log,
	})
	if err != nil {
		n.close()
		return nil, err
	}
	n.inside[insideModels] = func(ctx context.Context, l net.Listener) error { return n.models.proxy.Serve(ctx, l, n.run) }
	n.env = overlaid(n.env, n.models.proxy.Env(insideModels, n.run))
	n.ownLoopback()
	return n, nil
}

// ownLoopback lets programs reach each other on loopback without a proxy: it
// is the sandbox's own, and nothing of the host listens there.
func (n *network) ownLoopback() {
	const hosts = "localhost,127.0.0.1,::1,0.0.0.0"
	n.env = overlaid(n.env, []string{"NO_PROXY=" + hosts, "no_proxy=" + hosts})
	for i, e := range n.env {
		// A JVM reads no NO_PROXY.
		n.env[i] = strings.Replace(e, "-Dhttp.nonProxyHosts= ", "-Dhttp.nonProxyHosts=localhost|127.*|0.0.0.0 ", 1)
	}
}

// moneyCap is 0 where caps are not looked at.
func (c *networkConfig) moneyCap(core *core) float64 {
	if !core.config.Phases().Caps {
		return 0
	}
	return c.caps.CostUSD
}

// pay books what a model call cost.
func (n *network) pay(usd float64) error {
	_, err := n.charge(cordon.Usage{CostUSD: usd}) // the next call is refused
	return err
}

// bytesRule is what the guard's findings cite for the cap on bytes.
const bytesRule = "caps.bytes_written"

// spent books what the proxies sent, and says whether the run is past its cap
// on bytes with that: what it wrote and sent before counts, in whatever
// process. In shadow mode that cap refuses nothing; the walls' own one does.
// What is received is no part of it.
func (n *network) spent(by egress.Kind) func(ctx context.Context, run string, up, down int64) error {
	return func(ctx context.Context, run string, up, down int64) error {
		n.mu.Lock()
		n.up, n.down = n.up+up, n.down+down
		past := n.past
		n.mu.Unlock()
		if up == 0 && down > 0 {
			return past
		}
		err := n.book(up)
		n.mu.Lock()
		n.past = err
		n.mu.Unlock()
		if err == nil {
			return nil
		}
		if past == nil {
			// Before the command is ended, and its connections with it: what is
			// cut then leaves no row.
			now := time.Now()
			ref := egress.Refusal{
				Run: run, Proxy: by, Rule: egress.RuleUsage, Host: "*", Why: err.Error(), Refused: true, Enforced: true, Count: 1, First: now, Last: now,
			}
			if err := n.rows.Record(ctx, ref); err != nil {
				n.log("egress: %v", err)
			}
		}
		n.cut()
		return err
	}
}

// book charges the run, and returns why it may send no more.
func (n *network) book(up int64) error {
	findings, err := n.charge(cordon.Usage{BytesWritten: up})
	if err != nil {
		n.log("egress: %v", err)
	}
	if !n.enforce {
		return nil
	}
	for _, f := range findings {
		if f.Rule == bytesRule {
			err = errors.New(f.Detail)
		}
	}
	return err
}

// cut ends the command for its traffic.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	if n.stop != nil {
		n.stop(errTraffic)
	}
}

// excess is errTraffic where the command has sent or received too much, though
// it may have ended before it was told. It is for after close.
func (n *network) excess() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return errTraffic
	}
	return nil
}

// downloads is how many times more a command may receive than send.
const downloads = 16

// attach puts the listeners and the variables into the spec. stop ends the
// command when its traffic is over the cap.
// When ctx ends, so does all traffic.
func (n *network) attach(ctx context.Context, s *sandbox.Spec, stop context.CancelCauseFunc) {
	n.mu.Lock()
	n.stop = stop
	n.mu.Unlock()
	context.AfterFunc(ctx, n.kill)
	for at := range n.inside {
		s.Listen = append(s.Listen, at)
	}
	s.Env = overlaid(s.Env, n.env)
	s.Accept = func(at string, l net.Listener) {
		n.serving.Go(func() { _ = n.inside[at](n.ended, l) }) // it ends with the run
	}
}

func (n *network) kill() {
	for _, p := range n.proxies {
		p.Kill(n.run)
	}
	if n.models != nil {
		n.models.proxy.Kill(n.run)
	}
}

// close ends what is open, and says how much was sent and received. It may be
// called again.
func (n *network) close() (up, down int64) {
	n.once.Do(func() {
		n.ending()
		n.serving.Wait()
		var errs []error
		if n.models != nil {
			errs = append(errs, n.models.close())
		}
		for _, p := range n.proxies {
			errs = append(errs, p.Close()) // tells of the last bytes
		}
		if err := errors.Join(errs...); err != nil {
			n.log("egress: %v", err)
		}
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up, n.down
}

// maxSaid is how many refusals a person is told of; the rows have them all.
const maxSaid = 8

func (n *network) note(r egress.Refusal) {
	where := "connection to " + r.Host
	switch {
	case r.Host == "":
		where = "a request that names no host"
	case r.Port != 0:
		where = "connection to " + net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.said == nil {
		n.said = map[string]string{}
	}
	if len(n.said) <= maxSaid { // one more, for "and others"
		n.said[where] = r.Why
	}
}

// refusals say what was not reached and why, for people: many programs show
// no more of a proxy's answer than its number.
func (n *network) refusals() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, where := range slices.Sorted(maps.Keys(n.said)) {
		if len(out) == maxSaid {
			return append(out, "and more was refused (see: cordon violations)")
		}
		out = append(out, fmt.Sprintf("refused: %s: %s", where, n.said[where]))
	}
	return out
}

// watchedRows stores refusals, and ends the command when it was cut off for
// the traffic it caused.
type watchedRows struct {
	refusalRows
	n *network
}

func (w *watchedRows) Record(ctx context.Context, r egress.Refusal) error {
	err := w.refusalRows.Record(ctx, r)
	w.n.note(r)
	if r.Rule == egress.RuleUpload || r.Rule == egress.RuleDownload {
		w.n.cut()
	}
	return err
}
