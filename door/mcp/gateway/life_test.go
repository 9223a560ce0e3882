package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAKilledRunsSessionsEnd(t *testing.T) {
	for name, server := range map[string]func(testing.TB) Server{
		"over HTTP": func(t testing.TB) Server { return httpServer(t, false) },
		"a process": func(testing.TB) Server { return stdioServer() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, nil, server(t))
			id := f.session("/mcp/peer")
			answered := make(chan string, 2)
			go func() {
				_, got := f.do("POST", "/mcp/peer", callBody("1", "slow", "{}"), headerSession, id)
				answered <- message(got)
			}()
			go func() {
				body, headers := statelessCall("2", "slow", "{}")
				_, got := f.do("POST", "/mcp/peer", body, headers...)
				answered <- message(got)
			}()
			waitFor(t, func() bool { n, _ := g.seen(); return n >= 2 })
			g.kill("gateway:t1/agent-a")
			for range 2 {
				if got := <-answered; !strings.Contains(got, "Cordon ended the run") || !strings.Contains(got, `"isError":true`) {
					t.Errorf("%s", got)
				}
			}
			waitFor(t, func() bool { _, settled := g.seen(); return settled >= 2 })
			if resp, _ := f.do("POST", "/mcp/peer", callBody("3", "echo", "{}"), headerSession, id); resp.StatusCode != 404 {
				t.Errorf("the session: %s", resp.Status)
			}
			if _, got := f.do("POST", "/mcp/peer", helloBody); !strings.Contains(got, "Cordon ended the run") {
				t.Errorf("a new session: %s", got)
			}
			body, headers := statelessCall("4", "echo", "{}")
			if _, got := f.do("POST", "/mcp/peer", body, headers...); !strings.Contains(got, "the run was killed") {
				t.Errorf("a stateless call: %s", got)
			}
			if _, got := f.do("POST", "/mcp/peer", helloBody, "Authorization", "Bearer "+secretB); !strings.Contains(got, "protocolVersion") {
				t.Errorf("another token's session: %s", got)
			}
		})
	}
}

