package mcp

import "syscall"

// groupAttr gives the server a process group of its own, and has the kernel
// kill it when Cordon dies in a way that it cannot handle.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
