// Package openai asks a model over OpenAI's chat completions, the protocol
// that other providers and local model servers speak too.
//
// It guarantees what judge.Asker asks for: one request without retries, to
// the configured server alone, with the configured key alone (the library's
// own variables are not read), a bounded response, and errors without
// content.
//
// What this package does not stop: the provider sees the redacted call. A
// server that ignores the schema gives answers that cannot be used.
package openai

import (
	"context"
	"errors"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/cordon-sandbox/cordon/guard/judge"
)

// Config is what an Asker is made from. Model is required, and one of Key
// and BaseURL.
type Config struct {
	Model string
	// Key may be empty for a server that wants none.
	Key string
	// BaseURL is empty for OpenAI's own; it ends before "/chat/completions".
	BaseURL string
}

// Asker asks one model.
type Asker struct {
	model string
	chat  sdk.ChatCompletionService
}

var _ judge.Asker = (*Asker)(nil)

// New returns an Asker. It does not connect.
func New(c Config) (*Asker, error) {
	if c.Model == "" || c.Key == "" && c.BaseURL == "" {
		return nil, errors.New("judge/openai: no model, or neither a key nor a base URL was given")
	}
	opts := []option.RequestOption{option.WithEnvironmentProduction(), option.WithHTTPClient(judge.HTTPClient()), option.WithMaxRetries(0)}
	if c.Key != "" {
		opts = append(opts, option.WithAPIKey(c.Key))
	}
	if c.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(c.BaseURL))
	}
	// The service alone: a whole client reads the environment for defaults.
	return &Asker{c.Model, sdk.NewChatCompletionService(opts...)}, nil
}

// Ask implements judge.Asker.
func (a *Asker) Ask(ctx context.Context, p judge.Prompt) (judge.Reply, error) {
	c, err := a.chat.New(ctx, sdk.ChatCompletionNewParams{
		Model:               shared.ChatModel(a.model),
		MaxCompletionTokens: sdk.Int(p.MaxTokens),
		Messages:            []sdk.ChatCompletionMessageParamUnion{sdk.SystemMessage(p.System), sdk.UserMessage(p.User)},
		ResponseFormat: sdk.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "verdict", Strict: sdk.Bool(true), Schema: p.Schema},
		}},
	})
	if err != nil {
		var api *sdk.Error
		if errors.As(err, &api) {
			return judge.Reply{}, &judge.StatusError{Status: api.StatusCode}
		}
		return judge.Reply{}, judge.Opaque(err)
	}
	r := judge.Reply{InputTokens: c.Usage.PromptTokens, OutputTokens: c.Usage.CompletionTokens}
	if len(c.Choices) != 1 || c.Choices[0].FinishReason != "stop" || c.Choices[0].Message.Refusal != "" {
		return r, judge.ErrIncomplete
	}
	r.Text = c.Choices[0].Message.Content
	return r, nil
}
