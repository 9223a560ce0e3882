package python

import (
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Paths are text in which a hole stands for what is not known.

func (a *analysis) home() string {
	if a.env.Home == "" {
		return hole
	}
	return a.env.Home
}

// joinPath is os.path.join of two parts.
func joinPath(x, y string) string {
	switch {
	case strings.HasPrefix(y, "/"):
		return y
	case x == "" || x == ".":
		return y
	case y == "":
		return x
	}
	return squeezePath(strings.TrimSuffix(x, "/") + "/" + y)
}

// squeezePath keeps computed paths from growing without end in loops.
func squeezePath(s string) string {
	s = squeeze(s)
	for strings.Contains(s, hole+"/"+hole) {
		s = strings.ReplaceAll(s, hole+"/"+hole, hole)
	}
	if len(s) > 8192 {
		return hole
	}
	return s
}

func normalise(s string) string {
	if s == "" {
		return "."
	}
	return path.Clean(s)
}

func dirname(s string) string {
	i := strings.LastIndexByte(s, '/')
	switch {
	case i < 0 && hasHole(s):
		return hole
	case i < 0:
		return ""
	case i == 0:
		return "/"
	}
	return s[:i]
}

func basename(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// textFn folds a function of one text.
func textFn(f func(string) string) pure {
	return func(_ *analysis, c *call) (set, bool) {
		if len(c.args) == 0 {
			return set{}, false
		}
		return product(c.args[:1], func(v []value) (value, bool) {
			k := v[0].k
			if k == vPath {
				k = vStr
			}
			return value{k: k, s: f(v[0].s)}, v[0].s != hole && v[0].k <= vPath && v[0].k >= vStr
		})
	}
}

func fspath(_ *analysis, c *call) (set, bool) {
	return textFn(func(s string) string { return s })(nil, c)
}

func pathJoin(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	args := c.args
	if c.unknownArgs {
		args = append(args[:len(args):len(args)], unknown)
	}
	s, ok := product(args, func(v []value) (value, bool) {
		out := ""
		for i, x := range v {
			if i == 0 {
				out = pathText(x)
			} else {
				out = joinPath(out, pathText(x))
			}
		}
		return value{k: vStr, s: out}, true
	})
	return s, ok
}

// pathText is a value as part of a path.
func pathText(v value) string {
	switch v.k {
	case vStr, vPath, vBytes:
		return v.s
	}
	return hole
}

func newPath(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 && !c.unknownArgs {
		return one(value{k: vPath, s: "."}), true
	}
	s, ok := pathJoin(a, c)
	if !ok {
		return one(value{k: vPath, s: hole}).with(c.args...), true
	}
	return toPaths(s), true
}

func toPaths(s set) set {
	out := set{t: s.t, src: s.src}
	for _, v := range s.vs {
		out = join(out, one(value{k: vPath, s: pathText(v)}))
	}
	if s.unk || len(s.vs) == 0 {
		out = join(out, one(value{k: vPath, s: hole}))
	}
	return out
}

// expandTilde is os.path.expanduser.
func (a *analysis) expandTilde(s string) string {
	if !strings.HasPrefix(s, "~") {
		return s
	}
	user, rest, slash := strings.Cut(s[1:], "/")
	base := a.home()
	switch {
	case user == "" || user == a.env.User:
	case user == "root":
		base = "/root"
	case hasHole(user):
		base = hole
	default:
		base = "/home/" + user
	}
	if slash {
		return base + "/" + rest
	}
	return base
}

func expanduser(a *analysis, c *call) (set, bool) { return textFn(a.expandTilde)(a, c) }

// expandvars is os.path.expandvars; each variable is read.
func expandvars(a *analysis, c *call) (set, bool) {
	return textFn(func(s string) string {
		out := s
		for _, n := range dollarNames(s) {
			v := a.variable(n)
			out = strings.ReplaceAll(strings.ReplaceAll(out, "${"+n+"}", v), "$"+n, v)
		}
		return out
	})(a, c)
}

// dollarNames are the variables in "$NAME and ${NAME}".
func dollarNames(s string) (names []string) {
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 >= len(s) {
			return names
		}
		s = s[i+1:]
		s = strings.TrimPrefix(s, "{")
		n := 0
		for n < len(s) && (s[n] == '_' || s[n] >= '0' && s[n] <= '9' || s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z') {
			n++
		}
		if n > 0 {
			names = append(names, s[:n])
		}
		s = s[n:]
	}
}

func abspath(a *analysis, c *call) (set, bool) {
	return textFn(func(s string) string {
		if hasHole(s) && !strings.HasPrefix(s, "/") {
			return s
		}
		return path.Clean(joinPath(a.dirs[0], s))
	})(a, c)
}

// pathAttr is an attribute of a pathlib path.
func (a *analysis) pathAttr(v value, name string) set {
	p := func(s string) set { return one(value{k: vPath, s: s}) }
	switch name {
	case "parent":
		d := dirname(v.s)
		if d == "" {
			d = "."
		}
		return p(d)
	case "parents":
		q := &sequence{kind: '('}
		for d := v.s; len(q.items) < 64; {
			up := dirname(d)
			if up == "" {
				up = "."
			}
			q.items = append(q.items, p(up))
			if up == d || up == "." {
				break
			}
			d = up
		}
		return one(value{k: vSeq, p: q})
	case "name":
		return str(basename(v.s))
	case "stem":
		b := basename(v.s)
		return str(strings.TrimSuffix(b, path.Ext(b)))
	case "suffix":
		return str(path.Ext(v.s))
	case "parts", "drive", "root", "anchor":
		return unknown
	}
	return one(value{k: vSym, s: "pathlib.Path." + name, p: v})
}

// pathMethods are methods that only make other paths.
func (a *analysis) pathMethod(name string, c *call) (set, bool) {
	v := c.recv
	p := func(s string) (set, bool) { return one(value{k: vPath, s: s}), true }
	arg := hole
	if len(c.args) > 0 {
		if x, ok := c.args[0].single(); ok {
			arg = pathText(x)
		}
	}
	switch name {
	case "joinpath":
		d := *c
		d.args = append([]set{one(v)}, c.args...)
		return newPath(a, &d)
	case "expanduser":
		return p(a.expandTilde(v.s))
	case "resolve", "absolute", "readlink":
		if hasHole(v.s) && !strings.HasPrefix(v.s, "/") {
			return p(v.s)
		}
		return p(path.Clean(joinPath(a.dirs[0], v.s)))
	case "with_name":
		return p(joinPath(dirname(v.s), arg))
	case "with_suffix":
		return p(strings.TrimSuffix(v.s, path.Ext(v.s)) + arg)
	case "with_stem":
		return p(joinPath(dirname(v.s), arg+path.Ext(v.s)))
	case "relative_to", "with_segments":
		return p(hole)
	case "as_posix", "__str__", "__fspath__":
		return str(v.s), true
	case "as_uri":
		return str("file://" + v.s), true
	case "exists", "is_file", "is_dir", "is_symlink", "stat", "lstat", "match", "is_absolute", "is_relative_to", "samefile", "is_mount", "owner", "group":
		return unknown, true
	case "home":
		return p(a.home())
	case "cwd":
		return p(a.dirs[0])
	}
	return set{}, false
}

// globbed is what a glob below dir gives.
func globbed(dir, pattern string) string {
	p := joinPath(dir, pattern)
	if i := strings.IndexAny(p, "*?["); i >= 0 {
		rest := p[i:]
		p = p[:i] + hole
		// What stands after the last wildcard is known again.
		if j := strings.LastIndexAny(rest, "*?]"); j >= 0 && !hasHole(rest[j+1:]) {
			p += rest[j+1:]
		}
	}
	return squeezePath(p)
}

// paths gives an effect of the kind for each path that s may be.
func (a *analysis) paths(s set, e cordon.Effect) {
	known := 0
	for _, v := range s.vs {
		switch v.k {
		case vStr, vPath, vBytes:
			known++
		}
	}
	for _, v := range s.vs {
		switch v.k {
		case vStr, vPath, vBytes:
			f := e
			f.Doubtful = e.Doubtful || known > 1 || s.unk
			a.path(v.s, f)
		}
	}
	if s.unk || len(s.vs) == 0 {
		if s.t&decoded != 0 {
			a.opaque("the path of a file is decoded and cannot be told", cordon.OriginUnknown, true)
		}
		a.facts.blindFile = true
	}
}

// path gives an effect on one path. A path that is partly known counts where
// what is known says enough: a directory in front, or the name of a secret at
// the end.
func (a *analysis) path(p string, e cordon.Effect) {
	e.Expanded = true
	if hasHole(p) {
		var ok bool
		if p, ok = a.partial(p); !ok {
			a.facts.blindFile = true
			return
		}
		e.Pattern = true
	}
	if p == "" {
		return
	}
	for _, dir := range a.dirs {
		e.Target, e.Dir = p, dir
		a.emit(e)
		a.persists(p, e)
		if strings.HasPrefix(p, "/") {
			break
		}
	}
	if e.Kind == cordon.Write {
		a.facts.written[basename(p)] = true
		if dir, ok := strings.CutSuffix(p, "/__init__.py"); ok {
			a.facts.written[basename(dir)+".py"] = true
		}
	}
}

// partial turns a path with holes into a pattern; ok is false where it says
// nothing.
func (a *analysis) partial(p string) (pattern string, ok bool) {
	i := strings.Index(p, hole)
	front, last := p[:i], p[strings.LastIndex(p, hole)+len(hole):]
	if secretName(last) {
		return strings.ReplaceAll(p, hole, "*"), true
	}
	dir := front[:strings.LastIndexByte(front, '/')+1]
	clean := strings.TrimPrefix(dir, "./")
	if clean == "" {
		return "", false
	}
	return front + "*", true
}

// secretName: the known end of a path names a credential.
func secretName(s string) bool {
	for _, part := range strings.Split(s, "/") {
		switch part {
		case ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc",
			"id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".env", "shadow", "authorized_keys", ".bash_history", ".zsh_history",
			".python_history", "credentials.json", ".vault-token", "kubeconfig", ".boto", ".s3cfg":
			return true
		}
	}
	return false
}

// secretLiteral: text that looks like the path of a secret, wherever it
// stands. It counts only where some file is opened by a path not known.
func (a *analysis) secretLiteral(s string) bool {
	if strings.IndexByte(s, '/') < 0 {
		return false // a bare ".env" stands in every list of what to skip
	}
	if strings.ContainsAny(s, " \n\t*|()<>") || strings.Contains(s, "://") {
		return false
	}
	switch {
	case s == "/etc/shadow", s == "/etc/sudoers", strings.HasPrefix(s, "/root/."), strings.HasPrefix(s, "/proc/self/environ"), strings.HasPrefix(s, "/run/secrets/"):
		return true
	case strings.HasPrefix(s, "/etc/ssh/ssh_host"):
		return true
	}
	return secretName(s)
}

// persists adds what a write to the file means for later runs.
func (a *analysis) persists(p string, e cordon.Effect) {
	if e.Kind != cordon.Write {
		return
	}
	switch b := basename(p); {
	case b == "sitecustomize.py", b == "usercustomize.py", strings.HasSuffix(b, ".pth") && strings.Contains(p, "site-packages"):
		e.Kind, e.Op, e.Bytes = cordon.Persist, "startup_file", 0
		a.emit(e)
	}
}
