package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var kernelKinds = map[string]func(args){
	"namespaces": namespaces,
	"mounts":     mounts,
	"later":      later,
	"look-into":  lookInto,
	"io_uring":   ioURing,
	"keys":       keys,
	"memfd":      memfd,
	"one-mount":  func(a args) { try("mount", func() error { return unix.Mount("tmpfs", a["dir"], "tmpfs", 0, "") }) },
	"terminal":   terminal,
	"steer":      steer,
	"cgroups":    cgroups,
	"signals":    signals,
}

func init() { maps.Copy(kernelKinds, machineKinds) }

func namespaces(args) {
	flags := []struct {
		name string
		flag int
	}{
		{"user", unix.CLONE_NEWUSER}, {"mount", unix.CLONE_NEWNS}, {"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS}, {"cgroup", unix.CLONE_NEWCGROUP}, {"time", unix.CLONE_NEWTIME}, {"all with user", unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET},
	}
	for _, f := range flags {
		// In a process of its own each: one that succeeds changes the next.
		if f.flag&unix.CLONE_NEWTIME == 0 { // clone takes that bit for a signal
			try("clone "+f.name, func() error { return cloneWith(uintptr(f.flag)) })
		}
		try("clone3 "+f.name, func() error { return clone3With(uint64(f.flag)) })
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		try("setns to the "+ns+" namespace of PID 1", func() error { return setns("/proc/1/ns/" + ns) })
		try("setns to the own "+ns+" namespace", func() error { return setns("/proc/self/ns/" + ns) })
	}
	try("setns by pidfd", func() error {
		fd, err := unix.PidfdOpen(1, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, unix.CLONE_NEWNET)
	})
	for _, f := range flags { // last: this thread changes
		try("unshare "+f.name, func() error { return onThread(func() error { return unix.Unshare(f.flag) }) })
	}
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func setns(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return onThread(func() error { return unix.Setns(fd, 0) })
}

// cloneWith and clone3With make a child that ends at once: it must not come
// back into Go.
func cloneWith(flags uintptr) error {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	return child(pid, errno)
}

func clone3With(flags uint64) error {
	var a [11]uint64 // struct clone_args
	a[0], a[4] = flags, uint64(syscall.SIGCHLD)
	pid, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a), 0)
	return child(pid, errno)
}

func child(pid uintptr, errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	for pid == 0 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, _ = syscall.Wait4(int(pid), nil, 0, nil)
	return nil
}

