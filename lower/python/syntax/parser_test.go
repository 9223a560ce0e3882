package syntax

import (
	"strings"
	"testing"
)

// TestTreeOfEachConstruct spells the trees as CPython's ast.dump would; the
// whole of the standard library is compared in oracle_test.go.
func TestTreeOfEachConstruct(t *testing.T) {
	for src, want := range map[string]string{
		"a.b[1:2, ::3](*x, y=1, **z)":          "(Expr (Call (Subscript (Attribute (Name a) b) (Tuple [(Slice i1 i2 ~) (Slice ~ ~ i3)])) [(Starred (Name x))] [(keyword y i1) (keyword ~ (Name z))]))",
		"-a ** -b":                             "(Expr (UnaryOp (USub) (BinOp (Name a) (Pow) (UnaryOp (USub) (Name b)))))",
		"not a in b":                           "(Expr (UnaryOp (Not) (Compare (Name a) [(In)] [(Name b)])))",
		"a < b is not c not in d":              "(Expr (Compare (Name a) [(Lt) (IsNot) (NotIn)] [(Name b) (Name c) (Name d)]))",
		"x = yield":                            "(Assign [(Name x)] (Yield ~))",
		"a, *b = c = d":                        "(Assign [(Tuple [(Name a) (Starred (Name b))]) (Name c)] (Name d))",
		"x: int = 1":                           "(AnnAssign (Name x) (Name int) i1 1)",
		"(x): int":                             "(AnnAssign (Name x) (Name int) ~ 0)",
		"x //= 2":                              "(AugAssign (Name x) (FloorDiv) i2)",
		"'a' b\"c\"":                           "",
		"'a' \"b\\x63\" r'\\d'":                "(Expr s6162635c64)",
		"b'\\xff\\101'":                        "(Expr bff41)",
		"'\\N{LATIN SMALL LETTER A}'":          "(Expr s61)",
		"f'{a!r:>{w}}b{{'":                     "(Expr (JoinedStr [(FormattedValue (Name a) 114 (JoinedStr [s3e (FormattedValue (Name w) -1 ~)])) s627b]))",
		"f'{x = }'":                            "(Expr (JoinedStr [s78203d20 (FormattedValue (Name x) 114 ~)]))",
		"f'{a['b']}'":                          "(Expr (JoinedStr [(FormattedValue (Subscript (Name a) s62) -1 ~)]))",
		"f'{lambda_:x}' 'c'":                   "(Expr (JoinedStr [(FormattedValue (Name lambda_) -1 (JoinedStr [s78])) s63]))",
		"t'{a}b'":                              "(Expr (TemplateStr [(FormattedValue (Name a) -1 ~) s62]))",
		"0x_ff + 1_0.5e-1j":                    "(Expr (BinOp iff (Add) c3ff0cccccccccccd))",
		"1if x else 2":                         "(Expr (IfExp (Name x) i1 i2))",
		"[x async for x in y if z]":            "(Expr (ListComp (Name x) [(comprehension (Name x) (Name y) [(Name z)] 1)]))",
		"{**a, 'b': c}":                        "(Expr (Dict [~ s62] [(Name a) (Name c)]))",
		"lambda a, /, b=1, *, c: a":            "(Expr (Lambda (arguments [(arg a ~)] [(arg b ~)] ~ [(arg c ~)] [~] ~ [i1]) (Name a)))",
		"import a.b as c, d":                   "(Import [(alias a.b c) (alias d ~)])",
		"from ... import (a, b as c,)":         "(ImportFrom ~ [(alias a ~) (alias b c)] 3)",
		"with (a as b, c): pass":               "(With [(withitem (Name a) (Name b)) (withitem (Name c) ~)] [(Pass)])",
		"with (a, b) as c: pass":               "(With [(withitem (Tuple [(Name a) (Name b)]) (Name c))] [(Pass)])",
		"try: pass\nexcept* A: pass":           "(TryStar [(Pass)] [(ExceptHandler (Name A) ~ [(Pass)])] [] [])",
		"try: pass\nexcept A, B: pass":         "(Try [(Pass)] [(ExceptHandler (Tuple [(Name A) (Name B)]) ~ [(Pass)])] [] [])",
		"def f[T: int = str, *U](a) -> b: ...": "(FunctionDef f (arguments [] [(arg a ~)] ~ [] [] ~ []) [(Expr ...)] [] (Name b) [(TypeVar T (Name int) (Name str)) (TypeVarTuple U ~)])",
		"type X[T] = T":                        "(TypeAlias (Name X) [(TypeVar T ~ ~)] (Name T))",
		"type = match = case = 1":              "(Assign [(Name type) (Name match) (Name case)] i1)",
		"match (x)":                            "(Expr (Call (Name match) [(Name x)] []))",
		"match x:\n case [1, *_] | {'a': b, **c} if d: pass": "(Match (Name x) [(match_case (MatchOr [(MatchSequence [(MatchValue i1) (MatchStar ~)]) (MatchMapping [s61] [(MatchAs ~ b)] c)]) (Name d) [(Pass)])])",
		"match x:\n case A.B(1, y=z) as w: pass":             "(Match (Name x) [(match_case (MatchAs (MatchClass (Attribute (Name A) B) [(MatchValue i1)] [y] [(MatchAs ~ z)]) w) ~ [(Pass)])])",
		"ｘ = ﬁ":                                              "(Assign [(Name x)] (Name fi))",
		"if a: b\nelif c: d\nelse: e":                        "(If (Name a) [(Expr (Name b))] [(If (Name c) [(Expr (Name d))] [(Expr (Name e))])])",
		"\tx = 1\n\ty = 2":                                   "(Assign [(Name x)] i1) (Assign [(Name y)] i2)",
		"if a:\n  b\n# c\n\n  d\n":                           "(If (Name a) [(Expr (Name b)) (Expr (Name d))] [])",
		"x = (1,\n# c\n2)":                                   "(Assign [(Name x)] (Tuple [i1 i2]))",
	} {
		f := Parse(src)
		got := strings.TrimSuffix(strings.TrimPrefix(dump(f), "(Module ["), "])")
		if want == "" {
			if len(f.Problems) == 0 {
				t.Errorf("%q: parsed as %s, want a problem", src, got)
			}
			continue
		}
		if got != want || len(f.Problems) > 0 {
			t.Errorf("%q:\n got %s %q\nwant %s", src, got, f.Problems, want)
		}
	}
}

