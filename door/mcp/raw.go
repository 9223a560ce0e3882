package mcp

import (
	"encoding/json"
	"strings"
	"unicode"
)

// span is a half-open range of bytes in a message.
type span struct{ lo, hi int }

func (s span) of(b []byte) []byte { return b[s.lo:s.hi] }
func (s span) len() int           { return s.hi - s.lo }

// member is one member of an object: its decoded key and where its value is.
type member struct {
	key string
	val span
}

// The functions below walk JSON that is known to be well formed, to find
// where values stand, so that a message can be cut without being encoded
// anew. They never recurse, and on anything else they stop early; they do
// not validate.

// whole is the span of the one value in b, without the white space around.
func whole(b []byte) span {
	lo := skipSpace(b, 0)
	return span{lo, skipValue(b, lo)}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// skipValue returns the index after the value that starts at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			for i < len(b) && !strings.ContainsRune(",:]}[{\" \t\n\r", rune(b[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// elements are the spans of an array's elements; nil where at is no array.
func elements(b []byte, at span) []span {
	if at.len() < 2 || b[at.lo] != '[' {
		return nil
	}
	var out []span
	for i := at.lo + 1; i < at.hi-1; {
		i = skipSpace(b, i)
		if i < at.hi && b[i] == ',' {
			i++
			continue
		}
		end := skipValue(b, i)
		if end <= i {
			break
		}
		out = append(out, span{i, end})
		i = end
	}
	return out
}

// members are an object's members in order; nil where at is no object.
func members(b []byte, at span) []member {
	if at.len() < 2 || b[at.lo] != '{' {
		return nil
	}
	var out []member
	for i := at.lo + 1; i < at.hi-1; {
		i = skipSpace(b, i)
		if i < at.hi && b[i] == ',' {
			i++
			continue
		}
		if i >= at.hi || b[i] != '"' {
			break
		}
		end := skipString(b, i)
		key := decode(b[i:end])
		i = skipSpace(b, end)
		if i >= at.hi || b[i] != ':' {
			break
		}
		i = skipSpace(b, i+1)
		end = skipValue(b, i)
		if end <= i {
			break
		}
		out = append(out, member{key, span{i, end}})
		i = end
	}
	return out
}

// decode is the text of a JSON string, leniently: what it cannot tell
// becomes U+FFFD, as most readers have it.
func decode(raw []byte) string {
	if n := len(raw); n >= 2 && raw[0] == '"' && raw[n-1] == '"' {
		plain := true
		for _, c := range raw[1 : n-1] {
			if c == '\\' || c >= 0x80 {
				plain = false
				break
			}
		}
		if plain {
			return string(raw[1 : n-1])
		}
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// find returns the member spelled key exactly.
func find(ms []member, key string) (span, bool) {
	for _, m := range ms {
		if m.key == key {
			return m.val, true
		}
	}
	return span{}, false
}

// envelopeKeys are the keys by which a message is told from another.
var envelopeKeys = [...]string{"jsonrpc", "id", "method", "params", "result", "error"}

// lookalike returns the known key that some reader could take key for though
// it is spelled otherwise: in another case, or with characters around it
// that do not show.
func lookalike(key string, known ...string) string {
	bare := key
	for _, r := range key {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			bare = strings.Map(visible, key)
			break
		}
	}
	for _, k := range known {
		if key != k && strings.EqualFold(bare, k) {
			return k
		}
	}
	return ""
}

func visible(r rune) rune {
	if unicode.IsSpace(r) || !unicode.IsPrint(r) {
		return -1
	}
	return r
}
