package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Listen opens "host:port", "unix:PATH" or "fd:N" (a listening socket that
// was inherited). A Unix socket can be connected to by its owner only, at
// every moment; its path is removed when the listener is closed.
func Listen(address string) (net.Listener, error) {
	switch kind, rest, _ := strings.Cut(address, ":"); kind {
	case "unix":
		return listenUnix(rest)
	case "fd":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 3 {
			return nil, fmt.Errorf("egress: listener %q (want fd:N with N from 3 on)", address)
		}
		f := os.NewFile(uintptr(n), address)
		defer f.Close()
		l, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("egress: listener %q: %w", address, err)
		}
		return l, nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("egress: listener %q (want host:port, unix:PATH or fd:N): %w", address, err)
	}
	// Clients are near, and idle times end what is dead.
	l, err := (&net.ListenConfig{KeepAlive: -1}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return l, nil
}

// listenUnix binds inside a directory that nobody else can enter, and moves
// the socket to its place when its mode is right.
func listenUnix(path string) (_ net.Listener, err error) {
	if path == "" {
		return nil, errors.New("egress: listener \"unix:\" names no path")
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("egress: listener: %w", err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("egress: listener %q: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	inner := filepath.Join(dir, "s")
	err = os.Chmod(inner, 0o600)
	if err == nil {
		err = os.Rename(inner, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("egress: listener: %w", err), l.Close())
	}
	return &unixListener{UnixListener: l, path: path}, nil
}

// removeStale removes a socket that nobody listens on any more. Anything
// else in the place is an error.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("egress: listener: %w", err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("egress: listener %q: there is something else in its place", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return fmt.Errorf("egress: listener %q: another process listens there", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("egress: listener: %w", err)
	}
	return nil
}

// unixListener says where it was moved to, and removes that.
type unixListener struct {
	*net.UnixListener
	path string
	once sync.Once
}

// Addr is the address that clients use.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close closes the listener and removes its path.
func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	l.once.Do(func() { os.Remove(l.path) })
	return err
}
