package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// Languages that have no reader of their own are scanned: the text is cut
// into words, strings and punctuation, and calls that start programs, open
// files or connect are looked for, with constant arguments where they stand.

func scanned(lang string) bool {
	switch lang {
	case "python", "javascript", "typescript", "sql", "shell":
		return false
	}
	return true
}

var runWords = map[string]bool{
	"system": true, "exec": true, "popen": true, "spawn": true, "shell_exec": true, "passthru": true, "proc_open": true, "pcntl_exec": true,
	"execute": true, "os::execute": true, "capture2": true, "capture2e": true, "capture3": true, "popen2": true, "popen3": true, "open3": true, "open2": true,
	"posix_spawn": true, "syscall": true, "system2": true, "pipe": true, "run": true, "cmd": true, "readpipe": true, "CORE::system": true, "CORE::exec": true,
	"shell": true, "Invoke": true, "iex": true, "callCommand": true, "readProcess": true, "callProcess": true, "process": true, "start": true, "spawnProcess": true,
	"pty": true, "PTY::spawn": true, "shell-command": true, "call-process": true, "start-process": true, "sh": true, "script": true, "os::cmd": true, "run-program": true,
}

var openWords = map[string]bool{
	"open": true, "read": true, "readlines": true, "foreach": true, "file_get_contents": true, "file": true, "fopen": true, "readfile": true,
	"file_put_contents": true, "write": true, "lines": true, "dofile": true, "loadfile": true, "require": true, "include": true, "load": true,
	"readLines": true, "readRDS": true, "scan": true, "source": true, "writeLines": true, "binread": true, "binwrite": true, "unlink": true,
	"delete": true, "remove": true, "copy": true, "rename": true, "mkdir": true, "rmtree": true, "rm_rf": true, "slurp": true, "spit": true, "insert-file-contents": true,
	"write-region": true, "sysopen": true, "opendir": true, "glob": true, "Dir": true, "scandir": true, "highlight_file": true, "show_source": true,
	"chmod": true, "symlink": true, "link": true, "Get-Content": true, "readFile": true, "writeFile": true, "appendFile": true, "readChan": true, "move": true, "cp": true, "mv": true, "rm": true, "fileread": true, "textread": true, "fread": true, "parse_ini_file": true, "parse_ini": true, "sysread": true, "IO": true, "File": true, "touch": true, "cp_r": true, "rm_r": true, "rename_file": true, "ln_s": true, "remove_entry_secure": true, "ReadAllText": true,
}

var sockWords = []string{"socket", "Socket", "TCPSocket", "UDPSocket", "fsockopen", "stream_socket_client", "IO::Socket", "Net::HTTP", "LWP", "HTTP::Tiny", "open-uri", "curl_exec", "curl_init", "socketConnect", "make-network-process", "gen_tcp", "TcpClient", "WebClient", "Invoke-WebRequest", "url", "download", "Net::FTP", "Net::SMTP", "socket_connect", "OpenURI", "URI", "get_headers", "dns_get_record", "gethostbyname", "Resolv", "mail", "connect"}

// scan reads a text in one of the languages that are only scanned.
func (w *walker) scan(lang string, src val) {
	if !w.spend(len(src.s)/16 + 4) {
		return
	}
	if lang == "math" && !strings.Contains(src.s, "system") && !strings.Contains(src.s, "!") {
		return
	}
	sc := scanner2{w: w, lang: lang, src: src, text: dropMarks(src.s)}
	if hasMark(src.s) && bare(strings.TrimSpace(src.s)) {
		return
	}
	sc.t = scanTokens(lang, sc.text)
	sc.run()
}

type scanner2 struct {
	w     *walker
	lang  string
	src   val
	text  string
	t     []scanTok
	vars  map[string]string
	runs  bool
	sock  string
	shell bool
}

