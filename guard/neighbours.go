package guard

import (
	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/guard/judge"
	"github.com/cordon-sandbox/cordon/guard/matchconf"
	"github.com/cordon-sandbox/cordon/guard/voter"
)

// neighbours are what the caller's own doubts hold against the call: plans
// that do not agree with it, and a selector that did not meet one element.
// They only ever hold back, so that a caller gains nothing by making them up.
func (j *judgement) neighbours() []cordon.Finding {
	if j.call.Samples == nil && j.call.Match == nil || j.broken {
		return nil
	}
	final := j.reading.Tool.Irreversible || judge.Irreversible(j.reading.Effects)
	var found []cordon.Finding
	if j.call.Samples != nil {
		r := voter.Vote(voter.Plan{Server: j.call.Server, Tool: j.call.Tool, Args: j.call.Args}, j.samples())
		found = append(found, r.Findings(final)...)
	}
	if m := j.call.Match; m != nil {
		r := matchconf.Score(matchconf.Match{Matches: m.Matches, TextOnly: m.TextOnly, Found: m.Found})
		found = append(found, r.Findings(final)...)
	}
	return found
}

// samples are the caller's plans, on the call's server where they name none.
func (j *judgement) samples() []voter.Plan {
	plans := make([]voter.Plan, min(len(j.call.Samples), voter.MaxSamples+1))
	for i := range plans {
		s := &j.call.Samples[i]
		plans[i] = voter.Plan{Server: s.Server, Tool: s.Tool, Args: s.Args}
		if s.Server == "" {
			plans[i].Server = j.call.Server
		}
	}
	return plans
}
