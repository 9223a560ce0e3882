package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func TestG6InShadowNothingThatTheServerSendsIsChanged(t *testing.T) {
	long := strings.Repeat("s", 9000)
	for name, msg := range map[string]string{
		"a result over the size":           `{"id":1,"result":{"content":[{"type":"text","text":"` + long + `"}]}}`,
		"an error over the size":           `{"id":1,"error":{"code":1,"message":"` + long + `"}}`,
		"a key that stands twice":          `{"id":1,"result":{},"result":{"content":[]}}`,
		"a list of tools without names":    `{"id":2,"result":{"tools":[{"description":"x"},null]}}`,
		"a list of tools with a key twice": `{"id":2,"result":{"tools":[{"name":"a","name":"b"}]}}`,
		"two lists of tools":               `{"id":2,"result":{"tools":[],"Tools":[{"name":"a"}]}}`,
		"tools that are no list":           `{"id":2,"result":{"tools":{"name":"a"}}}`,
		"the same in a batch":              `[{"id":2,"result":{"tools":[{"name":"a","name":"b"}]}},{"id":1,"result":{"content":[{"type":"text","text":"` + long + `"}]}}]`,
	} {
		for _, mode := range []cordon.Mode{cordon.Shadow, cordon.Off} {
			t.Run(name+" in "+mode.String(), func(t *testing.T) {
				g := refuses()
				g.mode = mode
				j, err := NewJudge(Config{Guard: g, Mode: mode, Run: cordon.Run{ID: "run-1"}, Server: "files", MaxResult: 4096})
				if err != nil {
					t.Fatal(err)
				}
				j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
				j.Client(context.Background(), []byte(`{"id":2,"method":"tools/list"}`))
				if v := j.Server(context.Background(), []byte(msg)); string(v.Forward) != msg || v.Answer != nil {
					t.Fatalf("forwarded %.300s", v.Forward)
				}
			})
		}
		t.Run(name+" is changed in enforce", func(t *testing.T) {
			j := judgeOf(refuses())
			j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
			j.Client(context.Background(), []byte(`{"id":2,"method":"tools/list"}`))
			if v := j.Server(context.Background(), []byte(msg)); string(v.Forward) == msg {
				t.Fatal("passed")
			}
		})
	}
	t.Run("nor is a result of a call that was decided in shadow, where the mode was not given", func(t *testing.T) {
		g := refuses()
		g.mode = cordon.Shadow
		j := judgeOf(g)
		j.Client(context.Background(), []byte(callLine("1", "a", "{}")))
		msg := `{"id":1,"result":{"content":[{"type":"text","text":"` + long + `"}]}}`
		if v := j.Server(context.Background(), []byte(msg)); string(v.Forward) != msg {
			t.Fatal("cut")
		}
	})
	t.Run("nor a message over the limit", func(t *testing.T) {
		g := refuses()
		g.mode = cordon.Shadow
		c := serve(t, g, "echo", func(cfg *Config) { cfg.Mode, cfg.MaxMessage = cordon.Shadow, 100000 })
		c.send(callLine("1", "huge", "{}"))
		if got := c.next(); strings.Count(got, "h") < 300000 || !json.Valid([]byte(got)) {
			t.Fatalf("%d bytes: %.200s", len(got), got)
		}
		if m := c.ask(`{"id":2,"method":"x"}`); string(m.ID) != "2" {
			t.Fatalf("%+v", m)
		}
		if g.usages() != 1 {
			t.Fatal("the call was not settled")
		}
	})
}

