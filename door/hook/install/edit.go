package install

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// MaxFile is the largest settings file in bytes, maxDepth how deep it may nest.
const (
	MaxFile  = 1 << 20
	maxDepth = 200
)

var bom = []byte("\xef\xbb\xbf")

// file is a settings file while it is edited. Each edit changes the text and
// reads it anew: files are small, and offsets stay true.
type file struct {
	spec *spec
	src  []byte // without the byte order mark
	root hujson.Value
	style
}

// read reads a settings file and refuses what would be edited on a guess.
func read(s *spec, src []byte) (*file, error) {
	f := &file{spec: s, style: styleOf(src)}
	return f, f.set(src)
}

func (f *file) set(src []byte) error {
	if err := readable(src); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	root, err := hujson.Parse(src)
	if err != nil {
		return fmt.Errorf("install: it is not JSON: %w", err)
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		return errors.New("install: it holds no JSON object")
	}
	f.src, f.root = src, root
	return nil
}

func readable(src []byte) error {
	if len(src) > MaxFile {
		return fmt.Errorf("it is larger than %d bytes", MaxFile)
	}
	if !utf8.Valid(src) {
		return errors.New("it is not valid UTF-8")
	}
	if len(bytes.TrimSpace(src)) == 0 {
		return errors.New("it is empty, which is no JSON (write {} into it, or remove it)")
	}
	// The parser recurses. Brackets in strings and comments count too, which
	// no settings file comes near.
	depth := 0
	for _, c := range src {
		switch c {
		case '{', '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it nests deeper than %d", maxDepth)
			}
		case '}', ']':
			depth = max(depth-1, 0)
		}
	}
	return nil
}

// styleOf finds the line end and the indentation that a file uses.
func styleOf(src []byte) style {
	s := style{newline: "\n", unit: "  "}
	i := bytes.IndexByte(src, '\n')
	if i > 0 && src[i-1] == '\r' {
		s.newline = "\r\n"
	}
	for line := range bytes.Lines(src) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && n <= 8 && len(rest) > 0 && rest[0] == '"' {
			s.unit = string(line[:n])
			break
		}
	}
	return s
}

// step is one step of a path: a member's key or an element's index.
type step struct {
	key   string
	index int
}

func key(k string) step { return step{key: k, index: -1} }

func at(i int) step { return step{index: i} }

// find is the value at a path, nil where there is none. Two members of one
// name are an error, as readers differ in which they take.
func (f *file) find(path ...step) (*hujson.Value, error) {
	v := &f.root
	for _, s := range path {
		var next *hujson.Value
		switch c := v.Value.(type) {
		case *hujson.Object:
			for i := range c.Members {
				name, ok := c.Members[i].Name.Value.(hujson.Literal)
				if !ok || s.index >= 0 || name.String() != s.key {
					continue
				}
				if next != nil {
					return nil, fmt.Errorf("install: it has %q twice", s.key)
				}
				next = &c.Members[i].Value
			}
		case *hujson.Array:
			if s.index >= 0 && s.index < len(c.Elements) {
				next = &c.Elements[s.index]
			}
		}
		if next == nil {
			return nil, nil
		}
		v = next
	}
	return v, nil
}

// part is one member or element: from its first byte (of the key) to its end.
type part struct{ start, end int }

// parts are those of a container.
func parts(v *hujson.Value) []part {
	var ps []part
	switch c := v.Value.(type) {
	case *hujson.Object:
		for i := range c.Members {
			ps = append(ps, part{c.Members[i].Name.StartOffset, c.Members[i].Value.EndOffset})
		}
	case *hujson.Array:
		for i := range c.Elements {
			ps = append(ps, part{c.Elements[i].StartOffset, c.Elements[i].EndOffset})
		}
	}
	return ps
}

// extra walks over white space and comments from i. It returns where they end,
// and where the last comment ends (i where there is none).
func (f *file) extra(i int) (end, comment int) {
	comment = i
	for i < len(f.src) {
		switch {
		case strings.IndexByte(" \t\r\n", f.src[i]) >= 0:
			i++
		case bytes.HasPrefix(f.src[i:], []byte("//")):
			n := bytes.IndexByte(f.src[i:], '\n')
			if n < 0 {
				return len(f.src), len(f.src)
			}
			i += n
			comment = i
			if f.src[i-1] == '\r' {
				comment--
			}
		case bytes.HasPrefix(f.src[i:], []byte("/*")):
			n := bytes.Index(f.src[i+2:], []byte("*/"))
			if n < 0 {
				return len(f.src), len(f.src)
			}
			i += n + 4
			comment = i
		default:
			return i, comment
		}
	}
	return i, comment
}

// comma is the offset of the comma after i, or -1.
func (f *file) comma(i int) int {
	if end, _ := f.extra(i); end < len(f.src) && f.src[end] == ',' {
		return end
	}
	return -1
}

// add appends a part to a container that is there. The bytes before the
// container's end stay as they are, so that taking the part out again gives
// them back: see drop.
func (f *file) add(c *hujson.Value, text string, depth int) error {
	ps := parts(c)
	var line strings.Builder
	f.line(&line, depth)
	sep := line.String()
	if len(ps) == 0 {
		open := c.StartOffset + 1
		end, comment := f.extra(open)
		// Directly behind the bracket it is told from a part that came with
		// its container.
		if comment == open && bytes.IndexByte(f.src[open:end], '\n') >= 0 {
			sep = ""
		}
		return f.set(slices.Concat(f.src[:comment], []byte(sep+text), f.src[comment:]))
	}
	last := ps[len(ps)-1].end
	comma := f.comma(last)
	tail := last
	if comma >= 0 {
		tail = comma + 1
	}
	_, place := f.extra(tail)
	lines := bytes.IndexByte(f.src[c.StartOffset:ps[0].start], '\n') >= 0
	if !lines && place == tail {
		sep = " "
	}
	if comma >= 0 {
		return f.set(slices.Concat(f.src[:place], []byte(sep+text+","), f.src[place:]))
	}
	return f.set(slices.Concat(f.src[:last], []byte(","), f.src[last:place], []byte(sep+text), f.src[place:]))
}

// drop takes the i-th part out of a container. made is set, and nothing is
// changed, where the container was written together with the part, which its
// line breaks on both sides tell: then it is to go as a whole. A container that
// was there before has the part directly behind its bracket, or its end
// directly behind the part, or a comment.
func (f *file) drop(c *hujson.Value, i int) (made bool, err error) {
	ps := parts(c)
	if len(ps) == 1 && broken(f.src[c.StartOffset+1:ps[0].start]) && broken(f.src[ps[0].end:c.EndOffset-1]) {
		return true, nil
	}
	return false, f.cut(c, i)
}

// broken reports white space with a line break in it.
func broken(b []byte) bool {
	return len(bytes.TrimSpace(b)) == 0 && bytes.IndexByte(b, '\n') >= 0
}

// cut takes the i-th of a container's parts out, with the comma that goes and
// the white space before it, but no comment.
func (f *file) cut(c *hujson.Value, i int) error {
	ps := parts(c)
	p, before := ps[i], c.StartOffset+1
	if i > 0 {
		before = f.comma(ps[i-1].end) + 1
	}
	_, before = f.extra(before)
	cuts := []part{{before, p.end}}
	switch comma := f.comma(p.end); {
	case comma >= 0:
		cuts = append(cuts, part{comma, comma + 1})
	case i > 0:
		comma = f.comma(ps[i-1].end)
		cuts = append([]part{{comma, comma + 1}}, cuts...)
	}
	var out []byte
	from := 0
	for _, cut := range cuts {
		out = append(out, f.src[from:cut.start]...)
		from = cut.end
	}
	return f.set(append(out, f.src[from:]...))
}

// indent is the white space that the line of an offset begins with.
func (f *file) indent(i int) string {
	line := f.src[bytes.LastIndexByte(f.src[:i], '\n')+1 : i]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// replace puts another text in a value's place.
func (f *file) replace(v *hujson.Value, text string) error {
	return f.set(slices.Concat(f.src[:v.StartOffset], []byte(text), f.src[v.EndOffset:]))
}