func (s *scanner2) run() {
	s.constants()
	for i, t := range s.t {
		switch t.kind {
		case 'b':
			s.runs = true
			s.shellText(s.interpolated(t.s), s.lang+" backticks")
		case 'w':
			if t.s == "chmod" {
				s.mode(s.text[t.end:])
			}
			s.word(i, t.s)
		case 'p':
			s.punct(i, t.s)
		case 's':
			// A constant that names a secret is most likely opened, by
			// whatever name the opener goes.
			if p := s.w.tildeText(s.interpolated(t.s)); len(p) < 256 && strings.HasPrefix(p, "/") && looksSecret(p) && !strings.ContainsAny(p, " \n") {
				s.w.doubt++
				s.w.reads(val{s: p})
				s.w.doubt--
			}
			if strings.Contains(t.s, "#{") && s.lang == "ruby" {
				s.nested(t.s)
			}
			if (s.lang == "perl" || s.lang == "php") && strings.Contains(t.s, "/dev/tcp/") {
				s.w.connect(val{s: "*"}, "tcp", nil, true)
			}
		}
	}
	s.environment()
	s.sockets()
	s.bombs()
}

// mode looks for one that sets the user's identity among the arguments of
// chmod.
func (s *scanner2) mode(rest string) {
	rest = rest[:min(len(rest), 200)]
	if i := strings.IndexAny(rest, ";\n"); i >= 0 {
		rest = rest[:i]
	}
	for _, f := range strings.FieldsFunc(rest, func(r rune) bool { return !isWordRune(r) }) {
		f = strings.TrimPrefix(f, "0o")
		if strings.Trim(f, "01234567") == "" && len(f) <= 5 && setsID(f) {
			s.w.emit(cordon.Effect{Kind: cordon.Privilege, Op: "setuid", Target: f})
			return
		}
	}
}

func isWordRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// nested is code between #{ and } in a Ruby string.
func (s *scanner2) nested(str string) {
	for {
		i := strings.Index(str, "#{")
		if i < 0 {
			return
		}
		j := strings.IndexByte(str[i:], '}')
		if j < 0 {
			return
		}
		inner := scanner2{w: s.w, lang: s.lang, text: str[i+2 : i+j], vars: s.vars}
		inner.t = scanTokens(s.lang, inner.text)
		if len(inner.t) < 200 && s.w.spend(4) {
			inner.run()
		}
		str = str[i+j:]
	}
}

// constants notes variables that hold constant text.
func (s *scanner2) constants() {
	s.vars = map[string]string{}
	for i := 0; i+2 < len(s.t); i++ {
		if s.t[i].kind == 'w' && s.t[i+1].s == "=" && s.t[i+2].s != "=" && s.t[i+2].s != "~" {
			if v, ok := s.value(i + 2); ok {
				s.vars[s.t[i].s] = v
			}
		}
		if s.lang == "tcl" && s.t[i].s == "set" && s.t[i+2].kind == 's' {
			s.vars[s.t[i+1].s] = s.t[i+2].s
		}
	}
}

// value reads a concatenation of constants at i: strings joined by ".", "+",
// "..", "~" or nothing.
func (s *scanner2) value(i int) (string, bool) {
	var b strings.Builder
	any := false
	for n := 0; i < len(s.t) && n < 64; n++ {
		t := s.t[i]
		switch {
		case t.kind == 's':
			b.WriteString(s.interpolated(t.s))
			any = true
		case t.kind == 'w' && t.s == "ENV", t.kind == 'p' && t.s == "$" && i+1 < len(s.t) && s.t[i+1].s == "ENV":
			if t.s == "$" {
				i++
			}
			j := i + 1
			for j < len(s.t) && j < i+4 && s.t[j].kind == 'p' {
				j++
			}
			if j < len(s.t) && (s.t[j].kind == 's' || s.t[j].kind == 'w') {
				name := s.t[j].s
				if name == "fetch" && j+2 < len(s.t) {
					j += 2
					name = s.t[j].s
				}
				v, _ := s.w.lookup(name)
				b.WriteString(v.s)
				any = true
				i = j + 1
			}
		case t.kind == 'w' && (t.s == "getenv" || t.s == "os" || t.s == "Sys" || t.s == "_SERVER" || t.s == "_ENV" || t.s == "env"):
			j := i + 1
			for j < len(s.t) && j < i+7 && s.t[j].kind != 's' {
				j++
			}
			if j < len(s.t) && s.t[j].kind == 's' {
				v, _ := s.w.lookup(s.t[j].s)
				b.WriteString(v.s)
				any = true
				i = j + 1
			}
		case t.kind == 'w' && (t.s == "Dir" || t.s == "home") && i+2 < len(s.t) && s.t[i+2].s == "home":
			b.WriteString(s.w.homePath("")[:len(s.w.homePath(""))-1])
			any = true
			i += 2
		case t.kind == 'w' && (t.s == "File" || t.s == "expand_path" || t.s == "join" || t.s == "path.expand" || t.s == "glob" || t.s == "file" || t.s == "path"):
		case t.kind == 'w':
			v, ok := s.vars[t.s]
			if !ok {
				return b.String(), any
			}
			b.WriteString(v)
			any = true
		case t.kind == 'p' && (t.s == "." || t.s == "+" || t.s == "(" || t.s == "$" || t.s == "~" || t.s == "&" || t.s == "@"):
		case t.kind == 'p' && t.s == "," && i > 1 && s.joins(i):
			b.WriteString("/")
		default:
			return b.String(), any
		}
		i++
	}
	return b.String(), any
}

