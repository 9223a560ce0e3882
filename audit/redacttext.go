package audit

import (
	"encoding/base64"
	"strings"
)

// RedactText puts Mark in the place of what looks like a secret in a text:
// values assigned to, or standing next to, a name that says so; tokens of
// known shape; private keys; passwords in URLs and after the flags of known
// programs. Names, schemes and references such as $TOKEN stay. It takes time
// linear in len(s), and s itself is returned where nothing is found.
//
// Redacting twice is redacting once.
func RedactText(s string) string {
	i := nextTrigger(s, 0)
	if i >= len(s) {
		return s
	}
	sc := scanner{s: s}
	for i < len(s) {
		resume := i + 1
		if t := triggerAt(s, i); t != nil {
			resume = max(resume, sc.try(t, i))
		}
		i = nextTrigger(s, resume)
	}
	return sc.finish()
}

// scanner collects the redacted text.
type scanner struct {
	s    string
	out  []byte
	kept int // s up to here is in out
	seen int // words before here were judged
	hits bool
	// Where the last value ended, for names inside of it: it ends there for
	// them too, and is not read again.
	bare, line extent
	// The program that is being called, as of asked.
	tool  argvKind
	asked int
}

// extent is a stretch of the text that was read up to its end.
type extent struct{ from, to int }

func (e *extent) end(i int, find func(int) int) int {
	if i < e.from || i >= e.to {
		e.from, e.to = i, find(i)
	}
	return e.to
}

func (sc *scanner) cut(from, to int) {
	if from < sc.kept || to <= from || strings.HasPrefix(sc.s[from:], Mark) {
		return
	}
	sc.out = append(append(sc.out, sc.s[sc.kept:from]...), Mark...)
	sc.kept, sc.hits = to, true
}

func (sc *scanner) finish() string {
	if !sc.hits {
		return sc.s
	}
	return string(append(sc.out, sc.s[sc.kept:]...))
}

// try judges a trigger at i, and returns where to go on.
func (sc *scanner) try(t *trigger, i int) int {
	s := sc.s
	from, to := i, i
	switch t.kind {
	case kindWord:
		return sc.word(i)
	case kindToken:
		to = shapeEnd(s, i, t)
	case kindJWT:
		to = jwtEnd(s, i)
	case kindPEM:
		from, to = pemBody(s, i)
	case kindURL:
		from, to = userinfo(s, i+len(t.lit))
	case kindScheme:
		if i > 0 && isNameByte(s[i-1]) {
			return sc.word(i)
		}
		from, to = schemeValue(s, i+len(t.lit), t.lit == "basic ")
		if from >= to {
			return sc.word(i)
		}
	case kindFlag:
		from, to = sc.flagValue(i)
	}
	sc.cut(from, to)
	return to
}

// word judges the name that holds the word at i, and redacts what it names.
func (sc *scanner) word(i int) int {
	s := sc.s
	if i < sc.seen {
		return i + 1
	}
	const reach = 64
	from, to := i, i
	for from > 0 && i-from < reach && isNameByte(s[from-1]) {
		from--
	}
	for to < len(s) && to-i < reach && isNameByte(s[to]) {
		to++
	}
	sc.seen = to
	if to < len(s) && isNameByte(s[to]) {
		return i + 1
	}
	dashes := from
	for from < to && (s[from] == '-' || s[from] == '.' || s[from] == '_') {
		from++
	}
	level := classify(s[from:to])
	if level == plainName {
		return i + 1
	}
	a := assignment{scanner: sc, before: dashes, name: s[from:to], level: level, flag: from > dashes && s[dashes] == '-',
		query: dashes > 0 && (s[dashes-1] == '?' || s[dashes-1] == '&')}
	vf, vt := a.value(to)
	sc.cut(vf, vt)
	return max(i+1, vt)
}

// assignment reads what stands after a name.
type assignment struct {
	*scanner
	name        string
	before      int // where the name starts
	level       nameLevel
	flag, query bool
}

