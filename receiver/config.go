// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/scraper/scraperhelper"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/durations"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
	"github.com/energyreceiver/energyreceiver/internal/usage/cpu"
	"github.com/energyreceiver/energyreceiver/receiver/internal/metadata"
)

// Config is the receiver's configuration.
type Config struct {
	scraperhelper.ControllerConfig `mapstructure:",squash"`
	metadata.MetricsBuilderConfig  `mapstructure:",squash"`

	// RootPath is where the host's root directory is: "/", or where it is mounted in a container.
	RootPath string `mapstructure:"root_path"`
	// Meter selects where energy is read: auto, powercap, perf, cray, hwmon, ipmi or model.
	Meter MeterKind `mapstructure:"meter"`
	// IPMI says how the BMC is asked.
	IPMI IPMIConfig `mapstructure:"ipmi"`
	// Zones are the zone kinds that are reported and attributed.
	Zones []power.Kind `mapstructure:"zones"`
	// Model says how energy is estimated that no sensor measures. Without it nothing is modeled.
	Model configoptional.Optional[ModelConfig] `mapstructure:"model"`
	// PowercapPath is a powercap tree that the hypervisor writes for this virtual machine. It is read in place of the machine's
	// own; its energy is reported, not measured.
	PowercapPath string `mapstructure:"powercap_path"`
	// Hypervisor is asked over vsock what energy this virtual machine was attributed. Without it nobody is asked.
	Hypervisor configoptional.Optional[HypervisorConfig] `mapstructure:"hypervisor"`
	// Guests says how the virtual machines of this node are told their energy. Without it they are told nothing.
	Guests configoptional.Optional[GuestsConfig] `mapstructure:"guests"`
	// Phases says where marks are taken that divide the node's energy into phases. Without it there are none.
	Phases configoptional.Optional[PhasesConfig] `mapstructure:"phases"`
	// Hwmon names sensors of hwmon chips of which the receiver does not know what they measure.
	Hwmon HwmonConfig `mapstructure:"hwmon"`
	// GPU says how GPUs are read.
	GPU GPUConfig `mapstructure:"gpu"`
	// HTTP are power and energy readings in JSON documents on the network: plugs, PDUs, Prometheus.
	HTTP []HTTPConfig `mapstructure:"http"`
	// Redfish is this machine's BMC. Without it none is asked.
	Redfish configoptional.Optional[RedfishConfig] `mapstructure:"redfish"`
	// CPUTime selects the CPU time source: auto, bpf or procfs.
	CPUTime cpu.Kind `mapstructure:"cpu_time"`
	// SamplingInterval is the length of a window. Each window is attributed by itself. 0 selects the preset's, or one window per
	// collection.
	SamplingInterval time.Duration `mapstructure:"sampling_interval"`
	// Processes, Containers, Pods and VMs bound which of them are reported one by one.
	Processes  ProcessesConfig `mapstructure:"processes"`
	Containers SeriesConfig    `mapstructure:"containers"`
	Pods       SeriesConfig    `mapstructure:"pods"`
	VMs        SeriesConfig    `mapstructure:"vms"`
	// ZeroPoints begins each new series of energy, CPU time and time with a point of value 0.
	ZeroPoints bool `mapstructure:"zero_points"`
	// Names says where names of containers and pods are read.
	Names NamesConfig `mapstructure:"names"`
	// Attribution selects the attribution rules.
	Attribution AttributionConfig `mapstructure:"attribution"`
	// Storage is where totals and trained static power models are stored: an absolute path is a directory, anything else is the ID
	// of a storage extension. If it is empty, totals start at 0 and models are trained again after each start.
	Storage string `mapstructure:"storage"`

	_ struct{} // keyed literals only
}

// MeterKind is a value of the setting meter.
type MeterKind string

// The meters.
const (
	MeterAuto       MeterKind = "auto"    // for each zone kind powercap, else perf, else cray, else hwmon, else ipmi, else the model if it is configured
	MeterHTTP       MeterKind = "http"    // is read where http is set
	MeterRedfish    MeterKind = "redfish" // is read where redfish is set
	MeterPowercap   MeterKind = "powercap"
	MeterPerf       MeterKind = "perf"
	MeterCray       MeterKind = "cray"
	MeterHwmon      MeterKind = "hwmon"
	MeterIPMI       MeterKind = "ipmi"
	MeterModel      MeterKind = "model"
	MeterGPU        MeterKind = "gpu"        // is read where gpu::extensions is set
	MeterHypervisor MeterKind = "hypervisor" // is asked where hypervisor is set
)

// SeriesConfig bounds which processes, containers, pods or VMs have a series of their own. The energy of the rest is in
// one series, whose process.executable.name, container.id, k8s.pod.uid or vm.id is "other".
type SeriesConfig struct {
	// MinEnergy is the energy in joules that one must have used before it has a series. 0 means none.
	MinEnergy float64 `mapstructure:"min_energy"`
	// Max is how many have a series at once: those that use the most. 0 means no limit.
	Max int `mapstructure:"max"`

	_ struct{}
}

// ProcessesConfig selects and bounds the series of processes.
type ProcessesConfig struct {
	SeriesConfig `mapstructure:",squash"`
	// GroupBy selects what series processes have. Empty gives the largest Max a series each, by PID, and the others one by program:
	// the processes of one executable, container, unit and user, exited ones included. pid gives none by program, and program
	// none by PID.
	GroupBy GroupBy `mapstructure:"group_by"`

	_ struct{}
}

// GroupBy is a value of the setting processes::group_by.
type GroupBy string

// The values of group_by besides the empty one.
const (
	GroupByProgram GroupBy = "program"
	GroupByPID     GroupBy = "pid"
)

