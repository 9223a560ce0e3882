//go:build linux

package transaction

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// step is one thing that a run does to its tree.
type step struct {
	Do, Path, To string
	Mode         uint32
}

func do(verb, path string, more ...any) step {
	s := step{Do: verb, Path: path}
	for _, m := range more {
		switch m := m.(type) {
		case string:
			s.To = m
		case int:
			s.Mode = uint32(m)
		}
	}
	return s
}

// work does a script, then rounds of random steps. It is the same for the same
// seed and the same tree.
func work(root string, script []step, seed int64, rounds int) error {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	for _, s := range script {
		if err := s.run(root); err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
	}
	r := rand.New(rand.NewSource(seed))
	for i := range rounds {
		s, ok := randomStep(r, root, i)
		if !ok {
			continue
		}
		if err := s.run(root); err != nil {
			return fmt.Errorf("round %d: %+v: %w", i, s, err)
		}
	}
	return nil
}

func (s *step) run(root string) error {
	p := filepath.Join(root, s.Path)
	switch s.Do {
	case "write":
		return os.WriteFile(p, []byte(s.To), 0o644)
	case "append":
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(s.To)
		return errors.Join(err, f.Close())
	case "replace":
		tmp := p + ".tmp"
		return errors.Join(os.WriteFile(tmp, []byte(s.To), 0o600), os.Rename(tmp, p))
	case "sparse":
		return errors.Join(os.WriteFile(p, []byte(s.To), 0o644), os.Truncate(p, 1<<20))
	case "remove":
		return os.RemoveAll(p)
	case "mkdir":
		return os.MkdirAll(p, 0o755)
	case "move":
		return moveTree(p, filepath.Join(root, s.To))
	case "symlink":
		return os.Symlink(s.To, p)
	case "link":
		return os.Link(p, filepath.Join(root, s.To))
	case "chmod":
		return unix.Chmod(p, s.Mode)
	case "chown":
		return unix.Lchown(p, int(s.Mode), int(s.Mode))
	case "times":
		return unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{{Sec: 1e9, Nsec: 7}, {Sec: 1e9 + int64(s.Mode), Nsec: 123456789}}, unix.AT_SYMLINK_NOFOLLOW)
	case "setxattr":
		return unix.Lsetxattr(p, "user.test", []byte(s.To), 0)
	case "rmxattr":
		if err := unix.Lremovexattr(p, "user.test"); err != nil && err != unix.ENODATA {
			return err
		}
		return nil
	case "fifo":
		return unix.Mkfifo(p, 0o644)
	case "socket":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := os.Chdir(filepath.Dir(p)); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Base(p)})
	case "deep":
		if err := os.Chdir(p); err != nil {
			return err
		}
		name := strings.Repeat("d", 200)
		for range s.Mode {
			if err := errors.Join(os.Mkdir(name, 0o755), os.Chdir(name)); err != nil {
				return err
			}
		}
		return errors.Join(os.WriteFile("end", []byte(s.To), 0o644), os.Chdir("/"))
	}
	return fmt.Errorf("unknown step %q", s.Do)
}

