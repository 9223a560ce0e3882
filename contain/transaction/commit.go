//go:build linux

package transaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrConflict is returned by Commit, with the conflicts in the Report, when
// the workspace was changed meanwhile where the run changed it too. The
// transaction stays open.
var ErrConflict = errors.New("transaction: the workspace was changed meanwhile")

// opKind is one step of a commit. Every step may be done twice: recovery
// repeats the whole list.
type opKind string

const (
	opLift   opKind = "lift"   // give a directory's owner the right to change it
	opDelete opKind = "delete" // move the path away
	opPut    opKind = "put"    // move the path away, and the staged one in
	opMeta   opKind = "meta"   // set a directory's mode, owner, times, attributes
)

type op struct {
	Kind opKind `json:"kind"`
	Path []byte `json:"path"`
	// Slot names what goes in, and what was moved away, in the stage.
	Slot string `json:"slot,omitempty"`
	// Low is what stands there before the step; nil for nothing.
	Low *identity `json:"low,omitempty"`
	// Meta is what the path gets once it is in its place, Old what it had.
	Meta *meta `json:"meta,omitempty"`
	Old  *meta `json:"old,omitempty"`
}

// identity is by which a file is known to be the one that was looked at.
type identity struct {
	Ino   uint64        `json:"ino"`
	Mode  uint32        `json:"mode"`
	Size  int64         `json:"size"`
	Mtime unix.Timespec `json:"mtime"`
	Ctime unix.Timespec `json:"ctime"`
	Links uint64        `json:"links"`
}

func identify(st *unix.Stat_t) *identity {
	if st == nil {
		return nil
	}
	return &identity{st.Ino, st.Mode, st.Size, st.Mtim, st.Ctim, uint64(st.Nlink)}
}

// is reports whether st is that file, unchanged. The time of its status says
// most, but moving one name of several, or lifting a directory's mode, changes
// it too.
func (id *identity) is(st *unix.Stat_t, moved bool) bool {
	if id == nil || st == nil {
		return id == nil && st == nil
	}
	if id.Ino != st.Ino || id.Mode&unix.S_IFMT != st.Mode&unix.S_IFMT {
		return false
	}
	if isDir(st) {
		return id.Mtime == st.Mtim
	}
	return id.Size == st.Size && id.Mtime == st.Mtim && id.Mode == st.Mode &&
		(moved || id.Links > 1 || id.Ctime == st.Ctim)
}

// journal is what recovery works by. Once it is written the commit will
// happen; before, it has not.
type journal struct {
	Workspace []byte `json:"workspace"`
	WS        inode  `json:"inode"`
	place
	Ops []op `json:"ops"`
	// Undo: a step could not be done, and what was done is being taken back.
	Undo bool `json:"undo,omitempty"`
}

// place is where a commit keeps what goes in and what was moved away: in the
// transaction's own directory, or, where that is on another file system, in
// the workspace under the name Stage.
type place struct {
	Stage string `json:"stage,omitempty"`
	// Root is what the workspace's root gets when Stage is gone from it.
	Root *meta `json:"root,omitempty"`
}

const (
	journalFile = "journal.json"
	placeFile   = "stage.json"
)

// Commit puts the changes into the workspace. Before the journal is written
// the workspace's own files are untouched; after, recovery finishes what a
// crash interrupts, and a step that cannot be done takes back the others. On
// an error the workspace is as it was, and the transaction still open, unless
// the error says otherwise. All processes of the run must have ended.
func (t *Tx) Commit(o Options) (Report, error) {
	s, err := t.scan()
	if err != nil {
		return Report{}, fmt.Errorf("transaction: commit: %w", err)
	}
	r, err := s.choose(o)
	if err := errors.Join(err, s.relockLow()); err != nil {
		return Report{}, fmt.Errorf("transaction: commit: %w", errors.Join(err, s.close()))
	}
	if len(r.Conflicts) > 0 && o.Conflicts == StopOnConflict {
		r.Applied = []Change{}
		return r, errors.Join(ErrConflict, s.close())
	}
	c := &commit{tx: t, scan: s, progress: o.Progress, root: -1, stage: -1, newDir: -1, oldDir: -1}
	err = c.run(r.Applied)
	r.Dropped = c.dropped
	r.Applied = slices.DeleteFunc(r.Applied, func(c Change) bool { return c.touched })
	if err = errors.Join(err, s.close()); err != nil {
		if !c.done {
			r.Applied = []Change{}
		}
		return r, fmt.Errorf("transaction: commit: %w", err)
	}
	// What is left is the transaction's own: it holds nothing any more.
	defer t.release()
	if err := removeTree(t.dir); err != nil {
		return r, fmt.Errorf("transaction: committed, but not cleaned up: %w", err)
	}
	return r, nil
}

