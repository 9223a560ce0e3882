package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// shareRig is a rig whose address is a shared listener, with the tokens of
// two runs.
func shareRig(t testing.TB, change func(*Config)) (r *rig, first, second string) {
	t.Helper()
	r = newRig(t, change)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	go r.proxy.ServeShared(context.Background(), l, "lobby")
	return r, r.register("run-a", nil), r.register("run-b", nil)
}

func (r *rig) register(run string, rules *Rules) string {
	r.t.Helper()
	token, err := r.proxy.Register(run, rules)
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

func basic(userPassword string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(userPassword)) + "\r\n"
}

func connectWith(target, field string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n" + field + "\r\n"
}

func TestTokenOfASharedListener(t *testing.T) {
	r, token, _ := shareRig(t, nil)
	for _, c := range []struct {
		name, field string
		want        int
	}{
		{"Basic, the token as the password", basic("cordon:" + token), 200},
		{"Basic, the token as the user without a password", basic(token + ":"), 200},
		{"Basic, any user", basic("x@y z:" + token), 200},
		{"Bearer", "Proxy-Authorization: Bearer " + token + "\r\n", 200},
		{"the scheme and the name in other case", strings.ToUpper("Proxy-Authorization: Bearer ") + token + "\r\n", 200},
		{"no field", "", 407},
		{"an empty field", "Proxy-Authorization:\r\n", 407},
		{"an empty token", "Proxy-Authorization: Bearer \r\n", 407},
		{"an empty pair", basic(":"), 407},
		{"another token", "Proxy-Authorization: Bearer " + strings.Repeat("A", len(token)) + "\r\n", 407},
		{"the token without its end", "Proxy-Authorization: Bearer " + token[:len(token)-1] + "\r\n", 407},
		{"more than the token", "Proxy-Authorization: Bearer " + token + "A\r\n", 407},
		{"the token in lower case", "Proxy-Authorization: Bearer " + strings.ToLower(token) + "\r\n", 407},
		{"two tokens in one field", "Proxy-Authorization: Bearer " + token + ", Bearer " + token + "\r\n", 407},
		{"two fields, the first right", "Proxy-Authorization: Bearer " + token + "\r\nProxy-Authorization: Bearer x\r\n", 407},
		{"two fields, the same", strings.Repeat("Proxy-Authorization: Bearer "+token+"\r\n", 2), 407},
		{"Basic without a colon", basic(token), 407},
		{"Basic that is not base64", "Proxy-Authorization: Basic " + token + ":\r\n", 407},
		{"the token without a scheme", "Proxy-Authorization: " + token + "\r\n", 407},
		{"another scheme", "Proxy-Authorization: Digest " + token + "\r\n", 407},
		{"the token in Authorization", "Authorization: Bearer " + token + "\r\n", 407},
		{"the run's name", "Proxy-Authorization: Bearer run-a\r\n", 407},
	} {
		queries, dials := r.resolver.queries(), r.dials()
		rep, conn, _ := r.ask(connectWith("pkg.example.net:443", c.field))
		conn.Close()
		if rep.status != c.want {
			t.Errorf("%s: %d, want %d", c.name, rep.status, c.want)
		}
		if rep.status != 407 {
			continue
		}
		if r.resolver.queries() != queries || r.dials() != dials {
			t.Errorf("%s: a name was resolved or an address dialled", c.name)
		}
		if got := rep.header.Get("Proxy-Authenticate"); got != `Basic realm="cordon"` {
			t.Errorf("%s: Proxy-Authenticate %q", c.name, got)
		}
		if rep.header.Get("X-Cordon-Refused") != RuleToken {
			t.Errorf("%s: cites %q", c.name, rep.header.Get("X-Cordon-Refused"))
		}
	}
	if err := r.proxy.ledger.flush(true); err != nil {
		t.Fatal(err)
	}
	rows := r.rows.list()
	if len(rows) != 2 || rows[0].Count+rows[1].Count != 17 {
		t.Errorf("rows %+v, want the first refusal and a count of the other 16", rows)
	}
	for _, x := range rows {
		if x.Run != "lobby" || x.Rule != RuleToken || !x.Refused {
			t.Errorf("row %+v", x)
		}
		if strings.Contains(fmt.Sprint(x), token) {
			t.Errorf("the row has the token: %+v", x)
		}
	}
}

func TestTokenIsRequiredInEveryMode(t *testing.T) {
	for _, mode := range []cordon.Mode{cordon.Shadow, cordon.Off} {
		r, token, _ := shareRig(t, func(c *Config) { c.Mode = mode })
		if rep, _, _ := r.ask(connectHead("evil.test:443")); rep.status != 407 {
			t.Errorf("%v, without a token: %d", mode, rep.status)
		}
		if rep, _, _ := r.ask(connectWith("evil.test:443", basic(":"+token))); rep.status != 200 {
			t.Errorf("%v, with the token: %d", mode, rep.status)
		}
		for _, x := range r.rows.list() {
			if x.Enforced {
				t.Errorf("%v: a row claims that the mode enforced it: %+v", mode, x)
			}
		}
	}
}

func TestTokenDoesNotReachTheOrigin(t *testing.T) {
	r, token, _ := shareRig(t, nil)
	for _, field := range []string{
		basic("u:" + token), "PROXY-authorization: Bearer " + token + "\r\n",
		"Connection: keep-alive\r\nProxy-Authorization: Bearer " + token + "\r\n",
	} {
		rep, _, _ := r.ask(getHead("http://pkg.example.net/x", "pkg.example.net", field, "Authorization: Bearer mine\r\n"))
		if rep.status != 200 {
			t.Fatalf("%q: %d %s", field, rep.status, rep.body)
		}
	}
	got := strings.ToLower(r.plain.bytes())
	if strings.Contains(got, strings.ToLower(token)) || strings.Contains(got, "proxy-auth") {
		t.Errorf("the origin got the token: %q", got)
	}
	if strings.Count(got, "authorization: bearer mine") != 3 {
		t.Errorf("the origin did not get its own Authorization: %q", got)
	}
}

