package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// maxRecorded is the most bytes of one text that are kept, and of all texts of
// one result; what is longer was cut before in mode enforce.
const maxRecorded = 1 << 20

// brings reports whether the result of a method carries text into the agent's
// context.
func brings(method string) bool {
	switch method {
	case callTool, readResource, getPrompt, taskResult, initialize, discover:
		return true
	}
	return false
}

// record has the guard keep the texts of an answer to r before they are
// delivered, and returns the answer, with its texts rendered where DeliverTagged
// says so. What could not be recorded is not delivered in mode enforce: later
// arguments could not be traced to it.
func (j *Judge) record(ctx context.Context, r *request, answer []byte) (out []byte, note string) {
	if r == nil || !brings(r.method) || r.cancelled {
		return answer, ""
	}
	texts := textsOf(answer)
	if len(texts) == 0 {
		return answer, ""
	}
	kind, source := j.chunkType(r)
	chunks := make([]cordon.Chunk, 0, len(texts))
	left := maxRecorded
	for _, t := range texts {
		text := clipBytes(t.text(answer), left)
		left -= len(text)
		chunks = append(chunks, cordon.Chunk{Type: kind, Source: firstOf(t.source, source), Text: text})
	}
	ids, err := j.guard.Record(context.WithoutCancel(ctx), j.run, chunks...)
	if err != nil {
		note = fmt.Sprintf("cordon: result of %.64q of server %q could not be recorded: %v", r.method, j.server, err)
		if j.passes(r) {
			return answer, note
		}
		return errorAnswer(r.raw, codeServer, "Cordon could not record this result and did not deliver it; the call itself ran. Tell the person."), note
	}
	if j.deliver == nil || j.passes(r) {
		return answer, ""
	}
	c := cutter{msg: answer, at: whole(answer)}
	for i, t := range texts {
		if t.plain {
			if i < len(ids) {
				chunks[i].ID = ids[i]
			}
			c.put(t.at, strictjson.AppendString(nil, j.deliver(chunks[i])))
		}
	}
	return c.bytes(), ""
}

func clipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:max(n, 0)]
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// chunkType says what the texts of an answer to r are: those of a call that
// only reads files are files, whatever the tool is named.
func (j *Judge) chunkType(r *request) (kind cordon.ChunkType, source string) {
	source = j.server
	if r.tool != "" {
		source += "/" + r.tool
	}
	switch r.method {
	case readResource, getPrompt, initialize, discover:
		return cordon.Retrieved, source
	}
	if r.call == nil || len(r.call.Effects) == 0 {
		return cordon.ToolOutput, source
	}
	path := ""
	for _, e := range r.call.Effects {
		switch e.Kind {
		case cordon.Read:
			path = firstOf(path, e.Target)
		case cordon.List:
		default:
			return cordon.ToolOutput, source
		}
	}
	if path == "" {
		return cordon.ToolOutput, source
	}
	return cordon.FileText, path
}

// textAt is a text in an answer. A plain one is a string that may be rendered;
// any other is a JSON value, whose bytes are its text.
type textAt struct {
	at     span
	plain  bool
	source string
}

func (t textAt) text(msg []byte) string {
	if t.plain {
		return decode(t.at.of(msg))
	}
	return string(t.at.of(msg))
}

// textsOf finds the texts of a tool's, resource's or prompt's result, in the
// order in which they stand.
func textsOf(answer []byte) []textAt {
	ms := members(answer, whole(answer))
	// An agent reads what an error says, and a server may put a page into it.
	if failure, ok := find(ms, "error"); ok {
		return []textAt{{at: failure}}
	}
	result, ok := find(ms, "result")
	if !ok {
		return nil
	}
	var out []textAt
	for _, m := range members(answer, result) {
		switch m.key {
		case "content", "contents":
			for _, e := range elements(answer, m.val) {
				out = appendText(out, answer, e)
			}
		case "messages":
			for _, e := range elements(answer, m.val) {
				if at, ok := find(members(answer, e), "content"); ok {
					out = appendText(out, answer, at)
				}
			}
		case "instructions": // of a server, to the model
			if answer[m.val.lo] == '"' {
				out = append(out, textAt{at: m.val, plain: true})
			}
		case "structuredContent", "toolResult": // the latter by the first revision
			out = append(out, textAt{at: m.val})
		}
	}
	return out
}

