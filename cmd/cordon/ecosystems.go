package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/ecosystem"
	"github.com/cordon-sandbox/cordon/contain/egress"
)

// How long the package tools may take to say where they go. A hook is waited
// for at each call.
const (
	resolveTime     = 5 * time.Second
	hookResolveTime = 1500 * time.Millisecond
)

// How long what they said holds, and for how long one that did not answer is
// not asked again.
const (
	packagesAge   = time.Hour
	packagesRetry = 30 * time.Second
)

// codingEcosystems are those of profile coding where none are named.
var codingEcosystems = []string{"npm", "go", "apt", "pip", "cargo"}

// packages finds the hosts of the package ecosystems, the same for each door:
// those that only a program can tell of are kept in the state directory, by
// what the program goes by.
type packages struct {
	names  []string
	named  bool // by the operator, who is then told of problems
	limit  time.Duration
	resolv ecosystem.Config
	file   string // "": nothing is kept
	now    func() time.Time
}

// newPackages says which ecosystems a configuration means. Tiers that have no
// baseline have none.
func newPackages(c *config.Config, limit time.Duration, workspace string) *packages {
	p := &packages{names: c.Egress().Ecosystems, limit: limit, now: time.Now}
	p.named = p.names != nil
	if !p.named && c.Profile() == "coding" {
		p.names = codingEcosystems
	}
	if !hasBaseline(c) {
		p.names = nil
	}
	if workspace == "" {
		workspace, _ = os.Getwd() // without one the file system's root is no workspace
	}
	home, _ := os.UserHomeDir() // without one the user's files are not read
	if !filepath.IsAbs(home) {
		home = ""
	}
	p.resolv = ecosystem.Config{Home: home, Env: os.Getenv, Timeout: limit}
	for _, dir := range append(c.Write(), workspace) {
		if filepath.IsAbs(dir) && dir != "/" {
			p.resolv.Workspaces = append(p.resolv.Workspaces, dir)
		}
	}
	if db, err := sqlite.DefaultPath(); err == nil {
		p.file = filepath.Join(filepath.Dir(db), "ecosystems.json")
	}
	return p
}

// hasBaseline reports whether any run of the configuration gets a baseline.
func hasBaseline(c *config.Config) bool {
	return c.Tier() >= cordon.Supervised ||
		slices.ContainsFunc(c.Gateway().Tokens, func(t config.GatewayToken) bool { return t.Tier >= cordon.Supervised })
}

// hosts are rules that the egress policy takes. What fails adds none, and
// never keeps a door shut.
func (p *packages) hosts(ctx context.Context, log *lineLog) []string {
	if len(p.names) == 0 {
		return nil
	}
	found, problems := p.find(ctx)
	var rules []string
	for _, h := range found {
		rule := h.Rule()
		if _, err := egress.ParseRules([]string{rule}); err != nil {
			problems = append(problems, ecosystem.Problem{Ecosystem: h.Ecosystem, What: err.Error()})
			continue
		}
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	if p.named {
		for _, problem := range p.unsaid(problems) {
			log.printf("%s", printable(problem.String()))
		}
	}
	return rules
}

// find takes what is kept, asks for the rest, and keeps that.
func (p *packages) find(ctx context.Context) (hosts []ecosystem.Host, problems []ecosystem.Problem) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	r, err := ecosystem.New(p.resolv)
	if err != nil {
		return nil, []ecosystem.Problem{{Ecosystem: "ecosystems", What: err.Error()}}
	}
	kept := p.load()
	fresh := false
	for _, name := range ecosystem.Names() {
		if !slices.Contains(p.names, name) {
			continue
		}
		key := ""
		if fp, err := r.Fingerprint(name); err == nil { // it is asked
			key = name + " " + fp
		}
		if e, ok := kept.Found[key]; ok && key != "" && p.holds(e) {
			hosts, problems = append(hosts, e.Hosts...), append(problems, e.Problems...)
			continue
		}
		h, ps := r.Resolve(ctx, []string{name})
		hosts, problems = append(hosts, h...), append(problems, ps...)
		if key != "" {
			// One that was cut short may answer the next time.
			kept.Found[key] = keptPackages{At: p.now(), Failed: ctx.Err() != nil || len(h) == 0, Hosts: h, Problems: ps}
			fresh = true
		}
	}
	if fresh {
		p.save(kept)
	}
	return hosts, problems
}

// keptFile is what the state directory keeps.
type keptFile struct {
	Found map[string]keptPackages `json:"found"`
	// Said are the problems that were told, by their digest.
	Said map[string]time.Time `json:"said"`
}

type keptPackages struct {
	At       time.Time           `json:"at"`
	Failed   bool                `json:"failed,omitempty"`
	Hosts    []ecosystem.Host    `json:"hosts"`
	Problems []ecosystem.Problem `json:"problems,omitempty"`
}

func (p *packages) holds(e keptPackages) bool {
	if e.Failed {
		return p.recent(e.At, packagesRetry)
	}
	return p.recent(e.At, packagesAge)
}

func (p *packages) recent(at time.Time, age time.Duration) bool {
	passed := p.now().Sub(at)
	return passed >= 0 && passed < age
}

// Bounds of what is kept.
const (
	maxKeptFile = 1 << 20
	maxKept     = 64
)

// load reads what is kept; what cannot be read is as if it were not there.
func (p *packages) load() (k keptFile) {
	defer func() {
		if k.Found == nil {
			k.Found = map[string]keptPackages{}
		}
		if k.Said == nil {
			k.Said = map[string]time.Time{}
		}
	}()
	f, err := os.Open(p.file)
	if err != nil {
		return k
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeptFile))
	if err != nil || json.Unmarshal(data, &k) != nil {
		return keptFile{}
	}
	return k
}

// save keeps what is still good, at once or not at all. Where that fails the
// tools are asked again.
func (p *packages) save(k keptFile) {
	if p.file == "" {
		return
	}
	maps.DeleteFunc(k.Found, func(_ string, e keptPackages) bool { return !p.holds(e) })
	maps.DeleteFunc(k.Said, func(_ string, at time.Time) bool { return !p.recent(at, packagesAge) })
	if len(k.Found) > maxKept || len(k.Said) > maxKept {
		k = keptFile{}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(p.file), 0o700); err != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(p.file), ".ecosystems-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), p.file)
	}
	if err != nil {
		os.Remove(f.Name())
	}
}

// unsaid are the problems that nobody was told of within the hour.
func (p *packages) unsaid(problems []ecosystem.Problem) []ecosystem.Problem {
	k := p.load()
	var out []ecosystem.Problem
	for _, problem := range problems {
		sum := sha256.Sum256([]byte(problem.String()))
		key := hex.EncodeToString(sum[:8])
		if !p.recent(k.Said[key], packagesAge) {
			k.Said[key] = p.now()
			out = append(out, problem)
		}
	}
	if len(out) > 0 {
		p.save(k)
	}
	return out
}

// packageReport asks each ecosystem that a configuration means, for
// diagnosis: where they go and why, and what is wrong.
func packageReport(ctx context.Context, c *config.Config, workspace string) ([]ecosystem.Host, []ecosystem.Problem, error) {
	p := newPackages(c, resolveTime, workspace)
	r, err := ecosystem.New(p.resolv)
	if err != nil {
		return nil, nil, fmt.Errorf("package ecosystems: %w", err)
	}
	hosts, problems := r.Resolve(ctx, p.names)
	return hosts, problems, nil
}
