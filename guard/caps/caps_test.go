package caps

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

var wide = Limits{ToolCalls: 1000, Exec: time.Hour, BytesWritten: 1 << 40, Cost: 1e12}

func newMeter(t testing.TB) *Meter {
	t.Helper()
	m, err := New(Config{Defaults: wide})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestExactlyTheLimitIsTheLastThatPasses(t *testing.T) {
	rows := []struct {
		name   string
		limits Limits
		want   Want
		passes int
		refuse Dimension
	}{
		{"tool calls", Limits{3, time.Hour, 1000, 1e9}, Want{}, 3, ToolCalls},
		{"execution time in whole parts", Limits{100, 10 * time.Second, 1000, 1e9}, Want{Exec: 5 * time.Second}, 2, ExecSeconds},
		{"execution time with a rest", Limits{100, 11 * time.Second, 1000, 1e9}, Want{Exec: 5 * time.Second}, 2, ExecSeconds},
		{"bytes written", Limits{100, time.Hour, 30, 1e9}, Want{Bytes: 10}, 3, BytesWritten},
		{"one byte too many at once", Limits{100, time.Hour, 30, 1e9}, Want{Bytes: 31}, 0, BytesWritten},
		{"cost in tenths, which floats do not add up", Limits{100, time.Hour, 30, mustUSD(t, 0.3)}, Want{Cost: mustUSD(t, 0.1)}, 3, CostUSD},
		{"a want near the largest number", Limits{100, time.Hour, math.MaxInt64, 1e9}, Want{Bytes: math.MaxInt64 - 1}, 1, BytesWritten},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			m := newMeter(t)
			for i := range row.passes {
				if _, x := m.Reserve("r", row.limits, row.want); x != nil {
					t.Fatalf("call %d was refused: %+v", i+1, x.Over)
				}
			}
			before := m.Usage("r")
			_, x := m.Reserve("r", row.limits, row.want)
			if x == nil || len(x.Over) != 1 || x.Over[0].Dimension != row.refuse {
				t.Fatalf("call %d: got %+v, want refused by %s alone", row.passes+1, x, row.refuse)
			}
			if diff := cmp.Diff(before, m.Usage("r")); diff != "" {
				t.Errorf("the refused call was counted:\n%s", diff)
			}
		})
	}
}

func mustUSD(t *testing.T, usd float64) Micros {
	t.Helper()
	m, err := MicrosFromUSD(usd)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCheckAnswersAsReserveWouldAndCountsNothing(t *testing.T) {
	l := Limits{2, time.Hour, 100, 1}
	m := newMeter(t)
	m.Reserve("r", l, Want{Key: "1", Bytes: 60})
	before := m.Usage("r")
	rows := []struct {
		name, run string
		want      Want
		ok        bool
	}{
		{"the rest of the bytes", "r", Want{Bytes: 40}, true},
		{"one byte more than the rest", "r", Want{Bytes: 41}, false},
		{"the same call at another door, for all the bytes", "r", Want{Key: "1", Bytes: 100}, true},
		{"the same call beyond", "r", Want{Key: "1", Bytes: 101}, false},
		{"a run of its own", "", Want{Bytes: 100}, true},
		{"a run of its own beyond", "", Want{Bytes: 101}, false},
		{"a run that was not seen", "new", Want{Bytes: 100}, true},
		{"a negative want", "r", Want{Bytes: -1}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if x := m.Check(row.run, l, row.want); (x == nil) != row.ok {
				t.Errorf("%+v, want admitted %v", x, row.ok)
			}
		})
	}
	if diff := cmp.Diff(before, m.Usage("r")); diff != "" || m.Runs() != 1 {
		t.Errorf("Check counted; %d runs\n%s", m.Runs(), diff)
	}
}

func TestARefusalNamesEveryCapThatItWouldExceed(t *testing.T) {
	m := newMeter(t)
	_, x := m.Reserve("r", Limits{1, time.Second, 1, 1}, Want{Exec: time.Minute, Bytes: 2, Cost: 2})
	if x == nil {
		t.Fatal("the call was admitted")
	}
	var rules []string
	for _, f := range x.Findings() {
		rules = append(rules, f.Rule)
		if f.Outcome != cordon.Blocked || f.Kill || f.Violation != cordon.CapExceeded || f.Phase != cordon.PhaseTripwire || f.Detail == "" {
			t.Errorf("finding %+v, want a blocked cap_exceeded of phase C without a kill", f)
		}
	}
	if diff := cmp.Diff([]string{"caps.exec_seconds", "caps.bytes_written", "caps.cost_usd"}, rules); diff != "" {
		t.Error(diff)
	}
}

