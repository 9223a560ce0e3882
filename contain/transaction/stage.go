//go:build linux

package transaction

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// choosePlace decides where to stage. Within one mount things can be moved;
// else they must be copied to where they can.
func (c *commit) choosePlace() error {
	c.journal = journal{Workspace: []byte(c.tx.cfg.Workspace), WS: c.tx.ws}
	own, err := unix.Open(c.tx.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(own)
	if sameMount(own, c.root) {
		return nil
	}
	// The name is new, so that no run can have known it.
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	c.journal.Stage = stagePrefix + hex.EncodeToString(id[:])
	if c.journal.Root, err = metaAt(c.root, "."); err != nil {
		return err
	}
	text, err := json.Marshal(c.journal.place)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(c.tx.dir, placeFile), text)
}

func sameMount(a, b int) bool {
	var x, y unix.Statx_t
	if unix.Statx(a, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &x) != nil || unix.Statx(b, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &y) != nil {
		return false
	}
	return x.Mask&y.Mask&unix.STATX_MNT_ID != 0 && x.Mnt_id == y.Mnt_id && x.Dev_major == y.Dev_major && x.Dev_minor == y.Dev_minor
}

// stageParent is the directory that the staging directory is in.
func (c *commit) stageParent() (fd int, name string, err error) {
	if c.journal.Stage != "" {
		fd, err = unix.Openat(c.root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return fd, c.journal.Stage, err
	}
	fd, err = unix.Open(c.tx.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, "stage", err
}

func (c *commit) stagePath() string {
	if c.journal.Stage != "" {
		return filepath.Join(c.tx.cfg.Workspace, c.journal.Stage)
	}
	return filepath.Join(c.tx.dir, "stage")
}

func (c *commit) openStage(create bool) error {
	parent, name, err := c.stageParent()
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if create && c.journal.Stage != "" && os.Geteuid() != 0 && c.journal.Root.UID == os.Geteuid() && c.journal.Root.Mode&0o300 != 0o300 {
		if err := c.lift(".", c.journal.Root.Mode|0o700); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		at   *int
		name string
		fd   *int
	}{{&parent, name, &c.stage}, {&c.stage, "new", &c.newDir}, {&c.stage, "old", &c.oldDir}} {
		if create {
			if err := unix.Mkdirat(*d.at, d.name, 0o700); err != nil {
				return &os.PathError{Op: "mkdir", Path: d.name, Err: err}
			}
		}
		if *d.fd, err = openDir(*d.at, d.name, unix.O_RDONLY); err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) close() {
	for _, fd := range []*int{&c.root, &c.stage, &c.newDir, &c.oldDir} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// unstage removes the staging directory, and its traces.
func (c *commit) unstage() error {
	if c.journal.Stage == "" {
		return removeTree(c.stagePath())
	}
	if os.Geteuid() != 0 && c.journal.Root.UID == os.Geteuid() {
		if err := c.lift(".", c.journal.Root.Mode|0o700); err != nil {
			return err
		}
	}
	parent, name, err := c.stageParent()
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if c.stage >= 0 {
		// Its insides first: deep directories are moved to the top of it.
		for _, n := range []string{"new", "old"} {
			if err := removeAll(c.stage, n); err != nil {
				return err
			}
		}
		if err := removeName(parent, name, unix.AT_REMOVEDIR); err != nil {
			return err
		}
	}
	c.point("unstaged")
	return c.rootMeta().setAt(c.root, ".")
}

// rootMeta is what the workspace's root is to be when nothing is staged in it
// any more.
func (c *commit) rootMeta() *meta {
	for i := range c.journal.Ops {
		if o := &c.journal.Ops[i]; c.done && o.Kind == opMeta && string(o.Path) == "." {
			return o.Meta
		}
	}
	return c.journal.Root
}

// sync makes what was staged durable before the journal promises it.
func (c *commit) sync() error { return unix.Syncfs(c.stage) }

// planner stages all content and lists the steps.
type planner struct {
	*commit
	put    string // the path of the staged tree under way; "" for none
	slot   string // and its number
	metas  []op   // of directories that stay
	inner  []dirMeta
	direct map[string]bool // directories that a step happens in
	// Where a file with several names was staged, for copies.
	links map[inode]string
	up    cachedDir // the directory that is staged from
	to    cachedDir // and to
}

// dirMeta is what a staged directory gets when its content is staged.
type dirMeta struct {
	staged string
	meta   *meta
}

// cachedDir keeps the last directory open: changes come sorted.
type cachedDir struct {
	rel string
	fd  int
}

func (d *cachedDir) get(root int, rel string) (int, error) {
	if d.fd >= 0 && d.rel == rel {
		return d.fd, nil
	}
	d.close()
	fd, err := openDir(root, rel, unix.O_PATH)
	if err == nil {
		d.rel, d.fd = rel, fd
	}
	return fd, err
}

func (d *cachedDir) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
		d.fd = -1
	}
}

// plan lists the steps: what goes and comes with parents first, then the
// directories' own attributes with children first, since every step inside a
// directory changes its times.
func (c *commit) plan(changes []Change) error {
	p := planner{commit: c, direct: map[string]bool{}, links: map[inode]string{}, up: cachedDir{fd: -1}, to: cachedDir{fd: -1}}
	defer p.up.close()
	defer p.to.close()
	for i := range changes {
		if err := p.change(&changes[i]); err != nil {
			return fmt.Errorf("%q: %w", changes[i].Path, err)
		}
	}
	for _, d := range slices.Backward(p.inner) {
		dir, base, err := openParent(c.newDir, d.staged)
		if err != nil {
			return err
		}
		err = d.meta.setAt(dir, base)
		unix.Close(dir)
		if err != nil {
			return err
		}
	}
	p.directories()
	return nil
}

func (p *planner) change(ch *Change) error {
	switch {
	case ch.stays():
		p.metas = append(p.metas, op{Kind: opMeta, Path: []byte(ch.Path), Meta: ch.meta, Old: ch.old})
		return nil
	case p.put != "" && below(ch.Path, p.put):
		return p.stage(ch, p.slot+ch.Path[len(p.put):])
	}
	p.put = ""
	p.slot = strconv.Itoa(len(p.journal.Ops))
	o := op{Kind: opDelete, Path: []byte(ch.Path), Slot: p.slot, Low: identify(ch.low)}
	p.direct[path.Dir(ch.Path)] = true
	if ch.Kind != Deleted {
		o.Kind = opPut
		if isDir(ch.up) {
			p.put = ch.Path
		}
		if err := p.stage(ch, p.slot); err != nil {
			return err
		}
		if isDir(ch.up) {
			// It must be writable to be moved, and has its mode after that.
			last := &p.inner[len(p.inner)-1]
			whole := *last.meta
			o.Meta = &whole
			last.meta.Mode |= 0o700
		}
	}
	p.journal.Ops = append(p.journal.Ops, o)
	return nil
}

// directories adds the steps for directories that stay: the rights that their
// owner lacks in front, what they are to be at the end.
func (p *planner) directories() {
	var lifts []op
	for _, m := range p.metas {
		if os.Geteuid() != 0 && m.Old.UID == os.Geteuid() && m.Old.Mode&0o300 != 0o300 && p.within(string(m.Path)) {
			lifts = append(lifts, op{Kind: opLift, Path: m.Path, Old: m.Old})
			p.direct[string(m.Path)] = true
		}
	}
	p.journal.Ops = append(lifts, p.journal.Ops...)
	for _, m := range slices.Backward(p.metas) {
		rel := string(m.Path)
		staged := rel == "." && p.journal.Stage != ""
		if p.direct[rel] || staged || !m.Meta.sameBut(m.Old) || m.Meta.Mtime != m.Old.Mtime {
			p.journal.Ops = append(p.journal.Ops, m)
		}
	}
}

// within reports whether a step happens in a directory or below.
func (p *planner) within(rel string) bool {
	return slices.ContainsFunc(p.journal.Ops, func(o op) bool { return rel == "." || below(string(o.Path), rel) })
}

// stage makes what is to be moved in.
func (p *planner) stage(ch *Change, staged string) error {
	from, err := p.up.get(p.scan.up, path.Dir(ch.Path))
	if err != nil {
		return err
	}
	to, err := p.to.get(p.newDir, path.Dir(staged))
	if err != nil {
		return err
	}
	src, dst := entry{from, path.Base(ch.Path)}, entry{to, path.Base(staged)}
	if isDir(ch.up) {
		return p.stageDir(ch, src, dst, staged)
	}
	if p.journal.Stage == "" {
		err := unix.Linkat(src.dir, src.name, dst.dir, dst.name, 0)
		if err == nil {
			return p.clean(ch, dst)
		}
		if err != unix.EMLINK && err != unix.EPERM && err != unix.EXDEV {
			return &os.PathError{Op: "link", Path: src.name, Err: err}
		}
	}
	return p.copy(ch, src, dst, staged)
}

func (p *planner) stageDir(ch *Change, src, dst entry, staged string) error {
	st, err := lstat(src.dir, src.name) // as it is now, perhaps lifted
	if err != nil || st == nil {
		return errors.Join(err, unix.ENOENT)
	}
	m, err := metaOf(src.dir, src.name, st)
	if err != nil {
		return err
	}
	p.scan.translate(m)
	m.Mode = p.scan.upperMode(ch.Path, m.Mode)
	if err := unix.Mkdirat(dst.dir, dst.name, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: dst.name, Err: err}
	}
	p.inner = append(p.inner, dirMeta{staged, m})
	return nil
}

// copy stages a copy.
func (p *planner) copy(ch *Change, src, dst entry, staged string) error {
	id := inode{uint64(ch.up.Dev), ch.up.Ino}
	if ch.up.Nlink > 1 {
		if first, ok := p.links[id]; ok {
			dir, base, err := openParent(p.newDir, first)
			if err != nil {
				return err
			}
			defer unix.Close(dir)
			return unix.Linkat(dir, base, dst.dir, dst.name, 0)
		}
		p.links[id] = staged
	}
	m, err := metaOf(src.dir, src.name, ch.up)
	if err != nil {
		return err
	}
	switch ch.up.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		text, err := readlink(src)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(text, dst.dir, dst.name); err != nil {
			return err
		}
	case unix.S_IFIFO:
		if err := unix.Mkfifoat(dst.dir, dst.name, 0o600); err != nil {
			return err
		}
	case unix.S_IFREG:
		if err := copyFile(src, dst); err != nil {
			return err
		}
	default:
		return errors.New("it is neither file, link nor pipe")
	}
	p.privileges(ch, m)
	p.scan.translate(m)
	return m.setAt(dst.dir, dst.name)
}

