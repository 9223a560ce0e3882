package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cordon-sandbox/cordon/guard/judge"
)

const schema = `{"type":"object","properties":{"verdict":{"type":"string"}}}`

func question(version string) string {
	b, err := json.Marshal(map[string]any{
		"version": version, "system": "sys", "prompt": "may it?", "schema": json.RawMessage(schema), "code": "c0de", "call": json.RawMessage(`{}`), "max_tokens": 64,
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func server(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// chat answers as a server of the OpenAI protocol does.
func chat(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(body), "may it?") || r.Header.Get("Authorization") != "Bearer test-key" {
			http.Error(w, "not the question", http.StatusBadRequest)
			return
		}
		quoted, _ := json.Marshal(text)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":%s}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, quoted)
	}
}

func TestAQuestionHasOneAnswer(t *testing.T) {
	t.Setenv(keyVariable, "test-key")
	url := server(t, chat(`{"verdict":"escalate","reason":"ask","code":"c0de"}`))
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-provider", "openai", "-model", "m", "-base-url", url}, strings.NewReader(question(judge.PromptVersion)), &out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Verdict, Code string
		Input         int `json:"input_tokens"`
		Output        int `json:"output_tokens"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Verdict != "escalate" || got.Code != "c0de" || got.Input != 7 || got.Output != 3 {
		t.Errorf("%s: %+v, %v", out.Bytes(), got, err)
	}
}

func TestWhatCannotBeAskedIsAnErrorAndNoAnswer(t *testing.T) {
	t.Setenv(keyVariable, "test-key")
	good := server(t, chat(`{"verdict":"proceed","reason":"r","code":"c0de"}`))
	talk := server(t, chat(`I would say {"verdict":"proceed"}`))
	broken := server(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret-of-the-server", http.StatusBadRequest)
	})
	down := httptest.NewServer(nil)
	down.Close()
	openai := func(url string) []string { return []string{"-provider", "openai", "-model", "m", "-base-url", url} }
	for _, c := range []struct {
		name string
		args []string
		in   io.Reader
		want string // in the error
	}{
		{"no provider", nil, strings.NewReader(question(judge.PromptVersion)), "want anthropic, openai or gemini"},
		{"an unknown provider", []string{"-provider", "oracle", "-model", "m"}, strings.NewReader(question(judge.PromptVersion)), `"oracle"`},
		{"no model", []string{"-provider", "openai", "-base-url", good}, strings.NewReader(question(judge.PromptVersion)), "model"},
		{"an unknown flag", []string{"-nonsense"}, strings.NewReader(""), "nonsense"},
		{"no question", openai(good), strings.NewReader(""), "cannot be read"},
		{"a question that is no JSON", openai(good), strings.NewReader("may it?"), "cannot be read"},
		{"a question of another version", openai(good), strings.NewReader(question("0")), `version "0"`},
		{"a question that is too long", openai(good), strings.NewReader(strings.Repeat("x", maxQuestion+1)), "more than"},
		{"a question that breaks off", openai(good), iotest.ErrReader(errors.New("cut")), "cut"},
		{"an answer that is no object", openai(talk), strings.NewReader(question(judge.PromptVersion)), "not one JSON object"},
		{"a server that refuses", openai(broken), strings.NewReader(question(judge.PromptVersion)), ""},
		{"a server that is down", openai(down.URL), strings.NewReader(question(judge.PromptVersion)), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), c.args, c.in, &out)
			if err == nil || out.Len() > 0 || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%q, %v, want an error with %q", out.Bytes(), err, c.want)
			}
			for _, secret := range []string{"test-key", "may it?", "secret-of-the-server"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error tells %q: %v", secret, err)
				}
			}
		})
	}
}

func TestAServerThatHangsEndsWithTheContext(t *testing.T) {
	asked := make(chan struct{})
	url := server(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the end of the request is noticed only after its body
		close(asked)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"-provider", "openai", "-model", "m", "-base-url", url}, strings.NewReader(question(judge.PromptVersion)), io.Discard)
	}()
	<-asked
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("an answer came")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits")
	}
}
