package shell

import (
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// executingKey reports whether a git configuration key (with or without
// "=value") holds something that git runs.
func executingKey(k string) bool {
	k, _, _ = strings.Cut(strings.ToLower(k), "=")
	section, last := k, ""
	if i := strings.IndexByte(k, '.'); i >= 0 {
		section, last = k[:i], k[strings.LastIndexByte(k, '.')+1:]
	}
	switch section {
	case "alias", "pager", "include", "includeif":
		return true
	case "core":
		switch last {
		case "pager", "editor", "hookspath", "fsmonitor", "sshcommand", "gitproxy", "askpass", "attributesfile", "worktree", "alternaterefscommand":
			return true
		}
	case "filter", "merge", "diff", "difftool", "mergetool", "man", "browser", "guitool", "trailer", "remote", "credential", "uploadpack", "receive", "sequence", "sendemail", "gpg", "interactive", "ssh", "instaweb", "tar", "web", "url", "http", "https", "submodule", "init", "hook", "imap", "help":
		switch last {
		case "clean", "smudge", "process", "driver", "command", "cmd", "path", "textconv", "external", "uploadpack", "receivepack", "vcs", "helper",
			"packobjectshook", "editor", "program", "difffilter", "insteadof", "pushinsteadof", "proxy", "templatedir", "tocmd", "cccmd", "sendmailcmd", "smtpserver", "browser", "tunnel", "variant", "update", "defaultkeycommand", "sslverify":
			return last != "path" || section == "man" || section == "difftool" || section == "mergetool"
		}
	}
	return false
}

// gitKeyRuns reads the value of a key that git executes.
func (w *walker) gitKeyRuns(key string, v val, via string) {
	lower := strings.ToLower(key)
	last := lower[strings.LastIndexByte(lower, '.')+1:]
	switch {
	case v.s == "/dev/null" || v.s == "":
	case strings.HasPrefix(lower, "alias."):
		w.gitAlias(key[len("alias."):], v)
	case last == "hookspath" || last == "attributesfile" || last == "templatedir" || strings.HasPrefix(lower, "include"):
		w.emit(cordon.Effect{Kind: cordon.Persist, Op: "git_config", Target: lower, Text: dropMarks(v.s)})
		if last == "hookspath" {
			w.hooksIn(v)
		}
	case last == "insteadof" || last == "pushinsteadof":
		// url.BASE.insteadOf: git then talks to BASE.
		if i := strings.Index(lower, "url."); i >= 0 {
			base := key[i+4 : max(i+4, len(key)-len(last)-1)]
			w.gitRemote(val{s: base}, nil, false)
		}
	case last == "proxy" || last == "gitproxy":
		w.connectURL(v, nil, false)
	case last == "smtpserver":
		w.connect(v, "smtp", nil, true)
	case last == "sslverify":
		if v.s == "false" || v.s == "0" || v.s == "no" {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "security_off", Target: "http.sslVerify", Doubtful: true})
		}
	case last == "vcs", last == "worktree", last == "variant", last == "update" && !strings.HasPrefix(v.s, "!"):
	case last == "fsmonitor" && (v.s == "true" || v.s == "false"):
	default:
		text := strings.TrimPrefix(v.s, "!")
		switch text {
		case "", "cat", "less", "true", "false", ":", "store", "cache", "osxkeychain", "manager", "libsecret", "vim", "vi", "nano", "code --wait", "ssh", "gpg", "gpg2", "delta", "less -FRX", "meld", "vimdiff", "cat -", "ssh -o BatchMode=yes":
			return
		}
		if last == "helper" && !strings.HasPrefix(v.s, "!") && !strings.HasPrefix(v.s, "/") {
			return
		}
		w.turn(val{s: text, data: v.data, taint: v.taint}, via+" "+key, stdio{in: &val{s: mFile}})
	}
}

