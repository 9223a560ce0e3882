//go:build integration

package syntax

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// interpreter is $CORDON_PYTHON or the machine's python3; without either the
// comparison cannot be made, and the skip says so.
func interpreter(t *testing.T) string {
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

func libraryFiles(t *testing.T, python string) []string {
	t.Helper()
	out, err := exec.Command(python, "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(out))
	packages := os.Getenv("CORDON_SITE_PACKAGES") != ""
	var files []string
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "site-packages" && !packages {
			return fs.SkipDir
		}
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".py") && !strings.Contains(path, "\n") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

type reading struct {
	Path, Source, Tree string
	OK                 bool
	Tokens             []string
}

func oracle(t *testing.T, python string, files []string, each func(reading)) {
	t.Helper()
	cmd := exec.Command(python, "-X", "utf8", "testdata/oracle.py")
	cmd.Stdin = strings.NewReader(strings.Join(files, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 256<<20)
	for sc.Scan() {
		var r reading
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		each(r)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestLibraryReadsAsCPythonReadsIt compares tokens and trees over the whole
// standard library, its test suite included.
func TestLibraryReadsAsCPythonReadsIt(t *testing.T) {
	python := interpreter(t)
	files := libraryFiles(t, python)
	var same, tokens, refused, large int
	oracle(t, python, files, func(r reading) {
		if !r.OK {
			refused++
			return
		}
		src, err := os.ReadFile(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Source != "utf-8" && r.Source != "utf-8-sig" {
			src = latin1(src)
		}
		if len(src) > MaxSize {
			large++
			return
		}
		f := Parse(string(src))
		if f.Limit != "" {
			t.Errorf("%s: limit: %s", r.Path, f.Limit)
			return
		}
		for _, p := range f.Problems {
			if strings.HasPrefix(p, "does not parse") {
				t.Errorf("%s: %s", r.Path, p)
				return
			}
		}
		if strings.Contains(string(src), `\N{`) || r.Source != "utf-8" && r.Source != "utf-8-sig" {
			same++ // names of characters and other codings are out of scope
			return
		}
		if got := dump(f); got != r.Tree {
			i := diffAt(got, r.Tree)
			t.Errorf("%s: tree differs:\n got …%s\nwant …%s", r.Path, around(got, i), around(r.Tree, i))
			return
		}
		same++
		// The tokenize of older versions splits names at variation selectors,
		// which the compiler does not.
		if r.Tokens != nil && !strings.ContainsRune(f.Text, 0xe0100) {
			tokens++
			compareTokens(t, r, f.Text)
		}
	})
	t.Logf("%d files: %d trees and %d token streams equal, %d refused by CPython, %d over the size limit", len(files), same, tokens, refused, large)
	if same < 100 {
		t.Errorf("only %d files compared", same)
	}
}

func latin1(b []byte) []byte {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return []byte(s.String())
}

func diffAt(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

func around(s string, i int) string { return s[max(0, i-120):min(len(s), i+120)] }

func compareTokens(t *testing.T, r reading, text string) {
	lx := lexer{text: text, end: len(text)}
	lx.run()
	var got []string
	for _, k := range lx.toks {
		switch k.Kind {
		case EOF:
		case Newline:
			got = append(got, "NEWLINE")
		case Indent:
			got = append(got, "INDENT")
		case Dedent:
			got = append(got, "DEDENT")
		default:
			got = append(got, text[k.Start:k.End])
		}
	}
	for i := 0; i < len(got) || i < len(r.Tokens); i++ {
		if i >= len(got) || i >= len(r.Tokens) || got[i] != r.Tokens[i] {
			t.Errorf("%s: token %d differs: got %q, want %q", r.Path, i, got[min(i, len(got)):min(i+5, len(got))], r.Tokens[min(i, len(r.Tokens)):min(i+5, len(r.Tokens))])
			return
		}
	}
}
