package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// The methods that Cordon has to do with. All others pass.
const (
	callTool     = "tools/call"
	listTools    = "tools/list"
	readResource = "resources/read"
	subscribe    = "resources/subscribe"
	getPrompt    = "prompts/get"
	taskResult   = "tasks/result"
	initialize   = "initialize"
	discover     = "server/discover"
	cancelled    = "notifications/cancelled"
	listen       = "subscriptions/listen"
)

// JSON-RPC error codes. codeServer is in the range left to implementations.
const (
	codeParse   = -32700
	codeInvalid = -32600
	codeServer  = -32000
)

// maxBatch is how many messages one batch may hold.
const maxBatch = 256

// Judge looks at the JSON-RPC messages of one connection between a client
// and one MCP server. It does no I/O: a transport gives it each message and
// does what the Verdict says. It is safe for concurrent use; that no two requests
// with one id are judged at once is the transport's to see to.
type Judge struct {
	guard     cordon.Guard
	run       cordon.Run
	mode      cordon.Mode
	server    string
	dir       string // of relative paths; empty is the workspace
	maxResult int
	deliver   func(cordon.Chunk) string
	held      *Approvals
	flight    inflight
}

// NewJudge makes a Judge for one connection. Of cfg it uses Guard, Mode, Run,
// Server, Command (where Server is empty), Dir, MaxResult, DeliverTagged and
// Approvals; errors are those of Serve for a bad Config.
func NewJudge(cfg Config) (*Judge, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newJudge(cfg), nil
}

func newJudge(cfg Config) *Judge {
	return &Judge{
		guard: cfg.Guard, mode: cfg.Mode, run: cfg.Run, server: cfg.Server, dir: cfg.Dir, maxResult: cfg.MaxResult,
		deliver: cfg.DeliverTagged, held: cfg.Approvals,
	}
}

// Verdict is what becomes of one message. A message of which neither Forward
// nor Answer is set is dropped.
type Verdict struct {
	// Forward goes on to the other side, without a line end. It is the very
	// message unless a part of it was refused, hidden or cut.
	Forward []byte
	// Answer goes back to where the message came from.
	Answer []byte
	// Note is for the person who reads Cordon's stderr.
	Note string
	// Settle, when set, must be called after the message has gone out.
	Settle func() error
	// Ask is set beside Answer where a person may approve what was refused, and
	// may be asked by an elicitation/create request of the transport instead of
	// sending Answer. What the person said goes to Judge.Approve.
	Ask *Ask
}

// Client judges one message from the client. It has returned from
// Guard.Decide before an answer to a refused call can be sent.
func (j *Judge) Client(ctx context.Context, msg []byte) Verdict {
	if len(bytes.TrimSpace(msg)) == 0 {
		return Verdict{Forward: msg}
	}
	// Some servers read lines with universal line ends: a bare CR, which is
	// white space to JSON, would be the end of a message to them.
	if i := bytes.IndexByte(msg, '\r'); i >= 0 && i < len(msg)-1 {
		return j.unreadable(ctx, msg, codeParse, "carriage return inside a message")
	}
	v, err := strictjson.Parse(msg)
	if err != nil {
		code := codeInvalid
		if !json.Valid(msg) {
			code = codeParse
		}
		return j.unreadable(ctx, msg, code, err.Error())
	}
	if v.Kind == strictjson.Array {
		return j.batch(ctx, msg, &v)
	}
	return j.one(ctx, msg, whole(msg), &v)
}

// Oversize judges a message of the client that is longer than the transport
// would hold. head is its beginning. Where the verdict forwards head, the
// rest of the message has to follow it.
func (j *Judge) Oversize(ctx context.Context, head []byte, limit int) Verdict {
	return j.malformed(ctx, head, []byte("null"), codeInvalid,
		fmt.Sprintf("message longer than %d bytes", limit))
}

// batch judges each message of a batch (revision 2025-03-26). What is not
// refused goes on in a batch of its own.
func (j *Judge) batch(ctx context.Context, msg []byte, v *strictjson.Value) Verdict {
	if n := len(v.Items); n == 0 || n > maxBatch {
		return j.malformed(ctx, msg, []byte("null"), codeInvalid,
			fmt.Sprintf("batch of %d messages (want 1 to %d)", n, maxBatch))
	}
	spans := elements(msg, whole(msg))
	var out Verdict
	var forward, answers [][]byte
	for i := range v.Items {
		one := j.one(ctx, msg, spans[i], &v.Items[i])
		if one.Forward != nil {
			forward = append(forward, spans[i].of(msg))
		}
		if one.Answer != nil {
			answers = append(answers, one.Answer)
		}
		out.Note = joinNotes(out.Note, one.Note)
		out.Settle = joinSettle(out.Settle, one.Settle)
	}
	switch {
	case len(forward) == len(spans):
		out.Forward = msg
	case len(forward) > 0:
		out.Forward = list(forward)
	}
	if len(answers) > 0 {
		out.Answer = list(answers)
	}
	return out
}

