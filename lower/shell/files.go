package shell

import (
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// handleCopy is cp, mv and install.
func handleCopy(w *walker, c *inv) {
	ops := c.ops
	for _, o := range c.opts {
		if o.name == "-m" && setsID(o.v.s) {
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: o.v.s})
		}
		if (o.name == "-o" || o.name == "-g") && o.v.s == "root" {
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: "root", Doubtful: true})
		}
		if o.name == "--strip-program" || o.name == "--use-compress-program" {
			w.sub([]val{o.v}, stdio{}, c.name+" "+o.name)
		}
	}
	dest, hasDest := c.get("-t")
	if c.name == "install" && c.has("-d") {
		for _, v := range ops {
			w.writes(v, "create")
		}
		return
	}
	if !hasDest {
		if len(ops) < 2 {
			for _, v := range ops {
				w.reads(v)
			}
			return
		}
		dest, ops = ops[len(ops)-1], ops[:len(ops)-1]
	}
	move := c.name == "mv"
	var pairs [][2]val
	for _, v := range ops {
		e := cordon.Effect{Kind: cordon.Read, Recursive: move || c.has("-r", "-R", "-a", "--recursive", "--archive")}
		w.pathEffect(e, v)
		c.took(v)
		if move && v.s != "." {
			w.pathEffect(cordon.Effect{Kind: cordon.Delete, Op: "move", Recursive: true, NoFollow: true}, v)
		}
		target := dest
		if hasDest || len(ops) > 1 || strings.HasSuffix(dest.s, "/") || w.isDir(dest) {
			target = val{s: strings.TrimSuffix(dest.s, "/") + "/" + path.Base(dropMarks(v.s)), data: dest.data}
			if hasMark(v.s) && !v.known() {
				target.s = strings.TrimSuffix(dest.s, "/") + "/" + mName
			}
		}
		if target.s != dest.s {
			w.persists(target)
		}
		pairs = append(pairs, [2]val{v, target})
	}
	op := ""
	if move {
		op = "move"
	}
	w.writes(dest, op)
	for _, p := range pairs {
		if body, ok := w.written(p[0]); ok {
			w.storeAt(p[1], body, false)
		} else if p[0].known() && p[1].known() {
			w.copied(p[0], p[1])
		}
	}
}

// isDir reports whether a path is known to be a directory.
func (w *walker) isDir(v val) bool {
	switch path.Clean(v.s) {
	case ".", "..", "/", "/tmp", "/etc":
		return true
	}
	k := w.key(v)
	return k != "" && (k == w.env.Workspace || k == w.env.Home) || strings.HasSuffix(k, "/.ssh") || strings.HasSuffix(k, "/hooks") || strings.HasSuffix(k, ".d")
}

// copied remembers that a path now has the content of another, and that of
// a link reaches it.
func (w *walker) copied(from, to val) {
	k := w.key(to)
	if k == "" {
		return
	}
	if w.links == nil {
		w.links = make(map[string]string)
	}
	if src := w.key(from); src != "" && src != k && len(w.links) < 256 {
		w.links[k] = src
	}
}

func handleLink(w *walker, c *inv) {
	ops := c.ops
	dest, hasDest := c.get("-t")
	if !hasDest {
		switch len(ops) {
		case 0:
			return
		case 1:
			dest = val{s: path.Base(dropMarks(ops[0].s))}
		default:
			dest, ops = ops[len(ops)-1], ops[:len(ops)-1]
		}
	}
	for _, v := range ops {
		target := dest
		if hasDest || len(ops) > 1 || w.isDir(dest) || strings.HasSuffix(dest.s, "/") {
			target = val{s: strings.TrimSuffix(dest.s, "/") + "/" + path.Base(dropMarks(v.s))}
		}
		from := v
		if c.has("-s") && c.name == "ln" && v.s != "" && v.s[0] != '/' && !hasMark(v.s) && !hasMark(target.s) {
			// A symbolic link is relative to where it lies.
			from.s = path.Join(path.Dir(target.s), v.s)
		}
		w.pathEffect(cordon.Effect{Kind: cordon.Read, Op: "link", Recursive: true}, from)
		w.writes(target, "link")
		w.copied(from, target)
	}
}

