//go:build unix && !linux

package mcp

import "syscall"

// groupAttr gives the server a process group of its own. These systems have
// no parent-death signal: after a SIGKILL of Cordon the server only sees its
// input end.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
