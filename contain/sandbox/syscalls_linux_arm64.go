package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var allowedCalls = commonCalls

// oldMknod is only x86-64's.
var oldMknod []uint32
