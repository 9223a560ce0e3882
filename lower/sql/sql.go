// Package sql reads SQL as the servers that could get it would, and lowers it
// to effects: what is read, what is changed and by which filter, what is
// dropped, who is granted what, which files, programs and hosts the server
// would reach for.
//
// No parser covers PostgreSQL, MySQL, SQLite and T-SQL, and the reader is not
// told which server it will be, so the text is cut into tokens in the way of
// each dialect whose quoting makes a difference, and what any of them would
// run counts. Keywords count only outside strings, comments and quoted names.
// Text that is itself executed (EXECUTE, DO, PREPARE, sp_executesql) is read
// in turn where it is constant, and is opaque where it is not.
//
// Whether a change is held to some rows is not told by the shape of its
// condition: the condition is computed for some hundreds of made-up rows, with
// values by the names of the columns and around the constants that they are
// compared with. If all pass it is no filter; if only rows without NULL,
// negative numbers and broken references pass, it is doubtful.
//
// What it does not stop: a change whose filter is real but wider than it
// looks (an inequality with a value that no row has, a function of one's own
// that is always true); functions, triggers and views that stand in the database already and
// do something else than their name says; what a table holds being sent
// elsewhere by the client that reads it.
package sql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// MaxSize and MaxDepth bound what is read: bytes of one text, and how deep
// dynamic statements are followed.
const (
	MaxSize  = 256 << 10
	MaxDepth = 8
)

// maxWork bounds how many tokens the rules may look at in all, since each
// keyword of change scans what follows it.
const maxWork = 1 << 20

// Env is what the reader needs to know of its surroundings.
type Env struct {
	// Dir is the directory that relative paths of client commands (\i, .read)
	// start from.
	Dir string
	// Code reads another language: the shell commands of client
	// meta-commands (\! …, .shell …). May be nil.
	Code func(ctx context.Context, lang, src, dir string) []cordon.Effect
}

// Lower reads src. Each statement gives at least one effect, so that an empty
// list means that there was no statement.
func Lower(ctx context.Context, src string, env Env) []cordon.Effect {
	if len(src) > MaxSize {
		return []cordon.Effect{{Kind: cordon.Opaque, Origin: cordon.OriginLiteral, Text: src[:1024],
			Reason: fmt.Sprintf("SQL of %d bytes is more than the %d that are read", len(src), MaxSize)}}
	}
	r := &reader{ctx: ctx, env: env, seen: map[effectKey]bool{}, work: maxWork, patterns: 200}
	r.text(src, 0)
	return r.effects
}

type reader struct {
	ctx     context.Context
	env     Env
	effects []cordon.Effect
	seen    map[effectKey]bool
	// vars are MySQL's @variables and T-SQL's locals with a constant value.
	vars map[string]string
	// work is how many tokens the rules may still look at.
	work int
	// startsOnly: keywords count at the start of a statement only.
	startsOnly bool
	// patterns is how many regular expressions may still be compiled.
	patterns int
	// bars: || and && are OR and AND.
	bars bool
	// inDatabase is what the last USE named, in upper case.
	inDatabase string
}

// effectKey is by what two effects are the same.
type effectKey struct {
	kind               cordon.Kind
	doubtful           bool
	op, target, reason string
}

func (r *reader) add(e cordon.Effect) {
	key := effectKey{e.Kind, e.Doubtful, e.Op, e.Target, e.Reason}
	if r.seen[key] {
		return
	}
	r.seen[key] = true
	r.effects = append(r.effects, e)
}

func (r *reader) opaque(reason, text string) {
	r.add(cordon.Effect{Kind: cordon.Opaque, Origin: cordon.OriginLiteral, Reason: reason, Text: text})
}

// text reads one program text in every dialect that would cut it differently.
func (r *reader) text(src string, depth int) {
	if depth > MaxDepth {
		r.opaque(fmt.Sprintf("dynamic SQL nested deeper than %d", MaxDepth), "")
		return
	}
	whole := false
	var readings [][]token
	bars := strings.Contains(src, "||") || strings.Contains(src, "&&")
	for _, d := range dialectsOf(src) {
		if r.ctx.Err() != nil {
			r.opaque("the time for reading it ran out", "")
			return
		}
		tokens, broken := lex(src, d)
		whole = whole || !broken
		if !bars && !broken && slices.ContainsFunc(readings, func(r []token) bool { return slices.EqualFunc(r, tokens, sameToken) }) {
			continue // as a dialect before cut it
		}
		if !broken {
			readings = append(readings, tokens)
		}
		// Outside PostgreSQL a $ is a letter: what was a quoted body there is
		// bare text here, in which only the start of a statement counts.
		r.startsOnly = d != postgres && strings.Contains(src, "$")
		r.bars = d == mysql || d == plainMySQL
		r.program(tokens, broken, depth)
	}
	if !whole {
		r.opaque("a string or comment is not closed", "")
	}
}

