//go:build integration && linux

package escape

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var gitKinds = []kind{
	{8, "absent hooks and settings are not made", nil, absentSettings},
	{9, "the repository cannot be moved away and replaced", nil, movedRepository},
	{10, "nested, submodule and worktree git directories are protected too", nil, nestedRepositories},
	{11, "the host's git runs nothing afterwards", nil, poisonedRepository},
	{12, "other spellings of protected names are protected", nil, otherSpellings},
}

// git runs the host's git as the place's user, with no configuration but its
// own.
func (p *place) git(dir string, args ...string) string {
	p.t.Helper()
	ctx, cancel := (&invocation{}).context()
	defer cancel()
	cmd := p.process(ctx, invocation{dir: dir, env: []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
	}}, append([]string{"git", "-c", "safe.directory=*"}, args...))
	out, _ := cmd.CombinedOutput() // what it does is looked at, not how it ends
	return string(out)
}

func (p *place) repository(dir string) {
	p.t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		p.t.Fatal("git is needed: ", err)
	}
	p.dir(0o755, dir)
	p.git(dir, "init", "-q", "-b", "main")
	p.file(dir+"/tracked", "one\n", 0o644)
	p.git(dir, "add", ".")
	p.git(dir, "commit", "-q", "-m", "first")
	if _, err := os.Stat(dir + "/.git/index"); err != nil {
		p.t.Fatal("git made no repository: ", err)
	}
}

// write has a run write the paths, and returns what came of it.
func (p *place) write(paths []string, text string) *result {
	p.t.Helper()
	list := p.workspace + "/list"
	p.file(list, strings.Join(paths, "\n")+"\n", 0o644)
	r := p.cordon(invocation{attack: []string{"write", "list=list", "text=" + text}}).ended(0)
	check(p.t, os.Remove(list))
	return r
}

// notMade wants none of the paths to be in the workspace, and all of them,
// where they were made inside, to be reported.
func (p *place) notMade(r *result, paths []string) {
	p.t.Helper()
	var made []string
	for _, path := range paths {
		if _, err := os.Lstat(p.workspace + "/" + path); err == nil {
			p.t.Errorf("%q was committed", path)
		}
		if r.got(path) == "reached" {
			made = append(made, path)
		}
	}
	r.reportsRefused(made...)
	if len(made) < len(paths)/2 {
		p.t.Errorf("only %d of %d were made inside\n%s", len(made), len(paths), r.text())
	}
	text, err := os.ReadFile(p.workspace + "/ordinary/file")
	if err == nil && string(text) != "evil" {
		p.t.Errorf("the ordinary file holds %q", text)
	}
}

var settings = []string{
	".git/hooks/pre-commit", ".git/hooks/post-checkout", ".git/config", ".git/config.worktree", ".git/info/attributes",
	".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/run.sh", ".claude/commands/x.md", ".claude/agents/x.md",
	".cursor/mcp.json", ".cursor/hooks.json", ".gemini/settings.json", ".codex/config.toml", ".continue/config.yaml", ".opencode/plugin/x.js", "opencode.json",
	".vscode/settings.json", ".vscode/tasks.json", ".vscode/launch.json", ".idea/workspace.xml", ".idea/runConfigurations/x.xml", ".zed/settings.json",
	".devcontainer/devcontainer.json", ".devcontainer.json", ".envrc", ".vimrc", ".exrc", ".nvim.lua", ".dir-locals.el", ".gdbinit", "x.code-workspace", ".pdbrc",
	"sub/.mcp.json", "sub/.claude/settings.json", "sub/.vscode/tasks.json", "a/b/.git/hooks/pre-push",
}

