package lower

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func TestCallsInCallsAreLoweredAsTheToolsTheyName(t *testing.T) {
	deep := `{"tool":"Read","args":{"file_path":"/srv/a"}}`
	for range maxDispatches + 2 {
		deep = `{"tool":"batch","args":{"calls":[` + deep + `]}}`
	}
	for _, r := range []struct {
		name, tool, args string
		has, hasNot      string
	}{
		{"a command", "batch", `{"calls":[{"tool":"Bash","args":{"command":"ls"}}]}`, "run_code shell: ls", ""},
		{"a search whose pattern is a path", "batch", `{"calls":[{"tool":"Grep","args":{"pattern":"/srv/x"}}]}`, "list .", "/srv/x"},
		{"text that is written", "gateway", `{"name":"Write","arguments":{"file_path":"a.md","content":"see /srv/x"}}`, "write a.md", "/srv/x"},
		{"arguments in a string", "call_tool", `{"tool_name":"Edit","input":"{\"file_path\":\"a.go\",\"old_string\":\"/srv/x\",\"new_string\":\"y\"}"}`, "write a.go", "/srv/x"},
		{"a list called calls, of whatever tool", "helpful", `{"tool_calls":[{"name":"LS","arguments":{"path":"src","ignore":["/srv/x"]}}]}`, "list src", "/srv/x"},
		{"a qualified name", "multi_tool_use.parallel", `{"tool_uses":[{"recipient_name":"functions.Read","parameters":{"file_path":"/srv/a"}}]}`, "read /srv/a", ""},
		{"another tool by another name beside it", "call_tool", `{"tool":"TodoRead","recipient_name":"Bash","args":{"command":"ls"}}`, "run_code shell: ls", ""},
		{"a tool nobody knows beside it", "call_tool", `{"tool":"TodoRead","tool_name":"zork","args":{"command":"ls"}}`, "run_code shell: ls", ""},
		{"two sets of arguments", "batch", `{"calls":[{"tool":"Read","args":{"file_path":"a"},"input":{"file_path":"/srv/b"}}]}`, "read /srv/b", ""},
		{"a path beside the call", "batch", `{"calls":[{"tool":"Task","args":{"prompt":"x"},"path":"/srv/c"}]}`, "/srv/c", ""},
		{"a tool nobody knows", "batch", `{"calls":[{"tool":"zork","args":{"path":"/srv/d"}}]}`, "/srv/d", ""},
		{"calls deeper than are followed", "batch", deep, "/srv/a", ""},
		{"a tool that hands nothing on", "make_card", `{"name":"Task","input":{"prompt":"x","path":"/srv/e"}}`, "/srv/e", ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			l := lowerer(t, fakeLanguages())
			got := strings.Join(says(l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects), "\n")
			if !strings.Contains(got, r.has) || r.hasNot != "" && strings.Contains(got, r.hasNot) {
				t.Errorf("%s %s: got\n%s\nwant %q and not %q", r.tool, r.args, got, r.has, r.hasNot)
			}
		})
	}
}

func TestAnInnerCallPointsAtItsArgumentAndIsAsGraveAsItsTool(t *testing.T) {
	l := lowerer(t, fakeLanguages())
	got := l.Lower(context.Background(), "", "batch", parse(t, `{"calls":[{"tool":"delete_file","args":{"path":"a"}}]}`), testEnv)
	if len(got.Effects) != 1 || got.Effects[0].Kind != cordon.Delete || got.Effects[0].Arg != "/calls/0/args/path" || !got.Tool.Irreversible {
		t.Errorf("%+v", got)
	}
}

