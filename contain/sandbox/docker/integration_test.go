//go:build integration && linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/runtimetest"
	"github.com/cordon-sandbox/cordon/internal/testimage"
)

// hostEnv tells a supervisor that is to be killed where the engine is.
const hostEnv = "CORDON_TEST_ENGINE"

var suite = runtimetest.Suite{
	New: func(string) (sandbox.Runtime, error) {
		return New(Config{Host: os.Getenv(hostEnv), Image: testimage.Image})
	},
	KillRun: func(ctx context.Context, r sandbox.Runtime, id string) (int, error) {
		return r.(*Runtime).KillRun(ctx, id)
	},
	Marks: func(_, number string) string { return number },
}

func run(m *testing.M) int {
	runtimetest.Main(suite)
	if _, err := exec.LookPath("dockerd"); err != nil {
		fmt.Fprintln(os.Stderr, "no dockerd (Debian: apt-get install docker.io):", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	engine, err := testimage.StartEngine(ctx)
	if err == nil {
		err = errors.Join(engine.Import(ctx, ""), os.Setenv(hostEnv, engine.Host))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := engine.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	r, err := New(Config{Host: os.Getenv(hostEnv), Image: testimage.Image})
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

func TestTheContractOfARuntime(t *testing.T) { suite.Run(t) }

func BenchmarkRuns(b *testing.B) { suite.Bench(b) }

func TestAnImageThatIsMissingIsNamedWithTheWayToGetIt(t *testing.T) {
	r := newRuntime(t)
	s := runtimetest.Shell("true")
	s.Image = "no-such-image:1"
	_, err := r.Start(t.Context(), s)
	var u *sandbox.UnavailableError
	if !errors.As(err, &u) || !strings.Contains(u.Fix, "docker pull no-such-image:1") {
		t.Errorf("error %v", err)
	}
}

func TestProbeTriesEachControl(t *testing.T) {
	report := newRuntime(t).Probe(t.Context())
	if !report.Available {
		t.Fatalf("%+v", report)
	}
	absent := map[sandbox.Control]bool{sandbox.UserNS: true, sandbox.KernelWall: true}
	for _, h := range report.Controls {
		t.Log(h)
		if (h.State == sandbox.Enforced) == absent[h.Control] && h.Control != sandbox.Landlock {
			t.Errorf("%+v", h)
		}
	}
}

func TestNoContainerOrVolumeIsLeft(t *testing.T) {
	host := "--host=" + os.Getenv(hostEnv)
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ps", "-aq"}, {"volume", "ls", "-q"}} {
		if out, err := exec.Command(docker, append([]string{host}, args...)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
}

func TestTheSocketOfTheEngineIsNeverShown(t *testing.T) {
	r := newRuntime(t)
	for _, source := range []string{"/", strings.TrimPrefix(os.Getenv(hostEnv), "unix://")} {
		s := runtimetest.Shell("true")
		s.Mounts = []sandbox.Mount{{Source: source, Target: "/m"}}
		if _, err := r.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "socket") {
			t.Errorf("%s: %v", source, err)
		}
	}
}
