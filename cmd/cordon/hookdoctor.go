package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/hook"
	"github.com/cordon-sandbox/cordon/door/hook/install"
	"github.com/spf13/cobra"
)

// trial is one thing that was tried with a copy of the installed hook.
type trial struct {
	// Fault is what was done to it, Hook how its process ended.
	Fault string `json:"fault"`
	Hook  string `json:"hook"`
	// Effect is what the agent would have done with the call, and Why.
	Effect string `json:"effect"`
	Why    string `json:"why"`
	// Want is what was to be expected of a hook that works; empty where that
	// is the agent's to say.
	Want string `json:"want,omitempty"`
}

// agentReport is what cordon doctor --agent prints.
type agentReport struct {
	Agent    string   `json:"agent"`
	Settings string   `json:"settings"`
	Command  []string `json:"command"`
	Mode     string   `json:"mode"`
	// Closes names the option by which a failure blocks; Closed says that it
	// is set.
	Closes string `json:"closes,omitempty"`
	Closed bool   `json:"closed"`
	// Disabled names a setting by which no hook runs.
	Disabled string  `json:"disabled,omitempty"`
	Trials   []trial `json:"trials"`
	OK       bool    `json:"ok"`
}

// agentDoctor tries a copy of the hook that is installed for an agent: with
// good and bad events, and with the faults that a process can have. Nothing of
// it goes into the audit.
func agentDoctor(cmd *cobra.Command, agent string, asJSON bool) error {
	r, h, err := installedHook(agent)
	if err != nil {
		return err
	}
	// What a settings file names is not run because it stands there: the file
	// may be one that came with a project.
	if exe, err := os.Executable(); err != nil || !sameFile(exe, h.Words[0]) {
		return fmt.Errorf("the hook in %s runs %q, which is not this program (want: cordon install %s)", r.Settings, h.Words[0], agent)
	}
	dir, err := os.MkdirTemp("", "cordon-doctor-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := &hookTrials{agent: agent, words: h.Words, closed: h.Closed, dir: dir, report: r}
	if err := t.run(cmd.Context()); err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	} else {
		err = printAgentReport(cmd.OutOrStdout(), r)
	}
	if err == nil && !r.OK {
		return exitError{code: exitMalfunction}
	}
	return err
}

// installedHook finds the hook, in the project's settings or the user's own.
func installedHook(agent string) (*agentReport, install.Handler, error) {
	facts, err := install.FactsOf(agent)
	if err != nil {
		return nil, install.Handler{}, exitError{exitUsage, err}
	}
	var looked []string
	for _, project := range []bool{true, false} {
		path, err := (&installFlags{project: project}).path(agent)
		if err != nil {
			return nil, install.Handler{}, err
		}
		looked = append(looked, path)
		text, _, err := install.Read(path)
		if err != nil || text == nil {
			if err != nil {
				return nil, install.Handler{}, err
			}
			continue
		}
		hooks, err := install.Find(agent, text)
		if err != nil {
			return nil, install.Handler{}, fmt.Errorf("%s: %w", path, err)
		}
		if len(hooks) > 0 {
			off, err := install.Disabled(agent, text)
			if err != nil {
				return nil, install.Handler{}, fmt.Errorf("%s: %w", path, err)
			}
			r := &agentReport{Disabled: off, Agent: agent, Settings: path, Command: hooks[0].Words, Closes: facts.Closes, Closed: hooks[0].Closed}
			return r, hooks[0], nil
		}
	}
	return nil, install.Handler{}, fmt.Errorf("no hook of Cordon's in %s (want: cordon install %s)", strings.Join(looked, " or "), agent)
}

// hookTrials runs the trials.
type hookTrials struct {
	agent  string
	words  []string
	closed bool
	dir    string
	report *agentReport
	n      int
}

const (
	// trialDeadline is the hook's own in a trial, trialTimeout the agent's.
	trialDeadline = time.Second
	trialTimeout  = 15 * time.Second
)

func (t *hookTrials) run(ctx context.Context) error {
	_, flags, err := hookArgs(t.words[2:])
	mode := cordon.Enforce
	if err == nil {
		c, lerr := flags.loadFrom(os.LookupEnv, os.Getwd)
		if mode = flags.failMode(); lerr == nil {
			mode = c.Mode()
		}
	}
	t.report.Mode, t.report.OK = mode.String(), t.report.Disabled == ""
	refuses := hook.Refuses.String()
	if mode != cordon.Enforce {
		refuses = hook.Proceeds.String()
	}
	db := filepath.Join(t.dir, "doctor.db")
	secret, harmless := t.sample("cat ~/.ssh/id_rsa"), t.sample("echo hello")
	large := append(bytes.Clone(harmless), bytes.Repeat([]byte(" "), hook.MaxEvent)...)
	t.judge("none: a harmless call", hook.Proceeds.String(), t.start(ctx, db, bytes.NewReader(harmless)))
	good := t.start(ctx, db, bytes.NewReader(secret))
	t.judge("none: a call that reads an SSH key", refuses, good)
	t.judge("the event is no JSON", refuses, t.start(ctx, db, strings.NewReader(`{"hook_event_name":`)))
	t.judge("the event is too large", refuses, t.start(ctx, db, bytes.NewReader(large)))
	t.judge("the event does not end", refuses, t.startOpen(ctx, db, trialDeadline, trialTimeout, secret))
	t.judge("the database cannot be opened", refuses, t.start(ctx, t.dir, bytes.NewReader(secret)))
	// From here the process itself fails: what follows is the agent's doing.
	t.judge("crash: the process is killed", "", t.startKilled(ctx, db, secret))
	t.judge("time-out: the agent ends the process", "", t.startOpen(ctx, db, time.Hour, 500*time.Millisecond, secret))
	cut := good
	cut.Stdout = append(bytes.Clone(good.Stdout[:len(good.Stdout)/2]), '"')
	t.judge("bad JSON: the answer is cut", "", cut)
	// No contract has a limit; an agent that has one reads a part.
	over := good
	over.Stdout = append([]byte(`{"systemMessage":"`), bytes.Repeat([]byte("x"), 4<<20)...)
	t.judge("oversized: the answer is read up to 4 MiB", "", over)
	return ctx.Err()
}

