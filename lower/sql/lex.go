package sql

import (
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// dialect is one way of cutting text into tokens. Where dialects disagree the
// text is cut in every way that it could be, and the readings are joined.
type dialect uint8

const (
	postgres   dialect = iota // E'…', U&'…', $tag$…$tag$, nested comments, "name"
	mysql                     // '…\'…', "string", `name`, # comment, -- needs a blank, /*! runs
	tsql                      // [name], nested comments, no backslash
	sqlite                    // [name], `name`, "name", flat comments
	plainMySQL                // mysql with ANSI_QUOTES and NO_BACKSLASH_ESCAPES
	oracle                    // q'[…]'
	dialects
)

func (d dialect) String() string {
	return [...]string{"postgres", "mysql", "tsql", "sqlite", "mysql without escapes", "oracle"}[d]
}

type tokenKind uint8

const (
	word   tokenKind = iota // bare word; up holds it in upper case
	name                    // quoted identifier
	text                    // string constant, decoded
	number                  // numeric constant
	param                   // $1, ?, :x, @x
	symbol                  // operator or punctuation, one byte or a known pair
	meta                    // client meta-command, whole line
)

// token is one lexical element.
type token struct {
	text string // decoded: without quotes, escapes resolved
	// entry is what the tables know of a word or a quoted name; mostly nil.
	entry *entry
	kind  tokenKind
	// glued: a comment stands directly between this word and the one before.
	glued bool
}

// is reports whether the token is one of the bare words, given in upper case.
func (t *token) is(words ...string) bool {
	if t.kind != word {
		return false
	}
	for _, w := range words {
		if len(w) == len(t.text) && sameWord(t.text, w) {
			return true
		}
	}
	return false
}

// sameWord compares s with an upper-case word of the same length. Servers
// fold keywords by ASCII alone.
func sameWord(s, upper string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

func (t *token) up() string { return strings.ToUpper(t.text) }

func (t *token) sym(s string) bool { return t.kind == symbol && t.text == s }

// ident reports whether the token can name an object.
func (t *token) ident() bool { return t.kind == word || t.kind == name }

type lexer struct {
	src string
	d   dialect
	i   int
	out []token
	// inVersion: inside MySQL's /*!50001 … */, whose text runs.
	inVersion int
	glued     bool
	lineStart bool
	// cut is where the arguments of a client's command end, 0 for none.
	cut int
	// delimiter is what the mysql client was told to end statements with.
	delimiter string
	// hash: behind a # and a blank, up to the end of the line: a comment in
	// MySQL, an operator in PostgreSQL, which takes no verb there.
	hash   bool
	broken bool // an unterminated string or comment ended the reading
}

// lex cuts src as dialect d does. broken says that a string or a comment was
// not closed; the tokens before it are returned.
func lex(src string, d dialect) (tokens []token, broken bool) {
	l := lexer{src: src, d: d, lineStart: true, out: make([]token, 0, countTokens(src))}
	for l.i < len(src) && !l.broken {
		l.next()
	}
	return l.out, l.broken
}

// countTokens is about how many tokens src has, so that their slice need not
// grow.
func countTokens(src string) int {
	n, inWord := 8, false
	for i := range len(src) {
		switch c := src[i]; {
		case isWordByte(c) || c >= 0x80:
			if !inWord {
				n++
			}
			inWord = true
		default:
			if c > ' ' {
				n++
			}
			inWord = false
		}
	}
	return n
}

func (l *lexer) emit(t token) {
	t.glued = l.glued && t.kind == word
	if l.hash && t.entry != nil && t.entry.call == 0 {
		t.entry = nil
	}
	l.glued, l.lineStart = false, false
	l.out = append(l.out, t)
}

func (l *lexer) at(s string) bool { return strings.HasPrefix(l.src[l.i:], s) }

func (l *lexer) next() {
	if l.cut > 0 && l.i >= l.cut {
		l.cut = 0
		l.emit(token{kind: symbol, text: ";"})
	}
	c := l.src[l.i]
	switch {
	case c == '\n':
		l.i++
		l.glued, l.lineStart, l.hash = false, true, false
	case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == 0:
		l.i++
		l.glued = false
	case l.lineStart && l.clientCommand(c):
		l.clientLine()
	case c == '\\' && l.i+1 < len(l.src):
		l.backslash()
	case l.delimiter != "" && l.at(l.delimiter):
		l.i += len(l.delimiter)
		l.emit(token{kind: symbol, text: ";"})
	case c == '/' && l.lineStart && (l.i+1 == len(l.src) || l.src[l.i+1] == '\n' || l.src[l.i+1] == '\r'):
		l.i++ // SQL*Plus and sqlite3 run what stands before it
		l.emit(token{kind: symbol, text: ";"})
	case c == '-' && l.at("--") && l.dashComment():
	case c == '#' && (l.d == mysql || l.d == plainMySQL):
		l.skipLine()
	case c == '/' && l.at("/*"):
		l.blockComment()
	case c == '*' && l.inVersion > 0 && l.at("*/"):
		l.inVersion--
		l.i += 2
	case c == '\'':
		l.quoted('\'', l.d == mysql, text)
	case c == '"':
		if l.d == mysql {
			l.quoted('"', true, text)
		} else {
			l.quoted('"', false, name)
		}
	case c == '`' && l.d != postgres: // no quote to PostgreSQL
		l.quoted('`', false, name)
	case c == '[' && (l.d == tsql || l.d == sqlite) && l.bracketName():
	case c == '$' && l.dollar():
	case c >= '0' && c <= '9', c == '.' && l.i+1 < len(l.src) && isDigit(l.src[l.i+1]):
		l.number()
	case c >= 0x80 && l.blank():
	case isLetter(c) || c >= 0x80:
		l.word()
	case c == '@' || c == ':' || c == '?' || c == '$':
		l.parameter()
	default:
		l.symbol()
	}
}

func (l *lexer) skipLine() {
	if n := strings.IndexByte(l.src[l.i:], '\n'); n >= 0 {
		l.i += n
	} else {
		l.i = len(l.src)
	}
}

// blank passes a blank beyond ASCII or a mark that shows nothing: some
// servers and clients skip them, the others refuse the statement.
func (l *lexer) blank() bool {
	r, n := utf8.DecodeRuneInString(l.src[l.i:])
	if !invisible(r) {
		return false
	}
	l.i += n
	l.glued = false
	return true
}

func invisible(r rune) bool {
	return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}

// clientCommands are those of mysql, sqlcmd and SQL*Plus that stand for a
// line of their own where a statement would begin.
var clientCommands = sync.OnceValue(func() map[string]bool {
	return words("DELIMITER SOURCE SYSTEM PAGER TEE EDIT HOST SPOOL")
})

func (l *lexer) clientCommand(c byte) bool {
	if n := len(l.out); n > 0 && l.out[n-1].kind != meta && !l.out[n-1].sym(";") {
		return false
	}
	rest := l.src[l.i:]
	switch {
	case c == '!' || c == '@', c == '.' && len(rest) > 1 && isLetter(rest[1]), strings.HasPrefix(rest, ":!!"):
		return true
	case c == ':': // sqlcmd's; psql has variables there
		end := 1
		for end < len(rest) && end < 12 && isLetter(rest[end]) {
			end++
		}
		return metaFiles[strings.ToLower(rest[:end])] != ""
	}
	if !isLetter(c) {
		return false
	}
	end := strings.IndexAny(rest[:min(len(rest), 11)], " \t\n")
	if end < 0 {
		end = len(rest)
	}
	if end <= 9 {
		operand := strings.TrimLeft(rest[end:min(len(rest), end+80)], " \t")
		path := operand != "" && (operand[0] == '/' || operand[0] == '.') && !strings.HasPrefix(operand, "/*")
		return clientCommands()[strings.ToUpper(rest[:end])] || path && strings.EqualFold(rest[:end], "START")
	}
	return false
}

func (l *lexer) dashComment() bool {
	if (l.d == mysql || l.d == plainMySQL) && l.i+2 < len(l.src) && l.src[l.i+2] > ' ' {
		return false
	}
	if n := strings.IndexAny(l.src[l.i:], "\r\n"); n >= 0 && (l.d == postgres || l.d == tsql) {
		l.i += n // a carriage return ends it too
		return true
	}
	l.skipLine()
	return true
}

// clientLine notes a line that some client takes for its own command. For
// the others it is SQL, so that only the command's name is passed.
func (l *lexer) clientLine() {
	start := l.i
	l.skipLine()
	line := strings.TrimSpace(l.src[start:l.i])
	l.emit(token{kind: meta, text: line})
	name, rest, _ := strings.Cut(line, " ")
	if strings.EqualFold(name, "DELIMITER") {
		l.delimiter = strings.TrimSpace(rest)
		return
	}
	l.cut, l.i = l.i, start+len(name)
}

// proseCommands are those of psql whose arguments are never SQL.
var proseCommands = words(`\! \H \HELP \? \ECHO \QECHO \WARN \PROMPT`)

// backslash reads a meta-command of psql, which may stand anywhere outside
// quotes and ends at the next backslash. For other clients the rest of the
// line is SQL, and counts too.
func (l *lexer) backslash() {
	if l.src[l.i+1] <= ' ' {
		l.symbol()
		return
	}
	if l.src[l.i+1] == ';' || l.src[l.i+1] == '\\' || l.src[l.i+1] == 'N' && !(l.i+2 < len(l.src) && isWordByte(l.src[l.i+2])) {
		// A semicolon within one message, psql's separator, MySQL's NULL.
		t := token{kind: symbol, text: ";"}
		if l.src[l.i+1] == 'N' {
			t = token{kind: word, text: "NULL"}
		}
		l.i += 2
		l.emit(t)
		return
	}
	start := l.i
	l.skipLine()
	end := l.i
	name := start + 1
	for name < end && isWordByte(l.src[name]) {
		name++
	}
	if name == start+1 {
		name++
	}
	prose := proseCommands[strings.ToUpper(l.src[start:name])]
	if l.src[start+1] != '!' {
		end = start + 1 + argumentsEnd(l.src[start+1:end])
	}
	l.emit(token{kind: meta, text: strings.TrimSpace(l.src[start:end])})
	l.cut, l.i = end, name
	if prose {
		l.i = end
	}
}

// argumentsEnd finds the backslash outside quotes that ends a command.
func argumentsEnd(s string) int {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == '\\':
			return i
		}
	}
	return len(s)
}

