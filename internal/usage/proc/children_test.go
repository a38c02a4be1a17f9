// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// relatives returns a host after its first scan. Each process but init has used 500 ticks, and so
// have the earlier children of each.
//
//	1 ─┬─ 42 ─┬─ 43 ── 50 ── 51
//	   │      ├─ 44, 45, 47 (a zombie)
//	   └─ 60, 61 (kernel threads; 60 is old); 46 and 48 (a zombie) have no visible parent
func relatives(t testing.TB) *host {
	h := watch(t, tickTraits)
	parents := map[int32]int32{42: 1, 43: 42, 44: 42, 45: 42, 46: 0, 47: 42, 48: 0, 50: 43, 51: 50, 60: 1, 61: 1}
	for pid, parent := range parents {
		h.add(pid, parent)
		h.run(pid, 500*tick, 500*tick)
	}
	h.all[47].Flags, h.all[48].Flags = proc.Zombie, proc.Zombie
	h.all[60].Flags, h.all[61].Flags = proc.Kernel, proc.Kernel
	h.all[60].Start = 0
	h.all[45].Threads = 64
	h.scan()
	return h
}

func TestChildTimesShowWhatNoRowShows(t *testing.T) {
	for name, c := range map[string]struct {
		act    func(h *host)
		want   map[int32]found
		shared []int32 // among these processes the time is divided somehow
		total  units.CPUTime
	}{
		"nothing happens": {act: func(*host) {}},
		"children lived between two scans": {
			act:  func(h *host) { h.run(42, 5*tick, 400*tick); h.run(43, 100*tick, 0) },
			want: map[int32]found{42: {used: 5 * tick, beside: 400 * tick}, 43: {used: 100 * tick}},
		},
		"children lived below a new process": {
			act:  func(h *host) { h.add(70, 42); h.run(70, 5*tick, 400*tick) },
			want: map[int32]found{70: {used: 5 * tick, beside: 400 * tick}},
		},
		"a process ended": {
			act:  func(h *host) { h.run(42, tick, 0); h.run(43, 300*tick, 0); h.end(43) },
			want: map[int32]found{42: {used: tick}, 43: {last: 300 * tick}},
		},
		"a process ended and had not run": {
			act: func(h *host) { h.end(43); h.node += 1000 * tick },
		},
		"a process with many threads ended": {
			act:  func(h *host) { h.run(45, 64_000*tick, 0); h.end(45) },
			want: map[int32]found{45: {last: 64_000 * tick}},
		},
		"a process waited for children and ended": {
			act:    func(h *host) { h.run(43, 50*tick, 200*tick); h.end(43) },
			shared: []int32{43, 42}, total: 250 * tick,
		},
		"siblings ended": {
			act:    func(h *host) { h.run(43, 100*tick, 0); h.run(44, 300*tick, 0); h.end(43); h.end(44) },
			want:   map[int32]found{43: {last: 200 * tick}, 44: {last: 200 * tick}}, // the division is unknown
			shared: []int32{42},
		},
		"all of a line ended": {
			act: func(h *host) {
				for _, pid := range []int32{51, 50, 43} {
					h.run(pid, 30*tick, 0)
					h.end(pid)
				}
			},
			shared: []int32{43, 50, 51, 42}, total: 90 * tick,
		},
		"an orphan ended, for which init waited": {
			act: func(h *host) {
				h.run(43, 10*tick, 0)
				h.run(50, 20*tick, 0)
				h.end(43)
				h.all[50].Parent, h.all[51].Parent = 1, 1
				h.end(50)
				h.node += 900 * tick
			},
			shared: []int32{43, 50, 42, 1}, total: 30 * tick,
		},
		"a zombie ended": {
			act:  func(h *host) { h.end(47); h.end(48); h.run(42, 0, 30*tick) },
			want: map[int32]found{42: {beside: 30 * tick}},
		},
		"the parent of a zombie ended and had not waited for it": {
			act: func(h *host) {
				h.all[43].Parent, h.all[44].Parent, h.all[45].Parent, h.all[47].Parent = 1, 1, 1, 1
				h.run(42, 20*tick, 0)
				h.end(42)
				h.end(47)
				h.node += 800 * tick
			},
			want: map[int32]found{42: {last: 20 * tick}},
		},
		"the PID of a parent is reused": {
			act: func(h *host) {
				h.run(51, 300*tick, 0)
				h.end(51)
				h.end(50)
				h.add(50, 1)
				h.run(50, 0, 40*tick)
			},
			want:   map[int32]found{50: {beside: 40 * tick, last: 150 * tick}},
			shared: []int32{51, 43}, total: 150 * tick,
		},
		"more than the node used": {
			act: func(h *host) {
				h.run(43, 30*tick, 600*tick)
				h.run(44, 0, 100*tick)
				h.node = 330 * tick
			},
			want: map[int32]found{43: {used: 30 * tick, beside: 225 * tick}, 44: {beside: 75 * tick}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := relatives(t)
			c.act(h)
			h.scan()
			got, sum := h.found(), units.CPUTime(0)
			for _, pid := range c.shared {
				sum += got[pid].beside + got[pid].last
				delete(got, pid)
			}
			if c.want == nil {
				c.want = map[int32]found{}
			}
			assert.Equal(t, c.want, got)
			assert.InDelta(t, float64(c.total), float64(sum), 3, "parts are rounded down")
			assert.Zero(t, h.Unseen.Untraced)
			h.scan()
			assert.Empty(t, h.found(), "once")
		})
	}
}

