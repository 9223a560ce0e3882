package sql

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// function computes a call whose arguments are known; ok is false where it
// cannot be told.
type function func(r *row, n *node, a []value) (v value, ok bool)

// call computes a function. One that is not in the table varies with the row
// where an argument does, and is free where none does.
func (r *row) call(n *node) value {
	a := make([]value, len(n.kids))
	varies := false
	for i, k := range n.kids {
		a[i] = r.value(k)
		varies = varies || a[i].kind == anyValue || k.kind != nodeConst && k.kind != nodeFree && k.kind != nodeCall
	}
	if f := functions()[n.text]; f != nil && len(a) > 0 {
		if v, ok := f(r, n, a); ok {
			return v
		}
	} else if f := niladic()[n.text]; f != nil {
		return f(r)
	}
	if n.text == "COUNT" {
		return r.column(n.key, class{key: true, own: true})
	}
	if varies {
		return r.column(n.key, class{})
	}
	return value{kind: freeValue, key: n.key}
}

// niladic are the functions that stand without arguments, and most of them
// without parentheses.
var niladic = sync.OnceValue(func() map[string]func(r *row) value {
	return map[string]func(r *row) value{
		"NOW": present, "CURRENT_DATE": present, "CURRENT_TIMESTAMP": present, "LOCALTIMESTAMP": present, "SYSDATE": present, "GETDATE": present,
		"GETUTCDATE": present, "SYSDATETIME": present, "CLOCK_TIMESTAMP": present, "STATEMENT_TIMESTAMP": present, "TRANSACTION_TIMESTAMP": present,
		"UTC_TIMESTAMP": present, "CURDATE": present, "SYSTIMESTAMP": present, "CURRENT_TIME": present, "LOCALTIME": present, "SYSUTCDATETIME": present,
		"PI":           func(*row) value { return numberOf(math.Pi) },
		"CURRENT_USER": session, "SESSION_USER": session, "SYSTEM_USER": session, "CURRENT_ROLE": session,
	}
})

func present(r *row) value { return value{kind: momentValue, n: r.now} }
func session(*row) value   { return value{kind: freeValue, key: 1} }

var functions func() map[string]function

func init() { functions = sync.OnceValue(newFunctions) } // some of them use it

func newFunctions() map[string]function {
	same := func(_ *row, _ *node, a []value) (value, bool) { return a[0], true }
	return map[string]function{
		"LENGTH": length, "CHAR_LENGTH": length, "CHARACTER_LENGTH": length, "LEN": length, "OCTET_LENGTH": length, "DATALENGTH": length, "BIT_LENGTH": length,
		"ABS": math1(math.Abs), "SIGN": math1(sign), "FLOOR": math1(math.Floor), "CEIL": math1(math.Ceil), "CEILING": math1(math.Ceil), "ROUND": math1(math.Round),
		"SQRT": math1(math.Sqrt), "EXP": math1(math.Exp), "TRUNC": math1(math.Trunc), "MOD": modulo, "POWER": power, "POW": power,
		"COALESCE": coalesce, "IFNULL": coalesce, "NVL": coalesce, "ISNULL": isNull, "NULLIF": nullIf,
		"GREATEST": extreme(1), "LEAST": extreme(-1), "MAX": extreme(1), "MIN": extreme(-1), "IF": choose, "IIF": choose,
		"LOWER": text1(strings.ToLower), "UPPER": text1(strings.ToUpper), "LCASE": text1(strings.ToLower), "UCASE": text1(strings.ToUpper),
		"TRIM": text1(strings.TrimSpace), "LTRIM": text1(strings.TrimSpace), "RTRIM": text1(strings.TrimSpace), "BTRIM": text1(strings.TrimSpace),
		"REPLACE": replace, "REVERSE": reverse, "REGEXP_LIKE": regexpLike, "YEAR": year, "EXTRACT": extract, "DATE_PART": extract, "UNIX_TIMESTAMP": epoch, "FROM_UNIXTIME": fromEpoch,
		"CONCAT": concat, "REPEAT": repeat, "STRPOS": find(0, 1), "INSTR": find(0, 1), "CHARINDEX": find(1, 0), "LOCATE": find(1, 0), "POSITION": find(1, 0),
		"STARTS_WITH": startsWith, "LEFT": left, "SUBSTR": substr, "SUBSTRING": substr,
		"DATE": same, "TO_DATE": same, "TO_TIMESTAMP": fromEpoch, "DATETIME": dateShift, "TIMESTAMP": same, "CONVERT": same,
		"DATE_SUB": dateMove("-"), "DATE_ADD": dateMove("+"), "ADDDATE": dateMove("+"), "SUBDATE": dateMove("-"), "DATEADD": dateAdd,
	}
}

