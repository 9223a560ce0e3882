package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
)

// asked sends a request and gives the server's result to it.
func asked(j *Judge, request, result string) string {
	j.Client(context.Background(), []byte(request))
	return string(j.Server(context.Background(), []byte(`{"jsonrpc":"2.0","id":1,"result":`+result+`}`)).Forward)
}

func TestWhatEntersTheContextIsRecorded(t *testing.T) {
	read := []cordon.Effect{{Kind: cordon.Read, Target: "notes/a.md"}}
	for name, c := range map[string]struct {
		request, result string
		effects         []cordon.Effect
		want            []string
	}{
		"a tool's texts": {callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"one"},{"type":"image","data":"AA"},{"type":"text","text":"t\u0077o"}]}`, nil,
			[]string{"TOOL_OUTPUT files/look one", "TOOL_OUTPUT files/look ", "TOOL_OUTPUT files/look two"}},
		"a link": {callLine("1", "look", "{}"), `{"content":[{"type":"resource_link","uri":"demo://x","name":"call me"}]}`, nil,
			[]string{`TOOL_OUTPUT demo://x {"type":"resource_link","uri":"demo://x","name":"call me"}`}},
		"content of a kind to come": {callLine("1", "look", "{}"), `{"content":[{"type":"note","value":"call me"}]}`, nil,
			[]string{`TOOL_OUTPUT files/look {"type":"note","value":"call me"}`}},
		"a result of the first revision": {callLine("1", "look", "{}"), `{"toolResult":"call me"}`, nil, []string{`TOOL_OUTPUT files/look "call me"`}},
		"a structured result":            {callLine("1", "look", "{}"), `{"content":[],"structuredContent":{"a":"b"}}`, nil, []string{`TOOL_OUTPUT files/look {"a":"b"}`}},
		"an embedded resource": {callLine("1", "look", "{}"), `{"content":[{"type":"resource","resource":{"uri":"demo://x","text":"embedded"}}]}`, nil,
			[]string{"TOOL_OUTPUT demo://x embedded"}},
		"a tool's error":           {callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"no"}],"isError":true}`, nil, []string{"TOOL_OUTPUT files/look no"}},
		"a call that reads a file": {callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"text"}]}`, read, []string{"FILE notes/a.md text"}},
		"one that also runs something": {callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"text"}]}`, append(read, cordon.Effect{Kind: cordon.Execute, Target: "x"}),
			[]string{"TOOL_OUTPUT files/look text"}},
		"a resource": {`{"id":1,"method":"resources/read","params":{"uri":"demo://a"}}`, `{"contents":[{"uri":"demo://a","text":"content"},{"uri":"demo://b","blob":"AA"}]}`, nil,
			[]string{"RETRIEVED demo://a content", `RETRIEVED demo://b {"uri":"demo://b","blob":"AA"}`}},
		"a prompt": {`{"id":1,"method":"prompts/get","params":{"name":"p"}}`, `{"messages":[{"role":"user","content":{"type":"text","text":"do"}}]}`, nil,
			[]string{"RETRIEVED files/p do"}},
		"a server's instructions": {`{"id":1,"method":"initialize","params":{}}`, `{"protocolVersion":"2025-11-25","capabilities":{},"instructions":"use me well"}`, nil,
			[]string{"RETRIEVED files use me well"}},
		"a list of tools":      {`{"id":1,"method":"tools/list"}`, `{"tools":[]}`, nil, nil},
		"an empty result":      {callLine("1", "look", "{}"), `{}`, nil, nil},
		"texts that are none":  {callLine("1", "look", "{}"), `{"content":[{"type":"text","text":7},3,null]}`, nil, []string{`TOOL_OUTPUT files/look {"type":"text","text":7}`}},
		"a result that is not": {callLine("1", "look", "{}"), `"text"`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []cordon.Mode{cordon.Enforce, cordon.Shadow} {
				g := &fakeGuard{effects: c.effects, mode: mode}
				j, err := NewJudge(Config{Guard: g, Mode: mode, Run: cordon.Run{ID: "run-1"}, Server: "files"})
				if err != nil {
					t.Fatal(err)
				}
				if got := asked(j, c.request, c.result); !strings.Contains(got, c.result) {
					t.Errorf("changed: %s", got)
				}
				var got []string
				for _, k := range g.recorded {
					got = append(got, fmt.Sprintf("%s %s %s", k.Type, k.Source, k.Text))
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%v: %s", mode, diff)
				}
			}
		})
	}
}

func TestWhatAnErrorSaysIsRecorded(t *testing.T) {
	for _, mode := range []cordon.Mode{cordon.Enforce, cordon.Shadow} {
		g := &fakeGuard{mode: mode}
		j, err := NewJudge(Config{Guard: g, Mode: mode, Run: cordon.Run{ID: "run-1"}, Server: "files"})
		if err != nil {
			t.Fatal(err)
		}
		const answer = `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"send it to x"}}`
		j.Client(t.Context(), []byte(callLine("1", "look", "{}")))
		if got := string(j.Server(t.Context(), []byte(answer)).Forward); got != answer {
			t.Errorf("%v: changed: %s", mode, got)
		}
		if len(g.recorded) != 1 || !strings.Contains(g.recorded[0].Text, "send it to x") {
			t.Errorf("%v: recorded %+v", mode, g.recorded)
		}
	}
}

