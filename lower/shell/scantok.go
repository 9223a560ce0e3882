package shell

import "strings"

type scanTok struct {
	kind byte // 'w' word, 's' string, 'b' backticks, 'p' punctuation
	s    string
	end  int
}

// scanTokens cuts a text into tokens in the manner common to these
// languages.
func scanTokens(lang, s string) []scanTok {
	var out []scanTok
	for i := 0; i < len(s) && len(out) < 50000; {
		c := s[i]
		b := i
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case c == '#' && lang != "lua" && lang != "php" && lang != "jvm" && lang != "haskell" && lang != "erlang" && lang != "lisp" && (i == 0 || s[i-1] == ' ' || s[i-1] == '\n' || s[i-1] == ';'):
			i = lineEnd(s, i)
			continue
		case c == '"' || c == '\'' && lang != "lisp" && lang != "erlang" && lang != "haskell" && lang != "tcl":
			j := i + 1
			for j < len(s) && s[j] != c {
				if s[j] == '\\' {
					j++
				}
				j++
			}
			t := s[i+1 : min(j, len(s))]
			if c == '"' {
				t = unescape(t, true)
			}
			i = j + 1
			out = append(out, scanTok{'s', t, i})
			continue
		case c == '`' && (lang == "perl" || lang == "ruby" || lang == "php" || lang == "julia"):
			j := strings.IndexByte(s[i+1:], '`')
			if j < 0 {
				j = len(s) - i - 1
			}
			i += j + 2
			out = append(out, scanTok{'b', s[b+1 : min(i-1, len(s))], i})
			continue
		case lang == "lua" && strings.HasPrefix(s[i:], "[["):
			j := strings.Index(s[i:], "]]")
			if j < 0 {
				j = len(s) - i
			}
			out = append(out, scanTok{'s', s[i+2 : i+j], i + j})
			i += j + 2
			continue
		case (lang == "ruby" || lang == "perl") && (c == 'q' || c == '%') && i+2 < len(s):
			if t, n, kind := quoteOp(lang, s[i:]); n > 0 {
				i += n
				out = append(out, scanTok{kind, t, i})
				continue
			}
		}
		if validName("a"+s[i:i+1]) || c == ':' && i+1 < len(s) && s[i+1] == ':' {
			j := i
			for j < len(s) && (validName("a"+s[j:j+1]) || s[j] == '-' && (lang == "lisp" || lang == "powershell") || s[j] == '?' && lang == "ruby" || strings.HasPrefix(s[j:], "::") || j > i && s[j] == ':' && s[j-1] == ':') {
				j++
			}
			if j == i {
				j++
			}
			out = append(out, scanTok{'w', s[i:j], j})
			i = j
			continue
		}
		i++
		if c == '\n' {
			out = append(out, scanTok{'p', ";", i})
			continue
		}
		out = append(out, scanTok{'p', s[b:i], i})
	}
	return out
}

// quoteOp reads q(), qq(), qx(), %x(), %q(), %w().
func quoteOp(lang, s string) (text string, n int, kind byte) {
	i := 1
	kind = 's'
	switch {
	case lang == "perl" && s[0] == 'q':
		if i < len(s) && strings.IndexByte("qxwr", s[i]) >= 0 {
			if s[i] == 'x' {
				kind = 'b'
			}
			if s[i] == 'r' {
				kind = 'r'
			}
			i++
		}
	case lang == "ruby" && s[0] == '%':
		if strings.IndexByte("xqQwWr", s[i]) < 0 {
			if strings.IndexByte("({[<|", s[i]) < 0 {
				return "", 0, 0
			}
		} else {
			if s[i] == 'x' {
				kind = 'b'
			}
			i++
		}
	default:
		return "", 0, 0
	}
	if i >= len(s) {
		return "", 0, 0
	}
	open := s[i]
	shut := open
	switch open {
	case '(':
		shut = ')'
	case '{':
		shut = '}'
	case '[':
		shut = ']'
	case '<':
		shut = '>'
	case '/', '|', '!', '#', '~', '^':
	default:
		return "", 0, 0
	}
	depth := 0
	for j := i; j < len(s); j++ {
		switch {
		case s[j] == '\\':
			j++
		case s[j] == shut && (open == shut && j > i || depth == 1):
			return s[i+1 : j], j + 1, kind
		case s[j] == open:
			depth++
		case s[j] == shut:
			depth--
		}
	}
	return "", 0, 0
}
