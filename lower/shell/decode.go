package shell

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// decoded applies a decoder to a text.
func decoded(in val, f func(string) (string, bool)) val {
	out := val{s: mDecoded, data: in.data, taint: in.taint | tDecoded}
	if in.known() && in.s != "" {
		if t, ok := f(in.s); ok {
			out.s = t
		}
	}
	return out
}

func decodeBase64(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == ' ' {
			return -1
		}
		return r
	}, s)
	for _, e := range [...]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(s); err == nil {
			return textOf(b)
		}
	}
	return "", false
}

func textOf(b []byte) (string, bool) {
	if !utf8.Valid(b) {
		return "", false
	}
	return cleanInput(string(b)), true
}

func decodeHex(s string) (string, bool) {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \n\r\t", r) {
			return -1
		}
		return r
	}, s)
	b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	if err != nil {
		return "", false
	}
	return textOf(b)
}

// handleDecode is base64, xxd, gunzip and their kin.
func handleDecode(w *walker, c *inv) {
	w.optionRoles(c)
	in := c.in
	fromFile := false
	ops := c.ops
	if c.name == "basenc" && len(ops) > 1 {
		ops = ops[:1]
	}
	for i, v := range ops {
		if v.s == "-" {
			continue
		}
		if c.name == "xxd" && i == 1 || c.name == "uudecode" && i == 1 {
			w.writes(v, "create")
			continue
		}
		w.reads(v)
		c.took(v)
		in = w.content(v)
		fromFile = true
	}
	dec := c.has("-d", "-D", "--decode", "-r", "--revert") || c.name == "gunzip" || c.name == "zcat" || c.name == "bunzip2" || c.name == "bzcat" ||
		c.name == "unxz" || c.name == "xzcat" || c.name == "unzstd" || c.name == "zstdcat" || c.name == "uudecode" || c.name == "lz4cat" || c.name == "unlzma" || c.name == "lzcat" || c.name == "uncompress"
	squeeze := strings.Contains("gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zstdcat lzma unlzma lzcat pigz lz4 lz4cat uncompress compress", c.name)
	if squeeze && fromFile && !strings.HasSuffix(c.name, "cat") && !c.has("-c", "--stdout", "--to-stdout", "-l", "-t") {
		for _, v := range c.ops {
			if !bare(v.s) {
				w.writes(v, "")
			}
		}
		c.print(val{})
		return
	}
	if !dec {
		if fromFile {
			c.print(val{s: mFile, data: union(c.out.data, in.data), taint: tFile})
			return
		}
		c.print(val{s: unknownOf(in.taint), data: in.data, taint: in.taint})
		if c.name == "base64" && in.known() && in.s != "" {
			c.print(val{s: base64.StdEncoding.EncodeToString([]byte(in.s)) + "\n", data: in.data})
		}
		return
	}
	f := func(string) (string, bool) { return "", false }
	switch c.name {
	case "base64":
		f = decodeBase64
	case "xxd":
		f = decodeHex
	case "basenc":
		if c.has("--base16") {
			f = decodeHex
		} else {
			f = decodeBase64
		}
	}
	out := decoded(in, f)
	if squeeze && (fromFile || strings.TrimSpace(in.s) == mFile) && in.taint&tNet == 0 && out.s == mDecoded {
		out.s = mFile // a file that was compressed: a log, a dump, an archive
	}
	out.data = union(out.data, c.out.data)
	c.print(out)
}

func handleRev(w *walker, c *inv) {
	in := c.in
	for _, v := range c.ops {
		w.reads(v)
		c.took(v)
		in = w.content(v)
	}
	c.print(decoded(in, func(s string) (string, bool) {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			r := []rune(l)
			for a, b := 0, len(r)-1; a < b; a, b = a+1, b-1 {
				r[a], r[b] = r[b], r[a]
			}
			lines[i] = string(r)
		}
		return strings.Join(lines, "\n"), true
	}))
}

// handleTr translates constants; deleting blanks or changing case is no
// decoding.
func handleTr(w *walker, c *inv) {
	if len(c.ops) == 0 {
		return
	}
	set1 := trSet(deactivate(c.ops[0].s))
	set2 := ""
	if len(c.ops) > 1 {
		set2 = trSet(deactivate(c.ops[1].s))
	}
	if c.has("-c", "-C", "--complement") || c.has("-s") && set2 == "" {
		if c.in.known() {
			c.print(val{s: unknownOf(c.in.taint), data: c.in.data, taint: c.in.taint})
			return
		}
		c.print(c.in)
		return
	}
	f := func(s string) (string, bool) { return trText(s, set1, set2, c.has("-d", "--delete")), true }
	cipher := len(set1) > 6 && set2 != "" && !sameLetters(set1, set2)
	if cipher {
		c.print(decoded(c.in, f))
		return
	}
	out := c.in
	if out.known() {
		out.s, _ = f(out.s)
	} else if out.s != "" && set1 != "\n" {
		if bare(strings.TrimSpace(out.s)) && !strings.Contains(out.s, mPath) {
			c.print(out)
			return
		}
	}
	c.print(out)
}

func sameLetters(a, b string) bool { return strings.EqualFold(a, b) || len([]rune(b)) == 1 }

func trSet(s string) string {
	s = unescape(s, true)
	for _, c := range classes {
		s = strings.ReplaceAll(s, c.name, c.set)
	}
	r := []rune(s)
	var out []rune
	for i := 0; i < len(r); i++ {
		if i+2 < len(r) && r[i+1] == '-' && r[i] <= r[i+2] && r[i+2]-r[i] < 256 {
			for x := r[i]; x <= r[i+2]; x++ {
				out = append(out, x)
			}
			i += 2
			continue
		}
		if r[i] != '[' && r[i] != ']' {
			out = append(out, r[i])
		}
	}
	return string(out)
}

func trText(s, set1, set2 string, del bool) string {
	a, b := []rune(set1), []rune(set2)
	m := make(map[rune]rune, len(a))
	for i, r := range a {
		if del || len(b) == 0 {
			m[r] = -1
		} else {
			m[r] = b[min(i, len(b)-1)]
		}
	}
	return strings.Map(func(r rune) rune {
		if t, ok := m[r]; ok {
			return t
		}
		return r
	}, s)
}

func handleHead(w *walker, c *inv) {
	w.optionRoles(c)
	var out val
	out = c.in
	if len(c.ops) > 0 {
		out = val{}
	}
	for _, v := range c.ops {
		w.reads(v)
		c.took(v)
		out = join(out, w.content(v))
	}
	n, hasN := c.get("-n")
	if !hasN && len(c.opts) > 0 && isDigits(strings.TrimPrefix(c.opts[0].name, "-")) {
		n, hasN = val{s: c.opts[0].name[1:]}, true
	}
	if c.name == "head" && out.known() && hasN && n.s == "1" {
		line, _, _ := strings.Cut(out.s, "\n")
		out.s = line + "\n"
	}
	if c.name == "tail" && out.known() && hasN && n.s == "1" {
		t := strings.TrimRight(out.s, "\n")
		out.s = t[strings.LastIndexByte(t, '\n')+1:] + "\n"
	}
	c.print(out)
}