func sameToken(a, b token) bool { return a.kind == b.kind && a.text == b.text && a.glued == b.glued }

// dialectsOf names the dialects whose cutting of src could differ.
func dialectsOf(src string) []dialect {
	all := []dialect{postgres}
	if strings.Contains(src, `\`) && (strings.Contains(src, "/*!") || strings.Contains(src, "#")) {
		all = append(all, plainMySQL)
	}
	if strings.ContainsAny(src, "\\#\"`") || strings.Contains(src, "--") || strings.Contains(src, "/*") || strings.Contains(src, "0x") || strings.Contains(src, "||") || strings.Contains(src, "&&") {
		all = append(all, mysql)
	}
	if strings.Contains(src, "q'") || strings.Contains(src, "Q'") {
		all = append(all, oracle)
	}
	if strings.ContainsAny(src, "[$`") || strings.Contains(src, "/*") || strings.Contains(src, `\'`) {
		all = append(all, tsql, sqlite)
	}
	return all
}

// program splits tokens into statements. Where the reading broke off, the
// statements that were complete before count: some clients send one by one.
func (r *reader) program(tokens []token, broken bool, depth int) {
	start := 0
	for i := range tokens {
		if tokens[i].sym(";") || tokens[i].kind == meta {
			r.statement(tokens[start:i], depth)
			if tokens[i].kind == meta {
				r.meta(tokens[i].text)
			}
			start = i + 1
		}
	}
	if !broken {
		r.statement(tokens[start:], depth)
	}
}

func (r *reader) statement(t []token, depth int) {
	for len(t) > 0 && t[0].is("GO", "BEGIN") && len(t) > 1 && t[1].kind == word && !t[1].is("TRANSACTION", "TRAN", "WORK", "ISOLATION", "READ", "DEFERRED", "IMMEDIATE", "EXCLUSIVE") {
		t = t[1:]
	}
	if len(t) == 0 {
		return
	}
	if t[0].is("USE") && len(t) > 1 {
		r.inDatabase = t[1].up()
	}
	if t[0].kind == param && t[0].text[0] == ':' {
		r.opaque("the text of a client's variable is executed", "")
	}
	before := len(r.effects)
	s := &stmt{reader: r, t: t, depth: depth}
	s.judge()
	if len(r.effects) == before {
		s.ordinary()
	}
}

// stmt is one statement being judged.
type stmt struct {
	*reader
	t     []token
	depth int
}

// tok returns token i, or an empty symbol past the ends.
func (s *stmt) tok(i int) *token {
	if i < 0 || i >= len(s.t) {
		return &nowhere
	}
	return &s.t[i]
}

// nowhere is what stands before and behind all tokens. It is never written.
var nowhere = token{kind: symbol}

// judge looks at every word of the statement: keywords of change stand at its
// start, but also behind WITH, EXPLAIN ANALYZE, PREPARE … AS, in function
// bodies, and, in T-SQL, simply after another statement.
func (s *stmt) judge() {
	planned := s.planned()
	for i := range s.t {
		t := &s.t[i]
		if t.glued {
			s.split(i)
		}
		if t.entry == nil {
			continue
		}
		s.catalogue(i)
		if rule := t.entry.rule; rule != nil && t.kind == word && !(planned && t.is("DELETE", "UPDATE", "INSERT", "MERGE", "REPLACE")) && (i == 0 || !s.startsOnly) {
			if !s.afford(i) {
				return
			}
			rule(s, i)
		}
		if s.tok(i + 1).sym("(") {
			if !s.afford(i) {
				return
			}
			s.call(i)
		}
	}
	s.bareProcedure()
}

// planned reports whether the statement is only explained: no server runs
// what stands behind EXPLAIN without ANALYZE.
func (s *stmt) planned() bool {
	if !s.tok(0).is("EXPLAIN", "DESCRIBE", "DESC") {
		return false
	}
	for i := 1; i < len(s.t); i++ {
		t := &s.t[i]
		if t.is("ANALYZE", "ANALYSE") {
			return false
		}
		if t.is("SELECT", "DELETE", "UPDATE", "INSERT", "WITH", "MERGE", "REPLACE") {
			return true
		}
	}
	return false
}

// afford charges a rule that may scan from token i to the end.
func (s *stmt) afford(i int) bool {
	if s.work -= len(s.t) - i; s.work < 0 {
		s.tired()
		return false
	}
	return true
}

func (s *stmt) tired() {
	s.opaque(fmt.Sprintf("reading it takes more than %d steps", maxWork), "")
}

// split notices a keyword that a comment tears in two: no server reads it as
// one, but nobody writes so without a reason.
func (s *stmt) split(i int) {
	t, before := &s.t[i], s.tok(i-1)
	if before.kind != word || len(before.text)+len(t.text) > 8 {
		return
	}
	switch strings.ToUpper(before.text + t.text) {
	case "DROP", "DELETE", "TRUNCATE", "UPDATE", "ALTER", "GRANT", "EXEC", "EXECUTE", "INSERT", "UNION", "SELECT", "COPY", "ATTACH", "TABLE", "DATABASE":
		s.opaque("a keyword is split by a comment", "")
	}
}

// name reads a possibly qualified object name at i: its last part, the whole,
// and the index after it.
func (s *stmt) name(i int) (last, whole string, next int) {
	// A client may put a name for :t or ?, and SQLite takes a string for one.
	for s.tok(i).ident() || whole == "" && (s.tok(i).kind == param || s.tok(i).kind == text) {
		last = s.t[i].text
		if whole == "" {
			whole = last
		} else if len(whole) < 256 {
			whole += "." + last
		}
		i++
		dots := 0
		for s.tok(i).sym(".") {
			i++
			dots++
		}
		if dots == 0 {
			break
		}
	}
	return last, whole, i
}

// skip passes words that may stand before a name.
func (s *stmt) skip(i int, words ...string) int {
	for s.tok(i).is(words...) {
		i++
	}
	return i
}

// starts reports whether a statement may begin at token i.
func (s *stmt) starts(i int) bool {
	b := s.tok(i - 1)
	switch {
	case i == 0, b.sym("("), b.sym(")"), b.sym(";"):
		return true
	}
	if b.is("AS") { // else a name that is given to a column
		return s.tok(0).is("PREPARE", "CREATE", "ALTER", "OR")
	}
	return b.is("EXPLAIN", "ANALYZE", "ANALYSE", "VERBOSE", "BEGIN", "THEN", "ELSE", "DO", "LOOP", "EXECUTE", "PLAN", "QUERY", "MATERIALIZED", "EXTENDED", "END", "START", "TRY")
}

// stacked reports whether T-SQL would let a statement begin at token i: there
// it may follow another one without a semicolon, but not a name that it could
// be the alias of.
func (s *stmt) stacked(i int) bool {
	b := s.tok(i - 1)
	return s.starts(i) || b.kind == number || b.kind == text || b.kind == param
}

// ordinary gives a statement that holds nothing to object to its one effect.
func (s *stmt) ordinary() {
	op := "read"
	switch first := s.tok(0); {
	case first.is("INSERT", "REPLACE", "LOAD"), first.is("COPY") && s.has("FROM") && !s.has("SELECT"):
		op = "insert"
	case first.is("CREATE", "ALTER", "COMMENT"):
		op = "create"
	case first.is("SET", "SHOW", "BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "USE", "RESET", "DISCARD", "ANALYZE", "VACUUM", "LISTEN", "NOTIFY", "DECLARE", "FETCH", "CLOSE"):
		op = "session"
	}
	s.add(cordon.Effect{Kind: cordon.SQL, Op: op, Target: s.firstTable()})
}

func (s *stmt) firstTable() string {
	for i := range s.t {
		if t := &s.t[i]; t.is("FROM", "INTO", "TABLE", "UPDATE") && s.tok(i+1).ident() {
			_, whole, _ := s.name(s.skip(i+1, "ONLY", "IF", "NOT", "EXISTS"))
			return whole
		}
	}
	return ""
}

func (s *stmt) destroy(op, target string, doubtful bool) {
	s.add(cordon.Effect{Kind: cordon.Destroy, Op: op, Target: target, Doubtful: doubtful})
}

func (s *stmt) admin(op, target string) {
	s.add(cordon.Effect{Kind: cordon.Administer, Op: op, Target: target})
}
