package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/mcp"
	"github.com/cordon-sandbox/cordon/door/mcp/gateway"
	"github.com/spf13/cobra"
)

func gatewayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Stand in front of several MCP servers, over HTTP",
		Long: `Serve the MCP servers of the configuration's section "gateway", each at
/mcp/NAME and all of them at /mcp, where tools are named SERVER__TOOL and
resources SERVER+URI. Who calls is told by a bearer token, which fixes tenant,
agent, tier and workspace. Clients and servers may speak any revision of the
protocol; what differs is translated.

When it listens, one line {"listen":"…"} with the real address is printed. A
signal ends it: requests in flight may finish, new ones are refused.

A server with "command" runs in sandbox native unless its "sandbox" says none.
There its program has to be readable: what is not the system's is named by
--read, as the directory of a server's packages is.`,
		Example: `  # cordon.yaml; "cordon gateway token" makes a token and its hash
  gateway:
    servers:
      - name: files
        transport: stdio
        command: [node, /opt/mcp/server-filesystem/dist/index.js, /home/me/project]
    tokens:
      - sha256: 64 hex digits
        agent: my-agent
        tier: supervised
        workspace: /home/me/project

  cordon gateway --config cordon.yaml --workspace /home/me/project --read /opt/mcp`,
		Args: cobra.NoArgs,
	}
	flags := addRunFlags(cmd)
	for _, name := range []string{"run-id", "session", "tenant", "agent", "user", "tier"} {
		_ = cmd.Flags().MarkHidden(name) // the tokens say it; all of them exist
	}
	listen := cmd.Flags().String("listen", "", "`ADDR` to listen on, host:port (default gateway.listen, 127.0.0.1:7788)")
	maxResult := cmd.Flags().Int("max-result", 0, "cap of one tool result in `BYTES` (default 1 MiB)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"run-id", "session", "tenant", "agent", "user", "tier"} {
			if cmd.Flags().Changed(name) {
				return usagef("--%s: the gateway's tokens say it (see gateway.tokens in the configuration)", name)
			}
		}
		return runGateway(cmd, flags, *listen, *maxResult)
	}
	cmd.AddCommand(gatewayTokenCommand())
	return cmd
}

func gatewayTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Make a bearer token, and the hash of it for the configuration",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			secret, hash := gateway.NewSecret()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "token:  %s\nsha256: %s\n", secret, strings.TrimPrefix(hash, "sha256:"))
			return err
		},
	}
}

func runGateway(cmd *cobra.Command, flags *runFlags, listen string, maxResult int) (err error) {
	core, run, err := flags.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, core.close()) }()
	settings := core.config.Gateway()
	cfg, err := gatewayConfig(core, settings, run)
	if err != nil {
		return exitError{exitUsage, err}
	}
	cfg.MaxResult, cfg.Stderr = maxResult, cmd.ErrOrStderr()
	core.retire(cmd.Context())
	if cfg.Guard, err = undo(core); err != nil {
		return err
	}
	if cfg.DeliverTagged, err = deliverTagged(core.config); err != nil {
		return err
	}
	cfg.StartSandboxed = flags.startBoxed(cmd.ErrOrStderr())
	if listen == "" {
		listen = settings.Listen
	}
	g, err := gateway.New(cfg)
	if err != nil {
		return exitError{exitUsage, err}
	}
	defer g.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", listen, err)
	}
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && !net.ParseIP(host).IsLoopback() {
		core.log.printf("gateway: %s is no loopback address: tokens go over it in the clear unless a proxy with TLS is in front", l.Addr())
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "{\"listen\":%q}\n", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	return g.Serve(cmd.Context(), l)
}

// gatewayConfig makes the gateway's configuration out of the file's.
func gatewayConfig(core *core, c config.Gateway, run cordon.Run) (gateway.Config, error) {
	cfg := gateway.Config{
		Mode: core.config.Mode(), Workspace: run.Workspace, Home: run.Home,
		Hosts: c.AllowedHosts, Origins: c.AllowedOrigins, Logf: core.log.printf,
		Limits: gateway.Limits{
			Body: c.Limits.BodyBytes, Header: int(c.Limits.HeaderBytes), Requests: int(c.Limits.Concurrent),
			Sessions: int(c.Limits.Sessions), Call: c.Limits.Timeout,
		},
	}
	for _, s := range c.Servers {
		server := gateway.Server{Name: s.Name, Command: s.Command, URL: s.URL, SSE: s.Transport == "sse", Sandbox: s.Sandbox}
		if s.Sandbox == "none" {
			server.Sandbox = ""
		}
		if s.URL == "" {
			server.Env = serverEnv(s)
		}
		for name, value := range s.Headers {
			if value.Reveal() == "" {
				return cfg, fmt.Errorf("gateway: server %q: the variable %s for its header %s is not set", s.Name, s.HeadersEnv[name], name)
			}
			if server.Header == nil {
				server.Header = http.Header{}
			}
			server.Header.Set(name, value.Reveal())
		}
		cfg.Servers = append(cfg.Servers, server)
	}
	for i, t := range c.Tokens {
		if t.SHA256 == "" {
			core.log.printf("gateway: token %d: the variable %s holds no token of at least %d bytes; nobody has it", i+1, t.TokenEnv, config.MinToken)
			continue
		}
		id := gateway.Identity{
			Name: "token-" + t.SHA256[:8], Tenant: t.Tenant, Agent: t.Agent, User: t.User, Tier: t.Tier, Profile: t.Profile,
			Workspace: t.Workspace, Servers: t.Servers, NoElicitation: !t.AsksItsUser,
		}
		if t.Servers == nil {
			id.Servers = []string{"*"}
		}
		if id.Profile == "" {
			id.Profile = core.config.Profile()
		}
		cfg.Tokens = append(cfg.Tokens, gateway.Token{Identity: id, Hash: t.SHA256})
	}
	return cfg, nil
}

// startBoxed starts servers inside walls, each under the run that it is for.
func (f *runFlags) startBoxed(stderr io.Writer) func(context.Context, cordon.Run, string, []string, []string) (io.ReadWriteCloser, func() error, error) {
	return func(_ context.Context, run cordon.Run, runtime string, argv, env []string) (io.ReadWriteCloser, func() error, error) {
		var names []string
		for _, kv := range env {
			if name, _, _ := strings.Cut(kv, "="); !slices.Contains(baseEnv, name) {
				names = append(names, name) // the value is not for the list of processes
			}
		}
		command, err := f.boxed(runtime, names, run, argv)
		if err != nil {
			return nil, nil, err
		}
		// The flags of the gateway's own command are there; the token's come
		// after them, and count.
		id := []string{"--tier=" + run.Tier.String(), "--tenant=" + run.Tenant, "--agent=" + run.Agent, "--user=" + run.User, "--session=" + run.Session}
		if run.Profile != "" {
			id = append(id, "--profile="+run.Profile)
		}
		command = slices.Insert(command, slices.Index(command, "--"), id...)
		// From where Cordon runs: paths among its flags are relative to it.
		p, err := mcp.Start(argv[0], command, append(os.Environ(), env...), "", stderr, 0)
		if err != nil {
			return nil, nil, err
		}
		return p, p.Wait, nil
	}
}

// baseEnv is what programs need to run at all.
var baseEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LC_ALL", "TZ"}

// serverEnv is the environment of a server: what programs need to run at all,
// what the file sets, and the variables that it names. Cordon's own, with its
// keys, is not passed on.
func serverEnv(s config.GatewayServer) []string {
	env := []string{}
	for _, name := range slices.Concat(baseEnv, s.EnvFrom) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	return env
}
