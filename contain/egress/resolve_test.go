package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

func TestDialChecksAgain(t *testing.T) {
	o := startOrigin(t, echo)
	to := o.l.Addr().(*net.TCPAddr).AddrPort()
	r := newRig(t, nil)
	if conn, err := r.proxy.dialChecked(context.Background(), to, time.Second); err == nil {
		conn.Close()
		t.Error("loopback was dialled")
	}
	r = newRig(t, func(c *Config) { c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	conn, err := r.proxy.dialChecked(context.Background(), to, time.Second)
	if err != nil {
		t.Fatalf("loopback with the exception: %v", err)
	}
	conn.Close()
	own := netip.MustParseAddrPort(r.addr)
	if conn, err := r.proxy.dialChecked(context.Background(), own, time.Second); err == nil {
		conn.Close()
		t.Error("the proxy dialled itself")
	}
}

// The socket is connected by the check itself, in both families.
func TestDialCheckedConnects(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil && address == "[::1]:0" {
			t.Logf("no IPv6 here: %v", err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(c *Config) {
			c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		})
		to := l.Addr().(*net.TCPAddr).AddrPort()
		conn, err := r.proxy.dialChecked(context.Background(), to, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if conn.RemoteAddr().String() != to.String() || conn.LocalAddr().String() != far.RemoteAddr().String() {
			t.Errorf("connected from %v to %v", conn.LocalAddr(), conn.RemoteAddr())
		}
		go far.Write([]byte("hello"))
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Error(err)
		}
		conn.Close()
		far.Close()
		l.Close()
		if _, err := r.proxy.dialChecked(context.Background(), to, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port that nobody listens on: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := r.proxy.dialChecked(ctx, to, time.Second); err == nil {
			t.Error("a dial whose context is over")
		}
	}
}

func TestPrivateServiceByException(t *testing.T) {
	o := startOrigin(t, echo)
	port := o.l.Addr().(*net.TCPAddr).Port
	r := newRig(t, func(c *Config) {
		c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		c.Rules, _ = ParseRules([]string{fmt.Sprintf("svc.example.net:%d", port), "self.example.net:" + "1"})
	})
	r.real.Store(true)
	r.resolver.set("svc.example.net", "127.0.0.1")
	conn, br := r.connectTo(fmt.Sprintf("svc.example.net:%d", port))
	io.WriteString(conn, "ping")
	if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	r.resolver.set("svc.example.net", "127.0.0.2")
	if rep, _, _ := r.ask(connectHead(fmt.Sprintf("svc.example.net:%d", port))); rep.status != 403 {
		t.Errorf("an address beside the exception: %d", rep.status)
	}
	// A rule and an exception that lead back into the proxy itself.
	_, own, _ := net.SplitHostPort(r.addr)
	rules, err := ParseRules([]string{"self.example.net:" + own})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.SetRules(rules)
	r.resolver.set("self.example.net", "127.0.0.1")
	if rep, _, _ := r.ask(connectHead("self.example.net:" + own)); rep.header.Get("X-Cordon-Refused") != RuleLoop {
		t.Errorf("a loop: %d %q", rep.status, rep.header.Get("X-Cordon-Refused"))
	}
}
