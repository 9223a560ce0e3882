//go:build linux

// Package transaction keeps what a tool call changes in its workspace apart
// from it, or able to be undone, until it is known whether the call succeeded.
//
// Begin is for runs in a sandbox: it gives an upper directory that an overlay
// collects all changes in. Diff says what they are; Commit puts them into the
// workspace, all or none, across a crash; Rollback throws them away.
// BeginSnapshot is for tools that run outside a sandbox: Preserve keeps what a
// call is about to change, and Rollback puts it back.
//
// It guarantees that beginning costs the same for any size of workspace, that
// the workspace is not touched before Commit, that Commit and Rollback follow
// no link and leave the workspace by no path, that protected files are refused
// by name, and that what somebody else changed meanwhile is never overwritten
// without being told to.
//
// What it does not stop: a program outside the sandbox that reads a
// half-applied commit while it is going on (each file is replaced at once, the
// tree is not); changes made in place through a mount that is not an overlay;
// a process of the run that outlives it: Commit is for when all have ended,
// because files are moved, not copied, where that can be. A change by somebody
// else is told by the time it was made: one made under a clock that was set
// back, or that runs behind on another host, is not seen.
package transaction

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what a transaction begins with.
type Config struct {
	// Workspace is the absolute path of the directory that is worked in.
	Workspace string
	// StateDir holds the transactions: absolute, outside the workspace, out
	// of reach of what runs, on a file system that can hold an overlay's
	// upper directory. On the workspace's own file system commits are
	// fastest, and leave no trace in the workspace while they go on.
	StateDir string
}

// Tx is one transaction. Its methods are for one goroutine at a time, but for
// Size, which may be called beside any of them.
type Tx struct {
	cfg   Config
	id    string
	dir   string
	begun time.Time
	ws    inode
	// lock is held as long as the transaction is in use.
	lock *os.File
	// crashAt, in tests, is called at each point where a crash could be.
	crashAt func(point string)

	sizes meter
}

type inode struct{ Dev, Ino uint64 }

// record is what of a transaction survives a crash. Paths are bytes.
type record struct {
	Workspace []byte    `json:"workspace"`
	WS        inode     `json:"inode"`
	Begun     time.Time `json:"begun"`
}

const (
	recordFile = "transaction.json"
	newPrefix  = "new-"
)

// Begin opens a transaction. It looks at the workspace's root only.
func Begin(cfg Config) (*Tx, error) {
	t, err := create(&cfg, "tx-")
	if err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		t.release()
		return nil, errors.Join(fmt.Errorf("transaction: begin: %w", err), removeTree(t.dir))
	}
	return t, nil
}

// create checks the configuration and makes a transaction's own directory.
func create(cfg *Config, prefix string) (*Tx, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("transaction: %w", err)
	}
	t := &Tx{cfg: *cfg, id: hex.EncodeToString(id[:])}
	// It gets the name that recovery looks for once it is locked.
	made := filepath.Join(cfg.StateDir, newPrefix+t.id)
	t.dir = filepath.Join(cfg.StateDir, prefix+t.id)
	if err := os.Mkdir(made, 0o700); err != nil {
		return nil, fmt.Errorf("transaction: begin: %w", err)
	}
	var err error
	if t.lock, _, err = lockDir(made); err == nil {
		err = os.Rename(made, t.dir)
	}
	if err != nil {
		t.release()
		return nil, errors.Join(fmt.Errorf("transaction: begin: %w", err), removeTree(made))
	}
	return t, nil
}