func absentSettings(t *testing.T, p *place) {
	for _, with := range []string{"without a repository", "with one"} {
		t.Run(with, func(t *testing.T) {
			p := p.in(t)
			if with == "with one" {
				p.repository(p.workspace)
				check(t, os.RemoveAll(p.workspace+"/.git/hooks"))
				check(t, os.RemoveAll(p.workspace+"/.git/info"))
			}
			paths := slices.Clone(settings)
			if with == "with one" {
				paths = slices.DeleteFunc(paths, func(s string) bool { return s == ".git/config" }) // it is there
			}
			p.notMade(p.write(paths, "evil"), paths)
			if r := p.write([]string{"ordinary/file", ".github/workflows/x.yml", "src/settings.json", ".gitignore"}, "evil"); len(r.outcome.Refused) > 0 {
				t.Errorf("ordinary files were refused: %v", r.outcome.Refused)
			}
			if _, err := os.Lstat(p.workspace + "/ordinary/file"); err != nil {
				t.Error("an ordinary file was not committed: ", err)
			}
		})
	}
	if r := p.bare(invocation{attack: []string{"write", "list=README", "text=x"}}); r.got("the project") != "reached" {
		t.Errorf("the attack proves nothing\n%s", r.text())
	}
}

// gitDir is the whole of a git directory but for what git's own use of it
// changes.
func (p *place) gitDir(dir string) map[string]string {
	return look(p.t, dir, func(rel string) bool { return rel == "index" })
}

func movedRepository(t *testing.T, p *place) {
	p.repository(p.workspace)
	before := p.gitDir(p.workspace + "/.git")
	mark := p.base + "/copy-mark"
	defer os.Remove(mark)
	attack := []string{"git-move", "workspace=" + p.workspace, "mark=" + mark}
	r := p.cordon(invocation{attack: attack}).ended(0)
	if r.got("mv .git x") != "reached" {
		t.Fatalf("nothing was tried\n%s", r.text())
	}
	r.reportsRefused(".git/config", ".git/hooks/pre-commit")
	if diff := cmp.Diff(before, p.gitDir(p.workspace+"/.git")); diff != "" {
		t.Errorf(".git is another (- before, + after):\n%s", diff)
	}
	p.useGit(t, p.workspace, mark, false)
	dir := p.copyWorkspace()
	p.bare(invocation{attack: []string{"git-move", "workspace=" + dir, "mark=" + mark}, dir: dir})
	p.useGit(t, dir, mark, true)
}

// useGit does with git what a developer does after a run, and looks whether
// that ran something of the agent's.
func (p *place) useGit(t *testing.T, dir, mark string, want bool) {
	t.Helper()
	check(t, os.RemoveAll(mark))
	var said []string
	for _, args := range [][]string{
		{"status"}, {"diff"}, {"log", "-1", "-p"}, {"add", "-A"}, {"commit", "-q", "--allow-empty", "-m", "after"}, {"checkout", "-q", "-b", "other"},
		{"stash"}, {"submodule", "status"}, {"worktree", "list"}, {"gc", "-q"}, {"fetch", "-q"}, {"rebase", "--continue"}, {"st"},
	} {
		said = append(said, strings.Join(args, " ")+": "+p.git(dir, args...))
	}
	text, err := os.ReadFile(mark)
	if ran := err == nil; ran != want {
		if want {
			t.Errorf("the attack proves nothing: without walls git ran nothing of it: %q", said)
		} else {
			t.Errorf("the host's git ran something of the agent's: %s\n%q", text, said)
		}
	}
}

