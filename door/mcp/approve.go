package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// The keys of a stateless request's _meta (revision 2026-07-28).
const (
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
)

// Ask is what a person is asked about a refused call.
type Ask struct {
	// Proposal is the ID that the guard gave it.
	Proposal string
	// Params are those of the elicitation/create request, a form whose one
	// field "decision" is "approve" or "reject".
	Params json.RawMessage
}

// approvalBy is who resolves a proposal that is approved through the client.
const approvalBy = "mcp elicitation"

// askParams asks for one call by what it would do, in text that cannot be
// mistaken for the form's own: what the agent wrote is quoted.
func askParams(c *cordon.Call, d *cordon.Decision) json.RawMessage {
	var b strings.Builder
	fmt.Fprintf(&b, "Cordon holds back a call of the tool %s", quoted(c.Tool))
	if c.Server != "" {
		fmt.Fprintf(&b, " of server %s", quoted(c.Server))
	}
	reasons, left := findingTexts(d.Findings)
	if len(reasons) > 0 {
		b.WriteString(": " + strings.Join(reasons, "; "))
	}
	if left > 0 {
		fmt.Fprintf(&b, " (%d more)", left)
	}
	fmt.Fprintf(&b, ". Its arguments: %s. Approve this one call?", shownArgs(string(c.Args)))
	out := append([]byte(`{"mode":"form","message":`), strictjson.AppendString(nil, strings.ToValidUTF8(b.String(), "\uFFFD"))...)
	return append(out, `,"requestedSchema":{"type":"object","properties":{"decision":{"type":"string","title":"Decision","enum":["approve","reject"]}},"required":["decision"]}}`...)
}

// shownArgs is what a person sees of the arguments. Of long ones the beginning
// and the end, and how much is left out: a tail out of sight is no consent.
func shownArgs(args string) string {
	const head, end = 2000, 600
	if len(args) <= head+end {
		return strconv.QuoteToGraphic(args)
	}
	return fmt.Sprintf("%s … (%d BYTES ARE NOT SHOWN HERE) … %s",
		strconv.QuoteToGraphic(clip(args, head)), len(args)-head-end, strconv.QuoteToGraphic(strings.ToValidUTF8(args[len(args)-end:], "")))
}

// TakesForms reports whether a client's capabilities let it be asked by a form.
func TakesForms(capabilities []byte) bool {
	v, err := strictjson.Parse(capabilities)
	return err == nil && takesForms(&v)
}

// takesForms: an empty elicitation capability means forms, as it did before
// there was another kind.
func takesForms(caps *strictjson.Value) bool {
	e := caps.Get("elicitation")
	if e == nil || e.Kind != strictjson.Object {
		return false
	}
	return len(e.Keys) == 0 || e.Get("form") != nil
}

// Answered is what a person said to an Ask.
type Answered uint8

const (
	// NotAnswered leaves the proposal as it is: the form was closed.
	NotAnswered Answered = iota
	Rejected
	Approved
)

// ReadAnswer reads the result of an elicitation/create request. Only an
// accepted form with the decision "approve" approves.
func ReadAnswer(result []byte) Answered {
	v, err := strictjson.Parse(result)
	if err != nil {
		return NotAnswered
	}
	action, _ := v.Text("action")
	content := v.Get("content")
	switch action {
	case "decline":
		return Rejected
	case "accept":
		if content == nil {
			return NotAnswered
		}
		switch decision, _ := content.Text("decision"); decision {
		case "approve":
			return Approved
		case "reject":
			return Rejected
		}
	}
	return NotAnswered
}

// Approve carries out what a person said to v.Ask, where v is what Client
// returned for msg. An approved call enters the guard again, under the
// proposal; the verdict is the one that then counts.
func (j *Judge) Approve(ctx context.Context, msg []byte, v Verdict, said Answered) Verdict {
	ask := v.Ask
	v.Ask = nil
	if ask == nil {
		return v
	}
	switch said {
	case Approved:
		tree, err := strictjson.Parse(msg)
		if err != nil {
			return v
		}
		env, isReply, bad := readEnvelope(msg, whole(msg), &tree)
		if bad != "" || isReply || env.method != callTool {
			return v
		}
		if err := j.guard.Resolve(ctx, ask.Proposal, true, approvalBy); err != nil {
			v.Note = joinNotes(v.Note, fmt.Sprintf("cordon: proposal %s could not be approved: %v", ask.Proposal, err))
			return v
		}
		return j.call(ctx, msg, &env, ask.Proposal)
	case Rejected:
		if err := j.guard.Resolve(ctx, ask.Proposal, false, approvalBy); err != nil {
			v.Note = joinNotes(v.Note, fmt.Sprintf("cordon: proposal %s could not be rejected: %v", ask.Proposal, err))
		}
		v.Answer = toolAnswer(plainID(msg), "The person rejected this call; nothing of it ran. Do not send it again.")
	}
	return v
}

// Approvals keeps calls of stateless clients that wait for a person: such a
// client gets the question as the result of its call, and sends the call again
// with the answer. It is safe for concurrent use.
type Approvals struct {
	mu   sync.Mutex
	held map[string]heldCall
}