func TestAPortBesideAHostIsItsPort(t *testing.T) {
	check(t, []row{
		{"host and port", "link_up", `{"host":"a.example","port":5432}`, []string{"connect a.example:5432 (tcp)"}},
		{"a port in a string", "link_up", `{"host":"a.example","port":"25"}`, []string{"connect a.example:25 (tcp)"}},
		{"a prefix of both", "link_up", `{"db_host":"a.example","db_port":3306}`, []string{"connect a.example:3306 (tcp)"}},
		{"the port of something else", "link_up", `{"host":"a.example","debug_port":9}`, []string{"connect a.example (tcp)"}},
		{"a host that has its port", "link_up", `{"host":"a.example:443","port":1}`, []string{"connect a.example:443 (tcp)"}},
		{"an IPv6 address", "link_up", `{"host":"::1","port":80}`, []string{"connect [::1]:80 (tcp)"}},
		{"in an object of their own", "link_up", `{"connection":{"host":"a.example","port":6379}}`, []string{"connect a.example:6379 (tcp)"}},
		{"a Host header", "fetch", `{"url":"https://a.example/","headers":{"Host":"b.example"}}`, []string{"connect a.example (https)", "connect b.example (tcp)"}},
		{"a Host header in a list", "fetch", `{"url":"https://a.example/","headers":["Host: b.example"]}`, []string{"connect a.example (https)", "connect b.example (tcp)"}},
		{"another header", "fetch", `{"url":"https://a.example/","headers":{"Referer":"https://b.example/"}}`, []string{"connect a.example (https)"}},
	})
}

func TestNamesThatAServerGaveAreNoConnections(t *testing.T) {
	rows := []row{
		{"a listing of domains to search", "web_lookup", `{"include_domains":["a.example"],"n":1}`, nil},
		{"a page of a browser", "browser_navigate", `{"url":"memo://a.example/"}`, []string{"connect a.example (memo)"}},
		{"what is fetched", "fetch", `{"url":"memo://a.example/"}`, []string{"connect a.example (memo)"}},
		{"a database's URL", "open_thing", `{"uri":"postgres://u@a.example/db"}`, []string{"connect a.example (postgres)"}},
		{"a database's URL with its driver", "open_thing", `{"uri":"postgresql+psycopg2://a.example/db"}`, []string{"connect a.example (postgresql)"}},
		{"a bucket", "open_thing", `{"uri":"s3://bucket/key"}`, []string{"connect bucket (s3)"}},
		{"a database that is a file", "open_thing", `{"uri":"sqlite:////srv/a.db"}`, []string{"read /srv/a.db"}},
		{"a database that is a file here", "open_thing", `{"uri":"sqlite:///a.db"}`, []string{"read a.db"}},
		{"a socket", "open_thing", `{"uri":"http+unix://%2Fsrv%2Fa.sock/x"}`, []string{"read file:///srv/a.sock/x"}},
		{"a file within another scheme", "Read", `{"file_path":"view-source:file:///srv/x"}`, []string{"read view-source:file:///srv/x", "read file:///srv/x"}},
	}
	for _, uri := range []string{"memo://notes/1", "demo://resource/7", "note:///1", "resource://x", "users://42/profile"} {
		rows = append(rows,
			row{"a resource " + uri, "resources/read", fmt.Sprintf(`{"uri":%q}`, uri), nil},
			row{"a resource of an unknown tool " + uri, "mcp__notes__open", fmt.Sprintf(`{"uri":%q}`, uri), nil},
			row{"a resource of a known server " + uri, "mcp__everything__read_resource", fmt.Sprintf(`{"uri":%q}`, uri), nil})
	}
	check(t, rows)
}

func TestToolsThatGiveOutTheEnvironmentReadIt(t *testing.T) {
	check(t, []row{
		{"all of it", "dump_env", `{}`, []string{"read_env *"}},
		{"by a pattern", "list_environment_variables", `{"pattern":"A"}`, []string{"read_env *"}},
		{"one variable", "get_env_var", `{"name":"EDITOR"}`, []string{"read_env EDITOR"}},
		{"several", "getenv", `{"names":["EDITOR","LANG"]}`, []string{"read_env EDITOR", "read_env LANG"}},
		{"what is no name", "get_env", `{"name":"*"}`, []string{"read_env *"}},
		{"perhaps all of it", "getEnvironment", `{}`, []string{"read_env * doubtful"}},
		{"a deployment's environment", "getEnvironment", `{"id":"7"}`, nil},
		{"an interpreter's environment", "get_python_environment_details", `{}`, nil},
		{"environments", "list_environments", `{}`, nil},
		{"what makes one", "create_env", `{"id":"a"}`, nil},
	})
}