// privileges takes away what would make a program run with other rights.
func (p *planner) privileges(ch *Change, m *meta) {
	if ch.up.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	if m.Mode&setIDs != 0 {
		p.dropped = append(p.dropped, Refusal{ch.Path, "its set-user-ID or set-group-ID bit was dropped"})
		m.Mode &^= setIDs
	}
	n := len(m.Xattrs)
	if m.without(func(name string) bool { return name == capability }); len(m.Xattrs) != n {
		p.dropped = append(p.dropped, Refusal{ch.Path, "its file capabilities were dropped"})
	}
}

// clean takes the overlay's marks and privileges off a file that was staged
// as what the run left itself.
func (p *planner) clean(ch *Change, e entry) error {
	m, err := metaOf(e.dir, e.name, ch.up)
	if err != nil {
		return err
	}
	n, mode := len(m.Xattrs), m.Mode
	same := func() bool {
		for _, x := range m.Xattrs {
			if name, ok := p.scan.visible(string(x.Name)); !ok || name != string(x.Name) {
				return false
			}
		}
		return true
	}()
	p.privileges(ch, m)
	if same && n == len(m.Xattrs) && mode == m.Mode {
		return nil
	}
	p.scan.translate(m)
	return m.setAt(e.dir, e.name)
}

func readlink(e entry) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(e.dir, e.name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: e.name, Err: err}
	}
	return string(buf[:n]), nil
}
