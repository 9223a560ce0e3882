package shell

import (
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
		w.sub([]val{r}, stdio{}, "npm --script-shell")
	}
	if o, ok := c.get("--node-options"); ok && nodeLoads(o.s) != "" {
		w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: "NODE_OPTIONS", Text: dropMarks(o.s)})
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
		case strings.HasSuffix(k, "registry") || strings.HasSuffix(k, "proxy"):
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

// handleDocker: what a container gets of the host.
func handleDocker(w *walker, c *inv) {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") {
		if s := args[0].s; (s == "-H" || s == "--host" || s == "-c" || s == "--context" || s == "-f" || s == "--file" || s == "-p" || s == "--project-name" || s == "--env-file" || s == "--config" || s == "-l" || s == "--log-level") && len(args) > 1 {
			if s == "-H" || s == "--host" {
				w.dockerHost(args[1])
			}
			if s == "-f" || s == "--file" {
				w.reads(args[1])
			}
			args = args[1:]
		} else if v, ok := strings.CutPrefix(s, "--host="); ok {
			w.dockerHost(val{s: v})
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	sub := args[0].s
	if sub == "compose" || sub == "container" || sub == "image" {
		if len(args) > 1 {
			w.dockerSub(c, args[1].s, args[2:], sub)
		}
		return
	}
	w.dockerSub(c, sub, args[1:], "")
}

func (w *walker) dockerHost(v val) {
	if strings.HasPrefix(v.s, "unix://") || strings.HasPrefix(v.s, "/") {
		return
	}
	w.connectURL(v, nil, false)
}

func (w *walker) dockerSub(c *inv, sub string, args []val, group string) {
	switch sub {
	case "run", "create", "exec", "build", "buildx":
		if sub == "buildx" && len(args) > 0 {
			args = args[1:]
		}
		w.dockerOptions(c, sub, args)
	case "cp", "save", "export", "load", "import":
		w.dockerCopy(sub, args)
	case "push", "login":
		if sub == "login" {
			for i, a := range args {
				if (a.s == "-p" || a.s == "--password") && i+1 < len(args) {
					w.tells(args[i+1].data)
				}
			}
			return
		}
		for _, a := range args {
			if i := strings.IndexByte(a.s, '/'); i > 0 && strings.ContainsAny(a.s[:i], ".:") {
				w.connect(val{s: a.s[:i]}, "https", []string{a.s}, true)
			}
		}
	case "system", "volume", "network", "builder":
		if len(args) > 0 && (args[0].s == "prune" && (sub == "system" || sub == "volume") || args[0].s == "rm" && sub == "volume") {
			if sub == "volume" || hasArg(args, "-a") || hasArg(args, "--all") || hasArg(args, "-af") || hasArg(args, "-fa") || hasArg(args, "--volumes") {
				w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker " + sub + " " + args[0].s})
			}
		}
	case "rm", "rmi", "kill", "stop":
		for _, a := range args {
			if hasMark(a.s) && bare(a.s) {
				w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker " + sub, Doubtful: true})
				return
			}
		}
	case "down":
		if group == "compose" && (hasArg(args, "-v") || hasArg(args, "--volumes")) {
			w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "container", Target: "docker compose down -v", Doubtful: true})
		}
	case "inspect":
		c.print(val{s: mUnknown})
	}
}

func (w *walker) dockerOptions(c *inv, sub string, args []val) {
	image := -1
	for i := 0; i < len(args); i++ {
		s := args[i].s
		if s == "" || s[0] != '-' {
			image = i
			break
		}
		name, value, eq := strings.Cut(s, "=")
		v := val{s: value, data: args[i].data}
		takes := dockerTakes[name]
		if len(s) > 2 && s[1] != '-' && !eq && (s[1] == 'v' || s[1] == 'e' || s[1] == 'p' || s[1] == 'u' || s[1] == 'w') {
			name, v.s, takes, eq = s[:2], s[2:], true, true
		}
		if takes && !eq && i+1 < len(args) {
			i++
			v = args[i]
		}
		w.dockerOption(sub, name, v)
	}
	if sub == "build" {
		for _, a := range args {
			if pathLike(a.s) && a.s[0] != '-' {
				w.readsAll(a)
			} else if strings.Contains(a.s, "://") {
				w.connectURL(a, nil, false)
			}
		}
	}
	_ = image
}

