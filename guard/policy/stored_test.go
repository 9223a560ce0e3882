package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
)

// rows is a store of run rows as the audit keeps them.
type rows struct {
	mu   sync.Mutex
	rows map[string][]byte
}

func (s *rows) put(t *testing.T, p *Policy) {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[p.RunID()] = b
}

func (s *rows) lookup(id string) (Stored, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.rows[id]
	if !ok {
		return Stored{}, false, nil
	}
	var st Stored
	err := json.Unmarshal(b, &st)
	return st, true, err
}

func TestW12ARestartKeepsARunsPolicy(t *testing.T) {
	store := &rows{rows: map[string][]byte{}}
	c := baseConfig()
	c.Lookup = store.lookup
	first := issue(t, issuer(t, c), cordon.Run{ID: "r", Tier: cordon.Student, Profile: Atom, Workspace: "/ws", Home: "/h", Tenant: "acme", Session: "s"})
	store.put(t, first)

	second := issue(t, issuer(t, c), cordon.Run{ID: "r", Tier: cordon.Autonomous, Profile: Coding, Workspace: "/other", Home: "/root", Session: "s2"})
	if d := cmp.Diff(first.Stored(), second.Stored()); d != "" {
		t.Errorf("after the restart (-before +after):\n%s", d)
	}
	if _, err := issuer(t, c).Issue(cordon.Run{ID: "r", Tenant: "globex"}); !errors.Is(err, ErrOtherTenant) {
		t.Errorf("another tenant: error %v", err)
	}

	c.Caps.ToolCalls = 7
	third := issue(t, issuer(t, c), cordon.Run{ID: "r", Tier: cordon.Autonomous})
	if third.Tier() != cordon.Student || third.Version() != 2 || third.ID() == first.ID() || third.Caps().ToolCalls != 7 {
		t.Errorf("after a change of configuration: tier %s, version %d, caps %v", third.Tier(), third.Version(), third.Caps())
	}
}

func TestW5TheRunThatWasStoredFirstIsRight(t *testing.T) {
	store := &rows{rows: map[string][]byte{}}
	c := baseConfig()
	c.Lookup = store.lookup
	theirs, ours := issuer(t, c), issuer(t, c)
	first := issue(t, theirs, cordon.Run{ID: "r", Tier: cordon.Student, Workspace: "/ws"})
	late := issue(t, ours, cordon.Run{ID: "r", Tier: cordon.Autonomous, Workspace: "/other"})
	if late.Tier() != cordon.Autonomous {
		t.Fatal("the two did not open the run at the same moment: the test shows nothing")
	}
	p, err := ours.Adopt("r", first.Stored())
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]*Policy{
		"adopted": p, "issued after": issue(t, ours, cordon.Run{ID: "r", Tier: cordon.Autonomous, Workspace: "/other"}),
	} {
		if d := cmp.Diff(first.Stored(), got.Stored()); d != "" {
			t.Errorf("%s (-stored +ours):\n%s", what, d)
		}
	}
	if _, err := ours.Adopt("r", Stored{Profile: "none"}); err == nil || issue(t, ours, cordon.Run{ID: "r"}).Tier() != cordon.Student {
		t.Errorf("a damaged row was adopted: %v", err)
	}
	// A run that this issuer does not hold is looked up when it comes.
	if _, err := ours.Adopt("other", first.Stored()); err != nil {
		t.Error(err)
	}
	if p := issue(t, ours, cordon.Run{ID: "other", Tier: cordon.Intern}); p.Tier() != cordon.Intern {
		t.Errorf("tier %v", p.Tier())
	}
}

func TestAnEvictedRunComesBackWithItsOwnTier(t *testing.T) {
	store := &rows{rows: map[string][]byte{}}
	c := baseConfig()
	c.Lookup, c.MaxRuns = store.lookup, 4
	is := issuer(t, c)
	store.put(t, issue(t, is, cordon.Run{ID: "victim", Tier: cordon.Student}))
	for i := range 20 {
		store.put(t, issue(t, is, cordon.Run{ID: fmt.Sprint("flood-", i), Tier: cordon.Student}))
		if len(is.runs) > 4 || is.recent.Len() != len(is.runs) {
			t.Fatalf("%d runs are kept, %d in order", len(is.runs), is.recent.Len())
		}
	}
	if p := issue(t, is, cordon.Run{ID: "victim", Tier: cordon.Autonomous}); p.Tier() != cordon.Student {
		t.Errorf("the run came back as %s", p.Tier())
	}
}

func TestARunInUseIsNotTheOneThatIsDropped(t *testing.T) {
	c := baseConfig()
	c.MaxRuns = 3
	c.Lookup = func(string) (Stored, bool, error) { return Stored{}, false, nil }
	is := issuer(t, c)
	first := issue(t, is, cordon.Run{ID: "busy"})
	for i := range 10 {
		issue(t, is, cordon.Run{ID: fmt.Sprint("other-", i)})
		if issue(t, is, cordon.Run{ID: "busy"}) != first {
			t.Fatalf("the run was dropped after %d others", i+1)
		}
	}
}

func TestWithoutALookupNoRunIsForgottenAndTheTableStaysBounded(t *testing.T) {
	c := baseConfig()
	c.MaxRuns = 2
	is := issuer(t, c)
	first := issue(t, is, cordon.Run{ID: "a", Tier: cordon.Student})
	issue(t, is, cordon.Run{ID: "b"})
	if _, err := is.Issue(cordon.Run{ID: "c"}); err == nil || !strings.Contains(err.Error(), "2 runs") {
		t.Errorf("error %v", err)
	}
	if p := issue(t, is, cordon.Run{ID: "a", Tier: cordon.Autonomous}); p != first {
		t.Error("the first run was forgotten")
	}
	issue(t, is, cordon.Run{})
}

