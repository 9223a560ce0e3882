package javascript

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// blanks are what JavaScript takes for white space.
const blanks = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

// textMethod is a method of a string.
func (a *analysis) textMethod(v value, self set, name string, args []set) set {
	s := v.s
	a.charge(8 * len(s))
	x := arg(args, 0)
	if hasHole(s) {
		return a.partMethod(v, self, name, args)
	}
	keep := func(t string) set { return str(t).with(self) }
	switch name {
	case "concat":
		out := self
		for _, t := range args {
			out = a.concat(out, t)
		}
		return out
	case "slice", "substring", "substr":
		if t, ok := a.cut(s, name, args); ok {
			return keep(t)
		}
		return tainted(self)
	case "charAt", "at":
		n, ok := a.toNum(x)
		if len(args) == 0 {
			n, ok = 0, true
		}
		if !ok {
			return tainted(self)
		}
		i := int(n)
		if name == "at" && i < 0 {
			i += length(s)
		}
		return keep(substring(s, i, i+1))
	case "charCodeAt", "codePointAt":
		n, ok := a.toNum(x)
		if len(args) == 0 {
			n, ok = 0, true
		}
		if !ok {
			return tainted(self)
		}
		u := units(s)
		if int(n) < 0 || int(n) >= len(u) {
			return num(nan)
		}
		c := u[int(n)]
		if name == "codePointAt" && c >= 0xD800 && c < 0xE000 {
			return tainted(self)
		}
		return num(float64(c)).with(self)
	case "toLowerCase", "toLocaleLowerCase", "toUpperCase", "toLocaleUpperCase":
		if !ascii(s) {
			return tainted(self)
		}
		if strings.HasSuffix(name, "UpperCase") {
			return keep(strings.ToUpper(s))
		}
		return keep(strings.ToLower(s))
	case "trim":
		return keep(strings.Trim(s, blanks))
	case "trimStart", "trimLeft":
		return keep(strings.TrimLeft(s, blanks))
	case "trimEnd", "trimRight":
		return keep(strings.TrimRight(s, blanks))
	case "repeat":
		n, ok := a.toNum(x)
		if !ok || !(n >= 0) || n*float64(len(s)) > maxText {
			return tainted(self)
		}
		return keep(strings.Repeat(s, int(n)))
	case "padStart", "padEnd":
		return a.pad(s, self, name, args)
	case "split":
		return a.split(s, self, args)
	case "replace", "replaceAll":
		return a.replace(s, self, name, args)
	case "match", "matchAll":
		return a.match(s, self, name, x)
	case "normalize":
		form := norm.NFC
		switch t, _ := x.text(); t {
		case "NFKC":
			form = norm.NFKC
		case "NFD":
			form = norm.NFD
		case "NFKD":
			form = norm.NFKD
		}
		return keep(form.String(s))
	case "toWellFormed":
		return keep(s)
	case "startsWith", "endsWith", "includes", "indexOf", "lastIndexOf":
		return a.searchText(s, name, args)
	case "@@Symbol.iterator":
		r := a.elements(self)
		return one(value{k: vArray, p: &r})
	case "localeCompare", "search", "isWellFormed":
		return unknown
	}
	a.escapeAll(args)
	return tainted(self)
}

// partMethod is a method of a string of which a part is not known: what is
// certain of its start stays.
func (a *analysis) partMethod(v value, self set, name string, args []set) set {
	switch name {
	case "concat":
		out := self
		for _, t := range args {
			out = a.concat(out, t)
		}
		return out
	case "trim", "trimStart", "trimEnd", "toString", "normalize":
		return self
	case "toLowerCase":
		return str(strings.ToLower(v.s)).with(self)
	case "toUpperCase":
		return str(strings.ToUpper(v.s)).with(self)
	case "replace", "replaceAll":
		if f, ok := arg(args, 1).single(); ok && f.k == vFunc {
			a.callBack(arg(args, 1), unknown, unknown, unknown)
		}
		old, ok := arg(args, 0).text()
		neu, ok2 := arg(args, 1).text()
		if ok && ok2 {
			return str(strings.ReplaceAll(v.s, old, neu)).with(self)
		}
		return tainted(self)
	case "split":
		return one(value{k: vArray, p: &array{fuzzy: true, rest: tainted(self), born: a.cond}})
	}
	a.escapeAll(args)
	return tainted(self)
}