func (w *walker) hooksIn(dir val) {
	for _, h := range [...]string{"pre-commit", "commit-msg", "post-checkout", "post-commit", "prepare-commit-msg", "pre-push", "post-merge", "reference-transaction", "post-index-change"} {
		f := val{s: strings.TrimSuffix(dir.s, "/") + "/" + h}
		if body, ok := w.written(f); ok {
			w.turn(body, "git hook "+h, stdio{})
		}
	}
}

func (w *walker) gitAlias(name string, v val) {
	if w.gitConf == nil {
		w.gitConf = make(map[string]string)
	}
	w.gitConf["alias."+strings.ToLower(name)] = v.s
	if cmd, ok := strings.CutPrefix(v.s, "!"); ok {
		w.turn(val{s: cmd, data: v.data, taint: v.taint}, "git alias "+name, stdio{})
		return
	}
	if strings.ContainsAny(v.s, " -") && w.turns < 8 {
		w.turn(val{s: "git " + v.s}, "git alias "+name, stdio{})
	}
}

// handleGit reads the global options, then the sub-command.
func handleGit(w *walker, c *inv) {
	args := c.args
	var dir val
	hasDir := false
	for len(args) > 0 && strings.HasPrefix(args[0].s, "-") {
		s := args[0].s
		if len(s) > 2 && (s[:2] == "-c" || s[:2] == "-C") {
			// The value is attached.
			args = append([]val{{s: s[:2]}, {s: s[2:], data: args[0].data, taint: args[0].taint}}, args[1:]...)
			s = args[0].s
		}
		name, value, eq := strings.Cut(s, "=")
		v := val{s: value, data: args[0].data, taint: args[0].taint}
		needs := name == "-C" || name == "-c" || name == "--git-dir" || name == "--work-tree" || name == "--namespace" || name == "--config-env" || name == "--exec-path" && eq || name == "--super-prefix" || name == "--attr-source"
		if needs && !eq || name == "-c" || name == "-C" {
			if len(args) < 2 {
				return
			}
			v = args[1]
			args = args[1:]
		}
		switch name {
		case "-C":
			dir, hasDir = v, true
		case "-c":
			k, x, ok := strings.Cut(v.s, "=")
			if !ok {
				x = "true"
			}
			if executingKey(k) {
				w.gitKeyRuns(k, val{s: x, data: v.data, taint: v.taint}, "git -c")
			} else if strings.HasPrefix(k, "remote.") && strings.HasSuffix(strings.ToLower(k), "url") {
				w.gitRemote(val{s: x, data: v.data, taint: v.taint}, nil, true)
			}
		case "--config-env":
			if k, n, ok := strings.Cut(v.s, "="); ok && executingKey(k) {
				x, _ := w.lookup(n)
				w.gitKeyRuns(k, x, "git --config-env")
			}
		case "--git-dir", "--work-tree":
			w.reads(v)
		case "--exec-path":
			if v.s != "" {
				w.emit(cordon.Effect{Kind: cordon.SetEnv, Target: "GIT_EXEC_PATH", Text: dropMarks(v.s)})
			}
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	run := func() { w.gitSub(c, args[0].s, args[1:]) }
	if hasDir {
		w.lists(dir, false)
		w.inDir(dir, run)
		return
	}
	run()
}

// gitTakes are options of git sub-commands that take the next word.
var gitTakes = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"clone":         "-b --branch -o --origin --depth -c --config -u --upload-pack --reference --template --separate-git-dir -j --jobs --filter --shallow-since --server-option --bundle-uri",
		"commit":        "-m --message -F --file -C -c --author --date --fixup --squash -t --template --reuse-message --reedit-message --trailer --cleanup --pathspec-from-file",
		"push":          "-o --push-option --repo --receive-pack --exec",
		"fetch":         "--depth --upload-pack -j --jobs --refmap -o --server-option --negotiation-tip --shallow-since",
		"pull":          "--depth --upload-pack -s --strategy -X --strategy-option -j --jobs",
		"rebase":        "-x --exec --onto -s --strategy -X -C --whitespace",
		"log":           "-n --max-count --format --since --until --author --grep -S -G -L --output --after --before",
		"diff":          "-O --output -S -G -U",
		"show":          "--output --format",
		"archive":       "-o --output --remote --exec --prefix --format --add-file",
		"tag":           "-m -F --file -u --sort --format -n",
		"bisect":        "",
		"grep":          "-e -f -O --max-depth -A -B -C -m --threads",
		"worktree":      "-b -B --reason",
		"checkout":      "-b -B --orphan --pathspec-from-file",
		"switch":        "-c -C --orphan --create",
		"config":        "-f --file --blob --type --default --get-color --comment --value --url",
		"submodule":     "-b --name --reference --depth -j",
		"apply":         "-p --directory --exclude --include -C --whitespace",
		"am":            "-p --directory --exclude --include -C -S",
		"init":          "--template --separate-git-dir -b --initial-branch --object-format --ref-format",
		"format-patch":  "-o --output-directory --start-number --subject-prefix --to --cc --suffix --signature-file --signature",
		"blame":         "-L -S --contents --ignore-rev --ignore-revs-file --since",
		"merge":         "-m -s -X -F --file --into-name",
		"notes":         "-m -F -C -c --ref",
		"stash":         "-m --message --pathspec-from-file",
		"difftool":      "-t --tool -x --extcmd",
		"filter-branch": "--env-filter --tree-filter --index-filter --parent-filter --msg-filter --commit-filter --tag-name-filter --subdirectory-filter -d --original --setup",
		"hash-object":   "-t --path",
		"send-email":    "--to --cc --bcc --from --smtp-server --smtp-server-port --smtp-user --smtp-pass --sendmail-cmd --subject --compose --in-reply-to",
		"ls-remote":     "--upload-pack --exec -o --server-option --sort",
		"clean":         "-e --exclude",
		"cat-file":      "--batch-command",
		"reset":         "--pathspec-from-file",
		"bundle":        "",
		"mergetool":     "-t --tool",
		"fast-export":   "--export-marks --import-marks",
		"fast-import":   "--export-marks --import-marks",
		"range-diff":    "",
		"shortlog":      "",
		"maintenance":   "--task --schedule --scheduler",
		"rm":            "--pathspec-from-file",
		"svn":           "",
		"instaweb":      "-d --httpd -p --port -b --browser -m --module-path",
	}
})

