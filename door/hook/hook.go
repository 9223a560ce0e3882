// Package hook is the door of coding agents that ask a program before each
// tool call: Claude Code, Codex, Cursor and Gemini CLI. One event of one agent
// goes in as JSON, one answer in that agent's own form comes out.
//
// It guarantees: an answer for every input, whatever it holds, in the form of
// the agent and the event; in enforce mode that what could not be read,
// judged or recorded is refused, and in time, before the agent's own limit;
// in shadow mode that nothing is refused or asked (G6). The run is the agent's
// session, so that a kill holds for all of it. Tier, profile, tenant and mode
// come from the Config alone, never from the event; the workspace is what the
// run opened with, and a directory that moves later is the call's, not the
// roots'.
//
// What it does not stop: an agent that does not call its hooks, because its
// settings were changed, because it takes a crash or a time-out of a hook for
// a yes (see Holds), or because the tool runs in a process that it does not
// ask about. A decision is not a wall: what a permitted program does then is
// for a sandbox to hold. Whoever may run programs as the same user outside of
// one can start this door by hand and feed it events of his own, prompts of
// the user among them; the guard restricts calls that start Cordon, and can do
// no more. A process that ends by a signal answers nothing. Where an agent
// asks its user, the answer is given to the agent: the proposal stays as it is,
// and the call is not counted against the caps. What a call used is told to the
// guard only by the process that decided it: by a daemon, not by one process a
// call.
package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// Config is what a Door is made from. Agent and Guard are required; the zero
// value of the rest enforces.
type Config struct {
	// Agent is one of Agents.
	Agent string
	Guard cordon.Guard
	// Mode says what a failure becomes: refused in Enforce, passed in the
	// others. It must be the guard's.
	Mode cordon.Mode
	// Run is what does not come from the event: tier, profile, tenant, user,
	// home. An ID or Session that is set here stands for the event's session,
	// a Workspace for its directories.
	Run cordon.Run
	// ServerName names an MCP server by its command, as the MCP door does.
	// Nil calls all of them "server".
	ServerName func(command []string) string
	// Deadline bounds one answer; 0 is DefaultDeadline of the mode.
	Deadline time.Duration
	// Logf is told of failures that the answer does not show. May be nil.
	Logf func(format string, args ...any)
}

// Agents lists the agents that have a door here.
func Agents() []string { return []string{"claude", "codex", "cursor", "gemini"} }

// MaxEvent is how many bytes one event may have. What is longer is refused.
const MaxEvent = 8 << 20

// DefaultDeadline is how long an answer may take: below the time-outs of all
// four agents, of which 10 s is the least, after a daemon was asked in vain. In
// shadow mode a call is never held up for long.
func DefaultDeadline(m cordon.Mode) time.Duration {
	if m == cordon.Enforce {
		return 6 * time.Second
	}
	return 2 * time.Second
}

// Reply is what a hook's process gives its agent.
type Reply struct {
	// Stdout is empty or one JSON object of the agent's form, without a line
	// end, and at most MaxReply bytes.
	Stdout []byte
	// Stderr is for people; the agents read it where Exit is not 0.
	Stderr string
	// Exit is 0, or 2 for what could not be read: all four agents take that
	// for a refusal, whatever the event was.
	Exit int
}

// MaxReply bounds Stdout.
const MaxReply = 16 << 10

// Door answers the events of one agent. It is safe for concurrent use.
type Door struct {
	cfg   Config
	agent *agent

	mu      sync.Mutex // guards pending
	pending map[string]decided
}

// decided is a call that may run now.
type decided struct {
	d  cordon.Decision
	at time.Time
}

// maxPending bounds the calls whose end is awaited.
const maxPending = 4096

// New returns a Door, or says what of the Config is wrong.
func New(c Config) (*Door, error) {
	a := agents[c.Agent]
	switch {
	case a == nil:
		return nil, fmt.Errorf("hook: unknown agent %q (want one of %q)", c.Agent, Agents())
	case c.Guard == nil:
		return nil, errors.New("hook: no guard was given")
	case c.Deadline < 0:
		return nil, fmt.Errorf("hook: deadline is %v (want 0 for the default, or more)", c.Deadline)
	case c.Run.Home != "" && !filepath.IsAbs(c.Run.Home):
		return nil, fmt.Errorf("hook: home %q (want an absolute path)", c.Run.Home)
	}
	if c.Deadline == 0 {
		c.Deadline = DefaultDeadline(c.Mode)
	}
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	return &Door{cfg: c, agent: a, pending: map[string]decided{}}, nil
}

