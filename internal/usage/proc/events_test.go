// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// count lets a process use CPU time and count cycles.
func (h *host) count(pid int32, cpu units.CPUTime, cycles uint64) {
	h.run(pid, cpu, 0)
	h.all[pid].Events[proc.Cycles] += cycles
}

func cycles(n uint64) proc.Events { return proc.Events{proc.Cycles: n} }

func TestTheEventsOfAnIntervalAreTheGrowthOfTheTotals(t *testing.T) {
	h := watch(t, exactTraits)
	h.count(1, 5, 500)
	h.scan()
	assert.Zero(t, h.Find(1).Counted, "older than the interval")
	h.count(1, 5, 100)
	h.add(2, 1)
	h.count(2, 3, 30)
	h.scan()
	assert.Equal(t, cycles(100), h.Find(1).Counted)
	assert.Equal(t, cycles(30), h.Find(2).Counted, "from its start")

	h.count(1, 0, 7) // the CPU time follows
	h.scan()
	assert.Zero(t, h.Find(1).Counted)
	h.count(1, 5, 10)
	h.scan()
	assert.Equal(t, cycles(17), h.Find(1).Counted)
	for _, c := range []struct{ total, grown uint64 }{{600, 0}, {617, 0}, {620, 3}} { // a thread exits
		h.run(1, 5, 0)
		h.all[1].Events = cycles(c.total)
		h.scan()
		assert.Equal(t, cycles(c.grown), h.Find(1).Counted)
	}

	id := h.all[2].ID
	delete(h.all, 2)
	s := h.see()
	require.True(t, s.Exit(id, 9, cycles(90), nil))
	s.End(0)
	assert.Equal(t, cycles(60), h.Ended[0].LastCounted)
}

func TestAnIntervalWithoutCountsHasTheRatesOfTheLatestOneWithCounts(t *testing.T) {
	h := watch(t, exactTraits)
	h.add(2, 1)
	h.scan()
	h.count(1, 10, 100)
	h.count(2, 10, 1000)
	h.scan()
	h.KeepRates()

	h.run(1, 5, 0)
	id := h.all[2].ID
	delete(h.all, 2)
	s := h.see()
	require.True(t, s.Exit(id, 12, cycles(1000), nil))
	s.End(0)
	h.EstimateEvents()
	assert.Equal(t, cycles(50), h.Find(1).Counted)
	assert.Equal(t, cycles(200), h.Ended[0].LastCounted)

	h.add(3, 1) // in the slot of the exited process
	h.run(3, 10, 0)
	h.scan()
	h.scan()
	h.run(3, 10, 0)
	h.scan()
	h.EstimateEvents()
	assert.Zero(t, h.Find(3).Counted, "it has no rate")
}
