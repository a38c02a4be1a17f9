// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	conventions "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/emit/emittest"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

var (
	baseline = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at       = baseline.Add(10 * time.Second)
	zones    = []power.Zone{
		{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Method: power.Measured},
		{ID: "intel-rapl:0:0", Name: "dram", Kind: power.DRAM, Parent: "intel-rapl:0", Method: power.Measured},
		{ID: "intel-rapl:1", Name: "psys", Kind: power.Platform, Method: power.Measured},
	}
)

// all returns a configuration with all metrics but those of static power models and CPUs.
func all() Config {
	cfg := Config{
		MetricsBuilderConfig: metadata.NewDefaultMetricsBuilderConfig(),
		BuildInfo:            component.BuildInfo{Version: "v1"},
		Kinds:                []Column{{Class: power.Class{Zone: power.Package, Method: power.Measured}}, {Class: power.Class{Zone: power.DRAM, Method: power.Measured}}},
	}
	m := &cfg.Metrics
	m.ProcessCPUTime.Enabled, m.ContainerCPUTime.Enabled, m.SystemCPUBusy.Enabled = true, true, true
	cfg.ResourceAttributes.ProcessCommandLine.Enabled = true
	return cfg
}

// only returns a configuration that has these metrics and no others.
func only(names ...string) Config {
	cfg := all()
	metrics := reflect.ValueOf(&cfg.Metrics).Elem()
	for i := range metrics.NumField() {
		name := metrics.Type().Field(i).Tag.Get("mapstructure")
		metrics.Field(i).FieldByName("Enabled").SetBool(slices.Contains(names, name))
	}
	return cfg
}

// engine returns an engine with n processes, each in its own container, pod and machine, that have used the same CPU
// time.
func engine(n int) (*ledger.Ledger, []attribution.Claimant) {
	e := ledger.New(ledger.Config{}, baseline)
	claimants := make([]attribution.Claimant, n)
	for i := range claimants {
		claimants[i] = e.Open(owner(i), baseline)
	}
	observe(e, baseline, claimants, 0)
	observe(e, at, claimants, 10*units.Joule)
	return e, claimants
}

func owner(i int) identity.Owner {
	return identity.Owner{
		Process: identity.Process{PID: int32(i + 1), Start: time.Second, Created: "2026-01-02T03:04:06.00Z",
			Executable: "app", Path: "/usr/bin/app", CommandLine: "app -x"},
		Workload: identity.Workload{
			Container: identity.Container{ID: fmt.Sprintf("%064x", i), Runtime: "containerd"},
			Pod:       identity.Pod{UID: fmt.Sprint("pod", i), QoSClass: "Burstable"},
			VM:        identity.VM{ID: fmt.Sprint("vm", i), Name: "web", Hypervisor: "qemu"},
		},
	}
}

// observe observes an interval after which each zone has counted total energy, half of it active.
func observe(e *ledger.Ledger, at time.Time, claimants []attribution.Claimant, total units.Energy) {
	node := attribution.Usage{Busy: 5 * units.Second, Total: 10 * units.Second}
	iv := attribution.Interval{At: at, Elapsed: 10 * time.Second}
	if total == 0 {
		node, iv.Elapsed = attribution.Usage{}, 0
	}
	for i, kind := range []int{0, 1, attribution.NotAttributed} {
		iv.Zones = append(iv.Zones, attribution.ZoneReading{Zone: i, Kind: kind, Total: total, OK: true})
	}
	if total > 0 {
		for _, c := range claimants {
			node.Claims = append(node.Claims, attribution.Claim{Claimant: c, CPU: units.Second})
		}
	}
	iv.Domains = []attribution.Usage{node}
	e.Add(e.Sharer().Share(&iv))
}

// find returns the points of a metric, by their resource's and their own attributes.
func find(md pmetric.Metrics, name string) map[string]pmetric.NumberDataPoint {
	out := map[string]pmetric.NumberDataPoint{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Name() != name {
				continue
			}
			var points pmetric.NumberDataPointSlice
			if m.Type() == pmetric.MetricTypeSum {
				points = m.Sum().DataPoints()
			} else {
				points = m.Gauge().DataPoints()
			}
			for _, p := range points.All() {
				out[fmt.Sprint(rm.Resource().Attributes().AsRaw(), p.Attributes().AsRaw())] = p
			}
		}
	}
	return out
}

