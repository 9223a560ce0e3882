package syntax

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzParse checks that no source makes the parser panic, and that every
// node's place lies in the text.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"../testdata/attacks.txtar", "../testdata/ordinary.txtar"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(b).Files {
			f.Add(string(file.Data))
		}
	}
	for _, s := range []string{
		"match x:\n case {**r}: pass", "f'{x!r:{y}}'", "t'{a=}'", "lambda *a, b=1, **c: (yield)", "x = 0xfor y in z",
		"with (a as b, c): pass", "try: pass\nexcept* A, B: pass", "def f[T: int = str, *U, **V](a, /, b, *, c): ...",
		"print 'x'", "exec `a`", "!ls", "\ufeff# coding: latin-1\n", "a\\\n", "'''", "f'''{", "x if y else", "(((((", "\f\tx",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		file := Parse(src)
		if file.Limit == "" && len(file.Problems) == 0 && strings.TrimSpace(src) != "" {
			for _, s := range file.Body {
				if s.Pos() < 0 || s.Pos() > len(file.Text) {
					t.Fatalf("%T at %d of %d", s, s.Pos(), len(file.Text))
				}
			}
		}
	})
}
