package javascript

import (
	"context"
	"path"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

const (
	testDir  = "/home/dev/project"
	testHome = "/home/dev"
)

// shellStub stands in for the reader of shell: the tests of this package are
// about what reaches it.
func shellStub(_ context.Context, lang, src, _ string) []cordon.Effect {
	return []cordon.Effect{{Kind: cordon.RunCode, Target: lang, Text: src}}
}

func testEnv() Env {
	return Env{Dir: testDir, Workspace: testDir, Home: testHome, User: "dev", Code: shellStub}
}

func lowered(t testing.TB, src string) []cordon.Effect {
	t.Helper()
	return Lower(t.Context(), src, testEnv())
}

var openHosts = map[string]bool{"pypi.org": true, "github.com": true, "api.github.com": true}

// harmful is what a strict judge would refuse among the effects.
func harmful(effects []cordon.Effect) []string {
	var out []string
	for _, e := range effects {
		if refused(e) {
			out = append(out, describe(e))
		}
	}
	return out
}

func describe(e cordon.Effect) string {
	return strings.Join(strings.Fields(strings.Join([]string{e.Kind.String(), e.Op, e.Target, e.Reason, e.Text}, " ")), " ")
}

func refused(e cordon.Effect) bool {
	switch e.Kind {
	case cordon.Opaque, cordon.Privilege, cordon.Persist, cordon.Destroy, cordon.Administer:
		return true
	case cordon.Execute:
		return e.Op == "spawn"
	case cordon.SetEnv:
		switch e.Target {
		case "NODE_OPTIONS", "LD_PRELOAD", "PATH", "BASH_ENV", "*":
			return true
		}
	case cordon.ReadEnv:
		n := strings.ToUpper(e.Target)
		for _, w := range []string{"*", "TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"} {
			if strings.Contains(n, w) {
				return true
			}
		}
	case cordon.Connect:
		host, _, _ := strings.Cut(e.Target, ":")
		return e.Pattern || !openHosts[strings.ToLower(host)]
	case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
		return outside(e)
	}
	return false
}

func outside(e cordon.Effect) bool {
	p := e.Target
	if !strings.HasPrefix(p, "/") {
		p = e.Dir + "/" + p
	}
	p = path.Clean(p)
	if base := path.Base(p); base == ".env" || strings.HasPrefix(base, "id_") || strings.Contains(p, "/.git/") {
		return true
	}
	roots := []string{testDir, "/tmp/agent"}
	if e.Kind == cordon.Read || e.Kind == cordon.List {
		roots = append(roots, "/usr", "/lib")
	}
	for _, r := range roots {
		if under(p, r) {
			return false
		}
	}
	return true
}
