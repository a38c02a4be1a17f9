// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// helpColumns is the width of the help.
const helpColumns = 100

// writeHelp writes the help of a command: its flags are in the groups of flagGroup.
func writeHelp(out io.Writer, c *cobra.Command) {
	fmt.Fprintf(out, "Usage: %s\n", c.UseLine())
	if c.Long != "" {
		fmt.Fprintf(out, "\n%s\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(out, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(out, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		title := "Other flags"
		switch of := f.Annotations[inGroup]; {
		case of != nil:
			title = of[0]
		case len(titles) == 0 || titles[0] == "Flags":
			title = "Flags"
		}
		if groups[title] == nil {
			titles = append(titles, title)
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
			groups[title].SortFlags = false
		}
		groups[title].AddFlag(f)
	})
	for _, title := range titles {
		fmt.Fprintf(out, "\n%s:\n%s", title, groups[title].FlagUsagesWrapped(helpColumns))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\n%s COMMAND --help lists the flags of a command.\n", c.CommandPath())
	}
}

// addHelpAndCompletion adds the subcommands help and completion of cobra, which refuse wrong arguments.
func addHelpAndCompletion(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Use, help.Short, help.Long = "help [COMMAND]", "explain a command and its flags", ""
	help.Args = func(_ *cobra.Command, args []string) error {
		c, rest, _ := root.Find(args)
		return unknownCommand(c, rest)
	}
	completion, _, _ := root.Find([]string{"completion"})
	completion.Short = "write a script that completes commands and flags in a shell"
	completion.RunE = func(*cobra.Command, []string) error { return errors.New("a shell is required: bash, zsh or fish") }
}

// manCommand returns the hidden subcommand that writes man pages, dated $SOURCE_DATE_EPOCH.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man DIRECTORY", Short: "write the man pages of all commands", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.DisableAutoGenTag = true
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // man pages are no secret
				return failed(err)
			}
			header := doc.GenManHeader{Section: "1", Source: "energy " + cmp.Or(release, "(devel)"), Manual: "User Commands"}
			return failed(doc.GenManTree(root, &header, args[0]))
		},
	}
}
