// Package anthropic asks a model over Anthropic's Messages API.
//
// It guarantees what judge.Asker asks for: one request without retries, to
// the configured server alone, with the configured key alone (the library's
// own variables are not read, its telemetry is off), a bounded response, and
// errors without content.
//
// What this package does not stop: the provider sees the redacted call.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/cordon-sandbox/cordon/guard/judge"
)

// Config is what an Asker is made from. Model and Key are required.
type Config struct {
	Model, Key string
	// BaseURL is empty for the provider's own.
	BaseURL string
}

// Asker asks one model.
type Asker struct {
	model    string
	messages sdk.MessageService
}

var _ judge.Asker = (*Asker)(nil)

// New returns an Asker. It does not connect.
func New(c Config) (*Asker, error) {
	if c.Model == "" || c.Key == "" {
		return nil, errors.New("judge/anthropic: no model or no key was given")
	}
	opts := []option.RequestOption{
		option.WithEnvironmentProduction(), option.WithAPIKey(c.Key), option.WithHTTPClient(judge.HTTPClient()),
		option.WithMaxRetries(0), option.WithoutOpenTelemetry(),
	}
	if c.BaseURL != "" {
		opts = append(opts, option.WithBaseURL(c.BaseURL))
	}
	// The service alone: a whole client reads the environment for defaults.
	return &Asker{c.Model, sdk.NewMessageService(opts...)}, nil
}

// Ask implements judge.Asker.
func (a *Asker) Ask(ctx context.Context, p judge.Prompt) (judge.Reply, error) {
	var schema map[string]any
	if err := json.Unmarshal(p.Schema, &schema); err != nil {
		return judge.Reply{}, fmt.Errorf("judge/anthropic: schema: %w", err)
	}
	m, err := a.messages.New(ctx, sdk.MessageNewParams{
		Model: sdk.Model(a.model), MaxTokens: p.MaxTokens,
		System:       []sdk.TextBlockParam{{Text: p.System}},
		Messages:     []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock(p.User))},
		OutputConfig: sdk.OutputConfigParam{Format: sdk.JSONOutputFormatParam{Schema: schema}},
	})
	if err != nil {
		var api *sdk.Error
		if errors.As(err, &api) {
			return judge.Reply{}, &judge.StatusError{Status: api.StatusCode}
		}
		return judge.Reply{}, judge.Opaque(err)
	}
	r := judge.Reply{InputTokens: m.Usage.InputTokens, OutputTokens: m.Usage.OutputTokens}
	if m.StopReason != sdk.StopReasonEndTurn {
		return r, judge.ErrIncomplete
	}
	var text strings.Builder
	for i := range m.Content {
		if m.Content[i].Type == "text" {
			text.WriteString(m.Content[i].Text)
		}
	}
	r.Text = text.String()
	return r, nil
}
