// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/meters"
)

// polledMeter is a meter of the whole machine that is polled. It reports the machine's energy of
// the time until lag before the poll.
type polledMeter struct {
	host      *hostsim.Host
	poll, lag time.Duration
	watts     float64      // of the machine
	began     units.Energy // what the meter shows when the receiver starts
	energy    []units.Energy
	booted    time.Time
	reading   power.Reading
}

// meterStep is the resolution of a polledMeter.
const meterStep = 250 * time.Millisecond

func newPolledMeter(n *testNode, poll, lag time.Duration, watts float64) *polledMeter {
	m := &polledMeter{host: n.host, poll: poll, lag: lag, watts: watts, energy: []units.Energy{0}, booted: n.host.Now(), reading: power.Reading{
		Zone: &power.Zone{ID: "bmc", Name: "bmc", Kind: power.Platform, Method: power.Measured, Domain: units.NodeCPUs},
		At:   n.host.Now(),
	}}
	n.machine.OpenMeters = func(ctx context.Context, cfg *Config, host component.Host, set component.TelemetrySettings) (*power.Set, error) {
		local, err := meters.Open(ctx, cfg, host, set)
		if err != nil {
			return nil, err
		}
		all := power.NewSet(power.Member{Name: "ipmi", Meter: m, Correction: cfg.Meters.Correction("ipmi")}, local.Status()[0].Member)
		all.Remainder = local.Remainder
		return all, nil
	}
	return m
}

// pass lets processes run on the machine for a time, and the meter be polled.
func (m *polledMeter) pass(d time.Duration, used map[int]int64) {
	for passed := meterStep; passed <= d; passed += meterStep {
		last := m.energy[len(m.energy)-1]
		m.energy = append(m.energy, last+units.Energy(m.watts*meterStep.Seconds()*float64(units.Joule)))
		now := time.Duration(len(m.energy)-1) * meterStep
		if now%m.poll == 0 {
			m.reading.At = m.booted.Add(now)
			m.reading.Raw = power.Raw{Energy: m.energy[max(0, (now-m.lag)/meterStep)], MaxWatts: power.MaxPlatformWatts, At: m.reading.At}
			m.reading.Total = m.reading.Raw.Energy - m.began
		}
	}
	m.host.Run(d, used)
}

func (m *polledMeter) Read(context.Context, power.Sample) ([]power.Reading, error) {
	return []power.Reading{m.reading}, nil
}

// Close ends the use by a receiver. The next one has a total of its own.
func (m *polledMeter) Close() error {
	zone := *m.reading.Zone
	m.began, m.reading.Zone, m.reading.Total = m.reading.Raw.Energy, &zone, 0
	return nil
}

// The static power of a machine is subtracted over the time that a reading covers, not over the
// collections in which it arrives.
func TestAnIdleMachineOnASlowMeterHasNoActiveEnergy(t *testing.T) {
	for _, c := range []struct {
		poll, collection, lag time.Duration
		zone                  power.Kind
	}{
		{15 * time.Second, 10 * time.Second, 0, power.Platform},
		{3 * time.Second, 2 * time.Second, 0, power.Platform},
		{time.Second, 2500 * time.Millisecond, 0, power.Platform}, // ACPI
		{15 * time.Second, 10 * time.Second, 0, power.Other},
		{3 * time.Second, 2 * time.Second, 0, power.Other},
		{3 * time.Second, 2 * time.Second, 5 * time.Second, power.Platform},
		{3 * time.Second, 2 * time.Second, 100 * time.Second, power.Other},
	} {
		t.Run(fmt.Sprintf("%s/%v/%v/%v", c.zone, c.poll, c.collection, c.lag), func(t *testing.T) {
			const pkg = 40.0
			n := newTestNode(t, func(cfg *Config) {
				cfg.CollectionInterval = c.collection
				cfg.Zones = []power.Kind{power.Package, c.zone}
				cfg.Meters.IPMI.Lag = c.lag
				cfg.Attribution.StaticPower = fixedPower(map[power.Kind]float64{power.Package: pkg, power.Platform: 100, power.Other: 60})
				delete(cfg.Attribution.StaticPower, map[power.Kind]power.Kind{power.Other: power.Platform, power.Platform: power.Other}[c.zone])
			})
			m := newPolledMeter(n, c.poll, c.lag, 100)
			n.start()
			for range 120 {
				m.pass(c.collection, nil)
				n.host.Zones["intel-rapl:0"].Energy += uint64(pkg * c.collection.Seconds() * joule)
				n.scrape()
			}
			zone := "energy.zone=" + string(c.zone)
			active := n.sum("system.energy", nil, zone, "energy.state=active")
			all := n.sum("system.energy", nil, zone)
			t.Logf("%.1f %% of %.0f J active", 100*active/all, all)
			assert.Greater(t, all, 30*100*c.collection.Seconds())
			assert.LessOrEqual(t, active, 0.01*all)
		})
	}
}

