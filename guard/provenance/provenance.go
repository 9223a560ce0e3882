// Package provenance keeps track of where the words in an agent's context
// came from. A Renderer delivers untrusted text inside tags that it cannot
// leave. An Index remembers what each text held, as keyed hashes, so that the
// arguments of a later call can be traced to the texts that supplied them.
// Judge turns that into findings: an irreversible or outbound effect whose
// deciding argument only untrusted text supplied is for a person to approve,
// and a call that stands verbatim in untrusted text is blocked.
//
// It guarantees that rendered text cannot close its own tag, however the tag
// is spelled (G10); that a malformed, unclosed, nested or foreign tag counts
// as untrusted; that all work is linear in the text and all memory is bounded
// by the configuration; that what falls out of the bound is reported and
// still counts as seen; and that no model is asked.
//
// What this package does not stop: a call whose deciding argument the user
// named as well, for then nothing tells the honest call from the hijacked
// one; untrusted text that changes only what is said, not to whom; values
// that carry no address (a short word, a small number) and commands that were
// rephrased, where the effect itself is ordinary; ciphers and spellings that
// are not read (see Match). Translated or encoded addresses are caught only
// as addresses that nobody trusted gave.
package provenance

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Key is the secret under which an index hashes. Segments made under one key
// can be loaded only under the same. Whoever has it can test whether a text
// was recorded.
type Key [32]byte

// NewKey returns a random key.
func NewKey() Key {
	var k Key
	_, _ = rand.Read(k[:]) // never fails: the runtime aborts where there is no randomness
	return k
}

// hasher is what is derived from a key.
type hasher struct {
	a, b, c, d uint64
	check      uint64 // tells segments of another key
}

func newHasher(k Key) hasher {
	sum := sha256.Sum256(append([]byte("cordon provenance 1\x00"), k[:]...))
	more := sha256.Sum256(append([]byte("cordon provenance 2\x00"), k[:]...))
	at := func(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return hasher{
		a: at(sum[:], 0) | 1, b: at(sum[:], 1) | 1, c: at(sum[:], 2) | 1, d: at(sum[:], 3) | 1,
		check: at(more[:], 1),
	}
}

func mum(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// gram hashes the last twelve symbols: old holds four of them, recent eight.
func (h *hasher) gram(old, recent uint64) uint64 {
	return mum(recent^h.a, old<<32^h.b)
}

// bytes hashes b as an identifier of the domain.
func (h *hasher) bytes(domain byte, b []byte) uint64 {
	x := h.a ^ uint64(domain)
	n := uint64(len(b))
	for len(b) >= 8 {
		x = mum(x^binary.LittleEndian.Uint64(b), h.b)
		b = b[8:]
	}
	var last uint64
	switch k := len(b); {
	case k >= 4:
		last = uint64(binary.LittleEndian.Uint32(b))<<32 | uint64(binary.LittleEndian.Uint32(b[k-4:]))
	case k > 0:
		last = uint64(b[0])<<16 | uint64(b[k/2])<<8 | uint64(b[k-1])
	}
	return mum(mum(x^last, h.c)^n, h.d)
}
