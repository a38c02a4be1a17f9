// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.yaml.in/yaml/v3"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/internal/usage/proc"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadatatest"
)

// observedNode is a node whose receiver's own metrics are collected.
func observedNode(t *testing.T, edit ...func(*Config)) (*testNode, *componenttest.Telemetry) {
	t.Helper()
	n, tel := newTestNode(t, edit...), componenttest.NewTelemetry()
	logger := n.set.Logger
	n.set = metadatatest.NewSettings(tel)
	n.set.Logger = logger
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	return n, tel
}

// observed is a point with these attributes, "key, value, ...".
func observed[N int64 | float64](value N, attributes ...string) metricdata.DataPoint[N] {
	kvs := []attribute.KeyValue{attribute.String("receiver", "energy")}
	for i := 0; i < len(attributes); i += 2 {
		kvs = append(kvs, attribute.String(attributes[i], attributes[i+1]))
	}
	return metricdata.DataPoint[N]{Attributes: attribute.NewSet(kvs...), Value: value}
}

func counts(points ...metricdata.DataPoint[int64]) []metricdata.DataPoint[int64] { return points }

var whenever = metricdatatest.IgnoreTimestamp()

func TestEveryScanIsTimed(t *testing.T) {
	n, tel := observedNode(t)
	n.start()
	n.run(10*joule, nil)
	n.s.sample()
	m, err := tel.GetMetric("otelcol_receiver_energy_scan_duration")
	require.NoError(t, err)
	points := m.Data.(metricdata.Histogram[float64]).DataPoints
	require.Len(t, points, 1)
	assert.EqualValues(t, 3, points[0].Count, "the baseline, a collection, a window")
	assert.Positive(t, points[0].Sum)
	metadatatest.AssertEqualReceiverEnergyScanDuration(t, tel, []metricdata.HistogramDataPoint[float64]{{Attributes: attribute.NewSet(attribute.String("receiver", "energy"))}},
		whenever, metricdatatest.IgnoreValue())
}

func TestAScanThatReadsNoCPUTimesIsCountedAsFailed(t *testing.T) {
	n, tel := observedNode(t)
	source := new(failingSource)
	n.reads(&source.Procfs, source)
	n.start()
	source.fail = errRefused
	n.scrapeAsIs()
	n.s.sample()
	metadatatest.AssertEqualReceiverEnergyFailedScans(t, tel, counts(observed[int64](2)), whenever)
	source.fail = nil
	n.scrapeAsIs()
	metadatatest.AssertEqualReceiverEnergyFailedScans(t, tel, counts(observed[int64](2)), whenever)
}

func TestTheReceiverReportsItsNumberOfProcessesAndSeries(t *testing.T) {
	n, tel := observedNode(t, func(c *Config) { c.Series.Processes.MinEnergy = 20 })
	n.process(10, "app", docker(idA))
	n.process(20, "small")
	n.start()
	n.run(100*joule, map[int]int64{10: 900, 20: 100})
	metadatatest.AssertEqualReceiverEnergyProcesses(t, tel, counts(observed[int64](3)), whenever)
	series := func(processes, containers int64) {
		t.Helper()
		want := counts(observed(processes, "series.entity", "process"), observed[int64](0, "series.entity", "program"), observed(containers, "series.entity", "container"))
		for entity := identity.PodEntity; entity < identity.NumEntities; entity++ {
			want = append(want, observed[int64](0, "series.entity", entity.String()))
		}
		metadatatest.AssertEqualReceiverEnergySeries(t, tel, want, whenever)
	}
	series(1, 1)
	delete(n.host.Processes, 10)
	n.refuse = errRefused
	n.run(0, nil)
	metadatatest.AssertEqualReceiverEnergyProcesses(t, tel, counts(observed[int64](2)), whenever)
	series(1, 1) // their last values are not delivered yet
	n.refuse = nil
	n.run(0, nil)
	series(0, 0)
}

