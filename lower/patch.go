package lower

import (
	"path"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// change is one file that a patch names.
type change struct {
	path  string
	kind  cordon.Kind
	op    string
	bytes int64
	// dir is the directory that a relative path starts from; empty is the
	// call's.
	dir string
	// doubtful: the line may be text in the patch rather than a heading.
	doubtful bool
}

const maxChanges = 2048

// readPatch finds the files that a patch changes, in the *** form of
// apply_patch and in unified diffs. Headings are taken generously: with space
// around them, in any case, within a here-document.
func readPatch(s string) []change {
	var out []change
	inHunk, link := false, false
	// bare is the file of a git heading that no other heading has named yet,
	// as for one that is empty or changes its mode alone.
	bare := ""
	flush := func() {
		if bare != "" {
			out = append(out, change{path: bare, kind: cordon.Write})
		}
		bare = ""
	}
	// A context diff has *** for --- and --- for +++.
	context := strings.Contains(s, "\n***************")
	for line := range strings.SplitSeq(s, "\n") {
		if context && strings.HasPrefix(line, "--- ") {
			if strings.HasSuffix(strings.TrimSpace(line), " ----") {
				continue // the range of a hunk
			}
			line = "+++ " + line[len("--- "):]
		}
		if len(out) >= maxChanges {
			break
		}
		c, ok := heading(line)
		if name := gitHeading(line); name != "" {
			flush()
			bare = name
		}
		if !ok {
			c, ok = diffHeading(line, inHunk)
			inHunk = (inHunk || strings.HasPrefix(line, "@@")) && !strings.HasPrefix(line, "diff ") && !ok
		}
		switch {
		case !ok:
			if strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "new file mode ") || strings.HasPrefix(line, "new mode ") {
				link = strings.HasSuffix(strings.TrimSpace(line), " 120000")
			}
			if n := len(out); n > 0 && len(line) > 0 && line[0] == '+' {
				out[n-1].bytes += int64(len(line))
				if link && out[n-1].kind == cordon.Write && out[n-1].op == "" {
					out[n-1].op, link = "link", false
					out = append(out, change{path: strings.TrimSpace(line[1:]), kind: cordon.Read, op: "link", dir: path.Dir(out[n-1].path)})
				}
			}
			continue
		case c.op == "move":
			// The file that was being updated goes away.
			if n := len(out); n > 0 {
				out = append(out, change{path: out[n-1].path, kind: cordon.Delete})
			}
		}
		bare = ""
		out = append(out, c)
		// GNU patch takes the older name where that file is there.
		if n := len(out) - 2; n >= 0 && strings.HasPrefix(line, "+++ ") && out[n].kind == cordon.Read && out[n].op == "" && out[n].path != c.path {
			out = append(out, change{path: out[n].path, kind: cordon.Write, doubtful: true})
		}
	}
	flush()
	return out
}

// gitHeading is the new name in "diff --git a/x b/x", or "".
func gitHeading(line string) string {
	rest, ok := strings.CutPrefix(strings.TrimRight(line, " \t\r"), "diff --git ")
	if !ok {
		return ""
	}
	if i := strings.LastIndex(rest, " b/"); i >= 0 {
		return rest[i+len(" b/"):]
	}
	if i := strings.LastIndex(rest, ` "b/`); i >= 0 {
		return strings.Trim(rest[i+len(` "b/`):], `"`)
	}
	return rest[strings.LastIndexByte(rest, ' ')+1:]
}

var headings = []struct {
	text string
	kind cordon.Kind
	op   string
}{
	{"add file:", cordon.Write, "create"},
	{"create file:", cordon.Write, "create"},
	{"update file:", cordon.Write, ""},
	{"delete file:", cordon.Delete, ""},
	{"remove file:", cordon.Delete, ""},
	{"move to:", cordon.Write, "move"},
	{"move file to:", cordon.Write, "move"},
	{"rename to:", cordon.Write, "move"},
}

func heading(line string) (change, bool) {
	t := strings.TrimSpace(line)
	rest, ok := strings.CutPrefix(t, "***")
	if !ok {
		return change{}, false
	}
	rest = strings.TrimLeft(rest, " \t")
	for _, h := range headings {
		if len(rest) >= len(h.text) && strings.EqualFold(rest[:len(h.text)], h.text) {
			name := unquote(strings.TrimSpace(rest[len(h.text):]))
			return change{path: name, kind: h.kind, op: h.op, doubtful: line[0] == ' '}, name != ""
		}
	}
	// Other tools have other verbs.
	if verb, name, ok := strings.Cut(rest, ":"); ok && len(verb) < 24 && strings.HasSuffix(strings.ToLower(verb), "file") {
		name = unquote(strings.TrimSpace(name))
		return change{path: name, kind: cordon.Write, doubtful: true}, name != ""
	}
	return change{}, false
}

