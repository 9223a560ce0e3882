package javascript

import (
	"slices"
	"strings"
)

// callMethod calls a built-in method.
func (a *analysis) callMethod(m *method, this set, args []set) set {
	recv := m.recv
	if len(this.vs) > 0 {
		recv = this
	}
	switch m.name {
	case "call":
		return a.invoke(recv, arg(args, 0), args[min(1, len(args)):], "")
	case "apply":
		return a.invoke(recv, arg(args, 0), a.spreadArgs(arg(args, 1)), "")
	case "bind":
		a.mention(recv)
		return one(value{k: vBound, p: &bound{fn: recv, this: arg(args, 0), args: args[min(1, len(args)):]}})
	case "@resolve":
		if v, ok := m.recv.single(); ok {
			r := v.p.(*array)
			r.items = append(r.items[:len(r.items):len(r.items)], arg(args, 0))
		}
		return undefined
	case "@get":
		return m.recv
	case "@getProto":
		return a.objectCallOf("getPrototypeOf", recv, args)
	case "@setProto":
		return a.objectCallOf("setPrototypeOf", recv, args)
	case "then":
		return a.then(m.recv, args)
	case "finally", "catch":
		for _, f := range args {
			a.escape(f, unknown)
		}
		return m.recv
	}
	if len(this.vs) == 0 && !this.unk {
		this = m.recv
	}
	var out set
	for _, v := range this.vs {
		out = join(out, a.methodOf(v, this, m.name, args))
	}
	if this.unk || len(this.vs) == 0 {
		out = join(out, a.unknownMethod(this, m.name, args))
	}
	return out
}

// objectCallOf is Object.name(recv, ...args).
func (a *analysis) objectCallOf(name string, recv set, args []set) set {
	s, _ := a.objectCall(name, append([]set{recv}, args...))
	return s
}

// accessorOf is __defineGetter__ and its kin, which every object has.
func (a *analysis) accessorOf(recv set, name string, args []set) set {
	if name == "__lookupGetter__" || name == "__lookupSetter__" {
		get := name == "__lookupGetter__"
		if k, ok := arg(args, 0).text(); ok && k == "__proto__" {
			return protoAccessor(recv, get)
		}
		return a.member(a.objectCallOf("getOwnPropertyDescriptor", recv, args), map[bool]string{true: "get", false: "set"}[get])
	}
	desc := newObject(a.cond)
	desc.put(map[bool]string{true: "get", false: "set"}[name == "__defineGetter__"], arg(args, 1))
	a.define(recv, arg(args, 0), one(value{k: vObject, p: desc}))
	return undefined
}

// protoAccessor is a half of the accessor __proto__ of Object.prototype.
func protoAccessor(recv set, get bool) set {
	return one(value{k: vMethod, p: &method{recv: recv, name: map[bool]string{true: "@getProto", false: "@setProto"}[get]}})
}

// then is promise.then(f): f gets what the promise stands for.
func (a *analysis) then(p set, args []set) set {
	for _, f := range args[min(1, len(args)):] {
		a.escape(f, unknown)
	}
	f := arg(args, 0)
	if v, ok := f.single(); ok && v.k == vUndef {
		return p
	}
	return a.callBack(f, p)
}

func (a *analysis) unknownMethod(this set, name string, args []set) set {
	if name == "pipe" || name == "pipeTo" || name == "pipeThrough" {
		a.pipe(this, arg(args, 0))
		return arg(args, 0)
	}
	return a.callUnknown(this, args, name)
}