// value returns the bytes to redact, an empty range for none.
func (a *assignment) value(i int) (from, to int) {
	s, start := a.s, i
	i = skip(s, i, "\\\"'])`", 4)
	quotedName := i > start
	i = skip(s, i, " \t", 8)
	sep, n := separator(s, i)
	if sep == 0 && quotedName && a.inPair(i) {
		sep, n = '~', 1
	}
	if sep == 0 {
		return a.adjacent(start)
	}
	spaced := skip(s, i+n, " \t", 8)
	gap := spaced > i+n
	from = skip(s, spaced, "\\", 4)
	if from < len(s) && strings.IndexByte("\"'`", s[from]) >= 0 {
		if sep == ':' && !gap && closesQuote(s, from) {
			return 0, 0
		}
		level := a.level
		if sep == '~' && lastWord(a.name) == "key" {
			level = doubtful // if key == "Enter"
		}
		from, to = quoted(s, from)
		if level == doubtful && !looksRandom(s[from:to]) || isReference(s[from:to]) {
			return 0, 0
		}
		return from, to
	}
	if sep == '~' { // a comparison says something about a literal only
		return 0, 0
	}
	from = spaced
	if isHeader(a.name) && sep == ':' {
		return a.headerValue(from)
	}
	to = a.bareEnd(from)
	if to < len(s) && s[to] == ' ' && isScheme(s[from:to]) {
		gap = false
		from = skip(s, to, " ", 8)
		to = a.bareEnd(from)
	}
	v := s[from:to]
	switch {
	case v == "" || isReference(v) || isCallee(s, v, to) || isTypeName(v):
		return 0, 0
	case a.level == doubtful && !looksRandom(v), gap && isMember(v):
		return 0, 0
	case sep == ':' && gap && !quotedName && !a.looksMeant(v):
		return 0, 0
	}
	return from, to
}

// inPair: the name is the first of a pair such as ("password", "x").
func (a *assignment) inPair(i int) bool {
	b := a.before - 1
	if i >= len(a.s) || a.s[i] != ',' || b < 1 || strings.IndexByte("\"'", a.s[b]) < 0 {
		return false
	}
	for b--; b > 0 && a.s[b] == '\\'; b-- {
	}
	return a.s[b] == '(' || a.s[b] == '['
}

// looksMeant tells "password: hunter2" from "missing token: expected …" and
// from "credentials: /home/…", in prose.
func (a *assignment) looksMeant(v string) bool {
	if isPath(v) {
		return false
	}
	switch lastWord(a.name) {
	case "key", "token", "auth", "pass", "oauth", "sid", "otp", "bearer", "credentials", "cookie", "cookies":
		return len(v) >= 20 || hasDigit(v)
	}
	return true
}

// adjacent redacts the word after a name where it looks like a secret:
// "--password x", "secret_key wJalr…", "password is hunter2".
func (a *assignment) adjacent(i int) (from, to int) {
	s := a.s
	from = skip(s, i, " \t", 8)
	if from == i {
		return 0, 0
	}
	if strings.HasPrefix(s[from:], "is ") {
		from += len("is ")
	}
	if from < len(s) && (s[from] == '"' || s[from] == '\'') {
		from, to = quoted(s, from)
	} else {
		to = a.bareEnd(from)
	}
	v := s[from:min(to, from+512)]
	switch {
	case v == "" || v[0] == '-' || isReference(v) || isTypeName(v):
		return 0, 0
	case a.flag && a.level == secretName && !strings.HasSuffix(a.name, "-key"),
		looksRandom(v), len(v) >= 6 && hasDigit(v) && hasLetter(v) && a.level == secretName && !isPath(v):
		return from, to
	}
	return 0, 0
}

// separator is '=' or ':' for an assignment, '~' for a comparison, 0 for
// neither; n is its length.
func separator(s string, i int) (sep byte, n int) {
	for _, o := range [...]struct {
		text string
		sep  byte
	}{{"===", '~'}, {"==", '~'}, {"!==", '~'}, {"!=", '~'}, {"=>", '='}, {":=", '='}, {"=", '='}, {":", ':'}, {"%3D", '='}} {
		if strings.HasPrefix(s[i:], o.text) {
			return o.sep, len(o.text)
		}
	}
	return 0, 0
}

// quoted is the inside of the string literal that starts at i, over escapes;
// the quote may itself be escaped, in JSON within a string.
func quoted(s string, i int) (from, to int) {
	q := s[i]
	for from = i + 1; i < len(s)-1; {
		i++
		switch s[i] {
		case q:
			return from, i
		case '\\':
			if i+1 < len(s) && s[i+1] == q && from >= 2 && s[from-2] == '\\' {
				return from, i
			}
			i++
		case '\n':
			return from, i
		}
	}
	return from, len(s)
}

// bareEnd is the end of an unquoted value; that of a query ends at a '#' too.
func (a *assignment) bareEnd(i int) int {
	to := a.bare.end(i, func(i int) int { return bareEnd(a.s, i) })
	if a.query {
		if k := strings.IndexByte(a.s[i:min(to, i+4096)], '#'); k >= 0 {
			return i + k
		}
	}
	return to
}

