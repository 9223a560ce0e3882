package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/spf13/cobra"
)

// How long open tunnels may go on after a signal, and how often a proxy looks
// whether its run was killed.
const (
	proxyDrain   = time.Second
	killInterval = 25 * time.Millisecond
)

type proxyFlags struct {
	*configFlags
	tool, llm, resolver, runID string
	private                    []string
	baseline                   bool
}

func proxyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy --tool-listen ADDR --llm-listen ADDR",
		Short: "Run the two egress proxies alone, for other sandboxes",
		Long: `Run the pair of egress proxies: the tool proxy admits the hosts that
--allow-host and the configuration name, and never an LLM API host; the LLM
proxy admits LLM API hosts only. ADDR is host:port, unix:PATH or fd:N. When
both are ready one line {"tool":"…","llm":"…"} with the real addresses is
printed. Refusals are stored under a run of the proxy's own, which
"cordon kill" ends. Clients that can reach the listeners are not told apart.`,
		Args: cobra.NoArgs,
	}
	f := &proxyFlags{configFlags: addConfigFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.tool, "tool-listen", "", "`ADDR` of the tool proxy")
	flags.StringVar(&f.llm, "llm-listen", "", "`ADDR` of the LLM proxy")
	flags.StringArray("allow-host", nil, "a further `HOST` that may be reached, or *.HOST, each with an optional :PORT (repeatable)")
	flags.String("mode", "", "mode: off, shadow or enforce")
	flags.StringVar(&f.resolver, "resolver", "", "DNS server `HOST:PORT`, HOST an IP address (default the system's)")
	flags.StringArrayVar(&f.private, "unsafe-allow-private", nil, "a private or special range `CIDR` that hosts may resolve to (repeatable)")
	flags.BoolVar(&f.baseline, "baseline", false, "admit the curated baseline of package indexes as well")
	flags.StringVar(&f.runID, "run-id", "", "`ID` of the run that refusals are stored under (default one of its own)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run() }
	return cmd
}

func (f *proxyFlags) run() (err error) {
	if f.tool == "" && f.llm == "" {
		return usagef("neither --tool-listen nor --llm-listen (want an ADDR: host:port, unix:PATH or fd:N)")
	}
	c, err := f.load()
	if err != nil {
		return err
	}
	exceptions, err := prefixes(f.private)
	if err != nil {
		return err
	}
	resolver, err := egress.NewResolver(f.resolver)
	if err != nil {
		return exitError{exitUsage, err}
	}
	hosts := c.AllowHosts()
	if f.baseline {
		hosts = append(hosts, egress.Baseline()...)
	}
	rules, err := egress.ParseRules(hosts)
	if err != nil {
		return exitError{exitUsage, err}
	}
	ctx := f.cmd.Context()
	store, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	log := &lineLog{w: f.cmd.ErrOrStderr()}
	for _, note := range c.Notes() {
		log.printf("%s", note)
	}
	row, err := f.openRun(ctx, c, store, hosts)
	if err != nil {
		return err
	}
	pair := &proxyPair{run: row, store: store, log: log, mode: c.Mode()}
	base := egress.Config{
		Mode: c.Mode(), Resolver: resolver, UnsafeAllowPrivate: exceptions,
		Recorder: &refusalRows{store: store, run: row}, Logf: log.printf,
	}
	if err := pair.open(base, rules, f.tool, f.llm); err != nil {
		return errors.Join(err, pair.close())
	}
	if c.Mode() != cordon.Enforce {
		log.printf("mode %s: hosts that no rule names pass; only private ranges and unreadable requests are refused", c.Mode())
	}
	return pair.serve(ctx, f.cmd)
}

func prefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, usagef("--unsafe-allow-private %q: %w", s, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// openRun stores the run that refusals belong to.
func (f *proxyFlags) openRun(ctx context.Context, c *config.Config, store audit.Store, hosts []string) (audit.RunRow, error) {
	id := f.runID
	if id == "" {
		id = "proxy-" + rand.Text()[:16]
	} else if err := policy.CheckRunID(id); err != nil {
		return audit.RunRow{}, exitError{exitUsage, err}
	}
	text, err := json.Marshal(map[string]any{"hosts": hosts, "unsafe_allow_private": f.private})
	if err != nil {
		return audit.RunRow{}, err
	}
	row, err := audit.PrepareRun(audit.RunRow{
		RunID: id, UserID: userName(), PolicyID: "egress-proxy", Tier: c.Tier().String(), Profile: c.Profile(),
		Mode: c.Mode().String(), PolicyJSON: string(text),
	}, time.Now())
	if err != nil {
		return row, err
	}
	return store.OpenRun(ctx, row)
}

// proxyPair is the two proxies and what they listen on.
type proxyPair struct {
	run     audit.RunRow
	store   audit.Store
	log     *lineLog
	mode    cordon.Mode
	proxies []*egress.Proxy
	listens []net.Listener
	ready   struct {
		Tool string `json:"tool,omitempty"`
		LLM  string `json:"llm,omitempty"`
	}
}

// open makes the proxies whose address is not empty.
func (p *proxyPair) open(base egress.Config, rules *egress.Rules, tool, llm string) error {
	for _, one := range []struct {
		kind    egress.Kind
		flag    string
		address string
		real    *string
	}{
		{egress.ToolProxy, "--tool-listen", tool, &p.ready.Tool},
		{egress.LLMProxy, "--llm-listen", llm, &p.ready.LLM},
	} {
		if one.address == "" {
			continue
		}
		c := base
		if c.Kind = one.kind; c.Kind == egress.ToolProxy {
			c.Rules = rules
		}
		l, err := egress.Listen(one.address)
		if err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
		proxy, err := egress.New(c)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		p.proxies, p.listens = append(p.proxies, proxy), append(p.listens, l)
		*one.real = l.Addr().String()
		if l.Addr().Network() == "unix" {
			*one.real = "unix:" + *one.real
		}
	}
	return nil
}

func (p *proxyPair) close() error {
	var errs []error
	for i, proxy := range p.proxies {
		errs = append(errs, p.listens[i].Close(), proxy.Close())
	}
	return errors.Join(errs...)
}

// serve runs until ctx ends, the run is killed or a listener fails.
func (p *proxyPair) serve(ctx context.Context, cmd *cobra.Command) error {
	failed := make(chan error, len(p.proxies))
	var serving sync.WaitGroup
	for i, proxy := range p.proxies {
		// Not ctx: after a signal the open tunnels are let finish.
		serving.Go(func() { failed <- proxy.Serve(context.WithoutCancel(ctx), p.listens[i], p.run.RunID) })
	}
	watched, stop := context.WithCancel(ctx)
	killed := make(chan struct{})
	serving.Go(func() { p.watchKill(watched, killed) })
	err := json.NewEncoder(cmd.OutOrStdout()).Encode(p.ready)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-killed:
			err = exitError{exitKilled, fmt.Errorf("run %q was killed", p.run.RunID)}
		case err = <-failed:
		}
	}
	stop()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), proxyDrain)
	defer cancel()
	errs := make([]error, len(p.proxies)+1)
	errs[len(p.proxies)] = err
	for i, proxy := range p.proxies {
		serving.Go(func() { errs[i] = proxy.Shutdown(drain) })
	}
	serving.Wait()
	return errors.Join(errs...)
}

// watchKill closes everything when the run is killed, by whatever process. A
// store that cannot be read counts as a kill.
func (p *proxyPair) watchKill(ctx context.Context, killed chan<- struct{}) {
	if p.mode != cordon.Enforce {
		return
	}
	tick := time.NewTicker(killInterval)
	defer tick.Stop()
	for last, first := uint64(0), true; ; first = false {
		if now := p.store.KillGeneration(); first || now != last {
			last = now
			if p.isKilled(ctx) {
				close(killed) // before the listeners fail for it
				for _, proxy := range p.proxies {
					proxy.Kill(p.run.RunID)
				}
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *proxyPair) isKilled(ctx context.Context) bool {
	kills, err := p.store.Kills(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.log.printf("kills cannot be read, which counts as a kill: %v", err)
		}
		return ctx.Err() == nil
	}
	for _, k := range kills {
		if k.RunID == p.run.RunID {
			return true
		}
	}
	return false
}

// refusalRows stores what the proxies refuse as rows of their run.
type refusalRows struct {
	store audit.Store
	run   audit.RunRow
}

var _ egress.Recorder = (*refusalRows)(nil)

// Record stores one row, which says how many refusals it stands for.
func (w *refusalRows) Record(ctx context.Context, r egress.Refusal) error {
	v, err := refusalRow(w.run, r)
	if err != nil {
		return err
	}
	return w.store.Record(ctx, w.run, []audit.Violation{v})
}

func refusalRow(run audit.RunRow, r egress.Refusal) (audit.Violation, error) {
	target := r.Host
	if r.Port != 0 {
		target = net.JoinHostPort(r.Host, fmt.Sprint(r.Port))
	}
	detail := "connection to " + target + ": " + r.Why
	if target == "" {
		detail = "request without a host: " + r.Why
	}
	if r.Count > 1 {
		detail += fmt.Sprintf(" (%d times from %s to %s)", r.Count, audit.FormatTime(r.First), audit.FormatTime(r.Last))
	}
	args, err := json.Marshal(map[string]any{"host": r.Host, "port": r.Port})
	if err != nil {
		return audit.Violation{}, err
	}
	tree, err := strictjson.Parse(args)
	if err != nil {
		return audit.Violation{}, err
	}
	return audit.NewViolation(run, cordon.Call{Server: "cordon", Tool: "proxy/" + r.Proxy.String()}, cordon.Decision{
		RunID: run.RunID, Outcome: cordon.Blocked, Enforced: r.Enforced, PolicyID: run.PolicyID, ArgsHash: audit.ArgsHash(&tree),
		Findings: []cordon.Finding{{
			Phase: cordon.PhaseEgress, Violation: cordon.EgressHost, Rule: r.Rule, Outcome: cordon.Blocked, Detail: detail,
		}},
	}, r.Last), nil
}