// commit is a commit while it is carried out, first or again.
type commit struct {
	tx       *Tx
	scan     *scan // nil in recovery
	journal  journal
	progress func(done, total int)
	done     bool // every step is
	dropped  []Refusal
	root     int // the workspace
	stage    int // the staging directory
	newDir   int // what goes in
	oldDir   int // what was moved away
}

func (c *commit) point(name string) {
	if f := c.tx.crashAt; f != nil {
		f(name)
	}
}

func (c *commit) run(changes []Change) (err error) {
	defer c.close()
	if !slices.ContainsFunc(changes, func(ch Change) bool { return !ch.touched || ch.meta.Mtime != ch.old.Mtime }) {
		return nil // a run that only read
	}
	if c.root, err = c.tx.openRoot(false); err != nil {
		return err
	}
	if err := writable(c.root, c.tx.cfg.Workspace); err != nil {
		return err
	}
	c.point("staging")
	if err := c.choosePlace(); err != nil {
		return err
	}
	err = c.openStage(true)
	if err == nil {
		c.point("plan")
		err = c.plan(changes)
	}
	if err == nil {
		err = c.sync()
	}
	if err == nil {
		c.point("journal")
		err = c.write()
	}
	if err != nil {
		return errors.Join(err, c.unstage())
	}
	return c.finish()
}

