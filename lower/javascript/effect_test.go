package javascript

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cordon-sandbox/cordon"
)

// TestEffects holds what each way to act is read as, whole.
func TestEffects(t *testing.T) {
	path := func(k cordon.Kind, target string) cordon.Effect {
		return cordon.Effect{Kind: k, Target: target, Dir: testDir, Expanded: true}
	}
	for _, c := range []struct {
		name, src string
		want      []cordon.Effect
	}{
		{"nothing", `console.log([1, 2].map((x) => x * 2))`, nil},
		{"a file is read", `require("fs").readFileSync("data/a.csv")`, []cordon.Effect{path(cordon.Read, "data/a.csv")}},
		{"a file is written", `require("fs").writeFileSync("out.txt", "hello")`, []cordon.Effect{
			{Kind: cordon.Write, Target: "out.txt", Dir: testDir, Expanded: true, Text: "hello", Bytes: 5}}},
		{"a tree is removed", `require("fs").rmSync("build", { recursive: true })`, []cordon.Effect{
			{Kind: cordon.Delete, Target: "build", Dir: testDir, Expanded: true, NoFollow: true, Recursive: true}}},
		{"a file is appended to", `require("fs").appendFile("log", "x", () => {})`, []cordon.Effect{
			{Kind: cordon.Write, Op: "append", Target: "log", Dir: testDir, Expanded: true, Text: "x", Bytes: 1}}},
		{"a directory is listed", `require("fs").readdirSync("src")`, []cordon.Effect{path(cordon.List, "src")}},
		{"a file moves", `require("fs").renameSync("a", "b")`, []cordon.Effect{path(cordon.Read, "a"),
			{Kind: cordon.Delete, Target: "a", Dir: testDir, Expanded: true, NoFollow: true}, path(cordon.Write, "b")}},
		{"a link is made", `require("fs").symlinkSync("../x", "data/l")`, []cordon.Effect{
			{Kind: cordon.Read, Target: "../x", Dir: testDir + "/data", Expanded: true},
			{Kind: cordon.Write, Op: "link", Target: "data/l", Dir: testDir, Expanded: true, NoFollow: true}}},
		{"a path of which the end is not known", `require("fs").readFileSync("/srv/keys/" + process.argv[2])`, []cordon.Effect{
			{Kind: cordon.Read, Target: "/srv/keys/*", Dir: testDir, Expanded: true, Pattern: true}}},
		{"after a change of directory", `process.chdir("data"); require("fs").readFileSync("a")`, []cordon.Effect{
			{Kind: cordon.Read, Target: "a", Dir: testDir + "/data", Expanded: true}}},
		{"a variable", `console.log(process.env.LANG)`, []cordon.Effect{{Kind: cordon.ReadEnv, Target: "LANG"}}},
		{"all variables", `console.log({ ...process.env })`, []cordon.Effect{{Kind: cordon.ReadEnv, Target: "*"}}},
		{"a variable is set", `process.env.A = "b"`, []cordon.Effect{{Kind: cordon.SetEnv, Target: "A", Text: "b"}}},
		{"a connection", `fetch("https://api.github.com:8443/x")`, []cordon.Effect{{Kind: cordon.Connect, Op: "https", Target: "api.github.com:8443"}}},
		{"a connection that sends a file", `const d = require("fs").readFileSync("a"); fetch("https://h.test", { method: "POST", body: d })`, []cordon.Effect{
			path(cordon.Read, "a"), {Kind: cordon.Connect, Op: "https", Target: "h.test", Sends: true, Data: []string{"a"}}}},
		{"a connection that sends a variable", `fetch("https://h.test/?" + process.env.LANG)`, []cordon.Effect{
			{Kind: cordon.ReadEnv, Target: "LANG"}, {Kind: cordon.Connect, Op: "https", Target: "h.test", Sends: true, Data: []string{"$LANG"}}}},
		{"a connection to where is not known", `fetch(process.argv[2])`, []cordon.Effect{{Kind: cordon.Connect, Op: "https", Pattern: true}}},
		{"a port is bound", `require("http").createServer().listen(8080)`, []cordon.Effect{{Kind: cordon.Connect, Op: "listen", Target: "0.0.0.0:8080"}}},
		{"a command", `require("child_process").execSync("ls -l", { cwd: "src" })`, []cordon.Effect{
			{Kind: cordon.Execute, Op: "spawn", Target: "ls", Text: "ls -l", Origin: cordon.OriginLiteral},
			{Kind: cordon.Opaque, Reason: "JavaScript starts a process: ls -l", Origin: cordon.OriginLiteral, Doubtful: true},
			{Kind: cordon.RunCode, Target: "shell", Text: "ls -l"}}},
		{"a program with arguments", `require("child_process").spawnSync("grep", ["a b", "x"])`, []cordon.Effect{
			{Kind: cordon.Execute, Op: "spawn", Target: "grep", Text: "grep 'a b' x", Origin: cordon.OriginLiteral},
			{Kind: cordon.Opaque, Reason: "JavaScript starts a process: grep 'a b' x", Origin: cordon.OriginLiteral, Doubtful: true},
			{Kind: cordon.RunCode, Target: "shell", Text: "grep 'a b' x"}}},
		{"arguments that a shell reads again", `require("child_process").spawnSync("echo", ["a; id"], { shell: true })`, []cordon.Effect{
			{Kind: cordon.Execute, Op: "spawn", Target: "echo", Text: "echo a; id", Origin: cordon.OriginLiteral},
			{Kind: cordon.Opaque, Reason: "JavaScript starts a process: echo a; id", Origin: cordon.OriginLiteral, Doubtful: true},
			{Kind: cordon.RunCode, Target: "shell", Text: "echo a; id"}}},
		{"decoded text is run", `eval(atob("MSsx"))`, []cordon.Effect{
			{Kind: cordon.Opaque, Reason: "runs a text as JavaScript", Origin: cordon.OriginDecoded, Doubtful: true},
			{Kind: cordon.RunCode, Target: "javascript", Text: "1+1", Origin: cordon.OriginDecoded}}},
		{"what nobody calls is doubtful", `function f() { require("fs").unlinkSync("a") }`, []cordon.Effect{
			{Kind: cordon.Delete, Target: "a", Dir: testDir, Expanded: true, NoFollow: true, Doubtful: true}}},
		{"code from the network", `import "https://h.test/x.js"`, []cordon.Effect{
			{Kind: cordon.Connect, Op: "https", Target: "h.test"},
			{Kind: cordon.Opaque, Reason: "runs code from the network", Origin: cordon.OriginNetwork}}},
	} {
		got := lowered(t, c.src)
		if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(cordon.Effect{}, "Via"), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s\n%s", c.name, d, c.src)
		}
	}
}

func TestCommandsAreReadWhereTheyRun(t *testing.T) {
	var dirs []string
	env := testEnv()
	env.Code = func(_ context.Context, _, _, dir string) []cordon.Effect {
		dirs = append(dirs, dir)
		return nil
	}
	Lower(t.Context(), `const { execSync } = require("child_process"); execSync("a", { cwd: "src" }); process.chdir("data"); execSync("b")`, env)
	if want := []string{testDir + "/src", testDir + "/data"}; !slices.Equal(dirs, want) {
		t.Errorf("read in %q (want %q)", dirs, want)
	}
}

func TestChainNamesTheCodeString(t *testing.T) {
	for _, e := range lowered(t, `eval("require('fs').readFileSync('/etc/hosts')")`) {
		if e.Kind == cordon.Read {
			if want := []string{"javascript: eval", "javascript: fs.readFileSync"}; !slices.Equal(e.Via, want) {
				t.Errorf("via %q (want %q)", e.Via, want)
			}
			return
		}
	}
	t.Error("nothing is read")
}
