// Package caps counts what a run uses and refuses the call that would
// exceed a cap: tool calls, execution time, bytes written and cost.
//
// It guarantees: a call is checked before it is counted, in all four
// dimensions at once, under one lock; exactly the limit is the last that
// passes; a refused call is counted in none; any number of callers at once
// admit exactly the limit; a cap of zero or less refuses; nothing overflows;
// a logical call that two doors saw is counted once.
//
// What it does not stop: a call that uses more than it asked for. Settle
// records the true amount, which may lie above the cap, and the next call is
// refused; holding one call to Remaining while it runs is the runtime's
// work (the wall clock is looked at between calls here, and by the runtime
// during one). Nor does it persist: the owner stores Usage and gives it back
// by Restore. Two processes that count the same run do not see each other
// but through that store.
package caps

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"math"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

const (
	shards = 64
	// doors is how often one key may be seen as the same unsettled call:
	// once at each kind of door. Without it a client that repeats one ID
	// for ever would be counted once for ever.
	doors         = 4
	defaultDedupe = 1024
)

// Config is what a Meter is made from.
type Config struct {
	// Defaults are the caps that the owner configured. They are validated
	// here so that a bad one is an error at the start (Limits of a run may
	// be narrower).
	Defaults Limits
	// Dedupe is how many call keys are remembered for each run; 0 is 1024.
	Dedupe int
}

// Meter counts the use of all runs of one process. It is safe for use by
// many goroutines.
type Meter struct {
	dedupe   int
	defaults Limits
	seed     maphash.Seed
	shards   [shards]shard
}

type shard struct {
	mu   sync.Mutex
	runs map[string]*run
}

type run struct {
	used amounts
	// byKey and order are the remembered calls, the oldest at the back;
	// both are made with the first key.
	byKey map[string]*list.Element
	order *list.List
}

// entry is the charge of one logical call, guarded by its shard's mutex.
type entry struct {
	key     string
	charged amounts
	settled bool
	seen    int
}

// Reservation is the claim that Reserve granted; Settle corrects it. The
// zero value settles nothing.
type Reservation struct {
	runID string
	run   *run
	entry *entry
	added amounts
}

// Added is what this reservation added to the run's usage: for the first
// sight of a call all that it wants, for another door's only what is beyond.
// An owner that stores usage call by call stores this.
func (r Reservation) Added() Usage { return usageOf(r.added) }

// New errs on defaults that are zero or negative and on a negative Dedupe.
func New(c Config) (*Meter, error) {
	if err := c.Defaults.Validate(); err != nil {
		return nil, err
	}
	if c.Dedupe < 0 {
		return nil, fmt.Errorf("caps: dedupe %d (want 0 for %d, or more)", c.Dedupe, defaultDedupe)
	}
	if c.Dedupe == 0 {
		c.Dedupe = defaultDedupe
	}
	m := &Meter{dedupe: c.Dedupe, defaults: c.Defaults, seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].runs = map[string]*run{}
	}
	return m, nil
}

// Defaults are the configured caps.
func (m *Meter) Defaults() Limits { return m.defaults }

// Reserve counts a call against the limits of its run, or says which caps
// refuse it. A call whose key is known and not yet settled is the same
// logical call: it is counted for what it asks beyond the first sight only.
func (m *Meter) Reserve(runID string, limits Limits, want Want) (Reservation, *Exceeded) {
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.runs[runID]
	if r == nil {
		r = &run{}
	}
	e := r.known(want.Key)
	ask := want.amounts()
	if e != nil {
		ask = beyond(ask, e.charged)
	}
	if x := check(r.used, limits, ask); x != nil {
		return Reservation{}, x
	}
	s.runs[runID] = r
	if e == nil {
		e = &entry{key: want.Key}
		r.remember(e, m.dedupe)
	}
	e.seen++
	e.charged = plus(e.charged, ask)
	r.used = plus(r.used, ask)
	return Reservation{runID: runID, run: r, entry: e, added: ask}, nil
}

// Check says which caps would refuse a call of the run now, and counts
// nothing. An empty run ID is a run that has used nothing.
func (m *Meter) Check(runID string, limits Limits, want Want) *Exceeded {
	if runID == "" {
		return check(amounts{}, limits, want.amounts())
	}
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	var used amounts
	ask := want.amounts()
	if r := s.runs[runID]; r != nil {
		used = r.used
		if e := r.known(want.Key); e != nil {
			ask = beyond(ask, e.charged)
		}
	}
	return check(used, limits, ask)
}

// Reserved finds the reservation of a call by its key, for callers that
// learn its true use where they no longer hold the reservation.
func (m *Meter) Reserved(runID, key string) (Reservation, bool) {
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runID]; r != nil && key != "" {
		if el := r.byKey[key]; el != nil {
			return Reservation{runID: runID, run: r, entry: el.Value.(*entry)}, true
		}
	}
	return Reservation{}, false
}