var dockerTakes = map[string]bool{
	"-v": true, "--volume": true, "--mount": true, "-e": true, "--env": true, "--env-file": true, "-p": true, "--publish": true, "-w": true, "--workdir": true,
	"-u": true, "--user": true, "--name": true, "--network": true, "--net": true, "--pid": true, "--ipc": true, "--uts": true, "--userns": true, "--cap-add": true,
	"--cap-drop": true, "--device": true, "--security-opt": true, "--entrypoint": true, "-h": true, "--hostname": true, "-m": true, "--memory": true, "--cpus": true,
	"--label": true, "-l": true, "--add-host": true, "--dns": true, "--restart": true, "--platform": true, "--gpus": true, "--ulimit": true, "--tmpfs": true,
	"-f": true, "--file": true, "-t": true, "--tag": true, "--build-arg": true, "--target": true, "--cache-from": true, "--secret": true, "--ssh": true, "-o": true, "--output": true,
	"--cgroupns": true, "--volumes-from": true, "--runtime": true, "--shm-size": true, "--pull": true, "--log-driver": true, "--cidfile": true, "--expose": true, "--cgroup-parent": true,
}

func (w *walker) dockerOption(sub, name string, v val) {
	priv := func(t string) {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: t})
	}
	switch name {
	case "--privileged":
		if v.s != "false" {
			priv(name)
		}
	case "--pid", "--ipc", "--uts", "--userns", "--cgroupns", "--network", "--net":
		if v.s == "host" || strings.HasPrefix(v.s, "container:") && name == "--pid" {
			if name == "--network" || name == "--net" {
				w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: name + "=" + v.s, Doubtful: true})
			} else {
				priv(name + "=" + v.s)
			}
		}
	case "--cap-add":
		switch strings.ToUpper(strings.TrimPrefix(strings.ToUpper(v.s), "CAP_")) {
		case "NET_BIND_SERVICE", "CHOWN", "SETUID", "SETGID", "KILL", "FOWNER":
		default:
			priv("--cap-add=" + v.s)
		}
	case "--security-opt":
		if strings.Contains(v.s, "unconfined") || strings.Contains(v.s, "disable") {
			priv("--security-opt=" + v.s)
		}
	case "--device":
		if !strings.HasPrefix(v.s, "/dev/dri") && !strings.HasPrefix(v.s, "/dev/null") {
			priv("--device=" + v.s)
		}
	case "-v", "--volume":
		src, rest, ok := strings.Cut(v.s, ":")
		if ok && (strings.HasPrefix(src, "/") || strings.HasPrefix(src, "~") || strings.HasPrefix(src, ".") || hasMark(src)) {
			w.dockerMount(val{s: src}, strings.HasSuffix(rest, ":ro") || strings.Contains(rest, ":ro,"))
		}
	case "--mount":
		src, bind, ro := "", false, false
		for _, f := range strings.Split(v.s, ",") {
			k, x, _ := strings.Cut(f, "=")
			switch k {
			case "source", "src":
				src = x
			case "type":
				bind = x == "bind"
			case "readonly", "ro":
				ro = x != "false"
			}
		}
		if bind {
			w.dockerMount(val{s: src}, ro)
		}
	case "-e", "--env":
		k, _, ok := strings.Cut(v.s, "=")
		if !ok && secretName(k) {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: k, Doubtful: true})
		}
		w.tells(v.data)
	case "--env-file", "-f", "--file":
		w.reads(v)
	case "-u", "--user":
		if sub == "exec" && (v.s == "0" || v.s == "root") {
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "docker exec -u root", Doubtful: true})
		}
	case "--secret":
		for _, f := range strings.Split(v.s, ",") {
			if k, x, _ := strings.Cut(f, "="); k == "src" || k == "source" {
				w.reads(val{s: w.tildeText(x)})
			}
		}
	case "--cidfile":
		w.writes(v, "create")
	}
}

