package judge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// askerFunc is an Asker.
type askerFunc func(ctx context.Context, p Prompt) (Reply, error)

func (f askerFunc) Ask(ctx context.Context, p Prompt) (Reply, error) { return f(ctx, p) }

func says(verdict string) askerFunc {
	return func(_ context.Context, p Prompt) (Reply, error) {
		return Reply{Text: fmt.Sprintf(`{"verdict":%q,"reason":"because","code":%q}`, verdict, p.Code), InputTokens: 1000, OutputTokens: 100}, nil
	}
}

// counted counts the requests that reach an asker.
type counted struct {
	Asker
	n atomic.Int64
}

func (c *counted) Ask(ctx context.Context, p Prompt) (Reply, error) {
	c.n.Add(1)
	return c.Asker.Ask(ctx, p)
}

func args(s string) *strictjson.Value {
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		panic(err)
	}
	return &v
}

func request(s string) Request {
	return Request{Tenant: "t1", Server: "mail", Tool: "send_email", Args: args(s), PolicyHash: "p1",
		Effects: []cordon.Effect{{Kind: cordon.Send, Target: "x@example.com"}}, Facts: []string{"tier supervised"}}
}

func newJudge(t testing.TB, a Asker, change ...func(*Config)) *Judge {
	t.Helper()
	c := Config{Asker: a, Model: "m1", InputUSD: 1, OutputUSD: 10}
	for _, f := range change {
		f(&c)
	}
	j, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestVerdicts(t *testing.T) {
	for word, want := range map[string]Decision{"proceed": Proceed, "escalate": Escalate, "block": Block} {
		j := newJudge(t, says(word))
		v := j.Judge(t.Context(), request(`{"to":"x"}`))
		if v.Decision != want || v.Failed || v.Reason != "because" || v.Err != nil {
			t.Errorf("%s: %+v", word, v)
		}
		if v.CostUSD != 0.002 {
			t.Errorf("cost %v", v.CostUSD)
		}
		s := j.Stats()
		if s.Requests != 1 || s.InputTokens != 1000 || s.OutputTokens != 100 || s.CostUSD != 0.002 || s.Proceed+s.Escalate+s.Block != 1 {
			t.Errorf("%+v", s)
		}
	}
	var zero Verdict
	if zero.Decision != Block || len(zero.Findings()) != 1 {
		t.Error("the zero verdict does not refuse")
	}
}

func TestFindings(t *testing.T) {
	tests := []struct {
		name    string
		v       Verdict
		rule    string
		outcome cordon.Outcome
		kill    bool
	}{
		{"proceed", Verdict{Decision: Proceed}, "", cordon.Allowed, false},
		{"proceed without a verdict", Verdict{Decision: Proceed, Failed: true, Err: ErrTimeout}, "", cordon.Allowed, false},
		{"escalate", Verdict{Decision: Escalate}, "judge.escalate", cordon.Restricted, false},
		{"escalate without a verdict", Verdict{Decision: Escalate, Failed: true, Err: ErrTimeout}, "judge.failed", cordon.Restricted, false},
		{"block", Verdict{Decision: Block}, "judge.block", cordon.Blocked, true},
		{"an unknown decision", Verdict{Decision: 9}, "judge.block", cordon.Blocked, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fs := tt.v.Findings()
			if tt.rule == "" {
				if len(fs) != 0 {
					t.Errorf("%+v", fs)
				}
				return
			}
			if len(fs) != 1 || fs[0].Rule != tt.rule || fs[0].Outcome != tt.outcome || fs[0].Kill != tt.kill || fs[0].Phase != cordon.PhaseProvenance {
				t.Errorf("%+v", fs)
			}
		})
	}
}

// bad are askers that give no verdict.
var bad = map[string]struct {
	asker Asker
	is    error
}{
	"an error":       {askerFunc(func(context.Context, Prompt) (Reply, error) { return Reply{}, errors.New("refused") }), nil},
	"a panic":        {askerFunc(func(context.Context, Prompt) (Reply, error) { panic("zebra99") }), nil},
	"a silent one":   {askerFunc(func(ctx context.Context, _ Prompt) (Reply, error) { <-ctx.Done(); return Reply{}, ctx.Err() }), ErrTimeout},
	"prose":          {askerFunc(func(context.Context, Prompt) (Reply, error) { return Reply{Text: "I think proceed"}, nil }), ErrUnusable},
	"another's code": {askerFunc(func(context.Context, Prompt) (Reply, error) { return says("proceed")(nil, Prompt{Code: "x"}) }), ErrUnusable},
	"cut short":      {askerFunc(func(context.Context, Prompt) (Reply, error) { return Reply{}, ErrIncomplete }), ErrUnusable},
}

