// Package api is the JSON form of a call and of a decision, as `cordon
// check` reads and writes them, one a line, and as the HTTP door will.
//
// It guarantees one decision for each line, in order, whatever the line
// holds: what cannot be read as a call is a malformed call, which the guard
// decides and stores like any other.
//
// What it does not stop: a caller that does not ask, or does not heed the
// answer. A check is advice; the other doors are in the way of the call.
package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Request is one line: the call, and the client's id as it was spelled.
type Request struct {
	Call  cordon.Call
	RawID json.RawMessage // nil where the line gave none
	// Shared: the line names a run or a session that other lines may name
	// too, so that their order matters.
	Shared bool
}

// ReadCall reads {"id","run_id","tier","server","tool","args",…}; base gives
// what the line leaves out. A line that is no call comes back with
// Call.Malformed set. Further members are "session", "tenant", "agent",
// "user", "workspace", "home", "cwd", "chunks" (texts that the agent had seen,
// each {"id","type","source","text"}), "sources" (only their types),
// "approval" (a proposal that was approved), "samples" (plans of this step,
// each {"server","tool","args"}) and "match" ({"matches","text_only",
// "found_ms"}: how a browser action's selector matched); unknown ones are
// ignored.
func ReadCall(line []byte, base cordon.Run) Request {
	r := Request{Call: cordon.Call{Run: base}}
	v, err := strictjson.Parse(line)
	if err != nil {
		r.Call.Malformed = "the line is not one JSON object: " + err.Error()
		r.salvage(line)
		return r
	}
	if v.Kind != strictjson.Object {
		r.Call.Malformed = "the line is a JSON " + v.Kind.String() + " (want an object)"
		return r
	}
	for i, key := range v.Keys {
		r.member(key, &v.Items[i])
	}
	if r.Call.Tool == "" {
		r.malformed(`the line names no "tool"`)
	}
	r.Shared = r.Call.Run.ID != "" || r.Call.Run.Session != ""
	return r
}

// salvage finds the id and the tool of a line that was refused for something
// else in it, so that the caller and the audit can tell which call it was.
func (r *Request) salvage(line []byte) {
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil {
		return
	}
	if id, err := strictjson.Parse(m["id"]); err == nil && (id.Kind == strictjson.String || id.Kind == strictjson.Number) {
		r.id(&id)
	}
	if tool, err := strictjson.Parse(m["tool"]); err == nil && tool.Kind == strictjson.String {
		r.Call.Tool = tool.Str
	}
}

func (r *Request) malformed(why string) {
	if r.Call.Malformed == "" {
		r.Call.Malformed = why
	}
}

func (r *Request) member(key string, v *strictjson.Value) {
	run := &r.Call.Run
	switch key {
	case "id":
		r.id(v)
	case "tool":
		r.text(key, v, &r.Call.Tool)
	case "server":
		r.text(key, v, &r.Call.Server)
	case "args":
		r.Call.Args = strictjson.AppendCanonical(nil, v)
	case "run_id":
		r.text(key, v, &run.ID)
	case "session", "session_id":
		r.text(key, v, &run.Session)
	case "tenant", "tenant_id":
		r.text(key, v, &run.Tenant)
	case "agent", "agent_id":
		r.text(key, v, &run.Agent)
	case "user", "user_id":
		r.text(key, v, &run.User)
	case "workspace":
		r.text(key, v, &run.Workspace)
	case "home":
		r.text(key, v, &run.Home)
	case "profile":
		r.text(key, v, &run.Profile)
	case "cwd":
		r.text(key, v, &r.Call.Dir)
	case "approval":
		r.text(key, v, &r.Call.Approval)
	case "chunks":
		r.list(key, v, r.chunk)
	case "sources":
		r.list(key, v, r.source)
	case "samples":
		if v.Kind != strictjson.Null {
			r.Call.Samples = []cordon.Plan{} // none of them is not none drawn
		}
		r.list(key, v, r.sample)
	case "match":
		if v.Kind != strictjson.Null {
			r.match(v)
		}
	case "tier":
		var name string
		r.text(key, v, &name)
		run.Tier, _ = cordon.ParseTier(name) // an unknown tier is a student
	}
}

func (r *Request) list(key string, v *strictjson.Value, take func(*strictjson.Value) bool) {
	if v.Kind == strictjson.Null {
		return
	}
	ok := v.Kind == strictjson.Array && len(v.Items) <= maxChunks
	for i := 0; ok && i < len(v.Items); i++ {
		ok = take(&v.Items[i])
	}
	if !ok {
		r.malformed(fmt.Sprintf("%q is no list of at most %d such entries", key, maxChunks))
	}
}

// maxChunks is how many texts a line may bring.
const maxChunks = 4096

// chunk takes {"id","type","source","text"}: a text that the agent had seen.
func (r *Request) chunk(v *strictjson.Value) bool {
	if v.Kind != strictjson.Object {
		return false
	}
	var c cordon.Chunk
	var kind string
	for i, key := range v.Keys {
		var dst *string
		switch key {
		case "id":
			dst = &c.ID
		case "type":
			dst = &kind
		case "source":
			dst = &c.Source
		case "text":
			dst = &c.Text
		default:
			continue
		}
		if v.Items[i].Kind != strictjson.String {
			return false
		}
		*dst = v.Items[i].Str
	}
	c.Type = cordon.ChunkType(kind)
	r.Call.Chunks = append(r.Call.Chunks, c)
	return true
}

