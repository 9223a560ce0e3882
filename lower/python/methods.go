package python

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pure computes a function without effects. ok is false where the result
// cannot be told; the caller then makes it unknown.
type pure func(a *analysis, c *call) (set, bool)

// text is an argument that is one known text.
func (c *call) text(pos int, names ...string) (string, bool) {
	s, ok := c.arg(pos, names...)
	if !ok {
		return "", false
	}
	return s.text()
}

func (c *call) number(pos int, def int64, names ...string) (int64, bool) {
	s, ok := c.arg(pos, names...)
	if !ok {
		return def, true
	}
	v, ok := s.single()
	return v.n, ok && (v.k == vInt || v.k == vBool)
}

// textMethod folds a method of str or bytes by its name.
func (a *analysis) textMethod(name string, c *call) (set, bool) {
	v := c.recv
	switch name {
	case "format", "format_map":
		return a.format(v.s, c, name == "format_map")
	case "join":
		return a.joinText(v, c)
	case "encode":
		return encodeText(v, c)
	case "decode":
		return decodeBytes(v, c)
	case "split", "rsplit", "splitlines", "partition", "rpartition":
		return splitText(v, name, c)
	case "translate":
		return a.translate(v, c)
	case "replace":
		args := append([]set{one(v)}, c.args...)
		if len(args) != 3 {
			return set{}, false
		}
		return product(args, func(x []value) (value, bool) {
			if x[1].s == hole || x[2].s == hole || x[0].k != x[1].k || x[0].k != x[2].k {
				return value{k: v.k, s: hole}, v.k == vStr
			}
			if len(x[0].s)*(1+len(x[2].s)) > 16*maxText {
				return value{}, false
			}
			return value{k: v.k, s: strings.ReplaceAll(x[0].s, x[1].s, x[2].s)}, true
		})
	case "startswith", "endswith":
		p, ok := c.text(0)
		if !ok || hasHole(v.s) {
			return set{}, false
		}
		if name == "startswith" {
			return boolean(strings.HasPrefix(v.s, p)), true
		}
		return boolean(strings.HasSuffix(v.s, p)), true
	case "hex":
		return str(hexText(v.s)), v.k == vBytes
	case "fromhex":
		return fromHex(c)
	case "maketrans":
		return maketrans(c)
	}
	return simpleText(v, name, c)
}

func simpleText(v value, name string, c *call) (set, bool) {
	s := v.s
	arg, hasArg := c.text(0)
	if len(c.args) > 0 && !hasArg {
		if q, ok := c.args[0].single(); !ok || q.k != vInt {
			return set{}, false
		}
	}
	out := func(r string) (set, bool) { return one(value{k: v.k, s: r}), true }
	switch name {
	case "lower", "casefold":
		return out(strings.ToLower(s))
	case "upper":
		return out(strings.ToUpper(s))
	case "title":
		return out(titleText(s))
	case "capitalize":
		if s == "" {
			return out(s)
		}
		r, n := utf8.DecodeRuneInString(s)
		return out(strings.ToUpper(string(r)) + strings.ToLower(s[n:]))
	case "swapcase":
		return out(strings.Map(func(r rune) rune {
			if u := []rune(strings.ToUpper(string(r))); len(u) == 1 && u[0] != r {
				return u[0]
			}
			return []rune(strings.ToLower(string(r)))[0]
		}, s))
	case "strip", "lstrip", "rstrip":
		cut := " \t\n\r\v\f"
		if hasArg {
			cut = arg
		}
		switch name {
		case "strip":
			return out(strings.Trim(s, cut))
		case "lstrip":
			return out(strings.TrimLeft(s, cut))
		}
		return out(strings.TrimRight(s, cut))
	case "removeprefix":
		return out(strings.TrimPrefix(s, arg))
	case "removesuffix":
		return out(strings.TrimSuffix(s, arg))
	case "expandtabs", "__str__", "copy", "tobytes":
		return out(s)
	case "zfill":
		n, ok := c.number(0, 0)
		if !ok || n > 1000 || hasHole(s) {
			return set{}, false
		}
		return out(strings.Repeat("0", max(0, int(n)-len(s))) + s)
	case "count", "find", "index", "rfind":
		if !hasArg || hasHole(s) || len(c.args) > 1 || !ascii(s) {
			return set{}, false
		}
		switch name {
		case "count":
			return integer(int64(strings.Count(s, arg))), true
		case "rfind":
			return integer(int64(strings.LastIndex(s, arg))), true
		}
		return integer(int64(strings.Index(s, arg))), true
	case "isdigit", "isnumeric", "isdecimal":
		_, err := strconv.ParseUint(s, 10, 64)
		return boolean(err == nil), !hasHole(s) && len(s) < 18
	}
	return set{}, false
}

