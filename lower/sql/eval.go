package sql

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"time"
)

// row is one made-up row that a condition is tried on. Columns get values by
// their name and by the constants that the condition holds them against.
type row struct {
	k       uint64
	now     float64
	pool    *pool
	lenient bool
	// flip: what is asked of other tables alone turns out the other way.
	flip bool
}

// pool holds what columns are given.
type pool struct {
	keys, numbers []float64
	texts, emails []string
	moments       []float64
	nulls         bool
}

const maxPool = 24

// hugeNumber and the years around it: bounds that stand for "everything".
const (
	hugeNumber = 1<<31 - 1
	hugeKey    = 1e8
	firstYear  = 1971
	lastYear   = 2100
)

func newPool(p *parser, lenient bool, now float64) *pool {
	pl := &pool{nulls: p.nulls, keys: []float64{7919, 1, 2, 3, 17, 42, 350, 1000, 4096, 65537, 90210}, numbers: []float64{7919, 0, 1, 2, 3, 42, 65537},
		texts: []string{"zebra quill", "a", "Bob", "x9", "M. O'Neill 7"}, emails: []string{"ann@example.org", "b.c@mail.example.com", "z9@example.net"}}
	if !lenient {
		pl.numbers = append(pl.numbers, -1, -40)
		pl.texts = append(pl.texts, "")
	}
	const day = 86400
	for _, d := range []float64{400 * day, 3600, day, 10 * day, 45 * day, 1200 * day} {
		pl.moments = append(pl.moments, now-d, now+d)
	}
	for _, c := range p.numbers {
		pl.addNumber(c, lenient)
	}
	for _, s := range p.texts {
		pl.addText(s, lenient)
	}
	return pl
}

func (pl *pool) addNumber(c float64, lenient bool) {
	if math.Abs(c) >= hugeNumber || allNines(c) {
		return
	}
	for _, v := range []float64{c, c - 1, c + 1} {
		if v >= 1 && v < hugeKey {
			pl.keys = append(pl.keys, v)
		}
		if v >= 0 || !lenient {
			pl.numbers = append(pl.numbers, v)
		}
	}
}

// allNines: 99999 and longer.
func allNines(c float64) bool {
	n := 0
	for c >= 9 && math.Mod(c, 10) == 9 {
		c = math.Floor(c / 10)
		n++
	}
	return n >= 5 && c == 0
}

func (pl *pool) addText(s string, lenient bool) {
	if at, ok := moment(s); ok {
		if y := time.Unix(int64(at), 0).UTC().Year(); y >= firstYear && y < lastYear {
			pl.moments = append(pl.moments, at-86400, at, at+86400)
		}
		return
	}
	if isNumeric(s) {
		pl.addNumber(parseNumber(s), lenient)
	}
	if strings.TrimSpace(s) == "" || lowest(s) || highest(s) || lenient && holds(strings.ToLower(s), absent) {
		return
	}
	pl.texts = append(pl.texts, s, s+"x")
	pl.emails = append(pl.emails, s)
	if len(s) > 1 {
		pl.texts = append(pl.texts, s[:len(s)-1])
	}
}

// absent are parts of values that are made up to be in no row.
var absent = []string{"nonexist", "non-exist", "not_exist", "notexist", "no_such", "no-such", "nosuch", "zzz", "xxx", "impossib", "nobody"}

// lowest and highest are keys that stand before or behind all others.
func lowest(s string) bool { return strings.Trim(s, "0-(), ") == "" }

func highest(s string) bool {
	return len(s) >= 3 && strings.Trim(s, "fFzZ9~{}-\u00ff\uffff") == ""
}

// column is the value of a column, or of anything that varies with the row.
func (r *row) column(key uint64, c class) value {
	h := r.k
	if h != 0 {
		h = shuffle(key ^ shuffle(r.k))
	}
	if r.pool.nulls && !c.own && !(r.lenient && !c.nullable) && h%5 == 3 {
		return value{}
	}
	v := value{kind: anyValue, key: mix(key, 0) &^ 1, class: c}
	if h>>17&1 == 1 {
		v.key |= 1
	}
	switch {
	case c.boolean:
		v.n = float64(v.key & 1)
	case c.key:
		v.n = pick(r.pool.keys, h)
	default:
		v.n = pick(r.pool.numbers, h)
	}
	v.s = pick(r.pool.texts, h>>7)
	if c.email {
		v.s = pick(r.pool.emails, h>>7)
	}
	v.at = pick(r.pool.moments, h>>13)
	if c.past && r.lenient && v.at >= r.now {
		v.at = r.now - 3600
	}
	return v
}

