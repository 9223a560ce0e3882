//go:build linux

package transaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Recovered is what became of a transaction that a crash left behind.
type Recovered struct {
	Workspace string `json:"workspace"`
	// Committed: its journal was complete, and was carried out. Otherwise
	// the changes were thrown away.
	Committed bool `json:"committed"`
	// Why a commit that had begun was taken back instead.
	Why string `json:"why,omitempty"`
}

// Recover ends the transactions in stateDir whose process is gone: those that
// had begun to commit are finished, the others rolled back, snapshots too.
// Transactions in use are left alone. One that cannot be recovered stops none
// of the others.
func Recover(stateDir string) ([]Recovered, error) { return recoverAll(stateDir, nil) }

func recoverAll(stateDir string, crashAt func(string)) ([]Recovered, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("transaction: recover: %w", err)
	}
	var done []Recovered
	var errs []error
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t := &Tx{cfg: Config{StateDir: stateDir}, dir: filepath.Join(stateDir, e.Name()), crashAt: crashAt}
		var r *Recovered
		var err error
		switch {
		case strings.HasPrefix(e.Name(), "tx-"):
			r, err = t.recoverLocked((*Tx).recoverRun)
		case strings.HasPrefix(e.Name(), "snapshot-"):
			r, err = t.recoverLocked((*Tx).recoverSnapshot)
		case strings.HasPrefix(e.Name(), newPrefix):
			err = t.recoverNew(e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("transaction: recover %s: %w", e.Name(), err))
		} else if r != nil {
			done = append(done, *r)
		}
	}
	return done, errors.Join(errs...)
}

// recoverLocked recovers one transaction unless it is in use. nil: there was
// nothing to recover.
func (t *Tx) recoverLocked(how func(*Tx) (*Recovered, error)) (*Recovered, error) {
	var free bool
	var err error
	if t.lock, free, err = lockDir(t.dir); err != nil || !free {
		return nil, err
	}
	defer t.release()
	text, err := os.ReadFile(filepath.Join(t.dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) && !t.has(journalFile) {
		return nil, removeTree(t.dir) // it had not begun, or was over
	}
	var rec record
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil && !t.has(journalFile) {
		return nil, err
	}
	t.cfg.Workspace, t.ws, t.begun = string(rec.Workspace), rec.WS, rec.Begun
	return how(t)
}

// recoverNew removes an empty directory that a crash left when it was made.
func (t *Tx) recoverNew(e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil || time.Since(info.ModTime()) < time.Minute {
		return nil // in use, for all that can be told
	}
	return removeTree(t.dir)
}

func (t *Tx) has(name string) bool {
	_, err := os.Lstat(filepath.Join(t.dir, name))
	return err == nil
}

func (t *Tx) recoverRun() (*Recovered, error) {
	text, err := os.ReadFile(filepath.Join(t.dir, journalFile))
	if err == nil {
		return t.resume(text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := t.clearStage(); err != nil {
		return nil, err
	}
	return &Recovered{Workspace: t.cfg.Workspace}, removeTree(t.dir)
}

// clearStage takes away what a commit that had not begun left in the
// workspace.
func (t *Tx) clearStage() error {
	text, err := os.ReadFile(filepath.Join(t.dir, placeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c := t.recovery()
	defer c.close()
	if err == nil {
		err = json.Unmarshal(text, &c.journal.place)
	}
	if err != nil {
		return err
	}
	if !c.journal.valid() {
		return fmt.Errorf("%s is damaged", placeFile)
	}
	if c.root, err = t.openRoot(false); err != nil {
		return err
	}
	if !exists(c.root, c.journal.Stage) {
		return nil
	}
	if c.stage, err = openDir(c.root, c.journal.Stage, unix.O_RDONLY); err != nil {
		return err
	}
	return c.unstage()
}

func (p *place) valid() bool {
	return p.Stage == "" || strings.HasPrefix(p.Stage, stagePrefix) && !strings.Contains(p.Stage, "/") && p.Root != nil
}

func (t *Tx) recovery() *commit { return &commit{tx: t, root: -1, stage: -1, newDir: -1, oldDir: -1} }

// resume carries out a journal from its start; what was done is not repeated.
// Where that cannot be, it is taken back.
func (t *Tx) resume(text []byte) (*Recovered, error) {
	c := t.recovery()
	defer c.close()
	if err := json.Unmarshal(text, &c.journal); err != nil {
		return nil, err
	}
	if !c.journal.valid() {
		return nil, fmt.Errorf("the journal is damaged")
	}
	t.cfg.Workspace, t.ws = string(c.journal.Workspace), c.journal.WS
	r := &Recovered{Workspace: t.cfg.Workspace, Committed: !c.journal.Undo}
	var err error
	if c.root, err = t.openRoot(false); err != nil {
		return nil, err
	}
	over, err := c.reopenStage()
	if err != nil {
		return nil, err
	}
	switch {
	case over:
		c.done = !c.journal.Undo
		err = c.unstage()
	case c.journal.Undo:
		err = c.undo()
	default:
		if err = c.finish(); err != nil && c.journal.Undo && !t.has(journalFile) {
			r.Committed, r.Why, err = false, err.Error(), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return r, removeTree(t.dir)
}

// reopenStage opens the staging directory. over: it was being removed when
// the crash came, so all steps were done.
func (c *commit) reopenStage() (over bool, err error) {
	parent, name, err := c.stageParent()
	if err != nil {
		return false, err
	}
	defer unix.Close(parent)
	if !exists(parent, name) {
		return true, nil
	}
	if c.stage, err = openDir(parent, name, unix.O_RDONLY); err != nil {
		return false, err
	}
	if !exists(c.stage, "new") || !exists(c.stage, "old") {
		return true, nil
	}
	if c.newDir, err = openDir(c.stage, "new", unix.O_RDONLY); err != nil {
		return false, err
	}
	c.oldDir, err = openDir(c.stage, "old", unix.O_RDONLY)
	return false, err
}

// lockDir takes the lock that a living transaction holds. free is false where
// it is held.
func lockDir(dir string) (f *os.File, free bool, err error) {
	if f, err = os.Open(dir); err != nil {
		return nil, false, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, false, nil
		}
		return nil, false, err
	}
	return f, true, nil
}
