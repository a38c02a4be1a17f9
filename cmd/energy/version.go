// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// release is the version of a released program, which the linker sets.
var release string

// versionCommand returns the subcommand version.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version of this program", DisableFlagsInUseLine: true,
		Long: "Prints the version of this program, the commit if it was built from a repository, and the\n" +
			"version of Go.",
		Args: noArguments(nil),
		RunE: func(*cobra.Command, []string) error { return printVersion() },
	}
}

func printVersion() error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Print(version(info))
	return failed(err)
}

// version describes a build: "energy v0.1.0 (commit 76a75ac0f3b2, modified) go1.26.0 linux/amd64". info may be nil.
func version(info *debug.BuildInfo) string {
	if info == nil {
		info = &debug.BuildInfo{}
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	var b strings.Builder
	fmt.Fprintf(&b, "energy %s", cmp.Or(release, info.Main.Version, "(devel)"))
	if commit := settings["vcs.revision"]; commit != "" {
		fmt.Fprintf(&b, " (commit %s", commit[:min(len(commit), 12)])
		if settings["vcs.modified"] == "true" {
			b.WriteString(", modified")
		}
		b.WriteString(")")
	}
	fmt.Fprintf(&b, " %s %s/%s\n", cmp.Or(info.GoVersion, runtime.Version()), runtime.GOOS, runtime.GOARCH)
	return b.String()
}
