package fsscope

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// stage is a home with a workspace in it, on the disk.
type stage struct {
	*Scope
	home, ws, out, temp string
	t                   testing.TB
}

func newStage(t testing.TB) *stage {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, home: top + "/home/mia", ws: top + "/home/mia/shop", out: top + "/elsewhere", temp: top + "/agent/run-7"}
	for _, f := range []string{
		"home/mia/.ssh/id_ed25519", "home/mia/.ssh/id_ed25519.pub", "home/mia/.kube/config", "home/mia/notes.txt",
		"home/mia/shop/lib/cart.go", "home/mia/shop/.env", "home/mia/shop/.git/config", "home/mia/shop/.git/HEAD",
		"home/mia/shop/docs/50%.md", "home/mia/shop/web/$slug.tsx", "home/mia/shop/My Notes.txt",
		"home/mia/shop/mirror/HEAD", "home/mia/shop/mirror/objects/x", "home/mia/shop/mirror/hooks/readme",
		"home/mia/shop/pyenv/.env/bin/activate", "elsewhere/plain.txt", "state/audit.db",
	} {
		st.put(top+"/"+f, "x")
	}
	for at, to := range map[string]string{
		"home/mia/shop/keys":     st.home + "/.ssh",
		"home/mia/shop/inner":    "lib",
		"home/mia/shop/outer":    st.out,
		"home/mia/shop/loop":     "pool",
		"home/mia/shop/pool":     "loop",
		"home/mia/shop/dangling": st.out + "/missing.txt",
		"home/mia/shop/nil":      "/dev/null",
		"home/mia/shop/me":       "/proc/self/root",
		"home/mia/shop/hook":     ".git/hooks/pre-push",
		"elsewhere/back":         st.ws,
	} {
		if err := os.Symlink(to, top+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	st.Scope, err = New(Config{
		Roots:     []Root{{Path: st.ws, Write: true}, {Path: st.temp, Write: true}},
		Workspace: st.ws, Home: st.home, User: "mia", TempRoot: st.temp, Coding: true,
		SelfPaths: []string{top + "/state/audit.db", st.ws + "/.cordon"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func (st *stage) put(p, content string) {
	st.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		st.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		st.t.Fatal(err)
	}
}

// fill puts the stage's directories into a target.
func (st *stage) fill(p string) string {
	return strings.NewReplacer("{home}", st.home, "{ws}", st.ws, "{out}", st.out, "{temp}", st.temp,
		"{top}", filepath.Dir(st.out)).Replace(p)
}

// worst is the outcome of a verdict as a word, "pass" where nothing was found.
func worst(v Verdict) string {
	o, kill := cordon.Allowed, false
	for _, f := range v.Findings {
		o = cordon.Worst(o, f.Outcome)
		kill = kill || f.Kill
	}
	switch {
	case kill:
		return "kill"
	case o == cordon.Allowed:
		return "pass"
	}
	return o.String()
}

func rules(v Verdict) string {
	var s []string
	for _, f := range v.Findings {
		s = append(s, strings.TrimPrefix(f.Rule, "fs."))
	}
	return strings.Join(s, " ")
}

type row struct {
	name   string
	kind   cordon.Kind
	target string
	want   string // pass, restricted, blocked, kill
	rule   string // one rule that must be among the findings
}

func (st *stage) run(t *testing.T, rows []row, change func(*cordon.Effect)) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Helper()
			e := cordon.Effect{Kind: r.kind, Target: st.fill(r.target), Dir: st.ws}
			if change != nil {
				change(&e)
			}
			v := st.Judge(e)
			if got := worst(v); got != r.want {
				t.Errorf("%s %q: %s (%s), want %s\n%+v", r.kind, r.target, got, rules(v), r.want, v)
			}
			if r.rule != "" && !strings.Contains(" "+rules(v)+" ", " "+r.rule+" ") {
				t.Errorf("%s %q: rules %q, want %s", r.kind, r.target, rules(v), r.rule)
			}
			for _, f := range v.Findings {
				if f.Phase != cordon.PhaseFS || f.Violation != cordon.FSPath || f.Detail == "" {
					t.Errorf("finding is not one of phase B: %+v", f)
				}
			}
		})
	}
}

const (
	rd = cordon.Read
	ls = cordon.List
	wr = cordon.Write
	rm = cordon.Delete
)

func TestScope(t *testing.T) {
	newStage(t).run(t, []row{
		{"a file of the workspace", rd, "{ws}/lib/cart.go", "pass", ""},
		{"a relative file", rd, "lib/cart.go", "pass", ""},
		{"a file that is to be made", wr, "lib/new/deep/a.go", "pass", ""},
		{"the workspace itself is listed", ls, ".", "pass", ""},
		{"paths that leave and come back", rd, "{ws}/../shop/lib/cart.go", "pass", ""},
		{"up and down inside", rd, "lib/../lib/./cart.go", "pass", ""},
		{"up from a part that is missing", rd, "absent/../lib/cart.go", "pass", ""},
		{"the parent", ls, "..", "restricted", "out_of_scope"},
		{"a neighbour", rd, "../notes.txt", "restricted", "out_of_scope"},
		{"a neighbour with the same start", rd, "{ws}-old/a", "restricted", "out_of_scope"},
		{"more ups than there are levels", rd, strings.Repeat("../", 60) + "srv/x", "restricted", "out_of_scope"},
		{"the temporary root", wr, "{temp}/x", "pass", ""},
		{"the temporary root's neighbour", wr, "{temp}/../run-8/x", "restricted", "out_of_scope"},
		{"a system library is read", rd, "/usr/lib/os-release.d/x", "pass", ""},
		{"a system library is written", wr, "/usr/lib/x.so", "restricted", "out_of_scope"},
		{"an empty target is the directory", ls, "", "pass", ""},
		{"removal of a file", rm, "lib/cart.go", "pass", ""},
		{"removal of the workspace", rm, ".", "blocked", "root"},
		{"removal of the home", rm, "{home}", "blocked", "root"},
		{"removal of everything", rm, "/", "blocked", "root"},
		{"dots that are a name", rd, "lib/...", "pass", ""},
		{"Cordon's database", rd, "{top}/state/audit.db", "kill", "self"},
		{"Cordon's write-ahead log", wr, "{top}/state/audit.db-wal", "kill", "self"},
		{"Cordon's files in the workspace", wr, ".cordon/policy.yaml", "kill", "self"},
		{"Cordon's files listed", ls, ".cordon", "blocked", "self"},
		{"a name that starts the same", wr, ".cordonrc", "pass", ""},
	}, nil)
}

