//go:build integration

package javascript

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

// hook is loaded before each example: it notes in $MARK which functions that
// start processes are reached.
const hook = `
const cp = require("child_process"), fs = require("fs");
for (const k of ["exec", "execSync", "execFile", "execFileSync", "spawn", "spawnSync", "fork"]) {
  const old = cp[k];
  const now = function (...a) { fs.appendFileSync(process.env.MARK, k + " " + a[0] + "\n"); return old.apply(this, a) };
  if (old[require("util").promisify.custom]) now[require("util").promisify.custom] = (...a) => { fs.appendFileSync(process.env.MARK, k + " " + a[0] + "\n"); return Promise.resolve({ stdout: "" }) };
  cp[k] = now;
}
require("module").syncBuiltinESMExports();
`

// nodeRun runs src in a workspace of its own, and gives what the hook noted.
func nodeRun(t *testing.T, src, how string) (marks, output string, err error) {
	t.Helper()
	node, lookErr := exec.LookPath("node")
	if lookErr != nil {
		t.Skip("no node: ", lookErr)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"data/a.csv": "h,k\n1,2\n", "data/a.json": "{}", "src/app.js": "", "README.md": "# x\n", "hook.cjs": hook} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "data/tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := "example.cjs"
	if how == "mjs" {
		name = "example.mjs"
	}
	if how == "ts" {
		r := api.Transform(src, api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatCommonJS, TsconfigRaw: `{"compilerOptions":{"experimentalDecorators":true}}`})
		if len(r.Errors) > 0 {
			t.Fatalf("no TypeScript: %s\n%s", r.Errors[0].Text, src)
		}
		src = string(r.Code)
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	mark := filepath.Join(dir, "mark")
	cmd := exec.CommandContext(ctx, node, "--require", filepath.Join(dir, "hook.cjs"), file)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "MARK=" + mark}
	out, err := cmd.CombinedOutput()
	b, readErr := os.ReadFile(mark)
	if readErr != nil && !os.IsNotExist(readErr) {
		t.Fatal(readErr)
	}
	return string(b), string(out), err
}

// TestIntegrationAttacksRun: an attack that node would not run proves nothing.
func TestIntegrationAttacksRun(t *testing.T) {
	for _, c := range attacks {
		if c.run == "none" {
			continue
		}
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			marks, out, err := nodeRun(t, c.src, c.run)
			if strings.Contains(c.want, "spawn") && marks == "" {
				t.Errorf("starts nothing: %v\n%s\n%s", err, c.src, out)
			}
			if strings.Contains(out, "SyntaxError") || strings.Contains(out, "ReferenceError") || strings.Contains(out, "TypeError") {
				t.Errorf("%v\n%s\n%s", err, c.src, out)
			}
		})
	}
}

func TestIntegrationBenignRuns(t *testing.T) {
	for _, c := range benign {
		if c.run == "none" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			marks, out, err := nodeRun(t, c.src, c.run)
			if err != nil || marks != "" {
				t.Errorf("%v, %q\n%s\n%s", err, marks, c.src, out)
			}
		})
	}
}
