package javascript

import (
	"math"
	"slices"

	"github.com/tdewolff/parse/v2/js"
)

func isAssign(op js.TokenType) bool {
	switch op {
	case js.EqToken, js.MulEqToken, js.DivEqToken, js.ModEqToken, js.ExpEqToken, js.AddEqToken, js.SubEqToken, js.LtLtEqToken, js.GtGtEqToken, js.GtGtGtEqToken, js.BitAndEqToken, js.BitXorEqToken, js.BitOrEqToken, js.AndEqToken, js.OrEqToken, js.NullishEqToken:
		return true
	}
	return false
}

var plainOperator = map[js.TokenType]js.TokenType{
	js.MulEqToken: js.MulToken, js.DivEqToken: js.DivToken, js.ModEqToken: js.ModToken, js.ExpEqToken: js.ExpToken, js.AddEqToken: js.AddToken, js.SubEqToken: js.SubToken,
	js.LtLtEqToken: js.LtLtToken, js.GtGtEqToken: js.GtGtToken, js.GtGtGtEqToken: js.GtGtGtToken, js.BitAndEqToken: js.BitAndToken, js.BitXorEqToken: js.BitXorToken, js.BitOrEqToken: js.BitOrToken,
}

// assignment evaluates x = y and its relatives.
func (a *analysis) assignment(e *js.BinaryExpr) set {
	switch e.Op {
	case js.EqToken:
		if s, ok := a.newEnv(e); ok {
			return s
		}
		name := ""
		if v, ok := e.X.(*js.Var); ok {
			name = identifier(resolve(v).Data)
		}
		s := a.named(e.Y, name)
		a.assign(e.X, s)
		return s
	case js.AndEqToken, js.OrEqToken, js.NullishEqToken:
		old := a.eval(e.X)
		b, known := truth(old)
		if e.Op == js.NullishEqToken {
			b, known = nullish(old)
			b = !b
		}
		if known && b != (e.Op == js.AndEqToken) {
			a.deadExpr(e.Y)
			return old
		}
		if known {
			s := a.value(e.Y)
			a.assign(e.X, s)
			return s
		}
		a.cond++
		s := join(old, a.value(e.Y))
		a.assign(e.X, s)
		a.cond--
		return s
	}
	old := a.eval(e.X)
	s := a.operate(plainOperator[e.Op], old, a.eval(e.Y))
	a.assign(e.X, s)
	return s
}

// newEnv is process.env = {...process.env, NAME: value}: the copy stays what it
// was, the environment of the process.
func (a *analysis) newEnv(e *js.BinaryExpr) (set, bool) {
	to, ok := e.X.(*js.DotExpr)
	lit, isObject := e.Y.(*js.ObjectExpr)
	if !ok || !isObject || memberName(to.Y) != "env" {
		return set{}, false
	}
	env := a.eval(e.X)
	if v, ok := env.single(); !ok || v.k != vSym || v.s != "process.env" {
		return set{}, false
	}
	a.setMember(a.eval(to.X), str("env"), a.objectOf(lit, true))
	return env, true
}

// assign stores s where the expression says.
func (a *analysis) assign(e js.IExpr, s set) {
	switch e := e.(type) {
	case *js.Var:
		a.assignVar(e, s)
	case *js.GroupExpr:
		a.assign(e.X, s)
	case *js.DotExpr:
		a.assignMember(e.X, str(memberName(e.Y)), s)
	case *js.IndexExpr:
		a.assignMember(e.X, a.eval(e.Y), s)
	case *js.BinaryExpr:
		if e.Op == js.EqToken {
			a.assign(e.X, a.orDefault(s, e.Y))
		}
	case *js.ArrayExpr:
		items := a.items(s)
		for i, t := range e.List {
			switch {
			case t.Value == nil:
			case t.Spread:
				a.assign(t.Value, items.from(i, a.cond))
			default:
				a.assign(t.Value, items.at(i))
			}
		}
	case *js.ObjectExpr:
		a.assignObject(e, s)
	}
}

// assignMember is x.key = s. A URL is a plain value here: what holds it gets
// the changed one.
func (a *analysis) assignMember(e js.IExpr, key, s set) {
	x := a.eval(e)
	a.setMember(x, key, s)
	if name, ok := key.text(); ok {
		if changed, ok := a.changeURL(x, name, s); ok {
			a.assign(e, changed)
		}
	}
}

func (a *analysis) assignObject(e *js.ObjectExpr, s set) {
	var taken []string
	for _, p := range e.List {
		if p.Spread {
			a.assign(p.Value, a.without(s, taken))
			continue
		}
		var key set
		if p.Name != nil {
			key = a.propertyName(p.Name)
		} else if v, ok := p.Value.(*js.Var); ok {
			key = str(identifier(v.Data))
		}
		if k, ok := key.text(); ok {
			taken = append(taken, k)
		}
		a.assign(p.Value, a.orDefault(a.index(s, key), p.Init))
	}
}

// at is the item at a place.
func (r array) at(i int) set {
	if i >= 0 && i < len(r.items) {
		if r.fuzzy {
			return join(r.items[i], r.rest)
		}
		return r.items[i]
	}
	if r.fuzzy {
		s := r.rest
		s.unk = true
		return s
	}
	return undefined
}

