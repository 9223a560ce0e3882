package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// overlayWork does to the tree that the test made what an overlay keeps in
// whiteouts, opaque directories and renames. It must end the same with walls
// and without.
func overlayWork(args) {
	must(os.Remove("gone"))
	must(os.RemoveAll("dir-gone"))
	// A directory that is replaced by another: opaque.
	must(os.RemoveAll("replaced"))
	must(os.Mkdir("replaced", 0o750))
	must(os.WriteFile("replaced/new", []byte("new"), 0o640))
	// Renames of what was there, whole directories too.
	must(rename("moved", "moved-away"))
	must(rename("dir", "dir-moved"))
	must(os.WriteFile("dir-moved/added", []byte("added"), 0o600))
	must(os.Mkdir("dir", 0o755))
	must(os.WriteFile("dir/again", []byte("again"), 0o600))
	must(os.Remove("dir-moved/sub/deep"))
	must(rename("over-a", "over-b"))
	// Changes of kind.
	must(os.Remove("file-to-dir"))
	must(os.Mkdir("file-to-dir", 0o700))
	must(os.WriteFile("file-to-dir/x", []byte("x"), 0o600))
	must(os.RemoveAll("dir-to-file"))
	must(os.WriteFile("dir-to-file", []byte("file"), 0o644))
	must(os.Remove("link"))
	must(os.Symlink("elsewhere", "link"))
	must(os.RemoveAll("dir-to-link"))
	must(os.Symlink("replaced", "dir-to-link"))
	// Names of one inode, of a file that was there and of a new one.
	must(os.Link("linked", "linked-too"))
	must(os.WriteFile("fresh", []byte("fresh"), 0o600))
	must(os.Link("fresh", "fresh-too"))
	// Attributes.
	must(os.Chmod("mode", 0o751))
	must(os.Chmod("dir-mode", 0o711))
	must(os.Chtimes("times", time.Unix(1e9, 5), time.Unix(1e9, 7)))
	must(unix.Mkfifo("fifo", 0o640))
	f, err := os.OpenFile("appended", os.O_WRONLY|os.O_APPEND, 0)
	must(err)
	_, err = f.WriteString(" and more")
	must(err)
	must(f.Close())
	must(os.Truncate("cut", 1))
	// A name that goes and comes back.
	must(os.Remove("back"))
	must(os.WriteFile("back", []byte("other"), 0o644))
	must(os.RemoveAll("dir-back"))
	must(os.Mkdir("dir-back", 0o755))
	must(os.WriteFile("dir-back/other", nil, 0o644))
	// A deep tree that is emptied from below.
	for d := "chain/a/b/c"; strings.Contains(d, "/"); d = d[:strings.LastIndexByte(d, '/')] {
		must(os.Remove(d))
	}
	say(line{Try: "work", Got: "done"})
}

// rename as mv does it: an overlay answers EXDEV for a directory of the lower
// layer, which is then copied.
func rename(from, to string) error {
	err := os.Rename(from, to)
	if err == nil || !strings.Contains(err.Error(), unix.EXDEV.Error()) {
		return err
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, info.Mode()))
		}
		text, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(at, text, 0o600), os.Chmod(at, info.Mode()))
	})
	return errors.Join(err, os.RemoveAll(from))
}

// odd names that a file may have; of 255 bytes the longest.
var oddNames = []string{
	"new\nline", "tab\tname", "\xff\xfe not utf-8", "-rf", "*", "$(id)", "back\\slash", "qu'ote\"s", " leading", "trailing ", "\x1b[31mred",
	"a\u202eb", "e\u0301", "\u00e9", "%00", ".wh.gone", ".wh..wh..opq", strings.Repeat("n", 255), "#~", "...",
}

// oddWork makes sparse, huge, deep, odd-named and unreadable files.
func oddWork(a args) {
	size := int64(1 << 20)
	_, _ = fmt.Sscan(a["size"], &size)
	f, err := os.Create("sparse")
	must(err)
	must(f.Truncate(size))
	for _, at := range []int64{0, size / 2, size - 4} {
		_, err = f.WriteAt([]byte("data"), at)
		must(err)
	}
	must(f.Close())
	must(os.WriteFile("huge", make([]byte, 3<<20+1), 0o644))
	must(os.Mkdir("odd", 0o755))
	for i, name := range oddNames {
		must(os.WriteFile("odd/"+name, []byte{byte('a' + i)}, 0o644))
	}
	must(os.Chmod("secretive", 0))
	must(os.WriteFile("unreadable", []byte("unreadable"), 0))
	must(os.MkdirAll("shut/inner", 0o755))
	must(os.WriteFile("shut/inner/file", []byte("in"), 0o400))
	must(os.Chmod("shut/inner", 0o500))
	must(os.Chmod("shut", 0))
	must(os.WriteFile("empty", nil, 0o644))
	must(os.Symlink(strings.Repeat("x/", 2000), "long-link"))
	// Longer than a path may be: step by step.
	here, err := os.Getwd()
	must(err)
	must(os.Mkdir("deep", 0o755))
	must(os.Chdir("deep"))
	for range 60 {
		name := strings.Repeat("d", 100)
		must(os.Mkdir(name, 0o755))
		must(os.Chdir(name))
	}
	must(os.WriteFile("bottom", []byte("bottom"), 0o600))
	must(os.Chdir(here))
	say(line{Try: "work", Got: "done"})
	if a["fail"] != "" {
		os.Exit(1)
	}
}
