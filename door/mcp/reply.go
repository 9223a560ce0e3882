package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Server judges one message from the server: lists of tools lose what the
// run may not call, results are held to their size, everything else passes
// as it is. What is no JSON-RPC message is dropped, with a note.
func (j *Judge) Server(ctx context.Context, msg []byte) Verdict {
	if len(bytes.TrimSpace(msg)) == 0 {
		return Verdict{}
	}
	if _, killed := j.flight.state(); killed {
		return Verdict{}
	}
	if !json.Valid(msg) {
		return j.garbage(msg)
	}
	at := whole(msg)
	if msg[at.lo] != '[' {
		out, v := j.reply(ctx, msg, at)
		v.Forward = out
		return v
	}
	var all Verdict
	var kept [][]byte
	parts := elements(msg, at)
	if len(parts) == 0 {
		return j.garbage(msg)
	}
	changed := false
	for _, s := range parts {
		out, v := j.reply(ctx, msg, s)
		all.Note = joinNotes(all.Note, v.Note)
		all.Settle = joinSettle(all.Settle, v.Settle)
		switch {
		case out == nil:
			changed = true
		case &out[0] == &msg[0]:
			kept = append(kept, s.of(msg))
		default:
			// A changed element comes back alone, without its surroundings.
			kept = append(kept, out)
			changed = true
		}
	}
	switch {
	case !changed:
		all.Forward = msg
	case len(kept) > 0:
		all.Forward = list(kept)
	}
	return all
}

func (j *Judge) garbage(msg []byte) Verdict {
	return Verdict{Note: fmt.Sprintf("cordon: server %q wrote a line that is not JSON-RPC: %q", j.server, sample(msg))}
}

// sampleSize is how much of a line is shown.
const sampleSize = 160

// sample is the beginning of a line, with every long run of the characters
// that keys and tokens are made of masked.
func sample(msg []byte) string {
	shown := msg[:min(len(msg), sampleSize)]
	var out []byte
	for i := 0; i < len(shown); {
		end := i
		for end < len(shown) && isTokenByte(shown[end]) {
			end++
		}
		switch {
		case end-i >= 16:
			out = append(out, "***"...)
		case end > i:
			out = append(out, shown[i:end]...)
		default:
			end = i + 1
			out = append(out, shown[i])
		}
		i = end
	}
	if len(msg) > sampleSize {
		out = append(out, "…"...)
	}
	return string(out)
}

func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '-' || c == '+' || c == '/' || c == '=' || c == '.'
}

// reply judges one message of the server, which stands at at. It returns msg
// itself where nothing changes, the changed message alone where something
// does, and nil where the message is dropped.
func (j *Judge) reply(ctx context.Context, msg []byte, at span) ([]byte, Verdict) {
	ms := members(msg, at)
	known := false
	for i, m := range ms {
		if doubtful(ms[:i], m.key, envelopeKeys[:]...) {
			return j.unclear(ctx, msg, ms, fmt.Sprintf("key %.64q stands twice or could be taken for another", m.key))
		}
		known = known || isEnvelopeKey(m.key)
	}
	if !known {
		return nil, j.garbage(at.of(msg))
	}
	result, hasResult := find(ms, "result")
	failure, hasError := find(ms, "error")
	if !hasResult && !hasError {
		return msg, Verdict{} // a request or a notification
	}
	r := j.takeRequest(msg, ms)
	v := j.settleRequest(ctx, r, hasError || hasResult && isFailure(msg, result))
	c := cutter{msg: msg, at: at}
	if j.passes(r) {
		if hasResult {
			j.result(ctx, &c, r, result, &v) // the guard still learns of the tools
		}
		if v.Note != "" {
			v.Note += " (in mode enforce; passed as it is)"
		}
		_, note := j.record(ctx, r, at.of(msg))
		v.Note = joinNotes(v.Note, note)
		return msg, v
	}
	switch {
	case hasResult && !j.result(ctx, &c, r, result, &v):
		return j.replaced(msg, ms, v)
	case hasError && failure.len() > j.maxResult:
		c.put(failure, fmt.Appendf(nil, `{"code":%d,"message":"[cordon: error of %d bytes left out]"}`, codeServer, failure.len()))
	}
	out := c.bytes()
	if r == nil || !brings(r.method) {
		return out, v
	}
	if c.out == nil {
		out = at.of(msg)
	}
	tagged, note := j.record(ctx, r, out)
	v.Note = joinNotes(v.Note, note)
	if c.out == nil && len(tagged) > 0 && &tagged[0] == &out[0] {
		return msg, v
	}
	return tagged, v
}

// passes reports whether the answer to r (nil where it is not known which) goes
// on as it is: in shadow mode nothing is changed.
func (j *Judge) passes(r *request) bool {
	return j.mode != cordon.Enforce || r != nil && r.call != nil && r.call.Mode != cordon.Enforce
}

func isEnvelopeKey(key string) bool {
	for _, k := range envelopeKeys {
		if k == key {
			return true
		}
	}
	return false
}

// doubtful reports whether readers may disagree on what key means, given the
// members before it.
func doubtful(before []member, key string, known ...string) bool {
	if lookalike(key, known...) != "" {
		return true
	}
	for _, k := range known {
		if k == key {
			_, twice := find(before, key)
			return twice
		}
	}
	return false
}

