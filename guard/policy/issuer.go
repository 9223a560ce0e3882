package policy

import (
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// ErrOtherTenant is returned for a run that was opened by another tenant.
var ErrOtherTenant = errors.New("policy: run belongs to another tenant")

const (
	maxRunID  = 128
	maxName   = 256
	maxPath   = 4096
	maxGrants = 1024
)

// Stored is what is kept of a run's policy across restarts. It reads the JSON
// of a Policy.
type Stored struct {
	PolicyID  string
	Version   int
	IssuedAt  time.Time
	Hash      string
	Tier      cordon.Tier
	Profile   string
	Tenant    string
	Workspace string
	Home      string
	Agent     string
	User      string
	Session   string
}

// UnmarshalJSON reads what Policy.MarshalJSON wrote. An unknown tier is a
// student.
func (s *Stored) UnmarshalJSON(b []byte) error {
	var d struct {
		document
		Tier string `json:"tier"`
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("policy: stored policy: %w", err)
	}
	tier, _ := cordon.ParseTier(d.Tier)
	*s = Stored{
		PolicyID: d.ID, Version: d.Version, IssuedAt: d.IssuedAt, Hash: d.Hash,
		Tier: tier, Profile: d.Profile, Tenant: d.Tenant, Workspace: d.Workspace,
		Home: d.Home, Agent: d.Agent, User: d.User, Session: d.Session,
	}
	return nil
}

// Stored is the part of the policy that Config.Lookup has to give back.
func (p *Policy) Stored() Stored {
	g := p.content()
	return Stored{
		PolicyID: p.id, Version: p.version, IssuedAt: p.issuedAt, Hash: g.hash,
		Tier: g.tier, Profile: g.profile, Tenant: g.tenant, Workspace: g.workspace,
		Home: g.home, Agent: p.agent, User: p.user, Session: p.session,
	}
}

// Issuer issues policies, one a run. It is safe for concurrent use.
type Issuer struct {
	rules *rules

	grantsMu sync.RWMutex
	grants   map[grantKey]*grant

	runsMu sync.Mutex
	runs   map[string]*openRun
	// recent holds the open runs, the last used in front.
	recent *list.List

	randomMu sync.Mutex
	random   [4096]byte
	left     int
}

// openRun is a named run; ready is closed when policy and err are set.
type openRun struct {
	id     string
	ready  chan struct{}
	policy *Policy
	err    error
	place  *list.Element
}

// NewIssuer validates the configuration; its error names every bad value.
func NewIssuer(c Config) (*Issuer, error) {
	r, err := newRules(c)
	if err != nil {
		return nil, err
	}
	return &Issuer{
		rules: r, grants: map[grantKey]*grant{},
		runs: map[string]*openRun{}, recent: list.New(),
	}, nil
}

// Issue returns the policy of a run: for a named run the one that was issued
// when it opened, whatever else this Run says; for a run without an ID a new
// one under an ID made up for it ("run-" and 32 hex digits), which is not
// remembered. The tier of a new run is r.Tier, or Student if that is none.
//
// It fails on identities that are malformed, on a profile that is unknown, on
// a run of another tenant (ErrOtherTenant; a Run that names no tenant is let
// in), and when Lookup fails: then nothing is issued.
func (is *Issuer) Issue(r cordon.Run) (*Policy, error) {
	if r.ID == "" {
		return is.anonymous(r)
	}
	if err := CheckRunID(r.ID); err != nil {
		return nil, err
	}
	p, err := is.named(r)
	if err != nil {
		return nil, err
	}
	// Otherwise a tenant that guesses a run's name acts with its tier.
	if r.Tenant != "" && r.Tenant != p.Tenant() {
		return nil, fmt.Errorf("%w (run %q)", ErrOtherTenant, r.ID)
	}
	return p, nil
}

// CheckRunID reports whether an ID may name a run: 1 to 128 bytes of letters,
// digits, '.', '_', ':' and '-', not dots only. The ID becomes a directory's
// name.
func CheckRunID(id string) error {
	ok := len(id) > 0 && len(id) <= maxRunID
	dots := true
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == ':' || c == '-'
		dots = dots && c == '.'
	}
	if !ok || dots {
		return fmt.Errorf("policy: run id %q (want 1 to %d of letters, digits, '.', '_', ':' and '-', not dots only)", clip(id), maxRunID)
	}
	return nil
}

// clip keeps an error short where the value is what is too long.
func clip(s string) string {
	if len(s) <= maxName {
		return s
	}
	return s[:maxName] + "…"
}

