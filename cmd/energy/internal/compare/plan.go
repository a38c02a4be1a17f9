// SPDX-License-Identifier: Apache-2.0

// Package compare repeats the measurement of a command, or of two commands in turn.
package compare

import (
	"fmt"
	"iter"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
)

// Plan is the number of runs of one or two commands.
type Plan struct {
	Runs, Warmup  int  // of each command. Warm-up runs come first, and are not counted
	Two           bool // there is a command B
	IgnoreFailure bool // a run counts whatever its exit status
}

// Step is one run of a command.
type Step struct {
	Command int // 0 is A, 1 is B
	Run     int // from 0, of all warm-up runs and of all others
	Warmup  bool
}

// Steps returns all runs in their order. Two commands run in pairs, in turn A B and B A: what grows
// steadily over the runs, such as the temperature of the CPU, weighs on both alike.
func (p Plan) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for i := range p.Warmup + p.Runs {
			warmup, run := i < p.Warmup, i
			if !warmup {
				run = i - p.Warmup
			}
			for _, command := range p.pair(run) {
				if !yield(Step{Command: command, Run: run, Warmup: warmup}) {
					return
				}
			}
		}
	}
}

func (p Plan) pair(run int) []int {
	switch {
	case !p.Two:
		return []int{0}
	case run%2 == 0:
		return []int{0, 1}
	}
	return []int{1, 0}
}

// Count returns the number of steps.
func (p Plan) Count() int { return (p.Warmup + p.Runs) * len(p.pair(0)) }

// FailedError reports a run whose command failed.
type FailedError struct {
	Step Step
	// Exit is the exit status of the command, never 0.
	Exit int
}

func (e *FailedError) Error() string {
	name := "the command"
	if e.Step.Command == 1 {
		name = "the other command"
	}
	return fmt.Sprintf("%s failed with exit status %d: --ignore-failure measures what fails, too", name, e.Exit)
}

// Name names a step for people: "run 3 of 10 of A".
func (p Plan) Name(s Step) string {
	name, of := "run", p.Runs
	if s.Warmup {
		name, of = "warm-up run", p.Warmup
	}
	name = fmt.Sprintf("%s %d of %d", name, s.Run+1, of)
	if p.Two {
		name += " of " + Label(s.Command)
	}
	return name
}

// Run runs all steps, and returns the results of A and of B without the warm-up runs. It ends
// with the first error. Unless failures are ignored, a command's exit status other than 0 is one, a
// *FailedError. The results until then are returned, too.
func (p Plan) Run(run func(Step) (*measure.Result, error)) (results [2][]*measure.Result, err error) {
	for step := range p.Steps() {
		r, err := run(step)
		if err != nil {
			return results, err
		}
		if r.Exit != 0 && !p.IgnoreFailure {
			return results, &FailedError{Step: step, Exit: r.Exit}
		}
		if !step.Warmup {
			results[step.Command] = append(results[step.Command], r)
		}
	}
	return results, nil
}

// Label returns the label of a command, A or B.
func Label(command int) string { return string(rune('A' + command)) }
