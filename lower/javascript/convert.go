package javascript

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/tdewolff/parse/v2/js"
)

// truthOf is whether a value counts as true.
func truthOf(v value) (b, known bool) {
	switch v.k {
	case vUndef, vNull:
		return false, true
	case vBool, vNum:
		return v.n != 0 && !math.IsNaN(v.n), true
	case vStr:
		if v.s == hole {
			return false, false
		}
		return v.s != "", true
	case vSym:
		// Globals of one runtime are absent in another.
		return true, !tables().optional(v.s)
	}
	return true, true
}

func truth(s set) (b, known bool) {
	if s.unk || len(s.vs) == 0 {
		return false, false
	}
	b, known = truthOf(s.vs[0])
	for _, v := range s.vs[1:] {
		c, k := truthOf(v)
		known = known && k && b == c
	}
	return b, known
}

func nullish(s set) (b, known bool) {
	if s.unk || len(s.vs) == 0 {
		return false, false
	}
	is := func(v value) bool { return v.k == vUndef || v.k == vNull }
	b = is(s.vs[0])
	for _, v := range s.vs {
		if is(v) != b || v.k == vSym && tables().optional(v.s) {
			return false, false
		}
	}
	return b, true
}

func typeOf(s set) set {
	v, ok := s.single()
	if !ok {
		return unknown
	}
	switch v.k {
	case vUndef:
		return str("undefined")
	case vBool:
		return str("boolean")
	case vNum:
		return str("number")
	case vStr:
		return str("string")
	case vFunc, vClass, vBound, vMethod:
		return str("function")
	case vSym:
		return unknown
	}
	return str("object")
}

// strictEqual is ===, where it can be told.
func strictEqual(x, y set) (eq, known bool) {
	v, ok := x.single()
	w, ok2 := y.single()
	if !ok || !ok2 || hasHole(v.s) || hasHole(w.s) || v.k >= vArray || w.k >= vArray {
		return false, false
	}
	return v == w, true
}

