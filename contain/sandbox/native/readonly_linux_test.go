package native

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"golang.org/x/sys/unix"
)

// shownReadOnly is a directory of the host with a file and with a socket that
// somebody listens on.
func shownReadOnly(t *testing.T) (dir, socket string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "shown")
	if err := os.MkdirAll(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/sub/file", []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	socket = dir + "/sub/socket"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if c, err := net.Dial("unix", socket); err != nil {
		t.Fatal("nobody listens: ", err)
	} else {
		c.Close()
	}
	return dir, socket
}

func TestSocketsBelowAReadOnlyDirectoryAreNotTheHosts(t *testing.T) {
	r := newRuntime(t)
	dir, socket := shownReadOnly(t)
	s := attackSpec(t, "dial", socket)
	s.Mounts = append(s.Mounts, sandbox.Mount{Source: dir, Target: dir})
	if o := run1(t, r, s); o.out != "" || o.ExitCode != 0 {
		t.Errorf("%s%s, exit %d", o.out, o.errs, o.ExitCode)
	}
	s = shell("cat " + dir + "/sub/file; ls " + dir + "; echo x > " + dir + "/new || echo x > " + dir + "/sub/file")
	s.Mounts = []sandbox.Mount{{Source: dir, Target: dir}}
	if o := run1(t, r, s); o.out != "contentsub\n" || o.ExitCode == 0 || !strings.Contains(o.errs, "Read-only file system") {
		t.Errorf("%q %q, exit %d", o.out, o.errs, o.ExitCode)
	}
}

func TestASocketIsNotShown(t *testing.T) {
	r := newRuntime(t)
	_, socket := shownReadOnly(t)
	s := shell("true")
	s.Mounts = []sandbox.Mount{{Source: socket, Target: socket}}
	if _, err := r.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("Start = %v", err)
	}
}

// What no overlay can show is shown all the same, and the report says what
// that does not keep out.
func TestMountsBelowAReadOnlyDirectoryAreShown(t *testing.T) {
	r := newRuntime(t)
	if !(&builder{p: &plan{Root: r.root}}).mountedBelow("/dev") {
		t.Skip("nothing is mounted below /dev here")
	}
	s := shell("ls /shown/pts; test -c /shown/null && ! echo x > /shown/new")
	s.Mounts = []sandbox.Mount{{Source: "/dev", Target: "/shown"}}
	o := run1(t, r, s)
	if o.ExitCode != 0 || o.out == "" {
		t.Errorf("%q %q, exit %d", o.out, o.errs, o.ExitCode)
	}
	for _, h := range o.Controls {
		if h.Control == sandbox.PrivateFS && !strings.Contains(h.Note, "sockets below /shown") {
			t.Errorf("%+v", h)
		}
	}
}

func TestMountedBelow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		os.MkdirAll(dir+"/sub", 0o755), os.Mkdir(dir+"/a b", 0o755), unix.Mount("tmpfs", dir+"/a b", "tmpfs", 0, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = unix.Unmount(dir+"/a b", unix.MNT_DETACH) }()
	for path, want := range map[string]bool{dir: true, dir + "/a b": false, dir + "/sub": false, dir + "/a": false} {
		if got := (&builder{p: &plan{Root: "/nowhere"}}).mountedBelow(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	if (&builder{p: &plan{Root: dir}}).mountedBelow(dir) {
		t.Error("the root that is being built counts as the host's")
	}
}
