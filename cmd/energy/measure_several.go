// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/report"
)

// runsOfTwo is the number of runs of each of two commands without --runs. An interval of 10 pairs
// is half as wide as one of 5.
const runsOfTwo = 10

// severalOptions are the number of runs, and the other command to run in turn.
type severalOptions struct {
	runs, warmup  int      // of each command. Warm-up runs come first, and are not counted
	other         []string // command B, or nil
	shell         bool     // other is run by a shell
	ignoreFailure bool     // a run counts whatever its exit status
}

func (o *severalOptions) flags(c *cobra.Command) {
	flagGroup(c, "Several runs", func(f *pflag.FlagSet) {
		f.IntVar(&o.runs, "runs", 0, fmt.Sprintf(
			"run the command `N` times, and report mean, deviation and confidence interval (default 1, with --vs %d)", runsOfTwo))
		f.IntVar(&o.warmup, "warmup", 0, "run it `N` times before, to fill caches; these runs are not counted")
		f.Func("vs", "another `command` in quotes, run in turn with the first and compared with it pair by pair; "+
			"it is run by a shell only if its syntax requires a shell",
			func(line string) (err error) {
				o.other, o.shell, err = shellWords(line)
				return err
			})
		f.BoolVar(&o.ignoreFailure, "ignore-failure", false, "with --runs and --vs: also count runs whose exit status is not 0")
	})
}

// used reports whether there is more than one run.
func (o *severalOptions) used() bool { return o.other != nil || o.runs > 1 || o.warmup > 0 }

// labels are the names of two commands.
var labels = [...]string{"A", "B"}

// step is one run of a command.
type step struct {
	command int // index of labels
	warmup  bool
	name    string // for people: "run 3 of 10 of A"
}

// count returns the number of steps.
func (o *severalOptions) count() int {
	if o.other != nil {
		return 2 * (o.warmup + o.runs)
	}
	return o.warmup + o.runs
}

// step returns the i-th step. Two commands run in pairs, in turn A B and B A. A steady change, such
// as of the temperature of the CPU, has the same effect on both.
func (o *severalOptions) step(i int) (s step) {
	if o.other != nil {
		i, s.command = i/2, i%2
	}
	of := o.runs
	if s.warmup = i < o.warmup; s.warmup {
		s.name, of = "warm-up ", o.warmup
	} else {
		i -= o.warmup
	}
	s.name += fmt.Sprintf("run %d of %d", i+1, of)
	if o.other != nil {
		s.command ^= i % 2
		s.name += " of " + labels[s.command]
	}
	return s
}

// runSeveral runs the command several times, or two commands in turn, and returns the exit status
// of the first run that fails, unless failures are ignored. After a signal it reports the completed
// runs.
func (o *measureOptions) runSeveral(ctx context.Context, f *files) int {
	var results [2][]*measure.Result
	for i := range o.several.count() {
		step := o.several.step(i)
		r, err := o.runStep(ctx, step, results[step.command])
		switch {
		case ctx.Err() != nil: // the command received the signal, too
			o.reportCompleted(f, results)
			return o.failed(context.Cause(ctx))
		case err != nil:
			return o.failed(err)
		case r.Exit != 0 && !o.several.ignoreFailure:
			text := "--ignore-failure also counts failed runs"
			if o.live != nil {
				text += "; --show-output shows their output"
			}
			o.say("%s failed with exit status %d: %s", step.name, r.Exit, text)
			return r.Exit
		case !step.warmup:
			results[step.command] = append(results[step.command], r)
		}
	}
	report := o.report(f, results)
	return cmp.Or(o.checkUsed("the runs of the command used on average", report), o.checkRatio(report), o.lost)
}

// reportCompleted reports the runs that were complete when a signal came. Of two commands, it
// reports complete pairs.
func (o *measureOptions) reportCompleted(f *files, results [2][]*measure.Result) {
	complete, name := len(results[0]), "runs"
	if o.several.other != nil {
		complete, name = min(complete, len(results[1])), "pairs of runs"
		results[1] = results[1][:complete]
	}
	results[0] = results[0][:complete]
	if complete == 0 {
		o.say("interrupted: 0 of %d %s are complete", o.several.runs, name)
		return
	}
	o.report(f, results, fmt.Sprintf("Interrupted: %d of %d %s are complete", complete, o.several.runs, name))
}

// report writes the results of runs.
func (o *measureOptions) report(f *files, results [2][]*measure.Result, warnings ...string) *report.Report {
	commands := []report.Command{{Label: labels[0], Runs: results[0]}}
	switch {
	case o.several.other != nil:
		commands = append(commands, report.Command{Label: labels[1], Runs: results[1]})
	case f.base != nil:
		commands[0].Label = report.Now
		commands = append(commands, *f.base)
	}
	r := report.New(report.Options{
		Verbose: o.verbose, Node: o.Node, By: o.By, Rates: o.rates, Warmup: o.several.warmup, MaxRatio: o.maxRatio,
	}, commands, warnings...)
	if o.several.shell {
		r.Notes = append(r.Notes, "B is run by a shell, whose own energy counts for B: about a millisecond of CPU time")
	}
	o.write(f, r)
	return r
}

// runStep runs one of the commands once, after complete runs of it. A baseline is measured once,
// before the first.
func (o *measureOptions) runStep(ctx context.Context, s step, complete []*measure.Result) (*measure.Result, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	options := o.Options
	if s.command == 1 {
		options.Command = o.several.other
	}
	o.live.next(s.name, complete)
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
		o.say("%s: %s in %s", s.name, used, figure.Seconds(r.Wall))
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
		o.say("--max-joules is checked without energy that a meter has not reported")
	}
	return 0
}

// checkRatio returns the exit status for --max-ratio. A ratio above the limit is a failure only if
// the difference is significant.
func (o *measureOptions) checkRatio(r *report.Report) int {
	if o.maxRatio == 0 {
		return 0
	}
	_, ratio := r.ComparedBy()
	if !ratio.Spread() || ratio.Mean > o.maxRatio {
		o.say("%s", r.Limit())
	}
	switch {
	case !ratio.Spread():
		return exitFailed
	case ratio.Above(o.maxRatio):
		return exitTooMuch
	}
	return 0
}
