// SPDX-License-Identifier: Apache-2.0

package weigh

import (
	"time"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// CPUTime weighs claims by their CPU time less Share.Discount.
type CPUTime struct{ stateless }

// Weigh sets the Work of all shares of an interval. It always measures.
func (CPUTime) Weigh(_ time.Time, shares []*Share) (measured bool, err error) {
	for _, s := range shares {
		s.Work = uint64(s.CPU - s.Discount)
	}
	return true, nil
}

// Name describes the weight.
func (CPUTime) Name() string { return "CPU time, less where threads shared a core" }

// stateless is embedded in weights that shares have completely.
type stateless struct{}

// Forget has no effect.
func (stateless) Forget() {}

// Calibrate has no effect.
func (stateless) Calibrate(units.Energy, int, time.Time, bool) {}

// Close has no effect.
func (stateless) Close() error { return nil }
