// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/test/hostsim"
	"github.com/energyreceiver/energyreceiver/receiver/internal/attributor"
	"github.com/energyreceiver/energyreceiver/receiver/internal/config"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
	"github.com/energyreceiver/energyreceiver/receiver/internal/rules"
	"github.com/energyreceiver/energyreceiver/receiver/internal/windows"
)

const joule = 1_000_000 // µJ

// testNode is the receiver on a simulated host with one package zone.
type testNode struct {
	t        *testing.T
	host     *hostsim.Host
	cfg      *Config
	set      receiver.Settings
	machine  machine.Machine
	embedded attributor.Embedded
	next     consumer.Metrics // of the last collection
	s        *energyScraper   // nil until it starts
	window   time.Duration    // length of the windows, 0 for one per collection
	logs     *observer.ObservedLogs
	status   []*componentstatus.Event
	refuse   error // answer of the next consumer
	md       pmetric.Metrics
	// finals are the last values of all series that ever existed. Those of the node's active energy are negative.
	finals     map[string]float64
	extensions map[component.ID]component.Component
}

// byPID bounds the series of processes, and reports none by program.
func byPID(s config.ProcessSeriesConfig) config.ProcessSeriesConfig {
	s.GroupBy = config.GroupByPID
	return s
}

// simpleConfig is a configuration with the rules whose figures are easy to state: those of Kepler, without a model.
func simpleConfig() *Config {
	cfg := config.Default()
	cfg.Attribution.Preset, cfg.Model = config.PresetKepler, configoptional.None[config.ModelConfig]()
	return cfg
}

func newTestNode(t *testing.T, edit ...func(*Config)) *testNode {
	n := &testNode{t: t, host: hostsim.New(treeDir(t)), finals: map[string]float64{}}
	n.host.Zones["intel-rapl:0"] = &hostsim.Zone{Name: "package-0", Max: 262_143_328_850, Energy: 5 * joule}
	n.cfg = simpleConfig()
	n.cfg.RootPath = n.host.Root()
	n.cfg.Series.Processes = byPID(config.ProcessSeriesConfig{})
	for _, f := range edit {
		f(n.cfg)
	}
	require.NoError(t, n.cfg.Validate())
	n.machine = machine.Local()
	n.machine.NewMetronome = func(window time.Duration) windows.Metronome { // tests end the windows
		n.window = window
		return windows.Still(window)
	}
	n.machine.Now, n.machine.Clocks = n.host.Now, func() (boot, suspended time.Duration) { return 0, n.host.Suspended }
	n.set = receivertest.NewNopSettings(metadata.Type)
	n.set.ID = component.NewID(metadata.Type)
	n.log()
	return n
}

// log begins a new log.
func (n *testNode) log() {
	var core zapcore.Core
	core, n.logs = observer.New(zap.DebugLevel)
	n.set.Logger = zap.New(core)
}

// create makes a receiver of the machine, which has not started.
func (n *testNode) create() {
	n.t.Helper()
	var err error
	n.s, err = newEnergyScraper(n.cfg, n.set, n.machine, n.embedded)
	require.NoError(n.t, err)
	if n.next != nil {
		n.s.output.next = nextConsumer{n.next, n.s.delivered}
	}
}

// tryBegin starts a new receiver on the rendered host.
func (n *testNode) tryBegin() error {
	n.t.Helper()
	n.create()
	return n.s.start(context.Background(), n)
}

// begin starts a new receiver on the rendered host. stop shuts it down.
func (n *testNode) begin() {
	n.t.Helper()
	require.NoError(n.t, n.tryBegin())
}

// stop shuts the receiver down.
func (n *testNode) stop() {
	n.t.Helper()
	require.NoError(n.t, n.s.shutdown(context.Background()))
}

// GetExtensions implements component.Host.
func (n *testNode) GetExtensions() map[component.ID]component.Component { return n.extensions }

// Report implements componentstatus.Reporter.
func (n *testNode) Report(e *componentstatus.Event) { n.status = append(n.status, e) }

func (n *testNode) start() {
	n.t.Helper()
	require.NoError(n.t, n.host.Render())
	n.startAsIs()
}

// run advances by ten seconds, in which the package zones use energy and processes run, and scrapes.
func (n *testNode) run(energy uint64, used map[int]int64) {
	n.t.Helper()
	n.host.Run(10*time.Second, used)
	for _, z := range n.host.Zones {
		if strings.HasPrefix(z.Name, "package-") {
			z.Energy += energy
		}
	}
	n.scrape()
}

// scrape renders and scrapes the host, sends the result to the next consumer, and checks that the processes add up to
// the node.
func (n *testNode) scrape() {
	n.t.Helper()
	require.NoError(n.t, n.host.Render())
	md, err := n.s.scrape(context.Background())
	require.NoError(n.t, err)
	n.md = pmetric.NewMetrics()
	md.CopyTo(n.md) // the next consumer may get it in parts
	require.NoError(n.t, emittest.Duplicate(md))
	next, err := consumer.NewMetrics(func(context.Context, pmetric.Metrics) error { return n.refuse })
	require.NoError(n.t, err)
	require.ErrorIs(n.t, nextConsumer{next, n.s.delivered}.ConsumeMetrics(context.Background(), md), n.refuse)
	n.balance()
}

