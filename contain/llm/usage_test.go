package llm

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestAllowListHasReasons(t *testing.T) {
	a, err := parseAllow(allowText)
	if err != nil {
		t.Fatal(err)
	}
	for place, dialects := range map[string][]string{
		placeQuery: {"anthropic", "openai", "gemini"}, placeHeader: {"any", "anthropic", "openai", "gemini"}, placeAnswer: {"any"},
		placeBeta: {"anthropic", "openai"}, placeField: {"messages", "chat", "completions", "responses", "embeddings", "gemini"},
		placeTool: {"messages", "chat", "responses", "gemini"}, placePart: {"messages", "chat", "responses", "gemini"},
		placeItem: {"responses"}, placeSource: {"messages"},
	} {
		for _, d := range dialects {
			words := a.words[place+" "+d]
			if len(words) == 0 {
				t.Errorf("%s %s has no line", place, d)
			}
			seen := map[string]bool{}
			for _, w := range words {
				if seen[w.name] && !w.prefix {
					t.Errorf("%s %s %s stands twice", place, d, w.name)
				}
				seen[w.name] = true
				if w.name == "" {
					t.Errorf("%s %s admits every name", place, d)
				}
				if d == "gemini" && place != placeHeader && w.name != protoName(w.name) {
					t.Errorf("%s %s %s is never found: its form is %s", place, d, w.name, protoName(w.name))
				}
			}
			delete(a.words, place+" "+d)
		}
	}
	for rest := range a.words {
		t.Errorf("place %q is read by nobody", rest)
	}
	for p, routes := range a.routes {
		for _, r := range routes {
			if !p.known() || r.method != "GET" && r.method != "POST" || !strings.HasPrefix(r.path, "/v1") {
				t.Errorf("route %s %+v", p, r)
			}
		}
	}
	for _, bad := range []string{"field messages x -", "field messages x # why", "field messages x everything # why", "route openai /v1 chat # why"} {
		if _, err := parseAllow(bad + "\n"); err == nil {
			t.Errorf("line %q was read", bad)
		}
	}
}

func TestPrices(t *testing.T) {
	p := DefaultPrices()
	for _, c := range []struct {
		provider     Provider
		model, named string
		known        bool
	}{
		{Anthropic, "claude-sonnet-4-5-20250929", "claude-sonnet-4-5", true},
		{Anthropic, "claude-sonnet-4-20250514", "claude-sonnet-4", true},
		{Anthropic, "claude-opus-5", "claude-opus-5", true},
		{Anthropic, "claude-opus-5-5", "claude-opus-5-5", true},
		{Anthropic, "claude-haiku-5-5[1m]", "claude-haiku-5-5", true},
		{OpenAI, "gpt-5-2025-08-07", "gpt-5", true},
		{OpenAI, "gpt-5-mini-2025-08-07", "gpt-5-mini", true},
		{OpenAI, "GPT-5", "gpt-5", true},
		{OpenAI, "openai/gpt-5", "gpt-5", true},
		{OpenAI, "gpt-5-chat-latest", "gpt-5", true},
		{Gemini, "gemini-2.5-pro-preview-05-06", "gemini-2.5-pro", true},
		{Gemini, "models/gemini-2.5-flash", "gemini-2.5-flash", true},
		// Another model, not another version: the dearest.
		{OpenAI, "gpt-5-ultra", "o1-pro", false},
		{OpenAI, "gpt-5.9", "o1-pro", false},
		{Anthropic, "claude-opus-9", "claude-opus-4", false},
		{Anthropic, "", "claude-opus-4", false},
		{Gemini, "gemini-2.5-pro-8", "gemini-3.1-pro", false},
		{Anthropic, "gpt-5", "claude-opus-4", false},
	} {
		got, known := p.Of(c.provider, c.model)
		if known != c.known || known && got.Model != c.named {
			t.Errorf("%s %q is priced as %q, known %v, want %q, %v", c.provider, c.model, got.Model, known, c.named, c.known)
		}
		if want, _ := p.Of(c.provider, c.named); !known && got.Input+got.Output < want.Input+want.Output {
			t.Errorf("%s %q costs %v, less than %s", c.provider, c.model, got, c.named)
		}
	}
	for _, provider := range []Provider{Anthropic, OpenAI, Gemini} {
		for _, m := range p.exact[provider] {
			if m.Output < m.Input && m.Output != 0 || m.CacheRead > m.Input || !strings.HasPrefix(m.Source, "https://") || len(m.Date) != 10 {
				t.Errorf("line %+v", m)
			}
		}
	}
}

