// SPDX-License-Identifier: Apache-2.0

package attribution

import "github.com/energyreceiver/energyreceiver/internal/units"

// series identifies the series of an account. Two accounts with the same series are the same to the next consumer.
type series struct {
	entity  units.Entity
	process units.Process // none for other entities
	in      units.Key
}

// seriesOf returns the series of an entity of the owner; ok is false when the owner has none.
func seriesOf(e units.Entity, o *units.Owner) (s series, ok bool) {
	if !e.Of(o) {
		return series{}, false
	}
	s.entity, s.in = e, e.Key(&o.Workload)
	if e == units.ProcessEntity {
		s.process = o.Process
	}
	return s, true
}