// Settle replaces what was reserved by what was used. The true amount is
// recorded even above the cap. A second door that settles the same call can
// raise an amount and never lower it. A use that is negative or no number is
// an error, and the reservation stands as it was.
func (m *Meter) Settle(res Reservation, actual cordon.Usage) error {
	a, err := actualAmounts(actual)
	if err != nil {
		return err
	}
	if res.entry == nil {
		return nil
	}
	s := m.shard(res.runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, e := res.run, res.entry
	if s.runs[res.runID] != r {
		return nil // forgotten since: a new run of that name owes nothing to it
	}
	for d := range a {
		if e.settled {
			a[d] = max(a[d], e.charged[d])
		}
		r.used[d] = max(0, add(r.used[d], a[d]-e.charged[d]))
	}
	e.charged, e.settled = a, true
	return nil
}

// Charge adds what a call uses while it is going on, over the cap too, and
// says which caps the run is past now. It counts no call. A use that is
// negative or no number is an error and adds nothing.
func (m *Meter) Charge(runID string, limits Limits, u cordon.Usage) (*Exceeded, error) {
	a, err := actualAmounts(u)
	if err != nil {
		return nil, err
	}
	a[ToolCalls] = 0
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil {
		r = &run{}
		s.runs[runID] = r
	}
	r.used = plus(r.used, a)
	return check(r.used, limits, amounts{}), nil
}

// Usage is what the run has used, reservations included; zero for a run that
// was never counted.
func (m *Meter) Usage(runID string) Usage {
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[runID]; r != nil {
		return usageOf(r.used)
	}
	return Usage{}
}

// Remaining is what the run may still use; a runtime bounds one call by it.
// No field is below zero.
func (m *Meter) Remaining(runID string, limits Limits) Usage {
	used := m.Usage(runID).amounts()
	left := limits.amounts()
	for d := range left {
		left[d] = max(0, max(0, left[d])-used[d])
	}
	return usageOf(left)
}

// Restore gives back what a run had used before a restart. It raises each
// count to at least that and never lowers one, so that restoring twice, or
// after calls were counted, frees nothing. Negative amounts are an error.
func (m *Meter) Restore(runID string, u Usage) error {
	a := u.amounts()
	for d, n := range a {
		if n < 0 {
			return fmt.Errorf("caps: restored %s %d (want 0 or more)", Dimension(d), n)
		}
	}
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil {
		r = &run{}
		s.runs[runID] = r
	}
	for d := range a {
		r.used[d] = max(r.used[d], a[d])
	}
	return nil
}

// Forget drops a run that has ended. If it is seen again it starts from
// nothing, so the owner stores its Usage first.
func (m *Meter) Forget(runID string) {
	s := m.shard(runID)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, runID)
}

// Runs is how many runs are held in memory.
func (m *Meter) Runs() int {
	n := 0
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		n += len(s.runs)
		s.mu.Unlock()
	}
	return n
}

func (m *Meter) shard(runID string) *shard {
	return &m.shards[maphash.String(m.seed, runID)%shards]
}

// known is the unsettled call of that key, or nil: a settled call is over,
// and the same key after it is another call.
func (r *run) known(key string) *entry {
	el := r.byKey[key]
	if key == "" || el == nil {
		return nil
	}
	e := el.Value.(*entry)
	if e.settled || e.seen >= doors {
		return nil
	}
	return e
}

func (r *run) remember(e *entry, most int) {
	if e.key == "" {
		return
	}
	if r.order == nil {
		r.order, r.byKey = list.New(), map[string]*list.Element{}
	}
	if old := r.byKey[e.key]; old != nil {
		r.order.Remove(old)
	}
	r.byKey[e.key] = r.order.PushFront(e)
	if r.order.Len() > most {
		oldest := r.order.Back()
		r.order.Remove(oldest)
		delete(r.byKey, oldest.Value.(*entry).key)
	}
}

// check refuses what would exceed; it compares by subtraction, as a sum
// could overflow.
func check(used amounts, limits Limits, ask amounts) *Exceeded {
	var x *Exceeded
	for d, limit := range limits.amounts() {
		if limit > 0 && ask[d] >= 0 && ask[d] <= limit-used[d] {
			continue
		}
		if x == nil {
			x = &Exceeded{}
		}
		x.Over = append(x.Over, Over{Dimension: Dimension(d), Limit: limit, Used: used[d], Want: ask[d]})
	}
	return x
}

// beyond is what ask asks for above what is charged already. A negative ask
// stays negative, to be refused.
func beyond(ask, charged amounts) amounts {
	for d := range ask {
		if ask[d] >= 0 {
			ask[d] = max(0, ask[d]-charged[d])
		}
	}
	return ask
}

func plus(a, b amounts) amounts {
	for d := range a {
		a[d] = add(a[d], b[d])
	}
	return a
}

// add stays at the top instead of wrapping. a is never negative.
func add(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