// gitArgs sorts a sub-command's words.
type gitArgs struct {
	opts []optUse
	ops  []val
	tail []val // after "--"
}

func (g *gitArgs) has(names ...string) bool {
	for _, o := range g.opts {
		for _, n := range names {
			if o.name == n {
				return true
			}
		}
	}
	return false
}

func parseGit(sub string, args []val) gitArgs {
	var g gitArgs
	takes := strings.Fields(gitTakes()[sub])
	for i := 0; i < len(args); i++ {
		s := args[i].s
		switch {
		case s == "--":
			g.tail = args[i+1:]
			return g
		case strings.HasPrefix(s, "--"):
			name, value, eq := strings.Cut(s, "=")
			name = abbreviation(name, takes)
			u := optUse{name: name, v: val{s: value, data: args[i].data, taint: args[i].taint}, has: eq}
			if !eq && contains(takes, name) && i+1 < len(args) {
				i++
				u.v, u.has = args[i], true
			}
			g.opts = append(g.opts, u)
		case len(s) > 1 && s[0] == '-':
			for k := 1; k < len(s); k++ {
				name := "-" + s[k:k+1]
				u := optUse{name: name}
				if contains(takes, name) {
					if rest := s[k+1:]; rest != "" {
						u.v, u.has = val{s: rest, data: args[i].data, taint: args[i].taint}, true
					} else if i+1 < len(args) {
						i++
						u.v, u.has = args[i], true
					}
					g.opts = append(g.opts, u)
					break
				}
				g.opts = append(g.opts, u)
			}
		default:
			g.ops = append(g.ops, args[i])
		}
	}
	return g
}

// gitLongs are dangerous long options, completed from a prefix as git does.
var gitLongs = []string{"--upload-pack", "--receive-pack", "--exec", "--force", "--force-with-lease", "--mirror", "--delete", "--prune", "--no-index", "--output", "--template", "--extcmd", "--config", "--file", "--open-files-in-pager", "--ext-diff"}

