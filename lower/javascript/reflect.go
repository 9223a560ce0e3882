package javascript

import (
	"slices"

	"github.com/cordon-sandbox/cordon"
)

// objectCall is Object.name(…).
func (a *analysis) objectCall(name string, args []set) (set, bool) {
	x := arg(args, 0)
	switch name {
	case "keys", "getOwnPropertyNames":
		r := a.keys(x)
		r.born = a.cond
		return one(value{k: vArray, p: &r}), true
	case "values", "entries":
		return a.valuesOf(x, name == "entries"), true
	case "assign":
		return a.objectAssign(x, args), true
	case "create":
		return a.objectCreate(x, arg(args, 1)), true
	case "getPrototypeOf":
		var out set
		for _, v := range x.vs {
			out = join(out, a.prototypeOf(v))
		}
		out.unk = out.unk || x.unk
		return out, true
	case "setPrototypeOf":
		a.setMember(x, str("__proto__"), arg(args, 1))
		return x, true
	case "freeze", "seal", "preventExtensions":
		return x, true
	case "fromEntries":
		o := newObject(a.cond)
		items := a.elements(x)
		for _, s := range items.items {
			pair := a.elements(s)
			a.store(o, pair.at(0), pair.at(1))
		}
		if items.fuzzy {
			o.open = true
			o.rest = join(o.rest, a.index(items.rest, num(1)))
		}
		return one(value{k: vObject, p: o}), true
	case "defineProperty":
		a.define(x, arg(args, 1), arg(args, 2))
		return x, true
	case "defineProperties":
		for _, v := range arg(args, 1).vs {
			if o, ok := v.p.(*object); ok && v.k == vObject {
				for _, k := range o.order {
					a.define(x, str(k), o.props[k].v)
				}
			}
		}
		return x, true
	case "getOwnPropertyDescriptor":
		o := newObject(a.cond)
		if k, ok := arg(args, 1).text(); ok && k == "__proto__" {
			o.put("get", protoAccessor(x, true))
			o.put("set", protoAccessor(x, false))
			return one(value{k: vObject, p: o}), true
		}
		s := a.index(x, arg(args, 1))
		o.put("value", s)
		o.put("get", one(value{k: vMethod, p: &method{recv: s, name: "@get"}}))
		return one(value{k: vObject, p: o}), true
	case "getOwnPropertyDescriptors":
		o := newObject(a.cond)
		for _, v := range x.vs {
			if v.k == vSym {
				a.dump(v)
				if tables().dangerous(v.s) {
					a.opaque("takes a computed member of "+v.s, cordon.OriginUnknown, true)
				}
				o.open = true
				d := newObject(a.cond)
				d.put("value", a.member(one(v), "constructor"))
				o.put("constructor", one(value{k: vObject, p: d}))
			}
			if f, ok := v.p.(*object); ok && v.k == vObject {
				for _, k := range f.order {
					d := newObject(a.cond)
					d.put("value", a.property(one(v), f.props[k]))
					o.put(k, one(value{k: vObject, p: d}))
				}
			}
		}
		return one(value{k: vObject, p: o}), true
	case "groupBy":
		a.callBack(arg(args, 1), a.anyElement(x), unknown)
		return unknown, true
	case "is", "hasOwn", "isFrozen", "getOwnPropertySymbols", "toString", "hasOwnProperty", "propertyIsEnumerable", "isPrototypeOf":
		return unknown, true
	}
	return set{}, false
}

func (a *analysis) anyElement(x set) set {
	r := a.elements(x)
	s := r.any()
	return s
}

// valuesOf is Object.values or Object.entries.
func (a *analysis) valuesOf(x set, pairs bool) set {
	r := &array{born: a.cond}
	for _, v := range x.vs {
		switch v.k {
		case vObject:
			o := v.p.(*object)
			for _, k := range o.keys() {
				s := a.property(one(v), o.props[k])
				if pairs {
					s = list(str(k), s)
				}
				r.append(array{items: []set{s}})
			}
			if o.open {
				r.fuzzy = true
				s := join(o.rest, unknown)
				if pairs {
					s = list(unknown, s)
				}
				r.rest = join(r.rest, s)
			}
		case vArray:
			r.append(*v.p.(*array))
		case vSym:
			a.dump(v)
			if tables().graveModule(v.s) || v.s == "globalThis" {
				a.opaque("takes a computed member of "+v.s, cordon.OriginUnknown, true)
			}
			r.fuzzy = true
			r.rest = join(r.rest, unknown.with(x))
		default:
			r.fuzzy = true
			r.rest = join(r.rest, unknown)
		}
	}
	if x.unk || len(x.vs) > 1 {
		r.fuzzy = true
		r.rest = join(r.rest, tainted(x))
	}
	if v, ok := x.single(); ok && v.k == vSym && v.s == "process.env" {
		r.rest = join(r.rest, set{unk: true, src: []string{"$*"}})
	}
	return one(value{k: vArray, p: r})
}