func (s *scanner2) joins(i int) bool {
	for j := i; j >= 0 && j > i-12; j-- {
		if s.t[j].s == "join" || s.t[j].s == "expand_path" {
			return true
		}
		if s.t[j].s == ";" {
			return false
		}
	}
	return false
}

// interpolated fills in variables and the environment within a string.
func (s *scanner2) interpolated(str string) string {
	for _, p := range [...]string{"$ENV{HOME}", "#{ENV['HOME']}", `#{ENV["HOME"]}`, "#{Dir.home}", "$env(HOME)", "$::env(HOME)", "${HOME}", "$HOME"} {
		if strings.Contains(str, p) {
			str = strings.ReplaceAll(str, p, strings.TrimSuffix(s.w.homePath(""), "/"))
		}
	}
	if i := strings.IndexByte(str, '$'); i >= 0 && len(s.vars) > 0 {
		for k, v := range s.vars {
			str = strings.ReplaceAll(str, "$"+k, v)
		}
	}
	return str
}

func (s *scanner2) shellText(t, via string) {
	if t == "" {
		return
	}
	if strings.Contains(t, "/bin/sh") || strings.Contains(t, "bash") || t == "sh" || strings.HasPrefix(t, "sh ") {
		s.shell = true
	}
	s.w.turn(val{s: t}, via, stdio{in: &val{}})
}

func (s *scanner2) next(i int) string {
	if i+1 < len(s.t) {
		return s.t[i+1].s
	}
	return ""
}

func (s *scanner2) prev(i int) string {
	if i > 0 {
		return s.t[i-1].s
	}
	return ""
}

func (s *scanner2) word(i int, word string) {
	last := word[strings.LastIndexByte(word, ':')+1:]
	if s.prev(i) == "def" || s.prev(i) == "sub" || s.prev(i) == "function" || s.prev(i) == "proc" && s.lang == "tcl" && false {
		return
	}
	switch {
	case word == "eval" || word == "instance_eval" || word == "class_eval" || word == "loadstring" || word == "assert" && s.lang == "php" || word == "create_function" || word == "load" && s.lang == "lua" || word == "eval_string" || word == "call_user_func" || word == "unpack" && s.evals() || word == "send" && s.lang == "ruby" || word == "public_send" || word == "__send__":
		s.dynamic(i, word)
	case runWords[word] || runWords[last]:
		s.call(i, last)
	case s.lang == "php" && s.prev(i) == "$" && s.next(i) == "(" && runWords[s.vars[word]]:
		s.call(i+1, s.vars[word])
	case openWords[word] || openWords[last]:
		s.opens(i, last)
	case s.lang == "ruby" && word == "Open3" || word == "Kernel" || word == "Process":
	case s.lang == "tcl" && word == "exec":
		s.call(i, word)
	}
	if strings.Contains(word, "Socket") || strings.Contains(word, "socket") || word == "TcpClient" {
		s.sock = word
	}
}

// evals reports whether the text evaluates or runs anything.
func (s *scanner2) evals() bool {
	for _, t := range s.t {
		if t.kind == 'w' && (t.s == "eval" || t.s == "system" || t.s == "exec") {
			return true
		}
	}
	return false
}