func (is *Issuer) anonymous(r cordon.Run) (*Policy, error) {
	g, err := is.grantFor(r)
	if err != nil {
		return nil, err
	}
	run, id := is.names()
	return policyFor(g, r, run, id, 1, time.Now()), nil
}

func policyFor(g *grant, r cordon.Run, runID, id string, version int, at time.Time) *Policy {
	p := &Policy{
		id: id, runID: runID, agent: r.Agent, user: r.User, session: r.Session,
		version: version, issuedAt: at.UTC().Round(0), grant: g,
	}
	if g.perRun {
		p.roots = slices.Clone(g.roots)
		for i := range p.roots {
			if p.roots[i].Path == runRoot(runMark) {
				p.roots[i].Path = runRoot(runID)
			}
		}
	}
	return p
}

func (is *Issuer) named(r cordon.Run) (*Policy, error) {
	is.runsMu.Lock()
	if o, ok := is.runs[r.ID]; ok {
		is.recent.MoveToFront(o.place)
		is.runsMu.Unlock()
		<-o.ready
		return o.policy, o.err
	}
	if err := is.makeRoom(); err != nil {
		is.runsMu.Unlock()
		return nil, err
	}
	o := &openRun{id: r.ID, ready: make(chan struct{})}
	// Stands until open returns, so that a panic in Lookup wakes the waiters
	// with a refusal.
	o.err = fmt.Errorf("policy: run %q could not be opened", r.ID)
	o.place = is.recent.PushFront(o)
	is.runs[r.ID] = o
	is.runsMu.Unlock()

	defer func() {
		if o.err != nil {
			is.forget(o)
		}
		close(o.ready)
	}()
	o.policy, o.err = is.open(r)
	return o.policy, o.err
}

// makeRoom drops the run that was unused for longest. A run that is still
// being opened stays: its second opener would not wait for the first.
func (is *Issuer) makeRoom() error {
	if len(is.runs) < is.rules.maxRuns {
		return nil
	}
	if is.rules.lookup != nil {
		for e := is.recent.Back(); e != nil; e = e.Prev() {
			o := e.Value.(*openRun)
			select {
			case <-o.ready:
				delete(is.runs, o.id)
				is.recent.Remove(e)
				return nil
			default:
			}
		}
	}
	return fmt.Errorf("policy: %d runs are open (want fewer, or a lookup of stored runs)", len(is.runs))
}

func (is *Issuer) forget(o *openRun) {
	is.runsMu.Lock()
	defer is.runsMu.Unlock()
	if is.runs[o.id] == o {
		delete(is.runs, o.id)
		is.recent.Remove(o.place)
	}
}

// open issues the first policy of a named run, or takes up the stored one.
func (is *Issuer) open(r cordon.Run) (*Policy, error) {
	var s Stored
	var found bool
	if is.rules.lookup != nil {
		var err error
		if s, found, err = is.rules.lookup(r.ID); err != nil {
			return nil, fmt.Errorf("policy: stored policy of run %q: %w", r.ID, err)
		}
	}
	if !found {
		g, err := is.grantFor(r)
		if err != nil {
			return nil, err
		}
		_, id := is.names()
		return policyFor(g, r, r.ID, id, 1, time.Now()), nil
	}
	return is.resume(r.ID, s)
}

// resume trusts nothing of the caller but the run's ID. Where the
// configuration now permits something else than was stored, the operator
// changed it, and the policy is a new version.
func (is *Issuer) resume(runID string, s Stored) (*Policy, error) {
	r := cordon.Run{
		ID: runID, Tenant: s.Tenant, Agent: s.Agent, User: s.User, Session: s.Session,
		Tier: s.Tier, Profile: s.Profile, Workspace: s.Workspace, Home: s.Home,
	}
	if err := checkProfile(s.Profile); err != nil {
		return nil, fmt.Errorf("policy: stored policy of run %q: %w", runID, err)
	}
	g, err := is.grantFor(r)
	if err != nil {
		return nil, fmt.Errorf("policy: stored policy of run %q: %w", runID, err)
	}
	if g.hash == s.Hash && s.PolicyID != "" {
		return policyFor(g, r, runID, s.PolicyID, max(s.Version, 1), s.IssuedAt), nil
	}
	_, id := is.names()
	return policyFor(g, r, runID, id, max(s.Version, 0)+1, time.Now()), nil
}

