package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/transaction"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wallFlags say what a command is contained by.
type wallFlags struct {
	flags               *pflag.FlagSet
	mem, pids, maxBytes int64
	maxOutput           int64
	cpus                float64
	timeout             time.Duration
	resolver, image     string
	private, require    []string
	env                 []string
	models              *modelFlags
	llmProxy            bool
}

func addWallFlags(cmd *cobra.Command) *wallFlags {
	f := cmd.Flags()
	o := &wallFlags{flags: f}
	f.String("runtime", "", "the `NAME` of the runtime: "+runtimeNames()+", or auto for the strongest there is")
	f.StringVar(&o.image, "image", "", "the `IMAGE` of the docker runtime (default python:3.11-slim)")
	f.Int64Var(&o.mem, "mem", 0, "memory in `MB` (default 2048)")
	f.Float64Var(&o.cpus, "cpus", 0, "`NUMBER` of processors (default 2)")
	f.Int64Var(&o.pids, "pids", 0, "`NUMBER` of processes (default 512)")
	f.DurationVar(&o.timeout, "timeout", 0, "`TIME` until it is ended, such as 10s or 5m (default the policy's)")
	f.Int64Var(&o.maxBytes, "max-bytes", 0, "`BYTES` that it may write, and send (default the policy's)")
	f.Int64Var(&o.maxOutput, "max-output", defaultOutput, "`BYTES` that it may print on each stream; more is an error")
	f.StringVar(&o.resolver, "resolver", "", "DNS server `HOST:PORT` that the proxies ask, HOST an IP address (default the system's)")
	f.StringArrayVar(&o.private, "unsafe-allow-private", nil, "a private or special range `CIDR` that allowed hosts may resolve to (repeatable)")
	f.StringArrayVar(&o.require, "require", nil, "a `CONTROL` that must be held, by the names that cordon doctor shows; without it nothing is run (repeatable)")
	f.StringArrayVar(&o.env, "env", nil, "a variable that is passed on, `NAME` or NAME=VALUE; the command can read it, and send it where it may connect (repeatable)")
	o.models = addModelFlags(cmd)
	f.BoolVar(&o.llmProxy, "llm-proxy", false, "let it reach model APIs through a proxy of its own, with keys that it has itself ($CORDON_LLM_PROXY)")
	return o
}

// check refuses what no run could have.
func (o *wallFlags) check() error {
	for _, name := range []string{"timeout", "mem", "pids", "cpus", "max-bytes"} {
		if f := o.flags.Lookup(name); f.Changed && strings.Trim(f.Value.String(), "0.s") == "" {
			return usagef("--%s %s (want more than zero)", name, f.Value)
		}
	}
	if o.timeout < 0 || o.mem < 0 || o.mem > 1<<40 || o.pids < 0 || o.cpus < 0 || o.maxBytes < 0 || o.maxOutput <= 0 {
		return usagef("--timeout, --mem, --pids, --cpus, --max-bytes and --max-output bound the command (want more than zero)")
	}
	for _, name := range o.env {
		if name, _, _ := strings.Cut(name, "="); name == "" {
			return usagef("--env names no variable (want NAME or NAME=VALUE)")
		}
	}
	for _, name := range o.require {
		if !slices.Contains(sandbox.Controls(), sandbox.Control(name)) {
			return usagef("--require %q (want one of %s)", name, controlNames())
		}
	}
	return o.models.check()
}

