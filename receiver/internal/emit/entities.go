// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// entity says how the accounts of one entity are emitted.
type entity struct {
	prefix     string                   // of the names of its metrics
	other      string                   // the attribute that is OthersName in the series of those that have none of their own
	attributes [maxAttributes]attribute // of its resources
}

// maxAttributes is how many attributes a resource may have.
const maxAttributes = 12

// attribute is an attribute of a resource. It has a text or a number.
type attribute struct {
	key           string
	text          func(*attribution.Owner) string // left out where it is empty
	number        func(*attribution.Owner) int64
	distinguishes bool // without it, different entities have the same series
}

// OthersName is the process.executable.name, container.id, k8s.pod.uid or vm.id of the series of all processes,
// containers, pods or VMs that have none of their own.
const OthersName = "other"

// entities has one entry for each entity. Its metrics are those of metadata.yaml that are named prefix.energy,
// prefix.power, prefix.power.uncertainty and prefix.cpu.time.
var entities = [len(attribution.Limits{})]entity{
	attribution.Process: {prefix: "process", other: "process.executable.name", attributes: [maxAttributes]attribute{
		{key: "process.pid", number: func(o *attribution.Owner) int64 { return int64(o.Process.PID) }, distinguishes: true},
		{key: "process.creation.time", text: func(o *attribution.Owner) string { return o.Process.Created }, distinguishes: true},
		{key: "process.executable.name", text: func(o *attribution.Owner) string { return o.Process.Executable }},
		{key: "process.executable.path", text: func(o *attribution.Owner) string { return o.Process.Path }},
		{key: "process.command_line", text: func(o *attribution.Owner) string { return o.Process.CommandLine }},
		{key: "container.id", text: containerID},
		{key: "k8s.pod.uid", text: podUID},
		{key: "vm.id", text: vmID},
		{key: "slurm.job.id", text: jobID},
		{key: "slurm.job.step", text: jobStep},
		{key: "systemd.unit.name", text: unitName},
	}},
	attribution.Container: {prefix: "container", other: "container.id", attributes: [maxAttributes]attribute{
		{key: "container.id", text: containerID, distinguishes: true},
		{key: "k8s.pod.uid", text: podUID},
		{key: "container.runtime.name", text: func(o *attribution.Owner) string { return o.Container.Runtime }},
	}},
	attribution.Pod: {prefix: "k8s.pod", other: "k8s.pod.uid", attributes: [maxAttributes]attribute{
		{key: "k8s.pod.uid", text: podUID, distinguishes: true},
		{key: "k8s.pod.qos_class", text: func(o *attribution.Owner) string { return o.Pod.QoSClass }},
	}},
	attribution.VM: {prefix: "vm", other: "vm.id", attributes: [maxAttributes]attribute{
		{key: "vm.id", text: vmID, distinguishes: true},
		{key: "vm.name", text: func(o *attribution.Owner) string { return o.VM.Name }},
		{key: "vm.hypervisor", text: func(o *attribution.Owner) string { return o.VM.Hypervisor }},
	}},
	attribution.SlurmStep: {prefix: "slurm.job", other: "slurm.job.id", attributes: [maxAttributes]attribute{
		{key: "slurm.job.id", text: jobID, distinguishes: true},
		{key: "slurm.job.step", text: jobStep, distinguishes: true},
	}},
	attribution.SystemdUnit: {prefix: "systemd.unit", other: "systemd.unit.name", attributes: [maxAttributes]attribute{
		{key: "systemd.unit.name", text: unitName, distinguishes: true},
	}},
}

func containerID(o *attribution.Owner) string { return o.Container.ID }
func podUID(o *attribution.Owner) string      { return o.Pod.UID }
func vmID(o *attribution.Owner) string        { return o.VM.ID }
func jobID(o *attribution.Owner) string       { return o.Job.ID }
func jobStep(o *attribution.Owner) string     { return o.Job.Step }
func unitName(o *attribution.Owner) string    { return o.Unit.Name }