func bareEnd(s string, i int) int {
	for ; i < len(s); i++ {
		if strings.HasPrefix(s[i:], Mark) {
			i += len(Mark) - 1
			continue
		}
		switch s[i] {
		case ' ', '\t', '\n', '\r', '"', '\'', '`', '&', '<', '>', '|', ';', ')', '}', ']', ',':
			return i
		case '\\':
			if i+1 < len(s) && (s[i+1] == 'n' || s[i+1] == '"') {
				return i
			}
		}
	}
	return i
}

// isScheme: what follows is the secret, this is how it is sent.
func isScheme(v string) bool { return len(v) <= 9 && schemes[strings.ToLower(v)] }

var schemes = set("bearer basic token digest negotiate apikey ntlm")

func isHeader(name string) bool {
	switch lastWord(name) {
	case "authorization", "cookie":
		return true
	}
	return false
}

// headerValue is the rest of a header's line, less the scheme.
func (a *assignment) headerValue(i int) (from, to int) {
	s := a.s
	to = a.line.end(i, func(to int) int {
		for to < len(s) && strings.IndexByte("\r\n\"'`", s[to]) < 0 && !strings.HasPrefix(s[to:], `\n`) {
			to++
		}
		return to
	})
	from = i
	if sp := strings.IndexByte(s[i:min(to, i+24)], ' '); sp > 0 && !strings.ContainsAny(s[i:i+sp], "=:;,$") {
		from = skip(s, i+sp, " ", 8)
	}
	if strings.TrimSpace(s[from:to]) == "" {
		from = i
	}
	if v := s[from:to]; isReference(v) || isPath(v) {
		return 0, 0
	}
	return from, to
}

// schemeValue is what follows "Bearer " or "Basic " outside of a header.
func schemeValue(s string, i int, basic bool) (from, to int) {
	from = skip(s, i, " ", 4)
	to = tokenEnd(s, from)
	v := s[from:to]
	if basic {
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v[:min(len(v), 512)], "="))
		if err != nil || !strings.Contains(string(b), ":") {
			return i, i
		}
		return from, to
	}
	if len(v) < 6 || !hasDigit(v) && len(v) < 20 {
		return i, i
	}
	return from, to
}

// shapeEnd is the end of a token that begins with t at i, or i. A token that
// begins inside of another is none, which also keeps the time linear.
func shapeEnd(s string, i int, t *trigger) int {
	if i > 0 && isNameByte(s[i-1]) {
		return i
	}
	start := i + len(t.lit)
	to := start
	for to < len(s) && isNameByte(s[to]) {
		to++
	}
	if to-start < t.min || t.digits && !hasDigit(s[start:to]) {
		return i
	}
	return to
}

// jwtEnd is the end of header.payload[.signature] at i, or i.
func jwtEnd(s string, i int) int {
	if i > 0 && isNameByte(s[i-1]) {
		return i
	}
	end, parts := i, 0
	for parts < 3 {
		start := end
		for end < len(s) && (isAlnum(s[end]) || s[end] == '_' || s[end] == '-') {
			end++
		}
		if parts < 2 && end-start < 10 {
			return i
		}
		parts++
		if end >= len(s) || s[end] != '.' {
			break
		}
		end++
	}
	if parts < 2 {
		return i
	}
	return end
}

// pemBody is what stands between the lines of a private key. A key without
// an end takes the rest of the text.
func pemBody(s string, i int) (from, to int) {
	line := s[i:min(len(s), i+80)]
	k := strings.Index(line, "PRIVATE KEY")
	if k < 0 {
		return i, i
	}
	from = i + k + len("PRIVATE KEY")
	for from < len(s) && from < i+100 && (s[from] == '-' || strings.HasPrefix(s[from:], " BLOCK")) {
		if s[from] == '-' {
			from++
		} else {
			from += len(" BLOCK")
		}
	}
	end := strings.Index(s[from:], "-----END")
	if end < 0 {
		return from, len(s)
	}
	return from, from + end
}

// userinfo is the secret part of a URL's userinfo; i is after "://". A
// password with a '/' in it is found too, where its beginning is no port.
func userinfo(s string, i int) (from, to int) {
	const reach = 256
	at, colon, done := -1, -1, false
	end := min(len(s), i+reach)
	for j := i; j < end && !done; j++ {
		switch s[j] {
		case '@':
			at = j
		case ':':
			if colon < 0 {
				colon = j
			}
		case '/', '?', '#':
			done = at >= 0 || colon < 0 || isPort(s[colon+1:j])
		case ' ', '\t', '\n', '\r', '"', '\'', '`', '<', '>', '\\', ',', ';':
			done = true
		}
	}
	switch {
	case at < 0:
		return i, i
	case colon >= 0 && colon < at:
		if isReference(s[colon+1 : at]) {
			return at, at
		}
		return colon + 1, at
	case at-i >= 16 && hasDigit(s[i:at]):
		return i, at
	}
	return i, i
}

