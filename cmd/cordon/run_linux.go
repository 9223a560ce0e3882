package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/transaction"
	"github.com/spf13/cobra"
)

// Exit codes of cordon run, beside the command's own.
const (
	exitTimedOut = 124
	exitOwnFault = 125
	exitRefused  = 126
)

// runOptions are the flags of cordon run.
type runOptions struct {
	*runFlags
	*wallFlags
	discard, commit, diff, patch bool
	asJSON                       bool
	onConflict                   string
}

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command inside walls, in a workspace that can be taken back",
		Long: `Run a command inside walls. It sees the workspace, the system's programs and
nothing else of the machine, reaches the hosts that the policy names and no
others, and is held to its caps by the kernel. What it changes in the workspace
is committed when it succeeds and thrown away when it does not.

Exit status: the command's own; 2 wrong usage, 124 its time was up, 125 Cordon itself failed,
126 it was refused, 127 it was not found, 137 it was killed.

Programs of the home (cargo, nvm and the like) are not seen inside: show them by
--read, and pass what they need by --env, such as --env PATH=….`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command (want: cordon run [flags] -- COMMAND [ARG…])")
			}
			return nil
		},
	}
	o := &runOptions{runFlags: addRunFlags(cmd), wallFlags: addWallFlags(cmd)}
	f := cmd.Flags()
	f.BoolVar(&o.discard, "discard", false, "throw the changes away, also when it succeeds")
	f.BoolVar(&o.commit, "commit", false, "commit the changes, also when it fails")
	f.BoolVar(&o.diff, "diff", false, "list the changes on standard error")
	f.BoolVar(&o.patch, "patch", false, "show the changes of text files on standard error, as a unified diff")
	f.StringVar(&o.onConflict, "on-conflict", "stop", "`WHAT` becomes of files that were changed in the workspace meanwhile: stop (nothing is committed), keep (the workspace's stay) or overwrite")
	f.BoolVar(&o.asJSON, "json", false, "print the result as JSON on standard error")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return o.run(args) }
	return cmd
}

// run decides on the command, runs it, and settles what it did.
func (o *runOptions) run(args []string) error {
	if _, known := conflictChoices[o.onConflict]; !known {
		return usagef("--on-conflict %q (want stop, keep or overwrite)", o.onConflict)
	}
	if o.discard && o.commit {
		return usagef("--discard and --commit are opposites (want one of them)")
	}
	if err := o.check(); err != nil {
		return err
	}
	// A reader of ours that goes away must not end Cordon before it has put
	// the workspace in order: the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	core, run, err := o.open()
	if err != nil {
		return ownFault(err)
	}
	run.Workspace = real(run.Workspace) // what is committed to is a directory, not a link to one
	if run.ID == "" {
		if run.ID, err = freshRunID(); err != nil {
			return errors.Join(ownFault(err), core.close())
		}
	}
	err = o.inside(core, run, args)
	return errors.Join(err, core.close())
}

func freshRunID() (string, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return "run-" + hex.EncodeToString(b[:]), nil
}

// ownFault gives an error the exit code that says Cordon failed, not the
// command; wrong usage keeps its own.
func ownFault(err error) error {
	var exit exitError
	if errors.As(err, &exit) {
		return err
	}
	return exitError{exitOwnFault, err}
}

func (o *runOptions) inside(core *core, run cordon.Run, args []string) (err error) {
	ctx, stop := signal.NotifyContext(o.runFlags.cmd.Context(), syscall.SIGQUIT)
	defer stop()
	d, err := o.decide(ctx, core, run, args)
	if err != nil {
		return err
	}
	state, err := stateDir()
	if err != nil {
		return ownFault(err)
	}
	if err := o.recoverOld(state); err != nil {
		return ownFault(err)
	}
	w, err := o.build(core, run, state)
	if err != nil {
		return ownFault(err)
	}
	defer func() { err = errors.Join(err, w.close()) }()
	roots, err := beginRoots(w.policy, filepath.Join(state, "transactions"))
	if err != nil {
		return ownFault(err)
	}
	attached, detach := core.attach(ctx, run)
	defer detach()
	result, err := o.execute(attached, w, roots, args)
	if err != nil {
		return errors.Join(startFault(err), rollbackAll(roots))
	}
	return o.settle(ctx, core, d, w, roots, result)
}

