//go:build linux

package transaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrConflict is returned by Commit, with the conflicts in the Report, when
// the workspace was changed meanwhile where the run changed it too. The
// transaction stays open.
var ErrConflict = errors.New("transaction: the workspace was changed meanwhile")

// Conflicts says what Commit does with paths that were changed on both sides.
type Conflicts uint8

const (
	// StopOnConflict is the zero value: nothing is committed.
	StopOnConflict Conflicts = iota
	// KeepWorkspace leaves those paths as they are in the workspace.
	KeepWorkspace
	// OverwriteWorkspace takes the run's.
	OverwriteWorkspace
)

// Options of a Commit.
type Options struct {
	// Protected says why a path may not be changed by the run, or "". nil
	// protects nothing.
	Protected func(rel string, kind ChangeKind) string
	Conflicts Conflicts
	// Progress, if set, is told how far the commit is.
	Progress func(done, total int)
}

// Refusal is a change that was not committed.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Report is what a Commit did.
type Report struct {
	Applied   []Change  `json:"applied"`
	Refused   []Refusal `json:"refused,omitempty"`
	Conflicts []Change  `json:"conflicts,omitempty"`
}

// opKind is one step of a commit. Every step may be done twice: recovery
// repeats the whole list.
type opKind string

const (
	opDelete opKind = "delete" // move the path away
	opDir    opKind = "dir"    // make a directory
	opPut    opKind = "put"    // move the path away, and the staged one in
	opMeta   opKind = "meta"   // set a directory's mode, owner, times, attributes
)

type op struct {
	N    int    `json:"n"`
	Kind opKind `json:"kind"`
	Path string `json:"path"`
	Meta *meta  `json:"meta,omitempty"`
}

// journal is what recovery works by. Once it is written the commit will
// happen; before, it has not.
type journal struct {
	Workspace string `json:"workspace"`
	Stage     string `json:"stage"`
	Ops       []op   `json:"ops"`
}

const journalFile = "journal.json"

// Commit puts the changes into the workspace. Before the journal is written
// the workspace's own files are untouched; after, recovery finishes what a
// crash interrupts. On an error before that point the transaction is still
// open and can be rolled back.
func (t *Tx) Commit(o Options) (Report, error) {
	changes, err := t.Diff()
	if err != nil {
		return Report{}, err
	}
	r := choose(changes, o)
	if len(r.Conflicts) > 0 && o.Conflicts == StopOnConflict {
		r.Applied = nil
		return r, ErrConflict
	}
	c := &commit{tx: t, journal: journal{Workspace: t.cfg.Workspace, Stage: stageName(t.id)}, progress: o.Progress}
	if err := c.run(r.Applied); err != nil {
		return r, fmt.Errorf("transaction: commit: %w", err)
	}
	t.release()
	return r, nil
}

// choose divides the changes into those to apply and those refused. What is
// below a refused directory is refused with it.
func choose(changes []Change, o Options) Report {
	r := Report{Applied: []Change{}}
	var shut []string
	for _, c := range changes {
		why := ""
		if i := slices.IndexFunc(shut, func(dir string) bool { return below(c.Path, dir) }); i >= 0 {
			why = "it lies below " + shut[i] + ", which was refused"
		} else if o.Protected != nil {
			why = o.Protected(c.Path, c.Kind)
		}
		if why == "" {
			why = uncommittable(c)
		}
		if why == "" && c.Conflict {
			r.Conflicts = append(r.Conflicts, c)
			if o.Conflicts == KeepWorkspace {
				why = "it was changed in the workspace meanwhile"
			}
		}
		if why != "" {
			r.Refused = append(r.Refused, Refusal{c.Path, why})
			if c.Mode.IsDir() {
				shut = append(shut, c.Path)
			}
			continue
		}
		r.Applied = append(r.Applied, c)
	}
	return r
}

func uncommittable(c Change) string {
	if c.Kind == Deleted {
		return ""
	}
	switch {
	case c.Mode&fs.ModeSocket != 0:
		return "it is a socket"
	case c.Mode&fs.ModeDevice != 0:
		return "it is a device"
	}
	return ""
}

func stageName(id string) string { return ".cordon-tx-" + id }

// commit is a commit while it is carried out, first or again.
type commit struct {
	tx       *Tx
	journal  journal
	progress func(done, total int)
	root     int // the workspace
	stage    int // its staging directory
	newDir   int // what goes in
	oldDir   int // what was moved away
}

func (c *commit) point(name string) {
	if f := c.tx.crashAt; f != nil {
		f(name)
	}
}

func (c *commit) run(changes []Change) error {
	if err := c.open(true); err != nil {
		return err
	}
	defer c.close()
	c.point("staging")
	if err := c.plan(changes); err != nil {
		return errors.Join(err, c.unstage())
	}
	if err := c.sync(); err != nil {
		return errors.Join(err, c.unstage())
	}
	text, err := json.Marshal(c.journal)
	if err != nil {
		return errors.Join(err, c.unstage())
	}
	c.point("journal")
	if err := writeDurably(filepath.Join(c.tx.dir, journalFile), text); err != nil {
		return errors.Join(err, c.unstage())
	}
	return c.finish()
}

