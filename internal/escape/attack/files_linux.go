package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

var fileKinds = map[string]func(args){
	"links":       links,
	"swap":        swap,
	"write-wait":  writeWait,
	"proc-roots":  procRoots,
	"proc-list":   procList,
	"hard-links":  hardLinks,
	"descriptors": descriptors,
	"write":       writeFiles,
	"devices":     devices,
	"setuid":      setuid,
	"wander":      wander,
	"stores":      stores,
	"overlay":     overlayWork,
	"odd":         oddWork,
}

// links: secret is a file of the host; outside one of its directories.
// "planted" was put into the workspace before.
func links(a args) {
	secret := a["secret"]
	must(os.MkdirAll("deep/er", 0o755))
	for name, target := range map[string]string{
		"absolute": secret, "to-directory": filepath.Dir(secret), "relative": a["relative"], "dotted": "deep/er/../../absolute",
		"deep/er/up": "../../absolute", "by-proc": "/proc/self/root" + secret, "by-cwd": "/proc/self/cwd/absolute", "doubled": "//" + secret,
	} {
		must(os.Symlink(target, name))
	}
	for _, name := range []string{"absolute", "relative", "dotted", "deep/er/up", "by-proc", "by-cwd", "doubled"} {
		try("read through "+name, func() error { return read(name) })
	}
	try("read through to-directory", func() error { return read("to-directory/" + filepath.Base(secret)) })
	try("read through planted", func() error { return read("planted") })
	try("write through planted", func() error { return os.WriteFile("planted", []byte("changed"), 0o600) })
	try("write through to-directory", func() error { return os.WriteFile("to-directory/new", nil, 0o600) })
}

// swap exchanges a directory and a link to outside in a loop, and writes.
func swap(a args) {
	must(os.Mkdir("swapped", 0o755))
	must(os.Symlink(a["outside"], "lure"))
	done := make(chan bool)
	go func() {
		for range 20000 {
			_ = unix.Renameat2(unix.AT_FDCWD, "swapped", unix.AT_FDCWD, "lure", unix.RENAME_EXCHANGE)
		}
		close(done)
	}()
	wrote := 0
	for i := 0; ; i++ {
		select {
		case <-done:
			say(line{Try: "writes", Got: fmt.Sprint(wrote)})
			return
		default:
		}
		if os.WriteFile(fmt.Sprintf("swapped/race-%d", i%64), []byte("x"), 0o600) == nil {
			wrote++
		}
	}
}

// writeWait writes n files below dir, then waits before it ends.
func writeWait(a args) {
	n := 1
	_, _ = fmt.Sscan(a["n"], &n)
	must(os.MkdirAll(a["dir"], 0o755))
	for i := range n {
		must(os.WriteFile(fmt.Sprintf("%s/file-%04d", a["dir"], i), []byte(a["text"]), 0o644))
	}
	await()
}

func procRoots(a args) {
	for _, root := range []string{
		"/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../..", "/proc/1/cwd/../../../../../..", "/proc/self/task/self/root",
		"/proc/thread-self/root", "/proc/self/fd/0/..", "/dev/fd/0/..", "/proc/1/fd/0/..", "/proc/self/map_files/..", "/proc/1/task/1/root",
	} {
		try("secret by "+root, func() error { return read(root + a["secret"]) })
	}
	pids, err := filepath.Glob("/proc/[0-9]*")
	must(err)
	try("secret by any root or cwd", func() error {
		for _, p := range pids {
			for _, link := range []string{"root", "cwd"} {
				if read(p+"/"+link+a["secret"]) == nil {
					note("%s/%s", p, link)
					return nil
				}
			}
		}
		return errRefused
	})
	try("write by a root", func() error {
		for _, p := range append(pids, "/proc/self") {
			if os.WriteFile(p+"/root"+a["outside"]+"/by-root", nil, 0o600) == nil {
				return nil
			}
		}
		return errRefused
	})
}