func TestC1WhatAnUnknownToolKeepsWithoutAFileCounts(t *testing.T) {
	l := lowerer(t, fakeLanguages())
	long := strings.Repeat("x", 4000)
	for _, r := range []struct {
		name, tool, args string
		want             int64
	}{
		{"a value under any key", "kv_put", fmt.Sprintf(`{"key":"a","value":%q}`, long), 4000},
		{"content and no file", "remember_this", fmt.Sprintf(`{"content":%q}`, long), 4000},
		{"content of a file counts once", "keep", fmt.Sprintf(`{"path":"a","content":%q}`, long), 4000},
		{"characters of several bytes", "keep", fmt.Sprintf(`{"content":%q}`, strings.Repeat("é", 100)), 200},
		{"a message to others is no file", "slack_post_message", fmt.Sprintf(`{"channel":"a","text":%q}`, long), 0},
	} {
		var got int64
		for _, e := range l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects {
			got += e.Bytes
		}
		if got != r.want {
			t.Errorf("%s: %d bytes (want %d)", r.name, got, r.want)
		}
	}
}

func TestADirectoryInTheWorkspaceMovesOrdinaryPathsOnly(t *testing.T) {
	check(t, []row{
		{"up and down again", "Read", `{"file_path":"../README","cwd":"/work/src"}`, []string{"read ../README in /work/src", "list /work/src"}},
		{"further up than the workspace", "Read", `{"file_path":"../../x","cwd":"/work/src"}`, []string{"read ../../x in /work/src", "list /work/src", "read ../../x doubtful"}},
		{"as far up as a made-up directory is deep", "Read", `{"file_path":"../../../srv/x","cwd":"/work/a/b/c"}`, []string{"read ../../../srv/x in /work/a/b/c", "list /work/a/b/c", "read ../../../srv/x doubtful"}},
		{"a hidden file beside the workspace", "Read", `{"file_path":"../.x","cwd":"/work/src"}`, []string{"read ../.x in /work/src", "list /work/src", "read ../.x doubtful"}},
		{"a directory outside", "Read", `{"file_path":"x","cwd":"/srv"}`, []string{"read x in /srv", "list /srv", "read x doubtful"}},
		{"what is written", "Write", `{"file_path":"../x","content":"","cwd":"/work/src"}`, []string{"write ../x in /work/src", "list /work/src", "write ../x doubtful"}},
	})
}

func TestManyHostsPortsAndCommandsTakeNoSquareOfTheirTime(t *testing.T) {
	var hosts, ports strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&hosts, `"h%d_host":"a%d.example",`, i, i)
		fmt.Fprintf(&ports, `"h%d_port":1,`, i)
	}
	stdin := strings.Repeat(`"f 1",`, 3000) + `"f 2"`
	for _, r := range []struct{ name, tool, args, want string }{
		{"hosts with ports", "link_up", `{` + hosts.String() + ports.String() + `"port":6379}`, "malformed: more effects"},
		{"input of many commands", "run_command", `{"commands":[` + stdin + `],"stdin":[` + stdin + `]}`, "malformed: more code"},
		{"one command many times", "Bash", `{"command":` + quoteJSON(strings.Repeat("git -a ", 30000)+"+++ x") + `}`, "run_code"},
	} {
		l := lowerer(t, DefaultLanguages())
		got := strings.Join(says(l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects), "\n")
		if !strings.Contains(got, r.want) {
			t.Errorf("%s: no %q in %.300s", r.name, r.want, got)
		}
	}
}
