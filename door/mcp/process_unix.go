//go:build unix

package mcp

import "syscall"

// signalGroup signals the group even when its leader has ended, for the
// processes that it left behind. That nobody is left is no error.
func (p *process) signalGroup(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }
