//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

const insideName = "inside"

func insideCommand() *cobra.Command {
	cmd := runCommand()
	cmd.Use, cmd.Hidden = insideName, true
	return cmd
}

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run -- COMMAND [ARG…]",
		Short: "Run a command inside walls (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("cordon run needs the Linux kernel; this is %s", runtime.GOOS)
		},
	}
}
