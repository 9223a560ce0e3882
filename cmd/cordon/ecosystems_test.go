package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/ecosystem"
	"github.com/google/go-cmp/cmp"
)

// packageWorld is a user's machine on which npm and go say where they go, and
// count how often they are asked.
type packageWorld struct {
	t                *testing.T
	dir, home, state string
	env              map[string]string
	log              bytes.Buffer
}

func newPackageWorld(t *testing.T) *packageWorld {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &packageWorld{t: t, dir: dir, home: filepath.Join(dir, "home"), state: filepath.Join(dir, "state")}
	w.env = map[string]string{"PATH": filepath.Join(dir, "bin") + ":/usr/bin:/bin"}
	for _, d := range []string{w.home, filepath.Join(dir, "bin")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.tool("npm", `cat <<'END'
{"registry": "https://npm.example.net/"}
END`)
	w.tool("go", `cat <<'END'
{"GOPROXY": "https://modules.example.net", "GOSUMDB": "off"}
END`)
	return w
}

func (w *packageWorld) tool(name, script string) {
	w.t.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho x >> %s\n%s\n", filepath.Join(w.dir, name+".asked"), script)
	if err := os.WriteFile(filepath.Join(w.dir, "bin", name), []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *packageWorld) asked(name string) int {
	b, err := os.ReadFile(filepath.Join(w.dir, name+".asked"))
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("x"))
}

func (w *packageWorld) packages(names ...string) *packages {
	return &packages{
		names: names, named: true, limit: 20 * time.Second, now: time.Now, file: filepath.Join(w.state, "ecosystems.json"),
		resolv: ecosystem.Config{Home: w.home, Root: w.dir, Env: func(k string) string { return w.env[k] }},
	}
}

func (w *packageWorld) hosts(p *packages) []string {
	w.log.Reset()
	return p.hosts(context.Background(), &lineLog{w: &w.log})
}

func TestPackageToolsAreAskedOnce(t *testing.T) {
	w := newPackageWorld(t)
	want := []string{"npm.example.net", "modules.example.net"}
	for range 3 {
		if d := cmp.Diff(want, w.hosts(w.packages("npm", "go"))); d != "" {
			t.Fatal(d)
		}
	}
	if w.asked("npm") != 1 || w.asked("go") != 1 {
		t.Fatalf("npm was asked %d times, go %d times", w.asked("npm"), w.asked("go"))
	}
	// What the tool goes by has changed.
	if err := os.WriteFile(filepath.Join(w.home, ".npmrc"), []byte("registry=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.hosts(w.packages("npm", "go"))
	if w.asked("npm") != 2 || w.asked("go") != 1 {
		t.Errorf("npm was asked %d times, go %d times", w.asked("npm"), w.asked("go"))
	}
	// An hour has passed; a clock that was set back proves nothing.
	for i, at := range []time.Duration{packagesAge + time.Second, -time.Hour} {
		p := w.packages("go")
		p.now = func() time.Time { return time.Now().Add(at) }
		w.hosts(p)
		if w.asked("go") != 2+i {
			t.Errorf("%v: go was asked %d times", at, w.asked("go"))
		}
	}
}

func TestPackageHostsFailOpenForTheDoorAndShutForTheHost(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(w *packageWorld) *packages
		want  []string
		log   string
	}{
		{"a tool that does not answer in time", func(w *packageWorld) *packages {
			w.tool("npm", "exec sleep 60")
			p := w.packages("npm")
			p.limit = 200 * time.Millisecond
			return p
		}, nil, "npm"},
		{"a registry that is an LLM API", func(w *packageWorld) *packages {
			w.tool("npm", `echo '{"registry": "https://api.openai.com/", "@a:registry": "https://npm.example.net"}'`)
			return w.packages("npm")
		}, []string{"npm.example.net"}, "LLM API host"},
		{"a file that somebody filled with nonsense", func(w *packageWorld) *packages {
			if err := os.MkdirAll(w.state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(w.state, "ecosystems.json"), []byte(`{"found": [1`), 0o600); err != nil {
				t.Fatal(err)
			}
			return w.packages("npm")
		}, []string{"npm.example.net"}, ""},
		{"a state directory that cannot be made", func(w *packageWorld) *packages {
			if err := os.WriteFile(w.state, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return w.packages("npm")
		}, []string{"npm.example.net"}, ""},
		{"a home that is no path", func(w *packageWorld) *packages {
			p := w.packages("npm")
			p.resolv.Home = "not absolute"
			return p
		}, nil, "want an absolute path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newPackageWorld(t)
			p := c.setup(w)
			if d := cmp.Diff(c.want, w.hosts(p)); d != "" {
				t.Error(d)
			}
			if !strings.Contains(w.log.String(), c.log) || c.log == "" && w.log.Len() > 0 {
				t.Errorf("log %q, want %q", w.log.String(), c.log)
			}
		})
	}
}

func TestAToolThatHangsIsNotAskedAtEachCall(t *testing.T) {
	w := newPackageWorld(t)
	w.tool("npm", "exec sleep 60")
	var said int
	for range 2 {
		p := w.packages("npm")
		p.limit = 200 * time.Millisecond
		w.hosts(p)
		said += strings.Count(w.log.String(), "\n")
	}
	if w.asked("npm") != 1 || said != 1 {
		t.Errorf("asked %d times, said %d lines", w.asked("npm"), said)
	}
	p := w.packages("npm")
	p.limit, p.now = 200*time.Millisecond, func() time.Time { return time.Now().Add(packagesRetry + time.Second) }
	w.hosts(p)
	if w.asked("npm") != 2 {
		t.Errorf("asked %d times", w.asked("npm"))
	}
}

func TestWhichEcosystemsAreMeant(t *testing.T) {
	for _, c := range []struct {
		name, file string
		flags      map[string][]string
		want       []string
		named      bool
	}{
		{name: "profile coding has those of its own", want: codingEcosystems},
		{name: "profile atom has none", flags: map[string][]string{"profile": {"atom"}}},
		{name: "a tier without a baseline has none", flags: map[string][]string{"tier": {"intern"}}},
		{name: "the file names them", file: "egress: {ecosystems: [gem]}", want: []string{"gem"}, named: true},
		{name: "a flag names them, as a list", flags: map[string][]string{"ecosystem": {"npm,Go", "pip"}}, want: []string{"npm", "go", "pip"}, named: true},
		{name: "a flag takes back what the file names", file: "egress: {ecosystems: [gem]}", flags: map[string][]string{"ecosystem": {"none"}}, want: []string{}, named: true},
		{name: "all of them", flags: map[string][]string{"ecosystem": {"all"}}, want: ecosystem.Names(), named: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			in := config.Input{Flags: c.flags, Getenv: func(string) (string, bool) { return "", false }, Dir: dir}
			if c.file != "" {
				in.File = filepath.Join(dir, "cordon.yaml")
				if err := os.WriteFile(in.File, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			conf, err := config.Load(in)
			if err != nil {
				t.Fatal(err)
			}
			p := newPackages(conf, time.Second, dir)
			if !slices.Equal(p.names, c.want) || p.named != c.named {
				t.Errorf("%q, named %v", p.names, p.named)
			}
		})
	}
}

func TestTheConfigurationKnowsEachEcosystem(t *testing.T) {
	if d := cmp.Diff(ecosystem.Names(), config.Ecosystems()); d != "" {
		t.Error(d)
	}
}

// What is shown for diagnosis is what the doors go by, with its reasons.
func TestThePackageReportIsWhatTheDoorsGoBy(t *testing.T) {
	w := newPackageWorld(t)
	t.Setenv("HOME", w.home)
	t.Setenv("PATH", w.env["PATH"])
	t.Setenv("XDG_STATE_HOME", w.state)
	for _, v := range []string{"GOPROXY", "npm_config_registry", "NPM_CONFIG_REGISTRY"} {
		t.Setenv(v, "")
	}
	c := loadText(t, "egress: {ecosystems: [npm, go]}", nil)
	hosts, problems, err := packageReport(t.Context(), c, w.dir+"/ws")
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	var rules []string
	for _, h := range hosts {
		if h.Why == "" {
			t.Errorf("%s without a reason", h.Host)
		}
		rules = append(rules, h.Rule())
	}
	if d := cmp.Diff(rules, w.hosts(newPackages(c, resolveTime, w.dir+"/ws"))); d != "" {
		t.Error(d)
	}
}
