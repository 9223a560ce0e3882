package provenance

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
)

// Domains of identifiers.
const (
	idToken    byte = 'T' // words, addresses, paths, as they stand
	idHost     byte = 'H'
	idURL      byte = 'U' // host and path, without scheme, user and fragment
	idNumber   byte = 'N' // numbers, account numbers: letters and digits only
	idLine     byte = 'L' // the letters and digits of a line or of quoted text
	idField    byte = 'S' // a value that stands alone: on its line, in its quotes, after "id:"
	idSpelling byte = 'R' // a word with characters beyond ASCII, as written; of trusted text
	idCall     byte = 'V' // a tool call: name and arguments
)

const (
	gramLen = 12
	window  = 16
	// maxLine is how many letters and digits a line may have to be an
	// identifier by itself; longer ones have n-grams enough.
	minLine, maxLine = 8, 512
	maxIdent         = 512
	maxDepth         = 3
	// minEncoded is how long a word must be to be tried as base64 and kin.
	minEncoded = 16
)

// Entry is what an index keeps of one chunk: hashes, no text. It is immutable.
type Entry struct {
	id, source string
	typ        cordon.ChunkType
	size       int
	check      uint64
	// overrun: the text had more shapes of tool calls than are looked at.
	overrun bool
	own     bool // a call that the agent made itself
	grams   []mark
	idents  []mark // these and the others are in rising order, none twice
	// words are identifiers that are plain words. Those that the index holds
	// already are left out when the entry is recorded: most of a text's words
	// are in the texts before it.
	words []mark
}

// digester makes entries. It is reused, and not safe for concurrent use.
type digester struct {
	hasher
	grams, idents, words []mark
	seen                 [seenSize]uint64
	url                  []byte
	syms                 []byte
	hashes, mins         []uint64
	counts               []uint32
	scratch              []mark
	overrun              bool
	folded               [maxDepth + 1][]byte
	whole                bool // every n-gram is kept
	budget               int  // bytes of decoded text that may still be read
	joined               []byte
	spell                speller
}

// maxWhole is how long a trusted text may be to have all of its n-grams kept:
// what the user said is short, and is to be found in every part.
const maxWhole = 32 << 10

// digest reads the text of one chunk into marks.
func (d *digester) digest(text string, trusted bool) {
	d.whole = trusted && len(text) <= maxWhole
	d.budget = 2*len(text) + 64
	d.read(text, 0)
	if trusted {
		for w := range strings.FieldsSeq(text) {
			if len(w) <= maxIdent && beyondASCII(w) {
				d.ident(idSpelling, spelling(w))
			}
		}
	}
	d.calls(text)
}

// reset makes the digester ready for another chunk.
func (d *digester) reset() {
	d.grams, d.idents, d.words, d.overrun = d.grams[:0], d.idents[:0], d.words[:0], false
	clear(d.seen[:])
}

// seenSize is how many of the last marks are known not to be new.
const seenSize = 1 << 10

// fresh reports a mark that the chunk did not have just before; sorted finds
// all that it had. kind tells words from other identifiers.
func (d *digester) fresh(m mark, kind uint64) bool {
	v := m<<1 | kind | 1<<62
	at := &d.seen[m%seenSize]
	if *at == v {
		return false
	}
	*at = v
	return true
}

func (d *digester) ident(domain byte, b []byte) {
	if len(b) > maxIdent {
		return
	}
	d.hash(d.bytes(domain, b))
}

// wordIdent records a plain word.
func (d *digester) wordIdent(b []byte) {
	if m := markOf(d.bytes(idToken, b)); d.fresh(m, 1) {
		d.words = append(d.words, m)
	}
}

func (d *digester) hash(h uint64) {
	if m := markOf(h); d.fresh(m, 1) {
		d.idents = append(d.idents, m)
	}
}

// read takes in text and, a few layers deep, what is encoded in it.
func (d *digester) read(text string, depth int) {
	f := foldText(d.folded[depth][:0], text)
	d.folded[depth] = f
	d.winnow(f)
	d.atoms(f)
	if depth < maxDepth {
		d.encoded(text, depth)
	}
}

