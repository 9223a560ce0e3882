package shell

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// maxFields bounds what one command's words may expand to.
const maxFields = 4096

// fields collects the fields of words as they expand.
type fields struct {
	w     *walker
	out   []val
	b     []byte
	data  []string
	taint taint
	open  bool // the current field exists, even if empty
	split bool // word splitting and pathname expansion take place
}

func (f *fields) flush() {
	if f.open || len(f.b) > 0 {
		f.out = append(f.out, val{s: string(f.b), data: f.data, taint: f.taint})
	}
	f.b, f.data, f.taint, f.open = f.b[:0], nil, 0, false
}

func (f *fields) add(v val) {
	f.b = append(f.b, v.s...)
	f.data = union(f.data, v.data)
	f.taint |= v.taint
	if len(f.b) > maxText {
		f.b = append(f.b[:0], unknownOf(f.taint)...)
	}
}

// words expands the words of a command into its arguments.
func (w *walker) words(ws []*syntax.Word) []val {
	out := make([]val, 0, len(ws))
	for _, word := range ws {
		if len(word.Parts) == 1 {
			if l, ok := word.Parts[0].(*syntax.Lit); ok && plainLit(l.Value) {
				out = append(out, val{s: l.Value})
				continue
			}
		}
		for _, bw := range w.braces(word) {
			f := fields{w: w, split: true}
			f.parts(bw.Parts, false, true)
			f.flush()
			out = append(out, f.out...)
		}
		if len(out) > maxFields {
			w.limit("fields of one command")
			return out[:maxFields]
		}
	}
	return out
}

func plainLit(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\', '*', '?', '[', '{', '~', '=', ':':
			return false
		}
	}
	return true
}

// single expands a word where no splitting takes place.
func (w *walker) single(word *syntax.Word) val {
	if word == nil {
		return val{}
	}
	f := fields{w: w}
	f.parts(word.Parts, false, true)
	return val{s: string(f.b), data: f.data, taint: f.taint}
}

// assignValue is single, with tildes after colons too.
func (w *walker) assignValue(word *syntax.Word) val {
	v := w.single(word)
	if w.env.Home != "" && strings.Contains(v.s, ":~/") {
		v.s = strings.ReplaceAll(v.s, ":~/", ":"+w.env.Home+"/")
	}
	return v
}

// pattern expands a word that is matched as a pattern: active characters are
// kept as marks.
func (w *walker) pattern(word *syntax.Word) val {
	if word == nil {
		return val{}
	}
	f := fields{w: w, split: true}
	f.parts(word.Parts, false, true)
	f.flush()
	return joinVals(f.out, " ")
}

func (f *fields) parts(parts []syntax.WordPart, quoted, first bool) {
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			f.literal(p.Value, quoted, first && i == 0, len(parts) == 1)
		case *syntax.SglQuoted:
			f.open = true
			s := p.Value
			if p.Dollar {
				s = ansiC(s)
			}
			f.add(val{s: s})
		case *syntax.DblQuoted:
			f.quotedPart(p)
		case *syntax.ParamExp:
			f.param(p, quoted)
		case *syntax.CmdSubst:
			f.expanded(f.w.cmdSubst(p.Stmts), quoted)
		case *syntax.ArithmExp:
			f.expanded(f.w.arithmVal(p.X), quoted)
		case *syntax.ProcSubst:
			f.add(f.w.procSubst(p))
		case *syntax.ExtGlob:
			f.add(val{s: mGlob + "*"})
		}
	}
}

func (f *fields) quotedPart(p *syntax.DblQuoted) {
	f.open = true
	if len(p.Parts) == 1 {
		// "$@" of nothing is no field at all.
		if pe, ok := p.Parts[0].(*syntax.ParamExp); ok && f.split && pe.Param != nil && pe.Param.Value == "@" && len(f.w.params) == 0 && len(f.b) == 0 && !f.w.openParams {
			f.open = false
		}
	}
	f.parts(p.Parts, true, false)
}

// literal adds text as it stands in the source.
func (f *fields) literal(s string, quoted, first, whole bool) {
	if first && !quoted && s != "" && s[0] == '~' {
		s = f.tilde(s)
	} else if !quoted && !first && len(f.b) > 0 && f.b[len(f.b)-1] == '=' && strings.HasPrefix(s, "~/") {
		s = f.tilde(s)
	}
	if i := strings.Index(s, "=~/"); i > 0 && !quoted && f.w.env.Home != "" {
		// "dd of=~/x" and "--file=~/x": bash expands only the assignments of
		// builtins, other shells and make all of them.
		s = s[:i+1] + f.w.env.Home + s[i+2:]
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			n := s[i+1]
			if !quoted || n == '$' || n == '`' || n == '"' || n == '\\' || n == '\n' {
				i++
				f.open = true
				if n != '\n' {
					f.b = append(f.b, n)
				}
				continue
			}
		}
		if !quoted && f.split && (c == '*' || c == '?' || c == '[' && strings.IndexByte(s[i:], ']') > 0) {
			f.b = append(f.b, mGlob...)
		}
		f.b = append(f.b, c)
	}
}

