//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ChangeKind is what happened to a path.
type ChangeKind uint8

const (
	Added ChangeKind = iota + 1
	Changed
	Deleted
	// ModeOnly: mode, owner or attributes of a directory.
	ModeOnly
)

var changeNames = [...]string{"", "added", "changed", "deleted", "mode"}

func (k ChangeKind) String() string {
	if int(k) < len(changeNames) {
		return changeNames[k]
	}
	return fmt.Sprintf("change(%d)", k)
}

// MarshalText spells the kind.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Change is one path that differs from the workspace as it was.
type Change struct {
	Path string      `json:"path"` // slash-separated, relative to the workspace
	Kind ChangeKind  `json:"kind"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size"`
	// Conflict: the workspace's own path was changed since Begin.
	Conflict bool `json:"conflict,omitempty"`

	up, low *unix.Stat_t // what stands in the two places; nil for nothing
	meta    *meta        // of a directory that stays: what the run left
	old     *meta        // and what it is
	// touched: a directory whose times differ at most. It is not shown.
	touched bool
	// replaced: a directory that was taken away and made again, or lies in
	// one: nothing of the workspace's shows through.
	replaced bool
	origin   []byte // the handle of the file it was copied from
}

// stays: a directory before and after.
func (c *Change) stays() bool { return c.Kind == ModeOnly || c.touched }

// Diff lists the changes, parents before children. A directory that was
// deleted stands for all that was below it. The run must not be going on.
func (t *Tx) Diff() ([]Change, error) {
	s, err := t.scan()
	if err != nil {
		return nil, fmt.Errorf("transaction: diff: %w", err)
	}
	if err := s.close(); err != nil {
		return nil, fmt.Errorf("transaction: diff: %w", err)
	}
	return slices.DeleteFunc(s.changes, func(c Change) bool { return c.touched }), nil
}

// scan is a walk over the upper directory beside the workspace. What it holds
// open serves the commit.
type scan struct {
	begun    time.Time
	only     string // if set, no path matters but this and those above it
	root, up int
	// spaces are the attribute prefixes that the overlay's marks count under.
	spaces []string
	// Directories of either side that their owner could not enter.
	lifted, lowLifted []lifted
	changes           []Change
	queue             []job
	bytes             int
}

// job is a directory to be compared. opaque: of the workspace's, nothing
// shows through. fresh: there is none in the workspace. gone: there was one,
// or somebody else changed which names it has.
type job struct {
	rel                 string
	opaque, fresh, gone bool
}

func (t *Tx) scan() (*scan, error) { return t.scanOnly("") }

func (t *Tx) scanOnly(rel string) (*scan, error) {
	s := &scan{begun: t.begun, only: rel, root: -1, up: -1}
	err := s.run(t)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *scan) run(t *Tx) (err error) {
	if s.root, err = t.openRoot(false); err != nil {
		return err
	}
	if s.up, err = unix.Open(t.Upper(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: t.Upper(), Err: err}
	}
	// A mount by the host's root marks in trusted.*, which no run can forge,
	// and leaves user.* to the run; others mark in user.* and keep it from
	// the run (Documentation/filesystems/overlayfs.rst).
	s.spaces = []string{"trusted.overlay.", "user.overlay."}
	if slices.ContainsFunc(listXattrs(fdPath(s.up)), func(n string) bool { return strings.HasPrefix(n, s.spaces[0]) }) {
		s.spaces = s.spaces[:1]
	}
	if err := s.directory("."); err != nil {
		return err
	}
	s.queue = []job{{rel: "."}}
	for len(s.queue) > 0 {
		j := s.queue[0]
		s.queue = s.queue[1:]
		if err := s.compare(j); err != nil {
			return fmt.Errorf("%q: %w", j.rel, err)
		}
	}
	slices.SortFunc(s.changes, func(a, b Change) int { return comparePaths(a.Path, b.Path) })
	return s.vanished()
}