func (a *analysis) methodOf(v value, this set, name string, args []set) set {
	a.charge(64)
	self := one(v).with(set{src: this.src, t: this.t})
	switch v.k {
	case vStr, vURL:
		if name == "toString" || name == "valueOf" || name == "toJSON" {
			return set{vs: []value{{k: vStr, s: v.s}}}.with(self)
		}
		return a.textMethod(v, self, name, args)
	case vNum:
		return a.numberMethod(v, self, name, args)
	case vBytes:
		return a.bytesMethod(v, self, name, args)
	case vArray:
		return a.arrayMethod(v.p.(*array), self, name, args)
	case vObject:
		return a.objectMethodCall(v, name, args)
	case vRegex:
		return a.regexMethod(v, name, args)
	case vBool, vUndef, vNull:
		if t, ok := a.toText(v); ok && name == "toString" {
			return str(t)
		}
	case vSym:
		return a.symMethod(v, self, name, args)
	case vFunc, vClass, vBound, vMethod:
		switch name {
		case "toString":
			t, _ := a.toText(v)
			return str(t)
		case "valueOf":
			return self
		case "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__":
			return a.accessorOf(self, name, args)
		}
	}
	a.escapeAll(args)
	return tainted(self)
}

func (a *analysis) symMethod(v value, self set, name string, args []set) set {
	switch name {
	case "pipe", "pipeTo", "pipeThrough":
		a.pipe(self, arg(args, 0))
		return arg(args, 0)
	case "hasOwnProperty":
		if t, ok := arg(args, 0).text(); ok && v.s == "process.env" {
			a.readEnv(t)
		}
		return unknown
	case "valueOf":
		return self
	case "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__":
		return a.accessorOf(self, name, args)
	case "toString":
		t, _ := a.toText(v)
		if t == hole {
			return tainted(self)
		}
		return str(t)
	}
	a.escapeAll(args)
	return tainted(self)
}

func (a *analysis) objectMethodCall(v value, name string, args []set) set {
	o := v.p.(*object)
	a.charge(8 * len(o.order))
	switch o.kind {
	case "Map", "Set":
		return a.collectionMethod(v, o, name, args)
	}
	switch name {
	case "toString", "toLocaleString":
		t, _ := a.objectText(v)
		return str(t)
	case "valueOf":
		return one(v)
	case "hasOwnProperty", "propertyIsEnumerable":
		if k, ok := arg(args, 0).text(); ok && !o.open {
			_, has := o.props[k]
			return boolean(has)
		}
		return unknown
	case "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__":
		return a.accessorOf(one(v), name, args)
	}
	a.escapeAll(args)
	return unknown
}

func (a *analysis) collectionMethod(v value, o *object, name string, args []set) set {
	switch name {
	case "set":
		if a.cond > o.born {
			old := a.index(one(v), arg(args, 0))
			a.setIn(o, arg(args, 0), join(old, arg(args, 1)))
		} else {
			a.setIn(o, arg(args, 0), arg(args, 1))
		}
		return one(v)
	case "add":
		a.addTo(o, arg(args, 0))
		return one(v)
	case "get":
		names, unk := a.keyTexts(arg(args, 0))
		var out set
		for _, n := range names {
			if p, ok := o.props[n]; ok {
				out = join(out, p.v)
			} else {
				out = join(out, undefined)
			}
		}
		if unk {
			for _, k := range o.order {
				out = join(out, o.props[k].v)
			}
			out.unk = true
		}
		if o.open {
			out = join(out, join(o.rest, unknown))
		}
		return out
	case "forEach":
		r := a.objectElements(v)
		for _, s := range r.items {
			if o.kind == "Map" {
				a.callBack(arg(args, 0), a.index(s, num(1)), a.index(s, num(0)), one(v))
			} else {
				a.callBack(arg(args, 0), s, s, one(v))
			}
		}
		if r.fuzzy {
			a.escape(arg(args, 0), unknown)
		}
		return undefined
	case "values", "entries", "keys":
		r := a.objectElements(v)
		if o.kind == "Map" && name != "entries" {
			i := num(0)
			if name == "values" {
				i = num(1)
			}
			for j, s := range r.items {
				r.items[j] = a.index(s, i)
			}
		}
		r.born = a.cond
		return one(value{k: vArray, p: &r})
	}
	a.escapeAll(args)
	return unknown
}

