package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// publicAddr is what the stub resolver answers unless a test says otherwise.
const publicAddr = "198.51.101.7"

// stubResolver answers from a table and remembers what it was asked.
type stubResolver struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
	wait    bool // until the context ends
}

func (s *stubResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	s.mu.Lock()
	s.asked = append(s.asked, host)
	texts, ok := s.answers[host]
	wait := s.wait
	s.mu.Unlock()
	if wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if network != "ip" {
		return nil, fmt.Errorf("network %q", network)
	}
	if !ok {
		texts = []string{publicAddr}
	}
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

func (s *stubResolver) set(host string, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers == nil {
		s.answers = map[string][]string{}
	}
	s.answers[host+"."] = addrs
}

// hang makes it answer nothing from now on.
func (s *stubResolver) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait = true
}

func (s *stubResolver) queries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// rows is a Recorder that keeps what it is told, or fails.
type rows struct {
	mu   sync.Mutex
	all  []Refusal
	fail error
}

func (r *rows) Record(_ context.Context, x Refusal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.all = append(r.all, x)
	return nil
}

func (r *rows) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *rows) list() []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Refusal(nil), r.all...)
}

// has reports whether a row of the rule was stored.
func (r *rows) has(rule string) bool {
	for _, x := range r.list() {
		if x.Rule == rule {
			return true
		}
	}
	return false
}

// origin is a server that remembers what it received. With a certificate it
// speaks TLS and echoes; without, it answers each request with what it got.
type origin struct {
	l  net.Listener
	mu sync.Mutex
	// got is all that came, in clear; conns how many connections.
	got   bytes.Buffer
	conns int
}

func (o *origin) bytes() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.got.String()
}

func (o *origin) note(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got.Write(b)
}

