// SPDX-License-Identifier: Apache-2.0

package energyreceiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
	"github.com/energyreceiver/energyreceiver/internal/power/model/catalog"
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
	// Idle says whether a virtual machine has a share of its host's idle power: share or none.
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
		return fmt.Errorf("must be auto or settings, is %v", value.GetRaw())
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
	case (m.Auto || m.File != "") && (m.IdlePower != 0 || m.MaxPower != 0 || len(m.Points) > 0):
		wrong("points", "must not be set together with auto or file, nor idle_power and max_power")
	case !m.Auto && m.File == "":
		m.validateCurve(wrong)
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

func (m *ModelConfig) curve() (model.Curve, error) {
	if len(m.Points) == 0 {
		return catalog.Between(m.IdlePower, m.MaxPower, m.Shape)
	}
	points := make([]model.Point, len(m.Points))
	for i, p := range m.Points {
		points[i] = model.Point{Utilization: p.Utilization, Watts: p.Power}
	}
	return model.NewCurve(points)
}

func openModel(_ context.Context, o *meterOptions) (power.Meter, error) {
	if !o.mayModel() || !o.Model.HasValue() {
		return nil, nil
	}
	curve, err := o.Model.Get().curve()
	if err != nil {
		return nil, err
	}
	return model.New(model.ZoneCurve{Kind: o.Model.Get().zone(), Curve: curve}), nil
}