func titleText(s string) string {
	prev := false
	return strings.Map(func(r rune) rune {
		letter := strings.ToLower(string(r)) != strings.ToUpper(string(r))
		up := letter && !prev
		prev = letter
		if up {
			return []rune(strings.ToUpper(string(r)))[0]
		}
		return []rune(strings.ToLower(string(r)))[0]
	}, s)
}

// joinText is sep.join(items).
func (a *analysis) joinText(v value, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	var b strings.Builder
	taints := []set{c.args[0]}
	combos := false
	for _, it := range q.items {
		combos = combos || len(it.vs) > 1 || it.unk
	}
	if combos && len(q.items) <= 8 {
		return product(q.items, func(x []value) (value, bool) {
			parts := make([]string, len(x))
			for i := range x {
				parts[i] = x[i].s
				if x[i].k != v.k {
					return value{}, false
				}
			}
			return value{k: v.k, s: squeeze(strings.Join(parts, v.s))}, true
		})
	}
	for i, it := range q.items {
		if i > 0 {
			b.WriteString(v.s)
		}
		x, ok := it.single()
		switch {
		case ok && x.k == v.k:
			b.WriteString(x.s)
		case v.k == vStr:
			b.WriteString(hole)
		default:
			return set{}, false
		}
		if it.t != 0 || len(it.src) > 0 {
			taints = append(taints, it)
		}
		if b.Len() > maxText {
			return set{}, false
		}
	}
	return one(value{k: v.k, s: squeeze(b.String())}).with(taints...), true
}

func splitText(v value, name string, c *call) (set, bool) {
	sep, has := c.text(0, "sep")
	if hasHole(v.s) || len(c.args) > 0 && !has {
		if s, ok := c.arg(0, "sep"); ok {
			if only, ok := s.single(); !ok || only.k != vNone {
				return set{}, false
			}
		}
		if hasHole(v.s) {
			return seq('[', str(hole)), false
		}
	}
	n, ok := c.number(1, -1, "maxsplit")
	if !ok {
		return set{}, false
	}
	var parts []string
	switch {
	case name == "partition" || name == "rpartition":
		i := strings.Index(v.s, sep)
		if name == "rpartition" {
			i = strings.LastIndex(v.s, sep)
		}
		if i < 0 || !has {
			return set{}, false
		}
		parts = []string{v.s[:i], sep, v.s[i+len(sep):]}
	case name == "splitlines":
		parts = strings.Split(strings.TrimSuffix(v.s, "\n"), "\n")
	case !has && n < 0:
		parts = strings.Fields(v.s)
	case !has || sep == "":
		return set{}, false
	case name == "rsplit" && n >= 0:
		rest := v.s
		for range n {
			i := strings.LastIndex(rest, sep)
			if i < 0 {
				break
			}
			parts = append(parts, rest[i+len(sep):])
			rest = rest[:i]
		}
		parts = append(parts, rest)
		slices.Reverse(parts)
	case n >= 0:
		parts = strings.SplitN(v.s, sep, int(n)+1)
	default:
		parts = strings.Split(v.s, sep)
	}
	if len(parts) > maxItems {
		return set{}, false
	}
	items := make([]set, len(parts))
	for i, p := range parts {
		items[i] = one(value{k: v.k, s: p})
	}
	return seq('[', items...), true
}

// format is str.format and format_map.
func (a *analysis) format(f string, c *call, isMap bool) (set, bool) {
	if w := formatWalk(f); w != "" {
		a.reflection(w, "reached by a format string")
	}
	texts, fields, ok := formatFields(f)
	if !ok {
		return set{}, false
	}
	env := false
	for _, s := range c.args {
		if isMap && isEnviron(s) {
			env = true
			continue
		}
		a.dump(s, "formatted into a string")
	}
	if env {
		var names []string
		for _, fd := range fields {
			names = append(names, fd.name)
		}
		return a.fromEnv(f, names, c.args[0]), true
	}
	var b strings.Builder
	taints := c.all()
	for i, t := range texts {
		b.WriteString(t)
		if i == len(fields) {
			break
		}
		b.WriteString(a.formatField(fields[i], i, c, isMap))
		if b.Len() > maxText {
			return set{}, false
		}
	}
	return str(squeeze(b.String())).with(taints...), true
}

