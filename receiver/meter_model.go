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
	"strings"

	"go.opentelemetry.io/collector/confmap"
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/internal/kernfs"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
	"github.com/energyreceiver/energyreceiver/internal/power/model/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model/trained"
)

// ModelConfig says how energy is estimated. Exactly one of these is set: Auto, File, MaxPower (with IdlePower) or Points. The
// value "auto" in place of the settings is short for Auto.
type ModelConfig struct {
	// Auto makes the curve from what the machine is: its CPU, its share of its host, its cloud instance type.
	Auto bool `mapstructure:"auto"`
	// File is a trained model, or a directory of them, of which the one that fits the machine is taken.
	File string `mapstructure:"file"`
	// Zone is what the curve is the power of: package, all CPU sockets of the node (the default), or platform, the whole
	// machine.
	Zone power.Kind `mapstructure:"zone"`
	// IdlePower and MaxPower are the power in watts with no CPU busy and with all CPUs busy.
	IdlePower float64 `mapstructure:"idle_power"`
	MaxPower  float64 `mapstructure:"max_power"`
	// Shape is how the power goes from idle to full load, a name that catalog.Shape knows. Empty means the default's.
	Shape string `mapstructure:"shape"`
	// Points describe the curve in more detail, by ascending utilization. They replace the two powers.
	Points []ModelPoint `mapstructure:"points"`
	// Idle is what a virtual machine has of its host's idle power: share or none.
	Idle ModelIdle `mapstructure:"idle"`
	// MemoryPower is the power of memory in watts per GiB, for the zone dram. 0 means that of the catalog with Auto, else none.
	MemoryPower float64 `mapstructure:"memory_power"`

	_ struct{}
}

// ModelIdle is a value of the setting model::idle.
type ModelIdle string

// What a virtual machine has of its host's idle power.
const (
	ModelIdleShare ModelIdle = "share" // the part of its CPUs
	ModelIdleNone  ModelIdle = "none"  // nothing: its dynamic power only
)

// ModelPoint is one point of a power curve.
type ModelPoint struct {
	// Utilization is the busy share of the node's CPU time, 0 to 1.
	Utilization float64 `mapstructure:"utilization"`
	// Power is the node's power at it, in watts.
	Power float64 `mapstructure:"power"`

	_ struct{}
}

// UnmarshalScalar reads the value "auto".
func (m *ModelConfig) UnmarshalScalar(value confmap.ScalarValue) error {
	if value.GetRaw() != "auto" {
		return fmt.Errorf(`must be "auto" or a map of settings, is %q`, fmt.Sprint(value.GetRaw()))
	}
	m.Auto = true
	return nil
}

// maxPower is in watts. No node has a megawatt.
const maxPower = 1e6

// Validate checks the settings. Each error names its field.
func (m *ModelConfig) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	oneOf(wrong, "zone", m.zone(), power.Package, power.Platform)
	oneOf(wrong, "idle", cmp.Or(m.Idle, ModelIdleShare), ModelIdleShare, ModelIdleNone)
	if w := m.MemoryPower; !(w >= 0 && w <= maxMemoryPower) {
		wrong("memory_power", "must be between 0 and %g watts per GiB, is %g", float64(maxMemoryPower), w)
	}
	if _, err := catalog.Shape(m.Shape); err != nil {
		wrong("shape", "%w", err)
	}
	switch {
	case m.Shape != "" && (m.File != "" || len(m.Points) > 0):
		wrong("shape", "must not be set together with file or points")
	case m.Auto && m.File != "":
		wrong("file", "must not be set together with auto")
	case (m.Auto || m.File != "") && len(m.Points) > 0:
		wrong("points", "must not be set together with auto or file")
	case (m.Auto || m.File != "") && m.IdlePower != 0:
		wrong("idle_power", "must not be set together with auto or file")
	case (m.Auto || m.File != "") && m.MaxPower != 0:
		wrong("max_power", "must not be set together with auto or file")
	case m.isStated():
		m.validateCurve(wrong)
	}
	if m.Idle != "" && m.isStated() {
		wrong("idle", "must not be set without auto or file: the configuration states the idle power")
	}
	return errors.Join(errs...)
}

// validateCurve checks the two powers or the points.
func (m *ModelConfig) validateCurve(wrong func(field, format string, args ...any)) {
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
			wrong("max_power", "must be more than 0 watts, is 0; the alternatives are auto, file and points")
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

// kinds returns the zone kinds that are modeled: the whole machine, or the package and, if it is configured, the memory beside it.
func (m *ModelConfig) kinds(configured []power.Kind) []power.Kind {
	kinds := []power.Kind{m.zone()}
	if m.zone() == power.Package && slices.Contains(configured, power.DRAM) && (m.Auto || m.File != "" || m.MemoryPower > 0) {
		kinds = append(kinds, power.DRAM)
	}
	return kinds
}

// modeledKinds returns the zone kinds that may be modeled.
func (c *Config) modeledKinds() []power.Kind {
	if !c.Model.HasValue() || !c.mayModel() {
		return nil
	}
	return c.Model.Get().kinds(c.Zones)
}

// stated returns the curve that the configuration states.
func (m *ModelConfig) stated() (model.ZoneCurve, error) {
	if len(m.Points) == 0 {
		curve, err := catalog.Between(m.IdlePower, m.MaxPower, m.Shape)
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
func (m *ModelConfig) isStated() bool { return !m.Auto && m.File == "" }

// curves returns the curves of the zone kinds of the machine. The error tells which are missing, and why.
func (m *ModelConfig) curves(what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	switch {
	case m.isStated():
		return m.statedCurves(what, kinds)
	case m.Auto:
		return catalog.Curves(what, catalog.Options{
			Kinds: kinds, WithoutIdle: m.Idle == ModelIdleNone, MemoryPower: m.MemoryPower, Shape: m.Shape,
		})
	}
	return m.trained(what, kinds)
}

// statedCurves returns the curve that the configuration states, and that of memory.
func (m *ModelConfig) statedCurves(what machine.Machine, kinds []power.Kind) ([]model.ZoneCurve, error) {
	curve, err := m.stated()
	if err != nil {
		return nil, err
	}
	if len(m.Points) == 0 && curve.Kind == power.Package {
		curve.ExpectedError = catalog.BetweenError(what, m.Shape)
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
		return noModel{noModelError(oneLine(err))}, nil
	}
	if err != nil {
		o.set.Logger.Warn("Power model incomplete", zap.String("error", oneLine(err)))
	}
	return &modelMeter{Meter: model.New(curves...), curves: curves, machine: what.String()}, nil
}

// oneLine returns an error's text in one line.
func oneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }

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
