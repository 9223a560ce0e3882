//go:build integration

package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/runtimetest"
	"github.com/cordon-sandbox/cordon/internal/testimage"
)

// suite names a platform so that not every test tries KVM.
var suite = runtimetest.Suite{
	New: func(dir string) (sandbox.Runtime, error) {
		return New(Config{StateDir: dir, Platform: "ptrace"})
	},
	KillRun: func(ctx context.Context, r sandbox.Runtime, id string) (int, error) {
		return r.(*Runtime).KillRun(ctx, id)
	},
	Marks:     func(dir, _ string) string { return dir },
	OwnKernel: true,
}

func init() { asProgram = func() { runtimetest.Main(suite) } }

func TestTheContractOfARuntime(t *testing.T) { suite.Run(t) }

func BenchmarkRuns(b *testing.B) { suite.Bench(b) }

func TestWhatIsWrittenToDevCounts(t *testing.T) {
	s := runtimetest.Shell("head -c 40000000 /dev/zero >/dev/x; sleep 30")
	s.Mounts = []sandbox.Mount{{Source: t.TempDir(), Target: "/ws", Access: sandbox.ReadWrite}} // root's, so it runs as root
	s.Caps = sandbox.Caps{DiskBytes: 8 << 20, Wall: 20 * time.Second}
	p, err := newRuntime(t).Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(); err != nil || !errors.Is(r.Cause, sandbox.ErrDisk) {
		t.Errorf("%+v, %v", r, err)
	}
}

func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	r, err := New(Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestProbeTriesEachControl(t *testing.T) {
	report := newRuntime(t).Probe(t.Context())
	if !report.Available {
		t.Fatalf("%+v", report)
	}
	for _, h := range report.Controls {
		t.Log(h)
		if (h.State == sandbox.Enforced) == (h.Control == sandbox.Landlock) {
			t.Errorf("%+v", h)
		}
	}
}

func TestARootFileSystemOfOnesOwnIsShownAndLeftAsItIs(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := testimage.Rootfs(root, "sh", "cat", "ls"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/etc/mine", []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := newRuntime(t)
	s := runtimetest.Shell("cat /etc/mine; echo x >/etc/mine; echo x >/x; cat /m/mine")
	s.Rootfs = root
	s.Mounts = []sandbox.Mount{{Source: root + "/etc", Target: "/m"}}
	p, err := r.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(root + "/m"); err == nil {
		t.Error("a place for the mount was made in it")
	}
	if got, _ := os.ReadFile(root + "/etc/mine"); string(got) != "mine\n" {
		t.Errorf("it was changed: %q", got)
	}
}
