package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/hook"
	"github.com/cordon-sandbox/cordon/door/hook/daemon/relay"
	"github.com/cordon-sandbox/cordon/door/mcp"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/spf13/cobra"
)

func hookCommand() *cobra.Command {
	cmd, flags := newHookCommand()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return cmd
}

// newHookCommand makes the command without what it does, which the daemon
// needs for its flags.
func newHookCommand() (*cobra.Command, *hookFlags) {
	cmd := &cobra.Command{
		Use:   "hook [flags] " + strings.Join(hook.Agents(), "|"),
		Short: "Answer one event of a coding agent's hooks on standard input",
		Long: `Answer one event of a coding agent's hooks: the event is read from standard
input, the agent's own form of an answer is written to standard output. Agents
are set up by "cordon install". A call is decided, a result is recorded, a
prompt is recorded as the user's.

The run is the agent's session. The workspace is where the agent was started
when the session opened, or --workspace.

Exit status: 0 there is an answer, 2 the event could not be read and is refused.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: hook.Agents(),
	}
	f := &hookFlags{runFlags: addRunFlags(cmd), start: time.Now()}
	cmd.Flags().DurationVar(&f.deadline, "deadline", 0, "`TIME` that an answer may take (default 6s in mode enforce, 2s in shadow)")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// To an agent 2 is a refusal. A hook that is known to be in shadow mode
		// refuses nothing, not even for its own command line.
		code := exitUsage
		if f.failMode() != cordon.Enforce {
			code = exitOK
		}
		return exitError{code, fmt.Errorf("%w (see %q)", err, cmd.CommandPath()+" --help")}
	})
	cmd.Flags().BoolVar(&f.noDaemon, "no-daemon", false, "decide in this process even if a daemon is there")
	return cmd, f
}

// hookFlags are those of cordon hook.
type hookFlags struct {
	*runFlags
	deadline time.Duration
	noDaemon bool
	start    time.Time
}

// run answers the event that is on in. Whatever fails, there is an answer.
func (f *hookFlags) run(ctx context.Context, agent string, in io.Reader, out io.Writer) error {
	// What such a short life allocates is not worth collecting.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(hookMemory))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c, err := f.loadFrom(os.LookupEnv, os.Getwd)
	mode := f.failMode()
	if err == nil {
		mode = c.Mode()
	}
	deadline := f.deadline
	if deadline <= 0 {
		deadline = hook.DefaultDeadline(mode)
	}
	timer := time.NewTimer(deadline - time.Since(f.start))
	defer timer.Stop()
	read, done := make(chan []byte, 1), make(chan hookAnswer, 1)
	go func() {
		event, rerr := relay.ReadEvent(in)
		read <- event
		done <- f.answer(ctx, agent, event, c, mode, errors.Join(err, rerr))
	}()
	select {
	case a := <-done:
		err := f.write(a.reply, out)
		f.end(a.close, timer.C)
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	var event []byte
	select {
	case event = <-read:
	default: // not even the event came
	}
	return f.write(hook.Failed(agent, event, mode, errors.New("no decision in time")), out)
}

// hookMemory is where the collector starts all the same.
const hookMemory = 512 << 20

// hookAnswer is an answer, and what is left to be closed when it is out.
type hookAnswer struct {
	reply hook.Reply
	close func() error // nil for nothing
}

// end closes what was only watched with. A database that does not take its
// counters holds no call up, and makes no answer a failure.
func (f *hookFlags) end(close func() error, late <-chan time.Time) {
	if close == nil {
		return
	}
	done := make(chan error, 1)
	go func() { done <- close() }()
	select {
	case err := <-done:
		if err != nil {
			fmt.Fprintf(f.cmd.ErrOrStderr(), "cordon hook: %v\n", err)
		}
	case <-late:
	}
}

// answer answers in this process. err is what failed before.
func (f *hookFlags) answer(ctx context.Context, agent string, event []byte, c *config.Config, mode cordon.Mode, err error) (a hookAnswer) {
	defer func() {
		if p := recover(); p != nil {
			a.reply = hook.Failed(agent, event, mode, fmt.Errorf("panic: %v", p))
		}
	}()
	if err == nil && mode == cordon.Off {
		a.reply = hook.Passed(agent, event)
		return a
	}
	var door *hook.Door
	var core *core
	if err == nil {
		door, core, err = f.openDoor(ctx, agent, c)
	}
	if err != nil {
		a.reply = hook.Failed(agent, event, mode, err)
		return a
	}
	var late bool
	a.reply, late = door.Answer(ctx, hook.Input{Event: event, Project: os.Getenv(hook.ProjectVar(agent))})
	switch {
	case late: // the guard may still be at work
	case mode != cordon.Enforce:
		a.close = core.close
	default:
		// What the call will use has to be stored before it runs, or the next
		// one would not know of it.
		if err := core.close(); err != nil {
			a.reply = hook.Failed(agent, event, mode, err)
		}
	}
	return a
}

// write writes an answer. The agent reads standard error where the exit status
// is not 0.
func (f *hookFlags) write(r hook.Reply, out io.Writer) error {
	return writeReply(r.Stdout, r.Stderr, r.Exit, out, f.cmd.ErrOrStderr())
}

func writeReply(stdout []byte, stderr string, exit int, out, errOut io.Writer) error {
	if stderr != "" {
		fmt.Fprintln(errOut, stderr)
	}
	if len(stdout) > 0 {
		if _, err := out.Write(append(slices.Clip(stdout), '\n')); err != nil {
			// 2 is a refusal to every agent; what was written may be cut.
			return exitError{exitUsage, fmt.Errorf("write the answer: %w", err)}
		}
	}
	if exit != 0 {
		return exitError{code: exit}
	}
	return nil
}

// failMode is the mode in which a failure is answered where no configuration
// says one: the flag's, or off where everything was switched off, else enforce.
func (f *hookFlags) failMode() cordon.Mode {
	var m cordon.Mode
	if flag := f.cmd.Flags().Lookup("mode"); flag.Changed && m.UnmarshalText([]byte(flag.Value.String())) == nil {
		return m
	}
	if strings.EqualFold(strings.TrimSpace(os.Getenv("ATOM_SANDBOX_ENABLED")), "false") {
		return cordon.Off
	}
	return cordon.Enforce
}

// loadFrom reads the configuration by the flags and an environment. dir is the
// directory that relative paths start from; nil makes them errors.
func (f *hookFlags) loadFrom(getenv func(string) (string, bool), dir func() (string, error)) (*config.Config, error) {
	given := map[string][]string{}
	for _, name := range []string{"profile", "tier", "mode", "read", "write", "allow-host", "ecosystem", "allow-tool", "db"} {
		flag := f.cmd.Flags().Lookup(name)
		if !flag.Changed {
			continue
		}
		if list, err := f.cmd.Flags().GetStringArray(name); err == nil {
			given[name] = list
		} else {
			given[name] = []string{flag.Value.String()}
		}
	}
	in := config.Input{Flags: given, Getenv: getenv, File: f.config}
	if dir != nil {
		var err error
		if in.Dir, err = dir(); err != nil {
			return nil, fmt.Errorf("working directory: %w", err)
		}
	}
	return config.Load(in)
}

// openDoor opens what a door needs.
func (f *hookFlags) openDoor(ctx context.Context, agent string, c *config.Config) (*hook.Door, *core, error) {
	run, err := f.hookRun(c)
	if err != nil {
		return nil, nil, err
	}
	core, err := openCore(ctx, c, f.cmd.ErrOrStderr(), newPackages(c, hookResolveTime, run.Workspace))
	if err != nil {
		return nil, nil, err
	}
	door, err := hook.New(hook.Config{
		Agent: agent, Guard: core.guard, Mode: c.Mode(), Run: run, Deadline: f.deadline,
		ServerName: mcp.ServerName, Logf: core.log.printf,
	})
	if err != nil {
		return nil, nil, errors.Join(err, core.close())
	}
	return door, core, nil
}

// hookRun is the run as far as the flags and the configuration describe it.
func (f *hookFlags) hookRun(c *config.Config) (cordon.Run, error) {
	r := cordon.Run{ID: f.runID, Tenant: f.tenant, Agent: f.agent, User: f.user, Session: f.session, Tier: c.Tier(), Profile: c.Profile()}
	var err error
	if f.workspace != "" {
		if r.Workspace, err = directory("--workspace", f.workspace, nil); err != nil {
			return r, err
		}
	}
	if r.Home, err = directory("--home", f.home, os.UserHomeDir); err != nil {
		return r, err
	}
	whole := r
	if whole.Workspace == "" {
		whole.Workspace = r.Home // the event names it
	}
	return r, policy.CheckRun(whole)
}