func (a *analysis) objectAssign(x set, args []set) set {
	for _, from := range args[min(1, len(args)):] {
		for _, name := range []string{"href", "protocol", "host", "hostname"} {
			if s := a.ownProperty(from, name); len(s.vs) > 0 || s.unk {
				x, _ = a.changeURL(x, name, s)
			}
		}
		for _, v := range x.vs {
			switch {
			case v.k == vObject:
				a.spreadInto(v.p.(*object), from)
			case v.k == vSym:
				for _, f := range from.vs {
					if o, ok := f.p.(*object); ok && f.k == vObject {
						for _, k := range o.order {
							a.setSymMember(v, k, a.property(one(f), o.props[k]))
						}
					}
				}
			case v.k == vFunc || v.k == vClass:
				for _, f := range from.vs {
					if o, ok := f.p.(*object); ok && f.k == vObject {
						for _, k := range o.order {
							a.setMemberOf(v, k, a.property(one(f), o.props[k]))
						}
					}
				}
			}
		}
		if x.unk {
			a.escape(from, unknown)
		}
	}
	return x
}

// ownProperty is a property that an object literal has, if there is one.
func (a *analysis) ownProperty(s set, name string) set {
	v, ok := s.single()
	if o, isObject := v.p.(*object); ok && isObject && v.k == vObject {
		if p := o.props[name]; p != nil {
			return a.property(one(v), p)
		}
	}
	return set{}
}

func (a *analysis) objectCreate(proto, props set) set {
	o := newObject(a.cond)
	if v, ok := proto.single(); ok && v.k == vNull {
		o.null = true
	} else {
		o.proto = proto
		a.pollution(proto)
	}
	self := one(value{k: vObject, p: o})
	for _, v := range props.vs {
		if d, ok := v.p.(*object); ok && v.k == vObject {
			for _, k := range d.order {
				a.define(self, str(k), d.props[k].v)
			}
		}
	}
	return self
}

// define is Object.defineProperty.
func (a *analysis) define(x, key, desc set) {
	d, ok := desc.single()
	if !ok || d.k != vObject {
		a.escape(desc, unknown)
		return
	}
	do := d.p.(*object)
	if p, ok := do.props["value"]; ok {
		a.setMember(x, key, p.v)
		return
	}
	get, hasGet := do.props["get"]
	set, hasSet := do.props["set"]
	k, known := key.text()
	for _, v := range x.vs {
		o, isObject := v.p.(*object)
		if v.k == vObject && isObject && known && (hasGet || hasSet) {
			o.put(k, undefined)
			p := &prop{accessor: true}
			if hasGet {
				p.get = get.v
			}
			if hasSet {
				p.set = set.v
			}
			o.props[k] = p
			continue
		}
		if hasGet {
			a.setMember(one(v), key, a.invoke(get.v, one(v), nil, "get"))
		}
	}
}

// reflectCall is Reflect.name(…).
func (a *analysis) reflectCall(name string, args []set) (set, bool) {
	switch name {
	case "apply":
		return a.invoke(arg(args, 0), arg(args, 1), a.spreadArgs(arg(args, 2)), ""), true
	case "construct":
		return a.construct(arg(args, 0), a.spreadArgs(arg(args, 1))), true
	case "get":
		return a.index(arg(args, 0), arg(args, 1)), true
	case "set":
		a.setMember(arg(args, 0), arg(args, 1), arg(args, 2))
		return boolean(true), true
	case "ownKeys":
		return a.objectCall("keys", args)
	case "has", "deleteProperty":
		return unknown, true
	case "getPrototypeOf", "setPrototypeOf", "defineProperty", "getOwnPropertyDescriptor":
		return a.objectCall(name, args)
	}
	return set{}, false
}

func (a *analysis) spreadArgs(s set) []set {
	if v, ok := s.single(); ok && (v.k == vUndef || v.k == vNull) {
		return nil
	}
	r := a.elements(s)
	out := slices.Clone(r.items)
	if r.fuzzy {
		rest := r.rest
		rest.unk = true
		out = append(out, rest, rest)
	}
	return out
}
