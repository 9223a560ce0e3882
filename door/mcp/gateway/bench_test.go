package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// nothing is a guard that allows at once: what remains is the door's cost.
type nothing struct{}

func (nothing) Decide(_ context.Context, c cordon.Call) cordon.Decision {
	return cordon.Decision{CallID: c.ID, Outcome: cordon.Allowed}
}
func (nothing) Settle(context.Context, cordon.Decision, cordon.Usage) error { return nil }
func (nothing) Tools(_ context.Context, _ cordon.Run, defs []cordon.ToolDef) []cordon.ToolVerdict {
	return make([]cordon.ToolVerdict, len(defs))
}
func (nothing) Record(context.Context, cordon.Run, ...cordon.Chunk) ([]string, error) {
	return nil, nil
}
func (nothing) Resolve(context.Context, string, bool, string) error { return nil }
func (nothing) Attach(ctx context.Context, _ cordon.Run) (context.Context, func()) {
	return ctx, func() {}
}

// benchPair is an upstream and a gateway in front of it, each as a function
// that makes one call.
func benchPair(b *testing.B, sessions bool) (direct, through func() error) {
	answer := []byte(`"result":{"content":[{"type":"text","text":"` + strings.Repeat("some text ", 20) + `"}]}}`)
	up := plainServer(b, func(w http.ResponseWriter, _ string, id json.RawMessage, _ []byte) {
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s`, id, answer)
	})
	g, err := New(Config{Guard: nothing{}, Servers: []Server{up}, Tokens: []Token{{Identity{Name: "a", Servers: []string{"*"}}, HashSecret(secretA)}}})
	if err != nil {
		b.Fatal(err)
	}
	f := serveBench(b, g)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	body, headers := statelessCall("1", "echo", `{"path":"/home/me/project/src/main.go"}`)
	var seq atomic.Int64
	session := ""
	if sessions {
		session = f.session("/mcp/peer")
	}
	call := func(url string) func() error {
		return func() error {
			text := body
			if sessions {
				text = callBody(fmt.Sprint(seq.Add(1)), "echo", `{"path":"/home/me/project/src/main.go"}`)
			}
			r, err := http.NewRequest("POST", url, strings.NewReader(text))
			if err != nil {
				return err
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set("Authorization", "Bearer "+secretA)
			if sessions {
				r.Header.Set(headerSession, session)
			} else {
				for i := 0; i+1 < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
			}
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err == nil && !bytes.Contains(got, []byte("some text")) {
				err = fmt.Errorf("%s: %s", resp.Status, got)
			}
			return err
		}
	}
	return call(up.URL), call(f.url + "/mcp/peer")
}

func serveBench(b *testing.B, g *Gateway) *fixture {
	f := startHandler(b, g)
	return &fixture{t: b, g: g, url: f}
}

// BenchmarkAddedLatency calls by turns directly and through the gateway, and
// reports the median of each.
func BenchmarkAddedLatency(b *testing.B) {
	for _, sessions := range []bool{true, false} {
		b.Run(fmt.Sprintf("sessions=%v", sessions), func(b *testing.B) {
			direct, through := benchPair(b, sessions)
			var a, z []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				a = append(a, timed(b, direct))
				z = append(z, timed(b, through))
			}
			p50a, p50z := median(a), median(z)
			b.ReportMetric(float64(p50a.Microseconds()), "direct-p50-µs")
			b.ReportMetric(float64(p50z.Microseconds()), "through-p50-µs")
			b.ReportMetric(float64((p50z - p50a).Microseconds()), "added-µs")
			b.ReportMetric(float64(p50z)/float64(p50a), "ratio")
		})
	}
}

func timed(b *testing.B, call func() error) time.Duration {
	start := time.Now()
	if err := call(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkCallsPerSecond keeps 16 clients busy, half of the time directly and
// half through the gateway. Client, gateway and server share the processors.
func BenchmarkCallsPerSecond(b *testing.B) {
	for _, sessions := range []bool{true, false} {
		b.Run(fmt.Sprintf("sessions=%v", sessions), func(b *testing.B) {
			direct, through := benchPair(b, sessions)
			var spent [2]time.Duration
			const each = 2000
			rounds := 0
			for b.Loop() {
				rounds++
				for i, call := range []func() error{direct, through} {
					start := time.Now()
					busy(b, 16, each, call)
					spent[i] += time.Since(start)
				}
			}
			n := float64(rounds * each)
			b.ReportMetric(n/spent[0].Seconds(), "direct-calls/s")
			b.ReportMetric(n/spent[1].Seconds(), "through-calls/s")
			b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "ratio")
		})
	}
}

func busy(b *testing.B, clients, calls int, call func() error) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(calls))
	for range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkHandler is the gateway's own work on a call, and that of its client
// to the server, without a client's.
func BenchmarkHandlerRefused(b *testing.B) {
	g, err := New(Config{Guard: refusing{}, Servers: []Server{{Name: "peer", URL: "http://127.0.0.1:9/"}},
		Tokens: []Token{{Identity{Name: "a", Servers: []string{"*"}}, HashSecret(secretA)}}})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	body, headers := statelessCall("1", "echo", `{"path":"/home/me/project/src/main.go"}`)
	b.ReportAllocs()
	for b.Loop() {
		w := &discard{h: http.Header{}}
		r, err := http.NewRequest("POST", "http://127.0.0.1/mcp/peer", strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secretA)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		g.ServeHTTP(w, r)
		if w.status != 200 || w.n == 0 {
			b.Fatal(w.status)
		}
	}
}

type refusing struct{ nothing }

func (refusing) Decide(_ context.Context, c cordon.Call) cordon.Decision {
	return cordon.Decision{CallID: c.ID, Outcome: cordon.Blocked, Enforced: true}
}

type discard struct {
	h         http.Header
	status, n int
}

func (d *discard) Header() http.Header { return d.h }
func (d *discard) WriteHeader(s int)   { d.status = s }
func (d *discard) Write(b []byte) (int, error) {
	d.n += len(b)
	return len(b), nil
}
