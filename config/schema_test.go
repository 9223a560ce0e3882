package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

func resolved(t testing.TB) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema(nil)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// asJSON is a file as an editor's validator sees it.
func asJSON(text string) (any, error) {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	return out, json.Unmarshal(b, &out)
}

func goodFiles() map[string]string {
	token := "gateway: {tokens: [{sha256: " + hashOfBob + ", "
	return map[string]string{
		"the whole file": wholeFile, "all sections": sectionsFile, "nothing": "", "a comment": "# c\n", "null": "~\n",
		"words in other cases":       "mode: Enforce\ntier: INTERN\nphases: {fs: Yes, egress: OFF}\n",
		"numbers in quotes":          "caps: {tool_calls: \"5\", cost_usd: \"0.5\", exec_seconds: \" 1e3 \"}\n",
		"switches as numbers":        "transactions: 1\npolicy_tenant_override: 0\nphases: {judge: \"1\"}",
		"the largest caps":           "caps: {tool_calls: 1000000000, bytes_written: 1125899906842624, cost_usd: 1000000000}\n",
		"the smallest caps":          "caps: {tool_calls: 1, exec_seconds: 0.000001, cost_usd: 1e-9}\n",
		"a list of one":              "read: /srv\nallow_hosts: example.com\negress: {ecosystems: npm}\n",
		"words in one text":          "egress: {ecosystems: [\"npm, GO\", apt]}\n",
		"empty lists":                "read: []\nallow_hosts: []\nallow_tools: []\ntests: []\ngateway: {servers: [], tokens: []}\n",
		"names that are numbers":     "allow_tools: [12, true]\ntenants: {\"7\": {tools: 5}}\n",
		"a path with odd signs":      "read: [\"/srv/a b/ü\", \"~\", \"~/\"]\nwrite: /...\n",
		"stores":                     "db: postgres://h/db?x=1\n",
		"a store in memory":          "db: \":memory:\"\n",
		"a free judge":               "judge: {input_usd: 0, output_usd: \"0.00\"}\n",
		"a judge of one's own":       "judge: {provider: command, command: /usr/bin/judge}\n",
		"a judge's arguments":        "judge: {provider: COMMAND, command: [judge, -n, 5, ./x, true]}\n",
		"a judge here with a key":    "judge: {provider: openai, model: m, key_env: K, base_url: \"http://[::1]:80/v1\"}\n",
		"ports":                      "gateway: {listen: \"0.0.0.0:65535\"}\n",
		"no headers over http":       "gateway: {servers: [{name: a, transport: HTTP, url: \"http://a.example\", headers_env: {}}]}\n",
		"no variables over http":     "gateway: {servers: [{name: a, transport: http, url: \"http://a.example:\", env_from: []}]}\n",
		"variables that are no text": "gateway: {servers: [{name: 5, transport: stdio, command: [s, 8080], env: {PORT: 80, DEBUG: true, EMPTY: \"\"}}]}\n",
		"a token's bearer":           token + "tenant: 5, agent: a b, tier: Autonomous, profile: ATOM, workspace: ~/w}]}\n",
		"tests":                      testsFile,
	}
}

// onlyLoad are files of the tables that a schema cannot refuse, with why.
func onlyLoad() map[string]string {
	return map[string]string{
		"a key that is given twice":           "no JSON",
		"two documents":                       "a validator sees them one by one",
		"no YAML":                             "no JSON",
		"an upstream twice":                   "two places at once",
		"a server's name twice":               "two places at once",
		"a token twice":                       "two places at once",
		"a test's name twice":                 "two places at once",
		"an alias in a test's arguments":      "a schema sees what it stands for",
		"a key twice in a test's arguments":   "no JSON",
		"no number in a test's arguments":     "no JSON",
		"a binary text in a test's arguments": "a schema sees what it stands for",
	}
}