func list(items [][]byte) []byte {
	out := append([]byte{'['}, bytes.Join(items, []byte(","))...)
	return append(out, ']')
}

func joinNotes(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

func joinSettle(a, b func() error) func() error {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return func() error {
		err := a()
		if berr := b(); err == nil {
			err = berr
		}
		return err
	}
}

// envelope is what tells a client's message from another.
type envelope struct {
	// id is the id's spelling, nil where there is none; key tells it apart.
	id     []byte
	idText string
	key    string
	method string
	// params is the value of params, at its place in the message.
	params   *strictjson.Value
	paramsAt span
}

// isRequest: an answer is waited for.
func (e *envelope) isRequest() bool { return e.id != nil }

// one judges one message, which stands at at in msg; a refused one is
// answered, any other is returned as Forward.
func (j *Judge) one(ctx context.Context, msg []byte, at span, v *strictjson.Value) Verdict {
	env, isReply, bad := readEnvelope(msg, at, v)
	if bad != "" {
		return j.malformed(ctx, msg, plainID(at.of(msg)), codeInvalid, bad)
	}
	if isReply {
		return Verdict{Forward: msg}
	}
	if env.isRequest() {
		if why := j.flight.admits(env.key); why != "" {
			return j.malformed(ctx, msg, env.id, codeInvalid, why)
		}
	}
	switch env.method {
	case callTool, readResource, subscribe:
		if v, ours := j.takeUp(ctx, msg, &env); ours {
			return v
		}
		return j.call(ctx, msg, &env, "")
	case cancelled:
		return Verdict{Forward: msg, Settle: j.cancelRequest(ctx, env.params)}
	}
	if env.looksLikeCall() {
		return j.call(ctx, msg, &env, "")
	}
	if env.isRequest() {
		if v, down := j.follow(&env, nil); down {
			return v
		}
	}
	return Verdict{Forward: msg}
}

// subject is what a request is about: its tool, prompt or resource.
func (e *envelope) subject() string {
	if e.params == nil || e.params.Kind != strictjson.Object {
		return ""
	}
	text, ok := e.params.Text("name")
	if !ok {
		text, _ = e.params.Text("uri")
	}
	return clip(text, 256)
}

// looksLikeCall: the method is not known, and its params name something and
// the arguments for it as those of tools/call do. Revisions to come and servers
// with methods of their own run tools under other names; what reads like a call
// is judged as one.
func (e *envelope) looksLikeCall() bool {
	if e.method == getPrompt || e.params == nil || e.params.Kind != strictjson.Object {
		return false
	}
	_, named := e.params.Text("name")
	args := e.params.Get("arguments")
	return named && args != nil && args.Kind == strictjson.Object
}

// readEnvelope reads what a message is. bad says why it is none.
func readEnvelope(msg []byte, at span, v *strictjson.Value) (env envelope, isReply bool, bad string) {
	if v.Kind != strictjson.Object {
		return env, false, fmt.Sprintf("a message is an object, not %s", article(v.Kind))
	}
	for _, k := range v.Keys {
		if real := lookalike(k, envelopeKeys[:]...); real != "" {
			return env, false, fmt.Sprintf("key %.64q could be taken for %q", k, real)
		}
	}
	ms := members(msg, at)
	id, method := v.Get("id"), v.Get("method")
	if method == nil {
		if v.Get("result") == nil && v.Get("error") == nil {
			return env, false, "neither a method nor a result"
		}
		return env, true, ""
	}
	if id != nil {
		switch {
		case id.Kind == strictjson.Null:
			// Not a request that could be told from others; some servers act
			// on it all the same.
			return env, false, "the id is null"
		case id.Kind != strictjson.String && id.Kind != strictjson.Number:
			return env, false, fmt.Sprintf("the id is %s", article(id.Kind))
		case len(id.Str) > maxID:
			return env, false, fmt.Sprintf("the id is longer than %d bytes", maxID)
		}
		s, _ := find(ms, "id")
		env.id, env.idText, env.key = s.of(msg), id.Str, idKey(id)
	}
	if method.Kind != strictjson.String {
		return env, false, fmt.Sprintf("the method is %s, not a string", article(method.Kind))
	}
	env.method = method.Str
	if real := lookalike(method.Str, callTool, readResource, subscribe, listTools); real != "" {
		return env, false, fmt.Sprintf("method %.64q could be taken for %q", method.Str, real)
	}
	env.params = v.Get("params")
	env.paramsAt, _ = find(ms, "params")
	return env, false, ""
}

func article(k strictjson.Kind) string {
	switch k {
	case strictjson.Null:
		return "null"
	case strictjson.Array, strictjson.Object:
		return "an " + k.String()
	}
	return "a " + k.String()
}

// unreadable judges a message that is not strict JSON. It answers under the
// message's id only where that is plain to see and the message is a request:
// the id of an answer is the server's.
func (j *Judge) unreadable(ctx context.Context, msg []byte, code int, why string) Verdict {
	return j.malformed(ctx, msg, plainID(msg), code, why)
}

func plainID(msg []byte) []byte {
	null := []byte("null")
	if !json.Valid(msg) {
		return null
	}
	var id []byte
	request := false
	for _, m := range members(msg, whole(msg)) {
		switch lookalikeOrSame(m.key) {
		case "id":
			if raw := m.val.of(msg); id == nil && len(raw) <= maxID && (raw[0] == '"' || raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9') {
				id = raw
			} else {
				return null
			}
		case "method":
			request = true
		case "result", "error":
			return null
		}
	}
	if id == nil || !request {
		return null
	}
	if _, err := strictjson.Parse(id); err != nil {
		return null
	}
	return id
}

func lookalikeOrSame(key string) string {
	if real := lookalike(key, envelopeKeys[:]...); real != "" {
		return real
	}
	return key
}

// malformed decides on a message that could not be read without doubt.
func (j *Judge) malformed(ctx context.Context, msg, id []byte, code int, why string) Verdict {
	d := j.guard.Decide(ctx, cordon.Call{ID: idText(id), Run: j.run, Server: j.server, Malformed: why})
	if d.Refused() {
		return Verdict{Answer: errorAnswer(id, code, "Cordon refused this message: "+why+
			". It was not sent on. Send one JSON-RPC 2.0 message a line, each key once and spelled as the protocol has it.")}
	}
	return Verdict{Forward: msg}
}

func idText(raw []byte) string {
	switch {
	case raw[0] == '"':
		return decode(raw)
	case raw[0] == 'n':
		return ""
	}
	return string(raw)
}

// call judges what a message would do: a tool's call, or a resource's read.
// approval is the proposal that it takes up, or empty.
func (j *Judge) call(ctx context.Context, msg []byte, env *envelope, approval string) Verdict {
	c := j.readCall(msg, env)
	c.Approval = approval
	d := j.guard.Decide(ctx, c)
	if d.Refused() {
		if !env.isRequest() {
			return Verdict{Note: fmt.Sprintf("cordon: refused a call of %.64q that asked for no answer", c.Tool)}
		}
		return j.refuse(msg, env, &c, &d)
	}
	if !env.isRequest() {
		return Verdict{Forward: msg, Settle: j.settle(ctx, &d, cordon.Usage{})}
	}
	if v, down := j.follow(env, &d); down {
		v.Settle = j.settle(ctx, &d, cordon.Usage{Failed: true})
		return v
	}
	return Verdict{Forward: msg}
}

// refuse answers a call that was refused. Where a person may approve it, the
// verdict says how they are asked.
func (j *Judge) refuse(msg []byte, env *envelope, c *cordon.Call, d *cordon.Decision) Verdict {
	text := refusal(c, d)
	v := Verdict{Answer: errorAnswer(env.id, codeServer, text)}
	if env.method == callTool {
		v.Answer = toolAnswer(env.id, text)
	}
	if d.Proposal == "" || c.Approval != "" || env.method != callTool {
		return v
	}
	if j.held == nil {
		return v // nobody is to be asked through the client
	}
	ask := &Ask{Proposal: d.Proposal, Params: askParams(c, d)}
	if meta := env.params.Get("_meta"); meta != nil {
		if caps := meta.Get(metaCapabilities); caps != nil && takesForms(caps) {
			if a := j.hold(msg, env, ask); a != nil {
				v.Answer = a
				return v
			}
		}
	}
	v.Ask = ask
	return v
}

// readCall makes the call of a message. What stands in params beside the
// name and the arguments (a task, _meta, inputResponses) is the protocol's.
func (j *Judge) readCall(msg []byte, env *envelope) cordon.Call {
	c := cordon.Call{ID: env.idText, Run: j.run, Server: j.server, Dir: j.dir, Args: json.RawMessage("{}")}
	name, args := "name", "arguments"
	// Who subscribes to a resource learns what becomes of it: a read as well.
	resource := env.method == readResource || env.method == subscribe
	if resource {
		c.Tool, name, args = readResource, "uri", "uri"
	}
	if env.params == nil || env.params.Kind != strictjson.Object {
		c.Malformed = "params is no object"
		return c
	}
	text, ok := env.params.Text(name)
	if !ok {
		c.Malformed = fmt.Sprintf("params.%s is missing or no string", name)
	}
	if resource && strings.Contains(text, "://") {
		c.Dir = "" // a URI starts from nowhere
	}
	for _, k := range env.params.Keys {
		if real := lookalike(k, name, args); real != "" {
			c.Malformed = fmt.Sprintf("key %.64q could be taken for %q", k, real)
		}
		if real := otherSpelling(k); real != "" && !resource {
			c.Malformed = fmt.Sprintf("key %.64q could be taken for %q", k, real)
		}
	}
	raw, there := find(members(msg, env.paramsAt), args)
	switch {
	case resource:
		if there {
			c.Args = append(append([]byte(`{"uri":`), raw.of(msg)...), '}')
		}
		return c
	case there && env.params.Get(args).Kind != strictjson.Null:
		// Its capacity ends with it: the transport appends to the message.
		c.Args = raw.of(msg)[:raw.len():raw.len()]
	}
	c.Tool = text
	return c
}

// otherSpelling returns the member of a call's params that a forgiving server
// could take key for. The protocol has none of these; a call that holds one
// would be judged by other arguments than it runs with.
func otherSpelling(key string) string {
	if len(key) > 32 {
		return "" // none of these with separators strewn in
	}
	switch strings.Map(letterOnly, key) {
	case "tool", "toolname":
		return "name"
	case "args", "argument", "input", "inputs", "kwargs", "params", "parameters",
		"toolargs", "toolarguments", "toolinput", "toolparams":
		return "arguments"
	}
	return ""
}

// letterOnly folds case and drops the separators that spellings differ by.
func letterOnly(r rune) rune {
	if r == '_' || r == '-' {
		return -1
	}
	return unicode.ToLower(r)
}

// follow remembers a request until its answer comes. Where the server is
// down, it is answered instead.
func (j *Judge) follow(env *envelope, d *cordon.Decision) (Verdict, bool) {
	down := j.flight.add(&request{key: env.key, raw: env.id, method: env.method, tool: env.subject(), since: time.Now(), call: d})
	if down == "" {
		return Verdict{}, false
	}
	_, killed := j.flight.state()
	return Verdict{Answer: j.downAnswer(env, down, killed)}, true
}

func (j *Judge) cancelRequest(ctx context.Context, params *strictjson.Value) func() error {
	id := params.Get("requestId")
	if id == nil || id.Kind != strictjson.String && id.Kind != strictjson.Number {
		return nil
	}
	d, used := j.flight.cancel(idKey(id))
	if d == nil {
		return nil
	}
	return j.settle(ctx, d, cordon.Usage{Exec: used})
}

func (j *Judge) settle(ctx context.Context, d *cordon.Decision, used cordon.Usage) func() error {
	return func() error {
		// What was used is booked even when the connection is ending.
		err := j.guard.Settle(context.WithoutCancel(ctx), *d, used)
		if err != nil {
			return fmt.Errorf("mcp: settle call %.64q: %w", d.CallID, err)
		}
		return nil
	}
}

// Close tells the judge that the server will answer nothing more, and why.
// It returns the answers to the requests left waiting, and what must be
// called after they went out (nil: nothing). With killed set the
// cause is the run's end: from then on nothing from the server passes.
func (j *Judge) Close(ctx context.Context, why string, killed bool) (answers [][]byte, settle func() error) {
	for _, r := range j.flight.close(why, killed) {
		if r.call != nil {
			settle = joinSettle(settle, j.settle(ctx, r.call, cordon.Usage{Exec: time.Since(r.since), Failed: true}))
		}
		if r.cancelled {
			continue
		}
		if killed && r.method == callTool {
			answers = append(answers, toolAnswer(r.raw, why))
		} else {
			answers = append(answers, errorAnswer(r.raw, codeServer, why))
		}
	}
	return answers, settle
}

// Unanswered is how many of the client's requests the server has not answered.
func (j *Judge) Unanswered() int { return j.flight.unanswered() }

// Silent returns a note for each request that has waited for longer than d
// and was not noted before.
func (j *Judge) Silent(d time.Duration) []string {
	var notes []string
	for _, r := range j.flight.silent(d) {
		if r.method == listen {
			continue // stays open by design
		}
		notes = append(notes, fmt.Sprintf("cordon: server %q has not answered %.64q (id %s) for more than %s",
			j.server, r.method, r.raw, d))
	}
	return notes
}
