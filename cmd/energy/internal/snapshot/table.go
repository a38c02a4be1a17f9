// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Table is the energy of all workloads of a kind. In each zone the amounts of the rows, Ended, Others
// and Unattributed add up to Active.
type Table struct {
	Rows []Entry
	// Ended is the energy of workloads that have ended and have no row. Others is the active energy
	// that is missing in all series of the kind. Unattributed energy has no owner.
	Ended, Others, Unattributed, Active []Amount
	// Err is set if the energy of workloads exceeds the energy of the node.
	Err error
}

// Entry is the energy of one workload, or of all processes of a program.
type Entry struct {
	Identity
	Amounts []Amount // by the index of Account.Zones
	// Watts is the mean power of the last period in zones that are added, GPUWatts the power of GPUs.
	// They are NaN if they are not available.
	Watts, GPUWatts float64
	// CPUTime is negative if it is not reported.
	CPUTime time.Duration
	// Ended is set if the workload has no series in the newest collection.
	Ended bool
}

// At returns the timestamp of the newest figures, and Since the start of energies.
func (a *Account) At() time.Time { return a.at }

// Since returns the time at the start of all energies. It is zero if they count from the start of
// series that do not report it.
func (a *Account) Since() time.Time { return a.since }

// Period returns the time between the two newest collections. It is 0 if the energy of that time is
// not available, as after a restart.
func (a *Account) Period() time.Duration { return a.period }

// Zones returns the zones of all snapshots until now.
func (a *Account) Zones() []Zone {
	zones := make([]Zone, len(a.zones))
	for i := range a.zones {
		zones[i] = a.zones[i].Zone
	}
	return zones
}

// ZoneUsed returns the energy of the zone with an index. Active energy includes unattributed energy.
func (a *Account) ZoneUsed(zone int) (active, idle, unattributed Amount) {
	z := &a.zones[zone]
	return z.active, z.idle, z.unattributed
}

// Complete reports whether all active energy of the last period has an owner or is unattributed. If
// it is not, a snapshot may have been read while a collection arrived.
func (a *Account) Complete() bool {
	t := a.Programs()
	isMissing := func(others Amount) bool { return a.period > 0 && others.Recent != 0 }
	return a.newest.Kepler || t.Err == nil && !slices.ContainsFunc(t.Others, isMissing)
}

// ZoneWatts returns the active and idle power of the zone with an index in the last period, NaN if
// it is not available.
func (a *Account) ZoneWatts(zone int) (active, idle float64) {
	z := &a.zones[zone]
	if a.period == 0 {
		return z.ActiveWatts, z.IdleWatts
	}
	return a.watts(z.active.Recent), a.watts(z.idle.Recent)
}

// Meters returns the meters of all snapshots until now, each with its newest figures: a meter has no
// figures in a collection without a new reading.
func (a *Account) Meters() []Meter {
	meters := make([]Meter, 0, len(a.meters))
	for _, m := range a.meters {
		meters = append(meters, m.Meter)
	}
	return meters
}

// MeterUsed returns the energy of the meter with an ID since the first snapshot.
func (a *Account) MeterUsed(id string) units.Energy {
	if c := a.meters[id]; c != nil {
		return c.amount.Used
	}
	return 0
}

// Sum returns the sum of amounts in zones that are added.
func (a *Account) Sum(amounts []Amount) (sum Amount) {
	for i := range amounts {
		if a.zones[i].Besides == "" {
			sum.add(amounts[i])
		}
	}
	return sum
}

// Watts returns the mean power of amounts in the last period, NaN if it is not available.
func (a *Account) Watts(amounts []Amount) float64 {
	if a.period == 0 {
		return math.NaN()
	}
	return a.watts(a.Sum(amounts).Recent)
}

func (a *Account) watts(recent int64) float64 {
	return float64(recent) / float64(units.Joule) / a.period.Seconds()
}

