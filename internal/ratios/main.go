// Command ratios times whole processes: a command inside the walls of
// `cordon run` and the same one bare, or in another sandbox, in turn, and
// prints medians and their ratio.
//
// What it does not say: anything about a machine that is busy with something
// else. Both sides of a row suffer from it, the ratio less than the figures.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// row is one comparison.
type row struct {
	what         string
	ours, theirs []string
	aim          string
	dir          string // the workspace
	needs        string // a program without which the row makes no sense
}

func main() {
	rounds := flag.Int("rounds", 11, "how often each side is run")
	image := flag.String("image", "", "a local image of docker, to compare with docker run")
	only := flag.String("only", "", "rows that hold this text")
	flag.Parse()
	if err := run(os.Stdout, *rounds, *image, *only); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, rounds int, image, only string) error {
	dir, err := os.MkdirTemp("", "cordon-ratios-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cordon := filepath.Join(dir, "cordon")
	if err := command("", "go", "build", "-o", cordon, "./cmd/cordon").Run(); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	for _, d := range []string{"home", "state", "ws"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	os.Setenv("HOME", filepath.Join(dir, "home"))
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	rows, err := rowsIn(dir, cordon, image)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| What | inside | other | ratio | aim |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		if !strings.Contains(r.what, only) {
			continue
		}
		if _, err := exec.LookPath(r.needs); r.needs != "" && err != nil {
			fmt.Fprintf(out, "| %s | | | %s is not here | %s |\n", r.what, r.needs, r.aim)
			continue
		}
		ours, theirs, err := r.measure(rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %.2f | %s |\n", r.what, ours.Round(100*time.Microsecond), theirs.Round(100*time.Microsecond), float64(ours)/float64(theirs), r.aim)
	}
	return nil
}

func rowsIn(dir, cordon, image string) ([]row, error) {
	ws := filepath.Join(dir, "ws")
	repo, err := repository(filepath.Join(ws, "repo"))
	if err != nil {
		return nil, err
	}
	sources, err := programs(filepath.Join(ws, "c"))
	if err != nil {
		return nil, err
	}
	inside := func(flags ...string) []string { return append([]string{cordon, "run"}, flags...) }
	bwrap := []string{
		"bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "true",
	}
	cpu := []string{"python3", "-c", "s = 0\nfor i in range(20_000_000): s += i*i"}
	checkout := []string{"sh", "-c", "git checkout -q other && git checkout -q main"}
	build := []string{"sh", "-c", "for f in *.c; do gcc -O1 -c $f; done; rm -f *.o"}
	rows := []row{
		{what: "true, and bwrap with the same namespaces", ours: inside("--", "true"), theirs: bwrap, aim: "≤ 1.5", dir: ws, needs: "bwrap"},
		{what: "processor-bound work, and bare", ours: append(inside("--"), cpu...), theirs: cpu, aim: "≤ 1.02", dir: ws, needs: "python3"},
		{what: "git checkout of 2,000 files and back, and bare", ours: append(inside("--discard", "--"), checkout...), theirs: checkout, aim: "≤ 1.15", dir: repo, needs: "git"},
		{what: "compiling 60 files, and bare", ours: append(inside("--discard", "--"), build...), theirs: build, aim: "≤ 1.15", dir: sources, needs: "gcc"},
	}
	if image != "" {
		rows = append(rows, row{
			what: "true, and docker run", ours: inside("--", "true"), aim: "≤ 0.05", dir: ws, needs: "docker",
			theirs: []string{"docker", "run", "--rm", "--network", "none", image, "true"},
		})
	}
	return rows, nil
}

// repository has two branches of 2,000 files each, all different.
func repository(dir string) (string, error) {
	script := `set -e
git init -q -b main . && git config user.email a@example.com && git config user.name n && git config gc.auto 0
for d in $(seq 40); do mkdir -p d$d; for f in $(seq 50); do seq $d $((d+f*4)) > d$d/f$f; done; done
git add . && git commit -qm 1 && git checkout -qb other
for d in $(seq 40); do for f in $(seq 50); do seq $f $((d+f*4)) > d$d/f$f; done; done
git commit -qam 2 && git checkout -q main`
	return dir, inNew(dir, script)
}

func programs(dir string) (string, error) {
	return dir, inNew(dir, `for i in $(seq 60); do printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(int n) { int s = 0; while (n--) s += rand() %% 7; printf("%%d", s); return s; }\n' $i > f$i.c; done`)
}

func inNew(dir, script string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if out, err := command(dir, "sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func command(dir, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = dir
	return c
}

// measure runs both sides in turn, ours first in every other round.
func (r *row) measure(rounds int) (ours, theirs time.Duration, err error) {
	var a, b []time.Duration
	for i := range rounds + 1 {
		sides := []struct {
			argv []string
			into *[]time.Duration
		}{{r.ours, &a}, {r.theirs, &b}}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, s := range sides {
			began := time.Now()
			if out, err := command(r.dir, s.argv[0], s.argv[1:]...).CombinedOutput(); err != nil {
				return 0, 0, fmt.Errorf("%q: %w: %s", s.argv, err, out)
			}
			if i > 0 { // the first round warms caches
				*s.into = append(*s.into, time.Since(began))
			}
		}
	}
	return median(a), median(b), nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
