// SPDX-License-Identifier: Apache-2.0

// Package drivers has a driver for each meter: its configuration, and how it is opened. A new meter
// is a file with its driver, a line in All, and a field of Config if it has settings.
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

// All lists the drivers in order of preference: the meters that the configuration describes, the
// local meters in their default order, and the power model.
var All = []*Driver{
	&httpDriver, &modbusDriver, &redfishDriver, &nutDriver, &gpuDriver, &vsockDriver,
	&powercapDriver, &perfDriver, &crayDriver, &hwmonDriver, &ipmiDriver, &batteryDriver,
	&modelDriver,
}

// Driver describes a meter to the rest of the project.
type Driver struct {
	Name   string // in meters::use, logs and states; the section has the key Name or Name/NAME
	Energy string // completes the log message "Meter selected: energy is ..."
	// Local reports whether the meter reads this machine without being configured. Local meters are
	// the values of meters::use. Their errors and zone IDs contain no names that a user configured.
	Local    bool
	OptIn    bool // the default of meters::use does not contain the local meter
	StandsIn bool // as the next two, a field of power.Member
	Family   string
	Only     power.Kind
	// IDs matches the IDs of the meter's zones. By default, they begin with the name and a colon.
	IDs *regexp.Regexp
	// The next fields describe the settings, and are empty without settings. Sections returns the
	// sections. Decode decodes a section with a name, if they have names. Defaults sets the default
	// settings that are not zero. Corrected reports whether sections contain CorrectionConfig.
	Sections  func(*Config) []Section
	Decode    func(*Config, component.ID, *confmap.Conf) error
	Defaults  func(*Config)
	Corrected bool
	// Open opens a meter that the configuration asks for, and returns nil if it does not apply to
	// the rest of the configuration. Only the driver of the model reads the machine in Open: the
	// curves depend on the CPU model and the size of the memory.
	Open func(context.Context, *Config, *Env) (power.Meter, error)
}

// Env provides what drivers need in addition to their settings.
type Env struct {
	Root      string                      // root directory of the host
	Want      func(power.Kind) bool       // zone kinds to read; nil for all
	Interval  time.Duration               // between two collections
	Host      component.Host              // provides extensions
	Telemetry component.TelemetrySettings // of HTTP clients
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

// Member returns a meter that the driver opened as a member of a set.
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

// CorrectedBy returns the key of the section whose lag, factor and offset correct the zone with an
// ID, or "". hwmon names zones after devices, so that any ID with a colon that no other driver
// matches belongs to hwmon.
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