func handleDD(w *walker, c *inv) {
	var in val
	for _, v := range c.ops {
		k, p, _ := strings.Cut(v.s, "=")
		f := val{s: p, data: v.data, taint: v.taint}
		switch k {
		case "if":
			if !harmlessDevice(p) && p != "/dev/urandom" && p != "/dev/random" {
				w.reads(f)
				c.took(f)
			}
			in = f
		case "of":
			w.writes(f, "create")
			body := c.in
			if in.s != "" {
				body = w.content(in)
			}
			w.storeAt(f, body, false)
			c.print(val{})
		}
	}
	if !c.set {
		if in.s != "" {
			c.print(w.content(in))
		} else {
			c.print(c.in)
		}
	}
}

func handleRm(w *walker, c *inv) {
	rec := c.has("-r", "-R", "--recursive")
	if c.name == "rmdir" {
		rec = false
	}
	if c.has("-i", "-I", "--interactive") && !c.has("-f", "--force") {
		w.doubt++
		defer func() { w.doubt-- }()
	}
	for _, v := range c.ops {
		if c.name == "rmdir" {
			w.deletesEmpty(v)
			continue
		}
		w.deletes(v, rec)
	}
	if c.name == "unlink" || c.name == "rmdir" {
		return
	}
	if c.name == "shred" {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "disk", Target: c.name, Doubtful: true})
	}
}

// setsID reports whether a mode sets the set-user-id or set-group-id bit.
func setsID(mode string) bool {
	if mode == "" {
		return false
	}
	if strings.Trim(mode, "01234567") == "" {
		m := strings.TrimLeft(mode, "0")
		return len(m) >= 4 && m[len(m)-4]&6 != 0
	}
	for _, clause := range strings.Split(mode, ",") {
		who := strings.TrimLeft(clause, "ugoa")
		whoLetters := clause[:len(clause)-len(who)]
		for len(who) > 0 {
			op := who[0]
			if op != '+' && op != '-' && op != '=' {
				break
			}
			rest := who[1:]
			end := strings.IndexAny(rest, "+-=")
			if end < 0 {
				end = len(rest)
			}
			perms := rest[:end]
			if op != '-' && strings.Contains(perms, "s") && whoLetters != "o" {
				return true
			}
			if op != '-' && strings.Trim(perms, "01234567") == "" && len(perms) >= 4 && setsID(perms) {
				return true
			}
			who = rest[end:]
		}
	}
	return false
}

func handleChmod(w *walker, c *inv) {
	ops := c.ops
	if c.name == "chmod" {
		// A mode such as "-x" or "u-s" may look like an option.
		for _, o := range c.opts {
			if o.opt == nil && strings.HasPrefix(o.name, "-") && !strings.HasPrefix(o.name, "--") && strings.Trim(o.name[1:], "rwxXstugo") == "" {
				ops = append([]val{{s: o.name}}, ops...)
				break
			}
		}
	}
	if ref, ok := c.get("--reference"); ok {
		w.pathEffect(cordon.Effect{Kind: cordon.List}, ref)
		if c.name == "chmod" && !w.inside(ref) {
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: dropMarks(ref.s), Doubtful: true})
		}
	} else if len(ops) > 0 {
		mode := ops[0]
		ops = ops[1:]
		switch c.name {
		case "chmod":
			if setsID(mode.s) {
				w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: mode.s})
			}
		case "chown":
			owner, _, _ := strings.Cut(mode.s, ":")
			if owner == "root" || owner == "0" {
				w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: "chown root", Doubtful: true})
			}
		}
	}
	for _, v := range ops {
		w.pathEffect(cordon.Effect{Kind: cordon.Write, Op: "chmod", Recursive: c.has("-R", "--recursive")}, v)
		if c.name != "chmod" {
			continue
		}
		w.persists(v)
	}
}

