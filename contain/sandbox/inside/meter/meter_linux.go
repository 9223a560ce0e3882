package meter

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MinFileBytes is what a file counts at least: its inode is not free.
const MinFileBytes = 4096

type inode struct{ dev, ino uint64 }

// usage adds up what files take on disk. Past limit it stops looking.
type usage struct {
	bytes, limit int64
	// linked files have other names too and count once.
	linked map[inode]struct{}
}

// overflow counts what could not be looked at as too much: an agent could
// hide behind it.
func (u *usage) overflow() { u.bytes = math.MaxInt64 / 2 }

func (u *usage) add(st *unix.Stat_t) {
	if st.Nlink != 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		k := inode{st.Dev, st.Ino}
		if _, seen := u.linked[k]; seen {
			return
		}
		u.linked[k] = struct{}{}
	}
	u.bytes += max(st.Blocks*512, MinFileBytes)
}

// tree adds a directory and all below it. What it reads is written at the
// same time by somebody hostile: no link is followed, and what has gone is
// passed over.
func (u *usage) tree(top string) {
	root, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(root)
	todo := []string{"."}
	for len(todo) > 0 && u.bytes <= u.limit {
		dir := todo[len(todo)-1]
		todo = u.directory(root, dir, todo[:len(todo)-1])
	}
}

func (u *usage) directory(root int, dir string, todo []string) []string {
	fd, done, err := openBelow(root, dir)
	defer done()
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return todo
	default: // too deep to be named, or not to be read
		u.overflow()
		return todo
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	for u.bytes <= u.limit {
		names, err := f.Readdirnames(512)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			u.add(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				todo = append(todo, dir+"/"+name)
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	return todo
}

// maxDepth is how long a path below an upper directory may be, in bytes.
// contain/transaction commits none that is longer.
const maxDepth = 16 << 10

// openBelow opens a directory to be looked into until done is called, by parts
// where its path is longer than the kernel takes.
func openBelow(root int, dir string) (fd int, done func(), err error) {
	done = func() {}
	if len(dir) > maxDepth {
		return -1, done, unix.ENAMETOOLONG
	}
	fd, err = walkBelow(root, dir, func(at int, part string, last bool) (int, error) {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		if last {
			how.Flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
		}
		return unix.Openat2(at, part, &how)
	}, unix.PathMax-256)
	if err == nil && unix.Faccessat(fd, ".", unix.X_OK, unix.AT_EACCESS) != nil {
		unix.Close(fd) // its names can be listed, but not looked at
		err = unix.EACCES
	}
	if err == unix.EACCES {
		return openShut(root, dir)
	}
	return fd, done, err
}

// walkBelow opens a path by parts of at most limit bytes, or of one name.
func walkBelow(root int, dir string, open func(at int, part string, last bool) (int, error), limit int) (int, error) {
	for at := root; ; {
		part, rest := dir, ""
		if cut := strings.LastIndexByte(dir[:min(len(dir), limit)], '/'); limit <= 1 {
			part, rest, _ = strings.Cut(dir, "/")
		} else if len(dir) > limit {
			part, rest = dir[:cut], dir[cut+1:] // a name has 255 bytes at most
		}
		fd, err := open(at, part, rest == "")
		if at != root {
			unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, dir = fd, rest
	}
}

// openShut opens a directory to whose owner, this user, the program left no
// right to look into it. Until done is called there is one.
func openShut(root int, dir string) (fd int, done func(), err error) {
	var lifted []lift
	done = func() {
		for _, l := range lifted {
			l.back()
		}
	}
	fd, err = walkBelow(root, dir, func(at int, name string, last bool) (int, error) {
		fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return -1, err
		}
		l := lift{fd, st.Mode & 0o7777}
		if st.Mode&0o500 != 0o500 && unix.Chmod(l.path(), l.mode|0o500) == nil {
			lifted = append(lifted, l)
		} else {
			defer unix.Close(fd)
		}
		flags := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		if last {
			flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
		}
		return unix.Openat(fd, ".", flags, 0)
	}, 1)
	return fd, done, err
}

// lift is a directory whose mode was changed, held open.
type lift struct {
	fd   int
	mode uint32
}

func (l lift) path() string { return "/proc/self/fd/" + strconv.Itoa(l.fd) }

// back gives it the mode that it had, unless the program gave it another.
func (l lift) back() {
	var st unix.Stat_t
	if unix.Fstat(l.fd, &st) == nil && st.Mode&0o7777 == l.mode|0o500 {
		_ = unix.Chmod(l.path(), l.mode) // it may be gone by now
	}
	unix.Close(l.fd)
}

// deleted adds the files that a process has open and that no directory holds
// any more.
func (u *usage) deleted(pid int) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, 0) == nil && st.Nlink == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG && !isTmpfs(int(dir.Fd()), name) {
			u.add(&st)
		}
	}
}

// isTmpfs: files of memory count with the temporary directories, or as memory.
func isTmpfs(dir int, name string) bool {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// Descendants lists the processes below PID 1 of a sandbox, but not itself:
// what loses its parent becomes its child.
func Descendants(init int) []int {
	var all []int
	todo := []int{init}
	for len(todo) > 0 {
		pid := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		tasks, err := os.Open(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue
		}
		tids, _ := tasks.Readdirnames(-1)
		tasks.Close()
		for _, tid := range tids {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid))
			for _, word := range bytes.Fields(text) {
				if child, err := strconv.Atoi(string(word)); err == nil {
					all, todo = append(all, child), append(todo, child)
				}
			}
		}
	}
	return all
}

// Meter measures the upper directories of overlays while somebody hostile
// writes to them. It is for one goroutine at a time.
type Meter struct {
	uppers []string
	bytes  int64
	// The last walk: when it ended, how long it took, and how full the file
	// systems were.
	ended      time.Time
	cost       time.Duration
	filledThen int64
}

// Add has it measure another directory.
func (m *Meter) Add(upper string) { m.uppers = append(m.uppers, upper) }

// Bytes is what the last walk found.
func (m *Meter) Bytes() int64 { return m.bytes }

// The upper directories are walked through as often as takes a twentieth of a
// processor, but at least once in walkAtLeast, and before that when their
// file system has filled up by a part of what is left.
const (
	walkShare   = 19
	walkAtLeast = time.Second
)

// Due tells whether it is time for another walk, with so many bytes left until
// the cap.
func (m *Meter) Due(left int64) bool {
	if len(m.uppers) == 0 {
		return false
	}
	since := time.Since(m.ended)
	if since >= min(walkShare*m.cost, walkAtLeast) {
		return true
	}
	return since >= 4*m.cost && m.filled()-m.filledThen > left/4
}

// filled is what the file systems of the upper directories hold, by whomever.
func (m *Meter) filled() (sum int64) {
	for _, dir := range m.uppers {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			sum += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*MinFileBytes
		}
	}
	return sum
}

// Walk measures, files among them that were deleted and that processes of
// this host still have open. Past limit it stops looking.
func (m *Meter) Walk(limit int64, pids []int) {
	if len(m.uppers) == 0 {
		return
	}
	began := time.Now()
	m.filledThen = m.filled()
	u := usage{limit: limit, linked: map[inode]struct{}{}}
	for _, dir := range m.uppers {
		u.tree(dir)
	}
	for _, pid := range pids {
		u.deleted(pid)
	}
	m.bytes, m.ended, m.cost = u.bytes, time.Now(), time.Since(began)
}
