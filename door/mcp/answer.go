package mcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

const (
	// maxReasons is how many findings a refusal names.
	maxReasons = 6
	// maxRewrite is how long the proposed arguments may be.
	maxRewrite = 4096
)

// refusal is the text that tells a model what was refused, why, and what
// would be allowed instead.
func refusal(c *cordon.Call, d *cordon.Decision) string {
	var b strings.Builder
	what := "this tool call"
	if c.Tool != "" {
		what = fmt.Sprintf("the call of %s", quoted(c.Tool))
	}
	fmt.Fprintf(&b, "Cordon refused %s; nothing of it ran.", what)
	reasons, left := findingTexts(d.Findings)
	switch {
	case len(reasons) > 0:
		b.WriteString(" Why: " + strings.Join(reasons, "; ") + ".")
	case c.Malformed != "":
		b.WriteString(" Why: the call could not be read: " + c.Malformed + ".")
	}
	if left > 0 {
		fmt.Fprintf(&b, " (%d more.)", left)
	}
	b.WriteString(" " + advice(d))
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func findingTexts(fs []cordon.Finding) (texts []string, left int) {
	sorted := slices.Clone(fs)
	slices.SortStableFunc(sorted, func(a, b cordon.Finding) int { return int(a.Outcome) - int(b.Outcome) })
	for _, f := range sorted {
		if f.Outcome == cordon.Allowed {
			continue
		}
		text := strings.TrimRight(strings.TrimSpace(clip(f.Detail, 400)), ".")
		if text == "" {
			text = "it is against the policy"
		}
		if f.Rule != "" {
			text += " (rule " + f.Rule + ")"
		}
		if slices.Contains(texts, text) {
			continue
		}
		if len(texts) == maxReasons {
			left++
			continue
		}
		texts = append(texts, text)
	}
	return texts, left
}

// advice says what would be allowed.
func advice(d *cordon.Decision) string {
	if d.Killed {
		return "This ended the run: no later call of it will pass until an operator releases it" +
			" (cordon kill --release " + d.RunID + " --why …). Stop, and tell the person."
	}
	for _, f := range d.Findings {
		if f.Violation == cordon.KilledRun {
			// The finding names what an operator has to release: it may be
			// another run of the same session.
			return "No call will pass until then. Stop, and tell the person."
		}
	}
	if n := len(d.RewrittenArgs); n > 0 && n <= maxRewrite {
		return "Allowed instead: the same tool with the arguments " + string(d.RewrittenArgs) + "."
	}
	var swaps []string
	for _, f := range d.Findings {
		if f.Rewrite != "" && len(swaps) < maxReasons {
			where := f.Arg
			if where == "" {
				where = "the argument"
			}
			swaps = append(swaps, clip(where, 200)+" as "+quoted(f.Rewrite))
		}
	}
	switch {
	case d.Proposal != "":
		return "A person may approve this very call: cordon proposals approve " + d.Proposal +
			". You cannot approve it yourself; tell the person, and send the same call again when they have."
	case len(swaps) > 0:
		return "Allowed instead: the same call with " + strings.Join(swaps, ", ") + "."
	case d.Outcome == cordon.Restricted:
		return "A call that stays inside the workspace and the allowed hosts would pass," +
			" or a person may widen the policy. Do not send the same call again."
	}
	return "Do not send the same call again; go on without it or ask the person."
}

func quoted(s string) string { return strconv.Quote(clip(s, 200)) }

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// toolAnswer is the result of a call that was refused: to the protocol it
// went well, and the tool reports an error, so that the model reads it.
func toolAnswer(id []byte, text string) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = append(out, `,"result":{"content":[{"type":"text","text":`...)
	out = strictjson.AppendString(out, strings.ToValidUTF8(text, "\uFFFD"))
	return append(out, `}],"isError":true}}`...)
}

func errorAnswer(id []byte, code int, text string) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	out = append(out, `,"error":{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(out, `,"message":`...)
	out = strictjson.AppendString(out, strings.ToValidUTF8(text, "\uFFFD"))
	return append(out, `}}`...)
}

func resultAnswer(id []byte, result string) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	return append(append(append(out, `,"result":`...), result...), '}')
}

// downAnswer answers a request for which there is no server any more. A
// client of a killed run still gets its handshake and an empty list of
// tools: so it stays connected, and its next call is refused with a reason.
func (j *Judge) downAnswer(env *envelope, why string, killed bool) []byte {
	if killed {
		switch env.method {
		case callTool:
			return toolAnswer(env.id, why)
		case "ping":
			return resultAnswer(env.id, `{}`)
		case listTools:
			return resultAnswer(env.id, `{"tools":[]}`)
		case "initialize":
			version, ok := env.params.Text("protocolVersion")
			if !ok || len(version) > 32 {
				version = "2025-06-18"
			}
			result := strictjson.AppendString([]byte(`{"protocolVersion":`), version)
			result = append(result, `,"capabilities":{"tools":{}},"serverInfo":{"name":"cordon","version":"0"},"instructions":`...)
			result = append(strictjson.AppendString(result, strings.ToValidUTF8(why, "\uFFFD")), '}')
			return resultAnswer(env.id, string(result))
		}
	}
	return errorAnswer(env.id, codeServer, why)
}
