package python

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// pures are functions whose results can be computed.
var pures func() map[string]pure

func init() { pures = sync.OnceValue(newPures) } // some of them use it

func newPures() map[string]pure {
	return map[string]pure{
		"builtins.chr": chr, "builtins.ord": ord,
		"builtins.str": strOf, "builtins.repr": func(*analysis, *call) (set, bool) { return set{}, false },
		"builtins.int": intOf, "builtins.bytes": bytesOf, "builtins.bytearray": bytesOf, "builtins.memoryview": firstOK,
		"builtins.list": listOf, "builtins.tuple": listOf, "builtins.set": listOf, "builtins.frozenset": listOf, "collections.deque": listOf,
		"builtins.sorted": sorted, "builtins.reversed": reversed, "builtins.range": rangeOf, "builtins.len": length,
		"builtins.dict": dictOf, "collections.OrderedDict": dictOf, "collections.defaultdict": dictOf,
		"builtins.enumerate": enumerate, "builtins.zip": zip, "builtins.sum": sum,
		"builtins.hex": func(_ *analysis, c *call) (set, bool) {
			n, ok := c.number(0, 0)
			return str("0x" + strconv.FormatInt(n, 16)), ok && n >= 0
		},
		"builtins.abs": firstOK, "builtins.min": firstUnion, "builtins.max": firstUnion,
		"builtins.format": func(_ *analysis, c *call) (set, bool) {
			if len(c.args) == 0 {
				return set{}, false
			}
			spec, _ := c.text(1)
			v, ok := c.args[0].single()
			return str(formatSpec(v, spec)), ok
		},
		"codecs.decode": codecsDecode, "codecs.encode": codecsEncode,
		"operator.add":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "+") },
		"operator.concat":    func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "+") },
		"operator.xor":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "^") },
		"operator.sub":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "-") },
		"operator.mul":       func(a *analysis, c *call) (set, bool) { return pairOp(a, c, "*") },
		"base64.b64encode":   func(_ *analysis, c *call) (set, bool) { return encode("base64.b64encode", c) },
		"binascii.hexlify":   func(_ *analysis, c *call) (set, bool) { return encode("binascii.hexlify", c) },
		"itertools.chain":    chain,
		"os.path.join":       pathJoin,
		"os.path.expanduser": expanduser, "os.path.expandvars": expandvars,
		"os.path.abspath": abspath, "os.path.realpath": abspath, "os.path.normpath": textFn(normalise), "os.path.normcase": firstOK,
		"os.path.dirname": textFn(dirname), "os.path.basename": textFn(basename), "os.fspath": fspath, "os.fsdecode": fspath, "os.fsencode": fspath,
		"os.getcwd": func(a *analysis, _ *call) (set, bool) { return str(a.dirs[0]), true }, "os.getcwdb": func(a *analysis, _ *call) (set, bool) { return str(a.dirs[0]), true },
		"pathlib.Path": newPath, "pathlib.PurePath": newPath,
		"pathlib.Path.home": func(a *analysis, _ *call) (set, bool) { return one(value{k: vPath, s: a.home()}), true },
		"pathlib.Path.cwd":  func(a *analysis, _ *call) (set, bool) { return one(value{k: vPath, s: a.dirs[0]}), true },
		"shlex.quote":       quote, "pipes.quote": quote,
		"shlex.split": shlexSplit,
		"shlex.join":  shlexJoin,
		"urllib.parse.urljoin": func(_ *analysis, c *call) (set, bool) {
			if len(c.args) == 0 {
				return set{}, false
			}
			return c.args[0], len(c.args[0].vs) > 0
		},
		"getpass.getuser": func(a *analysis, _ *call) (set, bool) { return str(a.env.User), a.env.User != "" },
		"os.getlogin":     func(a *analysis, _ *call) (set, bool) { return str(a.env.User), a.env.User != "" },
	}
}

func firstOK(_ *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	return c.args[0], true
}

func firstUnion(a *analysis, c *call) (set, bool) {
	out := set{}
	if len(c.args) == 1 {
		return a.elements(c.args[0]), true
	}
	for _, s := range c.args {
		out = join(out, s)
	}
	return out, len(c.args) > 0
}

func chr(_ *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	s, ok := product(c.args, func(v []value) (value, bool) {
		if v[0].k != vInt || v[0].n < 0 || v[0].n > utf8.MaxRune {
			return value{}, false
		}
		return value{k: vStr, s: string(rune(v[0].n))}, true
	})
	if ok {
		s.t |= decoded
	}
	return s, ok
}

