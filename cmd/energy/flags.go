// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// inGroup is the annotation of a flag with the title of its group.
const inGroup = "group"

// flagGroup adds flags to a command, in a group of its help. A new flag is defined in the method
// subcommand of the command's options:
//
//	flagGroup(c, "Output", func(f *pflag.FlagSet) {
//		f.BoolVar(&o.json, "json", false, "write JSON in place of the table")
//	})
//
// Only -o, -v, -p and -h are short (BoolVarP and so on), and outputs pass refuseExisting. The page
// docs/command-line.md explains the flags that need more than their usage.
func flagGroup(c *cobra.Command, title string, define func(f *pflag.FlagSet)) {
	group := pflag.NewFlagSet(title, pflag.ContinueOnError)
	group.SortFlags, c.Flags().SortFlags = false, false
	define(group)
	group.VisitAll(func(f *pflag.Flag) {
		f.Annotations = map[string][]string{inGroup: {title}}
	})
	c.Flags().AddFlagSet(group)
}

// noArguments refuses arguments that are not flags, and then checks the flags. check may be nil.
func noArguments(check func() error) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return fmt.Errorf("unexpected argument %q", args[0])
		case check != nil:
			return check()
		}
		return nil
	}
}

// forceFlag adds --force, which allows refuseExisting to pass.
func forceFlag(f *pflag.FlagSet, force *bool) {
	f.BoolVar(force, "force", false, "replace files that exist")
}

// refuseExisting returns an error if a file exists that would be replaced without --force. Devices,
// pipes and the standard streams are not replaced.
func refuseExisting(force bool, paths ...string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if !force && err == nil && info.Mode().IsRegular() && !isStream(path) {
			return fmt.Errorf("%s exists: use --force to replace it", path)
		}
	}
	return nil
}

// isStream reports whether a path is a file that this process has open, such as /dev/stdout.
func isStream(path string) bool {
	return path == "-" || strings.HasPrefix(path, "/dev/std") || strings.HasPrefix(path, "/dev/fd/") ||
		strings.HasPrefix(path, "/proc/self/fd/")
}

// flagError replaces the error of a parser with an error that describes the valid values of the
// flag.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	reason := errors.Unwrap(err)
	switch flag.Value.Type() {
	case "int":
		reason = errors.New("must be an integer")
	case "float64":
		reason = errors.New("must be a number without a unit")
	case "bool":
		reason = errors.New("must be true or false")
	case "duration":
		reason = errors.New("must be a duration with a unit, such as 500ms, 5s or 2m")
		if _, err := strconv.ParseFloat(value, 64); err == nil {
			reason = fmt.Errorf("the unit is missing: write %ss", value)
		}
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: %w", value, flag.Name, reason)
}

// defaultPort is the port of the Prometheus exporter in the shipped configurations.
const defaultPort = "8889"

// endpoint is the URL of a Prometheus exporter. As a flag it is a URL, host:port or host.
type endpoint string

// String implements pflag.Value.
func (e *endpoint) String() string { return string(*e) }

// Type implements pflag.Value.
func (e *endpoint) Type() string { return "URL" }

// Set implements pflag.Value.
func (e *endpoint) Set(text string) error {
	full := text
	if !strings.Contains(text, "://") {
		full = "http://" + text
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return errors.New("must be a URL, host:port or host")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be an http or https address")
	case u.Host == "" || strings.HasSuffix(u.Host, ":"):
		return errors.New("must be a URL, host:port or host")
	}
	if u.Port() == "" && full != text {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	if u.Hostname() == "" { // :8889
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	*e = endpoint(u.String())
	return nil
}
