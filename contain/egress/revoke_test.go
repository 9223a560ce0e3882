package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// states are the moments of a connection in which its run can be killed, or
// its host be taken away. Each returns the client's end once the proxy is in
// that state.
var states = []struct {
	name string
	// open: bytes flow to an origin, or are about to.
	open  bool
	reach func(t *testing.T, r *rig) net.Conn
}{
	{"before its first byte", false, func(t *testing.T, r *rig) net.Conn {
		conn := r.connect()
		eventually(t, "accepted", func() bool { return len(r.proxy.clients()) == 1 })
		return conn
	}},
	{"in the middle of a head", false, func(t *testing.T, r *rig) net.Conn {
		conn := r.connect()
		io.WriteString(conn, "CONNECT pkg.example.net:443 HT")
		eventually(t, "accepted", func() bool { return len(r.proxy.clients()) == 1 })
		return conn
	}},
	{"while its name is resolved", false, func(t *testing.T, r *rig) net.Conn {
		r.resolver.hang()
		conn := r.connect()
		io.WriteString(conn, connectHead("pkg.example.net:443"))
		eventually(t, "asked", func() bool { return r.resolver.queries() == 1 })
		return conn
	}},
	{"before its ClientHello", true, func(t *testing.T, r *rig) net.Conn {
		conn, _ := r.connectTo("pkg.example.net:443")
		return conn
	}},
	{"in the middle of its ClientHello", true, func(t *testing.T, r *rig) net.Conn {
		conn, _ := r.connectTo("pkg.example.net:443")
		conn.Write(clientHello(t, "pkg.example.net")[:40])
		return conn
	}},
	{"in an idle tunnel", true, func(t *testing.T, r *rig) net.Conn {
		conn, _ := r.open("pkg.example.net:443", "pkg.example.net")
		return conn
	}},
	{"in a tunnel half closed", true, func(t *testing.T, r *rig) net.Conn {
		r.origin(&r.tunnel, func(o *origin, conn net.Conn) {
			io.Copy(writerFunc(o.note), conn)
			o.note([]byte("end"))
			io.Copy(io.Discard, neverEnds{conn})
		})
		conn, _ := r.connectTo("db.example.net:8443")
		closeWrite(conn)
		eventually(t, "the origin sees the end", func() bool { return r.tunnel.bytes() == "end" })
		return conn
	}},
	{"in a download at full speed", true, func(t *testing.T, r *rig) net.Conn {
		r.origin(&r.tunnel, func(_ *origin, conn net.Conn) { io.Copy(conn, endless{}) })
		conn, br := r.connectTo("db.example.net:8443")
		if _, err := io.CopyN(io.Discard, br, 4<<20); err != nil {
			t.Fatal(err)
		}
		return conn
	}},
	{"in a download that its client does not read", true, func(t *testing.T, r *rig) net.Conn {
		r.origin(&r.tunnel, func(_ *origin, conn net.Conn) { io.Copy(conn, endless{}) })
		conn, br := r.connectTo("db.example.net:8443")
		if _, err := io.CopyN(io.Discard, br, 1); err != nil {
			t.Fatal(err)
		}
		return conn
	}},
	{"waiting for an answer to plain HTTP", true, func(t *testing.T, r *rig) net.Conn {
		r.origin(&r.plain, echoSilently)
		conn := r.connect()
		io.WriteString(conn, getHead("http://pkg.example.net/slow", "pkg.example.net"))
		eventually(t, "the origin is asked", func() bool { return r.plain.bytes() != "" })
		return conn
	}},
	{"in the middle of an upload by plain HTTP", true, func(t *testing.T, r *rig) net.Conn {
		r.origin(&r.plain, echoSilently)
		conn := r.connect()
		fmt.Fprintf(conn, post+"Content-Length: 1000000\r\n\r\nbegin")
		eventually(t, "the origin is asked", func() bool { return r.plain.bytes() != "" })
		return conn
	}},
	{"between two requests of plain HTTP", false, func(t *testing.T, r *rig) net.Conn {
		rep, conn, _ := r.ask(getHead("http://pkg.example.net/", "pkg.example.net"))
		if rep.status != 200 {
			t.Fatal(rep)
		}
		r.betweenRequests()
		return conn
	}},
}

