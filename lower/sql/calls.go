package sql

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// call judges name( at token i.
func (s *stmt) call(i int) {
	n := s.t[i].text
	if strings.EqualFold(n, "set_config") {
		s.setConfig(i + 2)
		return
	}
	// dblink in FROM, INSERT INTO f(…) and CREATE TABLE url(…) look alike: a
	// column list is no call.
	if s.tok(i-1).is("INTO", "TABLE", "INDEX", "VIEW", "EXISTS", "ON", "REFERENCES") {
		return
	}
	if i <= 4 && s.tok(i-1).is("FUNCTION", "PROCEDURE") && s.tok(0).is("CREATE", "ALTER", "DROP", "COMMENT") {
		return // it is defined here
	}
	if s.t[i].entry.tableCall && !s.tok(i-1).is("FROM", "JOIN", "FUNCTION") && !s.tok(i-1).sym(",") {
		return
	}
	if k := s.t[i].entry.call; k != 0 {
		s.invoke(k, strings.ToLower(n), i+1)
	}
}

func (s *stmt) setConfig(i int) {
	if i > len(s.t) {
		return
	}
	name, ok := fold(cut(s.t[i:]), s.vars)
	switch {
	case !ok:
		s.opaque("a setting whose name is not constant is changed", "")
	case hardSettings()[strings.ToUpper(name)] || strings.EqualFold(name, "session_authorization"):
		s.admin("sql_security", "setting "+name)
	}
}

// bareProcedure is T-SQL's call of a procedure without EXEC, which only the
// first statement of a batch may do.
func (s *stmt) bareProcedure() {
	if !s.tok(0).ident() || s.t[0].entry != nil && s.t[0].entry.rule != nil {
		return
	}
	last, _, next := s.name(0)
	if up := strings.ToUpper(last); strings.HasPrefix(up, "SP_") || strings.HasPrefix(up, "XP_") {
		s.procedure(last, next)
	}
}

func (s *stmt) procedure(name string, next int) {
	s.invoke(calls()[strings.ToUpper(name)], strings.ToLower(name), next)
}

// invoke judges a call whose arguments start at token i.
func (s *stmt) invoke(k callKind, name string, i int) {
	switch k {
	case 0:
	case callCode:
		s.codeArguments(i)
	case callNetwork:
		if !s.hosts(i) {
			s.add(cordon.Effect{Kind: cordon.Connect, Pattern: true, Op: "sql"})
		}
		s.opaque(name+" "+callReasons[k], "")
	case callAdmin:
		s.admin("sql_security", name)
	case callSecret:
		s.admin("credential", name)
	case callTable:
		for j := i; j < len(s.t) && j < i+4; j++ {
			if e := lookup(s.t[j].text[strings.LastIndexByte(s.t[j].text, '.')+1:]); s.t[j].kind == text && e != nil && e.secret {
				s.admin("credential", strings.ToLower(s.t[j].text))
			}
		}
	case callStop:
		s.destroy("kill_all", "database sessions", true)
	default:
		if path := s.tok(i + 1); k == callFile && path.kind == text {
			s.add(cordon.Effect{Kind: cordon.Read, Target: path.text, Dir: "/", Expanded: true})
		}
		s.opaque(name+" "+callReasons[k], "")
	}
}

// codeArguments reads the text argument of a function that runs SQL.
func (s *stmt) codeArguments(i int) {
	if s.tok(i).sym("(") {
		i++
	}
	arg := cut(s.t[min(i, len(s.t)):])
	// sp_executesql @stmt = N'…'
	if len(arg) > 2 && arg[0].kind == param && arg[1].sym("=") {
		arg = arg[2:]
	}
	s.dynamic(arg)
}

// fold computes a constant text: strings joined by ||, + or CONCAT, CHR and
// CHAR, REVERSE, REPLACE, decode(…), variables with known values. ok is false
// where any part is not constant.
func fold(t []token, vars map[string]string) (v string, ok bool) {
	f := folder{t: t, vars: vars}
	v, ok = f.expr(0)
	return v, ok && f.i == len(t)
}

type folder struct {
	t    []token
	i    int
	vars map[string]string
}

const maxFold = 64 << 10

