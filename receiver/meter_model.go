// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/oneline"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// ModelConfig configures the power model: idle_power and max_power, points, file, or none of them for auto.
type ModelConfig struct {
	// IdlePower is the power in watts with no CPU busy.
	IdlePower float64 `mapstructure:"idle_power"`
	// MaxPower is the power in watts with all CPUs busy. Between idle_power and max_power, power follows a typical server curve.
	MaxPower float64 `mapstructure:"max_power"`
	// Points is a utilization-to-power curve in ascending order of utilization. It replaces idle_power and max_power.
	Points []ModelPoint `mapstructure:"points"`
	// File is the path of a trained model, or of a directory of trained models, from which the model for the machine is
	// selected.
	File string `mapstructure:"file"`
	// Zone is the zone kind whose power is modeled: package (all CPU packages of the node) or platform (the whole machine).
	Zone power.Kind `mapstructure:"zone"`
	// Idle is the share of the host's idle power that a virtual machine gets, for auto and file: share, in proportion to its
	// CPUs, or none.
	Idle ModelIdle `mapstructure:"idle"`
	// MemoryPower is the power of memory in watts per GiB, for the zone dram. 0 selects the value of the model for auto and
	// file, and no model of DRAM otherwise.
	MemoryPower float64 `mapstructure:"memory_power"`

	// hasCurve reports whether the curve is configured, be it by powers of 0.
	hasCurve bool

	_ struct{}
}

func defaultModelConfig() ModelConfig { return ModelConfig{Zone: power.Package, Idle: ModelIdleShare} }

// ModelIdle is a value of the setting model::idle.
type ModelIdle string

// The parts of its host's idle power that a virtual machine gets.
const (
	ModelIdleShare ModelIdle = "share" // in proportion to its CPUs
	ModelIdleNone  ModelIdle = "none"  // none: its dynamic power only
)

// ModelPoint is a point of a utilization-to-power curve.
type ModelPoint struct {
	// Utilization is the busy share of the node's CPU time, from 0 to 1.
	Utilization float64 `mapstructure:"utilization"`
	// Power is the power in watts at this utilization.
	Power float64 `mapstructure:"power"`

	_ struct{}
}

// UnmarshalScalar reads the value auto. Config.Unmarshal reads the value none.
func (m *ModelConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	if raw := value.GetRaw(); raw != "auto" {
		return fmt.Errorf("must be none, auto or a map of settings, is %q", fmt.Sprint(raw))
	}
	return nil
}

// Unmarshal implements confmap.Unmarshaler.
func (m *ModelConfig) Unmarshal(conf *confmap.Conf) error {
	m.hasCurve = conf.IsSet("idle_power") || conf.IsSet("max_power") || conf.IsSet("points")
	return conf.Unmarshal(m)
}

// maxPower is in watts. No node has a megawatt.
const maxPower = 1e6

// validateModel checks the settings of the power model.
func (c *Config) validateModel(wrong reporter) {
	m := c.Model.Get()
	if len(c.Zones) > 0 && !slices.Contains(c.Zones, m.zone()) && !m.isAuto() {
		wrong("zones", "must contain %q, the zone of the model", m.zone())
	}
	wrong = wrong.under("model")
	oneOf(wrong, "zone", m.zone(), power.Package, power.Platform)
	oneOf(wrong, "idle", cmp.Or(m.Idle, ModelIdleShare), ModelIdleShare, ModelIdleNone)
	switch w := m.MemoryPower; {
	case !(w >= 0 && w <= maxMemoryPower):
		wrong("memory_power", "must be between 0 and %g watts per GiB, is %g", float64(maxMemoryPower), w)
	case w > 0 && !slices.Contains(c.modeledKinds(), power.DRAM):
		wrong("memory_power", "must not be set unless zones contains %q and %q and the model's zone is %q", power.Package, power.DRAM, power.Package)
	}
	switch {
	case m.File != "" && len(m.Points) > 0:
		wrong("points", "must not be set together with file")
	case m.File != "" && m.IdlePower != 0:
		wrong("idle_power", "must not be set together with file")
	case m.File != "" && m.MaxPower != 0:
		wrong("max_power", "must not be set together with file")
	case m.isStated():
		m.validateCurve(wrong)
	}
	if m.Idle == ModelIdleNone && m.isStated() {
		wrong("idle", "must not be set together with idle_power, max_power or points, which state the idle power")
	}
}