func TestWhatCannotBeRecordedIsNotDelivered(t *testing.T) {
	for _, mode := range []cordon.Mode{cordon.Enforce, cordon.Shadow} {
		g := &fakeGuard{unrecorded: errors.New("disk full"), mode: mode}
		j, err := NewJudge(Config{Guard: g, Mode: mode, Run: cordon.Run{ID: "run-1"}, Server: "files"})
		if err != nil {
			t.Fatal(err)
		}
		got := asked(j, callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"secret words"}]}`)
		if passed := strings.Contains(got, "secret words"); passed != (mode == cordon.Shadow) {
			t.Errorf("%v: %s", mode, got)
		}
	}
}

func TestTextIsDeliveredTagged(t *testing.T) {
	render := func(c cordon.Chunk) string { return "[" + c.ID + "|" + string(c.Type) + "]" + c.Text + "[/]" }
	for _, mode := range []cordon.Mode{cordon.Enforce, cordon.Shadow} {
		j, err := NewJudge(Config{Guard: &fakeGuard{mode: mode}, Mode: mode, Run: cordon.Run{ID: "run-1"}, Server: "files", MaxResult: 4096, DeliverTagged: render})
		if err != nil {
			t.Fatal(err)
		}
		const result = `{"content":[{"type":"text","text":"a \"b\"","x":1},{"type":"image","data":"AA"},{"type":"text","text":"c"}],"structuredContent":{"k":"v"},"y":2}`
		want := `{"content":[{"type":"text","text":"[c1|TOOL_OUTPUT]a \"b\"[/]","x":1},{"type":"image","data":"AA"},{"type":"text","text":"[c3|TOOL_OUTPUT]c[/]"}],"structuredContent":{"k":"v"},"y":2}`
		if mode == cordon.Shadow {
			want = result
		}
		if got := asked(j, callLine("1", "look", "{}"), result); got != `{"jsonrpc":"2.0","id":1,"result":`+want+`}` {
			t.Errorf("%v: %s", mode, got)
		}
	}
	t.Run("also when it was cut", func(t *testing.T) {
		j, err := NewJudge(Config{Guard: &fakeGuard{}, Run: cordon.Run{ID: "run-1"}, Server: "files", MaxResult: 500, DeliverTagged: render})
		if err != nil {
			t.Fatal(err)
		}
		got := asked(j, callLine("1", "look", "{}"), `{"content":[{"type":"text","text":"`+strings.Repeat("long ", 400)+`"}]}`)
		if !json.Valid([]byte(got)) || !strings.Contains(got, "[c1|TOOL_OUTPUT]long") || !strings.Contains(got, "result cut") || len(got) > 800 {
			t.Errorf("%s", got)
		}
	})
	t.Run("and in a batch", func(t *testing.T) {
		j, err := NewJudge(Config{Guard: &fakeGuard{}, Run: cordon.Run{ID: "run-1"}, Server: "files", DeliverTagged: render})
		if err != nil {
			t.Fatal(err)
		}
		j.Client(context.Background(), []byte(callLine("1", "look", "{}")))
		v := j.Server(context.Background(), []byte(`[{"method":"n"},{"id":1,"result":{"content":[{"type":"text","text":"x"}]}}]`))
		if string(v.Forward) != `[{"method":"n"},{"id":1,"result":{"content":[{"type":"text","text":"[c1|TOOL_OUTPUT]x[/]"}]}}]` {
			t.Errorf("%s", v.Forward)
		}
	})
}

func TestEditLeavesEveryOtherByte(t *testing.T) {
	for _, c := range []struct {
		msg, value string
		path       []string
		want       string
	}{
		{`{"a":1}`, `2`, []string{"a"}, `{"a":2}`},
		{`{"a":1}`, `2`, []string{"b"}, `{"a":1,"b":2}`},
		{`{ }`, `2`, []string{"b"}, `{"b":2 }`},
		{`{"a": {"x":1 } , "c":3}`, `2`, []string{"a", "y"}, `{"a": {"x":1,"y":2 } , "c":3}`},
		{`{"a":{}}`, `2`, []string{"a", "b", "c"}, `{"a":{"b":{"c":2}}}`},
		{`{"a":1,"b":2,"c":3}`, ``, []string{"a"}, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, ``, []string{"b"}, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, ``, []string{"c"}, `{"a":1,"b":2}`},
		{` {"a" : 1 } `, ``, []string{"a"}, ` { } `},
		{`{"a":1}`, ``, []string{"x"}, `{"a":1}`},
		{`{"a":1}`, `2`, []string{"a", "b"}, `{"a":1}`},
		{`{"\u0061":1}`, `2`, []string{"a"}, `{"\u0061":2}`},
		{`[1]`, `2`, []string{"a"}, `[1]`},
	} {
		var value []byte
		if c.value != "" {
			value = []byte(c.value)
		}
		before := c.msg
		if got := string(Edit([]byte(c.msg), value, c.path...)); got != c.want || before != c.msg {
			t.Errorf("%s %s=%s: %s, want %s", c.msg, strings.Join(c.path, "."), c.value, got, c.want)
		}
	}
}

func FuzzEdit(f *testing.F) {
	f.Add(`{"a":{"b":1},"c":[]}`, "a", "b", true)
	f.Add(` { "x" : null } `, "x", "y", false)
	f.Fuzz(func(t *testing.T, msg, a, b string, remove bool) {
		if !json.Valid([]byte(msg)) {
			return
		}
		var value []byte
		if !remove {
			value = []byte(`{"v":1}`)
		}
		for _, path := range [][]string{{a}, {a, b}} {
			out := Edit([]byte(msg), value, path...)
			if !json.Valid(out) {
				t.Fatalf("%q at %q is %q", msg, path, out)
			}
			if got := Member(out, path...); !remove && got != nil && string(got) != `{"v":1}` && Member([]byte(msg), path...) == nil {
				t.Fatalf("%q at %q is %q", msg, path, out)
			}
		}
	})
}
