package fsscope

import (
	"os"
	"slices"
	"strings"
)

// A protected file of a workspace runs code, or lets code run, when somebody
// uses git, an agent or an editor there: outside of any sandbox. A change of
// one is refused even where it does not exist yet.

// protectedOf says what a change of the folded path would reach: "git",
// "agent settings", "editor settings", or "". at is the path itself, for the
// one question that needs a look at the disk.
// Agents' and editors' directories count from element from on: a worktree may
// lie in one.
func protectedOf(names []string, from int, at string) string {
	last := names[len(names)-1]
	for i, n := range names {
		rest := names[i+1:]
		switch {
		case n == ".git" || shortName(n):
			if gitProtected(rest) {
				return "git"
			}
		case i >= from && strings.HasSuffix(n, ".git") && len(rest) > 0 && gitCode(rest):
			return "git"
		case i >= from && strings.HasPrefix(n, "."):
			if what := settingsProtected(n, rest); what != "" {
				return what
			}
		}
	}
	switch {
	case last == "opencode.json", last == "opencode.jsonc", last == "crush.json", last == "mcp.json" && hiddenParent(names):
		return "agent settings"
	case last == "_vimrc", last == "_exrc", last == "_gvimrc", strings.HasSuffix(last, ".code-workspace"), strings.HasSuffix(last, ".sublime-project"):
		return "editor settings"
	case bareRepository(names, at):
		return "git"
	}
	return ""
}

func hiddenParent(names []string) bool {
	return len(names) > 1 && strings.HasPrefix(names[len(names)-2], ".")
}

// shortName knows the 8.3 names that NTFS gives to ".git".
func shortName(n string) bool {
	return len(n) == 5 && n[:4] == "git~" && n[4] >= '1' && n[4] <= '9' || n == "gi7eba~1"
}

// gitProtected judges what follows ".git": the directory itself (moved away
// or replaced by a file, it is another repository), and all of it that makes
// git run something or look elsewhere.
func gitProtected(rest []string) bool {
	if len(rest) == 0 || gitCode(rest) {
		return true
	}
	switch rest[0] {
	case "modules", "worktrees":
		for i := range rest {
			if i > 0 && gitCode(rest[i:]) {
				return true
			}
		}
		return len(rest) < 3
	}
	return false
}

// gitCode judges a path inside a git directory.
func gitCode(rest []string) bool {
	switch rest[0] {
	case "hooks", "config", "config.worktree", "config.lock", "commondir", "gitdir", "rebase-merge", "rebase-apply", "sequencer":
		return true
	case "info":
		return len(rest) > 1 && rest[1] == "attributes"
	case "objects":
		return len(rest) > 2 && rest[1] == "info" && rest[2] == "alternates"
	}
	return false
}

var hookNames = [...]string{
	"applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
	"commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
	"proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
	"post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change",
}

// bareRepository reports whether a change of the path makes or changes what
// runs code in a repository whose git directory has an ordinary name. Git
// takes a directory for one by its HEAD: where there is one its code is
// protected, and no HEAD may come to where none is: the code could come with
// it, in the same patch or run.
func bareRepository(names []string, at string) bool {
	if slices.Contains(names, ".git") {
		return false // judged by its own names
	}
	for back := 1; back <= 3 && back <= len(names); back++ {
		rest := names[len(names)-back:]
		head := back == 1 && rest[0] == "head"
		if !head && !gitCode(rest) || rest[0] == "hooks" && back > 1 && !slices.Contains(hookNames[:], rest[1]) {
			continue
		}
		dir := at
		for range back {
			dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)]
		}
		if isFile(dir+"/HEAD") != head && (!head || strings.HasSuffix(at, "/HEAD") || holdsGitCode(dir)) {
			return true
		}
	}
	return false
}

// holdsGitCode reports whether a directory would run code if it were a git
// directory.
func holdsGitCode(dir string) bool {
	for _, name := range [...]string{"config", "config.worktree", "commondir"} {
		if isFile(dir + "/" + name) {
			return true
		}
	}
	for _, hook := range hookNames {
		if isFile(dir + "/hooks/" + hook) {
			return true
		}
	}
	return false
}

func isFile(p string) bool {
	st, err := os.Lstat(p)
	return err == nil && !st.IsDir()
}