func TestLinks(t *testing.T) {
	newStage(t).run(t, []row{
		{"a link within", rd, "inner/cart.go", "pass", ""},
		{"a link out", rd, "outer/plain.txt", "restricted", "out_of_scope"},
		{"a link out, a file that is missing", wr, "outer/new.txt", "restricted", "out_of_scope"},
		{"a link to nothing outside", wr, "dangling", "restricted", "out_of_scope"},
		{"a link to a key directory", rd, "keys/id_ed25519", "kill", "credential"},
		{"a link to a key directory, listed", ls, "keys", "blocked", "credential"},
		{"up behind a link is the link's parent", rd, "outer/../state/x", "restricted", "out_of_scope"},
		{"up behind a link within", rd, "inner/../lib/cart.go", "pass", ""},
		{"a loop", rd, "loop", "blocked", "link_loop"},
		{"a file below a loop", wr, "loop/x", "blocked", "link_loop"},
		{"a link through /proc", rd, "me/etc/hostname", "blocked", "forbidden_tree"},
		{"a secret behind a link through /proc", rd, "me/etc/shadow", "kill", ""},
		{"a link to /dev/null", wr, "nil", "pass", ""},
		{"a link to a hook", wr, "hook", "blocked", "protected"},
		{"a link from outside into the workspace", rd, "{out}/back/lib/cart.go", "restricted", "out_of_scope"},
	}, nil)
	newStage(t).run(t, []row{
		{"the link itself is read", rd, "keys", "pass", ""},
		{"the link itself is removed", rm, "outer", "pass", ""},
		{"a loop is removed", rm, "loop", "pass", ""},
		{"a link below a link", rm, "outer/back", "restricted", "out_of_scope"},
		{"a link with a slash is followed", rm, "outer/", "restricted", "out_of_scope"},
		{"a link with a dot is followed", rd, "keys/.", "blocked", "credential"},
		{"a key looked at", rd, "{home}/.ssh/id_ed25519", "blocked", "credential"},
	}, func(e *cordon.Effect) { e.NoFollow = true })
}

