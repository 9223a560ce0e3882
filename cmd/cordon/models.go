package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/contain/llm"
	"github.com/spf13/cobra"
)

// modelFlags name the model APIs that a run reaches by base URLs, with keys
// that stay outside.
type modelFlags struct {
	providers, bases, features []string
}

func addModelFlags(cmd *cobra.Command) *modelFlags {
	o := &modelFlags{}
	f := cmd.Flags()
	f.StringSliceVar(&o.providers, "llm", nil, "model APIs that are reached by their base-URL variables: some of anthropic, openai, gemini; the `NAMES`' keys are Cordon's own and stay outside")
	f.StringArrayVar(&o.bases, "llm-base", nil, "another server of a provider's protocol, `PROVIDER=URL`; it implies --llm PROVIDER (repeatable)")
	f.StringArrayVar(&o.features, "llm-feature", nil, "a `FEATURE` that a model API may do on its own side, such as web_search (repeatable)")
	return o
}

// any reports whether a model API is asked for.
func (o *modelFlags) any() bool { return len(o.providers)+len(o.bases) > 0 }

// check refuses flags that go together in no way.
func (o *modelFlags) check() error {
	if len(o.features) > 0 && !o.any() {
		return usagef("--llm-feature without --llm")
	}
	return nil
}

// modelServer is what one provider's calls go to.
type modelServer struct {
	llm.Upstream
	// own: the operator named its address.
	own bool
}

