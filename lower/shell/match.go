package shell

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A pattern here is text in which the active characters stand behind mGlob.

// knownPattern reports whether every mark in the pattern is an active
// character.
func knownPattern(p string) bool {
	for i := 0; i < len(p); i++ {
		if isMark(p, i) {
			if p[i:i+markLen] != mGlob {
				return false
			}
			i += markLen
		}
	}
	return true
}

type patItem struct {
	kind byte // 'c' one rune, '?', '*', '['
	r    rune
	set  string
	neg  bool
}

func compilePattern(p string) []patItem {
	var out []patItem
	for i := 0; i < len(p); {
		if strings.HasPrefix(p[i:], mGlob) && i+markLen < len(p) {
			i += markLen
			switch p[i] {
			case '*':
				if n := len(out); n == 0 || out[n-1].kind != '*' {
					out = append(out, patItem{kind: '*'})
				}
				i++
				continue
			case '?':
				out = append(out, patItem{kind: '?'})
				i++
				continue
			case '[':
				if it, n := compileClass(p[i:]); n > 0 {
					out = append(out, it)
					i += n
					continue
				}
			}
		}
		r, n := utf8.DecodeRuneInString(p[i:])
		out = append(out, patItem{kind: 'c', r: r})
		i += n
	}
	return out
}

func compileClass(p string) (patItem, int) {
	it := patItem{kind: '['}
	i := 1
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		it.neg = true
		i++
	}
	b := i
	if i < len(p) && p[i] == ']' {
		i++
	}
	for i < len(p) && p[i] != ']' {
		if strings.HasPrefix(p[i:], "[:") {
			if j := strings.Index(p[i:], ":]"); j > 0 {
				i += j + 1
			}
		}
		i++
	}
	if i >= len(p) {
		return it, 0
	}
	it.set = strings.ReplaceAll(p[b:i], mGlob, "")
	return it, i + 1
}

var classes = [...]struct{ name, set string }{
	{"[:alpha:]", "a-zA-Z"}, {"[:digit:]", "0-9"}, {"[:alnum:]", "a-zA-Z0-9"}, {"[:lower:]", "a-z"},
	{"[:upper:]", "A-Z"}, {"[:space:]", " \t\n\r\v\f"}, {"[:punct:]", "!-/:-@[-`{-~"}, {"[:xdigit:]", "0-9a-fA-F"},
}

func (it patItem) matches(r rune) bool {
	switch it.kind {
	case 'c':
		return it.r == r
	case '?':
		return true
	}
	set := it.set
	if strings.Contains(set, "[:") {
		for _, c := range classes {
			set = strings.ReplaceAll(set, c.name, c.set)
		}
	}
	rs := []rune(set)
	hit := false
	for i := 0; i < len(rs); i++ {
		if i+2 < len(rs) && rs[i+1] == '-' {
			hit = hit || rs[i] <= r && r <= rs[i+2]
			i += 2
			continue
		}
		hit = hit || rs[i] == r
	}
	return hit != it.neg
}

// matchItems matches the whole text, without recursion.
func matchItems(items []patItem, s []rune) bool {
	i, j, star, back := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(items) && items[i].kind == '*':
			star, back = i, j
			i++
		case i < len(items) && items[i].matches(s[j]):
			i++
			j++
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(items) && items[i].kind == '*' {
		i++
	}
	return i == len(items)
}

// maxMatch bounds the text on which patterns are tried at every position.
const maxMatch = 4096

func trimPrefix(s, p string, longest bool) string {
	if !hasMark(p) {
		return strings.TrimPrefix(s, p)
	}
	if len(s) > maxMatch {
		return mUnknown
	}
	items, r := compilePattern(p), []rune(s)
	for n := 0; n <= len(r); n++ {
		k := n
		if longest {
			k = len(r) - n
		}
		if matchItems(items, r[:k]) {
			return string(r[k:])
		}
	}
	return s
}

func trimSuffix(s, p string, longest bool) string {
	if !hasMark(p) {
		return strings.TrimSuffix(s, p)
	}
	if len(s) > maxMatch {
		return mUnknown
	}
	items, r := compilePattern(p), []rune(s)
	for n := 0; n <= len(r); n++ {
		k := len(r) - n
		if longest {
			k = n
		}
		if matchItems(items, r[k:]) {
			return string(r[:k])
		}
	}
	return s
}

func replacePattern(s, p, with string, all bool) string {
	anchor := byte(0)
	if len(p) > 0 && (p[0] == '#' || p[0] == '%') && !all {
		anchor, p = p[0], p[1:]
	}
	if p == "" {
		switch anchor {
		case '#':
			return with + s
		case '%':
			return s + with
		}
		return s
	}
	if !hasMark(p) && anchor == 0 {
		if all {
			if strings.Count(s, p)*len(with) > maxText {
				return mUnknown
			}
			return strings.ReplaceAll(s, p, with)
		}
		return strings.Replace(s, p, with, 1)
	}
	if len(s) > maxMatch/4 {
		return mUnknown
	}
	items, r := compilePattern(p), []rune(s)
	var out []rune
	for i := 0; i < len(r); {
		k := -1
		for e := len(r); e > i; e-- {
			if anchor == '%' && e != len(r) {
				break
			}
			if matchItems(items, r[i:e]) {
				k = e
				break
			}
		}
		if k < 0 || anchor == '#' && i > 0 {
			out = append(out, r[i])
			i++
			continue
		}
		out = append(out, []rune(with)...)
		i = k
		if !all {
			out = append(out, r[i:]...)
			break
		}
	}
	return string(out)
}

func sortVals(vs []val) {
	slices.SortFunc(vs, func(a, b val) int { return strings.Compare(a.s, b.s) })
}
