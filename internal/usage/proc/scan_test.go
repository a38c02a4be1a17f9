// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// reporting returns a host whose source reports ends, after two scans. Process 42 has used 100 ns,
// in cgroup 7, and the others are in cgroup 5.
func reporting(t testing.TB) *host {
	h := watch(t, exactTraits)
	h.all[1].Cgroup = 5
	h.scan()
	h.add(42, 1).Cgroup = 7
	h.add(43, 1).Cgroup = 5
	h.run(42, 100, 0)
	h.scan()
	return h
}

// Scans are separated by "next". Those without "end" are aborted.
func TestAnEndGivesAProcessItsLastSlice(t *testing.T) {
	for name, script := range map[string]string{
		"before the process is missed":      "exit miss end",
		"in the scan that missed it":        "miss exit end",
		"in the scan that still saw it":     "run see exit miss end",
		"in the next scan":                  "run see end next exit end",
		"after an aborted scan that saw it": "run see next exit miss end",
		"in an aborted scan":                "see exit next miss end",
		"two scans after it was missed":     "miss end next run see end next miss end next miss end next exit end",
	} {
		t.Run(name, func(t *testing.T) {
			h := reporting(t)
			p := h.all[42]
			delete(h.all, 42)
			billed, s := units.CPUTime(0), h.see()
			for word := range strings.FieldsSeq(script) {
				switch word {
				case "run":
					p.CPU += 20
				case "see":
					s.See(p)
				case "miss":
					s.MissRemaining()
				case "exit":
					require.True(t, s.Exit(p.ID, 123, proc.Events{}, nil))
				case "end":
					s.End(0)
					check(t, h.Table)
					billed += h.Used(nil)
				case "next":
					s = h.see()
				}
			}
			assert.EqualValues(t, 23, billed)
			require.Len(t, h.Ended, 1)
			assert.Equal(t, proc.Unseen{}, h.Unseen)
			assert.Zero(t, h.Awaited())
			assert.Nil(t, h.Find(42))
			h.scan()
			assert.Empty(t, h.Ended, "once")
		})
	}
}

func TestLostExitsCountSinceTheFirstScan(t *testing.T) {
	h := watch(t, exactTraits)
	s := h.see()
	s.Lose(3, 2, 4000)
	s.End(0)
	assert.Zero(t, h.Unseen)
	s = h.see()
	s.Lose(3, 0, 4000)
	s.Lose(0, 2, 0)
	s.End(0)
	assert.Equal(t, proc.Unseen{LostExits: 5, Untraced: 4000}, h.Unseen, "the time of incomplete ends was missing before")
	s = h.see()
	s.Lose(1, 0, proc.Unbounded)
	s.Lose(1, 0, proc.Unbounded)
	s.End(0)
	assert.Equal(t, proc.Unseen{LostExits: 2, Untraced: proc.Unbounded}, h.Unseen)
	h.scan()
	assert.Zero(t, h.Unseen)
}

func TestASourceChargesTheTimeOfProcessesWithoutARow(t *testing.T) {
	h := reporting(t)
	s := h.see()
	assert.False(t, s.Exit(proc.ID{PID: 70, Start: h.Before + 1}, 9, proc.Events{}, nil), "no scan saw it")
	assert.False(t, s.Exit(proc.ID{PID: 42, Start: h.Before + 1}, 9, proc.Events{}, nil), "nor this one, of another's PID")
	assert.True(t, s.Exit(proc.ID{PID: 71, Start: 999 * time.Second}, 9, proc.Events{}, nil), "it ended before the first scan")
	born := h.add(72, 1)
	s.See(born)
	assert.False(t, s.Exit(born.ID, 31, proc.Events{}, nil), "it is no row of the scan before")
	delete(h.all, 72)
	s.See(h.add(73, 1))
	assert.True(t, s.Exit(h.all[43].ID, 0, proc.Events{}, nil), "less than was shown takes nothing back")
	delete(h.all, 43)
	for range 3 {
		s.Charge(proc.Charge{Slot: h.Find(42).Slot, CPU: 31})
		s.Charge(proc.Charge{Slot: -1, Path: "/ended", CPU: 0})
	}
	s.End(0)
	check(t, h.Table)
	assert.Len(t, h.Charges, 3, "of no time there is none")
	assert.EqualValues(t, 93, h.Used(nil))
	h.scan()
	assert.Empty(t, h.Charges)

	first := watch(t, exactTraits)
	s = first.see()
	assert.True(t, s.Exit(first.all[1].ID, 9, proc.Events{}, nil), "before the baseline")
	assert.True(t, s.Exit(proc.ID{PID: 70, Start: first.now + 1}, 9, proc.Events{}, nil))
}

