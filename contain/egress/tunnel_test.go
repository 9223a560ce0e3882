package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"golang.org/x/sys/unix"
)

func TestServerName(t *testing.T) {
	for _, c := range []struct {
		name, target, sni, rule string
	}{
		{"the host of the CONNECT", "pkg.example.net:443", "pkg.example.net", ""},
		{"in capitals", "pkg.example.net:443", "PKG.Example.net", ""},
		{"another listed host", "pkg.example.net:443", "git.example.org", RuleSNI},
		{"an unlisted host", "pkg.example.net:443", "evil.test", RuleSNI},
		{"another name under the same wildcard", "a.shop.example.net:443", "b.shop.example.net", RuleSNI},
		{"a subdomain", "pkg.example.net:443", "x.pkg.example.net", RuleSNI},
		{"none", "pkg.example.net:443", "", RuleSNI},
		{"none for an address", "198.51.101.9:443", "", ""},
		{"a name for an address", "198.51.101.9:443", "pkg.example.net", RuleSNI},
		{"another name on a port that a rule names", "db.example.net:8443", "evil.test", RuleSNI},
		{"the name on a port that a rule names", "db.example.net:8443", "db.example.net", ""},
		{"none on a port that a rule names", "db.example.net:8443", "", ""},
	} {
		r := newRig(t, nil)
		conn, br := r.connectTo(c.target)
		hello := clientHello(t, c.sni)
		if _, err := conn.Write(hello); err != nil {
			t.Fatal(err)
		}
		if c.rule == "" {
			got := make([]byte, len(hello))
			if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, hello) {
				t.Errorf("%s: the ClientHello did not pass: %v", c.name, err)
			}
			continue
		}
		if got := ended(t, conn, br); got != alertUnrecognizedName {
			t.Errorf("%s: got %q, want the alert and the end", c.name, got)
		}
		if !r.rows.has(c.rule) {
			t.Errorf("%s: no row of %s", c.name, c.rule)
		}
		if got := r.tunnel.bytes(); got != "" {
			t.Errorf("%s: the origin received %d bytes", c.name, len(got))
		}
	}
}

func TestWhatIsNoTLSDoesNotPassOn443(t *testing.T) {
	named := hello(extension(0, nameList("pkg.example.net")))
	for _, c := range []struct{ name, raw string }{
		{"HTTP", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"},
		{"SSH", "SSH-2.0-OpenSSH_9\r\n"},
		{"a TLS alert", "\x15\x03\x03\x00\x02\x01\x00"},
		{"two names", string(records(hello(extension(0, nameList("pkg.example.net", "evil.test"))), 1<<14))},
		{"an oversized ClientHello", string(records(hello(extension(0, nameList("pkg.example.net")), extension(21, make([]byte, 17<<10))), 1<<14))},
		{"half a ClientHello and the end", string(records(named, 1<<14)[:20])},
	} {
		r := newRig(t, nil)
		conn, br := r.connectTo("pkg.example.net:443")
		if _, err := io.WriteString(conn, c.raw); err != nil {
			t.Fatal(err)
		}
		closeWrite(conn)
		ended(t, conn, br)
		if !r.rows.has(RuleTLS) {
			t.Errorf("%s: no row of %s", c.name, RuleTLS)
		}
		if got := r.tunnel.bytes(); got != "" {
			t.Errorf("%s: the origin received %q", c.name, got)
		}
	}
}

func TestClientHelloInPieces(t *testing.T) {
	r := newRig(t, nil)
	raw := records(hello(extension(0, nameList("pkg.example.net"))), 11)
	conn, br := r.connectTo("pkg.example.net:443")
	for i := range raw {
		if i == len(raw)-1 && r.tunnel.bytes() != "" {
			t.Error("bytes passed before the ClientHello was whole")
		}
		if _, err := conn.Write(raw[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(raw))
	if _, err := io.ReadFull(br, got); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("the ClientHello did not pass as it was: %v", err)
	}
}

func TestClientHelloWithTheConnect(t *testing.T) {
	r := newRig(t, nil)
	hello := clientHello(t, "pkg.example.net")
	rep, _, br := r.ask(connectHead("pkg.example.net:443") + string(hello))
	if rep.status != 200 {
		t.Fatalf("status %d", rep.status)
	}
	if _, err := io.ReadFull(br, make([]byte, len(hello))); err != nil {
		t.Error(err)
	}
}

func TestSlowClients(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"nothing", "", ""},
		{"half a head", "CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\n", "HTTP/1.1 408 "},
		{"no ClientHello", connectHead("pkg.example.net:443"), "HTTP/1.1 200 "},
		{"half a ClientHello", connectHead("pkg.example.net:443") + "\x16\x03\x01\x02", "HTTP/1.1 200 "},
	} {
		r := newRig(t, func(c *Config) {
			c.Limits = Limits{HeaderTime: 50 * time.Millisecond, HelloTime: 50 * time.Millisecond}
		})
		conn := r.connect()
		if _, err := io.WriteString(conn, c.raw); err != nil {
			t.Fatal(err)
		}
		if got := ended(t, conn, conn); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q…", c.name, got, c.want)
		}
		if got := r.tunnel.bytes(); got != "" {
			t.Errorf("%s: the origin received %q", c.name, got)
		}
	}
}