func (l *lexer) blockComment() {
	if (l.d == mysql || l.d == plainMySQL) && (l.at("/*!") || l.at("/*M!")) {
		l.i += strings.IndexByte(l.src[l.i:], '!') + 1
		for l.i < len(l.src) && isDigit(l.src[l.i]) {
			l.i++
		}
		l.inVersion++
		return
	}
	depth, i := 1, l.i+2
	for i < len(l.src) && depth > 0 {
		switch {
		case strings.HasPrefix(l.src[i:], "*/"):
			depth--
			i += 2
		case (l.d == postgres || l.d == tsql) && strings.HasPrefix(l.src[i:], "/*"):
			depth++
			i += 2
		default:
			i++
		}
	}
	// SQLite lets the end of the text close a comment; for the others the
	// text is refused as a whole or from here on.
	l.broken = depth > 0 && l.d != sqlite
	l.glued = !l.glued && l.i > 0 && l.src[l.i-1] > ' ' || l.glued
	l.i = i
}

// quoted reads a quoted run; a doubled quote stands for one.
func (l *lexer) quoted(q byte, backslash bool, kind tokenKind) {
	if end := plainRun(l.src[l.i+1:], q, backslash); end >= 0 {
		t := token{kind: kind, text: l.src[l.i+1 : l.i+1+end]}
		if kind == name {
			t.entry = lookup(t.text)
		}
		l.i += end + 2
		l.emit(t)
		return
	}
	var b strings.Builder
	i := l.i + 1
	for i < len(l.src) {
		c := l.src[i]
		switch {
		case c == '\\' && backslash && i+1 < len(l.src):
			n := unescape(&b, l.src[i:])
			i += n
			continue
		case c == q && i+1 < len(l.src) && l.src[i+1] == q:
			b.WriteByte(q)
			i += 2
			continue
		case c == q:
			l.i = i + 1
			t := token{kind: kind, text: b.String()}
			if kind == name {
				t.entry = lookup(t.text)
			}
			l.emit(t)
			return
		}
		b.WriteByte(c)
		i++
	}
	l.i, l.broken = len(l.src), true
}