func (s *scanner2) dynamic(i int, word string) {
	if word == "unpack" {
		s.w.opaque(s.lang+": text is decoded and run", cordon.OriginDecoded, s.text)
		return
	}
	if word == "send" || word == "public_send" || word == "__send__" || word == "call_user_func" {
		// A method named by text: which one matters.
		for j := i + 1; j < len(s.t) && j < i+4; j++ {
			n := strings.TrimPrefix(s.t[j].s, ":")
			if runWords[n] {
				s.call(j, n)
				return
			}
		}
		if s.next(i) == "(" && i+2 < len(s.t) && s.t[i+2].kind == 'w' && word != "send" {
			s.w.opaque(s.lang+": calls what it computes", cordon.OriginLiteral, s.text)
		}
		return
	}
	if s.next(i) == "{" && s.lang == "perl" {
		return // a block: protected, not evaluated
	}
	if v, ok := s.value(i + 1); ok && len(v) > 0 && s.w.turns < 8 {
		s.w.turns++
		s.w.scan(s.lang, val{s: v})
		s.w.turns--
	}
	for j := i + 1; j < len(s.t) && s.t[j].s != ";"; j++ {
		if t := s.t[j]; t.kind == 'w' && (strings.Contains(t.s, "decode") || t.s == "pack" || t.s == "unpack" || t.s == "gzinflate" || t.s == "str_rot13" || t.s == "reverse" || t.s == "strrev" || t.s == "hex2bin" || t.s == "chr") {
			s.w.opaque(s.lang+": text is decoded and run", cordon.OriginDecoded, s.text)
			return
		}
		if t := s.t[j]; t.kind == 'w' && s.vars[t.s] == "" && s.t[j-1].kind == 'p' && !isDigits(t.s) {
			s.w.opaque(s.lang+": evaluates text that cannot be told", cordon.OriginUnknown, s.text)
			return
		}
	}
}

// call is a word that starts a program, if what follows is a call.
func (s *scanner2) call(i int, name string) {
	if i > 0 && (s.t[i-1].s == "$" || s.t[i-1].s == "@" || s.t[i-1].s == "%") {
		return
	}
	weak := false
	switch name {
	case "run", "cmd", "process", "start", "pipe", "script", "sh", "shell", "pty":
		weak = true
	case "exec":
		weak = s.lang == "php" && s.prev(i) == ">"
	}
	if s.lang == "jvm" && (name == "execute" || name == "exec") {
		weak = false
	}
	if weak && s.next(i) != "(" && (i+1 >= len(s.t) || s.t[i+1].kind != 's') {
		return
	}
	if s.next(i) == "=" {
		return
	}
	s.runs = true
	words, text := s.arguments(i + 1)
	switch {
	case s.lang == "jvm" && name == "execute" && i > 1 && s.prev(i) == "." && s.t[i-2].kind == 's':
		s.shellText(s.t[i-2].s, s.lang+" execute")
	case len(words) > 1 && strings.IndexByte(words[0], ' ') > 0:
		s.shellText(words[0], s.lang+" "+name)
	case len(words) > 1:
		if strings.HasSuffix(words[0], "sh") {
			s.shell = true
		}
		vs := make([]val, 0, len(words))
		for _, x := range words {
			vs = append(vs, val{s: x})
		}
		s.w.sub(vs, stdio{in: &val{}}, s.lang+" "+name)
	case text != "":
		s.shellText(text, s.lang+" "+name)
	default:
		if weak {
			return
		}
		s.w.opaque(s.lang+": starts a program that cannot be told", cordon.OriginUnknown, s.text)
	}
}

// arguments reads constant arguments from i on.
func (s *scanner2) arguments(i int) (words []string, text string) {
	if s.lang == "tcl" {
		return s.tclWords(i)
	}
	depth := 0
	for n := 0; i < len(s.t) && n < 64; n++ {
		t := s.t[i]
		switch {
		case t.kind == 's' || t.kind == 'w' && (s.vars[t.s] != "" || t.s == "ENV"):
			v, ok := s.value(i)
			if !ok {
				return words, first(words)
			}
			words = append(words, v)
			for i+1 < len(s.t) && s.t[i+1].s != "," && s.t[i+1].s != ")" && s.t[i+1].s != ";" && s.t[i+1].s != "]" && s.t[i+1].s != "}" {
				i++
			}
		case t.s == "(" || t.s == "[" || t.s == "{":
			depth++
		case t.s == ")" || t.s == "]" || t.s == "}":
			if depth--; depth <= 0 {
				return words, first(words)
			}
		case t.s == ";":
			return words, first(words)
		}
		i++
	}
	return words, first(words)
}

func first(l []string) string {
	if len(l) == 0 {
		return ""
	}
	return l[0]
}

