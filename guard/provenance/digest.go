package provenance

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
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
	idents  []mark
	// words are identifiers that are plain words. Those that the index holds
	// already are left out when the entry is recorded: most of a text's words
	// are in the texts before it.
	words []mark
}

// digester makes entries. It is reused, and not safe for concurrent use.
type digester struct {
	hasher
	grams, idents, words []mark
	seen                 []uint64
	seenN                int
	url                  []byte
	syms                 []byte
	hashes               []uint64
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
	d.grams, d.idents, d.words, d.overrun = d.grams[:0], d.idents[:0], d.words[:0], false
	d.resetSeen(len(text) / 2)
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

func (d *digester) resetSeen(n int) {
	size := 256
	for size < n && size < 1<<16 {
		size *= 2
	}
	if cap(d.seen) >= size {
		d.seen = d.seen[:size]
		clear(d.seen)
	} else {
		d.seen = make([]uint64, size)
	}
	d.seenN = 0
}

// fresh reports a mark that the chunk did not have before. kind tells n-grams
// from identifiers.
func (d *digester) fresh(m mark, kind uint64) bool {
	if d.seenN*3 > len(d.seen)*2 {
		d.widen()
	}
	v := m<<1 | kind | 1<<62
	mask := uint64(len(d.seen) - 1)
	for i := m & mask; ; i = (i + 1) & mask {
		switch d.seen[i] {
		case 0:
			d.seen[i] = v
			d.seenN++
			return true
		case v:
			return false
		}
	}
}

func (d *digester) widen() {
	old := d.seen
	d.seen = make([]uint64, 4*len(old)) // kept for the texts to come
	mask := uint64(len(d.seen) - 1)
	for _, v := range old {
		if v == 0 {
			continue
		}
		i := (v << 2 >> 3) & mask
		for d.seen[i] != 0 {
			i = (i + 1) & mask
		}
		d.seen[i] = v
	}
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
	if len(d.syms) < gramLen {
		return
	}
	d.hashes = slices.Grow(d.hashes[:0], len(d.syms))[:len(d.syms)-gramLen+1]
	h, hashes := d.hasher, d.hashes
	var old, recent uint64
	for _, c := range d.syms[:gramLen-1] {
		old, recent = old<<8|recent>>56, recent<<8|uint64(c)
	}
	for i, c := range d.syms[gramLen-1:] {
		old, recent = old<<8|recent>>56, recent<<8|uint64(c)
		hashes[i] = h.gram(old, recent)
	}
	switch {
	case d.whole:
		for _, h := range d.hashes {
			d.gramMark(h)
		}
	case len(d.hashes) <= window:
		d.gramMark(slices.Min(d.hashes))
	default:
		d.least(d.hashes)
	}
}

// symbols collects the letters and digits of folded text, and takes in its
// lines and quoted texts.
func (d *digester) symbols(f []byte) {
	syms := slices.Grow(d.syms[:0], len(f))[:len(f)]
	n, step := 0, d.step
	var line, span, lineN, spanN uint64
	for _, c := range f {
		if class[c]&clSymbol != 0 {
			line, span = line*step+uint64(c), span*step+uint64(c)
			lineN, spanN = lineN+1, spanN+1
			syms[n] = c
			n++
			continue
		}
		if c != '\n' && c != '"' && c != '`' {
			continue
		}
		if spanN != lineN {
			d.lineIdent(span, spanN)
		}
		span, spanN = 0, 0
		if c == '\n' {
			d.lineIdent(line, lineN)
			line, lineN = 0, 0
		}
	}
	if spanN != lineN {
		d.lineIdent(span, spanN)
	}
	d.lineIdent(line, lineN)
	d.syms = syms[:n]
}

func (d *digester) lineIdent(x, n uint64) {
	if n >= minLine && n <= maxLine {
		d.hash(d.finish(idLine, x, n))
	}
}

// least records the least hash of each window. In blocks of one window's
// length, the least of a window is that of a block's end and the next one's
// beginning; so nothing is compared twice, and no branch is guessed wrong but
// where the least changes.
func (d *digester) least(h []uint64) {
	var ends [window]uint64 // the least from each place of the block to its end
	last := uint64(0)
	for at := 0; at+window < len(h); at += window {
		ends[window-1] = h[at+window-1]
		for i := window - 2; i >= 0; i-- {
			ends[i] = min(h[at+i], ends[i+1])
		}
		begin := ^uint64(0)
		next := h[at+window:]
		for i := 0; i < window && i <= len(next); i++ {
			m := min(ends[i], begin)
			if m != last {
				d.gramMark(m)
				last = m
			}
			if i < len(next) {
				begin = min(begin, next[i])
			}
		}
	}
}

func (d *digester) gramMark(h uint64) {
	if m := markOf(h); d.fresh(m, 0) {
		d.grams = append(d.grams, m)
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
