package shell

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

func handleSQL(w *walker, c *inv) {
	w.optionRoles(c)
	skipFirst := false
	for _, o := range c.opts {
		switch o.name {
		case "-c", "-e", "--eval", "-cmd", "-Q", "-q":
			if o.has {
				w.sqlText(c, o.v)
				skipFirst = true
			}
		case "-f":
			if o.has {
				if body, ok := w.written(o.v); ok {
					w.sqlText(c, body)
				}
			}
		case "-h", "--host":
			if h := o.v.s; o.has && h != "" && h[0] != '/' && h != "localhost" && h != "127.0.0.1" && h != "::1" && !startsUnknown(h) {
				w.connect(o.v, c.name, nil, false)
			}
		}
	}
	for i, v := range c.ops {
		switch {
		case strings.Contains(v.s, "://"):
			if !strings.Contains(v.s, "@localhost") && !strings.Contains(v.s, "://localhost") && !strings.Contains(v.s, "127.0.0.1") && !startsUnknown(v.s) {
				w.connectURL(v, nil, false)
			}
		case (c.name == "sqlite3" || c.name == "duckdb" || c.name == "sqlite" || c.name == "litecli") && i == 0:
			if v.s != ":memory:" {
				w.reads(v)
				w.writes(v, "")
			}
		case c.name == "sqlite3" || c.name == "duckdb" || c.name == "sqlite":
			w.sqlText(c, v)
			skipFirst = true
		}
	}
	if c.io.in != nil && !skipFirst && c.in.s != "" && !bare(strings.TrimSpace(c.in.s)) {
		w.sqlText(c, c.in)
	} else if c.io.in != nil && !skipFirst && c.in.taint&tNet == 0 && strings.TrimSpace(c.in.s) == mFile {
		// A dump: statements that stood in a file.
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "sql", Origin: cordon.OriginFile})
	} else if c.io.in != nil && !skipFirst && (c.in.origin() == cordon.OriginDecoded || c.in.origin() == cordon.OriginNetwork) {
		w.code("sql", c.in, c.name)
	}
}

// sqlText reads statements; client commands in them run here.
func (w *walker) sqlText(c *inv, v val) {
	for _, line := range strings.Split(v.s, "\n") {
		t := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(t, `\!`):
			w.turn(val{s: t[2:]}, c.name+` \!`, stdio{})
		case strings.HasPrefix(t, ".shell ") || strings.HasPrefix(t, ".system "):
			w.turn(val{s: t[strings.IndexByte(t, ' '):]}, c.name+" .shell", stdio{})
		case strings.HasPrefix(t, "system ") && c.name != "psql":
			w.turn(val{s: strings.TrimSuffix(t[7:], ";")}, c.name+" system", stdio{})
		case strings.HasPrefix(t, ".read ") || strings.HasPrefix(t, ".import ") || strings.HasPrefix(t, ".load "):
			f := strings.Fields(t)
			if len(f) > 1 {
				if strings.HasPrefix(strings.TrimLeft(f[1], `'"`), "|") {
					w.turn(val{s: strings.Trim(t[strings.IndexByte(t, '|')+1:], `'"`)}, c.name+" "+f[0], stdio{})
				} else {
					w.reads(val{s: w.tildeText(strings.Trim(f[1], `'"`))})
				}
				if f[0] == ".load" {
					w.opaque("loads native code", cordon.OriginFile, f[1])
				}
			}
		case strings.HasPrefix(t, ".output ") || strings.HasPrefix(t, ".once ") || strings.HasPrefix(t, ".backup ") || strings.HasPrefix(t, ".save ") || strings.HasPrefix(t, ".log "):
			f := strings.Fields(t)
			last := strings.Trim(f[len(f)-1], `'"`)
			if strings.HasPrefix(last, "|") || strings.Contains(t, " |") {
				w.turn(val{s: t[strings.IndexByte(t, '|')+1:]}, c.name+" "+f[0], stdio{in: &val{s: mUnknown}})
			} else if last != "stdout" {
				w.writes(val{s: w.tildeText(last)}, "create")
			}
		case strings.HasPrefix(t, `\o`) || strings.HasPrefix(t, `\g`) || strings.HasPrefix(t, `\w`):
			if i := strings.IndexByte(t, '|'); i > 0 {
				w.turn(val{s: t[i+1:]}, c.name+" "+t[:2], stdio{})
			} else if f := strings.Fields(t); len(f) > 1 && strings.ContainsAny(f[1], "/.~") {
				w.writes(val{s: w.tildeText(f[1])}, "create")
			}
		case strings.HasPrefix(t, `\i`), strings.HasPrefix(t, `\copy`), strings.HasPrefix(t, `\.`):
			for _, f := range strings.Fields(t)[1:] {
				if f = strings.Trim(f, `'"`); strings.ContainsAny(f, "/~") {
					w.reads(val{s: w.tildeText(f)})
				}
			}
			if i := strings.Index(strings.ToLower(t), "program"); i > 0 {
				w.turn(val{s: strings.Trim(strings.TrimSpace(t[i+7:]), `'"`)}, c.name+` \copy`, stdio{})
			}
		}
	}
	if w.env.Code == nil {
		// Without a reader for SQL its text is not judged as code of a shell.
		w.emit(cordon.Effect{Kind: cordon.RunCode, Target: "sql", Text: dropMarks(v.s), Origin: v.origin()})
		return
	}
	w.code("sql", v, c.name)
}

func (w *walker) tildeText(s string) string {
	if strings.HasPrefix(s, "~/") && w.env.Home != "" {
		return w.env.Home + s[1:]
	}
	return s
}
