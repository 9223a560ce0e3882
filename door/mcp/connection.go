package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/cordon-sandbox/cordon"
)

// connection is one client and one server, for as long as Serve runs.
//
// Each direction is one goroutine that reads a message, has it judged and
// writes it before it reads the next: order is kept, nothing is queued, and
// who does not read slows down who writes.
type connection struct {
	cfg    Config
	judge  *Judge
	proc   *process // nil where the run was killed before
	stdout *lockedWriter
	stderr io.Writer
	asking asking
	// notes counts the notes on messages, sent the messages to the client.
	notes, sent atomic.Int64
	// over is set when Serve returns, for a reader that could not be stopped.
	over atomic.Bool
}

// maxNotes is how many notes on messages a connection may write: a server that floods
// its output with garbage does not flood the log as well.
const maxNotes = 200

func newConnection(cfg Config) *connection {
	c := &connection{cfg: cfg, judge: newJudge(cfg), stdout: &lockedWriter{w: cfg.Stdout}}
	c.stderr = sharedStderr(cfg.Stderr)
	return c
}

func (c *connection) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.stderr, format+"\n", args...) // nowhere left to complain
}

// note says something about a message.
func (c *connection) note(text string) {
	switch n := c.notes.Add(1); {
	case n < maxNotes:
		c.say("%s", text)
	case n == maxNotes:
		c.say("cordon: server %q: further notes are left out", c.cfg.Server)
	}
}

// killedBefore is said where the run was dead before it began: by the session
// that it shares with the one that was killed.
func (c *connection) killedBefore() string {
	return fmt.Sprintf("Cordon ended this session earlier and did not start the server %q: no call of it will pass until an operator releases it (cordon kill lists what is ended). Stop, and tell the person.", c.cfg.Server)
}

func (c *connection) killedText() string {
	return fmt.Sprintf("Cordon ended the run %q and the server %q with it: no call of the run will pass until an operator releases it (cordon kill --release %s --why …).",
		c.cfg.Run.ID, c.cfg.Server, c.cfg.Run.ID)
}

// serve runs both directions until one side ends.
func (c *connection) serve(ctx, attached context.Context) error {
	clientDone := make(chan error, 1)
	go func() { clientDone <- c.clientLoop(ctx) }()
	serverDone := make(chan struct{})
	var exited <-chan struct{}
	if c.proc != nil {
		exited = c.proc.done
		go func() { defer close(serverDone); c.serverLoop(ctx) }()
	} else {
		close(serverDone)
	}
	tick := time.NewTicker(max(c.cfg.Silence/4, time.Millisecond))
	defer tick.Stop()

	killed := c.proc == nil
	killC, eofC := attached.Done(), (<-chan struct{})(serverDone)
	if killed {
		killC, eofC = nil, nil
	}
	for {
		select {
		case <-ctx.Done():
			c.end(ctx, serverDone)
			c.release(clientDone)
			return context.Cause(ctx)
		case <-killC:
			killC = nil
			if errors.Is(context.Cause(attached), cordon.ErrKilled) {
				killed, exited, eofC = true, nil, nil
				c.kill(ctx, serverDone)
			}
		case err := <-clientDone:
			c.end(ctx, serverDone)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if killed {
				return fmt.Errorf("mcp: run %q: %w", c.cfg.Run.ID, cordon.ErrKilled)
			}
			return err
		case <-exited:
			// What it wrote last is still to be read; a process that it left
			// behind may hold the pipe open.
			exited = nil
			c.proc.within(serverDone, c.cfg.GracePeriod)
			c.proc.killGroup()
		case <-eofC:
			if errors.Is(context.Cause(attached), cordon.ErrKilled) {
				eofC = nil // the next turn takes it as a kill
				continue
			}
			exit := c.serverEnded(ctx)
			c.release(clientDone)
			return exit
		case <-tick.C:
			for _, n := range c.judge.Silent(c.cfg.Silence) {
				c.note(n)
			}
			for _, o := range c.asking.late() {
				_ = send(c.stdout, o.v.Answer) // the client's end shows elsewhere
			}
		}
	}
}

// clientLoop passes the client's messages until it closes. Only an error of
// reading other than its end is one.
func (c *connection) clientLoop(ctx context.Context) error {
	r := newLineReader(c.cfg.Stdin, c.cfg.MaxMessage)
	for {
		l, err := r.next()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe):
			return nil
		case err != nil:
			return fmt.Errorf("mcp: read from the client: %w", err)
		}
		if ctx.Err() != nil || c.over.Load() {
			return nil
		}
		if err := c.fromClient(ctx, r, l); err != nil {
			return nil // the client no longer reads: it has closed
		}
	}
}