func TestAnEndIsAwaitedForAMinute(t *testing.T) {
	most := 10*units.Second + 2*tick // since it was listed
	for name, c := range map[string]struct {
		flags     proc.Flags
		lost      int // the scan in which ends were lost, 0 is that which still saw the process
		ends      uint64
		lostExits uint64
		untraced  units.CPUTime
	}{
		"and nothing was lost":              {0, -1, 1, 1, most},
		"of a zombie":                       {proc.Zombie, -1, 1, 1, 0},
		"and ends were lost before":         {0, -2, 1, 1, most},
		"and ends were lost after it ran":   {0, 0, 1, 0, 0},
		"and ends were lost as it was gone": {0, 1, 1, 0, 0},
		"and ends were lost meanwhile":      {0, 3, 1, 0, 0},
		"and one lacked time of threads":    {0, 3, 0, 1, most},
	} {
		t.Run(name, func(t *testing.T) {
			h := reporting(t)
			id := h.all[42].ID
			h.all[42].Flags = c.flags
			scan := func(i int) {
				s := h.see()
				s.MissRemaining()
				if i == c.lost {
					s.Lose(c.ends, 1, 0)
				}
				s.End(0)
				check(t, h.Table)
			}
			scan(-2)
			scan(0)
			delete(h.all, 42)
			for i := range int(time.Minute / interval) {
				h.see() // an aborted scan takes half of the time
				h.now -= interval
				scan(1 + i)
				require.Equal(t, 1, h.Awaited(), "scan %d", i)
				require.True(t, h.Find(42).Is(proc.Zombie), "it does not run")
				require.Empty(t, h.Ended)
			}
			scan(99)
			assert.Equal(t, proc.Unseen{LostExits: c.lostExits, Untraced: c.untraced}, h.Unseen)
			assert.Zero(t, h.Awaited())
			require.Len(t, h.Ended, 1)
			assert.Empty(t, h.found())
			s := h.see()
			assert.True(t, s.Exit(id, 200, proc.Events{}, nil), "it was counted before")
			assert.False(t, s.Exit(id, 200, proc.Events{}, nil), "once")
		})
	}
}

func TestTheEndOfAProcessMayLackAllSinceAllWereListed(t *testing.T) {
	h := reporting(t)
	h.add(70, 1).Start = h.now + interval - 1
	h.all[70].Threads = 3
	h.scan()
	delete(h.all, 70)
	for range 2 {
		h.see(1).EndPartial()
	}
	assert.Zero(t, h.Awaited(), "none is missed")
	h.scan()
	h.now += time.Minute
	h.see(1).EndPartial()
	assert.Equal(t, proc.Unseen{LostExits: 1, Untraced: 3*30*units.Second + 2*tick}, h.Unseen)
}

func TestAProcessThatReturnsIsNoLongerGone(t *testing.T) {
	for name, report := range map[string]func(s *proc.Scan, now *proc.Sight){
		"is seen":                    func(s *proc.Scan, now *proc.Sight) { s.See(now) },
		"runs":                       func(s *proc.Scan, now *proc.Sight) { s.Run(s.Table().Find(42), now.CPU) },
		"is seen by an aborted scan": nil,
	} {
		h := reporting(t)
		p := h.all[42]
		for range 2 {
			delete(h.all, 42) // exec makes another thread the first one
			s := h.see()
			s.MissRemaining()
			assert.Negative(t, s.OldestIn(7), name)
			s.End(0)
			assert.Equal(t, 1, h.Awaited(), name)
			p.CPU += 9
			if report == nil {
				h.see().See(p)
				continue
			}
			h.now += time.Minute - interval - 1
			s = h.see(1, 43)
			report(s, p)
			assert.Equal(t, h.Find(42).Slot, s.OldestIn(7), name)
			s.End(0)
			assert.Zero(t, h.Awaited(), name)
			assert.False(t, h.Find(42).Is(proc.Zombie), name)
			assert.Equal(t, map[int32]found{42: {used: 9}}, h.found(), name)
		}
		h.scan()
		h.now += time.Minute
		h.scan()
		assert.Len(t, h.Ended, 1, name)
	}
}

