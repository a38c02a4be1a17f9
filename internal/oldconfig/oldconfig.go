// SPDX-License-Identifier: Apache-2.0

// Package oldconfig recognizes settings of the energy receiver and the emissions processor from
// before configuration version 1.
package oldconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// setting is a former setting and what replaces it. "::" separates the keys of nested sections.
type setting struct{ old, now string }

// receiver lists the former settings of the energy receiver.
var receiver = []setting{
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
	{"phases", "removed: energy measure --node reports the whole machine by phase"},
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

// emissions lists the former settings of the emissions processor.
var emissions = []setting{
	{"forget_after", "now max_staleness"},
	{"intensity::prometheus::interval", "now intensity::prometheus::poll_interval"},
	{"intensity::signal", "now intensity::type"},
	{"metrics::electricity.price", "removed together with price"},
	{"metrics::electricity.pue", "removed: the gauge repeated pue"},
	{"price", "removed: Prometheus rules compute cost, see docs/carbon.md#cost"},
}

// Check returns an error that lists all former settings in a configuration of the energy receiver
// with their replacements, or nil if there are none.
func Check(conf map[string]any) error {
	found := find(receiver, conf)
	attribution, _ := conf["attribution"].(map[string]any)
	if attribution["preset"] == "accurate" {
		found = append(found, "attribution::preset: accurate: removed: its rules are the default, "+
			"and window: 100ms keeps its windows")
	}
	static, _ := attribution["static_power"].(map[string]any)
	for _, zone := range slices.Sorted(maps.Keys(static)) {
		if watts := static[zone]; isNumber(watts) {
			found = append(found, fmt.Sprintf(
				"attribution::static_power::%s: now {model: fixed, power: %v}", zone, watts))
		}
	}
	return listed(found)
}

// CheckEmissions is Check for a configuration of the emissions processor.
func CheckEmissions(conf map[string]any) error { return listed(find(emissions, conf)) }

// find returns a line for each of the settings that is in conf.
func find(settings []setting, conf map[string]any) (found []string) {
	for _, s := range settings {
		if has(conf, s.old) {
			found = append(found, s.old+": "+s.now)
		}
	}
	return found
}

// has reports whether a configuration contains a setting.
func has(conf map[string]any, setting string) bool {
	name, rest, nested := strings.Cut(setting, "::")
	value, ok := conf[name]
	if !ok || !nested {
		return ok
	}
	section, _ := value.(map[string]any)
	return has(section, rest)
}

func listed(found []string) error {
	if found == nil {
		return nil
	}
	return errors.New("the configuration contains renamed or removed settings:\n  " +
		strings.Join(found, ";\n  "))
}

func isNumber(value any) bool {
	switch value.(type) {
	case int, int64, uint64, float64:
		return true
	}
	return false
}