func (c *connection) fromClient(ctx context.Context, r *lineReader, l line) error {
	if l.long {
		return c.longFromClient(ctx, r, l)
	}
	if o, said, ok := c.asking.take(l.text); ok {
		return c.answered(ctx, o, said)
	}
	v := c.judge.Client(ctx, l.text)
	if v.Ask != nil {
		if q := c.asking.ask(l.text, v); q != nil {
			return send(c.stdout, q)
		}
	}
	if v.Forward != nil {
		c.asking.learn(v.Forward)
		c.asking.drop(v.Forward)
	}
	return c.pass(v, l.ended)
}

// pass does what a verdict on a client's message says.
func (c *connection) pass(v Verdict, ended bool) error {
	if err := send(c.stdout, v.Answer); err != nil {
		return err
	}
	if v.Forward != nil && c.proc != nil {
		msg := v.Forward
		if ended {
			msg = append(msg, '\n')
		}
		// That the server no longer reads is said when its end is noticed;
		// who waits for an answer gets one then.
		_, _ = c.proc.stdin.Write(msg)
	}
	c.after(v)
	return nil
}

func (c *connection) longFromClient(ctx context.Context, r *lineReader, l line) error {
	v := c.judge.Oversize(ctx, l.text, c.cfg.MaxMessage)
	if v.Forward == nil || c.proc == nil {
		if err := r.rest(l, io.Discard); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return send(c.stdout, v.Answer)
	}
	if _, err := c.proc.stdin.Write(v.Forward); err == nil {
		err = r.rest(l, c.proc.stdin)
		if err == nil || errors.Is(err, io.EOF) {
			return nil
		}
	}
	_ = r.rest(l, io.Discard) // the end of the stream shows at the next read
	return nil
}

func (c *connection) after(v Verdict) {
	if v.Note != "" {
		c.note(v.Note)
	}
	if v.Settle != nil {
		if err := v.Settle(); err != nil {
			c.note("cordon: " + err.Error())
		}
	}
}

// serverLoop passes the server's messages until its output ends.
func (c *connection) serverLoop(ctx context.Context) {
	r := newLineReader(c.proc.stdout, c.cfg.MaxMessage)
	for {
		l, err := r.next()
		if err != nil {
			return
		}
		v := Verdict{}
		if l.long && c.cfg.Mode != cordon.Enforce {
			v, err = c.passLong(ctx, r, l)
			if err != nil {
				_, _ = io.Copy(io.Discard, r.r) // as below
				return
			}
		} else if l.long {
			end := &tail{}
			_ = r.rest(l, end) // an error shows at the next read
			v = c.judge.overlong(ctx, l.text, append(l.text[max(0, len(l.text)-tailSize):len(l.text):len(l.text)], end.b...), c.cfg.MaxMessage)
		} else {
			v = c.judge.Server(ctx, l.text)
		}
		if send(c.stdout, v.Forward) != nil {
			// The client no longer reads. What the server still writes is
			// read, so that it can end.
			c.after(v)
			_, _ = io.Copy(io.Discard, r.r)
			return
		}
		c.sent.Add(1)
		c.after(v)
	}
}

// passLong passes a message of the server that is too long to be held, as it
// comes: outside of mode enforce nothing is changed.
func (c *connection) passLong(ctx context.Context, r *lineReader, l line) (Verdict, error) {
	end := &tail{b: append([]byte(nil), l.text[max(0, len(l.text)-tailSize):]...)}
	c.stdout.mu.Lock()
	defer c.stdout.mu.Unlock()
	if _, err := c.stdout.w.Write(l.text); err != nil {
		return Verdict{}, err
	}
	passed := &errWriter{w: c.stdout.w}
	_ = r.rest(l, io.MultiWriter(end, passed)) // an error of reading shows at the next read
	v := c.judge.overlong(ctx, l.text, end.b, c.cfg.MaxMessage)
	return Verdict{Settle: v.Settle}, passed.err
}

// errWriter keeps the error of its writer.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(p []byte) (n int, err error) {
	n, e.err = e.w.Write(p)
	return n, e.err
}

// kill ends the server at once and answers the calls that it leaves.
func (c *connection) kill(ctx context.Context, serverDone <-chan struct{}) {
	answers, settle := c.judge.Close(ctx, c.killedText(), true)
	c.proc.killGroup()
	c.proc.closeStdin()
	<-c.proc.done
	c.proc.within(serverDone, c.cfg.GracePeriod)
	c.proc.stdout.Close()
	c.answer(ctx, answers, settle)
	c.say("cordon: run %q was killed; server %q was ended", c.cfg.Run.ID, c.cfg.Server)
}

