package lower

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

func sayChanges(cs []change) []string {
	out := []string{}
	for _, c := range cs {
		out = append(out, say(cordon.Effect{Kind: c.kind, Target: c.path, Op: c.op, Doubtful: c.doubtful}))
	}
	return out
}

func TestPatchesNameTheirFiles(t *testing.T) {
	for _, r := range []struct {
		name, in string
		want     []string
	}{
		{"a new file", "*** Begin Patch\n*** Add File: a b.txt\n+x\n*** End Patch", []string{"write a b.txt (create)"}},
		{"space around the name", "*** Add File:   /srv/x  \n+x", []string{"write /srv/x (create)"}},
		{"space around the heading", "  *** Add File: x\n", []string{"write x (create) doubtful"}},
		{"another case and spacing", "***  update FILE:x\r\n", []string{"write x"}},
		{"a file that is deleted", "*** Delete File: x", []string{"delete x"}},
		{"a file that moves", "*** Update File: x\n*** Move to: ../y\n@@\n-a\n+b", []string{"write x", "delete x", "write ../y (move)"}},
		{"several files", "*** Update File: x\n@@\n-a\n+b\n*** Update File: y\n@@\n c\n+d", []string{"write x", "write y"}},
		{"in a here-document", "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: x\n+y\n*** End Patch\nEOF", []string{"write x (create)"}},
		{"an added line that looks like a heading", "*** Update File: x\n@@\n+*** Add File: /srv/y\n", []string{"write x"}},
		{"a unified diff", "--- a/x.go\t2024\n+++ b/x.go\n@@ -1 +1 @@\n-a\n+b\n", []string{"read x.go", "write x.go"}},
		{"a new file in a diff", "--- /dev/null\n+++ b/x.go\n@@ -0,0 +1 @@\n+b\n", []string{"write x.go"}},
		{"a rename in a diff", "diff --git a/x b/y\nrename from x\nrename to ../y\n", []string{"delete x", "write ../y"}},
		{"an absolute name in a diff", "--- /srv/x\n+++ /srv/x\n", []string{"read /srv/x", "write /srv/x"}},
		{"a quoted name", "+++ \"b/x y\"\n", []string{"write x y"}},
		{"a name between backquotes", "*** Add File: `x`", []string{"write x (create)"}},
		{"a verb of another tool", "*** Overwrite File: x", []string{"write x doubtful"}},
		{"a context diff", "*** x\n--- y\n***************\n*** 1 ****\n--- 1 ----\n", []string{"write y"}},
		{"two names of which the older may be taken", "--- a/x\n+++ b/y\n", []string{"read x", "write y", "write x doubtful"}},
		{"a git heading alone", "diff --git a/x b/y z\nnew file mode 100644\n", []string{"write y z"}},
		{"a copy", "diff --git a/x b/y\ncopy from x\ncopy to y\n", []string{"read x", "write y"}},
		{"a link", "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/srv\n", []string{"write l (link)", "read /srv (link)"}},
		{"no heading", "hello", []string{}},
	} {
		t.Run(r.name, func(t *testing.T) {
			if d := cmp.Diff(r.want, sayChanges(readPatch(r.in))); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestAPatchThatNamesNoFileIsMalformed(t *testing.T) {
	check(t, []row{
		{"no heading", "apply_patch", `{"input":"hello"}`, []string{"opaque: malformed: a patch that names no file"}},
		{"NUL in a name", "apply_patch", `{"patch":"*** Add File: a\u0000b"}`, []string{"write a\x00b (create)", "opaque: malformed: NUL byte in a path"}},
		{"in another directory", "apply_patch", `{"input":"*** Add File: a","workdir":"/srv"}`, []string{"write a (create) in /srv", "list /srv"}},
	})
}

func FuzzReadPatch(f *testing.F) {
	f.Add("*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** End Patch")
	f.Add("diff --git a/x b/y\n--- a/x\n+++ b/y\n@@\n-- z\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range readPatch(s) {
			if c.path == "" || strings.Contains(c.path, "\n") {
				t.Fatalf("%q names %q", s, c.path)
			}
		}
	})
}
