//go:build linux

package runtimetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack is what the test binary does inside.
func attack(what string) int {
	switch what {
	case "spin":
		for i := 0; ; i++ {
			runtime.KeepAlive(i)
		}
	case "hog":
		var hog [][]byte
		for range 2048 {
			block := make([]byte, 1<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			hog = append(hog, block)
		}
		runtime.KeepAlive(hog)
		fmt.Println("2 GB were had")
	case "unlinked":
		f, err := os.Create("/ws/f")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = os.Remove("/ws/f")
		block := make([]byte, 1<<20)
		for range 20 {
			if _, err := f.Write(block); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		time.Sleep(30 * time.Second)
	case "forkbomb":
		for {
			_, _, _ = syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
		}
	case "http":
		return overListeners()
	case "refused":
		c, err := net.Dial("tcp", "127.0.0.1:3128")
		if err == nil { // accepted by the first process, and ended
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			fmt.Println("refused")
		}
	case "wire":
		for _, p := range []string{"/proc/1/fd/0", "/proc/1/fd/1", "/proc/1/mem", "/proc/1/environ", "/proc/1/root/etc/passwd"} {
			if f, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
				fmt.Println(f.Name(), "can be opened")
			}
			if f, err := os.Open(p); err == nil && !strings.HasSuffix(p, "passwd") {
				if _, err := f.Read(make([]byte, 1)); err == nil {
					fmt.Println(p, "can be read")
				}
			}
		}
	case "walls":
		found := map[string]string{}
		for name, try := range walls {
			found[name] = try()
		}
		_ = json.NewEncoder(os.Stdout).Encode(found)
	}
	return 0
}

// overListeners talks with both listeners, at once and much, over its own
// connections.
func overListeners() int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	body := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	for i := range 20 {
		addr := fmt.Sprintf("127.0.0.1:%d", 3128+i%2)
		wg.Go(func() {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			r, err := c.Post("http://"+addr+"/", "text/plain", bytes.NewReader(body))
			if err == nil {
				var text []byte
				text, err = io.ReadAll(r.Body)
				if want := fmt.Sprintf("%s %d %s", addr, len(body), body); err == nil && string(text) != want {
					err = fmt.Errorf("%d bytes came back (want %d)", len(text), len(want))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	if _, err := net.DialTimeout("tcp", "192.0.2.1:80", time.Second); err == nil {
		errs = append(errs, errors.New("the network is there"))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

func refused(what string, err error) string {
	if err == nil {
		return what + " was not refused"
	}
	return ""
}

func join(found ...string) string { return strings.Join(strings.Fields(strings.Join(found, " ")), " ") }

func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

// walls return "" when they held, else what was reached.
var walls = map[string]func() string{
	"the links of PID 1 lead nowhere": func() string {
		for _, p := range []string{"/proc/1/exe", "/proc/1/mem"} {
			if f, err := os.Open(p); err == nil {
				if _, err := f.Read(make([]byte, 1)); err == nil && p != "/proc/1/exe" {
					return p + " can be read"
				}
			}
		}
		return ""
	},
	"no process of the host is to be seen": func() string {
		entries, _ := os.ReadDir("/proc")
		n := 0
		for _, d := range entries {
			if strings.Trim(d.Name(), "0123456789") == "" {
				n++
			}
		}
		if n != 2 {
			return fmt.Sprint(n, " processes")
		}
		return ""
	},
	"three descriptors": func() string {
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			if e.Name() > "2" && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/sys/fs/cgroup/") && to != "" { // but for Go's own
				return e.Name() + " is " + to
			}
		}
		return ""
	},
	"no device": func() string {
		return join(refused("mknod", unix.Mknod("/tmp/mem", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))),
			refused("mem", present("/dev/mem")), refused("kvm", present("/dev/kvm")), refused("disk", present("/dev/vda")),
			refused(devFile, os.WriteFile("/dev/x", nil, 0o600)))
	},
	"no new namespace": func() string {
		return join(refused("unshare", unix.Unshare(unix.CLONE_NEWUSER)), refused("unshare net", unix.Unshare(unix.CLONE_NEWNET)),
			refused("clone", call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))), refused("setns", unix.Setns(0, 0)))
	},
	"no mount": func() string {
		return join(refused("mount", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "")), refused("umount", unix.Unmount("/tmp", unix.MNT_DETACH)),
			refused("pivot_root", unix.PivotRoot("/tmp", "/tmp")), refused("chroot", unix.Chroot("/tmp")),
			refused("remount", unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "")))
	},
	"no tracing": func() string {
		return join(refused("ptrace", unix.PtraceAttach(1)), refused("process_vm_readv", call(unix.SYS_PROCESS_VM_READV, 1)),
			refused("pidfd_getfd", call(unix.SYS_PIDFD_GETFD, 0, 0, 0)))
	},
	"no odd system calls": func() string {
		var none uintptr
		for name, nr := range map[string]uintptr{
			"io_uring_setup": unix.SYS_IO_URING_SETUP, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY, "bpf": unix.SYS_BPF,
			"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD, "kexec_load": unix.SYS_KEXEC_LOAD,
			"init_module": unix.SYS_INIT_MODULE, "reboot": unix.SYS_REBOOT, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
		} {
			_, _, errno := syscall.Syscall6(nr, none, none, none, none, none, none)
			if errno != syscall.EPERM && errno != syscall.ENOSYS {
				return fmt.Sprint(name, " gave ", errno)
			}
		}
		return ""
	},
	"no odd sockets": func() string {
		for name, s := range map[string][3]int{
			"vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
			"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		} {
			if fd, err := unix.Socket(s[0], s[1], s[2]); err == nil {
				unix.Close(fd)
				return name
			}
		}
		return ""
	},
	"no terminal to push keys into": func() string {
		fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return ""
		}
		defer unix.Close(fd)
		c := byte('x')
		return join(refused("TIOCSTI", call(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))),
			refused("TIOCSTI by 64 bits", call(unix.SYS_IOCTL, uintptr(fd), 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))))
	},
	"the kernel cannot be steered": func() string {
		for _, p := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/sys/kernel/mm/transparent_hugepage/enabled",
			"/sys/fs/cgroup/memory/release_agent", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs"} {
			if f, err := os.OpenFile(p, os.O_WRONLY, 0); err == nil {
				if _, err := f.WriteString("0"); err == nil {
					return p + " was written"
				}
			}
		}
		return ""
	},
	"no socket of the host's services": func() string {
		for _, p := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"} {
			if present(p) == nil {
				return p
			}
		}
		return ""
	},
	"no secret of the host": func() string {
		return join(refused("shadow", readable("/etc/shadow")), refused("root's home", readable("/root/.ssh/id_rsa")))
	},
	"only loopback": func() string {
		text, _ := os.ReadFile("/proc/net/dev")
		if n := strings.Count(string(text), ":"); n != 1 {
			return fmt.Sprint(n, " devices")
		}
		for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80"} {
			if _, err := net.DialTimeout("tcp", to, time.Second); err == nil {
				return to
			}
		}
		return ""
	},
	"no gain by setuid": func() string { return refused("setuid", unix.Setresuid(12345, 12345, 12345)) },
	"no file outside": func() string {
		if m, _ := filepath.Glob("/home/*/.ssh/*"); len(m) > 0 {
			return m[0]
		}
		return ""
	},
}

