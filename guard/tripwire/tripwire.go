// Package tripwire holds the rules about what no call may do, whoever asks:
// take credentials, destroy what cannot be got back, raise privileges, plant
// code that runs later, change who may do what, open a shell to the outside,
// send data away, poison the environment of other programs, run what cannot
// be read.
//
// It guarantees: every rule looks at every effect, and each that fires is
// reported; a rule blocks and kills only where the effect is certain and
// grave, and an effect that is Doubtful restricts at most; text patterns run
// only on text that would be executed and that no language reader could
// read, so that prose, commit messages and echoed words do not fire; no
// regular expression runs before a literal says that it could match; work is
// linear in the size of the text; no detail quotes a secret.
//
// What it does not stop: what the effects do not say. A reader that takes a
// harmful command for a harmless one is not corrected here, where the code
// was read. Text patterns see spellings, not meaning. The list of secret
// variables and paths is made of names. Hosts are judged by the egress
// phase, paths by the file scope; the rules here add what those would not
// call grave. The sandbox holds what all of them miss.
package tripwire

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

// Input is one lowered call. The zero value of each field is the strict one.
type Input struct {
	Effects []cordon.Effect
	// Resolved is parallel to Effects: for the path kinds the absolute path
	// that the file scope found, "" otherwise. Where it is missing the path
	// is taken as it is written.
	Resolved []string
	// Secret is parallel to Effects: the class of credential store that the
	// file scope found at the path ("ssh key"), "" for none.
	Secret []string
	// Workspace and Home are absolute paths; User is the account's name.
	Workspace, Home, User string
	// HostAllowed says whether the run may connect to a Connect's Target;
	// nil allows none.
	HostAllowed func(target string) bool
	// Outbound: the tool hands its arguments to other people or systems, so
	// all texts of the call are searched for secrets.
	Outbound bool
}

// severity is what a rule makes of an effect. The zero value is the worst,
// so that a rule which forgets to decide is noticed.
type severity uint8

const (
	// grave blocks and ends the run.
	grave severity = iota
	// certain blocks.
	certain
	// unsure restricts.
	unsure
	// harmless is no finding.
	harmless
)

// ruling is a rule's answer about one effect.
type ruling struct {
	severity severity
	detail   string
	// rule, when set, is reported instead of the rule's own name.
	rule string
}

var pass = ruling{severity: harmless}

// scene is the call while it is judged.
type scene struct {
	Input
	findings []cordon.Finding
	seen     map[findingKey]struct{}
	// searched counts the bytes of unread code that patterns ran on.
	searched int
}

type findingKey struct{ rule, arg, detail string }

// Judge reports every rule that fires on the call, in the order of the
// effects. Its findings are of phase C. It never fails and keeps nothing.
func Judge(in Input) []cordon.Finding {
	s := scene{Input: in}
	for i := range in.Effects {
		s.judge(i)
	}
	return s.findings
}

func (s *scene) judge(i int) {
	e := &s.Effects[i]
	if int(e.Kind) >= len(byKind()) {
		s.report(e, "opaque.kind", ruling{unsure, "The call has an effect of an unknown kind.", ""})
		return
	}
	for _, r := range byKind()[e.Kind] {
		if d := r.judge(s, i, e); d.severity != harmless {
			s.report(e, r.Name, d)
		}
	}
	switch e.Kind {
	case cordon.RunCode, cordon.Opaque:
		s.judgeText(e)
	}
}

func (s *scene) report(e *cordon.Effect, name string, d ruling) {
	if d.rule != "" {
		name = d.rule
	}
	if e.Doubtful {
		d.severity = max(d.severity, unsure)
	}
	key := findingKey{name, e.Arg, d.detail}
	if _, twice := s.seen[key]; twice {
		return
	}
	if s.seen == nil {
		s.seen = map[findingKey]struct{}{}
	}
	s.seen[key] = struct{}{}
	f := cordon.Finding{
		Phase: cordon.PhaseTripwire, Violation: cordon.Tripwire, Rule: name,
		Outcome: cordon.Blocked, Kill: d.severity == grave,
		Detail: d.detail, Arg: e.Arg, Via: e.Via,
	}
	if d.severity == unsure {
		f.Outcome = cordon.Restricted
	}
	if name == malformedRule {
		f.Violation, f.Outcome = cordon.Malformed, cordon.Blocked
	}
	s.findings = append(s.findings, f)
}

// at is the i-th of a list that may be shorter than the effects.
func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// named quotes an agent's word for a sentence: bounded, printable, and
// without what looks like a secret.
func named(word string) string {
	const most = 120
	word = word[:min(len(word), 32*most)] // more is cut off below in any case
	if _, secret := FindSecret(word); secret {
		return "(redacted)"
	}
	if len(word) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(word[cut]) {
			cut--
		}
		word = word[:cut] + "..."
	}
	return strconv.QuoteToASCII(word)
}

// host is a connection's far side without the userinfo that it may carry.
func host(target string) string {
	return named(target[strings.LastIndexByte(target, '@')+1:])
}
