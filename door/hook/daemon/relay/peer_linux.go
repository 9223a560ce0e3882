package relay

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// peer is who connected, or who listened: see SO_PEERCRED in unix(7).
func peer(fd int) (uid, pid int, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(c.Uid), int(c.Pid), nil
}

// sameProgram compares the files that both processes run.
func sameProgram(pid int) error {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	theirs, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return fmt.Errorf("daemon: what listens cannot be told: %w", err)
	}
	if !os.SameFile(own, theirs) {
		return errors.New("daemon: what listens is another program, or another build of this one")
	}
	return nil
}

// ThisBuild names the file that this process runs.
func ThisBuild() (string, error) {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	return identity(info)
}
