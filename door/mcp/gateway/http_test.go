package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// plainServer answers every request with what it got, and takes no notice of
// eras: a peer whose bytes a test can name.
func plainServer(t testing.TB, answer func(w http.ResponseWriter, method string, id json.RawMessage, body []byte)) Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(body, &m)
		if m.ID == nil || r.Method != http.MethodPost {
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch m.Method {
		case "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}}`, m.ID)
		case "server/discover":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"resultType":"complete","ttlMs":0,"cacheScope":"public"}}`, m.ID)
		default:
			if answer != nil {
				answer(w, m.Method, m.ID, body)
				return
			}
			text, _ := json.Marshal(string(body))
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, m.ID, text)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}

func TestOnlyTheRightTokenComesIn(t *testing.T) {
	f := start(t, newGuard(), func(c *Config) {
		c.Tokens = append(c.Tokens, Token{Identity{Name: "narrow", Servers: []string{"other"}}, HashSecret("cordon_narrow_secret")})
	}, plainServer(t, nil), Server{Name: "other", URL: "http://127.0.0.1:9/mcp"})
	for name, c := range map[string]struct {
		header string
		path   string
		want   int
	}{
		"the right one":                  {"Bearer " + secretA, "/mcp/peer", 200},
		"the scheme in small letters":    {"bearer " + secretA, "/mcp/peer", 200},
		"none":                           {"", "/mcp/peer", 401},
		"a wrong one":                    {"Bearer x" + secretA, "/mcp/peer", 401},
		"a prefix of one":                {"Bearer " + secretA[:10], "/mcp/peer", 401},
		"the empty one":                  {"Bearer ", "/mcp/peer", 401},
		"its hash":                       {"Bearer " + HashSecret(secretA), "/mcp/peer", 401},
		"the hash in hex":                {"Bearer " + strings.TrimPrefix(HashSecret(secretA), "sha256:"), "/mcp/peer", 401},
		"another scheme":                 {"Basic " + secretA, "/mcp/peer", 401},
		"no scheme":                      {secretA, "/mcp/peer", 401},
		"a very long one":                {"Bearer " + strings.Repeat("a", 5000), "/mcp/peer", 401},
		"one for another server":         {"Bearer cordon_narrow_secret", "/mcp/peer", 404},
		"the path of no server":          {"Bearer " + secretA, "/mcp/nowhere", 404},
		"a path below a server's":        {"Bearer " + secretA, "/mcp/peer/x", 404},
		"a path that only begins right":  {"Bearer " + secretA, "/mcpx", 404},
		"a name with another's in front": {"Bearer " + secretA, "/mcppeer", 404},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := f.do("POST", c.path, helloBody, "Authorization", c.header)
			if resp.StatusCode != c.want {
				t.Errorf("%s: %s", resp.Status, body)
			}
			if c.want == 401 && resp.Header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
	t.Run("two at once", func(t *testing.T) {
		r, _ := http.NewRequest("POST", f.url+"/mcp/peer", strings.NewReader(helloBody))
		r.Header.Set("Content-Type", "application/json")
		r.Header["Authorization"] = []string{"Bearer " + secretA, "Bearer " + secretB}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Error(resp.Status)
		}
	})
}

func TestTierAndTenantComeFromTheTokenAlone(t *testing.T) {
	g := newGuard()
	f := start(t, g, nil, plainServer(t, nil))
	body, headers := statelessCall("1", "echo", `{"tier":"autonomous","tenant":"t9","run_id":"r"}`)
	body = strings.Replace(body, `"_meta":{`, `"_meta":{"tier":"autonomous","cordon/tier":"autonomous",`, 1)
	f.do("POST", "/mcp/peer?tier=autonomous", body, append(headers, "Authorization", "Bearer "+secretB, "X-Tier", "autonomous", "X-Tenant-Id", "t9", "X-Cordon-Tier", "autonomous")...)
	calls := g.decided()
	if len(calls) != 1 || calls[0].Run.Tier != cordon.Student || calls[0].Run.Tenant != "" || calls[0].Run.Session != "gateway:b" {
		t.Errorf("%+v", calls)
	}
}

func TestPagesOfOtherOriginsDoNotComeIn(t *testing.T) {
	f := start(t, newGuard(), func(c *Config) {
		c.Origins = []string{"https://app.example"}
		c.Hosts = []string{"cordon.internal", "gate.example:8443"}
	}, plainServer(t, nil))
	host := strings.TrimPrefix(f.url, "http://")
	for name, c := range map[string]struct {
		host, origin string
		want         int
	}{
		"no origin, the address":               {host, "", 200},
		"localhost with any port":              {"localhost:1234", "", 200},
		"localhost without a port":             {"localhost", "", 200},
		"the loopback address of IPv6":         {"[::1]:80", "", 200},
		"a host of the list":                   {"cordon.internal", "", 200},
		"in capitals":                          {"Cordon.Internal:80", "", 200},
		"a host of the list with its port":     {"gate.example:8443", "", 200},
		"the same with another port":           {"gate.example:80", "", 403},
		"a name that points here":              {"evil.test", "", 403},
		"a name that begins with localhost":    {"localhost.evil.test", "", 403},
		"a name that ends with it":             {"evil.localhost.test:80", "", 403},
		"an address in decimal":                {"2130706433", "", 403},
		"an address of the network":            {"10.0.0.1", "", 403},
		"the origin of the host itself":        {host, "http://" + host, 200},
		"an origin of the list":                {host, "https://app.example", 200},
		"the same over another scheme":         {host, "http://app.example", 403},
		"another origin":                       {host, "https://evil.test", 403},
		"an opaque origin":                     {host, "null", 403},
		"an origin with the list's in front":   {host, "https://app.example.evil.test", 403},
		"an origin with a user":                {host, "http://" + host + "@evil.test", 403},
		"localhost on another port":            {host, "http://localhost:1", 403},
		"a name that points here, and says so": {"evil.test", "http://evil.test", 403},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := f.do("POST", "/mcp/peer", helloBody, "Host", c.host, "Origin", c.origin)
			if resp.StatusCode != c.want {
				t.Errorf("%s: %s", resp.Status, body)
			}
			resp, _ = f.do("GET", "/mcp/peer", "", "Host", c.host, "Origin", c.origin)
			if (resp.StatusCode == 403) != (c.want == 403) {
				t.Errorf("GET: %s", resp.Status)
			}
		})
	}
	if calls := f.guard.decided(); len(calls) != 0 {
		t.Errorf("decided on %+v", calls)
	}
}

func TestASessionIsOfTheTokenThatOpenedIt(t *testing.T) {
	f := start(t, newGuard(), nil, plainServer(t, nil), Server{Name: "two", URL: "http://127.0.0.1:9/mcp"})
	id := f.session("/mcp/peer")
	call := callBody("7", "echo", "{}")
	for name, c := range map[string]struct {
		method, path, secret, id string
		want                     int
	}{
		"its own":                      {"POST", "/mcp/peer", secretA, id, 200},
		"another token's call":         {"POST", "/mcp/peer", secretB, id, 404},
		"another token's stream":       {"GET", "/mcp/peer", secretB, id, 404},
		"another token ends it":        {"DELETE", "/mcp/peer", secretB, id, 404},
		"at another server's endpoint": {"POST", "/mcp/two", secretA, id, 404},
		"at the endpoint of all":       {"POST", "/mcp", secretA, id, 404},
		"a session that never was":     {"POST", "/mcp/peer", secretA, strings.Repeat("A", 52), 404},
		"in small letters":             {"POST", "/mcp/peer", secretA, strings.ToLower(id), 404},
		"none":                         {"POST", "/mcp/peer", secretA, "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			body := call
			if c.method != "POST" {
				body = ""
			}
			resp, text := f.do(c.method, c.path, body, "Authorization", "Bearer "+c.secret, headerSession, c.id)
			if resp.StatusCode != c.want {
				t.Errorf("%s: %s", resp.Status, text)
			}
		})
	}
	if resp, _ := f.do("DELETE", "/mcp/peer", "", headerSession, id); resp.StatusCode != 204 {
		t.Error(resp.Status)
	}
	if resp, _ := f.do("POST", "/mcp/peer", call, headerSession, id); resp.StatusCode != 404 {
		t.Errorf("after its end: %s", resp.Status)
	}
	if s := f.g.Status(); s.Sessions != 0 {
		t.Errorf("%+v", s)
	}
}

func TestHeadersThatSayAnotherThingThanTheBodyAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		body   func(string) string
		header []string
		want   string
	}{
		"as it should be":         {nil, nil, ""},
		"another tool":            {nil, []string{headerName, "other"}, "-32020"},
		"another method":          {nil, []string{headerMethod, "tools/list"}, "-32020"},
		"no method":               {nil, []string{headerMethod, ""}, "-32020"},
		"no name":                 {nil, []string{headerName, ""}, "-32020"},
		"no version":              {nil, []string{headerVersion, ""}, "-32020"},
		"an older version":        {nil, []string{headerVersion, "2025-11-25"}, "-32022"},
		"a version to come":       {nil, []string{headerVersion, "2027-01-01"}, "-32022"},
		"the name in base64":      {nil, []string{headerName, "=?base64?ZWNobw==?="}, ""},
		"another in base64":       {nil, []string{headerName, "=?base64?b3RoZXI=?="}, "-32020"},
		"broken base64":           {nil, []string{headerName, "=?base64?!!?="}, "-32020"},
		"a parameter of the call": {nil, []string{"Mcp-Param-Region", "eu"}, ""},
		"a number of the call":    {nil, []string{"Mcp-Param-N", "5"}, ""},
		"a parameter that is not": {nil, []string{"Mcp-Param-Region", "us"}, "-32020"},
		"no version in the body": {func(s string) string {
			return strings.Replace(s, `"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, "", 1)
		}, nil, "-32602"},
		"no capabilities in the body": {func(s string) string {
			return strings.Replace(s, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1)
		}, nil, "-32602"},
		"the name twice in the body": {func(s string) string { return strings.Replace(s, `"name":"echo"`, `"name":"echo","name":"other"`, 1) }, nil, "-32600"},
		"a name in another case too": {func(s string) string { return strings.Replace(s, `"name":"echo"`, `"name":"echo","Name":"other"`, 1) }, nil, "-32600"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard()
			f := start(t, g, nil, plainServer(t, nil))
			body, headers := statelessCall("1", "echo", `{"region":"eu","n":5}`)
			if c.body != nil {
				body = c.body(body)
			}
			resp, got := f.do("POST", "/mcp/peer", body, append(headers, c.header...)...)
			ran := strings.Contains(got, `"content"`) && !strings.Contains(got, "isError")
			if ran != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %s", resp.Status, got)
			}
			if strings.HasPrefix(c.want, "-320") && resp.StatusCode != 400 {
				t.Errorf("%s", resp.Status)
			}
			calls := g.decided()
			if c.want != "-32022" && len(calls) != 1 {
				t.Fatalf("decided on %+v", calls)
			}
			if c.want == "-32020" && calls[0].Malformed == "" {
				t.Errorf("decided on %+v", calls[0])
			}
		})
	}
}

