package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/audit/sqlite"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/guard"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/lower"
	"github.com/cordon-sandbox/cordon/lower/toolspec"
	"github.com/spf13/cobra"
)

// configFlags are the flags that settings have, for every command that reads
// the configuration.
type configFlags struct {
	config string
	cmd    *cobra.Command
}

// addConfigFlags adds --config and --db.
func addConfigFlags(cmd *cobra.Command) *configFlags {
	f := &configFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.config, "config", "", "configuration `FILE` (default $CORDON_CONFIG, or cordon/cordon.yaml in the user's configuration directory)")
	cmd.Flags().String("db", "", "audit database `FILE` (default cordon/cordon.db in the user's state directory)")
	return f
}

// addPolicyFlags adds those that shape policies as well.
func addPolicyFlags(cmd *cobra.Command) *configFlags {
	f := addConfigFlags(cmd)
	flags := cmd.Flags()
	flags.String("profile", "", "profile: coding or atom")
	flags.String("tier", "", "tier: student, intern, supervised or autonomous")
	flags.String("mode", "", "mode: off, shadow or enforce")
	flags.StringArray("read", nil, "a further `PATH` that may be read (repeatable)")
	flags.StringArray("write", nil, "a further `PATH` that may be written (repeatable)")
	flags.StringArray("allow-host", nil, "a further `HOST` that may be reached, or *.HOST (repeatable)")
	flags.StringArray("ecosystem", nil, "package `NAMES` whose registries may be reached as you configured them: some of npm, go, apt, pip, cargo, maven, gem, nuget, or all, or none (default with profile coding npm,go,apt,pip,cargo)")
	flags.StringArray("allow-tool", nil, "a further tool (`NAME`, SERVER/NAME or group:GROUP) for every tier (repeatable)")
	return f
}

// load reads the configuration by the flags that were given.
func (f *configFlags) load() (*config.Config, error) {
	given := map[string][]string{}
	for _, name := range []string{"profile", "tier", "mode", "read", "write", "allow-host", "ecosystem", "allow-tool", "db", "runtime"} {
		flag := f.cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		if list, err := f.cmd.Flags().GetStringArray(name); err == nil {
			given[name] = list
		} else {
			given[name] = []string{flag.Value.String()}
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	c, err := config.Load(config.Input{Flags: given, Getenv: os.LookupEnv, File: f.config, Dir: dir})
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	return c, nil
}

// openStore opens the audit database that the configuration names, and makes
// it where it is absent. A directory is made for the default one only.
func openStore(ctx context.Context, c *config.Config) (*sqlite.Store, error) {
	path, err := dbPath(c)
	if err != nil {
		return nil, err
	}
	if c.DB() != "" {
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return nil, usagef("audit database %q: there is no directory %q", path, filepath.Dir(path))
		}
	}
	return sqlite.Open(ctx, path)
}

func dbPath(c *config.Config) (string, error) {
	if c.DB() != "" {
		return c.DB(), nil
	}
	return sqlite.DefaultPath()
}

// withStore runs f on the store that the flags name, and closes it. Whoever
// looks into a store does not make one.
func (f *configFlags) withStore(do func(ctx context.Context, s audit.Store) error) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	path, err := dbPath(c)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no audit database at %q: nothing was stored yet, or --db names another file", path)
	}
	s, err := openStore(f.cmd.Context(), c)
	if err != nil {
		return err
	}
	return errors.Join(do(f.cmd.Context(), s), s.Close())
}

// runFlags name the run that a door opens.
type runFlags struct {
	*configFlags
	workspace, home, runID, session, tenant, agent, user string
}

func addRunFlags(cmd *cobra.Command) *runFlags {
	f := &runFlags{configFlags: addPolicyFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&f.workspace, "workspace", "", "the `DIR` that is worked in (default the working directory)")
	flags.StringVar(&f.home, "home", "", "the `DIR` that ~ means (default $HOME)")
	flags.StringVar(&f.runID, "run-id", "", "`ID` of the run (default one of its own)")
	flags.StringVar(&f.session, "session", "", "session that a kill holds across runs")
	flags.StringVar(&f.tenant, "tenant", "", "tenant whose overrides apply")
	flags.StringVar(&f.agent, "agent", "", "name of the agent, for the audit")
	flags.StringVar(&f.user, "user", "", "name of the user, for the audit")
	return f
}

