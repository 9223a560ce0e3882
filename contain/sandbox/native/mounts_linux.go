package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"golang.org/x/sys/unix"
)

// systemDirs are shown read-only where the host has them; a link of the host
// (/bin → usr/bin) is a link inside.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

// systemFiles of /etc are what programs need to find libraries, time zones,
// certificates and names; a pattern takes what matches. Accounts, hosts and
// resolvers are our own.
var systemFiles = []string{
	"/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/debian_version", "/etc/fonts", "/etc/inputrc",
	"/etc/java-*-openjdk", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime",
	"/etc/magic", "/etc/mime.types", "/etc/os-release", "/etc/pki", "/etc/protocols", "/etc/python3*",
	"/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone",
}

var devices = []string{"null", "zero", "full", "random", "urandom"}

// temporaryDirs are writable and go with the sandbox.
var temporaryDirs = []string{"/tmp", "/var/tmp", "/run", "/dev/shm"}

// maskedFiles of /proc tell about the host or steer it.
var maskedFiles = []string{
	"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/proc/kallsyms", "/proc/sysrq-trigger", "/proc/timer_list",
	"/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats", "/proc/interrupts", "/proc/config.gz",
}

var maskedDirs = []string{"/proc/acpi", "/proc/asound", "/proc/scsi", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/driver"}

const (
	lockedDown     = unix.MS_NOSUID | unix.MS_NODEV
	attrLockedDown = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	// rootSlack is what the new root's own directories and files take.
	rootSlack = 4 << 20
	// tmpInodes bound the number of files in the temporary directories.
	tmpInodes = 1 << 18
)

// builder makes the new root. What it shows is opened on the host before the
// root is left, and mounted from its descriptor on a descriptor, so that
// neither end can be swapped in between.
type builder struct {
	p      *plan
	rootFD int
	// tmpFD is for measuring the temporary directories from outside.
	tmpFD int
	held  []sandbox.Held
	// writable directories and files, for the second wall.
	writableDirs, writableFiles []string
	// mountPoints of the host, once they were asked for.
	mountPoints []string
	// notes are what the private root does not keep out.
	notes []string
}

func (b *builder) hold(c sandbox.Control, s sandbox.State, note string) {
	b.held = append(b.held, sandbox.Held{Control: c, State: s, Note: note})
}

// in is a path of the inside, as it is reached before the root is left. It is
// for places that hold nothing but what was put there.
func (b *builder) in(path string) string { return b.p.Root + path }

func (b *builder) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"new root", b.root}, {"system directories", b.system}, {"/etc", b.etc}, {"/dev", b.dev}, {"temporary directories", b.temporary},
		{"mounts", b.mounts}, {"/proc", b.proc}, {"leave the old root", b.pivot},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	b.hold(sandbox.PrivateFS, sandbox.Enforced, strings.Join(b.notes, "; "))
	return nil
}

// root is one tmpfs for everything that is our own: its mount becomes
// read-only in the end, and the temporary directories are mounted from it
// again, so that one size bounds them all.
func (b *builder) root() error {
	data := fmt.Sprintf("mode=755,size=%d,nr_inodes=%d", b.p.TmpBytes+rootSlack, tmpInodes)
	if err := unix.Mount("tmpfs", b.p.Root, "tmpfs", lockedDown, data); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	fd, err := unix.Open(b.p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	b.rootFD = fd
	return err
}

func (b *builder) system() error {
	for _, dir := range systemDirs {
		info, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(dir)
			if err == nil {
				err = os.Symlink(target, b.in(dir))
			}
			if err != nil {
				return err
			}
			continue
		}
		if _, err := b.bind(dir, dir, attrLockedDown|unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return err
		}
	}
	return nil
}

// openSource opens what is to be shown. Links on the way are followed only
// where resolve lets them: an agent can leave links in a workspace.
func openSource(source string, resolve uint64) (fd int, dir bool, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve}
	fd, err = unix.Openat2(unix.AT_FDCWD, source, &how)
	if err == unix.ELOOP {
		return -1, false, fmt.Errorf("%s is or passes through a symbolic link (name the directory that it leads to): %w", source, err)
	}
	if err != nil {
		return -1, false, &os.PathError{Op: "open", Path: source, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, false, err
	}
	return fd, st.Mode&unix.S_IFMT == unix.S_IFDIR, nil
}

// bind shows source at target with the attributes of mount_setattr(2).
func (b *builder) bind(source, target string, attr, resolve uint64) (dir bool, err error) {
	fd, dir, err := openSource(source, resolve)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return dir, b.bindFD(fd, dir, target, attr)
}

func (b *builder) bindFD(fd int, dir bool, target string, attr uint64) error {
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("clone mount for %s: %w", target, err)
	}
	defer unix.Close(tree)
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &set); err != nil {
		return fmt.Errorf("lock mount for %s: %w", target, err)
	}
	return b.attach(tree, target, dir)
}

// attach puts a mount that is nowhere yet at target.
func (b *builder) attach(mount int, target string, dir bool) error {
	at, err := b.place(target, dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", target, err)
	}
	return nil
}

