package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
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
	out := make([]cordon.ToolVerdict, len(defs))
	for i := range out {
		out[i].Visible = true
	}
	return out
}
func (nothing) Record(context.Context, cordon.Run, ...cordon.Chunk) ([]string, error) {
	return nil, nil
}
func (nothing) Resolve(context.Context, string, bool, string) error { return nil }
func (nothing) Attach(ctx context.Context, _ cordon.Run) (context.Context, func()) {
	return ctx, func() {}
}

func BenchmarkJudgeCall(b *testing.B) {
	j := judgeOf(nothing{})
	line := []byte(callLine("1", "read_text_file", `{"path":"/home/me/project/src/main.go"}`))
	answer := []byte(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat("some text ", 100) + `"}]},"jsonrpc":"2.0","id":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if j.Client(context.Background(), line).Forward == nil || j.Server(context.Background(), answer).Forward == nil {
			b.Fatal("dropped")
		}
	}
}

func BenchmarkJudgeLargeResult(b *testing.B) {
	j := judgeOf(nothing{})
	j.maxResult = DefaultMaxResult
	answer := []byte(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat(`some text\n`, 90000) + `"}]},"jsonrpc":"2.0","id":1}`)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		if j.Server(context.Background(), answer).Forward == nil {
			b.Fatal("dropped")
		}
	}
}

func BenchmarkJudgeToolsList(b *testing.B) {
	j := judgeOf(nothing{})
	var tools []string
	for i := range 40 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":"%s","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}`, i, strings.Repeat("d", 200)))
	}
	answer := []byte(`{"result":{"tools":[` + strings.Join(tools, ",") + `]},"jsonrpc":"2.0","id":2}`)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		if j.Server(context.Background(), answer).Forward == nil {
			b.Fatal("dropped")
		}
	}
}

// BenchmarkAddedLatency asks an echo server in a process of its own, by
// turns directly and through Serve, and reports the median of each.
func BenchmarkAddedLatency(b *testing.B) {
	env := append(os.Environ(), fakeEnv+"=echo")
	cmd := exec.Command(os.Args[0])
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	direct := asker(in, out)

	inR, inW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- Serve(context.Background(), Config{Guard: nothing{}, Command: []string{os.Args[0]}, Env: env, Stdin: inR, Stdout: outW})
	}()
	through := asker(inW, outR)

	line := callLine("1", "read_text_file", `{"path":"/home/me/project/src/main.go"}`) + "\n"
	var a, z []time.Duration
	for b.Loop() {
		a = append(a, direct(b, line))
		z = append(z, through(b, line))
	}
	p50a, p50z := median(a), median(z)
	b.ReportMetric(float64(p50a.Nanoseconds()), "direct-p50-ns")
	b.ReportMetric(float64(p50z.Nanoseconds()), "through-p50-ns")
	b.ReportMetric(float64((p50z - p50a).Nanoseconds()), "added-ns")
	b.ReportMetric(float64(p50z)/float64(p50a), "ratio")
	inW.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	in.Close()
	_ = cmd.Wait()
}

func asker(in io.Writer, out io.Reader) func(*testing.B, string) time.Duration {
	r := bufio.NewReader(out)
	return func(b *testing.B, line string) time.Duration {
		start := time.Now()
		if _, err := io.WriteString(in, line); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
