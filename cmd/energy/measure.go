// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"golang.org/x/term"

	runner "github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/internal/units"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Exit statuses of measure in addition to the command's own, as in timeout(1).
const (
	exitTooMuch       = 124 // the command succeeded, and used more than --max-joules or --max-ratio
	exitFailed        = 125 // the command was not started, or it succeeded and a result is missing
	exitNotExecutable = 126
	exitNotFound      = 127
)

// interrupted is the signal that came before the command was started, or between runs.
type interrupted syscall.Signal

// Error implements error.
func (i interrupted) Error() string { return syscall.Signal(i).String() }

func (i interrupted) exit() int { return 128 + int(i) }

type measureOptions struct {
	measure.Options
	config, receiver, model string
	maxJoules, maxRatio     float64
	outputOptions
	several  severalOptions
	messages io.Writer // standard error, for all but the result
	live     *live
	lost     int // exitFailed if a result was not written, else 0
}

// subcommand returns the command measure.
func (o *measureOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "measure [flags] [--] COMMAND [ARGUMENT...]", Short: "run a command and report its energy",
		Long: `Runs a command, and reports the energy of it and of all processes that it starts. No collector is
needed. With --pid it measures a process that runs already, instead of a command, until the process
ends or Ctrl-C is pressed.

The exit status is the status of the command, or 128+n if signal n terminated it. It is 127 if the
command is not found, and 126 if it cannot be executed. It is 125 if energy failed before the start
or could not write a result. It is 124 if the command used more than --max-joules or --max-ratio.`,
		Example: `  energy measure -- make -j8                                energy, time and power on standard error
  energy measure -v -- make -j8                             and by zone and program
  energy measure --baseline 10s -- make -j8                 measures the power of the machine
                                                            without the command first
  energy measure --model none -- make -j8                   does not estimate energy
  energy measure -o result.json -- make -j8                 for programs
  energy measure --base result.json -- make -j8             compares with an earlier result
  energy measure --markdown -o - -- make -j8                a table for a comment in a pull request
  energy measure --max-joules 500 --quiet -- make test      fails if it used more
  energy measure --config collector.yaml -- make -j8        with the meters of a collector
  energy measure --runs 10 --warmup 1 -- make test          mean, deviation, confidence interval
  energy measure --vs 'gzip -1 f' -- gzip -9 f              compares two commands, run in turn
  energy measure --html report.html -- make -j8             a page for a browser: power over time,
                                                            phases and programs
  energy measure --max-ratio 1.03 --vs ./old -- ./new       fails if new uses significantly more
  energy measure --pid 4711 --for 1m                        a process that runs already
  energy measure --node -- ./scenario.sh                    the whole machine, by phase
  energy measure --node --by container -- ./scenario.sh     the containers of the machine, by phase
  energy measure --grid FRA --price 0.3 --currency EUR -- make
                                                            grams of CO2e and money
  energy measure --profile code.pb.gz -- make test          by function`,
	}
	c.Flags().SetInterspersed(false) // the arguments of COMMAND are its own
	c.Args = func(_ *cobra.Command, args []string) error {
		o.Command = args
		if !c.Flags().Changed("runs") {
			o.several.runs = 1
			if o.several.other != nil {
				o.several.runs = runsOfTwo
			}
		}
		o.silent = c.Flags().Changed("show-output") && !o.showOutput
		return o.check()
	}
	c.RunE = func(*cobra.Command, []string) error { return exitError{status: o.runUntilSignal()} }
	flagGroup(c, "What is measured", o.measuredFlags)
	o.several.flags(c)
	flagGroup(c, "Output", o.outputFlags)
	flagGroup(c, "Limits", func(f *pflag.FlagSet) {
		f.Float64Var(&o.maxJoules, "max-joules", 0, "exit with 124 if the command used more `joules` (0: no limit)")
		f.Float64Var(&o.maxRatio, "max-ratio", 0, "with --vs or --base: exit with 124 if the `ratio` of the energies, or of CPU times if all "+
			"energy is modeled, is higher and the difference is significant (0: no limit)")
		f.DurationVar(&o.Wait, "wait", 30*time.Second,
			"longest wait for meters that are read seldom, before and after the command (0s: no wait)")
	})
	return c
}

