package sql

import (
	"regexp"
	"strings"
)

// nodeKind is what a part of a condition is.
type nodeKind uint8

const (
	nodeConst    nodeKind = iota // val
	nodeColumn                   // a column, or a value that depends on the row in ways not known
	nodeFree                     // a value that is not known and the same for every row
	nodeParam                    // a value given from outside
	nodeOr                       // kids
	nodeAnd                      // kids
	nodeXor                      // kids
	nodeNot                      // kid
	nodeCompare                  // kids[0] op kids[1]
	nodeIs                       // kids[0] IS text [kids[1]]
	nodeIn                       // kids[0] IN kids[1:], or a query in kids[1]
	nodeBetween                  // kids[0] between kids[1] and kids[2]
	nodeExists                   // query
	nodeQuery                    // query for its value
	nodeChain                    // kids joined by ops, left to right
	nodeNegative                 // - kid
	nodeCall                     // text(kids)
	nodeCase                     // kids: condition, value, …, else; last is ELSE
	nodeTuple                    // (kids)
	nodeCast                     // kid as text
	nodeInterval                 // kid as a span of time
)

// node is one part of a condition.
type node struct {
	kind  nodeKind
	text  string
	val   *value // of a constant
	kids  []*node
	ops   []string
	query *query
	class class
	re    *regexp.Regexp
	// key is equal for parts that have the same value in the same row.
	key uint64
	// negated turns the sense of compare, in, between, is and exists.
	negated bool
	// every: the comparison must hold for all of the list (ALL, not ANY).
	every bool
}

// parser reads one condition. It knows no more of SQL's grammar than
// conditions need, and stops where it cannot go on.
type parser struct {
	*stmt
	t     []token
	i     int
	depth int
	scope *scope
	// nodes counts what was built; columns and ours count the columns, and
	// those that may be the changed table's own.
	nodes, columns, ours int
	strange              int  // how often an operand was none
	nulls                bool // NULL is tested for
	odd                  bool // something was not understood
	free                 bool // a value that is not known is held against something
	queries              bool // there are subqueries
	deep                 bool // nested deeper, or more often odd, than maxConditionDepth
	both                 bool // whether some row passes is asked for too
	known                map[[2]string]columnInfo
	numbers              []float64
	texts                []string
}

const maxConditionDepth = 64

func (p *parser) peek() *token {
	if p.i < len(p.t) {
		return &p.t[p.i]
	}
	return &nowhere
}

func (p *parser) after() *token {
	if p.i+1 < len(p.t) {
		return &p.t[p.i+1]
	}
	return &nowhere
}

func (p *parser) take(words ...string) bool {
	if p.peek().is(words...) {
		p.i++
		return true
	}
	return false
}

func (p *parser) takeSym(s string) bool {
	if p.peek().sym(s) {
		p.i++
		return true
	}
	return false
}

func (p *parser) node(n node) *node {
	p.nodes++
	p.free = p.free || n.kind == nodeFree || n.kind == nodeParam || n.kind == nodeCall || n.kind == nodeQuery || n.kind == nodeExists || n.query != nil
	for _, k := range n.kids {
		n.key = mix(n.key, k.key)
	}
	for _, op := range n.ops {
		n.key = mix(n.key, hash(op))
	}
	n.key = mix(n.key, uint64(n.kind)<<32^hash(n.text))
	return &n
}

// or reads a whole condition.
func (p *parser) or() *node {
	kids := []*node{p.and()}
	for {
		switch {
		case p.take("OR"), p.scope.bars && p.takeSym("||"):
			kids = append(kids, p.and())
		case p.take("XOR"):
			left := p.joined(nodeOr, kids)
			kids = []*node{p.node(node{kind: nodeXor, kids: []*node{left, p.and()}})}
		default:
			return p.joined(nodeOr, kids)
		}
	}
}

func (p *parser) joined(kind nodeKind, kids []*node) *node {
	if len(kids) == 1 {
		return kids[0]
	}
	return p.node(node{kind: kind, kids: kids})
}

func (p *parser) and() *node {
	kids := []*node{p.not()}
	for p.take("AND") || p.scope.bars && p.takeSym("&&") {
		kids = append(kids, p.not())
	}
	return p.joined(nodeAnd, kids)
}

func (p *parser) not() *node {
	n := 0
	for p.take("NOT") || p.peek().sym("!") && p.takeSym("!") {
		n++
	}
	kid := p.compare()
	if n%2 == 1 {
		return p.node(node{kind: nodeNot, kids: []*node{kid}})
	}
	return kid
}

