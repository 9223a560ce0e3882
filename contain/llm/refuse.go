package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Names of the rules that a refusal cites, in X-Cordon-Refused and in rows.
const (
	RulePath      = "llm.path"      // a path or method that is not listed
	RuleSyntax    = "llm.syntax"    // a path, query or head that cannot be read safely
	RuleQuery     = "llm.query"     // a query parameter that is not listed
	RuleKey       = "llm.key"       // a key that is not the run's placeholder
	RuleBody      = "llm.body"      // a body that cannot be read safely
	RuleField     = "llm.field"     // a field, tool or part that is not known
	RuleFeature   = "llm.feature"   // what makes the provider act on its own
	RuleCap       = "llm.cap"       // the run's money
	RuleBusy      = "llm.busy"      // too many calls at once
	RuleKilled    = "llm.killed"    // the run was killed
	RuleUnaudited = "llm.unaudited" // refusals cannot be stored
	RuleUncharged = "llm.uncharged" // costs cannot be booked
)

// Refusal is one refusal, or several of the same kind.
type Refusal struct {
	Run      string
	Provider Provider
	// Rule is one of the Rule constants.
	Rule   string
	Method string
	// Path is the path as far as it could be read, without the query.
	Path string
	Why  string
	// Enforced: the client was refused. Otherwise it would have been.
	Enforced bool
	// Count is how many there were, from First to Last.
	Count       int64
	First, Last time.Time
}

// refusal is a refusal before it is one of a run.
type refusal struct {
	status int
	rule   string
	why    string
	// always: refused in every mode.
	always bool
}

// kinds of error, by status, in the words of each provider.
var errorTypes = map[int][3]string{
	400: {"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"},
	401: {"authentication_error", "invalid_request_error", "UNAUTHENTICATED"},
	402: {"billing_error", "insufficient_quota", "RESOURCE_EXHAUSTED"},
	403: {"permission_error", "permission_error", "PERMISSION_DENIED"},
	404: {"not_found_error", "invalid_request_error", "NOT_FOUND"},
	405: {"invalid_request_error", "invalid_request_error", "UNIMPLEMENTED"},
	413: {"request_too_large", "invalid_request_error", "INVALID_ARGUMENT"},
	415: {"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"},
	429: {"rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"},
	502: {"api_error", "server_error", "UNAVAILABLE"},
	503: {"api_error", "server_error", "UNAVAILABLE"},
	504: {"timeout_error", "server_error", "DEADLINE_EXCEEDED"},
}

// writeError answers in the provider's own form, so that its clients show
// the message.
func writeError(w http.ResponseWriter, p Provider, status int, rule, message string) {
	kinds, ok := errorTypes[status]
	if !ok {
		kinds = errorTypes[400]
	}
	message = "cordon: " + message
	var body any
	switch p {
	case Anthropic:
		body = map[string]any{"type": "error", "error": map[string]any{"type": kinds[0], "message": message}}
	case Gemini:
		body = map[string]any{"error": map[string]any{"code": status, "message": message, "status": kinds[2]}}
	default:
		body = map[string]any{"error": map[string]any{"message": message, "type": kinds[1], "param": nil, "code": rule}}
	}
	b, err := json.Marshal(body)
	if err != nil {
		b = []byte("{}")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	if rule != "" {
		h.Set("X-Cordon-Refused", rule)
	}
	// The official clients would try a refusal again and again.
	if status != http.StatusTooManyRequests && status < 500 {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may be gone
}

// Bounds of aggregation: so many rows of their own a run and window.
const (
	rowsPerWindow = 64
	recordTime    = 5 * time.Second
)

type ledgerKey struct {
	run, rule, why string
	enforced       bool
}

// ledger passes refusals on: the first of its kind at once, those like it
// within the window as one count, and past rowsPerWindow kinds of a run all
// others as one count a rule. What cannot be written is kept.
type ledger struct {
	rec    func(ctx context.Context, r Refusal) error
	window time.Duration
	logf   func(format string, args ...any)
	stop   chan struct{}
	ended  sync.WaitGroup

	writing sync.Mutex // one flush at a time

	mu      sync.Mutex
	closed  bool
	entries map[ledgerKey]*ledgerEntry
	kinds   map[string]int
	broken  error
}

type ledgerEntry struct {
	refusal Refusal // Count is what is still to be written
	opened  time.Time
}

func newLedger(rec func(context.Context, Refusal) error, window time.Duration, logf func(string, ...any)) *ledger {
	l := &ledger{rec: rec, window: window, logf: logf, stop: make(chan struct{}), entries: map[ledgerKey]*ledgerEntry{}, kinds: map[string]int{}}
	l.ended.Go(l.loop)
	return l
}

func (l *ledger) loop() {
	tick := time.NewTicker(l.window)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			if err := l.flush(false); err != nil {
				l.logf("%v", err)
			}
		}
	}
}

// note stores or counts a refusal; an error says that it is only kept in
// memory.
func (l *ledger) note(r Refusal) error {
	now := time.Now()
	r.First, r.Last, r.Count = now, now, 1
	key := ledgerKey{r.Run, r.Rule, r.Why, r.Enforced}
	l.mu.Lock()
	e := l.entries[key]
	if e == nil && l.kinds[r.Run] >= rowsPerWindow {
		r.Path, r.Why = "*", "further refusals, too many for rows of their own"
		key.why = r.Why
		e = l.entries[key]
	}
	if e != nil {
		if e.refusal.Count == 0 {
			e.refusal.First = now
		}
		e.refusal.Count++
		e.refusal.Last = now
		defer l.mu.Unlock()
		return l.broken
	}
	e = &ledgerEntry{refusal: r, opened: now}
	e.refusal.Count = 0
	l.entries[key] = e
	l.kinds[r.Run]++
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

func (l *ledger) write(r Refusal) error {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := l.rec(ctx, r); err != nil {
		return fmt.Errorf("llm: a refusal was not stored: %w", err)
	}
	return nil
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

// flush writes counts whose window is over, or all of them.
func (l *ledger) flush(all bool) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.flushLocked(all)
}

func (l *ledger) flushLocked(all bool) error {
	now := time.Now()
	var keys []ledgerKey
	var rows []Refusal
	l.mu.Lock()
	for key, e := range l.entries {
		if !all && now.Sub(e.opened) < l.window {
			continue
		}
		if e.refusal.Count > 0 {
			keys, rows = append(keys, key), append(rows, e.refusal)
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
			l.keep(keys[i], r)
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
	if broken == nil || !l.writing.TryLock() {
		return broken
	}
	defer l.writing.Unlock()
	return l.flushLocked(true)
}

func (l *ledger) close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.stop)
	}
	l.ended.Wait()
	return l.flush(true)
}

// newQuietLog takes what net/http says about clients that break off.
func newQuietLog() *log.Logger { return log.New(io.Discard, "", 0) }