// tclWords are the words of a Tcl command up to its end.
func (s *scanner2) tclWords(i int) (words []string, text string) {
	start := 0
	if i > 0 {
		start = s.t[i-1].end
	}
	end := len(s.text)
	for j := start; j < len(s.text); j++ {
		if strings.IndexByte(";\n]}", s.text[j]) >= 0 {
			end = j
			break
		}
	}
	raw := strings.TrimSpace(s.text[start:end])
	for k, v := range s.vars {
		raw = strings.ReplaceAll(raw, "$"+k, v)
	}
	raw = s.interpolated(strings.ReplaceAll(raw, "{", ""))
	return nil, raw
}

func (s *scanner2) opens(i int, name string) {
	if i > 0 && (s.t[i-1].s == "$" || s.t[i-1].s == "@") {
		return
	}
	// Any constant among the arguments that looks like a path, or comes with
	// a mode, is opened.
	mode := ""
	var paths []string
	if s.lang == "tcl" {
		_, raw := s.tclWords(i + 1)
		if f := strings.Fields(raw); len(f) > 0 {
			if len(f) > 1 {
				mode = f[1]
			}
			if cmd := strings.Trim(raw, `"`); strings.HasPrefix(cmd, "|") {
				s.shellText(cmd[1:], "tcl open")
				return
			}
			s.path(name, mode, strings.Trim(f[0], `"`))
		}
		return
	}
	j := i + 1
	depth := 0
	for n := 0; j < len(s.t) && n < 24 && s.t[j].s != ";"; n++ {
		t := s.t[j]
		if t.kind == 'p' && (t.s == "(" || t.s == ")") {
			if t.s == "(" {
				depth++
			} else if depth--; depth <= 0 {
				break
			}
		}
		if t.kind == 's' || t.kind == 'w' && s.vars[t.s] != "" || t.kind == 'w' && (t.s == "ENV" || t.s == "getenv" || t.s == "Dir") {
			v, ok := s.value(j)
			if !ok {
				j++
				continue
			}
			if isMode(v) {
				mode = v
			} else {
				paths = append(paths, v)
			}
			for j+1 < len(s.t) && s.t[j+1].s != "," && s.t[j+1].s != ";" && s.t[j+1].s != ")" {
				j++
				if s.t[j].s == "(" {
					depth++
					for j+1 < len(s.t) && s.t[j].s != ")" {
						j++
					}
					depth--
				}
			}
		}
		j++
	}
	for _, p := range paths {
		s.path(name, mode, p)
	}
	if name == "open" && s.lang == "perl" {
		for k := i + 1; k < len(s.t) && k < i+12; k++ {
			if s.t[k].kind == 's' {
				s.perlOpen(s.t[k].s)
			}
		}
	}
	if (name == "require" || name == "include" || name == "load") && s.lang == "php" {
		for _, p := range paths {
			if strings.Contains(p, "://") && !strings.HasPrefix(p, "file") {
				s.w.opaque("php: includes code from elsewhere", cordon.OriginNetwork, p)
			}
		}
	}
}

func isMode(v string) bool {
	switch strings.Trim(v, " b+:utf8UTF-") {
	case "r", "w", "a", "<", ">", ">>", "x", "c", "-|", "|-", "", "|":
		return len(v) < 16
	}
	return false
}

// perlOpen is two-argument open: the text itself says what is done.
func (s *scanner2) perlOpen(t string) {
	t = strings.TrimSpace(s.interpolated(t))
	switch {
	case strings.HasPrefix(t, "|") && len(t) > 1:
		s.shellText(t[1:], "perl open")
	case strings.HasSuffix(t, "|") && len(t) > 1:
		s.shellText(strings.TrimSuffix(t, "|"), "perl open")
	}
}

