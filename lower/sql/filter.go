package sql

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// width is how many rows a condition leaves.
type width uint8

const (
	narrow   width = iota // it picks rows
	seeming               // every row of an ordinary table passes it
	wide                  // every row passes it, or it does not look at rows
	entirely              // there is no condition
)

// scope is the tables whose columns a condition may name.
type scope struct {
	*reading
	// target is the changed table, alias its name in the statement.
	target, alias string
	// own is the name of the target's key by convention, in upper case.
	own string
	// home is the table of columns without a qualifier.
	home   string
	tables []tableRef
	outer  *scope
}

// reading is how a condition is read.
type reading struct {
	// bars: || and && are OR and AND, as in MySQL.
	bars bool
	// lenient takes a foreign key to meet its table, and rows to be ordinary.
	lenient bool
	ctes    map[string][]token
}

type tableRef struct{ table, alias string }

// column gives a column's key, and whether it may be the changed table's.
func (sc *scope) column(qualifier, name string) (key string, ours bool) {
	name = strings.ToLower(name)
	table := sc.home
	if qualifier != "" {
		table = sc.tableOf(qualifier)
	}
	// A table's own name as a column is its whole row.
	if qualifier == "" && (strings.EqualFold(name, sc.alias) || strings.EqualFold(name, sc.target)) && name != "" {
		return "*", true
	}
	if strings.EqualFold(table, sc.target) || table == "" {
		return name, true
	}
	if sc.lenient && name == "id" {
		return singular(table) + "_id", false
	}
	return strings.ToLower(table) + "." + name, false
}

func (sc *scope) tableOf(qualifier string) string {
	for s := sc; s != nil; s = s.outer {
		if strings.EqualFold(qualifier, s.alias) {
			return s.target
		}
		for _, r := range s.tables {
			if strings.EqualFold(qualifier, r.alias) || strings.EqualFold(qualifier, r.table) {
				return r.table
			}
		}
	}
	return qualifier
}

// baseOf follows the name of a common table expression that takes all of one
// table to that table.
func (sc *scope) baseOf(table string, depth int) string {
	body, ok := sc.ctes[strings.ToUpper(table)]
	if !ok || depth > 8 {
		return table
	}
	c := clauses(body)
	if refs := sc.tablesOf(body[max(0, c.from-1):]); c.from > 0 && c.where < 0 && c.having < 0 && !c.limit && len(refs) == 1 {
		return sc.baseOf(refs[0].table, depth+1)
	}
	return table
}

// based puts the tables for the common table expressions that are all of one.
func (sc *scope) based(refs []tableRef) []tableRef {
	for k, r := range refs {
		if base := sc.baseOf(r.table, 0); base != r.table {
			if r.alias == "" {
				r.alias = r.table
			}
			r.table = base
			refs[k] = r
		}
	}
	return refs
}

func singular(table string) string {
	t := strings.ToLower(table)
	switch {
	case strings.HasSuffix(t, "ies"):
		return t[:len(t)-3] + "y"
	case strings.HasSuffix(t, "sses"), strings.HasSuffix(t, "xes"), strings.HasSuffix(t, "ches"):
		return t[:len(t)-2]
	}
	return strings.TrimSuffix(t, "s")
}

// extent is the tokens of the change at t[0], up to the next statement that
// T-SQL would let follow without a semicolon, and where its WHERE stands.
func extent(t []token) (end, where int) {
	depth, where := 0, -1
	for i := 1; i < len(t); i++ {
		tok := &t[i]
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			if depth--; depth < 0 {
				return i, where
			}
		case depth > 0 || tok.kind != word:
		case tok.is("WHERE"):
			if where < 0 {
				where = i
			}
		case where < 0 && tok.is("RETURNING", "OUTPUT"):
		case tok.is("SELECT", "DELETE", "UPDATE", "INSERT", "EXEC", "EXECUTE", "MERGE", "DROP", "DECLARE", "GO") && !t[i-1].sym(".") && !t[i-1].sym(",") && !t[i-1].is("SET", "FOR", "AS", "ON") && (i+1 == len(t) || !t[i+1].sym("=") && !t[i+1].sym("(")):
			return i, where
		}
	}
	return len(t), where
}