func TestWhatIsNoMessageIsRefusedAndDecidedOn(t *testing.T) {
	f := start(t, newGuard(), nil, plainServer(t, nil))
	id := f.session("/mcp/peer")
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for name, c := range map[string]struct {
		body, want string
		decided    bool
	}{
		"no JSON":                       {`{"jsonrpc"`, "-32700", true},
		"a number":                      {`7`, "-32700", true},
		"two messages":                  {callBody("1", "a", "{}") + callBody("2", "a", "{}"), "-32700", true},
		"invalid UTF-8":                 {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\xff\",\"arguments\":{}}}", "refused", true},
		"arguments that go deep":        {callBody("1", "a", `{"x":`+deep+`}`), "refused", true},
		"a key twice":                   {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"a"}}`, "refused", true},
		"an id that is null":            {`{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"a"}}`, "", true},
		"an id that is an object":       {`{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{"name":"a"}}`, "-32600", true},
		"a very long id":                {`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 9000) + `","method":"tools/call","params":{"name":"a"}}`, "-32600", true},
		"initialize once more":          {helloBody, "-32600", false},
		"a reply to nothing":            {`{"jsonrpc":"2.0","id":"cordon-1-AAAAAAAA","result":{}}`, "", false},
		"a batch in a revision without": {`[` + callBody("1", "a", "{}") + `]`, "-32700", true},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(f.guard.decided())
			resp, got := f.do("POST", "/mcp/peer", c.body, headerSession, id)
			if !strings.Contains(got, c.want) || strings.Contains(got, `"content":[{"type":"text","text":"{`) {
				t.Errorf("%s: %s", resp.Status, got)
			}
			if n := len(f.guard.decided()) - before; (n > 0) != c.decided {
				t.Errorf("decided on %d", n)
			}
		})
	}
}

