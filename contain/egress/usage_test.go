package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// meterStub is a Config.Usage that allows so many bytes of a run in all.
type meterStub struct {
	mu       sync.Mutex
	limit    int64
	up, down map[string]int64
	calls    int
	during   map[string]bool
	overlap  bool
}

var errBudget = errors.New("the run's budget of bytes is used up")

func (m *meterStub) use(_ context.Context, run string, up, down int64) error {
	m.mu.Lock()
	m.overlap = m.overlap || m.during[run]
	if m.during == nil {
		m.during, m.up, m.down = map[string]bool{}, map[string]int64{}, map[string]int64{}
	}
	m.during[run] = true
	m.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.during[run] = false
	m.calls++
	m.up[run] += up
	m.down[run] += down
	if m.limit > 0 && m.up[run]+m.down[run] > m.limit {
		return errBudget
	}
	return nil
}

func (m *meterStub) told(run string) (up, down int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up[run], m.down[run]
}

func (m *meterStub) allow(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

func TestUsageIsToldWholeAndInSteps(t *testing.T) {
	const size = 8 << 20
	m := &meterStub{}
	r := newRig(t, func(c *Config) { c.Usage = m.use })
	conn, br := r.connectTo("db.example.net:8443")
	go func() { conn.Write(make([]byte, size)); closeWrite(conn) }()
	if got := len(ended(t, conn, br)); got != size {
		t.Fatalf("%d bytes came back", got)
	}
	eventually(t, "the run's last bytes are told", func() bool {
		up, down := m.told("run-1")
		return up == size && down == size
	})
	if up, down := r.proxy.Usage("run-1"); up != size || down != size {
		t.Errorf("Usage %d, %d", up, down)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// One a step and direction at most, a tick each 250 ms, and the end.
	if m.calls > 2*size/usageStep+100 || m.overlap {
		t.Errorf("%d calls, overlapping %v", m.calls, m.overlap)
	}
}

// What is too little for a step is told while the tunnel stays open.
func TestUsageOfAQuietTunnelIsTold(t *testing.T) {
	m := &meterStub{}
	r := newRig(t, func(c *Config) { c.Usage = m.use })
	conn, br := r.connectTo("db.example.net:8443")
	io.WriteString(conn, "ping")
	if _, err := io.ReadFull(br, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "four bytes are told", func() bool {
		up, down := m.told("run-1")
		return up == 4 && down == 4
	})
}

func TestUsageThatSaysNoCutsTheRun(t *testing.T) {
	m := &meterStub{limit: 1 << 20}
	r := newRig(t, func(c *Config) { c.Usage = m.use })
	idle, idleBr := r.open("pkg.example.net:443", "pkg.example.net")
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go r.proxy.Serve(context.Background(), l, "run-2")
	conn, br := r.connectTo("db.example.net:8443")
	go io.Copy(io.Discard, br)
	for {
		if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	ended(t, idle, idleBr)
	// What passed before the step was told: a step and a buffer of each direction.
	if n := int64(len(r.tunnel.bytes())); n > 1<<20+2*(usageStep+128<<10) {
		t.Errorf("%d bytes passed a budget of %d", n, 1<<20)
	}
	if !r.rows.has(RuleUsage) {
		t.Error("no row")
	}
	rep, _, _ := r.ask(connectHead("pkg.example.net:443"))
	if rep.status != 403 || rep.header.Get("X-Cordon-Refused") != RuleUsage {
		t.Errorf("a new request: %d %q", rep.status, rep.header.Get("X-Cordon-Refused"))
	}
	if strings.Contains(rep.body, errBudget.Error()) {
		t.Errorf("the tool is told the operator's error: %q", rep.body)
	}
	first := r.addr
	r.addr = l.Addr().String()
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 200 {
		t.Errorf("another run: %d", rep.status)
	}
	r.addr = first
	m.mu.Lock()
	calls := m.calls
	m.mu.Unlock()
	start := time.Now()
	for range 50 {
		r.ask(connectHead("pkg.example.net:443"))
	}
	m.mu.Lock()
	if most := 1 + int(time.Since(start)/usageEvery); m.calls-calls > most {
		t.Errorf("50 refused requests asked %d times, want %d at most", m.calls-calls, most)
	}
	m.mu.Unlock()
	m.allow(0)
	eventually(t, "room again after the budget grew", func() bool {
		rep, conn, _ := r.ask(connectHead("pkg.example.net:443"))
		conn.Close()
		return rep.status == 200
	})
}

func TestUsageThatSaysNoToPlainHTTP(t *testing.T) {
	m := &meterStub{limit: 512 << 10}
	r := newRig(t, func(c *Config) { c.Usage = m.use })
	conn := r.connect()
	fmt.Fprintf(conn, post+"Content-Length: 100000000\r\n\r\n")
	for {
		if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	eventually(t, "row", func() bool { return r.rows.has(RuleUsage) })
	if n := len(r.plain.bytes()); n > 512<<10+usageStep+128<<10 {
		t.Errorf("%d bytes passed", n)
	}
}

// Caps are policy: what is past them passes in shadow mode, and a row says so.
func TestCapsInShadowMode(t *testing.T) {
	m := &meterStub{limit: 64 << 10}
	r := newRig(t, func(c *Config) {
		c.Mode = cordon.Shadow
		c.Usage = m.use
		c.Limits.UploadBytes, c.Limits.DownloadBytes = 100<<10, 100<<10
	})
	const size = 1 << 20
	conn, br := r.connectTo("db.example.net:8443")
	go func() { conn.Write(make([]byte, size)); closeWrite(conn) }()
	if got := len(ended(t, conn, br)); got != size {
		t.Errorf("%d of %d bytes passed", got, size)
	}
	if rep, _, _ := r.ask(connectHead("pkg.example.net:443")); rep.status != 200 {
		t.Errorf("a new request: %d", rep.status)
	}
	for _, rule := range []string{RuleUpload, RuleDownload, RuleUsage} {
		if !r.rows.has(rule) {
			t.Errorf("no row of %s", rule)
		}
	}
	for _, x := range r.rows.list() {
		if x.Enforced || x.Refused {
			t.Errorf("row claims a refusal: %+v", x)
		}
	}
}

// state is how many runs the proxy remembers anything of.
func (p *Proxy) state() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs) + len(p.tokens) + len(p.own) + len(p.listening)
}

func TestFinishedRunsAreForgotten(t *testing.T) {
	m := &meterStub{}
	r := newRig(t, func(c *Config) { c.Usage = m.use })
	r.open("pkg.example.net:443", "pkg.example.net")
	state, fds := r.proxy.state(), descriptors(t)
	for i := range 50 {
		l, err := Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		run := fmt.Sprintf("brief-%d", i)
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- r.proxy.Serve(ctx, l, run) }()
		if i%2 == 0 {
			r.register(run, nil)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, connectHead("db.example.net:8443"))
		buf := make([]byte, 256)
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "ping")
		if _, err := io.ReadFull(conn, buf[:4]); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			r.proxy.Kill(run)
		}
		cancel()
		<-served
		conn.Close()
		r.proxy.Unregister(run)
		if up, down := m.told(run); up != 4 || down != 4 {
			t.Errorf("%s: told %d, %d", run, up, down)
		}
		if up, _ := r.proxy.Usage(run); up != 0 {
			t.Errorf("%s is still known", run)
		}
	}
	if got := r.proxy.state(); got != state {
		t.Errorf("%d pieces of state, %d before", got, state)
	}
	eventually(t, "descriptors back to where they were", func() bool { return descriptors(t) <= fds+4 })
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.proxy.Serve(context.Background(), l, "brief-0"); !errors.Is(err, ErrClosed) {
		t.Errorf("a killed run came back: %v", err)
	}
}
