package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

func readEnvelopeOf(t *testing.T, line []byte) (envelope, bool, string) {
	t.Helper()
	v, err := strictjson.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return readEnvelope(line, whole(line), &v)
}

func TestServerMessagesPassUntouched(t *testing.T) {
	big := strings.Repeat("x", 10000)
	for name, msg := range map[string]string{
		"a result nobody asked for":         `{"jsonrpc":"2.0","id":99,"result":{"a":[1,2.0,{"b":null}]}}`,
		"an error":                          `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no","data":{"x":1}}}`,
		"a request for sampling":            `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"tools":[{"name":"hidden"}],"text":"` + big + `"}}`,
		"an elicitation":                    `{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}`,
		"a request for roots":               `{"jsonrpc":"2.0","id":2,"method":"roots/list"}`,
		"a change of tools":                 `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
		"progress with unknown fields":      ` {"jsonrpc":"2.0","method":"notifications/progress","params":{"x":1},"later":[]} `,
		"a small result of a call":          `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"\ud800 lone, \u0041 escaped"}],"isError":false,"later":1}}`,
		"a list in which nothing is hidden": `{"result":{"tools":[ {"name":"ok","x":1.50} , {"name":"fine"} ],"nextCursor":"c"},"jsonrpc":"2.0","id":2}`,
		"a result with a duplicate inside":  `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":{"a":1,"a":2}}}`,
		"an answer that asks for input":     `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{},"requestState":"s"}}`,
		"a batch":                           `[{"jsonrpc":"2.0","id":1,"result":{}} , {"jsonrpc":"2.0","method":"n"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			g.hide = map[string]string{"hidden": "no"}
			j := judgeOf(g)
			j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
			j.Client(context.Background(), []byte(`{"id":2,"method":"tools/list"}`))
			v := j.Server(context.Background(), []byte(msg))
			if string(v.Forward) != msg || v.Note != "" || v.Answer != nil {
				t.Fatalf("forwarded %.300q, note %q", v.Forward, v.Note)
			}
		})
	}
}

func TestAListOfToolsLosesWhatIsHidden(t *testing.T) {
	a, h, b := `{"name":"a", "inputSchema":{"type":"object","x":1.0}}`, `{"description":"\u0068","name":"hid\u0064en"}`, `{"name":"b"}`
	for name, tc := range map[string]struct{ request, msg, want string }{
		"in the middle": {`"tools/list"`,
			`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"k":[]},"tools":[` + a + `, ` + h + ` ,` + b + `],"nextCursor":"n","ttlMs":5}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"_meta":{"k":[]},"tools":[` + a + `,` + b + `],"nextCursor":"n","ttlMs":5}}`},
		"all of them": {`"tools/list"`,
			`{"result":{"tools":[` + h + `]},"id":2}`, `{"result":{"tools":[]},"id":2}`},
		"a tool without a name": {`"tools/list"`,
			`{"result":{"tools":[{"title":"x"},` + a + `]},"id":2}`, `{"result":{"tools":[` + a + `]},"id":2}`},
		"a tool with two names": {`"tools/list"`,
			`{"result":{"tools":[{"name":"a","Name":"hidden"},` + a + `]},"id":2}`, `{"result":{"tools":[` + a + `]},"id":2}`},
		"a tool that is no object": {`"tools/list"`,
			`{"result":{"tools":["hidden",` + a + `]},"id":2}`, `{"result":{"tools":[` + a + `]},"id":2}`},
		"under the id as a string": {`"tools/list"`,
			`{"result":{"tools":[` + h + `,` + a + `]},"id":"2"}`, `{"result":{"tools":[` + a + `]},"id":"2"}`},
		"under an id nobody used": {`"tools/list"`,
			`{"result":{"tools":[` + h + `,` + a + `]},"id":77}`, `{"result":{"tools":[` + a + `]},"id":77}`},
		"in answer to another method": {`"server/discover"`,
			`{"result":{"tools":[` + h + `,` + a + `]},"id":2}`, `{"result":{"tools":[` + a + `]},"id":2}`},
		"in a message that is a request too": {`"tools/list"`,
			`{"method":"x","result":{"tools":[` + h + `,` + a + `]},"id":2}`, `{"method":"x","result":{"tools":[` + a + `]},"id":2}`},
		"in a batch": {`"tools/list"`,
			`[{"method":"n"}, {"result":{"tools":[` + h + `,` + a + `]},"id":2}]`, `[{"method":"n"},{"result":{"tools":[` + a + `]},"id":2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			g.hide = map[string]string{"hidden": "its description changed"}
			j := judgeOf(g)
			j.Client(context.Background(), []byte(`{"id":2,"method":`+tc.request+`}`))
			v := j.Server(context.Background(), []byte(tc.msg))
			if string(v.Forward) != tc.want {
				t.Fatalf("forwarded\n%s\nwant\n%s", v.Forward, tc.want)
			}
			if v.Note == "" {
				t.Error("nothing was noted")
			}
			for _, d := range g.defs {
				if d.Server != "files" || !json.Valid(d.Raw) {
					t.Errorf("definition %+v", d)
				}
			}
		})
	}
}

