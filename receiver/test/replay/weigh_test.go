// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/power/model/ridge"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/internal/usage/weigh"
)

// share returns the usage of a program in a sample.
func share(p *Program) *weigh.Share {
	count := func(perSecond, unit float64) uint64 { return uint64(math.Round(perSecond * unit * sampleSeconds)) }
	return &weigh.Share{
		CPU: units.CPUTime(p.CPU * sampleSeconds * float64(units.Second)), LastCPU: -1, Counted: true,
		Events: proc.Events{count(p.Cycles, 1e9), count(p.Instructions, 1e9), count(p.Misses, 1e6)},
	}
}

// weighed returns the part of a duet's energy that the receiver's weight attributes to the wrong
// program. The receiver fits the model to a sample before it divides the energy of the sample.
func weighed(t *testing.T, d *Duet) float64 {
	var wrong Misattributed
	var total units.Energy
	m := weigh.NewModel(&ridge.Model{})
	at := time.Unix(0, 0)
	for i := range duetLength {
		a, b := &d.Parts[0][i], &d.Parts[1][i]
		all := a.Watts + b.Watts
		total += units.Energy((all + 100) * sampleSeconds * float64(units.Joule))
		at = at.Add(sampleSeconds * time.Second)
		m.Calibrate(total, 1, at, true)
		shares := []*weigh.Share{share(a), share(b)}
		measured, err := m.Weigh(at, shares)
		require.True(t, measured || shares[0].CPU+shares[1].CPU == 0, err)
		if sum := float64(shares[0].Work) + float64(shares[1].Work); i >= duetLength/2 && all > 0 {
			wrong.add(math.Abs(float64(shares[0].Work)/sum*all-a.Watts), all)
		}
	}
	return wrong.Part()
}

func TestTheReceiversWeightHasTheSharesOfTheModel(t *testing.T) {
	rule := Rule{Exponent: 2, Strength: ridge.Strength, Static: 100, Change: 1, Every: 1}
	duets := Duets(performance(t), 1)
	for i := range duets {
		assert.InDelta(t, rule.Share(&duets[i]).Model, weighed(t, &duets[i]), 0.01, duets[i].Name)
	}
}

func TestTheReceiversWeightOfMemoryIsCacheMisses(t *testing.T) {
	programs := memory(t)
	for i := range programs {
		shares := []*weigh.Share{share(&programs[i]), share(&programs[0])}
		measured, err := weigh.NewMisses().Weigh(time.Unix(0, 0), shares)
		require.True(t, measured, err)
		assert.InEpsilon(t, programs[i].Misses/programs[0].Misses, float64(shares[0].Work)/float64(shares[1].Work), 0.001)
	}
}
