package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

// Config is what policies are made from. NewIssuer validates and copies it.
type Config struct {
	// Profile of runs that name none: "atom" or "coding".
	Profile string
	// BaselineHosts are the curated hosts of supervised and autonomous runs;
	// AllowHosts are added to them. Students and interns get neither.
	BaselineHosts, AllowHosts []string
	// AllowTools admits tools to every tier beyond its row: "NAME" (on any
	// server), "SERVER/NAME", "mcp__SERVER__NAME" or "group:GROUP". There is
	// no "*" here; that is the tier autonomous.
	AllowTools []string
	// Read and Write are further roots of every run: absolute, clean paths.
	// Students get Write for reading.
	Read, Write []string
	// Caps of every run, each greater than zero.
	Caps Caps
	// Tenants are overrides by tenant, honoured only if TenantOverride is set.
	TenantOverride bool
	Tenants        map[string]Override
	// Lookup finds the policy that was issued for a run by an earlier process,
	// or that the cache dropped. found is false for a run that never was. It
	// must see what was issued but not yet written. May be nil: then runs do
	// not outlive the issuer and the cache drops none.
	Lookup func(runID string) (s Stored, found bool, err error)
	// MaxRuns is how many named runs are kept in memory; 0 is 65536. Past it
	// the one unused for longest is dropped if there is a Lookup, and new
	// runs are refused if there is none.
	MaxRuns int
}

// Override narrows what a tenant's runs get. What is nil narrows nothing.
type Override struct {
	// Tier is the highest tier.
	Tier *cordon.Tier
	// Hosts are the only hosts; an empty list that is not nil is none.
	Hosts []string
	// Tools are the only tools, as in AllowTools, with "*" for all; an empty
	// list that is not nil is none.
	Tools []string
	// ToolCalls, Exec, BytesWritten and CostUSD lower the caps; each is
	// greater than zero.
	ToolCalls    *int64
	Exec         *time.Duration
	BytesWritten *int64
	CostUSD      *float64
}

// narrowing is an Override that was validated.
type narrowing struct {
	tier         cordon.Tier
	hosts        []string
	narrowsHosts bool
	tools        *toolSet
	caps         Caps
}

const defaultMaxRuns = 1 << 16

func checkProfile(p string) error {
	if !slices.Contains(Profiles(), p) {
		return fmt.Errorf("policy: unknown profile %q (want one of %q)", p, Profiles())
	}
	return nil
}

func checkCaps(what string, c Caps) error {
	var errs []error
	refuse := func(name string, value any) {
		errs = append(errs, fmt.Errorf("policy: %s cap %s is %v (want more than zero; no value means unlimited)", what, name, value))
	}
	if c.ToolCalls <= 0 {
		refuse("tool_calls", c.ToolCalls)
	}
	if c.Exec <= 0 {
		refuse("exec_seconds", c.Exec.Seconds())
	}
	if c.BytesWritten <= 0 {
		refuse("bytes_written", c.BytesWritten)
	}
	// Written so that NaN, which compares with nothing, is refused too.
	if !(c.CostUSD > 0) || math.IsInf(c.CostUSD, 1) {
		refuse("cost_usd", c.CostUSD)
	}
	return errors.Join(errs...)
}

func narrowingOf(tenant string, o Override, base Caps) (narrowing, error) {
	what := fmt.Sprintf("tenant %q", tenant)
	n := narrowing{tier: cordon.Autonomous, caps: base}
	if o.Tier != nil {
		n.tier = known(*o.Tier)
	}
	if o.Hosts != nil {
		hosts, err := parseHosts(what, o.Hosts)
		if err != nil {
			return n, err
		}
		n.hosts, n.narrowsHosts = hosts, true
	}
	if o.Tools != nil {
		set, err := parseTools(what, o.Tools)
		if err != nil {
			return n, err
		}
		n.tools = &set
	}
	set(&n.caps.ToolCalls, o.ToolCalls)
	set(&n.caps.Exec, o.Exec)
	set(&n.caps.BytesWritten, o.BytesWritten)
	set(&n.caps.CostUSD, o.CostUSD)
	if err := checkCaps(what, n.caps); err != nil {
		return n, err
	}
	n.caps = smaller(n.caps, base)
	return n, nil
}

func set[T any](dst, v *T) {
	if v != nil {
		*dst = *v
	}
}

func smaller(a, b Caps) Caps {
	return Caps{
		ToolCalls:    min(a.ToolCalls, b.ToolCalls),
		Exec:         min(a.Exec, b.Exec),
		BytesWritten: min(a.BytesWritten, b.BytesWritten),
		CostUSD:      min(a.CostUSD, b.CostUSD),
	}
}

// known maps a tier that is none to the lowest.
func known(t cordon.Tier) cordon.Tier {
	if t > cordon.Autonomous {
		return cordon.Student
	}
	return t
}

// checkPath wants an absolute path that means the same however it is read.
func checkPath(what, p string) error {
	if badText(p) || !path.IsAbs(p) || path.Clean(p) != p {
		return fmt.Errorf("policy: %s %q (want an absolute path without \"..\", doubled or final slashes)", what, p)
	}
	return nil
}

