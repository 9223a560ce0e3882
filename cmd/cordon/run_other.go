//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run -- COMMAND [ARG…]",
		Short: "Run a command inside walls (Linux only)",
		RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("cordon run needs the Linux kernel; this is %s", runtime.GOOS)
		},
	}
}
