// SPDX-License-Identifier: Apache-2.0

package emissions

import (
	"go.uber.org/zap"

	"github.com/energyreceiver/energyreceiver/processor/emissions/internal/signal"
)

// Carbon intensities outside these bounds are unlikely, but possible. A hydropower grid may be
// below if only the emissions of operation count, and a marginal power plant may be above. Yearly
// means of countries are from 20 to 1306 g/kWh, which is at most 1.3 kg/kWh and 2900 lb/MWh.
const (
	leastPlausible signal.Rate = 2_000_000
	mostPlausible  signal.Rate = 1_500_000_000
)

// implausible returns the probable reason for an implausible carbon intensity, empty if the
// intensity is plausible. 0 is plausible: a contract may be for electricity without emissions.
func implausible(r signal.Rate) string {
	switch {
	case 0 < r && r < leastPlausible:
		return "the unit is g/kWh, and the value is probably in kg/kWh"
	case r > mostPlausible:
		return "the unit is g/kWh, and the value is probably in lb/MWh"
	}
	return ""
}

// plausibility logs implausible carbon intensities, one warning for each time that the intensity becomes implausible.
type plausibility struct {
	logger *zap.Logger
	warned bool
}

func (p *plausibility) check(r signal.Rate) {
	reason := implausible(r)
	if reason != "" && !p.warned {
		p.logger.Warn("Carbon intensity is implausible", zap.Float64("g_per_kWh", float64(r)/1e6), zap.String("reason", reason))
	}
	p.warned = reason != ""
}
