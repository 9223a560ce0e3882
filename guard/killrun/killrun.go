// Package killrun is the switch that ends a run for good.
//
// It guarantees: a kill is in the store before Trip returns, or Trip returns
// the error, and in this process the run is dead either way; every later
// call of the run is refused, by whatever process asks, after whatever
// restart; a run of the same tenant and session is refused under any other
// ID; contexts attached to the run are cancelled with cordon.ErrKilled, also
// when another process killed it; only Release, with a reason, ends that. A
// store that cannot be read counts as a kill for every run.
//
// What it does not stop: work that ignores its context (ending processes is
// the runtime's duty), a run that comes back under another ID with no
// session or another one, and a store that lies. A run ID is one name across
// tenants: whoever kills it kills it for all. Attached contexts stay alive
// while the store cannot be read; new calls are refused then.
package killrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Record is one kill.
type Record struct {
	// RunID is the run that was killed; never empty.
	RunID string
	// Tenant and Session: other runs of the same tenant and session are
	// refused too; an empty session names no other run.
	Tenant, Session string
	// Rule and Detail say what tripped, as the finding did; CallID which
	// call it was.
	Rule, Detail, CallID string
	// By is "tripwire" or the operator who killed it.
	By string
	At time.Time
}

// Store keeps kills. Its methods are called from many goroutines.
type Store interface {
	// Kill stores the record durably before it returns. A run that is
	// already killed stays so, without an error.
	Kill(ctx context.Context, r Record) error
	// Active lists all kills that were not released.
	Active(ctx context.Context) ([]Record, error)
	// Generation is a number that differs after any change to what Active
	// answers, by whatever process. It is asked at every call: it must be
	// cheap and must not block.
	Generation() (uint64, error)
	// Release ends a kill and keeps by and why. A run that is not killed is
	// no error.
	Release(ctx context.Context, runID, by, why string) error
}

// Config is what a Switch is made from.
type Config struct {
	Store Store
	// Poll is how often the store is asked while contexts are attached; 0 is
	// 50 ms, and more than 100 ms is an error.
	Poll time.Duration
	// Timeout bounds one reading or writing of the store; 0 is 2 s.
	Timeout time.Duration
}

// ErrNotKilled is returned by Release for a run that is not killed.
var ErrNotKilled = errors.New("killrun: run is not killed")

const (
	defaultPoll    = 50 * time.Millisecond
	maxPoll        = 100 * time.Millisecond
	defaultTimeout = 2 * time.Second
)

// Switch answers whether a run is killed. It is safe for many goroutines.
type Switch struct {
	store   Store
	poll    time.Duration
	timeout time.Duration

	// snapshot is what Killed reads without a lock.
	snapshot atomic.Pointer[snapshot]

	// refreshing lets one goroutine read the store at a time; it stands
	// outside mu, so that a slow store never delays a kill in memory.
	refreshing sync.Mutex
	// attempts counts the readings that began. failed and failure are the
	// last that failed, guarded by refreshing: who waited for it shares its
	// error instead of waiting for a hanging store in turn.
	attempts atomic.Uint64
	failed   uint64
	failure  error

	mu sync.Mutex
	// stored are the kills as last read from the store, with those that this
	// process stored since; pending are those that are not known to be
	// stored.
	stored, pending map[string]Record
	// changes counts what this process itself changed, so that a reading of
	// the store that began before can be told to be old.
	changes  uint64
	attached map[*attachment]struct{}
	poller   *poller
}

type snapshot struct {
	generation uint64
	// current is false until the store has been read once, and after this
	// process changed it: the next look reads again.
	current   bool
	byRun     map[string]Record
	bySession map[session]Record
}

type session struct{ tenant, name string }

type attachment struct {
	run    cordon.Run
	cancel context.CancelCauseFunc
}

// poller is the one goroutine that watches the store, owned by the attached
// contexts: the first starts it, the last waits for its end.
type poller struct {
	stop context.CancelFunc
	done chan struct{}
}

