// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/decode"
	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/metadata"
)

// Config is the processor's configuration.
type Config struct {
	metadata.MetricsBuilderConfig `mapstructure:",squash"`

	// Intensity is the carbon intensity of electricity. Without an intensity there are no emissions.
	Intensity configoptional.Optional[IntensityConfig] `mapstructure:"intensity"`
	// PUE is the power usage effectiveness, from 1 to maxPUE. All energy is multiplied by it.
	PUE float64 `mapstructure:"pue"`
	// Embodied are the emissions of manufacturing the machine. Without the section they are not reported.
	Embodied configoptional.Optional[EmbodiedConfig] `mapstructure:"embodied"`
	// MaxSeries is the maximum number of energy series that have emissions, and of machines that
	// have embodied emissions. Points of other series pass unchanged.
	MaxSeries int `mapstructure:"max_series"`
	// MaxStaleness is how long a series may be silent before it is removed.
	MaxStaleness time.Duration `mapstructure:"max_staleness"`

	_ struct{} // keyed literals only
}

// EmbodiedConfig are the emissions of manufacturing, transporting and disposing of a machine, by
// https://sci-guide.greensoftware.foundation/M: M = TE * (TiR/EL) * (RR/ToR).
type EmbodiedConfig struct {
	// Total is SCI's TE: the embodied emissions of one machine in grams of CO2e.
	Total float64 `mapstructure:"total"`
	// Lifespan is SCI's EL: the expected lifespan of the machine.
	Lifespan time.Duration `mapstructure:"lifespan"`
	// Share is SCI's RR/ToR: the reserved part of the machine, above 0, at most 1. The share of a
	// virtual machine is below 1.
	Share float64 `mapstructure:"share"`

	_ struct{}
}

const (
	maxPUE      = 10
	maxEmbodied = 1e12 // g, a million tonnes
	maxLifespan = 100 * 365 * 24 * time.Hour
	// maxMaxSeries bounds the memory: a series takes about 200 bytes.
	maxMaxSeries = 10_000_000
	minStaleness = time.Minute
)

// Unmarshal implements confmap.Unmarshaler. It returns an error for durations without a unit.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return decode.Into(conf, c) }

// Validate checks the configuration without contacting a provider. Each error names its field.
func (c *Config) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...)))
	}
	if !c.Intensity.HasValue() && !c.Embodied.HasValue() {
		errs = append(errs, errors.New("intensity or embodied must be set: there is no default"))
	}
	if !within(c.PUE, 1, maxPUE) {
		wrong("pue", "must be from 1 to %d, is %v", maxPUE, c.PUE)
	}
	if c.MaxSeries < 1 || c.MaxSeries > maxMaxSeries {
		wrong("max_series", "must be from 1 to %d, is %d", maxMaxSeries, c.MaxSeries)
	}
	if c.MaxStaleness < minStaleness {
		wrong("max_staleness", "must be at least %v, is %v", minStaleness, c.MaxStaleness)
	}
	return errors.Join(errs...)
}

// Validate checks the embodied emissions.
func (c *EmbodiedConfig) Validate() error {
	var errs []error
	if !within(c.Total, 0, maxEmbodied) || c.Total == 0 {
		errs = append(errs, fmt.Errorf("total: must be above 0 g and at most %v g, is %v", float64(maxEmbodied), c.Total))
	}
	if c.Lifespan < time.Hour || c.Lifespan > maxLifespan {
		errs = append(errs, fmt.Errorf("lifespan: must be from 1h to %.0fh, such as 35040h for four years, is %v", maxLifespan.Hours(), c.Lifespan))
	}
	if !within(c.Share, 0, 1) || c.Share == 0 {
		errs = append(errs, fmt.Errorf("share: must be above 0 and at most 1, is %v", c.Share))
	}
	return errors.Join(errs...)
}

// within reports whether x is a number from low to high.
func within(x, low, high float64) bool { return !math.IsNaN(x) && low <= x && x <= high }
