package shell

import "strings"

// handleFind reads find's own language: roots, tests, actions.
func handleFind(w *walker, c *inv) {
	args := c.args
	i := 0
	for i < len(args) && len(args[i].s) > 0 && args[i].s[0] == '-' && (strings.Trim(args[i].s, "-HLP") == "" || strings.HasPrefix(args[i].s, "-O") || args[i].s == "-D") {
		if args[i].s == "-D" {
			i++
		}
		i++
	}
	var roots []val
	for i < len(args) && args[i].s != "" && args[i].s[0] != '-' && args[i].s != "(" && args[i].s != "!" && args[i].s != ")" {
		roots = append(roots, args[i])
		i++
	}
	if len(roots) == 0 {
		roots = []val{{s: "."}}
	}
	f := finder{w: w, c: c, roots: roots}
	f.expr(args[i:])
	for _, r := range roots {
		w.lists(r, true)
	}
	if f.from.s != "" {
		w.reads(f.from)
	}
	c.print(val{s: f.found() + "\n"})
	if f.quiet {
		c.print(val{s: mUnknown, data: c.out.data})
	}
}

type finder struct {
	w       *walker
	c       *inv
	roots   []val
	names   []string // -name and -path patterns
	files   bool     // -type f
	narrow  bool     // some test narrows it down
	quiet   bool
	from    val
	minimum bool // -mindepth 1 or more
}

// found is a path that find finds.
func (f *finder) found() string { return f.foundIn(f.roots[0]) }

func (f *finder) foundIn(root val) string {
	if strings.Contains(root.s, mGlob) {
		root.s = settle(root.s)
	}
	s := strings.TrimSuffix(root.s, "/")
	name := mPath
	if len(f.names) == 1 {
		name = settle(activate(f.names[0]))
		if strings.ContainsRune(name, '/') {
			name = mPath
		} else {
			name = mPath + "/" + name
		}
	}
	if s == "." {
		return name
	}
	return s + "/" + name
}

func (f *finder) expr(args []val) {
	w := f.w
	for i := 0; i < len(args); i++ {
		next := val{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		switch a := args[i].s; a {
		case "-name", "-iname":
			f.names = append(f.names, deactivate(next.s))
			f.narrow = true
			i++
		case "-path", "-wholename", "-ipath", "-iwholename", "-regex", "-iregex", "-lname":
			f.names = append(f.names, deactivate(next.s)+"/")
			f.narrow = true
			i++
		case "-type", "-xtype":
			f.files = f.files || next.s == "f"
			i++
		case "-mindepth":
			f.minimum = next.s != "0"
			i++
		case "-maxdepth", "-mtime", "-mmin", "-atime", "-amin", "-ctime", "-cmin", "-size", "-perm", "-user", "-group", "-uid", "-gid", "-inum", "-links", "-regextype", "-fstype", "-printf", "-used", "-context":
			if a == "-printf" {
				f.quiet = true
			}
			if a != "-maxdepth" && a != "-printf" && a != "-regextype" {
				f.narrow = true
			}
			i++
		case "-newer", "-anewer", "-cnewer", "-samefile":
			w.lists(next, false)
			f.narrow = true
			i++
		case "-files0-from":
			f.from = next
			i++
		case "-fprint", "-fprint0", "-fls":
			w.writes(next, "create")
			i++
		case "-fprintf":
			w.writes(next, "create")
			i += 2
		case "-delete":
			f.removes()
		case "-exec", "-execdir", "-ok", "-okdir":
			i = f.exec(args, i)
		default:
			if strings.HasPrefix(a, "-newer") {
				f.narrow = true
				i++
			}
			if a == "-empty" {
				f.narrow = true
			}
		}
	}
}

func (f *finder) removes() {
	for _, r := range f.roots {
		if f.narrow || f.files || f.minimum {
			f.w.deletes(val{s: f.foundIn(r), data: r.data, taint: r.taint}, false)
			continue
		}
		f.w.deletes(r, true)
	}
}

func (f *finder) exec(args []val, i int) int {
	kind := args[i].s
	j := i + 1
	for j < len(args) && args[j].s != ";" && !(args[j].s == "+" && j > i+1 && strings.Contains(args[j-1].s, "{}")) {
		j++
	}
	cmd := args[i+1 : j]
	if len(cmd) == 0 {
		return j
	}
	for _, r := range f.roots {
		hit := f.foundIn(r)
		if !f.narrow && !f.files && !f.minimum && (r.s == "." || strings.HasPrefix(r.s, "/") || strings.HasPrefix(r.s, "~")) {
			// The root itself is found too.
			f.w.execWith(cmd, r.s, "find "+kind)
		}
		f.w.execWith(cmd, hit, "find "+kind)
	}
	return j
}

// execWith runs words with "{}" replaced.
func (w *walker) execWith(cmd []val, with, via string) {
	words := make([]val, len(cmd))
	for k, v := range cmd {
		if strings.Contains(v.s, "{}") {
			v.s = strings.ReplaceAll(v.s, "{}", with)
		}
		words[k] = v
	}
	w.sub(words, stdio{}, via)
}
