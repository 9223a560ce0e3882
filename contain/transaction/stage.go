//go:build linux

package transaction

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// meta is what a file is apart from its content.
type meta struct {
	Mode     uint32            `json:"mode"`
	UID      int               `json:"uid"`
	GID      int               `json:"gid"`
	Atime    unix.Timespec     `json:"atime"`
	Mtime    unix.Timespec     `json:"mtime"`
	Xattrs   map[string][]byte `json:"xattrs,omitempty"`
	isLink   bool
	isFIFO   bool
	inode    inode
	links    uint64
	size     int64
	linkText string
}

type inode struct{ dev, ino uint64 }

// Bits that change whose rights a program runs with do not leave a sandbox.
const setIDs = unix.S_ISUID | unix.S_ISGID

func metaOf(path string) (*meta, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	m := &meta{
		Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid), Atime: st.Atim, Mtime: st.Mtim,
		inode: inode{st.Dev, st.Ino}, links: uint64(st.Nlink), size: st.Size,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		m.Mode &^= setIDs
	case unix.S_IFIFO:
		m.isFIFO = true
	case unix.S_IFLNK:
		m.isLink = true
		text, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		m.linkText = text
	}
	return m, m.readXattrs(path)
}

func (m *meta) readXattrs(path string) error {
	names, err := listXattrs(path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if overlayXattr(name) {
			continue
		}
		n, err := unix.Lgetxattr(path, name, nil)
		if err != nil {
			continue // removed meanwhile, or not ours to read
		}
		value := make([]byte, n)
		if n, err = unix.Lgetxattr(path, name, value); err != nil {
			continue
		}
		if m.Xattrs == nil {
			m.Xattrs = map[string][]byte{}
		}
		m.Xattrs[name] = value[:n]
	}
	return nil
}

func listXattrs(path string) ([]string, error) {
	n, err := unix.Llistxattr(path, nil)
	if n <= 0 || err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	buf := make([]byte, n)
	if n, err = unix.Llistxattr(path, buf); err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	var names []string
	for start, i := 0, 0; i < n; i++ {
		if buf[i] == 0 {
			names = append(names, string(buf[start:i]))
			start = i + 1
		}
	}
	return names, nil
}

// stager puts the content of changed files beside the workspace.
type stager struct {
	*commit
	links map[inode]int // where a file with several names was staged
}

// stage makes the file that step n will move in.
func (s *stager) stage(up string, n int, m *meta) error {
	slot := strconv.Itoa(n)
	if m.links > 1 && !m.isLink {
		if first, ok := s.links[m.inode]; ok {
			return unix.Linkat(s.newDir, strconv.Itoa(first), s.newDir, slot, 0)
		}
		s.links[m.inode] = n
	}
	target := filepath.Join(s.journal.Workspace, s.journal.Stage, "new", slot)
	var err error
	switch {
	case m.isLink:
		err = unix.Symlinkat(m.linkText, s.newDir, slot)
	case m.isFIFO:
		err = unix.Mkfifoat(s.newDir, slot, 0o600)
	default:
		err = s.content(up, slot, m.size)
	}
	if err != nil {
		return err
	}
	return m.set(target)
}

// content copies a file: shared blocks where the file system can, and holes
// as holes.
func (s *stager) content(up, slot string, size int64) error {
	in, err := os.OpenFile(up, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrPermission) {
		// Its owner may not read it; its owner may change that.
		if err = os.Chmod(up, 0o600); err == nil {
			in, err = os.OpenFile(up, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := unix.Openat(s.newDir, slot, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: slot, Err: err}
	}
	out := os.NewFile(uintptr(fd), slot)
	if unix.IoctlFileClone(fd, int(in.Fd())) == nil {
		return out.Close()
	}
	return errors.Join(copySparse(out, in, size), out.Close())
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

// set gives a staged file its attributes. path is our own, not a link's
// target: nothing but this process writes below the staging directory.
func (m *meta) set(path string) error {
	if err := unix.Lchown(path, m.UID, m.GID); err != nil && err != unix.EPERM {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	if !m.isLink {
		if err := unix.Chmod(path, m.Mode); err != nil {
			return &os.PathError{Op: "chmod", Path: path, Err: err}
		}
	}
	for name, value := range m.Xattrs {
		if err := unix.Lsetxattr(path, name, value, 0); err != nil && err != unix.EPERM && err != unix.ENOTSUP {
			return &os.PathError{Op: "setxattr " + name, Path: path, Err: err}
		}
	}
	times := []unix.Timespec{m.Atime, m.Mtime}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimes", Path: path, Err: err}
	}
	return nil
}

// setMeta sets the attributes of a directory of the workspace.
func (c *commit) setMeta(o *op) error {
	fd, err := c.dir(o.Path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// An O_PATH descriptor is no link, whatever stands at its name now.
	return o.Meta.set("/proc/self/fd/" + strconv.Itoa(fd) + "/.")
}
