package python

import (
	"strings"

	"github.com/cordon-sandbox/cordon"
)

func isEnviron(s set) bool {
	for _, v := range s.vs {
		if v.k == vSym && (v.s == "os.environ" || v.s == "os.environb") {
			return true
		}
	}
	return false
}

// dump reports the whole environment where s may be it.
func (a *analysis) dump(s set, how string) {
	if isEnviron(s) {
		a.dumpEnv(how)
	}
}

func (a *analysis) dumpEnv(how string) {
	if a.sym == "" {
		a.sym = "os.environ"
		defer func() { a.sym = "" }()
	}
	a.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: "*", Reason: "the environment is " + how})
}

// dumpArguments: the environment handed to a function as a whole, but for the
// one that a new process is to have.
func (a *analysis) dumpArguments(c *call) {
	for _, s := range c.args {
		a.dump(s, "handed on")
		a.handsNamespace(s)
	}
	for _, k := range c.kws {
		if k.name != "env" {
			a.dump(k.val, "handed on")
			a.handsNamespace(k.val)
		}
	}
}

// handsNamespace: whoever gets the name space of a module can take any of its
// functions.
func (a *analysis) handsNamespace(s set) {
	for _, v := range s.vs {
		if v.k == vDict {
			a.namespace(v, "handed on")
		}
	}
}

// variable reads one variable; its value is known for a few, else a hole.
func (a *analysis) variable(name string) string {
	a.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: name})
	switch name {
	case "HOME", "USERPROFILE":
		return a.home()
	case "USER", "LOGNAME", "USERNAME":
		if a.env.User != "" {
			return a.env.User
		}
	case "PWD":
		return a.dirs[0]
	}
	return hole
}

// readEnv is os.environ[name].
func (a *analysis) readEnv(name set) set {
	out := set{}
	for _, v := range name.vs {
		if v.k != vStr && v.k != vBytes {
			continue
		}
		if hasHole(v.s) {
			front := v.s[:strings.Index(v.s, hole)]
			if front != "" {
				a.emit(cordon.Effect{Kind: cordon.ReadEnv, Target: front + "*", Pattern: true, Doubtful: true})
			}
			out.unk = true
			continue
		}
		t := a.variable(v.s)
		if t == hole {
			out = join(out, set{unk: true, src: []string{"$" + v.s}})
			out.src = mergeSources(out.src, []string{"$" + v.s})
		} else {
			out = join(out, str(t))
		}
	}
	if name.unk || len(name.vs) == 0 {
		if name.t&decoded != 0 {
			a.opaque("reads an environment variable whose name is decoded", origin(name), true)
		}
		out = join(out, set{unk: true, src: []string{"$*"}})
	}
	return out
}

// fromEnv reads the variables that a format takes from the environment.
func (a *analysis) fromEnv(_ string, names []string, env set) set {
	out := unknown
	for _, n := range names {
		a.variable(n)
		out.src = mergeSources(out.src, []string{"$" + n})
	}
	if len(names) == 0 {
		a.dump(env, "formatted into a string")
	}
	return out
}

// setEnv is os.environ[name] = v.
func (a *analysis) setEnv(name, v set) {
	for _, n := range name.strings() {
		text, _ := v.text()
		a.emit(cordon.Effect{Kind: cordon.SetEnv, Target: n, Text: text})
	}
}
