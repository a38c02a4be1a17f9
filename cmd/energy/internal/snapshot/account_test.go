// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// node is a simulated receiver with an exporter that serves each series until 30 s after its last
// value. used is the truth: the energy of each program since the first snapshot.
type node struct {
	rng      *rand.Rand
	now      time.Time
	began    time.Time // start of the receiver
	hasStart bool      // series have start timestamps
	zones    [2]Zone
	series   map[Identity]*simulated
	replaced map[Identity]*simulated // ended in the last collection, in which another series of the workload began
	order    []Identity              // series in the order in which the exporter takes them in
	pid      int
	used     map[string]units.Energy // in the zone package
	recent   map[string]units.Energy
}

type simulated struct {
	energy  [2]units.Energy
	start   time.Time
	updated time.Time
	live    bool
}

const collectEvery, expiresAfter = 10 * time.Second, 30 * time.Second

func newNode(seed uint64, hasStart bool) *node {
	n := &node{
		rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), hasStart: hasStart,
		series: map[Identity]*simulated{}, replaced: map[Identity]*simulated{}, used: map[string]units.Energy{}, recent: map[string]units.Energy{},
	}
	n.restart()
	return n
}

// restart is that of a receiver without storage.
func (n *node) restart() {
	n.began, n.order = n.now, nil
	clear(n.replaced)
	n.zones = [2]Zone{{Class: power.Class{Zone: power.Package, Method: power.Measured}}, {Class: power.Class{Zone: power.DRAM, Method: power.Measured}}}
	for id, s := range n.series {
		if s.live {
			n.series[id] = &simulated{start: n.now, updated: n.now, live: true}
			n.order = append(n.order, id)
		} else {
			delete(n.series, id)
		}
	}
	n.begin(Identity{Overflow: "true"})
}

func (n *node) begin(id Identity) {
	if n.series[id] == nil {
		n.order = append(n.order, id)
	}
	n.series[id] = &simulated{start: n.now, updated: n.now, live: true}
}

// collect runs the node for an interval, in which processes begin and end.
func (n *node) collect() {
	clear(n.recent)
	clear(n.replaced)
	for range n.rng.IntN(4) {
		n.pid++
		id := Identity{PID: strconv.Itoa(n.pid), Executable: fmt.Sprint("p", n.rng.IntN(5)), Owner: "ann"}
		n.begin(id)
	}
	program := Identity{Executable: "p0", Owner: "ann"} // of processes without series of their own: it ends and begins again
	switch s := n.series[program]; {
	case s == nil || !s.live && min(s.energy[0], s.energy[1]) > most && n.rng.IntN(2) == 0:
		n.begin(program)
	case s.live && n.hasStart && s.start.Before(n.now) && n.rng.IntN(2) == 0: // it ends, and another one begins in the same collection
		n.replaced[program] = s
		n.begin(program)
	}
	n.now = n.now.Add(collectEvery)
	for id, s := range n.replaced {
		n.use(id, s)
	}
	for id, s := range n.series {
		if s.live {
			n.use(id, s)
			s.live = id[Overflow] != "" || n.rng.IntN(3) > 0 // what has ended has its last value in this collection
		}
	}
	for z := range n.zones {
		n.zones[z].At = n.now
		if n.hasStart {
			n.zones[z].Start = n.began
		}
		unattributed := units.Energy(n.rng.IntN(100_000))
		n.zones[z].Unattributed += unattributed
		n.zones[z].Active += unattributed
		n.zones[z].Idle += 1_000_000
	}
}

// most is the maximum energy of a series in a collection: without a start timestamp a new series is
// noticed by its smaller value.
const most = 3_000_000

// use adds energy to a series.
func (n *node) use(id Identity, s *simulated) {
	s.updated = n.now
	for z := range n.zones {
		energy := units.Energy(n.rng.IntN(most))
		s.energy[z] += energy
		n.zones[z].Active += energy
		if z == 0 {
			n.used[id[Executable]] += energy
			n.recent[id[Executable]] += energy
		}
	}
}

// read returns the figures while the exporter takes in the last collection: it has the node's
// figures and those of the first rows. before is the reading before the collection.
func (n *node) read(rows int, before *Snapshot) *Snapshot {
	s := &Snapshot{At: n.now, Zones: slices.Clone(n.zones[:])}
	for i, id := range n.order {
		if i >= rows {
			for _, row := range before.Rows {
				if row.Identity == id && n.now.Sub(n.series[id].updated) <= expiresAfter {
					row.Ended = true
					s.Rows = append(s.Rows, row)
				}
			}
			continue
		}
		for _, from := range []*simulated{n.series[id], n.replaced[id]} {
			if from == nil || n.now.Sub(from.updated) > expiresAfter {
				continue
			}
			row := Row{Identity: id, Energy: slices.Clone(from.energy[:]), Watts: math.NaN(), GPUWatts: math.NaN(), CPUTime: -1, Ended: from.updated.Before(n.now)}
			if n.hasStart {
				row.Start = from.start
			}
			s.Rows = append(s.Rows, row)
		}
	}
	return s
}