// source takes the type of a text that the agent had seen and that the caller
// does not have: that such text was there is known all the same.
func (r *Request) source(v *strictjson.Value) bool {
	if v.Kind != strictjson.String {
		return false
	}
	r.Call.Chunks = append(r.Call.Chunks, cordon.Chunk{Type: cordon.ChunkType(v.Str), Source: "said by the caller"})
	return true
}

// sample takes {"server","tool","args"}. One that is no plan counts all the
// same: it agrees with no call.
func (r *Request) sample(v *strictjson.Value) bool {
	var p cordon.Plan
	if v.Kind == strictjson.Object {
		p.Tool, _ = v.Text("tool")
		p.Server, _ = v.Text("server")
		if args := v.Get("args"); args != nil {
			p.Args = strictjson.AppendCanonical(nil, args)
		}
		if s := v.Get("server"); s != nil && s.Kind != strictjson.String && s.Kind != strictjson.Null {
			p.Tool = ""
		}
	}
	r.Call.Samples = append(r.Call.Samples, p)
	return true
}

// match takes {"matches","text_only","found_ms"}. What is left out speaks
// against the match: no element was met.
func (r *Request) match(v *strictjson.Value) {
	var m cordon.Match
	ok := v.Kind == strictjson.Object
	for i := 0; ok && i < len(v.Keys); i++ {
		item := &v.Items[i]
		switch v.Keys[i] {
		case "matches":
			m.Matches, ok = count(item)
		case "text_only":
			m.TextOnly, ok = item.Bool, item.Kind == strictjson.Bool
		case "found_ms":
			var ms int
			ms, ok = count(item)
			m.Found = time.Duration(ms) * time.Millisecond
		}
	}
	if !ok {
		r.malformed(`"match" is no {"matches": NUMBER, "text_only": BOOL, "found_ms": NUMBER}`)
	}
	r.Call.Match = &m
}

// count reads a number from 0 to a milliard; a part of one is cut off.
func count(v *strictjson.Value) (int, bool) {
	f, err := strconv.ParseFloat(v.Str, 64)
	return int(f), v.Kind == strictjson.Number && err == nil && f >= 0 && f <= 1e9
}

// text takes a string; null and "" leave what base gave, so that a line cannot
// get out of the run or the session it belongs to by naming none. Anything else
// makes the line malformed.
func (r *Request) text(key string, v *strictjson.Value, dst *string) {
	switch v.Kind {
	case strictjson.String:
		if v.Str != "" {
			*dst = v.Str
		}
	case strictjson.Null:
	default:
		r.malformed(`"` + key + `" is a JSON ` + v.Kind.String() + " (want a string)")
	}
}

func (r *Request) id(v *strictjson.Value) {
	switch v.Kind {
	case strictjson.String, strictjson.Number:
		r.Call.ID = v.Str
	case strictjson.Null:
		return
	default:
		r.malformed(`"id" is a JSON ` + v.Kind.String() + " (want a string or a number)")
	}
	r.RawID = strictjson.AppendCanonical(nil, v)
}

// AppendDecision appends the decision as one JSON object, without a newline.
func AppendDecision(dst []byte, rawID json.RawMessage, d *cordon.Decision) []byte {
	dst = append(dst, '{')
	if len(rawID) > 0 {
		dst = append(append(append(dst, `"id":`...), rawID...), ',')
	}
	dst = appendText(dst, `"decision":`, d.Outcome.String())
	dst = appendFlag(dst, `,"enforced":`, d.Enforced)
	dst = appendText(dst, `,"mode":`, d.Mode.String())
	dst = appendFlag(dst, `,"killrun_triggered":`, d.Killed)
	dst = appendFlag(dst, `,"would_kill":`, d.WouldKill)
	dst = appendText(dst, `,"run_id":`, d.RunID)
	dst = appendText(dst, `,"policy_id":`, d.PolicyID)
	dst = appendText(dst, `,"args_hash":`, d.ArgsHash)
	if d.Proposal != "" {
		dst = appendText(dst, `,"proposal":`, d.Proposal)
	}
	if d.Approval != "" {
		dst = appendText(dst, `,"approval":`, d.Approval)
	}
	dst = append(dst, `,"findings":[`...)
	for i := range d.Findings {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendFinding(dst, &d.Findings[i])
	}
	dst = append(dst, ']')
	if len(d.RewrittenArgs) > 0 {
		dst = append(append(dst, `,"rewritten_args":`...), d.RewrittenArgs...)
	}
	return append(dst, '}')
}

func appendFinding(dst []byte, f *cordon.Finding) []byte {
	dst = appendText(dst, `{"phase":`, string(f.Phase))
	dst = appendText(dst, `,"violation_type":`, string(f.Violation))
	dst = appendText(dst, `,"rule":`, f.Rule)
	dst = appendText(dst, `,"decision":`, f.Outcome.String())
	dst = appendText(dst, `,"detail":`, strings.ToValidUTF8(f.Detail, "\uFFFD"))
	if f.Arg != "" {
		dst = appendText(dst, `,"arg":`, f.Arg)
	}
	if len(f.Via) > 0 {
		dst = append(dst, `,"via":[`...)
		for i, via := range f.Via {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strictjson.AppendString(dst, strings.ToValidUTF8(via, "\uFFFD"))
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendText(dst []byte, key, s string) []byte {
	return strictjson.AppendString(append(dst, key...), s)
}

func appendFlag(dst []byte, key string, b bool) []byte {
	if b {
		return append(append(dst, key...), "true"...)
	}
	return append(append(dst, key...), "false"...)
}
