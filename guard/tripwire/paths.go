package tripwire

import (
	"path"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// credentialStore kills where the content of a store outside the workspace
// is taken or changed. Names only, and what a workspace holds itself (.env),
// block.
func credentialStore(s *scene, i int, e *cordon.Effect) ruling {
	class := at(s.Secret, i)
	if class == "" {
		return pass
	}
	d := ruling{severity: grave, rule: "credential." + slug(class)}
	where := s.path(i, e)
	switch {
	case e.Pattern && wideAim(where):
		d.severity = unsure
	case inside(where, s.Workspace), publicClass(class), e.NoFollow && e.Kind == cordon.Read, e.Kind == cordon.List && !e.Recursive:
		d.severity = certain
	}
	d.detail = "The call would " + strings.ReplaceAll(e.Kind.String(), "_", " ") + " " + named(where) + " (" + printable(class) + ")."
	return d
}

// wideAim: the pattern takes a store as it takes everything else of its
// kind: `.*`, `[!l]*`, or `*.db` somewhere below. What names a part of a store
// is aimed at it: `~/.ssh/*`, `~/.s*h/i*`, `**/id_rsa`.
func wideAim(p string) bool {
	elements := split(p)
	if len(elements) == 0 {
		return true
	}
	last := elements[len(elements)-1]
	if !strings.ContainsAny(last, "*?[") {
		return false // a name that is looked for
	}
	deep := false
	for n, e := range elements[:len(elements)-1] {
		switch {
		case e == "**":
			deep = true
		case secretPath(path.Join(elements[:n+1]...)), strings.ContainsAny(e, "*?[") && !takesAny(e):
			return false
		}
	}
	return takesAny(last) || deep && !slices.ContainsFunc(keyNames, func(k string) bool { return matchElement(last, k) })
}

// keyNames are names that patterns look for through whole trees; what takes
// one of them by a pattern that does not take any name is after keys.
var keyNames = []string{
	"id_rsa", "id_ed25519", "id_ecdsa", ".env", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials",
	".bash_history", "shadow", "x.pem", "x.key", "x.kdbx", "x.p12", "x.pfx", "x.jks",
}

// takesAny: the element takes names of every spelling, but for the first
// letter: "*", ".*", "?*", "[!a]*", ".[^.]*".
func takesAny(e string) bool {
	plain := dropClasses(e)
	return strings.Contains(plain, "*") && strings.Trim(plain, ".?*") == ""
}

// dropClasses takes out "[...]" where it excludes ("[!a]", "[^a]"): a class
// that lists letters may be a name in disguise.
func dropClasses(e string) string {
	for {
		open := strings.Index(e, "[!")
		if open < 0 {
			open = strings.Index(e, "[^")
		}
		if open < 0 {
			return e
		}
		end := strings.IndexByte(e[open:], ']')
		if end < 0 {
			return e
		}
		e = e[:open] + e[open+end+1:]
	}
}

// publicClass: the file scope guards these too, but they open no door.
func publicClass(class string) bool {
	class = strings.ToLower(class)
	for _, word := range []string{"public", "known_hosts", "known hosts", "history", "passwd", "account"} {
		if strings.Contains(class, word) {
			return true
		}
	}
	return false
}

// slug makes a rule's name of a class: "SSH key" is "ssh_key".
func slug(class string) string {
	out := make([]byte, 0, len(class))
	for _, c := range []byte(strings.ToLower(class)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			out = append(out, c)
		case len(out) > 0 && out[len(out)-1] != '_':
			out = append(out, '_')
		}
	}
	return strings.TrimRight(string(out), "_")
}

func printable(class string) string { return strings.ReplaceAll(slug(class), "_", " ") }

// systemDirs are the directories whose loss breaks a machine.
var systemDirs = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc",
	"/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var",
	"/usr/bin", "/usr/include", "/usr/lib", "/usr/lib64", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share",
	"/var/lib", "/var/log", "/var/spool", "/var/lib/docker", "/var/lib/dpkg",
	"/Applications", "/Library", "/System", "/Users", "/Volumes", "/private",
}

func recursiveDelete(s *scene, i int, e *cordon.Effect) ruling {
	if e.Op == "empty" {
		return pass // rmdir and `find -empty` take what holds nothing
	}
	p := s.path(i, e)
	whole := e.Recursive || e.Pattern && strings.Contains(p, "**")
	if !whole && !e.Pattern {
		return pass
	}
	d := ruling{severity: grave}
	what, content := s.wiped(p, e.Pattern)
	switch {
	case what == "":
		return pass
	case what == "the workspace" && (content || e.Op == "move" && e.Pattern):
		if e.Op == "move" {
			return pass // they are still there
		}
		d.severity = wipeOfWorkspace(p, whole)
		if d.severity == harmless {
			return pass
		}
	case !whole, e.Op == "move":
		d.severity = certain // `rm ~/*` takes the files and leaves the trees
	}
	d.detail = "The call would delete " + what + " (" + named(p) + ")."
	return d
}