func TestAnEmptyLedgerHasNoMetrics(t *testing.T) {
	var empty ledger.Totals
	assert.Zero(t, New(all()).Emit(&empty, nil, nil, at).ResourceMetrics().Len())
	assert.Zero(t, New(all()).Emit(&empty, zones, nil, at).ResourceMetrics().Len(), "zones that were never read")
	fresh := ledger.New(ledger.Config{}, baseline)
	cfg := all()
	cfg.Metrics.ProcessCPUTime.Enabled = false
	assert.Zero(t, New(cfg).Emit(&fresh.Totals, zones, nil, at).ResourceMetrics().Len(), "without energy there are no metrics")
}

func TestEveryResourceHasItsIdentifyingAttributes(t *testing.T) {
	e, _ := engine(1)
	md := New(all()).Emit(&e.Totals, zones, nil, at)
	var got []map[string]any
	for _, rm := range md.ResourceMetrics().All() {
		got = append(got, rm.Resource().Attributes().AsRaw())
		require.Equal(t, 1, rm.ScopeMetrics().Len())
		assert.Equal(t, metadata.ScopeName, rm.ScopeMetrics().At(0).Scope().Name())
		assert.Equal(t, "v1", rm.ScopeMetrics().At(0).Scope().Version())
		assert.Equal(t, conventions.SchemaURL, rm.SchemaUrl())
	}
	container, pod, vm := fmt.Sprintf("%064x", 0), "pod0", "vm0"
	assert.ElementsMatch(t, []map[string]any{
		{},
		{}, // the overflow series of processes
		{
			"process.pid": int64(1), "process.creation.time": "2026-01-02T03:04:06.00Z",
			"process.executable.name": "app", "process.executable.path": "/usr/bin/app", "process.command_line": "app -x",
			"container.id": container, "k8s.pod.uid": pod, "vm.id": vm,
		},
		{"container.id": container, "container.runtime.name": "containerd", "k8s.pod.uid": pod},
		{"k8s.pod.uid": pod, "k8s.pod.qos_class": "Burstable"},
		{"vm.id": vm, "vm.name": "web", "vm.hypervisor": "qemu"},
	}, got)
}

func TestOverflowSeriesAreMarkedAndHaveNoIdentity(t *testing.T) {
	var limits ledger.Limits
	for entity := range limits {
		limits[entity].Max = 1
	}
	e := ledger.New(ledger.Config{Limits: limits}, baseline)
	claimants := []attribution.Claimant{e.Open(owner(0), baseline), e.Open(owner(1), baseline)}
	observe(e, baseline, nil, 0)
	observe(e, at, claimants, units.Joule)
	md := New(all()).Emit(&e.Totals, nil, nil, at)
	require.NoError(t, emittest.Duplicate(md))
	assert.Equal(t, 1+2*4, md.ResourceMetrics().Len())
	overflow := map[string]bool{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			var points pmetric.NumberDataPointSlice
			if m.Type() == pmetric.MetricTypeSum {
				points = m.Sum().DataPoints()
			} else {
				points = m.Gauge().DataPoints()
			}
			for _, p := range points.All() {
				if isOverflow, marked := p.Attributes().Get("otel.metric.overflow"); marked {
					overflow[m.Name()] = true
					assert.Equal(t, pcommon.NewValueBool(true), isOverflow)
					assert.Zero(t, rm.Resource().Attributes().Len())
				}
			}
		}
	}
	for _, entity := range []string{"process", "container", "k8s.pod", "vm"} {
		assert.Contains(t, overflow, entity+".energy")
		assert.Contains(t, overflow, entity+".power")
	}
	assert.Contains(t, overflow, "process.cpu.time")
	assert.NotContains(t, overflow, "system.energy")
}

func TestTheOverflowSeriesOfAGroupHasTheNamesOfTheGroup(t *testing.T) {
	var limits ledger.Limits
	limits[identity.ProgramEntity].Births, limits[identity.ContainerEntity].Births, limits[identity.PodEntity].Births = 1, 1, 1
	e := ledger.New(ledger.Config{Processes: ledger.ByProgram, Limits: limits}, baseline)
	observe(e, baseline, nil, 0)
	var claimants []attribution.Claimant
	for i := range 3 {
		o := owner(i)
		o.Process.Executable, o.Process.Owner = "app", "root"
		o.Names = &identity.Names{Namespace: "shop", Pod: fmt.Sprint("job-", i), KubernetesContainer: "app", Container: fmt.Sprint("k8s_", i), Image: "registry/job"}
		claimants = append(claimants, e.Open(o, baseline))
	}
	observe(e, at, claimants, units.Joule)
	md := New(all()).Emit(&e.Totals, nil, nil, at)
	require.NoError(t, emittest.Duplicate(md))
	groups := map[string]map[string]any{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Type() != pmetric.MetricTypeSum {
				continue
			}
			if _, marked := m.Sum().DataPoints().At(0).Attributes().Get("otel.metric.overflow"); marked {
				groups[m.Name()] = rm.Resource().Attributes().AsRaw()
			}
		}
	}
	assert.Equal(t, map[string]any{"k8s.namespace.name": "shop", "k8s.container.name": "app", "container.image.name": "registry/job"},
		groups["container.energy"])
	assert.Equal(t, map[string]any{"k8s.namespace.name": "shop"}, groups["k8s.pod.energy"])
	assert.Equal(t, map[string]any{"process.executable.name": "app", "process.owner": "root"}, groups["process.energy"])
}