func checkPaths(what string, list []string) error {
	for _, p := range list {
		if err := checkPath(what, p); err != nil {
			return err
		}
	}
	return nil
}

// badText reports what could break a line, hide, or end a C string.
func badText(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == 0x7f {
			return true
		} else if c >= utf8.RuneSelf {
			return badRunes(s)
		}
	}
	return false
}

func badRunes(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
	})
}

// canonical is what Hash covers, in this order.
type canonical struct {
	Format    int         `json:"format"`
	Profile   string      `json:"profile"`
	Tier      cordon.Tier `json:"tier"`
	Tenant    string      `json:"tenant"`
	Workspace string      `json:"workspace"`
	Home      string      `json:"home"`
	Roots     []Root      `json:"roots"`
	Tools     [][]string  `json:"tools"`
	Hosts     []string    `json:"hosts"`
	Calls     int64       `json:"tool_calls"`
	Exec      int64       `json:"exec_ns"`
	Bytes     int64       `json:"bytes_written"`
	Cost      float64     `json:"cost_usd"`
}

func (g *grant) sum() (string, error) {
	b, err := json.Marshal(canonical{
		Format: 1, Profile: g.profile, Tier: g.tier, Tenant: g.tenant,
		Workspace: g.workspace, Home: g.home, Roots: orEmpty(g.roots),
		Tools: entries(g.tools), Hosts: orEmpty(g.hosts), Calls: g.caps.ToolCalls,
		Exec: int64(g.caps.Exec), Bytes: g.caps.BytesWritten, Cost: g.caps.CostUSD,
	})
	if err != nil {
		return "", fmt.Errorf("policy: hash of a policy: %w", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// rules is a Config that was validated: what grants are made from.
type rules struct {
	profile   string
	hosts     []string
	allow     toolSet
	read      []string
	write     []string
	caps      Caps
	tenants   map[string]narrowing
	maxRuns   int
	lookup    func(string) (Stored, bool, error)
	overrides bool
}

func newRules(c Config) (*rules, error) {
	allow, toolErr := parseTools("allowed tools", c.AllowTools)
	if allow.every {
		toolErr = errors.New(`policy: allowed tools entry "*" (want tools by name or group; "*" is the tier autonomous)`)
	}
	hosts, hostErr := parseHosts("allowed", slices.Concat(c.BaselineHosts, c.AllowHosts))
	err := errors.Join(checkProfile(c.Profile), checkCaps("configured", c.Caps), toolErr, hostErr,
		checkPaths("read root", c.Read), checkPaths("write root", c.Write))
	if slices.Contains(c.Write, "/") {
		err = errors.Join(err, errors.New(`policy: write root "/" (want a directory below it)`))
	}
	if c.MaxRuns < 0 {
		err = errors.Join(err, fmt.Errorf("policy: maximum of runs is %d (want 0 for %d, or more)", c.MaxRuns, defaultMaxRuns))
	}
	r := &rules{
		profile: c.Profile, hosts: hosts, allow: allow, caps: c.Caps,
		read: slices.Clone(c.Read), write: slices.Clone(c.Write),
		tenants: map[string]narrowing{}, maxRuns: c.MaxRuns, lookup: c.Lookup,
		overrides: c.TenantOverride,
	}
	if r.maxRuns == 0 {
		r.maxRuns = defaultMaxRuns
	}
	// Overrides that are not honoured are checked all the same: they would
	// otherwise fail on the day that someone switches them on.
	for _, name := range slices.Sorted(maps.Keys(c.Tenants)) {
		n, nerr := narrowingOf(name, c.Tenants[name], c.Caps)
		r.tenants[name] = n
		err = errors.Join(err, nerr)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// grantKey is everything that a grant depends on besides the rules.
type grantKey struct {
	tier                             cordon.Tier
	profile, tenant, workspace, home string
}

// grant works out what a run gets. It is a pure function of its key.
func (r *rules) grant(k grantKey) (*grant, error) {
	n, narrowed := r.tenants[k.tenant]
	narrowed = narrowed && r.overrides
	g := &grant{
		tier: k.tier, profile: k.profile, tenant: k.tenant,
		workspace: k.workspace, home: k.home, caps: r.caps,
	}
	if narrowed {
		g.tier, g.caps = min(g.tier, n.tier), n.caps
	}
	rights := rightsOf(g.profile, g.tier)
	base := r.allow
	base.every = rights.every
	base.groups = slices.Concat(rights.groups, r.allow.groups)
	g.tools = []toolSet{base}
	if rights.connect {
		g.hosts = r.hosts
	}
	if narrowed && n.narrowsHosts {
		g.hosts = narrowHosts(g.hosts, n.hosts)
	}
	if narrowed && n.tools != nil {
		g.tools = append(g.tools, *n.tools)
	}
	g.roots, g.perRun = rootsOf(rights, g.tier, g.workspace, r.read, r.write)
	var err error
	g.hash, err = g.sum()
	return g, err
}
