// Package mcp is the door for clients of the Model Context Protocol: it
// stands between a client and one MCP server, gives every call to a
// cordon.Guard, and passes everything else.
//
// It passes JSON-RPC messages as they are rather than through an SDK's
// types: what it does not know (methods, fields, notifications, revisions of
// the protocol) reaches the other side byte for byte, in order.
//
// Guarantees:
//   - A tools/call, a resources/read or resources/subscribe, and a message of
//     any unknown method whose params name a tool and its arguments is
//     forwarded only after Guard.Decide let it through, and the arguments that
//     were decided on are the very bytes that are forwarded. A message that readers could take for different
//     things (duplicate keys, keys in another case, lines within lines) is
//     decided on as malformed.
//   - A refused tools/call is answered with a tool result that says what was
//     refused, why, and what would pass; the server never sees it.
//   - A list of tools shows only what Guard.Tools lets be seen, whatever
//     request the server claims to answer with it.
//   - When the run is killed the server's process group is, calls in flight
//     are answered, and later ones are refused.
//   - The server and what it started in its process group end with Serve; on
//     Linux the server itself ends even when Cordon is killed by SIGKILL.
//
// What it does not stop: a server that does harm on its own, without a call
// or within an allowed one (it runs with the rights of the user; contain is
// for that); words in results that mislead the model; acts by methods other
// than those above (completion/complete, prompts/get and unknown ones pass);
// a server that takes relative paths from elsewhere than where it was started;
// what params carries beside name and arguments; a
// process that leaves the server's process group; descendants of the server
// when Cordon dies by SIGKILL, which then only see their input end.
package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// The defaults of Config.
const (
	DefaultMaxMessage  = 16 << 20
	DefaultMaxResult   = 1 << 20
	DefaultGracePeriod = 2 * time.Second
	DefaultFinish      = 30 * time.Second
	DefaultSilence     = 30 * time.Second
)

