package fsscope

import (
	"strings"
)

// secret is what the name of a path says about secrets in it.
type secret struct {
	// class is "ssh key", "cloud credentials" and kin; empty for none.
	class string
	// file: only a file of this name is one (a directory named ".env" is a
	// virtual environment).
	file bool
	// key: known by the look of a key file's name only. Making one in the
	// workspace is ordinary.
	key bool
}

// knownHosts tells whom a user talks to, and opens no door.
const knownHosts = "known hosts"

// secretDirs hold credentials in everything below them.
var secretDirs = map[string]string{
	".ssh": "ssh key", ".aws": "cloud credentials", ".azure": "cloud credentials", ".oci": "cloud credentials",
	".aliyun": "cloud credentials", ".bluemix": "cloud credentials", ".fly": "cloud credentials",
	".kube": "cluster credentials", ".terraform.d": "cloud credentials", ".gnupg": "private key",
	".password-store": "password store", ".mozilla": "browser store", ".thunderbird": "mail store",
	".pki": "private key", ".ansible_vault": "password store", ".cloudflared": "cloud credentials",
	".kaggle": "service token", ".step": "private key", ".sops": "private key",
	".electrum": "wallet", ".bitcoin": "wallet", ".ethereum": "wallet",
}

// secretFiles are credentials under any directory.
var secretFiles = map[string]string{
	".netrc": "service password", "_netrc": "service password", ".npmrc": "registry token",
	".pypirc": "registry token", ".pgpass": "database password", "pgpass.conf": "database password",
	".my.cnf": "database password", ".mylogin.cnf": "database password", ".git-credentials": "git credentials",
	".vault-token": "service token", ".dockercfg": "registry token", ".s3cfg": "cloud credentials",
	".boto": "cloud credentials", ".databrickscfg": "cloud credentials", ".htpasswd": "service password",
	".credentials.json": "agent credentials", "oauth_creds.json": "agent credentials", ".rediscli_auth": "database password",
	"application_default_credentials.json": "cloud credentials", "credentials.tfrc.json": "cloud credentials",
	".terraformrc": "cloud credentials", ".wgetrc": "service password", ".smbcredentials": "service password", ".tfrc": "cloud credentials",
	".fetchmailrc": "service password", ".msmtprc": "service password", ".cifs-credentials": "service password",
	"kubeconfig": "cluster credentials", ".mc_config.json": "cloud credentials",
	"logins.json": "browser store", "key4.db": "browser store", "key3.db": "browser store", "signons.sqlite": "browser store",
	"cookies.sqlite": "browser store", "login data": "browser store", "login data for account": "browser store",
	"login.keychain": "keyring", "login.keychain-db": "keyring",
	"mongosh_repl_history": "history", "fish_history": "history", "consolehost_history.txt": "history",
	".lesshst": "history", ".viminfo": "history", ".zhistory": "history", ".dbshell": "history", ".rhistory": "history",
	"wallet.dat": "wallet", ".vault_pass": "service password", ".vault_pass.txt": "service password", ".vault_password": "service password",
	".vault-password": "service password", ".secret": "service token", ".secrets": "service token", ".secret_key": "service token", ".secrets.toml": "service token",
	".ssh_key": "ssh key", ".dev.vars": "environment file", ".authinfo": "service password", ".credentials": "service password",
	"secrets.tfvars": "cloud credentials", "local.settings.json": "cloud credentials",
	"prod.env": "environment file", "production.env": "environment file", "staging.env": "environment file", "secrets.env": "environment file",
	"env.production": "environment file", "key.properties": "service password",
	".histfile": "history", ".history": "history", ".bash_sessions": "history", ".zsh_sessions": "history", ".duckdb_history": "history",
}

