package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

// GenesisHash is the PrevHash of the first row.
var GenesisHash = strings.Repeat("0", 2*sha256.Size)

// TimeFormat is how a time is hashed and stored: UTC, microseconds, of fixed
// width, so that it sorts as text.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// FormatTime spells t in TimeFormat; the zero time is "".
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(TimeFormat)
}

// Hash is the digest of all columns of the run row, which the hashes of the
// run's violations cover.
func (r *RunRow) Hash() string {
	e := newEncoder("cordon run 1")
	e.text(r.RunID, r.TenantID, r.WorkspaceID, r.AgentID, r.UserID, r.SessionID, r.PolicyID,
		r.Tier, r.Profile, r.Mode, r.PolicyJSON, r.PolicyHash, FormatTime(r.CreatedAt))
	return e.sum()
}

// Hash is the RowHash that the row must have, given the stored hash of its
// run's row: SHA-256 over all columns but row_hash, each with its length
// before it so that no two rows encode alike, after PrevHash.
func (v *Violation) Hash(runHash string) string {
	e := newEncoder("cordon violation 1")
	e.text(v.PrevHash, runHash)
	e.number(uint64(v.Seq))
	e.text(v.ID, v.TenantID, v.WorkspaceID, v.AgentID, v.UserID, v.SessionID, v.RunID,
		FormatTime(v.Timestamp), FormatTime(v.CreatedAt), v.PolicyID, v.Phase, v.Decision,
		v.ToolName, v.Type, v.Detail, v.ArgsHash)
	e.flag(v.Enforced, v.Killed)
	e.text(v.MetadataJSON)
	return e.sum()
}

// Link makes the row the successor of h and returns the new head.
func (v *Violation) Link(h Head, runHash string) Head {
	v.Seq, v.PrevHash = h.Seq+1, h.Hash
	v.RowHash = v.Hash(runHash)
	return Head{v.Seq, v.RowHash}
}

type encoder struct{ b []byte }

func newEncoder(domain string) *encoder {
	e := &encoder{make([]byte, 0, 1024)}
	e.text(domain)
	return e
}

func (e *encoder) number(n uint64) { e.b = binary.BigEndian.AppendUint64(e.b, n) }

func (e *encoder) text(ss ...string) {
	for _, s := range ss {
		e.number(uint64(len(s)))
		e.b = append(e.b, s...)
	}
}

func (e *encoder) flag(bs ...bool) {
	for _, b := range bs {
		if b {
			e.b = append(e.b, 1)
		} else {
			e.b = append(e.b, 0)
		}
	}
}

func (e *encoder) sum() string {
	s := sha256.Sum256(e.b)
	return hex.EncodeToString(s[:])
}

// Checker walks a chain from its first row. Stores use it to verify.
type Checker struct {
	Result VerifyResult
	last   Head
	known  map[int64]string
}

// NewChecker starts at the genesis; known heads must be met on the way.
func NewChecker(known []Head) *Checker {
	c := &Checker{last: Head{0, GenesisHash}, known: make(map[int64]string, len(known))}
	for _, h := range known {
		if old, dup := c.known[h.Seq]; dup && old != h.Hash {
			c.Result.Add(h.Seq, "", "two different heads are known for this row")
		}
		c.known[h.Seq] = h.Hash
	}
	return c
}

// Row checks the next row. runHash is the stored hash of its run's row.
func (c *Checker) Row(v *Violation, runHash string) {
	c.Result.Rows++
	switch {
	case v.Seq <= c.last.Seq:
		c.Result.Add(v.Seq, v.ID, "row was inserted: its number is not above the last one's")
	case v.Seq > c.last.Seq+1:
		c.gap(c.last.Seq+1, v.Seq-1)
	case v.PrevHash != c.last.Hash:
		c.Result.Add(v.Seq, v.ID, "row does not follow the row before it: one of them was inserted or replaced")
	}
	if v.Hash(runHash) != v.RowHash {
		c.Result.Add(v.Seq, v.ID, "row was changed, or its run's row was")
	}
	c.meet(Head{v.Seq, v.RowHash}, v.ID)
}

// Unreadable notes a row whose columns do not even have their types.
func (c *Checker) Unreadable(seq int64, id, rowHash, why string) {
	c.Result.Rows++
	if seq > c.last.Seq+1 {
		c.gap(c.last.Seq+1, seq-1)
	}
	c.Result.Add(seq, id, "row was changed: "+why)
	c.meet(Head{seq, rowHash}, id)
}

func (c *Checker) meet(h Head, id string) {
	if want, ok := c.known[h.Seq]; ok {
		if want != h.Hash {
			c.Result.Add(h.Seq, id, "row is not the one whose hash is known: the chain was rewritten up to here or earlier")
		}
		delete(c.known, h.Seq)
	}
	c.last = h
}

func (c *Checker) gap(from, to int64) {
	for s := from; s <= to && s < from+MaxFaults; s++ {
		c.Result.Add(s, "", "row was removed")
	}
}

// Finish compares the end with the head record and returns the result.
func (c *Checker) Finish(head Head) VerifyResult {
	switch {
	case head.Seq > c.last.Seq:
		c.gap(c.last.Seq+1, head.Seq)
	case head.Seq < c.last.Seq:
		c.Result.Add(head.Seq+1, "", "row was inserted: the head record does not reach it")
	case head.Hash != c.last.Hash:
		c.Result.Add(head.Seq, "", "head record and last row have different hashes")
	}
	for seq, hash := range c.known {
		if seq != 0 || hash != GenesisHash {
			c.Result.Add(seq, "", "a known row is missing: the chain was cut or rewritten")
		}
	}
	c.Result.Head = head
	c.Result.OK = len(c.Result.Faults) == 0
	return c.Result
}
