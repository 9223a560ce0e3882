package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/spf13/cobra"
)

func killCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kill [RUN]",
		Short: "End a run, release one that was ended, or list those that are",
		Long: `End a run: its calls in flight are cancelled and all later ones are refused,
at every door and after restarts, until it is released. Without RUN the runs
that are killed are listed. In shadow mode the kill is recorded and no call is
refused, but what cordon run has started for the run is ended.`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := addConfigFlags(cmd)
	release := cmd.Flags().Bool("release", false, "let the run go on")
	why := cmd.Flags().String("why", "", "the `REASON`, kept in the audit (needed to release)")
	asJSON := cmd.Flags().Bool("json", false, "print the list as JSON Lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && *release {
			return usagef("--release names no run (want: cordon kill --release RUN --why REASON)")
		}
		if len(args) == 0 && *why != "" {
			return usagef("--why without a run (want: cordon kill RUN --why REASON)")
		}
		if *release && *why == "" {
			return usagef("--release without --why (want: cordon kill --release RUN --why REASON)")
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			switch {
			case len(args) == 0:
				return listKills(cmd, s, *asJSON)
			case *release:
				if err := s.Release(ctx, args[0], userName(), *why); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "released %s\n", args[0])
				return err
			}
			return killRun(ctx, cmd, s, args[0], *why)
		})
	}
	return cmd
}

func killRun(ctx context.Context, cmd *cobra.Command, s audit.Store, runID, why string) error {
	run, ok, err := s.Run(ctx, runID)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("no run %q is stored (see: cordon runs)", runID)
	}
	rule := "operator"
	if why != "" {
		rule += ": " + why
	}
	if err := s.Kill(ctx, audit.Kill{RunID: runID, TenantID: run.TenantID, SessionID: run.SessionID, At: time.Now(), Rule: rule}); err != nil {
		return err
	}
	text := "killed " + runID
	if run.Mode != cordon.Enforce.String() {
		text = "recorded the kill of " + runID + "; it was opened in mode " + run.Mode + ", in which no call is refused; a command of cordon run ends all the same"
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

func listKills(cmd *cobra.Command, s audit.Store, asJSON bool) error {
	kills, err := s.Kills(cmd.Context())
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), kills)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tKILLED\tRULE\tSESSION")
	for _, k := range kills {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(k.RunID), clock(k.At), printable(k.Rule), printable(k.SessionID))
	}
	return w.Flush()
}