// serverEnded says to everyone who waits that the server is gone.
func (c *connection) serverEnded(ctx context.Context) error {
	c.proc.closeStdin()
	if !c.proc.within(c.proc.done, c.cfg.GracePeriod) {
		c.say("cordon: server %q closed its output but did not end; ended", c.cfg.Server)
		c.proc.killGroup()
		<-c.proc.done
	}
	c.proc.killGroup()
	exit := c.proc.exit(c.cfg.Server)
	answers, settle := c.judge.Close(ctx, "The MCP "+exit.text()+" before it answered. Start the client's connection anew; what the server wrote to stderr may say why.", false)
	c.answer(ctx, answers, settle)
	c.say("cordon: %s", exit.text())
	return exit
}

// answer sends what the judge says to requests that are left. A client that
// does not read holds it up only until ctx ends.
func (c *connection) answer(ctx context.Context, answers [][]byte, settle func() error) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, a := range answers {
			if send(c.stdout, a) != nil {
				return
			}
		}
	}()
	select {
	case <-sent:
	case <-ctx.Done():
		if interrupt(c.cfg.Stdout, writeDeadline(c.cfg.Stdout)) {
			<-sent
		}
	}
	c.after(Verdict{Settle: settle})
}

// end ends the server: its input is closed, then it is asked, then made to.
// Until it has ended, what it writes still goes to the client.
func (c *connection) end(ctx context.Context, serverDone <-chan struct{}) {
	if c.proc == nil {
		return
	}
	c.proc.closeStdin()
	grace := c.cfg.GracePeriod
	if !c.endsByItself(ctx) {
		c.proc.terminateGroup()
		if !c.proc.within(c.proc.done, grace) {
			c.say("cordon: server %q did not end within %s of SIGTERM; killed", c.cfg.Server, grace)
		}
	}
	// A server that ended may leave processes behind, in any case.
	if !c.proc.within(c.proc.done, 0) {
		c.proc.killGroup()
		<-c.proc.done
	}
	c.drain(ctx, serverDone)
	c.proc.killGroup()
	_, settle := c.judge.Close(ctx, "closed", false)
	c.after(Verdict{Settle: settle})
	c.proc.stdout.Close()
}

// patience is how many grace periods a server has to end by itself while a
// slow client still takes what it writes.
const patience = 5

// endsByItself waits for the server to end after its input was closed: as
// long as it still writes, and longer while it owes answers, since a client
// may send its requests and close.
func (c *connection) endsByItself(ctx context.Context) bool {
	deadline := time.Now().Add(c.cfg.Finish)
	for i := 0; ; i++ {
		before := c.sent.Load()
		if c.proc.ends(ctx.Done(), c.cfg.GracePeriod) {
			return true
		}
		owes := c.judge.Unanswered()
		switch {
		case ctx.Err() != nil:
			return false
		case owes > 0 && time.Now().Before(deadline):
		case owes > 0:
			c.say("cordon: server %q owed %d answers %s after the client had closed; ended", c.cfg.Server, owes, c.cfg.Finish)
			return false
		case c.sent.Load() == before || i >= patience:
			return false
		}
	}
}

// drain passes on what an ended server has left in its pipe, for as long as
// the client takes some of it.
func (c *connection) drain(ctx context.Context, serverDone <-chan struct{}) {
	for grace, before := c.cfg.GracePeriod, int64(-1); !c.proc.within(serverDone, grace); {
		c.proc.killGroup() // a process left behind may hold the pipe open
		if now := c.sent.Load(); now != before && ctx.Err() == nil {
			before = now
			continue
		}
		if !c.proc.within(serverDone, grace) && interrupt(c.cfg.Stdout, writeDeadline(c.cfg.Stdout)) {
			<-serverDone
		}
		return
	}
}

// release waits for the client's side to end, and makes it where it can.
func (c *connection) release(clientDone <-chan error) {
	c.over.Store(true)
	if interrupt(c.cfg.Stdin, readDeadline(c.cfg.Stdin)) {
		select {
		case <-clientDone:
			return
		case <-time.After(c.cfg.GracePeriod):
		}
		if interrupt(c.cfg.Stdout, writeDeadline(c.cfg.Stdout)) {
			<-clientDone
		}
	}
}

func readDeadline(r any) func() error {
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok {
		return func() error { return d.SetReadDeadline(time.Unix(1, 0)) }
	}
	return nil
}

func writeDeadline(w any) func() error {
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return func() error { return d.SetWriteDeadline(time.Unix(1, 0)) }
	}
	return nil
}
