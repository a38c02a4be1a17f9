// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
)

// profileOptions say whether the command is profiled, and what is written of the profile.
type profileOptions struct {
	pprof, flame, base string // files, empty if there are none
	profiler           string
}

func (o *profileOptions) flags(fs *flag.FlagSet) {
	fs.StringVar(&o.pprof, "profile", "", "`file` for the energy by function and stack, for pprof, in microjoules")
	fs.StringVar(&o.flame, "flame", "", "`file` for a flame graph in joules, as SVG; with -vs it shows what changed since an earlier profile")
	fs.StringVar(&o.profiler, "profiler", "", "`path` of the collector with the eBPF profiler; without it, that is "+profile.CollectorName+
		" next to energy or in PATH, or that of make build-profiles")
}

func (o *profileOptions) used() bool { return o.pprof != "" || o.flame != "" }

// check takes the base from -vs, which names no command if the command is profiled.
func (o *profileOptions) check(several *severalOptions) error {
	if !o.used() {
		return nil
	}
	o.base, several.chosen = several.line, false
	if several.plan.Runs > 1 || several.plan.Warmup > 0 {
		return errors.New("-profile and -flame are for one run")
	}
	return nil
}

// profileFiles are open files of a profile. They are nil if they are not wanted.
type profileFiles struct {
	pprof, flame *output
	base         *profile.Base
}

// open opens the files of the profile before the command is started.
func (o *profileOptions) open(ctx context.Context) (f *profileFiles, err error) {
	if !o.used() {
		return nil, nil
	}
	f = &profileFiles{}
	if o.base != "" {
		if f.base, err = readBase(o.base); err != nil {
			return nil, err
		}
	}
	if f.pprof, err = create(ctx, o.pprof); err != nil {
		return nil, err
	}
	f.flame, err = create(ctx, o.flame)
	return f, err
}

func readBase(path string) (*profile.Base, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	base, err := profile.ReadBase(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return base, nil
}

// startProfiler starts the profiler, if there are files for a profile.
func (o *measureOptions) startProfiler(ctx context.Context, files *profileFiles) (*profile.Profiler, error) {
	if files == nil {
		return nil, nil
	}
	if o.Say != nil {
		o.Say("starting the profiler")
	}
	p, err := profile.Start(ctx, o.profile.profiler, files.base)
	if err != nil {
		return nil, err
	}
	o.Profiler = p
	return p, nil
}

// writeProfile writes the profile of a run.
func (o *measureOptions) writeProfile(p *profile.Profiler, r *measure.Result, files *profileFiles) {
	if p == nil {
		return
	}
	o.save("profile", files.pprof, p.WritePprof)
	o.save("flame graph", files.flame, func(to io.Writer) error { return p.WriteFlame(to, r) })
}
