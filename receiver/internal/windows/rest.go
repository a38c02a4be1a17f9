// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// Rest extends a window while the machine is at rest, because ending a window costs more CPU time
// than all processes use in it. The window ends once a process has run.
//
// Only windows of modeled energy may be extended. Active energy is the energy above static power. A
// meter reads the energy of the whole window. If the power at rest is below the static power, the
// difference would reduce the active energy of processes that ran after the rest. A power model
// computes the energy of the part at rest separately (power.Sample.Rest), and its static power is
// its power at rest. Active energy is attributed by the CPU time in the whole window. The error is
// at most the active energy of the part at rest. There, all processes use at most maxUse of one CPU
// and a tick.
//
// The zero Rest extends no window. A Rest is not safe for concurrent use.
type Rest struct {
	limit time.Duration // maximum length of a window, 0 if no window is extended
	clock *cpu.IdleClock

	began       moment        // start of the window; zero if the clock could not be read
	rested      moment        // end of the part of the window at rest
	busy, total units.CPUTime // of the node, at the start of the window
}

// moment is a reading of the idle clock.
type moment struct {
	at   time.Time
	idle units.CPUTime // of all CPUs
	cpus units.CPUTime // number of CPUs that are online
}

// maxUse is the maximum utilization of one CPU at rest, in addition to a tick: the idle clock
// rounds.
const maxUse = 0.01

// MaxRest is the maximum length of an extended window. The longest windows in the accuracy tables
// have this length.
const MaxRest = 10 * time.Second

// Allow sets the maximum length of windows, or 0 so that no window is extended. root is the root
// directory of the machine.
func (r *Rest) Allow(root string, limit time.Duration) {
	if r.limit = limit; limit == 0 {
		return
	}
	if r.clock == nil {
		r.clock = cpu.NewIdleClock(root)
	}
}

// read reads the idle clock, and returns the zero moment if that fails.
func (r *Rest) read(now time.Time) moment {
	if r.limit == 0 {
		return moment{}
	}
	cpus := r.clock.CPUs()
	idle, err := r.clock.Read()
	if err != nil || cpus == 0 {
		return moment{}
	}
	return moment{now, idle, units.CPUTime(cpus)}
}

// all returns the CPU time of all CPUs between two moments, idle or not.
func all(from, to moment) units.CPUTime {
	return from.cpus * units.CPUTime(to.at.Sub(from.at))
}

// atRest reports whether the CPUs were idle between two moments, except for maxUse and a tick. It
// reports false if the number of CPUs changed, or if the clock counted more time than passed.
func atRest(from, to moment) bool {
	if from.cpus != to.cpus || to.idle < from.idle {
		return false
	}
	idle, all := to.idle-from.idle, all(from, to)
	return max(idle, all)-min(idle, all) <= units.Tick+units.CPUTime(maxUse*float64(to.at.Sub(from.at)))
}

// Continues reports whether the window is extended at now by another part.
func (r *Rest) Continues(now time.Time, part time.Duration) bool {
	if r.began.at.IsZero() || now.Sub(r.began.at)+part > r.limit {
		return false
	}
	m := r.read(now)
	if m.at.IsZero() || !atRest(r.rested, m) || !atRest(r.began, m) { // each part could use a tick
		return false
	}
	r.rested = m
	return true
}

// End ends the window at a sample, and sets s.Rest if the window was extended. The next window
// begins at now. If the CPU time of the node did not advance because it could not be read, the window
// continues.
func (r *Rest) End(s *power.Sample, now time.Time) {
	if !r.began.at.IsZero() && s.Total == r.total {
		return
	}
	if r.rested.at.After(r.began.at) {
		busy, total := units.Advance(r.busy, s.Busy), units.Advance(r.total, s.Total)
		part := units.Portion(total, units.CPUTime(r.rested.at.Sub(r.began.at)), units.CPUTime(s.At.Sub(r.began.at)))
		used := max(min(units.Advance(r.rested.idle-r.began.idle, all(r.began, r.rested)), busy, part), units.Advance(total-part, busy))
		s.Rest.At, s.Rest.Busy, s.Rest.Total = r.rested.at, r.busy+used, r.total+part
	}
	r.began = r.read(now)
	r.rested, r.busy, r.total = r.began, s.Busy, s.Total
}

// Close closes the files of the clock.
func (r *Rest) Close() error {
	if r.clock == nil {
		return nil
	}
	return r.clock.Close()
}
