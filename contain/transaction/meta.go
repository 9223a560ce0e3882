//go:build linux

package transaction

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// meta is what a file is apart from its content.
type meta struct {
	Mode   uint32        `json:"mode"`
	UID    int           `json:"uid"`
	GID    int           `json:"gid"`
	Atime  unix.Timespec `json:"atime"`
	Mtime  unix.Timespec `json:"mtime"`
	Xattrs []xattr       `json:"xattrs,omitempty"`
	// Partial: there are attributes that this process may not read.
	Partial bool `json:"partial,omitempty"`
}

// xattr is an extended attribute. Names are bytes: JSON text would not keep
// what is not UTF-8.
type xattr struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

// metaAt reads what stands at a name.
func metaAt(dir int, name string) (*meta, error) {
	fd, err := pinned(dir, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	m := &meta{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid), Atime: st.Atim, Mtime: st.Mtim}
	for _, n := range listXattrs(fdPath(fd)) {
		if value, ok := getXattr(fdPath(fd), n); ok {
			m.Xattrs = append(m.Xattrs, xattr{[]byte(n), value})
		} else {
			m.Partial = true
		}
	}
	return m, nil
}

// readable calls f while the owner of what stands at a name may read its
// attributes, whatever mode the run gave it.
func readable(dir int, name string, st *unix.Stat_t, f func() error) error {
	kind := st.Mode & unix.S_IFMT
	if os.Geteuid() == 0 || int(st.Uid) != os.Geteuid() || st.Mode&0o400 != 0 || kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return f()
	}
	if err := chmodAt(dir, name, st.Mode|0o400); err != nil {
		return err
	}
	return errors.Join(f(), chmodAt(dir, name, st.Mode))
}

// metaOf is metaAt for what may be shut against its owner.
func metaOf(dir int, name string, st *unix.Stat_t) (m *meta, err error) {
	err = readable(dir, name, st, func() error {
		m, err = metaAt(dir, name)
		return err
	})
	if m != nil {
		m.Mode = st.Mode & 0o7777
	}
	return m, err
}

// setAt makes what stands at a name have these attributes. Owners and
// attributes that this process may not set are left.
func (m *meta) setAt(dir int, name string) error {
	fd, err := pinned(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return m.setOn(fd, name)
}

// setOn does it for what a descriptor, be it one of O_PATH, stands for.
func (m *meta) setOn(fd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if int(st.Uid) != m.UID || int(st.Gid) != m.GID {
		if err := unix.Fchownat(fd, "", m.UID, m.GID, unix.AT_EMPTY_PATH); err != nil && err != unix.EPERM {
			return &os.PathError{Op: "chown", Path: name, Err: err}
		}
	}
	link := st.Mode&unix.S_IFMT == unix.S_IFLNK
	if err := m.setXattrs(fd, name, st.Mode, link); err != nil {
		return err
	}
	// Of somebody else's directory that may be written to, nothing is to be
	// set, and nothing need be.
	foreign := os.Geteuid() != 0 && int(st.Uid) != os.Geteuid()
	if !link && !(foreign && st.Mode&0o7777 == m.Mode) {
		if err := unix.Chmod(fdPath(fd), m.Mode); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	times := []unix.Timespec{m.Atime, m.Mtime}
	if err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH); err != nil && !(foreign && err == unix.EPERM) {
		return &os.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}

// setXattrs sets what is to be there and removes what is not. They come
// before the mode: an attribute cannot be set where its owner may not write.
func (m *meta) setXattrs(fd int, name string, mode uint32, link bool) error {
	have := listXattrs(fdPath(fd))
	if len(have) == 0 && len(m.Xattrs) == 0 {
		return nil
	}
	if mode&0o200 == 0 && !link {
		if err := unix.Chmod(fdPath(fd), mode&0o7777|0o200); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	for _, n := range have {
		if !m.Partial && !slices.ContainsFunc(m.Xattrs, func(x xattr) bool { return string(x.Name) == n }) {
			if err := unix.Removexattr(fdPath(fd), n); !harmless(err) {
				return &os.PathError{Op: "removexattr " + n, Path: name, Err: err}
			}
		}
	}
	for _, x := range m.Xattrs {
		if old, ok := getXattr(fdPath(fd), string(x.Name)); ok && bytes.Equal(old, x.Value) {
			continue
		}
		if err := unix.Setxattr(fdPath(fd), string(x.Name), x.Value, 0); !harmless(err) {
			return &os.PathError{Op: "setxattr " + string(x.Name), Path: name, Err: err}
		}
	}
	return nil
}

// harmless: an attribute that is not ours to set, or that this file system
// does not have.
func harmless(err error) bool {
	return err == nil || err == unix.EPERM || err == unix.EACCES || err == unix.ENOTSUP || err == unix.ENODATA
}

// sameBut reports whether two metas differ in their times at most.
func (m *meta) sameBut(o *meta) bool {
	return m.Mode == o.Mode && m.UID == o.UID && m.GID == o.GID && (m.Partial || o.Partial || sameXattrs(m.Xattrs, o.Xattrs))
}

func sameXattrs(a, b []xattr) bool {
	return slices.EqualFunc(a, b, func(a, b xattr) bool {
		return bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Value, b.Value)
	})
}

// without takes the attributes away that drop names.
func (m *meta) without(drop func(name string) bool) *meta {
	m.Xattrs = slices.DeleteFunc(m.Xattrs, func(x xattr) bool { return drop(string(x.Name)) })
	return m
}

func listXattrs(path string) []string {
	for {
		n, err := unix.Listxattr(path, nil)
		if n <= 0 || err != nil {
			return nil // none, or not ours to see
		}
		buf := make([]byte, n)
		if n, err = unix.Listxattr(path, buf); err == unix.ERANGE {
			continue // one more since
		} else if err != nil {
			return nil
		}
		list := strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
		slices.Sort(list)
		return list
	}
}

func getXattr(path, name string) ([]byte, bool) {
	for {
		n, err := unix.Getxattr(path, name, nil)
		if err != nil {
			return nil, false
		}
		buf := make([]byte, n)
		if n, err = unix.Getxattr(path, name, buf); err == unix.ERANGE {
			continue
		} else if err != nil {
			return nil, false
		}
		return buf[:n], true
	}
}

// What makes a program run with other rights than its caller's does not leave
// a sandbox.
const (
	setIDs     = unix.S_ISUID | unix.S_ISGID
	capability = "security.capability"
)
