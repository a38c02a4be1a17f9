// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// Config selects and configures the meters. A meter without settings needs no section.
type Config struct {
	// Use lists the local meters in order of preference. For each zone kind, the receiver reads the
	// first meter that works. If the list is empty, the receiver reads no local meter.
	Use []string `mapstructure:"use"`
	// Powercap configures the meter powercap, which reads RAPL counters in /sys/class/powercap.
	Powercap PowercapConfig `mapstructure:"powercap"`
	// Hwmon configures the meter hwmon, which reads sensors in /sys/class/hwmon. lag, factor and
	// offset apply only to zones of the whole machine.
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
	// HTTP reads JSON documents over HTTP, for example from smart plugs, PDUs or Prometheus. Each
	// section provides the power or energy of one zone. The key of a section is http/NAME, and the
	// hw.id of its zone is http:NAME. poll_interval is at least 1s. Each section also has the
	// settings of confighttp clients, such as endpoint, tls, headers and timeout.
	HTTP map[component.ID]HTTPConfig `mapstructure:",remain" keys:"http/NAME"`
	// Modbus reads registers of Modbus TCP devices, such as PDUs and energy meters. Each section
	// provides the power or energy of one zone. The key of a section is modbus/NAME, and the hw.id
	// of its zone is modbus:NAME. poll_interval is at least 1s.
	Modbus map[component.ID]ModbusConfig `mapstructure:",remain" keys:"modbus/NAME"`
	// NUT reads the power of UPSes from upsd, the server of Network UPS Tools. The key of a section
	// is nut/NAME, and the hw.id of its zone is nut:NAME. poll_interval is at least 1s.
	NUT map[component.ID]NUTConfig `mapstructure:",remain" keys:"nut/NAME"`

	_ struct{}
}

// Default returns the default configuration of the meters.
func Default() Config {
	c := Config{Use: Local()}
	for _, d := range All {
		if d.Defaults != nil {
			d.Defaults(&c)
		}
	}
	return c
}

// Unmarshal implements confmap.Unmarshaler. It decodes the named sections, such as http/NAME, and
// then the other settings. An invalid key is an error.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	var keys []string
	for field := range reflect.TypeFor[Config]().Fields() {
		if key, _, _ := strings.Cut(field.Tag.Get(confmap.MapstructureTag), ","); field.IsExported() {
			keys = append(keys, key+field.Tag.Get("keys"))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(conf.ToStringMap())) {
		kind, _, hasName := strings.Cut(key, "/")
		if !hasName && slices.Contains(keys, key) {
			continue
		}
		d, id := Lookup(kind), component.ID{}
		if d.Decode == nil || id.UnmarshalText([]byte(key)) != nil {
			return fmt.Errorf("no such meter or setting %q: must be one of %s", key, strings.Join(keys, ", "))
		}
		section, err := conf.Sub(key)
		if err != nil {
			return fmt.Errorf("%s: must be a map of settings", key)
		}
		if err := d.Decode(c, id, section); err != nil {
			return err
		}
		conf.Delete(key)
	}
	return conf.Unmarshal(c)
}

// Check reports invalid settings to wrong. zones are the attributed zone kinds. hasModel reports
// whether a power model is configured. Without a power model, at least one meter is required.
func (c *Config) Check(wrong invalid.Reporter, zones []power.Kind, hasModel bool) {
	under := wrong.Under("meters")
	for i, meter := range c.Use {
		field := fmt.Sprintf("use::%d", i)
		invalid.OneOf(under, field, meter, local()...)
		if slices.Contains(c.Use[:i], meter) {
			under(field, "%q is listed twice", meter)
		}
	}
	if !hasModel && len(c.Selected()) == 1 { // only the driver of the model
		under("use", "must name at least one of %s if no other meter and no model is configured", invalid.Join(Local()))
	}
	if c.Powercap.Path != "" && c.Vsock.HasValue() {
		under("powercap::path", "must not be set together with vsock: both report the same energy")
	}
	for _, section := range c.sections() {
		section.validate(under.Under(section.Key))
	}
	stated, attributed := c.zones(), []power.Kind{power.Package, power.Core, power.Uncore, power.DRAM}
	for _, setting := range slices.Sorted(maps.Keys(stated)) {
		if zone := stated[setting]; slices.Contains(attributed, zone) && !slices.Contains(zones, zone) {
			wrong("zones", "must contain %q, the zone of meters::%s", zone, setting)
		}
	}
}

