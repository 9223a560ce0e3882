package llm

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	aoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	ooption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

// setEnv gives the test what a sandbox gets, so that the official clients
// find the proxy as they do there.
func (f *fixture) setEnv(t *testing.T) {
	for k, v := range envMap(f.Env(f.addr, "run")) {
		t.Setenv(k, v)
	}
}

// sent checks what reached the provider: the real key, and nothing of the
// placeholder.
func (f *fixture) sent(t *testing.T, uri, header string) seenRequest {
	t.Helper()
	all := f.up.requests()
	last := all[len(all)-1]
	if last.Proto != "HTTP/2.0" {
		t.Errorf("the provider was spoken to by %s", last.Proto)
	}
	if last.URI != uri {
		t.Errorf("the provider was asked for %q, want %q", last.URI, uri)
	}
	if got := last.Header.Get(header); !strings.HasSuffix(got, realKey) {
		t.Errorf("header %s is %q, want the real key", header, got)
	}
	for name, values := range last.Header {
		if strings.Contains(strings.Join(values, " "), "cordon-placeholder") {
			t.Errorf("header %s carries the placeholder", name)
		}
	}
	return last
}

func wantCharge(t *testing.T, got Charge, provider Provider, tokens Tokens, usd float64) {
	t.Helper()
	if diff := cmp.Diff(tokens, got.Tokens); diff != "" {
		t.Errorf("tokens (-want +got)\n%s", diff)
	}
	if got.Provider != provider || got.Run != "run" || got.Estimated || got.Unpriced {
		t.Errorf("charge is %+v", got)
	}
	if math.Abs(got.USD-usd) > 1e-9 {
		t.Errorf("cost %v US dollars, want %v", got.USD, usd)
	}
}

var (
	anthropicTokens = Tokens{Input: 1000, CacheRead: 2000, CacheWrite: 100, CacheWrite1h: 200, Output: 500}
	otherTokens     = Tokens{Input: 600, CacheRead: 400, Output: 500}
)

const (
	sonnet5 = (1000*2 + 2000*.2 + 100*2.5 + 200*4 + 500*10) / 1e6
	gpt5    = (600*1.25 + 400*.125 + 500*10) / 1e6
	pro25   = (600*1.25 + 400*.125 + 500*10) / 1e6
)

func TestAnthropicClient(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	f.setEnv(t)
	client := anthropic.NewClient()
	params := anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		Tools: []anthropic.ToolUnionParam{
			{OfTool: &anthropic.ToolParam{Name: "read", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"url": map[string]any{"type": "string"}}}}},
			{OfBashTool20250124: &anthropic.ToolBash20250124Param{}},
		},
	}
	msg, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if msg.Content[0].Text != "hello" {
		t.Errorf("the answer is %q", msg.Content[0].Text)
	}
	f.sent(t, "/v1/messages", "X-Api-Key")
	wantCharge(t, f.books.await(t, 1)[0], Anthropic, anthropicTokens, sonnet5)

	f.up.mu.Lock()
	f.up.answer = stream(nil, anthropicEvents...)
	f.up.mu.Unlock()
	s := client.Messages.NewStreaming(t.Context(), params)
	var text strings.Builder
	for s.Next() {
		text.WriteString(s.Current().Delta.Text)
	}
	if s.Err() != nil || !strings.HasPrefix(text.String(), "hello") {
		t.Errorf("streamed %q, %v", text.String(), s.Err())
	}
	wantCharge(t, f.books.await(t, 2)[1], Anthropic, Tokens{Input: 1000, CacheRead: 2000, Output: 500}, (1000*2+2000*.2+500*10)/1e6)

	if _, err := client.Beta.Messages.New(t.Context(), anthropic.BetaMessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 10, Betas: []anthropic.AnthropicBeta{"files-api-2025-04-14", "interleaved-thinking-2025-05-14", "unheard-of-2027-01-01"},
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("hi"))},
	}); err == nil {
		t.Log("a stream read as a message") // the answer does not matter here
	}
	if got := f.sent(t, "/v1/messages?beta=true", "X-Api-Key").Header.Get("Anthropic-Beta"); got != "interleaved-thinking-2025-05-14" {
		t.Errorf("betas that went out: %q", got)
	}
}

func TestAnthropicClientShowsRefusals(t *testing.T) {
	f := start(t, jsonAnswer(anthropicAnswer), nil)
	f.setEnv(t)
	client := anthropic.NewClient(aoption.WithMaxRetries(3))
	_, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		Tools:    []anthropic.ToolUnionParam{{OfWebSearchTool20250305: &anthropic.WebSearchTool20250305Param{}}},
	})
	var apiErr *anthropic.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 403 || !strings.Contains(err.Error(), "web_search") {
		t.Errorf("the client saw %v", err)
	}
	if n := len(f.up.requests()); n != 0 {
		t.Errorf("%d requests reached the provider", n)
	}
	f.books.set(func(b *books) { b.cap, b.spent = 1, 1 })
	_, err = client.Messages.New(t.Context(), anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 1024, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	})
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 402 || !strings.Contains(err.Error(), "used up") {
		t.Errorf("over the cap the client saw %v", err)
	}
	if diff := cmp.Diff([]string{RuleFeature, RuleCap}, f.books.rules()); diff != "" {
		t.Errorf("each refusal is tried once and recorded (-want +got)\n%s", diff)
	}
}