func TestCounterEventsAreCountedByZone(t *testing.T) {
	n, tel := observedNode(t)
	n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-1", Max: 262_143_328_850}
	n.start()
	byZone := func(first, second int64) []metricdata.DataPoint[int64] {
		return counts(observed(first, "hw.id", "intel-rapl:0"), observed(second, "hw.id", "intel-rapl:1"))
	}
	none := func(assertEqual func(*testing.T, *componenttest.Telemetry, []metricdata.DataPoint[int64], ...metricdatatest.Option)) {
		t.Helper()
		assertEqual(t, tel, byZone(0, 0), whenever)
	}
	none(metadatatest.AssertEqualReceiverEnergyZoneReadErrors)
	none(metadatatest.AssertEqualReceiverEnergyZoneWraps)
	none(metadatatest.AssertEqualReceiverEnergyZoneResets)

	first, second := n.host.Zones["intel-rapl:0"], n.host.Zones["intel-rapl:1"]
	second.Content = "garbage\n"
	n.run(0, nil)
	n.run(0, nil)
	second.Content = ""
	n.run(0, nil)
	first.Energy = first.Max - 100*joule
	n.run(0, nil) // more than a socket can use in ten seconds
	first.Energy = 100 * joule
	n.scrapeLater()
	n.run(0, nil)
	metadatatest.AssertEqualReceiverEnergyZoneReadErrors(t, tel, byZone(0, 2), whenever)
	metadatatest.AssertEqualReceiverEnergyZoneResets(t, tel, byZone(1, 0), whenever)
	metadatatest.AssertEqualReceiverEnergyZoneWraps(t, tel, byZone(1, 0), whenever)
}

// scrapeLater scrapes after ten seconds in which no process ran.
func (n *testNode) scrapeLater() {
	n.t.Helper()
	n.host.Run(10*time.Second, nil)
	n.scrape()
}

func TestWhatASensorDidNotMeasureIsReported(t *testing.T) {
	n, tel := observedNode(t)
	first := &power.Zone{ID: "psu", Kind: power.Platform, Method: power.Measured}
	second := new(power.Zone)
	*second = *first
	m := &fakeMeter{readings: []power.Reading{{Zone: first, Event: power.Appeared}}}
	n.useMeters(power.Member{Name: "hwmon", Meter: m})
	n.start()
	for _, step := range []struct {
		zone                 *power.Zone
		gaps, rejected       int64
		unmeasured           time.Duration
		allGaps, allRejected int64
		allUnmeasured        float64
	}{
		{first, 0, 0, 0, 0, 0, 0},
		{first, 2, 5, 90 * time.Second, 2, 5, 90},
		{first, 3, 5, 100 * time.Second, 3, 5, 100},
		{second, 0, 0, 0, 3, 5, 100}, // reads the same in another way
		{second, 1, 2, time.Second, 4, 7, 101},
		{second, 1, 2, time.Second, 4, 7, 101},
	} {
		m.readings[0] = power.Reading{Zone: step.zone, At: n.host.Now(), Gaps: step.gaps, Rejected: step.rejected, Unmeasured: step.unmeasured}
		n.run(0, nil)
		psu := []string{"hw.id", "psu"}
		metadatatest.AssertEqualReceiverEnergyZoneGaps(t, tel, counts(observed(step.allGaps, psu...)), whenever)
		metadatatest.AssertEqualReceiverEnergyZoneRejectedReadings(t, tel, counts(observed(step.allRejected, psu...)), whenever)
		metadatatest.AssertEqualReceiverEnergyZoneUnmeasuredTime(t, tel,
			[]metricdata.DataPoint[float64]{observed(step.allUnmeasured, psu...)}, whenever)
	}
}

