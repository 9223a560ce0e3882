package mcp

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
)

func callLine(id, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

func TestClientMessagesThatAreNoCallPassUntouched(t *testing.T) {
	for name, msg := range map[string]string{
		"an initialize":                            `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
		"a method nobody knows":                    `{"id":"a","jsonrpc":"2.0","method":"x/y","params":[1,2.50,1e400],"extra":{"k":null}}`,
		"a notification with odd spacing":          ` { "jsonrpc" : "2.0" , "method":"notifications/initialized" } ` + "\t",
		"a line that ends in a carriage return":    `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\r",
		"a reply to the server's sampling request": `{"jsonrpc":"2.0","id":7,"result":{"role":"assistant","content":{"type":"text","text":"tools/call"}}}`,
		"a reply that is an error":                 `{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}`,
		"a prompt":                                 `{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"p"}}`,
		"a completion":                             `{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{}}`,
		"an id beyond 2^53":                        `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}`,
		"an empty line":                            ``,
		"text that speaks of a call":               `{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"\"method\":\"tools/call\""}}`,
		"a batch of notifications":                 `[{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","method":"b"}]`,
		"a cancellation of nothing":                `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`,
		"a cancellation without params":            `{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		"an escaped slash in a method":             `{"jsonrpc":"2.0","id":3,"method":"tools\/list"}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			v := judgeOf(g).Client(context.Background(), []byte(msg))
			if string(v.Forward) != msg || v.Answer != nil {
				t.Fatalf("forwarded %q, answered %q", v.Forward, v.Answer)
			}
			if n := len(g.decided()); n != 0 {
				t.Fatalf("decided on %d calls", n)
			}
		})
	}
}