// cut is slice, substring and substr.
func (a *analysis) cut(s, name string, args []set) (string, bool) {
	n := length(s)
	switch name {
	case "slice":
		from, to, ok := a.sliceBounds(args, n)
		return substring(s, from, to), ok
	case "substring":
		read := func(i, def int) (int, bool) {
			x := arg(args, i)
			if v, ok := x.single(); ok && v.k == vUndef {
				return def, true
			}
			f, ok := a.toNum(x)
			if f != f {
				f = 0
			}
			return int(max(0, min(f, float64(n)))), ok
		}
		from, ok := read(0, 0)
		to, ok2 := read(1, n)
		if from > to {
			from, to = to, from
		}
		return substring(s, from, to), ok && ok2
	}
	from, _, ok := a.sliceBounds(args[:min(1, len(args))], n)
	count, ok2 := float64(n), true
	if v, given := arg(args, 1).single(); !given || v.k != vUndef {
		count, ok2 = a.toNum(arg(args, 1))
	}
	if !ok || !ok2 {
		return "", false
	}
	return substring(s, from, from+int(max(0, min(count, float64(n))))), true
}

func (a *analysis) pad(s string, self set, name string, args []set) set {
	n, ok := a.toNum(arg(args, 0))
	with := " "
	if len(args) > 1 {
		t, known := args[1].text()
		ok = ok && known
		with = t
	}
	if !ok || n > 4096 || with == "" {
		return tainted(self)
	}
	fill := ""
	for need := int(n) - length(s); length(fill) < need; {
		fill += with
		fill = substring(fill, 0, need)
	}
	if name == "padStart" {
		return str(fill + s).with(self)
	}
	return str(s + fill).with(self)
}

func (a *analysis) split(s string, self set, args []set) set {
	x := arg(args, 0)
	v, ok := x.single()
	if !ok {
		return one(value{k: vArray, p: &array{fuzzy: true, rest: tainted(self), born: a.cond}})
	}
	var parts []string
	switch v.k {
	case vUndef:
		parts = []string{s}
	case vStr:
		if v.s == "" && !ascii(s) {
			for _, u := range units(s) {
				parts = append(parts, fromUnits([]uint16{u}))
			}
			break
		}
		parts = strings.Split(s, v.s)
	case vRegex:
		re := compile(v, s)
		if re == nil {
			return one(value{k: vArray, p: &array{fuzzy: true, rest: tainted(self), born: a.cond}})
		}
		switch {
		case v.s == "(?:)" || v.s == "":
			parts = strings.Split(s, "")
		case re.NumSubexp() > 0 || re.MatchString(""):
			return one(value{k: vArray, p: &array{fuzzy: true, rest: tainted(self), born: a.cond}})
		default:
			parts = re.Split(s, -1)
		}
	default:
		return unknown
	}
	r := &array{born: a.cond}
	for _, p := range parts {
		if len(r.items) >= maxItems {
			r.fuzzy, r.rest = true, tainted(self)
			break
		}
		r.items = append(r.items, str(p).with(self))
	}
	return one(value{k: vArray, p: r})
}

// compile gives a Go regular expression for one of JavaScript's, or nil where
// they differ in more than spelling.
func compile(v value, text string) *regexp.Regexp {
	src := v.s
	flags, _ := v.p.(string)
	// Outside ASCII, and at line ends, the two languages differ.
	if !ascii(src) || !ascii(text) || strings.ContainsAny(text, "\r\v") || strings.ContainsAny(flags, "yv") || strings.Contains(src, `\p`) || strings.Contains(src, `\P`) || strings.Contains(src, `\B`) {
		return nil
	}
	if len(src) > 512 || len(src)*len(text) > 1<<20 || repeats().MatchString(src) && len(text) > 256 || strings.Contains(src, "(?=") || strings.Contains(src, "(?!") || strings.Contains(src, "(?<") || strings.Contains(src, "\\k") {
		return nil
	}
	src = strings.ReplaceAll(src, `\/`, `/`)
	src = jsEscape().ReplaceAllStringFunc(src, func(s string) string { return `\x{` + s[2:] + `}` })
	mode := ""
	for _, f := range flags {
		switch f {
		case 'i', 's', 'm':
			mode += string(f)
		}
	}
	if mode != "" {
		src = "(?" + mode + ")" + src
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return nil
	}
	return re
}

