package shell

import (
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// key is the name under which a path is remembered; empty if not known well
// enough.
func (w *walker) key(v val) string {
	s := v.s
	if strings.HasPrefix(s, mTemp) {
		return path.Clean(s)
	}
	if s == "" || hasMark(s) {
		return ""
	}
	if s[0] != '/' {
		d := w.dir()
		if !d.known() {
			return "?/" + path.Clean(s)
		}
		s = d.s + "/" + s
	}
	return path.Clean(s)
}

// store remembers what the text itself writes to a path.
func (w *walker) store(key string, v val, add bool) {
	if key == "" {
		return
	}
	if w.files == nil {
		w.files = make(map[string]val)
	}
	if add {
		if old, ok := w.files[key]; ok {
			v = join(old, v)
		}
	}
	if len(w.files) < 1024 {
		w.files[key] = v
	}
}

func (w *walker) storeAt(p, v val, add bool) { w.store(w.key(p), v, add) }

// written gives what the text wrote to a path before.
func (w *walker) written(p val) (val, bool) {
	k := w.key(p)
	if k == "" || w.files == nil {
		return val{}, false
	}
	v, ok := w.files[k]
	return v, ok
}

// content is what reading a path gives.
func (w *walker) content(p val) val {
	switch p.s {
	case "-", "/dev/null":
		return val{}
	}
	if v, ok := w.written(p); ok {
		v.data = union(v.data, p.data)
		return v
	}
	t, _ := globTarget(p.s)
	return val{s: mFile, data: union(p.data, []string{t}), taint: tFile}
}

// secretWords are names under which credentials lie. They decide only whether
// a path with an unknown beginning is worth an effect; the guard has the full
// table.
var secretWords = [...]string{
	".ssh", ".aws", ".gnupg", ".netrc", ".npmrc", ".pypirc", ".kube", ".docker/config", ".git-credentials", ".pgpass",
	"id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "credentials", "/etc/shadow", "/etc/passwd", "/etc/sudoers", "environ",
	"_history", ".env", ".vault-token", ".bashrc", ".zshrc", ".profile", ".bash_profile", "authorized_keys", ".config/gh",
	".config/gcloud", ".cargo/credentials", ".boto", ".s3cfg", ".my.cnf", "secrets", ".claude", ".mcp.json", ".git/hooks", ".git/config",
}

func looksSecret(s string) bool {
	for _, x := range secretWords {
		if strings.Contains(s, x) {
			return true
		}
	}
	return false
}

// pathEffect emits an effect on a path operand. Operands of which nothing is
// known are left out for harmless kinds.
func (w *walker) pathEffect(e cordon.Effect, v val) {
	s := v.s
	if s == "" || s == "-" && e.Kind == cordon.Read {
		return
	}
	s = w.followLinks(s)
	if strings.HasPrefix(s, mTemp) {
		if !strings.Contains(s, "..") {
			return
		}
		s = mUnknown + s[markLen:]
	}
	grave := e.Kind == cordon.Write || e.Kind == cordon.Delete
	if e.Kind == cordon.Delete && strings.Contains(s, mSome) {
		e.Doubtful = true // a few of the files, and not all that is below
	}
	if i := strings.Index(s, mTemp); i > 0 && strings.HasSuffix(s[:i], "/") {
		s = s[i:]
	}
	if startsUnknown(s) {
		rest := dropMarks(s)
		switch {
		case strings.Contains(s, mDecoded) || strings.Contains(s, mNet):
			w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: v.origin(), Doubtful: true, Reason: "a path that is only known once it was decoded"})
		case !grave && !looksSecret(rest):
			return
		}
		absolute := strings.HasPrefix(rest, "/")
		if absolute && looksSecret(rest) {
			// Nothing may stand before it.
			doubtful := e
			doubtful.Doubtful = true
			w.plainPath(doubtful, val{s: rest})
		} else if strings.HasPrefix(s, mUnset) && rest != "" && !absolute {
			// Taken as empty, as an unset variable is.
			w.plainPath(e, val{s: rest})
		}
		e.Doubtful = true
	} else if strings.HasPrefix(s, mName) || strings.HasPrefix(s, mPath) {
		if !grave && !looksSecret(dropMarks(s)) && !w.elsewhere() {
			return
		}
	} else if strings.Contains(s, mUnset) && !grave {
		w.plainPath(e, val{s: strings.ReplaceAll(s, mUnset, "")})
		return
	}
	w.plainPath(e, val{s: s})
}

// elsewhere reports whether the working directory is known to lie outside
// the workspace.
func (w *walker) elsewhere() bool {
	d := w.dir()
	return d.known() && strings.HasPrefix(d.s, "/") && !w.inside(d)
}

