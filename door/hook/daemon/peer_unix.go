//go:build unix

package daemon

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
)

// mine refuses what belongs to another user, or what others may use by the
// bits of mask.
func mine(path string, info fs.FileInfo, mask fs.FileMode) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("daemon: %s: its owner cannot be told", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("daemon: %s belongs to user %d", path, st.Uid)
	case info.Mode().Perm()&mask != 0:
		return fmt.Errorf("daemon: %s has mode %v (want none of %v)", path, info.Mode().Perm(), mask)
	}
	return nil
}

// identity tells files apart, and states of one.
func identity(info fs.FileInfo) (string, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("daemon: %s: its identity cannot be told", info.Name())
	}
	b := strconv.AppendUint(nil, uint64(st.Dev), 16)
	b = strconv.AppendUint(append(b, '.'), st.Ino, 16)
	b = strconv.AppendInt(append(b, '.'), info.Size(), 16)
	return string(strconv.AppendInt(append(b, '.'), info.ModTime().UnixNano(), 16)), nil
}

// Identity names the present state of a file: "" where it is absent. Two
// files, and a file before and after a change, have different ones.
func Identity(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	id, err := identity(info)
	if err != nil {
		return ""
	}
	return id
}

// checkPeer refuses a peer of another user and, where same is set, one that
// runs another program.
func checkPeer(conn *net.UnixConn, same bool) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	var uid, pid int
	cerr := raw.Control(func(fd uintptr) { uid, pid, err = peer(int(fd)) })
	switch {
	case cerr != nil:
		return fmt.Errorf("daemon: %w", cerr)
	case err != nil:
		return fmt.Errorf("daemon: the peer cannot be told: %w", err)
	case uid != os.Geteuid():
		return fmt.Errorf("daemon: the peer is of user %d", uid)
	case same:
		return sameProgram(pid)
	}
	return nil
}