func appendText(out []textAt, msg []byte, at span) []textAt {
	source, before, media := "", len(out), false
	for _, m := range members(msg, at) {
		switch m.key {
		case "uri":
			source = clip(decode(m.val.of(msg)), 256)
		case "text":
			if msg[m.val.lo] == '"' {
				out = append(out, textAt{at: m.val, plain: true, source: source})
			}
		case "resource":
			out = appendResource(out, msg, m.val)
		case "data":
			media = true
		}
	}
	switch {
	case len(out) > before || at.len() == 0 || msg[at.lo] != '{':
		return out
	case media:
		// What an image shows is not known; that there was one is.
		return append(out, textAt{at: span{at.lo, at.lo}})
	}
	return append(out, textAt{at: at, source: source}) // a link, a blob, or of a kind to come
}

func appendResource(out []textAt, msg []byte, at span) []textAt {
	ms := members(msg, at)
	uri, _ := find(ms, "uri")
	if text, ok := find(ms, "text"); ok && msg[text.lo] == '"' {
		return append(out, textAt{at: text, plain: true, source: clip(decode(uri.of(msg)), 256)})
	}
	return out
}

// Member returns the value at a path of keys in a JSON object, byte for byte,
// or nil. The message must be well-formed JSON.
func Member(msg []byte, path ...string) json.RawMessage {
	at := whole(msg)
	for _, key := range path {
		next, ok := find(members(msg, at), key)
		if !ok {
			return nil
		}
		at = next
	}
	return at.of(msg)
}

// Elements returns the elements of a JSON array, byte for byte.
func Elements(array []byte) []json.RawMessage {
	var out []json.RawMessage
	for _, s := range elements(array, whole(array)) {
		out = append(out, s.of(array))
	}
	return out
}

// Entries yields the keys and values of a JSON object in order; keys that stand
// twice are yielded twice.
func Entries(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for _, m := range members(object, whole(object)) {
			if !yield(m.key, m.val.of(object)) {
				return
			}
		}
	}
}

// Edit returns the message with value at the path of keys, made where it is
// absent, and every other byte as it was. A nil value removes the member. The
// message must be a well-formed JSON object; msg itself is not changed.
func Edit(msg []byte, value []byte, path ...string) []byte {
	return editAt(msg, whole(msg), value, path)
}

func editAt(msg []byte, at span, value []byte, path []string) []byte {
	ms := members(msg, at)
	for i, m := range ms {
		if m.key != path[0] {
			continue
		}
		if len(path) > 1 {
			return editAt(msg, m.val, value, path[1:])
		}
		if value != nil {
			return splice(msg, m.val, value)
		}
		return splice(msg, removal(msg, at, ms, i), nil)
	}
	if value == nil || at.len() < 2 || msg[at.lo] != '{' {
		return msg
	}
	for i := len(path) - 1; i > 0; i-- {
		value = append(append(append([]byte{'{'}, strictjson.AppendString(nil, path[i])...), ':'), append(value[:len(value):len(value)], '}')...)
	}
	member := append(append(strictjson.AppendString(nil, path[0]), ':'), value...)
	if len(ms) > 0 {
		member = append([]byte{','}, member...)
		end := ms[len(ms)-1].val.hi
		return splice(msg, span{end, end}, member)
	}
	return splice(msg, span{at.lo + 1, at.lo + 1}, member)
}

// removal is the span of a member with the comma that belongs to it.
func removal(msg []byte, at span, ms []member, i int) span {
	lo := skipSpace(msg, at.lo+1)
	if i > 0 {
		return span{ms[i-1].val.hi, ms[i].val.hi}
	}
	if len(ms) > 1 {
		hi := skipSpace(msg, ms[0].val.hi)
		return span{lo, hi + 1} // the comma behind it
	}
	return span{lo, ms[0].val.hi}
}

func splice(msg []byte, at span, with []byte) []byte {
	out := make([]byte, 0, len(msg)-at.len()+len(with))
	out = append(out, msg[:at.lo]...)
	out = append(out, with...)
	return append(out, msg[at.hi:]...)
}
