// SPDX-License-Identifier: Apache-2.0

package static

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Fixed is a configured static power.
type Fixed struct {
	// Power is the energy per second of all zones of the kind together, in all domains.
	Power units.Energy
	// IncludesExcluded reports whether Power includes the power of excluded workloads, so that all
	// energy above Power is active. If false, the share of excluded workloads in the energy above
	// Power, by CPU time, is idle energy as well.
	IncludesExcluded bool
}

var _ attribution.StaticPowerModel = Fixed{}

// Total treats all energy as idle, so that each virtual machine can get an equal part of the host's
// energy. This is the third rule of Kavanagh and Djemame, "Rapid and accurate energy models through
// calibration with IPMI and RAPL" (2019).
type Total struct{}

// Active returns 0.
func (Total) Active(attribution.Portion) units.Energy { return 0 }

// Active returns the energy of a portion above the static power of its zones.
func (f Fixed) Active(p attribution.Portion) units.Energy {
	if p.Elapsed <= 0 || p.OfAll == 0 {
		return 0
	}
	nanoseconds := units.MulDiv(uint64(p.Elapsed), uint64(p.Zones), uint64(p.OfAll))
	idle := units.MulDiv(uint64(f.Power), nanoseconds, uint64(time.Second))
	active := p.Above(units.Energy(idle))
	if p.Excluded == 0 || f.IncludesExcluded {
		return active
	}
	return units.Energy(units.MulDiv(uint64(active), uint64(p.Busy), uint64(p.Busy+p.Excluded)))
}
