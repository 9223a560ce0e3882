package policy

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

func baseConfig() Config {
	return Config{
		Profile:       Coding,
		BaselineHosts: []string{"packages.example.org", "code.example.org"},
		AllowHosts:    []string{"API.Example.net."},
		Caps:          Caps{ToolCalls: 200, Exec: 600 * time.Second, BytesWritten: 100 << 20, CostUSD: 5},
	}
}

func issuer(t testing.TB, c Config) *Issuer {
	t.Helper()
	is, err := NewIssuer(c)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

func issue(t testing.TB, is *Issuer, r cordon.Run) *Policy {
	t.Helper()
	p, err := is.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func TestTierTable(t *testing.T) {
	system := []Root{{"/bin", false}, {"/lib", false}, {"/lib64", false}, {"/opt", false}, {"/sbin", false}}
	usr := Root{"/usr", false}
	hosts := []string{"api.example.net", "code.example.org", "packages.example.org"}
	tests := []struct {
		name    string
		profile string
		tier    cordon.Tier
		groups  []string
		roots   []Root
		hosts   []string
	}{
		{"an atom student reads the data", Atom, cordon.Student,
			[]string{ReadOnly}, []Root{{"/ws/data", false}}, nil},
		{"an atom intern also writes its run's directory", Atom, cordon.Intern,
			[]string{ReadOnly, Memory, ProductivityRead},
			[]Root{{"/tmp/agent/r1", true}, {"/ws/data", false}}, nil},
		{"a supervised atom agent also writes uploads and connects", Atom, cordon.Supervised,
			[]string{ReadOnly, Memory, ProductivityRead, Browser, ProductivityWrite},
			[]Root{{"/tmp/agent/r1", true}, {"/ws/data", false}, {"/ws/data/uploads", true}}, hosts},
		{"an autonomous atom agent has every tool and no further root", Atom, cordon.Autonomous,
			append(Groups(), "no_such_group"),
			[]Root{{"/tmp/agent/r1", true}, {"/ws/data", false}, {"/ws/data/uploads", true}}, hosts},
		{"a coding student reads the workspace and the system", Coding, cordon.Student,
			[]string{ReadOnly}, append(append([]Root{}, system...), usr, Root{"/ws", false}), nil},
		{"a coding intern also writes its run's directory", Coding, cordon.Intern,
			[]string{ReadOnly, Memory, ProductivityRead, FSWrite},
			append(append([]Root{}, system...), Root{"/tmp/agent/r1", true}, usr, Root{"/ws", false}), nil},
		{"a supervised coding agent writes the workspace and the scratch", Coding, cordon.Supervised,
			Groups(), append(append([]Root{}, system...), Root{"/tmp/agent", true}, usr, Root{"/ws", true}), hosts},
		{"an autonomous coding agent has every tool and no further root", Coding, cordon.Autonomous,
			append(Groups(), "no_such_group"),
			append(append([]Root{}, system...), Root{"/tmp/agent", true}, usr, Root{"/ws", true}), hosts},
	}
	is := issuer(t, baseConfig())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := is.grantFor(cordon.Run{Tier: tt.tier, Profile: tt.profile, Workspace: "/ws"})
			if err != nil {
				t.Fatal(err)
			}
			got := policyFor(p, cordon.Run{}, "r1", "pol-1", 1, time.Now())
			var groups []string
			for _, g := range append(Groups(), "no_such_group") {
				if got.AllowsTool(g, "srv", "tool") {
					groups = append(groups, g)
				}
			}
			if d := cmp.Diff(tt.groups, groups); d != "" {
				t.Errorf("groups (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.roots, got.Roots()); d != "" {
				t.Errorf("roots (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.hosts, got.Hosts()); d != "" {
				t.Errorf("hosts (-want +got):\n%s", d)
			}
		})
	}
}

func TestE3StudentsAndInternsGetNoHostEvenWhenOneIsAllowedByName(t *testing.T) {
	is := issuer(t, baseConfig())
	for _, profile := range Profiles() {
		for _, tier := range []cordon.Tier{cordon.Student, cordon.Intern} {
			p := issue(t, is, cordon.Run{Tier: tier, Profile: profile, Workspace: "/ws"})
			if h := p.Hosts(); len(h) != 0 {
				t.Errorf("%s %s: hosts %q, want none", profile, tier, h)
			}
		}
	}
}

func TestTheZeroPolicyAllowsNothing(t *testing.T) {
	var p Policy
	for _, g := range append(Groups(), "", "*") {
		if p.AllowsTool(g, "", "Read") {
			t.Errorf("group %q is allowed", g)
		}
	}
	if len(p.Roots()) != 0 || len(p.Hosts()) != 0 || p.Caps() != (Caps{}) || p.RunRoot() != "" || p.Tier() != cordon.Student {
		t.Errorf("zero policy permits something: %v %v %v", p.Roots(), p.Hosts(), p.Caps())
	}
	if (*Policy)(nil).AllowsTool(ReadOnly, "", "Read") {
		t.Error("a nil policy allows a tool")
	}
}

func TestAnUnknownTierIsAStudent(t *testing.T) {
	p := issue(t, issuer(t, baseConfig()), cordon.Run{ID: "r", Tier: cordon.Tier(77), Workspace: "/ws"})
	if p.Tier() != cordon.Student || p.AllowsTool(Exec, "", "Bash") {
		t.Errorf("tier %s, exec %v", p.Tier(), p.AllowsTool(Exec, "", "Bash"))
	}
}

func TestPoliciesCannotBeChanged(t *testing.T) {
	for _, tier := range []cordon.Tier{cordon.Intern, cordon.Supervised} {
		t.Run(tier.String(), func(t *testing.T) { cannotBeChanged(t, tier) })
	}
}

func cannotBeChanged(t *testing.T, tier cordon.Tier) {
	c := baseConfig()
	c.Read, c.Write = []string{"/srv/docs"}, []string{"/srv/out"}
	c.AllowTools = []string{"weather"}
	c.TenantOverride = true
	c.Tenants = map[string]Override{"acme": {Hosts: []string{"code.example.org"}, Tools: []string{"group:exec"}}}
	is := issuer(t, c)
	run := cordon.Run{Tier: tier, Workspace: "/ws", Tenant: "acme"}
	before, err := json.Marshal(issue(t, is, withID(run, "r1")))
	if err != nil {
		t.Fatal(err)
	}

	c.BaselineHosts[0], c.AllowHosts[0], c.Read[0], c.Write[0], c.AllowTools[0] = "x", "x", "/etc", "/etc", "x"
	c.Tenants["acme"].Hosts[0], c.Tenants["acme"].Tools[0] = "evil.test", "*"
	delete(c.Tenants, "acme")
	p := issue(t, is, withID(run, "r1"))
	for _, q := range []*Policy{p, issue(t, is, withID(run, "r2")), issue(t, is, run)} {
		for i := range q.Roots() {
			q.Roots()[i] = Root{"/", true}
		}
		r, h := q.Roots(), q.Hosts()
		for i := range r {
			r[i] = Root{"/", true}
		}
		for i := range h {
			h[i] = "evil.test"
		}
	}
	after, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(before), string(after)); d != "" {
		t.Errorf("the policy changed (-before +after):\n%s", d)
	}
	other := issue(t, is, withID(run, "r3"))
	if other.Hash() != p.Hash() || len(other.Hosts()) != len(p.Hosts()) {
		t.Error("a later policy of the same content differs")
	}
}