func TestF2Expansion(t *testing.T) {
	newStage(t).run(t, []row{
		{"home", ls, "~", "restricted", "out_of_scope"},
		{"a key in the home", rd, "~/.ssh/id_rsa", "kill", "credential"},
		{"the workspace below the home", rd, "~/shop/lib/cart.go", "pass", ""},
		{"the own user by name", rd, "~mia/.kube/config", "kill", "credential"},
		{"root's home", rd, "~root/x", "blocked", "forbidden_tree"},
		{"a user who is not known", rd, "~zoltan/.bashrc", "blocked", "forbidden_tree"},
		{"a name with a tilde in front", rd, "~cart.bak.go", "pass", ""},
		{"an office lock file", rd, "~$report.docx", "pass", ""},
		{"the working directory", rd, "~+/lib/cart.go", "pass", ""},
		{"the last directory", rd, "~-/x", "restricted", "unresolved"},
		{"$HOME", rd, "$HOME/.netrc", "kill", "credential"},
		{"${HOME}", rd, "${HOME}/notes.txt", "restricted", "out_of_scope"},
		{"a default beside a value", rd, "${XDG_CONFIG_HOME:-/root/.config}/gh/hosts.yml", "kill", "credential"},
		{"a default that counts", rd, "${HOME:-/etc}/shadow", "kill", "credential"},
		{"$PWD", rd, "$PWD/lib/cart.go", "pass", ""},
		{"an editor's variable", rd, "${workspaceFolder}/lib/cart.go", "pass", ""},
		{"a variable nobody knows", rd, "$SECRETS_AT/x", "restricted", "unresolved"},
		{"braces nobody knows", rd, "${where}/x", "restricted", "unresolved"},
		{"a cut value", rd, "${HOME%/*}/x", "restricted", "unresolved"},
		{"a command in a path", wr, "$(printf /etc)/x", "restricted", "unresolved"},
		{"a route's name", rd, "web/$slug.tsx", "pass", ""},
		{"a schema's name", wr, "web/$ref.json", "pass", ""},
		{"an unset variable before a root path", rd, "$x/etc/passwd", "blocked", "forbidden_tree"},
		{"a profile of Windows", rd, `%USERPROFILE%\.aws\credentials`, "kill", "credential"},
		{"a variable of Windows nobody knows", rd, `%VAULT%/x`, "restricted", "unresolved"},
		{"a variable of PowerShell", rd, `$env:APPDATA\x`, "restricted", "out_of_scope"},
		{"a variable of PowerShell nobody knows", rd, `$env:VAULT\x`, "restricted", "unresolved"},
		{"a tilde before a backslash", rd, `~\.ssh\id_rsa`, "kill", "credential"},
		{"look-alike letters in the system's names", rd, "/\uff45tc/shadow", "kill", "credential"},
		{"look-alike slashes", rd, "..\u2215notes.txt", "restricted", "out_of_scope"},
		{"file URI", rd, "file:///etc/shadow", "kill", "credential"},
		{"file URI of this machine", rd, "FILE://LocalHost{ws}/lib/cart.go", "pass", ""},
		{"file URI with one slash", rd, "file:/etc/gshadow", "kill", "credential"},
		{"file URI with percent forms", rd, "file://%2Fetc%2Fshadow", "kill", "remote"},
		{"file URI with a query", rd, "file:///etc/shadow?raw=1", "kill", "credential"},
		{"file URI of the workspace", wr, "file://{ws}/lib/new.go", "pass", ""},
		{"file URI of another machine", rd, "file://nas.test/share/a.txt", "blocked", "remote"},
		{"a share", rd, `\\nas\share\a.txt`, "blocked", "remote"},
		{"another machine's files", rd, "sftp://nas.test/a", "blocked", "remote"},
		{"an unknown scheme on a root path", rd, "doc:///etc/shadow", "kill", "credential"},
		{"percent forms", rd, "%2e%2e/%2e%2e/x", "restricted", "out_of_scope"},
		{"percent forms twice", rd, "..%252fnotes.txt", "restricted", "out_of_scope"},
		{"a tilde in percent forms", rd, "%7E/.ssh/id_rsa", "kill", "credential"},
		{"overlong percent forms", rd, "%c0%ae%c0%ae%c0%afnotes.txt", "restricted", "out_of_scope"},
		{"a bare percent sign", rd, "docs/50%.md", "pass", ""},
		{"a blank in percent form", rd, "My%20Notes.txt", "pass", ""},
		{"a NUL in percent form", rd, "lib/cart.go%00.md", "blocked", "nul"},
		{"backslashes", rd, `..\..\x`, "restricted", "out_of_scope"},
		{"backslashes within", rd, `lib\cart.go`, "pass", ""},
		{"a drive", rd, `C:\Windows\win.ini`, "restricted", "out_of_scope"},
		{"blanks around", rd, "  /etc/shadow\n", "kill", "credential"},
		{"a no-break blank before", rd, "\u00a0/etc/shadow", "kill", "credential"},
		{"quotes around", rd, `"/etc/shadow"`, "kill", "credential"},
		{"a blank within", rd, "My Notes.txt", "pass", ""},
		{"full-width dots and slashes", rd, "\uff0e\uff0e\uff0fnotes.txt", "restricted", "out_of_scope"},
		{"a full-width tilde", rd, "\uff5e/.ssh/id_rsa", "kill", "credential"},
		{"an invisible character", rd, "{home}/.s\u200bsh/id_rsa", "kill", "credential"},
		{"a byte order mark", rd, "\ufeff/etc/shadow", "kill", "credential"},
		{"letters of another script", rd, "docs/Übersicht 漢字.md", "pass", ""},
		{"a NUL", wr, "lib/a.go\x00/../../x", "blocked", "nul"},
		{"a long name", wr, "lib/" + strings.Repeat("n", 256), "blocked", "too_long"},
		{"the longest name", wr, "lib/" + strings.Repeat("n", 255), "pass", ""},
		{"a long path", wr, strings.Repeat("dir/", 1024) + "x", "blocked", "too_long"},
		{"a path that is all ways at once", rd, "%" + strings.Repeat("25", 40) + "2e", "restricted", "ambiguous"},
	}, nil)
}

func TestExpandedTargetsArePlain(t *testing.T) {
	newStage(t).run(t, []row{
		{"a tilde is a name", rd, "~", "pass", ""},
		{"a dollar is a name", rd, "$HOME/x", "pass", ""},
		{"percent is a name", rd, "%2e%2e/x", "pass", ""},
		{"a NUL is none", rd, "a\x00b", "blocked", "nul"},
		{"a secret's name still counts", rd, "a/.\u200bssh/id_rsa", "blocked", "credential"},
	}, func(e *cordon.Effect) { e.Expanded = true })
}

