package install

import (
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// object is a JSON object in order; a list is []any.
type object []member

type member struct {
	key string
	val any
}

// style is how a file is written; base is what every line begins with.
type style struct{ newline, unit, base string }

// render writes a value over several lines. depth is that of the line it
// begins on. A list of plain words stands on one line.
func (s style) render(b *strings.Builder, v any, depth int) {
	switch v := v.(type) {
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			s.line(b, depth+1)
			b.Write(strictjson.AppendString(nil, m.key))
			b.WriteString(": ")
			s.render(b, m.val, depth+1)
		}
		s.line(b, depth)
		b.WriteByte('}')
	case []any:
		s.list(b, v, depth)
	case string:
		b.Write(strictjson.AppendString(nil, v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case bool:
		b.WriteString(strconv.FormatBool(v))
	}
}

func (s style) list(b *strings.Builder, v []any, depth int) {
	words := true
	for _, e := range v {
		_, word := e.(string)
		words = words && word
	}
	b.WriteByte('[')
	for i, e := range v {
		switch {
		case words && i > 0:
			b.WriteString(", ")
		case i > 0:
			b.WriteByte(',')
		}
		if !words {
			s.line(b, depth+1)
		}
		s.render(b, e, depth+1)
	}
	if !words {
		s.line(b, depth)
	}
	b.WriteByte(']')
}

func (s style) line(b *strings.Builder, depth int) {
	b.WriteString(s.newline)
	b.WriteString(s.base)
	for range depth {
		b.WriteString(s.unit)
	}
}

func (s style) text(v any, depth int) string {
	var b strings.Builder
	s.render(&b, v, depth)
	return b.String()
}
