//go:build integration

package integration

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// violation is what the tests look at in `cordon violations --json`.
type violation struct {
	Decision string `json:"decision"`
	Tool     string `json:"tool_name"`
	Type     string `json:"violation_type"`
	Detail   string `json:"violation_detail"`
	Enforced bool   `json:"enforced"`
	Killed   bool   `json:"killrun_triggered"`
}

// violations reads the rows, whether they come as one list or line by line.
func violations(t *testing.T, p *parts, db string) []violation {
	t.Helper()
	code, out, errs := output(t, p.cordon, "violations", "--db", db, "--json")
	if code != 0 {
		t.Fatalf("cordon violations: exit %d: %s%s", code, out, errs)
	}
	var all []violation
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("cordon violations: %v: %s", err, out)
		}
		var list []violation
		if json.Unmarshal(raw, &list) != nil {
			list = make([]violation, 1)
			if err := json.Unmarshal(raw, &list[0]); err != nil {
				t.Fatalf("cordon violations: %v: %s", err, raw)
			}
		}
		all = append(all, list...)
	}
}

func TestMCPEnforceKillsTheRunThatReadsAKeyThroughALink(t *testing.T) {
	p, at := need(t), newPlace(t)
	server := []string{p.node, p.filesystem(), at.home}
	command := at.cordonMCP(p.cordon, "enforce", server...)

	direct := connect(t, server...)
	c := connect(t, command...)
	want := direct.call("read_text_file", fmt.Sprintf(`{"path":%q}`, at.notes))
	if got := c.call("read_text_file", fmt.Sprintf(`{"path":%q}`, at.notes)); got != want {
		t.Fatalf("a read in the workspace came as\n%s\nwant\n%s", got, want)
	}
	if text, _ := direct.readFile(at.link); text != secretText {
		t.Fatalf("without cordon the link reads %q: the test shows nothing", text)
	}
	text, refused := c.readFile(at.link)
	if !refused || strings.Contains(text, secretText) || !strings.Contains(text, "read_text_file") {
		t.Fatalf("the read through the link: refused %v: %s", refused, text)
	}
	t.Logf("the model reads: %s", text)
	if text, refused := c.readFile(at.notes); !refused {
		t.Fatalf("the next call passed: %s", text)
	}
	c.close()

	again := connect(t, command...)
	if text, refused := again.readFile(at.notes); !refused {
		t.Fatalf("after a restart the call passed: %s", text)
	}
	again.close()

	killed := false
	for _, v := range violations(t, p, at.db) {
		killed = killed || v.Killed && v.Enforced && v.Decision == "blocked" && strings.Contains(v.Tool, "read_text_file")
		if strings.Contains(v.Detail, secretText) {
			t.Errorf("a row holds the secret: %+v", v)
		}
	}
	if !killed {
		t.Fatalf("no row says that the read killed the run: %+v", violations(t, p, at.db))
	}
	auditNoticesOneByte(t, p, at.db)
}

func auditNoticesOneByte(t *testing.T, p *parts, db string) {
	t.Helper()
	if code, out, errs := output(t, p.cordon, "audit", "verify", "--db", db); code != 0 {
		t.Fatalf("cordon audit verify: exit %d: %s%s", code, out, errs)
	}
	conn, err := sql.Open("sqlite", db)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	res, err := conn.Exec(`UPDATE sandbox_violations
		SET tool_name = substr(tool_name, 1, length(tool_name)-1) || 'E'
		WHERE rowid = (SELECT min(rowid) FROM sandbox_violations)`)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%d rows changed, %v", n, err)
	}
	code, out, errs := output(t, p.cordon, "audit", "verify", "--db", db)
	if code == 0 {
		t.Fatalf("cordon audit verify did not notice the edited byte: %s%s", out, errs)
	}
	t.Logf("cordon audit verify, exit %d: %s%s", code, out, errs)
}

func TestMCPShadowPassesEverythingAndReportsIt(t *testing.T) {
	p, at := need(t), newPlace(t)
	server := []string{p.node, p.filesystem(), at.home}
	direct, c := connect(t, server...), connect(t, at.cordonMCP(p.cordon, "shadow", server...)...)
	for _, path := range []string{at.notes, at.link, at.notes} {
		args := fmt.Sprintf(`{"path":%q}`, path)
		want := direct.call("read_text_file", args)
		if got := c.call("read_text_file", args); got != want {
			t.Fatalf("%s came as\n%s\nwant\n%s", path, got, want)
		}
	}
	if got, want := c.ask("tools/list", `{}`), direct.ask("tools/list", `{}`); got != want {
		t.Fatalf("tools/list came as\n%s\nwant\n%s", got, want)
	}
	c.close()
	rows := violations(t, p, at.db)
	if len(rows) == 0 {
		t.Fatal("no row says what would have been refused")
	}
	for _, v := range rows {
		if v.Enforced || v.Killed {
			t.Errorf("a row of shadow mode claims more: %+v", v)
		}
	}
	code, out, errs := output(t, p.cordon, "report", "--db", at.db)
	if code != 0 || !strings.Contains(out, "read_text_file") {
		t.Fatalf("cordon report: exit %d: %s%s", code, out, errs)
	}
	t.Logf("cordon report:\n%s", out)
}

