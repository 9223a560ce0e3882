package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/mcp"
	"github.com/cordon-sandbox/cordon/guard/provenance"
	"github.com/spf13/cobra"
)

func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp [flags] -- SERVER [ARG…]",
		Short: "Stand in front of an MCP server on standard input and output",
		Long: `Start an MCP server and stand between it and the client: tools/list shows
what the tier may call, tools/call is decided before it is forwarded, and all
else passes untouched.

The exit status is the server's where it ended by itself, 137 where the run
was killed, 130 where a signal ended Cordon.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no server command (want: cordon mcp [flags] -- SERVER [ARG…])")
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usagef("cordon mcp: %w (the server's command stands behind --: cordon mcp [flags] -- SERVER [ARG…])", err)
	})
	flags := addRunFlags(cmd)
	server := cmd.Flags().String("server", "", "`NAME` of the server, as tools are qualified by it (default from the command)")
	box := cmd.Flags().String("sandbox", "", "run the server inside walls, by the runtime `NAME` (or auto); the workspace is worked in in place")
	pass := cmd.Flags().StringArray("env", nil, "with --sandbox: a variable that the server gets, `NAME` or NAME=VALUE (repeatable)")
	prompt := cmd.Flags().String("prompt", "", "the `TEXT` of what the user asked for: what it names is not taken for the idea of some web page")
	maxResult := cmd.Flags().Int("max-result", 0, "cap of one tool result in `BYTES` (default 1 MiB)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		core, run, err := flags.open()
		if err != nil {
			return err
		}
		if run.Session == "" {
			run.Session = mcpSession(run, args)
		}
		name := *server
		if name == "" {
			name = mcp.ServerName(args)
		}
		if run.ID == "" {
			run.ID = "mcp-" + rand.Text()
		}
		command, err := flags.boxed(*box, *pass, run, args)
		if err != nil {
			return errors.Join(err, core.close())
		}
		if *prompt != "" {
			if _, err := core.guard.Record(cmd.Context(), run, cordon.Chunk{Type: cordon.UserText, Source: "--prompt", Text: *prompt}); err != nil {
				return errors.Join(err, core.close())
			}
		}
		core.retire(cmd.Context())
		judged, err := undo(core)
		if err != nil {
			return errors.Join(err, core.close())
		}
		deliver, err := deliverTagged(core.config)
		if err != nil {
			return errors.Join(err, core.close())
		}
		err = mcp.Serve(cmd.Context(), mcp.Config{
			Guard: judged, Mode: core.config.Mode(), Run: run, Server: name, Command: command, Env: os.Environ(),
			Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), MaxResult: *maxResult, DeliverTagged: deliver,
		})
		return errors.Join(serverExit(err), core.close())
	}
	return cmd
}

// deliverTagged is how untrusted texts are handed to the agent, or nil for as
// they are.
func deliverTagged(c *config.Config) (func(cordon.Chunk) string, error) {
	p := c.Provenance()
	if !p.DeliverTagged {
		return nil, nil
	}
	style := provenance.Style{}
	if p.Datamark {
		style.Mark = datamark
	}
	r, err := provenance.NewRenderer(style)
	if err != nil {
		return nil, err
	}
	return r.Render, nil
}

// datamark stands between the words of untrusted text.
const datamark = '\u02c6'

// boxed is the command that runs the server inside walls: this program again,
// under the run and the settings of its client. Without a runtime it is args.
func (f *runFlags) boxed(runtime string, pass []string, run cordon.Run, args []string) ([]string, error) {
	if runtime == "" {
		if len(pass) > 0 {
			return nil, usagef("--env without --sandbox: the server has Cordon's environment anyhow")
		}
		return args, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := []string{self, insideName, "--runtime", runtime, "--workspace", run.Workspace, "--home", run.Home, "--run-id", run.ID}
	for _, name := range []string{"config", "db", "profile", "tier", "mode", "read", "write", "allow-host", "ecosystem", "tenant"} {
		flag := f.cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, err := f.cmd.Flags().GetStringArray(name); err == nil {
			values = list
		}
		for _, v := range values {
			command = append(command, "--"+name+"="+v)
		}
	}
	for _, name := range pass {
		command = append(command, "--env="+name)
	}
	return append(append(command, "--"), args...), nil
}

// mcpSession names what stays the same when the client starts Cordon again:
// a run that was killed must not go on because of a restart, nor because its
// workspace or its server is spelled in another way.
func mcpSession(r cordon.Run, command []string) string {
	place := r.Workspace
	if real, err := filepath.EvalSymlinks(place); err == nil {
		place = real
	}
	sum := sha256.Sum256([]byte(place))
	return "mcp:" + mcp.ServerName(command) + ":" + hex.EncodeToString(sum[:6])
}

// serverExit passes the server's own exit code through; a run that was killed
// and a signal to Cordon have the codes that shells give them.
func serverExit(err error) error {
	var exit *mcp.ExitError
	switch {
	case errors.As(err, &exit):
		return exitError{exit.Code, err}
	case errors.Is(err, cordon.ErrKilled):
		return exitError{exitKilled, err}
	case errors.Is(err, context.Canceled):
		return exitError{code: exitInterrupted}
	}
	return err
}