func length(_ *row, _ *node, a []value) (value, bool) {
	if a[0].kind == nullValue || a[0].kind == freeValue {
		return value{}, false
	}
	return numberOf(float64(len(a[0].text()))), true
}

func sign(x float64) float64 { return float64(orderNumbers(x, 0)) }

func math1(f func(float64) float64) function {
	return func(_ *row, _ *node, a []value) (value, bool) {
		if a[0].kind == nullValue || a[0].kind == freeValue {
			return a[0], true
		}
		return numberOf(f(a[0].number())), true
	}
}

func modulo(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 2 || a[1].number() == 0 {
		return value{}, true
	}
	return numberOf(math.Mod(a[0].number(), a[1].number())), true
}

func power(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 2 {
		return value{}, false
	}
	return numberOf(math.Pow(a[0].number(), a[1].number())), true
}

func coalesce(_ *row, _ *node, a []value) (value, bool) {
	for _, v := range a {
		if v.kind != nullValue {
			return v, true
		}
	}
	return value{}, true
}

func isNull(r *row, n *node, a []value) (value, bool) {
	if len(a) > 1 {
		return coalesce(r, n, a)
	}
	return boolOf(a[0].kind == nullValue), true
}

func nullIf(_ *row, _ *node, a []value) (value, bool) {
	if len(a) == 2 && compareValues("=", a[0], a[1]) == yes {
		return value{}, true
	}
	return a[0], true
}

func extreme(want int) function {
	return func(_ *row, _ *node, a []value) (value, bool) {
		if len(a) == 1 { // MAX(x) of many rows
			return value{}, false
		}
		best := a[0]
		for _, v := range a[1:] {
			if v.kind == freeValue || best.kind == freeValue {
				return value{}, false
			}
			if v.kind != nullValue && (best.kind == nullValue || order(v, best) == want) {
				best = v
			}
		}
		return best, true
	}
}

func choose(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 3 {
		return value{}, false
	}
	if a[0].truth() == yes {
		return a[1], true
	}
	return a[2], true
}

func text1(f func(string) string) function {
	return func(_ *row, _ *node, a []value) (value, bool) {
		if a[0].kind == nullValue || a[0].kind == freeValue {
			return a[0], true
		}
		return textOf(f(clip(a[0].text()))), true
	}
}

func concat(_ *row, _ *node, a []value) (value, bool) {
	var b strings.Builder
	for _, v := range a {
		if v.kind == freeValue || b.Len() > maxText {
			return value{}, false
		}
		if v.kind != nullValue {
			b.WriteString(clip(v.text()))
		}
	}
	return textOf(b.String()), true
}

func repeat(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 2 || a[1].number() < 0 || a[1].number() > 100 || len(a[0].text()) > 100 {
		return value{}, false
	}
	return textOf(strings.Repeat(a[0].text(), int(a[1].number()))), true
}

// find is the position, from 1, of argument needle in argument hay.
func find(hay, needle int) function {
	return func(_ *row, _ *node, a []value) (value, bool) {
		if len(a) < 2 || a[0].kind == nullValue || a[1].kind == nullValue {
			return value{}, len(a) >= 2
		}
		if a[0].kind == freeValue || a[1].kind == freeValue {
			return value{}, false
		}
		return numberOf(float64(strings.Index(clip(a[hay].text()), clip(a[needle].text())) + 1)), true
	}
}

func startsWith(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 2 || a[0].kind == nullValue || a[1].kind == nullValue {
		return value{}, true
	}
	return boolOf(strings.HasPrefix(a[0].text(), a[1].text())), true
}

