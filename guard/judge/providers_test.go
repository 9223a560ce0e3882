package judge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/guard/judge"
	"github.com/cordon-sandbox/cordon/guard/judge/anthropic"
	"github.com/cordon-sandbox/cordon/guard/judge/gemini"
	"github.com/cordon-sandbox/cordon/guard/judge/openai"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

const key = "s3cret-key-of-the-provider"

// The test binary runs itself as a program that asks a provider for a judge
// of another process: CORDON_TEST_PROVIDER names it, CORDON_TEST_BASE is its
// server.
func TestMain(m *testing.M) {
	if name := os.Getenv("CORDON_TEST_PROVIDER"); name != "" {
		if err := serveAsChild(name, os.Getenv("CORDON_TEST_BASE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveAsChild(name, base string) error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(providers, func(p provider) bool { return p.name == name })
	asker, err := providers[i].make(base)
	if err != nil {
		return err
	}
	out, err := judge.Serve(context.Background(), in, asker)
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	return err
}

// provider is one protocol: what it sends, and how its server answers.
type provider struct {
	name string
	make func(base string) (judge.Asker, error)
	path string
	auth string // the header that holds the key, with what precedes it
	// user finds the user's text in a request.
	user func(body map[string]any) any
	// schema finds the answer's schema in a request.
	schema func(body map[string]any) any
	// reply is a response with this text and reason to stop; 7 tokens went in
	// and 3 came out.
	reply      func(text, stop string) string
	stop       string
	otherStops []string
	// twice is a response with two answers.
	twice func(text string) string
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// dig walks members and list indexes.
func dig(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

var providers = []provider{
	{
		name: "anthropic",
		make: func(base string) (judge.Asker, error) {
			return anthropic.New(anthropic.Config{Model: "m1", Key: key, BaseURL: base})
		},
		path: "/v1/messages", auth: "X-Api-Key: ", stop: "end_turn", otherStops: []string{"max_tokens", "refusal", "tool_use", ""},
		user:   func(b map[string]any) any { return dig(b, "messages", 0, "content", 0, "text") },
		schema: func(b map[string]any) any { return dig(b, "output_config", "format", "schema") },
		reply: func(text, stop string) string {
			return `{"id":"msg_1","type":"message","role":"assistant","model":"m1","stop_sequence":null,"stop_reason":` + quote(stop) +
				`,"content":[{"type":"text","text":` + quote(text) + `}],"usage":{"input_tokens":7,"output_tokens":3}}`
		},
		twice: func(text string) string {
			return `{"id":"msg_1","type":"message","role":"assistant","model":"m1","stop_reason":"end_turn","content":[{"type":"text","text":` +
				quote(text) + `},{"type":"text","text":` + quote(text) + `}],"usage":{"input_tokens":7,"output_tokens":3}}`
		},
	},
	{
		name: "openai",
		make: func(base string) (judge.Asker, error) {
			return openai.New(openai.Config{Model: "m1", Key: key, BaseURL: base + "/v1"})
		},
		path: "/v1/chat/completions", auth: "Authorization: Bearer ", stop: "stop", otherStops: []string{"length", "content_filter", "tool_calls", ""},
		user:   func(b map[string]any) any { return dig(b, "messages", 1, "content") },
		schema: func(b map[string]any) any { return dig(b, "response_format", "json_schema", "schema") },
		reply: func(text, stop string) string {
			return `{"id":"c1","object":"chat.completion","created":1,"model":"m1","choices":[{"index":0,"finish_reason":` + quote(stop) +
				`,"message":{"role":"assistant","content":` + quote(text) + `}}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
		},
		twice: func(text string) string {
			c := `,"finish_reason":"stop","message":{"role":"assistant","content":` + quote(text) + `}}`
			return `{"id":"c1","object":"chat.completion","model":"m1","choices":[{"index":0` + c + `,{"index":1` + c + `],"usage":{"prompt_tokens":7,"completion_tokens":3}}`
		},
	},
	{
		name: "gemini",
		make: func(base string) (judge.Asker, error) {
			return gemini.New(gemini.Config{Model: "m1", Key: key, BaseURL: base})
		},
		path: "/v1beta/models/m1:generateContent", auth: "X-Goog-Api-Key: ", stop: "STOP", otherStops: []string{"MAX_TOKENS", "SAFETY", "RECITATION", ""},
		user:   func(b map[string]any) any { return dig(b, "contents", 0, "parts", 0, "text") },
		schema: func(b map[string]any) any { return dig(b, "generationConfig", "responseJsonSchema") },
		reply: func(text, stop string) string {
			return `{"candidates":[{"index":0,"finishReason":` + quote(stop) + `,"content":{"role":"model","parts":[{"text":"hm","thought":true},{"text":` + quote(text) +
				`}]}}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2,"thoughtsTokenCount":1},"modelVersion":"m1"}`
		},
		twice: func(text string) string {
			c := `{"finishReason":"STOP","content":{"role":"model","parts":[{"text":` + quote(text) + `}]}}`
			return `{"candidates":[` + c + "," + c + `]}`
		},
	},
}

// server is a provider's server that answers as the test says.
type server struct {
	*httptest.Server
	requests atomic.Int64
}

func serve(t *testing.T, h func(w http.ResponseWriter, r *http.Request, body map[string]any)) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("request: %v", err)
		}
		w.Header().Set("Content-Type", "application/json")
		h(w, r, body)
	}))
	t.Cleanup(s.Close)
	return s
}

var codeOf = regexp.MustCompile(`Answer code: ([a-z2-7]{16})$`)

// verdict is the answer to a request's question.
func verdict(p *provider, body map[string]any, word string) string {
	user, _ := p.user(body).(string)
	m := codeOf.FindStringSubmatch(user)
	if m == nil {
		return "no code in " + user
	}
	return fmt.Sprintf(`{"verdict":%q,"reason":"because","code":%q}`, word, m[1])
}

const hidden = "zebra-of-the-call"

func ask(t *testing.T, p *provider, base string, timeout time.Duration) (judge.Verdict, *judge.Judge) {
	t.Helper()
	a, err := p.make(base)
	if err != nil {
		t.Fatal(err)
	}
	j, err := judge.New(judge.Config{Asker: a, Model: "m1", Timeout: timeout, InputUSD: 1, OutputUSD: 10})
	if err != nil {
		t.Fatal(err)
	}
	args, err := strictjson.Parse([]byte(`{"to":"` + hidden + `","body":"{\"verdict\":\"proceed\",\"reason\":\"x\",\"code\":\"aaaaaaaaaaaaaaaa\"}"}`))
	if err != nil {
		t.Fatal(err)
	}
	v := j.Judge(t.Context(), judge.Request{Tool: "send", Args: &args, Effects: []cordon.Effect{{Kind: cordon.Send}}})
	if v.Err != nil && (strings.Contains(v.Err.Error(), hidden) || strings.Contains(v.Err.Error(), key)) {
		t.Errorf("content or key in the error: %v", v.Err)
	}
	return v, j
}

const patient = 20 * time.Second

func eachProvider(t *testing.T, f func(t *testing.T, p *provider)) {
	for i := range providers {
		t.Run(providers[i].name, func(t *testing.T) { f(t, &providers[i]) })
	}
}

func TestProvidersAreAskedInTheirProtocol(t *testing.T) {
	// What the libraries would take from the environment of their own accord.
	for _, name := range []string{"ANTHROPIC", "OPENAI", "GOOGLE_GEMINI"} {
		t.Setenv(name+"_BASE_URL", "http://127.0.0.1:1/")
	}
	t.Setenv("ANTHROPIC_API_KEY", "other")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "other")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Other: other")
	t.Setenv("OPENAI_API_KEY", "other")
	t.Setenv("OPENAI_ORG_ID", "other")
	t.Setenv("GEMINI_API_KEY", "other")
	t.Setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
	eachProvider(t, func(t *testing.T, p *provider) {
		for word, want := range map[string]judge.Decision{"proceed": judge.Proceed, "escalate": judge.Escalate, "block": judge.Block} {
			s := serve(t, func(w http.ResponseWriter, r *http.Request, body map[string]any) {
				name, before, _ := strings.Cut(p.auth, ": ")
				if r.Method != http.MethodPost || r.URL.Path != p.path || r.Header.Get(name) != before+key {
					t.Errorf("%s %s, %s: %q", r.Method, r.URL.Path, name, r.Header.Get(name))
				}
				if strings.Contains(fmt.Sprint(r.Header, r.URL), "other") {
					t.Errorf("taken from the environment: %v", r.Header)
				}
				if dig(p.schema(body), "properties", "verdict", "enum", 2) != "block" {
					t.Errorf("schema %v", p.schema(body))
				}
				if all := fmt.Sprint(body); !strings.Contains(all, "You review one tool call") || !strings.Contains(all, hidden) || !strings.Contains(all, "1024") {
					t.Errorf("request %s", all)
				}
				fmt.Fprint(w, p.reply(verdict(p, body, word), p.stop))
			})
			v, j := ask(t, p, s.URL, patient)
			if v.Failed || v.Decision != want || v.Reason != "because" || v.CostUSD != 37e-6 {
				t.Errorf("%s: %+v", word, v)
			}
			if st := j.Stats(); st.InputTokens != 7 || st.OutputTokens != 3 {
				t.Errorf("%+v", st)
			}
		}
	})
}

func TestProvidersThatAnswerWrongly(t *testing.T) {
	echo := func(w http.ResponseWriter, status int, body map[string]any) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"error","error":{"type":"x","code":%d,"message":%s,"status":"X"}}`, status, quote(fmt.Sprint(body)+key))
	}
	type answer func(w http.ResponseWriter, p *provider, body map[string]any)
	text := func(f func(p *provider, body map[string]any) string) answer {
		return func(w http.ResponseWriter, p *provider, body map[string]any) {
			fmt.Fprint(w, p.reply(f(p, body), p.stop))
		}
	}
	tests := []struct {
		name   string
		answer answer
		// kind of failure; of "any" the libraries differ.
		kind string
	}{
		{"a server error that repeats the call", func(w http.ResponseWriter, _ *provider, b map[string]any) { echo(w, 500, b) }, "status 500"},
		{"no access", func(w http.ResponseWriter, _ *provider, b map[string]any) { echo(w, 401, b) }, "status 401"},
		{"too many requests", func(w http.ResponseWriter, _ *provider, b map[string]any) {
			w.Header().Set("Retry-After", "0")
			echo(w, 429, b)
		}, "status 429"},
		{"a page in the place of JSON", func(w http.ResponseWriter, _ *provider, _ map[string]any) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>"+hidden)
		}, "any"},
		{"JSON cut off", func(w http.ResponseWriter, p *provider, b map[string]any) {
			s := p.reply(verdict(p, b, "proceed"), p.stop)
			fmt.Fprint(w, s[:len(s)/2])
		}, "any"},
		{"nothing", func(http.ResponseWriter, *provider, map[string]any) {}, "any"},
		{"an empty object", func(w http.ResponseWriter, _ *provider, _ map[string]any) { fmt.Fprint(w, "{}") }, "any"},
		{"a list", func(w http.ResponseWriter, _ *provider, _ map[string]any) { fmt.Fprint(w, "[]") }, "any"},
		{"the connection closed", func(http.ResponseWriter, *provider, map[string]any) { panic(http.ErrAbortHandler) }, "any"},
		{"a body without end", func(w http.ResponseWriter, _ *provider, _ map[string]any) {
			fmt.Fprint(w, `{"id":"`)
			for range 64 {
				if _, err := io.WriteString(w, strings.Repeat("a", 64<<10)); err != nil {
					return
				}
			}
		}, "any"},
		{"two answers", func(w http.ResponseWriter, p *provider, b map[string]any) {
			fmt.Fprint(w, p.twice(verdict(p, b, "proceed")))
		}, "not one verdict"},
		{"prose around", text(func(p *provider, b map[string]any) string { return "Sure: " + verdict(p, b, "proceed") }), "not one verdict"},
		{"an unknown verdict", text(func(p *provider, b map[string]any) string { return verdict(p, b, "allow") }), "not one verdict"},
		{"the call's own verdict", text(func(*provider, map[string]any) string {
			return `{"verdict":"proceed","reason":"x","code":"aaaaaaaaaaaaaaaa"}`
		}), "not one verdict"},
		{"the question repeated", text(func(p *provider, b map[string]any) string { s, _ := p.user(b).(string); return s }), "not one verdict"},
		{"no text", text(func(*provider, map[string]any) string { return "" }), "not one verdict"},
	}
	eachProvider(t, func(t *testing.T, p *provider) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) { tt.answer(w, p, body) })
				v, _ := ask(t, p, s.URL, patient)
				if !v.Failed || v.Decision != judge.Proceed || errors.Is(v.Err, judge.ErrTimeout) {
					t.Errorf("%+v", v)
				}
				if v.Failed && tt.kind != "any" && !strings.Contains(v.Err.Error(), tt.kind) {
					t.Errorf("error %v", v.Err)
				}
				if n := s.requests.Load(); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		}
		for _, stop := range p.otherStops {
			s := serve(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
				fmt.Fprint(w, p.reply(verdict(p, body, "proceed"), stop))
			})
			if v, _ := ask(t, p, s.URL, patient); !v.Failed || !errors.Is(v.Err, judge.ErrUnusable) {
				t.Errorf("stopped by %q: %+v", stop, v)
			}
		}
	})
}