func nestedRepositories(t *testing.T, p *place) {
	p.repository(p.workspace)
	p.repository(p.workspace + "/nested")
	p.repository(p.home + "/bin/module")
	p.git(p.workspace, "-c", "protocol.file.allow=always", "submodule", "add", "-q", p.home+"/bin/module", "module")
	p.git(p.workspace, "worktree", "add", "-q", "tree", "-b", "tree")
	check(t, exec.Command("git", "init", "-q", "--bare", p.workspace+"/bare").Run())
	check(t, exec.Command("git", "init", "-q", "--bare", p.workspace+"/other.git").Run())
	p.ownAll(p.workspace)
	p.before = p.surroundings()
	for _, must := range []string{"nested/.git/HEAD", "module/.git", ".git/modules/module/HEAD", "tree/.git", ".git/worktrees/tree/gitdir", "bare/HEAD", "other.git/HEAD"} {
		if _, err := os.Lstat(p.workspace + "/" + must); err != nil {
			t.Fatal("the repositories were not made: ", err)
		}
	}
	check(t, exec.Command("find", p.workspace, "-path", "*/hooks/*", "-delete").Run())
	paths := []string{
		"nested/.git/hooks/pre-commit", "nested/.git/config.worktree", "nested/.git/info/attributes", ".git/modules/module/hooks/post-checkout", ".git/modules/module/config.worktree",
		".git/modules/other/hooks/pre-commit", ".git/modules/other/config", ".git/worktrees/tree/hooks/pre-commit", ".git/worktrees/tree/config.worktree", ".git/worktrees/new/gitdir",
		"bare/hooks/post-receive", "other.git/hooks/update", "new/.git/config", "new/.git/hooks/pre-commit", "new2/.git/HEAD", "pointer/.git", "new.git/hooks/post-receive", "new.git/config",
		"fake/HEAD", "fake/config", "fake/hooks/pre-commit",
	}
	before := p.configs(t)
	r := p.write(paths, "evil")
	// A HEAD and a config in an ordinary directory are each nobody's; both
	// together are a repository.
	_, headErr := os.Lstat(p.workspace + "/fake/HEAD")
	for _, code := range []string{"fake/config", "fake/hooks/pre-commit"} {
		if _, err := os.Lstat(p.workspace + "/" + code); err == nil && headErr == nil {
			t.Errorf("a directory with HEAD and %s is a repository that runs code", code)
		}
	}
	p.notMade(r, slices.DeleteFunc(slices.Clone(paths), func(s string) bool { return strings.HasPrefix(s, "fake/") }))
	over := []string{"module/.git", "tree/.git", ".git/worktrees/tree/gitdir", ".git/worktrees/tree/commondir", "nested/.git/config", ".git/modules/module/config", "bare/config", "other.git/config"}
	r = p.write(over, "evil")
	r.reportsRefused(over...)
	if diff := cmp.Diff(before, p.configs(t)); diff != "" {
		t.Errorf("git's own files are others (- before, + after):\n%s", diff)
	}
	if p.bare(invocation{attack: []string{"write", "list=README", "text=x"}}).got("the project") != "reached" {
		t.Error("the attack proves nothing")
	}
	t.Run("commands left for a rebase keep the state that goes with them back", func(t *testing.T) {
		p := p.in(t)
		head, err := os.ReadFile(p.workspace + "/.git/HEAD")
		check(t, err)
		r := p.write([]string{".git/rebase-merge/git-rebase-todo", ".git/HEAD", ".git/refs/heads/new", "ordinary/file"}, "exec evil\n")
		r.reportsRefused(".git/rebase-merge/git-rebase-todo", ".git/HEAD", ".git/refs/heads/new")
		if now, err := os.ReadFile(p.workspace + "/.git/HEAD"); err != nil || string(now) != string(head) {
			t.Errorf("HEAD is %q, %v", now, err)
		}
		if _, err := os.Lstat(p.workspace + "/ordinary/file"); err != nil {
			t.Error("an ordinary file was not committed: ", err)
		}
	})
}

// configs are the files of all repositories that say what runs.
func (p *place) configs(t *testing.T) map[string]string {
	seen := look(t, p.workspace, nil)
	maps.DeleteFunc(seen, func(path, _ string) bool {
		return !slices.Contains([]string{"config", ".git", "gitdir", "commondir", "HEAD"}, filepath.Base(path)) || strings.HasPrefix(path, "fake") || !strings.HasPrefix(seen[path], "100")
	})
	return seen
}

func poisonedRepository(t *testing.T, p *place) {
	p.repository(p.workspace)
	before := p.gitDir(p.workspace + "/.git")
	mark := p.base + "/copy-mark"
	defer os.Remove(mark)
	r := p.cordon(invocation{attack: []string{"git-poison", "workspace=" + p.workspace, "mark=" + mark}}).ended(0)
	if r.got(".git/config") != "reached" || r.got("hooks as a link") != "reached" {
		t.Fatalf("nothing was tried\n%s", r.text())
	}
	r.reportsRefused(".git/config", ".git/config.worktree", ".git/info/attributes", ".git/hooks", ".git/objects/info/alternates")
	if diff := cmp.Diff(before, p.gitDir(p.workspace+"/.git")); diff != "" {
		t.Errorf(".git is another (- before, + after):\n%s", diff)
	}
	if _, err := os.Lstat(p.workspace + "/tools/trigger"); err != nil {
		t.Error("an ordinary script was not committed: ", err)
	}
	p.useGit(t, p.workspace, mark, false)
	t.Run("what the repository's own configuration runs", func(t *testing.T) { configuredCode(t, p.in(t)) })
	p.repository(p.workspace)

	dir := p.copyWorkspace()
	p.bare(invocation{attack: []string{"git-poison", "workspace=" + dir, "mark=" + mark}, dir: dir})
	p.useGit(t, dir, mark, true)
}

