package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/door/mcp"
)

func startHandler(t testing.TB, g *Gateway) string {
	srv := httptest.NewServer(g)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		g.Close()
		srv.Close()
	})
	return srv.URL
}

// FuzzBody sends a body to a session and to a stateless endpoint. Whatever it
// is, nothing panics or hangs, what is answered is JSON, and the server got
// nothing but what was decided on.
func FuzzBody(f *testing.F) {
	sent := make(chan []byte, 64)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e, ok := mcp.ReadEnvelope(body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !ok || e.ID == nil:
			w.WriteHeader(202)
		case e.Method == "initialize":
			_, _ = w.Write(mcp.ResultAnswer(e.ID, []byte(`{"protocolVersion":"2025-03-26","capabilities":{}}`)))
		case e.Method == "server/discover":
			_, _ = w.Write(mcp.ResultAnswer(e.ID, []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)))
		default:
			if e.Method == "tools/call" {
				sent <- body
			}
			_, _ = w.Write(mcp.ResultAnswer(e.ID, []byte(`{"content":[]}`)))
		}
	}))
	f.Cleanup(up.Close)
	guard := newGuard()
	fx := start(f, guard, func(c *Config) { c.Logf = nil; c.Limits.Call = 5 * time.Second }, Server{Name: "peer", URL: up.URL})
	f.Add(callBody("1", "echo", `{"a":1}`), "tools/call", "echo")
	stateless, _ := statelessCall("1", "echo", `{"a":1}`)
	f.Add(stateless, "tools/call", "echo")
	f.Add("["+callBody("1", "echo", "{}")+","+helloBody+"]", "", "")
	f.Add(`{"id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a"]},`+statelessMeta+`}}`, "subscriptions/listen", "")
	f.Add(`{"jsonrpc":"2.0","id":{},"result":{}}`, "x", "=?base64?x?=")
	f.Add(`{"id":1,"method":"tools/call","params":{"name":"a","requestState":"cordon:x","inputResponses":{}}}`, "", "")
	f.Fuzz(func(t *testing.T, body, method, name string) {
		if strings.ContainsAny(method+name, "\r\n\x00") || strings.Contains(body, "listen") && strings.Contains(body, "protocolVersion") {
			return // no header; or a stream that stays open
		}
		post := func(set func(http.Header)) {
			r := httptest.NewRequest("POST", "http://127.0.0.1/mcp/peer", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+secretA)
			set(r.Header)
			before := len(guard.decided())
			w := httptest.NewRecorder()
			fx.g.ServeHTTP(w, r)
			if out := message(w.Body.String()); out != "" && !json.Valid([]byte(out)) {
				t.Fatalf("answered %q", out)
			}
			calls := guard.decided()[before:]
			for {
				select {
				case got := <-sent:
					args := mcp.Member(got, "params", "arguments")
					if args == nil || string(args) == "null" {
						args = []byte(`{}`)
					}
					known := false
					for _, c := range calls {
						known = known || c.Malformed == "" && bytes.Equal(c.Args, args) && c.Tool == mcp.Text(mcp.Member(got, "params", "name"))
					}
					if !known {
						t.Fatalf("sent %s\ndecided %+v", got, calls)
					}
					continue
				default:
				}
				break
			}
		}
		r := httptest.NewRequest("POST", "http://127.0.0.1/mcp/peer", strings.NewReader(helloBody))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secretA)
		w := httptest.NewRecorder()
		fx.g.ServeHTTP(w, r)
		id := w.Header().Get(headerSession)
		post(func(h http.Header) { h.Set(headerSession, id) })
		post(func(h http.Header) {
			h.Set(headerVersion, newest)
			h.Set(headerMethod, method)
			h.Set(headerName, name)
		})
		r = httptest.NewRequest("DELETE", "http://127.0.0.1/mcp/peer", nil)
		r.Header.Set("Authorization", "Bearer "+secretA)
		r.Header.Set(headerSession, id)
		fx.g.ServeHTTP(httptest.NewRecorder(), r)
		guard.mu.Lock()
		guard.calls, guard.recorded, guard.cancels = nil, nil, map[string][]cancelFunc{}
		guard.mu.Unlock()
	})
}

// FuzzEvents reads event streams in pieces of any size as it does whole.
func FuzzEvents(f *testing.F) {
	f.Add("id: 1\nevent: message\ndata: {}\n\n: x\n\nretry: 5\ndata: a\ndata: b\r\n\r\n", 3)
	f.Add("data\ndata:\n\nid:\x00\n\n", 1)
	f.Fuzz(func(t *testing.T, stream string, size int) {
		read := func(r io.Reader) (out []serverEvent, err error) {
			e := newEventReader(r, 1000)
			for {
				ev, err := e.next()
				if err != nil {
					return out, err
				}
				if len(ev.data) > 1008 {
					t.Fatalf("%d bytes", len(ev.data))
				}
				out = append(out, ev)
			}
		}
		a, _ := read(strings.NewReader(stream))
		b, _ := read(&slowly{strings.NewReader(stream), max(1, size%7)})
		if len(a) != len(b) {
			t.Fatalf("%d events, in pieces %d", len(a), len(b))
		}
		for i := range a {
			if !bytes.Equal(a[i].data, b[i].data) || a[i].id != b[i].id {
				t.Fatalf("%+v, in pieces %+v", a[i], b[i])
			}
		}
	})
}

type slowly struct {
	r io.Reader
	n int
}

func (s *slowly) Read(b []byte) (int, error) { return s.r.Read(b[:min(len(b), s.n)]) }

func mcpEnvelope(msg string) (mcp.Envelope, bool) { return mcp.ReadEnvelope([]byte(msg)) }
