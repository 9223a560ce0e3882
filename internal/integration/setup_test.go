//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// peers are the packages from npm that the tests talk to.
var peers = []string{
	"@modelcontextprotocol/server-filesystem",
	"@modelcontextprotocol/server-everything",
	"@modelcontextprotocol/inspector",
}

type parts struct {
	cordon  string // the binary
	node    string
	modules string // the node_modules directory
	err     error
}

func (p *parts) script(elem ...string) string {
	return filepath.Join(append([]string{p.modules, "@modelcontextprotocol"}, elem...)...)
}

func (p *parts) filesystem() string { return p.script("server-filesystem", "dist", "index.js") }
func (p *parts) everything() string { return p.script("server-everything", "dist", "index.js") }

// setUp installs the peers and builds the binary, once for all tests.
var setUp = sync.OnceValue(func() *parts {
	p := &parts{}
	if p.node, p.err = exec.LookPath("node"); p.err != nil {
		p.err = fmt.Errorf("the integration tests need node, which is not installed: %w", p.err)
		return p
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		p.err = fmt.Errorf("the integration tests install MCP servers with npm, which is not installed: %w", err)
		return p
	}
	dir := os.Getenv("CORDON_INTEGRATION_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			p.err = fmt.Errorf("no cache directory (set CORDON_INTEGRATION_DIR): %w", err)
			return p
		}
		dir = filepath.Join(cache, "cordon", "integration")
	}
	p.modules = filepath.Join(dir, "node_modules")
	if p.err = p.install(npm, dir); p.err == nil {
		p.err = p.build(dir)
	}
	return p
})

func (p *parts) install(npm, dir string) error {
	missing := false
	for _, name := range peers {
		_, err := os.Stat(filepath.Join(p.modules, filepath.FromSlash(name), "package.json"))
		missing = missing || err != nil
	}
	if !missing {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := append([]string{"install", "--no-audit", "--no-fund", "--prefix", dir}, peers...)
	if out, err := exec.Command(npm, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("npm %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (p *parts) build(dir string) error {
	p.cordon = filepath.Join(dir, "cordon")
	cmd := exec.Command("go", "build", "-o", p.cordon, "./cmd/cordon")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/cordon: %w\n%s", err, out)
	}
	return nil
}

func need(t testing.TB) *parts {
	t.Helper()
	p := setUp()
	if p.err != nil {
		t.Fatal(p.err)
	}
	for _, name := range peers {
		b, err := os.ReadFile(filepath.Join(p.modules, filepath.FromSlash(name), "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		var about struct{ Version string }
		if err := json.Unmarshal(b, &about); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s", name, about.Version)
	}
	return p
}

// place is a home with a workspace and a secret in it, and a link in the
// workspace that leads to the secret.
type place struct{ home, workspace, notes, link, db string }

const secretText = "the content of a private key"

func newPlace(t testing.TB) place {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := place{home: filepath.Join(root, "home"), db: filepath.Join(root, "audit.db")}
	p.workspace = filepath.Join(p.home, "project")
	p.notes = filepath.Join(p.workspace, "notes.txt")
	p.link = filepath.Join(p.workspace, "docs", "readme.txt")
	secret := filepath.Join(p.home, ".ssh", "id_rsa")
	for _, d := range []string{filepath.Dir(p.link), filepath.Dir(secret)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{p.notes: "plain notes, with ü and \"quotes\"\n", secret: secretText} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, p.link); err != nil {
		t.Fatal(err)
	}
	return p
}

// cordonMCP is the command line that fronts a server.
func (p place) cordonMCP(cordon, mode string, server ...string) []string {
	return append([]string{cordon, "mcp", "--profile", "coding", "--mode", mode,
		"--workspace", p.workspace, "--home", p.home, "--db", p.db, "--"}, server...)
}

// output runs a command and returns its exit code and what it wrote.
func output(t testing.TB, command ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
