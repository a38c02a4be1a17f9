// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/verify"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

const verifyUsage = `Usage: energy verify [flags]

Checks the meters of this machine and the figures of the receiver, in five minutes. It loads the CPUs in steps: run it on a machine that
rests otherwise. Without root or without meters it lists the checks that were not possible.

  energy verify                              reads all meters and prints a verdict for each check
  energy verify -out DIRECTORY               writes verify.json and verify.md, too, for an issue: without names and serial numbers
  energy verify -config collector.yaml       also reads the meters that a collector's configuration describes
  energy verify -backend http://host:9090    also checks the version of a metrics database

The exit status is 1 if a check found a fault.

`

type verifyOptions struct {
	config, receiver string
	out, backend     string
	length           time.Duration
}

// minVerify is the shortest run: each step needs some seconds.
const minVerify = 20 * time.Second

// verifyCommand is the subcommand verify.
func verifyCommand(args []string) error {
	o, err := parseVerifyFlags(args, os.Stderr)
	return runParsed(err, func(ctx context.Context) error { return o.run(ctx, os.Stdout, os.Stderr) })
}

func parseVerifyFlags(args []string, usage io.Writer) (verifyOptions, error) {
	var o verifyOptions
	fs := flag.NewFlagSet("energy verify", flag.ContinueOnError)
	fs.DurationVar(&o.length, "for", 280*time.Second, fmt.Sprintf("time of all steps together, at least %v", minVerify))
	fs.StringVar(&o.out, "out", "", "`directory` to write verify.json and verify.md to")
	fs.StringVar(&o.config, "config", "", "`file` with a collector's configuration, or with that of its energy receiver")
	fs.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
	fs.StringVar(&o.backend, "backend", "", "`URL` of a metrics database whose version is checked")
	err := parseWithUsage(fs, args, verifyUsage, usage, func() error {
		switch {
		case fs.NArg() > 0:
			return fmt.Errorf("%q is no flag", fs.Arg(0))
		case o.length < minVerify:
			return fmt.Errorf("-for must be at least %v", minVerify)
		}
		return nil
	})
	return o, err
}

var errFaults = errors.New("a check found a fault")

func (o *verifyOptions) run(ctx context.Context, out, messages io.Writer) error {
	cfg, err := o.configure(ctx)
	if err != nil {
		return err
	}
	if o.out != "" { // before the time is spent
		if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // a report is no secret
			return err
		}
	}
	run := verify.Options{Config: cfg, Length: o.length, Loader: verify.NewLoader(), Say: func(format string, args ...any) {
		fmt.Fprintf(messages, "energy verify: "+format+"\n", args...)
	}}
	if o.backend != "" {
		run.Backend = verify.AskBackend(ctx, o.backend)
	}
	observed, err := patience.Call(ctx, stopTimeout, func() (*verify.Observation, error) { return verify.Run(ctx, run) })
	if err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	report := verify.NewReport(observed, strings.Fields(version(info))[1])
	if err := report.WriteText(figure.Writer(out)); err != nil {
		return err
	}
	if err := o.write(report); err != nil {
		return err
	}
	if report.Faults() > 0 {
		return errFaults
	}
	return nil
}

// configure returns the receiver's configuration, with a model of what no meter reads.
func (o *verifyOptions) configure(ctx context.Context) (*energyreceiver.Config, error) {
	cfg := energyreceiver.DefaultConfig()
	if o.config != "" {
		var err error
		if cfg, _, err = receiverconfig.Load(ctx, o.config, o.receiver); err != nil {
			return nil, err
		}
	}
	if err := selectModel(cfg, "", o.config); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

// write writes the report to the directory of -out.
func (o *verifyOptions) write(report *verify.Report) error {
	if o.out == "" {
		return nil
	}
	for name, write := range map[string]func(io.Writer) error{"verify.json": report.WriteJSON, "verify.md": report.WriteMarkdown} {
		f, err := os.Create(filepath.Join(o.out, name))
		if err != nil {
			return err
		}
		if err := cmp.Or(write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