func TestUntracedBoundsWhatNoChildTimeShows(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(h *host)
		want units.CPUTime
	}{
		"nothing ended":                       {func(h *host) { h.node += 900 * tick }, 0},
		"a process without a visible parent":  {func(h *host) { h.end(46) }, proc.Unbounded},
		"a parent that did not wait":          {func(h *host) { delete(h.all, 43) }, proc.Unbounded},
		"a zombie without a visible parent":   {func(h *host) { h.end(48) }, 0},
		"a kernel thread, after the interval": {func(h *host) { delete(h.all, 60) }, 10*units.Second + 2*tick},
		"a kernel thread, after its life": {
			func(h *host) { h.now += time.Hour; delete(h.all, 61) }, 10*units.Second + 2*tick,
		},
		"kernel threads and an unbounded time": {
			func(h *host) { delete(h.all, 46); delete(h.all, 60) }, proc.Unbounded,
		},
		"a time that is not more than the rounding": {func(h *host) { h.end(43); h.all[42].ChildCPU -= 2 * tick }, 0},
		"a time that is more than the rounding": {
			func(h *host) { h.end(43); h.all[42].ChildCPU -= 2*tick + 1 }, proc.Unbounded,
		},
	} {
		h := relatives(t)
		c.act(h)
		h.scan()
		assert.Equal(t, c.want, h.Unseen.Untraced, name)
		assert.Empty(t, h.found(), name)
		h.scan()
		assert.Zero(t, h.Unseen.Untraced, name)
	}
}

func TestASampledShortChildIsNotChargedForItsSiblings(t *testing.T) {
	for name, see := range map[string]func(h *host){
		"by a scan": (*host).scan, "by an aborted scan": func(h *host) { h.see() },
	} {
		h := relatives(t)
		h.add(70, 42).Start = h.now + interval // in the moment of the scan
		see(h)
		h.end(70)
		h.run(42, 0, 500*tick)
		h.scan()
		want := map[int32]found{42: {beside: 498 * tick}, 70: {last: 2 * tick}} // user and system time are rounded
		assert.Equal(t, want, h.found(), name)
	}
}

