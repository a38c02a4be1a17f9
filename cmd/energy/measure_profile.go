// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
)

// profileOptions say whether the command is profiled, and what is written of the profile.
type profileOptions struct {
	pprof, flame, base string // files, empty if there are none
	profiler           string
}

func (o *profileOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.pprof, "profile", "", "`file` for the energy by function and stack, for pprof, in microjoules")
	f.StringVar(&o.flame, "flame", "", "`file` for a flame graph in joules, as SVG; with --vs it shows what changed since an earlier profile")
	f.StringVar(&o.profiler, "profiler", "", "`path` of the collector with the eBPF profiler; without it, that is "+
		profile.CollectorName+" next to energy or in PATH, in a checkout also build/profiles/otelcol-energy")
}

func (o *profileOptions) used() bool { return o.pprof != "" || o.flame != "" }

// check takes the base from --vs, which names no command if the command is profiled.
func (o *profileOptions) check(several *severalOptions) error {
	if !o.used() {
		return nil
	}
	o.base, several.chosen = several.line, false
	if several.plan.Runs > 1 || several.plan.Warmup > 0 {
		return errors.New("--profile and --flame are for one run")
	}
	return nil
}

// readBase returns nil if there is no base.
func (o *profileOptions) readBase() (*profile.Base, error) {
	if o.base == "" {
		return nil, nil
	}
	file, err := os.Open(o.base)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	base, err := profile.ReadBase(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.base, err)
	}
	return base, nil
}

// startProfiler starts the profiler, if there are files for a profile. base may be nil.
func (o *measureOptions) startProfiler(ctx context.Context, base *profile.Base) (*profile.Profiler, error) {
	if !o.profile.used() {
		return nil, nil
	}
	if o.Say != nil {
		o.Say("starting the profiler")
	}
	p, err := profile.Start(ctx, o.profile.profiler, base)
	if err != nil {
		return nil, err
	}
	o.Profiler = p
	return p, nil
}