func (s *scanner2) path(name, mode, p string) {
	w := s.w
	p = w.tildeText(p)
	if strings.HasPrefix(p, "|") && (s.lang == "ruby" || s.lang == "perl" || s.lang == "tcl") {
		s.shellText(p[1:], s.lang+" "+name)
		return
	}
	if mode == "-|" || mode == "|-" {
		s.shellText(p, s.lang+" open")
		return
	}
	if strings.Contains(p, "://") {
		if !strings.HasPrefix(p, "php://") && !strings.HasPrefix(p, "data:") {
			w.connectURL(val{s: p}, nil, false)
		}
		if i := strings.Index(p, "resource="); i > 0 {
			w.reads(val{s: p[i+9:]})
		}
		return
	}
	if strings.HasPrefix(p, "<") || strings.HasPrefix(p, ">") {
		mode = p[:1]
		p = strings.TrimLeft(p, "<>+ ")
	}
	if len(p) > 1024 || strings.ContainsAny(p, "\n") || p == "" || !strings.ContainsAny(p, "/.~") && mode == "" {
		return
	}
	if (name == "require" || name == "use") && !strings.HasPrefix(p, "/") && !strings.HasPrefix(p, ".") {
		return
	}
	v := val{s: p}
	switch {
	case name == "remove" || name == "unlink" || name == "delete" || name == "rm" || name == "rmtree" || name == "rm_rf" || name == "rm_r" || name == "remove_entry_secure":
		w.deletes(v, strings.Contains(name, "r"))
	case strings.HasPrefix(mode, "w") || strings.HasPrefix(mode, "a") || strings.HasPrefix(mode, ">") || strings.Contains(mode, "+") || strings.HasPrefix(mode, "x") || strings.HasPrefix(mode, "c"):
		w.writes(v, "create")
	case name == "file_put_contents" || name == "write" || name == "writeLines" || name == "binwrite" || name == "mkdir" || name == "spit" || name == "write-region" || name == "chmod" || name == "writeFile" || name == "appendFile" || name == "touch":
		w.writes(v, "create")
	case name == "copy" || name == "rename" || name == "symlink" || name == "link" || name == "cp" || name == "mv" || name == "move" || name == "cp_r" || name == "ln_s":
		w.reads(v)
		w.writes(v, "create")
	default:
		w.reads(v)
	}
}

func (s *scanner2) punct(i int, p string) {
	// Perl's <"…"> and <$fh> are reads of what was opened; glob needs a path.
	if s.lang == "perl" && p == "<" && i+2 < len(s.t) {
		j := strings.IndexByte(s.text[s.t[i].end:], '>')
		if j > 0 && j < 200 {
			t := s.text[s.t[i].end : s.t[i].end+j]
			if strings.ContainsAny(t, "/~") && !strings.ContainsAny(t, " ;()") {
				s.w.reads(val{s: s.w.tildeText(s.interpolated(t))})
			}
		}
	}
	if s.lang == "perl" && p == "@" && s.next(i) == "ARGV" && i+2 < len(s.t) && s.t[i+2].s == "=" {
		if v, ok := s.value(i + 3); ok {
			s.path("open", "", v)
		}
	}
}

// environment looks for the whole environment or secrets in it.
func (s *scanner2) environment() {
	for i, t := range s.t {
		if t.kind != 'w' {
			continue
		}
		whole := false
		switch t.s {
		case "ENV":
			n := s.next(i)
			// Perl: $ENV{X} is one, %ENV all; Ruby: ENV['X'], ENV.to_h.
			whole = s.prev(i) == "%" || s.lang == "ruby" && n != "[" && !(n == "." && i+2 < len(s.t) && (s.t[i+2].s == "fetch" || s.t[i+2].s == "key?" || s.t[i+2].s == "dig" || s.t[i+2].s == "delete"))
			whole = whole || s.lang == "julia" && n != "["
			s.envName(i)
		case "getenv":
			whole = s.next(i) == "(" && i+2 < len(s.t) && s.t[i+2].s == ")"
			s.envName(i)
		case "_ENV", "_SERVER":
			whole = s.lang == "php" && s.next(i) != "["
			s.envName(i)
		case "phpinfo":
			whole = s.lang == "php"
		case "env", "::env":
			whole = s.lang == "tcl" && (s.prev(i) == "get" || s.prev(i) == "names" || s.prev(i) == "parray")
			s.envName(i)
		case "parray":
			whole = s.lang == "tcl" && s.next(i) == "env"
		case "Sys":
			whole = s.next(i) == "." && i+4 < len(s.t) && s.t[i+2].s == "getenv" && s.t[i+4].s == ")"
			s.envName(i)
		}
		if whole {
			s.w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
		}
	}
}

func (s *scanner2) envName(i int) {
	for j := i + 1; j < len(s.t) && j < i+5; j++ {
		if s.t[j].kind == 's' || s.t[j].kind == 'w' && s.t[j].s != "fetch" && s.t[j].s != "getenv" {
			if secretName(s.t[j].s) {
				s.w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: s.t[j].s})
			}
			return
		}
	}
}

