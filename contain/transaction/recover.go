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

	"golang.org/x/sys/unix"
)

// Recovered is what became of a transaction that a crash left behind.
type Recovered struct {
	Workspace string `json:"workspace"`
	// Committed: its journal was complete, and was carried out. Otherwise
	// the changes were thrown away.
	Committed bool `json:"committed"`
}

// Recover ends the transactions in stateDir whose process is gone: those that
// had begun to commit are finished, the others rolled back. Transactions in
// use are left alone.
func Recover(stateDir string) ([]Recovered, error) {
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
		id, ok := strings.CutPrefix(e.Name(), "tx-")
		if !ok || !e.IsDir() {
			continue
		}
		r, ok, err := recoverOne(filepath.Join(stateDir, e.Name()), id)
		if err != nil {
			errs = append(errs, fmt.Errorf("transaction: recover %s: %w", e.Name(), err))
		} else if ok {
			done = append(done, r)
		}
	}
	return done, errors.Join(errs...)
}

func recoverOne(dir, id string) (Recovered, bool, error) {
	lock, free, err := lockDir(dir)
	if err != nil || !free {
		return Recovered{}, false, err
	}
	defer lock.Close()
	var rec record
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Recovered{}, false, removeTree(dir) // it had not begun
	}
	if err != nil {
		return Recovered{}, false, err
	}
	if err := json.Unmarshal(text, &rec); err != nil {
		return Recovered{}, false, err
	}
	t := &Tx{cfg: Config{Workspace: rec.Workspace, StateDir: filepath.Dir(dir)}, id: id, dir: dir, begun: rec.Begun}
	r := Recovered{Workspace: rec.Workspace}
	text, err = os.ReadFile(filepath.Join(dir, journalFile))
	switch {
	case err == nil:
		r.Committed = true
		return r, true, t.resume(text)
	case !errors.Is(err, fs.ErrNotExist):
		return r, false, err
	}
	err = removeTree(filepath.Join(rec.Workspace, stageName(id)))
	return r, true, errors.Join(err, t.Rollback())
}

// resume carries out a journal from its start; what was done is not repeated.
func (t *Tx) resume(text []byte) error {
	c := &commit{tx: t}
	if err := json.Unmarshal(text, &c.journal); err != nil {
		return err
	}
	if c.journal.Stage != stageName(t.id) || c.journal.Workspace != t.cfg.Workspace {
		return fmt.Errorf("the journal is of another transaction")
	}
	if _, err := os.Lstat(filepath.Join(t.cfg.Workspace, c.journal.Stage)); errors.Is(err, fs.ErrNotExist) {
		return removeTree(t.dir) // all was done, only the record was left
	}
	if err := c.open(false); err != nil {
		return err
	}
	defer c.close()
	return c.finish()
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