func (a *analysis) arrayMethod(r *array, self set, name string, args []set) set {
	a.charge(16 * len(r.items))
	if s, ok := a.iterate(r, self, name, args); ok {
		return s
	}
	x := arg(args, 0)
	switch name {
	case "join":
		sep := ","
		if t, ok := x.text(); ok {
			sep = t
		} else if len(args) > 0 {
			sep = hole
		}
		t, _ := a.joinItems(r, sep)
		return str(t).with(r.any(), self)
	case "toString":
		t, _ := a.joinItems(r, ",")
		return str(t)
	case "push", "unshift":
		a.push(r, name, args)
		return unknown
	case "pop", "shift":
		return a.pop(r, name)
	case "reverse", "toReversed":
		return a.reverseArray(r, name, self)
	case "sort", "toSorted":
		return a.sortArray(r, name, self, args)
	case "slice":
		from, to, ok := a.sliceBounds(args, len(r.items))
		if !ok || r.fuzzy {
			return a.fuzzyOf(r)
		}
		return arrayOf(slices.Clone(r.items[from:to]), a.cond)
	case "splice":
		return a.splice(r, args)
	case "concat":
		out := &array{items: slices.Clone(r.items), fuzzy: r.fuzzy, rest: r.rest, born: a.cond}
		for _, s := range args {
			if v, ok := s.single(); ok && v.k == vArray {
				out.append(*v.p.(*array))
			} else {
				out.append(array{items: []set{s}, fuzzy: s.unk, rest: set{unk: s.unk}})
			}
		}
		return one(value{k: vArray, p: out})
	case "at":
		if n, ok := x.number(); ok && !r.fuzzy {
			i := int(n)
			if i < 0 {
				i += len(r.items)
			}
			return r.at(i)
		}
		return r.any()
	case "flat":
		out := &array{fuzzy: r.fuzzy, rest: r.rest, born: a.cond}
		for _, s := range r.items {
			if v, ok := s.single(); ok && v.k == vArray {
				out.append(*v.p.(*array))
			} else {
				out.append(array{items: []set{s}})
			}
		}
		return one(value{k: vArray, p: out})
	case "fill":
		for i := range r.items {
			r.items[i] = x
		}
		return self
	case "keys", "values", "entries", "@@Symbol.iterator":
		out := &array{fuzzy: r.fuzzy, rest: r.rest, born: a.cond}
		for i, s := range r.items {
			switch name {
			case "keys":
				s = num(float64(i))
			case "entries":
				s = list(num(float64(i)), s)
			}
			out.items = append(out.items, s)
		}
		return one(value{k: vArray, p: out})
	case "next":
		o := newObject(a.cond)
		if r.fuzzy || len(r.items) == 0 || a.cond > r.born {
			o.put("value", join(r.any(), undefined))
			o.put("done", unknown)
		} else {
			o.put("value", r.items[0])
			o.put("done", boolean(false))
			r.items = r.items[1:]
		}
		return one(value{k: vObject, p: o})
	case "indexOf", "includes", "lastIndexOf":
		return a.indexOf(r, name, x)
	case "with":
		out := &array{items: slices.Clone(r.items), fuzzy: r.fuzzy, rest: r.rest, born: a.cond}
		if n, ok := x.number(); ok && n >= 0 && n < maxItems {
			out.set(int(n), arg(args, 1), a.cond)
		}
		return one(value{k: vArray, p: out})
	case "toArray", "toSpliced", "copyWithin", "set":
		a.escapeAll(args)
		return self
	case "return", "throw":
		return unknown
	}
	a.escapeAll(args)
	return unknown
}

func arrayOf(items []set, born int) set {
	return one(value{k: vArray, p: &array{items: items, born: born}})
}

func (a *analysis) fuzzyOf(r *array) set {
	return one(value{k: vArray, p: &array{fuzzy: true, rest: r.any(), born: a.cond}})
}

// sliceBounds reads the two bounds of slice and kin.
func (a *analysis) sliceBounds(args []set, n int) (from, to int, ok bool) {
	read := func(i, def int) (int, bool) {
		s := arg(args, i)
		if v, ok := s.single(); ok && v.k == vUndef {
			return def, true
		}
		f, ok := a.toNum(s)
		if !ok {
			return 0, false
		}
		k := int(max(-1e9, min(1e9, f)))
		if f != f {
			k = 0
		}
		if k < 0 {
			k += n
		}
		return max(0, min(k, n)), true
	}
	from, ok = read(0, 0)
	to, ok2 := read(1, n)
	return from, max(from, to), ok && ok2
}

