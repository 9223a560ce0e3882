package sandbox

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// R3: code is never spliced into a wrapper.
func TestR3AScriptIsAFileAndNoPartOfTheCommand(t *testing.T) {
	const code = "'; rm -rf ~ #\n\"\"\"\nimport os"
	for _, c := range []struct {
		name   string
		script Script
		argv   []string
	}{
		{"python", ExecutePython(code, "a", "b c"), []string{"python3", "/run/cordon/script.py", "a", "b c"}},
		{"a command line", ExecuteCommand(code), []string{"sh", "/run/cordon/script.sh"}},
		{"javascript", Script{Language: "javascript", Code: code}, []string{"node", "/run/cordon/script.js"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Spec
			dir := t.TempDir()
			remove, err := c.script.Put(&s, dir)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Argv, c.argv) || len(s.Mounts) != 1 || s.Mounts[0].Access != ReadOnly || s.Mounts[0].Target != c.argv[1] {
				t.Fatalf("argv %q, mounts %v", s.Argv, s.Mounts)
			}
			got, err := os.ReadFile(s.Mounts[0].Source)
			if err != nil || !strings.HasPrefix(string(got), code) {
				t.Fatalf("%q, %v", got, err)
			}
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	for _, bad := range []Script{{}, {Language: "cobol"}, {Language: "python", Code: strings.Repeat(" ", maxScript+1)}} {
		if _, err := bad.Put(&Spec{}, t.TempDir()); err == nil {
			t.Errorf("%q of %d bytes was taken", bad.Language, len(bad.Code))
		}
	}
}
