package fsscope

import (
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/cordon-sandbox/cordon"
	"golang.org/x/sys/unix"
)

// RefusedError is the refusal of a path by the scope; Verdict says why.
type RefusedError struct {
	Op      string
	Path    string
	Verdict Verdict
}

func (e *RefusedError) Error() string {
	why := "no reason given"
	if len(e.Verdict.Findings) > 0 {
		why = e.Verdict.Findings[0].Rule + ": " + e.Verdict.Findings[0].Detail
	}
	return fmt.Sprintf("fsscope: %s %q refused: %s", e.Op, e.Path, why)
}

// ErrNotRegular refuses a pipe, a socket or a device where a file is wanted:
// opening one could block, or act.
var ErrNotRegular = errors.New("fsscope: not a regular file")

// Open opens a file or directory for reading. The name is taken as it stands:
// nothing in it is expanded. Relative names start from the workspace. What is
// opened is what was judged: a link that has come up since is an error, never
// followed.
func (s *Scope) Open(name string) (*os.File, error) {
	return s.OpenFile(name, os.O_RDONLY, 0)
}

// Create opens a file for reading and writing, makes it where it does not
// exist (mode 0666 before the umask) and empties it where it does.
func (s *Scope) Create(name string) (*os.File, error) {
	return s.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile is os.OpenFile within the scope. A refusal is a *RefusedError, a
// path that changed since it was judged an *os.PathError with ELOOP.
func (s *Scope) OpenFile(name string, flag int, perm os.FileMode) (*os.File, error) {
	kind, op := cordon.Read, "open"
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND) != 0 {
		kind, op = cordon.Write, "write"
	}
	p, err := s.admit(op, cordon.Effect{Kind: kind, Target: name, Expanded: true})
	if err != nil {
		return nil, err
	}
	// O_NONBLOCK so that a pipe put there cannot hold the opener. The file
	// is emptied only once it is known to be the one that was meant.
	fd, err := s.openBeneath(p, flag&^os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOCTTY, uint32(perm.Perm()))
	if err != nil {
		return nil, &os.PathError{Op: op, Path: p, Err: err}
	}
	f := os.NewFile(uintptr(fd), p)
	if err := s.confirm(f, kind, flag); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// confirm looks at what was opened, which no one can swap any more.
func (s *Scope) confirm(f *os.File, kind cordon.Kind, flag int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() && !(st.IsDir() && kind == cordon.Read) {
		return &os.PathError{Op: "open", Path: f.Name(), Err: ErrNotRegular}
	}
	var raw unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &raw); err != nil {
		return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Mode().IsRegular() && raw.Nlink > 1 {
		if class := s.base.knownInode(uint64(raw.Dev), raw.Ino, kind == cordon.Write); class != "" {
			j := judgement{effect: &cordon.Effect{Kind: kind}}
			j.hardLink(f.Name(), class)
			return &RefusedError{Op: "open", Path: f.Name(), Verdict: j.Verdict}
		}
	}
	if flag&os.O_TRUNC != 0 {
		return f.Truncate(0)
	}
	return nil
}

// Mkdir makes a directory.
func (s *Scope) Mkdir(name string, perm os.FileMode) error {
	return s.inParent("mkdir", cordon.Effect{Kind: cordon.Write, Target: name, Op: "create"}, func(dir int, base string) error {
		return unix.Mkdirat(dir, base, uint32(perm.Perm()))
	})
}

// Remove removes a file, a link or an empty directory.
func (s *Scope) Remove(name string) error {
	return s.inParent("remove", cordon.Effect{Kind: cordon.Delete, Target: name}, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if err == unix.EISDIR || err == unix.EPERM {
			return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
		}
		return err
	})
}

// Rename moves a file or directory; both ends must be in scope, the old one
// for removal.
func (s *Scope) Rename(from, to string) error {
	return s.inParent("rename", cordon.Effect{Kind: cordon.Delete, Target: from}, func(fromDir int, fromBase string) error {
		return s.inParent("rename", cordon.Effect{Kind: cordon.Write, Target: to, Op: "move"}, func(toDir int, toBase string) error {
			return unix.Renameat(fromDir, fromBase, toDir, toBase)
		})
	})
}

// inParent judges the effect and does act in the directory that holds its
// path, held open so that it cannot be swapped.
func (s *Scope) inParent(op string, e cordon.Effect, act func(dir int, base string) error) error {
	e.Expanded, e.NoFollow = true, true
	p, err := s.admit(op, e)
	if err != nil {
		return err
	}
	dir, err := s.openBeneath(path.Dir(p), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return &os.PathError{Op: op, Path: p, Err: err}
	}
	defer unix.Close(dir)
	err = act(dir, path.Base(p))
	var pe *os.PathError
	var refused *RefusedError
	if err == nil || errors.As(err, &pe) || errors.As(err, &refused) {
		return err
	}
	return &os.PathError{Op: op, Path: p, Err: err}
}

// admit is the resolved path of an effect that the scope permits.
func (s *Scope) admit(op string, e cordon.Effect) (string, error) {
	v := s.Judge(e)
	if len(v.Findings) > 0 {
		return "", &RefusedError{Op: op, Path: e.Target, Verdict: v}
	}
	return v.Resolved, nil
}

// openBeneath opens a clean absolute path that held no link when it was
// judged, and fails with ELOOP if it holds one now.
func (s *Scope) openBeneath(p string, flag int, perm uint32) (int, error) {
	if s.base.openat2 {
		return openNoLinks(p, flag|unix.O_CLOEXEC, perm)
	}
	return openWalking(p, flag|unix.O_CLOEXEC, perm)
}

// openWalking opens element by element, each relative to the one before and
// none through a link.
func openWalking(p string, flag int, perm uint32) (int, error) {
	const through = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dir, err := unix.Open("/", through, 0)
	if err != nil || p == "/" {
		return dir, err
	}
	names := splitPath(p)
	for _, n := range names[:len(names)-1] {
		next, err := unix.Openat(dir, n, through, 0)
		unix.Close(dir)
		if err == unix.ENOTDIR {
			err = unix.ELOOP
		}
		if err != nil {
			return -1, err
		}
		dir = next
	}
	fd, err := unix.Openat(dir, names[len(names)-1], flag|unix.O_NOFOLLOW, perm)
	unix.Close(dir)
	return fd, err
}
