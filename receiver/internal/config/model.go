// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
)

// ModelConfig configures the power model: idle_power and max_power, points, file, or none of them
// for auto.
type ModelConfig struct {
	// IdlePower is the power in watts with no CPU busy.
	IdlePower float64 `mapstructure:"idle_power"`
	// MaxPower is the power in watts with all CPUs busy. Between idle_power and max_power, power
	// follows a typical server curve.
	MaxPower float64 `mapstructure:"max_power"`
	// Points is a utilization-to-power curve in ascending order of utilization. It replaces
	// idle_power and max_power.
	Points []ModelPoint `mapstructure:"points"`
	// File is the path of a trained model, or of a directory of trained models, from which the
	// model for the machine is selected.
	File string `mapstructure:"file"`
	// Zone is the zone kind whose power is modeled: package (all CPU packages of the node) or
	// platform (the whole machine).
	Zone power.Kind `mapstructure:"zone"`
	// Idle is the part of the host's idle power that a virtual machine gets with auto and file:
	// share (in proportion to its CPUs) or none.
	Idle ModelIdle `mapstructure:"idle"`
	// MemoryPower is the power of memory in watts per GiB, for the zone dram. If it is 0, auto and
	// file use their own value, and a model with idle_power, max_power or points has no memory.
	MemoryPower float64 `mapstructure:"memory_power"`

	// hasCurve reports whether the curve is configured, even with powers of 0.
	hasCurve bool

	_ struct{}
}

func defaultModelConfig() ModelConfig { return ModelConfig{Zone: power.Package, Idle: ModelIdleShare} }

// ModelIdle is a value of the setting model::idle.
type ModelIdle string

// The shares of the host's idle power that a virtual machine can have.
const (
	ModelIdleShare ModelIdle = "share" // in proportion to its CPUs
	ModelIdleNone  ModelIdle = "none"  // no share: only the dynamic power
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

// maxPower, in watts, exceeds the power of any node.
const maxPower = 1e6

// validateModel checks the settings of the power model.
func (c *Config) validateModel(wrong invalid.Reporter) {
	m := c.Model.Get()
	if len(c.Zones) > 0 && !slices.Contains(c.Zones, m.ZoneKind()) && !m.isAuto() {
		wrong("zones", "must contain %q, the zone of the model", m.ZoneKind())
	}
	wrong = wrong.Under("model")
	invalid.OneOf(wrong, "zone", m.ZoneKind(), power.Package, power.Platform)
	invalid.OneOf(wrong, "idle", cmp.Or(m.Idle, ModelIdleShare), ModelIdleShare, ModelIdleNone)
	switch w := m.MemoryPower; {
	case !(w >= 0 && w <= maxMemoryPower):
		wrong("memory_power", "must be between 0 and %g watts per GiB, is %g", float64(maxMemoryPower), w)
	case w > 0 && !slices.Contains(c.ModeledKinds(), power.DRAM):
		wrong("memory_power", "must not be set unless zones contains %q and %q and the model's zone is %q", power.Package, power.DRAM, power.Package)
	}
	switch {
	case m.File != "" && len(m.Points) > 0:
		wrong("points", "must not be set together with file")
	case m.File != "" && m.IdlePower != 0:
		wrong("idle_power", "must not be set together with file")
	case m.File != "" && m.MaxPower != 0:
		wrong("max_power", "must not be set together with file")
	case m.IsStated():
		m.validateCurve(wrong)
	}
	if m.Idle == ModelIdleNone && m.IsStated() {
		wrong("idle", "must not be set together with idle_power, max_power or points, which state the idle power")
	}
}

// validateCurve checks the two powers or the points.
func (m *ModelConfig) validateCurve(wrong invalid.Reporter) {
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

// maxMemoryPower, in watts per GiB, exceeds the power of any memory: a DIMM draws a few watts.
const maxMemoryPower = 100

// ZoneKind returns the zone kind whose power is modeled.
func (m *ModelConfig) ZoneKind() power.Kind { return cmp.Or(m.Zone, power.Package) }

// isAuto reports whether the model is auto, the default.
func (m *ModelConfig) isAuto() bool {
	return !m.IsStated() && m.File == "" && m.ZoneKind() == power.Package
}

// kinds returns the zone kinds that are modeled: the whole machine, or package and, if dram is
// among the configured kinds, dram.
func (m *ModelConfig) kinds(configured []power.Kind) []power.Kind {
	if m.isAuto() && !slices.Contains(configured, power.Package) {
		return nil
	}
	kinds := []power.Kind{m.ZoneKind()}
	if m.ZoneKind() == power.Package && slices.Contains(configured, power.DRAM) && (!m.IsStated() || m.MemoryPower > 0) {
		kinds = append(kinds, power.DRAM)
	}
	return kinds
}

// ModeledKinds returns the zone kinds that may be modeled.
func (c *Config) ModeledKinds() []power.Kind {
	if !c.Model.HasValue() {
		return nil
	}
	return c.Model.Get().kinds(c.Zones)
}

// Completes reports whether memory is modeled in addition to packages that a sensor measures,
// because its power is configured.
func (c *Config) Completes() bool {
	m := c.Model.Get()
	return m != nil && (m.MemoryPower > 0 || m.File != "")
}

// IsStated reports whether the curve is configured.
func (m *ModelConfig) IsStated() bool {
	return m.File == "" && (m.hasCurve || len(m.Points) > 0 || m.IdlePower != 0 || m.MaxPower != 0)
}