// Input is what a hook's process got.
type Input struct {
	// Event is its standard input, of at most MaxEvent bytes and one more
	// where there is more.
	Event []byte
	// Project is the value of the variable ProjectVar names, or "".
	Project string
}

// ProjectVar is the variable in which an agent tells its hooks which directory
// is the project's, or "".
func ProjectVar(agent string) string {
	if a := agents[agent]; a != nil {
		return a.projectVar
	}
	return ""
}

// Answer answers one event. late is set where the deadline passed, so that
// work of the guard may still go on.
func (d *Door) Answer(ctx context.Context, in Input) (r Reply, late bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.cfg.Deadline, errLate)
	defer cancel()
	e := d.read(in)
	done := make(chan Reply, 1)
	go func() { done <- d.judged(ctx, e) }()
	select {
	case r = <-done:
		return r, false
	case <-ctx.Done():
	}
	// Both may have come at once; a decision is worth more than none.
	select {
	case r = <-done:
		return r, false
	default:
	}
	return d.failed(e, context.Cause(ctx)), true
}

// read reads an event, and names the server of an MCP call by its command.
func (d *Door) read(in Input) (e *event) {
	e = readEvent(d.agent, in.Event)
	e.project = in.Project
	if e.call.Server == unnamed && d.cfg.ServerName != nil && strings.HasSuffix(e.name, "MCPExecution") {
		if command := strings.Fields(e.text("command")); len(command) > 0 {
			e.call.Server = d.cfg.ServerName(command)
		}
	}
	return e
}

var errLate = errors.New("no decision in time")

// judged answers, and makes a panic an answer too.
func (d *Door) judged(ctx context.Context, e *event) (r Reply) {
	defer func() {
		if p := recover(); p != nil {
			r = d.failed(e, fmt.Errorf("panic: %v", p))
		}
	}()
	switch e.kind {
	case preTool:
		return d.decide(ctx, e)
	case postTool:
		return d.record(ctx, e)
	case prompt:
		return d.heard(ctx, e)
	case unreadable:
		return d.malformed(ctx, e)
	}
	return e.pass()
}

// Passed is the answer of mode Off: what the agent does without a hook.
func Passed(agent string, event []byte) Reply {
	if a := agents[agent]; a != nil {
		return readEvent(a, event).pass()
	}
	return Reply{}
}

// Failed is the answer where there is no Door, because what it is made from
// could not be opened: a refusal in mode Enforce, else none.
func Failed(agent string, event []byte, m cordon.Mode, err error) Reply {
	a := agents[agent]
	if a == nil {
		return Reply{Stderr: err.Error(), Exit: 2}
	}
	d := &Door{cfg: Config{Mode: m}, agent: a}
	return d.failed(readEvent(a, event), err)
}

// failed answers for a malfunction.
func (d *Door) failed(e *event, err error) Reply {
	note := "cordon hook: " + oneLine(err.Error())
	if d.cfg.Mode != cordon.Enforce {
		r := e.pass()
		r.Stderr = note
		return r
	}
	switch e.kind {
	case ignored:
		return e.pass()
	case prompt:
		// What the user said is trusted: not to know it makes nothing pass.
		r := e.pass()
		r.Stderr = note
		return r
	}
	r := e.deny("Cordon could not judge this (" + oneLine(clip(err.Error(), 300)) +
		"), so it is refused. Tell the person; `cordon doctor --agent " + d.agent.name + "` says more.")
	if r.Stderr == "" {
		r.Stderr = note
	}
	return r
}

func (d *Door) malformed(ctx context.Context, e *event) Reply {
	c := e.call
	c.Run, c.Malformed = d.apart(d.run(e)), e.bad
	decision := d.cfg.Guard.Decide(ctx, c)
	if !decision.Refused() {
		return e.pass()
	}
	return e.deny("Cordon could not read this event: " + e.bad + ". So it is refused; tell the person.")
}

func (d *Door) decide(ctx context.Context, e *event) Reply {
	c := e.call
	c.Run, c.Malformed = d.run(e), e.bad
	if why := d.place(&c, e); why != "" && c.Malformed == "" {
		c.Malformed = why
	}
	if c.Malformed != "" {
		c.Run = d.apart(c.Run)
	}
	decision := d.cfg.Guard.Decide(ctx, c)
	if !decision.Refused() {
		d.await(e, decision)
		// Cursor shows the file's content before it is read, not after.
		if len(e.chunks) > 0 {
			return d.keep(ctx, c.Run, e)
		}
		return e.pass()
	}
	text := refusal(&c, &decision)
	if decision.Outcome == cordon.Restricted && decision.Proposal != "" && e.canAsk() {
		return e.ask(strings.Replace(text, "Cordon refused", "Cordon would refuse", 1))
	}
	return e.deny(text)
}