// winnow keeps the least of each window of n-gram hashes over letters and
// digits, so that a passage of gramLen+window-1 of them is always found, and
// the lines and quoted texts as a whole.
func (d *digester) winnow(f []byte) {
	d.symbols(f)
	syms := d.syms
	switch n := len(syms) - gramLen + 1; {
	case n <= 0:
		return
	case !d.whole && n <= window:
		d.gramMarks([]uint64{slices.Min(d.hashed(syms))})
		return
	}
	for {
		part := syms[:min(len(syms), winnowed+gramLen-1)]
		h := d.hashed(part)
		if !d.whole {
			h = d.least(h)
		}
		d.gramMarks(h)
		if len(part) == len(syms) {
			return
		}
		syms = syms[winnowed-window+1:] // the next window begins there
	}
}

// winnowed is how many hashes are held at once.
const winnowed = 2048

// hashed returns the hashes of all n-grams, in the digester's memory.
func (d *digester) hashed(syms []byte) []uint64 {
	n := len(syms) - gramLen + 1
	d.hashes = slices.Grow(d.hashes[:0], n)[:n]
	h, hashes := d.hasher, d.hashes
	var old, recent uint64
	for _, c := range syms[:gramLen-1] {
		old, recent = old<<8|recent>>56, recent<<8|uint64(c)
	}
	for i, c := range syms[gramLen-1:] {
		old, recent = old<<8|recent>>56, recent<<8|uint64(c)
		hashes[i] = h.gram(old, recent)
	}
	return hashes
}

// symbols collects the letters and digits of folded text, and takes in its
// lines and quoted texts.
func (d *digester) symbols(f []byte) {
	d.syms = slices.Grow(d.syms[:0], len(f)+1)[:len(f)+1]
	syms, n := d.syms, 0
	line, span := 0, 0 // where they begin
	for _, c := range f {
		k := part[c]
		syms[n] = c
		n += int(k & 1)
		if k <= 1 {
			continue
		}
		if span != line {
			d.lineIdent(syms[span:n])
		}
		span = n
		if c == '\n' {
			d.lineIdent(syms[line:n])
			line = n
		}
	}
	if span != line {
		d.lineIdent(syms[span:n])
	}
	d.lineIdent(syms[line:n])
	d.syms = syms[:n]
}

// part is 1 for letters and digits, 2 for what ends a line or a quoted text.
var part = func() (t [256]uint8) {
	for c := range t {
		if class[c]&clSymbol != 0 {
			t[c] = 1
		}
	}
	t['\n'], t['"'], t['`'] = 2, 2, 2
	return t
}()

func (d *digester) lineIdent(symbols []byte) {
	if n := len(symbols); n >= minLine && n <= maxLine {
		d.hash(d.bytes(idLine, symbols))
	}
}

// least returns the least hash of each window, in the digester's memory. In
// blocks of one window's length, the least of a window is that of a block's end
// and the next one's beginning; so nothing is compared twice, and no branch
// depends on the text.
func (d *digester) least(h []uint64) []uint64 {
	d.mins = slices.Grow(d.mins[:0], len(h)+1)[:len(h)+1]
	mins, n := d.mins, 0
	var ends [window]uint64 // the least from each place of the block to its end
	last := uint64(0)
	for at := 0; at+window <= len(h); at += window {
		least := ^uint64(0)
		for i := window - 1; i >= 0; i-- {
			least = min(least, h[at+i])
			ends[i] = least
		}
		begin := ^uint64(0)
		next := h[at+window:]
		next = next[:min(len(next), window)]
		for i, more := range next {
			m := min(ends[i], begin)
			mins[n] = m
			n += differs(m, last)
			last = m
			begin = min(begin, more)
		}
		if len(next) < window {
			m := min(ends[len(next)], begin)
			mins[n] = m
			n += differs(m, last)
		}
	}
	return mins[:n]
}

func differs(a, b uint64) (n int) {
	if a != b {
		n = 1
	}
	return n
}

func (d *digester) gramMarks(hashes []uint64) {
	d.grams = slices.Grow(d.grams, len(hashes))
	for _, h := range hashes {
		d.grams = append(d.grams, gramMarkOf(h))
	}
}

