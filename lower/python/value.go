package python

import (
	"math/big"
	"slices"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// kind is the sort of a value.
type kind uint8

const (
	vNone    kind = iota
	vBool         // n
	vInt          // n
	vBig          // p is *big.Int
	vFloat        // f
	vStr          // s, with hole for each part that is not known
	vBytes        // s
	vPath         // a pathlib path, s as vStr
	vSeq          // p is *sequence
	vMap          // p is *mapping
	vSym          // s is a dotted name; p the receiver of a method, if bound
	vDict         // the name space of the module s, "" for the code's own
	vInst         // an instance of the table's type s; p is *instance
	vFunc         // p is *function
	vClass        // p is *class
	vObj          // p is *object, an instance of a class of the code
	vMethod       // p is *method
	vPartial      // p is *partial
)

// hole stands in a vStr for text that is not known. It is a noncharacter,
// which no source has a use for.
const hole = "\U0010FFFF"

// value is one thing a name can hold. Values are compared with ==.
type value struct {
	s string
	p any
	n int64
	f float64
	k kind
}

// taint says where a value comes from.
type taint uint8

const (
	decoded taint = 1 << iota // went through a decoder or arithmetic on characters
	packed                    // went through base64, a decompressor or their kin
	network                   // was received
	file                      // was read from a file
)

// set is what a name can hold: one of vs or, with unk, something else. src
// names the files ("path") and variables ("$NAME") whose content is in it.
type set struct {
	vs  []value
	src []string
	unk bool
	t   taint
}

const (
	maxValues     = 8
	maxContainers = 4
	maxSource     = 6
	maxText       = 64 << 10
	maxItems      = 4096
)

var unknown = set{unk: true}

func one(v value) set { return set{vs: []value{v}} }

func str(s string) set { return one(value{k: vStr, s: s}) }

func sym(s string) set { return one(value{k: vSym, s: s}) }

// tainted is an unknown value made of others.
func tainted(of ...set) set {
	out := unknown
	for _, s := range of {
		out.t |= s.t
		out.src = mergeSources(out.src, s.src)
	}
	return out
}

// result is what a function that is not known makes of its arguments: content
// goes through it, but what it gives is no longer a decoded text.
func result(of ...set) set {
	out := tainted(of...)
	out.t &^= decoded | packed
	return out
}

// hidden: the text was certainly put out of sight, and not only perhaps.
func (s set) hidden() bool {
	if s.t&decoded == 0 {
		return false
	}
	_, whole := s.text()
	return whole || s.t&packed != 0 && s.t&file == 0 && len(s.vs) == 0
}

// with adds the taints and sources of others.
func (s set) with(of ...set) set {
	for _, o := range of {
		s.t |= o.t
		s.src = mergeSources(s.src, o.src)
	}
	return s
}

func mergeSources(a, b []string) []string {
	if len(a) == 0 {
		return b
	}
	out := a
	for _, x := range b {
		if !slices.Contains(out, x) && len(out) < maxSource {
			out = append(out[:len(out):len(out)], x)
		}
	}
	return out
}

// join is either of two sets.
func join(a, b set) set {
	if len(a.vs) == 0 && !a.unk && a.t == 0 {
		return b
	}
	if len(b.vs) == 0 && !b.unk && b.t == 0 {
		return a
	}
	out := set{vs: a.vs, unk: a.unk || b.unk, t: a.t | b.t, src: mergeSources(a.src, b.src)}
	if len(a.vs) > 0 && len(b.vs) > 0 && &a.vs[0] == &b.vs[0] && len(a.vs) >= len(b.vs) {
		return out
	}
	if len(a.vs) == 0 {
		out.vs = b.vs
		return out
	}
	copied := false
	for _, v := range b.vs {
		if slices.Contains(out.vs, v) {
			continue
		}
		if !out.room(v) {
			out.unk = true
			continue
		}
		if !copied {
			vs := make([]value, len(out.vs), len(out.vs)+len(b.vs))
			copy(vs, out.vs)
			out.vs, copied = vs, true
		}
		out.vs = append(out.vs, v)
	}
	return out
}

// room: a set keeps more of the functions that it can be than of constants,
// and few containers, each of which is a value of its own.
func (s set) room(v value) bool {
	switch v.k {
	case vSym, vFunc, vClass:
		return len(s.vs) < 2*maxValues
	case vSeq, vMap, vInst, vMethod, vPartial:
		n := 0
		for _, o := range s.vs {
			if o.k == v.k {
				n++
			}
		}
		return n < maxContainers && len(s.vs) < maxValues
	}
	return len(s.vs) < maxValues
}

// single is the only value the set can be.
func (s set) single() (value, bool) {
	if len(s.vs) == 1 && !s.unk {
		return s.vs[0], true
	}
	return value{}, false
}

// text is the only string or bytes the set can be, without holes.
func (s set) text() (string, bool) {
	v, ok := s.single()
	if !ok || v.k != vStr && v.k != vBytes || v.k == vStr && hasHole(v.s) {
		return "", false
	}
	return v.s, true
}

// strings are all texts the set can be.
func (s set) strings() (out []string) {
	for _, v := range s.vs {
		if v.k == vStr && !hasHole(v.s) || v.k == vBytes {
			out = append(out, v.s)
		}
	}
	return out
}

// sequence is a list, tuple, set, iterator or range. Fuzzy: it may have more
// or fewer items.
type sequence struct {
	items []set
	kind  byte
	fuzzy bool
	born  int // analysis.maybe when it was made
}

// mapping is a dict with constant keys; fuzzy: it may have others, rest being
// what they hold.
type mapping struct {
	keys  []value
	vals  []set
	rest  set // what keys that cannot be told lead to
	fuzzy bool
}

// instance is an object of a type in the table. For a socket, addr is where
// it is connected to; for a file, addr is its path. t and src are what its
// content is made of.
type instance struct {
	addr string
	args []set
	src  []string
	t    taint
}

// function is a def or lambda of the code.
type function struct {
	name     string
	params   []syntax.Param
	defaults map[string]set
	body     []syntax.Stmt
	expr     syntax.Expr
	outer    *frame
	info     *scope
	owner    *class
	bound    byte // 's'tatic, 'c'lass, 'p'roperty
	visited  int  // the pass in which it was run
	active   int
	returns  set
	methods  map[value]*method
	forks    bool // it calls fork
	recurses bool // it calls itself
	idle     bool // it was run only where nothing runs
	inner    bool // defined by code in a string
}

// class is a class of the code.
type class struct {
	name   string
	bases  []set
	frame  *frame
	fields map[string]set
	self   *object
	meta   bool // it has a metaclass, or other keywords
}

// object is the object of the class; one stands for all.
func (c *class) object() set {
	if c.self == nil {
		c.self = &object{c}
	}
	return one(value{k: vObj, p: c.self})
}

// object is an instance of a class of the code.
type object struct{ class *class }

// method is a function with its first argument.
type method struct {
	fn   *function
	self set
}

// partial is a callable with arguments laid by. With name it is a
// methodcaller, with attrs an attrgetter.
type partial struct {
	fn    set
	args  []set
	kws   []kwarg
	name  string
	attrs []string
}

type kwarg struct {
	name string
	val  set
}

func seq(kind byte, items ...set) set {
	return one(value{k: vSeq, p: &sequence{items: items, kind: kind}})
}

func integer(n int64) set { return one(value{k: vInt, n: n}) }

// The values of which there is one each; a set is never changed in place.
var none, yes, no = one(value{k: vNone}), one(value{k: vBool, n: 1}), one(value{k: vBool})

func boolean(b bool) set {
	if b {
		return yes
	}
	return no
}

func bigint(b *big.Int) set {
	if b.IsInt64() {
		return integer(b.Int64())
	}
	return one(value{k: vBig, p: b})
}

// truth is whether the value is true; ok is false where it cannot be told.
func (v value) truth() (yes, ok bool) {
	switch v.k {
	case vNone:
		return false, true
	case vBool, vInt:
		return v.n != 0, true
	case vFloat:
		return v.f != 0, true
	case vBytes:
		return v.s != "", true
	case vStr:
		return v.s != "", v.s != hole
	case vSeq:
		q := v.p.(*sequence)
		return len(q.items) > 0, !q.fuzzy
	case vMap:
		m := v.p.(*mapping)
		return len(m.keys) > 0, !m.fuzzy
	case vObj, vInst, vDict:
		return true, false
	}
	return true, true
}

// settle makes one item of many where which of them there are is not known.
func (q *sequence) settle() {
	if q.fuzzy && len(q.items) > maxValues {
		q.items = []set{q.union()}
	}
}

// union is all that the items of a container can be.
func (q *sequence) union() set {
	out := set{unk: q.fuzzy || len(q.items) == 0}
	for i, it := range q.items {
		if i > 256 {
			out.unk = true
			break
		}
		out = join(out, it)
	}
	return out
}