func TestAParentThatWaitsAfterItWasReadOwesTheLifeOfItsChild(t *testing.T) {
	h := relatives(t)
	child := h.all[43]
	h.run(43, 100*tick, 0)
	delete(h.all, 43)
	h.scan()
	assert.Equal(t, proc.Unbounded, h.Unseen.Untraced, "nothing shows the last slice yet")
	assert.Empty(t, h.found())
	assert.Equal(t, 1000*tick, h.Find(42).Owed)

	h.all[43] = child
	h.end(43)
	h.node = 1000 * tick
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 100 * tick}}, h.found(), "the last slice, late; not the life")
	assert.Zero(t, h.Unseen.Untraced)
	assert.Zero(t, h.Find(42).Owed)
	h.run(42, 0, 70*tick)
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 70 * tick}}, h.found())
}

func TestAParentThatNeverWaitsOwesNothingAfterAScan(t *testing.T) {
	h := relatives(t)
	delete(h.all, 43)
	h.scan()
	assert.Equal(t, 1000*tick, h.Find(42).Owed)
	h.scan()
	assert.Equal(t, tickTraits.ChildRounding, h.Find(42).Owed, "it may be due to rounding")
	h.run(42, 0, 300*tick)
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 298 * tick}}, h.found(), "of others that it waits for")
}

func TestAProcessDiscardsTheTimesOfItsChildrenUntilItWaits(t *testing.T) {
	h := relatives(t)
	h.all[42].Flags = proc.Discards
	h.scan()
	h.all[42].Flags = 0 // a source reads it once
	h.scan()
	assert.True(t, h.Find(42).Is(proc.Discards))
	h.run(42, 0, tick)
	h.scan()
	assert.False(t, h.Find(42).Is(proc.Discards))
}

// 43 is not read again after its parent ended, so that its row has the PID of a stranger.
func TestAYoungerProcessIsNoParent(t *testing.T) {
	for name, isNew := range map[string]bool{"new": true, "not new": false} {
		h := relatives(t)
		h.end(42)
		s := h.see(1, 43, 44, 45)
		s.MissRemaining()
		s.End(0)
		h.add(42, 1)
		if !isNew {
			h.scan()
		}
		h.run(42, 0, 40*tick)
		delete(h.all, 43)
		h.scan()
		assert.Equal(t, found{beside: 40 * tick}, h.found()[42], name)
		assert.Zero(t, h.Find(42).Owed, name)
		isOwed := h.Find(1).Owed > tickTraits.ChildRounding
		assert.NotEqual(t, isNew, isOwed, "%s: the parent of a new stranger is no ancestor", name)
	}
}

// The row of 42 runs on without a report.
func TestAChildOfAnUnreadableParentIsNotBilledAgain(t *testing.T) {
	h := relatives(t)
	h.run(43, 100*tick, 0)
	h.end(43)
	s := h.see(1, 44, 45, 46, 47, 48, 50, 51, 60, 61)
	s.Miss(h.Find(43))
	s.End(h.node)
	h.node = 2000 * tick
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 100 * tick}}, h.found())
}

func TestGarbageIsNotInferred(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	number := func() units.CPUTime {
		most := [...]uint64{math.MaxUint64, math.MaxInt64, uint64(units.Second), uint64(100 * units.Second)}
		return units.CPUTime(r.Uint64N(most[r.IntN(4)]))
	}
	for range 300 {
		table, now := proc.New(tickTraits), time.Duration(0)
		for range 6 {
			now += time.Duration(r.Int64N(int64(time.Hour)))
			node := units.CPUTime(r.Uint64N(uint64(units.Second) * 1000))
			var rows []proc.Sight
			for pid := range int32(20) {
				rows = append(rows, proc.Sight{
					ID: proc.ID{PID: pid + 1, Start: time.Duration(r.Int64N(3)) * time.Hour}, Parent: r.Int32N(22) - 1,
					Threads: r.Int32() - r.Int32N(2)<<30, Flags: proc.Flags(r.UintN(4)), CPU: number(), ChildCPU: number(),
				})
			}
			fill(table, now, node, shuffled(r, rows)[:r.IntN(20)]...)
			inferred := units.CPUTime(0)
			for _, c := range table.Charges {
				inferred += c.CPU
			}
			for i := range table.Ended {
				inferred += table.Ended[i].LastSlice
			}
			require.LessOrEqual(t, inferred, node)
			check(t, table)
		}
	}
}
