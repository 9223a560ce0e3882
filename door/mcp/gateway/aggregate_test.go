package gateway

import (
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

	"github.com/cordon-sandbox/cordon"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// recorded is a server that keeps what it was sent, and has one tool.
func recorded(t testing.TB, name, tool string) (Server, func() string) {
	var mu sync.Mutex
	var got []string
	s := plainServer(t, func(w http.ResponseWriter, method string, id json.RawMessage, body []byte) {
		switch method {
		case "tools/list":
			cursor := string(body)
			if strings.Contains(cursor, `"cursor":"2"`) {
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"last","x":{"unknown":1.0}}]}}`, id)
				return
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":%q}],"nextCursor":"2"}}`, id, tool)
		default:
			text, _ := json.Marshal(name + " ran")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, id, text)
		}
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, string(body))
		mu.Unlock()
		resp, err := http.Post(s.URL, "application/json", strings.NewReader(string(body)))
		if err != nil {
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: name, URL: srv.URL}, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(got, "\n")
	}
}

func TestToolsOfOneNameAreOfTwoServers(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		a, _ := recorded(t, "a", "read")
		b, _ := recorded(t, "b", "read")
		g := newGuard()
		f := start(t, g, nil, a, b, Server{Name: "down", URL: "http://127.0.0.1:9/mcp"})
		c := f.connect("/mcp", legacy, nil)
		list, err := c.ListTools(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != "a__read a__last b__read b__last" {
			t.Errorf("%s", got)
		}
		for tool, want := range map[string]string{"a__read": "a ran", "b__read": "b ran", "c__read": "no such tool", "read": "no such tool", "down__x": "did not answer", "a__": "a ran"} {
			r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
			text := fmt.Sprint(err)
			if err == nil {
				text = textOf(r)
			}
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s", tool, text)
			}
		}
		for _, call := range g.decided() {
			if call.Malformed == "" && strings.Contains(call.Tool, nameSep) {
				t.Errorf("judged under a prefixed name: %+v", call)
			}
		}
	}
}

// A token sees the servers that it may use and no others.
func TestATokensServersAreAllThatItSees(t *testing.T) {
	a, gotA := recorded(t, "a", "read")
	b, gotB := recorded(t, "b", "read")
	f := start(t, newGuard(), func(c *Config) { c.Tokens[0].Servers = []string{"b"} }, a, b)
	c := f.connect("/mcp", true, nil)
	list, err := c.ListTools(context.Background(), nil)
	if err != nil || len(list.Tools) != 2 || list.Tools[0].Name != "b__read" {
		t.Errorf("%v %+v", err, list)
	}
	if r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "a__read"}); err != nil || !r.IsError {
		t.Errorf("%v %+v", err, r)
	}
	if gotA() != "" || gotB() == "" {
		t.Errorf("a got %q", gotA())
	}
}

