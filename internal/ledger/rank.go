// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"

	"github.com/energyreceiver/energyreceiver/internal/units"
)

// rank decides which accounts have a series. A process, container, pod or VM keeps its rank when it
// gets or loses a series.
type rank struct {
	// usage is the active energy of the collections before the current one. Each counts three
	// quarters of the following one.
	usage units.Energy
	// gained is the active energy of the current collection that is not in the account.
	gained units.Energy
	// lost is the number of times that the series was lost to another. It decreases by 1 every 64
	// collections.
	lost uint8
}

const (
	// maxLost is the maximum of lost. At maxLost, a newcomer needs nine times the usage of the
	// smallest incumbent.
	maxLost      = 6
	forgiveAfter = 64
	// maxUsage bounds each part of a usage, so that sums do not overflow.
	maxUsage = 1 << 58
)

// now returns the usage including the current collection.
func (r *rank) now(recent units.Energy) units.Energy {
	return min(r.usage-r.usage/4, maxUsage) + min(r.gained, maxUsage) + min(recent, maxUsage)
}

// next begins a collection. A new series counts as if it had always used as much as in its first
// collection; otherwise an older, smaller one would take its place.
func (r *rank) next(recent units.Energy, isNew, forgive bool) {
	usage := r.now(recent)
	if isNew {
		usage = max(usage, 4*min(recent, maxUsage))
	}
	r.usage, r.gained = usage, 0
	if forgive && r.lost > 0 {
		r.lost--
	}
}

// A newcomer takes the place of the smallest incumbent if the newcomer's key is larger. The usage
// must then exceed the usage of the incumbent by an eighth. This margin doubles each time that the
// newcomer loses its series. An incumbent that was never reported can be displaced without an ended
// series, so a newcomer that lost no series needs only a larger usage.

func (r *rank) newcomerKey(recent units.Energy) uint64 {
	return units.MulDiv(uint64(r.now(recent)), 9, 8+1<<r.lost)
}

func (r *rank) incumbentKey(recent units.Energy, reported bool) uint64 {
	usage := uint64(r.now(recent))
	if reported {
		usage += usage / 8
	}
	return usage
}

// contender is a claimant or an account that has a series or wants one.
type contender struct {
	key   uint64
	index int32
}

func byKey(a, b contender) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index))
}