// writable says plainly what every step would otherwise stumble over.
func writable(root int, name string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(root, &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("the workspace %q is on a read-only file system", name)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() && unix.Faccessat(root, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil {
		return fmt.Errorf("the workspace %q is not writable for user %d", name, os.Geteuid())
	}
	return nil
}

func (c *commit) write() error {
	text, err := json.Marshal(c.journal)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(c.tx.dir, journalFile), text)
}

// finish carries the journal out. On an error it takes back what it did.
func (c *commit) finish() error {
	for i := range c.journal.Ops {
		o := &c.journal.Ops[i]
		c.point("op " + strconv.Itoa(i))
		if err := c.apply(o); err != nil {
			return c.abort(fmt.Errorf("%s %q: %w", o.Kind, o.Path, err))
		}
		if c.progress != nil {
			c.progress(i+1, len(c.journal.Ops))
		}
	}
	c.point("sync")
	if err := unix.Syncfs(c.root); err != nil {
		return c.abort(err)
	}
	c.point("unstage")
	c.done = true
	// From here it has happened. What is left over is removed by recovery.
	if err := c.unstage(); err != nil {
		return fmt.Errorf("all changes are in place, but: %w", err)
	}
	c.point("forget")
	return nil
}

// abort takes a commit back, so that nothing of it has happened. If it cannot
// do that, recovery will try again.
func (c *commit) abort(cause error) error {
	c.point("abort")
	c.journal.Undo = true
	if err := c.write(); err != nil {
		return errors.Join(cause, fmt.Errorf("it is half done, and cordon recovers it later: %w", err))
	}
	if err := c.undo(); err != nil {
		return errors.Join(cause, fmt.Errorf("it is half taken back; what was replaced is in %s: %w", c.stagePath(), err))
	}
	return cause
}

func (c *commit) undo() error {
	var errs []error
	for i, o := range slices.Backward(c.journal.Ops) {
		c.point("undo " + strconv.Itoa(i))
		if err := c.revert(&o); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", o.Path, err))
		}
	}
	// Moving things back changed the times of the directories that hold them.
	// The innermost come first, while those above can still be entered.
	for i := range c.journal.Ops {
		if o := &c.journal.Ops[i]; o.Kind == opMeta {
			errs = append(errs, c.setMeta(o, o.Old))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unix.Syncfs(c.root); err != nil {
		return err
	}
	// With what was staged gone, the steps could not be told from done ones.
	c.journal.Ops = nil
	if err := c.write(); err != nil {
		return err
	}
	c.point("undone")
	if err := c.unstage(); err != nil {
		return err
	}
	return os.Remove(filepath.Join(c.tx.dir, journalFile))
}

// errChanged: the workspace is not what Diff saw.
var errChanged = fmt.Errorf("it is not what it was a moment ago: %w", ErrConflict)

// apply does one step, or what is left of it.
func (c *commit) apply(o *op) error {
	slot := o.Slot
	switch o.Kind {
	case opMeta:
		return c.setMeta(o, o.Meta)
	case opLift:
		return c.lift(string(o.Path), o.Old.Mode|0o700)
	}
	parent, base, err := openParent(c.root, string(o.Path))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	switch o.Kind {
	case opDelete:
		return c.moveAway(o, parent, base, slot)
	case opPut:
		if exists(c.newDir, slot) { // else it went in before a crash
			if err := c.moveAway(o, parent, base, slot); err != nil {
				return err
			}
			c.point("between")
			if err := move(c.newDir, slot, parent, base); err != nil {
				return err
			}
		}
		if o.Meta == nil {
			return nil
		}
		c.point("put")
		return c.setMeta(o, o.Meta)
	}
	return fmt.Errorf("unknown step %q", o.Kind)
}

// moveAway keeps what a step replaces until the end, once.
func (c *commit) moveAway(o *op, parent int, base, slot string) error {
	if exists(c.oldDir, slot) {
		return nil
	}
	st, err := lstat(parent, base)
	if err != nil {
		return err
	}
	if !o.Low.is(st, false) {
		return errChanged
	}
	if st == nil {
		return nil
	}
	if err := moveDir(st, parent, base, c.oldDir, slot); err != nil {
		return err
	}
	if st, err = lstat(c.oldDir, slot); err != nil || !o.Low.is(st, true) {
		return errors.Join(errChanged, err) // swapped in between; it is moved back
	}
	return nil
}

// moveDir moves what may be a directory that its owner may not write to: one
// that moves gets another "..".
func moveDir(st *unix.Stat_t, from int, name string, to int, as string) error {
	if isDir(st) && st.Mode&0o200 == 0 {
		if err := chmodAt(from, name, st.Mode|0o200); err != nil {
			return err
		}
	}
	return move(from, name, to, as)
}

// move renames without replacing anything.
func move(from int, name string, to int, as string) error {
	err := unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL && !exists(to, as) { // a file system without the flag
		err = unix.Renameat(from, name, to, as)
	}
	if err == unix.EEXIST {
		return errChanged
	}
	return err
}

// revert takes one step back, or what was done of it.
func (c *commit) revert(o *op) error {
	slot := o.Slot
	switch o.Kind {
	case opMeta, opLift: // in the end it gets what it had
		if os.Geteuid() == 0 || o.Old.UID != os.Geteuid() {
			return nil
		}
		return c.lift(string(o.Path), o.Old.Mode|0o700)
	}
	replaced := exists(c.oldDir, slot)
	in := o.Kind == opPut && !exists(c.newDir, slot)
	if !replaced && !in {
		return nil
	}
	parent, base, err := openParent(c.root, string(o.Path))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if in {
		st, err := lstat(parent, base)
		if err != nil {
			return err
		}
		if st != nil {
			if err := moveDir(st, parent, base, c.newDir, slot); err != nil {
				return err
			}
		}
	}
	if !replaced {
		return nil
	}
	if err := move(c.oldDir, slot, parent, base); err != nil {
		return err
	}
	if st, err := lstat(parent, base); err == nil && isDir(st) && st.Mode != o.Low.Mode {
		return chmodAt(parent, base, o.Low.Mode)
	}
	return nil
}

func (c *commit) lift(rel string, mode uint32) error {
	if rel == "." { // by the descriptor: it may be shut
		if err := unix.Fchmod(c.root, mode&0o7777); err != nil {
			return &os.PathError{Op: "chmod", Path: rel, Err: err}
		}
		return nil
	}
	parent, base, err := openParent(c.root, rel)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return chmodAt(parent, base, mode)
}

// setMeta sets the attributes of a directory of the workspace.
func (c *commit) setMeta(o *op, m *meta) error {
	fd, err := openDir(c.root, string(o.Path), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return m.setOn(fd, string(o.Path))
}