// wipeOfWorkspace: `rm -rf *` leaves .git, from which the rest comes back;
// what takes the hidden names as well does not. `rm *` is ordinary enough.
func wipeOfWorkspace(p string, whole bool) severity {
	last := path.Base(p)
	switch {
	case !whole:
		return harmless
	case strings.HasPrefix(last, ".") || strings.Contains(last, "**"):
		return certain
	}
	return unsure
}

func recursiveMode(s *scene, i int, e *cordon.Effect) ruling {
	if !e.Recursive || e.Op != "chmod" {
		return pass
	}
	p := s.path(i, e)
	what, content := s.wiped(p, e.Pattern)
	if what == "" || what == "the workspace" && (content || sameOrBelow(p, s.Workspace)) {
		return pass
	}
	return ruling{severity: grave, detail: "The call would change the modes of " + what + " (" + named(p) + ")."}
}

// wiped says what a deletion of p and all below takes: a home, a system
// directory, the workspace or what stands above it. content: all names
// below it and not the directory itself.
func (s *scene) wiped(p string, pattern bool) (what string, content bool) {
	if !strings.HasPrefix(p, "/") {
		return "", false
	}
	var elements []string
	if pattern {
		if elements = split(p); len(elements) > 64 {
			return "", false // longer than any directory that is looked for
		}
	}
	hit := func(dir string) bool {
		if dir == "" {
			return false
		}
		if !pattern {
			return p == "/" || sameOrBelow(dir, p)
		}
		names := split(dir)
		content = !covers(elements, names, false)
		return !content || covers(elements, names, true)
	}
	if !pattern && inside(p, s.Workspace) {
		return "", false
	}
	// The workspace comes last: it may lie in a home, and "the home" says
	// more. A home that is itself within the workspace is the workspace's.
	if !sameOrBelow(s.Home, s.Workspace) && hit(s.Home) {
		return "the home directory", content
	}
	if isHome(p) {
		return "a home directory", false
	}
	for _, dir := range systemDirs {
		if hit(dir) {
			return "a system directory", content
		}
	}
	if hit(s.Workspace) {
		return "the workspace", content
	}
	return "", false
}

// isHome: a direct child of where homes are.
func isHome(p string) bool {
	dir, name := path.Split(p)
	return name != "" && (dir == "/home/" || dir == "/Users/")
}

// covers reports whether the pattern may match the directory d or one above
// it, or, with content, every name directly or further below d. Work is
// bounded by the product of their lengths.
func covers(p, d []string, content bool) bool {
	// rest[j] answers for the elements of p after the current one and d[j:].
	rest := make([]bool, len(d)+1)
	for j := range rest {
		rest[j] = true
	}
	allBelow := true // the elements of p after the current one take all names
	for i := len(p) - 1; i >= 0; i-- {
		now := make([]bool, len(d)+1)
		allBelow = allBelow && matchesAll(p[i])
		now[len(d)] = content && allBelow
		for j := len(d) - 1; j >= 0; j-- {
			if p[i] == "**" { // takes no element, or one more
				now[j] = rest[j] || now[j+1]
			} else {
				now[j] = rest[j+1] && matchElement(p[i], d[j])
			}
		}
		rest = now
	}
	return rest[0]
}

func matchElement(pattern, name string) bool {
	if pattern == name {
		return true
	}
	ok, err := path.Match(pattern, name)
	return ok || err != nil // a pattern that cannot be read may match
}

// matchesAll: "*", "**", "?*", ".*", ".[!.]*", "*.*" take (nearly) all names.
func matchesAll(e string) bool {
	switch e {
	case ".[!.]*", ".[^.]*", "*.*":
		return true
	}
	// "*." takes names that end in a dot, and hardly one does.
	return strings.Contains(e, "*") && strings.Trim(e, ".?*") == "" && e[len(e)-1] != '.'
}