func TestC3ACapOfZeroOrLessNeverMeansUnlimited(t *testing.T) {
	good := Limits{1, 1, 1, 1}
	for d := range dimensions {
		for _, bad := range []int64{0, -1, math.MinInt64} {
			l := good
			switch d {
			case ToolCalls:
				l.ToolCalls = bad
			case ExecSeconds:
				l.Exec = time.Duration(bad)
			case BytesWritten:
				l.BytesWritten = bad
			case CostUSD:
				l.Cost = Micros(bad)
			}
			t.Run(fmt.Sprintf("%s is %d", d, bad), func(t *testing.T) {
				if _, err := New(Config{Defaults: l}); err == nil {
					t.Error("New took it")
				}
				m := newMeter(t)
				if _, x := m.Reserve("r", l, Want{}); x == nil || x.Over[0].Dimension != d {
					t.Errorf("Reserve: got %+v, want refused by %s", x, d)
				}
				if x := m.Check("", l, Want{}); x == nil {
					t.Error("a call of a run of its own was admitted")
				}
				if left := m.Remaining("r", l).amounts()[d]; left != 0 {
					t.Errorf("Remaining is %d, want 0", left)
				}
			})
		}
	}
	if x := newMeter(t).Check("", Limits{}, Want{}); x == nil {
		t.Error("the zero Limits admitted a call")
	}
}

func TestNewLimitsRefusesWhatCannotBeCounted(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	rows := []struct {
		name  string
		calls int64
		secs  float64
		bytes int64
		usd   float64
		ok    bool
	}{
		{"the documented defaults", 200, 600, 104857600, 5, true},
		{"a fraction of a second and of a cent", 1, 0.5, 1, 0.001, true},
		{"no seconds", 1, 0, 1, 1, false},
		{"less than a nanosecond", 1, 1e-10, 1, 1, false},
		{"negative seconds", 1, -1, 1, 1, false},
		{"seconds that are no number", 1, nan, 1, 1, false},
		{"endless seconds", 1, inf, 1, 1, false},
		{"seconds beyond the clock", 1, 1e300, 1, 1, false},
		{"no dollars", 1, 1, 1, 0, false},
		{"negative dollars", 1, 1, 1, -0.01, false},
		{"dollars that are no number", 1, 1, 1, nan, false},
		{"endless dollars", 1, 1, 1, inf, false},
		{"no calls", 0, 1, 1, 1, false},
		{"negative bytes", 1, 1, -1, 1, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			_, err := NewLimits(row.calls, row.secs, row.bytes, row.usd)
			if (err == nil) != row.ok {
				t.Errorf("err = %v, want ok %v", err, row.ok)
			}
		})
	}
}

func TestATinyCostIsNotFree(t *testing.T) {
	if c := mustUSD(t, 1e-9); c != 1 {
		t.Errorf("a billionth of a dollar is %d micros, want 1", c)
	}
	if c := mustUSD(t, 0); c != 0 {
		t.Errorf("nothing is %d micros, want 0", c)
	}
}