// from is the array of the items from a place on.
func (r array) from(i, born int) set {
	out := &array{rest: r.rest, fuzzy: r.fuzzy, born: born}
	if i < len(r.items) {
		out.items = slices.Clone(r.items[i:])
	}
	return one(value{k: vArray, p: out})
}

func (a *analysis) unary(e *js.UnaryExpr) set {
	switch e.Op {
	case js.TypeofToken:
		return typeOf(a.eval(e.X))
	case js.AwaitToken:
		return a.value(e.X)
	case js.DeleteToken:
		a.deleteMember(e.X)
		return boolean(true)
	case js.VoidToken:
		a.eval(e.X)
		return undefined
	case js.NotToken:
		if b, ok := truth(a.eval(e.X)); ok {
			return boolean(!b)
		}
		return unknown
	case js.PreIncrToken, js.PreDecrToken, js.PostIncrToken, js.PostDecrToken:
		return a.increment(e)
	}
	x := a.eval(e.X)
	n, ok := a.toNum(x)
	if !ok {
		return tainted(x)
	}
	switch e.Op {
	case js.NegToken:
		n = -n
	case js.BitNotToken:
		n = float64(^toInt32(n))
	case js.PosToken:
	default:
		return unknown
	}
	return num(n).with(x)
}

func (a *analysis) increment(e *js.UnaryExpr) set {
	old := a.eval(e.X)
	n, ok := a.toNum(old)
	if !ok {
		a.assign(e.X, unknown)
		return unknown
	}
	d := 1.0
	if e.Op == js.PreDecrToken || e.Op == js.PostDecrToken {
		d = -1
	}
	a.assign(e.X, num(n+d))
	if e.Op == js.PostIncrToken || e.Op == js.PostDecrToken {
		return num(n)
	}
	return num(n + d)
}

func (a *analysis) binary(e *js.BinaryExpr) set {
	if isAssign(e.Op) {
		return a.assignment(e)
	}
	switch e.Op {
	case js.AndToken, js.OrToken, js.NullishToken:
		return a.logical(e)
	case js.InToken:
		return a.inOperator(a.eval(e.X), a.eval(e.Y))
	}
	// A long sum leans to the left: it is walked without recursion.
	var chain []*js.BinaryExpr
	left := js.IExpr(e)
	for {
		b, ok := left.(*js.BinaryExpr)
		if !ok || isAssign(b.Op) || isLogical(b.Op) {
			break
		}
		chain = append(chain, b)
		left = b.X
	}
	s := a.eval(left)
	for i := len(chain) - 1; i >= 0; i-- {
		s = a.operate(chain[i].Op, s, a.eval(chain[i].Y))
	}
	return s
}

func isLogical(op js.TokenType) bool {
	return op == js.AndToken || op == js.OrToken || op == js.NullishToken || op == js.InToken
}

func (a *analysis) logical(e *js.BinaryExpr) set {
	x := a.eval(e.X)
	var decides, known bool
	switch e.Op {
	case js.NullishToken:
		decides, known = nullish(x)
		decides = !decides
	case js.AndToken:
		decides, known = truth(x)
		decides = !decides
	default:
		decides, known = truth(x)
	}
	if known && decides {
		a.deadExpr(e.Y)
		return x
	}
	if known {
		return a.value(e.Y)
	}
	a.cond++
	y := a.value(e.Y)
	a.cond--
	if e.Op == js.AndToken {
		// What is handed on is y, or something falsy.
		x.vs = slices.DeleteFunc(slices.Clone(x.vs), func(v value) bool { b, ok := truthOf(v); return ok && b })
	}
	return join(x, y)
}

func (a *analysis) inOperator(x, y set) set {
	key, ok := x.text()
	v, one := y.single()
	if !ok || !one {
		return unknown
	}
	if o, ok := v.p.(*object); ok && v.k == vObject {
		if _, has := o.props[key]; has {
			return boolean(true)
		}
		if !o.open && len(o.proto.vs) == 0 && !o.proto.unk && o.class == nil {
			return boolean(false)
		}
	}
	if v.k == vSym && v.s == "process.env" {
		a.readEnv(key)
	}
	return unknown
}

func (a *analysis) deleteMember(e js.IExpr) {
	switch e := e.(type) {
	case *js.GroupExpr:
		a.deleteMember(e.X)
	case *js.DotExpr:
		a.remove(a.eval(e.X), memberName(e.Y))
	case *js.IndexExpr:
		x := a.eval(e.X)
		if k, ok := a.eval(e.Y).text(); ok {
			a.remove(x, k)
		}
	default:
		a.eval(e)
	}
}

func (a *analysis) remove(x set, key string) {
	v, ok := x.single()
	if !ok || v.k != vObject {
		return
	}
	o := v.p.(*object)
	if a.cond > o.born {
		return
	}
	delete(o.props, key)
	o.order = slices.DeleteFunc(o.order, func(k string) bool { return k == key })
}

func toInt32(n float64) int32 {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return int32(uint32(int64(math.Mod(math.Trunc(n), 1<<32))))
}
