// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flagsOf returns the flags of a subcommand, with the short ones but --help.
func flagsOf(c *cobra.Command) (flags []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		flags = append(flags, "--"+f.Name)
		if f.Shorthand != "" {
			flags = append(flags, "-"+f.Shorthand)
		}
	})
	return flags
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

func TestTheCommandLinePageHasASectionForEachCommandAndNamesFlagsThatExist(t *testing.T) {
	introduction, _, _ := strings.Cut(read(t, "../../docs/command-line.md"), "\n## ")
	flag := regexp.MustCompile("`(--?[a-z][\\w-]*)")
	var all []string
	for _, c := range rootCommand().Commands() {
		flags := flagsOf(c)
		all = append(all, flags...)
		_, section, found := strings.Cut(read(t, "../../docs/command-line.md"), "\n## energy "+c.Name()+"\n")
		assert.True(t, found || len(flags) == 0, "energy %s has flags and no section", c.Name())
		section, _, _ = strings.Cut(section, "\n## ")
		for _, f := range flag.FindAllStringSubmatch(section, -1) {
			assert.Contains(t, flags, f[1], "energy %s", c.Name())
		}
	}
	for _, f := range flag.FindAllStringSubmatch(introduction, -1) {
		assert.Contains(t, all, f[1])
	}
}

// The commands in code blocks of the pages use subcommands and flags that exist, and make targets
// that the Makefile has.
func TestCommandsOnThePagesCanRun(t *testing.T) {
	makefile := read(t, "../../Makefile")
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*)$`)
	energy := regexp.MustCompile(`(?:^|sudo |/)energy (\w+)((?: [^ ]+)*)`)
	target := regexp.MustCompile(`(?:^|&& |sudo )make ([\w./-]+)`)
	checked := 0
	for _, page := range append(pages, "../../README.md") {
		for _, line := range command.FindAllStringSubmatch(read(t, page), -1) {
			ours, _, _ := strings.Cut(strings.ReplaceAll(line[1], "\\\n", " "), " -- ")
			ours, _, _ = strings.Cut(ours, "#")
			if c := energy.FindStringSubmatch(ours); c != nil {
				checked++
				command, _, err := rootCommand().Find(c[1:2])
				require.NoError(t, err, "%s: no command energy %s", page, c[1])
				known := flagsOf(command)
				for _, word := range regexp.MustCompile(` '[^']*'| --?[a-z][\w-]*`).FindAllString(c[2], -1) {
					if word = strings.TrimSpace(word); word[0] == '-' {
						assert.True(t, slices.Contains(known, word), "%s: energy %s has no flag %s", page, c[1], word)
					}
				}
			}
			for _, m := range target.FindAllStringSubmatch(ours, -1) {
				checked++
				name := strings.Replace(m[1], "build/energy", "$(ENERGY)", 1)
				assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(name)+`:`, makefile, "%s: make %s", page, m[1])
			}
		}
	}
	assert.Positive(t, checked)
}
