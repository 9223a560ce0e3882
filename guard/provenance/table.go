package provenance

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A mark is the 40 upper bits of a hash. The key is secret, so that nobody
// can look for two texts of one mark; by chance one probe in 10^12 errs for
// each recorded mark.
type mark = uint64

const (
	markBits = 40
	// maxOrdinal bounds the chunks that are told apart.
	maxOrdinal = 1<<(64-markBits) - 1
)

func markOf(hash uint64) mark { return hash >> (64 - markBits) }

// gramMarkOf is the mark of an n-gram. Those that are kept are the least of
// many, so that their upper bits are nearly all 0: they are spread over the
// table again.
func gramMarkOf(hash uint64) mark { return markOf(hash * 0x9e3779b97f4a7c15) }

// table holds which chunk had a mark last. It grows shard by shard, so that
// growing never doubles its memory.
type table struct {
	shards [shards]shard
	n      int
}

type shard struct {
	slots []uint64 // mark<<24 | ordinal; 0 is empty
	n     int
}

const (
	shardBits = 6
	shards    = 1 << shardBits
)

func place(m mark) (sh int, at uint64) {
	return int(m >> (markBits - shardBits)), m << (64 - markBits + shardBits)
}

func (s *shard) index(at uint64) int {
	hi, _ := bits.Mul64(at, uint64(len(s.slots)))
	return int(hi)
}