// Workloads returns the workloads of a kind. Processes have a row while they have a series, other
// workloads also after they have ended.
func (a *Account) Workloads(kind Kind) Table {
	if kind != Process {
		return a.groups(kind)
	}
	t := Table{Ended: a.ended(Process)}
	cells := a.kinds[Process].cells
	index := make(map[Identity]int, len(cells))
	for _, c := range cells {
		i, known := index[c.Identity]
		if !known {
			i = len(t.Rows)
			index[c.Identity] = i
			t.Rows = append(t.Rows, a.entry(c.Identity))
		}
		t.Rows[i].add(c)
	}
	shown := t.Rows[:0]
	for i := range t.Rows {
		e := &t.Rows[i]
		if a.power(e); e.Ended && (a.period == 0 || a.Sum(e.Amounts).Recent == 0) {
			addAll(t.Ended, e.Amounts)
		} else {
			shown = append(shown, *e)
		}
	}
	t.Rows = shown
	return a.close(Process, t)
}

// Programs returns the programs, which are sums of processes.
func (a *Account) Programs() Table { return a.groups(Process) }

// groups returns the groups of a kind.
func (a *Account) groups(kind Kind) Table {
	k := &a.kinds[kind]
	t := Table{Rows: make([]Entry, 0, len(k.groups)), Ended: sized(nil, len(a.zones))}
	addAll(t.Ended, k.pruned)
	for _, g := range k.groups {
		g.row = len(t.Rows)
		e := a.entry(g.Identity)
		addAll(e.Amounts, g.ended)
		t.Rows = append(t.Rows, e)
	}
	for _, c := range k.cells {
		t.Rows[c.group.row].add(c)
	}
	for i := range t.Rows {
		a.power(&t.Rows[i])
	}
	return a.close(kind, t)
}

// ended returns the energy of all series of a kind that have ended.
func (a *Account) ended(kind Kind) []Amount {
	all := sized(nil, len(a.zones))
	addAll(all, a.kinds[kind].pruned)
	for _, g := range a.kinds[kind].groups {
		addAll(all, g.ended)
	}
	return all
}

// entry returns an entry without series.
func (a *Account) entry(id Identity) Entry {
	return Entry{Identity: id, Amounts: make([]Amount, len(a.zones)), CPUTime: -1, Ended: true, Watts: math.NaN(), GPUWatts: math.NaN()}
}

// add adds a series to an entry.
func (e *Entry) add(c *cell) {
	addAll(e.Amounts, c.amounts)
	if c.Ended {
		return
	}
	e.Watts, e.GPUWatts = Plus(e.Watts, c.Watts), Plus(e.GPUWatts, c.GPUWatts)
	switch {
	case e.Ended:
		e.CPUTime = c.CPUTime
	case e.CPUTime >= 0 && c.CPUTime >= 0:
		e.CPUTime += c.CPUTime
	default: // the sum is not complete
		e.CPUTime = -1
	}
	e.Ended = false
}

// power replaces reported powers by the mean powers of the last period.
func (a *Account) power(e *Entry) {
	if a.period == 0 {
		return
	}
	e.Watts, e.GPUWatts = a.Watts(e.Amounts), 0
	for i := range a.zones {
		if a.zones[i].Class.Zone == power.GPU {
			e.GPUWatts += a.watts(e.Amounts[i].Recent)
		}
	}
}

// close adds the amounts that make a table complete.
func (a *Account) close(kind Kind, t Table) Table {
	t.Others, t.Unattributed, t.Active = sized(nil, len(a.zones)), sized(nil, len(a.zones)), sized(nil, len(a.zones))
	for z := range a.zones {
		t.Active[z], t.Unattributed[z] = a.zones[z].active, a.zones[z].unattributed
		given := t.Unattributed[z]
		given.add(t.Ended[z])
		for i := range t.Rows {
			given.add(t.Rows[i].Amounts[z])
		}
		active := t.Active[z]
		t.Others[z] = Amount{units.Advance(given.Used, active.Used), units.Advance(given.Total, active.Total), active.Recent - given.Recent}
		if given.Used > active.Used && !a.newest.Kepler && !a.newest.Partial {
			const text = "%s: the workloads of kind %s and unattributed energy have %.6f J, more than the active energy of %.6f J"
			t.Err = errors.Join(t.Err, fmt.Errorf(text, a.zones[z].Class.Zone, kind, given.Used.Joules(), active.Used.Joules()))
		}
	}
	return t
}
