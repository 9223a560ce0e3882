// Package strictjson reads JSON the way a guard must: what two decoders
// could read differently is refused, not chosen between. Duplicate keys, keys
// that differ in case only, invalid UTF-8, lone surrogates, trailing data,
// depth and size past the limits are errors. Numbers keep their spelling.
//
// A parsed value re-encodes canonically (sorted keys, one spelling a string),
// so that what is hashed is what was judged.
//
// What this package does not stop: a consumer that reads the same bytes with
// another parser may still coerce types (a string "1" for a number); roles
// and scopes are judged by the callers.
package strictjson

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest. MaxSize is how many
// bytes one document may have.
const (
	MaxDepth = 128
	MaxSize  = 8 << 20
)

// Kind is the type of a value.
type Kind uint8

const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"null", "boolean", "number", "string", "array", "object"}[k]
}

// Value is one JSON value. An object's members are Keys[i]: Items[i], in the
// order in which they stood.
type Value struct {
	Kind Kind
	// Str is a string's decoded text or a number's literal.
	Str   string
	Bool  bool
	Items []Value
	Keys  []string
}

// Get returns the member named key, or nil.
func (v *Value) Get(key string) *Value {
	if v == nil || v.Kind != Object {
		return nil
	}
	if i := slices.Index(v.Keys, key); i >= 0 {
		return &v.Items[i]
	}
	return nil
}

// Text returns the string that the member named key holds; ok is false where
// it is absent or no string.
func (v *Value) Text(key string) (s string, ok bool) {
	if m := v.Get(key); m != nil && m.Kind == String {
		return m.Str, true
	}
	return "", false
}

// Error says where and why a document was refused.
type Error struct {
	Offset int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("json: %s at byte %d", e.Reason, e.Offset) }

// Parse reads one document. Errors are *Error.
func Parse(b []byte) (Value, error) {
	if len(b) > MaxSize {
		return Value{}, &Error{MaxSize, fmt.Sprintf("document larger than %d bytes", MaxSize)}
	}
	p := parser{b: b}
	p.space()
	v := p.value(0)
	p.space()
	if p.err == nil && p.i < len(b) {
		p.fail("data after the value")
	}
	if p.err != nil {
		return Value{}, p.err
	}
	return v, nil
}

type parser struct {
	b   []byte
	i   int
	err *Error
}

func (p *parser) fail(reason string) {
	if p.err == nil {
		p.err = &Error{p.i, reason}
	}
	p.i = len(p.b)
}

func (p *parser) space() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

func (p *parser) value(depth int) Value {
	if depth > MaxDepth {
		p.fail(fmt.Sprintf("nested deeper than %d", MaxDepth))
		return Value{}
	}
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return Value{Kind: String, Str: p.str()}
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case p.word("true"):
		return Value{Kind: Bool, Bool: true}
	case p.word("false"):
		return Value{Kind: Bool}
	case p.word("null"):
		return Value{}
	case p.i >= len(p.b):
		p.fail("unexpected end")
	default:
		p.fail("unexpected character")
	}
	return Value{}
}

func (p *parser) word(w string) bool {
	if len(p.b)-p.i >= len(w) && string(p.b[p.i:p.i+len(w)]) == w {
		p.i += len(w)
		return true
	}
	return false
}

func (p *parser) array(depth int) Value {
	v := Value{Kind: Array}
	p.i++
	p.space()
	if p.peek() == ']' {
		p.i++
		return v
	}
	for p.err == nil {
		p.space()
		v.Items = append(v.Items, p.value(depth+1))
		if p.closes(']') {
			break
		}
	}
	return v
}

// closes consumes the comma or the end of a list.
func (p *parser) closes(end byte) bool {
	p.space()
	switch p.peek() {
	case ',':
		p.i++
		return false
	case end:
		p.i++
		return true
	}
	if p.i >= len(p.b) {
		p.fail("unexpected end")
	} else {
		p.fail("expected a comma or the end of the list")
	}
	return true
}

func (p *parser) object(depth int) Value {
	v := Value{Kind: Object}
	p.i++
	p.space()
	if p.peek() == '}' {
		p.i++
		return v
	}
	for p.err == nil {
		p.space()
		if p.peek() != '"' {
			p.fail("expected a key")
			break
		}
		v.Keys = append(v.Keys, p.str())
		p.space()
		if p.peek() != ':' {
			p.fail("expected a colon")
			break
		}
		p.i++
		p.space()
		v.Items = append(v.Items, p.value(depth+1))
		if p.closes('}') {
			break
		}
	}
	if p.err == nil {
		p.clash(v.Keys)
	}
	return v
}

