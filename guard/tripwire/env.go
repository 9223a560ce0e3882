package tripwire

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

func secretVariable(_ *scene, _ int, e *cordon.Effect) ruling {
	name := strings.TrimSuffix(e.Target, "*")
	if name == "" || !SecretVariable(name) {
		return pass
	}
	d := ruling{severity: unsure, detail: "The call would read the secret variable " + named(name) + "."}
	if cloudKeys()[name] {
		d.severity = certain
	}
	return d
}

func environmentDump(_ *scene, _ int, e *cordon.Effect) ruling {
	if e.Target != "*" {
		return pass
	}
	return ruling{severity: unsure, detail: "The call would read the whole environment, secrets included."}
}

// cloudKeys open a whole account.
var cloudKeys = sync.OnceValue(func() map[string]bool {
	return set("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS",
		"DIGITALOCEAN_ACCESS_TOKEN", "CLOUDFLARE_API_TOKEN", "VAULT_TOKEN", "HCLOUD_TOKEN")
})

// SecretVariable reports whether the name of an environment variable says
// that its value is a secret: AWS_SECRET_ACCESS_KEY, GH_TOKEN, PGPASSWORD,
// OPENAI_API_KEY, but not MAX_TOKENS, PUBLIC_KEY, GIT_AUTHOR_NAME or
// DB_PASSWORD_FILE. Names with small letters are variables of a script and
// not of the environment, but for npm's.
func SecretVariable(name string) bool {
	if cloudKeys()[name] || name == "AWS_ACCESS_KEY_ID" {
		return true
	}
	upper := strings.ToUpper(name)
	if upper != name && !strings.HasPrefix(upper, "NPM_") {
		return false
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return r == '_' })
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	if aboutSecrets()[last] {
		return false
	}
	for _, w := range words {
		if secretWord(w) {
			return true
		}
	}
	switch last {
	case "KEY":
		return len(words) > 1 && !openKeys()[words[len(words)-2]]
	case "PWD", "PASS", "AUTH", "PAT", "PRIVATEKEY":
		return len(words) > 1
	}
	return false
}

// aboutSecrets are last words of names that speak of a secret without being
// one.
var aboutSecrets = sync.OnceValue(func() map[string]bool {
	return set("FILE", "PATH", "DIR", "URL", "URI", "NAME", "ID", "TTL", "LENGTH", "LEN", "SIZE", "COUNT", "TYPE",
		"ALGORITHM", "EXPIRY", "EXPIRES", "LIMIT", "ENABLED", "HEADER", "HOST", "PORT", "MODE", "REGION", "MIN", "MAX", "SOCK")
})

var openKeys = sync.OnceValue(func() map[string]bool {
	return set("PUBLIC", "PUB", "PRIMARY", "FOREIGN", "SORT", "CACHE", "PARTITION", "HOT", "INDEX", "REGISTRY", "COMPOSE",
		"GROUP", "LOOKUP", "MAP", "DICT", "ROW")
})

func secretWord(w string) bool {
	for _, part := range [...]string{"PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY"} {
		if strings.Contains(w, part) {
			return true
		}
	}
	return w == "SECRET" || w == "SECRETS" || strings.HasSuffix(w, "SECRET") || strings.HasSuffix(w, "TOKEN")
}

// poison is the ruling for a variable that changes what other programs do.
// An empty text is a value that could not be told: readers do not report a
// variable that is emptied.
func poison(sev severity, e *cordon.Effect, what string) ruling {
	if e.Text == "" {
		sev = max(sev, unsure)
	}
	return ruling{severity: sev, detail: "Setting " + named(e.Target) + " " + what + "."}
}

func setLoader(s *scene, _ int, e *cordon.Effect) ruling {
	switch {
	case e.Target == "LD_PRELOAD", e.Target == "LD_AUDIT", e.Target == "DYLD_INSERT_LIBRARIES":
		sev := certain
		if s.systemPaths(e, " :") {
			sev = unsure // an allocator or a debugging aid of the system
		}
		return poison(sev, e, "loads a library into every program that starts")
	case e.Target == "LD_LIBRARY_PATH", strings.HasPrefix(e.Target, "DYLD_"):
		if s.knownPaths(e) {
			return pass
		}
		return poison(unsure, e, "lets foreign libraries stand in for the system's")
	}
	return pass
}