func abbreviation(name string, takes []string) string {
	if len(name) < 4 || contains(takes, name) || contains(gitLongs, name) {
		return name
	}
	for _, l := range [...][]string{takes, gitLongs} {
		for _, x := range l {
			if strings.HasPrefix(x, name) {
				return x
			}
		}
	}
	return name
}

func (w *walker) gitSub(c *inv, sub string, args []val) {
	if text, ok := w.gitConf["alias."+strings.ToLower(sub)]; ok {
		if cmd, shell := strings.CutPrefix(text, "!"); shell {
			w.turn(val{s: cmd + " " + joinVals(args, " ").s}, "git alias "+sub, c.io)
		} else {
			w.turn(val{s: "git " + text + " " + joinVals(args, " ").s}, "git alias "+sub, c.io)
		}
		return
	}
	g := parseGit(sub, args)
	w.gitCommon(c, sub, &g)
	switch sub {
	case "push":
		w.gitPush(&g)
	case "fetch", "pull", "clone", "ls-remote", "remote", "submodule", "fetch-pack", "send-pack":
		w.gitNet(sub, &g)
	case "config":
		w.gitConfig(c, &g)
	case "rebase", "bisect", "filter-branch", "difftool", "grep", "submodule--helper", "for-each-repo":
		w.gitRuns(c, sub, &g, args)
	case "diff":
		if g.has("--no-index") || outside(w, g.ops) {
			for _, v := range append(g.ops, g.tail...) {
				w.readsAll(v)
				c.took(v)
			}
		}
	case "hash-object", "apply", "am", "blame", "mailinfo", "mailsplit", "stripspace", "patch-id", "interpret-trailers", "check-ignore", "annotate":
		if g.has("--unsafe-paths") {
			w.opaque("git "+sub+" --unsafe-paths writes outside of the working tree", cordon.OriginFile, "")
		}
		for _, v := range append(g.ops, g.tail...) {
			if sub == "hash-object" || sub == "apply" || sub == "am" || pathLike(v.s) {
				w.reads(v)
				c.took(v)
			}
		}
	case "init":
		for _, v := range g.ops {
			w.writes(v, "create")
		}
	case "worktree":
		if len(g.ops) > 1 && (g.ops[0].s == "add" || g.ops[0].s == "move") {
			w.writes(g.ops[1], "create")
		}
		if len(g.ops) > 1 && g.ops[0].s == "remove" {
			w.deletes(g.ops[1], true)
		}
	case "bundle":
		if len(g.ops) > 1 && g.ops[0].s == "create" {
			w.writes(g.ops[1], "create")
		}
	case "checkout", "restore", "rm", "mv", "add":
		for _, v := range append(append([]val(nil), g.ops...), g.tail...) {
			if pathLike(v.s) && !strings.Contains(v.s, ":") {
				if sub == "add" {
					w.readsAll(v)
				} else if k := w.key(v); k != w.env.Workspace {
					w.writes(v, "")
				}
			}
		}
	case "checkout-index":
		for _, o := range g.opts {
			if o.name == "--prefix" && o.has {
				w.writes(o.v, "create")
			}
		}
	case "clean":
		for _, v := range append(g.ops, g.tail...) {
			if v.s != "." {
				w.deletes(v, true)
			}
		}
	case "daemon", "instaweb", "http-backend":
		w.emit(cordon.Effect{Kind: cordon.Connect, Target: ":9418", Op: "listen"})
	case "send-email":
		for _, o := range g.opts {
			if strings.HasPrefix(o.name, "--sendmail-cmd") || o.name == "--to-cmd" || o.name == "--cc-cmd" {
				w.turn(o.v, "git send-email "+o.name, stdio{})
			}
			if o.name == "--smtp-server" {
				w.connect(o.v, "smtp", nil, true)
			}
		}
		for _, v := range g.ops {
			w.reads(v)
		}
	case "credential":
		if len(g.ops) > 0 && g.ops[0].s == "fill" {
			w.emit(cordon.Effect{Kind: cordon.Administer, Op: "credential", Target: "git credential"})
		}
	case "credential-store", "credential-cache":
		w.reads(val{s: w.homePath(".git-credentials")})
	case "maintenance":
		if len(g.ops) > 0 && g.ops[0].s == "start" {
			w.emit(cordon.Effect{Kind: cordon.Persist, Op: "cron", Target: "git maintenance", Doubtful: true})
		}
	case "update-index", "commit", "merge", "tag", "notes", "stash", "log", "show", "format-patch", "archive", "shortlog":
	case "svn", "p4", "cvsimport":
		for _, v := range g.ops {
			if strings.Contains(v.s, "://") {
				w.connectURL(v, nil, false)
			}
		}
	}
	w.gitOutput(c, sub, &g)
}

