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
	models bool
}

// network is the only way out of one contained command: two proxies whose
// listeners are made inside its walls, so that the listener tells whose
// traffic it is. They enforce in every mode: walls are no mode.
type network struct {
	run     string
	inside  map[string]func(context.Context, net.Listener) error
	env     []string
	proxies []*egress.Proxy
	serving sync.WaitGroup
	ending  context.CancelFunc
	ended   context.Context
	log     func(format string, args ...any)

	mu   sync.Mutex
	stop context.CancelCauseFunc // ends the command
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
	n.ended, n.ending = context.WithCancel(context.Background())
	base := egress.Config{
		Mode: cordon.Enforce, Resolver: resolver, UnsafeAllowPrivate: c.exceptions, Logf: core.log.printf,
		Recorder: &watchedRows{refusalRows{store: core.store, run: row}, n},
		Limits:   egress.Limits{UploadBytes: c.upload, DownloadBytes: downloads * c.upload},
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
	return n, nil
}

// downloads is how many times more a command may receive than send.
const downloads = 16

// attach puts the listeners and the variables into the spec. stop ends the
// command when its traffic is over the cap.
func (n *network) attach(s *sandbox.Spec, stop context.CancelCauseFunc) {
	n.mu.Lock()
	n.stop = stop
	n.mu.Unlock()
	for at := range n.inside {
		s.Listen = append(s.Listen, at)
	}
	s.Env = append(s.Env, n.env...)
	s.Accept = func(at string, l net.Listener) {
		n.serving.Go(func() { _ = n.inside[at](n.ended, l) }) // it ends with the run
	}
}

// close ends what is open, and says how much was sent and received. It may be
// called again.
func (n *network) close() (up, down int64) {
	n.once.Do(func() {
		n.ending()
		n.serving.Wait()
		var errs []error
		for _, p := range n.proxies {
			u, d := p.Usage(n.run)
			n.up, n.down = n.up+u, n.down+d
			errs = append(errs, p.Close())
		}
		if err := errors.Join(errs...); err != nil {
			n.log("egress: %v", err)
		}
	})
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
		w.n.mu.Lock()
		defer w.n.mu.Unlock()
		if w.n.stop != nil {
			w.n.stop(errTraffic)
		}
	}
	return err
}