func TestAllowedCallsAreForwardedAsTheyWereJudged(t *testing.T) {
	for name, tc := range map[string]struct{ msg, id, tool, args string }{
		"a plain call":                         {callLine(`1`, "read", `{"path":"a"}`), "1", "read", `{"path":"a"}`},
		"an id that is a string":               {callLine(`"x\u0031"`, "read", `{}`), "x1", "read", `{}`},
		"spacing and escapes within arguments": {callLine(`1`, "read", "{ \"p\\u0061th\" :\t\"a\\/b\" , \"n\":1.0e+2 }"), "1", "read", "{ \"p\\u0061th\" :\t\"a\\/b\" , \"n\":1.0e+2 }"},
		"a number beyond 2^53":                 {callLine(`1`, "read", `{"n":12345678901234567890}`), "1", "read", `{"n":12345678901234567890}`},
		"no arguments":                         {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`, "1", "read", `{}`},
		"arguments that are null":              {callLine(`1`, "read", `null`), "1", "read", `{}`},
		"arguments that are a string of JSON":  {callLine(`1`, "read", `"{\"path\":\"/x\"}"`), "1", "read", `"{\"path\":\"/x\"}"`},
		"arguments that are an array":          {callLine(`1`, "read", `[{"path":"/x"}]`), "1", "read", `[{"path":"/x"}]`},
		"a method in unicode escapes":          {`{"id":1,"method":"t\u006fols\/call","params":{"name":"r\u0065ad","arguments":{"a":1}}}`, "1", "read", `{"a":1}`},
		"params before the method":             {`{"params":{"arguments":{"a":"}]\""},"name":"read"},"method":"tools/call","id":1}`, "1", "read", `{"a":"}]\""}`},
		"a task and metadata beside it":        {`{"id":1,"method":"tools/call","params":{"name":"read","arguments":{"a":1},"task":{"ttl":5},"_meta":{"progressToken":1},"requestState":"s"}}`, "1", "read", `{"a":1}`},
		"a call that wants no answer":          {`{"method":"tools/call","params":{"name":"read","arguments":{"a":1}}}`, "", "read", `{"a":1}`},
		"a key named arguments further down":   {callLine(`1`, "read", `{"params":{"arguments":{"b":2}},"arguments":3}`), "1", "read", `{"params":{"arguments":{"b":2}},"arguments":3}`},
		"reading a resource":                   {`{"id":1,"method":"resources/read","params":{"uri":"file:\/\/\/x"}}`, "1", "resources/read", `{"uri":"file:\/\/\/x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses("other")
			v := judgeOf(g).Client(context.Background(), []byte(tc.msg))
			if string(v.Forward) != tc.msg || v.Answer != nil {
				t.Fatalf("forwarded %q, answered %q", v.Forward, v.Answer)
			}
			want := []cordon.Call{{ID: tc.id, Run: cordon.Run{ID: "run-1"}, Server: "files", Tool: tc.tool, Args: []byte(tc.args)}}
			if diff := cmp.Diff(want, g.decided()); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestRefusedCallsAreAnsweredAndNotForwarded(t *testing.T) {
	g := refuses("steal")
	v := judgeOf(g).Client(context.Background(), []byte(callLine(`"k"`, "steal", `{"path":"/x"}`)))
	if v.Forward != nil {
		t.Fatalf("forwarded %q", v.Forward)
	}
	m := read(t, v.Answer)
	if string(m.ID) != `"k"` || m.Error != nil || m.Result == nil || !m.Result.IsError || len(m.Result.Content) != 1 {
		t.Fatalf("answer %s", v.Answer)
	}
	text := m.Result.Content[0].Text
	for _, want := range []string{`"steal"`, "out of bounds", "rule fs.test", "nothing of it ran"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

func TestARefusalSaysWhatWouldBeAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		d    cordon.Decision
		want string
	}{
		"arguments that would pass": {cordon.Decision{Outcome: cordon.Restricted, RewrittenArgs: []byte(`{"path":"/tmp/agent/r/x"}`)}, `the arguments {"path":"/tmp/agent/r/x"}`},
		"one value that would pass": {cordon.Decision{Outcome: cordon.Restricted, Findings: []cordon.Finding{{Arg: "/path", Rewrite: "/tmp/y", Outcome: cordon.Restricted}}}, `/path as "/tmp/y"`},
		"restricted with no way":    {cordon.Decision{Outcome: cordon.Restricted}, "inside the workspace"},
		"blocked":                   {cordon.Decision{}, "Do not send the same call again"},
		"the call that kills":       {cordon.Decision{Killed: true, RunID: "r7"}, "cordon kill --release r7"},
		"a call of a killed run":    {cordon.Decision{RunID: "r7", Findings: []cordon.Finding{{Violation: cordon.KilledRun, Detail: "run r6 was killed; an operator can release it: cordon kill --release r6 --why REASON"}}}, "cordon kill --release r6 --why REASON. No call will pass until then"},
	} {
		t.Run(name, func(t *testing.T) {
			text := refusal(&cordon.Call{Tool: "w"}, &tc.d)
			if !strings.Contains(text, tc.want) {
				t.Fatalf("%q is not in %q", tc.want, text)
			}
		})
	}
}

func TestARefusalIsBoundedAndValidWhateverTheDetails(t *testing.T) {
	d := cordon.Decision{}
	for i := range 500 {
		d.Findings = append(d.Findings, cordon.Finding{Detail: fmt.Sprint(i, strings.Repeat("x\xff\"\n", 5000)), Rule: "r"})
	}
	answer := toolAnswer([]byte("1"), refusal(&cordon.Call{Tool: strings.Repeat("\xff", 1<<20)}, &d))
	if len(answer) > 16<<10 {
		t.Fatalf("%d bytes", len(answer))
	}
	read(t, answer)
}

// malformedLines are lines that some reader could take for a call, or that
// are no message at all.
var malformedLines = map[string]struct {
	line string
	id   string // of the answer
}{
	"a duplicate method":                         {`{"id":1,"method":"ping","method":"tools/call","params":{"name":"x"}}`, "1"},
	"a duplicate name":                           {`{"id":1,"method":"tools/call","params":{"name":"ok","name":"x"}}`, "1"},
	"a duplicate key deep in arguments":          {callLine("1", "x", `{"a":{"b":1,"b":2}}`), "1"},
	"a method key in another case":               {`{"id":1,"Method":"tools/call","params":{"name":"x"}}`, "1"},
	"two method keys in two cases":               {`{"id":1,"method":"ping","METHOD":"tools/call","params":{"name":"x"}}`, "1"},
	"an id key in another case":                  {`{"ID":1,"method":"tools/call","params":{"name":"x"}}`, "1"},
	"a params key in another case":               {`{"id":1,"method":"tools/call","Params":{"name":"x"}}`, "1"},
	"a method key with a zero-width space":       {`{"id":1,"method\u200b":"tools/call","params":{"name":"x"}}`, "1"},
	"a method key with a NUL":                    {`{"id":1,"method\u0000":"tools/call","params":{"name":"x"}}`, "1"},
	"a method in another case":                   {`{"id":1,"method":"Tools/Call","params":{"name":"x"}}`, "1"},
	"a method with a NUL behind it":              {`{"id":1,"method":"tools/call\u0000","params":{"name":"x"}}`, "1"},
	"a method with a space before it":            {`{"id":1,"method":" tools/call","params":{"name":"x"}}`, "1"},
	"a method that is a list":                    {`{"id":1,"method":["tools/call"],"params":{"name":"x"}}`, "1"},
	"a method that is null":                      {`{"id":1,"method":null}`, "1"},
	"invalid UTF-8":                              {"{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"x\xff\"}}", "1"},
	"a lone surrogate":                           {`{"id":1,"method":"tools/call","params":{"name":"\ud800"}}`, "1"},
	"a raw NUL":                                  {"{\"id\":1,\"method\":\"tools/call\x00\"}", "null"},
	"a byte order mark":                          {"\ufeff" + callLine("1", "x", "{}"), "null"},
	"text behind the message":                    {callLine("1", "x", "{}") + callLine("2", "x", "{}"), "null"},
	"a line within the line":                     {`{"id":1,"method":"ping","params":{"a":[` + "\r" + callLine("2", "x", "{}") + "\r]}}", "1"},
	"a comment":                                  {`{"id":1,/**/"method":"tools/call","params":{"name":"x"}}`, "null"},
	"single quotes":                              {`{'id':1,'method':'tools/call'}`, "null"},
	"half a message":                             {`{"id":1,"method":"tools/call","params":{"name":`, "null"},
	"too deep":                                   {callLine("1", "x", strings.Repeat("[", 3000)+strings.Repeat("]", 3000)), "1"},
	"an id that is an object":                    {`{"id":{"a":1},"method":"tools/call","params":{"name":"x"}}`, "null"},
	"an id that is null":                         {`{"id":null,"method":"tools/call","params":{"name":"x"}}`, "null"},
	"an id that is very long":                    {`{"id":"` + strings.Repeat("a", 5000) + `","method":"tools/call","params":{"name":"x"}}`, "null"},
	"an empty batch":                             {`[]`, "null"},
	"a batch that is too long":                   {`[` + strings.Repeat(`{"method":"a"},`, 300) + `{"method":"a"}]`, "null"},
	"a number":                                   {`42`, "null"},
	"an object that is no message":               {`{"hello":"world"}`, "null"},
	"a reply with a duplicate key":               {`{"id":5,"result":{},"result":{}}`, "null"},
	"a reply with the key of a call in capitals": {`{"id":5,"result":{},"METHOD":"tools/call","params":{"name":"x"}}`, "null"},
}

func TestG3MalformedMessagesAreDecidedAndRefused(t *testing.T) {
	for name, tc := range malformedLines {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			v := judgeOf(g).Client(context.Background(), []byte(tc.line))
			if v.Forward != nil {
				t.Fatalf("forwarded %.200q", v.Forward)
			}
			calls := g.decided()
			if len(calls) != 1 || calls[0].Malformed == "" || calls[0].Server != "files" || calls[0].Run.ID != "run-1" {
				t.Fatalf("decided on %+v", calls)
			}
			m := read(t, v.Answer)
			if m.Error == nil || m.Error.Code != codeParse && m.Error.Code != codeInvalid || string(m.ID) != tc.id && !(tc.id == "null" && m.ID == nil) {
				t.Fatalf("answer %s", v.Answer)
			}
		})
	}
}

func TestG6MalformedMessagesPassInShadowAndOff(t *testing.T) {
	for _, mode := range []cordon.Mode{cordon.Shadow, cordon.Off} {
		for name, tc := range malformedLines {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				g := refuses()
				g.mode = mode
				v := judgeOf(g).Client(context.Background(), []byte(tc.line))
				if string(v.Forward) != tc.line || v.Answer != nil {
					t.Fatalf("forwarded %.200q, answered %q", v.Forward, v.Answer)
				}
				if len(g.decided()) != 1 {
					t.Fatal("not decided")
				}
			})
		}
	}
}

