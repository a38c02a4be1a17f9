// SPDX-License-Identifier: Apache-2.0

package window

import (
	"maps"
	"slices"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// zones numbers the zones of a meter for the intervals. The zero zones are ready to use.
type zones struct {
	known []power.Zone // by number
	read  []zoneRead   // by number
	index map[*power.Zone]int
	// awaited holds the zones of a restored state that have no good reading yet. Their series
	// continue with the totals of the first meter that reads them.
	awaited map[int]bool
}

// zoneRead is a zone's last new reading. The zero zoneRead belongs to a zone that was not read yet.
type zoneRead struct {
	at         time.Time
	unmeasured time.Duration
}

// isNew reports whether the total of a reading was updated since the last call. A meter that is
// slower than the intervals returns the same reading again, and the claims of the interval are
// deferred until the zone's next update. isNew also returns the part of the time between two new
// readings that was not measured.
func (z *zones) isNew(zone int, r *power.Reading) (isNew bool, unmeasured time.Duration) {
	for zone >= len(z.read) {
		z.read = append(z.read, zoneRead{})
	}
	before := z.read[zone]
	if r.Err != nil || r.At.Equal(before.at) {
		return false, 0
	}
	z.read[zone] = zoneRead{r.At, r.Unmeasured}
	if before.at.IsZero() {
		return true, 0
	}
	return true, max(r.Unmeasured-before.unmeasured, 0)
}

// MaxAge is the maximum age of a reading, because no usage is kept for longer. An older reading
// counts as a reading at the end of the interval.
const MaxAge = 5 * time.Minute

// ageOf returns the time between the end of a reading's total and the end of its domain's usage. A
// library polls the usage of a GPU together with its energy, so only the lag counts.
func ageOf(r *power.Reading, m *Measurement) time.Duration {
	age := m.ReadAt.Sub(r.At)
	if r.Zone.Domain.IsGPU() && !m.usedUntilRead(r.Zone.Domain) {
		age = r.Correction.Lag
	}
	if age > 0 && age <= MaxAge {
		return age
	}
	return 0
}

// number returns the number of a zone. replaced reports whether the zone continues the series of
// another zone and had no good reading before this call.
func (z *zones) number(r *power.Reading) (i int, replaced bool) {
	if i, ok := z.index[r.Zone]; ok {
		if r.Err == nil {
			delete(z.awaited, i)
		}
		return i, false
	}
	i = slices.IndexFunc(z.known, func(known power.Zone) bool { return sameSeries(&known, r.Zone) })
	replaced = i >= 0 && !z.awaited[i]
	if r.Err == nil {
		delete(z.awaited, i)
	}
	switch {
	case i >= 0 && !replaced:
	case !replaced:
		i = len(z.known)
		z.known = append(z.known, *r.Zone)
	case r.Err != nil:
		return i, replaced
	}
	if i < len(z.read) {
		z.read[i] = zoneRead{} // the total is new, even if both zones were read at the same time
	}
	maps.DeleteFunc(z.index, func(_ *power.Zone, of int) bool { return of == i })
	if z.index == nil {
		z.index = map[*power.Zone]int{}
	}
	z.index[r.Zone] = i
	return i, replaced
}

// sameSeries reports whether the points of two zones have the same metric and attributes.
func sameSeries(a, b *power.Zone) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Method == b.Method && a.Name == b.Name && a.Parent == b.Parent && a.Vendor == b.Vendor
}
