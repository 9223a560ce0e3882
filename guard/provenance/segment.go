package provenance

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"

	"github.com/cordon-sandbox/cordon"
)

// A segment is, in this order:
//
//	"cPv" version              4 bytes
//	key check                  8 bytes, little endian
//	flags                      1 byte: 1 overrun, 2 the agent's own call
//	type, id, source           each a uvarint length and its bytes
//	size of the text           uvarint
//	number of n-grams          uvarint
//	number of identifiers      uvarint
//	number of words            uvarint
//	marks                      5 bytes each, little endian, each group in
//	                           rising order
//	CRC-32C of all before      4 bytes, little endian
const (
	segmentMagic = "cPv\x02"
	segmentMin   = len(segmentMagic) + 8 + 1 + 3 + 4 + 4
	markLen      = 5
	flagOverrun  = 1
	flagOwn      = 2

	maxType, maxID, maxSource = 64, 256, 1024
	// MaxSegment is how long a segment may be.
	MaxSegment = 64 << 20
)

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// AppendSegment appends the entry in the form that Load reads. It holds no
// text but the chunk's ID and source.
func (e *Entry) AppendSegment(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, segmentMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, e.check)
	var flags byte
	if e.overrun {
		flags |= flagOverrun
	}
	if e.own {
		flags |= flagOwn
	}
	dst = append(dst, flags)
	for _, s := range [...]string{string(e.typ), e.id, e.source} {
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = binary.AppendUvarint(dst, uint64(e.size))
	dst = binary.AppendUvarint(dst, uint64(len(e.grams)))
	dst = binary.AppendUvarint(dst, uint64(len(e.idents)))
	dst = binary.AppendUvarint(dst, uint64(len(e.words)))
	dst = slices.Grow(dst, (len(e.grams)+len(e.idents)+len(e.words))*markLen+4)
	for _, marks := range [...][]mark{e.grams, e.idents, e.words} {
		for _, m := range marks {
			dst = append(dst, byte(m), byte(m>>8), byte(m>>16), byte(m>>24), byte(m>>32))
		}
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli()))
}

// segment is one that was read; its marks are still packed.
type segment struct {
	Entry
	packed                 []byte
	nGrams, nIdent, nWords int
}

// readSegment reads a segment strictly. Errors say what is wrong with it.
func readSegment(b []byte, check uint64) (s segment, err error) {
	switch {
	case len(b) < segmentMin || len(b) > MaxSegment:
		return s, fmt.Errorf("provenance: segment of %d bytes (want %d to %d)", len(b), segmentMin, MaxSegment)
	case string(b[:len(segmentMagic)]) != segmentMagic:
		return s, fmt.Errorf("provenance: segment starts with %q (want %q)", b[:len(segmentMagic)], segmentMagic)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(body, castagnoli()) != sum {
		return s, fmt.Errorf("provenance: segment is damaged: its checksum does not fit")
	}
	r := body[len(segmentMagic):]
	s.check, r = binary.LittleEndian.Uint64(r), r[8:]
	if s.check != check {
		return s, fmt.Errorf("provenance: segment was made under another key")
	}
	if r[0]&^(flagOverrun|flagOwn) != 0 {
		return s, fmt.Errorf("provenance: segment has unknown flags %#x", r[0])
	}
	s.overrun, s.own, r = r[0]&flagOverrun != 0, r[0]&flagOwn != 0, r[1:]
	var typ string
	for _, field := range [...]struct {
		to   *string
		most int
	}{{&typ, maxType}, {&s.id, maxID}, {&s.source, maxSource}} {
		n, rest, ok := uvarint(r, uint64(field.most))
		if !ok || n > len(rest) {
			return s, fmt.Errorf("provenance: segment has a name that is too long or cut off")
		}
		*field.to, r = string(rest[:n]), rest[n:]
	}
	s.typ = cordon.ChunkType(typ)
	var ok bool
	for _, to := range [...]*int{&s.size, &s.nGrams, &s.nIdent, &s.nWords} {
		if *to, r, ok = uvarint(r, 1<<40); !ok {
			return s, fmt.Errorf("provenance: segment has a number that is too large or cut off")
		}
	}
	if n := s.nGrams + s.nIdent + s.nWords; max(s.nGrams, s.nIdent, s.nWords) > MaxSegment || n*markLen != len(r) {
		return s, fmt.Errorf("provenance: segment has %d bytes of marks (want %d)", len(r), n*markLen)
	}
	s.packed = r
	for _, n := range [...]int{s.nGrams, s.nIdent, s.nWords} {
		if !rising(r[:n*markLen]) {
			return s, fmt.Errorf("provenance: segment has marks that are out of order")
		}
		r = r[n*markLen:]
	}
	return s, nil
}

// rising reports marks in order; a text of several parts may have some twice.
func rising(b []byte) bool {
	for last := mark(0); len(b) > 0; b = b[markLen:] {
		m := markAt(b, 0)
		if m < last {
			return false
		}
		last = m
	}
	return true
}

func uvarint(b []byte, most uint64) (n int, rest []byte, ok bool) {
	v, size := binary.Uvarint(b)
	if size <= 0 || v > most || size > 1 && b[size-1] == 0 { // one spelling only
		return 0, b, false
	}
	return int(v), b[size:], true
}

func markAt(b []byte, i int) mark {
	p := b[i*markLen : i*markLen+markLen : i*markLen+markLen]
	return uint64(p[0]) | uint64(p[1])<<8 | uint64(p[2])<<16 | uint64(p[3])<<24 | uint64(p[4])<<32
}