// judge notes what the agent would do.
func (t *hookTrials) judge(fault, want string, p hook.Process) {
	effect, why := hook.Holds(t.agent, t.closed, p)
	if want != "" && effect.String() != want {
		t.report.OK = false
	}
	how := fmt.Sprintf("exit status %d", p.Exit)
	switch {
	case p.TimedOut:
		how = "no answer"
	case p.Crashed:
		how = "killed"
	}
	t.report.Trials = append(t.report.Trials, trial{fault, how, effect.String(), why, want})
}

// sample is an event of the agent's for a command.
func (t *hookTrials) sample(command string) []byte {
	t.n++
	session := fmt.Sprintf("doctor-%d-%d", os.Getpid(), t.n)
	e := map[string]any{
		"session_id": session, "cwd": t.dir, "hook_event_name": "PreToolUse", "permission_mode": "default",
		"tool_name": "Bash", "tool_input": map[string]any{"command": command}, "tool_use_id": session, "transcript_path": "",
	}
	switch t.agent {
	case "cursor":
		e = map[string]any{
			"conversation_id": session, "generation_id": session, "hook_event_name": "beforeShellExecution",
			"workspace_roots": []string{t.dir}, "command": command, "cwd": "",
		}
	case "gemini":
		e["hook_event_name"], e["tool_name"] = "BeforeTool", "run_shell_command"
	}
	b, _ := json.Marshal(e) // strings and maps of them
	return b
}

// command is the copy of the hook: the same program and flags, but for where it
// stores and how long it may take.
func (t *hookTrials) command(ctx context.Context, db string, deadline time.Duration) *exec.Cmd {
	args := slices.Concat(t.words[1:], []string{"--db", db, "--no-daemon", "--deadline", deadline.String()})
	cmd := exec.CommandContext(ctx, t.words[0], args...)
	cmd.Dir = t.dir
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasSuffix(name, "_PROJECT_DIR") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	return cmd
}

func (t *hookTrials) start(ctx context.Context, db string, stdin io.Reader) hook.Process {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	cmd := t.command(ctx, db, 10*time.Second)
	cmd.Stdin = stdin
	return ended(ctx, cmd)
}

// startOpen gives the hook an event that does not end, and the agent's time.
func (t *hookTrials) startOpen(ctx context.Context, db string, deadline, timeout time.Duration, event []byte) hook.Process {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return hook.Process{Exit: 127}
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.Write(event); err != nil { // it is smaller than a pipe
		return hook.Process{Exit: 127}
	}
	cmd := t.command(ctx, db, deadline)
	cmd.Stdin = r
	return ended(ctx, cmd)
}

// startKilled kills the hook before its event is complete.
func (t *hookTrials) startKilled(ctx context.Context, db string, event []byte) hook.Process {
	p := t.startOpen(ctx, db, time.Hour, 200*time.Millisecond, event)
	p.TimedOut, p.Crashed = false, true
	return p
}

// ended runs a command and says how it ended.
func ended(ctx context.Context, cmd *exec.Cmd) hook.Process {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	p := hook.Process{Stdout: out.Bytes(), Stderr: errOut.Bytes(), TimedOut: ctx.Err() != nil}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		p.Exit = exit.ExitCode()
		p.Crashed = p.Exit < 0
	default:
		p.Exit = 127 // it could not be started, as a shell says it
	}
	return p
}

func printAgentReport(out io.Writer, r *agentReport) error {
	closes := "this agent has no option by which a failed hook blocks"
	if r.Closes != "" {
		closes = "a failed hook lets the call run: install again to set " + r.Closes
		if r.Closed {
			closes = "a failed hook blocks (" + r.Closes + ")"
		}
	}
	fmt.Fprintf(out, "%s: %s\nhook: %s\nmode: %s\n%s\n\n", r.Agent, r.Settings, strings.Join(r.Command, " "), r.Mode, closes)
	if r.Disabled != "" {
		fmt.Fprintf(out, "NO HOOK RUNS: %q is set in this file\n\n", r.Disabled)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tHOOK\tTHE CALL\tWHY")
	for _, t := range r.Trials {
		mark := ""
		if t.Want != "" && t.Want != t.Effect {
			mark = " (want " + t.Want + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\t%s\n", t.Fault, t.Hook, t.Effect, mark, t.Why)
	}
	return w.Flush()
}
