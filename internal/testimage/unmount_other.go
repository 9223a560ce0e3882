//go:build !linux

package testimage

// unmount has nothing to do: no engine runs on this system itself.
func unmount(string) {}