func setShellStartup(_ *scene, _ int, e *cordon.Effect) ruling {
	switch e.Target {
	case "BASH_ENV", "PROMPT_COMMAND", "PS0", "PS4", "PS1":
		if strings.HasPrefix(e.Target, "PS") && !strings.ContainsAny(e.Text, "`") && !strings.Contains(e.Text, "$(") {
			return pass
		}
		return poison(certain, e, "makes shells run code")
	case "ENV":
		// ENV=production is how many a web framework is started; a shell
		// takes it for a file.
		if strings.ContainsAny(e.Text, "/`") || strings.Contains(e.Text, "$(") {
			return poison(certain, e, "makes shells run code")
		}
	case "ZDOTDIR":
		return poison(unsure, e, "makes shells read other startup files")
	}
	if strings.HasPrefix(e.Target, "BASH_FUNC_") {
		return poison(certain, e, "replaces a command by a function")
	}
	return pass
}

func setInterpreter(s *scene, _ int, e *cordon.Effect) ruling {
	switch e.Target {
	case "PYTHONSTARTUP", "PERL5DB", "NODE_REPL_EXTERNAL_MODULE":
		return poison(unsure, e, "makes an interpreter run a file when it starts")
	case "PYTHONPATH", "PYTHONHOME", "NODE_PATH", "RUBYLIB", "PERL5LIB", "LUA_PATH":
		if !s.knownPaths(e) {
			return poison(unsure, e, "makes an interpreter load modules from elsewhere")
		}
	case "PYTHONBREAKPOINT":
		if e.Text != "0" && !strings.HasSuffix(e.Text, ".set_trace") {
			return poison(unsure, e, "names a function to be called")
		}
	case "NODE_OPTIONS":
		if loadsNode(e.Text) {
			return poison(certain, e, "makes node load code before the program")
		}
	case "RUBYOPT":
		if anyField(e.Text, func(f string) bool {
			return hasAnyPrefix(f, "-r", "-I", "-e", "-x", "-S") && f != "-rbundler/setup"
		}) {
			return poison(certain, e, "makes ruby load code before the program")
		}
	case "PERL5OPT":
		if anyField(e.Text, func(f string) bool { return hasAnyPrefix(f, "-M", "-m", "-I", "-d", "-e", "-x") }) {
			return poison(certain, e, "makes perl load code before the program")
		}
	case "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "SBT_OPTS", "JAVA_OPTS":
		if anyField(e.Text, func(f string) bool {
			return hasAnyPrefix(f, "-javaagent", "-agentlib", "-agentpath", "-XX:OnError", "-XX:OnOutOfMemoryError", "-Xbootclasspath", "@")
		}) {
			return poison(certain, e, "makes java load code before the program")
		}
	}
	return pass
}

// nodeLoaders are packages that compile sources as they are loaded, which
// people preload every day.
var nodeLoaders = sync.OnceValue(func() map[string]bool {
	return set("tsx", "tsx/esm", "tsx/cjs", "ts-node/register", "ts-node/register/transpile-only", "ts-node/esm",
		"dotenv/config", "esbuild-register", "@swc-node/register", "source-map-support/register", "@babel/register")
})

func loadsNode(options string) bool {
	fields := strings.Fields(options)
	for i, f := range fields {
		f = strings.Trim(f, `"'`)
		name, value, joined := strings.Cut(f, "=")
		if !joined && i+1 < len(fields) {
			value = fields[i+1]
		}
		switch name {
		case "--require", "-r", "--import", "--loader", "--experimental-loader", "--env-file", "--openssl-config":
			if !nodeLoaders()[strings.Trim(value, `"'`)] {
				return true
			}
		}
		if hasAnyPrefix(f, "-r") && len(f) > 2 && f[2] != '=' && !nodeLoaders()[f[2:]] {
			return true
		}
	}
	return false
}

