package voter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func plan(args string) Plan { return Plan{Server: "mail", Tool: "send", Args: json.RawMessage(args)} }

// plans are n times each.
func plans(of map[string]int, order ...string) (ps []Plan) {
	for _, args := range order {
		for range of[args] {
			ps = append(ps, plan(args))
		}
	}
	return ps
}

func TestVote(t *testing.T) {
	const a, b, c = `{"to":"x","n":1}`, `{"to":"y"}`, `{"to":"z"}`
	tests := []struct {
		name    string
		call    Plan
		samples []Plan
		level   Level
		votes   int
		rule    string
	}{
		{"all agree", plan(a), plans(map[string]int{a: 5}, a), High, 5, ""},
		{"all agree, spelled otherwise", plan(`{ "n":1 , "to":"\u0078"}`), plans(map[string]int{a: 5}, a), High, 5, ""},
		{"17 of 20 are exactly enough", plan(a), plans(map[string]int{a: 17, b: 3}, a, b), High, 17, ""},
		{"16 of 19 are just too few", plan(a), plans(map[string]int{a: 16, b: 3}, a, b), Partial, 16, ""},
		{"half, and no other has as many", plan(a), plans(map[string]int{a: 2, b: 1, c: 1}, b, a, c), Partial, 2, ""},
		{"a tie of halves", plan(a), plans(map[string]int{a: 2, b: 2}, a, b), Ambiguous, 2, "voter.ambiguous"},
		{"a plurality below half", plan(a), plans(map[string]int{a: 2, b: 1, c: 1, `{}`: 1}, a, b, c, `{}`), Ambiguous, 2, "voter.ambiguous"},
		{"the call is not what they agree on", plan(b), plans(map[string]int{a: 9, b: 1}, b, a), Ambiguous, 9, "voter.other_call"},
		{"the call is nobody's", plan(c), plans(map[string]int{a: 9, b: 1}, a, b), Ambiguous, 9, "voter.other_call"},
		{"the call cannot be read", plan(`{"to":"x","to":"x"}`), plans(map[string]int{a: 9}, a), Ambiguous, 9, "voter.other_call"},
		{"another tool", Plan{Server: "mail", Tool: "send_all", Args: json.RawMessage(a)}, plans(map[string]int{a: 9}, a), Ambiguous, 9, "voter.other_call"},
		{"another server", Plan{Tool: "send", Args: json.RawMessage(a)}, plans(map[string]int{a: 9}, a), Ambiguous, 9, "voter.other_call"},
		{"a number as text", plan(`{"to":"x","n":"1"}`), plans(map[string]int{a: 9}, a), Ambiguous, 9, "voter.other_call"},
		{"samples that cannot be read count against", plan(a), append(plans(map[string]int{a: 5}, a), plan("["), plan(`"x"`), plan(`[]`), Plan{}, plan(`{"a":1,"a":2}`), plan("\xff")), Ambiguous, 5, "voter.ambiguous"},
		{"no arguments are an empty object", Plan{Server: "mail", Tool: "send"}, []Plan{plan(`{}`), plan(`null`), plan(" {} ")}, High, 3, ""},
		{"none can be read", plan(a), []Plan{{}, {}, {}}, Ambiguous, 0, "voter.ambiguous"},
		{"one sample", plan(a), []Plan{plan(a)}, Ambiguous, 1, "voter.samples"},
		{"no samples", plan(a), nil, Ambiguous, 0, "voter.samples"},
		{"more than are compared", plan(a), plans(map[string]int{a: MaxSamples + 1}, a), Ambiguous, 0, "voter.samples"},
		{"as many as are compared", plan(a), plans(map[string]int{a: MaxSamples}, a), High, MaxSamples, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Vote(tt.call, tt.samples)
			if r.Level != tt.level || r.Votes != tt.votes || r.Samples != len(tt.samples) {
				t.Errorf("%+v", r)
			}
			if r.Votes > 0 && (r.Winner < 0 || r.Ratio != float64(r.Votes)/float64(len(tt.samples))) {
				t.Errorf("%+v", r)
			}
			fs := r.Findings(true)
			if (tt.rule == "") != (len(fs) == 0) {
				t.Fatalf("findings %+v", fs)
			}
			if tt.rule != "" && (fs[0].Rule != tt.rule || fs[0].Outcome != cordon.Restricted || fs[0].Kill || fs[0].Phase != cordon.PhaseProvenance || fs[0].Detail == "") {
				t.Errorf("%+v", fs[0])
			}
			if fs := r.Findings(false); len(fs) != 0 {
				t.Errorf("a reversible call: %+v", fs)
			}
		})
	}
	var zero Result
	if zero.Level != Ambiguous || len(zero.Findings(true)) != 1 {
		t.Error("the zero result is sure")
	}
}

func FuzzVote(f *testing.F) {
	f.Add("send", `{"a":1}`, `{"a":1}`, "[")
	f.Add("", "", "null", `{"a":{"a":[]}}`)
	f.Fuzz(func(t *testing.T, tool, a, b, c string) {
		call := Plan{Tool: tool, Args: json.RawMessage(a)}
		samples := []Plan{call, {Tool: tool, Args: json.RawMessage(b)}, {Tool: tool, Args: json.RawMessage(c)}}
		r := Vote(call, samples)
		if r.Ratio < 0 || r.Ratio > 1 || r.Votes > 3 || r.Winner >= 3 || r.Level != Ambiguous && (!r.Agrees || r.Ratio < PartialFrom) {
			t.Errorf("%+v", r)
		}
	})
}

func BenchmarkVote(b *testing.B) {
	p := plan(`{"to":"x@example.com","subject":"hello","body":"` + strings.Repeat("word ", 40) + `"}`)
	samples := []Plan{p, p, p, p, p}
	b.ReportAllocs()
	for b.Loop() {
		if r := Vote(p, samples); r.Level != High {
			b.Fatal(r)
		}
	}
}
