package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/config"
	"github.com/google/go-cmp/cmp"
)

func TestAKeyGoesOnlyWhereItBelongs(t *testing.T) {
	file := func(t *testing.T, text string) *config.Config {
		t.Helper()
		return loadText(t, text, map[string]string{"GATEWAY_KEY": "key-of-the-gateway"})
	}
	for _, c := range []struct {
		name, file string
		flags      modelFlags
		env        map[string]string
		key        bool
		own        bool
		err        string
	}{
		{name: "the provider itself", flags: modelFlags{providers: []string{"openai"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, key: true},
		{name: "Google's other variable", flags: modelFlags{providers: []string{"gemini"}}, env: map[string]string{"GOOGLE_API_KEY": "key-of-google"}, key: true},
		{name: "the provider itself without a key", flags: modelFlags{providers: []string{"openai"}}, err: "OPENAI_API_KEY"},
		{name: "another provider's key", flags: modelFlags{providers: []string{"openai"}}, env: map[string]string{"ANTHROPIC_API_KEY": "key-of-another"}, err: "OPENAI_API_KEY"},
		{name: "a server that was named, by TLS", flags: modelFlags{bases: []string{"openai=https://models.example.net/v1"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, key: true, own: true},
		{name: "a server on this machine", flags: modelFlags{bases: []string{"openai=http://127.0.0.1:1/v1"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, key: true, own: true},
		{name: "a server elsewhere in the clear", flags: modelFlags{bases: []string{"openai=http://models.example.net/v1"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, own: true},
		{name: "a server that takes none", flags: modelFlags{bases: []string{"openai=http://models.example.net/v1"}}, own: true},
		{name: "the file's server and its key", file: "egress: {llm: [{provider: openai, base_url: \"https://models.example.net/v1\", key_env: GATEWAY_KEY}]}", flags: modelFlags{providers: []string{"openai"}}, key: true, own: true},
		{name: "the file's server, whose key is not set", file: "egress: {llm: [{provider: openai, base_url: \"https://models.example.net/v1\", key_env: NO_SUCH_KEY}]}", flags: modelFlags{providers: []string{"openai"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, err: "NO_SUCH_KEY"},
		{name: "the file's server, which takes none", file: "egress: {llm: [{provider: openai, base_url: \"https://models.example.net/v1\"}]}", flags: modelFlags{providers: []string{"openai"}}, env: map[string]string{"OPENAI_API_KEY": "key-of-openai"}, own: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			got, err := c.flags.servers(file(t, c.file), func(name string) string { return c.env[name] }, &lineLog{w: &log})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
			if (got[0].Key != nil) != c.key || got[0].own != c.own {
				t.Errorf("a key %v, own %v", got[0].Key != nil, got[0].own)
			}
			if len(c.env) > 0 && !c.key && c.file == "" && !strings.Contains(log.String(), "plain HTTP") {
				t.Errorf("log %q", log.String())
			}
		})
	}
}

func TestEachProviderOnce(t *testing.T) {
	f := modelFlags{providers: []string{"openai", "openai"}, bases: []string{"openai=http://127.0.0.1:1/v1", "anthropic=http://127.0.0.1:1"}}
	got, err := f.servers(loadText(t, "", nil), func(string) string { return "" }, &lineLog{w: &bytes.Buffer{}})
	if err != nil || len(got) != 2 || got[0].BaseURL != "http://127.0.0.1:1/v1" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNoNameStandsTwiceInAnEnvironment(t *testing.T) {
	env := []string{"A=1", "NO_PROXY=", "OPENAI_API_KEY=the user's", "B=2"}
	got := overlaid(env, []string{"NO_PROXY=127.0.0.1", "OPENAI_API_KEY=placeholder"})
	want := []string{"A=1", "B=2", "NO_PROXY=127.0.0.1", "OPENAI_API_KEY=placeholder"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !slices.Contains(env, "NO_PROXY=") {
		t.Error("the environment that was given has changed")
	}
}

// loadText loads a configuration file of that text.
func loadText(t *testing.T, text string, env map[string]string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	in := config.Input{Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }, Dir: dir}
	if text != "" {
		in.File = filepath.Join(dir, "cordon.yaml")
		if err := os.WriteFile(in.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
