// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// processAttribute is an attribute of a process's resource: a text, a number or a boolean. An empty
// text, the number 0 and false are left out.
type processAttribute struct {
	name          string
	text          func(*identity.Process) string
	number        func(*identity.Process) int64
	isSet         func(*identity.Process) bool
	ofProgram     bool // programs also have it
	distinguishes bool // without it, different processes have the same series
}

// processAttributes are the attributes of a process itself. The attributes of its workloads follow.
var processAttributes = [...]processAttribute{
	{name: "process.pid", number: func(p *identity.Process) int64 { return int64(p.PID) }, distinguishes: true},
	{name: "process.creation.time", text: func(p *identity.Process) string { return p.Created }, distinguishes: true},
	{name: "process.executable.name", text: func(p *identity.Process) string { return p.Executable }, ofProgram: true},
	{name: "process.executable.path", text: func(p *identity.Process) string { return p.Path }},
	{name: "process.command_line", text: func(p *identity.Process) string { return p.CommandLine }},
	{name: attrOwner, text: func(p *identity.Process) string { return p.Owner }, ofProgram: true},
	{name: attrParent, number: func(p *identity.Process) int64 { return int64(p.Parent) }},
	{name: "process.descendants", isSet: func(p *identity.Process) bool { return p.Descendants }, ofProgram: true},
}

// The attributes that are resolved only if they are enabled. Otherwise processes could differ by
// attributes that are not reported.
const (
	attrOwner  = "process.owner"
	attrParent = "process.parent_pid"
)

// maxAttributes is the maximum number of attributes of a resource.
const maxAttributes = len(processAttributes) + len(identity.Key{})

// entityMetrics are the enabled metrics and attributes of one entity.
type entityMetrics struct {
	energy, power, uncertainty, cpuTime *metric
	counters                            [numCounters]*metric

	process  []processAttribute
	workload []identity.Attribute
	names    []identity.NameAttribute
	shared   []string // disabled attributes that distinguish
}

// newEntityMetrics returns the enabled metrics and attributes of an entity. metadata.yaml names the
// metrics after the entity.
func newEntityMetrics(entity identity.Entity, metrics map[string]*metric, settings map[string]metadata.ResourceAttributeConfig) entityMetrics {
	name := entity.MetricPrefix()
	e := entityMetrics{
		energy:      metrics[name+".energy"],
		power:       metrics[name+".power"],
		uncertainty: metrics[name+".power.uncertainty"],
		cpuTime:     metrics[name+".cpu.time"],
	}
	for i := range counters {
		e.counters[i] = metrics[name+counters[i].metric]
	}
	enabled := func(name string, distinguishes bool) bool {
		if distinguishes && !settings[name].Enabled {
			e.shared = append(e.shared, name)
		}
		return settings[name].Enabled
	}
	if entity.OfProcesses() {
		for _, a := range processAttributes {
			if (entity == identity.ProcessEntity || a.ofProgram) && enabled(a.name, a.distinguishes || entity == identity.ProgramEntity && a.name != attrOwner) {
				e.process = append(e.process, a)
			}
		}
	}
	for _, a := range entity.Attributes() {
		// All attributes of their workloads distinguish programs, except the unit, which is resolved only
		// if it is reported.
		ofProgram := entity == identity.ProgramEntity && a.Name != identity.SystemdUnitEntity.Attributes()[0].Name
		if enabled(a.Name, a.Distinguishes || ofProgram) {
			e.workload = append(e.workload, a)
		}
	}
	for _, n := range entity.Names() {
		if settings[n.Name].Enabled {
			e.names = append(e.names, n)
		}
	}
	return e
}

// any reports whether a metric is enabled.
func (e *entityMetrics) any() bool {
	return e.energy != nil || e.power != nil || e.uncertainty != nil || e.cpuTime != nil || e.counters != [numCounters]*metric{}
}

