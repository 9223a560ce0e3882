//go:build linux

package transaction

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Snapshot is a transaction for tools that run outside a sandbox, in the
// workspace itself. Before a tool runs, Preserve is told what it will write or
// delete; Rollback puts all that back. What was not preserved is not known,
// and stays as the tool left it. Its methods are for one goroutine at a time.
type Snapshot struct {
	tx     *Tx
	given  string // the workspace as the caller names it
	root   int
	kept   int // the directory of pre-images
	images map[string]*image
	whole  map[string]bool // trees of which everything is kept
	shut   []lifted        // to be shut again when Preserve is done
	log    *os.File
	next   int
	files  []string // pre-images that are not durable yet
}

// imageKind is what stood at a path.
type imageKind string

const (
	wasAbsent imageKind = "absent"
	wasFile   imageKind = "file"
	wasLink   imageKind = "link"
	wasPipe   imageKind = "pipe"
	// wasTree is a directory with all that it held, wasDir one of which just
	// its own attributes are known.
	wasTree imageKind = "tree"
	wasDir  imageKind = "dir"
)

// image is one line of a snapshot's log. Paths and names are bytes.
type image struct {
	Path []byte    `json:"path"`
	Kind imageKind `json:"kind"`
	Meta *meta     `json:"meta,omitempty"`
	Slot string    `json:"slot,omitempty"`
	Text []byte    `json:"text,omitempty"` // a link's target
	ID   inode     `json:"id"`
	Kids [][]byte  `json:"kids,omitempty"`
}

const (
	imageLog  = "images.jsonl"
	imageDir  = "kept"
	trashDir  = "trash"
	keptInode = ".inode" // ends the name of a file kept itself, not its copy
)

// BeginSnapshot opens a snapshot. It looks at the workspace's root only.
func BeginSnapshot(cfg Config) (*Snapshot, error) {
	given := filepath.Clean(cfg.Workspace)
	t, err := create(&cfg, "snapshot-")
	if err != nil {
		return nil, err
	}
	s := newSnapshot(t, given)
	if err := s.prepare(); err != nil {
		s.close()
		return nil, errors.Join(fmt.Errorf("transaction: begin snapshot: %w", err), removeTree(t.dir))
	}
	return s, nil
}

func newSnapshot(t *Tx, given string) *Snapshot {
	return &Snapshot{tx: t, given: given, root: -1, kept: -1, images: map[string]*image{}, whole: map[string]bool{}}
}

