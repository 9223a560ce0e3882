package sqlite

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cordon-sandbox/cordon/audit"
)

func BenchmarkRecordSingle(b *testing.B) {
	s := fresh(b)
	r, vs := runRow("r"), []audit.Violation{blocked("Bash", "x")}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Record(b.Context(), r, vs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// Many callers, each of a run of its own where anonymous.
func BenchmarkRecordConcurrent(b *testing.B) {
	for _, anonymous := range []bool{false, true} {
		b.Run(fmt.Sprintf("anonymous=%v", anonymous), func(b *testing.B) {
			s := fresh(b)
			var n atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := "r"
					if anonymous {
						id = fmt.Sprint("r", n.Add(1))
					}
					if err := s.Record(b.Context(), runRow(id), []audit.Violation{blocked("Bash", "x")}); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "c.db")
	record(b, open(b, path), runRow("r"), blocked("a", "b"))
	b.ReportAllocs()
	for b.Loop() {
		s, err := Open(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkOpenKillsClose(b *testing.B) {
	path := filepath.Join(b.TempDir(), "c.db")
	first, err := Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	if err := first.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Kills(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenNew(b *testing.B) {
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		s, err := Open(b.Context(), filepath.Join(dir, fmt.Sprint(i, ".db")))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCount(b *testing.B) {
	s := fresh(b)
	c := audit.Counter{RunID: "r", Tool: "Read", Tier: "intern", Outcome: "allowed"}
	b.ReportAllocs()
	for b.Loop() {
		s.Count(c, 1)
	}
}

func BenchmarkKillGeneration(b *testing.B) {
	s := fresh(b)
	b.ReportAllocs()
	for b.Loop() {
		s.KillGeneration()
	}
}
