package native

import "syscall"

// callMachineCode: 32-bit calls need a 32-bit program here.
func callMachineCode() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSYS) }