// plainRun is the length of a quoted run that needs no decoding, or -1.
func plainRun(s string, q byte, backslash bool) int {
	end := strings.IndexByte(s, q)
	if end < 0 || end+1 < len(s) && s[end+1] == q || backslash && strings.IndexByte(s[:end], '\\') >= 0 {
		return -1
	}
	return end
}

// unescape decodes one backslash escape of E'…' or of MySQL at the start of s
// and returns its length.
func unescape(b *strings.Builder, s string) int {
	switch c := s[1]; c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'Z':
		b.WriteByte(26)
	case 'x':
		if n := digits(s[2:], 2, 16); n > 0 {
			v, _ := strconv.ParseUint(s[2:2+n], 16, 8)
			b.WriteByte(byte(v))
			return 2 + n
		}
		b.WriteByte('x')
	case 'u', 'U':
		width := map[byte]int{'u': 4, 'U': 8}[c]
		if digits(s[2:], width, 16) == width {
			v, _ := strconv.ParseUint(s[2:2+width], 16, 32)
			b.WriteRune(rune(v))
			return 2 + width
		}
		b.WriteByte(c)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		n := digits(s[1:], 3, 8)
		v, _ := strconv.ParseUint(s[1:1+n], 8, 16)
		b.WriteByte(byte(v))
		return 1 + n
	default:
		b.WriteByte(c)
	}
	return 2
}