// run is the run that the flags and the configuration describe.
func (f *runFlags) run(c *config.Config) (cordon.Run, error) {
	r := cordon.Run{ID: f.runID, Tenant: f.tenant, Agent: f.agent, User: f.user, Session: f.session, Tier: c.Tier(), Profile: c.Profile()}
	var err error
	if r.Workspace, err = directory("--workspace", f.workspace, os.Getwd); err != nil {
		return r, err
	}
	if r.Workspace == "/" {
		return r, usagef("--workspace %q is the whole machine; name the directory of the project", r.Workspace)
	}
	if r.Home, err = directory("--home", f.home, os.UserHomeDir); err != nil {
		return r, err
	}
	if err := policy.CheckRun(r); err != nil {
		return r, exitError{exitUsage, err}
	}
	return r, nil
}

// open reads the configuration, names the run, and builds the guard.
func (f *runFlags) open() (*core, cordon.Run, error) {
	c, err := f.load()
	if err != nil {
		return nil, cordon.Run{}, err
	}
	run, err := f.run(c)
	if err != nil {
		return nil, run, err
	}
	core, err := openCore(f.cmd.Context(), c, f.cmd.ErrOrStderr(), newPackages(c, resolveTime, run.Workspace))
	return core, run, err
}

// directory is the absolute path of a flag's value, or of its default.
func directory(flag, value string, fallback func() (string, error)) (string, error) {
	if value == "" {
		d, err := fallback()
		if err != nil {
			return "", usagef("%s: no default here (%w); name a directory", flag, err)
		}
		if !filepath.IsAbs(d) {
			return "", usagef("%s: the default %q is not absolute; name a directory", flag, d)
		}
		return d, nil
	}
	path, err := filepath.Abs(value)
	if err != nil {
		return "", usagef("%s %q: %w", flag, value, err)
	}
	if info, err := os.Stat(path); err != nil {
		return "", usagef("%s %q: %w", flag, value, err)
	} else if !info.IsDir() {
		return "", usagef("%s %q is no directory", flag, value)
	}
	return path, nil
}

// core is what a door needs: the guard, and what it stores into.
type core struct {
	config *config.Config
	guard  *guard.Guard
	store  *sqlite.Store
	log    *lineLog
}

// openCore builds the guard from the configuration.
func openCore(ctx context.Context, c *config.Config, stderr io.Writer, packages *packages) (*core, error) {
	log := &lineLog{w: stderr}
	for _, note := range c.Notes() {
		log.printf("%s", note)
	}
	// The hosts are found while the database opens.
	looking, stop := context.WithCancel(ctx)
	defer stop()
	found := make(chan []string, 1)
	go func() { found <- packages.hosts(looking, log) }()
	store, err := openStore(ctx, c)
	if err != nil {
		stop()
		<-found
		return nil, err
	}
	g, err := newGuard(c, store, log, <-found...)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &core{config: c, guard: g, store: store, log: log}, nil
}

// chunkLife is how long the texts of a run are remembered after its last one.
const chunkLife = 30 * 24 * time.Hour

// retire forgets the texts of runs that are long over. It is for commands that
// stay: it writes.
func (c *core) retire(ctx context.Context) {
	if _, err := c.store.DropChunks(ctx, time.Now().Add(-chunkLife)); err != nil && ctx.Err() == nil {
		c.log.printf("texts of old runs: %v", err)
	}
}

func (c *core) close() error {
	return errors.Join(c.guard.Close(context.Background()), c.store.Close())
}

