package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cordon-sandbox/cordon"
)

// Setting is one setting as it took effect, for people and for "--json".
type Setting struct {
	// Name is the file's key where there is one ("caps.tool_calls").
	Name string `json:"name"`
	// Env, FileKey and Flag are where it can be set; empty where it cannot.
	Env     string `json:"env,omitempty"`
	FileKey string `json:"file_key,omitempty"`
	Flag    string `json:"flag,omitempty"`
	// Value is the effective value; of a secret only "set" or "".
	Value string `json:"value"`
	// Source is "flag", "env", "file" or "default"; of a list that was put
	// together from several, all of them ("file+flag").
	Source string `json:"source"`
	// SourceDetail is the flag, the variable, or the file with its line.
	SourceDetail string `json:"source_detail,omitempty"`
}

// origin is where a value came from.
type origin struct{ source, detail string }

// setting describes one setting. One of set, add and node is given: add is for
// lists, whose sources add up, node for what is more than values in the file.
type setting struct {
	name string
	env  string
	flag string
	// noFile: no key of the file sets it; form is empty then.
	noFile bool
	// form is what the file may have, for people and for the schema.
	form form
	set  func(v *values, s string, p places) error
	add  func(v *values, list []string, p places) error
	node func(l *loader, key string, n *yaml.Node)
	show func(v *values) string
}

func (s *setting) fileKey() string {
	if s.noFile {
		return ""
	}
	return s.name
}

// Settings lists every setting in a fixed order.
func (c *Config) Settings() []Setting {
	var list []Setting
	for _, s := range table() {
		o, ok := c.origins[s.name]
		if !ok {
			o.source = "default"
		}
		list = append(list, Setting{
			Name: s.name, Env: s.env, FileKey: s.fileKey(), Flag: s.flag,
			Value: s.show(&c.v), Source: o.source, SourceDetail: o.detail,
		})
	}
	return list
}

// IsSet reports whether the setting of that name has a value that somebody
// gave, by flag, variable or file.
func (c *Config) IsSet(name string) bool { _, ok := c.origins[name]; return ok }

// table lists the settings in the order in which they are shown. Those that
// only the file's structure sets (tenants, tools) have neither set nor add.
func table() []setting {
	return slices.Concat(modeSettings(), phaseSettings(), boundSettings(), listSettings(), sectionSettings(), gatewaySettings())
}

func modeSettings() []setting {
	return []setting{
		{name: "enabled", env: "ATOM_SANDBOX_ENABLED", noFile: true,
			set: func(v *values, s string, _ places) error {
				b, err := parseBool(s)
				v.enabled = &b
				return err
			},
			show: func(v *values) string { return strconv.FormatBool(v.mode != cordon.Off) }},
		{name: "force_enforce", env: "ATOM_SANDBOX_FORCE_ENFORCE", noFile: true,
			set:  boolean(func(v *values) *bool { return &v.forceEnforce }),
			show: showBool(func(v *values) *bool { return &v.forceEnforce })},
		{name: "mode", flag: "mode", form: words(cordon.Off.String(), cordon.Shadow.String(), cordon.Enforce.String()),
			set: func(v *values, s string, _ places) error {
				m, err := oneOf(s, cordon.Off.String(), cordon.Shadow.String(), cordon.Enforce.String())
				if err != nil {
					return err
				}
				return v.mode.UnmarshalText([]byte(m))
			},
			show: func(v *values) string { return v.mode.String() }},
		{name: "profile", flag: "profile", form: words(Profiles()...),
			set:  word(func(v *values) *string { return &v.profile }, Profiles()),
			show: func(v *values) string { return v.profile }},
		{name: "tier", flag: "tier", form: words(tiers()...),
			set: func(v *values, s string, _ places) (err error) {
				v.tier, err = parseTier(s)
				return err
			},
			show: func(v *values) string { return v.tier.String() }},
	}
}