func (a *analysis) push(r *array, name string, args []set) {
	if a.cond > r.born {
		r.fuzzy = true
	}
	if r.fuzzy || len(r.items)+len(args) > maxItems {
		r.fuzzy = true
		for _, s := range args {
			r.rest = join(r.rest, s)
		}
		return
	}
	if name == "push" {
		r.items = append(r.items[:len(r.items):len(r.items)], args...)
		return
	}
	r.items = append(slices.Clone(args), r.items...)
}

func (a *analysis) pop(r *array, name string) set {
	if r.fuzzy || a.cond > r.born {
		s := join(r.any(), undefined)
		if a.cond > r.born {
			r.fuzzy = true
		}
		return s
	}
	n := len(r.items)
	if n == 0 {
		return undefined
	}
	if name == "pop" {
		s := r.items[n-1]
		r.items = r.items[:n-1]
		return s
	}
	s := r.items[0]
	r.items = r.items[1:]
	return s
}

func (a *analysis) reverseArray(r *array, name string, self set) set {
	items := slices.Clone(r.items)
	slices.Reverse(items)
	if name == "toReversed" {
		return one(value{k: vArray, p: &array{items: items, fuzzy: r.fuzzy, rest: r.rest, born: a.cond}})
	}
	if a.cond > r.born {
		r.rest, r.fuzzy = r.any(), true
	}
	r.items = items
	return self
}

func (a *analysis) sortArray(r *array, name string, self set, args []set) set {
	out := r
	if name == "toSorted" {
		out = &array{items: slices.Clone(r.items), fuzzy: r.fuzzy, rest: r.rest, born: a.cond}
		self = one(value{k: vArray, p: out})
	}
	if len(args) == 0 && !r.fuzzy && a.cond <= r.born {
		ok := true
		for _, s := range r.items {
			_, is := s.text()
			ok = ok && is
		}
		if ok {
			items := slices.Clone(out.items)
			slices.SortStableFunc(items, func(x, y set) int { return strings.Compare(x.vs[0].s, y.vs[0].s) })
			out.items = items
			return self
		}
	}
	a.compareOnce(args, out)
	if a.sortBy(out, args) {
		return self
	}
	out.rest, out.fuzzy = out.any(), true
	return self
}

// compareOnce runs a comparison on what the array holds.
func (a *analysis) compareOnce(args []set, r *array) {
	if len(args) > 0 {
		s := r.any()
		a.callBack(args[0], s, s)
	}
}

// sortBy sorts with the code's own comparison where it always tells.
func (a *analysis) sortBy(r *array, args []set) bool {
	if len(args) == 0 || r.fuzzy || len(r.items) > 64 || a.inline > maxInline || a.cond > r.born {
		return false
	}
	ok := true
	items := slices.Clone(r.items)
	slices.SortStableFunc(items, func(x, y set) int {
		if !ok {
			return 0
		}
		n, known := a.callBack(args[0], x, y).number()
		if !known {
			ok = false
			return 0
		}
		switch {
		case n < 0:
			return -1
		case n > 0:
			return 1
		}
		return 0
	})
	if ok {
		r.items = items
	}
	return ok
}

func (a *analysis) splice(r *array, args []set) set {
	n := len(r.items)
	from, _, ok := a.sliceBounds(args[:min(1, len(args))], n)
	count, ok2 := float64(n-from), true
	if len(args) > 1 {
		count, ok2 = a.toNum(args[1])
	}
	if !ok || !ok2 || r.fuzzy || a.cond > r.born {
		s := r.any()
		for _, x := range args[min(2, len(args)):] {
			s = join(s, x)
		}
		r.fuzzy, r.rest = true, s
		return one(value{k: vArray, p: &array{fuzzy: true, rest: s, born: a.cond}})
	}
	to := min(n, from+max(0, int(min(count, 1e6))))
	cut := slices.Clone(r.items[from:to])
	var more []set
	if len(args) > 2 {
		more = args[2:]
	}
	r.items = slices.Concat(r.items[:from], more, r.items[to:])
	return arrayOf(cut, a.cond)
}

