package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/guard/proposal"
	"github.com/spf13/cobra"
)

func proposalsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proposals",
		Short: "Show calls that wait for a person, and answer them",
		Long: `Show the calls that were held back for a person, and answer them. An approval
is for one call with exactly these arguments, serves once, and the call passes
every other phase again. An agent that is judged by Cordon may not run this.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(proposalsListCommand(), proposalsShowCommand(), proposalsAnswerCommand("approve", true), proposalsAnswerCommand("reject", false))
	return cmd
}

// withBook runs f on the proposals of the store that the flags name.
func (f *configFlags) withBook(do func(ctx context.Context, b *proposal.Book) error) error {
	c, err := f.load()
	if err != nil {
		return err
	}
	return f.withStore(func(ctx context.Context, s audit.Store) error {
		book, err := proposal.New(proposal.Config{Store: s, TTL: c.ProposalTTL()})
		if err != nil {
			return err
		}
		return do(ctx, book)
	})
}

func proposalsListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List proposals, newest first", Args: cobra.NoArgs}
	flags := addConfigFlags(cmd)
	state := cmd.Flags().String("state", "", "only those in `STATE`: pending, approved, rejected, expired, executed, failed or cancelled")
	run := cmd.Flags().String("run-id", "", "only those of the run `ID`")
	limit := cmd.Flags().Int("limit", 100, "at most so `MANY`")
	asJSON := cmd.Flags().Bool("json", false, "print JSON Lines")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter := audit.ProposalFilter{RunID: *run, Limit: *limit}
		if *state != "" {
			s, err := audit.ParseProposalState(*state)
			if err != nil {
				return exitError{exitUsage, err}
			}
			filter.State = s
		}
		return flags.withBook(func(ctx context.Context, b *proposal.Book) error {
			list, err := b.List(ctx, filter)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "PROPOSAL\tSTATE\tMADE\tTOOL\tWHY")
			for _, p := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.ID, p.State, clock(p.CreatedAt), printable(p.Tool), printable(clipped(p.Reason, 100)))
			}
			return w.Flush()
		})
	}
	return cmd
}

// clipped is the beginning of a text, at a character's end.
func clipped(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func proposalsShowCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "show ID", Short: "Show one proposal, with its history", Args: cobra.ExactArgs(1)}
	flags := addConfigFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.withBook(func(ctx context.Context, b *proposal.Book) error {
			p, events, ok, err := b.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("there is no proposal %q (see: cordon proposals list)", args[0])
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), []any{struct {
					audit.Proposal
					Events []audit.ProposalEvent `json:"events"`
				}{p, events}})
			}
			return printProposal(cmd, &p, events)
		})
	}
	return cmd
}

func printProposal(cmd *cobra.Command, p *audit.Proposal, events []audit.ProposalEvent) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	tool := p.Tool
	if p.Server != "" {
		tool = p.Server + "/" + tool
	}
	for _, line := range [][2]string{
		{"proposal", p.ID}, {"state", string(p.State)}, {"tool", tool}, {"arguments", p.Args}, {"why", p.Reason},
		{"texts", strings.Join(p.Chunks, " ")}, {"run", p.RunID}, {"agent", p.AgentID}, {"tenant", p.TenantID},
		{"made", clock(p.CreatedAt)}, {"until", clock(p.ExpiresAt)},
	} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], printable(line[1]))
		}
	}
	if int64(len(p.Args)) < p.ArgsBytes {
		fmt.Fprintf(w, "note\tthe arguments are %d bytes long; not all of them are shown\n", p.ArgsBytes)
	}
	for _, e := range events {
		fmt.Fprintf(w, "%s\t%s by %s %s\n", clock(e.At), e.State, printable(e.By), printable(e.Why))
	}
	return w.Flush()
}

// errOwnApproval: what runs inside Cordon's walls is the agent, not a person.
var errOwnApproval = errors.New("this is a run of an agent, which cannot answer proposals; ask a person")

func proposalsAnswerCommand(verb string, approve bool) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " ID", Short: strings.ToUpper(verb[:1]) + verb[1:] + " a call that waits", Args: cobra.ExactArgs(1),
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if os.Getenv("CORDON_RUN") != "" {
			return errOwnApproval
		}
		return flags.withBook(func(ctx context.Context, b *proposal.Book) error {
			if err := b.Resolve(ctx, args[0], approve, userName()+" by the command line"); err != nil {
				return err
			}
			p, _, _, err := b.Get(ctx, args[0])
			if err != nil {
				return err
			}
			until := ""
			if approve {
				until = fmt.Sprintf(" once, until %s", p.ExpiresAt.Local().Format(time.TimeOnly))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s%s\n", p.ID, p.State, until)
			return err
		})
	}
	return cmd
}
