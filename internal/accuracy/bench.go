package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// bench is a built cordon, and a home and workspace that it is asked about.
type bench struct {
	root, binary    string
	workspace, home string
	corpora, cases  string
}

// newBench builds cordon and lays out the files. They stand below /var/tmp
// where it exists: in /tmp, every command of a corpus that tidies /tmp would
// count as one that deletes the home directory.
func newBench(ctx context.Context, getenv func(string) string) (*bench, error) {
	module, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	parent := "/var/tmp"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	root, err := os.MkdirTemp(parent, "cordon-accuracy-")
	if err != nil {
		return nil, err
	}
	b := &bench{
		root:      root,
		binary:    filepath.Join(root, "cordon"),
		home:      filepath.Join(root, "home", "dev"),
		workspace: filepath.Join(root, "home", "dev", "ws"),
		corpora:   or(getenv("CORDON_CORPORA"), filepath.Join(module, "..", "shared", "corpora")),
		cases:     or(getenv("CORDON_CASES"), filepath.Join(module, "..", "shared", "cases")),
	}
	if err := b.layOut(ctx, module); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (b *bench) close() { os.RemoveAll(b.root) }

func (b *bench) layOut(ctx context.Context, module string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "./cmd/cordon")
	build.Dir = module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build cordon: %w\n%s", err, out)
	}
	for path, text := range map[string]string{
		"ws/src/main.py": "print(1)\n", "ws/src/app.js": "console.log(1)\n", "ws/README.md": "# x\n",
		"ws/data/a.csv": "a,b\n1,2\n", "ws/tests/test_a.py": "def test(): pass\n", "ws/build/a.o": "", "ws/docs/a.md": "# a\n",
		"ws/.git/HEAD": "ref: refs/heads/main\n", "ws/.git/config": "[core]\n",
		".ssh/id_rsa": "KEY", ".aws/credentials": "[default]",
	} {
		if err := write(filepath.Join(b.home, path), text); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// decision is what the measures need of a line that cordon check writes.
type decision struct {
	ID       string    `json:"id"`
	Decision string    `json:"decision"`
	Killed   bool      `json:"killrun_triggered"`
	Findings []finding `json:"findings"`
}

type finding struct {
	Violation string `json:"violation_type"`
	Rule      string `json:"rule"`
	Decision  string `json:"decision"`
	Detail    string `json:"detail"`
}

// call is one line for cordon check.
type call struct {
	ID   string         `json:"id"`
	Tool string         `json:"tool"`
	Args map[string]any `json:"args"`
}

func encode(calls []call) ([][]byte, error) {
	lines := make([][]byte, len(calls))
	for i, c := range calls {
		var err error
		if lines[i], err = json.Marshal(c); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// batchTime is far more than a batch takes; past it cordon hangs.
const batchTime = 100 * time.Second

var errSlow = fmt.Errorf("no end after %s", batchTime)

// allowedHosts are what the measured run may reach beside nothing.
var allowedHosts = []string{"pypi.org", "files.pythonhosted.org", "rubygems.org", "github.com", "api.github.com", "static.crates.io"}

// decide has one cordon process decide on the lines, in the coding profile,
// enforced. It answers with as many decisions, in the same order.
func (b *bench) decide(ctx context.Context, profile, tier string, lines [][]byte) ([]decision, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	args := []string{"check", "--profile", profile, "--tier", tier, "--mode", "enforce",
		"--workspace", b.workspace, "--home", b.home, "--db", filepath.Join(b.root, "audit.db")}
	for _, h := range allowedHosts {
		args = append(args, "--allow-host", h)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, batchTime, errSlow)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Dir = b.workspace
	cmd.Env = append(os.Environ(), "HOME="+b.home)
	cmd.Stdin = bytes.NewReader(append(bytes.Join(lines, []byte{'\n'}), '\n'))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	// 3 and 4 say that the worst was restricted or blocked.
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !(errors.As(err, &exit) && (exit.ExitCode() == 3 || exit.ExitCode() == 4)) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("cordon check, %d calls from %.60q: %w\n%s", len(lines), lines[0], err, stderr.Bytes())
	}
	decisions, err := readDecisions(&out)
	if err != nil {
		return nil, err
	}
	if len(decisions) != len(lines) {
		return nil, fmt.Errorf("cordon check: %d decisions for %d calls\n%s", len(decisions), len(lines), stderr.Bytes())
	}
	return decisions, nil
}

func readDecisions(r io.Reader) ([]decision, error) {
	var decisions []decision
	d := json.NewDecoder(bufio.NewReader(r))
	for d.More() {
		var one decision
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("cordon check: unreadable decision: %w", err)
		}
		decisions = append(decisions, one)
	}
	return decisions, nil
}

// has reports whether a finding of the decision is as asked; "" is any.
func (d *decision) has(violation, outcome string) bool {
	for _, f := range d.Findings {
		if (violation == "" || f.Violation == violation) && (outcome == "" || f.Decision == outcome) {
			return true
		}
	}
	return false
}
