package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/poison"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// pins remembers, for each server, the tools as they were approved and the
// schemas as they were last listed. Trust is on first use: the first
// definition seen is approved, a later one that differs is quarantined until
// an operator approves it.
type pins struct {
	store audit.Store

	mu      sync.RWMutex // guards servers and what is in them
	servers map[string]*serverPins
}

type serverPins struct {
	loaded  bool
	schemas map[string][]byte
	// pending maps a quarantined tool to the hash that awaits approval,
	// approved each tool to the one that stands.
	pending, approved map[string]string
}

// maxServers bounds the memory that names chosen by clients can take.
const maxServers = 4096

func newPins(s audit.Store) *pins {
	return &pins{store: s, servers: map[string]*serverPins{}}
}

// server returns the entry of a server, made where it is absent. The caller
// holds mu for writing.
func (p *pins) server(name string) *serverPins {
	s := p.servers[name]
	if s == nil {
		if len(p.servers) >= maxServers {
			clear(p.servers)
		}
		s = &serverPins{schemas: map[string][]byte{}, pending: map[string]string{}, approved: map[string]string{}}
		p.servers[name] = s
	}
	return s
}

// schema is the tool's input schema as it was last listed, or nil.
func (p *pins) schema(server, tool string) []byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.servers[server]; s != nil {
		return s.schemas[tool]
	}
	return nil
}

// approvedHash is that of the tool's definition, or "" where none is known.
func (p *pins) approvedHash(server, tool string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.servers[server]; s != nil {
		return s.approved[tool]
	}
	return ""
}

// quarantined says why a tool may not be called, or "". A server that is not
// known yet is looked up once; a tool in quarantine is looked up each time,
// since an operator may have approved it meanwhile.
func (p *pins) quarantined(ctx context.Context, server, tool string) (string, error) {
	if server == "" {
		return "", nil
	}
	p.mu.RLock()
	s := p.servers[server]
	known := s != nil && s.loaded
	pending := ""
	if known {
		pending = s.pending[tool]
	}
	p.mu.RUnlock()
	if known && pending == "" {
		return "", nil
	}
	if err := p.load(ctx, server); err != nil {
		return "", err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.servers[server]; s != nil && s.pending[tool] != "" {
		if s.approved[tool] == unapproved {
			return fmt.Sprintf("server %s describes this tool in a way that looks like an attack, and nobody has approved it (hash %.12s; see: cordon policy pins); an operator can: cordon policy pin %s %s", server, s.pending[tool], server, tool), nil
		}
		return fmt.Sprintf("server %s changed the definition of this tool since it was approved (new hash %.12s); an operator can approve it: cordon policy pin %s %s", server, s.pending[tool], server, tool), nil
	}
	return "", nil
}

// loadAll loads the servers of a listing, each once.
func (p *pins) loadAll(ctx context.Context, defs []cordon.ToolDef) error {
	seen := map[string]bool{}
	for i := range defs {
		if name := defs[i].Server; !seen[name] {
			seen[name] = true
			if err := p.load(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// load reads what is pending for a server.
func (p *pins) load(ctx context.Context, server string) error {
	stored, err := p.store.Pins(ctx, server)
	if err != nil {
		return fmt.Errorf("pins of server %q: %w", server, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.server(server)
	s.loaded = true
	clear(s.pending)
	clear(s.approved)
	for _, pin := range stored {
		s.approved[pin.Tool] = pin.Hash
		if pin.PendingHash != "" {
			s.pending[pin.Tool] = pin.PendingHash
		}
	}
	return nil
}

// Tools judges a listing, as cordon.Guard says.
func (g *Guard) Tools(ctx context.Context, r cordon.Run, defs []cordon.ToolDef) []cordon.ToolVerdict {
	verdicts := make([]cordon.ToolVerdict, len(defs))
	if g.cfg.Mode == cordon.Off {
		for i := range verdicts {
			verdicts[i].Visible = true
		}
		return verdicts
	}
	// What is approved and what waits is read once a listing: a server chooses
	// how long its list is.
	if err := g.pins.loadAll(ctx, defs); err != nil {
		g.cfg.Logf("guard: %v", err)
		for i := range verdicts {
			verdicts[i] = cordon.ToolVerdict{Visible: g.cfg.Mode == cordon.Shadow, Reason: "its definition could not be compared with the approved one"}
		}
		return verdicts
	}
	for i := range defs {
		verdicts[i] = g.listed(ctx, r, &defs[i])
		// In shadow mode the client sees what the server said.
		if g.cfg.Mode == cordon.Shadow {
			verdicts[i].Visible = true
		}
	}
	return verdicts
}

// listed judges one definition. A malfunction hides the tool.
func (g *Guard) listed(ctx context.Context, r cordon.Run, def *cordon.ToolDef) (v cordon.ToolVerdict) {
	defer func() {
		if p := recover(); p != nil {
			g.cfg.Logf("guard: listing %q: panic: %v", def.Name, p)
			v = cordon.ToolVerdict{Reason: "its definition could not be judged"}
		}
	}()
	tree, err := strictjson.Parse(def.Raw)
	if err != nil {
		return cordon.ToolVerdict{Reason: "its definition is malformed: " + err.Error()}
	}
	why, err := g.pin(ctx, r, def, &tree)
	switch {
	case err != nil:
		g.cfg.Logf("guard: pin of %q: %v", def.Name, err)
		return cordon.ToolVerdict{Reason: "its definition could not be compared with the approved one"}
	case why != "":
		return cordon.ToolVerdict{Reason: why}
	}
	p, err := g.issuer.Issue(r)
	if err != nil {
		return cordon.ToolVerdict{Reason: err.Error()}
	}
	facts, _ := g.cfg.Lowerer.Lookup(def.Server, def.Name)
	switch {
	case facts.SuspectName:
		return cordon.ToolVerdict{Reason: "its name has characters that imitate or hide others"}
	case g.cfg.Phases.Whitelist && !p.AllowsTool(facts.Group.String(), def.Server, def.Name):
		return cordon.ToolVerdict{Reason: "tier " + p.Tier().String() + " may not call tools of group " + facts.Group.String()}
	}
	return cordon.ToolVerdict{Visible: true}
}

// unapproved stands in place of a hash where no definition was approved yet.
const unapproved = "none"

// names are the tools of all servers that were listed, for poison.
func (p *pins) names() *poison.Names {
	p.mu.RLock()
	defer p.mu.RUnlock()
	n := &poison.Names{}
	for server, s := range p.servers {
		for tool := range s.approved {
			n.Add(server, tool)
		}
	}
	return n
}

// pin compares a definition with the approved one. why is set where the tool
// is in quarantine.
func (g *Guard) pin(ctx context.Context, r cordon.Run, def *cordon.ToolDef, tree *strictjson.Value) (why string, err error) {
	canonical := strictjson.AppendCanonical(nil, tree)
	sum := sha256.Sum256(canonical)
	g.pins.mu.Lock()
	s := g.pins.server(def.Server)
	before, approved := s.pending[def.Name], s.approved[def.Name]
	g.pins.mu.Unlock()
	if before == "" && approved == hex.EncodeToString(sum[:]) {
		g.pins.remember(def, tree, audit.Pin{Hash: approved})
		return "", nil // nothing to store
	}
	found := poison.Check(def, tree, g.pins.names())
	if approved == "" && poison.Held(found) {
		// What looks like an attack is not trusted on first use: nothing stands
		// approved, and the definition waits for an operator.
		if _, err := g.cfg.Store.SetPin(ctx, audit.Pin{Server: def.Server, Tool: def.Name, Hash: unapproved}); err != nil {
			return "", err
		}
	}
	stands, err := g.cfg.Store.SetPin(ctx, audit.Pin{Server: def.Server, Tool: def.Name, Hash: hex.EncodeToString(sum[:]), Definition: string(canonical)})
	if err != nil {
		return "", err
	}
	g.pins.remember(def, tree, stands)
	if stands.PendingHash == "" {
		return "", nil
	}
	why = "its definition changed since it was approved"
	if stands.Hash == unapproved {
		why = "its definition was never approved"
	}
	if text := poison.Summary(found); text != "" {
		why += "; " + text
	}
	if stands.PendingHash != before {
		g.recordPin(ctx, r, def, stands, why)
	}
	return why, nil
}

func (p *pins) remember(def *cordon.ToolDef, tree *strictjson.Value, pin audit.Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.server(def.Server)
	delete(s.pending, def.Name)
	if pin.PendingHash != "" {
		s.pending[def.Name] = pin.PendingHash
	}
	s.approved[def.Name] = pin.Hash
	for _, key := range []string{"inputSchema", "input_schema", "parameters"} {
		if schema := tree.Get(key); schema != nil {
			s.schemas[def.Name] = strictjson.AppendCanonical(nil, schema)
			return
		}
	}
}

// recordPin stores that a server changed a tool under the run's feet.
func (g *Guard) recordPin(ctx context.Context, r cordon.Run, def *cordon.ToolDef, pin audit.Pin, why string) {
	j := &judgement{Guard: g, ctx: ctx, named: r.ID != "", call: &cordon.Call{Run: r, Server: def.Server, Tool: def.Name}}
	j.out = cordon.Decision{RunID: r.ID, Mode: g.cfg.Mode}
	j.contain(cordon.PhaseTripwire, "open", j.open)
	f := cordon.Finding{
		Phase: cordon.PhasePolicy, Violation: cordon.ToolWhitelist, Rule: "pin.changed",
		Detail: fmt.Sprintf("server %s changed the definition of tool %s: approved %.12s, now %.12s", def.Server, def.Name, pin.Hash, pin.PendingHash),
	}
	if pin.Hash == unapproved {
		f.Rule, f.Detail = "pin.poisoned", fmt.Sprintf("server %s describes tool %s in a way that looks like an attack (hash %.12s): %s", def.Server, def.Name, pin.PendingHash, why)
	}
	j.find(f)
	j.decide()
	j.store()
}