func TestAnAnswerThatReadsInTwoWaysIsReplaced(t *testing.T) {
	evil := `{"tools":[{"name":"hidden"}]}`
	for name, msg := range map[string]string{
		"two results":              `{"id":2,"result":{"tools":[]},"result":` + evil + `}`,
		"a result in capitals":     `{"id":2,"Result":` + evil + `}`,
		"two results in two cases": `{"id":2,"result":{},"RESULT":` + evil + `}`,
		"two lists":                `{"id":2,"result":{"tools":[],"tools":[{"name":"hidden"}]}}`,
		"a list in capitals":       `{"id":2,"result":{"Tools":[{"name":"hidden"}]}}`,
		"tools that are an object": `{"id":2,"result":{"tools":{"0":{"name":"hidden"}}}}`,
		"two ids":                  `{"id":2,"id":3,"result":` + evil + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			g.hide = map[string]string{"hidden": "no"}
			j := judgeOf(g)
			j.Client(context.Background(), []byte(`{"id":2,"method":"tools/list"}`))
			v := j.Server(context.Background(), []byte(msg))
			if bytes.Contains(v.Forward, []byte("hidden")) || v.Note == "" {
				t.Fatalf("forwarded %s, note %q", v.Forward, v.Note)
			}
			if m := read(t, v.Forward); m.Error == nil || string(m.ID) != "2" {
				t.Fatalf("forwarded %s", v.Forward)
			}
		})
	}
}

func TestGarbageFromTheServerIsDroppedAndNoted(t *testing.T) {
	for name, line := range map[string]string{
		"a log line":                  "INFO listening on stdio",
		"a number":                    "12",
		"an object of something else": `{"level":"info","msg":"up"}`,
		"half a message":              `{"jsonrpc":"2.0","id":1,"res`,
		"two messages":                `{"id":1,"result":{}}{"id":2,"result":{}}`,
		"an empty batch":              `[]`,
		"binary":                      "\x00\xff\x1b[31m",
	} {
		t.Run(name, func(t *testing.T) {
			v := judgeOf(refuses()).Server(context.Background(), []byte(line))
			if v.Forward != nil || !strings.HasPrefix(v.Note, `cordon: server "files" wrote a line that is not JSON-RPC: "`) || strings.ContainsAny(v.Note, "\x1b\x00") {
				t.Fatalf("forwarded %q, note %q", v.Forward, v.Note)
			}
		})
	}
	t.Run("with a secret in it", func(t *testing.T) {
		v := judgeOf(refuses()).Server(context.Background(), []byte("using token abcdefghij0123456789KLMNOP for login"))
		if strings.Contains(v.Note, "ghij") || !strings.Contains(v.Note, "using token ***") {
			t.Fatalf("note %q", v.Note)
		}
	})
	t.Run("of great length", func(t *testing.T) {
		if v := judgeOf(refuses()).Server(context.Background(), []byte(strings.Repeat("a b", 1<<20))); len(v.Note) > 400 {
			t.Fatalf("note of %d bytes", len(v.Note))
		}
	})
}

