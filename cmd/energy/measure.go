// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	runner "github.com/energyreceiver/energyreceiver/cmd/energy/internal/command"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/patience"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/plot"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/profile"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/receiverconfig"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/processor/emissions/grid"
	energyreceiver "github.com/energyreceiver/energyreceiver/receiver"
)

// Exit statuses of measure beside the command's own, as of timeout(1).
const (
	exitTooMuch       = 124 // the command succeeded, and used more than --max-joules
	exitFailed        = 125 // the command was not started, or it succeeded and a file was not written
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
	maxJoules               float64
	json, csv, quiet, force bool
	output                  string
	several                 severalOptions
	plot                    string
	profile                 profileOptions
	messages                io.Writer // standard error, for all but the result
	lost                    int       // exitFailed if a result was not written, else 0
}

// subcommand returns the command measure.
func (o *measureOptions) subcommand() *cobra.Command {
	c := &cobra.Command{
		Use: "measure [flags] [--] COMMAND [ARGUMENT...]", Short: "run a command and report its energy",
		Long: `Runs a command, and reports the energy of it and of all processes that it starts. No collector is
needed.

The exit status is the status of the command, or 128+n if signal n terminated it. It is 127 if the
command is not found, and 126 if it cannot be executed. It is 125 if energy failed before the start
or could not write a result, and 124 if the command used more than --max-joules.`,
		Example: `  energy measure -- make -j8                                a table on standard error
  energy measure --baseline 10s -- make -j8                 measures the power of the machine
                                                            without the command first
  energy measure --model none -- make -j8                   does not estimate energy
  energy measure --json -o result.json -- make -j8          for programs
  energy measure --max-joules 500 --quiet -- make test      fails if it used more
  energy measure --config collector.yaml -- make -j8        with the meters of a collector
  energy measure --runs 10 --warmup 1 -- make test          mean, deviation, confidence interval
  energy measure --vs 'gzip -1 f' -- gzip -9 f              compares two commands, run in turn
  energy measure --plot power.svg -- make -j8               draws its power over time
  energy measure --node -- ./scenario.sh                    the whole machine, by phase
  energy measure --node --by container -- ./scenario.sh     the containers of the machine, by phase
  energy measure --grid FRA --price 0.30 -- make            grams of CO2e and money
  energy measure --profile code.pb.gz -- make test          by function`,
	}
	c.Flags().SetInterspersed(false) // the arguments of COMMAND are its own
	c.Args = func(_ *cobra.Command, args []string) error {
		o.Command = args
		o.several.given = c.Flags().Changed("runs")
		return o.check()
	}
	c.RunE = func(*cobra.Command, []string) error { return exitError{status: o.runUntilSignal()} }
	flagGroup(c, "What is measured", o.measuredFlags)
	o.several.flags(c)
	o.outputFlags(c)
	flagGroup(c, "Limits", func(f *pflag.FlagSet) {
		f.Float64Var(&o.maxJoules, "max-joules", 0, "exit with 124 if the command used more `joules` (0: no limit)")
		f.DurationVar(&o.Wait, "wait", 30*time.Second,
			"longest wait for meters that are read seldom, before and after the command (0s: none)")
	})
	return c
}

func (o *measureOptions) measuredFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.Interval, "interval", time.Second, fmt.Sprintf("time between two measurements, at least %v", measure.MinInterval))
	f.DurationVar(&o.Baseline, "baseline", 0,
		"measure the static power of the node for this time before the command")
	f.BoolVar(&o.Node, "node", false, "also report the energy of the whole machine, in total and by phase")
	f.StringVar(&o.model, "model", "", modelUsage)
	f.StringVar(&o.config, "config", "", "`file` with the configuration of a collector, or of its energy receiver")
	f.StringVar(&o.receiver, "receiver", "", "`name` of the receiver in that file if it has several: energy/name")
}

func (o *measureOptions) outputFlags(c *cobra.Command) {
	flagGroup(c, "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&o.output, "output", "o", "", "`file` to write to in place of standard error; - is standard output, "+
			"and the command's goes to standard error")
		f.BoolVar(&o.json, "json", false, "write JSON in place of the table")
		f.BoolVar(&o.csv, "csv", false, "write CSV in place of the table")
		f.BoolVar(&o.quiet, "quiet", false, "write only errors to standard error")
		f.Func("by", "`rows` of the table: program, container or phase; with --node, programs and containers are those "+
			"of the whole machine", o.setBy)
		f.Func("grid", "report emissions, by the yearly mean of a `place` such as FRA or aws:eu-west-3, or a number of g/kWh", o.setGrid)
		f.Func("price", "report the cost at a `price` per kWh", func(text string) (err error) {
			o.Rates.Price, err = rate(text)
			return err
		})
		f.StringVar(&o.plot, "plot", "", "`file` for a drawing of the power over time, as SVG")
		o.profile.flags(f)
		forceFlag(f, &o.force)
	})
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
	// A closed standard error changes nothing: writes to it fail in place of SIGPIPE.
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
	if len(caught) > 0 { // else all would be
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
	switch {
	case len(o.Command) == 0:
		return errors.New("a command is needed")
	case o.Interval < measure.MinInterval:
		return fmt.Errorf("--interval must be at least %v", measure.MinInterval)
	case o.Baseline < 0 || o.Wait < 0:
		return errors.New("--baseline and --wait must not be below 0")
	case !(o.maxJoules >= 0 && o.maxJoules < math.MaxInt64/float64(units.Joule)):
		return errors.New("--max-joules must be a number of joules")
	case o.json && o.csv:
		return errors.New("--json and --csv exclude each other")
	case o.receiver != "" && o.config == "":
		return errors.New("--receiver names a receiver in the file of --config: --config is needed")
	}
	if err := errors.Join(o.profile.check(&o.several), o.several.check()); err != nil {
		return err
	}
	if o.By == measure.ByContainer && !o.Node {
		return errors.New("--by container needs --node: the table has the containers of the whole machine")
	}
	if o.csv && (o.By == measure.ByProgram || o.By == measure.ByContainer) {
		return fmt.Errorf("CSV has no rows by %s: use --json or the table", o.By)
	}
	if o.By != "" && o.several.used() {
		return errors.New("--by is for the table of one run")
	}
	if (o.Rates.Grams != nil || o.Rates.Price != nil) && o.several.used() && !o.json {
		return errors.New("--grid and --price are for the table of one run: with --runs, --warmup and --vs they need --json")
	}
	if o.Node && o.several.used() {
		return errors.New("--node is for the table of one run: with --runs, --warmup and --vs the documents of --json have node_joules")
	}
	return nil
}

// setGrid sets the carbon intensity: a place, or a number of g/kWh.
func (o *measureOptions) setGrid(text string) (err error) {
	if o.Rates.Grams, err = rate(text); err == nil {
		return nil
	}
	place, err := grid.Lookup(text)
	if err != nil {
		return err
	}
	grams := float64(place.Rate) / 1e6 // from µg
	o.Rates.Grams, o.Rates.Grid = &grams, place.Name
	if place.Year != 0 {
		o.Rates.Grid += fmt.Sprintf(", mean of %d", place.Year)
	}
	return nil
}

// rate returns a number that is not negative.
func rate(text string) (*float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= 0 && value <= math.MaxFloat32) {
		return nil, errors.New("must be a number of at least 0")
	}
	return &value, nil
}

// takesWithin is how long what is written may block after a signal.
const takesWithin = 1500 * time.Millisecond

// run runs the command and returns the exit status.
func (o *measureOptions) run(ctx context.Context) int {
	o.messages = figure.Writer(patience.NewWriter(ctx, takesWithin, o.Stderr))
	type files struct {
		out, drawing, pprof, flame *output
		base                       *profile.Base
	}
	opened, err := patience.Call(ctx, takesWithin, func() (f files, err error) { // each may be a FIFO, which blocks
		if err = refuseExisting(o.force, o.output, o.plot, o.profile.pprof, o.profile.flame); err == nil {
			err = o.configure(ctx)
		}
		if err == nil {
			f.out, err = o.open(ctx)
		}
		if err == nil {
			f.drawing, err = create(ctx, o.plot)
		}
		if err == nil {
			f.base, err = o.profile.readBase()
		}
		if err == nil {
			f.pprof, err = create(ctx, o.profile.pprof)
		}
		if err == nil {
			f.flame, err = create(ctx, o.profile.flame)
		}
		if err == nil {
			err = distinct(f.out, f.drawing, f.pprof, f.flame)
		}
		return f, err
	})
	out, drawing := opened.out, opened.drawing
	for _, f := range []*output{out, drawing, opened.pprof, opened.flame} {
		defer f.discard()
	}
	switch {
	case errors.Is(err, patience.ErrBlocked):
		return o.failed(context.Cause(ctx))
	case err != nil:
		return o.failed(err)
	case o.several.used():
		return o.runSeveral(ctx, out, drawing)
	}
	o.Names = true // which delays the start, and tables of several runs have no programs
	profiler, err := o.startProfiler(ctx, opened.base)
	if err != nil {
		return o.failed(err)
	}
	defer profiler.Close()
	r, err := measure.Run(ctx, o.Options)
	if err != nil {
		return o.failed(err)
	}
	o.save("profile", opened.pprof, profiler.WritePprof)
	o.save("flame graph", opened.flame, func(to io.Writer) error { return profiler.WriteFlame(to, r) })
	o.draw(drawing, plot.Panel{Title: figure.Command(r.Command), Result: r})
	return o.report(r, out)
}