func TestValuesAreInJoulesWattsAndSeconds(t *testing.T) {
	e, _ := engine(1)
	md := New(all()).Emit(&e.Totals, zones, nil, at)
	for name, want := range map[string]float64{
		"hw.energy": 10, "hw.power": 1, "hw.host.energy": 10, "hw.host.power": 1,
		"system.energy": 5, "system.power": 0.5, "system.cpu.busy": 0.5,
		"container.energy": 5, "container.power": 0.5, "container.cpu.time": 1,
		"k8s.pod.energy": 5, "k8s.pod.power": 0.5, "vm.energy": 5, "vm.power": 0.5,
	} {
		points := find(md, name)
		assert.NotEmpty(t, points, name)
		for key, p := range points {
			assert.InDelta(t, want, p.DoubleValue(), 1e-9, "%s %s", name, key)
			assert.Equal(t, at, p.Timestamp().AsTime())
		}
	}
	for key, p := range find(md, "system.unattributed.energy") {
		assert.Zero(t, p.DoubleValue(), key)
		assert.Equal(t, baseline, p.StartTimestamp().AsTime())
	}
}

// byState returns the values of a metric by an attribute of the resource, zone and state. The attribute is "" if it is
// missing.
func byState(md pmetric.Metrics, name, attribute string) map[string]float64 {
	out := map[string]float64{}
	for _, rm := range md.ResourceMetrics().All() {
		who := ""
		if id, ok := rm.Resource().Attributes().Get(attribute); ok {
			who = id.AsString()
		}
		only := pmetric.NewMetrics()
		rm.CopyTo(only.ResourceMetrics().AppendEmpty())
		for _, p := range find(only, name) {
			zone, _ := p.Attributes().Get(attrEnergyZone)
			state, _ := p.Attributes().Get(attrEnergyState)
			out[fmt.Sprint(who, " ", zone.Str(), " ", state.Str())] = p.DoubleValue()
		}
	}
	return out
}

// Two processes run, each in its own container, pod and machine. Short-lived children of the second one and
// unattributed time have as much CPU time each, so each of these four has a quarter. A fifth is active. In 10 s
// packages use 30 J and memory 10 J, and then 120 J and 40 J in 20 s.
func TestIdlePowerIsIdleEnergyOverTime(t *testing.T) {
	var rules attribution.Rules
	rules.Idle = attribution.IdleUsed
	e := ledger.New(ledger.Config{Rules: rules}, baseline)
	first, second := e.Open(owner(0), baseline), e.Open(owner(1), baseline)
	observe(e, baseline, nil, 0)
	end := baseline
	cfg := all()
	cfg.Idle = true
	collect := func(elapsed time.Duration, total units.Energy) pmetric.Metrics {
		end = end.Add(elapsed)
		e.Emitted()
		e.Add(e.Sharer().Share(&attribution.Interval{
			At: end, Elapsed: elapsed,
			Zones: []attribution.ZoneReading{{Zone: 0, Kind: 0, Total: 3 * total, OK: true}, {Zone: 1, Kind: 1, Total: total, OK: true}},
			Domains: []attribution.Usage{{Busy: 2 * units.Second, Total: 10 * units.Second, Unattributed: units.Second, Claims: []attribution.Claim{
				{Claimant: first, CPU: units.Second}, {Claimant: second, CPU: units.Second}, {Claimant: second, CPU: units.Second, ShortLived: true},
			}}},
		}))
		return New(cfg).Emit(&e.Totals, zones, nil, end)
	}
	before := collect(10*time.Second, 10*units.Joule)
	after := collect(20*time.Second, 50*units.Joule)
	for _, c := range []struct {
		entity, attribute string
		quarters          map[string]float64
	}{
		{"process", "process.pid", map[string]float64{"1": 1, "2": 1, "": 1}},
		{"container", "container.id", map[string]float64{owner(0).Container.ID: 1, owner(1).Container.ID: 2}},
		{"k8s.pod", "k8s.pod.uid", map[string]float64{"pod0": 1, "pod1": 2}},
		{"vm", "vm.id", map[string]float64{"vm0": 1, "vm1": 2}},
		{"system", "host.id", map[string]float64{"": 4}},
		{"system.unattributed", "host.id", map[string]float64{"": 1}},
	} {
		early, late, watts := map[string]float64{}, map[string]float64{}, map[string]float64{}
		for who, quarters := range c.quarters {
			for zone, joules := range map[string]float64{"package": 30, "dram": 10} {
				for state, part := range map[string]float64{"active": 0.2, "idle": 0.8} {
					key := fmt.Sprint(who, " ", zone, " ", state)
					early[key] = joules * part * quarters / 4
					late[key] = 5 * early[key]
					watts[key] = 4 * early[key] / 20
				}
			}
		}
		assert.InDeltaMapValues(t, early, byState(before, c.entity+".energy", c.attribute), 2e-6, c.entity)
		assert.InDeltaMapValues(t, late, byState(after, c.entity+".energy", c.attribute), 2e-6, c.entity)
		if c.entity != "system.unattributed" {
			assert.InDeltaMapValues(t, watts, byState(after, c.entity+".power", c.attribute), 2e-6, c.entity)
		}
	}
}

