package javascript

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// pathVerb gives the effects of a function on a path.
func (a *analysis) pathVerb(c act, args []set) set {
	s := arg(args, c.arg)
	var out set
	for _, p := range a.paths(s) {
		e := cordon.Effect{Recursive: c.word == "recursive"}
		switch c.verb {
		case "read":
			e.Kind = cordon.Read
		case "stat":
			e.Kind, e.Op, e.NoFollow = cordon.List, "stat", true
			if a.harmlessStat(p) {
				continue
			}
		case "list":
			e.Kind = cordon.List
			a.listOptions(&e, args)
		case "write":
			if c.word == "fresh" && strings.HasPrefix(path.Clean(p), "/tmp/") {
				// A directory of a new name, where such have their place.
				continue
			}
			e.Kind = cordon.Write
			a.writes(&e, p, arg(args, c.arg+1))
		case "append":
			e.Kind, e.Op = cordon.Write, "append"
			a.writes(&e, p, arg(args, c.arg+1))
		case "delete":
			e.Kind, e.NoFollow = cordon.Delete, true
		case "chmod":
			e.Kind, e.Op = cordon.Write, "chmod"
			a.setuid(args)
		case "link":
			e.Kind, e.Op, e.NoFollow = cordon.Write, "link", true
			for _, to := range a.paths(arg(args, c.arg-1)) {
				a.pathEffect(cordon.Effect{Kind: cordon.Read, Dir: a.linkDir(p)}, to)
			}
		case "open":
			e.Kind = openKind(arg(args, c.arg+1))
			if e.Kind == cordon.Write {
				e.Op = "create"
			}
		}
		if opts, ok := arg(args, c.arg+1).single(); ok && opts.k == vObject {
			if b, _ := truth(a.member(one(opts), "recursive")); b {
				e.Recursive = true
			}
		}
		a.pathEffect(e, p)
		if c.verb == "read" || c.verb == "open" {
			out = out.with(set{src: []string{strings.ReplaceAll(p, hole, "*")}, t: file})
		}
	}
	if len(out.src) == 0 && (c.verb == "read" || c.verb == "open") {
		out = set{src: []string{"-"}, t: file}
	}
	if v, ok := a.contentOf(c, s); ok {
		return v
	}
	return out
}

// contentOf is the text of a file that the program wrote itself.
func (a *analysis) contentOf(c act, s set) (set, bool) {
	t, ok := a.pathText(s)
	if c.verb != "read" || !ok || hasHole(t) {
		return set{}, false
	}
	v, ok := a.written[a.absolute(t)]
	v.unk = true
	return v, ok
}

// harmlessStat: asking whether something in reach is there tells nothing.
func (a *analysis) harmlessStat(p string) bool {
	abs := a.absolute(p)
	return hasHole(p) || under(abs, a.env.Workspace) || under(abs, a.env.Dir) || under(abs, "/tmp") || under(abs, "/usr")
}

