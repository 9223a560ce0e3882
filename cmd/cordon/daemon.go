package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/door/hook"
	"github.com/cordon-sandbox/cordon/door/hook/daemon"
	"github.com/cordon-sandbox/cordon/door/hook/daemon/relay"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func daemonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "daemon",
		Short: "Answer coding agents' hooks faster, from a process that stays",
		Long: `Answer the hooks of coding agents from a process that stays, so that each
"cordon hook" need not open the database. It listens on a Unix socket in the
state directory, for this user alone, and decides just as the hook's own
process would. Where it is absent, of another version or does not answer, that
process decides by itself.

It ends when nothing came for the idle time.`,
		Args: cobra.NoArgs,
	}
	idle := cmd.Flags().Duration("idle", time.Hour, "`TIME` without an event after which it ends")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *idle <= 0 {
			return usagef("cordon daemon: --idle %v (want more than 0)", *idle)
		}
		dir, err := relay.StateDir()
		if err != nil {
			return err
		}
		return serveHooks(cmd.Context(), dir, *idle, &lineLog{w: cmd.ErrOrStderr()})
	}
	return cmd
}

// serveHooks answers until ctx is done or nothing came for the idle time.
func serveHooks(ctx context.Context, dir string, idle time.Duration, log *lineLog) error {
	build, err := daemon.ThisBuild()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := daemon.CheckDir(dir); err != nil {
		return fmt.Errorf("%w (want: chmod go-w %s)", err, dir)
	}
	unlock, err := lockDaemon(filepath.Join(dir, daemon.LockName))
	if err != nil {
		return err
	}
	defer unlock()
	listener, err := egress.Listen("unix:" + filepath.Join(dir, daemon.SocketName))
	if err != nil {
		return err
	}
	d := &hookDaemon{log: log, open: map[string]*openHook{}}
	log.printf("daemon: listening on %s", listener.Addr())
	defer d.close()
	return daemon.Serve(ctx, daemon.Config{Listener: listener, Build: build, Answer: d.answer, Idle: idle, Logf: log.printf})
}

// lockDaemon keeps a second daemon away. The lock goes with the process.
func lockDaemon(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("daemon: another one is running (%s is locked: %w)", path, err)
	}
	return func() { f.Close() }, nil
}

// hookDaemon answers for hooks' processes. What they configure is opened once.
type hookDaemon struct {
	log *lineLog

	mu      sync.Mutex // guards open
	open    map[string]*openHook
	retired sync.WaitGroup
}

// openHook is one configuration that is open.
type openHook struct {
	door  *hook.Door // nil in mode off
	core  *core
	db    os.FileInfo
	used  time.Time
	calls sync.WaitGroup
}

// maxOpenHooks is how many configurations are open at once.
const maxOpenHooks = 8

func (d *hookDaemon) answer(ctx context.Context, r daemon.Request) (daemon.Reply, error) {
	env := map[string]string{}
	var kept []string
	for _, kv := range r.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
		if !strings.HasSuffix(name, "_PROJECT_DIR") {
			kept = append(kept, kv)
		}
	}
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"} {
		if env[name] != os.Getenv(name) {
			return daemon.Reply{}, fmt.Errorf("%s is another than the daemon's", name)
		}
	}
	agent, flags, err := hookArgs(r.Args)
	if err != nil {
		return daemon.Reply{}, err
	}
	file, err := flags.configFile(env)
	if err != nil {
		return daemon.Reply{}, err
	}
	key := strings.Join(slices.Concat(r.Args, []string{"\x01"}, kept, []string{"\x01", file, daemon.Identity(file)}), "\x00")
	open, err := d.acquire(key, agent, flags, env)
	if err != nil {
		return daemon.Reply{}, err
	}
	defer open.calls.Done()
	if open.door == nil {
		return hookReply(hook.Passed(agent, r.Event)), nil
	}
	reply, _ := open.door.Answer(ctx, hook.Input{Event: r.Event, Project: env[hook.ProjectVar(agent)]})
	return hookReply(reply), nil
}