// compare reads operands joined by comparisons, which are left to right.
func (p *parser) compare() *node {
	left := p.chain()
	for count := 0; count < 64; count++ {
		next := p.comparison(left)
		if next == nil {
			return left
		}
		left = next
	}
	p.odd = true
	return left
}

func (p *parser) comparison(left *node) *node {
	start := p.i
	negated := p.take("NOT")
	t := p.peek()
	switch {
	case !negated && t.kind == symbol && comparisonOps[t.text] != "":
		p.i++
		return p.compared(left, comparisonOps[t.text])
	case p.take("LIKE", "ILIKE", "SIMILAR", "GLOB", "REGEXP", "RLIKE", "MATCH"):
		op := t.up()
		p.take("TO")
		p.take("BINARY")
		n := p.compared(left, op)
		n.negated = negated
		if p.take("ESCAPE") {
			p.chain()
		}
		return n
	case p.take("BETWEEN"):
		p.take("SYMMETRIC", "ASYMMETRIC")
		kids := []*node{left, p.chain(), nil}
		p.take("AND")
		kids[2] = p.chain()
		return p.node(node{kind: nodeBetween, kids: kids, negated: negated})
	case p.take("IN"):
		n := p.in(left)
		n.negated = negated
		return n
	case negated && p.take("NULL"):
		p.nulls = true
		return p.node(node{kind: nodeIs, text: "NULL", kids: []*node{left}, negated: true})
	case negated:
		p.i = start
		return nil
	case p.take("IS"):
		return p.is(left)
	case p.take("ISNULL"), p.take("NOTNULL"):
		p.nulls = true
		return p.node(node{kind: nodeIs, text: "NULL", kids: []*node{left}, negated: t.is("NOTNULL")})
	}
	return nil
}

// comparisonOps gives comparisons one spelling each.
var comparisonOps = map[string]string{
	"=": "=", "==": "=", "<=>": "<=>", "<>": "<>", "!=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!<": ">=", "!>": "<=",
	"~": "~", "~*": "~*", "!~": "!~", "!~*": "!~*", "~~": "LIKE", "~~*": "ILIKE", "!~~": "NOT LIKE",
}

func (p *parser) compared(left *node, op string) *node {
	n := node{kind: nodeCompare, text: op}
	if op == "NOT LIKE" || op == "!~" || op == "!~*" {
		n.negated = true
		n.text = map[string]string{"NOT LIKE": "LIKE", "!~": "~", "!~*": "~*"}[op]
	}
	if p.peek().is("ANY", "SOME", "ALL") && p.after().sym("(") {
		n.every = p.peek().is("ALL")
		p.i += 2
		kids, q := p.list()
		if q == nil && len(kids) == 1 {
			if q = arrayQuery(kids[0]); q == nil {
				kids = elements(p, kids[0])
			} else {
				kids = nil
			}
		}
		n.kind, n.query = nodeIn, q
		n.kids = append([]*node{left}, kids...)
		return p.node(n)
	}
	right := p.chain()
	n.kids = []*node{left, right}
	if right.kind == nodeConst && right.val != nil && right.val.kind == textValue && p.patterns > 0 {
		p.patterns--
		n.re = expression(n.text, right.val.s)
	}
	return p.node(n)
}

// arrayQuery is the query of ARRAY(SELECT …) or of a query for an array.
func arrayQuery(n *node) *query {
	if n.kind == nodeCast {
		n = n.kids[0]
	}
	if n.kind == nodeQuery {
		return n.query
	}
	return nil
}

// elements are those of an array constant; anything else stays one value.
func elements(p *parser, n *node) []*node {
	if n.kind == nodeCast && len(n.kids) == 1 {
		n = n.kids[0]
	}
	if n.kind == nodeCall && n.text == "ARRAY" {
		return n.kids
	}
	if n.kind != nodeConst || n.val == nil || !strings.HasPrefix(n.val.s, "{") {
		return []*node{n}
	}
	s := n.val.s[1:]
	var out []*node
	for e := range strings.SplitSeq(strings.TrimSuffix(s, "}"), ",") {
		if e != "" {
			out = append(out, p.constant(textOf(strings.Trim(e, `"`))))
		}
	}
	return out
}

func (p *parser) in(left *node) *node {
	n := node{kind: nodeIn, text: "="}
	if !p.takeSym("(") {
		n.kids = []*node{left, p.primary()}
		return p.node(n)
	}
	kids, q := p.list()
	if len(kids) == 1 && kids[0].kind == nodeQuery {
		kids, q = nil, kids[0].query
	}
	n.query, n.kids = q, append([]*node{left}, kids...)
	return p.node(n)
}