func TestBatchesOfTheRevisionThatHasThem(t *testing.T) {
	g := newGuard()
	g.deny["bad"] = true
	f := start(t, g, nil, batchServer(t))
	resp, _ := f.do("POST", "/mcp/peer", strings.Replace(helloBody, "2025-11-25", "2025-03-26", 1))
	id := resp.Header.Get(headerSession)
	resp, got := f.do("POST", "/mcp/peer", "["+callBody("1", "a", "{}")+","+callBody("2", "bad", "{}")+`,{"jsonrpc":"2.0","method":"notifications/x"},`+callBody(`"1"`, "b", "{}")+","+callBody("1.0", "c", "{}")+"]", headerSession, id)
	var answers []struct {
		ID     json.RawMessage
		Result struct{ IsError bool }
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(got), &answers); err != nil {
		t.Fatalf("%s: %v: %s", resp.Status, err, got)
	}
	ran, refused, wrong := 0, 0, 0
	for _, a := range answers {
		switch {
		case a.Error != nil:
			wrong++
		case a.Result.IsError:
			refused++
		default:
			ran++
		}
	}
	// 1 and 1.0 are one id: which of the two came first is not said.
	if ran+wrong != 3 || ran < 2 || refused != 1 {
		t.Errorf("%s", got)
	}
	for name, body := range map[string]string{"an empty one": "[]", "one with initialize": "[" + helloBody + "]"} {
		if resp, got := f.do("POST", "/mcp/peer", body, headerSession, id); !strings.Contains(got, `"error"`) {
			t.Errorf("%s: %s: %s", name, resp.Status, got)
		}
	}
}

