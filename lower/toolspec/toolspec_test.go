package toolspec

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestToolsAreKnownUnderEverySpellingOfTheirNames(t *testing.T) {
	c := Builtin()
	for _, r := range []struct {
		server, tool string
		name         string
		group        Group
	}{
		{"", "Bash", "Bash", Exec},
		{"", "bash", "Bash", Exec},
		{"", "BASH", "Bash", Exec},
		{"", "b-a_s_h", "Bash", Exec},
		{"", "Bash/", "Bash", Exec},
		{"", "Bash__", "Bash", Exec},
		{"", "mcp__shell__Bash", "Bash", Exec},
		{"", "mcp_shell_bash", "Bash", Exec},
		{"", "mcp_my_shell_bash", "Bash", Exec},
		{"", "MCP__Shell__bash", "Bash", Exec},
		{"", "mcp__bash", "Bash", Exec},
		{"", "mcp__a__b__bash", "Bash", Exec},
		{"", "functions.bash", "Bash", Exec},
		{"", "BashTool", "Bash", Exec},
		{"", "mcp__x__bash_tool", "Bash", Exec},
		{"", "functions.update_plan", "update_plan", ReadOnly},
		{"", "mcp__everything__echo", "echo", ReadOnly},
		{"", "srv/bash", "Bash", Exec},
		{"", "srv:tools/bash", "Bash", Exec},
		{"", "srv__bash", "Bash", Exec},
		{"shell", "Bash", "Bash", Exec},
		{"", "read-file", "read_file", ReadOnly},
		{"", "readFile", "read_file", ReadOnly},
		{"", "ReadFile", "read_file", ReadOnly},
		{"", "mcp__filesystem__read_text_file", "read_text_file", ReadOnly},
		{"filesystem", "read_text_file", "read_text_file", ReadOnly},
		{"filesystem", "filesystem_read_text_file", "read_text_file", ReadOnly},
		{"@modelcontextprotocol/server-filesystem", "read_text_file", "read_text_file", ReadOnly},
		{"slack", "post_message", "post_message", ProductivityWrite},
		{"slack", "slack_post_message", "slack_post_message", ProductivityWrite},
		{"git", "status", "git_status", ReadOnly},
		{"postgres", "query", "query", Exec},
		{"my-postgres-prod", "query", "query", Exec},
		{"", "container.exec", "exec", Exec},
		{"", "apply_patch", "apply_patch", FSWrite},
		{"", "run_terminal_cmd", "run_terminal_cmd", Exec},
		{"", "execute_typescript", "execute_typescript", Exec},
		{"", "canvas_render", "canvas_render", ReadOnly},
		{"", "memory_forget", "memory_forget", Memory},
		{"", "browser_download", "browser_download", Browser},
		{"", "browser_run_code", "browser_run_code", Exec},
		{"", "google_web_search", "google_web_search", Network},
		{"", "mcp__github__delete_file", "delete_file", ProductivityWrite},
		{"", "mcp__filesystem__delete_file", "delete_file", FSWrite},
	} {
		f, _ := c.Lookup(r.server, r.tool)
		if !f.Known || f.Name != r.name && !strings.EqualFold(f.Name, r.name) || f.Group != r.group || f.SuspectName {
			t.Errorf("%q %q: %+v (want %s, %s)", r.server, r.tool, f, r.name, r.group)
		}
	}
}

func TestNamesOfUnusualCharactersAreNeverKnown(t *testing.T) {
	c := Builtin()
	for _, tool := range []string{"", "B\u0430sh", "Ba\u200bsh", "Bash ", " Bash", "Bash\x00", "Ｂash", "Read\n", "Rea\u0501", "mcp__fs__re\u0430d_file", "Bash;ls", "Read(x)", "Bash\u202e"} {
		if f, _ := c.Lookup("", tool); f.Known || !f.SuspectName {
			t.Errorf("%q: %+v", tool, f)
		}
	}
}