// mounts: dir is a directory that may be mounted on where there are no walls.
func mounts(a args) {
	dir := a["dir"]
	must(os.MkdirAll(dir+"/other", 0o755))
	try("remount of the root", func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	try("remount of /usr", func() error { return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "") })
	try("propagation", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") })
	try("mount", func() error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") })
	must(os.MkdirAll(dir+"/other", 0o755))
	try("bind", func() error { return unix.Mount("/usr", dir+"/other", "", unix.MS_BIND, "") })
	try("umount of a mask", func() error { return unix.Unmount("/proc/sys", unix.MNT_DETACH) })
	try("umount", func() error { return unix.Unmount(dir, unix.MNT_DETACH) })
	must(os.MkdirAll(dir+"/other", 0o755))
	try("open_tree", func() error { return closing(unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)) })
	try("fsopen", func() error { return closing(unix.Fsopen("tmpfs", 0)) })
	try("fspick", func() error { return closing(unix.Fspick(unix.AT_FDCWD, "/", 0)) })
	try("move_mount", func() error { return unix.MoveMount(unix.AT_FDCWD, "/usr", unix.AT_FDCWD, dir+"/other", 0) })
	try("mount_setattr", func() error {
		return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	})
	try("proc", func() error { return unix.Mount("proc", dir+"/other", "proc", 0, "") })
	try("overlay", func() error {
		return unix.Mount("overlay", dir+"/other", "overlay", 0, "lowerdir=/usr:/etc")
	})
	try("pivot_root", func() error { return unix.PivotRoot(dir, dir+"/other") })
	try("chroot", func() error { return unix.Chroot(dir) })
}

// later looks at a directory when the test says so.
func later(a args) {
	await()
	try("what was mounted later", func() error { return read(a["file"]) })
	info, err := os.ReadFile("/proc/self/mountinfo")
	must(err)
	try("the mount in mountinfo", func() error { return refuseUnless(strings.Contains(string(info), filepath.Dir(a["file"])+" ")) })
}

// lookInto tries to reach into processes: one of its own, PID 1, and pid.
func lookInto(a args) {
	runtime.LockOSThread()
	sleeper := exec.Command("/proc/self/exe", "sleep")
	must(sleeper.Start())
	defer func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	}()
	targets := []struct {
		name string
		pid  int
	}{{"a child", sleeper.Process.Pid}, {"PID 1", 1}, {"a process of the host", number(a["pid"])}}
	for _, t := range targets {
		try("ptrace of "+t.name, func() error {
			err := unix.PtraceSeize(t.pid)
			if err == nil {
				_ = unix.PtraceDetach(t.pid)
			}
			return err
		})
		buf := make([]byte, 8)
		local := []unix.Iovec{{Base: &buf[0], Len: 8}}
		remote := []unix.RemoteIovec{{Base: 0x400000, Len: 8}} // where static programs begin
		try("process_vm_readv of "+t.name, func() error { _, err := unix.ProcessVMReadv(t.pid, local, remote, 0); return err })
		try("process_vm_writev of "+t.name, func() error {
			_, err := unix.ProcessVMWritev(t.pid, local, remote, 0)
			if err == unix.EFAULT {
				return nil // it got as far as the memory, which is code
			}
			return err
		})
		try("pidfd_getfd of "+t.name, func() error {
			fd, err := unix.PidfdOpen(t.pid, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			got, err := unix.PidfdGetfd(fd, 1, 0)
			return closing(got, err)
		})
		try("memory of "+t.name, func() error { return closing(unix.Open(fmt.Sprintf("/proc/%d/mem", t.pid), unix.O_RDWR, 0)) })
		try("kcmp of "+t.name, func() error { return call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(t.pid), 0) })
	}
}

func number(s string) int {
	n := 0
	_, _ = fmt.Sscan(s, &n)
	return n
}

func ioURing(args) {
	var params [120]byte
	try("io_uring_setup", func() error {
		fd, _, errno := syscall.RawSyscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)), 0)
		if errno != 0 {
			return errno
		}
		return closing(int(fd), nil)
	})
	try("io_uring_enter", func() error { return unlessBadFD(call(unix.SYS_IO_URING_ENTER, ^uintptr(0), 0, 0)) })
	try("io_uring_register", func() error { return unlessBadFD(call(unix.SYS_IO_URING_REGISTER, ^uintptr(0), 0, 0)) })
}

// unlessBadFD: the call was admitted and looked at its arguments.
func unlessBadFD(err error) error {
	if err == unix.EBADF || err == unix.EOPNOTSUPP || err == unix.EINVAL {
		return nil
	}
	return err
}