// servers are the providers that were asked for. A key goes only where it
// belongs: to the provider itself, or to the address that was named with it.
func (o *modelFlags) servers(c *config.Config, env func(string) string, log *lineLog) ([]modelServer, error) {
	bases := map[string]string{}
	for _, text := range o.bases {
		name, base, ok := strings.Cut(text, "=")
		if !ok || base == "" || bases[name] != "" {
			return nil, usagef("--llm-base %q (want PROVIDER=URL, each provider once)", text)
		}
		bases[name] = base
	}
	var out []modelServer
	for _, name := range slices.Concat(o.providers, slices.Sorted(maps.Keys(bases))) {
		name = strings.TrimSpace(name)
		if !slices.Contains(config.LLMProviders(), name) {
			return nil, usagef("--llm %q (want some of %s)", name, strings.Join(config.LLMProviders(), ", "))
		}
		if slices.ContainsFunc(out, func(m modelServer) bool { return string(m.Provider) == name }) {
			continue
		}
		m, err := server(name, bases[name], c, env, log)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// keyVariables are where each provider's key is looked for.
var keyVariables = map[string][]string{
	"anthropic": {"ANTHROPIC_API_KEY"},
	"openai":    {"OPENAI_API_KEY"},
	"gemini":    {"GEMINI_API_KEY", "GOOGLE_API_KEY"},
}

func server(name, base string, c *config.Config, env func(string) string, log *lineLog) (modelServer, error) {
	m := modelServer{Upstream: llm.Upstream{Provider: llm.Provider(name), BaseURL: base}, own: base != ""}
	key := ""
	for _, v := range keyVariables[name] {
		if key == "" {
			key = env(v)
		}
	}
	upstreams := c.Egress().LLM
	i := slices.IndexFunc(upstreams, func(u config.LLMUpstream) bool { return u.Provider == name })
	switch {
	case base != "":
	case i >= 0:
		u := upstreams[i]
		m.BaseURL, m.own, key = u.BaseURL, true, u.Key.Reveal()
		if u.KeyEnv != "" && key == "" {
			return m, usagef("--llm %s: its key_env %s is not set", name, u.KeyEnv)
		}
	case key == "":
		return m, usagef("--llm %s: no key (want %s in Cordon's own environment)", name, strings.Join(keyVariables[name], " or "))
	}
	if u, err := url.Parse(m.BaseURL); err == nil && u.Scheme == "http" {
		m.UnsafePlainHTTP = true
		if key != "" && !loopback(u.Hostname()) {
			log.printf("the key of %s is not sent to %s, which is plain HTTP", name, printable(u.Host))
			key = ""
		}
	}
	if key == "" {
		return m, nil
	}
	secret, err := llm.NewSecret(key)
	if err != nil {
		return m, exitError{exitUsage, fmt.Errorf("--llm %s: %w", name, err)}
	}
	m.Key = func(context.Context) (llm.Secret, error) { return secret, nil }
	return m, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// modelConfig is what the model APIs of a run are made from.
type modelConfig struct {
	flags      *modelFlags
	config     *config.Config
	run        audit.RunRow
	store      audit.Store
	mode       cordon.Mode
	resolver   egress.Resolver
	exceptions []netip.Prefix
	// charge books what a call cost.
	charge func(usd float64) error
	// cap is the run's money, in US dollars; 0 is none of it checked.
	cap float64
	log *lineLog
}

// modelAPI adds keys to a run's model calls and counts their cost.
type modelAPI struct {
	proxy *llm.Proxy
	// official and own dial: providers' own addresses, and those that the
	// operator named.
	official, own *egress.Proxy
}

func openModels(c modelConfig) (*modelAPI, error) {
	servers, err := c.flags.servers(c.config, os.Getenv, c.log)
	if err != nil {
		return nil, err
	}
	conf := llm.Config{Mode: c.mode, Logf: c.log.printf, Allowed: c.affords, Record: c.record}
	conf.Charge = func(_ context.Context, ch llm.Charge) error { return c.charge(ch.USD) }
	for _, name := range c.flags.features {
		f, err := llm.ParseFeature(name)
		if err != nil {
			return nil, exitError{exitUsage, fmt.Errorf("--llm-feature: %w", err)}
		}
		conf.Features = append(conf.Features, f)
	}
	if file := c.config.Egress().Prices; file != "" {
		data, err := os.ReadFile(file)
		if err == nil {
			conf.Prices, err = llm.DefaultPrices().With(data)
		}
		if err != nil {
			return nil, exitError{exitUsage, fmt.Errorf("egress.prices: %w", err)}
		}
	}
	for _, s := range servers {
		conf.Upstreams = append(conf.Upstreams, s.Upstream)
	}
	m := &modelAPI{}
	conf.Dial = m.dial
	if err := m.ways(c, servers); err != nil {
		return nil, errors.Join(err, m.close())
	}
	if m.proxy, err = llm.New(conf); err != nil {
		return nil, errors.Join(exitError{exitUsage, err}, m.close())
	}
	return m, nil
}

// ways opens what connects to the providers: the official ones, and what the
// operator named. An address that was named as one is an exception by that.
func (m *modelAPI) ways(c modelConfig, servers []modelServer) (err error) {
	base := egress.Config{
		Kind: egress.LLMProxy, Mode: cordon.Enforce, Resolver: c.resolver, UnsafeAllowPrivate: c.exceptions,
		Recorder: &refusalRows{store: c.store, run: c.run}, Logf: c.log.printf,
	}
	if m.official, err = egress.New(base); err != nil {
		return err
	}
	var hosts []string
	private := slices.Clone(c.exceptions)
	for _, s := range servers {
		if !s.own {
			continue
		}
		u, err := url.Parse(s.BaseURL)
		if err != nil || u.Host == "" {
			return usagef("the base URL of %s (want https://host/path)", s.Provider)
		}
		if name, err := egress.Canonical(u.Hostname()); err == nil && egress.IsLLM(name) {
			continue
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80"}[u.Scheme]
		}
		if port == "" {
			port = "443"
		}
		hosts = append(hosts, net.JoinHostPort(u.Hostname(), port))
		private = append(private, namedRanges(u.Hostname())...)
	}
	rules, err := egress.ParseRules(hosts)
	if err != nil {
		return exitError{exitUsage, err}
	}
	base.Kind, base.Rules, base.UnsafeAllowPrivate = egress.ToolProxy, rules, private
	m.own, err = egress.New(base)
	return err
}

// namedRanges are the addresses that a URL's host names by itself.
func namedRanges(host string) []netip.Prefix {
	if host == "localhost" {
		return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	a = a.Unmap()
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
}

func (m *modelAPI) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := egress.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if name, err := egress.Canonical(host); err == nil && egress.IsLLM(name) {
		return m.official.Dial(ctx, network, address)
	}
	return m.own.Dial(ctx, network, address)
}

// close ends the calls, and books what they cost.
func (m *modelAPI) close() error {
	var errs []error
	if m.proxy != nil {
		errs = append(errs, m.proxy.Close())
	}
	for _, p := range []*egress.Proxy{m.official, m.own} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// affords says whether the run may spend so much more, by what all of
// Cordon's processes have counted for it.
func (c *modelConfig) affords(run string, usd float64) error {
	if c.cap <= 0 {
		return nil
	}
	used, err := c.store.Usage(context.Background(), run)
	if err != nil {
		return fmt.Errorf("what the run has spent cannot be read: %w", err)
	}
	if used.CostUSD+usd > c.cap {
		return fmt.Errorf("the run has spent $%.4f of $%.2f, and the call may cost $%.4f", used.CostUSD, c.cap, usd)
	}
	return nil
}

// record stores a refusal as a row of the run.
func (c *modelConfig) record(ctx context.Context, r llm.Refusal) error {
	v, err := modelRow(c.run, r)
	if err != nil {
		return err
	}
	return c.store.Record(ctx, c.run, []audit.Violation{v})
}

func modelRow(run audit.RunRow, r llm.Refusal) (audit.Violation, error) {
	args, err := json.Marshal(map[string]any{"provider": string(r.Provider), "method": r.Method, "path": r.Path})
	if err != nil {
		return audit.Violation{}, err
	}
	kind := cordon.EgressHost
	switch r.Rule {
	case llm.RuleCap:
		kind = cordon.CapExceeded
	case llm.RuleKilled:
		kind = cordon.KilledRun
	}
	return trafficRow(run, traffic{
		tool: "proxy/llm-base", violation: kind, rule: r.Rule, enforced: r.Enforced, args: args,
		detail: fmt.Sprintf("model call %s %s of %s: %s", r.Method, r.Path, r.Provider, r.Why),
		count:  r.Count, first: r.First, last: r.Last,
	})
}

// overlaid is env with the variables of over in the place of those of the
// same name: a program that finds a name twice may take either.
func overlaid(env, over []string) []string {
	given := map[string]bool{}
	for _, e := range over {
		name, _, _ := strings.Cut(e, "=")
		given[name] = true
	}
	out := make([]string, 0, len(env)+len(over))
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !given[name] {
			out = append(out, e)
		}
	}
	return append(out, over...)
}
