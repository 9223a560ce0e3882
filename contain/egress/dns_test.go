package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// zone is a DNS server over UDP and TCP on loopback, with what it was asked.
type zone struct {
	addr string
	mu   sync.Mutex
	// records are in zone-file form by "name. TYPE"; a name with none at all
	// does not exist.
	records map[string][]string
	asked   []string
	// each, where set, makes the answer instead.
	each func(q dns.Question, udp bool) *dns.Msg
}

func newZone(t testing.TB, records map[string][]string) *zone {
	t.Helper()
	z := &zone{records: records}
	// The same port for both, as resolvers expect on truncation.
	var udp net.PacketConn
	var tcp net.Listener
	var err error
	for range 20 {
		if tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if udp, err = net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			break
		}
		tcp.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	z.addr = tcp.Addr().String()
	var ready, serving sync.WaitGroup
	for _, s := range []*dns.Server{
		{PacketConn: udp, Handler: z.handler(true)},
		{Listener: tcp, Handler: z.handler(false)},
	} {
		ready.Add(1)
		s.NotifyStartedFunc = ready.Done
		serving.Go(func() { s.ActivateAndServe() })
		t.Cleanup(func() { s.Shutdown() })
	}
	ready.Wait()
	return z
}

func (z *zone) handler(udp bool) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		z.mu.Lock()
		defer z.mu.Unlock()
		q := req.Question[0]
		z.asked = append(z.asked, q.Name+" "+dns.TypeToString[q.Qtype])
		if z.each != nil {
			m := z.each(q, udp)
			m.SetReply(req)
			w.WriteMsg(m)
			return
		}
		m := new(dns.Msg)
		m.SetReply(req)
		z.answer(m, q.Name, dns.TypeToString[q.Qtype], 0)
		if udp {
			size := dns.MinMsgSize
			if opt := req.IsEdns0(); opt != nil {
				size = int(opt.UDPSize())
			}
			m.Truncate(size)
		}
		w.WriteMsg(m)
	})
}

// answer follows aliases as a recursive server does.
func (z *zone) answer(m *dns.Msg, name, kind string, depth int) {
	name = strings.ToLower(name)
	for _, r := range z.records[name+" "+kind] {
		m.Answer = append(m.Answer, record(name, kind, r))
	}
	for _, to := range z.records[name+" CNAME"] {
		m.Answer = append(m.Answer, record(name, "CNAME", to))
		if depth < 8 {
			z.answer(m, to, kind, depth+1)
		}
	}
	if len(m.Answer) > 0 {
		return
	}
	for _, k := range []string{"A", "AAAA", "CNAME"} {
		if len(z.records[name+" "+k]) > 0 {
			return // the name exists, without such a record
		}
	}
	m.Rcode = dns.RcodeNameError
}

func record(name, kind, value string) dns.RR {
	rr, err := dns.NewRR(fmt.Sprintf("%s 0 IN %s %s", name, kind, value))
	if err != nil {
		panic(err)
	}
	return rr
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return append([]string(nil), z.asked...)
}

// dnsRig is a rig that asks a real DNS server the way --resolver does.
func dnsRig(t *testing.T, records map[string][]string, change func(*Config)) (*rig, *zone) {
	t.Helper()
	z := newZone(t, records)
	resolver, err := NewResolver(z.addr)
	if err != nil {
		t.Fatal(err)
	}
	return newRig(t, func(c *Config) {
		c.Resolver = resolver
		if change != nil {
			change(c)
		}
	}), z
}

