package testimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

// Image is the name that Engine.Import gives by default.
const Image = "cordon-test:latest"

// Engine is a Docker engine.
type Engine struct {
	// Host is its address, as DOCKER_HOST has it.
	Host string

	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	log   *bytes.Buffer
}

// StartEngine returns the engine that DOCKER_HOST or the system's socket leads
// to, or starts one of its own, for root, without bridges and packet filters.
// Stop ends only the latter.
func StartEngine(ctx context.Context) (*Engine, error) {
	e := &Engine{Host: os.Getenv(client.EnvOverrideHost)}
	if e.Host == "" {
		e.Host = client.DefaultDockerHost
	}
	if e.answers(ctx) == nil {
		return e, nil
	}
	dir, err := os.MkdirTemp("", "cordon-engine-")
	if err != nil {
		return nil, err
	}
	e = &Engine{Host: "unix://" + dir + "/docker.sock", dir: dir, ended: make(chan struct{}), log: &bytes.Buffer{}}
	e.cmd = exec.Command("dockerd", "--host", e.Host, "--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid",
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("testimage: dockerd: %w", err), os.RemoveAll(dir))
	}
	go func() { _ = e.cmd.Wait(); close(e.ended) }()
	for {
		err := e.answers(ctx)
		if err == nil {
			return e, nil
		}
		select {
		case <-e.ended:
			return nil, errors.Join(fmt.Errorf("testimage: dockerd ended: %s", e.log), os.RemoveAll(dir))
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("testimage: dockerd does not answer: %w", err), e.Stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (e *Engine) client() (*client.Client, error) { return client.New(client.WithHost(e.Host)) }

func (e *Engine) answers(ctx context.Context) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Ping(ctx, client.PingOptions{})
	return err
}

// Import gives the engine the root file system under a name, Image for none.
func (e *Engine) Import(ctx context.Context, name string, programs ...string) error {
	if name == "" {
		name = Image
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	defer c.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(Write(w, programs...)) }()
	defer r.Close()
	answer, err := c.ImageImport(ctx, client.ImageImportSource{Source: r, SourceName: "-"}, name, client.ImageImportOptions{})
	if err != nil {
		return fmt.Errorf("testimage: import: %w", err)
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err == nil && bytes.Contains(text, []byte(`"error"`)) {
		err = fmt.Errorf("testimage: import: %s", text)
	}
	return err
}

// Stop ends an engine that was started here, and removes all that it had.
func (e *Engine) Stop() error {
	if e.cmd == nil {
		return nil
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.ended:
	case <-time.After(20 * time.Second):
		_ = e.cmd.Process.Kill()
		<-e.ended
	}
	// The engine mounts its own directory on itself.
	unmount(filepath.Join(e.dir, "data"))
	return os.RemoveAll(e.dir)
}