// balance checks by the last values of all series that all processes that ever existed add up to the node.
func (n *testNode) balance() {
	n.t.Helper()
	difference := map[string]float64{}
	add := func(sign float64, metric string, more ...string) {
		for _, p := range n.points(metric, nil, more...) {
			n.finals[metric+" "+p.series] = sign * p.value
		}
	}
	add(1, "process.energy")
	add(1, "system.unattributed.energy")
	add(-1, "system.energy", "energy.state=active")
	if n.idleRule() != config.IdleNone {
		add(-1, "system.energy", "energy.state=idle")
	}
	for series, value := range n.finals {
		_, zone, _ := strings.Cut(series, "energy.zone=")
		zone, _, _ = strings.Cut(zone, ",")
		difference[zone] += value
	}
	for zone, d := range difference {
		require.InDelta(n.t, 0, d, 1e-6, "processes + unattributed == what is attributed of %s", zone)
	}
}

type attrs map[string]string

type point struct {
	attributes attrs // of the resource and of the point
	series     string
	value      float64
	start, at  time.Time
	ended      bool // it has the flag NoRecordedValue
}

// points returns the points of a metric that have these attributes, "key=value" among them, without zero points.
func (n *testNode) points(metric string, want attrs, more ...string) []point {
	var out []point
	for _, rm := range n.md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != metric {
					continue
				}
				for i, dp := range dataPoints(m).All() {
					if emittest.IsZeroPoint(dataPoints(m), i) {
						continue
					}
					p := point{attributes: attrs{}, value: dp.DoubleValue(), start: dp.StartTimestamp().AsTime(), at: dp.Timestamp().AsTime(),
						ended: dp.Flags().NoRecordedValue()}
					var all []string
					add := func(m pcommon.Map) {
						for k, v := range m.All() {
							p.attributes[k] = v.AsString()
							all = append(all, k+"="+v.AsString()+",")
						}
					}
					add(rm.Resource().Attributes())
					add(dp.Attributes())
					slices.Sort(all)
					p.series = fmt.Sprint(strings.Join(all, ""), p.start.UnixNano())
					matches := true
					for k, v := range want {
						matches = matches && p.attributes[k] == v
					}
					for _, kv := range more {
						matches = matches && slices.Contains(all, kv+",")
					}
					if matches {
						out = append(out, p)
					}
				}
			}
		}
	}
	return out
}

func dataPoints(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeGauge {
		return m.Gauge().DataPoints()
	}
	return m.Sum().DataPoints()
}

func (n *testNode) sum(metric string, want attrs, more ...string) (sum float64) {
	for _, p := range n.points(metric, want, more...) {
		sum += p.value
	}
	return sum
}

// one returns the only point with these attributes.
func (n *testNode) one(metric string, more ...string) point {
	n.t.Helper()
	p := n.points(metric, nil, more...)
	require.Lenf(n.t, p, 1, "%s %v", metric, more)
	return p[0]
}

func pid(n int) string { return fmt.Sprint("process.pid=", n) }

// only returns the setting meters::use.
func only(meters ...string) []string { return meters }

// linear returns a power model that is a straight line.
func linear(idle, most float64) config.ModelConfig {
	return config.ModelConfig{Points: []config.ModelPoint{{Utilization: 0, Power: idle}, {Utilization: 1, Power: most}}}
}

// allStatic returns the setting attribution::static_power with one model for all zones.
func allStatic(model config.StaticModel) map[power.Kind]config.StaticPowerConfig {
	return map[power.Kind]config.StaticPowerConfig{config.AllZones: {Model: model}}
}

// fixedPower returns the setting attribution::static_power with the static power of zones in watts.
func fixedPower(watts map[power.Kind]float64) map[power.Kind]config.StaticPowerConfig {
	static := map[power.Kind]config.StaticPowerConfig{}
	for kind, w := range watts {
		static[kind] = config.StaticPowerConfig{Model: config.StaticFixed, Power: &w}
	}
	return static
}

// allWeight returns the setting attribution::weight with one weight for all zones.
func allWeight(weight config.Weight) map[power.Kind]config.Weight {
	return map[power.Kind]config.Weight{config.AllZones: weight}
}

// trained reports whether the static power models of all zone kinds are trained.
func (n *testNode) trained() bool {
	n.t.Helper()
	models := n.trainedModels()
	require.NotEmpty(n.t, models)
	return !slices.Contains(slices.Collect(maps.Values(models)), false)
}

// trainedModels reports for each zone kind with a static power model whether the model is trained.
func (n *testNode) trainedModels() map[power.Class]bool { return (&Embedded{scraper: n.s}).Trained() }

// idleRule returns the idle rule that the configuration selects.
func (n *testNode) idleRule() config.IdleRule {
	r, _ := rules.Resolve(n.cfg, rules.Machine{})
	return r.Idle
}