func (n *node) all() *Snapshot { return n.read(len(n.order), nil) }

// requireSums requires that the rows, and what has none, add up to the active energy.
func requireSums(t *testing.T, a *Account) {
	t.Helper()
	for _, table := range []Table{a.Workloads(Process), a.Programs()} {
		require.NoError(t, table.Err)
		for z := range a.Zones() {
			sum := table.Unattributed[z]
			sum.add(table.Others[z])
			sum.add(table.Ended[z])
			for i := range table.Rows {
				sum.add(table.Rows[i].Amounts[z])
			}
			require.Equal(t, table.Active[z].Used, sum.Used)
			require.Equal(t, table.Active[z].Recent, sum.Recent)
		}
	}
}

// energies returns the energy of programs in the zone package since the first snapshot, and in the
// last period.
func energies(a *Account) (used, recent map[string]units.Energy) {
	used, recent = map[string]units.Energy{}, map[string]units.Energy{}
	for _, e := range a.Programs().Rows {
		used[e.Identity[Executable]] += e.Amounts[0].Used
		if e.Amounts[0].Recent != 0 {
			recent[e.Identity[Executable]] += units.Energy(e.Amounts[0].Recent)
		}
	}
	return used, recent
}

func nonzero(from map[string]units.Energy) map[string]units.Energy {
	out := map[string]units.Energy{}
	for name, energy := range from {
		if energy != 0 {
			out[name] = energy
		}
	}
	return out
}

const histories = 300

// Programs have exactly their energy, ended processes included, if no collection is missed: across
// restarts of the receiver and of series, and reads of parts of collections.
func TestEveryProgramHasItsEnergyOfAnyHistory(t *testing.T) {
	for seed := range uint64(histories) {
		n := newNode(seed, seed%2 == 0)
		for range n.rng.IntN(5) {
			n.collect()
		}
		n.collect()
		a := &Account{}
		last := n.all()
		a.Add(last)
		clear(n.used)
		for range 30 {
			restarted := n.rng.IntN(15) == 0 && (n.hasStart || n.zones[0].Active > 40_000_000) // or its new totals may be higher
			if restarted {
				n.restart()
			}
			n.collect()
			if !restarted && n.rng.IntN(3) == 0 {
				a.Add(n.read(n.rng.IntN(len(n.order)), last))
				requireSums(t, a)
			}
			last = n.all()
			for range 1 + n.rng.IntN(2) {
				a.Add(last)
				requireSums(t, a)
			}
			used, recent := energies(a)
			require.Equal(t, nonzero(n.used), nonzero(used), "seed %d", seed)
			if restarted && !n.hasStart { // the energy is that since the restart, too
				continue
			}
			require.Equal(t, nonzero(n.recent), recent, "seed %d", seed)
			require.Zero(t, a.Programs().Others[0].Used, "every series was read")
		}
	}
}

// If collections are missed, programs have at most their energy, and the sums are right.
func TestMissedCollectionsAreNoContradiction(t *testing.T) {
	missed := 0
	for seed := range uint64(histories) {
		n := newNode(seed, true)
		n.collect()
		before := n.all()
		n.collect()
		a := &Account{}
		a.Add(n.read(n.rng.IntN(len(n.order)), before)) // the first reading, too
		clear(n.used)
		for range 30 {
			before = n.all()
			restarted := n.rng.IntN(15) == 0
			if restarted {
				n.restart()
			}
			n.collect()
			switch kind := n.rng.IntN(4); {
			case kind == 0:
				missed++
				continue
			case kind == 1 && !restarted: // the exporter begins empty, too
				a.Add(n.read(n.rng.IntN(len(n.order)), before))
			default:
				a.Add(n.all())
			}
			requireSums(t, a)
			used, _ := energies(a)
			for name, energy := range used {
				require.LessOrEqual(t, energy, n.used[name], "seed %d: %s", seed, name)
			}
		}
	}
	assert.Positive(t, missed)
}

func snapshotAt(second int, active, unattributed units.Energy, rows map[string]units.Energy) *Snapshot {
	s := &Snapshot{At: time.Unix(int64(second), 0), Zones: []Zone{{Class: power.Class{Zone: power.Package}, Active: active, Unattributed: unattributed}}}
	for pid, energy := range rows {
		s.Rows = append(s.Rows, Row{Identity: Identity{PID: pid, Executable: "cc1"}, Energy: []units.Energy{energy}, CPUTime: -1, Watts: math.NaN()})
	}
	return s
}