func digits(s string, most, base int) int {
	n := 0
	for n < len(s) && n < most {
		if _, err := strconv.ParseUint(s[n:n+1], base, 8); err != nil {
			break
		}
		n++
	}
	return n
}

// bracketName reads T-SQL's and SQLite's [name], which may follow a keyword
// at once. What PostgreSQL has as a[1] is a name here.
func (l *lexer) bracketName() bool {
	end := strings.IndexByte(l.src[l.i:], ']')
	for l.d == tsql && end >= 0 && l.i+end+1 < len(l.src) && l.src[l.i+end+1] == ']' { // ]] stands for one
		next := strings.IndexByte(l.src[l.i+end+2:], ']')
		if next < 0 {
			return false
		}
		end += 2 + next
	}
	if end < 0 {
		return false
	}
	inner := l.src[l.i+1 : l.i+end]
	l.emit(token{kind: name, text: inner, entry: lookup(inner)})
	l.i += end + 1
	return true
}

// dollar reads PostgreSQL's $tag$…$tag$.
func (l *lexer) dollar() bool {
	if l.d != postgres {
		return false
	}
	j := l.i + 1
	for j < len(l.src) && ((isWordByte(l.src[j]) || l.src[j] >= 0x80) && l.src[j] != '$') {
		j++
	}
	if j >= len(l.src) || l.src[j] != '$' || isDigit(l.src[l.i+1]) {
		return false
	}
	tag := l.src[l.i : j+1]
	end := strings.Index(l.src[j+1:], tag)
	if end < 0 {
		l.broken, l.i = true, len(l.src)
		return true
	}
	body := l.src[j+1 : j+1+end]
	l.i = j + 1 + end + len(tag)
	l.emit(token{kind: text, text: body})
	return true
}