// silentMeter has no readings at first, as a meter whose first poll has not ended.
type silentMeter struct {
	*polledMeter
	silent int // reads
}

func (m *silentMeter) Read(ctx context.Context, s power.Sample) ([]power.Reading, error) {
	if m.silent > 0 {
		m.silent--
		return nil, nil
	}
	return m.polledMeter.Read(ctx, s)
}

func TestARestartKeepsTheTrainedModelOfACorrectedMeter(t *testing.T) {
	for _, silent := range []int{0, 2} {
		n, s := keptNode(t, func(cfg *Config) {
			cfg.CollectionInterval = 2 * time.Second
			cfg.Zones = []power.Kind{power.Platform}
			cfg.Meters.IPMI.Factor, cfg.Meters.IPMI.Offset = 1.1, -2
			cfg.Attribution.StaticPower = allStatic(config.StaticTrained)
		})
		m := &silentMeter{polledMeter: newPolledMeter(n, 2*time.Second, 0, 50)}
		n.useMeters(power.Member{Name: "ipmi", Meter: m, Correction: n.cfg.Meters.Correction("ipmi")})
		n.start()
		run := func(collections int) {
			for range collections {
				m.pass(2*time.Second, nil)
				n.scrape()
			}
		}
		run(100)
		before := s.trained(t)
		require.NotEmpty(t, before.Zones)
		require.NoError(t, m.Close())
		m.silent = silent
		n.restart()
		for range 4 {
			run(1)
			assert.Equal(t, before.Hardware, s.trained(t).Hardware, "%d silent reads", silent)
			assert.Len(t, s.trained(t).Zones, len(before.Zones), "%d silent reads", silent)
		}
		assert.Zero(t, n.logs.FilterMessageSnippet("trained again").Len(), "%d silent reads", silent)
		assert.Equal(t, 1, n.logs.FilterMessage("Meter corrected").Len(), "of the second receiver")
	}
}

// The BMC shows 100 W of 122 W.
func TestACorrectionIsAppliedLoggedAndCounted(t *testing.T) {
	n, tel := observedNode(t, func(cfg *Config) {
		cfg.Zones = []power.Kind{power.Platform}
		cfg.Meters.IPMI.Factor, cfg.Meters.IPMI.Offset = 1.25, -3
	})
	m := newPolledMeter(n, 5*time.Second, 0, 100)
	n.start()
	for range 10 {
		m.pass(10*time.Second, map[int]int64{1: 500})
		n.scrape()
	}
	assert.InDelta(t, 12_200, n.one("hw.host.energy").value, 1e-6)
	assert.InDelta(t, 12_200, n.sum("system.energy", nil), 1e-6)
	assert.InDelta(t, 122, n.one("hw.host.power").value, 1e-6)
	metadatatest.AssertEqualReceiverEnergyZoneFactor(t, tel, []metricdata.DataPoint[float64]{observed(1.25, "hw.id", "bmc")}, whenever)
	logged := n.logs.FilterMessage("Meter corrected").All()
	require.Len(t, logged, 1)
	assert.Equal(t, map[string]any{"meter": "ipmi", "zone": "bmc", "lag": time.Duration(0), "factor": 1.25, "offset": -3.0}, logged[0].ContextMap())
	assert.Empty(t, n.logged())
}
