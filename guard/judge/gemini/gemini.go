// Package gemini asks a model over Google's Gemini API.
//
// It guarantees what judge.Asker asks for: one request, to the configured
// server alone, with the configured key alone, a bounded response, and errors
// without content.
//
// What this package does not stop: the provider sees the redacted call. The
// library writes a line to the log where the environment holds both of its
// key variables, though neither is used here.
package gemini

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genai"

	"github.com/cordon-sandbox/cordon/guard/judge"
)

// Config is what an Asker is made from. Model and Key are required.
type Config struct {
	Model, Key string
	// BaseURL is empty for the provider's own.
	BaseURL string
}

const ownURL = "https://generativelanguage.googleapis.com/"

// Asker asks one model.
type Asker struct {
	model  string
	models *genai.Models
}

var _ judge.Asker = (*Asker)(nil)

// New returns an Asker. It does not connect.
func New(c Config) (*Asker, error) {
	if c.Model == "" || c.Key == "" {
		return nil, errors.New("judge/gemini: no model or no key was given")
	}
	if c.BaseURL == "" {
		c.BaseURL = ownURL // or the library takes one from the environment
	}
	if !strings.HasSuffix(c.BaseURL, "/") {
		c.BaseURL += "/"
	}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: c.Key, HTTPClient: judge.HTTPClient(), HTTPOptions: genai.HTTPOptions{BaseURL: c.BaseURL},
	})
	if err != nil {
		return nil, errors.New("judge/gemini: the library refuses the configuration") // its error holds the key
	}
	return &Asker{c.Model, client.Models}, nil
}

// Ask implements judge.Asker.
func (a *Asker) Ask(ctx context.Context, p judge.Prompt) (judge.Reply, error) {
	resp, err := a.models.GenerateContent(ctx, a.model, genai.Text(p.User), &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(p.System, genai.RoleUser),
		ResponseMIMEType:  "application/json", ResponseJsonSchema: p.Schema,
		MaxOutputTokens: int32(p.MaxTokens), CandidateCount: 1,
	})
	if err != nil {
		var api genai.APIError
		if errors.As(err, &api) {
			return judge.Reply{}, &judge.StatusError{Status: api.Code}
		}
		return judge.Reply{}, judge.Opaque(err)
	}
	var r judge.Reply
	if u := resp.UsageMetadata; u != nil {
		r.InputTokens, r.OutputTokens = int64(u.PromptTokenCount), int64(u.CandidatesTokenCount)+int64(u.ThoughtsTokenCount)
	}
	if len(resp.Candidates) != 1 || resp.Candidates[0].FinishReason != genai.FinishReasonStop || resp.Candidates[0].Content == nil {
		return r, judge.ErrIncomplete
	}
	var text strings.Builder
	for _, part := range resp.Candidates[0].Content.Parts {
		if !part.Thought {
			text.WriteString(part.Text)
		}
	}
	r.Text = text.String()
	return r, nil
}
