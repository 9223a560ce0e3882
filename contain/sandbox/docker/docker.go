// Package docker runs a program in a container of a Docker engine, by its
// Engine API: a root of an image's, read-only; the workspace as an overlay
// that the engine mounts; no network; no capabilities, no new privileges, our
// own list of system calls; cgroups for memory without swap, processes and
// processors; temporary directories of memory; an init that is this binary.
//
// It guarantees that what Result.Controls calls enforced stood before the
// program's first instruction; that the program gets the environment of the
// Spec and no other; that a container ends with Kill, with KillRun from
// anywhere, and with its supervisor even when that is killed by SIGKILL; and
// that the engine removes it then, with all that was made for it.
//
// What it does not stop: an attack on the kernel, which containers share with
// the host (contain/sandbox/gvisor does), or on the engine, which runs as
// root and decides what the walls are; what an image holds; side channels;
// and use of the caps to the full. Files behind a ReadWrite mount are the
// host's own: the disk cap does not count them. An engine that runs in a
// virtual machine of its own must be shown the paths that are mounted; where
// it cannot see the workspace, Start is an error.
//
// The program runs with the user ID of the supervisor, or, under root, of the
// owner of the workspace, so that it can write there and what it makes has
// the same owner as all else. It is root inside (without any capability) only
// where the workspace is root's; with nothing to write to it is nobody.
//
// The container's first process is this very binary: the program's main must
// call inside.Main before anything else.
package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
)

// Name is what --runtime takes.
const Name = "docker"

// DefaultImage is used where neither Spec nor Config names one.
const DefaultImage = "python:3.11-slim"

// Labels of every container: the run's ID, and who supervises it.
const (
	LabelRun        = "dev.cordon.run"
	labelSupervisor = "dev.cordon.supervisor"
)

// Config says which engine to use and with what.
type Config struct {
	// Host is the engine's address, such as unix:///var/run/docker.sock;
	// empty is that of DOCKER_HOST, or the system's.
	Host string
	// Image is used for a Spec that names none; empty is DefaultImage.
	Image string
	// Init is the path of the binary that becomes the first process inside: a
	// static Linux program whose main calls inside.Main. Empty is this binary.
	Init string
}

// Runtime runs programs in containers. It is safe for concurrent use.
type Runtime struct {
	api   *client.Client
	image string
	init  string
	sock  string // the engine's socket, or ""

	mu      sync.Mutex
	running map[*inside.Process]struct{}
	closed  bool
	swept   bool
}

var _ sandbox.Runtime = (*Runtime)(nil)

// New returns the runtime. It does not ask the engine anything: Probe does,
// and each Start.
func New(c Config) (*Runtime, error) {
	opts := []client.Opt{client.FromEnv}
	if c.Host != "" {
		opts = append(opts, client.WithHost(c.Host))
	}
	api, err := client.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	if c.Init != "" && !filepath.IsAbs(c.Init) {
		return nil, fmt.Errorf("docker: init %q (want an absolute path)", c.Init)
	}
	r := &Runtime{api: api, image: cmp.Or(c.Image, DefaultImage), init: c.Init, running: map[*inside.Process]struct{}{}}
	if path, ok := strings.CutPrefix(api.DaemonHost(), "unix://"); ok {
		r.sock = path
	}
	return r, nil
}

// Name is "docker".
func (r *Runtime) Name() string { return Name }

// Start runs s.Argv in a container. It returns when the walls stand and the
// program is about to begin: a command that is not found, or cannot be
// executed, is a Result with exit code 127 or 126. Errors are
// sandbox.UnavailableError where engine or image are missing,
// sandbox.RequiredError where a control that s.Require names cannot be held,
// else a fault of the Spec or of the engine.
func (r *Runtime) Start(ctx context.Context, s sandbox.Spec) (sandbox.Process, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	s, caps, err := inside.Prepare(Name, s, nil)
	if err != nil {
		return nil, err
	}
	init, err := inside.Binary(Name, r.init, false)
	if err != nil {
		return nil, err
	}
	engine, err := r.engine(ctx)
	if err != nil {
		return nil, err
	}
	s.Image = cmp.Or(s.Image, r.image)
	volumes, err := r.volumesOf(ctx, s.Image)
	if err != nil {
		return nil, err
	}
	f := facts{
		init: init, engine: engine, api: r.api.ClientVersion(), volumes: volumes, socket: r.sock, uid: os.Geteuid(), gid: os.Getegid(),
		owner: ownerOf, supervisor: supervisor(), mountedBelow: mountedBelow,
	}
	p, err := r.launch(ctx, s, caps, f)
	if err != nil {
		return nil, err
	}
	if err := r.add(p); err != nil {
		p.Kill(err)
		_, _ = p.Wait()
		return nil, err
	}
	return p, nil
}

