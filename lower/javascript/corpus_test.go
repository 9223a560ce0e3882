//go:build integration

package javascript

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestIntegrationLibraries reads what npm itself is made of (or the directory
// $CORDON_JS_CORPUS): none of it may fail to parse, and little of it may be
// refused by a strict judge, though package managers start programs.
func TestIntegrationLibraries(t *testing.T) {
	root := os.Getenv("CORDON_JS_CORPUS")
	if root == "" {
		out, err := exec.Command("npm", "root", "-g").Output()
		if err != nil {
			t.Skip("no npm: ", err)
		}
		root = strings.TrimSpace(string(out))
	}
	files, flagged, reasons := 0, 0, map[string]int{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(p)
		if err != nil || d.IsDir() || strings.HasSuffix(p, ".d.ts") || ext != ".js" && ext != ".mjs" && ext != ".cjs" && ext != ".ts" {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil || len(b) > maxBytes {
			return err
		}
		files++
		env := testEnv()
		env.TypeScript = ext == ".ts"
		bad := harmful(Lower(t.Context(), string(b), env))
		if len(bad) > 0 {
			flagged++
		}
		for _, why := range bad {
			if strings.Contains(why, "does not parse as JavaScript") || strings.Contains(why, "limit: ") {
				t.Logf("%s: %s", p, why)
				reasons["unread"]++
			}
			reasons[strings.Join(strings.Fields(why)[:2], " ")]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files, %d refused: %v", files, flagged, reasons)
	if files == 0 {
		t.Skip("no files below ", root)
	}
	if reasons["unread"]*200 > files {
		t.Errorf("%d of %d files are not read", reasons["unread"], files)
	}
	if flagged*100 > 8*files {
		t.Errorf("%d of %d files are refused", flagged, files)
	}
}
