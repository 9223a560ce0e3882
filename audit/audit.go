// Package audit is what Cordon remembers: the policy a run was issued, every
// decision that refused (or would have refused), what was only counted, who
// is killed, which tool definitions were approved, and what a run has used.
// It holds the rows, the interface of a store, the redaction that every row
// passes before it is hashed or stored, and the hash chain over the rows. It
// has no database code; audit/sqlite does.
//
// What it guarantees: Prepare leaves no value in a row that looks like a
// secret by its name or its shape; a row's hash covers every column, the row
// before it and the policy it was judged by; a row that cannot be stored is
// an error to the caller, never a silent loss.
//
// What it does not stop: a secret that looks like nothing (a plain word in
// prose) stays readable. The chain has no key: who can write the whole store
// can compute it anew from the first changed row on, and drop the last rows
// together with the head record. That is noticed only where the head (see
// Store.Head) was also kept elsewhere, out of the writer's reach, and handed
// to Verify. Who is killed, counters, usage, pins and provenance chunks are
// not in the chain, but for this: Verify misses the kill of a chained row that
// killed its run. What became of proposals has a chain of its own, without a
// head record: the last changes can be cut off together with the state that
// they left.
package audit

import (
	"context"
	"errors"
	"time"
)

// ErrNotKilled is returned by Release for a run that no kill stands against.
var ErrNotKilled = errors.New("audit: run is not killed")

// ErrPinChanged is returned by ApprovePin when what is pending is not the
// definition that the caller looked at.
var ErrPinChanged = errors.New("audit: no such definition is pending")