// place opens the directory or file to mount on, and makes what of it is
// absent. It follows no link: inside a workspace one could lead anywhere, on
// the host too.
func (b *builder) place(target string, dir bool) (fd int, err error) {
	names := strings.Split(strings.Trim(filepath.Clean(target), "/"), "/")
	at, err := unix.Dup(b.rootFD)
	if err != nil {
		return -1, err
	}
	for i, name := range names {
		next, err := step(at, name, dir || i < len(names)-1)
		unix.Close(at)
		if err != nil {
			return -1, &os.PathError{Op: "make a place inside for", Path: target, Err: err}
		}
		at = next
	}
	return at, nil
}

func step(at int, name string, dir bool) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	if dir {
		how.Flags |= unix.O_DIRECTORY
	}
	fd, err = unix.Openat2(at, name, &how)
	if err != unix.ENOENT {
		return fd, err
	}
	if dir {
		err = unix.Mkdirat(at, name, 0o755)
	} else {
		var f int
		if f, err = unix.Openat(at, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644); err == nil {
			err = unix.Close(f)
		}
	}
	if err != nil {
		return -1, err
	}
	return unix.Openat2(at, name, &how)
}

func (b *builder) etc() error {
	for _, pattern := range systemFiles {
		found := []string{pattern}
		if strings.Contains(pattern, "*") {
			found, _ = filepath.Glob(pattern) // the only error is a bad pattern
		}
		for _, f := range found {
			if _, err := b.bind(f, f, attrLockedDown|unix.MOUNT_ATTR_RDONLY, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	if err := os.MkdirAll(b.in("/etc"), 0o755); err != nil {
		return err
	}
	uid, gid, home := os.Getuid(), os.Getgid(), b.p.Home
	if home == "" {
		home = "/"
	}
	root := ""
	if uid != 0 {
		root = "root:x:0:0:root:/:/usr/sbin/nologin\n"
	}
	for name, text := range map[string]string{
		"passwd":        root + fmt.Sprintf("agent:x:%d:%d:agent:%s:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n", uid, gid, home),
		"group":         fmt.Sprintf("agent:x:%d:\nnogroup:x:65534:\n", gid),
		"hosts":         "127.0.0.1 localhost cordon\n::1 localhost\n",
		"resolv.conf":   "# There is no DNS inside: names are resolved by the egress proxy.\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"hostname":      "cordon\n",
	} {
		if err := os.WriteFile(b.in("/etc/"+name), []byte(text), 0o444); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) dev() error {
	if err := os.Mkdir(b.in("/dev"), 0o755); err != nil {
		return err
	}
	names := devices
	if b.p.TTY {
		names = append([]string{"tty"}, devices...)
	}
	for _, name := range names {
		// Without MOUNT_ATTR_NODEV, which would make it useless.
		if _, err := b.bind("/dev/"+name, "/dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, 0); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, b.in("/dev/"+name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(b.in("/dev/pts"), 0o755); err != nil {
		return err
	}
	// A new instance: its terminals are not the host's.
	return unix.Mount("devpts", b.in("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=600")
}

func (b *builder) temporary() error {
	for _, dir := range temporaryDirs {
		mode := os.FileMode(0o777) | os.ModeSticky
		if dir == "/run" {
			mode = 0o755
		}
		if err := b.scratch(dir, mode); err != nil {
			return err
		}
	}
	if b.homeNeeded() {
		if err := b.scratch(b.p.Home, 0o700); err != nil {
			return err
		}
	}
	fd, err := unix.Open(b.in("/tmp"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	b.tmpFD = fd
	return err
}

// homeNeeded: there is no home but the one that we make.
func (b *builder) homeNeeded() bool {
	home := b.p.Home
	if home == "" || home == "/" {
		return false
	}
	for _, dir := range append(append([]string{"/proc", "/dev", "/etc"}, systemDirs...), temporaryDirs...) {
		if within(home, dir) {
			return false
		}
	}
	for _, m := range b.p.Mounts {
		if within(home, m.Target) {
			return false
		}
	}
	return true
}

// within tells whether path is dir or below it; both are clean.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// scratch makes a directory of the new root and mounts it on itself, so that
// it stays writable when the root is not.
func (b *builder) scratch(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(b.in(dir), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(b.in(dir), mode); err != nil {
		return err
	}
	b.writableDirs = append(b.writableDirs, dir)
	_, err := b.bind(b.in(dir), dir, attrLockedDown, 0)
	return err
}

// mounts shows what the spec names, outer ones first.
func (b *builder) mounts() error {
	for _, m := range b.p.Mounts {
		dir := true
		var err error
		switch m.Access {
		case sandbox.Overlay:
			err = b.overlay(m)
		case sandbox.ReadWrite:
			dir, err = b.bind(m.Source, m.Target, attrLockedDown, unix.RESOLVE_NO_SYMLINKS)
		default:
			err = b.readOnly(m)
		}
		switch {
		case m.Optional && errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case m.Access == sandbox.ReadOnly:
		case dir:
			b.writableDirs = append(b.writableDirs, m.Target)
		default:
			b.writableFiles = append(b.writableFiles, m.Target)
		}
	}
	return nil
}

// readOnly shows a directory as the lower layer of an overlay with nothing
// above it: its files are the host's, but its sockets are not the ones that
// daemons of the host listen on, which a read-only mount would not keep
// anybody from connecting to. What no overlay can show is mounted as it is.
// The price: a name that the program looked for in vain may stay absent for
// it when the host makes it while it runs.
func (b *builder) readOnly(m sandbox.Mount) error {
	fd, dir, err := openSource(m.Source, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if dir && !b.mountedBelow(m.Source) && b.lowerOnly(fd, m.Target) == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		return &os.PathError{Op: "show", Path: m.Source, Err: errors.New("it is a socket, which reading is no use of")}
	}
	if dir {
		b.notes = append(b.notes, "sockets below "+m.Target+" can be connected to")
	}
	return b.bindFD(fd, dir, m.Target, attrLockedDown|unix.MOUNT_ATTR_RDONLY)
}

// mountedBelow: an overlay shows nothing of other mounts.
func (b *builder) mountedBelow(dir string) bool {
	if b.mountPoints == nil {
		text, err := os.ReadFile("/proc/thread-self/mountinfo")
		if err != nil {
			return true
		}
		b.mountPoints = slices.DeleteFunc(inside.MountPoints(string(text)), func(p string) bool { return within(p, b.p.Root) })
	}
	return slices.ContainsFunc(b.mountPoints, func(p string) bool { return p != dir && within(p, dir) })
}

func (b *builder) lowerOnly(fd int, target string) error {
	// An overlay without an upper layer has two lower ones at least.
	const nothing = "/var/empty"
	if err := os.MkdirAll(b.in(nothing), 0o555); err != nil {
		return err
	}
	empty, _, err := openSource(b.in(nothing), unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(empty)
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "lowerdir", fmt.Sprintf("/proc/self/fd/%d:/proc/self/fd/%d", fd, empty)); err != nil {
		return err
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrLockedDown|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	return b.attach(mnt, target, true)
}

// overlay mounts with userxattr: in a user namespace the kernel keeps what it
// has to say about a directory in user.overlay.* instead of trusted.overlay.*.
func (b *builder) overlay(m sandbox.Mount) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(fs)
	for _, layer := range []struct{ key, path string }{{"lowerdir", m.Source}, {"upperdir", m.Upper}, {"workdir", m.Work}} {
		fd, dir, err := openSource(layer.path, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if !dir {
			return &os.PathError{Op: "overlay " + layer.key, Path: layer.path, Err: unix.ENOTDIR}
		}
		// By descriptor: the path cannot be swapped, needs no escaping, and is
		// not to be read in /proc/self/mountinfo.
		if err := unix.FsconfigSetString(fs, layer.key, fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return fmt.Errorf("overlay %s %q: %w", layer.key, layer.path, err)
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return fmt.Errorf("overlay userxattr: %w", err)
	}
	// Nothing is written through to the disk at its end (Linux 5.10 and later):
	// a commit does that itself before it counts, and what is rolled back need
	// not have been. Such an upper directory can be mounted once.
	_ = unix.FsconfigSetFlag(fs, "volatile") // older kernels have it not
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("overlay of %s: %w", m.Source, err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrLockedDown)
	if err != nil {
		return fmt.Errorf("overlay of %s: %w", m.Source, err)
	}
	defer unix.Close(mnt)
	if err := b.attach(mnt, m.Target, true); err != nil {
		return err
	}
	b.hold(sandbox.OverlayFS, sandbox.Enforced, "")
	return nil
}

func (b *builder) proc() error {
	if err := os.Mkdir(b.in("/proc"), 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", b.in("/proc"), "proc", lockedDown|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf(noProc+": %w", err)
	}
	for _, f := range maskedFiles {
		if err := unix.Mount("/dev/null", b.in(f), "", unix.MS_BIND, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("mask %s: %w", f, err)
		}
	}
	const empty = "/.empty"
	if err := os.Mkdir(b.in(empty), 0o555); err != nil {
		return err
	}
	for _, d := range maskedDirs {
		if info, err := os.Lstat(b.in(d)); err != nil || !info.IsDir() {
			continue
		}
		if _, err := b.bind(b.in(empty), d, attrLockedDown|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, 0); err != nil {
			return err
		}
	}
	if err := os.Remove(b.in(empty)); err != nil {
		return err
	}
	_, err := b.bind(b.in("/proc/sys"), "/proc/sys", attrLockedDown|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, 0)
	return err
}

// pivot makes the new root the only one, and read-only.
func (b *builder) pivot() error {
	if err := unix.Close(b.rootFD); err != nil {
		return err
	}
	if err := unix.Chdir(b.p.Root); err != nil {
		return err
	}
	// The old root is stacked under the new one's ".", then let go.
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