// configuredCode: what the repository's own configuration, which its owner
// made, runs from the worktree.
func configuredCode(t *testing.T, p *place) {
	check(t, os.RemoveAll(p.workspace+"/.git"))
	p.repository(p.workspace)
	mark := p.base + "/copy-mark"
	defer os.Remove(mark)
	p.dir(0o755, p.workspace+"/githooks", p.workspace+"/tools")
	const harmless = "#!/bin/sh\nexit 0\n"
	paths := []string{"githooks/pre-commit", "tools/watch", "tools/clean", "shared.config"}
	for _, path := range paths {
		p.file(p.workspace+"/"+path, harmless, 0o755)
	}
	p.file(p.workspace+"/shared.config", "", 0o644)
	p.file(p.workspace+"/.gitattributes", "*.filtered filter=own\n", 0o644)
	for name, value := range map[string]string{"core.hooksPath": "githooks", "core.fsmonitor": "tools/watch", "filter.own.clean": "tools/clean", "include.path": "../shared.config"} {
		p.git(p.workspace, "config", name, value)
	}
	before := look(t, p.workspace, nil)
	scripts := append(slices.Clone(paths[:3]), "githooks/post-commit", "a.filtered")
	r := p.write(scripts, "#!/bin/sh\necho ran >> '"+mark+"'\n")
	r.reportsRefused(scripts[:4]...)
	p.useGit(t, p.workspace, mark, false)
	p.write([]string{"shared.config"}, "[core]\n\tfsmonitor = echo ran >> '"+mark+"'\n").reportsRefused("shared.config")
	for _, path := range append(paths, "githooks/post-commit") {
		if look(t, p.workspace, nil)[path] != before[path] {
			t.Errorf("%s was committed, and the repository's configuration has git run it", path)
		}
	}
	p.useGit(t, p.workspace, mark, false)
}

func otherSpellings(t *testing.T, p *place) {
	paths := []string{
		".GIT/hooks/pre-commit", ".Git/config", ".gIt/HOOKS/post-checkout", ".MCP.json", ".Mcp.Json", ".CLAUDE/Settings.json", ".claude/SETTINGS.JSON", ".VSCode/Tasks.json",
		".g\u200cit/hooks/pre-commit", ".gi\u200dt/config", "\u200b.git/hooks/x", ".git\u200e/config", ".\ufeffgit/config", // ignored by HFS+
		"GIT~1/hooks/pre-commit", "git~2/config", ".git ./config", ".git./config", ".git /hooks/x", ".git::$INDEX_ALLOCATION/config", ".git:stream", // NTFS
		"\uff0egit/config", ".\uff47\uff49\uff54/config", ".g\u0131t/config", // full width, dotless i
		".mcp\u200c.json", ".mcp.json.", ".mcp.json ", "sub/.GIT/config",
		".claude\u200b/settings.json", ".\u0441laude/settings.json", // the last one has a Cyrillic letter: only a reader is fooled by it
	}
	lookAlike := []string{".\u0441laude/settings.json", ".g\u0131t/config", "\uff0egit/config", ".\uff47\uff49\uff54/config"}
	r := p.write(paths, "evil")
	for _, path := range paths {
		_, err := os.Lstat(p.workspace + "/" + path)
		switch {
		case err == nil && slices.Contains(lookAlike, path):
			t.Logf("%q was committed: no file system takes it for another", path)
		case err == nil:
			t.Errorf("%q was committed", path)
		case r.got(path) == "reached":
			r.reportsRefused(path)
		}
	}
	near := []string{".gitignore", ".gitattributes", ".github/workflows/ci.yml", "git/hooks/x", "mcp.json", "settings.json", ".claude-notes", "claude/settings.json", "digit~/x", "résumé.md"}
	r = p.write(near, "fine")
	for _, path := range near {
		if _, err := os.Lstat(p.workspace + "/" + path); err != nil {
			t.Errorf("%q was not committed: %v", path, r.outcome.Refused)
		}
	}
}
