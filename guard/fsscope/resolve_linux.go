package fsscope

import (
	"strings"

	"golang.org/x/sys/unix"
)

// probeOpenat2 reports whether the kernel, and whatever filters its system
// calls, has openat2 (Linux 5.6).
func probeOpenat2() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// prove asks the kernel whether a clean absolute path has no link in it. The
// question is put for p + "/.": for a file it ends in ENOTDIR after all of p
// was walked, which spares making and closing a descriptor. Any link on the
// way is ELOOP before that, ENOENT names a part that is missing after parts
// that are no links. ok is false where there is a link, or nothing is proven.
func prove(p string, nofollow bool) (r landing, ok bool) {
	ask := p
	if nofollow {
		ask = p[:strings.LastIndexByte(p, '/')]
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, ask+"/.", &how)
	r.path = p
	switch err {
	case nil:
		unix.Close(fd)
		r.dir = !nofollow
	case unix.ENOENT:
		r.absent = true
	case unix.ENOTDIR: // a file, or below one
	default:
		return landing{}, false
	}
	return r, true
}

// openNoLinks opens a clean absolute path whose every element is no link,
// magic or other, by one system call.
func openNoLinks(p string, flag int, perm uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flag), Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(perm) // openat2 refuses a mode without O_CREAT
	}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(unix.AT_FDCWD, p, &how)
		if err == unix.EINTR || err == unix.EAGAIN && tries < 64 { // EAGAIN: a rename went on meanwhile
			continue
		}
		return fd, err
	}
}