// check makes both paths real ones, and refuses a state directory that the
// run could change.
func (c *Config) check() error {
	if !filepath.IsAbs(c.Workspace) {
		return fmt.Errorf("transaction: workspace %q (want an absolute path)", c.Workspace)
	}
	if !filepath.IsAbs(c.StateDir) {
		return fmt.Errorf("transaction: state directory %q (want an absolute path)", c.StateDir)
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return fmt.Errorf("transaction: state directory: %w", err)
	}
	var err error
	if c.Workspace, err = filepath.EvalSymlinks(c.Workspace); err != nil {
		return fmt.Errorf("transaction: workspace: %w", err)
	}
	if c.StateDir, err = filepath.EvalSymlinks(c.StateDir); err != nil {
		return fmt.Errorf("transaction: state directory: %w", err)
	}
	if info, err := os.Lstat(c.Workspace); err != nil || !info.IsDir() {
		return errors.Join(fmt.Errorf("transaction: workspace %q is no directory", c.Workspace), err)
	}
	if below(c.StateDir, c.Workspace) || c.Workspace == "/" {
		return fmt.Errorf("transaction: state directory %q lies in the workspace %q, where the run could change it", c.StateDir, c.Workspace)
	}
	if below(c.Workspace, c.StateDir) {
		return fmt.Errorf("transaction: workspace %q lies in the state directory %q", c.Workspace, c.StateDir)
	}
	return nil
}

func (t *Tx) prepare() error {
	root, err := t.openRoot(true)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	for _, dir := range []string{t.Work(), t.Upper()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// The upper directory becomes the workspace's root: what is not changed
	// there must look and end as it is here.
	m, err := metaAt(root, ".")
	if err != nil {
		return err
	}
	own, err := unix.Open(t.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	if err := m.setAt(own, "upper"); err != nil {
		return err
	}
	return t.begin()
}

// begin writes the record. A crash of the machine may take it along with the
// changes: that is a rollback.
func (t *Tx) begin() error {
	var err error
	if t.begun, err = t.clock(); err != nil {
		return err
	}
	text, err := json.Marshal(record{[]byte(t.cfg.Workspace), t.ws, t.begun})
	if err != nil {
		return err
	}
	tmp := filepath.Join(t.dir, recordFile+".new")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(t.dir, recordFile))
}

// clock is the time by the clock that stamps files: later than every stamp
// before, and no later than any after. That clock stands still for some
// milliseconds, but where a stamp has been looked at, kernels from 6.13 on give
// the next one a time of its own (Documentation/filesystems/multigrain-ts.rst);
// on others this waits for the next tick.
func (t *Tx) clock() (time.Time, error) {
	name := filepath.Join(t.dir, "clock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return time.Time{}, err
	}
	defer os.Remove(name)
	defer f.Close()
	var first, st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &first); err != nil {
		return time.Time{}, err
	}
	const longestTick = 11 * time.Millisecond
	for end := time.Now().Add(longestTick); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		if err := errors.Join(unix.Fchmod(int(f.Fd()), 0o600), unix.Fstat(int(f.Fd()), &st)); err != nil {
			return time.Time{}, err
		}
		if st.Ctim != first.Ctim {
			return time.Unix(st.Ctim.Sec, st.Ctim.Nsec), nil
		}
	}
	return time.Now(), nil // a file system that counts in seconds
}

// openRoot opens the workspace, which must be the one that it was at Begin.
func (t *Tx) openRoot(first bool) (int, error) {
	fd, err := unix.Open(t.cfg.Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: t.cfg.Workspace, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	now := inode{uint64(st.Dev), st.Ino}
	if first {
		t.ws = now
	}
	if now != t.ws {
		unix.Close(fd)
		return -1, fmt.Errorf("the workspace %q is another directory than it was", t.cfg.Workspace)
	}
	return fd, nil
}

// Upper is the directory that an overlay collects changes in.
func (t *Tx) Upper() string { return filepath.Join(t.dir, "upper") }

// Work is the overlay's work directory.
func (t *Tx) Work() string { return filepath.Join(t.dir, "work") }

// Workspace is the directory that the transaction is about, without links.
func (t *Tx) Workspace() string { return t.cfg.Workspace }

// Rollback throws the changes away. The workspace is as it was. The overlay
// must be gone.
func (t *Tx) Rollback() error {
	defer t.release()
	if err := removeTree(t.dir); err != nil {
		return fmt.Errorf("transaction: rollback: %w", err)
	}
	return nil
}

// release lets the lock go. The transaction is over.
func (t *Tx) release() {
	t.sizes.stop()
	if t.lock != nil {
		t.lock.Close()
		t.lock = nil
	}
}
