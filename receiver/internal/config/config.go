// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/energyreceiver/energyreceiver/internal/decode"
	"github.com/energyreceiver/energyreceiver/internal/drivers"
	"github.com/energyreceiver/energyreceiver/internal/identity"
	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Config is the receiver's configuration.
type Config struct {
	scraperhelper.ControllerConfig `mapstructure:",squash"`
	metadata.MetricsBuilderConfig  `mapstructure:",squash"`

	// RootPath is the host's root directory: /, or the directory at which a container mounts it.
	RootPath string `mapstructure:"root_path"`
	// Storage is the absolute path of a directory, or the ID of a storage extension, in which
	// totals and trained static power models are stored. Without storage, totals start at 0 and
	// models are trained again after each start.
	Storage string `mapstructure:"storage"`
	// Zones are the zone kinds that are reported and attributed. The preset kepler_0_9 adds other
	// to the default. The preset scaphandre may attribute psys in place of package and dram.
	Zones []power.Kind `mapstructure:"zones"`
	// Meters selects and configures the meters.
	Meters drivers.Config `mapstructure:"meters"`
	// Model is the model that estimates energy without a sensor: none, auto, or a map. A map without
	// idle_power, max_power, points and file configures auto. auto derives the power from the CPU,
	// and in a virtual machine from the instance type and the share of the host.
	Model configoptional.Optional[ModelConfig] `mapstructure:"model" short:"auto,none"`
	// CPUTime selects the CPU time source. auto selects bpf if the kernel and the permissions allow
	// it, else clocks. clocks requires the PID namespace of the host; without it, procfs is used.
	CPUTime cpu.SourceKind `mapstructure:"cpu_time"`
	// Window is the length of an attribution window, from 10ms to collection_interval (one window
	// per collection). With a preset other than smartwatts, the default is one window per
	// collection.
	Window time.Duration `mapstructure:"window" default:"1s"`
	// Series limits the number of series.
	Series SeriesConfig `mapstructure:"series"`
	// Names configures the sources of the names of containers and pods.
	Names NamesConfig `mapstructure:"names"`
	// Attribution selects the attribution rules.
	Attribution AttributionConfig `mapstructure:"attribution"`

	// zeroWindow is set if window is configured as 0, which is invalid.
	zeroWindow bool

	// PresetOther reports whether the preset added other to the zones. If so, a machine that does
	// not measure other is not degraded. It is not a setting.
	PresetOther bool `mapstructure:"-"`

	_ struct{} // keyed literals only
}

// SeriesConfig limits the number of series of processes, containers, pods and virtual machines. The
// energy of all others is in an overflow series, whose points have the attribute
// otel.metric.overflow.
type SeriesConfig struct {
	// Processes limits the series of processes.
	Processes ProcessSeriesConfig `mapstructure:"processes"`
	// Containers limits the series of containers.
	Containers EntitySeriesConfig `mapstructure:"containers"`
	// Pods limits the series of Kubernetes pods.
	Pods EntitySeriesConfig `mapstructure:"pods"`
	// VMs limits the series of virtual machines.
	VMs EntitySeriesConfig `mapstructure:"vms"`

	_ struct{}
}

// ProcessSeriesConfig groups processes into series and limits the number of series.
type ProcessSeriesConfig struct {
	// GroupBy selects how processes are grouped into series. By default, the processes with
	// the highest usage, up to max, have their own series by PID once they have run for a minute.
	// All other processes are grouped by program: processes with the same executable, container,
	// unit and user share a series, including exited ones. pid disables series by program, and
	// program disables series by PID.
	GroupBy GroupBy `mapstructure:"group_by"`
	// Max is the maximum number of series by PID, for the processes with the highest usage. 0 sets a
	// limit of 131,072.
	Max int `mapstructure:"max"`
	// MinEnergy is the energy in joules that a process must accumulate before it gets a series.
	MinEnergy float64 `mapstructure:"min_energy"`

	// minAge is the minimum age of a process with a series of its own, if other processes are
	// reported by program.
	minAge time.Duration

	_ struct{}
}

// GroupBy is a value of the setting series::processes::group_by.
type GroupBy string

// The values of group_by other than the empty string.
const (
	GroupByProgram GroupBy = "program"
	GroupByPID     GroupBy = "pid"
)

// Default maximum numbers of series; dev/series.md explains the choice. maxPrograms cannot be
// configured.
const (
	defaultMaxProcesses = 50
	defaultMinEnergy    = 1 // J
	// Most processes exit within a minute, and each would otherwise have a short-lived series.
	defaultMinAge = time.Minute
	maxPrograms   = 500
	// maxBirths is Limit.Births of processes, programs, containers and pods.
	maxBirths = 500
)

// ProcessSeries converts the setting to the engine's type.
func (g GroupBy) ProcessSeries() ledger.ProcessSeries {
	switch g {
	case GroupByProgram:
		return ledger.ByProgram
	case GroupByPID:
		return ledger.ByPID
	}
	return ledger.ByPIDAndProgram
}