// settle ends the run: what it changed, what it used, what is to be said.
func (o *runOptions) settle(ctx context.Context, core *core, d cordon.Decision, w *walls, roots []writableRoot, result sandbox.Result) error {
	// What it sent is counted before anything is committed: the end of a
	// command may come before the word that it was too much.
	up, down := w.net.close()
	if result.Cause == nil {
		result.Cause = w.net.excess()
	}
	for _, line := range w.net.refusals() {
		core.log.printf("%s", printable(line))
	}
	out := outcome{
		Run: w.policy.RunID(), Decision: d.Outcome.String(), Runtime: w.runtime.Name(), ExitCode: exitCode(result),
		Wall: result.Wall.Seconds(), Stats: result.Stats, Controls: result.Controls,
	}
	if result.Cause != nil {
		out.Cause = causeText(result.Cause, w.caps)
	}
	err := unwritten(result, w.caps.OutputBytes)
	if err != nil {
		err = errors.Join(err, rollbackAll(roots))
	} else {
		err = o.conclude(&out, roots, w, result)
	}
	out.Sent, out.Received = up, down // charged as they went
	used := cordon.Usage{Exec: result.Wall, BytesWritten: result.Stats.DiskBytes, Failed: out.ExitCode != 0}
	// A signal that ended the run must not keep its use from being stored.
	err = errors.Join(err, core.guard.Settle(context.WithoutCancel(ctx), d, used))
	if err := o.report(&out); err != nil {
		return ownFault(err)
	}
	switch {
	case err != nil:
		return ownFault(err)
	case out.ExitCode != 0:
		return exitError{code: out.ExitCode}
	}
	return nil
}

// causeText says why the command was ended, and what allows more.
func causeText(cause error, c sandbox.Caps) string {
	text := strings.TrimPrefix(cause.Error(), "sandbox: ")
	switch {
	case errors.Is(cause, sandbox.ErrDisk):
		text += fmt.Sprintf(" (%d bytes, temporary files among them; --max-bytes allows more)", c.DiskBytes)
	case errors.Is(cause, sandbox.ErrTimeout):
		text += fmt.Sprintf(" (%s; --timeout allows more)", c.Wall)
	case errors.Is(cause, sandbox.ErrMemory):
		text += " (--mem allows more)"
	}
	return text
}

// unwritten is that output was lost. A reader that went away did not want it.
func unwritten(r sandbox.Result, most int64) error {
	if r.StdoutCut || r.StderrCut {
		return fmt.Errorf("output was cut at %d bytes, so that nothing was committed (--max-output allows more)", most)
	}
	if r.OutputErr == nil || errors.Is(r.OutputErr, syscall.EPIPE) {
		return nil
	}
	return fmt.Errorf("output could not be written, so that nothing was committed: %w", r.OutputErr)
}

// decide asks the guard about the command, as any door does.
func (o *runOptions) decide(ctx context.Context, core *core, run cordon.Run, args []string) (cordon.Decision, error) {
	raw, err := json.Marshal(map[string]any{"argv": args, "cwd": run.Workspace})
	if err != nil {
		return cordon.Decision{}, ownFault(err)
	}
	d := core.guard.Decide(ctx, cordon.Call{Run: run, Tool: "execute_command", Args: raw})
	if !d.Refused() {
		return d, nil
	}
	for i := range d.Findings {
		f := &d.Findings[i]
		core.log.printf("%s: %s (%s)", f.Outcome, printable(f.Detail), f.Rule)
	}
	code, why := exitRefused, "the command was refused; nothing was run"
	if d.Killed {
		code, why = exitKilled, "the command was refused, and its run ended for good; nothing was run"
	}
	if o.asJSON {
		if err := o.report(&outcome{Run: run.ID, Decision: d.Outcome.String(), ExitCode: code, Cause: why}); err != nil {
			return d, ownFault(err)
		}
	}
	return d, exitError{code, errors.New(why)}
}

// recoverOld ends what a crash of an earlier run left.
func (o *runOptions) recoverOld(state string) error {
	done, err := transaction.Recover(filepath.Join(state, "transactions"))
	for _, r := range done {
		what := "rolled back"
		if r.Committed {
			what = "committed"
		}
		fmt.Fprintf(o.runFlags.cmd.ErrOrStderr(), "cordon: a run that was interrupted in %s was %s\n", printable(r.Workspace), what)
	}
	return err
}

// execute starts the command behind the walls and waits for its end.
func (o *runOptions) execute(ctx context.Context, w *walls, roots []writableRoot, args []string) (sandbox.Result, error) {
	cmd := o.runFlags.cmd
	s := w.spec(roots, args)
	s.Stdin, s.Stdout, s.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.net.attach(ctx, &s, cancel)
	screen, err := openTerminal(&s)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer screen.restore()
	p, err := w.runtime.Start(ctx, s)
	if err != nil {
		return sandbox.Result{}, err
	}
	screen.follow(p)
	return p.Wait()
}

// startFault tells a command that is not there from walls that cannot be.
func startFault(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return exitError{127, err}
	case errors.Is(err, os.ErrPermission):
		return exitError{exitRefused, err}
	}
	return ownFault(err)
}

func exitCode(r sandbox.Result) int {
	switch {
	case errors.Is(r.Cause, sandbox.ErrTimeout):
		return exitTimedOut
	case r.Cause != nil:
		return exitKilled
	}
	return r.ExitCode
}
