package main

import "golang.org/x/sys/unix"

// getpid32 asks for the process ID by the i386 system call number and gate.
func getpid32() uintptr

// x32Bit marks the numbers of the x32 ABI.
const x32Bit = 0x40000000

var machineKinds = map[string]func(args){
	"i386": func(args) {
		try("int 0x80", func() error { return refuseUnless(int(int32(getpid32())) == unix.Getpid()) })
	},
	"x32": func(args) {
		try("x32 getpid", func() error { return call(x32Bit|unix.SYS_GETPID, 0, 0, 0) })
	},
}
