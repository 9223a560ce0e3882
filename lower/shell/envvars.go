package shell

import (
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// assigned reacts to assignments that matter without an export.
func (w *walker) assigned(name string, vs []val) {
	if strings.HasPrefix(name, "HIST") && len(vs) > 0 {
		w.forgets(name, vs[0])
	}
	switch name {
	case "PROMPT_COMMAND", "PS4", "PS0", "PS1", "PS2":
		for _, v := range vs {
			w.promptText(name, v)
		}
	case "PATH", "PAGER", "EDITOR", "VISUAL", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "IFS", "HOME":
		if name == "IFS" || name == "HOME" {
			return
		}
		for _, v := range vs {
			w.envPoison(name, v)
		}
	default:
		if w.exported(name) {
			for _, v := range vs {
				w.envPoison(name, v)
			}
		}
	}
}

func (w *walker) promptText(name string, v val) {
	if name == "PROMPT_COMMAND" {
		w.turn(v, name, stdio{})
		return
	}
	defer w.push(name)()
	w.document(v.s, v)
}

// shellVars hold commands that programs hand to a shell.
var shellVars = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"PAGER": true, "MANPAGER": true, "GIT_PAGER": true, "EDITOR": true, "VISUAL": true, "GIT_EDITOR": true, "GIT_SEQUENCE_EDITOR": true,
		"GIT_SSH_COMMAND": true, "GIT_SSH": true, "GIT_EXTERNAL_DIFF": true, "GIT_ASKPASS": true, "SSH_ASKPASS": true, "SUDO_ASKPASS": true,
		"GIT_PROXY_COMMAND": true, "BROWSER": true, "SVN_EDITOR": true, "HGEDITOR": true, "FCEDIT": true,
		"RSYNC_RSH": true, "CVS_RSH": true, "BAT_PAGER": true, "SYSTEMD_PAGER": true, "AWS_PAGER": true, "GH_PAGER": true, "GH_EDITOR": true,
		"KUBE_EDITOR": true, "PSQL_EDITOR": true, "PSQL_PAGER": true, "DELTA_PAGER": true, "LESSOPEN": true, "LESSCLOSE": true,
		"MAKEFLAGS": false, "TAR_OPTIONS": false, "RUSTC_WRAPPER": true, "RUSTC": true, "CC": true, "CXX": true, "GIT_TEMPLATE_DIR": false,
		"CARGO_BUILD_RUSTC_WRAPPER": true, "RUSTC_WORKSPACE_WRAPPER": true, "MAILCAP": false, "TEXEDIT": true, "PERLDOC_PAGER": true,
		"GOFLAGS": false, "XDG_CONFIG_HOME": false, "NPM_CONFIG_SCRIPT_SHELL": true, "npm_config_script_shell": true, "GIT_CONFIG": false,
	}
})

// indexVars point package managers at another server.
var indexVars = sync.OnceValue(func() map[string]bool {
	return map[string]bool{
		"GOPROXY": true, "PIP_INDEX_URL": true, "PIP_EXTRA_INDEX_URL": true, "PIP_FIND_LINKS": true, "UV_INDEX_URL": true, "UV_DEFAULT_INDEX": true, "UV_INDEX": true,
		"UV_EXTRA_INDEX_URL": true, "NPM_CONFIG_REGISTRY": true, "npm_config_registry": true, "YARN_REGISTRY": true,
		"YARN_NPM_REGISTRY_SERVER": true, "BUNDLE_MIRROR__ALL": true, "RUBYGEMS_HOST": true, "GEM_HOST": true, "TWINE_REPOSITORY_URL": true,
		"CARGO_REGISTRIES_CRATES_IO_INDEX": true, "CARGO_REGISTRY_INDEX": true, "GONOSUMDB": false, "HEX_MIRROR": true, "COMPOSER_REPO_PACKAGIST": true,
		"HTTP_PROXY": true, "HTTPS_PROXY": true, "ALL_PROXY": true, "http_proxy": true, "https_proxy": true, "all_proxy": true, "ftp_proxy": true,
		"DOCKER_HOST": true, "PIP_PROXY": true, "NPM_CONFIG_PROXY": true, "npm_config_proxy": true, "npm_config_https_proxy": true,
		"AWS_ENDPOINT_URL": true, "CONDA_CHANNEL_ALIAS": true, "NODE_MIRROR": true, "NVM_NODEJS_ORG_MIRROR": true, "HF_ENDPOINT": true,
		"RUSTUP_DIST_SERVER": true, "RUSTUP_UPDATE_ROOT": true, "FLIT_INDEX_URL": true, "POETRY_REPOSITORIES_X_URL": true,
	}
})

