// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// correctedBy returns a function that corrects every zone.
func correctedBy(c Correction) func(*Zone) Correction { return func(*Zone) Correction { return c } }

// bmcReading returns a reading of a machine.
func bmcReading(at time.Time) Reading {
	return Reading{Zone: &Zone{ID: "bmc", Kind: Platform, Method: Measured, MaxWatts: MaxPlatformWatts}, At: at}
}

func TestACorrectedTotalIsExact(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := corrected{Correction: Correction{Factor: 1 + rng.Uint64N(MaxFactor), Offset: rng.Int64N(MaxOffset)}}
		least := units.Energy(0) // per microsecond, so that the power is positive with a negative offset
		if seed%2 == 1 {
			c.Offset = -c.Offset / 1000
			least = units.Energy(uint64(-c.Offset)/c.Factor + 1)
		}
		began := time.Now()
		r := bmcReading(began)
		r.Zone.MaxWatts = 0
		meter, at, unmeasured := units.Energy(0), began, time.Duration(0)
		for i := range 200 {
			want := new(big.Int).Mul(new(big.Int).SetUint64(uint64(meter)), big.NewInt(int64(c.Factor)*1000))
			want.Add(want, new(big.Int).Mul(big.NewInt(c.Offset), big.NewInt(int64(at.Sub(began)-unmeasured))))
			want.Div(want, big.NewInt(1e9))
			r = Reading{Zone: r.Zone, Total: meter, At: at, Unmeasured: unmeasured}
			c.correct(&r)
			if r.Total != units.Energy(want.Uint64()) {
				t.Fatalf("seed %d, reading %d: %d µJ, want %v", seed, i, r.Total, want)
			}
			meter += units.Energy(rng.Int64N(1 << (1 + rng.IntN(40))))
			passed := time.Duration(rng.Int64N(int64(time.Minute)))
			if rng.IntN(10) == 0 {
				unmeasured += passed / 2
			}
			meter += least * units.Energy(passed.Microseconds()+1)
			at = at.Add(passed)
		}
	}
}

func TestALagMovesATimeOnly(t *testing.T) {
	m := &fake{readings: []Reading{bmcReading(time.Now())}}
	s := NewSet(Member{Name: "bmc", Meter: m, Correction: correctedBy(Correction{Lag: 5 * time.Second})})
	for range 3 {
		m.readings[0].At = m.readings[0].At.Add(time.Second)
		m.readings[0].Total += 123_456_789
		before := m.readings[0]
		r := s.Read(context.Background(), Sample{})[0]
		if r.Total != before.Total || !r.At.Equal(before.At.Add(-5*time.Second)) || r.Correction.Lag != 5*time.Second {
			t.Errorf("%+v of %+v", r, before)
		}
		assert.Equal(t, before, m.readings[0], "the meter's own reading was changed")
	}
}

// shows corrects a reading after a time and returns the total.
func (c *corrected) shows(after time.Duration, total units.Energy, event Event) units.Energy {
	r := Reading{Total: total, At: epoch.Add(after), Event: event}
	c.correct(&r)
	return r.Total
}

// A machine draws 2 W less than the offset for a while, and then 10 W more.
func TestACorrectedTotalNeverGoesDown(t *testing.T) {
	c := corrected{Correction: Correction{Offset: -10 * 1_000_000}}
	at, meter, last := time.Duration(0), units.Energy(0), c.shows(0, 0, NoEvent)
	for _, watts := range []units.Energy{8, 8, 8, 20, 20, 8, 30} {
		at, meter = at+10*time.Second, meter+10*watts*units.Joule
		total := c.shows(at, meter, NoEvent)
		assert.GreaterOrEqual(t, total, last)
		last = total
	}
	assert.Equal(t, 10*(10+10+20-2*4)*units.Joule, last)
	c.shows(time.Hour, meter, NoEvent)
	assert.Equal(t, -60*int64(10*units.Joule), c.lacks, "the energy that is carried is bounded")
}

// The energy of the time of a reset is lost, so no offset is added for that time.
func TestNoOffsetIsAddedForAReset(t *testing.T) {
	c := corrected{Correction: Correction{Factor: 2 * Unscaled, Offset: 5_000_000}}
	c.shows(0, 0, NoEvent)
	assert.Zero(t, c.shows(time.Hour, 0, Rebased))
	assert.Equal(t, 25*units.Joule, c.shows(time.Hour+time.Second, 10*units.Joule, NoEvent))
}

func TestASensorWhoseClockIsSetBackAddsNoOffsetTwice(t *testing.T) {
	c := corrected{Correction: Correction{Offset: 10_000_000}}
	for _, second := range []time.Duration{0, 60, 30, 60, 30, 61} {
		c.shows(second*time.Second, 0, NoEvent)
	}
	assert.Equal(t, epoch.Add(61*time.Second), c.at)
	assert.Equal(t, 610*units.Joule, c.total)
}

// A factor that is known only after a reading would make a restored static power that of other
// hardware.
func TestReadingsWithoutEnergyHaveTheCorrection(t *testing.T) {
	correction := Correction{Factor: 1_190_000, Lag: time.Second}
	m := &fake{}
	s := NewSet(Member{Name: "bmc", Meter: m, Correction: correctedBy(correction)})
	now := time.Now()
	s.Resume(&Past{Zones: []PastZone{{Zone: *bmcReading(now).Zone, Meter: "bmc", At: now}}})
	for name, readings := range map[string][]Reading{"no reading": nil, "no good reading": {{Zone: bmcReading(now).Zone, Err: ErrNoZones}}} {
		m.readings = readings
		all := s.Read(context.Background(), Sample{At: now})
		if len(all) != 1 || all[0].Correction != correction {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// Redfish has another zone whenever the URI of its figure changes.
func TestAZoneWithTheSameIDReplacesTheCorrectionOfTheOneBefore(t *testing.T) {
	m := &fake{}
	s := NewSet(Member{Name: "bmc", Meter: m, Correction: correctedBy(Correction{Offset: 1_000_000})})
	at := time.Now()
	for i := range 10 {
		m.readings = []Reading{bmcReading(at)}
		for range 2 {
			r := s.Read(context.Background(), Sample{At: at})[0]
			assert.Equal(t, units.Energy(at.Sub(m.readings[0].At)), r.Total, i)
		}
		at = at.Add(time.Minute)
	}
	assert.Len(t, s.meters[0].corrections.zones, 1)
}