func TestMCPEverythingServerIsTheSameThroughCordon(t *testing.T) {
	p, at := need(t), newPlace(t)
	server := []string{p.node, p.everything()}
	direct, c := connect(t, server...), connect(t, at.cordonMCP(p.cordon, "shadow", server...)...)
	for _, ask := range []struct{ method, params string }{
		{"ping", `{}`},
		{"tools/list", `{}`},
		{"prompts/list", `{}`},
		{"resources/list", `{}`},
		{"resources/templates/list", `{}`},
		{"resources/read", `{"uri":"demo://resource/static/document/architecture.md"}`},
		{"tools/call", `{"name":"echo","arguments":{"message":"é \u00e9 \ud83d\ude00 \"q\" \\"}}`},
		{"tools/call", `{"name":"get-sum","arguments":{"a":1.50,"b":2e1}}`},
		{"tools/call", `{"name":"get-tiny-image","arguments":{}}`},
		{"tools/call", `{"name":"get-structured-content","arguments":{"location":"Chicago"}}`},
		{"tools/call", `{"name":"get-annotated-message","arguments":{"messageType":"error","includeImage":true}}`},
		{"tools/call", `{"name":"get-resource-links","arguments":{"count":3}}`},
		{"tools/call", `{"name":"echo","arguments":{"message":5}}`},
		{"tools/call", `{"name":"no-such-tool","arguments":{}}`},
		{"tools/call", `{"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":2},"_meta":{"progressToken":"p"}}`},
		{"no/such/method", `{"x":[1,2.50]}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"none"},"argument":{"name":"a","value":"b"}}`},
	} {
		if got, want := c.ask(ask.method, ask.params), direct.ask(ask.method, ask.params); got != want {
			t.Errorf("%s %s came as\n%s\nwant\n%s", ask.method, ask.params, got, want)
		}
	}
}

func TestMCPTheInspectorWorksThroughCordon(t *testing.T) {
	p, at := need(t), newPlace(t)
	// The inspector takes a "--" or a flag of the server's for its own, so the
	// command stands in a script.
	script := filepath.Join(t.TempDir(), "server.sh")
	inspect := func(command []string, args ...string) (int, string, string) {
		line := "#!/bin/sh\nexec"
		for _, w := range command {
			line += " '" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		if err := os.WriteFile(script, []byte(line+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return output(t, append([]string{p.node, p.script("inspector", "cli", "build", "cli.js"), "--cli", script}, args...)...)
	}
	server := []string{p.node, p.filesystem(), at.home}
	fronted := at.cordonMCP(p.cordon, "enforce", server...)
	read := func(path string) []string {
		return []string{"--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=" + path}
	}

	_, want, _ := inspect(server, read(at.notes)...)
	if code, got, errs := inspect(fronted, read(at.notes)...); code != 0 || got != want {
		t.Fatalf("exit %d: %s\nwant %s\n%s", code, got, want, errs)
	}
	code, got, errs := inspect(fronted, "--method", "tools/list")
	if code != 0 || !strings.Contains(got, `"read_text_file"`) {
		t.Fatalf("exit %d: %s\n%s", code, got, errs)
	}
	for _, path := range []string{at.link, at.notes} { // the first kills, the second is refused for it
		_, got, errs = inspect(fronted, read(path)...)
		if !strings.Contains(got, `"isError": true`) || strings.Contains(got, secretText) {
			t.Fatalf("%s: %s\n%s", path, got, errs)
		}
	}
}

// A screenshot is larger than any text that a model should be given.
func TestMCPPassesAnImageAsItCame(t *testing.T) {
	p := need(t)
	for _, mode := range []string{"shadow", "enforce"} {
		t.Run(mode, func(t *testing.T) {
			at := newPlace(t)
			image := filepath.Join(at.workspace, "shot.png")
			if err := os.WriteFile(image, []byte("\x89PNG"+strings.Repeat("pixels", 300_000)), 0o600); err != nil {
				t.Fatal(err)
			}
			server := []string{p.node, p.filesystem(), at.workspace}
			ask := fmt.Sprintf(`{"path":%q}`, image)
			want := connect(t, server...).call("read_media_file", ask)
			if len(want) < 2<<20 {
				t.Fatalf("the server answers with %d bytes: the test shows nothing", len(want))
			}
			if got := connect(t, at.cordonMCP(p.cordon, mode, server...)...).call("read_media_file", ask); got != want {
				t.Fatalf("%d bytes came as %d: %.300s", len(want), len(got), got)
			}
		})
	}
}
