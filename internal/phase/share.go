// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"slices"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// Share divides an amount among phases in proportion to what was used in each since something was last divided. A meter that is
// read seldom thus tells its energy late and yet of the right phases.
//
// Its memory is bounded by the number of phases with different names. The zero Share is in the phase None.
type Share struct {
	phases  []string
	used    []uint64 // by the index of phases
	current string
}

// Use notes that a phase is the current one, and what was used in it, in any unit.
func (s *Share) Use(phase string, used uint64) {
	s.current = phase
	if used == 0 {
		return
	}
	i := slices.Index(s.phases, phase)
	if i < 0 {
		i = len(s.phases)
		s.phases, s.used = append(s.phases, phase), append(s.used, 0)
	}
	s.used[i] = units.AddSaturating(s.used[i], used)
}

// Divide divides an amount in whole units: the parts add up to it. If nothing was used, all of it is the current phase's. It calls
// yield for each phase that has a part, and forgets what was used. An amount of 0 changes nothing.
func (s *Share) Divide(amount uint64, yield func(phase string, part uint64)) {
	if amount == 0 {
		return
	}
	var total, sum, given uint64
	for _, used := range s.used {
		total = units.AddSaturating(total, used)
	}
	for i, phase := range s.phases {
		sum = units.AddSaturating(sum, s.used[i])
		upTo := units.MulDiv(amount, sum, total)
		if part := upTo - given; part > 0 {
			yield(phase, part)
		}
		given = upTo
	}
	if len(s.phases) == 0 {
		yield(s.Current(), amount)
	}
	s.Forget()
}

// Current returns the phase of the last call of Use, None before the first.
func (s *Share) Current() string {
	if s.current == "" {
		return None
	}
	return s.current
}

// Forget forgets what was used so far, and keeps the current phase.
func (s *Share) Forget() { s.phases, s.used = s.phases[:0], s.used[:0] }
