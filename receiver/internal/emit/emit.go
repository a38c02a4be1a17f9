// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// The attributes of data points.
const (
	attrHwID        = "hw.id"
	attrHwType      = "hw.type"
	attrHwName      = "hw.name"
	attrHwParent    = "hw.parent"
	attrEnergyZone  = "energy.zone"
	attrEnergyState = "energy.state"
	attrCPUNumber   = "cpu.logical_number"
	attrCPUVendor   = "host.cpu.vendor.id"
	attrCPUModel    = "host.cpu.model.name"
	attrCPUPackage  = "cpu.package.id"
	attrCPUCore     = "cpu.core.id"
)

// The values of energy.state.
const (
	stateActive = "active"
	stateIdle   = "idle"
)

// OthersName is the process.executable.name, container.id, k8s.pod.uid or vm.id of the series of all processes,
// containers, pods or VMs that have none of their own.
const OthersName = "other"

// Emitter builds metrics from a ledger.
type Emitter struct{ cfg Config }

// New returns an emitter.
func New(cfg Config) *Emitter { return &Emitter{cfg: cfg} }

// emission is one run of an emitter.
type emission struct {
	*Config
	ledger *attribution.Ledger
	at     pcommon.Timestamp
	out    pmetric.ResourceMetricsSlice
	spare  bool // the last of out is empty
	final  bool // all gauges end
}

// Emit returns the whole ledger as of at. zones names the ledger's zones by their number. The gauges of what has ended
// have no value but the no-recorded-value flag.
func (e *Emitter) Emit(ledger *attribution.Ledger, zones []power.Zone, at time.Time) pmetric.Metrics {
	return e.emit(ledger, zones, at, false)
}

// Final returns the whole ledger as of at, when all of it has ended.
func (e *Emitter) Final(ledger *attribution.Ledger, zones []power.Zone, at time.Time) pmetric.Metrics {
	return e.emit(ledger, zones, at, true)
}

func (e *Emitter) emit(ledger *attribution.Ledger, zones []power.Zone, at time.Time, final bool) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := emission{Config: &e.cfg, ledger: ledger, at: pcommon.NewTimestampFromTime(at), out: md.ResourceMetrics(), final: final}
	accounts := 0
	for range ledger.Accounts {
		accounts++
	}
	m.out.EnsureCapacity(1 + accounts)
	m.resource(1, 8, func(pcommon.Map) {}, func(into pmetric.MetricSlice) {
		m.hardware(into, zones)
		m.system(into)
		m.cpus(into)
	})
	for a := range ledger.Accounts {
		m.account(a)
	}
	if m.spare {
		i := 0
		m.out.RemoveIf(func(pmetric.ResourceMetrics) bool { i++; return i == m.out.Len() })
	}
	return md
}

// next returns an empty resource at the end of the output.
func (m *emission) next() pmetric.ResourceMetrics {
	if m.spare {
		m.spare = false
		return m.out.At(m.out.Len() - 1)
	}
	return m.out.AppendEmpty()
}

// resource appends a resource unless nothing is said of it or it is not to be kept.
func (m *emission) resource(attributes, metrics int, describe func(pcommon.Map), measure func(pmetric.MetricSlice)) {
	rm := m.next()
	attrs := rm.Resource().Attributes()
	attrs.EnsureCapacity(attributes)
	describe(attrs)
	if m.Attributes.EnergySource && m.Source != "" {
		attrs.PutStr("energy.source", string(m.Source))
	}
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Metrics().EnsureCapacity(metrics)
	measure(sm.Metrics())
	if sm.Metrics().Len() == 0 || (m.Keep != nil && !m.Keep(rm.Resource())) {
		attrs.Clear()
		rm.ScopeMetrics().RemoveIf(func(pmetric.ScopeMetrics) bool { return true })
		m.spare = true
		return
	}
	rm.SetSchemaUrl(schemaURL)
	sm.Scope().SetName(m.Scope)
	sm.Scope().SetVersion(m.Version)
}