func TestWhoeverStopsWaitingCancelsTheCall(t *testing.T) {
	for _, server := range []struct {
		name string
		of   func(testing.TB) Server
	}{
		{"a process", func(testing.TB) Server { return stdioServer() }},
		{"with sessions", func(t testing.TB) Server { return httpServer(t, false) }},
		{"without sessions", onlyStateless},
	} {
		t.Run("a stateless client closes its stream, at "+server.name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, nil, server.of(t))
			c := f.connect("/mcp/peer", false, nil)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "slow"})
				done <- err
			}()
			waitFor(t, func() bool { n, _ := g.seen(); return n == 1 })
			cancel()
			if err := <-done; err == nil {
				t.Fatal("answered")
			}
			waitFor(t, func() bool { _, settled := g.seen(); return settled == 1 })
			waitFor(t, func() bool { f.g.mu.Lock(); defer f.g.mu.Unlock(); return f.g.flying == 0 })
		})
		t.Run("a client with a session says so, at "+server.name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, nil, server.of(t))
			id := f.session("/mcp/peer")
			done := make(chan string, 1)
			go func() {
				_, got := f.do("POST", "/mcp/peer", callBody("5", "slow", "{}"), headerSession, id)
				done <- got
			}()
			waitFor(t, func() bool { n, _ := g.seen(); return n == 1 })
			resp, _ := f.do("POST", "/mcp/peer", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`, headerSession, id)
			if resp.StatusCode != 202 {
				t.Error(resp.Status)
			}
			<-done
			waitFor(t, func() bool { _, settled := g.seen(); return settled == 1 })
		})
	}
}

// A client with a session that loses its connection finds its answer again.
func TestAStreamThatBrokeIsTakenUpAgain(t *testing.T) {
	release := make(chan struct{})
	f := start(t, newGuard(), nil, plainServer(t, func(w http.ResponseWriter, _ string, id json.RawMessage, _ []byte) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"first\"}}\n\n")
		w.(http.Flusher).Flush()
		<-release
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"second\"}}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
	}))
	id := f.session("/mcp/peer")
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "POST", f.url+"/mcp/peer", strings.NewReader(callBody("9", "echo", "{}")))
	r.Header.Set("Authorization", "Bearer "+secretA)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(headerSession, id)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		if v, ok := strings.CutPrefix(in.Text(), "id: "); ok {
			last = v
		}
		if strings.Contains(in.Text(), "first") {
			break
		}
	}
	cancel()
	resp.Body.Close()
	close(release)
	waitFor(t, func() bool { f.g.mu.Lock(); defer f.g.mu.Unlock(); return f.g.flying == 0 })
	resp, got := f.do("GET", "/mcp/peer", "", headerSession, id, headerLast, last)
	if resp.StatusCode != 200 || strings.Contains(got, "first") || !strings.Contains(got, "second") || !strings.Contains(got, `"id":9`) {
		t.Errorf("%s after %q: %s", resp.Status, last, got)
	}
	// Not by another token.
	if resp, got := f.do("GET", "/mcp/peer", "", headerSession, id, headerLast, last, "Authorization", "Bearer "+secretB); resp.StatusCode != 404 {
		t.Errorf("%s: %s", resp.Status, got)
	}
}

// A server that closes its stream in mid-call is asked where it left off.
func TestAServersStreamThatBrokeIsTakenUpAgain(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), `"initialize"`):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set(headerSession, "s1")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":"cordon-hello","result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"p","version":"1"}}}`)
		case r.Method == "GET" && r.Header.Get(headerLast) != "":
			mu.Lock()
			asked = append(asked, r.Header.Get(headerLast)+" "+r.Header.Get(headerSession))
			mu.Unlock()
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"at last\"}]}}\n\n")
		case r.Method == "GET":
			w.WriteHeader(405)
		case strings.Contains(string(body), "tools/call"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "id: e1\nretry: 1\ndata: \n\n")
		default:
			w.WriteHeader(202)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	f := start(t, newGuard(), nil, Server{Name: "peer", URL: srv.URL})
	id := f.session("/mcp/peer")
	_, got := f.do("POST", "/mcp/peer", callBody("1", "echo", "{}"), headerSession, id)
	if !strings.Contains(got, "at last") {
		t.Errorf("%s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != 1 || asked[0] != "e1 s1" {
		t.Errorf("asked for %q", asked)
	}
}

func TestAServerThatDiesIsStartedAgain(t *testing.T) {
	f := start(t, newGuard(), nil, stdioServer())
	c := f.connect("/mcp/peer", true, nil)
	for range 2 {
		if _, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "crash"}); err == nil || !strings.Contains(err.Error(), "ended before it answered") {
			t.Fatalf("crash: %v", err)
		}
		// It is not started again at once, and then it is.
		waitFor(t, func() bool {
			r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
			if err != nil {
				if !strings.Contains(err.Error(), "is tried again in") {
					t.Fatalf("echo: %v", err)
				}
				return false
			}
			return textOf(r) == `{"a":1}`
		})
	}
	u := f.g.ups[0]
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fails < 2 {
		t.Errorf("%d failures counted", u.fails)
	}
}

func TestTheWaitBeforeAServerIsStartedAgainGrows(t *testing.T) {
	u := &upstream{cfg: Server{Name: "x"}}
	var last time.Duration
	for i := range 20 {
		u.failed(errEnded)
		wait := time.Until(u.next)
		if wait < last-50*time.Millisecond || wait > longestWait {
			t.Fatalf("wait %d is %s after %s", i, wait, last)
		}
		last = wait
	}
	if last < longestWait-time.Second {
		t.Errorf("at last %s", last)
	}
	u.worked()
	if err := u.admits(); err != nil {
		t.Error(err)
	}
}