// A notification is judged for one server, and may do nothing at another.
func TestNotificationsDoNotSpreadToAllServers(t *testing.T) {
	a, gotA := recorded(t, "a", "read")
	b, gotB := recorded(t, "b", "read")
	g := newGuard()
	f := start(t, g, nil, a, b)
	id := f.session("/mcp")
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"read","arguments":{"path":"smuggled"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/run","params":{"name":"read","arguments":{"path":"smuggled"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/x","params":{"path":"smuggled"}}`,
	} {
		f.do("POST", "/mcp", body, headerSession, id)
	}
	f.do("POST", "/mcp", callBody("1", "b__read", "{}"), headerSession, id)
	if all := gotA() + gotB(); strings.Contains(all, "smuggled") {
		t.Errorf("%s", all)
	}
}

func TestAServersProcessesAreBounded(t *testing.T) {
	f := start(t, newGuard(), func(c *Config) { c.Limits.Processes = 1 }, stdioServer())
	id := f.session("/mcp/peer")
	if _, got := f.do("POST", "/mcp/peer", helloBody); !strings.Contains(got, "too many processes") {
		t.Errorf("a second one: %s", got)
	}
	f.do("DELETE", "/mcp/peer", "", headerSession, id)
	if _, got := f.do("POST", "/mcp/peer", helloBody); !strings.Contains(got, "protocolVersion") {
		t.Errorf("after the first ended: %s", got)
	}
}

// A server inside walls is one whose stream another package makes.
func TestAServerIsStartedInTheRuntimeThatItNames(t *testing.T) {
	var started []string
	var ended sync.WaitGroup
	server := Server{Name: "peer", Command: []string{"server", "-x"}, Env: []string{"A=b"}, Sandbox: "native"}
	f := start(t, newGuard(), func(c *Config) {
		c.StartSandboxed = func(_ context.Context, run cordon.Run, runtime string, argv, env []string) (io.ReadWriteCloser, func() error, error) {
			started = append(started, fmt.Sprint(runtime, argv, env, run.Agent, run.Tier))
			ours, theirs := net.Pipe()
			ended.Add(1)
			done := make(chan error, 1)
			go func() {
				defer ended.Done()
				done <- sdkServer().Run(context.Background(), &mcp.IOTransport{Reader: theirs, Writer: theirs})
			}()
			return ours, func() error { return <-done }, nil
		}
	}, server)
	c := f.connect("/mcp/peer", true, nil)
	r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
	if err != nil || textOf(r) != `{"a":1}` {
		t.Errorf("%v %+v", err, r)
	}
	if len(started) != 1 || !strings.HasPrefix(started[0], "native[server -x] [A=b]") || !strings.Contains(started[0], "agent-a") || !strings.Contains(started[0], "supervised") {
		t.Errorf("%q", started)
	}
	f.g.Close()
	ended.Wait()
}

func TestWhatIsWrongWithAConfigurationIsSaid(t *testing.T) {
	good := func() Config {
		return Config{Guard: newGuard(), Servers: []Server{{Name: "a", URL: "http://127.0.0.1:9/"}}, Tokens: []Token{{Identity{Name: "t", Servers: []string{"*"}}, HashSecret("x")}}}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no guard":                      {func(c *Config) { c.Guard = nil }, "no guard"},
		"no servers":                    {func(c *Config) { c.Servers = nil }, "no servers"},
		"no tokens":                     {func(c *Config) { c.Tokens = nil }, "no tokens"},
		"a server without a name":       {func(c *Config) { c.Servers[0].Name = "" }, "server name"},
		"a name with the separator":     {func(c *Config) { c.Servers[0].Name = "a__b" }, "server name"},
		"a name that ends with half":    {func(c *Config) { c.Servers[0].Name = "a_" }, "server name"},
		"a name with a slash":           {func(c *Config) { c.Servers[0].Name = "a/b" }, "server name"},
		"two servers of a name":         {func(c *Config) { c.Servers = append(c.Servers, c.Servers[0]) }, "stands twice"},
		"a command and a URL":           {func(c *Config) { c.Servers[0].Command = []string{"x"} }, "either a command or a url"},
		"a URL of another kind":         {func(c *Config) { c.Servers[0].URL = "file:///x" }, "want http"},
		"a sandbox that nobody has":     {func(c *Config) { c.Servers[0] = Server{Name: "a", Command: []string{"x"}, Sandbox: "native"} }, "sandbox"},
		"a token for no servers":        {func(c *Config) { c.Tokens[0].Servers = nil }, "names no servers"},
		"a token for an unknown server": {func(c *Config) { c.Tokens[0].Servers = []string{"b"} }, "unknown server"},
		"a token without a hash":        {func(c *Config) { c.Tokens[0].Hash = "" }, "SHA-256"},
		"a token in the clear":          {func(c *Config) { c.Tokens[0].Hash = "cordon_abc" }, "SHA-256"},
		"two tokens of a secret": {func(c *Config) {
			c.Tokens = append(c.Tokens, Token{Identity{Name: "u", Servers: []string{"*"}}, HashSecret("x")})
		}, "secret of another"},
		"two tokens of a name": {func(c *Config) {
			c.Tokens = append(c.Tokens, Token{Identity{Name: "t", Servers: []string{"*"}}, HashSecret("y")})
		}, "token name"},
		"an origin with a path":           {func(c *Config) { c.Origins = []string{"https://a/b"} }, "origin"},
		"every origin":                    {func(c *Config) { c.Origins = []string{"*"} }, "origin"},
		"every host":                      {func(c *Config) { c.Hosts = []string{"*"} }, "host"},
		"a negative limit":                {func(c *Config) { c.Limits.Sessions = -1 }, "negative limit"},
		"an anonymous one for no servers": {func(c *Config) { c.Tokens, c.Anonymous = nil, &Identity{} }, "names no servers"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			c.change(&cfg)
			g, err := New(cfg)
			if err == nil {
				g.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	g, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
}

func TestASecretIsRandomAndItsHashIsWhatIsKept(t *testing.T) {
	a, hash := NewSecret()
	b, _ := NewSecret()
	if a == b || len(a) < 32 || HashSecret(a) != hash || strings.Contains(hash, a) {
		t.Errorf("%q %q %q", a, b, hash)
	}
}

// A tool that wants an argument in a header gets it from clients of revisions
// that know nothing of it, at a server that insists.
func TestArgumentsThatAServerWantsInHeaders(t *testing.T) {
	s := sdkServer()
	s.AddTool(&mcp.Tool{Name: "regional", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			h := r.Extra.Header
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: h.Get("Mcp-Param-Region") + "|" + h.Get("Mcp-Param-N")}}}, nil
		})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerVersion) != newest {
			http.Error(w, "unsupported", http.StatusBadRequest)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	f := start(t, newGuard(), nil, Server{Name: "peer", URL: srv.URL})
	for _, legacy := range []bool{true, false} {
		for _, path := range []string{"/mcp/peer", "/mcp"} {
			c := f.connect(path, legacy, nil)
			list, err := c.ListTools(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			name := ""
			for _, tool := range list.Tools {
				if strings.HasSuffix(tool.Name, "regional") {
					name = tool.Name
				}
			}
			r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{"region": "zürich", "in": map[string]any{"n": 7}}})
			if err != nil || textOf(r) != "=?base64?esO8cmljaA==?=|7" {
				t.Errorf("session %v at %s: %v %+v", legacy, path, err, r)
			}
		}
	}
}

func FuzzMirrored(f *testing.F) {
	f.Add(`{"result":{"tools":[{"name":"a","inputSchema":{"properties":{"x":{"x-mcp-header":"X","properties":{"y":{"x-mcp-header":"Y"}}}}}}]}}`, `{"x":1}`)
	f.Fuzz(func(t *testing.T, list, args string) {
		if !json.Valid([]byte(list)) || !json.Valid([]byte(args)) {
			return
		}
		u := &upstream{}
		u.learnsHeaders([]byte(list))
		h := map[string]string{}
		e, ok := mcpEnvelope(`{"id":1,"method":"tools/call","params":{"name":"a","arguments":` + args + `}}`)
		if !ok {
			return
		}
		u.mirror(h, &e)
		for k, v := range h {
			if strings.ContainsAny(k+v, "\r\n\x00") || !token(strings.TrimPrefix(k, headerParam)) {
				t.Fatalf("%q: %q", k, v)
			}
		}
	})
}
