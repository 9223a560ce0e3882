package shell

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// handleNpm is npm, yarn and pnpm.
func handleNpm(w *walker, c *inv) {
	w.optionRoles(c)
	if len(c.ops) == 0 {
		return
	}
	sub := c.ops[0].s
	rest := c.ops[1:]
	switch sub {
	case "exec", "x", "dlx":
		w.npmExec(c, rest)
	case "explore":
		if len(rest) > 1 {
			w.sub(rest[1:], stdio{}, "npm explore")
		}
	case "run", "run-script":
		if len(rest) > 0 {
			w.npmScript(rest[0].s)
		}
	case "test", "start", "stop", "restart":
		w.npmScript(sub)
	case "publish":
		w.npmPublish(c, rest)
	case "config", "c", "set":
		w.npmConfig(sub, rest)
	case "install", "i", "add", "ci", "update", "up", "link", "ln", "isntall", "in", "ins", "inst":
		for _, v := range rest {
			w.packageSpec(v)
		}
	case "token", "login", "adduser", "whoami":
		if sub == "token" || sub == "adduser" {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "credential", Target: c.name + " " + sub})
		}
	case "unpublish", "deprecate", "owner", "access", "team", "dist-tag":
		if sub == "unpublish" {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "cloud", Target: "npm unpublish"})
		}
		if sub == "owner" || sub == "access" {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "iam", Target: "npm " + sub})
		}
	case "pkg":
		if len(rest) > 1 && rest[0].s == "set" {
			for _, v := range rest[1:] {
				if k, x, ok := strings.Cut(v.s, "="); ok {
					if n, ok := strings.CutPrefix(k, "scripts."); ok {
						w.turn(val{s: x, data: v.data}, "npm script "+n, stdio{})
					}
				}
			}
		}
	}
	if r, ok := c.get("--script-shell"); ok {
		w.turn(r, "npm --script-shell", stdio{})
	}
	if o, ok := c.get("--node-options"); ok && nodeLoads(o.s) != "" {
		w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: "NODE_OPTIONS", Text: dropMarks(o.s)})
	}
}

// npmScript runs a script of the package.json that the text itself wrote.
func (w *walker) npmScript(name string) {
	body, ok := w.written(val{s: "package.json"})
	if !ok || !body.known() {
		return
	}
	var p struct {
		Scripts map[string]string `json:"scripts"`
	}
	if json.Unmarshal([]byte(body.s), &p) != nil {
		return
	}
	for _, n := range [...]string{"pre" + name, name, "post" + name} {
		if text := p.Scripts[n]; text != "" {
			w.turn(val{s: text, data: body.data, taint: body.taint}, "npm script "+n, stdio{})
		}
	}
}

func (w *walker) npmExec(c *inv, rest []val) {
	if cmd, ok := c.get("-c", "--call"); ok {
		w.turn(cmd, "npm exec -c", stdio{})
		return
	}
	if len(rest) > 0 {
		w.packageSpec(rest[0])
		if lookupProgram(rest[0].s) != nil {
			w.sub(rest, c.io, c.name+" exec")
		} else {
			w.operandsOfUnknown(rest[1:])
		}
	}
}

func (w *walker) npmPublish(c *inv, rest []val) {
	for _, v := range rest {
		w.readsAll(v)
	}
	if r, ok := c.get("--registry"); ok {
		w.connectURL(r, []string{"."}, true)
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Send, Target: "package registry", Sends: true, Data: []string{"."}})
}

func (w *walker) npmConfig(sub string, rest []val) {
	if sub != "set" && (len(rest) == 0 || rest[0].s != "set") {
		return
	}
	if sub != "set" {
		rest = rest[1:]
	}
	for i, v := range rest {
		k, x, ok := strings.Cut(v.s, "=")
		if !ok && i+1 < len(rest) {
			x = rest[i+1].s
		}
		switch {
		case strings.Contains(strings.ToLower(k), "registry") && strings.Contains(x, "://") || strings.HasSuffix(strings.ToLower(k), "proxy"):
			w.connectURL(val{s: x}, nil, false)
		case k == "script-shell" || k == "shell" || k == "editor" || k == "git" || k == "viewer" || k == "node-options" || k == "init-module":
			w.emit(cordon.Effect{Kind: cordon.Persist, Op: "startup_file", Target: "npm config " + k, Text: x})
		}
	}
}