var numeral = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Infinity|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+)$`)
})

// toNumber is Number(v).
func toNumber(v value) (float64, bool) {
	switch v.k {
	case vUndef:
		return nan, true
	case vNull:
		return 0, true
	case vBool, vNum:
		return v.n, true
	case vStr:
		t := strings.Trim(v.s, blanks)
		if hasHole(t) {
			return 0, false
		}
		if t == "" {
			return 0, true
		}
		if !numeral().MatchString(t) {
			return nan, true
		}
		n, ok := parseNumber(t)
		return n, ok
	}
	return 0, false
}

func (a *analysis) toNum(s set) (float64, bool) {
	v, ok := s.single()
	if !ok {
		return 0, false
	}
	if v.k == vArray || v.k == vObject {
		t, ok := a.toText(v)
		if !ok || hasHole(t) {
			return 0, false
		}
		return toNumber(value{k: vStr, s: t})
	}
	return toNumber(v)
}

// numberText is String(n).
func numberText(n float64) string {
	switch {
	case math.IsNaN(n):
		return "NaN"
	case math.IsInf(n, 1):
		return "Infinity"
	case math.IsInf(n, -1):
		return "-Infinity"
	case n == math.Trunc(n) && math.Abs(n) < 1e21:
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strings.Replace(strconv.FormatFloat(n, 'g', -1, 64), "e-0", "e-", 1)
}

// toText is String(v), with holes; false where nothing of it is known.
func (a *analysis) toText(v value) (string, bool) {
	switch v.k {
	case vUndef:
		return "undefined", true
	case vNull:
		return "null", true
	case vBool:
		return strconv.FormatBool(v.n != 0), true
	case vNum:
		return numberText(v.n), true
	case vStr, vURL, vBytes:
		return v.s, true
	case vRegex:
		flags, _ := v.p.(string)
		return "/" + v.s + "/" + flags, true
	case vArray:
		return a.joinItems(v.p.(*array), ",")
	case vObject:
		return a.objectText(v)
	case vMethod:
		return "function " + v.p.(*method).name + "() { [native code] }", true
	case vSym:
		if tables().isConstructor(v.s) {
			return "function " + v.s + "() { [native code] }", true
		}
		if v.s == "globalThis" {
			return "[object global]", true
		}
	}
	return hole, false
}

func (a *analysis) objectText(v value) (string, bool) {
	o := v.p.(*object)
	for _, name := range []string{"@@Symbol.toPrimitive", "toString", "valueOf"} {
		if p, ok := o.props[name]; ok || o.class != nil {
			f := a.member(one(v), name)
			if ok {
				f = a.property(one(v), p)
			}
			if w, ok := f.single(); ok && (w.k == vFunc || w.k == vBound) {
				r := a.callValue(w, one(v), []set{str("string")})
				if w, ok := r.single(); ok && w.k < vArray {
					return a.toText(w)
				}
				return hole, false
			}
		}
	}
	if o.open || o.class != nil || len(o.proto.vs) > 0 {
		return hole, false
	}
	return "[object Object]", true
}

func (a *analysis) joinItems(r *array, sep string) (string, bool) {
	if r.fuzzy || !a.tick() {
		return hole, false
	}
	a.charge(8 * len(r.items))
	var b strings.Builder
	for i, s := range r.items {
		if i > 0 {
			b.WriteString(sep)
		}
		v, ok := s.single()
		switch {
		case !ok:
			b.WriteString(hole)
		case v.k == vUndef || v.k == vNull:
		case v.k == vArray && v.p.(*array) == r:
		default:
			a.nest++
			t := hole
			if a.nest < maxNest {
				t, _ = a.toText(v)
			}
			a.nest--
			b.WriteString(t)
		}
		if b.Len() > maxText {
			return clip(b.String()), true
		}
	}
	return b.String(), true
}

// texts are the texts that a set can be; a hole stands for unknown ones.
func (a *analysis) texts(s set) []string {
	var out []string
	for _, v := range s.vs {
		// Where it can be something else, nobody means "undefined".
		if (v.k == vUndef || v.k == vNull) && len(s.vs) > 1 {
			continue
		}
		t, _ := a.toText(v)
		out = append(out, t)
	}
	if s.unk || len(out) == 0 {
		out = append(out, hole)
	}
	return out
}

// concat is x + y as texts.
func (a *analysis) concat(x, y set) set {
	out := set{}.with(x, y)
	xs, ys := a.texts(x), a.texts(y)
	if len(xs)*len(ys) > maxValues {
		ys = []string{hole}
		if len(xs) > maxValues/2 {
			xs = []string{hole}
		}
	}
	for _, s := range xs {
		for _, t := range ys {
			s := s
			if strings.HasSuffix(s, hole) && strings.HasPrefix(t, hole) {
				t = t[len(hole):]
			}
			a.charge(len(s) + len(t))
			v := value{k: vStr, s: clip(s + t)}
			if !contains(out.vs, v) {
				out.add(v)
			}
		}
	}
	return out
}

// operate is x op y.
func (a *analysis) operate(op js.TokenType, x, y set) set {
	switch op {
	case js.AddToken:
		return a.add(x, y)
	case js.EqEqEqToken, js.EqEqToken, js.NotEqEqToken, js.NotEqToken:
		eq, ok := strictEqual(x, y)
		if !ok || (op == js.EqEqToken || op == js.NotEqToken) && x.vs[0].k != y.vs[0].k {
			return unknown
		}
		return boolean(eq == (op == js.EqEqEqToken || op == js.EqEqToken))
	case js.InstanceofToken:
		return unknown
	case js.LtToken, js.GtToken, js.LtEqToken, js.GtEqToken:
		return a.compare(op, x, y)
	}
	m, ok := a.toNum(x)
	n, ok2 := a.toNum(y)
	if !ok || !ok2 {
		return tainted(x, y)
	}
	return arithmetic(op, m, n).with(x, y)
}

func arithmetic(op js.TokenType, m, n float64) set {
	shift := uint32(toInt32(n)) & 31
	switch op {
	case js.SubToken:
		return num(m - n)
	case js.MulToken:
		return num(m * n)
	case js.DivToken:
		return num(m / n)
	case js.ModToken:
		return num(math.Mod(m, n))
	case js.ExpToken:
		return num(math.Pow(m, n))
	case js.BitAndToken:
		return num(float64(toInt32(m) & toInt32(n)))
	case js.BitOrToken:
		return num(float64(toInt32(m) | toInt32(n)))
	case js.BitXorToken:
		s := num(float64(toInt32(m) ^ toInt32(n)))
		s.t |= decoded
		return s
	case js.LtLtToken:
		return num(float64(toInt32(m) << shift))
	case js.GtGtToken:
		return num(float64(toInt32(m) >> shift))
	case js.GtGtGtToken:
		return num(float64(uint32(toInt32(m)) >> shift))
	}
	return unknown
}

func (a *analysis) compare(op js.TokenType, x, y set) set {
	s, ok := x.text()
	t, ok2 := y.text()
	var c int
	if ok && ok2 {
		c = strings.Compare(s, t)
	} else {
		m, ok := a.toNum(x)
		n, ok2 := a.toNum(y)
		if !ok || !ok2 {
			return unknown
		}
		if math.IsNaN(m) || math.IsNaN(n) {
			return boolean(false)
		}
		switch {
		case m < n:
			c = -1
		case m > n:
			c = 1
		}
	}
	switch op {
	case js.LtToken:
		return boolean(c < 0)
	case js.GtToken:
		return boolean(c > 0)
	case js.LtEqToken:
		return boolean(c <= 0)
	}
	return boolean(c >= 0)
}

// add is x + y: a sum of numbers, else of texts.
func (a *analysis) add(x, y set) set {
	numeric := func(s set) bool {
		for _, v := range s.vs {
			if v.k > vNum {
				return false
			}
		}
		return true
	}
	if numeric(x) && numeric(y) && !x.unk && !y.unk {
		m, ok := a.toNum(x)
		n, ok2 := a.toNum(y)
		if ok && ok2 {
			return num(m+n).with(x, y)
		}
		return tainted(x, y)
	}
	if (x.unk && len(x.vs) == 0 || numeric(x)) && (y.unk && len(y.vs) == 0 || numeric(y)) {
		return tainted(x, y)
	}
	return a.concat(x, y)
}