// sockets: a text that names a socket and a constant host connects to it; if
// it also starts a program it hands over a shell.
func (s *scanner2) sockets() {
	found := ""
	for _, t := range s.t {
		if t.kind == 'w' || t.kind == 's' && (t.s == "socket" || t.s == "open-uri" || t.s == "net/http" || t.s == "socket.http" || t.s == "luasocket") {
			for _, x := range sockWords {
				if t.s == x || strings.Contains(strings.ToLower(t.s), "socket") || strings.Contains(t.s, "Net::HTTP") || strings.Contains(t.s, "LWP") {
					found = t.s
				}
			}
		}
	}
	if found == "" {
		return
	}
	host := ""
	for _, t := range s.t {
		if t.kind == 's' || s.lang == "tcl" && t.kind == 'w' {
			if h := hostIn(t.s); h != "" {
				host = h
				s.w.connect(val{s: h}, "", nil, s.sends())
			}
		}
	}
	if s.lang == "tcl" || host == "" {
		host = s.bareHost(host)
	}
	real := strings.Contains(strings.ToLower(found), "socket") || found == "fsockopen" || found == "connect" || found == "TcpClient" || found == "stream_socket_client" || found == "gen_tcp"
	if !real {
		return
	}
	if host == "" {
		host = "*"
	}
	if s.runs || s.shell {
		s.w.emit(cordon.Effect{Kind: cordon.Connect, Target: host, Op: "reverse_shell", Sends: true})
	} else if strings.ToLower(found) != "socket" || s.lang == "tcl" {
		s.w.emit(cordon.Effect{Kind: cordon.Connect, Target: host, Op: "tcp", Sends: true, Doubtful: host == "*"})
	}
}

func (s *scanner2) sends() bool {
	for _, t := range s.t {
		switch t.s {
		case "post", "post_form", "Post", "print", "puts", "write", "send", "POST", "fwrite", "fputs":
			return true
		}
	}
	return false
}

// bareHost finds an address that the tokenizer has cut up.
func (s *scanner2) bareHost(have string) string {
	for _, f := range strings.FieldsFunc(s.text, func(r rune) bool { return strings.ContainsRune(" \"'(),;[]{}<>\n", r) }) {
		if h := hostIn(f); h != "" {
			if h != have {
				s.w.connect(val{s: h}, "", nil, true)
			}
			return h
		}
	}
	return have
}

// hostIn gives the host in a constant: a URL, an address, a domain name.
func hostIn(t string) string {
	if len(t) > 300 || strings.ContainsAny(t, " \n") {
		if i := strings.Index(t, "://"); i < 0 || len(t) > 300 {
			return ""
		}
	}
	if i := strings.Index(t, "://"); i > 0 {
		r := t[i+3:]
		if j := strings.IndexAny(r, "/?# \"'"); j >= 0 {
			r = r[:j]
		}
		return r[strings.LastIndexByte(r, '@')+1:]
	}
	h, port, _ := strings.Cut(t, ":")
	if port != "" && !isDigits(port) {
		return ""
	}
	labels := strings.Split(h, ".")
	if len(labels) < 2 {
		return ""
	}
	for _, l := range labels {
		if l == "" || strings.Trim(strings.ToLower(l), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return ""
		}
	}
	last := labels[len(labels)-1]
	if isDigits(last) {
		if len(labels) != 4 {
			return ""
		}
		return t
	}
	switch last {
	case "rb", "pl", "pm", "php", "lua", "tcl", "txt", "csv", "json", "md", "py", "js", "xml", "yml", "yaml", "log", "sh", "html", "css", "so", "conf", "ini", "http", "new", "open", "read":
		return ""
	}
	if len(last) < 2 {
		return ""
	}
	return t
}

// bombs: "fork while fork" and its kin.
func (s *scanner2) bombs() {
	forks, loop := 0, false
	for _, t := range s.t {
		switch t.s {
		case "fork", "pcntl_fork":
			forks++
		case "while", "loop", "until", "for":
			loop = true
		}
	}
	if forks > 0 && loop {
		s.w.emit(cordon.Effect{Kind: cordon.Destroy, Op: "fork_bomb", Target: s.lang})
	}
}

// module is code that an option loads before anything else.
func (w *walker) module(lang, m string) {
	if strings.HasPrefix(m, "/") || strings.HasPrefix(m, ".") {
		w.reads(val{s: m})
	}
}
