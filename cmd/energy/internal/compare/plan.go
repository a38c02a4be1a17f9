// SPDX-License-Identifier: Apache-2.0

// Package compare repeats the measurement of a command, or of two commands in turn.
package compare

import (
	"fmt"
	"iter"
)

// Plan is the number of runs of one or two commands.
type Plan struct {
	Runs, Warmup int  // of each command. Warm-up runs come first, and are not counted
	Two          bool // there is a command B
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

// Label returns the label of a command, A or B.
func Label(command int) string { return string(rune('A' + command)) }