func present(path string) error {
	_, err := os.Lstat(path)
	return err
}

func readable(path string) error {
	_, err := os.ReadFile(path)
	return err
}

const devFile = "file in /dev"

func (h harness) attacks(t *testing.T) {
	for _, writable := range []bool{false, true} { // as nobody, and as the owner of a workspace, who is root here
		s := attackSpec(t, "walls")
		if writable {
			s, _, _ = withOverlay(t, s)
		}
		if !h.OwnKernel {
			wire := s
			wire.Argv = []string{program, "wire"}
			if o := h.run(t, wire); o.Out != "" || o.ExitCode != 0 {
				t.Errorf("the first process can be reached: %d, %s%s", o.ExitCode, o.Out, o.Errs)
			}
			if writable {
				s, _, _ = withOverlay(t, attackSpec(t, "walls")) // an upper directory serves once
			}
		}
		o := h.run(t, s)
		var found map[string]string
		if err := json.Unmarshal([]byte(o.Out), &found); err != nil {
			t.Fatalf("the attacker ended with %d (%v): %s%s", o.ExitCode, o.Cause, o.Out, o.Errs)
		}
		for name := range walls {
			t.Run(fmt.Sprintf("%s, writable %v", name, writable), func(t *testing.T) {
				got, ran := found[name]
				if h.OwnKernel && writable {
					// Its /dev is its own memory, and root's, whom it runs as.
					got = strings.TrimSuffix(got, devFile+" was not refused")
				}
				if !ran || got != "" {
					t.Errorf("ran %v, reached: %s", ran, got)
				}
			})
		}
	}
}