// close leaves the upper directory as the run left it.
func (s *scan) close() error {
	err := errors.Join(s.relockLow(), relock(s.up, s.lifted))
	s.lifted = nil
	for _, fd := range []int{s.root, s.up} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	s.root, s.up = -1, -1
	return err
}

// openUpper opens a directory that the run changed, openLow one of the
// workspace.
func (s *scan) openUpper(rel string) (int, error) {
	return openShut(s.up, rel, func(l lifted) { s.lifted = append(s.lifted, l) })
}

func (s *scan) openLow(rel string) (int, error) {
	return openShut(s.root, rel, func(l lifted) { s.lowLifted = append(s.lowLifted, l) })
}

// relockLow leaves the workspace as it was.
func (s *scan) relockLow() error {
	err := relock(s.root, s.lowLifted)
	s.lowLifted = nil
	return err
}

// upperMode is the mode that the run gave a directory.
func (s *scan) upperMode(rel string, mode uint32) uint32 {
	if i := slices.IndexFunc(s.lifted, func(l lifted) bool { return l.rel == rel }); i >= 0 {
		return mode&^0o7777 | s.lifted[i].mode
	}
	return mode
}

func (s *scan) compare(j job) error {
	up, err := s.openUpper(j.rel)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	low := -1
	if !j.fresh {
		if low, err = s.openLow(j.rel); err != nil {
			return err
		}
		defer unix.Close(low)
		var st unix.Stat_t
		if err := unix.Fstat(low, &st); err != nil {
			return err
		}
		j.gone = s.newer(&st)
	}
	list, err := s.names(j.rel, up)
	if err != nil {
		return err
	}
	for _, name := range list {
		if err := s.entry(j, name, up, low); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	if j.opaque && low >= 0 {
		return s.hidden(j, list, low)
	}
	return nil
}

// names lists a directory, or of it the one name that matters.
func (s *scan) names(rel string, dir int) ([]string, error) {
	if s.only == "" {
		return names(dir)
	}
	name := s.only
	if rel != "." {
		name = s.only[min(len(s.only), len(rel)+1):]
	}
	name, _, _ = strings.Cut(name, "/")
	if name == "" || !exists(dir, name) {
		return nil, nil
	}
	return []string{name}, nil
}

// hidden lists what a directory that hides the workspace's own makes vanish.
func (s *scan) hidden(j job, list []string, low int) error {
	below, err := s.names(j.rel, low)
	if err != nil {
		return err
	}
	for _, name := range below {
		if _, found := slices.BinarySearch(list, name); found {
			continue
		}
		st, err := lstat(low, name)
		if err != nil {
			return err
		}
		if st != nil {
			if err := s.add(deletion(join(j.rel, name), st, s.newer(st))); err != nil {
				return err
			}
		}
	}
	return nil
}

func deletion(rel string, st *unix.Stat_t, conflict bool) Change {
	return Change{Path: rel, Kind: Deleted, Mode: fileMode(st.Mode), Conflict: conflict && !isDir(st), low: st}
}

func (s *scan) add(c Change) error {
	if len(c.Path) > maxPath {
		return fmt.Errorf("a path of %d bytes (want at most %d)", len(c.Path), maxPath)
	}
	if s.bytes += len(c.Path) + 256; s.bytes > maxPaths {
		return fmt.Errorf("too many changes")
	}
	s.changes = append(s.changes, c)
	return nil
}

func (s *scan) entry(j job, name string, up, low int) error {
	st, err := lstat(up, name)
	if err != nil || st == nil {
		return err
	}
	var lowSt *unix.Stat_t
	if low >= 0 {
		if lowSt, err = lstat(low, name); err != nil {
			return err
		}
	}
	rel := join(j.rel, name)
	var marks map[string]string
	err = readable(up, name, st, func() error {
		marks, err = s.marks(up, name)
		return err
	})
	if err != nil {
		return err
	}
	if isWhiteout(st, marks) {
		if lowSt == nil {
			return nil // made and deleted again, or gone by itself
		}
		return s.add(deletion(rel, lowSt, s.newer(lowSt)))
	}
	origin, copied := marks["origin"] // empty where handles cannot be had
	gone := copied && lowSt == nil
	if isDir(st) {
		s.queue = append(s.queue, job{rel, j.opaque || marks["opaque"] == "y", !isDir(lowSt), gone})
	}
	if isDir(st) && isDir(lowSt) {
		return s.stayed(rel, up, low, name, marks, st, lowSt, j.opaque || marks["opaque"] == "y")
	}
	c := Change{Path: rel, Kind: Added, Mode: fileMode(s.upperMode(rel, st.Mode)), Size: st.Size, up: st, low: lowSt}
	switch {
	case lowSt != nil:
		c.Kind = Changed
		c.Conflict = s.newer(lowSt)
	case isDir(st):
		// Directories are copied up in their place: this one was taken away.
		c.Conflict = gone
	case gone && j.gone:
		// Taken away, or renamed by the run: its origin may tell.
		c.Conflict, c.origin = true, []byte(origin)
	}
	return s.add(c)
}

// stayed adds a directory that is one before and after.
func (s *scan) stayed(rel string, up, low int, name string, marks map[string]string, upSt, lowSt *unix.Stat_t, replaced bool) error {
	m, err := metaOf(up, name, upSt)
	if err != nil {
		return err
	}
	old, err := metaAt(low, name)
	if err != nil {
		return err
	}
	s.translate(m)
	m.Mode = s.upperMode(rel, m.Mode)
	st := *lowSt
	c := Change{Path: rel, Kind: ModeOnly, Mode: fileMode(st.Mode&unix.S_IFMT | m.Mode), meta: m, old: old, low: &st, replaced: replaced}
	c.touched = m.sameBut(old)
	// One that the run made, and somebody else did too meanwhile.
	_, copied := marks["origin"]
	c.Conflict = !copied && marks["opaque"] == "" && s.newer(lowSt) && !m.sameBut(old)
	return s.add(c)
}

// directory adds the root.
func (s *scan) directory(rel string) error {
	m, err := metaAt(s.up, rel)
	if err != nil {
		return err
	}
	old, err := metaAt(s.root, rel)
	if err != nil {
		return err
	}
	s.translate(m)
	if os.Geteuid() != 0 {
		// Begin could not give it away, and nor could the run.
		m.UID, m.GID = old.UID, old.GID
	}
	c := Change{Path: rel, Kind: ModeOnly, Mode: fs.ModeDir | fs.FileMode(m.Mode&0o777), meta: m, old: old, low: &unix.Stat_t{Mode: unix.S_IFDIR | old.Mode}}
	c.touched = m.sameBut(old)
	return s.add(c)
}

// marks reads what the overlay noted on an entry, by the names without their
// prefix. Marks of features that this package's mounts do not have mean
// that it was mounted otherwise, and that the tree is not what it seems.
func (s *scan) marks(dir int, name string) (map[string]string, error) {
	fd, err := pinned(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var marks map[string]string
	for _, n := range listXattrs(fdPath(fd)) {
		for _, space := range s.spaces {
			mark, ok := strings.CutPrefix(n, space)
			if !ok || strings.HasPrefix(mark, "overlay.") {
				continue
			}
			if mark == "redirect" || mark == "metacopy" {
				return nil, fmt.Errorf("the overlay was mounted with redirect_dir or metacopy, which cannot be committed")
			}
			value, _ := getXattr(fdPath(fd), n)
			if marks == nil {
				marks = map[string]string{}
			}
			if mark == "whiteout" && value != nil {
				value = []byte("y") // it may be empty
			}
			marks[mark] = string(value)
		}
	}
	return marks, nil
}

// isWhiteout: a deleted file is a character device 0:0, or an empty file with
// a mark. Neither can be made inside an overlay.
func isWhiteout(st *unix.Stat_t, marks map[string]string) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		return st.Rdev == 0
	}
	return isRegular(st) && st.Size == 0 && marks["whiteout"] != ""
}

