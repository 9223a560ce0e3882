//go:build !linux

package fsscope

// probeOpenat2 reports that there is no openat2: paths are walked.
func probeOpenat2() bool { return false }

func prove(string, bool) (landing, bool) { return landing{}, false }

func openNoLinks(p string, flag int, perm uint32) (int, error) { return openWalking(p, flag, perm) }