func ord(_ *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	return product(c.args, func(v []value) (value, bool) {
		switch {
		case v[0].k == vBytes && len(v[0].s) == 1:
			return value{k: vInt, n: int64(v[0].s[0])}, true
		case v[0].k == vStr && v[0].s != hole:
			r, n := utf8.DecodeRuneInString(v[0].s)
			return value{k: vInt, n: int64(r)}, n > 0 && n == len(v[0].s)
		}
		return value{}, false
	})
}

func strOf(_ *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return str(""), len(c.kws) == 0
	}
	if len(c.args) > 1 || len(c.kws) > 0 {
		v, ok := c.args[0].single()
		if !ok || v.k != vBytes {
			return set{}, false
		}
		codec, ok := c.text(1, "encoding")
		if !ok {
			return set{}, false
		}
		return decodedText(v.s, codec)
	}
	if len(c.args[0].vs) == 0 {
		return set{}, false
	}
	return product(c.args, func(v []value) (value, bool) { return value{k: vStr, s: v[0].display()}, true })
}

func intOf(_ *analysis, c *call) (set, bool) {
	base, ok := c.number(1, 10, "base")
	if !ok || len(c.args) == 0 {
		return set{}, false
	}
	return product(c.args[:1], func(v []value) (value, bool) {
		switch v[0].k {
		case vInt, vBool, vBig:
			return v[0], true
		case vFloat:
			return value{k: vInt, n: int64(v[0].f)}, true
		}
		n, err := strconv.ParseInt(strings.TrimSpace(v[0].s), int(base), 64)
		return value{k: vInt, n: n}, err == nil
	})
}

func bytesOf(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return one(value{k: vBytes}), true
	}
	v, ok := c.args[0].single()
	switch {
	case ok && v.k == vStr:
		d := *c
		d.args = c.args[1:]
		return encodeText(v, &d)
	case ok && v.k == vBytes:
		return c.args[0], true
	case ok && v.k == vInt:
		if v.n < 0 || v.n > maxItems {
			return set{}, false
		}
		return one(value{k: vBytes, s: strings.Repeat("\x00", int(v.n))}), true
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	b := make([]byte, 0, len(q.items))
	for _, it := range q.items {
		v, ok := it.single()
		if !ok || v.k != vInt || v.n < 0 || v.n > 255 {
			return set{}, false
		}
		b = append(b, byte(v.n))
	}
	return one(value{k: vBytes, s: string(b)}).with(set{t: decoded}), true
}

func listOf(a *analysis, c *call) (set, bool) {
	q := &sequence{kind: '[', born: a.maybe}
	if len(c.args) == 1 {
		in, ok := a.concrete(c.args[0])
		if ok {
			q.items = in.items
		} else {
			q.items, q.fuzzy = []set{a.elements(c.args[0])}, true
		}
		return one(value{k: vSeq, p: q}).with(c.args[0]), true
	}
	return one(value{k: vSeq, p: q}), len(c.args) == 0
}

func sorted(a *analysis, c *call) (set, bool) {
	if f, ok := c.arg(-1, "key"); ok && len(c.args) > 0 {
		a.apply(f, &call{args: []set{a.elements(c.args[0])}})
	}
	s, ok := listOf(a, &call{args: c.args[:min(1, len(c.args))]})
	if ok {
		s.vs[0].p.(*sequence).fuzzy = true
	}
	return s, ok
}

func reversed(a *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	items := slices.Clone(q.items)
	slices.Reverse(items)
	return seq('(', items...).with(c.args[0], set{t: decoded}), true
}

func rangeOf(_ *analysis, c *call) (set, bool) {
	n := [3]int64{0, 0, 1}
	for i := range c.args {
		v, ok := c.args[i].single()
		if !ok || v.k != vInt || i > 2 || v.n > 1<<40 || v.n < -1<<40 {
			return set{}, false
		}
		n[i] = v.n
	}
	if len(c.args) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 || c.unknownArgs || len(c.args) == 0 || (n[1]-n[0])/n[2] > maxItems {
		return set{}, false
	}
	var items []set
	for i := n[0]; n[2] > 0 && i < n[1] || n[2] < 0 && i > n[1]; i += n[2] {
		items = append(items, integer(i))
	}
	return seq('(', items...), true
}

func length(a *analysis, c *call) (set, bool) {
	if len(c.args) != 1 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	if !ok {
		return set{}, false
	}
	return integer(int64(len(q.items))), true
}

