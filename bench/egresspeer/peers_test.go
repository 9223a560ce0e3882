package egresspeer

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/sirupsen/logrus"
	"github.com/stripe/smokescreen/pkg/smokescreen"
	acl "github.com/stripe/smokescreen/pkg/smokescreen/acl/v1"
	"github.com/stripe/smokescreen/pkg/smokescreen/conntrack"
)

// hosts are what both proxies admit; all of them are at loopback.
var hosts = []string{"pkg.example.net", "*.shop.example.net"}

// loopback answers every name alike, for either proxy, and counts.
type loopback struct{ asked atomic.Int64 }

func (l *loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	l.asked.Add(1)
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func (l *loopback) LookupIP(context.Context, string, string) ([]net.IP, error) {
	l.asked.Add(1)
	return []net.IP{net.IPv4(127, 0, 0, 1)}, nil
}

func (l *loopback) LookupPort(ctx context.Context, network, service string) (int, error) {
	return net.DefaultResolver.LookupPort(ctx, network, service)
}

type noRows struct{}

func (noRows) Record(context.Context, egress.Refusal) error { return nil }

// startCordon starts Cordon's proxy for the hosts, on their usual ports and
// on the given one.
func startCordon(tb testing.TB, port string, names *loopback) string {
	tb.Helper()
	patterns := hosts
	for _, h := range hosts {
		patterns = append(patterns[:len(patterns):len(patterns)], h+":"+port)
	}
	rules, err := egress.ParseRules(patterns)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := egress.New(egress.Config{
		Mode: cordon.Enforce, Rules: rules, Resolver: names, Recorder: noRows{}, Limits: egress.Limits{Tunnels: 1 << 16},
		UnsafeAllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	if err != nil {
		tb.Fatal(err)
	}
	l, err := egress.Listen("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	go p.Serve(context.Background(), l, "run")
	tb.Cleanup(func() { p.Close() })
	return l.Addr().String()
}

// startSmokescreen starts the peer with the same hosts. It has no rules for
// ports.
func startSmokescreen(tb testing.TB, names *loopback) string {
	tb.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	c := smokescreen.NewConfig()
	c.Log = log
	c.Resolver = names
	c.AllowMissingRole = true
	c.RoleFromRequest = func(*http.Request) (string, error) { return "run", nil }
	c.EgressACL = &acl.ACL{Logger: log, Rules: map[string]acl.Rule{"run": {Project: "run", Policy: acl.Enforce, DomainGlobs: hosts}}}
	c.ShuttingDown.Store(false)
	c.ConnTracker = conntrack.NewTracker(c.IdleTimeout, c.MetricsClient, log, c.ShuttingDown, nil)
	if err := c.SetAllowRanges([]string{"127.0.0.1/32"}); err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c.Listener = l
	server := &http.Server{Handler: smokescreen.BuildProxy(c), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l)
	tb.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// origin serves each connection by serve.
type origin struct {
	addr, port string
}

func startOrigin(tb testing.TB, serve func(net.Conn)) *origin {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	o := &origin{addr: l.Addr().String()}
	_, o.port, _ = net.SplitHostPort(o.addr)
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			go func() {
				defer func() {
					conn.Close()
					mu.Lock()
					delete(open, conn)
					mu.Unlock()
				}()
				serve(conn)
			}()
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for c := range open {
			c.Close()
		}
	})
	return o
}

func echo(conn net.Conn) { io.Copy(conn, struct{ io.Reader }{conn}) }

// answer is an origin of plain HTTP that counts requests.
func answer(conn net.Conn, requests *atomic.Int64) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		requests.Add(1)
		io.Copy(io.Discard, req.Body)
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// clientHello is a real one for a name.
func clientHello(tb testing.TB, name string) []byte {
	tb.Helper()
	a, b := net.Pipe()
	defer b.Close()
	go func() {
		defer a.Close()
		tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	buf := make([]byte, 16<<10)
	n, err := io.ReadAtLeast(b, buf, 5)
	if err != nil {
		tb.Fatal(err)
	}
	want := 5 + int(buf[3])<<8 + int(buf[4])
	if n < want {
		if _, err := io.ReadFull(b, buf[n:want]); err != nil {
			tb.Fatal(err)
		}
	}
	return buf[:want]
}

func connectHead(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// openTunnel asks for a tunnel and reads the answer's head.
func openTunnel(proxy, target string) (net.Conn, error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	if _, err = io.WriteString(conn, connectHead(target)); err != nil {
		return nil, err
	}
	buf := make([]byte, 512)
	for n := 0; ; {
		m, err := conn.Read(buf[n:])
		if n += m; strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
			if strings.HasPrefix(string(buf[9:n]), "200") {
				return conn, nil
			}
			return nil, fmt.Errorf("answer %q", buf[:n])
		}
		if err != nil {
			return nil, fmt.Errorf("answer %q: %w", buf[:n], err)
		}
	}
}