func TestCallsUnderOtherNamesAreJudged(t *testing.T) {
	const call = `{"name":"denied","arguments":{"path":"x"}}`
	for name, line := range map[string]string{
		"a task":                         `{"id":1,"method":"tasks/create","params":` + call + `}`,
		"a method of the server's own":   `{"id":1,"method":"callTool","params":` + call + `}`,
		"the singular":                   `{"id":1,"method":"tool/call","params":` + call + `}`,
		"a notification":                 `{"method":"notifications/run","params":` + call + `}`,
		"in a batch":                     `[{"id":1,"method":"tools/callMany","params":` + call + `}]`,
		"a resource that is watched":     `{"id":1,"method":"resources/subscribe","params":{"uri":"file:///x"}}`,
		"arguments under another name":   `{"id":1,"method":"tools/call","params":{"name":"a","args":{"path":"x"}}}`,
		"arguments beside another name":  `{"id":1,"method":"tools/call","params":{"name":"a","arguments":{},"tool_input":{"path":"x"}}}`,
		"another name beside the name":   `{"id":1,"method":"tools/call","params":{"name":"a","toolName":"denied","arguments":{}}}`,
		"arguments by a singular letter": `{"id":1,"method":"tools/call","params":{"name":"a","Argument":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses("denied", readResource)
			v := judgeOf(g).Client(context.Background(), []byte(line))
			if v.Forward != nil {
				t.Fatalf("forwarded %s", v.Forward)
			}
			if len(g.decided()) != 1 {
				t.Fatalf("decided on %+v", g.decided())
			}
		})
	}
	for name, line := range map[string]string{
		"an unknown method that names only something": `{"id":1,"method":"x/y","params":{"name":"denied"}}`,
		"one whose arguments are a list":              `{"id":1,"method":"x/y","params":{"name":"denied","arguments":["a"]}}`,
		"a prompt":                                    `{"id":1,"method":"prompts/get","params":` + call + `}`,
		"a completion": `{"id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"denied"},` +
			`"argument":{"name":"x","value":"y"},"context":{"arguments":{"a":"b"}}}}`,
	} {
		t.Run(name+" passes", func(t *testing.T) {
			g := refuses("denied")
			if v := judgeOf(g).Client(context.Background(), []byte(line)); string(v.Forward) != line || len(g.decided()) != 0 {
				t.Fatalf("forwarded %s, decided %+v", v.Forward, g.decided())
			}
		})
	}
	t.Run("one that may pass does, as it came", func(t *testing.T) {
		line := `{"id":1,"method":"tasks/create","params":{"name":"a","arguments":{}, "task":{"ttl":1},"x":2}}`
		if v := judgeOf(refuses("denied")).Client(context.Background(), []byte(line)); string(v.Forward) != line {
			t.Fatalf("forwarded %s", v.Forward)
		}
	})
}

// A server that runs elsewhere than in the workspace takes "notes" for a file
// there, whatever the workspace holds under that name.
func TestRelativePathsAreJudgedFromWhereTheServerRuns(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	workspace, link := filepath.Join(root, "ws"), filepath.Join(root, "link")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(workspace, link); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a URI is not relative", func(t *testing.T) {
		for uri, want := range map[string]string{"file:///ws/a": "", "demo://a": "", "notes": root} {
			g := refuses()
			c := serve(t, g, "echo", func(cfg *Config) { cfg.Dir, cfg.Run.Workspace = root, workspace })
			c.ask(`{"id":1,"method":"resources/read","params":{"uri":"` + uri + `"}}`)
			if calls := g.decided(); len(calls) != 1 || calls[0].Dir != want {
				t.Errorf("%s is judged from %q, want %q", uri, fmt.Sprint(calls), want)
			}
		}
	})
	for name, tc := range map[string]struct{ dir, workspace, want string }{
		"the server runs in another directory":        {root, workspace, root},
		"it runs where Cordon does":                   {"", workspace, here},
		"it runs in the workspace":                    {workspace, workspace, ""},
		"the workspace is named by a link":            {workspace, link, ""},
		"the workspace is named with a slash at last": {workspace, workspace + "/", ""},
		"there is no workspace":                       {workspace, "", workspace},
	} {
		t.Run(name, func(t *testing.T) {
			g := refuses()
			c := serve(t, g, "echo", func(cfg *Config) { cfg.Dir, cfg.Run.Workspace = tc.dir, tc.workspace })
			c.ask(callLine("1", "a", "{}"))
			if calls := g.decided(); len(calls) != 1 || calls[0].Dir != tc.want {
				t.Fatalf("judged from %q, want %q", fmt.Sprint(calls), tc.want)
			}
		})
	}
}