func (a *analysis) formatField(f formatField, i int, c *call, isMap bool) string {
	name := f.name
	base := name
	if j := strings.IndexAny(name, ".["); j >= 0 {
		base = name[:j]
	}
	var s set
	ok := false
	n, err := strconv.Atoi(base)
	switch {
	case isMap && len(c.args) == 1:
		if m, single := c.args[0].single(); single && m.k == vMap {
			s, ok = m.p.(*mapping).get(str(base)), true
		}
	case base == "":
		s, ok = c.arg(i)
	case err == nil:
		s, ok = c.arg(n)
	default:
		s, ok = c.arg(-1, base)
	}
	if !ok {
		return hole
	}
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(name, base), func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if strings.Contains(name, "["+part) {
			s = a.index(s, str(part))
		} else {
			s = a.attribute(s, part)
		}
	}
	a.dump(s, "formatted into a string")
	v, single := s.single()
	if !single || f.conv == 'r' {
		return hole
	}
	return formatSpec(v, f.spec)
}

func (a *analysis) translate(v value, c *call) (set, bool) {
	if len(c.args) == 0 || hasHole(v.s) {
		return set{unk: true, t: decoded}, true
	}
	t, ok := c.args[0].single()
	unknownResult := set{unk: true, t: decoded}
	if !ok {
		return unknownResult, true
	}
	var b strings.Builder
	if v.k == vBytes {
		if t.k != vBytes || len(t.s) != 256 {
			return unknownResult, true
		}
		for i := 0; i < len(v.s); i++ {
			b.WriteByte(t.s[v.s[i]])
		}
		return one(value{k: vBytes, s: b.String()}).with(set{t: decoded}), true
	}
	if t.k != vMap || t.p.(*mapping).fuzzy {
		return unknownResult, true
	}
	to := map[rune]string{}
	m := t.p.(*mapping)
	for i, k := range m.keys {
		r := rune(k.n)
		x, ok := m.vals[i].single()
		if !ok || k.k != vInt {
			return unknownResult, true
		}
		switch x.k {
		case vInt:
			to[r] = string(rune(x.n))
		case vStr:
			to[r] = x.s
		case vNone:
			to[r] = ""
		}
	}
	for _, r := range v.s {
		if s, ok := to[r]; ok {
			b.WriteString(s)
		} else {
			b.WriteRune(r)
		}
	}
	return str(b.String()).with(set{t: decoded}), true
}

func maketrans(c *call) (set, bool) {
	if len(c.args) == 1 {
		v, ok := c.args[0].single()
		if !ok || v.k != vMap {
			return set{}, false
		}
		m := &mapping{}
		for i, k := range v.p.(*mapping).keys {
			if k.k == vStr {
				r, _ := utf8.DecodeRuneInString(k.s)
				k = value{k: vInt, n: int64(r)}
			}
			m.put(one(k), v.p.(*mapping).vals[i])
		}
		return one(value{k: vMap, p: m}), true
	}
	from, ok := c.text(0)
	to, ok2 := c.text(1)
	if !ok || !ok2 {
		return set{}, false
	}
	if v, _ := c.args[0].single(); v.k == vBytes {
		var t [256]byte
		for i := range t {
			t[i] = byte(i)
		}
		for i := 0; i < min(len(from), len(to)); i++ {
			t[from[i]] = to[i]
		}
		return one(value{k: vBytes, s: string(t[:])}), true
	}
	m := &mapping{}
	f, t := []rune(from), []rune(to)
	for i := range min(len(f), len(t)) {
		m.put(integer(int64(f[i])), integer(int64(t[i])))
	}
	return one(value{k: vMap, p: m}), true
}

