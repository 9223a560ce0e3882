package llm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStreamsComeAtOnce(t *testing.T) {
	gate := make(chan struct{})
	f := start(t, stream(gate, anthropicEvents...), nil)
	req, _ := http.NewRequest("POST", "http://"+f.addr+"/anthropic/v1/messages", strings.NewReader(messagesBody))
	req.Header.Set("X-Api-Key", f.Placeholder("run"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := &eventReader{r: resp.Body, max: 1 << 20}
	for i, want := range anthropicEvents {
		if i > 0 {
			gate <- struct{}{} // the provider has not sent more than this
		}
		event, _, err := events.next()
		if err != nil || string(event) != want+"\n\n" {
			t.Fatalf("event %d is %q, %v", i, event, err)
		}
	}
}

func TestCutAnswersAreCharged(t *testing.T) {
	const upperInput = int64(len(messagesBody))
	for _, c := range []struct {
		name, path, body string
		answer           http.HandlerFunc
		want             func(Tokens) bool
	}{
		{"a connection that breaks before an answer", "/anthropic/v1/messages", messagesBody, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			func(x Tokens) bool { return x.Input == upperInput && x.Output == 1024 }},
		{"a stream cut after its beginning", "/anthropic/v1/messages", messagesBody, func(w http.ResponseWriter, r *http.Request) {
			stream(nil, anthropicEvents[:4]...)(w, r)
			panic(http.ErrAbortHandler)
		}, func(x Tokens) bool { return x.Input == 1000 && x.CacheRead == 2000 && x.Output == 1024 }},
		{"a stream that ends without its end", "/anthropic/v1/messages", messagesBody, stream(nil, anthropicEvents[:4]...),
			func(x Tokens) bool { return x.Input == 1000 && x.Output == 1024 }},
		{"a stream that names a lower output at its end", "/anthropic/v1/messages", messagesBody,
			stream(nil, append(slices.Clone(anthropicEvents[:5]), `data: {"type":"message_delta","usage":{"output_tokens":-5}}`, anthropicEvents[6])...),
			func(x Tokens) bool { return x.Output == 1024 }},
		{"an answer without usage", "/anthropic/v1/messages", messagesBody, jsonAnswer(`{"type":"message","content":[]}`),
			func(x Tokens) bool { return x.Input == upperInput && x.Output == 1024 }},
		{"an answer that took nothing and gave nothing", "/anthropic/v1/messages", messagesBody, jsonAnswer(`{"type":"message","usage":{"input_tokens":0,"output_tokens":0}}`),
			func(x Tokens) bool { return x.Output == 1024 }},
		{"an answer that counts in words", "/anthropic/v1/messages", messagesBody, jsonAnswer(`{"type":"message","usage":{"input_tokens":"few","output_tokens":1}}`),
			func(x Tokens) bool { return x.Input == upperInput }},
		{"an answer that counts past all bounds", "/anthropic/v1/messages", messagesBody, jsonAnswer(`{"type":"message","usage":{"input_tokens":9000000000,"output_tokens":1}}`),
			func(x Tokens) bool { return x.Input == upperInput }},
		{"more cached than there was", "/openai/v1/chat/completions", chatBody, jsonAnswer(`{"usage":{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":50}}}`),
			func(x Tokens) bool { return x.Input == int64(len(chatBody)) }},
		{"a response of before, without usage", "/openai/v1/responses", `{"model":"gpt-5","input":"x","previous_response_id":"resp_1"}`, jsonAnswer(`{"object":"response"}`),
			func(x Tokens) bool { return x.Input > hiddenTokens }},
		{"a picture, of which a byte is no token", "/anthropic/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 320_000) + `"}}]}]}`, jsonAnswer(`{}`),
			func(x Tokens) bool { return x.Input > 10_000 && x.Input < 11_000 }},
		{"a chat without usage", "/openai/v1/chat/completions", chatBody, stream(nil, chatEvents[0], chatEvents[3]),
			func(x Tokens) bool { return x.Output >= 1000 }},
		{"Gemini cut after a count that still grows", "/gemini/v1beta/models/g:streamGenerateContent?alt=sse", geminiBody, func(w http.ResponseWriter, r *http.Request) {
			stream(nil, geminiEvents[0])(w, r)
			panic(http.ErrAbortHandler)
		}, func(x Tokens) bool { return x.Input == 600 && x.CacheRead == 400 && x.Output >= 1000 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, c.answer, nil)
			f.do(t, "POST", c.path, c.body, nil)
			got := f.books.await(t, 1)[0]
			if !got.Estimated || !c.want(got.Tokens) || got.USD <= 0 {
				t.Errorf("charged %+v", got)
			}
		})
	}
}

func TestClientThatLeavesIsCharged(t *testing.T) {
	begun := make(chan struct{})
	ended := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		stream(nil, anthropicEvents[:4]...)(w, r)
		close(begun)
		<-r.Context().Done() // the upstream is cancelled
		close(ended)
	}, nil)
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+f.addr+"/anthropic/v1/messages", strings.NewReader(messagesBody))
	req.Header.Set("X-Api-Key", f.Placeholder("run"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-begun
	leave()
	<-ended
	if got := f.books.await(t, 1)[0]; !got.Estimated || got.Tokens.Input != 1000 || got.Tokens.Output != 1024 {
		t.Errorf("charged %+v", got)
	}
}

func TestKilledRun(t *testing.T) {
	ended := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		stream(nil, anthropicEvents[:4]...)(w, r)
		<-r.Context().Done()
		close(ended)
	}, nil)
	other := f.listen(t, "other")
	req, _ := http.NewRequest("POST", "http://"+f.addr+"/anthropic/v1/messages", strings.NewReader(messagesBody))
	req.Header.Set("X-Api-Key", f.Placeholder("run"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f.Kill("run")
	<-ended
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	if status, text, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 403 || header.Get("X-Cordon-Refused") != RuleKilled {
		t.Errorf("a further call: status %d %s", status, text)
	}
	if got := f.books.await(t, 1)[0]; !got.Estimated {
		t.Errorf("charged %+v", got)
	}
	f.up.mu.Lock()
	f.up.answer = jsonAnswer(anthropicAnswer)
	f.up.mu.Unlock()
	of := *f
	of.addr = other
	if status, text, _ := of.do(t, "POST", "/anthropic/v1/messages", messagesBody, func(r *http.Request) { r.Header.Set("X-Api-Key", f.Placeholder("other")) }); status != 200 {
		t.Errorf("another run: status %d %s", status, text)
	}
}

func TestTheCap(t *testing.T) {
	gate := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		jsonAnswer(anthropicAnswer)(w, r)
	}, nil)
	f.books.set(func(b *books) { b.cap = 0.02 })
	type result struct {
		status int
		text   string
	}
	done := make(chan result, 2)
	call := func() {
		status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
		done <- result{status, text}
	}
	go call()
	f.arrived(t, 1)
	// The first may still cost 0.0104: with it, a second would be too much.
	f.books.set(func(b *books) { b.cap = 0.011 })
	if status, text, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 429 || header.Get("X-Cordon-Refused") != RuleCap {
		t.Errorf("a second call at once: status %d %s", status, text)
	}
	if status, _, _ := f.do(t, "GET", "/anthropic/v1/models", "", func(r *http.Request) { close(gate) }); status != 200 {
		t.Errorf("what costs nothing: status %d", status)
	}
	if r := <-done; r.status != 200 {
		t.Errorf("the first call: %+v", r)
	}
	f.books.await(t, 1)
	f.books.set(func(b *books) { b.cap = 0.02 })
	if status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 200 {
		t.Errorf("a call with money left: status %d %s", status, text)
	}
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 402 {
		t.Errorf("a call with none left: status %d", status)
	}
	if got, want := f.Usage("run"), 2*sonnet5; got < want-1e-9 || got > want+1e-9 {
		t.Errorf("the run used %v US dollars, want %v", got, want)
	}
}

// arrived waits until n requests reached the provider.
func (f *fixture) arrived(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-f.up.arrivals:
		case <-t.Context().Done():
			t.Fatal("the test ended first")
		}
	}
}

func TestTooManyCalls(t *testing.T) {
	gate := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		jsonAnswer(anthropicAnswer)(w, r)
	}, func(c *Config) { c.Limits.Calls = 2 })
	done := make(chan int, 2)
	for range 2 {
		go func() {
			status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
			done <- status
		}()
	}
	f.arrived(t, 2)
	if status, _, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 429 || header.Get("X-Cordon-Refused") != RuleBusy {
		t.Errorf("a third call: status %d", status)
	}
	close(gate)
	for range 2 {
		if status := <-done; status != 200 {
			t.Errorf("a call within the limit: status %d", status)
		}
	}
}

func TestABodyTakesAPlace(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) { c.Limits.Calls = 1 })
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", f.Placeholder("run"), len(messagesBody))
	in := bufio.NewReader(conn)
	// It says so when it begins to read the body.
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatal(line, err)
	}
	if status, _, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 429 || header.Get("X-Cordon-Refused") != RuleBusy {
		t.Errorf("a call beside a body that is awaited: status %d", status)
	}
	io.WriteString(conn, messagesBody)
	if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), "hello") {
		t.Errorf("the call itself: %s %v", rest, err)
	}
}

func TestKilledWhileTheBodyComes(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	conn, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", f.Placeholder("run"), len(messagesBody))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatal(line, err)
	}
	f.Kill("run")
	io.WriteString(conn, messagesBody)
	if rest, err := io.ReadAll(in); err != nil || !strings.Contains(string(rest), "403") || len(f.up.requests()) != 0 {
		t.Errorf("answered %s %v, %d requests", rest, err, len(f.up.requests()))
	}
}

func TestBooksThatCannotBeWritten(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	f.books.set(func(b *books) { b.broken = true })
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 200 {
		t.Errorf("the first call: status %d", status)
	}
	for range 2 {
		if status, _, header := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 503 || header.Get("X-Cordon-Refused") != RuleUncharged {
			t.Errorf("a call while the first is not booked: status %d", status)
		}
	}
	f.do(t, "POST", "/anthropic/v1/files", "{}", nil)
	if status, _, header := f.do(t, "GET", "/anthropic/v1/models", "", nil); status != 503 || header.Get("X-Cordon-Refused") != RuleUnaudited {
		t.Errorf("a call while a refusal is not stored: status %d", status)
	}
	f.books.set(func(b *books) { b.broken = false })
	if status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 200 {
		t.Errorf("a call after that: status %d %s", status, text)
	}
	if got := f.books.await(t, 2); len(got) != 2 {
		t.Errorf("%d charges, want 2", len(got))
	}
	if diff := cmp.Diff([]string{RulePath}, f.books.rules()); diff != "" {
		t.Errorf("refusals (-want +got)\n%s", diff)
	}
}

func TestSlowProviders(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/messages" {
			stream(nil, anthropicEvents[:2]...)(w, r)
		}
		<-r.Context().Done()
	}, func(c *Config) { c.Limits.AnswerTime, c.Limits.IdleTime = 50*time.Millisecond, 50*time.Millisecond })
	if status, text, _ := f.do(t, "POST", "/openai/v1/chat/completions", chatBody, nil); status != 504 {
		t.Errorf("a provider that does not answer: status %d %s", status, text)
	}
	if _, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); !strings.Contains(text, "EOF") {
		t.Errorf("a stream that falls silent ended as if it were whole: %s", text)
	}
	for _, c := range f.books.await(t, 2) {
		if !c.Estimated {
			t.Errorf("charged %+v", c)
		}
	}
}

func TestHugeAnswers(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, _ *http.Request) {
		for range 64 {
			if _, err := w.Write(bytes.Repeat([]byte("a"), 64<<10)); err != nil {
				return
			}
		}
	}, func(c *Config) { c.Limits.ResponseBytes = 1 << 20 })
	_, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
	if len(text) > 1<<20+100 || !strings.Contains(text, "EOF") {
		t.Errorf("%d bytes came through, as if whole", len(text))
	}
	if !f.books.await(t, 1)[0].Estimated {
		t.Error("an answer without a count was not estimated")
	}
}

func TestUnreachedProvidersCostNothing(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), func(c *Config) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("egress: it is at 10.0.0.1: a private range")
		}
	})
	status, text, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
	if status != 502 || strings.Contains(text, "10.0.0.1") {
		t.Errorf("status %d %s", status, text)
	}
	if !strings.Contains(f.books.logs.String(), "private range") || len(f.books.charges) != 0 {
		t.Errorf("logged %q, charged %+v", f.books.logs.String(), f.books.charges)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ended := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		stream(nil, anthropicEvents[:2]...)(w, r)
		<-r.Context().Done()
		close(ended)
	}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan error, 1)
	go func() { served <- f.Serve(ctx, l, "run") }()
	of := *f
	of.addr = l.Addr().String()
	done := make(chan string, 1)
	go func() {
		_, text, _ := of.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil)
		done <- text
	}()
	f.arrived(t, 1)
	cause := errors.New("the run is over")
	cancel(cause)
	if err := <-served; !errors.Is(err, cause) {
		t.Errorf("Serve ended with %v", err)
	}
	<-ended
	if text := <-done; !strings.Contains(text, "EOF") && !strings.Contains(text, "reset") {
		t.Errorf("the stream ended as if it were whole: %q", text)
	}
	if got := f.books.await(t, 1)[0]; !got.Estimated {
		t.Errorf("charged %+v", got)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open")
	}
	// Another listener of the run goes on.
	f.up.mu.Lock()
	f.up.answer = jsonAnswer(anthropicAnswer)
	f.up.mu.Unlock()
	if status, _, _ := f.do(t, "POST", "/anthropic/v1/messages", messagesBody, nil); status != 200 {
		t.Errorf("by another listener: status %d", status)
	}
	if err := f.Proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if err := f.Serve(t.Context(), l, "run"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Gemini says nowhere in its answer by which service a call went.
func TestGeminiPriorityIsPricedAsAsked(t *testing.T) {
	usd := func(fields string) float64 {
		f := start(t, jsonAnswer(`{"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":100}}`), nil)
		f.do(t, "POST", "/gemini/v1beta/models/gemini-2.5-pro:generateContent", `{"contents":[]`+fields+`}`, nil)
		return f.books.await(t, 1)[0].USD
	}
	usual := usd("")
	for fields, dearer := range map[string]bool{
		`,"serviceTier":"priority"`:               true,
		`,"service_tier":"SERVICE_TIER_PRIORITY"`: true,
		`,"serviceTier":"standard"`:               false,
		`,"service_tier":"flex"`:                  false,
	} {
		if got := usd(fields); usual <= 0 || (got > usual) != dearer {
			t.Errorf("%s: %v, beside %v", fields, got, usual)
		}
	}
}