// moveTree does as mv does where a directory cannot be renamed.
func moveTree(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return os.Rename(from, to)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := moveTree(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(from)
}

var oddNames = []string{"plain", "a\nb", "\xff\xfe", "-rf", " ", ".wh.plain", "ünï", "a.b", "!", "q\"\\", strings.Repeat("n", 255)}

// randomStep chooses among what the tree holds. Files whose name begins with
// "hl" have several names from the start; an overlay parts them when one is
// changed, so these are only removed.
func randomStep(r *rand.Rand, root string, i int) (step, bool) {
	var files, dirs []string
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, p)
		if err == nil && d.IsDir() {
			dirs = append(dirs, rel)
		} else if err == nil {
			files = append(files, rel)
		}
		return nil
	})
	slices.Sort(files)
	slices.Sort(dirs)
	dir := dirs[r.Intn(len(dirs))]
	name := oddNames[r.Intn(len(oddNames))]
	if len(name) < 100 {
		name += fmt.Sprint(r.Intn(4))
	}
	fresh := filepath.Join(dir, name)
	_, err := os.Lstat(filepath.Join(root, fresh))
	free := errors.Is(err, fs.ErrNotExist)
	text := strings.Repeat(fmt.Sprint("text ", i, "\n"), r.Intn(40))
	n := r.Intn(22)
	if n < 8 {
		if !free {
			n = 8 + r.Intn(14)
		} else if n == 0 {
			return do("write", fresh, text), true
		}
	}
	switch n {
	case 1, 2:
		return do("mkdir", fresh), true
	case 3:
		return do("symlink", fresh, []string{"nowhere", "/etc", "..", "plain0"}[r.Intn(4)]), true
	case 4:
		return do("fifo", fresh), true
	case 5:
		return do("sparse", fresh, text), true
	case 6, 7:
		if len(files) > 0 {
			f := files[r.Intn(len(files))]
			if changeable(root, f, false) {
				return do([]string{"move", "link"}[n-6], f, fresh), true
			}
		}
		return step{}, false
	case 8:
		if dir != "." {
			return do("remove", dir), true
		}
	case 9, 10:
		if len(files) > 0 {
			return do("remove", files[r.Intn(len(files))]), true
		}
	case 11:
		if dir == "." {
			return step{}, false
		}
		return do("chmod", dir, int([]uint32{0o755, 0o700, 0o555, 0o1777, 0o2755, 0}[r.Intn(6)])), true
	case 12:
		return do("times", dir, r.Intn(1000)), true
	case 13:
		return do("setxattr", dir, text+"v"), true
	case 14:
		if os.Geteuid() == 0 && hasIDs() {
			return do("chown", dir, r.Intn(3)*7), true
		}
	}
	if len(files) == 0 {
		return step{}, false
	}
	f := files[r.Intn(len(files))]
	if !changeable(root, f, true) {
		return step{}, false
	}
	switch n {
	case 15:
		return do("write", f, text), true
	case 16:
		return do("append", f, "more"), true
	case 17:
		return do("replace", f, text), len(filepath.Base(f)) < 200
	case 18:
		return do("chmod", f, int([]uint32{0o755, 0o644, 0o400, 0o4755, 0o2755, 0}[r.Intn(6)])), true
	case 19:
		return do("times", f, r.Intn(1000)), true
	case 20:
		return do("setxattr", f, text+"v"), true
	case 21:
		return do("rmxattr", f), true
	}
	return step{}, false
}

func hasIDs() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && len(strings.Fields(string(text))) == 3 && strings.Fields(string(text))[2] != "1"
}

func changeable(root, f string, content bool) bool {
	info, err := os.Lstat(filepath.Join(root, f))
	if err != nil || strings.HasPrefix(filepath.Base(f), "hl") {
		return false
	}
	return !content || info.Mode().IsRegular()
}

// part gives each name that the random steps linked a file of its own.
func part(root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeNamedPipe != 0 {
			return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o644))
		}
		if err == nil && d.Type()&fs.ModeSymlink != 0 {
			text, err := os.Readlink(p)
			return errors.Join(err, os.Remove(p), os.Symlink(text, p))
		}
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), "hl") {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil || st.Nlink == 1 {
			return err
		}
		text, err := os.ReadFile(p)
		return errors.Join(err, os.Remove(p), os.WriteFile(p, text, 0o644))
	})
}

// base makes a tree to begin with.
func base(root string, seed int64) error {
	script := []step{
		do("write", "plain0", "one\ntwo\nthree\n"), do("mkdir", "d/e/f"), do("write", "d/e/f/g", "deep"),
		do("write", "d/hl1", "several names"), do("link", "d/hl1", "hl2"), do("link", "d/hl1", "d/hl3"),
		do("symlink", "d/out", "/etc/hostname"), do("symlink", "loop", "loop"), do("mkdir", "empty"),
		do("write", "exe", "#!/bin/sh\n"), do("chmod", "exe", 0o755), do("mkdir", "shut"), do("write", "shut/in", "x"),
		do("setxattr", "plain0", "kept"), do("setxattr", "d", "kept"), do("sparse", "d/sparse", "begin"),
		do("times", "d/e", 5), do("times", "plain0", 6), do("chmod", "shut", 0o555),
	}
	if err := work(root, script, seed, 30); err != nil {
		return err
	}
	if err := part(root); err != nil {
		return err
	}
	// All times are different, and none is now.
	i := 0
	return filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		i++
		at := unix.Timespec{Sec: 1_500_000_000 + int64(i), Nsec: int64(i) * 1001}
		return errors.Join(err, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
	})
}
