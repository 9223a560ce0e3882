//go:build linux

package transaction

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the changes of a run take.
type Usage struct {
	// Bytes on disk, of files and directories.
	Bytes int64
	// Files counts all names.
	Files int64
	// Partial: it is more than this; the time was too short to see all. The
	// next call goes on from there.
	Partial bool
}

// meter walks a tree in pieces, so that a tree that is too large for one call
// is still counted by several.
type meter struct {
	mu    sync.Mutex // guards what follows
	queue []string   // directories still to read, relative to the upper one
	open  *os.File   // the one being read
	path  string
	shut  []lifted // to be shut again when it has been read
	root  int
	going bool
	sum   Usage // of the walk under way
	last  Usage // of the last complete one
}

// Size is how much the changes take on disk now. It may be called while the
// run goes on. It takes no longer than budget, give or take the reading of a
// few hundred names; where that is too short, what it returns is the larger of
// what was counted so far and the last complete count. What was deleted while
// a process holds it open is not seen.
func (t *Tx) Size(budget time.Duration) (Usage, error) {
	m := &t.sizes
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.going {
		root, err := unix.Open(t.Upper(), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return Usage{}, fmt.Errorf("transaction: size: %w", err)
		}
		m.root, m.going, m.queue, m.sum = root, true, append(m.queue[:0], "."), Usage{}
	}
	for end := time.Now().Add(budget); ; {
		done, err := m.step()
		if err != nil {
			m.reset()
			return Usage{}, fmt.Errorf("transaction: size: %w", err)
		}
		if done {
			m.last = m.sum
			m.reset()
			return m.last, nil
		}
		if time.Now().After(end) {
			return Usage{max(m.sum.Bytes, m.last.Bytes), max(m.sum.Files, m.last.Files), true}, nil
		}
	}
}

// step reads some names. What vanishes meanwhile counts as nothing.
func (m *meter) step() (done bool, err error) {
	if m.open == nil {
		if len(m.queue) == 0 {
			return true, nil
		}
		m.path = m.queue[len(m.queue)-1]
		m.queue = m.queue[:len(m.queue)-1]
		if m.open = m.openNext(); m.open == nil {
			return false, nil
		}
	}
	list, err := m.open.Readdirnames(256)
	for _, name := range list {
		m.count(name)
	}
	if err != nil {
		m.open.Close()
		m.open = nil
		m.relock()
		if err != io.EOF && !os.IsNotExist(err) {
			return false, err
		}
	}
	return false, nil
}

func (m *meter) count(name string) {
	st, err := lstat(int(m.open.Fd()), name)
	if err != nil || st == nil {
		return
	}
	m.sum.Files++
	// A file with several names counts once, by its share of each.
	m.sum.Bytes += st.Blocks * 512 / max(1, int64(st.Nlink))
	if isDir(st) {
		m.sum.Bytes += st.Blocks * 512 * (int64(st.Nlink) - 1) / max(1, int64(st.Nlink))
		if len(m.path)+len(name) < maxPath {
			m.queue = append(m.queue, m.path+"/"+name)
		}
	}
}

// openNext opens a directory that the run may have shut against its owner:
// nothing hides there.
func (m *meter) openNext() *os.File {
	fd, err := openShut(m.root, m.path, func(l lifted) { m.shut = append(m.shut, l) })
	if err != nil {
		m.relock()
		return nil
	}
	return os.NewFile(uintptr(fd), m.path)
}

func (m *meter) reset() {
	if m.open != nil {
		m.open.Close()
		m.open = nil
	}
	m.relock()
	if m.going {
		unix.Close(m.root)
		m.going = false
	}
}

// relock leaves directories as the run made them. Where that fails they are
// open to their owner, who could open them anyway.
func (m *meter) relock() {
	_ = relock(m.root, m.shut)
	m.shut = m.shut[:0]
}

func (m *meter) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reset()
}
