// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/phase"
)

const phaseUsage = `Usage: energy phase [flags] begin NAME
       energy phase [flags] end

Divides the energy of a command that energy measure runs, or of a node that a collector measures, into phases. begin ends the phase
before. Phases with one name are added up, and the time outside of all phases is called none.

  energy measure -- sh -c 'energy phase begin fetch; make deps; energy phase begin build; make -j8'

It returns once the boundary was measured. The exit status is 1 where that fails.

`

// mark is the subcommand phase: it sends a mark to whatever measures.
func mark(args []string) error {
	fs := flag.NewFlagSet("energy phase", flag.ContinueOnError)
	socket := fs.String("socket", cmp.Or(os.Getenv(phase.Variable), phase.DefaultSocket),
		"`path` of the Unix socket of what measures; the default is $"+phase.Variable+" if it is set")
	optional := fs.Bool("optional", false, "succeed where nothing measures, too, for scripts that also run unmeasured")
	timeout := fs.Duration("timeout", 10*time.Second, "how long to wait for the measurement")
	return runParsed(parseWithUsage(fs, args, phaseUsage, os.Stderr), func(ctx context.Context) error {
		m, err := parseMark(fs.Args())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("%v have passed", *timeout))
		defer cancel()
		err = phase.Send(ctx, *socket, m)
		if !errors.Is(err, phase.ErrNobody) {
			return err
		}
		if *optional {
			return nil
		}
		return fmt.Errorf("%w: run it in energy measure, or configure phases::socket of the energy receiver; -optional ignores it", err)
	})
}

// parseMark returns the mark of begin NAME or end.
func parseMark(args []string) (phase.Mark, error) {
	switch {
	case len(args) == 2 && args[0] == "begin":
		return phase.Begin(args[1])
	case len(args) == 1 && args[0] == "end":
		return phase.End, nil
	}
	return phase.Mark{}, errors.New("want begin NAME, or end (-h lists the flags)")
}