// reach is how many rows of table the change at token i may touch.
func (s *stmt) reach(i int, table string) width {
	end, where := extent(s.t[i:])
	t := s.t[i : i+end]
	sc := s.scopeOf(t, table)
	cond := t[len(t):]
	if where >= 0 {
		cond = t[where+1:]
	}
	conds := joinConditions(t[:len(t)-len(cond)])
	if where < 0 && len(conds) == 0 {
		return entirely
	}
	if where >= 0 {
		conds = append(conds, cond)
	}
	return s.widthOf(conds, sc)
}

// widthOf tries conditions that must all hold, first as they stand, then on
// ordinary rows only.
func (s *stmt) widthOf(conds [][]token, sc *scope) width {
	w, p, n := s.try(conds, sc)
	if w != narrow {
		return w
	}
	lenient, r := *sc, *sc.reading
	r.lenient = true
	lenient.reading = &r
	if p.ours == p.columns && !p.queries { // the columns are the same ones
		p.scope = &lenient
		if every, _ := s.sampled(p, n); every {
			return seeming
		}
		return narrow
	}
	if w, _, _ := s.try(conds, &lenient); w != narrow {
		return seeming
	}
	return narrow
}

func (s *stmt) try(conds [][]token, sc *scope) (width, *parser, *node) {
	p := &parser{stmt: s, scope: sc}
	all := node{kind: nodeAnd}
	for _, cond := range conds {
		p.t, p.i = cond, 0
		all.kids = append(all.kids, p.or())
	}
	n := p.node(all)
	if p.odd && p.nodes <= 2 || p.deep || p.ours == 0 && !(s.bars && p.columns == 0 && !p.free) {
		return wide, p, n
	}
	if every, _ := s.sampled(p, n); every {
		return wide, p, n
	}
	return narrow, p, n
}

// Parts of a condition that are computed at most, each worth some tokens of
// the work that a text may make.
const (
	maxEvaluations = 20_000
	evaluationWork = 4
)

// sampled tries a condition on made-up rows: whether all pass and, where that
// is asked for, whether any does.
func (s *stmt) sampled(p *parser, n *node) (all, some bool) {
	all, some = s.sample(p, n, false)
	if p.queries && !all {
		all2, some2 := s.sample(p, n, true)
		return all2, some || some2
	}
	return all, some
}

func (s *stmt) sample(p *parser, n *node, flip bool) (all, some bool) {
	now := float64(time.Now().Unix())
	r := row{now: now, pool: newPool(p, p.scope.lenient, now), lenient: p.scope.lenient, flip: flip}
	tries := max(4, min(512, maxEvaluations/max(1, p.nodes)))
	all = true
	for k := range tries {
		r.k = uint64(k)
		if r.truth(n) == yes {
			some = true
		} else {
			all = false
		}
		if !all && (some || !p.both) {
			break
		}
		if s.work -= p.nodes * evaluationWork; s.work < 0 {
			s.tired()
			return true, true
		}
	}
	return all, some
}

// scopeOf finds the tables of a change: its target with its alias, and those
// it is joined to.
func (s *stmt) scopeOf(t []token, table string) *scope {
	target := table[strings.LastIndexByte(table, '.')+1:]
	sc := &scope{reading: &reading{bars: s.bars, ctes: map[string][]token{}}, target: target, alias: target}
	if slices.ContainsFunc(s.t[:min(4, len(s.t))], func(t token) bool { return t.is("WITH") }) {
		sc.addCTEs(s.t)
	}
	sc.tables = sc.based(sc.tablesOf(t))
	for _, r := range sc.tables {
		if strings.EqualFold(r.alias, target) {
			sc.target = r.table
		}
		if strings.EqualFold(r.table, sc.target) && strings.EqualFold(sc.alias, target) && r.alias != "" && sc.target == target {
			sc.alias = r.alias
		}
	}
	sc.home = sc.target
	sc.own = strings.ToUpper(singular(sc.target)) + "_ID"
	return sc
}

// tablesOf lists the tables that stand behind the keywords that introduce
// them, up to the condition.
func (r *reading) tablesOf(t []token) (refs []tableRef) {
	depth, listing := 0, true
	for i := 0; i < len(t); i++ {
		tok := &t[i]
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth > 0:
		case tok.is("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "RETURNING"):
			return refs
		case tok.is("SET", "ON", "SELECT"):
			listing = false
		case i == 0, tok.is("FROM", "USING", "JOIN", "UPDATE", "INTO"), tok.sym(",") && listing:
			listing = true
			ref, next := r.tableAt(t, i+1)
			if ref.table != "" && len(refs) < 64 {
				refs = append(refs, ref)
				i = next - 1
			}
		}
	}
	return refs
}

