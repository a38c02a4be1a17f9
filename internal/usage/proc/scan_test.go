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
					require.True(t, s.Exit(p.ID, 123, nil))
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

func TestAnEndOfLessTimeThanWasShownTakesNothingBack(t *testing.T) {
	h := reporting(t)
	s := h.see()
	require.True(t, s.Exit(h.all[42].ID, 40, nil))
	s.End(0)
	assert.Empty(t, h.found())
}

func TestASourceChargesTheTimeOfProcessesWithoutARow(t *testing.T) {
	h := reporting(t)
	s := h.see()
	assert.False(t, s.Exit(proc.ID{PID: 70, Start: h.Before + 1}, 9, nil), "no scan saw it")
	assert.False(t, s.Exit(proc.ID{PID: 42, Start: h.Before + 1}, 9, nil), "nor this one, of another's PID")
	assert.True(t, s.Exit(proc.ID{PID: 71, Start: 999 * time.Second}, 9, nil), "it ended before the first scan")
	born := h.add(72, 1)
	h.run(72, 30, 0)
	s.See(born)
	assert.False(t, s.Exit(born.ID, 31, nil), "it is no row of the scan before")
	delete(h.all, 72)
	assert.Nil(t, h.Find(72))
	for range 3 {
		s.Charge(proc.Charge{Slot: h.Find(42).Slot, CPU: 31})
		s.Charge(proc.Charge{Slot: -1, Path: "/ended", CPU: 0})
	}
	s.End(0)
	check(t, h.Table)
	assert.Len(t, h.Charges, 3, "of no time there is none")
	assert.EqualValues(t, 93, h.Used(nil))
	assert.Equal(t, []proc.Slot{h.Find(42).Slot}, h.Active, "a row with a charge is active")
	h.scan()
	assert.Empty(t, h.Active)
	assert.Empty(t, h.Charges)

	first := watch(t, exactTraits)
	s = first.see()
	assert.True(t, s.Exit(first.all[1].ID, 9, nil), "before the baseline")
	assert.True(t, s.Exit(proc.ID{PID: 70, Start: first.now + 1}, 9, nil))
}

func TestAnEndIsAwaitedForAMinute(t *testing.T) {
	const scans = int(time.Minute / interval)
	most := 10*units.Second + 2*tick // since it was listed
	for name, c := range map[string]struct {
		flags    proc.Flags
		lost     int // the scan in which ends were lost, 0 is that which still saw the process
		lostEnds uint64
		untraced units.CPUTime
	}{
		"and nothing was lost":              {0, -1, 1, most},
		"of a zombie":                       {proc.Zombie, -1, 1, 0},
		"and ends were lost before":         {0, -2, 1, most},
		"and ends were lost after it ran":   {0, 0, 0, 0},
		"and ends were lost as it was gone": {0, 1, 0, 0},
		"and ends were lost meanwhile":      {0, 3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := reporting(t)
			id := h.all[42].ID
			h.all[42].Flags = c.flags
			scan := func(i int) {
				s := h.see()
				s.MissRemaining()
				if i == c.lost {
					s.Lose(1, 0, 5100)
				}
				s.End(0)
				check(t, h.Table)
			}
			scan(-2)
			scan(0)
			delete(h.all, 42)
			for i := range scans {
				h.see() // an aborted scan takes half of the time
				h.now -= interval
				scan(1 + i)
				require.Equal(t, 1, h.Awaited(), "scan %d", i)
				require.True(t, h.Find(42).Is(proc.Zombie), "it does not run")
				require.Empty(t, h.Ended)
			}
			scan(99)
			assert.Equal(t, proc.Unseen{LostEnds: c.lostEnds, Untraced: c.untraced}, h.Unseen)
			assert.Equal(t, 0, h.Awaited())
			require.Len(t, h.Ended, 1)
			assert.Empty(t, h.found())
			s := h.see()
			assert.True(t, s.Exit(id, 200, nil), "it was counted before")
			assert.False(t, s.Exit(id, 200, nil), "once")
			s.End(0)
			assert.Zero(t, h.Unseen)
		})
	}
}

