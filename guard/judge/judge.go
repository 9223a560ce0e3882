// Package judge asks a model about calls that cannot be undone. It is the
// last and weakest of the layers: what the guard finds by itself never waits
// for it, and no verdict of it lifts a finding.
//
// It guarantees: an answer within the time-out, whatever the model server
// does; a verdict only from an answer that is exactly one object of the
// schema with a code that the call's own text cannot hold; the call is shown
// as redacted, bounded JSON between unguessable markers, in which nothing can
// close a marker. Identical questions that are asked at once share one
// request, verdicts are remembered for a while, failures are not. After a row
// of failures the server is left alone for a while. Goroutines and memory
// that a hanging server can hold are bounded. Nothing of a call, an answer or
// a key is written to a log or an error.
//
// What this package does not stop: a model that errs, or is talked into a
// verdict by the data it reviews. While no verdict can be had a call
// proceeds, unless an argument that decides what it does came from untrusted
// text, which is escalated: who can make the server fail switches the judge
// off for everything else. Of long values the middle is not shown. Text that
// looks like no secret is sent to the provider.
package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/singleflight"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Decision is what the judge says of a call. The zero value refuses it.
type Decision uint8

const (
	// Block refuses the call.
	Block Decision = iota
	// Escalate asks a person.
	Escalate
	// Proceed holds nothing against the call.
	Proceed
)

var decisionNames = [...]string{"block", "escalate", "proceed"}

func (d Decision) String() string {
	if int(d) < len(decisionNames) {
		return decisionNames[d]
	}
	return fmt.Sprintf("decision(%d)", d)
}

// Asker puts a prompt to a model. Implementations honour ctx, bound what they
// read, and return errors that hold nothing of the prompt, the answer or the
// key.
type Asker interface {
	Ask(ctx context.Context, p Prompt) (Reply, error)
}

// Reply is a model's answer.
type Reply struct {
	Text                      string
	InputTokens, OutputTokens int64
}

// Source is a text that was found in an argument.
type Source struct {
	// Arg is the JSON pointer of the argument.
	Arg  string
	Type cordon.ChunkType
	// Source is where the text came from.
	Source string
}

// Request is one question.
type Request struct {
	Tenant, Server, Tool string
	Args                 *strictjson.Value
	Effects              []cordon.Effect
	// Sources are the texts that the arguments came from.
	Sources []Source
	// Untrusted: an argument that decides what the call does came from
	// untrusted text alone.
	Untrusted bool
	// PolicyHash and Facts are of the policy that the run is judged by; a
	// fact is one sentence ("tier supervised", "hosts that are allowed: …").
	PolicyHash string
	Facts      []string
}

// Verdict is what came of a question. The zero value refuses.
type Verdict struct {
	Decision Decision
	// Reason is one sentence for people, redacted and bounded; of a verdict it
	// is the model's own words.
	Reason string
	// Failed: no verdict could be had; Err is why.
	Failed bool
	Err    error
	// Cached: it was remembered. Shared: another caller's request answered.
	Cached, Shared bool
	Latency        time.Duration
	// CostUSD is of the request that this caller made.
	CostUSD float64
}

// Reasons why no verdict could be had, for errors.Is on Verdict.Err.
var (
	// ErrTimeout: no answer came in time.
	ErrTimeout = errors.New("no answer in time")
	// ErrOpen: the server failed too often, and is left alone for a while.
	ErrOpen = errors.New("the judge is not asked after its failures")
	// ErrBusy: as many requests as may be were under way all the time.
	ErrBusy = errors.New("too many questions are not answered yet")
	// ErrUnusable: the answer was not exactly one verdict.
	ErrUnusable = errAnswer
)

// Defaults of Config.
const (
	DefaultTimeout   = 2 * time.Second
	DefaultThreshold = 5
	DefaultCooldown  = 120 * time.Second
	DefaultCache     = 256
	DefaultCacheTTL  = 10 * time.Minute
	DefaultInFlight  = 32
)

// Config is what a Judge is made from. Asker and Model are required; what is
// zero has its default.
type Config struct {
	Asker Asker
	// Model names what is asked; verdicts of another model are not used.
	Model string
	// Timeout ends one question.
	Timeout time.Duration
	// After Threshold failures in a row the server is left alone for Cooldown;
	// then one question is tried. An answer that cannot be used is a failure
	// of the question only: text in a call must not be able to switch the
	// judge off for other calls.
	Threshold int
	Cooldown  time.Duration
	// Cache is how many verdicts are remembered, for CacheTTL.
	Cache    int
	CacheTTL time.Duration
	// InFlight is how many requests may be under way; others wait for their
	// turn as long as Timeout.
	InFlight int
	// InputUSD and OutputUSD are the prices of a million tokens.
	InputUSD, OutputUSD float64
}

