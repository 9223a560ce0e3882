// Package cordon is the vocabulary of Cordon: what one tool call of an AI
// agent is (Call), what it would do to the world (Effect), what was found
// wrong with it (Finding) and what was decided (Decision). Doors speak to
// the core only through Guard.
//
// The zero value of everything that can admit a call refuses it: Outcome is
// Blocked, Tier is Student, Mode is Enforce, an Effect is Opaque.
//
// What this package does not stop: anything. It has no behaviour beyond
// spelling its own words; the guard package decides and the contain packages
// hold.
package cordon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Outcome is what was decided about a call. The zero value refuses.
type Outcome uint8

const (
	// Blocked refuses the call: nothing of it may run.
	Blocked Outcome = iota
	// Restricted refuses the call as it stands, but something close to it
	// would pass (another path, another host, a person's approval).
	Restricted
	// Allowed lets the call pass unchanged.
	Allowed
)

var outcomeNames = [...]string{"blocked", "restricted", "allowed"}

func (o Outcome) String() string { return spell(outcomeNames[:], int(o), "outcome") }

// MarshalText spells the outcome as audit rows and the command line do.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads "allowed", "restricted" or "blocked"; an unknown word
// is an error and leaves Blocked.
func (o *Outcome) UnmarshalText(b []byte) error {
	i, err := lookup(outcomeNames[:], string(b), "outcome")
	*o = Outcome(i)
	return err
}

// Worst is the stricter of two outcomes.
func Worst(a, b Outcome) Outcome { return min(a, b) }

// Mode says whether decisions are applied. The zero value applies them.
type Mode uint8

const (
	// Enforce refuses what is not allowed and kills runs that trip.
	Enforce Mode = iota
	// Shadow computes and records everything and refuses nothing.
	Shadow
	// Off issues no policy and judges nothing.
	Off
)

var modeNames = [...]string{"enforce", "shadow", "off"}

func (m Mode) String() string { return spell(modeNames[:], int(m), "mode") }

// MarshalText spells the mode as the configuration does.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads "off", "shadow" or "enforce"; an unknown word is an
// error and leaves Enforce.
func (m *Mode) UnmarshalText(b []byte) error {
	i, err := lookup(modeNames[:], string(b), "mode")
	*m = Mode(i)
	return err
}

// Tier is the trust an agent has earned. It is fixed when its run opens.
type Tier uint8

const (
	Student Tier = iota
	Intern
	Supervised
	Autonomous
)

var tierNames = [...]string{"student", "intern", "supervised", "autonomous"}

func (t Tier) String() string { return spell(tierNames[:], int(t), "tier") }

// MarshalText spells the tier in lower case.
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// ParseTier reads a tier's name. An unknown tier is a Student, and known is
// false so that the caller can say so.
func ParseTier(s string) (t Tier, known bool) {
	i, err := lookup(tierNames[:], s, "tier")
	return Tier(i), err == nil
}

// Phase is one of the five steps that judge every call, in this order.
type Phase string

const (
	PhasePolicy     Phase = "A" // tier and tool whitelist
	PhaseFS         Phase = "B" // file system scope
	PhaseTripwire   Phase = "C" // malformed input, tripwires, caps, kill switch
	PhaseEgress     Phase = "D" // hosts
	PhaseProvenance Phase = "E" // where words came from, the judge
)

// Violation is the type of a finding.
type Violation string

const (
	FSPath        Violation = "fs_path"
	ToolWhitelist Violation = "tool_whitelist"
	Tripwire      Violation = "tripwire"
	EgressHost    Violation = "egress_host"
	Provenance    Violation = "provenance"
	CapExceeded   Violation = "cap_exceeded"
	KilledRun     Violation = "killed"
	Malformed     Violation = "malformed"
)

// Run is the identity under which calls are judged. The first call of a run
// opens it: what stands here then is fixed, and later calls that name the
// same ID are judged by the policy that was issued for it.
type Run struct {
	// ID names the run: 1 to 128 bytes of letters, digits, '.', '_', ':' and
	// '-', not dots only. Empty: the call is a run of its own.
	ID string
	// Tenant, Agent, User and Session are free names, at most 256 bytes each.
	// A killed run's Session stays killed under any other run ID.
	Tenant, Agent, User, Session string
	// Tier as the door knows it (flag, file or credential, never arguments).
	Tier Tier
	// Profile is "coding" or "atom"; empty is the configuration's.
	Profile string
	// Workspace is the absolute path of the directory that is worked in.
	Workspace string
	// Home is the absolute path that "~" means to the tool that will run.
	Home string
}

