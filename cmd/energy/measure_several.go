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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/compare"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/plot"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// runsOfTwo is how often each of two commands runs unless --runs says it: an interval of 10 pairs is
// half as wide as one of 5.
const runsOfTwo = 10

// severalOptions say how often the command is run, and beside which other.
type severalOptions struct {
	plan   compare.Plan
	other  []string // the words of vs
	shell  bool     // other is run by a shell
	line   string   // of --vs
	chosen bool     // --vs is there
	given  bool     // --runs is there
}

func (o *severalOptions) flags(c *cobra.Command) {
	flagGroup(c, "Several runs", func(f *pflag.FlagSet) {
		f.IntVar(&o.plan.Runs, "runs", 0, fmt.Sprintf(
			"run the command `N` times, and report mean, deviation and confidence interval (default 1, with --vs %d)", runsOfTwo))
		f.IntVar(&o.plan.Warmup, "warmup", 0, "run it `N` times before, to fill caches; these runs are not counted")
		f.Func("vs", "another `command`, run in turn with the first and compared with it pair by pair; it needs quotes, and "+
			"a shell runs it if its syntax needs one. With --profile: the file of an earlier profile",
			func(line string) (err error) {
				o.line, o.chosen = line, true
				o.other, o.shell, err = compare.Words(line)
				return err
			})
		f.BoolVar(&o.plan.IgnoreFailure, "ignore-failure", false, "with --runs and --vs: count runs whose exit status is not 0, too")
	})
}

func (o *severalOptions) check() error {
	switch {
	case o.given && o.plan.Runs < 1:
		return errors.New("--runs must be at least 1")
	case o.plan.Warmup < 0:
		return errors.New("--warmup must not be below 0")
	}
	if !o.given {
		o.plan.Runs = 1
		if o.chosen {
			o.plan.Runs = runsOfTwo
		}
	}
	o.plan.Two = o.chosen
	return nil
}

// used reports whether there is more than one run.
func (o *severalOptions) used() bool { return o.plan.Two || o.plan.Runs > 1 || o.plan.Warmup > 0 }

// runSeveral runs the command several times, or two commands in turn, and returns the exit status:
// that of the first run that fails, unless failures are ignored. After a signal it reports the
// completed runs.
func (o *measureOptions) runSeveral(ctx context.Context, out, drawing *output) int {
	input, err := os.Open(os.DevNull) // the first run would take all of a pipe
	if err != nil {
		return o.failed(err)
	}
	defer func() { _ = input.Close() }()
	o.Stdin = input
	results, err := o.several.plan.Run(func(s compare.Step) (measure.Result, error) { return o.runStep(ctx, s) })
	var failure *compare.FailedError
	switch {
	case ctx.Err() != nil:
		o.reportCompleted(results, out, drawing)
		return o.failed(context.Cause(ctx))
	case errors.As(err, &failure):
		fmt.Fprintln(o.messages, "energy measure:", err)
		return failure.Exit
	case err != nil:
		return o.failed(err)
	}
	report := o.reportRuns(results, out, drawing)
	mean := units.Energy(math.Round(report.A.Energy.Mean * float64(units.Joule)))
	return cmp.Or(o.checkUsed("the runs of the command used on average", mean, report.A.Runs...), o.lost)
}

// reportCompleted reports the runs that were complete when a signal came. Of two commands, it reports complete pairs.
func (o *measureOptions) reportCompleted(results [2][]measure.Result, out, drawing *output) {
	plan := &o.several.plan
	complete, name := len(results[0]), "runs"
	if plan.Two {
		complete, name = min(complete, len(results[1])), "pairs of runs"
		results[1] = results[1][:complete]
	}
	results[0] = results[0][:complete]
	if complete == 0 {
		fmt.Fprintf(o.messages, "energy measure: interrupted: none of %d %s is complete\n", plan.Runs, name)
		return
	}
	note := fmt.Sprintf("Interrupted: %d of %d %s are complete", complete, plan.Runs, name)
	plan.Runs = complete
	o.reportRuns(results, out, drawing, note)
}

// reportRuns writes and draws the results of runs.
func (o *measureOptions) reportRuns(results [2][]measure.Result, out, drawing *output, notes ...string) *compare.Report {
	if o.several.shell {
		notes = append(notes, "B is run by a shell, whose own energy is in that of B: a millisecond of CPU time or so")
	}
	report := compare.NewReport(o.several.plan, results, notes...)
	o.drawTypical(drawing, report)
	o.write(report, out)
	return report
}

// runStep runs one of the commands once. A baseline is measured once, before the first.
func (o *measureOptions) runStep(ctx context.Context, s compare.Step) (measure.Result, error) {
	if ctx.Err() != nil {
		return measure.Result{}, context.Cause(ctx)
	}
	options := o.Options
	if s.Command == 1 {
		options.Command = o.several.other
	}
	r, err := measure.Run(ctx, options)
	if err != nil {
		return measure.Result{}, err
	}
	if ctx.Err() != nil { // the command received the signal, too
		return measure.Result{}, context.Cause(ctx)
	}
	o.Before = r.Before
	if o.Say != nil {
		used := figure.Joules(r.Used())
		if len(r.Zones) == 0 {
			used = "energy unknown"
		}
		o.Say(fmt.Sprintf("%s: %s in %s", o.several.plan.Name(s), used, figure.Seconds(r.Wall)))
	}
	return *r, nil
}

// drawTypical draws of each command the run whose energy is the median.
func (o *measureOptions) drawTypical(drawing *output, r *compare.Report) {
	var panels []plot.Panel
	for i, c := range []*compare.Command{r.A, r.B} {
		if c == nil {
			continue
		}
		p := plot.Panel{Title: figure.Command(c.Command), Result: &c.Runs[c.Typical()]}
		if r.B != nil {
			p.Title = string(rune('A'+i)) + ": " + p.Title
		}
		if n := len(c.Runs); n > 1 {
			p.Note = fmt.Sprintf("run %d of %d, whose energy is the median", c.Typical()+1, n)
		}
		panels = append(panels, p)
	}
	o.draw(drawing, panels...)
}

func (o *measureOptions) draw(drawing *output, panels ...plot.Panel) {
	o.save("plot", drawing, func(to io.Writer) error { return plot.SVG(to, panels...) })
}
