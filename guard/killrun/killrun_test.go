package killrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// memory is a store as two processes would share it: what it holds outlives
// every Switch. failRead and failWrite make it fail.
type memory struct {
	mu                  sync.Mutex
	generation          uint64
	kills               map[string]Record
	released            []string
	failRead, failWrite error
	// during runs inside Active, after the kills were read.
	during func()
	reads  int
}

func newMemory() *memory { return &memory{kills: map[string]Record{}} }

func (m *memory) Kill(ctx context.Context, r Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failWrite != nil {
		return m.failWrite
	}
	m.generation++
	m.kills[r.RunID] = r
	return nil
}

func (m *memory) Active(context.Context) ([]Record, error) {
	m.mu.Lock()
	m.reads++
	records, err, during := slices.Collect(maps.Values(m.kills)), m.failRead, m.during
	m.during = nil
	m.mu.Unlock()
	if during != nil {
		during()
	}
	return records, err
}

func (m *memory) Generation() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation, m.failRead
}

func (m *memory) Release(_ context.Context, runID, by, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failWrite != nil {
		return m.failWrite
	}
	m.generation++
	delete(m.kills, runID)
	m.released = append(m.released, runID+" by "+by+": "+why)
	return nil
}

func (m *memory) fail(read, write error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failRead, m.failWrite = read, write
}

