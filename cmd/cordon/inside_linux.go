package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	s.Mounts = append(s.Mounts, w.inPlace()...)
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
func (w *walls) inPlace() []sandbox.Mount {
	p := w.policy
	ws := sandbox.Mount{Source: real(p.Workspace()), Target: p.Workspace()}
	if !slices.Contains(p.Roots(), policy.Root{Path: p.Workspace(), Write: true}) {
		return []sandbox.Mount{ws}
	}
	ws.Access = sandbox.ReadWrite
	return append([]sandbox.Mount{ws}, w.covered(ws)...)
}

// maxCovered is how many protected paths are shown read-only.
const maxCovered = 256

// covered are the protected files and directories of the workspace's first
// two levels, hidden ones and what is in them.
func (w *walls) covered(ws sandbox.Mount) []sandbox.Mount {
	protected, err := protection(w.policy, writableRoot{path: ws.Target}, w.self)
	if err != nil {
		return nil
	}
	var mounts []sandbox.Mount
	cover := func(rel string) bool {
		info, err := os.Lstat(filepath.Join(ws.Source, rel))
		if err != nil || info.Mode()&os.ModeSymlink != 0 || len(mounts) == maxCovered || protected(rel, transaction.Changed) == "" {
			return false
		}
		mounts = append(mounts, sandbox.Mount{Source: filepath.Join(ws.Source, rel), Target: filepath.Join(ws.Target, rel)})
		return true
	}
	for _, name := range hidden(ws.Source) {
		// Git works in its directory; only what it executes is covered there.
		if name != ".git" && cover(name) {
			continue
		}
		inside, _ := os.ReadDir(filepath.Join(ws.Source, name))
		for _, e := range inside {
			cover(filepath.Join(name, e.Name()))
		}
	}
	return mounts
}

func hidden(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}