func TestSlowResolver(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.ResolveTime = 20 * time.Millisecond })
	r.resolver.hang()
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 504 {
		t.Errorf("status %d, want 504", rep.status)
	}
}

// open makes a tunnel through which bytes have passed.
func (r *rig) open(target, sni string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, br := r.connectTo(target)
	hello := clientHello(r.t, sni)
	if _, err := conn.Write(hello); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.ReadFull(br, make([]byte, len(hello))); err != nil {
		r.t.Fatal(err)
	}
	return conn, br
}

func TestRealTLSThroughTheTunnel(t *testing.T) {
	cert, pool := testCA(t, "pkg.example.net")
	r := newRig(t, nil)
	r.origin(&r.tunnel, func(o *origin, conn net.Conn) {
		echo(o, tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}}))
	})
	conn, _ := r.connectTo("pkg.example.net:443")
	c := tls.Client(conn, &tls.Config{ServerName: "pkg.example.net", RootCAs: pool})
	payload := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() { c.Write(payload); c.CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, payload) {
		t.Errorf("%d of %d bytes came back: %v", len(got), len(payload), err)
	}
	conn.Close()
	eventually(t, "usage counted", func() bool {
		up, down := r.proxy.Usage("run-1")
		return up > int64(len(payload)) && down > int64(len(payload))
	})
}

func TestOriginThatSpeaksFirst(t *testing.T) {
	r := newRig(t, nil)
	r.origin(&r.tunnel, func(o *origin, conn net.Conn) { io.WriteString(conn, "220 hello\r\n"); echo(o, conn) })
	conn, br := r.connectTo("db.example.net:8443")
	if line, err := br.ReadString('\n'); line != "220 hello\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	io.WriteString(conn, "QUIT\r\n")
	if line, err := br.ReadString('\n'); line != "QUIT\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestHalfClose(t *testing.T) {
	t.Run("what the origin still says is heard", func(t *testing.T) {
		r := newRig(t, nil)
		r.origin(&r.tunnel, func(o *origin, conn net.Conn) {
			all, _ := io.ReadAll(conn)
			fmt.Fprintf(conn, "got %d", len(all))
		})
		conn, br := r.connectTo("db.example.net:8443")
		io.WriteString(conn, "some bytes")
		closeWrite(conn)
		if got := ended(t, conn, br); got != "got 10" {
			t.Errorf("%q", got)
		}
	})
	t.Run("a side that never closes does not hold the tunnel", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Limits.HalfCloseTime = 50 * time.Millisecond })
		block := make(chan struct{})
		r.origin(&r.tunnel, func(_ *origin, _ net.Conn) { <-block })
		t.Cleanup(func() { close(block) }) // before the origin's own
		conn, br := r.connectTo("db.example.net:8443")
		io.WriteString(conn, "x")
		closeWrite(conn)
		ended(t, conn, br)
	})
}