func newSwitch(t testing.TB, store Store) *Switch {
	t.Helper()
	s, err := New(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustTrip(t testing.TB, s *Switch, r Record) {
	t.Helper()
	if err := s.Trip(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func killed(t testing.TB, s *Switch, runID, tenant, session string) bool {
	t.Helper()
	_, yes, err := s.Killed(runID, tenant, session)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

func TestNewRefusesWhatCannotHold(t *testing.T) {
	rows := []struct {
		name   string
		config Config
		ok     bool
	}{
		{"the defaults", Config{Store: newMemory()}, true},
		{"the slowest poll", Config{Store: newMemory(), Poll: 100 * time.Millisecond}, true},
		{"no store", Config{}, false},
		{"a poll that cannot hold 100 ms", Config{Store: newMemory(), Poll: 101 * time.Millisecond}, false},
		{"a negative poll", Config{Store: newMemory(), Poll: -1}, false},
		{"a negative timeout", Config{Store: newMemory(), Timeout: -1}, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if _, err := New(row.config); (err == nil) != row.ok {
				t.Errorf("err = %v, want ok %v", err, row.ok)
			}
		})
	}
}

func TestWhichCallsAKillRefuses(t *testing.T) {
	s := newSwitch(t, newMemory())
	mustTrip(t, s, Record{RunID: "r1", Tenant: "acme", Session: "s1", Rule: "destructive.disk"})
	mustTrip(t, s, Record{RunID: "r2", Tenant: "acme"})
	rows := []struct {
		name                   string
		runID, tenant, session string
		want                   bool
	}{
		{"the run itself", "r1", "acme", "s1", true},
		{"the run without its session", "r1", "acme", "", true},
		{"the run under another tenant's name", "r1", "other", "", true},
		{"W11 another run of the same session", "r9", "acme", "s1", true},
		{"a call without a run ID in the same session", "", "acme", "s1", true},
		{"the same session name of another tenant", "r9", "other", "s1", false},
		{"another session", "r9", "acme", "s2", false},
		{"another run without a session", "r9", "acme", "", false},
		{"a run without a session, when a kill without one is known", "r9", "acme", "", false},
		{"a call without a run ID or session", "", "", "", false},
		{"a run ID that starts the same", "r11", "acme", "", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			if got := killed(t, s, row.runID, row.tenant, row.session); got != row.want {
				t.Errorf("killed %v, want %v", got, row.want)
			}
		})
	}
	r, _, _ := s.Killed("r9", "acme", "s1")
	if r.RunID != "r1" || r.Rule != "destructive.disk" {
		t.Errorf("the record is %+v, want that of r1", r)
	}
}

func TestW12ARestartKeepsTheKill(t *testing.T) {
	store := newMemory()
	mustTrip(t, newSwitch(t, store), Record{RunID: "r", Tenant: "acme", Session: "s"})
	again := newSwitch(t, store)
	if !killed(t, again, "r", "acme", "") || !killed(t, again, "new", "acme", "s") {
		t.Error("the kill is forgotten after a restart")
	}
}

func TestAnotherProcessKillsAndReleases(t *testing.T) {
	store := newMemory()
	a, b := newSwitch(t, store), newSwitch(t, store)
	if killed(t, b, "r", "", "") {
		t.Fatal("killed before it was")
	}
	mustTrip(t, a, Record{RunID: "r"})
	if !killed(t, b, "r", "", "") {
		t.Error("the other process does not see the kill")
	}
	if err := b.Release(context.Background(), "r", "ops", "false alarm"); err != nil {
		t.Fatal(err)
	}
	if killed(t, a, "r", "", "") || killed(t, b, "r", "", "") {
		t.Error("killed after the release")
	}
}

func TestTheStoreIsReadOnlyWhenItChanged(t *testing.T) {
	store := newMemory()
	s := newSwitch(t, store)
	for range 10 {
		killed(t, s, "r", "", "")
	}
	if store.reads != 1 {
		t.Errorf("read %d times, want once", store.reads)
	}
}

func TestAStoreThatCannotBeReadKillsEveryRun(t *testing.T) {
	broken := errors.New("disk is gone")
	t.Run("from the start", func(t *testing.T) {
		store := newMemory()
		store.fail(broken, nil)
		_, yes, err := newSwitch(t, store).Killed("r", "", "")
		if !yes || !errors.Is(err, broken) {
			t.Errorf("killed %v, %v; want true with the store's error", yes, err)
		}
	})
	t.Run("later, and it recovers", func(t *testing.T) {
		store := newMemory()
		s := newSwitch(t, store)
		mustTrip(t, s, Record{RunID: "dead", Rule: "x"})
		killed(t, s, "r", "", "")
		store.fail(broken, nil)
		if _, yes, err := s.Killed("r", "", ""); !yes || !errors.Is(err, broken) {
			t.Errorf("killed %v, %v; want true with the store's error", yes, err)
		}
		if r, yes, err := s.Killed("dead", "", ""); !yes || err != nil || r.Rule != "x" {
			t.Errorf("the known kill: %+v %v %v, want its record without an error", r, yes, err)
		}
		store.fail(nil, nil)
		if killed(t, s, "r", "", "") {
			t.Error("killed after the store came back")
		}
	})
}

func TestAKillThatCannotBeStoredHoldsInMemory(t *testing.T) {
	broken := errors.New("disk full")
	store := newMemory()
	s := newSwitch(t, store)
	store.fail(nil, broken)
	if err := s.Trip(context.Background(), Record{RunID: "r", Session: "s"}); !errors.Is(err, broken) {
		t.Fatalf("Trip: %v, want the store's error", err)
	}
	if !killed(t, s, "r", "", "") || !killed(t, s, "other", "", "s") {
		t.Error("the run lives in memory")
	}
	// A change by another process makes it read the store, which does not
	// know the kill.
	store.fail(nil, nil)
	mustTrip(t, newSwitch(t, store), Record{RunID: "unrelated"})
	if !killed(t, s, "r", "", "") {
		t.Error("reading the store again brought the run back")
	}
	if err := s.Retry(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !killed(t, newSwitch(t, store), "r", "", "") {
		t.Error("Retry did not store the kill")
	}
}

func TestAKillIsStoredThoughTheCallerIsGone(t *testing.T) {
	store := newMemory()
	s := newSwitch(t, store)
	ctx, stop := s.Attach(context.Background(), cordon.Run{ID: "r"})
	defer stop()
	// The kill cancels ctx itself before it is stored.
	if err := s.Trip(ctx, Record{RunID: "r"}); err != nil {
		t.Fatal(err)
	}
	if !killed(t, newSwitch(t, store), "r", "", "") {
		t.Error("the kill is not in the store")
	}
}

func TestAKillWithoutARunIDIsAnError(t *testing.T) {
	s := newSwitch(t, newMemory())
	if err := s.Trip(context.Background(), Record{Session: "s"}); err == nil {
		t.Error("Trip took a record without a run ID")
	}
}

func TestReleaseWantsWhoAndWhy(t *testing.T) {
	store := newMemory()
	s := newSwitch(t, store)
	mustTrip(t, s, Record{RunID: "r", Session: "s"})
	mustTrip(t, s, Record{RunID: "twin", Session: "s"})
	for _, row := range [][2]string{{"", "why"}, {"ops", ""}, {"ops", " \t"}, {" ", "why"}} {
		if err := s.Release(context.Background(), "r", row[0], row[1]); err == nil {
			t.Errorf("released by %q because %q", row[0], row[1])
		}
	}
	if err := s.Release(context.Background(), "unknown", "ops", "why"); !errors.Is(err, ErrNotKilled) {
		t.Errorf("release of a run that is not killed: %v, want ErrNotKilled", err)
	}
	broken := errors.New("disk full")
	store.fail(nil, broken)
	if err := s.Release(context.Background(), "r", "ops", "why"); !errors.Is(err, broken) {
		t.Errorf("release that cannot be stored: %v", err)
	}
	store.fail(nil, nil)
	if !killed(t, s, "r", "", "") {
		t.Error("released without who, why and store")
	}
	if err := s.Release(context.Background(), "r", "ops", "false alarm"); err != nil {
		t.Fatal(err)
	}
	if killed(t, s, "r", "", "other") {
		t.Error("killed after the release")
	}
	if !killed(t, s, "r", "", "s") {
		t.Error("the session's other killed run no longer holds the session")
	}
}

func TestAReadingThatBeganBeforeAKillDoesNotUndoIt(t *testing.T) {
	store := newMemory()
	s := newSwitch(t, store)
	store.fail(nil, errors.New("disk full"))
	store.during = func() {
		if err := s.Trip(context.Background(), Record{RunID: "r"}); err == nil {
			t.Error("the store took the kill")
		}
	}
	killed(t, s, "other", "", "") // reads, and the kill falls into it
	if !killed(t, s, "r", "", "") {
		t.Error("the reading undid the kill")
	}
}

func TestAttachIsCancelledByAKill(t *testing.T) {
	kills := []struct {
		name string
		kill Record
	}{
		{"of the run", Record{RunID: "r"}},
		{"of its session", Record{RunID: "other", Tenant: "acme", Session: "s"}},
	}
	run := cordon.Run{ID: "r", Tenant: "acme", Session: "s"}
	for _, row := range kills {
		t.Run("by this process "+row.name, func(t *testing.T) {
			s := newSwitch(t, newMemory())
			ctx, stop := s.Attach(context.Background(), run)
			defer stop()
			mustTrip(t, s, row.kill)
			if err := context.Cause(ctx); !errors.Is(err, cordon.ErrKilled) {
				t.Errorf("cause %v, want ErrKilled", err)
			}
		})
		t.Run("that stood before "+row.name, func(t *testing.T) {
			store := newMemory()
			mustTrip(t, newSwitch(t, store), row.kill)
			ctx, stop := newSwitch(t, store).Attach(context.Background(), run)
			defer stop()
			if err := context.Cause(ctx); !errors.Is(err, cordon.ErrKilled) {
				t.Errorf("cause %v, want ErrKilled", err)
			}
		})
		t.Run("within 100 ms by another process "+row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemory()
				s, other := newSwitch(t, store), newSwitch(t, store)
				ctx, stop := s.Attach(context.Background(), run)
				defer stop()
				began := time.Now() // the bubble's clock
				mustTrip(t, other, row.kill)
				<-ctx.Done()
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("took %v", took)
				}
				if err := context.Cause(ctx); !errors.Is(err, cordon.ErrKilled) {
					t.Errorf("cause %v, want ErrKilled", err)
				}
			})
		})
	}
}

func TestAttachOutlivesAStoreThatFailsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		s := newSwitch(t, store)
		ctx, stop := s.Attach(context.Background(), cordon.Run{ID: "r"})
		defer stop()
		store.fail(errors.New("busy"), nil)
		time.Sleep(time.Second)
		if ctx.Err() != nil {
			t.Fatal("cancelled by a store that cannot be read")
		}
		store.fail(nil, nil)
		mustTrip(t, newSwitch(t, store), Record{RunID: "r"})
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, cordon.ErrKilled) {
			t.Errorf("cause %v, want ErrKilled", err)
		}
	})
}

// A bubble ends only when its goroutines have: a poller that outlived its
// last context would fail the test.
func TestStopWaitsForThePollerAndEndsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitch(t, newMemory())
		first, stopFirst := s.Attach(context.Background(), cordon.Run{ID: "a"})
		second, stopSecond := s.Attach(context.Background(), cordon.Run{ID: "b"})
		stopFirst()
		stopFirst()
		if first.Err() == nil || second.Err() != nil {
			t.Error("stop must end its own context and no other")
		}
		mustTrip(t, s, Record{RunID: "b"})
		if !errors.Is(context.Cause(second), cordon.ErrKilled) {
			t.Error("the other context is not watched any more")
		}
		stopSecond()
		if s.poller != nil || len(s.attached) != 0 {
			t.Error("something is left after the last stop")
		}
		third, stopThird := s.Attach(context.Background(), cordon.Run{ID: "c"})
		mustTrip(t, s, Record{RunID: "c"})
		<-third.Done()
		stopThird()
	})
}

