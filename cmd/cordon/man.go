package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Print the manual page, or write one of each command into a directory",
		Long: `Print the manual page cordon(1), or write it and one of each command into DIR,
which is made where it is absent:

    cordon man ~/.local/share/man/man1`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				_, err := cmd.OutOrStdout().Write(manPage(root))
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			for _, c := range documented(root) {
				if err := os.WriteFile(filepath.Join(args[0], manName(c)+".1"), manPage(c), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// documented are the commands that are shown, with those below them.
func documented(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, documented(sub)...)
		}
	}
	return list
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is a command's page in the macros of man(7). It holds no date, so
// that the same source gives the same page.
func manPage(c *cobra.Command) []byte {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s %s\n", quoted(strings.ToUpper(manName(c))), quoted("cordon "+versionText()), quoted("Cordon"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".br\n.B %s\n.I COMMAND\n", roff(c.CommandPath()))
	}
	b.WriteString(".SH DESCRIPTION\n")
	if c.Long != "" {
		writeRoff(&b, c.Long)
	} else {
		fmt.Fprintf(&b, "%s.\n", roff(c.Short))
	}
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n")
		for line := range strings.Lines(c.Example) {
			b.WriteString(roff(strings.TrimRight(line, "\n")) + "\n")
		}
		b.WriteString(".fi\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s.\n", roff(manName(sub)), roff(sub.Short))
			}
		}
	}
	writeFlags(&b, c.NonInheritedFlags().FlagUsages()+c.InheritedFlags().FlagUsages())
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(manName(c.Parent())))
	}
	return b.Bytes()
}

// flagUsage is one line of what cobra prints of flags: the flag, spaces to the
// column of all, and its use.
var flagUsage = regexp.MustCompile(`^\s*(\S.*?)\s{3,}(\S.*)$`)

func writeFlags(b *bytes.Buffer, usages string) {
	if usages == "" {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	for line := range strings.Lines(usages) {
		line = strings.TrimRight(line, "\n")
		flag, use := strings.TrimSpace(line), ""
		if m := flagUsage.FindStringSubmatch(line); m != nil {
			flag, use = m[1], m[2]
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(flag), roff(use))
	}
}

// writeRoff writes paragraphs; lines that are indented stay as they are.
func writeRoff(b *bytes.Buffer, text string) {
	asIs := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case indented && !asIs:
			b.WriteString(".PP\n.nf\n")
		case !indented && asIs:
			b.WriteString(".fi\n")
		}
		if line == "" {
			if !asIs {
				b.WriteString(".PP\n")
			}
		} else {
			b.WriteString(roff(line) + "\n")
		}
		asIs = indented
	}
	if asIs {
		b.WriteString(".fi\n")
	}
}

// roff is a line of text that no macro is read from.
func roff(s string) string {
	var b strings.Builder
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		b.WriteString(`\&`)
	}
	for _, c := range s {
		switch {
		case c == '\\':
			b.WriteString(`\e`)
		case c == '-':
			b.WriteString(`\-`)
		case c == '\n':
			b.WriteByte(' ')
		case c == '…': // no glyph of a terminal in ASCII
			b.WriteString("...")
		case c > 126:
			fmt.Fprintf(&b, `\[u%04X]`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

func quoted(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }
