package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultPath is cordon/cordon.db under XDG_STATE_HOME, or under
// ~/.local/state where that is not set to an absolute path.
func DefaultPath() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("audit: no default place for the database: %w (set HOME or XDG_STATE_HOME, or give --db FILE)", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "cordon", "cordon.db"), nil
}

// prepareFile makes the directory (0700) and the file (0600) where they are
// absent, and refuses a file that somebody else could have put there.
func prepareFile(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return wrap("open", path, err)
		}
	}
	for _, beside := range []string{"-wal", "-shm", killSuffix} {
		if fi, err := os.Lstat(path + beside); err == nil && !fi.Mode().IsRegular() {
			return unsafeFile(path+beside, "not a regular file", "remove it")
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	switch {
	case err == nil:
		return wrap("open", path, f.Close())
	case !errors.Is(err, fs.ErrExist):
		return wrap("open", path, err)
	}
	return checkFile(path)
}

func checkFile(path string) error {
	var l, st unix.Stat_t
	if err := unix.Lstat(path, &l); err != nil {
		return wrap("open", path, err)
	}
	if err := unix.Stat(path, &st); err != nil {
		return wrap("open", path, err)
	}
	me := uint32(os.Geteuid())
	link := l.Mode&unix.S_IFMT == unix.S_IFLNK
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return unsafeFile(path, "not a regular file", "choose another file with --db")
	case link && (l.Uid != me || st.Uid != me):
		return unsafeFile(path, "a link that belongs, or leads to a file that belongs, to another user",
			"name the file itself with --db")
	case st.Uid != me && me != 0:
		return unsafeFile(path, fmt.Sprintf("owned by user %d", st.Uid), "choose another file with --db")
	case st.Mode&0o022 != 0:
		return unsafeFile(path, "writable by other users", "chmod 600 "+path)
	}
	return nil
}

func unsafeFile(path, why, hint string) error {
	return &Error{Op: "open", Path: path, Err: fmt.Errorf("%w: %s", ErrUnsafe, why), Hint: hint}
}