func TestLargeResultsAreCut(t *testing.T) {
	text := func(n int, s string) string { return fmt.Sprintf(`{"type":"text","text":"%s"}`, strings.Repeat(s, n)) }
	image := `{"type":"image","data":"` + strings.Repeat("A", 40000) + `","mimeType":"image/png"}`
	for name, tc := range map[string]struct{ result, want string }{
		"one long text":                      {`{"content":[` + text(9000, "a") + `]}`, `[cordon: result cut at `},
		"a text of escapes":                  {`{"content":[` + text(5000, `\n\u00e4`) + `]}`, ` of 15000 bytes]`},
		"a text of quotes":                   {`{"content":[` + text(5000, `\"`) + `]}`, ` of 5000 bytes]`},
		"a text of lone surrogates":          {`{"content":[` + text(5000, `\ud83d`) + `]}`, `[cordon: result cut at `},
		"many small texts":                   {`{"content":[` + strings.Repeat(text(10, "a")+",", 900) + text(1, "b") + `]}`, `[cordon: result cut`},
		"an image":                           {`{"content":[` + text(5, "a") + `,` + image + `],"isError":false}`, `1 more contents of`},
		"structured content":                 {`{"structuredContent":{"a":"` + strings.Repeat("s", 9000) + `"},"content":[]}`, `"structuredContent":{"a":"sss`},
		"a member nobody knows":              {`{"content":[],"later":"` + strings.Repeat("s", 9000) + `"}`, `[cordon: result cut at 40`},
		"content that is no list":            {`{"content":{"a":"` + strings.Repeat("s", 9000) + `"}}`, `[cordon: result cut at 40`},
		"structured content of many strings": {`{"structuredContent":{"kind":"short","a":[` + strings.Repeat(`"`+strings.Repeat("s", 400)+`",`, 40) + `1]}}`, `"[cordon: result cut at 0 of 400 bytes]",1]}`},
		"structured content of numbers":      {`{"structuredContent":{"a":[` + strings.Repeat("1234567,", 2000) + `1]}}`, `[cordon: structuredContent of`},
		"a text whose annotations are":       {`{"content":[{"type":"text","text":"a","annotations":"` + strings.Repeat("s", 9000) + `"}]}`, `1 more contents of`},
	} {
		t.Run(name, func(t *testing.T) {
			j := judgeOf(refuses())
			j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
			msg := `{"jsonrpc":"2.0","id":1,"result":` + tc.result + `,"later":true}`
			v := j.Server(context.Background(), []byte(msg))
			if len(v.Forward) > 2*j.maxResult || !json.Valid(v.Forward) {
				t.Fatalf("forwarded %d bytes: %.300s", len(v.Forward), v.Forward)
			}
			if !bytes.Contains(v.Forward, []byte(tc.want)) || !bytes.HasSuffix(v.Forward, []byte(`,"later":true}`)) {
				t.Fatalf("forwarded …%s", v.Forward[max(0, len(v.Forward)-300):])
			}
		})
	}
	t.Run("also under an id nobody used", func(t *testing.T) {
		v := judgeOf(refuses()).Server(context.Background(), []byte(`{"id":"1","result":{"content":[`+text(9000, "a")+`]}}`))
		if len(v.Forward) > 5000 {
			t.Fatal("not cut")
		}
	})
	t.Run("but not what other methods return", func(t *testing.T) {
		j := judgeOf(refuses())
		j.Client(context.Background(), []byte(`{"id":1,"method":"prompts/get"}`))
		msg := `{"id":1,"result":{"content":[` + text(9000, "a") + `]}}`
		if v := j.Server(context.Background(), []byte(msg)); string(v.Forward) != msg {
			t.Fatal("cut")
		}
	})
	for name, result := range map[string]string{
		"a screenshot":                       `{"content":[{"type":"image","data":"` + strings.Repeat("A", 9000) + `","mimeType":"image/png"}]}`,
		"a screenshot in structured content": `{"content":[{"type":"image","data":"` + strings.Repeat("A", 9000) + `"}],"structuredContent":{"data":"` + strings.Repeat("A", 9000) + `"}}`,
		"a sound after text":                 `{"content":[` + text(3000, "a") + `,{"type":"audio","data":"` + strings.Repeat("A", 9000) + `"},` + text(900, "a") + `]}`,
		"the bytes of a resource":            `{"content":[{"type":"resource","resource":{"uri":"x:y","blob":"` + strings.Repeat("A", 9000) + `"}}]}`,
	} {
		t.Run("but not "+name, func(t *testing.T) {
			j := judgeOf(refuses())
			j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
			msg := `{"id":1,"result":` + result + `}`
			if v := j.Server(context.Background(), []byte(msg)); string(v.Forward) != msg {
				t.Fatalf("cut to %.200s", v.Forward)
			}
		})
	}
	t.Run("text beside an image is held to the size of text", func(t *testing.T) {
		j := judgeOf(refuses())
		j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
		v := j.Server(context.Background(), []byte(`{"id":1,"result":{"content":[{"type":"image","data":"A"},`+text(9000, "a")+`]}}`))
		if len(v.Forward) > 5000 || !bytes.Contains(v.Forward, []byte("result cut at")) {
			t.Fatalf("forwarded %d bytes", len(v.Forward))
		}
	})
	t.Run("errors too", func(t *testing.T) {
		v := judgeOf(refuses()).Server(context.Background(), []byte(`{"id":1,"error":{"code":1,"message":"`+strings.Repeat("e", 9000)+`"}}`))
		if m := read(t, v.Forward); m.Error == nil || len(v.Forward) > 200 {
			t.Fatalf("forwarded %.200s", v.Forward)
		}
	})
}