func TestCosts(t *testing.T) {
	m := Price{Input: 2, Output: 10, CacheRead: .2, CacheWrite: 2.5, CacheWrite1h: 4, LongOver: 1000, LongInput: 2, LongOutput: 1.5, Fast: 3}
	const million = 1_000_000
	for _, c := range []struct {
		name   string
		tokens Tokens
		fast   bool
		want   float64
	}{
		{"nothing", Tokens{}, false, 0},
		{"a short call", Tokens{Input: 500, Output: 100}, false, (500*2 + 100*10) / 1e6},
		{"at the bound", Tokens{Input: 600, CacheRead: 400, Output: 100}, false, (600*2 + 400*.2 + 100*10) / 1e6},
		{"past the bound, by what was cached", Tokens{Input: 601, CacheRead: 400, Output: 100}, false, (2*(601*2+400*.2) + 1.5*100*10) / 1e6},
		{"every kind", Tokens{Input: million, CacheRead: million, CacheWrite: million, CacheWrite1h: million, Output: million}, false, 2*(2+.2+2.5+4) + 1.5*10},
		{"fast", Tokens{Input: 500, Output: 100}, true, 3 * (500*2 + 100*10) / 1e6},
		{"searches", Tokens{Searches: 2}, false, 2 * searchFee},
	} {
		if got := m.Cost(c.tokens, c.fast); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s costs %v, want %v", c.name, got, c.want)
		}
	}
	p := DefaultPrices()
	x := Tokens{Output: million}
	for _, c := range []struct {
		name, asked, answered string
		want                  float64
		known                 bool
	}{
		{"the model that was asked for", "gpt-5", "gpt-5-2025-08-07", 10, true},
		{"a dearer model answered", "gpt-5-mini", "gpt-5-pro", 120, true},
		{"a cheaper model is said to have answered", "gpt-5-pro", "gpt-5-nano", 120, true},
		{"an alias", "my-deployment", "gpt-5", 10, true},
		{"two unknown names", "a", "b", 600, false},
		{"a known model, answered by an unknown name", "gpt-5", "b", 10, true},
	} {
		if got, known := p.costOf(OpenAI, c.asked, c.answered, x, false); got != c.want || known != c.known {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, got, known, c.want, c.known)
		}
	}
}

func TestMeters(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       Tokens
		fast       bool
	}{
		{"Anthropic", anthropicAnswer, anthropicTokens, false},
		{"a cache write without its kinds", `{"type":"message","usage":{"input_tokens":1,"cache_creation_input_tokens":7,"output_tokens":2}}`, Tokens{Input: 1, CacheWrite: 7, Output: 2}, false},
		{"turns that were shortened on the way", `{"type":"message","usage":{"input_tokens":10,"output_tokens":5,"iterations":[{"type":"compaction","input_tokens":900,"output_tokens":50},{"type":"message","input_tokens":10,"output_tokens":5,"cache_read_input_tokens":3}]}}`, Tokens{Input: 910, CacheRead: 3, Output: 55}, false},
		{"the fast service", `{"type":"message","usage":{"input_tokens":1,"output_tokens":2,"speed":"fast"}}`, Tokens{Input: 1, Output: 2}, true},
		{"searches", `{"type":"message","usage":{"input_tokens":1,"output_tokens":2,"server_tool_use":{"web_search_requests":3}}}`, Tokens{Input: 1, Output: 2, Searches: 3}, false},
		{"chat", chatAnswer, otherTokens, false},
		{"chat with cache writes", `{"usage":{"prompt_tokens":100,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":20}}}`, Tokens{Input: 70, CacheRead: 10, CacheWrite: 20, Output: 5}, false},
		{"the priority service", `{"service_tier":"priority","usage":{"prompt_tokens":1,"completion_tokens":2}}`, Tokens{Input: 1, Output: 2}, true},
		{"responses", responsesAnswer, otherTokens, false},
		{"Gemini", geminiAnswer, otherTokens, false},
		{"Gemini's list", "[" + `{"usageMetadata":{"promptTokenCount":1000}}` + ",\r\n" + geminiAnswer + "]", otherTokens, false},
	} {
		var m meter
		m.readBody([]byte(c.body))
		if diff := cmp.Diff(c.want, m.tokens); diff != "" || !m.complete() || m.fast != c.fast {
			t.Errorf("%s: complete %v, fast %v (-want +got)\n%s", c.name, m.complete(), m.fast, diff)
		}
	}
	for _, bad := range []string{``, `x`, `{}`, `{"usage":null}`, `[{"usageMetadata":{"promptTokenCount":5}},`, `{"type":"message","usage":{"input_tokens":5,"output_tokens":1,"iterations":[{"input_tokens":-1}]}}`, `{"usageMetadata":{"promptTokenCount":5,"cachedContentTokenCount":6}}`} {
		var m meter
		if m.readBody([]byte(bad)); m.complete() {
			t.Errorf("%q counts as complete: %+v", bad, m.tokens)
		}
	}
}