// settingsProtected judges a hidden element and what follows it.
func settingsProtected(n string, rest []string) string {
	first := ""
	if len(rest) > 0 {
		first = rest[0]
	}
	in := func(names ...string) bool { return len(rest) == 0 || slices.Contains(names, first) }
	const agent, editor, history = "agent settings", "editor settings", "version control"
	switch n {
	case ".hg":
		if in("hgrc", "hgrc-not-shared") {
			return history
		}
	case ".jj":
		if len(rest) == 0 || rest[len(rest)-1] == "config.toml" {
			return history
		}
	case ".claude":
		if in("hooks", "commands", "agents", "skills", "plugins", "mcp.json", "keybindings.json") ||
			strings.HasPrefix(first, "settings") || strings.HasPrefix(first, "statusline") {
			return agent
		}
	case ".cursor":
		if in("mcp.json", "hooks.json", "hooks", "cli.json", "permissions.json", "environment.json", "commands", "sandbox.json", "worktrees.json") {
			return agent
		}
	case ".gemini", ".qwen":
		if in("settings.json", "hooks", "commands", "extensions", "trustedfolders.json", "policies", "system.md", ".env", "sandbox.bashrc") ||
			strings.HasPrefix(first, "sandbox") {
			return agent
		}
	case ".github":
		if first == "hooks" {
			return agent
		}
	case ".codex", ".continue", ".windsurf", ".codeium", ".roo", ".kiro", ".amazonq", ".opencode", ".goose", ".factory",
		".augment", ".crush", ".copilot", ".trae", ".junie", ".cline", ".agents", ".kilocode", ".amp", ".tabnine", ".rovodev", ".openhands",
		".zencoder", ".warp", ".iflow", ".codebuddy", ".kimi", ".vibe", ".forge", ".plandex", ".devin", ".jules", ".idx", ".cody":
		if first != "rules" && first != "specs" && first != "steering" {
			return agent
		}
	case ".mcp.json", ".claude.json", ".crush.json", ".roomodes", ".kilocodemodes", ".aider.conf.yml", ".aider.conf.yaml", ".aider.model.settings.yml", ".cline_mcp_settings.json":
		return agent
	case ".vscode", ".vscode-server", ".cursor-server":
		if in("settings.json", "tasks.json", "launch.json", "mcp.json", "c_cpp_properties.json") {
			return editor
		}
	case ".idea":
		if in("workspace.xml", "runconfigurations", "tools", "watchertasks.xml", "externaldependencies.xml", "startup.xml", "externaltools.xml") {
			return editor
		}
	case ".zed":
		if in("settings.json", "tasks.json", "debug.json") {
			return editor
		}
	case ".theia", ".lapce":
		if in("settings.json", "tasks.json", "launch.json", "settings.toml") {
			return editor
		}
	case ".vs":
		if in() || strings.HasSuffix(first, ".vs.json") {
			return editor
		}
	case ".helix":
		if in("config.toml", "languages.toml") {
			return editor
		}
	case ".nova":
		if in("configuration.json", "tasks") {
			return editor
		}
	case ".devcontainer":
		if len(rest) == 0 || rest[len(rest)-1] == "devcontainer.json" {
			return editor
		}
	case ".devcontainer.json", ".local.vimrc", ".direnvrc", ".pdbrc":
		return editor
	case ".run", ".fleet":
		if len(rest) == 0 || strings.HasSuffix(first, ".run.xml") || n == ".fleet" {
			return editor
		}
	case ".vimrc", ".gvimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".envrc",
		".gdbinit", ".lldbinit", ".projectile", ".sublime-project", ".autoenv", ".env.zsh":
		return editor
	}
	return ""
}

// persistent are files of a home that make code run when its owner logs in,
// opens a shell or uses git, by the path below the home; a name that ends in
// '/' is a directory.
var persistent = [...]string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile",
	".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc",
	".inputrc", ".pam_environment", ".gitconfig", ".config/git/", ".hgrc", ".vimrc", ".vim/", ".config/nvim/", ".emacs", ".emacs.d/",
	".config/emacs/", ".tmux.conf", ".screenrc", ".config/autostart/", ".config/systemd/", ".local/share/systemd/", ".config/fish/",
	".config/environment.d/", ".config/plasma-workspace/", ".local/share/dbus-1/", "library/launchagents/", "library/launchdaemons/",
	".rhosts", ".forward", ".procmailrc", ".pythonrc", ".pythonrc.py", ".pdbrc", ".irbrc", ".pryrc", ".gdbinit", ".lldbinit", ".psqlrc",
	".sqliterc", ".config/pip/", ".cargo/config", ".cargo/config.toml", ".config/direnv/", ".direnvrc", ".condarc",
	".config/opencode/", ".config/code/user/",
	".config/zed/", ".config/cursor/user/", ".wgetrc", ".curlrc", ".config/cordon/", ".crontab",
}

// persistence reports whether a change of p, below a home, makes code run
// later.
func (b *Base) persistence(p string) bool {
	rest, ok := b.belowAnyHome(p)
	if !ok || rest == "" {
		return false
	}
	rest = strings.Join(foldPath(rest), "/")
	for _, f := range persistent {
		if dir, is := strings.CutSuffix(f, "/"); is && within(rest, dir) || rest == f {
			return true
		}
	}
	return false
}

// belowAnyHome is p as seen from the home it lies in, the run's own first.
func (b *Base) belowAnyHome(p string) (string, bool) {
	if rest, ok := belowHome(p, b.home.lexical); ok {
		return rest, true
	}
	if rest, ok := belowHome(p, b.home.real); ok {
		return rest, true
	}
	return anyHome(p)
}

func belowHome(p, home string) (string, bool) {
	if len(home) < 2 || !within(p, home) || len(p) == len(home) {
		return "", false
	}
	return p[len(home)+1:], true
}

func anyHome(p string) (string, bool) {
	for _, dir := range homeParents {
		if rest, ok := strings.CutPrefix(p, dir); ok {
			_, rest, ok = strings.Cut(rest, "/")
			return rest, ok
		}
	}
	return strings.CutPrefix(p, "/root/")
}
