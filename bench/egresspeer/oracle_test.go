package egresspeer

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/egress"
	acl "github.com/stripe/smokescreen/pkg/smokescreen/acl/v1"
)

// What the peer's matcher refuses, ours refuses, and the other way round, but
// for the differences that are listed with their reason.
func TestHostRulesAgainstThePeers(t *testing.T) {
	type pair struct{ pattern, host string }
	known := map[pair]string{
		{"example.com", "example.com.."}: "two trailing dots are an empty label, which no host has",
	}
	patterns := []string{"example.com", "EXAMPLE.com", "*.example.com", "xn--e1aybc.example.com", "тест.example.com", "*.xn--e1aybc.example.com"}
	hosts := []string{
		"example.com", "example.com.", "example.com..", "EXAMPLE.COM", "Example.Com", "a.example.com", "a.b.example.com", "A.example.com",
		"notexample.com", "example.com.evil.test", "example.comm", "xexample.com", ".example.com", "example", "com", "",
		"тест.example.com", "xn--e1aybc.example.com", "sub.тест.example.com", "sub.xn--e1aybc.example.com", "login.eu.example.com",
		"127.0.0.1", "0x7f.1", "example.com:443.evil.test", "example.com/evil.test", "evil.test/example.com", "evil.test#.example.com",
		"evil.test?.example.com", "evil.test\\.example.com", "evil.test\x00.example.com", "evil.test%2f.example.com", "a@example.com",
		" example.com", "example.com ", "*.example.com", "a..example.com", "-.example.com", "a_b.example.com",
		strings.Repeat("a", 64) + ".example.com", strings.Repeat("a.", 130) + "example.com",
	}
	ours, theirs := 0, 0
	for _, p := range patterns {
		rules, err := egress.ParseRules([]string{p})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hosts {
			v := rules.Match(h, "https")
			peer := acl.HostMatchesGlob(h, p)
			if v.Allowed {
				ours++
			}
			if peer {
				theirs++
			}
			if v.Allowed && !peer {
				t.Errorf("pattern %q admits %q, by the peer it does not", p, h)
			}
			if peer && !v.Allowed && known[pair{p, h}] == "" && plainName(h) {
				t.Errorf("pattern %q refuses %q (%s), the peer admits it", p, h, v.Why)
			}
		}
	}
	if ours < 15 || theirs < ours {
		t.Errorf("%d admitted here and %d there: the test compares nothing", ours, theirs)
	}
}

// plainName reports whether a host is one that a client may mean, rather than
// an attempt to confuse.
func plainName(h string) bool {
	for _, label := range strings.Split(strings.TrimSuffix(h, "."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsAny(label, " *@/\\?#%:\x00") || label == "-" {
			return false
		}
	}
	return len(h) < 254
}

// The same bytes to both proxies, with an origin that counts. What the peer
// lets through to an origin and ours does not is listed with its reason;
// never the other way round.
func TestRequestsAgainstThePeer(t *testing.T) {
	var requests atomic.Int64 // the peer keeps connections for later requests
	plain := startOrigin(t, func(conn net.Conn) { answer(conn, &requests) })
	names := [2]*loopback{new(loopback), new(loopback)}
	proxies := [2]string{startCordon(t, plain.port, names[0]), startSmokescreen(t, names[1])}
	at := ":" + plain.port
	get := func(url, host, more string) string {
		return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + more + "\r\n"
	}
	open := "http://pkg.example.net" + at + "/x"
	host := "pkg.example.net" + at
	tunnelled := func(connect string) string { return connect + "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" }
	for _, c := range []struct {
		name, raw string
		// here and there: an origin is reached.
		here, there bool
		why         string
	}{
		{"a plain request", get(open, host, ""), true, true, ""},
		{"a host below a wildcard", get("http://a.shop.example.net"+at+"/", "a.shop.example.net"+at, ""), true, true, ""},
		{"a tunnel", tunnelled(connectHead(host)), true, true, ""},
		{"a tunnel in capitals", tunnelled(connectHead("PKG.example.net" + at)), true, true, ""},
		{"a host that is not listed", get("http://evil.test"+at+"/", "evil.test"+at, ""), false, false, ""},
		{"a tunnel to one", tunnelled(connectHead("evil.test" + at)), false, false, ""},
		{"the apex of a wildcard", get("http://shop.example.net"+at+"/", "shop.example.net"+at, ""), false, false, ""},
		{"an address that is not listed", tunnelled(connectHead("127.0.0.1" + at)), false, false, ""},
		{"the same, as one number", tunnelled(connectHead("2130706433" + at)), false, false, ""},
		{"the same, in hexadecimal", tunnelled(connectHead("0x7f000001" + at)), false, false, ""},
		{"a suffix", tunnelled(connectHead("pkg.example.net.evil.test" + at)), false, false, ""},
		{"a prefix", tunnelled(connectHead("xpkg.example.net" + at)), false, false, ""},
		{"a tunnel without a port", "CONNECT pkg.example.net HTTP/1.1\r\nHost: pkg.example.net\r\n\r\n", false, false, ""},
		{"port 0", tunnelled(connectHead("pkg.example.net:0")), false, false, ""},
		{"port 99999", tunnelled(connectHead("pkg.example.net:99999")), false, false, ""},
		{"user information before a listed host", get("http://evil.test@"+host+"/", host, ""), false, true, "two parsers can see two hosts"},
		{"a listed host as user information", get("http://"+host+"@evil.test"+at+"/", "evil.test"+at, ""), false, false, ""},
		{"a Host field of another host", get(open, "evil.test", ""), false, true, "a client that names two hosts has something to hide"},
		{"two Host fields", get(open, host, "Host: evil.test\r\n"), false, false, ""},
		{"a length and a coding", "POST " + open + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n", false, true, "request smuggling"},
		{"lines that end in LF alone", strings.ReplaceAll(get(open, host, ""), "\r\n", "\n"), false, true, "parsers disagree on where a line ends"},
		{"a space before the colon", get(open, host, "X-A : b\r\n"), false, false, ""},
		{"a folded header", get(open, host, "X-A: b\r\n c\r\n"), false, true, "parsers disagree on what a line is"},
		{"HTTP/2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, false, ""},
		{"the proxy's own pages", get("/x", host, ""), false, false, ""},
		{"a peer's header that asks for another proxy", "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\nX-Upstream-Https-Proxy: http://127.0.0.1" + at + "\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", true, false, "ours knows no such header, and does not obey it"},
	} {
		reached := [2]bool{}
		for i, proxy := range proxies {
			before := requests.Load()
			send(t, proxy, c.raw)
			reached[i] = requests.Load() > before
		}
		if reached != [2]bool{c.here, c.there} {
			t.Errorf("%s: reached by ours %v and by the peer %v, want %v and %v", c.name, reached[0], reached[1], c.here, c.there)
		}
		if c.here != c.there && c.why == "" {
			t.Errorf("%s: a difference without a reason", c.name)
		}
	}
}

// send writes a request, of a CONNECT what follows it only after the answer,
// and reads until the proxy closes or has been silent for long.
func send(t *testing.T, proxy, raw string) {
	t.Helper()
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	head, rest, _ := strings.Cut(raw, "\r\n\r\n")
	if !strings.HasPrefix(raw, "CONNECT ") {
		head, rest = raw, ""
	} else {
		head += "\r\n\r\n"
	}
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	if rest != "" {
		if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
			return
		}
		io.WriteString(conn, rest) // it may be closed by now
	}
	io.Copy(io.Discard, conn)
}
