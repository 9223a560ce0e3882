package python

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// ordinaryKB is about one kilobyte of ordinary code.
const ordinaryKB = `import json
import os
from pathlib import Path

ROOT = Path("data")
LIMIT = 10

class Store:
    """Keeps records in a directory of JSON files."""

    def __init__(self, root):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def load(self, name):
        with open(self.root / f"{name}.json") as f:
            return json.load(f)

    def save(self, name, record):
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(record, indent=2))
        return path

def summarise(store, names):
    total = 0
    for name in names:
        record = store.load(name)
        if record.get("active") and record["count"] > LIMIT:
            total += record["count"]
    return total

def main():
    store = Store(ROOT)
    names = sorted(p.stem for p in ROOT.glob("*.json"))
    print(f"{summarise(store, names)} in {len(names)} files")
    for name in names[:3]:
        print(os.path.getsize(ROOT / name), name.upper())

if __name__ == "__main__":
    main()
`

func BenchmarkLower1KB(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(ordinaryKB)))
	for b.Loop() {
		Lower(context.Background(), ordinaryKB, testEnv)
	}
}

func BenchmarkParse1KB(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(ordinaryKB)))
	for b.Loop() {
		syntax.Parse(ordinaryKB)
	}
}

func BenchmarkLowerBySize(b *testing.B) {
	for _, kb := range []int{4, 16, 64, 250} {
		var src strings.Builder
		for i := 0; src.Len() < kb<<10; i++ {
			src.WriteString(strings.NewReplacer("Store", fmt.Sprint("Store", i), "main", fmt.Sprint("main", i)).Replace(ordinaryKB))
		}
		s := src.String()[:kb<<10]
		s = s[:strings.LastIndexByte(s, '\n')+1]
		b.Run(fmt.Sprint(kb, "KiB"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(s)))
			for b.Loop() {
				Lower(context.Background(), s, testEnv)
			}
		})
	}
}

// hostile are shapes that cost a careless reader most, each near the size
// limit.
func hostile() map[string]string {
	fill := func(s string) string { return strings.Repeat(s, (250<<10)/len(s)) }
	var calls strings.Builder
	for i := range 200 {
		fmt.Fprintf(&calls, "def f%d(x): return f%d(x + 'a') + f%d(x + 'b')\n", i, i+1, i+1)
	}
	var loops strings.Builder
	for i := range 60 {
		fmt.Fprintf(&loops, "%sfor a%d in x:\n", strings.Repeat(" ", i), i)
	}
	return map[string]string{
		"a sum of names":             "x = " + fill("a+") + "a",
		"a sum of strings":           "x = " + fill("'a'+") + "'a'",
		"a chain of attributes":      "x = a" + fill(".b"),
		"a chain of calls":           "x = a" + fill("()"),
		"open brackets":              fill("("),
		"brackets to the limit":      fill(strings.Repeat("(", 150) + "x" + strings.Repeat(")", 150) + "\n"),
		"not not not":                "x = " + fill("not ") + "y",
		"lambdas":                    fill(strings.Repeat("lambda:", 150) + "0\n"),
		"elif without end":           "if a: pass\n" + fill("elif a: x = 1\n"),
		"assignments in branches":    fill("if a: x = x + 'b'\n"),
		"a doubling string":          "s = 'x'\n" + fill("s = s + s\n"),
		"a doubling list":            "s = [1]\n" + fill("s = s + s\n"),
		"a growing list":             "s = []\n" + fill("s.append(s)\n"),
		"nested comprehensions":      "x = [" + strings.Repeat("[", 40) + "1" + strings.Repeat(" for a in range(4000)]", 40) + "]",
		"nested loops":               "x = range(4000)\n" + loops.String() + strings.Repeat(" ", 60) + "y = y + str(a1)\n",
		"calls that fork":            calls.String() + "def f200(x): return x\nf0('x')\n",
		"a while that counts":        "i = 0\nwhile i < 10**9:\n    i += 1\n    s = 'x' * i\n",
		"exec in exec":               "s = 'x = 1'\n" + strings.Repeat("s = 'exec(' + repr(s) + ')'\n", 100) + "exec(s)\n" + fill("exec('x = 1')\n"),
		"f-strings in f-strings":     fill(strings.Repeat("f'{", 25) + "1" + strings.Repeat("}'", 25) + "\n"),
		"unclosed strings":           fill("f'{a\n"),
		"broken lines":               fill("a b c ) ? $\n"),
		"open brackets, broken":      fill("((((\n"),
		"classes that inherit":       fill("class A(A): x = 1\n"),
		"decorated functions":        fill("@a\n@b\ndef f(x=1): return x\n"),
		"many keyword arguments":     "f(" + fill("a=1, ") + ")",
		"dict with every key":        "x = {" + fill("'a': 1, ") + "}",
		"match with many cases":      "match x:\n" + fill("  case [a, {'b': c}]: y = a\n"),
		"globals in functions":       fill("def f():\n  global x\n  x = x + '/etc'\n"),
		"paths that grow":            "import os\np = '/'\n" + fill("p = os.path.join(p, q)\n"),
		"formats":                    fill("x = '{a}{b}'.format(a=x, b=x)\n"),
		"imports of everything":      fill("from os import *\n"),
		"attributes of unknown ones": fill("a.b = c.b\n"),
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, src := range hostile() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Lower(context.Background(), src, testEnv)
			}
		})
	}
}

// TestHostileShapesEnd only has to return: none of these may recurse without
// bound or fail inside.
func TestHostileShapesEnd(t *testing.T) {
	for name, src := range hostile() {
		t.Run(name, func(t *testing.T) {
			for _, e := range Lower(context.Background(), src, testEnv) {
				if strings.Contains(e.Reason, "reader failed") {
					t.Fatal(e.Reason)
				}
			}
		})
	}
}

func TestEveryTableFileIsRead(t *testing.T) {
	files, err := filepath.Glob("table/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			left, _, ok := strings.Cut(line, " = ")
			word, _, _ := strings.Cut(line, " ")
			if !ok || strings.HasPrefix(line, "#") || word == "alias" || word == "const" || word == "reflect" {
				continue
			}
			for _, n := range names(left) {
				if !strings.ContainsAny(n, ". ") {
					n = "builtins." + n
				}
				if _, known := table().lookup(n); !known && table().rest[strings.TrimSuffix(n, ".*")] == nil {
					t.Errorf("%s: %s is not found", f, n)
				}
			}
		}
	}
}
