package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// askFor is how long a person may take to answer a form.
const askFor = 10 * time.Minute

// maxAsked is how many forms may be open at once on one connection.
const maxAsked = 32

// asking is what the client of a connection with a handshake is being asked.
type asking struct {
	mu sync.Mutex
	// forms: the client said that it can show one.
	forms bool
	open  map[string]openAsk // by the id of the elicitation/create request
}

type openAsk struct {
	msg   []byte // the call
	key   string // its id, as it is told from others
	v     Verdict
	since time.Time
}

// learn reads the capabilities of an initialize request.
func (a *asking) learn(msg []byte) {
	if !bytes.Contains(msg, []byte(`"initialize"`)) || string(Member(msg, "method")) != `"initialize"` {
		return
	}
	forms := TakesForms(Member(msg, "params", "capabilities"))
	a.mu.Lock()
	a.forms = forms
	a.mu.Unlock()
}

// ask returns the request that asks the client about v, or nil where it cannot
// be asked.
func (a *asking) ask(msg []byte, v Verdict) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.forms || len(a.open) >= maxAsked {
		return nil
	}
	id := "cordon-" + rand.Text()
	if a.open == nil {
		a.open = map[string]openAsk{}
	}
	a.open[id] = openAsk{msg: bytes.Clone(msg), key: string(Member(msg, "id")), v: v, since: time.Now()}
	return ElicitRequest(id, v.Ask)
}

// ElicitRequest is the elicitation/create request for an Ask.
func ElicitRequest(id string, ask *Ask) []byte {
	out := append([]byte(`{"jsonrpc":"2.0","id":`), strictjson.AppendString(nil, id)...)
	out = append(out, `,"method":"elicitation/create","params":`...)
	return append(append(out, ask.Params...), '}')
}

// take returns the ask that msg answers.
func (a *asking) take(msg []byte) (o openAsk, said Answered, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 || !bytes.Contains(msg, []byte("cordon-")) {
		return openAsk{}, NotAnswered, false
	}
	v, err := strictjson.Parse(msg)
	if err != nil || v.Get("method") != nil {
		return openAsk{}, NotAnswered, false
	}
	id, _ := v.Text("id")
	o, ok = a.open[id]
	if !ok {
		return openAsk{}, NotAnswered, false
	}
	delete(a.open, id)
	if result := Member(msg, "result"); result != nil {
		said = ReadAnswer(result)
	}
	return o, said, true
}

// drop takes back the question about a call that the client has given up.
func (a *asking) drop(msg []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) == 0 || string(Member(msg, "method")) != `"`+cancelled+`"` {
		return
	}
	key := string(Member(msg, "params", "requestId"))
	for id, o := range a.open {
		if o.key == key {
			delete(a.open, id)
		}
	}
}

// late takes the questions that have been open for too long.
func (a *asking) late() (out []openAsk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, o := range a.open {
		if time.Since(o.since) > askFor {
			delete(a.open, id)
			out = append(out, o)
		}
	}
	return out
}

// answered carries on with a call that a person was asked about.
func (c *connection) answered(ctx context.Context, o openAsk, said Answered) error {
	return c.pass(c.judge.Approve(ctx, o.msg, o.v, said), true)
}