// list reads what stands in parentheses up to the closing one: values, or a
// query.
func (p *parser) list() (kids []*node, q *query) {
	if p.peek().is("SELECT", "WITH", "VALUES", "TABLE") {
		return nil, p.subquery()
	}
	for !p.takeSym(")") {
		if p.i >= len(p.t) {
			p.odd = true
			return kids, nil
		}
		before := p.i
		p.take("DISTINCT", "ALL", "VARIADIC", "BOTH", "LEADING", "TRAILING")
		kids = append(kids, p.or())
		// SUBSTRING(a FROM 2), EXTRACT(YEAR FROM a), CAST(a AS int), …
		if !p.takeSym(",") && !p.peek().sym(")") {
			if p.take("AS", "USING") {
				kids = append(kids, p.typeName())
			} else if !p.take("FROM", "FOR", "SEPARATOR", "ORDER", "BY", "PLACING") && p.i == before {
				p.i++
			}
		}
	}
	return kids, nil
}

func (p *parser) is(left *node) *node {
	n := node{kind: nodeIs, negated: p.take("NOT"), kids: []*node{left}}
	switch t := p.peek(); {
	case p.take("NULL", "UNKNOWN"):
		p.nulls = true
		n.text = "NULL"
	case p.take("TRUE", "FALSE"):
		n.text = t.up()
	case p.take("DISTINCT"):
		p.take("FROM")
		p.nulls = true
		n.text = "DISTINCT"
		n.kids = append(n.kids, p.chain())
	default: // SQLite compares by IS
		n.text, n.negated = "DISTINCT", !n.negated
		n.kids = append(n.kids, p.chain())
	}
	return p.node(n)
}

// chain reads operands joined by operators that bind closer than comparisons.
func (p *parser) chain() *node {
	first := p.unary()
	var n *node
	for {
		op := p.operator()
		if op == "" {
			break
		}
		if n == nil {
			n = &node{kind: nodeChain, kids: []*node{first}}
		}
		n.ops = append(n.ops, op)
		n.kids = append(n.kids, p.unary())
	}
	if n == nil {
		return first
	}
	return p.precedence(n)
}

// operator takes an operator between operands, or nothing.
func (p *parser) operator() string {
	t := p.peek()
	switch {
	case t.is("DIV", "MOD") && !p.after().sym("("):
		p.i++
		return map[bool]string{true: "/", false: "%"}[t.is("DIV")]
	case t.kind == param && t.text[0] == '?' && (p.after().kind == text || p.after().sym("(")):
		p.i++
		return "?"
	case t.is("OPERATOR") && p.after().sym("("):
		for p.i < len(p.t) && !p.takeSym(")") {
			p.i++
		}
		return "?"
	case t.kind != symbol || t.text == "" || comparisonOps[t.text] != "":
		return ""
	case p.scope.bars && (t.text == "||" || t.text == "&&"):
		return ""
	}
	switch t.text {
	case "(", ")", ",", ";", ".", "[", "]", ":", "::", "!":
		return ""
	}
	p.i++
	return t.text
}

// precedence makes products of a flat chain and leaves sums.
func (p *parser) precedence(n *node) *node {
	out := &node{kind: nodeChain}
	product := &node{kind: nodeChain, kids: n.kids[:1:1]}
	flush := func() {
		k := product.kids[0]
		if len(product.kids) > 1 {
			k = p.node(*product)
		}
		out.kids = append(out.kids, k)
	}
	for i, op := range n.ops {
		switch op {
		case "*", "/", "%", "^":
			product.ops = append(product.ops, op)
			product.kids = append(product.kids, n.kids[i+1])
		default:
			flush()
			out.ops = append(out.ops, op)
			product = &node{kind: nodeChain, kids: n.kids[i+1 : i+2 : i+2]}
		}
	}
	flush()
	if len(out.kids) == 1 {
		return out.kids[0]
	}
	return p.node(*out)
}

func (p *parser) unary() *node {
	minus := 0
	for n := 0; ; n++ {
		switch {
		case p.takeSym("-"):
			minus++
			continue
		case p.peek().kind == param && p.peek().text == "@": // PostgreSQL's absolute value
			p.i++
			continue
		case p.takeSym("+"), p.takeSym("~"), p.takeSym("|"), p.takeSym("/"), p.take("BINARY", "PRIOR"):
			continue
		}
		break
	}
	n := p.postfix(p.primary())
	if minus%2 == 1 {
		if n.kind == nodeConst && n.val != nil && n.val.kind == numberValue {
			return p.constant(numberOf(-n.val.n))
		}
		return p.node(node{kind: nodeNegative, kids: []*node{n}})
	}
	return n
}