// packageSpec is a package to install: a name, a path, a URL or a git address.
func (w *walker) packageSpec(v val) {
	s := v.s
	if i := strings.Index(s, "@"); i > 0 && (strings.Contains(s[i:], "://") || strings.HasPrefix(s[i:], "@ git") || strings.HasPrefix(s[i:], "@file:")) && !strings.Contains(s[:i], "/") && !strings.Contains(s[:i], ":") {
		s = strings.TrimSpace(s[i+1:])
	}
	switch {
	case strings.HasPrefix(s, "git+") && strings.Contains(s, "://"):
		w.connectURL(val{s: s[4:], data: v.data}, nil, false)
	case strings.HasPrefix(s, "github:") || strings.HasPrefix(s, "gh:"):
		w.connect(val{s: "github.com"}, "https", nil, false)
	case strings.HasPrefix(s, "gitlab:"):
		w.connect(val{s: "gitlab.com"}, "https", nil, false)
	case strings.HasPrefix(s, "bitbucket:"):
		w.connect(val{s: "bitbucket.org"}, "https", nil, false)
	case strings.HasPrefix(s, "file:"):
		w.reads(val{s: strings.TrimPrefix(strings.TrimPrefix(s, "file:"), "//")})
	case strings.Contains(s, "://"):
		w.connectURL(v, nil, false)
	case strings.HasPrefix(s, "git@"):
		w.gitRemote(v, nil, false)
	case pathLike(s):
		w.readsAll(v)
	}
}

func handleNpx(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") {
		s := args[0].s
		switch {
		case s == "-c" || s == "--call":
			if len(args) > 1 {
				w.turn(args[1], "npx -c", stdio{})
			}
			return
		case s == "-p" || s == "--package" || s == "--registry" || s == "--with" || s == "--from" || s == "--python" || s == "--index-url" || s == "--spec" || s == "--index":
			if len(args) > 1 {
				if strings.Contains(args[1].s, "://") {
					w.packageSpec(args[1])
				}
				args = args[1:]
			}
		case strings.Contains(s, "="):
			_, v, _ := strings.Cut(s, "=")
			w.packageSpec(val{s: v})
		case s == "--":
			args = args[1:]
			if len(args) > 0 {
				w.packageRun(c, args)
			}
			return
		}
		args = args[1:]
	}
	if len(args) > 0 && c.name == "pipx" {
		if args[0].s == "run" || args[0].s == "install" {
			args = args[1:]
		} else {
			return
		}
	}
	if len(args) > 0 {
		w.packageRun(c, args)
	}
}

func (w *walker) packageRun(c *inv, args []val) {
	w.packageSpec(args[0])
	name := args[0].s
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	if p := lookupProgram(name); p != nil && !hasMark(name) {
		w.sub(append([]val{{s: name}}, args[1:]...), c.io, c.name)
		c.print(val{})
		return
	}
	w.operandsOfUnknown(args[1:])
}

// handlePip is pip, uv, poetry, pdm and conda.
func handlePip(w *walker, c *inv) {
	w.optionRoles(c)
	for _, o := range c.opts {
		if o.name == "-c" && strings.Contains(o.v.s, "://") {
			w.connectURL(o.v, nil, false)
		}
		if body, ok := w.written(o.v); ok && o.has && (o.name == "-r" || o.name == "-c") {
			for _, f := range strings.Fields(body.s) {
				if strings.Contains(f, "://") {
					w.packageSpec(val{s: f[strings.IndexByte(f, '=')+1:]})
				}
			}
		}
	}
	ops := c.ops
	if c.name == "uv" && len(ops) > 0 && ops[0].s == "pip" {
		ops = ops[1:]
	}
	if len(ops) == 0 {
		return
	}
	switch ops[0].s {
	case "install", "add", "download", "wheel", "sync", "create", "update":
		for _, v := range ops[1:] {
			if v.s != "." {
				w.packageSpec(v)
			}
		}
	case "source", "repositories", "channels":
		for _, v := range ops[1:] {
			if strings.Contains(v.s, "://") {
				w.connectURL(v, nil, false)
			}
		}
	case "run", "exec", "tool", "x":
		rest := ops[1:]
		if ops[0].s == "tool" && len(rest) > 0 {
			rest = rest[1:]
		}
		if i := c.rest; (c.name == "uv" || c.name == "poetry" || c.name == "pdm" || c.name == "hatch" || c.name == "pipenv" || c.name == "conda" || c.name == "rye" || c.name == "mamba" || c.name == "micromamba") && len(rest) > 0 {
			_ = i
			w.sub(runTail(c, rest[0]), c.io, c.name+" run")
			c.print(val{})
		}
	case "config":
		for i, v := range ops {
			if strings.Contains(v.s, "index-url") && i+1 < len(ops) {
				w.connectURL(ops[i+1], nil, false)
			}
		}
	case "publish", "upload":
		w.emit(cordon.Effect{Kind: cordon.Send, Target: "package registry", Sends: true, Data: []string{"."}})
	}
}

