package sqlite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cordon-sandbox/cordon/audit"
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
// one stat. It is looked at by its name: who moves it away, or links it
// elsewhere before removing it, would leave an open file that nobody writes to.
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

func (k *killFile) fstat(st *unix.Stat_t) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.f == nil {
		return os.ErrClosed
	}
	return unix.Fstat(int(k.f.Fd()), st)
}

// signal makes all generations change.
func (k *killFile) signal() error { return k.write([]byte{'.'}) }

// write appends to the file that stands under the name.
func (k *killFile) write(text []byte) error {
	var open, named unix.Stat_t
	if err := k.fstat(&open); err != nil {
		return err
	}
	if err := unix.Lstat(k.path, &named); err != nil || named.Ino != open.Ino || named.Dev != open.Dev {
		if err := k.reopen(); err != nil {
			return err
		}
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.f == nil {
		return os.ErrClosed
	}
	_, err := k.f.Write(text)
	return err
}

// The file also holds, a line each, what could not be stored in the database:
// kills, and the releases of such kills. A line begins after a line end, since
// signals stand between them, and is whole or not there: it is one write.
const (
	noteKill    = "\n!"
	noteRelease = "\n-"
	// maxNotes is the most of the file that is read; one that is larger is an
	// error, and counts as a kill for every run.
	maxNotes = 16 << 20
)

// note keeps a kill that the database did not take.
func (k *killFile) note(r audit.Kill) error { return k.append(noteKill, r) }

// lift ends a kill that was noted.
func (k *killFile) lift(runID string) error { return k.append(noteRelease, audit.Kill{RunID: runID}) }

func (k *killFile) append(mark string, r audit.Kill) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("note a kill: %w", err)
	}
	return k.write([]byte(mark + string(line) + "\n"))
}

// noted are the kills that were noted and not lifted, by run.
func (k *killFile) noted() (map[string]audit.Kill, error) {
	f, err := os.OpenFile(k.path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNotes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", k.path, err)
	case len(data) > maxNotes:
		return nil, fmt.Errorf("%s is too large (want at most %d bytes)", k.path, maxNotes)
	}
	kills := map[string]audit.Kill{}
	for line := range bytes.Lines(data) {
		if len(line) < 2 || line[0] != noteKill[1] && line[0] != noteRelease[1] {
			continue
		}
		r := readNote(line[1:])
		if r.RunID == "" {
			return nil, fmt.Errorf("%s: a note of a kill cannot be read: %q (no call passes until that line is removed; its run was to be killed)", k.path, line)
		}
		if line[0] == noteKill[1] {
			kills[r.RunID] = r
		} else {
			delete(kills, r.RunID)
		}
	}
	return kills, nil
}

// readNote reads a note. Of one that a full disk cut short it takes the run,
// if that is whole.
func readNote(text []byte) (r audit.Kill) {
	if json.Unmarshal(text, &r) == nil {
		return r
	}
	r = audit.Kill{}
	d := json.NewDecoder(bytes.NewReader(text))
	for _, want := range [...]json.Token{json.Delim('{'), "run_id"} {
		if t, err := d.Token(); err != nil || t != want {
			return r
		}
	}
	if t, err := d.Token(); err == nil {
		r.RunID, _ = t.(string)
	}
	return r
}

func (k *killFile) generation() uint64 {
	var st unix.Stat_t
	if err := unix.Lstat(k.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return k.noise.Add(1) // the next signal makes it anew
	}
	mtime := time.Unix(st.Mtim.Unix())
	g := uint64(st.Size)<<20 ^ uint64(mtime.UnixNano()) ^ uint64(st.Ino)<<44
	if age := time.Since(mtime); age < unsettled {
		g ^= uint64(age/tick+1) << 56
	}
	return g
}
