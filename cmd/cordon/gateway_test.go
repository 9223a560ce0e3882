package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/api"
	"github.com/cordon-sandbox/cordon/door/mcp/gateway"
	"github.com/google/go-cmp/cmp"
)

const gatewayFile = `
mode: enforce
gateway:
  servers:
    - name: files
      transport: stdio
      sandbox: none
      command: [%SERVER%]
  tokens:
    - token_env: CORDON_TEST_TOKEN
      tenant: t1
      agent: a1
      tier: supervised
    - sha256: 2222222222222222222222222222222222222222222222222222222222222222
      agent: a2
`

// startGateway runs the command on a free port, and returns its address and
// what ends it.
func startGateway(t *testing.T, file string, args ...string) (url string, stop func() int) {
	t.Helper()
	dir := t.TempDir()
	server := filepath.Join(dir, "fakemcp")
	if err := os.Symlink(testBinary(t), server); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cordon.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(file, "%SERVER%", server)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	code := make(chan int, 1)
	var stderr strings.Builder
	go func() {
		code <- Run(ctx, append([]string{"gateway", "--listen", "127.0.0.1:0", "--config", path, "--db", filepath.Join(dir, "c.db"), "--workspace", dir}, args...),
			Stdio{In: strings.NewReader(""), Out: w, Err: &stderr})
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("it did not start: %v, exit %d\n%s", err, <-code, stderr.String())
	}
	var said struct{ Listen string }
	if err := json.Unmarshal([]byte(line), &said); err != nil {
		t.Fatal(err)
	}
	done := false
	stop = func() int {
		if done {
			return 0
		}
		done = true
		cancel()
		return <-code
	}
	t.Cleanup(func() { stop() })
	return "http://" + said.Listen, stop
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func ask(t *testing.T, url, token, tool, args string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + args + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool} {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestGatewayCommand(t *testing.T) {
	const token = "a-token-that-is-long-enough"
	t.Setenv("CORDON_TEST_TOKEN", token)
	url, stop := startGateway(t, gatewayFile)
	for _, c := range []struct{ name, path, token, tool, args, want string }{
		{"a call in the workspace runs", "/mcp/files", token, "read_file", `{"path":"a.txt"}`, `ran read_file`},
		{"behind the endpoint of all servers too", "/mcp", token, "files__read_file", `{"path":"a.txt"}`, `ran read_file`},
		{"credentials are refused", "/mcp/files", token, "read_file", `{"path":"/root/.ssh/id_rsa"}`, `Cordon refused`},
		{"a killed run's next call is", "/mcp/files", token, "read_file", `{"path":"a.txt"}`, `Cordon`},
		{"another token is nobody", "/mcp/files", token + "x", "read_file", `{"path":"a.txt"}`, `Unauthorized`},
		{"another server is not there", "/mcp/none", token, "read_file", `{"path":"a.txt"}`, `Not Found`},
	} {
		if got := ask(t, url+c.path, c.token, c.tool, c.args); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestGatewayCommandRefusesWhatItCannotHold(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		args []string
		want string
	}{
		"no servers":                {"mode: enforce\n", nil, "no servers"},
		"no tokens":                 {"gateway: {servers: [{name: a, transport: http, url: 'http://127.0.0.1:1/mcp'}]}\n", nil, "no tokens"},
		"a tier by a flag":          {gatewayFile, []string{"--tier", "autonomous"}, "the gateway's tokens say it"},
		"a name with the separator": {strings.Replace(gatewayFile, "name: files", "name: a__b", 1), nil, "server name"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "cordon.yaml")
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(c.file, "%SERVER%", "/bin/true")), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("CORDON_TEST_TOKEN", "a-token-that-is-long-enough")
			var stderr strings.Builder
			code := Run(context.Background(), append([]string{"gateway", "--listen", "127.0.0.1:0", "--config", path, "--db", filepath.Join(dir, "c.db"), "--workspace", dir}, c.args...),
				Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &stderr})
			if code != exitUsage || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit %d: %s", code, stderr.String())
			}
		})
	}
}

