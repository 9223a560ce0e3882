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
	a.facts.imports, a.facts.connected = nil, nil
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

// hints reads the annotations that are text: get_type_hints and kin evaluate
// them.
func (a *analysis) hints() {
	for i, s := range a.facts.annotations {
		if i >= 200 || !a.generous() {
			break
		}
		x, ok := syntax.ParseExpr(s)
		if ok && plainType(x, 0) {
			continue
		}
		a.opaque("a string annotation that is more than a type is evaluated", cordon.OriginLiteral, false)
		a.readCode("annotation", s)
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