func TestLostEndsCountSinceTheFirstScan(t *testing.T) {
	h := watch(t, exactTraits)
	s := h.see()
	s.Lose(3, 2, 4000)
	s.End(0)
	assert.Zero(t, h.Unseen)
	s = h.see()
	s.Lose(3, 0, 4000)
	s.Lose(0, 2, 0)
	s.End(0)
	assert.Equal(t, proc.Unseen{LostEnds: 5, Untraced: 4000}, h.Unseen, "the time of incomplete ends was missing before")
	s = h.see()
	s.Lose(1, 0, proc.Unbounded)
	s.Lose(1, 0, proc.Unbounded)
	s.End(0)
	assert.Equal(t, proc.Unseen{LostEnds: 2, Untraced: proc.Unbounded}, h.Unseen)
	h.scan()
	assert.Zero(t, h.Unseen)
}

// An end without CPU time of threads is no reason for one that never comes.
func TestAnIncompleteEndIsNoLostOne(t *testing.T) {
	h := reporting(t)
	delete(h.all, 42)
	h.scan()
	h.now += time.Minute
	s := h.see()
	s.Lose(0, 1, 0)
	s.MissRemaining()
	s.End(0)
	assert.EqualValues(t, 2, h.Unseen.LostEnds)
}

func TestAProcessThatIsSeenAgainIsAwaitedAnew(t *testing.T) {
	h := reporting(t)
	p := h.all[42]
	for _, isRead := range []bool{true, false, true} {
		delete(h.all, 42) // exec makes another thread the first one
		h.scan()
		assert.Equal(t, 1, h.Awaited())
		h.now += time.Minute - interval - 1
		h.all[42] = p
		h.run(42, 9, 0)
		if s := h.see(1, 43); isRead {
			assert.False(t, s.See(p).Is(proc.Zombie))
			s.End(0)
		} else {
			s.Run(h.Find(42), p.CPU)
			s.End(0)
		}
		assert.Zero(t, h.Awaited())
		assert.Equal(t, map[int32]found{42: {used: 9}}, h.found())
	}
}

func TestTheEndOfAYoungProcessMayLackAllOfTheInterval(t *testing.T) {
	h := reporting(t)
	h.add(70, 1).Start = h.now + interval - 1
	h.all[70].Threads = 3
	h.scan()
	delete(h.all, 70)
	h.scan()
	h.now += time.Minute
	h.scan()
	assert.Equal(t, proc.Unseen{LostEnds: 1, Untraced: 3*10*units.Second + 2*tick}, h.Unseen)
}

func TestAClockThatJumpsBackLosesNothing(t *testing.T) {
	h := reporting(t)
	id := h.all[42].ID
	h.now -= 50 * time.Second
	delete(h.all, 42)
	delete(h.all, 43) // its end is never reported
	h.add(70, 1).Start = 1020*time.Second + 1
	h.run(70, 30, 0)
	h.run(1, 5, 0)
	h.scan()
	assert.Equal(t, map[int32]found{1: {used: 5}, 70: {used: 30}}, h.found())
	h.now -= 100 * time.Second
	h.scan()
	h.now += time.Minute - interval - 1
	h.scan()
	require.Equal(t, 2, h.Awaited(), "for a minute of the clock")
	s := h.see()
	require.True(t, s.Exit(id, 108, nil))
	s.End(0)
	assert.Equal(t, map[int32]found{42: {last: 8}}, h.found())
	assert.Zero(t, h.Awaited(), "and not until it is as late as before")
}

func TestAScanIsToldWhatItHasNotSeen(t *testing.T) {
	h := reporting(t)
	delete(h.all, 43)
	h.scan()
	h.add(70, 1)
	h.scan()
	s := h.see(42)
	assert.True(t, s.Saw(h.Find(42)))
	assert.False(t, s.Saw(h.Find(1)))
	var pids []int32
	for p := range s.Remaining() {
		pids = append(pids, p.PID)
		if p.PID == 1 {
			s.Run(p, 3) // while they are listed
		}
	}
	assert.Equal(t, []int32{1, 70}, pids, "and not the one that is gone")
	assert.True(t, s.Saw(h.Find(1)))
	s.Run(h.Find(1), 2)
	assert.Equal(t, s.Table(), h.Table)
	s.End(0) // 70 runs on
	assert.Equal(t, map[int32]found{1: {used: 3}}, h.found())
	assert.NotNil(t, h.Find(70))
	assert.Equal(t, 1, h.Awaited())
	assert.EqualValues(t, 5, h.Find(1).Cgroup, "nothing else of the row changes")
}

