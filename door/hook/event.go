package hook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// kind says what an event asks for. The zero value cannot be read.
type kind uint8

const (
	unreadable kind = iota
	preTool
	postTool
	prompt
	// ignored events exist in the agent and have nothing to do with tools.
	ignored
)

// event is one event as an agent sent it.
type event struct {
	agent *agent
	name  string
	kind  kind
	// bad says why the event, or what of it matters, could not be read.
	bad     string
	members map[string]json.RawMessage
	session string
	// root and cwd are the directories that the event names, as written;
	// project is what the agent's variable names.
	root, cwd, project string
	// permission is the agent's permission mode.
	permission string
	call       cordon.Call
	chunks     []cordon.Chunk
	took       time.Duration
	failed     bool
}

// maxMembers is how many members an event may have.
const maxMembers = 128

// readEvent reads an event. Only the envelope is read strictly: the arguments
// are the guard's to read, and results may hold any bytes.
func readEvent(a *agent, raw []byte) (e *event) {
	e = &event{agent: a}
	defer func() {
		if p := recover(); p != nil {
			e = &event{agent: a, bad: "it could not be read"}
		}
	}()
	if e.bad = e.envelope(raw); e.bad != "" {
		return e
	}
	e.name = e.text("hook_event_name")
	if e.bad != "" {
		return e
	}
	k, known := a.events[e.name]
	if !known {
		e.call.Tool = e.text("tool_name")
		e.bad = fmt.Sprintf("%s has no event %.64q that Cordon knows", a.title, e.name)
		return e
	}
	e.kind = k
	if k == ignored {
		return e
	}
	e.session = e.text(a.sessionKey)
	if e.session == "" && e.bad == "" {
		e.bad = fmt.Sprintf("the event names no %q", a.sessionKey)
	}
	e.cwd = e.text("cwd")
	a.read(e)
	return e
}

// envelope takes the top-level members apart.
func (e *event) envelope(raw []byte) (bad string) {
	if len(raw) > MaxEvent {
		return fmt.Sprintf("it is larger than %d bytes", MaxEvent)
	}
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "it is not one JSON object"
	}
	e.members = make(map[string]json.RawMessage, 16)
	folded := make(map[string]string, 16)
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return "it is not one JSON object"
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return "it is not one JSON object"
		}
		if was, twice := folded[strings.ToLower(key)]; twice {
			return fmt.Sprintf("its keys %.64q and %.64q could be taken for each other", was, key)
		}
		if len(e.members) >= maxMembers {
			return fmt.Sprintf("it has more than %d members", maxMembers)
		}
		folded[strings.ToLower(key)], e.members[key] = key, value
	}
	if _, err := dec.Token(); err != nil {
		return "it is not one JSON object"
	}
	if rest, _ := dec.Token(); rest != nil || dec.More() {
		return "there is data after it"
	}
	return ""
}

// text is the string that a member holds, "" where it is absent or null.
// Another type, or a text that two readers could read differently, is bad.
func (e *event) text(key string) string {
	raw, ok := e.members[key]
	if !ok {
		return ""
	}
	v, err := strictjson.Parse(raw)
	switch {
	case err != nil:
		e.wrong(fmt.Sprintf("%q is no plain string", key))
	case v.Kind == strictjson.Null:
	case v.Kind != strictjson.String:
		e.wrong(fmt.Sprintf("%q is a JSON %s (want a string)", key, v.Kind))
	default:
		return v.Str
	}
	return ""
}

// loose is the string that a member holds, with what is no character
// replaced. It is for text that is kept, not judged.
func (e *event) loose(key string) string {
	var s string
	if raw, ok := e.members[key]; ok && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return ""
}

func (e *event) wrong(why string) {
	if e.bad == "" {
		e.bad = why
	}
}

// pairing names a call to its end.
func (e *event) pairing() string {
	if e.call.ID != "" {
		return e.session + "\x00" + e.call.ID
	}
	sum := sha256.Sum256(e.call.Args)
	return e.session + "\x00\x00" + e.call.Server + "\x00" + e.call.Tool + "\x00" + string(sum[:])
}

// runID makes a run's ID of an agent's session.
func runID(agent, session string) string {
	const most = 100
	plain := len(session) <= most
	for i := 0; plain && i < len(session); i++ {
		c := session[i]
		plain = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	if plain {
		return agent + ":" + session
	}
	// A ':' keeps it apart from every plain session.
	sum := sha256.Sum256([]byte(session))
	return agent + "::" + hex.EncodeToString(sum[:16])
}