// envPoison reacts to a variable in the environment of programs: one whose
// value runs code or points elsewhere is reported, ordinary values are not.
func (w *walker) envPoison(name string, v val) {
	if v.s == "" {
		return
	}
	switch name {
	case "PS4", "PS1", "PS0", "PROMPT_COMMAND":
		w.promptText(name, v)
		return
	}
	if runs, ok := shellVars()[name]; ok && runs {
		w.shellVar(name, v)
		return
	}
	if indexVars()[name] {
		w.indexVar(name, v)
		return
	}
	if strings.HasPrefix(name, "npm_config_") || strings.HasPrefix(name, "NPM_CONFIG_") || strings.HasPrefix(name, "PIP_") {
		if strings.Contains(v.s, "://") {
			w.connectURL(v, nil, false)
		}
	}
	if name == "PATH" && !w.poisonPath(v.s) {
		return
	}
	if name == "PATH" || poisons(name, v.s) {
		if w.inWorkspaceCode(name, v) {
			return
		}
		text := v.s
		if contains(v.data, "$"+name) {
			text = strings.ReplaceAll(text, mUnset, "$"+name)
		}
		w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: name, Text: dropMarks(text)})
		return
	}
	if (strings.HasPrefix(name, "BASH_FUNC_") || strings.HasPrefix(v.s, "() {")) && strings.Contains(v.s, "{") {
		w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: name, Text: v.s})
		w.turn(val{s: "f" + v.s + "; f"}, name, stdio{})
	}
}

func (w *walker) indexVar(name string, v val) {
	if name == "GOPROXY" {
		for _, p := range strings.FieldsFunc(v.s, func(r rune) bool { return r == ',' || r == '|' }) {
			if p != "direct" && p != "off" {
				w.connectURL(val{s: p, data: v.data, taint: v.taint}, nil, false)
			}
		}
		return
	}
	switch v.s {
	case "off", "none":
		return
	}
	if strings.HasPrefix(v.s, "unix://") || strings.HasPrefix(v.s, "/") || strings.HasPrefix(v.s, ".") {
		return
	}
	if startsUnknown(v.s) {
		return
	}
	w.connectURL(v, nil, false)
}

// shellVar reads a variable that holds a command.
func (w *walker) shellVar(name string, v val) {
	text := v.s
	switch name {
	case "CC", "CXX", "RUSTC", "RUSTC_WRAPPER":
		if !strings.ContainsAny(text, ";|&$`<>(") && !strings.Contains(text, " -c ") {
			return
		}
	case "LESSOPEN", "LESSCLOSE":
		text = strings.TrimLeft(text, "|-")
		if strings.Contains(text, "lesspipe") {
			return
		}
	}
	if bare(text) {
		return
	}
	w.turn(val{s: text, data: v.data, taint: v.taint}, name, stdio{in: &val{s: mFile}})
}

// inWorkspaceCode reads, where it can, the file that a variable makes a
// program load. A file that stood in the workspace before is the project's
// own code.
func (w *walker) inWorkspaceCode(name string, v val) bool {
	lang, file := "", ""
	switch name {
	case "BASH_ENV", "ENV":
		lang, file = "shell", v.s
	case "PYTHONSTARTUP":
		lang, file = "python", v.s
	case "NODE_OPTIONS":
		lang, file = "javascript", nodeLoads(v.s)
	case "RUBYOPT":
		lang, file = "ruby", loadFlag(v.s, "-r")
	case "PERL5OPT":
		lang, file = "perl", loadFlag(v.s, "-M")
	default:
		return false
	}
	if file == "" {
		return false
	}
	f := val{s: file, data: v.data, taint: v.taint}
	if lang == "shell" && strings.ContainsAny(file, "$`") {
		f = w.document(file, v)
	}
	body, ok := w.written(f)
	if !ok {
		body, ok = w.readScript(f)
	}
	if ok {
		if lang == "shell" {
			w.turn(body, name, stdio{})
		} else {
			w.code(lang, body, name)
		}
	}
	return false
}

func nodeLoads(s string) string {
	f := strings.Fields(strings.ReplaceAll(s, "=", " "))
	for i, x := range f {
		switch x {
		case "-r", "--require", "--import", "--loader", "--experimental-loader":
			if i+1 < len(f) {
				return f[i+1]
			}
		}
	}
	return ""
}

func loadFlag(s, flag string) string {
	f := strings.Fields(s)
	for i, x := range f {
		if x == flag && i+1 < len(f) {
			return f[i+1]
		}
		if strings.HasPrefix(x, flag) {
			return x[len(flag):]
		}
	}
	return ""
}

