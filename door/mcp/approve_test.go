package mcp

import (
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

const withForms = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{}}}`

// question is the elicitation that the door sends in place of an answer.
func question(c *client) (id string) {
	c.t.Helper()
	line := c.next()
	if !strings.Contains(line, `"method":"elicitation/create"`) || !strings.Contains(line, "the host came from a page") {
		c.t.Fatalf("%s", line)
	}
	return string(Member([]byte(line), "id"))
}

func TestAPersonIsAskedThroughTheClient(t *testing.T) {
	for name, c := range map[string]struct{ reply, want, resolved string }{
		"who approves":                {`"result":{"action":"accept","content":{"decision":"approve"}}`, `\"name\":\"send\"`, "P1 true by mcp elicitation"},
		"who rejects":                 {`"result":{"action":"accept","content":{"decision":"reject"}}`, "The person rejected this call", "P1 false by mcp elicitation"},
		"who declines":                {`"result":{"action":"decline"}`, "The person rejected this call", "P1 false by mcp elicitation"},
		"who closes the form":         {`"result":{"action":"cancel"}`, "cordon proposals approve P1", ""},
		"who accepts an empty form":   {`"result":{"action":"accept","content":{}}`, "cordon proposals approve P1", ""},
		"whose client cannot":         {`"error":{"code":-32601,"message":"no"}`, "cordon proposals approve P1", ""},
		"whose decision is in a list": {`"result":{"action":"accept","content":{"decision":["approve"]}}`, "cordon proposals approve P1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := &fakeGuard{propose: map[string]bool{"send": true}}
			s := serve(t, g, "echo")
			s.ask(withForms)
			s.send(callLine("1", "send", `{"to":"x"}`))
			id := question(s)
			s.send(`{"jsonrpc":"2.0","id":` + id + `,` + c.reply + `}`)
			if got := s.next(); !strings.Contains(got, c.want) || string(Member([]byte(got), "id")) != "1" {
				t.Errorf("%s", got)
			}
			if got := strings.Join(g.resolved, ";"); got != c.resolved {
				t.Errorf("resolved %q", got)
			}
			calls := g.decided()
			if c.want == `\"name\":\"send\"` && (len(calls) != 2 || calls[1].Approval != "P1" || string(calls[1].Args) != `{"to":"x"}`) {
				t.Errorf("decided on %+v", calls)
			}
		})
	}
	t.Run("other calls go on meanwhile, and an answer serves once", func(t *testing.T) {
		g := &fakeGuard{propose: map[string]bool{"send": true}}
		s := serve(t, g, "echo")
		s.ask(withForms)
		s.send(callLine("1", "send", `{}`))
		id := question(s)
		if m := s.ask(callLine("2", "look", "{}")); string(m.ID) != "2" {
			t.Fatalf("%+v", m)
		}
		yes := `{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"decision":"approve"}}}`
		s.send(yes)
		if got := s.next(); string(Member([]byte(got), "id")) != "1" {
			t.Fatal(got)
		}
		s.send(yes) // a reply to nothing goes to the server, which answers what has an id
		_ = s.next()
		if len(g.resolved) != 1 {
			t.Errorf("resolved %q", g.resolved)
		}
	})
	t.Run("a call that is cancelled is not taken up", func(t *testing.T) {
		g := &fakeGuard{propose: map[string]bool{"send": true}}
		s := serve(t, g, "echo")
		s.ask(withForms)
		s.send(callLine("1", "send", `{}`))
		id := question(s)
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		s.send(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"decision":"approve"}}}`)
		s.ask(`{"jsonrpc":"2.0","id":9,"method":"x"}`)
		if len(g.resolved) != 0 {
			t.Errorf("resolved %q", g.resolved)
		}
	})
	for name, hello := range map[string]string{
		"a client without forms":      strings.Replace(withForms, `"elicitation":{}`, ``, 1),
		"a client that shows URLs":    strings.Replace(withForms, `"elicitation":{}`, `"elicitation":{"url":{}}`, 1),
		"a client that never said so": `{"jsonrpc":"2.0","id":0,"method":"x","params":{"capabilities":{"elicitation":{}}}}`,
	} {
		t.Run(name+" is told who can approve", func(t *testing.T) {
			g := &fakeGuard{propose: map[string]bool{"send": true}}
			s := serve(t, g, "echo")
			s.ask(hello)
			if m := s.ask(callLine("1", "send", "{}")); m.Result == nil || !m.Result.IsError || !strings.Contains(m.Result.Content[0].Text, "cordon proposals approve P1") {
				t.Errorf("%+v", m)
			}
		})
	}
	t.Run("nor where elicitation is off", func(t *testing.T) {
		g := &fakeGuard{propose: map[string]bool{"send": true}}
		s := serve(t, g, "echo", func(c *Config) { c.NoElicitation = true })
		s.ask(withForms)
		if m := s.ask(callLine("1", "send", "{}")); m.Result == nil || !m.Result.IsError {
			t.Errorf("%+v", m)
		}
	})
}

func TestAStatelessClientIsAskedByTheResult(t *testing.T) {
	g := &fakeGuard{propose: map[string]bool{"send": true}}
	s := serve(t, g, "echo")
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"progressToken":%}`
	call := func(id, args, extra string) string {
		s.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"send","arguments":` + args + `,` + strings.Replace(meta, "%", id, 1) + extra + `}}`)
		return s.next()
	}
	first := call("1", `{"to":1}`, "")
	if Text(Member([]byte(first), "result", "resultType")) != "input_required" {
		t.Fatal(first)
	}
	state := string(Member([]byte(first), "result", "requestState"))
	yes := `,"inputResponses":{"cordon":{"action":"accept","content":{"decision":"approve"}}},"requestState":` + state
	if got := call("2", `{"to":1}`, yes); !strings.Contains(got, `\"to\":1`) || strings.Contains(got, "inputResponses") || !strings.Contains(got, `\"progressToken\":2`) {
		t.Errorf("%s", got)
	}
	if calls := g.decided(); len(calls) != 2 || calls[1].Approval != "P1" || len(g.resolved) != 1 {
		t.Errorf("%+v, resolved %q", calls, g.resolved)
	}
	// The same once more is a new call, and asks again.
	if got := call("3", `{"to":1}`, yes); Text(Member([]byte(got), "result", "resultType")) != "input_required" {
		t.Errorf("%s", got)
	}
}

