package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