func withID(r cordon.Run, id string) cordon.Run {
	r.ID = id
	return r
}

func TestW5OneRunHasOnePolicyWhateverLaterCallsSay(t *testing.T) {
	is := issuer(t, baseConfig())
	first := issue(t, is, cordon.Run{ID: "job-7", Tier: cordon.Student, Workspace: "/ws", Session: "s1"})
	again := issue(t, is, cordon.Run{ID: "job-7", Tier: cordon.Autonomous, Profile: Atom, Workspace: "/home/kim", Session: "s2"})
	if first != again {
		t.Fatal("a second policy was issued for the run")
	}
	if again.Tier() != cordon.Student || again.Workspace() != "/ws" || again.Session() != "s1" {
		t.Errorf("got %s %s %s", again.Tier(), again.Workspace(), again.Session())
	}
}

func TestARunOfAnotherTenantIsNotLent(t *testing.T) {
	is := issuer(t, baseConfig())
	issue(t, is, cordon.Run{ID: "nightly", Tenant: "acme", Tier: cordon.Autonomous})
	issue(t, is, cordon.Run{ID: "local", Tier: cordon.Autonomous})
	for _, r := range []cordon.Run{
		{ID: "nightly", Tenant: "globex", Tier: cordon.Student},
		{ID: "local", Tenant: "globex", Tier: cordon.Student},
	} {
		if _, err := is.Issue(r); !errors.Is(err, ErrOtherTenant) {
			t.Errorf("run %q: error %v, want ErrOtherTenant", r.ID, err)
		}
	}
	issue(t, is, cordon.Run{ID: "nightly", Tenant: "acme"})
	issue(t, is, cordon.Run{ID: "nightly"})
}