func TestAWorkloadAloneHasTheUncertaintyOfTheNode(t *testing.T) {
	const watts = 20
	for name, c := range map[string]struct {
		kind       ledger.KindTotals
		resolution units.CPUTime
		share      float64
		want       float64
	}{
		"alone":                 {ledger.KindTotals{StandardError: 3}, 0, 1, 3},
		"one of two":            {ledger.KindTotals{}, 0, 0.5, 0.2 * watts / 4},
		"both errors":           {ledger.KindTotals{StandardError: 3}, 0, 0.5, math.Hypot(1.5, 0.2*watts/4)},
		"the same users":        {ledger.KindTotals{Shared: true}, 0, 0.5, 0.4 * watts / 4},
		"short windows":         {ledger.KindTotals{Windows: 100}, 0, 0.5, 0.1 * watts / 4},
		"ticks":                 {ledger.KindTotals{}, units.Tick, 1, 0.01 / math.Sqrt(3) * 100 / 10}, // 100 J per second of CPU time
		"nothing":               {ledger.KindTotals{StandardError: 3}, units.Tick, 0, 0},
		"rounded up to all":     {ledger.KindTotals{}, 0, 1 + 1e-9, 0},
		"a standard error of 0": {ledger.KindTotals{}, 0, 1, 0},
	} {
		c.kind.RecentTime, c.kind.RecentActive = 10*time.Second, 10*watts*units.Joule
		labels := kindLabels{deviation: func(window time.Duration, shared bool) float64 {
			switch {
			case shared:
				return 0.4
			case window == 100*time.Millisecond:
				return 0.1
			}
			return 0.2
		}}
		ledger := ledger.Totals{Busy: 2 * units.Second, Resolution: c.resolution}
		energy := units.Energy(c.share * 10 * watts * float64(units.Joule))
		assert.InDelta(t, c.want, labels.uncertainty(&ledger, &c.kind, energy), 1e-6, name)
	}
}