// Judge asks a model. One serves a whole process; it is safe for concurrent
// use.
type Judge struct {
	cfg     Config
	breaker *gobreaker.CircuitBreaker[Reply]
	cache   *lru.Cache[string, remembered]
	flights singleflight.Group
	slots   chan struct{}

	mu    sync.Mutex // guards stats
	stats Stats
}

type remembered struct {
	decision Decision
	reason   string
	until    time.Time
}

// Stats counts since the judge was made.
type Stats struct {
	// Calls is how many verdicts were asked for; Cached of them were
	// remembered and Shared were answered by another's request.
	Calls, Cached, Shared int64
	// Requests is how many were sent to the model.
	Requests int64
	// Proceed, Escalate and Block count the answers of Requests.
	Proceed, Escalate, Block int64
	// Failures of requests, by kind; Open and Busy were not sent.
	Timeouts, Errors, Unusable, Open, Busy int64
	// TooLarge were escalated without a request.
	TooLarge                  int64
	InputTokens, OutputTokens int64
	CostUSD                   float64
	// Latency is the sum over Requests, MaxLatency the longest.
	Latency, MaxLatency time.Duration
}

// New returns a Judge, or says what of the configuration is wrong.
func New(c Config) (*Judge, error) {
	if c.Asker == nil || c.Model == "" {
		return nil, errors.New("judge: no model to ask was given")
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	cache, err := lru.New[string, remembered](c.Cache)
	if err != nil {
		return nil, fmt.Errorf("judge: %w", err)
	}
	threshold := uint32(c.Threshold)
	return &Judge{
		cfg: c, cache: cache, slots: make(chan struct{}, c.InFlight),
		breaker: gobreaker.NewCircuitBreaker[Reply](gobreaker.Settings{
			Name: "judge", MaxRequests: 1, Timeout: c.Cooldown,
			ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= threshold },
			IsExcluded:  func(err error) bool { return errors.Is(err, errAnswer) || errors.Is(err, ErrBusy) },
		}),
	}, nil
}

func (c *Config) fill() error {
	for _, d := range []struct {
		what string
		at   *time.Duration
		def  time.Duration
	}{{"time-out", &c.Timeout, DefaultTimeout}, {"cooldown", &c.Cooldown, DefaultCooldown}, {"cache time", &c.CacheTTL, DefaultCacheTTL}} {
		if *d.at < 0 {
			return fmt.Errorf("judge: %s of %s (want more than 0)", d.what, *d.at)
		}
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	for _, d := range []struct {
		what string
		at   *int
		def  int
	}{{"threshold", &c.Threshold, DefaultThreshold}, {"cache", &c.Cache, DefaultCache}, {"bound of requests", &c.InFlight, DefaultInFlight}} {
		if *d.at < 0 || *d.at > 1<<20 {
			return fmt.Errorf("judge: %s of %d (want from 1 to %d)", d.what, *d.at, 1<<20)
		}
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if !(c.InputUSD >= 0) || !(c.OutputUSD >= 0) {
		return fmt.Errorf("judge: prices of %g and %g USD (want 0 or more)", c.InputUSD, c.OutputUSD)
	}
	return nil
}

// Judge answers within the time-out, or as soon as ctx ends.
func (j *Judge) Judge(ctx context.Context, r Request) Verdict {
	start := time.Now()
	v := j.verdict(ctx, &r, start)
	v.Latency = time.Since(start)
	if v.Failed {
		v.Decision, v.Reason = Proceed, "the judge gave no verdict ("+v.Err.Error()+"); the call may proceed without one"
		switch {
		case r.Untrusted:
			v.Decision, v.Reason = Escalate, "the judge gave no verdict ("+v.Err.Error()+") on a call that untrusted text decides"
		case errors.Is(ctx.Err(), context.Canceled):
			// No outage: who cancels must not get past the judge by it.
			v.Decision, v.Reason = Escalate, "the call was cancelled before the judge gave its verdict"
		}
	}
	j.count(func(s *Stats) {
		s.Calls++
		if v.Cached {
			s.Cached++
		}
		if v.Shared {
			s.Shared++
		}
	})
	return v
}

func (j *Judge) verdict(ctx context.Context, r *Request, now time.Time) Verdict {
	data := requestData(r)
	if len(data) > maxData {
		// An outage would let it proceed; padding must not.
		j.count(func(s *Stats) { s.TooLarge++ })
		return Verdict{Decision: Escalate, Reason: "the call is too large for the judge to be shown"}
	}
	key := j.key(r, data)
	if m, ok := j.cache.Get(key); ok && now.Before(m.until) {
		return Verdict{Decision: m.decision, Reason: m.reason, Cached: true}
	}
	mine := false // written before the flight answers, by this caller's function alone
	done := j.flights.DoChan(key, func() (v any, _ error) {
		mine = true
		defer func() {
			if recover() != nil { // it would end the process; its value may hold the call
				v = Verdict{Failed: true, Err: errors.New("the judge panicked")}
			}
		}()
		// Not the caller's context: others wait for the same answer.
		return j.ask(newPrompt(data, r.Untrusted), key), nil
	})
	select {
	case res := <-done:
		v, _ := res.Val.(Verdict)
		if !mine {
			v.Shared, v.CostUSD = true, 0
		}
		return v
	case <-ctx.Done():
		return Verdict{Failed: true, Err: context.Cause(ctx)}
	}
}

// ask makes one request, if the breaker admits it.
func (j *Judge) ask(p Prompt, key string) Verdict {
	var v Verdict
	_, err := j.breaker.Execute(func() (Reply, error) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), j.cfg.Timeout, ErrTimeout)
		defer cancel()
		select {
		case j.slots <- struct{}{}:
		case <-ctx.Done():
			return Reply{}, ErrBusy
		}
		start := time.Now()
		reply, err := j.request(ctx, p)
		took := time.Since(start)
		if err == nil {
			v.Decision, v.Reason, err = parseAnswer(reply.Text, p.Code)
		}
		v.CostUSD = j.cost(reply)
		j.account(reply, v, err, took)
		return reply, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		err = ErrOpen
	}
	if err != nil {
		j.count(func(s *Stats) {
			switch {
			case errors.Is(err, ErrOpen):
				s.Open++
			case errors.Is(err, ErrBusy):
				s.Busy++
			}
		})
		return Verdict{Failed: true, Err: err, CostUSD: v.CostUSD}
	}
	j.cache.Add(key, remembered{v.Decision, v.Reason, time.Now().Add(j.cfg.CacheTTL)})
	return v
}