func handleTee(w *walker, c *inv) {
	for _, v := range c.ops {
		op := "create"
		if c.has("-a") {
			op = "append"
		}
		w.writes(v, op)
		w.storeAt(v, c.in, op == "append")
	}
	c.print(c.in)
}

func handleCat(w *walker, c *inv) {
	ops := c.ops
	if len(ops) == 0 {
		ops = []val{{s: "-"}}
	}
	var out val
	for _, v := range ops {
		if v.s == "-" {
			out = join(out, c.in)
			continue
		}
		w.reads(v)
		if v.s == "/dev/stdin" || v.s == "/dev/fd/0" || v.s == "/proc/self/fd/0" {
			out = join(out, c.in)
			continue
		}
		body := w.content(v)
		out = join(out, body)
	}
	if c.name == "tac" && out.known() {
		l := strings.SplitAfter(out.s, "\n")
		var b strings.Builder
		for i := len(l) - 1; i >= 0; i-- {
			b.WriteString(l[i])
		}
		out.s = b.String()
	}
	c.print(out)
}

func handleTouch(w *walker, c *inv) {
	if r, ok := c.get("-r"); ok {
		w.lists(r, false)
	}
	for _, v := range c.ops {
		w.writes(v, "append")
	}
}

func handleMkfifo(w *walker, c *inv) {
	for _, v := range c.ops {
		w.writes(v, "create")
		w.storeAt(v, val{s: mUnknown}, false)
	}
}

func handleMktemp(w *walker, c *inv) {
	w.pipes++
	v := val{s: mTemp + "tmp" + string(rune('a'+w.pipes%26))}
	if w.pipes >= 26 {
		v.s += string(rune('a' + w.pipes/26%26))
	}
	if len(c.ops) > 0 && !hasMark(c.ops[0].s) {
		t := c.ops[0].s
		dir, hasDir := c.get("-p", "--tmpdir")
		if hasDir && dir.s != "" {
			t = strings.TrimSuffix(dir.s, "/") + "/" + path.Base(t)
		}
		if strings.HasPrefix(t, "/tmp/") && !strings.Contains(t, "..") && strings.Count(t, "/") == 2 || c.has("-t") {
			c.print(appendNL(v))
			return
		}
		if strings.Contains(t, "/") || !hasDir && !c.has("--tmpdir") {
			t = strings.TrimRight(t, "X") + mName
			w.writes(val{s: t}, "create")
			c.print(val{s: t + "\n"})
			return
		}
	} else if dir, ok := c.get("-p", "--tmpdir"); ok && dir.s != "" && !strings.HasPrefix(dir.s, mTemp) && dir.s != "/tmp" {
		t := val{s: strings.TrimSuffix(dir.s, "/") + "/" + mName}
		w.writes(t, "create")
		c.print(appendNL(t))
		return
	}
	c.print(appendNL(v))
}

