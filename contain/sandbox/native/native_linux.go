package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside/cgroup"
)

// Runtime runs programs in namespaces of this kernel. It is safe for
// concurrent use.
type Runtime struct {
	root     string
	ownState string
	groups   func() *cgroup.Site

	mu      sync.Mutex
	running map[*process]struct{}
	closed  bool
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New returns the runtime. It does not look at what the host can hold: Probe
// does, and each Start.
func New(c Config) (*Runtime, error) {
	r := &Runtime{groups: sync.OnceValue(cgroup.Find), running: map[*process]struct{}{}}
	state := c.StateDir
	if state == "" {
		dir, err := os.MkdirTemp("", "cordon-native-")
		if err != nil {
			return nil, fmt.Errorf("native: %w", err)
		}
		state, r.ownState = dir, dir
	}
	if !filepath.IsAbs(state) {
		return nil, fmt.Errorf("native: state directory %q (want an absolute path)", state)
	}
	r.root = filepath.Join(state, "root")
	if err := os.MkdirAll(r.root, 0o700); err != nil {
		return nil, fmt.Errorf("native: %w", err)
	}
	return r, nil
}

// Name is "native".
func (r *Runtime) Name() string { return Name }

// Start runs s.Argv inside. It returns when the walls stand and the program
// is about to begin: a command that is not found, or cannot be executed, is a
// Result with exit code 127 or 126. Errors are sandbox.UnavailableError where
// this host cannot build the walls, sandbox.RequiredError where one that
// s.Require names cannot be held, else a fault of the Spec or of the system.
func (r *Runtime) Start(ctx context.Context, s sandbox.Spec) (sandbox.Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	l, err := r.prepare(s)
	if err != nil {
		return nil, err
	}
	p, err := l.launch(ctx)
	if err != nil {
		return nil, l.explain(err)
	}
	return p, nil
}

func (r *Runtime) add(p *process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	r.running[p] = struct{}{}
	return nil
}

func (r *Runtime) remove(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, p)
}

// errClosed is the cause of what Close kills.
var errClosed = errors.New("native: the runtime was closed")

// Close kills what runs, waits for its end and removes what New made.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	var running []*process
	for p := range r.running {
		running = append(running, p)
	}
	r.mu.Unlock()
	for _, p := range running {
		p.Kill(errClosed)
	}
	for _, p := range running {
		<-p.ended
	}
	if r.ownState == "" {
		return nil
	}
	return errors.Join(os.Remove(r.root), os.Remove(r.ownState))
}
