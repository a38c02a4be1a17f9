// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// nodeMetrics are the metrics of the node itself.
type nodeMetrics struct {
	hwEnergy, hwPower, hwHostEnergy, hwHostPower *metric
	energy, power, unattributed                  *metric
	uncertainty                                  *metric
	cpuUtilization, cpuInfo, gpuUtilization      *metric
}

func newNodeMetrics(metrics map[string]*metric) nodeMetrics {
	info := &metadata.MetricsInfo
	return nodeMetrics{
		hwEnergy:       metrics[info.HwEnergy.Name],
		hwPower:        metrics[info.HwPower.Name],
		hwHostEnergy:   metrics[info.HwHostEnergy.Name],
		hwHostPower:    metrics[info.HwHostPower.Name],
		energy:         metrics[info.SystemEnergy.Name],
		power:          metrics[info.SystemPower.Name],
		uncertainty:    metrics[info.SystemPowerUncertainty.Name],
		unattributed:   metrics[info.SystemUnattributedEnergy.Name],
		cpuUtilization: metrics[info.SystemCPUBusy.Name],
		cpuInfo:        metrics[info.SystemCPUInfo.Name],
		gpuUtilization: metrics[info.HwGpuUtilization.Name],
	}
}

func (m *emission) emitNode(zones []power.Zone) {
	attributes, into := m.resource()
	if !m.filters.keep(attributes) {
		return
	}
	m.emitZones(into, zones)
	m.emitKinds(into)
	m.emitCPUs(into)
	m.emitGPUs(into, zones)
}

// hardwareTypes has the hw.type of each zone kind. Zones of other kinds are not separate hardware.
//
// If the machine has several zones of kind platform, each is a power supply with metrics hw.*. A
// single one is the whole machine, and has only metrics hw.host.*.
var hardwareTypes = map[power.Kind]metadata.AttributeHwType{
	power.Package:  metadata.AttributeHwTypeCPU,
	power.Core:     metadata.AttributeHwTypeCPU,
	power.Uncore:   metadata.AttributeHwTypeCPU,
	power.DRAM:     metadata.AttributeHwTypeMemory,
	power.PSys:     metadata.AttributeHwTypeEnclosure,
	power.Platform: metadata.AttributeHwTypePowerSupply,
	power.GPU:      metadata.AttributeHwTypeGpu,
}

// hostIDs has the hw.id of the metrics hw.host.* by the zone kind that they report. A series
// continues if another meter of the kind takes over. It cannot continue from psys to platform,
// which count different parts of the machine.
var hostIDs = map[power.Kind]string{power.Platform: "host", power.PSys: "psys"}

// emitZones emits the totals of the meters.
func (m *emission) emitZones(into pmetric.MetricSlice, zones []power.Zone) {
	zones = zones[:min(len(zones), len(m.ledger.Zones))]
	energy := writer{metric: m.node.hwEnergy, into: into, most: len(zones)}
	watts := writer{metric: m.node.hwPower, into: into, most: len(zones)}
	feeds := 0
	for i := range zones {
		if z := &m.ledger.Zones[i]; zones[i].Kind == power.Platform && z.Present && !z.Ended() {
			feeds++
		}
	}
	m.supplies = m.supplies || feeds > 1
	for i := range zones {
		zone := &zones[i]
		hw, ok := hardwareTypes[zone.Kind]
		if !ok || zone.Kind == power.Platform && !m.supplies {
			continue
		}
		labels := texts(attrEnergyZone, string(zone.Kind), attrEnergyMethod, string(zone.Method), attrHwID, zone.ID, attrHwType, hw.String(),
			attrHwName, zone.Name, attrHwParent, zone.Parent, attrHwVendor, zone.Vendor)
		m.emitZone(&m.ledger.Zones[i], labels, &energy, &watts)
	}
	m.emitHost(into, zones)
}

