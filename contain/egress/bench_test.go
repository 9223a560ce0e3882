package egress

import (
	"fmt"
	"io"
	"net"
	"sort"
	"syscall"
	"testing"
	"time"
)

// BenchmarkConnect is a connection, a ClientHello and the first bytes of the
// answer: straight to the origin, and by way of the proxy.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b, nil)
	hello := clientHello(b, "pkg.example.net")
	head := []byte(connectHead("pkg.example.net:443"))
	got := make([]byte, len(hello))
	once := func(b *testing.B, addr string, proxied bool) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		if proxied {
			if _, err := conn.Write(head); err != nil {
				b.Fatal(err)
			}
			if n, err := conn.Read(got); err != nil || string(got[9:12]) != "200" {
				b.Fatalf("%q, %v", got[:n], err)
			}
		}
		if _, err := conn.Write(hello); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil {
			b.Fatal(err)
		}
	}
	for _, way := range []struct {
		name, addr string
		proxied    bool
	}{{"direct", r.tunnel.l.Addr().String(), false}, {"proxy", r.addr, true}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				once(b, way.addr, way.proxied)
				times = append(times, time.Since(start))
			}
			sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
		})
	}
}

// BenchmarkBulk moves 64 MiB from an origin to a client: directly, through a
// bare relay that splices, through the proxy, and through the proxy with a
// cap that is not reached. cpu-ms is of the whole process, origin and client
// included.
func BenchmarkBulk(b *testing.B) {
	const size = 64 << 20
	source := func(_ *origin, conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			return
		}
		buf := make([]byte, 256<<10)
		for range size / len(buf) {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}
	for _, way := range []string{"direct", "relay", "proxy", "capped"} {
		b.Run(way, func(b *testing.B) {
			r := newRig(b, func(c *Config) {
				if way == "capped" {
					c.Limits.DownloadBytes = 1 << 50
				}
			})
			r.origin(&r.tunnel, source)
			target := r.tunnel.l.Addr().String()
			relay := startOrigin(b, func(_ *origin, conn net.Conn) { bareRelay(conn, target) })
			b.SetBytes(size)
			b.ReportAllocs()
			start := cpuTime(b)
			buf := make([]byte, 256<<10)
			for b.Loop() {
				addr := map[string]string{"direct": target, "relay": relay.l.Addr().String()}[way]
				if addr == "" {
					addr = r.addr
				}
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				if addr == r.addr {
					fmt.Fprint(conn, connectHead("db.example.net:8443"))
					if n, err := conn.Read(buf); err != nil || string(buf[9:12]) != "200" {
						b.Fatalf("%q, %v", buf[:n], err)
					}
				}
				conn.Write([]byte{1})
				n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{conn}, buf)
				if n != size || err != nil {
					b.Fatalf("%d bytes: %v", n, err)
				}
				conn.Close()
			}
			b.ReportMetric(float64((cpuTime(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

func bareRelay(conn net.Conn, target string) {
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	done := make(chan struct{})
	go func() { io.Copy(up, conn); close(done) }()
	io.Copy(conn, up)
	conn.Close()
	<-done
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkParseHead(b *testing.B) {
	head := []byte("CONNECT pkg.example.net:443 HTTP/1.1\r\nHost: pkg.example.net:443\r\nUser-Agent: x/1.0\r\nProxy-Connection: Keep-Alive\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseHead(head); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHello(b *testing.B) {
	raw := clientHello(b, "pkg.example.net")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := serverName(raw[9:]); err != nil {
			b.Fatal(err)
		}
	}
}