func controlNames() string {
	var names []string
	for _, c := range sandbox.Controls() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// walls are what one contained command has around it.
type walls struct {
	policy  *policy.Policy
	runtime sandbox.Runtime
	net     *network
	caps    sandbox.Caps
	image   string
	rootfs  string
	require []sandbox.Control
	env     []string
	// self are Cordon's own files.
	self []string
}

// build makes the walls of a run, by the policy that decided on it.
func (o *wallFlags) build(core *core, run cordon.Run, state string) (*walls, error) {
	p, err := core.guard.Policy(run)
	if err != nil {
		return nil, err
	}
	box := core.config.Sandbox()
	w := &walls{policy: p, caps: o.caps(p, core.config), image: box.Image, rootfs: box.Rootfs, self: selfPaths(core.config, core.store)}
	if o.image != "" {
		w.image = o.image
	}
	for _, name := range o.env {
		if !strings.Contains(name, "=") {
			name += "=" + os.Getenv(name)
		}
		w.env = append(w.env, name)
	}
	for _, name := range o.require {
		w.require = append(w.require, sandbox.Control(name))
	}
	if err := w.hidesSelf(state, core.store.Path()); err != nil {
		return nil, err
	}
	// A runtime that was asked for is the one that is used, or none is (G7).
	if w.runtime, err = openRuntime(core.config.Runtime(), state); err != nil {
		return nil, err
	}
	exceptions, err := prefixes(o.private)
	if err == nil {
		w.net, err = openNetwork(core, run, networkConfig{
			rules: p.Hosts(), exceptions: exceptions, resolver: o.resolver, upload: o.upload(p), models: o.models, llmProxy: o.llmProxy, caps: p.Caps(),
		})
	}
	if err != nil {
		return nil, errors.Join(err, w.runtime.Close())
	}
	return w, nil
}

// hidesSelf refuses roots that would show the state of other runs, or let the
// command change what Cordon goes by.
func (w *walls) hidesSelf(state, db string) error {
	for _, r := range w.policy.Roots() {
		hidden := []string{state, db}
		if r.Write && r.Path != w.policy.Workspace() {
			hidden = append(hidden, w.self...)
		}
		for _, p := range hidden {
			if below(real(r.Path), real(p)) || below(r.Path, p) {
				return usagef("%q is a directory of the run, and %q in it is Cordon's own (name smaller directories, or another --db)", r.Path, p)
			}
		}
	}
	return nil
}

// below reports whether p is dir or lies in it.
func below(dir, p string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func (w *walls) close() error {
	w.net.close()
	return w.runtime.Close()
}

// defaultDisk is how many bytes a command may have on disk at once where nobody
// said: builds keep far more in their caches than they leave behind, and the
// default of the policy is for the calls of tools.
const defaultDisk = 1 << 30

func (o *wallFlags) caps(p *policy.Policy, c *config.Config) sandbox.Caps {
	box := sandbox.Caps{
		MemoryBytes: o.mem << 20, CPUs: o.cpus, PIDs: o.pids, Wall: p.Caps().Exec, DiskBytes: p.Caps().BytesWritten, OutputBytes: o.maxOutput,
	}
	if !c.IsSet("caps.bytes_written") {
		box.DiskBytes = max(box.DiskBytes, defaultDisk)
	}
	if o.timeout > 0 {
		box.Wall = o.timeout
	}
	if o.maxBytes > 0 {
		box.DiskBytes = o.maxBytes
	}
	// A tenant's caps can be narrowed only.
	if p.Tenant() != "" {
		box.Wall, box.DiskBytes = min(box.Wall, p.Caps().Exec), min(box.DiskBytes, p.Caps().BytesWritten)
	}
	box.FileBytes = box.DiskBytes
	return box
}

// upload is how many bytes the command may send.
func (o *wallFlags) upload(p *policy.Policy) int64 {
	if o.maxBytes > 0 {
		return o.maxBytes
	}
	return p.Caps().BytesWritten
}

// defaultOutput is how many bytes a command may print on each stream. It is
// there for a flood, not for a long listing.
const defaultOutput = 1 << 30

// writableRoot is a directory whose changes a transaction collects.
type writableRoot struct {
	path string
	tx   *transaction.Tx
}

// beginRoots opens a transaction for the workspace and for each further
// directory that the policy lets the run write. The workspace comes first.
func beginRoots(p *policy.Policy, state string) ([]writableRoot, error) {
	paths := []string{p.Workspace()}
	for _, r := range p.Roots() {
		if r.Write && !ownPlace(r.Path) && r.Path != p.Workspace() && !strings.HasPrefix(r.Path, p.Workspace()+"/") {
			if info, err := os.Stat(r.Path); err == nil && info.IsDir() {
				paths = append(paths, r.Path)
			}
		}
	}
	var roots []writableRoot
	for _, path := range paths {
		tx, err := transaction.Begin(transaction.Config{Workspace: real(path), StateDir: state})
		if err != nil {
			return nil, errors.Join(err, rollbackAll(roots))
		}
		roots = append(roots, writableRoot{path, tx})
	}
	return roots, nil
}

func rollbackAll(roots []writableRoot) error {
	var errs []error
	for _, r := range roots {
		errs = append(errs, r.tx.Rollback())
	}
	return errors.Join(errs...)
}

// ownPlace: the sandbox has its own there, or shows it anyhow.
func ownPlace(path string) bool { return isSystem(path) || strings.HasPrefix(path, "/tmp/agent") }

// spec is the command in its walls: the policy's roots, what is written kept
// apart in a transaction of each of roots, an environment that holds nothing of
// the user's but what --env names. Without roots the caller mounts the
// workspace.
func (w *walls) spec(roots []writableRoot, args []string) sandbox.Spec {
	p := w.policy
	s := sandbox.Spec{
		ID: p.RunID(), Argv: args, Dir: p.Workspace(), Env: append(environment(p), w.env...), Caps: w.caps, Image: w.image, Rootfs: w.rootfs, Require: w.require,
	}
	// A tier that may only read the workspace gets it so from the kernel too.
	if len(roots) > 0 && !slices.Contains(p.Roots(), policy.Root{Path: p.Workspace(), Write: true}) {
		s.Mounts = append(s.Mounts, sandbox.Mount{Source: real(p.Workspace()), Target: p.Workspace()})
		roots = roots[1:]
	}
	inTransaction := map[string]bool{p.Workspace(): true}
	for _, r := range roots {
		inTransaction[r.path] = true
		s.Mounts = append(s.Mounts, sandbox.Mount{
			Source: r.tx.Workspace(), Target: r.path, Access: sandbox.Overlay, Upper: r.tx.Upper(), Work: r.tx.Work(),
		})
	}
	for _, r := range p.Roots() {
		if inTransaction[r.Path] || ownPlace(r.Path) {
			continue
		}
		m := sandbox.Mount{Source: real(r.Path), Target: r.Path, Optional: true}
		if r.Write {
			m.Access = sandbox.ReadWrite // a single file, or a part of the workspace
		}
		if r.Write && strings.HasPrefix(r.Path, p.Workspace()+"/") {
			continue // writable with it
		}
		s.Mounts = append(s.Mounts, m)
	}
	return s
}

// real is the path without links: the runtime follows none in what it mounts.
func real(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return path // the runtime says what is wrong with it
}

var systemPlaces = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

func isSystem(path string) bool {
	return slices.ContainsFunc(systemPlaces, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// passedOn are the variables that tell how to show things, and no secrets.
var passedOn = []string{"LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLORTERM", "NO_COLOR", "TZ", "CI"}

func environment(p *policy.Policy) []string {
	env := []string{
		"HOME=/tmp", "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh", "TMPDIR=/tmp", "CORDON_RUN=" + p.RunID(), "PATH=" + pathInside(p),
		// The workspace is a mount of its own, and may be a part of a repository.
		"GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
	}
	env = append(env, gitIdentity(p)...)
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// gitIdentity is the user's name for commits, where the workspace is in a
// repository: the home that says it is not there inside.
func gitIdentity(p *policy.Policy) (env []string) {
	if !inRepository(p.Workspace()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	git := exec.CommandContext(ctx, "git", "config", "--global", "--null", "--get-regexp", `^user\.(name|email)$`)
	git.Dir = "/" // not in the workspace, whose configuration git reads itself
	out, err := git.Output()
	if err != nil {
		return nil // git is not there, or the user has set none
	}
	for entry := range strings.SplitSeq(string(out), "\x00") {
		key, value, ok := strings.Cut(entry, "\n")
		if _, what, named := strings.Cut(key, "."); ok && named && value != "" {
			name := strings.ToUpper(what)
			env = append(env, "GIT_AUTHOR_"+name+"="+value, "GIT_COMMITTER_"+name+"="+value)
		}
	}
	return env
}

func inRepository(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// pathInside keeps of PATH what is there inside.
func pathInside(p *policy.Policy) string {
	var dirs []string
	visible := func(dir string) bool {
		return isSystem(dir) || slices.ContainsFunc(p.Roots(), func(r policy.Root) bool { return dir == r.Path || strings.HasPrefix(dir, r.Path+"/") })
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && visible(filepath.Clean(dir)) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}

// resolverOf reads --resolver.
func resolverOf(text string) (egress.Resolver, error) {
	r, err := egress.NewResolver(text)
	if err != nil {
		return nil, exitError{exitUsage, fmt.Errorf("--resolver: %w", err)}
	}
	return r, nil
}
