//go:build integration

package python

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

func python3(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("CORDON_PYTHON"); p != "" {
		return p
	}
	p, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("no python3 to compare with: %v", err)
	}
	return p
}

// TestAccuracyOverTheLibrary prints how many files of the standard library
// (and of site-packages, apart) would be restricted, and why, and refuses any
// that would be blocked: a library has no reverse shells, decoded programs or
// fork bombs.
func TestAccuracyOverTheLibrary(t *testing.T) {
	out, err := exec.Command(python3(t), "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	groups := map[string]*tally{"standard library": {}, "its tests": {}, "site-packages": {}}
	var slowest time.Duration
	var slowestFile string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "site-packages" && os.Getenv("CORDON_SITE_PACKAGES") == "" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".py") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) > syntax.MaxSize {
			return err
		}
		group := "standard library"
		rel, _ := filepath.Rel(root, path)
		switch {
		case strings.HasPrefix(rel, "site-packages"):
			group = "site-packages"
		case strings.HasPrefix(rel, "test/"), strings.Contains(rel, "/test/"), strings.Contains(rel, "/tests/"), strings.Contains(rel, "idle_test"):
			group = "its tests"
		}
		start := time.Now()
		es := Lower(context.Background(), string(b), Env{Dir: root, Workspace: root, Home: "/home/ann", User: "ann"})
		if d := time.Since(start); d > slowest {
			slowest, slowestFile = d, rel
		}
		groups[group].add(t, rel, es, group != "its tests") // tests do evaluate built code
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range groups {
		g.print(t, name)
	}
	t.Logf("slowest: %s in %v", slowestFile, slowest)
}

type tally struct {
	files, restricted, blocked int
	reasons                    map[string]int
	example                    map[string]string
}

func (g *tally) add(t *testing.T, file string, es []cordon.Effect, strict bool) {
	if g.reasons == nil {
		g.reasons, g.example = map[string]int{}, map[string]string{}
	}
	g.files++
	seen := map[string]bool{}
	blocked := false
	for _, e := range es {
		r := ""
		switch {
		case e.Kind == cordon.Opaque:
			r = e.Reason
			if strings.HasPrefix(r, "python starts a process") {
				r = "python starts a process"
			}
			if strings.HasPrefix(r, "does not parse") {
				r = "does not parse"
			}
			blocked = blocked || !e.Doubtful && (e.Origin == cordon.OriginDecoded || e.Origin == cordon.OriginNetwork)
		case e.Kind == cordon.Destroy, e.Kind == cordon.Connect && e.Op == "reverse_shell":
			r, blocked = e.Kind.String()+" "+e.Op, true
		case e.Kind == cordon.ReadEnv && e.Target == "*":
			r = "the whole environment"
		}
		if r != "" {
			seen[r] = true
		}
	}
	if blocked {
		g.blocked++
	}
	if blocked && strict {
		t.Errorf("%s would be blocked:%s", file, describe(es))
	}
	if len(seen) > 0 {
		g.restricted++
	}
	for r := range seen {
		g.reasons[r]++
		g.example[r] = file
	}
}

func (g *tally) print(t *testing.T, name string) {
	if g.files == 0 {
		return
	}
	t.Logf("%s: %d files, %d restricted (%.1f %%), %d blocked", name, g.files, g.restricted, 100*float64(g.restricted)/float64(g.files), g.blocked)
	var rs []string
	for r := range g.reasons {
		rs = append(rs, r)
	}
	sort.Slice(rs, func(i, j int) bool { return g.reasons[rs[i]] > g.reasons[rs[j]] })
	for _, r := range rs[:min(len(rs), 25)] {
		t.Logf("  %4d %s (%s)", g.reasons[r], r, g.example[r])
	}
}

// TestExamplesCompile: an attack that would not run proves nothing, and an
// ordinary program that would not run neither.
func TestExamplesCompile(t *testing.T) {
	var in strings.Builder
	for _, name := range []string{"attacks.txtar", "ordinary.txtar"} {
		for _, f := range archive(t, name) {
			if strings.HasPrefix(f.Name, "broken:") || strings.Contains(f.Name, "indented as a whole") || strings.Contains(f.Name, "coding") {
				continue
			}
			line, err := json.Marshal([]string{name + ": " + f.Name, string(f.Data)})
			if err != nil {
				t.Fatal(err)
			}
			in.Write(append(line, '\n'))
		}
	}
	cmd := exec.Command(python3(t), "-W", "ignore", "-c", `
import json, sys
for line in sys.stdin:
    name, src = json.loads(line)
    if "new syntax" in name and sys.version_info < (3, 13):
        continue
    try:
        compile(src.encode(), name, "exec")
    except SyntaxError as e:
        print(name, e)
`)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