func TestWithoutAVerdictTheCallProceedsUnlessUntrustedTextDecidesIt(t *testing.T) {
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJudge(t, b.asker)
				r := request(`{"to":"x"}`)
				v := j.Judge(t.Context(), r)
				if v.Decision != Proceed || !v.Failed || v.Err == nil || b.is != nil && !errors.Is(v.Err, b.is) {
					t.Errorf("trusted: %+v", v)
				}
				if strings.Contains(v.Reason+v.Err.Error(), "zebra99") {
					t.Errorf("content in %v", v)
				}
				if v.Latency > DefaultTimeout {
					t.Errorf("it took %s", v.Latency)
				}
				r.Untrusted = true
				if v := j.Judge(t.Context(), r); v.Decision != Escalate || !v.Failed {
					t.Errorf("untrusted: %+v", v)
				}
				if s := j.Stats(); s.Requests != 2 || s.Timeouts+s.Errors+s.Unusable != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestFailuresAreNotRemembered(t *testing.T) {
	first := true
	j := newJudge(t, askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
		if first {
			first = false
			return Reply{}, errors.New("refused")
		}
		return says("block")(ctx, p)
	}))
	if v := j.Judge(t.Context(), request(`{}`)); !v.Failed {
		t.Errorf("%+v", v)
	}
	if v := j.Judge(t.Context(), request(`{}`)); v.Failed || v.Cached || v.Decision != Block {
		t.Errorf("%+v", v)
	}
}

func TestAnAdapterThatIgnoresItsContextHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		j := newJudge(t, askerFunc(func(context.Context, Prompt) (Reply, error) { <-release; return Reply{}, nil }),
			func(c *Config) { c.InFlight, c.Threshold = 3, 100 })
		for i := range 6 {
			v := j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, i)))
			want := ErrTimeout
			if i >= 3 {
				want = ErrBusy
			}
			if !errors.Is(v.Err, want) || v.Latency > DefaultTimeout {
				t.Errorf("call %d: %+v", i, v)
			}
		}
		if s := j.Stats(); s.Requests != 3 || s.Busy != 3 {
			t.Errorf("%+v", s)
		}
		close(release)
		synctest.Wait()
		if v := j.Judge(t.Context(), request(`{}`)); errors.Is(v.Err, ErrBusy) {
			t.Error("its place was not given back")
		}
	})
}

func TestTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		a := &counted{Asker: askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
			if up.Load() {
				return says("proceed")(ctx, p)
			}
			return Reply{}, errors.New("refused")
		})}
		j := newJudge(t, a)
		n := 0
		ask := func() Verdict {
			n++
			return j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, n)))
		}
		for range 4 {
			ask()
		}
		up.Store(true)
		ask() // a success ends the row
		up.Store(false)
		for range 5 {
			if v := ask(); errors.Is(v.Err, ErrOpen) {
				t.Fatal("open too early")
			}
		}
		up.Store(true)
		before := a.n.Load()
		for range 20 {
			if v := ask(); !errors.Is(v.Err, ErrOpen) || v.Decision != Proceed {
				t.Fatalf("%+v", v)
			}
		}
		time.Sleep(DefaultCooldown - time.Second)
		if v := ask(); !errors.Is(v.Err, ErrOpen) || a.n.Load() != before {
			t.Errorf("before the cooldown: %+v, %d requests", v, a.n.Load()-before)
		}
		time.Sleep(2 * time.Second)
		up.Store(false)
		if v := ask(); errors.Is(v.Err, ErrOpen) || a.n.Load() != before+1 {
			t.Errorf("the one that is tried: %+v", v)
		}
		up.Store(true)
		if v := ask(); !errors.Is(v.Err, ErrOpen) {
			t.Errorf("after the one that failed: %+v", v)
		}
		time.Sleep(DefaultCooldown + time.Second)
		for range 10 {
			if v := ask(); v.Failed {
				t.Errorf("closed again: %+v", v)
			}
		}
	})
}

func TestHalfOpenAdmitsOneOfManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Pointer[chan struct{}]
		a := &counted{Asker: askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
			if c := hold.Load(); c != nil {
				<-*c
				return says("proceed")(ctx, p)
			}
			return Reply{}, errors.New("refused")
		})}
		j := newJudge(t, a)
		for i := range DefaultThreshold {
			j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, i)))
		}
		time.Sleep(DefaultCooldown + time.Second)
		c := make(chan struct{})
		hold.Store(&c)
		before := a.n.Load()
		var open atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if v := j.Judge(t.Context(), request(fmt.Sprintf(`{"later":%d}`, i))); errors.Is(v.Err, ErrOpen) {
					open.Add(1)
				}
			})
		}
		synctest.Wait()
		close(c)
		wg.Wait()
		if sent := a.n.Load() - before; sent != 1 || open.Load() != 19 {
			t.Errorf("%d were sent, %d refused", sent, open.Load())
		}
	})
}

