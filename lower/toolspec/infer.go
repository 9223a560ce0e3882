package toolspec

import (
	"strings"
	"sync"
)

// Hint is what an argument's name alone says about it.
type Hint struct {
	Role Role
	// Strong: any value has the role. Otherwise only one that looks like it.
	Strong bool
	// Dest and Source: the name of a destination or of a source.
	Dest, Source bool
	// Route: a value that starts with a slash is a place below a host.
	Route bool
	// Many: the name is in the plural, a value may list several.
	Many bool
}

// exact are whole names, normalised, whose meaning their words do not tell.
var exact = sync.OnceValue(func() map[string]Hint {
	return map[string]Hint{
		"cwd": {Role: Cwd, Strong: true}, "workdir": {Role: Cwd, Strong: true}, "workingdir": {Role: Cwd, Strong: true},
		"workingdirectory": {Role: Cwd, Strong: true}, "currentdirectory": {Role: Cwd, Strong: true},
		"currentdir": {Role: Cwd, Strong: true}, "currentworkingdirectory": {Role: Cwd, Strong: true},
		"chdir": {Role: Cwd, Strong: true}, "pwd": {Role: Cwd, Strong: true}, "rundir": {Role: Cwd, Strong: true},
		"execdir": {Role: Cwd, Strong: true}, "workingpath": {Role: Cwd, Strong: true}, "workpath": {Role: Cwd, Strong: true},
		"startdir": {Role: Cwd, Strong: true}, "initialdirectory": {Role: Cwd, Strong: true},
		"commandline": {Role: Shell, Strong: true}, "cmdline": {Role: Shell, Strong: true},
		"shellcommand": {Role: Shell, Strong: true}, "bashcommand": {Role: Shell, Strong: true},
		"shellcmd": {Role: Shell, Strong: true}, "sqlquery": {Role: SQL, Strong: true},
		"querysql": {Role: SQL, Strong: true}, "oldstring": {Role: Text, Strong: true},
		"oldstr": {Role: Text, Strong: true}, "oldtext": {Role: Text, Strong: true},
		"newstring": {Role: Content, Strong: true}, "newstr": {Role: Content, Strong: true},
		"newtext": {Role: Content, Strong: true}, "newsource": {Role: Content, Strong: true},
		"filetext": {Role: Content, Strong: true}, "codeedit": {Role: Content, Strong: true},
		"filecontent": {Role: Content, Strong: true}, "filecontents": {Role: Content, Strong: true},
		"env": {Role: Env, Strong: true}, "environment": {Role: Env}, "envvars": {Role: Env, Strong: true},
		"environmentvariables": {Role: Env, Strong: true}, "environ": {Role: Env, Strong: true},
		"apppath": {Role: Write, Strong: true}, "filepattern": {Role: Glob, Strong: true},
		"globpattern": {Role: Glob, Strong: true}, "includepattern": {Role: Glob, Strong: true}, "filemask": {Role: Glob, Strong: true}, "profile": {Role: Infer}, "profiles": {Role: Infer},
	}
})

// byWord is what one word of a name says. Singular forms; a final s is cut.
var byWord = sync.OnceValue(wordHints)

func wordHints() map[string]Hint {
	m := map[string]Hint{}
	set := func(h Hint, list string) {
		for w := range strings.FieldsSeq(list) {
			m[w] = h
		}
	}
	set(Hint{Role: Write, Strong: true}, "path file filename filepath pathname dir directory directorie folder dirname dirpath folderpath fname abspath relpath")
	set(Hint{Role: Write}, "root location base archive image asset attachment document doc workspace project repo repository template notebook log db database dbpath storage media photo picture video audio binary artifact bundle package module upload download backup snapshot keyfile cert certificate config")
	set(Hint{Role: Glob, Strong: true}, "glob")
	set(Hint{Role: Glob}, "include")
	set(Hint{Role: Write, Dest: true}, "output out target to export into sink save")
	set(Hint{Role: Write, Dest: true, Strong: true}, "dest dst destination outfile outpath outdir outputpath outputfile outputdir destpath destfile targetpath targetfile savepath")
	set(Hint{Role: Write, Source: true}, "src source from input in origin")
	set(Hint{Role: Write, Source: true, Strong: true}, "infile srcpath srcfile sourcepath sourcefile inputpath inputfile")
	set(Hint{Role: URL, Strong: true}, "url href website webpage webhook weburl urladdress webaddress")
	set(Hint{Role: URL}, "uri link origin callback address remote proxy resource page site server base feed")
	set(Hint{Role: URL, Strong: true, Route: true}, "endpoint route")
	set(Hint{Role: Host, Strong: true}, "hostname fqdn host ip ipaddress netloc")
	set(Hint{Role: Host}, "domain broker peer upstream nameserver")
	set(Hint{Role: Shell, Strong: true}, "command cmd bash shellscript commandtorun program executable")
	set(Hint{Role: Shell}, "shell run exec execute")
	set(Hint{Role: Code}, "eval expr formula lambda")
	set(Hint{Role: Stdin}, "stdin")
	set(Hint{Role: Code, Strong: true}, "script code snippet sourcecode javascript python js py typescript")
	set(Hint{Role: SQL, Strong: true}, "sql")
	set(Hint{Role: MaybeSQL, Strong: true}, "statement stmt")
	set(Hint{Role: Argv, Strong: true}, "argv")
	set(Hint{Role: ArgvRest, Strong: true}, "args arguments argument")
	set(Hint{Role: Language, Strong: true}, "language lang interpreter runtime")
	set(Hint{Role: Patch, Strong: true}, "patch diff")
	set(Hint{Role: Recipient, Strong: true}, "channel recipient email mailto cc bcc chat room user username")
	set(Hint{Role: Content, Strong: true}, "content text body message msg title subject caption html markdown comment description note prompt observation summary instruction explanation thought reply answer question reason todo post")
	set(Hint{Role: Content}, "data payload")
	set(Hint{Role: Text, Strong: true}, "query search pattern regex regexp keyword term exclude excludepattern excluded ignore label tag topic")
	return m
}