// What a server claims is not taken for what it was asked.
func TestServersThatLie(t *testing.T) {
	var open chan struct{} // until the end of a subtest
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, id json.RawMessage)
		want   string
	}{
		"nothing": {func(http.ResponseWriter, json.RawMessage) {}, "did not answer"},
		"no JSON": {func(w http.ResponseWriter, _ json.RawMessage) { fmt.Fprint(w, "<html>") }, "did not answer"},
		"a redirect": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Location", "http://127.0.0.1:9/")
			w.WriteHeader(307)
		}, "did not answer"},
		"a result that stands twice": {func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"id":%s,"result":{},"result":{"content":[]}}`, id)
		}, "two ways"},
		"a list of tools for a call": {func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"id":%s,"result":{"content":[],"tools":[{"name":"crash"}]}}`, id)
		}, `"content":[]`},
		"an answer under another id": {func(w http.ResponseWriter, _ json.RawMessage) {
			fmt.Fprint(w, `{"id":"other","result":{"content":[]}}`)
		}, `"id":1`},
		"a stream without an answer": {func(w http.ResponseWriter, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"id\":99,\"result\":{}}\n\n")
		}, "ended before it answered"},
		"an answer that is too long": {func(w http.ResponseWriter, id json.RawMessage) {
			fmt.Fprintf(w, `{"id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id, strings.Repeat("x", 300_000))
		}, "longer than"},
		"an event that is too long": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"id\":%s,\"result\":{\"x\":\"%s\"}}\n\n", id, strings.Repeat("x", 300_000))
		}, "longer than"},
		"a request that no client has": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"id\":7,\"method\":\"sampling/createMessage\",\"params\":{}}\n\ndata: {\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
		}, `"content":[]`},
		"an answer, and a stream that stays open": {func(w http.ResponseWriter, id json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"id\":%s,\"result\":{\"content\":[]}}\n\n", id)
			_ = http.NewResponseController(w).Flush()
			<-open
		}, `"content":[]`},
		"a status and no message": {func(w http.ResponseWriter, _ json.RawMessage) { w.WriteHeader(500) }, "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, func(c *Config) { c.Limits.Message = 200_000 }, plainServer(t, func(w http.ResponseWriter, _ string, id json.RawMessage, _ []byte) { c.answer(w, id) }))
			open = make(chan struct{})
			t.Cleanup(func() { close(open) })
			id := f.session("/mcp/peer")
			_, got := f.do("POST", "/mcp/peer", callBody("1", "echo", "{}"), headerSession, id)
			if got = message(got); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":1`) {
				t.Errorf("with a session: %s", got)
			}
			body, headers := statelessCall("1", "echo", "{}")
			_, got = f.do("POST", "/mcp/peer", body, headers...)
			if got = message(got); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":1`) {
				t.Errorf("without: %s", got)
			}
			waitFor(t, func() bool { calls, settled := g.seen(); return calls == 2 && settled == 2 })
		})
	}
}

