// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/gpu"
)

// zoneReading is a reading of the zone with the number 0.
type zoneReading struct {
	reading       power.Reading
	replaced, new bool
}

func (z *zones) check(t *testing.T, readings []zoneReading) {
	for i, want := range readings {
		zone, replaced := z.number(&want.reading)
		isNew, unmeasured := z.isNew(zone, &want.reading)
		assert.Zero(t, zone)
		assert.Equal(t, want.replaced, replaced, "reading %d", i)
		assert.Equal(t, want.new, isNew, "reading %d", i)
		assert.Zero(t, unmeasured, "reading %d", i)
	}
}

// A zone that is replaced has its baseline at the first good reading of the other one, although
// both have the same timestamp, as for devices that report one.
func TestTheFirstReadingOfAnotherZoneIsNew(t *testing.T) {
	var z zones
	at := time.Now()
	before, other := &power.Zone{ID: "bmc", Kind: power.Platform}, &power.Zone{ID: "bmc", Kind: power.Platform}
	z.check(t, []zoneReading{
		{power.Reading{Zone: before, At: at}, false, true},
		{power.Reading{Zone: before, At: at}, false, false},
		{power.Reading{Zone: other, At: at, Err: errors.New("not yet")}, true, false},
		{power.Reading{Zone: other, At: at}, true, true},
		{power.Reading{Zone: other, At: at}, false, false},
		{power.Reading{Zone: other, At: at.Add(1)}, false, true},
	})
}

// Until a zone of a state is read, its meter may list it with an error, and with another pointer
// than later.
func TestAZoneOfAStateGoesOnWithItsFirstGoodReading(t *testing.T) {
	var z zones
	before, awaited, found, other := power.Zone{ID: "a"}, power.Zone{ID: "a"}, power.Zone{ID: "a"}, power.Zone{ID: "a"}
	z.restore([]power.Zone{before})
	at := time.Now()
	z.check(t, []zoneReading{
		{power.Reading{Zone: &awaited, Err: errors.New("not yet")}, false, false},
		{power.Reading{Zone: &found, Err: errors.New("not yet")}, false, false},
		{power.Reading{Zone: &found, At: at}, false, true},
		{power.Reading{Zone: &other, At: at}, true, true},
	})
}

func TestAReadingHasTheTimeThatWasNotMeasuredSinceTheOneBefore(t *testing.T) {
	var z zones
	zone := &power.Zone{ID: "a"}
	at := time.Now()
	for i, c := range []struct {
		at               time.Duration
		unmeasured, want time.Duration
	}{{0, time.Minute, 0}, {time.Hour, 3 * time.Minute, 2 * time.Minute}, {time.Hour, 4 * time.Minute, 0}, {2 * time.Hour, 4 * time.Minute, time.Minute}} {
		_, got := z.isNew(0, &power.Reading{Zone: zone, At: at.Add(c.at), Unmeasured: c.unmeasured})
		assert.Equal(t, c.want, got, "reading %d", i)
	}
}

func TestTheAgeOfAGPUsEnergyIsRelativeToItsUsage(t *testing.T) {
	const card = units.Domain("gpu-0000:03:00.0")
	at := time.Now()
	for _, c := range []struct {
		name  string
		usage []gpu.Usage
		age   time.Duration
	}{
		{"read with the processes", []gpu.Usage{{Domain: card, UntilRead: true}}, time.Second},
		{"polled with the energy", []gpu.Usage{{Domain: card}, {Domain: "gpu-0000:04:00.0", UntilRead: true}}, time.Minute},
		{"unknown", nil, time.Minute},
	} {
		r := power.Reading{Zone: &power.Zone{Domain: card}, At: at.Add(-time.Second), Correction: power.Correction{Lag: time.Minute}}
		assert.Equal(t, c.age, ageOf(&r, &Measurement{ReadAt: at, GPUs: c.usage}), c.name)
	}
}