func (r *reading) tableAt(t []token, i int) (ref tableRef, next int) {
	for i < len(t) && t[i].is("ONLY", "LATERAL", "LOW_PRIORITY", "QUICK", "IGNORE") {
		i++
	}
	if i+1 < len(t) && t[i].sym("(") && t[i+1].is("SELECT") {
		return r.derived(t, i)
	}
	if i >= len(t) || !t[i].ident() || t[i].is(notNames...) {
		return ref, i
	}
	for i < len(t) && t[i].ident() {
		ref.table = t[i].text
		if i++; i >= len(t) || !t[i].sym(".") {
			break
		}
		for i < len(t) && (t[i].sym(".") || t[i].sym("*")) {
			i++
		}
	}
	if i < len(t) && t[i].sym("*") {
		i++
	}
	if i < len(t) && t[i].is("AS") {
		i++
	}
	if i < len(t) && t[i].ident() && !t[i].is(notNames...) {
		ref.alias = t[i].text
		i++
	}
	return ref, i
}

// derived reads (SELECT …) alias, which is a common table expression that
// stands where it is used.
func (r *reading) derived(t []token, i int) (ref tableRef, next int) {
	end := closing(t[i:])
	if end < 0 {
		return ref, i
	}
	body := t[i+1 : i+end]
	i += end + 1
	if i < len(t) && t[i].is("AS") {
		i++
	}
	ref.alias = "derived " + strconv.Itoa(len(r.ctes))
	if i < len(t) && t[i].ident() && !t[i].is(notNames...) {
		ref.alias = t[i].text
		i++
	}
	if len(r.ctes) < 64 {
		r.ctes[strings.ToUpper(ref.alias)] = body
	}
	ref.table = ref.alias
	return ref, i
}

// notNames are keywords that end a table's name.
var notNames = []string{"FROM", "WHERE", "SET", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ON", "RETURNING", "OUTPUT", "ORDER", "LIMIT", "GROUP", "HAVING", "UNION", "WITH", "STRAIGHT_JOIN", "OUTER", "SELECT", "WINDOW", "FOR", "OFFSET", "FETCH", "TABLESAMPLE", "VALUES", "AS", "TOP", "EXCEPT", "INTERSECT", "PARTITION", "USE", "FORCE"}

// joinConditions are the ON conditions of inner joins: they pick rows as
// WHERE does. An outer join picks none.
func joinConditions(t []token) (conds [][]token) {
	depth, inner := 0, false
	for i := range t {
		tok := &t[i]
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth > 0:
		case tok.is("JOIN", "STRAIGHT_JOIN"):
			inner = !(i > 0 && t[i-1].is("LEFT", "OUTER", "FULL", "CROSS"))
		case tok.is("ON") && inner && len(conds) < 16:
			conds = append(conds, t[i+1:])
			inner = false
		}
	}
	return conds
}

// query is a subquery of a condition.
type query struct {
	wide  bool // it gives every row of its table
	empty bool // it gives no row
	tied  bool // it names columns of the changed table
	// expr is what a query without tables computes.
	expr *node
	// columnKey and aggregate are of the one column that it gives.
	columnKey uint64
	aggregate string
	key       uint64
	more      []query // what UNION adds
}

// subquery reads a query up to the parenthesis that closes it.
func (p *parser) subquery() (q *query) {
	p.queries = true
	start, depth := p.i, 0
	for ; p.i < len(p.t); p.i++ {
		if p.t[p.i].sym("(") {
			depth++
		} else if p.t[p.i].sym(")") {
			if depth--; depth < 0 {
				break
			}
		}
	}
	t := p.t[start:p.i]
	p.i++
	ours := p.ours
	defer func() { q.tied = p.ours > ours }()
	q = &query{key: mix(uint64(p.nodes+1)*0x9e3779b97f4a7c15, uint64(len(t)))}
	if p.work -= len(t); p.work < 0 || p.depth+2 > maxConditionDepth {
		p.deep = true
		return q
	}
	for k, branch := range divide(t, "UNION") {
		b := p.branch(branch)
		if k == 0 {
			b.key = q.key
			*q = b
			continue
		}
		q.more = append(q.more, b)
		q.empty, q.expr = q.empty && b.empty, nil
	}
	return q
}

// holds reports whether the query gives the column key for every row.
func (q *query) holds(key uint64) bool {
	if key != 0 && q.wide && q.columnKey == key && q.aggregate == "" {
		return true
	}
	return slices.ContainsFunc(q.more, func(m query) bool { return m.holds(key) })
}

