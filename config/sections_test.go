package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cordon-sandbox/cordon"
)

var noSecrets = cmp.Options{
	cmpopts.IgnoreFields(JudgeModel{}, "Key"), cmpopts.IgnoreFields(LLMUpstream{}, "Key"), cmpopts.IgnoreFields(GatewayServer{}, "Headers"),
}

const sectionsFile = `
phases: {judge: true}
judge:
  provider: OpenAI
  model: judge-7b
  base_url: http://127.0.0.1:8080/v1
  key_env: JUDGE_KEY
  input_usd: 0.15
  output_usd: 0
  timeout_seconds: 1
provenance: {deliver_tagged: yes, datamark: true, max_text_mb: 4}
proposals: {ttl_seconds: 60}
egress:
  ecosystems: [npm, Go, npm]
  prices: ~/prices.json
  llm:
    - {provider: anthropic, base_url: "https://api.example/anthropic", key_env: A_KEY}
    - provider: openai
      base_url: http://localhost:11434/v1
sandbox: {image: "debian:12-slim", rootfs: /srv/rootfs/}
gateway:
  listen: "[::1]:9000"
  allowed_hosts: [mcp.example]
  allowed_origins: ["https://app.example", "http://localhost:3000"]
  max_body_mb: 1
  max_header_kb: 8
  max_concurrent: 10
  max_sessions: 20
  timeout_seconds: 5
  servers:
    - name: files
      transport: stdio
      command: [npx, -y, "@x/files", /srv]
      env: {LANG: C}
      env_from: [GH_TOKEN]
    - name: plain
      transport: stdio
      command: /usr/bin/server
      sandbox: none
    - name: remote.1
      transport: http
      url: https://mcp.example/mcp?x=1
      headers_env: {Authorization: REMOTE_AUTH}
    - {name: old, transport: sse, url: "http://127.0.0.1:4000/sse"}
  tokens:
    - {token_env: TOKEN_ANN, tenant: acme, agent: bot, user: ann, tier: intern, profile: atom, workspace: /srv/ann, servers: [files], asks_its_user: true}
    - {sha256: "` + hashOfBob + `", tenant: acme, user: bob}
    - {token_env: TOKEN_NONE}
    - {token_env: TOKEN_SHORT}
`

const hashOfBob = "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789"

func sectionsWorld() world {
	return world{files: yamlFile(sectionsFile), env: map[string]string{
		"JUDGE_KEY": "s3cret-judge", "A_KEY": "s3cret-llm", "REMOTE_AUTH": "Bearer s3cret-remote",
		"TOKEN_ANN": "s3cret-token-of-ann", "TOKEN_SHORT": "short",
	}}
}

func TestAllSections(t *testing.T) {
	c := load(t, sectionsWorld())
	wantJudge := JudgeModel{Provider: "openai", Model: "judge-7b", BaseURL: "http://127.0.0.1:8080/v1", KeyEnv: "JUDGE_KEY", InputUSD: 0.15}
	if d := cmp.Diff(wantJudge, c.JudgeModel(), noSecrets); d != "" {
		t.Error(d)
	}
	if c.JudgeModel().Key.Reveal() != "s3cret-judge" || c.Judge().Timeout != time.Second {
		t.Error(c.Judge())
	}
	if p := c.Provenance(); p != (Provenance{true, true, 4 << 20}) || c.ProposalTTL() != time.Minute {
		t.Errorf("%+v %s", p, c.ProposalTTL())
	}
	wantEgress := Egress{Ecosystems: []string{"npm", "go"}, Prices: "/home/kim/prices.json", LLM: []LLMUpstream{
		{Provider: "anthropic", BaseURL: "https://api.example/anthropic", KeyEnv: "A_KEY"}, {Provider: "openai", BaseURL: "http://localhost:11434/v1"},
	}}
	if d := cmp.Diff(wantEgress, c.Egress(), noSecrets); d != "" {
		t.Error(d)
	}
	if l := c.Egress().LLM; l[0].Key.Reveal() != "s3cret-llm" || l[1].Key.Reveal() != "" {
		t.Error("keys of upstreams")
	}
	if s := c.Sandbox(); s != (Sandbox{"debian:12-slim", "/srv/rootfs"}) {
		t.Errorf("%+v", s)
	}
	if s := shown(t, c, "gateway.tokens"); s.Value != "4 set" || !strings.Contains(s.SourceDetail, ":") {
		t.Errorf("%+v", s)
	}
}