// handleTar reads its first word as options even without a dash.
func handleTar(w *walker, c *inv) {
	args := c.args
	if len(args) > 0 && !strings.HasPrefix(args[0].s, "-") && !hasMark(args[0].s) {
		args = oldStyle(args)
	}
	ps := c.p.parse(args)
	create, extract, list := false, false, false
	var file val
	hasFile := false
	var after []func()
	for _, o := range ps.opts {
		switch o.name {
		case "-c", "-r", "-u", "-A":
			create = true
		case "-x":
			extract = true
		case "-t", "-d":
			list = true
		case "-f":
			file, hasFile = o.v, true
		case "-C":
			d := o.v
			after = append(after, func() { w.setDir(w.joinDir(d)) })
		case "-T", "-X":
			w.reads(o.v)
			if o.name == "-T" {
				w.listed(c, o.v, create)
			}
		case "-g", "--index-file":
			w.writes(o.v, "")
		case "-I", "--to-command", "--info-script", "--rmt-command", "--rsh-command":
			if o.name == "-I" && tarCompressor(o.v.s) {
				continue
			}
			w.turn(o.v, "tar "+o.name, stdio{})
		case "--checkpoint-action":
			if cmd, ok := strings.CutPrefix(o.v.s, "exec="); ok {
				w.turn(val{s: cmd, data: o.v.data, taint: o.v.taint}, "tar --checkpoint-action", stdio{})
			}
		case "--use-compress-program":
		case "--remove-files":
			for _, v := range ps.ops {
				w.deletes(v, true)
			}
		}
	}
	m := w.names.get(keyDir)
	old := w.names.get(keyOldDir)
	archive := w.remoteArchive(file)
	if hasFile && !archive && file.s != "-" {
		if create {
			w.writes(file, "create")
		} else {
			w.reads(file)
		}
	}
	for _, f := range after {
		f()
	}
	if create {
		for _, v := range ps.ops {
			w.readsAll(v)
			c.took(v)
		}
		if hasFile && file.s != "-" {
			w.storeAt(file, val{s: mFile, data: c.out.data, taint: tFile}, false)
			c.print(val{})
		}
		if archive {
			h, _, _ := remoteSpec(file.s)
			w.connect(val{s: h}, "ssh", c.out.data, true)
		}
	}
	if extract && !ps.has("-O") {
		if len(after) > 0 || !ps.has("--one-top-level") {
			w.writes(val{s: "."}, "create")
		}
		if ps.has("-P") {
			w.emit(cordon.Effect{Kind: cordon.Write, Target: "/", Recursive: true, Expanded: true, Doubtful: true})
		}
		c.print(val{})
	}
	if extract && ps.has("-O") {
		c.print(val{s: mFile, taint: tFile | tDecoded, data: []string{dropMarks(file.s)}})
	}
	_ = list
	w.names.set(keyDir, m)
	w.names.set(keyOldDir, old)
}

func tarCompressor(s string) bool {
	f := strings.Fields(s)
	if len(f) == 0 {
		return false
	}
	switch f[0] {
	case "gzip", "pigz", "xz", "zstd", "bzip2", "pbzip2", "lz4", "lzma", "lzip", "pixz", "zstdmt", "brotli":
		return true
	}
	return false
}

// remoteArchive: "host:file" is reached by rsh.
func (w *walker) remoteArchive(v val) bool {
	_, _, ok := remoteSpec(v.s)
	return ok
}

// listed are files whose names come from another file or the input.
func (w *walker) listed(c *inv, v val, read bool) {
	body := c.in
	if v.s != "-" {
		body = w.content(v)
	}
	if !read {
		return
	}
	for i, l := range strings.FieldsFunc(body.s, func(r rune) bool { return r == '\n' || r == 0 }) {
		if i > 200 {
			break
		}
		w.readsAll(val{s: l})
		c.took(val{s: l})
	}
}

// oldStyle turns "tar czf x.tgz dir" into options with dashes.
func oldStyle(args []val) []val {
	rest := args[1:]
	var out []val
	for _, k := range args[0].s {
		out = append(out, val{s: "-" + string(k)})
		if strings.ContainsRune("fCTXIgbHKLNV", k) && len(rest) > 0 {
			out = append(out, rest[0])
			rest = rest[1:]
		}
	}
	return append(out, rest...)
}

func handleCpio(w *walker, c *inv) {
	w.optionRoles(c)
	if c.has("-o", "--create", "-p", "--pass-through") {
		w.listed(c, val{s: "-"}, true)
	}
	if c.has("-p", "--pass-through") {
		for _, v := range c.ops {
			w.writes(v, "create")
		}
	}
	if c.has("-i", "--extract") && !c.has("-t", "--list", "--to-stdout") {
		dir, ok := c.get("-D", "--directory")
		if !ok {
			dir = val{s: "."}
		}
		w.writes(dir, "create")
	}
}