func TestAParallelRaceAdmitsExactlyTheLimit(t *testing.T) {
	const callers, each = 8, 50
	m := newMeter(t)
	limits := Limits{ToolCalls: 137, Exec: time.Hour, BytesWritten: 100 * 1000, Cost: 1e9}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if _, x := m.Reserve("r", limits, Want{Bytes: 1000}); x == nil {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != 100 {
		t.Errorf("admitted %d, want 100 (the bytes cap)", n)
	}
	want := Usage{ToolCalls: 100, BytesWritten: 100 * 1000}
	if diff := cmp.Diff(want, m.Usage("r")); diff != "" {
		t.Error(diff)
	}
}

func TestNegativeWantsAreRefusedAndFreeNothing(t *testing.T) {
	for _, w := range []Want{{Exec: -1}, {Bytes: math.MinInt64}, {Cost: -5}, {Key: "k", Bytes: -1}} {
		m := newMeter(t)
		if _, x := m.Reserve("r", wide, w); x == nil {
			t.Errorf("%+v was admitted", w)
		}
		if diff := cmp.Diff(Usage{}, m.Usage("r")); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSettleRecordsTheTrueAmount(t *testing.T) {
	limits := Limits{ToolCalls: 10, Exec: 10 * time.Second, BytesWritten: 100, Cost: 1e6}
	rows := []struct {
		name   string
		want   Want
		actual cordon.Usage
		used   Usage
		next   bool
	}{
		{"less than reserved gives the rest back", Want{Bytes: 100}, cordon.Usage{BytesWritten: 10}, Usage{ToolCalls: 1, BytesWritten: 10}, true},
		{"exactly the cap lets a call pass that asks for nothing", Want{Bytes: 50}, cordon.Usage{BytesWritten: 100}, Usage{ToolCalls: 1, BytesWritten: 100}, true},
		{"above the cap is recorded, and the next is refused", Want{Bytes: 50}, cordon.Usage{BytesWritten: 101}, Usage{ToolCalls: 1, BytesWritten: 101}, false},
		{"time above the cap", Want{Exec: time.Second}, cordon.Usage{Exec: time.Minute}, Usage{ToolCalls: 1, Exec: time.Minute}, false},
		{"money above the cap", Want{}, cordon.Usage{CostUSD: 1.000001}, Usage{ToolCalls: 1, Cost: 1000001}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			m := newMeter(t)
			res, x := m.Reserve("r", limits, row.want)
			if x != nil {
				t.Fatal(x.Over)
			}
			if err := m.Settle(res, row.actual); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.used, m.Usage("r")); diff != "" {
				t.Error(diff)
			}
			if _, x := m.Reserve("r", limits, Want{}); (x == nil) != row.next {
				t.Errorf("the next call: %+v, want admitted %v", x, row.next)
			}
		})
	}
}

func TestSettleWithNonsenseLeavesTheReservation(t *testing.T) {
	for _, bad := range []cordon.Usage{{Exec: -1}, {BytesWritten: -1}, {CostUSD: -1}, {CostUSD: math.NaN()}, {CostUSD: math.Inf(1)}} {
		m := newMeter(t)
		res, _ := m.Reserve("r", wide, Want{Exec: 1, Bytes: 2, Cost: 3})
		if err := m.Settle(res, bad); err == nil {
			t.Errorf("Settle took %+v", bad)
		}
		if diff := cmp.Diff(Usage{1, 1, 2, 3}, m.Usage("r")); diff != "" {
			t.Error(diff)
		}
	}
}

func TestSettleNeverWraps(t *testing.T) {
	m := newMeter(t)
	for range 3 {
		res, _ := m.Reserve("r", Limits{10, time.Hour, math.MaxInt64, 1}, Want{})
		if err := m.Settle(res, cordon.Usage{BytesWritten: math.MaxInt64}); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Usage("r").BytesWritten; n != math.MaxInt64 {
		t.Errorf("bytes %d, want the largest number", n)
	}
}

func TestW9OneLogicalCallIsCountedOnceAtTwoDoors(t *testing.T) {
	m := newMeter(t)
	outer, _ := m.Reserve("r", wide, Want{Key: "call-1", Bytes: 10})
	inner, x := m.Reserve("r", wide, Want{Key: "call-1", Bytes: 30})
	if x != nil {
		t.Fatal(x.Over)
	}
	if diff := cmp.Diff(Usage{ToolCalls: 1, BytesWritten: 30}, m.Usage("r")); diff != "" {
		t.Fatalf("after both doors reserved:\n%s", diff)
	}
	if diff := cmp.Diff([]Usage{{ToolCalls: 1, BytesWritten: 10}, {BytesWritten: 20}}, []Usage{outer.Added(), inner.Added()}); diff != "" {
		t.Errorf("what each door added:\n%s", diff)
	}
	for _, s := range []struct {
		res    Reservation
		actual cordon.Usage
	}{
		{inner, cordon.Usage{Exec: time.Second, BytesWritten: 20}},
		{outer, cordon.Usage{Exec: 2 * time.Second}},
		{outer, cordon.Usage{Exec: 2 * time.Second}},
	} {
		if err := m.Settle(s.res, s.actual); err != nil {
			t.Fatal(err)
		}
	}
	want := Usage{ToolCalls: 1, Exec: 2 * time.Second, BytesWritten: 20}
	if diff := cmp.Diff(want, m.Usage("r")); diff != "" {
		t.Errorf("after both doors settled:\n%s", diff)
	}
}

func TestARepeatedKeyDoesNotMakeCallsFree(t *testing.T) {
	t.Run("after it was settled the key is another call", func(t *testing.T) {
		m := newMeter(t)
		for range 5 {
			res, _ := m.Reserve("r", wide, Want{Key: "1"})
			if err := m.Settle(res, cordon.Usage{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.Usage("r").ToolCalls; n != 5 {
			t.Errorf("counted %d, want 5", n)
		}
	})
	t.Run("unsettled it is the same call at four doors at most", func(t *testing.T) {
		m := newMeter(t)
		for range 3 * doors {
			m.Reserve("r", wide, Want{Key: "1"})
		}
		if n := m.Usage("r").ToolCalls; n != 3 {
			t.Errorf("counted %d, want 3", n)
		}
	})
	t.Run("two runs do not share a key", func(t *testing.T) {
		m := newMeter(t)
		m.Reserve("a", wide, Want{Key: "1"})
		m.Reserve("b", wide, Want{Key: "1"})
		if n := m.Usage("b").ToolCalls; n != 1 {
			t.Errorf("counted %d, want 1", n)
		}
	})
	t.Run("the second door is refused what exceeds, and the first stays counted", func(t *testing.T) {
		m := newMeter(t)
		l := Limits{1, time.Hour, 100, 1}
		m.Reserve("r", l, Want{Key: "1", Bytes: 60})
		if _, x := m.Reserve("r", l, Want{Key: "1", Bytes: 101}); x == nil {
			t.Error("admitted 101 bytes of 100")
		}
		if diff := cmp.Diff(Usage{ToolCalls: 1, BytesWritten: 60}, m.Usage("r")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRememberedKeysAreBounded(t *testing.T) {
	m, err := New(Config{Defaults: wide, Dedupe: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		m.Reserve("r", wide, Want{Key: fmt.Sprint(i)})
	}
	r := m.shard("r").runs["r"]
	if len(r.byKey) != 3 || r.order.Len() != 3 {
		t.Errorf("%d keys, %d entries, want 3", len(r.byKey), r.order.Len())
	}
	if _, ok := m.Reserved("r", "49"); !ok {
		t.Error("the newest key is not found")
	}
	if _, ok := m.Reserved("r", "0"); ok {
		t.Error("the oldest key is still found")
	}
	if _, ok := m.Reserved("r", ""); ok {
		t.Error("the empty key is found")
	}
}

func TestW12ARestartKeepsTheCount(t *testing.T) {
	limits := Limits{ToolCalls: 3, Exec: time.Hour, BytesWritten: 10, Cost: 10}
	before := newMeter(t)
	before.Reserve("r", limits, Want{Bytes: 4})
	before.Reserve("r", limits, Want{Bytes: 4})

	after := newMeter(t)
	if err := after.Restore("r", before.Usage("r")); err != nil {
		t.Fatal(err)
	}
	if _, x := after.Reserve("r", limits, Want{Bytes: 3}); x == nil {
		t.Error("bytes used before the restart were forgotten")
	}
	if _, x := after.Reserve("r", limits, Want{Bytes: 2}); x != nil {
		t.Error("the last call within the cap was refused", x.Over)
	}
	if err := after.Restore("r", before.Usage("r")); err != nil {
		t.Fatal(err)
	}
	if _, x := after.Reserve("r", limits, Want{}); x == nil {
		t.Error("a second Restore lowered the count")
	}
	if err := after.Restore("r", Usage{BytesWritten: -1}); err == nil {
		t.Error("Restore took a negative amount")
	}
}

func TestRunsThatAreNotSeenAgainLeaveNothing(t *testing.T) {
	m := newMeter(t)
	for range 100 {
		if x := m.Check("", wide, Want{Bytes: 1}); x != nil {
			t.Fatal(x.Over)
		}
	}
	for i := range 100 {
		m.Reserve(fmt.Sprint("refused", i), Limits{}, Want{})
	}
	if n := m.Runs(); n != 0 {
		t.Errorf("%d runs are held, want none", n)
	}
	res, _ := m.Reserve("r", wide, Want{Bytes: 50})
	m.Forget("r")
	m.Reserve("r", wide, Want{Bytes: 50})
	if err := m.Settle(res, cordon.Usage{}); err != nil {
		t.Fatal(err)
	}
	if n := m.Usage("r").BytesWritten; n != 50 {
		t.Errorf("a reservation of the forgotten run changed the new one to %d bytes, want 50", n)
	}
	if err := m.Settle(Reservation{}, cordon.Usage{BytesWritten: 1}); err != nil {
		t.Error("the zero Reservation:", err)
	}
}

func TestRemainingIsWhatARuntimeMayUse(t *testing.T) {
	m := newMeter(t)
	l := Limits{10, 10 * time.Second, 100, 50}
	res, _ := m.Reserve("r", l, Want{})
	if err := m.Settle(res, cordon.Usage{Exec: 4 * time.Second, BytesWritten: 150}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Usage{9, 6 * time.Second, 0, 50}, m.Remaining("r", l)); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkReserve(b *testing.B) {
	m := newMeter(b)
	l := Limits{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	b.Run("without a key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Reserve("run-1", l, Want{Bytes: 1})
		}
	})
	b.Run("run of its own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Check("", l, Want{Bytes: 1})
		}
	})
}
