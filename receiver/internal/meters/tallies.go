// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// ZoneTally counts the errors and events of a zone's counter or sensor.
type ZoneTally struct {
	ReadErrors, Wraps, Resets int64
	sensor                    SensorTally
	// of is the zone that sensor refers to. before is the sum over earlier zones with the same ID.
	of     *power.Zone
	before SensorTally
}

// SensorTally counts gaps and rejected readings of a power sensor.
type SensorTally struct {
	Gaps, Rejected int64
	Unmeasured     time.Duration
}

func (t SensorTally) plus(o SensorTally) SensorTally {
	return SensorTally{t.Gaps + o.Gaps, t.Rejected + o.Rejected, t.Unmeasured + o.Unmeasured}
}

// add counts the error and the event of a reading.
func (t *ZoneTally) add(r *power.Reading) {
	switch {
	case errors.Is(r.Err, power.ErrUnmeasured):
	case r.Err != nil:
		t.ReadErrors++
	case r.Event == power.Wrapped:
		t.Wraps++
	case r.Event == power.Rebased:
		t.Resets++
	}
	if t.of != r.Zone {
		t.of, t.before = r.Zone, t.SensorTotal()
	}
	t.sensor = SensorTally{r.Gaps, r.Rejected, r.Unmeasured}
}

// SensorTotal returns the totals of unmeasured time, gaps and rejections over all zones with the
// ID.
func (t *ZoneTally) SensorTotal() SensorTally { return t.before.plus(t.sensor) }

// zoneTallies has the tally of each zone that has been read, by zone ID.
type zoneTallies map[string]*ZoneTally

// Add counts the errors and events of readings.
func (z zoneTallies) Add(readings []power.Reading) {
	for i := range readings {
		r := &readings[i]
		if r.Err == nil && r.Event == power.NoEvent && r.Gaps == 0 && r.Rejected == 0 && r.Unmeasured == 0 {
			continue
		}
		z.of(r.Zone.ID).add(r)
	}
}

// of returns the tally of a zone.
func (z zoneTallies) of(id string) *ZoneTally {
	tally := z[id]
	if tally == nil {
		tally = new(ZoneTally)
		z[id] = tally
	}
	return tally
}

// miss counts the time that a zone's sensor did not measure because the receiver was down.
func (z zoneTallies) miss(r *power.Resumption) {
	if errors.Is(r.Err, power.ErrNotCounted) {
		tally := z.of(r.Zone.ID)
		tally.before = tally.before.plus(SensorTally{Gaps: 1, Unmeasured: r.Elapsed})
	}
}