type heldCall struct {
	run, server string
	msg         []byte // as it was refused
	ask         *Ask
	since       time.Time
}

const (
	// maxHeld is how many calls may wait; the oldest is forgotten first.
	maxHeld = 1024
	// heldFor is how long an answer may take.
	heldFor = 15 * time.Minute
	// heldState begins the request states that are Cordon's.
	heldState = "cordon:"
	// heldKey names Cordon's question among the input requests.
	heldKey = "cordon"
)

// NewApprovals returns an empty one.
func NewApprovals() *Approvals { return &Approvals{held: map[string]heldCall{}} }

func (a *Approvals) put(h heldCall) (state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	oldest := ""
	for k, o := range a.held {
		if time.Since(o.since) > heldFor {
			delete(a.held, k)
		} else if oldest == "" || o.since.Before(a.held[oldest].since) {
			oldest = k
		}
	}
	if len(a.held) >= maxHeld {
		delete(a.held, oldest)
	}
	state = heldState + rand.Text()
	a.held[state] = h
	return state
}

// take returns a held call once, to the run that it belongs to.
func (a *Approvals) take(state, run, server string) (heldCall, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.held[state]
	if !ok || h.run != run || h.server != server || time.Since(h.since) > heldFor {
		return heldCall{}, false
	}
	delete(a.held, state)
	return h, true
}

// hold answers a stateless client's refused call by the question whether a
// person approves it.
func (j *Judge) hold(msg []byte, env *envelope, ask *Ask) []byte {
	if env.id == nil {
		return nil
	}
	state := j.held.put(heldCall{run: j.run.ID, server: j.server, msg: bytes.Clone(msg), ask: ask, since: time.Now()})
	result := append([]byte(`{"resultType":"input_required","inputRequests":{"`+heldKey+`":{"method":"elicitation/create","params":`), ask.Params...)
	result = append(result, `}},"requestState":`...)
	result = append(strictjson.AppendString(result, state), '}')
	return resultAnswer(env.id, string(result))
}

// takeUp judges a call that comes back with a person's answer. The arguments
// may have changed meanwhile: such a call is a new one, and the answer is not
// for it. ours is false for every other message.
func (j *Judge) takeUp(ctx context.Context, msg []byte, env *envelope) (v Verdict, ours bool) {
	if j.held == nil || env.method != callTool || env.params == nil || env.params.Kind != strictjson.Object || !env.isRequest() {
		return Verdict{}, false
	}
	state, _ := env.params.Text("requestState")
	if !strings.HasPrefix(state, heldState) {
		return Verdict{}, false
	}
	h, ok := j.held.take(state, j.run.ID, j.server)
	if !ok || !sameCall(h.msg, msg) {
		// Nothing that was asked is answered by it; what it asks for is judged
		// as a new call, without the state that is not the server's.
		bare := Edit(Edit(msg, nil, "params", "requestState"), nil, "params", "inputResponses")
		return j.again(ctx, bare, ""), true
	}
	said := ReadAnswer(Member(msg, "params", "inputResponses", heldKey))
	// What is forwarded is the call as it was first sent, which may itself
	// carry the server's own state, under the new request's id and _meta.
	call := Edit(h.msg, env.id, "id")
	if meta := Member(msg, "params", "_meta"); meta != nil {
		call = Edit(call, meta, "params", "_meta")
	}
	switch said {
	case Approved:
		if err := j.guard.Resolve(ctx, h.ask.Proposal, true, approvalBy); err != nil {
			return Verdict{
				Answer: toolAnswer(env.id, "Cordon could not take up the approval; nothing of the call ran. Tell the person."),
				Note:   fmt.Sprintf("cordon: proposal %s could not be approved: %v", h.ask.Proposal, err),
			}, true
		}
		return j.again(ctx, call, h.ask.Proposal), true
	case Rejected:
		v = Verdict{Answer: toolAnswer(env.id, "The person rejected this call; nothing of it ran. Do not send it again.")}
		if err := j.guard.Resolve(ctx, h.ask.Proposal, false, approvalBy); err != nil {
			v.Note = fmt.Sprintf("cordon: proposal %s could not be rejected: %v", h.ask.Proposal, err)
		}
		return v, true
	}
	return Verdict{Answer: toolAnswer(env.id, "Nobody answered whether this call may run; nothing of it ran. A person may still approve it: cordon proposals approve "+h.ask.Proposal+".")}, true
}

// again judges a message that Cordon put together from ones that were read
// before.
func (j *Judge) again(ctx context.Context, msg []byte, approval string) Verdict {
	tree, err := strictjson.Parse(msg)
	if err != nil {
		return j.unreadable(ctx, msg, codeInvalid, err.Error())
	}
	env, _, bad := readEnvelope(msg, whole(msg), &tree)
	if bad != "" {
		return j.malformed(ctx, msg, plainID(msg), codeInvalid, bad)
	}
	return j.call(ctx, msg, &env, approval)
}

// sameCall compares the tool and the arguments of two calls, byte for byte.
func sameCall(a, b []byte) bool {
	return bytes.Equal(Member(a, "params", "name"), Member(b, "params", "name")) &&
		bytes.Equal(Member(a, "params", "arguments"), Member(b, "params", "arguments"))
}
