// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
)

// Rest lets a window continue while the machine is at rest, because ending a window costs more than
// all that runs in it. The window ends once something has run.
//
// A window of any length attributes the same energy if its energy grows linearly with time and with
// CPU time. Static energy is constant over time. A power model is not linear, so it gets the part of
// the window at rest apart. Active energy is divided by the CPU time of the whole window. The result
// differs by at most the active energy of the part at rest, which is the energy of maxUse of one CPU.
//
// The zero Rest ends each window. It is not safe for concurrent use.
type Rest struct {
	limit time.Duration // maximum length of a window
	clock *cpu.IdleClock
	cpus  units.CPUTime // number of CPUs

	began, rested moment        // of the window; began.at is zero if the clock could not be read
	busy, total   units.CPUTime // of the node, at the end of the window before
}

// moment is a reading of the idle clock.
type moment struct {
	at   time.Time
	idle units.CPUTime
}

// maxUse is the CPU time of a machine at rest, as a part of one CPU. The idle clock rounds to ticks.
const maxUse = 0.01

// MaxRest is the maximum length of a window at rest. The longest windows of the accuracy tables have it.
const MaxRest = 10 * time.Second

// Allow sets the maximum length of windows, 0 if each window must end.
func (r *Rest) Allow(root string, limit time.Duration) {
	if r.limit = limit; limit == 0 {
		return
	}
	if r.clock == nil {
		r.clock = cpu.NewIdleClock(root)
	}
	r.cpus = units.CPUTime(r.clock.CPUs()) // each call reads changes
}

// read reads the idle clock, and returns the zero moment if that fails.
func (r *Rest) read(now time.Time) moment {
	if r.limit == 0 || r.cpus == 0 {
		return moment{}
	}
	idle, err := r.clock.Read()
	if err != nil {
		return moment{}
	}
	return moment{now, idle}
}

// used returns the CPU time of all CPUs between two moments.
func (r *Rest) used(from, to moment) units.CPUTime {
	return units.Advance(to.idle-from.idle, r.cpus*units.CPUTime(to.at.Sub(from.at)))
}

// Continues reports whether the window continues for another part of a length.
func (r *Rest) Continues(now time.Time, part time.Duration) bool {
	if r.began.at.IsZero() || now.Sub(r.began.at)+part > r.limit {
		return false
	}
	m := r.read(now)
	if m.at.IsZero() || m.idle < r.rested.idle ||
		r.used(r.rested, m) > units.Tick+units.CPUTime(maxUse*float64(now.Sub(r.rested.at))) {
		return false
	}
	r.rested = m
	return true
}

// End ends a window at a sample, and adds the part at rest to the sample. The next window begins now.
func (r *Rest) End(s *power.Sample, now time.Time) {
	if r.rested.at.After(r.began.at) {
		busy, total := units.Advance(r.busy, s.Busy), units.Advance(r.total, s.Total)
		part := units.Portion(total, units.CPUTime(r.rested.at.Sub(r.began.at)), units.CPUTime(s.At.Sub(r.began.at)))
		used := max(min(r.used(r.began, r.rested), busy, part), units.Advance(total-part, busy))
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