func TestIdleTunnelEnds(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.IdleTime = 100 * time.Millisecond })
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	ended(t, conn, br)
}

func TestKillEndsTunnelsAndStays(t *testing.T) {
	r := newRig(t, nil)
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	other, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go r.proxy.Serve(context.Background(), other, "run-2")
	r.proxy.Kill("run-1")
	ended(t, conn, br)
	if err := <-r.served; !errors.Is(err, ErrClosed) {
		t.Errorf("Serve: %v, want ErrClosed", err)
	}
	if c, err := net.Dial("tcp", r.addr); err == nil {
		c.Close()
		t.Error("the killed run's listener still accepts")
	}
	again, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.proxy.Serve(context.Background(), again, "run-1"); !errors.Is(err, ErrClosed) {
		t.Errorf("a killed run is served again: %v", err)
	}
	r.addr = other.Addr().String()
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 200 {
		t.Errorf("the other run got %d", rep.status)
	}
}

func TestContextEndsTunnels(t *testing.T) {
	r := newRig(t, nil)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	served := make(chan error, 1)
	go func() { served <- r.proxy.Serve(ctx, l, "run-3") }()
	r.addr = l.Addr().String()
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	cancel(cordon.ErrKilled)
	ended(t, conn, br)
	if err := <-served; !errors.Is(err, cordon.ErrKilled) {
		t.Errorf("Serve: %v, want the cause", err)
	}
}

func TestSetRules(t *testing.T) {
	r := newRig(t, nil)
	gone, goneBr := r.open("pkg.example.net:443", "pkg.example.net")
	kept, keptBr := r.open("git.example.org:443", "git.example.org")
	rules, err := ParseRules([]string{"git.example.org", "new.example.net"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.proxy.SetRules(rules); err != nil {
		t.Fatal(err)
	}
	ended(t, gone, goneBr)
	if !r.rows.has(RuleRevoked) {
		t.Error("no row of the tunnel that was closed")
	}
	io.WriteString(kept, "still here")
	if _, err := io.ReadFull(keptBr, make([]byte, 10)); err != nil {
		t.Errorf("a tunnel that is still allowed was closed: %v", err)
	}
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 403 {
		t.Errorf("the old host: %d", rep.status)
	}
	if rep, _, _ := r.ask(connectHead("new.example.net:443")); rep.status != 200 {
		t.Errorf("the new host: %d", rep.status)
	}
}

// The rules change while a request that they allowed is being dialled.
func TestSetRulesBeforeTheTunnelStands(t *testing.T) {
	r := newRig(t, nil)
	r.before(func() {
		if err := r.proxy.SetRules(nil); err != nil {
			t.Error(err)
		}
	})
	conn := r.connect()
	io.WriteString(conn, connectHead("pkg.example.net:443"))
	if got := ended(t, conn, conn); got != "" {
		t.Errorf("got %q, want the end", got)
	}
}

func TestCaps(t *testing.T) {
	t.Run("upload", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Limits.UploadBytes = 100 << 10 })
		conn, br := r.open("pkg.example.net:443", "pkg.example.net")
		go io.Copy(io.Discard, br)
		for {
			if _, err := conn.Write(make([]byte, 8<<10)); err != nil {
				break
			}
		}
		eventually(t, "row of the cap", func() bool { return r.rows.has(RuleUpload) })
		if n := len(r.tunnel.bytes()); n > 100<<10 {
			t.Errorf("%d bytes passed a cap of %d", n, 100<<10)
		}
		// The cap is the run's, so the next tunnel gets what is left.
		if up, _ := r.proxy.Usage("run-1"); up > 100<<10 {
			t.Errorf("usage %d past the cap", up)
		}
	})
	t.Run("download", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Limits.DownloadBytes = 64 << 10 })
		r.origin(&r.tunnel, func(_ *origin, conn net.Conn) { io.Copy(conn, endless{}) })
		conn, br := r.connectTo("db.example.net:8443")
		if got := len(ended(t, conn, br)); got > 64<<10 {
			t.Errorf("%d bytes passed a cap of %d", got, 64<<10)
		}
		eventually(t, "row of the cap", func() bool { return r.rows.has(RuleDownload) })
	})
	t.Run("upload by plain HTTP", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Limits.UploadBytes = 10 << 10 })
		conn := r.connect()
		fmt.Fprintf(conn, post+"Content-Length: 1000000\r\n\r\n")
		conn.Write(make([]byte, 40<<10))
		ended(t, conn, conn)
		eventually(t, "row of the cap", func() bool { return r.rows.has(RuleUpload) })
		if n := len(r.plain.bytes()); n > 10<<10 {
			t.Errorf("%d bytes passed", n)
		}
	})
	t.Run("what stays below passes whole", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Limits.UploadBytes, c.Limits.DownloadBytes = 64<<10, 64<<10 })
		conn, br := r.connectTo("db.example.net:8443")
		go func() { conn.Write(make([]byte, 64<<10)); closeWrite(conn) }()
		if got := len(ended(t, conn, br)); got != 64<<10 {
			t.Errorf("%d bytes came back", got)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestTooManyConnections(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.Tunnels = 2 })
	r.open("pkg.example.net:443", "pkg.example.net")
	held, _ := r.open("pkg.example.net:443", "pkg.example.net")
	conn := r.connect()
	if got := ended(t, conn, conn); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, RuleTunnels) {
		t.Errorf("got %q", got)
	}
	held.Close()
	eventually(t, "room again", func() bool {
		conn := r.connect()
		defer conn.Close()
		io.WriteString(conn, connectHead("pkg.example.net:443"))
		rep, err := readReply(bufio.NewReader(conn), "CONNECT")
		return err == nil && rep.status == 200
	})
}

