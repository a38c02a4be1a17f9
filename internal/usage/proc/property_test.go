// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

var (
	exactTraits = proc.Traits{Exact: true, ReportsEnds: true}
	tickTraits  = proc.Traits{ChildTimes: true, ChildRounding: 2 * tick}
)

// exact is an exact source of a family's CPU time. It shows time late and with steps back, misses
// processes now and then, and reports ends late and out of order.
type exact struct {
	testing.TB
	*family
	table     *proc.Table
	still     bool // everything is shown, and nothing happens meanwhile
	lossy     bool
	lost      units.CPUTime // used by processes whose ends were lost, and not shown
	lostExits uint64
	billed    units.CPUTime
	untraced  units.CPUTime
}

// newExact returns a source after its first scan.
func newExact(t testing.TB, seed uint64) *exact {
	e := &exact{TB: t, family: newFamily(seed, false), table: proc.New(exactTraits)}
	e.settle()
	require.Zero(t, e.billed)
	e.used = 0
	return e
}

// settle scans everything.
func (e *exact) settle() {
	e.Helper()
	e.still = true
	require.True(e, e.scan(true))
	e.still = false
}

// scan scans all processes or those that ran. It returns false if it was aborted.
func (e *exact) scan(all bool) (ended bool) {
	e.Helper()
	s := e.table.Begin(e.now)
	for _, p := range e.living {
		row := e.table.Find(p.PID)
		if row != nil && row.Start != p.Start {
			row = nil
		}
		if !all && p.cpu == p.shown || !e.still && row != nil && e.r.IntN(100) == 0 {
			continue // it did not run, or exec makes another thread the first one
		}
		cpu := p.cpu
		switch n := e.r.IntN(8); {
		case e.still:
		case n == 0: // it is on a CPU
			cpu -= min(cpu, units.CPUTime(e.r.Int64N(4e6)))
		case n == 1: // a thread is between its end and the sum
			cpu = units.CPUTime(e.r.Uint64N(uint64(cpu) + 1))
		}
		p.shown = max(p.shown, cpu)
		if row != nil && !p.zombie && e.r.IntN(4) == 0 {
			s.Run(row, cpu)
			continue
		}
		sight := proc.Sight{ID: p.ID, Parent: p.parent, Threads: 1, CPU: cpu, Cgroup: p.cgroup}
		if p.zombie {
			sight.Flags = proc.Zombie
		}
		s.See(&sight)
		if !e.still && e.r.IntN(100) == 0 {
			return false
		}
	}
	if !e.still {
		for range e.r.IntN(5) {
			e.act()
		}
	}
	if !e.reportEnds(s) {
		return false
	}
	if all {
		s.MissRemaining()
		s.End(0)
	} else {
		s.EndPartial()
	}
	check(e, e.table)
	e.billed += e.table.Used(nil)
	e.untraced += e.table.Unseen.Untraced
	require.LessOrEqual(e, e.billed, e.used, "more than was used")
	return true
}

// reportEnds reports the ends of processes, and false if it was aborted on its way.
func (e *exact) reportEnds(s *proc.Scan) bool {
	e.Helper()
	var short []*kin
	aborted := false
	e.dead = slices.DeleteFunc(e.dead, func(p *kin) bool {
		aborted = aborted || !e.still && e.r.IntN(20) == 0
		switch {
		case aborted || !e.still && e.r.IntN(2) == 0:
			return false
		case e.lossy && e.r.IntN(10) == 0:
			s.Lose(1, 0, p.cpu)
			e.lost, e.lostExits = e.lost+p.cpu-p.shown, e.lostExits+1
		case !s.Exit(p.ID, p.cpu, proc.Events{}, nil):
			short = append(short, p)
		}
		return true
	})
	for _, p := range short {
		home, oldest := s.OldestIn(p.cgroup), proc.Slot(-1)
		for row := range s.Table().All() {
			if row.Cgroup == p.cgroup && !row.Is(proc.Zombie) && (oldest < 0 || row.Start < s.Rows[oldest].Start) {
				oldest = row.Slot
			}
		}
		require.Equal(e, oldest, home, "the home of cgroup %d", p.cgroup)
		s.Charge(proc.Charge{Slot: home, CPU: p.cpu})
	}
	return !aborted
}

// restart makes another table continue. The ends of the time down are not reported.
func (e *exact) restart() {
	e.Helper()
	past, now := e.table.AppendPast(nil), e.table.Now
	for range e.r.IntN(60) {
		e.act()
	}
	for _, p := range e.dead {
		e.lost += p.cpu - p.shown
	}
	e.dead = nil
	e.table = proc.New(exactTraits)
	e.table.Resume(past, now, true)
	for range e.r.IntN(60) {
		e.act()
	}
	e.settle()
}

func TestTheTableBillsAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		lossy, restarts bool
	}{
		{name: "all ends are reported"}, {name: "some ends are lost", lossy: true}, {name: "with restarts", restarts: true},
	} {
		for seed := range uint64(5) {
			t.Run(c.name+"/"+strconv.FormatUint(seed, 10), func(t *testing.T) {
				e := newExact(t, seed)
				e.lossy = c.lossy
				partial, lostExits := 0, uint64(0)
				for i := range 400 {
					for range e.r.IntN(40) {
						e.act()
					}
					all := e.r.IntN(4) == 0
					for !e.scan(all) {
						e.act()
					}
					lostExits += e.table.Unseen.LostExits
					switch {
					case !all:
						partial++
					case c.restarts && e.r.IntN(5) == 0:
						e.restart()
					case e.r.IntN(20) == 0:
						e.table.Shrink()
					}
					if i%20 == 19 && !c.lossy {
						e.settle()
						require.Equal(t, e.used-e.lost, e.billed)
					}
				}
				e.lossy = false
				e.settle()
				lostExits += e.table.Unseen.LostExits
				e.now += time.Minute // the ends that were lost are waited for no longer
				e.settle()
				assert.Equal(t, e.used-e.lost, e.billed)
				assert.GreaterOrEqual(t, e.untraced, e.lost)
				assert.Equal(t, e.lostExits, lostExits+e.table.Unseen.LostExits)
				assert.Zero(t, e.table.Awaited())
				assert.Equal(t, len(e.living), e.table.Len())
				assert.Less(t, len(e.table.Rows), 2*maxPID)
				assert.Greater(t, partial, 100)
				if !c.lossy && !c.restarts {
					assert.Zero(t, e.untraced)
				}
			})
		}
	}
}

// Aborted scans, and restarts if there are any, are in between.
func TestChildTimesShowAllCPUTimeOnceHoweverProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		for seed := range uint64(5) {
			t.Run(strconv.FormatBool(restarts)+"/"+strconv.FormatUint(seed, 10), func(t *testing.T) {
				f := newFamily(seed, true)
				table := proc.New(tickTraits)
				var billed, seen units.CPUTime
				rounding, last, beside, restarted := 0, 0, 0, true
				for i := range 400 {
					for range f.r.IntN(60) {
						f.act()
					}
					aborts := i > 0 && f.r.IntN(4) == 0
					if aborts {
						s, sights := table.Begin(f.now), shuffled(f.r, f.look())
						for j := range sights[:f.r.IntN(len(sights))] {
							s.See(&sights[j])
						}
						for range f.r.IntN(20) {
							f.act()
						}
					}
					fill(table, f.now, f.used-seen, f.look()...)
					check(t, table)
					found := table.Used(nil)
					require.LessOrEqual(t, found, f.used-seen, "scan %d", i)
					if i == 0 {
						f.used = 0
					}
					billed, seen = billed+found, f.used
					for j := range table.Ended {
						rounding++ // the parts of a balance are rounded down
						if table.Ended[j].LastSlice > 0 {
							last++
						}
					}
					beside += len(table.Charges)
					require.InDelta(t, float64(f.used), float64(billed), float64(rounding), "scan %d", i)
					if !restarted && !aborts { // which may see a child and not its new parent
						require.Zero(t, table.Unseen.Untraced, "scan %d: each end can be traced", i)
					}
					if restarted = restarts && f.r.IntN(5) == 0; restarted {
						past, now := table.AppendPast(nil), table.Now
						table = proc.New(tickTraits)
						table.Resume(past, now, false)
					}
				}
				assert.Greater(t, last, 20)
				assert.Greater(t, beside, 20)
				assert.Less(t, len(table.Rows), 2*maxPID)
			})
		}
	}
}

// shuffled returns the sights in another order.
func shuffled(r *rand.Rand, sights []proc.Sight) []proc.Sight {
	sights = slices.Clone(sights)
	r.Shuffle(len(sights), func(i, j int) { sights[i], sights[j] = sights[j], sights[i] })
	return sights
}

// listed returns the result of a scan in its order, without slots.
func listed(t *proc.Table) (list []any) {
	for _, slot := range t.Active {
		p := &t.Rows[slot]
		list = append(list, p.Sight, p.Used, p.ChildUsed, p.Owed)
	}
	for _, c := range t.Charges {
		list = append(list, t.Rows[c.Slot].ID, c.CPU)
	}
	for _, e := range t.Ended {
		list = append(list, e.Sight, e.LastSlice)
	}
	return list
}

func TestTheOrderOfReportsDoesNotMatter(t *testing.T) {
	for seed := range uint64(8) {
		f := newFamily(seed, false)
		table, other := proc.New(tickTraits), proc.New(tickTraits)
		for range 100 {
			used := f.used
			for range f.r.IntN(60) {
				f.act()
			}
			at := f.now
			sights := f.look()
			fill(table, at, f.used-used, sights...)
			fill(other, at, f.used-used, shuffled(f.r, sights)...)
			require.Equal(t, listed(table), listed(other))
			require.Equal(t, table.Unseen, other.Unseen)
		}
	}
}
