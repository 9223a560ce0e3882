package fsscope

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

const (
	// maxPath and maxName are PATH_MAX and NAME_MAX of Linux; macOS has less
	// for a path, and the same for a name.
	maxPath = 4096
	maxName = 255
	// maxLinks is what Linux follows in one path (MAXSYMLINKS).
	maxLinks = 40
)

// landing is where a path leads.
type landing struct {
	// path is absolute, clean and free of links as far as it exists.
	path string
	// magic: the way went through a link of /proc, which leads to wherever
	// the process that opens it happens to be. path ends there.
	magic bool
	// linked: a link was on the way.
	linked bool
	// absent: the path, or a part of it, does not exist.
	absent bool
	// dir: it is known to be a directory.
	dir bool
	// shared: it is a file with more than one name; dev and ino are its.
	shared   bool
	dev, ino uint64
	// err: syscall.ELOOP, EACCES and kin; path is then only where it stopped
	// with the rest joined on.
	err error
}

// walk resolves an absolute path as the kernel does: element by element,
// ".." after the links before it. What does not exist is joined on. nofollow
// leaves a link in last place alone, as lstat does.
func walk(p string, nofollow bool) landing {
	var r landing
	done, rest := "", p
	for links := 0; ; {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			break
		}
		name, tail, _ := strings.Cut(rest, "/")
		rest = tail
		switch name {
		case ".":
			continue
		case "..":
			done = done[:max(strings.LastIndexByte(done, '/'), 0)]
			continue
		}
		next := done + "/" + name
		if nofollow && rest == "" && !strings.HasSuffix(p, "/") {
			done = next
			break
		}
		target, err := os.Readlink(next)
		if err != nil {
			done = next
			r.note(err)
			continue
		}
		r.linked = true
		if within(next, "/proc") {
			r.magic = true
			done = next
			continue
		}
		if links++; links > maxLinks || len(target)+len(rest) > 2*maxPath {
			r.err = syscall.ELOOP
			done = next
			break
		}
		if strings.HasPrefix(target, "/") {
			done = ""
		}
		if rest != "" {
			target += "/" + rest
		}
		rest = target
	}
	r.path = done
	if done == "" {
		r.path = "/"
	}
	return r
}

// note keeps why an element could not be read as a link.
func (r *landing) note(err error) {
	var n syscall.Errno
	switch {
	case !errors.As(err, &n):
		r.err = err
	case n == syscall.EINVAL: // it is there, and is no link
	case n == syscall.ENOENT, n == syscall.ENOTDIR:
		r.absent = true
	default:
		if r.err == nil {
			r.err = n
		}
	}
}

// resolve is walk by the shortest way: where the kernel can prove that a
// clean path holds no link at all, the path itself is the answer. files asks
// whether a file has other names as well.
func (b *Base) resolve(p string, nofollow, files bool) landing {
	r, ok := landing{}, false
	if b.openat2 {
		r, ok = prove(p, nofollow)
	}
	if !ok {
		r = walk(p, nofollow)
	}
	if files && !r.dir && !r.absent && !r.magic && r.err == nil {
		r.countNames()
	}
	return r
}

func (r *landing) countNames() {
	var st syscall.Stat_t
	if syscall.Lstat(r.path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
		r.shared = st.Nlink > 1
		r.dev, r.ino = uint64(st.Dev), st.Ino
	}
}

// splitPath is the elements of a clean absolute path.
func splitPath(p string) []string {
	return strings.Split(strings.Trim(p, "/"), "/")
}