// run is the identity of the event's session.
func (d *Door) run(e *event) cordon.Run {
	r := d.cfg.Run
	if r.ID == "" && e.session != "" {
		r.ID = runID(d.agent.name, e.session)
	}
	if r.Session == "" {
		r.Session = r.ID
	}
	if r.Agent == "" {
		r.Agent = d.agent.name
	}
	if r.Workspace == "" {
		r.Workspace = d.workspace(e)
	}
	return r
}

// apart is a run of its own in the same session: what could not be read must
// not say where the session's run works.
func (d *Door) apart(r cordon.Run) cordon.Run {
	if d.cfg.Run.Workspace == "" {
		r.ID, r.Workspace = "", d.cfg.Run.Home
	}
	return r
}

// workspace is the project as the agent itself names it, not what the model
// can move. It counts for the event that opens the run only.
func (d *Door) workspace(e *event) string {
	for _, dir := range []string{e.project, e.root, e.cwd} {
		if dir != "" && filepath.IsAbs(dir) {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// place sets the directory that the call starts from, and says what is wrong
// with where it stands.
func (d *Door) place(c *cordon.Call, e *event) string {
	ws := c.Run.Workspace
	switch {
	case ws == "":
		return "the event names no absolute directory that is worked in"
	case ws == "/" || within(d.cfg.Run.Home, ws):
		return fmt.Sprintf("the agent works in %.200q, which holds whole homes: start it in the project's directory, or give the hook --workspace DIR", ws)
	case e.cwd == "":
		return ""
	case !filepath.IsAbs(e.cwd):
		return fmt.Sprintf("the working directory %.200q is not absolute", e.cwd)
	}
	c.Dir = filepath.Clean(e.cwd)
	return ""
}

// within reports whether path lies below dir, and is not dir itself.
func within(path, dir string) bool {
	return path != "" && strings.HasPrefix(filepath.Clean(path), strings.TrimSuffix(dir, string(os.PathSeparator))+string(os.PathSeparator))
}

// await remembers a call that may run, until its end is told.
func (d *Door) await(e *event, decision cordon.Decision) {
	if decision.Ticket == "" && decision.Approval == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending) >= maxPending {
		clear(d.pending) // ends that never came; what was reserved stays reserved
	}
	decision.Effects = nil // only what Settle needs is worth its memory
	d.pending[e.pairing()] = decided{decision, time.Now()}
}

// settle tells the guard what a call used.
func (d *Door) settle(ctx context.Context, e *event) error {
	key := e.pairing()
	d.mu.Lock()
	was, ok := d.pending[key]
	delete(d.pending, key)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	u := cordon.Usage{Exec: e.took, Failed: e.failed}
	if u.Exec == 0 {
		u.Exec = time.Since(was.at)
	}
	return d.cfg.Guard.Settle(ctx, was.d, u)
}

// record keeps what a tool gave back.
func (d *Door) record(ctx context.Context, e *event) Reply {
	if e.bad != "" {
		return d.failed(e, errors.New(e.bad))
	}
	if err := d.settle(ctx, e); err != nil {
		d.cfg.Logf("hook: settle a call of %q: %v", e.call.Tool, err)
	}
	return d.keepIn(ctx, e)
}

// keepIn records in the session's run. Where that has no place to work in, none
// of its calls passes, and it is not opened by what is heard.
func (d *Door) keepIn(ctx context.Context, e *event) Reply {
	c := cordon.Call{Run: d.run(e)}
	if why := d.place(&c, e); why != "" {
		r := e.pass()
		r.Stderr = "cordon hook: not recorded: " + oneLine(why)
		return r
	}
	return d.keep(ctx, c.Run, e)
}

// keep records what enters the agent's context with an event. What cannot be
// recorded could steer later calls unseen.
func (d *Door) keep(ctx context.Context, r cordon.Run, e *event) Reply {
	if len(e.chunks) == 0 || d.cfg.Mode == cordon.Off {
		return e.pass()
	}
	if _, err := d.cfg.Guard.Record(ctx, r, e.chunks...); err != nil {
		return d.failed(e, fmt.Errorf("record what enters the context: %w", err))
	}
	return e.pass()
}

// heard keeps what the user said.
func (d *Door) heard(ctx context.Context, e *event) Reply {
	if e.bad != "" {
		return d.failed(e, errors.New(e.bad))
	}
	return d.keepIn(ctx, e)
}