func outside(w *walker, ops []val) bool {
	for _, v := range ops {
		if k := w.key(v); pathLike(v.s) && k != "" && !w.inside(v) {
			return true
		}
	}
	return false
}

// gitCommon applies the options that mean the same everywhere.
func (w *walker) gitCommon(c *inv, sub string, g *gitArgs) {
	for _, o := range g.opts {
		switch o.name {
		case "--upload-pack", "--receive-pack", "-u", "--exec":
			if o.name == "-u" && sub != "clone" || o.name == "--exec" && (sub == "rebase" || sub == "grep") {
				continue
			}
			if o.has {
				w.turn(o.v, "git "+sub+" "+o.name, stdio{})
			}
		case "--output", "-o", "--output-directory":
			if o.has && (sub == "archive" || sub == "format-patch" || o.name == "--output") {
				w.writes(o.v, "create")
			}
		case "-F", "--file", "--template", "-t", "--pathspec-from-file", "-O", "--contents", "--ignore-revs-file", "--add-file", "--signature-file", "--import-marks":
			if !o.has || sub == "config" || o.name == "-t" && sub != "commit" || o.name == "-F" && sub == "log" || o.name == "-O" && sub == "grep" {
				continue
			}
			if o.name == "--template" {
				w.emit(cordon.Effect{Kind: cordon.Persist, Op: "git_hook", Target: dropMarks(o.v.s), Doubtful: true})
			}
			if o.v.s != "-" {
				w.reads(o.v)
				c.took(o.v)
			}
		case "-c", "--config":
			if sub == "clone" && o.has {
				if k, x, _ := strings.Cut(o.v.s, "="); executingKey(k) {
					w.gitKeyRuns(k, val{s: x, data: o.v.data}, "git clone -c")
				}
			}
		case "--separate-git-dir", "--reference", "--export-marks":
			if o.has {
				w.writes(o.v, "create")
			}
		case "--remote":
			if sub == "archive" {
				w.gitRemote(o.v, nil, false)
			}
		case "-m", "--message":
			w.tells(o.v.data)
		}
	}
}

// gitRemote emits the connection of a remote's address.
func (w *walker) gitRemote(v val, data []string, sends bool) {
	s := v.s
	if i := strings.Index(s, "::"); i > 0 && !strings.Contains(s[:i], "/") {
		switch s[:i] {
		case "ext":
			cmd := strings.ReplaceAll(s[i+2:], "% ", " ")
			w.emit(cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginLiteral, Doubtful: true, Text: cmd, Reason: "a git transport that runs a command"})
			w.turn(val{s: cmd, data: v.data, taint: v.taint}, "git ext::", stdio{})
			return
		case "fd":
			return
		}
		s = s[i+2:]
	}
	switch {
	case strings.HasPrefix(s, "-"):
	case strings.Contains(s, "://"):
		if strings.HasPrefix(s, "file://") {
			w.readsAll(val{s: s[7:]})
			return
		}
		w.connectURL(val{s: s, data: v.data, taint: v.taint}, data, sends)
	default:
		if h, _, ok := remoteSpec(s); ok && h != "" {
			w.connect(val{s: h, data: v.data}, "ssh", data, sends)
			return
		}
		if strings.HasPrefix(s, "/") || strings.HasPrefix(s, ".") || strings.HasPrefix(s, "~") {
			w.readsAll(v)
		}
	}
}

