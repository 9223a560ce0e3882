package shell

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// param adds a parameter expansion.
func (f *fields) param(p *syntax.ParamExp, quoted bool) {
	w := f.w
	if p.Param == nil {
		f.expanded(val{s: mUnknown}, quoted)
		return
	}
	if list, ok := w.listOf(p); ok {
		f.list(p, list, quoted)
		return
	}
	v, set := w.paramValue(p)
	f.expanded(w.paramOp(p, v, set, quoted), quoted)
}

// listOf gives the values of "$@", "${a[@]}" and their kin.
func (w *walker) listOf(p *syntax.ParamExp) ([]val, bool) {
	name := p.Param.Value
	if p.Length || p.Excl && p.Names == 0 && p.Index == nil {
		return nil, false
	}
	if p.Names != 0 {
		return w.namesWith(name), true
	}
	if name == "@" || name == "*" {
		if len(w.params) == 0 && w.openParams {
			return []val{{s: mPath}}, true
		}
		return w.slice(p, append([]val{w.arg0}, w.params...), true), true
	}
	idx := indexLit(p.Index)
	if idx != "@" && idx != "*" {
		return nil, false
	}
	s := w.names.get(name)
	if s == nil {
		v, set := w.lookup(name)
		if !set && v.s == mUnset {
			return nil, true
		}
		return []val{v}, true
	}
	if !s.isArr {
		v, _ := w.lookup(name)
		return []val{v}, true
	}
	if p.Excl {
		var out []val
		for i := range s.arr {
			if len(s.keys) > i {
				out = append(out, lit(s.keys[i]))
			} else {
				out = append(out, lit(strconv.Itoa(i)))
			}
		}
		return out, true
	}
	return w.slice(p, s.arr, false), true
}

func indexLit(x syntax.ArithmExpr) string {
	if word, ok := x.(*syntax.Word); ok {
		return word.Lit()
	}
	return ""
}

// slice applies ${@:2:1}; positional parameters count from $0.
func (w *walker) slice(p *syntax.ParamExp, l []val, positional bool) []val {
	if p.Slice == nil {
		if positional {
			return l[1:]
		}
		return l
	}
	from, ok1 := w.arithm(p.Slice.Offset)
	n, ok2 := len(l), true
	if p.Slice.Length != nil {
		n, ok2 = w.arithm(p.Slice.Length)
	}
	if !ok1 || !ok2 {
		return l
	}
	if from < 0 {
		from = max(len(l)+from, 0)
	}
	from = min(from, len(l))
	if n < 0 {
		return l[from:]
	}
	return l[from:min(from+n, len(l))]
}

func (f *fields) list(p *syntax.ParamExp, l []val, quoted bool) {
	w := f.w
	star := p.Param.Value == "*" || indexLit(p.Index) == "*" || p.Names == syntax.NamesPrefix
	if quoted && star || !f.split {
		ifs, _ := w.lookup("IFS")
		sep := " "
		if ifs.s == "" {
			sep = ""
		} else if ifs.known() {
			sep = ifs.s[:1]
		}
		vs := make([]val, len(l))
		for i, v := range l {
			vs[i] = w.paramOp(p, v, true, quoted)
		}
		f.expanded(joinVals(vs, sep), true)
		return
	}
	if len(l) == 0 && p.Exp != nil {
		f.expanded(w.paramOp(p, val{}, false, quoted), quoted)
		return
	}
	for i, v := range l {
		if i > 0 {
			f.flush()
		}
		if quoted {
			f.open = true
		}
		if p.Exp != nil || p.Repl != nil {
			v = w.paramOp(p, v, true, quoted)
		}
		f.expanded(v, quoted)
	}
}

func (w *walker) namesWith(prefix string) []val {
	var out []val
	for k := range w.names.m {
		if strings.HasPrefix(k, prefix) {
			out = append(out, lit(k))
		}
	}
	sortVals(out)
	return out
}

// paramValue is the value before any operation.
func (w *walker) paramValue(p *syntax.ParamExp) (v val, set bool) {
	name := p.Param.Value
	if p.Excl {
		ref, _ := w.lookup(name)
		return w.indirect(ref)
	}
	if p.Index != nil {
		return w.element(name, p.Index)
	}
	return w.lookup(name)
}

// indirect is ${!v}: the value names another parameter, maybe subscripted.
func (w *walker) indirect(ref val) (val, bool) {
	if !ref.known() {
		return val{s: mUnknown, data: ref.data}, true
	}
	if i := strings.IndexByte(ref.s, '['); i > 0 {
		w.arithText(ref.s)
		s := w.names.get(ref.s[:i])
		idx := strings.TrimSuffix(ref.s[i+1:], "]")
		if s != nil && (idx == "@" || idx == "*") {
			return joinVals(s.arr, " "), true
		}
		if s != nil {
			return pickElement(s, idx)
		}
		return val{s: mUnset}, false
	}
	return w.lookup(ref.s)
}

func (w *walker) element(name string, x syntax.ArithmExpr) (val, bool) {
	s := w.names.get(name)
	key := w.subscript(x)
	if s == nil || !s.isArr {
		if key == "0" || key == "-1" {
			return w.lookup(name)
		}
		return val{s: mUnset}, false
	}
	if hasMark(key) {
		v := val{s: mUnknown}
		for _, e := range s.arr {
			v.data = union(v.data, e.data)
		}
		return v, true
	}
	return pickElement(s, key)
}

func pickElement(s *slot, key string) (val, bool) {
	for i, k := range s.keys {
		if k == key && i < len(s.arr) {
			return s.arr[i], true
		}
	}
	if len(s.keys) > 0 {
		return val{}, false
	}
	n, err := strconv.Atoi(key)
	if err != nil {
		n = 0
	}
	if n < 0 {
		n += len(s.arr)
	}
	if n < 0 || n >= len(s.arr) {
		return val{}, false
	}
	return s.arr[n], true
}

// subscript evaluates an array index; it may run substitutions.
func (w *walker) subscript(x syntax.ArithmExpr) string {
	if word, ok := x.(*syntax.Word); ok {
		v := w.single(word)
		if n, ok := w.arithText(v.s); ok {
			return strconv.Itoa(n)
		}
		return v.s
	}
	if n, ok := w.arithm(x); ok {
		return strconv.Itoa(n)
	}
	return mUnknown
}

// paramOp applies what follows the name between the braces.
func (w *walker) paramOp(p *syntax.ParamExp, v val, set, quoted bool) val {
	switch {
	case p.Length:
		return w.length(p, v)
	case p.Slice != nil && p.Param.Value != "@" && p.Param.Value != "*" && indexLit(p.Index) != "@":
		return w.substring(p.Slice, v)
	case p.Repl != nil:
		return w.replace(p.Repl, v)
	case p.Exp != nil:
		return w.expansion(p, v, set)
	case len(p.Modifiers) > 0 || p.Flags != nil:
		return val{s: mUnknown, data: v.data}
	}
	return v
}

func (w *walker) length(p *syntax.ParamExp, v val) val {
	name := p.Param.Value
	if idx := indexLit(p.Index); idx == "@" || idx == "*" {
		if s := w.names.get(name); s != nil {
			return lit(strconv.Itoa(len(s.arr)))
		}
		return lit("0")
	}
	if name == "@" || name == "*" {
		return lit(strconv.Itoa(len(w.params)))
	}
	if !v.known() {
		return val{s: mName}
	}
	return lit(strconv.Itoa(utf8.RuneCountInString(v.s)))
}

func (w *walker) substring(sl *syntax.Slice, v val) val {
	from, ok := w.arithm(sl.Offset)
	n, ok2 := 1<<30, true
	if sl.Length != nil {
		n, ok2 = w.arithm(sl.Length)
	}
	if !ok || !ok2 || !v.known() {
		return w.vague(v)
	}
	r := []rune(v.s)
	if from < 0 {
		if from += len(r); from < 0 {
			return val{}
		}
	}
	from = min(from, len(r))
	if n < 0 {
		n = max(len(r)+n-from, 0)
	}
	v.s = string(r[from : from+min(n, len(r)-from)])
	return v
}

// vague is a value derived from v in a way that could not be followed.
func (w *walker) vague(v val) val {
	switch {
	case v.s == "":
	case strings.Contains(v.s, mTemp):
		v.s = mTemp
	case !startsUnknown(v.s) && !strings.HasPrefix(v.s, "/") && !strings.Contains(v.s, ".."):
		v.s = mPath
	case v.known() || v.s == mUnset:
		v.s = mUnknown
	default:
		v.s = unknownOf(v.taint)
	}
	return v
}

func (w *walker) replace(r *syntax.Replace, v val) val {
	pat := w.pattern(r.Orig)
	with := w.single(r.With)
	if v.s == "" {
		return v
	}
	if !v.known() || !knownPattern(pat.s) || !with.known() {
		out := w.vague(v)
		out.data = union(out.data, with.data)
		return out
	}
	v.s = replacePattern(v.s, pat.s, with.s, r.All)
	return v
}

func (w *walker) expansion(p *syntax.ParamExp, v val, set bool) val {
	e := p.Exp
	unset := !set && v.s == mUnset
	switch e.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if set && v.s != "" && v.s != mUnset || set && v.s == "" && (e.Op == syntax.DefaultUnset || e.Op == syntax.AssignUnset) {
			return v
		}
		d := w.single(e.Word)
		if e.Op == syntax.AssignUnset || e.Op == syntax.AssignUnsetOrNull {
			w.setVar(p.Param.Value, d)
		}
		// Not set in the text: the environment could hold another value, but
		// the default is what the writer counts on.
		return d
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		d := w.single(e.Word)
		if unset || v.s == "" && (!set || e.Op == syntax.AlternateUnsetOrNull) {
			if unset && len(p.Param.Value) > 1 && strings.ToUpper(p.Param.Value) == p.Param.Value {
				return d // an environment variable: it may well be set
			}
			return val{}
		}
		return d
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		w.single(e.Word)
		return v
	case syntax.OtherParamOps:
		return w.transform(e, v)
	}
	return w.trim(e, v)
}

func (w *walker) trim(e *syntax.Expansion, v val) val {
	pat := w.pattern(e.Word)
	switch e.Op {
	case syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		if !v.known() {
			return v
		}
		v.s = changeCase(v.s, e.Op)
		return v
	}
	if v.s == "" {
		return v
	}
	if !knownPattern(pat.s) {
		return w.vague(v)
	}
	if !v.known() {
		return w.trimPartly(e, v, pat.s)
	}
	switch e.Op {
	case syntax.RemSmallPrefix:
		v.s = trimPrefix(v.s, pat.s, false)
	case syntax.RemLargePrefix:
		v.s = trimPrefix(v.s, pat.s, true)
	case syntax.RemSmallSuffix:
		v.s = trimSuffix(v.s, pat.s, false)
	case syntax.RemLargeSuffix:
		v.s = trimSuffix(v.s, pat.s, true)
	}
	return v
}

// trimPartly keeps what the usual trims leave of a text with holes:
// ${f%.c} and ${f##*/} of a name that a loop found.
func (w *walker) trimPartly(e *syntax.Expansion, v val, pat string) val {
	switch {
	case e.Op == syntax.RemLargePrefix && deactivate(pat) == "*/":
		if startsUnknown(v.s) || strings.HasSuffix(v.s, mName) || strings.Contains(v.s, mPath) {
			return val{s: mName, data: v.data, taint: v.taint}
		}
	case (e.Op == syntax.RemSmallSuffix || e.Op == syntax.RemLargeSuffix) && !hasMark(pat) && strings.HasSuffix(v.s, pat):
		v.s = strings.TrimSuffix(v.s, pat)
		return v
	case (e.Op == syntax.RemSmallPrefix || e.Op == syntax.RemLargePrefix) && !hasMark(pat) && strings.HasPrefix(v.s, pat):
		v.s = strings.TrimPrefix(v.s, pat)
		return v
	case e.Op == syntax.RemSmallSuffix || e.Op == syntax.RemLargeSuffix:
		return v
	}
	return w.vague(v)
}

func (w *walker) transform(e *syntax.Expansion, v val) val {
	op := ""
	if e.Word != nil {
		op = e.Word.Lit()
	}
	if op == "P" {
		// Prompt expansion runs the substitutions in the value.
		return w.document(unescape(v.s, true), v)
	}
	if !v.known() {
		return v
	}
	switch op {
	case "E":
		v.s = ansiC(v.s)
	case "U":
		v.s = strings.ToUpper(v.s)
	case "u":
		v.s = changeCase(v.s, syntax.UpperFirst)
	case "L":
		v.s = strings.ToLower(v.s)
	}
	return v
}

func changeCase(s string, op syntax.ParExpOperator) string {
	switch op {
	case syntax.UpperAll:
		return strings.ToUpper(s)
	case syntax.LowerAll:
		return strings.ToLower(s)
	}
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	if op == syntax.UpperFirst {
		return string(unicode.ToUpper(r)) + s[n:]
	}
	return string(unicode.ToLower(r)) + s[n:]
}