func dictOf(a *analysis, c *call) (set, bool) {
	m := &mapping{}
	for _, s := range c.args {
		a.dump(s, "copied into a dict")
		v, ok := s.single()
		if ok && v.k == vDict && len(c.args) == 1 {
			return s, true
		}
		if ok && v.k == vSeq {
			q := v.p.(*sequence)
			m.fuzzy = m.fuzzy || q.fuzzy
			for _, it := range q.items {
				pair, ok := a.concrete(it)
				if !ok || len(pair.items) != 2 {
					m.fuzzy = true
					continue
				}
				m.put(pair.items[0], pair.items[1])
			}
			continue
		}
		m.merge(s)
	}
	for _, k := range c.kws {
		m.put(str(k.name), k.val)
	}
	m.fuzzy = m.fuzzy || c.unknownKws || c.unknownArgs
	return one(value{k: vMap, p: m}), true
}

func enumerate(a *analysis, c *call) (set, bool) {
	if len(c.args) == 0 {
		return set{}, false
	}
	q, ok := a.concrete(c.args[0])
	start, known := c.number(1, 0, "start")
	if !ok || !known {
		pair := seq('(', unknown, a.elements(c.args[0]))
		return one(value{k: vSeq, p: &sequence{items: []set{pair}, fuzzy: true}}), true
	}
	items := make([]set, len(q.items))
	for i, it := range q.items {
		items[i] = seq('(', integer(start+int64(i)), it)
	}
	return seq('(', items...), true
}

func zip(a *analysis, c *call) (set, bool) {
	n := maxItems
	var seqs []*sequence
	for _, s := range c.args {
		q, ok := a.concrete(s)
		if v, single := s.single(); !ok && single && v.k == vSym && v.s == "itertools.cycle" {
			return set{}, false
		}
		if !ok {
			tuple := &sequence{kind: '('}
			for _, s := range c.args {
				tuple.items = append(tuple.items, a.elements(s))
			}
			return one(value{k: vSeq, p: &sequence{items: []set{one(value{k: vSeq, p: tuple})}, fuzzy: true}}), true
		}
		seqs = append(seqs, q)
		n = min(n, len(q.items))
	}
	if len(seqs) == 0 {
		n = 0
	}
	items := make([]set, n)
	for i := range items {
		t := make([]set, len(seqs))
		for j, q := range seqs {
			t[j] = q.items[i]
		}
		items[i] = seq('(', t...)
	}
	return seq('(', items...), true
}

func sum(a *analysis, c *call) (set, bool) {
	q, ok := a.concrete(firstOf(c))
	if !ok {
		return set{}, false
	}
	acc, given := c.arg(1, "start")
	if !given {
		acc = integer(0)
	}
	for _, it := range q.items {
		acc, ok = pairOp(a, &call{args: []set{acc, it}}, "+")
		if !ok {
			return set{}, false
		}
	}
	return acc, true
}

func firstOf(c *call) set {
	if len(c.args) == 0 {
		return unknown
	}
	return c.args[0]
}

func chain(a *analysis, c *call) (set, bool) {
	var items []set
	for _, s := range c.args {
		q, ok := a.concrete(s)
		if !ok || len(items)+len(q.items) > maxItems {
			return set{}, false
		}
		items = append(items, q.items...)
	}
	return seq('(', items...), true
}

func codecsDecode(_ *analysis, c *call) (set, bool) {
	s, _ := c.arg(0, "obj")
	v, ok := s.single()
	codec, ok2 := c.text(1, "encoding")
	if !ok || !ok2 || v.k != vStr && v.k != vBytes {
		return set{}, false
	}
	return decodedText(v.s, codec)
}

func codecsEncode(_ *analysis, c *call) (set, bool) {
	s, _ := c.arg(0, "obj")
	v, ok := s.single()
	codec, ok2 := c.text(1, "encoding")
	if !ok || !ok2 || v.k != vStr && v.k != vBytes {
		return set{}, false
	}
	if codecName(codec) == "rot13" {
		return str(rot13(v.s)).with(set{t: decoded}), true
	}
	if v.k == vStr {
		return encodeText(v, &call{args: c.args[min(1, len(c.args)):]})
	}
	return set{}, false
}

func pairOp(a *analysis, c *call, op string) (set, bool) {
	if len(c.args) != 2 {
		return set{}, false
	}
	kinds := map[string]syntax.Kind{"+": syntax.Plus, "-": syntax.Minus, "*": syntax.Star, "^": syntax.Caret}
	s := a.binary(kinds[op], c.args[0], c.args[1])
	return s, len(s.vs) > 0
}
