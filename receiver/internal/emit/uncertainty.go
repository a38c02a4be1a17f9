// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"math"
	"time"

	"github.com/energyreceiver/energyreceiver/internal/attribution"
	"github.com/energyreceiver/energyreceiver/internal/ledger"
	"github.com/energyreceiver/energyreceiver/internal/power"
	"github.com/energyreceiver/energyreceiver/internal/units"
)

// hasUncertainty reports whether the uncertainty of a kind's active power is available.
func hasUncertainty(k *ledger.KindTotals) bool {
	return k.Model != attribution.NoModel && k.StandardError >= 0
}

// uncertainty returns the standard deviation of an account's active power of a kind in the current
// collection, in watts. It combines three independent errors: the account's share of the error of
// the node's active power, the error of the attribution weight, and the rounding of CPU times.
func (l *kindLabels) uncertainty(ledger *ledger.Totals, k *ledger.KindTotals, energy units.Energy) float64 {
	seconds := k.RecentTime.Seconds()
	share := min(energy.Joules()/k.RecentActive.Joules(), 1)
	ofNode := share * k.StandardError
	ofKey := 0.0
	if l.deviation != nil {
		window := k.RecentTime / time.Duration(max(k.Windows, 1))
		ofKey = l.deviation(window, k.Shared) * (1 - share) * energy.Joules() / seconds
	}
	ofRounding := 0.0
	if l.zone != power.GPU && energy > 0 && ledger.Busy > 0 {
		perCPU := k.RecentActive.Joules() / ledger.Busy.Seconds() // J per second of CPU time
		ofRounding = roundingError * ledger.Resolution.Seconds() * perCPU / seconds
	}
	return math.Sqrt(ofNode*ofNode + ofKey*ofKey + ofRounding*ofRounding)
}

// roundingError is the standard deviation of a process's CPU time in a collection, in units of the
// resolution. User and system time are rounded down at both ends of the collection: four errors
// with the variance of a uniform distribution, 1/12 each.
var roundingError = math.Sqrt(4.0 / 12)