func TestRecorderThatFails(t *testing.T) {
	t.Run("in enforce mode nothing passes until it works again", func(t *testing.T) {
		r := newRig(t, nil)
		r.rows.setFail(errStore)
		if rep, _, _ := r.ask(connectHead("evil.test:443")); rep.status != 403 {
			t.Errorf("an unlisted host: %d", rep.status)
		}
		rep, _, _ := r.ask(connectHead("pkg.example.net:443"))
		if rep.status != 403 || rep.header.Get("X-Cordon-Refused") != RuleAudit {
			t.Errorf("a listed host while refusals cannot be stored: %d %q", rep.status, rep.header.Get("X-Cordon-Refused"))
		}
		r.rows.setFail(nil)
		if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 200 {
			t.Errorf("after the store recovered: %d", rep.status)
		}
		if got := r.rows.list(); len(got) != 1 || got[0].Host != "evil.test" || got[0].Count != 1 {
			t.Errorf("rows %+v, want the one that was kept", got)
		}
	})
	t.Run("in shadow mode all passes", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Mode = cordon.Shadow })
		r.rows.setFail(errStore)
		for range 2 {
			if rep, _, _ := r.ask(connectHead("evil.test:443")); rep.status != 200 {
				t.Errorf("status %d", rep.status)
			}
		}
	})
}

