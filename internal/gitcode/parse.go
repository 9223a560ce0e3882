package gitcode

import "strings"

// variable is one line of a configuration: section and name in lower case.
type variable struct{ section, sub, name, value string }

// parse reads git's configuration format (git-config(1), "Syntax"). It takes
// what it can of a file that git would refuse: too much is no harm.
func parse(text string) []variable {
	p := parser{rest: strings.TrimPrefix(text, "\ufeff")}
	var out []variable
	for p.rest != "" && len(out) < maxPaths {
		p.space()
		switch {
		case p.rest == "":
		case p.rest[0] == '\n':
			p.rest = p.rest[1:]
		case p.rest[0] == '#' || p.rest[0] == ';':
			p.line()
		case p.rest[0] == '[':
			p.header()
		default:
			if v, ok := p.variable(); ok {
				out = append(out, v)
			}
		}
	}
	return out
}

type parser struct{ rest, section, sub string }

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\f\v") }

// line skips to the end of the line.
func (p *parser) line() {
	_, p.rest, _ = strings.Cut(p.rest, "\n")
}

// header reads "[section]", "[section.sub]" or `[section "sub"]`. What
// follows on the line is read on.
func (p *parser) header() {
	p.rest = p.rest[1:]
	end := strings.IndexAny(p.rest, " \t]\n\"")
	if end < 0 {
		p.rest = ""
		return
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	p.section, p.sub, _ = strings.Cut(strings.ToLower(name), ".")
	p.space()
	if strings.HasPrefix(p.rest, `"`) {
		p.sub = p.quoted()
	}
	if i := strings.IndexAny(p.rest, "]\n"); i >= 0 {
		p.rest = p.rest[i:]
		p.rest = strings.TrimPrefix(p.rest, "]")
		return
	}
	p.rest = ""
}

func (p *parser) quoted() string {
	var b strings.Builder
	i := 1
	for ; i < len(p.rest) && p.rest[i] != '"' && p.rest[i] != '\n'; i++ {
		if p.rest[i] == '\\' && i+1 < len(p.rest) {
			i++
		}
		b.WriteByte(p.rest[i])
	}
	p.rest = p.rest[min(i+1, len(p.rest)):]
	return b.String()
}

func (p *parser) variable() (variable, bool) {
	end := strings.IndexAny(p.rest, "=\n")
	if end < 0 {
		end = len(p.rest)
	}
	name := strings.ToLower(strings.TrimSpace(p.rest[:end]))
	p.rest = p.rest[end:]
	if !strings.HasPrefix(p.rest, "=") {
		return variable{}, false // a truth without a value
	}
	p.rest = p.rest[1:]
	p.space()
	value := p.value()
	return variable{p.section, p.sub, name, value}, name != "" && p.section != ""
}

// value reads to the end of the line, across those that end in a backslash.
func (p *parser) value() string {
	var b strings.Builder
	inQuotes := false
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\n':
			p.rest = p.rest[i+1:]
			return strings.TrimSpace(b.String())
		case c == '"':
			inQuotes = !inQuotes
		case (c == '#' || c == ';') && !inQuotes:
			p.rest = p.rest[i:]
			p.line()
			return strings.TrimSpace(b.String())
		case c == '\\' && i+1 < len(p.rest):
			i++
			switch p.rest[i] {
			case '\n':
			case '\r':
				if i+1 < len(p.rest) && p.rest[i+1] == '\n' {
					i++
				}
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'b':
			default:
				b.WriteByte(p.rest[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	p.rest = ""
	return strings.TrimSpace(b.String())
}