func keys(args) {
	try("keyctl", func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err })
	try("add_key", func() error {
		_, err := unix.AddKey("user", "cordon-attack", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	})
	try("request_key", func() error {
		_, err := unix.RequestKey("user", "cordon-attack", "", unix.KEY_SPEC_PROCESS_KEYRING)
		if err == unix.ENOKEY {
			return nil // it was looked for
		}
		return err
	})
	try("bpf", func() error {
		var attr [128]byte
		attr[0], attr[4], attr[8], attr[12] = 2, 4, 4, 1 // an array of one
		fd, _, errno := syscall.RawSyscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		if errno != 0 {
			return errno
		}
		return closing(int(fd), nil)
	})
	try("perf_event_open", func() error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
		return closing(unix.PerfEventOpen(&attr, 0, -1, -1, 0))
	})
	try("userfaultfd", func() error {
		fd, _, errno := syscall.RawSyscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
		if errno != 0 {
			return errno
		}
		return closing(int(fd), nil)
	})
	try("syslog", func() error { _, err := unix.Klogctl(3, make([]byte, 64)); return err })
	try("open_by_handle_at", func() error {
		root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(root)
		// Inode 2 is the root of many file systems.
		err = closing(unix.OpenByHandleAt(root, unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0}), unix.O_RDONLY))
		if err == unix.ESTALE {
			return nil // it was looked for
		}
		return err
	})
	for name, nr := range map[string]uintptr{"init_module": unix.SYS_FINIT_MODULE, "delete_module": unix.SYS_DELETE_MODULE, "kexec_load": unix.SYS_KEXEC_LOAD, "acct": unix.SYS_ACCT} {
		try(name, func() error {
			err := call(nr, ^uintptr(0), ^uintptr(0), 0)
			if err == unix.EBADF || err == unix.EINVAL || err == unix.EFAULT {
				return nil // it was let in as far as its arguments
			}
			return err
		})
	}
}

// memfd runs programs in ways that a rule about paths would not see.
func memfd(a args) {
	self, err := os.ReadFile("/proc/self/exe")
	must(err)
	fd, err := unix.MemfdCreate("x", 0)
	must(err)
	f := os.NewFile(uintptr(fd), "memfd")
	_, err = f.Write(self)
	must(err)
	inner := func(name string, cmd *exec.Cmd) {
		cmd.Args[0] = os.Args[0]
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil || len(out) == 0 {
			say(line{Try: name, Got: "not run", Note: fmt.Sprint(err)})
			return
		}
		for l := range strings.Lines(string(out)) {
			var text = strings.Replace(l, `"try":"`, `"try":"`+name+`: `, 1)
			os.Stdout.WriteString(text)
		}
	}
	inner("memfd", exec.Command(fmt.Sprintf("/proc/self/fd/%d", fd), "one-mount", "dir="+a["dir"]))
	must(os.WriteFile("copy", self, 0o755))
	inner("a file of its own", exec.Command("./copy", "one-mount", "dir="+a["dir"]))
	loaders, err := filepath.Glob("/lib*/ld-linux*")
	must(err)
	for _, l := range loaders {
		try("a secret by "+filepath.Base(l), func() error {
			out, err := exec.Command(l, "/bin/cat", a["secret"]).CombinedOutput()
			if strings.Contains(string(out), "No such file") || strings.Contains(string(out), "Permission denied") {
				return errRefused
			}
			note("%s", out)
			return err
		})
		try("outside by "+filepath.Base(l), func() error {
			return exec.Command(l, "/bin/cp", "/etc/hostname", a["outside"]+"/by-loader").Run()
		})
	}
}

// terminal tries to push input into the terminal that stdin is, or that it
// finds.
func terminal(args) {
	c := byte('!')
	var subcode byte = 2 // TIOCL_SETSEL and kin begin with a code
	for _, path := range []string{"/dev/stdin", "/dev/tty", "/dev/console", "/dev/tty1", "/dev/pts/0", "/dev/pts/1", "/dev/pts/ptmx"} {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			try("open "+path, func() error { return err })
			continue
		}
		try("TIOCSTI on "+path, func() error { return ioctl(fd, unix.TIOCSTI, unsafe.Pointer(&c)) })
		try("TIOCSTI by 64 bits on "+path, func() error { return ioctl(fd, 1<<32|unix.TIOCSTI, unsafe.Pointer(&c)) })
		try("TIOCLINUX on "+path, func() error { return ioctl(fd, 0x541c, unsafe.Pointer(&subcode)) })
		unix.Close(fd)
	}
	for fd := range 3 {
		try(fmt.Sprintf("TIOCSTI on %d", fd), func() error { return ioctl(fd, unix.TIOCSTI, unsafe.Pointer(&c)) })
		try(fmt.Sprintf("TIOCSCTTY on %d", fd), func() error {
			err := ioctl(fd, unix.TIOCSCTTY, nil)
			if err == nil {
				return errRefused // of a terminal of its own: the test looks at the host's
			}
			return err
		})
	}
}