// translate makes of the attributes in the upper directory those that the run
// saw: the overlay's own are none of its, and names of the same kind that the
// run set itself are kept under a longer name.
func (s *scan) translate(m *meta) {
	for i := range m.Xattrs {
		if n, ok := s.visible(string(m.Xattrs[i].Name)); ok {
			m.Xattrs[i].Name = []byte(n)
		}
	}
	m.without(func(n string) bool { _, ok := s.visible(n); return !ok })
}

func (s *scan) visible(name string) (string, bool) {
	for _, space := range s.spaces {
		if mark, ok := strings.CutPrefix(name, space); ok {
			inner, escaped := strings.CutPrefix(mark, "overlay.")
			return space + inner, escaped
		}
	}
	return name, true
}

// newer reports whether something in the workspace was changed after Begin. A
// program can set back a file's times, but not that of its status.
func (s *scan) newer(st *unix.Stat_t) bool {
	return !time.Unix(st.Ctim.Sec, st.Ctim.Nsec).Before(s.begun)
}

// vanished looks at the files that seem to have been taken away from the
// workspace since the run copied them. One that the run itself renamed looks
// the same, but then what it was copied from is among what the run deleted.
func (s *scan) vanished() error {
	if !slices.ContainsFunc(s.changes, func(c Change) bool { return len(c.origin) > 0 }) {
		return nil
	}
	handles := map[string]bool{}
	for i := range s.changes {
		c := &s.changes[i]
		if c.low == nil || c.stays() {
			continue
		}
		err := s.lowTree(c.Path, c.low, func(dir int, name, _ string, _ *unix.Stat_t) error {
			if h, _, err := unix.NameToHandleAt(dir, name, 0); err == nil {
				handles[string(h.Bytes())] = true
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i := range s.changes {
		if c := &s.changes[i]; len(c.origin) > 0 {
			c.Conflict = !handles[originHandle(c.origin)]
		}
	}
	return nil
}

// originHandle takes the file handle out of an origin mark: struct ovl_fb is
// version, magic, length, flags and type of a byte each, a UUID of 16, and
// the handle (fs/overlayfs/overlayfs.h).
func originHandle(mark []byte) string {
	const head = 5 + 16
	if len(mark) <= head {
		return ""
	}
	return string(mark[head:])
}

// lowTree calls f for an entry of the workspace and all below it, parents
// first.
func (s *scan) lowTree(rel string, st *unix.Stat_t, f func(dir int, name, rel string, st *unix.Stat_t) error) error {
	dir, base, err := openParent(s.root, rel)
	if err != nil {
		return err
	}
	err = f(dir, base, rel, st)
	unix.Close(dir)
	if err != nil || !isDir(st) {
		return err
	}
	for queue := []string{rel}; len(queue) > 0; queue = queue[1:] {
		found, err := s.lowDir(queue[0], f)
		if err != nil {
			return err
		}
		queue = append(queue, found...)
	}
	return nil
}

func (s *scan) lowDir(rel string, f func(dir int, name, rel string, st *unix.Stat_t) error) (dirs []string, err error) {
	fd, err := s.openLow(rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return nil, err
	}
	for _, name := range list {
		st, err := lstat(fd, name)
		if err != nil {
			return nil, err
		}
		if st == nil {
			continue
		}
		if err := f(fd, name, rel+"/"+name, st); err != nil {
			return nil, err
		}
		if isDir(st) {
			dirs = append(dirs, rel+"/"+name)
		}
	}
	return dirs, nil
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for bit, b := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= b
		}
	}
	return mode
}
