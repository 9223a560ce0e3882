package shell

import "strings"

const (
	maxSize    = 256 << 10
	maxNesting = 500
	// maxBrackets holds even where quoting has misled the scan.
	maxBrackets = 30_000
)

// tooDeep reports whether src may nest further than maxNesting. The parser
// recurses for every level and Go cannot recover from an exhausted stack, so
// this scan, which does not recurse, runs first. It counts brackets and
// keywords outside quotes and here-documents, and runs of prefixes ("! ! !",
// "f() g() h()") that nest without brackets.
func tooDeep(src string) bool {
	opens := strings.Count(src, "(") + strings.Count(src, "{") + strings.Count(src, "[") + strings.Count(src, "`")
	if opens < 8 && len(src) < 4*maxNesting {
		return false
	}
	if opens > maxBrackets {
		return true
	}
	s := scanner{src: src, start: true}
	return s.run()
}

type scanner struct {
	src   string
	i     int
	stack []byte // what each open bracket needs to close
	words int    // open if, case, do …
	run1  int    // prefixes since the last operand
	funcs int    // "f()" heads without a body
	ops   int    // right-associative operators
	start bool   // a command may start here
	docs  []heredoc
}

type heredoc struct {
	end          string
	quoted, tabs bool
}

func (s *scanner) deep() bool {
	return len(s.stack)+s.words+s.run1+s.funcs > maxNesting || s.ops > 40*maxNesting
}

func (s *scanner) top() byte {
	if len(s.stack) == 0 {
		return 0
	}
	return s.stack[len(s.stack)-1]
}

func (s *scanner) run() bool {
	for s.i < len(s.src) {
		if s.top() == '"' {
			s.inQuotes()
		} else {
			s.step()
		}
		if s.deep() {
			return true
		}
	}
	return false
}

func (s *scanner) inQuotes() {
	c := s.src[s.i]
	switch {
	case c == '\\':
		s.i++
	case c == '"':
		s.stack = s.stack[:len(s.stack)-1]
	case c == '$':
		s.dollar()
	case c == '`':
		s.tick()
	}
	s.i++
}

func (s *scanner) tick() {
	if n := len(s.stack); n > 0 && strings.IndexByte(string(s.stack), '`') >= 0 {
		for n > 0 && s.stack[n-1] != '`' {
			n--
		}
		s.stack = s.stack[:n-1]
		return
	}
	s.stack = append(s.stack, '`')
	s.start = true
}

func (s *scanner) dollar() {
	if s.i+1 >= len(s.src) {
		return
	}
	switch s.src[s.i+1] {
	case '(':
		s.stack = append(s.stack, ')')
		s.start = true
		s.i++
	case '{':
		s.stack = append(s.stack, '}')
		s.i++
	case '[':
		s.stack = append(s.stack, ']')
		s.i++
	case '\'':
		if s.top() != '"' {
			s.i++
			s.single(true)
		}
	}
}

func (s *scanner) single(ansi bool) {
	for s.i++; s.i < len(s.src) && s.src[s.i] != '\''; s.i++ {
		if ansi && s.src[s.i] == '\\' {
			s.i++
		}
	}
}

func (s *scanner) close(c byte) {
	if n := len(s.stack); n > 0 && s.stack[n-1] == c {
		s.stack = s.stack[:n-1]
	}
}

func (s *scanner) step() {
	c := s.src[s.i]
	switch c {
	case '\\':
		s.i++
		s.start = false
	case '\'':
		s.single(false)
		s.start = false
	case '"':
		s.stack = append(s.stack, '"')
		s.start = false
	case '`':
		s.tick()
	case '$':
		s.dollar()
		s.start = false || s.start && s.src[min(s.i, len(s.src)-1)] == '('
	case '(':
		if s.i+1 < len(s.src) && s.src[s.i+1] == ')' {
			s.funcs++
			s.i++
		} else {
			s.stack = append(s.stack, ')')
		}
		s.start = true
	case ')':
		s.close(')')
		s.start = true
	case '{':
		s.stack = append(s.stack, '}')
		s.funcs, s.start = 0, true
	case '}':
		s.close('}')
		s.start = false
	case '[':
		s.stack = append(s.stack, ']')
	case ']':
		s.close(']')
	case '<':
		s.angle()
	case '#':
		s.comment()
	case '!', '~', '-', '+':
		s.run1++
	case '?', '=':
		s.ops++
	case '\n':
		s.newline()
	case ';', '&', '|':
		s.start, s.run1 = true, 0
		if c == ';' {
			s.funcs = 0
		}
	case ' ', '\t', '\r':
	default:
		s.word()
		return
	}
	s.i++
}

func (s *scanner) word() {
	b := s.i
	for s.i < len(s.src) && isWordByte(s.src[s.i]) {
		s.i++
	}
	if s.i == b {
		s.i++
		s.start, s.run1 = false, 0
		return
	}
	w := s.src[b:s.i]
	if !s.start {
		s.run1 = 0
		return
	}
	switch w {
	case "if", "while", "until", "for", "case", "select":
		s.words++
		s.start = w != "for" && w != "case" && w != "select"
	case "fi", "done", "esac":
		if s.words > 0 {
			s.words--
		}
	case "then", "do", "else":
	case "elif", "time", "coproc", "function":
		s.run1++
		if w == "elif" {
			s.ops++
		}
	default:
		s.start, s.run1 = false, 0
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' ||
		c == '.' || c == '/' || c == ',' || c == ':' || c == '@' || c == '%' || c >= 0x80
}

func (s *scanner) comment() {
	if s.i > 0 && !strings.ContainsRune(" \t\n;&|(", rune(s.src[s.i-1])) {
		return
	}
	if j := strings.IndexByte(s.src[s.i:], '\n'); j >= 0 {
		s.i += j - 1
	} else {
		s.i = len(s.src)
	}
}

// angle notes a here-document; its body starts after the next line end.
func (s *scanner) angle() {
	rest := s.src[s.i:]
	if !strings.HasPrefix(rest, "<<") || strings.HasPrefix(rest, "<<<") {
		if strings.HasPrefix(rest, "<<<") {
			s.i += 2
		}
		return
	}
	j := s.i + 2
	var d heredoc
	if j < len(s.src) && s.src[j] == '-' {
		d.tabs = true
		j++
	}
	for j < len(s.src) && (s.src[j] == ' ' || s.src[j] == '\t') {
		j++
	}
	b := j
	for j < len(s.src) && !strings.ContainsRune(" \t\n;&|<>()", rune(s.src[j])) {
		j++
	}
	raw := s.src[b:j]
	d.quoted = strings.ContainsAny(raw, `'"\`)
	d.end = raw
	if d.quoted {
		d.end = strings.Map(func(r rune) rune {
			if r == '\'' || r == '"' || r == '\\' {
				return -1
			}
			return r
		}, raw)
	}
	if d.end != "" && s.top() != ']' && len(s.docs) < 64 {
		s.docs = append(s.docs, d)
	}
	s.i = j - 1
}

func (s *scanner) newline() {
	s.start, s.run1 = true, 0
	docs := s.docs
	s.docs = s.docs[:0]
	for _, d := range docs {
		s.body(d)
	}
}

// body skips a here-document. Its brackets are counted all the same: what
// looks like a here-document here may be a shift operator to the parser.
func (s *scanner) body(d heredoc) {
	depth := 0
	for s.i+1 < len(s.src) {
		b := s.i + 1
		e := strings.IndexByte(s.src[b:], '\n')
		if e < 0 {
			e = len(s.src) - b
		}
		line := s.src[b : b+e]
		if d.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		s.i = b + e
		if line == d.end {
			return
		}
		for _, c := range []byte(line) {
			switch c {
			case '(', '{', '[':
				depth++
			case ')', '}', ']':
				depth = max(depth-1, 0)
			}
			if depth > maxNesting {
				s.words = 2 * maxNesting
				return
			}
		}
	}
}
