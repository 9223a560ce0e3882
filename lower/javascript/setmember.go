package javascript

import (
	"strconv"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// setMember is x[key] = s.
func (a *analysis) setMember(x, key, s set) {
	names, unk := a.keyTexts(key)
	for _, v := range x.vs {
		for _, n := range names {
			a.setMemberOf(v, n, s)
		}
		if unk {
			a.setAny(v, s)
		}
	}
	if x.unk {
		for _, n := range names {
			if n == "NODE_OPTIONS" || n == "LD_PRELOAD" {
				a.setEnv(n, s)
			}
		}
		a.escape(s, unknown)
	}
}

func (a *analysis) setMemberOf(v value, name string, s set) {
	switch v.k {
	case vObject:
		a.setProperty(v, name, s)
	case vArray:
		r := v.p.(*array)
		if i, err := strconv.Atoi(name); err == nil && i >= 0 {
			r.set(i, s, a.cond)
			return
		}
		if name == "length" {
			n, ok := s.number()
			if ok && n >= 0 && int(n) < len(r.items) && a.cond <= r.born {
				r.items = r.items[:int(n)]
				return
			}
			r.fuzzy = r.fuzzy || !ok || int(n) != len(r.items)
			return
		}
		if r.props == nil {
			r.props = map[string]set{}
		}
		r.props[name] = join(r.props[name], s)
	case vFunc:
		f := v.p.(*function)
		if f.props == nil {
			f.props = newObject(a.cond)
		}
		f.props.put(name, s)
	case vClass:
		v.p.(*class).statics.put(name, s)
	case vURL:
		// Whoever else holds it sees the change.
		a.changeURL(one(v), name, s)
	case vSym:
		a.setSymMember(v, name, s)
	}
}

func (a *analysis) setProperty(v value, name string, s set) {
	o := v.p.(*object)
	p := o.props[name]
	if p == nil && o.class != nil {
		p = o.class.proto.props[name]
		if p != nil && !p.accessor {
			p = nil
		}
	}
	switch {
	case p != nil && p.accessor:
		if len(p.set.vs) > 0 {
			a.invoke(p.set, one(v), []set{s}, "set")
		}
		return
	case name == "__proto__":
		if a.cond > o.born {
			s = join(o.proto, s)
		}
		o.proto = s
		a.pollution(s)
		return
	case p == nil && len(o.proto.vs) > 0:
		// A connection or process under construction: its options count.
		for _, w := range o.proto.vs {
			if w.k == vSym {
				a.setSymMember(w, name, s)
			}
		}
	}
	if a.cond > o.born {
		old := undefined
		if p != nil {
			old = p.v
		}
		s = join(old, s)
	}
	o.put(name, s)
}

func (r *array) set(i int, s set, cond int) {
	if cond > r.born {
		s = join(r.at(i), s)
		r.fuzzy = true
	}
	if i >= maxItems {
		r.fuzzy = true
		r.rest = join(r.rest, s)
		return
	}
	for len(r.items) <= i {
		r.items = append(r.items, undefined)
	}
	r.items[i] = s
}

// setAny is an assignment under a name that is not known.
func (a *analysis) setAny(v value, s set) {
	switch v.k {
	case vObject:
		o := v.p.(*object)
		o.open = true
		o.rest = join(o.rest, s)
	case vArray:
		r := v.p.(*array)
		r.fuzzy = true
		r.rest = join(r.rest, s)
	case vSym:
		if v.s == "process.env" {
			a.setEnv("*", s)
			return
		}
		if v.s == "globalThis" || v.s == "Object.prototype" {
			a.opaque("sets a computed member of "+v.s, cordon.OriginUnknown, true)
		}
		if e := tables().lookup(v.s + ".*="); e != nil {
			a.use(v, e, set{}, []set{s}, false)
		}
		a.escape(s, unknown)
	case vFunc, vClass:
		a.escape(s, unknown)
	}
}

func (a *analysis) setSymMember(v value, name string, s set) {
	switch v.s {
	case "process.env":
		a.setEnv(name, s)
		return
	case "globalThis":
		a.setGlobal(name, s)
		return
	case "Object.prototype":
		a.polluted(name, s)
		a.patch(v.s, name, s)
		if name == "__proto__" {
			a.pollution(s)
		}
	case "cjs", "cjs.exports":
		a.exportValue(s)
		return
	case "process":
		if name == "env" {
			if v, ok := s.single(); ok && v.k == vSym && v.s == "process.env" {
				return
			}
			a.pollutedEnv(s)
		}
	case "Deno.env":
		return
	}
	for _, n := range []string{name, "*"} {
		if e := tables().lookup(v.s + "." + n + "="); e != nil {
			a.use(value{k: vSym, s: v.s + "." + name, p: v.p}, e, set{}, []set{s}, false)
			break
		}
	}
	a.patch(v.s, name, s)
	a.escape(s, unknown)
}

// patch notes that the code replaces a built-in function, whose results then
// can be anything.
func (a *analysis) patch(owner, name string, s set) {
	if len(a.patched) > maxItems {
		return
	}
	s.unk = true
	full := owner + "." + name
	a.patched[full] = join(a.patched[full], s)
	if strings.HasSuffix(owner, ".prototype") || tables().isConstructor(owner) || owner == "FunctionPrototype" {
		a.patched["."+name] = join(a.patched["."+name], s)
	}
}

func (a *analysis) setEnv(name string, s set) {
	text, _ := s.text()
	a.emit(cordon.Effect{Kind: cordon.SetEnv, Target: name, Text: text})
	if text == "" && len(s.src) > 0 {
		return
	}
	a.escape(s, unknown)
}

// inheritedOptions are options that child_process and worker_threads read through
// the prototype chain, so that a polluted prototype sets them.
var inheritedOptions = sync.OnceValue(func() map[string]bool {
	return map[string]bool{"NODE_OPTIONS": true, "shell": true, "env": true, "execPath": true, "execArgv": true, "argv0": true, "LD_PRELOAD": true, "NODE_PATH": true, "NODE_REPL_EXTERNAL_MODULE": true, "BASH_ENV": true, "main": true, "exports": true, "eval": true, "stdio": true}
})

// polluted says that every object gets a property.
func (a *analysis) polluted(name string, s set) {
	if !inheritedOptions()[name] {
		return
	}
	text, _ := s.text()
	target := name
	if target != "LD_PRELOAD" && target != "BASH_ENV" {
		target = "NODE_OPTIONS"
	}
	a.emit(cordon.Effect{Kind: cordon.SetEnv, Target: target, Text: text, Via: append(a.chain(), "prototype: "+name)})
	a.opaque("sets option "+name+" of every child process through a prototype", cordon.OriginLiteral, true)
}

// pathPollution looks for a path through a prototype ("__proto__.shell",
// ["constructor", "prototype", "env"]) among the arguments of a call that is
// not known, as setters by path take it.
func (a *analysis) pathPollution(args []set) {
	for i, s := range args {
		path, ok := pathText(s)
		if !ok || !strings.Contains(path, "__proto__") && !strings.Contains(path, "prototype") {
			continue
		}
		steps := strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(`.[]"'/`, r) })
		if n := len(steps); n > 1 && (steps[n-2] == "__proto__" || steps[n-2] == "prototype" && n > 2) {
			a.polluted(steps[n-1], arg(args, i+1))
		}
		if n := len(steps); n > 0 && (steps[n-1] == "__proto__" || steps[n-1] == "prototype" && n > 1) {
			a.pollution(arg(args, i+1))
		}
	}
}