// emitHost emits the energy of the whole machine. It is the sum of all zones of kind platform,
// including zones that have ended. While no zone of kind platform is live, psys is emitted as the
// whole machine. The series of psys stops when a zone of kind platform begins, and continues when
// all such zones have ended.
func (m *emission) emitHost(into pmetric.MetricSlice, zones []power.Zone) {
	energy := writer{metric: m.node.hwHostEnergy, into: into, most: 1}
	watts := writer{metric: m.node.hwHostPower, into: into, most: 1}
	isPSys := m.hostIsPSys(zones)
	m.emitWhole(zones, power.Platform, true, &energy, &watts)
	if isPSys || m.wasPSys {
		m.emitWhole(zones, power.PSys, isPSys, &energy, &watts)
	}
	m.wasPSys = isPSys
}

// hostIsPSys reports whether psys is the best meter of the whole machine. Servers without a sensor
// for psys report a constant energy of 0.
func (m *emission) hostIsPSys(zones []power.Zone) bool {
	var psys units.Energy
	for i := range zones {
		switch z := &m.ledger.Zones[i]; zones[i].Kind {
		case power.Platform:
			if z.Present && !z.Ended() {
				return false
			}
		case power.PSys:
			psys += z.Energy
		}
	}
	return psys > 0
}

// emitWhole emits the sum of all zones of a kind as the whole machine, with one series for each
// method. If the kind is no longer the whole machine, the series of its power ends.
func (m *emission) emitWhole(zones []power.Zone, kind power.Kind, isWhole bool, energy, watts *writer) {
	for _, source := range []power.Method{power.Measured, power.Modeled, power.Reported} {
		var total hostTotal
		for i := range zones {
			if zones[i].Kind == kind && zones[i].Method == source {
				total.add(m.ledger, &m.ledger.Zones[i])
			}
		}
		if !total.known {
			continue
		}
		labels := texts(attrEnergyMethod, string(source), attrHwID, hostIDs[kind])
		at := pcommon.NewTimestampFromTime(total.at)
		begins := kind == power.PSys && total.energy == total.recent // until now, only the zone was emitted, not the host
		energy.zero = m.zeroPoint(total.settled && !begins, total.start)
		energy.write(labels, pcommon.NewTimestampFromTime(total.start), at, total.energy.Joules())
		switch {
		case total.live == 0 || !isWhole:
			watts.end(labels, m.at)
		case total.read == total.live: // otherwise, the power of some zones would be missing
			watts.write(labels, 0, at, total.watts)
		}
	}
}

// hostTotal adds up the zones of one kind and method.
type hostTotal struct {
	energy     units.Energy
	recent     units.Energy // of the current collection
	watts      float64
	start, at  time.Time
	settled    bool // a zone was in a settled emission
	known      bool // the total of a zone was read in the current collection
	live, read int  // number of zones that have not ended, and of those that were read
}

func (t *hostTotal) add(l *ledger.Totals, z *ledger.Zone) {
	if !z.Present {
		return
	}
	t.energy += z.Energy
	t.recent += z.Recent
	t.settled = t.settled || l.Settled(&z.Lifetime)
	if t.start.IsZero() || z.Start.Before(t.start) {
		t.start = z.Start
	}
	if z.At.After(t.at) {
		t.at = z.At
	}
	t.known = t.known || l.Known(z)
	if z.Ended() {
		return
	}
	t.live++
	if z.RecentTime > 0 {
		t.read++
		t.watts += units.Watts(z.Recent, z.RecentTime)
	}
}

func (m *emission) emitZone(z *ledger.Zone, labels []label, energy, watts *writer) {
	if !m.ledger.Known(z) {
		return
	}
	at := pcommon.NewTimestampFromTime(z.At)
	energy.zero = m.zeroPoint(m.ledger.Settled(&z.Lifetime), z.Start)
	energy.write(labels, pcommon.NewTimestampFromTime(z.Start), at, z.Energy.Joules())
	if z.Ended() {
		watts.end(labels, m.at)
	} else if z.RecentTime > 0 {
		watts.write(labels, 0, at, units.Watts(z.Recent, z.RecentTime))
	}
}

