// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// zoneTally counts what happened to a zone's counter or sensor.
type zoneTally struct {
	readErrors, wraps, resets int64
	sensor                    sensorTally
	// of is the zone that sensor counts, and before what zones of the same ID had counted.
	of     *power.Zone
	before sensorTally
}

// sensorTally is what a power sensor did not measure.
type sensorTally struct {
	gaps, rejected int64
	unmeasured     time.Duration
}

func (t sensorTally) plus(o sensorTally) sensorTally {
	return sensorTally{t.gaps + o.gaps, t.rejected + o.rejected, t.unmeasured + o.unmeasured}
}

// add counts the error and the event of a reading.
func (t *zoneTally) add(r *power.Reading) {
	switch {
	case r.Err != nil:
		t.readErrors++
	case r.Event == power.Wrapped:
		t.wraps++
	case r.Event == power.Rebased:
		t.resets++
	}
	if t.of != r.Zone {
		t.of, t.before = r.Zone, t.sensorTotal()
	}
	t.sensor = sensorTally{r.Gaps, r.Rejected, r.Unmeasured}
}

// sensorTotal returns what the sensors of all zones of the ID did not measure.
func (t *zoneTally) sensorTotal() sensorTally { return t.before.plus(t.sensor) }

// zoneTallies holds the tally of each zone that was ever read, by zone ID.
type zoneTallies map[string]*zoneTally

// add counts the errors and events of readings.
func (z zoneTallies) add(readings []power.Reading) {
	for i := range readings {
		r := &readings[i]
		if r.Err == nil && r.Event == power.NoEvent && r.Gaps == 0 && r.Rejected == 0 && r.Unmeasured == 0 {
			continue
		}
		z.of(r.Zone.ID).add(r)
	}
}

// of returns the tally of a zone.
func (z zoneTallies) of(id string) *zoneTally {
	tally := z[id]
	if tally == nil {
		tally = new(zoneTally)
		z[id] = tally
	}
	return tally
}

// miss counts the time that a zone's sensor did not measure because the receiver was down.
func (z zoneTallies) miss(r *power.Resumption) {
	if errors.Is(r.Err, power.ErrNotCounted) {
		tally := z.of(r.Zone.ID)
		tally.before = tally.before.plus(sensorTally{gaps: 1, unmeasured: r.Elapsed})
	}
}
