package sqlite

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// Error is a malfunction of the store that a person can do something about.
type Error struct {
	Op   string // what was tried: "open", "record", …
	Path string // the database file
	Err  error
	Hint string // what to do; may be empty
}

func (e *Error) Error() string {
	s := fmt.Sprintf("audit: %s %s: %v", e.Op, e.Path, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Sentinels for what callers branch on, inside of *Error.
var (
	// ErrNewerSchema: a later version of Cordon wrote the file.
	ErrNewerSchema = errors.New("schema is newer than this version of cordon knows")
	// ErrNotCordon: the file is no audit database.
	ErrNotCordon = errors.New("file is not an audit database of cordon")
	// ErrUnsafe: somebody else could read or change the file.
	ErrUnsafe = errors.New("file is not safe to use")
	// ErrReplaced: the file at the path is no longer the one that was opened.
	ErrReplaced = errors.New("file was moved, removed or replaced while it was open")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

// fail wraps what the driver said, with what to do about it.
func (s *Store) fail(op string, err error) error { return wrap(op, s.path, err) }

func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	return &Error{Op: op, Path: path, Err: err, Hint: hint(err)}
}

func hint(err error) string {
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return "another process holds the database; end it or wait, then try again"
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return "the file is damaged or no database; move it away to start anew, or restore a copy"
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		return "the directory and the file must be writable by this user; choose another file with --db"
	case lib.SQLITE_FULL:
		return "the disk is full"
	case lib.SQLITE_IOERR:
		return "the disk does not answer well; a network file system cannot hold the database, choose another file with --db"
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOTDIR) {
		return "the directory and the file must be writable by this user; choose another file with --db"
	}
	return ""
}

// code is SQLite's primary result code, 0 for other errors.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}
