package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkConnect is a connection, a ClientHello and the first bytes of the
// answer: straight to the origin, by a bare relay that decides nothing, and
// by way of the proxy, in turn, so that the ratios are of one run.
func BenchmarkConnect(b *testing.B) {
	r := newRig(b, func(c *Config) {
		c.UnsafeAllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	r.direct.Store(true)
	target := r.tunnel.l.Addr().String()
	relay := startOrigin(b, func(_ *origin, conn net.Conn) { bareProxy(conn, target) })
	hello := clientHello(b, "pkg.example.net")
	head := []byte(connectHead("pkg.example.net:443"))
	got := make([]byte, len(hello))
	once := func(addr string) time.Duration {
		start := time.Now()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close() // not part of it
		if addr != target {
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
		return time.Since(start)
	}
	ways := []string{target, relay.l.Addr().String(), r.addr}
	const block = 20 // in a row, for one way's closing is still going on in the next
	times := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, addr := range ways {
			for range block {
				times[i] = append(times[i], once(addr))
			}
		}
	}
	direct, bare, proxied := median(times[0]), median(times[1]), median(times[2])
	b.ReportMetric(float64(proxied.Nanoseconds())/1000, "proxy-p50-µs")
	b.ReportMetric(float64(bare)/float64(direct), "bare/direct")
	b.ReportMetric(float64(proxied)/float64(direct), "proxy/direct")
}

func median[T int64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkBulk moves 64 MiB from an origin to a client: directly, through a
// bare relay that splices, through the proxy, and through the proxy with a cap
// and a Config.Usage, in turn. The processor time is of the whole process,
// origin and client included, without that of the direct way.
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
	r, capped := newRig(b, nil), newRig(b, func(c *Config) {
		c.Limits.DownloadBytes = 1 << 50
		c.Usage = func(context.Context, string, int64, int64) error { return nil }
	})
	r.origin(&r.tunnel, source)
	capped.origin(&capped.tunnel, source)
	target := r.tunnel.l.Addr().String()
	relay := startOrigin(b, func(_ *origin, conn net.Conn) { bareRelay(conn, target) })
	ways := []string{target, relay.l.Addr().String(), r.addr, capped.addr}
	wall, cpu := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways))
	buf := make([]byte, 256<<10)
	for b.Loop() {
		for i, addr := range ways {
			start, used := time.Now(), cpuTime(b)
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Fatal(err)
			}
			if i >= 2 {
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
			wall[i], cpu[i] = append(wall[i], time.Since(start)), append(cpu[i], cpuTime(b)-used)
		}
	}
	direct, ends := median(wall[0]), median(cpu[0])
	ofRelay := float64(median(cpu[1]) - ends)
	b.ReportMetric(float64(size)/1e6/direct.Seconds(), "direct-MB/s")
	b.ReportMetric(float64(direct)/float64(median(wall[1])), "relay/direct")
	b.ReportMetric(float64(direct)/float64(median(wall[2])), "proxy/direct")
	b.ReportMetric(float64(direct)/float64(median(wall[3])), "capped/direct")
	b.ReportMetric(float64(median(cpu[2])-ends)/ofRelay, "proxy-cpu/relay-cpu")
	b.ReportMetric(float64(median(cpu[3])-ends)/ofRelay, "capped-cpu/relay-cpu")
}

// bareProxy answers a CONNECT without reading it, and relays.
func bareProxy(conn net.Conn, target string) {
	if _, err := conn.Read(make([]byte, 4<<10)); err != nil {
		return
	}
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n")
	copyBoth(conn, up)
}

func bareRelay(conn net.Conn, target string) {
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	copyBoth(conn, up)
}

func copyBoth(conn, up net.Conn) {
	done := make(chan struct{})
	go func() { io.Copy(up, conn); closeWrite(up); close(done) }()
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
