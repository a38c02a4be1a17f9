// SPDX-License-Identifier: Apache-2.0

// Package phase divides energy among the phases of a run or of a day: install, build, test. One phase lasts until the next
// begins or it ends. Outside of all phases the phase is None, so that the energies of the phases add up to the whole.
package phase

import "github.com/energyreceiver/energyreceiver/internal/units"

// None is the name of the time outside of all phases. No phase may be called so.
const None = "none"

// Mark begins a phase, which ends the one before it. With None it only ends that one.
type Mark struct{ Phase string }

// Share divides energy among phases in proportion to what was used in each since energy was last divided. A meter that is read
// seldom thus tells its energy late and yet of the right phases.
type Share struct {
	phases []string
	used   []uint64
}

// Use notes what was used in a phase, in any unit.
func (s *Share) Use(phase string, used uint64) {}

// Divide divides energy, exactly.
func (s *Share) Divide(e units.Energy, yield func(phase string, e units.Energy)) {}
