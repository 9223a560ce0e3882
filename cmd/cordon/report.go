package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/spf13/cobra"
)

func reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Say what was refused, or would have been, by rule, tool, tier and phase",
		Args:  cobra.NoArgs,
	}
	flags := addConfigFlags(cmd)
	var f audit.ReportFilter
	fl := cmd.Flags()
	fl.StringVar(&f.RunID, "run", "", "only of this run `ID`")
	fl.StringVar(&f.Tier, "tier", "", "only of this tier")
	fl.StringVar(&f.Tool, "tool", "", "only of this tool")
	from := fl.String("since", "", "only after this `TIME`, or in the last DURATION")
	asJSON := fl.Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if f.Since, err = since("--since", *from); err != nil {
			return err
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			r, err := s.Report(ctx, f)
			if err != nil {
				return err
			}
			if *asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			return printReport(cmd.OutOrStdout(), r)
		})
	}
	return cmd
}

const barWidth = 30

func printReport(out io.Writer, r audit.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "calls\t%d\n", r.Total)
	for _, row := range []struct {
		name string
		n    int64
	}{{"allowed", r.Allowed}, {"restricted", r.Restricted}, {"blocked", r.Blocked}} {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", row.name, row.n, share(row.n, r.Total), bar(row.n, r.Total, barWidth))
	}
	fmt.Fprintf(w, "refused\t%d\t\tkilled %d\n", r.Refused, r.Kills)
	fmt.Fprintf(w, "enforcement would have refused\t%d\t\tand killed %d\n", r.WouldRefuse, r.WouldKill)
	for _, part := range []struct {
		title string
		lines []audit.ReportLine
	}{{"RULE", r.ByRule}, {"TOOL", r.ByTool}, {"TIER", r.ByTier}, {"PHASE", r.ByPhase}} {
		printLines(w, part.title, part.lines)
	}
	return w.Flush()
}

func printLines(w io.Writer, title string, lines []audit.ReportLine) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\tRESTRICTED\tBLOCKED\tOF CALLS\tRATE\t\n", title)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", name(l.Name), l.Restricted, l.Blocked, l.Total, share(l.Hits(), l.Total), bar(l.Hits(), l.Total, barWidth))
	}
}

// name is a line's name; a call that could not be read has no tool.
func name(s string) string {
	if s == "" {
		return "(none)"
	}
	return printable(s)
}

func share(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}