func (w *walker) gitPush(g *gitArgs) {
	force := ""
	doubt := false
	for _, o := range g.opts {
		switch o.name {
		case "-f", "--force", "--mirror", "-d", "--delete", "--prune":
			force = o.name
		case "--force-with-lease", "--force-if-includes":
			if force == "" && o.name == "--force-with-lease" {
				force, doubt = o.name, true
			}
		}
	}
	ops := append(append([]val(nil), g.ops...), g.tail...)
	for i, v := range ops {
		if i > 0 && len(v.s) > 1 && (v.s[0] == '+' || v.s[0] == ':' || strings.HasPrefix(v.s, mUnset+":")) {
			force, doubt = v.s, false
		}
	}
	if force != "" {
		w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "force_push", Target: dropMarks(force), Doubtful: doubt})
	}
	if len(ops) > 0 {
		remote := ops[0]
		if url, ok := w.gitConf["remote."+remote.s]; ok {
			remote = val{s: url}
		}
		w.gitRemote(remote, []string{"."}, true)
	}
	for _, o := range g.opts {
		if o.name == "--repo" && o.has {
			w.gitRemote(o.v, []string{"."}, true)
		}
	}
}

func (w *walker) gitNet(sub string, g *gitArgs) {
	ops := append(append([]val(nil), g.ops...), g.tail...)
	if len(ops) == 0 {
		return
	}
	switch sub {
	case "remote":
		if (ops[0].s == "add" || ops[0].s == "set-url") && len(ops) > 2 {
			w.gitRemote(ops[2], nil, true)
			if w.gitConf == nil {
				w.gitConf = make(map[string]string)
			}
			w.gitConf["remote."+ops[1].s] = ops[2].s
		}
		return
	case "submodule":
		if ops[0].s == "add" && len(ops) > 1 {
			w.gitRemote(ops[1], nil, false)
		}
		if ops[0].s == "foreach" && len(ops) > 1 {
			w.turn(joinVals(ops[1:], " "), "git submodule foreach", stdio{})
		}
		return
	}
	remote := ops[0]
	if url, ok := w.gitConf["remote."+remote.s]; ok {
		remote = val{s: url}
	}
	w.gitRemote(remote, nil, false)
	if sub == "clone" && len(ops) > 1 {
		w.writes(ops[1], "create")
	}
}

// gitConfig: writing a key that git executes persists it.
func (w *walker) gitConfig(c *inv, g *gitArgs) {
	ops := append(append([]val(nil), g.ops...), g.tail...)
	if len(ops) > 0 && (ops[0].s == "set" || ops[0].s == "add") {
		ops = ops[1:]
	} else if len(ops) > 0 && (ops[0].s == "get" || ops[0].s == "list" || ops[0].s == "unset") {
		ops = nil
	}
	for _, o := range g.opts {
		if (o.name == "-f" || o.name == "--file") && o.has {
			w.reads(o.v)
			if len(ops) > 1 {
				w.writes(o.v, "")
			}
		}
	}
	if g.has("--global", "--system") && len(ops) > 1 && !g.has("--get", "--get-all", "--list", "-l", "--unset") {
		if executingKey(ops[0].s) {
			w.writes(val{s: w.homePath(".gitconfig")}, "")
		}
	}
	if g.has("-e", "--edit") || g.has("--get", "--get-all", "--list", "-l", "--unset", "--unset-all", "--get-regexp", "--get-urlmatch") || len(ops) < 2 {
		return
	}
	k := ops[0].s
	if name, ok := strings.CutPrefix(k, "remote."); ok && (strings.HasSuffix(k, ".url") || strings.HasSuffix(k, ".pushurl")) {
		w.gitRemote(ops[1], nil, true)
		if w.gitConf == nil {
			w.gitConf = make(map[string]string)
		}
		w.gitConf["remote."+name[:strings.LastIndexByte(name, '.')]] = ops[1].s
	}
	if !executingKey(k) {
		return
	}
	if !harmlessGitValue(k, ops[1].s) {
		w.emit(cordon.Effect{Kind: cordon.Persist, Op: "git_config", Target: dropMarks(k), Text: dropMarks(ops[1].s)})
	}
	w.gitKeyRuns(k, ops[1], "git config")
}

