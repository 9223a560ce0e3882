package javascript

import (
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

// canonicalOnly lowers src by way of esbuild, whatever it is.
func canonicalOnly(t *testing.T, src string) ([]cordon.Effect, bool) {
	t.Helper()
	a := newAnalysis(t.Context(), testEnv())
	tree, err := a.canonical(src, []api.Loader{api.LoaderJS})
	if err != nil {
		return nil, false
	}
	a.run(tree)
	a.finish()
	return a.effects, true
}

func kindsOf(effects []cordon.Effect) map[string]bool {
	out := map[string]bool{}
	for _, e := range effects {
		if refused(e) {
			out[e.Kind.String()+" "+e.Op+" "+e.Target] = true
		}
	}
	return out
}

// TestDirectAndCanonicalAgree: what is read without esbuild must be read as
// with it.
func TestDirectAndCanonicalAgree(t *testing.T) {
	compared := 0
	check := func(name, src string) {
		if !plain(src) {
			return
		}
		if _, err := parseTree(src); err != nil {
			return
		}
		other, ok := canonicalOnly(t, src)
		if !ok {
			return
		}
		compared++
		if d := cmp.Diff(kindsOf(other), kindsOf(lowered(t, src))); d != "" {
			t.Errorf("%s: with esbuild (-), directly (+):\n%s\n%s", name, d, src)
		}
	}
	for _, c := range attacks {
		check(c.kind+"/"+c.name, c.src)
	}
	for _, c := range benign {
		check(c.name, c.src)
	}
	if compared < 200 {
		t.Errorf("only %d texts were compared", compared)
	}
}
