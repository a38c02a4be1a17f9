// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/energyreceiver/energyreceiver/internal/decode"
	"github.com/energyreceiver/energyreceiver/internal/invalid"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/window"
)

// Section is a section of the setting meters. Key is the key of the section, such as ipmi or
// http/NAME.
type Section struct {
	Key string
	validator
}

type validator interface{ validate(wrong invalid.Reporter) }

// pointer constrains a type to a pointer to T that implements validator.
type pointer[T any] interface {
	*T
	validator
}

// single returns a list with one section, or an empty list if of is nil.
func single[T any, P pointer[T]](key string, of P) []Section {
	if of == nil {
		return nil
	}
	return []Section{{key, of}}
}

// named returns a copy of each section of a map, in the order of the keys.
func named[T any, P pointer[T]](sections map[component.ID]T) (all []Section) {
	for id, section := range sections {
		all = append(all, Section{id.String(), P(&section)})
	}
	slices.SortFunc(all, func(a, b Section) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// add decodes a named section and adds it to a map.
func add[T any](sections *map[component.ID]T, id component.ID, conf *confmap.Conf) error {
	var section T
	if err := conf.Unmarshal(&section); err != nil {
		return decode.Under(id.String(), err)
	}
	if *sections == nil {
		*sections = map[component.ID]T{}
	}
	(*sections)[id] = section
	return nil
}

// PollConfig configures a meter that is polled.
type PollConfig struct {
	// PollInterval is the time from the start of a poll to the start of the next one.
	PollInterval time.Duration `mapstructure:"poll_interval"`

	_ struct{}
}

func (c *PollConfig) validate(wrong invalid.Reporter, least time.Duration) {
	if c.PollInterval < least {
		wrong("poll_interval", "must be at least %v, is %v", least, c.PollInterval)
	}
}

// CorrectionConfig corrects the readings of a meter. The command "energy model" prints these
// settings. The corrected power is factor times the meter's power, plus offset.
type CorrectionConfig struct {
	// Lag is the delay between a change of power and the reading that shows it, from 0s to 2m. Energy
	// is attributed according to the usage at the time of the reading minus lag.
	Lag time.Duration `mapstructure:"lag"`
	// Factor multiplies the power of each zone of the meter. It is from 0.1 to 10.
	Factor float64 `mapstructure:"factor"`
	// Offset is the power in watts that is added to each zone of the meter after factor is applied. It
	// is from -10000 to 10000.
	Offset float64 `mapstructure:"offset"`

	_ struct{}
}

var uncorrected = CorrectionConfig{Factor: 1}

// validate checks the settings. poll is the poll interval of the meter, or 0 for meters without
// one.
func (c *CorrectionConfig) validate(wrong invalid.Reporter, poll time.Duration) {
	if c.Lag < 0 || c.Lag > power.MaxLag {
		wrong("lag", "must be between 0s and %v, is %v", power.MaxLag, c.Lag)
	}
	if most := window.MaxAge - c.Lag; c.Lag > 0 && poll > most {
		wrong("lag", "of %v requires a poll_interval of at most %v, is %v", c.Lag, most, poll)
	}
	if !(c.Factor >= float64(power.MinFactor)/power.Unscaled && c.Factor <= power.MaxFactor/power.Unscaled) {
		wrong("factor", "must be between 0.1 and %d, is %g", power.MaxFactor/power.Unscaled, c.Factor)
	}
	if most := float64(power.MaxOffset) / 1e6; !(c.Offset >= -most && c.Offset <= most) {
		wrong("offset", "must be between %g and %g watts, is %g", -most, most, c.Offset)
	}
}

// Correction returns the settings as a power.Correction, with the factor in parts per million and
// the offset in microwatts.
func (c *CorrectionConfig) Correction() power.Correction {
	return power.Correction{
		Lag: c.Lag, Factor: uint64(math.Round(c.Factor * power.Unscaled)), Offset: int64(math.Round(c.Offset * 1e6)),
	}
}