func TestTokensKeepRunsApart(t *testing.T) {
	r, a, b := shareRig(t, func(c *Config) { c.Limits.UploadBytes = 8 << 10 })
	open := func(token string) (net.Conn, *bufio.Reader) {
		rep, conn, br := r.ask(connectWith("db.example.net:8443", basic(":"+token)))
		if rep.status != 200 {
			t.Fatalf("%d %s", rep.status, rep.body)
		}
		return conn, br
	}
	conn, br := open(a)
	go conn.Write(make([]byte, 64<<10))
	ended(t, conn, br)
	eventually(t, "row of the cap", func() bool { return r.rows.has(RuleUpload) })
	if x := r.rows.list()[0]; x.Run != "run-a" {
		t.Errorf("the row is of %q", x.Run)
	}
	conn, br = open(b)
	io.WriteString(conn, "mine")
	if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
		t.Errorf("the other run's tunnel: %v", err)
	}
	// One connection serves one run.
	get := func(token string) string {
		return getHead("http://pkg.example.net/", "pkg.example.net", basic(":"+token))
	}
	rep, conn, br := r.ask(get(b))
	if rep.status != 200 {
		t.Fatal(rep)
	}
	for _, next := range []struct {
		name, raw string
		want      int
	}{{"the same token", get(b), 200}, {"another run's token", get(a), 407}} {
		io.WriteString(conn, next.raw)
		if rep, err := readReply(br, "GET"); err != nil || rep.status != next.want {
			t.Errorf("%s: %v, %v", next.name, rep.status, err)
		}
	}
	rep, conn, br = r.ask(get(b))
	if rep.status != 200 {
		t.Fatal(rep)
	}
	io.WriteString(conn, getHead("http://pkg.example.net/", "pkg.example.net"))
	if rep, err := readReply(br, "GET"); err != nil || rep.status != 407 {
		t.Errorf("a second request without a token: %v, %v", rep.status, err)
	}
}

func TestTokenEndsWithItsRun(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *Proxy)
		kept bool // the run may come back
	}{
		{"unregistered", func(p *Proxy) { p.Unregister("run-a") }, true},
		{"killed", func(p *Proxy) { p.Kill("run-a") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, a, b := shareRig(t, nil)
			rep, gone, goneBr := r.ask(connectWith("db.example.net:8443", basic(":"+a)))
			if rep.status != 200 {
				t.Fatal(rep)
			}
			rep, kept, keptBr := r.ask(connectWith("db.example.net:8443", basic(":"+b)))
			if rep.status != 200 {
				t.Fatal(rep)
			}
			c.end(r.proxy)
			ended(t, gone, goneBr)
			if rep, _, _ := r.ask(connectWith("pkg.example.net:443", basic(":"+a))); rep.status != 407 {
				t.Errorf("the dead token: %d", rep.status)
			}
			io.WriteString(kept, "mine")
			if _, err := io.ReadFull(keptBr, make([]byte, 4)); err != nil {
				t.Errorf("the other run's tunnel: %v", err)
			}
			again, err := r.proxy.Register("run-a", nil)
			if (err == nil) != c.kept {
				t.Errorf("registered again: %v", err)
			}
			if again == a {
				t.Error("the old token again")
			}
		})
	}
}

func TestRegisterRefuses(t *testing.T) {
	r, _, _ := shareRig(t, nil)
	if _, err := r.proxy.Register("run-a", nil); err == nil {
		t.Error("a run got two tokens")
	}
	llm, err := ParseLLMRules([]string{"api.openai.com"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.proxy.Register("run-c", llm); err == nil {
		t.Error("a tool proxy took LLM rules")
	}
	if err := r.proxy.SetRunRules("run-c", nil); err == nil {
		t.Error("rules for a run that nobody knows")
	}
	r.proxy.Unregister("run-c") // nothing to do
	r.proxy.Close()
	if _, err := r.proxy.Register("run-d", nil); err == nil {
		t.Error("a closed proxy made a token")
	}
}

func TestConnectionsOfATokenAreLimited(t *testing.T) {
	r, a, b := shareRig(t, func(c *Config) { c.Limits.Tunnels = 2 })
	for range 2 {
		if rep, _, _ := r.ask(connectWith("pkg.example.net:443", basic(":"+a))); rep.status != 200 {
			t.Fatal(rep)
		}
	}
	if rep, _, _ := r.ask(connectWith("pkg.example.net:443", basic(":"+a))); rep.status != 503 {
		t.Errorf("one too many: %d", rep.status)
	}
	if x := r.rows.list(); len(x) != 1 || x[0].Run != "run-a" || x[0].Rule != RuleTunnels {
		t.Errorf("rows %+v", x)
	}
	if rep, _, _ := r.ask(connectWith("pkg.example.net:443", basic(":"+b))); rep.status != 200 {
		t.Errorf("the other run: %d", rep.status)
	}
}

func FuzzParseCredentials(f *testing.F) {
	for _, s := range []string{"Bearer x", "Basic eDp5", "basic  eA==", "", "Basic", "Bearer  ", "Digest a=b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		token, ok := parseCredentials(value)
		if ok != (token != "") {
			t.Errorf("%q: %q, %v", value, token, ok)
		}
	})
}