// New errs on a missing store and on a poll interval that could not hold
// 100 ms. It does not read the store; the first look does.
func New(c Config) (*Switch, error) {
	if c.Store == nil {
		return nil, errors.New("killrun: no store")
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	if c.Poll < 0 || c.Poll > maxPoll {
		return nil, fmt.Errorf("killrun: poll interval %v (want above 0, at most %v)", c.Poll, maxPoll)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("killrun: timeout %v (want above 0)", c.Timeout)
	}
	s := &Switch{
		store: c.Store, poll: c.Poll, timeout: c.Timeout,
		stored: map[string]Record{}, pending: map[string]Record{},
		attached: map[*attachment]struct{}{},
	}
	s.snapshot.Store(&snapshot{})
	return s, nil
}

// Killed reports whether a call of the run must be refused, and the kill
// that refuses it. When the store cannot be read the answer is true with the
// error and an empty record: the caller blocks, and keeps the error.
func (s *Switch) Killed(runID, tenant, sessionName string) (Record, bool, error) {
	snap := s.snapshot.Load()
	generation, err := s.store.Generation()
	if err == nil && (!snap.current || snap.generation != generation) {
		snap, err = s.refresh(context.Background())
	}
	// What is known in memory names the reason even while the store fails.
	if r, ok := snap.find(runID, tenant, sessionName); ok {
		return r, true, nil
	}
	if err != nil {
		return Record{}, true, fmt.Errorf("killrun: read kills: %w", err)
	}
	return Record{}, false, nil
}

// Trip kills a run. In memory it is dead at once and its attached contexts
// are cancelled; the kill is stored when Trip returns nil. On an error it is
// dead in this process only, and Retry can store it. The end of ctx does not
// stop the storing. The run's ID must not be empty.
func (s *Switch) Trip(ctx context.Context, r Record) error {
	if r.RunID == "" {
		return errors.New("killrun: kill without a run ID")
	}
	s.change(func() { s.pending[r.RunID] = r })
	return s.persist(ctx, r)
}

// Retry stores the kills that could not be stored when they happened.
func (s *Switch) Retry(ctx context.Context) error {
	s.mu.Lock()
	waiting := maps.Clone(s.pending)
	s.mu.Unlock()
	var errs []error
	for _, r := range waiting {
		errs = append(errs, s.persist(ctx, r))
	}
	return errors.Join(errs...)
}

// Release lets a run go on. by and why are kept in the store and must not be
// blank. A run that is not killed is ErrNotKilled; on any error the run
// stays killed.
func (s *Switch) Release(ctx context.Context, runID, by, why string) error {
	if strings.TrimSpace(by) == "" || strings.TrimSpace(why) == "" {
		return fmt.Errorf("killrun: release of %q without who and why", runID)
	}
	snap, err := s.refresh(ctx)
	if err != nil {
		return fmt.Errorf("killrun: read kills: %w", err)
	}
	if _, ok := snap.byRun[runID]; !ok {
		return fmt.Errorf("%w: %q", ErrNotKilled, runID)
	}
	if err := s.store.Release(ctx, runID, by, why); err != nil {
		return fmt.Errorf("killrun: release %q: %w", runID, err)
	}
	s.change(func() {
		delete(s.stored, runID)
		delete(s.pending, runID)
	})
	return nil
}

// Attach returns a context that is cancelled with cause cordon.ErrKilled when
// the run is killed: at once when this process does it or when it is killed
// already, within 100 ms and one reading of the store when another process
// does. stop releases it, waits for what it started, and may be called more
// than once.
func (s *Switch) Attach(ctx context.Context, run cordon.Run) (attached context.Context, stop func()) {
	attached, cancel := context.WithCancelCause(ctx)
	a := &attachment{run: run, cancel: cancel}
	s.mu.Lock()
	s.attached[a] = struct{}{}
	if s.poller == nil {
		s.poller = s.startPoller()
	}
	s.mu.Unlock()
	// Only after it is listed: a kill in between must reach it. A store that
	// cannot be read refuses the call before it gets here, or ends nothing.
	if _, killed, err := s.Killed(run.ID, run.Tenant, run.Session); killed && err == nil {
		cancel(cordon.ErrKilled)
	}
	return attached, func() {
		cancel(context.Canceled)
		s.detach(a)
	}
}

func (s *Switch) detach(a *attachment) {
	s.mu.Lock()
	delete(s.attached, a)
	var last *poller
	if len(s.attached) == 0 {
		last, s.poller = s.poller, nil
	}
	s.mu.Unlock()
	if last != nil {
		last.stop()
		<-last.done
	}
}

func (s *Switch) startPoller() *poller {
	ctx, cancel := context.WithCancel(context.Background())
	p := &poller{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(s.poll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.look(ctx)
			}
		}
	}()
	return p
}