func TestTheSchemaAcceptsWhatLoadAccepts(t *testing.T) {
	schema := resolved(t)
	for name, text := range goodFiles() {
		if _, err := Load(world{files: yamlFile(text)}.input()); err != nil {
			t.Errorf("%s: Load: %v", name, err)
		}
		v, err := asJSON(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
}

func TestTheSchemaRefusesWhatLoadRefuses(t *testing.T) {
	schema, except := resolved(t), onlyLoad()
	for _, bad := range append(append(badFiles(), badSections()...), append(badTests(), badValues()...)...) {
		if _, err := Load(world{files: yamlFile(bad.text)}.input()); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: Load: %v", bad.name, err)
		}
		v, err := asJSON(bad.text)
		if err == nil {
			err = schema.Validate(v)
		} else if except[bad.name] == "no JSON" {
			continue
		}
		if why, only := except[bad.name]; only != (err == nil) {
			t.Errorf("%s: the schema says %v (an exception: %q)\n%s", bad.name, err, why, bad.text)
		}
	}
}

// badValues has a value that each form does not have, at every setting.
func badValues() []badFile {
	wrong := map[kind][]string{
		yesNo: {"maybe", "2", "[true]"}, oneWord: {"colour", "5", "{}"}, wordsByComma: {"colour", "\"\"", "\"npm,\"", "{}"}, wholeNumber: {"0", "-1", "1.5", "many", "1e16", "true"},
		positive: {"0", "-1", "many", "1e300", "\"0.0\"", ".inf"}, priceOf: {"-1", "free", "1e9"},
		plainName: {"\"\"", "\"a\\nb\"", "{a: b}"}, absolute: {"x", "~root", "\"\"", "5"}, belowRoot: {"x", "/", "/..", "//"},
		storeName: {"x", "\"\"", "\"a\\u0001://b\""}, webURL: {"example.com", "ftp://a", "https://", "https://u@h/", "https://h/#x", "5"},
		webOrigin: {"example.com", "https://h/x", "https://*", "HTTPS://h"}, address: {"80", "\":80\"", "h:http", "h:65536", "h:080"},
		variable: {"1A", "A B", "\"\"", "A=B"}, program: {"\"\"", "[]", "./x", "[a/b, c]", "{}"},
		items: {"x", "{}", "[x]", "[{unknown: x}]"}, byName: {"x", "[x]", "{a: x}", "{\"\": {}}"},
	}
	var list []badFile
	for _, s := range table() {
		if s.noFile || s.form.kind == elsewhere {
			continue
		}
		values := append(wrong[s.form.kind], "null")
		for _, v := range values {
			text := s.name + ": " + v + "\n"
			if section, sub, nested := strings.Cut(s.name, "."); nested {
				text = section + ": {" + sub + ": " + v + "}\n"
			}
			list = append(list, badFile{s.name + " " + v, text, "config: "})
		}
		if len(values) == 1 {
			panic("no wrong value of the form of " + s.name)
		}
	}
	return list
}

func TestEverySettingOfTheFileIsDescribed(t *testing.T) {
	for _, s := range table() {
		section, _, nested := strings.Cut(s.name, ".")
		if about(s.name) == "" || nested && about(section) == "" {
			t.Errorf("%s: no description", s.name)
		}
		if s.noFile {
			continue
		}
		if s.form.kind == unsaid || s.form.wanted() == "" {
			t.Errorf("%s: no form", s.name)
		}
		if s.form.fields == nil {
			continue
		}
		for _, f := range s.form.fields() {
			if f.about == "" || f.form.wanted() == "" {
				t.Errorf("%s.%s: no description or form", s.name, f.name)
			}
		}
	}
}

func TestTheSchemaTakesTheToolsSchema(t *testing.T) {
	text, err := Schema(json.RawMessage(`{"type": "object", "required": ["names"]}`))
	if err != nil || !strings.Contains(string(text), `"names"`) {
		t.Errorf("%v", err)
	}
	if _, err := Schema(json.RawMessage(`{`)); err == nil {
		t.Error("no JSON was taken")
	}
}

// The schema must not refuse what Load takes, whatever it is.
func FuzzSchema(f *testing.F) {
	for _, text := range goodFiles() {
		f.Add(text)
	}
	for _, bad := range badValues() {
		f.Add(bad.text)
	}
	schema := resolved(f)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Load(world{files: yamlFile(text)}.input())
		// Patterns know the spaces of ASCII only, and refuse hosts that no name
		// service has ("http://]").
		if err != nil || strings.Contains(text, "://") || strings.ContainsFunc(text, func(r rune) bool { return r > 126 }) {
			return
		}
		v, err := asJSON(text)
		if err != nil {
			return
		}
		if err := schema.Validate(v); err != nil && c.Tools() == nil {
			t.Errorf("the schema refuses what Load takes: %v\n%s", err, text)
		}
	})
}

func TestSchemaIsStable(t *testing.T) {
	a, _ := Schema(nil)
	b, _ := Schema(nil)
	if string(a) != string(b) {
		t.Error("two schemas")
	}
}