func TestForbiddenTrees(t *testing.T) {
	newStage(t).run(t, []row{
		{"the process table", ls, "/proc", "blocked", "forbidden_tree"},
		{"another process's environment", rd, "/proc/1/environ", "kill", "credential"},
		{"another root", rd, "/proc/1/root/srv/x", "blocked", "forbidden_tree"},
		{"a secret through another root", rd, "/proc/1/root/etc/shadow", "kill", "credential"},
		{"a switch of the kernel", wr, "/proc/sys/kernel/core_pattern", "kill", "forbidden_tree"},
		{"the processor's data", rd, "/proc/cpuinfo", "restricted", "system_file"},
		{"devices of the system", rd, "/sys/class/net", "blocked", "forbidden_tree"},
		{"a disk", rd, "/dev/sda", "blocked", "forbidden_tree"},
		{"a disk written", wr, "/dev/nvme0n1", "kill", "forbidden_tree"},
		{"memory", rd, "/dev/mem", "kill", "credential"},
		{"a shell's network device", wr, "/dev/tcp/192.0.2.1/80", "kill", "forbidden_tree"},
		{"null", wr, "/dev/null", "pass", ""},
		{"null read", rd, "/dev/null", "pass", ""},
		{"standard error", wr, "/dev/stderr", "pass", ""},
		{"descriptor 1", wr, "/dev/fd/1", "pass", ""},
		{"descriptor 9", wr, "/dev/fd/9", "restricted", "unresolved"},
		{"no descriptor", wr, "/dev/fd/x", "kill", "forbidden_tree"},
		{"memory shared as files", wr, "/dev/shm/x", "restricted", "out_of_scope"},
		{"null removed", rm, "/dev/null", "kill", "forbidden_tree"},
		{"the users", rd, "/etc/passwd", "blocked", "forbidden_tree"},
		{"the passwords", rd, "/etc/shadow", "kill", "credential"},
		{"what the release is", rd, "/etc/os-release", "restricted", ""},
		{"name servers, wherever their file is kept", rd, "/etc/resolv.conf", "restricted", "system_file"},
		{"certificates", ls, "/etc/ssl/certs", "restricted", "system_file"},
		{"private parts of ssl", ls, "/etc/ssl/private", "blocked", "credential"},
		{"hosts written", wr, "/etc/hosts", "kill", "forbidden_tree"},
		{"a cron table", wr, "/etc/cron.d/job", "kill", "forbidden_tree"},
		{"sudoers", wr, "/etc/sudoers.d/me", "kill", "credential"},
		{"root's home", ls, "/root", "blocked", "forbidden_tree"},
		{"another user's home", rd, "/home/zoltan/x", "blocked", "forbidden_tree"},
		{"a write to another user's home", wr, "/home/zoltan/x", "blocked", "forbidden_tree"},
		{"the hosts that are known", rd, "~/.ssh/known_hosts", "blocked", "credential"},
		{"a host made known", wr, "~/.ssh/known_hosts", "kill", "credential"},
		{"another user's key", rd, "/home/zoltan/.ssh/id_rsa", "kill", "credential"},
		{"all homes", ls, "/home", "restricted", "out_of_scope"},
		{"docker's files", rd, "/var/lib/docker/x", "blocked", "forbidden_tree"},
		{"docker's socket", rd, "/var/run/docker.sock", "blocked", "forbidden_tree"},
		{"podman's socket", wr, "/run/user/1000/podman/podman.sock", "kill", "forbidden_tree"},
		{"a cluster's token", rd, "/var/run/secrets/kubernetes.io/serviceaccount/token", "kill", "credential"},
		{"the boot loader", wr, "/boot/grub/grub.cfg", "kill", "forbidden_tree"},
		{"a copy in the workspace", rd, "lib/etc/passwd.md", "pass", ""},
		{"a folder named proc", wr, "proc/self/environ", "pass", ""},
	}, nil)
}

