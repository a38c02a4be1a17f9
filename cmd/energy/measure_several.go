// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/compare"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

// runsOfTwo is how often each of two commands runs unless --runs says it: an interval of 10 pairs is
// half as wide as one of 5.
const runsOfTwo = 10

// severalOptions are the number of runs, and the other command to run in turn.
type severalOptions struct {
	plan  compare.Plan
	other []string // the words of vs
	shell bool     // other is run by a shell
	given bool     // --runs is there

	ignoreFailure bool // a run counts whatever its exit status
}

func (o *severalOptions) flags(c *cobra.Command) {
	flagGroup(c, "Several runs", func(f *pflag.FlagSet) {
		f.IntVar(&o.plan.Runs, "runs", 0, fmt.Sprintf(
			"run the command `N` times, and report mean, deviation and confidence interval (default 1, with --vs %d)", runsOfTwo))
		f.IntVar(&o.plan.Warmup, "warmup", 0, "run it `N` times before, to fill caches; these runs are not counted")
		f.Func("vs", "another `command`, run in turn with the first and compared with it pair by pair; it needs quotes, and "+
			"a shell runs it if its syntax needs one",
			func(line string) (err error) {
				o.plan.Two = true
				o.other, o.shell, err = compare.Words(line)
				return err
			})
		f.BoolVar(&o.ignoreFailure, "ignore-failure", false, "with --runs and --vs: count runs whose exit status is not 0, too")
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
		if o.plan.Two {
			o.plan.Runs = runsOfTwo
		}
	}
	return nil
}

// used reports whether there is more than one run.
func (o *severalOptions) used() bool { return o.plan.Two || o.plan.Runs > 1 || o.plan.Warmup > 0 }

// runSeveral runs the command several times, or two commands in turn, and returns the exit status
// of the first run that fails, unless failures are ignored. After a signal it reports the completed
// runs.
func (o *measureOptions) runSeveral(ctx context.Context, f *files) int {
	var results [2][]*measure.Result
	for step := range o.several.plan.Steps() {
		r, err := o.runStep(ctx, step)
		switch {
		case ctx.Err() != nil: // the command received the signal, too
			o.reportCompleted(f, results)
			return o.failed(context.Cause(ctx))
		case err != nil:
			return o.failed(err)
		case r.Exit != 0 && !o.several.ignoreFailure:
			text := "--ignore-failure counts failed runs, too"
			if o.live != nil {
				text += "; --show-output shows their output"
			}
			o.say("%s failed with exit status %d: %s", o.several.plan.Name(step), r.Exit, text)
			return r.Exit
		case !step.Warmup:
			results[step.Command] = append(results[step.Command], r)
		}
	}
	report := o.report(f, results)
	return cmp.Or(o.checkUsed("the runs of the command used on average", report), o.lost)
}

// reportCompleted reports the runs that were complete when a signal came. Of two commands, it reports complete pairs.
func (o *measureOptions) reportCompleted(f *files, results [2][]*measure.Result) {
	plan := &o.several.plan
	complete, name := len(results[0]), "runs"
	if plan.Two {
		complete, name = min(complete, len(results[1])), "pairs of runs"
		results[1] = results[1][:complete]
	}
	results[0] = results[0][:complete]
	if complete == 0 {
		o.say("interrupted: none of %d %s is complete", plan.Runs, name)
		return
	}
	o.report(f, results, fmt.Sprintf("Interrupted: %d of %d %s are complete", complete, plan.Runs, name))
}

// report writes and draws the results of runs.
func (o *measureOptions) report(f *files, results [2][]*measure.Result, warnings ...string) *report.Report {
	commands := []report.Command{{Label: compare.Label(0), Runs: results[0]}}
	switch {
	case o.several.plan.Two:
		commands = append(commands, report.Command{Label: compare.Label(1), Runs: results[1]})
	case f.base != nil:
		commands[0].Label = report.Now
		commands = append(commands, *f.base)
	}
	r := report.New(report.Options{
		Verbose: o.verbose, Node: o.Node, By: o.By, Rates: o.rates, Warmup: o.several.plan.Warmup,
	}, commands, warnings...)
	if o.several.shell {
		r.Notes = append(r.Notes, "B is run by a shell, whose own energy is in that of B: a millisecond of CPU time or so")
	}
	o.write(f, r)
	return r
}

// runStep runs one of the commands once. A baseline is measured once, before the first.
func (o *measureOptions) runStep(ctx context.Context, s compare.Step) (*measure.Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	options := o.Options
	if s.Command == 1 {
		options.Command = o.several.other
	}
	o.live.next(s)
	r, err := measure.Run(ctx, options)
	if err != nil {
		return nil, err
	}
	o.Before = r.Before
	if o.verbose {
		used := figure.Joules(r.Used())
		if len(r.Zones) == 0 {
			used = "energy not available"
		}
		o.say("%s: %s in %s", o.several.plan.Name(s), used, figure.Seconds(r.Wall))
	}
	return r, nil
}

// checkUsed returns the exit status of the energy of a report, and prints an energy above the limit.
func (o *measureOptions) checkUsed(whose string, r *report.Report) int {
	used, missing := r.Used()
	switch {
	case o.maxJoules == 0:
		return 0
	case used.Joules() > o.maxJoules:
		o.say("%s %s, more than the %s J of --max-joules", whose, figure.Joules(used), strconv.FormatFloat(o.maxJoules, 'f', -1, 64))
		return exitTooMuch
	case missing:
		o.say("--max-joules does not include energy that a meter has not reported yet")
	}
	return 0
}