// launch shows what is only read as overlays where it can: not every file
// system can be the lower layer of one, and not every engine sees ours.
func (r *Runtime) launch(ctx context.Context, s sandbox.Spec, caps sandbox.Caps, f facts) (*inside.Process, error) {
	toRead := func(m sandbox.Mount) bool { return m.Access == sandbox.ReadOnly }
	if !slices.ContainsFunc(s.Mounts, toRead) {
		return r.launchOnce(ctx, s, caps, f)
	}
	var err error
	if f.empty, err = emptyDir(); err != nil {
		return nil, err
	}
	p, err := r.launchOnce(ctx, s, caps, f)
	if err == nil {
		return p, nil
	}
	_ = os.Remove(f.empty) // it is empty, and does no harm
	var no *noVolume
	if errors.As(err, &no) {
		f.empty = ""
		return r.launchOnce(ctx, s, caps, f)
	}
	return nil, err
}

func (r *Runtime) launchOnce(ctx context.Context, s sandbox.Spec, caps sandbox.Caps, f facts) (*inside.Process, error) {
	d, err := describe(s, caps, f)
	if err != nil {
		return nil, err
	}
	l := &inside.Launch{
		Runtime: Name, Spec: s, Caps: caps, Scratch: d.scratch,
		Controls: func(seen inside.Seen) []sandbox.Held {
			return controls(s, d.shared, f.engine, seen, inside.Namespaces())
		},
		Start: func(ctx context.Context) (inside.Box, error) { return r.box(ctx, d.options, f.empty) },
	}
	return l.Run(ctx)
}

// mountedBelow asks the kernel that this process runs on; where it cannot be
// asked anything may be mounted anywhere.
func mountedBelow(dir string) bool {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return true
	}
	return slices.ContainsFunc(inside.MountPoints(string(text)), func(p string) bool { return p != dir && inside.Within(p, dir) })
}

// emptyDir makes the second layer of overlays.
func emptyDir() (string, error) {
	dir, err := os.MkdirTemp("", "cordon-empty-")
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = os.Chmod(real, 0o555)
	}
	if err != nil {
		return "", fmt.Errorf("docker: %w", errors.Join(err, os.Remove(dir)))
	}
	return real, nil
}

// errClosed is the cause of what Close kills.
var errClosed = errors.New("docker: the runtime was closed")

func (r *Runtime) add(p *inside.Process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	r.running[p] = struct{}{}
	go func() {
		<-p.Ended()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, p)
	}()
	return nil
}

// Close kills what runs and waits for its end.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	var running []*inside.Process
	for p := range r.running {
		running = append(running, p)
	}
	r.mu.Unlock()
	for _, p := range running {
		p.Kill(errClosed)
	}
	for _, p := range running {
		<-p.Ended()
	}
	return r.api.Close()
}

// engine asks the engine what it can hold.
func (r *Runtime) engine(ctx context.Context) (system.Info, error) {
	info, err := r.api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return system.Info{}, r.unavailable(ctx, err)
	}
	if info.Info.OSType != "linux" {
		return system.Info{}, &sandbox.UnavailableError{Runtime: Name, Why: "the engine runs " + info.Info.OSType + " containers", Fix: "switch it to Linux containers"}
	}
	return info.Info, nil
}

func (r *Runtime) unavailable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return noEngine(r.api.DaemonHost(), r.sock, os.Getenv("XDG_RUNTIME_DIR"), err)
}