// attach ties ctx to the life of a run whose command is contained: walls are no
// mode, and so an operator's kill ends it in shadow mode too.
func (c *core) attach(ctx context.Context, run cordon.Run) (attached context.Context, stop func()) {
	if c.config.Mode() == cordon.Enforce {
		return c.guard.Attach(ctx, run)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go c.watchKill(ctx, run.ID, cancel)
	return ctx, func() { cancel(nil) }
}

// watchKill cancels when the run is killed, by whatever process. A store that
// cannot be read counts as a kill.
func (c *core) watchKill(ctx context.Context, runID string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(killInterval)
	defer tick.Stop()
	for last := c.store.KillGeneration(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := c.store.KillGeneration()
		if now == last {
			continue
		}
		last = now
		kills, err := c.store.Kills(ctx)
		if err != nil || slices.ContainsFunc(kills, func(k audit.Kill) bool { return k.RunID == runID }) {
			cancel(cordon.ErrKilled)
			return
		}
	}
}

// secretOf is what keys the memory of texts: a file beside the database, made
// where it is absent.
func secretOf(store *sqlite.Store) (s [32]byte, err error) {
	path := store.Path() + ".secret"
	for range 2 {
		b, err := os.ReadFile(path)
		switch {
		case err == nil && len(b) == len(s):
			return [32]byte(b), nil
		case err == nil:
			return s, fmt.Errorf("%s: %d bytes (want %d; a wrong one may be removed: what runs have seen is then unknown)", path, len(b), len(s))
		case !errors.Is(err, os.ErrNotExist):
			return s, err
		}
		if err := writeNew(path, rand.Text()+rand.Text()); err != nil && !errors.Is(err, os.ErrExist) {
			return s, err
		}
	}
	return s, fmt.Errorf("%s: it cannot be made", path)
}

// writeNew makes a file at once with its content, 32 bytes of it: another
// process that opens the same database sees all of it or none.
func writeNew(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".secret-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text[:32])
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

// stateDir is where transactions and runtimes keep their things.
func stateDir() (string, error) {
	db, err := sqlite.DefaultPath()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(db)
	return dir, os.MkdirAll(dir, 0o700)
}

// catalogueOf is the catalogue of tools with what the file adds to it.
func catalogueOf(c *config.Config) (*toolspec.Catalogue, error) {
	catalogue := toolspec.Builtin()
	if extra := c.Tools(); len(extra) > 0 {
		entries, err := toolspec.Parse(extra)
		if err == nil {
			catalogue, err = catalogue.With(entries)
		}
		if err != nil {
			return nil, exitError{exitUsage, fmt.Errorf("%s: tools: %w", c.File(), err)}
		}
	}
	return catalogue, nil
}

func newGuard(c *config.Config, store *sqlite.Store, log *lineLog, packageHosts ...string) (*guard.Guard, error) {
	catalogue, err := catalogueOf(c)
	if err != nil {
		return nil, err
	}
	lowerer, err := lower.New(lower.Config{Catalogue: catalogue, Languages: lower.DefaultLanguages()})
	if err != nil {
		return nil, err
	}
	secret, err := secretOf(store)
	if err != nil {
		return nil, err
	}
	judge, err := openJudge(c)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	p := c.Phases()
	g, err := guard.New(guard.Config{
		Mode:      c.Mode(),
		Phases:    guard.Phases{Whitelist: p.Whitelist, FS: p.FS, Tripwires: p.Tripwires, Caps: p.Caps, Egress: p.Egress, Provenance: p.Provenance},
		Policy:    policyConfig(c, packageHosts...),
		Store:     store,
		Lowerer:   lowerer,
		SelfPaths: selfPaths(c, store),
		User:      userName(),
		Logf:      log.printf,
		Secret:    secret, OriginBytes: c.Provenance().MaxText, ProposalTTL: c.ProposalTTL(), Judge: judge,
	})
	if err != nil {
		return nil, exitError{exitUsage, err} // what is wrong comes from the configuration
	}
	return g, nil
}

// policyConfig is what policies are made from. packageHosts are those of the
// package ecosystems, which are part of the baseline.
func policyConfig(c *config.Config, packageHosts ...string) policy.Config {
	caps := c.Caps()
	p := policy.Config{
		Profile: c.Profile(), BaselineHosts: append(egress.Baseline(), packageHosts...), AllowHosts: c.AllowHosts(), AllowTools: c.AllowTools(),
		Read: c.Read(), Write: c.Write(), TenantOverride: c.TenantOverride(), Tenants: map[string]policy.Override{},
		Caps: policy.Caps{ToolCalls: caps.ToolCalls, Exec: caps.Exec, BytesWritten: caps.BytesWritten, CostUSD: caps.CostUSD},
	}
	for name, t := range c.Tenants() {
		p.Tenants[name] = policy.Override{
			Tier: t.Tier, Hosts: t.AllowHosts, Tools: t.Tools,
			ToolCalls: t.ToolCalls, Exec: t.Exec, BytesWritten: t.BytesWritten, CostUSD: t.CostUSD,
		}
	}
	return p
}

// selfPaths are what a call must not touch: the database with all that lies
// beside it under its name, and the configuration.
func selfPaths(c *config.Config, store *sqlite.Store) []string {
	db := store.Path()
	paths := []string{db, db + "-wal", db + "-shm", db + ".kills", db + ".secret"}
	if def, err := sqlite.DefaultPath(); err == nil {
		paths = append(paths, filepath.Dir(def))
	}
	if c.File() != "" {
		paths = append(paths, c.File())
	}
	if dir, err := os.UserConfigDir(); err == nil {
		paths = append(paths, filepath.Join(dir, "cordon"))
	}
	return paths
}

// userName is the account that tools run as.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// lineLog writes whole lines to stderr from many goroutines.
type lineLog struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineLog) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "cordon: "+format+"\n", args...)
}
