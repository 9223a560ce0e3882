package lower

import (
	"net/url"
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

// pathRole is what a path argument nobody listed suffers.
func (w *walker) pathRole(f frame) toolspec.Role {
	if f.listed && f.role.IsPath() {
		return f.role
	}
	switch base := w.spec.PathRole; {
	case f.dest:
		return toolspec.Write
	case base == toolspec.Write && f.source && w.spec.Copies():
		return toolspec.Read
	default:
		return base
	}
}

// paths lowers a string in a path role: the path as it stands, and where a
// forgiving tool would make something else of it, that too.
func (w *walker) paths(role toolspec.Role, s string, f frame) {
	if len(s) == 0 {
		if role == toolspec.List {
			w.pathAt(role, ".")
		}
		return
	}
	if c := s[0]; (c == '[' || c == '{' || c == '"') && w.unpack(s, f) {
		w.pathAt(role, s)
		return
	}
	w.pathAt(role, s)
	switch {
	case f.many && strings.ContainsAny(s, ",;\n") && !(role == toolspec.ReadGlob && strings.Contains(s, "{")):
		for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ';' || r == '\n' }) {
			part = strings.TrimSpace(part)
			if part != strings.TrimSpace(s) && (pathShape(part) || addressShape(part)) {
				w.pathAt(role, part)
			}
		}
	case strings.Contains(s, ":") && !drive(s) && addressShape(s) && !fileScheme(s):
		w.url(s, false)
	}
}

func fileScheme(s string) bool { return len(s) >= 5 && strings.EqualFold(s[:5], "file:") }

// pathAt emits the effects of one path.
func (w *walker) pathAt(role toolspec.Role, s string) {
	w.path = true
	if w.readsOnly && role == toolspec.Write {
		role = toolspec.Read
	}
	w.pathEffect(role, s)
	if t := strings.TrimSpace(s); t != s && t != "" {
		w.pathEffect(role, t)
	}
	if strings.IndexByte(s, 0) >= 0 {
		w.opaque("malformed: NUL byte in a path", "")
	}
	if len(s) > 2 && (s[0] == '\\' && s[1] == '\\' || fileScheme(s)) {
		w.share(s)
	}
}

func (w *walker) pathEffect(role toolspec.Role, s string) {
	e := cordon.Effect{Target: s}
	switch role {
	case toolspec.Read:
		e.Kind = cordon.Read
	case toolspec.ReadGlob:
		w.readGlob(s)
		return
	case toolspec.List:
		e.Kind, e.Recursive = cordon.List, true
	case toolspec.Delete:
		e.Kind, e.Recursive = cordon.Delete, true
	case toolspec.Move:
		e.Kind = cordon.Read
		w.emit(e)
		e.Kind, e.Recursive = cordon.Delete, true
	default:
		e.Kind = cordon.Write
	}
	w.emit(e)
}

// readGlob emits the reads of what a pattern matches.
func (w *walker) readGlob(s string) {
	for _, p := range alternatives(s) {
		e := cordon.Effect{Kind: cordon.Read, Target: p, Recursive: true}
		if i := strings.IndexAny(p, "*?["); i >= 0 {
			e.Pattern = true
			if climbs(p[i:]) {
				e.Target, e.Pattern = "/", false
			}
		}
		w.emit(e)
	}
}

// share emits the connection that a network path means.
func (w *walker) share(s string) {
	r := readAddress(s)
	for _, a := range r.hosts {
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: a.host, Op: a.scheme})
	}
}

// moveTo changes the directory that relative paths start from.
func (w *walker) moveTo(s string, f frame) {
	if s == "" {
		return
	}
	w.emit(cordon.Effect{Kind: cordon.List, Target: s, Dir: w.env.Dir})
	if strings.IndexByte(s, 0) >= 0 {
		w.opaque("malformed: NUL byte in a path", "")
	}
	dir := absolute(s, w.env)
	if w.cwd != "" && dir != w.cwd {
		w.opaque("malformed: more than one working directory", "")
	}
	w.cwd = dir
	w.cwdIgnored = !f.listed && !w.schema.Declares(lastToken(w.ptr))
}

