package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tailscale/hujson"
)

var opts = Options{Command: "/usr/local/bin/cordon", Args: []string{"--mode", "enforce"}}

// samples are settings files as people have them.
var samples = map[string]string{
	"an empty object":                      `{}`,
	"an empty object with a line break":    "{\n}\n",
	"an empty object with a space":         "{ }",
	"an empty object with a comment":       "{ // nothing yet\n}\n",
	"other settings":                       "{\n  \"model\": \"opus\",\n  \"env\": {\"A\": \"b\"}\n}\n",
	"no final line end":                    "{\n  \"model\": \"opus\"\n}",
	"tabs":                                 "{\n\t\"model\": \"opus\",\n\t\"x\": [1, 2]\n}\n",
	"four spaces":                          "{\n    \"model\": \"opus\"\n}\n",
	"CRLF":                                 "{\r\n  \"model\": \"opus\"\r\n}\r\n",
	"one line":                             `{"model":"opus","permissions":{"allow":[]}}`,
	"a byte order mark":                    "\xef\xbb\xbf{\n  \"a\": 1\n}\n",
	"comments everywhere":                  "// top\n{\n  // model\n  \"model\": \"opus\", // fast\n  /* env */ \"env\": {} // last\n  // end\n}\n// bottom\n",
	"a comment behind a last member, CRLF": "{\r\n  \"a\": 1 // x\r\n}\r\n",
	"a trailing comma":                     "{\n  \"a\": 1,\n}\n",
	"a trailing comma and a comment":       "{\n  \"a\": 1, // one\n  // two\n}\n",
	"one line with a comment":              "{\"a\": 1 /* x */}",
	"one line with a line comment":         "{\"a\": 1 // x\n}",
	"an empty hooks object":                `{"hooks": {}}`,
	"an empty hooks object on two lines":   "{\n  \"hooks\": {\n  }\n}\n",
	"empty lists":                          "{\n  \"hooks\": {\n    \"PreToolUse\": [],\n    \"BeforeTool\": [\n    ],\n    \"beforeShellExecution\": [ ]\n  },\n  \"version\": 1\n}\n",
	"hooks of others":                      "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      {\n        \"matcher\": \"Bash\",\n        \"hooks\": [{\"type\": \"command\", \"command\": \"lint\"}]\n      }\n    ],\n    \"Stop\": [{\"hooks\": []}]\n  },\n  \"z\": null\n}\n",
	"a group with an empty list":           "{\"hooks\":{\"PreToolUse\":[{\"matcher\":\"X\",\"hooks\":[]}]}}",
	"escapes and look-alikes in strings":   "{\"a\": \"// no comment \\\" , } ]\", \"b\\u0061\": \"/* */\"}",
	"a group that is no object":            "{\"hooks\":{\"PreToolUse\":[7,null,\"x\"],\"BeforeTool\":[{\"hooks\":7}]}}",
}

func withVersion(agent, text string) string {
	if agent != "cursor" || strings.Contains(text, `"version"`) || bytes.HasPrefix([]byte(text), bom) {
		return text
	}
	f, err := read(&specs[2], []byte(text))
	if err != nil || len(parts(&f.root)) == 0 {
		return text
	}
	return strings.Replace(text, "{", `{"version": 1, `, 1)
}

func TestInstallThenUninstallGivesTheFileBack(t *testing.T) {
	for _, agent := range Agents() {
		for name, text := range samples {
			text = withVersion(agent, text)
			checkRoundTrip(t, agent+": "+name, agent, []byte(text))
		}
	}
}

func checkRoundTrip(t *testing.T, what, agent string, old []byte) {
	t.Helper()
	added, err := Add(agent, old, opts)
	if err != nil {
		if agent == "cursor" && strings.Contains(err.Error(), "version") {
			return
		}
		t.Errorf("%s: add: %v", what, err)
		return
	}
	checkInstalled(t, what, agent, old, added)
	again, err := Add(agent, added, opts)
	if err != nil || !bytes.Equal(again, added) {
		t.Errorf("%s: adding twice is not adding once: %v\n%s", what, err, Diff("x", added, again))
	}
	// With other arguments and back: brought up to date in its place.
	other, err := Add(agent, added, Options{Command: opts.Command, Args: []string{"--mode", "shadow"}})
	if err != nil || bytes.Equal(other, added) {
		t.Errorf("%s: other arguments were not taken: %v", what, err)
	}
	for _, text := range [][]byte{added, other} {
		back, gone, err := Remove(agent, text)
		if err != nil || gone || !bytes.Equal(back, old) {
			t.Errorf("%s: not given back (gone %v, %v):\n%s\ninstalled:\n%s", what, gone, err, Diff("x", old, back), text)
		}
	}
	if back, gone, err := Remove(agent, old); err != nil || gone || !bytes.Equal(back, old) {
		t.Errorf("%s: removing what is not there changed the file (%v)", what, err)
	}
}

