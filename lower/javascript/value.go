package javascript

import (
	"math"
	"slices"
	"strings"
)

// kind is the sort of a value.
type kind uint8

const (
	vUndef  kind = iota
	vNull        //
	vBool        // n
	vNum         // n
	vStr         // s, with hole for each part that is not known
	vRegex       // s is the source, p.(string) the flags
	vBytes       // s
	vURL         // s is the address, as vStr
	vArray       // p is *array
	vObject      // p is *object
	vFunc        // p is *function
	vClass       // p is *class
	vSym         // s is a dotted name of the table; p a *conn or nil
	vMethod      // p is *method: a built-in method of a value
	vBound       // p is *bound
)

// hole stands in a vStr for text that is not known. It is a noncharacter,
// which no source has a use for.
const hole = "\U0010FFFF"

// value is one thing a name can hold. Values are compared with ==.
type value struct {
	s string
	p any
	n float64
	k kind
}

// taint says where a value comes from.
type taint uint8

const (
	decoded taint = 1 << iota // went through a decoder or arithmetic on characters
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
	maxValues = 12
	maxRefs   = 24
	maxSource = 6
	maxText   = 16 << 10
	maxItems  = 2048
)

var (
	unknown   = set{unk: true}
	undefined = set{vs: []value{{k: vUndef}}}
)

func one(v value) set      { return set{vs: []value{v}} }
func str(s string) set     { return one(value{k: vStr, s: clip(s)}) }
func num(n float64) set    { return one(value{k: vNum, n: n}) }
func sym(s string) set     { return one(value{k: vSym, s: s}) }
func list(i ...set) set    { return one(value{k: vArray, p: &array{items: i}}) }
func tainted(o ...set) set { return unknown.with(o...) }

func boolean(b bool) set {
	if b {
		return one(value{k: vBool, n: 1})
	}
	return one(value{k: vBool})
}

// clip keeps texts bounded, and such as can be told.
func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + hole
	}
	if strings.Contains(s, "\ufffd") {
		// Half of a surrogate pair, of which UTF-8 has no form.
		return hole
	}
	return s
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
	copied := false
	for _, v := range b.vs {
		if contains(out.vs, v) {
			continue
		}
		// References are never dropped for plain values.
		if len(out.vs) >= maxValues && v.k < vArray || len(out.vs) >= maxRefs {
			out.unk = true
			continue
		}
		if !copied {
			out.vs, copied = slices.Clone(out.vs), true
		}
		out.vs = append(out.vs, v)
	}
	return out
}

// add makes a value one of those that the set can be. The set must be the
// caller's own.
func (s *set) add(v value) {
	switch {
	case contains(s.vs, v):
	case len(s.vs) >= maxValues && v.k < vArray || len(s.vs) >= maxRefs:
		s.unk = true
	default:
		s.vs = append(s.vs[:len(s.vs):len(s.vs)], v)
	}
}

func contains(vs []value, v value) bool {
	for _, w := range vs {
		if w == v || v.k == vNum && w.k == vNum && math.IsNaN(v.n) && math.IsNaN(w.n) {
			return true
		}
	}
	return false
}

// single is the only value the set can be.
func (s set) single() (value, bool) {
	if len(s.vs) == 1 && !s.unk {
		return s.vs[0], true
	}
	return value{}, false
}

// text is the only string the set can be, without holes.
func (s set) text() (string, bool) {
	v, ok := s.single()
	if !ok || v.k != vStr && v.k != vURL || hasHole(v.s) {
		return "", false
	}
	return v.s, true
}

// number is the only number the set can be.
func (s set) number() (float64, bool) {
	v, ok := s.single()
	if !ok {
		return 0, false
	}
	return toNumber(v)
}

func hasHole(s string) bool { return strings.Contains(s, hole) }

// array is an array, arguments object or iterator. fuzzy: it may have more or
// fewer items, each like rest or one of items.
type array struct {
	items []set
	rest  set
	fuzzy bool
	born  int
	props map[string]set
}

// any is what an item that is not known by place can be.
func (r *array) any() set {
	out := r.rest
	for _, s := range r.items {
		out = join(out, s)
	}
	if r.fuzzy {
		out.unk = true
	}
	return out
}

// prop is a property: a value, or accessors.
type prop struct {
	v        set
	get, set set
	accessor bool
}

// object is an object, map, set or instance of a class of the code. open: it
// may have other properties.
type object struct {
	props map[string]*prop
	order []string
	proto set
	class *class
	rest  set // values under keys that are not known
	open  bool
	null  bool // made by Object.create(null)
	born  int
	kind  string // "Map", "Set" or ""
}

func newObject(born int) *object { return &object{props: map[string]*prop{}, born: born} }

func (o *object) put(key string, v set) {
	if p, ok := o.props[key]; ok && !p.accessor {
		p.v = v
		return
	}
	if len(o.order) >= maxItems {
		o.open = true
		o.rest = join(o.rest, v)
		return
	}
	if _, ok := o.props[key]; !ok {
		o.order = append(o.order, key)
	}
	o.props[key] = &prop{v: v}
}

// keys are the names of properties in JavaScript's order: whole numbers first.
func (o *object) keys() []string {
	number := func(k string) bool {
		return k == "0" || len(k) < 10 && k != "" && k[0] >= '1' && k[0] <= '9' && strings.Trim(k, "0123456789") == ""
	}
	if !slices.ContainsFunc(o.order, number) || o.kind != "" {
		return o.order
	}
	out := slices.Clone(o.order)
	slices.SortStableFunc(out, func(x, y string) int {
		m, n := number(x), number(y)
		switch {
		case m && n:
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			return strings.Compare(x, y)
		case m:
			return -1
		case n:
			return 1
		}
		return 0
	})
	return out
}

// method is a built-in method of a value, taken but not yet called.
type method struct {
	recv set
	name string
}

// bound is a function with its receiver and first arguments.
type bound struct {
	fn   set
	this set
	args []set
}

// conn is a connection that the code holds.
type conn struct {
	target, op string
	pattern    bool
	process    bool // a child process or one of its streams
}