func under(p, dir string) bool {
	return dir != "" && (p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/"))
}

func (a *analysis) linkDir(p string) string {
	if hasHole(p) {
		return ""
	}
	return path.Dir(a.absolute(p))
}

func (a *analysis) listOptions(e *cordon.Effect, args []set) {
	for _, s := range args[min(1, len(args)):] {
		v, ok := s.single()
		if !ok || v.k != vObject {
			continue
		}
		for _, name := range []string{"cwd", "root"} {
			if t, ok := a.pathText(a.member(s, name)); ok && !hasHole(t) {
				e.Dir = a.absolute(t)
			}
		}
	}
}

// writes notes what a file gets.
func (a *analysis) writes(e *cordon.Effect, p string, content set) {
	if hasHole(p) || len(a.written) > maxItems {
		return
	}
	abs := a.absolute(p)
	if t, ok := content.text(); ok {
		e.Text, e.Bytes = t, int64(len(t))
	}
	if old, ok := a.written[abs]; ok {
		content = join(old, content)
	}
	a.written[abs] = content
}

// setuid notes a mode with the set-user-id or set-group-id bit.
func (a *analysis) setuid(args []set) {
	if len(args) < 2 {
		return
	}
	n, ok := args[1].number()
	if t, isText := args[1].text(); isText {
		n, ok = parseNumber("0o" + strings.TrimPrefix(t, "0o"))
	}
	if ok && int(n)&0o6000 != 0 {
		a.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid"})
	}
}

func openKind(flags set) cordon.Kind {
	t, ok := flags.text()
	if !ok {
		if n, ok := flags.number(); ok && int(n)&3 != 0 {
			return cordon.Write
		}
		if v, ok := flags.single(); ok && v.k == vObject {
			o := v.p.(*object)
			for _, k := range []string{"write", "append", "create", "truncate"} {
				if _, ok := o.props[k]; ok {
					return cordon.Write
				}
			}
		}
		return cordon.Read
	}
	if strings.ContainsAny(t, "wa+") {
		return cordon.Write
	}
	return cordon.Read
}

// paths are the paths that a set can be.
func (a *analysis) paths(s set) []string {
	var out []string
	add := func(p string) {
		if p != "" && p != hole && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, v := range s.vs {
		switch v.k {
		case vStr, vBytes:
			add(strings.TrimPrefix(v.s, "\\\\?\\"))
		case vURL:
			add(fileURL(v.s))
		case vArray:
			for _, i := range v.p.(*array).items {
				for _, p := range a.paths(i) {
					add(p)
				}
			}
		case vObject:
			for _, k := range []string{"file", "filename", "path", "url", "filePath"} {
				if q, ok := v.p.(*object).props[k]; ok {
					for _, p := range a.paths(q.v) {
						add(p)
					}
				}
			}
		}
	}
	return out
}

func (a *analysis) pathText(s set) (string, bool) {
	p := a.paths(s)
	if len(p) != 1 || s.unk {
		return "", false
	}
	return p[0], true
}

// pathEffect completes and emits an effect on a path, with a hole for what of
// it is not known.
func (a *analysis) pathEffect(e cordon.Effect, p string) {
	if strings.HasPrefix(p, ":memory:") || p == "" || p[0] >= '0' && p[0] <= '9' && len(p) == 1 {
		return
	}
	if low := strings.ToLower(p); strings.HasPrefix(low, "file:") {
		// SQLite takes such names; to fs it is a relative path.
		p = fileURL(p)
	}
	if i := strings.Index(p, hole); i >= 0 {
		prefix := p[:i]
		abs := a.absolute(prefix)
		// What starts inside and goes on unknown is ordinary.
		if prefix == "" || !strings.HasPrefix(prefix, "/") && !strings.HasPrefix(prefix, "..") || under(abs, a.env.Workspace) || under(abs, a.env.Dir) || abs == "/" {
			return
		}
		p, e.Pattern = prefix+"*", true
	}
	e.Target, e.Expanded = p, true
	if e.Dir == "" {
		e.Dir = a.dir()
	}
	if hasHole(a.cwd) && !strings.HasPrefix(p, "/") {
		e.Doubtful = true
	}
	a.emit(e)
}

func (a *analysis) absolute(p string) string {
	if strings.HasPrefix(p, "/") {
		return path.Clean(p)
	}
	return path.Clean(a.dir() + "/" + p)
}

// fileURL is the path of a file: address; other text is left alone.
func fileURL(s string) string {
	if len(s) < 5 || !strings.EqualFold(s[:5], "file:") {
		return s
	}
	rest := s[5:]
	if strings.HasPrefix(rest, "//") {
		rest = rest[2:]
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			rest = rest[i:]
		}
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	if u, err := url.PathUnescape(rest); err == nil {
		return u
	}
	return rest
}

// pathCall is a function of node:path over texts.
func (a *analysis) pathCall(name string, args []set) (set, bool) {
	var parts []string
	var from set
	for _, s := range args {
		t := a.texts(s)
		if len(t) != 1 {
			t = []string{hole}
		}
		parts = append(parts, t[0])
		from = from.with(s)
	}
	if len(parts) == 0 {
		parts = []string{""}
	}
	p := parts[0]
	var out string
	switch name {
	case "join":
		out = path.Join(parts...)
		if out == "" {
			out = "."
		}
	case "resolve":
		out = a.dir()
		if hasHole(a.cwd) {
			out = hole
		}
		for _, q := range parts {
			switch {
			case strings.HasPrefix(q, "/"), q == hole:
				out = q
			default:
				out = path.Join(out, q)
			}
		}
	case "normalize":
		out = path.Clean(p)
	case "dirname":
		if i := strings.Index(p, hole); i >= 0 && !strings.Contains(p[i:], "/") {
			out = path.Dir(p)
			break
		}
		out = path.Dir(p)
	case "basename":
		out = path.Base(p)
		if len(parts) > 1 && !hasHole(out) {
			out = strings.TrimSuffix(out, parts[1])
		}
	case "extname":
		if hasHole(p) {
			return unknown, true
		}
		out = path.Ext(p)
	case "toNamespacedPath":
		out = p
	case "format":
		dir, _ := a.member(arg(args, 0), "dir").text()
		base, _ := a.member(arg(args, 0), "base").text()
		out = path.Join(dir, base)
	case "isAbsolute":
		if hasHole(p) {
			return unknown, true
		}
		return boolean(strings.HasPrefix(p, "/")), true
	default:
		return set{}, false
	}
	return str(out).with(from), true
}