func TestAClockThatJumpsBackLosesNothing(t *testing.T) {
	h := reporting(t)
	id := h.all[42].ID
	h.now -= 50 * time.Second
	delete(h.all, 42)
	delete(h.all, 43) // its end is never reported
	h.add(70, 1).Start = 1020*time.Second + 1
	h.run(70, 30, 0)
	h.scan()
	assert.Equal(t, map[int32]found{70: {used: 30}}, h.found())
	h.now -= 100 * time.Second
	h.scan()
	h.now += time.Minute - interval - 1
	h.scan()
	require.Equal(t, 2, h.Awaited(), "for a minute of the clock")
	s := h.see()
	require.True(t, s.Exit(id, 108, proc.Events{}, nil))
	s.End(0)
	assert.Equal(t, map[int32]found{42: {last: 8}}, h.found())
	assert.Zero(t, h.Awaited(), "and not until it is as late as before")
}

func TestTheUnknownAreThoseThatTheScanHasNotSeenAndThatAreNotGone(t *testing.T) {
	h := reporting(t)
	delete(h.all, 43)
	h.add(70, 1)
	h.scan()
	s := h.see(42)
	assert.True(t, s.Saw(h.Find(42)))
	assert.False(t, s.Saw(h.Find(1)))
	var pids []int32
	for p := range s.Remaining() {
		pids = append(pids, p.PID)
		s.Run(p, 3) // while they are listed
	}
	assert.Equal(t, []int32{1, 70}, pids)
	assert.True(t, s.Saw(h.Find(1)))
	s.End(0)
	assert.EqualValues(t, 5, h.Find(1).Cgroup, "nothing else of the row changes")
}

// A cgroup a scan, for longer than cgroups are remembered.
func TestHomesOfManyCgroupsAreForgotten(t *testing.T) {
	h := reporting(t)
	h.add(44, 1)
	s := h.see()
	s.OldestIn(5)
	for cgroup := range uint64(1<<16 + 10) {
		h.all[42].Cgroup = 100 + cgroup
		s.See(h.all[42])
	}
	s.End(0)
	s = h.see()
	assert.Equal(t, h.Find(1).Slot, s.OldestIn(5))
	assert.Equal(t, h.Find(42).Slot, s.OldestIn(h.all[42].Cgroup))
	assert.Negative(t, s.OldestIn(100))
	s.Exit(h.all[44].ID, 0, proc.Events{}, nil)
	assert.Negative(t, s.OldestIn(0), "an emptied slot is the oldest process of no cgroup")
	for pid := range int32(1<<16 + 10) { // too many with processes
		s.See(&proc.Sight{ID: proc.ID{PID: 100 + pid}, Cgroup: uint64(100 + pid)})
	}
	assert.Negative(t, s.OldestIn(99))
	s.End(0)
	assert.Negative(t, h.see().OldestIn(99))
}

func TestAScanAllocatesNothing(t *testing.T) {
	sights := newFamily(1, true).look()
	table, now := proc.New(tickTraits), time.Hour
	scan := func() {
		now += interval
		s := table.Begin(now)
		for i := range sights {
			sights[i].CPU += 5
			sights[i].Split = s.AddSlice(int32(i), 3, s.AddSlice(int32(i+1), 4, 0))
			s.See(&sights[i])
		}
		child := proc.Sight{ID: proc.ID{PID: 200, Start: s.Now}, Parent: 1, CPU: 7, Cgroup: 3}
		if table.Find(200) == nil {
			s.See(&child)
		}
		sights[2].ChildCPU += 9
		s.Charge(proc.Charge{Slot: s.OldestIn(0), CPU: 5})
		s.MissRemaining()
		s.End(9)
		for _, slot := range s.Active {
			s.Splits.Slices(s.Rows[slot].Split, 5, 0)
		}
		s = table.Begin(now)
		s.Run(&s.Rows[3], s.Rows[3].CPU+1)
		s.EndPartial()
	}
	for range 4 {
		scan()
	}
	assert.Zero(t, testing.AllocsPerRun(20, scan))
}
