package ecosystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// errNoTool says that a program is not on the user's PATH.
var errNoTool = errors.New("not found")

// program finds a program on the user's PATH, outside every workspace, that
// nobody else can change.
func (f *finder) program(name string) (string, error) {
	for _, dir := range f.r.path {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if f.r.inWorkspace(path) {
			continue
		}
		if info.Mode()&0o002 != 0 {
			return "", fmt.Errorf("%s can be written by everybody, so it is not started", path)
		}
		return path, nil
	}
	for _, dir := range filepath.SplitList(f.env("PATH")) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil && f.r.inWorkspace(path) {
			return "", fmt.Errorf("%s lies in a workspace, so it is not started", path)
		}
	}
	return "", errNoTool
}

// ask runs a tool and returns what it prints. vars are the variables of the
// user's environment that it gets beside PATH and HOME; extra are set as they
// are.
func (f *finder) ask(name string, args, vars, extra []string) ([]byte, error) {
	path, err := f.program(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, f.r.c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	// At the top of the file system no project's configuration applies, and
	// only the system's owner could put one there.
	cmd.Dir = string(filepath.Separator)
	home := f.home()
	if home == "" {
		home = cmd.Dir
	}
	cmd.Env = append([]string{"PATH=" + strings.Join(f.r.path, string(filepath.ListSeparator)), "HOME=" + home, "LC_ALL=C", "NO_COLOR=1"}, extra...)
	for _, v := range vars {
		if value := f.env(v); value != "" && !f.pathInWorkspace(value) {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	out := &bounded{left: maxOutput}
	cmd.Stdout = out
	cmd.WaitDelay = time.Second
	killGroup(cmd)
	err = cmd.Run()
	switch {
	case f.ctx.Err() != nil:
		return nil, errors.New("it was interrupted")
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it did not answer within %v", f.r.c.Timeout)
	case out.left < 0:
		return nil, fmt.Errorf("it printed more than %d bytes", maxOutput)
	case err != nil:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("it failed (%s)", exit.ProcessState) // what it printed may hold secrets
		}
		return nil, reason(err)
	}
	return out.b.Bytes(), nil
}

// pathInWorkspace reports whether a variable's value is a path that the
// agent can write.
func (f *finder) pathInWorkspace(value string) bool {
	return filepath.IsAbs(value) && f.r.inWorkspace(value)
}

// leadsInside reports, and notes, that a file which a tool reads by itself is
// a link into a workspace.
func (f *finder) leadsInside(path string) bool {
	if path == "" || !f.r.inWorkspace(path) {
		return false
	}
	f.problem(fmt.Sprintf("%s lies in a workspace, so it is not read", path), "keep the registry in a file of its own")
	return true
}

// bounded keeps so many bytes, and fails past them.
type bounded struct {
	b    bytes.Buffer
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errors.New("too much output")
	}
	return w.b.Write(p)
}

// unasked notes that a tool could not be asked.
func (f *finder) unasked(name string, err error) {
	if errors.Is(err, errNoTool) {
		f.problem(fmt.Sprintf("%s is not on the PATH, and only it knows its registries", name), "install it, or name the hosts by --allow-host")
		return
	}
	f.problem(fmt.Sprintf("%s could not be asked: %v", name, err), "name the hosts by --allow-host")
}
