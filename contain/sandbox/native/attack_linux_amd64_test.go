package native

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// callMachineCode runs: mov eax, 20 (getpid of i386); int 0x80; ret.
func callMachineCode() {
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	copy(page, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3})
	code := unsafe.Pointer(&page[0])
	funcval := &code
	(*(*func())(unsafe.Pointer(&funcval)))()
}
