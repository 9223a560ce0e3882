//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What a run may make its paths as long and its tree as large as, in bytes.
// Beyond that nothing is committed.
const (
	maxPath  = 16 << 10
	maxPaths = 512 << 20
)

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openDir opens the directory rel below root without following a link,
// leaving root or entering another mount. Paths longer than the kernel takes
// are walked in parts.
func openDir(root int, rel string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: beneath}
	at := root
	for {
		part, rest := splitPath(rel, unix.PathMax-256)
		if rest != "" {
			how.Flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		} else {
			how.Flags = flags | unix.O_DIRECTORY | unix.O_CLOEXEC
		}
		fd, err := unix.Openat2(at, part, &how)
		if at != root {
			unix.Close(at)
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: rel, Err: err}
		}
		if rest == "" {
			return fd, nil
		}
		at, rel = fd, rest
	}
}

// splitPath cuts a path at a slash so that the first part is below limit.
func splitPath(rel string, limit int) (part, rest string) {
	if len(rel) < limit {
		return rel, ""
	}
	i := strings.LastIndexByte(rel[:limit], '/')
	if i < 0 {
		return rel, ""
	}
	return rel[:i], rel[i+1:]
}

// openParent opens the directory that rel is in.
func openParent(root int, rel string) (fd int, base string, err error) {
	fd, err = openDir(root, path.Dir(rel), unix.O_PATH)
	return fd, path.Base(rel), err
}

// lstat looks at a name itself. A missing name is (nil, nil).
func lstat(dir int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return &st, nil
}

func exists(dir int, name string) bool {
	st, err := lstat(dir, name)
	return st != nil && err == nil
}

func isDir(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFDIR }

