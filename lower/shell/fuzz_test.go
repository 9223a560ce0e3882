package shell

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func addGolden(f *testing.F) {
	for _, name := range []string{"attacks.txt", "harmless.txt"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for _, l := range strings.Split(string(b), "\n") {
			if l == "" || l[0] == '#' {
				continue
			}
			if _, cmd, ok := strings.Cut(l, " | "); ok {
				l = cmd
			}
			f.Add(strings.ReplaceAll(l, "⏎", "\n"))
		}
	}
}

// FuzzLower: no input panics, effects are bounded and well formed, and the
// same text gives the same effects.
func FuzzLower(f *testing.F) {
	addGolden(f)
	f.Add(oneKB)
	f.Fuzz(func(t *testing.T, src string) {
		env := testEnv()
		env.Code = func(context.Context, string, string, string) []cordon.Effect { return nil }
		got := Lower(context.Background(), src, env)
		if len(got) > maxEffects+8 {
			t.Fatalf("%d effects", len(got))
		}
		for _, e := range got {
			if hasMark(e.Target) || hasMark(e.Text) || hasMark(e.Dir) {
				t.Fatalf("a mark escaped: %+v", e)
			}
		}
		if again := Lower(context.Background(), src, env); len(again) != len(got) {
			t.Fatalf("%d effects, then %d", len(got), len(again))
		}
	})
}

// FuzzScanners: the readers of awk, sed and the scanned languages.
func FuzzScanners(f *testing.F) {
	for _, s := range []string{
		`BEGIN{system("id")}`, `{print > "x"}`, `s/a/b/e;w x`, `$s=socket(1);exec "sh"`, `puts %x(id)`,
		`puts [exec id]`, `os.execute("id")`, `system('id')`, "`id`", `open(F, "<x")`, `q(`, `%w[`, `#{`, `/[`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		w := &walker{ctx: context.Background(), env: testEnv(), budget: 20_000}
		src = cleanInput(strings.ToValidUTF8(src, "?"))
		w.awkProgram(val{s: src}, nil, nil)
		w.sedScript(&inv{name: "sed"}, val{s: src})
		for _, l := range []string{"perl", "ruby", "php", "lua", "tcl", "r", "lisp", "powershell", "julia"} {
			w.scan(l, val{s: src})
		}
		w.sqlText(&inv{name: "psql"}, val{s: src})
		w.exCommand(&inv{name: "vim"}, val{s: src})
	})
}
