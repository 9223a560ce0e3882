package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

// serviceVerbs are actions of functions that find their own way to files and
// hosts.
func serviceVerbs() map[string]verb {
	return map[string]verb{
		"netrc": {run: func(a *analysis, x *act, c *call, _ *outcome) {
			if s, ok := c.arg(0, "file"); ok {
				a.paths(s, cordon.Effect{Kind: cordon.Read})
				return
			}
			a.path(joinPath(a.home(), ".netrc"), cordon.Effect{Kind: cordon.Read})
		}},
		"shadow": {run: func(a *analysis, _ *act, _ *call, _ *outcome) {
			a.path("/etc/shadow", cordon.Effect{Kind: cordon.Read})
		}},
		"dotenv": {run: func(a *analysis, _ *act, c *call, _ *outcome) {
			s, ok := c.arg(0, "dotenv_path")
			if !ok {
				s = str(".env")
			}
			a.paths(s, cordon.Effect{Kind: cordon.Read})
		}},
		"resolve": {run: resolve},
		"wrapped": {run: func(a *analysis, x *act, c *call, r *outcome) { r.is(a.arg(x, 0, c)) }},
		"url0": {run: func(a *analysis, x *act, c *call, r *outcome) {
			if s, ok := a.argOK(x, 0, c); ok {
				if v, single := s.single(); !single || v.k != vNone {
					connectURL(a, x, c, r)
				}
			}
		}},
		"cloud": {run: func(a *analysis, x *act, c *call, r *outcome) {
			if s, ok := c.arg(-1, "endpoint_url"); ok {
				for _, t := range s.strings() {
					a.url(t, c, true)
				}
				if len(s.strings()) > 0 {
					return
				}
			}
			a.connect("", a.scheme(), c, true)
		}},
		"dbhost": {run: func(a *analysis, x *act, c *call, r *outcome) {
			if _, ok := a.argOK(x, 0, c); !ok {
				a.connect("localhost", a.scheme(), &call{}, false)
				return
			}
			s := a.arg(x, 0, c)
			if v, single := s.single(); single && v.k == vSeq {
				for _, it := range v.p.(*sequence).items {
					for _, t := range it.strings() {
						a.hostOrURL(t, c)
					}
				}
				return
			}
			connectHost(a, x, c, r)
		}},
		"dsn":     {run: dsn},
		"setenvs": {run: setEnvs},
	}
}

func (a *analysis) hostOrURL(t string, c *call) {
	if strings.Contains(t, "://") {
		a.url(t, c, false)
		return
	}
	a.connect(t, a.scheme(), c, false)
}

// resolve asks the name service, which carries the name out.
func resolve(a *analysis, x *act, c *call, r *outcome) {
	s := a.arg(x, 0, c)
	for _, v := range s.vs {
		switch {
		case v.k != vStr && v.k != vBytes, v.s == "localhost", v.s == "":
		case hasHole(v.s):
			tail := strings.TrimPrefix(v.s[strings.LastIndex(v.s, hole)+len(hole):], ".")
			a.emit(cordon.Effect{Kind: cordon.Connect, Target: tail, Op: "dns", Sends: true, Data: s.src, Pattern: tail == ""})
		default:
			a.emit(cordon.Effect{Kind: cordon.Connect, Target: v.s, Op: "dns", Sends: len(s.src) > 0, Data: s.src})
		}
	}
	if len(s.vs) == 0 || len(s.src) > 0 && s.unk {
		a.emit(cordon.Effect{Kind: cordon.Connect, Op: "dns", Sends: len(s.src) > 0, Data: s.src, Pattern: true})
	}
	r.is(unknown)
}

// dsn is a database by a URL ("postgresql://host/db"), by words ("host=h
// dbname=d") or by keywords.
func dsn(a *analysis, x *act, c *call, _ *outcome) {
	if h, ok := c.arg(-1, "host"); ok {
		t, known := h.text()
		if !known {
			t = ""
		}
		a.connect(t, a.scheme(), &call{}, false)
		return
	}
	s, ok := a.argOK(x, 0, c)
	if !ok {
		a.connect("localhost", a.scheme(), &call{}, false)
		return
	}
	known := false
	for _, v := range s.vs {
		if v.k != vStr {
			continue
		}
		known = true
		a.dsnText(v.s, c)
	}
	if !known || s.unk {
		a.connect("", a.scheme(), c, false)
	}
}

