package testimage

import "syscall"

// unmount lets go of what the engine has mounted; it is not there where the
// engine was tidy.
func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