func phaseSettings() []setting {
	list := []setting{}
	for _, p := range []struct {
		key, env string
		field    func(v *values) *bool
	}{
		{"phases.whitelist", "ATOM_SANDBOX_WHITELIST_ENABLED", func(v *values) *bool { return &v.phases.Whitelist }},
		{"phases.fs", "ATOM_SANDBOX_FS_ENABLED", func(v *values) *bool { return &v.phases.FS }},
		{"phases.tripwires", "ATOM_SANDBOX_TRIPWIRES_ENABLED", func(v *values) *bool { return &v.phases.Tripwires }},
		{"phases.caps", "ATOM_SANDBOX_CAPS_ENABLED", func(v *values) *bool { return &v.phases.Caps }},
		{"phases.egress", "ATOM_SANDBOX_EGRESS_ENABLED", func(v *values) *bool { return &v.phases.Egress }},
		{"phases.provenance", "ATOM_SANDBOX_PROVENANCE_ENABLED", func(v *values) *bool { return &v.phases.Provenance }},
		{"phases.judge", "ATOM_SANDBOX_JUDGE_ENABLED", func(v *values) *bool { return &v.phases.Judge }},
		{"transactions", "ATOM_DMM_LEVEL5_ENABLED", func(v *values) *bool { return &v.transactions }},
		{"policy_tenant_override", "ATOM_SANDBOX_POLICY_TENANT_OVERRIDE", func(v *values) *bool { return &v.tenantOverride }},
	} {
		list = append(list, setting{name: p.key, env: p.env, form: form{kind: yesNo}, set: boolean(p.field), show: showBool(p.field)})
	}
	return list
}

func boundSettings() []setting {
	return []setting{
		whole("caps.tool_calls", "ATOM_SANDBOX_MAX_TOOL_CALLS", 1, maxCount, func(v *values) *int64 { return &v.caps.ToolCalls }),
		seconds("caps.exec_seconds", "ATOM_SANDBOX_MAX_EXEC_SECONDS", func(v *values) *duration { return &v.caps.Exec }),
		whole("caps.bytes_written", "ATOM_SANDBOX_MAX_BYTES_WRITTEN", 1, maxBytes, func(v *values) *int64 { return &v.caps.BytesWritten }),
		{name: "caps.cost_usd", env: "ATOM_SANDBOX_MAX_COST_USD", form: form{kind: positive, most: maxCost},
			set: func(v *values, s string, _ places) (err error) {
				v.caps.CostUSD, err = parsePositive(s, maxCost)
				return err
			},
			show: func(v *values) string { return decimal(v.caps.CostUSD) }},
		{name: "runtime", env: "ATOM_SANDBOX_RUNTIME", flag: "runtime", form: words(Runtimes()...),
			set:  word(func(v *values) *string { return &v.runtime }, Runtimes()),
			show: func(v *values) string { return v.runtime }},
		whole("vm.mem_mb", "ATOM_SANDBOX_VM_MEM_MB", 1, maxMemMB, func(v *values) *int64 { return &v.vm.MemMB }),
		whole("vm.vcpus", "ATOM_SANDBOX_VM_VCPUS", 1, maxVCPUs, func(v *values) *int64 { return &v.vm.VCPUs }),
		seconds("vm.boot_timeout_seconds", "ATOM_SANDBOX_VM_BOOT_TIMEOUT_SECONDS", func(v *values) *duration { return &v.vm.BootTimeout }),
		{name: "e2b_api_key", env: "E2B_API_KEY", noFile: true,
			set: func(v *values, s string, _ places) error {
				if badText(s) {
					return secretError{}
				}
				v.e2bKey = Secret{func() string { return s }}
				return nil
			},
			show: func(v *values) string { return v.e2bKey.String() }},
		seconds("judge.timeout_seconds", "ATOM_SANDBOX_JUDGE_TIMEOUT_SECONDS", func(v *values) *duration { return &v.judge.Timeout }),
		whole("judge.circuit_threshold", "ATOM_SANDBOX_JUDGE_CIRCUIT_THRESHOLD", 1, maxCount, func(v *values) *int64 { return &v.judge.CircuitThreshold }),
		seconds("judge.circuit_cooldown_seconds", "ATOM_SANDBOX_JUDGE_CIRCUIT_COOLDOWN_SECONDS", func(v *values) *duration { return &v.judge.CircuitCooldown }),
	}
}

