// SPDX-License-Identifier: Apache-2.0

package proc_test

import (
	"slices"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu/divide/dividetest"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
)

// divided returns reporting's host on a machine whose CPUs 0 and 1 are in two packages.
func divided(t testing.TB) *host {
	h := reporting(t)
	topology, err := divide.OpenTopology(dividetest.MachineOf(t, [2]string{"0", "0"}, [2]string{"1", "0"}))
	require.NoError(t, err)
	h.Divide(topology)
	h.Divide(nil) // changes nothing
	return h
}

// A list that a source did not write, such as one with a circle, ends too.
func TestSlicesAddUpExactlyWhateverTheirList(t *testing.T) {
	require.NoError(t, quick.Check(func(used units.CPUTime, first uint8, runs [8]uint64, next [8]uint8) bool {
		s := proc.New(exactTraits).Begin(1)
		for i, run := range runs {
			s.AddSlice(int32(i), run, proc.Split(next[i]%10))
		}
		var sum units.CPUTime
		for _, slice := range s.Splits.Slices(proc.Split(first%12), used, -1) {
			sum += slice.Used
		}
		return sum == used
	}, &quick.Config{MaxCount: 10_000}))
}

func TestCPUTimeIsDividedByTheSlicesOfItsList(t *testing.T) {
	h := divided(t)
	s := h.see()
	list := s.AddSlice(1, 3, s.AddSlice(0, 1, 0))
	unused := s.AddSlice(1, 0, s.AddSlice(1, 0, 0))
	for _, c := range []struct {
		name    string
		split   proc.Split
		lastCPU int32
		slices  []proc.Slice
		parts   []units.CPUTime
	}{
		{"two CPUs", list, 0, []proc.Slice{{CPU: 1, Used: 75}, {CPU: 0, Used: 25}}, []units.CPUTime{25, 75}},
		{"no list", 0, 1, []proc.Slice{{CPU: 1, Used: 100}}, []units.CPUTime{0, 100}},
		{"a list that shows nothing", unused, 0, []proc.Slice{{CPU: 0, Used: 100}}, []units.CPUTime{100, 0}},
		{"a list that is missing", 1000, 1, []proc.Slice{{CPU: 1, Used: 100}}, []units.CPUTime{0, 100}},
		{"an unknown CPU", 0, -1, []proc.Slice{{CPU: -1, Used: 100}}, []units.CPUTime{100, 0}},
		{"a domain that is missing", 0, -9, []proc.Slice{{CPU: -9, Used: 100}}, []units.CPUTime{0, 100}},
	} {
		assert.Equal(t, c.slices, slices.Clone(s.Splits.Slices(c.split, 100, c.lastCPU)), c.name)
		assert.Equal(t, c.parts, slices.Clone(s.Splits.Parts(c.split, 100, c.lastCPU)), c.name)
	}
	s.End(0)
}

func TestPartsAreAddedByDomain(t *testing.T) {
	h := divided(t)
	s := h.see()
	assert.Zero(t, s.AddParts(7, []uint64{0, 0}), "the weights show nothing")
	assert.Zero(t, s.AddParts(7, nil))
	one, both := s.AddParts(13, []uint64{13, 0}), s.AddParts(20, []uint64{15, 5})
	assert.Len(t, s.Splits.Slices(one, 20, 0), 1, "none of no time")
	assert.Equal(t, []units.CPUTime{30, 10}, slices.Clone(s.Splits.Parts(both, 40, 0)))
	assert.Len(t, s.Splits.Slices(both, 40, 0), 2, "one for each domain")
	s.End(0)
}

