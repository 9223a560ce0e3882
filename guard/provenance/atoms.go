package provenance

import (
	"bytes"
)

// atoms takes the identifiers out of folded text: what stands between blanks,
// quotes and brackets, and its parts.
func (d *digester) atoms(f []byte) {
	d.spell.reset()
	var before byte = '\n' // the last separator
	lineStart := true      // only separators since the line began
	idNext := false
	for i := 0; i < len(f); {
		if class[f[i]]&clAtom == 0 {
			before = f[i]
			if before == '\n' {
				lineStart = true
			}
			i++
			continue
		}
		start := i
		var flags uint8
		for i < len(f) && (class[f[i]]&clAtom != 0 || f[i] == ',' && commaInNumber(f, i)) {
			flags |= class[f[i]]
			i++
		}
		a := f[start:i]
		if flags&^(clLetter|clHigh) == 0 {
			// The common case, a word.
			if len(a) >= minWord && len(a) <= maxIdent {
				d.wordIdent(a)
			}
			d.spell.plain(d, a)
			if idNext {
				d.ident(idField, a)
			}
			idNext = idKey(a)
		} else {
			next := byte('\n')
			if i < len(f) {
				next = f[i]
			}
			alone := idNext || lineStart && next == '\n' || before == '"' && next == '"'
			idNext = d.atom(a, flags, alone)
		}
		lineStart = false
	}
	d.spell.flush(d)
}

// commaInNumber reports a comma between two digits.
func commaInNumber(f []byte, i int) bool {
	return i > 0 && i+1 < len(f) && class[f[i-1]]&clDigit != 0 && class[f[i+1]]&clDigit != 0
}

const minWord = 3

// idKey reports a word that names an identifier: "id", "message_id", "uuid:".
func idKey(a []byte) bool {
	for len(a) > 0 && (a[len(a)-1] == ':' || a[len(a)-1] == '=') {
		a = a[:len(a)-1]
	}
	if len(a) < 2 || len(a) > 40 {
		return false
	}
	switch a[len(a)-1] {
	case 'd':
		return a[len(a)-2] == 'i'
	case 'a':
		return bytes.HasSuffix(a, []byte("sha"))
	case 'r':
		return bytes.HasSuffix(a, []byte("number"))
	}
	return false
}

// trimAtom cuts off what belongs to the sentence, not to the identifier.
func trimAtom(a []byte) []byte {
	for len(a) > 0 && edge[a[len(a)-1]]&1 != 0 {
		a = a[:len(a)-1]
	}
	for len(a) > 0 && edge[a[0]]&2 != 0 {
		if a[0] == '.' && len(a) > 1 && (a[1] == '/' || class[a[1]]&clSymbol != 0 || a[1] == '.' && len(a) > 2 && a[2] == '/') {
			break // ./path, .file, ../path
		}
		a = a[1:]
	}
	return a
}

// edge: 1 is cut off at the end of a word, 2 at its beginning.
var edge = func() (t [256]uint8) {
	for _, c := range ".:!?*_~^&=%$+#-" {
		t[c] |= 1
	}
	for _, c := range ".:!?*_~^&=%+" {
		t[c] |= 2
	}
	return t
}()

// atom records a word with digits or marks in it, and its parts. It reports
// whether an identifier is to follow.
func (d *digester) atom(a []byte, flags uint8, alone bool) (idNext bool) {
	idNext = idKey(a) && flags&(clMark|clDigit) != 0
	if len(a) > maxIdent {
		// Too long for one identifier: its parts are those of a text.
		d.parts(a)
		d.spell.flush(d)
		return false
	}
	raw := a
	a = trimAtom(a)
	if len(a) == 0 {
		d.spell.mark(d, raw)
		return idNext
	}
	if len(a) >= 2 {
		d.ident(idToken, a)
		if len(raw) > len(a) && len(raw) >= 2 {
			d.ident(idToken, raw)
		}
	}
	if alone && len(a) >= 2 {
		d.ident(idField, a)
	}
	if flags&(clMark|clAt|clSlash|clDot) != 0 {
		d.parts(a)
		d.compound(a, flags)
	}
	if flags&clDigit != 0 {
		d.number(a)
	}
	if flags&(clMark|clSlash|clAt) == 0 || len(raw) > len(a) && symbolsOnly(a) {
		d.spell.word(d, a)
	} else {
		d.spell.address(d, a, flags)
	}
	return idNext
}

// parts records the words of an identifier.
func (d *digester) parts(a []byte) {
	for i := 0; i < len(a); {
		if class[a[i]]&clSymbol == 0 {
			i++
			continue
		}
		start := i
		for i < len(a) && class[a[i]]&clSymbol != 0 {
			i++
		}
		if i-start >= minWord && i-start < len(a) && i-start <= maxIdent {
			d.wordIdent(a[start:i])
		}
	}
}

func symbolsOnly(a []byte) bool {
	for _, c := range a {
		if class[c]&clSymbol == 0 {
			return false
		}
	}
	return true
}

// pieces records what stands between the joints of a path, an address or a
// list of options.
func (d *digester) pieces(a []byte) {
	marked, start := false, 0
	for i := 0; i <= len(a); i++ {
		if i < len(a) && !joint[a[i]] {
			marked = marked || class[a[i]]&clSymbol == 0
			continue
		}
		// One without marks is recorded as a word.
		if i-start >= minWord && i-start < len(a) && marked {
			d.wordIdent(a[start:i])
		}
		marked, start = false, i+1
	}
}

var joint = [256]bool{'/': true, ':': true, '=': true, '?': true, '&': true, '#': true, '@': true}