func (l *lexer) number() {
	start := l.i
	if l.at("0x") || l.at("0X") {
		l.i += 2
		for l.i < len(l.src) && digits(l.src[l.i:], 1, 16) == 1 {
			l.i++
		}
		if b, err := hex.DecodeString(l.src[start+2 : l.i]); err == nil && len(b) > 0 && l.d == mysql {
			l.emit(token{kind: text, text: string(b)})
			return
		}
		l.emit(token{kind: number, text: l.src[start:l.i]})
		return
	}
	for l.i < len(l.src) {
		c := l.src[l.i]
		exp := (c == 'e' || c == 'E') && l.i+1 < len(l.src) &&
			(isDigit(l.src[l.i+1]) || strings.IndexByte("+-", l.src[l.i+1]) >= 0 && l.i+2 < len(l.src) && isDigit(l.src[l.i+2]))
		switch {
		case isDigit(c) || c == '.' || c == '_':
			l.i++
		case exp:
			l.i += 2
		default:
			l.emit(token{kind: number, text: l.src[start:l.i]})
			return
		}
	}
	l.emit(token{kind: number, text: l.src[start:l.i]})
}

// word reads a bare word, or a string with a prefix: E'…', N'…', B'…', X'…',
// U&'…', R'…', and MySQL's _utf8'…'.
func (l *lexer) word() {
	start := l.i
	for l.i < len(l.src) && (isWordByte(l.src[l.i]) || l.src[l.i] >= 0x80) {
		n := 1
		if l.src[l.i] >= 0x80 {
			var r rune
			if r, n = utf8.DecodeRuneInString(l.src[l.i:]); invisible(r) {
				break
			}
		}
		l.i += n
	}
	w := l.src[start:l.i]
	if l.i < len(l.src) && l.src[l.i] == '\'' {
		switch {
		case strings.EqualFold(w, "E") && l.d == postgres:
			l.quoted('\'', true, text)
			return
		case strings.EqualFold(w, "X"):
			l.quoted('\'', false, text)
			l.unhexLast()
			return
		case strings.EqualFold(w, "N"), strings.EqualFold(w, "B"), strings.HasPrefix(w, "_") && l.d == mysql:
			l.quoted('\'', l.d == mysql, text)
			return
		}
	}
	if l.d == oracle && (strings.EqualFold(w, "Q") || strings.EqualFold(w, "NQ")) && l.alternative() {
		return
	}
	if strings.EqualFold(w, "U") && l.at("&'") {
		l.i++
		l.quoted('\'', false, text)
		l.unicodeLast()
		return
	}
	if strings.EqualFold(w, "U") && l.at("&\"") {
		l.i++
		l.quoted('"', false, name)
		l.unicodeLast()
		return
	}
	l.emit(token{kind: word, text: w, entry: lookup(w)})
}

// alternative reads Oracle's q'[…]' behind its prefix.
func (l *lexer) alternative() bool {
	if l.i+1 >= len(l.src) || l.src[l.i] != '\'' || l.src[l.i+1] <= ' ' {
		return false
	}
	last := l.src[l.i+1 : l.i+2]
	if k := strings.Index("[({<", last); k >= 0 {
		last = "])}>"[k : k+1]
	}
	end := strings.Index(l.src[l.i+2:], last+"'")
	if end < 0 {
		return false
	}
	body := l.src[l.i+2 : l.i+2+end]
	l.i += end + 4
	l.emit(token{kind: text, text: body})
	return true
}

func (l *lexer) unhexLast() {
	if n := len(l.out); n > 0 && !l.broken {
		if b, err := hex.DecodeString(l.out[n-1].text); err == nil {
			l.out[n-1].text = string(b)
		}
	}
}