// runTail gives the words from the first one that is the command, options and
// all.
func runTail(c *inv, first val) []val {
	seen := false
	for i, a := range c.args {
		if !seen && (a.s == "run" || a.s == "exec" || a.s == "tool") {
			seen = true
			continue
		}
		if seen && a.s == first.s {
			return c.args[i:]
		}
	}
	return []val{first}
}

func handleGo(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-exec", "-toolexec", "-vettool":
			if o.has {
				w.turn(o.v, "go "+o.name, stdio{})
			}
		case "-o", "-coverprofile", "-cpuprofile", "-memprofile", "-outputdir", "-trace":
			if o.has {
				w.writes(o.v, "create")
			}
		case "-C":
			w.lists(o.v, false)
		case "-modfile", "-overlay":
			w.reads(o.v)
		}
	}
	if len(c.ops) < 2 {
		return
	}
	switch c.ops[0].s {
	case "env":
		for _, v := range c.ops[1:] {
			if k, x, ok := strings.Cut(v.s, "="); ok && c.has("-w") {
				switch k {
				case "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOFLAGS", "CC", "CXX", "GOPRIVATE", "GOINSECURE", "GONOPROXY":
					if k == "GOPROXY" || k == "CC" || k == "CXX" || k == "GOFLAGS" {
						w.emit(cordon.Effect{Kind: cordon.Persist, Op: "startup_file", Target: "go env " + k, Text: x})
					}
				}
			}
		}
	case "run":
		for i, v := range c.ops[1:] {
			if strings.HasSuffix(v.s, ".go") {
				w.reads(v)
			} else {
				w.runsOwnSource(c, v.s)
				w.operandsOfUnknown(c.ops[min(i+2, len(c.ops)):])
				return
			}
		}
	case "build", "test", "vet", "fmt", "generate", "list":
		for _, v := range c.ops[1:] {
			if pathLike(v.s) {
				w.lists(v, true)
			}
		}
	}
}

// runsOwnSource: Cordon that is run from its source is Cordon.
func (w *walker) runsOwnSource(c *inv, pkg string) {
	name, _, _ := strings.Cut(pkg, "@")
	if path.Base(name) != "cordon" {
		return
	}
	for i, a := range c.args {
		if a.s == pkg {
			w.emit(cordon.Effect{Kind: cordon.Execute, Target: "cordon", Origin: cordon.OriginFile, Text: ownWords("cordon", c.args[i+1:])})
			return
		}
	}
}

func handleCargo(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "--config":
			k, x, _ := strings.Cut(o.v.s, "=")
			k = strings.TrimSpace(k)
			x = strings.Trim(strings.TrimSpace(x), `'"[]`)
			if strings.HasSuffix(k, "runner") || strings.HasSuffix(k, "rustc-wrapper") || strings.HasSuffix(k, "linker") || strings.HasSuffix(k, "rustc") || strings.HasSuffix(k, "rustc-workspace-wrapper") || strings.HasSuffix(k, "credential-provider") || strings.HasPrefix(k, "alias.") {
				w.turn(val{s: strings.NewReplacer(`"`, "", `'`, "", ",", " ").Replace(x)}, "cargo --config", stdio{})
			} else if strings.Contains(x, "://") {
				w.connectURL(val{s: strings.TrimPrefix(x, "sparse+")}, nil, false)
			}
		case "--git", "--index", "--registry":
			if strings.Contains(o.v.s, "://") {
				w.connectURL(val{s: strings.TrimPrefix(o.v.s, "sparse+")}, nil, false)
			}
		case "--manifest-path", "--path":
			w.reads(o.v)
		case "--target-dir", "--root":
			w.writes(o.v, "create")
		}
	}
	if len(c.ops) > 0 && c.ops[0].s == "publish" {
		w.emit(cordon.Effect{Kind: cordon.Send, Target: "package registry", Sends: true, Data: []string{"."}})
	}
	if len(c.ops) > 1 && c.ops[0].s == "run" {
		w.operandsOfUnknown(c.ops[1:])
	}
}