func TestUnknownToolsStayUnknown(t *testing.T) {
	c := Builtin()
	for _, tool := range []string{"mcp__weather__get", "frobnicate", "to.do", "B.a.s.h", "mcp__", "__", "...", "mcp__a__", "mcp__deploy__agent", "mcp__todo__add", "srv/TaskStop", "basher", "unbash"} {
		if f, _ := c.Lookup("", tool); f.Known || f.Group != Unknown || f.SuspectName {
			t.Errorf("%q: %+v", tool, f)
		}
	}
}

func TestUnknownToolsAreJudgedByTheWordsOfTheirNames(t *testing.T) {
	for _, r := range []struct {
		tool                   string
		path                   Role
		irreversible, outbound bool
		executes               bool
	}{
		{"get_report", Read, false, false, false},
		{"listReports", List, false, false, false},
		{"frobnicate", Write, false, false, false},
		{"mcp__lab__delete_scan", Delete, true, false, false},
		{"send_invoice", Read, true, true, false},
		{"send_and_store", Write, true, true, false},
		{"notify_team", Write, false, true, false},
		{"run_analysis", Write, false, false, true},
		{"check_and_update", Write, false, false, false},
		{"lab_python", Write, false, false, true},
		{"archive_rename", Move, false, false, false},
		{"address_getter", Write, false, false, false},
	} {
		s := unknown("", r.tool)
		if s.PathRole != r.path || s.Irreversible != r.irreversible || s.Outbound != r.outbound || s.Executes() != r.executes {
			t.Errorf("%s: path %s irreversible %v outbound %v executes %v", r.tool, s.PathRole, s.Irreversible, s.Outbound, s.Executes())
		}
	}
}

func TestArgumentNamesTellTheirRoles(t *testing.T) {
	for _, r := range []struct {
		names string
		want  Hint
	}{
		{"path file filename filepath file_path filePath FILE-PATH dir directory dir_path folder folderPath abs_path path2 file_1", Hint{Role: Write, Strong: true}},
		{"paths files file_list directories filePaths filenames", Hint{Role: Write, Strong: true, Many: true}},
		{"output_file outputPath out_dir outfile save_path dest_path destination dst", Hint{Role: Write, Strong: true, Dest: true}},
		{"source_file srcPath input_path", Hint{Role: Write, Strong: true, Source: true}},
		{"url link_url href website base_url downloadUrl", Hint{Role: URL, Strong: true}},
		{"uri link callback", Hint{Role: URL}},
		{"urls URLs", Hint{Role: URL, Strong: true, Many: true}},
		{"command cmd run_cmd shell_command commandLine", Hint{Role: Shell, Strong: true}},
		{"code script python_code source_code", Hint{Role: Code, Strong: true}},
		{"sql sql_query raw_sql", Hint{Role: SQL, Strong: true}},
		{"content body text message description title comment note prompt new_string file_text file_content text_content", Hint{Role: Content, Strong: true}},
		{"old_string oldText query search_query regex pattern", Hint{Role: Text, Strong: true}},
		{"cwd workdir working_directory workingDir current_directory", Hint{Role: Cwd, Strong: true}},
		{"profile file_type path_count url_id dir_mode size zz code_version", Hint{}},
	} {
		for name := range strings.FieldsSeq(r.names) {
			if got := InferArg(name); got != r.want {
				t.Errorf("%s: %+v (want %+v)", name, got, r.want)
			}
		}
	}
}

func TestEveryBuiltinToolIsReachedByEachOfItsNames(t *testing.T) {
	c := Builtin()
	for i := range shippedTools {
		name, n := shippedTools[i].name, &shippedTools[i].named
		for _, s := range n.servers {
			if f, _ := c.Lookup(s.server, s.spec.Name); !f.Known || f.Group != s.spec.Group {
				t.Errorf("%s of %s: %+v", name, s.server, f)
			}
		}
		if n.plain == nil {
			if len(n.servers) == 0 {
				t.Errorf("%s: nothing is called so", name)
			}
			continue
		}
		if n.plain.Group == Unknown {
			t.Errorf("%s: no group", name)
		}
		if f, _ := c.Lookup("", n.plain.Name); !f.Known {
			t.Errorf("%s: its own name %q is not found", name, n.plain.Name)
		}
		if n.plain.Group == Exec && len(n.plain.args.all()) == 0 {
			t.Errorf("%s: executes, and lists no argument", name)
		}
	}
}

