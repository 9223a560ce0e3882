// Package guard decides on calls. It implements cordon.Guard: each call is
// lowered to effects, the phases A to E judge the effects in a fixed order,
// all of their findings are kept, and the worst outcome wins.
//
// It guarantees that a decision which is not allowed was stored before it is
// returned (G1), that a phase which errs or panics blocks (G3), that a
// killed run stays killed (G4), that caps are checked before they are added
// to and that a refused call is not counted (G5), and that in shadow mode
// nothing is refused, killed or cancelled (G6).
//
// What it does not stop: what lowering cannot see. A program that the call
// starts does what it likes within the walls of its runtime; without a
// runtime there are none. In shadow mode it stops nothing at all.
package guard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/guard/caps"
	"github.com/cordon-sandbox/cordon/guard/fsscope"
	"github.com/cordon-sandbox/cordon/guard/killrun"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/guard/proposal"
	"github.com/cordon-sandbox/cordon/guard/provenance"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower"
)

// Phases says which phases compute. What is switched off finds nothing;
// malformed input and killed runs are refused whatever is switched off.
type Phases struct {
	Whitelist, FS, Tripwires, Caps, Egress, Provenance bool
}

// Config is what a Guard is made from. Store, Policy and Lowerer are
// required.
type Config struct {
	// Mode is the zero value Enforce unless it is set.
	Mode   cordon.Mode
	Phases Phases
	// Policy is the configuration of the policies to issue; its Lookup is
	// filled in from Store.
	Policy  policy.Config
	Store   audit.Store
	Lowerer *lower.Lowerer
	// SelfPaths are Cordon's own files and directories, which no call may
	// touch.
	SelfPaths []string
	// User is the account that tools run as; may be empty.
	User string
	// Secret keys what is kept of the texts that runs have seen; processes that
	// share a store share it. The zero value is a random one of this process.
	Secret [32]byte
	// OriginBytes bounds what is kept of one run's texts; 0 is the package's
	// default.
	OriginBytes int64
	// ProposalTTL is how long a proposal waits for a person; 0 is the default.
	ProposalTTL time.Duration
	// Judge is asked about effects that cannot be taken back; nil is nobody.
	Judge ActionJudge
	// Logf is told of malfunctions that refuse nothing (shadow mode). May be
	// nil.
	Logf func(format string, args ...any)
}

// ActionJudge has a model look at calls whose effects cannot be taken back.
type ActionJudge interface {
	// Concerns reports whether the effects are for the judge.
	Concerns([]cordon.Effect) bool
	// Judge returns what the judge holds against the call; ok is false where
	// that is nothing.
	Judge(ctx context.Context, s Subject) (f cordon.Finding, ok bool)
}

// Subject is the call that a judge is asked about.
type Subject struct {
	Tenant, Server, Tool string
	Args                 *strictjson.Value
	Effects              []cordon.Effect
	Tier                 cordon.Tier
	PolicyHash           string
	// Findings are what the phases found.
	Findings []cordon.Finding
}

// Guard decides. It is safe for concurrent use.
type Guard struct {
	cfg    Config
	issuer *policy.Issuer
	kill   *killrun.Switch
	meter  *caps.Meter
	phases []phase
	pins   *pins
	// origins are the texts that runs have seen, book the calls that wait for a
	// person.
	origins *origins
	book    *proposal.Book
	ticket  atomic.Uint64

	// compiled holds, by policy hash, what is made of a policy once.
	compiledMu sync.RWMutex
	compiled   map[string]*compiled

	// opened are the named runs whose row is stored, and when their usage was
	// last read: other processes may count the same run.
	openedMu sync.RWMutex
	opened   map[string]time.Time
}

var _ cordon.Guard = (*Guard)(nil)

// compiled is what of a policy does not depend on the run.
type compiled struct {
	scope *fsscope.Base
	hosts *egress.Rules
	caps  caps.Limits
}

const maxCompiled = 1024

// phase is one step of judgement.
type phase struct {
	name  cordon.Phase
	on    bool
	judge func(*judgement) []cordon.Finding
}