// Defaults of the maximum numbers of series, which dev/series.md explains. maxPrograms has no setting.
const (
	defaultMaxProcesses = 50
	maxPrograms         = 500
)

// series returns the mode in the engine's terms.
func (g GroupBy) series() attribution.ProcessSeries {
	switch g {
	case GroupByProgram:
		return attribution.ByProgram
	case GroupByPID:
		return attribution.ByPID
	}
	return attribution.ByPIDAndProgram
}

// Unmarshal implements confmap.Unmarshaler. It refuses durations without a unit.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return durations.Unmarshal(conf, c) }

// Validate checks what can be checked without the machine. Each error names its field.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	if !filepath.IsAbs(c.RootPath) {
		wrong("root_path", "must be an absolute path, is %q", c.RootPath)
	}
	if c.PowercapPath != "" {
		c.validatePowercapPath(wrong)
	}
	oneOf(wrong, "meter", c.Meter, MeterAuto, MeterPowercap, MeterPerf, MeterCray, MeterHwmon, MeterIPMI, MeterModel)
	oneOf(wrong, "cpu_time", c.CPUTime, cpu.Auto, cpu.KindBPF, cpu.KindProcfs)
	if i := c.CollectionInterval; i > 0 && i < minWindow { // the collector refuses 0 and less
		wrong("collection_interval", "must be at least %v, is %v", minWindow, i)
	}
	if c.InitialDelay < 0 {
		wrong("initial_delay", "must not be negative, is %v", c.InitialDelay)
	}
	if w := c.SamplingInterval; w != 0 && (w < minWindow || w > c.CollectionInterval) {
		wrong("sampling_interval", "must be 0 or from %v to collection_interval, is %v", minWindow, w)
	}
	if len(c.Zones) == 0 {
		wrong("zones", "must name at least one of %s", join(power.Kinds))
	}
	for i, zone := range c.Zones {
		field := fmt.Sprintf("zones::%d", i)
		oneOf(wrong, field, zone, power.Kinds...)
		if slices.Contains(c.Zones[:i], zone) {
			wrong(field, "%q is named twice", zone)
		}
	}
	if c.Meter == MeterModel && !c.Model.HasValue() {
		wrong("model", "must be set when meter is %q", MeterModel)
	}
	if c.Model.HasValue() && c.mayModel() {
		if zone := c.Model.Get().zone(); len(c.Zones) > 0 && !slices.Contains(c.Zones, zone) {
			wrong("zones", "must name %q, the zone that the model stands in for", zone)
		}
		if c.Model.Get().MemoryPower > 0 && !slices.Contains(c.modeledKinds(), power.DRAM) {
			wrong("model::memory_power", "must not be set unless zones names %q and the model's zone is %q", power.DRAM, power.Package)
		}
	}
	c.Hwmon.validate(wrong, c.Zones)
	validateHTTP(wrong, c.HTTP, c.Zones)
	c.IPMI.validate(wrong)
	c.GPU.validate(wrong)
	c.Processes.validate(wrong, "processes")
	if c.Processes.GroupBy != "" {
		oneOf(wrong, "processes::group_by", c.Processes.GroupBy, GroupByProgram, GroupByPID)
	}
	c.Containers.validate(wrong, "containers")
	c.Pods.validate(wrong, "pods")
	c.VMs.validate(wrong, "vms")
	c.Names.validate(wrong)
	c.Attribution.validate(wrong, c.Zones)
	if c.Storage != "" && !filepath.IsAbs(c.Storage) && new(component.ID).UnmarshalText([]byte(c.Storage)) != nil {
		wrong("storage", "must be the absolute path of a directory or the ID of a storage extension, is %q", c.Storage)
	}
	return errors.Join(errs...)
}

func (c *Config) validatePowercapPath(wrong func(field, format string, args ...any)) {
	if !filepath.IsAbs(c.PowercapPath) {
		wrong("powercap_path", "must be an absolute path, is %q", c.PowercapPath)
	}
	if c.Hypervisor.HasValue() {
		wrong("powercap_path", "must not be set together with hypervisor: both report the same energy")
	}
}

// asksFor reports whether the meter is configured, and not only used if it is there.
func (c *Config) asksFor(meter string) bool {
	switch MeterKind(meter) {
	case MeterHTTP, MeterRedfish, MeterHypervisor, MeterGPU:
		return true
	case MeterPowercap:
		return c.Meter != MeterAuto || c.PowercapPath != ""
	}
	return c.Meter != MeterAuto
}

// mayModel reports whether the meter may be a model.
func (c *Config) mayModel() bool { return c.Meter == MeterAuto || c.Meter == MeterModel }

// minWindow is the shortest window. Measuring a shorter one would cost more than what it shows.
const minWindow = 10 * time.Millisecond

// maxMinEnergy is a GWh in joules. Above it nothing would ever be reported.
const maxMinEnergy = 3.6e12

func oneOf[T ~string](wrong func(field, format string, args ...any), field string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		wrong(field, "must be one of %s, is %q", join(allowed), value)
	}
}

func join[T ~string](values []T) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = string(v)
	}
	return strings.Join(s, ", ")
}

func (s *SeriesConfig) validate(wrong func(field, format string, args ...any), field string) {
	if e := s.MinEnergy; !(e >= 0 && e <= maxMinEnergy) {
		wrong(field+"::min_energy", "must be between 0 and %g joules, is %g", maxMinEnergy, e)
	}
	if s.Max < 0 {
		wrong(field+"::max", "must not be negative, is %d", s.Max)
	}
}

// limit returns the bounds in the engine's units.
func (s *SeriesConfig) limit() attribution.Limit {
	return attribution.Limit{MinEnergy: units.Energy(math.Round(s.MinEnergy * float64(units.Joule))), Max: s.Max}
}
