package gitcode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestWhatGitRunsOutOfAWorktree(t *testing.T) {
	for _, c := range []struct {
		name, config string
		hits, misses []string
	}{
		{"nothing", "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = ../x/tools/run\n", nil, []string{"tools/run", "a", ".husky/_/x"}},
		{"hooks", "[core]\n\thooksPath = .husky/_\n", []string{".husky/_", ".husky/_/pre-commit", ".husky"}[:2], []string{".husky/pre-commit", "husky/_", ".husky/_x"}},
		{"hooks in odd letters", "[CORE] HooksPath=\"hooks dir\" # mine\n", []string{"hooks dir/pre-push"}, []string{"hooks"}},
		{"hooks over two lines", "[core]\n\thooksPath = my\\\nhooks\n", []string{"myhooks/x"}, []string{"my"}},
		{"a monitor", "[core]\n\tfsmonitor = tools/run --watch\n", []string{"tools/run"}, []string{"tools/run2", "tools/other", "run"}},
		{"a monitor that is absent yet", "[core]\n\tfsmonitor = tools/absent\n", []string{"tools/absent"}, []string{"absent"}},
		{"a monitor that git has itself", "[core]\n\tfsmonitor = true\n", nil, []string{"true"}},
		{"a filter by an interpreter", "[filter \"x.y\"]\n\tclean = \"python3 tools/run -- %f\"\n", []string{"tools/run"}, []string{"python3"}},
		{"a filter with an option", "[filter \"x\"]\n\tprocess = clean --config=tools/run\n", []string{"tools/run"}, nil},
		{"a filter of a plain name", "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n", nil, []string{"git-lfs", "clean"}},
		{"a plain name that is there", "[filter \"x\"]\n\tclean = plain\n", []string{"plain"}, nil},
		{"a text conversion", "[diff \"x\"]\n\ttextconv = ./tools/run\n", []string{"tools/run"}, nil},
		{"a merge driver", "[merge \"x\"]\n\tdriver = sh tools/run %O %A\n", []string{"tools/run"}, nil},
		{"an alias", "[alias]\n\tst = !tools/run\n", []string{"tools/run"}, nil},
		{"a helper", "[credential \"https://x\"]\n\thelper = !tools/run\n", []string{"tools/run"}, nil},
		{"further configuration", "[include]\n\tpath = ../more\n", []string{"more", "tools/run"}, []string{"tools/other"}},
		{"further configuration by a condition", "[includeIf \"onbranch:x\"]\n\tpath = ../more\n", []string{"more", "tools/run"}, nil},
		{"its directory, replaced", "[core]\n\tfsmonitor = tools/run\n", []string{"tools"}, []string{"tool"}},
		{"what includes itself", "[include]\n\tpath = config\n[core]\n\tfsmonitor = tools/run\n", []string{"tools/run"}, nil},
		{"a torn file", "[core\n\tfsmonitor = tools/run", nil, []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := t.TempDir()
			put(t, top+"/.git/config", c.config)
			put(t, top+"/more", "[core]\nfsmonitor=tools/run\n")
			put(t, top+"/tools/run", "")
			put(t, top+"/plain", "")
			f := New()
			for _, p := range c.hits {
				if f.Why(top+"/"+p) == "" {
					t.Errorf("%s: nothing", p)
				}
			}
			for _, p := range c.misses {
				if why := f.Why(top + "/" + p); why != "" {
					t.Errorf("%s: %s", p, why)
				}
			}
		})
	}
}

func TestRepositoriesInTheirForms(t *testing.T) {
	top := t.TempDir()
	put(t, top+"/.git/config", "[core]\n\thooksPath = hooks\n")
	put(t, top+"/.git/worktrees/w/commondir", "../..\n")
	put(t, top+"/tree/.git", "gitdir: "+top+"/.git/worktrees/w\n")
	put(t, top+"/user", "[core]\n\tsshCommand = tools/ssh\n")
	if err := os.Symlink("tree", top+"/link"); err != nil {
		t.Fatal(err)
	}
	f := New(top+"/user", top+"/absent")
	for path, want := range map[string]bool{
		"/hooks/x": true, "/tree/hooks/x": true, "/link/hooks/x": true, "/tools/ssh": true, "/tree/tools/ssh": true, "/tree/x": false, "/sub/hooks/x": false,
	} {
		if got := f.Why(top+path) != ""; got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("[core]\n\thooksPath = \"a\\\"b\" ; c\n[a \"b\"] c\n")
	f.Add("[a.b]\nc=\\\n\\")
	f.Fuzz(func(t *testing.T, text string) {
		for _, v := range parse(text) {
			if len(v.value) > len(text) || v.name == "" || v.section != strings.ToLower(v.section) {
				t.Errorf("%q", v)
			}
			words(v.value)
		}
	})
}
