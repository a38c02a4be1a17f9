// SPDX-License-Identifier: Apache-2.0

package snapshot

import "github.com/prometheus/otlptranslator"

// metric is a metric of the receiver, and read adds a data point of it to a snapshot.
type metric struct {
	name, unit string
	counter    bool
	read       func(*reader, *point)
}

// prometheus returns the name of the metric in the Prometheus exporter.
func (m *metric) prometheus() string {
	translated := otlptranslator.Metric{Name: m.name, Unit: m.unit, Type: otlptranslator.MetricTypeGauge}
	if m.counter {
		translated.Type = otlptranslator.MetricTypeMonotonicCounter
	}
	name, _ := (&otlptranslator.MetricNamer{WithMetricSuffixes: true}).Build(translated)
	return name
}

// nodeMetrics are the metrics of the node, which are read before the metrics of workloads. The last two
// are metrics of the collector about itself.
var nodeMetrics = []metric{
	{NodeEnergyMetric, "J", true, (*reader).nodeEnergy},
	{UnattributedMetric, "J", true, (*reader).unattributed},
	{"system.power", "W", false, (*reader).nodePower},
	{"system.power.uncertainty", "W", false, (*reader).uncertainty},
	{"system.cpu.busy", "1", false, (*reader).utilization},
	{"hw.energy", "J", true, (*reader).meterEnergy},
	{"hw.host.energy", "J", true, notPSys((*reader).meterEnergy)},
	{"hw.power", "W", false, (*reader).meterPower},
	{"hw.host.power", "W", false, notPSys((*reader).meterPower)},
	{"hw.gpu.utilization", "1", false, (*reader).meterUtilization},
	{"otelcol_receiver_energy_condition", "1", false, (*reader).condition},
	{"otelcol_receiver_energy_model_expected_error", "1", false, (*reader).expectedError},
}

// notPSys skips the points of hw.host.* that repeat psys, which is a meter of hw.energy and hw.power.
func notPSys(read func(*reader, *point)) func(*reader, *point) {
	return func(r *reader, p *point) {
		if p.labels[attrMeterID] != "psys" {
			read(r, p)
		}
	}
}

// kindMetrics are the prefixes of the metrics of each kind.
var kindMetrics = [NumKinds]string{"process", "container", "k8s.pod", "vm", "systemd.unit", "slurm.step"}

// NodeEnergyMetric and UnattributedMetric are the OTLP names of the counters of a node's energy and
// of its unattributed energy.
const (
	NodeEnergyMetric   = "system.energy"
	UnattributedMetric = "system.unattributed.energy"
)

// EnergyMetric returns the OTLP name of the energy counter of a kind of workload.
func (k Kind) EnergyMetric() string { return kindMetrics[k] + ".energy" }

// workloadMetrics are the metrics of workloads.
var workloadMetrics = func() (all []metric) {
	for kind, prefix := range kindMetrics {
		all = append(all,
			metric{Kind(kind).EnergyMetric(), "J", true, func(r *reader, p *point) { r.workloadEnergy(Kind(kind), p) }},
			metric{prefix + ".power", "W", false, func(r *reader, p *point) { r.workloadPower(Kind(kind), p) }},
			metric{prefix + ".cpu.time", "s", true, func(r *reader, p *point) { r.workloadTime(Kind(kind), p) }},
		)
	}
	return all
}()

// Attributes of data points, zones and meters.
const (
	attrZone = numAttributes + iota
	attrMethod
	attrState
	attrHost
	attrMeterID
	attrMeterName
	attrMeterType
	attrMeterParent
	attrCondition
	numLabels
)

// attributes has the attribute of each name of a resource or data point attribute.
var attributes = map[string]Attribute{
	"process.pid":             PID,
	"process.creation.time":   Created,
	"process.executable.name": Executable,
	"process.executable.path": Path,
	"process.command_line":    CommandLine,
	"process.parent_pid":      ParentPID,
	"process.owner":           Owner,
	"process.descendants":     Descendants,
	"container.id":            ContainerID,
	"container.name":          ContainerName,
	"k8s.container.name":      ContainerName,
	"container.image.name":    Image,
	"container.runtime.name":  Runtime,
	"k8s.pod.uid":             PodUID,
	"k8s.pod.name":            PodName,
	"k8s.namespace.name":      Namespace,
	"k8s.pod.qos_class":       QoSClass,
	"vm.id":                   VMID,
	"vm.name":                 VMName,
	"vm.hypervisor":           Hypervisor,
	"systemd.unit.name":       UnitName,
	"slurm.job.id":            JobID,
	"slurm.step.id":           StepID,
	"otel.metric.overflow":    Overflow,
	"energy.zone":             attrZone,
	"energy.method":           attrMethod,
	"energy.state":            attrState,
	"host.name":               attrHost,
	"hw.id":                   attrMeterID,
	"hw.name":                 attrMeterName,
	"hw.type":                 attrMeterType,
	"hw.parent":               attrMeterParent,
	"condition":               attrCondition,
}

// prometheusAttributes has the attribute of each label of the Prometheus exporter.
var prometheusAttributes = func() map[string]Attribute {
	all := make(map[string]Attribute, len(attributes))
	for name, attribute := range attributes {
		label, _ := (&otlptranslator.LabelNamer{}).Build(name)
		all[label] = attribute
	}
	return all
}()

// ofProcess are the attributes that differ among the processes of a program.
var ofProcess = [...]Attribute{PID, Created, Path, CommandLine, ParentPID}

// Program returns the identity of the program of a process.
func (i Identity) Program() Identity {
	for _, attribute := range ofProcess {
		i[attribute] = ""
	}
	return i
}

// IsOverflow reports whether a row is the sum of all workloads of a kind that have neither a row nor
// a row of their program.
func (i *Identity) IsOverflow() bool { return i[Overflow] == "true" && i[Executable] == "" }