func TestAServerThatIsSlowHoldsUpNobodyElse(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	f := start(t, newGuard(), func(c *Config) { c.Limits.Call = 300 * time.Millisecond }, plainServer(t, func(w http.ResponseWriter, _ string, id json.RawMessage, body []byte) {
		if strings.Contains(string(body), "hang") {
			<-hang
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	}))
	id := f.session("/mcp/peer")
	done := make(chan string, 1)
	go func() {
		_, got := f.do("POST", "/mcp/peer", callBody("1", "hang", "{}"), headerSession, id)
		done <- got
	}()
	for i := range 20 {
		if _, got := f.do("POST", "/mcp/peer", callBody(fmt.Sprint(100+i), "echo", "{}"), headerSession, id); !strings.Contains(got, `"content"`) {
			t.Fatal(got)
		}
	}
	if got := <-done; !strings.Contains(got, errTooLong.Error()) {
		t.Errorf("%s", got)
	}
}

// A person approves a call, through the client.
func TestAPersonApprovesThroughTheClient(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		for _, path := range []string{"/mcp/peer", "/mcp"} {
			for answer, want := range map[string]string{"approve": "ran", "reject": "rejected this call", "": "approve P-secret"} {
				t.Run(fmt.Sprintf("session %v at %s, who says %q", legacy, path, answer), func(t *testing.T) {
					g := newGuard()
					g.propose["secret"] = true
					f := start(t, g, nil, httpServer(t, !legacy))
					var asked string
					c := f.connect(path, legacy, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						asked = r.Params.Message
						if answer == "" {
							return &mcp.ElicitResult{Action: "cancel"}, nil
						}
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": answer}}, nil
					}})
					name := "secret"
					if path == "/mcp" {
						name = "peer__secret"
					}
					r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"a": "b"}})
					if err != nil || !strings.Contains(textOf(r), want) {
						t.Errorf("%v %+v", err, r)
					}
					if !strings.Contains(asked, `"secret"`) || !strings.Contains(asked, "out of bounds") || !strings.Contains(asked, `{\"a\":\"b\"}`) {
						t.Errorf("asked %q", asked)
					}
					calls := g.decided()
					if answer == "approve" && (len(calls) != 2 || calls[1].Approval != "P-secret" || string(calls[1].Args) != `{"a":"b"}`) {
						t.Errorf("decided on %+v", calls)
					}
				})
			}
		}
	}
	t.Run("a client that shows no forms is told how", func(t *testing.T) {
		for _, legacy := range []bool{true, false} {
			g := newGuard()
			g.propose["secret"] = true
			c := start(t, g, nil, httpServer(t, !legacy)).connect("/mcp/peer", legacy, nil)
			r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "secret"})
			if err != nil || !r.IsError || !strings.Contains(textOf(r), "cordon proposals approve P-secret") {
				t.Errorf("%v %+v", err, r)
			}
		}
	})
	t.Run("nor is the user of a token without elicitation asked", func(t *testing.T) {
		g := newGuard()
		g.propose["secret"] = true
		f := start(t, g, func(c *Config) { c.Tokens[0].NoElicitation = true }, httpServer(t, true))
		c := f.connect("/mcp/peer", false, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			t.Error("asked")
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}, nil
		}})
		r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "secret"})
		if err != nil || !r.IsError {
			t.Errorf("%v %+v", err, r)
		}
	})
}

// An approval is for the call that the person saw.
func TestAnApprovalIsForNoOtherCall(t *testing.T) {
	g := newGuard()
	g.propose["secret"] = true
	f := start(t, g, nil, httpServer(t, true))
	meta := strings.Replace(statelessMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
	call := func(extra, secret, args string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"secret","arguments":%s,%s%s}}`, args, meta, extra)
		_, got := f.do("POST", "/mcp/peer", body, headerVersion, newest, headerMethod, "tools/call", headerName, "secret", "Authorization", "Bearer "+secret)
		return message(got)
	}
	const yes = `,"inputResponses":{"cordon":{"action":"accept","content":{"decision":"approve"}}},"requestState":`
	state := func() string {
		var m struct {
			Result struct {
				ResultType, RequestState string
			}
		}
		got := call("", secretA, `{"a":1}`)
		if err := json.Unmarshal([]byte(got), &m); err != nil || m.Result.ResultType != "input_required" {
			t.Fatalf("%v: %s", err, got)
		}
		return m.Result.RequestState
	}
	for name, c := range map[string]struct{ secret, args, state string }{
		"other arguments":        {secretA, `{"a":2}`, state()},
		"another token":          {secretB, `{"a":1}`, state()},
		"a state that never was": {secretA, `{"a":1}`, "cordon:AAAA"},
	} {
		if got := call(yes+`"`+c.state+`"`, c.secret, c.args); strings.Contains(got, `"ran"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if len(g.resolved) != 0 {
		t.Errorf("resolved %q", g.resolved)
	}
	s := state()
	if got := call(yes+`"`+s+`"`, secretA, `{"a":1}`); !strings.Contains(got, `"ran"`) {
		t.Errorf("the right one: %s", got)
	}
	if got := call(yes+`"`+s+`"`, secretA, `{"a":1}`); strings.Contains(got, `"ran"`) {
		t.Errorf("twice: %s", got)
	}
}