// harmlessGitValue: settings that people make every day.
func harmlessGitValue(k, v string) bool {
	k = strings.ToLower(k)
	if strings.HasPrefix(k, "alias.") {
		return !strings.HasPrefix(v, "!") && !strings.Contains(v, "-c") && !strings.Contains(v, "--upload-pack")
	}
	switch v {
	case "cat", "less", "delta", "less -FRX", "vim", "vi", "nano", "code --wait", "true", "false", "store", "cache", "", "osxkeychain", "manager", "libsecret", ".husky", ".githooks", ".husky/_", "emacs", "vimdiff", "meld", "ssh", "gpg":
		return !strings.HasSuffix(k, "sslverify") || v != "false"
	}
	return false
}

func (w *walker) gitRuns(c *inv, sub string, g *gitArgs, args []val) {
	switch sub {
	case "bisect":
		for i, a := range args {
			if a.s == "run" && i+1 < len(args) {
				w.sub(args[i+1:], stdio{}, "git bisect run")
				return
			}
		}
	case "difftool":
		for _, o := range g.opts {
			if o.name == "-x" || o.name == "--extcmd" {
				w.turn(o.v, "git difftool -x", stdio{})
			}
		}
	case "grep":
		for _, o := range g.opts {
			if (o.name == "-O" || o.name == "--open-files-in-pager") && o.has {
				w.turn(o.v, "git grep -O", stdio{})
			}
		}
		if g.has("--no-index") {
			for i, v := range append(g.ops, g.tail...) {
				if i > 0 {
					w.readsAll(v)
					c.took(v)
				}
			}
		}
	case "rebase":
		for _, o := range g.opts {
			if (o.name == "-x" || o.name == "--exec") && o.has {
				w.turn(o.v, "git rebase -x", stdio{})
			}
		}
	case "filter-branch":
		for _, o := range g.opts {
			if strings.HasSuffix(o.name, "-filter") && o.name != "--subdirectory-filter" && o.has {
				w.turn(o.v, "git filter-branch", stdio{in: &val{s: mFile}})
			}
		}
	case "for-each-repo":
		w.sub(append([]val{{s: "git"}}, g.ops...), stdio{}, "git for-each-repo")
	}
}

func (w *walker) gitOutput(c *inv, sub string, g *gitArgs) {
	switch sub {
	case "rev-parse":
		switch {
		case g.has("--show-toplevel"):
			c.print(val{s: w.env.Workspace + "\n"})
		case g.has("--git-dir"):
			c.print(val{s: ".git\n"})
		case g.has("--show-prefix", "--show-cdup"):
			c.print(val{s: mPath + "\n"})
		default:
			c.print(val{s: mName + "\n"})
		}
	case "ls-files", "ls-tree", "check-ignore":
		c.print(val{s: mPath + "\n"})
	case "diff", "show", "log", "status", "diff-tree", "diff-index", "grep":
		if g.has("--name-only", "-l", "--files-with-matches") {
			c.print(val{s: mPath + "\n"})
			return
		}
		c.print(val{s: mFile, data: c.out.data, taint: tFile})
		if sub == "status" || sub == "log" || sub == "diff" && len(c.out.data) == 0 {
			c.print(val{s: mUnknown, data: c.out.data})
		}
	case "describe", "merge-base", "rev-list", "symbolic-ref", "branch", "tag", "for-each-ref", "name-rev", "hash-object", "write-tree", "stash", "var", "version":
		if sub == "branch" && (g.has("-D", "-d")) {
			return
		}
		c.print(val{s: mName + "\n", data: c.out.data})
	case "remote":
		c.print(val{s: mName + "\n"})
	case "config":
		c.print(val{s: mName + "\n"})
	}
}
