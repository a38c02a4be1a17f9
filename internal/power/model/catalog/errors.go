// SPDX-License-Identifier: Apache-2.0

package catalog

import "math"

// The errors to be expected, relative to the power: means over the machines of which each was left out in turn (docs/accuracy.md). A test
// computes them.
const (
	// sameCPUError is of another machine with the same CPU: the median of 619 published SPECpower results, at the wall. It is not computed
	// here.
	sameCPUError = 0.058
	// scalableError is of TDP and shape on servers of the families that were measured.
	scalableError = 0.098
	// otherError is of TDP and shape on other CPUs.
	otherError = 0.634
	// familyError is of the TDP per core of a family, and serverError of that of all servers, for a CPU that is not listed. They add to the above as squares.
	familyError, serverError = 0.34, 0.428
	// memoryError is of memory by its size.
	memoryError = 0.229
)

// packageError returns the error to be expected of the packages' power.
func (h *host) packageError() float64 {
	if h.measured != nil {
		return sameCPUError
	}
	expected := otherError
	if isXeonScalable(h.family) {
		expected = scalableError
	}
	switch {
	case h.cpu.tdp > 0 && (!h.Virtual || !h.guessed):
		return expected
	case h.typical.ofFamily:
		return math.Hypot(expected, familyError) // independent of each other
	}
	return math.Hypot(expected, serverError)
}