// emitKinds emits the node's energy, zones of one kind together.
func (m *emission) emitKinds(into pmetric.MetricSlice) {
	n := len(m.kinds)
	energy := writer{metric: m.node.energy, into: into, most: 2 * n}
	watts := writer{metric: m.node.power, into: into, most: 2 * n}
	uncertainty := writer{metric: m.node.uncertainty, into: into, most: n}
	unattributed := writer{metric: m.node.unattributed, into: into, most: 2 * n}
	for i := range m.kinds {
		k, of := &m.ledger.Kinds[i], &m.kinds[i]
		if !k.Present {
			continue
		}
		start := pcommon.NewTimestampFromTime(k.Start)
		energy.zero = m.zeroPoint(m.ledger.Settled(&k.Lifetime), k.Start)
		unattributed.zero = energy.zero
		energy.write(of.active, start, m.at, k.Active.Joules())
		energy.write(of.idle, start, m.at, k.Idle.Joules())
		unattributed.write(of.attributed, start, m.at, k.Unattributed.Joules())
		if m.idle {
			unattributed.write(of.idle, start, m.at, k.UnattributedIdle.Joules())
		}
		switch {
		case m.ledger.Delivered(&k.Lifetime):
		case k.Ended():
			watts.end(of.active, m.at)
			watts.end(of.idle, m.at)
		case k.RecentTime > 0:
			watts.write(of.active, 0, m.at, units.Watts(k.RecentActive, k.RecentTime))
			watts.write(of.idle, 0, m.at, units.Watts(k.RecentIdle, k.RecentTime))
		}
		m.emitUncertainty(k, of, &uncertainty)
	}
}

// emitUncertainty emits the uncertainty of the node's active power of a kind.
func (m *emission) emitUncertainty(k *ledger.KindTotals, of *kindLabels, uncertainty *writer) {
	switch {
	case m.ledger.Delivered(&k.Lifetime) || !hasUncertainty(k):
	case k.Ended():
		uncertainty.end(of.kind, m.at)
	case k.RecentTime > 0:
		uncertainty.write(of.kind, 0, m.at, k.StandardError)
	}
}

func (m *emission) emitCPUs(into pmetric.MetricSlice) {
	utilization := writer{metric: m.node.cpuUtilization, into: into, most: 1}
	info := writer{metric: m.node.cpuInfo, into: into, most: len(m.cpus)}
	if m.ledger.Total > 0 {
		utilization.write(nil, 0, m.at, float64(m.ledger.Busy)/float64(m.ledger.Total))
	}
	for _, attributes := range m.cpus {
		info.write(attributes, 0, m.at, 1)
	}
}

// emitGPUs emits the busy time of each graphics card that reports it.
func (m *emission) emitGPUs(into pmetric.MetricSlice, zones []power.Zone) {
	if m.node.gpuUtilization == nil {
		return
	}
	utilization := writer{metric: m.node.gpuUtilization, into: into, most: len(zones)}
	for i := range zones[:min(len(zones), len(m.ledger.Zones))] {
		zone, z := &zones[i], &m.ledger.Zones[i]
		if zone.Kind != power.GPU || !z.Present || m.ledger.Delivered(&z.Lifetime) {
			continue
		}
		labels := texts(attrHwID, zone.ID, attrHwName, zone.Name, attrHwType, metadata.AttributeHwTypeGpu.String(),
			attrHwVendor, zone.Vendor, attrHwGpuTask, metadata.AttributeHwGpuTaskGeneral.String())
		switch t := m.domainTime(zone.Domain); {
		case z.Ended():
			utilization.end(labels, m.at)
		case t.Total > 0:
			utilization.write(labels, 0, m.at, float64(t.Busy)/float64(t.Total))
		}
	}
}

// domainTime returns the times of a domain in the current collection, 0 if the domain has no usage.
func (m *emission) domainTime(d units.Domain) attribution.DomainTime {
	if i := slices.Index(m.domains, d); i >= 0 && i < len(m.ledger.Domains) {
		return m.ledger.Domains[i]
	}
	return attribution.DomainTime{}
}

func (c *CPU) labels() []label {
	known := texts(attrCPUVendor, c.Vendor, attrCPUModel, c.Model, attrCPUPackage, c.Package, attrCPUCore, c.Core)
	return append(known, label{key: attrCPUNumber, number: int64(c.Number)})
}