// secretBelow are paths below some directory, in pieces: the first is an
// element anywhere, the others follow it directly. "*" is any one element.
var secretBelow = []struct {
	path  []string
	class string
}{
	{[]string{".streamlit", "secrets.toml"}, "service token"},
	{[]string{".vercel", "auth.json"}, "service token"},
	{[]string{".docker", "config.json"}, "registry token"},
	{[]string{".docker", "machine"}, "private key"},
	{[]string{".config", "gcloud"}, "cloud credentials"},
	{[]string{".config", "gh"}, "git credentials"},
	{[]string{".config", "glab-cli"}, "git credentials"},
	{[]string{".config", "hub"}, "git credentials"},
	{[]string{".config", "git", "credentials"}, "git credentials"},
	{[]string{".config", "github-copilot"}, "agent credentials"},
	{[]string{".config", "doctl"}, "cloud credentials"},
	{[]string{".config", "hcloud"}, "cloud credentials"},
	{[]string{".config", "rclone"}, "cloud credentials"},
	{[]string{".config", "containers", "auth.json"}, "registry token"},
	{[]string{".config", "op"}, "password store"},
	{[]string{".config", "keepassxc"}, "password store"},
	{[]string{".config", "bitwarden"}, "password store"},
	{[]string{".config", "bitwarden cli"}, "password store"},
	{[]string{".config", "1password"}, "password store"},
	{[]string{".config", "sops"}, "private key"},
	{[]string{".config", "age"}, "private key"},
	{[]string{".config", "stripe"}, "service token"},
	{[]string{".config", "configstore"}, "service token"},
	{[]string{".config", "netlify"}, "service token"},
	{[]string{".config", "helm", "registry"}, "registry token"},
	{[]string{".config", "google-chrome"}, "browser store"},
	{[]string{".config", "google-chrome-beta"}, "browser store"},
	{[]string{".config", "google-chrome-unstable"}, "browser store"},
	{[]string{".config", "chromium"}, "browser store"},
	{[]string{".config", "bravesoftware"}, "browser store"},
	{[]string{".config", "microsoft-edge"}, "browser store"},
	{[]string{".config", "vivaldi"}, "browser store"},
	{[]string{".config", "opera"}, "browser store"},
	{[]string{".config", "mozilla"}, "browser store"},
	{[]string{".var", "app", "*", "config"}, "browser store"},
	{[]string{"snap", "firefox", "common"}, "browser store"},
	{[]string{"snap", "chromium", "common"}, "browser store"},
	{[]string{"application support", "google", "chrome"}, "browser store"},
	{[]string{"application support", "chromium"}, "browser store"},
	{[]string{"application support", "bravesoftware"}, "browser store"},
	{[]string{"application support", "microsoft edge"}, "browser store"},
	{[]string{"application support", "firefox"}, "browser store"},
	{[]string{"library", "cookies"}, "browser store"},
	{[]string{"library", "keychains"}, "keyring"},
	{[]string{".local", "share", "keyrings"}, "keyring"},
	{[]string{".local", "share", "kwalletd"}, "keyring"},
	{[]string{".local", "share", "opencode", "auth.json"}, "agent credentials"},
	{[]string{".codex", "auth.json"}, "agent credentials"},
	{[]string{".cargo", "credentials"}, "registry token"},
	{[]string{".cargo", "credentials.toml"}, "registry token"},
	{[]string{".gem", "credentials"}, "registry token"},
	{[]string{".m2", "settings.xml"}, "registry token"},
	{[]string{".m2", "settings-security.xml"}, "registry token"},
	{[]string{".gradle", "gradle.properties"}, "registry token"},
	{[]string{".composer", "auth.json"}, "registry token"},
	{[]string{".config", "composer", "auth.json"}, "registry token"},
	{[]string{".nuget", "nuget.config"}, "registry token"},
	{[]string{".nuget", "nuget", "nuget.config"}, "registry token"},
	{[]string{".subversion", "auth"}, "git credentials"},
	{[]string{".ivy2", ".credentials"}, "registry token"},
	{[]string{".sbt", ".credentials"}, "registry token"},
	{[]string{".cache", "huggingface", "token"}, "service token"},
	{[]string{".cf", "config.json"}, "cloud credentials"},
	{[]string{".chef", "*.pem"}, "private key"},
	{[]string{"secrets", "kubernetes.io"}, "service token"},
}