// look reads the store if it changed; refresh cancels what was killed. Its
// error is left to the next look and to the next call's Killed.
func (s *Switch) look(ctx context.Context) {
	snap := s.snapshot.Load()
	generation, err := s.store.Generation()
	if err == nil && (!snap.current || snap.generation != generation) {
		_, _ = s.refresh(ctx)
	}
}

// persist does not end with its caller's context: the kill itself cancels
// that of the run, and a client that hangs up must not save it.
func (s *Switch) persist(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	if err := s.store.Kill(ctx, r); err != nil {
		return fmt.Errorf("killrun: store kill of %q: %w", r.RunID, err)
	}
	s.change(func() {
		// Released in the meantime: that decision is the younger one.
		if _, still := s.pending[r.RunID]; still {
			delete(s.pending, r.RunID)
			s.stored[r.RunID] = r
		}
	})
	return nil
}

// change applies one change of this process and publishes it.
func (s *Switch) change(apply func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apply()
	s.changes++
	s.publish(s.snapshot.Load().generation, false)
}

// refresh reads the store's kills and publishes them. On an error the old
// snapshot stands and is returned with it.
func (s *Switch) refresh(ctx context.Context) (*snapshot, error) {
	began := s.attempts.Load()
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	if s.failed > began {
		return s.snapshot.Load(), s.failure
	}
	attempt := s.attempts.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	snap, err := s.read(ctx)
	if err != nil {
		s.failed, s.failure = attempt, err
		return s.snapshot.Load(), err
	}
	return snap, nil
}

func (s *Switch) read(ctx context.Context) (*snapshot, error) {
	for {
		s.mu.Lock()
		changes := s.changes
		s.mu.Unlock()
		// The generation before the kills: a change between the two makes
		// the next look read again, the other order would lose it.
		generation, err := s.store.Generation()
		if err != nil {
			return nil, err
		}
		if snap := s.snapshot.Load(); snap.current && snap.generation == generation {
			return snap, nil // another goroutine read it while this one waited
		}
		records, err := s.store.Active(ctx)
		if err != nil {
			return nil, err
		}
		if snap, ok := s.accept(records, generation, changes); ok {
			return snap, nil
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
}

// accept publishes what was read, unless this process changed something
// while it was being read.
func (s *Switch) accept(records []Record, generation, changes uint64) (*snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes != changes {
		return nil, false
	}
	clear(s.stored)
	for _, r := range records {
		s.stored[r.RunID] = r
	}
	return s.publish(generation, true), true
}

// publish makes the snapshot from stored and pending, and cancels the
// attached contexts that it kills. The caller holds mu.
func (s *Switch) publish(generation uint64, current bool) *snapshot {
	n := len(s.stored) + len(s.pending)
	snap := &snapshot{
		generation: generation, current: current,
		byRun: make(map[string]Record, n), bySession: make(map[session]Record, n),
	}
	for _, records := range []map[string]Record{s.stored, s.pending} {
		for id, r := range records {
			if id != "" { // a store may hold what Trip does not take
				snap.byRun[id] = r
			}
			if r.Session != "" {
				snap.bySession[session{r.Tenant, r.Session}] = r
			}
		}
	}
	s.snapshot.Store(snap)
	for a := range s.attached {
		if _, killed := snap.find(a.run.ID, a.run.Tenant, a.run.Session); killed {
			a.cancel(cordon.ErrKilled)
		}
	}
	return snap
}

func (n *snapshot) find(runID, tenant, sessionName string) (Record, bool) {
	if len(n.byRun) == 0 && len(n.bySession) == 0 {
		return Record{}, false
	}
	if r, ok := n.byRun[runID]; ok {
		return r, true
	}
	if sessionName == "" {
		return Record{}, false
	}
	r, ok := n.bySession[session{tenant, sessionName}]
	return r, ok
}
