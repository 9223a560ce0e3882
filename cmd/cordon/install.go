package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cordon-sandbox/cordon"
	"github.com/cordon-sandbox/cordon/config"
	"github.com/cordon-sandbox/cordon/door/hook/install"
	"github.com/spf13/cobra"
)

func installCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install [flags] " + strings.Join(install.Agents(), "|"),
		Short: "Set a coding agent up to ask Cordon before each tool call",
		Long: `Put Cordon's hook into the settings file of a coding agent. What else is in the
file stays as it is, comments and order too; "cordon uninstall" gives it back.
The change is shown. Installing again brings the hook up to date.

Without --mode, the configuration says the mode at each call; its default is
shadow, which refuses nothing.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: install.Agents(),
	}
	flags := addInstallFlags(cmd)
	for name, text := range map[string]string{
		"mode":    "mode of the hook: off, shadow or enforce (default the configuration's)",
		"tier":    "tier of the hook's runs (default the configuration's)",
		"profile": "profile of the hook's runs (default the configuration's)",
		"config":  "configuration `FILE` of the hook (default as for every command)",
	} {
		cmd.Flags().String(name, "", text)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := installOptions(cmd)
		if err != nil {
			return err
		}
		return flags.edit(cmd, args[0], func(old []byte) ([]byte, error) { return install.Add(args[0], old, o) },
			func(path string) error { return flags.afterInstall(cmd, args[0], path, o) })
	}
	return cmd
}

func uninstallCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall [flags] " + strings.Join(install.Agents(), "|"),
		Short: "Take Cordon's hook out of a coding agent's settings",
		Long: `Take Cordon's hook out of the settings file of a coding agent. What was changed
in the file meanwhile stays; a file that was made for the hook is removed.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: install.Agents(),
	}
	flags := addInstallFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return flags.edit(cmd, args[0], func(old []byte) ([]byte, error) {
			if old == nil {
				return nil, nil
			}
			text, _, err := install.Remove(args[0], old)
			return text, err
		}, func(string) error { return nil })
	}
	return cmd
}

// installFlags say which file is edited.
type installFlags struct{ project, dryRun bool }

func addInstallFlags(cmd *cobra.Command) *installFlags {
	f := &installFlags{}
	cmd.Flags().BoolVar(&f.project, "project", false, "the settings of the project in the working directory, not the user's own")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show the change and do not make it")
	return f
}

// path is the settings file that is meant.
func (f *installFlags) path(agent string) (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", usagef("no home directory: %w (set HOME)", err)
	}
	project := ""
	if f.project {
		if project, err = os.Getwd(); err != nil {
			return "", fmt.Errorf("working directory: %w", err)
		}
	}
	return install.Path(agent, home, project, os.Getenv)
}

// edit changes a settings file and shows what it changed.
func (f *installFlags) edit(cmd *cobra.Command, agent string, change func([]byte) ([]byte, error), after func(path string) error) error {
	path, err := f.path(agent)
	if err != nil {
		return err
	}
	old, real, err := install.Read(path)
	if err != nil {
		return err
	}
	now, err := change(old)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	out := cmd.OutOrStdout()
	diff := install.Diff(real, old, now)
	switch {
	case diff == "":
		fmt.Fprintf(out, "%s: nothing to do\n", path)
		return after(path)
	case f.dryRun:
		_, err = fmt.Fprintf(out, "%s%s: not changed (dry run)\n", diff, path)
		return err
	}
	if err := install.Write(real, old, now); err != nil {
		return err
	}
	done := "changed"
	if now == nil {
		done = "removed"
	}
	if _, err := fmt.Fprintf(out, "%s%s: %s\n", diff, path, done); err != nil {
		return err
	}
	return after(path)
}

// installOptions are the command that the agent will run.
func installOptions(cmd *cobra.Command) (install.Options, error) {
	program, err := hookProgram()
	if err != nil {
		return install.Options{}, err
	}
	o := install.Options{Command: program}
	flags := cmd.Flags()
	for _, name := range []string{"mode", "tier", "profile", "config"} {
		if !flags.Changed(name) {
			continue
		}
		value := flags.Lookup(name).Value.String()
		switch name {
		case "mode":
			var m cordon.Mode
			err = m.UnmarshalText([]byte(value))
		case "tier":
			if _, known := cordon.ParseTier(value); !known {
				err = fmt.Errorf("unknown tier %q (want student, intern, supervised or autonomous)", value)
			}
		case "profile":
			if !slices.Contains(config.Profiles(), value) {
				err = fmt.Errorf("unknown profile %q (want one of %q)", value, config.Profiles())
			}
		case "config":
			if value, err = filepath.Abs(value); err == nil {
				_, err = os.Stat(value)
			}
		}
		if err != nil {
			return o, usagef("--%s: %w", name, err)
		}
		o.Args = append(o.Args, "--"+name, value)
	}
	return o, nil
}

// hookProgram is how the agent starts this program: by the name that PATH
// finds it under, which an update keeps, else by the file itself.
func hookProgram() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("the path of this program: %w", err)
	}
	found, err := exec.LookPath("cordon")
	if err != nil || !filepath.IsAbs(found) {
		return exe, nil
	}
	if sameFile(exe, found) {
		return found, nil
	}
	return exe, nil
}

func sameFile(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// afterInstall says what the user should know.
func (f *installFlags) afterInstall(cmd *cobra.Command, agent, path string, o install.Options) error {
	facts, err := install.FactsOf(agent)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if !slices.Contains(o.Args, "--mode") {
		fmt.Fprintln(out, "note: without --mode the configuration says the mode at each call; its default is shadow, which refuses nothing.")
	}
	if facts.Closes == "" {
		fmt.Fprintf(out, "note: %s lets a call run whose hook crashed or ran out of time, and has no option against it.\n", facts.Title)
	}
	if text, _, err := install.Read(path); err == nil {
		if setting, err := install.Disabled(agent, text); err == nil && setting != "" {
			fmt.Fprintf(out, "warning: %q is set in this file: %s runs no hooks, and this one neither.\n", setting, facts.Title)
		}
	}
	if f.elsewhere(agent) {
		fmt.Fprintln(out, "note: the hook is installed for the user and for this project: each call is asked about twice.")
	}
	if facts.Note != "" {
		fmt.Fprintf(out, "note: %s\n", facts.Note)
	}
	if strings.TrimSuffix(filepath.Base(o.Command), ".exe") != "cordon" {
		fmt.Fprintf(out, "note: %s is not named cordon, so that uninstall will not know it again.\n", o.Command)
	}
	if why := replaceable(o.Command); why != "" {
		fmt.Fprintf(out, "warning: the agent could replace %s (%s): put it where only you, or root, may write.\n", o.Command, why)
	}
	return nil
}

// elsewhere reports whether the hook is in the other of the two files too.
func (f *installFlags) elsewhere(agent string) bool {
	path, err := (&installFlags{project: !f.project}).path(agent)
	if err != nil {
		return false
	}
	text, _, err := install.Read(path)
	if err != nil || text == nil {
		return false
	}
	hooks, err := install.Find(agent, text)
	return err == nil && len(hooks) > 0
}

// replaceable says why what the agent runs could be put in a program's place.
func replaceable(program string) string {
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	if dir, err := os.Getwd(); err == nil && strings.HasPrefix(program, strings.TrimSuffix(dir, "/")+"/") && dir != "/" {
		return "it is in the working directory"
	}
	if info, err := os.Stat(filepath.Dir(program)); err == nil && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		return "others may write its directory"
	}
	return ""
}