// tilde expands a leading tilde prefix, writes it and returns the rest.
func (f *fields) tilde(s string) string {
	end := strings.IndexAny(s, "/:")
	if end < 0 {
		end = len(s)
	}
	if strings.ContainsAny(s[:end], "\\*?[$") {
		return s
	}
	f.open = true
	switch name := s[1:end]; name {
	case "":
		v, _ := f.w.lookup("HOME")
		if f.w.env.Home == "" && v.s == mUnset {
			v = lit("~")
		}
		f.add(v)
	case "+":
		f.add(f.w.dir())
	case "-":
		if s := f.w.names.get(keyOldDir); s != nil {
			f.add(s.alts[0])
		} else {
			f.add(val{s: mUnset})
		}
	case "root":
		f.add(lit("/root"))
	default:
		if name == f.w.env.User && f.w.env.Home != "" {
			f.add(lit(f.w.env.Home))
		} else {
			f.add(lit("/home/" + name))
		}
	}
	return s[end:]
}

// expanded adds the result of an expansion, split where it is not quoted.
func (f *fields) expanded(v val, quoted bool) {
	if quoted || !f.split {
		if strings.Contains(v.s, mGlob) {
			v.s = settle(v.s)
		}
		f.add(v)
		return
	}
	ifs, _ := f.w.lookup("IFS")
	if ifs.s == "" || !strings.ContainsAny(v.s, ifs.s) {
		v.s = activate(v.s)
		f.add(v)
		return
	}
	pieces, lead, trail := splitIFS(v.s, ifs.s)
	if lead {
		f.flush()
	}
	for i, p := range pieces {
		if i > 0 {
			f.flush()
		}
		f.open = true
		f.add(val{s: activate(p), data: v.data, taint: v.taint})
		if len(f.out) > maxFields {
			return
		}
	}
	if trail {
		f.flush()
	}
}

// splitIFS splits as the shell does: runs of white space separate once, any
// other separator each time.
func splitIFS(s, ifs string) (pieces []string, lead, trail bool) {
	white := func(c byte) bool { return (c == ' ' || c == '\t' || c == '\n') && strings.IndexByte(ifs, c) >= 0 }
	i := 0
	for i < len(s) && white(s[i]) {
		i++
		lead = true
	}
	start := i
	for i < len(s) {
		if strings.IndexByte(ifs, s[i]) < 0 || s[i] >= 0x80 {
			i++
			continue
		}
		pieces = append(pieces, s[start:i])
		hard := !white(s[i])
		i++
		for i < len(s) && (white(s[i]) || !hard && strings.IndexByte(ifs, s[i]) >= 0) {
			hard = hard || !white(s[i])
			i++
		}
		start, trail = i, i == len(s)
		if len(pieces) > maxFields {
			return pieces, lead, trail
		}
	}
	if start < len(s) {
		pieces = append(pieces, s[start:])
		trail = false
	}
	return pieces, lead, trail
}

// braces expands {a,b} and {1..3}, up to a bound.
func (w *walker) braces(word *syntax.Word) []*syntax.Word {
	has := false
	for _, p := range word.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			has = has || strings.IndexByte(p.Value, '{') >= 0
		case *syntax.BraceExp:
			has = true
		}
	}
	if !has {
		return []*syntax.Word{word}
	}
	cp := &syntax.Word{Parts: append([]syntax.WordPart(nil), word.Parts...)}
	syntax.SplitBraces(cp)
	n := 0
	return w.expandBraces(cp, &n, 0)
}

const maxBraces = 2048

func (w *walker) expandBraces(word *syntax.Word, n *int, depth int) []*syntax.Word {
	if *n += 1 + len(word.Parts)/8; *n > maxBraces || depth > 64 {
		w.limit("brace expansion")
		return nil
	}
	for i, p := range word.Parts {
		br, ok := p.(*syntax.BraceExp)
		if !ok {
			continue
		}
		left, right := word.Parts[:i], word.Parts[i+1:]
		var out []*syntax.Word
		for _, e := range w.braceElems(br) {
			if *n > maxBraces || depth > 64 {
				break
			}
			parts := make([]syntax.WordPart, 0, len(word.Parts)+len(e))
			parts = append(append(append(parts, left...), e...), right...)
			out = append(out, w.expandBraces(&syntax.Word{Parts: parts}, n, depth+1)...)
		}
		return out
	}
	return []*syntax.Word{word}
}