func TestTheGateway(t *testing.T) {
	c := load(t, sectionsWorld())
	sum := sha256.Sum256([]byte("s3cret-token-of-ann"))
	want := Gateway{
		Listen: "[::1]:9000", AllowedHosts: []string{"mcp.example"}, AllowedOrigins: []string{"https://app.example", "http://localhost:3000"},
		Limits: GatewayLimits{1 << 20, 8 << 10, 10, 20, 5 * time.Second},
		Servers: []GatewayServer{
			{Name: "files", Transport: "stdio", Command: []string{"npx", "-y", "@x/files", "/srv"}, Env: map[string]string{"LANG": "C"},
				EnvFrom: []string{"GH_TOKEN"}, Sandbox: "native"},
			{Name: "plain", Transport: "stdio", Command: []string{"/usr/bin/server"}, Sandbox: "none"},
			{Name: "remote.1", Transport: "http", URL: "https://mcp.example/mcp?x=1", HeadersEnv: map[string]string{"Authorization": "REMOTE_AUTH"}},
			{Name: "old", Transport: "sse", URL: "http://127.0.0.1:4000/sse"},
		},
		Tokens: []GatewayToken{
			{TokenEnv: "TOKEN_ANN", SHA256: hex.EncodeToString(sum[:]), Tenant: "acme", Agent: "bot", User: "ann", Tier: cordon.Intern,
				Profile: "atom", Workspace: "/srv/ann", Servers: []string{"files"}, AsksItsUser: true},
			{SHA256: strings.ToLower(hashOfBob), Tenant: "acme", User: "bob"},
			{TokenEnv: "TOKEN_NONE"}, {TokenEnv: "TOKEN_SHORT"},
		},
	}
	got := c.Gateway()
	if d := cmp.Diff(want, got, noSecrets); d != "" {
		t.Error(d)
	}
	if got.Servers[2].Headers["Authorization"].Reveal() != "Bearer s3cret-remote" {
		t.Error("the header's value was lost")
	}
	notes := strings.Join(c.Notes(), "\n")
	for _, want := range []string{"gateway.tokens[2]: TOKEN_NONE", "gateway.tokens[3]: TOKEN_SHORT"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
	if all := fmt.Sprintf("%v %+v %#v", got, c, c.Settings()); strings.Contains(all, "s3cret") {
		t.Error("a secret is printed")
	}
}

func TestSectionsThatAreNotSet(t *testing.T) {
	for name, c := range map[string]*Config{"Documented": Documented(), "Doors": Doors(), "Load": load(t, world{})} {
		if m := c.JudgeModel(); m.Provider != "" || c.ProposalTTL() != 15*time.Minute || c.Provenance() != (Provenance{MaxText: 16 << 20}) {
			t.Errorf("%s: %+v %s %+v", name, m, c.ProposalTTL(), c.Provenance())
		}
		g := c.Gateway()
		if g.Listen != "127.0.0.1:7788" || len(g.Tokens)+len(g.Servers) != 0 || g.Limits.BodyBytes <= 0 || g.Limits.HeaderBytes <= 0 ||
			g.Limits.Concurrent <= 0 || g.Limits.Sessions <= 0 || g.Limits.Timeout <= 0 {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func badSections() []badFile {
	gateway := func(s string) string { return "gateway:\n  " + s }
	server := func(s string) string { return gateway("servers:\n  - " + s) }
	token := func(s string) string { return gateway("tokens:\n  - " + s) }
	const hash = `"` + hashOfBob + `"`
	return []badFile{
		{"an unknown provider", "judge:\n  provider: llama\n", `:2: judge.provider "llama" (want one of anthropic`},
		{"a judge without a model", "judge:\n  provider: gemini\n", `:2: judge.provider "gemini" (want judge.model`},
		{"a command judge without a command", "judge: {provider: command}", `:1: judge.provider "command" (want judge.command`},
		{"a command at a relative path", "judge: {command: [./judge]}", `:1: judge.command "./judge"`},
		{"a command of nothing", "judge: {command: []}", `:1: judge.command ""`},
		{"a key in the place of its variable", "judge: {key_env: sk-s3cret}", ":1: judge.key_env value (want the name"},
		{"a key sent in clear", "judge:\n  provider: openai\n  model: m\n  key_env: K\n  base_url: http://judge.example/v1", ":5: judge.base_url"},
		{"a base URL with a password", "judge: {base_url: \"https://u:s3cret@h/\"}", "without a user"},
		{"a base URL without a host", "judge: {base_url: \"https:///v1\"}", ":1: judge.base_url"},
		{"a base URL of another kind", "judge: {base_url: \"file:///etc\"}", ":1: judge.base_url"},
		{"a negative price", "judge: {input_usd: -1}", ":1: judge.input_usd"},
		{"a price without digits", "judge: {input_usd: .}", ":1: judge.input_usd"},
		{"a text without end", "provenance: {max_text_mb: 100000}", ":1: provenance.max_text_mb"},
		{"proposals that never expire", "proposals: {ttl_seconds: 99999999}", ":1: proposals.ttl_seconds"},
		{"proposals that expire at once", "proposals: {ttl_seconds: 0.1}", ":1: proposals.ttl_seconds"},
		{"an unknown ecosystem", "egress: {ecosystems: [npm, cobol]}", `:1: egress.ecosystems "cobol"`},
		{"relative prices", "egress: {prices: p.json}", ":1: egress.prices"},
		{"an upstream without a URL", "egress:\n  llm:\n  - provider: openai\n", `:3: egress.llm[0] "openai"`},
		{"an upstream twice", "egress: {llm: [{provider: openai, base_url: \"https://a\"}, {provider: openai, base_url: \"https://b\"}]}", "egress.llm[1].provider"},
		{"an upstream's key sent in clear", "egress: {llm: [{provider: openai, base_url: \"http://a.example\", key_env: K}]}", "egress.llm[0].base_url"},
		{"an upstream's unknown key", "egress: {llm: [{provider: openai, key: K}]}", `unknown key "egress.llm[0].key"`},
		{"upstreams that are no list", "egress: {llm: {provider: openai}}", ":1: egress.llm"},
		{"an image with a line break", "sandbox: {image: \"a\\nb\"}", ":1: sandbox.image"},
		{"a relative root file system", "sandbox: {rootfs: root}", ":1: sandbox.rootfs"},
		{"an unknown key of the gateway", gateway("port: 1"), `:2: unknown key "gateway.port"`},
		{"a port alone", gateway(`listen: ":80"`), ":2: gateway.listen"},
		{"a port that is none", gateway("listen: localhost:http"), ":2: gateway.listen"},
		{"an origin with a path", gateway(`allowed_origins: ["https://a.example/x"]`), ":2: gateway.allowed_origins"},
		{"every origin", gateway(`allowed_origins: ["*"]`), ":2: gateway.allowed_origins"},
		{"no limit", gateway("max_body_mb: 0"), ":2: gateway.max_body_mb"},
		{"a server without a name", server("{transport: stdio, command: x}"), ":3: gateway.servers[0]"},
		{"a server's name that is a path", server("{name: ../x, transport: stdio, command: x}"), `:3: gateway.servers[0].name "../x"`},
		{"a server without a transport", server("{name: x, command: x}"), "a name and a transport"},
		{"a server of stdio without a command", server("{name: x, transport: stdio}"), "a command with transport stdio"},
		{"a server of stdio with a URL", server("{name: x, transport: stdio, command: x, url: \"https://a\"}"), "neither url"},
		{"a server of http without a URL", server("{name: x, transport: http}"), "a url with transport http"},
		{"a server of http with walls that it cannot have", server("{name: x, transport: http, url: \"https://a\", sandbox: native}"), "no command, env"},
		{"a server's name twice", gateway("servers: [{name: x, transport: stdio, command: x}, {name: X, transport: stdio, command: y}]"), "each name once"},
		{"a header of the connection", server("{name: x, transport: http, url: \"https://a\", headers_env: {Host: H}}"), `"Host"`},
		{"a header's value in the place of its variable", server("{name: x, transport: http, url: \"https://a\", headers_env: {X: Bearer s3cret}}"), "the name of an environment variable"},
		{"a header sent in clear", server("{name: x, transport: http, url: \"http://a.example\", headers_env: {X: V}}"), "an https url"},
		{"a server's unknown sandbox", server("{name: x, transport: stdio, command: x, sandbox: strong}"), "gateway.servers[0].sandbox"},
		{"a variable that is none", server("{name: x, transport: stdio, command: x, env: {\"A=B\": c}}"), "gateway.servers[0].env"},
		{"a token in the place of its variable", token("{token_env: s3cret-token}"), ":3: gateway.tokens[0].token_env value"},
		{"a token in the place of its hash", token("{sha256: s3cret-token}"), ":3: gateway.tokens[0].sha256 value"},
		{"a server of a token that is no name", token("{token_env: A, servers: [a/b]}"), "gateway.tokens[0].servers"},
		{"a word where yes or no belongs", token("{token_env: A, asks_its_user: perhaps}"), "gateway.tokens[0].asks_its_user"},
		{"a token that nothing names", token("{tenant: acme}"), "either token_env or sha256"},
		{"a token that two things name", token("{token_env: A, sha256: " + hash + "}"), "either token_env or sha256"},
		{"a token twice", token("{sha256: " + hash + "}\n  - {sha256: " + strings.ToLower(hash) + "}"), ":4: gateway.tokens[1]"},
		{"a token's unknown tier", token("{sha256: " + hash + ", tier: root}"), "gateway.tokens[0].tier"},
		{"a token's relative workspace", token("{sha256: " + hash + ", workspace: x}"), "gateway.tokens[0].workspace"},
		{"a token's unknown key", token("{sha256: " + hash + ", mode: off}"), `unknown key "gateway.tokens[0].mode"`},
	}
}

func TestBadSectionsAreErrorsWithTheLine(t *testing.T) {
	tests := badSections()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load(world{files: yamlFile(tt.text)}.input())
			if err == nil {
				t.Fatalf("accepted: %+v", c.Settings())
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "config: "+userFile+":") {
				t.Errorf("error %v\nlacks %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a secret is in %v", err)
			}
		})
	}
}

func TestTwoVariablesWithOneTokenAreAnError(t *testing.T) {
	w := world{files: yamlFile("gateway: {tokens: [{token_env: A, tier: student}, {token_env: B, tier: autonomous}]}"),
		env: map[string]string{"A": "the-same-long-token", "B": "the-same-long-token"}}
	if _, err := Load(w.input()); err == nil || !strings.Contains(err.Error(), "each token once") || strings.Contains(err.Error(), "same-long") {
		t.Error(err)
	}
}

func TestSectionsAreCopies(t *testing.T) {
	c := load(t, sectionsWorld())
	before := fmt.Sprint(c.Gateway(), c.Egress(), c.JudgeModel())
	g, e := c.Gateway(), c.Egress()
	g.AllowedHosts[0], g.AllowedOrigins[0], g.Tokens[0].Tier, g.Servers[0].Command[0] = "*", "*", cordon.Autonomous, "evil"
	g.Servers[0].Env["LANG"], g.Servers[0].EnvFrom[0], g.Servers[2].HeadersEnv["Authorization"] = "x", "x", "x"
	delete(g.Servers[2].Headers, "Authorization")
	e.Ecosystems[0], e.LLM[0].BaseURL = "x", "x"
	if after := fmt.Sprint(c.Gateway(), c.Egress(), c.JudgeModel()); after != before {
		t.Errorf("before %s\nafter %s", before, after)
	}
}