func TestAnOverlongAnswerIsReplacedByAnError(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, tc := range map[string]struct {
		msg string
		hit bool
	}{
		"id before the result":            {`{"jsonrpc":"2.0","id":1,"result":{"a":"` + long + `"}}`, true},
		"id after the result":             {`{"result":{"a":"` + long + `"},"jsonrpc":"2.0","id":1}`, true},
		"id and version after the result": {`{"result":{"a":"` + long + `"},"id":1,"jsonrpc":"2.0"}`, true},
		"another's id":                    {`{"jsonrpc":"2.0","id":8,"result":{"a":"` + long + `"}}`, false},
		"a request under the same id":     {`{"method":"sampling/createMessage","params":{"a":"` + long + `"},"jsonrpc":"2.0","id":1}`, false},
		"an id inside the result only":    {`{"result":{"a":"` + long + `","id":1}}`, false},
		"an id in a text":                 {`{"result":{"a":"` + long + `,\"id\":1}"}}`, false},
		"no JSON at all":                  {long + long, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			j := judgeOf(g)
			j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
			b := []byte(tc.msg)
			v := j.overlong(context.Background(), b[:1000], b[len(b)-500:], 1000)
			if (v.Forward != nil) != tc.hit || v.Note == "" || (v.Settle != nil) != tc.hit {
				t.Fatalf("forwarded %s, note %q", v.Forward, v.Note)
			}
			if tc.hit {
				if m := read(t, v.Forward); string(m.ID) != "1" || m.Error == nil {
					t.Fatalf("forwarded %s", v.Forward)
				}
			}
		})
	}
}

func TestServerName(t *testing.T) {
	for command, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-filesystem /w":                          "filesystem",
		"npx -y @modelcontextprotocol/server-filesystem@2025.1.1 /w":                 "filesystem",
		"node /a/node_modules/@modelcontextprotocol/server-everything/dist/index.js": "everything",
		"node /a/node_modules/mcp-notes/build/main.js":                               "notes",
		"uvx mcp-server-git --repository .":                                          "git",
		"python3 -m mcp_server_time":                                                 "time",
		"./notes.py":                                                                 "notes",
		"/opt/bin/github-mcp-server stdio":                                           "github",
		"docker run -i --rm ghcr.io/github/github-mcp-server:1.0":                    "github",
		"uv --directory=/x run weather.py":                                           "weather",
		"env A=b node server/index.js":                                               "server",
		"node":                                                                       "node",
		"":                                                                           "server",
		"C:\\tools\\Deno.exe":                                                        "deno",
	} {
		if got := ServerName(strings.Fields(command)); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
