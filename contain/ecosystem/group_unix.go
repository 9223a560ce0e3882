//go:build unix

package ecosystem

import (
	"os/exec"
	"syscall"
)

// killGroup makes the end of the time end what the tool started as well.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
