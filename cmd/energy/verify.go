// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/verify"
	"github.com/energyreceiver/energyreceiver/internal/perfevent"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

type verifyOptions struct {
	config, receiver string
	out, backend     string
	force            bool
	length           time.Duration
}

// minVerify is the shortest run: each step needs some seconds.
const minVerify = 20 * time.Second

// subcommand returns the command verify.
func (o *verifyOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "verify [flags]", Short: "check the meters of this machine and the receiver's figures",
		Long: `Checks the meters of this machine and the figures of the receiver, in seven minutes. It loads the
CPUs in steps, so run it on an otherwise idle machine. Without root or without meters, it lists the
checks that were not possible. The exit status is 1 if a check found a fault.`,
		Example: `  energy verify                           reads all meters and prints a verdict for each check
  energy verify -o DIRECTORY              also writes verify.json and verify.md, for an issue:
                                          without names and serial numbers
  energy verify --config collector.yaml   also reads the meters that a collector's configuration
                                          describes
  energy verify --backend http://host:9090
                                          also checks the version of a metrics database`,
		Args: noArguments(o.check),
		RunE: untilDone(func(ctx context.Context) error { return o.run(ctx, os.Stdout, os.Stderr) }),
	}
	flagGroup(c, "What is checked", func(f *pflag.FlagSet) {
		f.DurationVar(&o.length, "for", 400*time.Second, fmt.Sprintf("total time of all steps, at least %v", minVerify))
		f.StringVar(&o.config, "config", "", "`file` with the configuration of a collector, or of its energy receiver")
		f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
		f.StringVar(&o.backend, "backend", "", "`URL` of a metrics database whose version is checked")
	})
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&o.out, "output", "o", "", "`directory` to write verify.json and verify.md to")
		forceFlag(f, &o.force)
	})
	return c
}

func (o *verifyOptions) check() error {
	if o.length < minVerify {
		return fmt.Errorf("--for must be at least %v", minVerify)
	}
	if o.out == "" {
		return nil
	}
	return refuseExisting(o.force, filepath.Join(o.out, "verify.json"), filepath.Join(o.out, "verify.md"))
}

// errFaults is the error of a run with faults. The report lists the faults.
var errFaults = exitError{status: 1}

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
	run := verify.Options{Config: cfg, Length: o.length, Loader: verify.NewLoader(), CanCount: canCount}
	run.Say = func(format string, args ...any) { fmt.Fprintf(messages, "energy verify: "+format+"\n", args...) }
	if o.backend != "" {
		run.Backend = verify.AskBackend(ctx, o.backend)
	}
	observed, err := patience.Call(ctx, 10*time.Second, func() (*verify.Observation, error) { return verify.Run(ctx, run) })
	if err != nil {
		return err
	}
	info, _ := debug.ReadBuildInfo()
	report := verify.NewReport(observed, strings.Fields(version(info))[1])
	text := report.Text()
	if hasColors(out) {
		text = painter.Replace(text)
	}
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	page := filepath.Join("DIRECTORY", "verify.md")
	if o.out != "" {
		if err := report.Write(o.out); err != nil {
			return err
		}
		page = filepath.Join(o.out, "verify.md")
	}
	if report.Faults() == 0 {
		return nil
	}
	advice := "to report a fault, attach %s to an issue"
	if o.out == "" {
		advice += " after a run with --output DIRECTORY"
	}
	run.Say(advice, page)
	return errFaults
}

// configure returns the receiver's configuration, with a model of the zones without a meter.
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

// canCount returns the reason if the hardware events of processes cannot be counted, otherwise nil.
func canCount(root string) error {
	_, err := perfevent.FindHardware(root)
	return err
}

// hasColors reports whether out is a terminal with colors.
func hasColors(out io.Writer) bool {
	return isTerminal(out) && os.Getenv("NO_COLOR") == "" && !slices.Contains([]string{"", "dumb"}, os.Getenv("TERM"))
}

// painter colors the result at the start of a line.
var painter = strings.NewReplacer("\nFAULT ", "\n\x1b[1;31mFAULT\x1b[m ", "\nNOTE ", "\n\x1b[33mNOTE\x1b[m ",
	"\nOK ", "\n\x1b[32mOK\x1b[m ")
