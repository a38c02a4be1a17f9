// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// A new process that ends before its first scan does leaves a slot in Active.
func TestASlotOfTwoNewProcessesIsActiveOnce(t *testing.T) {
	h := reporting(t)
	s := h.see()
	s.See(h.add(70, 1))
	assert.False(t, s.Exit(h.all[70].ID, 5, nil))
	delete(h.all, 70)
	h.add(71, 1)
	h.run(71, 30, 0)
	s.See(h.all[71])
	s.End(0)
	check(t, h.Table)
	assert.EqualValues(t, 30, h.Used(nil))
}

// A process is missed, seen by an aborted scan, and missed again.
func TestAProcessIsAwaitedOnce(t *testing.T) {
	h := reporting(t)
	p := h.all[42]
	delete(h.all, 42)
	h.scan()
	h.see().See(p)
	h.scan()
	assert.Equal(t, 1, h.Awaited())
	h.now += time.Minute
	h.scan() // panics
	assert.Len(t, h.Ended, 1)
}

func TestAProcessThatIsSeenAgainIsAHome(t *testing.T) {
	h := reporting(t)
	p := h.all[42]
	delete(h.all, 42)
	h.scan()
	s := h.see()
	assert.Negative(t, s.Home(7))
	s.End(0)
	h.all[42] = p
	s = h.see()
	assert.Equal(t, h.Find(42).Slot, s.Home(7))
	s.End(0)
}

func TestAProcessThatRunsAgainIsNoZombie(t *testing.T) {
	h := reporting(t)
	delete(h.all, 42)
	h.scan()
	s := h.see()
	assert.Negative(t, s.Home(7))
	s.Run(h.Find(42), 109)
	s.End(0)
	assert.False(t, h.Find(42).Is(proc.Zombie))
	assert.Equal(t, map[int32]found{42: {used: 9}}, h.found())
	s = h.see()
	assert.Equal(t, h.Find(42).Slot, s.Home(7))
	s.End(0)
}

func TestNothingIsUsedInTheFirstScanThatSucceeds(t *testing.T) {
	h := watch(t, tickTraits)
	h.add(42, 1)
	h.see()
	h.run(1, 5*tick, 7*tick)
	h.end(42)
	h.scan()
	assert.Empty(t, h.found())
	assert.Empty(t, h.Ended)
}