func (m *emission) hardware(into pmetric.MetricSlice, zones []power.Zone) {
	energy := [2]points{{metric: &hwEnergy}, {metric: &hwHostEnergy}}
	watts := [2]points{{metric: &hwPower}, {metric: &hwHostPower}}
	on := [2]struct{ energy, power bool }{
		{m.Metrics.HwEnergy, m.Metrics.HwPower}, {m.Metrics.HwHostEnergy, m.Metrics.HwHostPower},
	}
	for i := range on {
		energy[i].into, energy[i].most = into, len(zones)
		watts[i].into, watts[i].most = into, len(zones)
	}
	for i := range zones {
		if i >= len(m.ledger.Zones) {
			break
		}
		z := &m.ledger.Zones[i]
		ended := z.Ended || m.final
		if !z.Present || z.Delivered {
			continue
		}
		if !ended && z.RecentTime == 0 && z.Unread > 0 {
			continue // not read in this collection: what its counter says now is not known
		}
		which := 0
		if zones[i].Kind == power.PSys {
			which = 1
		}
		describe := func(p pmetric.NumberDataPoint) {
			p.Attributes().EnsureCapacity(4)
			p.Attributes().PutStr(attrHwID, zones[i].ID)
			if which == 0 {
				p.Attributes().PutStr(attrHwType, hardwareType(zones[i].Kind))
				p.Attributes().PutStr(attrHwName, zones[i].Name)
				if zones[i].Parent != "" {
					p.Attributes().PutStr(attrHwParent, zones[i].Parent)
				}
			}
		}
		at := pcommon.NewTimestampFromTime(z.At)
		if on[which].energy {
			describe(energy[which].add(pcommon.NewTimestampFromTime(z.Start), at, z.Energy.Joules()))
		}
		switch {
		case !on[which].power:
		case ended:
			describe(watts[which].end(m.at))
		case z.RecentTime > 0:
			describe(watts[which].add(0, at, units.Watts(z.Recent, z.RecentTime)))
		}
	}
}

// hardwareType maps a zone to the hw.type of the semantic conventions.
func hardwareType(k power.Kind) string {
	if k == power.DRAM {
		return "memory"
	}
	return "cpu"
}

func (m *emission) system(into pmetric.MetricSlice) {
	kinds := len(m.Kinds)
	energy := points{metric: &systemEnergy, into: into, most: 2 * kinds}
	watts := points{metric: &systemPower, into: into, most: 2 * kinds}
	unattributed := points{metric: &systemUnattributed, into: into, most: 2 * kinds}
	learned := points{metric: &systemSplitLearned, into: into, most: kinds}
	for i, name := range m.Kinds {
		k := &m.ledger.Kinds[i]
		if !k.Present {
			continue
		}
		start := pcommon.NewTimestampFromTime(k.Start)
		states := [...]struct {
			name          string
			total, recent units.Energy
		}{{stateActive, k.Active, k.RecentActive}, {stateIdle, k.Idle, k.RecentIdle}}
		for _, s := range states {
			describe := func(p pmetric.NumberDataPoint) {
				p.Attributes().EnsureCapacity(2)
				p.Attributes().PutStr(attrEnergyZone, string(name))
				p.Attributes().PutStr(attrEnergyState, s.name)
			}
			if m.Metrics.SystemEnergy {
				describe(energy.add(start, m.at, s.total.Joules()))
			}
			switch {
			case !m.Metrics.SystemPower:
			case m.final:
				describe(watts.end(m.at))
			case m.measured(i):
				describe(watts.add(0, m.at, units.Watts(s.recent, k.RecentTime)))
			}
		}
		if m.Metrics.SystemUnattributedEnergy {
			m.label(unattributed.add(start, m.at, k.Unattributed.Joules()), name, stateActive)
			if m.Idle {
				m.label(unattributed.add(start, m.at, k.UnattributedIdle.Joules()), name, stateIdle)
			}
		}
		switch {
		case !m.Metrics.SystemSplitLearned || k.Standing == attribution.NothingToLearn:
		case m.final:
			learned.end(m.at).Attributes().PutStr(attrEnergyZone, string(name))
		default:
			value := 0.0
			if k.Standing == attribution.Learned {
				value = 1
			}
			learned.add(0, m.at, value).Attributes().PutStr(attrEnergyZone, string(name))
		}
	}
	utilization := points{metric: &systemCPUUtilization, into: into, most: 1}
	switch {
	case !m.Metrics.SystemCPUUtilization:
	case m.final:
		utilization.end(m.at)
	case m.ledger.Total > 0:
		utilization.add(0, m.at, float64(m.ledger.Busy)/float64(m.ledger.Total))
	}
}

