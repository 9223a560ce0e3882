package python

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

func hasHole(s string) bool { return strings.Contains(s, hole) }

// maxCombos bounds how many combinations of possible values are folded.
const maxCombos = 64

// product calls f for the combinations of the arguments' values; an argument
// that may be something else takes part as a hole. It gives up where f does.
func product(args []set, f func([]value) (value, bool)) (set, bool) {
	vals := make([]value, len(args))
	out := set{}
	n := 0
	var walk func(i int) bool
	walk = func(i int) bool {
		if i == len(args) {
			if n++; n > maxCombos {
				return false
			}
			v, ok := f(vals)
			if ok {
				out = join(out, one(v))
			}
			return ok
		}
		for _, v := range args[i].vs {
			if vals[i] = v; !walk(i + 1) {
				return false
			}
		}
		if args[i].unk || len(args[i].vs) == 0 {
			vals[i] = value{k: vStr, s: hole}
			return walk(i + 1)
		}
		return true
	}
	ok := walk(0)
	return out.with(args...), ok && len(out.vs) > 0
}

// binary folds an operator.
func (a *analysis) binary(op syntax.Kind, l, r set) set {
	if op == syntax.Percent {
		if s, ok := a.percent(l, r); ok {
			return s
		}
	}
	a.dump(l, "combined")
	a.dump(r, "combined")
	if (l.unk || len(l.vs) == 0) && (r.unk || len(r.vs) == 0) {
		return tainted(l, r)
	}
	alternatives := len(l.vs) > 1 || len(r.vs) > 1
	s, ok := product([]set{l, r}, func(v []value) (value, bool) {
		if alternatives && len(v[0].s)+len(v[1].s) > 128 {
			return value{}, false // text that a loop makes longer and longer
		}
		return fold2(op, v[0], v[1])
	})
	if !ok {
		return tainted(l, r)
	}
	for _, v := range s.vs {
		a.steps += len(v.s) / 64
		if v.k == vSeq {
			v.p.(*sequence).born = a.maybe
		}
	}
	return s
}

func fold2(op syntax.Kind, x, y value) (value, bool) {
	switch {
	case op == syntax.Slash && x.k == vPath:
		return value{k: vPath, s: joinPath(x.s, y.display())}, true
	case op == syntax.Slash && y.k == vPath:
		return value{k: vPath, s: joinPath(x.display(), y.s)}, true
	case op == syntax.Plus && x.k == vStr && y.k == vStr:
		return value{k: vStr, s: squeeze(x.s + y.s)}, len(x.s)+len(y.s) < maxText
	case op == syntax.Plus && x.k == vBytes && y.k == vBytes:
		return value{k: vBytes, s: x.s + y.s}, len(x.s)+len(y.s) < maxText
	case op == syntax.Plus && x.k == vStr && x.s != hole && y.k > vBytes:
		return value{k: vStr, s: squeeze(x.s + hole)}, true
	case op == syntax.Plus && x.k == vSeq && y.k == vSeq:
		return addSequences(x, y)
	case op == syntax.Star && (x.k == vStr || x.k == vBytes || x.k == vSeq) && (y.k == vInt || y.k == vBool):
		return repeated(x, y.n)
	case op == syntax.Star && (y.k == vStr || y.k == vBytes || y.k == vSeq) && (x.k == vInt || x.k == vBool):
		return repeated(y, x.n)
	case op == syntax.Pipe && x.k == vMap && y.k == vMap:
		m := &mapping{}
		m.merge(one(x))
		m.merge(one(y))
		return value{k: vMap, p: m}, true
	}
	return arithmetic(op, x, y)
}

// squeeze makes adjacent holes one, so that loops reach an end.
func squeeze(s string) string {
	if strings.Contains(s, hole+hole) {
		s = strings.ReplaceAll(s, hole+hole, hole)
		for strings.Contains(s, hole+hole) {
			s = strings.ReplaceAll(s, hole+hole, hole)
		}
	}
	return s
}