// path is the absolute path that the effect means; a pattern keeps its
// elements. It falls back to what is written where nothing was resolved.
func (s *scene) path(i int, e *cordon.Effect) string {
	resolved := at(s.Resolved, i)
	if resolved != "" && (!e.Pattern || strings.ContainsAny(resolved, "*?[")) {
		return path.Clean(resolved)
	}
	if resolved != "" { // the directory was resolved, the pattern stands in Target
		elements := split(e.Target)
		if first := slices.IndexFunc(elements, func(x string) bool { return strings.ContainsAny(x, "*?[") }); first >= 0 {
			return path.Join(resolved, path.Join(elements[first:]...))
		}
	}
	return s.written(e)
}

func (s *scene) written(e *cordon.Effect) string {
	t := e.Target
	if !e.Expanded {
		for _, home := range [...]string{"~", "$HOME", "${HOME}"} {
			if rest, ok := strings.CutPrefix(t, home); ok && (rest == "" || rest[0] == '/') {
				t = s.Home + rest
				break
			}
		}
	}
	if !strings.HasPrefix(t, "/") {
		dir := e.Dir
		if dir == "" {
			dir = s.Workspace
		}
		t = dir + "/" + t
	}
	return path.Clean(t)
}

func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// sameOrBelow: both are absolute and clean; an empty dir holds nothing.
func sameOrBelow(p, dir string) bool {
	return dir != "" && (p == dir || inside(p, dir))
}

