package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// matching is what a filter lets through of names that are not known: where
// they lie in the workspace, a pattern narrows them as find's -name does.
func (w *walker) matching(c *inv, hasOption bool) val {
	out := c.in
	pattern, ok := grepPattern(c, hasOption)
	if !ok {
		return out
	}
	var lines []string
	for l := range strings.SplitSeq(strings.TrimRight(out.s, "\n"), "\n") {
		root, found := strings.CutSuffix(l, mPath)
		if !found || hasMark(root) || !w.inTree(val{s: root + "."}) {
			return out
		}
		for alt := range strings.SplitSeq(pattern, "|") {
			if name := globOfRegexp(alt); name != "" {
				lines = append(lines, root+mPath+"/"+name)
			} else {
				lines = append(lines, root+mPath+mSome)
			}
		}
		if len(lines) > maxNames {
			return out
		}
	}
	out.s = strings.Join(lines, "\n") + "\n"
	return out
}

// grepPattern is the pattern of a filter that selects; "." and its like do
// not.
func grepPattern(c *inv, hasOption bool) (string, bool) {
	pattern, ok := c.get("-e", "--regexp")
	if !ok && !hasOption && len(c.ops) > 0 {
		pattern, ok = c.ops[0], true
	}
	if !ok || c.has("-v", "--invert-match") || !pattern.known() {
		return "", false
	}
	p := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(pattern.s, `\(`, "("), `\)`, ")"), `\|`, "|")
	if strings.HasPrefix(p, "(") && strings.HasSuffix(p, ")") && strings.Count(p, "(") == 1 {
		p = p[1 : len(p)-1]
	}
	for alt := range strings.SplitSeq(p, "|") {
		if strings.Trim(alt, "^$.*+?/\\") == "" {
			return "", false
		}
	}
	return p, true
}

// globOfRegexp turns a regular expression that is plain text, with an anchor
// at most, into a pattern of the last element; "" if it is not that plain.
func globOfRegexp(re string) string {
	text, anchored := strings.CutSuffix(re, "$")
	text = strings.TrimPrefix(text, ".*")
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			c = text[i]
			if c != '.' && c != '-' && c != '_' {
				return ""
			}
		case strings.IndexByte(`^.*+?[](){}/`, c) >= 0:
			return ""
		}
		b.WriteByte(c)
	}
	name := mName + b.String()
	if b.Len() < 2 {
		return ""
	}
	if !anchored {
		name += mName
	}
	return name
}

// plainVariable is the variable that a filter picks out of a listing of the
// environment; "" if it may let others through.
func plainVariable(s *syntax.Stmt) string {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 || len(c.Assigns) > 0 || len(c.Args) < 2 || c.Args[0].Lit() != "grep" {
		return ""
	}
	word := false
	for _, a := range c.Args[1 : len(c.Args)-1] {
		switch a.Lit() {
		case "-w", "-E", "-q", "-F", "-c", "-m1":
			word = word || a.Lit() == "-w"
		default:
			return ""
		}
	}
	p := literal(c.Args[len(c.Args)-1])
	name, start := strings.CutPrefix(p, "^")
	name, end := strings.CutSuffix(name, "=")
	if !validName(name) || secretName(name) {
		return ""
	}
	if start && end || word {
		return name
	}
	return ordinaryVariable(name)
}

// listsEnv: env or printenv alone, whose output all goes to the pipe.
func listsEnv(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(s.Redirs) == 0 && len(c.Assigns) == 0 && len(c.Args) == 1 && (c.Args[0].Lit() == "env" || c.Args[0].Lit() == "printenv")
}

// isSort: the lines go on, in another order.
func isSort(s *syntax.Stmt) bool {
	c, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(s.Redirs) == 0 && len(c.Assigns) == 0 && len(c.Args) == 1 && c.Args[0].Lit() == "sort"
}

// ordinaryVariable gives a name back if it is that of a setting which is no
// part of a secret's name.
func ordinaryVariable(name string) string {
	switch name {
	case "PATH", "HOME", "LANG", "TERM", "PWD", "USER", "SHELL", "EDITOR", "DISPLAY", "HOSTNAME", "LC_ALL":
		return name
	}
	i := strings.LastIndexByte(name, '_')
	if i < 1 {
		return ""
	}
	switch name[i+1:] {
	case "ENV", "HOME", "PATH", "DIR", "VERSION", "ROOT", "HOST", "PORT", "LEVEL", "MODE", "PREFIX", "REGION", "FLAGS", "OPTS", "PROXY", "LANG":
		return name
	}
	return ""
}

// literal is a word without expansions.
func literal(word *syntax.Word) string {
	if len(word.Parts) != 1 {
		return ""
	}
	switch p := word.Parts[0].(type) {
	case *syntax.Lit:
		return p.Value
	case *syntax.SglQuoted:
		if !p.Dollar {
			return p.Value
		}
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 {
			if l, ok := p.Parts[0].(*syntax.Lit); ok {
				return l.Value
			}
		}
	}
	return ""
}
