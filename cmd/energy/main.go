// SPDX-License-Identifier: Apache-2.0

// Command energy measures energy, and shows what a collector with the energy receiver measures:
//
//	energy measure [flags] -- command         what energy a command used
//	energy top [flags]                        a table of a collector that runs already, or else of this machine
//	energy top [flags] -- command [args...]   the same of a collector that it starts, and stops at the end
//	energy phase begin NAME | end             begins or ends a phase of what is measured
//	energy calibrate [flags]                  a power curve, fitted to a wall meter's record
//	energy train [flags]                      a power model for machines that have no meter, from one that has
//	energy verify [flags]                     checks of the meters of this machine and of the receiver's figures
//	energy version                            the version of this program
//
// measure, and top without a collector, have the receiver embedded. Otherwise energy reads what the
// collector's Prometheus exporter serves.
//
// It is a module of its own, so that programs which import the receiver do not get its dependencies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/verify"
)

// commands are the subcommands. Each returns the exit status.
var commands = []struct {
	name, does string
	run        func(args []string) int
}{
	{"measure", "run a command and report its energy", measureCommand},
	{"top", "show the top consumers of energy as a table", reported("top", topCommand)},
	{"phase", "begin or end a phase of what is measured", reported("phase", mark)},
	{"calibrate", "fit a power curve to a wall meter's record", reported("calibrate", calibrate)},
	{"train", "train a power model for machines that have no meter", reported("train", train)},
	{"verify", "check the meters of this machine and the receiver's figures", reported("verify", verifyCommand)},
	{"version", "print the version of this program", reported("version", printVersion)},
}

func usage() string {
	var b strings.Builder
	b.WriteString("Usage: energy COMMAND [flags]\n\nCommands:\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.does)
	}
	b.WriteString("\nenergy COMMAND -h lists the flags of a command.\n")
	return b.String()
}

// errUsage reports invalid arguments, which have already been explained.
var errUsage = errors.New("bad arguments")

func main() { os.Exit(exitCode(os.Args[1:])) }

func exitCode(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage())
		return 2
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Print(usage())
		return 0
	}
	if slices.Contains([]string{"-version", "--version"}, args[0]) {
		args[0] = "version"
	}
	if args[0] == verify.LoadCommand {
		return report(args[0], verify.RunLoad(args[1:]))
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(args[1:])
		}
	}
	fmt.Fprintf(os.Stderr, "energy: unknown command %q\n\n%s", args[0], usage())
	return 2
}

// reported returns a subcommand whose error is printed.
func reported(name string, run func(args []string) error) func(args []string) int {
	return func(args []string) int { return report(name, run(args)) }
}

// parseWithUsage parses the flags of a subcommand and checks them; check may be nil. It writes the
// usage if help is requested, and one line if a flag is wrong.
func parseWithUsage(fs *flag.FlagSet, args []string, usage string, to io.Writer, check func() error) error {
	fs.SetOutput(io.Discard)
	restore := explainDurations(fs)
	err := fs.Parse(args)
	restore()
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(to)
		fmt.Fprint(to, usage, "Flags:\n")
		fs.PrintDefaults()
	case err != nil:
		fmt.Fprintf(to, "%s: %v (-h lists the flags)\n", fs.Name(), err)
	case check != nil:
		if err = check(); err != nil {
			fmt.Fprintf(to, "%s: %v\n", fs.Name(), err)
		}
	}
	return err
}

// runParsed runs a subcommand until it ends or a signal ends it. A second signal ends this process
// at once. The subcommand is not run if its flags could not be parsed, or ask for help.
func runParsed(parsing error, run func(context.Context) error) error {
	switch {
	case errors.Is(parsing, flag.ErrHelp):
		return nil
	case parsing != nil:
		return errUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx)
}

func report(command string, err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		// Standard error may be what blocked.
		ended, stop := context.WithCancel(context.Background())
		stop()
		fmt.Fprintf(figure.Writer(patience.NewWriter(ended, time.Second/2, os.Stderr)), "energy %s: %v\n", command, err)
		return 1
	}
}
