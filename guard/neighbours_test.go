package guard_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/proposal"
)

func TestTheCallersOwnDoubtsHoldItBack(t *testing.T) {
	mail := func(to string) cordon.Plan {
		return cordon.Plan{Tool: "send_email", Args: json.RawMessage(`{"subject":"s","to":"` + to + `"}`)}
	}
	plans := func(bob, eve int) (all []cordon.Plan) {
		for range bob {
			all = append(all, mail("bob@corp.example"))
		}
		for range eve {
			all = append(all, mail("eve@corp.example"))
		}
		return all
	}
	read := cordon.Plan{Tool: "Read", Args: json.RawMessage(`{"file_path":"src/main.py"}`)}
	otherServer := mail("bob@corp.example")
	otherServer.Server = "elsewhere"
	for _, c := range []struct {
		name    string
		call    cordon.Plan
		samples []cordon.Plan
		match   *cordon.Match
		want    string // the rule; empty is allowed
	}{
		{"no samples were drawn", mail("bob@corp.example"), nil, nil, ""},
		{"all samples agree", mail("bob@corp.example"), plans(5, 0), nil, ""},
		{"half of the samples agree", mail("bob@corp.example"), append(plans(2, 1), read), nil, ""},
		{"fewer than half agree", mail("bob@corp.example"), append(plans(2, 1), read, cordon.Plan{}), nil, "voter.ambiguous"},
		{"most samples are another call", mail("bob@corp.example"), plans(1, 4), nil, "voter.other_call"},
		{"a tie", mail("bob@corp.example"), plans(2, 2), nil, "voter.ambiguous"},
		{"an empty list", mail("bob@corp.example"), []cordon.Plan{}, nil, "voter.samples"},
		{"one sample", mail("bob@corp.example"), plans(1, 0), nil, "voter.samples"},
		{"too many samples", mail("bob@corp.example"), plans(65, 0), nil, "voter.samples"},
		{"far too many samples", mail("bob@corp.example"), plans(5000, 0), nil, "voter.samples"},
		{"samples of another server", mail("bob@corp.example"), []cordon.Plan{otherServer, otherServer}, nil, "voter.other_call"},
		{"samples that cannot be read", mail("bob@corp.example"), []cordon.Plan{{}, {Tool: "send_email", Args: json.RawMessage(`[`)}}, nil, "voter.ambiguous"},
		{"a read on which no two agree", read, plans(1, 1), nil, ""},
		{"one element at once", mail("bob@corp.example"), nil, &cordon.Match{Matches: 1}, ""},
		{"two elements", mail("bob@corp.example"), nil, &cordon.Match{Matches: 2}, ""},
		{"two elements by their text, late", mail("bob@corp.example"), nil, &cordon.Match{Matches: 2, TextOnly: true, Found: 1001 * time.Millisecond}, "matchconf.ambiguous"},
		{"three elements", mail("bob@corp.example"), nil, &cordon.Match{Matches: 3}, "matchconf.ambiguous"},
		{"no element", mail("bob@corp.example"), nil, &cordon.Match{}, "matchconf.no_match"},
		{"fewer than no element", mail("bob@corp.example"), nil, &cordon.Match{Matches: -3}, "matchconf.no_match"},
		{"no element for a read", read, nil, &cordon.Match{}, "matchconf.no_match"},
		{"three elements for a read", read, nil, &cordon.Match{Matches: 3}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			d := r.Decide(t.Context(), cordon.Call{Run: r.autonomous("r1"), Tool: c.call.Tool, Args: c.call.Args, Samples: c.samples, Match: c.match})
			want := cordon.Restricted
			if c.want == "" {
				want = cordon.Allowed
			}
			if d.Outcome != want || !strings.Contains(rules(d), c.want) || (d.Proposal != "") != (c.want != "") {
				t.Fatalf("%v, proposal %q: %s, want %v %q", d.Outcome, d.Proposal, rules(d), want, c.want)
			}
			rows, err := r.store.Violations(t.Context(), audit.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if held := c.want != ""; held != (len(rows) == 1) || held && !strings.Contains(rows[0].MetadataJSON, c.want) {
				t.Errorf("rows %+v", rows)
			}
		})
	}
}

func TestDoubtsNeverLoosen(t *testing.T) {
	sure := &cordon.Match{Matches: 1}
	for _, c := range []struct {
		name string
		call cordon.Call
	}{
		{"a secret", cordon.Call{Tool: "Read", Args: json.RawMessage(`{"file_path":"out/id_rsa"}`)}},
		{"a taint", cordon.Call{Tool: "send_email", Args: json.RawMessage(`{"to":"x@evil.example"}`)}},
	} {
		r := mailRig(t, nil)
		c.call.Run = r.autonomous("r1")
		plain := r.Decide(t.Context(), c.call)
		r = mailRig(t, nil)
		c.call.Run = r.autonomous("r1")
		p := cordon.Plan{Tool: c.call.Tool, Args: c.call.Args}
		c.call.Samples, c.call.Match = []cordon.Plan{p, p, p}, sure
		if d := r.Decide(t.Context(), c.call); d.Outcome != plain.Outcome || d.Outcome == cordon.Allowed || d.Killed != plain.Killed {
			t.Errorf("%s: %v with doubts cleared, %v without: %s", c.name, d.Outcome, plain.Outcome, rules(d))
		}
	}
}

func TestAFloodOfProposalsIsRefusedAndNobodyIsAskedTwice(t *testing.T) {
	r := mailRig(t, nil)
	asked := map[string]bool{}
	for i := range 30 {
		d := r.mail(t, "r1", "x"+strings.Repeat("x", i)+"@evil.example", "")
		if d.Outcome != cordon.Restricted || strings.Contains(rules(d), "malfunction") {
			t.Fatalf("call %d: %v %s", i, d.Outcome, rules(d))
		}
		if d.Proposal == "" && !strings.Contains(rules(d), "proposal.too_many") {
			t.Fatalf("call %d is not said to be one too many: %s", i, rules(d))
		}
		asked[d.Proposal] = true
	}
	if delete(asked, ""); len(asked) != proposal.DefaultPerRun {
		t.Errorf("%d proposals wait, want %d", len(asked), proposal.DefaultPerRun)
	}
}