func TestCallsThatCannotBeReadAreRefusedAsToolResults(t *testing.T) {
	for name, params := range map[string]string{
		"params that are an array":         `["x",{}]`,
		"params that are a string":         `"x"`,
		"params that are null":             `null`,
		"no name":                          `{"arguments":{}}`,
		"a name that is a number":          `{"name":1,"arguments":{}}`,
		"a name that is null":              `{"name":null}`,
		"arguments in capitals":            `{"name":"x","ARGUMENTS":{"path":"/etc/x"}}`,
		"a second name in capitals":        `{"name":"x","Arguments":1}`,
		"arguments with an invisible mark": `{"name":"x","arguments\u2060":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			v := judgeOf(g).Client(context.Background(), []byte(`{"id":1,"method":"tools/call","params":`+params+`}`))
			if v.Forward != nil {
				t.Fatalf("forwarded %q", v.Forward)
			}
			if calls := g.decided(); len(calls) != 1 || calls[0].Malformed == "" {
				t.Fatalf("decided on %+v", calls)
			}
			if m := read(t, v.Answer); m.Result == nil || !m.Result.IsError {
				t.Fatalf("answer %s", v.Answer)
			}
		})
	}
}

func TestARefusedCallThatWantsNoAnswerIsDropped(t *testing.T) {
	v := judgeOf(refuses("x")).Client(context.Background(), []byte(`{"method":"tools/call","params":{"name":"x"}}`))
	if v.Forward != nil || v.Answer != nil || v.Note == "" {
		t.Fatalf("%+v", v)
	}
}

func TestARefusedResourceIsAnError(t *testing.T) {
	v := judgeOf(refuses("resources/read")).Client(context.Background(), []byte(`{"id":1,"method":"resources/read","params":{"uri":"file:///x"}}`))
	if m := read(t, v.Answer); v.Forward != nil || m.Error == nil || m.Error.Code != codeServer || !strings.Contains(m.Error.Message, "out of bounds") {
		t.Fatalf("answer %s", v.Answer)
	}
}

func TestABatchIsSplitAroundWhatIsRefused(t *testing.T) {
	a, x, b, y := callLine("1", "ok", `{ "a":1}`), callLine("2", "bad", `{}`), `{"jsonrpc":"2.0", "method":"n"}`, callLine("3", "bad", `{}`)
	for name, tc := range map[string]struct {
		items   []string
		forward string
		answers int
	}{
		"some refused":                  {[]string{a, x, b, y}, "[" + a + "," + b + "]", 2},
		"none refused":                  {[]string{a, b}, "[" + a + ", " + b + "]", 0},
		"all refused":                   {[]string{x, y}, "", 2},
		"an element that is no message": {[]string{a, `7`}, "[" + a + "]", 1},
		"a batch within the batch":      {[]string{`[` + a + `]`, b}, "[" + b + "]", 1},
		"an id that stands twice in it": {[]string{a, a}, "[" + a + "]", 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := judgeOf(refuses("bad")).Client(context.Background(), []byte("["+strings.Join(tc.items, ", ")+"]"))
			if string(v.Forward) != tc.forward {
				t.Fatalf("forwarded %s", v.Forward)
			}
			if tc.answers == 0 {
				if v.Answer != nil {
					t.Fatalf("answered %s", v.Answer)
				}
				return
			}
			if n := len(elements(v.Answer, whole(v.Answer))); n != tc.answers {
				t.Fatalf("answered %s", v.Answer)
			}
		})
	}
}

func TestAnIDInFlightIsNotUsedTwice(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second string
		refused       bool
	}{
		"the same number":                {"1", "1", true},
		"the same number in other words": {"1", "1.0", true},
		"the same string":                {`"a"`, `"\u0061"`, true},
		"a number and its string":        {"1", `"1"`, false},
		"two numbers beyond 2^53":        {"9007199254740992", "9007199254740993", false},
	} {
		t.Run(name, func(t *testing.T) {
			j := judgeOf(refuses())
			j.Client(context.Background(), []byte(callLine(tc.first, "a", "{}")))
			v := j.Client(context.Background(), []byte(callLine(tc.second, "a", "{}")))
			if refused := v.Forward == nil; refused != tc.refused {
				t.Fatalf("refused: %v", refused)
			}
		})
	}
	t.Run("an answered one may come again", func(t *testing.T) {
		j := judgeOf(refuses())
		line := []byte(callLine("1", "a", "{}"))
		j.Client(context.Background(), line)
		j.Server(context.Background(), []byte(`{"id":1,"result":{}}`))
		if v := j.Client(context.Background(), line); v.Forward == nil {
			t.Fatalf("answered %s", v.Answer)
		}
	})
	t.Run("a cancelled one may come again", func(t *testing.T) {
		j := judgeOf(refuses())
		line := []byte(callLine("1", "a", "{}"))
		j.Client(context.Background(), line)
		j.Client(context.Background(), []byte(`{"method":"notifications/cancelled","params":{"requestId":1}}`))
		if v := j.Client(context.Background(), line); v.Forward == nil {
			t.Fatalf("answered %s", v.Answer)
		}
	})
	t.Run("in shadow mode nothing is refused for it", func(t *testing.T) {
		g := refuses()
		g.mode = cordon.Shadow
		j := judgeOf(g)
		for range 3 {
			if v := j.Client(context.Background(), []byte(callLine("1", "a", "{}"))); v.Forward == nil {
				t.Fatalf("answered %s", v.Answer)
			}
		}
	})
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	g := refuses()
	j := judgeOf(g)
	for i := range maxInFlight {
		if v := j.Client(context.Background(), []byte(callLine(fmt.Sprint(i), "a", "{}"))); v.Forward == nil {
			t.Fatalf("request %d: %s", i, v.Answer)
		}
	}
	v := j.Client(context.Background(), []byte(callLine("-1", "a", "{}")))
	if m := read(t, v.Answer); v.Forward != nil || m.Error == nil || !strings.Contains(m.Error.Message, "too many requests") {
		t.Fatalf("answer %s", v.Answer)
	}
	// What the client gave up makes room, and is itself forgotten in time.
	for i := range maxInFlight {
		j.Client(context.Background(), fmt.Appendf(nil, `{"method":"notifications/cancelled","params":{"requestId":%d}}`, i))
	}
	if n := j.flight.n; n != maxCancelled {
		t.Fatalf("%d requests are remembered", n)
	}
	if v := j.Client(context.Background(), []byte(callLine("-1", "a", "{}"))); v.Forward == nil {
		t.Fatalf("answer %s", v.Answer)
	}
}

func TestACallIsSettledOnce(t *testing.T) {
	ctx := context.Background()
	settle := func(v Verdict) {
		if v.Settle != nil {
			if err := v.Settle(); err != nil {
				t.Error(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		client []string
		server []string
		want   int
	}{
		"by its answer":             {[]string{callLine("1", "a", "{}")}, []string{`{"id":1,"result":{}}`}, 1},
		"by an error":               {[]string{callLine("1", "a", "{}")}, []string{`{"id":1,"error":{"code":1,"message":""}}`}, 1},
		"by two answers":            {[]string{callLine("1", "a", "{}")}, []string{`{"id":1,"result":{}}`, `{"id":1,"result":{}}`}, 1},
		"by a cancellation":         {[]string{callLine("1", "a", "{}"), `{"method":"notifications/cancelled","params":{"requestId":1}}`}, []string{`{"id":1,"result":{}}`}, 1},
		"when it wants no answer":   {[]string{`{"method":"tools/call","params":{"name":"a"}}`}, nil, 1},
		"not for a refused one":     {[]string{callLine("1", "bad", "{}")}, []string{`{"id":1,"result":{}}`}, 0},
		"not by another's answer":   {[]string{callLine("1", "a", "{}")}, []string{`{"id":"1","result":{}}`}, 0},
		"not by a server's request": {[]string{callLine("1", "a", "{}")}, []string{`{"id":1,"method":"roots/list"}`}, 0},
		"each in a batch":           {[]string{"[" + callLine("1", "a", "{}") + "," + callLine("2", "a", "{}") + "]"}, []string{`[{"id":1,"result":{}},{"id":2,"result":{}}]`}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses("bad")
			j := judgeOf(g)
			for _, m := range tc.client {
				settle(j.Client(ctx, []byte(m)))
			}
			for _, m := range tc.server {
				settle(j.Server(ctx, []byte(m)))
			}
			if n := g.usages(); n != tc.want {
				t.Fatalf("settled %d times", n)
			}
		})
	}
}

func TestAfterAKillOnlyRefusalsAreLeft(t *testing.T) {
	ctx := context.Background()
	g := refuses()
	j := judgeOf(g)
	j.Client(ctx, []byte(callLine("1", "a", "{}")))
	j.Client(ctx, []byte(`{"id":2,"method":"prompts/list"}`))
	j.Client(ctx, []byte(`{"id":3,"method":"prompts/list"}`))
	j.Client(ctx, []byte(`{"method":"notifications/cancelled","params":{"requestId":3}}`))
	g.kill()
	answers, settle := j.Close(ctx, "the run was killed", true)
	if len(answers) != 2 || settle == nil {
		t.Fatalf("answers %q", answers)
	}
	for _, a := range answers {
		switch m := read(t, a); string(m.ID) {
		case "1":
			if m.Result == nil || !m.Result.IsError {
				t.Errorf("answer %s", a)
			}
		case "2":
			if m.Error == nil || m.Error.Code != codeServer {
				t.Errorf("answer %s", a)
			}
		}
	}
	if v := j.Server(ctx, []byte(`{"id":1,"result":{"content":[{"type":"text","text":"late"}]}}`)); v.Forward != nil {
		t.Errorf("a late answer went out: %s", v.Forward)
	}
	for msg, ok := range map[string]func(rpc) bool{
		callLine("4", "a", "{}"):                                func(m rpc) bool { return m.Result != nil && m.Result.IsError },
		`{"id":5,"method":"ping"}`:                              func(m rpc) bool { return m.Result != nil },
		`{"id":6,"method":"tools/list"}`:                        func(m rpc) bool { return m.Result != nil && len(m.Result.Tools) == 0 },
		`{"id":7,"method":"initialize","params":{}}`:            func(m rpc) bool { return m.Result != nil },
		`{"id":8,"method":"prompts/list"}`:                      func(m rpc) bool { return m.Error != nil && m.Error.Code == codeServer },
		`{"id":9,"method":"resources/read","params":{"uri":1}}`: func(m rpc) bool { return m.Error != nil },
	} {
		v := j.Client(ctx, []byte(msg))
		if v.Forward != nil || !ok(read(t, v.Answer)) {
			t.Errorf("%s: forwarded %q, answered %s", msg, v.Forward, v.Answer)
		}
	}
}

func TestAfterACrashCallsAreStillDecided(t *testing.T) {
	g := refuses("bad")
	j := judgeOf(g)
	j.Close(context.Background(), "server gone", false)
	if m := read(t, j.Client(context.Background(), []byte(callLine("1", "bad", "{}"))).Answer); m.Result == nil || !m.Result.IsError {
		t.Error("a refused call is not refused")
	}
	v := j.Client(context.Background(), []byte(callLine("2", "a", "{}")))
	if m := read(t, v.Answer); m.Error == nil || m.Error.Message != "server gone" || v.Settle == nil {
		t.Errorf("answer %s", v.Answer)
	}
}

func TestSilenceIsNotedOncePerRequest(t *testing.T) {
	j := judgeOf(refuses())
	for _, m := range []string{callLine("1", "a", "{}"), callLine("2", "a", "{}"), `{"id":3,"method":"subscriptions/listen"}`,
		`{"method":"notifications/cancelled","params":{"requestId":2}}`} {
		j.Client(context.Background(), []byte(m))
	}
	if notes := j.Silent(-1); len(notes) != 1 || !strings.Contains(notes[0], "id 1") {
		t.Fatalf("notes %q", notes)
	}
	if notes := j.Silent(-1); len(notes) != 0 {
		t.Fatalf("notes %q", notes)
	}
}

func TestTheGuardKeepsItsArguments(t *testing.T) {
	// The transport appends a line end to what it forwards: the arguments
	// that the guard may keep must not share room with it.
	g := refuses()
	j := judgeOf(g)
	line := []byte(callLine("1", "a", `{"a":1}`))
	env, _, _ := readEnvelopeOf(t, line)
	c := j.readCall(line, &env)
	_ = append(c.Args, 'X')
	if !bytes.Equal(line, []byte(callLine("1", "a", `{"a":1}`))) {
		t.Fatal("appending to the arguments changed the message")
	}
}
