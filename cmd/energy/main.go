// SPDX-License-Identifier: Apache-2.0

// Command energy measures energy, and shows the figures of a collector with the energy receiver:
//
//	energy measure [flags] [--] COMMAND...    what energy a command used
//	energy top [flags]                        a table of a collector that runs already, or else of this machine
//	energy web [flags] [FILE]                 a page with the same figures, or with a recording
//	energy report [flags]                     the energy of nodes over a month, from Prometheus
//	energy phase begin NAME | end             begins or ends a phase of a measured command
//	energy model [flags]                      a power model, trained with meters or fitted to a wall meter
//	energy verify [flags]                     checks of the meters of this machine and of the receiver's figures
//	energy version                            the version of this program
//
// measure, and top and web without a collector, embed the receiver. Otherwise energy reads the
// Prometheus exporter of a collector. The file of each subcommand defines its flags (flags.go).
//
// It is a module of its own, so that programs which import the receiver do not get its
// dependencies.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/verify"
)

// rootCommand returns energy with its subcommands.
func rootCommand() *cobra.Command {
	cobra.EnableCommandSorting = false
	var asksVersion bool
	root := &cobra.Command{
		Use:   "energy COMMAND [flags]",
		Short: "measure the energy of programs and of this machine",
		Long:  "Measures the energy of programs and of this machine, and shows the figures of a collector.",
		Args:  unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			if asksVersion {
				return printVersion()
			}
			return errors.Join(c.Usage(), exitError{status: 2})
		},
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		SuggestionsMinimumDistance: 2,
	}
	root.Flags().BoolVar(&asksVersion, "version", false, "print the version of this program")
	root.SetOut(bufio.NewWriter(os.Stdout)) // of help and completions: exitCode flushes it
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { writeHelp(c.OutOrStdout(), c) })
	root.SetUsageFunc(func(c *cobra.Command) error { writeHelp(c.ErrOrStderr(), c); return nil })
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		(&measureOptions{}).subcommand(), (&options{}).subcommand(), (&webOptions{}).subcommand(), (&reportOptions{}).subcommand(), phaseCommand(),
		(&modelOptions{}).subcommand(), (&verifyOptions{}).subcommand(), versionCommand(), manCommand(),
	)
	addHelpAndCompletion(root)
	return root
}

// unknownCommand refuses arguments of energy itself, with the names of commands that are similar.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if similar := root.SuggestionsFor(args[0]); len(similar) > 0 {
		text += ": did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(text)
}

func main() { os.Exit(exitCode(os.Args[1:])) }

func exitCode(args []string) int {
	root := rootCommand()
	if len(args) > 0 && args[0] == verify.LoadCommand {
		return printError(root, failed(verify.RunLoad(args[1:])))
	}
	root.SetArgs(append([]string{}, args...)) // nil stands for the arguments of the process
	c, err := root.ExecuteC()
	if lost := root.OutOrStdout().(*bufio.Writer).Flush(); lost != nil {
		err = failed(lost)
	}
	return printError(c, err)
}

// exitError is the error of a subcommand that ran and failed. Any other error means that the
// arguments are invalid.
type exitError struct {
	status int
	err    error // nil if it is printed already
}

// Error implements error.
func (e exitError) Error() string { return fmt.Sprint("exit status ", e.status, ": ", e.err) }

// failed returns an error as an exitError with the exit status 1. It returns nil for nil.
func failed(err error) error {
	if err == nil || errors.Is(err, errFaults) {
		return err
	}
	return exitError{1, err}
}

// untilDone runs a subcommand until it ends or a signal ends it. A second signal ends this process
// at once.
func untilDone(run func(context.Context) error) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		context.AfterFunc(ctx, stop)
		return failed(run(ctx))
	}
}

// printError prints the error of a subcommand, and returns the exit status.
func printError(c *cobra.Command, err error) int {
	var ended exitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &ended):
		ended = exitError{2, fmt.Errorf("%w (see %s --help)", err, c.CommandPath())}
		if c.Name() == "measure" {
			ended.status = exitFailed
		}
	}
	if ended.err != nil {
		// Standard error may be blocked, so the write has a time limit.
		blocked, stop := context.WithCancel(context.Background())
		stop()
		to := figure.Writer(patience.NewWriter(blocked, time.Second/2, os.Stderr))
		fmt.Fprintf(to, "%s: %v\n", c.CommandPath(), ended.err)
	}
	return ended.status
}
