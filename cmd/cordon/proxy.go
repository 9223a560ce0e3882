package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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
	// fileInterval is how often the configuration file is looked at.
	fileInterval = 250 * time.Millisecond
)

type proxyFlags struct {
	*configFlags
	tool, llm, base, resolver, runID string
	private                          []string
	baseline, token, anyClient       bool
	maxBytes                         int64
	models                           *modelFlags
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
"cordon kill" ends. When the configuration file changes, its hosts are in force
at once.

Whoever can reach a listener is its client. With --token, and on TCP addresses
that are not loopback, each request has to show the token that is printed in
the address, http://run:TOKEN@host:port, as a proxy's password.

--llm-base-listen makes a further listener, for model APIs by their base URLs:
the keys are Cordon's own and are added outside. The line then has its address
in "llm_base", and in "llm_env" the variables for its clients.`,
		Args: cobra.NoArgs,
	}
	f := &proxyFlags{configFlags: addConfigFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.tool, "tool-listen", "", "`ADDR` of the tool proxy")
	flags.StringVar(&f.llm, "llm-listen", "", "`ADDR` of the LLM proxy")
	flags.StringVar(&f.base, "llm-base-listen", "", "`ADDR` of the model APIs' base URLs, on loopback")
	f.models = addModelFlags(cmd)
	flags.BoolVar(&f.token, "token", false, "let only clients in that show the token")
	flags.BoolVar(&f.anyClient, "unsafe-any-client", false, "let everybody in on addresses that are not loopback")
	flags.Int64Var(&f.maxBytes, "max-bytes", 0, "`BYTES` that may be sent in all (default no bound)")
	flags.StringArray("ecosystem", nil, "package `NAMES` whose registries are admitted as you configured them: some of npm, go, apt, pip, cargo, maven, gem, nuget, or all (default with --baseline npm,go,apt,pip,cargo, else none)")
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
	if err := f.check(); err != nil {
		return err
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
	ctx := f.cmd.Context()
	log := &lineLog{w: f.cmd.ErrOrStderr()}
	hosts, rules, err := f.rules(ctx, c, log)
	if err != nil {
		return exitError{exitUsage, err}
	}
	store, err := openStore(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for _, note := range c.Notes() {
		log.printf("%s", note)
	}
	row, err := f.openRun(ctx, c, store, hosts)
	if err != nil {
		return err
	}
	pair := &proxyPair{run: row, store: store, log: log, mode: c.Mode(), token: f.token, anyClient: f.anyClient}
	base := egress.Config{
		Mode: c.Mode(), Resolver: resolver, UnsafeAllowPrivate: exceptions,
		Recorder: &refusalRows{store: store, run: row}, Logf: log.printf,
		Limits: egress.Limits{UploadBytes: f.maxBytes}, Usage: pair.sent,
	}
	if err := pair.open(base, rules, f.tool, f.llm); err != nil {
		return errors.Join(err, pair.close())
	}
	if f.base != "" {
		err := pair.openModels(f.base, modelConfig{
			flags: f.models, config: c, run: row, store: store, mode: c.Mode(), resolver: resolver, exceptions: exceptions,
			cap: c.Caps().CostUSD, charge: pair.pay, log: log,
		})
		if err != nil {
			return errors.Join(err, pair.close())
		}
	}
	if c.Mode() != cordon.Enforce {
		log.printf("mode %s: hosts that no rule names pass; only private ranges and unreadable requests are refused", c.Mode())
	}
	pair.reload = func() { f.reload(ctx, pair) }
	pair.file = c.File()
	return pair.serve(ctx, f.cmd)
}

func (f *proxyFlags) check() error {
	switch {
	case f.tool == "" && f.llm == "" && f.base == "":
		return usagef("neither --tool-listen nor --llm-listen nor --llm-base-listen (want an ADDR: host:port, unix:PATH or fd:N)")
	case f.base != "" && !f.models.any():
		return usagef("--llm-base-listen without --llm: which model APIs?")
	case f.base == "" && f.models.any():
		return usagef("--llm without --llm-base-listen")
	case f.token && f.anyClient:
		return usagef("--token and --unsafe-any-client contradict each other")
	case f.maxBytes < 0:
		return usagef("--max-bytes %d (want more than zero)", f.maxBytes)
	}
	return f.models.check()
}

// rules are the hosts that the flags and the configuration name.
func (f *proxyFlags) rules(ctx context.Context, c *config.Config, log *lineLog) ([]string, *egress.Rules, error) {
	hosts := c.AllowHosts()
	if f.baseline {
		hosts = append(hosts, egress.Baseline()...)
	}
	if p := newPackages(c, resolveTime, ""); f.baseline || p.named {
		hosts = append(hosts, p.hosts(ctx, log)...)
	}
	rules, err := egress.ParseRules(hosts)
	return hosts, rules, err
}

// reload puts the hosts of a configuration that has changed in force. One
// that cannot be read changes nothing.
func (f *proxyFlags) reload(ctx context.Context, pair *proxyPair) {
	c, err := f.load()
	var rules *egress.Rules
	if err == nil {
		_, rules, err = f.rules(ctx, c, pair.log)
	}
	if err == nil {
		err = pair.setRules(rules)
	}
	if err != nil {
		pair.log.printf("the configuration has changed but cannot be used; the hosts stay as they were: %v", err)
		return
	}
	pair.log.printf("the configuration has changed; its hosts are in force")
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

// proxyPair is the two proxies and what they listen on, and what serves model
// APIs by their base URLs.
type proxyPair struct {
	run              audit.RunRow
	store            audit.Store
	log              *lineLog
	mode             cordon.Mode
	token, anyClient bool
	file             string // the configuration
	reload           func()
	proxies          []*egress.Proxy
	listens          []net.Listener
	shared           []bool
	tool             *egress.Proxy
	models           *modelAPI
	base             net.Listener
	ready            struct {
		Tool    string   `json:"tool,omitempty"`
		LLM     string   `json:"llm,omitempty"`
		LLMBase string   `json:"llm_base,omitempty"`
		LLMEnv  []string `json:"llm_env,omitempty"`
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
		shared := p.wantsToken(l)
		p.proxies, p.listens, p.shared = append(p.proxies, proxy), append(p.listens, l), append(p.shared, shared)
		if c.Kind == egress.ToolProxy {
			p.tool = proxy
		}
		*one.real = spelledAddr(l)
		if !shared {
			continue
		}
		if l.Addr().Network() == "unix" {
			return usagef("--token with %s %s: a Unix socket can be connected to by its owner only", one.flag, one.address)
		}
		token, err := proxy.Register(p.run.RunID, nil)
		if err != nil {
			return err
		}
		*one.real = "http://run:" + token + "@" + l.Addr().String()
	}
	return nil
}

// wantsToken: others can reach the listener.
func (p *proxyPair) wantsToken(l net.Listener) bool {
	a, tcp := l.Addr().(*net.TCPAddr)
	return p.token || tcp && !a.IP.IsLoopback() && !p.anyClient
}

func spelledAddr(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// openModels makes the listener of the model APIs. Its clients show the
// placeholder that llm_env has for them.
func (p *proxyPair) openModels(address string, c modelConfig) (err error) {
	if p.base, err = egress.Listen(address); err != nil {
		return fmt.Errorf("--llm-base-listen: %w", err)
	}
	a, tcp := p.base.Addr().(*net.TCPAddr)
	switch {
	case !tcp:
		return usagef("--llm-base-listen %s (want host:port: a base URL names no socket)", address)
	case !a.IP.IsLoopback() && !p.anyClient:
		return usagef("--llm-base-listen %s is not loopback: what it serves is not encrypted (--unsafe-any-client would)", address)
	}
	if p.models, err = openModels(c); err != nil {
		return err
	}
	p.ready.LLMBase = spelledAddr(p.base)
	p.ready.LLMEnv = p.models.proxy.Env(p.base.Addr().String(), p.run.RunID)
	return nil
}

// sent counts what the run's clients send.
func (p *proxyPair) sent(_ context.Context, run string, up, _ int64) error {
	p.store.AddUsage(audit.Usage{RunID: run, BytesWritten: up})
	return nil
}

// pay counts what a model call cost.
func (p *proxyPair) pay(usd float64) error {
	p.store.AddUsage(audit.Usage{RunID: p.run.RunID, CostUSD: usd})
	return nil
}

// setRules puts other hosts in force.
func (p *proxyPair) setRules(rules *egress.Rules) error {
	if p.tool == nil {
		return nil
	}
	return p.tool.SetRules(rules)
}

// watchFile calls reload when the configuration file is another one than
// before, until ctx ends.
func (p *proxyPair) watchFile(ctx context.Context) {
	if p.file == "" || p.tool == nil {
		return
	}
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	for last := fileState(p.file); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A file that is being replaced is not there for a moment.
		if now := fileState(p.file); now != last && now != "" {
			last = now
			p.reload()
		}
	}
}

// fileState tells one state of a file from another; "" where it cannot be
// read.
func fileState(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

func (p *proxyPair) close() error {
	var errs []error
	for i, proxy := range p.proxies {
		errs = append(errs, p.listens[i].Close(), proxy.Close())
	}
	if p.models != nil {
		errs = append(errs, p.models.close())
	}
	if p.base != nil {
		errs = append(errs, p.base.Close())
	}
	return errors.Join(errs...)
}

// serve runs until ctx ends, the run is killed or a listener fails.
func (p *proxyPair) serve(ctx context.Context, cmd *cobra.Command) error {
	failed := make(chan error, len(p.proxies)+1)
	var serving sync.WaitGroup
	for i, proxy := range p.proxies {
		// Not ctx: after a signal the open tunnels are let finish.
		serve := proxy.Serve
		if p.shared[i] {
			serve = proxy.ServeShared
		}
		serving.Go(func() { failed <- serve(context.WithoutCancel(ctx), p.listens[i], p.run.RunID) })
	}
	models, endModels := context.WithCancel(context.WithoutCancel(ctx))
	defer endModels()
	if p.models != nil {
		serving.Go(func() { failed <- p.models.proxy.Serve(models, p.base, p.run.RunID) })
	}
	watched, stop := context.WithCancel(ctx)
	killed := make(chan struct{})
	serving.Go(func() { p.watchKill(watched, killed) })
	serving.Go(func() { p.watchFile(watched) })
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
	errs := make([]error, len(p.proxies)+2)
	errs[len(p.proxies)] = err
	if p.models != nil {
		serving.Go(func() {
			endModels()
			errs[len(p.proxies)+1] = p.models.close()
		})
	}
	for i, proxy := range p.proxies {
		serving.Go(func() { errs[i] = proxy.Shutdown(drain) })
	}
	serving.Wait()
	return errors.Join(errs...)
}

// watchKill closes everything when the run is killed, by whatever process. In
// enforce mode a store that cannot be read counts as a kill.
func (p *proxyPair) watchKill(ctx context.Context, killed chan<- struct{}) {
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
				if p.models != nil {
					p.models.proxy.Kill(p.run.RunID)
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
		if ctx.Err() != nil {
			return false
		}
		p.log.printf("kills cannot be read, which counts as a kill in enforce mode: %v", err)
		return p.mode == cordon.Enforce
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
	if r.Refused && !r.Enforced {
		detail += "; refused in every mode"
	}
	args, err := json.Marshal(map[string]any{"host": r.Host, "port": r.Port})
	if err != nil {
		return audit.Violation{}, err
	}
	return trafficRow(run, traffic{
		tool: "proxy/" + r.Proxy.String(), violation: cordon.EgressHost, rule: r.Rule, detail: detail, enforced: r.Enforced, args: args,
		count: r.Count, first: r.First, last: r.Last,
	})
}

// traffic is what a proxy refused, or would have.
type traffic struct {
	tool        string
	violation   cordon.Violation
	rule        string
	detail      string
	enforced    bool
	args        []byte // JSON
	count       int64
	first, last time.Time
}

func trafficRow(run audit.RunRow, t traffic) (audit.Violation, error) {
	if t.count > 1 {
		t.detail += fmt.Sprintf(" (%d times from %s to %s)", t.count, audit.FormatTime(t.first), audit.FormatTime(t.last))
	}
	tree, err := strictjson.Parse(t.args)
	if err != nil {
		return audit.Violation{}, err
	}
	return audit.NewViolation(run, cordon.Call{Server: "cordon", Tool: t.tool}, cordon.Decision{
		RunID: run.RunID, Outcome: cordon.Blocked, Enforced: t.enforced, PolicyID: run.PolicyID, ArgsHash: audit.ArgsHash(&tree),
		Findings: []cordon.Finding{{
			Phase: cordon.PhaseEgress, Violation: t.violation, Rule: t.rule, Outcome: cordon.Blocked, Detail: t.detail,
		}},
	}, t.last), nil
}