func (w *walker) plainPath(e cordon.Effect, v val) {
	e.Target, e.Pattern = globTarget(v.s)
	if strings.HasPrefix(e.Target, "/dev/fd/") {
		return
	}
	e.Expanded = e.Target == "" || e.Target[0] != '~' || w.env.Home != ""
	if !strings.HasPrefix(e.Target, "/") && e.Expanded {
		d := w.dir()
		switch {
		case startsUnknown(v.s):
			// It may begin anywhere: no directory is named.
		case d.known():
			e.Dir = d.s
		case strings.HasPrefix(d.s, mTemp) && !strings.Contains(e.Target, ".."):
			return
		case e.Kind == cordon.Write || e.Kind == cordon.Delete || looksSecret(e.Target) || strings.Contains(e.Target, ".."):
			if startsUnknown(d.s) || strings.Contains(e.Target, "..") {
				e.Doubtful = true
			}
			t, _ := globTarget(d.s)
			e.Target, e.Pattern = t+"/"+escapeGlob(e.Target, e.Pattern), true
			e.Dir = w.env.Dir
		default:
			return
		}
	}
	w.emit(e)
	if folded := foldPath(e.Target); folded != e.Target {
		e.Target = folded
		e.Doubtful = true
		w.emit(e)
	}
}