// handleMake: makefiles in the workspace are the project's own; what stands
// on the command line is read.
func handleMake(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "--eval", "-E":
			w.makeText(o.v)
		case "-f":
			if o.v.s == "-" || o.v.s == "/dev/stdin" {
				w.makeFile(c.in)
				continue
			}
			w.reads(o.v)
			if body, ok := w.written(o.v); ok {
				w.makeFile(body)
			}
		case "-C":
			w.lists(o.v, false)
		case "-I":
			w.lists(o.v, false)
		case "-o", "-W":
		}
	}
	if !c.has("-f") {
		for _, n := range [...]string{"GNUmakefile", "makefile", "Makefile"} {
			if body, ok := w.written(val{s: n}); ok {
				w.makeFile(body)
			}
		}
	}
	for _, v := range c.ops {
		k, x, ok := strings.Cut(v.s, "=")
		if !ok {
			continue
		}
		k = strings.TrimRight(k, ":+?")
		switch k {
		case "SHELL":
			if x != "/bin/bash" && x != "/bin/sh" && x != "bash" && x != "/usr/bin/bash" {
				w.turn(val{s: x, data: v.data, taint: v.taint}, "make SHELL=", stdio{})
			}
		case ".SHELLFLAGS":
			w.opaque("make: other flags for its shell", cordon.OriginLiteral, x)
		default:
			w.makeText(val{s: x, data: v.data, taint: v.taint})
			if strings.ContainsAny(x, ";|&`") || strings.Contains(x, "$(") {
				w.doubt++
				w.turn(val{s: strings.TrimLeft(x, ";|& ")}, "make "+k+"=", stdio{})
				w.doubt--
			}
		}
	}
}

