// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Config selects the emitted metrics and attributes.
type Config struct {
	// MetricsBuilderConfig enables metrics and resource attributes, and filters resources by their
	// attributes.
	metadata.MetricsBuilderConfig
	// BuildInfo has the version of the instrumentation scope.
	BuildInfo component.BuildInfo
	// Kinds describes the ledger's kinds, by their index.
	Kinds []Column
	// Idle reports whether idle energy is attributed. Points of attributed energy then have an
	// energy.state.
	Idle bool
	// ZeroPoints reports whether a new series of a sum begins with a point of value 0.
	ZeroPoints bool
	// CPUs are the node's logical CPUs.
	CPUs []CPU
	// Usage, if set, returns the counters of containers and pods at the time of an emission.
	Usage func(at time.Time) map[Subject]*Usage
}

// Column is one kind of the ledger.
type Column struct {
	power.Class // the attributes energy.zone and energy.method, which is left out if it is empty
	// Deviation returns the standard deviation of a small workload's share of the active energy,
	// relative to the share, in windows of a length. shared is KindTotals.Shared of the ledger. If
	// Deviation is nil, shares have no error.
	Deviation func(window time.Duration, shared bool) float64
}

// CPU describes a logical CPU. Empty fields are left out.
type CPU struct {
	Number                       int
	Vendor, Model, Package, Core string
}

// Emitter builds metrics from a ledger. It is not safe for concurrent use.
type Emitter struct {
	generated
	node     nodeMetrics
	entities [identity.NumEntities]entityMetrics
	filters  filters
	kinds    []kindLabels
	// overflowKinds are the labels of overflow series.
	overflowKinds []kindLabels
	cpus          [][]label // of their points
	idle          bool
	zeros         bool
	readUsage     func(at time.Time) map[Subject]*Usage
	supplies      bool // several power supplies had a meter at the same time
	wasPSys       bool // hw.host.* reported psys in the last emission
}

// New returns an emitter.
func New(cfg Config) *Emitter {
	g := generate(cfg.MetricsBuilderConfig, cfg.BuildInfo)
	settings := settingsByName(&cfg.ResourceAttributes)
	e := &Emitter{generated: g, node: newNodeMetrics(g.metrics), filters: newFilters(settings), idle: cfg.Idle, zeros: cfg.ZeroPoints, readUsage: cfg.Usage}
	for entity := range identity.NumEntities {
		e.entities[entity] = newEntityMetrics(entity, g.metrics, settings)
	}
	for _, k := range cfg.Kinds {
		e.kinds = append(e.kinds, newKindLabels(k, cfg.Idle, nil))
		e.overflowKinds = append(e.overflowKinds, newKindLabels(k, cfg.Idle, overflow))
	}
	for i := range cfg.CPUs {
		e.cpus = append(e.cpus, cfg.CPUs[i].labels())
	}
	return e
}

// Emit returns the whole ledger as of at. zones and domains describe the ledger's zones and
// domains, by their index. The gauges of ended series have the no-recorded-value flag instead of a
// value.
func (e *Emitter) Emit(
	ledger *ledger.Totals, zones []power.Zone, domains []units.Domain, at time.Time,
) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := emission{Emitter: e, ledger: ledger, domains: domains, at: pcommon.NewTimestampFromTime(at), out: md.ResourceMetrics()}
	if e.readUsage != nil {
		m.usage = e.readUsage(at)
	}
	accounts := 0
	for range ledger.Accounts {
		accounts++
	}
	m.out.EnsureCapacity(1 + accounts)
	m.emitNode(zones)
	for a := range ledger.Accounts {
		m.emitAccount(a)
	}
	m.out.RemoveIf(func(rm pmetric.ResourceMetrics) bool { return rm.ScopeMetrics().At(0).Metrics().Len() == 0 })
	return md
}

// emission is one run of an emitter.
type emission struct {
	*Emitter
	ledger  *ledger.Totals
	domains []units.Domain
	at      pcommon.Timestamp
	out     pmetric.ResourceMetricsSlice
	usage   map[Subject]*Usage
}

// resource appends a resource without attributes and metrics. If the resource has no metrics at the
// end of the emission, it is removed.
func (m *emission) resource() (pcommon.Map, pmetric.MetricSlice) {
	rm := m.out.AppendEmpty()
	rm.SetSchemaUrl(m.schemaURL)
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(m.scope)
	sm.Scope().SetVersion(m.version)
	return rm.Resource().Attributes(), sm.Metrics()
}

// label is an attribute that is computed in advance. Its value is text if text is not empty, true
// if isTrue is set, and number otherwise.
type label struct {
	key, text string
	number    int64
	isTrue    bool
}

// put writes labels that are not in a map yet.
func put(labels []label, into pcommon.Map) {
	into.EnsureCapacity(len(labels))
	for i := range labels {
		switch l := &labels[i]; {
		case l.text != "":
			into.PutStr(l.key, l.text)
		case l.isTrue:
			into.PutBool(l.key, true)
		default:
			into.PutInt(l.key, l.number)
		}
	}
}

// texts returns a label for each pair of a key and a text that is not empty.
func texts(pairs ...string) (labels []label) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			labels = append(labels, label{key: pairs[i], text: pairs[i+1]})
		}
	}
	return labels
}

// kindLabels are the labels of the points of one kind.
type kindLabels struct {
	kind         []label // energy.zone and energy.method
	active, idle []label // and energy.state
	attributed   []label // for attributed active energy: active if idle energy is also attributed, otherwise kind
	zone         power.Kind
	deviation    func(window time.Duration, shared bool) float64
}

// The attributes of data points. metadata.MetricsInfo lists the attributes of each metric.
const (
	attrEnergyZone   = "energy.zone"
	attrEnergyMethod = "energy.method"
	attrEnergyState  = "energy.state"
	attrHwID         = "hw.id"
	attrHwType       = "hw.type"
	attrHwName       = "hw.name"
	attrHwParent     = "hw.parent"
	attrHwVendor     = "hw.vendor"
	attrHwGpuTask    = "hw.gpu.task"
	attrCPUNumber    = "cpu.logical_number"
	attrCPUVendor    = "host.cpu.vendor.id"
	attrCPUModel     = "host.cpu.model.name"
	attrCPUPackage   = "cpu.package.id"
	attrCPUCore      = "cpu.core.id"
)

// overflow marks the points of the overflow series of an entity: the workloads without a series of
// their own (https://opentelemetry.io/docs/specs/otel/metrics/sdk/#overflow-attribute).
var overflow = []label{{key: "otel.metric.overflow", isTrue: true}}

// newKindLabels returns the labels of a kind. Each list of labels ends with extra.
func newKindLabels(k Column, idle bool, extra []label) kindLabels {
	zone, source := string(k.Zone), string(k.Method)
	of := func(state string) []label {
		return append(texts(attrEnergyZone, zone, attrEnergyMethod, source, attrEnergyState, state), extra...)
	}
	l := kindLabels{
		kind: of(""), active: of(metadata.AttributeEnergyStateActive.String()), idle: of(metadata.AttributeEnergyStateIdle.String()),
		zone: k.Zone, deviation: k.Deviation,
	}
	l.attributed = l.kind
	if idle {
		l.attributed = l.active
	}
	return l
}