// Call is one tool call as a door received it.
type Call struct {
	// ID is the client's own name for the call, echoed in the decision.
	ID  string
	Run Run
	// Server is the MCP server or other namespace of the tool; may be empty.
	Server string
	Tool   string
	// Args is the JSON object of arguments, byte for byte as it came. The
	// guard reads it strictly: duplicate keys, wrong types, NUL, depth and
	// size are findings, never errors.
	Args json.RawMessage
	// Dir is the working directory the tool will run in; empty is the
	// workspace.
	Dir string
	// Malformed, when set, says why the door could not read the call. Such a
	// call is decided (blocked), and audited.
	Malformed string
	// Chunks are texts that the agent had seen when it made the call, where
	// the door learns them with it. They are recorded before the call is
	// judged, as Guard.Record does.
	Chunks []Chunk
	// Approval is the ID of a proposal that a person approved and that this
	// call takes up. It must be for this very call, and serves once.
	Approval string
	// Samples are plans of this step that the caller drew from its model; nil
	// is that it drew none. They can only hold the call back.
	Samples []Plan
	// Match is how the selector of a browser action matched; nil is that the
	// call is no such action. It can only hold the call back.
	Match *Match
}

// Plan is one of several calls that a model proposed for one step. It is
// compared with the call, and never executed.
type Plan struct {
	// Server is that of the tool; empty is the call's.
	Server, Tool string
	// Args is the JSON object of arguments. A plan without a tool, or whose
	// arguments are something else, agrees with no call.
	Args json.RawMessage
}

// Match is how the selector of a browser action met the page.
type Match struct {
	// Matches is how many elements it met.
	Matches int
	// TextOnly: the text alone matched, no identifier, role or structure.
	TextOnly bool
	// Found is how long it took to find the element.
	Found time.Duration
}

// ChunkType says what a text in the agent's context is. An unknown type is
// untrusted.
type ChunkType string

const (
	SystemText ChunkType = "SYSTEM" // the operator's own instructions
	UserText   ChunkType = "USER"   // what the user said
	Memory     ChunkType = "MEMORY" // what the agent noted earlier
	ToolOutput ChunkType = "TOOL_OUTPUT"
	FileText   ChunkType = "FILE"
	Federation ChunkType = "FEDERATION" // what another agent said
	Retrieved  ChunkType = "RETRIEVED"  // search results, resources, web pages
)

// Trust is how far a text may steer the agent. The zero value may not.
type Trust uint8

const (
	Untrusted Trust = iota
	// SemiTrusted was written by the agent itself, perhaps from untrusted text.
	SemiTrusted
	Trusted
)

// Trust of a type of text.
func (t ChunkType) Trust() Trust {
	switch t {
	case SystemText, UserText:
		return Trusted
	case Memory:
		return SemiTrusted
	}
	return Untrusted
}

// Chunk is one piece of text that entered the agent's context.
type Chunk struct {
	// ID names the chunk within its run; Record makes one where it is empty.
	ID   string
	Type ChunkType
	// Source is where it came from: a tool, a path, a URL.
	Source string
	// Time is when it entered; zero is now.
	Time time.Time
	Text string
}

// Kind is what an effect does to the world.
type Kind uint8