// ordinary reports a path that a call reads by way of a directory within the
// workspace and stays within, such as "../README.md" from "src". It could
// name something else only for a tool that knows no such directory, and what
// it would name there is no hidden file.
func (w *walker) ordinary(e *cordon.Effect) bool {
	if e.Kind != cordon.Read && e.Kind != cordon.List || strings.ContainsAny(e.Target, "~$%\\:") || e.Pattern {
		return false
	}
	for part := range strings.SplitSeq(e.Target, "/") {
		if len(part) > 1 && part[0] == '.' && part != ".." {
			return false
		}
	}
	ws, home := path.Clean(w.env.Workspace), path.Clean(w.env.Home)
	within := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }
	// A directory that is not there lends as many steps up as it is deep.
	other := path.Join(ws, e.Target)
	up := path.Dir(ws)
	near := up != "/" && within(other, up) || e.Kind == cordon.Read && path.Dir(other) == up || within(ws, home) && within(other, home)
	return near && within(path.Clean(w.cwd), ws) && within(path.Join(w.cwd, e.Target), ws)
}

func lastToken(ptr []byte) string {
	s := string(ptr)
	return s[strings.LastIndexByte(s, '/')+1:]
}

// absolute joins without cleaning: ".." after a link is the kernel's affair.
func absolute(s string, env *Env) string {
	s = strings.TrimSpace(s)
	if fileScheme(s) {
		s = s[5:]
		if rest, ok := strings.CutPrefix(s, "//"); ok {
			s = rest[max(strings.IndexByte(rest, '/'), 0):]
		}
		if u, err := url.PathUnescape(s); err == nil {
			s = u
		}
	}
	for _, home := range [...]string{"~", "$HOME", "${HOME}"} {
		if rest, ok := strings.CutPrefix(s, home); ok && (rest == "" || rest[0] == '/') {
			return env.Home + rest
		}
	}
	if strings.HasPrefix(s, "/") {
		return s
	}
	return strings.TrimRight(env.Dir, "/") + "/" + s
}

