package sqlite

import (
	"context"
	"database/sql/driver"
	"math"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
)

// errBadConn makes database/sql drop a connection.
var errBadConn = driver.ErrBadConn

// maxPending bounds the distinct counters between two flushes: an agent that
// makes up tool names shall not fill the memory, nor the table. What is
// beyond is counted under otherTool.
const (
	maxPending = 4096
	otherTool  = "(other)"
	// A longer name is shortened before it is held.
	maxTool = 256
)

// batch is what Count and AddUsage hold.
type batch struct {
	counts map[counterKey]int64
	usage  map[string]audit.Usage
}

type counterKey struct {
	audit.Counter
	hour int64 // hours since 1970
}

func (b *batch) empty() bool { return len(b.counts) == 0 && len(b.usage) == 0 }

func (b *batch) count(k counterKey, n int64) {
	if b.counts == nil {
		b.counts = make(map[counterKey]int64)
	}
	if _, ok := b.counts[k]; !ok && len(b.counts) >= maxPending {
		k.Tool = otherTool
	}
	b.counts[k] += n
}

func (b *batch) use(u audit.Usage) {
	if b.usage == nil {
		b.usage = make(map[string]audit.Usage)
	}
	b.usage[u.RunID] = sum(b.usage[u.RunID], u)
}

func sum(a, b audit.Usage) audit.Usage {
	return audit.Usage{
		RunID: b.RunID, ToolCalls: a.ToolCalls + b.ToolCalls, ExecSeconds: a.ExecSeconds + b.ExecSeconds,
		BytesWritten: a.BytesWritten + b.BytesWritten, CostUSD: a.CostUSD + b.CostUSD,
	}
}

// Count implements audit.Store.
func (s *Store) Count(c audit.Counter, n int64) {
	if len(c.Tool) > maxTool {
		c = audit.ValidCounter(c)
	}
	k := counterKey{c, time.Now().Unix() / 3600}
	s.mu.Lock()
	first := s.pending.empty()
	s.pending.count(k, n)
	s.mu.Unlock()
	if first {
		s.rouse()
	}
}

// AddUsage implements audit.Store. Numbers that no run can reach are cut, as
// one that the database refuses would hold up all others.
func (s *Store) AddUsage(u audit.Usage) {
	if u.RunID == "" {
		return
	}
	u.ExecSeconds, u.CostUSD = finite(u.ExecSeconds), finite(u.CostUSD)
	u.ToolCalls, u.BytesWritten = min(max(u.ToolCalls, -maxAdd), maxAdd), min(max(u.BytesWritten, -maxAdd), maxAdd)
	s.mu.Lock()
	first := s.pending.empty()
	s.pending.use(u)
	s.mu.Unlock()
	if first {
		s.rouse()
	}
}

// maxAdd leaves room for millions of additions in an int64 and in a float64.
const maxAdd = 1 << 40

// finite takes what is no number for the most.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return maxAdd
	}
	return min(max(x, -maxAdd), maxAdd)
}

func (s *Store) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Usage implements audit.Store.
func (s *Store) Usage(ctx context.Context, runID string) (audit.Usage, error) {
	s.commit.RLock()
	defer s.commit.RUnlock()
	u, err := s.storedUsage(ctx, runID)
	if err != nil {
		return u, s.fail("read usage", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range []*batch{&s.pending, &s.flushing} {
		if p, ok := b.usage[runID]; ok {
			u = sum(u, p)
		}
	}
	u.RunID = runID
	return u, nil
}

// Flush implements audit.Store.
func (s *Store) Flush(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case s.flushes <- answer:
	case <-ctx.Done():
		return s.fail("flush", context.Cause(ctx))
	case <-s.done:
		return s.fail("flush", ErrClosed)
	}
	select {
	case err := <-answer:
		return s.fail("flush", err)
	case <-ctx.Done():
		return s.fail("flush", context.Cause(ctx))
	}
}

// flush writes what is pending, or keeps it where that fails.
func (w *writer) flush() error {
	s := w.s
	s.mu.Lock()
	s.flushing, s.pending = s.pending, batch{}
	b := s.flushing
	s.mu.Unlock()
	if b.empty() {
		return nil
	}
	s.commit.Lock()
	defer s.commit.Unlock()
	err := w.relaxed(func(tx *tx) error { return tx.add(b) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		for k, n := range b.counts {
			s.pending.count(k, n)
		}
		for _, u := range b.usage {
			s.pending.use(u)
		}
	}
	s.flushing = batch{}
	return err
}

func (tx *tx) add(b batch) error {
	for k, n := range b.counts {
		c := audit.ValidCounter(k.Counter)
		hour := time.Unix(k.hour*3600, 0).UTC().Format(hourFormat)
		err := tx.exec(tx.ctx, `INSERT INTO call_counters (run_id, tool, tier, outcome, hour, n) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET n = n + excluded.n`, c.RunID, c.Tool, c.Tier, c.Outcome, hour, n)
		if err != nil {
			return err
		}
	}
	for _, u := range b.usage {
		err := tx.exec(tx.ctx, `INSERT INTO run_usage (run_id, tool_calls, exec_seconds, bytes_written, cost_usd) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET tool_calls = tool_calls + excluded.tool_calls, exec_seconds = exec_seconds + excluded.exec_seconds,
				bytes_written = bytes_written + excluded.bytes_written, cost_usd = cost_usd + excluded.cost_usd`,
			u.RunID, u.ToolCalls, u.ExecSeconds, u.BytesWritten, u.CostUSD)
		if err != nil {
			return err
		}
	}
	return nil
}

// hourFormat is the beginning of audit.TimeFormat.
const hourFormat = "2006-01-02T15"