// uescape takes UESCAPE 'c' behind a unicode string, if it stands there.
func (l *lexer) uescape() byte {
	rest := strings.TrimLeft(l.src[l.i:], " \t\r\n")
	if len(rest) < 8 || !strings.EqualFold(rest[:7], "UESCAPE") {
		return '\\'
	}
	c := strings.TrimLeft(rest[7:], " \t\r\n")
	if len(c) < 3 || c[0] != '\'' || c[2] != '\'' {
		return '\\'
	}
	l.i = len(l.src) - len(c) + 3
	return c[1]
}

// unicodeLast decodes U&'\0041\+000041' in the last token.
func (l *lexer) unicodeLast() {
	if len(l.out) == 0 || l.broken {
		return
	}
	escape := l.uescape()
	t := &l.out[len(l.out)-1]
	var b strings.Builder
	for s := t.text; s != ""; {
		width, skip := 4, 1
		if len(s) > 1 && s[0] == escape && s[1] == '+' {
			width, skip = 6, 2
		}
		if s[0] == escape && len(s) >= skip+width && digits(s[skip:], width, 16) == width {
			v, _ := strconv.ParseUint(s[skip:skip+width], 16, 32)
			b.WriteRune(rune(v))
			s = s[skip+width:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	t.text = b.String()
	if t.kind == name {
		t.entry = lookup(t.text)
	}
}

func (l *lexer) parameter() {
	start := l.i
	if l.at("::") || l.at(":=") || l.at("@>") || l.at("@@") || l.at("?|") || l.at("?&") {
		if l.at("@@") && l.i+2 < len(l.src) && isLetter(l.src[l.i+2]) {
			l.i += 2
			l.identTail()
			l.emit(token{kind: param, text: l.src[start:l.i]})
			return
		}
		l.i += 2
		l.emit(token{kind: symbol, text: l.src[start:l.i]})
		return
	}
	l.i++
	l.identTail()
	if l.src[start] == ':' && l.i == start+1 {
		l.emit(token{kind: symbol, text: ":"})
		return
	}
	l.emit(token{kind: param, text: l.src[start:l.i]})
}

func (l *lexer) identTail() {
	for l.i < len(l.src) && isWordByte(l.src[l.i]) {
		l.i++
	}
}

// operators are those of more than one byte, longest first.
var operators = []string{
	"->>", "#>>", "<=>", "!~*", "~~*", "!~~",
	"||", "&&", "<>", "!=", "<=", ">=", "==", "!~", "~*", "~~", "->", "#>", "<@", "<<", ">>", "!<", "!>", "*=", "+=", "-=",
}

func (l *lexer) symbol() {
	n := 1
	switch c := l.src[l.i]; {
	case c == ';':
		l.hash = false
	case c == '#' && l.i+1 < len(l.src) && l.src[l.i+1] <= ' ' && !l.afterNameKeyword():
		l.hash = true
	}
	if c := l.src[l.i]; c != '(' && c != ')' && c != ',' && c != ';' && c != '.' && l.i+1 < len(l.src) && operatorByte(l.src[l.i+1]) {
		for _, op := range operators {
			if l.at(op) {
				n = len(op)
				break
			}
		}
	}
	l.i += n
	l.emit(token{kind: symbol, text: l.src[l.i-n : l.i]})
}

// afterNameKeyword: a # here would be T-SQL's temporary name.
func (l *lexer) afterNameKeyword() bool {
	n := len(l.out)
	return n > 0 && l.out[n-1].is("AS", "FROM", "JOIN", "INTO", "TABLE", "UPDATE", "EXEC")
}

func operatorByte(c byte) bool {
	switch c {
	case '|', '&', '>', '=', '<', '~', '*', '@':
		return true
	}
	return false
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
func isWordByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '$'
}