// validateCurve checks the two powers or the points.
func (m *ModelConfig) validateCurve(wrong reporter) {
	watts := func(field string, w float64) bool {
		possible := w >= 0 && w <= maxPower
		if !possible {
			wrong(field, "must be between 0 and %g watts, is %g", maxPower, w)
		}
		return possible
	}
	twoPowers := m.IdlePower != 0 || m.MaxPower != 0
	if len(m.Points) == 0 || twoPowers {
		idle, most := watts("idle_power", m.IdlePower), watts("max_power", m.MaxPower)
		switch {
		case len(m.Points) > 0:
			wrong("points", "must not be set together with idle_power and max_power")
		case most && m.MaxPower == 0:
			wrong("max_power", "must be more than 0 watts, is 0")
		case idle && most && m.MaxPower < m.IdlePower:
			wrong("max_power", "must be at least idle_power, %g watts, is %g", m.IdlePower, m.MaxPower)
		}
	}
	for i, p := range m.Points {
		if u := p.Utilization; !(u >= 0 && u <= 1) {
			wrong(fmt.Sprintf("points::%d::utilization", i), "must be between 0 and 1, is %g", u)
		} else if i > 0 && u <= m.Points[i-1].Utilization {
			wrong(fmt.Sprintf("points::%d::utilization", i), "must be above the %g before it, is %g", m.Points[i-1].Utilization, u)
		}
		watts(fmt.Sprintf("points::%d::power", i), p.Power)
	}
}

// maxMemoryPower is in watts per GiB. A DIMM draws a few watts.
const maxMemoryPower = 100

func (m *ModelConfig) zone() power.Kind { return cmp.Or(m.Zone, power.Package) }

// isAuto reports whether the model is that of the default configuration.
func (m *ModelConfig) isAuto() bool {
	return !m.isStated() && m.File == "" && m.zone() == power.Package
}

// kinds returns the zone kinds that are modeled: the whole machine, or the package and, if it is configured, the memory beside it.
func (m *ModelConfig) kinds(configured []power.Kind) []power.Kind {
	if m.isAuto() && !slices.Contains(configured, power.Package) {
		return nil
	}
	kinds := []power.Kind{m.zone()}
	if m.zone() == power.Package && slices.Contains(configured, power.DRAM) && (!m.isStated() || m.MemoryPower > 0) {
		kinds = append(kinds, power.DRAM)
	}
	return kinds
}

// modeledKinds returns the zone kinds that may be modeled.
func (c *Config) modeledKinds() []power.Kind {
	if !c.Model.HasValue() {
		return nil
	}
	return c.Model.Get().kinds(c.Zones)
}

// completes reports whether memory is modeled beside packages that a sensor measures: the configuration asks
// for its power.
func (c *Config) completes() bool {
	m := c.Model.Get()
	return m != nil && (m.MemoryPower > 0 || m.File != "")
}

// stated returns the curve that the configuration states.
func (m *ModelConfig) stated() (model.ZoneCurve, error) {
	if len(m.Points) == 0 {
		curve, err := catalog.Between(m.IdlePower, m.MaxPower, catalog.DefaultShape)
		return model.ZoneCurve{Kind: m.zone(), Curve: curve}, err
	}
	points := make([]model.Point, len(m.Points))
	for i, p := range m.Points {
		points[i] = model.Point{Utilization: p.Utilization, Watts: p.Power}
	}
	curve, err := model.NewCurve(points)
	return model.ZoneCurve{Kind: m.zone(), Curve: curve}, err
}

// isStated reports whether the configuration states the curve.
func (m *ModelConfig) isStated() bool {
	return m.File == "" && (m.hasCurve || len(m.Points) > 0 || m.IdlePower != 0 || m.MaxPower != 0)
}

// curves returns the curves of the zone kinds of the machine. The error names the missing curves and the reasons.
func (m *ModelConfig) curves(what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	switch {
	case m.isStated():
		return m.statedCurves(what, kinds)
	case m.File != "":
		return m.trained(what, kinds)
	}
	return catalog.Curves(what, catalog.Options{Kinds: kinds, WithoutIdle: m.Idle == ModelIdleNone, MemoryPower: m.MemoryPower})
}

// statedCurves returns the curve that the configuration states, and that of memory.
func (m *ModelConfig) statedCurves(what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	curve, err := m.stated()
	if err != nil {
		return nil, err
	}
	if len(m.Points) == 0 && curve.Kind == power.Package {
		curve.ExpectedError = catalog.BetweenError(what, catalog.DefaultShape)
	}
	return withMemory([]model.ZoneCurve{curve}, what, m.MemoryPower, kinds)
}

// trained returns the curves of a trained model.
func (m *ModelConfig) trained(what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	want := func(k power.Kind) bool { return slices.Contains(kinds, k) && (k != power.DRAM || m.MemoryPower == 0) }
	curves, err := trained.Curves(m.File, what, trained.Options{Want: want, NoIdle: m.Idle == ModelIdleNone})
	if len(curves) == 0 {
		return nil, err
	}
	all, memoryErr := withMemory(curves, what, m.MemoryPower, kinds)
	return all, errors.Join(err, memoryErr)
}

// withMemory adds the curve of memory whose power the configuration states, if it does.
func withMemory(curves []model.ZoneCurve, what machine.Machine, wattsPerGiB float64, kinds []power.Kind) ([]model.ZoneCurve, error) {
	if wattsPerGiB == 0 || !slices.Contains(kinds, power.DRAM) {
		return curves, nil
	}
	if what.Memory == 0 {
		return curves, errors.New("no power model of dram: the size of the memory is not known")
	}
	memory, err := catalog.Memory(what.Memory, wattsPerGiB)
	if err != nil {
		return curves, err
	}
	return append(curves, memory), nil
}

func openModel(_ context.Context, o *meterOptions) (power.Meter, error) {
	kinds := o.modeledKinds()
	if len(kinds) == 0 {
		return nil, nil
	}
	cfg := o.Model.Get()
	what, err := kernfs.Within(o.RootPath, filepath.Join(o.RootPath, "sys/devices/system"), func() (machine.Machine, error) {
		return machine.Read(o.RootPath, os.Getenv)
	}, nil)
	var curves []model.ZoneCurve
	if err == nil || cfg.isStated() {
		curves, err = cfg.curves(what, kinds)
	}
	switch {
	case len(curves) > 0:
	case cfg.isStated():
		return nil, err
	default:
		return noModel{noModelError(oneline.Text(err))}, nil
	}
	return &modelMeter{Meter: model.New(curves...), curves: curves, machine: what.String(), incomplete: err}, nil
}

// noModel is the meter where a model is configured and there is no curve.
type noModel struct{ reason error }

func (m noModel) Read(context.Context, power.Sample) ([]power.Reading, error) { return nil, m.reason }

func (noModel) Close() error { return nil }

// noModelError is why there is no curve. It is a meter's power.ErrNoZones: where a sensor is read it is nothing wrong.
type noModelError string

func (e noModelError) Error() string { return "no power model: " + string(e) }

func (noModelError) Is(target error) bool { return target == power.ErrNoZones }

// modelMeter is a model with what its curves were made from.
type modelMeter struct {
	*model.Meter
	curves  []model.ZoneCurve
	machine string // what the machine was taken for
	// incomplete is why there is no curve of some zone kinds, nil if there is one of each, and after it was logged.
	incomplete error
}

// log tells what the curves of the zone kinds were made from.
func (m *modelMeter) log(logger *zap.Logger, kinds []power.Kind) {
	for _, c := range m.curves {
		if !slices.Contains(kinds, c.Kind) {
			continue
		}
		expected := "unknown"
		if c.ExpectedError > 0 {
			expected = inPercent(c.ExpectedError)
		}
		logger.Info("Power model selected", zap.String("zone", string(c.Kind)), zap.String("basis", cmp.Or(c.Basis, "the configuration")),
			zap.String("machine", m.machine), zap.String("idle_power", watts(c.Curve.Watts(0))), zap.String("max_power", watts(c.Curve.Watts(1))),
			zap.String("expected_error", expected))
	}
}

// inPercent returns a share with two digits at least.
func inPercent(share float64) string {
	if share < 0.0995 {
		return fmt.Sprintf("%.2g %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func watts(w float64) string { return fmt.Sprintf("%.3g W", w) }

// expectedError returns the error to be expected of a zone kind's power, 0 if it is not known.
func (m *modelMeter) expectedError(kind power.Kind) float64 {
	i := slices.IndexFunc(m.curves, func(c model.ZoneCurve) bool { return c.Kind == kind })
	if i < 0 {
		return 0
	}
	return m.curves[i].ExpectedError
}
