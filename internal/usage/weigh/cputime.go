// SPDX-License-Identifier: Apache-2.0

package weigh

import "time"

// CPUTime weighs claims by their CPU time less Share.Discount.
type CPUTime struct{}

// Weigh sets the Work of all shares of an interval. It always measures.
func (CPUTime) Weigh(_ time.Time, shares []Share) (measured bool, err error) {
	for i := range shares {
		s := &shares[i]
		s.Work = uint64(s.CPU - s.Discount)
	}
	return true, nil
}

// Forget has no effect, because shares have all of the CPU time.
func (CPUTime) Forget() {}

// Name describes the weight.
func (CPUTime) Name() string { return "CPU time, less where threads shared a core" }

// Close has no effect.
func (CPUTime) Close() error { return nil }
