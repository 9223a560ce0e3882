package provenance

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"
	"golang.org/x/text/unicode/norm"
)

// ValueKind is what a value is to the call that has it.
type ValueKind uint8

const (
	// Text is prose, code or a command: matched by passages and lines.
	Text ValueKind = iota
	// Party is a recipient, an account, a channel, a name.
	Party
	// Host is a host, with or without a port.
	Host
	// Address is a URL: its host and its path count.
	Address
	// Path is a path.
	Path
	// Amount is a number.
	Amount
	// Reference is an identifier that a tool gave out, such as a message ID.
	Reference
)

// Taint is where a value came from.
type Taint struct {
	// Chunks are the untrusted texts that hold it or a part of it, at most 8.
	// The latest is named where several hold the same.
	Chunks []Source
	// Share is how much of it they supplied, 0 to 1, Trusted how much of it
	// the user's or the system's text holds.
	Share, Trusted float64
	// Clean: trusted text holds it too, or it says nothing (see Trivial).
	Clean bool
	// Trivial: it is too short or too common to come from anywhere.
	Trivial bool
	// Field: an untrusted text holds it as a value of its own (alone on its
	// line, in its quotes, or after "id:"), as tools give out identifiers.
	Field bool
	// Part: only a part of it, or another form of it, was found: the host of
	// an address, a parent of a host, an encoded form.
	Part bool
	// Disguised: trusted text holds what it looks like, but not with the
	// characters beyond ASCII that it has. It is not clean.
	Disguised bool
	// Forgotten: it stood in text of which only identifiers are still known.
	Forgotten bool
}

// minShare is how much of a text must have been found to count as taken over.
const minShare = 0.4

// unseenEnds is how much of a passage that was taken over whole may not be
// found: up to a window at each end. Of a short one that is most.
const unseenEnds = 2 * (window - 1)

// Only reports a value that untrusted text supplied and trusted text did not.
func (t *Taint) Only() bool { return !t.Clean && t.Share >= minShare }

// Unknown reports a value that neither holds.
func (t *Taint) Unknown() bool { return !t.Clean && t.Share < minShare }

// maxMatch is how much of a value is looked at.
const maxMatch = 64 << 10

// Match says where a value came from. Values are compared without regard to
// case, look-alike and invisible characters, white space, and percent, entity
// and backslash escapes; base64, base32 and hexadecimal are read in texts and
// in the value, ROT13 and reversed text in the value. Other ciphers, base85,
// Morse, numbers as words, acrostics and translations are not read: such a
// value is Unknown.
func (ix *Index) Match(value string, kind ValueKind) (t Taint) {
	value = strings.TrimSpace(value)
	if len(value) > maxMatch {
		value = value[:maxMatch]
	}
	var buf [512]byte
	f := bytes.TrimSpace(foldText(buf[:0], value))
	if t.Trivial = trivial(f, kind); t.Trivial {
		t.Clean = true
		return t
	}
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	q := query{ix: ix, t: &t}
	switch kind {
	case Text:
		q.text(f)
	case Host, Address:
		q.address(f, kind)
	case Amount:
		q.amount(f)
	default:
		q.party(f)
	}
	if t.Clean && kind != Text && kind != Amount && beyondASCII(value) && !q.saidSo(value) {
		t.Clean, t.Trusted, t.Disguised = false, 0, true
	}
	if !t.Clean && t.Share == 0 && kind != Text {
		q.variants(value, kind)
	}
	return t
}

func beyondASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return true
		}
	}
	return false
}

// saidSo reports a value each of whose words with characters beyond ASCII
// stands so in trusted text.
func (q *query) saidSo(value string) bool {
	for w := range strings.FieldsSeq(value) {
		if !beyondASCII(w) {
			continue
		}
		if ok, _, _ := q.probe(idSpelling, spelling(w)); !ok {
			return false
		}
	}
	return true
}

// spelling is a word as it was written, but for case and what surrounds it.
func spelling(w string) []byte {
	return []byte(strings.Trim(strings.ToLower(norm.NFC.String(w)), ".,;:!?\"'()[]{}<>`„“”«»…"))
}