func TestGraphicsCardsHaveTheirVendorAndTheirUtilization(t *testing.T) {
	cards := []power.Zone{
		{ID: "GPU-1", Name: "H100", Vendor: "NVIDIA", Kind: power.GPU, Domain: "gpu-0000:65:00.0", Method: power.Measured},
		{ID: "http:3", Name: "3", Kind: power.GPU, Domain: "gpu-3", Method: power.Measured}, // of which no usage is known
		{ID: "0000:03:00.0:PPT", Name: "amdgpu", Vendor: "AMD", Kind: power.GPU, Domain: "gpu-0000:03:00.0", Method: power.Measured},
		{ID: "intel-rapl:0", Name: "package-0", Kind: power.Package, Domain: units.NodeCPUs, Method: power.Measured},
	}
	domains := []units.Domain{units.NodeCPUs, "gpu-0000:03:00.0", "gpu-3", "gpu-0000:65:00.0"}
	e := ledger.New(ledger.Config{}, baseline)
	iv := attribution.Interval{At: baseline}
	for i, domain := range []int{3, 2, 1, 0} {
		iv.Zones = append(iv.Zones, attribution.ZoneReading{Zone: i, Domain: domain, Kind: attribution.NotAttributed, OK: true})
	}
	e.Add(e.Sharer().Share(&iv))
	e.Emitted()
	iv.At, iv.Elapsed = at, 10*time.Second
	for i := range iv.Zones {
		iv.Zones[i].Total = 10 * units.Joule
	}
	iv.Domains = []attribution.Usage{
		{Busy: 5, Total: 10}, {Busy: 3, Total: 4}, {Busy: 10, Total: 10, Unattributed: 10, Assumed: true}, {Total: 10},
	}
	e.Add(e.Sharer().Share(&iv))

	assert.Empty(t, find(New(all()).Emit(&e.Totals, cards, domains, at), "hw.gpu.utilization"), "disabled by default")
	md := New(only("hw.energy", "hw.power", "hw.gpu.utilization")).Emit(&e.Totals, cards, domains, at)
	for _, metric := range []string{"hw.energy", "hw.power"} {
		vendors := map[any]any{}
		for _, p := range find(md, metric) {
			attributes := p.Attributes().AsRaw()
			vendors[attributes["hw.id"]] = attributes["hw.vendor"]
		}
		assert.Equal(t, map[any]any{"GPU-1": "NVIDIA", "http:3": nil, "0000:03:00.0:PPT": "AMD", "intel-rapl:0": nil}, vendors, metric)
	}
	utilization := map[string]float64{}
	for key, p := range find(md, "hw.gpu.utilization") {
		utilization[key] = p.DoubleValue()
	}
	assert.Equal(t, map[string]float64{
		"map[] map[hw.gpu.task:general hw.id:GPU-1 hw.name:H100 hw.type:gpu hw.vendor:NVIDIA]":           0,
		"map[] map[hw.gpu.task:general hw.id:0000:03:00.0:PPT hw.name:amdgpu hw.type:gpu hw.vendor:AMD]": 0.75,
	}, utilization)

	e.Emitted()
	iv.At, iv.Zones = at.Add(10*time.Second), iv.Zones[:1]
	iv.Domains[1], iv.Domains[3] = attribution.Usage{}, attribution.Usage{} // nothing is known of the time
	e.Add(e.Sharer().Share(&iv))
	md = New(only("hw.gpu.utilization")).Emit(&e.Totals, cards, domains, iv.At)
	for key, p := range find(md, "hw.gpu.utilization") {
		assert.NotContains(t, key, "GPU-1")
		assert.True(t, p.Flags().NoRecordedValue(), "%s has ended", key)
	}
}

// hostEmitter emits zones of hw.host.* that are read every 10 s.
type hostEmitter struct {
	*testing.T
	*Emitter
	ledger *ledger.Ledger
	zones  []power.Zone
	totals []units.Energy
	each   []units.Energy // energy of each zone in 10 s
	now    time.Time
}

func newHostEmitter(t *testing.T, kinds []power.Kind, each ...units.Energy) *hostEmitter {
	e := &hostEmitter{
		T: t, Emitter: New(all()), ledger: ledger.New(ledger.Config{}, baseline), totals: make([]units.Energy, len(kinds)), each: each, now: baseline,
	}
	for i, kind := range kinds {
		id := string(rune('a' + i))
		e.zones = append(e.zones, power.Zone{ID: id, Name: id, Kind: kind, Method: power.Measured})
	}
	return e
}

// read emits the metrics after these zones were read.
func (e *hostEmitter) read(zones ...int) pmetric.Metrics {
	e.Helper()
	iv := attribution.Interval{At: e.now, Elapsed: e.now.Sub(baseline)}
	if e.now != baseline {
		iv.Elapsed = 10 * time.Second
	}
	for _, i := range zones {
		iv.Zones = append(iv.Zones, attribution.ZoneReading{Zone: i, Kind: attribution.NotAttributed, Total: e.totals[i], OK: true})
	}
	e.ledger.Add(e.ledger.Sharer().Share(&iv))
	md := e.Emit(&e.ledger.Totals, e.zones, nil, e.now)
	require.NoError(e, emittest.Duplicate(md))
	e.ledger.Emitted()
	e.ledger.Outcome(ledger.Acknowledged)
	e.now = e.now.Add(10 * time.Second)
	for i := range e.totals {
		e.totals[i] += e.each[i] * units.Joule
	}
	return md
}

// hosts returns the values of a metric by hw.id, NaN for a series that ends.
func hosts(md pmetric.Metrics, metric string) map[string]float64 {
	values := map[string]float64{}
	for _, p := range find(md, metric) {
		id, _ := p.Attributes().Get("hw.id")
		if values[id.Str()] = p.DoubleValue(); p.Flags().NoRecordedValue() {
			values[id.Str()] = math.NaN()
		}
	}
	return values
}

