package relay

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// peer is who connected, or who listened: see LOCAL_PEERCRED in unix(4).
func peer(fd int) (uid, pid int, err error) {
	c, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(c.Uid), 0, nil
}

// sameProgram: there is no way to a process's file here. The build is compared
// by the handshake, which an honest daemon does not lie in.
func sameProgram(int) error { return nil }

// ThisBuild names the file that this process was started from.
func ThisBuild() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	info, err := os.Stat(exe)
	if err != nil {
		return "", fmt.Errorf("daemon: %w", err)
	}
	return identity(info)
}
