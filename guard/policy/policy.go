// Package policy says what a run is allowed: its roots, tools, hosts and
// caps, fixed when the run opens and the same until it ends.
//
// Guarantees: a Policy cannot be changed after it was issued, by anyone (what
// its accessors return is a copy). One run ID gets one policy: whoever names
// the ID later, with whatever tier, is judged by the first. A tenant's
// override only narrows. An unknown tier is a student, and the zero Policy
// allows nothing.
//
// What this package does not stop: anything by itself. It lists roots but
// resolves no path (links, mounts and protected files are the file scope's),
// it lists host patterns but matches no host, and it states caps but counts
// nothing. A door that takes the tier or the tenant from a call's arguments
// undoes it. Two processes that open the same run ID at the same moment both
// issue, unless their Lookup sees each other's rows; Adopt puts that right.
package policy

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Root is a directory (or file) with all that is below it.
type Root struct {
	// Path is absolute and lexically clean.
	Path string `json:"path"`
	// Write: it may be changed. Every root may be read.
	Write bool `json:"write"`
}

// Caps bound what one run may use in all. Every field of an issued policy is
// greater than zero; a zero field, as in the zero Policy, admits nothing.
type Caps struct {
	// ToolCalls is a number of calls.
	ToolCalls int64
	// Exec is time spent executing, summed over calls.
	Exec time.Duration
	// BytesWritten counts bytes.
	BytesWritten int64
	// CostUSD is in US dollars.
	CostUSD float64
}

// Policy is what one run is allowed. It is safe for concurrent use. The zero
// value allows nothing.
type Policy struct {
	id       string
	runID    string
	agent    string
	user     string
	session  string
	version  int
	issuedAt time.Time
	roots    []Root // nil: those of the grant, which need no run ID
	grant    *grant
}

// grant is what a policy permits, without who and when. Policies share it.
type grant struct {
	tier      cordon.Tier
	profile   string
	tenant    string
	workspace string
	home      string
	// roots of a grant with perRun set hold runMark in place of the run ID.
	roots  []Root
	perRun bool
	tools  []toolSet
	hosts  []string
	caps   Caps
	hash   string
}

// content of a policy that was not issued: nothing.
func (p *Policy) content() *grant {
	if p == nil || p.grant == nil {
		return &grant{}
	}
	return p.grant
}

// ID names the policy; it is unique to the run and to Version.
func (p *Policy) ID() string { return p.id }

// RunID is the run's ID, the one that was made up if the call named none.
func (p *Policy) RunID() string { return p.runID }

// Tenant is the tenant at issuance.
func (p *Policy) Tenant() string { return p.content().tenant }

// Workspace is the absolute path of the workspace, or empty.
func (p *Policy) Workspace() string { return p.content().workspace }

// Home is the absolute path that "~" means, or empty.
func (p *Policy) Home() string { return p.content().home }

// Agent is the agent at issuance.
func (p *Policy) Agent() string { return p.agent }

// User is the user at issuance.
func (p *Policy) User() string { return p.user }

// Session is the session at issuance.
func (p *Policy) Session() string { return p.session }

// Tier is the tier in force: that of the run at issuance, or the lower one of
// its tenant's override.
func (p *Policy) Tier() cordon.Tier { return p.content().tier }

// Profile is "atom" or "coding".
func (p *Policy) Profile() string { return p.content().profile }

// Roots are the run's roots, sorted by path, as a copy.
func (p *Policy) Roots() []Root {
	if p.roots != nil {
		return slices.Clone(p.roots)
	}
	return slices.Clone(p.content().roots)
}

// RootsPerRun reports whether Roots hold the run's own temporary root. Where
// it is false, whatever is derived from Roots may be shared between policies
// of the same Hash; where it is true, only within the run.
func (p *Policy) RootsPerRun() bool { return p.content().perRun }

// RunRoot is the run's own temporary root, /tmp/agent/{run}, for any tier; it
// is writable only if a root covers it. Empty for a policy that was not
// issued.
func (p *Policy) RunRoot() string {
	if p.runID == "" {
		return ""
	}
	return runRoot(p.runID)
}

// Hosts are the host patterns ("example.com", "*.example.com", with ":port"
// where one was given) that may be connected to, lower case and sorted, as a
// copy. They depend on nothing that Hash does not cover.
func (p *Policy) Hosts() []string { return slices.Clone(p.content().hosts) }

// Caps of the run.
func (p *Policy) Caps() Caps { return p.content().caps }

// Version is 1 for the first policy of a run, and one more each time a stored
// run was taken up under a configuration that permits something else.
func (p *Policy) Version() int { return p.version }

// IssuedAt is when this version was issued, in UTC.
func (p *Policy) IssuedAt() time.Time { return p.issuedAt }

// Hash is the hex SHA-256 of what the policy permits: profile, tier, tenant,
// workspace, home, roots (with the run's own as a placeholder), tools, hosts
// and caps, and of neither the run nor the time. Policies with equal hashes
// permit the same.
func (p *Policy) Hash() string { return p.content().hash }

// AllowsTool reports whether the whitelist admits a tool, by its group (one
// of Groups; any other spelling is in no group) or by its name. server may be
// empty; a name of the form mcp__SERVER__TOOL without a server is read as
// that server's TOOL.
func (p *Policy) AllowsTool(group, server, name string) bool {
	layers := p.content().tools
	if len(layers) == 0 {
		return false
	}
	t := toolNamed(server, name)
	for i := range layers {
		if !layers[i].admits(group, t) {
			return false
		}
	}
	return true
}

// document is the policy's JSON form; Stored reads a part of it back.
type document struct {
	ID        string      `json:"id"`
	RunID     string      `json:"run_id"`
	Tenant    string      `json:"tenant"`
	Workspace string      `json:"workspace"`
	Agent     string      `json:"agent"`
	User      string      `json:"user"`
	Session   string      `json:"session"`
	Tier      cordon.Tier `json:"tier"`
	Profile   string      `json:"profile"`
	Home      string      `json:"home"`
	Roots     []Root      `json:"roots"`
	Tools     [][]string  `json:"tools"`
	Hosts     []string    `json:"hosts"`
	Caps      capsJSON    `json:"caps"`
	Version   int         `json:"version"`
	IssuedAt  time.Time   `json:"issued_at"`
	Hash      string      `json:"hash"`
}

type capsJSON struct {
	ToolCalls    int64   `json:"tool_calls"`
	ExecSeconds  float64 `json:"exec_seconds"`
	BytesWritten int64   `json:"bytes_written"`
	CostUSD      float64 `json:"cost_usd"`
}

func (c Caps) document() capsJSON {
	return capsJSON{c.ToolCalls, c.Exec.Seconds(), c.BytesWritten, c.CostUSD}
}

// MarshalJSON writes the whole policy as one object for the audit's run row.
// "tools" is a list of whitelists that must all admit a tool, each a list of
// entries as in Config.AllowTools. Stored reads the object back.
func (p *Policy) MarshalJSON() ([]byte, error) {
	g := p.content()
	return json.Marshal(document{
		ID: p.id, RunID: p.runID, Tenant: g.tenant, Workspace: g.workspace,
		Agent: p.agent, User: p.user, Session: p.session,
		Tier: g.tier, Profile: g.profile, Home: g.home,
		Roots: orEmpty(p.Roots()), Tools: entries(g.tools), Hosts: orEmpty(g.hosts),
		Caps: g.caps.document(), Version: p.version, IssuedAt: p.issuedAt, Hash: g.hash,
	})
}

// orEmpty keeps "null" out of the JSON: an empty list permits nothing, and
// says so.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