func TestPricesOfOnesOwn(t *testing.T) {
	own, err := DefaultPrices().With([]byte(`{"models":[
		{"provider":"openai","model":"*","input":0,"output":0,"cache_read":0,"cache_write":0,"cache_write_1h":0,"source":"our own server","date":"2026-11-01"},
		{"provider":"openai","model":"gpt-5","input":1,"output":2,"cache_read":1,"cache_write":1,"cache_write_1h":1,"source":"our contract","date":"2026-11-01"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if m, known := own.Of(OpenAI, "llama-3.3:70b"); !known || m.Output != 0 {
		t.Errorf("an own model: %+v %v", m, known)
	}
	if m, known := own.Of(OpenAI, "gpt-5"); !known || m.Output != 2 {
		t.Errorf("an own price: %+v %v", m, known)
	}
	if m, _ := DefaultPrices().Of(OpenAI, "gpt-5"); m.Output != 10 {
		t.Errorf("the built-in table changed: %+v", m)
	}
	const line = `"source":"s","date":"d"`
	for _, bad := range []string{
		``, `[]`, `{"models":[{}]}`, `{"models":[]} x`, `{"prices":[]}`,
		`{"models":[{"provider":"openai","model":"x","input":-1,` + line + `}]}`,
		`{"models":[{"provider":"openai","model":"x","input":1e9,` + line + `}]}`,
		`{"models":[{"provider":"other","model":"x",` + line + `}]}`,
		`{"models":[{"provider":"openai","model":"x","input":1}]}`,
		`{"models":[{"provider":"openai","model":"x","long_over":5,` + line + `}]}`,
		`{"models":[{"provider":"openai","model":"x","inptu":5,` + line + `}]}`,
	} {
		if _, err := DefaultPrices().With([]byte(bad)); err == nil {
			t.Errorf("table %q was read", bad)
		}
	}
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"line feeds", "data: a\n\ndata: b\n\n", []string{"data: a\n\n", "data: b\n\n"}},
		{"both", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"data: a\r\n\r\n", "data: b\r\n\r\n"}},
		{"carriage returns", "data: a\r\rdata: b\r\r ", []string{"data: a\r\r", "data: b\r\r", " "}},
		{"a mixture", "data: a\n\r\ndata: b\r\n\n", []string{"data: a\n\r\n", "data: b\r\n\n"}},
		{"lines within an event", "event: x\ndata: a\n\n", []string{"event: x\ndata: a\n\n"}},
		{"a rest", "data: a\n\ndata: b", []string{"data: a\n\n", "data: b"}},
		{"nothing", "", nil},
		{"empty events", "\n\n\n\n", []string{"\n\n", "\n\n"}},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			e := &eventReader{r: r, max: 64}
			var got []string
			for {
				event, _, err := e.next()
				if errors.Is(err, io.EOF) {
					break
				}
				got = append(got, string(event))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got)\n%s", c.name, diff)
			}
		}
	}
	for in, want := range map[string]string{
		"data: a\n\n": "a", "data:a\r\ndata: b\r\n\r\n": "a\nb", "event: x\ndata: {}\n\n": "{}", ": ping\n\n": "", "data\n\n": "", "data:  a\n\n": " a",
	} {
		if got := string(eventData([]byte(in))); got != want {
			t.Errorf("data of %q is %q, want %q", in, got, want)
		}
	}
}

func TestLongEventsPass(t *testing.T) {
	in := "data: " + strings.Repeat("a", 100_000) + "\n\ndata: b\n\n"
	e := &eventReader{r: strings.NewReader(in), max: 4096}
	var got strings.Builder
	for {
		event, _, err := e.next()
		if err != nil {
			break
		}
		if len(event) > 32<<10 {
			t.Fatalf("%d bytes were kept", len(event))
		}
		got.Write(event)
	}
	if got.String() != in {
		t.Error("what came out is not what went in")
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: a\ndata: {\"type\":\"message_stop\"}\n\n"), 7)
	f.Add([]byte("data: {\"usage\":{\"prompt_tokens\":1}}\r\n\r\nda"), 3)
	f.Add([]byte("\r\r\r\n\n\r"), 1)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		step = 1 + (step&0xff+0xff)%64
		e := &eventReader{r: &steps{in, step}, max: 128}
		var out []byte
		var m meter
		for {
			event, whole, err := e.next()
			if err != nil {
				break
			}
			if len(event) == 0 {
				t.Fatal("an event of nothing")
			}
			if n, _ := eventEnd(append(bytes.Clone(event), 'x'), 0); whole && n != len(event) {
				t.Fatalf("event %q ends at %d", event, n)
			}
			out = append(out, event...)
			m.read(eventData(event))
			if x := m.tokens; x.Input < 0 || x.Output < 0 || x.CacheRead < 0 || x.CacheWrite < 0 || x.CacheWrite1h < 0 || x.Output > maxTokens*2 {
				t.Fatalf("counted %+v", x)
			}
		}
		if !bytes.Equal(in, out) {
			t.Fatalf("%q came out of %q", out, in)
		}
		m.readBody(in)
	})
}

// steps reads a few bytes at a time.
type steps struct {
	b []byte
	n int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.b)
	s.b = s.b[n:]
	return n, nil
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"/anthropic/v1/messages?beta=true", "/gemini/v1beta/models/g:generateContent?alt=sse&key=a%3D", "/openai/v1/models/ft:a", "//x", "/openai/../v1", "/openai/v1/%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s)
		if err != nil {
			return
		}
		if !got.provider.known() || !strings.HasPrefix(s, "/"+string(got.provider)+got.path) {
			t.Fatalf("%q became %+v", s, got)
		}
		if strings.ContainsAny(got.path, "%?#;\\ ") || strings.Contains(got.path, "//") || strings.Contains(got.path, "/../") || strings.HasSuffix(got.path, "/..") {
			t.Fatalf("%q passed", got.path)
		}
		for _, q := range got.query {
			if strings.ContainsAny(q.value, "&\r\n\x00#") {
				t.Fatalf("%q passed", q.value)
			}
		}
	})
}

func FuzzRedactor(f *testing.F) {
	f.Add("abcabcabd tail abcab", 3)
	f.Fuzz(func(t *testing.T, s string, step int) {
		step = 1 + step&0x7
		key := Secret{"abcabcabd"}
		r := newRedactor(key)
		var out strings.Builder
		for rest := s; len(rest) > 0; {
			n := min(step, len(rest))
			out.Write(r.next([]byte(rest[:n])))
			rest = rest[n:]
		}
		out.Write(r.rest())
		if strings.Contains(out.String(), key.value) {
			t.Fatalf("%q came out of %q", out.String(), s)
		}
		if want := strings.ReplaceAll(s, key.value, redacted); out.String() != want {
			t.Fatalf("%q became %q, want %q", s, out.String(), want)
		}
	})
}

func FuzzInspect(f *testing.F) {
	p := &Proxy{features: map[Feature]bool{}}
	for _, s := range []string{messagesBody, chatBody, responsesBody, geminiBody, `{"model":"m","stream_options":{"include_usage":false},"stream":true,"messages":[]}`} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		dialects := []string{"messages", "chat", "completions", "responses", "embeddings", "gemini"}
		c := &call{p: p}
		v, err := parseForTest(s)
		if err != nil {
			return
		}
		c.plan = p.inspect(dialects[int(n)%len(dialects)], &v)
		if x := c.plan; x.maxOutput < 0 || x.answers < 1 || x.media < 0 || len(x.found) > 32 {
			t.Fatalf("%+v", x)
		}
		if len(c.plan.found) == 0 && c.plan.addUsage {
			again, err := parseForTest(string(withUsage([]byte(s), &v)))
			if err != nil || !asksUsage(&again) {
				t.Fatalf("%q became %q, %v", s, withUsage([]byte(s), &v), err)
			}
		}
	})
}