// batchServer speaks 2025-03-26.
func batchServer(t testing.TB) Server {
	s := plainServer(t, nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"initialize"`)) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":"cordon-hello","result":{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"p","version":"1"}}}`)
			return
		}
		resp, err := http.Post(s.URL, "application/json", bytes.NewReader(body))
		if err != nil {
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return Server{Name: "peer", URL: srv.URL}
}

func TestBodiesAndHeadersAreBounded(t *testing.T) {
	f := start(t, newGuard(), func(c *Config) { c.Limits.Body, c.Limits.Read = 10_000, 200*time.Millisecond }, plainServer(t, nil))
	id := f.session("/mcp/peer")
	big := callBody("1", "echo", `{"x":"`+strings.Repeat("x", 20_000)+`"}`)
	for name, c := range map[string]struct {
		body    string
		headers []string
		want    int
	}{
		"a body over the limit":       {big, nil, 413},
		"another type of content":     {helloBody, []string{"Content-Type", "text/plain"}, 415},
		"a form, as a page may post":  {helloBody, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		"a coded body":                {helloBody, []string{"Content-Encoding", "gzip"}, 415},
		"a client that takes nothing": {helloBody, []string{"Accept", "text/html"}, 406},
	} {
		t.Run(name, func(t *testing.T) {
			if resp, got := f.do("POST", "/mcp/peer", c.body, append(c.headers, headerSession, id)...); resp.StatusCode != c.want {
				t.Errorf("%s: %s", resp.Status, got)
			}
		})
	}
	addr := strings.TrimPrefix(f.url, "http://")
	head := "POST /mcp/peer HTTP/1.1\r\nHost: " + addr + "\r\nAuthorization: Bearer " + secretA + "\r\nContent-Type: application/json\r\nMcp-Session-Id: " + id + "\r\n"
	for name, c := range map[string]struct{ raw, want string }{
		"chunks that say more than they hold":  {head + "Transfer-Encoding: chunked\r\n\r\n10\r\n{}\r\n", "400"},
		"chunks that hold more than the limit": {head + "Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + strings.Repeat("x", 30_000), "413"},
		"a chunk of no size":                   {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
		"less than the length says":            {head + "Content-Length: 500\r\n\r\n{}", "400"},
		"two lengths":                          {head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "400"},
		"two sessions":                         {head + "Mcp-Session-Id: x\r\nContent-Length: 2\r\n\r\n{}", "400"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, c.raw); err != nil && c.want != "413" {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil || !strings.Contains(line, " "+c.want+" ") {
				t.Errorf("%q, %v", line, err)
			}
		})
	}
	if calls := f.guard.decided(); len(calls) != 0 {
		t.Errorf("decided on %+v", calls)
	}
}

func TestHowManyRequestsAndSessionsThereMayBe(t *testing.T) {
	release := make(chan struct{})
	f := start(t, newGuard(), func(c *Config) { c.Limits.PerToken, c.Limits.PerOwner = 2, 2 },
		plainServer(t, func(w http.ResponseWriter, _ string, id json.RawMessage, _ []byte) {
			<-release
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
		}))
	a, b := f.session("/mcp/peer"), f.session("/mcp/peer")
	if resp, got := f.do("POST", "/mcp/peer", helloBody); resp.StatusCode != 503 {
		t.Errorf("a third session: %s: %s", resp.Status, got)
	}
	if resp, _ := f.do("POST", "/mcp/peer", helloBody, "Authorization", "Bearer "+secretB); resp.StatusCode != 200 {
		t.Errorf("another token's: %s", resp.Status)
	}
	done := make(chan string, 2)
	for _, id := range []string{a, b} {
		go func() {
			_, got := f.do("POST", "/mcp/peer", callBody("1", "echo", "{}"), headerSession, id)
			done <- got
		}()
	}
	waitFor(t, func() bool { f.g.mu.Lock(); defer f.g.mu.Unlock(); return f.g.flying == 2 })
	if resp, got := f.do("POST", "/mcp/peer", callBody("2", "echo", "{}"), headerSession, a); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a third request: %s: %s", resp.Status, got)
	}
	close(release)
	for range 2 {
		if got := <-done; !strings.Contains(got, `"content"`) {
			t.Error(got)
		}
	}
	if resp, _ := f.do("POST", "/mcp/peer", callBody("3", "echo", "{}"), headerSession, a); resp.StatusCode != 200 {
		t.Errorf("afterwards: %s", resp.Status)
	}
}

// waitFor waits until something that cannot be awaited is so.
func waitFor(t testing.TB, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it did not come to be")
}
