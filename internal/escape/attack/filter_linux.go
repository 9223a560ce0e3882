package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// load holds this process to a filter.
func load(insns []unix.SockFilter) {
	prog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	must(call(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))))
}