func TestF7Secrets(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{
		".ssh/config", ".aws/credentials", ".azure/accessTokens.json", ".config/gcloud/credentials.db", ".config/gh/hosts.yml", ".kube/config",
		".netrc", "_netrc", ".npmrc", ".pypirc", ".docker/config.json", ".gnupg/secring.gpg", ".pgpass", ".my.cnf", ".git-credentials",
		".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".terraform.d/credentials.tfrc.json", ".vault-token", ".bash_history",
		".zsh_history", ".node_repl_history", ".sqlite_history", ".lesshst", ".local/share/fish/fish_history", ".mozilla/firefox/p.default/key4.db",
		".config/google-chrome/Default/Login Data", ".config/BraveSoftware/x", "Library/Keychains/login.keychain-db", ".local/share/keyrings/x",
		"Library/Application Support/Firefox/Profiles/p/cookies.sqlite", ".password-store/bank.gpg", ".claude/.credentials.json", ".codex/auth.json",
		".gemini/oauth_creds.json", ".config/github-copilot/hosts.json", "old/.env", "old/.env.production", "old/.ENV.Local", "old/.env.bak",
		"x/id_rsa", "x/ID_ED25519", "x/id_ecdsa.bak", ".config/fly/token", ".SSH/x", ".ssh./x", ".aws /credentials", ".env::$DATA",
	} {
		v := st.Judge(cordon.Effect{Kind: rd, Target: st.home + "/" + p, Expanded: true})
		if worst(v) != "kill" || v.Secret == "" {
			t.Errorf("read of ~/%s: %s (%s, class %q), want kill", p, worst(v), rules(v), v.Secret)
		}
		v = st.Judge(cordon.Effect{Kind: rd, Target: st.ws + "/" + p, Expanded: true})
		if worst(v) != "blocked" || v.Secret == "" {
			t.Errorf("read of %s in the workspace: %s (%s), want blocked without a kill", p, worst(v), rules(v))
		}
		v = st.Judge(cordon.Effect{Kind: ls, Target: st.home + "/" + p, Expanded: true})
		if worst(v) != "blocked" {
			t.Errorf("listing of ~/%s: %s (%s), want blocked", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{"certs/server.key", "certs/tls-key.pem", "store.p12", "app.jks", "vault.kdbx", "box.ppk"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "blocked" {
			t.Errorf("read of %s: %s (%s), want blocked", p, worst(v), rules(v))
		}
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("making %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{
		".env.example", "a/.env.sample", ".env.template", ".env.dist", ".env-example", ".env.local.example", "office.env", "env.py", ".environment.md",
		"lib/keys.py", "lib/id_rsa_test.go", "certs/ca.pem", "certs/fullchain.pem", "certs/public_key.pem", "deploy.pub", "id_ed25519.pub", "lib/key.go",
		"pyenv/.env/bin/activate", "pyenv/.env", "docs/ssh.md", "aws/credentials.go", "kube/config.yaml", "docker/config.json", "lib/credentials.json",
		".github/workflows/token.yml", ".dockerignore", ".gitignore", ".npmignore", ".nvmrc", "history.txt", "lib/.envelope.ts", "cookies/index.ts", "a/chromium/x",
		"package-lock.json", ".aws/credentials.example", "infra/.docker/config.json.template", ".design/tokens.json", ".next/auth.json", "lib/secrets_test.py", ".cache/app/token.json",
	} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "pass" || v.Secret != "" {
			t.Errorf("read of %s in the workspace: %s (%s, class %q), want pass", p, worst(v), rules(v), v.Secret)
		}
	}
	if v := st.Judge(cordon.Effect{Kind: rd, Target: st.home + "/.ssh/id_ed25519.pub"}); worst(v) != "restricted" {
		t.Errorf("read of a public key: %s (%s), want restricted", worst(v), rules(v))
	}
}

func TestPrefilterKnowsEverySecretFile(t *testing.T) {
	for name := range secretFiles {
		if p := "/w/" + name; !interesting(p) || !interesting(strings.ToUpper(p)) {
			t.Errorf("%s would pass the prefilter", p)
		}
	}
	for _, s := range secretBelow {
		if p := "/w/" + strings.Join(s.path, "/") + "/x"; s.path[0][0] == '.' && !interesting(p) {
			t.Errorf("%s would pass the prefilter", p)
		}
	}
	for _, n := range temptations {
		if sec := secretOf([]string{"w", n}, 0); sec.class != "" && !interesting("/w/"+n) {
			t.Errorf("%s would pass the prefilter", n)
		}
	}
}

func TestProtectedFiles(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{
		".git/hooks/post-merge", ".git/config", ".git/config.worktree", ".git/info/attributes", ".git", ".git/modules/a/b/hooks/x", ".git/modules/a/config",
		"vendor/x/.git/hooks/pre-commit", ".GIT/hooks/x", ".g\u200cit/hooks/x", ".git /hooks/x", ".git./config", "GIT~1/hooks/x", ".git::$INDEX_ALLOCATION/config",
		"\uff0egit/config", "mirror/hooks/update", "mirror/config", "srv/bare.git/hooks/post-receive", ".claude/settings.json", ".claude/settings.local.json",
		".claude/hooks/x.sh", ".mcp.json", "sub/.mcp.json", ".codex/config.toml", ".cursor/mcp.json", ".cursor/hooks.json", ".gemini/settings.json", ".aider.conf.yml",
		".continue/config.yaml", ".windsurf/hooks.json", ".vscode/settings.json", ".vscode/tasks.json", ".VSCode/launch.json", "app.code-workspace", ".idea/workspace.xml",
		".idea/runConfigurations/a.xml", ".vimrc", ".exrc", ".nvim.lua", ".dir-locals.el", ".envrc", ".env", "svc/.env.local", ".npmrc", "opencode.json",
	} {
		for _, kind := range []cordon.Kind{wr, rm} {
			if v := st.Judge(cordon.Effect{Kind: kind, Target: p, Dir: st.ws, Expanded: true}); worst(v) != "blocked" {
				t.Errorf("%s of %q: %s (%s), want blocked", kind, p, worst(v), rules(v))
			}
		}
	}
	for _, p := range []string{
		"src/hooks/useCart.ts", "hooks/pre-commit", "docs/git/config", "docs/.git-hooks.md", ".gitignore", ".gitmodules", ".gitattributes", ".github/workflows/ci.yml",
		".git/COMMIT_EDITMSG", ".husky/pre-commit", ".vscode/extensions.json", ".editorconfig", ".claude/CLAUDE.md", "CLAUDE.md", ".cursor/rules/a.mdc", "config", "a/config",
		".env.example", "mirror/readme", "digit/hooks/x", ".idea/codeStyles/x.xml", "settings.json", "mcp.json",
	} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws, Expanded: true}); worst(v) != "pass" {
			t.Errorf("write of %q: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{".git/config", ".git/hooks/post-merge", ".vscode/settings.json", ".mcp.json"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("read of %q: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	if v := st.Judge(cordon.Effect{Kind: wr, Op: "create", Target: ".vscode", Dir: st.ws}); worst(v) != "pass" {
		t.Errorf("mkdir .vscode: %s", rules(v))
	}
	for _, p := range []string{".bashrc", ".config/autostart/x.desktop", ".gitconfig", ".claude/settings.json", ".config/systemd/user/x.service", ".ssh/authorized_keys"} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: "~/" + p, Dir: st.ws}); worst(v) != "kill" {
			t.Errorf("write of ~/%s: %s (%s), want kill", p, worst(v), rules(v))
		}
	}
	if v := st.Judge(cordon.Effect{Kind: wr, Target: "~/todo.txt", Dir: st.ws}); worst(v) != "restricted" {
		t.Errorf("write of an ordinary file of the home: %s (%s), want restricted", worst(v), rules(v))
	}
}

