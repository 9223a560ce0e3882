package python

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/rogpeppe/go-internal/txtar"
)

var testEnv = Env{Dir: "/home/ann/work", Workspace: "/home/ann/work", Home: "/home/ann", User: "ann"}

// refused is how the guard's coding profile would take an effect, in short:
// the tables below are about what the effects say, not about the guard.
func refused(e cordon.Effect) bool {
	switch e.Kind {
	case cordon.Opaque, cordon.Privilege, cordon.Persist, cordon.Destroy, cordon.Administer, cordon.Execute:
		return true
	case cordon.ReadEnv:
		n := strings.ToUpper(e.Target)
		for _, w := range []string{"KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL"} {
			if strings.Contains(n, w) {
				return true
			}
		}
		return n == "*"
	case cordon.SetEnv:
		return strings.HasPrefix(e.Target, "LD_") || strings.HasPrefix(e.Target, "PYTHON")
	case cordon.Connect:
		return refusedHost(e)
	case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
		return refusedPath(e)
	}
	return false
}

func refusedHost(e cordon.Effect) bool {
	h, _, _ := strings.Cut(e.Target, ":")
	switch h {
	case "localhost", "127.0.0.1":
		return false
	case "pypi.org", "api.github.com":
		return e.Op == "listen" || e.Op == "reverse_shell"
	}
	return true
}

func refusedPath(e cordon.Effect) bool {
	p := e.Target
	if !strings.HasPrefix(p, "/") {
		p = e.Dir + "/" + p
	}
	p = path.Clean(p)
	for _, part := range strings.Split(p, "/") {
		switch part {
		case ".ssh", ".aws", ".env", "hooks":
			return true
		}
	}
	for _, root := range []string{"/home/ann/work", "/tmp/agent"} {
		if p == root || strings.HasPrefix(p, root+"/") {
			return false
		}
	}
	return p != "/dev/null"
}

func archive(t testing.TB, name string) []txtar.File {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return txtar.Parse(b).Files
}

func describe(es []cordon.Effect) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "\n\t%v %s %q dir=%s op=%s pattern=%v doubtful=%v origin=%d %s via %q", refused(e), e.Kind, e.Target, e.Dir, e.Op, e.Pattern, e.Doubtful, e.Origin, e.Reason, e.Via)
	}
	return b.String()
}

func TestAttacksAreRefused(t *testing.T) {
	for _, f := range archive(t, "attacks.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			es := Lower(context.Background(), string(f.Data), testEnv)
			for _, e := range es {
				if refused(e) {
					return
				}
			}
			t.Errorf("passed:\n%s%s", f.Data, describe(es))
		})
	}
}

func TestOrdinaryProgramsPass(t *testing.T) {
	for _, f := range archive(t, "ordinary.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			es := Lower(context.Background(), string(f.Data), testEnv)
			for _, e := range es {
				if refused(e) {
					t.Fatalf("refused:\n%s%s", f.Data, describe(es))
				}
			}
		})
	}
}
