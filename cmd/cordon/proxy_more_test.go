package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
)

func TestProxyCommandWithAToken(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from the origin") }))
	defer origin.Close()
	host := origin.Listener.Addr().String()
	addrs, stop, _ := startProxy(t, "--tool-listen", "127.0.0.1:0", "--token", "--mode", "enforce", "--db", filepath.Join(t.TempDir(), "a.db"),
		"--allow-host", host, "--unsafe-allow-private", "127.0.0.0/8")
	rest, ok := strings.CutPrefix(addrs.Tool, "http://run:")
	token, addr, at := strings.Cut(rest, "@")
	if !ok || !at || len(token) < 16 {
		t.Fatalf("address %q", addrs.Tool)
	}
	for _, c := range []struct {
		name, header string
		status       int
	}{
		{"without the token", "", 407},
		{"with another token", "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("run:"+strings.Repeat("x", len(token)))) + "\r\n", 407},
		{"with the token as a password", "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("run:"+token)) + "\r\n", 200},
		{"with the token as a bearer's", "Proxy-Authorization: Bearer " + token + "\r\n", 200},
	} {
		if resp := askProxy(t, addr, "GET http://"+host+"/ HTTP/1.1\r\nHost: "+host+"\r\n"+c.header+"\r\n"); resp.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", c.name, resp.StatusCode, c.status)
		}
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestOthersMachinesNeedTheToken(t *testing.T) {
	for _, c := range []struct {
		name, listen string
		pair         proxyPair
		want         bool
	}{
		{"loopback", "127.0.0.1:0", proxyPair{}, false},
		{"loopback with --token", "127.0.0.1:0", proxyPair{token: true}, true},
		{"every address", "0.0.0.0:0", proxyPair{}, true},
		{"every address, for everybody", "0.0.0.0:0", proxyPair{anyClient: true}, false},
		{"a Unix socket", "unix:" + filepath.Join(t.TempDir(), "s"), proxyPair{}, false},
	} {
		network, address := "tcp", c.listen
		if path, ok := strings.CutPrefix(c.listen, "unix:"); ok {
			network, address = "unix", path
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.pair.wantsToken(l); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		l.Close()
	}
}

func TestProxyCommandFollowsItsConfiguration(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from the origin") }))
	defer origin.Close()
	host := origin.Listener.Addr().String()
	file := filepath.Join(t.TempDir(), "cordon.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("allow_hosts: []\n")
	addrs, stop, _ := startProxy(t, "--tool-listen", "127.0.0.1:0", "--config", file, "--mode", "enforce",
		"--db", filepath.Join(t.TempDir(), "a.db"), "--unsafe-allow-private", "127.0.0.0/8")
	get := "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	becomes := func(what string, status int) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			got := askProxy(t, addrs.Tool, get).StatusCode
			if got == status {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d, want %d", what, got, status)
			}
		}
	}
	becomes("not named yet", 403)
	write("allow_hosts: ['" + host + "']\n")
	becomes("named", 200)
	// A tunnel that is open, to the same origin.
	conn, err := net.Dial("tcp", addrs.Tool)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(conn, connect(host))
	br := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(br, &http.Request{Method: "CONNECT"}); err != nil || resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %v, %v", resp, err)
	}
	write("allow_hosts: ['*.com']\n") // cannot be used: nothing changes
	becomes("after what cannot be used", 200)
	write("allow_hosts: []\n")
	becomes("taken back", 403)
	if _, err := br.ReadByte(); err == nil {
		t.Error("the tunnel is open")
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// fakeModel answers as Anthropic's API does, and remembers the keys.
type fakeModel struct {
	*httptest.Server
	calls atomic.Int64
	key   atomic.Value
}

func newFakeModel(t *testing.T) *fakeModel {
	f := &fakeModel{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.calls.Add(1)
		f.key.Store(r.Header.Get("X-Api-Key"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":1000}}`)
	}))
	t.Cleanup(f.Close)
	return f
}

func TestProxyCommandServesModels(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "sk-the-real-key")
	model := newFakeModel(t)
	dir := t.TempDir()
	prices := filepath.Join(dir, "prices.json")
	if err := os.WriteFile(prices, []byte(`{"models":[{"provider":"anthropic","model":"m","input":1000,"output":1000,"cache_read":1,"cache_write":1,"cache_write_1h":1,"source":"a test","date":"2026-01-01"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cordon.yaml")
	if err := os.WriteFile(file, []byte("caps: {cost_usd: 3}\negress: {prices: "+prices+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(dir, "a.db")
	line, stop := startProxyLine(t, "--llm-base-listen", "127.0.0.1:0", "--llm-base", "anthropic="+model.URL, "--mode", "enforce",
		"--config", file, "--db", db, "--run-id", "models")
	var ready struct {
		Base string   `json:"llm_base"`
		Env  []string `json:"llm_env"`
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, e := range ready.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	if strings.Contains(line, "sk-the-real-key") || env["ANTHROPIC_BASE_URL"] != "http://"+ready.Base+"/anthropic" {
		t.Fatalf("%s", line)
	}
	ask := func(path, key string) (int, string) {
		t.Helper()
		req, err := http.NewRequest("POST", env["ANTHROPIC_BASE_URL"]+path, strings.NewReader(`{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Anthropic-Version", "2023-06-01")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	placeholder := env["ANTHROPIC_API_KEY"]
	if code, body := ask("/v1/messages", placeholder); code != 200 || !strings.Contains(body, "hello") || model.key.Load() != "sk-the-real-key" {
		t.Fatalf("%d %s, key %v", code, body, model.key.Load())
	}
	if code, body := ask("/v1/messages", "sk-of-somebody"); code != 401 {
		t.Errorf("a foreign key: %d %s", code, body)
	}
	if code, body := ask("/v1/files", placeholder); code/100 != 4 {
		t.Errorf("an upload: %d %s", code, body)
	}
	// Each answer costs two dollars of three.
	if code, body := ask("/v1/messages", placeholder); code != 200 {
		t.Errorf("within the cap: %d %s", code, body)
	}
	if code, body := ask("/v1/messages", placeholder); code != 402 {
		t.Errorf("over the cap: %d %s", code, body)
	}
	if n := model.calls.Load(); n != 2 {
		t.Errorf("%d calls reached the model", n)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	store, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if used, err := store.Usage(t.Context(), "models"); err != nil || used.CostUSD < 3.9 || used.CostUSD > 4.1 {
		t.Errorf("cost %v, %v", used.CostUSD, err)
	}
	rows, err := store.Violations(t.Context(), audit.Filter{RunID: "models"})
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, v := range rows {
		types[v.Type]++
		if v.Phase != "D" || !v.Enforced || strings.Contains(fmt.Sprintf("%+v", v), "sk-the-real-key") {
			t.Errorf("row %+v", v)
		}
	}
	if types["egress_host"] != 2 || types["cap_exceeded"] != 1 {
		t.Errorf("rows %v", types)
	}
}

// startProxyLine is startProxy that returns the line itself.
func startProxyLine(t *testing.T, args ...string) (line string, stop func() int) {
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
		t.Fatalf("exit %d without a line: %s", <-codes, errs.String())
	}
	t.Cleanup(cancel)
	return line, func() int { cancel(); return <-codes }
}

func TestProxyCommandRefusesFlagsThatGoTogetherInNoWay(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, name := range []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"} {
		t.Setenv(name, "")
	}
	tool, base := []string{"proxy", "--tool-listen", "127.0.0.1:0"}, []string{"proxy", "--llm-base-listen", "127.0.0.1:0"}
	for _, c := range []struct {
		name, says string
		args       []string
	}{
		{"model APIs without a listener", "--llm-base-listen", append(tool[:3:3], "--llm", "openai")},
		{"a listener without model APIs", "which model", base},
		{"a provider without a key", "ANTHROPIC_API_KEY", append(base[:3:3], "--llm", "anthropic")},
		{"an unknown provider", "anthropic, openai, gemini", append(base[:3:3], "--llm", "acme")},
		{"a base without a URL", "PROVIDER=URL", append(base[:3:3], "--llm-base", "openai")},
		{"a base that is no URL", "base URL", append(base[:3:3], "--llm-base", "openai=nonsense")},
		{"a provider's base twice", "once", append(base[:3:3], "--llm-base", "openai=https://a.test/v1", "--llm-base", "openai=https://b.test/v1")},
		{"an unknown feature", "--llm-feature", append(base[:3:3], "--llm-base", "openai=https://a.test/v1", "--llm-feature", "telepathy")},
		{"a feature of nothing", "--llm-feature", append(tool[:3:3], "--llm-feature", "web_search")},
		{"model APIs for the whole network", "loopback", []string{"proxy", "--llm-base-listen", "0.0.0.0:0", "--llm-base", "openai=https://a.test/v1"}},
		{"a base URL on a Unix socket", "host:port", []string{"proxy", "--llm-base-listen", "unix:" + filepath.Join(t.TempDir(), "b"), "--llm-base", "openai=https://a.test/v1"}},
		{"a token on a Unix socket", "Unix socket", []string{"proxy", "--tool-listen", "unix:" + filepath.Join(t.TempDir(), "s"), "--token"}},
		{"a token for everybody", "contradict", append(tool[:3:3], "--token", "--unsafe-any-client")},
		{"an unknown ecosystem", "cobol", append(tool[:3:3], "--ecosystem", "cobol")},
	} {
		var errs bytes.Buffer
		code := Run(t.Context(), c.args, Stdio{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
		if code != exitUsage || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: exit %d, want %d and %q: %s", c.name, code, exitUsage, c.says, errs.String())
		}
	}
}
