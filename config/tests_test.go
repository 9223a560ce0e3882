package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

const testsFile = `
tests:
  - name: a read within the workspace
    tool: Read
    args: {file_path: "{workspace}/a.txt"}
    want: allowed
  - {name: a key, tool: Read, server: files, args: {paths: [~/.ssh/id_rsa, "<a&b>"], limit: 0x10, ratio: 1.50, deep: {x: ~, y: true, z: 2026-01-02}},
     tenant: acme, tier: Intern, profile: atom, want: Blocked, rule: cred.ssh_key}
  - {name: without arguments, tool: ListFiles, want: restricted}
`

func TestInlineTestsOfTheFile(t *testing.T) {
	tier := cordon.Intern
	want := []Test{
		{Name: "a read within the workspace", Tool: "Read", Args: json.RawMessage(`{"file_path":"{workspace}/a.txt"}`), Want: cordon.Allowed, Line: 3},
		{Name: "a key", Tool: "Read", Server: "files",
			Args:   json.RawMessage(`{"paths":["~/.ssh/id_rsa","<a&b>"],"limit":16,"ratio":1.50,"deep":{"x":null,"y":true,"z":"2026-01-02"}}`),
			Tenant: "acme", Tier: &tier, Profile: "atom", Want: cordon.Blocked, Rule: "cred.ssh_key", Line: 7},
		{Name: "without arguments", Tool: "ListFiles", Args: json.RawMessage(`{}`), Want: cordon.Restricted, Line: 9},
	}
	c := load(t, world{files: yamlFile(testsFile)})
	if d := cmp.Diff(want, c.Tests()); d != "" {
		t.Error(d)
	}
	got := c.Tests()
	got[0].Name, got[0].Args[0], *got[1].Tier = "x", 'x', cordon.Autonomous
	if d := cmp.Diff(want, c.Tests()); d != "" {
		t.Errorf("they are not copies: %s", d)
	}
	if s := shown(t, c, "tests"); s.Value != "3 set" {
		t.Errorf("%+v", s)
	}
}

func badTests() []badFile {
	test := func(s string) string { return "tests:\n  - {name: n, tool: t, want: blocked, " + s + "}\n" }
	return []badFile{
		{"tests that are no list", "tests: {name: x}\n", ":1: tests"},
		{"a test that is a text", "tests: [x]\n", ":1: tests[0]"},
		{"a test without a name", "tests: [{tool: t, want: allowed}]\n", "a name, a tool and a want"},
		{"a test without a tool", "tests: [{name: n, want: allowed}]\n", "a name, a tool and a want"},
		{"a test that wants nothing", "tests: [{name: n, tool: t}]\n", "a name, a tool and a want"},
		{"a test that wants something else", "tests: [{name: n, tool: t, want: killed}]\n", `tests[0].want "killed" (want one of allowed, restricted, blocked)`},
		{"a test's unknown key", test("mode: off"), `unknown key "tests[0].mode"`},
		{"a test's unknown tier", test("tier: root"), ":2: tests[0].tier"},
		{"a test's unknown profile", test("profile: x"), ":2: tests[0].profile"},
		{"a test's name twice", "tests:\n  - {name: n, tool: t, want: blocked}\n  - {name: n, tool: u, want: blocked}\n", ":3: tests[1]"},
		{"a rule that allows", "tests: [{name: n, tool: t, want: allowed, rule: x}]\n", "no rule with want allowed"},
		{"a test's arguments in a list", test("args: [x]"), ":2: tests[0].args"},
		{"an alias in a test's arguments", test("args: {a: &x 1, b: *x}"), `tests[0].args "*x"`},
		{"a key twice in a test's arguments", test("args: {a: 1, a: 2}"), `tests[0].args "a"`},
		{"no number in a test's arguments", test("args: {a: .nan}"), `tests[0].args ".nan"`},
		{"a binary text in a test's arguments", test("args: {a: !!binary aGk=}"), `tests[0].args "aGk="`},
	}
}

func TestBadInlineTestsAreErrorsWithTheLine(t *testing.T) {
	for _, tt := range badTests() {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load(world{files: yamlFile(tt.text)}.input())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, %v; want %s", c, err, tt.want)
			}
		})
	}
}

func TestArgumentsThatAreNestedWithoutEndAreRefused(t *testing.T) {
	deep := "tests: [{name: n, tool: t, want: blocked, args: {a: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}}]\n"
	if _, err := Load(world{files: yamlFile(deep)}.input()); err == nil {
		t.Error("taken")
	}
}