// dockerMount: a host directory given to a container.
func (w *walker) dockerMount(src val, ro bool) {
	s := src.s
	if !hasMark(s) {
		clean := path.Clean(s)
		switch {
		case clean == "/", strings.HasSuffix(clean, "docker.sock"), strings.HasSuffix(clean, "containerd.sock"), strings.HasPrefix(clean, "/etc") && clean != "/etc/localtime" && clean != "/etc/timezone" && !strings.HasPrefix(clean, "/etc/ssl"),
			clean == "/proc", clean == "/sys", clean == "/dev", clean == "/root", clean == "/var", clean == "/home", clean == "/var/run", clean == "/run", clean == "/boot", clean == "/usr":
			w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "mount " + clean})
		}
	}
	w.readsAll(src)
	if !ro && !w.inside(src) {
		w.writes(src, "")
	}
}

func (w *walker) dockerCopy(sub string, args []val) {
	var ops []val
	for i := 0; i < len(args); i++ {
		if s := args[i].s; (s == "-o" || s == "--output" || s == "-i" || s == "--input") && i+1 < len(args) {
			i++
			if s == "-o" || s == "--output" {
				w.writes(args[i], "create")
			} else {
				w.reads(args[i])
			}
			continue
		} else if strings.HasPrefix(s, "-") && s != "-" {
			continue
		}
		ops = append(ops, args[i])
	}
	if sub != "cp" || len(ops) != 2 {
		return
	}
	if !strings.Contains(ops[0].s, ":") {
		w.readsAll(ops[0])
	}
	if !strings.Contains(ops[1].s, ":") {
		w.writes(ops[1], "create")
	}
}

// handleKubectl: the table has the rules; files and local commands here.
func handleKubectl(w *walker, c *inv) {
	for _, o := range c.opts {
		switch o.name {
		case "-f", "-k":
			if !o.has || len(c.ops) > 0 && c.ops[0].s == "logs" {
				continue
			}
			if strings.Contains(o.v.s, "://") {
				w.connectURL(o.v, nil, false)
			} else if o.v.s != "-" {
				w.reads(o.v)
			}
		case "--kubeconfig":
			if !w.inside(o.v) {
				w.reads(o.v)
			}
		case "--from-file":
			_, p, ok := strings.Cut(o.v.s, "=")
			if !ok {
				p = o.v.s
			}
			w.reads(val{s: p})
		case "--from-env-file":
			w.reads(o.v)
		case "-s", "--server":
			w.connectURL(o.v, nil, false)
		}
	}
	if len(c.ops) == 0 {
		return
	}
	switch c.ops[0].s {
	case "delete":
		w.kubeDelete(c)
	case "cp":
		for i, v := range c.ops[1:] {
			if strings.Contains(v.s, ":") {
				continue
			}
			if i == 0 {
				w.readsAll(v)
			} else {
				w.writes(v, "create")
			}
		}
	case "get":
		if len(c.ops) > 1 {
			switch strings.SplitN(strings.SplitN(c.ops[1].s, "/", 2)[0], ",", 2)[0] {
			case "secret", "secrets":
				if o, ok := c.get("-o"); ok && o.s != "name" && o.s != "wide" || c.has("--template") {
					w.emit(cordon.Effect{Kind: cordon.Administer, Op: "credential", Target: "kubectl get secret"})
				}
			}
		}
		if o, ok := c.get("-o"); ok && o.s == "name" {
			kind := operandText(c.ops, 1)
			c.print(val{s: kind + "/" + mName + "\n"})
		}
	case "edit":
		w.emit(cordon.Effect{Kind: cordon.Execute, Target: "editor"})
	}
	w.kubeText(c)
}

// kubeText looks into manifests on the input for what rules name.
func (w *walker) kubeText(c *inv) {
	f, ok := c.get("-f")
	if !ok {
		return
	}
	body := c.in
	if f.s != "-" {
		var known bool
		if body, known = w.written(f); !known {
			return
		}
	}
	if strings.Contains(body.s, "cluster-admin") && strings.Contains(body.s, "Binding") {
		w.emit(cordon.Effect{Kind: cordon.Administer, Op: "cluster_admin", Target: "kubectl " + c.ops[0].s})
	}
	if strings.Contains(body.s, "privileged: true") || strings.Contains(body.s, "hostPID: true") || strings.Contains(body.s, "hostNetwork: true") || strings.Contains(body.s, "hostPath:") {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "container", Target: "kubectl " + c.ops[0].s})
	}
}

