package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/transaction"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/spf13/cobra"
)

// insideName is the command by which Cordon starts a server inside walls, in a
// process of its own. It is not for people.
const insideName = "inside"

// serverLife is how long a server may run: its calls have the caps.
const serverLife = 365 * 24 * time.Hour

// serverOutput is how much a server may print, in bytes.
const serverOutput = 1 << 50

// insideCommand runs a server behind the walls that its client's run has. It
// works in the workspace in place, as its answers are to be true when they
// are given: what must not be changed there is shown read-only.
func insideCommand() *cobra.Command {
	cmd := &cobra.Command{Use: insideName + " -- SERVER [ARG…]", Hidden: true, Args: cobra.MinimumNArgs(1)}
	o := &runOptions{runFlags: addRunFlags(cmd), wallFlags: addWallFlags(cmd)}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		core, run, err := o.open()
		if err != nil {
			return ownFault(err)
		}
		run.Workspace = real(run.Workspace)
		state, err := stateDir()
		if err != nil {
			return errors.Join(ownFault(err), core.close())
		}
		w, err := o.build(core, run, state)
		if err != nil {
			return errors.Join(ownFault(err), core.close())
		}
		attached, detach := core.attach(cmd.Context(), run)
		defer detach()
		result, err := o.serveInside(attached, w, args)
		if err != nil {
			return errors.Join(startFault(err), w.close(), core.close())
		}
		if result.Cause != nil {
			core.log.printf("the server was ended: %v", result.Cause)
		}
		err = errors.Join(w.close(), core.close())
		if code := exitCode(result); code != 0 {
			return errors.Join(exitError{code: code}, err)
		}
		return err
	}
	return cmd
}

func (o *runOptions) serveInside(ctx context.Context, w *walls, args []string) (sandbox.Result, error) {
	w.caps.Wall, w.caps.OutputBytes = serverLife, serverOutput
	s := w.spec(nil, args)
	mounts, err := w.inPlace()
	if err != nil {
		return sandbox.Result{}, err
	}
	s.Mounts = append(s.Mounts, mounts...)
	cmd := o.runFlags.cmd
	s.Stdin, s.Stdout, s.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.net.attach(ctx, &s, cancel)
	p, err := w.runtime.Start(ctx, s)
	if err != nil {
		return sandbox.Result{}, err
	}
	return p.Wait()
}

// inPlace shows the workspace as its tier may have it, and over it, read-only,
// what of it is protected. What is protected and is not there yet can be made:
// the guard refuses it by its name, the walls do not.
func (w *walls) inPlace() ([]sandbox.Mount, error) {
	p := w.policy
	ws := sandbox.Mount{Source: real(p.Workspace()), Target: p.Workspace()}
	if !slices.Contains(p.Roots(), policy.Root{Path: p.Workspace(), Write: true}) {
		return []sandbox.Mount{ws}, nil
	}
	ws.Access = sandbox.ReadWrite
	covered, err := w.covered(ws)
	return append([]sandbox.Mount{ws}, covered...), err
}

const (
	// maxCovered is how many protected paths can be shown read-only.
	maxCovered = 512
	// maxLooked is how many names of a workspace are looked at.
	maxLooked = 100_000
)

// covered are the protected files and directories that the workspace holds.
// Git directories are covered whole: what git executes there can be put into
// files that are not there yet, and a directory that is only partly covered
// can be moved away. A workspace in which not all can be covered is an error.
func (w *walls) covered(ws sandbox.Mount) ([]sandbox.Mount, error) {
	protected, err := protection(w.policy, writableRoot{path: ws.Target}, w.self)
	if err != nil {
		return nil, err
	}
	var mounts []sandbox.Mount
	looked := 0
	err = filepath.WalkDir(ws.Source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == ws.Source {
			return err
		}
		if looked++; looked > maxLooked {
			return fmt.Errorf("the workspace has more than %d names, among which what is protected cannot be looked for (work in a smaller directory, or without --sandbox)", maxLooked)
		}
		rel, err := filepath.Rel(ws.Source, path)
		if err != nil || d.Type()&fs.ModeSymlink != 0 || d.Name() != ".git" && protected(rel, transaction.Changed) == "" {
			return err
		}
		if len(mounts) == maxCovered {
			return fmt.Errorf("more than %d paths of the workspace are protected (work in a smaller directory, or without --sandbox)", maxCovered)
		}
		mounts = append(mounts, sandbox.Mount{Source: path, Target: filepath.Join(ws.Target, rel)})
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return mounts, err
}