// put records that the chunk ord had m.
func (t *table) put(m mark, ord uint32) {
	sh, at := place(m)
	s := &t.shards[sh]
	if (s.n+1)*5 > len(s.slots)*4 {
		s.grow(s.n + 1)
	}
	i := s.index(at)
	for {
		switch slot := s.slots[i]; {
		case slot == 0:
			s.slots[i] = m<<(64-markBits) | uint64(ord)
			s.n++
			t.n++
			return
		case slot>>(64-markBits) == m:
			s.slots[i] = m<<(64-markBits) | uint64(ord)
			return
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// add records m for the chunk ord unless it is there, and reports whether it
// was not.
func (t *table) add(m mark, ord uint32) bool {
	if t.get(m) != 0 {
		return false
	}
	t.put(m, ord)
	return true
}

// touch brings the places of marks into the cache, many at once, before they
// are taken up one by one.
func (t *table) touch(marks []mark) (sum uint64) {
	for _, m := range marks {
		sh, at := place(m)
		if s := &t.shards[sh]; len(s.slots) > 0 {
			sum += s.slots[s.index(at)]
		}
	}
	return sum
}

// get returns the chunk that had m last, or 0.
func (t *table) get(m mark) uint32 {
	sh, at := place(m)
	s := &t.shards[sh]
	if len(s.slots) == 0 {
		return 0
	}
	i := s.index(at)
	for {
		slot := s.slots[i]
		if slot == 0 {
			return 0
		}
		if slot>>(64-markBits) == m {
			return uint32(slot & maxOrdinal)
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// reserve makes room for n more marks.
func (t *table) reserve(n int) {
	// What chance puts into one shard beyond its part is some square roots.
	each := n/shards + 4*int(math.Sqrt(float64(n)/shards))
	for i := range t.shards {
		if s := &t.shards[i]; each > 8 && (s.n+each)*5 > len(s.slots)*4 {
			s.grow(s.n + each)
		}
	}
}

func (s *shard) grow(need int) {
	size := len(s.slots) + len(s.slots)/4
	if len(s.slots) < 1024 {
		size = len(s.slots) * 3 / 2
	}
	size = max(size, need*5/4+2, 8)
	old := s.slots
	s.slots = make([]uint64, size)
	for _, slot := range old {
		if slot != 0 {
			s.insert(slot)
		}
	}
}

func (s *shard) insert(slot uint64) (at int) {
	_, p := place(slot >> (64 - markBits))
	i := s.index(p)
	for s.slots[i] != 0 {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	s.slots[i] = slot
	return i
}

// filler fills empty shards at once: of marks that are in order each goes to
// its place or behind the one before, and nothing is looked for.
type filler struct {
	grams, idents, sorted []uint64
	counts                []uint32
}

// wordFlag marks a slot of a plain word, which counts only where its mark is
// new. Ordinals do not reach it.
const wordFlag = 1 << (64 - markBits - 1)

// fill puts slots into an empty shard of t, in the order in which they were
// recorded.
func (f *filler) fill(t *table, shard int, slots []uint64) {
	if len(slots) == 0 {
		return
	}
	s := &t.shards[shard]
	if len(slots)*5 > len(s.slots)*4 {
		s.grow(len(slots))
	}
	next, last := 0, -1
	for _, slot := range f.sort(slots) {
		m := slot >> (64 - markBits)
		if last >= 0 && s.slots[last]>>(64-markBits) == m {
			if slot&wordFlag == 0 {
				s.slots[last] = slot
			}
			continue
		}
		slot &^= wordFlag
		s.n++
		t.n++
		_, at := place(m)
		if next = max(next, s.index(at)); next >= len(s.slots) {
			last = s.insert(slot) // round the end
			continue
		}
		s.slots[next], last = slot, next
		next++
	}
}

// sort orders slots by their marks; those of one mark stay as they are.
func (f *filler) sort(slots []uint64) []uint64 {
	wide := bits.Len(uint(len(slots)))
	const low = markBits - shardBits
	wide = min(wide, low)
	bucket := func(slot uint64) uint64 { return slot >> (64 - markBits) & (1<<low - 1) >> (low - wide) }
	f.counts = slices.Grow(f.counts[:0], 1<<wide)[:1<<wide]
	f.sorted = slices.Grow(f.sorted[:0], len(slots))[:len(slots)]
	counts, out := f.counts, f.sorted
	clear(counts)
	for _, slot := range slots {
		counts[bucket(slot)]++
	}
	sum := uint32(0)
	for i, n := range counts {
		counts[i] = sum
		sum += n
	}
	for _, slot := range slots {
		at := &counts[bucket(slot)]
		out[*at] = slot
		*at++
	}
	from := uint32(0)
	for _, to := range counts {
		if to-from > 1 {
			stable(out[from:to])
		}
		from = to
	}
	return out
}

func stable(b []uint64) {
	if len(b) > bucketMost {
		slices.SortStableFunc(b, func(x, y uint64) int { return cmp.Compare(x>>(64-markBits), y>>(64-markBits)) })
		return
	}
	for i := 1; i < len(b); i++ {
		slot, k := b[i], i
		for k > 0 && b[k-1]>>(64-markBits) > slot>>(64-markBits) {
			b[k] = b[k-1]
			k--
		}
		b[k] = slot
	}
}

// drop takes out the marks of all chunks before cut and hands them to gone,
// which may be nil.
func (t *table) drop(cut uint32, gone func(mark)) {
	t.n = 0
	for i := range t.shards {
		s := &t.shards[i]
		keep := 0
		for _, slot := range s.slots {
			switch {
			case slot == 0:
			case uint32(slot&maxOrdinal) >= cut:
				keep++
			case gone != nil:
				gone(slot >> (64 - markBits))
			}
		}
		old := s.slots
		s.slots, s.n = nil, keep
		if keep > 0 {
			s.slots = make([]uint64, keep*5/4+2)
		}
		for _, slot := range old {
			if slot != 0 && uint32(slot&maxOrdinal) >= cut {
				s.insert(slot)
			}
		}
		t.n += keep
	}
}

// tighten gives back what was reserved and not used.
func (t *table) tighten() {
	for i := range t.shards {
		if s := &t.shards[i]; s.n*5 < len(s.slots)*3 {
			old := s.slots
			s.slots = make([]uint64, s.n*5/4+2)
			for _, slot := range old {
				if slot != 0 {
					s.insert(slot)
				}
			}
		}
	}
}

// bytes is the memory that the table holds.
func (t *table) bytes() int64 {
	n := 0
	for i := range t.shards {
		n += cap(t.shards[i].slots)
	}
	return int64(n) * 8
}

// bloom remembers marks that had to leave the table, without their chunks. It
// never forgets one; the fuller it is, the more it takes for one.
type bloom struct {
	words []uint64
	set   int
}

func (b *bloom) add(m mark) {
	h := m * 0x9e3779b97f4a7c15
	for range 4 {
		w, bit := b.at(h)
		if b.words[w]&bit == 0 {
			b.words[w] |= bit
			b.set++
		}
		h = bits.RotateLeft64(h, 17) * 0x9e3779b97f4a7c15
	}
}

func (b *bloom) at(h uint64) (int, uint64) {
	hi, lo := bits.Mul64(h, uint64(len(b.words)))
	return int(hi), 1 << (lo >> 58)
}

func (b *bloom) has(m mark) bool {
	if len(b.words) == 0 {
		return false
	}
	h := m * 0x9e3779b97f4a7c15
	for range 4 {
		w, bit := b.at(h)
		if b.words[w]&bit == 0 {
			return false
		}
		h = bits.RotateLeft64(h, 17) * 0x9e3779b97f4a7c15
	}
	return true
}

// full: a tenth or so of all probes would find what was never there.
func (b *bloom) full() bool { return b.set > len(b.words)*64*55/100 }