// etcSecrets stand below /etc; a name that ends in '*' is a prefix.
var etcSecrets = [...]string{
	"shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "sudo.conf", "master.passwd",
	"krb5.keytab", "security/opasswd", "ipsec.secrets", "ipsec.d/private", "ppp/chap-secrets", "ppp/pap-secrets",
	"networkmanager/system-connections", "wireguard", "openvpn", "letsencrypt/live", "letsencrypt/archive",
	"letsencrypt/accounts", "docker/key.json", "kubernetes/admin.conf", "kubernetes/pki", "rancher", "ssl/private",
	"pki/tls/private", "ssh/ssh_host_*", "netplan", "wpa_supplicant", "mysql/debian.cnf", "postfix/sasl_passwd", "credstore",
}

// secretOf tells by name whether a folded path is a secret or inside one.
// What is known by the name of a token file counts below hidden directories
// from element from on.
func secretOf(names []string, from int) secret {
	last := names[len(names)-1]
	for i, n := range names {
		if n == "" {
			continue
		}
		if n == ".ssh" && i == len(names)-2 && strings.HasPrefix(last, "known_hosts") {
			return secret{class: knownHosts} // names of hosts, and their public keys
		}
		if class, ok := secretDirs[n]; ok && !(n == ".ssh" && i < len(names)-1 && strings.HasSuffix(last, ".pub")) {
			return secret{class: class}
		}
		if n[0] == '.' || n == "snap" || n == "secrets" || n == "library" || n == "application support" {
			if class := below(names[i:]); class != "" {
				return secret{class: class}
			}
		}
	}
	if class, ok := secretFiles[last]; ok {
		return secret{class: class, file: true}
	}
	if isDotenv(last) {
		return secret{class: "environment file", file: true}
	}
	if strings.HasPrefix(last, ".") && strings.HasSuffix(last, "_history") {
		return secret{class: "history", file: true}
	}
	if isKey(last) {
		return secret{class: "private key", file: true, key: true}
	}
	if inDotDir(names, from) && isToken(last) {
		return secret{class: "service token", file: true}
	}
	return secret{class: systemSecret(names)}
}

func below(names []string) string {
	for _, s := range secretBelow {
		if s.path[0] == names[0] && matchBelow(s.path, names) {
			return s.class
		}
	}
	return ""
}

func matchBelow(want, names []string) bool {
	if len(names) < len(want) {
		return false
	}
	for i, w := range want {
		suffix, wild := strings.CutPrefix(w, "*")
		if wild && !strings.HasSuffix(names[i], suffix) || !wild && w != names[i] {
			return false
		}
	}
	return true
}

// isDotenv knows ".env", ".env.production", ".env-old", and their templates,
// which hold none.
func isDotenv(name string) bool {
	rest, ok := strings.CutPrefix(name, ".env")
	if !ok {
		return false
	}
	if rest == "" {
		return true
	}
	if strings.IndexByte(".-_~", rest[0]) < 0 {
		return false
	}
	word := rest[strings.LastIndexAny(rest, ".-_")+1:]
	switch word {
	case "example", "examples", "sample", "template", "tmpl", "tpl", "dist", "default", "defaults", "schema", "md", "ts":
		return false
	}
	return true
}