// checkInstalled compares the values: Cordon's hooks are there, all else is.
func checkInstalled(t *testing.T, what, agent string, old, added []byte) {
	t.Helper()
	s, _ := specOf(agent)
	hooks, err := Find(agent, added)
	if err != nil || len(hooks) != len(s.events) {
		t.Errorf("%s: found %d hooks, %v\n%s", what, len(hooks), err, added)
	}
	for i, h := range hooks {
		if diff := cmp.Diff([]string{opts.Command, "hook", agent, "--mode", "enforce"}, h.Words); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if s.Closes != "" && h.Closed != s.events[i].pre {
			t.Errorf("%s: %s is closed: %v", what, h.Event, h.Closed)
		}
	}
	var before, after map[string]any
	decode(t, old, &before)
	decode(t, added, &after)
	delete(before, "hooks")
	delete(after, "hooks")
	if _, was := before["version"]; !was {
		delete(after, "version")
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s: other settings changed:\n%s", what, diff)
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	std, err := hujson.Standardize(bytes.TrimPrefix(bytes.Clone(text), bom))
	if err == nil {
		err = json.Unmarshal(std, into)
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestAFileThatWasMadeIsRemoved(t *testing.T) {
	for _, agent := range Agents() {
		made, err := Add(agent, nil, opts)
		if err != nil {
			t.Fatal(err)
		}
		checkInstalled(t, agent, agent, []byte("{}"), made)
		if again, err := Add(agent, made, opts); err != nil || !bytes.Equal(again, made) {
			t.Errorf("%s: adding twice: %v\n%s", agent, err, Diff("x", made, again))
		}
		if text, gone, err := Remove(agent, made); err != nil || !gone || text != nil {
			t.Errorf("%s: gone %v, %v:\n%s", agent, gone, err, text)
		}
	}
}

func TestEditsInBetweenStay(t *testing.T) {
	for _, agent := range Agents() {
		old := []byte(withVersion(agent, "{\n  \"a\": 1 // one\n}\n"))
		added, err := Add(agent, old, opts)
		if err != nil {
			t.Fatal(err)
		}
		edited := bytes.Replace(added, []byte(`"a": 1`), []byte(`"a": [2, 3]`), 1)
		end := bytes.LastIndexByte(edited, '}')
		edited = append(append(bytes.TrimRight(edited[:end:end], "\n"), []byte(",\n  /* mine */ \"b\": {}\n")...), edited[end:]...)
		back, gone, err := Remove(agent, edited)
		if err != nil || gone {
			t.Fatal(err)
		}
		want := strings.Replace(string(old), `"a": 1 // one`, `"a": [2, 3], // one`, 1)
		want = strings.Replace(want, "\n}\n", "\n  /* mine */ \"b\": {}\n}\n", 1)
		if diff := cmp.Diff(want, string(back)); diff != "" {
			t.Errorf("%s: %s", agent, diff)
		}
	}
}

func TestAHandlerOfTheUsersInOurGroupStays(t *testing.T) {
	added, err := Add("claude", []byte(`{}`), opts)
	if err != nil {
		t.Fatal(err)
	}
	mine := `{"type": "command", "command": "mine"}`
	edited := bytes.Replace(added, []byte(`"hooks": [`), []byte(`"hooks": [`+mine+`,`), 1)
	back, _, err := Remove("claude", edited)
	if err != nil || !bytes.Contains(back, []byte(mine)) || bytes.Contains(back, []byte("cordon")) {
		t.Errorf("%v:\n%s", err, back)
	}
	decode(t, back, &map[string]any{})
}

func TestCommandsThatAreNotOursStay(t *testing.T) {
	for _, command := range []string{
		"cordon hook codex", "FOO=1 /usr/bin/cordon hook claude", "cordon hook claude; true", "cordon run -- x", "/x/accordion hook claude",
		"cordon hook claudette", "echo 'cordon hook claude'", "cordon hook", "'cordon hook claude", "",
	} {
		text, err := json.Marshal(map[string]any{"hooks": map[string]any{"PreToolUse": []any{map[string]any{"hooks": []any{map[string]any{"type": "command", "command": command}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if back, gone, err := Remove("claude", text); err != nil || gone || !bytes.Equal(back, text) {
			t.Errorf("%q was taken for ours: %v %s", command, err, back)
		}
	}
}

func TestTwiceInstalledIsOnce(t *testing.T) {
	one, err := Add("gemini", []byte("{}"), opts)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]map[string][]any
	decode(t, one, &v)
	v["hooks"]["BeforeTool"] = append(v["hooks"]["BeforeTool"], v["hooks"]["BeforeTool"]...)
	two, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Add("gemini", two, opts)
	if hooks, ferr := Find("gemini", again); err != nil || ferr != nil || len(hooks) != 3 {
		t.Errorf("%d hooks, %v %v", len(hooks), err, ferr)
	}
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":              {"model = 1", "not JSON"},
		"empty":                {"", "empty"},
		"white space":          {" \n", "empty"},
		"a list":               {"[]", "no JSON object"},
		"cut":                  {`{"a": 1`, "not JSON"},
		"hooks that is a list": {`{"hooks": []}`, "no JSON object"},
		"an event that is no list": {
			`{"hooks": {"PreToolUse": {}}}`, "no JSON array"},
		"hooks twice":     {`{"hooks": {}, "hooks": {}}`, "twice"},
		"an event twice":  {`{"hooks": {"PreToolUse": [], "PreToolUse": []}}`, "twice"},
		"invalid UTF-8":   {"{\"a\": \"\xff\"}", "UTF-8"},
		"too deep":        {strings.Repeat("[", 300), "deeper"},
		"too large":       {`{"a":"` + strings.Repeat("x", MaxFile) + `"}`, "larger"},
		"single quotes":   {`{'a': 1}`, "not JSON"},
		"data after it":   {`{} {}`, "not JSON"},
		"an open comment": {`{} /* `, "not JSON"},
	} {
		if _, err := Add("claude", []byte(c.text), opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v (want %q)", name, err, c.want)
		}
	}
	if _, err := Add("cursor", []byte(`{"hooks": {"stop": []}}`), opts); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("a file of Cursor's without a version: %v", err)
	}
	for _, o := range []Options{{Command: "cordon"}, {Command: "/a\nb"}, {Command: "/a", Args: []string{"\x00"}}} {
		if _, err := Add("claude", nil, o); err == nil {
			t.Errorf("%q was taken", o)
		}
	}
}

func TestDisabled(t *testing.T) {
	for text, want := range map[string]string{
		`{"disableAllHooks": true}`:               "disableAllHooks",
		`{"disableAllHooks": /* for now */ true}`: "disableAllHooks",
		`{"disableAllHooks": false}`:              "",
		`{"x": {"disableAllHooks": true}}`:        "",
	} {
		if got, err := Disabled("claude", []byte(text)); err != nil && want != "" || got != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
}

func TestQuoteIsUnquoted(t *testing.T) {
	for _, w := range []string{"", "a", "a b", "it's", "$HOME", "`x`", `"`, "\\", "''", "a'b'c", "--x=y", "日本"} {
		line := Options{Command: "/b in/cordon", Args: []string{w, "z"}}.line("codex")
		words, ok := unquote(line)
		if diff := cmp.Diff([]string{"/b in/cordon", "hook", "codex", w, "z"}, words); !ok || diff != "" {
			t.Errorf("%q: %v %s", line, ok, diff)
		}
	}
}

// randomFile writes a settings file with comments, odd spacing, unknown keys
// and, often, hooks.
func randomFile(r *rand.Rand, agent string) []byte {
	s, _ := specOf(agent)
	nl := []string{"\n", "\r\n"}[r.IntN(2)]
	gap := func() string {
		var b strings.Builder
		for range r.IntN(3) {
			b.WriteString([]string{" ", "\t", nl, nl + "  ", "/* c } */", " // l , ]" + nl, ""}[r.IntN(7)])
		}
		return b.String()
	}
	var value func(depth int) string
	list := func(open, end string, n int, item func(i int) string) string {
		var b strings.Builder
		b.WriteString(open + gap())
		for i := range n {
			b.WriteString(item(i) + gap())
			if i < n-1 || r.IntN(4) == 0 {
				b.WriteString("," + gap())
			}
		}
		return b.String() + end
	}
	value = func(depth int) string {
		switch k := r.IntN(8); {
		case k < 2 && depth > 0:
			return list("{", "}", r.IntN(3), func(i int) string {
				return fmt.Sprintf("%q", fmt.Sprint("k", i)) + gap() + ":" + gap() + value(depth-1)
			})
		case k < 4 && depth > 0:
			return list("[", "]", r.IntN(3), func(int) string { return value(depth - 1) })
		default:
			return []string{"1", "true", "null", `"x"`, `"} // ]"`, `"\u0041\""`}[r.IntN(6)]
		}
	}
	event := func(i int) string {
		name := fmt.Sprint("Other", i)
		if i < len(s.events) && r.IntN(2) == 0 {
			name = s.events[i].name
		}
		return fmt.Sprintf("%q", name) + gap() + ":" + gap() + list("[", "]", r.IntN(3), func(int) string { return value(2) })
	}
	keys := r.IntN(4)
	hooksAt, versionAt := r.IntN(6), r.IntN(4)
	return []byte(gap() + list("{", "}", keys, func(i int) string {
		switch {
		case i == hooksAt:
			return `"hooks"` + gap() + ":" + gap() + list("{", "}", r.IntN(4), event)
		case i == versionAt:
			return `"version"` + gap() + ":" + gap() + "1"
		}
		return fmt.Sprintf("%q", fmt.Sprint("key", i)) + gap() + ":" + gap() + value(3)
	}) + gap())
}

func TestAnyFileIsGivenBack(t *testing.T) {
	for seed := range uint64(800) {
		r := rand.New(rand.NewPCG(seed, 7))
		agent := Agents()[r.IntN(4)]
		old := randomFile(r, agent)
		if _, err := read(&specs[0], old); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, old)
		}
		checkRoundTrip(t, fmt.Sprint("seed ", seed, " ", agent), agent, old)
		if t.Failed() {
			return
		}
	}
}

func FuzzAddRemove(f *testing.F) {
	for _, text := range samples {
		f.Add([]byte(text), uint8(0))
		f.Add([]byte(text), uint8(2))
	}
	f.Fuzz(func(t *testing.T, old []byte, n uint8) {
		agent := Agents()[n%4]
		added, err := Add(agent, old, opts)
		if err != nil {
			return
		}
		had, err := Find(agent, old)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Add(agent, added, opts); err != nil || !bytes.Equal(again, added) {
			t.Fatalf("adding twice: %v\n%q\n%q", err, added, again)
		}
		back, gone, err := Remove(agent, added)
		if err != nil {
			t.Fatalf("%v: %q", err, added)
		}
		if len(had) == 0 && (gone || !bytes.Equal(back, old)) {
			t.Fatalf("not given back: gone %v\n%q\n%q\n%q", gone, old, added, back)
		}
	})
}

func TestDiff(t *testing.T) {
	for name, c := range map[string]struct {
		old, now []byte
		want     string
	}{
		"nothing": {[]byte("a\n"), []byte("a\n"), ""},
		"made":    {nil, []byte("a\nb\n"), "--- /dev/null\n+++ p\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"removed": {[]byte("a\n"), nil, "--- p\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n"},
		"in the middle": {[]byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), []byte("1\n2\n3\n4\nx\n6\n7\n8\n9\n"),
			"--- p\n+++ p\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
		"the last line end": {[]byte("a"), []byte("a\n"), "--- p\n+++ p\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"},
	} {
		if diff := cmp.Diff(c.want, Diff("p", c.old, c.now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPath(t *testing.T) {
	none := func(string) string { return "" }
	for _, c := range []struct {
		agent, project string
		getenv         func(string) string
		want           string
	}{
		{"claude", "", none, "/h/.claude/settings.json"},
		{"claude", "/p", none, "/p/.claude/settings.json"},
		{"claude", "", func(string) string { return "/c" }, "/c/settings.json"},
		{"codex", "", func(string) string { return "/c" }, "/c/hooks.json"},
		{"cursor", "", func(string) string { return "/c" }, "/h/.cursor/hooks.json"},
		{"gemini", "/p", none, "/p/.gemini/settings.json"},
	} {
		if got, err := Path(c.agent, "/h", c.project, c.getenv); err != nil || got != c.want {
			t.Errorf("%s: %s, %v (want %s)", c.agent, got, err, c.want)
		}
	}
	if _, err := Path("claude", "", "", none); err == nil {
		t.Error("no home is a place")
	}
}

func TestWriteKeepsModeAndLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(real, []byte("{}"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.json", link); err != nil {
		t.Fatal(err)
	}
	old, path, err := Read(link)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, old, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is gone: %v", err)
	}
	text, err := os.ReadFile(real)
	if info, _ := os.Stat(real); err != nil || string(text) != "new" || info.Mode().Perm() != 0o640 {
		t.Errorf("%q %v %v", text, info.Mode(), err)
	}
	if err := Write(path, old, []byte("newer")); err == nil {
		t.Error("a file that changed meanwhile was replaced")
	}
	if err := os.Link(real, filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), []byte("x")); err == nil || !strings.Contains(err.Error(), "hard links") {
		t.Errorf("a hard link was parted: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".cordon-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(filepath.Join(dir, "dangling")); err == nil {
		t.Error("a dangling link is a file that is not there")
	}
	if _, _, err := Read(dir); err == nil {
		t.Error("a directory is a settings file")
	}
	if text, _, err := Read(filepath.Join(dir, "absent")); text != nil || err != nil {
		t.Errorf("%q %v", text, err)
	}
}
