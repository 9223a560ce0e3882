// Package testimage makes a small root file system of this machine's own
// programs, and runs a Docker engine of its own, for tests that need both and
// can reach no registry.
//
// What it does not do: isolate anything. It is for root on a machine that is
// for tests, and what it starts it ends.
package testimage

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Programs are what Write puts in where it is told no others: a shell and
// what tests run in it. awk, find, python3 and such may be added by name.
var Programs = []string{
	"sh", "cat", "chmod", "cp", "dd", "df", "echo", "env", "false", "grep", "head", "id", "ln", "ls", "mkdir", "mknod", "mv", "nproc", "ps",
	"pwd", "readlink", "rm", "rmdir", "sed", "seq", "setsid", "sleep", "sort", "stat", "stty", "sync", "tail", "tee", "test", "timeout", "touch", "tr",
	"true", "tty", "uname", "wc", "yes", "bash", "mount", "umount", "unshare", "kill", "ulimit", "mktemp",
}

// libraryDirs are where shared libraries are looked for.
var libraryDirs = []string{
	"/lib64", "/lib", "/usr/lib64", "/usr/lib", "/usr/local/lib",
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
}

// Write writes a root file system as a tar: the programs named (all of
// Programs for none) with the libraries that they need, accounts, and empty
// directories. A program that this machine does not have is left out, but for
// the shell.
func Write(w io.Writer, programs ...string) error {
	if len(programs) == 0 {
		programs = Programs
	}
	b := &builder{files: map[string]string{}}
	for _, p := range programs {
		found, err := exec.LookPath(p)
		if err != nil {
			if p == "sh" {
				return fmt.Errorf("testimage: %w", err)
			}
			continue
		}
		if err := b.add("/usr/bin/"+filepath.Base(p), found); err != nil {
			return fmt.Errorf("testimage: %s: %w", p, err)
		}
	}
	return b.write(w)
}

// builder collects files: where each goes and where it comes from.
type builder struct{ files map[string]string }

// add takes a program or library and, by the names in it, what it needs.
func (b *builder) add(to, from string) error {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if _, there := b.files[to]; there {
		return nil
	}
	b.files[to] = real
	f, err := elf.Open(real)
	if err != nil {
		return nil // a script
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return err
		}
		interpreter := strings.TrimRight(string(text), "\x00")
		if err := b.add(usr(interpreter), interpreter); err != nil {
			return err
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range needed {
		i := slices.IndexFunc(libraryDirs, func(dir string) bool {
			_, err := os.Stat(dir + "/" + name)
			return err == nil
		})
		if i < 0 {
			return fmt.Errorf("no library %s", name)
		}
		from := libraryDirs[i] + "/" + name
		if err := b.add(usr(from), from); err != nil {
			return err
		}
	}
	return nil
}

// usr is a path in a system whose /bin, /lib and /lib64 are links into /usr.
func usr(p string) string {
	if strings.HasPrefix(p, "/usr/") {
		return p
	}
	return "/usr" + p
}

func (b *builder) write(w io.Writer) error {
	t := tar.NewWriter(w)
	var errs []error
	put := func(h *tar.Header, content string) {
		errs = append(errs, t.WriteHeader(h))
		if content != "" {
			_, err := io.WriteString(t, content)
			errs = append(errs, err)
		}
	}
	dirs := map[string]bool{}
	for to := range b.files {
		for d := path.Dir(to); d != "/"; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	for _, d := range []string{"/usr/bin", "/usr/lib", "/usr/lib64", "/etc", "/proc", "/sys", "/dev", "/run", "/home", "/root", "/usr", "/var", "/mnt"} {
		dirs[d] = true
	}
	for _, d := range slices.Sorted(keys(dirs)) {
		put(&tar.Header{Typeflag: tar.TypeDir, Name: d[1:] + "/", Mode: 0o755}, "")
	}
	for _, d := range []string{"tmp/", "var/tmp/"} {
		put(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: 0o1777}, "")
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		put(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, "")
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n", "etc/group": "root:x:0:\nnogroup:x:65534:\n",
	} {
		put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))}, text)
	}
	for _, to := range slices.Sorted(keys(b.files)) {
		errs = append(errs, copyFile(t, to[1:], b.files[to]))
	}
	return errors.Join(append(errs, t.Close())...)
}

func copyFile(t *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Rootfs writes the root file system into a directory, which it makes.
func Rootfs(dir string, programs ...string) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(Write(w, programs...)) }()
	defer r.Close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := extract(t, h, filepath.Join(dir, h.Name)); err != nil {
			return fmt.Errorf("testimage: %w", err)
		}
	}
}

func extract(r io.Reader, h *tar.Header, to string) error {
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		mode := h.FileInfo().Mode()
		return os.Chmod(to, mode.Perm()|mode&os.ModeSticky)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, to)
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