// Words after which the words before say nothing about the value.
var attribute = set("type format size mode count limit encoding kind index number hash version separator id offset timeout status state depth width height length level exists flag enabled only key keys")

// Words that are passed over.
var filler = set("list array name names str string arg param parameter value values absolute relative full the of and or a an new old first second all raw")

// set is the set of the words of a list. It is made when it is first asked
// for: most processes need few of them.
func set(list string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool {
		m := map[string]bool{}
		for w := range strings.FieldsSeq(list) {
			m[w] = true
		}
		return m
	})
}

// InferArg classifies an argument nobody listed by its name.
func InferArg(name string) Hint {
	var nb [64]byte
	n := AppendNormal(nb[:0], name)
	if h, ok := exact()[string(n)]; ok {
		return h
	}
	// URLs is one word, though its letters change case like two.
	if h, ok := byWord()[string(n)]; ok {
		return h
	}
	if len(n) > 2 && n[len(n)-1] == 's' {
		if h, ok := byWord()[string(n[:len(n)-1])]; ok {
			h.Many = true
			return h
		}
	}
	var wb [12]string
	ws := words(wb[:0], name)
	if h, ok := wrapped(ws); ok {
		return h
	}
	h := lastWord(ws)
	if h.Role == Infer && len(ws) > 0 && !attribute()[ws[len(ws)-1]] {
		h = glued(n)
	}
	if h.Role.IsPath() && h.Strong {
		for _, w := range ws {
			if d := byWord()[strings.TrimSuffix(w, "s")]; d.Dest || d.Source {
				h.Dest, h.Source = h.Dest || d.Dest, h.Source || d.Source
			}
		}
	}
	return h
}

// bodies are words for the text of what the word before names.
var bodies = set("text string str body content source src block line lines raw value input")

// choices are words before a host's name that make it a filter.
var choices = set("include included exclude excluded allowed allow blocked block denied deny filter trusted ignore ignored")

// wrapped reads names of two parts that mean what the first does: the text of
// a script is code, that of a query is one. A choice of domains is no host.
func wrapped(ws []string) (Hint, bool) {
	if len(ws) < 2 {
		return Hint{}, false
	}
	before, last := ws[len(ws)-2], ws[len(ws)-1]
	if choices()[ws[0]] && (last == "domain" || last == "domains" || last == "host" || last == "hosts" || last == "site" || last == "sites") {
		return Hint{Role: Text, Strong: true}, true
	}
	if before == "raw" && last == "query" {
		return Hint{Role: MaybeSQL, Strong: true}, true
	}
	if !bodies()[last] {
		return Hint{}, false
	}
	switch h := byWord()[before]; {
	case before == "query":
		return Hint{Role: MaybeSQL, Strong: true}, true
	case h.Role.IsCode() && h.Role != ArgvRest && h.Strong:
		return h, true
	}
	return Hint{}, false
}

// lastWord takes the meaning of the last word that has one.
func lastWord(ws []string) Hint {
	for i := len(ws) - 1; i >= 0; i-- {
		w := ws[i]
		if attribute()[w] {
			return Hint{}
		}
		h, ok := byWord()[w]
		if !ok && len(w) > 2 && w[len(w)-1] == 's' {
			h, ok = byWord()[w[:len(w)-1]]
			h.Many = ok
		}
		// "file_name" is a file and "from_text" a text, "name" alone is not.
		if filler()[w] && i > 0 {
			continue
		}
		if ok {
			h.Many = h.Many || len(ws) > i+1 && (ws[i+1] == "list" || ws[i+1] == "names" || ws[i+1] == "array")
			return h
		}
	}
	return Hint{}
}

