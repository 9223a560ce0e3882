package syntax

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// dump writes a tree as testdata/oracle.py writes CPython's.
func dump(f *File) string {
	d := &dumper{}
	d.WriteString("(Module ")
	d.stmts(f.Body)
	d.WriteString(")")
	return d.String()
}

type dumper struct{ strings.Builder }

// node writes "(Name a b)", each part being written by what it is.
func (d *dumper) node(name string, parts ...any) {
	d.WriteString("(" + name)
	for _, p := range parts {
		d.WriteByte(' ')
		d.part(p)
	}
	d.WriteByte(')')
}

func (d *dumper) part(p any) {
	switch p := p.(type) {
	case nil:
		d.WriteString("~")
	case string:
		if p == "" {
			p = "~"
		}
		d.WriteString(p)
	case int:
		d.WriteString(strconv.Itoa(p))
	case []Expr:
		list(d, p, func(x Expr) { d.expr(x) })
	case []string:
		list(d, p, func(s string) { d.WriteString(s) })
	case []Stmt:
		d.stmts(p)
	case []Keyword:
		list(d, p, func(k Keyword) { d.node("keyword", k.Name, k.Value) })
	case []Gen:
		list(d, p, func(g Gen) { d.node("comprehension", g.Target, g.Iter, g.Ifs, b2i(g.Async)) })
	case []Alias:
		list(d, p, func(a Alias) { d.node("alias", a.Name, a.As) })
	case []*Pattern:
		list(d, p, d.pattern)
	case []Param:
		d.params(p)
	case *Pattern:
		if p == nil {
			d.WriteString("~")
			return
		}
		d.pattern(p)
	case func():
		p()
	case *Joined:
		if p == nil {
			d.WriteString("~")
			return
		}
		d.expr(p)
	case Expr:
		d.expr(p)
	default:
		panic(fmt.Sprintf("%T", p))
	}
}