// G9: no name is resolved and no address dialled before the egress policy
// allowed it; the address that was checked is the address that is dialled.
func TestG9NothingIsResolvedOrDialledBeforeItIsAllowed(t *testing.T) {
	const public, public6 = "198.51.101.7", "2606:4700:1::7"
	r, z := dnsRig(t, map[string][]string{
		"pkg.example.net. A": {public}, "pkg.example.net. AAAA": {public6},
		"evil.test. A": {public}, "api.openai.com. A": {public},
	}, nil)
	for name, cases := range allCases() {
		for _, c := range cases {
			if c.rule == "" || c.rule == RulePrivate || c.asks {
				continue
			}
			conn := r.connect()
			io.WriteString(conn, c.raw)
			closeWrite(conn)
			ended(t, conn, conn)
			if got := z.questions(); len(got) != 0 {
				t.Fatalf("%s, %s: the resolver was asked %q", name, c.name, got)
			}
			if r.dials() != 0 {
				t.Fatalf("%s, %s: an address was dialled", name, c.name)
			}
		}
	}
	r.connectTo("pkg.example.net:443")
	for _, q := range z.questions() {
		if q != "pkg.example.net. A" && q != "pkg.example.net. AAAA" {
			t.Errorf("asked %q besides the host itself", q)
		}
	}
	if got := len(z.questions()); got != 2 {
		t.Errorf("%d questions, want one each for A and AAAA", got)
	}
	if got := r.dialledAddrs(); len(got) != 1 || got[0] != netip.MustParseAddrPort(public+":443") && got[0] != netip.MustParseAddrPort("["+public6+"]:443") {
		t.Errorf("dialled %v", got)
	}
}

// A name that answers a public address first and a private one the next time
// (rebinding) is asked once a connection, and what was answered then is what
// the kernel is told to connect to.
func TestG9TheCheckedAddressIsTheDialledOne(t *testing.T) {
	o := startOrigin(t, echo)
	at := o.l.Addr().(*net.TCPAddr).AddrPort()
	var times atomic.Int64
	r, z := dnsRig(t, nil, func(c *Config) {
		c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		c.Rules, _ = ParseRules([]string{fmt.Sprintf("svc.example.net:%d", at.Port())})
	})
	z.mu.Lock()
	z.each = func(q dns.Question, _ bool) *dns.Msg {
		m := new(dns.Msg)
		if q.Qtype != dns.TypeA {
			return m
		}
		// 127.0.0.1 is the service, 127.0.0.2 what nobody allowed.
		value := "127.0.0.1"
		if times.Add(1) > 1 {
			value = "127.0.0.2"
		}
		m.Answer = []dns.RR{record(q.Name, "A", value)}
		return m
	}
	z.mu.Unlock()
	r.real.Store(true)
	target := fmt.Sprintf("svc.example.net:%d", at.Port())
	conn, br := r.connectTo(target)
	io.WriteString(conn, "ping")
	if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if n := times.Load(); n != 1 {
		t.Errorf("asked %d times for one connection", n)
	}
	rep, _, _ := r.ask(connectHead(target))
	if rep.status != 403 || rep.header.Get("X-Cordon-Refused") != RulePrivate {
		t.Errorf("the second answer: %d %q", rep.status, rep.header.Get("X-Cordon-Refused"))
	}
	if got := r.dialledAddrs(); len(got) != 1 || got[0] != at {
		t.Errorf("dialled %v, want %v only", got, at)
	}
	// Whatever a dialer makes of it, the socket goes where the check went.
	if conn, err := r.proxy.dialChecked(context.Background(), netip.MustParseAddrPort("127.0.0.2:9"), time.Second); err == nil {
		conn.Close()
		t.Error("an address past the check was dialled")
	}
}

