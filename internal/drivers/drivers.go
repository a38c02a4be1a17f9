// SPDX-License-Identifier: Apache-2.0

// Package drivers configures and opens the meters. Each meter has a driver. To add a meter, write a
// file with its driver, add the driver to All, and add a field to Config if the meter has settings.
package drivers

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
)

// All lists the drivers in order of preference: first the meters that need a section of the
// configuration, then the local meters in their default order, then the power model.
var All = []*Driver{
	&httpDriver, &modbusDriver, &redfishDriver, &nutDriver, &gpuDriver, &vsockDriver,
	&powercapDriver, &perfDriver, &crayDriver, &hwmonDriver, &ipmiDriver, &batteryDriver,
	&modelDriver,
}

// Driver describes a meter: its name, its properties, its settings, and how to open it.
type Driver struct {
	Name   string // in meters::use, logs and saved state; the key of a section is Name or Name/NAME
	Energy string // completes the log message "Meter selected: energy is ..."
	// Local reports whether the meter reads this machine without a section of the configuration.
	// Local meters are the valid values of meters::use. Their errors and zone IDs contain no names
	// from the configuration.
	Local bool
	OptIn bool // the default of meters::use does not contain the local meter
	// StandsIn, Family and Only are the fields of power.Member with the same names.
	StandsIn bool
	Family   string
	Only     power.Kind
	// IDs matches the IDs of the meter's zones. If it is nil, the IDs begin with Name and a colon.
	IDs *regexp.Regexp
	// Sections returns the sections of the meter in a configuration. It is nil if the meter has no
	// settings.
	Sections func(*Config) []Section
	// Decode decodes a named section, such as http/NAME, into a configuration. It is nil if the
	// meter has no named sections.
	Decode func(*Config, component.ID, *confmap.Conf) error
	// Defaults sets the defaults that differ from the zero value. It may be nil.
	Defaults func(*Config)
	// Corrected reports whether the sections contain CorrectionConfig.
	Corrected bool
	// Open opens a selected meter. It returns a nil meter if other settings exclude the meter. Only
	// the driver of the model reads the machine in Open, because the curves depend on the CPU model
	// and the memory size.
	Open func(context.Context, *Config, *Env) (power.Meter, error)
}

// Env is the environment of the receiver, which drivers need to open their meters.
type Env struct {
	Root      string                      // root directory of the host
	Want      func(power.Kind) bool       // zone kinds to read; nil for all
	Interval  time.Duration               // the time between two collections
	Host      component.Host              // provides extensions
	Telemetry component.TelemetrySettings // used by HTTP clients
	Model     func() (power.Meter, error) // opens the power model
}

// modelDriver opens the power model, whose settings are not below meters.
var modelDriver = Driver{
	Name: "model", Energy: "modeled from CPU utilization, not measured", StandsIn: true,
	Open: func(_ context.Context, _ *Config, env *Env) (power.Meter, error) { return env.Model() },
}

// Lookup returns the driver with a name, or an empty driver.
func Lookup(name string) *Driver {
	if i := slices.IndexFunc(All, func(d *Driver) bool { return d.Name == name }); i >= 0 {
		return All[i]
	}
	return new(Driver)
}

// Local returns the default of meters::use: the names of the local meters that are not opt-in, in
// order of preference.
func Local() []string {
	return slices.DeleteFunc(local(), func(name string) bool { return Lookup(name).OptIn })
}

// local returns the names of all local meters.
func local() (names []string) {
	for _, d := range All {
		if d.Local {
			names = append(names, d.Name)
		}
	}
	return names
}

// Member returns the power.Member for a meter that the driver opened.
func (d *Driver) Member(meter power.Meter) power.Member {
	return power.Member{Name: d.Name, Meter: meter, StandsIn: d.StandsIn, Family: d.Family, Only: d.Only}
}

// Key returns the key of the driver's section, such as ipmi or http/NAME.
func (d *Driver) Key() string {
	if d.Decode != nil {
		return d.Name + "/NAME"
	}
	return d.Name
}

func (d *Driver) sections(c *Config) []Section {
	if d.Sections == nil {
		return nil
	}
	return d.Sections(c)
}

// CorrectedBy returns the key of the section whose lag, factor and offset correct the zone with the
// given ID, or "" if no section corrects the zone. hwmon names zones after devices, so an ID with a
// colon that no other driver matches is an ID of hwmon.
func CorrectedBy(zone string) string {
	kind, name, hasName := strings.Cut(zone, ":")
	i := slices.IndexFunc(All, func(d *Driver) bool {
		return d.IDs != nil && d.IDs.MatchString(zone) || d.IDs == nil && hasName && kind == d.Name
	})
	switch {
	case i < 0 && hasName:
		return hwmonDriver.Name
	case i < 0 || !All[i].Corrected:
		return ""
	case All[i].Decode != nil:
		return strings.TrimSuffix(kind+"/"+name, "/")
	}
	return All[i].Name
}