func hookReply(r hook.Reply) daemon.Reply {
	return daemon.Reply{Stdout: r.Stdout, Stderr: r.Stderr, Exit: r.Exit}
}

// hookArgs reads the command line of a hook's process. What depends on its
// working directory is an error.
func hookArgs(args []string) (agent string, f *hookFlags, err error) {
	cmd, f := newHookCommand()
	if err := cmd.ParseFlags(args); err != nil {
		return "", nil, err
	}
	rest := cmd.Flags().Args()
	if err := cmd.ValidateArgs(rest); err != nil {
		return "", nil, err
	}
	for _, p := range []string{f.workspace, f.home, f.config} {
		if p != "" && !filepath.IsAbs(p) {
			return "", nil, fmt.Errorf("%q is relative to a directory that is not the daemon's", p)
		}
	}
	return rest[0], f, nil
}

// configFile is the configuration that will be read, or would be if it were
// there.
func (f *hookFlags) configFile(env map[string]string) (string, error) {
	file := f.config
	if file == "" {
		file = strings.TrimSpace(env["CORDON_CONFIG"])
	}
	if file == "" {
		dir := env["XDG_CONFIG_HOME"]
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(env["HOME"], ".config")
		}
		file = filepath.Join(dir, "cordon", "cordon.yaml")
	}
	if !filepath.IsAbs(file) {
		return "", fmt.Errorf("configuration %q is relative to a directory that is not the daemon's", file)
	}
	return file, nil
}

// acquire opens a configuration, or takes the one that is open. The caller
// ends its use by calls.Done.
func (d *hookDaemon) acquire(key, agent string, f *hookFlags, env map[string]string) (*openHook, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.open[key]
	if o != nil && !o.current() {
		d.retire(key, o)
		o = nil
	}
	if o == nil {
		var err error
		if o, err = d.openHook(agent, f, env); err != nil {
			return nil, err
		}
		d.makeRoom()
		d.open[key] = o
	}
	o.used = time.Now()
	o.calls.Add(1)
	return o, nil
}

// logWriter lets what a configuration says go to the daemon's log.
type logWriter struct{ log *lineLog }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	return w.log.w.Write(b)
}

func (d *hookDaemon) openHook(agent string, f *hookFlags, env map[string]string) (*openHook, error) {
	c, err := f.loadFrom(func(name string) (string, bool) { v, ok := env[name]; return v, ok }, nil)
	if err != nil {
		return nil, err
	}
	if c.Mode() == cordon.Off {
		return &openHook{}, nil
	}
	f.cmd.SetErr(logWriter{d.log})
	door, core, err := f.openDoor(context.Background(), agent, c)
	if err != nil {
		return nil, err
	}
	db, err := os.Stat(core.store.Path())
	if err != nil {
		return nil, errors.Join(err, core.close())
	}
	return &openHook{door: door, core: core, db: db}, nil
}

// current reports whether the database is still the file that was opened.
func (o *openHook) current() bool {
	if o.core == nil {
		return true
	}
	now, err := os.Stat(o.core.store.Path())
	return err == nil && os.SameFile(o.db, now)
}

// makeRoom retires what was unused for longest. d.mu is held.
func (d *hookDaemon) makeRoom() {
	for len(d.open) >= maxOpenHooks {
		var oldest string
		for key, o := range d.open {
			if oldest == "" || o.used.Before(d.open[oldest].used) {
				oldest = key
			}
		}
		d.retire(oldest, d.open[oldest])
	}
}

// retire closes a configuration when its last call is done. d.mu is held.
func (d *hookDaemon) retire(key string, o *openHook) {
	delete(d.open, key)
	if o.core == nil {
		return
	}
	d.retired.Go(func() {
		o.calls.Wait()
		if err := o.core.close(); err != nil {
			// Counters of the last moments; a database that was taken away
			// under it has none to keep.
			d.log.printf("daemon: %v", err)
		}
	})
}

// close closes what is open, and waits.
func (d *hookDaemon) close() {
	d.mu.Lock()
	for key, o := range d.open {
		d.retire(key, o)
	}
	d.mu.Unlock()
	d.retired.Wait()
}