// New returns a Guard, or says what of the configuration is wrong.
func New(c Config) (*Guard, error) {
	if c.Store == nil || c.Lowerer == nil {
		return nil, errors.New("guard: no audit store or no lowerer was given")
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	g := &Guard{cfg: c, compiled: map[string]*compiled{}, opened: map[string]time.Time{}}
	c.Policy.Lookup = g.lookup
	var err error
	if g.issuer, err = policy.NewIssuer(c.Policy); err != nil {
		return nil, err
	}
	if g.kill, err = killrun.New(killrun.Config{Store: killStore{c.Store}}); err != nil {
		return nil, err
	}
	if err := checkHosts(c.Policy); err != nil {
		return nil, err
	}
	limits, err := limitsOf(c.Policy.Caps)
	if err != nil {
		return nil, err
	}
	if g.meter, err = caps.New(caps.Config{Defaults: limits}); err != nil {
		return nil, err
	}
	g.pins = newPins(c.Store)
	if c.OriginBytes == 0 {
		c.OriginBytes = provenance.DefaultBytes
	}
	g.origins = newOrigins(c.Store, c.Secret, c.OriginBytes)
	if g.book, err = proposal.New(proposal.Config{Store: c.Store, TTL: c.ProposalTTL}); err != nil {
		return nil, err
	}
	// The order is fixed here and nowhere else. Every phase runs, whatever
	// the ones before it found: layers that fire independently must not hide
	// each other's evidence.
	g.phases = []phase{
		{cordon.PhasePolicy, c.Phases.Whitelist, (*judgement).whitelist},
		{cordon.PhaseFS, c.Phases.FS, (*judgement).scope},
		{cordon.PhaseTripwire, true, (*judgement).tripwires}, // holds its own switches
		{cordon.PhaseEgress, c.Phases.Egress, (*judgement).egress},
		{cordon.PhaseProvenance, c.Phases.Provenance, (*judgement).provenance},
	}
	return g, nil
}

// Policy is the policy that the run is judged by, issued if it is not yet. What
// runs is contained by the same one that decided: a run that was opened with a
// lower tier keeps it in its walls too.
func (g *Guard) Policy(r cordon.Run) (*policy.Policy, error) { return g.issuer.Issue(r) }

// checkHosts refuses host rules that cannot be loaded before a run opens.
func checkHosts(c policy.Config) error {
	all := slices.Concat(c.BaselineHosts, c.AllowHosts)
	for _, t := range c.Tenants {
		all = append(all, t.Hosts...)
	}
	_, err := egress.ParseRules(all)
	return err
}

func limitsOf(c policy.Caps) (caps.Limits, error) {
	return caps.NewLimits(c.ToolCalls, c.Exec.Seconds(), c.BytesWritten, c.CostUSD)
}

// judgement is one call while it is decided.
type judgement struct {
	*Guard
	ctx     context.Context
	call    *cordon.Call
	named   bool // the call named its run
	policy  *policy.Policy
	fixed   *compiled
	args    strictjson.Value
	reading lower.Reading
	paths   []fsscope.Verdict // parallel to the effects
	// key names the logical call to the caps.
	key string
	// broken: the call could not be read, so that there are no effects.
	broken bool
	out    cordon.Decision
}

// Decide judges one call, as cordon.Guard says.
func (g *Guard) Decide(ctx context.Context, c cordon.Call) (d cordon.Decision) {
	if g.cfg.Mode == cordon.Off {
		return off(&c)
	}
	j := &judgement{Guard: g, ctx: ctx, call: &c, named: c.Run.ID != ""}
	j.out = cordon.Decision{CallID: c.ID, RunID: c.Run.ID, Mode: g.cfg.Mode}
	j.contain(cordon.PhaseTripwire, "open", j.open)
	j.contain(cordon.PhaseTripwire, "lower", j.lower)
	j.key = j.callKey()
	for i, p := range g.phases {
		if !p.on || j.fixed == nil {
			continue // without a policy there is nothing to judge by, and the call is blocked
		}
		start := time.Now()
		j.contain(p.name, "judge", func() error {
			j.out.Findings = append(j.out.Findings, p.judge(j)...)
			return nil
		})
		j.out.Timing.Phases[i] = time.Since(start)
	}
	j.conclude()
	return j.out
}

// off answers without judging. What is no call at all is still said to be
// none, though nothing is refused for it.
func off(c *cordon.Call) cordon.Decision {
	d := cordon.Decision{CallID: c.ID, RunID: c.Run.ID, Outcome: cordon.Allowed, Mode: cordon.Off}
	if c.Malformed != "" {
		d.Outcome = cordon.Blocked
		d.Findings = []cordon.Finding{{Phase: cordon.PhaseTripwire, Violation: cordon.Malformed, Rule: "malformed.call", Detail: c.Malformed}}
	}
	return d
}

// contain runs one step. An error or a panic in it is a blocked finding: what
// was not judged was not allowed.
func (j *judgement) contain(p cordon.Phase, what string, step func() error) {
	defer func() {
		if r := recover(); r != nil {
			j.malfunction(p, what, fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	if err := step(); err != nil {
		j.malfunction(p, what, err)
	}
}

func (j *judgement) malfunction(p cordon.Phase, what string, err error) {
	j.cfg.Logf("guard: %s of a call to %q: %v", what, j.call.Tool, err)
	j.find(cordon.Finding{
		Phase: p, Violation: cordon.Malformed, Rule: "guard.malfunction", Err: err,
		Detail: "the call could not be judged (" + what + " failed), so it is not allowed",
	})
}

func (j *judgement) find(f cordon.Finding) { j.out.Findings = append(j.out.Findings, f) }

// malformed is a finding about input that cannot be read.
func (j *judgement) malformed(rule, detail, arg string) {
	j.find(cordon.Finding{Phase: cordon.PhaseTripwire, Violation: cordon.Malformed, Rule: rule, Detail: detail, Arg: arg})
}

// open issues the run's policy, or takes up the one that was issued, and asks
// the kill switch.
func (j *judgement) open() error {
	p, err := j.issuer.Issue(j.call.Run)
	if err != nil {
		// The run cannot be opened so: a malformed call of a run of its own,
		// which is stored under a fresh ID and judged no further.
		j.malformed("malformed.run", err.Error(), "")
		j.named, j.broken = false, true
		if j.policy, err = j.issuer.Issue(cordon.Run{}); err == nil {
			j.out.RunID, j.out.PolicyID = j.policy.RunID(), j.policy.ID()
		}
		return err
	}
	j.policy = p
	j.out.RunID, j.out.PolicyID = p.RunID(), p.ID()
	if j.fixed, err = j.compile(p); err != nil {
		return err
	}
	if j.named {
		if err := j.openRun(); err != nil {
			return err
		}
		p = j.policy // another process may have opened the run first
	}
	// A run that was made up for this call and has no session cannot have
	// been killed before.
	if !j.named && p.Session() == "" {
		return nil
	}
	r, killed, err := j.kill.Killed(p.RunID(), p.Tenant(), p.Session())
	// A killed session must not go on in a run that was opened without it.
	if s := j.call.Run.Session; !killed && s != "" && s != p.Session() {
		r, killed, err = j.kill.Killed("", p.Tenant(), s)
	}
	if killed && err == nil {
		j.find(cordon.Finding{Phase: cordon.PhaseTripwire, Violation: cordon.KilledRun, Rule: "killrun.killed",
			Detail: killedDetail(r, p)})
	}
	return err
}

func killedDetail(r killrun.Record, p *policy.Policy) string {
	s := fmt.Sprintf("run %s was killed at %s (%s)", r.RunID, r.At.UTC().Format(time.RFC3339), r.Rule)
	if r.RunID != p.RunID() {
		s = fmt.Sprintf("the session was ended with it: %s", s)
	}
	return s + fmt.Sprintf("; an operator can release it: cordon kill --release %s --why REASON", r.RunID)
}

// compile makes, or finds, what follows from the policy's content.
func (g *Guard) compile(p *policy.Policy) (*compiled, error) {
	g.compiledMu.RLock()
	c := g.compiled[p.Hash()]
	g.compiledMu.RUnlock()
	if c != nil {
		return c, nil
	}
	limits, err := limitsOf(p.Caps())
	if err != nil {
		return nil, err
	}
	hosts, err := egress.ParseRules(p.Hosts())
	if err != nil {
		return nil, err
	}
	roots := make([]fsscope.Root, 0, 8)
	for _, r := range p.Roots() {
		roots = append(roots, fsscope.Root{Path: r.Path, Write: r.Write})
		// The scope proposes paths in the run's own root only where it is one
		// of its roots by itself.
		if r.Write && strings.HasPrefix(p.RunRoot(), r.Path+"/") {
			roots = append(roots, fsscope.Root{Path: p.RunRoot(), Write: true})
		}
	}
	base, err := fsscope.Prepare(fsscope.Config{
		Roots: roots, Workspace: p.Workspace(), Home: p.Home(), User: g.cfg.User,
		TempRoot: p.RunRoot(), Coding: p.Profile() == policy.Coding, SelfPaths: g.cfg.SelfPaths,
	})
	if err != nil {
		return nil, err
	}
	c = &compiled{scope: base, hosts: hosts, caps: limits}
	g.compiledMu.Lock()
	defer g.compiledMu.Unlock()
	if len(g.compiled) >= maxCompiled {
		clear(g.compiled)
	}
	g.compiled[p.Hash()] = c
	return c, nil
}

// openRun stores a named run's row and restores what it had used, once.
func (j *judgement) openRun() error {
	id := j.policy.RunID()
	j.openedMu.RLock()
	read, open := j.opened[id]
	j.openedMu.RUnlock()
	if open && time.Since(read) < usageAge {
		return nil
	}
	if !open {
		if err := j.storeRun(); err != nil {
			return err
		}
	}
	u, err := j.cfg.Store.Usage(j.ctx, id)
	if err != nil {
		return fmt.Errorf("usage of run: %w", err)
	}
	cost, err := caps.MicrosFromUSD(u.CostUSD)
	if err != nil {
		return err
	}
	err = j.meter.Restore(id, caps.Usage{
		ToolCalls: u.ToolCalls, Exec: time.Duration(u.ExecSeconds * float64(time.Second)),
		BytesWritten: u.BytesWritten, Cost: cost,
	})
	if err != nil {
		return err
	}
	j.openedMu.Lock()
	defer j.openedMu.Unlock()
	j.opened[id] = time.Now()
	return nil
}

// usageAge is how old the knowledge of what other processes used of a run may
// be. It bounds what several of them admit together beyond a cap; the store's
// own delay in writing usage comes to it.
const usageAge = 250 * time.Millisecond

// storeRun stores the run's row. Where another process opened the run at the
// same moment and was first, its policy holds.
func (j *judgement) storeRun() error {
	mine := j.runRow()
	if j.cfg.Mode == cordon.Shadow {
		// What was decided is stored with the run's row; until then nothing
		// depends on it.
		j.shadowed("open", func() error {
			_, err := j.cfg.Store.OpenRun(context.WithoutCancel(j.ctx), mine)
			return err
		})
		return nil
	}
	row, err := j.cfg.Store.OpenRun(j.ctx, mine)
	if err != nil {
		return fmt.Errorf("open run: %w", err)
	}
	if row.PolicyHash == j.policy.Hash() && row.SessionID == j.policy.Session() && row.TenantID == j.policy.Tenant() {
		return nil
	}
	var s policy.Stored
	if err := s.UnmarshalJSON([]byte(row.PolicyJSON)); err != nil {
		return fmt.Errorf("open run: %w", err)
	}
	if j.policy, err = j.issuer.Adopt(row.RunID, s); err != nil {
		return fmt.Errorf("open run: %w", err)
	}
	j.out.PolicyID = j.policy.ID()
	if t := j.call.Run.Tenant; t != "" && t != j.policy.Tenant() {
		return fmt.Errorf("open run: %w", policy.ErrOtherTenant)
	}
	j.fixed, err = j.compile(j.policy)
	return err
}

func (j *judgement) runRow() audit.RunRow { return j.rowOf(j.policy) }

func (g *Guard) rowOf(p *policy.Policy) audit.RunRow {
	text, err := p.MarshalJSON()
	if err != nil {
		text = []byte("{}")
		g.cfg.Logf("guard: policy %s: %v", p.ID(), err)
	}
	return audit.RunRow{
		RunID: p.RunID(), TenantID: p.Tenant(), WorkspaceID: p.Workspace(), AgentID: p.Agent(), UserID: p.User(),
		SessionID: p.Session(), PolicyID: p.ID(), Tier: p.Tier().String(), Profile: p.Profile(), Mode: g.cfg.Mode.String(),
		PolicyJSON: string(text), PolicyHash: p.Hash(), CreatedAt: p.IssuedAt(),
	}
}

// lookup finds the policy that an earlier process issued for a run.
func (g *Guard) lookup(runID string) (policy.Stored, bool, error) {
	var s policy.Stored
	row, ok, err := g.cfg.Store.Run(context.Background(), runID)
	if err != nil || !ok {
		return s, false, err
	}
	if err := s.UnmarshalJSON([]byte(row.PolicyJSON)); err != nil {
		return s, false, err
	}
	return s, true, nil
}

// lower reads the arguments and turns the call into effects.
func (j *judgement) lower() error {
	start := time.Now()
	defer func() { j.out.Timing.Lower = time.Since(start) }()
	if j.call.Malformed != "" {
		j.malformed("malformed.call", j.call.Malformed, "")
		j.broken = true
		return nil
	}
	if err := j.readArgs(); err != nil {
		j.malformed("malformed.args", "the arguments are not one JSON object: "+err.Error(), "")
		j.broken = true
		return nil
	}
	j.out.ArgsHash = audit.ArgsHash(&j.args)
	if j.policy == nil || j.broken {
		return nil
	}
	schema := j.pins.schema(j.call.Server, j.call.Tool)
	j.reading = j.cfg.Lowerer.Lower(j.ctx, j.call.Server, j.call.Tool, &j.args, lower.Env{
		Workspace: j.policy.Workspace(), Home: j.policy.Home(), User: j.cfg.User, Dir: j.call.Dir, Schema: schema,
	})
	j.out.Effects = j.reading.Effects
	return nil
}

// readArgs parses the arguments; absent and null ones are an empty object.
func (j *judgement) readArgs() error {
	j.args = strictjson.Value{Kind: strictjson.Object}
	if len(j.call.Args) == 0 {
		return nil
	}
	v, err := strictjson.Parse(j.call.Args)
	if err != nil {
		return err
	}
	switch v.Kind {
	case strictjson.Object:
		j.args = v
	case strictjson.Null:
	default:
		return fmt.Errorf("they are a JSON %s", v.Kind)
	}
	return nil
}