func (m *emission) cpus(into pmetric.MetricSlice) {
	if !m.Metrics.SystemCPUInfo {
		return
	}
	info := points{metric: &systemCPUInfo, into: into, most: len(m.CPUs)}
	for i := range m.CPUs {
		c := &m.CPUs[i]
		var attrs pcommon.Map
		if m.final {
			attrs = info.end(m.at).Attributes()
		} else {
			attrs = info.add(0, m.at, 1).Attributes()
		}
		attrs.EnsureCapacity(5)
		attrs.PutInt(attrCPUNumber, int64(c.Number))
		for _, a := range [...]struct{ key, value string }{
			{attrCPUVendor, c.Vendor}, {attrCPUModel, c.Model}, {attrCPUPackage, c.Package}, {attrCPUCore, c.Core},
		} {
			if a.value != "" {
				attrs.PutStr(a.key, a.value)
			}
		}
	}
}

// measured says whether the collection has energy of a kind to make an average power of.
func (m *emission) measured(kind int) bool { return m.ledger.Kinds[kind].RecentTime > 0 }

// label says what a point is of. The state is only told where it is not the only one.
func (m *emission) label(p pmetric.NumberDataPoint, kind power.Kind, state string) {
	p.Attributes().EnsureCapacity(2)
	p.Attributes().PutStr(attrEnergyZone, string(kind))
	if m.Idle {
		p.Attributes().PutStr(attrEnergyState, state)
	}
}

// entityMetrics are the metrics of one entity; cpuTime is nil where there is none.
type entityMetrics struct {
	energy, power, uncertainty, cpuTime         *metric
	energyOn, powerOn, uncertaintyOn, cpuTimeOn bool
}

func (m *emission) metricsOf(e attribution.Entity) entityMetrics {
	on := &m.Metrics
	switch e {
	case attribution.Process:
		return entityMetrics{
			&processEnergy, &processPower, &processUncertainty, &processCPUTime,
			on.ProcessEnergy, on.ProcessPower, on.ProcessPowerUncertainty, on.ProcessCPUTime,
		}
	case attribution.Container:
		return entityMetrics{
			&containerEnergy, &containerPower, &containerUncertainty, &containerCPUTime,
			on.ContainerEnergy, on.ContainerPower, on.ContainerPowerUncertainty, on.ContainerCPUTime,
		}
	case attribution.Pod:
		return entityMetrics{&podEnergy, &podPower, &podUncertainty, nil, on.PodEnergy, on.PodPower, on.PodPowerUncertainty, false}
	default:
		return entityMetrics{&vmEnergy, &vmPower, &vmUncertainty, nil, on.VMEnergy, on.VMPower, on.VMPowerUncertainty, false}
	}
}