func (o *measureOptions) measuredFlags(f *pflag.FlagSet) {
	f.IntVarP(&o.PID, "pid", "p", 0, "measure the process with this `ID` and its descendants instead of a command")
	f.DurationVar(&o.For, "for", 0, "with --pid: longest time to measure (0s: until the process exits)")
	f.DurationVar(&o.Interval, "interval", time.Second, fmt.Sprintf("time between two measurements, at least %v", measure.MinInterval))
	f.DurationVar(&o.Baseline, "baseline", 0,
		"measure the static power of the node for this time before the command")
	f.BoolVar(&o.Node, "node", false, "also report the energy of the whole machine, in total and by phase")
	f.Func("by", "`rows` of the table: program, container or phase; with --node, programs and containers are those "+
		"of the whole machine", o.setBy)
	f.StringVar(&o.model, "model", "", modelUsage)
	f.StringVar(&o.config, "config", "", "`file` with the configuration of a collector, or of its energy receiver")
	f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
}

func (o *measureOptions) setBy(text string) error {
	o.By = measure.By(text)
	if !slices.Contains([]measure.By{measure.ByProgram, measure.ByContainer, measure.ByPhase}, o.By) {
		return errors.New("must be program, container or phase")
	}
	return nil
}

// runUntilSignal runs the command, and returns the exit status.
func (o *measureOptions) runUntilSignal() int {
	// If the reader of standard error is gone, writes fail in place of SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := untilSignal()
	defer stop()
	o.Stdin, o.Stdout, o.Stderr = os.Stdin, os.Stdout, os.Stderr
	return o.run(ctx)
}