const (
	// Opaque cannot be told: Reason says why, Origin where its code comes
	// from, Text what was to be executed where that is known.
	Opaque Kind = iota
	// Read takes the content of the path Target.
	Read
	// List takes the names below the path Target, or searches below it.
	List
	// Write creates, changes, empties, replaces or relinks the path Target.
	// Op: "create", "append", "truncate", "chmod", "link", "move", "".
	Write
	// Delete removes the path Target; Recursive with all that is below.
	Delete
	// Execute starts the program Target (a name or a path).
	Execute
	// RunCode interprets Text, in the language Target ("shell", "python",
	// "javascript", "typescript", "sql", "perl", "ruby", …).
	RunCode
	// Connect opens a connection to Target, "host" or "host:port" with the
	// host as it was written (not resolved). Op is the scheme or protocol
	// ("https", "ssh", "dns", …), or "reverse_shell" when the far side gets
	// a command interpreter, or "listen" for a bound port. Sends is set when
	// data goes out with it, and Data names what it is made of.
	Connect
	// Send hands Text to other people or systems by way of a tool (chat
	// message, issue, e-mail); Target is the recipient or channel.
	Send
	// ReadEnv takes the environment variable Target; "*" is all of them.
	ReadEnv
	// SetEnv sets the variable Target to Text for programs that run after.
	SetEnv
	// Privilege changes what the process may do. Op: "sudo", "su", "setuid",
	// "setcap", "user_admin", "namespace", "container", "mount", "ptrace",
	// "module".
	Privilege
	// Persist makes code run later or elsewhere. Op: "cron", "service",
	// "shell_rc", "authorized_keys", "autostart", "git_hook", "git_config",
	// "agent_settings", "startup_file".
	Persist
	// Destroy takes away what cannot be got back. Op: "disk", "drop_table",
	// "drop_database", "truncate_table", "delete_unfiltered",
	// "update_unfiltered", "force_push", "kill_all", "fork_bomb", "cluster",
	// "cloud", "container", "power", "history".
	Destroy
	// Administer changes who may do what in another system. Op: "iam",
	// "cluster_admin", "sql_grant", "sql_role", "sql_security",
	// "credential" (prints or makes a token), "firewall", "security_off".
	Administer
	// SQL reads or changes rows in an ordinary way: Op "read", "insert",
	// "change" (filtered), "create", "session". Target is the table.
	SQL
)

var kindNames = [...]string{
	"opaque", "read", "list", "write", "delete", "execute", "run_code",
	"connect", "send", "read_env", "set_env", "privilege", "persist",
	"destroy", "administer", "sql",
}

func (k Kind) String() string { return spell(kindNames[:], int(k), "kind") }

// Origin says where code that is about to run came from.
type Origin uint8

const (
	// OriginUnknown could not be told.
	OriginUnknown Origin = iota
	// OriginLiteral stands in the call itself.
	OriginLiteral
	// OriginFile is a file that stood there before the call.
	OriginFile
	// OriginDecoded went through a decoder (base64, xxd, rev, gunzip, …).
	OriginDecoded
	// OriginNetwork was downloaded.
	OriginNetwork
)

var originNames = [...]string{"unknown", "literal", "file", "decoded", "network"}

func (o Origin) String() string { return spell(originNames[:], int(o), "origin") }

// Effect is one thing that a call would do to the world.
//
// For the path kinds (Read, List, Write, Delete) Target is as the tool will
// get it: relative to Dir unless absolute. Expanded says that the shell or
// the language has already expanded it, so that a '~' or '$' in it is a
// plain character; otherwise the file scope expands tildes, variables, file
// URIs and percent forms, as forgiving tools do.
type Effect struct {
	Kind   Kind
	Target string
	// Dir is the absolute directory that a relative path Target starts from.
	Dir      string
	Expanded bool
	// Op is the operation within the kind, as listed there.
	Op string
	// Recursive: the effect covers all below the target.
	Recursive bool
	// Pattern: Target is a glob (path.Match syntax plus **) whose matches
	// could not be told, or a known prefix ending in '*'.
	Pattern bool
	// NoFollow: the last element of the path is taken itself even where it
	// is a link (unlink, readlink, lstat).
	NoFollow bool
	// Doubtful: it may be that this does not happen, or not to this target.
	// A doubtful effect restricts at most.
	Doubtful bool
	// Sends: data leaves with this connection. Data lists the paths,
	// "$VARIABLES", "$*" for the environment or "-" for unknown content that
	// it is made of; empty when it is constant text.
	Sends bool
	Data  []string
	// Text is the code, content, message or value that goes with the effect.
	Text string
	// Bytes is how many bytes a Write is known to write; 0 if not known.
	Bytes int64
	// Origin is where the code of Execute, RunCode and Opaque comes from.
	Origin Origin
	// Reason says in a few words why an Opaque effect cannot be told.
	Reason string
	// Arg is the JSON pointer (RFC 6901) of the argument it came from.
	Arg string
	// Via is the chain that led there, outermost first: "bash -c", "xargs".
	Via []string
}

