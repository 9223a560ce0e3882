package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cordon-sandbox/cordon/audit"
	"github.com/spf13/cobra"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check the audit store",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditVerifyCommand(), auditHeadCommand())
	return cmd
}

func auditVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no row was changed, removed or inserted",
		Long: `Check the hash chain over all rows and say which row was changed, removed or
inserted. Whoever can write the whole store can also compute the chain anew;
that is noticed only with --head, a head that was kept elsewhere (see: cordon
audit head).

Exit status: 0 the chain holds, 4 it does not, 1 it could not be read.`,
		Args: cobra.NoArgs,
	}
	flags := addConfigFlags(cmd)
	heads := cmd.Flags().StringArray("head", nil, "a head kept elsewhere, as `SEQ:HASH` (repeatable)")
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		known, err := parseHeads(*heads)
		if err != nil {
			return err
		}
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			r, err := s.Verify(ctx, known...)
			if err != nil {
				return err
			}
			if err := printVerify(cmd, r, *asJSON); err != nil {
				return err
			}
			if !r.OK {
				return exitError{code: exitBlocked}
			}
			return nil
		})
	}
	return cmd
}

func parseHeads(list []string) ([]audit.Head, error) {
	var heads []audit.Head
	for _, h := range list {
		seq, hash, ok := strings.Cut(h, ":")
		n, err := strconv.ParseInt(seq, 10, 64)
		if !ok || err != nil || hash == "" {
			return nil, usagef("--head %q (want SEQ:HASH, as cordon audit head prints it)", h)
		}
		heads = append(heads, audit.Head{Seq: n, Hash: hash})
	}
	return heads, nil
}

func printVerify(cmd *cobra.Command, r audit.VerifyResult, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	if r.OK {
		_, err := fmt.Fprintf(out, "ok: %d rows, head %d:%s\n", r.Rows, r.Head.Seq, r.Head.Hash)
		return err
	}
	for _, f := range r.Faults {
		if _, err := fmt.Fprintf(out, "row %d %s: %s\n", f.Seq, printable(f.ID), printable(f.Reason)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "the chain of %d rows does not hold\n", r.Rows)
	return err
}

func auditHeadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "head",
		Short: "Print the end of the chain, to be kept elsewhere",
		Args:  cobra.NoArgs,
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return flags.withStore(func(ctx context.Context, s audit.Store) error {
			h, err := s.Head(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d:%s\n", h.Seq, h.Hash)
			return err
		})
	}
	return cmd
}
