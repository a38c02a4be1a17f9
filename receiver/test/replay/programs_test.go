// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
)

// memory returns programs whose DRAM power was measured.
func memory(t *testing.T) []Program { return programs(t, "energy-languages", 360) }

// performance returns programs whose wall power was measured.
func performance(t *testing.T) []Program { return programs(t, "power-modelling", 3633) }

func programs(t *testing.T, source string, n int) []Program {
	all, err := ReadPrograms("testdata/programs-" + source + ".csv")
	require.NoError(t, err)
	require.Len(t, all, n)
	return all
}

func TestCacheMissesShareThePowerOfMemoryBetterThanCPUTime(t *testing.T) {
	for machine, most := range map[string]struct{ cpuTime, misses, pairs float64 }{
		"turbo": {0.13, 0.04, 7400}, "no turbo": {0.19, 0.055, 3400}, "one CPU at 800 MHz": {0.38, 0.03, 1600},
	} {
		some := slices.DeleteFunc(memory(t), func(p Program) bool { return p.Machine != machine })
		misses := func(p *Program) float64 { return p.Misses }
		cpuTime := func(p *Program) float64 { return p.CPU }
		assert.LessOrEqual(t, DRAMPairs(some, misses).Part(), most.misses, machine)
		assert.GreaterOrEqual(t, DRAMPairs(some, cpuTime).Part(), most.cpuTime, machine)
		assert.GreaterOrEqual(t, float64(len(DRAMPairs(some, misses).Pairs)), most.pairs, machine)
		assert.GreaterOrEqual(t, Predicted(some, misses), 0.75, machine)
		assert.LessOrEqual(t, Predicted(some, cpuTime), 0.4, machine)
	}
}

func TestAPowerModelIsBetterThanItsBasicWeight(t *testing.T) {
	duets := Duets(performance(t), 1)
	assert.Len(t, duets, 113)
	for _, r := range []Rule{
		{Exponent: 2, Static: 0}, {Exponent: 2, Static: 100}, {Exponent: 2, Static: 300}, {Exponent: 1, Static: 100}, {Exponent: 0, Static: 100},
	} {
		r.Strength, r.Change, r.Every = ridge.Strength, 1, 1
		c := Compare(duets, r)
		assert.Less(t, c.Model, c.Basic-0.01, "%+v", r)
		assert.LessOrEqual(t, c.Worse, 0.03, "%+v", r)
		assert.LessOrEqual(t, c.Loss, 0.015, "%+v", r)
	}
}

func TestAnEventThatChangesItsMeaningCostsLittle(t *testing.T) {
	duets := slices.DeleteFunc(Duets(performance(t), 1), func(d Duet) bool { return d.Miscounts() })
	assert.Len(t, duets, 107)
	for _, change := range []float64{100, 0.01} {
		c := Compare(duets, Rule{Exponent: 2, Strength: ridge.Strength, Static: 100, Change: change, Every: 1})
		assert.Less(t, c.Model, c.Basic, "%g", change)
		assert.LessOrEqual(t, c.Loss, 0.025, "%g", change)
	}
}

func TestAPowerModelThatIsFittedToOtherProgramsHelpsOnAverage(t *testing.T) {
	duets := slices.DeleteFunc(Duets(performance(t), 1), func(d Duet) bool { return d.Miscounts() })
	c := Compare(duets, Rule{Exponent: 2, Strength: ridge.Strength, Static: 100, Change: 1, Unseen: true, Every: 1})
	assert.Less(t, c.Model, c.Basic)
	assert.LessOrEqual(t, c.Loss, 0.1)
}
