package llm

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

const realKey = "sk-real-0123456789abcdef"

// books is what a proxy reports to.
type books struct {
	mu       sync.Mutex
	cond     *sync.Cond
	charges  []Charge
	refusals []Refusal
	cap      float64 // 0: none
	spent    float64
	broken   bool // nothing can be stored or booked
	logs     strings.Builder
}

func newBooks() *books {
	b := &books{}
	b.cond = sync.NewCond(&b.mu)
	return b
}

func (b *books) charge(_ context.Context, c Charge) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return errors.New("disk full")
	}
	b.charges = append(b.charges, c)
	b.spent += c.USD
	b.cond.Broadcast()
	return nil
}

func (b *books) allowed(_ string, usd float64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cap > 0 && (b.spent >= b.cap || b.spent+usd > b.cap) {
		return fmt.Errorf("the run's %.2f US dollars are used up", b.cap)
	}
	return nil
}

func (b *books) record(_ context.Context, r Refusal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return errors.New("disk full")
	}
	b.refusals = append(b.refusals, r)
	b.cond.Broadcast()
	return nil
}

func (b *books) logf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(&b.logs, format+"\n", args...)
}

func (b *books) set(f func(*books)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

// await waits until there are n charges, and returns them.
func (b *books) await(t *testing.T, n int) []Charge {
	t.Helper()
	stop := context.AfterFunc(t.Context(), func() { b.set(func(b *books) { b.cond.Broadcast() }) })
	defer stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.charges) < n {
		if t.Context().Err() != nil {
			t.Fatal("the test ended before the charge came")
		}
		b.cond.Wait()
	}
	return slices.Clone(b.charges)
}

func (b *books) rules() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, r := range b.refusals {
		out = append(out, r.Rule)
	}
	return out
}

// provider is a local upstream that keeps what it was sent.
type provider struct {
	*httptest.Server
	mu   sync.Mutex
	seen []seenRequest
	// arrivals gets a value for each request, as long as there is room.
	arrivals chan struct{}
	// answer is called for each request.
	answer http.HandlerFunc
}

type seenRequest struct {
	Proto, Method, URI string
	Header             http.Header
	Body               string
}

func newProvider(t testing.TB, answer http.HandlerFunc) *provider {
	p := &provider{answer: answer, arrivals: make(chan struct{}, 64)}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.seen = append(p.seen, seenRequest{r.Proto, r.Method, r.RequestURI, r.Header.Clone(), string(body)})
		answer := p.answer
		p.mu.Unlock()
		select {
		case p.arrivals <- struct{}{}:
		default:
		}
		answer(w, r)
	}))
	p.Config.ErrorLog = newQuietLog()
	p.EnableHTTP2 = true // as the providers do
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

func (p *provider) requests() []seenRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (p *provider) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Certificate())
	return pool
}

// fixture is a proxy before one upstream for all three providers.
type fixture struct {
	*Proxy
	books *books
	up    *provider
	addr  string
}

