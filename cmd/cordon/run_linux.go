package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/native"
	"github.com/cordon-sandbox/cordon/contain/transaction"
	"github.com/cordon-sandbox/cordon/guard/fsscope"
	"github.com/cordon-sandbox/cordon/guard/policy"
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
	mem, pids, maxBytes   int64
	cpus                  float64
	timeout               time.Duration
	discard, commit, diff bool
	asJSON                bool
}

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command inside walls, in a workspace that can be taken back",
		Long: `Run a command inside walls. It sees the workspace, the system's programs and
nothing else of the machine, has no network, and is held to its caps by the
kernel. What it changes in the workspace is committed when it succeeds and
thrown away when it does not.

Exit status: the command's own; 124 its time was up, 125 Cordon itself failed,
126 it was refused, 127 it was not found, 137 it was killed.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no command (want: cordon run [flags] -- COMMAND [ARG…])")
			}
			return nil
		},
	}
	o := &runOptions{runFlags: addRunFlags(cmd)}
	f := cmd.Flags()
	f.String("runtime", "", "the `NAME` of the runtime: native, or auto for the strongest there is")
	f.Int64Var(&o.mem, "mem", 0, "memory in `MB` (default 2048)")
	f.Float64Var(&o.cpus, "cpus", 0, "`NUMBER` of processors (default 2)")
	f.Int64Var(&o.pids, "pids", 0, "`NUMBER` of processes (default 512)")
	f.DurationVar(&o.timeout, "timeout", 0, "`TIME` until it is ended, such as 10s or 5m (default the policy's)")
	f.Int64Var(&o.maxBytes, "max-bytes", 0, "`BYTES` that it may write (default the policy's)")
	f.BoolVar(&o.discard, "discard", false, "throw the changes away, also when it succeeds")
	f.BoolVar(&o.commit, "commit", false, "commit the changes, also when it fails")
	f.BoolVar(&o.diff, "diff", false, "list the changes on standard error")
	f.BoolVar(&o.asJSON, "json", false, "print the result as JSON on standard error")
	cmd.MarkFlagsMutuallyExclusive("discard", "commit")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return o.run(args) }
	return cmd
}

// outcome is what --json prints.
type outcome struct {
	Run       string                `json:"run_id"`
	Decision  string                `json:"decision"`
	ExitCode  int                   `json:"exit_code"`
	Cause     string                `json:"cause,omitempty"`
	Wall      float64               `json:"wall_seconds"`
	Stats     sandbox.Stats         `json:"stats"`
	Controls  []sandbox.Held        `json:"controls"`
	Committed bool                  `json:"committed"`
	Changes   []transaction.Change  `json:"changes"`
	Refused   []transaction.Refusal `json:"refused,omitempty"`
}

// run decides on the command, runs it, and settles what it did.
func (o *runOptions) run(args []string) error {
	if o.timeout < 0 || o.mem < 0 || o.mem > 1<<40 || o.pids < 0 || o.cpus < 0 || o.maxBytes < 0 {
		return usagef("--timeout, --mem, --pids, --cpus and --max-bytes bound the command (want more than zero)")
	}
	core, run, err := o.open()
	if err != nil {
		return ownFault(err)
	}
	// A runtime that was asked for is the one that is used, or none is (G7).
	if name := core.config.Runtime(); name != native.Name && name != "auto" {
		return errors.Join(usagef("runtime %q is not built yet (want %s or auto)", name, native.Name), core.close())
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

func (o *runOptions) inside(core *core, run cordon.Run, args []string) error {
	ctx := o.cmd.Context()
	d, err := o.decide(ctx, core, run, args)
	if err != nil {
		return err
	}
	p, err := core.guard.Policy(run)
	if err != nil {
		return ownFault(err)
	}
	state, err := stateDir()
	if err != nil {
		return ownFault(err)
	}
	if err := o.recoverOld(state); err != nil {
		return ownFault(err)
	}
	tx, err := transaction.Begin(transaction.Config{Workspace: run.Workspace, StateDir: filepath.Join(state, "transactions")})
	if err != nil {
		return ownFault(err)
	}
	attached, stop := core.guard.Attach(ctx, run)
	defer stop()
	result, err := o.execute(attached, state, o.spec(p, tx, args))
	if err != nil {
		return errors.Join(startFault(err), tx.Rollback())
	}
	out := outcome{Run: run.ID, Decision: d.Outcome.String(), ExitCode: exitCode(result), Wall: result.Wall.Seconds(), Stats: result.Stats, Controls: result.Controls}
	if result.Cause != nil {
		out.Cause = result.Cause.Error()
	}
	err = o.conclude(&out, tx, p, result)
	used := cordon.Usage{Exec: result.Wall, BytesWritten: result.Stats.DiskBytes}
	if settleErr := core.guard.Settle(ctx, d, used); settleErr != nil {
		err = errors.Join(err, settleErr)
	}
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
	code := exitRefused
	if d.Killed {
		code = exitKilled
	}
	return d, exitError{code, fmt.Errorf("the command was refused; nothing was run")}
}

// stateDir is where transactions and runtimes keep their things.
func stateDir() (string, error) {
	db, err := sqlite.DefaultPath()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(db)
	return dir, os.MkdirAll(dir, 0o700)
}

// recoverOld ends what a crash of an earlier run left.
func (o *runOptions) recoverOld(state string) error {
	done, err := transaction.Recover(filepath.Join(state, "transactions"))
	for _, r := range done {
		what := "rolled back"
		if r.Committed {
			what = "committed"
		}
		fmt.Fprintf(o.cmd.ErrOrStderr(), "cordon: a run that was interrupted in %s was %s\n", printable(r.Workspace), what)
	}
	return err
}

// spec is the command in its walls: the policy's roots, the workspace as an
// overlay, an environment that holds nothing of the user's.
func (o *runOptions) spec(p *policy.Policy, tx *transaction.Tx, args []string) sandbox.Spec {
	workspace := p.Workspace()
	s := sandbox.Spec{
		ID: p.RunID(), Argv: args, Dir: workspace, Env: environment(p),
		Caps:  o.caps(p),
		Stdin: o.cmd.InOrStdin(), Stdout: o.cmd.OutOrStdout(), Stderr: o.cmd.ErrOrStderr(),
	}
	// A tier that may only read the workspace gets it so from the kernel too.
	ws := sandbox.Mount{Source: real(workspace), Target: workspace}
	if slices.Contains(p.Roots(), policy.Root{Path: workspace, Write: true}) {
		ws.Access, ws.Upper, ws.Work = sandbox.Overlay, tx.Upper(), tx.Work()
	}
	s.Mounts = append(s.Mounts, ws)
	for _, r := range p.Roots() {
		if r.Path == workspace || isSystem(r.Path) || strings.HasPrefix(r.Path, "/tmp/agent") {
			continue // there already, or the sandbox's own
		}
		m := sandbox.Mount{Source: real(r.Path), Target: r.Path, Optional: true}
		if r.Write {
			m.Access = sandbox.ReadWrite
		}
		s.Mounts = append(s.Mounts, m)
	}
	return s
}

// real is the path without links: the runtime follows none in what it mounts.
func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path // the runtime says what is wrong with it
}

var systemPlaces = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

func isSystem(path string) bool {
	return slices.ContainsFunc(systemPlaces, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

func (o *runOptions) caps(p *policy.Policy) sandbox.Caps {
	c := sandbox.Caps{MemoryBytes: o.mem << 20, CPUs: o.cpus, PIDs: o.pids, Wall: p.Caps().Exec, DiskBytes: p.Caps().BytesWritten}
	if o.timeout > 0 {
		c.Wall = min(c.Wall, o.timeout)
	}
	if o.maxBytes > 0 {
		c.DiskBytes = min(c.DiskBytes, o.maxBytes)
	}
	c.FileBytes = c.DiskBytes
	return c
}

// passedOn are the variables that tell how to show things, and no secrets.
var passedOn = []string{"LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLORTERM", "NO_COLOR", "TZ", "CI"}

func environment(p *policy.Policy) []string {
	env := []string{"HOME=/tmp", "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh", "TMPDIR=/tmp", "CORDON_RUN=" + p.RunID(), "PATH=" + programPath(p)}
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// programPath keeps of PATH what is there inside.
func programPath(p *policy.Policy) string {
	var dirs []string
	visible := func(dir string) bool {
		return isSystem(dir) || slices.ContainsFunc(p.Roots(), func(r policy.Root) bool { return dir == r.Path || strings.HasPrefix(dir, r.Path+"/") })
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && visible(filepath.Clean(dir)) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

func (o *runOptions) execute(ctx context.Context, state string, s sandbox.Spec) (sandbox.Result, error) {
	runtime, err := native.New(native.Config{StateDir: filepath.Join(state, "native")})
	if err != nil {
		return sandbox.Result{}, err
	}
	defer runtime.Close()
	p, err := runtime.Start(ctx, s)
	if err != nil {
		return sandbox.Result{}, err
	}
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

// conclude commits or throws away.
func (o *runOptions) conclude(out *outcome, tx *transaction.Tx, p *policy.Policy, r sandbox.Result) error {
	changes, err := tx.Diff()
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	out.Changes = changes
	keep := r.Cause == nil && (r.ExitCode == 0 || o.commit) && !o.discard
	if !keep || len(changes) == 0 {
		return tx.Rollback()
	}
	protected, err := protection(p, tx.Upper())
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	report, err := tx.Commit(transaction.Options{Protected: protected})
	if errors.Is(err, transaction.ErrConflict) {
		for _, c := range report.Conflicts {
			fmt.Fprintf(o.cmd.ErrOrStderr(), "cordon: %s was changed in the workspace meanwhile\n", printable(c.Path))
		}
		return errors.Join(fmt.Errorf("nothing was committed: %w", err), tx.Rollback())
	}
	if err != nil {
		return err
	}
	out.Committed, out.Changes, out.Refused = true, report.Applied, report.Refused
	return nil
}

// protection asks the file scope which paths a run may not leave changed.
// upper shows what the run left.
func protection(p *policy.Policy, upper string) (func(rel string, kind transaction.ChangeKind) string, error) {
	scope, err := fsscope.New(fsscope.Config{
		Roots:     []fsscope.Root{{Path: p.Workspace(), Write: true}},
		Workspace: p.Workspace(), Home: p.Home(), Coding: true,
	})
	if err != nil {
		return nil, err
	}
	return func(rel string, kind transaction.ChangeKind) string {
		if kind == transaction.ModeOnly {
			return "" // a directory whose content changed
		}
		e := cordon.Effect{Kind: cordon.Write, Target: filepath.Join(p.Workspace(), rel), Dir: "/", Expanded: true, NoFollow: true}
		if kind == transaction.Deleted {
			e.Kind = cordon.Delete
		} else if info, err := os.Lstat(filepath.Join(upper, rel)); err == nil && info.IsDir() {
			e.Op = "create" // an empty directory runs nothing; what is in it is asked about by itself
		}
		for _, f := range scope.Judge(e).Findings {
			if f.Rule == fsscope.RuleProtected || f.Rule == fsscope.RulePersistence {
				return f.Detail
			}
		}
		return ""
	}, nil
}

// report says what became of the run, on standard error: standard output is
// the command's.
func (o *runOptions) report(out *outcome) error {
	w := o.cmd.ErrOrStderr()
	if o.asJSON {
		return json.NewEncoder(w).Encode(out)
	}
	if out.Cause != "" {
		fmt.Fprintf(w, "cordon: ended: %s\n", out.Cause)
	}
	for _, r := range out.Refused {
		fmt.Fprintf(w, "cordon: not committed: %s: %s\n", printable(r.Path), printable(r.Why))
	}
	if o.diff {
		listChanges(w, out)
	}
	return nil
}

func listChanges(w io.Writer, out *outcome) {
	what := "thrown away"
	if out.Committed {
		what = "committed"
	}
	fmt.Fprintf(w, "cordon: %d changes, %s\n", len(out.Changes), what)
	for _, c := range out.Changes {
		fmt.Fprintf(w, "  %-8s %s\n", c.Kind, printable(c.Path))
	}
}