// postfix reads casts, subscripts, collations and time zones.
func (p *parser) postfix(n *node) *node {
	for count := 0; count < 64; count++ {
		switch {
		case p.takeSym("::"):
			t := p.typeName()
			n = p.node(node{kind: nodeCast, text: t.text, kids: []*node{n}})
		case p.peek().sym("["):
			for p.i < len(p.t) && !p.takeSym("]") {
				p.i++
			}
			n = p.node(node{kind: nodeChain, ops: []string{"[]"}, kids: []*node{n, p.constant(numberOf(float64(p.i)))}})
		case p.take("COLLATE"):
			_, _, p.i = p.nameAt(p.i)
		case p.peek().is("AT") && p.after().is("TIME"):
			p.i += 3
			p.primary()
		default:
			return n
		}
	}
	return n
}

// nameAt is stmt.name on the parser's own tokens.
func (p *parser) nameAt(i int) (last, qualifier string, next int) {
	for i < len(p.t) && p.t[i].ident() {
		qualifier, last = last, p.t[i].text
		if i++; i >= len(p.t) || !p.t[i].sym(".") {
			break
		}
		for i < len(p.t) && p.t[i].sym(".") {
			i++
		}
		if i < len(p.t) && p.t[i].sym("*") {
			return "*", last, i + 1
		}
	}
	return last, qualifier, i
}

func (p *parser) typeName() *node {
	_, _, next := p.nameAt(p.i)
	n := node{kind: nodeConst, text: ""}
	if p.peek().ident() {
		n.text = strings.ToUpper(p.peek().text)
	}
	p.i = max(next, p.i)
	p.take("PRECISION", "VARYING", "UNSIGNED")
	if p.peek().is("WITH", "WITHOUT") && p.after().is("TIME") {
		p.i += 3
	}
	if p.takeSym("(") {
		for p.i < len(p.t) && !p.takeSym(")") {
			p.i++
		}
	}
	for p.peek().sym("[") && p.after().sym("]") {
		p.i += 2
	}
	return p.node(n)
}

func (p *parser) constant(v value) *node {
	n := p.node(node{kind: nodeConst, val: &v})
	n.key = mix(mix(n.key, hash(v.s)), floatBits(v.n)^uint64(v.kind))
	switch {
	case v.kind == numberValue && len(p.numbers) < maxPool:
		p.numbers = append(p.numbers, v.n)
	case v.kind == textValue && len(p.texts) < maxPool && len(v.s) < 200:
		p.texts = append(p.texts, v.s)
	}
	return n
}

// primary reads an operand. All recursion comes by here.
func (p *parser) primary() *node {
	if p.depth++; p.depth > maxConditionDepth {
		p.deep, p.i = true, len(p.t)
	}
	defer func() { p.depth-- }()
	t := p.peek()
	p.i++
	switch t.kind {
	case text:
		s := t.text
		for p.peek().kind == text { // adjacent strings join
			if len(s) < maxText {
				s += clip(p.peek().text)
			}
			p.i++
		}
		return p.constant(textOf(s))
	case number:
		return p.constant(numberOf(parseNumber(t.text)))
	case param:
		return p.node(node{kind: nodeParam, text: strings.ToLower(t.text)})
	case symbol:
		if t.sym("(") {
			return p.parenthesis()
		}
		p.odd = true
		if p.strange++; p.strange > maxConditionDepth {
			p.deep, p.i = true, len(p.t)
		}
		if t.sym(")") || p.i > len(p.t) {
			p.i--
		}
		return p.node(node{kind: nodeFree})
	}
	p.i--
	return p.named()
}

func (p *parser) parenthesis() *node {
	kids, q := p.list()
	switch {
	case q != nil:
		return p.node(node{kind: nodeQuery, query: q, key: q.key})
	case len(kids) == 1:
		return kids[0]
	}
	return p.node(node{kind: nodeTuple, kids: kids})
}

// named reads what starts with a word: a keyword of conditions, a call, or a
// column.
func (p *parser) named() *node {
	t := p.peek()
	if t.kind == word && !p.after().sym(".") {
		if n := p.keyword(t); n != nil {
			return n
		}
	}
	if strings.HasPrefix(t.text, "_") && p.after().kind == text { // _utf8'…'
		p.i++
		return p.primary()
	}
	last, qualifier, next := p.nameAt(p.i)
	p.i = max(next, p.i+1)
	if p.peek().sym("(") {
		p.i++
		return p.call(strings.ToUpper(last))
	}
	if t.kind == word && niladic()[strings.ToUpper(last)] != nil {
		return p.node(node{kind: nodeCall, text: strings.ToUpper(last)})
	}
	return p.column(qualifier, last)
}

