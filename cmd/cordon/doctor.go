package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/cordon-sandbox/cordon/contain/sandbox/native"
	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can hold, what it cannot, and what to do about it",
		Long: `Say what this host can hold, what it cannot, and what to do about it. Each
control is tried for real.

Exit status: 0 a runtime is available, 1 none is.`,
		Args: cobra.NoArgs,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		runtime, err := native.New(native.Config{})
		if err != nil {
			return err
		}
		defer runtime.Close()
		report := runtime.Probe(cmd.Context())
		if *asJSON {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode([]sandbox.Report{report})
		} else {
			err = printProbe(cmd.OutOrStdout(), report)
		}
		if err == nil && !report.Available {
			return exitError{code: exitMalfunction}
		}
		return err
	}
	return cmd
}

func printProbe(out io.Writer, r sandbox.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	state := "available"
	if !r.Available {
		state = "not available: " + r.Why
	}
	fmt.Fprintf(w, "runtime %s: %s\n", r.Runtime, state)
	if r.Fix != "" {
		fmt.Fprintf(w, "to do: %s\n", r.Fix)
	}
	for _, h := range r.Controls {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", h.Control, h.State, h.Note)
	}
	return w.Flush()
}
