package provenance

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// Config is what an Index is made from.
type Config struct {
	// Key is the run's secret; required.
	Key Key
	// MaxBytes bounds the memory of the index; 0 is DefaultBytes. An index
	// also keeps to twice the recorded text, beyond a base of 512 KiB.
	MaxBytes int64
}

const (
	// DefaultBytes is the bound where the configuration gives none.
	DefaultBytes = 64 << 20
	// MinBytes is the least bound.
	MinBytes = 256 << 10

	baseBytes = 512 << 10
	// maxText is how much of one chunk is read at once.
	maxText = 8 << 20
	// chunkBytes is what is reckoned for a chunk beyond its marks.
	chunkBytes = 160
	maxChunks  = 1 << 17
)

// Index remembers what the texts of one run held. It is safe for concurrent
// use. It holds hashes under the run's key, no text.
type Index struct {
	hasher
	most int64

	digesters sync.Pool

	mu sync.RWMutex // guards all below
	// Trusted and untrusted text are held apart: what only the agent itself
	// or others wrote is never taken for what the user said.
	trusted, grams, idents table
	trustedGrams           table
	own                    table
	chunks                 []Source // by ordinal-1
	forgotten              []bloom
	recorded               int64
	names                  int64
	lowest                 cordon.Trust
	seen                   bool // untrusted text was recorded
	condensed, overrun     bool
	// gramCut and identCut are the first chunks whose marks may still be held.
	gramCut, identCut uint32
}

// Source is where a text came from.
type Source struct {
	ID, Source string
	Type       cordon.ChunkType
}

// New returns an empty Index, or says what of the configuration is wrong.
func New(c Config) (*Index, error) {
	if c.Key == (Key{}) {
		return nil, errors.New("provenance: no key was given")
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultBytes
	}
	if c.MaxBytes < MinBytes {
		return nil, fmt.Errorf("provenance: bound of %d bytes (want at least %d)", c.MaxBytes, MinBytes)
	}
	ix := &Index{hasher: newHasher(c.Key), most: c.MaxBytes, lowest: cordon.Trusted}
	ix.digesters.New = func() any { return &digester{hasher: ix.hasher} }
	return ix, nil
}

// Add records a chunk and returns its entry, which can be stored. Of a text
// beyond 8 MiB the parts are read one by one, so that what spans two of them
// is not seen as one.
func (ix *Index) Add(c cordon.Chunk) *Entry {
	e := ix.Digest(c)
	ix.Insert(e)
	return e
}