// betweenRequests waits until the only client is done with its origin.
func (r *rig) betweenRequests() {
	eventually(r.t, "it waits for another request", func() bool {
		c := r.proxy.clients()[0]
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.waiting
	})
}

// neverEnds hides the end of a connection that the client has half closed,
// but not that it is gone.
type neverEnds struct{ conn net.Conn }

func (n neverEnds) Read(p []byte) (int, error) {
	// The peer reads nothing any more; what shows that it is gone is a reset.
	for {
		if _, err := n.conn.Write([]byte(".")); err != nil {
			return 0, err
		}
		m, err := n.conn.Read(p)
		if err != nil && err != io.EOF {
			return m, err
		}
	}
}

func echoSilently(o *origin, conn net.Conn) { io.Copy(writerFunc(o.note), conn) }

func TestKillInEveryState(t *testing.T) {
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, nil)
			conn := s.reach(t, r)
			r.proxy.Kill("run-1")
			// On the event: nothing is waited for but the closing itself.
			ended(t, conn, conn)
			eventually(t, "nothing of the run is left", func() bool { return len(r.proxy.clients()) == 0 })
			if err := <-r.served; err == nil {
				t.Error("Serve ended without a cause")
			}
		})
	}
}

func TestReloadInEveryState(t *testing.T) {
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, nil)
			conn := s.reach(t, r)
			narrow, err := ParseRules([]string{"other.example.net"})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.proxy.SetRules(narrow); err != nil {
				t.Fatal(err)
			}
			if s.open {
				ended(t, conn, conn)
				eventually(t, "row", func() bool { return r.rows.has(RuleRevoked) })
				return
			}
			if r.rows.has(RuleRevoked) {
				t.Error("a row, but nothing was open")
			}
		})
	}
}

// A request on a connection that stays open is judged by the rules of now.
func TestReloadAppliesToTheNextRequest(t *testing.T) {
	r := newRig(t, nil)
	rep, conn, br := r.ask(getHead("http://pkg.example.net/", "pkg.example.net"))
	if rep.status != 200 {
		t.Fatal(rep)
	}
	r.betweenRequests()
	r.proxy.SetRules(nil)
	io.WriteString(conn, getHead("http://pkg.example.net/", "pkg.example.net"))
	if rep, err := readReply(br, "GET"); err != nil || rep.status != 403 {
		t.Errorf("%v, %v", rep, err)
	}
}

func TestReloadInShadowModeCutsNothing(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Mode = cordon.Shadow })
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	if err := r.proxy.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "still here")
	if _, err := io.ReadFull(br, make([]byte, 10)); err != nil {
		t.Error(err)
	}
}

