package cordon_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/cordon-sandbox/cordon"

// allowed says, for each wing, which packages of the module it may import,
// and why. "root" is the cordon package itself; a trailing "/*" is a whole
// wing. What is not listed is refused. Packages inside a wing never import
// each other, but for the wing's parent, which ties its children together.
var allowed = []struct {
	from, why string
	to        []string
}{
	{"root", "the vocabulary stands on the standard library alone", nil},
	{"internal", "shared leaves know the vocabulary at most", []string{"root", "internal/*"}},
	{"door", "a door reaches the phases through cordon.Guard only", []string{"root", "internal/*"}},
	{"lower", "reading a call needs no policy", []string{"root", "internal/*"}},
	{"guard", "the guard judges effects, by the egress host rules, and stores what it refused",
		[]string{"root", "internal/*", "lower", "lower/toolspec", "contain/egress", "audit"}},
	{"contain", "walls hold what they are told to hold; two runtimes share the first process inside",
		[]string{"root", "internal/*", "contain/sandbox/inside/*"}},
	{"audit", "the store knows rows, not phases", []string{"root", "internal/*"}},
	{"config", "configuration is read by everybody and reads nobody", []string{"root", "internal/*"}},
	{"redteam", "attacks go through the front doors", []string{"root", "internal/*"}},
	{"cmd", "the command ties the wings together",
		[]string{"root", "internal/*", "door/*", "guard/*", "contain/*", "audit/*", "config/*", "lower/*", "redteam/*"}},
}

func TestImportDirection(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "testdata" || name == "bench" || p != "." && strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(p))
		seen[wing(pkg)] = true
		checkFile(t, p, pkg)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"root", "cmd", "door", "guard", "lower", "contain", "audit", "config", "internal"} {
		if !seen[w] {
			t.Errorf("no file of wing %s was read: the test looks in the wrong place", w)
		}
	}
}

func checkFile(t *testing.T, file, pkg string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	test := strings.HasSuffix(file, "_test.go")
	for _, imp := range f.Imports {
		target, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		if target != module && !strings.HasPrefix(target, module+"/") {
			if pkg == "." && !test && strings.Contains(strings.Split(target, "/")[0], ".") {
				t.Errorf("%s imports %s: the root package imports the standard library only", file, target)
			}
			continue
		}
		to := strings.TrimPrefix(strings.TrimPrefix(target, module), "/")
		if to == pkg || pkg == "." && to == "" || to == "" && pkg != "." {
			continue
		}
		if why, ok := mayImport(pkg, to); !ok && !(test && testMayImport(pkg, to)) {
			t.Errorf("%s (wing %s) imports %s: %s", file, wing(pkg), to, why)
		}
	}
}

// testMayImport: a test may build its fixtures from a real store or fake.
func testMayImport(pkg, to string) bool {
	return wing(pkg) == "internal" || strings.HasPrefix(to, "audit") && (wing(pkg) == "guard" || wing(pkg) == "audit")
}

func mayImport(from, to string) (why string, ok bool) {
	for _, rule := range allowed {
		if rule.from != wing(from) {
			continue
		}
		for _, pattern := range rule.to {
			if matches(pattern, to) {
				return "", true
			}
		}
		// A parent ties its own children together; a child may know its parent.
		if wing(to) == wing(from) && (strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/")) {
			return "", true
		}
		return rule.why, false
	}
	return "the wing is not in the table of deps_test.go", false
}

func matches(pattern, to string) bool {
	if w, all := strings.CutSuffix(pattern, "/*"); all {
		return to == w || strings.HasPrefix(to, w+"/")
	}
	return pattern == to
}

func wing(pkg string) string {
	if pkg == "." {
		return "root"
	}
	w, _, _ := strings.Cut(path.Clean(pkg), "/")
	return w
}

func TestDepsRulesRefuse(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"door/mcp", "guard", false},
		{"door/mcp", "guard/policy", false},
		{"guard/fsscope", "guard/policy", false},
		{"guard", "guard/policy", true},
		{"guard", "contain/sandbox", false},
		{"guard", "contain/egress", true},
		{"lower/shell", "lower/python", false},
		{"lower", "lower/python", true},
		{"audit/sqlite", "audit", true},
		{"audit", "guard", false},
		{"cmd/cordon", "guard/policy", true},
		{"unheard", "guard", false},
	} {
		if _, got := mayImport(c.from, c.to); got != c.want {
			t.Errorf("mayImport(%s, %s) = %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