// finish carries the journal out and forgets the transaction.
func (c *commit) finish() error {
	for i := range c.journal.Ops {
		c.point("op " + strconv.Itoa(i))
		if err := c.apply(&c.journal.Ops[i]); err != nil {
			return fmt.Errorf("%s %s: %w", c.journal.Ops[i].Kind, c.journal.Ops[i].Path, err)
		}
		if c.progress != nil {
			c.progress(i+1, len(c.journal.Ops))
		}
	}
	c.point("sync")
	if err := unix.Syncfs(c.root); err != nil {
		return err
	}
	c.point("unstage")
	if err := c.unstage(); err != nil {
		return err
	}
	c.point("forget")
	return removeTree(c.tx.dir)
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// open opens the workspace and its staging directory.
func (c *commit) open(create bool) (err error) {
	c.root, c.stage, c.newDir, c.oldDir = -1, -1, -1, -1
	if c.root, err = unix.Open(c.journal.Workspace, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: c.journal.Workspace, Err: err}
	}
	for _, d := range []struct {
		at   *int
		name string
		fd   *int
	}{{&c.root, c.journal.Stage, &c.stage}, {&c.stage, "new", &c.newDir}, {&c.stage, "old", &c.oldDir}} {
		if create {
			if err := unix.Mkdirat(*d.at, d.name, 0o700); err != nil {
				c.close()
				return &os.PathError{Op: "mkdir", Path: d.name, Err: err}
			}
		}
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
		if *d.fd, err = unix.Openat2(*d.at, d.name, &how); err != nil {
			c.close()
			return &os.PathError{Op: "open", Path: d.name, Err: err}
		}
	}
	return nil
}

func (c *commit) close() {
	for _, fd := range []int{c.root, c.stage, c.newDir, c.oldDir} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (c *commit) unstage() error {
	return removeTree(filepath.Join(c.journal.Workspace, c.journal.Stage))
}

// sync makes what was staged durable before the journal promises it.
func (c *commit) sync() error { return unix.Syncfs(c.stage) }

// plan stages all content and lists the steps: deletions and creations with
// parents first, then the directories' own attributes with children first,
// since every step inside a directory changes its times.
func (c *commit) plan(changes []Change) error {
	s := stager{commit: c, links: map[inode]int{}}
	var metas []op
	for i := range changes {
		ch := &changes[i]
		up := filepath.Join(c.tx.Upper(), filepath.FromSlash(ch.Path))
		if ch.Kind == Deleted {
			c.add(opDelete, ch.Path, nil)
			continue
		}
		m, err := metaOf(up)
		if err != nil {
			return err
		}
		if !ch.Mode.IsDir() {
			n := c.add(opPut, ch.Path, nil)
			if err := s.stage(up, n, m); err != nil {
				return fmt.Errorf("stage %s: %w", ch.Path, err)
			}
			continue
		}
		if ch.Kind == Changed { // it hides or replaces what was there
			c.add(opDelete, ch.Path, nil)
		}
		if ch.Kind != ModeOnly {
			c.add(opDir, ch.Path, nil)
		}
		metas = append(metas, op{Kind: opMeta, Path: ch.Path, Meta: m})
	}
	for _, m := range slices.Backward(metas) {
		c.add(m.Kind, m.Path, m.Meta)
	}
	return c.rootMeta()
}

// rootMeta restores the workspace's own times after the steps in it, to what
// the run left, or else to what they were.
func (c *commit) rootMeta() error {
	if len(c.journal.Ops) == 0 {
		return nil
	}
	m, err := metaOf(c.tx.Upper())
	if err != nil {
		return err
	}
	c.add(opMeta, ".", m)
	return nil
}

func (c *commit) add(k opKind, rel string, m *meta) int {
	n := len(c.journal.Ops)
	c.journal.Ops = append(c.journal.Ops, op{N: n, Kind: k, Path: rel, Meta: m})
	return n
}

// apply does one step, or what is left of it.
func (c *commit) apply(o *op) error {
	if o.Kind == opMeta {
		return c.setMeta(o)
	}
	parent, err := c.dir(path.Dir(o.Path))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	base, slot := path.Base(o.Path), strconv.Itoa(o.N)
	switch o.Kind {
	case opDelete:
		return moveAway(parent, base, c.oldDir, slot)
	case opDir:
		if err := unix.Mkdirat(parent, base, 0o700); err != nil && err != unix.EEXIST {
			return err
		}
		return nil
	case opPut:
		if !exists(c.newDir, slot) {
			return nil // it went in before the crash
		}
		if err := moveAway(parent, base, c.oldDir, slot); err != nil {
			return err
		}
		c.point("between")
		return unix.Renameat2(c.newDir, slot, parent, base, unix.RENAME_NOREPLACE)
	}
	return fmt.Errorf("unknown step %q", o.Kind)
}

// moveAway keeps what a step replaces until the end, once.
func moveAway(parent int, base string, old int, slot string) error {
	if exists(old, slot) {
		return nil
	}
	err := unix.Renameat2(parent, base, old, slot, unix.RENAME_NOREPLACE)
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func exists(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// dir opens a directory of the workspace without following any link.
func (c *commit) dir(rel string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
	fd, err := unix.Openat2(c.root, rel, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return fd, nil
}