type answer struct {
	reply Reply
	err   error
}

// request waits for the asker no longer than ctx lasts. The slot is given back
// when the asker returns, however late: that bounds how many of those that
// ignore their context there can be.
func (j *Judge) request(ctx context.Context, p Prompt) (Reply, error) {
	got := make(chan answer, 1)
	go func() {
		defer func() { <-j.slots }()
		defer func() {
			if r := recover(); r != nil {
				got <- answer{err: errors.New("the adapter panicked")} // its value may hold the call
			}
		}()
		reply, err := j.cfg.Asker.Ask(ctx, p)
		got <- answer{reply, err}
	}()
	select {
	case a := <-got:
		if a.err != nil && ctx.Err() != nil {
			return a.reply, ErrTimeout
		}
		return a.reply, a.err
	case <-ctx.Done():
		return Reply{}, ErrTimeout
	}
}

func (j *Judge) cost(r Reply) float64 {
	return (float64(max(0, r.InputTokens))*j.cfg.InputUSD + float64(max(0, r.OutputTokens))*j.cfg.OutputUSD) / 1e6
}

func (j *Judge) account(r Reply, v Verdict, err error, took time.Duration) {
	j.count(func(s *Stats) {
		s.Requests++
		s.InputTokens += max(0, r.InputTokens)
		s.OutputTokens += max(0, r.OutputTokens)
		s.CostUSD += v.CostUSD
		s.Latency += took
		s.MaxLatency = max(s.MaxLatency, took)
		switch {
		case errors.Is(err, ErrTimeout):
			s.Timeouts++
		case errors.Is(err, errAnswer):
			s.Unusable++
		case err != nil:
			s.Errors++
		case v.Decision == Proceed:
			s.Proceed++
		case v.Decision == Escalate:
			s.Escalate++
		default:
			s.Block++
		}
	})
}

func (j *Judge) count(change func(*Stats)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.stats)
}

// Stats are the counts so far.
func (j *Judge) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}

// Findings are what phase E holds against a call for the verdict: nothing
// where it may proceed.
func (v *Verdict) Findings() []cordon.Finding {
	f := cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Detail: "judge: " + v.Reason, Err: v.Err}
	switch {
	case v.Decision == Proceed:
		return nil
	case v.Decision == Escalate && v.Failed:
		f.Rule, f.Outcome = "judge.failed", cordon.Restricted
	case v.Decision == Escalate:
		f.Rule, f.Outcome = "judge.escalate", cordon.Restricted
	default:
		f.Rule, f.Kill = "judge.block", true
	}
	return []cordon.Finding{f}
}