func TestFloodOfRefusals(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.AuditWindow = time.Hour })
	const same, different = 300, 200
	var wg sync.WaitGroup
	note := func(host string) {
		wg.Go(func() {
			err := r.proxy.ledger.note(Refusal{Run: "run-1", Rule: RuleHost, Host: host, Port: 443, Enforced: true})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for range same {
		note("evil.test")
	}
	for i := range different {
		note(fmt.Sprintf("h%d.evil.test", i))
	}
	wg.Wait()
	if err := r.proxy.ledger.flush(true); err != nil {
		t.Fatal(err)
	}
	got := r.rows.list()
	var total int64
	for _, x := range got {
		total += x.Count
	}
	if total != same+different {
		t.Errorf("rows count %d refusals, want %d", total, same+different)
	}
	if len(got) > 2*rowsPerWindow+2 {
		t.Errorf("%d rows for a flood", len(got))
	}
}

func TestCountsSurviveAFailingStore(t *testing.T) {
	rec := &rows{fail: errStore}
	l := newLedger(rec, time.Hour)
	for range 5 {
		if l.note(Refusal{Run: "r", Rule: RuleHost, Host: "evil.test"}) == nil {
			t.Fatal("no error although nothing was stored")
		}
		if l.flush(true) == nil {
			t.Fatal("a flush that stored nothing says that it did")
		}
	}
	if l.healthy() == nil {
		t.Fatal("healthy while the store fails")
	}
	rec.setFail(nil)
	if err := l.healthy(); err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, x := range rec.list() {
		total += x.Count
	}
	if total != 5 {
		t.Errorf("stored %d refusals, want 5", total)
	}
}

func TestKeepAliveDecidesEachRequest(t *testing.T) {
	r := newRig(t, nil)
	conn := r.connect()
	io.WriteString(conn, getHead("http://pkg.example.net/1", "pkg.example.net")+
		"POST http://www.shop.example.net/2 HTTP/1.1\r\nHost: www.shop.example.net\r\nContent-Length: 3\r\n\r\nabc"+
		"HEAD http://pkg.example.net/3 HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n"+
		getHead("http://evil.test/4", "evil.test")+
		getHead("http://pkg.example.net/5", "pkg.example.net"))
	br := bufio.NewReader(conn)
	for i, want := range []struct {
		method, body string
		status       int
	}{
		{"GET", "GET /1 host=pkg.example.net body=0", 200},
		{"POST", "POST /2 host=www.shop.example.net body=3", 200},
		{"HEAD", "", 200},
		{"GET", "", 403},
	} {
		rep, err := readReply(br, want.method)
		if err != nil {
			t.Fatalf("reply %d: %v", i+1, err)
		}
		if rep.status != want.status || rep.status == 200 && rep.body != want.body {
			t.Errorf("reply %d: %d %q, want %d %q", i+1, rep.status, rep.body, want.status, want.body)
		}
	}
	if rest := ended(t, conn, br); rest != "" {
		t.Errorf("after a refusal the connection went on: %q", rest)
	}
	if strings.Contains(r.plain.bytes(), "/5") {
		t.Error("the request after the refused one reached the origin")
	}
}

func TestHopByHopFields(t *testing.T) {
	r := newRig(t, nil)
	rep, _, _ := r.ask(getHead("http://pkg.example.net/", "pkg.example.net",
		"Proxy-Authorization: Basic c2VjcmV0\r\n", "Connection: X-Mine, close\r\n", "X-Mine: 1\r\n", "Proxy-Connection: keep-alive\r\n",
		"Keep-Alive: 5\r\n", "TE: trailers\r\n", "Trailer: X\r\n", "Upgrade: websocket\r\n", "X-Kept: yes\r\n"))
	got := strings.ToLower(r.plain.bytes())
	for _, gone := range []string{"proxy-authorization", "c2vjcmv0", "x-mine", "proxy-connection", "keep-alive", "te:", "trailer", "upgrade"} {
		if strings.Contains(got, gone) {
			t.Errorf("%s reached the origin: %q", gone, got)
		}
	}
	if !strings.Contains(got, "x-kept: yes") || strings.Count(got, "host:") != 1 {
		t.Errorf("the origin received %q", got)
	}
	if rep.header.Get("X-Hop") != "" || rep.header.Get("Keep-Alive") != "" || rep.header.Get("X-Origin") != "yes" {
		t.Errorf("the client received %v", rep.header)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	r := newRig(t, nil)
	r.origin(&r.plain, func(_ *origin, conn net.Conn) {
		http.ReadRequest(bufio.NewReader(conn))
		io.WriteString(conn, "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
	})
	rep, _, _ := r.ask(getHead("http://pkg.example.net/", "pkg.example.net"))
	if rep.status != 302 || rep.header.Get("Location") != "http://169.254.169.254/" || r.dials() != 1 {
		t.Errorf("%d %v, %d dials", rep.status, rep.header, r.dials())
	}
}

func TestOddOrigins(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		status       int
		body         string
	}{
		{"a body up to the end", "HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, "until the end"},
		{"a chunked body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200, "abc"},
		{"an interim answer first", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"},
		{"an upgrade that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\n\r\nraw", 502, ""},
		{"no HTTP", "SSH-2.0-x\r\n", 502, ""},
		{"nothing", "", 502, ""},
		{"a head of a megabyte", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 502, ""},
		{"a hundred interim answers", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502, ""},
	} {
		r := newRig(t, nil)
		r.origin(&r.plain, func(_ *origin, conn net.Conn) {
			http.ReadRequest(bufio.NewReader(conn))
			io.WriteString(conn, c.answer)
			closeWrite(conn)
			io.Copy(io.Discard, conn)
		})
		rep, _, _ := r.ask(getHead("http://pkg.example.net/", "pkg.example.net"))
		if rep.status != c.status || c.status == 200 && rep.body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.name, rep.status, rep.body, c.status, c.body)
		}
	}
}

func TestBodies(t *testing.T) {
	r := newRig(t, nil)
	t.Run("100-continue is answered", func(t *testing.T) {
		conn := r.connect()
		io.WriteString(conn, post+"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
		br := bufio.NewReader(conn)
		if line, err := br.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Fatalf("%q, %v", line, err)
		}
		br.ReadString('\n')
		io.WriteString(conn, "body")
		if rep, err := readReply(br, "POST"); err != nil || !strings.HasSuffix(rep.body, "body=4") {
			t.Errorf("%+v, %v", rep, err)
		}
	})
	t.Run("a large chunked body", func(t *testing.T) {
		conn := r.connect()
		go func() {
			io.WriteString(conn, post+"Transfer-Encoding: chunked\r\n\r\n")
			for range 40 {
				fmt.Fprintf(conn, "2000\r\n%s\r\n", strings.Repeat("x", 0x2000))
			}
			io.WriteString(conn, "0\r\n\r\n")
		}()
		if rep, err := readReply(bufio.NewReader(conn), "POST"); err != nil || !strings.HasSuffix(rep.body, fmt.Sprintf("body=%d", 40*0x2000)) {
			t.Errorf("%+v, %v", rep, err)
		}
	})
	t.Run("a body that ends early is not taken for whole", func(t *testing.T) {
		before := r.dials()
		conn := r.connect()
		io.WriteString(conn, post+"Content-Length: 100\r\n\r\nhalf")
		closeWrite(conn)
		if got := ended(t, conn, conn); strings.Contains(got, "HTTP/1.1 200") {
			t.Errorf("got %q", got)
		}
		if r.dials() != before+1 {
			t.Error("the test did not reach the origin")
		}
	})
}

func TestMalformedChunkAfterTheRequestWentOut(t *testing.T) {
	r := newRig(t, nil)
	conn := r.connect()
	go func() {
		io.WriteString(conn, post+"Transfer-Encoding: chunked\r\n\r\n")
		for range 20 {
			fmt.Fprintf(conn, "2000\r\n%s\r\n", strings.Repeat("x", 0x2000))
		}
		io.WriteString(conn, "5\nhello\r\n0\r\n\r\n"+getHead("http://evil.test/", "evil.test"))
	}()
	if got := ended(t, conn, conn); strings.Contains(got, "HTTP/1.1 200") {
		t.Errorf("got %q", got)
	}
	eventually(t, "a row of the syntax", func() bool { return r.rows.has(RuleSyntax) })
	if strings.Contains(r.plain.bytes(), "\r\n0\r\n") {
		t.Error("the origin saw the end of a body that had none")
	}
}

func TestTooManyHeadsInOnePacketAreStillDecidedOneByOne(t *testing.T) {
	r := newRig(t, nil)
	conn := r.connect()
	const many = 60
	io.WriteString(conn, strings.Repeat(getHead("http://pkg.example.net/", "pkg.example.net"), many)+getHead("http://evil.test/", "evil.test"))
	got := ended(t, conn, conn)
	if n := strings.Count(got, "HTTP/1.1 200 OK"); n != many || strings.Count(got, "HTTP/1.1 403 ") != 1 {
		t.Errorf("%d answers of %d, and %d refusals", n, many, strings.Count(got, "HTTP/1.1 403 "))
	}
}

func TestAnotherRunsCapsAndKillsAreItsOwn(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Limits.UploadBytes = 8 << 10 })
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go r.proxy.Serve(context.Background(), l, "run-2")
	conn, br := r.connectTo("db.example.net:8443")
	go conn.Write(make([]byte, 64<<10))
	ended(t, conn, br)
	r.addr = l.Addr().String()
	conn, br = r.connectTo("db.example.net:8443")
	io.WriteString(conn, "mine")
	if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
		t.Errorf("the other run's tunnel: %v", err)
	}
}

func TestUnixListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	l, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a path that is listened on was taken over")
	}
	r := newRig(t, nil)
	go r.proxy.Serve(context.Background(), l, "run-u")
	r.network, r.addr = "unix", path
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	payload := bytes.Repeat([]byte("x"), 1<<20)
	go func() { conn.Write(payload); closeWrite(conn) }()
	if got := ended(t, conn, br); len(got) != len(payload) {
		t.Errorf("%d of %d bytes", len(got), len(payload))
	}
	r.proxy.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays behind: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Error("a file in the place was removed")
	}
}

func TestInheritedListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd())) // Listen closes what it is given
	if err != nil {
		t.Fatal(err)
	}
	in, err := Listen(fmt.Sprintf("fd:%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if in.Addr().String() != l.Addr().String() {
		t.Errorf("%v, want %v", in.Addr(), l.Addr())
	}
	for _, bad := range []string{"", "127.0.0.1", "fd:0", "fd:x", "unix:", "unix:/nowhere/at/all/s", "fd:99999"} {
		if l, err := Listen(bad); err == nil {
			l.Close()
			t.Errorf("Listen(%q) did not fail", bad)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	rules, _ := ParseRules([]string{"pkg.example.net"})
	rec := &rows{}
	for _, c := range []struct {
		name string
		c    Config
	}{
		{"no recorder", Config{Rules: rules}},
		{"rules for the LLM proxy", Config{Kind: LLMProxy, Rules: rules, Recorder: rec}},
		{"an unknown kind", Config{Kind: 7, Recorder: rec}},
		{"an unknown mode", Config{Mode: 9, Recorder: rec}},
		{"a negative limit", Config{Recorder: rec, Limits: Limits{Tunnels: -1}}},
		{"a negative time", Config{Recorder: rec, Limits: Limits{IdleTime: -1}}},
		{"an exception that is no range", Config{Recorder: rec, UnsafeAllowPrivate: []netip.Prefix{{}}}},
	} {
		if p, err := New(c.c); err == nil {
			p.Close()
			t.Errorf("%s: no error", c.name)
		}
	}
	r := newRig(t, func(c *Config) { c.Rules = nil })
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 403 {
		t.Errorf("a proxy without rules admitted a host: %d", rep.status)
	}
	if _, err := NewResolver("dns.example.net:53"); err == nil {
		t.Error("a resolver by name was taken")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd here: ", err)
	}
	return len(d)
}

func TestManyIdleTunnels(t *testing.T) {
	const many = 500
	before := descriptors(t)
	r := newRig(t, nil)
	conns := make([]net.Conn, many)
	hello := clientHello(t, "pkg.example.net")
	for i := range conns {
		conns[i], _ = r.connectTo("pkg.example.net:443")
		if _, err := conns[i].Write(hello); err != nil {
			t.Fatal(err)
		}
	}
	// Client, proxy (2) and origin: four for each tunnel, and no pipes.
	eventually(t, "idle tunnels hold no pipes", func() bool { return descriptors(t) <= before+4*many+16 })
	for _, c := range conns {
		c.Close()
	}
	r.proxy.Close()
	eventually(t, "descriptors back to where they were", func() bool { return descriptors(t) <= before+8 })
}

func TestShutdownLetsTunnelsFinish(t *testing.T) {
	r := newRig(t, nil)
	conn, br := r.open("pkg.example.net:443", "pkg.example.net")
	waiting := r.connect() // has asked for nothing
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { done <- r.proxy.Shutdown(ctx) }()
	ended(t, waiting, waiting)
	io.WriteString(conn, "last words")
	if _, err := io.ReadFull(br, make([]byte, 10)); err != nil {
		t.Errorf("a tunnel was cut: %v", err)
	}
	conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