// divide cuts t at a keyword that stands at depth 0.
func divide(t []token, at string) [][]token {
	var parts [][]token
	depth, start := 0, 0
	for i := range t {
		switch tok := &t[i]; {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth == 0 && tok.is(at):
			parts = append(parts, t[start:i])
			start = i + 1
		}
	}
	return append(parts, t[start:])
}

// branch reads one SELECT.
func (p *parser) branch(t []token) (q query) {
	for len(t) > 0 && t[0].is("ALL", "DISTINCT") {
		t = t[1:]
	}
	switch {
	case len(t) == 0 || t[0].is("VALUES"):
		return q
	case t[0].is("WITH"):
		p.scope.addCTEs(t)
		for len(t) > 0 && !t[0].is("SELECT") {
			if end := closing(t); t[0].sym("(") && end > 0 {
				t = t[end:]
			}
			t = t[1:]
		}
		return p.branch(t)
	case t[0].is("TABLE"):
		q.wide = true
		return q
	case t[0].sym("("):
		if end := closing(t); end > 0 && p.depth < maxConditionDepth {
			p.depth++
			defer func() { p.depth-- }()
			return p.branch(t[1:end])
		}
		return q
	}
	if parts := divide(t, "EXCEPT"); len(parts) == 2 && !slices.ContainsFunc(parts[1], func(t token) bool { return t.is("FROM") }) {
		t = parts[0] // without some constants
	}
	parts := clauses(t)
	sc := &scope{reading: p.scope.reading, target: p.scope.target, alias: p.scope.alias, own: p.scope.own, home: p.scope.home, outer: p.scope}
	if parts.from < 0 {
		inner := p.inner(t[1:max(1, parts.list)], p.scope)
		q.expr = inner.or()
		p.absorb(inner)
	} else if sc.tables = sc.based(sc.tablesOf(t[parts.from-1:])); len(sc.tables) > 0 {
		sc.home = sc.tables[0].table
	}
	p.selected(&q, t[1:max(1, parts.list)], sc)
	q.wide = p.gives(t, parts, sc, &q)
	if q.wide && len(sc.tables) > 0 {
		q.wide = p.cteWide(sc.tables[0].table, sc, &q)
	}
	if q.empty || !q.wide {
		q.expr = nil
	}
	return q
}

// gives reports whether nothing in a query leaves rows out, and notes where
// nothing is left in.
func (p *parser) gives(t []token, parts clauseIndex, sc *scope, q *query) bool {
	if parts.none {
		q.empty = true
		return false
	}
	all := !parts.limit
	if parts.joined {
		for _, cond := range joinConditions(t[max(0, parts.from):]) {
			pass, _ := p.condition(cond, sc)
			all = all && pass
		}
		all = all && parts.from >= 0 && hasOn(t)
	}
	for _, at := range []int{parts.where, parts.having} {
		if at < 0 {
			continue
		}
		pass, some := p.condition(t[at+1:], sc)
		all = all && pass
		q.empty = q.empty || !some
	}
	return all
}

func hasOn(t []token) bool {
	return slices.ContainsFunc(t, func(t token) bool { return t.is("ON") })
}

func (p *parser) condition(t []token, sc *scope) (all, some bool) {
	inner := p.inner(t, sc)
	inner.both = true
	n := inner.or()
	p.absorb(inner)
	if inner.odd && inner.nodes <= 1 {
		return true, true
	}
	return p.sampled(inner, n)
}

func (p *parser) inner(t []token, sc *scope) *parser {
	return &parser{stmt: p.stmt, t: t, scope: sc, depth: p.depth + 1}
}

// absorb counts what an inner parser found. Columns of the target in a
// subquery tie the condition to it.
func (p *parser) absorb(inner *parser) {
	p.ours += inner.ours
	p.columns += inner.columns
	p.nodes += inner.nodes
	p.deep = p.deep || inner.deep
}

// selected notes the one column that a query gives.
func (p *parser) selected(q *query, t []token, sc *scope) {
	for len(t) > 0 && t[0].is("ALL", "DISTINCT") {
		t = t[1:]
	}
	for len(t) > 3 && t[0].is("ARRAY_AGG", "UNNEST") && t[1].sym("(") && t[len(t)-1].sym(")") {
		t = t[2 : len(t)-1]
	}
	if len(t) > 3 && t[1].sym("(") && t[len(t)-1].sym(")") && t[0].is("MAX", "MIN", "COUNT", "SUM", "AVG") {
		q.aggregate = t[0].up()
		t = t[2 : len(t)-1]
	}
	last, qualifier, next := p.nameAtOf(t)
	if next == len(t) && last != "" && last != "*" {
		key, _ := sc.column(qualifier, last)
		q.columnKey = hash(key)
	}
}