// untilSignal returns a context that a signal ends. Its cause is interrupted then.
func untilSignal() (_ context.Context, stop func()) {
	// A signal that is ignored, as by nohup(1), stays so.
	caught := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	if len(caught) > 0 { // Notify without signals would catch all signals
		signal.Notify(signals, caught...)
	}
	go func() {
		select {
		case s := <-signals:
			cancel(interrupted(s.(syscall.Signal)))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

func (o *measureOptions) check() error {
	used := o.several.used()
	for _, c := range []struct {
		is  bool
		err string
	}{
		{len(o.Command) == 0 && o.PID == 0, "a command or --pid is required"},
		{o.PID < 0 || o.PID > math.MaxInt32, "--pid must be the ID of a process"},
		{len(o.Command) > 0 && o.PID != 0, "--pid and a command are mutually exclusive"},
		{o.For < 0, "--for must not be below 0"},
		{o.For > 0 && o.PID == 0, "--for requires --pid"},
		{o.quiet && o.verbose, "--quiet and -v are mutually exclusive"},
		{o.several.runs < 1, "--runs must be at least 1"},
		{o.several.warmup < 0, "--warmup must not be below 0"},
		{o.PID != 0 && used, "--pid is for one run"},
		{o.Interval < measure.MinInterval, fmt.Sprintf("--interval must be at least %v", measure.MinInterval)},
		{o.Baseline < 0 || o.Wait < 0, "--baseline and --wait must not be below 0"},
		{!(o.maxJoules >= 0 && o.maxJoules < math.MaxInt64/float64(units.Joule)), "--max-joules must be a number of joules"},
		{o.maxRatio != 0 && !(o.maxRatio >= 1 && !math.IsInf(o.maxRatio, 1)), "--max-ratio must be a number of at least 1"},
		{o.maxRatio > 0 && o.several.other == nil && o.base == "", "--max-ratio requires --vs or --base"},
		{o.maxRatio > 0 && o.several.runs < 2, "--max-ratio requires --runs of at least 2"},
		{o.receiver != "" && o.config == "", "--receiver requires --config"},
		{o.By == measure.ByContainer && !o.Node, "--by container requires --node"},
		{o.pprof != "" && used, "--profile is for one run: --base compares with an earlier profile"},
		{o.base != "" && o.several.other != nil, "--base and --vs are mutually exclusive"},
		{o.By != "" && used, "--by is for one run"},
		{o.json && o.csv || o.csv && o.markdown || o.markdown && o.json, "--json, --csv and --markdown are mutually exclusive"},
		{o.Node && used, "--node is for one run: JSON and CSV of several runs have node_joules"},
	} {
		if c.is {
			return errors.New(c.err)
		}
	}
	return checkRates(&o.rates)
}

// takesWithin is how long a write may block after a signal.
const takesWithin = 1500 * time.Millisecond

// run runs the command and returns the exit status.
func (o *measureOptions) run(ctx context.Context) int {
	o.messages = figure.Writer(patience.NewWriter(ctx, takesWithin, o.Stderr))
	f, err := patience.Call(ctx, takesWithin, func() (*files, error) { // each may be a FIFO, which blocks
		if err := o.configure(ctx); err != nil {
			return nil, err
		}
		return o.open(ctx)
	})
	defer f.discard()
	switch {
	case errors.Is(err, patience.ErrBlocked):
		return o.failed(context.Cause(ctx))
	case err != nil:
		return o.failed(err)
	}
	nowhere, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return o.failed(err)
	}
	defer func() { _ = nowhere.Close() }()
	o.hideOutput(ctx, nowhere)
	defer o.live.clear()
	if o.several.used() {
		o.Stdin = nowhere // the first run would read the whole content of a pipe
		return o.runSeveral(ctx, f)
	}
	o.Names = true // which delays the start, and several runs are not divided among programs
	profiler, err := o.startProfiler(ctx, f.profileBase)
	if err != nil {
		return o.failed(err)
	}
	defer profiler.Close()
	o.live.next("", nil)
	r, err := measure.Run(ctx, o.Options)
	if err != nil {
		return o.failed(err)
	}
	o.save("profile", f.pprof, profiler.WritePprof)
	report := o.report(f, [2][]*measure.Result{{r}})
	return cmp.Or(r.Exit, o.checkUsed("the command used", report), o.lost)
}

// startProfiler starts the profiler, if there is a file for the profile. base may be nil.
func (o *measureOptions) startProfiler(ctx context.Context, base profile.Base) (*profile.Profiler, error) {
	if o.pprof == "" {
		return nil, nil
	}
	if o.Say != nil {
		o.Say("starting the profiler")
	}
	p, err := profile.Start(ctx, o.profiler, base)
	if err != nil {
		return nil, err
	}
	o.Profiler = p
	return p, nil
}

// hideOutput discards the output of several runs to a terminal, and shows the live line there
// instead. The live line of a process that ran before is shown, too.
func (o *measureOptions) hideOutput(ctx context.Context, nowhere *os.File) {
	if !o.silent && o.PID == 0 && (o.showOutput || !o.several.used()) {
		return
	}
	terminal := o.Stderr
	for _, f := range []**os.File{&o.Stdout, &o.Stderr} {
		if o.silent || isTerminal(*f) {
			*f = nowhere
		}
	}
	if !o.quiet && isTerminal(terminal) {
		columns, _, err := term.GetSize(int(terminal.Fd()))
		if err != nil || columns == 0 {
			columns = figure.Columns
		}
		o.live = &live{to: patience.NewWriter(ctx, takesWithin, terminal), columns: columns, now: time.Now, steps: o.several.count()}
		o.Progress = o.live.sample
	}
}

// say prints a message. It replaces the live line.
func (o *measureOptions) say(format string, args ...any) {
	o.live.clear()
	fmt.Fprintf(o.messages, "energy measure: "+format+"\n", args...)
}

// failed prints why a command was not started, and returns the exit status.
func (o *measureOptions) failed(err error) int {
	if signal := interrupted(0); errors.As(err, &signal) {
		return signal.exit()
	}
	if errors.Is(err, measure.ErrNoMeter) {
		err = fmt.Errorf("the limit cannot be checked: %w", err)
	}
	text := figure.Line(err.Error())
	if errors.Is(err, runner.ErrNotFound) && len(o.Command) == 1 && strings.Contains(o.Command[0], " ") {
		text += ": the command and its arguments are separate words, without quotes around them"
	}
	o.say("%s", text)
	switch {
	case errors.Is(err, runner.ErrNotFound):
		return exitNotFound
	case errors.Is(err, runner.ErrNotExecutable):
		return exitNotExecutable
	}
	return exitFailed
}

// configure fills the options of the measurement.
func (o *measureOptions) configure(ctx context.Context) error {
	o.Config = energyreceiver.DefaultConfig()
	o.Config.Attribution.Preset = energyreceiver.PresetKepler // a run is too short to train static power
	var without []string
	var err error
	if o.config != "" {
		if o.Config, without, err = receiverconfig.Load(ctx, o.config, o.receiver); err != nil {
			return err
		}
	}
	without = readGPUs(o.Config, without)
	o.Extensions = gpuLibraries
	if err := selectModel(o.Config, o.model, o.config); err != nil {
		return err
	}
	if err := o.Config.Validate(); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	o.NeedsEnergy = o.maxJoules > 0 || o.maxRatio > 0
	if !o.quiet {
		o.Say = func(text string) { o.say("%s", text) }
		for _, setting := range without {
			o.Say(setting + " is left out: extensions are a collector's")
		}
	}
	return nil
}