func TestWhatDoesNotParseIsSaid(t *testing.T) {
	for _, src := range []string{
		"x = (", "x = ]", "x = 'a", "x = '''a", "f'{a'", "f'{a!}'", "if x\n  y", "x = 1 +", "def f(:\n pass", "  x\ny", "x\n  y",
		"if x:\n    a\n  b", "a b", "print 'x'", "x = $", "x?", "a \\ b", "\\", "é = 1 €",
	} {
		f := Parse(src)
		if len(f.Problems) == 0 || !strings.HasPrefix(f.Problems[0], "does not parse as Python: line ") {
			t.Errorf("%q: problems %q, want that it does not parse", src, f.Problems)
		}
	}
}

func TestTolerantModeFindsExpressions(t *testing.T) {
	for src, want := range map[string]string{
		"print f(1), 2":                "f",
		"exec f(1) in g":               "f",
		"x = `f(1)`":                   "f",
		"raise E, f(1)":                "f",
		"a b f(1) c":                   "f",
		"def g((a, b)): f(1)":          "f",
		"try: f(1)\nexcept A, e: pass": "f",
		"x = (\nf(1)":                  "f",
		"'''\nf(1)":                    "f",
	} {
		f := Parse(src)
		if len(f.Problems) == 0 {
			continue // what Python 3.14 accepts is not broken
		}
		var d dumper
		for _, s := range f.Body {
			if b, ok := s.(*Bad); ok {
				for _, x := range b.Exprs {
					d.expr(x)
				}
				continue
			}
			d.stmt(s)
		}
		if !strings.Contains(d.String(), "(Call (Name "+want+") [i1] [])") {
			t.Errorf("%q: got %s, want a call of %s", src, d.String(), want)
		}
	}
}

func TestLimits(t *testing.T) {
	for name, src := range map[string]string{
		"size":                  strings.Repeat("#", MaxSize+1),
		"brackets":              strings.Repeat("(", MaxNesting+1),
		"unary operators":       strings.Repeat("- ", MaxNesting+1) + "1",
		"not":                   strings.Repeat("not ", MaxNesting+1) + "1",
		"powers":                "1" + strings.Repeat("**1", MaxNesting+1),
		"lambdas":               strings.Repeat("lambda: ", MaxNesting+1) + "1",
		"conditions":            strings.Repeat("1 if 1 else ", MaxNesting+1) + "1",
		"blocks":                nestedBlocks(MaxNesting + 1),
		"alternatives in cases": "match x:\n case " + strings.Repeat("[", MaxNesting+1),
	} {
		if f := Parse(src); f.Limit == "" {
			t.Errorf("%s: no limit was hit; problems %q", name, f.Problems)
		}
	}
	for name, src := range map[string]string{
		"a long sum":   "x = 1" + strings.Repeat(" + 1", 20000),
		"a long chain": "x" + strings.Repeat(".x", 20000),
		"many elifs":   "if x: y\n" + strings.Repeat("elif x: y\n", 10000),
		"100 blocks":   nestedBlocks(100),
		"200 brackets": strings.Repeat("(", 200) + strings.Repeat(")", 200),
	} {
		if f := Parse(src); f.Limit != "" || len(f.Problems) > 0 {
			t.Errorf("%s: limit %q, problems %q", name, f.Limit, f.Problems)
		}
	}
}

func nestedBlocks(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "if x:\n")
	}
	b.WriteString(strings.Repeat(" ", n) + "y\n")
	return b.String()
}
