package syntax

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// The limits of Parse. CPython's own are lower for brackets (200) and
// indentation (100), so nothing that runs is cut by Nesting.
const (
	// MaxSize is how many bytes of source are read.
	MaxSize = 256 << 10
	// MaxNesting is how deep brackets, blocks and operators may nest.
	MaxNesting = 500
)

var cookie = regexp.MustCompile(`^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)`)

// prepare brings the source into the form that CPython's tokenizer sees and
// notes what CPython would refuse or decode in another way.
func prepare(src string) (text string, problems []string) {
	src = strings.TrimPrefix(src, "\ufeff")
	if strings.Contains(src[:min(len(src), 4096)], "coding") {
		if p := codingProblem(src); p != "" {
			problems = append(problems, p)
		}
	}
	if !utf8.ValidString(src) {
		problems = append(problems, "the source is not valid UTF-8")
	}
	if strings.IndexByte(src, '\r') >= 0 {
		src = strings.ReplaceAll(src, "\r\n", "\n")
		src = strings.ReplaceAll(src, "\r", "\n")
	}
	if strings.IndexByte(src, 0) >= 0 {
		problems = append(problems, "the source contains a NUL")
		src = strings.ReplaceAll(src, "\x00", "\n")
	}
	return src, problems
}

// codingProblem looks at the first two lines, as PEP 263 says. The line ends
// are those of a file (\n, \r\n, \r); a cookie on the second line counts only
// after a line without code.
func codingProblem(src string) string {
	for range 2 {
		end := strings.IndexAny(src, "\r\n\x00")
		line := src
		if end >= 0 {
			line = src[:end]
		}
		if m := cookie.FindStringSubmatch(line); m != nil {
			if plainCoding(m[1]) {
				return ""
			}
			return "the source declares the coding " + m[1]
		}
		t := strings.TrimLeft(line, " \t\f")
		if end < 0 || t != "" && t[0] != '#' {
			return ""
		}
		next := src[end+1:]
		if src[end] == '\r' {
			next = strings.TrimPrefix(next, "\n")
		}
		src = next
	}
	return ""
}

// plainCoding: the codings in which ASCII text means itself.
func plainCoding(name string) bool {
	n := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	switch n {
	case "utf-8", "utf8", "utf-8-sig", "utf-8-unix", "utf-8-dos", "utf-8-mac", "u8", "ascii", "us-ascii", "646",
		"latin-1", "latin1", "iso-8859-1", "iso8859-1", "iso-latin-1", "l1", "8859", "cp819",
		"latin-1-unix", "iso-8859-1-unix", "iso-latin-1-unix":
		return true
	}
	return false
}