func listSettings() []setting {
	return []setting{
		roots("read", func(v *values) *[]string { return &v.read }),
		roots("write", func(v *values) *[]string { return &v.write }),
		names("allow_hosts", "allow-host", func(v *values) *[]string { return &v.allowHosts }),
		names("allow_tools", "allow-tool", func(v *values) *[]string { return &v.allowTools }),
		{name: "db", flag: "db", form: form{kind: storeName},
			set: func(v *values, s string, p places) (err error) {
				v.db, err = p.store(s)
				return err
			},
			show: func(v *values) string { return withoutPassword(v.db) }},
		{name: "tenants", form: form{kind: byName, fields: tenantFields}, show: func(v *values) string { return joined(tenantNames(v.tenants)) }},
		{name: "tools", form: form{kind: elsewhere}, show: func(v *values) string {
			if v.tools == nil {
				return ""
			}
			return "set"
		}},
		testSetting(),
	}
}

func boolean(field func(*values) *bool) func(*values, string, places) error {
	return func(v *values, s string, _ places) error {
		b, err := parseBool(s)
		if err == nil {
			*field(v) = b
		}
		return err
	}
}

func showBool(field func(*values) *bool) func(*values) string {
	return func(v *values) string { return strconv.FormatBool(*field(v)) }
}

func word(field func(*values) *string, known []string) func(*values, string, places) error {
	return func(v *values, s string, _ places) error {
		w, err := oneOf(s, known...)
		if err == nil {
			*field(v) = w
		}
		return err
	}
}

func whole(name, env string, least, most int64, field func(*values) *int64) setting {
	return setting{name: name, env: env, form: form{kind: wholeNumber, least: float64(least), most: float64(most)},
		set: func(v *values, s string, _ places) error {
			n, err := parseWhole(s, least, most)
			if err == nil {
				*field(v) = n
			}
			return err
		},
		show: func(v *values) string { return strconv.FormatInt(*field(v), 10) }}
}

func seconds(name, env string, field func(*values) *duration) setting {
	return setting{name: name, env: env, form: form{kind: positive, most: maxSeconds},
		set: func(v *values, s string, _ places) error {
			d, err := parseSeconds(s)
			if err == nil {
				*field(v) = d
			}
			return err
		},
		show: func(v *values) string { return decimal(field(v).Seconds()) }}
}

func roots(name string, field func(*values) *[]string) setting {
	kind := absolute
	if name == "write" {
		kind = belowRoot
	}
	return setting{name: name, flag: name, form: form{kind: kind, many: true},
		add: func(v *values, list []string, p places) error {
			for _, s := range list {
				path, err := p.path(s)
				if err == nil && name == "write" && path == "/" {
					err = wantError{s, "a directory below /"}
				}
				if err != nil {
					return err
				}
				appendNew(field(v), path)
			}
			return nil
		},
		show: func(v *values) string { return joined(*field(v)) }}
}

func names(name, flag string, field func(*values) *[]string) setting {
	return setting{name: name, flag: flag, form: form{kind: plainName, many: true},
		add: func(v *values, list []string, _ places) error {
			for _, s := range list {
				if err := checkName(s); err != nil {
					return err
				}
				appendNew(field(v), s)
			}
			return nil
		},
		show: func(v *values) string { return joined(*field(v)) }}
}

func appendNew(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

func joined(list []string) string { return strings.Join(list, ", ") }

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// withoutPassword keeps a database URL's password off the screen, in the
// user part and in the query.
func withoutPassword(db string) string {
	if !strings.Contains(db, "://") {
		return db
	}
	u, err := url.Parse(db)
	if err != nil {
		return fmt.Sprintf("%s://…", strings.SplitN(db, "://", 2)[0])
	}
	q := u.Query()
	for key := range q {
		if k := strings.ToLower(key); strings.Contains(k, "pass") || strings.Contains(k, "key") || strings.Contains(k, "token") {
			q.Set(key, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}
