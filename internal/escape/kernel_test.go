//go:build integration && linux

package escape

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var kernelKinds = []kind{
	{17, "no new namespace, and none is entered", nil, noNamespaces},
	{18, "no mount of any kind", nil, noMounts},
	{19, "what the host mounts later is not seen", nil, laterMounts},
	{20, "no process can be looked into", nil, lookInto},
	{21, "no io_uring", nil, noIOURing},
	{22, "no keyrings, bpf, perf events, userfaultfd, modules, handles", nil, noKeys},
	{23, "programs from memory and by the loader are held too", nil, memoryPrograms},
	{24, "foreign system calls are killed", nil, foreignCalls},
	{25, "no input can be pushed into the host's terminal", nil, terminals},
	{26, "the kernel cannot be steered", nil, steered},
	{27, "no cgroup can be written", nil, noCgroups},
	{28, "no signal reaches a process of the host", nil, noSignals},
}

// alone are the namespaces in which an attack without walls does no harm.
const alone = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// harmless are they for the place's user, who needs a namespace of users too.
func (p *place) harmless(more invocation) invocation {
	more.unshare |= alone
	more.root = true
	if os.Geteuid() != 0 {
		more.unshare |= unix.CLONE_NEWUSER
	}
	return more
}

func noNamespaces(t *testing.T, p *place) {
	attack := []string{"namespaces"}
	p.cordon(invocation{attack: attack}).ended(0).refused(answers{
		"unshare *": "EPERM ENOSYS", "clone *": "EPERM ENOSYS", "clone3 *": "EPERM ENOSYS",
		"setns to *": "EPERM ENOSYS EACCES ENOENT", "setns by pidfd": "EPERM ENOSYS",
	})
	p.bare(p.harmless(invocation{attack: attack})).reached("unshare mount", "clone mount", "clone3 mount", "unshare net", "clone user", "clone3 user", "setns to the own uts namespace")
}

func noMounts(t *testing.T, p *place) {
	attack := []string{"mounts", "dir=place"}
	p.dir(0o755, p.workspace+"/place")
	p.cordon(invocation{attack: attack}).ended(0).refused(answers{"*": "EPERM ENOSYS EACCES"})
	bare := p.bare(p.harmless(invocation{attack: []string{"mounts", "dir=/tmp"}}))
	bare.reached("mount", "bind", "umount", "open_tree", "fsopen", "remount of the root", "propagation")
	bare.saw()
}

