package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
)

func TestReadCall(t *testing.T) {
	base := cordon.Run{Tier: cordon.Supervised, Workspace: "/w", Home: "/h"}
	r := ReadCall([]byte(`{"id":7,"run_id":"r1","tier":"intern","server":"fs","tool":"read","args":{"b":1,"a":"x"},"session":"s","cwd":"/w/src","new":[]}`), base)
	want := Request{
		Call: cordon.Call{
			ID: "7", Server: "fs", Tool: "read", Dir: "/w/src", Args: json.RawMessage(`{"a":"x","b":1}`),
			Run: cordon.Run{ID: "r1", Session: "s", Tier: cordon.Intern, Workspace: "/w", Home: "/h"},
		},
		RawID: json.RawMessage("7"), Shared: true,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if r := ReadCall([]byte(`{"tool":"t","tier":"root"}`), base); r.Call.Run.Tier != cordon.Student {
		t.Errorf("an unknown tier became %v", r.Call.Run.Tier)
	}
	if r := ReadCall([]byte(`{"tool":"t"}`), base); r.Call.Run.Tier != cordon.Supervised || r.Shared || r.Call.Malformed != "" {
		t.Errorf("the base was not taken: %+v", r)
	}
}

func TestW11ALineThatNamesNoneStaysInItsRunAndSession(t *testing.T) {
	base := cordon.Run{ID: "r", Session: "s", Tenant: "t", Workspace: "/w", Home: "/h", Profile: "coding", Tier: cordon.Supervised}
	for name, value := range map[string]string{"empty": `""`, "null": `null`} {
		r := ReadCall([]byte(`{"tool":"x","run_id":`+value+`,"session":`+value+`,"tenant":`+value+`,"workspace":`+value+`,"home":`+value+`,"profile":`+value+`}`), base)
		if diff := cmp.Diff(base, r.Call.Run); diff != "" || !r.Shared || r.Call.Malformed != "" {
			t.Errorf("%s: shared %v, %q: %s", name, r.Shared, r.Call.Malformed, diff)
		}
	}
	if r := ReadCall([]byte(`{"tool":""}`), base); r.Call.Malformed == "" {
		t.Error("a tool without a name is a call")
	}
}

func TestReadCallMalformed(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"no JSON", `rm -rf /`, "not one JSON object"},
		{"a list", `[]`, "want an object"},
		{"no tool", `{"args":{}}`, `names no "tool"`},
		{"a tool that is a number", `{"tool":1}`, `"tool" is a JSON number`},
		{"a tier that is a list", `{"tool":"t","tier":["autonomous"]}`, `"tier" is a JSON array`},
		{"two tools", `{"tool":"a","tool":"b"}`, "duplicate key"},
		{"two spellings of tool", `{"tool":"a","Tool":"b"}`, "differ in case"},
		{"an id that is an object", `{"id":{},"tool":"t"}`, `"id" is a JSON object`},
		{"invalid UTF-8", "{\"tool\":\"\xff\"}", "invalid UTF-8"},
	} {
		if r := ReadCall([]byte(c.line), cordon.Run{}); !strings.Contains(r.Call.Malformed, c.want) {
			t.Errorf("%s: malformed = %q, want it to say %q", c.name, r.Call.Malformed, c.want)
		}
	}
}

func TestReadCallSalvagesWhoTheCallWas(t *testing.T) {
	r := ReadCall([]byte(`{"id":5,"tool":"Read","args":{"a":1,"A":2}}`), cordon.Run{})
	if string(r.RawID) != "5" || r.Call.Tool != "Read" || r.Call.Args != nil || r.Call.Malformed == "" {
		t.Errorf("%+v", r)
	}
	if r := ReadCall([]byte(`{"id":{"x":1,"x":2},"tool":["Read"]}`), cordon.Run{}); r.RawID != nil || r.Call.Tool != "" || r.Call.Malformed == "" {
		t.Errorf("%+v", r)
	}
}

func TestAppendDecision(t *testing.T) {
	d := cordon.Decision{
		Outcome: cordon.Restricted, Mode: cordon.Shadow, WouldKill: true, RunID: "r", PolicyID: "p", ArgsHash: "h",
		Findings: []cordon.Finding{{
			Phase: cordon.PhaseFS, Violation: cordon.FSPath, Rule: "fs.x", Outcome: cordon.Restricted,
			Detail: "a \"quoted\"\nline \xff", Arg: "/path", Via: []string{"sh -c"},
		}},
		RewrittenArgs: json.RawMessage(`{"path":"/tmp"}`),
	}
	want := `{"id":"1","decision":"restricted","enforced":false,"mode":"shadow","killrun_triggered":false,"would_kill":true,"run_id":"r","policy_id":"p","args_hash":"h","findings":[{"phase":"B","violation_type":"fs_path","rule":"fs.x","decision":"restricted","detail":"a \"quoted\"\nline ` + "\uFFFD" + `","arg":"/path","via":["sh -c"]}],"rewritten_args":{"path":"/tmp"}}`
	if got := string(AppendDecision(nil, json.RawMessage(`"1"`), &d)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzReadCall(f *testing.F) {
	f.Add([]byte(`{"id":1,"tool":"Bash","args":{"command":"ls"}}`))
	f.Add([]byte(`{"tool":"a","tier":null,"args":[]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r := ReadCall(line, cordon.Run{})
		if r.Call.Malformed == "" && r.Call.Tool == "" {
			t.Errorf("%q was read as a call without a tool", line)
		}
		d := cordon.Decision{CallID: r.Call.ID}
		if out := AppendDecision(nil, r.RawID, &d); !json.Valid(out) {
			t.Errorf("decision %s is not JSON", out)
		}
	})
}

func TestReadCallTakesSamplesAndTheMatch(t *testing.T) {
	r := ReadCall([]byte(`{"tool":"t","samples":[{"tool":"t","args":{"b":1,"a":2}},{"server":"s","tool":"u"},7,{"tool":3},{"tool":"t","server":4}],"match":{"matches":2,"text_only":true,"found_ms":12.5,"more":0}}`), cordon.Run{})
	want := []cordon.Plan{{Tool: "t", Args: json.RawMessage(`{"a":2,"b":1}`)}, {Server: "s", Tool: "u"}, {}, {}, {Server: ""}}
	if diff := cmp.Diff(want, r.Call.Samples); diff != "" || r.Call.Malformed != "" {
		t.Error(r.Call.Malformed, diff)
	}
	if diff := cmp.Diff(&cordon.Match{Matches: 2, TextOnly: true, Found: 12 * time.Millisecond}, r.Call.Match); diff != "" {
		t.Error(diff)
	}
	if r := ReadCall([]byte(`{"tool":"t","samples":null,"match":null}`), cordon.Run{}); r.Call.Samples != nil || r.Call.Match != nil {
		t.Errorf("null is %v, %v", r.Call.Samples, r.Call.Match)
	}
	if r := ReadCall([]byte(`{"tool":"t","samples":[],"match":{}}`), cordon.Run{}); r.Call.Samples == nil || r.Call.Match == nil {
		t.Error("an empty list, or an empty match, is taken for none")
	}
	for _, line := range []string{`"samples":{}`, `"samples":5`, `"match":[]`, `"match":{"matches":"1"}`, `"match":{"matches":-1}`, `"match":{"matches":1e300}`, `"match":{"matches":1,"text_only":1}`, `"match":{"matches":1,"found_ms":-5}`} {
		if r := ReadCall([]byte(`{"tool":"t",`+line+`}`), cordon.Run{}); r.Call.Malformed == "" {
			t.Errorf("%s is taken", line)
		}
	}
}
