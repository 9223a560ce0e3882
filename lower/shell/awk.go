package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// handleAwk finds the program and the files, and scans the program.
func handleAwk(w *walker, c *inv) {
	files := c.ops
	var progs []val
	vars := map[string]val{}
	for _, o := range c.opts {
		switch o.name {
		case "-f", "-E", "-i":
			w.reads(o.v)
			body, ok := w.written(o.v)
			if !ok {
				body, ok = w.readScript(o.v)
			}
			if o.v.s == "-" || o.v.s == "/dev/stdin" {
				body, ok = c.in, true
			}
			if ok {
				progs = append(progs, body)
			}
			if o.name == "-f" || o.name == "-E" {
				files = append([]val{{}}, files...)
			}
		case "-e":
			progs = append(progs, o.v)
			files = append([]val{{}}, files...)
		case "-v":
			if k, x, ok := strings.Cut(o.v.s, "="); ok {
				vars[k] = val{s: x, data: o.v.data, taint: o.v.taint}
			}
		case "-l":
			w.opaque("loads native code", cordon.OriginFile, o.v.s)
		case "-o", "-d", "-p":
			if o.has {
				w.writes(o.v, "create")
			}
		}
	}
	if len(files) > 0 {
		if len(progs) == 0 {
			progs = append(progs, files[0])
		}
		files = files[1:]
	}
	in := c.in
	for _, f := range files {
		if k, x, ok := strings.Cut(f.s, "="); ok && validName(k) {
			vars[k] = val{s: x, data: f.data}
			continue
		}
		w.reads(f)
		c.took(f)
		in = w.content(f)
	}
	for _, p := range progs {
		pop := w.push(c.name)
		w.awkProgram(val{s: deactivate(p.s), data: p.data, taint: p.taint}, vars, &in)
		pop()
		if strings.TrimSpace(p.s) == "1" {
			c.print(in)
		}
	}
	if !c.set {
		s := unknownOf(in.taint)
		if len(progs) == 1 && awkGathers(progs[0].s) {
			s = mDecoded
		}
		if awkPrintsNumbers(progs) {
			s = mName
		} else if strings.HasPrefix(in.s, mPath) {
			s = somePath(in.s)
		}
		c.print(val{s: s, data: union(in.data, c.out.data), taint: in.taint})
	}
}

// awkGathers reports whether a program builds text by printf %c and kin.
func awkGathers(s string) bool { return strings.Contains(s, "%c") || strings.Contains(s, "strtonum") }

func awkPrintsNumbers(progs []val) bool {
	return len(progs) == 1 && (strings.HasPrefix(progs[0].s, "{print $") || strings.HasPrefix(progs[0].s, "{ print $")) && strings.Count(progs[0].s, "print") == 1 && !strings.ContainsAny(progs[0].s, `"|>`)
}

type awkTok struct {
	kind byte // 's' string, 'w' word, 'p' punctuation, 'r' regular expression, 'n' number
	s    string
}

// awkTokens cuts an awk program into tokens.
func awkTokens(s string) []awkTok {
	var out []awkTok
	operand := false // a slash here divides
	for i := 0; i < len(s) && len(out) < 20000; {
		c := s[i]
		switch {
		case c == '#':
			i = lineEnd(s, i)
		case c == '\n' || c == ';':
			out = append(out, awkTok{'p', ";"})
			operand = false
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			i += 2
		case c == '"':
			j := i + 1
			for j < len(s) && s[j] != '"' {
				if s[j] == '\\' {
					j++
				}
				j++
			}
			out = append(out, awkTok{'s', unescape(s[i+1:min(j, len(s))], true)})
			i, operand = j+1, true
		case c == '/' && !operand:
			j := sedSkip(s, i+1, '/')
			out = append(out, awkTok{'r', s[i:j]})
			i, operand = j, true
		case isWordByte(c) && c != '/' && c != ',' && c != ':' && c != '%' && c != '@' || c == '@':
			j := i + 1
			for j < len(s) && (validName("a"+s[j:j+1]) || s[j] == '.') {
				j++
			}
			out = append(out, awkTok{'w', s[i:j]})
			operand = s[i:j] != "print" && s[i:j] != "return" && s[i:j] != "in" && s[i:j] != "getline"
			i = j
		default:
			n := 1
			if i+1 < len(s) && (s[i:i+2] == ">>" || s[i:i+2] == "||" || s[i:i+2] == "&&" || s[i:i+2] == "|&" || s[i:i+2] == ">=" || s[i:i+2] == "<=" || s[i:i+2] == "==" || s[i:i+2] == "!=") {
				n = 2
			}
			out = append(out, awkTok{'p', s[i : i+n]})
			operand = c == ')' || c == ']' || c == '$'
			i += n
		}
	}
	return out
}

// awkReader looks through tokens for what starts commands and opens files.
type awkReader struct {
	w    *walker
	t    []awkTok
	vars map[string]val
	in   *val
}

