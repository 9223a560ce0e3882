//go:build integration

package egress

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cordon-sandbox/cordon"
	"golang.org/x/sys/unix"
)

const (
	idleTunnels = 10_000
	originEnv   = "CORDON_TEST_IDLE_ORIGIN"
)

// idleStat is what the process of the proxy says of itself. The resident
// sizes are in KiB: as it is, and once the runtime gave back what it can.
type idleStat struct{ Goroutines, Descriptors, RSS, Settled int }

// TestIdleProxyProcess is no test: it is the proxy in a process of its own,
// when the variable says where the origin is. It answers each line with an
// idleStat until its input ends.
func TestIdleProxyProcess(t *testing.T) {
	origin := os.Getenv(originEnv)
	if origin == "" {
		t.Skip("only by TestTenThousandIdleTunnels")
	}
	rules, err := ParseRules([]string{origin})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{
		Mode: cordon.Enforce, Rules: rules, Recorder: &rows{}, Limits: Limits{Tunnels: 2 * idleTunnels},
		UnsafeAllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go p.Serve(context.Background(), l, "run-1")
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		s := idleStat{Goroutines: runtime.NumGoroutine(), Descriptors: descriptors(t), RSS: residentKiB(t)}
		debug.FreeOSMemory()
		s.Settled = residentKiB(t)
		json.NewEncoder(os.Stdout).Encode(s)
	}
	p.Close()
}

// TestIdleOriginProcess is no test either: it is the origin.
func TestIdleOriginProcess(t *testing.T) {
	if os.Getenv(originEnv) == "" {
		t.Skip("only by TestTenThousandIdleTunnels")
	}
	o := startOrigin(t, func(_ *origin, conn net.Conn) {
		var one [1]byte
		for {
			if _, err := conn.Read(one[:]); err != nil {
				return
			}
			conn.Write(one[:])
		}
	})
	fmt.Println(o.l.Addr())
	io.Copy(io.Discard, os.Stdin)
}

func residentKiB(t *testing.T) int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() / 1024
}

// idleRun opens n tunnels through a proxy in another process, each with a
// byte there and back, and measures that process before, while they are idle
// and after they were closed.
func idleRun(tb testing.TB, n int) (before, during, after idleStat) {
	tb.Helper()
	origin := startProcess(tb, "TestIdleOriginProcess", "-")
	proxy := startProcess(tb, "TestIdleProxyProcess", origin.addr)
	before = proxy.stat()
	conns := make([]net.Conn, n)
	var opening sync.WaitGroup
	const at = 16 // at once
	for k := range at {
		opening.Go(func() {
			for i := k; i < n; i += at {
				var err error
				if conns[i], err = openIdle(proxy.addr, origin.addr); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	opening.Wait()
	if tb.Failed() {
		return before, during, after
	}
	during = proxy.stat()
	for _, c := range conns {
		c.Close()
	}
	eventually(tb, "all of it is given back", func() bool {
		after = proxy.stat()
		return after.Descriptors <= before.Descriptors+4 && after.Goroutines <= before.Goroutines+4
	})
	return before, during, after
}

// process is a helper of its own, so that each has its descriptors.
type process struct {
	tb   testing.TB
	addr string
	in   io.Writer
	out  *bufio.Reader
}

func startProcess(tb testing.TB, name, origin string) *process {
	cmd := exec.Command(os.Args[0], "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), originEnv+"="+origin)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { in.Close(); cmd.Wait() })
	p := &process{tb: tb, in: in, out: bufio.NewReader(out)}
	line, err := p.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	p.addr = strings.TrimSpace(line)
	return p
}

func (p *process) stat() (s idleStat) {
	io.WriteString(p.in, "\n")
	line, err := p.out.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &s)
	}
	if err != nil {
		p.tb.Fatal(err)
	}
	return s
}

// tunnelsHere is as many as one process may have, two descriptors each.
func tunnelsHere(tb testing.TB) int {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		tb.Fatal(err)
	}
	if need := uint64(2*idleTunnels + 200); lim.Cur < need {
		up := unix.Rlimit{Cur: need, Max: max(need, lim.Max)}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &up); err != nil {
			n := int(lim.Cur-200) / 2
			tb.Logf("%d tunnels, for %d descriptors are allowed: %v", n, lim.Cur, err)
			return n
		}
	}
	return idleTunnels
}

func openIdle(proxy, origin string) (net.Conn, error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, connectHead(origin)); err != nil {
		return nil, err
	}
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200 ") {
		return nil, fmt.Errorf("%q, %w", buf[:n], err)
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return nil, err
	}
	_, err = io.ReadFull(conn, buf[:1])
	return conn, err
}

func TestTenThousandIdleTunnels(t *testing.T) {
	n := tunnelsHere(t)
	before, during, after := idleRun(t, n)
	// Two sockets and two goroutines each, and no pipes.
	if got := during.Descriptors - before.Descriptors; got > 2*n+16 {
		t.Errorf("%d descriptors for %d tunnels", got, n)
	}
	if got := during.Goroutines - before.Goroutines; got > 2*n+16 {
		t.Errorf("%d goroutines for %d tunnels", got, n)
	}
	t.Logf("before %+v, with %d idle tunnels %+v, after %+v", before, n, during, after)
}

// BenchmarkIdleTunnels reports the resident size of an idle tunnel.
func BenchmarkIdleTunnels(b *testing.B) {
	n := tunnelsHere(b)
	for b.Loop() {
		before, during, _ := idleRun(b, n)
		b.ReportMetric(float64(during.RSS-before.RSS)/float64(n), "KiB/tunnel")
		b.ReportMetric(float64(during.Settled-before.Settled)/float64(n), "settled-KiB/tunnel")
	}
}