// failed prints why a command was not started, and returns the exit status.
func (o *measureOptions) failed(err error) int {
	if signal := interrupted(0); errors.As(err, &signal) {
		return signal.exit()
	}
	if errors.Is(err, measure.ErrNoMeter) {
		err = fmt.Errorf("--max-joules cannot be checked: %w", err)
	}
	fmt.Fprintln(o.messages, "energy measure:", figure.Line(err.Error()))
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
	o.NeedsEnergy = o.maxJoules > 0
	if !o.quiet {
		o.Say = func(text string) { fmt.Fprintln(o.messages, "energy measure:", text) }
		for _, setting := range without {
			o.Say(setting + " is left out: extensions are a collector's")
		}
	}
	return nil
}

// open opens the file of the result before the command is started. It returns nil if no result is written.
func (o *measureOptions) open(ctx context.Context) (*output, error) {
	switch {
	case o.output == "-":
		out := o.Stdout
		o.Stdout = o.Stderr // the command's own output does not mix with the result
		return &output{Writer: patience.NewWriter(ctx, takesWithin, out)}, nil
	case o.output != "" || o.quiet:
		return create(ctx, o.output)
	}
	return &output{Writer: patience.NewWriter(ctx, takesWithin, o.Stderr), optional: true}, nil
}

// create opens a file for writing. It keeps existing content until output.save. It returns nil if
// path is empty.
func create(ctx context.Context, path string) (*output, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a result is no secret
	isNew := err == nil
	if errors.Is(err, fs.ErrExist) {
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644) //nolint:gosec // a result is no secret
	}
	if err != nil {
		return nil, err
	}
	return &output{Writer: patience.NewWriter(ctx, takesWithin, file), file: file, isNew: isNew}, nil
}

// distinct returns an error if two outputs have the same file, because the second would replace the first.
func distinct(outputs ...*output) error {
	var files []os.FileInfo
	for _, o := range outputs {
		if o == nil || o.file == nil {
			continue
		}
		info, err := o.file.Stat()
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
		case slices.ContainsFunc(files, func(other os.FileInfo) bool { return os.SameFile(info, other) }):
			return fmt.Errorf("two outputs have the same file %s", o.file.Name())
		}
		files = append(files, info)
	}
	return nil
}

// output is a file of results whose writes do not block for long after a signal.
type output struct {
	io.Writer
	file     *os.File // nil if the output must not be closed
	isNew    bool     // create created the file
	optional bool     // a failed write is not an error
}

// save truncates the file, unless it is a standard stream, calls write and closes the file.
func (o *output) save(write func(io.Writer) error) error {
	if o.file == nil {
		return write(o)
	}
	if !isStream(o.file.Name()) {
		_ = o.file.Truncate(0) // fails for a pipe
	}
	err := errors.Join(write(o), o.file.Close())
	o.isNew = o.isNew && err != nil
	return err
}

// discard closes the file, and removes a new file that was not saved. o may be nil.
func (o *output) discard() {
	if o == nil || o.file == nil {
		return
	}
	_ = o.file.Close() // save may have closed it
	if o.isNew {
		_ = os.Remove(o.file.Name()) // the file is empty, or contains a part of a result
	}
}

// result is the output of measure.
type result interface {
	WriteTable(io.Writer) error
	WriteJSON(io.Writer) error
	WriteCSV(io.Writer) error
}

// report writes the result and returns the exit status.
func (o *measureOptions) report(r *measure.Result, out *output) int {
	o.write(r, out)
	return cmp.Or(r.Exit, o.checkUsed("the command used", r.Used(), *r), o.lost)
}

// checkUsed returns the exit status of an energy of runs, and prints an energy above the limit.
func (o *measureOptions) checkUsed(whose string, used units.Energy, runs ...measure.Result) int {
	missing := func(z measure.Zone) bool { return z.Missing > 0 }
	switch {
	case o.maxJoules == 0:
		return 0
	case used.Joules() > o.maxJoules:
		fmt.Fprintf(o.messages, "energy measure: %s %s, more than the %v J of --max-joules\n", whose, figure.Joules(used), o.maxJoules)
		return exitTooMuch
	case slices.ContainsFunc(runs, func(r measure.Result) bool { return slices.ContainsFunc(r.Zones, missing) }):
		fmt.Fprintln(o.messages, "energy measure: --max-joules does not include energy that a meter has not reported yet")
	}
	return 0
}

// write writes a result, if anything is to be written.
func (o *measureOptions) write(r result, out *output) {
	if out == nil {
		return
	}
	write := func(to io.Writer) error { return r.WriteTable(figure.Writer(to)) }
	switch {
	case o.json:
		write = r.WriteJSON
	case o.csv:
		write = r.WriteCSV
	case o.output == "":
		fmt.Fprintln(out) // apart from what the command wrote
	}
	o.save("result", out, write)
}

// save writes a file and closes it, if it is open.
func (o *measureOptions) save(what string, to *output, write func(io.Writer) error) {
	if to == nil {
		return
	}
	if err := to.save(write); err != nil {
		fmt.Fprintf(o.messages, "energy measure: the %s is not written: %v\n", what, err)
		if !to.optional {
			o.lost = exitFailed
		}
	}
}
