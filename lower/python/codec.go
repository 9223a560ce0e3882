package python

import (
	"bytes"
	"compress/bzip2"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/ascii85"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"net/url"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon/lower/python/syntax"
)

// maxInflated bounds what a decompressor may give.
const maxInflated = 256 << 10

func hexText(s string) string { return hex.EncodeToString([]byte(s)) }

// decoders turn the text of their first argument into bytes; what they are
// given and cannot be told stays marked as decoded.
var decoders = sync.OnceValue(func() map[string]func(s string) (string, bool) {
	return map[string]func(s string) (string, bool){
		"base64.b64decode": base64Text, "base64.standard_b64decode": base64Text, "base64.urlsafe_b64decode": base64Text,
		"base64.decodebytes": base64Text, "base64.decodestring": base64Text, "binascii.a2b_base64": base64Text,
		"base64.b32decode": func(s string) (string, bool) {
			b, err := base32.StdEncoding.DecodeString(strings.ToUpper(s))
			return string(b), err == nil
		},
		"base64.b32hexdecode": func(s string) (string, bool) {
			b, err := base32.HexEncoding.DecodeString(strings.ToUpper(s))
			return string(b), err == nil
		},
		"base64.b16decode": unhex, "binascii.unhexlify": unhex, "binascii.a2b_hex": unhex,
		"base64.a85decode": func(s string) (string, bool) {
			s = strings.TrimSuffix(strings.TrimPrefix(s, "<~"), "~>")
			b := make([]byte, 4*len(s)+4)
			n, _, err := ascii85.Decode(b, []byte(s), true)
			return string(b[:max(n, 0)]), err == nil
		},
		"base64.b85decode": base85,
		"zlib.decompress":  inflate, "gzip.decompress": inflate, "bz2.decompress": inflate,
		"lzma.decompress": func(string) (string, bool) { return "", false },
		"urllib.parse.unquote": func(s string) (string, bool) {
			t, err := url.PathUnescape(s)
			return t, err == nil
		},
		"urllib.parse.unquote_plus": func(s string) (string, bool) {
			t, err := url.QueryUnescape(s)
			return t, err == nil
		},
		"urllib.parse.unquote_to_bytes": func(s string) (string, bool) {
			t, err := url.PathUnescape(s)
			return t, err == nil
		},
		"html.unescape":          func(s string) (string, bool) { return html.UnescapeString(s), true },
		"quopri.decodestring":    func(string) (string, bool) { return "", false },
		"binascii.a2b_uu":        func(string) (string, bool) { return "", false },
		"binascii.a2b_qp":        func(string) (string, bool) { return "", false },
		"binascii.rledecode_hqx": func(string) (string, bool) { return "", false },
	}
})

func base64Text(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '-':
			return '+'
		case r == '_':
			return '/'
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '+', r == '/':
			return r
		}
		return -1 // padding, and what the decoder skips
	}, s)
	b, err := base64.RawStdEncoding.DecodeString(s)
	return string(b), err == nil
}

func unhex(s string) (string, bool) {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	return string(b), err == nil
}

func base85(s string) (string, bool) {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
	pad := (5 - len(s)%5) % 5
	s += strings.Repeat("~", pad)
	var out []byte
	for i := 0; i < len(s); i += 5 {
		var n uint64
		for j := range 5 {
			d := strings.IndexByte(digits, s[i+j])
			if d < 0 {
				return "", false
			}
			n = n*85 + uint64(d)
		}
		out = append(out, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return string(out[:len(out)-min(pad, len(out))]), true
}

// inflate tries the formats that the compressing modules write.
func inflate(s string) (string, bool) {
	readers := []func(io.Reader) (io.Reader, error){
		func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
		func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		func(r io.Reader) (io.Reader, error) {
			if !strings.HasPrefix(s, "BZh") {
				return nil, io.ErrUnexpectedEOF
			}
			return bzip2.NewReader(r), nil
		},
		func(r io.Reader) (io.Reader, error) { return flate.NewReader(r), nil },
	}
	for _, open := range readers {
		r, err := open(strings.NewReader(s))
		if err != nil {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
		if err == nil && len(b) <= maxInflated {
			return string(b), true
		}
	}
	return "", false
}

func codecName(s string) string {
	b := make([]byte, 0, 24)
	for i := 0; i < len(s) && i < 24; i++ {
		switch c := s[i]; {
		case c >= 'A' && c <= 'Z':
			b = append(b, c|0x20)
		case c != '-' && c != '_' && c != ' ':
			b = append(b, c)
		}
	}
	return string(b)
}

// decodeWith is bytes.decode(codec) or codecs.decode(x, codec). plain says
// that the codec is an ordinary one, for text.
func decodeWith(s, codec string) (out string, isBytes, plain, ok bool) {
	switch codecName(codec) {
	case "utf8", "utf8sig", "ascii", "usascii", "u8", "646":
		return strings.TrimPrefix(strings.ToValidUTF8(s, "\ufffd"), "\ufeff"), false, true, true
	case "latin1", "iso88591", "l1", "cp1252", "charmap":
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			b.WriteRune(rune(s[i]))
		}
		return b.String(), false, true, true
	case "utf16", "utf16le", "utf16be":
		return utf16Text(s, codecName(codec)), false, false, true
	case "utf32", "utf32le", "utf32be", "utf7", "punycode", "idna":
		return "", false, false, false
	case "rot13":
		return rot13(s), false, false, true
	case "hex", "hexcodec":
		t, ok := unhex(s)
		return t, true, false, ok
	case "base64", "base64codec":
		t, ok := base64Text(s)
		return t, true, false, ok
	case "zlib", "zip", "zlibcodec", "bz2", "bz2codec":
		t, ok := inflate(s)
		return t, true, false, ok
	case "unicodeescape", "rawunicodeescape", "escape":
		t, ok := escapes(s)
		return t, false, false, ok
	}
	return "", false, false, false
}

func rot13(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		}
		return r
	}, s)
}

