// Package voter says how far several plans for one call agree with each
// other and with the call (self-consistency). It is a neighbour of the other
// layers: it counts what the caller sampled, and never executes anything.
//
// It guarantees: plans are compared in their canonical form; the share is of
// all samples, so that a sample which cannot be read, or none at all, counts
// against; a call that is not the one most samples agree on is ambiguous,
// however many agree; nothing, one sample or a tie is ambiguous too.
//
// What this package does not stop: samples that err alike. A model that is
// talked into something by text in its context is talked into it in most
// samples; agreement says that the model is sure, not that it is right.
package voter

import (
	"encoding/json"
	"fmt"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Level is how sure the samples are. The zero value is not.
type Level uint8

const (
	Ambiguous Level = iota
	Partial
	High
)

var levelNames = [...]string{"ambiguous", "partial", "high"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", l)
}

// From these shares on a call is High or Partial.
const (
	HighFrom    = 0.85
	PartialFrom = 0.5
)

// MaxSamples is how many plans are compared; more are ambiguous.
const MaxSamples = 64

// Plan is one sample, or the call itself. A plan that cannot be read (no
// tool, or arguments that are not one JSON object; none are an empty one)
// agrees with nothing.
type Plan struct {
	Server, Tool string
	Args         json.RawMessage
}

// Result is what the samples say. The zero value is ambiguous.
type Result struct {
	Level Level
	// Ratio is Votes over Samples: the share of the plan with most votes.
	Ratio          float64
	Samples, Votes int
	// Winner is the index of the first sample with that plan, -1 for none.
	Winner int
	// Agrees: the call is that plan. Tie: another plan has as many votes.
	Agrees, Tie bool
}

// Vote counts the samples for the call.
func Vote(call Plan, samples []Plan) Result {
	r := Result{Samples: len(samples), Winner: -1}
	if len(samples) > MaxSamples {
		return r
	}
	first := map[string]int{}
	votes := map[string]int{}
	best := ""
	for i := range samples {
		k, ok := samples[i].canonical()
		if !ok {
			continue
		}
		if _, seen := first[k]; !seen {
			first[k] = i
		}
		votes[k]++
		switch {
		case votes[k] > r.Votes:
			best, r.Votes, r.Tie = k, votes[k], false
		case votes[k] == r.Votes:
			r.Tie = true
		}
	}
	if r.Votes == 0 {
		return r
	}
	r.Winner, r.Ratio = first[best], float64(r.Votes)/float64(r.Samples)
	k, ok := call.canonical()
	r.Agrees = ok && k == best && !r.Tie
	if r.Agrees && r.Samples > 1 {
		r.Level = level(r.Ratio)
	}
	return r
}

func level(ratio float64) Level {
	switch {
	case ratio >= HighFrom:
		return High
	case ratio >= PartialFrom:
		return Partial
	}
	return Ambiguous
}

func (p *Plan) canonical() (string, bool) {
	if p.Tool == "" {
		return "", false
	}
	args := strictjson.Value{Kind: strictjson.Object}
	if len(p.Args) > 0 {
		v, err := strictjson.Parse(p.Args)
		if err != nil || v.Kind != strictjson.Object && v.Kind != strictjson.Null {
			return "", false
		}
		if v.Kind == strictjson.Object {
			args = v
		}
	}
	b := strictjson.AppendString(nil, p.Server)
	b = strictjson.AppendString(b, p.Tool)
	return string(strictjson.AppendCanonical(b, &args)), true
}

// Findings are what phase E holds against a call of that result: an
// irreversible one that is ambiguous goes to a person.
func (r *Result) Findings(irreversible bool) []cordon.Finding {
	if !irreversible || r.Level != Ambiguous {
		return nil
	}
	f := cordon.Finding{Phase: cordon.PhaseProvenance, Violation: cordon.Provenance, Outcome: cordon.Restricted, Rule: "voter.ambiguous"}
	switch {
	case r.Samples > MaxSamples:
		f.Rule, f.Detail = "voter.samples", fmt.Sprintf("%d samples of the plan were given (at most %d are compared)", r.Samples, MaxSamples)
	case r.Samples < 2:
		f.Rule, f.Detail = "voter.samples", fmt.Sprintf("%d samples of the plan say nothing about how sure it is", r.Samples)
	case r.Votes == 0:
		f.Detail = fmt.Sprintf("none of %d samples of the plan can be read", r.Samples)
	case r.Tie:
		f.Detail = fmt.Sprintf("several plans have %d of %d samples each", r.Votes, r.Samples)
	case !r.Agrees:
		f.Rule, f.Detail = "voter.other_call", fmt.Sprintf("it is not the call that %d of %d samples of the plan agree on", r.Votes, r.Samples)
	default:
		f.Detail = fmt.Sprintf("only %d of %d samples of the plan agree on it (want at least %.0f %%)", r.Votes, r.Samples, 100*PartialFrom)
	}
	return []cordon.Finding{f}
}