// trivial reports a value that could come from anywhere.
func trivial(f []byte, kind ValueKind) bool {
	n := 0
	for _, c := range f {
		if class[c]&clSymbol != 0 {
			n++
		}
	}
	switch kind {
	case Amount:
		v := appendNumber(nil, f)
		return len(bytes.ReplaceAll(v, []byte("."), nil)) < 3
	case Text:
		return n < gramLen
	case Path:
		return n < 3 || slices.Contains(commonPaths, string(trimPath(f)))
	case Party:
		return n < 3 || slices.Contains(commonWords[:8], string(f))
	case Reference:
		return n < 3 || slices.Contains(commonWords, string(f))
	}
	return n < 3
}

// commonWords are values that stand in any text; the first eight name nobody.
var commonWords = []string{"true", "false", "null", "none", "default", "self", "yes", "me", "main", "master", "origin", "head", "user", "all", "any", "other", "public", "private", "unknown"}

// commonPaths are what builds make and clean.
var commonPaths = []string{"build", "dist", "out", "target", "bin", "obj", "node_modules", ".cache", "coverage", "__pycache__", ".pytest_cache", ".mypy_cache", "vendor", "tmp", "temp", ".next", ".nuxt", ".tox", ".venv", "venv", "htmlcov", ".turbo", ".gradle", ".parcel-cache", "cmake-build-debug"}

type query struct {
	ix *Index
	t  *Taint
}

// probe looks an identifier up; untrusted is the chunk, forgotten that it was
// in one that is no longer known.
func (q *query) probe(domain byte, b []byte) (trusted bool, ord uint32, forgotten bool) {
	m := markOf(q.ix.hasher.bytes(domain, b))
	trusted = q.ix.trusted.get(m) != 0
	if ord = q.ix.idents.get(m); ord == 0 && len(q.ix.forgotten) > 0 {
		forgotten = q.ix.wasForgotten(m)
	}
	return trusted, ord, forgotten
}

// hit notes that untrusted text holds share of the value.
func (q *query) hit(ord uint32, forgotten bool, share float64) bool {
	if ord == 0 && !forgotten {
		return false
	}
	q.t.Share = max(q.t.Share, share)
	if ord != 0 {
		q.t.Chunks = addSource(q.t.Chunks, q.ix.source(ord))
	} else {
		q.t.Forgotten = true
	}
	return true
}

// exact looks up an identifier as a whole.
func (q *query) exact(domain byte, b []byte) bool {
	if len(b) < 2 {
		return false
	}
	trusted, ord, forgotten := q.probe(domain, b)
	if trusted {
		q.t.Clean, q.t.Trusted = true, 1
	}
	return q.hit(ord, forgotten, 1) || trusted
}

// party looks for a name, an e-mail address, an account, a path.
func (q *query) party(f []byte) {
	if a := angled(f); a != nil {
		f = a // Anna <anna@corp.example>
	}
	if bytes.IndexByte(f, ' ') < 0 && bytes.IndexByte(f, '\n') < 0 {
		q.word(f)
		return
	}
	if digit(f) {
		q.exact(idNumber, appendNumber(nil, bytes.ReplaceAll(f, []byte(" "), nil)))
	}
	line := symbols(f)
	if len(line) >= minLine {
		q.exact(idLine, line)
	}
	if q.t.Clean {
		return
	}
	total, trusted, tainted := 0, 0, 0
	for w := range bytes.FieldsSeq(f) {
		if w = trimAtom(w); len(w) < minWord {
			continue
		}
		total++
		ok, ord, forgotten := q.probe(idToken, w)
		if ok {
			trusted++
		}
		if ord != 0 || forgotten {
			tainted++
			if !ok {
				q.hit(ord, forgotten, 0)
			}
		}
	}
	if total == 0 {
		return
	}
	q.t.Trusted = float64(trusted) / float64(total)
	q.t.Clean = trusted == total
	q.t.Share = max(q.t.Share, float64(tainted)/float64(total))
}

func digit(f []byte) bool {
	for _, c := range f {
		if class[c]&clDigit != 0 {
			return true
		}
	}
	return false
}

func symbols(f []byte) []byte {
	out := make([]byte, 0, len(f))
	for _, c := range f {
		if class[c]&clSymbol != 0 {
			out = append(out, c)
		}
	}
	return out
}

// angled is the address between angle brackets after a name.
func angled(f []byte) []byte {
	i, j := bytes.LastIndexByte(f, '<'), bytes.LastIndexByte(f, '>')
	if i >= 0 && j > i+1 {
		return bytes.TrimSpace(f[i+1 : j])
	}
	return nil
}

