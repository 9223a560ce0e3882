package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

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
	if c.has("--dry-run") {
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