func addSequences(x, y value) (value, bool) {
	p, q := x.p.(*sequence), y.p.(*sequence)
	if len(p.items)+len(q.items) > maxItems {
		return value{}, false
	}
	items := make([]set, 0, len(p.items)+len(q.items))
	items = append(append(items, p.items...), q.items...)
	return value{k: vSeq, p: &sequence{items: items, kind: p.kind, fuzzy: p.fuzzy || q.fuzzy}}, true
}

func repeated(x value, n int64) (value, bool) {
	n = max(n, 0)
	if x.k == vSeq {
		q := x.p.(*sequence)
		if n*int64(len(q.items)) > maxItems {
			return value{}, false
		}
		items := make([]set, 0, int(n)*len(q.items))
		for range n {
			items = append(items, q.items...)
		}
		return value{k: vSeq, p: &sequence{items: items, kind: q.kind, fuzzy: q.fuzzy}}, true
	}
	if len(x.s) == 0 || n == 0 {
		return value{k: x.k}, true
	}
	if n > maxText || n*int64(len(x.s)) > maxText {
		return value{}, false
	}
	return value{k: x.k, s: strings.Repeat(x.s, int(n))}, true
}

func arithmetic(op syntax.Kind, x, y value) (value, bool) {
	if x.k == vBig || y.k == vBig {
		return bigArithmetic(op, x, y)
	}
	if x.k != vInt && x.k != vBool || y.k != vInt && y.k != vBool {
		return floatArithmetic(op, x, y)
	}
	m, n := x.n, y.n
	res := func(i int64) (value, bool) { return value{k: vInt, n: i}, true }
	switch op {
	case syntax.Plus, syntax.Minus, syntax.Star:
		if max(m, -m, n, -n) > 1<<31 {
			return bigArithmetic(op, x, y)
		}
		switch op {
		case syntax.Plus:
			return res(m + n)
		case syntax.Minus:
			return res(m - n)
		}
		return res(m * n)
	case syntax.Amp:
		return res(m & n)
	case syntax.Pipe:
		return res(m | n)
	case syntax.Caret:
		return res(m ^ n)
	case syntax.RShift:
		if n >= 0 {
			return res(m >> min(uint64(n), 63))
		}
	case syntax.LShift, syntax.DoubleStar:
		return bigArithmetic(op, x, y)
	case syntax.DoubleSlash, syntax.Percent:
		if n != 0 {
			q, r := m/n, m%n
			if r != 0 && (r < 0) != (n < 0) {
				q, r = q-1, r+n
			}
			if op == syntax.Percent {
				return res(r)
			}
			return res(q)
		}
	case syntax.Slash:
		if n != 0 {
			return value{k: vFloat, f: float64(m) / float64(n)}, true
		}
	}
	return value{}, false
}

func floatArithmetic(op syntax.Kind, x, y value) (value, bool) {
	num := func(v value) (float64, bool) {
		if v.k == vFloat {
			return v.f, true
		}
		return float64(v.n), v.k == vInt || v.k == vBool
	}
	f, ok := num(x)
	g, ok2 := num(y)
	if !ok || !ok2 {
		return value{}, false
	}
	switch op {
	case syntax.Plus:
		f += g
	case syntax.Minus:
		f -= g
	case syntax.Star:
		f *= g
	case syntax.Slash:
		if g == 0 {
			return value{}, false
		}
		f /= g
	default:
		return value{}, false
	}
	return value{k: vFloat, f: f}, true
}

const maxBits = 1 << 16

