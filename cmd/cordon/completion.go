package main

import (
	"context"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/audit"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/hook/install"
	"github.com/spf13/cobra"
)

// completes reports whether a shell asks for what could stand next on a line.
// Other starts, of which a hook is one a call, need no completions.
func completes(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// addCompletions adds what a shell offers beyond names of commands and flags:
// the words that a flag takes, and what the audit database knows. It only
// reads; where there is no database, or it cannot be read, nothing is offered.
func addCompletions(root *cobra.Command) {
	for name, list := range operandCompletions() {
		if cmd, _, err := root.Find(strings.Fields(name)); err == nil && cmd.CommandPath() == root.Name()+" "+name {
			cmd.ValidArgsFunction = list
		}
	}
	addFlagCompletions(root, flagCompletions())
}

func addFlagCompletions(cmd *cobra.Command, lists map[string]cobra.CompletionFunc) {
	for name, list := range lists {
		if cmd.LocalNonPersistentFlags().Lookup(name) != nil {
			// It fails where a command has said itself what the flag takes.
			_ = cmd.RegisterFlagCompletionFunc(name, list)
		}
	}
	// Elsewhere the flag is a free name.
	if cmd.Name() == "doctor" {
		_ = cmd.RegisterFlagCompletionFunc("agent", cobra.FixedCompletions(install.Agents(), cobra.ShellCompDirectiveNoFileComp))
	}
	for _, sub := range cmd.Commands() {
		addFlagCompletions(sub, lists)
	}
}

func flagCompletions() map[string]cobra.CompletionFunc {
	words := func(list ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)
	}
	directories := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	yaml := cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	return map[string]cobra.CompletionFunc{
		"mode":    words(cordon.Off.String(), cordon.Shadow.String(), cordon.Enforce.String()),
		"tier":    words(cordon.Student.String(), cordon.Intern.String(), cordon.Supervised.String(), cordon.Autonomous.String()),
		"profile": words(config.Profiles()...), "runtime": words(append(strings.Split(runtimeNames(), ", "), "auto")...),
		"ecosystem": words(append(config.Ecosystems(), "all", "none")...),
		"state":     words(string(audit.ProposalPending), string(audit.ProposalApproved), string(audit.ProposalRejected), string(audit.ProposalExpired), string(audit.ProposalExecuted), string(audit.ProposalFailed), string(audit.ProposalCancelled)),
		"workspace": directories, "home": directories, "config": yaml,
		"run": offerStored(runIDs), "run-id": offerStored(runIDs),
	}
}

func operandCompletions() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"kill":              firstOnly(offerStored(killable)),
		"proposals show":    firstOnly(offerStored(proposalIDs(""))),
		"proposals approve": firstOnly(offerStored(proposalIDs(audit.ProposalPending))),
		"proposals reject":  firstOnly(offerStored(proposalIDs(audit.ProposalPending))),
		"policy pins":       firstOnly(offerStored(servers)),
		"policy pin":        offerStored(waitingPins),
		"policy check":      firstOnly(cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)),
		"man":               firstOnly(cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)),
		"install":           firstOnly(cobra.FixedCompletions(install.Agents(), cobra.ShellCompDirectiveNoFileComp)),
		"uninstall":         firstOnly(cobra.FixedCompletions(install.Agents(), cobra.ShellCompDirectiveNoFileComp)),
	}
}

// firstOnly offers nothing after the first operand.
func firstOnly(list cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list(cmd, args, typed)
	}
}

// maxOffered is how many of the newest a shell is offered.
const maxOffered = 50

// offerStored offers what list finds in the database that the line names.
func offerStored(list func(context.Context, *cobra.Command, audit.Store, []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
		flags := &configFlags{cmd: cmd}
		if f := cmd.Flags().Lookup("config"); f != nil {
			flags.config = f.Value.String()
		}
		err := flags.withStore(func(ctx context.Context, s audit.Store) error {
			if ctx == nil {
				ctx = context.Background()
			}
			all, err := list(ctx, cmd, s, args)
			for _, line := range all {
				if word, _, _ := strings.Cut(line, "\t"); offerable(word) && strings.HasPrefix(word, typed) {
					found = append(found, line)
				}
			}
			return err
		})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// offerable: a word that servers and agents named may be put on a command line
// only if it means itself to every shell, and is no flag.
func offerable(word string) bool {
	return word != "" && word[0] != '-' && strings.Trim(word, plainLetters) == ""
}

const plainLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/@%+,-"

// described is a word with what a shell says beside it, in letters that mean
// nothing to a script.
func described(word string, about ...string) string {
	plain := func(c rune) rune {
		if c == ' ' || strings.ContainsRune(plainLetters, c) {
			return c
		}
		return '?'
	}
	return word + "\t" + strings.Map(plain, strings.Join(about, " "))
}

func runIDs(ctx context.Context, _ *cobra.Command, s audit.Store, _ []string) ([]string, error) {
	runs, err := s.Runs(ctx, audit.RunFilter{Limit: maxOffered})
	var list []string
	for _, r := range runs {
		list = append(list, described(r.RunID, r.Tier, r.Mode, clock(r.CreatedAt)))
	}
	return list, err
}

// killable are the runs that can be killed or, with --release, released.
func killable(ctx context.Context, cmd *cobra.Command, s audit.Store, args []string) ([]string, error) {
	kills, err := s.Kills(ctx)
	if err != nil {
		return nil, err
	}
	killed := map[string]bool{}
	var list []string
	for _, k := range kills {
		killed[k.RunID] = true
		list = append(list, described(k.RunID, k.Rule, clock(k.At)))
	}
	if f := cmd.Flags().Lookup("release"); f != nil && f.Value.String() == "true" {
		return list, nil
	}
	list = nil
	runs, err := runIDs(ctx, cmd, s, args)
	for _, r := range runs {
		if id, _, _ := strings.Cut(r, "\t"); !killed[id] {
			list = append(list, r)
		}
	}
	return list, err
}

func proposalIDs(state audit.ProposalState) func(context.Context, *cobra.Command, audit.Store, []string) ([]string, error) {
	return func(ctx context.Context, _ *cobra.Command, s audit.Store, _ []string) ([]string, error) {
		proposals, err := s.Proposals(ctx, audit.ProposalFilter{State: state, Limit: maxOffered})
		var list []string
		for _, p := range proposals {
			list = append(list, described(p.ID, string(p.State), p.Tool))
		}
		return list, err
	}
}

func servers(ctx context.Context, _ *cobra.Command, s audit.Store, _ []string) ([]string, error) {
	pins, err := s.Pins(ctx, "*")
	var list []string
	seen := map[string]bool{}
	for _, p := range pins {
		if p.Server != "" && !seen[p.Server] {
			seen[p.Server] = true
			list = append(list, p.Server)
		}
	}
	return list, err
}

// waitingPins are the servers, and then the tools, whose definition waits.
func waitingPins(ctx context.Context, _ *cobra.Command, s audit.Store, args []string) ([]string, error) {
	pins, err := s.Pins(ctx, "*")
	var list []string
	seen := map[string]bool{}
	for _, p := range pins {
		word := ""
		switch {
		case p.PendingHash == "":
		case len(args) == 0:
			word = p.Server
		case len(args) == 1 && p.Server == args[0]:
			word = p.Tool
		}
		if word != "" && !seen[word] {
			seen[word] = true
			list = append(list, word)
		}
	}
	return list, err
}
