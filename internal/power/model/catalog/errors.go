// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// The errors to be expected, relative to the power: means over the machines of which each was left
// out in turn (dev/results/models.csv). A test computes them.
const (
	// scalableError is of TDP and shape on servers like those that were measured.
	scalableError = 0.098
	// otherError is of TDP and shape on other CPUs.
	otherError = 0.634
	// familyError is of the TDP per core of a family, and serverError of that of all servers, for a
	// CPU that is not listed. They add to the above as squares.
	familyError, serverError = 0.34, 0.428
	// scalableShapeError and otherShapeError are of the default shape where idle and full power are
	// known, and the others of a straight line.
	scalableShapeError, otherShapeError = 0.021, 0.257
	scalableLineError, otherLineError   = 0.17, 0.213
	// memoryError is of memory by its size.
	memoryError = 0.229
)

// errorOfPart returns the expected error of the machine's power, from the error of its host's,
// which it is unless it is virtual.
func (h *host) errorOfPart(ofHost float64) float64 {
	if h.Virtual {
		return model.ErrorOfPart(ofHost)
	}
	return ofHost
}

// packageError returns the error to be expected of the packages' power, of the host if the machine
// is virtual.
func (h *host) packageError() float64 {
	if h.measured != nil {
		return model.SameCPUError
	}
	expected := otherError
	if h.isXeonScalable() {
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

// BetweenError returns the error to be expected of the packages' power by Between, where both
// powers are right. It is 0, not available, for the shape of one machine.
func BetweenError(m machine.Machine, shape string) float64 {
	h := find(m)
	scalable := h.isXeonScalable()
	switch {
	case shape == LinearShape && scalable:
		return scalableLineError
	case shape == LinearShape:
		return otherLineError
	case shape != "" && shape != DefaultShape:
		return 0
	case scalable:
		return scalableShapeError
	}
	return otherShapeError
}