// A call that goes on with input is decided on again, and under no other
// arguments.
func TestEveryRetryIsDecidedOn(t *testing.T) {
	for _, server := range []struct {
		name string
		of   func(testing.TB) Server
	}{
		{"with sessions", func(t testing.TB) Server { return onlySessions(t) }},
		{"without", func(t testing.TB) Server { return httpServer(t, true) }},
	} {
		t.Run("a server "+server.name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, nil, server.of(t))
			meta := strings.Replace(statelessMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
			call := func(args, extra string) string {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":%s,%s%s}}`, args, meta, extra)
				_, got := f.do("POST", "/mcp/peer", body, headerVersion, newest, headerMethod, "tools/call", headerName, "ask")
				return message(got)
			}
			first := call(`{"a":1}`, "")
			var m struct {
				Result struct {
					ResultType, RequestState string
					InputRequests            map[string]json.RawMessage
				}
			}
			if err := json.Unmarshal([]byte(first), &m); err != nil || m.Result.ResultType != "input_required" || len(m.Result.InputRequests) != 1 {
				t.Fatalf("%v: %s", err, first)
			}
			key := ""
			for key = range m.Result.InputRequests {
			}
			extra := fmt.Sprintf(`,"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"name":"Ada"}}}`, m.Result.RequestState, key)
			g.mu.Lock()
			g.deny["ask"] = true
			g.mu.Unlock()
			if got := call(`{"a":1}`, extra); !strings.Contains(got, "Cordon refused") || strings.Contains(got, "hello") {
				t.Errorf("refused meanwhile: %s", got)
			}
			if n := len(g.decided()); n != 2 {
				t.Errorf("decided %d times", n)
			}
		})
	}
	t.Run("other arguments under an old state", func(t *testing.T) {
		g := newGuard()
		f := start(t, g, nil, onlySessions(t))
		meta := strings.Replace(statelessMeta, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}}`, 1)
		call := func(args, extra string) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":%s,%s%s}}`, args, meta, extra)
			_, got := f.do("POST", "/mcp/peer", body, headerVersion, newest, headerMethod, "tools/call", headerName, "ask")
			return message(got)
		}
		first := call(`{"a":1}`, "")
		i := strings.Index(first, parkedState)
		if i < 0 {
			t.Fatal(first)
		}
		state := first[i : i+strings.IndexByte(first[i:], '"')]
		if got := call(`{"a":2}`, fmt.Sprintf(`,"requestState":%q,"inputResponses":{"q1":{"action":"accept"}}`, state)); !strings.Contains(got, "the arguments differ") {
			t.Errorf("%s", got)
		}
		calls := g.decided()
		if calls[len(calls)-1].Malformed == "" {
			t.Errorf("%+v", calls)
		}
	})
}