func pick[T any](from []T, h uint64) T { return from[h%uint64(len(from))] }

func shuffle(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// truth decides a condition for the row.
func (r *row) truth(n *node) truth {
	switch n.kind {
	case nodeOr:
		return r.any(n.kids)
	case nodeAnd:
		return r.all(n.kids)
	case nodeXor:
		a, b := r.truth(n.kids[0]), r.truth(n.kids[1])
		if a == unknown || b == unknown {
			return unknown
		}
		return truthOf(a != b)
	case nodeNot:
		return r.truth(n.kids[0]).not()
	case nodeCompare:
		return n.sense(r.compare(n))
	case nodeIs:
		return n.sense(r.is(n))
	case nodeIn:
		return n.sense(r.in(n))
	case nodeBetween:
		v := r.value(n.kids[0])
		return n.sense(both(r.bounded(">=", v, n.kids[0], n.kids[1]), r.bounded("<=", v, n.kids[0], n.kids[2])))
	case nodeExists:
		return r.exists(n)
	}
	return r.value(n).truth()
}

func (n *node) sense(t truth) truth {
	if n.negated {
		return t.not()
	}
	return t
}

func both(a, b truth) truth {
	switch {
	case a == no || b == no:
		return no
	case a == unknown || b == unknown:
		return unknown
	}
	return yes
}

func (r *row) any(kids []*node) truth {
	out := no
	for _, k := range kids {
		switch r.truth(k) {
		case yes:
			return yes
		case unknown:
			out = unknown
		}
	}
	return out
}

func (r *row) all(kids []*node) truth {
	out := yes
	for _, k := range kids {
		switch r.truth(k) {
		case no:
			return no
		case unknown:
			out = unknown
		}
	}
	return out
}

func (r *row) compare(n *node) truth {
	a := r.value(n.kids[0])
	if q := n.kids[1]; q.kind == nodeQuery {
		return r.compareQuery(n.text, a, n.kids[0], q)
	}
	b := r.value(n.kids[1])
	switch n.text {
	case "LIKE", "ILIKE", "GLOB", "SIMILAR", "REGEXP", "RLIKE", "~", "~*", "MATCH":
		return r.matches(n, a, b)
	}
	if n.kids[0].kind == nodeQuery {
		return r.compareQuery(flipped[n.text], b, n.kids[1], n.kids[0])
	}
	return compareValues(n.text, a, b)
}

// bounded holds a value against one end of a range.
func (r *row) bounded(op string, v value, left, end *node) truth {
	if end.kind == nodeQuery {
		return r.compareQuery(op, v, left, end)
	}
	return compareValues(op, v, r.value(end))
}

var flipped = map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>", "<=>": "<=>"}

// compareQuery holds a value against what a query gives: the greatest or the
// least of the very column leaves no row out.
func (r *row) compareQuery(op string, a value, left, q *node) truth {
	s := q.query
	if s.aggregate == "COUNT" && s.wide && r.lenient && left.class.own && (op == "<=" || op == "<") {
		return yes // keys without gaps
	}
	if s.columnKey != 0 && s.columnKey == left.key && s.wide {
		if s.aggregate == "MAX" && op == "<=" || s.aggregate == "MIN" && op == ">=" || s.aggregate == "" && op == "=" {
			return yes
		}
	}
	return compareValues(op, a, r.value(q))
}

func (r *row) matches(n *node, a, b value) truth {
	switch {
	case a.kind == nullValue || b.kind == nullValue:
		return unknown
	case a.kind == anyValue && b.kind == anyValue && a.key == b.key && n.text != "~" && n.text != "~*":
		return yes
	case n.re != nil && a.kind != freeValue:
		return truthOf(n.re.MatchString(clip(a.text())))
	case a.kind != freeValue && b.kind != freeValue && b.kind != anyValue && (n.text == "LIKE" || n.text == "ILIKE" || n.text == "GLOB"):
		many, one := byte('%'), byte('_')
		if n.text == "GLOB" {
			many, one = '*', '?'
		}
		return truthOf(like(strings.ToLower(clip(a.text())), strings.ToLower(clip(b.text())), many, one))
	}
	return r.column(n.key, class{}).truth()
}

// maxText is how much of a text a made-up row holds.
const maxText = 500

func clip(s string) string { return s[:min(len(s), maxText)] }

// expression compiles the constant pattern of a matching operator; nil where
// it is none, or not one that can be told.
func expression(op, s string) *regexp.Regexp {
	if len(s) > maxText || repeats().MatchString(s) {
		return nil
	}
	switch op {
	case "~", "REGEXP", "RLIKE":
		s = "(?s)" + s
	case "~*":
		s = "(?is)" + s
	case "SIMILAR":
		s = `(?s)\A(?:` + strings.NewReplacer("%", ".*", "_", ".", ".", `\.`, "^", `\^`, "$", `\$`).Replace(s) + `)\z`
	default:
		return nil
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil
	}
	return re
}

// repeats finds counted repetitions, which are dear to compile.
var repeats = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{\d{2,}|\{\d,\d{2,}|\}\s*\{|\}\)+\{`)
})

// like matches s against a pattern of wildcards; a backslash takes the next
// byte as it is.
func like(s, pat string, many, one byte) bool {
	i, j, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case j < len(pat) && pat[j] == many:
			star, mark = j, i
			j++
			continue
		case j < len(pat) && pat[j] == '\\' && j+1 < len(pat) && pat[j+1] == s[i]:
			i, j = i+1, j+2
			continue
		case j < len(pat) && (pat[j] == one || pat[j] == s[i]):
			i, j = i+1, j+1
			continue
		case star < 0:
			return false
		}
		mark++
		i, j = mark, star+1
	}
	for j < len(pat) && pat[j] == many {
		j++
	}
	return j == len(pat)
}

func (r *row) is(n *node) truth {
	v := r.value(n.kids[0])
	switch n.text {
	case "NULL":
		if v.kind == tupleValue {
			return truthOf(len(v.parts) > 0 && v.parts[0].kind == nullValue)
		}
		return truthOf(v.kind == nullValue)
	case "DISTINCT":
		return truthOf(distinct(v, r.value(n.kids[1])))
	}
	return truthOf(v.truth() == truthOf(n.text == "TRUE"))
}

func (r *row) in(n *node) truth {
	v := r.value(n.kids[0])
	if n.query != nil {
		return r.inQuery(n, v)
	}
	op := n.text
	out := truthOf(n.every)
	for _, k := range n.kids[1:] {
		t := compareValues(op, v, r.value(k))
		if t == truthOf(!n.every) {
			return t
		}
		if t == unknown {
			out = unknown
		}
	}
	return out
}

func (r *row) inQuery(n *node, v value) truth {
	q := n.query
	switch {
	case q.empty:
		return truthOf(n.every)
	case !n.every && q.holds(n.kids[0].key):
		return yes
	case n.every && q.columnKey == n.kids[0].key && q.wide && (q.aggregate == "MIN" && n.text == ">=" || q.aggregate == "MAX" && n.text == "<="):
		return yes
	case q.expr != nil && q.expr.series():
		return yes
	case q.expr != nil:
		return compareValues(n.text, v, r.value(q.expr))
	case v.kind != anyValue:
		return yes // no column is asked for
	}
	return r.column(mix(n.key, n.kids[0].key), class{}).truth()
}

// series reports whether n is generate_series from the first key to one past
// any, or to one that is not known.
func (n *node) series() bool {
	if n.kind != nodeCall || n.text != "GENERATE_SERIES" || len(n.kids) < 2 {
		return false
	}
	from, to := n.kids[0], n.kids[1]
	return from.val != nil && from.val.number() <= 1 && (to.val == nil || to.val.number() >= 100_000)
}

func (r *row) exists(n *node) truth {
	switch q := n.query; {
	case q == nil:
		return yes
	case q.empty:
		return no
	case q.wide || q.expr != nil:
		return yes
	case !q.tied:
		return truthOf(!r.flip)
	}
	return r.column(n.query.key, class{}).truth()
}

// value computes a part of a condition for the row.
func (r *row) value(n *node) value {
	switch n.kind {
	case nodeConst:
		if n.val == nil {
			return value{}
		}
		return *n.val
	case nodeColumn, nodeParam:
		return r.column(n.key, n.class)
	case nodeFree:
		return value{kind: freeValue, key: n.key}
	case nodeChain:
		return r.chain(n)
	case nodeNegative:
		v := r.value(n.kids[0])
		if v.kind == nullValue || v.kind == freeValue {
			return v
		}
		return value{kind: numericKind(v), n: -v.number()}
	case nodeTuple:
		v := value{kind: tupleValue}
		for _, k := range n.kids {
			v.parts = append(v.parts, r.value(k))
		}
		return v
	case nodeCall:
		return r.call(n)
	case nodeCase:
		for i := 0; i+1 < len(n.kids); i += 2 {
			if r.truth(n.kids[i]) == yes {
				return r.value(n.kids[i+1])
			}
		}
		return r.value(n.kids[len(n.kids)-1])
	case nodeCast:
		return cast(r.value(n.kids[0]), n.text)
	case nodeInterval:
		return spanOf(r.value(n.kids[0]), n.text)
	case nodeQuery:
		return r.query(n)
	}
	return r.truth(n).value()
}

func numericKind(v value) valueKind {
	if v.kind == spanValue {
		return spanValue
	}
	return numberValue
}

func (r *row) query(n *node) value {
	switch q := n.query; {
	case q.empty && q.aggregate == "":
		return value{}
	case q.expr != nil:
		return r.value(q.expr)
	case q.wide || !q.tied:
		return value{kind: freeValue, key: n.key}
	}
	return r.column(n.key, class{})
}

func spanOf(v value, unit string) value {
	switch {
	case unit != "":
		return value{kind: spanValue, n: v.number() * units()[strings.TrimSuffix(unit, "S")]}
	case v.kind == textValue:
		return value{kind: spanValue, n: span(v.s)}
	}
	return value{kind: spanValue, n: 86400}
}

func cast(v value, typ string) value {
	switch typ {
	case "INT", "INTEGER", "BIGINT", "SMALLINT", "INT4", "INT8", "INT2", "NUMERIC", "DECIMAL", "FLOAT", "FLOAT8", "DOUBLE", "REAL", "SIGNED", "UNSIGNED":
		if v.kind == anyValue || v.kind == textValue || v.kind == boolValue {
			return numberOf(v.number())
		}
	case "TEXT", "VARCHAR", "CHAR", "CHARACTER", "NVARCHAR", "STRING", "NAME":
		if v.kind != nullValue && v.kind != freeValue {
			return textOf(v.text())
		}
	case "BOOL", "BOOLEAN", "BIT":
		if v.kind != freeValue {
			return v.truth().value()
		}
	case "INTERVAL":
		return spanOf(v, "")
	case "DATE", "TIMESTAMP", "TIMESTAMPTZ", "DATETIME":
		if v.kind == textValue {
			if at, ok := moment(v.s); ok {
				return value{kind: momentValue, n: at}
			}
		}
	}
	return v
}

func (r *row) chain(n *node) value {
	v := r.value(n.kids[0])
	for i, op := range n.ops {
		v = r.apply(n, op, v, r.value(n.kids[i+1]))
	}
	return v
}

func (r *row) apply(n *node, op string, a, b value) value {
	switch {
	case a.kind == nullValue || b.kind == nullValue:
		return value{}
	case op == "||":
		return textOf(clip(clip(a.text()) + clip(b.text())))
	case a.kind == freeValue || b.kind == freeValue:
		if a.kind == anyValue || b.kind == anyValue {
			return r.column(n.key, class{})
		}
		return value{kind: freeValue, key: n.key}
	case (op == "+" || op == "-") && (a.kind == momentValue || b.kind == momentValue || a.kind == spanValue || b.kind == spanValue):
		return shift(op, a, b)
	}
	x, y := a.number(), b.number()
	switch op {
	case "+":
		return numberOf(x + y)
	case "-":
		return numberOf(x - y)
	case "*":
		return numberOf(x * y)
	case "/", "%":
		if y == 0 {
			return value{}
		}
		if op == "/" {
			return numberOf(x / y)
		}
		return numberOf(math.Mod(x, y))
	case "|", "&", "#", "<<", ">>":
		return bits(op, x, y)
	case "^":
		if y == 0 {
			return numberOf(1)
		}
	}
	return r.column(n.key, class{})
}

func bits(op string, x, y float64) value {
	if math.Abs(x) > 1<<52 || math.Abs(y) > 1<<52 {
		return numberOf(0)
	}
	a, b := int64(x), int64(y)
	switch op {
	case "|":
		a |= b
	case "&":
		a &= b
	case "#":
		a ^= b
	case "<<":
		a <<= uint64(b) & 63
	case ">>":
		a >>= uint64(b) & 63
	}
	return numberOf(float64(a))
}

// shift adds a span of time to a moment; a plain number is days.
func shift(op string, a, b value) value {
	x, y := a.n, b.n
	if a.kind == anyValue {
		x = a.at
	}
	if a.kind == textValue {
		x, _ = moment(a.s)
	}
	if b.kind == numberValue {
		y *= 86400
	}
	if b.kind == anyValue {
		y = b.at
	}
	if b.kind == textValue {
		y = span(b.s)
	}
	if op == "-" {
		y = -y
	}
	kind := momentValue
	if a.kind == spanValue && b.kind != momentValue && b.kind != anyValue || b.kind == momentValue && op == "-" || b.kind == anyValue && op == "-" {
		kind = spanValue
	}
	return value{kind: kind, n: x + y}
}