// repeats finds counts that make an expression large.
var repeats = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{\d*\d\d`)
})

var jsEscape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\\u[0-9a-fA-F]{4}`)
})

// replace is replace and replaceAll with a text or a function.
func (a *analysis) replace(s string, self set, name string, args []set) set {
	pat, ok := arg(args, 0).single()
	by := arg(args, 1)
	if !ok {
		a.escapeAll(args)
		return tainted(self)
	}
	var spans [][]int
	switch pat.k {
	case vStr:
		if hasHole(pat.s) || pat.s == "" {
			return tainted(self)
		}
		for at := 0; ; {
			i := strings.Index(s[at:], pat.s)
			if i < 0 {
				break
			}
			spans = append(spans, []int{at + i, at + i + len(pat.s)})
			at += i + len(pat.s)
			if name == "replace" {
				break
			}
		}
	case vRegex:
		re := compile(pat, s)
		if re == nil {
			a.escape(by, unknown)
			return tainted(self)
		}
		n := 1
		if flags, _ := pat.p.(string); strings.Contains(flags, "g") {
			n = -1
		}
		spans = re.FindAllStringSubmatchIndex(s, n)
	default:
		a.escapeAll(args)
		return tainted(self)
	}
	return a.substitute(s, self, spans, by)
}

func (a *analysis) substitute(s string, self set, spans [][]int, by set) set {
	out := str("")
	at := 0
	template, isText := by.text()
	if isText && oddTemplate().MatchString(template) {
		return tainted(self)
	}
	for _, sp := range spans {
		out = a.concat(out, str(s[at:sp[0]]))
		groups := make([]set, 0, len(sp)/2+2)
		for i := 0; i+1 < len(sp); i += 2 {
			if sp[i] < 0 {
				groups = append(groups, undefined)
			} else {
				groups = append(groups, str(s[sp[i]:sp[i+1]]))
			}
		}
		switch {
		case isText:
			out = a.concat(out, str(expand(template, groups)))
		default:
			if v, ok := by.single(); ok && v.k >= vArray {
				out = a.concat(out, a.invoke(by, set{}, append(groups, num(float64(sp[0])), str(s)), ""))
			} else {
				out = a.concat(out, by)
			}
		}
		at = sp[1]
	}
	return a.concat(out, str(s[at:])).with(self)
}

var oddTemplate = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("[$][`'<]|[$]\\d\\d")
})

// expand puts groups into a replacement text.
func expand(t string, groups []set) string {
	if !strings.Contains(t, "$") {
		return t
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		if t[i] == '$' && i+1 < len(t) {
			c := t[i+1]
			switch {
			case c == '$':
				b.WriteByte('$')
				i++
				continue
			case c == '&':
				g, _ := groups[0].text()
				b.WriteString(g)
				i++
				continue
			case c >= '1' && c <= '9' && int(c-'0') < len(groups):
				g, _ := groups[c-'0'].text()
				b.WriteString(g)
				i++
				continue
			}
		}
		b.WriteByte(t[i])
	}
	return b.String()
}

// match is match and matchAll.
func (a *analysis) match(s string, self set, name string, x set) set {
	v, ok := x.single()
	if !ok || v.k != vRegex {
		return tainted(self)
	}
	re := compile(v, s)
	if re == nil {
		return tainted(self)
	}
	flags, _ := v.p.(string)
	all := re.FindAllStringSubmatch(s, 1024)
	if len(all) == 0 {
		return one(value{k: vNull})
	}
	r := &array{born: a.cond}
	if strings.Contains(flags, "g") {
		for _, m := range all {
			if name == "matchAll" {
				g := &array{born: a.cond}
				for _, t := range m {
					g.items = append(g.items, str(t).with(self))
				}
				r.items = append(r.items, one(value{k: vArray, p: g}))
				continue
			}
			r.items = append(r.items, str(m[0]).with(self))
		}
		return one(value{k: vArray, p: r})
	}
	for _, t := range all[0] {
		r.items = append(r.items, str(t).with(self))
	}
	return one(value{k: vArray, p: r})
}