func TestAnotherRunsKillLeavesAContextAlone(t *testing.T) {
	s := newSwitch(t, newMemory())
	parent, cancel := context.WithCancelCause(context.Background())
	ctx, stop := s.Attach(parent, cordon.Run{ID: "r", Tenant: "acme", Session: "s"})
	defer stop()
	mustTrip(t, s, Record{RunID: "x", Tenant: "other", Session: "s"})
	if ctx.Err() != nil {
		t.Error("cancelled by another tenant's kill")
	}
	own := errors.New("own reason")
	cancel(own)
	if !errors.Is(context.Cause(ctx), own) {
		t.Errorf("cause %v, want the parent's", context.Cause(ctx))
	}
}

func TestManyGoroutinesAgree(t *testing.T) {
	store := newMemory()
	a, b := newSwitch(t, store), newSwitch(t, store)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprint("r", i)
			for range 20 {
				ctx, stop := a.Attach(context.Background(), cordon.Run{ID: id})
				if err := b.Trip(context.Background(), Record{RunID: id}); err != nil {
					t.Error(err)
				}
				if _, yes, err := a.Killed(id, "", ""); !yes || err != nil {
					t.Errorf("%s lives after its kill was stored (%v)", id, err)
				}
				<-ctx.Done()
				stop()
				if err := a.Release(context.Background(), id, "ops", "test"); err != nil {
					t.Error(err)
				}
				if _, yes, err := b.Killed(id, "", ""); yes || err != nil {
					t.Errorf("%s is dead after its release was stored (%v)", id, err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkKilled(b *testing.B) {
	store := newMemory()
	s := newSwitch(b, store)
	for i := range 100 {
		mustTrip(b, s, Record{RunID: fmt.Sprint("dead", i), Tenant: "acme", Session: fmt.Sprint(i)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, yes, _ := s.Killed("alive", "acme", "session"); yes {
			b.Fatal("killed")
		}
	}
}
