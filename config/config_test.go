package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/cordon-sandbox/cordon"
)

const userFile = "/home/kim/.config/cordon/cordon.yaml"

// world is an Input over maps.
type world struct {
	env   map[string]string
	files map[string]string
	flags map[string][]string
	file  string
}

func (w world) input() Input {
	return Input{
		Flags: w.flags, File: w.file, Dir: "/home/kim/project",
		Getenv: func(name string) (string, bool) {
			if v, ok := w.env[name]; ok {
				return v, true
			}
			return map[string]string{"HOME": "/home/kim"}[name], name == "HOME"
		},
		ReadFile: func(name string) ([]byte, error) {
			if s, ok := w.files[name]; ok {
				return []byte(s), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
	}
}

func load(t *testing.T, w world) *Config {
	t.Helper()
	c, err := Load(w.input())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func yamlFile(text string) map[string]string { return map[string]string{userFile: text} }

func shown(t *testing.T, c *Config, name string) Setting {
	t.Helper()
	for _, s := range c.Settings() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no setting %q", name)
	return Setting{}
}

func TestDocumentedDefaultsAreTheTables(t *testing.T) {
	want := map[string]string{
		"ATOM_SANDBOX_ENABLED":                        "false",
		"ATOM_SANDBOX_FORCE_ENFORCE":                  "false",
		"ATOM_SANDBOX_POLICY_TENANT_OVERRIDE":         "false",
		"ATOM_SANDBOX_FS_ENABLED":                     "false",
		"ATOM_SANDBOX_WHITELIST_ENABLED":              "false",
		"ATOM_SANDBOX_TRIPWIRES_ENABLED":              "false",
		"ATOM_SANDBOX_CAPS_ENABLED":                   "false",
		"ATOM_SANDBOX_EGRESS_ENABLED":                 "false",
		"ATOM_SANDBOX_PROVENANCE_ENABLED":             "false",
		"ATOM_SANDBOX_JUDGE_ENABLED":                  "false",
		"ATOM_DMM_LEVEL5_ENABLED":                     "false",
		"ATOM_SANDBOX_MAX_TOOL_CALLS":                 "200",
		"ATOM_SANDBOX_MAX_EXEC_SECONDS":               "600",
		"ATOM_SANDBOX_MAX_BYTES_WRITTEN":              "104857600",
		"ATOM_SANDBOX_MAX_COST_USD":                   "5",
		"ATOM_SANDBOX_RUNTIME":                        "docker",
		"ATOM_SANDBOX_VM_MEM_MB":                      "256",
		"ATOM_SANDBOX_VM_VCPUS":                       "1",
		"ATOM_SANDBOX_VM_BOOT_TIMEOUT_SECONDS":        "5",
		"E2B_API_KEY":                                 "",
		"ATOM_SANDBOX_JUDGE_TIMEOUT_SECONDS":          "2",
		"ATOM_SANDBOX_JUDGE_CIRCUIT_THRESHOLD":        "5",
		"ATOM_SANDBOX_JUDGE_CIRCUIT_COOLDOWN_SECONDS": "120",
	}
	got := map[string]string{}
	for _, s := range Documented().Settings() {
		if s.Source != "default" {
			t.Errorf("%s comes from %q", s.Name, s.Source)
		}
		if s.Env != "" {
			got[s.Env] = s.Value
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if c := Documented(); c.Mode() != cordon.Off || c.Phases() != (Phases{}) {
		t.Errorf("mode %s, phases %+v", c.Mode(), c.Phases())
	}
}

func TestNothingSetIsTheDoorsBaseline(t *testing.T) {
	loaded, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*Config{"Doors": Doors(), "Load": loaded, "Load at home": load(t, world{})} {
		if c.Mode() != cordon.Shadow || c.Profile() != "coding" || c.Tier() != cordon.Supervised || c.Runtime() != "native" {
			t.Errorf("%s: %s %s %s %s", name, c.Mode(), c.Profile(), c.Tier(), c.Runtime())
		}
		want := Phases{FS: true, Whitelist: true, Tripwires: true, Caps: true, Egress: true, Provenance: true}
		if c.Phases() != want {
			t.Errorf("%s: phases %+v", name, c.Phases())
		}
		if c.Caps() != (Caps{200, 600 * time.Second, 104857600, 5}) || c.VM() != (VM{256, 1, 5 * time.Second}) ||
			c.Judge() != (Judge{2 * time.Second, 5, 120 * time.Second}) {
			t.Errorf("%s: %+v %+v %+v", name, c.Caps(), c.VM(), c.Judge())
		}
	}
}

func TestMode(t *testing.T) {
	const (
		enabled = "ATOM_SANDBOX_ENABLED"
		force   = "ATOM_SANDBOX_FORCE_ENFORCE"
	)
	tests := []struct {
		name   string
		env    map[string]string
		file   string
		flag   string
		want   cordon.Mode
		source string
	}{
		{"nothing set", nil, "", "", cordon.Shadow, "default"},
		{"switched on", map[string]string{enabled: "true"}, "", "", cordon.Shadow, "default"},
		{"switched off", map[string]string{enabled: "false"}, "", "", cordon.Off, "env"},
		{"switched off with a number", map[string]string{enabled: "0"}, "", "", cordon.Off, "env"},
		{"set to nothing is not set", map[string]string{enabled: " "}, "", "", cordon.Shadow, "default"},
		{"forced", map[string]string{force: "true"}, "", "", cordon.Enforce, "env"},
		{"not forced leaves the file alone", map[string]string{force: "false"}, "enforce", "", cordon.Enforce, "file"},
		{"forced over the file", map[string]string{force: "1"}, "off", "", cordon.Enforce, "env"},
		{"the file", nil, "enforce", "", cordon.Enforce, "file"},
		{"the file in YAML's word for false", nil, "off", "", cordon.Off, "file"},
		{"switched on over a file that says off", map[string]string{enabled: "yes"}, "off", "", cordon.Shadow, "env"},
		{"switched on does not weaken a file that enforces", map[string]string{enabled: "true"}, "enforce", "", cordon.Enforce, "file"},
		{"a flag over the file", nil, "off", "enforce", cordon.Enforce, "flag"},
		{"a flag over a variable", map[string]string{force: "true"}, "", "shadow", cordon.Shadow, "flag"},
		{"a flag in capitals", nil, "", "Enforce", cordon.Enforce, "flag"},
		{"switched off stays off whatever else says", map[string]string{enabled: "false", force: "true"}, "enforce", "enforce", cordon.Off, "env"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := world{env: tt.env, flags: map[string][]string{}}
			if tt.file != "" {
				w.files = yamlFile("mode: " + tt.file + "\n")
			}
			if tt.flag != "" {
				w.flags["mode"] = []string{tt.flag}
			}
			c := load(t, w)
			if s := shown(t, c, "mode"); c.Mode() != tt.want || s.Source != tt.source || s.Value != tt.want.String() {
				t.Errorf("mode %s from %q (%s), want %s from %q", c.Mode(), s.Source, s.SourceDetail, tt.want, tt.source)
			}
		})
	}
}

func TestTheMasterSwitchTurnsEverythingOff(t *testing.T) {
	c := load(t, world{
		env:   map[string]string{"ATOM_SANDBOX_ENABLED": "FALSE", "ATOM_SANDBOX_JUDGE_ENABLED": "true", "ATOM_DMM_LEVEL5_ENABLED": "true"},
		files: yamlFile("phases:\n  fs: true\n"),
	})
	if c.Mode() != cordon.Off || c.Phases() != (Phases{}) || c.Transactions() {
		t.Errorf("%s %+v %v", c.Mode(), c.Phases(), c.Transactions())
	}
	if s := shown(t, c, "phases.fs"); s.SourceDetail != "ATOM_SANDBOX_ENABLED" {
		t.Errorf("phases.fs: %+v", s)
	}
	if len(c.Notes()) != 1 {
		t.Errorf("notes %q", c.Notes())
	}
}

func TestPhaseSwitches(t *testing.T) {
	fields := map[string]func(Phases) bool{
		"FS": func(p Phases) bool { return p.FS }, "WHITELIST": func(p Phases) bool { return p.Whitelist },
		"TRIPWIRES": func(p Phases) bool { return p.Tripwires }, "CAPS": func(p Phases) bool { return p.Caps },
		"EGRESS": func(p Phases) bool { return p.Egress }, "PROVENANCE": func(p Phases) bool { return p.Provenance },
		"JUDGE": func(p Phases) bool { return p.Judge },
	}
	for name, field := range fields {
		env, key := "ATOM_SANDBOX_"+name+"_ENABLED", strings.ToLower(name)
		base := field(Doors().Phases())
		for _, want := range []bool{true, false} {
			word := fmt.Sprint(want)
			c := load(t, world{env: map[string]string{env: word}, files: yamlFile("phases: {" + key + ": " + fmt.Sprint(!want) + "}")})
			if field(c.Phases()) != want {
				t.Errorf("%s=%s over the file: %v", env, word, !want)
			}
			c = load(t, world{files: yamlFile("phases:\n  " + key + ": " + word + "\n")})
			if field(c.Phases()) != want || shown(t, c, "phases."+key).Source != "file" {
				t.Errorf("file %s: %s: %v", key, word, !want)
			}
		}
		if c := load(t, world{}); field(c.Phases()) != base {
			t.Errorf("%s unset: %v", env, !base)
		}
	}
}

func TestEveryVariableIsHonoured(t *testing.T) {
	env := map[string]string{
		"ATOM_SANDBOX_MAX_TOOL_CALLS": "7", "ATOM_SANDBOX_MAX_EXEC_SECONDS": "1.5", "ATOM_SANDBOX_MAX_BYTES_WRITTEN": " 1024 ",
		"ATOM_SANDBOX_MAX_COST_USD": "0.25", "ATOM_SANDBOX_RUNTIME": "gvisor", "ATOM_SANDBOX_VM_MEM_MB": "512",
		"ATOM_SANDBOX_VM_VCPUS": "2", "ATOM_SANDBOX_VM_BOOT_TIMEOUT_SECONDS": "9", "E2B_API_KEY": "e2b_s3cr3t",
		"ATOM_SANDBOX_JUDGE_TIMEOUT_SECONDS": "0.5", "ATOM_SANDBOX_JUDGE_CIRCUIT_THRESHOLD": "3",
		"ATOM_SANDBOX_JUDGE_CIRCUIT_COOLDOWN_SECONDS": "60", "ATOM_DMM_LEVEL5_ENABLED": "true",
		"ATOM_SANDBOX_POLICY_TENANT_OVERRIDE": "on",
	}
	c := load(t, world{env: env})
	if c.Caps() != (Caps{7, 1500 * time.Millisecond, 1024, 0.25}) || c.Runtime() != "gvisor" ||
		c.VM() != (VM{512, 2, 9 * time.Second}) || c.Judge() != (Judge{500 * time.Millisecond, 3, time.Minute}) ||
		!c.Transactions() || !c.TenantOverride() || c.E2BKey().Reveal() != "e2b_s3cr3t" {
		t.Errorf("%+v %s %+v %+v %v %v", c.Caps(), c.Runtime(), c.VM(), c.Judge(), c.Transactions(), c.TenantOverride())
	}
	for _, s := range c.Settings() {
		if _, ok := env[s.Env]; ok && (s.Source != "env" || s.SourceDetail != s.Env) {
			t.Errorf("%s: %+v", s.Env, s)
		}
	}
}

func TestBadVariablesAreErrorsThatNameThemTheValueAndWhatIsWanted(t *testing.T) {
	tests := []struct{ env, value, want string }{
		{"ATOM_SANDBOX_ENABLED", "maybe", "true or false"},
		{"ATOM_SANDBOX_FS_ENABLED", "2", "true or false"},
		{"ATOM_SANDBOX_MAX_TOOL_CALLS", "0", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_TOOL_CALLS", "-1", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_TOOL_CALLS", "12.5", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_TOOL_CALLS", "0x10", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_TOOL_CALLS", "99999999999999999999", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_EXEC_SECONDS", "0.0", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_EXEC_SECONDS", "10m", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_EXEC_SECONDS", "1e300", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_BYTES_WRITTEN", "100MB", "a whole number from 1"},
		{"ATOM_SANDBOX_MAX_COST_USD", "inf", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_COST_USD", "NaN", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_COST_USD", "-0", "a number greater than 0"},
		{"ATOM_SANDBOX_MAX_COST_USD", "unlimited", "a number greater than 0"},
		{"ATOM_SANDBOX_RUNTIME", "gvisr", "gvisor"},
		{"ATOM_SANDBOX_VM_VCPUS", "0", "a whole number from 1"},
		{"ATOM_SANDBOX_JUDGE_CIRCUIT_THRESHOLD", "many", "a whole number from 1"},
		{"CORDON_CONFIG", "cordon.yaml", "an absolute path"},
	}
	for _, tt := range tests {
		t.Run(tt.env+"="+tt.value, func(t *testing.T) {
			c, err := Load(world{env: map[string]string{tt.env: tt.value}}.input())
			if err == nil || c != nil {
				t.Fatalf("got %v, %v", c, err)
			}
			for _, part := range []string{"config: " + tt.env, fmt.Sprintf("%q", tt.value), tt.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error lacks %s: %v", part, err)
				}
			}
		})
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	_, err := Load(world{
		env:   map[string]string{"ATOM_SANDBOX_MAX_TOOL_CALLS": "x", "ATOM_SANDBOX_RUNTIME": "y"},
		files: yamlFile("tier: boss\n"),
		flags: map[string][]string{"profile": {"ops"}, "colour": {"red"}},
	}.input())
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"MAX_TOOL_CALLS", "RUNTIME", ":1: tier", "--profile", `flag "colour"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

// badFile is a file that is refused, and what the error says.
type badFile struct{ name, text, want string }

func badFiles() []badFile {
	return []badFile{
		{"an unknown key", "mode: shadow\nmod: enforce\n", `:2: unknown key "mod"`},
		{"an unknown key in a section", "caps:\n  tool_calls: 5\n  tools: 5\n", `:3: unknown key "caps.tools"`},
		{"a key in another case", "Mode: enforce\n", `:1: unknown key "Mode"`},
		{"a key that is given twice", "mode: enforce\ntier: intern\nmode: off\n", `:3: key "mode" (want each key once)`},
		{"a cap of zero", "caps:\n  bytes_written: 0\n", `:2: caps.bytes_written "0"`},
		{"a cap without a value", "caps:\n  cost_usd:\n", `:2: caps.cost_usd`},
		{"a cap that is a list", "caps:\n  cost_usd: [1]\n", `:2: caps.cost_usd "a list"`},
		{"a section that is a value", "caps: none\n", `:1: caps "none" (want a mapping)`},
		{"a file that is a list", "- mode\n", `:1: file "a list" (want a mapping)`},
		{"a wrong mode", "mode: enforced\n", `:1: mode "enforced" (want one of off, shadow, enforce)`},
		{"an alias for a value", "profile: &p coding\ntier: *p\n", `:2: tier "*p"`},
		{"a list in a list", "read: [[/x]]\n", `:1: read "a list"`},
		{"a relative root", "write:\n  - out\n", `:2: write "out" (want an absolute path`},
		{"the whole disk for writing", "write: /\n", `write "/" (want a directory below /)`},
		{"another user's home", "read: ~root/x\n", `read "~root/x"`},
		{"an empty host", `allow_hosts: [""]`, `allow_hosts ""`},
		{"a secret's key", "e2b_api_key: x\n", `unknown key "e2b_api_key"`},
		{"two documents", "mode: shadow\n---\nmode: off\n", "a second document"},
		{"no YAML", "mode: [\n", "line"},
		{"a tenant that is a value", "tenants:\n  acme: 5\n", `:2: tenants.acme "5" (want a mapping)`},
		{"an unknown key of a tenant", "tenants:\n  acme:\n    mode: off\n", `:3: unknown key "tenants.acme.mode"`},
		{"a tenant's cap of zero", "tenants:\n  acme:\n    caps: {tool_calls: 0}\n", `:3: tenants.acme.caps.tool_calls "0"`},
		{"a tenant's negative time", "tenants:\n  acme:\n    caps: {exec_seconds: -1}\n", `exec_seconds "-1"`},
		{"a tenant's hosts without a value", "tenants:\n  acme:\n    allow_hosts:\n", `:3: tenants.acme.allow_hosts`},
		{"a tenant's unknown tier", "tenants:\n  acme:\n    tier: root\n", `tenants.acme.tier "root"`},
	}
}

func TestBadFilesAreErrorsWithTheLine(t *testing.T) {
	tests := badFiles()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load(world{files: yamlFile(tt.text)}.input())
			if err == nil {
				t.Fatalf("accepted: %+v", c.Settings())
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "config: "+userFile) {
				t.Errorf("error %v\nlacks %s", err, tt.want)
			}
		})
	}
}

const wholeFile = `# mine
mode: enforce
profile: atom
tier: intern
phases: {egress: no, judge: yes}
caps:
  tool_calls: 50
  exec_seconds: 30.5
  bytes_written: 1000
  cost_usd: 0.10
runtime: qemu
vm: {mem_mb: 1024, vcpus: 4, boot_timeout_seconds: 2}
judge: {timeout_seconds: 1, circuit_threshold: 2, circuit_cooldown_seconds: 3}
read: [~/docs, /srv//data/../ref]
write: /srv/out
allow_hosts:
  - repo.example.org
  - "*.example.net"
allow_tools: [weather/get]
db: ~/state/audit.db
transactions: true
policy_tenant_override: true
tenants:
  acme:
    tier: student
    allow_hosts: []
    tools: [group:read_only, Bash]
    caps: {tool_calls: 5, exec_seconds: 1, bytes_written: 2, cost_usd: 0.5}
  globex: {}
`

func TestAWholeFile(t *testing.T) {
	c := load(t, world{files: yamlFile(wholeFile)})
	if c.Mode() != cordon.Enforce || c.Profile() != "atom" || c.Tier() != cordon.Intern || c.Runtime() != "qemu" || c.File() != userFile {
		t.Errorf("%s %s %s %s %s", c.Mode(), c.Profile(), c.Tier(), c.Runtime(), c.File())
	}
	if p := c.Phases(); p.Egress || !p.Judge || !p.FS {
		t.Errorf("phases %+v", p)
	}
	if c.Caps() != (Caps{50, 30500 * time.Millisecond, 1000, 0.1}) || c.VM() != (VM{1024, 4, 2 * time.Second}) ||
		c.Judge() != (Judge{time.Second, 2, 3 * time.Second}) {
		t.Errorf("%+v %+v %+v", c.Caps(), c.VM(), c.Judge())
	}
	lists := [][]string{c.Read(), c.Write(), c.AllowHosts(), c.AllowTools(), {c.DB()}}
	want := [][]string{{"/home/kim/docs", "/srv/ref"}, {"/srv/out"}, {"repo.example.org", "*.example.net"}, {"weather/get"}, {"/home/kim/state/audit.db"}}
	if d := cmp.Diff(want, lists); d != "" {
		t.Errorf("lists (-want +got):\n%s", d)
	}
	acme := c.Tenants()["acme"]
	if *acme.Tier != cordon.Student || acme.AllowHosts == nil || len(acme.AllowHosts) != 0 || len(acme.Tools) != 2 ||
		*acme.ToolCalls != 5 || *acme.Exec != time.Second || *acme.BytesWritten != 2 || *acme.CostUSD != 0.5 {
		t.Errorf("acme %+v", acme)
	}
	if d := cmp.Diff(Tenant{}, c.Tenants()["globex"]); d != "" {
		t.Errorf("globex: %s", d)
	}
	if s := shown(t, c, "caps.exec_seconds"); s.SourceDetail != userFile+":8" || s.Value != "30.5" {
		t.Errorf("%+v", s)
	}
	if n := c.Notes(); len(n) != 1 || !strings.Contains(n[0], "judge.provider") {
		t.Errorf("notes %q", n)
	}
}

func TestListsOfFileAndFlagsAddUp(t *testing.T) {
	c := load(t, world{
		files: yamlFile("allow_hosts: [a.example]\nread: [/srv/a]\n"),
		flags: map[string][]string{"allow-host": {"b.example", "a.example"}, "read": {"lib", "~/x"}, "write": nil},
	})
	if d := cmp.Diff([]string{"a.example", "b.example"}, c.AllowHosts()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"/srv/a", "/home/kim/project/lib", "/home/kim/x"}, c.Read()); d != "" {
		t.Error(d)
	}
	if s := shown(t, c, "allow_hosts"); s.Source != "file+flag" || s.SourceDetail != userFile+":1, --allow-host" {
		t.Errorf("%+v", s)
	}
	if s := shown(t, c, "write"); s.Source != "default" {
		t.Errorf("%+v", s)
	}
}

func TestPrecedence(t *testing.T) {
	w := world{files: yamlFile("runtime: qemu\n")}
	check := func(want, source string) {
		t.Helper()
		c := load(t, w)
		if s := shown(t, c, "runtime"); c.Runtime() != want || s.Source != source {
			t.Errorf("runtime %s from %s, want %s from %s", c.Runtime(), s.Source, want, source)
		}
	}
	check("qemu", "file")
	w.env = map[string]string{"ATOM_SANDBOX_RUNTIME": "docker"}
	check("docker", "env")
	w.flags = map[string][]string{"runtime": {"gvisor", "native"}}
	check("native", "flag")
}

func TestWhichFileIsRead(t *testing.T) {
	files := map[string]string{
		userFile:                          "tier: student\n",
		"/etc/xdg/kim/cordon/cordon.yaml": "tier: intern\n",
		"/opt/c.yaml":                     "tier: autonomous\n",
		"/home/kim/project/own.yaml":      "profile: atom\n",
		"/home/kim/project/cordon.yaml":   "mode: off\n",
		"/cordon/cordon.yaml":             "mode: off\n",
	}
	tests := []struct {
		name string
		env  map[string]string
		flag string
		want string
	}{
		{"the user's own", nil, "", userFile},
		{"in the XDG directory", map[string]string{"XDG_CONFIG_HOME": "/etc/xdg/kim"}, "", "/etc/xdg/kim/cordon/cordon.yaml"},
		{"a relative XDG directory does not count", map[string]string{"XDG_CONFIG_HOME": "."}, "", userFile},
		{"named by the variable", map[string]string{"CORDON_CONFIG": "/opt/c.yaml"}, "", "/opt/c.yaml"},
		{"named by the flag, over the variable", map[string]string{"CORDON_CONFIG": "/opt/c.yaml"}, "own.yaml", "/home/kim/project/own.yaml"},
		{"none in the workspace, nor at the root without a home", map[string]string{"HOME": ""}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := load(t, world{env: tt.env, files: files, file: tt.flag})
			if c.File() != tt.want || c.Mode() != cordon.Shadow {
				t.Errorf("read %q in mode %s, want %q", c.File(), c.Mode(), tt.want)
			}
		})
	}
	for _, w := range []world{{file: "/none.yaml"}, {env: map[string]string{"CORDON_CONFIG": "/none.yaml"}}} {
		if _, err := Load(w.input()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a named file that is not there: %v", err)
		}
	}
	in := world{}.input()
	in.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrPermission }
	if _, err := Load(in); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the user's file cannot be read: %v", err)
	}
}

func TestRealFilesAreReadAndBounded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(name, []byte("tier: intern\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Input{File: name})
	if err != nil || c.Tier() != cordon.Intern {
		t.Errorf("%v, %v", c, err)
	}
	if err := os.WriteFile(name, []byte(strings.Repeat("#\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Input{File: name}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("error %v", err)
	}
}

func TestEmptyFilesSetNothing(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n", "~\n"} {
		c := load(t, world{files: yamlFile(text)})
		if d := cmp.Diff(load(t, world{}).Settings(), c.Settings()); d != "" {
			t.Errorf("file %q: %s", text, d)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "e2b_0a1b2c3d"
	c := load(t, world{
		env:   map[string]string{"E2B_API_KEY": secret},
		flags: map[string][]string{"db": {"postgres://kim:" + secret + "@db.example/audit?sslpassword=" + secret}},
	})
	settings, err := json.Marshal(c.Settings())
	if err != nil {
		t.Fatal(err)
	}
	key, err := json.Marshal(struct{ K Secret }{c.E2BKey()})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(settings), string(key)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		texts = append(texts, fmt.Sprintf(verb, c.E2BKey()), fmt.Sprintf(verb, struct{ k Secret }{c.E2BKey()}), fmt.Sprintf(verb, c.v.e2bKey))
	}
	for _, s := range texts {
		if strings.Contains(s, secret) {
			t.Errorf("the secret is in %s", s)
		}
	}
	if shown(t, c, "e2b_api_key").Value != "set" || c.E2BKey().Reveal() != secret || !strings.Contains(c.DB(), secret) {
		t.Error("the secret was lost")
	}
	if _, err := Load(world{env: map[string]string{"E2B_API_KEY": secret + "\x01"}}.input()); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error %v", err)
	}
}

func TestConfigIsImmutable(t *testing.T) {
	in := world{files: yamlFile(`
read: [/srv/a]
allow_hosts: [a.example]
allow_tools: [x]
tenants: {acme: {tier: intern, tools: [x], allow_hosts: [a.example], caps: {tool_calls: 3, exec_seconds: 3, bytes_written: 3, cost_usd: 3}}}
tools: [{name: x}]
`), flags: map[string][]string{"write": {"/srv/w"}}}
	c := load(t, in)
	picture := func() string { return fmt.Sprint(c.Settings(), c.Read(), c.Write(), string(c.Tools()), tenantText(c)) }
	before := picture()

	in.flags["write"][0] = "/"
	c.Read()[0], c.Write()[0], c.AllowHosts()[0], c.AllowTools()[0], c.Tools()[0] = "/", "/", "evil.test", "*", 'x'
	acme := c.Tenants()["acme"]
	*acme.Tier, *acme.ToolCalls, *acme.Exec, *acme.BytesWritten, *acme.CostUSD = cordon.Autonomous, 1e6, 1e6, 1e6, 1e6
	acme.Tools[0], acme.AllowHosts[0] = "*", "evil.test"
	delete(c.Tenants(), "acme")
	c.Settings()[0].Value = "x"
	if after := picture(); after != before {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
}

func tenantText(c *Config) string {
	a := c.Tenants()["acme"]
	return fmt.Sprint(*a.Tier, *a.ToolCalls, *a.Exec, *a.BytesWritten, *a.CostUSD, a.Tools, a.AllowHosts)
}

func TestTenantsWithoutTheSwitchAreNoted(t *testing.T) {
	c := load(t, world{files: yamlFile("tenants: {acme: {tier: student}}\n")})
	if len(c.Notes()) != 1 || !strings.Contains(c.Notes()[0], "policy_tenant_override") {
		t.Errorf("notes %q", c.Notes())
	}
}

func TestToolsStayRawWithTheirPositions(t *testing.T) {
	tests := []struct {
		name, text string
		line       int
	}{
		{"a list below its key", "mode: shadow\ntools:\n  - name: a\n    args: {p: path}\n  - name: b\ntier: intern\n", 3},
		{"a list at the key's own column", "tools:\n- name: a\n- name: b\n", 2},
		{"a mapping", "# c\ntools:\n    # mine\n    a: {x: 1}\n    b:\n      y: |\n        text: tier\n        more\nmode: off\n", 4},
		{"flow style on the key's line", "mode: off\ntools: [{name: a}, {name: b}]\n", 2},
		{"an anchor within", "tools:\n  a: &x {k: 1}\n  b: *x\n", 2},
		{"without a line end", "tools:\n  - a", 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := load(t, world{files: yamlFile(tt.text)})
			var whole struct{ Tools yaml.Node }
			var got yaml.Node
			if err := yaml.Unmarshal([]byte(tt.text), &whole); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(c.Tools(), &got); err != nil {
				t.Fatalf("%v in %q", err, c.Tools())
			}
			if got.Content[0].Line != tt.line || !sameNode(got.Content[0], &whole.Tools, 0) {
				t.Errorf("tools are at line %d, want %d:\n%s", got.Content[0].Line, tt.line, c.Tools())
			}
		})
	}
	c := load(t, world{files: yamlFile("{tools: [{name: a}], mode: enforce}")})
	var v []map[string]string
	if err := yaml.Unmarshal(c.Tools(), &v); err != nil || len(v) != 1 || v[0]["name"] != "a" {
		t.Errorf("tools in a file in flow style: %q, %v, %v", c.Tools(), v, err)
	}
	if load(t, world{}).Tools() != nil {
		t.Error("tools without a file")
	}
}

func TestSettingsHaveAStableOrderAndUniqueNames(t *testing.T) {
	a, b := Doors().Settings(), Doors().Settings()
	if d := cmp.Diff(a, b); d != "" {
		t.Error(d)
	}
	seen := map[string]bool{}
	for _, s := range a {
		for _, key := range []string{"name " + s.Name, "env " + s.Env, "flag " + s.Flag} {
			if seen[key] && !strings.HasSuffix(key, " ") {
				t.Errorf("%s comes twice", key)
			}
			seen[key] = true
		}
	}
}

func TestWithoutAHomeOrDirectoryRelativePathsAreErrors(t *testing.T) {
	for _, p := range []string{"~/x", "x", "./x"} {
		_, err := Load(Input{Flags: map[string][]string{"read": {p}}})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("--read %q", p)) {
			t.Errorf("--read %s: error %v", p, err)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, s := range []string{
		"mode: enforce\ncaps: {tool_calls: 3}\n", "tenants:\n  a: {caps: {cost_usd: 1}}\n", "tools:\n - a: &x 1\n - *x\n",
		"a: &a [*a]\n", "? [x]\n: y\n", "{mode: off, mode: on}", "--- \n...\n--- 1", "\xff\xfe", "tools: !!binary aGk=", "read: [~, ~/]\n",
	} {
		f.Add([]byte(s))
	}
	f.Add([]byte(sectionsFile))
	f.Add([]byte(testsFile))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Load(world{files: yamlFile(string(data))}.input())
		if (c == nil) == (err == nil) {
			t.Fatalf("got %v, %v", c, err)
		}
		if err != nil {
			return
		}
		caps := c.Caps()
		if caps.ToolCalls <= 0 || caps.Exec <= 0 || caps.BytesWritten <= 0 || !(caps.CostUSD > 0) {
			t.Fatalf("caps %+v", caps)
		}
		for _, p := range append(c.Read(), c.Write()...) {
			if !filepath.IsAbs(p) || filepath.Clean(p) != p {
				t.Fatalf("root %q", p)
			}
		}
		for _, token := range c.Gateway().Tokens {
			if token.SHA256 != "" && len(token.SHA256) != 64 {
				t.Fatalf("token %+v", token)
			}
		}
		for _, s := range c.Gateway().Servers {
			if s.Name == "" || (s.Transport == "stdio") != (len(s.Command) > 0) || (s.Transport == "stdio") != (s.Sandbox != "") || (s.URL == "") != (s.Transport == "stdio") {
				t.Fatalf("server %+v", s)
			}
		}
		for _, test := range c.Tests() {
			if !json.Valid(test.Args) || test.Args[0] != '{' || test.Name == "" || test.Tool == "" || test.Line < 1 {
				t.Fatalf("test %+v with %s", test, test.Args)
			}
		}
		for _, tenant := range c.Tenants() {
			if tenant.ToolCalls != nil && *tenant.ToolCalls <= 0 || tenant.Exec != nil && *tenant.Exec <= 0 {
				t.Fatalf("tenant %+v", tenant)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	in := world{files: yamlFile("mode: enforce\ncaps: {tool_calls: 3}\nallow_hosts: [a.example, b.example]\n")}.input()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(in); err != nil {
			b.Fatal(err)
		}
	}
}