func TestAFailedLookupIssuesNothingAndIsTriedAgain(t *testing.T) {
	broken := errors.New("disk is full")
	c := baseConfig()
	c.Lookup = func(string) (Stored, bool, error) { return Stored{}, false, broken }
	is := issuer(t, c)
	if p, err := is.Issue(cordon.Run{ID: "r"}); p != nil || !errors.Is(err, broken) {
		t.Errorf("got %v, %v", p, err)
	}
	broken = nil
	issue(t, is, cordon.Run{ID: "r"})
}

func TestAPanicInLookupLeavesNoOneWaiting(t *testing.T) {
	c := baseConfig()
	panics := true
	c.Lookup = func(string) (Stored, bool, error) {
		if panics {
			panic("driver bug")
		}
		return Stored{}, false, nil
	}
	is := issuer(t, c)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = is.Issue(cordon.Run{ID: "r"})
	}()
	panics = false
	issue(t, is, cordon.Run{ID: "r"})
}

func TestDamagedRowsAreErrorsOrStudents(t *testing.T) {
	c := baseConfig()
	var row string
	c.Lookup = func(string) (Stored, bool, error) {
		var s Stored
		err := json.Unmarshal([]byte(row), &s)
		return s, true, err
	}
	is := issuer(t, c)
	for _, bad := range []string{`{}`, `[]`, `{"tier":3,"profile":"coding"}`, `{"tier":"student","profile":"x"}`,
		`{"tier":"student","profile":"coding","workspace":"../x"}`} {
		row = bad
		if p, err := is.Issue(cordon.Run{ID: "r", Tier: cordon.Autonomous, Profile: Coding}); err == nil {
			t.Errorf("row %s gave a policy of tier %s", row, p.Tier())
		}
	}
	row = `{"tier":"root","profile":"coding"}`
	if p := issue(t, is, cordon.Run{ID: "r", Tier: cordon.Autonomous}); p.Tier() != cordon.Student || p.Version() != 1 {
		t.Errorf("tier %s, version %d", p.Tier(), p.Version())
	}
}

func TestManyTemplatesStayBounded(t *testing.T) {
	is := issuer(t, baseConfig())
	for i := range maxGrants + 10 {
		p := issue(t, is, cordon.Run{Tenant: fmt.Sprint("t", i), Tier: cordon.Supervised})
		if p.Tenant() != fmt.Sprint("t", i) {
			t.Fatalf("tenant %q", p.Tenant())
		}
	}
	if len(is.grants) > maxGrants {
		t.Errorf("%d grants are kept", len(is.grants))
	}
}

func FuzzIssueNeverPanicsAndKeepsRootsAbsolute(f *testing.F) {
	f.Add("r1", "acme", "/ws", "/home/kim", "coding", uint8(2))
	f.Add("..", "a\x00", "ws", "~", "", uint8(9))
	f.Add("", "", "/a/../b", "//", "atom", uint8(1))
	is, err := NewIssuer(baseConfig())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, tenant, workspace, home, profile string, tier uint8) {
		p, err := is.Issue(cordon.Run{Tenant: tenant, Workspace: workspace, Home: home, Profile: profile, Tier: cordon.Tier(tier)})
		idErr := CheckRunID(id)
		if idErr == nil && strings.ContainsAny(id, "/\x00 ") {
			t.Fatalf("id %q passed", id)
		}
		if err != nil {
			return
		}
		for _, r := range p.Roots() {
			if checkPath("root", r.Path) != nil || r.Path == "/" {
				t.Fatalf("root %q", r.Path)
			}
		}
		if p.Tier() > cordon.Autonomous || len(p.Hosts()) > 0 && p.Tier() < cordon.Supervised {
			t.Fatalf("tier %s has hosts %q", p.Tier(), p.Hosts())
		}
	})
}

func BenchmarkIssueAnonymous(b *testing.B) {
	for _, tier := range []cordon.Tier{cordon.Intern, cordon.Supervised} {
		b.Run(tier.String(), func(b *testing.B) {
			is := issuer(b, baseConfig())
			r := cordon.Run{Tier: tier, Workspace: "/home/kim/project", Home: "/home/kim", Agent: "agent", Session: "0d9f"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := is.Issue(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIssueNamedAgain(b *testing.B) {
	is := issuer(b, baseConfig())
	r := cordon.Run{ID: "job-7", Tier: cordon.Supervised, Workspace: "/home/kim/project"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := is.Issue(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllowsTool(b *testing.B) {
	c := baseConfig()
	c.AllowTools = []string{"meteo/get"}
	p := issue(b, issuer(b, c), cordon.Run{Tier: cordon.Student, Workspace: "/ws"})
	b.ReportAllocs()
	for b.Loop() {
		if !p.AllowsTool(Unknown, "", "mcp__meteo__get") {
			b.Fatal("refused")
		}
	}
}

func TestIssuedAtIsNow(t *testing.T) {
	before := time.Now().Add(-time.Minute)
	p := issue(t, issuer(t, baseConfig()), cordon.Run{})
	if p.IssuedAt().Before(before) || p.IssuedAt().Location() != time.UTC {
		t.Errorf("issued at %v", p.IssuedAt())
	}
}