// RunRow is the policy issued for a run, one row a run (run_sandboxes). It
// is written once; the first row of a run stands.
type RunRow struct {
	RunID       string `json:"run_id"`
	TenantID    string `json:"tenant_id"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	UserID      string `json:"user_id"`
	SessionID   string `json:"session_id"`
	PolicyID    string `json:"policy_id"`
	Tier        string `json:"tier"`
	Profile     string `json:"profile"`
	Mode        string `json:"mode"`
	// PolicyJSON is the policy as issued; PolicyHash is the guard's content
	// hash of it.
	PolicyJSON string    `json:"policy_json"`
	PolicyHash string    `json:"policy_hash"`
	CreatedAt  time.Time `json:"created_at"`
}

// Violation is one decision that was restricted or blocked
// (sandbox_violations). Times have microseconds and are UTC.
type Violation struct {
	// ID is unique among all rows; Prepare makes one where it is empty.
	ID          string `json:"id"`
	TenantID    string `json:"tenant_id"`
	WorkspaceID string `json:"workspace_id"`
	AgentID     string `json:"agent_id"`
	UserID      string `json:"user_id"`
	SessionID   string `json:"session_id"`
	RunID       string `json:"run_id"`
	// Timestamp is when the call was decided, CreatedAt when it was stored.
	Timestamp time.Time `json:"timestamp"`
	CreatedAt time.Time `json:"created_at"`
	PolicyID  string    `json:"policy_id"`
	// Phase ("A" to "E"), Type and Detail are those of the gravest finding;
	// all findings are in MetadataJSON.
	Phase    string `json:"phase"`
	Decision string `json:"decision"`
	ToolName string `json:"tool_name"`
	Type     string `json:"violation_type"`
	Detail   string `json:"violation_detail"`
	// ArgsHash is what ArgsHash of this package returns for the arguments.
	ArgsHash string `json:"args_hash"`
	// Enforced: the call was refused. Killed: the decision ended the run;
	// only an enforced decision may say so.
	Enforced bool `json:"enforced"`
	Killed   bool `json:"killrun_triggered"`
	// MetadataJSON is a Metadata object.
	MetadataJSON string `json:"metadata_json"`

	// Seq counts from 1 without gaps. PrevHash is the RowHash of the row
	// before, GenesisHash for the first. The store fills the three in.
	Seq      int64  `json:"seq"`
	PrevHash string `json:"prev_hash"`
	RowHash  string `json:"row_hash"`
}

// Metadata is the shape of Violation.MetadataJSON. Reports read it.
type Metadata struct {
	Rule      string            `json:"rule,omitempty"`
	Server    string            `json:"server,omitempty"`
	CallID    string            `json:"call_id,omitempty"`
	WouldKill bool              `json:"would_kill,omitempty"`
	Findings  []MetadataFinding `json:"findings,omitempty"`
}

// MetadataFinding is one finding of a decision.
type MetadataFinding struct {
	Phase    string   `json:"phase"`
	Type     string   `json:"violation_type"`
	Rule     string   `json:"rule"`
	Decision string   `json:"decision"`
	Detail   string   `json:"detail,omitempty"`
	Arg      string   `json:"arg,omitempty"`
	Via      []string `json:"via,omitempty"`
	Kill     bool     `json:"kill,omitempty"`
}

// Counter names what a call that got no row is counted under. An empty RunID
// counts for all runs that are not stored (each anonymous call is a run of
// its own, and a counter for each would be a row after all).
type Counter struct {
	RunID   string `json:"run_id"`
	Tool    string `json:"tool"`
	Tier    string `json:"tier"`
	Outcome string `json:"outcome"`
}

// Kill is a run that was ended. SessionID, where there is one, stays killed
// under every other run ID.
type Kill struct {
	RunID     string    `json:"run_id"`
	TenantID  string    `json:"tenant_id"`
	SessionID string    `json:"session_id"`
	At        time.Time `json:"at"`
	// Rule is the rule that killed, or the operator's reason.
	Rule string `json:"rule"`
	// ReleasedAt is zero while the kill stands.
	ReleasedAt time.Time `json:"released_at,omitzero"`
	ReleasedBy string    `json:"released_by,omitempty"`
	Why        string    `json:"why,omitempty"`
}

// Pin is the approved definition of a server's tool, and the one that
// awaits approval where the server changed it. While PendingHash is not
// empty the tool is quarantined.
type Pin struct {
	Server            string    `json:"server"`
	Tool              string    `json:"tool"`
	Hash              string    `json:"hash"`
	ApprovedAt        time.Time `json:"approved_at"`
	Definition        string    `json:"definition"`
	PendingHash       string    `json:"pending_hash,omitempty"`
	PendingAt         time.Time `json:"pending_at,omitzero"`
	PendingDefinition string    `json:"pending_definition,omitempty"`
}

// Usage is what a run has used of its caps, over all processes.
type Usage struct {
	RunID        string  `json:"run_id"`
	ToolCalls    int64   `json:"tool_calls"`
	ExecSeconds  float64 `json:"exec_seconds"`
	BytesWritten int64   `json:"bytes_written"`
	CostUSD      float64 `json:"cost_usd"`
}

// Filter chooses violations. Empty fields choose all. Since is inclusive and
// Until exclusive, both against Timestamp.
type Filter struct {
	RunID, SessionID, TenantID, Tool, Tier string
	// Phase and Type are those of the row, Rule is that of any finding.
	Phase, Type, Decision, Rule string
	Since, Until                time.Time
	// AfterSeq leaves out rows up to that Seq: hand in the last one seen to
	// follow, or to page.
	AfterSeq int64
	// Limit is how many rows at most; 0 is all of them.
	Limit int
	// Newest takes the last Limit rows instead of the first. The order is
	// by Seq, rising, either way.
	Newest bool
}

// RunFilter chooses runs, newest first. Empty fields choose all; Limit 0 is
// all of them.
type RunFilter struct {
	RunID, SessionID, TenantID, AgentID, Tier, Mode string
	Since, Until                                    time.Time
	Limit                                           int
}

// RunSummary is a run with what became of its calls.
type RunSummary struct {
	RunRow
	Allowed    int64 `json:"allowed"`
	Restricted int64 `json:"restricted"`
	Blocked    int64 `json:"blocked"`
	// Killed: a kill stands against the run.
	Killed bool `json:"killed"`
	// LastViolation is zero where there was none.
	LastViolation time.Time `json:"last_violation,omitzero"`
	Usage         Usage     `json:"usage"`
}

// ReportFilter chooses what a report covers. Allowed calls are counted by
// the hour, so of them the hours that Since and Until fall into count whole.
type ReportFilter struct {
	RunID, Tier, Tool string
	Since, Until      time.Time
}

// Report is the aggregate of a period.
type Report struct {
	// Total is Allowed + Restricted + Blocked: the denominator of rates.
	Total      int64 `json:"total"`
	Allowed    int64 `json:"allowed"`
	Restricted int64 `json:"restricted"`
	Blocked    int64 `json:"blocked"`
	// Refused were enforced; WouldRefuse were not, in shadow mode, and would
	// have been refused in enforce mode. Kills and WouldKill likewise.
	Refused     int64        `json:"refused"`
	WouldRefuse int64        `json:"would_refuse"`
	Kills       int64        `json:"kills"`
	WouldKill   int64        `json:"would_kill"`
	ByRule      []ReportLine `json:"by_rule"`
	ByTool      []ReportLine `json:"by_tool"`
	ByTier      []ReportLine `json:"by_tier"`
	ByPhase     []ReportLine `json:"by_phase"`
}

// ReportLine counts the decisions of one rule, tool, tier or phase. A
// decision with findings of several rules or phases counts under each, once.
type ReportLine struct {
	Name       string `json:"name"`
	Restricted int64  `json:"restricted"`
	Blocked    int64  `json:"blocked"`
	// WouldRefuse are those of them that were not enforced.
	WouldRefuse int64 `json:"would_refuse"`
	Kills       int64 `json:"kills"`
	WouldKill   int64 `json:"would_kill"`
	// Total are the calls of that tool or tier, allowed ones included; for a
	// rule or a phase all calls of the report, as each of them was judged.
	Total int64 `json:"total"`
}

// Hits is how many decisions the line counts.
func (l ReportLine) Hits() int64 { return l.Restricted + l.Blocked }

// Rate is Hits over Total, 0 where there were no calls.
func (l ReportLine) Rate() float64 {
	if l.Total == 0 {
		return 0
	}
	return float64(l.Hits()) / float64(l.Total)
}

// Head is the end of the chain: the Seq and RowHash of the last row, zero
// and GenesisHash for an empty store.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Fault is one place where the chain does not hold.
type Fault struct {
	// Seq and ID name the row; ID is empty where the row is gone, Seq 0
	// where the fault lies outside of the chain.
	Seq    int64  `json:"seq"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
}

