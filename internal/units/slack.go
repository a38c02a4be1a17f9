// SPDX-License-Identifier: Apache-2.0

package units

import (
	"slices"
	"time"
)

// Slack decides when to shrink a table that has grown. The zero Slack is ready to use.
type Slack struct {
	ample bool
	since time.Duration
}

const (
	// SlackTime is the minimum time for which a table must have been too large, so that a table
	// that soon grows again is not shrunk.
	SlackTime = time.Minute
	// A table is too large if less than 1/slackShare of its capacity is in use, and its capacity is
	// above leastCapacity.
	slackShare    = 4
	leastCapacity = 1024
)

// Ample reports whether used has been less than a quarter of capacity at every call for SlackTime.
// now is a clock that does not step back.
func (s *Slack) Ample(used, capacity int, now time.Duration) bool {
	if capacity <= leastCapacity || used > capacity/slackShare {
		s.ample = false
		return false
	}
	if !s.ample {
		s.ample, s.since = true, now
	}
	if now-s.since < SlackTime {
		return false
	}
	s.ample = false
	return true
}

// Shrunk returns a copy of a map that is sized for its elements. Go maps never shrink.
func Shrunk[M ~map[K]V, K comparable, V any](m M) M {
	small := make(M, len(m))
	for k, v := range m {
		small[k] = v
	}
	return small
}

// ShrunkTable returns a copy of the table without the unused entries at its end, and the unused
// indices that remain. unused has the unused indices of the table.
func ShrunkTable[T any, I ~int32](table []T, unused []I, isUnused func(int) bool) ([]T, []I) {
	n := len(table)
	for n > 0 && isUnused(n-1) {
		n--
	}
	var kept []I
	for _, i := range unused {
		if int(i) < n {
			kept = append(kept, i)
		}
	}
	return slices.Clone(table[:n]), slices.Clip(kept)
}