// glued reads names written without separators: "sourcefilepath".
func glued(n []byte) Hint {
	for len(n) > 0 && n[len(n)-1] >= '0' && n[len(n)-1] <= '9' {
		n = n[:len(n)-1]
	}
	s := string(n)
	many := strings.HasSuffix(s, "s") && !strings.HasSuffix(s, "address")
	if many {
		s = s[:len(s)-1]
	}
	s = strings.TrimSuffix(s, "list")
	s = strings.TrimSuffix(s, "name")
	for _, e := range suffixes {
		if strings.HasSuffix(s, e.end) && len(s) > len(e.end) && s != "ghost" {
			h := byWord()[e.of]
			h.Many = many
			if h.Role.IsPath() {
				h.Dest = hasAnyPrefix(s, "out", "dest", "dst", "target", "save", "export", "to")
				h.Source = !h.Dest && hasAnyPrefix(s, "src", "source", "in", "from")
			}
			return h
		}
	}
	return Hint{}
}

var suffixes = []struct{ end, of string }{
	{"filepath", "path"}, {"path", "path"}, {"profile", "image"}, {"file", "file"}, {"dir", "dir"}, {"directory", "dir"},
	{"directorie", "dir"}, {"folder", "dir"}, {"url", "url"}, {"uri", "uri"}, {"href", "href"}, {"link", "link"}, {"endpoint", "uri"},
	{"hostname", "hostname"}, {"host", "host"}, {"command", "command"}, {"cmd", "cmd"}, {"script", "script"},
	{"sql", "sql"}, {"code", "code"}, {"text", "text"}, {"content", "content"}, {"message", "message"},
}