// word looks up one word with all its forms. Trusted text must hold it whole.
func (q *query) word(f []byte) {
	f = bytes.TrimPrefix(f, []byte("mailto:"))
	found := q.exact(idToken, f)
	if a := trimAtom(f); len(a) != len(f) {
		found = q.exact(idToken, a) || found
	}
	if c := f[0]; (c == '#' || c == '@') && len(f) > 2 {
		found = q.exact(idToken, f[1:]) || found
	}
	if p := trimPath(f); len(p) != len(f) {
		found = q.exact(idToken, p) || found
	}
	if digit(f) {
		if n := appendNumber(nil, f); len(n) >= 5 {
			found = q.exact(idNumber, n) || found
		}
	}
	_, ord, _ := q.probe(idField, f)
	q.t.Field = ord != 0
	if !found && bytes.ContainsAny(f, ".@") && bytes.IndexByte(f, '/') < 0 {
		q.hostOf(f)
	}
}

// hostOf looks whether at least the host of an address is known from
// untrusted text, and not from trusted text.
func (q *query) hostOf(f []byte) {
	host, _ := splitURL(f)
	if host == nil || q.hostTrusted(host) {
		return
	}
	if q.untrustedHost(host) {
		q.t.Part = true
	}
}

func (q *query) untrustedHost(host []byte) bool {
	for h := host; h != nil; h = parent(h) {
		if _, ord, forgotten := q.probe(idHost, h); q.hit(ord, forgotten, 1) {
			q.t.Part = q.t.Part || len(h) != len(host)
			return true
		}
	}
	return false
}

// hostTrusted reports a host that trusted text names, or a host below one.
func (q *query) hostTrusted(host []byte) bool {
	for h := host; h != nil; h = parent(h) {
		if trusted, _, _ := q.probe(idHost, h); trusted {
			return true
		}
	}
	return false
}

// parent is the domain above, down to those that are registered; nil above.
func parent(h []byte) []byte {
	i := bytes.IndexByte(h, '.')
	if i < 0 || digits(h[bytes.LastIndexByte(h, '.')+1:]) {
		return nil
	}
	up := h[i+1:]
	if bytes.IndexByte(up, '.') < 0 {
		return nil
	}
	if suffix, _ := publicsuffix.PublicSuffix(string(up)); suffix == string(up) {
		return nil
	}
	return up
}

// address looks for a host, and for a URL below it.
func (q *query) address(f []byte, kind ValueKind) {
	host, url := splitURL(f)
	if host == nil {
		q.word(f)
		return
	}
	if kind == Host {
		if q.hostTrusted(host) {
			q.t.Clean, q.t.Trusted = true, 1
		}
		q.untrustedHost(host)
		return
	}
	q.t.Clean = q.urlTrusted(url, host)
	if q.t.Clean {
		q.t.Trusted = 1
	}
	_, ord, forgotten := q.probe(idURL, url)
	if !q.hit(ord, forgotten, 1) {
		if cut := bytes.IndexByte(url, '?'); cut > 0 {
			_, ord, forgotten = q.probe(idURL, bytes.TrimRight(url[:cut], "/"))
			q.t.Part = q.hit(ord, forgotten, 1)
		}
	}
	if q.t.Share == 0 && !q.hostTrusted(host) && q.untrustedHost(host) {
		q.t.Part = true
	}
}

// urlTrusted reports a URL that trusted text names, or that is below one it
// names; a host alone names all below it unless strangers share it.
func (q *query) urlTrusted(url, host []byte) bool {
	if cut := bytes.IndexByte(url, '?'); cut > 0 {
		if ok, _, _ := q.probe(idURL, url); ok {
			return true
		}
		url = url[:cut]
	}
	for n := 0; len(url) > len(host) && n < 64; n++ {
		if ok, _, _ := q.probe(idURL, url); ok {
			return true
		}
		cut := bytes.LastIndexByte(url, '/')
		if cut < len(host) {
			break
		}
		url = url[:cut]
	}
	return !sharedHost(host) && q.hostTrusted(host)
}