func anyField(text string, hit func(string) bool) bool {
	return slices.ContainsFunc(strings.Fields(text), hit)
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// commandVariables hold a command line that some program runs.
var commandVariables = sync.OnceValue(func() map[string]bool {
	return set("PAGER", "MANPAGER", "GIT_PAGER", "GH_PAGER", "SYSTEMD_PAGER", "AWS_PAGER", "EDITOR", "VISUAL", "GIT_EDITOR",
		"GIT_SEQUENCE_EDITOR", "FCEDIT", "KUBE_EDITOR", "SUDO_EDITOR", "SUDO_ASKPASS", "BROWSER", "LESSOPEN", "LESSCLOSE", "MAN_PAGER", "SSH_ASKPASS",
		"GIT_ASKPASS", "RSYNC_RSH", "CVS_RSH", "TAR_OPTIONS", "ZIPOPT", "MAKEFLAGS", "FZF_DEFAULT_COMMAND", "RIPGREP_CONFIG_PATH",
		"RUSTC_WRAPPER", "GOFLAGS", "NPM_CONFIG_SCRIPT_SHELL", "NPM_CONFIG_GIT", "npm_config_script_shell", "npm_config_git")
})

// plainCommands only show or edit what they are given.
var plainCommands = sync.OnceValue(func() map[string]bool {
	return set("cat", "less", "more", "most", "bat", "batcat", "delta", "true", "false", "echo", ":", "vim", "vi", "nvim", "nano",
		"emacs", "emacsclient", "ed", "micro", "hx", "code", "cursor", "subl", "head", "col", "xdg-open", "firefox", "none", "ssh")
})

func setCommand(_ *scene, _ int, e *cordon.Effect) ruling {
	if !commandVariables()[e.Target] {
		return pass
	}
	harmless := false
	switch e.Target {
	case "MAKEFLAGS":
		harmless = !strings.Contains(e.Text, "--eval") && !strings.Contains(e.Text, "SHELL=")
	case "GOFLAGS":
		harmless = !strings.Contains(e.Text, "-toolexec") && !strings.Contains(e.Text, "-exec")
	case "TAR_OPTIONS":
		harmless = !strings.Contains(e.Text, "--checkpoint-a") && !strings.Contains(e.Text, "-I") &&
			!strings.Contains(e.Text, "--use-c") && !strings.Contains(e.Text, "--to-c")
	case "RUSTC_WRAPPER":
		harmless = e.Text == "sccache" || e.Text == "ccache"
	default:
		harmless = plainCommand(e.Text)
	}
	if harmless {
		return pass
	}
	return poison(unsure, e, "names a command that another program will run")
}

// plainCommand: a known viewer or editor with options only, or sed with
// plain substitutions, as used to steer an interactive rebase.
func plainCommand(text string) bool {
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return false
	}
	name := fields[0]
	if dir := path.Dir(name); dir == "/bin" || dir == "/usr/bin" || dir == "/usr/local/bin" {
		name = path.Base(name)
	}
	if name == "sed" {
		return plainSed(text)
	}
	if !plainCommands()[name] || strings.ContainsAny(text, ";|&$`<>()#!{}\n\\'\"") {
		return false
	}
	for _, f := range fields[1:] {
		if !strings.HasPrefix(f, "-") || hasAnyPrefix(f, "-c", "--cmd", "-S", "--eval", "-u") {
			return false
		}
	}
	return true
}

func plainSed(text string) bool {
	for _, f := range strings.Fields(text)[1:] {
		f = strings.Trim(f, `"'`)
		if f == "-i" || f == "-e" || f == "-E" || f == "-r" || f == "-i.bak" {
			continue
		}
		f = strings.TrimLeft(f, "0123456789,$")
		parts := strings.Split(f, "/")
		if len(parts) != 4 || parts[0] != "s" || strings.Trim(parts[3], "gI0123456789") != "" || strings.ContainsAny(f, ";\n`$(") {
			return false
		}
	}
	return true
}

func setGit(_ *scene, _ int, e *cordon.Effect) ruling {
	if !strings.HasPrefix(e.Target, "GIT_") {
		return pass
	}
	switch e.Target {
	case "GIT_SSH", "GIT_SSH_COMMAND":
		if plainSSH(e.Text) {
			return pass
		}
		return poison(certain, e, "names a command that git runs")
	case "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_EXEC_PATH":
		return poison(certain, e, "names a command that git runs")
	case "GIT_TEMPLATE_DIR", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG":
		return poison(unsure, e, "gives git settings that can run code")
	case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM":
		if e.Text != "/dev/null" {
			return poison(unsure, e, "gives git settings that can run code")
		}
	}
	if strings.HasPrefix(e.Target, "GIT_CONFIG_KEY_") && !plainGitKey(strings.ToLower(e.Text)) {
		return poison(unsure, e, "gives git a setting that can run code or redirect it")
	}
	return pass
}

func plainGitKey(key string) bool {
	return hasAnyPrefix(key, "user.", "author.", "committer.", "color.", "advice.", "init.", "push.", "pull.", "fetch.prune",
		"safe.directory", "commit.gpgsign", "tag.gpgsign", "protocol.version", "core.autocrlf", "core.quotepath", "core.longpaths",
		"merge.conflictstyle", "diff.renames", "gc.", "log.", "status.", "rebase.autostash")
}

// plainSSH: ssh with options that choose a key or a host and run nothing.
func plainSSH(text string) bool {
	fields := strings.Fields(text)
	if len(fields) == 0 || (fields[0] != "ssh" && fields[0] != "/usr/bin/ssh") || strings.ContainsAny(text, ";|&`<>()\n") || strings.Contains(text, "$(") {
		return false
	}
	lower := strings.ToLower(text)
	for _, word := range [...]string{"command", "-f", "include", "match", "pkcs11", "usertoken"} {
		if strings.Contains(lower, word) {
			return false
		}
	}
	return true
}

