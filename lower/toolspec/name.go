package toolspec

import "strings"

// AppendNormal appends s in the form in which names are compared: letters in
// lower case and digits; '-', '_', '.', '/', ':' and spaces are dropped, so
// that read-file, read_file and readFile are one name.
func AppendNormal(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			dst = append(dst, c|0x20)
		case c == '-' || c == '_' || c == '.' || c == '/' || c == ':' || c == ' ':
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func normal(s string) string { return string(AppendNormal(nil, s)) }

// suspect reports characters that no tool's name needs: letters of other
// scripts, invisible characters, spaces.
func suspect(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			continue
		}
		if strings.IndexByte("_./:-", c) < 0 {
			return true
		}
	}
	return name == ""
}

// qualified takes a name apart at the separators that clients put between a
// server and its tool; ok is false where there is none.
func qualified(name string) (server, tool string, ok bool) {
	if rest, cut := cutFold(name, "mcp__"); cut {
		if s, t, found := strings.Cut(rest, "__"); found && t != "" {
			return s, t, true
		}
		return "", rest, rest != ""
	}
	trimmed := strings.TrimRight(name, "./:_-")
	if i := strings.LastIndexAny(trimmed, "./:"); i > 0 {
		return trimmed[:i], trimmed[i+1:], true
	}
	if i := strings.LastIndex(trimmed, "__"); i > 0 {
		return trimmed[:i], trimmed[i+2:], true
	}
	return "", trimmed, len(trimmed) != len(name) && trimmed != ""
}

func cutFold(s, prefix string) (rest string, ok bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// words splits a name at separators, digits and changes of case, in lower
// case: "outputFile_2" is output, file.
func words(dst []string, name string) []string {
	start := -1
	flush := func(end int) {
		if start >= 0 && len(dst) < cap(dst) {
			dst = append(dst, strings.ToLower(name[start:end]))
		}
		start = -1
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		upper := c >= 'A' && c <= 'Z'
		letter := upper || c >= 'a' && c <= 'z' || c >= 0x80
		if !letter {
			flush(i)
			continue
		}
		if start >= 0 && upper {
			prevUpper := name[i-1] >= 'A' && name[i-1] <= 'Z'
			nextLower := i+1 < len(name) && name[i+1] >= 'a' && name[i+1] <= 'z'
			if !prevUpper || nextLower {
				flush(i)
			}
		}
		if start < 0 {
			start = i
		}
	}
	flush(len(name))
	return dst
}