func TestTheEndOfTheGatewayIsGraceful(t *testing.T) {
	release := make(chan struct{})
	g := newGuard()
	up := plainServer(t, func(w http.ResponseWriter, _ string, id json.RawMessage, _ []byte) {
		<-release
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
	})
	gw, err := New(Config{Guard: g, Servers: []Server{up}, Tokens: []Token{{Identity{Name: "a", Servers: []string{"*"}}, HashSecret(secretA)}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gw.Serve(ctx, l) }()
	f := &fixture{t: t, g: gw, guard: g, url: "http://" + l.Addr().String()}
	id := f.session("/mcp/peer")
	stream, answered := make(chan struct{}), make(chan string, 1)
	go func() {
		f.do("GET", "/mcp/peer", "", headerSession, id)
		close(stream)
	}()
	go func() {
		_, got := f.do("POST", "/mcp/peer", callBody("1", "echo", "{}"), headerSession, id)
		answered <- got
	}()
	waitFor(t, func() bool { n, _ := g.seen(); return n == 1 && gw.Status().Streams == 1 })
	cancel()
	<-stream // it would never end by itself
	select {
	case got := <-answered:
		t.Fatalf("before the server did: %s", got)
	default:
	}
	close(release)
	if got := <-answered; !strings.Contains(got, `"content"`) {
		t.Errorf("the call in flight: %s", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(f.url); err == nil {
		t.Error("it still answers")
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	f := start(t, newGuard(), func(c *Config) { c.Limits.Idle = 80 * time.Millisecond }, plainServer(t, nil))
	f.session("/mcp/peer")
	body, headers := statelessCall("1", "echo", "{}")
	f.do("POST", "/mcp/peer", body, headers...)
	waitFor(t, func() bool { s := f.g.Status(); return s.Sessions == 0 && s.Windows == 0 })
}

func TestAThousandSessionsAtOnce(t *testing.T) {
	const n = 1000
	g := newGuard()
	f := start(t, g, nil, plainServer(t, nil))
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(body, id string) (string, string, error) {
		r, err := http.NewRequest("POST", f.url+"/mcp/peer", strings.NewReader(body))
		if err != nil {
			return "", "", err
		}
		r.Header.Set("Authorization", "Bearer "+secretA)
		r.Header.Set("Content-Type", "application/json")
		if id != "" {
			r.Header.Set(headerSession, id)
		}
		resp, err := client.Do(r)
		if err != nil {
			return "", "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.Header.Get(headerSession), string(b), err
	}
	ids := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var err error
			if ids[i], _, err = post(helloBody, ""); err != nil || ids[i] == "" {
				t.Errorf("session %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if s := f.g.Status(); s.Sessions != n {
		t.Fatalf("%+v", s)
	}
	for i := range n {
		wg.Go(func() {
			// All use the same id, each gets its own answer.
			mark := fmt.Sprintf(`{"i":"mark-%d-"}`, i)
			_, got, err := post(callBody("1", "echo", mark), ids[i])
			if err != nil || !strings.Contains(got, fmt.Sprintf("mark-%d-", i)) {
				t.Errorf("session %d: %v: %s", i, err, got)
			}
		})
	}
	wg.Wait()
	runs := map[string]bool{}
	for _, c := range g.decided() {
		runs[c.Run.ID] = true
	}
	if len(runs) != n {
		t.Errorf("%d runs", len(runs))
	}
	if calls, settled := g.seen(); calls != n || settled != n {
		t.Errorf("%d calls, %d settled", calls, settled)
	}
}

func TestSubscriptionsInBothEras(t *testing.T) {
	for _, server := range []struct {
		name string
		of   func(testing.TB, *mcp.Server) Server
	}{
		{"with sessions", func(t testing.TB, s *mcp.Server) Server { return serverOf(t, s, false) }},
		{"without", func(t testing.TB, s *mcp.Server) Server { return serverOf(t, s, true) }},
	} {
		for _, path := range []string{"/mcp/peer", "/mcp"} {
			t.Run("a stateless client, a server "+server.name+", at "+path, func(t *testing.T) {
				s := sdkServer()
				f := start(t, newGuard(), nil, server.of(t, s))
				changed := make(chan string, 8)
				f.connect(path, false, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- "tools" }})
				s.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
				select {
				case <-changed:
				case <-time.After(10 * time.Second):
					t.Error("the change was not told")
				}
			})
		}
	}
}

func serverOf(t testing.TB, s *mcp.Server, stateless bool) Server {
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}

func TestG6InShadowNothingIsChangedOrRefused(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		g := newGuard()
		g.mode = cordon.Shadow
		g.deny["secret"], g.hide["crash"] = true, true
		f := start(t, g, func(c *Config) {
			c.DeliverTagged = func(cordon.Chunk) string { t.Error("tagged"); return "" }
		}, httpServer(t, !legacy))
		c := f.connect("/mcp/peer", legacy, nil)
		if r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "secret"}); err != nil || textOf(r) != "ran" {
			t.Errorf("%v %+v", err, r)
		}
		list, err := c.ListTools(context.Background(), nil)
		if err != nil || len(list.Tools) != 5 {
			t.Errorf("%v %+v", err, list)
		}
	}
	t.Run("nor where headers and body differ", func(t *testing.T) {
		g := newGuard()
		g.mode = cordon.Shadow
		f := start(t, g, nil, plainServer(t, nil))
		body, headers := statelessCall("1", "echo", "{}")
		if _, got := f.do("POST", "/mcp/peer", body, append(headers, headerName, "other")...); !strings.Contains(got, `"content"`) {
			t.Errorf("%s", got)
		}
		if calls := g.decided(); len(calls) != 2 || calls[0].Malformed == "" {
			t.Errorf("%+v", calls)
		}
	})
}

func TestTaggedTextGoesThroughTheGateway(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		for _, server := range []Server{httpServer(t, true), onlySessions(t)} {
			f := start(t, newGuard(), func(c *Config) {
				c.DeliverTagged = func(c cordon.Chunk) string { return "<" + c.ID + ">" + c.Text + "</>" }
			}, server)
			r, err := f.connect("/mcp/peer", legacy, nil).CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
			if err != nil || textOf(r) != `<c1>{"a":1}</>` {
				t.Errorf("%v %+v", err, r)
			}
		}
	}
}

func TestHeadersAreBoundedAndHaveTheirTime(t *testing.T) {
	gw, err := New(Config{Guard: newGuard(), Servers: []Server{plainServer(t, nil)}, Limits: Limits{Header: 8 << 10, Read: 200 * time.Millisecond},
		Tokens: []Token{{Identity{Name: "a", Servers: []string{"*"}}, HashSecret(secretA)}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gw.Serve(ctx, l) }()
	for name, c := range map[string]struct{ raw, want string }{
		"headers over the limit":   {"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n", "431"},
		"headers that never end":   {"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", ""},
		"a Host that stands twice": {"POST /mcp HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n", "400"},
		"no Host":                  {"POST /mcp HTTP/1.1\r\n\r\n", "400"},
		"a length and chunks":      {"POST /mcp HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "403"},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.raw); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(conn).ReadString('\n') // the end of the connection is an answer too
		if !strings.Contains(line, c.want) || c.want == "" && line != "" {
			t.Errorf("%s: %q", name, line)
		}
		conn.Close()
	}
	t.Run("nothing follows a request in chunks", func(t *testing.T) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		const post = "POST /mcp/peer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + secretA + "\r\nContent-Type: application/json\r\n"
		if _, err := io.WriteString(conn, post+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+post+"Content-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(conn)
		if err != nil || strings.Count(string(all), "HTTP/1.1 ") != 1 {
			t.Errorf("%v: %s", err, all)
		}
	})
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// scripted is a server on a stream whose answers to calls a test writes.
func scripted(t testing.TB, change func(*Config), answer func(id string) string) *fixture {
	return start(t, newGuard(), func(c *Config) {
		if change != nil {
			change(c)
		}
		c.StartSandboxed = func(context.Context, cordon.Run, string, []string, []string) (io.ReadWriteCloser, func() error, error) {
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				in := bufio.NewScanner(theirs)
				in.Buffer(nil, 1<<20)
				for in.Scan() {
					var m struct {
						ID     json.RawMessage
						Method string
					}
					if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil || m.Method == "" {
						continue
					}
					out := ""
					switch m.Method {
					case "initialize":
						out = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}`, m.ID)
					case "server/discover":
						out = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
					default:
						out = answer(string(m.ID))
					}
					if _, err := io.WriteString(theirs, out+"\n"); err != nil {
						return
					}
				}
			}()
			return ours, func() error { <-done; return nil }, nil
		}
	}, Server{Name: "peer", Command: []string{"x"}, Sandbox: "native"})
}

func TestServersOnAStreamThatLie(t *testing.T) {
	const ok = `"content":[{"type":"text","text":"right"}]`
	right := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{` + ok + `}}` }
	for name, c := range map[string]struct {
		answer func(id string) string
		want   string
	}{
		"lines that are no messages": {func(id string) string { return "starting…\n[]\n7\n\n" + right(id) }, ok},
		"answers to nothing": {func(id string) string {
			return right("99") + "\n" + right(`"x"`) + "\n" + right("null") + "\n" + right(id)
		}, ok},
		"an answer in another spelling": {func(id string) string { return strings.Replace(right(id), `"id":`+id, `"id":`+id+".0", 1) }, ok},
		"the right answer, and another": {func(id string) string { return right(id) + "\n" + strings.Replace(right(id), "right", "wrong", 1) }, ok},
		"a batch":                       {func(id string) string { return `[{"jsonrpc":"2.0","method":"notifications/x"},` + right(id) + `]` }, ok},
		"batches in batches": {func(id string) string {
			return strings.Repeat("[", 80_000) + strings.Repeat("]", 80_000) + "\n" + right(id)
		}, ok},
		"a request under the call's id": {func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` + "\n" + right(id) }, ok},
		"progress that nobody asked for": {func(id string) string {
			return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}` + "\n" + right(id)
		}, ok},
		"an answer that is too long":         {func(id string) string { return strings.Replace(right(id), "right", strings.Repeat("x", 300_000), 1) }, "longer than"},
		"a result that can be read two ways": {func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":{` + ok + `},"Result":{}}` }, "two ways"},
	} {
		t.Run(name, func(t *testing.T) {
			f := scripted(t, func(c *Config) { c.Limits.Message = 200_000 }, c.answer)
			id := f.session("/mcp/peer")
			_, got := f.do("POST", "/mcp/peer", callBody("1", "echo", "{}"), headerSession, id)
			if got = message(got); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":1`) {
				t.Errorf("with a session: %s", got)
			}
			body, headers := statelessCall(`"a"`, "echo", "{}")
			_, got = f.do("POST", "/mcp/peer", body, headers...)
			if got = message(got); !strings.Contains(got, c.want) || !strings.Contains(got, `"id":"a"`) {
				t.Errorf("without: %s", got)
			}
		})
	}
}

// Clients that share a server's stream use the same ids and progress tokens,
// and each gets its own.
func TestClientsOfOneStreamAreKeptApart(t *testing.T) {
	f := scripted(t, nil, func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%[1]s,"progress":%[1]s}}`+"\n"+`{"jsonrpc":"2.0","id":%[1]s,"result":{"content":[{"type":"text","text":"wire %[1]s"}]}}`, id)
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 20 {
		wg.Go(func() {
			body, headers := statelessCall("1", "echo", "{}")
			body = strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":"mine",`, 1)
			_, got := f.do("POST", "/mcp/peer", body, headers...)
			last := message(got)
			if !strings.Contains(last, `"id":1,`) || strings.Count(got, `"progressToken":"mine"`) != 1 {
				t.Errorf("%s", got)
			}
			// The progress is that of the same request.
			wire := last[strings.Index(last, "wire ")+5 : strings.LastIndex(last, `"}]`)]
			if !strings.Contains(got, `"progress":`+wire+"}") {
				t.Errorf("%s", got)
			}
			mu.Lock()
			seen[wire] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(seen) != 20 {
		t.Errorf("%d answers", len(seen))
	}
}
