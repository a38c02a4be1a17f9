// SPDX-License-Identifier: Apache-2.0

package power

import (
	"cmp"
	"fmt"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Value is the answer of a Sensor for one zone: a counter, a total, a power or an error.
type Value struct {
	zone    *Zone
	at      time.Time
	isPower bool
	isTotal bool
	energy  units.Energy
	raw     Raw // of isTotal
	event   Event
	power   int64 // in µW
	average time.Duration
	err     error
}

// EnergyValue returns a value of an energy counter, which may be reset and never wraps, read at a
// moment with a monotonic clock reading. The zone's pointer must be the same in each Poll; another
// one with the same ID takes its place, with a total of its own.
func EnergyValue(z *Zone, counter units.Energy, at time.Time) Value {
	return Value{zone: z, energy: counter, at: at}
}

// TotalValue returns the energy since the zone's first good reading, which the sensor adds up
// itself and which never goes down, and what its counter did besides counting. A value with the
// same moment as the one before has nothing new; one with another moment has, also where the total
// is the same: no energy was used in between. raw is the counter that the total is derived from.
func TotalValue(z *Zone, total units.Energy, raw Raw, event Event, at time.Time) Value {
	return Value{zone: z, isTotal: true, energy: total, raw: raw, event: event, at: at}
}

// PowerValue returns a power in microwatts, averaged over the time before at, 0 where it is the
// power of that moment. A value with the same moment as the one before has nothing new.
func PowerValue(z *Zone, microwatts int64, average time.Duration, at time.Time) Value { //nolint:revive // stands beside EnergyValue
	return Value{zone: z, isPower: true, power: microwatts, average: average, at: at}
}

// FailedValue returns why a zone could not be read.
func FailedValue(z *Zone, err error) Value { return Value{zone: z, err: err} }

// polledZone makes a reading of the values of one zone, which may be energies, powers or both by turns.
type polledZone struct {
	reading    Reading
	counter    *Counter
	integrator *Integrator
	// ahead is energy that powers added since the counter was last read. The counter counts it too.
	ahead    units.Energy
	moved    time.Time // when the counter last changed
	rejected error     // of the first impossible power since the last good one
	listed   time.Time // when the last poll ended that had a value of the zone, or its error
	gone     bool      // not listed for so long that it has no reading
}

func newPolledZone(zone *Zone, longestGap time.Duration) *polledZone {
	most := cmp.Or(zone.MaxWatts, MaxWatts(zone.Kind))
	return &polledZone{
		reading: Reading{Zone: zone}, counter: NewCounter(most, 0), integrator: NewIntegrator(most, longestGap),
	}
}

// take adds a value. A counter that shows the same for longer than standsStill has an error, unless that is 0.
func (z *polledZone) take(v *Value, standsStill time.Duration) {
	z.reading.Err = v.err
	switch {
	case v.err != nil:
	case v.isPower:
		z.takePower(v)
	case v.isTotal:
		z.takeTotal(v)
	default:
		z.takeEnergy(v, standsStill)
	}
}

func (z *polledZone) takePower(v *Value) {
	r := &z.reading
	energy, event := z.integrator.Add(v.power, v.average, v.at)
	if event == Rejected {
		r.Rejected++
		if z.rejected == nil {
			z.rejected = fmt.Errorf("%d mW is impossible", v.power/1000)
		}
		r.Err = z.rejected
		z.note(event)
		return
	}
	if event == Gap {
		r.Gaps++
	}
	z.ahead = units.AddSaturating(z.ahead, energy)
	z.add(energy, event, v.at)
}

// takeEnergy adds a value of the counter. One that has not moved has nothing new: At stays, so that
// the zone waits until it moves.
func (z *polledZone) takeEnergy(v *Value, standsStill time.Duration) {
	r := &z.reading
	counted, event := z.counter.Add(v.energy, v.at)
	if counted == 0 && event == NoEvent {
		if standsStill > 0 && v.at.Sub(z.moved) > standsStill {
			r.Err = errStandsStill
		}
		return
	}
	z.moved = v.at
	if event != NoEvent {
		z.ahead = 0 // the counter does not say what was before
	}
	z.integrator.Skip(v.at, event != Appeared)
	known := min(counted, z.ahead)
	z.ahead -= known
	z.add(counted-known, event, v.at)
}

func (z *polledZone) takeTotal(v *Value) {
	r := &z.reading
	if v.at.Equal(r.At) {
		return
	}
	r.Total, r.At, r.Raw = v.energy, v.at, v.raw
	z.note(v.event)
}

// add adds energy up to a moment.
func (z *polledZone) add(energy units.Energy, event Event, at time.Time) {
	r := &z.reading
	r.Total = units.AddSaturating(r.Total, energy)
	r.At, r.Unmeasured = at, z.integrator.Unmeasured()
	if r.Raw = z.counter.Raw(); !r.Raw.IsZero() {
		r.Raw.Energy = units.AddSaturating(r.Raw.Energy, z.ahead)
	}
	z.rejected = nil
	z.note(event)
}

// note keeps an event until it is read. A Rebased is kept before others.
func (z *polledZone) note(event Event) {
	if z.reading.Event == NoEvent || event == Rebased {
		z.reading.Event = event
	}
}
