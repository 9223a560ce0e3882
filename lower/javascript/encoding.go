package javascript

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func latin1(s string) []byte {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}

func fromLatin1(b string) string {
	r := make([]rune, len(b))
	for i := 0; i < len(b); i++ {
		r[i] = rune(b[i])
	}
	return string(r)
}

func percentDecode(s string) string {
	if strings.Contains(s, "%u") {
		// escape()'s own form.
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if strings.HasPrefix(s[i:], "%u") && i+6 <= len(s) {
				if n, err := strconv.ParseUint(s[i+2:i+6], 16, 16); err == nil {
					b.WriteRune(rune(n))
					i += 5
					continue
				}
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	if t, err := url.PathUnescape(s); err == nil {
		return t
	}
	return s
}

func percentEncode(s string, keep bool) string {
	const hex = "0123456789ABCDEF"
	safe := "-_.!~*'()"
	if keep {
		safe += ";/?:@&=+$,#"
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c < 0x80 && isWord(c) && c != '$' || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + string(hex[c>>4]) + string(hex[c&15]))
	}
	return b.String()
}

// decode turns texts into bytes (or a text of bytes) by an encoding.
func (a *analysis) decode(x set, encoding string, k kind) set {
	out := set{unk: x.unk || len(x.vs) == 0}.with(x)
	for _, v := range x.vs {
		t, ok := a.toText(v)
		if !ok || hasHole(t) {
			out.unk = true
			continue
		}
		b, ok := decodeText(t, encoding)
		if !ok {
			out.unk = true
			continue
		}
		if k == vStr {
			b = fromLatin1(b)
		}
		out.add(value{k: k, s: b})
	}
	if encoding != "utf8" {
		out.t |= decoded
	}
	return out
}

func decodeText(t, encoding string) (string, bool) {
	switch normalEncoding(encoding) {
	case "utf8":
		return t, true
	case "base64":
		b, err := decodeBase64(t)
		return string(b), err == nil
	case "hex":
		var b []byte
		for i := 0; i+1 < len(t); i += 2 {
			n, err := strconv.ParseUint(t[i:i+2], 16, 8)
			if err != nil {
				break
			}
			b = append(b, byte(n))
		}
		return string(b), true
	case "latin1":
		return string(latin1(t)), true
	case "utf16":
		var b []byte
		for _, u := range units(t) {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b), true
	}
	return "", false
}

func encodeText(b, encoding string) (string, bool) {
	switch normalEncoding(encoding) {
	case "utf8":
		return strings.ToValidUTF8(b, string(utf8.RuneError)), true
	case "base64":
		if strings.HasSuffix(encoding, "url") {
			return base64.RawURLEncoding.EncodeToString([]byte(b)), true
		}
		return base64.StdEncoding.EncodeToString([]byte(b)), true
	case "hex":
		const hex = "0123456789abcdef"
		var s strings.Builder
		for i := 0; i < len(b); i++ {
			s.WriteByte(hex[b[i]>>4])
			s.WriteByte(hex[b[i]&15])
		}
		return s.String(), true
	case "latin1":
		if strings.EqualFold(encoding, "ascii") {
			b = strings.Map(func(r rune) rune { return r & 0x7f }, fromLatin1(b))
			return b, true
		}
		return fromLatin1(b), true
	case "utf16":
		u := make([]uint16, len(b)/2)
		for i := range u {
			u[i] = uint16(b[2*i]) | uint16(b[2*i+1])<<8
		}
		return string(utf16.Decode(u)), true
	}
	return "", false
}

func normalEncoding(s string) string {
	switch strings.ToLower(s) {
	case "", "utf8", "utf-8":
		return "utf8"
	case "base64", "base64url":
		return "base64"
	case "hex":
		return "hex"
	case "latin1", "binary", "ascii":
		return "latin1"
	case "utf16le", "utf-16le", "ucs2", "ucs-2":
		return "utf16"
	}
	return s
}

// bytesFrom is Buffer.from(x, encoding) and kin.
func (a *analysis) bytesFrom(x set, encoding string) set {
	var out set
	for _, v := range x.vs {
		switch v.k {
		case vStr:
			out = join(out, a.decode(one(v).with(x), encoding, vBytes))
		case vBytes:
			out = join(out, one(v).with(x))
		case vArray:
			r := v.p.(*array)
			b := make([]byte, 0, len(r.items))
			ok := !r.fuzzy
			for _, s := range r.items {
				n, known := s.number()
				ok = ok && known
				b = append(b, byte(int64(n)))
			}
			if ok {
				out = join(out, set{vs: []value{{k: vBytes, s: string(b)}}, t: decoded})
			} else {
				out.unk = true
			}
		case vNum:
			if v.n >= 0 && v.n < 4096 {
				out = join(out, one(value{k: vBytes, s: string(make([]byte, int(v.n)))}))
			} else {
				out.unk = true
			}
		default:
			out.unk = true
		}
	}
	if x.unk || len(x.vs) == 0 {
		out.unk = true
	}
	return out.with(x)
}

// bytesText is bytes.toString(encoding).
func (a *analysis) bytesText(x set, encoding string) set {
	out := set{unk: x.unk || len(x.vs) == 0}.with(x)
	for _, v := range x.vs {
		if v.k != vBytes && v.k != vStr {
			out.unk = true
			continue
		}
		if t, ok := encodeText(v.s, encoding); ok && !hasHole(v.s) {
			out.add(value{k: vStr, s: t})
		} else {
			out.unk = true
		}
	}
	return out
}

func (a *analysis) fromCharCodes(args []set) set {
	out := set{t: decoded}.with(args...)
	u := make([]uint16, 0, len(args))
	for _, s := range args {
		n, ok := a.toNum(s)
		if !ok {
			return unknown.with(out)
		}
		if n > 0xffff && n <= unicodeMax {
			u = utf16.AppendRune(u, rune(n))
			continue
		}
		u = append(u, uint16(int64(n)))
	}
	return str(fromUnits(u)).with(out)
}

func (a *analysis) concatBytes(x set) set {
	r := a.elements(x)
	var b strings.Builder
	for _, s := range r.items {
		v, ok := s.single()
		if !ok || v.k != vBytes {
			return tainted(x, r.any())
		}
		b.WriteString(v.s)
	}
	if r.fuzzy {
		return tainted(x, r.any())
	}
	return one(value{k: vBytes, s: b.String()}).with(r.any())
}

// format is util.format of constants: directives take the arguments in turn,
// what is left over follows after spaces.
func (a *analysis) format(args []set) set {
	parts := make([]string, len(args))
	for i, s := range args {
		v, ok := s.single()
		if ok {
			parts[i], ok = a.toText(v)
		}
		if !ok || i == 0 && v.k != vStr {
			return tainted(args...)
		}
	}
	if len(parts) == 0 {
		return str("")
	}
	var b strings.Builder
	rest, next := parts[0], 1
	for {
		text, after, found := strings.Cut(rest, "%")
		b.WriteString(text)
		if !found {
			break
		}
		rest = after
		switch {
		case strings.HasPrefix(rest, "%"):
			b.WriteByte('%')
		case next < len(parts) && rest != "" && strings.Contains("jfoO", rest[:1]):
			return tainted(args...)
		case next < len(parts) && rest != "" && strings.Contains("sdi", rest[:1]):
			b.WriteString(parts[next])
			next++
		case next < len(parts) && strings.HasPrefix(rest, "c"):
			next++
		default:
			b.WriteByte('%')
			continue
		}
		rest = rest[1:]
	}
	for _, p := range parts[next:] {
		b.WriteString(" " + p)
	}
	if b.Len() > maxText {
		return tainted(args...)
	}
	return str(b.String()).with(args...)
}
