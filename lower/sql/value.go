package sql

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// valueKind is the type of a value in a sampled row.
type valueKind uint8

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	textValue
	momentValue // n: seconds since 1970
	spanValue   // n: seconds
	freeValue   // not known, the same for every row
	anyValue    // of a column: as number, text, moment or truth, as it is asked for
	tupleValue
)

// value is one value in a sampled row.
type value struct {
	kind  valueKind
	n     float64 // number, truth (0 or 1), seconds
	s     string
	at    float64 // anyValue: as a moment
	key   uint64  // anyValue, freeValue: which
	class class
	parts []value
}

func numberOf(n float64) value { return value{kind: numberValue, n: n} }
func textOf(s string) value    { return value{kind: textValue, s: s} }
func boolOf(b bool) value {
	v := value{kind: boolValue}
	if b {
		v.n = 1
	}
	return v
}

// truth is a condition's outcome in three-valued logic.
type truth uint8

const (
	unknown truth = iota
	no
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) not() truth {
	switch t {
	case yes:
		return no
	case no:
		return yes
	}
	return unknown
}

func (t truth) value() value {
	if t == unknown {
		return value{}
	}
	return boolOf(t == yes)
}

// truth takes a value as a condition.
func (v value) truth() truth {
	switch v.kind {
	case nullValue:
		return unknown
	case textValue:
		switch strings.ToLower(strings.TrimSpace(v.s)) {
		case "t", "true", "y", "yes", "on":
			return yes
		}
		return truthOf(parseNumber(v.s) != 0)
	case freeValue:
		return yes
	case anyValue:
		if v.class.own {
			return yes
		}
		return truthOf(v.key&1 == 1)
	}
	return truthOf(v.n != 0)
}

// number takes a value as a number, as the forgiving dialects do.
func (v value) number() float64 {
	if v.kind == textValue {
		return parseNumber(v.s)
	}
	return v.n
}

func (v value) text() string {
	switch {
	case v.kind == textValue:
		return v.s
	case v.kind == anyValue && !v.class.own && !v.class.key:
		return v.s
	case v.kind == boolValue:
		return map[bool]string{true: "true", false: "false"}[v.n != 0]
	}
	return strconv.FormatFloat(v.n, 'f', -1, 64)
}

// parseNumber reads the number that s starts with, 0 if there is none.
func parseNumber(s string) float64 {
	s = strings.ReplaceAll(strings.TrimSpace(s), "_", "")
	if n, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(n) {
		return n
	}
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return float64(n)
	}
	end := 0
	for end < len(s) && (isDigit(s[end]) || s[end] == '.' && end > 0 || s[end] == '-' && end == 0) {
		end++
	}
	n, _ := strconv.ParseFloat(s[:end], 64)
	return n
}

func isNumeric(s string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return err == nil
}

var layouts = []string{time.DateOnly, "2006-01-02 15:04:05", time.RFC3339, "2006-01-02 15:04", "20060102", "2006/01/02", "2006-1-2"}

// moment reads a date or a time.
func moment(s string) (seconds float64, ok bool) {
	if at, ok := namedMoment(s); ok {
		return at, true
	}
	if len(s) < 8 || len(s) > 40 || !isDigit(s[0]) {
		return 0, false
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return float64(t.Unix()), true
		}
	}
	if len(s) > 10 {
		return moment(s[:10])
	}
	return 0, false
}

// namedMoment reads PostgreSQL's words for moments.
func namedMoment(s string) (seconds float64, ok bool) {
	if len(s) < 3 || len(s) > 9 {
		return 0, false
	}
	switch strings.ToLower(s) {
	case "epoch", "-infinity":
		return 0, true
	case "infinity":
		return 1e15, true
	case "now", "today":
		return float64(time.Now().Unix()), true
	case "tomorrow":
		return float64(time.Now().Unix() + 86400), true
	}
	return 0, false
}

// units are spans of time in seconds.
var units = sync.OnceValue(func() map[string]float64 {
	return map[string]float64{
		"MICROSECOND": 1e-6, "MILLISECOND": 1e-3, "SECOND": 1, "SEC": 1, "MINUTE": 60, "MIN": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800,
		"MONTH": 2629800, "MON": 2629800, "QUARTER": 7889400, "YEAR": 31557600, "DECADE": 315576000, "CENTURY": 3155760000,
	}
})