func TestF4RunIDsNameOneDirectoryAndNoOther(t *testing.T) {
	is := issuer(t, baseConfig())
	bad := []string{".", "..", "...", "a/b", "../..", "/", `a\b`, "a b", "a\x00b", "a\n", "é", "{run}", "~", strings.Repeat("x", 129)}
	for _, id := range bad {
		if _, err := is.Issue(cordon.Run{ID: id}); err == nil {
			t.Errorf("run id %q was accepted", id)
		}
	}
	good := []string{"a", ".a", "a..b", "-", "2024-06-01T10:00:00_x.y", strings.Repeat("x", 128)}
	for _, id := range good {
		p, err := is.Issue(cordon.Run{ID: id, Tier: cordon.Intern})
		if err != nil {
			t.Errorf("run id %q: %v", id, err)
			continue
		}
		if p.RunRoot() != "/tmp/agent/"+id {
			t.Errorf("run id %q: run root %q", id, p.RunRoot())
		}
	}
}

func TestMalformedIdentitiesAreErrors(t *testing.T) {
	long := strings.Repeat("n", 257)
	tests := []struct {
		name string
		run  cordon.Run
	}{
		{"a tenant with a line break", cordon.Run{Tenant: "a\nb"}},
		{"an agent that is too long", cordon.Run{Agent: long}},
		{"a user that hides its direction", cordon.Run{User: "a\u202eb"}},
		{"a session that is not UTF-8", cordon.Run{Session: "\xff"}},
		{"a C1 control character", cordon.Run{Session: "a\u0085b"}},
		{"a relative workspace", cordon.Run{Workspace: "ws"}},
		{"a workspace that leaves itself", cordon.Run{Workspace: "/ws/../etc"}},
		{"the whole disk as workspace", cordon.Run{Workspace: "/"}},
		{"the whole disk as workspace, spelled long", cordon.Run{Workspace: "//./"}},
		{"a workspace with a NUL", cordon.Run{Workspace: "/ws\x00run"}},
		{"a relative home", cordon.Run{Home: "~"}},
		{"an unknown profile", cordon.Run{Profile: "Coding"}},
	}
	is := issuer(t, baseConfig())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, id := range []string{"", "r"} {
				if p, err := is.Issue(withID(tt.run, id)); err == nil || p != nil {
					t.Errorf("id %q: got %v, %v; want an error", id, p, err)
				}
			}
		})
	}
	ok := cordon.Run{ID: "r", Tenant: "Ørsted & Søn", Agent: strings.Repeat("n", 256), Workspace: "/srv/{{project}}/a..b/", Home: "/"}
	if p := issue(t, is, ok); p.Workspace() != "/srv/{{project}}/a..b" {
		t.Errorf("workspace %q", p.Workspace())
	}
}