func TestTheDomainsHaveAllThatAScanFound(t *testing.T) {
	h := divided(t)
	sums := func(of func(parts []units.CPUTime) units.CPUTime) []units.CPUTime {
		parts := make([]units.CPUTime, 2)
		assert.Equal(t, of(parts), parts[0]+parts[1])
		return parts
	}
	id := h.all[42].ID
	delete(h.all, 42)
	h.run(1, 100, 0)
	h.run(43, 10, 0)
	copy(h.all[43].Comm[:], "ksoftirqd/1")
	h.all[43].Flags, h.all[43].LastCPU = proc.Kernel, 1
	h.add(70, 1).LastCPU = 1
	h.run(70, 40, 0)
	s := h.see(43)
	h.all[1].Split = s.AddSlice(1, 3, s.AddSlice(0, 1, 0))
	h.all[70].Split = s.AddSlice(0, 4, s.AddSlice(1, 6, 0))
	s.See(h.all[1])
	s.See(h.all[70])
	require.True(t, s.Exit(id, 200, proc.Events{}, []uint64{4000, 1000}))
	s.Charge(proc.Charge{Slot: h.Find(43).Slot, CPU: 11, Split: s.AddParts(11, []uint64{10, 1})})
	s.Charge(proc.Charge{Slot: h.Find(43).Slot, CPU: 7}) // where its process was last
	s.Charge(proc.Charge{Slot: -1, CPU: 3})
	s.MissRemaining()
	s.End(0)
	assert.Equal(t, []units.CPUTime{80, 20}, slices.Clone(h.Splits.Parts(h.Ended[0].Split, h.Ended[0].LastSlice, 0)))
	assert.Equal(t, []units.CPUTime{10, 1}, slices.Clone(h.ChargeParts(&h.Charges[0])))
	assert.Equal(t, []units.CPUTime{0, 7}, slices.Clone(h.ChargeParts(&h.Charges[1])))
	assert.Equal(t, []units.CPUTime{3, 0}, slices.Clone(h.ChargeParts(&h.Charges[2])))
	assert.Equal(t, []units.CPUTime{25 + 16 + 80 + 10 + 3, 75 + 10 + 24 + 20 + 1 + 7}, sums(h.Used))
	assert.Equal(t, []units.CPUTime{0, 10}, sums(h.Softirqd))
}

func TestARowKeepsNoSlicesOfAnEarlierScan(t *testing.T) {
	h := divided(t)
	scan := func(split func(s *proc.Scan) proc.Split) []units.CPUTime {
		s := h.see(43)
		h.all[1].Split = split(s)
		s.See(h.all[1])
		s.End(0)
		return slices.Clone(h.Splits.Parts(h.Find(1).Split, 100, 0))
	}
	second := func(s *proc.Scan) proc.Split { return s.AddSlice(1, 1, 0) }
	h.run(1, 100, 0)
	assert.Equal(t, []units.CPUTime{0, 100}, scan(second))
	assert.Equal(t, []units.CPUTime{100, 0}, scan(second), "it did not run")
	h.run(1, 100, 0)
	assert.Equal(t, []units.CPUTime{0, 100}, scan(second))
	s := h.see(43)
	assert.EqualValues(t, 1, s.AddSlice(1, 1, 0), "lists of earlier scans take no memory")
	s.Run(h.Find(1), h.Find(1).CPU+5)
	s.End(0)
	assert.Zero(t, h.Find(1).Split)

	h.add(70, 1).Start = 0 // missed by earlier scans: nothing of its time belongs to this one
	s = h.see(43)
	h.all[70].Split = s.AddSlice(1, 1, 0)
	assert.Zero(t, s.See(h.all[70]).Split)
	s.End(0)
}

func TestATableThatDividesNothingHasNoParts(t *testing.T) {
	h := reporting(t)
	h.run(1, 9, 0)
	s := h.see()
	assert.Zero(t, s.AddParts(9, []uint64{1, 2}))
	s.Charge(proc.Charge{Slot: 0, CPU: 4})
	s.End(0)
	assert.Nil(t, h.Splits.Parts(0, 9, 0))
	assert.Nil(t, h.ChargeParts(&h.Charges[0]))
	assert.EqualValues(t, 13, h.Used(nil))
}
