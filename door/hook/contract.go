package hook

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Effect is what an agent does after a hook's process has ended. The zero
// value lets the call run: that is what most agents do.
type Effect uint8

const (
	// Proceeds: the call runs, or the agent's own rules decide.
	Proceeds Effect = iota
	// Asks: the person is asked.
	Asks
	// Refuses: the call does not run.
	Refuses
)

func (e Effect) String() string { return [...]string{"proceeds", "asks", "refuses"}[min(e, Refuses)] }

// Process is how a hook's process ended.
type Process struct {
	Stdout, Stderr []byte
	Exit           int
	// Crashed: it ended by a signal. TimedOut: the agent ended it.
	Crashed, TimedOut bool
}

// Holds says what an agent does with a pre-tool hook that ended so, by its
// published contract; closed is the option by which a failure blocks. What a
// contract leaves open is taken for the worse.
func Holds(agent string, closed bool, p Process) (e Effect, why string) {
	failed := func(why string) (Effect, string) {
		switch {
		case agent != "claude" && agent != "cursor":
			return Proceeds, why + "; there is no option against it"
		case closed:
			return Refuses, why + ", and a failure blocks"
		}
		return Proceeds, why + ", and no option says that a failure blocks"
	}
	switch {
	case p.TimedOut:
		return failed("it did not end in time")
	case p.Crashed:
		return failed("it ended by a signal")
	case p.Exit == 2 && agent == "codex" && len(bytes.TrimSpace(p.Stderr)) == 0:
		return Proceeds, "exit status 2 without a reason"
	case p.Exit == 2:
		return Refuses, "exit status 2"
	case p.Exit != 0:
		return failed("it failed")
	}
	out := bytes.TrimSpace(p.Stdout)
	if len(out) == 0 {
		if agent == "cursor" {
			return failed("it said nothing")
		}
		return Proceeds, "it said nothing"
	}
	var a answerJSON
	if json.Unmarshal(out, &a) != nil || out[0] != '{' {
		if agent == "cursor" {
			return failed("its answer is no JSON")
		}
		return Proceeds, "its answer is no JSON"
	}
	return a.effect(agent)
}

// answerJSON is what the agents read of an answer.
type answerJSON struct {
	Decision   string `json:"decision"`
	Reason     string `json:"reason"`
	Permission string `json:"permission"`
	Specific   struct {
		Decision string `json:"permissionDecision"`
		Reason   string `json:"permissionDecisionReason"`
	} `json:"hookSpecificOutput"`
}

func (a *answerJSON) effect(agent string) (Effect, string) {
	word, reason := a.Specific.Decision, a.Specific.Reason
	switch agent {
	case "cursor":
		word, reason = a.Permission, ""
	case "gemini":
		word, reason = a.Decision, a.Reason
	}
	if word == "" && a.Decision == "block" {
		word, reason = "deny", a.Reason
	}
	switch {
	case word == "ask" && agent != "codex" && agent != "gemini":
		return Asks, "it asks"
	case agent == "codex" && word == "deny" && strings.TrimSpace(reason) == "":
		return Proceeds, "a refusal without a reason"
	case word == "deny" || word == "block" && agent == "gemini":
		return Refuses, "it refuses"
	case word == "allow":
		return Proceeds, "it allows"
	}
	return Proceeds, "it has no objection"
}
