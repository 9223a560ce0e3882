package egress

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Names of the rules that a refusal cites, in X-Cordon-Refused and in rows.
const (
	RuleHost     = "egress.host"      // no rule names the host
	RuleLLM      = "egress.llm_host"  // an LLM API host, by the tool proxy
	RulePort     = "egress.port"      // the host is listed, for other ports
	RuleSyntax   = "egress.syntax"    // a request that cannot be read safely
	RulePrivate  = "egress.private"   // the name resolves to a special range
	RuleLoop     = "egress.loop"      // the address is the proxy's own
	RuleTLS      = "egress.tls"       // no ClientHello on port 443
	RuleSNI      = "egress.sni"       // the ClientHello names another host
	RuleTunnels  = "egress.tunnels"   // too many connections of the run
	RuleUpload   = "egress.upload"    // the run's upload cap
	RuleDownload = "egress.download"  // the run's download cap
	RuleUsage    = "egress.usage"     // Config.Usage says that the run has had enough
	RuleRevoked  = "egress.revoked"   // the rules changed under a tunnel
	RuleToken    = "egress.token"     // no valid token, on a shared listener
	RuleAudit    = "egress.unaudited" // refusals cannot be stored
)

// Refusal is one refusal, or several of the same kind.
type Refusal struct {
	// Run is the run that the client belongs to; of a client of a shared
	// listener without a valid token, what ServeShared was told.
	Run   string
	Proxy Kind
	// Rule is one of the Rule constants.
	Rule string
	// Host is the canonical host, or what the client wrote where that is no
	// host; "*" stands for several. Port is 0 where none could be read.
	Host string
	Port uint16
	Why  string
	// Refused: the client did not get through. Otherwise it would not have,
	// had the mode been enforce.
	Refused bool
	// Enforced: it was the mode that refused it. Never set in shadow mode,
	// where only what is no policy of the run's refuses: special addresses,
	// requests that cannot be read, tokens, the number of connections.
	Enforced bool
	// Count is how many there were, from First to Last.
	Count       int64
	First, Last time.Time
}

// Recorder stores refusals. A refusal that it takes without error is
// durable. It is called from many goroutines at once.
type Recorder interface {
	Record(ctx context.Context, r Refusal) error
}

// Bounds of aggregation: so many rows of their own a run and window.
const (
	rowsPerWindow = 64
	recordTime    = 5 * time.Second
)

type ledgerKey struct {
	run, rule, host string
	port            uint16
	refused         bool
}

// ledger passes refusals on to the recorder: the first of its kind at once,
// those like it within the window as one count, and past rowsPerWindow kinds
// of a run all others as one count a rule. A flood costs the store a bounded
// number of rows, and no count is lost: what cannot be written is kept.
type ledger struct {
	rec    Recorder
	window time.Duration
	now    func() time.Time

	flushing sync.Mutex // one flush at a time

	mu      sync.Mutex
	entries map[ledgerKey]*ledgerEntry
	kinds   map[string]int // entries of a run
	broken  error          // of the last write; nil while all is well
}

type ledgerEntry struct {
	refusal Refusal // Count is what is still to be written
	opened  time.Time
}

func newLedger(rec Recorder, window time.Duration) *ledger {
	return &ledger{rec: rec, window: window, now: time.Now, entries: map[ledgerKey]*ledgerEntry{}, kinds: map[string]int{}}
}

// note stores or counts a refusal; an error says that it is only kept in
// memory.
func (l *ledger) note(r Refusal) error {
	now := l.now()
	r.First, r.Last, r.Count = now, now, 1
	key := ledgerKey{r.Run, r.Rule, r.Host, r.Port, r.Refused}
	l.mu.Lock()
	if l.addTo(key, now) {
		defer l.mu.Unlock()
		return l.broken
	}
	if l.kinds[r.Run] >= rowsPerWindow {
		r.Host, r.Port, r.Why = "*", 0, "further hosts, too many for rows of their own"
		key.host, key.port = r.Host, 0
		if l.addTo(key, now) {
			defer l.mu.Unlock()
			return l.broken
		}
	}
	e := &ledgerEntry{refusal: r, opened: now}
	l.entries[key] = e
	l.kinds[r.Run]++
	e.refusal.Count = 0
	l.mu.Unlock()

	err := l.write(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.keep(key, r)
	}
	l.broken = err
	return err
}

func (l *ledger) addTo(key ledgerKey, now time.Time) bool {
	e := l.entries[key]
	if e == nil {
		return false
	}
	if e.refusal.Count == 0 {
		e.refusal.First = now
	}
	e.refusal.Count++
	e.refusal.Last = now
	return true
}

// keep puts back what could not be written.
func (l *ledger) keep(key ledgerKey, r Refusal) {
	e := l.entries[key]
	if e == nil {
		l.entries[key] = &ledgerEntry{refusal: r, opened: r.First}
		l.kinds[r.Run]++
		return
	}
	if e.refusal.Count == 0 {
		e.refusal.Last = r.Last
	}
	e.refusal.First = r.First
	e.refusal.Count += r.Count
}

func (l *ledger) write(r Refusal) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := l.rec.Record(ctx, r); err != nil {
		return fmt.Errorf("egress: refusal of %s was not stored: %w", r.Host, err)
	}
	return nil
}

// flush writes counts whose window is over, or all of them.
func (l *ledger) flush(all bool) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	return l.flushLocked(all)
}

func (l *ledger) flushLocked(all bool) error {
	now := l.now()
	var due []ledgerKey
	var rows []Refusal
	l.mu.Lock()
	for key, e := range l.entries {
		if !all && now.Sub(e.opened) < l.window {
			continue
		}
		if e.refusal.Count > 0 {
			due, rows = append(due, key), append(rows, e.refusal)
		}
		delete(l.entries, key)
		if l.kinds[key.run]--; l.kinds[key.run] <= 0 {
			delete(l.kinds, key.run)
		}
	}
	l.mu.Unlock()
	var err error
	for i, r := range rows {
		if err == nil {
			err = l.write(r)
		}
		if err != nil {
			l.mu.Lock()
			l.keep(due[i], r)
			l.mu.Unlock()
		}
	}
	if len(rows) > 0 {
		l.mu.Lock()
		l.broken = err
		l.mu.Unlock()
	}
	return err
}

// healthy reports whether refusals can be stored; after a failure it tries
// again with what was kept.
func (l *ledger) healthy() error {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	if broken == nil {
		return nil
	}
	// A store that hangs must not be waited for by every request in turn.
	if !l.flushing.TryLock() {
		return broken
	}
	defer l.flushing.Unlock()
	return l.flushLocked(true)
}
