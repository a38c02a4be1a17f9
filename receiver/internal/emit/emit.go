// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Config says what is emitted.
type Config struct {
	// MetricsBuilderConfig enables metrics and resource attributes, and filters resources by their attributes.
	metadata.MetricsBuilderConfig
	// BuildInfo has the version of the instrumentation scope.
	BuildInfo component.BuildInfo
	// Kinds describes the ledger's kinds, by their index.
	Kinds []Kind
	// Idle reports whether idle energy is attributed. Points of attributed energy then have an energy.state.
	Idle bool
	// CPUs are the node's logical CPUs.
	CPUs []CPU
}

// Kind is one kind of the ledger: the zones of one kind and source together.
type Kind struct {
	Zone   power.Kind   // energy.zone
	Source power.Source // energy.source, left out where it is empty
}

// CPU describes a logical CPU. Empty fields are left out.
type CPU struct {
	Number                       int
	Vendor, Model, Package, Core string
}

// Emitter builds metrics from ledgers. It does not change, so its methods may be called concurrently.
type Emitter struct {
	blank    pmetric.ResourceMetrics // without attributes and metrics
	node     nodeMetrics
	entities [len(entities)]entityMetrics
	filters  filters
	kinds    []kindAttributes
	cpus     []pcommon.Map // the attributes of their points
	idle     bool
}

// New returns an emitter.
func New(cfg Config) *Emitter {
	g := generate(cfg.MetricsBuilderConfig, cfg.BuildInfo)
	settings := settingsByName(&cfg.ResourceAttributes)
	e := &Emitter{blank: g.blank, node: newNodeMetrics(g.metrics), filters: newFilters(settings), idle: cfg.Idle}
	for i := range entities {
		e.entities[i] = entities[i].metrics(g.metrics, settings)
	}
	for _, k := range cfg.Kinds {
		e.kinds = append(e.kinds, newKindAttributes(k, cfg.Idle))
	}
	for i := range cfg.CPUs {
		e.cpus = append(e.cpus, cfg.CPUs[i].attributes())
	}
	return e
}

// Emit returns the whole ledger as of at. zones describes the ledger's zones, by their index. The gauges of what has
// ended have no value but the no-recorded-value flag.
func (e *Emitter) Emit(ledger *attribution.Ledger, zones []power.Zone, at time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := emission{Emitter: e, ledger: ledger, at: pcommon.NewTimestampFromTime(at), out: md.ResourceMetrics()}
	for i := range e.entities {
		m.texts = append(m.texts, make([]string, max(0, len(e.entities[i].attributes)-len(m.texts)))...)
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
	ledger *attribution.Ledger
	at     pcommon.Timestamp
	out    pmetric.ResourceMetricsSlice
	texts  []string // scratch, of the attributes of an account
}

// resource appends a resource without attributes and metrics. One that still has no metrics at the end of the emission
// is removed.
func (m *emission) resource() (pcommon.Map, pmetric.MetricSlice) {
	rm := m.out.AppendEmpty()
	m.blank.CopyTo(rm)
	return rm.Resource().Attributes(), rm.ScopeMetrics().At(0).Metrics()
}

// kindAttributes are the attributes of the points of one kind.
type kindAttributes struct {
	kind         pcommon.Map // energy.zone and energy.source
	active, idle pcommon.Map // and energy.state
	attributed   pcommon.Map // those of attributed active energy: active where idle energy is attributed too, else kind
}

// The attributes of data points. metadata.MetricsInfo says which metric has which.
const (
	attrEnergyZone   = "energy.zone"
	attrEnergySource = "energy.source"
	attrEnergyState  = "energy.state"
	attrHwID         = "hw.id"
	attrHwType       = "hw.type"
	attrHwName       = "hw.name"
	attrHwParent     = "hw.parent"
	attrCPUNumber    = "cpu.logical_number"
	attrCPUVendor    = "host.cpu.vendor.id"
	attrCPUModel     = "host.cpu.model.name"
	attrCPUPackage   = "cpu.package.id"
	attrCPUCore      = "cpu.core.id"
)

var noAttributes = pcommon.NewMap()

func newKindAttributes(k Kind, idle bool) kindAttributes {
	a := kindAttributes{
		kind: texts(attrEnergyZone, string(k.Zone), attrEnergySource, string(k.Source)), active: pcommon.NewMap(), idle: pcommon.NewMap(),
	}
	a.kind.CopyTo(a.active)
	a.active.PutStr(attrEnergyState, metadata.AttributeEnergyStateActive.String())
	a.kind.CopyTo(a.idle)
	a.idle.PutStr(attrEnergyState, metadata.AttributeEnergyStateIdle.String())
	a.attributed = a.kind
	if idle {
		a.attributed = a.active
	}
	return a
}

// texts returns a map of the pairs whose value is not empty.
func texts(pairs ...string) pcommon.Map {
	m := pcommon.NewMap()
	m.EnsureCapacity(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m.PutStr(pairs[i], pairs[i+1])
		}
	}
	return m
}
