package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tests' stdio server is this binary, run again under another name.
const fakeEnv = "CORDON_GATEWAY_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) != "" {
		if err := sdkServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sdkServer is a peer that knows nothing of Cordon.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	s.AddTool(&mcp.Tool{Name: "echo", Description: "Says what it was given.", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	s.AddTool(&mcp.Tool{Name: "secret", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ran"}}}, nil
		})
	s.AddTool(&mcp.Tool{Name: "slow", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1}); err != nil {
				return nil, err
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	s.AddTool(&mcp.Tool{Name: "crash", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if os.Getenv(fakeEnv) != "" {
				os.Exit(3)
			}
			return &mcp.CallToolResult{}, nil
		})
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, askTool)
	s.AddResource(&mcp.Resource{Name: "note", URI: "test://note"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "test://note", Text: "a note"}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "hello"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "hello"}}}}, nil
	})
	return s
}

// askTool asks the client's user for a name, in whichever way the client has.
func askTool(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r.Params.InputResponses == nil {
		return &mcp.CallToolResult{RequestState: "state-1", InputRequests: mcp.InputRequestMap{"who": &mcp.ElicitParams{
			Message: "Who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
		}}}, nil
	}
	got, ok := r.Params.InputResponses["who"].(*mcp.ElicitResult)
	if !ok {
		return nil, fmt.Errorf("no answer: %+v", r.Params.InputResponses)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("hello ", got.Content["name"])}}}, nil
}

// The upstreams of the translation table.
func httpServer(t testing.TB, stateless bool) Server {
	s := sdkServer()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true})
	srv := httptest.NewServer(h)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}

func sseServer(t testing.TB) Server {
	s := sdkServer()
	srv := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL, SSE: true}
}

func stdioServer() Server {
	return Server{Name: "peer", Command: []string{os.Args[0]}, Env: append(os.Environ(), fakeEnv+"=1")}
}

const secretA, secretB = "cordon_token_of_a_for_tests", "cordon_token_of_b_for_tests"

type fixture struct {
	t     testing.TB
	g     *Gateway
	guard *fakeGuard
	url   string
}

func start(t testing.TB, guard *fakeGuard, change func(*Config), servers ...Server) *fixture {
	t.Helper()
	cfg := Config{Guard: guard, Mode: guard.mode, Servers: servers, Logf: func(f string, a ...any) { t.Logf(f, a...) },
		Tokens: []Token{
			{Identity{Name: "a", Tenant: "t1", Agent: "agent-a", Tier: cordon.Supervised, Servers: []string{"*"}}, HashSecret(secretA)},
			{Identity{Name: "b", Tier: cordon.Student, Servers: []string{"*"}}, HashSecret(secretB)},
		}}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		g.Close()
		srv.Close()
	})
	return &fixture{t: t, g: g, guard: guard, url: srv.URL}
}

// bearer adds a token to each request.
type bearer struct{ secret string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.secret)
	return http.DefaultTransport.RoundTrip(r)
}

// connect is a client of the SDK, of the newest revision or of one before it.
func (f *fixture) connect(path string, legacy bool, opts *mcp.ClientOptions) *mcp.ClientSession {
	f.t.Helper()
	s, err := f.tryConnect(path, legacy, opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func (f *fixture) tryConnect(path string, legacy bool, opts *mcp.ClientOptions) (*mcp.ClientSession, error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, opts)
	o := &mcp.ClientSessionOptions{}
	if legacy {
		o.ProtocolVersion = "2025-11-25"
	}
	return c.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: f.url + path, HTTPClient: &http.Client{Transport: bearer{secretA}}}, o)
}

// connectSSE is a client of the transport of 2024-11-05.
func (f *fixture) connectSSE(path string, opts *mcp.ClientOptions) *mcp.ClientSession {
	f.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, opts)
	s, err := c.Connect(context.Background(), &mcp.SSEClientTransport{Endpoint: f.url + path, HTTPClient: &http.Client{Transport: bearer{secretA}}},
		&mcp.ClientSessionOptions{ProtocolVersion: "2024-11-05"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	return s
}

func textOf(r *mcp.CallToolResult) string {
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			return t.Text
		}
	}
	return ""
}

// do sends one request by hand.
func (f *fixture) do(method, path, body string, headers ...string) (*http.Response, string) {
	f.t.Helper()
	r, err := http.NewRequest(method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secretA)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch v := headers[i+1]; {
		case headers[i] == "Host":
			r.Host = v
		case v == "":
			r.Header.Del(headers[i])
		default:
			r.Header.Set(headers[i], v)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp, string(b)
}

// message is the last message of a response, whatever its form.
func message(body string) string {
	out := body
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "data: "); ok && data != "" {
			out = data
		}
	}
	return out
}

const helloBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// session opens a session by hand.
func (f *fixture) session(path string) string {
	f.t.Helper()
	resp, body := f.do("POST", path, helloBody)
	id := resp.Header.Get(headerSession)
	if resp.StatusCode != 200 || id == "" {
		f.t.Fatalf("%s: %s", resp.Status, body)
	}
	return id
}

const statelessMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func callBody(id, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

func statelessCall(id, tool, args string) (body string, headers []string) {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, id, tool, args, statelessMeta),
		[]string{headerVersion, newest, headerMethod, "tools/call", headerName, tool}
}