// Digest makes the entry of a chunk without recording it.
func (ix *Index) Digest(c cordon.Chunk) *Entry {
	e := &Entry{id: clip(c.ID, maxID), source: clip(c.Source, maxSource), typ: cordon.ChunkType(clip(string(c.Type), maxType)), size: len(c.Text), check: ix.check}
	d := ix.digesters.Get().(*digester)
	defer ix.digesters.Put(d)
	text := c.Text
	d.reset()
	for {
		part := text[:min(len(text), maxText)]
		text = text[len(part):]
		d.digest(part, c.Type.Trust() == cordon.Trusted)
		if len(text) == 0 {
			break
		}
	}
	e.overrun = d.overrun
	e.grams, e.idents, e.words = d.sorted(d.grams), d.sorted(d.idents), d.sorted(d.words)
	return e
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// Called records a call that the agent made and that was let through: text
// that repeats it later, as a tool's answer may, is not where it came from.
func (ix *Index) Called(tool string, args *strictjson.Value) *Entry {
	e := &Entry{own: true, typ: cordon.ToolOutput, check: ix.check}
	if args != nil {
		if h, ok := ix.callHash(tool, args); ok {
			e.idents = []mark{markOf(h)}
		}
	}
	ix.Insert(e)
	return e
}

// Insert records an entry that Digest made under the same key; another one is
// an error of the caller and is ignored. From the entry it takes the words
// that the index holds already, so that what is stored of it is less; stored
// entries are loaded in the order in which they were recorded.
func (ix *Index) Insert(e *Entry) {
	if e == nil || e.check != ix.check {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	grams, idents, ord := ix.open(e, len(e.grams), len(e.idents)+len(e.words)/4)
	for part := range slices.Chunk(e.grams, batch) {
		grams.touch(part)
		for _, m := range part {
			grams.put(m, ord)
		}
	}
	for part := range slices.Chunk(e.idents, batch) {
		idents.touch(part)
		for _, m := range part {
			ix.keep(idents, m, ord)
		}
	}
	fresh := e.words[:0]
	for part := range slices.Chunk(e.words, batch) {
		idents.touch(part)
		for _, m := range part {
			if idents.add(m, ord) {
				fresh = append(fresh, m)
			}
		}
	}
	e.words = fresh
	ix.bound()
}

// batch is how many marks are fetched together.
const batch = 64

// keep puts an identifier, but for a call in untrusted text that repeats one
// of the agent's own.
func (ix *Index) keep(t *table, m mark, ord uint32) {
	if t == &ix.idents && ix.own.n > 0 && ix.own.get(m) != 0 {
		return
	}
	t.put(m, ord)
}

// Load records entries that were stored, in the order in which they were
// made. An error says which one cannot be read; those before it are recorded.
func (ix *Index) Load(segments ...[]byte) error {
	read := make([]segment, 0, len(segments))
	var fault error
	for i, b := range segments {
		s, err := readSegment(b, ix.check)
		if err != nil {
			fault = fmt.Errorf("provenance: segment %d: %w", i, err)
			break
		}
		read = append(read, s)
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.loadAll(read)
	return fault
}

// loadAll takes up segments. Where all have room at once it goes shard by shard
// through all of them, since one shard fits in the processor's cache.
func (ix *Index) loadAll(read []segment) {
	if !ix.reserve(read) && len(read) > 1 {
		for i := range read {
			ix.loadAll(read[i : i+1])
		}
		return
	}
	runs := make([]run, 0, 3*len(read))
	for i := range read {
		s := &read[i]
		grams, idents, ord := ix.open(&s.Entry, 0, 0)
		nIdent := s.nGrams + s.nIdent
		runs = append(runs,
			run{to: grams, ord: ord, packed: s.packed[:s.nGrams*markLen]},
			run{to: idents, ord: ord, packed: s.packed[s.nGrams*markLen : nIdent*markLen], kept: true},
			run{to: idents, ord: ord, packed: s.packed[nIdent*markLen:], word: true})
	}
	var f filler
	for shard := range shards {
		f.grams, f.idents = f.grams[:0], f.idents[:0]
		newGrams, newIdents := ix.grams.shards[shard].n == 0, ix.idents.shards[shard].n == 0
		for i := range runs {
			switch r := &runs[i]; {
			case r.to == &ix.grams && newGrams:
				f.grams = ix.gather(f.grams, r, shard)
			case r.to == &ix.idents && newIdents:
				f.idents = ix.gather(f.idents, r, shard)
			default:
				ix.loadShard(r, shard)
			}
		}
		f.fill(&ix.grams, shard, f.grams)
		f.fill(&ix.idents, shard, f.idents)
	}
	ix.bound()
}

// run is a part of a segment that is being loaded; its marks are in order.
type run struct {
	to         *table
	ord        uint32
	packed     []byte
	next       int
	kept, word bool
}

func (ix *Index) loadShard(r *run, shard int) {
	for (r.next+1)*markLen <= len(r.packed) {
		m := markAt(r.packed, r.next)
		if int(m>>(markBits-shardBits)) != shard {
			return
		}
		r.next++
		switch {
		case r.word:
			r.to.add(m, r.ord)
		case r.kept:
			ix.keep(r.to, m, r.ord)
		default:
			r.to.put(m, r.ord)
		}
	}
}

// gather collects what of a run belongs into a shard that is empty so far.
func (ix *Index) gather(slots []uint64, r *run, shard int) []uint64 {
	flag := uint64(r.ord)
	if r.word {
		flag |= wordFlag
	}
	for (r.next+1)*markLen <= len(r.packed) {
		m := markAt(r.packed, r.next)
		if int(m>>(markBits-shardBits)) != shard {
			break
		}
		r.next++
		if r.kept && ix.own.n > 0 && ix.own.get(m) != 0 {
			continue
		}
		slots = append(slots, m<<(64-markBits)|flag)
	}
	return slots
}

// reserve makes room for what is to be loaded, at once, where all of it has
// room within the bound.
func (ix *Index) reserve(read []segment) bool {
	var grams, idents int
	for i := range read {
		if read[i].typ.Trust() != cordon.Trusted {
			grams, idents = grams+read[i].nGrams, idents+read[i].nIdent+read[i].nWords
		}
	}
	if room := int(ix.most/32) - ix.grams.n - ix.idents.n; grams+idents > room {
		return false
	}
	ix.grams.reserve(grams)
	ix.idents.reserve(idents)
	return true
}

// open makes room for an entry and says where its marks go.
func (ix *Index) open(e *Entry, nGrams, nIdent int) (grams, idents *table, ord uint32) {
	if e.own {
		ix.own.reserve(nIdent)
		return &ix.own, &ix.own, 1
	}
	ix.recorded += int64(e.size)
	trust := e.typ.Trust()
	ix.lowest = min(ix.lowest, trust)
	ix.overrun = ix.overrun || e.overrun
	if len(ix.chunks) < maxChunks && (ix.names < ix.most/4 || len(ix.chunks) == 0) {
		ix.names += int64(len(e.id)+len(e.source)) + chunkBytes
		ix.chunks = append(ix.chunks, Source{})
	}
	// Past the bound the last place stands for all later chunks.
	ix.chunks[len(ix.chunks)-1] = Source{ID: e.id, Source: e.source, Type: e.typ}
	ord = uint32(len(ix.chunks))
	grams, idents = &ix.grams, &ix.idents
	if trust == cordon.Trusted {
		grams, idents = &ix.trustedGrams, &ix.trusted
	} else {
		ix.seen = ix.seen || trust == cordon.Untrusted
	}
	grams.reserve(nGrams)
	idents.reserve(nIdent)
	return grams, idents, ord
}

// bytes is the memory that is held.
func (ix *Index) bytes() int64 {
	return ix.trusted.bytes() + ix.trustedGrams.bytes() + ix.grams.bytes() + ix.idents.bytes() + ix.own.bytes() +
		ix.names + ix.forgottenBytes()
}

func (ix *Index) forgottenBytes() (n int64) {
	for i := range ix.forgotten {
		n += int64(len(ix.forgotten[i].words)) * 8
	}
	return n
}

// forget keeps a mark without its chunk. The filters together stay below a
// quarter of the bound; past that they take more and more for known.
func (ix *Index) forget(m mark) {
	n := len(ix.forgotten)
	if n == 0 || ix.forgotten[n-1].full() {
		size := int64(16 << 10)
		if n > 0 {
			size = 2 * int64(len(ix.forgotten[n-1].words)) * 8
		}
		if n == 0 || ix.forgottenBytes()+size <= ix.most/4 {
			ix.forgotten = append(ix.forgotten, bloom{words: make([]uint64, size/8)})
			n++
		}
	}
	ix.forgotten[n-1].add(m)
}

// wasForgotten reports a mark that was, or may have been, in text whose chunk
// is no longer known.
func (ix *Index) wasForgotten(m mark) bool {
	for i := range ix.forgotten {
		if ix.forgotten[i].has(m) {
			return true
		}
	}
	return false
}

func (ix *Index) saturated() bool {
	n := len(ix.forgotten)
	return n > 0 && ix.forgotten[n-1].full()
}

// bound keeps the memory within its limit. The oldest untrusted text is
// condensed to its identifiers first; of those the oldest are then kept
// without their chunk.
func (ix *Index) bound() {
	limit := min(ix.most, baseBytes+2*ix.recorded+ix.names)
	if ix.bytes() <= limit {
		return
	}
	for _, t := range [...]*table{&ix.grams, &ix.idents, &ix.trusted, &ix.trustedGrams} {
		t.tighten()
	}
	if ix.bytes() <= limit {
		return
	}
	ix.condensed = true
	goal := limit / 4 * 3
	last := uint32(len(ix.chunks)) + 1
	for ix.grams.n > 0 && ix.bytes() > goal {
		ix.gramCut += max(1, (last-ix.gramCut)/4)
		ix.grams.drop(ix.gramCut, nil)
	}
	if ix.bytes() <= limit {
		return
	}
	for ix.idents.n > 0 && ix.bytes() > goal {
		ix.identCut += max(1, (last-ix.identCut)/4)
		ix.idents.drop(ix.identCut, ix.forget)
	}
	if ix.trusted.bytes()+ix.trustedGrams.bytes() > ix.most/2 {
		// Trusted text alone fills the bound: less of it counts as said.
		ix.trustedGrams = table{}
		if ix.trusted.bytes() > ix.most/2 {
			ix.trusted.drop(last/2, nil)
		}
	}
}

// State is what an index says of itself.
type State struct {
	// LowWater is the least trust of all that was recorded.
	LowWater cordon.Trust
	// Untrusted: text that nobody vouches for was recorded.
	Untrusted bool
	// Condensed: of old text only the identifiers are still known. Saturated:
	// so many of them that unknown ones may be taken for known.
	Condensed, Saturated bool
	// Overrun: a text had more shapes of tool calls than were looked at.
	Overrun bool
	Chunks  int
	// Recorded is the bytes of text, Bytes those that the index holds.
	Recorded, Bytes int64
}

// State says what was seen and what is held.
func (ix *Index) State() State {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return State{
		LowWater: ix.lowest, Untrusted: ix.seen, Condensed: ix.condensed, Saturated: ix.saturated(),
		Overrun: ix.overrun, Chunks: len(ix.chunks), Recorded: ix.recorded, Bytes: ix.bytes(),
	}
}

// source of an ordinal; the lock is held.
func (ix *Index) source(ord uint32) Source {
	if ord == 0 || int(ord) > len(ix.chunks) {
		return Source{}
	}
	return ix.chunks[ord-1]
}

func addSource(to []Source, s Source) []Source {
	if len(to) >= maxSources || slices.Contains(to, s) {
		return to
	}
	return append(to, s)
}

// maxSources is how many chunks are named for one argument.
const maxSources = 8

// Verbatim reports whether a call of the tool with these arguments stands in
// text that is not trusted, and in which; the spelling, the order and the
// quoting of the arguments do not matter. A call without arguments never does.
func (ix *Index) Verbatim(tool string, args *strictjson.Value) (from Source, found bool) {
	if args == nil {
		return Source{}, false
	}
	h, ok := ix.callHash(tool, args)
	if !ok {
		return Source{}, false
	}
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	m := markOf(h)
	if ix.trusted.get(m) != 0 {
		return Source{}, false
	}
	if ord := ix.idents.get(m); ord != 0 {
		return ix.source(ord), true
	}
	return Source{}, !ix.saturated() && ix.wasForgotten(m)
}