// procList looks for a process of the host by a word on its command line.
func procList(a args) {
	pids, err := filepath.Glob("/proc/[0-9]*")
	must(err)
	say(line{Try: "processes", Got: fmt.Sprint(len(pids))})
	for _, file := range []string{"cmdline", "environ", "comm"} {
		try(file+" of the host's process", func() error {
			for _, p := range pids {
				if p != fmt.Sprintf("/proc/%d", os.Getpid()) && holds(p+"/"+file, a["word"]) == nil {
					return nil
				}
			}
			return errRefused
		})
	}
	for _, file := range []string{"maps", "mem", "exe", "stack", "auxv", "syscall"} {
		try(file+" of the host's process by number", func() error { return closing(unix.Open("/proc/"+a["pid"]+"/"+file, unix.O_RDONLY, 0)) })
	}
}

// hardLinks: readable is a file of the host that can be read inside.
func hardLinks(a args) {
	for _, source := range []string{"secret", "readable"} {
		try("link of "+source, func() error { return os.Link(a[source], "hard-"+source) })
		try("link of "+source+" by descriptor", func() error {
			fd, err := unix.Open(a[source], unix.O_PATH, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, "by-fd-"+source, unix.AT_SYMLINK_FOLLOW)
		})
		try("write to "+source, func() error {
			f, err := os.OpenFile(a[source], os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("changed")
			return errors.Join(err, f.Close())
		})
		try("move of "+source, func() error { return os.Rename(a[source], "moved-"+source) })
	}
	// A name in the workspace of an inode that has one outside too.
	try("write to a planted hard link", func() error { return os.WriteFile("planted", []byte("changed inside"), 0o600) })
	try("mode of a planted hard link", func() error { return os.Chmod("planted", 0o777) })
}

// descriptors tries every number that could have been inherited.
func descriptors(a args) {
	for fd := range 64 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if fd > 2 && (strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/sys/fs/cgroup/")) {
			continue // the Go runtime's own poller, and its look at its quota
		}
		if fd > 2 {
			say(line{Try: fmt.Sprintf("descriptor %d", fd), Got: "reached", Note: to})
		}
		for _, way := range []string{"..", ".", a["secret"], "id_ed25519"} {
			if filepath.IsAbs(way) {
				way = "../../../../../.." + way
			}
			try(fmt.Sprintf("openat(%d, %q)", fd, way), func() error { return closing(unix.Openat(fd, way, unix.O_RDONLY, 0)) })
		}
		if fd > 2 {
			try(fmt.Sprintf("fchdir(%d)", fd), func() error { return unix.Fchdir(fd) })
		}
	}
}

// writeFiles makes the files that the list names, one a line; "=" leads to
// the text of all.
func writeFiles(a args) {
	list, err := os.ReadFile(a["list"])
	must(err)
	for path := range strings.Lines(string(list)) {
		path = strings.TrimSuffix(path, "\n")
		try(path, func() error {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			return os.WriteFile(path, []byte(a["text"]), 0o755)
		})
	}
}

func devices(args) {
	for _, at := range []string{"dev-node", "/tmp/dev-node", "/dev/dev-node", "/dev/shm/dev-node"} {
		for _, d := range []struct {
			name         string
			kind         uint32
			major, minor uint32
		}{{"mem", unix.S_IFCHR, 1, 1}, {"null", unix.S_IFCHR, 1, 3}, {"disk", unix.S_IFBLK, 254, 0}} {
			path := at + "-" + d.name
			try(d.name+" at "+at, func() error { return unix.Mknod(path, d.kind|0o600, int(unix.Mkdev(d.major, d.minor))) })
			if d.name != "null" {
				try("open of "+d.name+" at "+at, func() error { return closing(unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)) })
			}
		}
	}
	try("whiteout in the workspace", func() error { return unix.Mknod("whiteout", unix.S_IFCHR, 0) })
	for _, dev := range []string{"/dev/mem", "/dev/kmsg", "/dev/port", "/dev/kvm", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/fuse", "/dev/loop0", "/dev/loop-control", "/dev/vhost-net", "/dev/net/tun", "/dev/snapshot", "/dev/uinput", "/dev/cuse", "/dev/console", "/dev/tty0"} {
		try("open "+dev, func() error { return closing(unix.Open(dev, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)) })
	}
}

