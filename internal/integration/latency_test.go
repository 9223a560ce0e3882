//go:build integration

package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkMCPReadTextFile reads a file by turns directly from
// server-filesystem and through cordon mcp, and reports both medians.
func BenchmarkMCPReadTextFile(b *testing.B) {
	p, at := need(b), newPlace(b)
	// A call over the cap writes a row, which is not what is measured here.
	b.Setenv("ATOM_SANDBOX_MAX_TOOL_CALLS", "1000000000")
	b.Setenv("ATOM_SANDBOX_MAX_EXEC_SECONDS", "1000000")
	server := []string{p.node, p.filesystem(), at.workspace}
	direct, through := connect(b, server...), connect(b, at.cordonMCP(p.cordon, "shadow", server...)...)
	args := fmt.Sprintf(`{"path":%q}`, at.notes)
	timed := func(c *client) time.Duration {
		start := time.Now()
		c.call("read_text_file", args)
		return time.Since(start)
	}
	for range 50 { // node's compiler and caches
		timed(direct)
		timed(through)
	}
	var a, z []time.Duration
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			a, z = append(a, timed(direct)), append(z, timed(through))
		} else {
			z, a = append(z, timed(through)), append(a, timed(direct))
		}
	}
	slices.Sort(a)
	slices.Sort(z)
	p50a, p50z := a[len(a)/2], z[len(z)/2]
	b.ReportMetric(float64(p50a.Microseconds()), "direct-p50-µs")
	b.ReportMetric(float64(p50z.Microseconds()), "through-p50-µs")
	b.ReportMetric(float64((p50z - p50a).Microseconds()), "added-p50-µs")
	b.Logf("read_text_file: direct p50 %s, through cordon mcp p50 %s, added %s", p50a, p50z, p50z-p50a)
}
