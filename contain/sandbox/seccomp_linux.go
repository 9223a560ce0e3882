package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The filter is our own rather than a library's: foreign architectures and
// x32 are killed instead of refused, arguments are compared by the 32 bits
// that the kernel looks at (a filter that compares 64 bits lets
// ioctl(fd, 1<<32|TIOCSTI) pass), and clone3 fails with ENOSYS, so that C
// libraries fall back to clone, whose flags can be seen.

// Offsets in struct seccomp_data, and return values (seccomp(2)).
const (
	offNR   = 0
	offArch = 4
	offArgs = 16

	retKill  = unix.SECCOMP_RET_KILL_PROCESS
	retAllow = unix.SECCOMP_RET_ALLOW
	retEPERM = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)

	retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// newNamespaces are the clone flags that make namespaces (CLONE_NEWTIME is
// only for clone3 and unshare, which are not admitted at all).
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// lowArg loads the low 32 bits of argument n (little endian).
func lowArg(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offArgs + 8*n, Size: 4} }

func ret(v uint32) bpf.Instruction { return bpf.RetConstant{Val: v} }

// onCall returns instructions that run body for system call nr; body must
// return in every path.
func onCall(nr uint32, body ...bpf.Instruction) []bpf.Instruction {
	skip := bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(body))}
	return append([]bpf.Instruction{skip}, body...)
}

// filter is the whole program: what is not named is refused with EPERM.
func filter() []bpf.Instruction {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		ret(retKill),
		bpf.LoadAbsolute{Off: offNR, Size: 4},
		// x32 has the same architecture and this bit (x86-64 only).
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1},
		ret(retKill),
	}
	// What is newer than this list does not exist, so that a C library falls
	// back; EPERM it would take for an answer.
	p = append(p, bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: lastKnownCall, SkipTrue: 1}, ret(retENOSYS))
	for _, run := range runs(allowedCalls) {
		p = append(p,
			bpf.JumpIf{Cond: bpf.JumpLessThan, Val: run.first, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: run.last, SkipTrue: 1},
			ret(retAllow))
	}
	p = append(p, onCall(unix.SYS_CLONE3, ret(retENOSYS))...)
	p = append(p, onCall(unix.SYS_CLONE,
		lowArg(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipTrue: 1},
		ret(retAllow),
		ret(retEPERM))...)
	p = append(p, onCall(unix.SYS_SOCKET, socketRules()...)...)
	p = append(p, onCall(unix.SYS_SOCKETPAIR,
		lowArg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipFalse: 1},
		ret(retAllow),
		ret(retEPERM))...)
	p = append(p, onCall(unix.SYS_IOCTL,
		lowArg(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: tiocLinux, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSETD, SkipTrue: 1},
		ret(retAllow),
		ret(retEPERM))...)
	// Devices need a capability besides, which not every kernel asks for.
	p = append(p, noDevices(unix.SYS_MKNODAT, 2)...)
	for _, nr := range oldMknod {
		p = append(p, noDevices(nr, 1)...)
	}
	p = append(p, onCall(unix.SYS_PERSONALITY, personalityRules()...)...)
	for _, nr := range absentCalls {
		p = append(p, onCall(uint32(nr), ret(retENOSYS))...)
	}
	return append(p, ret(retEPERM))
}

// noDevices admits a mknod whose mode, argument n, is of no device: of the
// types that it takes these two alone have this bit.
func noDevices(nr, n uint32) []bpf.Instruction {
	return onCall(nr, lowArg(n), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.S_IFCHR, SkipTrue: 1}, ret(retAllow), ret(retEPERM))
}

// run is a row of consecutive system calls.
type run struct{ first, last uint32 }

// runs joins what is consecutive: the kernel goes through the filter for
// every number when it is loaded.
func runs(calls []uintptr) []run {
	var rs []run
	for _, nr := range slices.Sorted(slices.Values(calls)) {
		if n := len(rs); n > 0 && uint32(nr) <= rs[n-1].last+1 {
			rs[n-1].last = uint32(nr)
			continue
		}
		rs = append(rs, run{uint32(nr), uint32(nr)})
	}
	return rs
}

const tiocLinux = 0x541c

// socketRules admit local sockets, netlink's routing family, which libraries
// read interfaces by, and of the internet the streams and datagrams of the
// common protocols: any other number would make the kernel load a module.
func socketRules() []bpf.Instruction {
	// Indexes of the list below; a jump skips from the one after itself.
	const internet, protocol, netlink, refuse, allow = 5, 9, 16, 18, 19
	to := func(here int, cond bpf.JumpTest, v uint32, there int) bpf.Instruction {
		return bpf.JumpIf{Cond: cond, Val: v, SkipTrue: uint8(there - here - 1)}
	}
	return []bpf.Instruction{
		0: lowArg(0),
		1: to(1, bpf.JumpEqual, unix.AF_UNIX, allow),
		2: to(2, bpf.JumpEqual, unix.AF_NETLINK, netlink),
		3: to(3, bpf.JumpEqual, unix.AF_INET, internet),
		4: to(4, bpf.JumpNotEqual, unix.AF_INET6, refuse),
		// Above the type stand SOCK_CLOEXEC and SOCK_NONBLOCK.
		5:  lowArg(1),
		6:  bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf},
		7:  to(7, bpf.JumpEqual, unix.SOCK_STREAM, protocol),
		8:  to(8, bpf.JumpNotEqual, unix.SOCK_DGRAM, refuse),
		9:  lowArg(2),
		10: to(10, bpf.JumpEqual, 0, allow),
		11: to(11, bpf.JumpEqual, unix.IPPROTO_TCP, allow),
		12: to(12, bpf.JumpEqual, unix.IPPROTO_UDP, allow),
		13: to(13, bpf.JumpEqual, unix.IPPROTO_ICMP, allow),
		14: to(14, bpf.JumpEqual, unix.IPPROTO_ICMPV6, allow),
		15: ret(retEPERM),
		16: lowArg(2),
		17: to(17, bpf.JumpEqual, unix.NETLINK_ROUTE, allow),
		18: ret(retEPERM),
		19: ret(retAllow),
	}
}

// personalityRules admit the values that change nothing of security: Linux,
// with or without UNAME26, and the query.
func personalityRules() []bpf.Instruction {
	return []bpf.Instruction{
		lowArg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x0, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x20000, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0xffffffff, SkipTrue: 1},
		ret(retEPERM),
		ret(retAllow),
	}
}

// LoadFilter holds all threads of this process, and what they become, to the
// system calls that a tool of an agent has a use for. It needs no_new_privs,
// and is for the runtimes whose first process inside is this binary.
func LoadFilter() error {
	raw, err := bpf.Assemble(filter())
	if err != nil {
		return fmt.Errorf("assemble seccomp filter: %w", err)
	}
	insns := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		insns[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(insns)), Filter: &insns[0]}
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("load seccomp filter: %w", errno)
	}
	if tid != 0 {
		return errors.New("load seccomp filter: a thread could not be held to it")
	}
	return nil
}