func (p *parser) nameAtOf(t []token) (last, qualifier string, next int) {
	inner := parser{t: t}
	return inner.nameAt(0)
}

// cteWide follows the name of a common table expression to what it gives.
func (p *parser) cteWide(table string, sc *scope, q *query) bool {
	body, ok := sc.ctes[strings.ToUpper(table)]
	if !ok || p.depth+1 >= maxConditionDepth {
		return true
	}
	inner := p.inner(body, p.scope)
	delete(sc.ctes, strings.ToUpper(table)) // no circles
	b := inner.branch(body)
	sc.ctes[strings.ToUpper(table)] = body
	if q.columnKey != 0 {
		q.columnKey = b.columnKey
	}
	q.empty = b.empty
	return b.wide
}

// clauseIndex is where the parts of a SELECT stand.
type clauseIndex struct {
	from, where, having int
	joined, limit, none bool
	list                int // where the select list ends
}

func clauses(t []token) clauseIndex {
	c := clauseIndex{from: -1, where: -1, having: -1, list: len(t)}
	depth := 0
	for i := range t {
		tok := &t[i]
		switch {
		case tok.sym("("):
			depth++
		case tok.sym(")"):
			depth--
		case depth > 0 || tok.kind != word:
		case tok.is("FROM") && c.from < 0 && !(i > 0 && t[i-1].is("DISTINCT")):
			c.from = i
			c.end(i)
		case tok.is("WHERE") && c.where < 0:
			c.where = i
			c.end(i)
		case tok.is("HAVING"):
			c.having = i
			c.end(i)
		case tok.is("JOIN") && !(i > 0 && t[i-1].is("LEFT", "OUTER", "FULL", "CROSS")):
			c.joined = true
		case tok.is("LIMIT", "TOP", "FETCH", "OFFSET", "EXCEPT", "INTERSECT", "TABLESAMPLE"):
			c.end(i)
			c.bound(t, i)
		case tok.is("GROUP", "ORDER", "INTO"):
			c.end(i)
		}
	}
	return c
}

func (c *clauseIndex) end(i int) { c.list = min(c.list, i) }

// bound reads LIMIT n: none gives nothing, a huge one or ALL everything.
func (c *clauseIndex) bound(t []token, i int) {
	j := i + 1
	for j < len(t) && (t[j].sym("(") || t[j].is("FIRST", "NEXT")) {
		j++
	}
	switch {
	case t[i].is("OFFSET") && j < len(t) && t[j].kind == number && parseNumber(t[j].text) == 0:
	case j < len(t) && t[j].kind == number && t[i].is("LIMIT", "TOP", "FETCH"):
		n := parseNumber(t[j].text)
		c.none = c.none || n == 0
		c.limit = c.limit || n < 100_000
	case j < len(t) && t[j].is("ALL", "NULL"):
	default:
		c.limit = true
	}
}

// closing is the index of the parenthesis that closes t[0].
func closing(t []token) int {
	depth := 0
	for i := range t {
		if t[i].sym("(") {
			depth++
		} else if t[i].sym(")") {
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// unwrap takes off parentheses around the whole.
func unwrap(t []token) []token {
	for n := 0; n < maxConditionDepth && len(t) >= 2 && t[0].sym("(") && closing(t) == len(t)-1; n++ {
		t = t[1 : len(t)-1]
	}
	return t
}

// addCTEs notes the common table expressions that tokens define.
func (r *reading) addCTEs(t []token) {
	for i := 1; i+2 < len(t) && len(r.ctes) < 64; i++ {
		if !t[i].is("AS") || !t[i-1].ident() {
			continue
		}
		j := i + 1
		for j < len(t) && t[j].is("NOT", "MATERIALIZED") {
			j++
		}
		if j+1 < len(t) && t[j].sym("(") && t[j+1].is("SELECT") {
			if end := closing(t[j:]); end > 0 {
				r.ctes[strings.ToUpper(t[i-1].text)] = t[j+1 : j+end]
			}
		}
	}
}

// words makes a set of a list separated by blanks.
func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}