// pathText is a path given as one text or as an array of its steps.
func pathText(s set) (string, bool) {
	v, ok := s.single()
	if !ok {
		return "", false
	}
	r, isArray := v.p.(*array)
	if v.k != vArray || !isArray {
		return s.text()
	}
	if r.fuzzy || len(r.items) > 16 {
		return "", false
	}
	steps := make([]string, len(r.items))
	for i, x := range r.items {
		if steps[i], ok = x.text(); !ok {
			return "", false
		}
	}
	return strings.Join(steps, "."), true
}

// pollution looks for such options in an object that stands for a prototype.
func (a *analysis) pollution(s set) {
	for _, v := range s.vs {
		if v.k != vObject {
			continue
		}
		o := v.p.(*object)
		for _, k := range o.order {
			if k == "NODE_OPTIONS" || k == "shell" || k == "LD_PRELOAD" || k == "execArgv" || k == "execPath" || k == "argv0" || k == "env" {
				a.polluted(k, o.props[k].v)
			}
		}
	}
}

func (a *analysis) pollutedEnv(s set) {
	for _, v := range s.vs {
		if o, ok := v.p.(*object); ok && v.k == vObject {
			for _, k := range o.order {
				a.setEnv(k, o.props[k].v)
			}
		}
	}
}

// store puts a property under a set of keys into an object being made.
func (a *analysis) store(o *object, key, v set) {
	names, unk := a.keyTexts(key)
	if !unk && len(names) == 1 {
		o.put(names[0], v)
		return
	}
	for _, n := range names {
		o.put(n, join(undefined, v))
	}
	if unk {
		o.open = true
		o.rest = join(o.rest, v)
	}
}