// sharedHost reports a host where anybody can have a place of their own.
func sharedHost(host []byte) bool {
	h := string(host)
	for _, s := range [...]string{"github.com", "gitlab.com", "bitbucket.org", "codeberg.org", "githubusercontent.com", "pastebin.com", "google.com", "googleapis.com", "amazonaws.com", "slack.com", "discord.com", "telegram.org", "huggingface.co", "dropbox.com", "notion.so", "azure.com", "windows.net", "cloudflarestorage.com", "transfer.sh", "gitea.com", "sr.ht", "pypi.org", "docker.io"} {
		if h == s || strings.HasSuffix(h, "."+s) {
			return true
		}
	}
	return false
}

func (q *query) amount(f []byte) {
	n := appendNumber(nil, f)
	q.exact(idNumber, n)
	q.exact(idToken, f)
}

// text looks for passages and for lines as a whole.
func (q *query) text(f []byte) {
	s := symbols(f)
	total := len(s)
	if total >= minLine && total <= maxLine {
		q.exact(idLine, s)
	}
	var cover, trusted coverage
	var old, recent uint64
	for i, c := range s {
		old, recent = old<<8|recent>>56, recent<<8|uint64(c)
		if i < gramLen-1 {
			continue
		}
		m := gramMarkOf(q.ix.gram(old, recent))
		if ord := q.ix.grams.get(m); ord != 0 {
			cover.add(i)
			q.t.Chunks = addSource(q.t.Chunks, q.ix.source(ord))
		}
		if q.ix.trustedGrams.n > 0 && q.ix.trustedGrams.get(m) != 0 {
			trusted.add(i)
		}
	}
	q.t.Share = max(q.t.Share, cover.share(total))
	if cover.n > 0 && cover.n >= total-unseenEnds {
		q.t.Share = max(q.t.Share, minShare)
	}
	q.t.Trusted = max(q.t.Trusted, trusted.share(total))
	q.lines(f, total)
	// Trusted text must hold nearly all of what untrusted text holds, or a
	// quotation of it would clear what stands beside it.
	q.t.Clean = q.t.Clean || q.t.Trusted >= minShare && q.t.Trusted >= q.t.Share-0.05
}

// lines looks up each line of a text of several.
func (q *query) lines(f []byte, total int) {
	if bytes.IndexByte(f, '\n') < 0 {
		return
	}
	found, said := 0, 0
	for line := range bytes.SplitSeq(f, []byte{'\n'}) {
		s := symbols(line)
		if len(s) < minLine || len(s) > maxLine {
			continue
		}
		trusted, ord, forgotten := q.probe(idLine, s)
		if trusted {
			said += len(s)
		}
		if q.hit(ord, forgotten, 0) {
			found += len(s)
		}
	}
	q.t.Share = max(q.t.Share, float64(found)/float64(total))
	q.t.Trusted = max(q.t.Trusted, float64(said)/float64(total))
}

// coverage counts the symbols that hits cover. Between two hits that are no
// further apart than a window everything is taken for covered: of a passage
// only some n-grams are kept.
type coverage struct{ n, end int }

func (c *coverage) add(i int) {
	from := i - gramLen + 1
	switch {
	case c.end == 0:
		c.n += gramLen
	case from <= c.end+window:
		c.n += i + 1 - c.end
	default:
		c.n += gramLen
	}
	c.end = i + 1
}

func (c *coverage) share(total int) float64 {
	if total == 0 {
		return 0
	}
	return float64(c.n) / float64(total)
}

// variants tries what the value may be another form of.
func (q *query) variants(value string, kind ValueKind) {
	if len(value) > maxIdent {
		return
	}
	forms := []string{rot13(value), reversed(value)}
	if len(value) >= minEncoded && strings.IndexByte(value, ' ') < 0 {
		if s, ok := decodeWord(value); ok {
			forms = append(forms, s)
		}
	}
	for _, form := range forms {
		f := bytes.TrimSpace(foldText(nil, form))
		if len(f) == 0 {
			continue
		}
		var t Taint
		v := query{ix: q.ix, t: &t}
		if kind == Host || kind == Address {
			v.address(f, kind)
		} else if kind != Amount {
			v.word(f)
		}
		if t.Share > 0 {
			q.t.Share, q.t.Chunks, q.t.Part = t.Share, t.Chunks, true
			return
		}
	}
}

func rot13(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch {
		case c >= 'a' && c <= 'z':
			b[i] = 'a' + (c-'a'+13)%26
		case c >= 'A' && c <= 'Z':
			b[i] = 'A' + (c-'A'+13)%26
		}
	}
	return string(b)
}

func reversed(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}