func escapeGlob(s string, already bool) string {
	if already || !strings.ContainsAny(s, `*?[\`) {
		return s
	}
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}

// followLinks replaces a leading part of the path that is a link made by the
// text itself.
func (w *walker) followLinks(s string) string {
	if len(w.links) == 0 || hasMark(s) {
		return s
	}
	for range 8 {
		k := w.key(val{s: s})
		hit := false
		for end := len(k); end > 0; end = strings.LastIndexByte(k[:end], '/') {
			p := k[:end]
			if t, ok := w.links[p]; ok && t != p {
				s, hit = t+k[len(p):], true
				break
			}
		}
		if !hit {
			return s
		}
	}
	return s
}

func (w *walker) reads(v val) {
	if w.files == nil && w.links == nil && strings.Contains(v.s, mGlob) && w.inTree(val{s: path.Dir(dropMarks(v.s))}) {
		// What is there, rather than what might be.
		if got := w.glob(v); got != nil && len(got) <= maxIterations {
			for _, g := range got {
				w.pathEffect(cordon.Effect{Kind: cordon.Read}, g)
			}
			return
		}
	}
	w.pathEffect(cordon.Effect{Kind: cordon.Read}, v)
}

func (w *walker) lists(v val, rec bool) {
	w.pathEffect(cordon.Effect{Kind: cordon.List, Recursive: rec}, v)
}

func (w *walker) readsAll(v val) {
	w.pathEffect(cordon.Effect{Kind: cordon.Read, Recursive: true}, v)
}

func (w *walker) deletes(v val, rec bool) {
	if rest, ok := strings.CutPrefix(v.s, mTemp); ok && rec && len(v.data) > 0 && (rest == "/" || rest == "/"+mGlob+"*") {
		// TMPDIR and its like may be unset.
		w.emit(cordon.Effect{Kind: cordon.Delete, Target: "/", Recursive: true, Expanded: true, Doubtful: true})
	}
	e := cordon.Effect{Kind: cordon.Delete, Recursive: rec, NoFollow: !strings.HasSuffix(v.s, "/")}
	w.pathEffect(e, v)
	if k := w.key(v); k != "" && w.files != nil {
		delete(w.files, k)
	}
}

// somePath is any path of the kind that stands in s: below the same root, or
// one of those that a test has narrowed.
func somePath(s string) string {
	root := ""
	if i := strings.Index(s, "/"+mPath); i >= 0 {
		root = s[strings.LastIndexByte(s[:i], '\n')+1 : i+1]
	}
	if strings.Contains(s, mSome) {
		return root + mPath + mSome
	}
	return root + mPath
}

// deletesEmpty is for what goes only where it holds nothing.
func (w *walker) deletesEmpty(v val) {
	w.pathEffect(cordon.Effect{Kind: cordon.Delete, Op: "empty", NoFollow: true}, v)
}

// writes emits the write and, for the files that make code run later, what
// that is.
func (w *walker) writes(v val, op string) {
	if strings.HasPrefix(v.s, "/dev/") && harmlessDevice(v.s) {
		return
	}
	if strings.HasPrefix(v.s, "/dev/") && disk(v.s) {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "disk", Target: dropMarks(v.s)})
	}
	w.pathEffect(cordon.Effect{Kind: cordon.Write, Op: op, NoFollow: op == "link"}, v)
	if op == "truncate" && strings.HasSuffix(v.s, "_history") {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "history", Target: v.s})
	}
	w.persists(v)
}

func harmlessDevice(s string) bool {
	switch s {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "/dev/stdin":
		return true
	}
	return strings.HasPrefix(s, "/dev/fd/") || strings.HasPrefix(s, "/dev/shm/") || strings.HasPrefix(s, "/dev/pts/")
}

func disk(s string) bool {
	for _, p := range [...]string{"sd", "hd", "vd", "xvd", "nvme", "mmcblk", "loop", "dm-", "mapper/", "disk", "md", "mem", "kmem", "port", "sr", "rdisk"} {
		if strings.HasPrefix(s, "/dev/"+p) {
			return true
		}
	}
	return false
}

// startFiles are path suffixes and fragments of files that run by themselves.
var startFiles = [...]struct{ frag, op string }{
	{"/.bashrc", "shell_rc"}, {"/.bash_profile", "shell_rc"}, {"/.bash_login", "shell_rc"}, {"/.bash_logout", "shell_rc"},
	{"/.profile", "shell_rc"}, {"/.zshrc", "shell_rc"}, {"/.zshenv", "shell_rc"}, {"/.zprofile", "shell_rc"}, {"/.zlogin", "shell_rc"},
	{"/.kshrc", "shell_rc"}, {"/.cshrc", "shell_rc"}, {"/.tcshrc", "shell_rc"}, {"/.config/fish/", "shell_rc"}, {"/etc/profile", "shell_rc"},
	{"/etc/bash.bashrc", "shell_rc"}, {"/etc/environment", "shell_rc"}, {"/etc/zsh", "shell_rc"},
	{"/.ssh/authorized_keys", "authorized_keys"}, {"/.ssh/rc", "startup_file"}, {"/.ssh/config", "startup_file"},
	{"/etc/cron", "cron"}, {"/var/spool/cron", "cron"}, {"/etc/anacrontab", "cron"},
	{"/systemd/system/", "service"}, {"/systemd/user/", "service"}, {"/etc/init.d/", "service"}, {"/etc/rc.local", "service"},
	{"/LaunchAgents/", "service"}, {"/LaunchDaemons/", "service"}, {"/autostart/", "autostart"}, {"/.xinitrc", "autostart"},
	{"/.xprofile", "autostart"}, {"/.xsession", "autostart"}, {"/.vimrc", "startup_file"}, {"/.pythonrc", "startup_file"},
	{"/.gitconfig", "git_config"}, {"/.config/git/", "git_config"}, {"/etc/ld.so.preload", "startup_file"}, {"/.inputrc", "startup_file"},
	{"/etc/update-motd.d/", "startup_file"}, {"/etc/profile.d/", "shell_rc"}, {"/etc/sudoers", "startup_file"}, {"/.pam_environment", "startup_file"},
	{"/.git/hooks/", "git_hook"}, {"/.git/config", "git_config"},
	{"/.claude/settings", "agent_settings"}, {"/.mcp.json", "agent_settings"}, {"/.cursor/mcp.json", "agent_settings"},
	{"/.codex/config", "agent_settings"}, {"/.gemini/settings", "agent_settings"}, {"/.claude.json", "agent_settings"},
}

func (w *walker) persists(v val) {
	k := w.key(v)
	if k == "" || k[0] != '/' && k[0] != '?' {
		return
	}
	for _, f := range &startFiles {
		if i := strings.Index(k, f.frag); i >= 0 && !strings.HasSuffix(k, ".sample") {
			w.emit(cordon.Effect{Kind: cordon.Persist, Op: f.op, Target: k})
			return
		}
	}
}

// hostText is a host as it will be used, with holes shown as "*".
func (w *walker) hostText(v val) string {
	t, _ := globTarget(v.s)
	return strings.ReplaceAll(t, "**", "*")
}

// connectPipe notes a connection for the pipeline it stands in.
func (w *walker) connectPipe(addr, op string) {
	if w.pipe != nil {
		w.pipe.remote, w.pipe.op = addr, op
	}
}

// secretName reports whether an environment variable's name says that it
// holds a credential.
func secretName(n string) bool {
	n = strings.ToUpper(n)
	for _, x := range [...]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL", "_PAT", "SSH_KEY", "AUTH_KEY", "ENCRYPTION_KEY", "SIGNING_KEY", "DATABASE_URL", "_DSN", "PGPASS", "MYSQL_PWD"} {
		if strings.Contains(n, x) {
			return true
		}
	}
	return strings.HasSuffix(n, "_KEY") || n == "KEY"
}

// tells notes that variables' values leave the shell in a command's words.
func (w *walker) tells(data []string) {
	for _, d := range data {
		if len(d) > 1 && d[0] == '$' && secretName(d[1:]) {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: d[1:]})
		}
	}
}