var kubeGrave = map[string]bool{"ns": true, "namespace": true, "namespaces": true, "node": true, "nodes": true, "no": true, "pv": true, "persistentvolume": true,
	"persistentvolumes": true, "pvc": true, "persistentvolumeclaim": true, "persistentvolumeclaims": true, "crd": true, "crds": true, "customresourcedefinition": true,
	"customresourcedefinitions": true, "clusterrole": true, "clusterrolebinding": true, "all": true, "sts": true, "statefulset": true, "statefulsets": true,
	"secret": true, "secrets": true, "deploy": false, "storageclass": true}

func (w *walker) kubeDelete(c *inv) {
	grave := c.has("--all", "-A", "--all-namespaces")
	doubt := false
	for i, v := range c.ops[1:] {
		kinds, _, named := strings.Cut(v.s, "/")
		if i == 0 || named {
			for _, k := range strings.Split(kinds, ",") {
				if kubeGrave[strings.ToLower(k)] {
					grave = true
				}
			}
		}
		if hasMark(v.s) && bare(strings.TrimSpace(v.s)) {
			grave, doubt = true, !grave
		}
	}
	if grave {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "cluster", Target: "kubectl delete " + operandText(c.ops, 1), Doubtful: doubt})
	} else {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "cluster", Target: "kubectl delete " + operandText(c.ops, 1), Doubtful: true})
	}
}

// handleAws: the table has the rules; here what is copied and from where.
func handleAws(w *walker, c *inv) {
	w.optionRoles(c)
	if len(c.ops) < 2 {
		return
	}
	if e, ok := c.get("--endpoint-url"); ok {
		w.connectURL(e, nil, false)
	}
	for _, o := range c.opts {
		for _, p := range [...]string{"file://", "fileb://"} {
			if f, ok := strings.CutPrefix(o.v.s, p); ok && o.has {
				w.reads(val{s: w.tildeText(f)})
			}
		}
	}
	copyTo := ""
	switch {
	case c.ops[0].s == "s3" && (c.ops[1].s == "cp" || c.ops[1].s == "sync" || c.ops[1].s == "mv"):
		copyTo = "s3://"
	case c.name == "gsutil" && (c.ops[0].s == "cp" || c.ops[0].s == "rsync" || c.ops[0].s == "mv"):
		copyTo = "gs://"
	case c.name == "gcloud" && c.ops[0].s == "storage":
		copyTo = "gs://"
	case c.name == "rclone" || c.name == "s3cmd" || c.name == "mc":
		copyTo = ":"
	}
	if copyTo == "" {
		return
	}
	var data []string
	var remote []string
	for i, v := range c.ops {
		if strings.Contains(v.s, copyTo) || strings.Contains(v.s, "://") {
			remote = append(remote, v.s)
			continue
		}
		if i == 0 || !pathLike(v.s) && !strings.Contains(v.s, ".") && i < 2 {
			continue
		}
		if i == len(c.ops)-1 && len(remote) > 0 {
			w.writes(v, "create")
			continue
		}
		w.readsAll(v)
		t, _ := globTarget(v.s)
		data = append(data, t)
	}
	if len(data) > 0 {
		for _, r := range remote {
			w.connectURL(val{s: strings.Replace(r, "gs://", "s3://", 1)}, data, true)
		}
		if len(remote) == 0 {
			w.emit(cordon.Effect{Kind: cordon.Connect, Target: "*", Pattern: true, Op: "https", Sends: true, Data: data})
		}
	}
}

func handleAnsible(w *walker, c *inv) {
	w.optionRoles(c)
	if m, ok := c.get("-m"); ok && (m.s == "shell" || m.s == "command" || m.s == "raw" || m.s == "script") || c.name == "ansible" && !c.has("-m") {
		if a, ok := c.get("-a"); ok && len(c.ops) > 0 && (c.ops[0].s == "localhost" || c.has("-c")) {
			w.turn(a, "ansible -a", stdio{})
		}
	}
	if c.has("-b", "--become") {
		w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "sudo", Target: "ansible --become"})
	}
	for _, v := range c.ops {
		if pathLike(v.s) {
			w.reads(v)
		}
	}
}

