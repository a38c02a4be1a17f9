// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/window"
)

// CorrectionConfig corrects a meter as energy model prints it. The corrected power is factor
// times the meter's power, plus offset.
type CorrectionConfig struct {
	// Lag is how late the meter shows the power, from 0s to 2m. Energy is attributed by the usage
	// at the corrected time.
	Lag time.Duration `mapstructure:"lag"`
	// Factor scales the power of each zone of the meter, from 0.1 to 10.
	Factor float64 `mapstructure:"factor"`
	// Offset is added to the scaled power of each zone of the meter, in watts, from -10000 to
	// 10000.
	Offset float64 `mapstructure:"offset"`

	_ struct{}
}

var uncorrected = CorrectionConfig{Factor: 1}

// validate checks the settings of a meter with a poll interval, 0 if it has none.
func (c *CorrectionConfig) validate(wrong reporter, poll time.Duration) {
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

// Correction converts the settings to parts per million and microwatts.
func (c *CorrectionConfig) Correction() power.Correction {
	return power.Correction{
		Lag: c.Lag, Factor: uint64(math.Round(c.Factor * power.Unscaled)), Offset: int64(math.Round(c.Offset * 1e6)),
	}
}

// Correction returns the correction of a meter's zone. Chips of hwmon have many zones, so that only
// those of the whole machine, which can be calibrated, are corrected.
func (c *MetersConfig) Correction(meter MeterKind, zone *power.Zone) power.Correction {
	switch meter {
	case MeterIPMI:
		return c.IPMI.Correction()
	case MeterRedfish:
		return c.Redfish.Get().Correction()
	case MeterHwmon:
		if zone.Kind == power.Platform {
			return c.Hwmon.Correction()
		}
	case MeterHTTP:
		for id, source := range c.HTTPSources() {
			if zone.ID == HTTPZoneID(id) {
				return source.Correction()
			}
		}
	}
	return power.Correction{}
}
