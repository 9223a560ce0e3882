package llm

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

func parseForTest(s string) (strictjson.Value, error) { return strictjson.Parse([]byte(s)) }

// benchBody is a turn of a coding agent: 100 messages, 200 KB.
func benchBody() string {
	var b strings.Builder
	b.WriteString(`{"model":"claude-sonnet-5","max_tokens":32000,"stream":true,"tools":[{"name":"Bash","input_schema":{"type":"object"}}],"messages":[`)
	for i := range 100 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum dolor ", 110) + `"}]}`)
	}
	b.WriteString(`]}`)
	return b.String()
}

// BenchmarkCall compares a call by the proxy with one to the provider.
func BenchmarkCall(b *testing.B) {
	answer := stream(nil, anthropicEvents...)
	f := start(b, answer, func(c *Config) { c.Charge = func(context.Context, Charge) error { return nil } })
	body := benchBody()
	run := func(b *testing.B, client *http.Client, url string) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			req, err := http.NewRequest("POST", url+"/v1/messages", strings.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Api-Key", f.Placeholder("run"))
			resp, err := client.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < 500 || resp.StatusCode != 200 {
				b.Fatal(n, err, resp.Status)
			}
			resp.Body.Close()
			f.up.mu.Lock()
			f.up.seen = nil
			f.up.mu.Unlock()
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, f.up.Client(), f.up.URL) })
	b.Run("proxy", func(b *testing.B) { run(b, http.DefaultClient, "http://"+f.addr+"/anthropic") })
}

func BenchmarkInspect(b *testing.B) {
	p := &Proxy{features: map[Feature]bool{}}
	body := []byte(benchBody())
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		v, err := strictjson.Parse(body)
		if err != nil {
			b.Fatal(err)
		}
		if pl := p.inspect("messages", &v); len(pl.found) != 0 {
			b.Fatal(pl.found)
		}
	}
}

func BenchmarkEvents(b *testing.B) {
	text := []byte(anthropicEvents[0] + "\n\n" + strings.Repeat(anthropicEvents[3]+"\n\n", 1000) + anthropicEvents[5] + "\n\n" + anthropicEvents[6] + "\n\n")
	r := newRedactor(Secret{realKey})
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		e := &eventReader{r: bytes.NewReader(text), max: maxEvent}
		var m meter
		for {
			event, _, err := e.next()
			if err != nil {
				break
			}
			m.read(eventData(event))
			r.next(event)
		}
		if !m.complete() {
			b.Fatal(m)
		}
	}
}
