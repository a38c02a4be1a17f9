// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/energyreceiver/energyreceiver/internal/oldconfig"
)

const convertUsage = `Usage: energy convert FILE

Prints the configuration of a collector with its energy receivers and emissions processors converted to configuration version 1. FILE may also
contain the section of one receiver, or documents with such configurations, such as Helm values; - is standard input.
What could not be converted is reported on standard error.

`

// convertConfig is the subcommand convert.
func convertConfig(args []string) error {
	fs := flag.NewFlagSet("energy convert", flag.ContinueOnError)
	switch err := parseWithUsage(fs, args, convertUsage, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return errUsage
	case fs.NArg() != 1:
		fmt.Fprint(os.Stderr, convertUsage)
		return errUsage
	}
	return convertFile(fs.Arg(0), os.Stdout, os.Stderr)
}

func convertFile(file string, out, notes io.Writer) error {
	in := os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	document, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	converted, left, err := oldconfig.Convert(document)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, note := range left {
		_, _ = fmt.Fprintln(notes, note)
	}
	_, _ = fmt.Fprintln(notes, changedDefaults)
	_, err = out.Write(converted)
	return err
}

// changedDefaults is printed with each conversion.
const changedDefaults = "Changed defaults: the 50 largest processes have a series each, and the others one by program " +
	"(series: {processes: {group_by: pid, max: 500}} restores the former series); the attribution rules are the most accurate ones that the machine supports (attribution: {preset: kepler} " +
	"restores the former rules); the energy of a machine without a sensor is estimated (model: none turns it off); initial_delay is 1s, not 50ms."
