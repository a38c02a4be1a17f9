// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of a released program, which the linker sets.
var release string

// versionCommand returns the subcommand version.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version of this program", DisableFlagsInUseLine: true,
		Long: "Prints the version of this program, the version of Go, and the commit if Go recorded it in the\n" +
			"build, which go build does in a checkout and make build does not.",
		Args: noArguments(nil),
		RunE: func(*cobra.Command, []string) error { return printVersion() },
	}
}

func printVersion() error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Println(version(info))
	return failed(err)
}

// version describes a build: "energy v0.1.0 (commit 76a75ac0f3b2, modified) go1.26.0 linux/amd64".
func version(info *debug.BuildInfo) string {
	text, commit, modified := "energy "+cmp.Or(release, info.Main.Version, "(devel)"), "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	if commit != "" {
		text += " (commit " + commit + modified + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