func TestRulesOfARunAreItsOwn(t *testing.T) {
	r, a, b := shareRig(t, nil)
	parse := func(hosts ...string) *Rules {
		rules, err := ParseRules(hosts)
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	c := r.register("run-c", parse("own.example.net"))
	try := func(token, host string) int {
		rep, conn, _ := r.ask(connectWith(host+":443", basic(":"+token)))
		conn.Close()
		return rep.status
	}
	want := func(what, token, host string, status int) {
		t.Helper()
		if got := try(token, host); got != status {
			t.Errorf("%s: %d, want %d", what, got, status)
		}
	}
	want("its own host", c, "own.example.net", 200)
	want("the proxy's host, by a run with rules", c, "pkg.example.net", 403)
	want("another run's host", a, "own.example.net", 403)
	want("the proxy's host", a, "pkg.example.net", 200)
	hold := func(token, host string) (net.Conn, *bufio.Reader) {
		rep, conn, br := r.ask(connectWith(host+":8443", basic(":"+token)))
		if rep.status != 200 {
			t.Fatal(rep)
		}
		return conn, br
	}
	ofB, ofBReader := hold(b, "db.example.net")
	ofA, ofAReader := hold(a, "db.example.net")
	if err := r.proxy.SetRunRules("run-a", parse("later.example.net")); err != nil {
		t.Fatal(err)
	}
	ended(t, ofA, ofAReader)
	io.WriteString(ofB, "mine")
	if _, err := io.ReadFull(ofBReader, make([]byte, 4)); err != nil {
		t.Errorf("another run's tunnel: %v", err)
	}
	want("the new host", a, "later.example.net", 200)
	want("the old host", a, "pkg.example.net", 403)
	if err := r.proxy.SetRunRules("run-a", nil); err != nil {
		t.Fatal(err)
	}
	want("the proxy's host again", a, "pkg.example.net", 200)
	// The proxy's own reload leaves a run with rules alone.
	r.proxy.SetRules(nil)
	want("its own host after the proxy lost all", c, "own.example.net", 200)
	want("the proxy's host after the proxy lost all", a, "pkg.example.net", 403)
}

func TestNarrowedLLMProxy(t *testing.T) {
	llm := func(hosts ...string) *Rules {
		rules, err := ParseLLMRules(hosts)
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	r := newRig(t, func(c *Config) { c.Kind = LLMProxy })
	want := func(target string, status int, rule string) {
		t.Helper()
		rep, _, _ := r.ask(connectHead(target))
		if rep.status != status || rep.header.Get("X-Cordon-Refused") != rule {
			t.Errorf("%s: %d %q, want %d %q", target, rep.status, rep.header.Get("X-Cordon-Refused"), status, rule)
		}
	}
	gone, goneBr := r.open("api.openai.com:443", "api.openai.com")
	kept, keptBr := r.open("api.anthropic.com:443", "api.anthropic.com")
	if err := r.proxy.SetRules(llm("api.anthropic.com", "*.openai.azure.com")); err != nil {
		t.Fatal(err)
	}
	ended(t, gone, goneBr)
	io.WriteString(kept, "here")
	if _, err := io.ReadFull(keptBr, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	want("api.anthropic.com:443", 200, "")
	want("team.openai.azure.com:443", 200, "")
	want("api.openai.com:443", 403, RuleHost)
	want("api.anthropic.com:8443", 403, RulePort)
	want("pkg.example.net:443", 403, RuleHost)
	r.proxy.SetRules(llm())
	want("api.anthropic.com:443", 403, RuleHost)
	tools, err := ParseRules([]string{"pkg.example.net"})
	if err != nil {
		t.Fatal(err)
	}
	if r.proxy.SetRules(tools) == nil {
		t.Error("an LLM proxy took tool rules")
	}
	if v := llm("api.openai.com").Match("api.openai.com:443", "https"); v.Allowed {
		t.Error("LLM rules admit an LLM host for tools")
	}
	for _, bad := range []string{"pkg.example.net", "*.anthropic.com", "*", "*.com", "", "api.openai.com:443", "*.api.openai.com", "10.0.0.1"} {
		if _, err := ParseLLMRules([]string{bad}); err == nil {
			t.Errorf("ParseLLMRules(%q): no error", bad)
		}
	}
}

// A listener that ends takes its connections along, whosoever they are.
func TestSharedListenerThatEnds(t *testing.T) {
	r := newRig(t, nil)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.proxy.ServeShared(ctx, l, "lobby") }()
	r.addr = l.Addr().String()
	token := r.register("run-a", nil)
	rep, conn, br := r.ask(connectWith("db.example.net:8443", basic(":"+token)))
	if rep.status != 200 {
		t.Fatal(rep)
	}
	cancel()
	ended(t, conn, br)
	if err := <-served; err != context.Canceled {
		t.Errorf("ServeShared: %v", err)
	}
}
