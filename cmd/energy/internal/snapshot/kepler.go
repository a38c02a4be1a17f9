// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/note"
)

// keplerMetrics are the metrics of Kepler 0.10 and later, and of deploy/kepler, by the name of the
// receiver's metric with the same meaning. Metrics of GPUs have no label for their zone.
var keplerMetrics = map[string][]struct{ name, zone, state string }{
	"system.energy": {
		{"kepler_node_cpu_active_joules_total", "", "active"}, {"kepler_node_cpu_idle_joules_total", "", "idle"},
		{"kepler_node_gpu_active_joules_total", "gpu", "active"}, {"kepler_node_gpu_idle_joules_total", "gpu", "idle"},
	},
	"system.power": {
		{"kepler_node_cpu_active_watts", "", "active"}, {"kepler_node_cpu_idle_watts", "", "idle"},
		{"kepler_node_gpu_active_watts", "gpu", "active"}, {"kepler_node_gpu_idle_watts", "gpu", "idle"},
	},
	"process.energy":     {{"kepler_process_cpu_joules_total", "", ""}, {"kepler_process_gpu_joules_total", "gpu", ""}},
	"process.power":      {{"kepler_process_cpu_watts", "", ""}, {"kepler_process_gpu_watts", "gpu", ""}},
	"process.cpu.time":   {{"kepler_process_cpu_seconds_total", "", ""}},
	"container.energy":   {{"kepler_container_cpu_joules_total", "", ""}, {"kepler_container_gpu_joules_total", "gpu", ""}},
	"container.power":    {{"kepler_container_cpu_watts", "", ""}, {"kepler_container_gpu_watts", "gpu", ""}},
	"container.cpu.time": {{"kepler_container_cpu_seconds_total", "", ""}},
	"k8s.pod.energy":     {{"kepler_pod_cpu_joules_total", "", ""}, {"kepler_pod_gpu_joules_total", "gpu", ""}},
	"k8s.pod.power":      {{"kepler_pod_cpu_watts", "", ""}, {"kepler_pod_gpu_watts", "gpu", ""}},
	"vm.energy":          {{"kepler_vm_cpu_joules_total", "", ""}},
	"vm.power":           {{"kepler_vm_cpu_watts", "", ""}},
}

// keplerAttributes has the attribute of each label of Kepler. Labels that distinguish no workload
// are left out, so that all metrics of a workload have the same identity.
var keplerAttributes = map[string]Attribute{
	"zone": attrZone, "node_name": attrHost, "pid": PID, "comm": Executable,
	"container_id": ContainerID, "container_name": ContainerName, "runtime": Runtime,
	"pod_id": PodUID, "pod_name": PodName, "pod_namespace": Namespace,
	"vm_id": VMID, "vm_name": VMName, "hypervisor": Hypervisor,
}

const keplerNote = "The metrics are Kepler's: they do not report whether energy is measured, and their sums are not exact"

var errOldKepler = errors.New("the endpoint belongs to a Kepler older than 0.10, whose metrics are not supported " +
	"(" + note.Pages + "kepler.md): measure this machine with energy top --local")

// kepler calls each with the data points of Kepler for a metric of the receiver. It leaves out
// workloads that have terminated.
func (f families) kepler(m *metric, each func(*point)) {
	for _, from := range keplerMetrics[m.name] {
	samples:
		for _, sample := range f[from.name].GetMetric() {
			p := pointOf(sample)
			for _, l := range sample.GetLabel() {
				if l.GetName() == "state" && l.GetValue() == "terminated" {
					continue samples
				}
				if attribute, ok := keplerAttributes[l.GetName()]; ok {
					p.labels[attribute] = strings.ToValidUTF8(l.GetValue(), "?")
				}
			}
			p.start, p.labels[attrState] = time.Time{}, from.state // metrics of a workload may have different starts
			if from.zone != "" {
				p.labels[attrZone] = from.zone
			}
			each(&p)
		}
	}
}

// isOldKepler reports whether the metrics are from Kepler 0.9 or older.
func (f families) isOldKepler() bool {
	for name := range f {
		if rest, ok := strings.CutPrefix(name, "kepler_"); ok {
			kind, _, _ := strings.Cut(rest, "_")
			known := slices.Contains([]string{"container", "node", "process", "vm"}, kind)
			if known && strings.HasSuffix(name, "_joules_total") {
				return true
			}
		}
	}
	return false
}
