package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/door/mcp"
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
	maxResult := cmd.Flags().Int("max-result", 0, "cap of one tool result in `BYTES` (default 1 MiB)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		core, run, err := flags.open()
		if err != nil {
			return err
		}
		if run.Session == "" {
			run.Session = mcpSession(run, args)
		}
		err = mcp.Serve(cmd.Context(), mcp.Config{
			Guard: core.guard, Mode: core.config.Mode(), Run: run, Server: *server, Command: args, Env: os.Environ(),
			Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), MaxResult: *maxResult,
		})
		return errors.Join(serverExit(err), core.close())
	}
	return cmd
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