func (w *walker) awkProgram(src val, vars map[string]val, in *val) {
	if !w.spend(len(src.s)/32 + 1) {
		return
	}
	if t := src.taint &^ tFile; t != 0 {
		w.opaque("runs code that was decoded or downloaded", src.origin(), src.s)
	}
	if vars == nil {
		vars = map[string]val{}
	}
	r := awkReader{w: w, t: awkTokens(src.s), vars: vars, in: in}
	r.assignments()
	r.actions()
}

// assignments collects variables that are given constant text.
func (r *awkReader) assignments() {
	for i := 0; i+2 < len(r.t); i++ {
		if r.t[i].kind == 'w' && r.t[i+1].s == "=" && r.t[i+1].kind == 'p' && validName(r.t[i].s) {
			if v, _ := r.expr(i + 2); v.s != "" {
				if old, ok := r.vars[r.t[i].s]; ok && old.s != v.s {
					v = val{s: mUnknown}
				}
				r.vars[r.t[i].s] = v
			}
		}
	}
}

// expr reads a concatenation from i on; it stops at what is none.
func (r *awkReader) expr(i int) (val, int) {
	var out val
	depth := 0
	for i < len(r.t) {
		t := r.t[i]
		switch {
		case t.kind == 's':
			out = join(out, val{s: t.s})
		case t.kind == 'w' && t.s == "ENVIRON" && i+3 < len(r.t) && r.t[i+1].s == "[":
			if r.t[i+2].kind == 's' {
				v, _ := r.w.lookup(r.t[i+2].s)
				out = join(out, v)
			} else {
				out = join(out, val{s: mUnknown})
			}
			i += 3
		case t.kind == 'w' && t.s == "getline":
			return out, i
		case t.kind == 'w' && (t.s == "print" || t.s == "printf" || t.s == "in"):
			return out, i
		case t.kind == 'w' && t.s == "sprintf" && i+2 < len(r.t):
			var args []val
			i, args = r.args(i + 1)
			out = join(out, formatted(args))
		case t.kind == 'w' && i+1 < len(r.t) && r.t[i+1].s == "(" && r.t[i+1].kind == 'p':
			i, _ = r.args(i + 1)
			out = join(out, val{s: mUnknown})
		case t.kind == 'w':
			if v, ok := r.vars[t.s]; ok {
				out = join(out, v)
			} else if isDigits(t.s) {
				out = join(out, val{s: t.s})
			} else {
				out = join(out, val{s: mUnknown})
			}
		case t.s == "$" && t.kind == 'p':
			if i+1 < len(r.t) && r.t[i+1].kind == 'w' {
				i++
			}
			out = join(out, r.field())
		case t.s == "(" && t.kind == 'p':
			depth++
		case t.s == ")" && t.kind == 'p' && depth > 0:
			depth--
		default:
			return out, i
		}
		i++
	}
	return out, i
}

// field is text from the input.
func (r *awkReader) field() val {
	if r.in != nil && r.in.s != "" && !bare(strings.TrimSpace(r.in.s)) && !strings.Contains(strings.TrimRight(r.in.s, "\n"), "\n") && r.in.known() {
		return val{s: strings.TrimRight(r.in.s, "\n"), data: r.in.data, taint: r.in.taint}
	}
	if r.in != nil {
		return val{s: unknownOf(r.in.taint), data: r.in.data, taint: r.in.taint}
	}
	return val{s: mFile}
}

// args reads "( … , … )" and returns the index of the closing bracket.
func (r *awkReader) args(i int) (int, []val) {
	if i >= len(r.t) || r.t[i].s != "(" {
		v, _ := r.expr(i)
		return i, []val{v}
	}
	var out []val
	depth := 0
	start := i + 1
	for ; i < len(r.t); i++ {
		if r.t[i].kind != 'p' {
			continue
		}
		switch r.t[i].s {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				v, _ := r.expr(start)
				return i, append(out, v)
			}
		case ",":
			if depth == 1 {
				v, _ := r.expr(start)
				out = append(out, v)
				start = i + 1
			}
		}
	}
	return i, out
}