const userTools = `
tools:
  - names: [deploy_site, "site_*"]
    server: [hosting]
    group: productivity_write
    irreversible: true
    outbound: true
    args:
      read: [bundle]
      text: [comment]
    match: [mcp__hosting__deploySite, {tool: mcp__hosting__deploy_site, roles: {Bundle: read}}, {server: hosting, tool: site_remove}]
    not_match: [deploy_other, mcp__other__deploy_site]
  - names: [Read]
    args:
      read: [zz]
    match: [{tool: read, roles: {zz: read, file_path: read}}]
`

func TestUsersExtendTheCatalogue(t *testing.T) {
	e, err := Parse([]byte(userTools))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Builtin().With(e)
	if err != nil {
		t.Fatal(err)
	}
	f, s := c.Lookup("hosting", "deploy-site")
	if r, ok := s.Role("bundle"); !f.Known || f.Group != ProductivityWrite || !f.Irreversible || !f.Outbound || r != Read || !ok {
		t.Errorf("%+v, bundle is %s", f, r)
	}
	if _, s := c.Lookup("", "read"); !s.Lists(Read) {
		t.Error("the known tool lost its arguments")
	}
	if _, s := Builtin().Lookup("", "Read"); s != nil {
		if _, listed := s.Role("zz"); listed {
			t.Error("the built-in catalogue changed")
		}
	}
}

