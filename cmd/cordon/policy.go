package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/contain/egress"
	"github.com/cordon-sandbox/cordon/guard/poison"
	"github.com/cordon-sandbox/cordon/guard/policy"
	"github.com/cordon-sandbox/cordon/internal/strictjson"
	"github.com/spf13/cobra"
)

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show and check the configuration, and the tools that are pinned",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(policyShowCommand(), policyCheckCommand(), policySchemaCommand(), policyPinsCommand(), policyPinCommand())
	return cmd
}

func policyShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration and where each value came from",
		Args:  cobra.NoArgs,
	}
	flags := addRunFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		run, err := flags.run(c)
		if err != nil {
			return err
		}
		issuer, err := policy.NewIssuer(policyConfig(c, newPackages(c, resolveTime, run.Workspace).hosts(cmd.Context(), &lineLog{w: cmd.ErrOrStderr()})...))
		if err != nil {
			return exitError{exitUsage, err}
		}
		p, err := issuer.Issue(run)
		if err == nil {
			_, err = egress.ParseRules(p.Hosts())
		}
		if err != nil {
			return exitError{exitUsage, err}
		}
		if _, err := catalogueOf(c); err != nil {
			return err
		}
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"settings": c.Settings(), "file": c.File(), "notes": c.Notes(), "policy": p})
		}
		return showPolicy(cmd, c, p)
	}
	return cmd
}

func showPolicy(cmd *cobra.Command, c *config.Config, p *policy.Policy) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tFROM")
	for _, s := range c.Settings() {
		from := s.Source
		if s.SourceDetail != "" {
			from += " (" + s.SourceDetail + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, from)
	}
	fmt.Fprintf(w, "\nA run opened now would get (policy hash %.12s):\n", p.Hash())
	for _, r := range p.Roots() {
		access := "read"
		if r.Write {
			access = "read and write"
		}
		fmt.Fprintf(w, "root\t%s\t%s\n", r.Path, access)
	}
	for _, h := range p.Hosts() {
		fmt.Fprintf(w, "host\t%s\t\n", h)
	}
	for _, note := range c.Notes() {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	return w.Flush()
}

func policyPinsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pins [SERVER]",
		Short: "List the tool definitions that were approved, and those that wait",
		Args:  cobra.MaximumNArgs(1),
	}
	flags := addConfigFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON Lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		server := "*"
		if len(args) > 0 {
			server = args[0]
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			pins, err := s.Pins(ctx, server)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), pins)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SERVER\tTOOL\tAPPROVED\tHASH\tWAITING\tFOUND")
			known := &poison.Names{}
			for _, p := range pins {
				known.Add(p.Server, p.Tool)
			}
			for _, p := range pins {
				fmt.Fprintf(w, "%s\t%s\t%s\t%.12s\t%.12s\t%s\n", printable(p.Server), printable(p.Tool), clock(p.ApprovedAt), p.Hash, p.PendingHash, found(&p, known))
			}
			return w.Flush()
		})
	}
	return cmd
}

// found is what the definition that waits, or else the approved one, holds
// against itself.
func found(p *audit.Pin, known *poison.Names) string {
	raw := p.PendingDefinition
	if raw == "" {
		raw = p.Definition
	}
	tree, err := strictjson.Parse([]byte(raw))
	if err != nil {
		return ""
	}
	return poison.Summary(poison.Check(&cordon.ToolDef{Server: p.Server, Name: p.Tool}, &tree, known))
}

func policyPinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin SERVER TOOL",
		Short: "Approve the changed definition of a tool that is in quarantine",
		Long: `Approve the changed definition of a tool that is in quarantine. Without --yes
the old and the new definition are printed and nothing is approved.`,
		Args: cobra.ExactArgs(2),
	}
	flags := addConfigFlags(cmd)
	yes := cmd.Flags().Bool("yes", false, "approve")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			pin, err := pendingPin(ctx, s, args[0], args[1])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "approved %.12s:\n  %s\nnow %.12s:\n  %s\n", pin.Hash, printable(pin.Definition), pin.PendingHash, printable(pin.PendingDefinition))
			if !*yes {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "nothing was approved; to approve the new one: cordon policy pin %s %s --yes\n", args[0], args[1])
				return err
			}
			return s.ApprovePin(ctx, pin.Server, pin.Tool, pin.PendingHash)
		})
	}
	return cmd
}

func pendingPin(ctx context.Context, s audit.Store, server, tool string) (audit.Pin, error) {
	pins, err := s.Pins(ctx, server)
	if err != nil {
		return audit.Pin{}, err
	}
	for _, p := range pins {
		if p.Tool == tool && p.PendingHash != "" {
			return p, nil
		}
	}
	return audit.Pin{}, fmt.Errorf("no changed definition of tool %q of server %q waits for approval (see: cordon policy pins)", tool, server)
}