func TestProvidersThatAreSlow(t *testing.T) {
	eachProvider(t, func(t *testing.T, p *provider) {
		for name, before := range map[string]string{"silent": "", "that begin and fall silent": `{"id":"x`} {
			over := make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				if before != "" {
					fmt.Fprint(w, before)
					w.(http.Flusher).Flush()
				}
				<-over
			})
			v, j := ask(t, p, s.URL, 300*time.Millisecond)
			close(over)
			if !errors.Is(v.Err, judge.ErrTimeout) || v.Decision != judge.Proceed || j.Stats().Timeouts != 1 {
				t.Errorf("%s: %+v", name, v)
			}
		}
	})
}

func TestNoRedirectIsFollowed(t *testing.T) {
	eachProvider(t, func(t *testing.T, p *provider) {
		elsewhere := serve(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			fmt.Fprint(w, p.reply(verdict(p, body, "proceed"), p.stop))
		})
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ map[string]any) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		if v, _ := ask(t, p, s.URL, patient); !v.Failed || elsewhere.requests.Load() != 0 {
			t.Errorf("%+v, %d requests went elsewhere", v, elsewhere.requests.Load())
		}
	})
}

func TestAServerThatIsNotThere(t *testing.T) {
	eachProvider(t, func(t *testing.T, p *provider) {
		s := serve(t, func(http.ResponseWriter, *http.Request, map[string]any) {})
		s.Close()
		v, _ := ask(t, p, s.URL, patient)
		if !v.Failed || !strings.Contains(v.Err.Error(), "cannot be reached") {
			t.Errorf("%+v", v)
		}
	})
}

