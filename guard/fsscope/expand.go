package fsscope

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxReadings bounds how many ways one target is read; more is a finding.
const maxReadings = 32

// reading is one way in which a tool may take a target.
type reading struct {
	text string
	// expanded: something in it was replaced that most tools replace, so
	// that this is what the target means first of all.
	expanded bool
}

// readings are all ways in which a target may be taken, and what was found on
// the way there.
type readings struct {
	list []reading
	// remote names another machine; unresolved what could not be expanded.
	remote, unresolved string
	tooMany            bool
}

// plain bytes mean the same to every tool.
var plain = func() (t [256]bool) {
	for c := 0x21; c < 0x7f; c++ {
		t[c] = strings.IndexByte("~$%\\`\"':<", byte(c)) < 0
	}
	return t
}()

func isPlain(s string) bool {
	for i := 0; i < len(s); i++ {
		if !plain[s[i]] {
			return false
		}
	}
	return true
}

func (r *readings) add(text string, expanded bool) {
	for i := range r.list {
		if r.list[i].text == text {
			r.list[i].expanded = r.list[i].expanded || expanded
			return
		}
	}
	if len(r.list) == maxReadings {
		r.tooMany = true
		return
	}
	r.list = append(r.list, reading{text, expanded})
}

// read fills the list: each way of reading is applied to what the others
// gave, so that "%7E%2F.ssh" becomes "~/.ssh" becomes a home's.
func (s *Scope) read(target, dir string) *readings {
	r := &readings{list: make([]reading, 0, 8)}
	r.add(target, false)
	for i := 0; i < len(r.list) && !r.tooMany; i++ {
		t := r.list[i].text
		if isPlain(t) {
			continue
		}
		was := r.list[i].expanded
		r.addText(t, was)
		r.addURI(t)
		if strings.HasPrefix(t, "~") {
			s.addTilde(r, t, dir)
		}
		if strings.IndexByte(t, '$') >= 0 || strings.IndexByte(t, '`') >= 0 {
			s.addVariables(r, t, dir)
		}
		if d, ok := percentVariables(t, func(name string) (string, bool) { return s.variable(name, dir) }); ok {
			r.add(d, true)
		} else if d != "" {
			r.unresolved = d
		}
	}
	return r
}