func TestAPartialScanKeepsTheRowsOfOthers(t *testing.T) {
	h := reporting(t)
	h.add(70, 1).Start = h.now - 5*time.Second // older than others that have rows
	h.run(70, 30, 0)
	h.run(43, 20, 0)
	s := h.see(70, 43)
	s.EndPartial()
	check(t, h.Table)
	assert.Equal(t, map[int32]found{70: {used: 30}, 43: {used: 20}}, h.found())
	assert.Equal(t, 4, h.Len())
	h.run(70, 1, 0)
	h.see(70).EndPartial()
	assert.Equal(t, map[int32]found{70: {used: 1}}, h.found())
	assert.Equal(t, []proc.Slot{h.Find(70).Slot}, h.Active)
	delete(h.all, 42)
	for range 10 {
		h.see(70).EndPartial()
	}
	assert.Zero(t, h.Awaited(), "none is missed")
	h.scan()
	assert.Equal(t, 1, h.Awaited())
	h.now += time.Minute
	h.see(70).EndPartial()
	assert.Zero(t, h.Awaited())
	assert.Equal(t, 130*units.Second+2*tick, h.Unseen.Untraced, "since all were listed")
}

func TestHomeIsAProcessThatRunsInTheCgroup(t *testing.T) {
	h := reporting(t)
	home := func(s *proc.Scan, cgroup uint64) (pid int32) {
		if slot := s.Home(cgroup); slot >= 0 {
			return h.Rows[slot].PID
		}
		return 0
	}
	s := h.see()
	assert.EqualValues(t, 42, home(s, 7))
	assert.EqualValues(t, 1, home(s, 5))
	assert.Zero(t, home(s, 77))
	h.all[42].Cgroup = 77
	s.See(h.all[42])
	assert.EqualValues(t, 42, home(s, 77), "it moved")
	assert.Zero(t, home(s, 7))
	h.add(70, 1).Cgroup = 88
	s.See(h.all[70])
	assert.EqualValues(t, 70, home(s, 88), "a new process")
	s.End(0)
	h.all[70].Flags = proc.Zombie
	h.add(71, 1).Cgroup = 77
	s = h.see()
	assert.Zero(t, home(s, 88), "a zombie does not run")
	assert.EqualValues(t, 42, home(s, 77), "the first one stays it")
	s.End(0)
	none := h.add(72, 1).ID
	s = h.see()
	assert.EqualValues(t, 72, home(s, 0))
	s.End(0)
	s = h.see()
	s.Exit(h.all[42].ID, 100, nil)
	s.Exit(none, 0, nil)
	delete(h.all, 42)
	delete(h.all, 72)
	assert.Negative(t, s.Home(0), "an emptied slot is no home")
	assert.EqualValues(t, 71, home(s, 77), "the first one ended, and another one is there")
	s.End(0)
	h.Shrink()
	s = h.see()
	assert.EqualValues(t, 71, home(s, 77))
	assert.EqualValues(t, 1, home(s, 5))
	h.all[71].Flags = proc.Zombie
	s.See(h.all[71])
	assert.Zero(t, home(s, 77))
	s.End(0)
}

// A cgroup a scan, for longer than cgroups are remembered.
func TestHomesOfManyCgroupsAreForgotten(t *testing.T) {
	h := reporting(t)
	s := h.see()
	s.Home(5)
	for cgroup := range uint64(1<<16 + 10) {
		h.all[42].Cgroup = 100 + cgroup
		s.See(h.all[42])
	}
	s.End(0)
	s = h.see()
	assert.Equal(t, h.Find(1).Slot, s.Home(5))
	assert.Equal(t, h.Find(42).Slot, s.Home(h.all[42].Cgroup))
	assert.Negative(t, s.Home(100))
	for pid := range int32(1<<16 + 10) { // too many with processes
		s.See(&proc.Sight{ID: proc.ID{PID: 100 + pid}, Cgroup: uint64(100 + pid)})
	}
	assert.Negative(t, s.Home(99))
	s.End(0)
	assert.Negative(t, h.see().Home(99))
}