func TestARunIsCheckedBeforeItsFirstCall(t *testing.T) {
	good := cordon.Run{Workspace: "/ws", Home: "/root"}
	for name, change := range map[string]func(*cordon.Run){
		"a workspace that is everything": func(r *cordon.Run) { r.Workspace = "/" },
		"no workspace":                   func(r *cordon.Run) { r.Workspace = "" },
		"a relative workspace":           func(r *cordon.Run) { r.Workspace = "ws" },
		"a home with dots":               func(r *cordon.Run) { r.Home = "/a/../b" },
		"an id that is a path":           func(r *cordon.Run) { r.ID = "../x" },
		"a session with a line end":      func(r *cordon.Run) { r.Session = "a\nb" },
		"an unknown profile":             func(r *cordon.Run) { r.Profile = "none" },
	} {
		r := good
		change(&r)
		if err := CheckRun(r); err == nil {
			t.Errorf("%s passed", name)
		}
	}
	for name, r := range map[string]cordon.Run{
		"a run of its own": good, "a named one": {ID: "r-1", Workspace: "/ws", Profile: Atom, Session: "s", Home: "/"},
	} {
		if err := CheckRun(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnUnknownProfileIsAnErrorThatNamesTheKnownOnes(t *testing.T) {
	_, err := issuer(t, baseConfig()).Issue(cordon.Run{Profile: "ops"})
	if err == nil || !strings.Contains(err.Error(), `"ops"`) || !strings.Contains(err.Error(), Atom) || !strings.Contains(err.Error(), Coding) {
		t.Errorf("error %v", err)
	}
}

func TestC3ACapOfZeroOrLessIsAnError(t *testing.T) {
	for _, bad := range []Caps{
		{0, 1, 1, 1}, {-1, 1, 1, 1}, {1, 0, 1, 1}, {1, -1, 1, 1}, {1, 1, 0, 1}, {1, 1, -5, 1},
		{1, 1, 1, 0}, {1, 1, 1, -0.5}, {1, 1, 1, math.NaN()}, {1, 1, 1, math.Inf(1)},
	} {
		c := baseConfig()
		c.Caps = bad
		if _, err := NewIssuer(c); err == nil {
			t.Errorf("caps %+v were accepted", bad)
		}
	}
	for name, o := range map[string]Override{
		"calls": {ToolCalls: ptr(int64(0))}, "exec": {Exec: ptr(-time.Second)},
		"bytes": {BytesWritten: ptr(int64(-1))}, "cost": {CostUSD: ptr(math.NaN())},
	} {
		for _, honoured := range []bool{true, false} {
			c := baseConfig()
			c.TenantOverride, c.Tenants = honoured, map[string]Override{"acme": o}
			if _, err := NewIssuer(c); err == nil || !strings.Contains(err.Error(), "acme") {
				t.Errorf("%s: error %v, want one that names the tenant", name, err)
			}
		}
	}
}

func TestConfigurationErrorsNameEveryBadValue(t *testing.T) {
	c := baseConfig()
	c.Profile = "atoms"
	c.AllowHosts = []string{"https://x.example/"}
	c.AllowTools = []string{"group:shell"}
	c.Read, c.Write = []string{"docs"}, []string{"/"}
	c.MaxRuns = -1
	_, err := NewIssuer(c)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`"atoms"`, `"https://x.example/"`, `"shell"`, `"docs"`, `write root "/"`, "-1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %s:\n%v", want, err)
		}
	}
	for _, entry := range []string{"*", "", "a*", "/x", "x/", "group:", "a b", "a\x00"} {
		c := baseConfig()
		c.AllowTools = []string{entry}
		if _, err := NewIssuer(c); err == nil {
			t.Errorf("allowed tool %q was accepted", entry)
		}
	}
	for _, host := range []string{"*", "a.*.b", "user@h", "", "a b", "h/p", "*.*"} {
		c := baseConfig()
		c.AllowHosts = []string{host}
		if _, err := NewIssuer(c); err == nil {
			t.Errorf("host %q was accepted", host)
		}
	}
}

