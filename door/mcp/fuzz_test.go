package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

// lenient is a message as a forgiving reader has it: encoding/json takes
// keys in any case, and the last of two.
type lenient struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		URI       string
		Arguments json.RawMessage
	}
	Result struct {
		Tools []struct{ Name string }
	}
}

// lenientMessages are all messages that some reader could find in a line:
// the line, the elements of a batch, and what stands between the line ends
// that some readers know.
func lenientMessages(line []byte) []lenient {
	var out []lenient
	for _, cut := range []string{"", "\r", "\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"} {
		pieces := [][]byte{line}
		if cut != "" {
			pieces = bytes.Split(line, []byte(cut))
		}
		if cut != "" && len(pieces) == 1 {
			continue
		}
		for _, p := range pieces {
			var batch []json.RawMessage
			if json.Unmarshal(p, &batch) != nil {
				batch = []json.RawMessage{p}
			}
			for _, raw := range batch {
				var m lenient
				// An error in one field does not keep others from being read.
				_ = json.Unmarshal(raw, &m)
				out = append(out, m)
			}
		}
	}
	return out
}

func FuzzClientLine(f *testing.F) {
	for _, tc := range malformedLines {
		if len(tc.line) < 4096 {
			f.Add([]byte(tc.line))
		}
	}
	for _, s := range []string{
		`{"id":1,"method":"tasks/create","params":{"name":"bad","arguments":{}}}`, `{"method":"resources/subscribe","params":{"uri":"a:b"}}`,
		`{"id":1,"method":"tools/call","params":{"name":"a","args":{}}}`,
		callLine("1", "read", `{"a":[1,{"b":"c"}]}`), `{"id":1,"method":"resources/read","params":{"uri":"a:b"}}`,
		"[" + callLine("1", "a", "{}") + "," + callLine("1", "b", "null") + "]\r", `[[]]`, ` `, `{`, `{"method":"tools/call"}`,
		`{"method":"notifications/cancelled","params":{"requestId":1}}`, "{\"method\":\"x\",\"params\":[\"\u2028{\",\":\",1]}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		g := refuses("bad")
		j := judgeOf(g)
		in := bytes.Clone(line)
		v := j.Client(context.Background(), line)
		if !bytes.Equal(in, line) {
			t.Fatal("the message was changed in place")
		}
		if v.Answer != nil && !json.Valid(v.Answer) {
			t.Fatalf("answer %q", v.Answer)
		}
		calls := g.decided()
		n := 0
		for _, m := range lenientMessages(v.Forward) {
			if m.Method != callTool && m.Method != readResource && m.Method != subscribe {
				continue
			}
			if m.Params.Name == "bad" && m.Method == callTool {
				t.Fatalf("a refused call was forwarded: %q", v.Forward)
			}
			found := false
			for _, c := range calls {
				args := strings.TrimSpace(string(m.Params.Arguments))
				if args == "" || args == "null" {
					args = "{}"
				}
				found = found || c.Malformed == "" && (m.Method != callTool && c.Tool == readResource || c.Tool == m.Params.Name && string(c.Args) == args)
			}
			if !found {
				t.Fatalf("forwarded without a decision: %q (decided on %+v)", v.Forward, calls)
			}
			n++
		}
		if n > 2*len(calls) {
			t.Fatalf("%d calls forwarded, %d decided", n, len(calls))
		}
	})
}

func FuzzServerLine(f *testing.F) {
	for _, s := range []string{
		`{"id":2,"result":{"tools":[{"name":"ok"},{"name":"hidden"}],"nextCursor":"x"}}`, `{"id":"2","result":{"Tools":[{"name":"hidden"}]}}`,
		`[{"id":2,"result":{"tools":[{"Name":"hidden"}]}},{"method":"n"}]`, `{"id":1,"result":{"content":[{"type":"text","text":"a\u00e9"}]}}`,
		`{"id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("a", 5000) + `"}],"structuredContent":{}}}`,
		`{"id":2,"result":{},"RESULT":{"tools":[{"name":"hidden"}]}}`, `nothing`, `{"id":1,"error":{}}`, `[]`, `{"":0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		g := refuses()
		g.hide = map[string]string{"hidden": "no"}
		j := judgeOf(g)
		j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
		j.Client(context.Background(), []byte(`{"id":2,"method":"tools/list"}`))
		in := bytes.Clone(line)
		shadow := judgeOf(g)
		shadow.mode = cordon.Shadow
		if v := shadow.Server(context.Background(), line); v.Forward != nil && !json.Valid(line) || json.Valid(line) && line[0] == '{' && v.Forward != nil && !bytes.Equal(v.Forward, line) {
			t.Fatalf("in shadow mode %q became %q", line, v.Forward)
		}
		v := j.Server(context.Background(), line)
		if !bytes.Equal(in, line) {
			t.Fatal("the message was changed in place")
		}
		if v.Forward == nil {
			return
		}
		if !json.Valid(v.Forward) {
			t.Fatalf("forwarded %q", v.Forward)
		}
		for _, m := range lenientMessages(v.Forward) {
			if string(m.ID) == "1" {
				continue // the answer to a call: no client reads tools in it
			}
			for _, tool := range m.Result.Tools {
				if tool.Name == "hidden" {
					t.Fatalf("a hidden tool is shown: %q", v.Forward)
				}
			}
		}
		end := line[max(0, len(line)-100):]
		j.overlong(context.Background(), line[:len(line)/2], end, 10)
	})
}
