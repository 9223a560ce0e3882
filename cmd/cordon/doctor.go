package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/cordon-sandbox/cordon/contain/sandbox"
	"github.com/spf13/cobra"
)

func doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this host can hold, what it cannot, and what to do about it",
		Long: `Say what this host can hold, what it cannot, and what to do about it. Each
control is tried for real. With --agent, a copy of the hook that is installed for
it is tried, with faults, and it is said what the agent would do.

Exit status: 0 a runtime is available, or the hook works; 1 not.`,
		Args: cobra.NoArgs,
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	agent := cmd.Flags().String("agent", "", "try the hook of an `AGENT`: claude, codex, cursor or gemini")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *agent != "" {
			return agentDoctor(cmd, *agent, *asJSON)
		}
		reports, err := probeAll(cmd.Context())
		if err != nil {
			return err
		}
		if *asJSON {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(reports)
		} else if err = printProbes(cmd.OutOrStdout(), reports); err == nil {
			err = printPackages(cmd)
		}
		if err == nil && !slices.ContainsFunc(reports, func(r sandbox.Report) bool { return r.Available }) {
			return exitError{code: exitMalfunction}
		}
		return err
	}
	return cmd
}

// probeAll tries each runtime, the strongest first.
func probeAll(ctx context.Context) ([]sandbox.Report, error) {
	state, err := stateDir()
	if err != nil {
		return nil, err
	}
	var reports []sandbox.Report
	for _, r := range runtimes {
		runtime, err := r.open(state)
		if err != nil {
			return nil, err
		}
		reports = append(reports, runtime.Probe(ctx))
		if err := runtime.Close(); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

func printProbes(out io.Writer, reports []sandbox.Report) error {
	chosen := ""
	for _, r := range reports {
		if err := printProbe(out, r); err != nil {
			return err
		}
		if fits(r) && chosen == "" {
			chosen = r.Runtime
		}
	}
	if chosen != "" {
		_, err := fmt.Fprintf(out, "--runtime auto would take: %s\n", chosen)
		return err
	}
	return nil
}

// printPackages says which package registries a run may reach, and why.
func printPackages(cmd *cobra.Command) error {
	c, err := (&configFlags{cmd: cmd}).load()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	hosts, problems, err := packageReport(cmd.Context(), c, dir)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package registries:")
	for _, h := range hosts {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", h.Ecosystem, printable(h.Rule()), printable(h.Why))
	}
	for _, p := range problems {
		fmt.Fprintf(w, "  %s\t-\t%s; %s\n", p.Ecosystem, printable(p.What), printable(p.Hint))
	}
	return w.Flush()
}

func printProbe(out io.Writer, r sandbox.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	state := "available"
	if !r.Available {
		state = "not available: " + r.Why
	}
	fmt.Fprintf(w, "runtime %s: %s\n", r.Runtime, state)
	if r.Unfit != "" {
		fmt.Fprintf(w, "but not for --runtime auto: %s\n", r.Unfit)
	}
	if r.Fix != "" {
		fmt.Fprintf(w, "to do: %s\n", r.Fix)
	}
	for _, h := range r.Controls {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", h.Control, h.State, h.Note)
	}
	return w.Flush()
}
