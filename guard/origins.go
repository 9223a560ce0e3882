package guard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/provenance"
)

// origins holds, for each run, the index of what its texts held. The store has
// all of it, so that a process that starts for one call knows what an earlier
// one recorded; what other processes add is read again as usage is.
type origins struct {
	store  audit.Store
	secret [32]byte
	most   int64

	mu   sync.Mutex
	runs map[string]*runOrigins
}

// runOrigins is one run's. Its lock is held while the store is read.
type runOrigins struct {
	mu    sync.Mutex
	index *provenance.Index
	after int64 // Seq of the last chunk that is in the index
	read  time.Time
	used  time.Time
	// own are the calls that the agent made and that are not stored yet.
	own []audit.ChunkRow
}

// maxIndexed is how many runs' indexes are held at once; the one that was used
// the longest ago is read again when it comes back.
const maxIndexed = 256

func newOrigins(store audit.Store, secret [32]byte, most int64) *origins {
	if secret == ([32]byte{}) {
		_, _ = rand.Read(secret[:]) // never fails; what is stored serves this process only
	}
	return &origins{store: store, secret: secret, most: most, runs: map[string]*runOrigins{}}
}

// key is the secret of one run's index.
func (o *origins) key(runID string) (k provenance.Key) {
	mac := hmac.New(sha256.New, o.secret[:])
	mac.Write([]byte("run " + runID))
	mac.Sum(k[:0])
	return k
}

func (o *origins) of(runID string) (*runOrigins, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.runs[runID]
	if r == nil {
		index, err := provenance.New(provenance.Config{Key: o.key(runID), MaxBytes: o.most})
		if err != nil {
			return nil, err
		}
		if len(o.runs) >= maxIndexed {
			o.forgetOldest()
		}
		r = &runOrigins{index: index}
		o.runs[runID] = r
	}
	r.used = time.Now()
	return r, nil
}

// forgetOldest drops an index that has nothing left to store.
func (o *origins) forgetOldest() {
	oldest := ""
	for id, r := range o.runs {
		if r.mu.TryLock() {
			if len(r.own) == 0 && (oldest == "" || r.used.Before(o.runs[oldest].used)) {
				oldest = id
			}
			r.mu.Unlock()
		}
	}
	delete(o.runs, oldest)
}

// current is the run's index, with what other processes have added.
func (o *origins) current(ctx context.Context, runID string) (*provenance.Index, error) {
	r, err := o.of(runID)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.read) < usageAge {
		return r.index, nil
	}
	return r.index, o.refresh(ctx, runID, r)
}

// refresh loads the chunks that are new in the store. One that cannot be read
// (of another version, or another secret) counts as untrusted text of which
// nothing is known; r.mu is held.
func (o *origins) refresh(ctx context.Context, runID string, r *runOrigins) error {
	rows, err := o.store.Chunks(ctx, runID, r.after)
	if err != nil {
		return fmt.Errorf("origins of run %s: %w", runID, err)
	}
	for i := range rows {
		if err := r.index.Load(rows[i].Segment); err != nil {
			r.index.Add(cordon.Chunk{ID: rows[i].ID, Type: untrustedType(rows[i].Type), Source: rows[i].Source})
		}
		r.after = rows[i].Seq
	}
	r.read = time.Now()
	return nil
}

func untrustedType(t cordon.ChunkType) cordon.ChunkType {
	if t.Trust() == cordon.Trusted {
		return cordon.Retrieved
	}
	return t
}

// record stores chunks of a run and takes them into its index.
func (o *origins) record(ctx context.Context, runID string, chunks []cordon.Chunk) error {
	r, err := o.of(runID)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := r.own
	for _, c := range chunks {
		rows = append(rows, audit.ChunkRow{
			RunID: runID, ID: c.ID, Type: c.Type, Trust: c.Type.Trust(), Source: c.Source, Time: c.Time,
			Segment: r.index.Digest(c).AppendSegment(nil),
		})
	}
	if err := o.store.AddChunks(ctx, o.most, rows...); err != nil {
		// This process still knows them.
		for _, c := range chunks {
			r.index.Add(c)
		}
		return fmt.Errorf("origins of run %s: %w", runID, err)
	}
	r.own = nil
	return o.refresh(ctx, runID, r)
}

// called notes a call that is let through: a later answer that repeats it is
// not where it came from. It is stored with the next texts, or by flush.
func (o *origins) called(runID string, j *judgement) {
	r, err := o.of(runID)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.own) < maxOwn {
		r.own = append(r.own, audit.ChunkRow{
			RunID: runID, Type: cordon.ToolOutput, Time: time.Now(), Segment: r.index.Called(j.call.Tool, &j.args).AppendSegment(nil),
		})
	}
}

// maxOwn is how many calls wait to be stored.
const maxOwn = 1024

// flush stores what waits.
func (o *origins) flush(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, r := range o.runs {
		r.mu.Lock()
		if len(r.own) > 0 {
			errs = append(errs, o.store.AddChunks(ctx, o.most, r.own...))
			r.own = nil
		}
		r.mu.Unlock()
	}
	return errors.Join(errs...)
}

// named gives chunks that have none an ID and a time, as copies.
func named(chunks []cordon.Chunk) ([]cordon.Chunk, []string) {
	out := make([]cordon.Chunk, len(chunks))
	ids := make([]string, len(chunks))
	for i, c := range chunks {
		if c.ID == "" {
			c.ID = "c-" + strings.ToLower(rand.Text()[:12])
		}
		if c.Time.IsZero() {
			c.Time = time.Now()
		}
		out[i], ids[i] = c, c.ID
	}
	return out, ids
}

// Record keeps what entered the run's context, as cordon.Guard says. In shadow
// mode what cannot be stored is known to this process only, and logged.
func (g *Guard) Record(ctx context.Context, r cordon.Run, chunks ...cordon.Chunk) ([]string, error) {
	if g.cfg.Mode == cordon.Off || !g.cfg.Phases.Provenance || len(chunks) == 0 {
		return nil, nil
	}
	if r.ID == "" {
		return nil, errors.New("guard: record: the run has no ID, so that no later call could belong to it")
	}
	chunks, ids := named(chunks)
	p, err := g.issuer.Issue(r)
	if err == nil {
		err = g.origins.record(context.WithoutCancel(ctx), p.RunID(), chunks)
	}
	if err == nil {
		return ids, nil
	}
	if g.cfg.Mode == cordon.Shadow {
		g.cfg.Logf("guard: record: %v", err)
		return ids, nil
	}
	return ids, fmt.Errorf("guard: record: %w", err)
}

// Close stores what waits for it. The store stays open.
func (g *Guard) Close(ctx context.Context) error { return g.origins.flush(ctx) }