func TestPatterns(t *testing.T) {
	newStage(t).run(t, []row{
		{"source files", rd, "*.py", "pass", ""},
		{"documents of a kind", rd, "data/*.json", "pass", ""},
		{"databases of a kind", cordon.Delete, "data/*.sqlite", "pass", ""},
		{"anything that logs in", rd, "data/*gins.json", "blocked", "credential"},
		{"keys of a kind", rd, "certs/*.kdbx", "blocked", "credential"},
		{"settings of a kind in a hidden directory", wr, ".claude/*.json", "blocked", "protected"},
		{"all below", rd, "src/**", "pass", ""},
		{"everything", rd, "*", "pass", ""},
		{"names that start with a letter", rd, "lib/i*", "pass", ""},
		{"a class of letters", rd, "[a-z]*", "pass", ""},
		{"alternatives", rd, "lib/*.{go,ts,tsx}", "pass", ""},
		{"a globbed key directory", rd, "~/.s*h/id_*", "blocked", "out_of_scope"},
		{"a globbed key directory in the workspace", rd, ".s?h/*", "blocked", "credential"},
		{"a globbed secret of the system", rd, "/etc/sh*w", "blocked", ""},
		{"environment files", rd, "**/.env", "blocked", "credential"},
		{"environment files by a class", rd, "svc/[.]env", "blocked", "credential"},
		{"environment files in part", rd, ".en*", "blocked", "credential"},
		{"keys", rd, "certs/*.key", "blocked", "credential"},
		{"a globbed hook", wr, ".g*t/ho*/pre-push", "blocked", "protected"},
		{"hidden files listed", ls, ".*", "pass", ""},
		{"another directory", rd, "../*", "restricted", "out_of_scope"},
		{"up after a wildcard", rd, "*/../../notes.txt", "restricted", "unresolved"},
		{"an alternative outside", rd, "{lib,/srv}/*", "restricted", "out_of_scope"},
		{"through a link", rd, "keys/*", "blocked", "credential"},
		{"removal of what a directory holds", rm, "build/*", "pass", ""},
		{"removal of all hidden files", rm, ".g*", "blocked", "protected"},
		{"too many alternatives", rd, strings.Repeat("{a,b}", 12) + "*", "restricted", "unresolved"},
		{"a bad class", rd, "lib/[", "pass", ""},
	}, func(e *cordon.Effect) { e.Pattern = true })
}

func TestPatternsFollowLinksOnTheDisk(t *testing.T) {
	st := newStage(t)
	for at, to := range map[string]string{"cloned/data/readme.txt": st.home + "/.ssh/id_ed25519", "cloned/alias": "../lib", "cloned/self": "."} {
		st.put(st.ws+"/cloned/data/plain.csv", "x")
		if err := os.Symlink(to, st.ws+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	st.run(t, []row{
		{"a link to a key under a harmless name", rd, "cloned/data/*", "blocked", "credential"},
		{"the same at any depth", rd, "cloned/**/*.txt", "blocked", "credential"},
		{"the same through two wildcards", rd, "cl*/da*/*.txt", "blocked", "credential"},
		{"files of another kind", rd, "cloned/data/*.csv", "pass", ""},
		{"a directory behind a link", rd, "k*/id_ed25519", "blocked", "credential"},
		{"a file outside behind a link", rd, "out*/plain.*", "restricted", "out_of_scope"},
		{"a link within", rd, "cloned/al*/*.go", "pass", ""},
		{"links to directories beside files", rd, "cloned/*", "pass", ""},
		{"a directory that holds itself", rd, "cloned/*/*/*/*/*/*/*.go", "pass", ""},
		{"names are listed", ls, "cloned/data/*", "pass", ""},
	}, func(e *cordon.Effect) { e.Pattern = true })
	st.run(t, []row{{"links themselves are removed", rm, "cloned/data/*", "pass", ""}}, func(e *cordon.Effect) { e.Pattern, e.NoFollow = true, true })
}

func TestWorkspaceThatIsLikeAProtectedPlace(t *testing.T) {
	for _, ws := range []string{"/srv/shop.git", "/home/mia/.codex/worktrees/shop", "/home/mia/.config/nvim", "/home/mia/.cache/w/shop"} {
		s, err := New(Config{Roots: []Root{{Path: ws, Write: true}}, Workspace: ws, Home: "/home/mia"})
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]string{"config/app.py": "pass", "lua/init.lua": "pass", "auth.json": "pass", ".git/config": "blocked", ".codex/config.toml": "blocked"} {
			if v := s.Judge(cordon.Effect{Kind: wr, Target: target}); worst(v) != want {
				t.Errorf("write of %s in %s: %s (%s), want %s", target, ws, worst(v), rules(v), want)
			}
		}
	}
}

func TestHomeOfEverything(t *testing.T) {
	s, err := New(Config{Roots: []Root{{Path: "/srv/ws", Write: true}}, Workspace: "/srv/ws", Home: "/"})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"/home/zoltan/x": "blocked", "/root/x": "blocked", "/srv/ws/x": "pass", "/srv/x": "restricted"} {
		if v := s.Judge(cordon.Effect{Kind: rd, Target: target}); worst(v) != want {
			t.Errorf("read of %s: %s (%s), want %s", target, worst(v), rules(v), want)
		}
	}
}

func TestDoubtfulRestrictsAtMost(t *testing.T) {
	newStage(t).run(t, []row{
		{"a secret", rd, "~/.ssh/id_rsa", "restricted", "credential"},
		{"a forbidden write", wr, "/etc/cron.d/x", "restricted", "forbidden_tree"},
		{"a plain file", rd, "lib/cart.go", "pass", ""},
	}, func(e *cordon.Effect) { e.Doubtful = true })
}

