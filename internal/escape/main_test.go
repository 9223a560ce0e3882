//go:build integration && linux

package escape

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cordon-sandbox/cordon/internal/testimage"
)

// built is what TestMain made: everybody may read it.
var built struct{ dir, cordon, attack string }

func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "escape:", err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (int, error) {
	syscall.Umask(0o022)
	dir, err := os.MkdirTemp(os.Getenv("CORDON_ESCAPE_DIR"), "cordon-escape-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return 1, err
	}
	built.dir, built.cordon, built.attack = dir, filepath.Join(dir, "cordon"), filepath.Join(dir, "bin", "attack")
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return 1, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	toBuild := map[string]string{built.cordon: "../../cmd/cordon", built.attack: "./attack"}
	if released := os.Getenv("CORDON_ESCAPE_CORDON"); released != "" {
		delete(toBuild, built.cordon)
		built.cordon = released
	}
	for out, pkg := range toBuild {
		cmd := exec.Command("go", "build", "-trimpath", "-o", out, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "readable"), []byte("may be read\n"), 0o644); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// TestEscape is the table against every runtime.
func TestEscape(t *testing.T) {
	for _, runtime := range []string{"native", "docker", "gvisor"} {
		t.Run(runtime, func(t *testing.T) { table(t, runtime, nil) })
	}
}

// TestEscapeAsUser is the table for a user who is not root: other walls are
// built for one.
func TestEscapeAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not started as root: TestEscape is this test")
	}
	const somebody = 29876 // no account has it
	t.Run("native", func(t *testing.T) { table(t, "native", &syscall.Credential{Uid: somebody, Gid: somebody}) })
}

func table(t *testing.T, runtime string, user *syscall.Credential) {
	under := needRuntime(t, runtime, user)
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%02d %s", k.number, k.name), func(t *testing.T) {
			if why := k.not[runtime]; why != "" {
				t.Skipf("does not apply to %s: %s", runtime, why)
			}
			k.run(t, newPlace(t, under))
		})
	}
}

// underTest is a runtime, and what cordon is to be told for it.
type underTest struct {
	runtime    string
	user       *syscall.Credential
	env, flags []string
	// platform is what gVisor found to be its best on this machine, which
	// takes it seconds and which it keeps in this file.
	platform []byte
}

const platformFile = "/cordon/gvisor/platform"

// needRuntime skips where cordon itself says that it cannot use the runtime.
func needRuntime(t *testing.T, runtime string, user *syscall.Credential) underTest {
	t.Helper()
	under := underTest{runtime: runtime, user: user}
	r := tryRuntime(t, under)
	if r.code != 0 && runtime == "docker" && os.Geteuid() == 0 && !strings.Contains(r.stderr, "not built") {
		if withEngine, err := engine(t, under); err != nil {
			t.Logf("there is no engine, and none can be started: %v", err)
		} else {
			under = withEngine
			r = tryRuntime(t, under)
		}
	}
	if r.code == 0 {
		under.platform, _ = os.ReadFile(r.state + platformFile) // of gvisor only
		return under
	}
	if slices.Contains(strings.Split(os.Getenv("CORDON_ESCAPE_REQUIRE"), ","), runtime) {
		t.Fatalf("runtime %s is required, but cordon run -- true ended with %d: %s", runtime, r.code, r.stderr)
	}
	t.Skipf("cordon cannot use %s here: exit %d: %s", runtime, r.code, r.stderr)
	return under
}

func tryRuntime(t *testing.T, under underTest) *result {
	t.Helper()
	p := newPlace(t, under)
	r := p.cordon(invocation{command: []string{"true"}, timeout: time.Minute})
	r.state = p.state
	return r
}

// engine is a Docker engine, of the test's own where there is none, with an
// image of this machine's programs.
func engine(t *testing.T, under underTest) (underTest, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := testimage.StartEngine(ctx)
	if err != nil {
		return under, err
	}
	t.Cleanup(func() { check(t, e.Stop()) })
	if err := e.Import(ctx, ""); err != nil {
		return under, err
	}
	under.env, under.flags = []string{"DOCKER_HOST=" + e.Host}, []string{"--image", testimage.Image}
	return under, nil
}

// kind is one of the forty.
type kind struct {
	number int
	name   string
	// not says why the kind is nothing for a runtime.
	not map[string]string
	run func(t *testing.T, p *place)
}

var kinds = slices.Concat(fileKinds, gitKinds, kernelKinds, networkKinds, lifeKinds, treeKinds)

func TestTheTableIsWhole(t *testing.T) {
	for i := range 40 {
		n := 0
		for _, k := range kinds {
			if k.number == i+1 && k.run != nil && k.name != "" {
				n++
			}
		}
		if n != 1 {
			t.Errorf("kind %d is in the table %d times", i+1, n)
		}
	}
	if len(kinds) != 40 {
		t.Errorf("%d kinds", len(kinds))
	}
}
