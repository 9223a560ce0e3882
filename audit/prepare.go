package audit

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
)

// What one row may hold, in bytes; more is cut, and says so.
const (
	maxDetail   = 4 << 10
	maxName     = 512
	maxFindings = 64
	maxMetadata = 64 << 10
	cutMark     = "…[cut]"
)

// NewViolation is the row for a decision that is not allowed: the gravest
// finding stands in the columns, all of them in the metadata. A decision
// without findings still gets a row.
func NewViolation(r RunRow, c cordon.Call, d cordon.Decision, at time.Time) Violation {
	v := Violation{
		TenantID: r.TenantID, WorkspaceID: r.WorkspaceID, AgentID: r.AgentID, UserID: r.UserID,
		SessionID: r.SessionID, RunID: r.RunID, Timestamp: at, PolicyID: d.PolicyID,
		Decision: d.Outcome.String(), ToolName: c.Tool, ArgsHash: d.ArgsHash,
		Enforced: d.Enforced, Killed: d.Killed,
	}
	m := Metadata{Server: c.Server, CallID: c.ID, WouldKill: d.WouldKill}
	if f := gravest(d.Findings); f != nil {
		v.Phase, v.Type, v.Detail, m.Rule = string(f.Phase), string(f.Violation), f.Detail, f.Rule
	}
	for i := range d.Findings[:min(len(d.Findings), maxFindings)] {
		m.Findings = append(m.Findings, metadataFinding(&d.Findings[i]))
	}
	v.MetadataJSON = m.encode()
	return v
}

func gravest(fs []cordon.Finding) *cordon.Finding {
	var worst *cordon.Finding
	for i := range fs {
		f := &fs[i]
		if worst == nil || f.Outcome < worst.Outcome || f.Outcome == worst.Outcome && f.Kill && !worst.Kill {
			worst = f
		}
	}
	return worst
}

func metadataFinding(f *cordon.Finding) MetadataFinding {
	m := MetadataFinding{
		Phase: string(f.Phase), Type: string(f.Violation), Rule: f.Rule, Decision: f.Outcome.String(),
		Detail: clean(f.Detail, maxDetail), Arg: clean(f.Arg, maxName), Kill: f.Kill,
	}
	for _, s := range f.Via[:min(len(f.Via), 32)] {
		m.Via = append(m.Via, clean(s, maxName))
	}
	return m
}

// encode spells the metadata within maxMetadata: findings lose their
// details, then the last findings go.
func (m Metadata) encode() string {
	m.Server, m.CallID = clean(m.Server, maxName), clean(m.CallID, maxName)
	b := marshal(m)
	if len(b) > maxMetadata {
		for i := range m.Findings {
			m.Findings[i].Detail, m.Findings[i].Via = "", nil
		}
		b = marshal(m)
	}
	for len(b) > maxMetadata && len(m.Findings) > 1 {
		m.Findings = m.Findings[:len(m.Findings)/2]
		b = marshal(m)
	}
	return string(b)
}

// marshal encodes a struct of strings and flags, which cannot fail.
func marshal(m Metadata) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		return []byte(`{}`)
	}
	return b
}

// PrepareRun makes the row fit to be hashed and stored, or says why it is
// not. The policy is stored as it is.
func PrepareRun(r RunRow, now time.Time) (RunRow, error) {
	if r.RunID == "" {
		return r, fmt.Errorf("audit: run row without a run id")
	}
	if len(r.RunID) > maxName {
		return r, fmt.Errorf("audit: run id of %d bytes (want at most %d)", len(r.RunID), maxName)
	}
	if r.CreatedAt.IsZero() {
		r.CreatedAt = now
	}
	r.CreatedAt = r.CreatedAt.UTC().Truncate(time.Microsecond)
	if r.PolicyJSON == "" {
		r.PolicyJSON = "{}"
	}
	for _, s := range []*string{&r.RunID, &r.TenantID, &r.WorkspaceID, &r.AgentID, &r.UserID, &r.SessionID,
		&r.PolicyID, &r.Tier, &r.Profile, &r.Mode, &r.PolicyJSON, &r.PolicyHash} {
		*s = valid(*s)
	}
	return r, nil
}

// Prepare makes the row fit to be hashed and stored: redacted, of bounded
// size, with an ID and a time, and of the run's tenant, workspace, agent,
// user, session and policy where it names none. It says why where the row claims what cannot
// be: another run than r, an allowed decision, a kill that was not enforced.
func Prepare(r RunRow, v Violation, now time.Time) (Violation, error) {
	switch {
	case v.RunID == "":
		v.RunID = r.RunID
	case valid(v.RunID) != r.RunID:
		return v, fmt.Errorf("audit: violation of run %q recorded under run %q", v.RunID, r.RunID)
	}
	for _, id := range []struct {
		to   *string
		from string
	}{{&v.TenantID, r.TenantID}, {&v.WorkspaceID, r.WorkspaceID}, {&v.AgentID, r.AgentID}, {&v.UserID, r.UserID},
		{&v.SessionID, r.SessionID}, {&v.PolicyID, r.PolicyID}} {
		if *id.to == "" {
			*id.to = id.from
		}
	}
	if v.Decision != "restricted" && v.Decision != "blocked" {
		return v, fmt.Errorf("audit: violation with decision %q (want restricted or blocked)", v.Decision)
	}
	if v.Killed && !v.Enforced {
		return v, fmt.Errorf("audit: violation of run %q claims a kill that was not enforced", v.RunID)
	}
	if v.ID == "" {
		v.ID = newID()
	}
	if v.Timestamp.IsZero() {
		v.Timestamp = now
	}
	v.Timestamp = v.Timestamp.UTC().Truncate(time.Microsecond)
	v.CreatedAt = now.UTC().Truncate(time.Microsecond)
	v.Detail = clean(v.Detail, maxDetail)
	v.ToolName = clean(v.ToolName, maxName)
	v.MetadataJSON = cleanMetadata(v.MetadataJSON)
	for _, s := range []*string{&v.ID, &v.TenantID, &v.WorkspaceID, &v.AgentID, &v.UserID, &v.SessionID,
		&v.RunID, &v.PolicyID, &v.Phase, &v.Type, &v.ArgsHash} {
		*s = cut(valid(*s), maxName)
	}
	return v, nil
}

func cleanMetadata(s string) string {
	if s == "" {
		return "{}"
	}
	v, err := strictjson.Parse([]byte(s))
	if err != nil || v.Kind != strictjson.Object || len(s) > 2*maxMetadata {
		return string(strictjson.AppendString([]byte(`{"unreadable":`), clean(s, maxDetail))) + "}"
	}
	return valid(string(AppendRedacted(nil, &v)))
}

// clean redacts before it cuts, so that no half of a secret passes for
// something else.
func clean(s string, limit int) string { return cut(RedactText(valid(s)), limit) }

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	n := limit - len(cutMark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + cutMark
}

// valid takes out what a database may store otherwise than it reads back.
func valid(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return s
}

// ValidCounter is c with names a store can hold.
func ValidCounter(c Counter) Counter {
	c.Tool = clean(c.Tool, maxName)
	return c
}

// newID is a random UUID (RFC 9562, version 4).
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