func start(t testing.TB, answer http.HandlerFunc, edit func(*Config)) *fixture {
	t.Helper()
	f := &fixture{books: newBooks(), up: newProvider(t, answer)}
	key, err := NewSecret(realKey)
	if err != nil {
		t.Fatal(err)
	}
	give := func(context.Context) (Secret, error) { return key, nil }
	c := Config{
		Upstreams: []Upstream{
			{Provider: Anthropic, BaseURL: f.up.URL, Key: give},
			{Provider: OpenAI, BaseURL: f.up.URL + "/v1", Key: give},
			{Provider: Gemini, BaseURL: f.up.URL, Key: give},
		},
		Dial: new(net.Dialer).DialContext, RootCAs: f.up.pool(),
		Allowed: f.books.allowed, Charge: f.books.charge, Record: f.books.record, Logf: f.books.logf,
	}
	if edit != nil {
		edit(&c)
	}
	if f.Proxy, err = New(c); err != nil {
		t.Fatal(err)
	}
	f.addr = f.listen(t, "run")
	t.Cleanup(func() {
		f.up.CloseClientConnections()
		if err := f.Proxy.Close(); err != nil && !f.books.broken {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) listen(t testing.TB, run string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(context.Background(), l, run) }()
	t.Cleanup(func() {
		f.Proxy.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

// do sends a request with the placeholder; a nil edit changes nothing.
func (f *fixture) do(t testing.TB, method, path, body string, edit func(*http.Request)) (status int, text string, header http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+f.addr+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body == "" {
		req.Body = http.NoBody
	}
	// As it stands: net/url would clean it.
	before, query, _ := strings.Cut(path, "?")
	req.URL.Opaque = before
	if !strings.HasPrefix(before, "/") {
		t.Fatalf("path %q", path)
	}
	req.URL.RawQuery = query
	req.Header.Set("X-Api-Key", f.Placeholder("run"))
	req.Header.Set("Content-Type", "application/json")
	if edit != nil {
		edit(req)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(b) + " " + err.Error(), resp.Header
	}
	return resp.StatusCode, string(b), resp.Header
}

// raw sends bytes and returns the status line.
func (f *fixture) raw(t *testing.T, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil && line == "" {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

// env turns what Env returns into a map.
func envMap(list []string) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	return m
}

func jsonAnswer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
	}
}

// stream answers with events, each flushed, and holds between them while
// gate is not nil.
func stream(gate <-chan struct{}, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i, e := range events {
			if i > 0 && gate != nil {
				select {
				case <-gate:
				case <-r.Context().Done():
					return
				}
			}
			io.WriteString(w, e+"\n\n")
			w.(http.Flusher).Flush()
		}
	}
}

const (
	anthropicAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":1000,"cache_creation_input_tokens":300,"cache_read_input_tokens":2000,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"output_tokens":500}}`
	chatAnswer      = `{"id":"c1","object":"chat.completion","model":"gpt-5-2025-08-07","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":500,"total_tokens":1500,"prompt_tokens_details":{"cached_tokens":400}}}`
	responsesAnswer = `{"id":"r1","object":"response","model":"gpt-5","status":"completed","output":[{"type":"message","id":"m","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hello","annotations":[]}]}],"usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":400},"output_tokens":500,"total_tokens":1500}}`
	geminiAnswer    = `{"candidates":[{"content":{"role":"model","parts":[{"text":"hello"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":400,"thoughtsTokenCount":100,"cachedContentTokenCount":400,"totalTokenCount":1500},"modelVersion":"gemini-2.5-pro"}`
)

var anthropicEvents = []string{
	`event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5","content":[],"usage":{"input_tokens":1000,"cache_creation_input_tokens":0,"cache_read_input_tokens":2000,"output_tokens":1}}}`,
	`event: content_block_start` + "\n" + `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
	`event: ping` + "\n" + `data: {"type":"ping"}`,
	`event: content_block_delta` + "\n" + `data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello \"usage\":{\"output_tokens\":1}"}}`,
	`event: content_block_stop` + "\n" + `data: {"type":"content_block_stop","index":0}`,
	`event: message_delta` + "\n" + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":500}}`,
	`event: message_stop` + "\n" + `data: {"type":"message_stop"}`,
}

var chatEvents = []string{
	`data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}],"usage":null}`,
	`data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5","choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}],"usage":null}`,
	`data: {"id":"c1","object":"chat.completion.chunk","model":"gpt-5","choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":500,"total_tokens":1500,"prompt_tokens_details":{"cached_tokens":400}}}`,
	`data: [DONE]`,
}

var responseEvents = []string{
	`event: response.created` + "\n" + `data: {"type":"response.created","sequence_number":0,"response":{"id":"r1","object":"response","model":"gpt-5","status":"in_progress","output":[],"usage":null}}`,
	`event: response.output_text.delta` + "\n" + `data: {"type":"response.output_text.delta","sequence_number":1,"item_id":"m","output_index":0,"content_index":0,"delta":"hello"}`,
	`event: response.completed` + "\n" + `data: {"type":"response.completed","sequence_number":2,"response":` + responsesAnswer + `}`,
}

var geminiEvents = []string{
	`data: {"candidates":[{"content":{"role":"model","parts":[{"text":"hel"}]}}],"usageMetadata":{"promptTokenCount":1000,"cachedContentTokenCount":400,"totalTokenCount":1000},"modelVersion":"gemini-2.5-pro"}`,
	`data: ` + geminiAnswer,
}

const (
	messagesBody  = `{"model":"claude-sonnet-5","max_tokens":1024,"messages":[{"role":"user","content":"hi"}]}`
	chatBody      = `{"model":"gpt-5","messages":[{"role":"user","content":"hi"}]}`
	responsesBody = `{"model":"gpt-5","input":"hi"}`
	geminiBody    = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	geminiPath    = "/gemini/v1beta/models/gemini-2.5-pro:generateContent"
)