func TestEachRevisionReachesEachKindOfServer(t *testing.T) {
	for name, server := range map[string]func(testing.TB) Server{
		"a process":                         func(testing.TB) Server { return stdioServer() },
		"streamable HTTP with sessions":     func(t testing.TB) Server { return httpServer(t, false) },
		"streamable HTTP without":           func(t testing.TB) Server { return httpServer(t, true) },
		"the transport of 2024-11-05":       sseServer,
		"a server of 2026-07-28 alone":      func(t testing.TB) Server { return onlyStateless(t) },
		"a server that is of sessions only": func(t testing.TB) Server { return onlySessions(t) },
	} {
		for _, legacy := range []bool{true, false} {
			for _, path := range []string{"/mcp/peer", "/mcp"} {
				t.Run(fmt.Sprintf("%s, client with sessions %v, at %s", name, legacy, path), func(t *testing.T) {
					g := newGuard()
					g.deny["secret"] = true
					g.hide["crash"] = true
					f := start(t, g, nil, server(t))
					asked := false
					c := f.connect(path, legacy, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						asked = true
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
					}})
					// A server that keeps no sessions cannot ask a client that has one,
					// with or without a gateway.
					asks := !(legacy && name == "streamable HTTP without")
					checkPeer(t, f, c, path, asks)
					if asked != asks {
						t.Errorf("somebody was asked: %v", asked)
					}
				})
			}
		}
	}
}

func TestClientsOfTheOldTransport(t *testing.T) {
	for name, server := range map[string]func(testing.TB) Server{
		"a process":                     func(testing.TB) Server { return stdioServer() },
		"streamable HTTP with sessions": func(t testing.TB) Server { return httpServer(t, false) },
		"a server of 2026-07-28 alone":  onlyStateless,
		"the transport of 2024-11-05":   sseServer,
	} {
		for _, path := range []string{"/mcp/peer", "/mcp"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				g := newGuard()
				g.deny["secret"], g.hide["crash"] = true, true
				f := start(t, g, nil, server(t))
				asked := false
				c := f.connectSSE(strings.Replace(path, "/mcp", "/sse", 1), &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked = true
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
				}})
				checkPeer(t, f, c, path, true)
				if !asked {
					t.Error("nobody was asked")
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				waitFor(t, func() bool { return f.g.Status().Sessions == 0 })
			})
		}
	}
	t.Run("a session's own address is its token's", func(t *testing.T) {
		f := start(t, newGuard(), nil, plainServer(t, nil))
		id := f.session("/mcp/peer")
		for _, secret := range []string{secretA, secretB} {
			if resp, _ := f.do("POST", "/sse/peer?session="+id, callBody("1", "echo", "{}"), "Authorization", "Bearer "+secret); resp.StatusCode != 404 {
				t.Error(resp.Status)
			}
		}
	})
}

func checkPeer(t *testing.T, f *fixture, c *mcp.ClientSession, path string, asks bool) {
	ctx := context.Background()
	prefix, uri := "", ""
	if path == "/mcp" {
		prefix, uri = "peer__", "peer+"
	}
	tools, err := c.ListTools(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	if want := prefix + "ask " + prefix + "echo " + prefix + "secret " + prefix + "slow"; strings.Join(names, " ") != want {
		t.Errorf("tools %q, want %q", names, want)
	}
	// The bytes that were judged are the ones that arrive.
	args := json.RawMessage(`{"z": 1.0,"a":9007199254740993,"u":"\u00e9"}`)
	r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "echo", Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	calls := f.guard.decided()
	if last := calls[len(calls)-1]; textOf(r) != string(last.Args) || last.Tool != "echo" || last.Server != "peer" ||
		last.Run.Tier != cordon.Supervised || last.Run.Tenant != "t1" {
		t.Errorf("the server got %s, judged was %+v", textOf(r), last)
	}
	r, err = c.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "secret"})
	if err != nil || !r.IsError || !strings.Contains(textOf(r), "out of bounds") {
		t.Errorf("refused call: %v %+v", err, r)
	}
	if asks {
		r, err = c.CallTool(ctx, &mcp.CallToolParams{Name: prefix + "ask"})
		if err != nil || textOf(r) != "hello Ada" {
			t.Errorf("ask: %v %+v", err, r)
		}
	}
	res, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri + "test://note"})
	if err != nil || len(res.Contents) != 1 || res.Contents[0].Text != "a note" {
		t.Errorf("resource: %v %+v", err, res)
	}
	prompt, err := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: prefix + "hello"})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("prompt: %v %+v", err, prompt)
	}
	list, err := c.ListResources(ctx, nil)
	if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != uri+"test://note" {
		t.Errorf("resources: %v %+v", err, list)
	}
	f.guard.mu.Lock()
	defer f.guard.mu.Unlock()
	kinds := map[cordon.ChunkType]int{}
	for _, k := range f.guard.recorded {
		kinds[k.Type]++
	}
	if kinds[cordon.ToolOutput] < 1 || kinds[cordon.Retrieved] < 2 {
		t.Errorf("recorded %v", kinds)
	}
}

// onlyStateless refuses what comes without the headers of 2026-07-28.
func onlyStateless(t testing.TB) Server {
	s := sdkServer()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerVersion) != newest {
			http.Error(w, "unsupported", http.StatusBadRequest)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}

// onlySessions knows nothing of server/discover.
func onlySessions(t testing.TB) Server {
	s := sdkServer()
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(r.Body)
			if bytes.Contains(b, []byte(`"server/discover"`)) || bytes.Contains(b, []byte("io.modelcontextprotocol/protocolVersion")) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":"cordon-discover","error":{"code":-32601,"message":"no such method"}}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}