// describe writes the attributes of an account's resource. The resource of an overflow series has
// only the names of a group.
func (e *entityMetrics) describe(a *ledger.Account, into pcommon.Map) {
	if a.Other {
		return
	}
	var known [maxAttributes]label
	n := 0
	for i := range e.process {
		at := &e.process[i]
		switch {
		case at.isSet != nil:
			if at.isSet(&a.Owner.Process) {
				known[n] = label{key: at.name, isTrue: true}
				n++
			}
			continue
		case at.number != nil:
			if number := at.number(&a.Owner.Process); number != 0 {
				known[n] = label{key: at.name, number: number}
				n++
			}
			continue
		}
		if text := at.text(&a.Owner.Process); text != "" {
			known[n] = label{key: at.name, text: text}
			n++
		}
	}
	for i := range e.workload {
		at := &e.workload[i]
		if text := *at.Field(&a.Owner.Workload); text != "" {
			known[n] = label{key: at.Name, text: text}
			n++
		}
	}
	if names := a.Owner.Names; names != nil {
		for i := range e.names {
			if text := e.names[i].Of(names); text != "" {
				known[n] = label{key: e.names[i].Name, text: text}
				n++
			}
		}
	}
	put(known[:n], into)
}

func (m *emission) emitAccount(a *ledger.Account) {
	e := &m.entities[a.Entity]
	if !e.any() {
		return
	}
	attributes, into := m.resource()
	e.describe(a, attributes)
	if !m.filters.keep(attributes) {
		return
	}
	into.EnsureCapacity(2)
	most := len(m.kinds)
	if m.idle {
		most *= 2
	}
	energy := writer{metric: e.energy, into: into, most: most}
	watts := writer{metric: e.power, into: into, most: most}
	if !m.ledger.Settled(&a.Lifetime) {
		energy.most *= 2 // zero points
	}
	uncertainty := writer{metric: e.uncertainty, into: into, most: len(m.kinds)}
	start := pcommon.NewTimestampFromTime(a.Start)
	kinds := m.kinds
	var ofCPUTime []label
	if a.Other || a.IsGroup() {
		kinds, ofCPUTime = m.overflowKinds, overflow
	}
	for i := range kinds {
		k := &m.ledger.Kinds[i]
		if !k.Present {
			continue
		}
		of := a.Amounts(i)
		if m.ledger.HasSeries(a, i) {
			energy.zero = m.zeroPoint(m.ledger.SettledIn(a, i), a.Start, k.Start)
			energy.write(kinds[i].attributed, start, m.at, of.Energy.Joules())
			if m.idle {
				energy.write(kinds[i].idle, start, m.at, of.Idle.Joules())
			}
		}
		m.emitPower(a, i, &kinds[i], &watts, &uncertainty)
	}
	cpuTime := writer{metric: e.cpuTime, into: into, most: 2, zero: m.zeroPoint(m.ledger.Settled(&a.Lifetime), a.Start)}
	cpuTime.write(ofCPUTime, start, m.at, a.CPU.Seconds())
	m.emitUsage(a, e, into)
}

// emitPower emits the gauges of an account and a kind.
func (m *emission) emitPower(a *ledger.Account, kind int, of *kindLabels, watts, uncertainty *writer) {
	k, amounts := &m.ledger.Kinds[kind], a.Amounts(kind)
	ended := a.Ended() || k.Ended()
	switch {
	case m.ledger.Delivered(&k.Lifetime) || !ended && k.RecentTime == 0:
	case ended && !a.Reported():
	case ended:
		watts.end(of.attributed, m.at)
		if m.idle {
			watts.end(of.idle, m.at)
		}
		if hasUncertainty(k) {
			uncertainty.end(of.kind, m.at)
		}
	default:
		watts.write(of.attributed, 0, m.at, units.Watts(amounts.Recent, k.RecentTime))
		if m.idle {
			watts.write(of.idle, 0, m.at, units.Watts(amounts.RecentIdle, k.RecentTime))
		}
		if hasUncertainty(k) && k.RecentActive > 0 {
			uncertainty.write(of.kind, 0, m.at, of.uncertainty(m.ledger, k, amounts.Recent))
		}
	}
}
