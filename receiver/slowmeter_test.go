// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/component"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// slowMeter has a new total in every third read only, of 100 J a read.
type slowMeter struct {
	reads   int
	reading power.Reading
}

func (m *slowMeter) Read(_ context.Context, s power.Sample) ([]power.Reading, error) {
	if m.reads%3 == 0 {
		m.reading.Total, m.reading.At = units.Energy(m.reads)*100*units.Joule, s.At
	}
	m.reads++
	return []power.Reading{m.reading}, nil
}

func (*slowMeter) Close() error { return nil }

func TestEnergyOfASlowMeterIsSharedAmongAllWhoRanMeanwhile(t *testing.T) {
	n := newTestNode(t)
	for pid := range 3 {
		n.host.Processes[10+pid] = &hostsim.Process{Parent: 1, Comm: "app", Exe: "/bin/app"}
	}
	m := &slowMeter{reading: power.Reading{Zone: &power.Zone{ID: "slow", Name: "package-0", Kind: power.Package, Source: power.Measured}}}
	n.s.openMeters = func(context.Context, *Config, component.Host, component.TelemetrySettings) (*power.Set, error) {
		return power.NewSet(power.Member{Name: string(MeterPowercap), Meter: m}), nil
	}
	n.start()
	for i := range 2 {
		n.run(0, map[int]int64{10: 500})
		n.run(0, map[int]int64{11: 500})
		assert.InDelta(t, float64(50*i), n.sum("process.energy", nil, pid(10)), 1e-6, "its energy is pending")
		n.run(0, map[int]int64{12: 500})
		for p := 10; p < 13; p++ {
			assert.InDelta(t, float64(50*(i+1)), n.one("process.energy", pid(p)).value, 1e-6)
		}
		assert.InDelta(t, float64(300*(i+1)), n.one("hw.energy").value, 1e-6)
		assert.InDelta(t, 10, n.one("hw.power").value, 1e-6, "over the time that the meter covers")
	}
	assert.Empty(t, n.logged(), "a slow meter is no failure")
}