func (p *parser) keyword(t *token) *node {
	switch {
	case p.take("TRUE", "FALSE"):
		return p.constant(boolOf(t.is("TRUE")))
	case p.take("NULL", "UNKNOWN"):
		return p.constant(value{})
	case p.after().sym("(") && p.take("EXISTS"):
		p.i++
		_, q := p.list()
		return p.node(node{kind: nodeExists, query: q})
	case p.take("CASE"):
		return p.caseOf()
	case p.after().kind == text && p.take("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIME", "DATETIME"):
		return p.primary()
	case (p.after().kind == text || p.after().kind == number || p.after().kind == param || p.after().sym("-")) && p.take("INTERVAL"):
		return p.interval()
	case p.after().sym("[") && p.take("ARRAY"):
		return p.array()
	case p.after().is("OF") && p.take("CURRENT"): // WHERE CURRENT OF cursor
		p.i += 2
		return p.column("", "cursor")
	case p.take("ROW"):
		return p.primary()
	case t.is("NOT"):
		return p.not()
	}
	return nil
}

func (p *parser) array() *node {
	p.i++
	n := node{kind: nodeCall, text: "ARRAY"}
	for p.i < len(p.t) && !p.takeSym("]") {
		n.kids = append(n.kids, p.or())
		if !p.takeSym(",") && !p.peek().sym("]") {
			p.i++
		}
	}
	return p.node(n)
}

func (p *parser) interval() *node {
	kid := p.unary()
	n := node{kind: nodeInterval, kids: []*node{kid}}
	if _, ok := units()[strings.TrimSuffix(p.peek().up(), "S")]; ok && p.peek().kind == word {
		n.text = p.peek().up()
		p.i++
	}
	return p.node(n)
}

// caseOf reads CASE to END; with an operand, conditions become comparisons.
func (p *parser) caseOf() *node {
	n := node{kind: nodeCase}
	var operand *node
	if !p.peek().is("WHEN") {
		operand = p.or()
	}
	for p.take("WHEN") {
		cond := p.or()
		if operand != nil {
			cond = p.node(node{kind: nodeCompare, text: "=", kids: []*node{operand, cond}})
		}
		p.take("THEN")
		n.kids = append(n.kids, cond, p.or())
	}
	last := p.node(node{kind: nodeConst})
	if p.take("ELSE") {
		last = p.or()
	}
	p.take("END")
	n.kids = append(n.kids, last)
	return p.node(n)
}

func (p *parser) call(name string) *node {
	if p.peek().sym("*") && p.after().sym(")") {
		p.i += 2
		return p.node(node{kind: nodeCall, text: name})
	}
	if name == "POSITION" { // POSITION(a IN b)
		kids := []*node{p.chain(), nil}
		p.take("IN")
		kids[1] = p.chain()
		p.takeSym(")")
		return p.node(node{kind: nodeCall, text: name, kids: kids})
	}
	if name == "ARRAY" || name == "LATERAL" {
		_, q := p.list()
		return p.node(node{kind: nodeQuery, query: q})
	}
	kids, q := p.list()
	if q != nil {
		kids = []*node{p.node(node{kind: nodeQuery, query: q, key: q.key})}
	}
	if p.take("FILTER", "OVER") && p.takeSym("(") {
		p.list()
	}
	switch {
	case (name == "CAST" || name == "TRY_CAST") && len(kids) == 2:
		return p.node(node{kind: nodeCast, text: kids[1].text, kids: kids[:1]})
	case name == "COALESCE" || name == "IFNULL" || name == "NVL" || name == "ISNULL":
		p.nulls = true
	}
	return p.node(node{kind: nodeCall, text: name, kids: kids})
}

// columnInfo is what a parser knows of a column that it met before.
type columnInfo struct {
	key   string
	class class
	ours  bool
}

func (p *parser) column(qualifier, last string) *node {
	p.columns++
	c, ok := p.known[[2]string{qualifier, last}]
	if !ok {
		c.key, c.ours = p.scope.column(qualifier, last)
		c.class = classOf(last, p.scope.own)
		if p.known == nil {
			p.known = map[[2]string]columnInfo{}
		}
		p.known[[2]string{qualifier, last}] = c
	}
	if c.ours {
		p.ours++
	}
	n := p.node(node{kind: nodeColumn, text: c.key, class: c.class})
	n.key = hash(c.key)
	return n
}