// poisons reports whether a value of a variable makes later programs load
// code or settings from where the caller says.
func poisons(name, v string) bool {
	switch name {
	case "LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONHOME", "PERL5DB", "PYTHONINSPECT",
		"GCONV_PATH", "BASHOPTS", "SHELLOPTS", "PYTHONBREAKPOINT", "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
		"GIT_CONFIG_PARAMETERS", "NODE_REPL_EXTERNAL_MODULE", "OPENSSL_CONF", "GIT_TEMPLATE_DIR", "ZDOTDIR", "INPUTRC",
		"GIT_CONFIG", "PYTHONUSERBASE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "HOSTALIASES", "LD_ORIGIN_PATH", "VIMINIT", "EXINIT", "GVIMINIT", "MYVIMRC",
		"LUA_INIT", "R_PROFILE", "R_PROFILE_USER", "JULIA_LOAD_PATH", "LESSKEY", "LESSKEYIN", "TCLLIBPATH", "GDK_PIXBUF_MODULE_FILE":
		if name == "PYTHONBREAKPOINT" {
			return v != "0" && !strings.HasPrefix(v, "pdb") && !strings.HasPrefix(v, "ipdb") && !strings.HasPrefix(v, "IPython")
		}
		return !harmlessValue(name, v)
	case "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "NODE_PATH", "PERL5LIB", "RUBYLIB", "CLASSPATH", "LUA_PATH", "LUA_CPATH", "GEM_PATH":
		return foreignPath(v)
	case "NODE_OPTIONS":
		return nodeLoads(v) != "" || strings.Contains(v, "--inspect") || strings.Contains(v, "--eval") || strings.Contains(v, "--conditions=../")
	case "RUBYOPT":
		return strings.Contains(v, "-r") || strings.Contains(v, "-I")
	case "PERL5OPT":
		return strings.Contains(v, "-M") || strings.Contains(v, "-m") || strings.Contains(v, "-d") || strings.Contains(v, "-I")
	case "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "JAVA_OPTS":
		return strings.Contains(v, "-javaagent") || strings.Contains(v, "-agentpath") || strings.Contains(v, "-agentlib") || strings.Contains(v, "-XX:OnError") || strings.Contains(v, "-XX:OnOutOfMemoryError")
	case "GOFLAGS":
		return strings.Contains(v, "-toolexec") || strings.Contains(v, "-insecure") || strings.Contains(v, "-exec")
	case "TAR_OPTIONS":
		return strings.Contains(v, "checkpoint-action") || strings.Contains(v, "to-command") || strings.Contains(v, "compress-program")
	case "MAKEFLAGS", "GNUMAKEFLAGS":
		return strings.Contains(v, "--eval") || strings.Contains(v, "SHELL=")
	}
	if strings.HasPrefix(name, "ATOM_SANDBOX_") || strings.HasPrefix(name, "ATOM_DMM_") || strings.HasPrefix(name, "CORDON_") {
		return true // the guard's own
	}
	return strings.HasPrefix(name, "GIT_CONFIG_KEY_") && executingKey(v)
}

func harmlessValue(name, v string) bool {
	switch {
	case v == "/dev/null":
		return true
	case name == "SSL_CERT_FILE" || name == "NODE_EXTRA_CA_CERTS":
		return strings.HasPrefix(v, "/etc/") || strings.HasPrefix(v, "/usr/")
	case name == "LD_PRELOAD":
		return strings.HasPrefix(v, "/usr/lib/") || strings.HasPrefix(v, "libjemalloc") || strings.HasPrefix(v, "libasan")
	case name == "PYTHONHOME" || name == "PYTHONINSPECT":
		return !strings.HasPrefix(v, "/tmp")
	case name == "ENV" || name == "BASHOPTS" || name == "SHELLOPTS":
		// Programs of many kinds take ENV=production.
		return !strings.ContainsAny(v, "/.$`")
	}
	return false
}

// foreignPath reports whether a search path names a directory that lies
// neither in the workspace nor where the system keeps such things.
func foreignPath(v string) bool {
	for _, d := range strings.Split(v, ":") {
		if strings.HasPrefix(d, "/tmp") || strings.HasPrefix(d, "/dev/shm") || strings.HasPrefix(d, "/var/tmp") || strings.Contains(d, "..") {
			return true
		}
	}
	return false
}

// poisonPath reports whether a PATH names a directory in which programs do
// not usually lie.
func (w *walker) poisonPath(v string) bool {
	for _, d := range strings.Split(v, ":") {
		if d == "" || strings.HasPrefix(d, mUnset) || strings.HasPrefix(d, mUnknown) || strings.HasPrefix(d, mTemp) {
			continue
		}
		d = strings.TrimSuffix(d, "/")
		switch last := d[strings.LastIndexByte(d, '/')+1:]; last {
		case "bin", ".bin", "sbin", "shims", "Scripts", "scripts", "current", mName, "cmd", "tools", "games":
			if strings.HasPrefix(d, "/tmp/") && !w.inTree(val{s: d}) && !strings.HasPrefix(d, "/tmp/agent") || strings.HasPrefix(d, "/dev/shm") {
				return true
			}
			continue
		}
		if strings.HasPrefix(d, "/usr/") || strings.HasPrefix(d, "/opt/") || strings.HasPrefix(d, "/snap/") || strings.HasPrefix(d, "/nix/") {
			continue
		}
		return true
	}
	return false
}
