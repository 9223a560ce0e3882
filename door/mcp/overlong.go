package mcp

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// overlong judges a message of the server that was too long to be held: it
// is dropped, and the request that it answers gets an error in its place.
// Of the message its beginning and its last bytes are known; servers write
// the id either before the result or after it.
func (j *Judge) overlong(ctx context.Context, head, end []byte, limit int) Verdict {
	v := Verdict{Note: fmt.Sprintf("cordon: server %q wrote a message longer than %d bytes; dropped", j.server, limit)}
	id := overlongID(head, end)
	if id == nil {
		return v
	}
	parsed, err := strictjson.Parse(id)
	if err != nil || parsed.Kind != strictjson.String && parsed.Kind != strictjson.Number {
		return v
	}
	r := j.flight.take(idKey(&parsed))
	if r == nil {
		return v
	}
	v.Settle = j.settleRequest(ctx, r, true).Settle
	if !r.cancelled {
		v.Forward = errorAnswer(r.raw, codeServer,
			fmt.Sprintf("Cordon dropped the server's answer: it is longer than %d bytes. Ask for less at a time.", limit))
	}
	return v
}

// overlongID finds the id of an answer: before what is cut off, or at its end.
func overlongID(head, end []byte) []byte {
	ms := members(head, span{skipSpace(head, 0), len(head)})
	if _, ok := find(ms, "method"); ok {
		return nil // the id of a request is the server's own
	}
	if at, ok := find(ms, "id"); ok && at.hi < len(head) {
		return at.of(head)
	}
	return tailID(end)
}

// tailID finds an id that is the last member of the outermost object, with
// at most a "jsonrpc" behind it. Text inside a string cannot look like that:
// its quotes are escaped.
func tailID(end []byte) []byte {
	end = bytes.TrimRight(end, " \t\r\n")
	if len(end) == 0 || end[len(end)-1] != '}' {
		return nil
	}
	end = end[:len(end)-1]
	if i := bytes.LastIndex(end, []byte(`,"jsonrpc":`)); i >= 0 && bytes.Equal(bytes.TrimSpace(end[i+len(`,"jsonrpc":`):]), []byte(`"2.0"`)) {
		end = end[:i]
	}
	i := bytes.LastIndex(end, []byte(`,"id":`))
	if i < 0 {
		return nil
	}
	return bytes.TrimSpace(end[i+len(`,"id":`):])
}