// diffHeading reads the headings of a unified or git diff. Within a hunk a
// line that starts with --- may be a removed line, so that what it names is
// taken all the same, doubtfully.
func diffHeading(line string, inHunk bool) (change, bool) {
	kind, op := cordon.Write, ""
	var rest string
	ok := false
	for _, p := range [...]string{"+++ ", "rename to ", "copy to ", "--- ", "rename from ", "copy from ", "*** "} {
		if rest, ok = strings.CutPrefix(line, p); !ok {
			continue
		}
		switch p {
		case "--- ", "copy from ":
			kind = cordon.Read
		case "*** ":
			return change{}, false
		case "rename from ":
			kind = cordon.Delete
		case "rename to ":
			op = "" // rename from has been emitted
		}
		break
	}
	if !ok {
		return change{}, false
	}
	rest, _, _ = strings.Cut(rest, "\t")
	rest = unquote(strings.TrimSpace(rest))
	if rest == "" || rest == "/dev/null" {
		return change{}, false
	}
	if len(rest) > 2 && (rest[:2] == "a/" || rest[:2] == "b/") {
		rest = rest[2:]
	}
	return change{path: rest, kind: kind, op: op, doubtful: inHunk}, true
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'' || s[0] == '`') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// patch lowers the text of a patch.
func (w *walker) patch(s string) {
	if strings.TrimSpace(s) == "" {
		return
	}
	changes := readPatch(s)
	if len(changes) == 0 {
		w.opaque("malformed: a patch that names no file", s)
		return
	}
	if len(changes) >= maxChanges {
		w.opaque("malformed: a patch of too many files", "")
	}
	w.path = true
	for _, c := range changes {
		w.emit(c.effect())
		if c.kind == cordon.Write {
			w.bytes += c.bytes
		}
		if strings.IndexByte(c.path, 0) >= 0 {
			w.opaque("malformed: NUL byte in a path", "")
		}
	}
}

// effect is what a change does. A link leads from its own directory.
func (c *change) effect() cordon.Effect {
	target := c.path
	if c.dir != "" && !path.IsAbs(target) {
		target = c.dir + "/" + target
	}
	return cordon.Effect{Kind: c.kind, Target: target, Op: c.op, Doubtful: c.doubtful}
}

// patched gives the effects of the patches in a command line that hands them
// to a program which applies them: the readers of the shell know the program,
// not the form of its input.
func patched(es []cordon.Effect, src, dir string) []cordon.Effect {
	if !strings.Contains(src, "***") && !strings.Contains(src, "+++ ") && !strings.Contains(src, "rename to ") && !strings.Contains(src, "copy to ") && !strings.Contains(src, "diff --git ") {
		return nil
	}
	at := applies(es, src)
	if at < 0 {
		return nil
	}
	dirs := []string{dir}
	if moved := changedTo(src[:at], dir); moved != "" {
		dirs = []string{moved}
	}
	text := src[at:]
	if t := strings.TrimLeft(text, " "); t != "" && (t[0] == '\'' || t[0] == '"') {
		text = t[1:]
	}
	var out []cordon.Effect
	changes := readPatch(text)
	if len(changes) == 0 {
		// The patch may stand before the program it is piped to.
		changes = readPatch(src)
	}
	if len(changes) == 0 && strings.Contains(src, `\n`) {
		changes = readPatch(strings.ReplaceAll(src, `\n`, "\n"))
	}
	for _, c := range changes {
		for _, d := range dirs {
			e := c.effect()
			e.Dir, e.Bytes = d, c.bytes
			out = append(out, e)
		}
	}
	return out
}

// applies finds where the program that applies a patch is started, or -1.
func applies(es []cordon.Effect, src string) int {
	for i := range es {
		if es[i].Kind != cordon.Execute {
			continue
		}
		name := es[i].Target[strings.LastIndexByte(es[i].Target, '/')+1:]
		switch name {
		case "apply_patch", "applypatch", "patch":
			if at := strings.Index(src, name); at >= 0 {
				return at + len(name)
			}
		case "git":
			if at := gitApplies(src); at >= 0 {
				return at
			}
		}
	}
	return -1
}

// gitApplies finds "git apply" or "git am", with options between, or -1.
func gitApplies(src string) int {
	for at := 0; ; {
		i := strings.Index(src[at:], "git ")
		if i < 0 {
			return -1
		}
		at += i
		rest := src[at+len("git "):]
		rest = rest[:min(len(rest), 1024)]
		if end := strings.IndexAny(rest, "\n;|&"); end >= 0 {
			rest = rest[:end]
		}
		value := false
		for word := range strings.FieldsSeq(rest) {
			switch {
			case value:
				value = false
				continue
			case word[0] == '-':
				value = word == "-C" || word == "-c"
				continue
			case word == "apply" || word == "am":
				return at
			}
			break
		}
		at += len("git ")
	}
}

// changedTo is the directory that the last cd before a command goes to, or
// "" where there is none that can be told.
func changedTo(src, dir string) string {
	i := strings.LastIndex(src, "cd ")
	if i < 0 || i > 0 && !strings.ContainsRune(" ;&\n('\"", rune(src[i-1])) {
		return ""
	}
	to := strings.TrimSpace(src[i+len("cd "):])
	if end := strings.IndexAny(to, " \t;&|\n"); end >= 0 {
		to = to[:end]
	}
	to = unquote(to)
	switch {
	case to == "" || strings.ContainsAny(to, "$`~*?\\"):
		return ""
	case path.IsAbs(to):
		return to
	}
	return dir + "/" + to
}
