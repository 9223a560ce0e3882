package gvisor

import (
	"encoding/json"
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

// rootPlan is what the builder of the root is told, as JSON on descriptor 3.
type rootPlan struct {
	// Dir is the bundle's directory.
	Dir string
	// Rootfs is shown as the root; empty is the host's own programs.
	Rootfs string
	Init   string
	Mounts []sandbox.Mount
	// Places are directories that runsc mounts on.
	Places   []string
	UID, GID int
	// Groups are cgroup directories to live in.
	Groups []string
	// Runsc is what the builder becomes.
	Runsc []string
}

// builderName is argv[0] of the builder; a user's command line cannot have it.
const builderName = "cordon-gvisor-root"

// refusal begins what the builder says when it could not do its work.
const refusal = "cordon could not build the root: "

// Main takes over when the binary was started to build a sandbox's root, and
// then never returns. The binary's main calls it before anything else.
func Main() {
	if len(os.Args) != 1 || os.Args[0] != builderName {
		return
	}
	fmt.Fprintln(os.Stderr, refusal+build().Error())
	os.Exit(125)
}

// build mounts the root, in namespaces that were made for it, and becomes
// runsc.
func build() error {
	file := os.NewFile(3, "plan")
	unix.CloseOnExec(3)
	var p rootPlan
	if err := json.NewDecoder(file).Decode(&p); err != nil {
		return err
	}
	for _, dir := range p.Groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// runsc asks about itself in /proc, by numbers of this namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	b := &builder{p: &p}
	for _, step := range []func() error{b.tmpfs, b.system, b.init, b.mounts, b.places} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	err := unix.Exec(p.Runsc[0], p.Runsc, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GOTRACEBACK=none"})
	return fmt.Errorf("%s: %w", p.Runsc[0], err)
}

// systemDirs are shown read-only where the host has them; a link of the host
// (/bin → usr/bin) is a link inside.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

// systemFiles of /etc are what programs need to find libraries, time zones,
// certificates and names.
var systemFiles = []string{
	"/etc/alternatives", "/etc/ca-certificates", "/etc/debian_version", "/etc/fonts", "/etc/inputrc", "/etc/java-*-openjdk", "/etc/ld.so.cache",
	"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/os-release", "/etc/pki",
	"/etc/protocols", "/etc/python3*", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone",
}

// builder makes the root below p.Dir.
type builder struct {
	p      *rootPlan
	rootFD int
}

const (
	lockedDown = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	readOnly   = lockedDown | unix.MOUNT_ATTR_RDONLY
)

func (b *builder) in(path string) string { return filepath.Join(b.p.Dir, rootDir, path) }

// tmpfs is what the root and the other mounts hang in: it is gone with this
// namespace.
func (b *builder) tmpfs() error {
	for _, dir := range []string{rootDir, mountsDir} {
		at := filepath.Join(b.p.Dir, dir)
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=8m"); err != nil {
			return fmt.Errorf("mount tmpfs: %w", err)
		}
	}
	if b.p.Rootfs != "" {
		if err := b.rootfs(); err != nil {
			return err
		}
	}
	var err error
	b.rootFD, err = unix.Open(b.in(""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, dir := range []string{"proc", "sys", "dev"} {
		fd, err := b.place(dir, true)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// rootfs shows a root file system below a layer of memory, so that places for
// mounts can be made and nothing of it is changed.
func (b *builder) rootfs() error {
	m := sandbox.Mount{Source: b.p.Rootfs, Upper: filepath.Join(b.p.Dir, mountsDir, "upper"), Work: filepath.Join(b.p.Dir, mountsDir, "work")}
	if err := errors.Join(os.Mkdir(m.Upper, 0o755), os.Mkdir(m.Work, 0o755)); err != nil {
		return err
	}
	tree, err := overlay(m)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	at, err := unix.Open(b.in(""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return move(tree, at, "/")
}

func (b *builder) system() error {
	if b.p.Rootfs != "" {
		return nil
	}
	for _, dir := range systemDirs {
		if err := b.show(dir, dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, pattern := range systemFiles {
		found := []string{pattern}
		if strings.Contains(pattern, "*") {
			found, _ = filepath.Glob(pattern) // the only error is a bad pattern
		}
		for _, f := range found {
			if err := b.bind(f, f, readOnly, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return b.accounts()
}

func (b *builder) accounts() error {
	if err := os.MkdirAll(b.in("/etc"), 0o755); err != nil {
		return err
	}
	root := ""
	if b.p.UID != 0 {
		root = "root:x:0:0:root:/:/usr/sbin/nologin\n"
	}
	for name, text := range map[string]string{
		"passwd":        root + fmt.Sprintf("agent:x:%d:%d:agent:/tmp:/bin/sh\n", b.p.UID, b.p.GID),
		"group":         fmt.Sprintf("agent:x:%d:\n", b.p.GID),
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

// show binds read-only; a link becomes the same link.
func (b *builder) show(source, target string) error {
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		to, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(to, b.in(target))
	case info.IsDir(), info.Mode().IsRegular():
		return b.bind(source, target, readOnly, 0)
	}
	return nil
}

func (b *builder) init() error { return b.bind(b.p.Init, inside.Path, readOnly, 0) }

// bind shows source at target of the root.
func (b *builder) bind(source, target string, attr, resolve uint64) error {
	tree, dir, err := openTree(source, attr, resolve)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	at, err := b.place(target, dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return move(tree, at, target)
}

func move(mount, at int, target string) error {
	if err := unix.MoveMount(mount, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", target, err)
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

// openTree is a copy of the mounts at and below source, which is nowhere yet.
func openTree(source string, attr, resolve uint64) (tree int, dir bool, err error) {
	fd, dir, err := openSource(source, resolve)
	if err != nil {
		return -1, false, err
	}
	defer unix.Close(fd)
	tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, false, fmt.Errorf("clone mount of %s: %w", source, err)
	}
	set := unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &set); err != nil {
		unix.Close(tree)
		return -1, false, fmt.Errorf("lock mount of %s: %w", source, err)
	}
	return tree, dir, nil
}

// place opens the directory or file to mount on, and makes what of it is
// absent. It follows no link.
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

// places makes the directories that runsc mounts directories of memory on.
func (b *builder) places() error {
	for _, dir := range b.p.Places {
		fd, err := b.place(dir, true)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	return nil
}

// mounts puts what the spec names below mountsDir, from where runsc takes it,
// and makes the place that it goes to.
func (b *builder) mounts() error {
	var outer []string
	for i, m := range b.p.Mounts {
		var tree int
		dir := true
		var err error
		switch m.Access {
		case sandbox.Overlay:
			tree, err = overlay(m)
		case sandbox.ReadWrite:
			tree, dir, err = openTree(m.Source, lockedDown, unix.RESOLVE_NO_SYMLINKS)
		default:
			tree, dir, err = openTree(m.Source, readOnly, unix.RESOLVE_NO_SYMLINKS)
		}
		if err != nil {
			return err
		}
		err = b.put(tree, dir, filepath.Join(b.p.Dir, mountsDir, fmt.Sprint(i)))
		unix.Close(tree)
		if err != nil {
			return err
		}
		// A place within another mount is made there by runsc.
		if !slices.ContainsFunc(outer, func(o string) bool { return inside.Within(m.Target, o) }) {
			at, err := b.place(m.Target, dir)
			if err != nil {
				return err
			}
			unix.Close(at)
		}
		outer = append(outer, m.Target)
	}
	return nil
}

func (b *builder) put(tree int, dir bool, at string) error {
	var err error
	if dir {
		err = os.Mkdir(at, 0o755)
	} else {
		err = os.WriteFile(at, nil, 0o644)
	}
	if err != nil {
		return err
	}
	fd, err := unix.Open(at, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return move(tree, fd, at)
}

// overlay mounts with userxattr: the kernel's marks are then where the
// transaction looks for them, and the sandbox can make none.
func overlay(m sandbox.Mount) (mount int, err error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(fs)
	for _, layer := range []struct{ key, path string }{{"lowerdir", m.Source}, {"upperdir", m.Upper}, {"workdir", m.Work}} {
		fd, dir, err := openSource(layer.path, unix.RESOLVE_NO_SYMLINKS)
		if err != nil {
			return -1, err
		}
		defer unix.Close(fd)
		if !dir {
			return -1, &os.PathError{Op: "overlay " + layer.key, Path: layer.path, Err: unix.ENOTDIR}
		}
		// By descriptor: the path cannot be swapped and needs no escaping.
		if err := unix.FsconfigSetString(fs, layer.key, fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return -1, fmt.Errorf("overlay %s %q: %w", layer.key, layer.path, err)
		}
	}
	if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
		return -1, fmt.Errorf("overlay userxattr: %w", err)
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay of %s: %w", m.Source, err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, lockedDown)
	if err != nil {
		return -1, fmt.Errorf("overlay of %s: %w", m.Source, err)
	}
	return mnt, nil
}