func ioctl(fd int, nr uintptr, p unsafe.Pointer) error {
	if _, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), nr, uintptr(p)); errno != 0 {
		return errno
	}
	return nil
}

// steer writes back what is there, so that nothing changes where it can be
// written.
func steer(args) {
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/sysrq", "/proc/sys/fs/binfmt_misc/status", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/power/state", "/sys/module/printk/parameters/time", "/proc/irq/default_smp_affinity", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/profiling",
	} {
		try("write "+path, func() error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			return notNull(f)
		})
	}
	try("write /proc/sysrq-trigger", func() error {
		f, err := os.OpenFile("/proc/sysrq-trigger", os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return notNull(f)
	})
	for _, path := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/sys/kernel/debug", "/sys/kernel/security", "/sys/firmware", "/proc/acpi/wakeup", "/sys/devices/virtual/powercap"} {
		try("read "+path, func() error {
			if entries, err := os.ReadDir(path); err == nil {
				return refuseUnless(len(entries) > 0)
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := notNull(f); err != nil {
				return err
			}
			return read(path)
		})
	}
}

// notNull: /dev/null is what a file of the kernel is masked with.
func notNull(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	return refuseUnless(st.Mode&unix.S_IFMT != unix.S_IFCHR)
}

func cgroups(a args) {
	dirs, err := filepath.Glob("/sys/fs/cgroup/*")
	must(err)
	for _, dir := range append(dirs, "/sys/fs/cgroup") {
		try("a group in "+dir, func() error { return os.Mkdir(dir+"/"+a["name"], 0o755) })
		for _, file := range []string{"cgroup.procs", "tasks", "release_agent", "notify_on_release", "memory.max", "memory.limit_in_bytes", "pids.max", "devices.allow"} {
			path := filepath.Join(dir, file)
			try("write "+path, func() error { return closing(unix.Open(path, unix.O_WRONLY, 0)) })
		}
	}
	for _, data := range []string{"memory", "pids", "devices", "none,name=cordon"} {
		must(os.MkdirAll("cgroup-mount", 0o755))
		try("mount of cgroup "+data, func() error { return unix.Mount("cgroup", "cgroup-mount", "cgroup", 0, data) })
	}
	try("mount of cgroup2", func() error { return unix.Mount("cgroup2", "cgroup-mount", "cgroup2", 0, "") })
	// Its own path would say where on the host it runs.
	try("the host's name of the group", func() error { return holds("/proc/self/cgroup", "cordon-") })
}

// signals: pid is a process of the host.
func signals(a args) {
	pid := number(a["pid"])
	for _, s := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSTOP} {
		try(fmt.Sprintf("kill %d with signal %d", pid, int(s)), func() error { return unix.Kill(pid, s) })
	}
	try("its group", func() error { return unix.Kill(-pid, syscall.SIGTERM) })
	try("tgkill", func() error { return unix.Tgkill(pid, pid, syscall.SIGTERM) })
	try("by pidfd", func() error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, syscall.SIGTERM, nil, 0)
	})
	try("sigqueue", func() error {
		var info [128]byte
		return call(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(syscall.SIGTERM), uintptr(unsafe.Pointer(&info)))
	})
	try("prlimit", func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{}) })
	try("priority", func() error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) })
	try("affinity", func() error {
		var set unix.CPUSet
		return unix.SchedGetaffinity(pid, &set)
	})
	if a["all"] != "" {
		_ = unix.Kill(-1, syscall.SIGKILL) // it spares the one that calls
		say(line{Try: "kill -1", Got: "done"})
	}
}
