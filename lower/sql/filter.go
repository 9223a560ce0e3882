package sql

import (
	"strconv"
	"strings"
)

// filtered reports whether the change at tokens t (from the verb to the end
// of its extent) is held to some rows by a condition that depends on them.
func filtered(t []token) bool {
	depth := 0
	for i, tok := range t {
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
			if depth < 0 {
				return false
			}
		case depth == 0 && tok.is("WHERE"):
			return !tautology(clause(t[i+1:]))
		}
	}
	return false
}

// clause cuts a condition at the keyword that ends it.
func clause(t []token) []token {
	depth := 0
	for i, tok := range t {
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
			if depth < 0 {
				return t[:i]
			}
		case depth == 0 && tok.is("ORDER", "LIMIT", "RETURNING", "OPTION", "GROUP", "HAVING", "WINDOW", "UNION", "ON", "WHEN"):
			return t[:i]
		}
	}
	return t
}

// divide cuts t at a keyword that stands at depth 0.
func divide(t []token, at string) [][]token {
	var parts [][]token
	depth, start, between := 0, 0, false
	for i, tok := range t {
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth == 0 && tok.is("BETWEEN"):
			between = true
		case depth == 0 && tok.is(at):
			if at == "AND" && between {
				between = false
				continue
			}
			parts = append(parts, t[start:i])
			start = i + 1
		}
	}
	return append(parts, t[start:])
}

const maxConditionDepth = 64

// tautology reports whether a condition holds for every row, or at least
// shows no sign of depending on one.
func tautology(t []token) bool { return tautologyAt(t, 0) }

func tautologyAt(t []token, depth int) bool {
	t = unwrap(normalOps(t))
	if len(t) == 0 || depth > maxConditionDepth {
		return true
	}
	terms := divide(t, "OR")
	if len(terms) > 1 && complementary(terms) {
		return true
	}
	for _, term := range terms {
		if allTrivial(divide(term, "AND"), depth) {
			return true
		}
	}
	return false
}

func allTrivial(factors [][]token, depth int) bool {
	for _, f := range factors {
		if !trivial(f, depth) {
			return false
		}
	}
	return true
}

// normalOps gives || and && of MySQL their words where they stand between
// conditions; PostgreSQL's || joins strings, which no condition is.
func normalOps(t []token) []token {
	var out []token
	for i := 0; i < len(t); i++ {
		if !t[i].sym("&") || i+1 >= len(t) || !t[i+1].sym("&") {
			if out != nil {
				out = append(out, t[i])
			}
			continue
		}
		if out == nil {
			out = append(make([]token, 0, len(t)), t[:i]...)
		}
		out = append(out, token{kind: word, text: "AND", up: "AND"})
		i++
	}
	if out == nil {
		return t
	}
	return out
}

// unwrap takes off parentheses around the whole.
func unwrap(t []token) []token {
	for len(t) >= 2 && t[0].sym("(") && closing(t) == len(t)-1 {
		t = t[1 : len(t)-1]
	}
	return t
}

