package hook

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// pass is the answer by which an agent goes on as if it had not asked: it
// approves nothing that the user would be asked about.
func (e *event) pass() Reply { return Reply{Stdout: e.agent.pass(e)} }

// deny refuses. Where the event could not be read, its answer's form cannot be
// known for certain either, and the exit status says it too.
func (e *event) deny(text string) Reply {
	text = clip(oneLine(text), maxText)
	r := Reply{Stdout: e.agent.deny(e, text)}
	if e.kind == unreadable {
		r.Stderr, r.Exit = text, 2
	}
	return r
}

func (e *event) ask(text string) Reply {
	return Reply{Stdout: e.agent.ask(e, clip(oneLine(text), maxText))}
}

// canAsk reports whether an ask would reach a person. In Claude Code's other
// modes nobody is asked, or not for every tool.
func (e *event) canAsk() bool {
	switch {
	case e.agent.ask == nil:
		return false
	case e.agent.name == "claude":
		return e.permission == "default" || e.permission == "plan"
	}
	return e.name == "beforeShellExecution" || e.name == "beforeMCPExecution"
}

func passSilent(text string) func(*event) []byte {
	return func(*event) []byte { return []byte(text) }
}

// passCursor is explicit: with failClosed, silence blocks.
func passCursor(e *event) []byte {
	switch e.kind {
	case preTool:
		return []byte(`{"permission":"allow"}`)
	case prompt:
		return []byte(`{"continue":true}`)
	case unreadable:
		return []byte(`{"continue":true,"permission":"allow"}`)
	}
	if e.name == "subagentStart" {
		return []byte(`{"permission":"allow"}`)
	}
	return []byte(`{}`)
}

func denyClaude(e *event, text string) []byte {
	if e.kind == postTool || e.kind == prompt {
		return object("decision", "block", "reason", text)
	}
	return decision("deny", text)
}

func askClaude(_ *event, text string) []byte { return decision("ask", text) }

func decision(word, text string) []byte {
	b := append([]byte(`{"hookSpecificOutput":`),
		object("hookEventName", "PreToolUse", "permissionDecision", word, "permissionDecisionReason", text)...)
	return append(b, '}')
}

func denyCursor(e *event, text string) []byte {
	switch e.kind {
	case prompt:
		return append([]byte(`{"continue":false,`), object("user_message", text)[1:]...)
	case postTool:
		return []byte(`{}`) // what ran cannot be taken back, and there is no form for it
	case unreadable:
		return append([]byte(`{"continue":false,`), object("permission", "deny", "user_message", text, "agent_message", text)[1:]...)
	}
	return object("permission", "deny", "user_message", text, "agent_message", text)
}

func askCursor(_ *event, text string) []byte {
	return object("permission", "ask", "user_message", text, "agent_message", text)
}

func denyGemini(_ *event, text string) []byte { return object("decision", "deny", "reason", text) }

// object writes an object of texts from keys and values in turn.
func object(pairs ...string) []byte {
	b := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strictjson.AppendString(b, pairs[i]), ':')
		b = strictjson.AppendString(b, pairs[i+1])
	}
	return append(b, '}')
}

const (
	// maxText bounds a reason in bytes: a model reads it, and a person.
	maxText = 1800
	// maxReasons is how many findings it names.
	maxReasons = 3
	// maxRewrite is how long the proposed arguments may be.
	maxRewrite = 600
)

// refusal says what was refused, why, and what would be allowed.
func refusal(c *cordon.Call, d *cordon.Decision) string {
	var b strings.Builder
	b.WriteString("Cordon refused this call")
	reasons, left := findingTexts(d.Findings)
	switch {
	case len(reasons) > 0:
		b.WriteString(": " + strings.Join(reasons, "; "))
	case c.Malformed != "":
		b.WriteString(": it could not be read: " + c.Malformed)
	}
	b.WriteString(".")
	if left > 0 {
		fmt.Fprintf(&b, " (%d more.)", left)
	}
	b.WriteString(" " + advice(d))
	return b.String()
}

// findingTexts are the gravest findings, each once.
func findingTexts(fs []cordon.Finding) (texts []string, left int) {
	sorted := slices.Clone(fs)
	slices.SortStableFunc(sorted, func(a, b cordon.Finding) int {
		if a.Outcome != b.Outcome {
			return int(a.Outcome) - int(b.Outcome)
		}
		return boolInt(b.Kill) - boolInt(a.Kill)
	})
	for i := range sorted {
		f := &sorted[i]
		if f.Outcome == cordon.Allowed {
			continue
		}
		text := strings.TrimRight(strings.TrimSpace(clip(f.Detail, 300)), ".")
		if text == "" {
			text = "it is against the policy"
		}
		if f.Rule != "" {
			text += " [" + f.Rule + "]"
		}
		switch {
		case slices.Contains(texts, text):
		case len(texts) == maxReasons:
			left++
		default:
			texts = append(texts, text)
		}
	}
	return texts, left
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// advice says what would be allowed, or who can allow it.
func advice(d *cordon.Decision) string {
	if d.Killed {
		return "This ended the session's run: no later call passes until a person releases it (cordon kill --release " +
			d.RunID + " --why …). Stop, and tell the person."
	}
	for i := range d.Findings {
		if d.Findings[i].Violation == cordon.KilledRun {
			return "No call passes until then. Stop, and tell the person."
		}
	}
	var s string
	if n := len(d.RewrittenArgs); n > 0 && n <= maxRewrite {
		s = "Allowed instead: the same tool with " + string(d.RewrittenArgs) + ". "
	} else {
		for i := range d.Findings {
			if f := &d.Findings[i]; f.Rewrite != "" {
				s = "Allowed instead: " + clip(f.Rewrite, 200) + ". "
				break
			}
		}
	}
	switch {
	case d.Proposal != "":
		return s + "A person can approve it: cordon proposals approve " + d.Proposal + ". Then send it again."
	case s != "":
		return strings.TrimSpace(s)
	case d.Outcome == cordon.Restricted:
		return "Inside the workspace and the allowed hosts it would pass; a person may widen the policy. Do not send it again as it is."
	}
	return "Do not send it again; go on without it, or ask the person."
}

// oneLine takes line ends, control and formatting characters out of a text: it
// is shown on terminals.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r' || r == '\u2028' || r == '\u2029':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s)
}

// clip cuts a text to at most n bytes and an ellipsis, between characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