// sections returns the sections of all meters.
func (c *Config) sections() (all []Section) {
	for _, d := range All {
		all = append(all, d.sections(c)...)
	}
	return all
}

// zones returns the zone kinds that settings contain, by the name of the setting.
func (c *Config) zones() map[string]power.Kind {
	all := map[string]power.Kind{}
	for _, section := range c.sections() {
		if of, ok := section.validator.(interface{ zones() map[string]power.Kind }); ok {
			for setting, kind := range of.zones() {
				all[section.Key+"::"+setting] = kind
			}
		}
	}
	return all
}

// HasZone reports whether any setting assigns a sensor to the given zone kind.
func (c *Config) HasZone(kind power.Kind) bool {
	return slices.Contains(slices.Collect(maps.Values(c.zones())), kind)
}

// Selected returns the drivers of the configured meters, in order of preference. The driver of the
// power model is always included, and is the last one.
func (c *Config) Selected() (selected []*Driver) {
	for _, d := range All {
		if !d.Local && len(d.sections(c)) > 0 && (d != &gpuDriver || len(c.GPU.Extensions) > 0) {
			selected = append(selected, d)
		}
	}
	for _, name := range c.Use {
		selected = append(selected, Lookup(name))
	}
	return append(selected, &modelDriver)
}

// Requires reports whether the configuration requires the given meter. Meters that are not required
// are used only if the machine has them.
func (c *Config) Requires(meter string) bool {
	switch d := Lookup(meter); {
	case d.StandsIn:
		return len(c.Use) == 0
	case d.Local:
		return len(c.Use) == 1 || d == &powercapDriver && c.Powercap.Path != ""
	}
	return true
}

// Unused returns the names of the local meters whose settings differ from the defaults, but which
// meters::use does not contain.
func (c *Config) Unused() (names []string) {
	defaults := Default()
	if len(c.Hwmon.Sensors) == 0 { // an empty map, as Helm renders it, is no setting
		defaults.Hwmon.Sensors = c.Hwmon.Sensors
	}
	for _, d := range All {
		if d.Local && !slices.Contains(c.Use, d.Name) && !reflect.DeepEqual(d.sections(c), d.sections(&defaults)) {
			names = append(names, d.Name)
		}
	}
	return names
}

// AreReported reports whether the hypervisor provides the energy of this virtual machine.
func (c *Config) AreReported() bool { return c.Powercap.Path != "" || c.Vsock.HasValue() }

// Correction returns a function that returns the correction of each zone of a meter. It returns nil
// if the meter cannot be corrected. A named section, such as http/NAME, corrects the zone with its
// name. Other sections correct only zones of the whole machine, because the other zones of hwmon
// cannot be calibrated.
func (c *Config) Correction(meter string) func(*power.Zone) power.Correction {
	d := Lookup(meter)
	if !d.Corrected {
		return nil
	}
	of := map[string]power.Correction{} // by the NAME in the section's key, or ""
	for _, section := range d.sections(c) {
		_, name, _ := strings.Cut(section.Key, "/")
		of[name] = section.validator.(interface{ Correction() power.Correction }).Correction()
	}
	return func(zone *power.Zone) power.Correction {
		switch _, name, _ := strings.Cut(zone.ID, ":"); {
		case d.Decode != nil:
			return of[name]
		case zone.Kind == power.Platform:
			return of[""]
		}
		return power.Correction{}
	}
}