func TestOpenAIClient(t *testing.T) {
	f := start(t, jsonAnswer(chatAnswer), nil)
	f.setEnv(t)
	client := openai.NewClient()
	params := openai.ChatCompletionNewParams{Model: "gpt-5", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	got, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil || got.Choices[0].Message.Content != "hello" {
		t.Fatalf("%v, %v", got, err)
	}
	f.sent(t, "/v1/chat/completions", "Authorization")
	wantCharge(t, f.books.await(t, 1)[0], OpenAI, otherTokens, gpt5)

	f.up.mu.Lock()
	f.up.answer = stream(nil, chatEvents...)
	f.up.mu.Unlock()
	s := client.Chat.Completions.NewStreaming(t.Context(), params)
	var text strings.Builder
	for s.Next() {
		// A client that did not ask for the usage indexes without looking.
		text.WriteString(s.Current().Choices[0].Delta.Content)
	}
	if s.Err() != nil || text.String() != "hello" {
		t.Errorf("streamed %q, %v", text.String(), s.Err())
	}
	if body := f.sent(t, "/v1/chat/completions", "Authorization").Body; !strings.Contains(body, `"stream_options":{"include_usage":true}`) {
		t.Errorf("the usage was not asked for: %s", body)
	}
	wantCharge(t, f.books.await(t, 2)[1], OpenAI, otherTokens, gpt5)

	params.StreamOptions.IncludeUsage = openai.Bool(true)
	s = client.Chat.Completions.NewStreaming(t.Context(), params)
	usage := false
	for s.Next() {
		usage = usage || s.Current().Usage.CompletionTokens == 500
	}
	if s.Err() != nil || !usage {
		t.Errorf("a client that asked for the usage got it: %v, %v", usage, s.Err())
	}
}

func TestOpenAIResponsesClient(t *testing.T) {
	f := start(t, jsonAnswer(responsesAnswer), nil)
	f.setEnv(t)
	client := openai.NewClient()
	params := responses.ResponseNewParams{Model: "gpt-5", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}}
	got, err := client.Responses.New(t.Context(), params)
	if err != nil || got.OutputText() != "hello" {
		t.Fatalf("%v, %v", got, err)
	}
	f.sent(t, "/v1/responses", "Authorization")
	wantCharge(t, f.books.await(t, 1)[0], OpenAI, otherTokens, gpt5)

	f.up.mu.Lock()
	f.up.answer = stream(nil, responseEvents...)
	f.up.mu.Unlock()
	s := client.Responses.NewStreaming(t.Context(), params)
	var text strings.Builder
	for s.Next() {
		text.WriteString(s.Current().Delta)
	}
	if s.Err() != nil || text.String() != "hello" {
		t.Errorf("streamed %q, %v", text.String(), s.Err())
	}
	wantCharge(t, f.books.await(t, 2)[1], OpenAI, otherTokens, gpt5)

	params.Tools = []responses.ToolUnionParam{{OfMcp: &responses.ToolMcpParam{ServerLabel: "x", ServerURL: openai.String("https://evil.test")}}}
	client = openai.NewClient(ooption.WithMaxRetries(2))
	_, err = client.Responses.New(t.Context(), params)
	var apiErr *openai.Error
	if !errors.As(err, &apiErr) || apiErr.StatusCode != 403 || apiErr.Code != RuleFeature {
		t.Errorf("the client saw %v", err)
	}
}

func TestGeminiClient(t *testing.T) {
	f := start(t, jsonAnswer(geminiAnswer), nil)
	f.setEnv(t)
	client, err := genai.NewClient(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Models.GenerateContent(t.Context(), "gemini-2.5-pro", genai.Text("hi"), nil)
	if err != nil || got.Text() != "hello" {
		t.Fatalf("%v, %v", got, err)
	}
	f.sent(t, "/v1beta/models/gemini-2.5-pro:generateContent", "X-Goog-Api-Key")
	wantCharge(t, f.books.await(t, 1)[0], Gemini, otherTokens, pro25)

	f.up.mu.Lock()
	f.up.answer = stream(nil, geminiEvents...)
	f.up.mu.Unlock()
	var text strings.Builder
	for part, err := range client.Models.GenerateContentStream(t.Context(), "gemini-2.5-pro", genai.Text("hi"), nil) {
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(part.Text())
	}
	if text.String() != "helhello" {
		t.Errorf("streamed %q", text.String())
	}
	f.sent(t, "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "X-Goog-Api-Key")
	wantCharge(t, f.books.await(t, 2)[1], Gemini, otherTokens, pro25)

	_, err = client.Models.GenerateContent(t.Context(), "gemini-2.5-pro", genai.Text("hi"), &genai.GenerateContentConfig{Tools: []*genai.Tool{{GoogleSearch: &genai.GoogleSearch{}}}})
	var apiErr genai.APIError
	if !errors.As(err, &apiErr) || apiErr.Code != 403 || apiErr.Status != "PERMISSION_DENIED" || !strings.Contains(apiErr.Message, "web_search") {
		t.Errorf("the client saw %v", err)
	}
}