// compound records what an address consists of.
func (d *digester) compound(a []byte, flags uint8) {
	d.pieces(a)
	if c := a[0]; (c == '#' || c == '@' || c == '~') && len(a) > 2 {
		d.ident(idToken, a[1:])
	}
	if k := bytes.IndexByte(a, '='); k > 0 && k < len(a)-2 {
		d.value(a[k+1:])
	} else if k := bytes.IndexByte(a, ':'); k > 0 && k < len(a)-2 && !bytes.HasPrefix(a[k:], []byte("://")) {
		d.value(a[k+1:])
	}
	if flags&clDot != 0 || flags&clSlash != 0 {
		if host, url := d.splitURL(a); host != nil {
			d.ident(idHost, host)
			d.ident(idURL, url)
			if cut := bytes.IndexByte(url, '?'); cut > 0 {
				d.ident(idURL, bytes.TrimRight(url[:cut], "/"))
			}
		}
	}
	if flags&clSlash != 0 {
		if p := trimPath(a); len(p) > 1 && len(p) < len(a) {
			d.ident(idToken, p)
		}
	}
}

// value records what follows a key and its colon or equals sign.
func (d *digester) value(v []byte) {
	v = trimAtom(v)
	if len(v) < 2 {
		return
	}
	d.ident(idToken, v)
	if bytes.ContainsAny(v, "./") {
		if host, url := d.splitURL(v); host != nil {
			d.ident(idHost, host)
			d.ident(idURL, url)
		}
	}
}

func trimPath(p []byte) []byte {
	for bytes.HasPrefix(p, []byte("./")) {
		p = p[2:]
	}
	for len(p) > 1 && p[len(p)-1] == '/' {
		p = p[:len(p)-1]
	}
	return p
}

// splitURL finds the host of an address in folded text, and the address
// without scheme, user, port and fragment; nil where there is no host.
func splitURL(a []byte) (host, url []byte) { return appendURL(nil, a) }

// splitURL is splitURL in memory that the next one takes.
func (d *digester) splitURL(a []byte) (host, url []byte) {
	host, url = appendURL(d.url[:0], a)
	if url != nil {
		d.url = url
	}
	return host, url
}

func appendURL(dst, a []byte) (host, url []byte) {
	scheme := false
	if i := bytes.Index(a, []byte("://")); i >= 0 {
		a, scheme = a[i+3:], true
	} else if bytes.HasPrefix(a, []byte("//")) {
		a, scheme = a[2:], true
	} else if bytes.HasPrefix(a, []byte("mailto:")) {
		a = a[len("mailto:"):]
	}
	end := 0
	for end < len(a) && a[end] != '/' && a[end] != '?' && a[end] != '#' {
		end++
	}
	host = a[:end]
	if i := bytes.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	after := a[end:]
	if i := bytes.IndexByte(host, ':'); i >= 0 {
		if !scheme && end == len(a) && !digits(host[i+1:]) { // git@host:path
			after = append([]byte{'/'}, host[i+1:]...)
		}
		host = host[:i]
	}
	for len(host) > 0 && host[len(host)-1] == '.' {
		host = host[:len(host)-1]
	}
	if !hostLike(host) && !(scheme && len(host) > 0) {
		return nil, nil
	}
	if i := bytes.IndexByte(after, '#'); i >= 0 {
		after = after[:i]
	}
	for len(after) > 0 && after[len(after)-1] == '/' {
		after = after[:len(after)-1]
	}
	return host, append(append(dst, host...), after...)
}

func digits(b []byte) bool {
	for _, c := range b {
		if class[c]&clDigit == 0 {
			return false
		}
	}
	return len(b) > 0
}

// hostLike reports a dotted name whose last label is a word, or an address of
// four numbers.
func hostLike(h []byte) bool {
	last := bytes.LastIndexByte(h, '.')
	if last <= 0 || len(h)-last < 2 || len(h) > 253 {
		return false
	}
	letters, dots := false, 0
	for i, c := range h {
		switch cl := class[c]; {
		case cl&clDot != 0:
			dots++
		case cl&(clLetter|clHigh) != 0:
			letters = letters || i > last
		case cl&clDigit != 0, c == '-', c == '_':
		default:
			return false
		}
	}
	if letters {
		return len(h)-last > 2
	}
	return dots == 3 && digits(h[last+1:])
}

// number records the letters and digits of a word with digits: an account
// number or a sum, however it is grouped.
func (d *digester) number(a []byte) {
	n := appendNumber(d.joined[:0], a)
	d.joined = n
	if len(n) >= 2 {
		d.ident(idNumber, n)
	}
}

// appendNumber appends the form in which numbers are compared: letters and
// digits, a decimal point, no zeros after it. A comma before one or two last
// digits is a decimal point.
func appendNumber(dst, a []byte) []byte {
	start := len(dst)
	comma := bytes.LastIndexByte(a, ',')
	if n := len(a) - comma - 1; comma < 0 || n < 1 || n > 2 || !digits(a[comma+1:]) {
		comma = -1
	}
	point := false
	for i, c := range a {
		switch {
		case class[c]&(clLetter|clDigit) != 0:
			dst = append(dst, c)
		case i == comma, c == '.' && comma < 0 && i > 0 && i+1 < len(a) && class[a[i-1]]&clDigit != 0 && class[a[i+1]]&clDigit != 0:
			point = true
			dst = append(dst, '.')
		}
	}
	if point {
		for len(dst) > start && dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
		if len(dst) > start && dst[len(dst)-1] == '.' {
			dst = dst[:len(dst)-1]
		}
	}
	return dst
}
