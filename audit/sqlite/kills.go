package sqlite

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killSuffix = ".kills"
	// unsettled is how long after a signal readers keep reading anew. It
	// covers a process that dies between its signal and its commit's end, and
	// a reader that was quicker than the commit.
	unsettled = 5 * time.Second
	tick      = 100 * time.Millisecond
)

// killFile is the file beside the database that grows by a byte whenever a
// run is killed or released, so that other processes notice for the price of
// one fstat.
type killFile struct {
	path string
	// noise makes a generation that never repeats, where the file cannot be
	// looked at: then every call must ask the database.
	noise atomic.Uint64

	mu sync.RWMutex // guards f
	f  *os.File
}

func openKillFile(path string) (*killFile, error) {
	k := &killFile{path: path}
	return k, k.reopen()
}

func (k *killFile) reopen() error {
	f, err := os.OpenFile(k.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.f != nil {
		_ = k.f.Close() // the file is gone; nothing was buffered
	}
	k.f = f
	return nil
}

func (k *killFile) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.f == nil {
		return nil
	}
	f := k.f
	k.f = nil
	return f.Close()
}

func (k *killFile) stat(st *unix.Stat_t) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.f == nil {
		return os.ErrClosed
	}
	return unix.Fstat(int(k.f.Fd()), st)
}

// signal makes all generations change.
func (k *killFile) signal() error {
	var st unix.Stat_t
	if err := k.stat(&st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		if err := k.reopen(); err != nil {
			return err
		}
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.f == nil {
		return os.ErrClosed
	}
	_, err := k.f.Write([]byte{'.'})
	return err
}

func (k *killFile) generation() uint64 {
	var st unix.Stat_t
	if err := k.stat(&st); err != nil {
		return k.noise.Add(1)
	}
	if st.Nlink == 0 {
		// Removed behind our back: other processes signal in a new file.
		if err := k.reopen(); err != nil && !errors.Is(err, os.ErrClosed) {
			return k.noise.Add(1)
		}
		return k.noise.Add(1)
	}
	mtime := time.Unix(st.Mtim.Unix())
	g := uint64(st.Size)<<20 ^ uint64(mtime.UnixNano()) ^ uint64(st.Ino)<<44
	if age := time.Since(mtime); age < unsettled {
		g ^= uint64(age/tick+1) << 56
	}
	return g
}