// clash refuses keys that are equal, or equal but for case: encoding/json
// and others match fields without case, so one reader's key is another's.
func (p *parser) clash(keys []string) {
	if len(keys) < 2 {
		return
	}
	if len(keys) <= 8 {
		for i := range keys {
			for j := range i {
				if strings.EqualFold(keys[i], keys[j]) {
					p.sameKeys(keys[j], keys[i])
					return
				}
			}
		}
		return
	}
	seen := make(map[string]string, len(keys))
	for _, k := range keys {
		f := fold(k)
		if old, dup := seen[f]; dup {
			p.sameKeys(old, k)
			return
		}
		seen[f] = k
	}
}

func (p *parser) sameKeys(a, b string) {
	if a == b {
		p.fail(fmt.Sprintf("duplicate key %.64q", a))
		return
	}
	p.fail(fmt.Sprintf("keys %.64q and %.64q differ in case only", a, b))
}

// fold maps every rune to the least of its simple-folding orbit, so that two
// strings have the same fold just when strings.EqualFold holds.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

func (p *parser) number() Value {
	start := p.i
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else if !p.digits() {
		return Value{}
	}
	if p.peek() == '.' {
		p.i++
		if !p.digits() {
			return Value{}
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		if !p.digits() {
			return Value{}
		}
	}
	return Value{Kind: Number, Str: string(p.b[start:p.i])}
}

func (p *parser) digits() bool {
	start := p.i
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.i++
	}
	if p.i == start {
		p.fail("malformed number")
		return false
	}
	return true
}

func (p *parser) str() string {
	p.i++
	start := p.i
	for p.i < len(p.b) {
		c := p.b[p.i]
		switch {
		case c == '"':
			s := string(p.b[start:p.i])
			if !utf8.ValidString(s) {
				p.fail("invalid UTF-8")
				return ""
			}
			p.i++
			return s
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			p.fail("control character in a string")
			return ""
		}
		p.i++
	}
	p.fail("unterminated string")
	return ""
}

// escaped finishes a string that holds escapes; start is its first byte.
func (p *parser) escaped(start int) string {
	buf := append([]byte(nil), p.b[start:p.i]...)
	for p.i < len(p.b) {
		c := p.b[p.i]
		switch {
		case c == '"':
			if !utf8.Valid(buf) {
				p.fail("invalid UTF-8")
				return ""
			}
			p.i++
			return string(buf)
		case c == '\\':
			if buf = p.escape(buf); p.err != nil {
				return ""
			}
		case c < ' ':
			p.fail("control character in a string")
			return ""
		default:
			buf = append(buf, c)
			p.i++
		}
	}
	p.fail("unterminated string")
	return ""
}

func (p *parser) escape(buf []byte) []byte {
	p.i++
	c := p.peek()
	if i := strings.IndexByte(`"\/bfnrt`, c); c != 0 && i >= 0 {
		p.i++
		return append(buf, "\"\\/\b\f\n\r\t"[i])
	}
	if c != 'u' {
		p.fail("unknown escape")
		return nil
	}
	r := p.hex4()
	if utf16.IsSurrogate(r) {
		if p.i+1 < len(p.b) && p.b[p.i] == '\\' && p.b[p.i+1] == 'u' {
			p.i++
			r = utf16.DecodeRune(r, p.hex4())
		} else {
			r = unicode.ReplacementChar
		}
		if r == unicode.ReplacementChar {
			p.fail("lone surrogate")
			return nil
		}
	}
	return utf8.AppendRune(buf, r)
}

func (p *parser) hex4() rune {
	if p.i+5 > len(p.b) {
		p.fail("short \\u escape")
		return 0
	}
	n, err := strconv.ParseUint(string(p.b[p.i+1:p.i+5]), 16, 32)
	if err != nil {
		p.fail("malformed \\u escape")
		return 0
	}
	p.i += 5
	return rune(n)
}

// AppendCanonical appends v in its canonical form: no white space, members
// sorted by key, strings with the shortest escapes, numbers as spelled.
func AppendCanonical(dst []byte, v *Value) []byte {
	switch v.Kind {
	case Bool:
		return strconv.AppendBool(dst, v.Bool)
	case Number:
		return append(dst, v.Str...)
	case String:
		return AppendString(dst, v.Str)
	case Array:
		dst = append(dst, '[')
		for i := range v.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendCanonical(dst, &v.Items[i])
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for n, i := range order(v.Keys) {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, v.Keys[i]), ':')
			dst = AppendCanonical(dst, &v.Items[i])
		}
		return append(dst, '}')
	}
	return append(dst, "null"...)
}

func order(keys []string) []int {
	idx := make([]int, len(keys))
	for i := range idx {
		idx[i] = i
	}
	slices.SortFunc(idx, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	return idx
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Only '"', '\' and control
// characters are escaped.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}

// PointerToken escapes one step of a JSON pointer (RFC 6901).
func PointerToken(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}