func (m *emission) account(a *attribution.Account) {
	which := m.metricsOf(a.Entity)
	if !which.energyOn && !which.powerOn && !which.uncertaintyOn && !which.cpuTimeOn {
		return
	}
	attributes := 4
	if a.Entity == attribution.Process {
		attributes = 9
	}
	m.resource(attributes, 4, func(attrs pcommon.Map) { m.describe(a, attrs) }, func(into pmetric.MetricSlice) {
		most := len(m.Kinds)
		if m.Idle {
			most *= 2
		}
		energy := points{metric: which.energy, into: into, most: most}
		watts := points{metric: which.power, into: into, most: most}
		uncertain := points{metric: which.uncertainty, into: into, most: len(m.Kinds)}
		start := pcommon.NewTimestampFromTime(a.Start)
		for i, kind := range m.Kinds {
			k := &m.ledger.Kinds[i]
			if !k.Present {
				continue
			}
			if which.energyOn {
				m.label(energy.add(start, m.at, a.Energy[i].Joules()), kind, stateActive)
				if m.Idle {
					m.label(energy.add(start, m.at, a.Idle[i].Joules()), kind, stateIdle)
				}
			}
			if a.Ended || m.final {
				if a.Reported {
					m.endPower(i, which, &watts, &uncertain)
				}
				continue
			}
			if !m.measured(i) {
				continue
			}
			if which.powerOn {
				m.label(watts.add(0, m.at, units.Watts(a.Recent[i], k.RecentTime)), kind, stateActive)
				if m.Idle {
					m.label(watts.add(0, m.at, units.Watts(a.RecentIdle[i], k.RecentTime)), kind, stateIdle)
				}
			}
			if which.uncertaintyOn && k.Standing == attribution.Learned && k.Spread >= 0 && k.RecentActive > 0 {
				share := a.Recent[i].Joules() / k.RecentActive.Joules()
				uncertain.add(0, m.at, k.Spread*share).Attributes().PutStr(attrEnergyZone, string(kind))
			}
		}
		if which.cpuTimeOn {
			cpuTime := points{metric: which.cpuTime, into: into, most: 1}
			cpuTime.add(start, m.at, a.CPU.Seconds())
		}
	})
}

// endPower ends the gauges of an account and a kind.
func (m *emission) endPower(kind int, which entityMetrics, watts, uncertain *points) {
	name := m.Kinds[kind]
	if which.powerOn {
		m.label(watts.end(m.at), name, stateActive)
		if m.Idle {
			m.label(watts.end(m.at), name, stateIdle)
		}
	}
	if which.uncertaintyOn && m.ledger.Kinds[kind].Standing == attribution.Learned {
		uncertain.end(m.at).Attributes().PutStr(attrEnergyZone, string(name))
	}
}

func (m *emission) describe(a *attribution.Account, attrs pcommon.Map) {
	put := func(on bool, key, value string) {
		if on && value != "" {
			attrs.PutStr(key, value)
		}
	}
	on, o := &m.Attributes, &a.Owner
	if a.Other {
		switch a.Entity {
		case attribution.Process:
			put(on.ProcessExecutableName, "process.executable.name", OthersName)
		case attribution.Container:
			put(on.ContainerID, "container.id", OthersName)
		case attribution.Pod:
			put(on.PodUID, "k8s.pod.uid", OthersName)
		default:
			put(on.VMID, "vm.id", OthersName)
		}
		return
	}
	if a.Entity == attribution.Process {
		if on.ProcessPID {
			attrs.PutInt("process.pid", int64(o.Process.PID))
		}
		put(on.ProcessCreationTime, "process.creation.time", o.Process.Created)
		put(on.ProcessExecutableName, "process.executable.name", o.Process.Executable)
		put(on.ProcessExecutablePath, "process.executable.path", o.Process.Path)
		put(on.ProcessCommandLine, "process.command_line", o.Process.CommandLine)
	}
	put(on.ContainerID, "container.id", o.Container.ID)
	put(on.PodUID, "k8s.pod.uid", o.Pod.UID)
	put(on.VMID, "vm.id", o.VM.ID)
	switch a.Entity {
	case attribution.Container:
		put(on.ContainerRuntimeName, "container.runtime.name", o.Container.Runtime)
	case attribution.Pod:
		put(on.PodQoSClass, "k8s.pod.qos_class", o.Pod.QoSClass)
	case attribution.VM:
		put(on.VMName, "vm.name", o.VM.Name)
		put(on.VMHypervisor, "vm.hypervisor", o.VM.Hypervisor)
	}
}