func bigArithmetic(op syntax.Kind, x, y value) (value, bool) {
	p, ok := x.big()
	q, ok2 := y.big()
	if !ok || !ok2 {
		return value{}, false
	}
	r := new(big.Int)
	switch op {
	case syntax.Plus:
		r.Add(p, q)
	case syntax.Minus:
		r.Sub(p, q)
	case syntax.Star:
		r.Mul(p, q)
	case syntax.Amp:
		r.And(p, q)
	case syntax.Pipe:
		r.Or(p, q)
	case syntax.Caret:
		r.Xor(p, q)
	case syntax.LShift, syntax.RShift:
		if q.Sign() < 0 || q.BitLen() > 16 || q.Int64() > maxBits {
			return value{}, false
		}
		if op == syntax.LShift {
			r.Lsh(p, uint(q.Int64()))
		} else {
			r.Rsh(p, uint(q.Int64()))
		}
	case syntax.DoubleStar:
		if q.Sign() < 0 || q.BitLen() > 16 || int64(p.BitLen())*q.Int64() > maxBits {
			return value{}, false
		}
		r.Exp(p, q, nil)
	case syntax.DoubleSlash, syntax.Percent:
		if q.Sign() == 0 {
			return value{}, false
		}
		d, m := new(big.Int).DivMod(p, q, new(big.Int))
		if q.Sign() < 0 {
			return value{}, false // Euclid and Python part here
		}
		r = d
		if op == syntax.Percent {
			r = m
		}
	default:
		return value{}, false
	}
	if r.BitLen() > maxBits {
		return value{}, false
	}
	if r.IsInt64() {
		return value{k: vInt, n: r.Int64()}, true
	}
	return value{k: vBig, p: r}, true
}

func (v value) big() (*big.Int, bool) {
	switch v.k {
	case vInt, vBool:
		return big.NewInt(v.n), true
	case vBig:
		return v.p.(*big.Int), true
	}
	return nil, false
}

// indexSequence is v[i] for text, bytes and sequences.
func indexSequence(v value, i set) set {
	n, ok := i.single()
	if ok && n.k == vSeq && n.p.(*sequence).kind == 's' {
		return slice(v, n.p.(*sequence))
	}
	if ok && (n.k == vInt || n.k == vBool) {
		if item, ok := at(v, n.n); ok {
			return item
		}
	}
	if v.k == vSeq {
		return v.p.(*sequence).union()
	}
	if v.k == vStr {
		return str(hole)
	}
	return unknown
}