// The rows of one that ended only after an aborted scan saw it are not more than it used.
func TestWhatOnlyAnAbortedScanSawCounts(t *testing.T) {
	h := relatives(t)
	h.add(70, 42).Start = h.now + 1
	h.run(70, 30*tick, 0)
	h.see()
	h.run(70, 10*tick, 0)
	h.end(70)
	h.run(42, 0, 400*tick)
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 408 * tick}, 70: {last: 32 * tick}}, h.found())
	assert.Zero(t, h.Unseen.Untraced)
}

func TestAScanThatDoesNotEndLosesNothing(t *testing.T) {
	for seed := range uint64(5) {
		f := newFamily(seed, true)
		table, aborted := proc.New(exactTraits), proc.New(exactTraits)
		want, got := map[proc.ID]units.CPUTime{}, map[proc.ID]units.CPUTime{}
		for i := range 100 {
			for i > 0 && f.r.IntN(2) == 0 { // a part of the scan, in any order
				s, sights := aborted.Begin(f.now), shuffled(f.r, f.look())
				for j := range sights[:f.r.IntN(len(sights))] {
					s.See(&sights[j])
				}
				if f.r.IntN(3) == 0 {
					s.MissRemaining()
				}
			}
			for range f.r.IntN(40) {
				f.act()
			}
			sights := f.look()
			for _, c := range []struct {
				*proc.Table
				to map[proc.ID]units.CPUTime
			}{{table, want}, {aborted, got}} {
				s := c.Begin(f.now)
				for j := range sights {
					s.See(&sights[j])
				}
				for _, p := range f.dead {
					id := proc.ID{PID: p.PID, Start: p.Start.Truncate(time.Duration(tick))}
					if !s.Exit(id, p.cpu, nil) {
						c.to[id] += p.cpu
					}
				}
				s.MissRemaining()
				s.End(0)
				found := figuresOf(c.Table)
				for _, of := range []map[proc.ID]units.CPUTime{found.used, found.last} {
					for id, used := range of {
						c.to[id] += used
					}
				}
				require.Zero(t, c.Awaited())
			}
			f.dead = nil
			require.Equal(t, want, got, "seed %d, scan %d", seed, i)
			require.Equal(t, table.Before, aborted.Before)
			require.Equal(t, table.Len(), aborted.Len())
		}
	}
}

func TestAScanAllocatesNothing(t *testing.T) {
	f := newFamily(1, true)
	sights := f.look()
	see := func(s *proc.Scan, ran units.CPUTime) {
		for i := range sights {
			sights[i].CPU += ran
			s.See(&sights[i])
		}
	}
	for name, scan := range map[string]func(s *proc.Scan){
		"nothing ran":       func(s *proc.Scan) { see(s, 0); s.MissRemaining(); s.End(0) },
		"all ran":           func(s *proc.Scan) { see(s, 5); s.MissRemaining(); s.End(5) },
		"some ran, partial": func(s *proc.Scan) { s.Run(&s.Rows[3], s.Rows[3].CPU+1); s.EndPartial() },
		"a process came and went": func(s *proc.Scan) {
			child := proc.Sight{ID: proc.ID{PID: 200, Start: s.Now}, Parent: 1, CPU: 7, Cgroup: 3}
			if s.Table().Find(200) == nil {
				s.See(&child)
			}
			see(s, 0)
			s.MissRemaining()
			s.End(0)
		},
		"children ended": func(s *proc.Scan) { sights[2].ChildCPU += 9; see(s, 0); s.MissRemaining(); s.End(9) },
		"charges and slices": func(s *proc.Scan) {
			for i := range sights {
				sights[i].Split = s.AddSlice(int32(i), 3, s.AddSlice(int32(i+1), 4, 0))
			}
			see(s, 5)
			s.Charge(proc.Charge{Slot: s.Home(0), CPU: 5})
			s.MissRemaining()
			s.End(0)
			for _, slot := range s.Active {
				s.Splits.Slices(s.Rows[slot].Split, 5, 0)
			}
		},
	} {
		table, now := proc.New(tickTraits), time.Hour
		again := func() {
			now += interval
			scan(table.Begin(now))
		}
		fill(table, now, 0, sights...)
		for range 4 {
			again()
		}
		assert.Zero(t, testing.AllocsPerRun(20, again), name)
	}
}
