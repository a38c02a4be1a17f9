// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

const versionUsage = `Usage: energy version

Prints the version of this program, the commit if it was built from a repository, and the version of Go.

`

// release is the version of a released program, which the linker sets.
var release string

// printVersion is the subcommand version.
func printVersion(args []string) error {
	fs := flag.NewFlagSet("energy version", flag.ContinueOnError)
	return runParsed(parseWithUsage(fs, args, versionUsage, os.Stderr, nil), func(context.Context) error {
		if fs.NArg() > 0 {
			return errors.New("takes no arguments")
		}
		info, _ := debug.ReadBuildInfo()
		_, err := fmt.Print(version(info))
		return err
	})
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