// laterMounts mounts while a run goes on, in a mount namespace that only this
// test and the run's own supervisor are in; docker's daemon is in another, so
// for docker it is the host's.
func laterMounts(t *testing.T, p *place) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount on the host while a run goes on")
	}
	if p.runtime != "docker" {
		runtime.LockOSThread() // and never unlocked: the thread ends with the test
		check(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
		check(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	}
	// Where mounts spread by themselves, they spread as far as they can.
	check(t, unix.Mount(p.base, p.base, "", unix.MS_BIND, ""))
	defer func() { check(t, unix.Unmount(p.base, unix.MNT_DETACH)) }()
	check(t, unix.Mount("", p.base, "", unix.MS_SHARED, ""))
	for _, at := range []string{p.workspace + "/later", p.home + "/bin"} {
		p.dir(0o755, at)
		for _, bare := range []bool{true, false} {
			run := p.start(invocation{attack: []string{"later", "file=" + at + "/appeared"}, flags: []string{"--read", p.home + "/bin"}}, bare)
			run.await("ready")
			check(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
			p.file(at+"/appeared", "later", 0o644)
			r := run.proceed(t).ended(0)
			check(t, unix.Unmount(at, unix.MNT_DETACH))
			if bare {
				r.reached("what was mounted later", "the mount in mountinfo")
				continue
			}
			if got := r.got("what was mounted later"); got == "reached" || got == "" {
				t.Errorf("what was mounted on %s later: %q", at, got)
			}
		}
	}
}

func lookInto(t *testing.T, p *place) {
	pid, _, _ := p.hostProcess()
	attack := []string{"look-into", fmt.Sprint("pid=", pid)}
	p.cordon(invocation{attack: attack}).ended(0).refused(answers{
		"ptrace of *": "EPERM ENOSYS ESRCH", "process_vm_readv of *": "EPERM ENOSYS ESRCH", "process_vm_writev of *": "EPERM ENOSYS ESRCH",
		"pidfd_getfd of *": "EPERM ENOSYS ESRCH", "memory of a child": "EPERM EACCES reached", // its own, by an ordinary open
	})
	p.bare(invocation{attack: attack}).reached("ptrace of a child", "process_vm_readv of a child", "pidfd_getfd of a child", "ptrace of a process of the host")
}

func noIOURing(t *testing.T, p *place) {
	p.cordon(invocation{attack: []string{"io_uring"}}).ended(0).refused(answers{"io_uring_*": "ENOSYS EPERM"})
	bare := p.bare(invocation{attack: []string{"io_uring"}, root: true})
	if bare.got("io_uring_setup") == "reached" {
		bare.reached("io_uring_enter", "io_uring_register")
		return
	}
	t.Logf("this kernel has none anyhow: %s", bare.stdout)
}

func noKeys(t *testing.T, p *place) {
	p.cordon(invocation{attack: []string{"keys"}}).ended(0).refused(answers{"*": "EPERM ENOSYS"})
	bare := p.bare(p.harmless(invocation{attack: []string{"keys"}}))
	bare.reached("bpf", "perf_event_open", "userfaultfd")
	bare.saw()
}

func memoryPrograms(t *testing.T, p *place) {
	p.dir(0o755, p.workspace+"/place")
	attack := []string{"memfd", "dir=place", "secret=" + p.secret, "outside=" + p.outside}
	r := p.cordon(invocation{attack: attack}).ended(0)
	r.refused(answers{"memfd: mount": "EPERM EACCES ENOSYS", "a file of its own: mount": "EPERM EACCES ENOSYS"})
	if strings.Contains(r.stdout, p.word) {
		t.Error("the secret was printed")
	}
	landed(t, p.outside, 1)
	bare := p.bare(p.harmless(invocation{attack: attack}))
	bare.reached("memfd: mount", "a file of its own: mount")
	if loaders, err := filepath.Glob("/lib*/ld-linux*"); err == nil && len(loaders) > 0 {
		bare.reached("a secret by " + filepath.Base(loaders[0]))
	}
	check(t, os.RemoveAll(p.outside+"/by-loader"))
}

func foreignCalls(t *testing.T, p *place) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only amd64 has foreign system calls")
	}
	for _, attack := range []string{"i386", "x32"} {
		r := p.cordon(invocation{attack: []string{attack}, flags: []string{"--timeout", "5s"}})
		switch {
		case p.runtime == "gvisor": // its own kernel has none of these calls, and may end or hang the program
			if strings.Contains(r.stdout, "reached") {
				t.Errorf("%s: it was answered\n%s", attack, r.text())
			}
		case r.code != 128+int(unix.SIGSYS) || len(r.lines) > 0:
			t.Errorf("%s: it was not killed\n%s", attack, r.text())
		}
		bare := p.bare(invocation{attack: []string{attack}})
		if attack == "i386" && bare.got("int 0x80") != "reached" {
			t.Logf("this kernel has no i386 calls: %s", bare.text())
		}
		if bare.code == 128+int(unix.SIGSYS) || len(bare.lines) == 0 && attack == "x32" {
			t.Errorf("the attack proves nothing\n%s", bare.text())
		}
	}
}

// terminal is a terminal of the host: what was pushed into it can be read
// from the slave.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	check(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	check(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	check(t, err)
	t.Cleanup(func() { master.Close(); slave.Close() })
	return master, slave
}

// pending says what a program of the host would read from the terminal.
func pending(t *testing.T, slave *os.File) string {
	t.Helper()
	// Without lines, so that a single byte can be read, and without waiting.
	term, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	check(t, err)
	term.Lflag &^= unix.ICANON | unix.ECHO
	term.Cc[unix.VMIN], term.Cc[unix.VTIME] = 0, 0
	check(t, unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, term))
	buf := make([]byte, 4096)
	n, err := unix.Read(int(slave.Fd()), buf)
	check(t, err)
	return string(buf[:n])
}

