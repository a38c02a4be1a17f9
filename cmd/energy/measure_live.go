// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/figure"
	"github.com/energyreceiver/energyreceiver/cmd/energy/internal/measure"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// live is a line on a terminal that shows the runs while they are measured. A nil live is not shown.
// The command does not write to the terminal meanwhile.
type live struct {
	to      io.Writer
	columns int
	now     func() time.Time
	steps   int // of all commands
	shown   bool

	began   time.Time     // of all runs
	done    int           // steps
	name    string        // of the step
	mean    string        // of the runs of the command that are complete
	elapsed time.Duration // of this run until the last sample
	used    units.Energy  // likewise
	watts   float64       // of the last sample
}

// next begins a step of a command with complete runs.
func (l *live) next(name string, complete []*measure.Result) {
	if l == nil {
		return
	}
	if l.began.IsZero() {
		l.began = l.now()
	} else {
		l.done++
	}
	l.name, l.mean, l.elapsed, l.used = name, "", 0, 0
	if n := len(complete); n > 0 {
		var used units.Energy
		var wall time.Duration
		for _, r := range complete {
			used, wall = used+r.Used(), wall+r.Wall
		}
		l.mean = fmt.Sprintf("mean %s, %s", figure.Joules(used/units.Energy(n)), figure.Seconds(wall/time.Duration(n)))
	}
	l.draw()
}

// sample notes the energy of this run until a time since its start.
func (l *live) sample(elapsed time.Duration, used units.Energy) {
	if elapsed > l.elapsed {
		l.watts = units.Watts(units.Advance(l.used, used), elapsed-l.elapsed)
	}
	l.elapsed, l.used = elapsed, used
	l.draw()
}

func (l *live) draw() {
	l.shown = true
	fmt.Fprintf(l.to, "\r%s\x1b[K", figure.Fit(l.line(), l.columns-1))
}

// clear removes the line.
func (l *live) clear() {
	if l != nil && l.shown {
		l.shown = false
		fmt.Fprint(l.to, "\r\x1b[K")
	}
}

// barColumns is the width of the bar.
const barColumns = 20

// line returns the power, the energy and the time of this run or, of several, the mean of the
// complete runs and the progress.
func (l *live) line() string {
	parts := []string{figure.Watts(l.watts), figure.Joules(l.used), figure.Seconds(l.elapsed)}
	if l.steps == 1 {
		return strings.Join(parts, " · ")
	}
	full := l.done * barColumns / l.steps
	bar := strings.Repeat("█", full) + strings.Repeat("░", barColumns-full)
	switch parts = append([]string{bar + " " + l.name}, parts...); {
	case l.mean != "":
		parts = []string{parts[0], l.mean}
	case l.elapsed == 0:
		parts = parts[:1]
	}
	if l.done > 0 {
		since := l.now().Sub(l.began)
		each := max(0, since-l.elapsed) / time.Duration(l.done)
		left := max(0, each*time.Duration(l.steps-l.done)-l.elapsed)
		parts = append(parts, left.Round(time.Second).String()+" left")
	}
	return strings.Join(parts, " · ")
}