func TestPowerCoversThePeriodOfTheData(t *testing.T) {
	a := &Account{}
	a.Add(snapshotAt(10, 10_000_000, 0, map[string]units.Energy{"1": 10_000_000}))
	assert.True(t, math.IsNaN(a.Workloads(Process).Rows[0].Watts), "the receiver reports none")
	later := snapshotAt(15, 20_000_000, 0, map[string]units.Energy{"1": 15_000_000, "2": 5_000_000})
	for range 3 { // the screen is read more often than the receiver collects
		a.Add(later)
		for _, e := range a.Workloads(Process).Rows {
			assert.InDelta(t, 1, e.Watts, 1e-9, "also of a process that began in the period")
		}
		assert.InDelta(t, 2, a.Programs().Rows[0].Watts, 1e-9)
	}
	a.Add(snapshotAt(20, 25_000_000, 0, map[string]units.Energy{"1": 20_000_000})) // 2 has ended
	assert.InDelta(t, 1, a.Programs().Rows[0].Watts, 1e-9)
	assert.Equal(t, units.Energy(15_000_000), a.Programs().Rows[0].Amounts[0].Used)
	requireSums(t, a)
}

func TestTheFirstPeriodOfAReceiverBeginsWithIt(t *testing.T) {
	a := &Account{Fresh: true}
	s := snapshotAt(10, 10_000_000, 0, map[string]units.Energy{"1": 6_000_000, "2": 4_000_000})
	s.Rows[0].Watts, s.Zones[0].Start = 99, time.Unix(8, 0)
	a.Add(s)
	assert.InDelta(t, 5, a.Programs().Rows[0].Watts, 1e-9)
	assert.Equal(t, time.Unix(8, 0), a.Since())

	of := &Account{FromZero: true} // of a collector that may have run for days
	of.Add(s)
	assert.InDelta(t, 99, of.Programs().Rows[0].Watts, 1e-9, "the power is the one that is reported")
	assert.Equal(t, time.Unix(8, 0), of.Since())
	unknown := &Account{FromZero: true}
	unknown.Add(snapshotAt(10, 10_000_000, 0, nil))
	assert.Zero(t, unknown.Since())
}

func TestWorkloadsWithMoreEnergyThanTheNodeAreAContradiction(t *testing.T) {
	a := &Account{}
	a.Add(snapshotAt(10, 10_000_000, 0, map[string]units.Energy{"1": 4_000_000}))
	require.NoError(t, a.Programs().Err, "the rest is of processes that ended before")
	s := snapshotAt(20, 11_000_000, 1, map[string]units.Energy{"1": 5_000_000})
	a.Add(s)
	require.ErrorContains(t, a.Programs().Err, "1.000001 J, more than the active energy of 1.000000 J")
	s.Partial = true
	require.NoError(t, a.Programs().Err)
}

func TestFiguresWithoutTimestampsAreNewIfTheyChanged(t *testing.T) {
	a := &Account{}
	for second, active := range []units.Energy{5, 5, 9_000_005, 9_000_005} {
		s := snapshotAt(second, active, 0, nil)
		s.Untimed = true
		a.Add(s)
	}
	watts, _ := a.ZoneWatts(0)
	assert.InDelta(t, 9.0/2, watts, 1e-9, "the period ends with the change")
	a.Add(&Snapshot{})
	assert.Len(t, a.Zones(), 1, "no figures are no news")
}

func TestEndedProgramsCostNoMoreThanTheirNumberInTheTable(t *testing.T) {
	after := func(ended int) (allocations float64, energy units.Energy) {
		a := &Account{FromZero: true}
		programs := func(second, from, n int) *Snapshot {
			s := snapshotAt(second, 1<<40, 0, nil)
			for i := range n {
				id := Identity{PID: strconv.Itoa(i), Executable: fmt.Sprint("p", from+i)}
				s.Rows = append(s.Rows, Row{Identity: id, Energy: []units.Energy{units.Energy(1 + from + i)}, CPUTime: -1})
			}
			return s
		}
		for second := range ended / 100 {
			a.Add(programs(second, 100*second, 100))
		}
		a.Add(programs(ended, 1_000_000, 100))
		for _, amount := range append(a.Programs().Ended, a.Sum(nil)) {
			energy += amount.Used
		}
		for _, e := range a.Programs().Rows {
			energy += e.Amounts[0].Used
		}
		requireSums(t, a)
		second := ended
		return testing.AllocsPerRun(5, func() {
			second++
			a.Add(programs(second, 1_000_000, 100))
			a.Programs()
			a.Workloads(Process)
		}), energy - units.Energy(100*1_000_000+100*101/2)
	}
	few, sumOfFew := after(1_000)
	many, sumOfMany := after(10_000)
	assert.Less(t, many, 1.5*few)
	assert.Equal(t, units.Energy(1_000*1_001/2), sumOfFew)
	assert.Equal(t, units.Energy(10_000*10_001/2), sumOfMany, "none of the energy is lost")
}