// Finding is one thing that a phase holds against a call.
type Finding struct {
	Phase     Phase
	Violation Violation
	// Rule is the stable name of what fired, such as "cred.ssh_key".
	Rule    string
	Outcome Outcome
	// Kill: in enforce mode this finding ends the run.
	Kill bool
	// Detail is one sentence for people, free of secrets.
	Detail string
	Arg    string
	Via    []string
	// Rewrite, when set, is the value at Arg that would be allowed.
	Rewrite string
	// Err is the malfunction behind the finding, if there was one.
	Err error
}

// Decision is what was decided about one call.
type Decision struct {
	CallID  string
	RunID   string
	Outcome Outcome
	Mode    Mode
	// Enforced: the outcome was applied, the call is refused. Never set in
	// shadow mode.
	Enforced bool
	// Killed: this decision ended the run. WouldKill: it would have, had the
	// mode been enforce.
	Killed, WouldKill bool
	PolicyID          string
	// ArgsHash is the hex SHA-256 of the redacted canonical arguments.
	ArgsHash string
	Findings []Finding
	// RewrittenArgs are arguments that would be allowed, or nil.
	RewrittenArgs json.RawMessage
	// Ticket names the call to Settle; empty where nothing was reserved.
	Ticket string
	// Proposal is the ID under which a person may approve the call, or empty.
	Proposal string
	// Approval is the proposal that the call took up; Settle closes it.
	Approval string
	// Effects are what the call was read as.
	Effects []Effect
	// Timing is how long each phase took, in the order A to E; lowering is
	// in Lower.
	Timing struct {
		Lower  time.Duration
		Phases [5]time.Duration
	}
}

// Refused reports whether the door must not let the call through.
func (d *Decision) Refused() bool { return d.Mode == Enforce && d.Outcome != Allowed }

// Usage is what a call truly used, known after it ran.
type Usage struct {
	Exec         time.Duration
	BytesWritten int64
	CostUSD      float64
	// Failed: the tool answered with an error, or did not run.
	Failed bool
}

// ToolDef is a tool as its server describes it.
type ToolDef struct {
	Server, Name string
	// Raw is the definition as sent: name, description, schemas, annotations.
	Raw json.RawMessage
}

// ToolVerdict is what a listing may show of a tool.
type ToolVerdict struct {
	// Visible: the run may call it. The zero value hides.
	Visible bool
	// Reason says why it is hidden.
	Reason string
}

// ErrKilled is the cancellation cause of calls in flight when their run is
// killed.
var ErrKilled = errors.New("cordon: run was killed")

// Guard decides. It is the only way from a door to the phases.
type Guard interface {
	// Decide judges one call. It never fails: a malfunction inside is a
	// blocked finding. When it returns, a decision that is not Allowed has
	// been stored (G1).
	Decide(ctx context.Context, c Call) Decision
	// Settle corrects what was reserved for a decided call by what it used.
	Settle(ctx context.Context, d Decision, u Usage) error
	// Tools judges a server's list of tools for a run: what the run may not
	// call is hidden, and a definition that changed since it was approved is
	// quarantined. Verdicts are in the order of defs. The schemas are kept
	// and serve to read later calls.
	Tools(ctx context.Context, r Run, defs []ToolDef) []ToolVerdict
	// Record keeps what entered the run's context, so that later arguments can
	// be traced to it. It returns the chunks' IDs, in order.
	Record(ctx context.Context, r Run, chunks ...Chunk) (ids []string, err error)
	// Resolve is a person's answer to a proposal; by says who gave it and
	// through what. The agent has no way to it.
	Resolve(ctx context.Context, proposal string, approve bool, by string) error
	// Attach returns a context that is cancelled with cause ErrKilled when
	// the run is killed, by whatever process. stop releases it.
	Attach(ctx context.Context, r Run) (attached context.Context, stop func())
}

func spell(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func lookup(names []string, s, what string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("cordon: unknown %s %q (want one of %q)", what, s, names)
}