// EntityName returns the prefix of the names of an entity's metrics, such as process or k8s.pod.
func EntityName(e attribution.Entity) string { return entities[e].prefix }

// entityMetrics are the enabled metrics and attributes of one entity.
type entityMetrics struct {
	energy, power, uncertainty, cpuTime *metric
	attributes                          []attribute
	other                               string // empty if it is disabled
}

func (e *entity) metrics(metrics map[string]*metric, settings map[string]metadata.ResourceAttributeConfig) entityMetrics {
	out := entityMetrics{
		energy:      metrics[e.prefix+".energy"],
		power:       metrics[e.prefix+".power"],
		uncertainty: metrics[e.prefix+".power.uncertainty"],
		cpuTime:     metrics[e.prefix+".cpu.time"],
		attributes:  slices.DeleteFunc(slices.Clone(e.attributes[:]), func(a attribute) bool { return !settings[a.key].Enabled }),
	}
	if settings[e.other].Enabled {
		out.other = e.other
	}
	return out
}

// any reports whether a metric is enabled.
func (e *entityMetrics) any() bool {
	return e.energy != nil || e.power != nil || e.uncertainty != nil || e.cpuTime != nil
}

// describe writes the attributes of an account's resource.
func (e *entityMetrics) describe(a *attribution.Account, into pcommon.Map) {
	if a.Other {
		if e.other != "" {
			into.PutStr(e.other, OthersName)
		}
		return
	}
	var known [maxAttributes]label
	n := 0
	for i := range e.attributes {
		if at := &e.attributes[i]; at.number != nil {
			known[n] = label{key: at.key, number: at.number(&a.Owner)}
			n++
		} else if text := at.text(&a.Owner); text != "" {
			known[n] = label{key: at.key, text: text}
			n++
		}
	}
	put(known[:n], into)
}

func (m *emission) emitAccount(a *attribution.Account) {
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
	uncertainty := writer{metric: e.uncertainty, into: into, most: len(m.kinds)}
	start := pcommon.NewTimestampFromTime(a.Start)
	for i := range m.kinds {
		k := &m.ledger.Kinds[i]
		if !k.Present {
			continue
		}
		if !k.Ended || a.Energy[i] > 0 || a.Idle[i] > 0 { // else it has nothing of the kind, and never will
			energy.write(m.kinds[i].attributed, start, m.at, a.Energy[i].Joules())
			if m.idle {
				energy.write(m.kinds[i].idle, start, m.at, a.Idle[i].Joules())
			}
		}
		m.emitPower(a, i, &watts, &uncertainty)
	}
	cpuTime := writer{metric: e.cpuTime, into: into, most: 1}
	cpuTime.write(nil, start, m.at, a.CPU.Seconds())
}

// emitPower emits the gauges of an account and a kind.
func (m *emission) emitPower(a *attribution.Account, kind int, watts, uncertainty *writer) {
	k, of := &m.ledger.Kinds[kind], &m.kinds[kind]
	learned := k.Model == attribution.Trained
	ended := a.Ended || k.Ended
	switch {
	case k.Delivered || !ended && k.RecentTime == 0:
	case ended && !a.Reported:
	case ended:
		watts.end(of.attributed, m.at)
		if m.idle {
			watts.end(of.idle, m.at)
		}
		if learned {
			uncertainty.end(of.kind, m.at)
		}
	default:
		watts.write(of.attributed, 0, m.at, units.Watts(a.Recent[kind], k.RecentTime))
		if m.idle {
			watts.write(of.idle, 0, m.at, units.Watts(a.RecentIdle[kind], k.RecentTime))
		}
		if learned && k.Spread >= 0 && k.RecentActive > 0 {
			share := a.Recent[kind].Joules() / k.RecentActive.Joules()
			uncertainty.write(of.kind, 0, m.at, k.Spread*share)
		}
	}
}
