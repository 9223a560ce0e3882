package testimage

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

func TestARootHoldsItsShellAndTheLibrariesOfThat(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("programs of " + runtime.GOOS + " are not ELF")
	}
	dir := filepath.Join(t.TempDir(), "root")
	if err := Rootfs(dir, "sh", "cat", "no-such-program"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"usr/bin/sh", "usr/bin/cat", "bin/sh", "etc/passwd", "proc", "tmp"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "usr/bin/no-such-program")); err == nil {
		t.Error("a program that is nowhere was found")
	}
	if os.Geteuid() != 0 {
		return // who is not root cannot enter it
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(chroot, dir, "/bin/sh", "-c", "echo hello | cat").CombinedOutput(); err != nil || string(out) != "hello\n" {
		t.Errorf("%v: %s", err, out)
	}
}