func list[T any](d *dumper, xs []T, f func(T)) {
	d.WriteByte('[')
	for i, x := range xs {
		if i > 0 {
			d.WriteByte(' ')
		}
		f(x)
	}
	d.WriteByte(']')
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (d *dumper) stmts(ss []Stmt) { list(d, ss, d.stmt) }

func (d *dumper) params(ps []Param) {
	var pos, args, kwonly []Param
	var vararg, kwarg any
	var defaults []Expr
	var kwdefaults []any
	arg := func(q Param) func() { return func() { d.node("arg", q.Name, q.Annotation) } }
	for _, q := range ps {
		switch q.Kind {
		case PosOnly:
			pos = append(pos, q)
		case Plain:
			args = append(args, q)
		case VarArg:
			vararg = arg(q)
		case KwOnly:
			kwonly = append(kwonly, q)
			kwdefaults = append(kwdefaults, q.Default)
		case KwArg:
			kwarg = arg(q)
		}
		if q.Default != nil && q.Kind <= Plain {
			defaults = append(defaults, q.Default)
		}
	}
	group := func(qs []Param) func() {
		return func() { list(d, qs, func(q Param) { arg(q)() }) }
	}
	d.node("arguments", group(pos), group(args), vararg, group(kwonly),
		func() { list(d, kwdefaults, func(x any) { d.part(x) }) }, kwarg, defaults)
}

func (d *dumper) typeParams(ts []TypeParam) func() {
	return func() {
		list(d, ts, func(t TypeParam) {
			name := [...]string{"TypeVar", "TypeVarTuple", "ParamSpec"}[t.Star]
			parts := []any{t.Name}
			if t.Star == 0 {
				parts = append(parts, t.Bound)
			}
			d.node(name, append(parts, t.Default)...)
		})
	}
}

func (d *dumper) stmt(s Stmt) {
	star := func(async bool, n string) string {
		if async {
			return "Async" + n
		}
		return n
	}
	switch s := s.(type) {
	case *FunctionDef:
		parts := []any{s.Name, s.Params, s.Body, s.Decorators, s.Returns}
		if len(s.TypeParams) > 0 {
			parts = append(parts, d.typeParams(s.TypeParams))
		}
		d.node(star(s.Async, "FunctionDef"), parts...)
	case *ClassDef:
		parts := []any{s.Name, s.Bases, s.Keywords, s.Body, s.Decorators}
		if len(s.TypeParams) > 0 {
			parts = append(parts, d.typeParams(s.TypeParams))
		}
		d.node("ClassDef", parts...)
	case *Return:
		d.node("Return", s.X)
	case *Delete:
		d.node("Delete", s.Targets)
	case *Assign:
		d.node("Assign", s.Targets, s.Value)
	case *AugAssign:
		d.node("AugAssign", s.Target, binaryName(s.Op), s.Value)
	case *AnnAssign:
		d.node("AnnAssign", s.Target, s.Annotation, s.Value, b2i(s.Simple))
	case *TypeAlias:
		parts := []any{s.Name}
		if len(s.TypeParams) > 0 {
			parts = append(parts, d.typeParams(s.TypeParams))
		}
		d.node("TypeAlias", append(parts, s.Value)...)
	case *For:
		d.node(star(s.Async, "For"), s.Target, s.Iter, s.Body, s.Else)
	case *While:
		d.node("While", s.Test, s.Body, s.Else)
	case *If:
		d.ifs(s, 0)
	case *With:
		d.node(star(s.Async, "With"), func() {
			list(d, s.Items, func(it WithItem) { d.node("withitem", it.X, it.Target) })
		}, s.Body)
	case *Match:
		d.node("Match", s.Subject, func() {
			list(d, s.Cases, func(c Case) { d.node("match_case", c.Pattern, c.Guard, c.Body) })
		})
	case *Raise:
		d.node("Raise", s.X, s.Cause)
	case *Try:
		name := "Try"
		if s.Star {
			name = "TryStar"
		}
		d.node(name, s.Body, func() {
			list(d, s.Handlers, func(h Handler) { d.node("ExceptHandler", h.Type, h.Name, h.Body) })
		}, s.Else, s.Finally)
	case *Assert:
		d.node("Assert", s.Test, s.Msg)
	case *Import:
		d.node("Import", s.Names)
	case *ImportFrom:
		d.node("ImportFrom", s.Module, s.Names, s.Level)
	case *Scope:
		if s.Nonlocal {
			d.node("Nonlocal", s.Names)
		} else {
			d.node("Global", s.Names)
		}
	case *ExprStmt:
		d.node("Expr", s.X)
	case *Simple:
		d.node(map[Kind]string{KwPass: "Pass", KwBreak: "Break", KwContinue: "Continue"}[s.Op])
	default:
		d.WriteString(fmt.Sprintf("(%T)", s))
	}
}

func (d *dumper) ifs(s *If, i int) {
	c := s.Clauses[i]
	d.node("If", c.Test, c.Body, func() {
		if i+1 == len(s.Clauses) {
			d.stmts(s.Else)
			return
		}
		d.WriteByte('[')
		d.ifs(s, i+1)
		d.WriteByte(']')
	})
}

func binaryName(k Kind) string {
	return "(" + map[Kind]string{Plus: "Add", Minus: "Sub", Star: "Mult", AtSign: "MatMult", Slash: "Div", Percent: "Mod",
		LShift: "LShift", RShift: "RShift", Pipe: "BitOr", Caret: "BitXor", Amp: "BitAnd", DoubleSlash: "FloorDiv",
		DoubleStar: "Pow"}[k] + ")"
}

func (d *dumper) expr(x Expr) {
	switch x := x.(type) {
	case nil:
		d.WriteString("~")
	case *Name:
		d.node("Name", x.ID)
	case *Str:
		if x.Bytes {
			d.WriteString("b" + hex.EncodeToString([]byte(x.S)))
		} else {
			d.WriteString("s" + hex.EncodeToString([]byte(x.S)))
		}
	case *Num:
		d.WriteString(dumpNumber(x.Text))
	case *Const:
		d.WriteString(x.Name)
	case *Joined:
		if x.Template {
			d.node("TemplateStr", x.Values)
		} else {
			d.node("JoinedStr", x.Values)
		}
	case *Field:
		conv := -1
		if x.Conv != 0 {
			conv = int(x.Conv)
		}
		d.node("FormattedValue", x.Value, conv, x.Spec)
	case *Seq:
		d.node(map[byte]string{'[': "List", '(': "Tuple", '{': "Set"}[x.Kind], x.Elts)
	case *Dict:
		d.node("Dict", x.Keys, x.Values)
	case *Unary:
		d.node("UnaryOp", map[Kind]string{Minus: "(USub)", Plus: "(UAdd)", Tilde: "(Invert)", KwNot: "(Not)"}[x.Op], x.X)
	case *Binary:
		d.node("BinOp", x.X, binaryName(x.Op), x.Y)
	case *Bool:
		d.node("BoolOp", map[Kind]string{KwAnd: "(And)", KwOr: "(Or)"}[x.Op], x.Values)
	case *Compare:
		names := [...]string{"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In", "NotIn"}
		d.node("Compare", x.Left, func() {
			list(d, x.Ops, func(op CompareOp) { d.WriteString("(" + names[op] + ")") })
		}, x.Rights)
	case *Call:
		d.node("Call", x.Func, x.Args, x.Keywords)
	case *IfExp:
		d.node("IfExp", x.Test, x.X, x.Else)
	case *Attribute:
		d.node("Attribute", x.X, x.Name)
	case *Subscript:
		d.node("Subscript", x.X, x.Index)
	case *Slice:
		d.node("Slice", x.Lo, x.Hi, x.Step)
	case *Starred:
		d.node("Starred", x.X)
	case *Lambda:
		d.node("Lambda", x.Params, x.Body)
	case *Comp:
		if x.Kind == ':' {
			d.node("DictComp", x.Elt, x.Value, x.Gens)
			return
		}
		d.node(map[byte]string{'[': "ListComp", '{': "SetComp", '(': "GeneratorExp"}[x.Kind], x.Elt, x.Gens)
	case *Await:
		d.node("Await", x.X)
	case *Yield:
		d.node("Yield", x.X)
	case *YieldFrom:
		d.node("YieldFrom", x.X)
	case *Walrus:
		d.node("NamedExpr", x.Target, x.Value)
	default:
		d.WriteString(fmt.Sprintf("(%T)", x))
	}
}

func dumpNumber(s string) string {
	s = strings.ToLower(strings.ReplaceAll(s, "_", ""))
	bits := func(s string) string {
		f, _ := strconv.ParseFloat(s, 64)
		return fmt.Sprintf("%016x", math.Float64bits(f))
	}
	if im, ok := strings.CutSuffix(s, "j"); ok {
		return "c" + bits(im)
	}
	base := 10
	if len(s) > 1 && s[0] == '0' {
		if b, ok := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]]; ok {
			base, s = b, s[2:]
		}
	}
	if n, ok := new(big.Int).SetString(s, base); ok {
		return "i" + n.Text(16)
	}
	return "f" + bits(s)
}

func (d *dumper) pattern(p *Pattern) {
	switch p.Kind {
	case MatchValue:
		d.node("MatchValue", p.X)
	case MatchSingleton:
		name := p.X.(*Const).Name
		if name == "None" {
			name = ""
		}
		d.node("MatchSingleton", name)
	case MatchSequence:
		d.node("MatchSequence", p.Subs)
	case MatchMapping:
		d.node("MatchMapping", p.Keys, p.Subs, p.Name)
	case MatchClass:
		n := len(p.Subs) - len(p.Names)
		d.node("MatchClass", p.X, p.Subs[:n], p.Names, p.Subs[n:])
	case MatchStar:
		d.node("MatchStar", p.Name)
	case MatchAs:
		var sub *Pattern
		if len(p.Subs) > 0 {
			sub = p.Subs[0]
		}
		d.node("MatchAs", sub, p.Name)
	case MatchOr:
		d.node("MatchOr", p.Subs)
	}
}
