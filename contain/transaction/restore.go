//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// restorer is a snapshot while it is rolled back. Each of its steps may be
// done again.
type restorer struct {
	*Snapshot
	trash int
	moved int
	done  map[inode]string // where a file that has several names is again
}

func (r *restorer) run() (err error) {
	r.trash, err = unix.Open(filepath.Join(r.tx.dir, trashDir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(r.trash)
	var order []string
	for p := range r.images {
		order = append(order, p)
	}
	slices.SortFunc(order, comparePaths)
	var errs []error
	for _, p := range order {
		if err := r.put(r.images[p]); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", p, err))
		}
	}
	// What happened in a directory changed its times.
	for _, p := range slices.Backward(order) {
		if i := r.images[p]; i.Kind == wasTree || i.Kind == wasDir {
			if err := r.finish(i); err != nil {
				errs = append(errs, fmt.Errorf("%q: %w", p, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *restorer) put(i *image) error {
	dir, base, err := openParent(r.root, string(i.Path))
	if err != nil {
		if i.Kind == wasAbsent && errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	defer unix.Close(dir)
	e := entry{dir, base}
	st, err := lstat(dir, base)
	if err != nil {
		return err
	}
	if (i.Kind == wasLink || i.Kind == wasPipe) && exists(r.kept, i.Slot+keptInode) {
		if err := r.itself(i, e, st); err != nil {
			return err
		}
		return i.Meta.setAt(dir, base)
	}
	switch i.Kind {
	case wasAbsent:
		return r.discard(e, st)
	case wasTree, wasDir:
		return r.directory(i, e, st)
	case wasFile:
		return r.file(i, e, st)
	case wasLink:
		return r.link(i, e, st)
	case wasPipe:
		if st == nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			if err := r.discard(e, st); err != nil {
				return err
			}
			if err := unix.Mkfifoat(dir, base, 0o600); err != nil {
				return err
			}
		}
		return i.Meta.setAt(dir, base)
	}
	return fmt.Errorf("unknown image %q", i.Kind)
}

// discard takes away what stands at a name, if anything does.
func (r *restorer) discard(e entry, st *unix.Stat_t) error {
	if st == nil {
		return nil
	}
	if !isDir(st) {
		return removeName(e.dir, e.name, 0)
	}
	for {
		r.moved++
		err := moveDir(st, e.dir, e.name, r.trash, strconv.Itoa(r.moved))
		if errors.Is(err, errChanged) {
			continue // a name that an earlier attempt used
		}
		if err == unix.EXDEV {
			return removeAll(e.dir, e.name)
		}
		return err
	}
}

func (r *restorer) directory(i *image, e entry, st *unix.Stat_t) error {
	if !isDir(st) {
		if err := r.discard(e, st); err != nil {
			return err
		}
		if err := unix.Mkdirat(e.dir, e.name, 0o700); err != nil {
			return err
		}
	}
	fd, err := unlocked(e.dir, e.name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if i.Kind == wasDir {
		return nil
	}
	list, err := names(fd)
	if err != nil {
		return err
	}
	for _, n := range list {
		if slices.ContainsFunc(i.Kids, func(k []byte) bool { return string(k) == n }) {
			continue
		}
		st, err := lstat(fd, n)
		if err == nil {
			err = r.discard(entry{fd, n}, st)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *restorer) finish(i *image) error {
	dir, base, err := openParent(r.root, string(i.Path))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if st, err := lstat(dir, base); err != nil || !isDir(st) {
		return errors.Join(err, unix.ENOTDIR)
	}
	return i.Meta.setAt(dir, base)
}

func (r *restorer) link(i *image, e entry, st *unix.Stat_t) error {
	same := false
	if st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		text, err := readlink(e)
		same = err == nil && text == string(i.Text)
	}
	if !same {
		if err := r.discard(e, st); err != nil {
			return err
		}
		if err := unix.Symlinkat(string(i.Text), e.dir, e.name); err != nil {
			return err
		}
	}
	return i.Meta.setAt(e.dir, e.name)
}

// file puts a file back: the very file where it was kept or still stands
// there, so that its other names get their content back too.
func (r *restorer) file(i *image, e entry, st *unix.Stat_t) error {
	if exists(r.kept, i.Slot+keptInode) {
		itself := entry{r.kept, i.Slot + keptInode}
		err := r.refill(i, itself)
		if err == nil {
			err = r.itself(i, e, st)
		}
		if !errors.Is(err, unix.ETXTBSY) {
			return err
		}
	} else if st != nil && isRegular(st) && (inode{uint64(st.Dev), st.Ino}) == i.ID {
		if err := r.refill(i, e); !errors.Is(err, unix.ETXTBSY) {
			return err
		}
	}
	if first, ok := r.done[i.ID]; ok {
		dir, base, err := openParent(r.root, first)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		if err := r.discard(e, st); err != nil {
			return err
		}
		return unix.Linkat(dir, base, e.dir, e.name, 0)
	}
	r.done[i.ID] = string(i.Path)
	return r.fresh(i, e, st)
}

// itself gives a name to what was kept again, unless it has it still.
func (r *restorer) itself(i *image, e entry, st *unix.Stat_t) error {
	if st != nil && (inode{uint64(st.Dev), st.Ino}) == i.ID {
		return nil
	}
	if err := r.discard(e, st); err != nil {
		return err
	}
	return unix.Linkat(r.kept, i.Slot+keptInode, e.dir, e.name, 0)
}

// refill gives a file its content and attributes back.
func (r *restorer) refill(i *image, e entry) error {
	// No right of its owner, and no set-ID bit, while it is filled.
	if err := chmodAt(e.dir, e.name, 0o600); err != nil {
		return err
	}
	fd, err := unix.Openat(e.dir, e.name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ETXTBSY {
		return errors.Join(i.Meta.setAt(e.dir, e.name), err)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: e.name, Err: err}
	}
	out := os.NewFile(uintptr(fd), e.name)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (inode{uint64(st.Dev), st.Ino}) != i.ID {
		err = errChanged
	}
	if err == nil {
		err = r.fill(out, i.Slot)
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return i.Meta.setAt(e.dir, e.name)
}

func (r *restorer) fill(out *os.File, slot string) error {
	in, err := openForReading(entry{r.kept, slot})
	if err != nil {
		return err
	}
	defer in.Close()
	if err := out.Truncate(0); err != nil {
		return err
	}
	return copyInto(out, in)
}

// fresh makes the file anew, beside its name, and moves it there at once.
func (r *restorer) fresh(i *image, e entry, st *unix.Stat_t) error {
	tmp := entry{e.dir, stagePrefix + r.tx.id + "-" + i.Slot}
	if err := removeAll(tmp.dir, tmp.name); err != nil { // from an earlier attempt
		return err
	}
	if err := copyFile(entry{r.kept, i.Slot}, tmp); err != nil {
		return err
	}
	if err := i.Meta.setAt(tmp.dir, tmp.name); err != nil {
		return err
	}
	if isDir(st) {
		if err := r.discard(e, st); err != nil {
			return err
		}
	}
	return unix.Renameat(tmp.dir, tmp.name, e.dir, e.name)
}