// listMethod changes or reads a list.
func (a *analysis) listMethod(name string, c *call) (set, bool) {
	q := c.recv.p.(*sequence)
	add := func(items ...set) {
		if a.maybe > q.born {
			q.fuzzy = true
		}
		if len(q.items)+len(items) > maxItems {
			q.fuzzy = true
			return
		}
		q.items = append(q.items[:len(q.items):len(q.items)], items...)
		q.settle()
	}
	switch name {
	case "append", "add", "appendleft":
		if len(q.items) >= maxItems {
			q.fuzzy = true
			return none, true
		}
		if len(c.args) == 1 {
			if n := len(q.items); n > 0 && cap(q.items) > n && a.maybe <= q.born && n < maxItems {
				q.items = append(q.items, c.args[0])
			} else {
				grown := make([]set, n, 2*n+4)
				copy(grown, q.items)
				q.items = grown
				if n < maxItems {
					q.items = append(q.items, c.args[0])
				}
				q.fuzzy = q.fuzzy || a.maybe > q.born
			}
			if name == "appendleft" {
				q.fuzzy = true
			}
			q.settle()
		}
		return none, true
	case "extend", "update":
		if len(c.args) == 1 {
			if in, ok := a.concrete(c.args[0]); ok {
				add(in.items...)
			} else {
				add(a.elements(c.args[0]))
				q.fuzzy = true
			}
		}
		return none, true
	case "insert":
		n, ok := c.number(0, 0)
		if len(c.args) == 2 && ok && n >= 0 && int(n) <= len(q.items) && a.maybe <= q.born && len(q.items) < maxItems {
			q.items = slices.Insert(slices.Clone(q.items), int(n), c.args[1])
		} else if len(c.args) == 2 {
			add(c.args[1])
			q.fuzzy = true
		}
		return none, true
	case "reverse":
		items := slices.Clone(q.items)
		slices.Reverse(items)
		q.items = items
		return none, true
	case "pop":
		n, ok := c.number(0, -1)
		item, ok2 := at(c.recv, n)
		if !ok || !ok2 || a.maybe > q.born {
			q.fuzzy = true
			return q.union(), true
		}
		if n < 0 {
			n += int64(len(q.items))
		}
		q.items = slices.Delete(slices.Clone(q.items), int(n), int(n)+1)
		return item, true
	case "copy", "__iter__":
		return one(value{k: vSeq, p: &sequence{items: q.items, kind: q.kind, fuzzy: q.fuzzy, born: a.maybe}}), true
	case "__next__":
		return q.union(), true
	case "__getitem__":
		if len(c.args) == 1 {
			return indexSequence(c.recv, c.args[0]), true
		}
	case "sort", "remove", "clear", "discard":
		q.fuzzy = true
		return none, true
	}
	return set{}, false
}

func (a *analysis) dictMethod(name string, c *call) (set, bool) {
	m := c.recv.p.(*mapping)
	switch name {
	case "get", "pop", "setdefault", "__getitem__":
		if len(c.args) == 0 {
			return set{}, false
		}
		s := m.get(c.args[0])
		if name == "__getitem__" {
			return s, true
		}
		if k, ok := c.args[0].single(); ok && !m.fuzzy && slices.Contains(m.keys, k) {
			s.unk = false
		} else if d, ok := c.arg(1, "default"); ok {
			s = join(s, d)
			if name == "setdefault" {
				m.put(c.args[0], s)
			}
		}
		return s, true
	case "values":
		return one(value{k: vSeq, p: &sequence{items: append(m.vals[:len(m.vals):len(m.vals)], m.rest), fuzzy: true}}), true
	case "keys":
		q, _ := a.concrete(one(c.recv))
		q.fuzzy = m.fuzzy
		return one(value{k: vSeq, p: q}), true
	case "items":
		q := &sequence{fuzzy: m.fuzzy}
		for i, k := range m.keys {
			q.items = append(q.items, seq('(', one(k), m.vals[i]))
		}
		if m.fuzzy {
			q.items = append(q.items, seq('(', unknown, m.rest))
		}
		return one(value{k: vSeq, p: q}), true
	case "copy":
		d := &mapping{}
		d.merge(one(c.recv))
		return one(value{k: vMap, p: d}), true
	case "update":
		for _, s := range c.args {
			a.dump(s, "merged into a dict")
			m.merge(s)
		}
		for _, k := range c.kws {
			m.put(str(k.name), k.val)
		}
		return none, true
	}
	return set{}, false
}

func intMethod(name string, c *call) (set, bool) {
	switch name {
	case "to_bytes":
		b, ok := c.recv.big()
		n, ok2 := c.number(0, 1, "length")
		order, _ := c.text(1, "byteorder")
		if !ok || !ok2 || b.Sign() < 0 || n < 0 || n > maxText || (b.BitLen()+7)/8 > int(n) {
			return set{}, false
		}
		buf := b.FillBytes(make([]byte, n))
		if order == "little" {
			slices.Reverse(buf)
		}
		return one(value{k: vBytes, s: string(buf)}).with(set{t: decoded}), true
	case "from_bytes":
		s, ok := c.text(0, "bytes")
		order, _ := c.text(1, "byteorder")
		if !ok || len(s) > maxBits/8 {
			return set{}, false
		}
		buf := []byte(s)
		if order == "little" {
			slices.Reverse(buf)
		}
		return bigint(new(big.Int).SetBytes(buf)), true
	case "bit_length":
		if b, ok := c.recv.big(); ok {
			return integer(int64(b.BitLen())), true
		}
	}
	return set{}, false
}
