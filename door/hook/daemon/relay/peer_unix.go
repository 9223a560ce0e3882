//go:build unix

package relay

import (
	"fmt"
	"io/fs"
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

// CheckPeer refuses a peer of another user and, where same is set, one that
// runs another program.
func CheckPeer(fd int, same bool) error {
	uid, pid, err := peer(fd)
	switch {
	case err != nil:
		return fmt.Errorf("daemon: the peer cannot be told: %w", err)
	case uid != os.Geteuid():
		return fmt.Errorf("daemon: the peer is of user %d", uid)
	case same:
		return sameProgram(pid)
	}
	return nil
}

// dial connects without waiting, and without package net.
func dial(path string) (int, error) {
	syscall.ForkLock.RLock() // no child is to have the socket
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return -1, err
	}
	if err = syscall.SetNonblock(fd, true); err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		syscall.Close(fd)
		return -1, err
	}
	return fd, nil
}