// setuid is run as a file that is set-user-ID root; it says what that gave.
func setuid(a args) {
	if a["as"] != "" {
		try("effective root by a set-user-ID file", func() error { return refuseUnless(os.Geteuid() == 0 && os.Getuid() != 0) })
		status, err := os.ReadFile("/proc/self/status")
		must(err)
		for _, set := range []string{"CapEff", "CapPrm"} {
			try("capabilities in "+set, func() error {
				for l := range strings.Lines(string(status)) {
					if name, v, _ := strings.Cut(l, ":"); name == set {
						note("%s", strings.TrimSpace(v))
						return refuseUnless(strings.Trim(v, "\t\n0") != "")
					}
				}
				return errRefused
			})
		}
		try("read what only root may", func() error { return read(a["secret"]) })
		return
	}
	try("another user", func() error { return unix.Setresuid(12345, 12345, 12345) })
	try("another group", func() error { return unix.Setresgid(12345, 12345, 12345) })
	try("supplementary groups", func() error { return unix.Setgroups([]int{12345}) })
	try("file capabilities", func() error {
		must(os.WriteFile("capable", []byte("#!/bin/true\n"), 0o755))
		v := []byte{1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0}
		return unix.Setxattr("capable", "security.capability", v, 0)
	})
	// What it can do to its own file; the test looks at what was committed.
	must(os.WriteFile("own-setuid", []byte("#!/bin/sh\n"), 0o755))
	try("set-user-ID bit on an own file", func() error { return os.Chmod("own-setuid", 0o6755|os.ModeSetuid|os.ModeSetgid) })
}

// wander leaves the working directory by every way it knows.
func wander(a args) {
	for _, dir := range []string{a["outside"], a["home"], filepath.Dir(a["secret"])} {
		try("chdir to "+dir, func() error { return os.Chdir(dir) })
		try("list "+dir, func() error {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				// What leads to the workspace and the program may be there.
				if full := filepath.Join(dir, e.Name()); !strings.HasPrefix(a["workspace"], full) && !strings.HasPrefix(a["bin"], full) {
					note("%s", full)
					return nil
				}
			}
			return errRefused
		})
		try("write in "+dir, func() error { return os.WriteFile(dir+"/wandered", nil, 0o600) })
	}
	must(os.Chdir(a["workspace"]))
	try("write above the workspace", func() error { return os.WriteFile("../wandered", nil, 0o600) })
	try("read above the workspace", func() error { return read(a["relative"]) })
	for range 40 {
		must(os.Chdir(".."))
	}
	try("read from the root by climbing", func() error { return read(strings.TrimPrefix(a["secret"], "/")) })
}

// stores tries what Cordon keeps.
func stores(a args) {
	for _, name := range []string{"state", "db", "config", "transactions"} {
		path := a[name]
		try("look at "+name, func() error { _, err := os.Lstat(path); return err })
		try("read "+name, func() error {
			if entries, err := os.ReadDir(path); err == nil {
				return refuseUnless(len(entries) > 0)
			}
			return read(path)
		})
		try("write to "+name, func() error {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				return os.WriteFile(path+"/planted", nil, 0o600)
			}
			return closing(unix.Open(path, unix.O_WRONLY, 0))
		})
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(err)
	try("where the stores are, in mountinfo", func() error {
		for _, name := range []string{"state", "transactions"} {
			if strings.Contains(string(mounts), a[name]+"/") {
				return nil
			}
		}
		return errRefused
	})
}