func TestToolsByName(t *testing.T) {
	tests := []struct {
		name                string
		entry               string
		group, server, tool string
		want                bool
	}{
		{"a bare name on its own", "get_weather", Unknown, "", "get_weather", true},
		{"a bare name on any server", "get_weather", Unknown, "meteo", "get_weather", true},
		{"a bare name in a client's joined spelling", "get_weather", Unknown, "", "mcp__meteo__get_weather", true},
		{"another name", "get_weather", Unknown, "", "get_weather2", false},
		{"another case", "get_weather", Unknown, "", "Get_Weather", false},
		{"a server's tool", "meteo/get", Unknown, "meteo", "get", true},
		{"a server's tool in joined spelling", "meteo/get", Unknown, "", "mcp__meteo__get", true},
		{"a joined entry for a server's tool", "mcp__meteo__get", Unknown, "meteo", "get", true},
		{"the same tool on another server", "meteo/get", Unknown, "evil", "get", false},
		{"the same tool on no server", "meteo/get", Unknown, "", "get", false},
		{"a tool whose name holds the server's", "meteo/get", Unknown, "evil", "meteo/get", false},
		{"a server that completes the joined name", "mcp__meteo__a__b", Unknown, "meteo__a", "b", false},
		{"a group", "group:exec", Exec, "", "Bash", true},
		{"a tool that is named like an allowed group", "group:exec", Unknown, "", "exec", false},
		{"a tool that is named like an entry for a group", "group:exec", Unknown, "", "group:exec", false},
		{"a tool that is named like the tier's own group", "get_weather", Unknown, "", ReadOnly, false},
		{"a tool that is named like everything", "get_weather", Unknown, "", "*", false},
		{"a group that is none", "get_weather", "*", "", "x", false},
		{"a tool without a name", "get_weather", "", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := baseConfig()
			c.AllowTools = []string{tt.entry}
			p := issue(t, issuer(t, c), cordon.Run{Tier: cordon.Student})
			if got := p.AllowsTool(tt.group, tt.server, tt.tool); got != tt.want {
				t.Errorf("AllowsTool(%q, %q, %q) = %v with %q", tt.group, tt.server, tt.tool, got, tt.entry)
			}
		})
	}
}

func TestTenantOverridesOnlyNarrow(t *testing.T) {
	c := baseConfig()
	c.TenantOverride = true
	c.AllowHosts = append(c.AllowHosts, "*.cdn.example.com", "db.example.com:5432")
	c.Tenants = map[string]Override{
		"wide": {
			Tier: ptr(cordon.Autonomous), Tools: []string{"*"},
			Hosts:     []string{"code.example.org", "evil.test", "*.example.com", "*.org", "db.example.com"},
			ToolCalls: ptr(int64(1 << 40)), Exec: ptr(time.Hour * 1000),
			BytesWritten: ptr(int64(1 << 50)), CostUSD: ptr(1e6),
		},
		"narrow": {
			Tier: ptr(cordon.Supervised), Tools: []string{"group:read_only", "group:unknown", "Bash"},
			Hosts: []string{"CODE.example.org", "img.cdn.example.com"}, ToolCalls: ptr(int64(3)), CostUSD: ptr(0.5),
		},
		"none": {Hosts: []string{}, Tools: []string{}},
	}
	is := issuer(t, c)
	run := func(tenant string, tier cordon.Tier) *Policy {
		return issue(t, is, cordon.Run{Tenant: tenant, Tier: tier, Workspace: "/ws"})
	}

	wide, plain := run("wide", cordon.Student), run("other", cordon.Student)
	if wide.Tier() != cordon.Student || wide.AllowsTool(Exec, "", "Bash") || len(wide.Hosts()) != 0 || wide.Caps() != plain.Caps() {
		t.Errorf("a widening override widened a student: %s %v %v", wide.Tier(), wide.Hosts(), wide.Caps())
	}
	wantHosts := []string{"*.cdn.example.com", "code.example.org", "packages.example.org"}
	if d := cmp.Diff(wantHosts, run("wide", cordon.Supervised).Hosts()); d != "" {
		t.Errorf("hosts (-want +got):\n%s", d)
	}

	narrow := run("narrow", cordon.Autonomous)
	if narrow.Tier() != cordon.Supervised {
		t.Errorf("tier %s, want supervised", narrow.Tier())
	}
	if d := cmp.Diff([]string{"code.example.org", "img.cdn.example.com"}, narrow.Hosts()); d != "" {
		t.Errorf("hosts (-want +got):\n%s", d)
	}
	for tool, want := range map[[2]string]bool{
		{ReadOnly, "Read"}: true, {Exec, "Bash"}: true, {Exec, "terminal"}: false, {FSWrite, "Write"}: false, {Unknown, "x"}: true,
	} {
		if got := narrow.AllowsTool(tool[0], "", tool[1]); got != want {
			t.Errorf("tool %v allowed: %v", tool, got)
		}
	}
	if run("narrow", cordon.Student).AllowsTool(Exec, "", "Bash") {
		t.Error("a tool that an override names was given to a student")
	}
	wantCaps := c.Caps
	wantCaps.ToolCalls, wantCaps.CostUSD = 3, 0.5
	if narrow.Caps() != wantCaps {
		t.Errorf("caps %+v, want %+v", narrow.Caps(), wantCaps)
	}

	none := run("none", cordon.Autonomous)
	if none.AllowsTool(ReadOnly, "", "Read") || len(none.Hosts()) != 0 {
		t.Error("empty lists permit something")
	}
}

