package javascript

import (
	"encoding/base64"
	"net/url"
	"path"
	"strings"

	"github.com/tdewolff/parse/v2/js"

	"github.com/cordon-sandbox/cordon"
)

// loading is how a module is named: by require, by import or as a worker.
type loading uint8

const (
	loadRequire loading = iota
	loadImport
	loadWorker
)

// load is the module that a set of specifiers names.
func (a *analysis) load(spec set, how loading) set {
	var out set
	for _, v := range spec.vs {
		if v.k != vStr && v.k != vURL {
			out.unk = true
			a.opaque("loads a module that is not constant", originOf(spec), v.k == vUndef)
			continue
		}
		out = join(out, a.module(v.s, spec, how))
	}
	if spec.unk || len(spec.vs) == 0 {
		a.opaque("loads a module that is not constant", originOf(spec), false)
		out.unk = true
	}
	return out
}

func (a *analysis) module(name string, spec set, how loading) set {
	t := tables()
	low := strings.ToLower(name)
	switch {
	case strings.HasPrefix(low, "data:"):
		a.dataModule(name, spec)
		return unknown
	case strings.HasPrefix(low, "http:"), strings.HasPrefix(low, "https:"):
		a.connectURL(name, "https", set{})
		a.opaque("runs code from the network", cordon.OriginNetwork, false)
		return unknown
	case strings.HasPrefix(low, "blob:"):
		a.opaque("runs code that is not constant", cordon.OriginUnknown, false)
		return unknown
	}
	if hasHole(name) {
		return a.partModule(name)
	}
	for _, p := range []string{"npm:", "jsr:"} {
		name = strings.TrimPrefix(name, p)
	}
	if to, ok := t.modules[name]; ok {
		return sym(to)
	}
	bare := strings.TrimPrefix(name, "node:")
	if to, ok := t.modules[bare]; ok {
		return sym(to)
	}
	if at := strings.LastIndexByte(bare, '@'); at > 0 {
		if to, ok := t.modules[bare[:at]]; ok {
			return sym(to)
		}
	}
	if path, ok := localPath(bare); ok || how == loadWorker {
		if !ok {
			path = bare
		}
		return a.localModule(path)
	}
	if i := strings.IndexByte(bare, '/'); i > 0 && !strings.HasPrefix(bare, "@") {
		// A file inside a package: cross-spawn/index.js.
		if to, ok := t.modules[bare[:i]]; ok {
			return sym(to)
		}
	}
	return unknown
}

// partModule is a module of whose name a part is known.
func (a *analysis) partModule(name string) set {
	name = fileURL(name)
	if strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "@") && strings.Contains(name, "/") {
		prefix, _, _ := strings.Cut(name, hole)
		a.pathEffect(cordon.Effect{Kind: cordon.Read}, prefix+hole)
		return unknown
	}
	if p, ok := strings.CutPrefix(name, a.env.Dir+"/"); ok && a.env.Dir != "" && !strings.HasPrefix(p, "..") {
		return unknown
	}
	a.opaque("loads a module that is not constant", cordon.OriginUnknown, false)
	return unknown
}

func localPath(s string) (string, bool) {
	if strings.HasPrefix(strings.ToLower(s), "file:") {
		return fileURL(s), true
	}
	return s, strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || strings.HasPrefix(s, "/") || s == "." || s == ".."
}

// localModule is a file: one that the program itself wrote is code that stands
// in the call.
func (a *analysis) localModule(name string) set {
	abs := a.absolute(name)
	for _, p := range []string{abs, abs + ".js", abs + ".mjs", abs + ".cjs", abs + ".ts", abs + "/index.js"} {
		if code, ok := a.written[p]; ok {
			a.evaluate(code)
			return unknown
		}
	}
	if strings.HasSuffix(abs, ".node") {
		a.opaque("loads native code: "+name, cordon.OriginFile, false)
	}
	if strings.HasPrefix(abs, "/proc/") || strings.HasPrefix(abs, "/dev/") {
		a.opaque("runs code that is not constant", cordon.OriginUnknown, false)
	}
	if strings.HasPrefix(name, "/") || !isCode(name) {
		a.emit(cordon.Effect{Kind: cordon.Read, Target: name, Dir: a.dir(), Expanded: true})
	}
	return tainted(set{src: []string{name}, t: file})
}

// isCode is whether a relative specifier names a module rather than data.
// Where it starts from is the directory of the file, which is not known.
func isCode(name string) bool {
	for _, part := range strings.Split(name, "/") {
		if strings.HasPrefix(part, ".") && part != "." && part != ".." {
			return false
		}
	}
	return path.Ext(name) != ".json" || path.Base(name) == "package.json"
}

// dataModule runs the text of a data: address.
func (a *analysis) dataModule(name string, from set) {
	head, body, ok := strings.Cut(name[len("data:"):], ",")
	if !ok || hasHole(name) {
		a.opaque("runs code that is not constant", originOf(from), false)
		return
	}
	if u, err := url.PathUnescape(body); err == nil {
		body = u
	}
	head = strings.ToLower(head)
	if strings.Contains(head, "base64") {
		b, err := decodeBase64(body)
		if err != nil {
			a.opaque("runs code that cannot be decoded", cordon.OriginDecoded, false)
			return
		}
		body = string(b)
		from.t |= decoded
	}
	if strings.Contains(head, "json") {
		return
	}
	if strings.Contains(head, "wasm") {
		a.opaque("loads native code: WebAssembly", cordon.OriginLiteral, true)
		return
	}
	a.codeString(body, from)
	a.result = set{}
}

func decodeBase64(s string) ([]byte, error) {
	s = strings.TrimRight(s, "= \r\n\t")
	if strings.Contains(s, "=") {
		return nil, base64.CorruptInputError(strings.IndexByte(s, '='))
	}
	s = strings.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		case ' ', '\n', '\r', '\t':
			return -1
		}
		return r
	}, s)
	return base64.RawStdEncoding.DecodeString(s)
}

// inner parses and runs a code string, with the last expression as result.
func (a *analysis) inner(src string) {
	if why := prescan(src); why != "" {
		a.limit("JavaScript " + why)
		return
	}
	t, err := a.parse(src)
	if err != nil {
		// It would throw; but this parser is not the one that will run it.
		a.opaque("evaluates text that does not parse as JavaScript: "+oneLine(err.Error()), cordon.OriginLiteral, true)
		a.scan(src)
		return
	}
	old := a.frame
	a.frame = &frame{parent: old, vars: map[*js.Var]*set{}, base: a.cond, this: sym("globalThis")}
	a.evalScope(old)
	a.top = &t.Scope
	stmts := t.List
	var last js.IExpr
	if n := len(stmts); n > 0 {
		switch s := stmts[n-1].(type) {
		case *js.ExprStmt:
			last, stmts = s.Value, stmts[:n-1]
		case *js.DirectivePrologueStmt:
			a.result = str(strings.Trim(string(s.Value), `"'`))
		}
	}
	a.block(stmts)
	if last != nil {
		a.result = a.value(last)
	}
	a.exportVars(t)
	a.frame = old
	for _, other := range a.otherReadings(src) {
		a.frame = &frame{parent: old, vars: map[*js.Var]*set{}, base: a.cond, this: sym("globalThis")}
		a.top = &other.Scope
		a.block(other.List)
		a.frame = old
	}
}

// evalScope makes the names around a direct eval visible in it by name.
func (a *analysis) evalScope(f *frame) {
	a.names = append(a.names, f)
}

// exportVars makes the var and function names of a code string global.
func (a *analysis) exportVars(t *js.AST) {
	a.names = a.names[:len(a.names)-1]
	for _, v := range t.Declared {
		if v.Decl != js.VariableDecl && v.Decl != js.FunctionDecl {
			continue
		}
		if p, ok := a.frame.vars[v]; ok {
			a.setGlobal(identifier(v.Data), *p)
		}
	}
}

// byName finds a name of the text around a direct eval.
func (a *analysis) byName(name string) (set, bool) {
	for i := len(a.names) - 1; i >= 0; i-- {
		for f := a.names[i]; f != nil; f = f.parent {
			a.charge(4 * len(f.vars))
			for v, p := range f.vars {
				if string(v.Data) == name {
					return *p, true
				}
			}
		}
	}
	return set{}, false
}
