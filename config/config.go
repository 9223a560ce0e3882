// Package config is Cordon's configuration: one immutable Config out of flags,
// environment variables, a YAML file and defaults, in that order of
// precedence.
//
// Guarantees: what cannot be read is an error that names the flag, variable or
// line, the value and what is wanted; no bad value falls back to a default. A
// cap is never unlimited. No file is read but the one that the user names or
// the one in the user's own configuration directory: a cordon.yaml in a
// workspace is the agent's to write and is not looked at. Each setting
// remembers where it came from. Secrets are not printed.
//
// What this package does not stop: whoever may change the user's environment,
// flags or configuration file decides what is enforced. A workspace that
// contains the configuration directory (a home used as workspace) leaves the
// file to the file scope's protection. Host patterns, tool names and the
// tools section are checked by the packages that use them.
package config

import (
	"slices"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Config is the effective configuration. It is immutable and safe for
// concurrent use; lists are returned as copies.
type Config struct {
	v       values
	origins map[string]origin
	file    string
	notes   []string
}

// values is what settings set.
type values struct {
	mode           cordon.Mode
	enabled        *bool
	forceEnforce   bool
	profile        string
	tier           cordon.Tier
	phases         Phases
	caps           Caps
	runtime        string
	vm             VM
	judge          Judge
	tenantOverride bool
	transactions   bool
	read, write    []string
	allowHosts     []string
	allowTools     []string
	db             string
	e2bKey         Secret
	tenants        map[string]Tenant
	tools          []byte
	judgeModel     JudgeModel
	provenance     Provenance
	proposalTTL    duration
	egress         Egress
	sandbox        Sandbox
	gateway        Gateway
	tests          []Test
}

// Phases says which steps compute. What does not compute finds nothing.
type Phases struct {
	FS, Whitelist, Tripwires, Caps, Egress, Provenance, Judge bool
}

// Caps bound one run; each is greater than zero.
type Caps struct {
	ToolCalls    int64
	Exec         time.Duration
	BytesWritten int64
	CostUSD      float64
}

// VM is what a virtual machine gets.
type VM struct {
	// MemMB is in MiB.
	MemMB       int64
	VCPUs       int64
	BootTimeout time.Duration
}

// Judge bounds the calls of the judge. After CircuitThreshold failures in
// succession it is not asked for CircuitCooldown.
type Judge struct {
	Timeout          time.Duration
	CircuitThreshold int64
	CircuitCooldown  time.Duration
}

// Tenant narrows what a tenant's runs get; nil narrows nothing.
type Tenant struct {
	Tier *cordon.Tier
	// AllowHosts and Tools: an empty list that is not nil permits none.
	AllowHosts, Tools []string
	ToolCalls         *int64
	Exec              *time.Duration
	BytesWritten      *int64
	CostUSD           *float64
}

// Secret holds a value that no formatting verb prints. The zero value is
// unset.
type Secret struct{ reveal func() string }

// Reveal returns the secret, or "" if none is set.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// String is "set" or "".
func (s Secret) String() string {
	if s.Reveal() == "" {
		return ""
	}
	return "set"
}

// GoString is String's.
func (s Secret) GoString() string { return s.String() }

// MarshalText is String's, so that JSON holds no secret either.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Mode is the mode in force.
func (c *Config) Mode() cordon.Mode { return c.v.mode }

// Profile of runs that name none: "coding" or "atom".
func (c *Config) Profile() string { return c.v.profile }

// Tier of runs whose door knows none better.
func (c *Config) Tier() cordon.Tier { return c.v.tier }

// Phases says which phases compute.
func (c *Config) Phases() Phases { return c.v.phases }

// Caps of each run.
func (c *Config) Caps() Caps { return c.v.caps }

// Runtime is the runtime that was asked for, one of Runtimes.
func (c *Config) Runtime() string { return c.v.runtime }

// VM is what a virtual machine gets.
func (c *Config) VM() VM { return c.v.vm }

// Judge bounds the judge.
func (c *Config) Judge() Judge { return c.v.judge }

// TenantOverride: the overrides of Tenants are honoured.
func (c *Config) TenantOverride() bool { return c.v.tenantOverride }

// Transactions: tools that modify files run in a transaction.
func (c *Config) Transactions() bool { return c.v.transactions }

// Read lists further roots for reading, absolute and clean.
func (c *Config) Read() []string { return slices.Clone(c.v.read) }

// Write lists further roots for writing, absolute and clean.
func (c *Config) Write() []string { return slices.Clone(c.v.write) }

// AllowHosts lists further hosts, as written.
func (c *Config) AllowHosts() []string { return slices.Clone(c.v.allowHosts) }

// AllowTools lists tools that every tier may use, as written.
func (c *Config) AllowTools() []string { return slices.Clone(c.v.allowTools) }

// DB names the audit store: an absolute path, a URL, or empty for the default
// file.
func (c *Config) DB() string { return c.v.db }

// E2BKey is the key of the e2b runtime.
func (c *Config) E2BKey() Secret { return c.v.e2bKey }

// Tenants are the overrides by tenant, as a copy. They count only if
// TenantOverride is set.
func (c *Config) Tenants() map[string]Tenant {
	m := make(map[string]Tenant, len(c.v.tenants))
	for name, t := range c.v.tenants {
		m[name] = t.clone()
	}
	return m
}

func (t Tenant) clone() Tenant {
	t.AllowHosts, t.Tools = slices.Clone(t.AllowHosts), slices.Clone(t.Tools)
	t.Tier, t.ToolCalls, t.Exec = copied(t.Tier), copied(t.ToolCalls), copied(t.Exec)
	t.BytesWritten, t.CostUSD = copied(t.BytesWritten), copied(t.CostUSD)
	return t
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Tools is the value of the file's key "tools" as a YAML document, as a copy,
// or nil. It is not interpreted here. What precedes it in the file is blank
// lines, so that positions in it are positions in File.
func (c *Config) Tools() []byte { return slices.Clone(c.v.tools) }

// File is the path of the file that was read, or empty.
func (c *Config) File() string { return c.file }

// Notes are sentences for people about settings that have no effect as they
// stand.
func (c *Config) Notes() []string { return slices.Clone(c.notes) }

// Runtimes lists the known runtimes.
func Runtimes() []string {
	return []string{"native", "docker", "gvisor", "firecracker", "qemu", "e2b", "auto"}
}

// Profiles lists the known profiles.
func Profiles() []string { return []string{"coding", "atom"} }

// Documented is the documented default of every variable: everything off.
// What no variable sets is the lowest (tier student) or empty.
func Documented() *Config { return &Config{v: documented()} }

// Doors is what the doors start from: mode shadow with every phase computing
// but the judge, profile coding, tier supervised, runtime native.
func Doors() *Config { return &Config{v: doors()} }

func documented() values {
	return values{
		mode:    cordon.Off,
		profile: "coding",
		tier:    cordon.Student,
		caps:    Caps{ToolCalls: 200, Exec: 600 * time.Second, BytesWritten: 100 << 20, CostUSD: 5},
		runtime: "docker",
		vm:      VM{MemMB: 256, VCPUs: 1, BootTimeout: 5 * time.Second},
		judge:   Judge{Timeout: 2 * time.Second, CircuitThreshold: 5, CircuitCooldown: 120 * time.Second},

		provenance:  Provenance{MaxText: 16 << 20},
		proposalTTL: 15 * time.Minute,
		gateway:     documentedGateway(),
	}
}

func doors() values {
	v := documented()
	v.mode = cordon.Shadow
	v.tier = cordon.Supervised
	v.runtime = "native"
	v.phases = Phases{FS: true, Whitelist: true, Tripwires: true, Caps: true, Egress: true, Provenance: true}
	return v
}
