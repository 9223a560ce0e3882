package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Envelope is what a transport has to know of a message to pass it on. It is
// read leniently; whether a message may pass is for a Judge to say.
type Envelope struct {
	// ID is the id as it is spelled, nil where there is none. Key tells ids
	// apart as JSON does.
	ID  []byte
	Key string
	// Method is empty in a reply.
	Method string
	// Params is the value of params, or nil.
	Params json.RawMessage
}

// IsRequest: an answer is waited for.
func (e *Envelope) IsRequest() bool { return e.Method != "" && e.ID != nil }

// ReadEnvelope reads one message. ok is false for what is no JSON object.
func ReadEnvelope(msg []byte) (e Envelope, ok bool) {
	if !json.Valid(msg) {
		return e, false
	}
	at := whole(msg)
	if msg[at.lo] != '{' {
		return e, false
	}
	for _, m := range members(msg, at) {
		switch m.key {
		case "id":
			if e.ID == nil && string(m.val.of(msg)) != "null" {
				e.ID = m.val.of(msg)
				e.Key = KeyOf(e.ID)
			}
		case "method":
			if e.Method == "" {
				e.Method = decode(m.val.of(msg))
			}
		case "params":
			if e.Params == nil {
				e.Params = m.val.of(msg)
			}
		}
	}
	return e, true
}

// KeyOf tells the ids of requests apart: 1 and "1" differ, 1 and 1.0 do not.
// It is empty for what can be no id.
func KeyOf(id []byte) string {
	if len(id) == 0 || len(id) > 4*maxID {
		return ""
	}
	v, err := strictjson.Parse(id)
	if err != nil || v.Kind != strictjson.String && v.Kind != strictjson.Number {
		return ""
	}
	return idKey(&v)
}

// Text is the text of a JSON string, or "" for anything else.
func Text(value []byte) string { return decode(value) }

// ErrorAnswer answers a request by a JSON-RPC error; an empty id is null.
func ErrorAnswer(id []byte, code int, text string) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	return errorAnswer(id, code, text)
}

// ResultAnswer answers a request by a result, which is JSON.
func ResultAnswer(id []byte, result []byte) []byte { return resultAnswer(id, string(result)) }

// ToolAnswer answers a tools/call by a text, as a tool's error.
func ToolAnswer(id []byte, text string) []byte { return toolAnswer(id, text) }

// Malformed decides on a message that the transport holds against: its headers
// say another thing than its body, or it came in a form that the protocol does
// not have. refused is false where the mode lets it pass.
func (j *Judge) Malformed(ctx context.Context, msg []byte, why string) (refused bool) {
	id := []byte("null")
	if len(msg) > 0 {
		id = plainID(msg)
	}
	return j.malformed(ctx, msg, id, codeInvalid, why).Forward == nil
}

// GaveUp tells the judge that nobody waits for the request with this id any
// more; what it returns must be called (nil: nothing).
func (j *Judge) GaveUp(ctx context.Context, key string) (settle func() error) {
	d, used := j.flight.cancel(key)
	if d == nil {
		return nil
	}
	return j.settle(ctx, d, cordon.Usage{Exec: used})
}

// Process is a server that Start started, in a process group of its own. Read
// is its standard output, Write its standard input.
type Process struct {
	p     *process
	grace time.Duration
	name  string
	once  sync.Once
}

// Start starts a server as Serve does. Errors are *StartError.
func Start(name string, command, env []string, dir string, stderr io.Writer, grace time.Duration) (*Process, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("mcp: no server command")
	}
	if grace <= 0 {
		grace = DefaultGracePeriod
	}
	p, err := start(Config{Server: name, Command: command, Env: env, Dir: dir, GracePeriod: grace}, stderr)
	if err != nil {
		return nil, err
	}
	return &Process{p: p, grace: grace, name: name}, nil
}

func (s *Process) Read(b []byte) (int, error)  { return s.p.stdout.Read(b) }
func (s *Process) Write(b []byte) (int, error) { return s.p.stdin.Write(b) }

// SetWriteDeadline bounds writes to a server that does not read.
func (s *Process) SetWriteDeadline(t time.Time) error { return s.p.stdin.SetWriteDeadline(t) }

// Wait returns when the server has ended, with *ExitError saying how.
func (s *Process) Wait() error {
	<-s.p.done
	return s.p.exit(s.name)
}

// Close ends the server: its input is closed, then its group is asked to end,
// then made to. It has ended when Close returns.
func (s *Process) Close() error {
	s.once.Do(func() {
		s.p.closeStdin()
		if !s.p.within(s.p.done, s.grace/2) {
			s.p.terminateGroup()
			s.p.within(s.p.done, s.grace)
		}
		s.end()
	})
	return nil
}

// Kill ends the server and all of its group at once.
func (s *Process) Kill() {
	s.once.Do(s.end)
}

func (s *Process) end() {
	s.p.killGroup()
	<-s.p.done
	s.p.killGroup() // what it left behind
	s.p.closeStdin()
	s.p.stdout.Close()
}

// String names the server.
func (s *Process) String() string { return fmt.Sprintf("server %q", s.name) }