func TestGatewayTokenCommand(t *testing.T) {
	var out strings.Builder
	if code := Run(context.Background(), []string{"gateway", "token"}, Stdio{In: strings.NewReader(""), Out: &out, Err: io.Discard}); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if s := out.String(); !strings.Contains(s, "token:  cordon_") || !strings.Contains(s, "sha256: ") {
		t.Errorf("%s", s)
	}
}

// TestG2TheGatewayDecidesAsCheckDoes: a call gets the decision that it gets by
// check, with a session, without one, and behind the endpoint of all servers.
func TestG2TheGatewayDecidesAsCheckDoes(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := filepath.Join(home, "ws")
	if err := os.MkdirAll(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	server := filepath.Join(home, "fakemcp")
	if err := os.Symlink(testBinary(t), server); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(home, "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := config.Load(config.Input{Flags: map[string][]string{"mode": {"enforce"}, "allow-host": {"github.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := newGuard(c, store, &lineLog{w: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	guard := &recorder{Guard: inner}
	outcomes := map[cordon.Outcome]int{}
	for i, call := range []struct{ tool, args string }{
		{"read_text_file", `{"path":"a.txt"}`},
		{"read_text_file", `{"path":"~/.ssh/id_rsa"}`},
		{"read_text_file", `{"path":"/var/log/x"}`},
		{"write_file", `{"path":".git/hooks/pre-commit","content":"x"}`},
		{"write_file", `{"path":"src/a.py","content":"print(1)"}`},
		{"Bash", `{"command":"ls -la && git status"}`},
		{"Bash", `{"command":"rm -rf ~"}`},
		{"Bash", `{"command":7}`},
		{"execute_python", `{"code":"import os; os.system('id')"}`},
		{"query", `{"sql":"DROP TABLE users"}`},
		{"query", `{"sql":"SELECT 1"}`},
		{"fetch", `{"url":"https://github.com/a"}`},
		{"fetch", `{"url":"https://github.com@evil.test/"}`},
		{"some_tool", `{"target_file":"/etc/shadow","note":"rm -rf /"}`},
	} {
		run := cordon.Run{Tier: cordon.Supervised, Profile: "coding", Workspace: ws, Home: home}
		line := fmt.Sprintf(`{"id":%d,"server":"srv","tool":%q,"args":%s}`, i, call.tool, call.args)
		want := inner.Decide(t.Context(), api.ReadCall([]byte(line), run).Call)
		outcomes[want.Outcome]++
		for _, path := range []string{"/mcp/srv", "/mcp"} {
			// A token of its own each time: what was killed stays killed.
			secret := fmt.Sprintf("secret-%d-%s", i, path)
			g, err := gateway.New(gateway.Config{
				Guard: guard, Mode: cordon.Enforce, Workspace: ws, Home: home,
				Servers: []gateway.Server{{Name: "srv", Command: []string{server}}},
				Tokens:  []gateway.Token{{Identity: gateway.Identity{Name: fmt.Sprintf("t%d%d", i, len(path)), Tier: cordon.Supervised, Profile: "coding", Servers: []string{"*"}}, Hash: gateway.HashSecret(secret)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(g)
			name := call.tool
			if path == "/mcp" {
				name = "srv__" + name
			}
			ask(t, srv.URL+path, secret, name, call.args)
			if diff := cmp.Diff(verdict(want), verdict(guard.last)); diff != "" {
				t.Errorf("%s %s at %s (-check +gateway):\n%s", call.tool, call.args, path, diff)
			}
			srv.Close()
			g.Close()
		}
	}
	if outcomes[cordon.Allowed] < 3 || outcomes[cordon.Restricted] < 1 || outcomes[cordon.Blocked] < 3 {
		t.Errorf("the table is one-sided: %v", outcomes)
	}
}