func isPort(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return len(s) <= 5
}

// flagValue reads " -p" and " -u" and " -a" of the programs that take a
// secret there; i is at the blank before the flag.
func (sc *scanner) flagValue(i int) (from, to int) {
	s, tool := sc.s, sc.commandAt(i)
	v := i + 3
	spaced := skip(s, v, " ", 4)
	switch flag := s[i+2]; {
	case tool == argvMySQL && flag == 'p':
		spaced = v // "-p x" names a database
	case tool == argvCurl && (flag == 'u' || flag == 'U'), tool == argvSSHPass && flag == 'p',
		tool == argvLogin && flag == 'p', tool == argvRedis && flag == 'a':
	default:
		return i, i
	}
	from = skip(s, spaced, "\"'", 1)
	to = bareEnd(s, from)
	if isReference(s[from:to]) {
		return i, i
	}
	if tool == argvCurl {
		if c := strings.IndexByte(s[from:to], ':'); c >= 0 {
			from += c + 1
		}
	}
	return from, to
}

// commandAt is the program whose flag stands at i: the last of them that is
// named before it in the same command. It reads on from where it was asked
// before.
func (sc *scanner) commandAt(i int) argvKind {
	piece := sc.s[min(sc.asked, i):i]
	sc.asked = i
	if k := strings.LastIndexAny(piece, ";|&\n"); k >= 0 {
		sc.tool, piece = argvNone, piece[k+1:]
	}
	for f := range strings.FieldsSeq(piece) {
		if t := argvTool(strings.Trim(f, "\"'")); t != argvNone {
			sc.tool = t
		}
	}
	return sc.tool
}

func skip(s string, i int, set string, most int) int {
	for n := 0; n < most && i < len(s) && strings.IndexByte(set, s[i]) >= 0; n++ {
		i++
	}
	return i
}

// isReference: the value names where the secret is, and is none.
func isReference(s string) bool {
	if len(s) < 2 || len(s) > 512 {
		return false
	}
	if s == Mark {
		return true
	}
	for _, p := range [...]string{"process.env", "os.environ", "os.getenv", "$(", "${{", "import.meta.env"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	switch {
	case s[0] == '<' && s[len(s)-1] == '>':
		return isWord(s[1:len(s)-1], "-_ .")
	case s[0] != '$':
		return false
	case s[1] == '{' && s[len(s)-1] == '}':
		return isWord(s[2:len(s)-1], "_")
	}
	return isWord(s[1:], "_") && !isDigit(s[1])
}

func isWord(s, extra string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte(extra, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// isCallee: the value is the name of a function that is called.
func isCallee(s, v string, end int) bool {
	if p := strings.IndexByte(v[:min(len(v), 128)], '('); p > 0 {
		return isWord(v[:p], "_.")
	}
	return end < len(s) && s[end] == '(' && len(v) <= 128 && isWord(v, "_.")
}

// isMember: code that names where the value comes from, "event.key".
func isMember(v string) bool {
	return len(v) <= 128 && strings.IndexByte(v, '.') > 0 && !hasDigit(v) && isWord(v, "_.") && v[len(v)-1] != '.'
}

// closesQuote tells the quote after "token:" in rg "token:" src from one
// that opens a value.
func closesQuote(s string, i int) bool {
	return i+1 >= len(s) || strings.IndexByte(" \t\n,)]}", s[i+1]) >= 0
}

var typeNames = set("string str number int integer bool boolean null none nil true false undefined any object bytes " +
	"text varchar optional required")

func isTypeName(v string) bool { return len(v) <= 9 && typeNames[strings.ToLower(v)] }

func isPath(v string) bool {
	return strings.HasPrefix(v, "/") || strings.HasPrefix(v, "~/") || strings.HasPrefix(v, "./")
}

func lastWord(name string) string {
	return strings.ToLower(name[strings.LastIndexAny(name, "-_.")+1:])
}

// looksRandom: long, of the letters that keys are made of, digits and
// letters mixed, and no path.
func looksRandom(s string) bool {
	if len(s) < 16 || isPath(s) {
		return false
	}
	s = s[:min(len(s), 128)]
	return tokenEnd(s, 0) == len(s) && hasDigit(s) && hasLetter(s)
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

func hasLetter(s string) bool {
	for i := range len(s) {
		if isUpper(s[i]) || isLower(s[i]) {
			return true
		}
	}
	return false
}

func tokenEnd(s string, i int) int {
	for i < len(s) && isTokenByte(s[i]) {
		i++
	}
	return i
}

func isTokenByte(c byte) bool {
	return isAlnum(c) || strings.IndexByte("_-.~+/=%:", c) >= 0
}

func isNameByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }
