package ecosystem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// table is a TOML table as far as it is read here: texts and tables. The nil
// table is empty.
type table struct {
	texts  map[string]string
	tables map[string]*table
}

func newTable() *table { return &table{texts: map[string]string{}, tables: map[string]*table{}} }

// text returns the text at a path of keys.
func (t *table) text(path ...string) (string, bool) {
	for _, key := range path[:len(path)-1] {
		if t == nil {
			return "", false
		}
		t = t.tables[key]
	}
	if t == nil {
		return "", false
	}
	s, ok := t.texts[path[len(path)-1]]
	return s, ok
}

// names are the tables below one table, sorted.
func (t *table) names(key string) []string {
	if t == nil || t.tables[key] == nil {
		return nil
	}
	var out []string
	for name := range t.tables[key].tables {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (t *table) below(path []string) *table {
	for _, key := range path {
		next := t.tables[key]
		if next == nil {
			next = newTable()
			t.tables[key] = next
		}
		t = next
	}
	return t
}

// Bounds of what is read.
const (
	maxTOMLDepth = 16
	maxTOMLKeys  = 10_000
)

// tomlReader reads the parts of TOML that say what is needed here: tables,
// dotted and quoted keys, texts, inline tables. Other values are passed over.
type tomlReader struct {
	s    string
	i    int
	keys int
}

// parseTOML reads a file. Of one that it does not understand to the end it
// returns what came before, and an error that names the line.
func parseTOML(s string) (*table, error) {
	root := newTable()
	r := &tomlReader{s: strings.TrimPrefix(s, "\ufeff")}
	current := root
	for {
		r.blank(true)
		if r.i >= len(r.s) {
			return root, nil
		}
		var err error
		if r.s[r.i] == '[' {
			current, err = r.header(root)
		} else {
			err = r.pair(current, 0)
		}
		if err == nil {
			r.blank(false)
			if r.i < len(r.s) && r.s[r.i] != '\n' && r.s[r.i] != '\r' {
				err = errors.New("more than one value")
			}
		}
		if err != nil {
			return root, fmt.Errorf("line %d: %w", 1+strings.Count(r.s[:min(r.i, len(r.s))], "\n"), err)
		}
	}
}

// blank skips spaces and comments, and line ends where lines is set.
func (r *tomlReader) blank(lines bool) {
	for r.i < len(r.s) {
		switch c := r.s[r.i]; {
		case c == ' ' || c == '\t', lines && (c == '\n' || c == '\r'):
			r.i++
		case c == '#':
			if end := strings.IndexByte(r.s[r.i:], '\n'); end >= 0 {
				r.i += end
			} else {
				r.i = len(r.s)
			}
		default:
			return
		}
	}
}

func (r *tomlReader) peek() byte {
	if r.i < len(r.s) {
		return r.s[r.i]
	}
	return 0
}

func (r *tomlReader) header(root *table) (*table, error) {
	closing := "]"
	if strings.HasPrefix(r.s[r.i:], "[[") {
		closing = "]]"
	}
	r.i += len(closing)
	path, err := r.path()
	if err != nil {
		return root, err
	}
	if !strings.HasPrefix(r.s[r.i:], closing) {
		return root, errors.New("a table's name does not end")
	}
	r.i += len(closing)
	if closing == "]]" { // nothing of interest stands in lists of tables
		return newTable(), nil
	}
	return root.below(path), nil
}

// path reads a dotted key.
func (r *tomlReader) path() ([]string, error) {
	var path []string
	for {
		r.blank(false)
		key, err := r.key()
		if err != nil {
			return nil, err
		}
		if path = append(path, key); len(path) > maxTOMLDepth {
			return nil, errors.New("a key is too deep")
		}
		if r.keys++; r.keys > maxTOMLKeys {
			return nil, errors.New("too many keys")
		}
		r.blank(false)
		if r.peek() != '.' {
			return path, nil
		}
		r.i++
	}
}

func (r *tomlReader) key() (string, error) {
	if c := r.peek(); c == '"' || c == '\'' {
		return r.quoted()
	}
	start := r.i
	for r.i < len(r.s) {
		c := r.s[r.i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			break
		}
		r.i++
	}
	if r.i == start {
		return "", errors.New("no key where one belongs")
	}
	return r.s[start:r.i], nil
}

// pair reads "key = value".
func (r *tomlReader) pair(into *table, depth int) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	if r.peek() != '=' {
		return errors.New("a key without a value")
	}
	r.i++
	r.blank(false)
	into = into.below(path[:len(path)-1])
	last := path[len(path)-1]
	switch r.peek() {
	case '"', '\'':
		s, err := r.quoted()
		if err == nil {
			into.texts[last] = s
		}
		return err
	case '{':
		return r.inline(into.below([]string{last}), depth+1)
	}
	return r.skip()
}

func (r *tomlReader) inline(into *table, depth int) error {
	if depth > maxTOMLDepth {
		return errors.New("tables nest too deep")
	}
	r.i++ // the brace
	for {
		r.blank(true)
		switch r.peek() {
		case '}':
			r.i++
			return nil
		case ',':
			r.i++
			continue
		case 0:
			return errors.New("an inline table does not end")
		}
		if err := r.pair(into, depth); err != nil {
			return err
		}
	}
}

// quoted reads a text in one of the four forms of quotes.
func (r *tomlReader) quoted() (string, error) {
	quote := r.s[r.i : r.i+1]
	if long := strings.Repeat(quote, 3); strings.HasPrefix(r.s[r.i:], long) {
		quote = long
	}
	r.i += len(quote)
	var out strings.Builder
	for r.i < len(r.s) {
		c := r.s[r.i]
		switch {
		case strings.HasPrefix(r.s[r.i:], quote):
			r.i += len(quote)
			return out.String(), nil
		case c == '\n' && len(quote) == 1:
			return "", errors.New("a text does not end on its line")
		case c == '\\' && quote[0] == '"':
			if r.i+1 >= len(r.s) {
				return "", errors.New("a text does not end")
			}
			esc := strings.IndexByte(`"\/`, r.s[r.i+1])
			if esc < 0 { // none of what is read here needs another
				return "", errors.New("an escape that is not read here")
			}
			out.WriteByte(r.s[r.i+1])
			r.i += 2
		default:
			out.WriteByte(c)
			r.i++
		}
	}
	return "", errors.New("a text does not end")
}

// skip passes over a number, a date, a truth value or a list.
func (r *tomlReader) skip() error {
	depth := 0
	start := r.i
	for r.i < len(r.s) {
		switch c := r.s[r.i]; {
		case c == '"' || c == '\'':
			if _, err := r.quoted(); err != nil {
				return err
			}
			continue
		case c == '[' || c == '{':
			depth++
		case (c == ']' || c == '}') && depth > 0:
			depth--
		case depth == 0 && (c == '\n' || c == '\r' || c == ',' || c == '}' || c == '#'):
			if r.i == start {
				return errors.New("a key without a value")
			}
			return nil
		case c == '#':
			r.blank(true)
			continue
		}
		r.i++
	}
	if depth > 0 || r.i == start {
		return errors.New("a value does not end")
	}
	return nil
}