// Config is what Serve needs. Guard and Command must be set.
type Config struct {
	Guard cordon.Guard
	// Mode is the mode of Guard. Under any but Enforce what the server sends is
	// passed as it is: nothing of it is hidden, cut or replaced, and only lines
	// that are not JSON are dropped. The zero value is Enforce.
	Mode cordon.Mode
	// Run is the run that all calls of the connection belong to. Where its ID
	// is empty the connection is a run of its own under a random ID.
	Run cordon.Run
	// Server qualifies the tools' names; empty is derived from Command.
	Server string
	// Command is the server's program and arguments; Env its environment as
	// "KEY=value" (nil: Cordon's own); Dir its working directory (empty:
	// Cordon's own), which relative paths in calls are judged from.
	Command []string
	Env     []string
	Dir     string
	// Stdin and Stdout are the client's side. Stderr gets the server's stderr
	// as it is, and Cordon's own notes.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// MaxMessage is the most bytes that one message may have; 0 is
	// DefaultMaxMessage. A client's message past 8 MiB is malformed in any
	// case, for it is not parsed.
	MaxMessage int
	// MaxResult is the most bytes of a tool result's content, and of each
	// other member of the result, eight times as much where it holds data that
	// is no text (images, sound); 0 is DefaultMaxResult.
	MaxResult int
	// DeliverTagged, when set, renders each text of a result for the agent; the
	// chunk's ID is the one that the guard recorded it under. Under any mode but
	// Enforce it is not used: nothing is changed there.
	DeliverTagged func(cordon.Chunk) string
	// Approvals keeps the calls of stateless clients that wait for a person's
	// answer; nil is one of the connection's own.
	Approvals *Approvals
	// NoElicitation: nobody is asked through the client; a refusal names the
	// proposal, and a person approves it elsewhere.
	NoElicitation bool
	// GracePeriod is how long the server may take to end after its input was
	// closed, and again after SIGTERM; 0 is DefaultGracePeriod.
	GracePeriod time.Duration
	// Finish is how long the server may still answer after the client closed;
	// 0 is DefaultFinish.
	Finish time.Duration
	// Silence is after what time an unanswered request is noted on Stderr;
	// 0 is DefaultSilence. Nothing is cancelled for it.
	Silence time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Guard == nil {
		return c, errors.New("mcp: no guard")
	}
	if c.MaxMessage < 0 || c.MaxResult < 0 || c.GracePeriod < 0 || c.Silence < 0 || c.Finish < 0 {
		return c, fmt.Errorf("mcp: negative limit (MaxMessage %d, MaxResult %d, GracePeriod %s, Silence %s; want 0 for the default)",
			c.MaxMessage, c.MaxResult, c.GracePeriod, c.Silence)
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = DefaultMaxMessage
	}
	if c.MaxResult == 0 {
		c.MaxResult = DefaultMaxResult
	}
	if c.Finish == 0 {
		c.Finish = DefaultFinish
	}
	if c.GracePeriod == 0 {
		c.GracePeriod = DefaultGracePeriod
	}
	if c.Silence == 0 {
		c.Silence = DefaultSilence
	}
	if c.Server == "" {
		c.Server = ServerName(c.Command)
	}
	if c.Approvals == nil && !c.NoElicitation {
		c.Approvals = NewApprovals()
	}
	if c.NoElicitation {
		c.Approvals = nil
	}
	if c.Run.ID == "" {
		c.Run.ID = "mcp-" + rand.Text()
	}
	if c.Stdin == nil {
		c.Stdin = eof{}
	}
	if c.Stdout == nil {
		c.Stdout = io.Discard
	}
	if c.Stderr == nil {
		c.Stderr = io.Discard
	}
	return c, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// StartError: the server could not be started.
type StartError struct {
	Server, Path string
	Err          error
	// Hint says what the user can do.
	Hint string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("mcp: cannot start server %q (%s): %v; %s", e.Server, e.Path, e.Err, e.Hint)
}

func (e *StartError) Unwrap() error { return e.Err }

// ExitError: the server ended on its own while the client was there.
type ExitError struct {
	Server string
	// Code is the exit code, 0 included; 128 plus its number for a signal.
	Code int
	// Signal names the signal that ended the server; else empty.
	Signal string
}

func (e *ExitError) Error() string { return "mcp: " + e.text() }

func (e *ExitError) text() string {
	if e.Signal != "" {
		return fmt.Sprintf("server %q crashed (signal: %s)", e.Server, e.Signal)
	}
	return fmt.Sprintf("server %q exited with code %d", e.Server, e.Code)
}

// Serve starts the server and passes messages until the client closes its
// side, the server ends, or ctx does. The server has ended when it returns.
//
// It returns nil after the client closed; *StartError when the server could
// not be started; *ExitError when the server ended by itself; an error that
// wraps cordon.ErrKilled when the run was killed (after the client closed:
// until then refusals are answered); context.Cause(ctx) when ctx ended.
//
// A goroutine that reads Stdin may outlive Serve when Stdin is neither an
// io.Closer nor has deadlines, or is an *os.File without deadlines, as the
// process's own standard input can be; it ends with the next byte or EOF.
func Serve(ctx context.Context, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return errors.New("mcp: no server command (want: cordon mcp [flags] -- SERVER ARGS…)")
	}
	attached, stop := cfg.Guard.Attach(ctx, cfg.Run)
	defer stop()
	c := newConnection(cfg)
	if c.judge.dir, err = WorkingDir(cfg.Dir, cfg.Run.Workspace); err != nil {
		return err
	}
	if errors.Is(context.Cause(attached), cordon.ErrKilled) {
		// Nothing of a killed run is started, but its client is told why.
		c.judge.Close(ctx, c.killedBefore(), true)
		c.say("cordon: run %q was killed earlier; server %q was not started", cfg.Run.ID, cfg.Server)
	} else if c.proc, err = start(cfg, c.stderr); err != nil {
		return err
	}
	return c.serve(ctx, attached)
}

// WorkingDir is the directory that the relative paths of a server started in
// dir (empty: Cordon's own) start from; empty where that is the workspace
// itself, however the two are spelled.
func WorkingDir(dir, workspace string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("mcp: working directory: %w", err)
	}
	at, err := os.Stat(dir)
	if err != nil {
		return dir, nil // starting the server says what is wrong
	}
	if ws, err := os.Stat(workspace); err == nil && os.SameFile(at, ws) {
		return "", nil
	}
	return dir, nil
}

// interrupt ends a Read or Write that may be blocked on f, and reports
// whether it could.
func interrupt(f any, deadline func() error) bool {
	if deadline != nil && deadline() == nil {
		return true
	}
	if _, isFile := f.(*os.File); isFile {
		return false // closing it does not wake a read that blocks in the kernel
	}
	if cl, ok := f.(io.Closer); ok {
		return cl.Close() == nil
	}
	return false
}
