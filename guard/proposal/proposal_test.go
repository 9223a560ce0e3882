package proposal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/audittest"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// The test binary runs itself as another process that takes the proposal
// CORDON_TEST_TAKE of the file CORDON_TEST_DB.
func TestMain(m *testing.M) {
	if id := os.Getenv("CORDON_TEST_TAKE"); id != "" {
		if err := takeAsChild(id, os.Getenv("CORDON_TEST_DB")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func takeAsChild(id, path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	b, err := New(Config{Store: s})
	if err != nil {
		return err
	}
	a, err := b.Take(ctx, id, bound(`{"to":"x"}`), "child")
	if err != nil {
		return err
	}
	if a.OK {
		fmt.Println("taken")
	} else {
		fmt.Println(a.Why)
	}
	return s.Close()
}

func args(s string) *strictjson.Value {
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		panic(err)
	}
	return &v
}

// bound is the binding of the tests' call with these arguments.
func bound(s string) audit.Binding {
	return audit.Binding{TenantID: "t1", RunID: "r1", AgentID: "a1", Server: "mail", Tool: "send_email",
		ArgsHash: HashArgs("r1", args(s)), ToolHash: "d1", PolicyHash: "p1"}
}

func request(s string) Request {
	return Request{Binding: bound(s), Args: args(s), Reason: "from a web page"}
}

// clock is a clock that the test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func book(t *testing.T) (*Book, *clock, *audittest.Store) {
	t.Helper()
	c, s := &clock{t: time.Unix(1_700_000_000, 0)}, &audittest.Store{}
	b, err := New(Config{Store: s, Now: c.now, PerRun: 3, PerTenant: 5})
	if err != nil {
		t.Fatal(err)
	}
	return b, c, s
}

func propose(t *testing.T, b *Book, s string) audit.Proposal {
	t.Helper()
	p, err := b.Propose(t.Context(), request(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func approved(t *testing.T, b *Book, s string) audit.Proposal {
	t.Helper()
	p := propose(t, b, s)
	if err := b.Resolve(t.Context(), p.ID, true, "ann at cli"); err != nil {
		t.Fatal(err)
	}
	return p
}

func take(t *testing.T, b *Book, id string, call audit.Binding) Answer {
	t.Helper()
	a, err := b.Take(t.Context(), id, call, "call 1")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnApprovalServesOnce(t *testing.T) {
	b, _, s := book(t)
	p := propose(t, b, `{"to":"x"}`)
	call := bound(`{ "to" : "x" }`) // the same arguments, spelled otherwise
	if a := take(t, b, p.ID, call); a.OK || !strings.Contains(a.Why, "not answered") {
		t.Errorf("pending: %+v", a)
	}
	if err := b.Resolve(t.Context(), p.ID, true, "ann at cli"); err != nil {
		t.Fatal(err)
	}
	if a, err := b.Check(t.Context(), p.ID, call); err != nil || !a.OK {
		t.Errorf("check: %+v, %v", a, err)
	}
	if id, ok, err := b.Approved(t.Context(), call); err != nil || !ok || id != p.ID {
		t.Error(id, ok, err)
	}
	if a := take(t, b, p.ID, call); !a.OK {
		t.Errorf("first: %+v", a)
	}
	if a := take(t, b, p.ID, call); a.OK || !strings.Contains(a.Why, "serves once") {
		t.Errorf("second: %+v", a)
	}
	if _, ok, err := b.Approved(t.Context(), call); err != nil || ok {
		t.Error("an approval that was taken up is found again", err)
	}
	if err := b.Done(t.Context(), p.ID, true); err != nil {
		t.Fatal(err)
	}
	if a := take(t, b, p.ID, call); a.OK {
		t.Error("taken up after it failed")
	}
	_, events, ok, err := b.Get(t.Context(), p.ID)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	var story []string
	for _, v := range events {
		story = append(story, string(v.State)+" by "+v.By)
		if v.At.IsZero() {
			t.Errorf("%s without a time", v.State)
		}
	}
	want := []string{"pending by cordon", "approved by ann at cli", "executed by call 1", "failed by cordon"}
	if d := cmp.Diff(want, story); d != "" {
		t.Error(d)
	}
	if r, err := s.Verify(t.Context()); err != nil || !r.OK {
		t.Error(r, err)
	}
}

func TestWhateverDiffersIsAnotherCallAndIsNamed(t *testing.T) {
	tests := []struct {
		name   string
		change func(*audit.Binding)
		want   []string
	}{
		{"another tenant", func(b *audit.Binding) { b.TenantID = "t2" }, []string{"tenant"}},
		{"another run", func(b *audit.Binding) { b.RunID = "r2" }, []string{"run"}},
		{"another agent", func(b *audit.Binding) { b.AgentID = "" }, []string{"agent"}},
		{"another server", func(b *audit.Binding) { b.Server = "mail2" }, []string{"server"}},
		{"another tool", func(b *audit.Binding) { b.Tool = "send_mail" }, []string{"tool"}},
		{"other arguments", func(b *audit.Binding) { b.ArgsHash = HashArgs("r1", args(`{"to":"y"}`)) }, []string{"arguments"}},
		{"another argument beside", func(b *audit.Binding) { b.ArgsHash = HashArgs("r1", args(`{"to":"x","cc":"y"}`)) }, []string{"arguments"}},
		{"a number for a text", func(b *audit.Binding) { b.ArgsHash = HashArgs("r1", args(`{"to":1}`)) }, []string{"arguments"}},
		{"another definition of the tool", func(b *audit.Binding) { b.ToolHash = "d2" }, []string{"tool definition"}},
		{"a policy that changed", func(b *audit.Binding) { b.PolicyHash = "p2" }, []string{"policy"}},
		{"several", func(b *audit.Binding) { b.ToolHash, b.PolicyHash = "", "" }, []string{"tool definition", "policy"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, _, _ := book(t)
			p := approved(t, b, `{"to":"x"}`)
			call := bound(`{"to":"x"}`)
			tt.change(&call)
			a := take(t, b, p.ID, call)
			if d := cmp.Diff(tt.want, a.Differs); a.OK || d != "" {
				t.Errorf("ok %v, differs %s", a.OK, d)
			}
			if !strings.Contains(a.Why, tt.want[0]) {
				t.Errorf("why %q", a.Why)
			}
			if call.TenantID != "t1" && !cmp.Equal(a.Proposal, audit.Proposal{}) {
				t.Error("another tenant's proposal is shown")
			}
			if f := a.Finding(); f.Outcome == cordon.Allowed || f.Phase != cordon.PhaseProvenance {
				t.Errorf("%+v", f)
			}
			if _, ok, err := b.Approved(t.Context(), call); err != nil || ok {
				t.Error("found for the other call too", err)
			}
			if a := take(t, b, p.ID, bound(`{"to":"x"}`)); !a.OK {
				t.Errorf("the approval was used up by another call: %+v", a)
			}
		})
	}
}

func TestSecretsInTheArgumentsAreBoundAndNotShown(t *testing.T) {
	b, _, _ := book(t)
	p := approved(t, b, `{"to":"x","password":"zebra99"}`)
	if strings.Contains(p.Args, "zebra99") || !strings.Contains(p.Args, audit.Mark) {
		t.Errorf("shown: %s", p.Args)
	}
	if a := take(t, b, p.ID, bound(`{"to":"x","password":"zebra98"}`)); a.OK {
		t.Error("another secret is the same call")
	}
	if a := take(t, b, p.ID, bound(`{"to":"x","password":"zebra99"}`)); !a.OK {
		t.Error(a.Why)
	}
}

func TestWhatIsShownHidesNothing(t *testing.T) {
	b, _, _ := book(t)
	long := strings.Repeat("a", 20<<10)
	r := request("{\"body\":\"" + long + "\",\"text\":\"\\u001b[2Jbye\u2800\",\"to\":\"x\u202egnp.exe\u200b\"}")
	r.Reason = "line\nbreak \x1b[31m token=zebra99" + long
	p, err := b.Propose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{p.Args, p.Reason} {
		if strings.ContainsAny(s, "\u202e\u200b\u2800\x1b\n") || strings.Contains(s, "zebra99") || len(s) > 8<<10 {
			t.Errorf("shown (%d bytes): %.200q", len(s), s)
		}
	}
	// A long value must not push the recipient out of sight.
	if !strings.Contains(p.Args, `"to":"x\u{202e}gnp.exe\u{200b}"`) || !strings.Contains(p.Args, "bytes are not shown") || p.ArgsBytes < int64(len(long)) {
		t.Errorf("%d bytes are said, shown %q", p.ArgsBytes, p.Args)
	}
	many := request("{\"rows\":[\"" + strings.TrimSuffix(strings.Repeat("aaaaaaaaaaaaaaaa\",\"", 1000), ",\"") + "]}")
	if p, err = b.Propose(t.Context(), many); err != nil || !strings.HasSuffix(p.Args, "…[cut]") || len(p.Args) > 8<<10 {
		t.Errorf("many values: %d bytes, %v", len(p.Args), err)
	}
}

func TestTheSameCallAgainIsTheSameProposal(t *testing.T) {
	b, c, _ := book(t)
	p := propose(t, b, `{"to":"x"}`)
	if again := propose(t, b, `{"to":"x"}`); again.ID != p.ID || again.State != audit.ProposalPending {
		t.Errorf("while it waits: %s %s", again.ID, again.State)
	}
	if err := b.Resolve(t.Context(), p.ID, false, "ann"); err != nil {
		t.Fatal(err)
	}
	if again := propose(t, b, `{"to":"x"}`); again.ID != p.ID || again.State != audit.ProposalRejected {
		t.Errorf("after a no: %s %s", again.ID, again.State)
	}
	c.pass(DefaultTTL)
	later := propose(t, b, `{"to":"x"}`)
	if later.ID == p.ID || later.State != audit.ProposalPending {
		t.Errorf("much later: %s %s", later.ID, later.State)
	}
	if other := propose(t, b, `{"to":"y"}`); other.ID == later.ID {
		t.Error("another call is the same proposal")
	}
	approve := approved(t, b, `{"to":"z"}`)
	if again := propose(t, b, `{"to":"z"}`); again.ID != approve.ID || again.State != audit.ProposalApproved {
		t.Errorf("after a yes: %s %s", again.ID, again.State)
	}
}

func TestAFloodOfProposalsIsRefusedAndDropsNone(t *testing.T) {
	b, c, _ := book(t)
	first := propose(t, b, `{"n":0}`)
	propose(t, b, `{"n":1}`)
	propose(t, b, `{"n":2}`)
	if _, err := b.Propose(t.Context(), request(`{"n":3}`)); !errors.Is(err, ErrTooMany) {
		t.Errorf("a fourth of the run: %v", err)
	}
	for run := range 4 {
		r := request(`{}`)
		r.Binding.RunID = fmt.Sprint("other", run)
		if _, err := b.Propose(t.Context(), r); (err != nil) != (run >= 2) {
			t.Errorf("the tenant's run %d: %v", run, err)
		}
	}
	if p, _, _, err := b.Get(t.Context(), first.ID); err != nil || p.State != audit.ProposalPending {
		t.Error("the oldest was dropped", err)
	}
	c.pass(DefaultTTL)
	propose(t, b, `{"n":3}`)
}

func TestProposalsAndApprovalsExpire(t *testing.T) {
	b, c, s := book(t)
	call := bound(`{"to":"x"}`)
	p := propose(t, b, `{"to":"x"}`)
	c.pass(DefaultTTL)
	var late *StateError
	if err := b.Resolve(t.Context(), p.ID, true, "ann"); !errors.As(err, &late) || late.State != audit.ProposalExpired {
		t.Errorf("approved too late: %v", err)
	}
	p = propose(t, b, `{"to":"x"}`)
	c.pass(DefaultTTL - time.Second)
	if err := b.Resolve(t.Context(), p.ID, true, "ann"); err != nil {
		t.Fatal(err)
	}
	c.pass(DefaultTTL - time.Second) // from the answer on
	if a, err := b.Check(t.Context(), p.ID, call); err != nil || !a.OK {
		t.Errorf("a second before: %+v %v", a, err)
	}
	c.pass(time.Second)
	for range 2 {
		if a := take(t, b, p.ID, call); a.OK || !strings.Contains(a.Why, "expired") {
			t.Errorf("too late: %+v", a)
		}
	}
	if _, ok, err := b.Approved(t.Context(), call); err != nil || ok {
		t.Error("found after its time", err)
	}
	list, err := b.List(t.Context(), audit.ProposalFilter{State: audit.ProposalExpired, Limit: 5})
	if err != nil || len(list) != 2 {
		t.Error(len(list), err)
	}
	if list, err = b.List(t.Context(), audit.ProposalFilter{State: audit.ProposalApproved}); err != nil || len(list) != 0 {
		t.Error(len(list), err)
	}
	if r, err := s.Verify(t.Context()); err != nil || !r.OK {
		t.Error(r, err)
	}
}

// A taker that looked in time and moves too late gets nothing.
func TestAnApprovalThatExpiresWhileItIsTakenIsRefused(t *testing.T) {
	b, c, _ := book(t)
	p := approved(t, b, `{"to":"x"}`)
	inner := b.cfg.Store
	b.cfg.Store = slow{inner, func() { c.pass(DefaultTTL) }}
	if a := take(t, b, p.ID, bound(`{"to":"x"}`)); a.OK || a.Proposal.State != audit.ProposalExpired {
		t.Errorf("%+v", a)
	}
}

// slow does something after each read.
type slow struct {
	Store
	after func()
}

func (s slow) Proposal(ctx context.Context, id string) (audit.Proposal, bool, error) {
	p, ok, err := s.Store.Proposal(ctx, id)
	s.after()
	return p, ok, err
}

func TestAnApprovalThatIsWithdrawnWhileItIsTakenIsRefused(t *testing.T) {
	b, _, _ := book(t)
	p := approved(t, b, `{"to":"x"}`)
	other := *b
	b.cfg.Store = slow{b.cfg.Store, func() {
		if err := other.Cancel(t.Context(), p.ID, "ann", "changed my mind"); err != nil {
			t.Error(err)
		}
	}}
	if a := take(t, b, p.ID, bound(`{"to":"x"}`)); a.OK || !strings.Contains(a.Why, "cancelled") {
		t.Errorf("%+v", a)
	}
}

func TestAnswersThatCannotBeGiven(t *testing.T) {
	b, _, _ := book(t)
	p := propose(t, b, `{"to":"x"}`)
	rejected := propose(t, b, `{"to":"y"}`)
	if err := b.Resolve(t.Context(), rejected.ID, false, "ann"); err != nil {
		t.Fatal(err)
	}
	isState := func(err error) bool { var s *StateError; return errors.As(err, &s) }
	tests := []struct {
		name string
		do   func() error
		want func(error) bool
	}{
		{"nobody is named", func() error { return b.Resolve(t.Context(), p.ID, true, " \t") }, func(err error) bool { return strings.Contains(err.Error(), "nobody") }},
		{"the agent itself", func() error { return b.Resolve(t.Context(), p.ID, true, " A1 ") }, func(err error) bool { return strings.Contains(err.Error(), "cannot approve") }},
		{"an unknown id", func() error { return b.Resolve(t.Context(), "prop-x", true, "ann") }, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		{"an empty id", func() error { return b.Resolve(t.Context(), "", false, "ann") }, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		{"yes after no", func() error { return b.Resolve(t.Context(), rejected.ID, true, "bob") }, isState},
		{"no after no", func() error { return b.Resolve(t.Context(), rejected.ID, false, "bob") }, isState},
		{"done without being taken", func() error { return b.Done(t.Context(), p.ID, true) }, func(err error) bool { return strings.Contains(err.Error(), "pending") }},
		{"done of an unknown one", func() error { return b.Done(t.Context(), "prop-x", true) }, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		{"an unknown one is withdrawn", func() error { return b.Cancel(t.Context(), "prop-x", "ann", "") }, func(err error) bool { return errors.Is(err, ErrUnknown) }},
		{"a rejected one is withdrawn", func() error { return b.Cancel(t.Context(), rejected.ID, "ann", "") }, isState},
		{"no arguments", func() error {
			_, err := b.Propose(t.Context(), Request{Binding: bound(`{}`)})
			return err
		}, func(err error) bool { return err != nil }},
		{"a call of a run without a name", func() error {
			r := request(`{}`)
			r.Binding.RunID = ""
			_, err := b.Propose(t.Context(), r)
			return err
		}, func(err error) bool { return strings.Contains(err.Error(), "run id") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(); err == nil || !tt.want(err) {
				t.Errorf("error %v", err)
			}
		})
	}
	if got, _, _, err := b.Get(t.Context(), p.ID); err != nil || got.State != audit.ProposalPending {
		t.Error(got.State, err)
	}
	if a := take(t, b, "prop-unknown", bound(`{}`)); a.OK || a.Why == "" {
		t.Errorf("%+v", a)
	}
}

func TestARunThatEndsTakesItsProposalsWithIt(t *testing.T) {
	b, _, _ := book(t)
	p, q := propose(t, b, `{"to":"x"}`), approved(t, b, `{"to":"y"}`)
	r := request(`{}`)
	r.Binding.RunID = "r2"
	other, err := b.Propose(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.CancelRun(t.Context(), "r1", "tripwire", "killed"); err != nil || n != 2 {
		t.Error(n, err)
	}
	for id, want := range map[string]audit.ProposalState{p.ID: audit.ProposalCancelled, q.ID: audit.ProposalCancelled, other.ID: audit.ProposalPending} {
		if got, _, _, err := b.Get(t.Context(), id); err != nil || got.State != want {
			t.Error(got.State, want, err)
		}
	}
}

func TestIDsAreLongAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := newID()
		if len(id) < 30 || seen[id] {
			t.Fatal(id)
		}
		seen[id] = true
	}
}

func TestAStoreThatFailsAdmitsNothing(t *testing.T) {
	b, _, s := book(t)
	p := approved(t, b, `{"to":"x"}`)
	full := errors.New("disk is full")
	for _, op := range []string{"Proposal", "MoveProposal"} {
		s.FailWith(func(o string) error {
			if o == op {
				return full
			}
			return nil
		})
		if a, err := b.Take(t.Context(), p.ID, bound(`{"to":"x"}`), "c"); a.OK || !errors.Is(err, full) {
			t.Errorf("%s: %+v %v", op, a, err)
		}
	}
	s.FailWith(nil)
	if a := take(t, b, p.ID, bound(`{"to":"x"}`)); !a.OK {
		t.Error("the failure used the approval up")
	}
}

func TestBadConfigurations(t *testing.T) {
	s := &audittest.Store{}
	for _, c := range []Config{{}, {Store: s, TTL: -1}, {Store: s, TTL: time.Millisecond}, {Store: s, TTL: 365 * 24 * time.Hour}, {Store: s, PerRun: -1}, {Store: s, PerTenant: -1}} {
		if b, err := New(c); err == nil || b != nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestOfSeveralProcessesThatTakeAnApprovalOneGetsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	s, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	p := approved(t, b, `{"to":"x"}`)
	if err := s.Close(); err != nil { // a restart lies between
		t.Fatal(err)
	}
	outs := make([]string, 4)
	var wg sync.WaitGroup
	for i := range outs {
		wg.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), "CORDON_TEST_TAKE="+p.ID, "CORDON_TEST_DB="+path)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			outs[i] = strings.TrimSpace(string(out))
		})
	}
	wg.Wait()
	taken := 0
	for _, o := range outs {
		switch {
		case o == "taken":
			taken++
		case !strings.Contains(o, "serves once"):
			t.Errorf("a loser was told %q", o)
		}
	}
	if taken != 1 {
		t.Errorf("%d took it: %q", taken, outs)
	}
}