func TestAnswersOverRealDNS(t *testing.T) {
	const public = "198.51.101.7"
	many := make([]string, 120) // too many for UDP without EDNS
	for i := range many {
		many[i] = fmt.Sprintf("198.51.101.%d", i+1)
	}
	for _, c := range []struct {
		name    string
		records map[string][]string
		status  int
		rule    string
	}{
		{"an alias to a public address", map[string][]string{"pkg.example.net. CNAME": {"cdn.other.test."}, "cdn.other.test. A": {public}}, 200, ""},
		{"an alias to a private address", map[string][]string{"pkg.example.net. CNAME": {"in.other.test."}, "in.other.test. A": {"10.0.0.5"}}, 403, RulePrivate},
		{"an alias to an alias to cloud metadata", map[string][]string{
			"pkg.example.net. CNAME": {"a.other.test."}, "a.other.test. CNAME": {"b.other.test."}, "b.other.test. A": {"169.254.169.254"}}, 403, RulePrivate},
		{"an alias to an LLM host that is public", map[string][]string{"pkg.example.net. CNAME": {"api.openai.com."}, "api.openai.com. A": {public}}, 200, ""},
		{"public and private mixed", map[string][]string{"pkg.example.net. A": {public, "192.168.1.1"}}, 403, RulePrivate},
		{"public by A, private by AAAA", map[string][]string{"pkg.example.net. A": {public}, "pkg.example.net. AAAA": {"fd00::1"}}, 403, RulePrivate},
		{"a private address in IPv6 clothes", map[string][]string{"pkg.example.net. AAAA": {"64:ff9b::a00:5"}}, 403, RulePrivate},
		{"IPv4-mapped loopback", map[string][]string{"pkg.example.net. AAAA": {"::ffff:127.0.0.1"}}, 403, RulePrivate},
		{"the unspecified address", map[string][]string{"pkg.example.net. A": {"0.0.0.0"}}, 403, RulePrivate},
		{"no such name", nil, 502, ""},
		{"a name without addresses", map[string][]string{"pkg.example.net. CNAME": {"none.test."}}, 502, ""},
		{"an alias to itself", map[string][]string{"pkg.example.net. CNAME": {"pkg.example.net."}}, 502, ""},
		{"an answer that needs TCP", map[string][]string{"pkg.example.net. A": many}, 200, ""},
		{"a private address at the end of such an answer", map[string][]string{"pkg.example.net. A": append(append([]string(nil), many...), "10.9.8.7")}, 403, RulePrivate},
	} {
		r, _ := dnsRig(t, c.records, nil)
		rep, _, _ := r.ask(connectHead("pkg.example.net:443"))
		if rep.status != c.status || rep.header.Get("X-Cordon-Refused") != c.rule {
			t.Errorf("%s: %d %q, want %d %q (%s)", c.name, rep.status, rep.header.Get("X-Cordon-Refused"), c.status, c.rule, rep.body)
		}
		if dialled := r.dials() > 0; dialled != (c.status == 200) {
			t.Errorf("%s: dialled %v", c.name, r.dialledAddrs())
		}
	}
}

// Data in the labels of a name goes to the name's own servers; only names
// below a wildcard that a person wrote are asked for at all.
func TestLabelsUnderAWildcardAreAskedOnlyBelowIt(t *testing.T) {
	r, z := dnsRig(t, map[string][]string{}, nil)
	secret := strings.Repeat("deadbeef", 7)
	for _, host := range []string{secret + ".evil.test", secret + ".pkg.example.net", secret + ".shop.example.net.evil.test"} {
		if rep, _, _ := r.ask(connectHead(host + ":443")); rep.status != 403 {
			t.Errorf("%s: %d", host, rep.status)
		}
	}
	if got := z.questions(); len(got) != 0 {
		t.Errorf("asked %q", got)
	}
	r.ask(connectHead(secret + ".shop.example.net:443"))
	if got := z.questions(); len(got) == 0 {
		t.Error("the name below the wildcard was not asked for") // the limit that the package doc states
	}
}

func TestResolverThatIsSilentOrMalformed(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	garbage, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer garbage.Close()
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := garbage.ReadFrom(buf)
			if err != nil {
				return
			}
			garbage.WriteTo(append(bytes.Clone(buf[:min(n, 2)]), 0xff, 0xff, 0, 0), from)
		}
	}()
	for name, addr := range map[string]string{"silent": silent.LocalAddr().String(), "garbage": garbage.LocalAddr().String()} {
		resolver, err := NewResolver(addr)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(c *Config) {
			c.Resolver = resolver
			c.Limits.ResolveTime = 100 * time.Millisecond
		})
		if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 502 && rep.status != 504 {
			t.Errorf("%s: %d", name, rep.status)
		}
		if r.dials() != 0 {
			t.Errorf("%s: dialled %v", name, r.dialledAddrs())
		}
	}
}