// setPath lets pass what a build puts in front: the programs that the
// workspace and the user's tools keep in directories of that name. What
// comes after the system's directories shadows nothing.
func setPath(s *scene, _ int, e *cordon.Effect) ruling {
	if e.Target != "PATH" {
		return pass
	}
	for dir := range strings.SplitSeq(e.Text, ":") {
		switch dir {
		case "$PATH", "${PATH}", "/usr/bin", "/bin":
			return pass
		}
		if !s.programDir(dir, e) {
			return poison(unsure, e, "puts "+named(dir)+" in front of the system's programs")
		}
	}
	return pass
}

var programDirs = sync.OnceValue(func() map[string]bool {
	return set("bin", ".bin", "sbin", "scripts", "script", "tools", "Scripts", "shims")
})

func (s *scene) programDir(dir string, e *cordon.Effect) bool {
	switch dir {
	case "", ".":
		return false // the directory one happens to be in
	}
	if strings.HasPrefix(dir, "$(") || strings.HasPrefix(dir, "`") {
		return programDirs()[path.Base(dir)]
	}
	p := s.absolute(dir, e)
	switch {
	case systemPath(p):
		return true
	case inside(p, s.Workspace), inside(p, s.Home):
		return programDirs()[path.Base(p)] && p != s.Workspace
	}
	return strings.HasPrefix(p, "$") && programDirs()[path.Base(p)]
}

// knownPaths: every directory of the list lies in the workspace or the
// system.
func (s *scene) knownPaths(e *cordon.Effect) bool {
	if e.Text == "" {
		return false
	}
	for _, dir := range strings.FieldsFunc(e.Text, func(r rune) bool { return r == ':' || r == ';' }) {
		if dir == "$"+e.Target || strings.HasPrefix(dir, "${"+e.Target) {
			continue
		}
		if p := s.absolute(dir, e); !systemPath(p) && !sameOrBelow(p, s.Workspace) {
			return false
		}
	}
	return true
}

// systemPaths: every entry is a file of the system.
func (s *scene) systemPaths(e *cordon.Effect, separators string) bool {
	for _, f := range strings.FieldsFunc(e.Text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if !systemPath(s.absolute(f, e)) {
			return false
		}
	}
	return true
}

// absolute is where a directory of a list lies; what starts with a variable
// that is not HOME or PWD stays as it is.
func (s *scene) absolute(dir string, e *cordon.Effect) string {
	for _, name := range [...]string{"$PWD", "${PWD}"} {
		if rest, ok := strings.CutPrefix(dir, name); ok {
			dir = "." + rest
		}
	}
	if strings.HasPrefix(dir, "$") && !strings.HasPrefix(dir, "$HOME") && !strings.HasPrefix(dir, "${HOME}") {
		return dir
	}
	return s.written(&cordon.Effect{Target: dir, Dir: e.Dir})
}

func systemPath(p string) bool {
	for _, dir := range [...]string{"/bin", "/sbin", "/lib", "/lib64", "/usr", "/opt", "/snap/bin", "/nix/store", "/System", "/Library"} {
		if sameOrBelow(p, dir) {
			return true
		}
	}
	return false
}

// redirects are variables by which downloads and uploads go through, or to,
// another host.
var redirects = sync.OnceValue(func() map[string]bool {
	return set("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS",
		"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY",
		"YARN_REGISTRY", "YARN_NPM_REGISTRY_SERVER", "GOPROXY", "TWINE_REPOSITORY_URL", "GEM_HOST", "RUBYGEMS_HOST",
		"AWS_ENDPOINT_URL", "HF_ENDPOINT")
})

func setRedirect(s *scene, _ int, e *cordon.Effect) ruling {
	if !redirects()[strings.ToUpper(e.Target)] {
		return pass
	}
	if e.Text == "" {
		return poison(unsure, e, "leads traffic to an unknown host")
	}
	for word := range strings.FieldsFuncSeq(e.Text, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		switch word {
		case "off", "direct":
			continue
		}
		far := urlHost(word)
		if far == "" || !s.hostAllowed(far) {
			return poison(unsure, e, "leads traffic to "+host(far)+", which is not allowed")
		}
	}
	return pass
}

// urlHost is "host" or "host:port" of a URL, or of what stands for one
// without its scheme; "" where there is none.
func urlHost(word string) string {
	if !strings.Contains(word, "://") {
		word = "//" + word
	}
	u, err := url.Parse(word)
	if err != nil {
		return ""
	}
	return u.Host
}

func ownVariable(_ *scene, _ int, e *cordon.Effect) ruling {
	if slices.Contains(agentHomes, e.Target) {
		return ruling{severity: unsure, detail: "The call would have an agent take its settings, and so its hooks, from elsewhere: " + named(e.Target) + "."}
	}
	if !hasAnyPrefix(e.Target, "ATOM_SANDBOX_", "ATOM_DMM_", "CORDON_") {
		return pass
	}
	return ruling{severity: unsure, detail: "The call would set Cordon's own variable " + named(e.Target) + "."}
}