func TestHardLinkToASecretIsKnownByItsInode(t *testing.T) {
	st := newStage(t)
	for at, to := range map[string]string{"lib/a.txt": st.home + "/.ssh/id_ed25519", "lib/b.txt": st.out + "/plain.txt"} {
		if err := os.Link(to, st.ws+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	for at, to := range map[string]string{"lib/c.txt": "/.git/config", "lib/d.txt": "/.env"} {
		if err := os.Link(st.ws+to, st.ws+"/"+at); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		kind     cordon.Kind
		at, want string
	}{{wr, "lib/c.txt", "blocked"}, {rd, "lib/c.txt", "pass"}, {rd, "lib/d.txt", "blocked"}, {wr, "lib/a.txt", "kill"}} {
		if v := st.Judge(cordon.Effect{Kind: c.kind, Target: c.at, Dir: st.ws}); worst(v) != c.want {
			t.Errorf("%s of %s: %s (%s), want %s", c.kind, c.at, worst(v), rules(v), c.want)
		}
	}
	if v := st.Judge(cordon.Effect{Kind: rd, Target: "lib/a.txt", Dir: st.ws}); worst(v) != "kill" || rules(v) != "hard_link" {
		t.Errorf("another name of a key: %s (%s), want kill", worst(v), rules(v))
	}
	if v := st.Judge(cordon.Effect{Kind: rd, Target: "lib/b.txt", Dir: st.ws}); worst(v) != "pass" {
		t.Errorf("another name of a plain file: %s (%s), want pass", worst(v), rules(v))
	}
}

func TestWorkspaceInsideAForbiddenTree(t *testing.T) {
	for _, ws := range []string{"/root/project", "/home/zoltan/project", "/etc/nginx"} {
		s, err := New(Config{Roots: []Root{{Path: ws, Write: true}}, Workspace: ws, Home: "/home/mia", User: "mia"})
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]string{
			"a.txt": "pass", "../x": "blocked", ".env": "blocked", ".git/hooks/x": "blocked", "/root/y": "blocked",
		} {
			if v := s.Judge(cordon.Effect{Kind: wr, Target: target, Dir: ws}); worst(v) != want && !(want == "blocked" && worst(v) == "kill") {
				t.Errorf("write of %s in %s: %s (%s), want %s", target, ws, worst(v), rules(v), want)
			}
		}
	}
	s, err := New(Config{Roots: []Root{{Path: "/", Write: true}}, Workspace: "/srv", Home: "/home/mia"})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Judge(cordon.Effect{Kind: rd, Target: "/proc/1/maps"}); worst(v) != "blocked" {
		t.Errorf("a root of / opened /proc: %s", worst(v))
	}
}

func TestRootThatNamesACredentialStore(t *testing.T) {
	st := newStage(t)
	s, err := New(Config{Roots: []Root{{Path: st.ws}, {Path: st.home + "/.kube"}}, Workspace: st.ws, Home: st.home})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Judge(cordon.Effect{Kind: rd, Target: "~/.kube/config"}); worst(v) != "pass" {
		t.Errorf("a store that was named: %s (%s)", worst(v), rules(v))
	}
	if v := s.Judge(cordon.Effect{Kind: wr, Target: "~/.kube/config"}); worst(v) == "pass" {
		t.Error("a store that was named for reading was written")
	}
}

func TestReadRootsAreNotWritten(t *testing.T) {
	st := newStage(t)
	s, err := New(Config{Roots: []Root{{Path: st.ws}, {Path: st.ws + "/up", Write: true}}, Workspace: st.ws, Home: st.home})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"a": "restricted", "up/a": "pass", "up/../a": "restricted", "upper/a": "restricted"} {
		if v := s.Judge(cordon.Effect{Kind: wr, Target: target}); worst(v) != want {
			t.Errorf("write of %s: %s, want %s", target, worst(v), want)
		}
	}
	if v := s.Judge(cordon.Effect{Kind: rd, Target: "/usr/bin/env"}); worst(v) != "restricted" {
		t.Errorf("profile atom read /usr: %s", worst(v))
	}
}

func TestZeroScopeRefuses(t *testing.T) {
	var s Scope
	if v := s.Judge(cordon.Effect{Kind: rd, Target: "/"}); worst(v) != "blocked" {
		t.Errorf("zero scope: %s", worst(v))
	}
	if v := (*Scope)(nil).Judge(cordon.Effect{Kind: wr, Target: "a"}); worst(v) != "blocked" {
		t.Errorf("no scope: %s", worst(v))
	}
	if v := s.Judge(cordon.Effect{Kind: cordon.Connect, Target: "a"}); len(v.Findings) != 0 {
		t.Errorf("a connection is not a path: %+v", v)
	}
}

func TestRelativeWorkingDirectoryIsRefused(t *testing.T) {
	st := newStage(t)
	if v := st.Judge(cordon.Effect{Kind: rd, Target: "a", Dir: "lib"}); worst(v) != "blocked" || rules(v) != "relative_dir" {
		t.Errorf("%s (%s)", worst(v), rules(v))
	}
	if v := st.Judge(cordon.Effect{Kind: rd, Target: st.ws + "/lib/cart.go", Dir: "lib"}); worst(v) != "pass" {
		t.Errorf("an absolute path needs no directory: %s", rules(v))
	}
}

