// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/attribution/static"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// portions is a trained static power model that notes its portions.
type portions struct {
	*static.Model
	all []attribution.Portion
}

func (m *portions) Active(p attribution.Portion) units.Energy {
	m.all = append(m.all, p)
	return m.Model.Active(p)
}

// Sensors of hwmon are read one after the other, each with a time of its own.
func TestZonesThatAreReadOneAfterTheOtherTrainOneModel(t *testing.T) {
	for name, c := range map[string]struct {
		age, jitter time.Duration
	}{
		"hwmon":                 {2 * time.Millisecond, time.Microsecond},
		"lag":                   {16 * time.Second, 100 * time.Microsecond},
		"polled by two threads": {time.Second, 900 * time.Millisecond},
		"lag of two minutes":    {2 * time.Minute, time.Microsecond},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		m := &portions{Model: static.NewMinimum()}
		baseline := time.Unix(1_000_000_000, 0)
		e := ledger.New(ledger.Config{Rules: attribution.Rules{Models: [attribution.MaxKinds]attribution.StaticPowerModel{m}}}, baseline)
		iv := attribution.Interval{At: baseline, Zones: []attribution.ZoneReading{{Zone: 0, OK: true}, {Zone: 1, OK: true}}, Domains: []attribution.Usage{{}}}
		for i := range 600 {
			iv.At, iv.Elapsed = iv.At.Add(time.Second), time.Second
			iv.Domains[0].Total = units.Second
			iv.Domains[0].Busy = units.CPUTime(rng.Int64N(int64(time.Second)))
			for z := range iv.Zones {
				iv.Zones[z].Age = c.age + time.Duration(rng.Int64N(int64(c.jitter)))
				iv.Zones[z].Total += 50 * units.Joule
			}
			e.Observe(&iv)
			l := e.Ledger()
			k := &l.Kinds[0]
			require.Equal(t, l.Zones[0].Energy+l.Zones[1].Energy, k.Active+k.Idle+l.Kinds[0].Deferred, "%s, interval %d", name, i)
		}
		var elapsed time.Duration
		for _, p := range m.all {
			assert.Equal(t, []int{2, 2}, []int{p.Zones, p.Of}, name)
			elapsed += p.Elapsed
		}
		assert.Greater(t, elapsed, 450*time.Second, name)
		assert.InDelta(t, 100, m.StaticPower(0), 100*c.jitter.Seconds()+1, name)
	}
}
