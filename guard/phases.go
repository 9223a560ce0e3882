package guard

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/guard/caps"
	"github.com/cordon-sandbox/cordon/guard/fsscope"
	"github.com/cordon-sandbox/cordon/guard/tripwire"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// whitelist is phase A: may the tier call this tool, and is the tool still
// the one that was approved?
func (j *judgement) whitelist() []cordon.Finding {
	var found []cordon.Finding
	deny := func(rule, detail string) {
		found = append(found, cordon.Finding{Phase: cordon.PhasePolicy, Violation: cordon.ToolWhitelist, Rule: rule, Detail: detail})
	}
	if j.call.Tool == "" {
		return nil // a call that could not be read; nothing of it runs
	}
	facts := j.reading.Tool
	if j.broken {
		facts, _ = j.cfg.Lowerer.Lookup(j.call.Server, j.call.Tool)
	}
	if facts.SuspectName {
		deny("policy.suspect_name", "the tool's name has characters that imitate or hide others")
	}
	if !j.policy.AllowsTool(facts.Group.String(), j.call.Server, j.call.Tool) {
		deny("policy.tool", "tier "+j.policy.Tier().String()+" of profile "+j.policy.Profile()+" may not call tools of group "+facts.Group.String())
	}
	why, err := j.pins.quarantined(j.ctx, j.call.Server, j.call.Tool)
	if err != nil {
		j.malfunction(cordon.PhasePolicy, "pins", err)
	}
	if why != "" {
		rule := "pin.changed"
		if j.pins.approvedHash(j.call.Server, j.call.Tool) == unapproved {
			rule = "pin.poisoned"
		}
		deny(rule, why)
	}
	return found
}

// scope is phase B: every path, by what would be done to it.
func (j *judgement) scope() []cordon.Finding {
	scope, err := j.fixed.scope.ForRun(j.policy.RunRoot())
	if err != nil {
		j.malfunction(cordon.PhaseFS, "scope", err)
		return nil
	}
	var found []cordon.Finding
	effects := j.reading.Effects
	j.paths = make([]fsscope.Verdict, len(effects))
	for i := range effects {
		switch effects[i].Kind {
		case cordon.Read, cordon.List, cordon.Write, cordon.Delete:
			j.paths[i] = scope.Judge(effects[i])
			found = append(found, j.rewritable(&effects[i], j.paths[i].Findings)...)
		}
	}
	return found
}

// rewritable keeps a proposed path only where the argument is that path: in
// a command or a patch there is nothing to put it in place of.
func (j *judgement) rewritable(e *cordon.Effect, found []cordon.Finding) []cordon.Finding {
	for i := range found {
		if found[i].Rewrite != "" {
			if v := at(&j.args, e.Arg); v == nil || v.Kind != strictjson.String || v.Str != e.Target {
				found[i].Rewrite = ""
			}
		}
	}
	return found
}

// tripwires is phase C: input that says something is wrong with it, rules
// over effects and executed text, and caps.
func (j *judgement) tripwires() []cordon.Finding {
	var found []cordon.Finding
	if j.cfg.Phases.Tripwires {
		found = tripwire.Judge(j.tripwireInput())
	} else {
		found = j.malformedEffects()
	}
	if j.cfg.Phases.Caps {
		if over := j.meter.Check(j.capsRun(), j.fixed.caps, j.want()); over != nil {
			found = append(found, over.Findings()...)
		}
	}
	return found
}

func (j *judgement) tripwireInput() tripwire.Input {
	effects := j.reading.Effects
	in := tripwire.Input{
		Effects: effects, Workspace: j.policy.Workspace(), Home: j.policy.Home(), User: j.cfg.User,
		HostAllowed: func(target string) bool { return j.fixed.hosts.Match(target, "").Allowed },
		Outbound:    j.reading.Tool.Outbound,
	}
	if j.paths == nil {
		return in
	}
	in.Resolved = make([]string, len(effects))
	in.Secret = make([]string, len(effects))
	for i := range j.paths {
		in.Resolved[i], in.Secret[i] = j.paths[i].Resolved, j.paths[i].Secret
	}
	return in
}

const malformedReason = "malformed: "

// malformedEffects refuses unreadable input also where tripwires are off.
func (j *judgement) malformedEffects() []cordon.Finding {
	var found []cordon.Finding
	for i := range j.reading.Effects {
		if e := &j.reading.Effects[i]; e.Kind == cordon.Opaque && strings.HasPrefix(e.Reason, malformedReason) {
			found = append(found, cordon.Finding{Phase: cordon.PhaseTripwire, Violation: cordon.Malformed, Rule: "malformed.argument",
				Detail: strings.TrimPrefix(e.Reason, malformedReason), Arg: e.Arg, Via: e.Via})
		}
	}
	return found
}

// want is what the call is known to use before it runs.
func (j *judgement) want() caps.Want {
	w := caps.Want{Key: j.key}
	for i := range j.reading.Effects {
		w.Bytes += max(0, j.reading.Effects[i].Bytes)
	}
	return w
}

// capsRun is the run under which the call is counted; a call that is a run of
// its own has used nothing.
func (j *judgement) capsRun() string {
	if j.named {
		return j.policy.RunID()
	}
	return ""
}

// egress is phase D: every host, before anything is resolved or dialled.
func (j *judgement) egress() []cordon.Finding {
	var found []cordon.Finding
	for i := range j.reading.Effects {
		e := &j.reading.Effects[i]
		if e.Kind != cordon.Connect || e.Op == "listen" {
			continue
		}
		f := cordon.Finding{Phase: cordon.PhaseEgress, Violation: cordon.EgressHost, Arg: e.Arg, Via: e.Via}
		if e.Target == "" || e.Pattern {
			f.Rule, f.Outcome = "egress.unknown_host", cordon.Restricted
			f.Detail = "it would connect to a host that cannot be told before it runs"
			found = append(found, f)
			continue
		}
		v := j.fixed.hosts.Match(e.Target, e.Op)
		if v.Allowed {
			continue
		}
		f.Rule, f.Detail = "egress.host", "it would connect to "+clip(e.Target)+": "+v.Why
		if e.Doubtful {
			f.Outcome = cordon.Restricted
		}
		found = append(found, f)
	}
	return found
}

func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

// at finds the value that a JSON pointer names, or nil.
func at(v *strictjson.Value, pointer string) *strictjson.Value {
	for rest := pointer; rest != ""; {
		if rest[0] != '/' {
			return nil
		}
		step, tail, more := strings.Cut(rest[1:], "/")
		rest = ""
		if more {
			rest = "/" + tail
		}
		if v = child(v, unescapePointer(step)); v == nil {
			return nil
		}
	}
	return v
}

func child(v *strictjson.Value, step string) *strictjson.Value {
	switch v.Kind {
	case strictjson.Object:
		return v.Get(step)
	case strictjson.Array:
		n := 0
		for _, c := range []byte(step) {
			if c < '0' || c > '9' || n > len(v.Items) {
				return nil
			}
			n = n*10 + int(c-'0')
		}
		if step != "" && n < len(v.Items) {
			return &v.Items[n]
		}
	}
	return nil
}

func unescapePointer(s string) string {
	if !strings.Contains(s, "~") {
		return s
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(s)
}
