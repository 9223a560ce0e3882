package ecosystem

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// world is a user's machine made of files.
type world struct {
	t                     *testing.T
	home, root, bin, work string
	env                   map[string]string
}

func newWorld(t *testing.T) *world {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, filepath.Join(dir, "home"), filepath.Join(dir, "root"), filepath.Join(dir, "bin"), filepath.Join(dir, "work"), map[string]string{}}
	for _, d := range []string{w.home, w.root, w.bin, w.work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.env["PATH"] = w.bin + ":/usr/bin:/bin"
	return w
}

// file writes a file; "~/x" is in the home, "/x" in the root, "bin/x" a
// program, "work/x" in the workspace.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path, mode := filepath.Join(w.root, name), os.FileMode(0o644)
	switch {
	case strings.HasPrefix(name, "~/"):
		path = filepath.Join(w.home, name[2:])
	case strings.HasPrefix(name, "bin/"):
		path, mode = filepath.Join(w.bin, name[4:]), 0o755
	case strings.HasPrefix(name, "work/"):
		path = filepath.Join(w.work, name[5:])
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// tool writes a program that prints text.
func (w *world) tool(name, text string) {
	w.file("bin/"+name, "#!/bin/sh\ncat <<'END'\n"+text+"\nEND\n")
}

func (w *world) resolve(names ...string) (rules, problems []string) {
	w.t.Helper()
	r, err := New(Config{Home: w.home, Env: func(k string) string { return w.env[k] }, Workspaces: []string{w.work}, Root: w.root, Timeout: 5 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	hosts, ps := r.Resolve(w.t.Context(), names)
	for _, h := range hosts {
		rules = append(rules, h.Rule())
		if h.Ecosystem == "" || !strings.HasPrefix(h.Why, h.Ecosystem+": ") || strings.Contains(h.Why, "secret") {
			w.t.Errorf("host %+v", h)
		}
	}
	for _, p := range ps {
		problems = append(problems, p.String())
	}
	return rules, problems
}

// want compares rules, and looks for a part of each problem.
func want(t *testing.T, rules, problems, wantRules, wantProblems []string) {
	t.Helper()
	if diff := cmp.Diff(wantRules, rules); diff != "" {
		t.Errorf("rules (-want +got)\n%s", diff)
	}
	if len(problems) != len(wantProblems) {
		t.Fatalf("problems %q, want %q", problems, wantProblems)
	}
	for i := range problems {
		if !strings.Contains(problems[i], wantProblems[i]) {
			t.Errorf("problem %q, want %q", problems[i], wantProblems[i])
		}
		if strings.Contains(problems[i], "secret") {
			t.Errorf("problem %q holds a secret", problems[i])
		}
	}
}

func TestEcosystems(t *testing.T) {
	var (
		pip   = []string{"pypi.org", "files.pythonhosted.org"}
		cargo = []string{"index.crates.io", "static.crates.io", "crates.io"}
		gem   = []string{"rubygems.org", "index.rubygems.org"}
	)
	for _, c := range []struct {
		name, ecosystem string
		files           map[string]string
		env             map[string]string
		tools           map[string]string
		rules, problems []string
	}{
		{name: "npm with its registry and two scopes", ecosystem: "npm",
			tools: map[string]string{"npm": `{"registry": "https://npm.example.test/", "@a:registry": "https://user:secret@private.example.test:8443/npm/", "@b:registry": "https://npm.example.test/b", "replace-registry-host": "x", "cache": "/tmp"}`},
			rules: []string{"npm.example.test", "private.example.test:8443"}},
		{name: "npm with a registry at home", ecosystem: "npm", tools: map[string]string{"npm": `{"registry": "http://10.1.2.3:4873/"}`},
			rules: []string{"10.1.2.3:4873"}, problems: []string{"--unsafe-allow-private 10.1.2.3/32"}},
		{name: "npm with a registry on this machine", ecosystem: "npm", tools: map[string]string{"npm": `{"registry": "http://localhost:4873/"}`},
			rules: []string{"localhost:4873"}, problems: []string{"--unsafe-allow-private 127.0.0.0/8"}},
		{name: "npm that is not installed", ecosystem: "npm", env: map[string]string{"PATH": "/nowhere"}, problems: []string{"not on the PATH"}},
		{name: "npm that prints nonsense", ecosystem: "npm", tools: map[string]string{"npm": "hello"}, problems: []string{"no JSON"}},
		{name: "npm that names no registry", ecosystem: "npm", tools: map[string]string{"npm": "{}"}, problems: []string{"names no registry"}},
		{name: "npm with a registry that is no URL", ecosystem: "npm", tools: map[string]string{"npm": `{"registry": "https://a secret.test"}`}, problems: []string{"is no URL", "names no registry"}},

		{name: "go with two proxies", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "https://goproxy.example.test|https://u:secret@second.example.test/x,direct", "GOSUMDB": "sum.example.test"}`},
			rules: []string{"goproxy.example.test", "second.example.test", "sum.example.test"}},
		{name: "go with a checksum database elsewhere", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "https://goproxy.example.test", "GOSUMDB": "sum.example.test+abc+Def https://mirror.example.test/sumdb"}`},
			rules: []string{"goproxy.example.test", "mirror.example.test"}},
		{name: "go with a checksum database by its key", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "https://goproxy.example.test", "GOSUMDB": "sum.example.test+abc+Def"}`},
			rules: []string{"goproxy.example.test", "sum.example.test"}},
		{name: "go without a checksum database", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "https://goproxy.example.test", "GOSUMDB": "off"}`}, rules: []string{"goproxy.example.test"}},
		{name: "go without a proxy", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "direct", "GOSUMDB": "sum.example.test"}`}, problems: []string{"modules come from their own hosts"}},
		{name: "go with all off", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "off", "GOSUMDB": "off"}`}, problems: []string{"names no proxy"}},
		{name: "go with a directory", ecosystem: "go", tools: map[string]string{"go": `{"GOPROXY": "file:///srv/modules", "GOSUMDB": "off"}`}, problems: []string{"names no proxy"}},

		{name: "apt in both forms", ecosystem: "apt", files: map[string]string{
			"/etc/apt/sources.list":                 "# deb http://commented.test x main\ndeb http://one.example.test/debian stable main # x\ndeb-src [arch=amd64 signed-by=/k.gpg]\thttps://two.example.test/debian stable main\ndeb cdrom:[x]/ stable main\ndeb [broken https://x.test y\n",
			"/etc/apt/sources.list.d/a.list":        "deb https://user:secret@three.example.test:8080/x ./\n",
			"/etc/apt/sources.list.d/b.sources":     "Types: deb\n# URIs: http://commented.test\nURIs: http://four.example.test\n https://five.example.test/x\nSuites: s\n\nEnabled: no\nTypes: deb\nURIs: https://disabled.test\n",
			"/etc/apt/sources.list.d/c.list.off":    "deb https://off.test x main\n",
			"/etc/apt/sources.list.d/d.sources":     "Types: deb\r\nURIs: mirror+file:/etc/apt/mirrors/m.list\r\nSuites: s\r\n",
			"/etc/apt/mirrors/m.list":               "https://six.example.test/debian\tpriority:1\n# x\nhttps://seven.example.test/debian\n",
			"/etc/apt/sources.list.d/disabled.save": "deb https://save.test x main\n",
		}, rules: []string{"one.example.test", "two.example.test", "three.example.test:8080", "four.example.test", "five.example.test", "six.example.test", "seven.example.test"}},
		{name: "apt with a list of mirrors on a server", ecosystem: "apt", files: map[string]string{"/etc/apt/sources.list": "deb mirror://mirrors.example.test/list x main\n"},
			rules: []string{"mirrors.example.test"}, problems: []string{"not followed"}},
		{name: "no apt", ecosystem: "apt", problems: []string{"no source"}},
		{name: "apt over onions", ecosystem: "apt", files: map[string]string{"/etc/apt/sources.list": "deb tor+http://x.onion/ x main\n"}, problems: []string{"its scheme", "no source"}},

		{name: "pip as it comes", ecosystem: "pip", rules: pip},
		{name: "pip with an index", ecosystem: "pip", files: map[string]string{"/etc/pip.conf": "[global]\nindex-url = https://user:secret@pip.example.test/simple\n"}, rules: []string{"pip.example.test"}},
		{name: "pip with an index over another", ecosystem: "pip", files: map[string]string{
			"/etc/pip.conf":          "[global]\nindex-url = https://old.example.test/simple\n",
			"~/.config/pip/pip.conf": "[global]\nindex_url: https://new.example.test/simple\nextra-index-url =\n  https://more.example.test/simple\n  https://pypi.org/simple\nfind-links = /opt/wheels https://wheels.example.test/\n[other]\nindex-url = https://other.test\n",
		}, rules: []string{"new.example.test", "more.example.test", "pypi.org", "files.pythonhosted.org", "wheels.example.test"}},
		{name: "pip with an index for installing", ecosystem: "pip", files: map[string]string{"~/.pip/pip.conf": "[install]\nindex-url=https://install.example.test\n"}, rules: append(pip[:2:2], "install.example.test")},
		{name: "pip by the environment", ecosystem: "pip", files: map[string]string{"/etc/pip.conf": "[global]\nindex-url = https://old.example.test/simple\n"}, env: map[string]string{"PIP_INDEX_URL": "https://env.example.test"}, rules: []string{"env.example.test"}},
		{name: "pip without an index", ecosystem: "pip", env: map[string]string{"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/opt/wheels"}},

		{name: "cargo as it comes", ecosystem: "cargo", rules: cargo},
		{name: "cargo with a source replaced", ecosystem: "cargo", files: map[string]string{"~/.cargo/config.toml": "[source.crates-io]\nreplace-with = 'mirror' # x\n[source.mirror]\nregistry = \"sparse+https://crates.example.test/index/\"\n[registries.mine]\nindex = \"sparse+https://mine.example.test:8443/\"\ntoken = \"secret\"\n"},
			rules: []string{"crates.example.test", "mine.example.test:8443"}},
		{name: "cargo with inline tables and dotted keys", ecosystem: "cargo", files: map[string]string{"~/.cargo/config": "registries = { b = { index = \"https://b.example.test\" }, \"a\" = { index = \"ssh://git@a.example.test/x\" } }\nsource.crates-io.replace-with = \"b\"\nbuild.rustflags = [\"-C\", \"x=]\", # y\n  \"z\"]\n"},
			rules: []string{"b.example.test", "a.example.test:22"}},
		{name: "cargo with vendored sources", ecosystem: "cargo", files: map[string]string{"~/.cargo/config.toml": "[source.crates-io]\nreplace-with='v'\n[source.v]\ndirectory='vendor'\n"}},
		{name: "cargo with sources in a ring", ecosystem: "cargo", files: map[string]string{"~/.cargo/config.toml": "[source.crates-io]\nreplace-with='a'\n[source.a]\nreplace-with='crates-io'\n"}, rules: cargo},
		{name: "cargo with a source that is not there", ecosystem: "cargo", files: map[string]string{"~/.cargo/config.toml": "[source.crates-io]\nreplace-with='a'\n"}, problems: []string{"has no address"}},
		{name: "cargo with a file that breaks off", ecosystem: "cargo", files: map[string]string{"~/.cargo/config.toml": "[registries.mine]\nindex='https://mine.example.test'\n\"x = secret\n"}, rules: append(cargo[:3:3], "mine.example.test"), problems: []string{"line 3"}},

		{name: "maven as it comes", ecosystem: "maven", rules: []string{"repo.maven.apache.org"}},
		{name: "maven with a mirror of all", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": `<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><servers><server><password>secret</password></server></servers><mirrors><mirror><id>m</id><mirrorOf>*,!x</mirrorOf><url>https://maven.example.test/all</url></mirror><mirror><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors></settings>`},
			rules: []string{"maven.example.test"}},
		{name: "maven with repositories", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": `<settings><profiles><profile><repositories><repository><url>https://one.example.test/</url></repository></repositories><pluginRepositories><pluginRepository><url>https://${env.REPO}/x</url></pluginRepository></pluginRepositories></profile></profiles></settings>`}, env: map[string]string{"REPO": "two.example.test"},
			rules: []string{"one.example.test", "two.example.test", "repo.maven.apache.org"}},
		{name: "maven with a mirror of something else", ecosystem: "maven", files: map[string]string{"/etc/maven/settings.xml": `<settings><mirrors><mirror><mirrorOf>*,!central</mirrorOf><url>https://maven.example.test/</url></mirror></mirrors></settings>`},
			rules: []string{"maven.example.test", "repo.maven.apache.org"}},
		{name: "maven with a property that is not known", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": `<settings><mirrors><mirror><mirrorOf>central</mirrorOf><url>https://${host}/</url></mirror></mirrors></settings>`}, problems: []string{"not used"}},
		{name: "maven with no XML", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": `<settings><mirrors>`}, rules: []string{"repo.maven.apache.org"}, problems: []string{"no XML"}},
		{name: "maven with an entity", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": `<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><settings><localRepository>&x;</localRepository></settings>`}, rules: []string{"repo.maven.apache.org"}, problems: []string{"no XML"}},
		{name: "maven nested without end", ecosystem: "maven", files: map[string]string{"~/.m2/settings.xml": strings.Repeat("<a>", 50_000) + strings.Repeat("</a>", 50_000)}, rules: []string{"repo.maven.apache.org"}, problems: []string{"too deep"}},

		{name: "gem as it comes", ecosystem: "gem", rules: gem},
		{name: "gem with sources", ecosystem: "gem", files: map[string]string{"~/.gemrc": "---\n:sources:\n- https://user:secret@gems.example.test/\n- https://rubygems.org/\n:rubygems_api_key: secret\n", "~/.bundle/config": "---\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/: \"https://bundle.example.test\"\nBUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/__FALLBACK_TIMEOUT: \"3\"\nBUNDLE_GEMS__EXAMPLE__TEST: secret\n"},
			rules: []string{"gems.example.test", "rubygems.org", "index.rubygems.org", "bundle.example.test"}},
		{name: "gem with no YAML", ecosystem: "gem", files: map[string]string{"~/.gemrc": "a: [secret"}, rules: gem, problems: []string{"no YAML"}},

		{name: "nuget as it comes", ecosystem: "nuget", rules: []string{"api.nuget.org"}},
		{name: "nuget with sources", ecosystem: "nuget", files: map[string]string{"~/.nuget/NuGet/NuGet.Config": "\ufeff" + `<?xml version="1.0" encoding="utf-8"?><configuration><packageSources><add key="gone" value="https://gone.test"/><clear/><add key="a" value="https://nuget.example.test/v3/index.json" protocolVersion="3"/><add key="b" value="https://off.test"/><add key="local" value="/srv/packages"/></packageSources><disabledPackageSources><add key="B" value="true"/></disabledPackageSources><packageSourceCredentials><a><add key="ClearTextPassword" value="secret"/></a></packageSourceCredentials></configuration>`},
			rules: []string{"nuget.example.test"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			for name, text := range c.files {
				w.file(name, text)
			}
			for name, text := range c.tools {
				w.tool(name, text)
			}
			for k, v := range c.env {
				w.env[k] = v
			}
			rules, problems := w.resolve(c.ecosystem)
			want(t, rules, problems, c.rules, c.problems)
		})
	}
}

func TestTheWorkspaceDecidesNothing(t *testing.T) {
	evil := `{"registry": "https://evil.test/", "GOPROXY": "https://evil.test", "GOSUMDB": "off"}`
	t.Run("a program there is not started", func(t *testing.T) {
		w := newWorld(t)
		marker := filepath.Join(w.work, "started")
		path := w.file("work/bin/npm", "#!/bin/sh\ntouch "+marker+"\necho '"+evil+"'\n")
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		w.env["PATH"] = filepath.Dir(path)
		rules, problems := w.resolve("npm")
		want(t, rules, problems, nil, []string{"lies in a workspace"})
		if _, err := os.Stat(marker); err == nil {
			t.Error("it was started")
		}
		// A link to it from a directory of the user's is no better.
		if err := os.Symlink(path, filepath.Join(w.bin, "npm")); err != nil {
			t.Fatal(err)
		}
		w.env["PATH"] = w.bin
		rules, problems = w.resolve("npm")
		want(t, rules, problems, nil, []string{"lies in a workspace"})
	})
	t.Run("the user's program is found behind it, and cannot find it", func(t *testing.T) {
		w := newWorld(t)
		for _, name := range []string{"npm", "node"} {
			if err := os.Chmod(w.file("work/bin/"+name, "#!/bin/sh\necho '"+evil+"'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		w.file("bin/npm", "#!/bin/sh\necho '{\"registry\":\"https://npm.example.test\",\"@path:registry\":\"'$(command -v node || echo https://none.example.test)'\"}'\n")
		w.env["PATH"] = filepath.Join(w.work, "bin") + "::." + ":" + w.env["PATH"]
		rules, problems := w.resolve("npm")
		if len(problems) != 0 || len(rules) == 0 || rules[0] != "npm.example.test" || strings.Contains(fmt.Sprint(rules), "evil") {
			t.Errorf("%q %q", rules, problems)
		}
	})
	t.Run("a program that anybody can write is not started", func(t *testing.T) {
		w := newWorld(t)
		w.tool("npm", evil)
		if err := os.Chmod(filepath.Join(w.bin, "npm"), 0o777); err != nil {
			t.Fatal(err)
		}
		rules, problems := w.resolve("npm")
		want(t, rules, problems, nil, []string{"written by everybody"})
	})
	t.Run("files there are not read", func(t *testing.T) {
		w := newWorld(t)
		w.env["PIP_CONFIG_FILE"] = w.file("work/pip.conf", "[global]\nindex-url=https://evil.test\n")
		w.env["CARGO_HOME"] = filepath.Join(w.work, ".cargo")
		w.file("work/.cargo/config.toml", "[registries.x]\nindex='https://evil.test'\n")
		w.env["MAVEN_HOME"] = filepath.Join(w.work, "mvn")
		w.file("work/mvn/conf/settings.xml", "<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://evil.test</url></mirror></mirrors></settings>")
		w.env["GEMRC"] = w.file("work/gemrc", ":sources: ['https://evil.test']\n")
		linked := w.file("work/nuget", "<configuration><packageSources><add key='x' value='https://evil.test'/></packageSources></configuration>")
		if err := os.MkdirAll(filepath.Join(w.home, ".nuget/NuGet"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(linked, filepath.Join(w.home, ".nuget/NuGet/NuGet.Config")); err != nil {
			t.Fatal(err)
		}
		rules, problems := w.resolve("pip", "cargo", "maven", "gem", "nuget")
		if strings.Contains(fmt.Sprint(rules), "evil") {
			t.Errorf("rules %q", rules)
		}
		if len(problems) != 5 {
			t.Errorf("problems %q, want one each", problems)
		}
	})
	t.Run("a home within it is not read", func(t *testing.T) {
		w := newWorld(t)
		w.work = filepath.Dir(w.home)
		w.env["PATH"] = "/usr/bin:/bin"
		w.file("~/.config/pip/pip.conf", "[global]\nindex-url=https://evil.test\n")
		w.env["XDG_CONFIG_HOME"] = filepath.Join(w.home, ".config")
		rules, problems := w.resolve("pip")
		want(t, rules, problems, []string{"pypi.org", "files.pythonhosted.org"}, []string{"home directory lies in a workspace", "lies in a workspace"})
	})
	t.Run("a tool's own file that leads there is switched off", func(t *testing.T) {
		w := newWorld(t)
		if err := os.Symlink(w.file("work/npmrc", "registry=https://evil.test\n"), filepath.Join(w.home, ".npmrc")); err != nil {
			t.Fatal(err)
		}
		w.file("bin/npm", "#!/bin/sh\ntest \"$npm_config_userconfig\" = /dev/null && echo '{\"registry\":\"https://npm.example.test\"}'\n")
		rules, problems := w.resolve("npm")
		want(t, rules, problems, []string{"npm.example.test"}, []string{"lies in a workspace"})
	})
	t.Run("variables that lead there are not passed on", func(t *testing.T) {
		w := newWorld(t)
		w.env["GOENV"] = w.file("work/goenv", "GOPROXY=https://evil.test\n")
		w.env["GOPRIVATE"] = "x.test"
		w.env["GITHUB_TOKEN"] = "secret"
		w.file("bin/go", "#!/bin/sh\nif [ \"$GOENV$GITHUB_TOKEN\" = \"\" ] && [ \"$GOPRIVATE\" = x.test ] && [ \"$(pwd)\" = / ]; then echo '{\"GOPROXY\":\"https://go.example.test\",\"GOSUMDB\":\"off\"}'; fi\n")
		rules, problems := w.resolve("go")
		want(t, rules, problems, []string{"go.example.test"}, nil)
	})
}

func TestToolsAreBounded(t *testing.T) {
	t.Run("one that does not end", func(t *testing.T) {
		w := newWorld(t)
		w.file("bin/npm", "#!/bin/sh\nsleep 600 & sleep 600\n")
		r, err := New(Config{Home: w.home, Env: func(k string) string { return w.env[k] }, Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		_, problems := r.Resolve(t.Context(), []string{"npm"})
		if len(problems) != 1 || !strings.Contains(problems[0].What, "did not answer") {
			t.Errorf("problems %v", problems)
		}
	})
	t.Run("one that prints without end", func(t *testing.T) {
		w := newWorld(t)
		w.file("bin/npm", "#!/bin/sh\nwhile :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done\n")
		rules, problems := w.resolve("npm")
		want(t, rules, problems, nil, []string{"printed more"})
	})
	t.Run("one that fails, and says a secret", func(t *testing.T) {
		w := newWorld(t)
		w.file("bin/npm", "#!/bin/sh\necho secret >&2\nexit 7\n")
		rules, problems := w.resolve("npm")
		want(t, rules, problems, nil, []string{"exit status 7"})
	})
	t.Run("a file without end", func(t *testing.T) {
		w := newWorld(t)
		w.file("/etc/pip.conf", strings.Repeat("# \n", maxFile))
		rules, problems := w.resolve("pip")
		want(t, rules, problems, []string{"pypi.org", "files.pythonhosted.org"}, []string{"more than"})
	})
	t.Run("a file that is a device", func(t *testing.T) {
		w := newWorld(t)
		w.env["PIP_CONFIG_FILE"] = "/dev/zero"
		_, problems := w.resolve("pip")
		if len(problems) != 1 || !strings.Contains(problems[0], "no regular file") {
			t.Errorf("problems %q", problems)
		}
	})
	t.Run("hosts without end", func(t *testing.T) {
		w := newWorld(t)
		var b strings.Builder
		for i := range 2 * maxHosts {
			fmt.Fprintf(&b, "deb https://h%d.example.test/ x main\n", i)
		}
		w.file("/etc/apt/sources.list", b.String())
		rules, problems := w.resolve("apt")
		if len(rules) != maxHosts || len(problems) != 1 {
			t.Errorf("%d rules, problems %q", len(rules), problems)
		}
	})
}

func TestOneQuestionATool(t *testing.T) {
	w := newWorld(t)
	count := filepath.Join(w.home, "count")
	w.file("bin/npm", "#!/bin/sh\necho x >> "+count+"\necho '{\"registry\":\"https://npm.example.test\"}'\n")
	r, err := New(Config{Home: w.home, Env: func(k string) string { return w.env[k] }})
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if hosts, problems := r.Resolve(ended, []string{"npm"}); len(hosts) != 0 || len(problems) != 1 {
		t.Errorf("an ended context: %v %v", hosts, problems)
	}
	if err := os.WriteFile(count, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if hosts, problems := r.Resolve(t.Context(), []string{"npm"}); len(hosts) != 1 || len(problems) != 0 {
			t.Fatalf("%v %v", hosts, problems)
		}
	}
	if b, err := os.ReadFile(count); err != nil || string(b) != "x\n" {
		t.Errorf("npm was asked %q times, %v", b, err)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"npm", []string{"npm"}},
		{"npm, go,npm", []string{"go", "npm"}},
		{"all", []string{"apt", "cargo", "gem", "go", "maven", "npm", "nuget", "pip"}},
		{"", nil}, {"npm,", nil}, {"NPM", nil}, {"yarn", nil},
	} {
		got, err := ParseNames(c.in)
		if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
			t.Errorf("%q: %v %v", c.in, got, err)
		}
	}
	w := newWorld(t)
	rules, problems := w.resolve("yarn")
	want(t, rules, problems, nil, []string{"no such ecosystem"})
	for _, bad := range []Config{{Home: "home"}, {Workspaces: []string{"work"}}, {Timeout: -1}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if hosts, _ := r.Resolve(t.Context(), []string{"npm", "go"}); len(hosts) != 0 {
		t.Errorf("the zero configuration found %v", hosts)
	}
}

// The hosts of npm, Go and Debian come from the user's tools only.
func TestNoLiteralsOfOtherRegistries(t *testing.T) {
	for line := range strings.Lines(defaultsText) {
		data, why, _ := strings.Cut(line, "#")
		words := strings.Fields(data)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || strings.TrimSpace(why) == "" {
			t.Errorf("line %q (want an ecosystem, a host and a reason)", line)
		}
		for _, not := range []string{"npm", "go", "apt"} {
			if words[0] == not {
				t.Errorf("line %q: the hosts of %s are not ours to say", line, not)
			}
		}
	}
}

func TestHostOf(t *testing.T) {
	for _, c := range []struct {
		in, rule string
		ok       bool
	}{
		{"https://a.example.test", "a.example.test", true},
		{"HTTPS://A.Example.Test./x?y#z", "a.example.test", true},
		{"https://a.example.test:443/", "a.example.test", true},
		{"http://a.example.test:80/", "a.example.test", true},
		{"http://a.example.test:443/", "a.example.test:443", true},
		{"https://u:p@a.example.test:8443", "a.example.test:8443", true},
		{"ssh://git@a.example.test/x", "a.example.test:22", true},
		{"ssh://git@a.example.test:2222/x", "a.example.test:2222", true},
		{"https://[2001:db8::1]/", "[2001:db8::1]", true},
		{"https://[2001:db8::1]:8443/", "[2001:db8::1]:8443", true},
		{"sparse+https://a.example.test/", "a.example.test", true},
		{"file:///srv", "", true},
		{"/srv/packages", "", true},
		{"", "", false}, {"a.example.test", "", false}, {"https://", "", false}, {"https://*.example.test", "", false},
		{"https://a.example.test:0", "", false}, {"https://a.example.test:99999", "", false}, {"https://${x}/", "", false},
		{"https://a..test", "", false}, {"https://.test", "", false}, {"https://a%2eb.test", "", false}, {"https://ä.test", "", false},
		{"https://[fe80::1%25eth0]/", "", false}, {"gopher://a.example.test", "", false}, {"javascript:x", "", false},
		{"https://a.test\\@evil.test/", "", false}, {"https://a.test\n.evil.test", "", false},
	} {
		h, err := hostOf(c.in)
		if (err == nil) != c.ok || err == nil && h.Host != "" && h.Rule() != c.rule || c.rule == "" && h.Host != "" {
			t.Errorf("%q: %+v %v, want %q", c.in, h, err, c.rule)
		}
	}
}

func FuzzHostOf(f *testing.F) {
	for _, s := range []string{"https://u:p@a.example.test:8443/x", "ssh://[::1]:22", "sparse+https://a", "mirror+file:/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := hostOf(s)
		if err != nil || h.Host == "" {
			return
		}
		if strings.ContainsAny(h.Host, "@/\\ %*?#") || h.Host != strings.ToLower(h.Host) {
			t.Fatalf("%q became %+v", s, h)
		}
	})
}

func FuzzTOML(f *testing.F) {
	f.Add("[a.'b'.\"c\"]\nd.e = \"x\" # y\nf = { g = 'h', i = [1, \"]\", {j=2}] }\n[[k]]\nl = '''m\nn'''\n")
	f.Add("a=[\"\n")
	f.Add("[a")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTOML(s)
		if got == nil {
			t.Fatal("no table")
		}
		if err == nil {
			again, err := parseTOML(s + "\n\n[zz]\nzz = 'zz'\n")
			if v, _ := again.text("zz", "zz"); err != nil || v != "zz" {
				t.Fatalf("%q was read to its end, but what follows was not: %v", s, err)
			}
		}
	})
}

func FuzzFiles(f *testing.F) {
	f.Add("Types: deb\nURIs: https://a.example.test\n https://b.example.test\n\nEnabled: no\nURIs: x\n")
	f.Add("deb [a=b] https://a.example.test x main\n")
	f.Add("[global]\nindex-url = https://a.example.test\n  https://b.example.test\n")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := New(Config{Home: "/nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		fi := &finder{r: r, ctx: t.Context(), name: "apt", seen: map[string]bool{}}
		fi.stanzas(strings.ReplaceAll(s, "mirror+file:", ""), "f")
		aptLine(s)
		set := map[string]pipValue{}
		pipFile(s, "f", set)
		for key, v := range set {
			if section, _, ok := strings.Cut(key, "|"); !ok || section != "global" && section != "install" && section != "download" || v.from != "f" {
				t.Fatalf("%q %+v", key, v)
			}
		}
		for _, h := range fi.hosts {
			if plainHost(h.Host) != nil {
				t.Fatalf("%+v", h)
			}
		}
	})
}