func (r *awkReader) actions() {
	w := r.w
	printing := false
	parens := 0
	for i, t := range r.t {
		if t.kind == 'p' {
			switch t.s {
			case ";", "}", "{":
				printing, parens = false, 0
			case "(":
				parens++
			case ")":
				parens--
			}
		}
		switch {
		case t.kind == 'w' && (t.s == "print" || t.s == "printf"):
			printing, parens = true, 0
		case t.kind == 'w' && t.s == "system" && i+1 < len(r.t):
			_, a := r.args(i + 1)
			if len(a) > 0 && a[0].s != "" {
				w.turn(a[0], "awk system", stdio{})
			}
		case t.kind == 'w' && t.s == "ENVIRON":
			r.environ(i)
		case t.kind == 'w' && t.s == "ARGV" && i+5 < len(r.t) && r.t[i+4].s == "=":
			v, _ := r.expr(i + 5)
			w.reads(v)
		case t.kind == 'w' && (t.s == "@load" || t.s == "@include") && i+1 < len(r.t):
			w.reads(val{s: r.t[i+1].s})
		case t.kind == 'p' && (t.s == "|" || t.s == "|&"):
			r.pipe(i, printing)
		case t.kind == 'p' && (t.s == ">" || t.s == ">>") && printing && parens <= 0:
			if v, _ := r.expr(i + 1); v.s != "" && v.s != "/dev/stdout" && v.s != "/dev/stderr" {
				r.opens(v, t.s == ">>")
				if p, ok := r.printed(i); ok {
					w.storeAt(v, appendNL(p), t.s == ">>")
				}
			}
		case t.kind == 'p' && t.s == "<" && i > 0 && r.getlineBefore(i):
			if v, _ := r.expr(i + 1); v.s != "" && v.s != "-" {
				if !r.inet(v) {
					w.reads(v)
				}
			}
		}
	}
}

func (r *awkReader) getlineBefore(i int) bool {
	return r.t[i-1].s == "getline" || i > 1 && r.t[i-2].s == "getline"
}

// opens is a file that print writes to.
func (r *awkReader) opens(v val, add bool) {
	if r.inet(v) {
		return
	}
	op := "create"
	if add {
		op = "append"
	}
	if startsUnknown(v.s) && !strings.HasPrefix(v.s, mUnset) {
		// A name built from the input lands below the working directory.
		v.s = mPath
	}
	r.w.writes(v, op)
}

func (r *awkReader) inet(v val) bool {
	if !strings.HasPrefix(v.s, "/inet") {
		return false
	}
	f := strings.Split(v.s, "/")
	if len(f) >= 6 {
		addr := f[4] + ":" + f[5]
		r.w.connect(val{s: dropMarks(addr)}, "tcp", []string{"-"}, true)
		for _, t := range r.t {
			if t.kind == 'w' && t.s == "getline" {
				r.w.emit(cordon.Effect{Kind: cordon.Connect, Target: dropMarks(addr), Op: "reverse_shell", Sends: true, Doubtful: !r.runsLines()})
				break
			}
		}
	}
	return true
}

// runsLines: the program both pipes commands and reads lines.
func (r *awkReader) runsLines() bool {
	for i, t := range r.t {
		if t.kind == 'p' && t.s == "|" && i+1 < len(r.t) && r.t[i+1].s == "getline" {
			return true
		}
		if t.kind == 'w' && t.s == "system" {
			return true
		}
	}
	return false
}

// pipe is `cmd | getline` or `print … | cmd`.
func (r *awkReader) pipe(i int, printing bool) {
	w := r.w
	if i+1 < len(r.t) && r.t[i+1].s == "getline" {
		b := i
		for b > 0 && (r.t[b-1].kind == 's' || r.t[b-1].kind == 'w' && r.t[b-1].s != "while" && r.t[b-1].s != "if" && r.t[b-1].s != "print" || r.t[b-1].s == "$" || r.t[b-1].s == "]" || r.t[b-1].s == "[" || r.t[b-1].s == ")") {
			b--
		}
		if b > 0 && r.t[b-1].s == "(" && b < i && r.t[b].s == ")" {
			b++
		}
		v, _ := r.expr(b)
		if v.s != "" && !strings.HasPrefix(v.s, "/inet") {
			w.turn(v, "awk getline", stdio{})
		} else {
			r.inet(v)
		}
		return
	}
	if !printing {
		return
	}
	v, _ := r.expr(i + 1)
	if r.inet(v) || v.s == "" {
		return
	}
	in := val{s: mFile}
	if p, ok := r.printed(i); ok {
		in = p
	} else if r.in != nil && r.in.s != "" {
		in = *r.in
	}
	w.turn(v, "awk print |", stdio{in: &in})
}

// printed is the constant text of the print statement that ends at i.
func (r *awkReader) printed(i int) (val, bool) {
	for b := i - 1; b >= 0; b-- {
		if r.t[b].kind == 'w' && (r.t[b].s == "print" || r.t[b].s == "printf") {
			if b+1 == i {
				return r.field(), true
			}
			v, end := r.expr(b + 1)
			return v, end == i && v.s != ""
		}
		if r.t[b].s == ";" || r.t[b].s == "{" {
			break
		}
	}
	return val{}, false
}

func (r *awkReader) environ(i int) {
	w := r.w
	if i+2 < len(r.t) && r.t[i+1].s == "[" && r.t[i+2].kind == 's' {
		if n := r.t[i+2].s; secretName(n) {
			w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: n})
		}
		return
	}
	w.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*"})
}
