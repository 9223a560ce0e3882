package fsscope

import (
	"slices"
	"strings"
)

// homeStore is a class of secrets and where a home keeps them. Elsewhere the
// names say nothing: a repository may well have a ".config/jira".
type homeStore struct {
	class string
	// places are folded paths below the home, each a file or a directory
	// with all below it.
	places []string
}

var homeStores = [...]homeStore{
	{"service token", []string{
		".config/openai", ".openai", ".config/anthropic", ".anthropic", ".huggingface/token", ".cache/huggingface/stored_tokens",
		".wandb/settings", ".config/wandb", ".comet.config", ".neptune", ".modal.toml", ".replicate", ".config/replicate",
		".vercel/auth.json", ".netlify", ".config/.wrangler", ".wrangler", ".config/firebase", ".railway", ".config/railway",
		".supabase", ".config/supabase", ".config/turso", ".turso", ".planetscale", ".config/planetscale",
		".pulumi/credentials.json", ".circleci", ".travis", ".jfrog", ".config/jfrog", ".artifactory", ".jenkins", ".jira.d",
		".config/.jira", ".config/jira", ".config/acli", ".sentryclirc", ".config/sentry", ".newrelic", ".config/datadog",
		".dogrc", ".pagerduty", ".stripe", ".twilio-cli", ".config/twilio", ".config/ngrok", ".ngrok", ".ngrok2",
		".config/cloudflared", ".heroku", ".config/heroku", ".expo/state.json", ".fastlane", ".appcenter", ".sfdx", ".sf",
		".config/sfdx", ".postman", ".config/postman", ".config/insomnia", ".config/bruno", ".httpie/sessions",
		".config/httpie/sessions", ".ansible/galaxy_token", ".config/spotify", ".config/spotifyd", ".config/raycast",
		".config/linear", ".linear", ".config/configstore", ".wakatime.cfg", ".snyk", ".config/snyk",
		".jupyter/jupyter_server_config.json", ".jupyter/jupyter_notebook_config.json", ".local/share/jupyter/runtime",
		".ipython/profile_default/security", ".local/share/steam/config", ".minecraft/launcher_accounts.json",
	}},
	{"git credentials", []string{
		".config/tea", ".config/lab", ".config/hub.yml", ".config/glab", ".config/bitbucket", ".config/gitea",
		".config/jj/credentials",
	}},
	{"cloud credentials", []string{
		".config/linode-cli", ".config/vultr-cli.yaml", ".vultr-cli.yaml", ".config/scw", ".config/exoscale", ".openstack",
		".config/openstack", ".ovh.conf", ".config/hetzner", ".ibmcloud", ".config/ibmcloud", ".config/b2", ".b2_account_info",
		".minio", ".config/upcloud", ".config/civo", ".civo.json", ".config/yandex-cloud", ".tccli", ".config/alicloud",
		".config/packer", ".config/nomad", ".config/tailscale",
	}},
	{"cluster credentials", []string{
		".config/argocd", ".argocd", ".rancher", ".config/rancher", ".talos", ".config/talos", ".k3d", ".minikube",
		".config/lens", ".config/k9s/clusters", ".config/helm/repositories.yaml",
	}},
	{"registry token", []string{
		".yarnrc", ".yarnrc.yml", ".bunfig.toml", ".config/pip/pip.conf", ".pip/pip.conf", ".condarc", ".continuum",
		".config/conda", ".bundle/config", ".gemrc", ".lein/credentials.clj.gpg", ".lein/profiles.clj", ".sbt/1.0/credentials",
		".config/coursier/credentials.properties", ".cabal/config", ".luarocks/upload_config.lua",
		".config/luarocks/upload_config.lua", ".pause", ".config/pypoetry", ".local/share/pypoetry",
		".config/uv/credentials.toml", ".local/share/uv/credentials", ".config/hatch",
	}},
	{"database password", []string{
		".snowsql", ".snowflake", ".config/snowflake", ".dbt/profiles.yml", ".bigqueryrc", ".mongorc.js", ".dbeaver4",
		".local/share/dbeaverdata", ".config/datagrip", ".redis_auth", ".pg_service.conf", ".odbc.ini", ".config/psql",
		".config/mycli",
	}},
	{"history", []string{
		".config/pgcli/history", ".local/share/mycli/history", ".local/state/nvim/shada", ".local/share/nvim/shada",
		".recently-used", ".local/share/recently-used.xbel", ".config/atuin", ".local/share/atuin", ".config/mcfly",
		".local/share/mcfly", ".ipython/profile_default/history.sqlite",
	}},
	{"message store", []string{
		".config/signal", ".config/slack", ".config/discord", ".config/element", ".local/share/telegramdesktop", ".config/teams",
		".config/skypeforlinux", ".whatsapp", ".purple", ".config/hexchat", ".irssi", ".weechat", ".config/weechat",
		".config/zoomus.conf", ".zoom", ".config/mattermost", ".var/app/com.slack.slack", ".var/app/org.signal.signal",
		".var/app/com.discordapp.discord", "library/messages", "library/mail", "library/application support/signal",
		"library/application support/slack", "library/application support/discord",
	}},
	{"mail store", []string{
		".local/share/evolution", ".config/evolution", ".muttrc", ".mutt", ".config/mutt", ".config/neomutt", ".mbsyncrc",
		".offlineimaprc", ".config/aerc", ".config/himalaya", ".config/msmtp", ".getmail", ".config/geary", "snap/thunderbird",
		".var/app/org.mozilla.thunderbird",
	}},
	{"service password", []string{
		".authinfo", ".authinfo.gpg", ".netrc.gpg", ".emacs.d/.authinfo", ".davfs2", ".config/davfs2", ".curlrc", ".config/lftp",
		".lftp", ".local/share/lftp", ".ncftp", ".config/filezilla", ".filezilla", ".config/vdirsyncer", ".config/nextcloud",
		".dropbox", ".config/restic", ".config/borg", ".borg", ".config/kopia", ".duplicacy", ".vnc", ".config/tigervnc",
		".config/remmina", ".local/share/remmina", ".config/rustdesk", ".config/teamviewer", ".config/anydesk",
		".config/transmission", ".saltrc", ".puppetlabs", ".puppet", ".config/khal", ".vault_pass", ".vault_password",
		".config/jenkins", ".hudson",
	}},
	{"private key", []string{
		".age", ".wg", ".config/wireguard", ".config/openvpn", ".openvpn", ".cisco", ".config/zerotier", ".config/keybase",
		".local/share/keybase", ".android/adbkey", ".config/syncthing", ".local/state/syncthing", ".krb5", ".config/letsencrypt",
	}},
	{"wallet", []string{
		".config/solana", ".config/exodus", ".config/ledger live", ".monero", ".litecoin", ".dogecoin", ".zcash", ".multibit",
		".foundry/keystores", ".near-credentials", ".cardano", ".brownie/accounts", ".local/share/exodus",
	}},
	{"password store", []string{
		".lastpass", ".local/share/lpass", ".config/keepass", ".config/enpass", ".config/dashlane", ".config/protonpass",
		".local/share/jetbrains", ".config/sublime-text/local",
	}},
	{"browser store", []string{
		".cache/google-chrome", ".cache/chromium", ".cache/mozilla", "snap/firefox", "snap/chromium",
		".var/app/org.mozilla.firefox", ".var/app/com.google.chrome", ".config/librewolf", ".librewolf", ".waterfox",
		".config/thorium",
	}},
	{"session cookie", []string{
		".xauthority", ".iceauthority", ".esd_auth", ".config/pulse/cookie", ".dbus",
	}},
	{"agent credentials", []string{
		".claude.json", ".copilot/config.json", ".config/goose/secrets.yaml", ".config/code/user/globalstorage",
		".config/cursor/user/globalstorage", ".config/code/user/workspacestorage", ".local/share/goose/sessions",
	}},
}

// jetBrains keeps passwords in files of these names, one directory for each
// product and version.
var jetBrains = [...]string{"c.kdbx", "c.pwd", "options/security.xml"}

// storesAbove reports whether a root is, or lies in, such a store: whoever
// works there means it.
func (b *Base) storesAbove(root string) bool { return b.homeSecret(root) != "" }

// homeSecret is the class of the credential store below a home, anybody's,
// that p is or lies in, or empty.
func (b *Base) homeSecret(p string) string {
	rest, ok := b.belowAnyHome(p)
	if !ok || rest == "" {
		return ""
	}
	rest = strings.Join(foldPath(rest), "/")
	if product, ok := strings.CutPrefix(rest, ".config/jetbrains/"); ok {
		if _, file, _ := strings.Cut(product, "/"); slices.Contains(jetBrains[:], file) {
			return "password store"
		}
	}
	if rest[0] != '.' && !strings.HasPrefix(rest, "snap/") && !strings.HasPrefix(rest, "library/") {
		return ""
	}
	for i := range homeStores {
		for _, s := range homeStores[i].places {
			if within(rest, s) {
				return homeStores[i].class
			}
		}
	}
	return ""
}