func TestF4TemporaryRootCannotBeMoved(t *testing.T) {
	b, err := Prepare(Config{Workspace: "/srv/ws", Home: "/home/mia", TempRoot: "/tmp/agent/x", Roots: []Root{{Path: "/tmp/agent/x", Write: true}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"/tmp/agent/../..", "/tmp/agent/..", "/tmp/agent/.", "/tmp/agent/", "/tmp/agent", "/tmp/agent/a/b", "/", "x", "/tmp/agent/a\x00"} {
		if _, err := b.ForRun(bad); err == nil {
			t.Errorf("temporary root %q was taken", bad)
		}
	}
	s, err := b.ForRun("/tmp/agent/run-1")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"/tmp/agent/run-1/a": "pass", "/tmp/agent/x/a": "restricted", "/tmp/agent/run-10/a": "restricted"} {
		if v := s.Judge(cordon.Effect{Kind: wr, Target: target}); worst(v) != want {
			t.Errorf("write of %s: %s, want %s", target, worst(v), want)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	good := Config{Workspace: "/srv/ws", Home: "/home/mia"}
	for name, change := range map[string]func(*Config){
		"no workspace":         func(c *Config) { c.Workspace = "" },
		"a relative home":      func(c *Config) { c.Home = "mia" },
		"a relative root":      func(c *Config) { c.Roots = []Root{{Path: "a"}} },
		"a relative self path": func(c *Config) { c.SelfPaths = []string{"audit.db"} },
		"a shallow temp root":  func(c *Config) { c.TempRoot = "/tmp" },
		"an unclean temp root": func(c *Config) { c.TempRoot = "/tmp/agent/../.." },
		"a NUL in a root":      func(c *Config) { c.Roots = []Root{{Path: "/a\x00"}} },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "fsscope: ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestVerdictTellsBothPaths(t *testing.T) {
	st := newStage(t)
	v := st.Judge(cordon.Effect{Kind: rd, Target: "~/shop/keys/id_ed25519", Arg: "/path", Via: []string{"bash -c"}})
	if v.Requested != st.ws+"/keys/id_ed25519" || v.Resolved != st.home+"/.ssh/id_ed25519" || v.Secret != "ssh key" {
		t.Errorf("%+v", v)
	}
	if len(v.Findings) == 0 || v.Findings[0].Arg != "/path" || len(v.Findings[0].Via) != 1 {
		t.Errorf("the finding lost where it came from: %+v", v.Findings)
	}
	v = st.Judge(cordon.Effect{Kind: wr, Target: "file://" + st.ws + "/a%20b.txt"})
	if v.Requested != st.ws+"/a b.txt" && v.Requested != st.ws+"/a%20b.txt" {
		t.Errorf("requested %q", v.Requested)
	}
}

func TestDevicesAreUsedButNotReplaced(t *testing.T) {
	st := newStage(t)
	for op, want := range map[string]string{"": "pass", "append": "pass", "truncate": "pass", "create": "pass", "move": "kill", "link": "kill", "chmod": "kill"} {
		if v := st.Judge(cordon.Effect{Kind: wr, Op: op, Target: "/dev/null"}); worst(v) != want {
			t.Errorf("write of /dev/null by %q: %s (%s), want %s", op, worst(v), rules(v), want)
		}
	}
}

func TestDevicesAreNotReachedByDotsBehindALink(t *testing.T) {
	st := newStage(t)
	deep := st.out + strings.Repeat("/d", 12)
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(deep, st.ws+"/deep"); err != nil {
		t.Fatal(err)
	}
	target := "deep" + strings.Repeat("/..", 1+strings.Count(st.ws, "/")) + "/dev/null"
	if v := st.Judge(cordon.Effect{Kind: wr, Target: target, Dir: st.ws}); worst(v) == "pass" {
		t.Errorf("%s passed: a tool that cleans takes it for %s, the kernel for another", target, v.Requested)
	}
	target = "me" + strings.Repeat("/..", 30) + st.ws + "/lib/cart.go"
	if v := st.Judge(cordon.Effect{Kind: rd, Target: target, Dir: st.ws}); worst(v) != "blocked" {
		t.Errorf("%s: %s, want blocked: where a link of /proc leads depends on who opens it", target, worst(v))
	}
}

func TestARootBelowTheWorkspaceIsNotMovedByALink(t *testing.T) {
	st := newStage(t)
	s, err := New(Config{Roots: []Root{{Path: st.ws + "/outer"}}, Workspace: st.ws, Home: st.home})
	if err != nil {
		t.Fatal(err)
	}
	if v := s.Judge(cordon.Effect{Kind: rd, Target: "outer/plain.txt"}); worst(v) != "restricted" {
		t.Errorf("a link in a root's place opened what it leads to: %s", worst(v))
	}
}

func TestAWorkspaceBehindALinkIsTheWorkspaceByBothNames(t *testing.T) {
	st := newStage(t)
	s, err := New(Config{Roots: []Root{{Path: st.out + "/back", Write: true}}, Workspace: st.out + "/back", Home: st.home})
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"lib/cart.go", st.out + "/back/lib/cart.go", st.ws + "/lib/cart.go", "lib/new.go"} {
		if v := s.Judge(cordon.Effect{Kind: wr, Target: target}); worst(v) != "pass" {
			t.Errorf("%s: %s (%s)", target, worst(v), rules(v))
		}
	}
}

func TestRemovalAboveCordonsOwnFiles(t *testing.T) {
	s, err := New(Config{Roots: []Root{{Path: "/srv/ws", Write: true}}, Workspace: "/srv/ws", Home: "/home/mia", SelfPaths: []string{"/srv/ws/var/cordon/audit.db"}})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"var": "kill", "var/cordon": "kill", "var/other": "pass"} {
		if v := s.Judge(cordon.Effect{Kind: rm, Recursive: true, Target: target}); worst(v) != want {
			t.Errorf("removal of %s: %s (%s), want %s", target, worst(v), rules(v), want)
		}
	}
}
