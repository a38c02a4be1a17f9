// SPDX-License-Identifier: Apache-2.0

package main

const confighttpURL = "https://github.com/open-telemetry/opentelemetry-collector/blob/main/config/confighttp/README.md#client-configuration"

// A note adds to the description of a setting. All fields are optional.
type note struct {
	doc      string // replaces the doc comment, which is the collector's
	fallback string // the effective default, if it is not the zero value
	link     string // the explanation
}

const unset = "not set"

// notes holds the notes by the path of the setting.
var notes = map[string]note{
	"collection_interval": {doc: "The time between two collections."},
	"initial_delay":       {doc: "The time from the start to the first collection."},
	"timeout":             {doc: "The time limit of a collection. 0s sets no limit."},
	"root_path":           {link: "permissions.md#grant-the-privileges"},
	"storage":             {fallback: unset, link: "production.md#restarts"},
	"zones":               {link: "metrics.md#what-may-be-added"},
	"cpu_time":            {link: "#cpu-time-source-and-windows"},
	"window":              {link: "#cpu-time-source-and-windows"},

	"meters":                        {link: "hardware.md#which-meter-is-used"},
	"meters::powercap":              {link: "hardware.md#powercap"},
	"meters::hwmon":                 {link: "hardware.md#hwmon"},
	"meters::hwmon::sensors":        {link: "hardware.md#sensors-of-other-chips"},
	"meters::ipmi":                  {link: "hardware.md#ipmi"},
	"meters::gpu":                   {link: "gpus.md#nvidia"},
	"meters::redfish":               {link: "hardware.md#redfish"},
	"meters::redfish::endpoint":     {doc: "The address of the BMC, such as `https://bmc.example`, without a path, user or password."},
	"meters::redfish::timeout":      {doc: "The time limit of a request."},
	"meters::vsock":                 {link: "virtual-machines.md#export-to-guests-by-vsock"},
	"meters::http/NAME":             {link: "hardware.md#http"},
	"meters::http/NAME::endpoint":   {doc: "The http or https address of the document."},
	"meters::http/NAME::timeout":    {doc: "The time limit of a request."},
	"meters::modbus/NAME":           {link: "hardware.md#modbus"},
	"meters::nut/NAME":              {link: "hardware.md#nut"},
	"model":                         {link: "power-models.md"},
	"model::idle_power":             {fallback: unset},
	"model::max_power":              {fallback: unset},
	"model::points::0::utilization": {fallback: unset},
	"model::points::0::power":       {fallback: unset},
	"model::memory_power":           {fallback: "of the model"},
	"model::idle":                   {link: "virtual-machines.md#idle-power"},
	"series":                        {link: "metrics.md#number-of-series"},
	"series::processes::group_by":   {fallback: "both"},
	"names":                         {link: "#names-of-containers"},
	"attribution":                   {link: "attribution.md"},
	"attribution::preset":           {fallback: unset, link: "attribution.md#presets"},
	"attribution::exclude::cgroup":  {link: "attribution.md#exclusion"},
	"attribution::scope":            {fallback: "`zone`", link: "attribution.md#scope"},
	"attribution::static_power":     {fallback: "`trained`", link: "attribution.md#static-power"},
	"attribution::weight":           {fallback: "`frequency_squared`; for dram `cache_misses`", link: "attribution.md#attribution-weight"},
	"attribution::smt_weight":       {fallback: "`0.6`", link: "attribution.md#threads-that-share-a-core"},
	"attribution::interrupts":       {fallback: "`unattributed`", link: "attribution.md#interrupts"},
	"attribution::idle":             {fallback: "`none`", link: "attribution.md#idle-allocation"},

	"attribution::static_power::package::power": {fallback: unset},
	"attribution::smartwatts::tdp":              {fallback: unset},
}

// examples holds an example of each section, below receivers: energy:.
var examples = map[string]string{
	"meters": `meters:
  use: [powercap, perf]
  redfish: {endpoint: https://bmc.example, username: energy, password_file: /etc/otelcol-energy/password}`,
	"model":  `model: {points: [{utilization: 0, power: 62}, {utilization: 0.3, power: 118}, {utilization: 1, power: 189}]}`,
	"series": `series: {processes: {max: 20}, containers: {max: 500}}`,
	"names":  `names: {paths: {docker: ""}}`,
	"attribution": `attribution:
  static_power: {all: trained, psys: {model: fixed, power: 55}}
  idle: used`,
}
