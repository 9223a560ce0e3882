package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// conclude adds what only the module as a whole shows.
func (a *analysis) conclude() {
	f := &a.facts
	if len(f.connected) > 0 && (f.shellFD || f.dup && f.pty) {
		for _, h := range f.connected {
			a.emit(cordon.Effect{Kind: cordon.Connect, Target: h, Op: "reverse_shell", Pattern: h == ""})
		}
	}
	for _, name := range f.imports {
		if runsTests(name) && droppedTest(f.written) {
			a.opaque("runs tests, some of which it has written itself", cordon.OriginFile, false)
		}
		if last := name[strings.LastIndexByte(name, '.')+1:]; f.written[last+".py"] || f.written[last+".so"] || f.written[name[:max(0, strings.IndexByte(name, '.'))]+".py"] && name != last {
			a.opaque("imports "+name+", which it has written itself", cordon.OriginFile, false)
		}
	}
	if f.blindFile {
		// A path that reached a file by ways that were not followed.
		for _, p := range f.literals {
			a.path(a.expandTilde(p), cordon.Effect{Kind: cordon.Read, Doubtful: true})
		}
	}
	a.annotations()
	a.facts.imports, a.facts.connected = nil, nil
}

func runsTests(module string) bool {
	top, _, _ := strings.Cut(module, ".")
	return top == "pytest" || top == "unittest" || top == "nose" || top == "nose2"
}

// droppedTest: one of the files is code that a test runner finds by its name.
func droppedTest(written map[string]bool) bool {
	for f := range written {
		if f == "conftest.py" || strings.HasPrefix(f, "test") && strings.HasSuffix(f, ".py") || strings.HasSuffix(f, "_test.py") {
			return true
		}
	}
	return false
}

// doctests reads the examples in the docstrings that were seen: a test runner
// executes them.
func (a *analysis) doctests() {
	before := len(a.effects)
	docs := a.facts.docstrings
	for i, d := range docs {
		if i >= 200 || !a.generous() {
			break
		}
		if ex := examples(d); ex != "" {
			a.readCode("doctest", ex)
		}
	}
	if len(a.effects) > before {
		a.opaque("doctest runs examples that do more than compute", cordon.OriginLiteral, false)
	}
}

// examples is the code after the prompts of a docstring.
func examples(doc string) string {
	var b strings.Builder
	for _, line := range strings.Split(doc, "\n") {
		t := strings.TrimLeft(line, " \t")
		if code, ok := strings.CutPrefix(t, ">>>"); ok {
			b.WriteString(strings.TrimPrefix(code, " "))
			b.WriteByte('\n')
		} else if code, ok := strings.CutPrefix(t, "..."); ok {
			b.WriteString(strings.TrimPrefix(code, " "))
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// hints: get_type_hints and kin evaluate the annotations that are text. What
// such texts do is read at the end, whoever evaluates them; this says that
// somebody does.
func (a *analysis) hints() {
	if a.facts.blindHint {
		a.opaque("a string annotation that is decoded is evaluated", cordon.OriginDecoded, true)
	}
	for i, s := range a.facts.annotations {
		if i >= maxHints {
			break
		}
		// What does not parse cannot be evaluated either; a call of something
		// harmless is left to the reading at the end.
		if x, ok := syntax.ParseExpr(s); ok && !plainType(x, 0) {
			a.opaque("a string annotation that is more than a type is evaluated", cordon.OriginLiteral, false)
			return
		}
	}
}

// maxHints is how many annotations are looked at.
const maxHints = 400

// annotations reads the annotations that are text as the code that they are:
// there are more functions and libraries that evaluate them than could be
// listed, and a text that only names types does nothing.
func (a *analysis) annotations() {
	for i := 0; i < len(a.facts.annotations) && i < maxHints && a.generous(); i++ {
		s := a.facts.annotations[i]
		x, ok := syntax.ParseExpr(s)
		switch {
		case ok && plainType(x, 0):
			if _, text := x.(*syntax.Name); !text {
				a.annotateExpr(x, 0)
			}
		case ok:
			a.readCode("annotation", s)
		}
	}
	a.facts.annotations = nil
}

// annotateExpr notes the texts in an annotation: List["T"] has one inside.
func (a *analysis) annotateExpr(x syntax.Expr, depth int) {
	if depth > 20 {
		return
	}
	switch x := x.(type) {
	case *syntax.Str:
		if !x.Bytes && len(a.facts.annotations) < maxHints {
			a.facts.annotations = append(a.facts.annotations, x.S)
		}
	case *syntax.Subscript:
		if n, ok := x.X.(*syntax.Name); ok && n.ID == "Literal" {
			return
		}
		if at, ok := x.X.(*syntax.Attribute); ok && at.Name == "Literal" {
			return
		}
		a.annotateExpr(x.Index, depth+1)
	case *syntax.Seq:
		for _, e := range x.Elts {
			a.annotateExpr(e, depth+1)
		}
	case *syntax.Binary:
		a.annotateExpr(x.X, depth+1)
		a.annotateExpr(x.Y, depth+1)
	}
}

// plainType: names, attributes, subscripts and unions only.
func plainType(x syntax.Expr, depth int) bool {
	if depth > 50 {
		return false
	}
	switch x := x.(type) {
	case *syntax.Name:
		return true
	case *syntax.Const, *syntax.Num:
		return true
	case *syntax.Str:
		return true
	case *syntax.Attribute:
		return plainType(x.X, depth+1) && !strings.HasPrefix(x.Name, "__")
	case *syntax.Subscript:
		return plainType(x.X, depth+1) && plainType(x.Index, depth+1)
	case *syntax.Binary:
		return x.Op == syntax.Pipe && plainType(x.X, depth+1) && plainType(x.Y, depth+1)
	case *syntax.Seq:
		for _, e := range x.Elts {
			if !plainType(e, depth+1) {
				return false
			}
		}
		return true
	case *syntax.Starred:
		return plainType(x.X, depth+1)
	}
	return false
}