func (f *folder) peek() *token {
	if f.i < len(f.t) {
		return &f.t[f.i]
	}
	return &nowhere
}

func (f *folder) take(s string) bool {
	if f.peek().sym(s) && f.i < len(f.t) {
		f.i++
		return true
	}
	return false
}

func (f *folder) expr(depth int) (string, bool) {
	v, ok := f.term(depth)
	for ok && len(v) <= maxFold && (f.take("||") || f.take("+")) {
		var w string
		w, ok = f.term(depth)
		v += w
	}
	return v, ok && len(v) <= maxFold
}

func (f *folder) term(depth int) (string, bool) {
	if depth > 32 {
		return "", false
	}
	t := f.peek()
	f.i++
	v, ok := "", false
	switch {
	case t.kind == text:
		v, ok = t.text, true
		for f.peek().kind == text && len(v) <= maxFold { // adjacent strings join
			v += f.peek().text
			f.i++
		}
	case t.kind == number:
		v, ok = t.text, true
	case t.kind == param:
		v, ok = f.vars[strings.ToLower(t.text)]
	case t.sym("("):
		v, ok = f.expr(depth + 1)
		ok = ok && f.take(")")
	case t.kind == word && f.take("("):
		v, ok = f.call(t.up(), depth)
	}
	for ok && f.take("::") { // a cast changes nothing that matters here
		f.i++
		if f.take("(") {
			f.i++
			f.take(")")
		}
	}
	return v, ok
}

func (f *folder) call(name string, depth int) (string, bool) {
	var args []string
	for !f.take(")") {
		v, ok := f.expr(depth + 1)
		if !ok {
			return "", false
		}
		args = append(args, v)
		if f.peek().is("AS", "USING") && f.i < len(f.t) { // CAST(x AS t), CONVERT(x USING t)
			f.i += 2
			if f.take("(") {
				f.i++
				f.take(")")
			}
		}
		if !f.take(",") && !f.peek().sym(")") {
			return "", false
		}
	}
	return apply(name, args)
}

func apply(name string, a []string) (string, bool) {
	switch {
	case name == "CONCAT":
		return strings.Join(a, ""), true
	case name == "CONCAT_WS" && len(a) > 0:
		return strings.Join(a[1:], a[0]), true
	case name == "CHR" || name == "CHAR" || name == "NCHAR":
		return characters(a)
	case len(a) == 1:
		return applyOne(name, a[0])
	case name == "REPLACE" && len(a) == 3 && a[1] != "":
		return strings.ReplaceAll(a[0], a[1], a[2]), true
	case name == "DECODE" && len(a) == 2:
		return decode(a[0], a[1])
	case name == "CONVERT_FROM" && len(a) == 2, name == "FORMAT" && len(a) == 1, name == "CONVERT" && len(a) == 2:
		return a[0], true
	case name == "SUBSTR" && len(a) == 3, name == "SUBSTRING" && len(a) == 3:
		return substring(a)
	}
	return "", false
}

func applyOne(name, v string) (string, bool) {
	switch name {
	case "LOWER":
		return strings.ToLower(v), true
	case "UPPER":
		return strings.ToUpper(v), true
	case "TRIM", "LTRIM", "RTRIM", "BTRIM":
		return strings.TrimSpace(v), true
	case "REVERSE":
		r := []rune(v)
		slices.Reverse(r)
		return string(r), true
	case "UNHEX":
		return decode(v, "hex")
	case "FROM_BASE64":
		return decode(v, "base64")
	case "QUOTE_LITERAL", "QUOTE_IDENT", "CAST", "FORMAT", "CONVERT", "CONCAT", "TO_CHAR", "CONVERT_FROM":
		return v, true
	}
	return "", false
}

func characters(codes []string) (string, bool) {
	var b strings.Builder
	for _, c := range codes {
		n, err := strconv.ParseUint(c, 0, 21)
		if err != nil {
			return "", false
		}
		b.WriteRune(rune(n))
	}
	return b.String(), true
}

func decode(v, form string) (string, bool) {
	var b []byte
	var err error
	switch strings.ToLower(form) {
	case "hex":
		b, err = hex.DecodeString(v)
	case "base64":
		b, err = base64.StdEncoding.DecodeString(v)
	case "escape":
		b = []byte(v)
	default:
		return "", false
	}
	return string(b), err == nil
}