// span reads "3 days 2 hours", "-30 days", "01:00:00".
func span(s string) float64 {
	fields := strings.Fields(strings.ToUpper(s))
	if len(fields) > 16 {
		fields = fields[:16]
	}
	total, last := 0.0, 0.0
	for _, f := range fields {
		if u, ok := units()[strings.TrimSuffix(f, "S")]; ok {
			total += last * u
			last = 0
			continue
		}
		if h, m, ok := strings.Cut(f, ":"); ok {
			total += parseNumber(h)*3600 + parseNumber(m)*60
			continue
		}
		last = parseNumber(f)
	}
	return total + last*86400
}

// order compares two numbers or texts: -1, 0, 1.
func orderNumbers(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// compareValues applies =, <>, <, >, <= or >= to two values.
func compareValues(op string, a, b value) truth {
	switch {
	case op == "<=>":
		return truthOf(!distinct(a, b))
	case a.kind == nullValue || b.kind == nullValue:
		return unknown
	case a.kind == tupleValue && b.kind == tupleValue:
		return compareTuples(op, a.parts, b.parts)
	case a.kind == freeValue || b.kind == freeValue:
		return compareFree(op, a, b)
	}
	return ordered(op, order(a, b))
}

func ordered(op string, c int) truth {
	switch op {
	case "=":
		return truthOf(c == 0)
	case "<>":
		return truthOf(c != 0)
	case "<":
		return truthOf(c < 0)
	case ">":
		return truthOf(c > 0)
	case "<=":
		return truthOf(c <= 0)
	}
	return truthOf(c >= 0)
}

// compareFree: what is not known and the same for every row picks some rows
// when a column is held against it, and may be chosen to pick all when not.
func compareFree(op string, a, b value) truth {
	if a.kind == b.kind && a.key == b.key {
		return ordered(op, 0)
	}
	if a.kind != anyValue && b.kind != anyValue {
		return yes
	}
	return truthOf((a.key^b.key)&1 == 1)
}

func compareTuples(op string, a, b []value) truth {
	if len(a) != len(b) {
		return unknown
	}
	for i := range a {
		switch compareValues("=", a[i], b[i]) {
		case unknown:
			return unknown
		case no:
			if op == "=" || op == "<>" {
				return truthOf(op == "<>")
			}
			return compareValues(op, a[i], b[i])
		}
	}
	return ordered(op, 0)
}

// order compares two values that are not NULL, by the type of the one that
// has a type.
func order(a, b value) int {
	if a.kind == anyValue && b.kind == anyValue {
		return orderNumbers(a.n, b.n)
	}
	if b.kind == anyValue {
		return -order(b, a)
	}
	switch {
	case a.kind == momentValue || b.kind == momentValue:
		return orderNumbers(a.seconds(), b.seconds())
	case a.kind == anyValue && b.kind == textValue:
		return orderColumn(a, b.s)
	case a.kind == anyValue && b.kind == boolValue:
		return orderNumbers(float64(a.key&1), b.n)
	case a.kind == anyValue && a.class.textual && b.kind == numberValue:
		return orderNumbers(0, b.n) // MySQL takes a word for 0
	case a.kind == textValue && b.kind == textValue:
		if strings.EqualFold(strings.TrimRight(a.s, " "), strings.TrimRight(b.s, " ")) {
			return 0 // as MySQL's and T-SQL's usual collations have it
		}
		return strings.Compare(a.s, b.s)
	}
	return orderNumbers(a.number(), b.number())
}

func orderColumn(a value, s string) int {
	if at, ok := moment(s); ok {
		return orderNumbers(a.at, at)
	}
	if isNumeric(s) && !a.class.textual {
		return orderNumbers(a.n, parseNumber(s))
	}
	if a.class.key && lowest(s) {
		return 1
	}
	if a.class.key && highest(s) {
		return -1
	}
	return strings.Compare(a.s, s)
}

func (v value) seconds() float64 {
	switch v.kind {
	case anyValue:
		return v.at
	case textValue:
		at, _ := moment(v.s)
		return at
	}
	return v.n
}

func distinct(a, b value) bool {
	if a.kind == nullValue || b.kind == nullValue {
		return a.kind != b.kind
	}
	return compareValues("=", a, b) != yes
}

// mix and hash are FNV-1a over words and bytes, with a final shuffle.
func mix(a, b uint64) uint64 {
	h := (a ^ b) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

func floatBits(f float64) uint64 { return math.Float64bits(f) }