func terminals(t *testing.T, p *place) {
	run := func(t *testing.T, p *place, bare bool) (*result, string) {
		master, slave := terminal(t)
		ctx, cancel := (&invocation{}).context()
		defer cancel()
		i := invocation{attack: []string{"terminal"}}
		cmd := p.command(ctx, i)
		if bare {
			cmd = p.process(ctx, i, []string{built.attack, "terminal"})
			cmd.SysProcAttr.Credential = nil
		}
		errs, err := os.CreateTemp(p.base, "copy-")
		check(t, err)
		defer os.Remove(errs.Name())
		defer errs.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, errs
		cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, true, 0
		if p.user != nil {
			check(t, os.Chown(slave.Name(), int(p.user.Uid), -1))
		}
		printed := make(chan string)
		go func() {
			text, _ := io.ReadAll(master) // ends with EIO or when it is closed
			printed <- string(text)
		}()
		check(t, cmd.Start())
		err = cmd.Wait()
		left := pending(t, slave)
		slave.Close()
		var out string
		select {
		case out = <-printed:
		case <-time.After(20 * time.Second):
			t.Fatal("the terminal did not end")
		}
		text, readErr := os.ReadFile(errs.Name())
		check(t, readErr)
		if cmd.ProcessState.ExitCode() != 0 {
			t.Fatalf("%v\n%s\n%s", err, out, text)
		}
		return p.result("on a terminal", 0, strings.ReplaceAll(out, "\r\n", "\n"), string(text)), left
	}
	t.Run("on a terminal", func(t *testing.T) {
		p := p.in(t)
		r, left := run(t, p, false)
		r.refused(answers{"TIOCSTI *": "EPERM ENOTTY EIO ENOSYS", "TIOCLINUX*": "EPERM ENOTTY EINVAL ENOSYS", "TIOCSCTTY*": "EPERM ENOTTY EBADF refused EINVAL", "open *": "ENOENT ENXIO EACCES EPERM EIO"})
		if left != "" {
			t.Errorf("the host's terminal would read %q", left)
		}
	})
	t.Run("without one", func(t *testing.T) {
		p := p.in(t)
		p.cordon(invocation{attack: []string{"terminal"}}).ended(0).
			refused(answers{"TIOCSTI *": "EPERM ENOTTY EBADF EIO ENOSYS", "TIOCSCTTY*": "EPERM ENOTTY EBADF EINVAL", "*": "EPERM ENOTTY ENOENT ENXIO EACCES EIO"})
	})
	if os.Geteuid() == 0 {
		t.Run("without walls", func(t *testing.T) {
			p := p.in(t)
			if r, left := run(t, p, true); left == "" {
				t.Errorf("the attack proves nothing: nothing was pushed\n%s", r.text())
			}
		})
	}
}

func steered(t *testing.T, p *place) {
	p.cordon(invocation{attack: []string{"steer"}}).ended(0).refused(answers{"write *": "EROFS ENOENT EACCES EPERM refused", "read *": "ENOENT EACCES EPERM refused"})
	if os.Geteuid() == 0 {
		bare := p.bare(invocation{attack: []string{"steer"}, root: true})
		bare.reached("write /proc/sys/kernel/core_pattern", "read /proc/kallsyms")
		bare.saw()
	}
}

func noCgroups(t *testing.T, p *place) {
	attack := []string{"cgroups", "name=" + p.id}
	p.cordon(invocation{attack: attack}).ended(0).refused(answers{
		"a group in *": "ENOENT EROFS EACCES EPERM", "write *": "ENOENT EROFS EACCES EPERM", "mount of *": "EPERM ENOSYS EACCES", "the host's name of the group": "refused ENOENT",
	})
	groups, err := filepath.Glob("/sys/fs/cgroup/*/" + p.id)
	check(t, err)
	if len(groups) > 0 {
		t.Errorf("groups were made on the host: %q", groups)
	}
	if os.Geteuid() == 0 {
		bare := p.bare(invocation{attack: attack, root: true, unshare: unix.CLONE_NEWNS})
		made, err := filepath.Glob("/sys/fs/cgroup/*/" + p.id)
		check(t, err)
		made = append(made, "/sys/fs/cgroup/"+p.id)
		for _, dir := range made {
			_ = os.Remove(dir) // the attack's own groups are empty
		}
		if !strings.Contains(bare.stdout, `"got":"reached"`) {
			t.Errorf("the attack proves nothing\n%s", bare.text())
		}
	}
}

func noSignals(t *testing.T, p *place) {
	pid, _, alive := p.hostProcess()
	attack := []string{"signals", fmt.Sprint("pid=", pid)}
	p.cordon(invocation{attack: append(attack, "all=1")}).ended(0).refused(answers{"kill *": "ESRCH", "its group": "ESRCH", "tgkill": "ESRCH", "by pidfd": "ESRCH EINVAL ENOSYS", "sigqueue": "ESRCH EPERM", "kill -1": "done", "prlimit": "ESRCH EPERM EINVAL", "priority": "ESRCH", "affinity": "ESRCH"})
	if !alive() {
		t.Error("the host's process was ended or stopped")
	}
	// The first that ends it leaves nothing to the others.
	p.bare(invocation{attack: attack}).reached(fmt.Sprintf("kill %d with signal 0", pid), fmt.Sprintf("kill %d with signal 15", pid))
}