func hasAnyPrefix(s string, list ...string) bool {
	for _, p := range list {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

var readVerbs = set(`get read list search find show describe view fetch count check status query inspect info
	stat head tail cat grep glob tree lookup log summarize analyze analyse parse validate verify lint open load
	preview explain compare scan detect is has hash print display explore browse retrieve select peek ls dir
	exists resolve measure audit review identify classify ocr transcribe`)

var listVerbs = set("list search find grep glob tree scan ls dir explore index walk")

var deleteVerbs = set("delete remove rm unlink erase purge trash rmdir rmtree wipe prune del discard")

var moveVerbs = set("move rename mv")

var copyVerbs = set("sync copy cp convert upload send attach duplicate clone import compress zip archive pack extract unzip unpack encode decode transcode post")

var writeVerbs = set(`write create update set put post add edit modify save store insert replace append
	patch touch apply commit push merge sync generate export download install build fix clean clear reset truncate
	chmod chown link symlink restore render init make mkdir run exec execute start stop deploy
	transform process overwrite dump record register enable disable change refactor rewrite new sed tee drop
	unzip extract unpack convert copy cp compress publish format`)

var sendVerbs = set("send post publish share email mail notify tweet message reply comment upload submit forward broadcast invite announce")

// handVerbs hand a file on, and so read it.
var handVerbs = set("send share email mail upload attach print transcribe")

// Words of tools whose pattern is of file names, and of those whose pattern
// is of text.
var (
	findWords = set("glob find file files list ls dir")
	grepWords = set("grep content contents text code regex symbol symbols line lines")
)

var gravest = set("delete remove purge erase wipe drop destroy terminate send publish email mail tweet pay purchase buy transfer refund charge deploy release revoke merge cancel broadcast reset")

var execWords = set("run exec execute eval evaluate shell bash sh zsh powershell pwsh terminal console command cmd spawn repl interpreter python python3 javascript js node typescript script")

// unknown makes the spec of a tool that is not in the catalogue.
func unknown(server, name string) *Spec {
	srv, tool, ok := qualified(name)
	if !ok {
		tool = name
	}
	if srv != "" {
		server = srv
	}
	var wb [12]string
	ws := words(wb[:0], tool)
	s := &Spec{Facts: Facts{Name: name}, PathRole: Write}
	var reads, lists, writes, deletes, moves, hands, finds, greps bool
	for _, w := range ws {
		lists = lists || !reads && listVerbs()[w]
		reads = reads || readVerbs()[w]
		deletes = deletes || deleteVerbs()[w]
		moves = moves || moveVerbs()[w]
		writes = writes || writeVerbs()[w]
		hands = hands || handVerbs()[w]
		finds = finds || findWords()[w]
		greps = greps || grepWords()[w]
		s.Outbound = s.Outbound || sendVerbs()[w]
		s.Irreversible = s.Irreversible || gravest()[w]
		if execWords()[w] {
			s.Language = languageWord(w, s.Language)
		}
	}
	if s.Language == "" && types(server, ws) {
		s.Language = "?"
	}
	s.globs = finds && !greps
	s.ReadsEnv, s.MayReadEnv = readsEnv(ws)
	if len(ws) == 1 && programs()[ws[0]] {
		s.Program = ws[0]
	}
	for _, w := range ws {
		s.Dials = s.Dials || dialWords()[w]
		// Code that nothing here reads is no code of a language that is read.
		if foreign()[w] && (s.Language != "" || len(ws) == 1) {
			s.Language = w
		}
	}
	switch {
	case deletes:
		s.PathRole = Delete
	case moves:
		s.PathRole = Move
	case reads && !writes && lists:
		s.PathRole = List
	case !writes && (reads || hands):
		s.PathRole = Read
	}
	return s
}

// Words of a tool that gives out environment variables: what it does, what
// of, and what else would be meant instead.
var (
	envVerbs  = set("get getenv read dump print printenv show list display export fetch query env environ environment vars variables variable var all process system sys os current")
	envNouns  = set("env environ getenv printenv envvar envvars")
	envPlural = set("vars variables variable var dump")
)

// readsEnv reports a name made of nothing but words for reading environment
// variables. An environment that is none of a process (of a deployment, of an
// interpreter) has other words beside it, or an argument that names it: may is
// set for a name that could be either.
func readsEnv(ws []string) (does, may bool) {
	for _, w := range ws {
		if !envVerbs()[w] && !envNouns()[w] {
			return false, false
		}
		does = does || envNouns()[w]
		may = may || w == "environment"
	}
	for _, w := range ws {
		does = does || may && envPlural()[w]
	}
	return does, may && !does
}

// Dispatches reports whether the words of a tool's name say that it hands
// calls on to other tools.
func Dispatches(name string) bool {
	_, tool, ok := qualified(name)
	if !ok {
		tool = name
	}
	// multi_tool_use.parallel says it in its first part.
	var wb, sb [12]string
	for _, w := range words(wb[:0], tool) {
		if dispatchWords()[w] {
			return true
		}
	}
	for _, w := range words(sb[:0], name) {
		if w == "multi" {
			return true
		}
	}
	return false
}

var dispatchWords = set("batch parallel dispatch multi call calls invoke gateway proxy tool tools router route delegate")

// Servers of terminals, and what types into one.
var (
	terminals = set("terminal term tmux iterm console tty pty shell screen zellij ssh")
	typeVerbs = set("type send write input keys key text press paste enter submit stdin line lines")
)

// types reports a tool that types into a terminal.
func types(server string, ws []string) bool {
	var sb [12]string
	terminal := false
	for _, w := range words(sb[:0], server) {
		terminal = terminal || terminals()[w]
	}
	for _, w := range ws {
		if terminal && typeVerbs()[w] {
			return true
		}
	}
	return false
}

// dialWords are of tools that look hosts up or try them.
var dialWords = set("ping dns nslookup dig whois traceroute tracert telnet nmap portscan socket tcp udp netcat")

// programs are those that servers offer as a tool of their name.
var programs = set(`kubectl helm terraform tofu pulumi ansible aws az gcloud gsutil doctl docker podman git gh glab npm npx pnpm
	yarn pip uv cargo make systemctl service psql mysql mongosh emacs vim vi ed awk gawk sed find xargs rsync scp ssh sftp wget nc
	ncat socat tar zip unzip rm cp mv ln chmod chown dd crontab at cat head tail less tee env openssl gpg sudo tmux screen`)

// foreign are languages without a reader.
var foreign = set("ruby irb perl php lua awk gawk osascript applescript rscript julia scala groovy clojure elixir tcl swift haskell")

// languageWord is the language that a word of a tool's name stands for; "?"
// is some language.
func languageWord(w, before string) string {
	switch w {
	case "python", "python3":
		return "python"
	case "javascript", "js", "node":
		return "javascript"
	case "typescript":
		return "typescript"
	case "shell", "bash", "sh", "zsh", "terminal", "command", "cmd", "console":
		return "shell"
	case "powershell", "pwsh":
		return "powershell"
	}
	if before == "" {
		return "?"
	}
	return before
}

// Copies reports whether the words of a tool's name say that it reads one
// place and writes another.
func (s *Spec) Copies() bool {
	var wb [12]string
	for _, w := range words(wb[:0], s.Name) {
		if copyVerbs()[w] {
			return true
		}
	}
	return false
}

// Globs reports whether an argument called pattern is one of file names.
func (s *Spec) Globs() bool { return s.globs }

// Executes reports whether strings of unknown role may be run by the tool.
func (s *Spec) Executes() bool { return s.Group == Exec || !s.Known && s.Language != "" }