// EntitySeriesConfig limits the series of containers, pods or virtual machines.
type EntitySeriesConfig struct {
	// Max is the maximum number of series, for the entities with the highest usage. 0 sets a limit
	// of 131,072. For containers and pods, 0 also removes the limit on new series per hour.
	Max int `mapstructure:"max"`

	_ struct{}
}

// Unmarshal implements confmap.Unmarshaler. It returns an error for durations without a unit.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	noModel := conf.Get("model") == "none"
	if noModel {
		conf.Delete("model")
	}
	if err := decode.Into(conf, c); err != nil {
		return err
	}
	if noModel {
		c.Model = configoptional.None[ModelConfig]()
	}
	c.zeroWindow = conf.Get("window") != nil && c.Window == 0
	if conf.Get("zones") == nil && presets[c.Attribution.Preset].Other {
		c.Zones, c.PresetOther = append(slices.Clone(c.Zones), power.Other), true
	}
	return nil
}

// Validate checks the settings independently of the machine. Each error names its setting.
func (c *Config) Validate() error {
	var errs []error
	wrong := invalid.Reporter(func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", setting, fmt.Errorf(format, args...)))
	})
	if !filepath.IsAbs(c.RootPath) {
		wrong("root_path", "must be an absolute path, is %q", c.RootPath)
	}
	if c.Storage != "" && !filepath.IsAbs(c.Storage) && new(component.ID).UnmarshalText([]byte(c.Storage)) != nil {
		wrong("storage", "must be the absolute path of a directory or the ID of a storage extension, is %q", c.Storage)
	}
	if i := c.CollectionInterval; i > 0 && i < MinWindow { // the collector rejects 0 and negative values
		wrong("collection_interval", "must be at least %v, is %v", MinWindow, i)
	}
	if len(c.Zones) == 0 {
		wrong("zones", "must name at least one of %s", invalid.Join(power.Kinds))
	}
	for i, zone := range c.Zones {
		field := fmt.Sprintf("zones::%d", i)
		invalid.OneOf(wrong, field, zone, power.Kinds...)
		if slices.Contains(c.Zones[:i], zone) {
			wrong(field, "%q is listed twice", zone)
		}
	}
	c.Meters.Check(wrong, c.Zones, c.Model.HasValue())
	if c.Model.HasValue() {
		c.validateModel(wrong)
	}
	invalid.OneOf(wrong, "cpu_time", c.CPUTime, cpu.Auto, cpu.KindBPF, cpu.KindClocks, cpu.KindProcfs)
	if w := c.Window; c.zeroWindow || w != 0 && (w < MinWindow || w > c.CollectionInterval) {
		wrong("window", "must be from %v to collection_interval, is %v", MinWindow, w)
	}
	c.Series.validate(wrong.Under("series"))
	c.Names.validate(wrong.Under("names"))
	c.Attribution.validate(wrong.Under("attribution"), c.Zones)
	return errors.Join(errs...)
}

// MinWindow is the minimum length of a window. The overhead of shorter windows outweighs their
// resolution.
const MinWindow = 10 * time.Millisecond

// maxMinEnergy is 1 GWh in joules. No process reaches a higher minimum.
const maxMinEnergy = 3.6e12

func (s *SeriesConfig) validate(wrong invalid.Reporter) {
	if e := s.Processes.MinEnergy; !(e >= 0 && e <= maxMinEnergy) {
		wrong("processes::min_energy", "must be between 0 and %g joules, is %g", maxMinEnergy, e)
	}
	if s.Processes.GroupBy != "" {
		invalid.OneOf(wrong, "processes::group_by", s.Processes.GroupBy, GroupByProgram, GroupByPID)
	}
	for _, limit := range []struct {
		setting string
		max     int
	}{
		{"processes::max", s.Processes.Max}, {"containers::max", s.Containers.Max}, {"pods::max", s.Pods.Max}, {"vms::max", s.VMs.Max},
	} {
		if limit.max < 0 {
			wrong(limit.setting, "must not be negative, is %d", limit.max)
		}
	}
}

// Limits returns the limits in the engine's units.
func (s *SeriesConfig) Limits() (limits ledger.Limits) {
	for entity := range limits {
		limits[entity].Max = maxHostSeries
	}
	limits[identity.ProcessEntity] = ledger.Limit{
		MinEnergy: units.Energy(math.Round(s.Processes.MinEnergy * float64(units.Joule))), Max: s.Processes.Max,
	}
	if s.Processes.GroupBy == "" {
		limits[identity.ProcessEntity].MinAge = s.Processes.minAge
		limits[identity.ProcessEntity].Births = maxBirths
	}
	limits[identity.ProgramEntity].Max = maxPrograms
	limits[identity.ContainerEntity].Max = s.Containers.Max
	limits[identity.PodEntity].Max = s.Pods.Max
	limits[identity.VMEntity].Max = s.VMs.Max
	for _, entity := range []identity.Entity{identity.ProgramEntity, identity.ContainerEntity, identity.PodEntity} {
		if limits[entity].Max > 0 {
			limits[entity].Births = maxBirths
		}
	}
	return limits
}

// maxHostSeries is the maximum number of series of each entity type that has no setting.
const maxHostSeries = 2000