func at(v value, n int64) (set, bool) {
	switch v.k {
	case vSeq:
		q := v.p.(*sequence)
		if n < 0 {
			n += int64(len(q.items))
		}
		if !q.fuzzy && n >= 0 && n < int64(len(q.items)) {
			return q.items[n], true
		}
	case vBytes:
		if n < 0 {
			n += int64(len(v.s))
		}
		if n >= 0 && n < int64(len(v.s)) {
			return integer(int64(v.s[n])), true
		}
	case vStr:
		if hasHole(v.s) {
			return set{}, false
		}
		if ascii(v.s) {
			if n < 0 {
				n += int64(len(v.s))
			}
			if n >= 0 && n < int64(len(v.s)) {
				return str(v.s[n : n+1]), true
			}
			return set{}, false
		}
		r := []rune(v.s)
		if n < 0 {
			n += int64(len(r))
		}
		if n >= 0 && n < int64(len(r)) {
			return str(string(r[n])), true
		}
	}
	return set{}, false
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func slice(v value, s *sequence) set {
	bound := func(i int) (int64, bool, bool) { // value, given, known
		b, ok := s.items[i].single()
		if !ok || b.k != vInt && b.k != vNone && b.k != vBool {
			return 0, false, false
		}
		return b.n, b.k != vNone, true
	}
	lo, hasLo, ok1 := bound(0)
	hi, hasHi, ok2 := bound(1)
	step, hasStep, ok3 := bound(2)
	if !hasStep {
		step = 1
	}
	if !ok1 || !ok2 || !ok3 || step == 0 || v.k == vStr && hasHole(v.s) || v.k == vSeq && v.p.(*sequence).fuzzy {
		return sliceUnknown(v, hasLo && lo != 0, step)
	}
	var runes []rune
	n := int64(len(v.s))
	switch v.k {
	case vSeq:
		n = int64(len(v.p.(*sequence).items))
	case vStr:
		if !ascii(v.s) {
			runes = []rune(v.s)
			n = int64(len(runes))
		}
	}
	idx := sliceIndices(lo, hasLo, hi, hasHi, step, n)
	if v.k == vSeq {
		q := v.p.(*sequence)
		out := &sequence{kind: q.kind}
		for _, i := range idx {
			out.items = append(out.items, q.items[i])
		}
		return one(value{k: vSeq, p: out})
	}
	var b strings.Builder
	for _, i := range idx {
		if runes != nil {
			b.WriteRune(runes[i])
		} else {
			b.WriteByte(v.s[i])
		}
	}
	out := one(value{k: v.k, s: b.String()})
	if step != 1 {
		out.t |= decoded
	}
	return out
}

// sliceUnknown keeps what can be kept of a slice that cannot be told.
func sliceUnknown(v value, cut bool, step int64) set {
	if v.k == vSeq {
		q := v.p.(*sequence)
		return one(value{k: vSeq, p: &sequence{items: q.items, kind: q.kind, fuzzy: true}})
	}
	if step == 1 && !cut && v.k == vStr {
		return str(hole)
	}
	out := unknown
	if step != 1 {
		out.t |= decoded
	}
	return out
}

func sliceIndices(lo int64, hasLo bool, hi int64, hasHi bool, step, n int64) []int64 {
	clamp := func(i int64, has bool, def, low, high int64) int64 {
		if !has {
			return def
		}
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	var out []int64
	if step > 0 {
		for i, end := clamp(lo, hasLo, 0, 0, n), clamp(hi, hasHi, n, 0, n); i < end; i += step {
			out = append(out, i)
			if step > n {
				break
			}
		}
		return out
	}
	for i, end := clamp(lo, hasLo, n-1, -1, n-1), clamp(hi, hasHi, -1, -1, n-1); i > end; i += step {
		out = append(out, i)
		if step < -n {
			break
		}
	}
	return out
}

// percent is the % operator on text.
func (a *analysis) percent(l, r set) (set, bool) {
	v, ok := l.single()
	if !ok || v.k != vStr && v.k != vBytes {
		return set{}, false
	}
	if only, ok := r.single(); ok && only.k == vSym && (only.s == "os.environ" || only.s == "os.environb") {
		return a.fromEnv(v.s, percentNames(v.s), r), true
	}
	a.dump(r, "formatted into a string")
	if v.k == vBytes {
		return tainted(l, r), true
	}
	var items []set
	if q, ok := r.single(); ok && q.k == vSeq && q.p.(*sequence).kind == '(' && !q.p.(*sequence).fuzzy {
		items = q.p.(*sequence).items
		for _, it := range items {
			a.dump(it, "formatted into a string")
		}
	} else {
		items = []set{r}
	}
	out, n := percentText(v.s, func(key string, i int) (value, bool) {
		if key != "" {
			m, ok := r.single()
			if !ok || m.k != vMap {
				return value{}, false
			}
			return m.p.(*mapping).get(str(key)).single()
		}
		if i < len(items) {
			return items[i].single()
		}
		return value{}, false
	})
	s := str(squeeze(out)).with(l, r)
	s = s.with(sourcesOf(items)...)
	if n > 0 && strings.Contains(v.s, "%c") {
		s.t |= decoded
	}
	return s, true
}

// percentText fills in the fields of a %-format.
func percentText(f string, get func(key string, i int) (value, bool)) (string, int) {
	var b strings.Builder
	n := 0
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			b.WriteByte(f[i])
			continue
		}
		i++
		key := ""
		if i < len(f) && f[i] == '(' {
			e := strings.IndexByte(f[i:], ')')
			if e < 0 {
				break
			}
			key = f[i+1 : i+e]
			i += e + 1
		}
		plain := true
		for i < len(f) && strings.IndexByte("#0- +.123456789*hlL", f[i]) >= 0 {
			plain = false
			i++
		}
		if i >= len(f) {
			break
		}
		if f[i] == '%' {
			b.WriteByte('%')
			continue
		}
		v, ok := get(key, n)
		n++
		switch {
		case !ok || !plain:
			b.WriteString(hole)
		case f[i] == 'c' && v.k == vInt:
			b.WriteRune(rune(v.n))
		case f[i] == 's' || f[i] == 'd' && v.k == vInt:
			b.WriteString(v.display())
		case f[i] == 'x' && v.k == vInt:
			b.WriteString(strconv.FormatInt(v.n, 16))
		default:
			b.WriteString(hole)
		}
		if b.Len() > maxText {
			return hole, n
		}
	}
	return b.String(), n
}

