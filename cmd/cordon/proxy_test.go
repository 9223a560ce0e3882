package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/contain/egress"
)

// startProxy runs "cordon proxy" until stop is called, which returns its exit
// code.
func startProxy(t *testing.T, args ...string) (addrs struct{ Tool, LLM string }, stop func() int, exited <-chan int) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var errs bytes.Buffer
	codes := make(chan int, 1)
	go func() {
		code := Run(ctx, append([]string{"proxy"}, args...), Stdio{In: strings.NewReader(""), Out: w, Err: &errs})
		w.Close()
		codes <- code
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("exit %d without an address: %s", <-codes, errs.String())
	}
	if err := json.Unmarshal([]byte(line), &addrs); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	t.Cleanup(cancel)
	return addrs, func() int { cancel(); return <-codes }, codes
}

func askProxy(t *testing.T, addr, raw string) *http.Response {
	t.Helper()
	network, address := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, address = "unix", path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "GET"})
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

func connect(host string) string {
	return "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

func TestProxyCommand(t *testing.T) {
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	go http.Serve(origin, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from the origin") }))
	db := filepath.Join(t.TempDir(), "a.db")
	addrs, stop, _ := startProxy(t, "--tool-listen", "127.0.0.1:0", "--llm-listen", "unix:"+filepath.Join(t.TempDir(), "l"), "--mode", "enforce",
		"--db", db, "--run-id", "proxy-test", "--allow-host", origin.Addr().String(), "--allow-host", "10.9.8.7", "--unsafe-allow-private", "127.0.0.0/8")
	for _, c := range []struct {
		name, addr, raw string
		status          int
		rule            string
	}{
		{"a listed private origin", addrs.Tool, "GET http://" + origin.Addr().String() + "/ HTTP/1.1\r\nHost: " + origin.Addr().String() + "\r\n\r\n", 200, ""},
		{"an unlisted host", addrs.Tool, connect("evil.test:443"), 403, "egress.host"},
		{"a listed private address without an exception", addrs.Tool, connect("10.9.8.7:443"), 403, "egress.private"},
		{"an LLM host by the tool proxy", addrs.Tool, connect("api.openai.com:443"), 403, "egress.llm_host"},
		{"the baseline, which was not asked for", addrs.Tool, connect("pypi.org:443"), 403, "egress.host"},
		{"a tool's host by the LLM proxy", addrs.LLM, connect("10.9.8.7:443"), 403, "egress.host"},
		{"a request that cannot be read", addrs.LLM, "GET / HTTP/1.1\r\n\r\n", 400, "egress.syntax"},
	} {
		resp := askProxy(t, c.addr, c.raw)
		if got := resp.Header.Get("X-Cordon-Refused"); resp.StatusCode != c.status || got != c.rule {
			t.Errorf("%s: %d %q, want %d %q", c.name, resp.StatusCode, got, c.status, c.rule)
		}
	}
	askProxy(t, addrs.Tool, connect("evil.test:443"))
	if code := stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	store, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	rows, err := store.Violations(t.Context(), audit.Filter{RunID: "proxy-test", Phase: "D", Type: "egress_host"})
	if err != nil {
		t.Fatal(err)
	}
	// Six refusals of their own, and the count of the one that came again.
	if len(rows) != 7 {
		t.Errorf("%d rows, want 7: %+v", len(rows), rows)
	}
	for _, v := range rows {
		if !v.Enforced || v.Decision != "blocked" || v.ToolName == "" || v.ArgsHash == "" {
			t.Errorf("row %+v", v)
		}
	}
	if res, err := store.Verify(t.Context()); err != nil || !res.OK {
		t.Errorf("the chain: %+v, %v", res, err)
	}
}

func TestProxyCommandEndsWhenItsRunIsKilled(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow", "off"} {
		t.Run(mode, func(t *testing.T) {
			db := filepath.Join(t.TempDir(), "a.db")
			_, _, exited := startProxy(t, "--tool-listen", "127.0.0.1:0", "--mode", mode, "--db", db, "--run-id", "doomed")
			if code := Run(t.Context(), []string{"kill", "--db", db, "doomed"}, Stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}); code != exitOK {
				t.Fatalf("kill: exit %d", code)
			}
			select {
			case code := <-exited:
				if code != exitKilled {
					t.Errorf("exit %d, want %d", code, exitKilled)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the proxy goes on")
			}
		})
	}
}

func TestProxyCommandRefusesBadFlags(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	listen := []string{"proxy", "--tool-listen", "127.0.0.1:0"}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"no listener", []string{"proxy"}},
		{"a pattern too wide", append(listen[:3:3], "--allow-host", "*.com")},
		{"an LLM host for tools", append(listen[:3:3], "--allow-host", "api.openai.com")},
		{"a resolver by name", append(listen[:3:3], "--resolver", "dns.example.net:53")},
		{"an exception that is no range", append(listen[:3:3], "--unsafe-allow-private", "10.0.0.1")},
		{"an unknown mode", append(listen[:3:3], "--mode", "maybe")},
	} {
		var errs bytes.Buffer
		if code := Run(t.Context(), c.args, Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &errs}); code != exitUsage {
			t.Errorf("%s: exit %d, want %d: %s", c.name, code, exitUsage, errs.String())
		}
	}
}

func TestRefusalRowSaysHowMany(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v, err := refusalRow(audit.RunRow{RunID: "r"}, egress.Refusal{Rule: egress.RuleHost, Host: "evil.test", Port: 443, Why: "no rule", Count: 41, First: at, Last: at.Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(v.Detail, "evil.test:443") || !strings.Contains(v.Detail, "41 times") || v.Enforced || v.Type != string(cordon.EgressHost) || strings.Contains(v.Detail, "every mode") {
		t.Errorf("%+v", v)
	}
}

func TestRefusalRowSaysWhatNoModeLetsThrough(t *testing.T) {
	for _, c := range []struct {
		name              string
		refused, enforced bool
		says              bool
	}{
		{"refused in shadow mode", true, false, true},
		{"let through in shadow mode", false, false, false},
		{"refused in enforce mode", true, true, false},
	} {
		v, err := refusalRow(audit.RunRow{RunID: "r"}, egress.Refusal{Rule: egress.RulePrivate, Host: "a.test", Port: 443, Why: "it is private", Refused: c.refused, Enforced: c.enforced})
		if err != nil {
			t.Fatal(err)
		}
		if v.Enforced != c.enforced || strings.HasSuffix(v.Detail, "; refused in every mode") != c.says {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}
