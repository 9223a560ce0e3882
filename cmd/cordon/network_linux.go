package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

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
	// caps are the run's, which may have used some of them before.
	caps policy.Caps
}

// network is the only way out of one contained command: two proxies whose
// listeners are made inside its walls, so that the listener tells whose
// traffic it is. They enforce in every mode: walls are no mode.
type network struct {
	run     string
	inside  map[string]func(context.Context, net.Listener) error
	env     []string
	proxies []*egress.Proxy
	models  *modelAPI // nil: none was asked for
	charge  func(cordon.Usage) ([]cordon.Finding, error)
	enforce bool
	serving sync.WaitGroup
	ending  context.CancelFunc
	ended   context.Context
	log     func(format string, args ...any)

	mu   sync.Mutex
	stop context.CancelCauseFunc // ends the command
	over bool                    // it was ended, or would have been
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
		Recorder: &watchedRows{refusalRows{store: core.store, run: row}, n}, Usage: n.spent,
		Limits: egress.Limits{UploadBytes: c.upload, DownloadBytes: downloads * c.upload},
	}
	tool, llm := base, base
	tool.Rules, llm.Kind = rules, egress.LLMProxy
	for _, one := range []struct {
		at     string
		config egress.Config
	}{{insideTool, tool}, {insideLLM, llm}} {
		proxy, err := egress.New(one.config)
		if err != nil {
			n.close()
			return nil, err
		}
		n.proxies = append(n.proxies, proxy)
		n.inside[one.at] = func(ctx context.Context, l net.Listener) error { return proxy.Serve(ctx, l, n.run) }
	}
	n.env = append(egress.ClientEnv("http://"+insideTool), "CORDON_LLM_PROXY=http://"+insideLLM)
	if c.models == nil || !c.models.any() {
		return n, nil
	}
	n.models, err = openModels(modelConfig{
		flags: c.models, config: core.config, run: row, store: core.store, mode: core.config.Mode(), resolver: resolver,
		exceptions: c.exceptions, cap: c.moneyCap(core), charge: n.pay, log: core.log,
	})
	if err != nil {
		n.close()
		return nil, err
	}
	n.inside[insideModels] = func(ctx context.Context, l net.Listener) error { return n.models.proxy.Serve(ctx, l, n.run) }
	n.env = overlaid(n.env, n.models.proxy.Env(insideModels, n.run))
	return n, nil
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
func (n *network) spent(_ context.Context, _ string, up, down int64) error {
	n.mu.Lock()
	n.up, n.down = n.up+up, n.down+down
	n.mu.Unlock()
	findings, err := n.charge(cordon.Usage{BytesWritten: up})
	if !n.enforce {
		if err != nil {
			n.log("egress: %v", err)
		}
		return nil
	}
	for _, f := range findings {
		if f.Rule == bytesRule {
			err = errors.New(f.Detail)
		}
	}
	if err != nil {
		n.cut()
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

// watchedRows stores refusals, and ends the command when it was cut off for
// the traffic it caused.
type watchedRows struct {
	refusalRows
	n *network
}

func (w *watchedRows) Record(ctx context.Context, r egress.Refusal) error {
	err := w.refusalRows.Record(ctx, r)
	if r.Rule == egress.RuleUpload || r.Rule == egress.RuleDownload {
		w.n.cut()
	}
	return err
}