func isRegular(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// names lists a directory, sorted.
func names(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	list, err := f.Readdirnames(-1)
	slices.Sort(list)
	return list, err
}

// pinned opens the object at a name, whatever it is, without following it.
// The descriptor cannot be read from, but it names the object for good.
func pinned(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// fdPath is a path to what a descriptor stands for. The kernel goes to the
// object itself; a link is not followed.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// chmodAt sets the mode of what stands at a name, never of a link's target.
func chmodAt(dir int, name string, mode uint32) error {
	fd, err := pinned(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Chmod(fdPath(fd), mode&0o7777); err != nil {
		return &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}

// entry is a name in an open directory.
type entry struct {
	dir  int
	name string
}

// removeAll removes what stands at a name, and all below, with one open
// directory at a time: directories found inside are first moved to the top,
// so that no depth is too deep. dir must be out of others' reach.
func removeAll(dir int, name string) error {
	st, err := lstat(dir, name)
	if st == nil {
		return err
	}
	if !isDir(st) {
		return removeName(dir, name, 0)
	}
	next := 0
	queue := []string{name}
	for len(queue) > 0 {
		d := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		found, err := emptyDir(dir, d, &next)
		if err != nil {
			return err
		}
		queue = append(queue, found...)
		if err := removeName(dir, d, unix.AT_REMOVEDIR); err != nil {
			return err
		}
	}
	return nil
}

func removeName(dir int, name string, flags int) error {
	if err := unix.Unlinkat(dir, name, flags); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// emptyDir removes a directory's files and moves its directories beside it.
func emptyDir(top int, name string, next *int) (moved []string, err error) {
	fd, err := unlocked(top, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		err := unix.Unlinkat(fd, n, 0)
		if err == nil || err == unix.ENOENT {
			continue
		}
		if err != unix.EISDIR && err != unix.EPERM {
			return moved, &os.PathError{Op: "remove", Path: n, Err: err}
		}
		if st, statErr := lstat(fd, n); statErr != nil || !isDir(st) {
			return moved, &os.PathError{Op: "remove", Path: n, Err: err}
		}
		if unix.Unlinkat(fd, n, unix.AT_REMOVEDIR) == nil {
			continue
		}
		to, err := moveBeside(fd, n, top, next)
		if err != nil {
			return moved, err
		}
		moved = append(moved, to)
	}
	return moved, nil
}

// moveBeside moves a directory to a free name in top.
func moveBeside(fd int, name string, top int, next *int) (string, error) {
	// A directory that moves gets another "..": it must be writable itself.
	if c, err := unlocked(fd, name); err == nil {
		unix.Close(c)
	}
	for {
		*next++
		to := ".removing-" + strconv.Itoa(*next)
		err := unix.Renameat2(fd, name, top, to, unix.RENAME_NOREPLACE)
		if err == nil {
			return to, nil
		}
		if err != unix.EEXIST {
			return "", &os.PathError{Op: "move", Path: name, Err: err}
		}
	}
}

// unlocked opens a directory, after giving its owner the right to, where the
// run had taken it away.
func unlocked(dir int, name string) (int, error) {
	st, err := lstat(dir, name)
	if err != nil {
		return -1, err
	}
	if st == nil || !isDir(st) {
		return -1, &os.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	}
	if st.Mode&0o700 != 0o700 {
		if err := chmodAt(dir, name, st.Mode|0o700); err != nil {
			return -1, err
		}
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// removeTree removes the tree at an absolute path of our own.
func removeTree(dir string) error {
	parent, err := unix.Open(path.Dir(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path.Dir(dir), Err: err}
	}
	defer unix.Close(parent)
	st, err := lstat(parent, path.Base(dir))
	if st == nil || err != nil {
		return err
	}
	// The directory's own inside is where deep directories are moved to.
	inside, err := unlocked(parent, path.Base(dir))
	if err != nil {
		return err
	}
	defer unix.Close(inside)
	list, err := names(inside)
	if err != nil {
		return err
	}
	for _, n := range list {
		if err := removeAll(inside, n); err != nil {
			return err
		}
	}
	return removeName(parent, path.Base(dir), unix.AT_REMOVEDIR)
}

// copyFile copies the content of a file: shared blocks where the file system
// can, and holes as holes.
func copyFile(from entry, to entry) error {
	in, err := openForReading(from)
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(to.dir, to.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: to.name, Err: err}
	}
	out := os.NewFile(uintptr(fd), to.name)
	return errors.Join(copyInto(out, in), out.Close())
}

// copyInto fills an empty file.
func copyInto(out, in *os.File) error {
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file any more", in.Name())
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	return copySparse(out, in, info.Size())
}

// openForReading opens a file that its owner may not read too: its owner may
// change that. The mode is as it was when it returns.
func openForReading(e entry) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(e.dir, e.name, flags, 0)
	if err == unix.EACCES {
		st, statErr := lstat(e.dir, e.name)
		if st == nil || !isRegular(st) {
			return nil, errors.Join(&os.PathError{Op: "open", Path: e.name, Err: err}, statErr)
		}
		if chmodAt(e.dir, e.name, st.Mode|0o400) == nil {
			fd, err = unix.Openat(e.dir, e.name, flags, 0)
			if back := chmodAt(e.dir, e.name, st.Mode); back != nil {
				return nil, back
			}
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: e.name, Err: err}
	}
	return os.NewFile(uintptr(fd), e.name), nil
}

func copySparse(out, in *os.File, size int64) error {
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(in.Fd()), off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := unix.Seek(int(in.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := in.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := out.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(out, in, end-data); err != nil {
			return err
		}
		off = end
	}
	return out.Truncate(size)
}

// writeDurably writes a file that is there after a crash, whole or not at all.
func writeDurably(name string, text []byte) error {
	tmp := name + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return err
	}
	return syncDir(path.Dir(name))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// comparePaths orders paths so that what is in a directory follows it at once.
// The root comes first.
func comparePaths(a, b string) int {
	if a == "." || b == "." {
		return len(strings.TrimPrefix(a, ".")) - len(strings.TrimPrefix(b, "."))
	}
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x == '/' {
			return -1
		}
		if y == '/' || x > y {
			return 1
		}
		return -1
	}
	return len(a) - len(b)
}

// below reports whether rel is dir or lies below it.
func below(rel, dir string) bool {
	return rel == dir || len(rel) > len(dir) && rel[len(dir)] == '/' && rel[:len(dir)] == dir
}

// lifted is a directory whose owner was given the right to enter and change
// it, and the mode it had.
type lifted struct {
	rel  string
	mode uint32
}

// openShut opens a directory to be listed and looked into, also where its
// owner's rights must be lifted first. note is told of each mode changed.
func openShut(root int, rel string, note func(lifted)) (int, error) {
	fd, err := openDir(root, rel, unix.O_RDONLY)
	if os.Geteuid() == 0 || err != nil && !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	if err == nil {
		if unix.Faccessat(fd, ".", unix.R_OK|unix.X_OK, unix.AT_EACCESS) == nil {
			return fd, nil
		}
		unix.Close(fd)
	}
	return unlockPath(root, rel, note)
}

// unlockPath opens a directory after giving its owner the right to, there and
// above. note is told of each mode that it changed.
func unlockPath(root int, rel string, note func(lifted)) (int, error) {
	at, err := unix.Openat(root, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { unix.Close(at) }()
	walked := "."
	for _, name := range strings.Split(rel, "/") {
		st, err := lstat(at, name)
		if err == nil && st == nil {
			err = unix.ENOENT
		}
		if err != nil {
			return -1, err
		}
		walked = path.Join(walked, name)
		if isDir(st) && st.Mode&0o700 != 0o700 && int(st.Uid) == os.Geteuid() {
			if err := chmodAt(at, name, st.Mode|0o700); err != nil {
				return -1, err
			}
			note(lifted{walked, st.Mode & 0o7777})
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: rel, Err: err}
		}
		unix.Close(at)
		at = next
	}
	return unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// relock gives directories back the modes that they had.
func relock(root int, list []lifted) error {
	var errs []error
	for _, l := range slices.Backward(list) {
		dir, base, err := openParent(root, l.rel)
		if err == nil {
			err = chmodAt(dir, base, l.mode)
			unix.Close(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