// makeText finds $(shell …) and recipes.
func (w *walker) makeText(v val) {
	s := v.s
	for i := strings.Index(s, "$(shell "); i >= 0; i = strings.Index(s, "$(shell ") {
		s = s[i+8:]
		depth, j := 1, 0
		for ; j < len(s) && depth > 0; j++ {
			switch s[j] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		if depth == 0 {
			w.turn(val{s: strings.ReplaceAll(s[:j-1], "$$", "$"), data: v.data, taint: v.taint}, "make $(shell)", stdio{})
		}
		s = s[j:]
	}
	for _, line := range strings.Split(v.s, "\n") {
		if i := strings.IndexByte(line, ';'); i > 0 && strings.IndexByte(line[:i], ':') > 0 && line[0] != '\t' {
			w.recipe(line[i+1:], v)
		}
		if i := strings.Index(line, "!="); i > 0 {
			w.recipe(line[i+2:], v)
		}
	}
}

func (w *walker) makeFile(v val) {
	if !v.known() && bare(strings.TrimSpace(v.s)) {
		if o := v.origin(); o == cordon.OriginDecoded || o == cordon.OriginNetwork {
			w.opaque("a makefile of unknown content", o, "")
		}
		return
	}
	w.makeText(v)
	for _, line := range strings.Split(v.s, "\n") {
		if strings.HasPrefix(line, "\t") {
			w.recipe(line[1:], v)
		}
	}
}

func (w *walker) recipe(line string, v val) {
	line = strings.TrimLeft(line, "@-+ ")
	line = strings.ReplaceAll(line, "$$", "$")
	w.turn(val{s: line, data: v.data, taint: v.taint}, "make recipe", stdio{})
}

func handleCmake(w *walker, c *inv) {
	for i, a := range c.args {
		if a.s == "-E" && i+1 < len(c.args) {
			w.cmakeE(c, c.args[i+1:])
			return
		}
		if a.s == "-P" && i+1 < len(c.args) {
			w.reads(c.args[i+1])
			body, ok := w.written(c.args[i+1])
			if !ok {
				body, ok = w.readScript(c.args[i+1])
			}
			if ok && strings.Contains(body.s, "execute_process") {
				w.cmakeProcess(body)
			}
		}
	}
	w.optionRoles(c)
	for _, v := range c.ops {
		if pathLike(v.s) {
			w.reads(v)
		}
	}
}

func (w *walker) cmakeProcess(body val) {
	s := body.s
	for i := strings.Index(s, "COMMAND"); i >= 0; i = strings.Index(s, "COMMAND") {
		s = s[i+7:]
		j := strings.IndexByte(s, ')')
		if j < 0 {
			return
		}
		w.turn(val{s: s[:j]}, "cmake execute_process", stdio{})
		s = s[j:]
	}
}

func (w *walker) cmakeE(c *inv, args []val) {
	rest := args[1:]
	switch args[0].s {
	case "env", "time", "chdir":
		if args[0].s == "chdir" && len(rest) > 0 {
			w.lists(rest[0], false)
			dir := rest[0]
			rest = rest[1:]
			if len(rest) > 0 {
				w.inDir(dir, func() { w.sub(rest, c.io, "cmake -E chdir") })
			}
			return
		}
		if args[0].s == "env" {
			w.sub(append([]val{{s: "env"}}, rest...), c.io, "cmake -E")
			return
		}
		if len(rest) > 0 {
			w.sub(rest, c.io, "cmake -E time")
		}
	case "cat":
		w.sub(append([]val{{s: "cat"}}, rest...), c.io, "cmake -E")
	case "environment":
		w.dumpsEnv(stdio{})
	case "tar":
		if len(rest) > 0 {
			w.sub(append([]val{{s: "tar"}}, rest...), c.io, "cmake -E")
		}
	case "copy", "copy_if_different", "copy_directory", "rename", "create_symlink", "create_hardlink":
		for i, v := range rest {
			if i < len(rest)-1 {
				w.readsAll(v)
			} else {
				w.writes(v, "create")
			}
		}
	case "rm", "remove", "remove_directory":
		for _, v := range rest {
			if !strings.HasPrefix(v.s, "-") {
				w.deletes(v, true)
			}
		}
	case "touch", "make_directory":
		for _, v := range rest {
			w.writes(v, "create")
		}
	case "md5sum", "sha1sum", "sha256sum", "sha512sum", "compare_files":
		for _, v := range rest {
			w.reads(v)
		}
	}
}

func handleGem(w *walker, c *inv) {
	w.optionRoles(c)
	if len(c.ops) == 0 {
		return
	}
	switch c.ops[0].s {
	case "push", "publish":
		w.emit(cordon.Effect{Kind: cordon.Send, Target: "package registry", Sends: true, Data: []string{operandText(c.ops, 1)}})
		if h, ok := c.get("--host"); ok {
			w.connectURL(h, []string{operandText(c.ops, 1)}, true)
		}
	case "sources":
		if s, ok := c.get("-a", "--add"); ok {
			w.connectURL(s, nil, false)
		}
	case "exec":
		rest := runTail(c, first2(c.ops))
		if len(c.ops) > 1 {
			w.sub(rest, c.io, c.name+" exec")
			c.print(val{})
		}
	case "config":
		if len(c.ops) > 2 && strings.Contains(c.ops[1].s+c.ops[2].s, "mirror") {
			w.connectURL(c.ops[len(c.ops)-1], nil, false)
		}
	default:
		for _, v := range c.ops[1:] {
			if strings.Contains(v.s, "://") || pathLike(v.s) {
				w.packageSpec(v)
			}
		}
	}
}

func first2(ops []val) val {
	if len(ops) > 1 {
		return ops[1]
	}
	return val{}
}

func handleTwine(w *walker, c *inv) {
	w.optionRoles(c)
	if len(c.ops) == 0 || c.ops[0].s != "upload" && c.ops[0].s != "publish" {
		return
	}
	var data []string
	for _, v := range c.ops[1:] {
		w.reads(v)
		t, _ := globTarget(v.s)
		data = append(data, t)
	}
	if u, ok := c.get("--repository-url"); ok {
		w.connectURL(u, data, true)
		return
	}
	w.emit(cordon.Effect{Kind: cordon.Send, Target: "package registry", Sends: true, Data: data})
}

// handlePackage is a system package manager: it changes the system.
func handlePackage(w *walker, c *inv) {
	w.optionRoles(c)
	for _, o := range c.opts {
		if o.name == "-o" && o.has {
			if k, x, ok := strings.Cut(o.v.s, "="); ok && (strings.Contains(k, "Invoke") || strings.Contains(strings.ToLower(k), "::run") || strings.Contains(k, "Pre-Install")) {
				w.turn(val{s: strings.Trim(x, `"`)}, c.name+" -o", stdio{})
			}
		}
	}
	for _, v := range c.ops {
		if strings.Contains(v.s, "://") {
			w.connectURL(v, nil, false)
		} else if pathLike(v.s) {
			w.reads(v)
		}
	}
}
