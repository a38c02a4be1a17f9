// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"math"

	"github.com/energyreceiver/energyreceiver/internal/machine"
	"github.com/energyreceiver/energyreceiver/internal/power/model"
)

// The expected errors, relative to the power: means over machines, each left out in turn
// (dev/results/models.csv). A test computes them.
const (
	// scalableError is the error of TDP and shape on servers like the measured servers.
	scalableError = 0.098
	// otherError is the error of TDP and shape on other CPUs.
	otherError = 0.634
	// familyError and serverError are the errors of the TDP of a CPU that is not listed, taken from
	// the TDP per core of its family or of all servers. They are independent of the errors above,
	// so their squares are added.
	familyError, serverError = 0.34, 0.428
	// The errors between given idle and full power. The first line has the errors of the default
	// shape, and the second line the errors of a straight line.
	scalableShapeError, otherShapeError = 0.021, 0.257
	scalableLineError, otherLineError   = 0.17, 0.213
	// memoryError is the error of the power of memory by its size.
	memoryError = 0.229
)

// errorOfPart returns the expected error of the machine's power. ofHost is the error of its host's
// power. Both are the same unless the machine is virtual.
func (h *host) errorOfPart(ofHost float64) float64 {
	if h.Virtual {
		return model.ErrorOfPart(ofHost)
	}
	return ofHost
}

// packageError returns the expected error of the power of the packages. For a virtual machine,
// these are the packages of the host.
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

// BetweenError returns the expected error of the power of packages that Between computes from exact
// powers. It is 0, not available, for the shape of a single machine.
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