func (a *analysis) indexOf(r *array, name string, x set) set {
	if r.fuzzy {
		return unknown
	}
	found := -1
	for i, s := range r.items {
		eq, ok := strictEqual(s, x)
		if !ok {
			return unknown
		}
		if eq && (found < 0 || name == "lastIndexOf") {
			found = i
		}
	}
	if name == "includes" {
		return boolean(found >= 0)
	}
	return num(float64(found))
}

// iterate runs the methods that call a function for each item.
func (a *analysis) iterate(r *array, self set, name string, args []set) (set, bool) {
	switch name {
	case "map", "forEach", "filter", "some", "every", "find", "findIndex", "findLast", "findLastIndex", "flatMap", "reduce", "reduceRight":
	default:
		return set{}, false
	}
	f := arg(args, 0)
	if name == "reduce" || name == "reduceRight" {
		return a.reduce(r, self, name, args), true
	}
	out := &array{fuzzy: r.fuzzy, born: a.cond}
	found, certain := undefined, true
	this := arg(args, 1)
	if len(args) < 2 {
		this = set{}
	}
	for i, s := range r.items {
		if a.stopped {
			break
		}
		got := a.invoke(f, this, []set{s, num(float64(i)), self}, "")
		b, known := truth(got)
		switch name {
		case "map":
			out.items = append(out.items, got)
		case "flatMap":
			if v, ok := got.single(); ok && v.k == vArray {
				out.append(*v.p.(*array))
			} else {
				out.append(array{items: []set{got}, fuzzy: got.unk, rest: set{unk: got.unk}})
			}
		case "filter":
			if !known {
				out.fuzzy = true
				out.rest = join(out.rest, s)
			} else if b {
				out.items = append(out.items, s)
			}
		case "find", "findIndex", "findLast", "findLastIndex":
			if !known {
				certain = false
				found = join(found, s)
			} else if b {
				hit := s
				if strings.HasSuffix(name, "Index") {
					hit = num(float64(i))
				}
				if certain && !strings.HasPrefix(name, "findLast") {
					return hit, true
				}
				found = join(found, hit)
				if strings.HasPrefix(name, "findLast") && certain {
					found = hit
				}
			}
		}
	}
	if r.fuzzy {
		a.cond++
		s := join(r.rest, set{unk: true, src: r.rest.src, t: r.rest.t})
		got := a.invoke(f, this, []set{s, unknown, self}, "")
		a.cond--
		out.rest = join(out.rest, got)
		if name == "filter" {
			out.rest = s
		}
		found = join(found, s)
		certain = false
	}
	switch name {
	case "map", "flatMap", "filter":
		return one(value{k: vArray, p: out}), true
	case "forEach":
		return undefined, true
	case "find", "findLast":
		return found, true
	case "findIndex", "findLastIndex":
		if certain && len(found.vs) == 1 && found.vs[0].k == vNum {
			return found, true
		}
	}
	return unknown, true
}

func (a *analysis) reduce(r *array, self set, name string, args []set) set {
	items := slices.Clone(r.items)
	if name == "reduceRight" {
		slices.Reverse(items)
	}
	var acc set
	if len(args) > 1 {
		acc = args[1]
	} else if len(items) > 0 {
		acc, items = items[0], items[1:]
	} else {
		acc = unknown
	}
	for i, s := range items {
		if a.stopped {
			break
		}
		acc = a.invoke(arg(args, 0), set{}, []set{acc, s, num(float64(i)), self}, "")
	}
	if r.fuzzy {
		a.cond++
		more := a.invoke(arg(args, 0), set{}, []set{join(acc, unknown), join(r.rest, unknown), unknown, self}, "")
		a.cond--
		acc = join(acc, join(more, unknown))
	}
	return acc
}
