package poison

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden finds characters that do not show, or that change what shows.
func (c *checker) hidden(s, where string) {
	if plain(s) && !strings.Contains(s, "        ") {
		return
	}
	var before rune
	blank, lines := 0, 0
	size := 0
	for i := 0; i < len(s); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		next, _ := utf8.DecodeRuneInString(s[i+size:])
		if rule, sev := hiddenRule(before, r, next); rule != "" {
			c.find(rule, sev, where, fmt.Sprintf("it holds the character U+%04X, which does not show, at byte %d", r, i))
		}
		switch {
		case r == '\n':
			blank++
			lines++
		case unicode.IsSpace(r) || r == 0x2800 || r == 0x3164:
			blank++
		default:
			// What stands behind so much nothing is out of sight.
			if blank >= 200 || lines >= 40 {
				c.find("hidden.far_off", Quarantine, where, fmt.Sprintf("text stands behind %d blank characters", blank))
			}
			blank, lines = 0, 0
		}
		before = r
	}
}

// hiddenRule names what is wrong with a character among its neighbours.
func hiddenRule(before, r, next rune) (string, Severity) {
	switch {
	case r == 0x1b || r == 0x9b:
		return "hidden.ansi", Quarantine
	case r < ' ' && r != '\n' && r != '\t' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85:
		return "hidden.control", Quarantine
	case r < 0x80:
		return "", Note
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return "hidden.bidi", Quarantine
	case r == 0x200e || r == 0x200f || r == 0x61c:
		// Marks that right-to-left text needs.
		if rightToLeft(before) || rightToLeft(next) {
			return "", Note
		}
		return "hidden.bidi", Note
	case r == 0x200c || r == 0x200d:
		// Joiners shape letters of many scripts, and emoji.
		if latin(before) || latin(next) {
			return "hidden.zero_width", Quarantine
		}
		return "", Note
	case r == 0x200b, r >= 0x2060 && r <= 0x2064, r >= 0x206a && r <= 0x206f, r == 0x180e, r == 0x34f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x3164, r == 0xffa0:
		return "hidden.zero_width", Quarantine
	case r == 0xfeff:
		if before == 0 {
			return "hidden.zero_width", Note // a mark of byte order that stayed
		}
		return "hidden.zero_width", Quarantine
	case r == 0xad:
		return "hidden.zero_width", Note
	case r >= 0xe0000 && r <= 0xe007f:
		// Flags of regions are a black flag followed by tags.
		if before == 0x1f3f4 || before >= 0xe0020 && before <= 0xe007e {
			return "hidden.tag", Note
		}
		return "hidden.tag", Quarantine
	case r >= 0xfe00 && r <= 0xfe0f:
		if isSelector(before) || before < 0x80 && !strings.ContainsRune("0123456789#*", before) {
			return "hidden.selector", Quarantine
		}
	case r >= 0xe0100 && r <= 0xe01ef:
		if !unicode.Is(unicode.Han, before) {
			return "hidden.selector", Quarantine
		}
	case unicode.Is(unicode.Co, r):
		return "hidden.private", Note
	}
	return "", Note
}

func isSelector(r rune) bool {
	return r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef
}

func latin(r rune) bool {
	return r >= '0' && r <= '9' || r == ' ' || unicode.Is(unicode.Latin, r)
}

func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana)
}

// name looks at the tool's own name.
func (c *checker) name() {
	name := c.def.Name
	if !plain(name) {
		c.hidden(name, "/name")
		if mixed(name) || strings.IndexFunc(name, imitates) >= 0 {
			c.find("name.homoglyph", Quarantine, "/name", fmt.Sprintf("the name %s has letters that look like others", shown(name)))
		} else {
			c.find("name.ascii", Note, "/name", fmt.Sprintf("the name %s has characters that names of tools have not", shown(name)))
		}
	}
	if strings.ContainsAny(name, " \t\r\n<>\"'`") || len(name) > 128 {
		c.find("name.form", Quarantine, "/name", fmt.Sprintf("the name %s is a text", shown(name)))
	}
	if c.known == nil {
		return
	}
	for _, o := range c.known.shape[skeleton(name)] {
		switch {
		case o.server == c.def.Server:
		case o.tool == name:
			c.find("shadow.same_name", Note, "/name", fmt.Sprintf("server %q has a tool of this name too", o.server))
		default:
			c.find("shadow.near_name", Quarantine, "/name", fmt.Sprintf("the name looks like %s of server %q", shown(o.tool), o.server))
		}
	}
}

// confusable maps letters of other scripts to the Latin ones they look like.
func confusable(r rune) rune {
	switch r {
	case 'а', 'ɑ', 'α':
		return 'a'
	case 'Ь', 'ь':
		return 'b'
	case 'с', 'ϲ':
		return 'c'
	case 'ԁ':
		return 'd'
	case 'е', 'ё', 'є':
		return 'e'
	case 'ɡ':
		return 'g'
	case 'һ':
		return 'h'
	case 'і', 'ι', 'ı', 'ї':
		return 'i'
	case 'ј':
		return 'j'
	case 'κ', 'к':
		return 'k'
	case 'ӏ', 'ⅼ':
		return 'l'
	case 'м':
		return 'm'
	case 'п':
		return 'n'
	case 'о', 'ο', 'σ', 'օ':
		return 'o'
	case 'р', 'ρ':
		return 'p'
	case 'ԛ':
		return 'q'
	case 'г':
		return 'r'
	case 'ѕ':
		return 's'
	case 'т', 'τ':
		return 't'
	case 'υ', 'ս':
		return 'u'
	case 'ν', 'ѵ':
		return 'v'
	case 'ԝ', 'ω':
		return 'w'
	case 'х', 'χ':
		return 'x'
	case 'у', 'γ':
		return 'y'
	}
	switch {
	case r >= 'А' && r <= 'Я': // capitals of Cyrillic
		if l := confusable(unicode.ToLower(r)); l < 0x80 {
			return l
		}
	case r >= 0xff01 && r <= 0xff5e: // full width
		return unicode.ToLower(r - 0xfee0)
	case r >= 0x1d400 && r <= 0x1d6a3: // mathematical letters
		return 'a' + (r-0x1d400)%52%26
	}
	return r
}

func imitates(r rune) bool { return r >= 0x80 && confusable(r) < 0x80 }

// mixed reports whether letters of several scripts stand in one word.
func mixed(word string) bool {
	lat, other := false, false
	for _, r := range word {
		switch {
		case !unicode.IsLetter(r):
		case unicode.Is(unicode.Latin, r):
			lat = true
		case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee):
			other = true
		}
	}
	return lat && other
}

// skeleton is the shape of a name, by which two that look alike are the same.
func skeleton(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch r = confusable(unicode.ToLower(r)); {
		case r == '_' || r == '-' || r == '.' || r == ' ' || r == '/':
		case r == '0':
			b.WriteByte('o')
		case r == '1' || r == '|':
			b.WriteByte('l')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}