// hw.host.energy is one series per host that never decreases, also if a feed ends (semantic conventions,
// hw.host.energy).
func TestTheHostIsTheSumOfItsFeeds(t *testing.T) {
	e := newHostEmitter(t, []power.Kind{power.Platform, power.Platform}, 100, 50)
	e.read(0)
	md := e.read(0)
	assert.Equal(t, map[string]float64{"host": 100}, hosts(md, "hw.host.energy"))
	assert.Equal(t, map[string]float64{"host": 10}, hosts(md, "hw.host.power"))
	assert.Empty(t, find(md, "hw.energy"), "the host is not in hw.energy")
	e.read(0, 1)
	md = e.read(0, 1)
	assert.Equal(t, map[string]float64{"host": 350}, hosts(md, "hw.host.energy"))
	assert.Equal(t, map[string]float64{"host": 15}, hosts(md, "hw.host.power"))
	assert.Len(t, find(md, "hw.energy"), 2, "each power supply")
	ended := 0
	for range 3 {
		md = e.read(0)
		if math.IsNaN(hosts(md, "hw.power")["b"]) {
			ended++
		}
	}
	assert.Equal(t, 1, ended, "the power of the other feed ends once")
	assert.NotEmpty(t, find(md, "hw.energy"), "the first feed goes on")
	assert.Equal(t, map[string]float64{"host": 650}, hosts(md, "hw.host.energy"), "what the other feed counted remains")
	assert.Equal(t, map[string]float64{"host": 10}, hosts(md, "hw.host.power"))
}

// A BMC may answer minutes after the start.
func TestPSysIsTheHostUntilAPlatformIsRead(t *testing.T) {
	e := newHostEmitter(t, []power.Kind{power.Package, power.PSys, power.Platform}, 30, 50, 100)
	e.read(0, 1)
	md := e.read(0, 1)
	assert.Equal(t, map[string]float64{"psys": 50}, hosts(md, "hw.host.energy"), "package is a part of psys")
	assert.Equal(t, map[string]float64{"psys": 5}, hosts(md, "hw.host.power"))
	assert.Len(t, find(md, "hw.energy"), 2)
	md = e.read(0, 1, 2)
	assert.Equal(t, map[string]float64{"psys": 100, "host": 0}, hosts(md, "hw.host.energy"), "psys until the platform begins")
	assert.True(t, math.IsNaN(hosts(md, "hw.host.power")["psys"]))
	md = e.read(0, 1, 2)
	assert.Equal(t, map[string]float64{"host": 100}, hosts(md, "hw.host.energy"))
	assert.Equal(t, map[string]float64{"host": 10}, hosts(md, "hw.host.power"))
	assert.Len(t, find(md, "hw.energy"), 2)
}

func TestPSysIsTheHostAfterThePlatformHasEnded(t *testing.T) {
	e := newHostEmitter(t, []power.Kind{power.Package, power.PSys, power.Platform}, 30, 50, 100)
	e.read(0, 1, 2)
	e.read(0, 1, 2)
	for range 3 {
		e.read(0, 1)
	}
	md := e.read(0, 1)
	assert.InDelta(t, 250, hosts(md, "hw.host.energy")["psys"], 1e-9)
	assert.Equal(t, map[string]float64{"psys": 5}, hosts(md, "hw.host.power"))
}

func TestAPSysThatStandsStillIsNotTheHost(t *testing.T) {
	e := newHostEmitter(t, []power.Kind{power.Package, power.PSys}, 30, 0)
	for range 3 {
		md := e.read(0, 1)
		assert.Empty(t, find(md, "hw.host.energy"))
		assert.Empty(t, find(md, "hw.host.power"))
	}
}

func TestPSysBecomesTheHostWithAZeroPoint(t *testing.T) {
	e := newHostEmitter(t, []power.Kind{power.Package, power.PSys}, 30, 50)
	e.zeros = true
	for _, want := range [][]float64{nil, {0, 50}, {100}} {
		var joules []float64
		for _, m := range e.read(0, 1).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if m.Name() == "hw.host.energy" {
				for _, p := range m.Sum().DataPoints().All() {
					joules = append(joules, p.DoubleValue())
				}
			}
		}
		assert.Equal(t, want, joules)
	}
}

func TestZonesThatWereNotReadHaveNoPoints(t *testing.T) {
	e, claimants := engine(1)
	e.Emitted()
	iv := attribution.Interval{At: at.Add(10 * time.Second), Elapsed: 10 * time.Second,
		Zones: []attribution.ZoneReading{
			{Zone: 0, Kind: 0, Total: 20 * units.Joule, OK: true},
			{Zone: 1, Kind: 1, Total: 10 * units.Joule},
			{Zone: 2, Kind: attribution.NotAttributed, Total: 10 * units.Joule},
		},
		Domains: []attribution.Usage{{
			Busy: units.Second, Total: 10 * units.Second, Claims: []attribution.Claim{{Claimant: claimants[0], CPU: units.Second}},
		}}}
	e.Add(e.Sharer().Share(&iv))
	md := New(all()).Emit(&e.Totals, zones, nil, iv.At)
	assert.Len(t, find(md, "hw.energy"), 1)
	assert.Len(t, find(md, "hw.power"), 1)
	assert.Empty(t, find(md, "hw.host.energy"))
	assert.Empty(t, find(md, "hw.host.power"))
	assert.Len(t, find(md, "system.energy"), 4, "attributed energy does not change")
	assert.Len(t, find(md, "system.power"), 2, "and the unread zone has no power")
	assert.Len(t, find(md, "process.energy"), 2*2)
	assert.Len(t, find(md, "process.power"), 2*1)
}