// Bounds of sorted.
const (
	fewMarks   = 64
	bucketMost = 24
	bucketBits = 12
)

// sorted returns the marks in order, none twice. They are spread evenly, but
// for those that a text has many times.
func (d *digester) sorted(marks []mark) []mark {
	if len(marks) < fewMarks {
		slices.Sort(marks)
		return slices.Clone(slices.Compact(marks))
	}
	wide := min(bits.Len(uint(len(marks)))-1, bucketBits)
	shift := markBits - wide
	d.counts = slices.Grow(d.counts[:0], 1<<wide)[:1<<wide]
	d.scratch = slices.Grow(d.scratch[:0], len(marks))[:len(marks)]
	counts, out := d.counts, d.scratch
	clear(counts)
	for _, m := range marks {
		counts[m>>shift]++
	}
	sum := uint32(0)
	for i, n := range counts {
		counts[i] = sum
		sum += n
	}
	for _, m := range marks {
		at := &counts[m>>shift]
		out[*at] = m
		*at++
	}
	from := uint32(0)
	for _, to := range counts {
		sortBucket(out[from:to])
		from = to
	}
	return slices.Clone(slices.Compact(out))
}

func sortBucket(b []mark) {
	if len(b) > bucketMost {
		slices.Sort(b)
		return
	}
	for i := 1; i < len(b); i++ {
		m, k := b[i], i
		for k > 0 && b[k-1] > m {
			b[k] = b[k-1]
			k--
		}
		b[k] = m
	}
}

// encoded looks for words in base64, base32 and hexadecimal, and reads what
// they hold where it is text.
func (d *digester) encoded(text string, depth int) {
	for i := 0; i+minEncoded <= len(text); {
		// From the back: a byte of another kind rules out all places before it.
		j := i + minEncoded - 1
		for j >= i && encodedByte[text[j]] {
			j--
		}
		if j >= i {
			i = j + 1
			continue
		}
		start := i
		i += minEncoded
		for i < len(text) && encodedByte[text[i]] {
			i++
		}
		for i < len(text) && text[i] == '=' {
			i++
		}
		if i-start > d.budget {
			continue
		}
		if plainText, ok := decodeWord(text[start:i]); ok {
			d.budget -= i - start
			d.read(plainText, depth+1)
		}
	}
}

var encodedByte = func() (t [256]bool) {
	for c := range t {
		t[c] = class[c]&(clLetter|clDigit) != 0 || c == '+' || c == '/' || c == '-' || c == '_'
	}
	return t
}()

// decodeWord decodes a word whose content is text.
func decodeWord(w string) (string, bool) {
	for len(w) > 0 && w[len(w)-1] == '=' {
		w = w[:len(w)-1]
	}
	isHex, upper32, url := len(w)%2 == 0, true, false
	for i := 0; i < len(w); i++ {
		c := w[i]
		isHex = isHex && unhex(c) >= 0
		upper32 = upper32 && (c >= 'A' && c <= 'Z' || c >= '2' && c <= '7')
		url = url || c == '-' || c == '_'
	}
	if isHex {
		if b, err := hex.DecodeString(w); err == nil && readable(b) {
			return string(b), true
		}
	}
	if upper32 {
		if b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(w); err == nil && readable(b) {
			return string(b), true
		}
	}
	enc := base64.RawStdEncoding
	if url {
		enc = base64.RawURLEncoding
	}
	if len(w)%4 == 1 {
		w = w[:len(w)-1]
	}
	var head [12]byte
	if n, err := enc.Decode(head[:], []byte(w[:min(len(w)&^3, 16)])); err != nil || !readable(head[:n]) {
		return "", false
	}
	b, err := enc.DecodeString(w)
	if err != nil || !readable(b) {
		return "", false
	}
	return string(b), true
}

// readable reports bytes that are text: UTF-8 whose characters are mostly
// printable. The last character may be cut off.
func readable(b []byte) bool {
	bad := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			if len(b)-i < utf8.UTFMax {
				break
			}
			return false
		}
		if r < 0x20 && r != '\n' && r != '\t' && r != '\r' || r == 0x7f {
			bad++
		}
		i += n
	}
	return len(b) > 0 && bad*20 <= len(b)
}