func TestTenantOverridesNeedTheSwitch(t *testing.T) {
	c := baseConfig()
	c.Tenants = map[string]Override{"acme": {Tier: ptr(cordon.Student)}}
	p := issue(t, issuer(t, c), cordon.Run{Tenant: "acme", Tier: cordon.Supervised})
	if p.Tier() != cordon.Supervised {
		t.Errorf("tier %s: the override was honoured with its switch off", p.Tier())
	}
}

func TestFurtherRoots(t *testing.T) {
	c := baseConfig()
	c.Read, c.Write = []string{"/srv/docs", "/ws"}, []string{"/srv/out", "/usr"}
	is := issuer(t, c)
	find := func(tier cordon.Tier, path string) (Root, bool) {
		for _, r := range issue(t, is, cordon.Run{Tier: tier, Workspace: "/ws"}).Roots() {
			if r.Path == path {
				return r, true
			}
		}
		return Root{}, false
	}
	for _, tt := range []struct {
		tier  cordon.Tier
		path  string
		write bool
	}{
		{cordon.Student, "/srv/docs", false}, {cordon.Student, "/srv/out", false}, {cordon.Student, "/usr", false},
		{cordon.Intern, "/srv/out", true}, {cordon.Intern, "/usr", true}, {cordon.Intern, "/ws", false},
		{cordon.Supervised, "/srv/docs", false}, {cordon.Supervised, "/ws", true},
	} {
		if r, ok := find(tt.tier, tt.path); !ok || r.Write != tt.write {
			t.Errorf("%s: root %s is %+v (there: %v), want write %v", tt.tier, tt.path, r, ok, tt.write)
		}
	}
}

func TestWithoutAWorkspaceThereIsNoRootForIt(t *testing.T) {
	for _, profile := range Profiles() {
		p := issue(t, issuer(t, baseConfig()), cordon.Run{Tier: cordon.Autonomous, Profile: profile})
		for _, r := range p.Roots() {
			if r.Path == "" || r.Path == "/data" || r.Path == "/data/uploads" {
				t.Errorf("%s: root %+v", profile, r)
			}
		}
	}
}

func TestEachRunWithoutAnIDIsItsOwn(t *testing.T) {
	is := issuer(t, baseConfig())
	seen := map[string]bool{}
	for range 1000 {
		p := issue(t, is, cordon.Run{Tier: cordon.Intern, Workspace: "/ws"})
		if seen[p.RunID()] || seen[p.ID()] {
			t.Fatalf("%s or %s came twice", p.RunID(), p.ID())
		}
		seen[p.RunID()], seen[p.ID()] = true, true
		if CheckRunID(p.RunID()) != nil || len(p.RunID()) != 36 || !strings.HasPrefix(p.RunID(), "run-") {
			t.Fatalf("run id %q", p.RunID())
		}
		if !strings.Contains(p.Roots()[5].Path, p.RunID()) || !p.RootsPerRun() {
			t.Fatalf("roots %v hold none of run %s", p.Roots(), p.RunID())
		}
	}
	if len(is.runs) != 0 {
		t.Errorf("%d anonymous runs were kept", len(is.runs))
	}
}