func TestKindsThatWereNeverReadHaveNoPoints(t *testing.T) {
	e := ledger.New(ledger.Config{}, baseline)
	c := e.Open(owner(0), baseline)
	reading := []attribution.ZoneReading{{Zone: 0, Kind: 0, OK: true}, {Zone: 1, Kind: 1}}
	e.Add(e.Sharer().Share(&attribution.Interval{At: baseline, Zones: reading}))
	reading[0].Total = units.Joule
	e.Add(e.Sharer().Share(&attribution.Interval{At: at, Elapsed: 10 * time.Second, Zones: reading,
		Domains: []attribution.Usage{{Busy: 1, Total: 1, Claims: []attribution.Claim{{Claimant: c, CPU: 1}}}}}))
	md := New(all()).Emit(&e.Totals, zones, nil, at)
	for _, name := range []string{"hw.energy", "system.unattributed.energy", "container.energy", "container.power"} {
		assert.Len(t, find(md, name), 1, name)
	}
	assert.Len(t, find(md, "system.energy"), 2)
}

func TestThePowerOfAnEndedSeriesHasNoRecordedValueUntilAcknowledged(t *testing.T) {
	e, claimants := engine(1)
	New(all()).Emit(&e.Totals, zones, nil, at)
	e.Emitted()
	e.Close(claimants[0])
	final := New(all()).Emit(&e.Totals, zones, nil, at)
	e.Emitted()
	later := at.Add(10 * time.Second)
	observe(e, later, nil, 30*units.Joule)
	again := New(all()).Emit(&e.Totals, zones, nil, later)
	for _, entity := range []string{"process", "container", "k8s.pod", "vm"} {
		for moment, md := range map[time.Time]pmetric.Metrics{at: final, later: again} {
			ended := 0
			for key, p := range find(md, entity+".power") {
				if !p.Flags().NoRecordedValue() {
					assert.Contains(t, key, "otel.metric.overflow", "the overflow series go on")
					continue
				}
				ended++
				assert.Equal(t, pmetric.NumberDataPointValueTypeEmpty, p.ValueType())
				assert.Equal(t, moment, p.Timestamp().AsTime())
			}
			assert.Equal(t, 2, ended, "%s: package and DRAM", entity)
			require.NoError(t, emittest.Duplicate(md))
		}
		want, got := find(final, entity+".energy"), find(again, entity+".energy")
		require.Len(t, got, len(want), entity)
		for key, p := range got {
			assert.InDelta(t, want[key].DoubleValue(), p.DoubleValue(), 1e-9, key)
			assert.Equal(t, want[key].StartTimestamp(), p.StartTimestamp())
			assert.Equal(t, later, p.Timestamp().AsTime())
		}
	}
	e.Emitted()
	e.Outcome(ledger.Acknowledged)
	gone := New(all()).Emit(&e.Totals, zones, nil, later)
	assert.Empty(t, find(gone, "container.energy"))
	assert.Empty(t, find(gone, "container.power"))
}

// The collector's Prometheus exporter stops reading a metric at the first point without a value.
func TestEachPointThatEndsASeriesIsTheOnlyOneOfItsMetric(t *testing.T) {
	e, claimants := engine(2)
	e.Emitted()
	e.Add(e.Sharer().Share(&attribution.Interval{At: at})) // without any zone
	for _, c := range claimants {
		e.Close(c)
	}
	md := New(all()).Emit(&e.Totals, zones, nil, at)
	ended := 0
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			if m.Type() != pmetric.MetricTypeGauge {
				continue
			}
			require.Equal(t, 1, m.Gauge().DataPoints().Len(), m.Name())
			assert.True(t, m.Gauge().DataPoints().At(0).Flags().NoRecordedValue(), m.Name())
			ended++
		}
	}
	// Two zones and the machine's, and two kinds with two states each; two of each entity and the other processes, with
	// two kinds.
	assert.Equal(t, 2+1+2*2+2*(2*4+1), ended)
	require.NoError(t, emittest.Duplicate(md))
}

