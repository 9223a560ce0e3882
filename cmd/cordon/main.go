// Command cordon bounds what one tool call of an AI agent can do. Each
// subcommand stands in a file of its own; Run does everything that main
// does, with its input and output as arguments, so that tests drive it.
//
// What it does not stop is said by each package for its own part, and in
// docs/threat-model.md for the whole.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/cordon-sandbox/cordon/contain/sandbox/gvisor"
	"github.com/cordon-sandbox/cordon/contain/sandbox/inside"
	"github.com/cordon-sandbox/cordon/contain/sandbox/native"
	"github.com/cordon-sandbox/cordon/door/hook/daemon/relay"
	"github.com/spf13/cobra"
)

// Exit codes that scripts rely on.
const (
	exitOK          = 0
	exitMalfunction = 1
	exitUsage       = 2
	exitRestricted  = 3
	exitBlocked     = 4
	exitInterrupted = 130
	exitKilled      = 137
)

// Stdio is what a command reads and writes.
type Stdio struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

func main() {
	// This process may be a stage inside a sandbox.
	native.Main()
	gvisor.Main()
	inside.Main()
	stdin := relay.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := Run(ctx, os.Args[1:], Stdio{In: stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}

// exitError carries an exit code up to Run; err, when set, is printed.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// usagef is an error of the command line: exit 2.
func usagef(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Run carries out one command line and returns its exit code.
func Run(ctx context.Context, args []string, stdio Stdio) int {
	root := rootCommand()
	if completes(args) {
		addCompletions(root)
	}
	root.SetArgs(args)
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit exitError
	if !errors.As(err, &exit) {
		exit = exitError{exitMalfunction, err}
	}
	if exit.err != nil {
		fmt.Fprintf(stdio.Err, "cordon: %s\n", printableLines(strings.TrimPrefix(strings.TrimPrefix(exit.err.Error(), "cordon "), "cordon: ")))
	}
	return exit.code
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cordon",
		Short:         "Bounds what one tool call of an AI agent can do",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       versionText(),
	}
	root.SetVersionTemplate("cordon {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %q)", err, cmd.CommandPath()+" --help")
	})
	root.AddCommand(
		checkCommand(),
		mcpCommand(),
		gatewayCommand(),
		hookCommand(),
		daemonCommand(),
		installCommand(),
		uninstallCommand(),
		runCommand(),
		insideCommand(),
		proxyCommand(),
		proposalsCommand(),
		policyCommand(),
		runsCommand(),
		violationsCommand(),
		reportCommand(),
		killCommand(),
		auditCommand(),
		doctorCommand(),
		manCommand(),
		versionCommand(),
	)
	usageArgs(root)
	return root
}

// usageArgs turns wrong operands into usage errors, at every level.
func usageArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%s: %w (see %q)", cmd.CommandPath(), err, cmd.CommandPath()+" --help")
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

// version is set by the linker (-X main.version=…) in releases.
var version string

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "cordon %s\n", versionText())
			return err
		},
	}
}

func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