func (w *walker) braceElems(br *syntax.BraceExp) [][]syntax.WordPart {
	var out [][]syntax.WordPart
	if !br.Sequence {
		for _, e := range br.Elems {
			out = append(out, e.Parts)
		}
		return out
	}
	from, to, step := br.Elems[0].Lit(), br.Elems[1].Lit(), 1
	if len(br.Elems) > 2 {
		if n, err := strconv.Atoi(br.Elems[2].Lit()); err == nil && n != 0 {
			step = max(n, -n)
		}
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	chars := false
	if err1 != nil || err2 != nil {
		if len(from) != 1 || len(to) != 1 {
			return [][]syntax.WordPart{{&syntax.Lit{Value: mName}}}
		}
		a, b, chars = int(from[0]), int(to[0]), true
	}
	if n := max(b-a, a-b) / step; n > 64 || n < 0 {
		// A long count: the numbers themselves do not matter.
		return [][]syntax.WordPart{{&syntax.Lit{Value: mName}}}
	}
	width := 0
	if len(from) > 1 && from[0] == '0' || len(to) > 1 && to[0] == '0' {
		width = max(len(from), len(to))
	}
	for i := a; ; {
		s := strconv.Itoa(i)
		if chars {
			s = string(rune(i))
		}
		for len(s) < width {
			s = "0" + s
		}
		out = append(out, []syntax.WordPart{&syntax.Lit{Value: s}})
		if a <= b {
			if i += step; i > b {
				break
			}
		} else if i -= step; i < b {
			break
		}
	}
	return out
}

// ansiC decodes the escapes of $'…'.
func ansiC(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return unescape(s, true)
}

// unescape decodes backslash escapes as $'…' and printf do.
func unescape(s string, ansi bool) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'a':
			b = append(b, 7)
		case 'b':
			b = append(b, 8)
		case 'e', 'E':
			b = append(b, 27)
		case 'f':
			b = append(b, 12)
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'v':
			b = append(b, 11)
		case '\\', '\'', '"', '?':
			if !ansi && c == '?' {
				b = append(b, '\\')
			}
			b = append(b, c)
		case 'x':
			n, l := digits(s[i+1:], 16, 2)
			if l == 0 {
				b = append(b, '\\', 'x')
				continue
			}
			b = append(b, byte(n))
			i += l
		case 'u', 'U':
			k := 4
			if c == 'U' {
				k = 8
			}
			n, l := digits(s[i+1:], 16, k)
			if l == 0 {
				b = append(b, '\\', c)
				continue
			}
			b = utf8.AppendRune(b, rune(n))
			i += l
		case 'c':
			if ansi && i+1 < len(s) {
				i++
				b = append(b, s[i]&0x1f)
			}
		case '0', '1', '2', '3', '4', '5', '6', '7':
			k := 3
			if !ansi && c == '0' {
				k = 4
			}
			n, l := digits(s[i:], 8, k)
			b = append(b, byte(n))
			i += l - 1
		default:
			b = append(b, '\\', c)
		}
	}
	if z := strings.IndexByte(string(b), 0); z >= 0 && ansi {
		b = b[:z]
	}
	return cleanInput(string(b))
}

func digits(s string, base, most int) (n, length int) {
	for length < len(s) && length < most {
		c, d := s[length], 0
		switch {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c >= 'a' && c <= 'f':
			d = int(c-'a') + 10
		case c >= 'A' && c <= 'F':
			d = int(c-'A') + 10
		default:
			d = 99
		}
		if d >= base {
			break
		}
		n = n*base + d
		length++
	}
	return n, length
}

// cmdSubst runs a substitution and gives what it prints.
func (w *walker) cmdSubst(stmts []*syntax.Stmt) val {
	if len(stmts) == 1 && stmts[0].Cmd == nil && len(stmts[0].Redirs) == 1 && stmts[0].Redirs[0].Op == syntax.RdrIn {
		// $(< file)
		w.expanding++
		v := w.single(stmts[0].Redirs[0].Word)
		w.expanding--
		w.reads(v)
		return w.content(v)
	}
	var out sink
	w.expanding++
	m := w.names.mark()
	w.stmts(stmts, stdio{out: &out})
	w.names.undo(m)
	w.expanding--
	v := out.v
	v.s = strings.TrimRight(v.s, "\n")
	return v
}

// procSubst gives the name of the pipe that a process substitution stands
// for; what it prints is the content of that name.
func (w *walker) procSubst(p *syntax.ProcSubst) val {
	w.pipes++
	name := mTemp + "fd" + strconv.Itoa(w.pipes)
	m := w.names.mark()
	var out sink
	io := stdio{out: &out}
	if p.Op == syntax.CmdOut {
		io = stdio{in: &val{s: mUnknown}}
	}
	w.expanding++
	w.stmts(p.Stmts, io)
	w.expanding--
	w.names.undo(m)
	w.store(name, out.v, false)
	return val{s: name, data: out.v.data}
}
