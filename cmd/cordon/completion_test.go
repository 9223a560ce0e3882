package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
)

// offered are the words of one request, without what is said beside them.
func offered(t *testing.T, args ...string) []string {
	t.Helper()
	var out bytes.Buffer
	Run(context.Background(), append([]string{"__complete"}, args...), Stdio{In: strings.NewReader(""), Out: &out, Err: io.Discard})
	if strings.ContainsAny(out.String(), "$`;|&<>(){}'\"\\\x1b") {
		t.Errorf("letters that mean something to a shell: %q", out.String())
	}
	var words []string
	for line := range strings.Lines(out.String()) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return words
}

// A server names its tools, and a shell puts what is offered on the line that
// is run next.
func TestNamesThatAShellWouldRunAreNotOffered(t *testing.T) {
	ctx, db := context.Background(), filepath.Join(t.TempDir(), "audit.db")
	store, err := sqlite.Open(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"files", "a b", "x;y"} {
		for _, tool := range []string{"read_file", "$(touch x)", "`id`", "a;b", "--yes", "new\nline", "\x1b[2J", "ns/read.v2"} {
			for _, hash := range []string{"one", "two"} {
				if _, err := store.SetPin(ctx, audit.Pin{Server: server, Tool: tool, Hash: hash, Definition: "{}"}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		line []string
		want []string
	}{
		{"the servers whose tools wait", []string{"policy", "pin", "--db", db, ""}, []string{"files"}},
		{"their tools", []string{"policy", "pin", "--db", db, "files", ""}, []string{"ns/read.v2", "read_file"}},
		{"those that begin so", []string{"policy", "pin", "--db", db, "files", "re"}, []string{"read_file"}},
		{"nothing after them", []string{"policy", "pin", "--db", db, "files", "read_file", ""}, nil},
		{"a server that has none", []string{"policy", "pin", "--db", db, "mail", ""}, nil},
		{"the servers that are known", []string{"policy", "pins", "--db", db, ""}, []string{"files"}},
		{"no proposals", []string{"proposals", "approve", "--db", db, ""}, nil},
	} {
		if d := cmp.Diff(tt.want, offered(t, tt.line...)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

func TestDescriptionsMeanNothingToAScript(t *testing.T) {
	if got := described("run-1", "rule", "operator: $(x)\n\t`y`"); got != "run-1\trule operator: ??x????y?" {
		t.Errorf("%q", got)
	}
}
