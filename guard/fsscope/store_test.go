package fsscope

import (
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// A home that is itself a root is where only the names of stores hold.
func TestStoresOfAHomeThatIsARoot(t *testing.T) {
	st := newStage(t)
	scope, err := New(Config{
		Roots:     []Root{{Path: st.ws, Write: true}, {Path: st.home}},
		Workspace: st.ws, Home: st.home, User: "mia",
	})
	if err != nil {
		t.Fatal(err)
	}
	st.Scope = scope
	for _, p := range []string{
		".config/Signal/sql/db.sqlite", ".config/Slack/Cookies", ".local/share/TelegramDesktop/tdata/key_datas", ".config/JetBrains/GoLand2025.2/c.kdbx",
		".config/JetBrains/CLion2025.1/options/security.xml", ".config/Code/User/globalStorage/state.vscdb", ".pulumi/credentials.json",
		".snowflake/connections.toml", ".dbt/profiles.yml", ".jfrog/jfrog-cli.conf.v6", ".vnc/passwd", ".Xauthority", ".curlrc", ".muttrc", ".monero/w.keys",
		".config/solana/id.json", ".lastpass/x", ".jupyter/jupyter_server_config.json", "Library/Messages/chat.db", "Library/Application Support/Signal/config.json",
		".CONFIG/slack/Cookies", ".config/argocd/config", ".config/ngrok/ngrok.yml", ".local/state/nvim/shada/main.shada", ".claude.json",
	} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: "~/" + p, Dir: st.ws}); worst(v) != "blocked" || v.Secret == "" {
			t.Errorf("read of ~/%s: %s (%s, class %q), want blocked", p, worst(v), rules(v), v.Secret)
		}
	}
	for _, p := range []string{
		"notes.txt", ".config/user-dirs.dirs", ".config/JetBrains/GoLand2025.2/options/editor.xml", ".config/signals/x", ".config/slackware.txt",
		".vncrc.md", "Library/Fonts/a.ttf", "projects/.config/jira/fields.md", ".jupyter/custom/custom.css", ".cache/pip/x",
	} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: "~/" + p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("read of ~/%s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{".config/jira/fields.md", ".circleci/config.yml", ".snyk", ".yarnrc.yml", ".gemrc", ".minio/x"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("read of %s in the workspace: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
}

func TestStoresOfAHomeOutsideTheRootsEndTheRun(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{"~/.config/Signal/config.json", "/home/zoltan/.config/filezilla/sitemanager.xml", "/root/.pulumi/credentials.json"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "kill" {
			t.Errorf("read of %s: %s (%s), want kill", p, worst(v), rules(v))
		}
	}
	if s := (&Base{home: place{"/home/mia", "/home/mia"}}); !s.storesAbove("/home/mia/.config/weechat/scripts") || s.storesAbove("/home/mia/weechat") {
		t.Error("a root inside a store is meant, one beside it is none")
	}
}