// glob lowers a file name pattern: one that leaves the directory it is
// searched in is a search of where it leads.
func (w *walker) glob(s string) {
	if strings.IndexByte(s, 0) >= 0 {
		w.opaque("malformed: NUL byte in a path", "")
	}
	for _, p := range alternatives(s) {
		p = strings.TrimPrefix(strings.TrimSpace(p), "!")
		if q := strings.ReplaceAll(p, `\`, "/"); q != p && climbs(q) {
			w.emit(cordon.Effect{Kind: cordon.List, Target: q[:strings.LastIndex(q, "..")+2], Recursive: true})
		}
		p = onlyChoices.Replace(strings.ReplaceAll(p, `\`, ""))
		if strings.Contains(p, "(/") || strings.Contains(p, "|/") {
			w.emit(cordon.Effect{Kind: cordon.List, Target: "/", Recursive: true})
			continue
		}
		if !pathShape(p) && !climbs(p) || p == "." || strings.HasPrefix(p, "./") && !climbs(p) {
			continue
		}
		prefix := p
		if i := strings.IndexAny(p, "*?[("); i >= 0 {
			prefix = p[:strings.LastIndexByte(p[:i], '/')+1]
		}
		// Past a wildcard ".." climbs from a directory nobody can tell.
		if climbs(p[len(prefix):]) {
			prefix = "/"
		}
		if prefix == "" {
			continue
		}
		w.emit(cordon.Effect{Kind: cordon.List, Target: prefix, Recursive: true})
	}
}

// alternatives expands braces, at most 64 times.
func alternatives(s string) []string {
	out := []string{s}
	for i := 0; i < len(out) && len(out) < 64; {
		open := strings.LastIndexByte(out[i], '{')
		if open < 0 {
			i++
			continue
		}
		end := strings.IndexByte(out[i][open:], '}')
		if end < 0 {
			i++
			continue
		}
		head, body, tail := out[i][:open], out[i][open+1:open+end], out[i][open+end+1:]
		first := true
		for alt := range strings.SplitSeq(body, ",") {
			if first {
				out[i], first = head+alt+tail, false
			} else if len(out) < 64 {
				out = append(out, head+alt+tail)
			}
		}
	}
	return out
}

// onlyChoices are bracket expressions with nothing to choose, which hide what
// a pattern spells.
var onlyChoices = strings.NewReplacer("[.]", ".", "[/]", "/", "[~]", "~")

func climbs(s string) bool {
	return s == ".." || strings.HasPrefix(s, "../") || strings.Contains(s, "/../") || strings.HasSuffix(s, "/..")
}

// plain undoes what some tools undo before they look at a path: look-alike
// separators and percent forms.
func plain(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			s = lookAlikes.Replace(s)
			break
		}
	}
	for range 2 {
		if strings.IndexByte(s, '%') < 0 {
			break
		}
		u, err := url.PathUnescape(s)
		if err != nil {
			break
		}
		s = u
	}
	return s
}

var lookAlikes = strings.NewReplacer("\uff0f", "/", "\u2215", "/", "\u2044", "/", "\u29f8", "/", "\uff3c", `\`, "\uff0e", ".", "\u2024", ".", "\uff5e", "~", "\u200b", "", "\ufeff", "")

func drive(s string) bool {
	return len(s) >= 3 && (s[0]|0x20) >= 'a' && (s[0]|0x20) <= 'z' && s[1] == ':' && (s[2] == '\\' || s[2] == '/')
}

// pathShape reports a string that is a path whatever its name: absolute, from
// a home or variable, explicitly relative, a drive, a share, a file: URL.
func pathShape(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	if s == "" || len(s) > maxPath || strings.IndexByte(s, '\n') >= 0 {
		return false
	}
	s = plain(s)
	if s == "" {
		return false
	}
	switch s[0] {
	case '/':
		return !strings.HasPrefix(s, "//") || !addressShape(s)
	case '~':
		name := s[1:]
		if i := strings.IndexByte(name, '/'); i >= 0 {
			name = name[:i]
		}
		return !strings.ContainsAny(name, " \t=<>~") && (len(name) < len(s)-1 || name == "" || !strings.ContainsAny(name[:1], "0123456789"))
	case '.':
		if s == "." || s == ".." || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || strings.HasPrefix(s, `.\`) || strings.HasPrefix(s, `..\`) {
			return true
		}
	case '\\':
		return len(s) > 2 && s[1] == '\\'
	case '$':
		return len(s) > 1 && (s[1] == '{' || s[1] >= 'A' && s[1] <= 'Z') && strings.IndexByte(s, '/') > 0
	case '%':
		return strings.Count(s, "%") >= 2 && strings.IndexByte(s, '\\') > 0
	}
	if drive(s) || fileScheme(s) {
		return true
	}
	return strings.IndexByte(s, ' ') < 0 && (climbs(s) || strings.Contains(s, `\..\`))
}

// dotFile reports a relative path with a hidden name in it, where most of
// what is worth stealing or replacing in a workspace lies.
func dotFile(s string) bool {
	if len(s) < 2 || len(s) > 256 || strings.ContainsAny(s, " \t\n()") {
		return false
	}
	i := 0
	if s[0] != '.' {
		if i = strings.Index(s, "/.") + 1; i == 0 || i+1 >= len(s) {
			return false
		}
	}
	c := s[i+1] | 0x20
	return c >= 'a' && c <= 'z'
}

// pathLike reports a string that may be a path where the name hints at one.
func pathLike(s string) bool {
	if pathShape(s) {
		return true
	}
	if s == "" || len(s) > maxPath || strings.ContainsAny(s, " \t\n") || strings.Contains(s, "://") {
		return false
	}
	// A backslash before braces is a macro's.
	if strings.ContainsAny(s, `/\`) && !(strings.IndexByte(s, '\\') >= 0 && strings.ContainsAny(s, "{}")) {
		return true
	}
	if strings.IndexByte(s, '@') > 0 {
		return false
	}
	if s[0] == '.' && len(s) > 1 {
		return true
	}
	i := strings.LastIndexByte(s, '.')
	if i <= 0 || i == len(s)-1 || len(s)-i > 9 {
		return false
	}
	for _, c := range []byte(s[i+1:]) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') {
			return false
		}
	}
	c := s[i+1] | 0x20
	return c >= 'a' && c <= 'z'
}

// pathLines reports a list of paths, one a line.
func pathLines(s string) bool {
	if strings.IndexByte(s, '\n') < 0 || len(s) > 64<<10 {
		return false
	}
	any := false
	for line := range strings.SplitSeq(s, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if !pathShape(line) {
			return false
		}
		any = true
	}
	return any
}

// readRole is what happens to a path that stands where an address may.
func (w *walker) readRole() toolspec.Role {
	if !w.spec.Known && w.spec.PathRole != toolspec.List {
		return w.spec.PathRole
	}
	return toolspec.Read
}
