// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// restart makes another table continue, after changes of what is stored.
func (h *host) restart(traits proc.Traits, wasExact bool, change func(p *proc.Past)) {
	past := h.AppendPast(nil)
	for i := range past {
		change(&past[i])
	}
	now := h.Now
	h.Table = proc.New(traits)
	h.Resume(past, now, wasExact)
	h.now += time.Hour
}

func unchanged(*proc.Past) {}

func TestAPastIsRestoredAsItWas(t *testing.T) {
	h := relatives(t)
	h.all[1].Flags = proc.Discards
	delete(h.all, 43)
	h.scan()
	want := h.AppendPast(nil)
	assert.Len(t, want, h.Len())
	h.restart(tickTraits, false, unchanged)
	assert.Equal(t, want, h.AppendPast(nil))
	assert.Equal(t, 1000*tick, h.Find(42).Owed)
	assert.Empty(t, h.Active)
	assert.Empty(t, h.found())
	assert.Negative(t, h.Find(42).LastCPU)
	assert.EqualValues(t, 1, h.Scans(), "the baseline is past")
	assert.Zero(t, testing.AllocsPerRun(10, func() { want = h.AppendPast(want[:0]) }))
}

func TestATableCountsSinceThePast(t *testing.T) {
	h := relatives(t)
	h.restart(tickTraits, false, unchanged)
	h.run(1, 7*tick, 0)
	h.add(70, 1).Start = h.now - time.Minute
	h.run(70, 30*tick, 0)
	h.add(71, 1).Start = 0 // not in the past, though it is old
	h.run(71, 100*tick, 0)
	h.see(1, 70) // is aborted, and changes nothing
	h.scan()
	assert.Equal(t, map[int32]found{1: {used: 7 * tick}, 70: {used: 30 * tick}}, h.found())
	assert.Equal(t, proc.Unbounded, h.Unseen.Untraced, "not all that ended is known")
	h.run(71, 5*tick, 0)
	h.scan()
	assert.Equal(t, map[int32]found{71: {used: 5 * tick}}, h.found())
	assert.Zero(t, h.Unseen.Untraced)
}

func TestAnExactTableTakesTheEndsThatAreReportedAndAwaitsNoOthers(t *testing.T) {
	h := reporting(t)
	h.restart(exactTraits, true, unchanged)
	s := h.see(1)
	assert.True(t, s.Exit(h.all[42].ID, 123, proc.Events{}, nil))
	assert.False(t, s.Exit(proc.ID{PID: 70, Start: h.Before + 1}, 11, proc.Events{}, nil), "of the time down")
	assert.True(t, s.Exit(proc.ID{PID: 71, Start: h.Before - 1}, 1<<40, proc.Events{}, nil), "it ended before that")
	s.MissRemaining()
	s.End(0)
	assert.Equal(t, map[int32]found{42: {last: 23}}, h.found())
	assert.Len(t, h.Ended, 2)
	assert.Zero(t, h.Awaited())
	assert.Equal(t, proc.Unseen{Untraced: proc.Unbounded}, h.Unseen)
	h.see(1).End(0)
	s = h.see()
	s.MissRemaining()
	s.End(0)
	delete(h.all, 43)
	h.scan()
	assert.Equal(t, 1, h.Awaited(), "from then on they are awaited")
}

func TestStartTimesInTicksAndNanosecondsAreThoseOfOneProcess(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct{ stored, seen time.Duration }{
		"from ticks to nanoseconds": {1010 * time.Second, 1010*time.Second + 7*ms},
		"from nanoseconds to ticks": {1010*time.Second + 7*ms, 1010 * time.Second},
	} {
		h := reporting(t)
		h.restart(exactTraits, false, func(p *proc.Past) {
			if p.PID == 42 {
				p.Start = c.stored
			}
		})
		h.all[42].Start = c.seen
		h.run(42, 18, 0)
		h.scan()
		assert.Equal(t, map[int32]found{42: {used: 18}}, h.found(), name)
		assert.Empty(t, h.Ended, name)
		assert.Equal(t, c.seen, h.Find(42).Start, name)
		h.all[42].Start += ms
		h.scan()
		assert.Equal(t, 1, h.Awaited(), "%s: only in the first scan", name)
	}
}

func TestChildTimesThatTheSourceBeforeDidNotReportAreNotInvented(t *testing.T) {
	h := relatives(t)
	h.restart(tickTraits, true, func(p *proc.Past) { p.ChildCPU, p.CPU = 0, p.CPU+units.CPUTime(3*time.Millisecond) })
	h.run(42, 20*tick, 30*tick)
	h.scan()
	assert.Equal(t, map[int32]found{42: {used: 20*tick - units.CPUTime(3*time.Millisecond)}}, h.found())
	h.run(42, 0, 30*tick)
	h.scan()
	assert.Equal(t, map[int32]found{42: {beside: 30 * tick}}, h.found(), "from then on they are known")
}