// MaxFaults is how many faults a VerifyResult lists.
const MaxFaults = 100

// VerifyResult is what Verify found. The zero value is not OK.
type VerifyResult struct {
	Rows int64 `json:"rows"`
	OK   bool  `json:"ok"`
	Head Head  `json:"head"`
	// BadSeq and Reason are those of the first fault.
	BadSeq int64   `json:"bad_seq,omitempty"`
	Reason string  `json:"reason,omitempty"`
	Faults []Fault `json:"faults,omitempty"`
}

// Add notes a fault.
func (r *VerifyResult) Add(seq int64, id, reason string) {
	if len(r.Faults) == 0 {
		r.BadSeq, r.Reason = seq, reason
	}
	if len(r.Faults) < MaxFaults {
		r.Faults = append(r.Faults, Fault{seq, id, reason})
	}
}

// Store keeps the rows. All methods may be called concurrently, and several
// processes may have the same store open.
//
// A method that returns without error after writing has written durably,
// but for Count and AddUsage, which say otherwise.
type Store interface {
	// OpenRun stores the row, unless the run has one, and returns the row
	// that stands: a run's policy and tier are those it was opened with.
	OpenRun(ctx context.Context, r RunRow) (RunRow, error)
	// Run returns the row of a run; ok is false where there is none.
	Run(ctx context.Context, runID string) (r RunRow, ok bool, err error)
	// Record appends the violations of one run to the chain, all or none,
	// and stores r before them where the run has no row: runs of anonymous
	// calls are stored with their first violation. A violation that is
	// Killed stores its Kill in the same transaction. On return the rows
	// survive the death of the process and of the machine. When ctx ends
	// first the error is its cause, and the rows may or may not be stored.
	// Concurrent callers share one commit.
	Record(ctx context.Context, r RunRow, vs []Violation) error
	// Count counts n calls that get no row. It does not block, and is
	// written within about FlushInterval and by Close: a crash may lose
	// that much.
	Count(c Counter, n int64)
	// AddUsage adds to what u.RunID has used, as Count does. Usage is what
	// all processes have written plus what this one has still to write.
	AddUsage(u Usage)
	Usage(ctx context.Context, runID string) (Usage, error)

	// Kill stores that a run was ended; the kill that stands is kept.
	Kill(ctx context.Context, k Kill) error
	// Kills are those that stand.
	Kills(ctx context.Context) ([]Kill, error)
	// Release lifts the kill of a run, and keeps who did so and why. The
	// error is ErrNotKilled where none stands.
	Release(ctx context.Context, runID, by, why string) error
	// KillGeneration changes when a run may have been killed or released,
	// by whatever process; then Kills is to be read again. It costs less
	// than a microsecond, and may change where nothing happened.
	KillGeneration() uint64

	// Pins are those of a server; of all servers for "*".
	Pins(ctx context.Context, server string) ([]Pin, error)
	// SetPin notes the definition p.Hash, p.Definition of a tool: approved
	// where the tool has none yet, pending where it has another, and where
	// it is the approved one nothing is pending any more. It returns the
	// pin that stands.
	SetPin(ctx context.Context, p Pin) (Pin, error)
	// ApprovePin makes the pending definition with that hash the approved
	// one. The error is ErrPinChanged where no such definition is pending.
	ApprovePin(ctx context.Context, server, tool, hash string) error

	// AddProposal stores p as pending, with the event that says so, and
	// returns it; made is true. Where one with the same binding is pending,
	// approved or rejected and has not expired at p.CreatedAt, that one is
	// returned instead and nothing is stored. The error is
	// ErrTooManyProposals where as many are pending as b permits. What has
	// expired by then is stored as expired and does not count.
	AddProposal(ctx context.Context, p Proposal, b ProposalBounds) (standing Proposal, made bool, err error)
	// MoveProposal changes a proposal's state if it is in state m.From, in
	// one step: of several callers, in whatever processes, one moves it. It
	// returns the proposal as it then stands. A move that comes after the
	// proposal's time stores instead that it expired, and moved is false. The
	// error is ErrNoProposal where there is none.
	MoveProposal(ctx context.Context, m ProposalMove) (standing Proposal, moved bool, err error)
	// Proposal returns a proposal; ok is false where there is none.
	Proposal(ctx context.Context, id string) (p Proposal, ok bool, err error)
	Proposals(ctx context.Context, f ProposalFilter) ([]Proposal, error)
	// ProposalEvents are the changes of a proposal's state, oldest first.
	ProposalEvents(ctx context.Context, id string) ([]ProposalEvent, error)

	// AddChunks appends to what is known of runs' contexts, all or none. A
	// chunk that the run has already, with the same ID, trust and segment, is
	// not stored again, but for those without an ID. Of each run the newest chunks are kept whose sizes
	// (ChunkRow.Size) are keep bytes together, and one at least.
	AddChunks(ctx context.Context, keep int64, cs ...ChunkRow) error
	// Chunks are those of a run after that Seq, in order.
	Chunks(ctx context.Context, runID string, afterSeq int64) ([]ChunkRow, error)
	// DropChunks drops the chunks of all runs whose newest is of a time before
	// that, and returns how many.
	DropChunks(ctx context.Context, before time.Time) (n int64, err error)

	Runs(ctx context.Context, f RunFilter) ([]RunSummary, error)
	Violations(ctx context.Context, f Filter) ([]Violation, error)
	Report(ctx context.Context, f ReportFilter) (Report, error)

	// Head is the end of the chain, to be kept elsewhere.
	Head(ctx context.Context) (Head, error)
	// Verify checks the chain, that the known heads lie on it, and the chain
	// of the proposals' events. What it finds is in the result; an error is a
	// malfunction.
	Verify(ctx context.Context, known ...Head) (VerifyResult, error)

	// Flush writes what Count and AddUsage hold.
	Flush(ctx context.Context) error
	// Close flushes and releases the store.
	Close() error
}

// FlushInterval is how long Count and AddUsage may hold what they were told.
const FlushInterval = 200 * time.Millisecond
