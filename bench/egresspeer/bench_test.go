package egresspeer

import (
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"
)

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkConnect is a connection, a CONNECT, a ClientHello and the first
// bytes of the answer, in turn: direct, by ours, by the peer.
func BenchmarkConnect(b *testing.B) {
	o := startOrigin(b, echo)
	ours, peer := startCordon(b, o.port, new(loopback)), startSmokescreen(b, new(loopback))
	hello := clientHello(b, "pkg.example.net")
	got := make([]byte, len(hello))
	const block = 20 // in a row, for one way's closing is still going on in the next
	once := func(addr string) time.Duration {
		start := time.Now()
		var conn net.Conn
		var err error
		if addr == "" {
			conn, err = net.Dial("tcp", o.addr)
		} else {
			conn, err = openTunnel(addr, "pkg.example.net:"+o.port)
		}
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close() // not part of it
		if _, err := conn.Write(hello); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	times := make([][]time.Duration, 3)
	for b.Loop() {
		for i, addr := range []string{"", ours, peer} {
			for range block {
				times[i] = append(times[i], once(addr))
			}
		}
	}
	direct := float64(median(times[0]))
	b.ReportMetric(float64(median(times[1]))/direct, "cordon/direct")
	b.ReportMetric(float64(median(times[2]))/direct, "smokescreen/direct")
}

// BenchmarkBulk moves 64 MiB to the client, in turn: direct, by ours, by the
// peer. Throughput is against direct; the processor time is the proxy's part.
func BenchmarkBulk(b *testing.B) {
	const size = 64 << 20
	o := startOrigin(b, func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			return
		}
		buf := make([]byte, 256<<10)
		for range size / len(buf) {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	ours, peer := startCordon(b, o.port, new(loopback)), startSmokescreen(b, new(loopback))
	wall, cpu := make([][]time.Duration, 3), make([][]time.Duration, 3)
	buf := make([]byte, 256<<10)
	b.SetBytes(3 * size)
	for b.Loop() {
		for i, addr := range []string{"", ours, peer} {
			start, used := time.Now(), cpuTime(b)
			var conn net.Conn
			var err error
			if addr == "" {
				conn, err = net.Dial("tcp", o.addr)
			} else {
				conn, err = openTunnel(addr, "pkg.example.net:"+o.port)
			}
			if err != nil {
				b.Fatal(err)
			}
			conn.Write([]byte{1})
			n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(conn, size)}, buf)
			if n != size || err != nil {
				b.Fatalf("%d bytes: %v", n, err)
			}
			wall[i], cpu[i] = append(wall[i], time.Since(start)), append(cpu[i], cpuTime(b)-used)
			conn.Close()
		}
	}
	direct, ends := float64(median(wall[0])), median(cpu[0])
	b.ReportMetric(direct/float64(median(wall[1])), "cordon/direct")
	b.ReportMetric(direct/float64(median(wall[2])), "smokescreen/direct")
	b.ReportMetric(float64(median(cpu[1])-ends)/float64(median(cpu[2])-ends), "cordon-cpu/smokescreen-cpu")
}

// BenchmarkIdle is what an idle tunnel holds of the heap and of stacks. What
// client and origin hold in the same process is measured first, and taken off.
func BenchmarkIdle(b *testing.B) {
	const many = 1000
	o := startOrigin(b, echo)
	ours, peer := startCordon(b, o.port, new(loopback)), startSmokescreen(b, new(loopback))
	var held [3]uint64
	for b.Loop() {
		for i, addr := range []string{"", ours, peer} {
			before := inUse()
			conns := make([]net.Conn, many)
			for k := range conns {
				var err error
				if addr == "" {
					conns[k], err = net.Dial("tcp", o.addr)
				} else {
					conns[k], err = openTunnel(addr, "pkg.example.net:"+o.port)
				}
				if err != nil {
					b.Fatal(err)
				}
				conns[k].Write([]byte{1})
				if _, err := io.ReadFull(conns[k], make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
			}
			held[i] = inUse() - before
			for _, c := range conns {
				c.Close()
			}
			for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > 100 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	b.ReportMetric(float64(held[1]-held[0])/many/1024, "cordon-KiB/tunnel")
	b.ReportMetric(float64(held[2]-held[0])/many/1024, "smokescreen-KiB/tunnel")
}

func inUse() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