func (a *analysis) searchText(s, name string, args []set) set {
	t, ok := arg(args, 0).text()
	if !ok || len(args) > 1 {
		return unknown
	}
	switch name {
	case "startsWith":
		return boolean(strings.HasPrefix(s, t))
	case "endsWith":
		return boolean(strings.HasSuffix(s, t))
	case "includes":
		return boolean(strings.Contains(s, t))
	case "indexOf":
		return num(float64(unitIndex(s, strings.Index(s, t))))
	}
	return num(float64(unitIndex(s, strings.LastIndex(s, t))))
}

func unitIndex(s string, i int) int {
	if i < 0 {
		return i
	}
	return length(s[:i])
}

func (a *analysis) numberMethod(v value, self set, name string, args []set) set {
	switch name {
	case "toString":
		base := 10.0
		if len(args) > 0 {
			b, ok := a.toNum(args[0])
			if !ok {
				return tainted(self)
			}
			base = b
		}
		if base == 10 || base < 2 || base > 36 {
			return str(numberText(v.n))
		}
		if v.n == float64(int64(v.n)) {
			s := str(strconv.FormatInt(int64(v.n), int(base)))
			s.t |= decoded
			return s
		}
		return unknown
	case "toFixed":
		n, _ := a.toNum(arg(args, 0))
		if n >= 0 && n <= 20 {
			return str(strconv.FormatFloat(v.n, 'f', int(n), 64))
		}
	case "valueOf":
		return one(v)
	}
	return tainted(self)
}

func (a *analysis) bytesMethod(v value, self set, name string, args []set) set {
	a.charge(8 * len(v.s))
	switch name {
	case "toString", "toLocaleString", "utf8Slice", "latin1Slice", "asciiSlice":
		enc := ""
		if len(args) > 0 && name == "toString" {
			t, ok := args[0].text()
			if !ok {
				if u, single := args[0].single(); !single || u.k != vUndef {
					return tainted(self)
				}
			}
			enc = t
		}
		if name == "latin1Slice" || name == "asciiSlice" {
			enc = "latin1"
		}
		return a.bytesText(self, enc)
	case "toBase64":
		return a.bytesText(self, "base64")
	case "toHex":
		return a.bytesText(self, "hex")
	case "slice", "subarray":
		from, to, ok := a.sliceBounds(args, len(v.s))
		if !ok {
			return tainted(self)
		}
		return one(value{k: vBytes, s: v.s[from:to]}).with(self)
	case "reverse", "toReversed":
		b := []byte(v.s)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		return one(value{k: vBytes, s: string(b)}).with(self)
	case "map", "forEach", "reduce", "filter", "join", "values", "entries", "some", "every", "find":
		r := a.elements(self)
		r.born = a.cond
		got := a.arrayMethod(&r, self, name, args)
		if name == "map" || name == "filter" {
			return a.bytesFrom(got, "").with(self)
		}
		return got
	case "swap16", "swap32", "swap64":
		return tainted(self)
	}
	a.escapeAll(args)
	return tainted(self)
}

func (a *analysis) regexMethod(v value, name string, args []set) set {
	x := arg(args, 0)
	if name == "toString" {
		t, _ := a.toText(v)
		return str(t)
	}
	t, ok := x.text()
	re := compile(v, t)
	if !ok || re == nil || !utf8.ValidString(t) {
		return tainted(x)
	}
	switch name {
	case "test":
		return boolean(re.MatchString(t))
	case "exec":
		m := re.FindStringSubmatch(t)
		if m == nil {
			return one(value{k: vNull})
		}
		flags, _ := v.p.(string)
		if strings.ContainsAny(flags, "gy") {
			// The next match is elsewhere: a loop over exec ends some time.
			return unknown.with(x)
		}
		r := &array{born: a.cond}
		for _, g := range m {
			r.items = append(r.items, str(g).with(x))
		}
		return one(value{k: vArray, p: r})
	}
	return tainted(x)
}
