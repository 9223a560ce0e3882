package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var probeArgs = []string{"look", "memory", "pids", "disk", "wait", "none"}

func isProbe(what string) bool { return slices.Contains(probeArgs, what) }

func probeInside(what string) int {
	switch what {
	case "look":
		_ = json.NewEncoder(os.Stdout).Encode(look())
	case "memory":
		var hog [][]byte
		for range 512 {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			hog = append(hog, block)
		}
		runtime.KeepAlive(hog)
	case "pids":
		for range 1024 {
			if errno := fork(); errno == syscall.EAGAIN {
				return 0
			}
		}
		return 1
	case "disk":
		block := make([]byte, 1<<20)
		for i := range 64 {
			if err := os.WriteFile(fmt.Sprintf("/tmp/%d", i), block, 0o600); errors.Is(err, syscall.ENOSPC) {
				return 0
			}
		}
		return 1
	case "wait":
		time.Sleep(time.Minute)
	}
	return 0
}

// fork makes a process that waits for its end. It has one thread and must not
// come back into Go.
func fork() syscall.Errno {
	pid, _, errno := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	if errno != 0 || pid != 0 {
		return errno
	}
	for {
		syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
	}
}

func look() found {
	f := found{Status: ownStatus(), Interfaces: networkDevices()}
	f.Mount = errnoOf(unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	f.Unshare = errnoOf(unix.Unshare(unix.CLONE_NEWUSER))
	f.Ptrace = errnoOf(unix.PtraceAttach(1))
	f.WriteRoot = errnoOf(os.WriteFile("/cordon-was-here", nil, 0o600))
	var st unix.Statx_t
	f.Stat = errnoOf(unix.Statx(unix.AT_FDCWD, "/", unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &st))
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") == "" {
			f.Processes++
		}
	}
	if err := os.WriteFile(overlayAt+"/changed", []byte("inside"), 0o600); err != nil {
		f.OverlayErr = err.Error()
	}
	return f
}

func errnoOf(err error) int {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return int(errno)
	}
	return 0
}