func handleGh(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	for _, o := range c.opts {
		switch o.name {
		case "-F", "--body-file", "--input", "-f", "--field", "--raw-field", "--notes-file":
			v := o.v.s
			if _, x, ok := strings.Cut(v, "=@"); ok {
				v = x
			} else if o.name == "-f" || o.name == "--raw-field" || strings.Contains(v, "=") && o.name != "--body-file" {
				continue
			}
			if v != "-" {
				w.reads(val{s: w.tildeText(v)})
			}
		case "--hostname":
			w.connect(o.v, "https", nil, false)
		}
	}
	sub, verb := c.ops[0].s, operandText(c.ops, 1)
	switch {
	case (sub == "issue" || sub == "pr" || sub == "gist" || sub == "release" || sub == "discussion") && (verb == "create" || verb == "comment" || verb == "edit" || verb == "review" || verb == "upload"):
		data := union(c.in.data, nil)
		for _, o := range c.opts {
			data = union(data, o.v.data)
		}
		for _, v := range c.ops[2:] {
			if sub == "gist" || sub == "release" {
				if v.s != "-" && (pathLike(v.s) || strings.Contains(v.s, ".") || sub == "gist") {
					w.reads(v)
					t, _ := globTarget(v.s)
					data = union(data, []string{t})
				}
			}
		}
		w.tells(data)
		w.emit(cordon.Effect{Kind: cordon.Send, Target: "github " + sub, Sends: true, Data: data})
	case sub == "alias" && verb == "set" && len(c.ops) > 3:
		text := c.ops[3].s
		if strings.HasPrefix(text, "!") || c.has("-s", "--shell") {
			w.turn(val{s: strings.TrimPrefix(text, "!")}, "gh alias", stdio{})
		}
	case sub == "repo" && verb == "clone", sub == "extension" && verb == "install":
		w.connect(val{s: "github.com"}, "https", nil, false)
	}
}

// handleCompiler: sources are read, the output is written, plug-ins run.
func handleCompiler(w *walker, c *inv) {
	for i, a := range c.args {
		s := a.s
		switch {
		case s == "-o" && i+1 < len(c.args):
			w.writes(c.args[i+1], "create")
			w.storeAt(c.args[i+1], val{s: mFile, taint: tFile}, false)
		case strings.HasPrefix(s, "-o") && len(s) > 2 && s[2] != '-' && !strings.Contains(s, "="):
			w.writes(val{s: s[2:]}, "create")
		case s == "-wrapper" && i+1 < len(c.args):
			w.turn(val{s: strings.ReplaceAll(c.args[i+1].s, ",", " ")}, c.name+" -wrapper", stdio{})
		case strings.HasPrefix(s, "-fplugin=") || strings.HasPrefix(s, "-B") && strings.Contains(s, "/") && !w.inside(val{s: s[2:]}):
			w.opaque("loads native code", cordon.OriginFile, s)
		case strings.HasPrefix(s, "@"):
			w.reads(val{s: s[1:]})
		case (s == "-include" || s == "-imacros" || s == "-T") && i+1 < len(c.args):
			w.reads(c.args[i+1])
		case strings.HasPrefix(s, "-"):
		case i > 0 && (c.args[i-1].s == "-o" || c.args[i-1].s == "-x" || c.args[i-1].s == "-MF" || c.args[i-1].s == "-MT" || c.args[i-1].s == "-include" || c.args[i-1].s == "-wrapper"):
		default:
			w.reads(a)
		}
	}
	if len(c.ops) > 0 && !hasArg(c.args, "-o") && !hasArg(c.args, "-c") && !hasArg(c.args, "-E") && !hasArg(c.args, "-fsyntax-only") && !hasArg(c.args, "-S") {
		w.storeAt(val{s: "a.out"}, val{s: mFile, taint: tFile}, false)
	}
}