func TestSecretsOfAWorkspaceByName(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{
		"wallet.dat", "infra/terraform.tfstate", "infra/terraform.tfstate.backup", "secrets.tfvars", "serviceAccountKey.json", "svc/shop-firebase-adminsdk-q1.json",
		"google-credentials.json", "ops/.vault_pass", ".secrets.toml", ".streamlit/secrets.toml", "worker/.dev.vars", "local.settings.json", "deploy/prod.env",
		"ssh_host_rsa_key", "krb/http.keytab", "office.ovpn", "android/key.properties", ".secret_key",
	} {
		for _, q := range []string{p, strings.ToUpper(p)} {
			if v := st.Judge(cordon.Effect{Kind: rd, Target: q, Dir: st.ws}); worst(v) != "blocked" || v.Secret == "" {
				t.Errorf("read of %s: %s (%s, class %q), want blocked", q, worst(v), rules(v), v.Secret)
			}
		}
	}
	for _, p := range []string{
		"wallet.ts", "infra/main.tf", "infra/variables.tfvars", "infra/tfstate.md", "serviceAccount.ts", "firebase.json", "credentials.ts", "user-credentials.json",
		"vault_pass.py", "secrets.py", "docs/secrets.toml.md", "local.settings.example", "prod.env.example", "nonprod.environment.ts", "ssh_host_key.md",
		"keytab.go", "key.properties.sample", ".secretlintrc", "ssh_host_rsa_key.pub", ".streamlit/config.toml",
	} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("read of %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{"wallet.*", ".secr*", "*.env", "infra/*.tfstate"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws, Pattern: true}); worst(v) == "pass" {
			t.Errorf("read of %s passes", p)
		}
	}
	for _, p := range []string{"wallet*.ts", "*.tf", "*secret*.md", ".e*rc"} {
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws, Pattern: true}); worst(v) != "pass" {
			t.Errorf("read of %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	if v := st.Judge(cordon.Effect{Kind: wr, Target: "infra/terraform.tfstate", Dir: st.ws}); worst(v) != "pass" {
		t.Errorf("a state that is made: %s (%s), want pass", worst(v), rules(v))
	}
}

// Whichever piece of a repository comes last is the one that is refused.
func TestBareRepositoryIsNotPutTogether(t *testing.T) {
	st := newStage(t)
	st.put(st.ws+"/conf-first/config", "x")
	st.put(st.ws+"/hook-first/hooks/post-checkout", "x")
	st.put(st.ws+"/dir-first/commondir", "../x")
	st.put(st.ws+"/head-first/HEAD", "x")
	st.put(st.ws+"/react/hooks/useCart.ts", "x")
	st.put(st.ws+"/app/config/app.yaml", "x")
	for _, p := range []string{
		"docs/HEAD", "HEAD", "new.git/HEAD", "conf-first/head", "conf-first/HEAD", "hook-first/HEAD", "dir-first/HEAD", "head-first/config", "head-first/hooks/pre-push", "head-first/hooks", "head-first/commondir",
		"head-first/objects/info/alternates", "mirror/info/attributes", "mirror/config.worktree",
	} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws}); worst(v) != "blocked" {
			t.Errorf("write of %s: %s (%s), want blocked", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{
		".git/HEAD", "mirror/HEAD", ".git/modules/a/HEAD", ".git/worktrees/w/HEAD", "react/head", "app/head", "app/head.ts", "docs/HEAD.md", "conf-first/config", "head-first/readme", "head-first/hooks/readme.md", "head-first/objects/aa/b", "info/attributes",
	} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("write of %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
}

func TestSettingsOfMoreAgentsAndEditors(t *testing.T) {
	st := newStage(t)
	for _, p := range []string{
		".kilocode/launch.sh", ".kilocodemodes", ".amp/settings.json", ".tabnine/agent/settings.json", ".openhands/setup.sh", ".iflow/settings.json",
		".theia/tasks.json", ".vs/tasks.vs.json", ".helix/languages.toml", ".nova/Tasks/a.json", ".hg/hgrc", ".jj/repo/config.toml", ".devcontainer/devcontainer.json", ".devcontainer/go/devcontainer.json",
		".devcontainer.json", "app.sublime-project", ".direnvrc", ".DevContainer/DevContainer.json",
	} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws}); worst(v) != "blocked" {
			t.Errorf("write of %s: %s (%s), want blocked", p, worst(v), rules(v))
		}
		if v := st.Judge(cordon.Effect{Kind: rd, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("read of %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
	for _, p := range []string{".devcontainer/Dockerfile", ".hg/store/x", ".jj/repo/store/x", ".vs/readme.md", ".helix/ignore", ".kilocode/rules/style.md", "devcontainer.json", "docs/sublime-project.md"} {
		if v := st.Judge(cordon.Effect{Kind: wr, Target: p, Dir: st.ws}); worst(v) != "pass" {
			t.Errorf("write of %s: %s (%s), want pass", p, worst(v), rules(v))
		}
	}
}

func TestMoreSpellingsOfAPath(t *testing.T) {
	newStage(t).run(t, []row{
		{"an overlong form of three bytes", rd, "..%e0%80%afnotes.txt", "restricted", "out_of_scope"},
		{"an overlong form of four bytes", rd, "..%f0%80%80%afnotes.txt", "restricted", "out_of_scope"},
		{"a form of three bytes that is a letter", rd, "docs/%e0%a4%85.md", "pass", ""},
		{"a scheme with one slash", rd, "unix:/var/run/docker.sock", "blocked", "forbidden_tree"},
		{"a colon in a name", rd, "docs/a:b.md", "pass", ""},
		{"angle brackets around", rd, "</etc/shadow>", "kill", "credential"},
		{"angle brackets within", rd, "docs/a<b>.md", "pass", ""},
	}, nil)
}
