package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/spf13/cobra"
)

func violationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "violations",
		Short: "List the decisions that refused, or would have refused",
		Args:  cobra.NoArgs,
	}
	flags := addConfigFlags(cmd)
	var f audit.Filter
	fl := cmd.Flags()
	fl.StringVar(&f.RunID, "run", "", "only of this run `ID`")
	fl.StringVar(&f.SessionID, "session", "", "only of this session")
	fl.StringVar(&f.TenantID, "tenant", "", "only of this tenant")
	fl.StringVar(&f.Tool, "tool", "", "only of this tool")
	fl.StringVar(&f.Phase, "phase", "", "only of this phase (A to E)")
	fl.StringVar(&f.Type, "type", "", "only of this violation type")
	fl.StringVar(&f.Rule, "rule", "", "only where this rule fired")
	fl.StringVar(&f.Decision, "decision", "", "only restricted, or only blocked")
	from := fl.String("since", "", "only after this `TIME`, or in the last DURATION")
	fl.IntVar(&f.Limit, "limit", 100, "the last `N` rows; 0 is all")
	asJSON := fl.Bool("json", false, "print JSON Lines")
	follow := fl.BoolP("follow", "f", false, "go on printing new rows as they come")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = since("--since", *from); err != nil {
			return err
		}
		if err := checkFilter(f); err != nil {
			return err
		}
		f.Newest = true
		show := violationTable
		if *asJSON {
			show = printJSON[audit.Violation]
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			rows, err := s.Violations(ctx, f)
			if err != nil {
				return err
			}
			if err := show(cmd.OutOrStdout(), rows); err != nil || !*follow {
				return err
			}
			if n := len(rows); n > 0 {
				f.AfterSeq = rows[n-1].Seq
			}
			if !*asJSON {
				show = violationLines // the header stands already
			}
			return followViolations(ctx, s, f, func(rows []audit.Violation) error { return show(cmd.OutOrStdout(), rows) })
		})
	}
	return cmd
}

// checkFilter refuses values that no row can have.
func checkFilter(f audit.Filter) error {
	if f.Limit < 0 {
		return usagef("--limit %d (want 0 or more)", f.Limit)
	}
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"--phase", f.Phase, []string{"A", "B", "C", "D", "E"}},
		{"--decision", f.Decision, []string{"restricted", "blocked"}},
		{"--type", f.Type, []string{string(cordon.FSPath), string(cordon.ToolWhitelist), string(cordon.Tripwire), string(cordon.EgressHost),
			string(cordon.Provenance), string(cordon.CapExceeded), string(cordon.KilledRun), string(cordon.Malformed)}},
	} {
		if c.value != "" && !slices.Contains(c.known, c.value) {
			return usagef("%s %q (want one of %q)", c.flag, c.value, c.known)
		}
	}
	return nil
}

const followEvery = 250 * time.Millisecond

// followViolations shows what comes after f.AfterSeq until ctx ends.
func followViolations(ctx context.Context, s audit.Store, f audit.Filter, show func([]audit.Violation) error) error {
	f.Limit, f.Newest = 0, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		rows, err := s.Violations(ctx, f)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if n := len(rows); n > 0 {
			f.AfterSeq = rows[n-1].Seq
			if err := show(rows); err != nil {
				return err
			}
		}
	}
}

const violationHeader = "SEQ\tTIME\tRUN\tTOOL\tDECISION\tPHASE\tRULE\tDETAIL"

func violationTable(out io.Writer, rows []audit.Violation) error {
	return violationRows(out, rows, violationHeader)
}

func violationLines(out io.Writer, rows []audit.Violation) error {
	return violationRows(out, rows, "")
}

func violationRows(out io.Writer, rows []audit.Violation, header string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if header != "" {
		fmt.Fprintln(w, header)
	}
	for i := range rows {
		v := &rows[i]
		var m audit.Metadata
		if err := json.Unmarshal([]byte(v.MetadataJSON), &m); err != nil {
			m.Rule = "?"
		}
		decision := v.Decision
		switch {
		case v.Killed:
			decision += ", killed"
		case !v.Enforced:
			decision += " (shadow)"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Seq, clock(v.Timestamp), printable(v.RunID), printable(v.ToolName), decision, v.Phase, m.Rule, printable(v.Detail))
	}
	return w.Flush()
}

func runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List runs and what became of their calls",
		Args:  cobra.NoArgs,
	}
	flags := addConfigFlags(cmd)
	var f audit.RunFilter
	fl := cmd.Flags()
	fl.StringVar(&f.SessionID, "session", "", "only of this session")
	fl.StringVar(&f.TenantID, "tenant", "", "only of this tenant")
	fl.StringVar(&f.AgentID, "agent", "", "only of this agent")
	fl.StringVar(&f.Tier, "tier", "", "only of this tier")
	from := fl.String("since", "", "only after this `TIME`, or in the last DURATION")
	fl.IntVar(&f.Limit, "limit", 50, "the newest `N` runs; 0 is all")
	asJSON := fl.Bool("json", false, "print JSON Lines")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = since("--since", *from); err != nil {
			return err
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			runs, err := s.Runs(ctx, f)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), runs)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "RUN\tOPENED\tTIER\tPROFILE\tMODE\tALLOWED\tRESTRICTED\tBLOCKED\tSTATE\tSESSION")
			for i := range runs {
				r := &runs[i]
				state := "open"
				switch {
				case r.Killed && r.Mode != cordon.Enforce.String():
					state = "killed (" + r.Mode + ": nothing is refused)"
				case r.Killed:
					state = "killed"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", printable(r.RunID), clock(r.CreatedAt), r.Tier, r.Profile, r.Mode,
					r.Allowed, r.Restricted, r.Blocked, state, printable(r.SessionID))
			}
			return w.Flush()
		})
	}
	return cmd
}