// unclear drops a message that could be read in two ways. A request that it
// seems to answer gets an error in its place.
func (j *Judge) unclear(ctx context.Context, msg []byte, ms []member, why string) ([]byte, Verdict) {
	r := j.takeRequest(msg, ms)
	v := j.settleRequest(ctx, r, true)
	v.Note = fmt.Sprintf("cordon: server %q wrote a message that could be read in two ways: %s", j.server, why)
	if j.passes(r) {
		return msg, v
	}
	v.Note += "; dropped"
	if r == nil || r.cancelled {
		return nil, v
	}
	return errorAnswer(r.raw, codeServer, "Cordon dropped the server's answer, because it could be read in two ways: "+why), v
}

func (j *Judge) takeRequest(msg []byte, ms []member) *request {
	at, ok := find(ms, "id")
	if !ok || at.len() > 4*maxID {
		return nil
	}
	id, err := strictjson.Parse(at.of(msg))
	if err != nil || id.Kind != strictjson.String && id.Kind != strictjson.Number {
		return nil
	}
	return j.flight.take(idKey(&id))
}

func (j *Judge) settleRequest(ctx context.Context, r *request, failed bool) Verdict {
	if r == nil || r.call == nil {
		return Verdict{}
	}
	return Verdict{Settle: j.settle(ctx, r.call, cordon.Usage{Exec: time.Since(r.since), Failed: failed})}
}

// isFailure: the tool reports an error of its own.
func isFailure(msg []byte, result span) bool {
	at, ok := find(members(msg, result), "isError")
	return ok && string(at.of(msg)) == "true"
}

// result judges the result of a request (nil where it is not known which).
// It returns false where no part of the result may pass.
func (j *Judge) result(ctx context.Context, c *cutter, r *request, at span, v *Verdict) bool {
	method := ""
	if r != nil {
		method = r.method
	}
	ms := members(c.msg, at)
	// Clients are free in what they take for the answer to a request (some
	// read the id "1" as 1), so what looks like a list of tools is treated
	// as one whatever it claims to answer. A call's result is none.
	if method == listTools || method != callTool && j.looksLikeTools(c.msg, ms) {
		for i, m := range ms {
			if doubtful(ms[:i], m.key, "tools") {
				v.Note = fmt.Sprintf("cordon: server %q sent a list of tools that could be read in two ways; dropped", j.server)
				return false
			}
		}
		if tools, ok := find(ms, "tools"); ok {
			if c.msg[tools.lo] != '[' {
				v.Note = fmt.Sprintf("cordon: server %q sent tools that are no list; dropped", j.server)
				return false
			}
			v.Note = joinNotes(v.Note, j.filter(ctx, c, tools))
		}
		return true
	}
	if at.len() > j.maxResult && !j.passes(r) && (method == "" || method == callTool || method == taskResult) {
		j.cut(c, ms)
	}
	return true
}

// replaced is the error in place of a result that may not pass.
func (j *Judge) replaced(msg []byte, ms []member, v Verdict) ([]byte, Verdict) {
	id, ok := find(ms, "id")
	if !ok {
		return nil, v
	}
	return errorAnswer(id.of(msg), codeServer, "Cordon dropped the server's list of tools, because it is no list or could be read in two ways"), v
}

// looksLikeTools: a member that could be taken for "tools" is an array with
// an object in it that has a name.
func (j *Judge) looksLikeTools(msg []byte, ms []member) bool {
	for _, m := range ms {
		if m.key != "tools" && lookalike(m.key, "tools") == "" {
			continue
		}
		for _, e := range elements(msg, m.val) {
			for _, f := range members(msg, e) {
				if f.key == "name" || lookalike(f.key, "name") != "" {
					return true
				}
			}
		}
	}
	return false
}

// filter takes out of a list of tools what the guard hides. What remains
// keeps its bytes and its order.
func (j *Judge) filter(ctx context.Context, c *cutter, at span) (note string) {
	parts := elements(c.msg, at)
	defs := make([]cordon.ToolDef, 0, len(parts))
	where := make([]int, 0, len(parts))
	hidden := 0
	var names []string
	for i, s := range parts {
		raw := s.of(c.msg)
		v, err := strictjson.Parse(raw)
		if err != nil {
			hidden++
			note = joinNotes(note, fmt.Sprintf("cordon: server %q described a tool that could be read in two ways (%v); hidden", j.server, err))
			continue
		}
		name, ok := v.Text("name")
		if !ok {
			hidden++
			note = joinNotes(note, fmt.Sprintf("cordon: server %q described a tool without a name; hidden", j.server))
			continue
		}
		// The guard keeps definitions longer than the message lives.
		defs = append(defs, cordon.ToolDef{Server: j.server, Name: name, Raw: bytes.Clone(raw)})
		where = append(where, i)
	}
	verdicts := j.guard.Tools(ctx, j.run, defs)
	var kept [][]byte
	for n, i := range where {
		if n < len(verdicts) && verdicts[n].Visible {
			kept = append(kept, parts[i].of(c.msg))
			continue
		}
		hidden++
		if n < len(verdicts) {
			names = append(names, fmt.Sprintf("%.64q (%s)", defs[n].Name, verdicts[n].Reason))
		}
	}
	if hidden > 0 {
		c.put(at, list(kept))
	}
	if len(names) > 0 {
		note = joinNotes(note, clip(fmt.Sprintf("cordon: hidden tools of server %q: %s", j.server, strings.Join(names, ", ")), 2000))
	}
	return note
}