func TestDeferredEnergyIsReported(t *testing.T) {
	n, tel := observedNode(t)
	n.host.Zones["intel-rapl:1"] = &hostsim.Zone{Name: "package-1", Max: 262_143_328_850}
	n.start()
	waiting := func(joules float64) {
		t.Helper()
		metadatatest.AssertEqualReceiverEnergyDeferredEnergy(t, tel, []metricdata.DataPoint[float64]{
			observed(joules, "energy.zone", "package"), observed[float64](0, "energy.zone", "dram")}, whenever)
	}
	n.run(10*joule, nil)
	waiting(0)
	stat := n.host.CPU
	n.host.Zones["intel-rapl:0"].Energy += 7 * joule
	n.host.Uptime += 10 * time.Second // while /proc/stat stands still
	n.scrape()
	waiting(7)
	require.Equal(t, stat, n.host.CPU)
	n.run(0, nil)
	waiting(0)
}

func TestLostExitsAreCountedAcrossSources(t *testing.T) {
	n, tel := observedNode(t)
	source := &losingSource{new(failingSource)}
	n.reads(&source.Procfs, source)
	n.start()
	n.run(0, nil)
	metadatatest.AssertEqualReceiverEnergyLostExits(t, tel, counts(observed[int64](6)), whenever)
	metadatatest.AssertEqualReceiverEnergyCPUTimeSource(t, tel, counts(observed[int64](1, "cpu_time.source", "bpf")), whenever)
	metadatatest.AssertEqualReceiverEnergyCondition(t, tel, counts(observed[int64](1, "condition", "process exits")), whenever)
	n.replaceSource(source.failingSource)
	metadatatest.AssertEqualReceiverEnergyCPUTimeSource(t, tel, counts(observed[int64](1, "cpu_time.source", "procfs")), whenever)
	metadatatest.AssertEqualReceiverEnergyLostExits(t, tel, counts(observed[int64](6)), whenever)
}

// losingSource loses three exits in each scan.
type losingSource struct{ *failingSource }

func (losingSource) Traits() cpu.Traits {
	return cpu.Traits{Name: "bpf (task scan)", Traits: proc.Traits{Exact: true, ChildTimes: true}}
}
func (s losingSource) Scan(t *proc.Table, of cpu.Request) error {
	err := s.failingSource.Scan(t, of)
	t.Unseen.LostExits = 3
	return err
}

func withTrainedStaticPower(c *Config) { c.Attribution.StaticPower = allStatic(config.StaticTrained) }

func TestEveryOwnMetricIsThereFromTheFirstScanOn(t *testing.T) {
	n, tel := observedNode(t, withOther, withAutoModel, withTrainedStaticPower)
	describeMachine(t, n)
	n.host.Zones["intel-rapl:0"].Content = "unreadable\n" // so that the package is modeled
	n.start()
	description, err := os.ReadFile("metadata.yaml")
	require.NoError(t, err)
	var doc struct {
		Telemetry struct {
			Metrics map[string]struct{ Attributes []string }
		}
	}
	require.NoError(t, yaml.Unmarshal(description, &doc))
	require.NotEmpty(t, doc.Telemetry.Metrics)
	for name, want := range doc.Telemetry.Metrics {
		m, err := tel.GetMetric("otelcol_" + name)
		require.NoError(t, err)
		sets := attributeSets(m.Data)
		assert.NotEmpty(t, sets, name)
		for _, set := range sets {
			var keys []string
			for _, kv := range set.ToSlice() {
				keys = append(keys, string(kv.Key))
			}
			assert.ElementsMatch(t, want.Attributes, keys, name)
		}
	}
}

// attributeSets returns the attribute sets of a metric's points.
func attributeSets(data metricdata.Aggregation) (sets []attribute.Set) {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Sum[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

func TestTelemetryCallbacksAreUnregisteredAtShutdown(t *testing.T) {
	n, tel := observedNode(t)
	n.startAsIs()
	n.stop()
	n.s.mu.Lock() // a callback that takes the lock would block
	defer n.s.mu.Unlock()
	_, err := tel.GetMetric("otelcol_receiver_energy_processes")
	assert.Error(t, err)
}