// addText adds what blanks, quotes, percent forms, backslashes and
// look-alike characters may stand for.
func (r *readings) addText(t string, was bool) {
	if u := strings.TrimFunc(t, func(c rune) bool { return unicode.IsSpace(c) || invisible(c) || unicode.IsControl(c) }); u != t && u != "" {
		r.add(u, was)
	}
	if n := len(t); n > 2 && (t[0] == '"' || t[0] == '\'' || t[0] == '`') && t[n-1] == t[0] || n > 2 && t[0] == '<' && t[n-1] == '>' {
		r.add(t[1:n-1], was)
	}
	if d, ok := percentDecode(t); ok {
		r.add(d, was)
	}
	if strings.IndexByte(t, '\\') >= 0 {
		if strings.HasPrefix(t, `\\`) {
			r.remote = t
		}
		r.add(strings.ReplaceAll(t, `\`, "/"), was)
	}
	if len(t) > 2 && t[1] == ':' && t[2] == '/' && unicode.IsLetter(rune(t[0])) {
		r.add(t[2:], was)
	}
	if !isASCII(t) {
		r.add(foldText(t), was)
		r.add(overlong(t), was)
	}
}

// networkSchemes name files on other machines.
var networkSchemes = [...]string{"smb", "cifs", "nfs", "afp", "ftp", "ftps", "sftp", "scp", "ssh", "dav", "davs", "webdav", "http", "https", "rsync", "gs", "s3"}

// addURI reads "file:" in all its forms, and other schemes as far as they
// name a path of this machine or another machine.
func (r *readings) addURI(t string) {
	i := strings.IndexByte(t, ':')
	if i < 2 || strings.IndexByte(t[:i], '/') >= 0 {
		return
	}
	scheme, rest := strings.ToLower(t[:i]), t[i+1:]
	if scheme != "file" && scheme != "url" {
		host, ok := strings.CutPrefix(rest, "//")
		if !ok {
			if strings.HasPrefix(rest, "/") { // "unix:/run/x.sock"
				r.add(rest, false)
			}
			return
		}
		for _, n := range networkSchemes {
			if scheme == n {
				r.remote = t
				return
			}
		}
		if j := strings.IndexByte(host, '/'); j >= 0 {
			r.add(host[j:], false)
		}
		return
	}
	p := rest
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		j := strings.IndexByte(after, '/')
		if j < 0 {
			j = len(after)
		}
		switch host := strings.ToLower(after[:j]); host {
		case "", "localhost", "127.0.0.1", "[::1]", ".":
			p = after[j:]
		case "~", "$home", "${home}":
			p = after
		default:
			r.remote = t
			p = after[j:]
		}
	}
	if p == "" {
		p = "/"
	}
	r.add(p, true)
	if j := strings.IndexAny(p, "?#"); j > 0 {
		r.add(p[:j], true)
	}
}

// percentDecode decodes one layer of %XX and %uXXXX.
func percentDecode(t string) (string, bool) {
	if strings.IndexByte(t, '%') < 0 {
		return t, false
	}
	var b strings.Builder
	found := false
	for i := 0; i < len(t); i++ {
		if t[i] == '%' {
			if i+5 < len(t) && lower(t[i+1]) == 'u' {
				if v, ok := hex(t[i+2 : i+6]); ok {
					b.WriteRune(rune(v))
					i += 5
					found = true
					continue
				}
			}
			if i+2 < len(t) {
				if v, ok := hex(t[i+1 : i+3]); ok {
					b.WriteByte(byte(v))
					i += 2
					found = true
					continue
				}
			}
		}
		b.WriteByte(t[i])
	}
	return b.String(), found
}

func hex(s string) (v int, ok bool) {
	for i := 0; i < len(s); i++ {
		c := lower(s[i])
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | int(c-'0')
		case 'a' <= c && c <= 'f':
			v = v<<4 | int(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// overlong rewrites the forbidden forms of ASCII in two to four bytes (C0 AE
// for '.') that careless decoders take.
func overlong(t string) string {
	if utf8.ValidString(t) {
		return t
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		switch {
		case (t[i] == 0xc0 || t[i] == 0xc1) && i+1 < len(t):
			b.WriteByte(t[i]&1<<6 | t[i+1]&0x3f)
			i++
		case t[i] == 0xe0 && i+2 < len(t) && t[i+1]&0xfe == 0x80:
			b.WriteByte(t[i+1]&1<<6 | t[i+2]&0x3f)
			i += 2
		case t[i] == 0xf0 && i+3 < len(t) && t[i+1] == 0x80 && t[i+2]&0xfe == 0x80:
			b.WriteByte(t[i+2]&1<<6 | t[i+3]&0x3f)
			i += 3
		default:
			b.WriteByte(t[i])
		}
	}
	return b.String()
}

// addTilde expands "~", "~/x", "~user/x", "~+" and "~-".
func (s *Scope) addTilde(r *readings, t, dir string) {
	name, rest, slash := strings.Cut(t[1:], "/")
	if slash {
		rest = "/" + rest
	}
	switch {
	case name == "":
		r.add(s.base.home.lexical+rest, true)
	case name == "+":
		r.add(dir+rest, true)
	case name == "-" || isDigits(name):
		r.unresolved = "~" + name
	case !isUserName(name):
	case name == s.base.user && name != "":
		r.add(s.base.home.lexical+rest, true)
	default:
		home, known := s.base.users[name]
		if !known && (strings.IndexByte(name, '.') >= 0 && !slash) {
			return // "~notes.txt" is a name
		}
		if !known {
			home = "/home/" + name
		}
		r.add(home+rest, true)
	}
}

func isUserName(n string) bool {
	for i := 0; i < len(n); i++ {
		c := lower(n[i])
		if !('a' <= c && c <= 'z' || c == '_' || i > 0 && ('0' <= c && c <= '9' || c == '-' || c == '.')) {
			return false
		}
	}
	return n != "" && len(n) <= 64
}

func isDigits(n string) bool {
	return n != "" && strings.Trim(n, "0123456789") == ""
}

// variable is the value of a variable that the run's configuration tells.
func (s *Scope) variable(name, dir string) (string, bool) {
	home := s.base.home.lexical
	switch name {
	case "HOME", "USERPROFILE", "userHome", "env:HOME", "home":
		return home, true
	case "PWD":
		return dir, true
	case "USER", "LOGNAME", "USERNAME":
		return s.base.user, s.base.user != ""
	case "TMPDIR", "TMP", "TEMP":
		return "/tmp", true
	case "XDG_CONFIG_HOME", "APPDATA":
		return home + "/.config", true
	case "XDG_DATA_HOME", "LOCALAPPDATA":
		return home + "/.local/share", true
	case "XDG_STATE_HOME":
		return home + "/.local/state", true
	case "XDG_CACHE_HOME":
		return home + "/.cache", true
	case "XDG_RUNTIME_DIR":
		return "/run/user", true
	case "WORKSPACE", "workspaceFolder", "workspaceRoot", "CLAUDE_PROJECT_DIR":
		return s.base.workspace.lexical, true
	}
	return "", false
}

// addVariables expands $NAME and ${NAME…}. A default is one reading, the
// value another. An unknown name in lower case is what tools leave as it
// stands ("$ref.json") or drop; one in upper case, or in braces, could be
// anything.
func (s *Scope) addVariables(r *readings, t, dir string) {
	t = strings.ReplaceAll(t, "$env:", "$") // PowerShell
	for _, byDefault := range [...]bool{false, true} {
		out, unresolved := s.expandVariables(t, dir, byDefault)
		if unresolved != "" {
			r.unresolved = unresolved
		}
		if out != t && out != "" {
			r.add(out, true)
		}
	}
	if strings.Contains(t, "$(") || strings.Count(t, "`") > 1 {
		r.unresolved = "a command substitution"
	}
}

func (s *Scope) expandVariables(t, dir string, byDefault bool) (out, unresolved string) {
	var b strings.Builder
	for i := 0; i < len(t); {
		if t[i] != '$' || i+1 == len(t) {
			b.WriteByte(t[i])
			i++
			continue
		}
		if t[i+1] == '{' {
			end := strings.IndexByte(t[i:], '}')
			if end < 0 {
				return b.String() + t[i:], "an open brace"
			}
			v, why := s.braced(t[i+2:i+end], dir, byDefault)
			b.WriteString(v)
			if why != "" {
				unresolved = why
			}
			i += end + 1
			continue
		}
		n := nameLen(t[i+1:])
		name := t[i+1 : i+1+n]
		i += 1 + n
		v, known := s.variable(name, dir)
		switch {
		case n == 0:
			b.WriteByte('$')
		case known:
			b.WriteString(v)
		case len(name) > 1 && name == strings.ToUpper(name):
			unresolved = "$" + name
		}
	}
	return b.String(), unresolved
}

// braced expands what stands in ${…}.
func (s *Scope) braced(inner, dir string, byDefault bool) (value, unresolved string) {
	n := nameLen(inner)
	name, op := inner[:n], inner[n:]
	if strings.HasPrefix(op, ":HOME") || op == ":HOME" {
		name, op = "HOME", ""
	}
	v, known := s.variable(name, dir)
	fallback := ""
	for _, sep := range [...]string{":-", ":=", ":+", "-", "=", "+"} {
		if d, ok := strings.CutPrefix(op, sep); ok {
			fallback, op = d, ""
			if byDefault {
				return fallback, ""
			}
			break
		}
	}
	if op != "" || !known {
		return v, "${" + inner + "}"
	}
	return v, ""
}

// nameLen is the length of the variable's name that s starts with.
func nameLen(s string) int {
	i := 0
	for i < len(s) && (lower(s[i]) >= 'a' && lower(s[i]) <= 'z' || s[i] == '_' || i > 0 && s[i] >= '0' && s[i] <= '9') {
		i++
	}
	return i
}

// percentVariables expands %NAME% as Windows does. Where a name is unknown,
// ok is false and out is that name.
func percentVariables(t string, value func(string) (string, bool)) (out string, ok bool) {
	i := strings.IndexByte(t, '%')
	if i < 0 {
		return "", false
	}
	j := strings.IndexByte(t[i+1:], '%')
	if j < 2 || nameLen(t[i+1:i+1+j]) != j || t[i+1:i+1+j] != strings.ToUpper(t[i+1:i+1+j]) {
		return "", false
	}
	name := t[i+1 : i+1+j]
	if v, known := value(name); known {
		return t[:i] + v + t[i+j+2:], true
	}
	if _, escaped := hex(name[:2]); escaped {
		return "", false
	}
	return "%" + name + "%", false
}
