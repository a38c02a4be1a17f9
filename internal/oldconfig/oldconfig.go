// SPDX-License-Identifier: Apache-2.0

// Package oldconfig recognizes configurations of the energy receiver and the emissions processor from before configuration version 1, and
// converts them.
package oldconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// moves lists the former settings with their new places.
var moves = []struct{ old, now string }{
	{"meter", "now meters::use, a list"},
	{"ipmi::interval", "now meters::ipmi::poll_interval"},
	{"powercap_path", "now meters::powercap::path"},
	{"hypervisor::vsock_port", "now meters::vsock::port"},
	{"guests", "now the extension energyguests: path and vsock::port are its settings"},
	{"hwmon::sensors", "now meters::hwmon::sensors, a map from chip/device/sensor to zone"},
	{"gpu::extensions", "now meters::gpu::extensions"},
	{"gpu::interval", "now meters::gpu::poll_interval"},
	{"http", "now meters::http/NAME, one section each, with poll_interval in place of interval"},
	{"redfish", "now meters::redfish, with poll_interval in place of interval"},
	{"model::auto", "now model: auto, or a map without idle_power, max_power, points and file"},
	{"model::shape", "removed: use model::points"},
	{"sampling_interval", "now window"},
	{"processes", "now series::processes"},
	{"containers", "now series::containers, without min_energy"},
	{"pods", "now series::pods, without min_energy"},
	{"vms", "now series::vms, without min_energy"},
	{"zero_points", "removed: new series always start with a zero-value point"},
	{"phases", "removed: energy measure -node reports the whole machine by phase"},
	{"metrics::system.phase.energy", "removed together with phases"},
	{"metrics::system.phase.time", "removed together with phases"},
	{"metrics::slurm.job.energy", "now metrics::slurm.step.energy"},
	{"metrics::slurm.job.power", "now metrics::slurm.step.power"},
	{"metrics::system.cpu.utilization", "now metrics::system.cpu.busy"},
	{"metrics::system.energy.split.learned", "removed: the internal metric otelcol_receiver_energy_static_power_state replaces it"},
	{"resource_attributes::slurm.job.step", "now resource_attributes::slurm.step.id"},
	{"names::from", "now names::paths, in which an empty path disables a source"},
	{"names::directories", "now names::paths"},
	{"attribution::state_file", "now storage, a directory"},
	{"attribution::split", "now attribution::static_power, with trained in place of learned"},
	{"attribution::splits", "now attribution::static_power, with trained in place of learned"},
	{"attribution::rest_utilization", "removed: 0.05"},
	{"attribution::base_time", "removed: 5m"},
	{"attribution::regression_degree", "removed: the static power model regression_cubic has degree 3"},
	{"attribution::regression_samples", "removed: 10"},
	{"attribution::key", "now attribution::weight"},
	{"attribution::keys", "now attribution::weight"},
	{"attribution::frequency_exponent", "now the weights frequency_squared and frequency_cubed of attribution::weight"},
	{"attribution::memory_size", "removed: resident memory"},
	{"attribution::idle_among", "now the values equal and equal_containers of attribution::idle"},
	{"attribution::cpu_weight", "now the values requested and requested_linear of attribution::idle"},
	{"attribution::exclude::container_id", "now attribution::exclude::cgroup: the paths contain the IDs"},
	{"attribution::exclude::pod_uid", "now attribution::exclude::cgroup: the paths contain the UIDs"},
}

// Check returns an error that lists all former settings in a configuration of the energy receiver with their new places. It
// returns nil if there are none.
func Check(conf map[string]any) error {
	var found []string
	for _, move := range moves {
		if has(conf, move.old) {
			found = append(found, move.old+": "+move.now)
		}
	}
	attribution, _ := conf["attribution"].(map[string]any)
	if attribution["preset"] == "accurate" {
		found = append(found, "attribution::preset: accurate: removed: its rules are the default, and window: 100ms keeps its windows")
	}
	static, _ := attribution["static_power"].(map[string]any)
	for _, zone := range slices.Sorted(maps.Keys(static)) {
		if watts := static[zone]; isNumber(watts) {
			found = append(found, fmt.Sprintf("attribution::static_power::%s: now {model: fixed, power: %v}", zone, watts))
		}
	}
	if found == nil {
		return nil
	}
	return fmt.Errorf("the configuration contains renamed or removed settings, which `energy convert FILE` converts:\n  %s", strings.Join(found, ";\n  "))
}

func isNumber(value any) bool {
	switch value.(type) {
	case int, int64, uint64, float64:
		return true
	}
	return false
}