func (a *analysis) dsnText(t string, c *call) {
	if rest, ok := strings.CutPrefix(t, "sqlite"); ok {
		if _, p, ok := strings.Cut(rest, ":///"); ok && p != "" && p != ":memory:" {
			a.path(p, cordon.Effect{Kind: cordon.Read})
			a.path(p, cordon.Effect{Kind: cordon.Write})
		}
		return
	}
	if strings.Contains(t, "://") {
		if strings.Contains(t, ":///") {
			a.connect("localhost", a.scheme(), &call{}, false)
			return
		}
		a.url(t, c, false)
		return
	}
	for _, f := range strings.Fields(t) {
		if h, ok := strings.CutPrefix(f, "host="); ok {
			if hasHole(h) {
				h = ""
			}
			a.connect(h, a.scheme(), &call{}, false)
			return
		}
	}
	a.connect("localhost", a.scheme(), &call{}, false)
}

// setEnvs is os.environ.update.
func setEnvs(a *analysis, _ *act, c *call, _ *outcome) {
	for _, s := range c.args {
		for _, v := range s.vs {
			if v.k == vMap {
				m := v.p.(*mapping)
				for i, k := range m.keys {
					if k.k == vStr {
						a.setEnv(one(k), m.vals[i])
					}
				}
			}
		}
	}
	for _, k := range c.kws {
		a.setEnv(str(k.name), k.val)
	}
}

// logConfig is logging.config.dictConfig, which builds objects by the names in
// a dict: harmless where all of them are known handlers and formatters.
func logConfig(a *analysis, x *act, c *call, _ *outcome) {
	if !a.plainLogging(a.arg(x, 0, c), 0) {
		a.opaque(a.sym+" builds objects by name from data", cordon.OriginLiteral, false)
	}
}

func (a *analysis) plainLogging(s set, depth int) bool {
	v, ok := s.single()
	if !ok || depth > 8 {
		return false
	}
	switch v.k {
	case vMap:
		m := v.p.(*mapping)
		for i, k := range m.keys {
			if k.k != vStr || !a.plainSetting(k.s, m.vals[i], depth) {
				return false
			}
		}
		return !m.fuzzy
	case vSeq:
		q := v.p.(*sequence)
		for _, it := range q.items {
			if !a.plainLogging(it, depth+1) {
				return false
			}
		}
		return true
	case vStr:
		text, out := strings.CutPrefix(v.s, "ext://")
		return (!out || text == "sys.stdout" || text == "sys.stderr") && !strings.HasPrefix(v.s, "cfg://") && !hasHole(v.s)
	case vNone, vBool, vInt, vFloat:
		return true
	}
	return false
}

// plainSetting: one entry of the configuration names nothing to be built but
// what only writes the log.
func (a *analysis) plainSetting(key string, s set, depth int) bool {
	switch key {
	case "()", "factory":
		return false
	case "class":
		t, ok := s.text()
		if !ok {
			return false
		}
		switch t {
		case "logging.StreamHandler", "logging.FileHandler", "logging.NullHandler", "logging.Formatter", "logging.handlers.RotatingFileHandler",
			"logging.handlers.TimedRotatingFileHandler", "logging.handlers.WatchedFileHandler", "logging.handlers.MemoryHandler":
			return true
		}
		return false
	case "filename":
		a.paths(s, cordon.Effect{Kind: cordon.Write, Op: "append"})
		return true
	case "level", "format", "datefmt", "maxBytes", "backupCount", "mode", "encoding", "when", "interval", "propagate", "style", "delay":
		for _, v := range s.vs {
			if v.k == vMap || v.k == vSeq {
				return false
			}
		}
		return true
	}
	return a.plainLogging(s, depth+1)
}