func substring(a []string) (string, bool) {
	from, err1 := strconv.Atoi(a[1])
	n, err2 := strconv.Atoi(a[2])
	if err1 != nil || err2 != nil || from < 1 || n < 0 || from-1 > len(a[0]) {
		return "", false
	}
	return a[0][from-1 : min(len(a[0]), from-1+n)], true
}

// meta judges a client's own command.
func (r *reader) meta(line string) {
	cmd, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	if before, run, ok := strings.Cut(line, "`"); ok && strings.HasPrefix(line, `\`) {
		run, _, _ = strings.Cut(run, "`") // psql runs what stands in back-quotes
		r.shell(run)
		line, rest = before, strings.TrimSpace(before[min(len(cmd), len(before)):])
	}
	if isLetter(line[0]) {
		cmd = strings.ToLower(cmd)
	}
	switch {
	case strings.HasPrefix(line, `\!`):
		r.shell(strings.TrimSpace(line[2:]))
	case strings.HasPrefix(line, "!"), strings.HasPrefix(line, ":!!"):
		r.shell(strings.TrimSpace(strings.TrimLeft(line, "!:")))
	case strings.HasPrefix(line, "@"):
		r.metaFile("source", strings.TrimLeft(line, "@"))
	case cmd == ".param" || cmd == ".parameter":
		r.text("SELECT "+rest, MaxDepth)
	case metaShell[cmd]:
		r.shell(rest)
	case strings.HasPrefix(rest, "|"):
		r.shell(strings.TrimSpace(rest[1:]))
	default:
		r.metaFile(cmd, rest)
	}
}

func (r *reader) shell(cmd string) {
	r.opaque("a client command starts a shell", cmd)
	if r.env.Code != nil {
		for _, e := range r.env.Code(r.ctx, "shell", cmd, r.env.Dir) {
			r.add(e)
		}
	}
}

func (r *reader) metaFile(cmd, rest string) {
	path := strings.Trim(rest, `'"`)
	switch metaFiles[cmd] {
	case "read":
		path, _, _ = strings.Cut(path, " ")
		r.add(cordon.Effect{Kind: cordon.Read, Target: path, Dir: r.env.Dir, Expanded: true})
		if cmd != ".import" && cmd != `\lo_import` {
			r.add(cordon.Effect{Kind: cordon.Execute, Target: path, Origin: cordon.OriginFile})
		}
	case "write", "pipe":
		if path != "" {
			r.add(cordon.Effect{Kind: cordon.Write, Target: path, Dir: r.env.Dir, Expanded: true})
		}
	case "copy":
		r.metaCopy(rest)
	case "program":
		r.opaque("client command "+cmd+" starts a program", rest)
	case "code":
		r.opaque("the result of a query is executed", "")
	case "secret":
		r.add(cordon.Effect{Kind: cordon.Administer, Op: "sql_role", Target: "password"})
	case "connect":
		hosts := hostsIn(strings.Trim(rest, `"'`))
		if f := strings.Fields(rest); cmd == ":connect" && len(f) > 0 {
			hosts = f[:1]
		} else if len(f) > 2 && f[2] != "-" { // database user host port
			hosts = f[2:3]
		}
		for _, h := range hosts {
			r.add(cordon.Effect{Kind: cordon.Connect, Target: h, Op: "sql"})
		}
	}
}

// metaCopy is psql's \copy, which works on the client's own files.
func (r *reader) metaCopy(rest string) {
	fields := strings.Fields(rest)
	for i, f := range fields {
		if i+1 >= len(fields) {
			break
		}
		to := strings.EqualFold(f, "to")
		if !to && !strings.EqualFold(f, "from") {
			continue
		}
		path := strings.Trim(fields[i+1], "'")
		switch strings.ToLower(path) {
		case "stdin", "stdout", "pstdin", "pstdout":
		case "program":
			r.shell(strings.Trim(strings.Join(fields[i+2:], " "), "'"))
		default:
			kind := cordon.Read
			if to {
				kind = cordon.Write
			}
			r.add(cordon.Effect{Kind: kind, Target: path, Dir: r.env.Dir, Expanded: true})
		}
	}
}
