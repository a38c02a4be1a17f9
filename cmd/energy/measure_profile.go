// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
)

// profileOptions are the outputs of a profile, if the command is profiled.
type profileOptions struct {
	pprof, flame string // files, or empty
	profiler     string
}

func (o *profileOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.pprof, "profile", "", "`file` for the energy by function and stack, for pprof, in microjoules")
	f.StringVar(&o.flame, "flame", "", "`file` for a flame graph in joules, as SVG; with --base it shows what changed since an earlier profile")
	f.StringVar(&o.profiler, "profiler", "", "`path` of the collector with the eBPF profiler; without it, that is "+
		profile.CollectorName+" next to energy or in PATH, in a checkout also build/profiles/otelcol-energy")
}

func (o *profileOptions) used() bool { return o.pprof != "" || o.flame != "" }

// startProfiler starts the profiler, if there are files for a profile. base may be nil.
func (o *measureOptions) startProfiler(ctx context.Context, base profile.Base) (*profile.Profiler, error) {
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