func TestHashCoversWhatIsPermittedOnly(t *testing.T) {
	is := issuer(t, baseConfig())
	base := cordon.Run{ID: "a", Tier: cordon.Intern, Workspace: "/ws"}
	hash := func(r cordon.Run) string { return issue(t, is, r).Hash() }
	h := hash(base)
	if len(h) != 64 {
		t.Fatalf("hash %q", h)
	}
	same := base
	same.ID, same.Agent, same.User, same.Session = "b", "x", "y", "z"
	if hash(same) != h {
		t.Error("the hash depends on who runs")
	}
	for what, r := range map[string]cordon.Run{
		"tier": {ID: "c", Tier: cordon.Student, Workspace: "/ws"}, "profile": {ID: "d", Tier: cordon.Intern, Profile: Atom, Workspace: "/ws"},
		"workspace": {ID: "e", Tier: cordon.Intern, Workspace: "/ws2"}, "home": {ID: "f", Tier: cordon.Intern, Workspace: "/ws", Home: "/h"},
		"tenant": {ID: "g", Tier: cordon.Intern, Workspace: "/ws", Tenant: "t"},
	} {
		if hash(r) == h {
			t.Errorf("another %s has the same hash", what)
		}
	}
	for what, change := range map[string]func(*Config){
		"cap": func(c *Config) { c.Caps.Exec++ }, "root": func(c *Config) { c.Read = []string{"/x"} },
		"tool": func(c *Config) { c.AllowTools = []string{"x"} },
	} {
		c := baseConfig()
		change(&c)
		if issue(t, issuer(t, c), base).Hash() == h {
			t.Errorf("another %s has the same hash", what)
		}
	}
	if issue(t, issuer(t, baseConfig()), base).Hash() != h {
		t.Error("another issuer of the same configuration has another hash")
	}
}

func TestJSONHoldsEverything(t *testing.T) {
	c := baseConfig()
	c.TenantOverride = true
	c.AllowTools = []string{"srv/x", "mcp__a__b", "plain"}
	c.Tenants = map[string]Override{"acme": {Tools: []string{"*"}}}
	p := issue(t, issuer(t, c), cordon.Run{
		ID: "r1", Tenant: "acme", Agent: "a", User: "u", Session: "s",
		Tier: cordon.Intern, Workspace: "/ws", Home: "/home/kim",
	})
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	root := func(path string, write bool) map[string]any { return map[string]any{"path": path, "write": write} }
	want := map[string]any{
		"id": p.ID(), "run_id": "r1", "tenant": "acme", "workspace": "/ws", "agent": "a", "user": "u", "session": "s",
		"tier": "intern", "profile": "coding", "home": "/home/kim",
		"roots": []any{root("/bin", false), root("/lib", false), root("/lib64", false), root("/opt", false),
			root("/sbin", false), root("/tmp/agent/r1", true), root("/usr", false), root("/ws", false)},
		"tools": []any{
			[]any{"a/b", "group:fs_write", "group:memory", "group:productivity_read", "group:read_only", "plain", "srv/x"},
			[]any{"*"},
		},
		"hosts":   []any{},
		"caps":    map[string]any{"tool_calls": 200.0, "exec_seconds": 600.0, "bytes_written": float64(100 << 20), "cost_usd": 5.0},
		"version": 1.0, "issued_at": p.IssuedAt().Format(time.RFC3339Nano), "hash": p.Hash(),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var s Stored
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p.Stored(), s); d != "" {
		t.Errorf("stored (-want +got):\n%s", d)
	}
}

func TestParallelIssuesOfOneRunGiveOnePolicy(t *testing.T) {
	var lookups sync.Map
	c := baseConfig()
	c.Lookup = func(id string) (Stored, bool, error) {
		if _, twice := lookups.LoadOrStore(id, true); twice {
			t.Errorf("run %s was looked up twice", id)
		}
		return Stored{}, false, nil
	}
	is := issuer(t, c)
	got := make([]*Policy, 32)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			p, err := is.Issue(cordon.Run{ID: "shared", Tier: cordon.Tier(i % 4), Workspace: "/ws"})
			if err != nil {
				t.Error(err)
			}
			got[i] = p
			if _, err := is.Issue(cordon.Run{Tier: cordon.Tier(i % 4), Workspace: "/ws"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range got {
		if got[i] == nil || got[i] != got[0] {
			t.Fatalf("call %d got another policy", i)
		}
	}
}