func TestApprovalsAreBoundAndBounded(t *testing.T) {
	a := NewApprovals()
	first := a.put(heldCall{run: "r", server: "s"})
	for name, ok := range map[string]func() bool{
		"another run":    func() bool { _, ok := a.take(first, "r2", "s"); return ok },
		"another server": func() bool { _, ok := a.take(first, "r", "s2"); return ok },
	} {
		if ok() {
			t.Errorf("taken by %s", name)
		}
	}
	for range 2 * maxHeld {
		a.put(heldCall{run: "r", server: "s"})
	}
	if len(a.held) > maxHeld {
		t.Errorf("%d held", len(a.held))
	}
}

func TestThePersonSeesWhatIsNotShown(t *testing.T) {
	c := &cordon.Call{Server: "mail", Tool: "send\u202e", Args: []byte(`{"a":"` + strings.Repeat("x", 5000) + `","to":"evil\u202e@test"}`)}
	got := string(askParams(c, &cordon.Decision{Findings: []cordon.Finding{{Detail: "the address came from a page"}}}))
	for _, want := range []string{"BYTES ARE NOT SHOWN HERE", "evil", "@test", "the address came from a page", `send\\u202e`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "\u202e\u202e") || strings.ContainsRune(got, 0x202e) || len(got) > 5000 {
		t.Errorf("%s", got)
	}
}