// percentNames are the keys that a %-format takes from a mapping.
func percentNames(f string) (names []string) {
	for {
		i := strings.Index(f, "%(")
		if i < 0 {
			return names
		}
		f = f[i+2:]
		e := strings.IndexByte(f, ')')
		if e < 0 {
			return names
		}
		names = append(names, f[:e])
		f = f[e+1:]
	}
}

// formatSpec is format(v, spec) for the simple specifications.
func formatSpec(v value, spec string) string {
	if v.k == vInt {
		switch spec {
		case "c":
			return string(rune(v.n))
		case "d", "":
			return strconv.FormatInt(v.n, 10)
		case "x", "02x":
			s := strconv.FormatInt(v.n, 16)
			if spec == "02x" && len(s) < 2 {
				s = "0" + s
			}
			return s
		}
		return hole
	}
	if spec == "" || spec == "s" {
		return v.display()
	}
	return hole
}

// formatField is one replacement field of str.format: "name.attr[key]!r:spec".
type formatField struct {
	name, spec string
	conv       byte
}

// formatFields cuts a format string into literal text and fields; a field
// stands after each text but the last.
func formatFields(f string) (texts []string, fields []formatField, ok bool) {
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		c := f[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(f) && f[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '{':
			depth, j := 1, i+1
			for j < len(f) && depth > 0 {
				switch f[j] {
				case '{':
					depth++
				case '}':
					depth--
				}
				j++
			}
			if depth > 0 {
				return nil, nil, false
			}
			texts = append(texts, b.String())
			b.Reset()
			fields = append(fields, cutField(f[i+1:j-1]))
			i = j - 1
		default:
			b.WriteByte(c)
		}
	}
	return append(texts, b.String()), fields, true
}

func cutField(s string) (f formatField) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		case depth > 0:
		case s[i] == '!' && i+1 < len(s):
			f.name, f.conv = s[:i], s[i+1]
			if i+2 < len(s) && s[i+2] == ':' {
				f.spec = s[i+3:]
			}
			return f
		case s[i] == ':':
			f.name, f.spec = s[:i], s[i+1:]
			return f
		}
	}
	f.name = s
	return f
}

// formatWalk names the special attribute that a format string reaches for.
func formatWalk(f string) string {
	if !strings.Contains(f, ".__") && !strings.Contains(f, "[__") && !strings.Contains(f, "_globals") && !strings.Contains(f, "_builtins") {
		return ""
	}
	_, fields, ok := formatFields(f)
	if !ok {
		return ""
	}
	for _, fd := range fields {
		for _, n := range strings.FieldsFunc(fd.name, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
			if _, bad := table().reflect[n]; bad || n == "__init__" || n == "__mro__" || n == "__base__" || n == "__reduce__" {
				return n
			}
		}
		if w := formatWalk(fd.spec); w != "" && strings.Contains(fd.spec, "{") {
			return w
		}
	}
	return ""
}
