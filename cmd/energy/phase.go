// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/phase"
)

// phaseCommand returns the subcommand phase: it sends a mark to energy measure.
func phaseCommand() *cobra.Command {
	var socket string
	var optional bool
	var timeout time.Duration
	var name string
	c := &cobra.Command{
		Use: "phase [flags] begin NAME | end", Short: "begin or end a phase of a measured command",
		Long: `Divides the energy of a command that energy measure runs into phases. begin ends the previous phase.
Phases with the same name are added up, and the time outside of all phases is called none.
The command returns after the boundary is measured, and exits with 1 if that fails.`,
		Example: `  energy measure -- sh -c 'energy phase begin fetch; make deps; energy phase begin build; make -j8'`,
		Args: func(_ *cobra.Command, args []string) (err error) {
			name, err = phase.Parse(strings.Join(args, " "))
			return err
		},
	}
	flagGroup(c, "Flags", func(f *pflag.FlagSet) {
		f.StringVar(&socket, "socket", os.Getenv(phase.Variable), "`path` of the Unix socket of energy measure; the default is $"+phase.Variable)
		f.BoolVar(&optional, "optional", false, "succeed if energy measure is not running")
		f.DurationVar(&timeout, "timeout", 10*time.Second, "maximum wait for the measurement")
	})
	c.RunE = untilDone(func(ctx context.Context) error {
		err := fmt.Errorf("$%s is not set: %w", phase.Variable, phase.ErrNobody)
		if socket != "" {
			ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%v have passed", timeout))
			defer cancel()
			err = phase.Send(ctx, socket, name)
		}
		switch {
		case !errors.Is(err, phase.ErrNobody):
			return err
		case optional:
			return nil
		}
		return fmt.Errorf("%w: run it in energy measure; --optional ignores this error", err)
	})
	return c
}
