package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/transaction"
)

// undoing is a guard that keeps what a call is about to change in its
// workspace, and puts it back when the call fails (ATOM_DMM_LEVEL5_ENABLED).
// It is for tools that run outside of any walls, and knows what they change
// from what the call was read as: what a program writes that was not read from
// the call stays.
type undoing struct {
	cordon.Guard
	state string
	logf  func(format string, args ...any)

	mu   sync.Mutex
	open map[string]*transaction.Snapshot
}

// undo wraps the guard for a door whose calls are settled in this process.
func undo(c *core) (cordon.Guard, error) {
	if !c.config.Transactions() {
		return c.guard, nil
	}
	state, err := stateDir()
	if err != nil {
		return nil, err
	}
	state = filepath.Join(state, "transactions")
	if done, err := transaction.Recover(state); err != nil {
		return nil, err
	} else if len(done) > 0 {
		c.log.printf("%d calls that were interrupted were taken back", len(done))
	}
	return &undoing{Guard: c.guard, state: state, logf: c.log.printf, open: map[string]*transaction.Snapshot{}}, nil
}

func callKey(d *cordon.Decision) string {
	return d.RunID + "\x00" + d.CallID + "\x00" + d.Ticket + "\x00" + d.ArgsHash
}

// Decide preserves what an admitted call would change before it is answered. A
// call whose change could not be taken back does not run in enforce mode.
func (u *undoing) Decide(ctx context.Context, c cordon.Call) cordon.Decision {
	d := u.Guard.Decide(ctx, c)
	if d.Refused() || d.Mode == cordon.Off || c.Run.Workspace == "" {
		return d
	}
	paths := changed(&d, real(c.Run.Workspace))
	if len(paths) == 0 {
		return d
	}
	s, err := u.preserve(real(c.Run.Workspace), paths)
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		if old := u.open[callKey(&d)]; old != nil {
			err = old.Commit() // the same call again, of which the first was never settled
		}
		u.open[callKey(&d)] = s
	}
	if err != nil {
		u.logf("a call of %q could not be made undoable: %v", c.Tool, err)
		if d.Mode == cordon.Enforce {
			return u.refuse(ctx, d)
		}
	}
	return d
}

// refuse gives back what the call had reserved.
func (u *undoing) refuse(ctx context.Context, d cordon.Decision) cordon.Decision {
	if err := u.Guard.Settle(ctx, d, cordon.Usage{Failed: true}); err != nil {
		u.logf("%v", err)
	}
	d.Outcome, d.Enforced = cordon.Blocked, true
	d.Findings = append(d.Findings, cordon.Finding{
		Phase: cordon.PhaseTripwire, Violation: cordon.Malformed, Rule: "transaction.unpreserved",
		Detail: "what the call would change could not be kept, so that it could not be taken back",
	})
	return d
}

func (u *undoing) preserve(workspace string, paths []string) (*transaction.Snapshot, error) {
	s, err := transaction.BeginSnapshot(transaction.Config{Workspace: workspace, StateDir: u.state})
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if err := s.Preserve(p); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p, err), s.Rollback())
		}
	}
	return s, nil
}

// Settle takes a call back that failed.
func (u *undoing) Settle(ctx context.Context, d cordon.Decision, used cordon.Usage) error {
	u.mu.Lock()
	s := u.open[callKey(&d)]
	delete(u.open, callKey(&d))
	u.mu.Unlock()
	var err error
	switch {
	case s == nil:
	case used.Failed:
		u.logf("a call failed; what it changed in the workspace was put back")
		err = s.Rollback()
	default:
		err = s.Commit()
	}
	return errors.Join(err, u.Guard.Settle(ctx, d, used))
}

// changed are the paths below the real workspace that a call writes or
// deletes, as they are without links above their last element.
func changed(d *cordon.Decision, workspace string) []string {
	seen := map[string]bool{}
	var paths []string
	add := func(p string) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(p))
		for errors.Is(err, fs.ErrNotExist) { // directories that the call makes too
			p = filepath.Dir(p)
			dir, err = filepath.EvalSymlinks(filepath.Dir(p))
		}
		if err != nil {
			return
		}
		p = filepath.Join(dir, filepath.Base(p))
		if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if target, err := filepath.EvalSymlinks(p); err == nil {
				p = target // what is written through the link
			}
		}
		if strings.HasPrefix(p, workspace+"/") && !seen[p] {
			seen[p] = true
			paths = append(paths, p)
		}
	}
	for i := range d.Effects {
		e := &d.Effects[i]
		if e.Kind != cordon.Write && e.Kind != cordon.Delete {
			continue
		}
		target := e.Target
		if !filepath.IsAbs(target) {
			dir := e.Dir
			if dir == "" {
				dir = workspace
			}
			target = filepath.Join(dir, target)
		}
		matches := []string{filepath.Clean(target)}
		if e.Pattern {
			matches, _ = filepath.Glob(target)
		}
		for _, m := range matches {
			add(m)
		}
	}
	return paths
}