func (s *Snapshot) prepare() error {
	for _, d := range []string{imageDir, trashDir} {
		if err := os.Mkdir(filepath.Join(s.tx.dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := s.open(true); err != nil {
		return err
	}
	text, err := json.Marshal(record{Workspace: []byte(s.tx.cfg.Workspace), WS: s.tx.ws})
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(s.tx.dir, recordFile), text)
}

func (s *Snapshot) open(first bool) (err error) {
	if s.root, err = s.tx.openRoot(first); err != nil {
		return err
	}
	kept := filepath.Join(s.tx.dir, imageDir)
	if s.kept, err = unix.Open(kept, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		return &os.PathError{Op: "open", Path: kept, Err: err}
	}
	s.log, err = os.OpenFile(filepath.Join(s.tx.dir, imageLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return err
}

func (s *Snapshot) close() {
	for _, fd := range []*int{&s.root, &s.kept} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	if s.log != nil {
		s.log.Close()
		s.log = nil
	}
	s.tx.release()
}

// Preserve keeps what stands at a path of the workspace, absolute or relative
// to it, before a tool writes or deletes it: of a directory all that is below,
// of a link the link itself, of nothing that there is nothing. A tool that
// will write through a link needs the link's target preserved. A path that
// leads through a link, or out of the workspace, is an error, and so is one
// that a device or socket stands at. When it returns, what it kept outlives a
// crash; when it fails, the tool must not run. The first image of a path is the
// one that counts.
func (s *Snapshot) Preserve(name string) error {
	rel, err := s.rel(name)
	if err == nil {
		err = errors.Join(s.preserve(rel), relock(s.root, s.shut))
		s.shut = s.shut[:0]
	}
	if err == nil {
		err = s.durable()
	}
	if err != nil {
		return fmt.Errorf("transaction: preserve %q: %w", name, err)
	}
	return nil
}

func (s *Snapshot) rel(name string) (string, error) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return "", errors.New("want a path")
	}
	clean := path.Clean(name)
	if path.IsAbs(clean) {
		inside := false
		for _, ws := range []string{s.tx.cfg.Workspace, s.given} {
			if below(clean, ws) {
				clean, inside = path.Clean("."+clean[len(ws):]), true
				break
			}
		}
		if !inside {
			return "", fmt.Errorf("it is outside the workspace %q", s.tx.cfg.Workspace)
		}
	}
	if below(clean, "..") {
		return "", fmt.Errorf("it is outside the workspace %q", s.tx.cfg.Workspace)
	}
	if len(clean) > maxPath {
		return "", fmt.Errorf("a path of %d bytes (want at most %d)", len(clean), maxPath)
	}
	return clean, nil
}

func (s *Snapshot) preserve(rel string) error {
	if rel == "." {
		return s.saveTree(rel)
	}
	// Each directory above must be one, and stands or is made by the tool.
	if s.covered(".") {
		return nil
	}
	if err := s.saveDir("."); err != nil {
		return err
	}
	parts := strings.Split(rel, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		if s.covered(at) {
			return nil
		}
		if i == len(parts)-1 {
			break
		}
		dir, base, err := openParent(s.root, at)
		if err != nil {
			return err
		}
		st, err := lstat(dir, base)
		unix.Close(dir)
		if err != nil {
			return err
		}
		if st == nil {
			rel = at
			break
		}
		if !isDir(st) {
			return fmt.Errorf("%q is no directory", at)
		}
		if err := s.saveDir(at); err != nil {
			return err
		}
	}
	return s.saveTree(rel)
}

// covered: all that happens at and below rel is undone already.
func (s *Snapshot) covered(rel string) bool {
	i := s.images[rel]
	return i != nil && i.Kind != wasDir && (i.Kind != wasTree || s.whole[rel])
}

// saveDir keeps the attributes of a directory that something happens in.
func (s *Snapshot) saveDir(rel string) error {
	if s.images[rel] != nil {
		return nil
	}
	dir, base, err := openParent(s.root, rel)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	m, err := metaAt(dir, base)
	if err != nil {
		return err
	}
	return s.add(&image{Path: []byte(rel), Kind: wasDir, Meta: m})
}

// saveTree keeps what stands at rel and below.
func (s *Snapshot) saveTree(rel string) error {
	for queue := []string{rel}; len(queue) > 0; queue = queue[1:] {
		if s.covered(queue[0]) {
			continue
		}
		i := s.images[queue[0]]
		if i == nil || i.Kind == wasDir { // else an earlier attempt failed below
			var err error
			if i, err = s.save(queue[0]); err != nil {
				return fmt.Errorf("%q: %w", queue[0], err)
			}
		}
		for _, k := range i.Kids {
			queue = append(queue, join(queue[0], string(k)))
		}
	}
	s.whole[rel] = true
	return nil
}

func (s *Snapshot) save(rel string) (*image, error) {
	dir, base, err := openParent(s.root, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	st, err := lstat(dir, base)
	if err != nil {
		return nil, err
	}
	i := &image{Path: []byte(rel), Kind: wasAbsent}
	if st == nil {
		return i, s.add(i)
	}
	i.ID = inode{uint64(st.Dev), st.Ino}
	if i.Meta, err = metaOf(dir, base, st); err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		i.Kind = wasTree
		if before := s.images[rel]; before != nil {
			i.Meta = before.Meta // as it was before the tools that ran since
		}
		if i.Kids, err = s.kids(rel); err != nil {
			return nil, err
		}
	case unix.S_IFLNK:
		i.Kind = wasLink
		text, err := readlink(entry{dir, base})
		if err != nil {
			return nil, err
		}
		i.Text = []byte(text)
		if err := s.keepItself(i, entry{dir, base}); err != nil {
			return nil, err
		}
	case unix.S_IFIFO:
		i.Kind = wasPipe
		if err := s.keepItself(i, entry{dir, base}); err != nil {
			return nil, err
		}
	case unix.S_IFREG:
		i.Kind = wasFile
		if err := s.keep(i, entry{dir, base}); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("it is a device or a socket, which cannot be put back")
	}
	return i, s.add(i)
}

// kids lists what a directory held: what came since does not count.
func (s *Snapshot) kids(rel string) ([][]byte, error) {
	fd, err := openShut(s.root, rel, func(l lifted) { s.shut = append(s.shut, l) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	var kids [][]byte
	for _, n := range list {
		if i := s.images[join(rel, n)]; i == nil || i.Kind != wasAbsent {
			kids = append(kids, []byte(n))
		}
	}
	// And what the tools took away since is to be there again.
	for p, i := range s.images {
		if path.Dir(p) == rel && p != "." && i.Kind != wasAbsent && !slices.Contains(list, path.Base(p)) {
			kids = append(kids, []byte(path.Base(p)))
		}
	}
	return kids, err
}

// keep copies a file, and keeps the file itself beside the copy under another
// name where that can be: a tool may replace it, and it may have more names
// than one.
func (s *Snapshot) keep(i *image, e entry) error {
	if err := s.keepItself(i, e); err != nil {
		return err
	}
	if err := copyFile(e, entry{s.kept, i.Slot}); err != nil {
		return err
	}
	s.files = append(s.files, i.Slot)
	return nil
}

func (s *Snapshot) keepItself(i *image, e entry) error {
	i.Slot = strconv.Itoa(s.next)
	s.next++
	err := unix.Linkat(e.dir, e.name, s.kept, i.Slot+keptInode, 0)
	if err == nil || err == unix.EXDEV || err == unix.EPERM || err == unix.EMLINK {
		return nil
	}
	return &os.PathError{Op: "link", Path: e.name, Err: err}
}

func (s *Snapshot) add(i *image) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if _, err := s.log.Write(append(text, '\n')); err != nil {
		return err
	}
	s.images[string(i.Path)] = i
	return nil
}

// durable holds what was kept against a crash of the machine.
func (s *Snapshot) durable() error {
	const few = 16
	if len(s.files) > few {
		if err := unix.Syncfs(s.kept); err != nil {
			return err
		}
		s.files = s.files[:0]
		return nil
	}
	for _, slot := range s.files {
		f, err := openForReading(entry{s.kept, slot})
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	s.files = s.files[:0]
	return s.log.Sync()
}

// Commit forgets what was preserved. The workspace stays as it is.
func (s *Snapshot) Commit() error {
	defer s.close()
	// Without its record it is nothing that recovery would roll back.
	if err := os.Remove(filepath.Join(s.tx.dir, recordFile)); err != nil {
		return fmt.Errorf("transaction: commit snapshot: %w", err)
	}
	if err := removeTree(s.tx.dir); err != nil {
		return fmt.Errorf("transaction: commit snapshot: %w", err)
	}
	return nil
}

// Rollback puts back all that was preserved: content, modes, owners, links,
// times and attributes, and removes what was made where there was nothing. On
// an error the snapshot stays, and can be rolled back again.
func (s *Snapshot) Rollback() error {
	r := restorer{Snapshot: s, done: map[inode]string{}}
	if err := r.run(); err != nil {
		return fmt.Errorf("transaction: roll back snapshot: %w", err)
	}
	s.close()
	if err := removeTree(s.tx.dir); err != nil {
		return fmt.Errorf("transaction: roll back snapshot: %w", err)
	}
	return nil
}

// recoverSnapshot rolls a snapshot back whose process is gone.
func (t *Tx) recoverSnapshot() (*Recovered, error) {
	s := newSnapshot(t, t.cfg.Workspace)
	defer s.close()
	text, err := os.ReadFile(filepath.Join(t.dir, imageLog))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var i image
		// The last line may be torn: no tool had run on its account.
		if json.Unmarshal(line, &i) == nil {
			s.images[string(i.Path)] = &i
		}
	}
	if err := s.open(false); err != nil {
		return nil, err
	}
	return &Recovered{Workspace: t.cfg.Workspace}, s.Rollback()
}