func startOrigin(t testing.TB, serve func(o *origin, conn net.Conn)) *origin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{l: l}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]struct{}{}
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = struct{}{}
			mu.Unlock()
			o.mu.Lock()
			o.conns++
			o.mu.Unlock()
			wg.Go(func() {
				defer func() { conn.Close(); mu.Lock(); delete(open, conn); mu.Unlock() }()
				serve(o, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return o
}

// echo sends back whatever comes, and half-closes after it.
func echo(o *origin, conn net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		o.note(buf[:n])
		if n > 0 {
			if _, err := conn.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			closeWrite(conn)
			return
		}
	}
}

// answerHTTP answers requests until the connection ends.
func answerHTTP(o *origin, conn net.Conn) {
	br := bufio.NewReader(io.TeeReader(conn, writerFunc(o.note)))
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		n, err := io.Copy(io.Discard, req.Body)
		if err != nil {
			return
		}
		body := fmt.Sprintf("%s %s host=%s body=%d", req.Method, req.RequestURI, req.Host, n)
		if req.Method == http.MethodHead {
			body = ""
		}
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Origin: yes\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n%s", len(body), body)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// testCA makes a certificate for any of the names, and the pool that trusts it.
func testCA(t testing.TB, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: names, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// rig is a proxy with its surroundings. Whatever public address is dialled
// ends at the origin of its port: 80 at plain, all others at tunnel.
type rig struct {
	t        testing.TB
	proxy    *Proxy
	resolver *stubResolver
	rows     *rows
	tunnel   *origin
	plain    *origin
	addr     string
	network  string
	served   chan error
	real     atomic.Bool // dial as in life
	direct   atomic.Bool // dial the origin, but as in life

	mu      sync.Mutex
	dialled []netip.AddrPort
	onDial  func()
}

var rigRules = []string{
	"pkg.example.net", "*.shop.example.net", "git.example.org", "db.example.net:8443", "old.example.net:8080",
	"198.51.101.9", "[2606:4700:1::9]:443", "xn--bcher-kva.example.net",
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	rules, err := ParseRules(rigRules)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, resolver: &stubResolver{}, rows: &rows{}, network: "tcp", served: make(chan error, 1)}
	r.tunnel = startOrigin(t, echo)
	r.plain = startOrigin(t, answerHTTP)
	c := Config{Mode: cordon.Enforce, Rules: rules, Resolver: r.resolver, Recorder: r.rows}
	if change != nil {
		change(&c)
	}
	if c.Kind == LLMProxy {
		c.Rules = nil
	}
	if r.proxy, err = New(c); err != nil {
		t.Fatal(err)
	}
	r.proxy.dial = r.dial
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	go func() { r.served <- r.proxy.Serve(context.Background(), l, "run-1") }()
	eventually(t, "the proxy knows its listener", func() bool {
		r.proxy.mu.Lock()
		defer r.proxy.mu.Unlock()
		return len(r.proxy.listening) == 1
	})
	t.Cleanup(func() {
		r.rows.setFail(nil)
		if err := r.proxy.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// origin puts another origin in the place of one.
func (r *rig) origin(place **origin, serve func(o *origin, conn net.Conn)) {
	o := startOrigin(r.t, serve)
	r.mu.Lock()
	defer r.mu.Unlock()
	*place = o
}

// before is called before each dial.
func (r *rig) before(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onDial = f
}

func (r *rig) dial(ctx context.Context, to netip.AddrPort, limit time.Duration) (*net.TCPConn, error) {
	r.mu.Lock()
	r.dialled = append(r.dialled, to)
	o, first := r.tunnel, r.onDial
	if to.Port() == 80 || to.Port() == 8080 {
		o = r.plain
	}
	r.mu.Unlock()
	if first != nil {
		first()
	}
	if r.real.Load() {
		return r.proxy.dialChecked(ctx, to, limit)
	}
	if r.direct.Load() {
		return r.proxy.dialChecked(ctx, o.l.Addr().(*net.TCPAddr).AddrPort(), limit)
	}
	d := net.Dialer{KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", o.l.Addr().String())
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (r *rig) dials() int { return len(r.dialledAddrs()) }

func (r *rig) dialledAddrs() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]netip.AddrPort(nil), r.dialled...)
}

// connect opens a connection to the proxy that no test waits on for ever.
func (r *rig) connect() net.Conn {
	r.t.Helper()
	conn, err := net.Dial(r.network, r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

// reply is a response head with its body.
type reply struct {
	status int
	header http.Header
	body   string
}

func readReply(br *bufio.Reader, method string) (reply, error) {
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	var body []byte
	if method != http.MethodConnect || resp.StatusCode != 200 {
		body, err = io.ReadAll(resp.Body)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// ask sends raw bytes and reads one reply.
func (r *rig) ask(raw string) (reply, net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn := r.connect()
	if _, err := io.WriteString(conn, raw); err != nil {
		r.t.Fatal(err)
	}
	br := bufio.NewReader(conn)
	method, _, _ := strings.Cut(raw, " ")
	rep, err := readReply(br, method)
	if err != nil {
		r.t.Fatalf("no reply to %.80q: %v", raw, err)
	}
	return rep, conn, br
}

// connectTo opens a tunnel.
func (r *rig) connectTo(target string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	rep, conn, br := r.ask(connectHead(target))
	if rep.status != 200 {
		r.t.Fatalf("CONNECT %s: %d %s", target, rep.status, rep.body)
	}
	return conn, br
}

func connectHead(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

func getHead(url, host string, more ...string) string {
	return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(more, "") + "\r\n"
}

// clientHello is a real one for a name; "" has none.
func clientHello(t testing.TB, name string) []byte {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	raw, _, err := readHello(b, nil)
	if err != nil {
		t.Fatalf("hello for %q: %v", name, err)
	}
	return raw
}

// ended waits until the peer has closed, and returns what came before.
func ended(t testing.TB, conn net.Conn, r io.Reader) string {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := io.ReadAll(r)
	if isTimeout(err) {
		t.Fatal("the connection stays open")
	}
	return string(b)
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

var errStore = errors.New("disk is full")
