// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// MetersConfig selects and configures the meters. A meter without settings needs no section.
type MetersConfig struct {
	// Use lists the local meters in order of preference. For each zone kind, the receiver reads the
	// first meter that works. If the list is empty, the receiver reads no local meter.
	Use []MeterKind `mapstructure:"use"`
	// Powercap configures the meter powercap, which reads RAPL below /sys/class/powercap.
	Powercap PowercapConfig `mapstructure:"powercap"`
	// Hwmon configures the meter hwmon, which reads sensors below /sys/class/hwmon. lag, factor and
	// offset apply to zones of the whole machine.
	Hwmon HwmonConfig `mapstructure:"hwmon"`
	// IPMI configures the meter ipmi, which reads the power of the machine from its BMC through
	// DCMI. poll_interval is at least 5s.
	IPMI IPMIConfig `mapstructure:"ipmi"`
	// GPU configures the extensions that read GPUs. poll_interval is from 100ms to 5s.
	GPU GPUConfig `mapstructure:"gpu"`
	// Redfish reads the power of this machine from its BMC through Redfish. poll_interval is at
	// least 1s. The section also has the settings of confighttp clients, such as endpoint, tls,
	// auth and timeout.
	Redfish configoptional.Optional[RedfishConfig] `mapstructure:"redfish"`
	// Vsock reads the energy of this virtual machine from the receiver on its host.
	Vsock configoptional.Optional[VsockConfig] `mapstructure:"vsock"`
	// HTTP reads JSON documents over HTTP, such as those of smart plugs, PDUs or Prometheus. Each
	// provides the power or energy of one zone. The keys are http/NAME; the hw.id of the zone is
	// http:NAME. poll_interval is at least 1s. Each section also has the settings of confighttp
	// clients, such as endpoint, tls, headers and timeout.
	HTTP map[component.ID]HTTPConfig `mapstructure:",remain" keys:"http/NAME"`

	_ struct{}
}

// MeterKind is the name of a meter.
type MeterKind string

// The meters.
const (
	MeterPowercap MeterKind = "powercap"
	MeterPerf     MeterKind = "perf"
	MeterCray     MeterKind = "cray"
	MeterHwmon    MeterKind = "hwmon"
	MeterIPMI     MeterKind = "ipmi"
	MeterGPU      MeterKind = "gpu"     // reads the extensions of gpu::extensions
	MeterRedfish  MeterKind = "redfish" // is used if it is configured
	MeterVsock    MeterKind = "vsock"   // is used if it is configured
	MeterHTTP     MeterKind = "http"    // is used if it is configured
	MeterModel    MeterKind = "model"   // is used if model is configured
)

// LocalMeters are the meters that need no configuration, in the default order of preference.
var LocalMeters = []MeterKind{MeterPowercap, MeterPerf, MeterCray, MeterHwmon, MeterIPMI}

// Unmarshal implements confmap.Unmarshaler. It returns an error for each key that is neither a
// setting nor an ID of type http.
func (c *MetersConfig) Unmarshal(conf *confmap.Conf) error {
	keys := settings(reflect.TypeFor[MetersConfig]())
	for _, key := range slices.Sorted(maps.Keys(conf.ToStringMap())) {
		var id component.ID
		if !slices.Contains(keys, key) && (id.UnmarshalText([]byte(key)) != nil || id.Type().String() != string(MeterHTTP)) {
			return fmt.Errorf("unknown meter or setting %q: must be one of %s, http/NAME", key, strings.Join(keys, ", "))
		}
	}
	return conf.Unmarshal(c)
}

// settings returns the configuration keys of a struct's fields.
func settings(of reflect.Type) (keys []string) {
	for field := range of.Fields() {
		if key, _, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ","); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (c *Config) validateMeters(wrong reporter) {
	wrong = wrong.under("meters")
	m := &c.Meters
	for i, meter := range m.Use {
		field := fmt.Sprintf("use::%d", i)
		oneOf(wrong, field, meter, LocalMeters...)
		if slices.Contains(m.Use[:i], meter) {
			wrong(field, "%q is named twice", meter)
		}
	}
	if len(m.Use) == 0 && !c.Model.HasValue() && !m.Redfish.HasValue() && !m.Vsock.HasValue() && len(m.HTTP)+len(m.GPU.Extensions) == 0 {
		wrong("use", "must name at least one of %s if no other meter and no model is configured", join(LocalMeters))
	}
	if path := m.Powercap.Path; path != "" {
		if !filepath.IsAbs(path) {
			wrong("powercap::path", "must be an absolute path, is %q", path)
		}
		if m.Vsock.HasValue() {
			wrong("powercap::path", "must not be set together with vsock: both report the same energy")
		}
	}
	m.Hwmon.validate(wrong.under("hwmon"))
	m.IPMI.validate(wrong.under("ipmi"))
	m.GPU.validate(wrong.under("gpu"))
	if m.Redfish.HasValue() {
		m.Redfish.Get().validate(wrong.under("redfish"))
	}
	if m.Vsock.HasValue() {
		m.Vsock.Get().validate(wrong.under("vsock"))
	}
	for id, source := range m.HTTPSources() {
		source.validate(wrong.under(id.String()))
	}
	for setting, zone := range m.zones() {
		if !slices.Contains(c.Zones, zone) {
			wrong("zones", "must contain %q, the zone of meters::%s", zone, setting)
		}
	}
}

// zones yields each setting that names an attributed zone kind, with that kind.
func (c *MetersConfig) zones() func(yield func(setting string, zone power.Kind) bool) {
	return func(yield func(string, power.Kind) bool) {
		attributed := []power.Kind{power.Package, power.Core, power.Uncore, power.DRAM}
		for _, sensor := range slices.Sorted(maps.Keys(c.Hwmon.Sensors)) {
			if zone := c.Hwmon.Sensors[sensor]; slices.Contains(attributed, zone) && !yield("hwmon::sensors::"+sensor, zone) {
				return
			}
		}
		for id, source := range c.HTTPSources() {
			if slices.Contains(attributed, source.Zone) && !yield(id.String()+"::zone", source.Zone) {
				return
			}
		}
	}
}

// HasZone reports whether a setting names a sensor of a zone kind.
func (c *MetersConfig) HasZone(kind power.Kind) bool {
	for _, zone := range c.zones() {
		if zone == kind {
			return true
		}
	}
	return false
}

// Uses reports whether meters::use contains a meter.
func (c *MetersConfig) Uses(meter MeterKind) bool { return slices.Contains(c.Use, meter) }

// Requires reports whether the configuration requires a meter, rather than using it if the machine
// has it.
func (c *MetersConfig) Requires(meter string) bool {
	switch MeterKind(meter) {
	case MeterHTTP, MeterRedfish, MeterVsock, MeterGPU:
		return true
	case MeterPowercap:
		return len(c.Use) == 1 || c.Powercap.Path != ""
	case MeterModel:
		return len(c.Use) == 0
	}
	return len(c.Use) == 1
}

// AreReported reports whether the hypervisor provides the energy of this virtual machine.
func (c *MetersConfig) AreReported() bool { return c.Powercap.Path != "" || c.Vsock.HasValue() }

// Rank orders the meters by preference. Meters of equal rank are ordered as in meterTable.
func (c *MetersConfig) Rank(meter MeterKind) int {
	switch i := slices.Index(c.Use, meter); {
	case i >= 0:
		return i
	case meter == MeterModel:
		return len(c.Use)
	}
	return -1
}
