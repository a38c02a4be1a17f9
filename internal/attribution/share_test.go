// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

const (
	pkg  = 0
	dram = 1
	ms   = units.CPUTime(time.Millisecond)
)

func TestSharesHaveThePartsOfDomainsIfTheseAreAskedFor(t *testing.T) {
	s := NewSharer(Rules{})
	mover, child := s.Open(), s.Open()
	iv := Interval{Elapsed: time.Second, Domains: make([]Usage, 3), Zones: []ZoneReading{
		{Zone: 1, Domain: 1, Kind: pkg, OK: true}, {Zone: 2, Domain: 2, Kind: pkg, OK: true}, {Zone: 0, Kind: dram, OK: true},
	}}
	s.Share(&iv)
	s.Parts = 2
	iv.Domains = []Usage{
		{Busy: 100 * ms, Total: 100 * ms, Claims: []Claim{{Claimant: mover, CPU: 60 * ms}, {Claimant: child, ShortLived: true, CPU: 40 * ms}}},
		{Busy: 50 * ms, Total: 50 * ms, Claims: []Claim{{Claimant: mover, CPU: 40 * ms}, {Claimant: child, ShortLived: true, CPU: 10 * ms}}},
		{Busy: 50 * ms, Total: 50 * ms, Claims: []Claim{{Claimant: mover, CPU: 20 * ms}, {Claimant: child, ShortLived: true, CPU: 30 * ms}}},
	}
	share := func() *Shares {
		for i, energy := range []units.Energy{100, 500, 10} {
			iv.Zones[i].Total += energy
		}
		return s.Share(&iv)
	}
	iv.Zones[1].OK = false
	share()
	iv.Zones[1].OK = true // the second socket reports late
	shares := share()
	require.Equal(t, []ClaimantShares{{Claimant: mover, CPU: 60 * ms}, {Claimant: child, ShortLived: true, CPU: 40 * ms}}, shares.Claimants)
	assert.Equal(t, []Share{pkg: {480, 480}, dram: {6, 6}}, shares.Active(0))
	for domain, want := range map[int][]units.Energy{1: {80, 0}, 2: {400, 0}} {
		cpu, energy := shares.Part(0, domain)
		assert.Equal(t, iv.Domains[domain].Claims[0].CPU, cpu)
		assert.Equal(t, want, energy)
	}
}

func TestDeferredClaimsForgetClaimantsThatEndedButNotTheirEnergy(t *testing.T) {
	s := NewSharer(Rules{})
	iv := Interval{Elapsed: time.Second, Domains: []Usage{{Busy: 1, Total: 1}}, Zones: []ZoneReading{{Kind: pkg, OK: true}}}
	s.Share(&iv)
	const births = 3 * maxDeferredClaims
	iv.Zones[0].OK = false
	for range births {
		p := s.Open()
		iv.Domains[0].Claims = []Claim{{Claimant: p, CPU: 1}}
		s.Share(&iv)
		s.Close(p)
	}
	assert.LessOrEqual(t, len(s.zones[0].deferred.slices[0].usage.Claims), maxDeferredClaims+1)
	assert.LessOrEqual(t, len(s.users), maxDeferredClaims+2, "memory is bounded")
	iv.Zones[0].OK, iv.Zones[0].Total, iv.Domains[0].Claims = true, births*units.Joule, nil
	shares := s.Share(&iv)
	var sum units.Energy
	for row := range shares.Claimants {
		sum += shares.Active(row)[pkg].Energy
	}
	assert.Equal(t, births*units.Joule, sum)
	row, ok := shares.Find(NoClaimant, true)
	require.True(t, ok)
	assert.Positive(t, shares.Active(row)[pkg].Energy, "the energy of claimants that ended long ago")
}

func TestAMergedSliceHasTheAverageWeightOfAllItsIntervals(t *testing.T) {
	var g slice
	for range 2 {
		g.addAmounts(&Usage{Averages: [Weights]Average{{Weight: 40, CPU: 200 * ms}}}, time.Second)
	}
	assert.Equal(t, Average{Weight: 80, CPU: 400 * ms}, g.usage.Averages[0])
}