// closing is the index of the parenthesis that closes t[0].
func closing(t []token) int {
	depth := 0
	for i, tok := range t {
		if tok.sym("(") {
			depth++
		} else if tok.sym(")") {
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// trivial reports whether one factor of a condition excludes no row.
func trivial(t []token, depth int) bool {
	t = unwrap(t)
	if len(t) == 0 {
		return true
	}
	if t[0].is("NOT") && len(t) > 1 {
		return constant(t[1:]) || contradiction(t[1:])
	}
	if t[0].is("EXISTS") {
		return !hasFilter(t)
	}
	if len(divide(t, "OR")) > 1 || len(divide(t, "AND")) > 1 {
		return tautologyAt(t, depth+1)
	}
	if constant(t) {
		return true
	}
	return wideComparison(t)
}

// constant: no column stands in t. Function names and keywords are none.
func constant(t []token) bool {
	for i, tok := range t {
		switch tok.kind {
		case param:
			return false
		case name:
			return false
		case word:
			if tok.is("SELECT") {
				return !hasFilter(t)
			}
			if conditionWords[tok.up] || i+1 < len(t) && t[i+1].sym("(") {
				continue
			}
			return false
		}
	}
	return true
}

var conditionWords = words("TRUE FALSE NULL NOT AND OR IS IN LIKE ILIKE BETWEEN INTERVAL DATE TIME TIMESTAMP CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER SESSION_USER USER LOCALTIMESTAMP UNKNOWN DISTINCT FROM CASE WHEN THEN ELSE END CAST AS INT INTEGER TEXT BOOLEAN BOOL NUMERIC REGEXP RLIKE GLOB SIMILAR TO ANY ALL ARRAY BINARY XOR DIV MOD ESCAPE BIGINT VARCHAR CHAR")

// contradiction: a comparison of a thing with itself that is never true.
func contradiction(t []token) bool {
	l, op, r := comparison(unwrap(t))
	return (op == "<>" || op == "!=" || op == "<" || op == ">") && sameTokens(l, r)
}

// comparison splits "l op r" at the first comparison at depth 0.
func comparison(t []token) (l []token, op string, r []token) {
	depth := 0
	for i, tok := range t {
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth > 0:
		case tok.kind == symbol && comparisonOps[tok.text]:
			return t[:i], tok.text, t[i+1:]
		case tok.is("IS", "LIKE", "ILIKE", "REGEXP", "RLIKE", "GLOB", "SIMILAR", "BETWEEN", "IN"):
			return t[:i], tok.up, t[i+1:]
		case tok.is("NOT") && i > 0 && i+1 < len(t) && t[i+1].kind == word:
			return t[:i], "NOT " + t[i+1].up, t[i+2:]
		}
	}
	return t, "", nil
}

var comparisonOps = map[string]bool{"=": true, "==": true, "<>": true, "!=": true, "<": true, ">": true, "<=": true, ">=": true, "~": true, "~*": true, "!~": true, "^": false}

// wideComparison: a comparison with a column that every row, or every row but
// odd ones, passes.
func wideComparison(t []token) bool {
	l, op, r := comparison(t)
	l, r = unwrap(l), unwrap(r)
	switch op {
	case "":
		return false
	case "=", "==", "<=", ">=":
		if sameTokens(l, r) {
			return true
		}
	case "IS":
		if len(r) == 2 && r[0].is("NOT") && r[1].is("NULL") {
			return true
		}
		return len(r) > 3 && r[0].is("NOT") && r[1].is("DISTINCT") && sameTokens(l, r[3:])
	case "LIKE", "ILIKE", "SIMILAR", "GLOB":
		return anyPattern(r, "%_*")
	case "~", "~*", "REGEXP", "RLIKE":
		return anyPattern(r, ".*^$+?")
	case "BETWEEN":
		return wideRange(r)
	case "IN":
		return len(r) > 0 && r[0].is("SELECT") && !hasFilter(r)
	case "NOT IN":
		return noRealList(r)
	case "NOT LIKE", "NOT ILIKE":
		return len(r) == 1 && r[0].kind == text && r[0].text == ""
	}
	switch op {
	case "<>", "!=":
		return trifling(r) || trifling(l)
	case ">=":
		return trifling(r) || len(r) == 1 && r[0].kind == number && r[0].text == "1"
	case ">":
		return trifling(r)
	case "<", "<=":
		return trifling(l) || huge(r)
	}
	return false
}

// noRealList: NOT IN () of constants that no key has.
func noRealList(r []token) bool {
	for _, tok := range r {
		if !tok.sym(",") && !trifling([]token{tok}) {
			return false
		}
	}
	return true
}

func wideRange(r []token) bool {
	for i, tok := range r {
		if tok.is("AND") {
			return trifling(r[:i]) && huge(r[i+1:])
		}
	}
	return false
}

// trifling: 0, a negative number, an empty string or NULL: bounds that
// stand for "everything" when a key is held against them.
func trifling(t []token) bool {
	if len(t) == 2 && t[0].sym("-") && t[1].kind == number {
		return true
	}
	if len(t) != 1 {
		return false
	}
	switch t[0].kind {
	case number:
		v, err := strconv.ParseFloat(t[0].text, 64)
		return err == nil && v <= 0
	case text:
		return strings.TrimSpace(t[0].text) == "" || t[0].text == "0"
	}
	return t[0].is("NULL")
}

// huge: a number of nines or past any key.
func huge(t []token) bool {
	if len(t) != 1 || t[0].kind != number {
		return false
	}
	v, err := strconv.ParseFloat(t[0].text, 64)
	return err == nil && (v >= 1e12 || len(t[0].text) >= 5 && strings.Trim(t[0].text, "9") == "")
}

func anyPattern(r []token, wild string) bool {
	if len(r) > 0 && r[0].is("TO") {
		r = r[1:]
	}
	return len(r) >= 1 && r[0].kind == text && strings.Trim(r[0].text, wild) == ""
}

// complementary: two of the terms exclude each other and leave nothing out.
func complementary(terms [][]token) bool {
	for i := range terms {
		for j := range i {
			if opposite(unwrap(terms[i]), unwrap(terms[j])) {
				return true
			}
		}
		if i > 64 {
			return true
		}
	}
	return false
}

func opposite(a, b []token) bool {
	if len(a) > 0 && a[0].is("NOT") && sameTokens(unwrap(a[1:]), b) || len(b) > 0 && b[0].is("NOT") && sameTokens(unwrap(b[1:]), a) {
		return true
	}
	al, aop, ar := comparison(a)
	bl, bop, br := comparison(b)
	if aop == "" || bop == "" || !sameTokens(al, bl) {
		return false
	}
	if aop == "IS" && bop == "IS" {
		return len(ar) != len(br)
	}
	pair := aop + " " + bop
	for _, p := range []string{"= <>", "<> =", "= !=", "!= =", "< >=", ">= <", "> <=", "<= >", "IN NOT IN", "NOT IN IN", "LIKE NOT LIKE", "NOT LIKE LIKE"} {
		if pair == p {
			return sameTokens(ar, br)
		}
	}
	return false
}

func sameTokens(a, b []token) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if a[i].kind == symbol && b[i].kind == symbol || a[i].kind == number || a[i].kind == text {
			if a[i].kind != b[i].kind || a[i].text != b[i].text {
				return false
			}
			continue
		}
		if !a[i].ident() && a[i].kind != b[i].kind || !strings.EqualFold(a[i].text, b[i].text) {
			return false
		}
	}
	return true
}

// hasFilter reports whether a subquery restricts its rows at all.
func hasFilter(t []token) bool {
	for i, tok := range t {
		if tok.is("WHERE") {
			return !tautology(clause(t[i+1:]))
		}
		if tok.is("HAVING", "LIMIT", "JOIN") || tok.is("VALUES") {
			return true
		}
	}
	return false
}

// words makes a set of a list separated by blanks.
func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}