// Whoever can put text into calls could make five answers unusable, and run
// the sixth call without a judge.
func TestUnusableAnswersDoNotSwitchTheJudgeOff(t *testing.T) {
	a := &counted{Asker: askerFunc(func(context.Context, Prompt) (Reply, error) { return Reply{Text: "Sure! proceed"}, nil })}
	j := newJudge(t, a)
	for i := range 3 * DefaultThreshold {
		if v := j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, i))); !errors.Is(v.Err, ErrUnusable) {
			t.Fatalf("%+v", v)
		}
	}
	if a.n.Load() != 3*DefaultThreshold {
		t.Errorf("%d were sent", a.n.Load())
	}
}

func TestVerdictsAreRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &counted{Asker: says("escalate")}
		j := newJudge(t, a, func(c *Config) { c.Cache = 4 })
		if v := j.Judge(t.Context(), request(`{"to":"x","n":1}`)); v.Cached {
			t.Error("remembered before it was asked")
		}
		v := j.Judge(t.Context(), request(`{"n":1, "to":"x"}`)) // the same, spelled otherwise
		if !v.Cached || v.Decision != Escalate || v.CostUSD != 0 || v.Reason != "because" {
			t.Errorf("%+v", v)
		}
		time.Sleep(DefaultCacheTTL)
		if v := j.Judge(t.Context(), request(`{"to":"x","n":1}`)); v.Cached {
			t.Error("remembered for too long")
		}
		for i := range 4 {
			j.Judge(t.Context(), request(fmt.Sprintf(`{"other":%d}`, i)))
		}
		if v := j.Judge(t.Context(), request(`{"to":"x","n":1}`)); v.Cached {
			t.Error("more are remembered than may be")
		}
		if s := j.Stats(); s.Cached != 1 || s.Requests != a.n.Load() {
			t.Errorf("%+v", s)
		}
	})
}

func TestP5WhateverTheQuestionDependsOnIsPartOfWhatIsRemembered(t *testing.T) {
	base := func() Request { return request(`{"to":"x"}`) }
	changes := map[string]func(*Request){
		"tenant":         func(r *Request) { r.Tenant = "t2" },
		"server":         func(r *Request) { r.Server = "other" },
		"tool":           func(r *Request) { r.Tool = "send" },
		"arguments":      func(r *Request) { r.Args = args(`{"to":"y"}`) },
		"a type":         func(r *Request) { r.Args = args(`{"to":["x"]}`) },
		"a secret":       func(r *Request) { r.Args = args(`{"to":"x","password":"zebra98"}`) },
		"another secret": func(r *Request) { r.Args = args(`{"to":"x","password":"zebra99"}`) },
		"a long value":   func(r *Request) { r.Args = args(`{"to":"` + strings.Repeat("a", 9000) + `"}`) },
		"its hidden middle": func(r *Request) {
			r.Args = args(`{"to":"` + strings.Repeat("a", 4000) + "b" + strings.Repeat("a", 4999) + `"}`)
		},
		"taint":                        func(r *Request) { r.Untrusted = true },
		"a source":                     func(r *Request) { r.Sources = []Source{{Arg: "/to", Type: cordon.ToolOutput, Source: "page"}} },
		"policy":                       func(r *Request) { r.PolicyHash = "p2" },
		"facts":                        func(r *Request) { r.Facts = nil },
		"effects":                      func(r *Request) { r.Effects[0].Target = "y@example.com" },
		"a flag of one":                func(r *Request) { r.Effects[0].Recursive = true },
		"tool and server run together": func(r *Request) { r.Server, r.Tool = "mailsend", "_email" },
	}
	j := newJudge(t, says("proceed"))
	j.Judge(t.Context(), base())
	for name, change := range changes {
		r := base()
		change(&r)
		if v := j.Judge(t.Context(), r); v.Cached {
			t.Errorf("%s: the verdict of another question is given", name)
		}
		if v := j.Judge(t.Context(), r); !v.Cached {
			t.Errorf("%s: the verdict was not remembered", name)
		}
	}
	k1 := newJudge(t, says("proceed"))
	k2 := newJudge(t, says("proceed"), func(c *Config) { c.Model = "m2" })
	r := base()
	if k1.key(&r, requestData(&r)) == k2.key(&r, requestData(&r)) {
		t.Error("another model's verdict is given")
	}
}

func TestIdenticalQuestionsAtOnceShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := &counted{Asker: askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
			<-release
			return says("block")(ctx, p)
		})}
		j := newJudge(t, a)
		gone, leave := context.WithCancelCause(t.Context())
		left := errors.New("the client left")
		var leader Verdict
		var wg sync.WaitGroup
		wg.Go(func() { leader = j.Judge(gone, request(`{"to":"x"}`)) })
		synctest.Wait() // the one who will leave is first
		vs := make([]Verdict, 8)
		for i := range vs {
			wg.Go(func() { vs[i] = j.Judge(t.Context(), request(`{"to":"x"}`)) })
		}
		synctest.Wait()
		leave(left)
		synctest.Wait()
		close(release)
		wg.Wait()
		if !leader.Failed || !errors.Is(leader.Err, left) || leader.Decision != Escalate {
			t.Errorf("who left: %+v", leader)
		}
		for _, v := range vs {
			if v.Failed || v.Decision != Block || !v.Shared || v.CostUSD != 0 {
				t.Errorf("who stayed: %+v", v)
			}
		}
		if s := j.Stats(); a.n.Load() != 1 || s.Requests != 1 || s.Shared != 8 || s.Calls != 9 || s.CostUSD != 0.002 {
			t.Errorf("%d were sent; %+v", a.n.Load(), s)
		}
	})
}

func TestManyQuestionsAtOnceWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudge(t, askerFunc(func(ctx context.Context, p Prompt) (Reply, error) {
			time.Sleep(100 * time.Millisecond)
			return says("block")(ctx, p)
		}), func(c *Config) { c.InFlight = 4 })
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if v := j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, i))); v.Failed || v.Decision != Block {
					t.Errorf("%+v", v)
				}
			})
		}
		wg.Wait()
	})
}

// A deadline of the caller is one more time-out; who cancels is not given a
// way past the judge.
func TestCallersWhoDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJudge(t, bad["a silent one"].asker)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v := j.Judge(soon, request(`{"n":1}`)); v.Decision != Proceed || !v.Failed || v.Latency != time.Second {
			t.Errorf("%+v", v)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if v := j.Judge(gone, request(`{"n":2}`)); v.Decision != Escalate || !v.Failed {
			t.Errorf("%+v", v)
		}
		time.Sleep(DefaultTimeout)
	})
}

func TestACallTooLargeToBeShownIsEscalated(t *testing.T) {
	a := &counted{Asker: says("proceed")}
	j := newJudge(t, a)
	r := request(`{"rows":[` + strings.TrimSuffix(strings.Repeat(`"aaaaaaaaaaaaaaaaaaaaaaaa",`, 3000), ",") + `]}`)
	if v := j.Judge(t.Context(), r); v.Decision != Escalate || v.Failed || a.n.Load() != 0 {
		t.Errorf("%+v", v)
	}
	if v := j.Judge(t.Context(), request(`{"text":"`+strings.Repeat("word ", 20_000)+`"}`)); v.Decision != Proceed || v.Failed {
		t.Errorf("one long text: %+v", v)
	}
}

func TestBadConfigurations(t *testing.T) {
	ok := says("proceed")
	for _, c := range []Config{
		{}, {Asker: ok}, {Model: "m"}, {Asker: ok, Model: "m", Timeout: -1}, {Asker: ok, Model: "m", Cooldown: -1}, {Asker: ok, Model: "m", CacheTTL: -1},
		{Asker: ok, Model: "m", Threshold: -1}, {Asker: ok, Model: "m", Cache: -1}, {Asker: ok, Model: "m", InFlight: -1}, {Asker: ok, Model: "m", InputUSD: -1},
	} {
		if j, err := New(c); err == nil || j != nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestConcurrentQuestions(t *testing.T) {
	a := &counted{Asker: says("proceed")}
	j := newJudge(t, a, func(c *Config) { c.InFlight = 64 })
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := range 20 {
				if v := j.Judge(t.Context(), request(fmt.Sprintf(`{"n":%d}`, (i+n)%10))); v.Failed || v.Decision != Proceed {
					t.Errorf("%+v", v)
				}
			}
		})
	}
	wg.Wait()
	// A verdict is remembered before its flight ends, so that each question is
	// asked once but for the moment between the two.
	if s := j.Stats(); s.Calls != 640 || s.Requests != a.n.Load() || s.Requests > 60 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkRemembered(b *testing.B) {
	j := newJudge(b, says("proceed"))
	r := request(`{"to":"x@example.com","subject":"hello","body":"some text of a few words"}`)
	j.Judge(b.Context(), r)
	b.ReportAllocs()
	for b.Loop() {
		if v := j.Judge(b.Context(), r); !v.Cached {
			b.Fatal(v)
		}
	}
}
