package lower

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// change is one file that a patch names.
type change struct {
	path  string
	kind  cordon.Kind
	op    string
	bytes int64
	// doubtful: the line may be text in the patch rather than a heading.
	doubtful bool
}

const maxChanges = 2048

// readPatch finds the files that a patch changes, in the *** form of
// apply_patch and in unified diffs. Headings are taken generously: with space
// around them, in any case, within a here-document.
func readPatch(s string) []change {
	var out []change
	inHunk := false
	for line := range strings.SplitSeq(s, "\n") {
		if len(out) >= maxChanges {
			break
		}
		c, ok := heading(line)
		if !ok {
			c, ok = diffHeading(line, inHunk)
			inHunk = (inHunk || strings.HasPrefix(line, "@@")) && !strings.HasPrefix(line, "diff ") && !ok
		}
		switch {
		case !ok:
			if n := len(out); n > 0 && len(line) > 0 && line[0] == '+' {
				out[n-1].bytes += int64(len(line))
			}
			continue
		case c.op == "move":
			// The file that was being updated goes away.
			if n := len(out); n > 0 {
				out = append(out, change{path: out[n-1].path, kind: cordon.Delete})
			}
		}
		out = append(out, c)
	}
	return out
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
			path := unquote(strings.TrimSpace(rest[len(h.text):]))
			return change{path: path, kind: h.kind, op: h.op, doubtful: line[0] == ' '}, path != ""
		}
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
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
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
		w.emit(cordon.Effect{Kind: c.kind, Target: c.path, Op: c.op, Doubtful: c.doubtful})
		if c.kind == cordon.Write {
			w.bytes += c.bytes
		}
		if strings.IndexByte(c.path, 0) >= 0 {
			w.opaque("malformed: NUL byte in a path", "")
		}
	}
}