func TestUsersCannotWeakenSilently(t *testing.T) {
	for _, r := range []struct{ name, yaml, want string }{
		{"a command that becomes text", "- names: [bash]\n  args: {text: [command]}", `argument "command" is shell in the known tool, and would become text`},
		{"a write that becomes a read", "- names: [Write]\n  args: {read: [file_path]}", `argument "filepath" is write`},
		{"an executor that becomes a reader", "- names: [execute_python]\n  group: read_only", "group is exec"},
		{"another language", "- names: [execute_python]\n  language: sql", "language is python"},
		{"what cannot be taken back", "- names: [delete_file]\n  irreversible: false", "irreversible"},
		{"a message that is not sent", "- names: [send_email]\n  outbound: false", "outbound"},
		{"a file that is elsewhere", "- names: [Read]\n  remote: true", "acts on this machine"},
		{"the same under a server's name", "- names: [Bash]\n  server: mine\n  args: {text: [command]}", "would become text"},
		{"writes that count as reads", "- names: [Write]\n  read_when: {a: [b]}", "read_when"},
	} {
		t.Run(r.name, func(t *testing.T) {
			e, err := Parse([]byte(r.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Builtin().With(e); err == nil || !strings.Contains(err.Error(), r.want) || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), "weaken: true") {
				t.Errorf("error %v (want one about %q)", err, r.want)
			}
			e, err = Parse([]byte(r.yaml + "\n  weaken: true"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Builtin().With(e); err != nil {
				t.Errorf("said that it weakens: %v", err)
			}
		})
	}
	e, err := Parse([]byte("- names: [Read]\n  args: {write: [file_path]}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Builtin().With(e); err != nil {
		t.Errorf("a read that becomes a write is stricter: %v", err)
	}
}

func TestBrokenEntriesSayWhereAndWhy(t *testing.T) {
	for _, r := range []struct{ name, yaml, want string }{
		{"no name", "tools:\n  - group: exec", "line 2: a tool without names"},
		{"an unknown role", "- names: [a]\n  args:\n    reed: [x]", `line 3: toolspec: unknown role "reed"`},
		{"an unknown group", "- names: [a]\n  group: executor", `line 2: group: toolspec: unknown group "executor"`},
		{"an unknown key", "- names: [a]\n  arg: {}", `line 2: unknown key "arg"`},
		{"a key twice", "- names: [a]\n  names: [b]", "stands twice"},
		{"a name nobody could call", "- names: [\"a b\"]", `line 1: name "a b"`},
		{"a star in the middle", "- names: [\"a*b\"]", `line 1: name "a*b"`},
		{"an argument with two roles", "- names: [a]\n  args: {read: [x], write: [X]}", `argument "X" is read and write`},
		{"no list", "tools: 7", "no list"},
		{"no YAML", "\t", "toolspec: yaml"},
	} {
		t.Run(r.name, func(t *testing.T) {
			if _, err := Parse([]byte(r.yaml)); err == nil || !strings.Contains(err.Error(), r.want) {
				t.Errorf("error %v (want %q)", err, r.want)
			}
		})
	}
	for _, r := range []struct{ name, yaml, want string }{
		{"a sample that is not matched", "- names: [a_tool]\n  match: [b_tool]", `line 2: match: "b_tool" is not this tool`},
		{"a sample with another role", "- names: [a_tool]\n  args: {read: [x]}\n  match: [{tool: a_tool, roles: {x: write}}]", `argument "x" of "a_tool" is read (want write)`},
		{"a sample that should not match", "- names: [a_tool]\n  not_match: [aTool]", `line 2: not_match: "aTool" is this tool`},
		{"a look-alike does not match", "- names: [a_tool]\n  match: [\"а_tool\"]", "is not this tool"},
	} {
		t.Run(r.name, func(t *testing.T) {
			e, err := Parse([]byte(r.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Builtin().With(e); err == nil || !strings.Contains(err.Error(), r.want) {
				t.Errorf("error %v (want %q)", err, r.want)
			}
		})
	}
	for _, empty := range []string{"", "tools:", "other: 1", "# nothing"} {
		if e, err := Parse([]byte(empty)); err != nil || e.Len() != 0 {
			t.Errorf("%q: %d entries, %v", empty, e.Len(), err)
		}
	}
}

func TestAPatternDoesNotReplaceAKnownTool(t *testing.T) {
	e, err := Parse([]byte("- names: [\"b*\"]\n  group: read_only"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Builtin().With(e)
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := c.Lookup("", "bash"); f.Group != Exec {
		t.Errorf("bash: %+v", f)
	}
	if f, _ := c.Lookup("", "bananas"); f.Group != ReadOnly {
		t.Errorf("bananas: %+v", f)
	}
}

func TestRolesAndGroupsAreSpelledBack(t *testing.T) {
	for r := Infer; r <= ArgvRest; r++ {
		if got, err := ParseRole(r.String()); err != nil || got != r {
			t.Errorf("%s: %v, %v", r, got, err)
		}
	}
	for g := Unknown; g <= Network; g++ {
		if got, err := ParseGroup(g.String()); err != nil || got != g {
			t.Errorf("%s: %v, %v", g, got, err)
		}
	}
}

func TestWordsOfNames(t *testing.T) {
	for name, want := range map[string][]string{
		"outputFile_2": {"output", "file"}, "HTMLPath": {"html", "path"}, "a-b.c": {"a", "b", "c"}, "": nil,
	} {
		var buf [12]string
		if got := words(buf[:0], name); !slices.Equal(got, want) {
			t.Errorf("%s: %q (want %q)", name, got, want)
		}
	}
}

func FuzzLookup(f *testing.F) {
	f.Add("srv", "mcp__a__b")
	f.Add("", "mcp_a_b_c")
	f.Add("x", "a.b/c:d__e")
	c := Builtin()
	f.Fuzz(func(t *testing.T, server, tool string) {
		facts, spec := c.Lookup(server, tool)
		if facts.Known && suspect(tool) {
			t.Fatalf("%q is known", tool)
		}
		if spec == nil || !facts.Known && facts.Name != tool {
			t.Fatalf("%q: %+v", tool, facts)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(userTools))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err == nil {
			_, _ = Builtin().With(e)
		}
	})
}

func FuzzParseSchema(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"items":{"format":"uri"}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) { ParseSchema(b).Role("a") })
}

func BenchmarkLookup(b *testing.B) {
	c := Builtin()
	b.ReportAllocs()
	for b.Loop() {
		c.Lookup("", "mcp__filesystem__read_text_file")
	}
}

func BenchmarkParse(b *testing.B) {
	var texts [][]byte
	for _, f := range dataFiles(b) {
		text, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, text)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, text := range texts {
			if _, err := Parse(text); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func TestTheCatalogueHoldsTheToolsThatAgentsHave(t *testing.T) {
	c := Builtin()
	for _, r := range []struct {
		server string
		group  Group
		names  string
	}{
		{"", ReadOnly, "Read NotebookRead Glob Grep LS Task Agent TodoWrite BashOutput KillShell ExitPlanMode Skill SlashCommand read_file list_dir grep_search codebase_search file_search fetch_rules read_many_files list_directory glob search_file_content view_image canvas_render canvas_get_state"},
		{"", FSWrite, "Write Edit MultiEdit NotebookEdit apply_patch edit_file search_replace delete_file write_file replace"},
		{"", Exec, "Bash shell local_shell exec_command unified_exec run_terminal_cmd run_shell_command execute_python execute_javascript execute_typescript execute_command run_code run_command terminal query execute_sql"},
		{"", Network, "WebFetch WebSearch web_search web_fetch google_web_search fetch"},
		{"", Memory, "save_memory memory_search memory_recall memory_remember memory_forget search_reasoning_steps_lexical"},
		{"", ProductivityRead, "productivity_read"},
		{"", ProductivityWrite, "productivity_write"},
		{"", Browser, "browser_screenshot extract_text browser_navigate browser_click browser_fill_form browser_download"},
		{"filesystem", ReadOnly, "read_text_file read_media_file read_multiple_files list_directory list_directory_with_sizes directory_tree search_files get_file_info list_allowed_directories"},
		{"filesystem", FSWrite, "write_file edit_file create_directory move_file"},
		{"git", ReadOnly, "git_status git_diff_unstaged git_diff_staged git_diff git_log git_show git_branch"},
		{"git", FSWrite, "git_commit git_add git_reset git_create_branch git_checkout"},
		{"github", ProductivityRead, "get_file_contents search_repositories list_commits list_issues search_code search_issues search_users get_issue get_pull_request list_pull_requests"},
		{"github", ProductivityWrite, "create_or_update_file push_files create_issue create_pull_request fork_repository create_branch update_issue add_issue_comment create_repository merge_pull_request create_pull_request_review"},
		{"memory", Memory, "create_entities create_relations add_observations delete_entities delete_observations delete_relations read_graph search_nodes open_nodes"},
		{"puppeteer", Browser, "puppeteer_navigate puppeteer_screenshot puppeteer_click puppeteer_fill puppeteer_select puppeteer_hover puppeteer_evaluate"},
		{"playwright", Browser, "browser_navigate browser_click browser_type browser_snapshot browser_take_screenshot browser_evaluate browser_file_upload browser_tabs browser_wait_for"},
		{"postgres", Exec, "query"},
		{"sqlite", Exec, "read_query write_query create_table"},
		{"sqlite", ReadOnly, "list_tables describe_table"},
		{"slack", ProductivityRead, "slack_list_channels slack_get_channel_history slack_get_thread_replies slack_get_users slack_get_user_profile"},
		{"slack", ProductivityWrite, "slack_post_message slack_reply_to_thread slack_add_reaction"},
		{"notion", ProductivityRead, "API-post-search API-retrieve-a-page notion-search notion-fetch"},
		{"notion", ProductivityWrite, "API-post-page API-patch-page API-create-a-comment notion-create-pages"},
		{"time", ReadOnly, "get_current_time convert_time"},
		{"everything", ReadOnly, "echo add longRunningOperation printEnv getTinyImage"},
	} {
		for name := range strings.FieldsSeq(r.names) {
			if f, _ := c.Lookup(r.server, name); !f.Known || f.Group != r.group || normal(f.Name) != normal(name) {
				t.Errorf("%s %s: %+v (want %s)", r.server, name, f, r.group)
			}
		}
	}
}

func TestNamesOfTwoPartsMeanTheFirst(t *testing.T) {
	for _, r := range []struct {
		arg    string
		role   Role
		strong bool
	}{
		{"script_text", Code, true},
		{"codeBlock", Code, true},
		{"sqlText", SQL, true},
		{"command_string", Shell, true},
		{"query_string", MaybeSQL, true},
		{"rawQuery", MaybeSQL, true},
		{"include_domains", Text, true},
		{"blocked_hosts", Text, true},
		{"domain", Host, false},
		{"netloc", Host, true},
		{"PGHOST", Host, true},
		{"ghost", Infer, false},
		{"run", Shell, false},
		{"expr", Code, false},
		{"stdin", Stdin, false},
		{"page_text", Content, true},
		{"raw_value", Infer, false},
	} {
		if h := InferArg(r.arg); h.Role != r.role || h.Strong != r.strong {
			t.Errorf("%s: %s strong %v (want %s %v)", r.arg, h.Role, h.Strong, r.role, r.strong)
		}
	}
}

func TestToolsThatReadTheEnvironmentAreToldByTheirNames(t *testing.T) {
	for _, r := range []struct {
		tool      string
		does, may bool
	}{
		{"get_env", true, false},
		{"mcp__sys__printEnv", true, false},
		{"list_environment_variables", true, false},
		{"dumpEnvironment", true, false},
		{"environ", true, false},
		{"get_environment", false, true},
		{"list_environments", false, false},
		{"set_env", false, false},
		{"get_env_info", false, false},
		{"get_python_environment", false, false},
		{"envelope_get", false, false},
	} {
		if s := unknown("", r.tool); s.ReadsEnv != r.does || s.MayReadEnv != r.may {
			t.Errorf("%s: %v %v (want %v %v)", r.tool, s.ReadsEnv, s.MayReadEnv, r.does, r.may)
		}
	}
}

func TestToolsThatHandCallsOnAreToldByTheirNames(t *testing.T) {
	for tool, want := range map[string]bool{
		"batch": true, "mcp__hub__call_tool": true, "multi_tool_use.parallel": true, "runInParallel": true, "invoke": true,
		"recall": false, "get_user": false, "toolbox_list": false, "batched": false,
	} {
		if got := Dispatches(tool); got != want {
			t.Errorf("%s: %v (want %v)", tool, got, want)
		}
	}
}

func TestToolsThatTypeIntoATerminalExecute(t *testing.T) {
	for _, r := range []struct {
		server, tool string
		want         bool
	}{
		{"", "mcp__tmux__send_keys", true},
		{"iterm", "type_text", true},
		{"tmux", "list_panes", false},
		{"forms", "type_text", false},
	} {
		if _, s := Builtin().Lookup(r.server, r.tool); s.Executes() != r.want && !s.Known {
			t.Errorf("%s %s: executes %v (want %v)", r.server, r.tool, s.Executes(), r.want)
		}
	}
}

func TestADescriptionThatSpeaksOfAnAddressIsNotSure(t *testing.T) {
	s := ParseSchema([]byte(`{"properties":{
		"slug":{"description":"URL slug of the page"},
		"addr":{"description":"The URL of the page to open"},
		"ref":{"type":"string","format":"uri"}}}`))
	for name, want := range map[string]bool{"slug": false, "addr": true, "ref": true, "absent": true} {
		if got := s.Sure(name); got != want {
			t.Errorf("%s: %v (want %v)", name, got, want)
		}
	}
}