func utf16Text(s, codec string) string {
	big := codec == "utf16be"
	if codec == "utf16" {
		if strings.HasPrefix(s, "\xfe\xff") {
			big = true
		}
		s = strings.TrimPrefix(strings.TrimPrefix(s, "\xfe\xff"), "\xff\xfe")
	}
	u := make([]uint16, 0, len(s)/2)
	for i := 0; i+1 < len(s); i += 2 {
		if big {
			u = append(u, uint16(s[i])<<8|uint16(s[i+1]))
		} else {
			u = append(u, uint16(s[i+1])<<8|uint16(s[i]))
		}
	}
	return string(utf16.Decode(u))
}

// escapes resolves backslash escapes at run time.
func escapes(s string) (string, bool) {
	if len(s) > maxText || strings.ContainsAny(s, "\"\n") {
		return "", false
	}
	x, ok := syntax.ParseExpr(`"` + s + `"`)
	lit, isText := x.(*syntax.Str)
	if !ok || !isText {
		return "", false
	}
	return lit.S, true
}

func decodeBytes(v value, c *call) (set, bool) {
	codec, ok := c.text(0, "encoding")
	if !ok {
		if _, given := c.arg(0, "encoding"); given {
			return set{}, false
		}
		codec = "utf-8"
	}
	if v.k != vBytes {
		return one(v), false
	}
	return decodedText(v.s, codec)
}

func decodedText(s, codec string) (set, bool) {
	t, isBytes, plain, ok := decodeWith(s, codec)
	if !ok {
		return set{unk: true, t: decoded | packed}, true
	}
	out := str(t)
	if isBytes {
		out = one(value{k: vBytes, s: t})
	}
	if !plain {
		out.t |= decoded
	}
	return out, true
}

func encodeText(v value, c *call) (set, bool) {
	codec, ok := c.text(0, "encoding")
	if !ok {
		if _, given := c.arg(0, "encoding"); given {
			return set{}, false
		}
		codec = "utf-8"
	}
	if hasHole(v.s) {
		return one(v), true // a path that is partly known stays one
	}
	switch codecName(codec) {
	case "utf8", "ascii", "usascii", "utf8sig":
		return one(value{k: vBytes, s: v.s}), true
	case "latin1", "iso88591", "l1", "charmap", "cp1252":
		b := make([]byte, 0, len(v.s))
		for _, r := range v.s {
			if r > 255 {
				return set{}, false
			}
			b = append(b, byte(r))
		}
		return one(value{k: vBytes, s: string(b)}), true
	case "utf16le", "utf16be", "utf16":
		var b bytes.Buffer
		if codecName(codec) == "utf16" {
			b.WriteString("\xff\xfe")
		}
		for _, u := range utf16.Encode([]rune(v.s)) {
			if codecName(codec) == "utf16be" {
				b.Write([]byte{byte(u >> 8), byte(u)})
			} else {
				b.Write([]byte{byte(u), byte(u >> 8)})
			}
		}
		return one(value{k: vBytes, s: b.String()}), true
	}
	return set{unk: true, t: decoded}, true
}

func fromHex(c *call) (set, bool) {
	s, ok := c.text(0)
	if !ok {
		return set{unk: true, t: decoded}.with(c.args...), true
	}
	b, ok := unhex(s)
	if !ok {
		return set{}, false
	}
	return one(value{k: vBytes, s: b}).with(set{t: decoded}), true
}

// decode runs a decoder of the table on its first argument.
func decode(f func(string) (string, bool), name string, c *call) (set, bool) {
	s, ok := c.arg(0, "s", "data", "string")
	if !ok {
		return set{}, false
	}
	out, ok := product([]set{s}, func(v []value) (value, bool) {
		if v[0].k != vStr && v[0].k != vBytes || v[0].s == hole || len(v[0].s) > maxInflated {
			return value{}, false
		}
		t, ok := f(v[0].s)
		if ok && strings.HasPrefix(name, "urllib") || strings.HasPrefix(name, "html") {
			return value{k: vStr, s: strings.ToValidUTF8(t, "\ufffd")}, ok
		}
		return value{k: vBytes, s: t}, ok
	})
	if !ok {
		out = tainted(s)
		if strings.HasPrefix(name, "urllib") || strings.HasPrefix(name, "html") {
			return out, true // every program with URLs does that
		}
	}
	out.t |= decoded | packed
	return out, true
}

func encode(name string, c *call) (set, bool) {
	s, ok := c.text(0)
	if !ok {
		return set{}, false
	}
	var t string
	switch name {
	case "base64.b64encode", "base64.standard_b64encode", "binascii.b2a_base64", "base64.encodebytes":
		t = base64.StdEncoding.EncodeToString([]byte(s))
	case "base64.urlsafe_b64encode":
		t = base64.URLEncoding.EncodeToString([]byte(s))
	case "base64.b32encode":
		t = base32.StdEncoding.EncodeToString([]byte(s))
	case "binascii.hexlify", "base64.b16encode":
		t = hexText(s)
	default:
		return set{}, false
	}
	return one(value{k: vBytes, s: t}), utf8.ValidString(t)
}