func left(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 2 || a[0].kind == nullValue || a[0].kind == freeValue {
		return value{}, false
	}
	s := a[0].text()
	return textOf(s[:min(len(s), int(max(0, min(a[1].number(), 1e6))))]), true
}

func substr(_ *row, _ *node, a []value) (value, bool) {
	if len(a) < 2 || a[0].kind == nullValue || a[0].kind == freeValue || a[1].number() < 1 || a[1].number() > 1e6 {
		return value{}, false
	}
	s := a[0].text()
	s = s[min(len(s), int(a[1].number())-1):]
	if len(a) > 2 {
		s = s[:min(len(s), int(max(0, min(a[2].number(), 1e6))))]
	}
	return textOf(s), true
}

func replace(_ *row, _ *node, a []value) (value, bool) {
	if len(a) != 3 || a[0].kind == nullValue || a[0].kind == freeValue || a[1].text() == "" {
		return value{}, false
	}
	return textOf(clip(strings.ReplaceAll(clip(a[0].text()), clip(a[1].text()), clip(a[2].text())))), true
}

func reverse(_ *row, _ *node, a []value) (value, bool) {
	if a[0].kind == nullValue || a[0].kind == freeValue {
		return a[0], true
	}
	r := []rune(clip(a[0].text()))
	slices.Reverse(r)
	return textOf(string(r)), true
}

func regexpLike(_ *row, n *node, a []value) (value, bool) {
	if len(a) < 2 || a[0].kind == nullValue || a[0].kind == freeValue || n.kids[1].kind != nodeConst {
		return value{}, false
	}
	if n.re == nil {
		n.re = expression("~", a[1].text())
	}
	if n.re == nil {
		return value{}, false
	}
	return boolOf(n.re.MatchString(clip(a[0].text()))), true
}

func year(_ *row, _ *node, a []value) (value, bool) {
	if a[0].kind == nullValue || a[0].kind == freeValue {
		return value{}, false
	}
	return numberOf(float64(time.Unix(int64(a[0].seconds()), 0).UTC().Year())), true
}

func epoch(_ *row, _ *node, a []value) (value, bool) {
	if a[0].kind == nullValue || a[0].kind == freeValue {
		return value{}, false
	}
	return numberOf(a[0].seconds()), true
}

func fromEpoch(_ *row, _ *node, a []value) (value, bool) {
	if a[0].kind == numberValue {
		return value{kind: momentValue, n: a[0].n}, true
	}
	return a[0], true
}

// extract is EXTRACT(YEAR FROM x) and DATE_PART('year', x).
func extract(r *row, n *node, a []value) (value, bool) {
	if len(a) != 2 {
		return value{}, false
	}
	field := n.kids[0].text
	if n.kids[0].kind == nodeConst {
		field = a[0].s
	}
	switch field = strings.ToLower(field); field[strings.LastIndexByte(field, '.')+1:] {
	case "year":
		return year(r, n, a[1:])
	case "epoch":
		return epoch(r, n, a[1:])
	}
	return value{}, false
}

// dateShift is SQLite's datetime('now', '-30 days').
func dateShift(r *row, _ *node, a []value) (value, bool) {
	v := a[0]
	if v.kind == textValue && strings.EqualFold(v.s, "now") {
		v = present(r)
	}
	for _, by := range a[1:] {
		if by.kind == textValue {
			v = shift("+", v, value{kind: spanValue, n: span(by.s)})
		}
	}
	return v, true
}

func dateMove(op string) function {
	return func(_ *row, _ *node, a []value) (value, bool) {
		if len(a) != 2 || a[0].kind == nullValue {
			return value{}, false
		}
		return shift(op, a[0], a[1]), true
	}
}

// dateAdd is T-SQL's DATEADD(day, -30, GETDATE()).
func dateAdd(_ *row, n *node, a []value) (value, bool) {
	if len(a) != 3 || n.kids[0].kind != nodeColumn || a[2].kind == nullValue {
		return value{}, false
	}
	unit := strings.ToUpper(n.kids[0].text)
	unit = unit[strings.LastIndexByte(unit, '.')+1:]
	u, ok := units()[strings.TrimSuffix(unit, "S")]
	if !ok {
		u = 86400
	}
	return shift("+", a[2], value{kind: spanValue, n: a[1].number() * u}), true
}