func handleZip(w *walker, c *inv) {
	for _, o := range c.opts {
		if o.name == "-TT" || o.name == "--unzip-command" {
			w.turn(o.v, "zip -TT", stdio{})
		}
		if o.name == "-b" || o.name == "-O" {
			w.writes(o.v, "create")
		}
	}
	for i, v := range c.ops {
		if i == 0 {
			if v.s != "-" {
				w.writes(v, "create")
			}
			continue
		}
		w.readsAll(v)
		c.took(v)
		if c.has("-m", "--move") {
			w.deletes(v, true)
		}
	}
	if c.has("-@", "--names-stdin") {
		w.listed(c, val{s: "-"}, true)
	}
	if len(c.ops) > 0 && c.ops[0].s != "-" {
		w.storeAt(c.ops[0], val{s: mFile, data: c.out.data, taint: tFile}, false)
		w.storeAt(val{s: c.ops[0].s + ".zip"}, val{s: mFile, data: c.out.data, taint: tFile}, false)
	}
}

func handleUnzip(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	w.reads(c.ops[0])
	if c.has("-p", "-l", "-v", "-t", "-c", "-Z") {
		body := w.content(c.ops[0])
		c.print(val{s: mDecoded, data: body.data, taint: tDecoded})
		if c.has("-l", "-v", "-t", "-Z") {
			c.print(val{s: mName})
		}
		return
	}
	d, ok := c.get("-d", "-o")
	if !ok || d.s == "" {
		d = val{s: "."}
	}
	w.writes(d, "create")
}

func handleGrep(w *walker, c *inv) {
	skip := w.optionRoles(c)
	files := c.ops
	if !skip && len(files) > 0 && !c.has("--files", "--type-list") {
		files = files[1:]
	}
	if cmd, ok := c.get("--pre", "--hostname-bin"); ok {
		w.turn(cmd, c.name+" --pre", stdio{})
	}
	rec := c.has("-r", "-R", "--recursive", "--dereference-recursive") || c.name == "rg" || c.name == "ag" || c.name == "ack"
	for _, v := range files {
		if rec {
			w.pathEffect(cordon.Effect{Kind: cordon.Read, Recursive: true}, v)
		} else {
			w.reads(v)
		}
		c.took(v)
	}
	if len(files) == 0 && rec && c.io.in == nil {
		w.readsAll(val{s: "."})
	}
	switch {
	case c.has("-l", "-L", "--files-with-matches", "--files-without-match", "--files") && (rec || len(files) > 0):
		c.print(val{s: below(files) + "\n"})
	case c.has("-c", "--count", "-q", "--quiet"):
		c.print(val{s: mName})
	case len(files) == 0 && !rec && c.in.known() && c.in.s != "" && !c.has("-o", "-v"):
		c.print(c.in) // some of its lines
	case len(files) == 0 && !rec && !c.in.known() && !c.has("-o"):
		c.print(w.matching(c, skip))
	case len(files) == 0 && !rec && c.in.known():
		c.print(val{s: unknownOf(c.in.taint), data: c.in.data, taint: c.in.taint})
	}
}

// below is some path under the given roots.
func below(roots []val) string {
	if len(roots) == 0 {
		return mPath
	}
	s := strings.TrimSuffix(roots[0].s, "/")
	if s == "." || s == "" && roots[0].s == "" {
		return mPath
	}
	if strings.Contains(s, mGlob) {
		return settle(s)
	}
	return s + "/" + mPath
}

func handleLs(w *walker, c *inv) {
	w.optionRoles(c)
	for _, v := range c.ops {
		w.lists(v, c.has("-R", "--recursive"))
	}
	switch {
	case len(c.ops) == 1 && !c.has("-d"):
		c.print(val{s: mName + "\n"})
	case len(c.ops) > 0 && c.has("-d"):
		c.print(val{s: below(c.ops[:1]) + "\n"})
	default:
		c.print(val{s: mName + "\n"})
	}
}

