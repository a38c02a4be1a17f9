// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// ReadingState is the part of a zone's state that another Sharer needs to continue its readings.
type ReadingState struct {
	Present, Ended, Superseded bool
	Unread                     time.Duration
	Domain, Kind               int
	// Deferred is the deferred energy of the zone and its claims, or nil. The claims are stored
	// only as unattributed CPU time.
	Deferred *DeferredState
}

// DeferredState is the energy that is deferred for a zone, and the usage of its domain in the same
// intervals.
type DeferredState struct {
	Energy                    units.Energy
	Elapsed                   time.Duration
	Busy, Total, Unattributed units.CPUTime
	Assumed, IdleAmongClaims  bool
}

// ReadingState returns the state of a zone.
func (s *Sharer) ReadingState(index int) ReadingState {
	z := &s.zones[index]
	state := ReadingState{Present: z.Present, Ended: z.Ended, Superseded: z.superseded, Unread: z.Unread, Domain: z.domain, Kind: z.kind}
	if g := z.deferred; g != nil {
		var all slice
		for _, sl := range g.slices {
			all.addUnattributed(&sl.usage, sl.elapsed)
		}
		u := &all.usage
		state.Deferred = &DeferredState{
			Energy: g.energy, Elapsed: g.elapsed, Busy: u.Busy, Total: u.Total, Unattributed: u.Unattributed,
			Assumed: u.Assumed, IdleAmongClaims: u.IdleAmongClaims,
		}
	}
	return state
}

// maxRestored bounds the time of a restored deferral, so that sums do not overflow.
const maxRestored = 1 << 60

// Restore continues the readings of the zones of a state. It must precede the first Share. The next
// interval is the time since the state: the total of a zone in it is the zone's energy since then.
// Static power models are not trained on that interval.
func (s *Sharer) Restore(zones []ReadingState) {
	s.restoring = true
	for i := range zones {
		s.zones = append(s.zones, zones[i].restored())
	}
}

func (state *ReadingState) restored() zone {
	z := zone{domain: state.Domain, kind: state.Kind, superseded: state.Superseded}
	z.Present, z.Ended, z.Unread = state.Present, state.Ended, state.Unread
	if d := state.Deferred; d != nil {
		elapsed := min(max(d.Elapsed, 0), maxRestored)
		z.deferred = &deferral{
			elapsed: elapsed, energy: d.Energy,
			slices: []*slice{{
				usage: Usage{
					Busy: d.Busy, Total: d.Total, Unattributed: d.Unattributed, Assumed: d.Assumed, IdleAmongClaims: d.IdleAmongClaims,
				},
				elapsed: elapsed, restored: true,
			}},
		}
		z.age = max(elapsed-state.Unread, 0)
		z.readAge = z.age
	}
	return z
}
