package native

import (
	"os/exec"
	"testing"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
)

// BenchmarkTrue is a whole sandbox around /bin/true, from Start to Wait.
func BenchmarkTrue(b *testing.B) {
	r, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		p, err := r.Start(b.Context(), sandbox.Spec{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		if res, err := p.Wait(); err != nil || res.ExitCode != 0 {
			b.Fatal(res, err)
		}
	}
}

// BenchmarkBubblewrap is the peer: the same namespaces, a private root, a
// proc and a dev, but no cgroup, Landlock or seccomp.
func BenchmarkBubblewrap(b *testing.B) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		b.Skip("bwrap is not installed")
	}
	b.ReportAllocs()
	for b.Loop() {
		cmd := exec.Command(bwrap, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
			"--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatal(err, string(out))
		}
	}
}
