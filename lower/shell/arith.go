package shell

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (w *walker) arithmVal(x syntax.ArithmExpr) val {
	if n, ok := w.arithm(x); ok {
		return lit(strconv.Itoa(n))
	}
	return val{s: mName}
}

// arithm evaluates an arithmetic expression. Whether or not the result is
// known, every word in it is expanded, for what that runs.
func (w *walker) arithm(x syntax.ArithmExpr) (int, bool) {
	w.depth++
	defer func() { w.depth-- }()
	if x == nil || w.depth > maxDepth {
		return 0, false
	}
	switch x := x.(type) {
	case *syntax.Word:
		return w.arithmWord(x)
	case *syntax.ParenArithm:
		return w.arithm(x.X)
	case *syntax.FlagsArithm:
		return w.arithm(x.X)
	case *syntax.UnaryArithm:
		return w.arithmUnary(x)
	case *syntax.BinaryArithm:
		return w.arithmBinary(x)
	}
	return 0, false
}

func (w *walker) arithmWord(word *syntax.Word) (int, bool) {
	if len(word.Parts) == 1 {
		if p, ok := word.Parts[0].(*syntax.ParamExp); ok && p.Short && p.Index != nil && !p.Dollar.IsValid() {
			v, _ := w.element(p.Param.Value, p.Index)
			return w.arithText(v.s)
		}
	}
	return w.arithText(w.single(word).s)
}

// arithText evaluates a text as arithmetic does: a number, a name, or an
// expression whose subscripts are expanded once more.
func (w *walker) arithText(s string) (int, bool) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return int(n), true
	}
	if s == "" {
		return 0, true
	}
	if hasMark(s) && bare(s) {
		return 0, false
	}
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxDepth || w.evals > 64 {
		return 0, false
	}
	w.evals++
	defer func() { w.evals-- }()
	if validName(s) {
		v, set := w.lookup(s)
		if !set || v.s == s {
			return 0, set
		}
		return w.arithText(v.s)
	}
	if strings.Contains(s, "$(") || strings.Contains(s, "`") || strings.Contains(s, "${") {
		w.document(s, val{})
		return 0, false
	}
	if i := strings.IndexByte(s, '#'); i > 0 {
		if base, err := strconv.Atoi(s[:i]); err == nil && base >= 2 && base <= 36 {
			n, err := strconv.ParseInt(s[i+1:], base, 64)
			return int(n), err == nil
		}
	}
	if tooDeep(s) || len(s) > 1024 {
		return 0, false
	}
	x, err := syntax.NewParser().Arithmetic(strings.NewReader(s))
	if err != nil || x == nil {
		return 0, false
	}
	if word, ok := x.(*syntax.Word); ok && word.Lit() == s {
		return 0, false
	}
	return w.arithm(x)
}

// document expands text as if between double quotes, running what it
// substitutes.
func (w *walker) document(s string, from val) val {
	if !strings.ContainsAny(s, "$`") {
		from.s = s
		return from
	}
	if w.evals > 64 || tooDeep(s) || !w.spend(len(s)/16+1) {
		return val{s: mUnknown}
	}
	w.evals++
	defer func() { w.evals-- }()
	word, err := syntax.NewParser().Document(strings.NewReader(s))
	if err != nil || word == nil {
		return val{s: mUnknown, data: from.data}
	}
	f := fields{w: w}
	f.parts(word.Parts, true, false)
	return val{s: string(f.b), data: union(from.data, f.data), taint: from.taint | f.taint}
}

func (w *walker) arithmUnary(x *syntax.UnaryArithm) (int, bool) {
	n, ok := w.arithm(x.X)
	switch x.Op {
	case syntax.Not:
		if n == 0 {
			return 1, ok
		}
		return 0, ok
	case syntax.BitNegation:
		return ^n, ok
	case syntax.Minus:
		return -n, ok
	case syntax.Inc, syntax.Dec:
		d := 1
		if x.Op == syntax.Dec {
			d = -1
		}
		w.assignArith(x.X, n+d, ok)
		if x.Post {
			return n, ok
		}
		return n + d, ok
	}
	return n, ok
}

func (w *walker) assignArith(target syntax.ArithmExpr, n int, ok bool) {
	word, isWord := target.(*syntax.Word)
	if !isWord || !validName(word.Lit()) {
		return
	}
	if ok {
		w.setVar(word.Lit(), lit(strconv.Itoa(n)))
	} else {
		w.setVar(word.Lit(), val{s: mName})
	}
}

func (w *walker) arithmBinary(x *syntax.BinaryArithm) (int, bool) {
	if x.Op == syntax.Assgn {
		n, ok := w.arithm(x.Y)
		w.assignArith(x.X, n, ok)
		return n, ok
	}
	a, ok1 := w.arithm(x.X)
	if x.Op == syntax.TernQuest {
		alt, isAlt := x.Y.(*syntax.BinaryArithm)
		if !isAlt {
			return 0, false
		}
		y, oky := w.arithm(alt.X)
		z, okz := w.arithm(alt.Y)
		if a != 0 {
			return y, ok1 && oky
		}
		return z, ok1 && okz
	}
	b, ok2 := w.arithm(x.Y)
	n, ok := calc(x.Op, a, b)
	ok = ok && ok1 && ok2
	switch x.Op {
	case syntax.AddAssgn, syntax.SubAssgn, syntax.MulAssgn, syntax.QuoAssgn, syntax.RemAssgn,
		syntax.AndAssgn, syntax.OrAssgn, syntax.XorAssgn, syntax.ShlAssgn, syntax.ShrAssgn:
		w.assignArith(x.X, n, ok)
	}
	return n, ok
}

func calc(op syntax.BinAritOperator, a, b int) (int, bool) {
	truth := func(v bool) (int, bool) {
		if v {
			return 1, true
		}
		return 0, true
	}
	switch op {
	case syntax.Add, syntax.AddAssgn:
		return a + b, true
	case syntax.Sub, syntax.SubAssgn:
		return a - b, true
	case syntax.Mul, syntax.MulAssgn:
		return a * b, true
	case syntax.Quo, syntax.QuoAssgn:
		if b == 0 {
			return 0, false
		}
		return a / b, true
	case syntax.Rem, syntax.RemAssgn:
		if b == 0 {
			return 0, false
		}
		return a % b, true
	case syntax.Pow:
		n := 1
		for i := 0; i < b && i < 64; i++ {
			n *= a
		}
		return n, b >= 0
	case syntax.And, syntax.AndAssgn:
		return a & b, true
	case syntax.Or, syntax.OrAssgn:
		return a | b, true
	case syntax.Xor, syntax.XorAssgn:
		return a ^ b, true
	case syntax.Shl, syntax.ShlAssgn:
		return a << (uint(b) & 63), true
	case syntax.Shr, syntax.ShrAssgn:
		return a >> (uint(b) & 63), true
	case syntax.Eql:
		return truth(a == b)
	case syntax.Neq:
		return truth(a != b)
	case syntax.Lss:
		return truth(a < b)
	case syntax.Gtr:
		return truth(a > b)
	case syntax.Leq:
		return truth(a <= b)
	case syntax.Geq:
		return truth(a >= b)
	case syntax.AndArit:
		return truth(a != 0 && b != 0)
	case syntax.OrArit:
		return truth(a != 0 || b != 0)
	case syntax.Comma:
		return b, true
	}
	return 0, false
}