func handleFd(w *walker, c *inv) {
	hit := mPath
	if len(c.ops) > 1 {
		hit = below(c.ops[1:])
	}
	for i, a := range c.args {
		switch a.s {
		case "-x", "--exec", "-X", "--exec-batch":
			cmd := append([]val(nil), c.args[i+1:]...)
			for j := range cmd {
				if strings.HasPrefix(cmd[j].s, "{") {
					cmd[j].s = hit
				}
			}
			if len(cmd) > 0 {
				w.sub(append(cmd, val{s: hit}), stdio{}, "fd --exec")
			}
			return
		}
	}
	for i, v := range c.ops {
		if i > 0 {
			w.lists(v, true)
		}
	}
	c.print(val{s: hit + "\n"})
}

func handleBasename(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	v := c.ops[0]
	if !v.known() {
		c.print(val{s: mName + "\n"})
		return
	}
	v.s = path.Base(v.s)
	if len(c.ops) > 1 {
		v.s = strings.TrimSuffix(v.s, c.ops[1].s)
	}
	c.print(appendNL(v))
}

func handleDirname(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	v := c.ops[0]
	switch {
	case v.known():
		v.s = path.Dir(v.s)
		if strings.HasPrefix(c.ops[0].s, "bash") {
			v.s = "."
		}
	case strings.LastIndexByte(v.s, '/') > 0:
		v.s = v.s[:strings.LastIndexByte(v.s, '/')]
	case strings.HasPrefix(v.s, mPath), strings.HasPrefix(v.s, mName):
		v.s = mPath
	case v.s == mUnset && len(v.data) == 1 && (v.data[0] == "$BASH_SOURCE" || v.data[0] == "$0"):
		v = val{s: "."}
	}
	c.print(appendNL(v))
}

func handleRealpath(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	v := c.ops[len(c.ops)-1]
	if v.known() && !strings.HasPrefix(v.s, "~") {
		v = w.joinDir(val{s: w.followLinks(v.s)})
	}
	if c.name == "readlink" && !c.has("-f", "-e", "-m", "--canonicalize") {
		v = val{s: mPath}
	}
	for _, o := range c.ops {
		w.pathEffect(cordon.Effect{Kind: cordon.List, NoFollow: true}, o)
	}
	c.print(appendNL(v))
}

func handleSeq(w *walker, c *inv) {
	c.print(val{s: mName + "\n"})
	for i, a := range c.args {
		if f, ok := strings.CutPrefix(a.s, "-f"); ok {
			if f == "" && i+1 < len(c.args) {
				f = c.args[i+1].s
			}
			c.print(val{s: filled(f) + "\n"})
		}
	}
}

// filled is a format with its conversions as holes.
func filled(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		b.WriteString(mName)
	}
	return b.String()
}

func handleDate(w *walker, c *inv) {
	w.optionRoles(c)
	c.print(val{s: mName + "\n"})
	for _, v := range c.ops {
		if f, ok := strings.CutPrefix(v.s, "+"); ok {
			c.print(val{s: filled(f) + "\n", data: v.data, taint: v.taint})
		}
	}
}

func handleYes(w *walker, c *inv) {
	v := joinVals(c.args, " ")
	if len(c.args) == 0 {
		v.s = "y"
	}
	c.print(appendNL(v))
}

func handleSplit(w *walker, c *inv) {
	if len(c.ops) > 0 {
		w.reads(c.ops[0])
	}
	if len(c.ops) > 1 {
		w.writes(val{s: c.ops[1].s + mName}, "create")
	}
	if f, ok := c.get("--filter"); ok {
		w.turn(f, "split --filter", stdio{in: &c.in})
	}
}