// noEngine says why the engine at host does not answer: err is the client's
// word, which does not keep the kernel's; sock the engine's socket or "";
// runtimeDir where a rootless engine of this user's would have its own.
func noEngine(host, sock, runtimeDir string, err error) *sandbox.UnavailableError {
	const start = "start it (systemctl start docker)"
	e := &sandbox.UnavailableError{Runtime: Name, Why: fmt.Sprintf("the Docker engine at %s does not answer (%v)", host, err), Fix: start + ", or name another one by DOCKER_HOST"}
	if sock == "" {
		e.Fix = "start it, or name another one by DOCKER_HOST"
		return e
	}
	conn, dialErr := net.DialTimeout("unix", sock, time.Second)
	switch {
	case dialErr == nil:
		conn.Close()
	case errors.Is(dialErr, os.ErrPermission):
		e.Why = "this user may not use the Docker engine at " + host
		e.Fix = "as root: usermod -aG docker USER, and log in again (whoever is in that group is as good as root); or run a rootless engine"
	case errors.Is(dialErr, os.ErrNotExist):
		e.Why = "there is no Docker engine at " + host
		e.Fix = "install one (Debian and Ubuntu: apt-get install docker.io) and " + start + ", or name another one by DOCKER_HOST"
	case errors.Is(dialErr, syscall.ECONNREFUSED):
		e.Why = "no Docker engine listens at " + host
	}
	if own := filepath.Join(runtimeDir, "docker.sock"); dialErr != nil && runtimeDir != "" && own != sock && isSocket(own) {
		e.Fix = "use this user's own engine: DOCKER_HOST=unix://" + own
	}
	return e
}

// volumesOf are the places that an image wants writable.
func (r *Runtime) volumesOf(ctx context.Context, image string) ([]string, error) {
	found, err := r.api.ImageInspect(ctx, image)
	if isMissing(err) {
		return nil, &sandbox.UnavailableError{
			Runtime: Name, Why: fmt.Sprintf("the engine has no image %q", image),
			Fix: "get it by: docker pull " + image + " (or build or import one, and name it)",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("docker: image %q: %w", image, err)
	}
	var volumes []string
	if found.Config != nil {
		for v := range found.Config.Volumes {
			volumes = append(volumes, v)
		}
	}
	return volumes, nil
}

// KillRun ends all containers of a run, whoever started them, and tells how
// many there were.
func (r *Runtime) KillRun(ctx context.Context, id string) (int, error) {
	if id == "" {
		return 0, errors.New("docker: no run to kill (want its ID)")
	}
	list, err := r.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", LabelRun+"="+id)})
	if err != nil {
		return 0, r.unavailable(ctx, err)
	}
	var errs []error
	for _, c := range list.Items {
		errs = append(errs, r.remove(ctx, c.ID))
	}
	return len(list.Items), errors.Join(errs...)
}

// remove kills and removes a container; one that is gone is well.
func (r *Runtime) remove(ctx context.Context, id string) error {
	_, err := r.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || isMissing(err) || strings.Contains(err.Error(), "is already in progress") {
		return nil
	}
	return fmt.Errorf("docker: remove container: %w", err)
}

// isMissing knows what the engine says of what it does not have.
func isMissing(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "no such image") || strings.Contains(text, "no such container")
}

// sweep removes containers that were made and never started, because their
// supervisor was killed in between. Those that had started removed themselves.
func (r *Runtime) sweep(ctx context.Context) {
	r.mu.Lock()
	done := r.swept
	r.swept = true
	r.mu.Unlock()
	if done {
		return
	}
	list, err := r.api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelSupervisor).Add("status", "created"),
	})
	if err != nil {
		return // it is a courtesy
	}
	for _, c := range list.Items {
		if !alive(c.Labels[labelSupervisor]) {
			_ = r.remove(ctx, c.ID)
		}
	}
}

// supervisor names this process among those of this boot of this host.
func supervisor() string {
	return bootID() + "/" + strconv.Itoa(os.Getpid()) + "/" + inside.StartTime(os.Getpid())
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// alive tells whether a supervisor may still be there; of what cannot be
// known it is.
func alive(name string) bool {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return true
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || parts[0] != bootID() {
		return true // another host's, or from before: the engine knows more than we
	}
	return inside.StartTime(pid) == parts[2]
}

// Probe starts containers that try each control, and reports what held.
func (r *Runtime) Probe(ctx context.Context) sandbox.Report {
	p := inside.Prober{Runtime: Name, Start: r.Start}
	return p.Probe(ctx)
}

// Look starts one container, which looks around.
func (r *Runtime) Look(ctx context.Context) sandbox.Report {
	p := inside.Prober{Runtime: Name, Start: r.Start}
	return p.Look(ctx)
}