func inside(p, dir string) bool {
	dir = strings.TrimRight(dir, "/")
	return dir != "" && len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

var devices = []string{"sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "md", "mapper/", "disk", "rdisk", "loop", "mem", "kmem", "port"}

func diskWrite(s *scene, i int, e *cordon.Effect) ruling {
	name, ok := strings.CutPrefix(s.path(i, e), "/dev/")
	if !ok || !slices.ContainsFunc(devices, func(d string) bool { return strings.HasPrefix(name, d) }) {
		return pass
	}
	return ruling{severity: grave, detail: "The call would write to the device " + named("/dev/"+name) + "."}
}

// ownFiles guards what Cordon itself keeps. The sandbox keeps it out of
// reach; this is for tools that run outside one.
func ownFiles(s *scene, i int, e *cordon.Effect) ruling {
	p := s.path(i, e)
	if !strings.Contains(p, "cordon") {
		return pass
	}
	base := path.Base(p)
	own := base == "cordon.yaml" || base == "cordon.yml"
	for _, dir := range [...]string{"/.config/cordon", "/.local/state/cordon", "/.local/share/cordon", "/etc/cordon", "/var/lib/cordon"} {
		if _, rest, ok := strings.Cut(p, dir); ok {
			own = own || rest == "" || rest[0] == '/'
		}
	}
	if !own {
		return pass
	}
	return ruling{severity: certain, detail: "The call would change Cordon's own file " + named(p) + "."}
}

// agentFiles are settings by which an agent or editor runs code or widens
// its own rights, as the end of a path.
var agentFiles = []string{
	"/.claude/settings.json", "/.claude/settings.local.json", "/.claude.json", "/.mcp.json",
	"/.cursor/mcp.json", "/.cursor/hooks.json", "/.cursor/cli.json", "/.cursor/permissions.json",
	"/.codex/config.toml", "/.codex/hooks.json", "/.gemini/settings.json",
	"/.vscode/settings.json", "/.vscode/tasks.json", "/.vscode/launch.json", "/.vscode/mcp.json",
	"/.windsurf/mcp_config.json", "/.codeium/windsurf/mcp_config.json", "/claude_desktop_config.json",
}

var agentDirs = []string{"/.claude/hooks", "/.claude", "/.codex", "/.gemini", "/.cursor"}

func agentSettings(s *scene, i int, e *cordon.Effect) ruling {
	p := s.path(i, e)
	if !strings.Contains(p, "/.") && !strings.HasSuffix(p, ".json") {
		return pass // no name below looks like it, and most paths end here
	}
	// Some file systems take the names in any case.
	p = strings.ToLower(p)
	hit := slices.ContainsFunc(agentFiles, func(f string) bool { return strings.HasSuffix(p, f) }) ||
		strings.Contains(p, "/.claude/hooks/")
	if e.Kind == cordon.Delete && !hit {
		hit = slices.ContainsFunc(agentDirs, func(f string) bool { return strings.HasSuffix(p, f) })
	}
	if !hit {
		return pass
	}
	return ruling{severity: certain, detail: "The call would change the agent's own settings in " + named(p) + "."}
}

// startups are files that make code run later, by how their path ends or,
// with a slash at the end, by a directory in it. A workspace may hold its
// own copies of those that count only in a home or in the system.
var startups = []struct {
	path     string
	rule     string
	severity severity
	anywhere bool
}{
	{"/.bashrc", "persistence.shell_rc", certain, false},
	{"/.bash_profile", "persistence.shell_rc", certain, false},
	{"/.bash_login", "persistence.shell_rc", certain, false},
	{"/.bash_logout", "persistence.shell_rc", certain, false},
	{"/.profile", "persistence.shell_rc", certain, false},
	{"/.zshrc", "persistence.shell_rc", certain, false},
	{"/.zshenv", "persistence.shell_rc", certain, false},
	{"/.zprofile", "persistence.shell_rc", certain, false},
	{"/.zlogin", "persistence.shell_rc", certain, false},
	{"/fish/config.fish", "persistence.shell_rc", certain, false},
	{"/etc/profile", "persistence.shell_rc", certain, false},
	{"/etc/profile.d/", "persistence.shell_rc", certain, false},
	{"/etc/bash.bashrc", "persistence.shell_rc", certain, false},
	{"/.ssh/authorized_keys", "persistence.authorized_keys", grave, false},
	{"/.ssh/authorized_keys2", "persistence.authorized_keys", grave, false},
	{"/.ssh/rc", "persistence.authorized_keys", grave, false},
	{"/.ssh/config", "persistence.startup_file", certain, false},
	{"/etc/crontab", "persistence.cron", grave, false},
	{"/etc/cron.d/", "persistence.cron", grave, false},
	{"/etc/cron.hourly/", "persistence.cron", grave, false},
	{"/etc/cron.daily/", "persistence.cron", grave, false},
	{"/var/spool/cron/", "persistence.cron", grave, false},
	{"/etc/systemd/", "persistence.service", grave, false},
	{"/.config/systemd/", "persistence.service", grave, false},
	{"/Library/LaunchAgents/", "persistence.service", grave, false},
	{"/Library/LaunchDaemons/", "persistence.service", grave, false},
	{"/etc/rc.local", "persistence.service", grave, false},
	{"/etc/ld.so.preload", "persistence.service", grave, false},
	{"/.config/autostart/", "persistence.autostart", certain, false},
	{"/.gitconfig", "persistence.git_config", certain, false},
	{"/.config/git/config", "persistence.git_config", certain, false},
	{"/.git/config", "persistence.git_config", certain, true},
	{"/.git/hooks/", "persistence.git_hook", certain, true},
	{"/usercustomize.py", "persistence.startup_file", certain, false},
	{"/sitecustomize.py", "persistence.startup_file", certain, false},
	{"/.vimrc", "persistence.startup_file", certain, false},
	{"/.pythonrc", "persistence.startup_file", certain, false},
	{"/.npmrc", "persistence.startup_file", certain, false},
}

// startupFile finds by its path what a plain file tool does not call
// persistence. It reports under the rule of the operation.
func startupFile(s *scene, i int, e *cordon.Effect) ruling {
	p := s.path(i, e)
	own := inside(p, s.Workspace) && !sameOrBelow(s.Home, s.Workspace)
	if own && !strings.Contains(p, "/.git/") {
		return pass // of those that count anywhere, all are git's
	}
	for k := range startups {
		f := &startups[k]
		if own && !f.anywhere {
			continue
		}
		if f.path[len(f.path)-1] == '/' && strings.Contains(p, f.path) || strings.HasSuffix(p, f.path) {
			return ruling{severity: f.severity, rule: f.rule, detail: "The call would write " + named(p) + ", which makes code run later."}
		}
	}
	return pass
}

// secretPath tells by its name a path that holds a credential, for data
// that leaves where nobody resolved it.
func secretPath(p string) bool {
	elements := split(strings.ToLower(p))
	if len(elements) == 0 {
		return false
	}
	base := elements[len(elements)-1]
	if strings.HasSuffix(base, ".pub") || base == "known_hosts" {
		return false
	}
	for n, e := range elements {
		switch e {
		case ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf",
			".git-credentials", ".vault-token", ".env", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa":
			return true
		case "gcloud", "gh":
			if n > 0 && elements[n-1] == ".config" {
				return true
			}
		case "config.json":
			if n > 0 && elements[n-1] == ".docker" {
				return true
			}
		case "shadow", "gshadow", "sudoers":
			if n > 0 && elements[n-1] == "etc" {
				return true
			}
		case "environ":
			if n > 1 && elements[n-2] == "proc" {
				return true
			}
		}
	}
	if rest, ok := strings.CutPrefix(base, ".env."); ok {
		return !slices.Contains([]string{"example", "sample", "template", "dist", "defaults"}, rest)
	}
	return strings.HasSuffix(base, "_history") && strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".kdbx")
}