// Adopt makes a stored policy the one of its run, in place of what this issuer
// issued. The owner of the store calls it where its row turned out to be
// another's: two processes that open a run at the same moment both issue, and
// the one whose row was stored first is right.
func (is *Issuer) Adopt(runID string, s Stored) (*Policy, error) {
	p, err := is.resume(runID, s)
	if err != nil {
		return nil, err
	}
	is.runsMu.Lock()
	defer is.runsMu.Unlock()
	// A run that was dropped meanwhile is looked up when it comes again.
	if o, ok := is.runs[runID]; ok {
		// Others may be reading o.
		n := &openRun{id: runID, ready: make(chan struct{}), policy: p, place: o.place}
		close(n.ready)
		n.place.Value = n
		is.runs[runID] = n
	}
	return p, nil
}

// CheckRun reports whether a policy could be issued for a run: its ID (which
// may be empty), its names, and that its workspace and home are absolute paths.
// A door asks before its first call, so that what is wrong with its flags is
// said once and not at every call.
func CheckRun(r cordon.Run) error {
	var err error
	if r.ID != "" {
		err = CheckRunID(r.ID)
	}
	if r.Workspace == "" {
		err = errors.Join(err, errors.New("policy: no workspace (want an absolute path)"))
	}
	if r.Profile != "" {
		err = errors.Join(err, checkProfile(r.Profile))
	}
	return errors.Join(err, checkIdentity(r))
}

func checkIdentity(r cordon.Run) error {
	for _, f := range [...]struct{ what, value string }{
		{"tenant", r.Tenant}, {"agent", r.Agent}, {"user", r.User}, {"session", r.Session},
	} {
		if len(f.value) > maxName || badText(f.value) {
			return fmt.Errorf("policy: %s %q (want at most %d bytes of UTF-8 without control characters)", f.what, clip(f.value), maxName)
		}
	}
	return errors.Join(checkPlace("workspace", r.Workspace), checkPlace("home", r.Home))
}

// checkPlace leaves out the path that would make everything a root.
func checkPlace(what, p string) error {
	if p == "" {
		return nil
	}
	if len(p) > maxPath || badText(p) || !path.IsAbs(p) || hasDotDot(p) || path.Clean(p) == "/" && what == "workspace" {
		return fmt.Errorf("policy: %s %q (want an absolute path below / without \"..\")", what, clip(p))
	}
	return nil
}

func hasDotDot(p string) bool {
	return strings.Contains(p, "..") && slices.Contains(strings.Split(p, "/"), "..")
}

// grantFor validates the run and finds or makes its grant.
func (is *Issuer) grantFor(r cordon.Run) (*grant, error) {
	k := grantKey{known(r.Tier), r.Profile, r.Tenant, r.Workspace, r.Home}
	if k.profile == "" {
		k.profile = is.rules.profile
	}
	if err := checkIdentity(r); err != nil {
		return nil, err
	}
	is.grantsMu.RLock()
	g := is.grants[k]
	is.grantsMu.RUnlock()
	if g != nil {
		return g, nil
	}
	if err := checkProfile(k.profile); err != nil {
		return nil, err
	}
	clean := k
	clean.workspace, clean.home = cleanPlace(k.workspace), cleanPlace(k.home)
	g, err := is.rules.grant(clean)
	if err != nil {
		return nil, err
	}
	is.grantsMu.Lock()
	defer is.grantsMu.Unlock()
	// Grants are functions of their key: dropping all costs time only.
	if len(is.grants) >= maxGrants {
		clear(is.grants)
	}
	is.grants[k] = g
	return g, nil
}

func cleanPlace(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}

// names makes up a run's ID and a policy's, of 128 random bits each.
func (is *Issuer) names() (runID, policyID string) {
	const half = len("run-") + 32
	var raw [32]byte
	is.randomMu.Lock()
	if is.left < len(raw) {
		// Read never fails: it ends the process first. Reading much at a time
		// saves a system call a run.
		rand.Read(is.random[:])
		is.left = len(is.random)
	}
	is.left -= len(raw)
	fresh := is.random[is.left : is.left+len(raw)]
	copy(raw[:], fresh)
	clear(fresh)
	is.randomMu.Unlock()

	var text [2 * half]byte
	copy(text[:], "run-")
	hex.Encode(text[4:], raw[:16])
	copy(text[half:], "pol-")
	hex.Encode(text[half+4:], raw[16:])
	both := string(text[:])
	return both[:half], both[half:]
}