func TestGaugesOfAnEndedKindAreMarkedEndedUntilAcknowledged(t *testing.T) {
	e, _ := engine(1)
	e.Emitted()
	newcomer := e.Open(owner(1), at)
	e.Add(e.Sharer().Share(&attribution.Interval{At: at, Zones: []attribution.ZoneReading{{Zone: 0, Kind: 0}}})) // without DRAM
	ended := New(all()).Emit(&e.Totals, zones, nil, at)
	e.Emitted()
	e.Outcome(ledger.Acknowledged)
	gone := New(all()).Emit(&e.Totals, zones, nil, at)
	for name, points := range map[string]int{"system.power": 2, "process.power": 2, "container.power": 1, "k8s.pod.power": 1, "vm.power": 1} {
		for key, p := range find(ended, name) {
			assert.Equal(t, strings.Contains(key, "energy.zone:dram"), p.Flags().NoRecordedValue(), key)
		}
		assert.Len(t, ofZone(ended, name, "dram"), points, name)
		assert.Empty(t, ofZone(gone, name, "dram"), name)
	}
	for _, md := range []pmetric.Metrics{ended, gone} {
		assert.Len(t, ofZone(md, "system.energy", "dram"), 2, "the totals go on")
		assert.Len(t, ofZone(md, "container.energy", "dram"), 1, "not the newcomer's")
		assert.Len(t, ofZone(md, "container.energy", "package"), 2)
		require.NoError(t, emittest.Duplicate(md))
	}
	e.Close(newcomer)
}

// ofZone returns the points of a metric that have this energy.zone.
func ofZone(md pmetric.Metrics, name, zone string) map[string]pmetric.NumberDataPoint {
	points := find(md, name)
	maps.DeleteFunc(points, func(key string, _ pmetric.NumberDataPoint) bool { return !strings.Contains(key, "energy.zone:"+zone) })
	return points
}

func TestWhatEndedBeforeItWasReportedHasNoPower(t *testing.T) {
	e, claimants := engine(1)
	e.Close(claimants[0])
	md := New(all()).Emit(&e.Totals, zones, nil, at)
	assert.Len(t, find(md, "container.energy"), 2)
	assert.Empty(t, find(md, "container.power"))
}

func TestEachCPUHasOneResourceWithItsKnownAttributes(t *testing.T) {
	e, _ := engine(0)
	cfg := all()
	cfg.Metrics.SystemCPUInfo.Enabled = true
	cfg.CPUs = []CPU{{0, "GenuineIntel", "A CPU", "1", "2"}, {Number: 1}}
	info := find(New(cfg).Emit(&e.Totals, zones, nil, at), "system.cpu.info")
	require.Len(t, info, 2)
	for _, want := range []string{
		"map[cpu.core.id:2 cpu.logical_number:0 cpu.package.id:1 host.cpu.model.name:A CPU host.cpu.vendor.id:GenuineIntel]",
		"map[cpu.logical_number:1]",
	} {
		p, ok := info["map[] "+want]
		require.True(t, ok, want)
		assert.InDelta(t, 1, p.DoubleValue(), 0)
	}
}

func TestResourcesAreFilteredByTheirAttributeValues(t *testing.T) {
	e, _ := engine(100)
	cfg := all()
	cfg.ResourceAttributes.K8sPodUID.MetricsInclude = []filter.Config{{Strict: "pod42"}}
	cfg.ResourceAttributes.VMID.MetricsExclude = []filter.Config{{Regex: "^vm[0-9]+$"}}
	md := New(cfg).Emit(&e.Totals, zones, nil, at)
	assert.Equal(t, 1+1+2, md.ResourceMetrics().Len(), "the node, the others, and one container and pod")
	assert.Len(t, find(md, "container.energy"), 2)
	assert.Len(t, find(md, "process.energy"), 2, "each process has a virtual machine, but the others")
	assert.Empty(t, find(md, "vm.energy"))
}

// allocationsPerAccount is the cost of a process with two zones: its resource, scope, two metrics and the four points
// with their attributes. 37 were measured.
const allocationsPerAccount = 37

func TestAllocationsPerAccountAreBounded(t *testing.T) {
	cfg := only("process.energy", "process.power")
	a := &cfg.ResourceAttributes
	a.ProcessCommandLine.Enabled, a.ContainerID.Enabled, a.K8sPodUID.Enabled, a.VMID.Enabled = false, false, false, false
	measure := func(n int) float64 {
		e, _ := engine(n)
		emitter := New(cfg)
		return testing.AllocsPerRun(10, func() { emitter.Emit(&e.Totals, zones, nil, at) })
	}
	perAccount := (measure(200) - measure(100)) / 100
	t.Logf("%.1f allocations per account", perAccount)
	assert.LessOrEqual(t, perAccount, float64(allocationsPerAccount))
}
