package python

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// FuzzLower checks that no source makes the reader fail, and that it ends.
func FuzzLower(f *testing.F) {
	for _, name := range []string{"attacks.txtar", "ordinary.txtar"} {
		for _, file := range archive(f, name) {
			f.Add(string(file.Data))
		}
	}
	f.Add("x = [[[[[[")
	f.Add("f'{f\"{f'''{1}'''}\"}'")
	f.Add("for i in range(10**9): x += 'a' * i")
	f.Add("def f(): f(); f()\nf()")
	env := testEnv
	env.Code = func(context.Context, string, string, string) []cordon.Effect {
		return []cordon.Effect{{Kind: cordon.Read, Target: "x"}}
	}
	f.Fuzz(func(t *testing.T, src string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for _, e := range Lower(ctx, src, env) {
			if strings.Contains(e.Reason, "reader failed") || strings.Contains(e.Reason, "no time") {
				t.Fatalf("%s\n%q", e.Reason, src)
			}
		}
	})
}