// isKey knows private keys by name; certificates and public keys pass, and
// so does source code about keys.
func isKey(name string) bool {
	stem, ext := name, ""
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		stem, ext = name[:i], name[i:]
	}
	public := strings.Contains(stem, "pub")
	switch ext {
	case ".p12", ".pfx", ".p8", ".kdbx", ".kdb", ".jks", ".keystore", ".ppk", ".pvk", ".agekey", ".keytab", ".ovpn", ".tfstate":
		return true
	case ".backup":
		return strings.HasSuffix(stem, ".tfstate")
	case ".key":
		return !public
	case ".pem":
		return (strings.Contains(stem, "key") || strings.Contains(stem, "priv")) && !public || sshKey(stem)
	case ".json":
		return strings.HasPrefix(name, "client_secret") || strings.Contains(name, "service-account") ||
			strings.Contains(name, "service_account") || strings.Contains(name, "firebase-adminsdk") || stem == "serviceaccountkey" ||
			cloudCredentials(stem)
	case ".gpg":
		return stem == "secring"
	case ".pub", ".py", ".go", ".js", ".ts", ".tsx", ".jsx", ".rs", ".rb", ".java", ".c", ".h", ".cc", ".cpp", ".cs",
		".php", ".sh", ".md", ".rst", ".html", ".css", ".sql", ".kt", ".swift", ".scala":
		return false
	}
	return sshKey(name) || strings.HasPrefix(name, "ssh_host_") && strings.HasSuffix(name, "_key")
}

// cloudCredentials knows the files that a cloud's console hands out.
func cloudCredentials(stem string) bool {
	who, ok := strings.CutSuffix(stem, "credentials")
	if !ok || who == "" {
		return false
	}
	switch who[:len(who)-1] {
	case "google", "gcp", "gcloud", "gdrive", "aws", "azure", "firebase", "vertex", "bigquery":
		return strings.IndexByte("-_.", who[len(who)-1]) >= 0
	}
	return false
}

func sshKey(name string) bool {
	rest, ok := strings.CutPrefix(name, "id_")
	if !ok {
		return false
	}
	for _, kind := range [...]string{"rsa", "dsa", "ecdsa", "ed25519", "xmss"} {
		if tail, ok := strings.CutPrefix(rest, kind); ok && (tail == "" || strings.IndexByte("._-~ ", tail[0]) >= 0) {
			return true
		}
	}
	return false
}

// inDotDir reports whether a directory above is hidden. Inside a root, whose
// name ends before element from, only the standard places of configuration
// count: repositories keep all kinds of hidden directories.
func inDotDir(names []string, from int) bool {
	for _, n := range names[min(from, len(names)-1) : len(names)-1] {
		if n == ".config" || n == ".local" || from == 0 && strings.HasPrefix(n, ".") {
			return true
		}
	}
	return false
}

// isTemplate knows the files that show what a secret's file looks like.
func isTemplate(name string) bool {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "example", "sample", "template", "tmpl", "dist":
		return true
	}
	return false
}

func isToken(name string) bool {
	stem, ext := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		stem, ext = name[:i], name[i:]
	}
	switch ext {
	case "", ".json", ".toml", ".yml", ".yaml", ".ini", ".db", ".xml", ".txt", ".properties", ".env":
	default:
		return false
	}
	switch stem {
	case "credentials", "credential", "token", "tokens", "access_token", "access_tokens", "refresh_token", "auth",
		"secrets", "secret", "apikey", "api_key", "oauth", "oauth_token", "", ".credentials", ".token":
		return stem != "" || ext == ".token"
	}
	return false
}

// systemSecret knows the secrets of the system by their absolute path.
func systemSecret(names []string) string {
	if names[0] == "private" && len(names) > 1 {
		names = names[1:]
	}
	switch names[0] {
	case "etc":
		rest := strings.Join(names[1:], "/")
		for _, s := range etcSecrets {
			if prefix, ok := strings.CutSuffix(s, "*"); ok && strings.HasPrefix(rest, prefix) && !strings.HasSuffix(rest, ".pub") ||
				within(rest, s) {
				return "system secret"
			}
		}
	case "proc":
		switch names[len(names)-1] {
		case "environ", "mem", "kcore":
			return "process memory"
		}
		if len(names) > 2 && names[len(names)-2] == "map_files" {
			return "process memory"
		}
	case "dev":
		if last := names[len(names)-1]; last == "mem" || last == "kmem" || last == "port" {
			return "process memory"
		}
	case "var":
		if len(names) == 3 && names[1] == "backups" && strings.Contains(names[2], "shadow") {
			return "system secret"
		}
	case "run":
		if len(names) > 1 && names[1] == "secrets" {
			return "service token"
		}
	}
	return ""
}
