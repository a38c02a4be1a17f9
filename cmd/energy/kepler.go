// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// keplerMetrics are the metrics of Kepler 0.10 and later, and those of deploy/kepler, with the
// names that snapshotOf reads.
var keplerMetrics = []struct {
	kepler, name string
	labels       map[string]string // added to those of the metric
}{
	{"kepler_node_cpu_active_joules_total", "system_energy_joules_total", map[string]string{labelState: "active"}},
	{"kepler_node_cpu_idle_joules_total", "system_energy_joules_total", map[string]string{labelState: "idle"}},
	{"kepler_node_cpu_active_watts", "system_power_watts", map[string]string{labelState: "active"}},
	{"kepler_node_cpu_idle_watts", "system_power_watts", map[string]string{labelState: "idle"}},
	{"kepler_node_gpu_active_joules_total", "system_energy_joules_total", map[string]string{labelState: "active", labelZone: "gpu"}},
	{"kepler_node_gpu_idle_joules_total", "system_energy_joules_total", map[string]string{labelState: "idle", labelZone: "gpu"}},
	{"kepler_node_gpu_active_watts", "system_power_watts", map[string]string{labelState: "active", labelZone: "gpu"}},
	{"kepler_node_gpu_idle_watts", "system_power_watts", map[string]string{labelState: "idle", labelZone: "gpu"}},
	{"kepler_process_cpu_joules_total", "process_energy_joules_total", nil},
	{"kepler_process_cpu_watts", "process_power_watts", nil},
	{"kepler_process_gpu_joules_total", "process_energy_joules_total", map[string]string{labelZone: "gpu"}},
	{"kepler_process_gpu_watts", "process_power_watts", map[string]string{labelZone: "gpu"}},
	{"kepler_process_cpu_seconds_total", "process_cpu_time_seconds_total", nil},
	{"kepler_container_cpu_joules_total", "container_energy_joules_total", nil},
	{"kepler_container_cpu_watts", "container_power_watts", nil},
	{"kepler_container_gpu_joules_total", "container_energy_joules_total", map[string]string{labelZone: "gpu"}},
	{"kepler_container_gpu_watts", "container_power_watts", map[string]string{labelZone: "gpu"}},
	{"kepler_container_cpu_seconds_total", "container_cpu_time_seconds_total", nil},
	{"kepler_pod_cpu_joules_total", "k8s_pod_energy_joules_total", nil},
	{"kepler_pod_cpu_watts", "k8s_pod_power_watts", nil},
	{"kepler_pod_gpu_joules_total", "k8s_pod_energy_joules_total", map[string]string{labelZone: "gpu"}},
	{"kepler_pod_gpu_watts", "k8s_pod_power_watts", map[string]string{labelZone: "gpu"}},
	{"kepler_vm_cpu_joules_total", "vm_energy_joules_total", nil},
	{"kepler_vm_cpu_watts", "vm_power_watts", nil},
}

// keplerLabels are the labels of Kepler's metrics, with the names that snapshotOf reads. Labels
// that distinguish no workload are left out, so that all metrics of a workload have the same
// labels.
var keplerLabels = map[string]string{
	"zone": labelZone, "node_name": labelHost,
	"pid": labelPID, "comm": labelExecutable,
	"container_id": labelContainer, "container_name": "container_name", "runtime": "container_runtime_name",
	"pod_id": labelPod, "pod_name": "k8s_pod_name", "pod_namespace": "k8s_namespace_name",
	"vm_id": labelVM, "vm_name": "vm_name", "hypervisor": "vm_hypervisor",
}

var errOldKepler = errors.New("the endpoint is that of a Kepler older than 0.10, whose metrics energy top cannot show: " +
	"measure this machine with energy top --local, or see docs/kepler.md")

// fromKepler returns Kepler's metrics under the names that snapshotOf reads, and reports whether there are any.
func fromKepler(found map[string]*dto.MetricFamily) (translated map[string]*dto.MetricFamily, isKepler bool, err error) {
	if found["system_energy_joules_total"] != nil {
		return found, false, nil
	}
	translated = map[string]*dto.MetricFamily{}
	for _, m := range keplerMetrics {
		for _, point := range found[m.kepler].GetMetric() {
			if into := translated[m.name]; into == nil {
				translated[m.name] = &dto.MetricFamily{}
			}
			if own := translatePoint(point, m.labels); own != nil {
				translated[m.name].Metric = append(translated[m.name].Metric, own)
			}
		}
	}
	switch {
	case len(translated) > 0:
		return translated, true, nil
	case isOldKepler(found):
		return found, true, errOldKepler
	}
	return found, false, nil
}

// translatePoint returns a data point of Kepler under this program's names, nil if the workload has terminated.
func translatePoint(m *dto.Metric, added map[string]string) *dto.Metric {
	own := &dto.Metric{Counter: m.Counter, Gauge: m.Gauge, Untyped: m.Untyped, TimestampMs: m.TimestampMs}
	add := func(name, value string) {
		own.Label = append(own.Label, &dto.LabelPair{Name: &name, Value: &value})
	}
	for _, l := range m.GetLabel() {
		if l.GetName() == "state" && l.GetValue() == "terminated" {
			return nil
		}
		if name := keplerLabels[l.GetName()]; name != "" && added[name] == "" && l.GetValue() != "" {
			add(name, l.GetValue())
		}
	}
	for name, value := range added {
		add(name, value)
	}
	return own
}

// isOldKepler reports whether metrics are those of Kepler 0.9 or older.
func isOldKepler(found map[string]*dto.MetricFamily) bool {
	for name := range found {
		if rest, ok := strings.CutPrefix(name, "kepler_"); ok {
			kind, _, _ := strings.Cut(rest, "_")
			if slices.Contains([]string{"container", "node", "process", "vm"}, kind) && strings.HasSuffix(name, "_joules_total") {
				return true
			}
		}
	}
	return false
}