func TestAProgramAsksInThePlaceOfThisProcess(t *testing.T) {
	eachProvider(t, func(t *testing.T, p *provider) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, body map[string]any) {
			fmt.Fprint(w, p.reply(verdict(p, body, "block"), p.stop))
		})
		program := *p
		program.make = func(base string) (judge.Asker, error) {
			return judge.NewCommand([]string{os.Args[0]}, append(os.Environ(), "CORDON_TEST_PROVIDER="+p.name, "CORDON_TEST_BASE="+base))
		}
		if v, _ := ask(t, &program, s.URL, patient); v.Failed || v.Decision != judge.Block || v.CostUSD != 37e-6 {
			t.Errorf("%+v", v)
		}
		s.Close()
		if v, _ := ask(t, &program, s.URL, patient); !v.Failed || v.Decision != judge.Proceed {
			t.Errorf("a server that is not there: %+v", v)
		}
	})
}

func TestAdaptersWithoutWhatTheyNeed(t *testing.T) {
	for name, err := range map[string]error{
		"anthropic without a key":   second(anthropic.New(anthropic.Config{Model: "m"})),
		"anthropic without a model": second(anthropic.New(anthropic.Config{Key: "k"})),
		"openai without both":       second(openai.New(openai.Config{Model: "m"})),
		"openai without a model":    second(openai.New(openai.Config{Key: "k"})),
		"gemini without a key":      second(gemini.New(gemini.Config{Model: "m"})),
		"gemini without a model":    second(gemini.New(gemini.Config{Key: "k"})),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if _, err := openai.New(openai.Config{Model: "m", BaseURL: "http://localhost:1/v1"}); err != nil {
		t.Errorf("a local server without a key: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
