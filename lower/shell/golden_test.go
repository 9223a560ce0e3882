package shell

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

const (
	testWS   = "/home/dev/ws"
	testHome = "/home/dev"
)

func testEnv() Env {
	return Env{Dir: testWS, Workspace: testWS, Home: testHome, User: "dev"}
}

func lower(src string) []cordon.Effect {
	return Lower(context.Background(), src, testEnv())
}

// goldenLines reads a table of testdata: sections begin with "# ==".
func goldenLines(t *testing.T, name string, f func(section, line string)) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, l := range strings.Split(string(b), "\n") {
		switch {
		case strings.HasPrefix(l, "# == "):
			section = strings.TrimPrefix(l, "# == ")
		case l == "" || strings.HasPrefix(l, "# "):
		default:
			f(section, strings.ReplaceAll(l, "⏎", "\n"))
		}
	}
}

// resolved is an effect's path as the guard will resolve it.
func resolved(e cordon.Effect) string {
	t := e.Target
	if !path.IsAbs(t) && e.Dir != "" {
		t = e.Dir + "/" + t
	}
	return path.Clean(t)
}

func fits(e cordon.Effect, want string) bool {
	kind, rest, _ := strings.Cut(want, " ")
	if e.Kind.String() != kind {
		return false
	}
	if rest == "" {
		return true
	}
	if op, ok := strings.CutPrefix(rest, "op="); ok {
		return e.Op == op || e.Kind == cordon.Opaque && e.Origin.String() == op
	}
	switch e.Kind {
	case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
		if h, ok := strings.CutPrefix(rest, "~"); ok {
			rest = testHome + h
		}
		if !path.IsAbs(rest) {
			rest = path.Join(testWS, rest)
		}
		return resolved(e) == path.Clean(rest) || e.Pattern && resolved(e) == rest
	case cordon.Connect:
		return e.Target == rest || strings.HasPrefix(e.Target, rest+":")
	}
	return e.Target == rest
}

func TestEveryAttackIsSeen(t *testing.T) {
	n := 0
	goldenLines(t, "attacks.txt", func(section, line string) {
		want, cmd, ok := strings.Cut(line, " | ")
		if !ok {
			t.Errorf("%s: no bar in %q", section, line)
			return
		}
		n++
		for _, e := range lower(cmd) {
			if fits(e, want) {
				return
			}
		}
		t.Errorf("%s: %q\n  want %s\n  got  %s", section, cmd, want, describe(lower(cmd)))
	})
	if n < 500 {
		t.Errorf("only %d attacks in the table", n)
	}
}

func describe(es []cordon.Effect) string {
	var l []string
	for _, e := range es {
		s := e.Kind.String() + " " + e.Target
		if e.Op != "" {
			s += " op=" + e.Op
		}
		if e.Reason != "" {
			s += " (" + e.Reason + ", " + e.Origin.String() + ")"
		}
		l = append(l, s)
	}
	return strings.Join(l, "; ")
}

// harmful is what rules of the guard would hold against an effect.
func harmful(e cordon.Effect) bool {
	switch e.Kind {
	case cordon.Opaque, cordon.Privilege, cordon.Persist, cordon.Destroy, cordon.Administer, cordon.SetEnv, cordon.Send:
		return true
	case cordon.ReadEnv:
		return e.Target == "*" || secretName(e.Target)
	case cordon.Connect:
		host, _, _ := strings.Cut(e.Target, ":")
		switch host {
		case "github.com", "api.github.com", "pypi.org", "rubygems.org", "files.pythonhosted.org", "localhost", "127.0.0.1":
			return e.Op == "reverse_shell"
		}
		return true
	case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
		return strays(e)
	}
	return false
}

// strays reports whether a path lies where ordinary commands have no
// business, or could.
func strays(e cordon.Effect) bool {
	p := resolved(e)
	if e.Pattern && e.Dir == "" && !path.IsAbs(e.Target) {
		return true
	}
	changes := e.Kind == cordon.Write || e.Kind == cordon.Delete
	if p == testWS && e.Kind == cordon.Delete || looksSecret(p) && changes {
		return true
	}
	if strings.HasPrefix(p, testWS+"/") || p == testWS || strings.HasPrefix(p, "/tmp/agent/") {
		return false
	}
	if !changes {
		for _, d := range []string{"/usr", "/bin", "/lib", "/opt", "/etc/os-release", "/dev/null", "/dev/zero", "/dev/urandom"} {
			if p == d || strings.HasPrefix(p, d+"/") {
				return false
			}
		}
	}
	return true
}

func TestOrdinaryCommandsHaveNoHarmfulEffect(t *testing.T) {
	env := testEnv()
	env.Code = func(context.Context, string, string, string) []cordon.Effect { return nil }
	n := 0
	goldenLines(t, "harmless.txt", func(section, line string) {
		n++
		for _, e := range Lower(context.Background(), line, env) {
			if harmful(e) {
				t.Errorf("%s: %q\n  %s", section, line, describe([]cordon.Effect{e}))
			}
		}
	})
	if n < 300 {
		t.Errorf("only %d commands in the table", n)
	}
}

func TestWhatARuleWouldRefuseHasAnEffectToRefuse(t *testing.T) {
	n := 0
	goldenLines(t, "refused.txt", func(section, line string) {
		n++
		if !slices.ContainsFunc(lower(line), harmful) {
			t.Errorf("%s: %q\n  %s", section, line, describe(lower(line)))
		}
	})
	if n < 800 {
		t.Errorf("only %d commands in the table", n)
	}
}
